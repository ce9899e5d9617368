/* config.c - reads a Hugging Face config.json: which family, which sizes, which flags.
 *
 * Absent, null, false and zero are four things: what an absent key means is the family's
 * (families/family.h), null means "work it out", and zero is no size. Keys that only describe how
 * the numbers are used (rope, windows, dropout, ...) are not looked at.
 */
#include "models/config.h"

#include <stdlib.h>
#include <string.h>

#include "models/config_private.h"
#include "models/families/family.h"
#include "models/json.h"

enum { FAMILY_LIST_MAX = 512 };

static bool text_is(struct json_object *value, const char *text)
{
    size_t len = strlen(text);
    return json_object_is_type(value, json_type_string) &&
           (size_t)json_object_get_string_len(value) == len &&
           memcmp(json_object_get_string(value), text, len) == 0;
}

/* The value, or NULL where the key is absent or null. */
static struct json_object *get(struct json_object *config, const char *key)
{
    struct json_object *value = NULL;
    json_object_object_get_ex(config, key, &value);
    return value;
}

static bool is_null(struct json_object *config, const char *key)
{
    struct json_object *value = NULL;
    return json_object_object_get_ex(config, key, &value) && !value;
}

/* Not absent, null, false, zero or empty: what Python takes for true. */
static bool is_on(struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_null:
        return false;
    case json_type_array:
        return json_object_array_length(value) > 0;
    case json_type_object:
        return json_object_object_length(value) > 0;
    case json_type_string:
        return json_object_get_string_len(value) > 0;
    default:
        return json_object_get_boolean(value);
    }
}

static enum wf_status find_family(struct json_object *config, struct wf_model *model,
                                  struct wf_error *error)
{
    struct json_object *type = get(config, "model_type");
    if (!json_object_is_type(type, json_type_string)) {
        return wf_error_set(error, WF_INVALID,
                            "\"model_type\" is needed, as a string, to know the model's family");
    }
    char known[FAMILY_LIST_MAX] = "";
    for (const struct wf_family *const *family = wf_families; *family; family++) {
        if (text_is(type, (*family)->model_type)) {
            model->family = *family;
            strncpy(model->model_type, (*family)->model_type, sizeof model->model_type - 1);
            return WF_OK;
        }
        strncat(known, " ", sizeof known - strlen(known) - 1);
        strncat(known, (*family)->model_type, sizeof known - strlen(known) - 1);
    }
    return wf_error_set(error, WF_UNSUPPORTED,
                        "model_type \"%.64s\" is not supported yet; this build knows:%s",
                        json_object_get_string(type), known);
}

/* What a key of the list below is harmless beside. */
enum harmless {
    NEVER,
    WITH_QK_NORM,        /* a family that has the norms anyway */
    WITH_ATTENTION_BIAS, /* a model whose q, k and v have biases anyway */
};

/* Keys that, when on, add tensors or change what a tensor holds in ways this build does not know.
 */
static const struct {
    const char *key, *what;
    enum harmless harmless;
} refused_keys[] = {
    {"quantization_config", "packed or scaled weights", NEVER},
    {"compression_config", "packed or scaled weights", NEVER},
    {"text_config", "a text model nested in a larger one", NEVER},
    {"vision_config", "a vision tower", NEVER},
    {"audio_config", "an audio tower", NEVER},
    {"num_experts", "experts", NEVER},
    {"num_local_experts", "experts", NEVER},
    {"n_routed_experts", "experts", NEVER},
    {"num_nextn_predict_layers", "layers that predict further tokens", NEVER},
    {"use_qk_norm", "norms on q and k under a flag", WITH_QK_NORM},
    {"qk_layernorm", "norms on q and k under a flag", WITH_QK_NORM},
    {"bias", "biases under another flag than attention_bias or mlp_bias", NEVER},
    {"use_bias", "biases under another flag than attention_bias or mlp_bias", NEVER},
    {"qkv_bias", "biases under another flag than attention_bias", WITH_ATTENTION_BIAS},
    {"norm_head", "a normalised head", NEVER},
};

static enum wf_status refuse_unknown_tensors(struct json_object *config,
                                             const struct wf_model *model, struct wf_error *error)
{
    for (size_t i = 0; i < sizeof refused_keys / sizeof refused_keys[0]; i++) {
        const char *key = refused_keys[i].key;
        enum harmless harmless = refused_keys[i].harmless;
        bool known = (harmless == WITH_QK_NORM && model->qk_norm) ||
                     (harmless == WITH_ATTENTION_BIAS && model->attention_bias);
        if (!known && is_on(get(config, key))) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "the config sets \"%s\": %s in a %s model: not supported yet", key,
                                refused_keys[i].what, model->family->name);
        }
    }
    struct json_object *classes = get(config, "architectures");
    struct json_object *first =
        json_object_is_type(classes, json_type_array) && json_object_array_length(classes) > 0
            ? json_object_array_get_idx(classes, 0)
            : NULL;
    if (json_object_is_type(first, json_type_string) &&
        !strstr(json_object_get_string(first), "ForCausalLM")) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "architecture \"%.64s\" is not supported yet: its head is not a "
                            "language model's; a ...ForCausalLM is expected",
                            json_object_get_string(first));
    }
    return WF_OK;
}

static enum wf_status read_switch(struct json_object *config, const char *key,
                                  enum wf_family_switch how, const struct wf_family *family,
                                  bool *out, struct wf_error *error)
{
    if (how == WF_SWITCH_ALWAYS) {
        *out = true;
        return WF_OK;
    }
    *out = false;
    enum wf_status status = wf_json_get_bool(config, key, out, error);
    if (status == WF_INVALID) {
        return status;
    }
    if (*out && how == WF_SWITCH_NEVER) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "the config sets \"%s\", but a %s model has no such tensors; this "
                            "build cannot say where they go",
                            key, family->name);
    }
    return WF_OK;
}

static enum wf_status read_flags(struct json_object *config, struct wf_model *model,
                                 struct wf_error *error)
{
    const struct wf_family *family = model->family;
    model->qk_norm = family->qk_norm;
    model->tied = family->tied_if_absent && !is_null(config, "tie_word_embeddings");
    if (wf_json_get_bool(config, "tie_word_embeddings", &model->tied, error) == WF_INVALID) {
        return WF_INVALID;
    }
    enum wf_status status = read_switch(config, "attention_bias", family->attention_bias, family,
                                        &model->attention_bias, error);
    if (status != WF_OK) {
        return status;
    }
    return read_switch(config, "mlp_bias", family->mlp_bias, family, &model->mlp_bias, error);
}

static enum wf_status read_heads(struct json_object *config, struct wf_model *model,
                                 struct wf_error *error)
{
    const struct wf_family *family = model->family;
    uint64_t heads = model->query_heads;
    model->kv_heads = family->kv_heads_if_absent && !is_null(config, "num_key_value_heads")
                          ? family->kv_heads_if_absent
                          : heads;
    if (wf_json_get_u64(config, "num_key_value_heads", 1, WF_MODEL_SIZE_MAX, &model->kv_heads,
                        error) == WF_INVALID) {
        return WF_INVALID;
    }
    if (model->kv_heads > heads || heads % model->kv_heads != 0) {
        return wf_error_set(error, WF_INVALID,
                            "num_attention_heads %llu is no multiple of num_key_value_heads %llu",
                            (unsigned long long)heads, (unsigned long long)model->kv_heads);
    }
    enum wf_status status =
        wf_json_get_u64(config, "head_dim", 1, WF_MODEL_SIZE_MAX, &model->head_dim, error);
    if (status != WF_NOT_FOUND) {
        return status;
    }
    uint64_t fixed = family->head_dim_if_absent;
    bool divides = model->hidden % heads == 0;
    if (fixed && is_null(config, "head_dim") && !(divides && model->hidden / heads == fixed)) {
        return wf_error_set(error, WF_INVALID,
                            "\"head_dim\" is null: readers of %s configs disagree whether that "
                            "means %llu or hidden_size / num_attention_heads; give the number",
                            family->name, (unsigned long long)fixed);
    }
    if (!fixed && !divides) {
        return wf_error_set(error, WF_INVALID,
                            "\"head_dim\" is not given and hidden_size %llu is no multiple of "
                            "num_attention_heads %llu",
                            (unsigned long long)model->hidden, (unsigned long long)heads);
    }
    model->head_dim = fixed ? fixed : model->hidden / heads;
    return WF_OK;
}

static enum wf_status read_sizes(struct json_object *config, struct wf_model *model,
                                 struct wf_error *error)
{
    const struct {
        const char *key;
        uint64_t *out, max;
    } sizes[] = {
        {"hidden_size", &model->hidden, WF_MODEL_SIZE_MAX},
        {"num_hidden_layers", &model->layers, WF_LAYERS_MAX},
        {"vocab_size", &model->vocab, WF_MODEL_SIZE_MAX},
        {"num_attention_heads", &model->query_heads, WF_MODEL_SIZE_MAX},
        {"intermediate_size", &model->intermediate, WF_MODEL_SIZE_MAX},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (wf_json_get_u64(config, sizes[i].key, 1, sizes[i].max, sizes[i].out, error) != WF_OK) {
            if (error) {
                error->status = WF_INVALID;
            }
            return WF_INVALID;
        }
    }
    return read_heads(config, model, error);
}

/* One of the two spellings; NONE where absent or null. */
static enum wf_status read_dtype(struct json_object *config, const char *key, enum wf_dtype *out,
                                 struct wf_error *error)
{
    struct json_object *value = get(config, key);
    if (!value) {
        return WF_OK;
    }
    const char *text = json_object_get_string(value);
    size_t len = (size_t)json_object_get_string_len(value);
    if (len > 6 && memcmp(text, "torch.", 6) == 0) {
        text += 6;
        len -= 6;
    }
    enum wf_dtype dtype = json_object_is_type(value, json_type_string)
                              ? wf_dtype_from_torch(text, len)
                              : WF_DTYPE_NONE;
    if (dtype == WF_DTYPE_NONE || !wf_dtype_castable(dtype, WF_DTYPE_F32)) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "\"%s\": expected \"float32\", \"float16\" or \"bfloat16\", found "
                            "%.40s",
                            key, json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN));
    }
    *out = dtype;
    return WF_OK;
}

static enum wf_status read_dtypes(struct json_object *config, struct wf_model *model,
                                  struct wf_error *error)
{
    enum wf_dtype old = WF_DTYPE_NONE, new = WF_DTYPE_NONE;
    enum wf_status status = read_dtype(config, "torch_dtype", &old, error);
    if (status == WF_OK) {
        status = read_dtype(config, "dtype", &new, error);
    }
    if (status != WF_OK) {
        return status;
    }
    if (old != WF_DTYPE_NONE && new != WF_DTYPE_NONE && old != new) {
        return wf_error_set(error, WF_INVALID,
                            "\"torch_dtype\" says %s and \"dtype\" says %s; give one",
                            wf_dtype_torch(old), wf_dtype_torch(new));
    }
    model->dtype = new != WF_DTYPE_NONE ? new : old != WF_DTYPE_NONE ? old : WF_DTYPE_BF16;
    return WF_OK;
}

static enum wf_status read_config(struct json_object *config, struct wf_model *model,
                                  struct wf_error *error)
{
    if (!json_object_is_type(config, json_type_object)) {
        return wf_error_set(error, WF_INVALID, "a config is a JSON object; this is something else");
    }
    enum wf_status status = find_family(config, model, error);
    if (status == WF_OK) {
        status = read_flags(config, model, error);
    }
    if (status == WF_OK) {
        status = refuse_unknown_tensors(config, model, error);
    }
    if (status == WF_OK) {
        status = read_sizes(config, model, error);
    }
    if (status == WF_OK) {
        status = read_dtypes(config, model, error);
    }
    return status == WF_OK ? wf_model_build(model, error) : status;
}

enum wf_status wf_model_parse(const char *text, size_t len, struct wf_model **model_out,
                              struct wf_error *error)
{
    struct json_object *config = NULL;
    enum wf_status status = wf_json_parse(text, len, WF_JSON_PYTHON, &config, error);
    if (status != WF_OK) {
        return status;
    }
    struct wf_model *model = calloc(1, sizeof *model);
    status = model ? read_config(config, model, error)
                   : wf_error_set(error, WF_NO_MEMORY, "no memory for a model");
    json_object_put(config);
    if (status != WF_OK) {
        wf_model_free(model);
        return status;
    }
    *model_out = model;
    return WF_OK;
}
