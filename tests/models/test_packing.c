/* test_packing.c - which row of a checkpoint stands at which row of a fused or cut tensor, against
 * vectors: q, k and v, delta nets, torch's chunks. Models have a hidden size of 1, so that elements
 * are rows.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "golden.h"
#include "models/engines/engine.h"
#include "models/layout.h"

enum { ROWS_MAX = 128 };

static struct wf_model *parse(const char *config)
{
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK, "%s: %s",
                 config, error.text);
    return model;
}

/* Where the rows of a role begin in the vector's own numbering, or a list of them. */
struct numbering {
    const char *role;
    uint32_t base;
    struct json_object *map;
};

static uint32_t number_of(const struct numbering *numbering, const char *role, uint64_t row)
{
    while (numbering->role && strcmp(numbering->role, role) != 0) {
        numbering++;
    }
    cr_assert(numbering->role, "no rows of %s expected here", role);
    return numbering->map ? golden_at(numbering->map, row) : numbering->base + (uint32_t)row;
}

/* Writes the number of the row that stands at each row of a tensor. */
static void expand_rows(const struct wf_model *model, const struct wf_layout *layout,
                        const char *name, const struct numbering *numbering, uint32_t *rows)
{
    uint32_t tensor = wf_layout_find(layout, name, strlen(name)), written = 0;
    cr_assert_neq(tensor, UINT32_MAX, "no tensor %s", name);
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        if (layout->pieces[i].tensor != tensor) {
            continue;
        }
        const struct wf_param *param = &model->params[layout->pieces[i].param];
        struct wf_nest nest = wf_layout_nest(layout, i);
        uint64_t count = wf_nest_elements(&nest);
        for (uint64_t n = 0; n < count; n++) {
            uint64_t element = nest.param_first, offset = nest.tensor_offset, rest = n;
            for (uint32_t a = nest.axis_count; a-- > 0;) {
                uint64_t digit = rest % nest.axes[a].count;
                rest /= nest.axes[a].count;
                element += digit * nest.axes[a].param_step;
                offset += digit * (uint64_t)nest.axes[a].tensor_step;
            }
            cr_assert_lt(offset / 4, ROWS_MAX);
            rows[offset / 4] = number_of(numbering, model->family->rows[param->row].role, element);
            written++;
        }
    }
    cr_assert_eq(written, layout->tensors[tensor].shape[0], "%s", name);
}

/* Every rank's rows of a tensor, against a list for each rank. */
static void expect_rows(const struct wf_model *model, const char *spec, const char *tensor,
                        const struct numbering *numbering, struct json_object *ranks)
{
    struct wf_recipe recipe;
    struct wf_error error = {0};
    cr_assert_eq(wf_recipe_parse(spec, model, &recipe, &error), WF_OK, "%s", error.text);
    for (uint32_t rank = 0; rank < json_object_array_length(ranks); rank++) {
        struct json_object *expected = json_object_array_get_idx(ranks, rank);
        struct wf_layout *layout = NULL;
        uint32_t rows[ROWS_MAX];
        cr_assert_eq(wf_layout_derive(model, &recipe, rank, &layout, &error), WF_OK, "%s",
                     error.text);
        expand_rows(model, layout, tensor, numbering, rows);
        for (uint32_t i = 0; i < json_object_array_length(expected); i++) {
            cr_expect_eq(rows[i], golden_at(expected, i), "%s %s rank %u row %u", spec, tensor,
                         rank, i);
        }
        wf_layout_free(layout);
    }
}

/* --- q, k and v ------------------------------------------------------------------------------ */

#define NEXT                                                                   \
    ", \"num_experts\": 8, \"moe_intermediate_size\": 8, "                     \
    "\"shared_expert_intermediate_size\": 8, \"full_attention_interval\": 1, " \
    "\"linear_num_key_heads\": 8, \"linear_num_value_heads\": 8, "             \
    "\"linear_key_head_dim\": 1, \"linear_value_head_dim\": 1"
#define LING                                                                          \
    ", \"num_experts\": 8, \"moe_intermediate_size\": 8, \"num_shared_experts\": 1, " \
    "\"first_k_dense_replace\": 1, \"use_qk_norm\": true, \"use_qkv_bias\": false, "  \
    "\"use_bias\": false"
/* All layers but the last are lightning attention. */
#define LIGHTNING                                                                   \
    LING ", \"layer_group_size\": 2, \"group_norm_size\": 8, \"kv_lora_rank\": 4, " \
         "\"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 4, \"v_head_dim\": 4, "    \
         "\"q_lora_rank\": 4, \"full_attention_type\": \"mla\""

static const struct {
    const char *type, *keys, *qkv; /* qkv: the one role of a checkpoint that fuses all three */
    bool gated, lightning;
} kinds[] = {
    {"llama", "", NULL, false, false},
    {"qwen3_next", NEXT, NULL, true, false},
    {"bailing_moe_v2", LING, "qkv", false, false},
    {"bailing_hybrid", LIGHTNING, "qkv", false, true},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static struct wf_model *qkv_model(uint32_t heads, uint32_t kv_heads, uint32_t head_dim,
                                  unsigned kind)
{
    char config[1024];
    snprintf(config, sizeof config,
             "{\"model_type\": \"%s\", \"hidden_size\": 1, \"num_hidden_layers\": 2, "
             "\"vocab_size\": 64, \"num_attention_heads\": %u, \"num_key_value_heads\": %u, "
             "\"head_dim\": %u, \"intermediate_size\": 8, \"torch_dtype\": \"float32\"%s}",
             kinds[kind].type, heads, kv_heads, head_dim, kinds[kind].keys);
    return parse(config);
}

static unsigned compare_qkv(struct json_object *it, unsigned kind)
{
    uint32_t nq = golden_number(it, "nq"), nk = golden_number(it, "nkv");
    uint32_t d = golden_number(it, "d"), k_base = (kinds[kind].gated ? 2 : 1) * nq * d;
    const struct numbering numbering[] = {
        {"q", 0, NULL}, {"k", k_base, NULL}, {"v", k_base + nk * d, NULL}, {"qkv", 0, NULL}, {0}};
    struct wf_model *model = qkv_model(nq, nk, d, kind);
    char spec[64];
    unsigned compared = 0;
    json_object_object_foreach(golden_get(it, "mcore_tp"), tp, ranks)
    {
        snprintf(spec, sizeof spec, "megatron:tp=%s", tp);
        expect_rows(model, spec, "decoder.layers.0.self_attention.linear_qkv.weight", numbering,
                    ranks);
        compared++;
    }
    json_object_object_foreach(golden_get(it, "engine_tp"), engine_tp, engine_ranks)
    {
        if (!kinds[kind].qkv) {
            snprintf(spec, sizeof spec, "vllm:tp=%s", engine_tp);
            expect_rows(model, spec, "model.layers.0.self_attn.qkv_proj.weight", numbering,
                        engine_ranks);
            compared++;
        }
    }
    wf_model_free(model);
    return compared;
}

/* A checkpoint that fuses q, k and v holds the rows that the vectors count; in lightning attention
 * each query head has a key and a value. */
Test(packing, query_key_value)
{
    struct json_object *root = golden_json("tests/golden/vectors/qkv_packing.json");
    struct json_object *cases = golden_get(root, "cases");
    unsigned compared[KINDS] = {0};
    for (size_t i = 0; i < json_object_array_length(cases) * KINDS; i++) {
        struct json_object *it = json_object_array_get_idx(cases, i / KINDS);
        unsigned kind = i % KINDS;
        bool gated = json_object_get_boolean(golden_get(it, "gated"));
        bool alike = golden_number(it, "nq") == golden_number(it, "nkv");
        if (gated == kinds[kind].gated && (alike || !kinds[kind].lightning)) {
            compared[kind] += compare_qkv(it, kind);
        }
    }
    for (unsigned kind = 0; kind < KINDS; kind++) {
        cr_expect_gt(compared[kind], 2, "%s", kinds[kind].type);
    }
    json_object_put(root);
}

/* --- delta nets ------------------------------------------------------------------------------ */

/* Qwen3-Next keeps rows of each key head together, Qwen3.5 each kind of row. */
static struct wf_model *delta_model(struct json_object *it, bool next)
{
    char text[1024], config[1280];
    snprintf(text, sizeof text,
             "\"hidden_size\": 1, \"num_hidden_layers\": 1, \"vocab_size\": 64, "
             "\"num_attention_heads\": 8, \"num_key_value_heads\": 8, \"head_dim\": 1, "
             "\"intermediate_size\": 8, \"torch_dtype\": \"float32\", "
             "\"num_experts\": %u, \"moe_intermediate_size\": 8, "
             "\"shared_expert_intermediate_size\": 8, \"linear_conv_kernel_dim\": 1, "
             "\"layer_types\": [\"linear_attention\"], \"linear_num_key_heads\": %u, "
             "\"linear_num_value_heads\": %u, \"linear_key_head_dim\": %u, "
             "\"linear_value_head_dim\": %u",
             next ? 8 : 0, golden_number(it, "nk"), golden_number(it, "nv"),
             golden_number(it, "dk"), golden_number(it, "dv"));
    snprintf(config, sizeof config,
             next ? "{\"model_type\": \"qwen3_next\", %s}"
                  : "{\"model_type\": \"qwen3_5\", \"tie_word_embeddings\": false, "
                    "\"text_config\": {\"model_type\": \"qwen3_5_text\", %s}}",
             text);
    return parse(config);
}

Test(packing, delta_nets)
{
    struct json_object *root = golden_json("tests/golden/vectors/gdn_packing.json");
    struct json_object *cases = golden_get(root, "cases");
    for (size_t i = 0; i < json_object_array_length(cases) * 2; i++) {
        struct json_object *it = json_object_array_get_idx(cases, i / 2);
        bool next = i % 2 == 0;
        uint32_t keys = golden_number(it, "nk") * golden_number(it, "dk");
        uint32_t values = golden_number(it, "nv") * golden_number(it, "dv");
        uint32_t z = 2 * keys + values, b = z + values, a = b + golden_number(it, "nv");
        const struct numbering numbering[] = {
            {"gdn_qkvz", 0, golden_get(it, "qwen3next_hf_in_proj_qkvz")},
            {"gdn_ba", 0, golden_get(it, "qwen3next_hf_in_proj_ba")},
            {"gdn_qkv", 0, NULL},
            {"gdn_z", z, NULL},
            {"gdn_b", b, NULL},
            {"gdn_a", a, NULL},
            {"gdn_conv", 0, NULL},
            {NULL, 0, NULL}};
        struct wf_model *model = delta_model(it, next);
        const char *top = next ? "" : "language_model.";
        char spec[64], name[128];
        snprintf(spec, sizeof spec, "megatron:tp=%u", golden_number(it, "tp"));
        snprintf(name, sizeof name, "%sdecoder.layers.0.self_attention.in_proj.weight", top);
        expect_rows(model, spec, name, numbering, golden_get(it, "mcore_in_proj"));
        snprintf(name, sizeof name, "%sdecoder.layers.0.self_attention.conv1d.weight", top);
        expect_rows(model, spec, name, numbering, golden_get(it, "conv1d"));
        wf_model_free(model);
    }
    json_object_put(root);
}

/* --- torch's chunks -------------------------------------------------------------------------- */

Test(packing, chunks)
{
    struct json_object *root = golden_json("tests/golden/vectors/fsdp_chunks.json");
    struct json_object *cases = golden_get(root, "cases");
    for (size_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *it = json_object_array_get_idx(cases, i);
        char config[512], spec[64];
        uint32_t world = golden_number(it, "world");
        snprintf(config, sizeof config,
                 "{\"model_type\": \"llama\", \"hidden_size\": 1, \"num_hidden_layers\": 1, "
                 "\"vocab_size\": %u, \"num_attention_heads\": 1, \"intermediate_size\": 8}",
                 golden_number(it, "n"));
        snprintf(spec, sizeof spec, "fsdp:dp=%u", world);
        struct wf_model *model = parse(config);
        struct wf_recipe recipe;
        struct wf_error error = {0};
        cr_assert_eq(wf_recipe_parse(spec, model, &recipe, &error), WF_OK, "%s", error.text);
        for (uint32_t rank = 0; rank < world; rank++) {
            struct json_object *range = json_object_array_get_idx(golden_get(it, "ranges"), rank);
            uint32_t first = golden_at(range, 0), end = golden_at(range, 1);
            struct wf_layout *layout = NULL;
            cr_assert_eq(wf_layout_derive(model, &recipe, rank, &layout, &error), WF_OK, "%s",
                         error.text);
            const char name[] = "model.embed_tokens.weight";
            uint32_t tensor = wf_layout_find(layout, name, strlen(name));
            cr_expect_eq(layout->tensors[tensor].shape[0], end - first, "%s rank %u", spec, rank);
            uint32_t pieces = 0;
            for (uint32_t p = 0; p < layout->piece_count; p++) {
                if (layout->pieces[p].tensor == tensor) {
                    cr_expect_eq(layout->pieces[p].param_first, first, "%s rank %u", spec, rank);
                    cr_expect_eq(layout->pieces[p].count, end - first, "%s rank %u", spec, rank);
                    pieces++;
                }
            }
            cr_expect_eq(pieces, end > first, "%s rank %u", spec, rank);
            wf_layout_free(layout);
        }
        wf_model_free(model);
    }
    json_object_put(root);
}
