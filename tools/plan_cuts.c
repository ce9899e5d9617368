/* plan_cuts.c - why engines quantise a matrix: the block that no train rank has whole. */
#include "tools/plan_cuts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/quant.h"
#include "models/variant.h"

enum { NAMED_MAX = 4 };

/* What train ranks show of a matrix; of ranks with equal layouts the first. */
struct shown {
    uint32_t rank;
    struct wf_nest nest;
};

struct matrix {
    const struct wf_param *param;
    struct shown *shown;
    uint32_t count;
};

struct block {
    uint64_t row, rows, column, columns;
    struct wf_nest nest;
};

static bool is_first_of_layout(const struct wf_plan_job *job, uint32_t rank)
{
    uint32_t first = 0;
    while (job->members[first].layout != job->members[rank].layout) {
        first++;
    }
    return first == rank;
}

static void look(const struct wf_plan_job *job, uint32_t param, struct matrix *matrix)
{
    uint32_t room = 0;
    *matrix = (struct matrix){.param = &job->model->params[param]};
    for (uint32_t r = 0; r < job->train_ranks; r++) {
        const struct wf_layout *layout = job->members[r].layout;
        bool first = is_first_of_layout(job, r);
        for (uint32_t i = 0; first && i < layout->piece_count; i++) {
            const struct wf_piece *piece = &layout->pieces[i];
            if (piece->kind != WF_PIECE_DATA || piece->param != param) {
                continue;
            }
            if (matrix->count == room) {
                room = 2 * room + 16;
                matrix->shown = reallocarray(matrix->shown, room, sizeof *matrix->shown);
                WF_ASSERT(matrix->shown != NULL);
            }
            matrix->shown[matrix->count++] = (struct shown){r, wf_layout_nest(layout, i)};
        }
    }
}

static bool add_elements(void *user, const struct wf_box *box)
{
    *(uint64_t *)user += box->elements;
    return true;
}

/* How many of the block's elements the rank at shown[*next] has; moves on to the next rank. */
static uint64_t held_by(const struct matrix *matrix, const struct block *block, uint32_t *next)
{
    uint64_t elements = 0;
    uint32_t rank = matrix->shown[*next].rank;
    for (; *next < matrix->count && matrix->shown[*next].rank == rank; ++*next) {
        wf_nest_intersect(&matrix->shown[*next].nest, &block->nest, add_elements, &elements, NULL);
    }
    return elements;
}

static bool is_cut(const struct matrix *matrix, const struct block *block)
{
    for (uint32_t i = 0; i < matrix->count;) {
        if (held_by(matrix, block, &i) >= block->rows * block->columns) {
            return false;
        }
    }
    return true;
}

static bool find_cut(const struct matrix *matrix, enum wf_quant rule, struct block *out)
{
    uint64_t rows = matrix->param->shape[0], columns = matrix->param->shape[1];
    uint32_t block_rows, block_columns;
    wf_quant_block(rule, &block_rows, &block_columns);
    uint64_t high = block_rows > 0 ? block_rows : rows;
    uint64_t wide = block_columns > 0 ? block_columns : columns;
    for (uint64_t row = 0; row < rows; row += high) {
        for (uint64_t column = 0; column < columns; column += wide) {
            *out = (struct block){.row = row,
                                  .rows = rows - row < high ? rows - row : high,
                                  .column = column,
                                  .columns = columns - column < wide ? columns - column : wide};
            out->nest = (struct wf_nest){
                .param_first = row * columns + column,
                .elem_bytes = 1,
                .axis_count = 2,
                .axes = {{out->rows, columns, (int64_t)out->columns}, {out->columns, 1, 1}}};
            if (is_cut(matrix, out)) {
                return true;
            }
        }
    }
    return false;
}

static void name_block(const struct matrix *matrix, const struct block *block,
                       char text_out[WF_PLAN_CUTS_TEXT])
{
    uint32_t named = 0;
    int used = snprintf(text_out, WF_PLAN_CUTS_TEXT,
                        "%.160s: rows %" PRIu64 "..%" PRIu64 ", columns %" PRIu64 "..%" PRIu64
                        " are cut between train ranks",
                        matrix->param->name, block->row, block->row + block->rows - 1,
                        block->column, block->column + block->columns - 1);
    for (uint32_t i = 0; i < matrix->count && named <= NAMED_MAX;) {
        uint32_t rank = matrix->shown[i].rank;
        if (held_by(matrix, block, &i) == 0) {
            continue;
        }
        size_t room = WF_PLAN_CUTS_TEXT - (size_t)used;
        used += named++ == NAMED_MAX
                    ? snprintf(text_out + used, room, ", ...")
                    : snprintf(text_out + used, room, "%s%" PRIu32, named > 1 ? ", " : " ", rank);
    }
}

void wf_plan_cuts_first(const struct wf_plan_job *job, char text_out[WF_PLAN_CUTS_TEXT])
{
    const struct wf_variants *v = job->model->variants;
    bool found = false;
    for (uint32_t p = 0; p < v->pair_count && !found; p++) {
        struct matrix matrix = {0};
        struct block block;
        if (job->cuts->dtypes[p] != WF_DTYPE_NONE) {
            look(job, v->pairs[p].matrix, &matrix);
            found = find_cut(&matrix, v->rule, &block);
        }
        if (found) {
            name_block(&matrix, &block, text_out);
        }
        free(matrix.shown);
    }
    WF_ASSERT(found); /* or nothing would be cut */
}

uint64_t wf_plan_cuts_bytes(const struct wf_plan_job *job)
{
    uint64_t most = 0;
    for (uint32_t r = 0; r < job->infer_ranks; r++) {
        most = job->assembled_bytes[r] > most ? job->assembled_bytes[r] : most;
    }
    return most;
}

bool wf_plan_cuts_explain(FILE *out, const struct wf_plan_job *job, uint32_t param)
{
    const struct wf_variants *v = job->model->variants;
    const struct wf_variant_pair *pair = wf_model_pair(job->model, param);
    if (pair == NULL || job->cuts == NULL || job->cuts->dtypes[pair - v->pairs] == WF_DTYPE_NONE) {
        return false;
    }
    struct matrix matrix;
    struct block block;
    char text[WF_PLAN_CUTS_TEXT] = "other experts of its layer are cut, and may take its slots";
    look(job, pair->matrix, &matrix);
    if (find_cut(&matrix, v->rule, &block)) {
        name_block(&matrix, &block, text);
    }
    free(matrix.shown);
    fprintf(out,
            "quantised by engines in fp8 with rule %s: blocks that no train rank has whole; they "
            "get those in %s and make codes and scales of them (%s)\n",
            wf_quant_name(v->rule), wf_dtype_name(job->cuts->dtypes[pair - v->pairs]), text);
    return true;
}
