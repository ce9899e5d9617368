/* checkpoint_read.c - elements of a parameter out of a checkpoint's files, whichever way they are
 * stored: in one run, apart inside a tensor of several, or as fp8 codes with scales.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/casts.h"
#include "models/layout.h"
#include "models/quant.h"
#include "models/variant.h"
#include "tools/files/checkpoint.h"
#include "tools/files/io.h"
#include "tools/files/stored.h"

enum { BLOCK = 128, DECODE_ELEMENTS = 16 << 10 };

/* Elements that lie apart: everything from the first to the last byte is read, and they are picked
 * out. */
static enum wf_status read_apart(const struct wf_checkpoint *checkpoint,
                                 const struct wf_checkpoint_entry *entry, uint64_t first,
                                 uint64_t count, uint8_t *buffer, struct wf_error *error)
{
    struct wf_nest nest = wf_layout_nest(checkpoint->stored, entry->piece);
    size_t bytes = wf_dtype_bytes(entry->dtype);
    uint64_t from = UINT64_MAX, to = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t byte = wf_stored_byte(&nest, first + i);
        from = byte < from ? byte : from;
        to = byte + bytes > to ? byte + bytes : to;
    }
    uint8_t *span = count > 0 ? malloc(to - from) : NULL;
    if (span == NULL) {
        return count == 0 ? WF_OK
                          : wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu64 " bytes",
                                         to - from);
    }
    enum wf_status status = wf_file_pread(checkpoint->files[entry->file].fd, span,
                                          (size_t)(to - from), entry->offset + from, error);
    for (uint64_t i = 0; i < count && status == WF_OK; i++) {
        memcpy(buffer + i * bytes, span + (wf_stored_byte(&nest, first + i) - from), bytes);
    }
    free(span);
    return status;
}

/* Elements as the files have them. */
static enum wf_status read_stored(const struct wf_checkpoint *checkpoint,
                                  const struct wf_checkpoint_entry *entry, uint64_t first,
                                  uint64_t count, void *buffer, struct wf_error *error)
{
    const struct wf_checkpoint_file *file = &checkpoint->files[entry->file];
    size_t bytes = wf_dtype_bytes(entry->dtype);
    enum wf_status status = entry->piece != UINT32_MAX
                                ? read_apart(checkpoint, entry, first, count, buffer, error)
                                : wf_file_pread(file->fd, buffer, (size_t)count * bytes,
                                                entry->offset + first * bytes, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "%s/%s", checkpoint->folder, file->name);
    }
    return status;
}

/* --- matrices that are stored as codes -------------------------------------------------------- */

struct decoding {
    const struct wf_checkpoint *checkpoint;
    const struct wf_checkpoint_codes *of;
    enum wf_dtype dtype;
    float *scales; /* of one row of blocks */
    uint64_t row;  /* which; UINT64_MAX: none yet */
    uint8_t codes[DECODE_ELEMENTS];
};

/* Scales as f32, whatever the file has them in: llm-compressor's are bf16. */
static enum wf_status read_scales(const struct decoding *d, uint64_t first, uint64_t count,
                                  struct wf_error *error)
{
    const struct wf_checkpoint_entry *entry = &d->of->scales;
    wf_cast_t *cast = wf_cast_for(entry->dtype, WF_DTYPE_F32, false);
    uint8_t *stored = malloc((size_t)count * wf_dtype_bytes(entry->dtype));
    enum wf_status status =
        stored == NULL ? wf_error_set(error, WF_NO_MEMORY, "no memory for scales")
        : cast == NULL
            ? wf_error_set(error, WF_UNSUPPORTED, "scales in %s: expected f32, f16 or bf16",
                           wf_dtype_name(entry->dtype))
            : read_stored(d->checkpoint, entry, first, count, stored, error);
    if (status == WF_OK) {
        cast(d->scales, stored, count);
    }
    free(stored);
    return status;
}

/* Elements of one row, which lie in one chunk of it and begin with a block if they are of several.
 */
static enum wf_status decode_some(struct decoding *d, uint64_t row, uint64_t column, uint64_t count,
                                  uint8_t *to, struct wf_error *error)
{
    bool by_row = d->of->by_row;
    uint64_t blocks = by_row ? 1 : (d->of->columns + BLOCK - 1) / BLOCK, high = by_row ? 1 : BLOCK;
    enum wf_status status = WF_OK;
    if (d->row != row / high) {
        d->row = row / high;
        status = read_scales(d, d->row * blocks, blocks, error);
    }
    if (status == WF_OK) {
        status = read_stored(d->checkpoint, &d->of->codes, row * d->of->columns + column, count,
                             d->codes, error);
    }
    if (status == WF_OK) {
        wf_dequantise(by_row ? WF_QUANT_CHANNEL_DIV : WF_QUANT_DEEPSEEK, d->codes, count,
                      d->scales + (by_row ? 0 : column / BLOCK), blocks, 1, count, to, d->dtype,
                      count * wf_dtype_bytes(d->dtype), false);
    }
    return status;
}

static enum wf_status read_codes(const struct wf_checkpoint *checkpoint,
                                 const struct wf_checkpoint_entry *entry, uint64_t first,
                                 uint64_t count, uint8_t *buffer, struct wf_error *error)
{
    struct decoding *d = malloc(sizeof *d);
    const struct wf_checkpoint_codes *of = &checkpoint->codes[entry->codes];
    float *scales = malloc((of->columns / BLOCK + 1) * sizeof *scales);
    enum wf_status status =
        d && scales ? WF_OK : wf_error_set(error, WF_NO_MEMORY, "no memory for scales");
    if (d) {
        d->checkpoint = checkpoint;
        d->of = of;
        d->dtype = entry->dtype;
        d->scales = scales;
        d->row = UINT64_MAX;
    }
    for (uint64_t at = first; at < first + count && status == WF_OK;) {
        uint64_t row = at / of->columns, column = at % of->columns;
        uint64_t room = column % BLOCK ? BLOCK - column % BLOCK : DECODE_ELEMENTS;
        uint64_t left = of->columns - column, wanted = first + count - at;
        uint64_t some = room < left ? room : left;
        some = some < wanted ? some : wanted;
        status = decode_some(d, row, column, some,
                             buffer + (at - first) * wf_dtype_bytes(entry->dtype), error);
        at += some;
    }
    free(scales);
    free(d);
    return status;
}

enum wf_status wf_checkpoint_read(const struct wf_checkpoint *checkpoint, uint32_t param,
                                  uint64_t first, uint64_t count, void *buffer,
                                  struct wf_error *error)
{
    WF_ASSERT(param < checkpoint->entry_count);
    const struct wf_checkpoint_entry *entry = &checkpoint->entries[param];
    WF_ASSERT(first <= entry->elements && count <= entry->elements - first);
    return entry->codes != UINT32_MAX ? read_codes(checkpoint, entry, first, count, buffer, error)
                                      : read_stored(checkpoint, entry, first, count, buffer, error);
}

enum wf_status wf_checkpoint_as_plain(struct wf_checkpoint *checkpoint, const struct wf_model *job,
                                      struct wf_error *error)
{
    const struct wf_variants *v = job->variants;
    if (!v || !v->config_quantised) {
        return WF_OK;
    }
    WF_ASSERT(checkpoint->entry_count == v->quantised->param_count && !checkpoint->codes);
    struct wf_checkpoint_entry *all = calloc((size_t)job->param_count + 1, sizeof *all);
    struct wf_checkpoint_codes *codes = calloc((size_t)v->pair_count + 1, sizeof *codes);
    if (!all || !codes) {
        free(all);
        free(codes);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u parameters", job->param_count);
    }
    for (uint32_t i = 0; i < checkpoint->entry_count; i++) {
        all[v->of_quantised[i]] = checkpoint->entries[i];
    }
    for (uint32_t i = 0; i < v->pair_count; i++) {
        const struct wf_variant_pair *pair = &v->pairs[i];
        const struct wf_param *matrix = &job->params[pair->matrix];
        codes[i] = (struct wf_checkpoint_codes){all[pair->codes], all[pair->scales],
                                                matrix->elements / matrix->shape[0],
                                                wf_quant_is_by_row(v->rule)};
        all[pair->matrix] = all[pair->codes];
        all[pair->matrix].dtype = matrix->dtype;
        all[pair->matrix].codes = i;
    }
    free(checkpoint->entries);
    checkpoint->entries = all;
    checkpoint->entry_count = v->plain_count;
    checkpoint->codes = codes;
    checkpoint->codes_count = v->pair_count;
    return WF_OK;
}
