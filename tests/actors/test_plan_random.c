/* test_plan_random.c - random small models and recipes of both sides, moved element by element; and
 * every number of ranks from 1 to 64. Seeds are fixed: a failure comes again. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan_world.h"
#include "runtime/splitmix.h"
#include "tests/sanitized.h"

enum { PAIRS_WANTED = SANITIZED ? 150 : 600, TRIES_MAX = 20000 }; /* a quarter when sanitized */

static struct world made;

static unsigned pick(uint64_t *state, const unsigned *from, unsigned count)
{
    return from[wf_splitmix64(state) % count];
}

#define PICK(state, ...)                         \
    pick(state, (const unsigned[]){__VA_ARGS__}, \
         sizeof((const unsigned[]){__VA_ARGS__}) / sizeof(unsigned))

static struct world_sizes random_sizes(uint64_t *state)
{
    static const char *const families[] = {"qwen3", "llama", "qwen2"};
    static const char *const dtypes[] = {"float32", "bfloat16"};
    struct world_sizes sizes = {.family = families[wf_splitmix64(state) % 3],
                                .layers = PICK(state, 1, 2, 3, 4, 6),
                                .vocab = 50 + (unsigned)(wf_splitmix64(state) % 300),
                                .kv_heads = PICK(state, 1, 2, 3, 4, 6),
                                .head_dim = PICK(state, 2, 4, 8),
                                .tied = wf_splitmix64(state) % 2 > 0,
                                .dtype = dtypes[wf_splitmix64(state) % 2]};
    sizes.query_heads = sizes.kv_heads * PICK(state, 1, 2, 3, 4);
    bool derived = strcmp(sizes.family, "qwen2") == 0; /* knows no head size of its own */
    sizes.hidden = derived ? sizes.query_heads * sizes.head_dim : PICK(state, 8, 12, 24, 36);
    sizes.intermediate = PICK(state, 24, 48, 60, 120);
    return sizes;
}

static void random_train(uint64_t *state, char *text, size_t size)
{
    unsigned pp = PICK(state, 1, 1, 2, 3), used;
    used = (unsigned)snprintf(text, size, "megatron:tp=%u,pp=%u,dp=%u",
                              PICK(state, 1, 2, 3, 4, 6, 8), pp, PICK(state, 1, 1, 2, 3));
    if (pp > 1 && wf_splitmix64(state) % 3 == 0) {
        used += (unsigned)snprintf(text + used, size - used, ",first=1");
    } else if (pp > 1 && wf_splitmix64(state) % 3 == 0) {
        used += (unsigned)snprintf(text + used, size - used, ",vpp=%u", PICK(state, 2, 3));
    }
    if (wf_splitmix64(state) % 2 > 0) {
        used +=
            (unsigned)snprintf(text + used, size - used, ",vocab_div=%u", PICK(state, 1, 4, 16));
    }
    if (wf_splitmix64(state) % 4 == 0) {
        snprintf(text + used, size - used, ",names=local");
    }
}

static void random_infer(uint64_t *state, char *text, size_t size)
{
    snprintf(text, size, "vllm:tp=%u,pp=%u,engines=%u", PICK(state, 1, 2, 3, 4, 5, 6, 8),
             PICK(state, 1, 1, 1, 2, 3), PICK(state, 1, 1, 2, 3));
}

/* Builds twice: equal. Moves: right. Proves. */
static void check_world(const char *name)
{
    char wrong[256];
    struct wf_plan *plan = NULL, *again = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_plan_build(&made.input, &plan, &error), WF_OK, "%s: %s", name, error.text);
    cr_assert_eq(wf_plan_build(&made.input, &again, &error), WF_OK, "%s", name);
    cr_expect_eq(world_move(&made, plan, wrong, sizeof wrong), 0, "%s: %s", name, wrong);
    cr_expect_eq(wf_plan_prove(&made.input, plan, &error), WF_OK, "%s: %s", name, error.text);
    cr_expect_eq(plan->edge_count, again->edge_count, "%s", name);
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        cr_expect(wf_hash_equal(plan->edges[e].hash, again->edges[e].hash), "%s", name);
    }
    wf_plan_free(plan);
    wf_plan_free(again);
}

Test(plan_random, pairs_of_recipes)
{
    uint64_t state = 0x5eed0002;
    unsigned pairs = 0;
    for (unsigned i = 0; i < TRIES_MAX && pairs < PAIRS_WANTED; i++) {
        char config[1024], train[256], infer[2][256], name[2048];
        struct world_spec spec = {.config = config, .train = train, .infer = {infer[0]}};
        struct world_sizes sizes = random_sizes(&state);
        world_config(&sizes, config, sizeof config);
        random_train(&state, train, sizeof train);
        random_infer(&state, infer[0], sizeof infer[0]);
        random_infer(&state, infer[1], sizeof infer[1]);
        spec.infer[1] = wf_splitmix64(&state) % 4 == 0 ? infer[1] : NULL;
        spec.per_host = PICK(&state, 0, 0, 1, 2, 4);
        snprintf(name, sizeof name, "try %u: %s -> %s %s of %s", i, train, infer[0],
                 spec.infer[1] != NULL ? infer[1] : "", config);
        if (world_make(&spec, &made, NULL)) { /* else the sizes do not divide */
            check_world(name);
            pairs++;
        }
        world_free(&made);
    }
    cr_expect_eq(pairs, PAIRS_WANTED, "only %u pairs of recipes were valid", pairs);
}

/* Ranks that the ops of each end name: both ends count the same ones. */
static void check_ends(const char *name, uint32_t train, uint32_t infer)
{
    struct wf_plan *plan = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_plan_build(&made.input, &plan, &error), WF_OK, "%s: %s", name, error.text);
    struct wf_hash out = {0, 0}, in = {0, 0}, all = {0, 0};
    for (uint32_t r = 0; r < train; r++) {
        out = wf_hash_add(out, wf_plan_edge_sum(plan, WF_TRAIN, r));
    }
    for (uint32_t r = 0; r < infer; r++) {
        in = wf_hash_add(in, wf_plan_edge_sum(plan, WF_INFER, r));
    }
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        all = wf_hash_add(all, plan->edges[e].hash);
    }
    cr_expect(wf_hash_equal(out, all) && wf_hash_equal(in, all), "%s", name);
    wf_plan_free(plan);
}

Test(plan_random, every_number_of_ranks)
{
    for (unsigned n = 1; n <= 64; n++) {
        static const char *const shapes[][2] = {{"megatron:dp=%u", "vllm:engines=%u"},
                                                {"megatron:pp=%u", "vllm:engines=%u"},
                                                {"megatron:tp=%u", "vllm:tp=%u"}};
        for (unsigned s = 0; s < 3; s++) {
            char config[1024], train[64], infer[64], name[160];
            struct world_spec spec = {.config = config, .train = train, .infer = {infer}};
            unsigned heads = s == 2 ? n : 2;
            /* vLLM pads to 64 rows and cuts what it padded. */
            struct world_sizes sizes = {.family = "llama",
                                        .hidden = 8,
                                        .layers = s == 1 ? n : 1,
                                        .vocab = s == 2 ? 64 * n - 3 : 70,
                                        .query_heads = heads,
                                        .kv_heads = heads,
                                        .head_dim = 2,
                                        .intermediate = s == 2 ? n : 4,
                                        .tied = true,
                                        .dtype = "float32"};
            unsigned other = s == 2 ? n : 65 - n;
            struct wf_error error = {0};
            world_config(&sizes, config, sizeof config);
            snprintf(train, sizeof train, shapes[s][0], n);
            snprintf(infer, sizeof infer, shapes[s][1], other);
            snprintf(name, sizeof name, "%s -> %s", train, infer);
            cr_assert(world_make(&spec, &made, &error), "%s: %s", name, error.text);
            check_world(name);
            check_ends(name, n, other);
            world_free(&made);
        }
    }
}
