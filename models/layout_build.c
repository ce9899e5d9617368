/* layout_build.c - collects tensors and pieces, interns forms, sorts and hashes: a layout. */
#include <stdlib.h>
#include <string.h>

#include "models/layout_private.h"

/* Doubles *array when it is full. False, and build->failed, when there is no memory. */
static bool make_room(struct wf_build *build, void **array, uint32_t count, uint32_t *room,
                      size_t size)
{
    if (count < *room || build->failed) {
        return !build->failed;
    }
    uint32_t wanted = *room ? *room * 2 : 64;
    void *grown = reallocarray(*array, wanted, size);
    if (!grown) {
        build->failed = true;
        return false;
    }
    *array = grown;
    *room = wanted;
    return true;
}
#define MAKE_ROOM(build, field, array)                                                 \
    make_room(build, (void **)&(build)->layout->array, (build)->layout->field##_count, \
              &(build)->field##_room, sizeof *(build)->layout->array)

void wf_build_begin(struct wf_build *build)
{
    *build = (struct wf_build){.layout = calloc(1, sizeof *build->layout)};
    build->failed = !build->layout;
    if (!build->failed && MAKE_ROOM(build, form, forms)) {
        build->layout->forms[build->layout->form_count++] = (struct wf_form){0};
    }
}

/* A copy with as much room again as it has: what is added is often about as much. */
static void *copy_array(struct wf_build *build, const void *from, uint32_t count, uint32_t *room,
                        size_t size)
{
    *room = 2 * count + 64;
    void *to = calloc(*room, size);
    if (!to) {
        build->failed = true;
        *room = 0;
    } else if (count > 0) {
        memcpy(to, from, count * size);
    }
    return to;
}

void wf_build_from(struct wf_build *build, const struct wf_layout *layout)
{
    const struct wf_layout_memory *memory = layout->memory;
    *build = (struct wf_build){.layout = calloc(1, sizeof *build->layout)};
    struct wf_layout *to = build->layout;
    build->text_room = build->text_used = memory->text_bytes;
    build->text = malloc(memory->text_bytes + 1);
    if (!to || !build->text) {
        build->failed = true;
        return;
    }
    memcpy(build->text, memory->text, memory->text_bytes);
    *to = *layout;
    to->memory = NULL;
#define COPY_ARRAY(field, array)                                                              \
    to->array = copy_array(build, layout->array, layout->field##_count, &build->field##_room, \
                           sizeof *to->array)
    COPY_ARRAY(tensor, tensors);
    COPY_ARRAY(piece, pieces);
    COPY_ARRAY(form, forms);
    COPY_ARRAY(alias, aliases);
#undef COPY_ARRAY
    for (uint32_t i = 0; to->tensors && i < to->tensor_count; i++) {
        to->tensors[i].name = (const char *)(to->tensors[i].name - memory->text);
    }
    for (uint32_t i = 0; to->aliases && i < to->alias_count; i++) {
        to->aliases[i].name = (const char *)(to->aliases[i].name - memory->text);
    }
}

/* Keeps a copy of a name; gives its offset as a pointer-sized number until the end. */
static const char *keep_name(struct wf_build *build, const char *name)
{
    size_t len = strlen(name) + 1;
    if (build->text_used + len > build->text_room) {
        size_t wanted = build->text_room ? build->text_room * 2 : 16384;
        char *grown = realloc(build->text, wanted + len);
        if (!grown) {
            build->failed = true;
            return NULL;
        }
        build->text = grown;
        build->text_room = wanted + len;
    }
    memcpy(build->text + build->text_used, name, len);
    build->text_used += len;
    return (const char *)(build->text_used - len);
}

void wf_build_tensor(struct wf_build *build, const char *name, enum wf_dtype dtype, uint32_t ndim,
                     const uint64_t *shape, enum wf_tensor_kind kind)
{
    if (!MAKE_ROOM(build, tensor, tensors)) {
        return;
    }
    struct wf_tensor tensor = {
        .name = keep_name(build, name), .dtype = dtype, .ndim = ndim, .kind = kind};
    uint64_t elements = 1;
    for (uint32_t axis = ndim; axis-- > 0;) {
        tensor.shape[axis] = shape[axis];
        tensor.strides[axis] = (int64_t)elements;
        elements *= shape[axis];
    }
    tensor.bytes = wf_dtype_bytes(dtype) * elements;
    build->layout->tensors[build->layout->tensor_count++] = tensor;
    build->layout->bytes += kind == WF_TENSOR_VIEW ? 0 : tensor.bytes;
}

void wf_build_order(struct wf_build *build, const uint32_t *order)
{
    if (build->failed) {
        return;
    }
    struct wf_tensor *tensor = &build->layout->tensors[build->layout->tensor_count - 1];
    uint64_t step = 1;
    for (uint32_t i = tensor->ndim; i-- > 0;) {
        tensor->strides[order[i]] = (int64_t)step;
        step *= tensor->shape[order[i]];
    }
}

void wf_build_alias(struct wf_build *build, const char *name, uint32_t tensor)
{
    if (MAKE_ROOM(build, alias, aliases)) {
        build->layout->aliases[build->layout->alias_count++] =
            (struct wf_alias){.name = keep_name(build, name), .tensor = tensor};
    }
}

/* Index of a form equal to the nest's axes; a rank has a few dozen at most. */
static uint32_t intern(struct wf_build *build, const struct wf_nest *nest)
{
    struct wf_form form = {.axis_count = (uint8_t)nest->axis_count, .elem_bytes = nest->elem_bytes};
    for (uint32_t axis = 0; axis < nest->axis_count; axis++) {
        form.axes[axis] = nest->axes[axis];
        form.repeat_count += nest->axes[axis].param_step == 0;
    }
    struct wf_layout *layout = build->layout;
    for (uint32_t i = 1; i < layout->form_count; i++) {
        if (memcmp(&layout->forms[i], &form, sizeof form) == 0) {
            return i;
        }
    }
    if (!MAKE_ROOM(build, form, forms)) {
        return 0;
    }
    layout->forms[layout->form_count] = form;
    return layout->form_count++;
}

uint32_t wf_build_form(struct wf_build *build, const struct wf_nest *nest)
{
    struct wf_nest normal = *nest;
    uint64_t elements = 0;
    wf_nest_normalise(&normal);
    return build->failed || wf_nest_is_run(&normal, &elements) ? 0 : intern(build, &normal);
}

/* piece.tensor and piece.form are set. */
static void add_formed(struct wf_build *build, struct wf_piece piece, const struct wf_nest *nest)
{
    if (MAKE_ROOM(build, piece, pieces)) {
        piece.tensor_offset = nest->tensor_offset;
        piece.count = wf_nest_elements(nest);
        build->layout->pieces[build->layout->piece_count++] = piece;
    }
}

/* piece.tensor is set. */
static void add_piece(struct wf_build *build, struct wf_piece piece, const struct wf_nest *nest)
{
    piece.form = wf_build_form(build, nest);
    add_formed(build, piece, nest);
}

static uint32_t newest(const struct wf_build *build)
{
    return build->failed ? 0 : build->layout->tensor_count - 1;
}

void wf_build_part(struct wf_build *build, const struct wf_piece *of, const struct wf_nest *nest,
                   enum wf_piece_kind kind)
{
    struct wf_piece piece = {.param = of->param,
                             .tensor = of->tensor,
                             .param_first = nest->param_first,
                             .kind = (uint16_t)kind,
                             .value_rule = of->value_rule};
    add_piece(build, piece, nest);
}

void wf_build_piece(struct wf_build *build, uint32_t param, const struct wf_nest *nest,
                    enum wf_value_rule value)
{
    struct wf_piece piece = {.param = param,
                             .tensor = newest(build),
                             .param_first = nest->param_first,
                             .kind = WF_PIECE_DATA,
                             .value_rule = (uint16_t)value};
    add_piece(build, piece, nest);
}

void wf_build_fill(struct wf_build *build, const struct wf_nest *nest, uint8_t byte)
{
    struct wf_piece piece = {.tensor = newest(build), .kind = WF_PIECE_FILL, .value_rule = byte};
    add_piece(build, piece, nest);
}

void wf_build_formed(struct wf_build *build, const struct wf_piece *like,
                     const struct wf_nest *nest)
{
    struct wf_piece piece = {.param = like->param,
                             .tensor = newest(build),
                             .param_first = like->kind == WF_PIECE_FILL ? 0 : nest->param_first,
                             .form = like->form,
                             .kind = like->kind,
                             .value_rule = like->value_rule};
    add_formed(build, piece, nest);
}

static int compare_pieces(const void *left, const void *right)
{
    const struct wf_piece *a = left, *b = right;
    if (a->tensor != b->tensor) {
        return a->tensor < b->tensor ? -1 : 1;
    }
    return a->tensor_offset < b->tensor_offset ? -1 : a->tensor_offset > b->tensor_offset;
}

static void hash_layout(struct wf_layout *layout)
{
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    const uint64_t counts[] = {layout->tensor_count, layout->alias_count, layout->form_count,
                               layout->piece_count};
    for (size_t i = 0; i < 4; i++) {
        wf_hasher_u64(&hasher, counts[i]);
    }
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const struct wf_tensor *tensor = &layout->tensors[i];
        wf_hasher_text(&hasher, tensor->name, strlen(tensor->name));
        wf_hasher_u64(&hasher, (uint64_t)tensor->dtype << 32 | (uint64_t)tensor->kind);
        wf_hasher_u64(&hasher, tensor->ndim);
        for (uint32_t axis = 0; axis < tensor->ndim; axis++) {
            wf_hasher_u64(&hasher, tensor->shape[axis]);
            wf_hasher_u64(&hasher, (uint64_t)tensor->strides[axis]);
        }
    }
    for (uint32_t i = 0; i < layout->alias_count; i++) {
        wf_hasher_text(&hasher, layout->aliases[i].name, strlen(layout->aliases[i].name));
        wf_hasher_u64(&hasher, layout->aliases[i].tensor);
    }
    for (uint32_t i = 1; i < layout->form_count; i++) {
        const struct wf_form *form = &layout->forms[i];
        wf_hasher_u64(&hasher, (uint64_t)form->axis_count << 32 | form->elem_bytes);
        for (uint32_t axis = 0; axis < form->axis_count; axis++) {
            wf_hasher_u64(&hasher, form->axes[axis].count);
            wf_hasher_u64(&hasher, form->axes[axis].param_step);
            wf_hasher_u64(&hasher, (uint64_t)form->axes[axis].tensor_step);
        }
    }
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        wf_hasher_u64(&hasher, (uint64_t)piece->param << 32 | piece->tensor);
        wf_hasher_u64(&hasher, piece->param_first);
        wf_hasher_u64(&hasher, piece->tensor_offset);
        wf_hasher_u64(&hasher, piece->count);
        wf_hasher_u64(&hasher, (uint64_t)piece->form << 32 | (uint64_t)piece->kind << 16 |
                                   piece->value_rule);
    }
    layout->hash = wf_hasher_end(&hasher);
}

/* The name of a tensor, or of an alias where `index` passes the tensors. */
static const char *name_at(const struct wf_layout *layout, uint32_t index)
{
    return index < layout->tensor_count ? layout->tensors[index].name
                                        : layout->aliases[index - layout->tensor_count].name;
}

static int compare_names(const void *a, const void *b, void *layout)
{
    return strcmp(name_at(layout, *(const uint32_t *)a), name_at(layout, *(const uint32_t *)b));
}

/* Tables may give one name twice, a tensor's or an alias's; whoever looks for it would get either.
 */
static enum wf_status check_names(const struct wf_layout *layout, const uint32_t *sorted,
                                  uint32_t count, struct wf_error *error)
{
    for (uint32_t i = 1; i < count; i++) {
        const char *name = name_at(layout, sorted[i]);
        if (strcmp(name_at(layout, sorted[i - 1]), name) == 0) {
            return wf_error_set(
                error, WF_INVALID,
                "%s: two tensors, or a tensor and a second name, are called so; "
                "expected one: look which rows of the engine or the family, or which "
                "entries of the manifest, give it",
                name);
        }
    }
    return WF_OK;
}

/* Makes the names pointers and the index by name. */
static enum wf_status finish_names(struct wf_build *build, struct wf_error *error)
{
    struct wf_layout *layout = build->layout;
    struct wf_layout_memory *memory = calloc(1, sizeof *memory);
    if (!memory) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a layout");
    }
    uint32_t count = layout->tensor_count + layout->alias_count;
    layout->memory = memory;
    memory->text = build->text;
    memory->text_bytes = build->text_used;
    build->text = NULL;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        layout->tensors[i].name = memory->text + (size_t)layout->tensors[i].name;
    }
    for (uint32_t i = 0; i < layout->alias_count; i++) {
        layout->aliases[i].name = memory->text + (size_t)layout->aliases[i].name;
    }
    memory->sorted = calloc(count + 1, sizeof *memory->sorted);
    if (!memory->sorted) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a layout");
    }
    for (uint32_t i = 0; i < count; i++) {
        memory->sorted[i] = i;
    }
    qsort_r(memory->sorted, count, sizeof *memory->sorted, compare_names, layout);
    return check_names(layout, memory->sorted, count, error);
}

enum wf_status wf_build_end(struct wf_build *build, enum wf_status status,
                            struct wf_layout **layout_out, struct wf_error *error)
{
    struct wf_layout *layout = build->layout;
    if (status == WF_OK && build->failed) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for a layout");
    }
    if (status == WF_OK) {
        status = finish_names(build, error);
    }
    if (status != WF_OK) {
        free(build->text);
        wf_layout_free(layout);
        return status;
    }
    for (uint32_t i = 0; build->job && i < layout->piece_count; i++) {
        struct wf_piece *piece = &layout->pieces[i];
        piece->param = piece->kind == WF_PIECE_DATA
                           ? wf_model_of_view(build->job, build->view, piece->param)
                           : piece->param;
    }
    if (layout->piece_count > 0) {
        qsort(layout->pieces, layout->piece_count, sizeof *layout->pieces, compare_pieces);
    }
    hash_layout(layout);
    *layout_out = layout;
    return WF_OK;
}

void wf_layout_free(struct wf_layout *layout)
{
    if (!layout) {
        return;
    }
    struct wf_layout_memory *memory = layout->memory;
    if (memory) {
        free(memory->text);
        free(memory->sorted);
    }
    free(memory);
    free(layout->tensors);
    free(layout->pieces);
    free(layout->forms);
    free(layout->aliases);
    free(layout);
}

uint32_t wf_layout_find(const struct wf_layout *layout, const char *name, size_t len)
{
    const struct wf_layout_memory *memory = layout->memory;
    uint32_t low = 0, high = layout->tensor_count + layout->alias_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2, index = memory->sorted[middle];
        const char *known = name_at(layout, index);
        size_t known_len = strlen(known);
        int order = memcmp(known, name, known_len < len ? known_len : len);
        if (order == 0 && known_len == len) {
            return index < layout->tensor_count
                       ? index
                       : layout->aliases[index - layout->tensor_count].tensor;
        }
        if (order < 0 || (order == 0 && known_len < len)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return UINT32_MAX;
}
