/* prepare_private.h - what a rank makes before others read, while it is being derived and after.
 * Private to models/prepare*.c.
 */
#ifndef WEFT_MODELS_PREPARE_PRIVATE_H
#define WEFT_MODELS_PREPARE_PRIVATE_H

#include "models/layout_private.h"
#include "models/prepare.h"

enum {
    /* What an item reads and writes: enough that a job's own cost is nothing beside it, little
     * enough that a rank's items go evenly over its threads. */
    WF_PREPARE_ITEM_BYTES = 4 << 20,
};

/* Elements that a piece shows less one, and the f32 tensor that has them as they are. */
struct prepare_value {
    struct wf_box box; /* dst: dense */
    uint32_t src_tensor, dst_tensor;
    enum wf_dtype dtype;
};

/* Whole blocks of a matrix that the rank shows; its codes, and behind them its scales, are dense.
 */
struct prepare_rect {
    uint64_t row, column, rows, columns; /* of the parameter */
    uint64_t param_columns, block_rows, block_columns;
    enum wf_dtype dtype;               /* of the matrix here */
    uint32_t codes;                    /* tensor of the source layout; + 1: scales */
    uint32_t first_piece, piece_count; /* in wf_prepare.pieces: where the values are */
};

struct prepare_item {
    uint32_t rect;           /* PREPARE_VALUES, or which */
    uint32_t first, end;     /* values; or rows of blocks */
    uint64_t element, count; /* of a single large value: which of its elements; count 0: all */
    uint64_t bytes;
};
#define PREPARE_VALUES UINT32_MAX

struct wf_prepare {
    const struct wf_layout *own; /* borrowed */
    enum wf_quant rule;
    struct prepare_value *values;
    struct prepare_rect *rects;
    uint32_t *pieces; /* of `own`, by matrix */
    struct prepare_item *items;
    uint32_t value_count, rect_count, item_count;
    uint64_t scratch_bytes;
};

/* While it is derived. Any failed allocation sets `build.failed`. */
struct prepare_maker {
    const struct wf_model *model;
    const struct wf_layout *own;
    struct wf_build build; /* the source layout */
    struct wf_prepare *prepare;
    uint32_t value_room, rect_room, item_room;
    bool wants_items; /* else only the layout is wanted */
    uint32_t *made;   /* by parameter: how many prepared tensors have a part of it */
};

/* Room for one more in *array; false (and build.failed) without memory. */
bool wf_prepare_room(struct prepare_maker *maker, void *array, uint32_t count, uint32_t *room,
                     size_t size);
/* A prepared tensor that shows `param`; gives its index in the source layout. */
uint32_t wf_prepare_tensor(struct prepare_maker *maker, uint32_t param, enum wf_dtype dtype,
                           uint32_t ndim, const uint64_t *shape);

void wf_prepare_item(struct prepare_maker *maker, const struct prepare_item *item);

/* prepare_quant.c */
void wf_prepare_quant(struct prepare_maker *maker); /* adds what a job's rule makes of matrices */
void wf_prepare_run_rect(const struct wf_prepare *prepare, const struct prepare_item *item,
                         void *const *tensors, void *scratch);

#endif
