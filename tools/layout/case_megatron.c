/* case_megatron.c - case.json of Megatron-core: SPEC text of the engine megatron. */
#include "tools/layout/case_private.h"

#include <string.h>

#include "models/json.h"

static enum wf_status put_layout(struct wf_case_spec *spec, struct json_object *value,
                                 struct wf_error *error)
{
    char plain[WF_PIPELINE_TEXT_MAX];
    size_t used = 0, len = 0;
    if (!json_object_is_type(value, json_type_string)) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "case.json: a pipeline_model_parallel_layout that is no string is not "
                            "supported yet");
    }
    const char *text = json_object_get_string(value);
    len = (size_t)json_object_get_string_len(value);
    for (size_t i = 0; i < len; i++) {
        if (text[i] != ',') {
            if (used == sizeof plain) {
                return wf_error_set(error, WF_INVALID, "case.json: the layout is too long");
            }
            plain[used++] = text[i];
        }
    }
    wf_case_put(spec, "layout", plain, used);
    return WF_OK;
}

static enum wf_status put_overrides(struct wf_case_spec *spec, struct json_object *root,
                                    struct wf_error *error)
{
    struct json_object *overrides = wf_case_get(root, "megatron_config_overrides");
    bool embedding = false, loss = false;
    if (!overrides) {
        return WF_OK;
    }
    if (!json_object_is_type(overrides, json_type_object)) {
        return wf_error_set(error, WF_INVALID,
                            "case.json: \"megatron_config_overrides\" must be an object");
    }
    json_object_object_foreach(overrides, key, value)
    {
        enum wf_status status = WF_OK;
        uint64_t layers = 0;
        if (strcmp(key, "num_layers_in_first_pipeline_stage") == 0) {
            status = wf_json_get_u64(overrides, key, 1, WF_LAYERS_MAX, &layers, error);
            wf_case_put_number(spec, "first", layers);
        } else if (strcmp(key, "num_layers_in_last_pipeline_stage") == 0) {
            status = wf_json_get_u64(overrides, key, 1, WF_LAYERS_MAX, &layers, error);
            wf_case_put_number(spec, "last", layers);
        } else if (strcmp(key, "account_for_embedding_in_pipeline_split") == 0) {
            embedding = wf_case_is_true(value);
        } else if (strcmp(key, "account_for_loss_in_pipeline_split") == 0) {
            loss = wf_case_is_true(value);
        } else if (strcmp(key, "pipeline_model_parallel_layout") == 0) {
            status = put_layout(spec, value, error);
        } else {
            status = wf_error_set(error, WF_UNSUPPORTED,
                                  "case.json: the Megatron option %s is not supported yet", key);
        }
        if (status != WF_OK) {
            return status;
        }
    }
    if (embedding || loss) {
        const char *account = embedding && loss ? "embedding+loss"
                              : embedding       ? "embedding"
                                                : "loss";
        wf_case_put(spec, "account", account, strlen(account));
    }
    return WF_OK;
}

enum wf_status wf_case_megatron(struct json_object *root, struct wf_case *it,
                                struct wf_case_spec *spec, struct wf_error *error)
{
    (void)it;
    static const char *const keys[] = {"tp", "pp", "vpp", "dp", "cp", "ep", "etp"};
    uint64_t multiple = 1;
    enum wf_status status =
        wf_json_get_u64(root, "padded_vocab_multiple", 1, 1u << 30, &multiple, error);
    if (status == WF_OK || status == WF_NOT_FOUND) {
        wf_case_put_number(spec, "vocab_div", multiple); /* null: the loader does not pad */
        status = wf_case_put_version(spec, root, error);
    }
    if (status == WF_OK) {
        status = wf_case_put_parallel(spec, root, keys, sizeof keys / sizeof keys[0], error);
    }
    if (status == WF_OK) {
        status = put_overrides(spec, root, error);
    }
    wf_case_put(spec, "dtype", "bf16", 4); /* params_dtype of every executed case */
    if (wf_case_text_begins(root, "transformer_engine", "not used")) {
        wf_case_put(spec, "names", "local", 5);
    }
    return status;
}
