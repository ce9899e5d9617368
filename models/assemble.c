/* assemble.c - planned layouts: a target's own, and behind it the matrices that it quantises. */
#include "models/assemble.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/copy.h"
#include "models/layout_private.h"
#include "models/strips.h"

enum {
    BLOCK = 128,    /* variant.h: an engine's rule has no other */
    RECTS_MAX = 64, /* of a group: rather one around all than more */
    /* Quantised at a time: codes that a second cache holds, and fewer than nests may meet in. */
    TILE_ELEMENTS = 1 << 20,
};

/* Pieces that show codes of one matrix, and those that show their scales: every place once. */
struct group {
    uint32_t first, codes, scales; /* in wf_assemble.pieces: codes, then scales */
};

/* A rectangle of whole blocks, dense in its assembled tensor. */
struct rect {
    uint64_t row, column, rows, columns; /* of the matrix */
    uint64_t matrix_columns;
    uint64_t tile_rows, tile_columns; /* multiples of BLOCK, or all */
    enum wf_dtype dtype;
    uint32_t tensor; /* of the planned layout */
    uint32_t group;
};

struct item {
    uint32_t rect;
    uint64_t first; /* its tile_rows rows from here, or what is left */
};

struct wf_assemble {
    const struct wf_layout *planned; /* borrowed */
    enum wf_quant rule;
    struct group *groups;
    struct rect *rects;
    struct item *items;
    uint32_t *pieces; /* of `planned` */
    uint32_t group_count, rect_count, item_count, piece_count;
    uint64_t scratch_bytes;
};

/* While it is derived. Any failed allocation sets `build.failed`. */
struct maker {
    const struct wf_model *model;
    const struct wf_layout *own;
    const struct wf_cuts *cuts;
    struct wf_build build; /* the planned layout */
    struct wf_assemble *assemble;
    uint32_t group_room, rect_room, item_room;
    /* Own pieces, pair by pair: those with codes of pair p begin at first[2 * p] of `pieces`, those
     * with scales at first[2 * p + 1]. */
    uint32_t *first, *pieces;
    uint32_t *group_of; /* by place in `pieces`: which of the pair's groups it is in */
    struct wf_strips strips;
};

static bool room(struct maker *m, void *array, uint32_t count, uint32_t *room, size_t size)
{
    if (count < *room || m->build.failed) {
        return !m->build.failed;
    }
    uint32_t wanted = *room > 0 ? 2 * *room : 16;
    void *grown = reallocarray(*(void **)array, wanted, size);
    if (grown == NULL) {
        m->build.failed = true;
        return false;
    }
    *(void **)array = grown;
    *room = wanted;
    return true;
}

static uint64_t blocks_of(uint64_t size)
{
    return (size + BLOCK - 1) / BLOCK;
}

/* --- which pieces ------------------------------------------------------------------------------
 */

/* The list that a piece belongs to, 2 * pair or the next; WF_NONE: none, it is not made here. */
static uint32_t list_of(const struct maker *m, const struct wf_piece *piece)
{
    const struct wf_variants *v = m->model->variants;
    if (piece->kind != WF_PIECE_DATA || piece->param < v->plain_count) {
        return WF_NONE;
    }
    uint32_t pair = v->pair_of[piece->param - v->plain_count];
    if (m->cuts->dtypes[pair] == WF_DTYPE_NONE) {
        return WF_NONE;
    }
    return 2 * pair + (v->pairs[pair].scales == piece->param);
}

/* Counted two places on, summed, then moved one on while they are dealt out. False: nothing is made
 * here (or no memory). */
static bool list_pieces(struct maker *m)
{
    const struct wf_layout *own = m->own;
    uint32_t lists = 2 * m->model->variants->pair_count;
    m->first = calloc((size_t)lists + 2, sizeof *m->first);
    if (m->first == NULL) {
        m->build.failed = true;
        return false;
    }
    for (uint32_t i = 0; i < own->piece_count; i++) {
        uint32_t list = list_of(m, &own->pieces[i]);
        m->first[list != WF_NONE ? list + 2 : 0] += list != WF_NONE;
    }
    for (uint32_t i = 0; i < lists; i++) {
        m->first[i + 2] += m->first[i + 1];
    }
    uint32_t count = m->first[lists + 1];
    m->pieces = calloc((size_t)count + 1, sizeof *m->pieces);
    m->group_of = calloc((size_t)count + 1, sizeof *m->group_of);
    m->assemble->pieces = calloc((size_t)count + 1, sizeof *m->assemble->pieces);
    if (m->pieces == NULL || m->group_of == NULL || m->assemble->pieces == NULL) {
        m->build.failed = true;
        return false;
    }
    for (uint32_t i = 0; i < own->piece_count; i++) {
        uint32_t list = list_of(m, &own->pieces[i]);
        if (list != WF_NONE) {
            m->pieces[m->first[list + 1]++] = i;
        }
    }
    return count > 0;
}

/* --- groups ------------------------------------------------------------------------------------
 */

static bool say_common(void *user, const struct wf_box *box)
{
    (void)box;
    *(bool *)user = true;
    return false;
}

static bool has_common(const struct wf_layout *own, uint32_t a, uint32_t b)
{
    struct wf_nest x = wf_layout_nest(own, a), y = wf_layout_nest(own, b);
    bool common = false;
    wf_nest_intersect(&x, &y, say_common, &common, NULL);
    return common;
}

/* Deals a list's pieces out to groups. An expert may stand in several slots of a rank: each slot is
 * a group of its own, so that a rank's assembled tensors stay what they are when another table says
 * which experts stand where. Everything else is one group. */
static uint32_t deal(struct maker *m, uint32_t first, uint32_t end, bool expert)
{
    uint32_t count = end > first;
    for (uint32_t i = first; i < end && expert; i++) {
        uint32_t group = 0;
        for (uint32_t j = first; j < i; j++) {
            if (m->group_of[j] == group && has_common(m->own, m->pieces[j], m->pieces[i])) {
                group++;
                j = first - 1; /* against all of the next */
            }
        }
        m->group_of[i] = group;
        count = group + 1 > count ? group + 1 : count;
    }
    return count;
}

/* Puts those of a group into the result; of `scales` a last group takes all that are left. */
static uint32_t take_pieces(struct maker *m, uint32_t first, uint32_t end, uint32_t group,
                            bool and_later)
{
    uint32_t before = m->assemble->piece_count;
    for (uint32_t i = first; i < end; i++) {
        if (m->group_of[i] == group || (and_later && m->group_of[i] > group)) {
            m->assemble->pieces[m->assemble->piece_count++] = m->pieces[i];
        }
    }
    return m->assemble->piece_count - before;
}

/* --- rectangles --------------------------------------------------------------------------------
 */

static void round_out(struct wf_strip *strip, uint64_t rows, uint64_t columns, uint64_t unit)
{
    strip->rows[0] = strip->rows[0] * unit / BLOCK * BLOCK;
    strip->rows[1] = blocks_of(strip->rows[1] * unit) * BLOCK;
    strip->rows[1] = strip->rows[1] < rows ? strip->rows[1] : rows;
    strip->columns[0] = strip->columns[0] * unit / BLOCK * BLOCK;
    strip->columns[1] = blocks_of(strip->columns[1] * unit) * BLOCK;
    strip->columns[1] = strip->columns[1] < columns ? strip->columns[1] : columns;
}

static bool any_overlap(const struct wf_strips *strips)
{
    for (uint32_t i = 0; i < strips->count; i++) {
        const struct wf_strip *a = &strips->at[i];
        for (uint32_t j = 0; j < i; j++) {
            const struct wf_strip *b = &strips->at[j];
            if (a->rows[0] < b->rows[1] && b->rows[0] < a->rows[1] &&
                a->columns[0] < b->columns[1] && b->columns[0] < a->columns[1]) {
                return true;
            }
        }
    }
    return false;
}

/* The smallest rectangle around all. */
static void bound(struct wf_strips *strips)
{
    struct wf_strip *all = &strips->at[0];
    for (uint32_t i = 1; i < strips->count; i++) {
        const struct wf_strip *one = &strips->at[i];
        all->rows[0] = one->rows[0] < all->rows[0] ? one->rows[0] : all->rows[0];
        all->rows[1] = one->rows[1] > all->rows[1] ? one->rows[1] : all->rows[1];
        all->columns[0] = one->columns[0] < all->columns[0] ? one->columns[0] : all->columns[0];
        all->columns[1] = one->columns[1] > all->columns[1] ? one->columns[1] : all->columns[1];
    }
    strips->count = 1;
}

/* What the pieces show of codes (unit 1) or scales (unit BLOCK), in blocks of the matrix. */
static bool add_shown(struct maker *m, struct wf_strips *shown, const uint32_t *pieces,
                      uint32_t count, const struct wf_param *matrix, uint64_t unit)
{
    uint64_t columns = unit == 1 ? matrix->shape[1] : blocks_of(matrix->shape[1]);
    wf_strips_begin(shown, columns);
    for (uint32_t i = 0; i < count; i++) {
        struct wf_nest nest = wf_layout_nest(m->own, pieces[i]);
        if (!wf_strips_add_nest(shown, &nest)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < shown->count; i++) {
        round_out(&shown->at[i], matrix->shape[0], matrix->shape[1], unit);
        if (!wf_strips_add(&m->strips, &shown->at[i])) {
            return false;
        }
    }
    return true;
}

/* Leaves in m->strips rectangles of whole blocks, disjoint, in which all of the group lies. */
static void find_rects(struct maker *m, const struct group *group, const struct wf_param *matrix)
{
    const uint32_t *pieces = m->assemble->pieces + group->first;
    struct wf_strips shown = {0};
    wf_strips_begin(&m->strips, matrix->shape[1]);
    bool few = add_shown(m, &shown, pieces, group->codes, matrix, 1) &&
               add_shown(m, &shown, pieces + group->codes, group->scales, matrix, BLOCK);
    m->build.failed = m->build.failed || shown.no_memory || m->strips.no_memory;
    free(shown.at);
    if (m->build.failed) {
        m->strips.count = 0;
        return;
    }
    if (!few) { /* too many to look at: all of the matrix */
        const struct wf_strip all = {{0, matrix->shape[0]}, {0, matrix->shape[1]}};
        wf_strips_begin(&m->strips, matrix->shape[1]);
        m->build.failed = !wf_strips_add(&m->strips, &all);
    }
    wf_strips_merge(&m->strips);
    if (m->strips.count > RECTS_MAX || any_overlap(&m->strips)) {
        bound(&m->strips);
    }
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void add_items(struct maker *m, uint32_t index)
{
    struct wf_assemble *a = m->assemble;
    struct rect *rect = &a->rects[index];
    rect->tile_columns = least(rect->columns, TILE_ELEMENTS / BLOCK);
    rect->tile_rows =
        least(TILE_ELEMENTS / (rect->tile_columns * BLOCK) * BLOCK, blocks_of(rect->rows) * BLOCK);
    uint64_t scratch =
        TILE_ELEMENTS + blocks_of(rect->tile_rows) * blocks_of(rect->tile_columns) * sizeof(float);
    a->scratch_bytes = scratch > a->scratch_bytes ? scratch : a->scratch_bytes;
    for (uint64_t at = 0; at < rect->rows; at += rect->tile_rows) {
        if (room(m, &a->items, a->item_count, &m->item_room, sizeof *a->items)) {
            a->items[a->item_count++] = (struct item){index, at};
        }
    }
}

/* The assembled tensor; `part` counts those of one matrix. */
static void add_rect(struct maker *m, uint32_t pair, uint32_t group, const struct wf_strip *strip,
                     uint32_t part)
{
    const uint32_t index = m->model->variants->pairs[pair].matrix;
    const struct wf_param *matrix = &m->model->params[index];
    struct wf_assemble *a = m->assemble;
    if (!room(m, &a->rects, a->rect_count, &m->rect_room, sizeof *a->rects)) {
        return;
    }
    struct rect *rect = &a->rects[a->rect_count];
    *rect = (struct rect){.row = strip->rows[0],
                          .column = strip->columns[0],
                          .rows = strip->rows[1] - strip->rows[0],
                          .columns = strip->columns[1] - strip->columns[0],
                          .matrix_columns = matrix->shape[1],
                          .dtype = m->cuts->dtypes[pair],
                          .tensor = m->build.layout->tensor_count,
                          .group = group};
    char name[WF_NAME_MAX + 32];
    int len = snprintf(name, sizeof name, "assembled:%.*s", WF_NAME_MAX, matrix->name);
    if (part > 0) {
        snprintf(name + len, sizeof name - (size_t)len, ":%u", part + 1);
    }
    uint64_t shape[] = {rect->rows, rect->columns}, bytes = wf_dtype_bytes(rect->dtype);
    wf_build_tensor(&m->build, name, rect->dtype, 2, shape, WF_TENSOR_WEIGHTS);
    const struct wf_nest nest = {
        .param_first = rect->row * matrix->shape[1] + rect->column,
        .elem_bytes = (uint32_t)bytes,
        .axis_count = 2,
        .axes = {{rect->rows, matrix->shape[1], (int64_t)(rect->columns * bytes)},
                 {rect->columns, 1, (int64_t)bytes}}};
    wf_build_piece(&m->build, index, &nest, WF_VALUE_COPY);
    add_items(m, a->rect_count++);
}

static void add_pair(struct maker *m, uint32_t pair)
{
    const struct wf_param *matrix = &m->model->params[m->model->variants->pairs[pair].matrix];
    const uint32_t *first = &m->first[2 * pair];
    struct wf_assemble *a = m->assemble;
    bool expert = matrix->expert != WF_NONE;
    uint32_t groups = deal(m, first[0], first[1], expert), part = 0;
    uint32_t of_scales = deal(m, first[1], first[2], expert);
    groups = groups > 0 || of_scales == 0 ? groups : 1; /* scales alone */
    for (uint32_t g = 0; g < groups; g++) {
        if (!room(m, &a->groups, a->group_count, &m->group_room, sizeof *a->groups)) {
            return;
        }
        struct group *group = &a->groups[a->group_count];
        group->first = a->piece_count;
        group->codes = take_pieces(m, first[0], first[1], g, false);
        group->scales = take_pieces(m, first[1], first[2], g, g + 1 == groups);
        find_rects(m, group, matrix);
        for (uint32_t i = 0; i < m->strips.count && !m->build.failed; i++) {
            add_rect(m, pair, a->group_count, &m->strips.at[i], part++);
        }
        a->group_count++;
    }
}

/* --- all of it ---------------------------------------------------------------------------------
 */

/* The rule gives e4m3 and f32. */
static enum wf_status check_types(const struct maker *m, struct wf_error *error)
{
    const struct wf_variants *v = m->model->variants;
    for (uint32_t p = 0; p < v->pair_count; p++) {
        for (uint32_t i = m->first[2 * p]; i < m->first[2 * p + 2]; i++) {
            const struct wf_tensor *tensor = &m->own->tensors[m->own->pieces[m->pieces[i]].tensor];
            bool scales = i >= m->first[2 * p + 1];
            enum wf_dtype made = scales ? WF_DTYPE_F32 : WF_DTYPE_F8_E4M3;
            if (tensor->dtype != made && !wf_dtype_castable(made, tensor->dtype)) {
                return wf_error_set(error, WF_UNSUPPORTED,
                                    "tensor %s holds %s of %s as %s; expected %s or what that can "
                                    "be cast to",
                                    tensor->name, scales ? "scales" : "codes",
                                    m->model->params[v->pairs[p].matrix].name,
                                    wf_dtype_name(tensor->dtype), wf_dtype_name(made));
            }
        }
    }
    return WF_OK;
}

static void mark_made(struct maker *m)
{
    struct wf_layout *planned = m->build.layout;
    for (uint32_t i = 0; i < m->own->piece_count && !m->build.failed; i++) {
        /* Both layouts have these pieces in the same order: assembled tensors come behind. */
        if (list_of(m, &m->own->pieces[i]) != WF_NONE) {
            planned->pieces[i].kind = WF_PIECE_MADE;
        }
    }
}

static enum wf_status derive(struct maker *m, struct wf_layout **planned_out,
                             struct wf_error *error)
{
    if (!list_pieces(m)) {
        return m->build.failed ? wf_error_set(error, WF_NO_MEMORY, "no memory for a layout")
                               : WF_OK;
    }
    enum wf_status status = check_types(m, error);
    wf_build_from(&m->build, m->own);
    mark_made(m);
    for (uint32_t p = 0; status == WF_OK && p < m->model->variants->pair_count; p++) {
        if (m->first[2 * p + 2] > m->first[2 * p] && !m->build.failed) {
            add_pair(m, p);
        }
    }
    return wf_build_end(&m->build, status, planned_out, error);
}

enum wf_status wf_assemble_derive(const struct wf_model *model, const struct wf_layout *own,
                                  const struct wf_cuts *cuts, struct wf_layout **planned_out,
                                  struct wf_assemble **assemble_out, struct wf_error *error)
{
    struct wf_layout *planned = NULL;
    struct maker m = {.model = model, .own = own, .cuts = cuts};
    enum wf_status status = WF_OK;
    if (cuts != NULL) {
        m.assemble = calloc(1, sizeof *m.assemble);
        status = m.assemble != NULL ? derive(&m, &planned, error)
                                    : wf_error_set(error, WF_NO_MEMORY, "no memory for a layout");
    }
    free(m.first);
    free(m.pieces);
    free(m.group_of);
    free(m.strips.at);
    if (status != WF_OK || planned == NULL || assemble_out == NULL) {
        wf_assemble_free(m.assemble);
        m.assemble = NULL;
    } else {
        m.assemble->planned = planned;
        m.assemble->rule = model->variants->rule;
    }
    if (status != WF_OK) {
        return status;
    }
    *planned_out = planned;
    if (assemble_out != NULL) {
        *assemble_out = m.assemble;
    }
    return WF_OK;
}

void wf_assemble_free(struct wf_assemble *assemble)
{
    if (assemble != NULL) {
        free(assemble->groups);
        free(assemble->rects);
        free(assemble->items);
        free(assemble->pieces);
        free(assemble);
    }
}

uint32_t wf_assemble_item_count(const struct wf_assemble *assemble)
{
    return assemble->item_count;
}

uint64_t wf_assemble_scratch_bytes(const struct wf_assemble *assemble)
{
    return assemble->scratch_bytes;
}

/* --- making ------------------------------------------------------------------------------------
 */

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
static void make_tile(const struct wf_assemble *a, const struct rect *rect, uint64_t row,
                      uint64_t column, void *const *tensors, uint8_t *codes)
{
    float *scales = (float *)(codes + TILE_ELEMENTS);
    uint64_t rows = least(rect->rows - row, rect->tile_rows);
    uint64_t columns = least(rect->columns - column, rect->tile_columns);
    uint64_t bytes = wf_dtype_bytes(rect->dtype), row_bytes = rect->columns * bytes;
    uint64_t high = blocks_of(rows), wide = blocks_of(columns);
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
    const uint64_t all_wide = blocks_of(rect->matrix_columns);
    const struct wf_nest made_scales = {
        .param_first = row / BLOCK * all_wide + column / BLOCK,
        .elem_bytes = sizeof(float),
        .axis_count = 2,
        .axes = {{high, all_wide, (int64_t)wide * scale_bytes}, {wide, 1, scale_bytes}}};
    const struct group *group = &a->groups[rect->group];
    const uint32_t *pieces = a->pieces + group->first;
    spread(a, pieces, group->codes, &made, codes, WF_DTYPE_F8_E4M3, tensors);
    spread(a, pieces + group->codes, group->scales, &made_scales, scales, WF_DTYPE_F32, tensors);
}

void wf_assemble_run(const struct wf_assemble *assemble, uint32_t item, void *const *tensors,
                     void *scratch)
{
    const struct item *at = &assemble->items[item];
    const struct rect *rect = &assemble->rects[at->rect];
    for (uint64_t column = 0; column < rect->columns; column += rect->tile_columns) {
        make_tile(assemble, rect, at->first, column, tensors, scratch);
    }
}
