/* engine_work.c - derived tensors of the stand-in for an engine, one function a kind.
 *
 * Sources: SGLang 0.5.23 layers/layernorm.py GemmaRMSNorm (gemma_weight),
 * models/deepseek_common/deepseek_weight_loader.py (w_kc, w_vc of an fp8 kv_b_proj: dequantised,
 * keys transposed in memory); vLLM 0.33.0 layers/attention/mla_attention.py (W_UK_T, W_UV).
 */
#include "tools/run/engine_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/casts.h"
#include "models/quant.h"

enum { BLOCK = 128 };

struct derived;
typedef void make_t(const struct derived *derived, void *const *written);

struct derived {
    make_t *make;
    const struct wf_layout *layout;
    uint32_t target;         /* index in the layout; WF_NONE: the packed head */
    uint32_t source, scales; /* that it is made of */
    uint64_t bytes;
    void *made, *live; /* `made` is owned; so is `live` of the packed head */
};

struct wf_engine_work {
    struct derived *items;
    uint32_t count;
};

/* --- kinds ----------------------------------------------------------------------------------- */

static void to_floats(const void *from, enum wf_dtype dtype, float *to, uint64_t count)
{
    wf_cast_for(dtype, WF_DTYPE_F32, false)(to, from, count);
}

static void from_floats(const float *from, void *to, enum wf_dtype dtype, uint64_t count)
{
    wf_cast_for(WF_DTYPE_F32, dtype, false)(to, from, count);
}

static void make_plus_one(const struct derived *d, void *const *written)
{
    const struct wf_tensor *source = &d->layout->tensors[d->source];
    uint64_t count = source->bytes / wf_dtype_bytes(source->dtype);
    float *values = malloc(count * sizeof *values + 1);
    WF_ASSERT(values != NULL);
    to_floats(written[d->source], source->dtype, values, count);
    for (uint64_t i = 0; i < count; i++) {
        values[i] += 1;
    }
    from_floats(values, d->made, d->layout->tensors[d->target].dtype, count);
    free(values);
}

/* Heads of kv_b_proj as numbers: of each dn rows for keys, then dv for values. */
static float *dequantised(const struct derived *d, void *const *written)
{
    const struct wf_tensor *codes = &d->layout->tensors[d->source];
    uint64_t rows = codes->shape[0], columns = codes->shape[1];
    float *values = malloc(rows * columns * sizeof *values);
    WF_ASSERT(values != NULL);
    wf_dequantise(WF_QUANT_DEEPSEEK, written[d->source], columns, written[d->scales],
                  (columns + BLOCK - 1) / BLOCK, rows, columns, values, WF_DTYPE_F32,
                  columns * sizeof *values, false);
    return values;
}

/* shape is heads, then the two sides of a matrix, of which `columns` is the one that kv_b_proj's
 * columns are; element (h, i, j) stands where the tensor's strides say. */
static void make_absorbed(const struct derived *d, void *const *written, bool keys)
{
    const struct wf_tensor *target = &d->layout->tensors[d->target];
    const struct wf_tensor *codes = &d->layout->tensors[d->source];
    uint64_t heads = target->shape[0], columns = codes->shape[1];
    uint64_t per_head = codes->shape[0] / heads, size = keys ? target->shape[1] : target->shape[2];
    uint64_t first = keys ? 0 : per_head - size;
    float *values = dequantised(d, written),
          *placed = malloc(heads * size * columns * sizeof *placed);
    WF_ASSERT(placed != NULL);
    for (uint64_t h = 0; h < heads; h++) {
        for (uint64_t r = 0; r < size; r++) {
            for (uint64_t c = 0; c < columns; c++) {
                int64_t at = (int64_t)h * target->strides[0] +
                             (int64_t)(keys ? r : c) * target->strides[1] +
                             (int64_t)(keys ? c : r) * target->strides[2];
                placed[at] = values[(h * per_head + first + r) * columns + c];
            }
        }
    }
    from_floats(placed, d->made, target->dtype, heads * size * columns);
    free(placed);
    free(values);
}

static void make_keys(const struct derived *d, void *const *written)
{
    make_absorbed(d, written, true);
}

static void make_values(const struct derived *d, void *const *written)
{
    make_absorbed(d, written, false);
}

/* Of WF_PACKED_ROWS rows the elements of one column stand together. */
static void make_packed(const struct derived *d, void *const *written)
{
    const struct wf_tensor *source = &d->layout->tensors[d->source];
    size_t each = wf_dtype_bytes(source->dtype);
    uint64_t columns = source->shape[1], row_bytes = columns * each;
    const uint8_t *from = written[d->source];
    uint8_t *to = d->made;
    for (uint64_t done = 0; done < d->bytes; done += WF_PACKED_ROWS * row_bytes) {
        for (uint64_t c = 0; c < columns; c++) {
            for (uint64_t r = 0; r < WF_PACKED_ROWS; r++) {
                memcpy(to, from + done + r * row_bytes + c * each, each);
                to += each;
            }
        }
    }
}

/* --- finding them ---------------------------------------------------------------------------- */

static const struct {
    const char *end, *source, *scales; /* ends of names */
    make_t *make;
} kinds[] = {
    {"gemma_weight", "weight", NULL, make_plus_one},
    {"mla_attn.mla_attn.W_UK_T", "kv_b_proj.weight", "kv_b_proj.weight_scale_inv", make_keys},
    {"mla_attn.mla_attn.W_UV", "kv_b_proj.weight", "kv_b_proj.weight_scale_inv", make_values},
    {"w_kc", "kv_b_proj.weight", "kv_b_proj.weight_scale_inv", make_keys},
    {"w_vc", "kv_b_proj.weight", "kv_b_proj.weight_scale_inv", make_values},
};

/* "buffer:model.norm.gemma_weight" -> "model.norm.weight"; WF_NONE: the layout has no such one. */
static uint32_t sibling(const struct wf_layout *layout, const char *name, const char *end,
                        const char *other)
{
    char text[WF_NAME_MAX + 64];
    const char *colon = strchr(name, ':');
    const char *begin = colon != NULL ? colon + 1 : name;
    int len =
        snprintf(text, sizeof text, "%.*s%s", (int)(strlen(begin) - strlen(end)), begin, other);
    return wf_layout_find(layout, text, (size_t)len);
}

static bool ends_with(const char *name, const char *end)
{
    size_t len = strlen(name), end_len = strlen(end);
    return len > end_len && strcmp(name + len - end_len, end) == 0 &&
           (name[len - end_len - 1] == '.' || name[len - end_len - 1] == ':');
}

static enum wf_status find_derived(const struct wf_layout *layout, uint32_t target,
                                   struct derived *out, struct wf_error *error)
{
    const char *name = layout->tensors[target].name;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (!ends_with(name, kinds[i].end)) {
            continue;
        }
        out->source = sibling(layout, name, kinds[i].end, kinds[i].source);
        out->scales = kinds[i].scales == NULL
                          ? WF_NONE
                          : sibling(layout, name, kinds[i].end, kinds[i].scales);
        out->make = kinds[i].make;
        bool found = out->source != WF_NONE && (kinds[i].scales == NULL || out->scales != WF_NONE);
        return found ? WF_OK
                     : wf_error_set(error, WF_UNSUPPORTED,
                                    "%s is derived, and what it is made of is not in the layout",
                                    name);
    }
    return wf_error_set(error, WF_UNSUPPORTED,
                        "%s is derived, and this stand-in for an engine cannot make it; run the "
                        "engine without it (another stage or backend)",
                        name);
}

static enum wf_status add(struct wf_engine_work *work, struct derived *item, struct wf_error *error)
{
    item->made = malloc(item->bytes + 1);
    if (item->made == NULL ||
        (item->live == NULL && (item->live = calloc(1, item->bytes)) == NULL)) {
        free(item->made);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for derived tensors");
    }
    work->items[work->count++] = *item;
    return WF_OK;
}

static enum wf_status add_packed(struct wf_engine_work *work, const struct wf_layout *layout,
                                 struct wf_error *error)
{
    static const char name[] = "model.embed_tokens.weight";
    uint32_t source = wf_layout_find(layout, name, strlen(name));
    if (source == UINT32_MAX) {
        return WF_OK; /* another stage has it */
    }
    const struct wf_tensor *tensor = &layout->tensors[source];
    uint64_t rows = tensor->shape[0] / WF_PACKED_ROWS * WF_PACKED_ROWS;
    struct derived item = {.make = make_packed,
                           .layout = layout,
                           .target = WF_NONE,
                           .source = source,
                           .scales = WF_NONE,
                           .bytes = rows * tensor->shape[1] * wf_dtype_bytes(tensor->dtype)};
    return add(work, &item, error);
}

enum wf_status wf_engine_work_new(const struct wf_layout *layout,
                                  const struct wf_run_memory *memory, bool packed_head,
                                  struct wf_engine_work **out, struct wf_error *error)
{
    struct wf_engine_work *work = calloc(1, sizeof *work);
    *out = NULL;
    if (work == NULL ||
        (work->items = calloc((size_t)layout->tensor_count + 1, sizeof *work->items)) == NULL) {
        free(work);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for derived tensors");
    }
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; status == WF_OK && i < layout->tensor_count; i++) {
        if (layout->tensors[i].kind == WF_TENSOR_DERIVED) {
            struct derived item = {.layout = layout,
                                   .target = i,
                                   .bytes = layout->tensors[i].bytes,
                                   .live = memory->tensors[i].address};
            status = find_derived(layout, i, &item, error);
            status = status == WF_OK ? add(work, &item, error) : status;
        }
    }
    if (status == WF_OK && packed_head) {
        status = add_packed(work, layout, error);
    }
    if (status != WF_OK || work->count == 0) {
        wf_engine_work_free(work);
        return status;
    }
    *out = work;
    return WF_OK;
}

void wf_engine_work_free(struct wf_engine_work *work)
{
    for (uint32_t i = 0; work != NULL && i < work->count; i++) {
        free(work->items[i].made);
        if (work->items[i].target == WF_NONE) {
            free(work->items[i].live);
        }
    }
    if (work != NULL) {
        free(work->items);
        free(work);
    }
}

/* --- a version ------------------------------------------------------------------------------- */

void wf_engine_work_make(struct wf_engine_work *work, void *const *written)
{
    for (uint32_t i = 0; i < work->count; i++) {
        work->items[i].make(&work->items[i], written);
    }
}

void wf_engine_work_adopt(struct wf_engine_work *work)
{
    for (uint32_t i = 0; i < work->count; i++) {
        memcpy(work->items[i].live, work->items[i].made, work->items[i].bytes);
    }
}

const void *wf_engine_work_packed(const struct wf_engine_work *work, uint64_t *bytes_out,
                                  enum wf_dtype *dtype_out)
{
    for (uint32_t i = 0; work != NULL && i < work->count; i++) {
        const struct derived *item = &work->items[i];
        if (item->target == WF_NONE) {
            *bytes_out = item->bytes;
            *dtype_out = item->layout->tensors[item->source].dtype;
            return item->live;
        }
    }
    return NULL;
}
