/* manifest_write.c - a layout to msgpack: words, types and forms once, names by what is new in
 * them.
 */
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "models/layout_private.h"
#include "models/manifest.h"

/* Things by their content, numbered as they come. */
struct table {
    uint32_t *slots; /* number + 1; 0 is free */
    uint32_t slot_count, count, most;
    const char **texts; /* borrowed */
    uint32_t *lens;
};

struct writer {
    const struct wf_model *model;
    const struct wf_layout *layout;
    struct table words;
    struct table types;   /* of whole struct type, as bytes */
    struct table forms;   /* of struct wf_form */
    struct wf_form *runs; /* forms of pieces that are runs; forms.texts points here */
    uint32_t run_count;
    uint32_t *param_of; /* number in the manifest of each of the model's, + 1 */
    uint32_t *params;   /* the model's, by their numbers here */
    uint32_t param_count;
    msgpack_packer packer;
    bool failed; /* memory was out */
    /* The name before, by its words. */
    uint32_t before[WF_MANIFEST_NAME_WORDS_MAX], before_count;
};

struct type {
    uint32_t dtype, kind, ndim, order_count;
    uint64_t shape[WF_SHAPE_MAX];
    uint32_t order[WF_SHAPE_MAX];
    uint32_t reserved; /* no padding: compared as bytes */
};

/* --- tables ---------------------------------------------------------------------------------- */

static void table_free(struct table *table)
{
    free(table->slots);
    free(table->texts);
    free(table->lens);
}

/* Where a content is, or would be: its slot. */
static uint32_t table_slot(const struct table *table, const void *text, size_t len)
{
    uint32_t slot = (uint32_t)wf_hash_bytes(text, len) & (table->slot_count - 1);
    for (; table->slots[slot] != 0; slot = (slot + 1) & (table->slot_count - 1)) {
        uint32_t number = table->slots[slot] - 1;
        if (table->lens[number] == len && memcmp(table->texts[number], text, len) == 0) {
            break;
        }
    }
    return slot;
}

/* Room for one more, with half of the slots free. */
static bool table_grow(struct table *table)
{
    if (2 * (table->count + 1) <= table->slot_count) {
        return true;
    }
    uint32_t wanted = table->slot_count ? 2 * table->slot_count : 64;
    const char **texts = reallocarray(table->texts, wanted / 2, sizeof *texts);
    table->texts = texts ? texts : table->texts;
    uint32_t *lens = reallocarray(table->lens, wanted / 2, sizeof *lens);
    table->lens = lens ? lens : table->lens;
    uint32_t *slots = calloc(wanted, sizeof *slots);
    if (!texts || !lens || !slots) {
        free(slots);
        return false;
    }
    free(table->slots);
    table->slots = slots;
    table->slot_count = wanted;
    for (uint32_t i = 0; i < table->count; i++) {
        table->slots[table_slot(table, texts[i], lens[i])] = i + 1;
    }
    return true;
}

/* The number of a content; UINT32_MAX if it is new and the table is full, or memory is out. `text`
 * must stay. */
static uint32_t table_put(struct writer *w, struct table *table, const void *text, size_t len)
{
    if (!table_grow(table)) {
        w->failed = true;
        return UINT32_MAX;
    }
    uint32_t slot = table_slot(table, text, len);
    if (table->slots[slot] == 0 && table->count == table->most) {
        return UINT32_MAX;
    }
    if (table->slots[slot] == 0) {
        table->texts[table->count] = text;
        table->lens[table->count] = (uint32_t)len;
        table->slots[slot] = ++table->count;
    }
    return table->slots[slot] - 1;
}

/* --- parts ----------------------------------------------------------------------------------- */

/* A name's words; gives how many, or 0 if they are too many or the table is full. */
static uint32_t split(struct writer *w, const char *name, uint32_t *words)
{
    for (uint32_t count = 0; count < WF_MANIFEST_NAME_WORDS_MAX; count++) {
        size_t len = strcspn(name, ".");
        words[count] = table_put(w, &w->words, name, len);
        if (words[count] == UINT32_MAX) {
            return 0;
        }
        if (name[len] == '\0') {
            return count + 1;
        }
        name += len + 1;
    }
    return 0;
}

/* Dimensions by falling stride. Of equal strides all but one dimension have one element, and the
 * other one is the outermost. */
static void order_of(const struct wf_tensor *tensor, uint32_t *order)
{
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        uint32_t at = i;
        for (; at > 0; at--) {
            uint32_t left = order[at - 1];
            if (tensor->strides[left] > tensor->strides[i] ||
                (tensor->strides[left] == tensor->strides[i] &&
                 tensor->shape[left] >= tensor->shape[i])) {
                break;
            }
            order[at] = left;
        }
        order[at] = i;
    }
}

/* As wf_build_tensor makes them. */
static bool is_row_major(const struct wf_tensor *tensor)
{
    uint64_t step = 1;
    for (uint32_t i = tensor->ndim; i-- > 0; step *= tensor->shape[i]) {
        if (tensor->strides[i] != (int64_t)step) {
            return false;
        }
    }
    return true;
}

static struct type type_of(const struct wf_tensor *tensor)
{
    struct type type = {.dtype = tensor->dtype, .kind = tensor->kind, .ndim = tensor->ndim};
    memcpy(type.shape, tensor->shape, tensor->ndim * sizeof type.shape[0]);
    if (!is_row_major(tensor)) {
        order_of(tensor, type.order);
        type.order_count = tensor->ndim;
    }
    return type;
}

/* The form of a piece; those of the layout stand first, in its order, because its hash counts it.
 */
static uint32_t form_of(struct writer *w, const struct wf_piece *piece)
{
    if (piece->form != 0) {
        return piece->form - 1;
    }
    uint32_t unit = (uint32_t)wf_dtype_bytes(w->layout->tensors[piece->tensor].dtype);
    struct wf_form *run = &w->runs[w->run_count];
    memset(run, 0, sizeof *run);
    run->axis_count = 1;
    run->elem_bytes = unit;
    run->axes[0] = (struct wf_axis){piece->count, 1, unit};
    uint32_t before = w->forms.count, number = table_put(w, &w->forms, run, sizeof *run);
    w->run_count += w->forms.count > before;
    return number;
}

/* Numbers everything that stands in a table. False if something is too much for a manifest. */
static bool collect(struct writer *w, struct type *types)
{
    const struct wf_layout *layout = w->layout;
    uint32_t words[WF_MANIFEST_NAME_WORDS_MAX];
    for (uint32_t i = 1; i < layout->form_count; i++) {
        if (table_put(w, &w->forms, &layout->forms[i], sizeof layout->forms[i]) != i - 1) {
            return false;
        }
    }
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        if (form_of(w, piece) == UINT32_MAX) {
            return false;
        }
        if (piece->kind == WF_PIECE_DATA && w->param_of[piece->param] == 0) {
            w->params[w->param_count++] = piece->param;
            w->param_of[piece->param] = w->param_count;
            if (split(w, w->model->params[piece->param].name, words) == 0) {
                return false;
            }
        }
    }
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        types[i] = type_of(&layout->tensors[i]);
        if (split(w, layout->tensors[i].name, words) == 0 ||
            table_put(w, &w->types, &types[i], sizeof types[i]) == UINT32_MAX) {
            return false;
        }
    }
    for (uint32_t i = 0; i < layout->alias_count; i++) {
        if (split(w, layout->aliases[i].name, words) == 0) {
            return false;
        }
    }
    return true;
}

/* --- writing --------------------------------------------------------------------------------- */

static void put_name(struct writer *w, const char *name)
{
    uint32_t words[WF_MANIFEST_NAME_WORDS_MAX], count = split(w, name, words), shared = 0;
    while (shared < count && shared < w->before_count && words[shared] == w->before[shared]) {
        shared++;
    }
    msgpack_pack_array(&w->packer, 1 + count - shared);
    msgpack_pack_uint32(&w->packer, shared);
    for (uint32_t i = shared; i < count; i++) {
        msgpack_pack_uint32(&w->packer, words[i]);
    }
    memcpy(w->before, words, count * sizeof words[0]);
    w->before_count = count;
}

static void put_text(struct writer *w, const char *text, size_t len)
{
    msgpack_pack_str(&w->packer, len);
    msgpack_pack_str_body(&w->packer, text, len);
}

static void put_type(struct writer *w, const struct type *type)
{
    const char *dtype = wf_dtype_name((enum wf_dtype)type->dtype);
    msgpack_pack_array(&w->packer, 4);
    put_text(w, dtype, strlen(dtype));
    msgpack_pack_uint32(&w->packer, type->kind);
    msgpack_pack_array(&w->packer, type->ndim);
    for (uint32_t d = 0; d < type->ndim; d++) {
        msgpack_pack_uint64(&w->packer, type->shape[d]);
    }
    msgpack_pack_array(&w->packer, type->order_count);
    for (uint32_t d = 0; d < type->order_count; d++) {
        msgpack_pack_uint32(&w->packer, type->order[d]);
    }
}

static void put_form(struct writer *w, const struct wf_form *form)
{
    msgpack_pack_array(&w->packer, 1 + form->axis_count);
    msgpack_pack_uint32(&w->packer, form->elem_bytes);
    for (uint32_t a = 0; a < form->axis_count; a++) {
        msgpack_pack_array(&w->packer, 3);
        msgpack_pack_uint64(&w->packer, form->axes[a].count);
        msgpack_pack_uint64(&w->packer, form->axes[a].param_step);
        msgpack_pack_int64(&w->packer, form->axes[a].tensor_step);
    }
}

static void put_piece(struct writer *w, const struct wf_piece *piece, uint32_t *next_param)
{
    bool fill = piece->kind == WF_PIECE_FILL;
    const uint64_t tail[3] = {piece->tensor_offset, piece->param_first, piece->value_rule};
    uint32_t used = tail[2] != 0 ? 3 : tail[1] != 0 ? 2 : tail[0] != 0 ? 1 : 0;
    int64_t param = 0;
    if (!fill) {
        uint32_t number = w->param_of[piece->param] - 1;
        param = (int64_t)number - *next_param;
        *next_param = number + 1;
    }
    bool param_said = fill || param != 0 || used > 0;
    msgpack_pack_array(&w->packer, 1 + param_said + used);
    msgpack_pack_uint32(&w->packer, form_of(w, piece));
    if (fill) {
        msgpack_pack_nil(&w->packer);
    } else if (param_said) {
        msgpack_pack_int64(&w->packer, param);
    }
    for (uint32_t i = 0; i < used; i++) {
        msgpack_pack_uint64(&w->packer, tail[i]);
    }
}

static void put_tensors(struct writer *w, const struct type *types)
{
    const struct wf_layout *layout = w->layout;
    uint32_t piece = 0, next_param = 0;
    w->before_count = 0;
    msgpack_pack_array(&w->packer, layout->tensor_count);
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        uint32_t end = piece;
        while (end < layout->piece_count && layout->pieces[end].tensor == i) {
            end++;
        }
        msgpack_pack_array(&w->packer, 2 + end - piece);
        put_name(w, layout->tensors[i].name);
        msgpack_pack_uint32(&w->packer, table_put(w, &w->types, &types[i], sizeof types[i]));
        for (; piece < end; piece++) {
            put_piece(w, &layout->pieces[piece], &next_param);
        }
    }
}

static void put_hash(struct writer *w)
{
    uint8_t bytes[16];
    for (size_t i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(w->layout->hash.high >> (56 - 8 * i));
        bytes[8 + i] = (uint8_t)(w->layout->hash.low >> (56 - 8 * i));
    }
    msgpack_pack_bin(&w->packer, sizeof bytes);
    msgpack_pack_bin_body(&w->packer, bytes, sizeof bytes);
}

static void put_all(struct writer *w, const struct type *types)
{
    msgpack_pack_array(&w->packer, 9);
    put_text(w, WF_MANIFEST_MAGIC, strlen(WF_MANIFEST_MAGIC));
    msgpack_pack_uint32(&w->packer, WF_MANIFEST_VERSION);
    put_hash(w);
    msgpack_pack_array(&w->packer, w->words.count);
    for (uint32_t i = 0; i < w->words.count; i++) {
        put_text(w, w->words.texts[i], w->words.lens[i]);
    }
    msgpack_pack_array(&w->packer, w->param_count);
    for (uint32_t i = 0; i < w->param_count; i++) {
        put_name(w, w->model->params[w->params[i]].name);
    }
    msgpack_pack_array(&w->packer, w->types.count);
    for (uint32_t i = 0; i < w->types.count; i++) {
        struct type type;
        memcpy(&type, w->types.texts[i], sizeof type);
        put_type(w, &type);
    }
    msgpack_pack_array(&w->packer, w->forms.count);
    for (uint32_t i = 0; i < w->forms.count; i++) {
        struct wf_form form;
        memcpy(&form, w->forms.texts[i], sizeof form);
        put_form(w, &form);
    }
    put_tensors(w, types);
    w->before_count = 0;
    msgpack_pack_array(&w->packer, w->layout->alias_count);
    for (uint32_t i = 0; i < w->layout->alias_count; i++) {
        msgpack_pack_array(&w->packer, 2);
        put_name(w, w->layout->aliases[i].name);
        msgpack_pack_uint32(&w->packer, w->layout->aliases[i].tensor);
    }
}

/* libmsgpack's buffer says nothing when memory is out but with the packer's result, which the calls
 * above do not look at: ours remembers. */
struct buffer {
    uint8_t *bytes;
    size_t len, room;
    bool failed;
};

static int append(void *data, const char *bytes, size_t len)
{
    struct buffer *buffer = data;
    if (!buffer->failed && len > buffer->room - buffer->len) {
        size_t room = 2 * buffer->room + len + 4096;
        uint8_t *grown = realloc(buffer->bytes, room);
        buffer->failed = grown == NULL;
        buffer->bytes = grown != NULL ? grown : buffer->bytes;
        buffer->room = grown != NULL ? room : buffer->room;
    }
    if (buffer->failed) {
        return -1;
    }
    memcpy(buffer->bytes + buffer->len, bytes, len);
    buffer->len += len;
    return 0;
}

enum wf_status wf_manifest_write(const struct wf_model *model, const struct wf_layout *layout,
                                 uint8_t **bytes_out, size_t *len_out, struct wf_error *error)
{
    struct buffer buffer = {0};
    struct writer w = {.model = model, .layout = layout};
    struct type *types = calloc(layout->tensor_count + 1, sizeof *types);
    uint32_t pieces = layout->piece_count;
    pieces = pieces < WF_MANIFEST_FORMS_MAX ? pieces : WF_MANIFEST_FORMS_MAX;
    w.runs = calloc(pieces + 1, sizeof *w.runs); /* one more to look it up with */
    w.param_of = calloc(model->param_count + 1, sizeof *w.param_of);
    w.params = calloc(model->param_count + 1, sizeof *w.params);
    w.words.most = WF_MANIFEST_WORDS_MAX;
    w.types.most = WF_MANIFEST_TYPES_MAX;
    w.forms.most = WF_MANIFEST_FORMS_MAX;
    bool made = types != NULL && w.runs != NULL && w.param_of != NULL && w.params != NULL;
    enum wf_status status = WF_OK;
    bool fits = made && collect(&w, types);
    if (made && !fits && !w.failed) {
        status = wf_error_set(error, WF_UNSUPPORTED,
                              "the layout has more words, types or forms than a manifest holds "
                              "(%d, %d, %d)",
                              WF_MANIFEST_WORDS_MAX, WF_MANIFEST_TYPES_MAX, WF_MANIFEST_FORMS_MAX);
    } else if (fits) {
        msgpack_packer_init(&w.packer, &buffer, append);
        put_all(&w, types);
    }
    if (status == WF_OK && (!fits || buffer.failed)) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for a manifest");
    }
    if (status == WF_OK && buffer.len > WF_MANIFEST_BYTES_MAX) {
        status =
            wf_error_set(error, WF_UNSUPPORTED, "the manifest has %zu bytes; at most %d are read",
                         buffer.len, WF_MANIFEST_BYTES_MAX);
    }
    table_free(&w.words);
    table_free(&w.types);
    table_free(&w.forms);
    free(w.runs);
    free(w.param_of);
    free(w.params);
    free(types);
    if (status != WF_OK) {
        free(buffer.bytes);
        return status;
    }
    *bytes_out = buffer.bytes;
    *len_out = buffer.len;
    return WF_OK;
}
