/* assemble_cuts.c - which blocks of which matrices are whole in no source. */
#include <stdlib.h>
#include <string.h>

#include "models/assemble_private.h"
#include "models/families/family.h"
#include "models/strips.h"

enum {
    REGIONS_MAX = 64, /* of one matrix */
};

/* A piece of a source that shows codes. */
struct shown_codes {
    uint32_t source, piece;
};

/* Which blocks of a matrix are cut: a byte for each, row-major. */
struct grid {
    uint8_t *cut;
    struct assemble_block block;
    uint64_t high, wide, room;
};

/* What is cut of the experts that have a row of the family; NONE: nothing. */
struct role {
    enum wf_dtype dtype;
    struct grid grid;
};

struct finder {
    const struct wf_model *model;
    const struct wf_variants *variants;
    const struct wf_layout **sources; /* different ones */
    uint32_t source_count;
    uint32_t *pair_at;         /* of each parameter of the plain view, or WF_NONE */
    uint32_t *held;            /* by pair: bits of the dtypes in which sources hold the matrix */
    uint32_t *first;           /* by pair: where its codes begin in `codes` */
    struct shown_codes *codes; /* pair by pair */
    struct wf_strips strips;
    struct grid grid; /* of the pair at hand */
    uint32_t region_count, region_room;
    bool no_memory;
};

_Static_assert(WF_DTYPE_COUNT <= 32, "a bit for each dtype");

static int by_hash(const void *left, const void *right)
{
    const struct wf_layout *a = *(const struct wf_layout *const *)left;
    const struct wf_layout *b = *(const struct wf_layout *const *)right;
    return memcmp(&a->hash, &b->hash, sizeof a->hash);
}

/* Ranks with copies of the same have equal layouts. */
static void keep_different(struct finder *f, const struct wf_layout *const *sources, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        f->sources[i] = sources[i];
    }
    qsort(f->sources, count, sizeof *f->sources, by_hash);
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || !wf_hash_equal(f->sources[kept - 1]->hash, f->sources[i]->hash)) {
            f->sources[kept++] = f->sources[i];
        }
    }
    f->source_count = kept;
}

static bool find_room(struct finder *f, uint32_t source_count)
{
    const struct wf_variants *v = f->variants;
    f->sources = calloc((size_t)source_count + 1, sizeof *f->sources);
    f->pair_at = malloc(((size_t)v->plain_count + 1) * sizeof *f->pair_at);
    f->held = calloc((size_t)v->pair_count + 1, sizeof *f->held);
    f->first = calloc((size_t)v->pair_count + 2, sizeof *f->first);
    if (f->sources == NULL || f->pair_at == NULL || f->held == NULL || f->first == NULL) {
        return false;
    }
    memset(f->pair_at, 0xff, (size_t)v->plain_count * sizeof *f->pair_at);
    for (uint32_t p = 0; p < v->pair_count; p++) {
        f->pair_at[v->pairs[p].matrix] = p;
    }
    return true;
}

/* The pair of which the piece shows codes, or WF_NONE. */
static uint32_t pair_of_codes(const struct finder *f, const struct wf_piece *piece)
{
    const struct wf_variants *v = f->variants;
    if (piece->kind != WF_PIECE_DATA || piece->param < v->plain_count) {
        return WF_NONE;
    }
    uint32_t pair = v->pair_of[piece->param - v->plain_count];
    return v->pairs[pair].codes == piece->param ? pair : WF_NONE;
}

static void note_matrix(struct finder *f, const struct wf_layout *source,
                        const struct wf_piece *piece)
{
    bool plain = piece->kind == WF_PIECE_DATA && piece->value_rule == WF_VALUE_COPY &&
                 piece->param < f->variants->plain_count;
    uint32_t pair = plain ? f->pair_at[piece->param] : WF_NONE;
    if (pair != WF_NONE) {
        f->held[pair] |= 1U << source->tensors[piece->tensor].dtype;
    }
}

/* Counted two places on, summed, then moved one on while they are dealt out. */
static bool group_codes(struct finder *f)
{
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t s = 0; s < f->source_count; s++) {
            const struct wf_layout *source = f->sources[s];
            for (uint32_t i = 0; i < source->piece_count; i++) {
                uint32_t pair = pair_of_codes(f, &source->pieces[i]);
                if (pass == 0) {
                    note_matrix(f, source, &source->pieces[i]);
                    f->first[pair != WF_NONE ? pair + 2 : 0] += pair != WF_NONE;
                } else if (pair != WF_NONE) {
                    f->codes[f->first[pair + 1]++] = (struct shown_codes){s, i};
                }
            }
        }
        if (pass == 0) {
            for (uint32_t p = 0; p < f->variants->pair_count; p++) {
                f->first[p + 2] += f->first[p + 1];
            }
            f->codes = calloc((size_t)f->first[f->variants->pair_count + 1] + 1, sizeof *f->codes);
            if (f->codes == NULL) {
                return false;
            }
        }
    }
    return true;
}

/* --- blocks ------------------------------------------------------------------------------------
 */

/* Room for a matrix's blocks; all of them `value`. */
static bool begin_grid(struct grid *grid, enum wf_quant rule, const struct wf_param *matrix,
                       uint8_t value)
{
    grid->block = wf_assemble_block(rule, matrix->shape[1]);
    uint64_t high = wf_assemble_blocks(matrix->shape[0], grid->block.rows),
             wide = wf_assemble_blocks(matrix->shape[1], grid->block.columns);
    if (high * wide > grid->room) {
        free(grid->cut);
        grid->cut = malloc(high * wide);
        grid->room = grid->cut != NULL ? high * wide : 0;
    }
    grid->high = high;
    grid->wide = wide;
    if (grid->cut != NULL) {
        memset(grid->cut, value, high * wide);
    }
    return grid->cut != NULL;
}

/* The whole blocks of a strip are not cut. */
static void mark_whole(struct grid *grid, const struct wf_param *matrix,
                       const struct wf_strip *strip)
{
    const struct assemble_block block = grid->block;
    uint64_t row = wf_assemble_blocks(strip->rows[0], block.rows),
             column = wf_assemble_blocks(strip->columns[0], block.columns);
    uint64_t row_end =
        strip->rows[1] == matrix->shape[0] ? grid->high : strip->rows[1] / block.rows;
    uint64_t column_end =
        strip->columns[1] == matrix->shape[1] ? grid->wide : strip->columns[1] / block.columns;
    for (; row < row_end && column < column_end; row++) {
        memset(grid->cut + row * grid->wide + column, 0, column_end - column);
    }
}

/* Which blocks of a pair's matrix have no codes in any source. False: none; or no memory. */
static bool find_blocks(struct finder *f, uint32_t pair, struct grid *grid)
{
    const struct wf_param *matrix = &f->model->params[f->variants->pairs[pair].matrix];
    bool few = true;
    wf_strips_begin(&f->strips, matrix->shape[1]);
    for (uint32_t i = f->first[pair]; i < f->first[pair + 1] && few; i++) {
        struct wf_nest nest = wf_layout_nest(f->sources[f->codes[i].source], f->codes[i].piece);
        few = wf_strips_add_nest(&f->strips, &nest);
    }
    if (!begin_grid(grid, f->variants->rule, matrix, 1)) {
        f->no_memory = true;
        return false;
    }
    if (few) {
        wf_strips_merge(&f->strips);
        for (uint32_t i = 0; i < f->strips.count; i++) {
            mark_whole(grid, matrix, &f->strips.at[i]);
        }
    }
    return memchr(grid->cut, 1, grid->high * grid->wide) != NULL;
}

static void add_region(struct finder *f, struct wf_cuts *cuts, const struct wf_cut_region *region)
{
    if (f->region_count == f->region_room) {
        uint32_t wanted = 2 * f->region_room + 64;
        struct wf_cut_region *grown = reallocarray(cuts->regions, wanted, sizeof *grown);
        if (grown == NULL) {
            f->no_memory = true;
            return;
        }
        cuts->regions = grown;
        f->region_room = wanted;
    }
    cuts->regions[f->region_count++] = *region;
}

/* Rows of blocks that are alike are one band, what is alike along it one region. */
static void add_regions(struct finder *f, struct wf_cuts *cuts, const struct grid *grid,
                        const struct wf_param *matrix)
{
    uint32_t before = f->region_count;
    for (uint64_t row = 0, end; row < grid->high; row = end) {
        const uint8_t *band = grid->cut + row * grid->wide;
        for (end = row + 1;
             end < grid->high && memcmp(grid->cut + end * grid->wide, band, grid->wide) == 0;
             end++) {
        }
        for (uint64_t column = 0, last; column < grid->wide; column = last) {
            for (last = column + 1; last < grid->wide && band[last] == band[column]; last++) {
            }
            struct wf_cut_region region = {
                {row * grid->block.rows, end * grid->block.rows},
                {column * grid->block.columns, last * grid->block.columns},
                band[column] != 0};
            region.rows[1] = end == grid->high ? matrix->shape[0] : region.rows[1];
            region.columns[1] = last == grid->wide ? matrix->shape[1] : region.columns[1];
            add_region(f, cuts, &region);
        }
    }
    if (f->region_count - before > REGIONS_MAX) { /* rather all of the matrix than so many parts */
        f->region_count = before;
        add_region(f, cuts,
                   &(struct wf_cut_region){{0, matrix->shape[0]}, {0, matrix->shape[1]}, true});
    }
}

/* --- matrices ----------------------------------------------------------------------------------
 */

/* Of several dtypes f32, in which none of them loses anything. */
static enum wf_dtype dtype_for(uint32_t held)
{
    static const enum wf_dtype quantised[] = {WF_DTYPE_BF16, WF_DTYPE_F16, WF_DTYPE_F32};
    enum wf_dtype found = WF_DTYPE_NONE;
    for (int i = 0; i < 3; i++) {
        if ((held & 1U << quantised[i]) != 0) {
            found = found == WF_DTYPE_NONE ? quantised[i] : WF_DTYPE_F32;
        }
    }
    return found;
}

static enum wf_dtype dtype_of(const struct finder *f, uint32_t pair)
{
    bool matrix = f->model->params[f->variants->pairs[pair].matrix].ndim == 2;
    return matrix ? dtype_for(f->held[pair]) : WF_DTYPE_NONE;
}

/* What is cut of one expert is cut of all: adds a pair to what is known of its row. */
static void add_to_role(struct finder *f, uint32_t pair, struct role *role)
{
    const struct wf_param *matrix = &f->model->params[f->variants->pairs[pair].matrix];
    enum wf_dtype dtype = dtype_of(f, pair);
    if (matrix->expert == WF_NONE || dtype == WF_DTYPE_NONE || !find_blocks(f, pair, &f->grid)) {
        return;
    }
    if (role->dtype == WF_DTYPE_NONE && !begin_grid(&role->grid, f->variants->rule, matrix, 0)) {
        f->no_memory = true;
        return;
    }
    role->dtype = role->dtype == WF_DTYPE_NONE || role->dtype == dtype ? dtype : WF_DTYPE_F32;
    for (uint64_t i = 0; i < f->grid.high * f->grid.wide; i++) {
        role->grid.cut[i] |= f->grid.cut[i];
    }
}

static void add_pair(struct finder *f, struct wf_cuts *cuts, uint32_t pair, const struct role *role)
{
    const struct wf_param *matrix = &f->model->params[f->variants->pairs[pair].matrix];
    cuts->first[pair] = f->region_count;
    if (matrix->expert != WF_NONE) {
        cuts->dtypes[pair] = role->dtype;
    } else if (dtype_of(f, pair) != WF_DTYPE_NONE && find_blocks(f, pair, &f->grid)) {
        cuts->dtypes[pair] = dtype_of(f, pair);
    }
    if (cuts->dtypes[pair] != WF_DTYPE_NONE) {
        cuts->count++;
        add_regions(f, cuts, matrix->expert != WF_NONE ? &role->grid : &f->grid, matrix);
    }
}

/* Pairs from `first` on, up to the result, belong to one member of a stack. `roles` has an entry
 * for each row of the family. */
static uint32_t add_member(struct finder *f, struct wf_cuts *cuts, uint32_t first,
                           struct role *roles)
{
    const struct wf_variants *v = f->variants;
    const struct wf_param *params = f->model->params;
    const struct wf_param *at = &params[v->pairs[first].matrix];
    uint32_t end = first;
    for (size_t i = 0; i < f->model->family->row_count; i++) {
        roles[i].dtype = WF_DTYPE_NONE;
    }
    for (; end < v->pair_count && params[v->pairs[end].matrix].stack == at->stack &&
           params[v->pairs[end].matrix].index == at->index && !f->no_memory;
         end++) {
        add_to_role(f, end, &roles[params[v->pairs[end].matrix].row]);
    }
    for (uint32_t p = first; p < end && !f->no_memory; p++) {
        add_pair(f, cuts, p, &roles[params[v->pairs[p].matrix].row]);
    }
    return end;
}

static bool find(struct finder *f, struct wf_cuts *cuts)
{
    size_t rows = f->model->family->row_count;
    struct role *roles = calloc(rows + 1, sizeof *roles);
    f->no_memory = roles == NULL;
    for (uint32_t p = 0; p < f->variants->pair_count && !f->no_memory;) {
        p = add_member(f, cuts, p, roles);
    }
    cuts->first[f->variants->pair_count] = f->region_count;
    for (size_t i = 0; i < rows && roles != NULL; i++) {
        free(roles[i].grid.cut);
    }
    free(roles);
    return !f->no_memory && !f->strips.no_memory;
}

enum wf_status wf_cuts_find(const struct wf_model *model, const struct wf_layout *const *sources,
                            uint32_t source_count, struct wf_cuts **cuts_out,
                            struct wf_error *error)
{
    if (model->variants == NULL || source_count == 0) {
        *cuts_out = NULL;
        return WF_OK;
    }
    struct finder f = {.model = model, .variants = model->variants};
    struct wf_cuts *cuts = calloc(1, sizeof *cuts);
    bool good = cuts != NULL && find_room(&f, source_count);
    if (good) {
        cuts->dtypes = calloc((size_t)f.variants->pair_count + 1, sizeof *cuts->dtypes);
        cuts->first = calloc((size_t)f.variants->pair_count + 2, sizeof *cuts->first);
        keep_different(&f, sources, source_count);
        good = cuts->dtypes != NULL && cuts->first != NULL && group_codes(&f) && find(&f, cuts);
    }
    free(f.sources);
    free(f.pair_at);
    free(f.held);
    free(f.first);
    free(f.codes);
    free(f.strips.at);
    free(f.grid.cut);
    if (!good) {
        wf_cuts_free(cuts);
        return wf_error_set(error, WF_NO_MEMORY, "no memory to find the blocks that are cut");
    }
    if (cuts->count == 0) {
        wf_cuts_free(cuts);
        cuts = NULL;
    }
    *cuts_out = cuts;
    return WF_OK;
}

void wf_cuts_free(struct wf_cuts *cuts)
{
    if (cuts != NULL) {
        free(cuts->dtypes);
        free(cuts->regions);
        free(cuts->first);
        free(cuts);
    }
}
