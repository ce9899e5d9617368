/* plan_blocks.c - says why nobody has the codes of a block: between whom it is cut. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/plan_parts.h"
#include "models/variant.h"

enum { NAMED_MAX = 4, NAMES_TEXT = 96 };

/* A block of a matrix. */
struct block {
    uint64_t row, rows, column, columns;
    struct wf_nest nest;
};

static uint64_t part(uint64_t first, uint64_t block, uint64_t size)
{
    return size - first < block ? size - first : block;
}

/* The block that the first missing code or scale is of. */
static struct block find_block(const struct wf_model *model, const struct wf_variant_pair *pair,
                               uint32_t param, uint64_t element)
{
    const struct wf_param *matrix = &model->params[pair->matrix];
    uint32_t high, wide;
    wf_quant_block(model->variants->rule, &high, &wide);
    uint64_t rows = high > 0 ? high : matrix->shape[0];
    uint64_t columns = wide > 0 ? wide : matrix->shape[1];
    uint64_t across = (matrix->shape[1] + columns - 1) / columns;
    struct block block;
    if (param == pair->scales) {
        block.row = element / across * rows;
        block.column = element % across * columns;
    } else {
        block.row = element / matrix->shape[1] / rows * rows;
        block.column = element % matrix->shape[1] / columns * columns;
    }
    block.rows = part(block.row, rows, matrix->shape[0]);
    block.columns = part(block.column, columns, matrix->shape[1]);
    block.nest = (struct wf_nest){
        .param_first = block.row * matrix->shape[1] + block.column,
        .elem_bytes = 1,
        .axis_count = 2,
        .axes = {{block.rows, matrix->shape[1], (int64_t)block.columns}, {block.columns, 1, 1}}};
    return block;
}

static bool add_elements(void *user, const struct wf_box *box)
{
    *(uint64_t *)user += box->elements;
    return true;
}

/* How many of the block's elements a source class shows. */
static uint64_t held_by(const struct wf_plan_build *build, uint32_t matrix, uint32_t class,
                        const struct block *block)
{
    const struct wf_plan_index *index = &build->src_index;
    uint64_t elements = 0;
    for (uint32_t i = index->first[matrix]; i < index->first[matrix + 1]; i++) {
        if (index->shown[i].class == class) {
            struct wf_nest nest = wf_layout_nest(build->src[class].layout, index->shown[i].piece);
            wf_nest_intersect(&nest, &block->nest, add_elements, &elements, NULL);
        }
    }
    return elements;
}

enum wf_status wf_plan_refuse_block(const struct wf_plan_build *build, uint32_t param,
                                    uint64_t element, uint32_t dst_rank, struct wf_error *error)
{
    const struct wf_model *model = build->input->model;
    const struct wf_variant_pair *pair = wf_model_pair(model, param);
    struct block block = find_block(model, pair, param, element);
    char names[NAMES_TEXT] = "", where[NAMES_TEXT];
    uint32_t holders = 0;
    bool whole = false;
    for (uint32_t c = 0; c < build->src_count; c++) {
        uint64_t held = held_by(build, pair->matrix, c, &block);
        size_t used = strlen(names);
        if (held > 0 && holders < NAMED_MAX) {
            snprintf(names + used, sizeof names - used, "%s%" PRIu32, holders > 0 ? ", " : "",
                     build->src[c].ranks[0]);
        } else if (held > 0 && holders == NAMED_MAX) {
            snprintf(names + used, sizeof names - used, ", ...");
        }
        holders += held > 0;
        whole = whole || held == block.rows * block.columns;
    }
    snprintf(where, sizeof where, "rows %" PRIu64 "..%" PRIu64 ", columns %" PRIu64 "..%" PRIu64,
             block.row, block.row + block.rows - 1, block.column, block.column + block.columns - 1);
    const char *rule = wf_quant_name(model->variants->rule);
    if (holders == 0 || whole) {
        return wf_error_set(
            error, WF_UNSUPPORTED,
            "parameter %s: infer rank %" PRIu32 " needs it as codes and scales (%s), and none of "
            "the sources has those of %s%s: train ranks make them of tensors in f32, f16 or bf16; "
            "in a fill from a replica or a folder nothing is made: let the trainers fill it",
            model->params[pair->matrix].name, dst_rank, rule, where,
            whole ? ", though one has these values" : "");
    }
    return wf_error_set(
        error, WF_UNSUPPORTED,
        "parameter %s: infer rank %" PRIu32 " needs it as codes and scales (%s), made by whoever "
        "holds a whole block; the block of %s is cut between train ranks %s: give the trainer "
        "sizes that cut at whole blocks (another tp, etp or dp), or the engine quant=none",
        model->params[pair->matrix].name, dst_rank, rule, where, names);
}
