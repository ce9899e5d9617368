/* look.c - inverts the pieces of a tensor: from a place to the parameter element there. */
#include "tools/layout/look.h"

#include <string.h>

/* Axes from the largest tensor step to the smallest: the digits of a place in the tensor. */
static void sort_by_tensor_step(struct wf_nest *nest)
{
    for (uint32_t i = 1; i < nest->axis_count; i++) {
        struct wf_axis axis = nest->axes[i];
        uint32_t at = i;
        for (; at > 0 && nest->axes[at - 1].tensor_step < axis.tensor_step; at--) {
            nest->axes[at] = nest->axes[at - 1];
        }
        nest->axes[at] = axis;
    }
}

static bool invert(struct wf_nest *nest, uint64_t offset, struct wf_look *look)
{
    if (offset < nest->tensor_offset) {
        return false;
    }
    uint64_t rest = offset - nest->tensor_offset;
    look->element = nest->param_first;
    look->run = 1;
    sort_by_tensor_step(nest);
    for (uint32_t i = 0; i < nest->axis_count; i++) {
        const struct wf_axis *axis = &nest->axes[i];
        if (axis->tensor_step <= 0) {
            return false;
        }
        uint64_t digit = rest / (uint64_t)axis->tensor_step;
        if (digit >= axis->count) {
            return false;
        }
        rest -= digit * (uint64_t)axis->tensor_step;
        look->element += digit * axis->param_step;
        bool run = axis->param_step == 1 && axis->tensor_step == (int64_t)nest->elem_bytes;
        look->run = run ? axis->count - digit : 1;
    }
    return rest == 0;
}

bool wf_layout_look(const struct wf_layout *layout, uint32_t tensor, uint64_t index,
                    struct wf_look *look_out)
{
    uint64_t offset = index * wf_dtype_bytes(layout->tensors[tensor].dtype);
    uint32_t first, end;
    wf_layout_pieces(layout, tensor, &first, &end);
    for (uint32_t i = first; i < end; i++) {
        struct wf_nest nest = wf_layout_nest(layout, i);
        const struct wf_piece *piece = &layout->pieces[i];
        bool fill = piece->kind == WF_PIECE_FILL;
        struct wf_look look = {
            .fill = fill, .byte = fill ? (uint8_t)piece->value_rule : 0, .param = piece->param};
        if (invert(&nest, offset, &look)) {
            *look_out = look;
            return true;
        }
    }
    return false;
}

uint64_t wf_layout_covered(const struct wf_layout *layout, uint32_t tensor)
{
    uint64_t elements = 0;
    uint32_t first, end;
    wf_layout_pieces(layout, tensor, &first, &end);
    for (uint32_t i = first; i < end; i++) {
        struct wf_nest nest = wf_layout_nest(layout, i);
        elements += wf_nest_elements(&nest);
    }
    return elements;
}
