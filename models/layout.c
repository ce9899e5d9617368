/* layout.c - layouts that no table gives, and reading a layout. */
#include <string.h>

#include "models/copy.h"
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
