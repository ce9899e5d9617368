/* case_vllm.c - case.json of vLLM: SPEC text of the engine vllm. */
#include <ctype.h>
#include <string.h>

#include "models/json.h"
#include "tools/layout/case_private.h"

static const struct wf_case_option options[] = {
    {"engine_options.expert_placement_strategy", "strategy", NULL, NULL},
    {"engine_options.enable_eplb", "eplb", NULL, NULL},
    {"engine_options.eplb_config.num_redundant_experts", "redundant", NULL, NULL},
    {"engine_options.mm_encoder_tp_mode", NULL, "weights", NULL},
    {"engine_options.mm_encoder_tp_mode", "vision", "data", "data"},
    {"engine_options.all2all_backend", NULL, "allgather_reducescatter", NULL},
    /* Said again elsewhere: parallel.expert_parallel, backends, parallel. */
    {"engine_options.enable_expert_parallel", NULL, NULL, NULL},
    {"engine_options.moe_backend", NULL, NULL, NULL},
    {"engine_options.tensor_parallel_size", NULL, NULL, NULL},
    {"engine_options.pipeline_parallel_size", NULL, NULL, NULL},
    {"engine_options.data_parallel_size", NULL, NULL, NULL},
    {"environment.VLLM_PP_LAYER_PARTITION", "partition", NULL, NULL},
    {"environment.VLLM_USE_DEEP_GEMM", "deep_gemm", "0", "off"},
    /* Which kernel reads the scales, not how they stand. */
    {"environment.VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER", NULL, "0", NULL},
};

static const char *const methods[] = {
    "UnquantizedLinearMethod",
    "UnquantizedEmbeddingMethod",
    "UnquantizedFusedMoEMethod",
    "Fp8LinearMethod",
    "Fp8MoEMethod",
    "Fp8KVCacheMethod",
    "CompressedTensorsLinearMethod",
    "CompressedTensorsW8A8Fp8MoEMethod",
    "CompressedTensorsKVCacheMethod",
    "GptOssMxfp4MoEMethod",
};

/* "Fp8MoeBackend.FLASHINFER_TRTLLM": the last word, small. */
static enum wf_status put_backend(struct wf_case_spec *spec, struct json_object *root,
                                  struct wf_error *error)
{
    static const struct {
        const char *word, *key;
    } others[] = {{"deepgemm", "deep_gemm"}, {"vllm_cutlass", "cutlass"}};
    struct json_object *backends = wf_case_get(root, "backends");
    size_t count =
        json_object_is_type(backends, json_type_array) ? json_object_array_length(backends) : 0;
    if (count == 0) {
        return WF_OK;
    }
    const char *text = json_object_get_string(json_object_array_get_idx(backends, 0));
    const char *dot = text ? strrchr(text, '.') : NULL;
    char word[64];
    size_t len = dot ? strlen(dot + 1) : 0;
    if (count > 1 || len == 0 || len >= sizeof word) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "case.json: backends %.80s: expected one, CLASS.NAME",
                            json_object_to_json_string_ext(backends, JSON_C_TO_STRING_PLAIN));
    }
    for (size_t i = 0; i <= len; i++) {
        word[i] = (char)tolower((unsigned char)dot[1 + i]);
    }
    const char *key = word;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        key = strcmp(word, others[i].word) == 0 ? others[i].key : key;
    }
    wf_case_put(spec, "moe_backend", key, strlen(key));
    return WF_OK;
}

/* "9.0" is 90. */
static void put_capability(struct wf_case_spec *spec, struct json_object *root)
{
    size_t len = 0, used = 0;
    const char *text = wf_case_text(root, "reported_compute_capability", &len);
    char digits[16];
    for (size_t i = 0; text && i < len && used < sizeof digits; i++) {
        if (text[i] != '.') {
            digits[used++] = text[i];
        }
    }
    if (used > 0) {
        wf_case_put(spec, "capability", digits, used);
    }
}

/* Experts are dealt out over all ranks of a stage. */
static enum wf_status put_experts(struct wf_case_spec *spec, struct json_object *root,
                                  struct wf_error *error)
{
    struct json_object *parallel = wf_case_get(root, "parallel");
    uint64_t tp = 1, dp = 1;
    if (!wf_case_is_true(wf_case_get(parallel, "expert_parallel"))) {
        return WF_OK;
    }
    enum wf_status status = wf_json_get_u64(parallel, "tp", 1, 1 << 16, &tp, error);
    if (status == WF_OK || status == WF_NOT_FOUND) {
        status = wf_json_get_u64(parallel, "dp", 1, 1 << 16, &dp, error);
    }
    if (status == WF_OK || status == WF_NOT_FOUND) {
        wf_case_put_number(spec, "ep", tp * dp);
        return WF_OK;
    }
    return status;
}

/* Another size than those known (context parallelism) would deal ranks out otherwise. */
static enum wf_status check_parallel(struct json_object *root, struct wf_error *error)
{
    static const char *const known[] = {"tp", "pp", "dp", "world", "expert_parallel", "rank_order"};
    json_object_object_foreach(wf_case_get(root, "parallel"), key, value)
    {
        size_t i = 0;
        while (i < sizeof known / sizeof known[0] && strcmp(known[i], key) != 0) {
            i++;
        }
        bool one = json_object_is_type(value, json_type_int) && json_object_get_int64(value) == 1;
        if (i == sizeof known / sizeof known[0] && !one && json_object_get_boolean(value)) {
            return wf_error_set(error, WF_UNSUPPORTED, "case.json: parallel.%.60s is not supported",
                                key);
        }
    }
    return WF_OK;
}

enum wf_status wf_case_vllm(struct json_object *root, struct wf_case *it, struct wf_case_spec *spec,
                            struct wf_error *error)
{
    (void)it;
    static const char *const sizes[] = {"tp", "pp", "dp"};
    static const char *const maps[] = {"engine_options", "environment"};
    enum wf_status status = wf_case_put_version(spec, root, error);
    if (status == WF_OK) {
        status = wf_case_put_parallel(spec, root, sizes, sizeof sizes / sizeof sizes[0], error);
    }
    if (status == WF_OK) {
        status = check_parallel(root, error);
    }
    if (status == WF_OK) {
        status = put_experts(spec, root, error);
    }
    for (size_t i = 0; i < 2 && status == WF_OK; i++) {
        status = wf_case_put_options(spec, wf_case_get(root, maps[i]), maps[i], options,
                                     sizeof options / sizeof options[0], error);
    }
    if (status == WF_OK) {
        status = wf_case_check_methods(root, methods, sizeof methods / sizeof methods[0], error);
    }
    if (status == WF_OK) {
        status = put_backend(spec, root, error);
    }
    if (status == WF_OK) {
        status = wf_case_put_stage(spec, root, error);
    }
    put_capability(spec, root);
    return status == WF_OK ? wf_case_put_dtype(spec, root, error) : status;
}
