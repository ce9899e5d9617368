/* assemble_make.c - quantising what was assembled, tile by tile, to wherever the target shows it.
 */
#include "models/assemble_private.h"
#include "models/copy.h"

/* Codes or scales of a tile on their way to a piece. */
struct way {
    const void *from;
    void *to;
    enum wf_dtype made, wanted;
};

static bool put(void *user, const struct wf_box *box)
{
    const struct way *way = user;
    wf_copy_box_cached(box, way->from, way->made, way->to, way->wanted,
                       (struct wf_copy_part){0, box->elements});
    return true;
}

/* `nest` is what of a parameter lies at `from`. */
static void spread(const struct wf_assemble *a, const uint32_t *pieces, uint32_t count,
                   const struct wf_nest *nest, const void *from, enum wf_dtype made,
                   void *const *tensors)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t tensor = a->planned->pieces[pieces[i]].tensor;
        struct wf_nest piece = wf_layout_nest(a->planned, pieces[i]);
        struct way way = {from, tensors[tensor], made, a->planned->tensors[tensor].dtype};
        enum wf_status status = wf_nest_intersect(nest, &piece, put, &way, NULL);
        WF_ASSERT(status == WF_OK); /* a tile has fewer elements than boxes may be */
    }
}

/* A tile that begins at row `row` and column `column` of its rectangle. */
static void make_tile(const struct wf_assemble *a, const struct assemble_rect *rect, uint64_t row,
                      uint64_t column, void *const *tensors, uint8_t *codes)
{
    float *scales = (float *)(codes + WF_ASSEMBLE_TILE);
    uint64_t rows = wf_assemble_least(rect->rows - row, rect->tile_rows);
    uint64_t columns = wf_assemble_least(rect->columns - column, rect->tile_columns);
    uint64_t bytes = wf_dtype_bytes(rect->dtype), row_bytes = rect->columns * bytes;
    uint64_t high = wf_assemble_blocks(rows, rect->block.rows);
    uint64_t wide = wf_assemble_blocks(columns, rect->block.columns);
    const struct wf_quant_matrix values = {.values = (const char *)tensors[rect->tensor] +
                                                     row * row_bytes + column * bytes,
                                           .dtype = rect->dtype,
                                           .rows = rows,
                                           .columns = columns,
                                           .row_bytes = row_bytes};
    wf_quantise(a->rule, &values, codes, columns, scales, wide, false);
    row += rect->row;
    column += rect->column;
    const struct wf_nest made = {
        .param_first = row * rect->matrix_columns + column,
        .elem_bytes = 1,
        .axis_count = 2,
        .axes = {{rows, rect->matrix_columns, (int64_t)columns}, {columns, 1, 1}}};
    const int64_t scale_bytes = sizeof(float);
    const uint64_t all_wide = wf_assemble_blocks(rect->matrix_columns, rect->block.columns);
    const struct wf_nest made_scales = {
        .param_first = row / rect->block.rows * all_wide + column / rect->block.columns,
        .elem_bytes = sizeof(float),
        .axis_count = 2,
        .axes = {{high, all_wide, (int64_t)wide * scale_bytes}, {wide, 1, scale_bytes}}};
    const struct assemble_group *group = &a->groups[rect->group];
    const uint32_t *pieces = a->pieces + group->first;
    spread(a, pieces, group->codes, &made, codes, WF_DTYPE_F8_E4M3, tensors);
    spread(a, pieces + group->codes, group->scales, &made_scales, scales, WF_DTYPE_F32, tensors);
}

void wf_assemble_run(const struct wf_assemble *assemble, uint32_t item, void *const *tensors,
                     void *scratch)
{
    const struct assemble_item *at = &assemble->items[item];
    const struct assemble_rect *rect = &assemble->rects[at->rect];
    for (uint64_t column = 0; column < rect->columns; column += rect->tile_columns) {
        make_tile(assemble, rect, at->first, column, tensors, scratch);
    }
}
