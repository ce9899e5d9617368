/* test_plan.c - plans of real recipes: elements arrive, totals are right, sources are chosen well.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <string.h>

#include "plan_world.h"

#define TINY_QWEN3                                         \
    {                                                      \
        "qwen3", 32, 3, 101, 8, 4, 8, 48, false, "float32" \
    }
#define TINY_TIED                                          \
    {                                                      \
        "qwen3", 32, 3, 101, 8, 4, 8, 48, true, "bfloat16" \
    }
#define TINY_LLAMA                                        \
    {                                                     \
        "llama", 36, 4, 130, 9, 3, 4, 60, true, "float32" \
    }
#define TINY_QWEN2                                         \
    {                                                      \
        "qwen2", 32, 2, 64, 8, 2, 4, 64, false, "bfloat16" \
    }

struct plan_row {
    const char *name;
    struct world_sizes sizes;
    const char *train;
    const char *infer[WORLD_GROUPS_MAX];
};

static const struct plan_row plan_rows[] = {
    {"one to one", TINY_QWEN3, "megatron:tp=1", {"vllm:tp=1"}},
    {"tensor parallel down", TINY_QWEN3, "megatron:tp=4", {"vllm:tp=2"}},
    {"tensor parallel up", TINY_QWEN3, "megatron:tp=2", {"vllm:tp=8"}},
    {"kv heads repeated", TINY_QWEN2, "megatron:tp=2", {"vllm:tp=8"}},
    {"kv heads cut inside", TINY_QWEN2, "megatron:tp=4", {"vllm:tp=4"}},
    {"pipeline to one", TINY_QWEN3, "megatron:tp=2,pp=3", {"vllm:tp=2"}},
    {"pipeline to pipeline", TINY_QWEN3, "megatron:pp=3", {"vllm:tp=2,pp=2"}},
    {"tied head, shadow embedding", TINY_TIED, "megatron:tp=2,pp=3", {"vllm:tp=2,pp=2"}},
    {"nine heads over three", TINY_LLAMA, "megatron:tp=3,pp=2", {"vllm:tp=3,engines=2"}},
    {"data parallel, four engines", TINY_QWEN3, "megatron:tp=2,dp=2", {"vllm:tp=2,engines=4"}},
    {"replicas three to two", TINY_QWEN3, "megatron:tp=2,dp=3", {"vllm:tp=4,engines=2"}},
    {"virtual pipeline", TINY_LLAMA, "megatron:pp=2,vpp=2", {"vllm:tp=3"}},
    {"two groups of other shapes",
     TINY_TIED,
     "megatron:tp=2,pp=3",
     {"vllm:tp=4", "vllm:tp=1,engines=2"}},
    {"checkpoint as source", TINY_QWEN2, "hf:", {"vllm:tp=2"}},
};

static struct world made;

static void make_row(const struct plan_row *row)
{
    char config[1024];
    struct wf_error error = {0};
    struct world_spec spec = {.config = config, .train = row->train};
    memcpy(spec.infer, row->infer, sizeof spec.infer);
    world_config(&row->sizes, config, sizeof config);
    cr_assert(world_make(&spec, &made, &error), "%s: %s", row->name, error.text);
}

static struct wf_plan *build(const char *name)
{
    struct wf_plan *plan = NULL;
    struct wf_error error = {0};
    enum wf_status status = wf_plan_build(&made.input, &plan, &error);
    cr_assert_eq(status, WF_OK, "%s: %s", name, error.text);
    return plan;
}

Test(plan, moves_every_element_once)
{
    for (size_t i = 0; i < sizeof plan_rows / sizeof plan_rows[0]; i++) {
        char wrong[256];
        struct wf_error error = {0};
        make_row(&plan_rows[i]);
        struct wf_plan *plan = build(plan_rows[i].name);
        cr_expect_eq(world_move(&made, plan, wrong, sizeof wrong), 0, "%s: %s", plan_rows[i].name,
                     wrong);
        cr_expect_eq(wf_plan_prove(&made.input, plan, &error), WF_OK, "%s: %s", plan_rows[i].name,
                     error.text);
        wf_plan_free(plan);
        world_free(&made);
    }
}

static bool edges_equal(const struct wf_edge *a, const struct wf_edge *b)
{
    if (a->src_rank != b->src_rank || a->dst_rank != b->dst_rank || a->op_count != b->op_count ||
        a->bytes != b->bytes || !wf_hash_equal(a->hash, b->hash)) {
        return false;
    }
    for (uint32_t i = 0; i < a->op_count; i++) {
        const struct wf_op *x = &a->ops[i], *y = &b->ops[i];
        if (x->param != y->param || x->src_tensor != y->src_tensor ||
            x->dst_tensor != y->dst_tensor || memcmp(&x->box, &y->box, sizeof x->box) != 0) {
            return false;
        }
    }
    return true;
}

Test(plan, is_equal_when_made_again)
{
    for (size_t i = 0; i < sizeof plan_rows / sizeof plan_rows[0]; i++) {
        make_row(&plan_rows[i]);
        struct wf_plan *plan = build(plan_rows[i].name), *again = build(plan_rows[i].name);
        cr_expect(wf_hash_equal(plan->input_hash, again->input_hash), "%s", plan_rows[i].name);
        cr_assert_eq(plan->edge_count, again->edge_count, "%s", plan_rows[i].name);
        for (uint32_t e = 0; e < plan->edge_count; e++) {
            cr_expect(edges_equal(&plan->edges[e], &again->edges[e]), "%s: edge %" PRIu32,
                      plan_rows[i].name, e);
        }
        wf_plan_free(plan);
        wf_plan_free(again);
        world_free(&made);
    }
}

Test(plan, edges_are_sorted_and_their_sums_agree)
{
    for (size_t i = 0; i < sizeof plan_rows / sizeof plan_rows[0]; i++) {
        make_row(&plan_rows[i]);
        struct wf_plan *plan = build(plan_rows[i].name);
        struct wf_hash out = {0, 0}, in = {0, 0};
        for (uint32_t m = 0; m < made.input.member_count; m++) {
            const struct wf_plan_member *member = &made.members[m];
            struct wf_hash *sum = member->side == WF_TRAIN ? &out : &in;
            *sum = wf_hash_add(*sum, wf_plan_edge_sum(plan, member->side, member->rank));
        }
        cr_expect(wf_hash_equal(out, in), "%s", plan_rows[i].name);
        for (uint32_t e = 0; e < plan->edge_count; e++) {
            const struct wf_edge *edge = &plan->edges[e];
            cr_expect(
                e == 0 || edge[-1].dst_rank < edge->dst_rank ||
                    (edge[-1].dst_rank == edge->dst_rank && edge[-1].src_rank < edge->src_rank),
                "%s: edge %" PRIu32, plan_rows[i].name, e);
            for (uint32_t o = 1; o < edge->op_count; o++) {
                const struct wf_op *op = &edge->ops[o];
                cr_expect(op[-1].dst_tensor < op->dst_tensor ||
                              (op[-1].dst_tensor == op->dst_tensor &&
                               op[-1].box.dst_offset < op->box.dst_offset),
                          "%s: edge %" PRIu32 ", op %" PRIu32, plan_rows[i].name, e, o);
            }
        }
        wf_plan_free(plan);
        world_free(&made);
    }
}

/* Canonical bytes, not what the ranks hold: tied once, copies once, no padding. */
Test(plan, counts_unique_bytes_without_copies_and_padding)
{
    for (size_t i = 0; i < sizeof plan_rows / sizeof plan_rows[0]; i++) {
        make_row(&plan_rows[i]);
        struct wf_plan *plan = build(plan_rows[i].name);
        uint64_t unique = 0, moved = 0;
        for (uint32_t p = 0; p < made.model->param_count; p++) {
            unique += made.model->params[p].elements * wf_dtype_bytes(made.model->params[p].dtype);
        }
        moved = world_elements(&made) * wf_dtype_bytes(made.model->params[0].dtype);
        cr_expect_eq(plan->bytes_unique, unique, "%s: %" PRIu64 " not %" PRIu64, plan_rows[i].name,
                     plan->bytes_unique, unique);
        cr_expect_eq(plan->bytes_moved, moved, "%s: %" PRIu64 " not %" PRIu64, plan_rows[i].name,
                     plan->bytes_moved, moved);
        wf_plan_free(plan);
        world_free(&made);
    }
}

Test(plan, input_hash_depends_on_every_input)
{
    make_row(&plan_rows[1]);
    struct wf_hash hash = wf_plan_input_hash(&made.input);
    made.members[1].host = 7;
    cr_expect_not(wf_hash_equal(hash, wf_plan_input_hash(&made.input)), "host");
    made.members[1].host = made.members[0].host;
    cr_expect(wf_hash_equal(hash, wf_plan_input_hash(&made.input)), "as before");
    const struct wf_layout *kept = made.members[1].layout;
    made.members[1].layout = made.members[0].layout;
    cr_expect_not(wf_hash_equal(hash, wf_plan_input_hash(&made.input)), "layout");
    made.members[1].layout = kept;
    made.input.member_count--;
    cr_expect_not(wf_hash_equal(hash, wf_plan_input_hash(&made.input)), "members");
    made.input.member_count++;
    made.model->hash.low ^= 1;
    cr_expect_not(wf_hash_equal(hash, wf_plan_input_hash(&made.input)), "model");
    world_free(&made);
}

/* --- balance -----------------------------------------------------------------------------------
 */

struct balance_row {
    const char *name;
    struct world_sizes sizes;
    const char *train;
    const char *infer[WORLD_GROUPS_MAX];
    double egress_max; /* over mean */
};

static const struct balance_row balance_rows[] = {
    {"Qwen3-8B",
     {"qwen3", 4096, 36, 151936, 32, 8, 128, 12288, false, "bfloat16"},
     "megatron:tp=4,pp=2,dp=2",
     {"vllm:tp=2,engines=4"},
     1.01},
    {"three copies to one engine",
     {"qwen3", 1024, 8, 50000, 16, 8, 64, 3072, false, "bfloat16"},
     "megatron:tp=2,dp=3",
     {"vllm:tp=2"},
     1.01},
    {"tied embedding dwarfs all else",
     {"qwen3", 512, 2, 151936, 8, 4, 64, 1024, true, "bfloat16"},
     "megatron:tp=2,pp=2,dp=3",
     {"vllm:tp=1,engines=5"},
     1.02},
    {"eight copies to three engines of one shape and one of another",
     {"llama", 1024, 4, 32000, 16, 8, 64, 3072, false, "bfloat16"},
     "megatron:dp=8",
     {"vllm:tp=1,engines=3", "vllm:tp=4"},
     1.01},
};

Test(plan, spreads_egress_over_copies)
{
    for (size_t i = 0; i < sizeof balance_rows / sizeof balance_rows[0]; i++) {
        const struct balance_row *row = &balance_rows[i];
        struct plan_row as_plan = {row->name, row->sizes, row->train, {0}};
        memcpy(as_plan.infer, row->infer, sizeof row->infer);
        make_row(&as_plan);
        struct wf_plan *plan = build(row->name);
        struct wf_error error = {0};
        double mean = (double)plan->bytes_moved / plan->egress_ranks;
        cr_expect_leq((double)plan->egress_max / mean, row->egress_max, "%s: %.4f", row->name,
                      (double)plan->egress_max / mean);
        cr_expect_eq(wf_plan_prove(&made.input, plan, &error), WF_OK, "%s: %s", row->name,
                     error.text);
        wf_plan_free(plan);
        world_free(&made);
    }
}

/* Every infer rank shares its host with a train rank that holds all it needs. */
Test(plan, prefers_the_same_host)
{
    char config[1024];
    struct world_sizes sizes = TINY_QWEN3;
    struct wf_error error = {0};
    struct world_spec spec = {.config = config,
                              .train = "megatron:tp=1,dp=4",
                              .infer = {"vllm:tp=1,engines=4"},
                              .per_host = 1};
    world_config(&sizes, config, sizeof config);
    cr_assert(world_make(&spec, &made, &error), "%s", error.text);
    /* Hosts in another order than ranks, so that numbers alone cannot give the answer. */
    for (uint32_t i = 0; i < 4; i++) {
        made.members[4 + i].host = (i + 1) % 4;
    }
    struct wf_plan *plan = build("same host");
    cr_assert_eq(plan->edge_count, 4);
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        cr_expect_eq(plan->edges[e].src_rank, (plan->edges[e].dst_rank + 1) % 4);
    }
    wf_plan_free(plan);
    world_free(&made);
}
