/* case_options.c - an engine's own options, as case.json has them, into keys of a SPEC.
 *
 * A table for each engine says what each option becomes; an option that is in no table is refused
 * by name, because it may change what a tensor holds.
 */
#include <stdio.h>
#include <string.h>

#include "models/json.h"
#include "tools/layout/case_private.h"

enum { OPTION_MAX = 1 << 20 };

static enum wf_status refuse_value(const char *name, struct json_object *value,
                                   struct wf_error *error)
{
    return wf_error_set(error, WF_UNSUPPORTED,
                        "case.json: the option %.60s with the value %.60s "
                        "is not supported",
                        name, json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN));
}

/* Lists are written with commas, which a SPEC cannot hold. */
static enum wf_status put_text(struct wf_case_spec *spec, const struct wf_case_option *option,
                               struct json_object *value, struct wf_error *error)
{
    char text[WF_PIPELINE_TEXT_MAX];
    size_t len = (size_t)json_object_get_string_len(value);
    if (len >= sizeof text) {
        return refuse_value(option->name, value, error);
    }
    for (size_t i = 0; i < len; i++) {
        char c = json_object_get_string(value)[i];
        text[i] = c == ',' ? '-' : c;
    }
    wf_case_put(spec, option->key, text, len);
    return WF_OK;
}

static enum wf_status put_option(const struct wf_case_option *option, struct json_object *value,
                                 struct wf_case_spec *spec, struct wf_error *error)
{
    const char *name = option->name;
    if (json_object_is_type(value, json_type_null)) {
        return WF_OK;
    }
    if (option->word) {
        const char *text = json_object_get_string(value);
        if (!text || strcmp(text, option->word) != 0) {
            return refuse_value(name, value, error);
        }
        if (option->key) {
            wf_case_put(spec, option->key, option->value, strlen(option->value));
        }
        return WF_OK;
    }
    if (!option->key) {
        return WF_OK; /* said again elsewhere */
    }
    if (json_object_is_type(value, json_type_boolean)) {
        const char *text =
            json_object_get_boolean(value) ? option->value ? option->value : "1" : "";
        if (*text) {
            wf_case_put(spec, option->key, text, strlen(text));
        }
        return WF_OK;
    }
    if (json_object_is_type(value, json_type_int) && json_object_get_int64(value) >= 0 &&
        json_object_get_int64(value) <= OPTION_MAX) {
        if (json_object_get_int64(value) > 0) {
            wf_case_put_number(spec, option->key, (uint64_t)json_object_get_int64(value));
        }
        return WF_OK;
    }
    if (json_object_is_type(value, json_type_string)) {
        return put_text(spec, option, value, error);
    }
    return refuse_value(name, value, error);
}

/* Of several rows for one option the one for its word is meant. */
static const struct wf_case_option *find_option(const struct wf_case_option *options, size_t count,
                                                const char *name, struct json_object *value)
{
    const struct wf_case_option *found = NULL;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(options[i].name, name) == 0) {
            const char *text = json_object_get_string(value);
            bool same = options[i].word && text && strcmp(text, options[i].word) == 0;
            found = same || !found ? &options[i] : found;
        }
    }
    return found;
}

enum wf_status wf_case_put_options(struct wf_case_spec *spec, struct json_object *map,
                                   const char *path, const struct wf_case_option *options,
                                   size_t count, struct wf_error *error)
{
    if (!map) {
        return WF_OK;
    }
    if (!json_object_is_type(map, json_type_object)) {
        return wf_error_set(error, WF_INVALID, "case.json: \"%s\" must be an object", path);
    }
    json_object_object_foreach(map, key, value)
    {
        char name[128];
        snprintf(name, sizeof name, "%s.%s", path, key);
        enum wf_status status = WF_OK;
        const struct wf_case_option *option = find_option(options, count, name, value);
        if (json_object_is_type(value, json_type_object)) {
            status = wf_case_put_options(spec, value, name, options, count, error);
        } else if (!option) {
            status = wf_error_set(error, WF_UNSUPPORTED, "case.json: %s is not supported", name);
        } else {
            status = put_option(option, value, spec, error);
        }
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

enum wf_status wf_case_put_dtype(struct wf_case_spec *spec, struct json_object *root,
                                 struct wf_error *error)
{
    const char *text = NULL;
    size_t len = 0;
    enum wf_status status = wf_case_need_text(root, "model_dtype", &text, &len, error);
    if (status == WF_OK) {
        const char *dtype = wf_dtype_name(wf_dtype_from_torch(text, len));
        wf_case_put(spec, "dtype", dtype, strlen(dtype));
    }
    return status;
}

/* The strings differ by engine; none is a beginning of another. */
enum wf_status wf_case_put_stage(struct wf_case_spec *spec, struct json_object *root,
                                 struct wf_error *error)
{
    static const struct {
        const char *text, *stage;
    } stages[] = {
        {"after load_weights, before process_weights_after_loading", "load"},
        {"after load_weights (including the model's own post_load_weights), before "
         "process_weights_after_loading",
         "load"},
        {"after load_weights and postprocess_weights", "post"},
        {"after process_weights_after_loading", "post"},
    };
    const char *text = NULL;
    size_t len = 0;
    enum wf_status status = wf_case_need_text(root, "stage", &text, &len, error);
    for (size_t i = 0; status == WF_OK && i < sizeof stages / sizeof stages[0]; i++) {
        if (strcmp(text, stages[i].text) == 0) {
            wf_case_put(spec, "stage", stages[i].stage, strlen(stages[i].stage));
            return WF_OK;
        }
    }
    return status != WF_OK ? status
                           : wf_error_set(error, WF_UNSUPPORTED,
                                          "case.json: the stage \"%.80s\" is not known", text);
}

/* Methods that hold weights otherwise than the checkpoint's config says are none of these. */
enum wf_status wf_case_check_methods(struct json_object *root, const char *const *known,
                                     size_t count, struct wf_error *error)
{
    struct json_object *methods = wf_case_get(root, "quant_methods");
    size_t listed =
        json_object_is_type(methods, json_type_array) ? json_object_array_length(methods) : 0;
    for (size_t i = 0; i < listed; i++) {
        const char *method = json_object_get_string(json_object_array_get_idx(methods, i));
        size_t k = 0;
        while (method && k < count && strcmp(known[k], method) != 0) {
            k++;
        }
        if (!method || k == count) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "case.json: quantisation by %.60s is not supported",
                                method ? method : "null");
        }
    }
    return WF_OK;
}
