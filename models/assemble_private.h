/* assemble_private.h - what a target assembles and makes, while it is being derived and after.
 * Private to models/assemble*.c.
 */
#ifndef WEFT_MODELS_ASSEMBLE_PRIVATE_H
#define WEFT_MODELS_ASSEMBLE_PRIVATE_H

#include "models/assemble.h"

enum {
    WF_ASSEMBLE_BLOCK = 128, /* rows and columns, of rules that have no whole rows */
    /* Quantised at a time: codes that a second cache holds, and fewer than nests may meet in. */
    WF_ASSEMBLE_TILE = 1 << 20,
};
_Static_assert((int)WF_VARIANT_ROW_MAX <= (int)WF_ASSEMBLE_TILE, "a tile has whole rows");

/* Of a matrix: what has one scale. */
struct assemble_block {
    uint64_t rows, columns;
};

/* Pieces that show codes of one matrix, and those that show their scales: every place once. */
struct assemble_group {
    uint32_t first, codes, scales; /* in wf_assemble.pieces: codes, then scales */
};

/* A rectangle of whole blocks, dense in its assembled tensor. */
struct assemble_rect {
    uint64_t row, column, rows, columns; /* of the matrix */
    uint64_t matrix_columns;
    struct assemble_block block;
    uint64_t tile_rows, tile_columns; /* multiples of the block's, or all */
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

static inline struct assemble_block wf_assemble_block(enum wf_quant rule, uint64_t columns)
{
    bool by_row = wf_quant_is_by_row(rule);
    return by_row ? (struct assemble_block){1, columns}
                  : (struct assemble_block){WF_ASSEMBLE_BLOCK, WF_ASSEMBLE_BLOCK};
}

static inline uint64_t wf_assemble_blocks(uint64_t size, uint64_t block)
{
    return (size + block - 1) / block;
}

static inline uint64_t wf_assemble_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
