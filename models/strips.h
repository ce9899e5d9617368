/* strips.h - what nests show of a matrix, as few rectangles of rows and columns.
 *
 * Several nests may show a matrix (a group of heads, gate and up, a shard's chunks), each of which
 * may lie anyhow in its tensor. Here only the parameter's side counts: nests become strips, strips
 * that meet grow together. Linear in the nests, but for sorting the strips of one matrix. Private
 * to models/.
 */
#ifndef WEFT_MODELS_STRIPS_H
#define WEFT_MODELS_STRIPS_H

#include <stdbool.h>
#include <stdint.h>

#include "models/piece.h"

enum { WF_STRIPS_MAX = 1 << 16 }; /* of one matrix */

struct wf_strip {
    uint64_t rows[2], columns[2]; /* [first, end) */
};

/* Zeroed, then begun for one matrix after the other; free(strips->at) at the end. */
struct wf_strips {
    uint64_t columns; /* of the matrix */
    struct wf_strip *at;
    uint32_t count, room;
    bool no_memory;
};

void wf_strips_begin(struct wf_strips *strips, uint64_t columns);
/* False: there are more than WF_STRIPS_MAX, or there is no memory. */
bool wf_strips_add_nest(struct wf_strips *strips, const struct wf_nest *nest);
bool wf_strips_add(struct wf_strips *strips, const struct wf_strip *strip);
/* Fewer strips that show the same. Strips of different sides may overlap still. */
void wf_strips_merge(struct wf_strips *strips);

#endif
