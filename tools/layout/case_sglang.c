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
    "Mxfp4MoEMethod",
};

enum wf_status wf_case_sglang(struct json_object *root, struct wf_case *it,
                              struct wf_case_spec *spec, struct wf_error *error)
{
    (void)it;
    static const char *const sizes[] = {"tp", "pp"};
    static const char *const maps[] = {"engine_options", "environment"};
    size_t len = 0;
    const char *backend = wf_case_text(root, "moe_runner_backend", &len);
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
    if (backend) {
        wf_case_put(spec, "moe_backend", backend, len);
    }
    if (wf_case_text_begins(root, "reported_compute_capability", "10.")) {
        wf_case_put(spec, "capability", "sm100", 5);
    }
    return status == WF_OK ? wf_case_put_dtype(spec, root, error) : status;
}
