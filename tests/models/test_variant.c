/* test_variant.c - a job's model of which some groups hold the weights quantised: its inventory is
 * both views', numbered once, and every recipe gets the view that it asks for. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/layout.h"
#include "models/variant.h"

enum { RECIPES_MAX = 4, CONFIG_MAX = 2048 };

#define FP8 ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": "
/* A list of modules that says nothing: no engine's reading of it is held against the rows. */
#define FP8_128 FP8 "[128, 128], \"modules_to_not_convert\": [\"...\"]}"
/* What llm-compressor and slime write of a scale for each row. */
#define FP8_ROWS                                                                         \
    ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": " \
    "\"float-quantized\", \"ignore\": [\"lm_head\"], \"config_groups\": {\"group_0\": {" \
    "\"weights\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"channel\", "    \
    "\"symmetric\": true}, \"input_activations\": {\"dynamic\": true}}}}"

static const char dense[] =
    "\"model_type\": \"qwen3\", \"hidden_size\": 512, \"num_hidden_layers\": 2, \"vocab_size\": "
    "260, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 128, "
    "\"intermediate_size\": 1024, \"tie_word_embeddings\": false";
static const char moe[] =
    "\"model_type\": \"qwen3_moe\", \"hidden_size\": 512, \"num_hidden_layers\": 3, "
    "\"vocab_size\": 260, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": "
    "128, \"intermediate_size\": 1024, \"tie_word_embeddings\": false, \"num_experts\": 4, "
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 256, \"mlp_only_layers\": [], "
    "\"decoder_sparse_step\": 1";
static const char mla[] =
    "\"model_type\": \"deepseek_v3\", \"hidden_size\": 512, \"num_hidden_layers\": 3, "
    "\"vocab_size\": 260, \"num_attention_heads\": 8, \"num_key_value_heads\": 8, "
    "\"q_lora_rank\": 256, \"kv_lora_rank\": 128, \"qk_nope_head_dim\": 128, "
    "\"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"intermediate_size\": 1024, "
    "\"n_routed_experts\": 4, \"n_shared_experts\": 1, \"num_experts_per_tok\": 2, "
    "\"moe_intermediate_size\": 256, \"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, "
    "\"topk_method\": \"noaux_tc\", \"num_nextn_predict_layers\": 1";

static struct wf_model *parse(const char *keys, const char *more)
{
    char text[CONFIG_MAX];
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    int len = snprintf(text, sizeof text, "{%s%s}", keys, more);
    cr_assert(len < (int)sizeof text);
    cr_assert_eq(wf_model_parse(text, (size_t)len, NULL, &model, &error), WF_OK, "%s", error.text);
    return model;
}

/* "SPEC;SPEC" */
static enum wf_status make(const struct wf_model *config, const char *specs,
                           struct wf_model **job_out, struct wf_error *error)
{
    struct wf_recipe recipes[RECIPES_MAX];
    const struct wf_recipe *list[RECIPES_MAX];
    uint32_t count = 0;
    while (*specs) {
        char spec[WF_SPEC_MAX];
        int len = (int)strcspn(specs, ";");
        snprintf(spec, sizeof spec, "%.*s", len, specs);
        cr_assert_eq(wf_recipe_parse(spec, NULL, &recipes[count], error), WF_OK, "%s: %s", spec,
                     error->text);
        list[count] = &recipes[count];
        count++;
        specs += len + (specs[len] == ';');
    }
    return wf_model_for_job(config, list, count, job_out, error);
}

static struct wf_model *make_good(const struct wf_model *config, const char *specs)
{
    struct wf_model *job = NULL;
    struct wf_error error = {0};
    cr_assert_eq(make(config, specs, &job, &error), WF_OK, "%s: %s", specs, error.text);
    return job;
}

Test(variant, plain_jobs_have_none)
{
    static const struct {
        const char *keys, *more, *specs;
    } rows[] = {
        {dense, "", "megatron:;vllm:"},
        {dense, "", "fsdp:dp=2;vllm:quant=none;sglang:quant=config"},
        {dense, FP8_128, "vllm:;hf:"},
        {dense, FP8_128, "vllm:quant=vllm;sglang:"},
        {dense, FP8 "[64, 64]}", "vllm:;hf:"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *config = parse(rows[i].keys, rows[i].more);
        struct wf_model *job = make_good(config, rows[i].specs);
        cr_expect_null(job->variants, "%s", rows[i].specs);
        cr_expect(wf_hash_equal(job->hash, config->hash), "%s", rows[i].specs);
        cr_expect_eq(wf_model_pair(job, 0), NULL);
        cr_expect_eq(wf_model_of_view(job, job, 3), 3);
        wf_model_free(job);
        wf_model_free(config);
    }
}

static void check_pairs(const struct wf_model *job, const char *name)
{
    const struct wf_variants *v = job->variants;
    uint32_t last = 0;
    for (uint32_t i = 0; i < v->pair_count; i++) {
        const struct wf_variant_pair *pair = &v->pairs[i];
        const struct wf_param *matrix = &job->params[pair->matrix];
        const struct wf_param *codes = &job->params[pair->codes];
        const struct wf_param *scales = &job->params[pair->scales];
        size_t len = strlen(matrix->name);
        bool by_row = wf_quant_is_by_row(v->rule);
        uint64_t high = by_row ? 1 : 128, wide = by_row ? matrix->shape[1] : 128;
        const char *end = by_row ? "_scale@" : "_scale_inv@";
        cr_expect(i == 0 || pair->matrix > last, "%s: pair %u", name, i);
        last = pair->matrix;
        cr_expect(matrix->dtype == WF_DTYPE_BF16 && codes->dtype == WF_DTYPE_F8_E4M3 &&
                      scales->dtype == WF_DTYPE_F32,
                  "%s: %s", name, matrix->name);
        cr_expect(strncmp(codes->name, matrix->name, len) == 0 && codes->name[len] == '@', "%s",
                  codes->name);
        cr_expect(strncmp(scales->name, matrix->name, len) == 0 &&
                      strncmp(scales->name + len, end, strlen(end)) == 0,
                  "%s", scales->name);
        cr_expect_eq(codes->elements, matrix->elements);
        cr_expect(scales->shape[0] == (matrix->shape[0] + high - 1) / high &&
                      scales->shape[1] == (matrix->shape[1] + wide - 1) / wide,
                  "%s: %s", name, scales->name);
        cr_expect(wf_model_pair(job, pair->matrix) == pair &&
                      wf_model_pair(job, pair->codes) == pair &&
                      wf_model_pair(job, pair->scales) == pair,
                  "%s: %s", name, matrix->name);
    }
}

static void check_inventory(const struct wf_model *job, const char *name)
{
    const struct wf_variants *v = job->variants;
    for (uint32_t i = 0; i < job->param_count; i++) {
        const char *text = job->params[i].name;
        cr_expect_eq(wf_model_find(job, text, strlen(text)), i, "%s: %s", name, text);
        cr_expect(i >= v->plain_count || strcmp(text, v->plain->params[i].name) == 0);
        cr_expect_eq(strchr(text, '@') != NULL, i >= v->plain_count, "%s: %s", name, text);
        cr_expect(i < v->plain_count || wf_model_pair(job, i), "%s: %s", name, text);
    }
    uint32_t next = v->plain_count;
    for (uint32_t i = 0; i < v->quantised->param_count; i++) {
        const struct wf_param *param = &v->quantised->params[i];
        uint32_t of = wf_model_of_view(job, v->quantised, i);
        cr_expect(of < v->plain_count || of == next++, "%s: %s", name, param->name);
        cr_expect(job->params[of].dtype == param->dtype &&
                      job->params[of].elements == param->elements &&
                      strncmp(job->params[of].name, param->name, strlen(param->name)) == 0,
                  "%s: %s", name, param->name);
    }
    cr_expect_eq(next, job->param_count, "%s", name);
}

Test(variant, inventory_is_that_of_both_views)
{
    static const struct {
        const char *name, *keys, *more, *specs;
        enum wf_quant rule;
    } rows[] = {
        {"dense", dense, "", "megatron:;vllm:quant=vllm", WF_QUANT_VLLM},
        {"experts", moe, "", "megatron:;vllm:;sglang:quant=vllm_ue8m0", WF_QUANT_VLLM_UE8M0},
        {"latents", mla, "", "fsdp:;sglang:quant=slime;vllm:quant=slime", WF_QUANT_SLIME},
        {"fp8 config, trainer", moe, FP8_128, "megatron:;vllm:", WF_QUANT_DEEPSEEK},
        {"fp8 config, plain engine", mla, FP8_128, "hf:;vllm:quant=none", WF_QUANT_DEEPSEEK},
        {"fp8 config, a rule", dense, FP8_128, "fsdp:;vllm:quant=awex;sglang:", WF_QUANT_AWEX},
        {"rows", moe, "", "fsdp:;sglang:quant=channel_mul", WF_QUANT_CHANNEL_MUL},
        {"rows by config", dense, FP8_ROWS, "megatron:;vllm:", WF_QUANT_CHANNEL_DIV},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *config = parse(rows[i].keys, rows[i].more);
        struct wf_model *plain = parse(rows[i].keys, ""), *fp8 = parse(rows[i].keys, FP8_128);
        struct wf_model *job = make_good(config, rows[i].specs);
        cr_assert_not_null(job->variants, "%s", rows[i].name);
        cr_expect_eq(job->variants->rule, rows[i].rule, "%s", rows[i].name);
        bool by_row = wf_quant_is_by_row(rows[i].rule); /* whose config says more than that */
        cr_expect(by_row || wf_hash_equal(job->variants->plain->hash, plain->hash), "%s",
                  rows[i].name);
        cr_expect(by_row || wf_hash_equal(job->variants->quantised->hash, fp8->hash), "%s",
                  rows[i].name);
        cr_expect(by_row || wf_hash_equal(wf_model_config_view(job)->hash, config->hash), "%s",
                  rows[i].name);
        cr_expect_gt(job->variants->pair_count, 0, "%s", rows[i].name);
        check_inventory(job, rows[i].name);
        check_pairs(job, rows[i].name);
        wf_model_free(job);
        wf_model_free(fp8);
        wf_model_free(plain);
        wf_model_free(config);
    }
}

Test(variant, each_recipe_gets_its_view)
{
    static const struct {
        const char *more, *spec;
        bool quantised;
    } rows[] = {
        {"", "megatron:", false},
        {"", "hf:", false},
        {"", "vllm:", false},
        {"", "vllm:quant=none", false},
        {"", "vllm:quant=vllm", true},
        {FP8_128, "megatron:", false},
        {FP8_128, "fsdp:", false},
        {FP8_128, "hf:", true},
        {FP8_128, "sglang:", true},
        {FP8_128, "sglang:quant=config", true},
        {FP8_128, "vllm:quant=none", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *config = parse(dense, rows[i].more);
        struct wf_model *job = make_good(config, "megatron:;vllm:quant=vllm");
        struct wf_recipe recipe;
        struct wf_error error = {0};
        cr_assert_eq(wf_recipe_parse(rows[i].spec, job, &recipe, &error), WF_OK, "%s: %s",
                     rows[i].spec, error.text);
        cr_expect_eq(wf_model_view(job, &recipe),
                     rows[i].quantised ? job->variants->quantised : job->variants->plain, "%s%s",
                     rows[i].spec, rows[i].more);
        wf_model_free(job);
        wf_model_free(config);
    }
}

/* A view's layout is that of the view's own config, but for the numbers of parameters. */
Test(variant, layouts_are_those_of_the_views_configs)
{
    static const struct {
        const char *keys, *spec, *alike;
        bool fp8;
    } rows[] = {
        {dense, "megatron:tp=2", "megatron:tp=2", false},
        {dense, "fsdp:dp=3", "fsdp:dp=3", false},
        {dense, "vllm:tp=2,quant=vllm", "vllm:tp=2", true},
        {dense, "sglang:tp=4,quant=vllm", "sglang:tp=4", true},
        {moe, "vllm:tp=4,quant=vllm", "vllm:tp=4", true}, /* blocks of 64 */
        {moe, "vllm:tp=2,ep=2,quant=vllm", "vllm:tp=2,ep=2", true},
        {moe, "sglang:tp=2,quant=vllm", "sglang:tp=2", true},
        {mla, "sglang:tp=2,quant=vllm", "sglang:tp=2", true},
        {mla, "vllm:tp=2,stage=post,moe_backend=triton,deep_gemm=off,quant=vllm",
         "vllm:tp=2,stage=post,moe_backend=triton,deep_gemm=off", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *config = parse(rows[i].keys, "");
        struct wf_model *alike = parse(rows[i].keys, rows[i].fp8 ? FP8_128 : "");
        struct wf_model *job = make_good(config, "vllm:quant=vllm");
        struct wf_recipe recipe, other;
        struct wf_layout *a = NULL, *b = NULL;
        struct wf_error error = {0};
        cr_assert_eq(wf_recipe_parse(rows[i].spec, job, &recipe, &error), WF_OK, "%s", error.text);
        cr_assert_eq(wf_recipe_parse(rows[i].alike, alike, &other, &error), WF_OK, "%s",
                     error.text);
        for (uint32_t rank = 0; rank < wf_recipe_world(&recipe); rank++) {
            cr_assert_eq(wf_layout_derive(job, &recipe, rank, &a, &error), WF_OK, "%s", error.text);
            cr_assert_eq(wf_layout_derive(alike, &other, rank, &b, &error), WF_OK);
            cr_assert(a->piece_count == b->piece_count && a->tensor_count == b->tensor_count &&
                          a->bytes == b->bytes,
                      "%s", rows[i].spec);
            for (uint32_t p = 0; p < a->piece_count; p++) {
                const char *name = alike->params[b->pieces[p].param].name;
                cr_assert(a->pieces[p].kind != WF_PIECE_DATA ||
                              strncmp(job->params[a->pieces[p].param].name, name, strlen(name)) ==
                                  0,
                          "%s: piece %u is of %s", rows[i].spec, p, name);
            }
            cr_expect_eq(wf_hash_equal(a->hash, b->hash), !rows[i].fp8, "%s", rows[i].spec);
            wf_layout_free(a);
            wf_layout_free(b);
        }
        wf_model_free(job);
        wf_model_free(alike);
        wf_model_free(config);
    }
}

/* What engines keep of kv_b_proj for the absorbed products: the same numbers of an unquantised one,
 * dequantised copies of one in fp8, which the engine must make anew. */
Test(variant, absorbed_matrices_of_fp8_are_derived)
{
    static const struct {
        const char *spec, *name;
        enum wf_tensor_kind plain;
    } rows[] = {
        {"vllm:stage=post,moe_backend=triton,deep_gemm=off", "%smla_attn.mla_attn.W_UK_T",
         WF_TENSOR_VIEW},
        {"vllm:stage=post,moe_backend=triton,deep_gemm=off", "%smla_attn.mla_attn.W_UV",
         WF_TENSOR_VIEW},
        {"sglang:", "attr:%sw_kc", WF_TENSOR_WEIGHTS},
        {"sglang:", "attr:%sw_vc", WF_TENSOR_WEIGHTS},
    };
    struct wf_model *config =
        parse(mla, FP8
              "[128, 128], \"modules_to_not_convert\": [\"model.layers.1.self_attn.kv_b_proj\"]}");
    struct wf_model *job = make_good(config, "megatron:;vllm:");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int quantised = 0; quantised < 2; quantised++) {
            struct wf_recipe recipe;
            struct wf_layout *layout = NULL;
            struct wf_error error = {0};
            cr_assert_eq(wf_recipe_parse(rows[i].spec, NULL, &recipe, &error), WF_OK);
            recipe.quant = quantised ? WF_RECIPE_QUANT_CONFIG : WF_RECIPE_QUANT_NONE;
            cr_assert_eq(wf_layout_derive(job, &recipe, 0, &layout, &error), WF_OK, "%s",
                         error.text);
            for (int layer = 0; layer < 2; layer++) {
                char dir[64], name[WF_NAME_MAX];
                snprintf(dir, sizeof dir, "model.layers.%d.self_attn.", layer);
                snprintf(name, sizeof name, rows[i].name, dir);
                uint32_t tensor = wf_layout_find(layout, name, strlen(name));
                cr_assert_neq(tensor, UINT32_MAX, "%s", name);
                cr_expect_eq(layout->tensors[tensor].kind,
                             quantised && layer == 0 ? WF_TENSOR_DERIVED : rows[i].plain, "%s",
                             name);
                cr_expect_eq(layout->tensors[tensor].dtype, WF_DTYPE_BF16, "%s", name);
            }
            wf_layout_free(layout);
        }
    }
    wf_model_free(job);
    wf_model_free(config);
}

Test(variant, refusals_say_what_and_why)
{
    static const char gpt_oss[] =
        "\"model_type\": \"gpt_oss\", \"hidden_size\": 64, \"num_hidden_layers\": 1, "
        "\"vocab_size\": 64, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
        "\"head_dim\": 32, \"num_local_experts\": 2, \"intermediate_size\": 64";
    static const char wide[] =
        "\"model_type\": \"qwen3\", \"hidden_size\": 128, \"num_hidden_layers\": 1, "
        "\"vocab_size\": 128, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"head_dim\": 32, \"intermediate_size\": 1048704, \"tie_word_embeddings\": false";
#define METHOD(name) ", \"quantization_config\": {\"quant_method\": \"" name "\"}"
    static const struct {
        const char *keys, *more, *specs;
        enum wf_status status;
        const char *fragment;
    } rows[] = {
        {dense, "", "vllm:quant=vllm;sglang:quant=deepseek", WF_INVALID,
         "vllm has quant=vllm and sglang has quant=deepseek: expected one rule"},
        {gpt_oss, METHOD("mxfp4"), "vllm:quant=none", WF_UNSUPPORTED, "in another way"},
        {gpt_oss, METHOD("mxfp4"), "vllm:quant=vllm", WF_UNSUPPORTED, "in another way"},
        {gpt_oss, "", "vllm:quant=vllm", WF_UNSUPPORTED, "gpt_oss has no rows for scales of fp8"},
        {dense, METHOD("awq"), "sglang:quant=vllm", WF_UNSUPPORTED, "in another way"},
        {dense, FP8 "[64, 128]}", "megatron:;vllm:", WF_UNSUPPORTED, "blocks of 64 x 128"},
        {dense, FP8_128, "megatron:;vllm:quant=channel_div", WF_UNSUPPORTED, "scales of blocks"},
        {dense, FP8_ROWS, "megatron:;vllm:quant=vllm", WF_UNSUPPORTED, "a scale for each row"},
        {wide, "", "megatron:;vllm:quant=channel_mul", WF_UNSUPPORTED,
         "down_proj.weight has rows of 1048704 elements; expected at most 1048576"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *config = parse(rows[i].keys, rows[i].more), *job = NULL;
        struct wf_error error = {0};
        cr_expect_eq(make(config, rows[i].specs, &job, &error), rows[i].status, "%s: %s",
                     rows[i].specs, error.text);
        cr_expect(strstr(error.text, rows[i].fragment), "%s: %s", rows[i].specs, error.text);
        cr_expect_null(job);
        wf_model_free(config);
    }
}

/* A SPEC of a view that the job does not have. */
Test(variant, a_recipe_against_the_wrong_job_is_refused)
{
    static const struct {
        const char *more, *specs, *spec, *fragment;
    } rows[] = {
        {"", "vllm:", "vllm:quant=vllm", "quant=vllm: the job's weights are not quantised"},
        {FP8_128, "vllm:", "vllm:quant=none", "quant=none: the job's weights are in fp8"},
        {"", "vllm:quant=vllm", "vllm:quant=awex", "in fp8 by another rule"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *config = parse(dense, rows[i].more);
        struct wf_model *job = make_good(config, rows[i].specs);
        struct wf_recipe recipe;
        struct wf_error error = {0};
        cr_expect_eq(wf_recipe_parse(rows[i].spec, job, &recipe, &error), WF_INVALID, "%s",
                     rows[i].spec);
        cr_expect(strstr(error.text, rows[i].fragment), "%s: %s", rows[i].spec, error.text);
        wf_model_free(job);
        wf_model_free(config);
    }
}

/* An engine that was started otherwise than the job's SPEC says. */
Test(variant, a_quant_that_differs_is_named)
{
    static const struct {
        const char *live, *spec, *fragment;
    } rows[] = {
        {"vllm:quant=none", "vllm:quant=vllm",
         "was started with quant=config; the recipe says quant=vllm"},
        {"vllm:tp=2,quant=vllm", "vllm:tp=2,quant=none", "was started with quant=vllm; the recipe"},
    };
    struct wf_model *config = parse(dense, "");
    struct wf_model *job = make_good(config, "vllm:quant=vllm");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_recipe recipe;
        struct wf_error error = {0};
        struct wf_layout *has = NULL, *said = NULL;
        cr_assert_eq(wf_recipe_parse(rows[i].live, job, &recipe, &error), WF_OK, "%s", error.text);
        cr_assert_eq(wf_layout_derive(job, &recipe, 0, &has, &error), WF_OK, "%s", error.text);
        cr_assert_eq(wf_recipe_parse(rows[i].spec, job, &recipe, &error), WF_OK, "%s", error.text);
        cr_assert_eq(wf_layout_derive(job, &recipe, 0, &said, &error), WF_OK, "%s", error.text);
        struct wf_live_tensor *live = calloc(has->tensor_count, sizeof *live);
        uint32_t *order = calloc(said->tensor_count, sizeof *order);
        for (uint32_t t = 0; t < has->tensor_count; t++) {
            const struct wf_tensor *tensor = &has->tensors[t];
            live[t] = (struct wf_live_tensor){
                .name = tensor->name, .dtype = tensor->dtype, .ndim = tensor->ndim};
            memcpy(live[t].shape, tensor->shape, sizeof tensor->shape);
            memcpy(live[t].strides, tensor->strides, sizeof tensor->strides);
        }
        cr_expect_eq(wf_layout_match_recipe(job, &recipe, 0, said, live, has->tensor_count, NULL, 0,
                                            order, &error),
                     WF_MISMATCH);
        cr_expect(strstr(error.text, rows[i].fragment), "%s: %s", rows[i].spec, error.text);
        free(live);
        free(order);
        wf_layout_free(has);
        wf_layout_free(said);
    }
    wf_model_free(job);
    wf_model_free(config);
}

Test(variant, hash_tells_rules_and_configs_apart)
{
    static const struct {
        const char *more, *specs;
    } rows[] = {{"", "vllm:"},
                {"", "vllm:quant=vllm"},
                {"", "vllm:quant=awex"},
                {FP8_128, "megatron:;vllm:quant=vllm"},
                {FP8_128, "vllm:"}};
    enum { ROWS = sizeof rows / sizeof rows[0] };
    struct wf_hash hashes[ROWS];
    for (size_t i = 0; i < ROWS; i++) {
        struct wf_model *config = parse(dense, rows[i].more);
        struct wf_model *job = make_good(config, rows[i].specs);
        hashes[i] = job->hash;
        for (size_t j = 0; j < i; j++) {
            cr_expect(!wf_hash_equal(hashes[i], hashes[j]), "%s%s and %s%s", rows[i].specs,
                      rows[i].more, rows[j].specs, rows[j].more);
        }
        wf_model_free(job);
        wf_model_free(config);
    }
}
