/* test_vllm.c - vLLM's rules that no executed layout in tests/golden/real shows, as its sources say
 * them, and what is refused by name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/layout.h"

#define HEAD(type)                                                                    \
    "{\"model_type\": \"" type "\", \"hidden_size\": 256, \"num_hidden_layers\": 4, " \
    "\"vocab_size\": 100, \"num_attention_heads\": 4, \"torch_dtype\": \"bfloat16\", "
#define HEADS "\"num_key_value_heads\": 2, \"head_dim\": 128, \"intermediate_size\": 512, "
#define QWEN(I, more)                                                                            \
    HEAD("qwen3_moe")                                                                            \
    HEADS "\"num_experts\": 6, \"moe_intermediate_size\": " I ", "                               \
          "\"num_experts_per_tok\": 2, \"decoder_sparse_step\": 1, \"mlp_only_layers\": []" more \
          "}"
#define FP8_LIST(list)                                                               \
    ", \"quantization_config\": {\"quant_method\": \"fp8\", \"activation_scheme\": " \
    "\"dynamic\", \"weight_block_size\": [128, 128], \"modules_to_not_convert\": ["  \
    "\"lm_head\"" list "]}"
#define GATES                                                      \
    ", \"model.layers.0.mlp.gate\", \"model.layers.1.mlp.gate\", " \
    "\"model.layers.2.mlp.gate\", \"model.layers.3.mlp.gate\""
#define FP8 FP8_LIST(GATES)
#define FP8_BUT(module) FP8_LIST(GATES ", \"" module "\"")
#define DEEPSEEK(type, q_lora, more)                                                              \
    HEAD(type)                                                                                    \
    "\"num_key_value_heads\": 4, \"intermediate_size\": 512, \"n_routed_experts\": 8, "           \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 128, \"n_shared_experts\": 1, "       \
    "\"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, \"n_group\": 4, \"topk_method\": "      \
    "\"noaux_tc\", \"q_lora_rank\": " q_lora ", \"kv_lora_rank\": 64, \"qk_nope_head_dim\": 32, " \
    "\"qk_rope_head_dim\": 16, \"v_head_dim\": 32" more "}"
#define V32 DEEPSEEK("deepseek_v32", "48", ", \"index_n_heads\": 4, \"index_head_dim\": 32")
#define OSS(I, nk)                                                                      \
    HEAD("gpt_oss")                                                                     \
    "\"num_key_value_heads\": " nk ", \"head_dim\": 64, \"intermediate_size\": " I ", " \
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"attention_bias\": true, "  \
    "\"tie_word_embeddings\": false, \"quantization_config\": {\"quant_method\": \"mxfp4\"}}"
#define LING                                                                                 \
    HEAD("bailing_moe_v2")                                                                   \
    HEADS "\"num_experts\": 4, \"moe_intermediate_size\": 256, \"num_experts_per_tok\": 2, " \
          "\"num_shared_experts\": 1, \"first_k_dense_replace\": 4, \"use_qk_norm\": true, " \
          "\"router_dtype\": \"fp32\"" FP8
#define LING25                                                                        \
    HEAD("bailing_hybrid")                                                            \
    "\"num_key_value_heads\": 4, \"head_dim\": 128, \"intermediate_size\": 512, "     \
    "\"num_experts\": 4, \"moe_intermediate_size\": 256, \"num_shared_experts\": 1, " \
    "\"first_k_dense_replace\": 4, \"layer_group_size\": 2, \"group_norm_size\": 2, " \
    "\"full_attention_type\": \"mla\", \"q_lora_rank\": 128, \"kv_lora_rank\": 128, " \
    "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128" FP8 "}"
#define LAYER0 "model.layers.0."
#define LAYER1 "model.layers.1."
#define EXPERTS1 LAYER1 "mlp.experts.routed_experts."

/* Element `at` of a tensor: element `element` of a parameter, or a fill (NULL). */
struct place {
    const char *tensor, *shape;
    uint64_t at;
    const char *param;
    uint64_t element;
};

static const struct {
    const char *name, *config, *spec;
    uint32_t rank;
    struct place places[4];
} rows[] = {
    {"refined scales: a share of 192 has blocks of 64",
     QWEN("384", FP8),
     "vllm:tp=2",
     1,
     {{EXPERTS1 "w13_weight_scale_inv", "6x6x4", 0,
       LAYER1 "mlp.experts.0.gate_proj.weight_scale_inv", 2},
      {EXPERTS1 "w13_weight_scale_inv", "6x6x4", 23,
       LAYER1 "mlp.experts.0.up_proj.weight_scale_inv", 5},
      {EXPERTS1 "w2_weight_scale_inv", "6x4x3", 2,
       LAYER1 "mlp.experts.0.down_proj.weight_scale_inv", 2},
      {EXPERTS1 "w2_weight_scale_inv", "6x4x3", 71,
       LAYER1 "mlp.experts.5.down_proj.weight_scale_inv", 5}}},
    {"refined scales: a share of 96 has blocks of 32",
     QWEN("384", FP8),
     "vllm:tp=2,dp=2",
     3,
     {{EXPERTS1 "w13_weight_scale_inv", "6x6x8", 24,
       LAYER1 "mlp.experts.0.up_proj.weight_scale_inv", 4}}},
    {"dealt out experts have whole blocks",
     QWEN("384", FP8),
     "vllm:tp=2,ep=2",
     1,
     {{EXPERTS1 "w13_weight_scale_inv", "3x6x2", 0,
       LAYER1 "mlp.experts.3.gate_proj.weight_scale_inv", 0}}},
    {"fp8 after FlashInfer CUTLASS: up first, scales too",
     QWEN("256", FP8),
     "vllm:tp=2,stage=post,moe_backend=flashinfer_cutlass,deep_gemm=off",
     1,
     {{EXPERTS1 "w13_weight", "6x256x256", 0, LAYER1 "mlp.experts.0.up_proj.weight", 128 * 256},
      {EXPERTS1 "w13_weight_scale_inv", "6x2x2", 2,
       LAYER1 "mlp.experts.0.gate_proj.weight_scale_inv", 2}}},
    {"shared experts are whole under sequence parallelism",
     DEEPSEEK("deepseek_v3", "48", ""),
     "vllm:tp=2,dp=2,ep=4",
     1,
     {{LAYER1 "mlp.shared_experts.gate_up_proj.weight", "256x256", 128 * 256,
       LAYER1 "mlp.shared_experts.up_proj.weight", 0},
      {LAYER1 "mlp.shared_experts.down_proj.weight", "256x128", 1,
       LAYER1 "mlp.shared_experts.down_proj.weight", 1},
      {EXPERTS1 "w2_weight", "2x256x128", 0, LAYER1 "mlp.experts.2.down_proj.weight", 0}}},
    {"V3.2 keeps dense layers whole under sequence parallelism",
     V32,
     "vllm:tp=2,dp=2,ep=4",
     1,
     {{LAYER0 "mlp.gate_up_proj.weight", "1024x256", 512 * 256, LAYER0 "mlp.up_proj.weight", 0},
      {LAYER0 "mlp.down_proj.weight", "256x512", 511, LAYER0 "mlp.down_proj.weight", 511}}},
    {"V3.2 cuts dense layers with more than one stage",
     V32,
     "vllm:tp=2,pp=2,dp=2,ep=4",
     1,
     {{LAYER0 "mlp.gate_up_proj.weight", "512x256", 0, LAYER0 "mlp.gate_proj.weight", 256 * 256},
      {LAYER0 "mlp.down_proj.weight", "256x256", 0, LAYER0 "mlp.down_proj.weight", 256}}},
    {"gpt-oss's class takes no notice of redundant experts",
     OSS("320", "4"),
     "vllm:tp=2,ep=2,redundant=2",
     1,
     {{EXPERTS1 "w2_bias", "2x256", 0, LAYER1 "mlp.experts.2.down_proj.bias", 0}}},
    {"shared experts are cut without data parallelism",
     DEEPSEEK("deepseek_v3", "48", ""),
     "vllm:tp=2,ep=2",
     1,
     {{LAYER1 "mlp.shared_experts.gate_up_proj.weight", "128x256", 0,
       LAYER1 "mlp.shared_experts.gate_proj.weight", 64 * 256}}},
    {"round_robin deals out by turns",
     DEEPSEEK("deepseek_v3", "48", ""),
     "vllm:tp=2,ep=2,strategy=round_robin",
     1,
     {{EXPERTS1 "w2_weight", "4x256x128", 256 * 128, LAYER1 "mlp.experts.3.down_proj.weight", 0}}},
    {"round_robin with EPLB is linear",
     DEEPSEEK("deepseek_v3", "48", ""),
     "vllm:tp=2,ep=2,redundant=2,strategy=round_robin",
     1,
     {{EXPERTS1 "w2_weight", "5x256x128", 0, LAYER1 "mlp.experts.5.down_proj.weight", 0},
      {EXPERTS1 "w2_weight", "5x256x128", 4 * 256 * 128, LAYER1 "mlp.experts.1.down_proj.weight",
       0}}},
    {"round_robin without groups of experts is linear",
     QWEN("256", ""),
     "vllm:tp=2,ep=2,strategy=round_robin",
     1,
     {{EXPERTS1 "w2_weight", "3x256x256", 0, LAYER1 "mlp.experts.3.down_proj.weight", 0}}},
    {"without q_lora two projections stand apart",
     DEEPSEEK("deepseek_v3", "null", ""),
     "vllm:tp=2",
     1,
     {{LAYER1 "self_attn.q_proj.weight", "96x256", 0, LAYER1 "self_attn.q_proj.weight", 96 * 256},
      {LAYER1 "self_attn.mla_attn.kv_a_proj_with_mqa.weight", "80x256", 5,
       LAYER1 "self_attn.kv_a_proj_with_mqa.weight", 5}}},
    {"gpt-oss: a share of 160 is padded to 192 behind the cut",
     OSS("320", "4"),
     "vllm:tp=2",
     1,
     {{EXPERTS1 "w13_weight", "4x384x128", 0, LAYER1 "mlp.experts.0.gate_proj.blocks", 160 * 128},
      {EXPERTS1 "w13_weight", "4x384x128", 320 * 128, NULL, 0},
      {EXPERTS1 "w2_weight", "4x256x96", 80, NULL, 0},
      {EXPERTS1 "w2_bias", "4x256", 0, NULL, 0}}},
    {"gpt-oss: dealt out experts keep the second bias",
     OSS("320", "4"),
     "vllm:tp=2,ep=2",
     1,
     {{EXPERTS1 "w2_bias", "2x256", 0, LAYER1 "mlp.experts.2.down_proj.bias", 0}}},
    {"Ling's fused linear is cut by head, and so are its scales",
     LING "}",
     "vllm:tp=4",
     3,
     {{LAYER1 "attention.query_key_value.weight", "384x256", 128 * 256,
       LAYER1 "attention.query_key_value.weight", 5 * 128 * 256},
      {LAYER1 "attention.query_key_value.weight_scale_inv", "3x2", 4,
       LAYER1 "attention.query_key_value.weight_scale_inv", 14}}},
    {"lightning attention's gates are block fp8 as its other linears",
     LING25,
     "vllm:tp=2",
     1,
     {{LAYER0 "self_attn.g_proj.weight_scale_inv", "2x2", 0,
       LAYER0 "attention.g_proj.weight_scale_inv", 4}}},
    {"few KV heads of two blocks each are repeated with both their scales",
     HEAD("qwen3") "\"num_key_value_heads\": 2, \"head_dim\": 256, \"intermediate_size\": "
                   "512" FP8_BUT("x") "}",
     "vllm:tp=4",
     3,
     {{LAYER1 "self_attn.qkv_proj.weight_scale_inv", "6x2", 4,
       LAYER1 "self_attn.k_proj.weight_scale_inv", 4},
      {LAYER1 "self_attn.qkv_proj.weight_scale_inv", "6x2", 7,
       LAYER1 "self_attn.k_proj.weight_scale_inv", 7},
      {LAYER1 "self_attn.qkv_proj.weight_scale_inv", "6x2", 8,
       LAYER1 "self_attn.v_proj.weight_scale_inv", 4}}},
    {"a partition says the layers of each stage",
     QWEN("256", ""),
     "vllm:pp=2,partition=1-3",
     1,
     {{LAYER1 "self_attn.q_norm.weight", "128", 0, LAYER1 "self_attn.q_norm.weight", 0}}},
    {"Qwen3-MoE's class takes no notice of stages",
     QWEN("256", ", \"tie_word_embeddings\": true"),
     "vllm:tp=2,pp=2",
     0,
     {{"model.norm.weight", "256", 0, "model.norm.weight", 0},
      {"lm_head.weight", "64x256", 0, "model.embed_tokens.weight", 0}}},
};

static struct wf_model *parse(const char *config)
{
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK, "%s: %s",
                 config, error.text);
    return model;
}

/* The parameter and element at a byte of a tensor, by walking all pieces. */
static bool look(const struct wf_layout *layout, uint32_t tensor, uint64_t byte, uint32_t *param,
                 uint64_t *element)
{
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        struct wf_nest nest = wf_layout_nest(layout, i);
        uint64_t count = layout->pieces[i].tensor == tensor ? wf_nest_elements(&nest) : 0;
        for (uint64_t n = 0; n < count; n++) {
            uint64_t at = nest.tensor_offset, rest = n;
            *element = nest.param_first;
            for (uint32_t a = nest.axis_count; a-- > 0;) {
                at += rest % nest.axes[a].count * (uint64_t)nest.axes[a].tensor_step;
                *element += rest % nest.axes[a].count * nest.axes[a].param_step;
                rest /= nest.axes[a].count;
            }
            if (at == byte) {
                *param =
                    layout->pieces[i].kind == WF_PIECE_FILL ? WF_NONE : layout->pieces[i].param;
                return true;
            }
        }
    }
    return false;
}

static void check_place(const char *name, const struct wf_model *model,
                        const struct wf_layout *layout, const struct place *place)
{
    uint32_t tensor = wf_layout_find(layout, place->tensor, strlen(place->tensor));
    cr_assert_neq(tensor, UINT32_MAX, "%s: no %s", name, place->tensor);
    const struct wf_tensor *it = &layout->tensors[tensor];
    char shape[96] = "";
    for (uint32_t axis = 0; axis < it->ndim; axis++) {
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%llu", axis ? "x" : "",
                 (unsigned long long)it->shape[axis]);
    }
    cr_expect_str_eq(shape, place->shape, "%s %s: %s", name, place->tensor, shape);
    uint32_t param = 0;
    uint64_t element = 0;
    cr_assert(look(layout, tensor, place->at * wf_dtype_bytes(it->dtype), &param, &element),
              "%s %s", name, place->tensor);
    const char *found = param == WF_NONE ? "a fill" : model->params[param].name;
    cr_expect_str_eq(found, place->param ? place->param : "a fill", "%s %s: %s", name,
                     place->tensor, found);
    cr_expect(!place->param || element == place->element, "%s %s: element %llu", name,
              place->tensor, (unsigned long long)element);
}

Test(vllm, rules_that_no_executed_layout_shows)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *model = parse(rows[i].config);
        struct wf_recipe recipe;
        struct wf_layout *layout = NULL;
        struct wf_error error = {0};
        cr_assert_eq(wf_recipe_parse(rows[i].spec, model, &recipe, &error), WF_OK, "%s: %s",
                     rows[i].name, error.text);
        cr_assert_eq(wf_layout_derive(model, &recipe, rows[i].rank, &layout, &error), WF_OK,
                     "%s: %s", rows[i].name, error.text);
        for (size_t p = 0; p < 4 && rows[i].places[p].tensor; p++) {
            check_place(rows[i].name, model, layout, &rows[i].places[p]);
        }
        wf_layout_free(layout);
        wf_model_free(model);
    }
}

static const struct {
    const char *name, *config, *spec, *fragment;
} refusals[] = {
    {"ep of some ranks", QWEN("256", ""), "vllm:tp=4,ep=2", "tp x dp = 4"},
    {"redundant without ep", QWEN("256", ""), "vllm:tp=2,redundant=2", "dealt out"},
    {"uneven redundant", QWEN("256", ""), "vllm:tp=2,ep=2,redundant=1", "equally"},
    {"EPLB of experts that do not divide", QWEN("256", ""), "vllm:tp=4,ep=4,eplb=1", "equally"},
    {"tp above experts", QWEN("256", ""), "vllm:tp=8", "than experts"},
    {"a backend for old devices", QWEN("256", ""),
     "vllm:tp=2,moe_backend=flashinfer_trtllm,capability=90", "capability"},
    {"a padded share", QWEN("192", ""), "vllm:tp=1,moe_backend=flashinfer_trtllm", "pads"},
    {"after an unknown hook", QWEN("256", ""), "vllm:tp=2,stage=post", "moe_backend"},
    {"after a hook that is not known", QWEN("256", ""), "vllm:tp=2,stage=post,moe_backend=marlin",
     "moe_backend"},
    {"after a hook of mxfp4", OSS("320", "4"), "vllm:tp=2,stage=post,moe_backend=triton", "mxfp4"},
    {"after DeepGEMM", QWEN("256", FP8), "vllm:tp=2,stage=post,moe_backend=triton",
     "deep_gemm=off"},
    {"fp8 shares below 32", QWEN("384", FP8), "vllm:tp=2,dp=8", "refines"},
    {"fp8 shares that another backend pads", QWEN("384", FP8),
     "vllm:tp=2,moe_backend=flashinfer_trtllm", "no multiple"},
    {"gpt-oss repeats no head", OSS("320", "2"), "vllm:tp=4", "KV heads"},
    {"gpt-oss divides by all ranks", OSS("320", "4"), "vllm:tp=2,pp=3", "all ranks"},
    {"mxfp4 otherwise padded", OSS("320", "4"), "vllm:tp=2,moe_backend=marlin", "mxfp4"},
    {"a biased Qwen3", QWEN("256", ", \"attention_bias\": true"), "vllm:tp=2", "o_proj"},
    {"a tied DeepSeek", DEEPSEEK("deepseek_v3", "48", ", \"tie_word_embeddings\": true"),
     "vllm:tp=2", "does not tie"},
    {"a biased Qwen3-VL",
     "{\"model_type\": \"qwen3_vl\", \"torch_dtype\": \"bfloat16\", \"text_config\": "
     "{\"hidden_size\": 256, \"num_hidden_layers\": 2, \"vocab_size\": 100, "
     "\"num_attention_heads\": 4, \"attention_bias\": true, " HEADS "\"rms_norm_eps\": 1e-6}}",
     "vllm:tp=2", "o_proj"},
    {"a part that is not quantised", QWEN("256", FP8_BUT("model.layers.1.self_attn.k_proj")),
     "vllm:tp=2", "cannot be fused"},
    {"a router that the list leaves out", QWEN("256", FP8_LIST("")), "vllm:tp=2",
     "list model.layers.0.mlp.gate"},
    {"a router that it has in some layers", QWEN("256", FP8_LIST(", \"model.layers.0.mlp.gate\"")),
     "vllm:tp=2", "list model.layers.1.mlp.gate"},
    {"a router by the end of its name", QWEN("256", FP8_LIST(", \"mlp.gate\"")), "vllm:tp=2",
     "whole names"},
    {"attention by what it stands in", QWEN("256", FP8_BUT("model.layers.1.self_attn")),
     "vllm:tp=2", "list model.layers.1.self_attn.q_proj"},
    {"a stage without experts", DEEPSEEK("glm4_moe_lite", "48", ""), "vllm:pp=4",
     "none of them with experts"},
    {"further tokens in Ling 2.0",
     HEAD("bailing_moe_v2") HEADS
     "\"num_experts\": 4, \"moe_intermediate_size\": 256, \"num_shared_experts\": 1, "
     "\"num_nextn_predict_layers\": 1}",
     "vllm:tp=2", "predict further"},
    {"Kimi's tower under other names",
     "{\"model_type\": \"kimi_k25\", \"text_config\": " DEEPSEEK(
         "kimi_k2", "48", "") ", \"vision_config\": {\"vt_hidden_size\": 64}}",
     "vllm:tp=2", "without vt_"},
    {"a partition of other stages", QWEN("256", ""), "vllm:pp=2,partition=1-2-1", "2 numbers"},
    {"a partition of other layers", QWEN("256", ""), "vllm:pp=2,partition=1-2", "together 4"},
    {"a partition of letters", QWEN("256", ""), "vllm:pp=2,partition=1-x", "2 numbers"},
    {"a key of SGLang", QWEN("256", ""), "vllm:dp_attention=1", "SGLang"},
    {"a table as a key", QWEN("256", ""), "vllm:placement=x", "file"},
};

/* Ling 2.0's router has the model's dtype unless router_dtype is said: f32 for fp32, and bf16 for
 * anything else. */
Test(vllm, routers_of_ling_have_the_dtype_that_the_config_says)
{
    static const struct {
        const char *said, *spec;
        enum wf_dtype dtype;
    } cases[] = {
        {"", "vllm:dtype=f32", WF_DTYPE_F32},
        {"", "vllm:dtype=bf16", WF_DTYPE_BF16},
        {", \"router_dtype\": \"fp32\"", "vllm:dtype=bf16", WF_DTYPE_F32},
        {", \"router_dtype\": \"bf16\"", "vllm:dtype=f32", WF_DTYPE_BF16},
    };
    static const char router[] = LAYER1 "mlp.gate.weight";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char config[1024];
        snprintf(config, sizeof config, "%s%s}",
                 HEAD("bailing_moe_v2") HEADS "\"num_experts\": 4, \"moe_intermediate_size\": 256, "
                                              "\"num_shared_experts\": 1",
                 cases[i].said);
        struct wf_model *model = parse(config);
        struct wf_recipe recipe;
        struct wf_layout *layout = NULL;
        struct wf_error error = {0};
        cr_assert_eq(wf_recipe_parse(cases[i].spec, model, &recipe, &error), WF_OK, "%s",
                     error.text);
        cr_assert_eq(wf_layout_derive(model, &recipe, 0, &layout, &error), WF_OK, "%s", error.text);
        uint32_t tensor = wf_layout_find(layout, router, strlen(router));
        cr_assert_neq(tensor, UINT32_MAX);
        cr_expect_eq(layout->tensors[tensor].dtype, cases[i].dtype, "%s%s", cases[i].spec,
                     cases[i].said);
        wf_layout_free(layout);
        wf_model_free(model);
    }
}

/* Ling's class hands the quantisation to its linears alone, and its attention has no scales. */
Test(vllm, attention_of_ling_has_no_scales)
{
    static const char *const names[] = {LAYER1 "attention.attn.q_scale",
                                        LAYER1 "attention.attn.prob_scale"};
    struct wf_model *model = parse(LING "}");
    struct wf_recipe recipe;
    struct wf_layout *layout = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_recipe_parse("vllm:tp=4", model, &recipe, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_layout_derive(model, &recipe, 0, &layout, &error), WF_OK, "%s", error.text);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        cr_expect_eq(wf_layout_find(layout, names[i], strlen(names[i])), UINT32_MAX, "%s",
                     names[i]);
    }
    wf_layout_free(layout);
    wf_model_free(model);
}

Test(vllm, what_is_not_run_is_refused_by_name)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct wf_model *model = parse(refusals[i].config);
        struct wf_recipe recipe;
        struct wf_error error = {0};
        enum wf_status status = wf_recipe_parse(refusals[i].spec, model, &recipe, &error);
        cr_expect(status == WF_INVALID || status == WF_UNSUPPORTED, "%s", refusals[i].name);
        cr_expect(strstr(error.text, refusals[i].fragment), "%s: %s", refusals[i].name, error.text);
        wf_model_free(model);
    }
}

/* EPLB's table says which expert each slot of each layer holds. */
Test(vllm, a_placement_says_where_experts_are)
{
    static const uint32_t table[4 * 8] = {
        0, 1, 2, 3, 4, 5, 0, 1, /* as it begins */
        5, 4, 3, 2, 1, 0, 5, 5, /* layer 1 */
        0, 1, 2, 3, 4, 5, 0, 1, /* as it begins */
        0, 1, 2, 3, 4, 5, 0, 1,
    };
    struct wf_placement placement = {.layers = 4, .slots = 8, .experts = table};
    struct wf_model *model = parse(QWEN("256", ""));
    struct wf_recipe recipe;
    struct wf_layout *layout = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_recipe_parse("vllm:tp=2,ep=2,redundant=2", model, &recipe, &error), WF_OK, "%s",
                 error.text);
    recipe.placement = &placement;
    cr_assert_eq(wf_layout_derive(model, &recipe, 1, &layout, &error), WF_OK, "%s", error.text);
    const struct place places[] = {
        {EXPERTS1 "w2_weight", "4x256x256", 0, LAYER1 "mlp.experts.1.down_proj.weight", 0},
        {EXPERTS1 "w2_weight", "4x256x256", 3 * 65536, LAYER1 "mlp.experts.5.down_proj.weight", 0},
    };
    check_place("placement", model, layout, &places[0]);
    check_place("placement", model, layout, &places[1]);
    wf_layout_free(layout);
    placement.slots = 7;
    cr_expect_eq(wf_layout_derive(model, &recipe, 1, &layout, &error), WF_INVALID);
    cr_expect(strstr(error.text, "7 slots"), "%s", error.text);
    wf_model_free(model);
}
