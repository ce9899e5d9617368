/* test_serving.c - what the serving engines' rules give, against vectors of stages, vocabularies,
 * slots of experts and shares of gpt-oss's experts.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "golden.h"
#include "models/engines/engine.h"
#include "models/layout.h"

static const struct wf_engine *const serving[] = {&wf_engine_vllm, &wf_engine_sglang};
enum { SERVING = sizeof serving / sizeof serving[0] };

static struct wf_model *parse(const char *config)
{
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK, "%s",
                 error.text);
    return model;
}

Test(serving, pipelines)
{
    struct json_object *root = golden_json("tests/golden/vectors/engine_pp.json");
    struct json_object *cases = golden_get(root, "cases");
    struct wf_model *tiny = golden_model("tests/golden/models/tiny-qwen3.json");
    for (size_t i = 0; i < json_object_array_length(cases) * SERVING; i++) {
        struct json_object *it = json_object_array_get_idx(cases, i / SERVING);
        const struct wf_engine *engine = serving[i % SERVING];
        struct wf_model model = *tiny;
        model.layers = golden_number(it, "layers");
        struct wf_recipe recipe = {.engine = engine, .pp = golden_number(it, "pp")};
        uint32_t next = 0;
        for (uint32_t pp = 0; pp < recipe.pp; pp++) {
            struct wf_chunk chunk;
            uint32_t count = 0;
            cr_assert_eq(engine->chunks(&model, &recipe, pp, &chunk, &count, NULL), WF_OK);
            cr_expect_eq(chunk.layer_count, golden_at(golden_get(it, engine->name), pp),
                         "%s case %zu stage %u", engine->name, i / SERVING, pp);
            cr_expect_eq(chunk.first_layer, next, "%s case %zu stage %u", engine->name, i, pp);
            cr_expect_eq(chunk.embedding, pp == 0);
            cr_expect_eq(chunk.head, pp == recipe.pp - 1);
            next += chunk.layer_count;
        }
        cr_expect_eq(next, model.layers, "%s case %zu", engine->name, i / SERVING);
    }
    json_object_put(root);
    wf_model_free(tiny);
}

Test(serving, vocabularies_are_padded)
{
    struct json_object *root = golden_json("tests/golden/vectors/vocab_padding.json");
    struct json_object *cases = golden_get(root, "cases");
    for (size_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *it = json_object_array_get_idx(cases, i);
        uint32_t tp = golden_number(it, "tp"), div = golden_number(it, "div");
        char config[512], specs[3][64];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 1, "
                 "\"vocab_size\": %u, \"num_attention_heads\": 8, \"intermediate_size\": 8}",
                 golden_number(it, "vocab"));
        snprintf(specs[0], sizeof specs[0], "megatron:tp=%u,vocab_div=%u", tp, div * tp);
        snprintf(specs[1], sizeof specs[1], "vllm:tp=%u", tp);
        snprintf(specs[2], sizeof specs[2], "sglang:tp=%u", tp);
        struct wf_model *model = parse(config);
        for (unsigned side = 0; side < 3; side++) {
            struct wf_recipe recipe;
            struct wf_layout *layout = NULL;
            struct wf_error error = {0};
            cr_assert_eq(wf_recipe_parse(specs[side], model, &recipe, &error), WF_OK, "%s",
                         error.text);
            cr_assert_eq(wf_layout_derive(model, &recipe, 0, &layout, &error), WF_OK);
            cr_expect_eq(layout->tensors[0].shape[0] * tp,
                         golden_number(it, side ? "engine64" : "megatron"), "case %zu %s", i,
                         specs[side]);
            wf_layout_free(layout);
        }
        wf_model_free(model);
    }
    json_object_put(root);
}

/* --- experts --------------------------------------------------------------------------------- */

static void expect_slots(const struct wf_model *model, const char *spec, uint32_t rank,
                         const uint32_t *expected, uint32_t count)
{
    struct wf_recipe recipe;
    struct wf_error error = {0};
    static uint32_t slots[WF_SLOTS_MAX];
    uint32_t found = 0;
    cr_assert_eq(wf_recipe_parse(spec, NULL, &recipe, &error), WF_OK, "%s: %s", spec, error.text);
    struct wf_coordinates at = wf_recipe_coordinates(&recipe, rank);
    cr_assert_eq(recipe.engine->experts(model, &recipe, &at, 0, slots, &found, &error), WF_OK,
                 "%s: %s", spec, error.text);
    cr_expect_eq(found, count, "%s rank %u", spec, rank);
    for (uint32_t i = 0; i < found && i < count; i++) {
        cr_expect_eq(slots[i], expected[i], "%s rank %u slot %u", spec, rank, i);
    }
}

static void expect_ranks(const struct wf_model *model, const char *spec, struct json_object *ranks)
{
    for (uint32_t rank = 0; rank < json_object_array_length(ranks); rank++) {
        struct json_object *list = json_object_array_get_idx(ranks, rank);
        uint32_t expected[64], count = (uint32_t)json_object_array_length(list);
        for (uint32_t i = 0; i < count; i++) {
            expected[i] = golden_at(list, i);
        }
        expect_slots(model, spec, rank, expected, count);
    }
}

/* Slots of all ranks in one list, dealt out contiguously. */
static void expect_dealt(const struct wf_model *model, const char *spec, uint32_t ranks,
                         struct json_object *list)
{
    uint32_t expected[64], count = (uint32_t)json_object_array_length(list) / ranks;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        for (uint32_t i = 0; i < count; i++) {
            expected[i] = golden_at(list, rank * count + i);
        }
        expect_slots(model, spec, rank, expected, count);
    }
}

Test(serving, experts_are_placed)
{
    struct json_object *root = golden_json("tests/golden/vectors/expert_placement.json");
    struct json_object *cases = golden_get(root, "cases");
    for (size_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *it = json_object_array_get_idx(cases, i);
        uint32_t experts = golden_number(it, "experts"), ep = golden_number(it, "ep");
        char config[1024], spec[96];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 8, \"num_hidden_layers\": 1, "
                 "\"vocab_size\": 64, \"num_attention_heads\": 16, \"intermediate_size\": 8, "
                 "\"moe_intermediate_size\": 8, \"n_routed_experts\": %u, \"n_shared_experts\": 1, "
                 "\"first_k_dense_replace\": 0, \"moe_layer_freq\": 1, \"n_group\": 2, "
                 "\"topk_method\": \"noaux_tc\", \"q_lora_rank\": 8, \"kv_lora_rank\": 8, "
                 "\"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 8, \"v_head_dim\": 8}",
                 experts);
        struct wf_model *model = parse(config);
        snprintf(spec, sizeof spec, "vllm:tp=%u,ep=%u", ep, ep);
        expect_ranks(model, spec, golden_get(it, "linear"));
        snprintf(spec, sizeof spec, "vllm:tp=%u,ep=%u,strategy=round_robin", ep, ep);
        expect_ranks(model, spec, golden_get(it, "round_robin"));
        if (experts % ep == 0) {
            snprintf(spec, sizeof spec, "sglang:tp=%u,ep=%u", ep, ep);
            expect_ranks(model, spec, golden_get(it, "linear"));
        }
        struct json_object *initial =
            golden_get(it, "eplb_initial_physical_to_logical_with_redundant_4");
        for (unsigned engine = 0; engine < SERVING && (experts + 4) % ep == 0; engine++) {
            snprintf(spec, sizeof spec, "%s:tp=%u,ep=%u,redundant=4", serving[engine]->name, ep,
                     ep);
            expect_dealt(model, spec, ep, initial);
        }
        wf_model_free(model);
    }
    json_object_put(root);
}

/* The elements of a tensor's first slot that show one parameter: how many, and the first. */
static uint64_t shown(const struct wf_layout *layout, uint32_t tensor, uint32_t param,
                      uint64_t *first_out)
{
    uint64_t count = 0;
    *first_out = UINT64_MAX;
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        if (piece->tensor == tensor && piece->kind == WF_PIECE_DATA && piece->param == param) {
            struct wf_nest nest = wf_layout_nest(layout, i);
            count += wf_nest_elements(&nest);
            *first_out = piece->param_first < *first_out ? piece->param_first : *first_out;
        }
    }
    return count;
}

#define SMALL                                                                   \
    "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"vocab_size\": 64, "       \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, " \
    "\"intermediate_size\": 24, \"torch_dtype\": \"bfloat16\", "
#define ROUTED "\"num_experts\": 4, \"moe_intermediate_size\": 8, "
#define SHARED                                                                         \
    "\"n_routed_experts\": 4, \"moe_intermediate_size\": 8, \"n_shared_experts\": 1, " \
    "\"first_k_dense_replace\": 1, \"topk_method\": \"noaux_tc\", "
#define LATENT                                                             \
    "\"q_lora_rank\": 12, \"kv_lora_rank\": 12, \"qk_nope_head_dim\": 8, " \
    "\"qk_rope_head_dim\": 4, \"v_head_dim\": 8, "

/* Where there are no experts a placement is not looked at: not in dense layers, whose rows may hold
 * anything, and not in the blocks of a vision tower, of which there may be more than layers. */
Test(serving, a_placement_is_read_where_experts_are)
{
    static const uint32_t table[] = {0, 0, 0, 0, 3, 2, 1, 0};
    /* of two layers, the second of which has experts */
    static const char *const configs[] = {
        "{\"model_type\": \"deepseek_v3\", " SMALL SHARED LATENT "\"tie_word_embeddings\": false}",
        "{\"model_type\": \"qwen3_vl_moe\", \"tie_word_embeddings\": false, "
        "\"text_config\": {" SMALL ROUTED "\"mlp_only_layers\": [0]}, \"vision_config\": {"
        "\"depth\": 3, \"hidden_size\": 16, \"num_heads\": 2, \"intermediate_size\": 24, "
        "\"patch_size\": 2, \"temporal_patch_size\": 2, \"in_channels\": 3, "
        "\"spatial_merge_size\": 2, \"out_hidden_size\": 32, "
        "\"num_position_embeddings\": 16, \"deepstack_visual_indexes\": [0]}}",
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0] * SERVING; i++) {
        if (i / SERVING == 1 && serving[i % SERVING] == &wf_engine_sglang) {
            continue; /* its class has no dense layers; DeepSeek's has */
        }
        struct wf_model *model = parse(configs[i / SERVING]);
        struct wf_placement placement = {.layers = 2, .slots = 4, .experts = table};
        struct wf_recipe recipe;
        struct wf_layout *layout = NULL;
        struct wf_error error = {0};
        char spec[64];
        snprintf(spec, sizeof spec, "%s:tp=2,ep=2", serving[i % SERVING]->name);
        cr_assert_eq(wf_recipe_parse(spec, model, &recipe, &error), WF_OK, "%s: %s", spec,
                     error.text);
        recipe.placement = &placement;
        cr_assert_eq(wf_layout_derive(model, &recipe, 0, &layout, &error), WF_OK, "%s: %s", spec,
                     error.text);
        uint32_t row = wf_family_find_row(model->family, 0, "expert_down", 11), tensor = 0;
        while (tensor < layout->tensor_count &&
               !(strstr(layout->tensors[tensor].name, "layers.1.mlp.experts.") &&
                 strstr(layout->tensors[tensor].name, "w2_weight"))) {
            tensor++;
        }
        cr_assert_lt(tensor, layout->tensor_count, "%s", spec);
        for (uint32_t expert = 0; expert < 4; expert++) {
            uint64_t first = 0;
            uint32_t param = wf_model_param(model, 0, 1, row, expert);
            cr_expect_eq(shown(layout, tensor, param, &first), expert >= 2 ? 32 * 8 : 0,
                         "%s expert %u", spec, expert);
        }
        wf_layout_free(layout);
        wf_model_free(model);
    }
}

/* Classes of SGLang with a head of their own even where it is tied: no checkpoint fills it. */
Test(serving, a_tied_head_that_nothing_fills_is_refused)
{
    static const char *const configs[] = {
        "{\"model_type\": \"qwen3_moe\", " SMALL ROUTED "\"tie_word_embeddings\": true}",
        "{\"model_type\": \"qwen2_moe\", " SMALL ROUTED "\"tie_word_embeddings\": true, "
        "\"shared_expert_intermediate_size\": 8}",
        "{\"model_type\": \"mixtral\", " SMALL "\"num_local_experts\": 4, "
        "\"tie_word_embeddings\": true}",
        "{\"model_type\": \"glm4_moe\", " SMALL SHARED "\"tie_word_embeddings\": true}",
        "{\"model_type\": \"glm4_moe_lite\", " SMALL SHARED LATENT "\"tie_word_embeddings\": true}",
        "{\"model_type\": \"gpt_oss\", " SMALL "\"num_local_experts\": 4, "
        "\"attention_bias\": true, \"tie_word_embeddings\": true}",
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct wf_model *model = parse(configs[i]);
        struct wf_recipe recipe;
        struct wf_error error = {0};
        cr_expect_eq(wf_recipe_parse("sglang:tp=2", model, &recipe, &error), WF_UNSUPPORTED, "%s",
                     configs[i]);
        cr_expect(strstr(error.text, "a head of its own that nothing fills"), "%s: %s", configs[i],
                  error.text);
        cr_expect_eq(wf_recipe_parse("fsdp:dp=2", model, &recipe, &error), WF_OK, "%s: %s",
                     configs[i], error.text);
        wf_model_free(model);
    }
}

/* Where the shared expert is fused into the slots by itself (GLM-4.5 without ep), where it is not,
 * and redundant slots. */
Test(serving, a_fused_shared_expert_behind_redundant_ones_is_refused)
{
    static const struct {
        const char *spec;
        bool refused;
    } rows[] = {
        {"sglang:tp=2", false},
        {"sglang:tp=2,redundant=2", true},
        {"sglang:tp=2,redundant=2,shared_experts=fused", true},
        {"sglang:tp=2,redundant=2,shared_experts=separate", false},
        {"sglang:tp=2,ep=2,redundant=2", false},
    };
    struct wf_model *model =
        parse("{\"model_type\": \"glm4_moe\", " SMALL SHARED "\"tie_word_embeddings\": false}");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_recipe recipe;
        struct wf_error error = {0};
        enum wf_status status = wf_recipe_parse(rows[i].spec, model, &recipe, &error);
        cr_expect_eq(status, rows[i].refused ? WF_UNSUPPORTED : WF_OK, "%s: %s", rows[i].spec,
                     error.text);
        cr_expect(!rows[i].refused || strstr(error.text, "separate"), "%s: %s", rows[i].spec,
                  error.text);
    }
    wf_model_free(model);
}

Test(serving, experts_are_dealt_out_only_where_there_are_some)
{
    struct wf_model *model = golden_model("tests/golden/models/tiny-qwen3.json");
    struct wf_recipe recipe;
    struct wf_error error = {0};
    cr_expect_eq(wf_recipe_parse("sglang:tp=2,ep=2", model, &recipe, &error), WF_UNSUPPORTED);
    cr_expect(strstr(error.text, "no experts"), "%s", error.text);
    wf_model_free(model);
}

/* Shares of mxfp4 experts are whole blocks of 32, the last one short. */
Test(serving, gptoss_shares)
{
    struct json_object *root = golden_json("tests/golden/vectors/gptoss_tp.json");
    struct json_object *cases = golden_get(root, "cases");
    for (size_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *it = json_object_array_get_idx(cases, i);
        struct json_object *ranges = golden_get(it, "ranges");
        uint32_t tp = golden_number(it, "tp");
        char config[768], spec[64];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"gpt_oss\", \"hidden_size\": 64, \"num_hidden_layers\": 1, "
                 "\"vocab_size\": 64, \"num_attention_heads\": 8, \"num_key_value_heads\": 8, "
                 "\"head_dim\": 8, \"intermediate_size\": %u, \"num_local_experts\": 8, "
                 "\"attention_bias\": true, \"torch_dtype\": \"bfloat16\", "
                 "\"quantization_config\": {\"quant_method\": \"mxfp4\"}}",
                 golden_number(it, "intermediate"));
        struct wf_model *model = parse(config);
        for (uint32_t rank = 0; rank < tp * SERVING; rank++) {
            const struct wf_engine *engine = serving[rank % SERVING];
            struct json_object *range = json_object_array_get_idx(ranges, rank / SERVING);
            uint64_t low = golden_at(range, 0), high = golden_at(range, 1), first = 0;
            struct wf_recipe recipe;
            struct wf_layout *layout = NULL;
            struct wf_error error = {0};
            snprintf(spec, sizeof spec, "%s:tp=%u", engine->name, tp);
            cr_assert_eq(wf_recipe_parse(spec, model, &recipe, &error), WF_OK, "%s: %s", spec,
                         error.text);
            cr_assert_eq(wf_layout_derive(model, &recipe, rank / SERVING, &layout, &error), WF_OK,
                         "%s: %s", spec, error.text);
            uint32_t row = wf_family_find_row(model->family, 0, "expert_gate_scale", 17);
            uint32_t param = wf_model_param(model, 0, 0, row, 0), tensor = 0;
            while (tensor < layout->tensor_count &&
                   !strstr(layout->tensors[tensor].name, "w13_weight_scale")) {
                tensor++;
            }
            cr_assert_lt(tensor, layout->tensor_count, "%s", spec);
            uint64_t columns = model->params[param].shape[1];
            cr_expect_eq(shown(layout, tensor, param, &first), (high - low) * columns, "%s rank %u",
                         spec, rank / SERVING);
            cr_expect_eq(first, low * columns, "%s rank %u", spec, rank / SERVING);
            wf_layout_free(layout);
        }
        wf_model_free(model);
    }
    json_object_put(root);
}
