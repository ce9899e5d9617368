/* prepare_quant.c - codes and scales of the matrices that a rank shows: which blocks it has whole,
 * and making them.
 *
 * What a rank shows of a matrix is found as rectangles of rows and columns (strips.h), whatever its
 * tensors look like. Of each rectangle the whole blocks are kept. A matrix of more strips than
 * WF_STRIPS_MAX has no codes.
 */
#include <stdlib.h>
#include <string.h>

#include "models/copy.h"
#include "models/prepare_private.h"
#include "models/strips.h"

enum {
    TILE_BYTES = 1 << 20, /* gathered at a time: a second cache holds it */
};

/* --- rectangles ---------------------------------------------------------------------------------
 */

struct matrix {
    struct prepare_maker *maker;
    const struct wf_variant_pair *pair;
    const uint32_t *pieces; /* of the own layout */
    uint32_t piece_count;
    uint64_t rows, columns;
    struct wf_strips strips; /* reused from matrix to matrix */
};

/* The whole blocks of [range[0], range[1]) of `size`. False: there is none. */
static bool whole_blocks(uint64_t range[2], uint64_t block, uint64_t size)
{
    range[0] = (range[0] + block - 1) / block * block;
    range[1] = range[1] == size ? size : range[1] / block * block;
    return range[0] < range[1];
}

static uint64_t blocks_of(uint64_t size, uint64_t block)
{
    return (size + block - 1) / block;
}

static void add_rect(struct matrix *m, const struct wf_strip *strip, uint64_t block_rows,
                     uint64_t block_columns, enum wf_dtype dtype)
{
    struct prepare_maker *maker = m->maker;
    struct wf_prepare *prepare = maker->prepare;
    uint64_t rows = strip->rows[1] - strip->rows[0];
    uint64_t columns = strip->columns[1] - strip->columns[0];
    if (!wf_prepare_room(maker, &prepare->rects, prepare->rect_count, &maker->rect_room,
                         sizeof *prepare->rects)) {
        return;
    }
    struct prepare_rect *rect = &prepare->rects[prepare->rect_count++];
    *rect = (struct prepare_rect){.row = strip->rows[0],
                                  .column = strip->columns[0],
                                  .rows = rows,
                                  .columns = columns,
                                  .param_columns = m->columns,
                                  .block_rows = block_rows,
                                  .block_columns = block_columns,
                                  .dtype = dtype,
                                  .first_piece = (uint32_t)(m->pieces - prepare->pieces),
                                  .piece_count = m->piece_count};
    rect->codes =
        wf_prepare_tensor(maker, m->pair->codes, WF_DTYPE_F8_E4M3, 2, (uint64_t[]){rows, columns});
    const struct wf_nest codes = {.param_first = rect->row * m->columns + rect->column,
                                  .elem_bytes = 1,
                                  .axis_count = 2,
                                  .axes = {{rows, m->columns, (int64_t)columns}, {columns, 1, 1}}};
    wf_build_piece(&maker->build, m->pair->codes, &codes, WF_VALUE_COPY);
    uint64_t high = blocks_of(rows, block_rows), wide = blocks_of(columns, block_columns);
    uint64_t all = blocks_of(m->columns, block_columns);
    const int64_t bytes = sizeof(float);
    wf_prepare_tensor(maker, m->pair->scales, WF_DTYPE_F32, 2, (uint64_t[]){high, wide});
    const struct wf_nest scales = {.param_first =
                                       rect->row / block_rows * all + rect->column / block_columns,
                                   .elem_bytes = (uint32_t)bytes,
                                   .axis_count = 2,
                                   .axes = {{high, all, (int64_t)wide * bytes}, {wide, 1, bytes}}};
    wf_build_piece(&maker->build, m->pair->scales, &scales, WF_VALUE_COPY);
}

static bool can_quantise(enum wf_dtype dtype)
{
    return dtype == WF_DTYPE_F32 || dtype == WF_DTYPE_F16 || dtype == WF_DTYPE_BF16;
}

/* Rectangles of what the matrix's pieces show. Pieces of another type than the first are not
 * looked at. */
static void add_matrix(struct matrix *m)
{
    struct prepare_maker *maker = m->maker;
    const struct wf_layout *own = maker->own;
    const struct wf_param *param = &maker->model->params[m->pair->matrix];
    enum wf_dtype dtype = own->tensors[own->pieces[m->pieces[0]].tensor].dtype;
    uint32_t block_rows, block_columns;
    wf_quant_block(maker->model->variants->rule, &block_rows, &block_columns);
    if (param->ndim != 2 || !can_quantise(dtype)) {
        return;
    }
    m->rows = param->shape[0];
    m->columns = param->shape[1];
    wf_strips_begin(&m->strips, m->columns);
    for (uint32_t i = 0; i < m->piece_count; i++) {
        struct wf_nest nest = wf_layout_nest(own, m->pieces[i]);
        bool same = own->tensors[own->pieces[m->pieces[i]].tensor].dtype == dtype;
        if (same && !wf_strips_add_nest(&m->strips, &nest)) {
            maker->build.failed = maker->build.failed || m->strips.no_memory;
            return;
        }
    }
    wf_strips_merge(&m->strips);
    uint64_t high = block_rows > 0 ? block_rows : m->rows;
    uint64_t wide = block_columns > 0 ? block_columns : m->columns;
    for (uint32_t i = 0; i < m->strips.count; i++) {
        struct wf_strip strip = m->strips.at[i];
        if (whole_blocks(strip.rows, high, m->rows) &&
            whole_blocks(strip.columns, wide, m->columns)) {
            add_rect(m, &strip, high, wide, dtype);
        }
    }
}

/* Bytes that a block row of the rectangle reads and writes. */
static uint64_t block_row_bytes(const struct prepare_rect *rect)
{
    return rect->block_rows * rect->columns * (wf_dtype_bytes(rect->dtype) + 1);
}

static void add_rect_items(struct prepare_maker *maker, uint32_t index)
{
    const struct prepare_rect *rect = &maker->prepare->rects[index];
    uint64_t each = block_row_bytes(rect), block_rows = blocks_of(rect->rows, rect->block_rows);
    uint64_t at_once = each < WF_PREPARE_ITEM_BYTES ? WF_PREPARE_ITEM_BYTES / each : 1;
    uint64_t gather = rect->block_rows * rect->block_columns * wf_dtype_bytes(rect->dtype);
    gather = gather > TILE_BYTES ? gather : TILE_BYTES;
    if (gather > maker->prepare->scratch_bytes) {
        maker->prepare->scratch_bytes = gather;
    }
    for (uint64_t at = 0; at < block_rows; at += at_once) {
        uint64_t left = block_rows - at, count = left < at_once ? left : at_once;
        wf_prepare_item(maker, &(struct prepare_item){.rect = index,
                                                      .first = (uint32_t)at,
                                                      .end = (uint32_t)(at + count),
                                                      .bytes = count * each});
    }
}

/* The pieces of the own layout that show a pair's matrix, pair by pair: first_out[p] is where those
 * of pair p begin in prepare->pieces. */
static uint32_t *group_pieces(struct prepare_maker *maker)
{
    const struct wf_layout *own = maker->own;
    const struct wf_variants *v = maker->model->variants;
    uint32_t *pair_at = malloc(((size_t)v->plain_count + 1) * sizeof *pair_at);
    uint32_t *first = calloc((size_t)v->pair_count + 2, sizeof *first);
    maker->prepare->pieces = calloc((size_t)own->piece_count + 1, sizeof(uint32_t));
    if (pair_at == NULL || first == NULL || maker->prepare->pieces == NULL) {
        maker->build.failed = true;
        free(pair_at);
        return first;
    }
    memset(pair_at, 0xff, (size_t)v->plain_count * sizeof *pair_at);
    for (uint32_t p = 0; p < v->pair_count; p++) {
        pair_at[v->pairs[p].matrix] = p;
    }
    /* Counted two places on, summed, then moved one on while they are dealt out. */
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < own->piece_count; i++) {
            const struct wf_piece *piece = &own->pieces[i];
            bool whole = piece->kind == WF_PIECE_DATA && piece->value_rule == WF_VALUE_COPY &&
                         piece->param < v->plain_count;
            uint32_t p = whole ? pair_at[piece->param] : UINT32_MAX;
            if (p != UINT32_MAX && pass == 0) {
                first[p + 2]++;
            } else if (p != UINT32_MAX) {
                maker->prepare->pieces[first[p + 1]++] = i;
            }
        }
        for (uint32_t p = 0; pass == 0 && p < v->pair_count; p++) {
            first[p + 2] += first[p + 1];
        }
    }
    free(pair_at);
    return first;
}

void wf_prepare_quant(struct prepare_maker *maker)
{
    const struct wf_variants *v = maker->model->variants;
    if (v == NULL || maker->build.failed) {
        return;
    }
    uint32_t *first = group_pieces(maker);
    struct matrix m = {.maker = maker};
    for (uint32_t p = 0; p < v->pair_count && !maker->build.failed; p++) {
        m.pair = &v->pairs[p];
        m.pieces = maker->prepare->pieces + first[p];
        m.piece_count = first[p + 1] - first[p];
        if (m.piece_count > 0) {
            add_matrix(&m);
        }
    }
    uint32_t rects = maker->wants_items ? maker->prepare->rect_count : 0;
    for (uint32_t i = 0; i < rects && !maker->build.failed; i++) {
        add_rect_items(maker, i);
    }
    free(m.strips.at);
    free(first);
}

/* --- making -------------------------------------------------------------------------------------
 */

/* A part of a rectangle: rows [row, row + rows) and columns likewise, of the parameter. */
struct part {
    const struct wf_prepare *prepare;
    const struct prepare_rect *rect;
    void *const *tensors;
    uint64_t row, rows, column, columns;
    /* found() of the piece at hand */
    const char *base;
    struct wf_quant_matrix direct; /* its values, if one box has them all as rows */
    uint64_t elements;             /* gathered so far */
    char *scratch;
};

static struct wf_nest nest_of(const struct part *part)
{
    int64_t bytes = (int64_t)wf_dtype_bytes(part->rect->dtype);
    return (struct wf_nest){
        .param_first = part->row * part->rect->param_columns + part->column,
        .elem_bytes = (uint32_t)bytes,
        .axis_count = 2,
        .axes = {{part->rows, part->rect->param_columns, (int64_t)part->columns * bytes},
                 {part->columns, 1, bytes}}};
}

/* Calls `emit` for what the rank's pieces have of the part, until it says false. */
static void find(struct part *part, wf_box_emit_t *emit)
{
    const struct wf_prepare *prepare = part->prepare;
    const struct wf_layout *own = prepare->own;
    struct wf_nest wanted = nest_of(part);
    for (uint32_t i = 0; i < part->rect->piece_count; i++) {
        uint32_t index = prepare->pieces[part->rect->first_piece + i];
        uint32_t tensor = own->pieces[index].tensor;
        struct wf_nest nest = wf_layout_nest(own, index);
        if (own->tensors[tensor].dtype != part->rect->dtype) {
            continue;
        }
        part->base = part->tensors[tensor];
        enum wf_status status = wf_nest_intersect(&nest, &wanted, emit, part, NULL);
        WF_ASSERT(status == WF_OK); /* its strips were few enough */
    }
}

/* One box with all of the part, in rows. */
static bool look(void *user, const struct wf_box *box)
{
    struct part *part = user;
    int64_t bytes = (int64_t)wf_dtype_bytes(part->rect->dtype);
    bool all = box->elements == part->rows * part->columns && part->direct.values == NULL;
    int64_t inner = box->axis_count > 0 ? box->axes[box->axis_count - 1].src_step : bytes;
    uint64_t row_bytes = part->columns * (uint64_t)bytes;
    if (box->axis_count == 2) {
        all = all && box->axes[0].count == part->rows && box->axes[0].src_step > 0;
        row_bytes = (uint64_t)box->axes[0].src_step;
    }
    if (!all || box->axis_count > 2 || inner != bytes) {
        return true; /* not this one; another piece may show the same */
    }
    part->direct = (struct wf_quant_matrix){.values = part->base + box->src_offset,
                                            .dtype = part->rect->dtype,
                                            .rows = part->rows,
                                            .columns = part->columns,
                                            .row_bytes = row_bytes};
    return true;
}

static bool gather(void *user, const struct wf_box *box)
{
    struct part *part = user;
    wf_copy_box_cached(box, part->base, part->rect->dtype, part->scratch, part->rect->dtype,
                       (struct wf_copy_part){0, box->elements});
    part->elements += box->elements;
    return true;
}

static void quantise(const struct part *part, const struct wf_quant_matrix *matrix)
{
    const struct prepare_rect *rect = part->rect;
    uint64_t row = part->row - rect->row, column = part->column - rect->column;
    uint64_t wide = blocks_of(rect->columns, rect->block_columns);
    uint8_t *codes = part->tensors[rect->codes];
    float *scales = part->tensors[rect->codes + 1];
    wf_quantise(part->prepare->rule, matrix, codes + row * rect->columns + column, rect->columns,
                scales + row / rect->block_rows * wide + column / rect->block_columns, wide, false);
}

/* A row of blocks that does not lie in rows of memory: gathered and quantised in tiles. */
static void make_tiles(struct part part)
{
    const struct prepare_rect *rect = part.rect;
    size_t bytes = wf_dtype_bytes(rect->dtype);
    uint64_t end = part.column + part.columns, wide = rect->block_columns;
    uint64_t blocks = TILE_BYTES / (rect->block_rows * wide * bytes);
    uint64_t at_once = wide * (blocks > 0 ? blocks : 1);
    for (; part.column < end; part.column += at_once) {
        part.columns = end - part.column < at_once ? end - part.column : at_once;
        part.elements = 0;
        find(&part, gather);
        WF_ASSERT(part.elements >= part.rows * part.columns);
        quantise(&part, &(struct wf_quant_matrix){.values = part.scratch,
                                                  .dtype = rect->dtype,
                                                  .rows = part.rows,
                                                  .columns = part.columns,
                                                  .row_bytes = part.columns * bytes});
    }
}

void wf_prepare_run_rect(const struct wf_prepare *prepare, const struct prepare_item *item,
                         void *const *tensors, void *scratch)
{
    const struct prepare_rect *rect = &prepare->rects[item->rect];
    uint64_t first = item->first * rect->block_rows, end = item->end * rect->block_rows;
    end = end < rect->rows ? end : rect->rows;
    struct part part = {.prepare = prepare,
                        .rect = rect,
                        .tensors = tensors,
                        .row = rect->row + first,
                        .rows = end - first,
                        .column = rect->column,
                        .columns = rect->columns,
                        .scratch = scratch};
    find(&part, look);
    if (part.direct.values != NULL) {
        quantise(&part, &part.direct);
        return;
    }
    for (uint64_t row = first; row < end; row += rect->block_rows) {
        part.row = rect->row + row;
        part.rows = end - row < rect->block_rows ? end - row : rect->block_rows;
        make_tiles(part);
    }
}
