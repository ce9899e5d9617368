/* case_sglang.c - case.json of SGLang: SPEC text of the engine sglang. */
#include <string.h>

#include "tools/layout/case_private.h"

static const struct wf_case_option options[] = {
    {"engine_options.dp_size", "dp", NULL, NULL},
    {"engine_options.ep_size", "ep", NULL, NULL},
    {"engine_options.enable_dp_attention", "dp_attention", NULL, NULL},
    {"engine_options.enable_dp_lm_head", "dp_lm_head", NULL, NULL},
    {"engine_options.moe_dense_tp_size", "moe_dense_tp", NULL, NULL},
    {"engine_options.ep_num_redundant_experts", "redundant", NULL, NULL},
    {"engine_options.disable_shared_experts_fusion", "shared_experts", NULL, "separate"},
    {"engine_options.enforce_shared_experts_fusion", "shared_experts", NULL, "fused"},
    {"engine_options.fp8_gemm_runner_backend", "fp8_gemm", NULL, NULL},
    {"engine_options.moe_a2a_backend", "a2a", NULL, NULL},
    {"engine_options.mm_enable_dp_encoder", "vision", NULL, "data"},
    {"engine_options.attention_backend", "attention", NULL, NULL},
    /* How experts are chosen and moved later; what they load is by rule. */
    {"engine_options.enable_eplb", NULL, NULL, NULL},
    {"engine_options.ep_dispatch_algorithm", NULL, NULL, NULL},
    {"engine_options.eplb_algorithm", NULL, NULL, NULL},
    /* Said again elsewhere: moe_runner_backend (as it was resolved), parallel. */
    {"engine_options.moe_runner_backend", NULL, NULL, NULL},
    {"engine_options.tp_size", NULL, NULL, NULL},
    {"engine_options.pp_size", NULL, NULL, NULL},
    {"environment.SGLANG_OPT_FUSE_SWIGLU_INTERLEAVED", "swiglu_interleaved", "1", "1"},
};

static const char *const methods[] = {
    "UnquantizedLinearMethod",
    "UnquantizedEmbeddingMethod",
    "UnquantizedFusedMoEMethod",
    "Fp8LinearMethod",
    "Fp8MoEMethod",
    "Fp8KVCacheMethod", /* scales of the cache, which are no weights */
    "Mxfp4MoEMethod",
    "CompressedTensorsLinearMethod",
    "CompressedTensorsFusedMoEMethod",
};

static int64_t option_number(struct json_object *map, const char *name)
{
    struct json_object *value = wf_case_get(map, name);
    return json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : 0;
}

/* What ServerArgs makes of what it was given [arg_groups/parallel_hook.py, overrides.py]: the older
 * spelling of attention's groups, none of which is one group alone, and an all-to-all over experts
 * that deals them over all ranks. */
static void resolve_options(struct json_object *root)
{
    struct json_object *map = wf_case_get(root, "engine_options");
    struct json_object *backend = wf_case_get(map, "moe_a2a_backend");
    int64_t groups = option_number(map, "attn_dp_size");
    if (!json_object_is_type(map, json_type_object)) {
        return;
    }
    if (groups > 1) {
        json_object_object_add(map, "dp_size", json_object_new_int64(groups));
        json_object_object_add(map, "enable_dp_attention", json_object_new_boolean(true));
    }
    if (groups > 0) {
        json_object_object_del(map, "attn_dp_size");
    }
    if (option_number(map, "dp_size") <= 1) {
        json_object_object_del(map, "enable_dp_attention");
        json_object_object_del(map, "enable_dp_lm_head");
    }
    if (json_object_is_type(backend, json_type_string) &&
        strcmp(json_object_get_string(backend), "none") != 0) {
        int64_t ranks = option_number(wf_case_get(root, "parallel"), "tp");
        json_object_object_add(map, "ep_size", json_object_new_int64(ranks));
    }
}

/* SGLang sets the flags of experts before it builds a model [managers/scheduler.py:
 * init_moe_gemm_config]. Cases read back before the hook set them from what was asked for alone: a
 * backend that SGLang would choose itself (triton_kernel, for gpt-oss) is reported, but experts
 * were made as for Triton (tests/golden/real/sglang-gptoss-bf16-tp2). */
static bool is_unset_default(struct json_object *root, const char *backend)
{
    return strcmp(backend, "triton_kernel") == 0 &&
           wf_case_text_begins(root, "stage", "after load_weights (") &&
           !wf_case_get(wf_case_get(root, "engine_options"), "moe_runner_backend");
}

enum wf_status wf_case_sglang(struct json_object *root, struct wf_case *it,
                              struct wf_case_spec *spec, struct wf_error *error)
{
    (void)it;
    static const char *const sizes[] = {"tp", "pp"};
    static const char *const maps[] = {"engine_options", "environment"};
    size_t len = 0;
    const char *backend = wf_case_text(root, "moe_runner_backend", &len);
    resolve_options(root);
    enum wf_status status = wf_case_put_version(spec, root, error);
    if (status == WF_OK) {
        status = wf_case_put_parallel(spec, root, sizes, sizeof sizes / sizeof sizes[0], error);
    }
    for (size_t i = 0; i < 2 && status == WF_OK; i++) {
        status = wf_case_put_options(spec, wf_case_get(root, maps[i]), maps[i], options,
                                     sizeof options / sizeof options[0], error);
    }
    if (status == WF_OK) {
        status = wf_case_check_methods(root, methods, sizeof methods / sizeof methods[0], error);
    }
    if (status == WF_OK) {
        status = wf_case_put_stage(spec, root, error);
    }
    if (backend && is_unset_default(root, backend)) {
        wf_case_put(spec, "moe_backend", "triton", strlen("triton"));
    } else if (backend) {
        wf_case_put(spec, "moe_backend", backend, len);
    }
    if (wf_case_text_begins(root, "reported_compute_capability", "10.")) {
        wf_case_put(spec, "capability", "sm100", 5);
    }
    return status == WF_OK ? wf_case_put_dtype(spec, root, error) : status;
}
