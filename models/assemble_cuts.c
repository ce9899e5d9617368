/* assemble_cuts.c - of which matrices some block is whole in no source. */
#include <stdlib.h>
#include <string.h>

#include "models/assemble.h"
#include "models/families/family.h"
#include "models/strips.h"

/* A piece of a source that shows codes. */
struct shown_codes {
    uint32_t source, piece;
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

/* Whether the sources' codes of a pair are all there are. */
static bool has_codes(struct finder *f, uint32_t pair)
{
    const struct wf_param *codes = &f->model->params[f->variants->pairs[pair].codes];
    wf_strips_begin(&f->strips, codes->shape[1]);
    for (uint32_t i = f->first[pair]; i < f->first[pair + 1]; i++) {
        struct wf_nest nest = wf_layout_nest(f->sources[f->codes[i].source], f->codes[i].piece);
        if (!wf_strips_add_nest(&f->strips, &nest)) {
            return false;
        }
    }
    wf_strips_merge(&f->strips);
    const struct wf_strip *all = f->strips.at;
    return f->strips.count == 1 && all->rows[0] == 0 && all->rows[1] == codes->shape[0] &&
           all->columns[0] == 0 && all->columns[1] == codes->shape[1];
}

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

/* Pairs from `first` on, up to the result, belong to one member of a stack; what is cut of one
 * expert is cut of all. `rows` has an entry for each row of the family. */
static uint32_t level_experts(const struct finder *f, struct wf_cuts *cuts, uint32_t first,
                              enum wf_dtype *rows)
{
    const struct wf_variants *v = f->variants;
    const struct wf_param *params = f->model->params;
    const struct wf_param *at = &params[v->pairs[first].matrix];
    uint32_t end = first;
    memset(rows, 0, f->model->family->row_count * sizeof *rows);
    for (; end < v->pair_count && params[v->pairs[end].matrix].stack == at->stack &&
           params[v->pairs[end].matrix].index == at->index;
         end++) {
        const struct wf_param *matrix = &params[v->pairs[end].matrix];
        enum wf_dtype *row = &rows[matrix->row];
        if (matrix->expert != WF_NONE && cuts->dtypes[end] != WF_DTYPE_NONE) {
            bool alike = *row == WF_DTYPE_NONE || *row == cuts->dtypes[end];
            *row = alike ? cuts->dtypes[end] : WF_DTYPE_F32;
        }
    }
    for (uint32_t p = first; p < end; p++) {
        const struct wf_param *matrix = &params[v->pairs[p].matrix];
        if (matrix->expert != WF_NONE && rows[matrix->row] != WF_DTYPE_NONE) {
            cuts->dtypes[p] = rows[matrix->row];
        }
    }
    return end;
}

static bool find(struct finder *f, struct wf_cuts *cuts)
{
    const struct wf_variants *v = f->variants;
    for (uint32_t p = 0; p < v->pair_count; p++) {
        bool matrix = f->model->params[v->pairs[p].matrix].ndim == 2;
        enum wf_dtype dtype = matrix ? dtype_for(f->held[p]) : WF_DTYPE_NONE;
        if (dtype != WF_DTYPE_NONE && !has_codes(f, p)) {
            cuts->dtypes[p] = dtype;
        }
    }
    enum wf_dtype *rows = calloc((size_t)f->model->family->row_count + 1, sizeof *rows);
    if (rows == NULL || f->strips.no_memory) {
        free(rows);
        return false;
    }
    for (uint32_t p = 0; p < v->pair_count;) {
        p = level_experts(f, cuts, p, rows);
    }
    for (uint32_t p = 0; p < v->pair_count; p++) {
        cuts->count += cuts->dtypes[p] != WF_DTYPE_NONE;
    }
    free(rows);
    return true;
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
        keep_different(&f, sources, source_count);
        good = cuts->dtypes != NULL && group_codes(&f) && find(&f, cuts);
    }
    free(f.sources);
    free(f.pair_at);
    free(f.held);
    free(f.first);
    free(f.codes);
    free(f.strips.at);
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
        free(cuts);
    }
}
