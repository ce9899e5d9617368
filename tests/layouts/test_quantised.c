/* test_quantised.c - random sizes, random recipes of trainers, engines with codes and scales: every
 * code and scale in an engine is that of the rule applied to the whole matrix, whatever the shards:
 * made by who has whole blocks, or where the trainers' cuts divide blocks by the engine's rank from
 * the matrix, which it gets only then. Seeds are fixed: a failure comes again. WEFT_QUANTISED=500
 * in the environment takes as many pairs. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbered.h"
#include "zoo.h"

enum {
    PAIRS = 14,
    TRIES_PER_PAIR = 5000,
    RANKS_MAX = 12,
    CASE_MAX = 8192,
    SCALE = 16, /* of sizes, or twice that: some are some blocks of 128 then, some are none */
    ELEMENTS_MAX = 1500 * 1000, /* of a model */
    BLOCK = 128,
};

struct tally {
    unsigned pairs, cut, refused, trainers[16];
    uint64_t elements, families; /* bits: of which a pair was moved */
};

static const char *const rules[] = {"deepseek", "vllm",        "vllm_ue8m0",   "awex",
                                    "slime",    "channel_div", "transformers", "channel_mul"};
#define RULES (sizeof rules / sizeof rules[0])

static bool draw(const struct wf_engine *const *engines, unsigned count,
                 const struct wf_model *model, uint64_t *state, const char *more,
                 struct wf_recipe *recipe, char spec[WF_SPEC_MAX + 32])
{
    struct wf_error error;
    do { /* `quant` may be drawn too, and given once is enough */
        zoo_spec(engines[zoo_random(state) % count], model, state, spec);
    } while (strstr(spec, "quant=") != NULL);
    size_t len = strlen(spec);
    snprintf(spec + len, WF_SPEC_MAX + 32 - len, "%s%s",
             more[0] != '\0' && spec[len - 1] != ':' ? "," : "", more);
    return wf_recipe_parse(spec, NULL, recipe, &error) == WF_OK &&
           wf_recipe_world(recipe) <= RANKS_MAX;
}

/* Rows of a block; of one that is a whole row 1. */
static uint64_t high_of(const struct numbered *world)
{
    return wf_quant_is_by_row(world->model->variants->rule) ? 1 : BLOCK;
}

/* Whether some train rank holds all of a block of a matrix. */
static bool is_held(const struct numbered *world, uint32_t matrix, uint64_t row, uint64_t column)
{
    const struct wf_param *param = &world->model->params[matrix];
    uint64_t high = high_of(world),
             rows = param->shape[0] - row < high ? param->shape[0] - row : high;
    uint64_t columns = param->shape[1] - column < BLOCK ? param->shape[1] - column : BLOCK;
    columns = high == 1 ? param->shape[1] : columns;
    struct wf_nest block = {.param_first = row * param->shape[1] + column,
                            .elem_bytes = 1,
                            .axis_count = 2,
                            .axes = {{rows, param->shape[1], (int64_t)columns}, {columns, 1, 1}}};
    for (uint32_t m = 0; world->own[m] != NULL; m++) {
        uint64_t found = 0;
        for (uint32_t i = 0; i < world->own[m]->piece_count; i++) {
            const struct wf_piece *piece = &world->own[m]->pieces[i];
            if (piece->kind == WF_PIECE_DATA && piece->param == matrix) {
                struct wf_nest nest = wf_layout_nest(world->own[m], i);
                found += numbered_common(&nest, &block);
            }
        }
        if (found >= rows * columns) {
            return true;
        }
    }
    return false;
}

/* Whether a block of the matrix is whole nowhere. */
static bool is_cut(const struct numbered *world, uint32_t matrix)
{
    const struct wf_param *param = &world->model->params[matrix];
    uint64_t high = high_of(world), wide = high == 1 ? param->shape[1] : BLOCK;
    for (uint64_t row = 0; row < param->shape[0]; row += high) {
        for (uint64_t column = 0; column < param->shape[1]; column += wide) {
            if (!is_held(world, matrix, row, column)) {
                return true;
            }
        }
    }
    return false;
}

/* Matrices that engines assemble are cut, but for experts: of those, that one beside them is. */
static bool check_cuts(const struct numbered *world, const char *name)
{
    const struct wf_variants *v = world->model->variants;
    for (uint32_t p = 0; world->cuts != NULL && p < v->pair_count; p++) {
        const struct wf_param *matrix = &world->model->params[v->pairs[p].matrix];
        if (world->cuts->dtypes[p] != WF_DTYPE_NONE && matrix->expert == WF_NONE) {
            cr_expect(is_cut(world, v->pairs[p].matrix), "%s: no block of %s is cut", name,
                      matrix->name);
        }
    }
    return world->cuts != NULL;
}

static void check_pair(struct numbered *world, size_t family, const char *name, struct tally *tally)
{
    char wrong[NUMBERED_WRONG_MAX] = "";
    struct wf_error error;
    struct wf_plan *plan = NULL;
    enum wf_status status = wf_plan_build(&world->input, &plan, &error);
    if (status == WF_INVALID && strstr(error.text, "holds any of this parameter") != NULL) {
        tally->refused++; /* the trainer leaves out what the target wants (layers that predict) */
        return;
    }
    tally->cut += check_cuts(world, name);
    cr_expect_eq(status, WF_OK, "%s: %s", name, error.text);
    if (status == WF_OK) {
        bool good = numbered_moves(world, plan, wrong);
        cr_expect(good, "%s: %s", name, wrong);
        status = wf_plan_prove(&world->input, plan, &error);
        cr_expect_eq(status, WF_OK, "%s: %s", name, error.text);
    }
    wf_plan_free(plan);
    tally->pairs++;
    tally->families |= UINT64_C(1) << family;
    tally->elements += numbered_elements(world);
    for (size_t e = 0; wf_engines[e] != NULL && e < 16; e++) {
        tally->trainers[e] += wf_engines[e] == world->train.engine;
    }
}

static void try_pair(size_t family, uint64_t *state, struct numbered *world, struct tally *tally)
{
    static const struct wf_engine *const sources[] = {&wf_engine_megatron, &wf_engine_megatron,
                                                      &wf_engine_fsdp};
    static const struct wf_engine *const targets[] = {&wf_engine_vllm, &wf_engine_sglang};
    char config[ZOO_CONFIG_MAX], specs[2][WF_SPEC_MAX + 32], quant[32], name[CASE_MAX];
    struct wf_model *model = NULL, *job = NULL;
    struct wf_recipe train, infer;
    struct wf_error error;
    zoo_config_scaled(&zoo_families[family], state, SCALE << zoo_random(state) % 2, config);
    if (strstr(config, "quantization_config") != NULL ||
        wf_model_parse(config, strlen(config), NULL, &model, &error) != WF_OK) {
        return;
    }
    uint64_t elements = 0;
    for (uint32_t p = 0; p < model->param_count; p++) {
        elements += model->params[p].elements;
    }
    snprintf(quant, sizeof quant, "quant=%s", rules[zoo_random(state) % RULES]);
    bool good = elements <= ELEMENTS_MAX && draw(sources, 3, model, state, "", &train, specs[0]) &&
                draw(targets, 2, model, state, quant, &infer, specs[1]);
    const struct wf_recipe *both[] = {&train, &infer};
    good = good && wf_model_for_job(model, both, 2, &job, &error) == WF_OK &&
           job->variants != NULL && wf_recipe_parse(specs[0], job, &train, &error) == WF_OK &&
           wf_recipe_parse(specs[1], job, &infer, &error) == WF_OK;
    if (good) {
        snprintf(name, sizeof name, "%s -> %s of %s", specs[0], specs[1], config);
        if (numbered_make(world, job, &train, &infer, 1, &error) == WF_OK) {
            check_pair(world, family, name, tally);
        }
        numbered_fini(world);
    }
    wf_model_free(job);
    wf_model_free(model);
}

Test(quantised, codes_and_scales_of_whole_matrices)
{
    const char *wanted_text = getenv("WEFT_QUANTISED");
    unsigned wanted = wanted_text != NULL ? (unsigned)atoi(wanted_text) : PAIRS;
    struct numbered *world = calloc(1, sizeof *world);
    struct tally tally = {0};
    uint64_t state = 0x5eed0600;
    size_t families = 0;
    while (zoo_families[families].name != NULL) {
        families++;
    }
    for (unsigned i = 0; i < wanted * TRIES_PER_PAIR && tally.pairs < wanted; i++) {
        try_pair(i % families, &state, world, &tally);
    }
    fprintf(stderr,
            "%u pairs of recipes of %d families, %" PRIu64
            " elements; in %u blocks were cut, %u were refused for "
            "parameters that nobody has\n",
            tally.pairs, __builtin_popcountll(tally.families), tally.elements, tally.cut,
            tally.refused);
    cr_expect_eq(tally.pairs, wanted, "only %u pairs were valid", tally.pairs);
    cr_expect_gt(tally.cut, 0, "no block was cut");
    for (size_t e = 0; wf_engines[e] != NULL; e++) {
        bool trains = wf_engines[e] == &wf_engine_megatron || wf_engines[e] == &wf_engine_fsdp;
        cr_expect(!trains || tally.trainers[e] > 0, "no pair had %s", wf_engines[e]->name);
    }
    free(world);
}
