/* assemble_private.h - what a target assembles and makes, while it is being derived and after.
 * Private to models/assemble*.c.
 */
#ifndef WEFT_MODELS_ASSEMBLE_PRIVATE_H
#define WEFT_MODELS_ASSEMBLE_PRIVATE_H

#include "models/assemble.h"

enum {
    WF_ASSEMBLE_BLOCK = 128, /* variant.h: an engine's rule has no other */
    /* Quantised at a time: codes that a second cache holds, and fewer than nests may meet in. */
    WF_ASSEMBLE_TILE = 1 << 20,
};

/* Pieces that show codes of one matrix, and those that show their scales: every place once. */
struct assemble_group {
    uint32_t first, codes, scales; /* in wf_assemble.pieces: codes, then scales */
};

/* A rectangle of whole blocks, dense in its assembled tensor. */
struct assemble_rect {
    uint64_t row, column, rows, columns; /* of the matrix */
    uint64_t matrix_columns;
    uint64_t tile_rows, tile_columns; /* multiples of WF_ASSEMBLE_BLOCK, or all */
    enum wf_dtype dtype;
    uint32_t tensor;      /* of the planned layout */
    uint32_t pair, group; /* which of the pair's groups; once all is derived, of all */
};

struct assemble_item {
    uint32_t rect;
    uint64_t first; /* its tile_rows rows from here, or what is left */
};

struct wf_assemble {
    const struct wf_layout *planned; /* borrowed */
    enum wf_quant rule;
    struct assemble_group *groups;
    struct assemble_rect *rects;
    struct assemble_item *items;
    uint32_t *pieces; /* of `planned` */
    uint32_t group_count, rect_count, item_count, piece_count;
    uint64_t scratch_bytes;
};

static inline uint64_t wf_assemble_blocks(uint64_t size)
{
    return (size + WF_ASSEMBLE_BLOCK - 1) / WF_ASSEMBLE_BLOCK;
}

static inline uint64_t wf_assemble_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
