/* test_plan_casts.c - what a plan has its train ranks cast once: when it pays, within the budget,
 * and that every reader gets the same values as without it.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/plan_casts.h"
#include "models/copy.h"
#include "plan_world.h"

static const char config[] =
    "{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_size\": "
    "96, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, "
    "\"intermediate_size\": 96, \"torch_dtype\": \"bfloat16\"}";

#define ALL UINT64_C(1000000000)

static uint64_t narrow_bytes(const struct wf_plan_cast *cast)
{
    return cast->elements * wf_dtype_bytes(cast->to);
}

/* --- by hand: one op through the cast tensor and without it ------------------------------------
 */

static uint8_t *fill(uint64_t bytes, uint32_t seed)
{
    uint8_t *memory = malloc(bytes + 1);
    for (uint64_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t value = (seed + (uint32_t)i) * 2654435761u;
        value = (value & 0x807fffffu) | 0x3f000000u; /* about 1, all of the mantissa */
        memcpy(memory + i, &value, 4);
    }
    return memory;
}

/* What the rank casts, made as the Sender makes it. */
static uint8_t *make(const struct wf_plan_cast *cast, const uint8_t *held)
{
    uint64_t wide = wf_dtype_bytes(cast->from), narrow = wf_dtype_bytes(cast->to);
    struct wf_box run = {.elements = cast->elements,
                         .axis_count = 1,
                         .axes = {{cast->elements, (int64_t)wide, (int64_t)narrow}}};
    uint8_t *memory = malloc(narrow_bytes(cast) + 1);
    wf_copy_box(&run, held + cast->first * wide, cast->from, memory, cast->to,
                (struct wf_copy_part){0, cast->elements});
    return memory;
}

/* Compares what both ways write, and that what is read is inside the cast tensor. */
static void check_op(const char *name, const struct wf_plan_cast *cast, const struct wf_op *op,
                     const struct wf_op *read, const struct wf_layout *src,
                     const struct wf_layout *dst)
{
    const struct wf_tensor *held = &src->tensors[op->src_tensor];
    uint64_t bytes = dst->tensors[op->dst_tensor].bytes;
    uint8_t *memory = fill(held->bytes, op->src_tensor), *made = make(cast, memory);
    uint8_t *wide = calloc(1, bytes), *narrow = calloc(1, bytes);
    struct wf_copy_part all = {0, op->box.elements};
    wf_copy_box(&op->box, memory, cast->from, wide, cast->to, all);
    wf_copy_box(&read->box, made, cast->to, narrow, cast->to, all);
    cr_assert_eq(memcmp(wide, narrow, bytes), 0, "%s: tensor %s", name, held->name);
    uint64_t end = read->box.src_offset;
    for (uint32_t a = 0; a < read->box.axis_count; a++) {
        end += (read->box.axes[a].count - 1) * (uint64_t)read->box.axes[a].src_step;
    }
    cr_assert_lt(end, narrow_bytes(cast), "%s: tensor %s", name, held->name);
    free(memory);
    free(made);
    free(wide);
    free(narrow);
}

/* Every op, and the plan's own totals. */
static void check_ops(const char *name, const struct world *world, const struct wf_plan *plan,
                      uint32_t train)
{
    uint64_t once = 0, moving = 0;
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        const struct wf_layout *src = world->members[edge->src_rank].layout;
        const struct wf_layout *dst = world->members[train + edge->dst_rank].layout;
        const struct wf_plan_cast *first;
        uint32_t count = wf_plan_casts_of(plan, edge->src_rank, &first);
        for (uint32_t o = 0; o < edge->op_count; o++) {
            const struct wf_op *op = &edge->ops[o];
            enum wf_dtype from = src->tensors[op->src_tensor].dtype;
            enum wf_dtype to = dst->tensors[op->dst_tensor].dtype;
            uint64_t bytes = op->box.elements * wf_dtype_bytes(to);
            struct wf_op read = *op;
            const struct wf_plan_cast *cast =
                wf_plan_cast_read(plan, src, dst, edge->src_rank, op, &read);
            if (cast == NULL) {
                moving += wf_dtype_bytes(to) < wf_dtype_bytes(from) ? bytes : 0;
                continue;
            }
            once += bytes;
            cr_assert(cast >= first && cast < first + count, "%s", name);
            cr_assert_eq(read.src_tensor, src->tensor_count + (uint32_t)(cast - first), "%s", name);
            cr_assert(cast->tensor == op->src_tensor && cast->from == from && cast->to == to, "%s",
                      name);
            check_op(name, cast, op, &read, src, dst);
        }
    }
    cr_assert_eq(once, plan->cast_once_bytes, "%s: %" PRIu64, name, once);
    cr_assert_eq(moving, plan->cast_moving_bytes, "%s: %" PRIu64, name, moving);
}

/* --- rows ---------------------------------------------------------------------------------------
 */

static const struct row {
    const char *name, *train, *infer[WORLD_GROUPS_MAX];
    uint32_t per_host;
    uint64_t budget;
    bool near_maps;
    uint32_t once, moving; /* parts of 8 of the bytes that narrow, about */
    bool two_types;
} rows[] = {
    {"one reader", "megatron:tp=2,dtype=f32", {"vllm:tp=1"}, 0, ALL, false, 0, 8, false},
    {"four readers",
     "megatron:tp=2,dtype=f32",
     {"vllm:tp=1,engines=4"},
     0,
     ALL,
     false,
     8,
     0,
     false},
    {"no budget", "megatron:tp=2,dtype=f32", {"vllm:tp=1,engines=4"}, 0, 0, false, 0, 8, false},
    {"half of it",
     "megatron:tp=2,dtype=f32",
     {"vllm:tp=1,engines=4"},
     0,
     37100,
     false,
     4,
     4,
     false},
    {"readers of the pages",
     "megatron:tp=2,dtype=f32",
     {"vllm:tp=2,engines=2"},
     8,
     ALL,
     true,
     0,
     8,
     false},
    {"near, by the network",
     "megatron:tp=2,dtype=f32",
     {"vllm:tp=2,engines=2"},
     8,
     ALL,
     false,
     8,
     0,
     false},
    {"a reader each",
     "megatron:tp=1,dp=2,dtype=f32",
     {"vllm:tp=1,engines=2"},
     0,
     ALL,
     false,
     0,
     8,
     false},
    {"one that widens",
     "megatron:tp=2",
     {"vllm:tp=1,engines=4,dtype=f32"},
     0,
     ALL,
     false,
     0,
     0,
     false},
    {"one that does not cast",
     "megatron:tp=2",
     {"vllm:tp=1,engines=4"},
     0,
     ALL,
     false,
     0,
     0,
     false},
    {"shards", "fsdp:dp=3,dtype=f32", {"sglang:tp=2,engines=2"}, 0, ALL, false, 8, 0, false},
    {"two types",
     "megatron:tp=2,dtype=f32",
     {"vllm:engines=2", "vllm:engines=2,dtype=f16"},
     0,
     ALL,
     false,
     8,
     0,
     true},
    {"wide ones beside",
     "megatron:tp=2,dtype=f32",
     {"vllm:engines=2", "sglang:engines=2,dtype=f32"},
     0,
     ALL,
     false,
     8,
     0,
     false},
};

/* Within the budget; what was left out would not have fitted, or is worth less. */
static void check_budget(const struct row *row, const struct wf_plan *plan, uint32_t train)
{
    bool bf16 = false, f16 = false;
    for (uint32_t r = 0; r < train; r++) {
        const struct wf_plan_cast *first;
        uint32_t count = wf_plan_casts_of(plan, r, &first);
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < count; i++) {
            cr_assert_geq(2 * first[i].saved, first[i].elements, "%s", row->name);
            bytes += narrow_bytes(&first[i]);
            bf16 = bf16 || first[i].to == WF_DTYPE_BF16;
            f16 = f16 || first[i].to == WF_DTYPE_F16;
        }
        cr_assert_leq(bytes, row->budget, "%s: %" PRIu64, row->name, bytes);
    }
    cr_assert_eq(bf16 && f16, row->two_types, "%s", row->name);
}

Test(plan_casts, rows)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        struct world world;
        struct wf_error error = {0};
        struct wf_plan *plan = NULL, *again = NULL;
        struct world_spec spec = {.config = config, .train = row->train, .per_host = row->per_host};
        memcpy(spec.infer, row->infer, sizeof spec.infer);
        cr_assert(world_make(&spec, &world, &error), "%s: %s", row->name, error.text);
        world.input.policy.cast_bytes_max = row->budget;
        world.input.policy.near_maps = row->near_maps;
        cr_assert_eq(wf_plan_build(&world.input, &plan, &error), WF_OK, "%s: %s", row->name,
                     error.text);
        cr_assert_eq(wf_plan_prove(&world.input, plan, &error), WF_OK, "%s: %s", row->name,
                     error.text);
        uint32_t train = 0;
        while (world.members[train].side == WF_TRAIN) {
            train++;
        }
        check_ops(row->name, &world, plan, train);
        check_budget(row, plan, train);
        uint64_t all = plan->cast_once_bytes + plan->cast_moving_bytes;
        uint64_t part = all > 0 ? (8 * plan->cast_once_bytes + all / 2) / all : 0;
        cr_assert_eq(part, row->once, "%s: %" PRIu64 " of %" PRIu64 " once", row->name,
                     plan->cast_once_bytes, all);
        cr_assert_eq(all > 0 ? 8 - part : 0, row->moving, "%s", row->name);
        /* The policy is part of what ranks compare; the rest is the same for all of them. */
        cr_assert_eq(wf_plan_build(&world.input, &again, &error), WF_OK);
        cr_assert(wf_hash_equal(plan->input_hash, again->input_hash), "%s", row->name);
        cr_assert_eq(plan->cast_count, again->cast_count, "%s", row->name);
        for (uint32_t c = 0; c < plan->cast_count; c++) {
            cr_assert_eq(memcmp(&plan->casts[c], &again->casts[c], sizeof *plan->casts), 0, "%s",
                         row->name);
        }
        world.input.policy.cast_bytes_max++;
        cr_assert(!wf_hash_equal(plan->input_hash, wf_plan_input_hash(&world.input)), "%s",
                  row->name);
        wf_plan_free(plan);
        wf_plan_free(again);
        world_free(&world);
    }
}

/* --- the order ---------------------------------------------------------------------------------
 */

/* One train rank with two matrices in f32; the second has four readers, the first three. */
Test(plan_casts, the_most_read_goes_first)
{
    static const struct hand_param params[] = {{"a", 8, 16}, {"b", 8, 16}};
    static const struct hand_piece held[] = {{0, WF_DTYPE_F32, 8, 16, 0, 0, 0, 0, 0, 8, 16},
                                             {1, WF_DTYPE_F32, 8, 16, 1, 0, 0, 0, 0, 8, 16},
                                             {0}};
    static const struct hand_piece both[] = {{0, WF_DTYPE_BF16, 8, 16, 0, 0, 0, 0, 0, 8, 16},
                                             {1, WF_DTYPE_BF16, 8, 16, 1, 0, 0, 0, 0, 8, 16},
                                             {0}};
    static const struct hand_piece second[] = {{0, WF_DTYPE_BF16, 8, 16, 1, 0, 0, 0, 0, 8, 16},
                                               {0}};
    static const struct {
        const char *name;
        uint64_t budget;
        uint32_t count, first;
    } budgets[] = {{"none fits", 255, 0, 0}, {"one fits", 256, 1, 1}, {"both fit", 512, 2, 0}};
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        struct world world;
        struct wf_error error = {0};
        struct wf_plan *plan = NULL;
        hand_model(&world, params, 2);
        hand_rank(&world, WF_TRAIN, 0, held);
        for (int r = 0; r < 3; r++) {
            hand_rank(&world, WF_INFER, 1, both);
        }
        hand_rank(&world, WF_INFER, 1, second);
        world.input.policy.cast_bytes_max = budgets[i].budget;
        cr_assert_eq(wf_plan_build(&world.input, &plan, &error), WF_OK, "%s", error.text);
        cr_assert_eq(plan->cast_count, budgets[i].count, "%s: %u", budgets[i].name,
                     plan->cast_count);
        cr_assert(plan->cast_count == 0 || plan->casts[0].tensor == budgets[i].first, "%s",
                  budgets[i].name);
        check_ops(budgets[i].name, &world, plan, 1);
        wf_plan_free(plan);
        world_free(&world);
    }
}

/* Of a tensor of which readers want some rows alone, those are cast. */
Test(plan_casts, what_is_read_alone)
{
    static const struct hand_param params[] = {{"a", 64, 16}};
    static const struct hand_piece held[] = {{0, WF_DTYPE_F32, 64, 16, 0, 0, 0, 0, 0, 64, 16}, {0}};
    static const struct hand_piece rows_10[] = {{0, WF_DTYPE_BF16, 8, 16, 0, 10, 0, 0, 0, 8, 16},
                                                {0}};
    static const struct hand_piece rows_14[] = {{0, WF_DTYPE_BF16, 8, 16, 0, 14, 0, 0, 0, 8, 16},
                                                {0}};
    struct world world;
    struct wf_error error = {0};
    struct wf_plan *plan = NULL;
    hand_model(&world, params, 1);
    hand_rank(&world, WF_TRAIN, 0, held);
    hand_rank(&world, WF_INFER, 1, rows_10);
    hand_rank(&world, WF_INFER, 1, rows_14);
    hand_rank(&world, WF_INFER, 1, rows_14);
    world.input.policy.cast_bytes_max = ALL;
    cr_assert_eq(wf_plan_build(&world.input, &plan, &error), WF_OK, "%s", error.text);
    cr_assert_eq(plan->cast_count, 1);
    cr_assert_eq(plan->casts[0].first, 10u * 16);
    cr_assert_eq(plan->casts[0].elements, 12u * 16);
    cr_assert_eq(plan->casts[0].saved, 12u * 16);
    check_ops("rows", &world, plan, 1);
    wf_plan_free(plan);
    world_free(&world);
}

/* A tensor larger than the budget, of which pairs of readers want a quarter of the rows each; or
 * every fourth column of all of them, of which no part pays. */
Test(plan_casts, a_part_of_what_does_not_fit)
{
    static const struct hand_param params[] = {{"a", 64, 16}};
    static const struct hand_piece held[] = {{0, WF_DTYPE_F32, 64, 16, 0, 0, 0, 0, 0, 64, 16}, {0}};
    static const struct {
        const char *name;
        bool columns;
        uint64_t budget;
        uint32_t elements; /* that are cast; 0: none */
    } parts[] = {
        {"all fits", false, 2048, 1024},
        {"three quarters", false, 2047, 768},
        {"one quarter and some", false, 1023, 256},
        {"not a quarter", false, 511, 0},
        {"columns, all fits", true, 2048, 1024},
        {"columns", true, 2047, 0},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        struct world world;
        struct wf_error error = {0};
        struct wf_plan *plan = NULL;
        hand_model(&world, params, 1);
        hand_rank(&world, WF_TRAIN, 0, held);
        for (uint32_t r = 0; r < 8; r++) {
            uint32_t at = r / 2;
            const struct hand_piece some[] = {
                {0, WF_DTYPE_BF16, 16, 16, 0, 16 * at, 0, 0, 0, 16, 16}, {0}};
            const struct hand_piece columns[] = {
                {0, WF_DTYPE_BF16, 64, 4, 0, 0, 4 * at, 0, 0, 64, 4}, {0}};
            hand_rank(&world, WF_INFER, 1, parts[i].columns ? columns : some);
        }
        world.input.policy.cast_bytes_max = parts[i].budget;
        cr_assert_eq(wf_plan_build(&world.input, &plan, &error), WF_OK, "%s", error.text);
        cr_assert_eq(plan->cast_count, parts[i].elements > 0, "%s", parts[i].name);
        if (plan->cast_count > 0) {
            cr_expect_eq(plan->casts[0].first, 0, "%s", parts[i].name);
            cr_expect_eq(plan->casts[0].elements, parts[i].elements, "%s: %" PRIu64, parts[i].name,
                         plan->casts[0].elements);
            cr_expect_eq(plan->casts[0].saved, parts[i].elements, "%s", parts[i].name);
        }
        cr_expect_eq(plan->cast_once_bytes, 2 * 2 * parts[i].elements, "%s", parts[i].name);
        check_ops(parts[i].name, &world, plan, 1);
        wf_plan_free(plan);
        world_free(&world);
    }
}
