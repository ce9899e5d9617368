/* test_trainers.c - what Megatron and FSDP refuse, and rules that no executed layout shows: order
 * of flat parameters, names by loader and spec, tensors that other stages have.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "golden.h"
#include "models/engines/engine.h"
#include "models/layout.h"

/* --- models ---------------------------------------------------------------------------------- */

#define BASE                                                                    \
    "\"hidden_size\": 16, \"num_hidden_layers\": 2, \"vocab_size\": 64, "       \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, " \
    "\"intermediate_size\": 24, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\""
#define EXPERTS \
    ", \"num_experts\": 4, \"moe_intermediate_size\": 8, \"shared_expert_intermediate_size\": 8"
#define LATENT                                                                           \
    ", \"n_routed_experts\": 4, \"moe_intermediate_size\": 8, \"n_shared_experts\": 1, " \
    "\"first_k_dense_replace\": 1, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 8, "      \
    "\"qk_rope_head_dim\": 4, \"v_head_dim\": 8, \"topk_method\": \"noaux_tc\", "        \
    "\"scoring_func\": \"sigmoid\""
#define DELTA                                                                                    \
    ", \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 4, " \
    "\"linear_value_head_dim\": 4, \"linear_conv_kernel_dim\": 4, \"full_attention_interval\": 2"
#define VISION(deep)                                                             \
    "\"vision_config\": {\"depth\": 2, \"hidden_size\": 16, \"num_heads\": 2, "  \
    "\"intermediate_size\": 24, \"patch_size\": 2, \"temporal_patch_size\": 2, " \
    "\"in_channels\": 3, \"spatial_merge_size\": 2, \"out_hidden_size\": 16, "   \
    "\"num_position_embeddings\": 16, \"deepstack_visual_indexes\": [" deep "]}"

static const struct {
    const char *name, *config;
} models[] = {
    {"llama", "{\"model_type\": \"llama\", " BASE "}"},
    {"tied", "{\"model_type\": \"qwen3\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "
             "\"vocab_size\": 64, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
             "\"head_dim\": 8, \"intermediate_size\": 24, \"tie_word_embeddings\": true, "
             "\"torch_dtype\": \"bfloat16\"}"},
    {"gemma", "{\"model_type\": \"gemma3_text\", " BASE "}"},
    {"mixtral", "{\"model_type\": \"mixtral\", \"num_local_experts\": 4, " BASE "}"},
    {"qwen2_moe", "{\"model_type\": \"qwen2_moe\", " BASE EXPERTS "}"},
    {"qwen3_moe", "{\"model_type\": \"qwen3_moe\", \"num_experts\": 4, "
                  "\"moe_intermediate_size\": 8, " BASE "}"},
    {"next", "{\"model_type\": \"qwen3_next\", " BASE EXPERTS DELTA "}"},
    {"deepseek",
     "{\"model_type\": \"deepseek_v3\", \"q_lora_rank\": 12, \"num_nextn_predict_layers\": 1, " BASE
         LATENT "}"},
    {"lite", "{\"model_type\": \"deepseek_v3\", \"q_lora_rank\": null, " BASE LATENT "}"},
    {"sparse", "{\"model_type\": \"deepseek_v32\", \"q_lora_rank\": 12, \"index_n_heads\": 2, "
               "\"index_head_dim\": 8, \"index_topk\": 4, " BASE LATENT "}"},
    {"kimi",
     "{\"model_type\": \"kimi_k25\", \"text_config\": {\"q_lora_rank\": 12, " BASE LATENT
     "}, \"vision_config\": {\"patch_size\": 2, \"vt_hidden_size\": 24, "
     "\"vt_num_hidden_layers\": 1, \"vt_num_attention_heads\": 2, \"vt_intermediate_size\": 20}}"},
    {"ling25",
     "{\"model_type\": \"bailing_hybrid\", \"num_experts\": 4, "
     "\"moe_intermediate_size\": 8, \"num_shared_experts\": 1, "
     "\"first_k_dense_replace\": 1, \"use_qk_norm\": true, \"use_qkv_bias\": false, "
     "\"use_bias\": false, \"layer_group_size\": 2, \"group_norm_size\": 2, "
     "\"kv_lora_rank\": 10, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4, "
     "\"v_head_dim\": 8, \"q_lora_rank\": 12, \"full_attention_type\": \"mla\", " BASE "}"},
    {"qwen35",
     "{\"model_type\": \"qwen3_5\", \"tie_word_embeddings\": false, \"text_config\": {" BASE DELTA
     "}, " VISION("") "}"},
    {"vl", "{\"model_type\": \"qwen3_vl\", \"tie_word_embeddings\": false, \"text_config\": {" BASE
           "}, " VISION("0") "}"},
};

static struct wf_model *model_of(const char *name)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strcmp(models[i].name, name) == 0) {
            struct wf_model *model = NULL;
            struct wf_error error = {0};
            const char *config = models[i].config;
            cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK,
                         "%s: %s", name, error.text);
            return model;
        }
    }
    cr_assert_fail("no model %s", name);
    return NULL;
}

/* --- refusals -------------------------------------------------------------------------------- */

Test(trainers, what_is_not_run_is_refused_by_name)
{
    static const struct {
        const char *model, *spec;
        enum wf_status status;
        const char *fragment;
    } rows[] = {
        {"lite", "megatron:", WF_UNSUPPORTED, "linear_q_proj.layer_norm_weight"},
        {"lite", "megatron:version=0.16", WF_OK, ""},
        {"deepseek", "megatron:", WF_OK, ""},
        {"deepseek", "megatron:names=local", WF_UNSUPPORTED, "experts=sequential"},
        {"deepseek", "megatron:names=local,experts=sequential", WF_OK, ""},
        {"deepseek", "megatron:layout=EttL", WF_INVALID, "the model has 1"},
        {"deepseek", "megatron:layout=EttL,skip_mtp=1", WF_OK, ""},
        {"qwen2_moe", "megatron:shared_gate=0", WF_UNSUPPORTED, "moe_shared_expert_gate"},
        {"qwen3_moe", "megatron:shared_gate=0", WF_OK, ""},
        {"qwen3_moe", "megatron:dp=3,ep=3", WF_INVALID, "4 experts cannot be divided over ep=3"},
        {"qwen3_moe", "megatron:tp=2,dp=8,etp=16,ep=1", WF_INVALID, "expected a size of group etp"},
        {"qwen3_moe", "megatron:tp=2,dp=2,etp=4", WF_OK, ""},
        {"llama", "megatron:tp=3", WF_INVALID, "2 KV heads"},
        {"llama", "megatron:tp=4", WF_OK, ""},
        {"next", "megatron:tp=4", WF_INVALID, "2 key heads"},
        {"sparse", "megatron:version=0.16", WF_UNSUPPORTED, "sparse attention"},
        {"sparse", "megatron:names=local,experts=sequential", WF_UNSUPPORTED, "sparse attention"},
        {"ling25", "megatron:tp=4", WF_INVALID, "2 groups of its norm"},
        {"ling25", "fsdp:dp=2,flat=1", WF_UNSUPPORTED, "order of registration"},
        {"qwen3_moe", "fsdp:tp=2", WF_UNSUPPORTED, "known for dense models only"},
        {"qwen3_moe", "fsdp:dp=2,shard=1", WF_OK, ""},
        {"qwen3_moe", "fsdp:dp=3,shard=1", WF_INVALID, "unevenly on dimension 0 only"},
        {"next", "fsdp:dp=2,shard=1", WF_INVALID, "conv1d"},
        {"next", "fsdp:dp=5", WF_OK, ""},
        {"vl", "fsdp:dp=2,flat=1", WF_UNSUPPORTED, "order of registration"},
        {"llama", "fsdp:dp=7,tp=3", WF_OK, ""},
        {"llama", "fsdp:dp=2,tp=2,shard=1", WF_OK, ""},
        /* tensor parallelism may cut unevenly, FSDP not what is left */
        {"llama", "fsdp:tp=5,shard=1", WF_OK, ""},
        {"llama", "fsdp:dp=2,tp=5,shard=1", WF_INVALID, "unevenly on dimension 0 only"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *model = model_of(rows[i].model);
        struct wf_recipe recipe;
        struct wf_error error = {0};
        enum wf_status status = wf_recipe_parse(rows[i].spec, model, &recipe, &error);
        cr_expect_eq(status, rows[i].status, "%s %s: %s", rows[i].model, rows[i].spec, error.text);
        cr_expect(strstr(error.text, rows[i].fragment), "%s %s: %s", rows[i].model, rows[i].spec,
                  error.text);
        wf_model_free(model);
    }
}

Test(trainers, quantised_configs_are_refused)
{
    static const char config[] =
        "{\"model_type\": \"qwen3\", " BASE ", \"quantization_config\": {\"quant_method\": "
        "\"fp8\", \"weight_block_size\": [128, 128], \"activation_scheme\": \"dynamic\"}}";
    static const char *const specs[] = {"megatron:", "fsdp:dp=2"};
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK, "%s",
                 error.text);
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct wf_recipe recipe;
        cr_expect_eq(wf_recipe_parse(specs[i], model, &recipe, &error), WF_UNSUPPORTED, "%s",
                     specs[i]);
        cr_expect(strstr(error.text, "quantization_config"), "%s: %s", specs[i], error.text);
    }
    wf_model_free(model);
}

/* --- names ----------------------------------------------------------------------------------- */

/* Which tensors a rank has, with their shapes. */
static const struct {
    const char *model, *spec;
    uint32_t rank;
    const char *name, *shape; /* NULL: it is not there */
} tensors[] = {
    {"gemma", "megatron:", 0, "decoder.layers.0.self_attention.linear_proj.post_layernorm.weight",
     "16"},
    {"gemma", "megatron:loader=mbridge", 0, "decoder.layers.0.post_attention_layernorm.weight",
     "16"},
    {"gemma", "megatron:loader=mbridge", 0,
     "decoder.layers.0.self_attention.linear_proj.post_layernorm.weight", NULL},
    {"gemma", "megatron:loader=mbridge", 0, "decoder.layers.0.post_feedforward_layernorm.weight",
     "16"},
    /* latents: duplicated by Transformer Engine, cut by the local layers */
    {"deepseek", "megatron:tp=2", 1, "decoder.layers.0.self_attention.linear_kv_down_proj.weight",
     "14x16"},
    {"deepseek", "megatron:tp=2,names=local,experts=sequential", 1,
     "decoder.layers.0.self_attention.linear_kv_down_proj.weight", "7x16"},
    {"deepseek", "megatron:tp=2,names=local,experts=sequential", 0,
     "decoder.layers.1.self_attention.kv_layernorm.weight", "10"},
    {"deepseek", "megatron:tp=2,names=local,experts=sequential", 0,
     "decoder.layers.1.mlp.experts.local_experts.3.linear_fc1.weight", "8x16"},
    /* further tokens in a stage of their own: an embedding, and neither norm nor head */
    {"deepseek", "megatron:pp=4,layout=Et|t|m|L", 2, "embedding.word_embeddings.weight", "128x16"},
    {"deepseek", "megatron:pp=4,layout=Et|t|m|L", 2,
     "mtp.layers.0.mtp_model_layer.input_layernorm.weight", "16"},
    {"deepseek", "megatron:pp=4,layout=Et|t|m|L", 2, "mtp.layers.0.eh_proj.weight", "16x32"},
    {"deepseek", "megatron:pp=4,layout=Et|t|m|L", 2, "output_layer.weight", NULL},
    {"deepseek", "megatron:pp=4,layout=Et|t|m|L", 1, "decoder.final_layernorm.weight", "16"},
    {"deepseek", "megatron:pp=4,layout=Et|t|m|L", 3, "output_layer.weight", "128x16"},
    {"deepseek", "megatron:pp=4,layout=Et|t|m|L", 3, "decoder.final_layernorm.weight", NULL},
    {"deepseek", "megatron:version=0.16", 0,
     "mtp.layers.0.transformer_layer.mlp.router.expert_bias", "4"},
    {"deepseek", "megatron:skip_mtp=1", 0, "mtp.layers.0.enorm.weight", NULL},
    /* mtp_num_layers unset, and set to 0 */
    {"deepseek", "megatron:pp=2,layout=Ett|L,skip_mtp=1", 1, "decoder.final_layernorm.weight",
     "16"},
    {"deepseek", "megatron:pp=2,layout=Ett|L,skip_mtp=1,final_norm=layer", 1,
     "decoder.final_layernorm.weight", NULL},
    {"deepseek", "megatron:pp=2,layout=Ett|L,skip_mtp=1,final_norm=layer", 0,
     "decoder.final_layernorm.weight", "16"},
    /* experts over dense ranks' tp and dp */
    {"qwen3_moe", "megatron:tp=2,dp=2,ep=4,etp=1", 3,
     "decoder.layers.1.mlp.experts.linear_fc2.weight0", "16x8"},
    {"qwen3_moe", "megatron:tp=2,dp=2,ep=4,etp=1", 3,
     "decoder.layers.1.mlp.experts.linear_fc2.weight1", NULL},
    {"qwen3_moe", "megatron:tp=1,dp=4,ep=2,etp=2", 1,
     "decoder.layers.0.mlp.experts.linear_fc1.weight1", "8x16"},
    {"qwen3_moe", "megatron:tp=1,dp=4,ep=2,etp=2,experts=single", 1,
     "decoder.layers.0.mlp.experts.linear_fc1.weight", "2x8x16"},
    {"qwen3_moe", "megatron:tp=1,dp=4,ep=2,etp=2,experts=single", 1,
     "decoder.layers.0.mlp.experts.linear_fc2.weight", "2x16x4"},
    /* vision towers */
    {"vl", "megatron:tp=2", 1, "language_model.decoder.layers.0.mlp.linear_fc1.weight", "24x16"},
    {"vl", "megatron:tp=2", 1, "vision_model.decoder.layers.1.self_attention.linear_qkv.weight",
     "24x16"},
    {"vl", "megatron:tp=2", 1, "vision_model.decoder.deepstack_merger_list.0.patch_norm.weight",
     "64"},
    {"vl", "megatron:tp=2", 1, "vision_model.merger.linear_fc2.weight", "16x32"},
    {"vl", "megatron:tp=2,pp=2", 3, "vision_model.merger.linear_fc2.weight", NULL},
    {"vl", "megatron:tp=2,loader=mbridge", 1,
     "vision_model.decoder.layers.1.self_attention.linear_qkv.weight", "24x16"},
    {"qwen35", "megatron:tp=2", 1, "vision_model.decoder.layers.1.self_attention.linear_qkv.weight",
     "24x16"},
    {"qwen35", "megatron:tp=2,loader=mbridge", 1, "vision_model.blocks.1.attn.qkv.weight", "48x16"},
    {"qwen35", "megatron:tp=2,loader=mbridge", 1, "vision_model.merger.norm.weight", "16"},
    {"qwen35", "megatron:tp=2", 1,
     "language_model.decoder.layers.0.self_attention.in_proj.layer_norm_weight", "16"},
    {"qwen35", "megatron:tp=2", 1, "language_model.decoder.layers.0.self_attention.A_log", "2"},
    {"next", "megatron:names=local,experts=sequential", 0,
     "decoder.layers.0.input_layernorm.weight", "16"},
    {"sparse", "megatron:tp=2", 1,
     "decoder.layers.0.self_attention.core_attention.indexer.linear_wq_b.weight", "16x12"},
    {"sparse", "megatron:tp=2", 1,
     "decoder.layers.0.self_attention.core_attention.indexer.k_norm.bias", "8"},
    {"sparse", "megatron:tp=2", 1, "decoder.layers.0.self_attention.q_layernorm.weight", "12"},
    {"sparse", "megatron:tp=2", 1,
     "decoder.layers.0.self_attention.linear_q_up_proj.layer_norm_weight", NULL},
    /* lightning attention and latents in turn */
    {"ling25", "megatron:tp=2", 1, "decoder.layers.0.self_attention.linear_qkv.weight", "48x16"},
    {"ling25", "megatron:tp=2", 1, "decoder.layers.0.self_attention.linear_gate.weight", "16x16"},
    {"ling25", "megatron:tp=2", 1, "decoder.layers.0.self_attention.gate_norm.weight", "16"},
    {"ling25", "megatron:tp=2", 1, "decoder.layers.0.input_layernorm.weight", "16"},
    {"ling25", "megatron:tp=2", 1, "decoder.layers.1.self_attention.linear_kv_up_proj.weight",
     "32x10"},
    {"ling25", "fsdp:dp=2", 1, "model.layers.1.mlp.experts.3.up_proj.weight", "4x16"},
    {"ling25", "fsdp:dp=2,shard=1", 1, "model.layers.1.mlp.experts.3.up_proj.weight", "8x8"},
    /* fused experts in memory: shards are whole experts */
    {"qwen3_moe", "fsdp:dp=3", 0, "model.layers.0.mlp.experts.gate_up_proj", "2x16x16"},
    {"qwen3_moe", "fsdp:dp=3", 2, "model.layers.0.mlp.experts.gate_up_proj", "0x16x16"},
    {"qwen3_moe", "fsdp:dp=2,shard=1", 1, "model.layers.0.mlp.experts.gate_up_proj", "4x8x16"},
    {"qwen3_moe", "fsdp:dp=2,shard=1", 1, "model.layers.0.mlp.experts.down_proj", "4x8x8"},
    {"mixtral", "fsdp:dp=2", 1, "model.layers.0.mlp.experts.down_proj", "2x16x24"},
    {"deepseek", "fsdp:dp=3", 1, "model.layers.1.mlp.gate.e_score_correction_bias", "4"},
    {"deepseek", "fsdp:dp=3", 1, "model.layers.2.enorm.weight", NULL},
    {"deepseek", "fsdp:dp=3", 1, "model.layers.2.mlp.experts.down_proj", NULL},
    {"vl", "fsdp:dp=2", 1, "model.visual.patch_embed.proj.weight", "8x3x2x2x2"},
    {"kimi", "fsdp:dp=2", 1, "model.vision_tower.layers.0.attn.q_proj.weight", "12x24"},
    {"kimi", "fsdp:dp=1,shard=1", 0, "model.vision_tower.layers.0.attn.k_proj.weight", "24x24"},
    {"kimi", "fsdp:dp=1,shard=1", 0, "model.vision_tower.layers.0.attn.k_proj.bias", "24"},
    {"kimi", "fsdp:dp=2", 0, "model.mm_projector.out_proj.bias", "8"},
    {"kimi", "fsdp:dp=2", 0, "model.language_model.layers.1.mlp.experts.gate_up_proj", "2x16x16"},
    {"llama", "fsdp:dp=2,tp=3", 5, "model.layers.0.self_attn.q_proj.weight", "5x16"},
    {"llama", "fsdp:dp=2,tp=3", 5, "model.layers.0.mlp.down_proj.weight", "8x8"},
    {"llama", "fsdp:dp=2,tp=2,shard=1", 3, "model.layers.0.mlp.down_proj.weight", "16x6"},
    {"llama", "fsdp:dp=2,tp=2,shard=1", 3, "model.layers.0.mlp.up_proj.weight", "12x8"},
    {"llama", "fsdp:dp=2,tp=2,shard=1", 3, "model.norm.weight", "8"},
    {"llama", "fsdp:dp=2,tp=2", 3, "lm_head.weight", "16x16"},
    {"llama", "fsdp:dp=2,tp=2,shard=1", 3, "lm_head.weight", "32x8"},
    /* once, and under the head's name only as an alias */
    {"tied", "fsdp:dp=2,tp=2", 3, "model.embed_tokens.weight", "16x16"},
    /* FSDP1 on one rank shards nothing */
    {"tied", "fsdp:flat=1", 0, "model.embed_tokens.weight", "64x16"},
    {"tied", "fsdp:dp=2,flat=1", 0, "model.embed_tokens.weight", "520"},
    {"tied", "fsdp:dp=2,tp=2,shard=1", 3, "lm_head.weight", "32x8"},
};

Test(trainers, tensors_of_a_rank)
{
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        struct wf_model *model = model_of(tensors[i].model);
        struct wf_recipe recipe;
        struct wf_layout *layout = NULL;
        struct wf_error error = {0};
        char shape[64] = "";
        cr_assert_eq(wf_recipe_parse(tensors[i].spec, model, &recipe, &error), WF_OK, "%s: %s",
                     tensors[i].model, error.text);
        cr_assert_eq(wf_layout_derive(model, &recipe, tensors[i].rank, &layout, &error), WF_OK,
                     "%s", error.text);
        uint32_t tensor = wf_layout_find(layout, tensors[i].name, strlen(tensors[i].name));
        cr_expect_eq(tensor != UINT32_MAX, tensors[i].shape != NULL, "%s %s %s", tensors[i].model,
                     tensors[i].spec, tensors[i].name);
        for (uint32_t axis = 0; tensor != UINT32_MAX && axis < layout->tensors[tensor].ndim;
             axis++) {
            snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%u", axis ? "x" : "",
                     (unsigned)layout->tensors[tensor].shape[axis]);
        }
        cr_expect(!tensors[i].shape || strcmp(shape, tensors[i].shape) == 0, "%s %s %s: %s",
                  tensors[i].model, tensors[i].spec, tensors[i].name, shape);
        wf_layout_free(layout);
        wf_model_free(model);
    }
}

/* --- flat parameters ------------------------------------------------------------------------- */

/* Suffixes of the first layer's tensors in order, as transformers' state dicts have them. */
Test(trainers, flat_parameters_stand_in_order_of_registration)
{
    static const struct {
        const char *model, *order;
    } rows[] = {
        {"llama", "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj input_layernorm "
                  "post_attention_layernorm"},
        {"gemma", "q_proj k_proj v_proj o_proj q_norm k_norm gate_proj up_proj down_proj "
                  "input_layernorm post_attention_layernorm pre_feedforward_layernorm "
                  "post_feedforward_layernorm"},
        {"mixtral", "q_proj k_proj v_proj o_proj gate experts.gate_up_proj experts.down_proj "
                    "input_layernorm post_attention_layernorm"},
        {"qwen3_moe", "q_proj k_proj v_proj o_proj q_norm k_norm experts.gate_up_proj "
                      "experts.down_proj gate input_layernorm post_attention_layernorm"},
        {"next", "dt_bias A_log conv1d in_proj_qkvz in_proj_ba norm out_proj gate "
                 "experts.gate_up_proj experts.down_proj shared_expert.gate_proj "
                 "shared_expert.up_proj shared_expert.down_proj shared_expert_gate "
                 "input_layernorm post_attention_layernorm"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *model = model_of(rows[i].model);
        struct wf_recipe recipe;
        struct wf_layout *layout = NULL;
        struct wf_error error = {0};
        cr_assert_eq(wf_recipe_parse("fsdp:flat=1,dp=2", model, &recipe, &error), WF_OK, "%s: %s",
                     rows[i].model, error.text);
        cr_assert_eq(wf_layout_derive(model, &recipe, 0, &layout, &error), WF_OK, "%s", error.text);
        const char *expected = rows[i].order;
        for (uint32_t t = 0; t < layout->tensor_count; t++) {
            const char *name = layout->tensors[t].name;
            size_t len = strcspn(expected, " ");
            char suffix[64];
            if (strncmp(name, "model.layers.0.", 15) != 0) {
                continue;
            }
            snprintf(suffix, sizeof suffix, ".%.*s", (int)len, expected);
            const char *found = strstr(name, suffix);
            cr_expect(found && (strcmp(found + strlen(suffix), "") == 0 ||
                                strcmp(found + strlen(suffix), ".weight") == 0),
                      "%s: %s where .%.*s is expected", rows[i].model, name, (int)len, expected);
            expected += len + (expected[len] == ' ');
        }
        cr_expect_str_empty(expected, "%s", rows[i].model);
        wf_layout_free(layout);
        wf_model_free(model);
    }
}

/* A module of three parameters of 3, 5 and 2 elements over two ranks: where each begins follows
 * from the alignment, and the share from what they make together. */
Test(trainers, flat_parameters_are_aligned_and_cut_by_elements)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 1, \"num_hidden_layers\": 1, "
        "\"vocab_size\": 5, \"num_attention_heads\": 1, \"intermediate_size\": 3, "
        "\"tie_word_embeddings\": false, \"torch_dtype\": \"float32\"}";
    static const struct {
        const char *spec;
        uint32_t rank;
        /* elements of the embedding, the final norm and the head: first, count */
        uint32_t first[3], count[3];
    } rows[] = {
        /* 0..5, 8..9, 12..17 of 17, 9 a share */
        {"fsdp:flat=1,dp=2", 0, {0, 0, 0}, {5, 1, 0}},
        {"fsdp:flat=1,dp=2", 1, {0, 0, 0}, {0, 0, 5}},
        /* 0..5, 8..9, 16..21 of 21, 7 a share */
        {"fsdp:flat=1,dp=3,align=8", 0, {0, 0, 0}, {5, 0, 0}},
        {"fsdp:flat=1,dp=3,align=8", 1, {0, 0, 0}, {0, 1, 0}},
        {"fsdp:flat=1,dp=3,align=8", 2, {0, 0, 0}, {0, 0, 5}},
        /* 0..5, 5..6, 6..11 of 11, 3 a share */
        {"fsdp:flat=1,dp=4,align=1", 0, {0, 0, 0}, {3, 0, 0}},
        {"fsdp:flat=1,dp=4,align=1", 1, {3, 0, 0}, {2, 1, 0}},
        {"fsdp:flat=1,dp=4,align=1", 2, {0, 0, 0}, {0, 0, 3}},
        {"fsdp:flat=1,dp=4,align=1", 3, {0, 0, 3}, {0, 0, 2}},
        /* 8 elements are 16 bytes of bf16 */
        {"fsdp:flat=1,dp=2,dtype=bf16", 0, {0, 0, 0}, {5, 1, 0}},
        {"fsdp:flat=1,dp=2,dtype=bf16", 1, {0, 0, 0}, {0, 0, 5}},
    };
    static const char *const names[] = {"model.embed_tokens.weight", "model.norm.weight",
                                        "lm_head.weight"};
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK, "%s",
                 error.text);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_recipe recipe;
        struct wf_layout *layout = NULL;
        cr_assert_eq(wf_recipe_parse(rows[i].spec, model, &recipe, &error), WF_OK, "%s",
                     error.text);
        cr_assert_eq(wf_layout_derive(model, &recipe, rows[i].rank, &layout, &error), WF_OK, "%s",
                     error.text);
        for (uint32_t k = 0; k < 3; k++) {
            uint32_t tensor = wf_layout_find(layout, names[k], strlen(names[k]));
            cr_expect_eq(layout->tensors[tensor].shape[0], rows[i].count[k], "%s rank %u %s",
                         rows[i].spec, rows[i].rank, names[k]);
            cr_expect_eq(layout->tensors[tensor].ndim, 1);
            for (uint32_t p = 0; p < layout->piece_count; p++) {
                cr_expect(layout->pieces[p].tensor != tensor ||
                              layout->pieces[p].param_first == rows[i].first[k],
                          "%s rank %u %s", rows[i].spec, rows[i].rank, names[k]);
            }
        }
        wf_layout_free(layout);
    }
    wf_model_free(model);
}
