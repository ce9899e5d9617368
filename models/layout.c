/* layout.c - layouts that no table gives, and reading a layout. */
#include <string.h>

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
