/* case_parts.c - reading case.json and collecting SPEC text, for every framework. */
#include "tools/layout/case_private.h"

#include <stdio.h>
#include <string.h>

#include "models/json.h"

enum { PARALLEL_MAX = 1 << 16 };

void wf_case_put(struct wf_case_spec *spec, const char *key, const char *value, size_t len)
{
    char mark = strchr(spec->text, ':')[1] == '\0' ? '\0' : ',';
    int n = snprintf(spec->text + spec->used, sizeof spec->text - spec->used, "%s%s=%.*s",
                     mark ? "," : "", key, (int)len, value);
    spec->full = spec->full || n < 0 || spec->used + (size_t)n >= sizeof spec->text;
    spec->used += spec->full ? 0 : (size_t)n;
}

void wf_case_put_number(struct wf_case_spec *spec, const char *key, uint64_t number)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    wf_case_put(spec, key, text, (size_t)n);
}

/* The value at a key, or NULL where absent or null. */
struct json_object *wf_case_get(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    return value;
}

const char *wf_case_text(struct json_object *object, const char *key, size_t *len_out)
{
    struct json_object *value = wf_case_get(object, key);
    if (!json_object_is_type(value, json_type_string)) {
        return NULL;
    }
    *len_out = (size_t)json_object_get_string_len(value);
    return json_object_get_string(value);
}

bool wf_case_text_begins(struct json_object *object, const char *key, const char *begin)
{
    size_t len = 0;
    const char *text = wf_case_text(object, key, &len);
    return text && len >= strlen(begin) && memcmp(text, begin, strlen(begin)) == 0;
}

enum wf_status wf_case_need_text(struct json_object *object, const char *key, const char **text_out,
                                 size_t *len_out, struct wf_error *error)
{
    *text_out = wf_case_text(object, key, len_out);
    return *text_out
               ? WF_OK
               : wf_error_set(error, WF_INVALID, "case.json: \"%s\" is needed, as a string", key);
}

/* "version" up to the first space: "0.20.0 (NVIDIA/Megatron-LM ...)". */
enum wf_status wf_case_put_version(struct wf_case_spec *spec, struct json_object *root,
                                   struct wf_error *error)
{
    const char *text = NULL;
    size_t len = 0;
    enum wf_status status = wf_case_need_text(root, "version", &text, &len, error);
    if (status == WF_OK) {
        const char *space = memchr(text, ' ', len);
        wf_case_put(spec, "version", text, space ? (size_t)(space - text) : len);
    }
    return status;
}

/* Sizes under "parallel"; an absent one is the SPEC's default. */
enum wf_status wf_case_put_parallel(struct wf_case_spec *spec, struct json_object *root,
                                    const char *const *keys, size_t count, struct wf_error *error)
{
    struct json_object *parallel = wf_case_get(root, "parallel");
    if (!json_object_is_type(parallel, json_type_object)) {
        return wf_error_set(error, WF_INVALID, "case.json: \"parallel\" is needed, as an object");
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t size = 0;
        enum wf_status status = wf_json_get_u64(parallel, keys[i], 1, PARALLEL_MAX, &size, error);
        if (status == WF_OK) {
            wf_case_put_number(spec, keys[i], size);
        } else if (status != WF_NOT_FOUND) {
            return status;
        }
    }
    return WF_OK;
}

bool wf_case_is_true(struct json_object *value)
{
    return json_object_is_type(value, json_type_boolean) && json_object_get_boolean(value);
}
