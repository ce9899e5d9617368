/* test_match.c - a registration that does not match says which recipe the tensors are of; views and
 * derived tensors need not be listed. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "models/layout.h"

#define HEAD(type)                                                                    \
    "{\"model_type\": \"" type                                                        \
    "\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_size\": "             \
    "101, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 16, " \
    "\"intermediate_size\": 96, \"torch_dtype\": \"bfloat16\""
#define DENSE HEAD("qwen3") "}"
#define EXPERTS                                          \
    HEAD("qwen3_moe")                                    \
    ", \"num_experts\": 8, \"num_experts_per_tok\": 2, " \
    "\"moe_intermediate_size\": 256, \"decoder_sparse_step\": 1, \"mlp_only_layers\": []}"
#define LATENTS                                                                            \
    "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "    \
    "\"vocab_size\": 101, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "        \
    "\"intermediate_size\": 96, \"torch_dtype\": \"bfloat16\", \"n_routed_experts\": 4, "  \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, \"n_shared_experts\": 1, " \
    "\"first_k_dense_replace\": 1, \"q_lora_rank\": 48, \"kv_lora_rank\": 64, "            \
    "\"qk_nope_head_dim\": 32, \"qk_rope_head_dim\": 16, \"v_head_dim\": 32}"

/* A rank that was started as one recipe and registers as another. */
static const struct {
    const char *name, *config, *real, *said;
    uint32_t rank;
    const char *cause;
} rows[] = {
    {"experts dealt out", EXPERTS, "vllm:tp=4,ep=4", "vllm:tp=4", 1,
     "vllm was started with ep=4; the recipe says ep=1"},
    {"experts cut", EXPERTS, "vllm:tp=4", "vllm:tp=4,ep=4", 2,
     "vllm was started with ep=1; the recipe says ep=4"},
    {"another tp", DENSE, "vllm:tp=4", "vllm:tp=2", 1,
     "vllm was started with tp=4; the recipe says tp=2"},
    {"redundant experts", EXPERTS, "vllm:tp=2,ep=2,redundant=8", "vllm:tp=2,ep=2", 0,
     "vllm was started with redundant=8"},
    {"experts of SGLang", EXPERTS, "sglang:tp=4,ep=2", "sglang:tp=4", 1,
     "sglang was started with ep=2; the recipe says ep=1"},
    {"Megatron's tp with its padding", DENSE, "megatron:tp=2", "megatron:tp=1", 0,
     "megatron was started with tp=2; the recipe says tp=1"},
    {"Megatron's other names", DENSE, "megatron:tp=2,names=local", "megatron:tp=2", 0,
     "megatron was started with names=local; the recipe says names=te"},
    {"nothing near", DENSE, "vllm:tp=1", "sglang:tp=8", 0, "likely cause"},
};

struct live {
    struct wf_live_tensor *tensors;
    size_t count;
};

static struct live list(const struct wf_layout *layout, bool all)
{
    struct live live = {calloc(layout->tensor_count + 1, sizeof *live.tensors), 0};
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const struct wf_tensor *tensor = &layout->tensors[i];
        if (all || tensor->kind == WF_TENSOR_WEIGHTS) {
            struct wf_live_tensor *it = &live.tensors[live.count++];
            *it = (struct wf_live_tensor){
                .name = tensor->name, .dtype = tensor->dtype, .ndim = tensor->ndim};
            memcpy(it->shape, tensor->shape, sizeof it->shape);
            memcpy(it->strides, tensor->strides, sizeof it->strides);
        }
    }
    return live;
}

static struct wf_model *parse(const char *config)
{
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK, "%s",
                 error.text);
    return model;
}

static struct wf_layout *derive(const struct wf_model *model, const char *spec, uint32_t rank,
                                struct wf_recipe *recipe)
{
    struct wf_layout *layout = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_recipe_parse(spec, model, recipe, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_layout_derive(model, recipe, rank, &layout, &error), WF_OK, "%s", error.text);
    return layout;
}

Test(match, a_mismatch_names_the_recipe_that_fits)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *model = parse(rows[i].config);
        struct wf_recipe recipe;
        struct wf_error error = {0};
        struct wf_layout *real = derive(model, rows[i].real, rows[i].rank, &recipe);
        struct live live = list(real, true);
        struct wf_layout *said = derive(model, rows[i].said, rows[i].rank, &recipe);
        uint32_t *order = calloc(said->tensor_count + 1, sizeof *order);
        cr_expect_eq(wf_layout_match_recipe(model, &recipe, rows[i].rank, said, live.tensors,
                                            live.count, NULL, 0, order, &error),
                     WF_MISMATCH, "%s", rows[i].name);
        cr_expect(strstr(error.text, rows[i].cause), "%s: %s", rows[i].name, error.text);
        free(order);
        free(live.tensors);
        wf_layout_free(said);
        wf_layout_free(real);
        wf_model_free(model);
    }
}

Test(match, what_is_never_written_need_not_be_listed)
{
    static const char *const specs[] = {"vllm:tp=2,stage=post,moe_backend=triton", "sglang:tp=2",
                                        "vllm:tp=2"};
    for (size_t i = 0; i < 2 * sizeof specs / sizeof specs[0]; i++) {
        struct wf_model *model = parse(LATENTS);
        struct wf_recipe recipe;
        struct wf_error error = {0};
        struct wf_layout *layout = derive(model, specs[i / 2], 1, &recipe);
        struct live live = list(layout, i % 2);
        uint32_t *order = calloc(layout->tensor_count + 1, sizeof *order);
        cr_expect_eq(wf_layout_match(layout, live.tensors, live.count, NULL, 0, order, &error),
                     WF_OK, "%s: %s", specs[i / 2], error.text);
        for (uint32_t t = 0; t < layout->tensor_count; t++) {
            bool weights = layout->tensors[t].kind == WF_TENSOR_WEIGHTS;
            cr_expect_eq(order[t] != UINT32_MAX, weights || i % 2, "%s %s", specs[i / 2],
                         layout->tensors[t].name);
        }
        free(order);
        free(live.tensors);
        wf_layout_free(layout);
        wf_model_free(model);
    }
}

Test(match, strides_say_what_they_are)
{
    static const struct {
        int64_t strides[2];
        const char *cause;
    } changes[] = {{{1, 64}, "stored transposed"}, {{128, 1}, "larger tensor"}};
    struct wf_model *model = parse(DENSE);
    struct wf_recipe recipe;
    struct wf_layout *layout = derive(model, "vllm:tp=2", 0, &recipe);
    uint32_t at = wf_layout_find(layout, "model.layers.0.mlp.down_proj.weight", 35);
    uint32_t *order = calloc(layout->tensor_count + 1, sizeof *order);
    for (size_t i = 0; i < 2; i++) {
        struct live live = list(layout, true);
        struct wf_error error = {0};
        memcpy(live.tensors[at].strides, changes[i].strides, sizeof changes[i].strides);
        cr_expect_eq(wf_layout_match(layout, live.tensors, live.count, NULL, 0, order, &error),
                     WF_MISMATCH);
        cr_expect(strstr(error.text, changes[i].cause), "%s", error.text);
        free(live.tensors);
    }
    free(order);
    wf_layout_free(layout);
    wf_model_free(model);
}
