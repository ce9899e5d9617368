/* test_pairs.c - every family, random sizes, random recipes of both sides: what the layouts say is
 * moved element by element through real plans. Seeds are fixed: a failure comes again.
 *
 * The suite takes 250 pairs a shard, 150 when sanitized; WEFT_PAIRS=5000 in the environment takes
 * as many altogether. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "numbered.h"
#include "tests/sanitized.h"
#include "zoo.h"

enum {
    SHARDS = 4,
    PAIRS = SANITIZED ? 600 : 1000,
    TRIES_PER_PAIR = 40,
    RANKS_MAX = 24,
    CASE_MAX = 8192,
    WRONG_MAX = 4, /* pairs of a shard, then it ends */
};

struct tally {
    unsigned pairs, tries, refused, wrong, family_pairs[64], engine_pairs[16];
    uint64_t elements;
    char refusal[256]; /* the last one */
};

/* WEFT_PAIRS_REFUSALS in the environment shows them all. */
static void note_refusal(struct tally *tally, const struct wf_error *error)
{
    snprintf(tally->refusal, sizeof tally->refusal, "%.250s", error->text);
    if (getenv("WEFT_PAIRS_REFUSALS") != NULL) {
        fprintf(stderr, "refused: %s\n", error->text);
    }
}

static const struct wf_engine *draw_engine(uint64_t *state, bool train)
{
    /* Both sides may hold whole parameters; engines for inference serve no training. */
    static const struct wf_engine *const sources[] = {&wf_engine_megatron, &wf_engine_megatron,
                                                      &wf_engine_megatron, &wf_engine_fsdp,
                                                      &wf_engine_fsdp,     &wf_engine_hf};
    static const struct wf_engine *const targets[] = {&wf_engine_vllm,   &wf_engine_vllm,
                                                      &wf_engine_sglang, &wf_engine_sglang,
                                                      &wf_engine_hf,     &wf_engine_megatron};
    return train ? sources[zoo_random(state) % 6] : targets[zoo_random(state) % 6];
}

/* A recipe of an engine that takes the model, drawn anew while it is refused or too large. */
static bool draw_recipe(const struct wf_model *model, uint64_t *state, bool train,
                        struct tally *tally, struct wf_recipe *recipe)
{
    char spec[WF_SPEC_MAX];
    struct wf_error error;
    zoo_spec(draw_engine(state, train), model, state, spec);
    if (wf_recipe_parse(spec, model, recipe, &error) != WF_OK) {
        tally->refused++;
        cr_expect(error.text[0] != '\0', "%s is refused without a word", spec);
        note_refusal(tally, &error);
        return false;
    }
    return wf_recipe_world(recipe) <= RANKS_MAX;
}

/* Wrong anything fails the test with the config and the SPECs that bring it back. */
static void check_pair(struct numbered *world, const char *name, struct tally *tally)
{
    char wrong[NUMBERED_WRONG_MAX] = "";
    struct wf_error error;
    struct wf_plan *plan = NULL;
    bool good = numbered_tiles(world, wrong);
    cr_expect(good, "%s: %s", name, wrong);
    enum wf_status status = wf_plan_build(&world->input, &plan, &error);
    if (status == WF_UNSUPPORTED && strstr(error.text, "less 1") != NULL) {
        tally->refused++; /* a target that is Megatron's wants a norm zero-centred */
        return;
    }
    if (status == WF_INVALID && good && strstr(error.text, "holds any of this parameter") != NULL) {
        tally->refused++; /* the trainer leaves out what the target wants (layers that predict) */
        return;
    }
    cr_expect_eq(status, WF_OK, "%s: %s", name, error.text);
    if (status == WF_OK && good) {
        good = numbered_moves(world, plan, wrong);
        cr_expect(good, "%s: %s", name, wrong);
        status = wf_plan_prove(&world->input, plan, &error);
        cr_expect_eq(status, WF_OK, "%s: %s", name, error.text);
    }
    wf_plan_free(plan);
    tally->wrong += !good || status != WF_OK;
    tally->pairs++;
    tally->elements += numbered_elements(world);
}

static void try_pair(size_t family, uint64_t *state, struct numbered *world, struct tally *tally)
{
    char config[ZOO_CONFIG_MAX], name[CASE_MAX], specs[3][WF_SPEC_MAX] = {"", "", ""};
    struct wf_model *model = NULL;
    struct wf_recipe train, infer[2];
    struct wf_error error;
    tally->tries++;
    zoo_config(&zoo_families[family], state, config);
    enum wf_status status = wf_model_parse(config, strlen(config), NULL, &model, &error);
    cr_assert_eq(status, WF_OK, "%s: %s", config, error.text);
    uint32_t groups = 1 + (zoo_random(state) % 5 == 0);
    bool good = draw_recipe(model, state, true, tally, &train);
    for (uint32_t i = 0; i < groups && good; i++) {
        good = draw_recipe(model, state, false, tally, &infer[i]);
        if (good) {
            wf_recipe_format(&infer[i], specs[1 + i]);
        }
    }
    if (good) {
        wf_recipe_format(&train, specs[0]);
        status = numbered_make(world, model, &train, infer, groups, &error);
        snprintf(name, sizeof name, "%s -> %s %s of %s", specs[0], specs[1], specs[2], config);
        if (status == WF_OK) {
            check_pair(world, name, tally);
            tally->family_pairs[family]++;
            for (size_t e = 0; wf_engines[e] != NULL && e < 16; e++) {
                tally->engine_pairs[e] += wf_engines[e] == train.engine;
                tally->engine_pairs[e] += wf_engines[e] == infer[0].engine;
            }
        } else {
            tally->refused++;
            bool expected = status == WF_INVALID || status == WF_UNSUPPORTED;
            cr_expect(expected && error.text[0] != '\0', "%s: status %d: %s", name, status,
                      error.text);
            note_refusal(tally, &error);
        }
        numbered_fini(world);
    }
    wf_model_free(model);
}

static size_t family_count(void)
{
    size_t count = 0;
    while (zoo_families[count].name != NULL) {
        count++;
    }
    return count;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void run_shard(unsigned shard)
{
    const char *wanted_text = getenv("WEFT_PAIRS");
    unsigned wanted = (wanted_text != NULL ? (unsigned)atoi(wanted_text) : PAIRS) / SHARDS;
    uint64_t state = 0x5eed0500 + shard;
    struct numbered *world = calloc(1, sizeof *world);
    struct tally tally = {0};
    size_t families = family_count();
    double begin = seconds();
    for (unsigned i = 0;
         i < wanted * TRIES_PER_PAIR && tally.pairs < wanted && tally.wrong < WRONG_MAX; i++) {
        try_pair(i % families, &state, world, &tally);
    }
    fprintf(stderr,
            "shard %u: %u pairs of recipes, %" PRIu64 " elements, %u of %u tries refused, %.1f s\n",
            shard, tally.pairs, tally.elements, tally.refused, tally.tries, seconds() - begin);
    for (size_t f = 0; f < families; f++) {
        cr_expect(SANITIZED || tally.family_pairs[f] > 0,
                  "no pair of %s was valid; refused last: %s", zoo_families[f].name, tally.refusal);
    }
    for (size_t e = 0; wf_engines[e] != NULL; e++) {
        cr_expect(SANITIZED || wf_engines[e]->layout || tally.engine_pairs[e] > 0, "no pair had %s",
                  wf_engines[e]->name);
    }
    cr_expect_eq(tally.pairs, wanted, "only %u pairs were valid", tally.pairs);
    cr_expect_lt(tally.refused * 2, tally.tries, "most tries were refused, last: %s",
                 tally.refusal);
    free(world);
}

Test(pairs, shard_0)
{
    run_shard(0);
}

Test(pairs, shard_1)
{
    run_shard(1);
}

Test(pairs, shard_2)
{
    run_shard(2);
}

Test(pairs, shard_3)
{
    run_shard(3);
}
