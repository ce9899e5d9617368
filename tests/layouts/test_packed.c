/* test_packed.c - weights that are packed (mxfp4, int4) move as the bytes that they are, between
 * files and engines and between engines; what would tear a group or ask for another format is
 * refused by a sentence that names it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "numbered.h"
#include "tests/sanitized.h"
#include "zoo.h"

/* Families that docs/models.md says it of. */
enum { SCALE = 16, TRIES = 6, NVFP4_FAMILIES = 25, VLLM_INT4 = 15, SGLANG_INT4 = 14 };
enum { EVERY = SANITIZED ? 4 : 1 }; /* family */

#define HEAD "{\"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_size\": 101, "
#define KIMI                                                                                      \
    HEAD "\"model_type\": \"kimi_k2\", \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "  \
         "\"intermediate_size\": 96, \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, "       \
         "\"moe_intermediate_size\": 64, \"n_shared_experts\": 1, \"first_k_dense_replace\": 1, " \
         "\"n_group\": 1, \"topk_method\": \"noaux_tc\", \"q_lora_rank\": 24, "                   \
         "\"kv_lora_rank\": 20, \"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 8, "              \
         "\"v_head_dim\": 16, \"quantization_config\": "
#define INT4(weights)                                                                  \
    KIMI "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", " \
         "\"ignore\": [\"lm_head\", \"re:.*self_attn.*\", \"re:.*shared_experts.*\", " \
         "\"re:.*mlp\\\\.(gate|up|down)_proj.*\"], \"config_groups\": {\"group_0\": "  \
         "{\"targets\": [\"Linear\"], \"weights\": {" weights "}}}}}"
#define GROUPS_OF_16                                                                      \
    "\"num_bits\": 4, \"group_size\": 16, \"strategy\": \"group\", \"symmetric\": true, " \
    "\"actorder\": null"
#define OSS                                                                                      \
    HEAD "\"model_type\": \"gpt_oss\", \"num_attention_heads\": 4, \"num_key_value_heads\": 2, " \
         "\"head_dim\": 16, \"intermediate_size\": 128, \"num_local_experts\": 4, "              \
         "\"num_experts_per_tok\": 2, \"quantization_config\": {\"quant_method\": \"mxfp4\"}}"
#define DENSE                                                                                  \
    HEAD "\"model_type\": \"qwen3\", \"num_attention_heads\": 4, \"num_key_value_heads\": 2, " \
         "\"head_dim\": 16, \"intermediate_size\": 96, \"quantization_config\": "
#define NVFP4(more)                                                                  \
    DENSE "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"ignore\": " \
          "[\"lm_head\", \"model.layers.0.self_attn*\"]" more "}}"

static const struct {
    const char *name, *config, *train, *infer;
    const char *refused; /* what the sentence holds; NULL: it moves */
} rows[] = {
    {"int4, files to vLLM", INT4(GROUPS_OF_16), "hf:", "vllm:tp=2", NULL},
    {"int4, files to vLLM with EP", INT4(GROUPS_OF_16), "hf:", "vllm:tp=4,ep=4", NULL},
    {"int4, files to SGLang", INT4(GROUPS_OF_16), "hf:", "sglang:tp=4", NULL},
    {"int4, files to SGLang with EP", INT4(GROUPS_OF_16), "hf:", "sglang:tp=4,ep=2", NULL},
    {"int4, files to files", INT4(GROUPS_OF_16), "hf:", "hf:", NULL},
    {"int4, vLLM to its like", INT4(GROUPS_OF_16), "vllm:tp=2", "vllm:tp=2", NULL},
    {"int4, vLLM to SGLang", INT4(GROUPS_OF_16), "vllm:tp=4", "sglang:tp=2", NULL},
    {"mxfp4, files to vLLM", OSS, "hf:", "vllm:tp=2", NULL},
    {"mxfp4, files to SGLang", OSS, "hf:", "sglang:tp=2", NULL},
    {"mxfp4, vLLM to SGLang", OSS, "vllm:tp=2", "sglang:tp=2", NULL},
    {"nvfp4, files to files", NVFP4(""), "hf:", "hf:", NULL},
    {"groups that ranks tear", INT4("\"num_bits\": 4, \"group_size\": 32, \"symmetric\": true"),
     "hf:", "vllm:tp=4", "int4 experts with a share of 16"},
    {"groups that ranks tear, SGLang",
     INT4("\"num_bits\": 4, \"group_size\": 32, \"symmetric\": true"), "hf:", "sglang:tp=4",
     "shares of int4 experts"},
    {"int4 from a trainer", INT4(GROUPS_OF_16), "megatron:tp=2", "vllm:tp=2", "(int4)"},
    {"int4 behind the hook", INT4(GROUPS_OF_16), "hf:", "vllm:tp=2,stage=post",
     "stage=post of int4"},
    {"int4 behind the hook, SGLang", INT4(GROUPS_OF_16), "hf:", "sglang:tp=2,stage=post",
     "hooks of int4"},
    {"int4 in another runner", INT4(GROUPS_OF_16), "hf:", "sglang:moe_backend=flashinfer_cutlass",
     "int4 experts"},
    {"int8", INT4("\"num_bits\": 8, \"group_size\": 16, \"symmetric\": true"),
     "hf:", "vllm:", "compressed-tensors pack-quantized"},
    {"int4 with zero points", INT4("\"num_bits\": 4, \"group_size\": 16, \"symmetric\": false"),
     "hf:", "vllm:", "compressed-tensors pack-quantized"},
    {"int4 in an order",
     INT4("\"num_bits\": 4, \"group_size\": 16, \"symmetric\": true, "
          "\"actorder\": \"static\""),
     "hf:", "vllm:", "compressed-tensors pack-quantized"},
    {"nvfp4 to vLLM", NVFP4(""), "hf:", "vllm:", "nvfp4 weights (modelopt NVFP4)"},
    {"nvfp4 to SGLang", NVFP4(""), "hf:", "sglang:", "nvfp4 weights (modelopt NVFP4)"},
    {"nvfp4 from FSDP", NVFP4(""), "fsdp:dp=2", "hf:", "(nvfp4)"},
    {"nvfp4 with a quantised KV cache",
     NVFP4(", \"kv_cache_scheme\": {\"num_bits\": 8, \"type\": \"float\"}"),
     "hf:", "hf:", "modelopt NVFP4"},
    {"awq", DENSE "{\"quant_method\": \"awq\", \"bits\": 4}}", "hf:", "vllm:", "(awq)"},
};

static enum wf_status check_row(const char *name, const struct wf_model *model, const char *train,
                                const char *infer, struct wf_error *error)
{
    static struct numbered world;
    struct wf_recipe from, to;
    struct wf_plan *plan = NULL;
    char wrong[NUMBERED_WRONG_MAX] = "";
    enum wf_status status = wf_recipe_parse(train, model, &from, error);
    if (status == WF_OK) {
        status = wf_recipe_parse(infer, model, &to, error);
    }
    if (status != WF_OK) {
        return status;
    }
    status = numbered_make(&world, model, &from, &to, 1, error);
    if (status == WF_OK) {
        cr_expect(numbered_tiles(&world, wrong), "%s: %s", name, wrong);
        status = wf_plan_build(&world.input, &plan, error);
    }
    if (status == WF_OK) {
        cr_expect(numbered_moves(&world, plan, wrong), "%s: %s", name, wrong);
        status = wf_plan_prove(&world.input, plan, error);
    }
    wf_plan_free(plan);
    numbered_fini(&world);
    return status;
}

Test(packed, moves_as_it_is_or_is_refused)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *model = NULL;
        struct wf_error error = {0};
        const char *name = rows[i].name, *refused = rows[i].refused;
        enum wf_status status =
            wf_model_parse(rows[i].config, strlen(rows[i].config), NULL, &model, &error);
        cr_assert_eq(status, WF_OK, "%s: %s", name, error.text);
        status = check_row(name, model, rows[i].train, rows[i].infer, &error);
        cr_expect_eq(status == WF_OK, refused == NULL, "%s: %s", name, error.text);
        cr_expect(refused == NULL || strstr(error.text, refused), "%s: %s", name, error.text);
        wf_model_free(model);
    }
}

/* A family's small config with routed experts in int4, or linears in nvfp4. */
static void quantise(const struct zoo_family *family, uint64_t number, bool nvfp4,
                     char out[ZOO_CONFIG_MAX])
{
    static const char int4[] =
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", \"weights\": "
        "{\"num_bits\": 4, \"group_size\": 16, \"symmetric\": true}, \"ignore\": "
        "[\"re:.*attn.*\", \"re:.*attention.*\", \"re:.*shared_expert.*\", "
        "\"re:.*mlp\\\\.(gate|up|down)_proj.*\"]}";
    uint64_t state = 0x9ac4ed00 + number;
    zoo_config_scaled(family, &state, SCALE, out);
    size_t len = strlen(out);
    snprintf(out + len - 1, ZOO_CONFIG_MAX - len, ", \"quantization_config\": %s}",
             nvfp4 ? "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}" : int4);
}

/* Every family that docs/models.md promises it of. */
static unsigned moves_of(const struct zoo_family *family, bool nvfp4, const char *infer)
{
    unsigned moved = 0;
    for (uint64_t i = 0; i < TRIES && moved == 0; i++) {
        char config[ZOO_CONFIG_MAX];
        struct wf_model *model = NULL;
        struct wf_error error = {0};
        quantise(family, i, nvfp4, config);
        enum wf_status status = wf_model_parse(config, strlen(config), NULL, &model, &error);
        if (status == WF_OK && (nvfp4 || wf_model_size(model, "E") > 0)) {
            status = check_row(family->name, model, "hf:", infer, &error);
            moved += status == WF_OK;
        }
        cr_expect(status == WF_OK || error.text[0] != '\0', "%s: %s", family->name, infer);
        wf_model_free(model);
    }
    return moved;
}

Test(packed, moves_in_every_family)
{
    unsigned files = 0, vllm = 0, sglang = 0;
    for (size_t i = 0; zoo_families[i].name != NULL; i++) {
        const struct zoo_family *family = &zoo_families[i];
        if (i % EVERY != 0) {
            continue;
        }
        files += moves_of(family, true, "hf:");
        vllm += moves_of(family, false, "vllm:tp=2");
        sglang += moves_of(family, false, "sglang:tp=2");
    }
    cr_expect(files > 0 && vllm > 0 && sglang > 0);
    if (EVERY == 1) {
        cr_expect_eq(files, NVFP4_FAMILIES, "%u", files);
        cr_expect_eq(vllm, VLLM_INT4, "%u", vllm);
        cr_expect_eq(sglang, SGLANG_INT4, "%u", sglang);
    }
}
