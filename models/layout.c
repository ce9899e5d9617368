/* layout.c - layouts that no table gives, and reading a layout. */
#include <stdlib.h>
#include <string.h>

#include "models/copy.h"
#include "models/engines/engine.h"
#include "models/layout_private.h"

struct wf_nest wf_layout_nest(const struct wf_layout *layout, uint32_t piece)
{
    WF_ASSERT(piece < layout->piece_count);
    const struct wf_piece *p = &layout->pieces[piece];
    struct wf_nest nest = {
        .param_first = p->param_first,
        .tensor_offset = p->tensor_offset,
        .elem_bytes = (uint32_t)wf_dtype_bytes(layout->tensors[p->tensor].dtype),
    };
    if (p->form == 0) {
        nest.axis_count = p->count > 1;
        nest.axes[0] = (struct wf_axis){p->count, 1, nest.elem_bytes};
        return nest;
    }
    const struct wf_form *form = &layout->forms[p->form];
    nest.axis_count = form->axis_count;
    memcpy(nest.axes, form->axes, sizeof nest.axes);
    return nest;
}

/* First piece of this tensor or of a later one. */
static uint32_t lower_bound(const struct wf_layout *layout, uint32_t tensor)
{
    uint32_t low = 0, high = layout->piece_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (layout->pieces[middle].tensor < tensor) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void wf_layout_pieces(const struct wf_layout *layout, uint32_t tensor, uint32_t *first_out,
                      uint32_t *end_out)
{
    *first_out = lower_bound(layout, tensor);
    *end_out = lower_bound(layout, tensor + 1);
}

void wf_layout_write_fills(const struct wf_layout *layout, void *const *tensors)
{
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        if (piece->kind == WF_PIECE_FILL && tensors[piece->tensor] != NULL) {
            struct wf_nest nest = wf_layout_nest(layout, i);
            wf_fill_nest(&nest, tensors[piece->tensor], (uint8_t)piece->value_rule);
        }
    }
}

/* --- in the parameters of a view ------------------------------------------------------------- */

/* The view's index of each of the job's parameters, or WF_NONE; NULL without memory. */
static uint32_t *index_view(const struct wf_model *job, const struct wf_model *view)
{
    uint32_t *index = malloc(((size_t)job->param_count + 1) * sizeof *index);
    for (uint32_t i = 0; index && i < job->param_count; i++) {
        index[i] = WF_NONE;
    }
    for (uint32_t i = 0; index && i < view->param_count; i++) {
        index[wf_model_of_view(job, view, i)] = i;
    }
    return index;
}

static enum wf_status to_view(const struct wf_model *job, const struct wf_model *view,
                              struct wf_layout *layout, struct wf_error *error)
{
    uint32_t *index = index_view(job, view);
    enum wf_status status =
        index ? WF_OK : wf_error_set(error, WF_NO_MEMORY, "no memory for an inventory");
    for (uint32_t i = 0; i < layout->piece_count && status == WF_OK; i++) {
        struct wf_piece *piece = &layout->pieces[i];
        if (piece->kind != WF_PIECE_DATA) {
            continue;
        }
        if (index[piece->param] == WF_NONE) {
            status =
                wf_error_set(error, WF_UNSUPPORTED,
                             "%s holds %s beside parameters of the same job that stand for "
                             "it, or the other way about",
                             layout->tensors[piece->tensor].name, job->params[piece->param].name);
        }
        piece->param = index[piece->param];
    }
    free(index);
    return status;
}

enum wf_status wf_layout_derive_view(const struct wf_model *job, const struct wf_recipe *recipe,
                                     uint32_t rank, struct wf_layout **layout_out,
                                     struct wf_error *error)
{
    const struct wf_model *view = wf_model_view(job, recipe);
    if (!recipe->engine->layout) {
        return wf_layout_derive(view, recipe, rank, layout_out, error);
    }
    struct wf_layout *layout = NULL;
    enum wf_status status = wf_layout_derive(job, recipe, rank, &layout, error);
    if (status == WF_OK) {
        status = to_view(job, view, layout, error);
    }
    if (status != WF_OK) {
        wf_layout_free(layout);
        return status;
    }
    *layout_out = layout;
    return WF_OK;
}
