/* test_assemble.c - which matrices count as cut, and that a target's planned layout stays what it
 * is when other experts stand in its slots. What comes of it: tests/layouts/test_quantised.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "models/assemble.h"
#include "models/prepare.h"

enum { RANKS_MAX = 8, LAYERS = 2, EXPERTS = 8, SLOTS = 16 };

static const char config[] =
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 256, \"num_hidden_layers\": 2, "
    "\"vocab_size\": 64, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 128, \"intermediate_size\": 512, \"num_experts\": 8, "
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 256, \"decoder_sparse_step\": 1, "
    "\"mlp_only_layers\": [], \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

struct world {
    struct wf_model *model;
    struct wf_recipe recipes[2];
    struct wf_layout *sources[RANKS_MAX];
    uint32_t count;
    struct wf_cuts *cuts;
};

/* `prepared`: sources give what they prepare; else only their own tensors, as a replica does. */
static void make(struct world *world, const char *train, const char *infer, bool prepared)
{
    struct wf_error error = {0};
    struct wf_model *plain = NULL;
    const struct wf_recipe *both[] = {&world->recipes[0], &world->recipes[1]};
    const char *specs[] = {train, infer};
    *world = (struct world){0};
    cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &plain, &error), WF_OK);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(wf_recipe_parse(specs[i], NULL, &world->recipes[i], &error), WF_OK, "%s",
                     error.text);
    }
    cr_assert_eq(wf_model_for_job(plain, both, 2, &world->model, &error), WF_OK, "%s", error.text);
    wf_model_free(plain);
    world->count = wf_recipe_world(&world->recipes[0]);
    for (uint32_t r = 0; r < world->count; r++) {
        struct wf_layout *own = NULL;
        cr_assert_eq(wf_layout_derive(world->model, &world->recipes[0], r, &own, &error), WF_OK,
                     "%s", error.text);
        world->sources[r] = own;
        if (prepared) {
            cr_assert_eq(wf_prepare_derive(world->model, own, &world->sources[r], NULL, &error),
                         WF_OK);
            wf_layout_free(own);
        }
    }
    cr_assert_eq(wf_cuts_find(world->model, (const struct wf_layout *const *)world->sources,
                              world->count, &world->cuts, &error),
                 WF_OK);
}

static void drop(struct world *world)
{
    for (uint32_t r = 0; r < world->count; r++) {
        wf_layout_free(world->sources[r]);
    }
    wf_cuts_free(world->cuts);
    wf_model_free(world->model);
}

/* How many pairs are cut of matrices whose name has `part`; UINT32_MAX: in another dtype. */
static uint32_t cut(const struct world *world, const char *part, enum wf_dtype dtype)
{
    const struct wf_variants *v = world->model->variants;
    uint32_t count = 0;
    for (uint32_t p = 0; world->cuts != NULL && p < v->pair_count; p++) {
        const char *name = world->model->params[v->pairs[p].matrix].name;
        if (world->cuts->dtypes[p] == WF_DTYPE_NONE || strstr(name, part) == NULL) {
            continue;
        }
        if (world->cuts->dtypes[p] != dtype) {
            return UINT32_MAX;
        }
        count++;
    }
    return count;
}

static const struct {
    const char *name, *train;
    bool prepared;
    enum wf_dtype dtype;
    uint32_t attention, experts; /* matrices that are cut */
} rows[] = {
    {"whole blocks", "megatron:tp=2,ep=2,etp=1", true, WF_DTYPE_BF16, 0, 0},
    {"copies of them", "megatron:tp=2,dp=2", true, WF_DTYPE_BF16, 0, 0},
    {"heads that are cut: rows of q, k, v, columns of o", "fsdp:dp=3", true, WF_DTYPE_BF16, 8, 0},
    {"one expert that is cut, all of its role", "fsdp:dp=3,flat=1", true, WF_DTYPE_BF16, 0, 16},
    {"in the trainer's own dtype", "fsdp:dp=3,dtype=f32", true, WF_DTYPE_F32, 8, 0},
    {"a replica", "vllm:tp=2", false, WF_DTYPE_BF16, 8, 48},
    {"a folder", "hf:", false, WF_DTYPE_BF16, 8, 48},
};

Test(assemble, what_is_cut)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world world;
        make(&world, rows[i].train, "vllm:quant=vllm", rows[i].prepared);
        cr_expect_eq(cut(&world, "self_attn", rows[i].dtype), rows[i].attention, "%s: %u",
                     rows[i].name, cut(&world, "self_attn", rows[i].dtype));
        cr_expect_eq(cut(&world, "experts", rows[i].dtype), rows[i].experts, "%s: %u", rows[i].name,
                     cut(&world, "experts", rows[i].dtype));
        cr_expect_eq(world.cuts == NULL, rows[i].attention + rows[i].experts == 0, "%s",
                     rows[i].name);
        drop(&world);
    }
}

/* Of whole rows FSDP2's shards divide none, Megatron's only those of columns. */
Test(assemble, rows_are_cut_where_columns_are)
{
    static const struct {
        const char *train;
        uint32_t attention, experts;
    } by_row[] = {{"fsdp:dp=3", 0, 0}, {"megatron:tp=2", 2, 16}, {"vllm:tp=2", 2, 16}};
    for (size_t i = 0; i < sizeof by_row / sizeof by_row[0]; i++) {
        struct world world;
        make(&world, by_row[i].train, "sglang:tp=2,quant=channel_div", true);
        cr_expect_eq(cut(&world, "self_attn", WF_DTYPE_BF16), by_row[i].attention, "%s: %u",
                     by_row[i].train, cut(&world, "self_attn", WF_DTYPE_BF16));
        cr_expect_eq(cut(&world, "experts", WF_DTYPE_BF16), by_row[i].experts, "%s: %u",
                     by_row[i].train, cut(&world, "experts", WF_DTYPE_BF16));
        drop(&world);
    }
}

/* q_proj has 512 rows: ranks have 0..170, 171..341 and 342..511 of them. */
Test(assemble, where_it_is_cut)
{
    static const struct wf_cut_region wanted[] = {
        {{0, 128}, {0, 256}, false}, {{128, 384}, {0, 256}, true}, {{384, 512}, {0, 256}, false}};
    struct world world;
    make(&world, "fsdp:dp=3", "vllm:quant=vllm", true);
    const struct wf_variants *v = world.model->variants;
    for (uint32_t p = 0; p < v->pair_count; p++) {
        const struct wf_cut_region *regions = world.cuts->regions + world.cuts->first[p];
        uint32_t count = world.cuts->first[p + 1] - world.cuts->first[p];
        cr_expect_eq(count == 0, world.cuts->dtypes[p] == WF_DTYPE_NONE);
        if (strstr(world.model->params[v->pairs[p].matrix].name, "q_proj") == NULL) {
            continue;
        }
        cr_assert_eq(count, 3);
        for (uint32_t i = 0; i < count; i++) {
            cr_expect(memcmp(regions[i].rows, wanted[i].rows, sizeof wanted[i].rows) == 0 &&
                          memcmp(regions[i].columns, wanted[i].columns, sizeof wanted[i].columns) ==
                              0 &&
                          regions[i].cut == wanted[i].cut,
                      "region %u", i);
        }
    }
    drop(&world);
}

static struct wf_layout *plan_rank(const struct world *world, const uint32_t *table, uint32_t rank)
{
    const struct wf_placement placement = {.layers = LAYERS, .slots = SLOTS, .experts = table};
    struct wf_recipe recipe = world->recipes[1];
    struct wf_layout *own = NULL, *planned = NULL;
    struct wf_error error = {0};
    recipe.placement = table != NULL ? &placement : NULL;
    cr_assert_eq(wf_layout_derive(world->model, &recipe, rank, &own, &error), WF_OK, "%s",
                 error.text);
    cr_assert_eq(wf_assemble_derive(world->model, own, world->cuts, &planned, NULL, &error), WF_OK);
    cr_assert_not_null(planned);
    cr_expect_lt(own->tensor_count, planned->tensor_count);
    wf_layout_free(own);
    return planned;
}

/* A rank may get an expert twice, which it has once by the rule. */
Test(assemble, a_table_changes_which_experts_alone)
{
    struct world world;
    uint32_t table[LAYERS * SLOTS];
    for (uint32_t i = 0; i < LAYERS * SLOTS; i++) {
        table[i] = i % SLOTS < EXPERTS ? i % EXPERTS : (i % SLOTS + 3) % EXPERTS;
    }
    table[0] = table[1] = table[2] = 5;
    table[5] = 0;
    table[9] = 1;
    table[10] = 2;
    make(&world, "fsdp:dp=3,flat=1", "sglang:tp=2,ep=2,redundant=8,quant=vllm", true);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct wf_layout *rule = plan_rank(&world, NULL, rank);
        struct wf_layout *placed = plan_rank(&world, table, rank);
        bool alike =
            rule->tensor_count == placed->tensor_count && rule->piece_count == placed->piece_count;
        cr_expect(alike, "rank %u", rank);
        uint32_t others = 0;
        for (uint32_t i = 0; alike && i < rule->piece_count; i++) {
            const struct wf_piece *a = &rule->pieces[i], *b = &placed->pieces[i];
            cr_expect(a->kind == b->kind && a->tensor == b->tensor &&
                          a->tensor_offset == b->tensor_offset &&
                          a->param_first == b->param_first && a->count == b->count,
                      "rank %u, piece %u", rank, i);
            others += a->param != b->param;
        }
        cr_expect_gt(others, 0, "rank %u", rank);
        wf_layout_free(rule);
        wf_layout_free(placed);
    }
    drop(&world);
}
