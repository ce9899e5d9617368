/* case.c - a fixture's case.json becomes SPEC text, which the one parser of SPECs reads. */
#include "tools/layout/case.h"

#include <stdio.h>
#include <string.h>

#include "models/json.h"

enum { PARALLEL_MAX = 1 << 16 };

/* SPEC text being collected. */
struct spec {
    char text[WF_SPEC_MAX];
    size_t used;
    bool full;
};

static void put(struct spec *spec, const char *key, const char *value, size_t len)
{
    char mark = strchr(spec->text, ':')[1] == '\0' ? '\0' : ',';
    int n = snprintf(spec->text + spec->used, sizeof spec->text - spec->used, "%s%s=%.*s",
                     mark ? "," : "", key, (int)len, value);
    spec->full = spec->full || n < 0 || spec->used + (size_t)n >= sizeof spec->text;
    spec->used += spec->full ? 0 : (size_t)n;
}

static void put_number(struct spec *spec, const char *key, uint64_t number)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    put(spec, key, text, (size_t)n);
}

/* The value at a key, or NULL where absent or null. */
static struct json_object *get(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    return value;
}

static const char *get_text(struct json_object *object, const char *key, size_t *len_out)
{
    struct json_object *value = get(object, key);
    if (!json_object_is_type(value, json_type_string)) {
        return NULL;
    }
    *len_out = (size_t)json_object_get_string_len(value);
    return json_object_get_string(value);
}

static bool text_begins(struct json_object *object, const char *key, const char *begin)
{
    size_t len = 0;
    const char *text = get_text(object, key, &len);
    return text && len >= strlen(begin) && memcmp(text, begin, strlen(begin)) == 0;
}

static enum wf_status need_text(struct json_object *object, const char *key, const char **text_out,
                                size_t *len_out, struct wf_error *error)
{
    *text_out = get_text(object, key, len_out);
    return *text_out
               ? WF_OK
               : wf_error_set(error, WF_INVALID, "case.json: \"%s\" is needed, as a string", key);
}

/* "version" up to the first space: "0.20.0 (NVIDIA/Megatron-LM ...)". */
static enum wf_status put_version(struct spec *spec, struct json_object *root,
                                  struct wf_error *error)
{
    const char *text = NULL;
    size_t len = 0;
    enum wf_status status = need_text(root, "version", &text, &len, error);
    if (status == WF_OK) {
        const char *space = memchr(text, ' ', len);
        put(spec, "version", text, space ? (size_t)(space - text) : len);
    }
    return status;
}

/* Sizes under "parallel"; an absent one is the SPEC's default. */
static enum wf_status put_parallel(struct spec *spec, struct json_object *root,
                                   const char *const *keys, size_t count, struct wf_error *error)
{
    struct json_object *parallel = get(root, "parallel");
    if (!json_object_is_type(parallel, json_type_object)) {
        return wf_error_set(error, WF_INVALID, "case.json: \"parallel\" is needed, as an object");
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t size = 0;
        enum wf_status status = wf_json_get_u64(parallel, keys[i], 1, PARALLEL_MAX, &size, error);
        if (status == WF_OK) {
            put_number(spec, keys[i], size);
        } else if (status != WF_NOT_FOUND) {
            return status;
        }
    }
    return WF_OK;
}

/* --- Megatron -------------------------------------------------------------------------------- */

static enum wf_status put_layout(struct spec *spec, struct json_object *value,
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
    put(spec, "layout", plain, used);
    return WF_OK;
}

static bool is_true(struct json_object *value)
{
    return json_object_is_type(value, json_type_boolean) && json_object_get_boolean(value);
}

static enum wf_status put_overrides(struct spec *spec, struct json_object *root,
                                    struct wf_error *error)
{
    struct json_object *overrides = get(root, "megatron_config_overrides");
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
            put_number(spec, "first", layers);
        } else if (strcmp(key, "num_layers_in_last_pipeline_stage") == 0) {
            status = wf_json_get_u64(overrides, key, 1, WF_LAYERS_MAX, &layers, error);
            put_number(spec, "last", layers);
        } else if (strcmp(key, "account_for_embedding_in_pipeline_split") == 0) {
            embedding = is_true(value);
        } else if (strcmp(key, "account_for_loss_in_pipeline_split") == 0) {
            loss = is_true(value);
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
        put(spec, "account", account, strlen(account));
    }
    return WF_OK;
}

static enum wf_status spec_of_megatron(struct spec *spec, struct json_object *root,
                                       struct wf_error *error)
{
    static const char *const keys[] = {"tp", "pp", "vpp", "dp", "cp", "ep", "etp"};
    uint64_t multiple = 1;
    enum wf_status status =
        wf_json_get_u64(root, "padded_vocab_multiple", 1, 1u << 30, &multiple, error);
    if (status == WF_OK || status == WF_NOT_FOUND) {
        put_number(spec, "vocab_div", multiple); /* null: the loader does not pad */
        status = put_version(spec, root, error);
    }
    if (status == WF_OK) {
        status = put_parallel(spec, root, keys, sizeof keys / sizeof keys[0], error);
    }
    if (status == WF_OK) {
        status = put_overrides(spec, root, error);
    }
    put(spec, "dtype", "bf16", 4); /* params_dtype of every executed case */
    if (text_begins(root, "transformer_engine", "not used")) {
        put(spec, "names", "local", 5);
    }
    return status;
}

/* --- vLLM ------------------------------------------------------------------------------------ */

/* Options, environment and backends can change what a parameter holds; this build knows none. */
static enum wf_status refuse_options(struct json_object *root, struct wf_error *error)
{
    static const char *const maps[] = {"engine_options", "environment"};
    for (size_t i = 0; i < 2; i++) {
        struct json_object *map = get(root, maps[i]);
        if (json_object_is_type(map, json_type_object)) {
            json_object_object_foreach(map, key, value)
            {
                (void)value;
                return wf_error_set(error, WF_UNSUPPORTED, "case.json: %s %s is not supported yet",
                                    maps[i], key);
            }
        }
    }
    struct json_object *methods = get(root, "quant_methods");
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
    if (is_true(get(get(root, "parallel"), "expert_parallel"))) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "case.json: expert parallelism is not supported yet");
    }
    return WF_OK;
}

static enum wf_status spec_of_vllm(struct spec *spec, struct json_object *root,
                                   struct wf_error *error)
{
    static const char *const keys[] = {"tp", "pp", "dp"};
    const char *text = NULL;
    size_t len = 0;
    enum wf_status status = refuse_options(root, error);
    if (status == WF_OK) {
        status = put_version(spec, root, error);
    }
    if (status == WF_OK) {
        status = put_parallel(spec, root, keys, sizeof keys / sizeof keys[0], error);
    }
    if (status == WF_OK) {
        status = need_text(root, "model_dtype", &text, &len, error);
    }
    if (status == WF_OK) {
        const char *dtype = wf_dtype_name(wf_dtype_from_torch(text, len));
        put(spec, "dtype", dtype, strlen(dtype));
    }
    return status;
}

/* --- the whole ------------------------------------------------------------------------------- */

static enum wf_status parse_model(struct json_object *root, struct wf_model **model_out,
                                  struct wf_error *error)
{
    struct json_object *config = get(root, "hf_config"), *type = get(root, "hf_model_type");
    if (!json_object_is_type(config, json_type_object)) {
        return wf_error_set(error, WF_INVALID, "case.json: \"hf_config\" is needed, as an object");
    }
    if (type && !get(config, "model_type")) {
        json_object_object_add(config, "model_type", json_object_get(type));
    }
    size_t len = 0;
    const char *text = json_object_to_json_string_length(config, JSON_C_TO_STRING_PLAIN, &len);
    enum wf_status status = text ? wf_model_parse(text, len, model_out, error)
                                 : wf_error_set(error, WF_NO_MEMORY, "no memory for a config");
    if (status != WF_OK) {
        wf_error_prefix(error, "hf_config");
    }
    return status;
}

static enum wf_status parse_case(struct json_object *root, struct wf_case *it,
                                 struct wf_error *error)
{
    struct spec spec = {.text = ""};
    const char *framework = NULL;
    size_t len = 0;
    enum wf_status status = need_text(root, "framework", &framework, &len, error);
    if (status != WF_OK) {
        return status;
    }
    bool megatron = len == 13 && memcmp(framework, "megatron-core", len) == 0;
    bool vllm = len == 4 && memcmp(framework, "vllm", len) == 0;
    if (!megatron && !vllm) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "layouts of %.60s are not supported yet; this build knows "
                            "megatron-core and vllm",
                            framework);
    }
    status = parse_model(root, &it->model, error);
    if (status != WF_OK) {
        return status;
    }
    strcpy(spec.text, megatron ? "megatron:" : "vllm:");
    spec.used = strlen(spec.text);
    status = megatron ? spec_of_megatron(&spec, root, error) : spec_of_vllm(&spec, root, error);
    if (status == WF_OK && spec.full) {
        status = wf_error_set(error, WF_INVALID, "case.json: its SPEC would be too long");
    }
    if (status == WF_OK) {
        status = wf_recipe_parse(spec.text, it->model, &it->recipe, error);
    }
    return status;
}

enum wf_status wf_case_parse(const char *text, size_t len, struct wf_case *case_out,
                             struct wf_error *error)
{
    struct json_object *root = NULL;
    struct wf_case it = {0};
    enum wf_status status = wf_json_parse(text, len, WF_JSON_PYTHON, &root, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "case.json");
        return status;
    }
    status = json_object_is_type(root, json_type_object)
                 ? parse_case(root, &it, error)
                 : wf_error_set(error, WF_INVALID, "case.json: an object is expected");
    json_object_put(root);
    if (status != WF_OK) {
        wf_case_fini(&it);
        return status;
    }
    *case_out = it;
    return WF_OK;
}

void wf_case_fini(struct wf_case *it)
{
    wf_model_free(it->model);
    it->model = NULL;
}
