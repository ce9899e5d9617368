/* test_plan_update.c - tables of experts: plans made from the plan by rule move the right numbers,
 * are the same whoever makes them, and change no edge that is not concerned.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_world.h"

static struct world made;
static struct wf_layout *rules[WORLD_MEMBERS_MAX];
static uint32_t tables[4][64 * 64]; /* of each engine */

static const char config[] =
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 16, \"num_hidden_layers\": 3, "
    "\"vocab_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, "
    "\"intermediate_size\": 16, \"num_experts\": 8, \"moe_intermediate_size\": 8, "
    "\"torch_dtype\": \"float32\"}";

/* Slots: 8 experts and 4 redundant ones, on 4 ranks. */
enum { LAYERS = 3, SLOTS = 12, EXPERTS = 8 };

static void table_by_rule(uint32_t *table)
{
    for (uint32_t i = 0; i < LAYERS * SLOTS; i++) {
        table[i] = i % SLOTS % EXPERTS;
    }
}

/* Gives one engine's ranks the layouts of a table. */
static void place(const char *spec, uint32_t engine, const uint32_t *table)
{
    struct wf_recipe recipe;
    struct wf_error error = {0};
    const struct wf_placement placement = {.layers = LAYERS, .slots = SLOTS, .experts = table};
    cr_assert_eq(wf_recipe_parse(spec, made.model, &recipe, &error), WF_OK, "%s", error.text);
    recipe.placement = &placement;
    uint32_t rank = 0;
    for (uint32_t m = 0; m < made.input.member_count; m++) {
        if (made.members[m].side != WF_INFER || made.members[m].engine != engine) {
            continue;
        }
        uint32_t per_engine = wf_recipe_ranks_per_engine(&recipe);
        rules[m] = rules[m] ? rules[m] : made.layouts[m];
        if (made.layouts[m] != rules[m]) {
            wf_layout_free(made.layouts[m]);
        }
        cr_assert_eq(wf_layout_derive(made.model, &recipe, engine * per_engine + rank++,
                                      &made.layouts[m], &error),
                     WF_OK, "%s", error.text);
        made.members[m].layout = made.layouts[m];
        made.members[m].base = rules[m];
    }
}

static void finish(void)
{
    for (uint32_t m = 0; m < WORLD_MEMBERS_MAX; m++) {
        if (rules[m] != made.layouts[m]) {
            wf_layout_free(rules[m]);
        }
        rules[m] = NULL;
    }
    world_free(&made);
}

static void begin(const char *train, const char *infer)
{
    struct world_spec spec = {.config = config, .train = train, .infer = {infer}};
    struct wf_error error = {0};
    cr_assert(world_make(&spec, &made, &error), "%s", error.text);
}

static struct wf_plan *build(void)
{
    struct wf_plan *plan = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_plan_build(&made.input, &plan, &error), WF_OK, "%s", error.text);
    return plan;
}

static struct wf_plan *update(struct wf_plan *base)
{
    struct wf_plan *plan = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_plan_update(&made.input, base, &plan, &error), WF_OK, "%s", error.text);
    return plan;
}

static void expect_right(const struct wf_plan *plan, const char *name)
{
    char wrong[256];
    struct wf_error error = {0};
    cr_expect_eq(world_move(&made, plan, wrong, sizeof wrong), 0, "%s: %s", name, wrong);
    cr_expect_eq(wf_plan_prove(&made.input, plan, &error), WF_OK, "%s: %s", name, error.text);
    cr_expect_eq(wf_plan_prove_update(&made.input, plan, &error), WF_OK, "%s: %s", name,
                 error.text);
    struct wf_hash out = {0}, in = {0};
    for (uint32_t m = 0; m < made.input.member_count; m++) {
        const struct wf_plan_member *member = &made.members[m];
        struct wf_hash *sum = member->side == WF_TRAIN ? &out : &in;
        *sum = wf_hash_add(*sum, wf_plan_edge_sum(plan, member->side, member->rank));
    }
    cr_expect(wf_hash_equal(in, out), "%s", name);
}

static void expect_equal(const struct wf_plan *a, const struct wf_plan *b, const char *name)
{
    cr_expect(wf_hash_equal(a->input_hash, b->input_hash), "%s", name);
    cr_assert_eq(a->edge_count, b->edge_count, "%s", name);
    for (uint32_t e = 0; e < a->edge_count; e++) {
        cr_expect(wf_hash_equal(a->edges[e].hash, b->edges[e].hash), "%s edge %" PRIu32, name, e);
    }
    cr_expect_eq(a->bytes_moved, b->bytes_moved, "%s", name);
    cr_expect_eq(a->op_count, b->op_count, "%s", name);
    cr_expect_eq(a->egress_max, b->egress_max, "%s", name);
}

static const struct {
    const char *name, *train, *infer;
} jobs[] = {
    {"megatron to sglang", "megatron:tp=2,ep=2,etp=1", "sglang:tp=4,ep=4,redundant=4,engines=2"},
    {"fsdp to vllm", "fsdp:dp=3", "vllm:tp=4,ep=4,redundant=4,engines=2"},
    {"experts that are cut", "megatron:tp=2,etp=2,ep=1", "sglang:tp=4,ep=2,redundant=4,engines=2"},
};

/* Swaps and copies experts between slots; every expert stays somewhere. */
static void shuffle(uint32_t *table, uint32_t seed, uint32_t swaps)
{
    for (uint32_t i = 0; i < swaps; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t *layer = table + (seed >> 8) % LAYERS * SLOTS;
        uint32_t a = (seed >> 16) % SLOTS, b = (seed >> 24) % SLOTS, kept = layer[a];
        layer[a] = layer[b];
        layer[b] = kept;
    }
    table[SLOTS - 1] = seed >> 12 & 7; /* the redundant slot of its expert may be any's */
    uint32_t seen = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        seen |= 1u << table[i];
    }
    for (uint32_t e = 0; e < EXPERTS; e++) {
        table[SLOTS - 1] = seen >> e & 1 ? table[SLOTS - 1] : e;
    }
}

Test(plan_update, moves_what_the_tables_say)
{
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++) {
        begin(jobs[j].train, jobs[j].infer);
        struct wf_plan *base = build();
        for (uint32_t turn = 0; turn < 12; turn++) {
            uint32_t engine = turn % 2;
            if (turn < 2) {
                table_by_rule(tables[engine]);
            } else {
                shuffle(tables[engine], turn, turn < 6 ? 1 : 20);
            }
            place(jobs[j].infer, engine, tables[engine]);
            struct wf_plan *plan = update(base), *whole = build();
            expect_right(plan, jobs[j].name);
            expect_equal(plan, whole, jobs[j].name); /* who joined later has no history */
            wf_plan_free(plan);
            wf_plan_free(whole);
        }
        wf_plan_free(base);
        finish();
    }
}

/* A table that says what the rule says is no table; ranks that are not concerned keep their edges,
 * and of the others only ops of the experts that moved are new. */
Test(plan_update, changes_only_what_is_concerned)
{
    begin(jobs[0].train, jobs[0].infer);
    struct wf_plan *base = build();
    table_by_rule(tables[0]);
    place(jobs[0].infer, 0, tables[0]);
    struct wf_plan *same = update(base);
    cr_expect_eq(same, base);
    wf_plan_free(same);

    tables[0][SLOTS + 1] = 3; /* layer 1: rank 0's second slot and rank 1's first change places */
    tables[0][SLOTS + 3] = 1;
    place(jobs[0].infer, 0, tables[0]);
    struct wf_plan *plan = update(base);
    uint64_t new_ops = 0;
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        const struct wf_edge *was = NULL;
        for (uint32_t b = 0; b < base->edge_count; b++) {
            bool pair = base->edges[b].src_rank == edge->src_rank &&
                        base->edges[b].dst_rank == edge->dst_rank;
            was = pair ? &base->edges[b] : was;
        }
        if (edge->dst_rank > 1) {
            cr_assert_not_null(was);
            cr_expect_eq(edge->ops, was->ops, "edge %" PRIu32, e);
            continue;
        }
        for (uint32_t i = 0; i < edge->op_count; i++) {
            uint32_t expert = made.model->params[edge->ops[i].param].expert;
            new_ops += expert == 1 || expert == 3;
        }
    }
    cr_expect_lt(new_ops * 5, plan->op_count, "%" PRIu64 " of %" PRIu64, new_ops, plan->op_count);
    wf_plan_free(plan);
    wf_plan_free(base);
    finish();
}

Test(plan_update, refuses_what_is_no_placement)
{
    begin(jobs[0].train, jobs[0].infer);
    struct wf_plan *base = build(), *plan = NULL;
    struct wf_error error = {0};
    uint32_t first = 0;
    while (made.members[first].side != WF_INFER) {
        first++;
    }
    made.members[first].base = made.layouts[0]; /* a train rank's: other tensors */
    cr_expect_eq(wf_plan_update(&made.input, base, &plan, &error), WF_INVALID);
    cr_expect(strstr(error.text, "infer rank 0: its placement of experts changes more"), "%s",
              error.text);
    made.members[first].base = NULL;
    wf_plan_free(base);
    finish();
}

/* The proof of an update sees an edge that is not the base's, and a wrong op in one that is new. */
Test(plan_update, proof_sees_changes)
{
    begin(jobs[0].train, jobs[0].infer);
    struct wf_plan *base = build();
    table_by_rule(tables[0]);
    tables[0][0] = 4;
    tables[0][4] = 0;
    place(jobs[0].infer, 0, tables[0]);
    struct wf_plan *plan = update(base);
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        struct wf_edge *edge = &plan->edges[e], kept = *edge;
        struct wf_op *ops = malloc(edge->op_count * sizeof *ops);
        struct wf_error error = {0};
        memcpy(ops, edge->ops, edge->op_count * sizeof *ops);
        ops[0].box.src_offset += 4;
        edge->ops = ops;
        cr_expect_eq(wf_plan_prove_update(&made.input, plan, &error), WF_MISMATCH, "edge %" PRIu32,
                     e);
        free(ops);
        *edge = kept;
    }
    wf_plan_free(plan);
    wf_plan_free(base);
    finish();
}
