/* assemble.c - planned layouts: a target's own, and behind it the matrices that it quantises. */
#include "models/assemble_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/layout_private.h"
#include "models/strips.h"

enum {
    RECTS_MAX = 64, /* of a group: rather one around all than more */
};

/* While it is derived. Any failed allocation sets `build.failed`. */
struct maker {
    const struct wf_model *model;
    const struct wf_layout *own;
    const struct wf_cuts *cuts;
    struct wf_build build; /* the planned layout */
    struct wf_assemble *assemble;
    uint32_t group_room, rect_room, item_room;
    /* Pieces of the layout at hand, pair by pair: those with codes of pair p begin at first[2 * p]
     * of `pieces`, those with scales at first[2 * p + 1]. */
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

/* --- which pieces ------------------------------------------------------------------------------
 */

/* The list that a piece belongs to, 2 * pair or the next; WF_NONE: none, it is not made here. */
static uint32_t list_of(const struct maker *m, const struct wf_piece *piece,
                        enum wf_piece_kind kind)
{
    const struct wf_variants *v = m->model->variants;
    if (piece->kind != kind || piece->param < v->plain_count) {
        return WF_NONE;
    }
    uint32_t pair = v->pair_of[piece->param - v->plain_count];
    if (m->cuts->dtypes[pair] == WF_DTYPE_NONE) {
        return WF_NONE;
    }
    return 2 * pair + (v->pairs[pair].scales == piece->param);
}

static void drop_lists(struct maker *m)
{
    free(m->first);
    free(m->pieces);
    free(m->group_of);
    free(m->assemble->pieces);
    m->first = m->pieces = m->group_of = m->assemble->pieces = NULL;
}

/* Lists a layout's pieces of one kind, pair by pair: counted two places on, summed, then moved one
 * on while they are dealt out. False: there are none (or no memory). */
static bool list_pieces(struct maker *m, const struct wf_layout *layout, enum wf_piece_kind kind)
{
    uint32_t lists = 2 * m->model->variants->pair_count;
    drop_lists(m);
    m->first = calloc((size_t)lists + 2, sizeof *m->first);
    m->pieces = calloc((size_t)layout->piece_count + 1, sizeof *m->pieces);
    m->group_of = calloc((size_t)layout->piece_count + 1, sizeof *m->group_of);
    m->assemble->pieces = calloc((size_t)layout->piece_count + 1, sizeof *m->assemble->pieces);
    m->assemble->piece_count = 0;
    if (m->first == NULL || m->pieces == NULL || m->group_of == NULL ||
        m->assemble->pieces == NULL) {
        m->build.failed = true;
        return false;
    }
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        uint32_t list = list_of(m, &layout->pieces[i], kind);
        m->first[list != WF_NONE ? list + 2 : 0] += list != WF_NONE;
    }
    for (uint32_t i = 0; i < lists; i++) {
        m->first[i + 2] += m->first[i + 1];
    }
    uint32_t count = m->first[lists + 1];
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        uint32_t list = list_of(m, &layout->pieces[i], kind);
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
static uint32_t deal(struct maker *m, const struct wf_layout *layout, uint32_t first, uint32_t end,
                     bool expert)
{
    uint32_t count = end > first;
    for (uint32_t i = first; i < end && expert; i++) {
        uint32_t group = 0;
        for (uint32_t j = first; j < i; j++) {
            if (m->group_of[j] == group && has_common(layout, m->pieces[j], m->pieces[i])) {
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

static void round_range(uint64_t range[2], uint64_t size, uint64_t unit, uint64_t block)
{
    range[0] = range[0] * unit / block * block;
    range[1] = wf_assemble_least(wf_assemble_blocks(range[1] * unit, block) * block, size);
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

/* What of a strip lies in a region. */
static struct wf_strip within(const struct wf_strip *strip, const struct wf_cut_region *region)
{
    struct wf_strip part = *strip;
    part.rows[0] = part.rows[0] > region->rows[0] ? part.rows[0] : region->rows[0];
    part.rows[1] = part.rows[1] < region->rows[1] ? part.rows[1] : region->rows[1];
    part.columns[0] = part.columns[0] > region->columns[0] ? part.columns[0] : region->columns[0];
    part.columns[1] = part.columns[1] < region->columns[1] ? part.columns[1] : region->columns[1];
    return part;
}

/* Adds what a strip has of the regions that are cut. */
static bool add_cut(struct maker *m, uint32_t pair, const struct wf_strip *strip)
{
    bool good = true;
    for (uint32_t i = m->cuts->first[pair]; i < m->cuts->first[pair + 1] && good; i++) {
        struct wf_strip part = within(strip, &m->cuts->regions[i]);
        if (m->cuts->regions[i].cut && part.rows[0] < part.rows[1] &&
            part.columns[0] < part.columns[1]) {
            good = wf_strips_add(&m->strips, &part);
        }
    }
    return good;
}

/* What the pieces show of codes or scales, in blocks of the matrix. */
static bool add_shown(struct maker *m, struct wf_strips *shown, const uint32_t *pieces,
                      uint32_t count, uint32_t pair, bool scales)
{
    const struct wf_param *matrix = &m->model->params[m->model->variants->pairs[pair].matrix];
    const struct assemble_block block =
        wf_assemble_block(m->model->variants->rule, matrix->shape[1]);
    const struct assemble_block unit = scales ? block : (struct assemble_block){1, 1};
    wf_strips_begin(shown, wf_assemble_blocks(matrix->shape[1], unit.columns));
    for (uint32_t i = 0; i < count; i++) {
        struct wf_nest nest = wf_layout_nest(m->own, pieces[i]);
        if (!wf_strips_add_nest(shown, &nest)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < shown->count; i++) {
        round_range(shown->at[i].rows, matrix->shape[0], unit.rows, block.rows);
        round_range(shown->at[i].columns, matrix->shape[1], unit.columns, block.columns);
        if (!add_cut(m, pair, &shown->at[i])) {
            return false;
        }
    }
    return true;
}

/* Leaves in m->strips rectangles of whole blocks, disjoint, in which all lies that the group shows
 * of what is cut; `pieces`: codes, then scales. */
static void find_rects(struct maker *m, uint32_t pair, const uint32_t *pieces, uint32_t codes,
                       uint32_t scales)
{
    const struct wf_param *matrix = &m->model->params[m->model->variants->pairs[pair].matrix];
    struct wf_strips shown = {0};
    wf_strips_begin(&m->strips, matrix->shape[1]);
    bool few = add_shown(m, &shown, pieces, codes, pair, false) &&
               add_shown(m, &shown, pieces + codes, scales, pair, true);
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

static void add_items(struct maker *m, uint32_t index)
{
    struct wf_assemble *a = m->assemble;
    struct assemble_rect *rect = &a->rects[index];
    const struct assemble_block *block = &rect->block;
    rect->tile_columns = wf_assemble_least(rect->columns, WF_ASSEMBLE_TILE / block->rows);
    WF_ASSERT(rect->tile_columns == rect->columns || block->columns <= rect->tile_columns);
    rect->tile_rows =
        wf_assemble_least(WF_ASSEMBLE_TILE / (rect->tile_columns * block->rows) * block->rows,
                          wf_assemble_blocks(rect->rows, block->rows) * block->rows);
    uint64_t scratch = WF_ASSEMBLE_TILE +
                       wf_assemble_blocks(rect->tile_rows, block->rows) *
                           wf_assemble_blocks(rect->tile_columns, block->columns) * sizeof(float);
    a->scratch_bytes = scratch > a->scratch_bytes ? scratch : a->scratch_bytes;
    for (uint64_t at = 0; at < rect->rows; at += rect->tile_rows) {
        if (room(m, &a->items, a->item_count, &m->item_room, sizeof *a->items)) {
            a->items[a->item_count++] = (struct assemble_item){index, at};
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
    struct assemble_rect *rect = &a->rects[a->rect_count];
    *rect = (struct assemble_rect){
        .row = strip->rows[0],
        .column = strip->columns[0],
        .rows = strip->rows[1] - strip->rows[0],
        .columns = strip->columns[1] - strip->columns[0],
        .matrix_columns = matrix->shape[1],
        .block = wf_assemble_block(m->model->variants->rule, matrix->shape[1]),
        .dtype = m->cuts->dtypes[pair],
        .tensor = m->build.layout->tensor_count,
        .pair = pair,
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

/* Deals out what is listed of a pair; how many groups there are. */
static uint32_t group_pieces(struct maker *m, uint32_t pair, const struct wf_layout *layout)
{
    const struct wf_param *matrix = &m->model->params[m->model->variants->pairs[pair].matrix];
    const uint32_t *first = &m->first[2 * pair];
    bool expert = matrix->expert != WF_NONE;
    uint32_t groups = deal(m, layout, first[0], first[1], expert);
    uint32_t of_scales = deal(m, layout, first[1], first[2], expert);
    return groups > 0 || of_scales == 0 ? groups : 1; /* scales alone */
}

/* Assembled tensors for what a pair's own pieces show of cut blocks. */
static void add_pair(struct maker *m, uint32_t pair)
{
    const uint32_t *first = &m->first[2 * pair];
    uint32_t groups = group_pieces(m, pair, m->own), part = 0;
    for (uint32_t g = 0; g < groups && !m->build.failed; g++) {
        m->assemble->piece_count = 0; /* not kept: planned pieces take their place */
        uint32_t codes = take_pieces(m, first[0], first[1], g, false);
        uint32_t scales = take_pieces(m, first[1], first[2], g, g + 1 == groups);
        find_rects(m, pair, m->assemble->pieces, codes, scales);
        for (uint32_t i = 0; i < m->strips.count && !m->build.failed; i++) {
            add_rect(m, pair, g, &m->strips.at[i], part++);
        }
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

/* Parts of a piece on their way into the planned layout. */
struct splitter {
    struct wf_build *build;
    const struct wf_piece *piece;
    uint32_t elem_bytes;
    enum wf_piece_kind kind;
};

/* The source of the box is the parameter itself, a byte an element: its steps are the piece's. */
static bool add_part(void *user, const struct wf_box *box)
{
    const struct splitter *s = user;
    struct wf_nest nest = {.param_first = box->param_first,
                           .tensor_offset = box->dst_offset,
                           .elem_bytes = s->elem_bytes,
                           .axis_count = box->axis_count};
    for (uint32_t a = 0; a < box->axis_count; a++) {
        nest.axes[a] = (struct wf_axis){box->axes[a].count, (uint64_t)box->axes[a].src_step,
                                        box->axes[a].dst_step};
    }
    wf_build_part(s->build, s->piece, &nest, s->kind);
    return true;
}

/* A region of codes, or of scales. */
static struct wf_nest nest_of_region(const struct wf_cut_region *region, uint64_t columns,
                                     struct assemble_block unit)
{
    uint64_t row = region->rows[0] / unit.rows, column = region->columns[0] / unit.columns;
    uint64_t wide = wf_assemble_blocks(columns, unit.columns);
    uint64_t rows = wf_assemble_blocks(region->rows[1], unit.rows) - row;
    return (struct wf_nest){
        .param_first = row * wide + column,
        .tensor_offset = row * wide + column,
        .elem_bytes = 1,
        .axis_count = 2,
        .axes = {{rows, wide, (int64_t)wide},
                 {wf_assemble_blocks(region->columns[1], unit.columns) - column, 1, 1}}};
}

/* A piece of which some is made here and some has sources. */
static enum wf_status split(struct maker *m, uint32_t index, uint32_t list, struct wf_error *error)
{
    uint32_t pair = list / 2;
    const struct wf_param *matrix = &m->model->params[m->model->variants->pairs[pair].matrix];
    struct wf_nest nest = wf_layout_nest(m->own, index);
    struct assemble_block unit = {1, 1}; /* of codes */
    if (list % 2 == 1) {
        unit = wf_assemble_block(m->model->variants->rule, matrix->shape[1]);
    }
    struct splitter s = {
        .build = &m->build, .piece = &m->own->pieces[index], .elem_bytes = nest.elem_bytes};
    enum wf_status status = WF_OK;
    for (uint32_t i = m->cuts->first[pair]; i < m->cuts->first[pair + 1] && status == WF_OK; i++) {
        const struct wf_cut_region *region = &m->cuts->regions[i];
        struct wf_nest of_region = nest_of_region(region, matrix->shape[1], unit);
        s.kind = region->cut ? WF_PIECE_MADE : WF_PIECE_DATA;
        status = wf_nest_intersect(&of_region, &nest, add_part, &s, error);
    }
    return status;
}

/* Pieces that show anything cut leave the layout, and come back in parts. */
static enum wf_status split_all(struct maker *m, struct wf_error *error)
{
    uint32_t kept = 0;
    enum wf_status status = WF_OK;
    if (m->build.failed) {
        return WF_OK; /* wf_build_end says so */
    }
    for (uint32_t i = 0; i < m->own->piece_count; i++) {
        if (list_of(m, &m->own->pieces[i], WF_PIECE_DATA) == WF_NONE) {
            m->build.layout->pieces[kept++] = m->own->pieces[i];
        }
    }
    m->build.layout->piece_count = kept;
    for (uint32_t i = 0; i < m->own->piece_count && status == WF_OK; i++) {
        uint32_t list = list_of(m, &m->own->pieces[i], WF_PIECE_DATA);
        status = list != WF_NONE ? split(m, i, list, error) : WF_OK;
    }
    return status;
}

/* Which planned pieces the rectangles' codes and scales go to. */
static enum wf_status find_groups(struct maker *m, const struct wf_layout *planned,
                                  struct wf_error *error)
{
    struct wf_assemble *a = m->assemble;
    list_pieces(m, planned, WF_PIECE_MADE);
    for (uint32_t r = 0; r < a->rect_count && !m->build.failed;) {
        uint32_t pair = a->rects[r].pair, before = a->group_count;
        const uint32_t *first = &m->first[2 * pair];
        uint32_t groups = group_pieces(m, pair, planned);
        for (uint32_t g = 0; g < groups || g == 0; g++) { /* one without pieces, rather than none */
            if (!room(m, &a->groups, a->group_count, &m->group_room, sizeof *a->groups)) {
                break;
            }
            struct assemble_group *group = &a->groups[a->group_count++];
            group->first = a->piece_count;
            group->codes = take_pieces(m, first[0], first[1], g, false);
            group->scales = take_pieces(m, first[1], first[2], g, g + 1 >= groups);
        }
        for (; r < a->rect_count && a->rects[r].pair == pair; r++) {
            uint32_t group = before + a->rects[r].group;
            a->rects[r].group = group < a->group_count ? group : a->group_count - 1;
        }
    }
    return m->build.failed ? wf_error_set(error, WF_NO_MEMORY, "no memory for a layout") : WF_OK;
}

static enum wf_status derive(struct maker *m, struct wf_layout **planned_out,
                             struct wf_error *error)
{
    if (!list_pieces(m, m->own, WF_PIECE_DATA)) {
        return m->build.failed ? wf_error_set(error, WF_NO_MEMORY, "no memory for a layout")
                               : WF_OK;
    }
    enum wf_status status = check_types(m, error);
    wf_build_from(&m->build, m->own);
    status = status == WF_OK ? split_all(m, error) : status;
    for (uint32_t p = 0; status == WF_OK && p < m->model->variants->pair_count; p++) {
        if (m->first[2 * p + 2] > m->first[2 * p] && !m->build.failed) {
            add_pair(m, p);
        }
    }
    bool nothing = status == WF_OK && !m->build.failed && m->assemble->rect_count == 0;
    struct wf_layout *planned = NULL;
    status = wf_build_end(&m->build, status, &planned, error);
    if (status == WF_OK && !nothing) {
        status = find_groups(m, planned, error);
    }
    if (status != WF_OK || nothing) { /* blocks that are cut may be other ranks' */
        wf_layout_free(planned);
        return status;
    }
    *planned_out = planned;
    return WF_OK;
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
