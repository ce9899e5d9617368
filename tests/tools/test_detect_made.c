/* test_detect_made.c - dumps that no executed layout shows: packed weights, layers that alternate
 * without a rule, experts beyond those of the model, sizes that are no round numbers. Each is made
 * from a config and a SPEC, and the answer must derive the very same layouts. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/layout.h"
#include "tools/layout/detect_files.h"

#define INT4                                                                                 \
    ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "     \
    "\"pack-quantized\", \"weights\": {\"num_bits\": 4, \"group_size\": 32, \"symmetric\": " \
    "true}, \"ignore\": [\"lm_head\", \"re:.*self_attn.*\", \"re:.*shared_experts.*\", "     \
    "\"re:.*mlp\\\\.(gate|up|gate_up|down)_proj.*\"]}"
#define NVFP4(ignore)                                                                         \
    ", \"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", " \
    "\"ignore\": [" ignore "]}"
#define DEEPSEEK(type, heads, latent, rest)                                          \
    "{\"model_type\": \"" type                                                       \
    "\", \"torch_dtype\": \"bfloat16\", \"num_attention_heads\": " heads ", " latent \
    ", \"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\", " rest "}"
#define MLA                                                                 \
    "\"q_lora_rank\": 64, \"kv_lora_rank\": 32, \"qk_nope_head_dim\": 16, " \
    "\"qk_rope_head_dim\": 8, \"v_head_dim\": 24"
#define KIMI(more)                                                                              \
    DEEPSEEK("kimi_k2", "4", MLA,                                                               \
             "\"hidden_size\": 64, \"num_hidden_layers\": 3, \"vocab_size\": 192, "             \
             "\"intermediate_size\": 128, \"n_routed_experts\": 8, \"moe_intermediate_size\": " \
             "64, \"n_shared_experts\": 1, \"first_k_dense_replace\": 1" more)
/* Nothing is a power of two, the value's width is not the query's, no query latent. */
#define ODD                                                                                     \
    DEEPSEEK("deepseek_v3", "6",                                                                \
             "\"q_lora_rank\": null, \"kv_lora_rank\": 20, \"qk_nope_head_dim\": 12, "          \
             "\"qk_rope_head_dim\": 10, \"v_head_dim\": 14",                                    \
             "\"hidden_size\": 72, \"num_hidden_layers\": 7, \"vocab_size\": 1152, "            \
             "\"intermediate_size\": 132, \"n_routed_experts\": 6, \"moe_intermediate_size\": " \
             "44, \"n_shared_experts\": 3, \"first_k_dense_replace\": 3, "                      \
             "\"num_nextn_predict_layers\": 0")
#define QWEN(type, more)                                                                  \
    "{\"model_type\": \"" type "\", \"torch_dtype\": \"bfloat16\", \"hidden_size\": 64, " \
    "\"num_hidden_layers\": 7, \"vocab_size\": 256, \"num_attention_heads\": 4, "         \
    "\"num_key_value_heads\": 2, \"head_dim\": 16, \"intermediate_size\": 96, "           \
    "\"tie_word_embeddings\": false" more "}"
#define EXPERTS ", \"num_experts\": 8, \"moe_intermediate_size\": 32, \"decoder_sparse_step\": 1"
#define NEXT                                                                                  \
    EXPERTS ", \"shared_expert_intermediate_size\": 48, \"linear_num_key_heads\": 2, "        \
            "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 16, "                    \
            "\"linear_value_head_dim\": 24, \"linear_conv_kernel_dim\": 4, \"layer_types\": " \
            "[\"linear_attention\", \"full_attention\", \"full_attention\", "                 \
            "\"linear_attention\", \"linear_attention\", \"linear_attention\", "              \
            "\"full_attention\"]"

static const struct {
    const char *name, *config, *spec, *quant;
} rows[] = {
    {"int4 experts in files", KIMI(INT4), "hf:", "int4"},
    {"int4 experts in vLLM", KIMI(INT4), "vllm:dtype=bf16,tp=2", "int4"},
    {"int4 experts in SGLang", KIMI(INT4), "sglang:dtype=bf16,tp=2", "int4"},
    {"nvfp4 but for a head", QWEN("qwen3", NVFP4("\"lm_head\"")), "hf:", "nvfp4"},
    {"nvfp4 but for attention in one layer",
     QWEN("qwen3", NVFP4("\"lm_head\", \"model.layers.2.self_attn*\"")), "hf:", "nvfp4"},
    {"nvfp4 experts", QWEN("qwen3_moe", EXPERTS NVFP4("\"lm_head\", \"*self_attn*\"")),
     "hf:", "nvfp4"},
    {"layers of two kinds in files", QWEN("qwen3_next", NEXT), "hf:", NULL},
    {"layers of two kinds in vLLM", QWEN("qwen3_next", NEXT), "vllm:dtype=bf16,tp=2", NULL},
    {"dense layers here and there", QWEN("qwen3_moe", EXPERTS ", \"mlp_only_layers\": [1, 4, 5]"),
     "vllm:dtype=bf16,tp=2,ep=2", NULL},
    {"dense layers here and there, in stages",
     QWEN("qwen3_moe", EXPERTS ", \"mlp_only_layers\": [1, 4, 5]"), "vllm:dtype=bf16,tp=2,pp=2",
     NULL},
    {"slots beyond the experts", QWEN("qwen3_moe", EXPERTS),
     "vllm:dtype=bf16,tp=2,ep=2,redundant=2", NULL},
    {"odd sizes in vLLM", ODD, "vllm:dtype=bf16,tp=2", NULL},
    {"odd sizes in SGLang", ODD, "sglang:dtype=bf16,tp=2,ep=2", NULL},
    {"odd sizes in Megatron", ODD,
     "megatron:dtype=bf16,tp=2,ep=2,etp=1,vocab_div=1152,version=0.16", NULL},
};

static struct wf_model *read_model(const char *name, const char *config)
{
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK, "%s: %s",
                 name, error.text);
    return model;
}

static void list_tensors(const struct wf_layout *layout, struct wf_dump_rank *dump)
{
    char *text = NULL;
    size_t len = 0;
    struct wf_error error = {0};
    FILE *out = open_memstream(&text, &len);
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        const struct wf_tensor *tensor = &layout->tensors[t];
        fprintf(out, "%s\t%s\t", tensor->name, wf_dtype_torch(tensor->dtype));
        for (uint32_t d = 0; d < tensor->ndim; d++) {
            fprintf(out, "%s%" PRIu64, d > 0 ? "x" : "", tensor->shape[d]);
        }
        fprintf(out, "%s\n", tensor->ndim == 0 ? "-" : "");
    }
    fclose(out);
    cr_assert_eq(wf_dump_rank_parse(dump, text, len, len, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_dump_rank_sort(dump, &error), WF_OK, "%s", error.text);
    free(text);
}

/* That its own config derives the dumps is proven in there; so here it is the SPEC: of the true
 * model it makes the very layouts. */
static bool is_true(const struct wf_detect_fit *fit, const struct wf_model *model,
                    const struct wf_recipe *recipe)
{
    struct wf_recipe other;
    bool same = fit->family == model->family &&
                wf_recipe_parse(fit->spec, model, &other, NULL) == WF_OK &&
                wf_recipe_world(&other) == wf_recipe_world(recipe);
    for (uint32_t rank = 0; same && rank < wf_recipe_world(recipe); rank++) {
        struct wf_layout *a = NULL, *b = NULL;
        same = wf_layout_derive(model, recipe, rank, &a, NULL) == WF_OK &&
               wf_layout_derive(model, &other, rank, &b, NULL) == WF_OK &&
               wf_hash_equal(a->hash, b->hash);
        wf_layout_free(a);
        wf_layout_free(b);
    }
    return same;
}

/* Sanitizers make it ten times slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 4 };
#else
enum { STRIDE = 1 };
#endif

Test(detect_made, the_model_is_among_the_answers)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i += STRIDE) {
        struct wf_model *model = read_model(rows[i].name, rows[i].config);
        struct wf_recipe recipe;
        struct wf_error error = {0};
        struct wf_detected detected = {0};
        struct wf_dump_rank dumps[4] = {{0}};
        cr_assert_eq(wf_recipe_parse(rows[i].spec, model, &recipe, &error), WF_OK, "%s: %s",
                     rows[i].name, error.text);
        uint32_t world = wf_recipe_world(&recipe), found = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            struct wf_layout *layout = NULL;
            cr_assert_eq(wf_layout_derive(model, &recipe, rank, &layout, &error), WF_OK, "%s: %s",
                         rows[i].name, error.text);
            list_tensors(layout, &dumps[rank]);
            wf_layout_free(layout);
        }
        cr_assert_eq(wf_detect(dumps, world, NULL, &detected, &error), WF_OK, "%s", error.text);
        for (uint32_t f = 0; f < detected.fit_count; f++) {
            bool here = is_true(&detected.fits[f], model, &recipe);
            const char *quant = detected.fits[f].quant;
            found += here;
            cr_expect(!here || (quant == NULL) == (rows[i].quant == NULL), "%s", rows[i].name);
            cr_expect(!here || quant == NULL || strcmp(quant, rows[i].quant) == 0, "%s: %s",
                      rows[i].name, quant);
        }
        cr_expect_eq(found, 1, "%s: %u of %u; nearest %s", rows[i].name, found, detected.fit_count,
                     detected.nearest);
        cr_expect(!detected.gave_up && !detected.more, "%s", rows[i].name);
        wf_detected_fini(&detected);
        for (uint32_t rank = 0; rank < world; rank++) {
            wf_dump_rank_fini(&dumps[rank]);
        }
        wf_model_free(model);
    }
}
