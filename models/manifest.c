/* manifest.c - msgpack to a layout: nothing of it is believed before it was checked. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/manifest_private.h"

/* --- tensors --------------------------------------------------------------------------------- */

struct piece {
    struct wf_nest nest;
    uint32_t form; /* index into r->forms */
    bool fill;
    uint32_t param; /* index into r->params */
    uint64_t value;
};

static enum wf_status take_piece(struct wf_manifest_reader *r, struct piece *piece)
{
    uint32_t parts = 0;
    int64_t param = 0;
    uint64_t tail[3] = {0};
    enum wf_status status = wf_manifest_take_list(r, 1, 5, &parts);
    status = status == WF_OK ? wf_manifest_take_index(r, r->form_count, &piece->form) : status;
    piece->fill = status == WF_OK && parts > 1 && wf_msgpack_take_nil(&r->in);
    if (status == WF_OK && parts > 1 && !piece->fill) {
        status = wf_manifest_take_signed(r, &param);
    }
    for (uint32_t i = 2; i < parts && status == WF_OK; i++) {
        status = wf_manifest_take_number(r, i == 4 ? UINT8_MAX : INT64_MAX, &tail[i - 2]);
    }
    if (status != WF_OK) {
        return status;
    }
    if (!piece->fill) {
        int64_t number = 0;
        if (__builtin_add_overflow(param, (int64_t)r->next_param, &number) || number < 0 ||
            number >= r->param_count || tail[2] > WF_VALUE_LESS_ONE) {
            return wf_manifest_refuse(r,
                                      "a parameter of the list, and a rule of values, before it");
        }
        piece->param = (uint32_t)number;
        r->next_param = piece->param + 1;
    }
    piece->nest = r->forms[piece->form];
    piece->nest.tensor_offset = tail[0];
    piece->nest.param_first = tail[1];
    piece->value = tail[2];
    return WF_OK;
}

static void build_piece(struct wf_manifest_reader *r, const struct piece *piece)
{
    struct wf_piece like = {
        .form = r->built[piece->form], .kind = WF_PIECE_FILL, .value_rule = (uint16_t)piece->value};
    if (!piece->fill) {
        like.kind = WF_PIECE_DATA;
        like.param = r->params[piece->param];
    }
    wf_build_formed(&r->build, &like, &piece->nest);
}

/* A piece fits its tensor and its parameter, behind the one before it (the first: after nothing).
 */
static enum wf_status check_piece(struct wf_manifest_reader *r, const struct wf_manifest_type *type,
                                  const struct piece *piece, const uint64_t *before)
{
    uint64_t elements = INT64_MAX, offset = piece->nest.tensor_offset;
    if (!piece->fill && r->model != NULL) {
        elements = r->model->params[r->params[piece->param]].elements;
    }
    if (type->kind != WF_TENSOR_WEIGHTS) {
        return wf_manifest_refuse(r, "no piece: derived, kept and view tensors have none");
    }
    if (piece->nest.elem_bytes != wf_dtype_bytes(type->dtype) ||
        offset % piece->nest.elem_bytes != 0) {
        return wf_manifest_refuse(r, "a piece of its elements");
    }
    if (before != NULL && offset <= *before) {
        return wf_error_set(r->error, WF_INVALID,
                            "begins at byte %" PRIu64 " of the tensor, the piece before it at byte "
                            "%" PRIu64 ": %s",
                            offset, *before,
                            offset == *before ? "they overlap"
                                              : "expected pieces by rising byte, and no overlap");
    }
    if (r->piece_count == WF_MANIFEST_PIECES_MAX) {
        return wf_manifest_refuse(r, "at most 2^22 pieces");
    }
    r->piece_count++;
    return wf_nest_check(&piece->nest, elements, type->bytes, r->error);
}

/* Whoever wrote the manifest knows a piece by its parameter. */
static void name_piece(const struct wf_manifest_reader *r, const struct piece *piece)
{
    uint32_t param = piece->fill ? 0 : r->params[piece->param];
    const char *name = piece->fill        ? "the fill"
                       : r->model != NULL ? r->model->params[param].name
                                          : r->out->params[param].name;
    wf_error_prefix(r->error, "%s", name);
}

static enum wf_status take_pieces(struct wf_manifest_reader *r, const struct wf_manifest_type *type,
                                  uint32_t count)
{
    enum wf_status status = WF_OK;
    uint64_t before = 0;
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        struct piece piece = {0};
        status = take_piece(r, &piece);
        if (status == WF_OK) {
            status = check_piece(r, type, &piece, i > 0 ? &before : NULL);
            if (status != WF_OK) {
                name_piece(r, &piece);
            }
        }
        before = piece.nest.tensor_offset;
        if (status == WF_OK) {
            build_piece(r, &piece);
        }
    }
    return status;
}

static enum wf_status take_tensor(struct wf_manifest_reader *r, uint64_t *bytes)
{
    char name[WF_NAME_MAX];
    size_t len = 0;
    uint32_t parts = 0, type = 0;
    enum wf_status status = wf_manifest_take_list(r, 2, WF_MANIFEST_PIECES_MAX, &parts);
    status = status == WF_OK ? wf_manifest_take_name(r, name, &len) : status;
    status = status == WF_OK ? wf_manifest_take_index(r, r->type_count, &type) : status;
    if (status != WF_OK) {
        return status;
    }
    const struct wf_manifest_type *it = &r->types[type];
    if (__builtin_add_overflow(*bytes, it->bytes, bytes) || *bytes > INT64_MAX) {
        return wf_manifest_refuse(r, "tensors of less than 2^63 bytes together");
    }
    wf_build_tensor(&r->build, name, it->dtype, it->ndim, it->shape, it->kind);
    if (it->ordered) {
        wf_build_order(&r->build, it->order);
    }
    status = take_pieces(r, it, parts - 2);
    if (status != WF_OK) {
        wf_error_prefix(r->error, "%s", name);
    }
    return status;
}

static enum wf_status take_tensors(struct wf_manifest_reader *r, uint32_t *count_out)
{
    uint64_t bytes = 0;
    r->part = "tensors";
    r->index = 0;
    r->before_count = 0;
    enum wf_status status = wf_manifest_take_list(r, 0, WF_MANIFEST_TENSORS_MAX, count_out);
    for (; r->index < *count_out && status == WF_OK; r->index++) {
        status = take_tensor(r, &bytes);
    }
    return status;
}

static enum wf_status take_aliases(struct wf_manifest_reader *r, uint32_t tensor_count)
{
    uint32_t count = 0, parts = 0, tensor = 0;
    char name[WF_NAME_MAX];
    size_t len = 0;
    r->part = "aliases";
    r->index = 0;
    r->before_count = 0;
    enum wf_status status = wf_manifest_take_list(r, 0, WF_MANIFEST_TENSORS_MAX, &count);
    for (; r->index < count && status == WF_OK; r->index++) {
        status = wf_manifest_take_list(r, 2, 2, &parts);
        status = status == WF_OK ? wf_manifest_take_name(r, name, &len) : status;
        status = status == WF_OK ? wf_manifest_take_index(r, tensor_count, &tensor) : status;
        if (status == WF_OK) {
            wf_build_alias(&r->build, name, tensor);
        }
    }
    return status;
}

/* --- all of it ------------------------------------------------------------------------------- */

static enum wf_status take_hash(struct wf_manifest_reader *r)
{
    uint64_t len = 0;
    const uint8_t *bytes = NULL;
    struct wf_msgpack begin = r->in;
    if (wf_msgpack_take_nil(&r->in)) {
        return WF_OK;
    }
    if (wf_msgpack_take_head(&r->in, WF_MSGPACK_BYTES, &len) != WF_MSGPACK_TAKEN ||
        len != WF_HASH_BYTES || !wf_msgpack_take_span(&r->in, len, &bytes)) {
        r->in = begin;
        return wf_manifest_refuse(r, "16 bytes, or nil");
    }
    r->has_hash = true;
    r->hash = (struct wf_hash){wf_big_endian(bytes, 8), wf_big_endian(bytes + 8, 8)};
    return WF_OK;
}

static enum wf_status take_all(struct wf_manifest_reader *r)
{
    struct wf_manifest_word magic = {0};
    uint32_t parts = 0, tensor_count = 0;
    uint64_t version = 0;
    r->part = "part";
    enum wf_status status = wf_manifest_take_list(r, 9, 9, &parts);
    status = status == WF_OK ? wf_manifest_take_text(r, &magic) : status;
    if (status == WF_OK && (magic.len != strlen(WF_MANIFEST_MAGIC) ||
                            memcmp(magic.text, WF_MANIFEST_MAGIC, magic.len) != 0)) {
        status = wf_manifest_refuse(r, "\"" WF_MANIFEST_MAGIC "\" before it");
    }
    if (status != WF_OK) {
        wf_error_prefix(r->error, "is no manifest");
    }
    status = status == WF_OK ? wf_manifest_take_number(r, UINT32_MAX, &version) : status;
    if (status == WF_OK && version != WF_MANIFEST_VERSION) {
        status = wf_error_set(r->error, WF_UNSUPPORTED,
                              "version %" PRIu64 " of manifests; this build reads version %d",
                              version, WF_MANIFEST_VERSION);
    }
    status = status == WF_OK ? take_hash(r) : status;
    status = status == WF_OK ? wf_manifest_take_words(r) : status;
    status = status == WF_OK ? wf_manifest_take_params(r) : status;
    status = status == WF_OK ? wf_manifest_take_types(r) : status;
    status = status == WF_OK ? wf_manifest_take_forms(r) : status;
    status = status == WF_OK ? take_tensors(r, &tensor_count) : status;
    status = status == WF_OK ? take_aliases(r, tensor_count) : status;
    if (status == WF_OK && wf_msgpack_left(&r->in) > 0) {
        r->part = "part";
        r->index = parts;
        status = wf_manifest_refuse(r, "the manifest's end");
    }
    return status;
}

static enum wf_status check_hash(const struct wf_manifest_reader *r)
{
    char said[WF_HASH_TEXT], found[WF_HASH_TEXT];
    struct wf_layout *layout = r->out->layout;
    if (r->model == NULL) {
        layout->hash = r->hash; /* its parameters have no numbers to compute one from */
    }
    if (!r->has_hash || wf_hash_equal(layout->hash, r->hash)) {
        return WF_OK;
    }
    wf_hash_format(r->hash, said);
    wf_hash_format(layout->hash, found);
    return wf_error_set(r->error, WF_MISMATCH,
                        "the manifest says that its layout's hash is %s; with this model it is %s: "
                        "it was made for another model, or changed",
                        said, found);
}

enum wf_status wf_manifest_read(const uint8_t *bytes, size_t len, const struct wf_model *model,
                                struct wf_manifest *manifest_out, struct wf_error *error)
{
    *manifest_out = (struct wf_manifest){0};
    if (len > WF_MANIFEST_BYTES_MAX) {
        return wf_error_set(error, WF_INVALID, "a manifest of %zu bytes; at most %d are read", len,
                            WF_MANIFEST_BYTES_MAX);
    }
    struct wf_manifest_reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a manifest");
    }
    *r = (struct wf_manifest_reader){.bytes = bytes,
                                     .in = {bytes, bytes + len},
                                     .model = model,
                                     .error = error,
                                     .out = manifest_out};
    wf_build_begin(&r->build);
    enum wf_status status = take_all(r);
    status = wf_build_end(&r->build, status, &manifest_out->layout, error);
    status = status == WF_OK ? check_hash(r) : status;
    free(r->words);
    free(r->params);
    free(r->types);
    free(r->forms);
    free(r->built);
    free(r);
    return status;
}

void wf_manifest_fini(struct wf_manifest *manifest)
{
    wf_layout_free(manifest->layout);
    free(manifest->params);
    free(manifest->text);
    *manifest = (struct wf_manifest){0};
}
