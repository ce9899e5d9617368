/* case_vllm.c - case.json of vLLM: SPEC text of the engine vllm. */
#include "tools/layout/case_private.h"

#include <string.h>

#include "models/json.h"

/* Options, environment and backends can change what a parameter holds; this build knows none. */
static enum wf_status refuse_options(struct json_object *root, struct wf_error *error)
{
    static const char *const maps[] = {"engine_options", "environment"};
    for (size_t i = 0; i < 2; i++) {
        struct json_object *map = wf_case_get(root, maps[i]);
        if (json_object_is_type(map, json_type_object)) {
            json_object_object_foreach(map, key, value)
            {
                (void)value;
                return wf_error_set(error, WF_UNSUPPORTED, "case.json: %s %s is not supported yet",
                                    maps[i], key);
            }
        }
    }
    struct json_object *methods = wf_case_get(root, "quant_methods");
    size_t count =
        json_object_is_type(methods, json_type_array) ? json_object_array_length(methods) : 0;
    for (size_t i = 0; i < count; i++) {
        struct json_object *method = json_object_array_get_idx(methods, i);
        if (!json_object_is_type(method, json_type_string) ||
            strncmp(json_object_get_string(method), "Unquantized", 11) != 0) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "case.json: quantisation by %.60s is not supported yet",
                                json_object_get_string(method));
        }
    }
    if (wf_case_is_true(wf_case_get(wf_case_get(root, "parallel"), "expert_parallel"))) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "case.json: expert parallelism is not supported yet");
    }
    return WF_OK;
}

enum wf_status wf_case_vllm(struct json_object *root, struct wf_case *it, struct wf_case_spec *spec,
                            struct wf_error *error)
{
    (void)it;
    static const char *const keys[] = {"tp", "pp", "dp"};
    const char *text = NULL;
    size_t len = 0;
    enum wf_status status = refuse_options(root, error);
    if (status == WF_OK) {
        status = wf_case_put_version(spec, root, error);
    }
    if (status == WF_OK) {
        status = wf_case_put_parallel(spec, root, keys, sizeof keys / sizeof keys[0], error);
    }
    if (status == WF_OK) {
        status = wf_case_need_text(root, "model_dtype", &text, &len, error);
    }
    if (status == WF_OK) {
        const char *dtype = wf_dtype_name(wf_dtype_from_torch(text, len));
        wf_case_put(spec, "dtype", dtype, strlen(dtype));
    }
    return status;
}
