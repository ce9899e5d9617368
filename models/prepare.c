/* prepare.c - source layouts: a rank's own, and behind it what the rank makes for its readers. */
#include "models/prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/copy.h"
#include "models/prepare_private.h"

bool wf_prepare_room(struct prepare_maker *maker, void *array, uint32_t count, uint32_t *room,
                     size_t size)
{
    if (count < *room || maker->build.failed) {
        return !maker->build.failed;
    }
    uint32_t wanted = *room ? 2 * *room : 16;
    void *grown = reallocarray(*(void **)array, wanted, size);
    if (!grown) {
        maker->build.failed = true;
        return false;
    }
    *(void **)array = grown;
    *room = wanted;
    return true;
}

/* No framework has a colon there. */
static const char made_prefix[] = "prepared:";

bool wf_prepare_is_made(const struct wf_tensor *tensor)
{
    return strncmp(tensor->name, made_prefix, strlen(made_prefix)) == 0;
}

uint32_t wf_prepare_tensor(struct prepare_maker *maker, uint32_t param, enum wf_dtype dtype,
                           uint32_t ndim, const uint64_t *shape)
{
    char name[WF_NAME_MAX + 32];
    uint32_t index = maker->build.failed ? 0 : maker->build.layout->tensor_count;
    uint32_t before = maker->made[param]++;
    int len = snprintf(name, sizeof name, "%s%.*s", made_prefix, WF_NAME_MAX,
                       maker->model->params[param].name);
    if (before > 0) { /* a rank may show several parts of a parameter */
        snprintf(name + len, sizeof name - (size_t)len, ":%u", before + 1);
    }
    wf_build_tensor(&maker->build, name, dtype, ndim, shape, WF_TENSOR_WEIGHTS);
    return index;
}

/* --- values: of pieces that hold less -----------------------------------------------------------
 */

/* The elements that a nest shows, each once, and where they stand in a dense tensor in the
 * parameter's order. */
static uint64_t make_dense(const struct wf_nest *nest, struct wf_nest *dense, struct wf_box *box)
{
    uint64_t elements = 1;
    *dense = (struct wf_nest){.param_first = nest->param_first, .elem_bytes = sizeof(float)};
    *box = (struct wf_box){.param_first = nest->param_first, .src_offset = nest->tensor_offset};
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        const struct wf_axis axis = nest->axes[a];
        uint32_t at = dense->axis_count;
        if (axis.param_step == 0 || axis.count == 1) {
            continue; /* of a repeat the first copy is read */
        }
        for (; at > 0 && dense->axes[at - 1].param_step < axis.param_step; at--) {
            dense->axes[at] = dense->axes[at - 1];
            box->axes[at] = box->axes[at - 1];
        }
        dense->axes[at] = axis;
        box->axes[at].count = axis.count;
        box->axes[at].src_step = axis.tensor_step;
        dense->axis_count++;
    }
    for (uint32_t a = dense->axis_count; a-- > 0;) {
        dense->axes[a].tensor_step = (int64_t)(elements * sizeof(float));
        box->axes[a].dst_step = dense->axes[a].tensor_step;
        elements *= dense->axes[a].count;
    }
    box->axis_count = dense->axis_count;
    box->elements = elements;
    return elements;
}

static void add_value(struct prepare_maker *maker, uint32_t index)
{
    struct wf_prepare *prepare = maker->prepare;
    const struct wf_piece *piece = &maker->own->pieces[index];
    struct wf_nest nest = wf_layout_nest(maker->own, index), dense;
    if (!wf_prepare_room(maker, &prepare->values, prepare->value_count, &maker->value_room,
                         sizeof *prepare->values)) {
        return;
    }
    struct prepare_value *value = &prepare->values[prepare->value_count++];
    uint64_t elements = make_dense(&nest, &dense, &value->box);
    value->src_tensor = piece->tensor;
    value->dtype = maker->own->tensors[piece->tensor].dtype;
    value->dst_tensor = wf_prepare_tensor(maker, piece->param, WF_DTYPE_F32, 1, &elements);
    wf_build_piece(&maker->build, piece->param, &dense, WF_VALUE_COPY);
}

/* Pieces that hold less leave the layout, their values come into it. */
static enum wf_status add_values(struct prepare_maker *maker, struct wf_error *error)
{
    struct wf_layout *source = maker->build.layout;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < maker->own->piece_count && !maker->build.failed; i++) {
        const struct wf_piece *piece = &maker->own->pieces[i];
        const struct wf_tensor *tensor = &maker->own->tensors[piece->tensor];
        if (piece->kind != WF_PIECE_DATA || piece->value_rule != WF_VALUE_LESS_ONE) {
            source->pieces[kept++] = *piece;
        } else if (!wf_dtype_castable(tensor->dtype, WF_DTYPE_F32)) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "tensor %s holds the values of %s less 1 as %s; expected a type "
                                "that can be cast to f32, in which 1 is added",
                                tensor->name, maker->model->params[piece->param].name,
                                wf_dtype_name(tensor->dtype));
        }
    }
    if (maker->build.failed) {
        return WF_OK; /* wf_build_end says so */
    }
    source->piece_count = kept;
    for (uint32_t i = 0; i < maker->own->piece_count && !maker->build.failed; i++) {
        const struct wf_piece *piece = &maker->own->pieces[i];
        if (piece->kind == WF_PIECE_DATA && piece->value_rule == WF_VALUE_LESS_ONE) {
            add_value(maker, i);
        }
    }
    return WF_OK;
}

static uint64_t value_bytes(const struct prepare_value *value)
{
    return value->box.elements * (wf_dtype_bytes(value->dtype) + sizeof(float));
}

void wf_prepare_item(struct prepare_maker *maker, const struct prepare_item *item)
{
    struct wf_prepare *prepare = maker->prepare;
    if (wf_prepare_room(maker, &prepare->items, prepare->item_count, &maker->item_room,
                        sizeof *prepare->items)) {
        prepare->items[prepare->item_count++] = *item;
    }
}

/* Small ones together, large ones in parts. */
static void add_value_items(struct prepare_maker *maker)
{
    const struct wf_prepare *prepare = maker->prepare;
    struct prepare_item item = {.rect = PREPARE_VALUES};
    for (uint32_t i = 0; i < prepare->value_count; i++) {
        const struct prepare_value *value = &prepare->values[i];
        uint64_t bytes = value_bytes(value), each = bytes / value->box.elements;
        if (item.end > item.first && item.bytes + bytes > WF_PREPARE_ITEM_BYTES) {
            wf_prepare_item(maker, &item);
            item = (struct prepare_item){.rect = PREPARE_VALUES, .first = i, .end = i};
        }
        for (uint64_t at = 0, part = WF_PREPARE_ITEM_BYTES / each;
             bytes > WF_PREPARE_ITEM_BYTES && at < value->box.elements; at += part) {
            uint64_t left = value->box.elements - at, count = left < part ? left : part;
            wf_prepare_item(
                maker, &(struct prepare_item){PREPARE_VALUES, i, i + 1, at, count, count * each});
        }
        if (bytes > WF_PREPARE_ITEM_BYTES) {
            item = (struct prepare_item){.rect = PREPARE_VALUES, .first = i + 1, .end = i + 1};
        } else {
            item.end = i + 1;
            item.bytes += bytes;
        }
    }
    if (item.end > item.first) {
        wf_prepare_item(maker, &item);
    }
}

static void run_value(const struct prepare_value *value, uint64_t first, uint64_t count,
                      void *const *tensors)
{
    float *values = tensors[value->dst_tensor];
    wf_copy_box_cached(&value->box, tensors[value->src_tensor], value->dtype, values, WF_DTYPE_F32,
                       (struct wf_copy_part){first, count});
    for (uint64_t i = first; i < first + count; i++) {
        values[i] += 1.0F;
    }
}

/* --- all of it ----------------------------------------------------------------------------------
 */

enum wf_status wf_prepare_derive(const struct wf_model *model, const struct wf_layout *own,
                                 struct wf_layout **source_out, struct wf_prepare **prepare_out,
                                 struct wf_error *error)
{
    struct prepare_maker maker = {.model = model,
                                  .own = own,
                                  .wants_items = prepare_out != NULL,
                                  .prepare = calloc(1, sizeof *maker.prepare),
                                  .made = calloc(model->param_count + 1ull, sizeof *maker.made)};
    struct wf_layout *source = NULL;
    wf_build_from(&maker.build, own);
    maker.build.failed = maker.build.failed || maker.prepare == NULL || maker.made == NULL;
    enum wf_status status = add_values(&maker, error);
    if (status == WF_OK && !maker.build.failed) {
        maker.prepare->own = own;
        maker.prepare->rule = model->variants != NULL ? model->variants->rule : WF_QUANT_NONE;
        if (maker.wants_items) {
            add_value_items(&maker);
        }
        wf_prepare_quant(&maker);
    }
    status = wf_build_end(&maker.build, status, &source, error);
    free(maker.made);
    bool nothing = status == WF_OK && maker.prepare->value_count + maker.prepare->rect_count == 0;
    if (status != WF_OK || nothing || prepare_out == NULL) {
        wf_prepare_free(maker.prepare);
        maker.prepare = NULL;
    }
    if (status != WF_OK) {
        return status;
    }
    if (source_out != NULL) {
        *source_out = source;
    } else {
        wf_layout_free(source);
    }
    if (prepare_out != NULL) {
        *prepare_out = maker.prepare;
    }
    return WF_OK;
}

void wf_prepare_free(struct wf_prepare *prepare)
{
    if (prepare != NULL) {
        free(prepare->values);
        free(prepare->rects);
        free(prepare->pieces);
        free(prepare->items);
        free(prepare);
    }
}

uint32_t wf_prepare_item_count(const struct wf_prepare *prepare)
{
    return prepare->item_count;
}

void wf_prepare_item_tensors(const struct wf_prepare *prepare, uint32_t item, uint32_t *first_out,
                             uint32_t *end_out)
{
    const struct prepare_item *at = &prepare->items[item];
    if (at->rect != PREPARE_VALUES) {
        *first_out = prepare->rects[at->rect].codes;
        *end_out = *first_out + 2;
        return;
    }
    *first_out = prepare->values[at->first].dst_tensor;
    *end_out = prepare->values[at->end - 1].dst_tensor + 1;
}

uint64_t wf_prepare_item_bytes(const struct wf_prepare *prepare, uint32_t item)
{
    return prepare->items[item].bytes;
}

uint64_t wf_prepare_scratch_bytes(const struct wf_prepare *prepare)
{
    return prepare->scratch_bytes;
}

void wf_prepare_run(const struct wf_prepare *prepare, uint32_t item, void *const *tensors,
                    void *scratch)
{
    const struct prepare_item *at = &prepare->items[item];
    if (at->rect != PREPARE_VALUES) {
        wf_prepare_run_rect(prepare, at, tensors, scratch);
        return;
    }
    for (uint32_t i = at->first; i < at->end; i++) {
        const struct prepare_value *value = &prepare->values[i];
        run_value(value, at->element, at->count > 0 ? at->count : value->box.elements, tensors);
    }
}
