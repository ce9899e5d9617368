/* copy_span.c - which bytes of a source a part of a box reads: for who reads them from a file. */
#include "models/copy.h"

void wf_box_source_span(const struct wf_box *box, uint32_t elem_bytes, struct wf_copy_part part,
                        uint64_t *first_out, uint64_t *end_out)
{
    uint64_t first = part.first, last = part.first + part.count - 1, inner = box->elements;
    int64_t low = 0, high = 0;
    bool differ = false; /* an outer axis has several indices: the inner ones count as whole */
    WF_ASSERT(part.count > 0 && last < box->elements);
    for (uint32_t a = 0; a < box->axis_count; a++) {
        inner /= box->axes[a].count;
        uint64_t from = differ ? 0 : first / inner;
        uint64_t to = differ ? box->axes[a].count - 1 : last / inner;
        int64_t step = box->axes[a].src_step;
        low += (int64_t)(step < 0 ? to : from) * step;
        high += (int64_t)(step < 0 ? from : to) * step;
        first %= inner;
        last %= inner;
        differ = differ || from != to;
    }
    *first_out = box->src_offset + (uint64_t)low;
    *end_out = box->src_offset + (uint64_t)high + elem_bytes;
}
