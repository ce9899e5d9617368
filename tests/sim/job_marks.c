/* job_marks.c - which parameter each element of a tensor shows, and the number that it is then. */
#include <stdlib.h>

#include "tests/sim/job_internal.h"

enum { SPREAD = 40503 }; /* neighbours among parameters have numbers far apart */

uint16_t job_content(struct wf_version version, uint32_t mark)
{
    return (uint16_t)(version.term * 8191 + version.counter * 512 + version.step + mark * SPREAD);
}

/* One piece, whose places are those of its nest. */
static void mark_piece(const struct wf_nest *nest, uint32_t mark, uint32_t *marks)
{
    uint64_t at[WF_AXES_MAX] = {0};
    int64_t offset = (int64_t)nest->tensor_offset;
    for (;;) {
        WF_ASSERT(nest->elem_bytes == sizeof(uint16_t));
        marks[offset / (int64_t)sizeof(uint16_t)] = mark;
        uint32_t a = nest->axis_count;
        while (a > 0 && ++at[a - 1] == nest->axes[a - 1].count) {
            offset -= (int64_t)(at[a - 1] - 1) * nest->axes[a - 1].tensor_step;
            at[--a] = 0;
        }
        if (a == 0) {
            return;
        }
        offset += nest->axes[a - 1].tensor_step;
    }
}

void job_mark_tensor(const struct wf_layout *layout, uint32_t tensor, uint32_t *marks)
{
    uint32_t first, end;
    wf_layout_pieces(layout, tensor, &first, &end);
    for (uint32_t p = first; p < end; p++) {
        if (layout->pieces[p].kind == WF_PIECE_DATA) {
            struct wf_nest nest = wf_layout_nest(layout, p);
            mark_piece(&nest, layout->pieces[p].param + 1, marks);
        }
    }
}

void job_rank_mark(struct job_rank *host, const struct wf_layout *layout)
{
    free(host->marks);
    host->marks = calloc(host->memory.len_bytes / sizeof(uint16_t), sizeof host->marks[0]);
    WF_ASSERT(host->marks != NULL && layout->tensor_count == host->layout->tensor_count);
    for (uint32_t t = 0; t < layout->tensor_count && host->job->options.experts; t++) {
        job_mark_tensor(layout, t, &host->marks[host->tensors[t].offset / sizeof(uint16_t)]);
    }
}

void job_rank_write(struct job_rank *host, struct wf_version version)
{
    uint16_t *at = host->memory.address;
    for (uint64_t i = 0; i < host->memory.len_bytes / sizeof *at; i++) {
        bool fill = host->side == WF_INFER && host->marks[i] == 0; /* a source's are never read */
        at[i] = fill ? 0 : job_content(version, host->marks[i]);
    }
}
