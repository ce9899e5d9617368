/* test_case.c - which SPEC follows from case.json of Megatron, FSDP and SGLang, also where options
 * differ from those that were executed.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/recipe.h"
#include "tools/layout/case.h"

#define REAL "tests/golden/real/"
#define OPTIONS "\"megatron_config_overrides\": {"

static const struct {
    const char *name, *old,
        *new;         /* the first `old` of case.json becomes `new`; NULL: nothing does */
    const char *spec; /* canonical; or what is said, beginning with ! */
} rows[] = {
    {"megatron-qwen3-tp2", NULL, NULL, "megatron:dtype=bf16,tp=2,vocab_div=16,loader=mbridge"},
    {"megatron-qwen3-tied-tp2-pp2", NULL, NULL, "megatron:dtype=bf16,tp=2,pp=2,loader=mbridge"},
    {"megatron-rel016-qwen3-tp2", NULL, NULL,
     "megatron:version=0.16,dtype=bf16,tp=2,vocab_div=2,loader=mbridge"},
    {"megatron-bridge-gemma3-tp2", NULL, NULL, "megatron:dtype=bf16,tp=2,vocab_div=2"},
    {"megatron-qwen3moe-tp1-dp4-ep2-etp2", NULL, NULL,
     "megatron:dtype=bf16,dp=4,ep=2,etp=2,vocab_div=1,loader=mbridge"},
    {"megatron-local-qwen3moe-sequential-tp2-ep2-etp1", NULL, NULL,
     "megatron:dtype=bf16,tp=2,ep=2,etp=1,vocab_div=2,names=local,experts=sequential,"
     "loader=mbridge"},
    {"megatron-llama-pp2-account", NULL, NULL,
     "megatron:dtype=bf16,pp=2,vocab_div=1,account=embedding+loss,loader=mbridge"},
    {"megatron-llama-pp2-vpp2-layout", NULL, NULL,
     "megatron:dtype=bf16,pp=2,vpp=2,vocab_div=1,layout=Et|tt|tt|tL,loader=mbridge"},
    {"megatron-llama-pp2-vpp2-layout", "\"Et|tt|tt|tL\"",
     "[[\"embedding\", \"decoder\"], [\"decoder\", \"decoder\", \"decoder\"], [\"decoder\"], "
     "[\"decoder\", \"loss\"]]",
     "megatron:dtype=bf16,pp=2,vpp=2,vocab_div=1,layout=Et|ttt|t|tL,loader=mbridge"},
    {"megatron-llama-pp2-vpp2-layout", "\"Et|tt|tt|tL\"", "[[\"embedding\", \"encoder\"]]",
     "!embedding, decoder, mtp and loss"},
    {"megatron-llama-pp2-vpp2-layout", "\"Et|tt|tt|tL\"", "7", "!expected a string or a list"},
    {"megatron-glm4moe-mtp1-pp2", "\"mtp_num_layers\": 1", "\"mtp_num_layers\": null",
     "megatron:dtype=bf16,pp=2,vocab_div=1,first=2,loader=mbridge,skip_mtp=1"},
    {"megatron-glm4moe-mtp1-pp2", "\"mtp_num_layers\": 1", "\"mtp_num_layers\": 0",
     "megatron:dtype=bf16,pp=2,vocab_div=1,first=2,loader=mbridge,skip_mtp=1,final_norm=layer"},
    /* what mbridge makes of the config by itself: in its class of DeepSeek alone */
    {"megatron-glm4moe-mtp1-pp2", "\"mtp_num_layers\": 1,", "",
     "megatron:dtype=bf16,pp=2,vocab_div=1,first=2,loader=mbridge,skip_mtp=1"},
    {"megatron-glm4moe-tp2-ep2-etp1", NULL, NULL,
     "megatron:dtype=bf16,tp=2,ep=2,etp=1,vocab_div=2,loader=mbridge"},
    {"megatron-dsv3-mtp1-tp1", NULL, NULL, "megatron:dtype=bf16,vocab_div=1,loader=mbridge"},
    {"megatron-dsv3-tp1", NULL, NULL,
     "megatron:dtype=bf16,vocab_div=1,loader=mbridge,final_norm=layer"},
    {"megatron-glm4moe-mtp1-pp2", "\"mtp_num_layers\": 1", "\"mtp_num_layers\": 2",
     "!mtp_num_layers 2, but the model's config has 1"},
    {"megatron-qwen2moe-tp2-ep2-etp1", "\"moe_shared_expert_gate\": true",
     "\"moe_shared_expert_gate\": false", "!moe_shared_expert_gate"},
    {"megatron-qwen2moe-tp2-ep2-etp1", "\"moe_shared_expert_gate\": true", "",
     "!moe_shared_expert_gate"},
    {"megatron-qwen3moe-tp1", OPTIONS, OPTIONS "\"moe_grouped_gemm\": false",
     "megatron:dtype=bf16,vocab_div=1,experts=sequential,loader=mbridge"},
    {"megatron-qwen3moe-tp1", OPTIONS, OPTIONS "\"moe_single_grouped_weight\": true",
     "megatron:dtype=bf16,vocab_div=1,experts=single,loader=mbridge"},
    {"megatron-qwen3moe-tp1", OPTIONS, OPTIONS "\"moe_router_dtype\": \"fp32\"",
     "megatron:dtype=bf16,vocab_div=1,loader=mbridge"},
    {"megatron-qwen3moe-tp1", OPTIONS, OPTIONS "\"moe_mlp_glu_interleave_size\": 8",
     "!the Megatron option moe_mlp_glu_interleave_size is not known"},
    {"megatron-qwen3-tp2", "\"tp\": 2", "\"tp\": 2, \"gtp_remat\": 2",
     "!the parallel size gtp_remat is not known"},
    {"megatron-qwen3-pp3-first2-last1", "\"num_layers_in_last_pipeline_stage\": 1",
     "\"num_layers_in_last_pipeline_stage\": 0", "!last: expected 1 to"},
    {"sglang-qwen3moe-tp4ep4", "\"ep_size\": 4", "\"moe_a2a_backend\": \"deepep\"",
     "sglang:dtype=f32,tp=4,ep=4,a2a=deepep"},
    {"sglang-qwen3moe-tp4ep4", "\"ep_size\": 4",
     "\"dp_size\": 1, \"enable_dp_attention\": true, \"enable_dp_lm_head\": true",
     "sglang:dtype=f32,tp=4"},
    {"sglang-qwen3moe-tp4ep4", "\"ep_size\": 4", "\"attn_dp_size\": 2, \"enable_dp_lm_head\": true",
     "sglang:dtype=f32,tp=4,dp=2,dp_attention=1,dp_lm_head=1"},
    {"sglang-gptoss-bf16-tp2", NULL, NULL, "sglang:dtype=bf16,tp=2,moe_backend=triton"},
    {"sglang-gptoss-bf16-tp2", "\"engine_options\": {}",
     "\"engine_options\": {\"moe_runner_backend\": \"triton_kernel\"}",
     "sglang:dtype=bf16,tp=2,moe_backend=triton_kernel"},
    {"sglang-qwen3moe-tp4ep4", "\"ep_size\": 4", "\"attn_cp_size\": 2",
     "!attn_cp_size is not supported"},
    {"fsdp2-qwen3-dp2", NULL, NULL, "fsdp:dtype=f32,dp=2,order=dp"},
    {"fsdp2-odd-hsdp2x3", NULL, NULL, "fsdp:dtype=f32,dp=3,replicate=2,order=dp-replicate"},
    {"fsdp2-qwen3-dp3-tp2", NULL, NULL, "fsdp:dtype=f32,dp=3,tp=2,order=tp-dp"},
    {"fsdp2-qwen3-shard1-dp2", NULL, NULL, "fsdp:dtype=f32,dp=2,order=dp,shard=1"},
    {"dtensor-odd-tp3", NULL, NULL, "fsdp:dtype=f32,tp=3,order=tp"},
    {"fsdp1-qwen3-dp3", NULL, NULL, "fsdp:dtype=f32,dp=3,flat=1"},
    {"fsdp1-qwen3-dp3", ", use_orig_params", "", "!FSDP1 without use_orig_params"},
    {"fsdp2-qwen3-dp2", "every decoder layer, then the root", "the root", "!expected the wrapping"},
    {"fsdp2-qwen3-dp2", "\"dp\"\n  ]", "\"ep\"\n  ]", "!a mesh axis named \"ep\""},
    {"fsdp2-qwen3-dp2", "\"names\": [", "\"names\": [\"dp\", ", "!\"mesh\" is needed"},
    {"fsdp2-qwen3-dp2-tp2", "\"tp\"\n  ]", "\"dp\"\n  ]", "!mesh axis dp: expected once"},
};

static char *read_case(const char *name, const char *old, const char *new)
{
    enum { BYTES_MAX = 1 << 18 };
    char path[256], *text = malloc(BYTES_MAX), *out = malloc(2 * BYTES_MAX);
    snprintf(path, sizeof path, REAL "%s/case.json", name);
    FILE *file = fopen(path, "rb");
    cr_assert(file && text && out, "%s", path);
    text[fread(text, 1, BYTES_MAX - 1, file)] = '\0';
    fclose(file);
    char *at = old ? strstr(text, old) : NULL;
    cr_assert(!old || at, "%s holds no %s", path, old);
    if (at) {
        snprintf(out, 2 * BYTES_MAX, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    } else {
        snprintf(out, 2 * BYTES_MAX, "%s", text);
    }
    free(text);
    return out;
}

Test(case, specs_follow_from_case_json)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text = read_case(rows[i].name, rows[i].old, rows[i].new), spec[WF_SPEC_MAX] = "";
        struct wf_case it;
        struct wf_error error = {0};
        enum wf_status status = wf_case_parse(text, strlen(text), NULL, &it, &error);
        const char *title = rows[i].new ? rows[i].new : rows[i].name;
        if (status == WF_OK) {
            wf_recipe_format(&it.recipe, spec);
            wf_case_fini(&it);
        }
        if (rows[i].spec[0] == '!') {
            cr_expect(status != WF_OK && strstr(error.text, rows[i].spec + 1), "%s: %s%s", title,
                      error.text, spec);
        } else {
            cr_expect_str_eq(spec, rows[i].spec, "%s: %s %s", title, spec, error.text);
        }
        free(text);
    }
}
