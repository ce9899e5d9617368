/* test_verify_quantised.c - the element check of engines in fp8, against memory that is filled by
 * their layouts with what models/quant.h makes of whole matrices: neither knows the other. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "models/copy.h"
#include "models/engines/engine.h"
#include "models/layout.h"
#include "models/quant.h"
#include "models/variant.h"
#include "tests/tools/folder.h"
#include "tools/check/step.h"
#include "tools/check/verify.h"
#include "tools/files/checkpoint.h"
#include "tools/files/known_values.h"

static const struct {
    const char *model, *spec;
    enum wf_quant rule;
} rows[] = {
    {"blocks-qwen3-moe.json", "vllm:tp=2,quant=vllm", WF_QUANT_VLLM},
    {"blocks-qwen3-moe.json", "vllm:tp=2,ep=2,quant=slime", WF_QUANT_SLIME},
    {"blocks-qwen3-moe.json", "sglang:tp=2,quant=vllm_ue8m0", WF_QUANT_VLLM_UE8M0},
    {"blocks-deepseek-v3.json", "vllm:tp=2,quant=deepseek", WF_QUANT_DEEPSEEK},
    {"blocks-deepseek-v3.json", "vllm:tp=2,ep=2,quant=transformers", WF_QUANT_TRANSFORMERS},
    {"blocks-deepseek-v3.json", "sglang:tp=2,quant=awex", WF_QUANT_AWEX},
    {"blocks-qwen3-moe.json", "vllm:tp=2,quant=channel_div", WF_QUANT_CHANNEL_DIV},
    {"blocks-qwen3-moe.json", "sglang:tp=2,ep=2,quant=channel_mul", WF_QUANT_CHANNEL_MUL},
};

struct world {
    struct wf_model *config, *model;
    struct wf_recipe recipe;
    struct wf_checkpoint *checkpoint;
    char folder[FOLDER_PATH_MAX];
    uint64_t steps;
    uint8_t **params; /* by the job's index: whole, dense, after `steps`; owned */
};

static void make_param(struct world *world, uint32_t param)
{
    const struct wf_param *p = &world->model->params[param];
    uint8_t *bytes = malloc(p->elements * wf_dtype_bytes(p->dtype) + 1);
    wf_known_values_fill(p->name, 0, p->elements, p->dtype, bytes);
    wf_step_apply(bytes, p->dtype, p->elements, world->steps);
    world->params[param] = bytes;
}

static void make_pair(struct world *world, const struct wf_variant_pair *pair)
{
    const struct wf_param *matrix = &world->model->params[pair->matrix];
    const struct wf_param *scales = &world->model->params[pair->scales];
    uint64_t columns = matrix->shape[1];
    struct wf_quant_matrix whole = {.values = world->params[pair->matrix],
                                    .dtype = matrix->dtype,
                                    .rows = matrix->shape[0],
                                    .columns = columns,
                                    .row_bytes = columns * wf_dtype_bytes(matrix->dtype)};
    float *out = malloc(scales->elements * sizeof *out);
    world->params[pair->codes] = malloc(matrix->elements);
    world->params[pair->scales] = (uint8_t *)out;
    wf_quantise(world->model->variants->rule, &whole, world->params[pair->codes], columns, out,
                scales->shape[1], true);
}

static void open_world(struct world *world, const char *model, const char *spec, uint64_t steps)
{
    struct wf_error error = {0};
    const struct wf_checkpoint_options options = {.extras_refuse = true};
    memset(world, 0, sizeof *world);
    world->steps = steps;
    world->config = folder_model(model);
    cr_assert_eq(wf_recipe_parse(spec, NULL, &world->recipe, &error), WF_OK, "%s", error.text);
    const struct wf_recipe *recipes[] = {&world->recipe};
    cr_assert_eq(wf_model_for_job(world->config, recipes, 1, &world->model, &error), WF_OK, "%s",
                 error.text);
    cr_assert_eq(wf_recipe_parse(spec, world->model, &world->recipe, &error), WF_OK, "%s",
                 error.text);
    folder_make(world->folder);
    folder_write_weights(world->folder, "model.safetensors", world->config, 0,
                         world->config->param_count, NULL, 0);
    cr_assert_eq(
        wf_checkpoint_open(world->folder, world->config, &options, &world->checkpoint, &error),
        WF_OK, "%s", error.text);
    const struct wf_variants *variants = world->model->variants;
    world->params = calloc(world->model->param_count, sizeof *world->params);
    for (uint32_t i = 0; i < variants->plain_count; i++) {
        make_param(world, i);
    }
    for (uint32_t i = 0; i < variants->pair_count; i++) {
        make_pair(world, &variants->pairs[i]);
    }
}

static void close_world(struct world *world)
{
    for (uint32_t i = 0; i < world->model->param_count; i++) {
        free(world->params[i]);
    }
    free(world->params);
    wf_checkpoint_free(world->checkpoint);
    folder_remove(world->folder);
    wf_model_free(world->model);
    wf_model_free(world->config);
}

/* --- a rank's memory ---------------------------------------------------------------------------
 */

struct filling {
    const uint8_t *from;
    uint8_t *to;
    enum wf_dtype from_dtype, to_dtype;
};

static bool copy_box(void *user, const struct wf_box *box)
{
    const struct filling *f = user;
    wf_copy_box(box, f->from, f->from_dtype, f->to, f->to_dtype,
                (struct wf_copy_part){0, box->elements});
    return true;
}

struct rank {
    struct wf_layout *layout;
    uint8_t **memory; /* by tensor; owned */
    struct wf_verify *verify;
};

static void open_rank(const struct world *world, uint32_t number, struct rank *rank)
{
    struct wf_error error = {0};
    cr_assert_eq(wf_layout_derive(world->model, &world->recipe, number, &rank->layout, &error),
                 WF_OK, "%s", error.text);
    const struct wf_layout *layout = rank->layout;
    rank->memory = calloc(layout->tensor_count, sizeof *rank->memory);
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        rank->memory[t] = calloc(layout->tensors[t].bytes + 1, 1);
    }
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        const struct wf_param *param = &world->model->params[piece->param];
        if (piece->kind != WF_PIECE_DATA) {
            continue;
        }
        struct filling filling = {world->params[piece->param], rank->memory[piece->tensor],
                                  param->dtype, layout->tensors[piece->tensor].dtype};
        uint32_t each = (uint32_t)wf_dtype_bytes(param->dtype);
        const struct wf_nest dense = {
            .elem_bytes = each, .axis_count = 1, .axes = {{param->elements, 1, each}}};
        const struct wf_nest shown = wf_layout_nest(layout, i);
        cr_assert_eq(wf_nest_intersect(&dense, &shown, copy_box, &filling, &error), WF_OK, "%s",
                     error.text);
    }
    struct wf_coordinates at = wf_recipe_coordinates(&world->recipe, number);
    const struct wf_verify_place place = {.recipe = &world->recipe,
                                          .rank = number,
                                          .tp = world->recipe.tp,
                                          .tp_rank = at.tp,
                                          .pp = 1,
                                          .ep = at.group[WF_GROUP_EP].size,
                                          .ep_rank = at.group[WF_GROUP_EP].rank,
                                          .sglang =
                                              strcmp(world->recipe.engine->name, "sglang") == 0,
                                          .quant = world->model->variants->rule};
    cr_assert_eq(wf_verify_open(world->checkpoint, world->model, &place, &rank->verify, &error),
                 WF_OK, "%s", error.text);
}

static void close_rank(struct rank *rank)
{
    for (uint32_t t = 0; t < rank->layout->tensor_count; t++) {
        free(rank->memory[t]);
    }
    free(rank->memory);
    wf_verify_free(rank->verify);
    wf_layout_free(rank->layout);
}

/* What one tensor of the check is worth; derived ones are not here to be looked at. */
static void check_tensor(const struct world *world, const struct rank *rank, uint32_t tensor,
                         struct wf_verify_result *result)
{
    struct wf_error error = {0};
    const char *name = wf_verify_tensor_name(rank->verify, tensor);
    uint32_t index = wf_layout_find(rank->layout, name, strlen(name));
    cr_assert_neq(index, UINT32_MAX, "%s", name);
    const struct wf_tensor *held = &rank->layout->tensors[index];
    if (held->kind != WF_TENSOR_WEIGHTS) {
        return;
    }
    struct wf_verify_live live = {rank->memory[index], held->dtype, held->bytes};
    cr_assert_eq(wf_verify_tensor(rank->verify, tensor, world->steps, &live, result, &error), WF_OK,
                 "%s", error.text);
}

Test(verify_quantised, finds_nothing_wrong_in_what_layouts_and_rules_make)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world world;
        open_world(&world, rows[i].model, rows[i].spec, i);
        cr_assert_eq(world.model->variants->rule, rows[i].rule);
        for (uint32_t number = 0; number < wf_recipe_world(&world.recipe); number++) {
            struct rank rank;
            struct wf_verify_result result = {0};
            uint64_t weights = 0;
            open_rank(&world, number, &rank);
            for (uint32_t t = 0; t < wf_verify_tensor_count(rank.verify); t++) {
                check_tensor(&world, &rank, t, &result);
            }
            for (uint32_t t = 0; t < rank.layout->tensor_count; t++) {
                const struct wf_tensor *tensor = &rank.layout->tensors[t];
                weights += tensor->kind == WF_TENSOR_WEIGHTS
                               ? tensor->bytes / wf_dtype_bytes(tensor->dtype)
                               : 0;
            }
            cr_expect_eq(result.elements_wrong, 0, "%s rank %u: %s[%d]: %x, not %x", rows[i].spec,
                         number, result.first_wrong.tensor, (int)result.first_wrong.index,
                         result.first_wrong.found, result.first_wrong.expected);
            cr_expect_eq(result.elements_checked, weights, "%s rank %u", rows[i].spec, number);
            close_rank(&rank);
        }
        close_world(&world);
    }
}

/* One code, and one scale in its last place: both are seen, and nothing else is. */
Test(verify_quantised, finds_one_wrong_code_and_one_wrong_scale)
{
    struct world world;
    struct rank rank;
    open_world(&world, rows[0].model, rows[0].spec, 3);
    open_rank(&world, 1, &rank);
    for (uint32_t t = 0; t < wf_verify_tensor_count(rank.verify); t++) {
        const char *name = wf_verify_tensor_name(rank.verify, t);
        uint32_t index = wf_layout_find(rank.layout, name, strlen(name));
        uint64_t bytes = rank.layout->tensors[index].bytes;
        uint64_t at = bytes - wf_dtype_bytes(rank.layout->tensors[index].dtype);
        struct wf_verify_result result = {0};
        if (wf_verify_is_made(rank.verify, t)) {
            rank.memory[index][at] ^= 1;
            check_tensor(&world, &rank, t, &result);
            cr_expect_eq(result.elements_wrong, 1, "%s", name);
            rank.memory[index][at] ^= 1;
        }
    }
    close_rank(&rank);
    close_world(&world);
}

/* What a reader of torn versions compares with is what the check expects of that version. */
Test(verify_quantised, says_what_an_element_is_in_every_version)
{
    struct world world;
    struct rank rank;
    struct wf_error error = {0};
    uint32_t tensors = 0, told = 0;
    open_world(&world, rows[0].model, rows[0].spec, 5);
    open_rank(&world, 0, &rank);
    for (uint32_t t = 0; t < wf_verify_tensor_count(rank.verify); t++) {
        if (!wf_verify_is_made(rank.verify, t)) {
            continue;
        }
        const char *name = wf_verify_tensor_name(rank.verify, t);
        uint32_t index = wf_layout_find(rank.layout, name, strlen(name)), found = 0;
        enum wf_dtype dtype = rank.layout->tensors[index].dtype;
        uint64_t element = wf_verify_tensor_elements(rank.verify, t) * 2 / 3;
        uint32_t bits[WF_STEP_PERIOD];
        memcpy(&found, rank.memory[index] + element * wf_dtype_bytes(dtype), wf_dtype_bytes(dtype));
        cr_assert_eq(wf_verify_versions(rank.verify, t, element, dtype, bits, &error), WF_OK, "%s",
                     error.text);
        cr_expect_eq(bits[world.steps], found, "%s", name);
        tensors++;
        for (unsigned v = 0, differ = 0; v < WF_STEP_PERIOD && !differ; v++) {
            differ = bits[v] != found;
            told += differ;
        }
    }
    /* The largest value of some blocks is the same in all versions. */
    cr_expect(told > tensors * 3 / 4, "%u of %u tell versions apart", told, tensors);
    close_rank(&rank);
    close_world(&world);
}
