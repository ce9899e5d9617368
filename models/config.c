/* config.c - reads a Hugging Face config.json: which family, and what the config says of its sizes.
 *
 * Absent, null, false and zero are four things: what an absent key means is the family's
 * (families/family.h), which may tell null from absent, and zero is a size only where the family
 * says 0 of an absent one. Keys that only describe how the numbers are used (rope, windows,
 * dropout, ...) are not looked at.
 */
#include "models/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/config_private.h"
#include "models/expr.h"
#include "models/json.h"

enum { FAMILY_LIST_MAX = 768, KEY_MAX = 96 };

/* The parts of a config in which keys are looked for. */
struct config {
    struct json_object *top, *text; /* text: the nested text model's config, or NULL */
    const struct wf_family *family;
};

/* One of "a|b|c". */
static bool one_of(const char *list, const char *text, size_t len)
{
    const char *item = NULL;
    size_t item_len = 0;
    while (list && wf_expr_next(&list, '|', &item, &item_len)) {
        if (item_len == len && memcmp(item, text, len) == 0) {
            return true;
        }
    }
    return false;
}

/* The value behind "a.b" in an object ("a.0": an entry of a list), NULL where it is absent or null;
 * *null_out where null. */
static struct json_object *find_path(struct json_object *object, const char *path, size_t len,
                                     bool *null_out)
{
    while (object && len > 0) {
        const char *dot = memchr(path, '.', len);
        size_t step = dot ? (size_t)(dot - path) : len;
        char key[KEY_MAX];
        struct json_object *next = NULL;
        if (step >= sizeof key) {
            return NULL;
        }
        memcpy(key, path, step);
        key[step] = '\0';
        if (json_object_is_type(object, json_type_array)) {
            next = *key >= '0' && *key <= '9'
                       ? json_object_array_get_idx(object, strtoul(key, NULL, 10))
                       : NULL;
        } else if (json_object_is_type(object, json_type_object) &&
                   json_object_object_get_ex(object, key, &next) && !next) {
            *null_out = true;
        }
        object = next;
        path += step + (dot != NULL);
        len -= step + (dot != NULL);
    }
    return object;
}

/* One key; ".key" looks at the top only. */
static struct json_object *find_key(const struct config *config, const char *key, size_t len,
                                    bool *null_out)
{
    if (len > 0 && *key == '.') {
        return find_path(config->top, key + 1, len - 1, null_out);
    }
    struct json_object *value = find_path(config->text, key, len, null_out);
    return value ? value : find_path(config->top, key, len, null_out);
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

static void append(char *text, size_t room, const char *more, size_t len)
{
    size_t used = strlen(text);
    if (used + len < room) {
        memcpy(text + used, more, len);
        text[used + len] = '\0';
    }
}

static const struct wf_family *match_family(const struct wf_family *const *families,
                                            const char *type, size_t len, char *known, size_t room)
{
    for (; families && *families; families++) {
        if (one_of((*families)->model_types, type, len)) {
            return *families;
        }
        const char *list = (*families)->model_types, *item = NULL;
        size_t item_len = 0;
        while (wf_expr_next(&list, '|', &item, &item_len)) {
            append(known, room, " ", 1);
            append(known, room, item, item_len);
        }
    }
    return NULL;
}

static enum wf_status find_family(struct config *config, const struct wf_family *const *extra,
                                  struct wf_model *model, struct wf_error *error)
{
    bool null = false;
    struct json_object *type = find_path(config->top, "model_type", 10, &null);
    if (!json_object_is_type(type, json_type_string)) {
        return wf_error_set(error, WF_INVALID,
                            "\"model_type\" is needed, as a string, to know the model's family");
    }
    const char *text = json_object_get_string(type);
    size_t len = (size_t)json_object_get_string_len(type);
    char known[FAMILY_LIST_MAX] = "";
    const struct wf_family *family = match_family(extra, text, len, known, sizeof known);
    if (!family) {
        family = match_family(wf_families, text, len, known, sizeof known);
    }
    if (!family) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "model_type \"%.64s\" is not supported yet; this build knows:%s; a "
                            "family file adds one",
                            text, known);
    }
    model->family = config->family = family;
    memcpy(model->model_type, text, len < sizeof model->model_type ? len : 0);
    if (family->text_config) {
        config->text =
            find_path(config->top, family->text_config, strlen(family->text_config), &null);
    }
    return WF_OK;
}

/* "key: what it adds|key: what it adds". */
static enum wf_status refuse_keys(const struct config *config, struct wf_error *error)
{
    const char *list = config->family->refused, *item = NULL;
    size_t len = 0;
    while (list && wf_expr_next(&list, '|', &item, &len)) {
        const char *colon = memchr(item, ':', len);
        size_t key_len = colon ? (size_t)(colon - item) : len;
        bool null = false;
        if (!is_on(find_path(config->top, item, key_len, &null)) &&
            !is_on(find_path(config->text, item, key_len, &null))) {
            continue;
        }
        return wf_error_set(error, WF_UNSUPPORTED,
                            "the config sets \"%.*s\":%.*s in a %s model: not supported",
                            (int)key_len, item, (int)(colon ? len - key_len - 1 : 0),
                            colon ? colon + 1 : "", config->family->name);
    }
    return WF_OK;
}

/* The head must be a language model's. Families with a nested text model are known as
 * ...ForConditionalGeneration. */
static enum wf_status refuse_other_heads(const struct config *config, struct wf_error *error)
{
    bool null = false;
    struct json_object *classes = find_path(config->top, "architectures", 13, &null);
    if (!json_object_is_type(classes, json_type_array) || json_object_array_length(classes) == 0) {
        return WF_OK;
    }
    struct json_object *first = json_object_array_get_idx(classes, 0);
    if (!json_object_is_type(first, json_type_string)) {
        return WF_OK;
    }
    const char *name = json_object_get_string(first);
    bool nested = config->family->text_config && strstr(name, "ForConditionalGeneration");
    if (strstr(name, "ForCausalLM") || nested) {
        return WF_OK;
    }
    return wf_error_set(error, WF_UNSUPPORTED,
                        "architecture \"%.64s\" is not supported: its head is not a language "
                        "model's; a ...ForCausalLM%s is expected",
                        name, config->family->text_config ? " or ...ForConditionalGeneration" : "");
}

/* A sentence about what a key holds. */
static enum wf_status refuse_value(const char *key, size_t len, struct json_object *value,
                                   const char *expected, struct wf_error *error)
{
    WF_ASSERT(key != NULL);
    return wf_error_set(error, WF_INVALID, "\"%.*s\": expected %s, found %.60s", (int)len, key,
                        expected, json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN));
}

static enum wf_status read_number(const struct wf_family_size *size, const char *key, size_t len,
                                  struct json_object *value, uint64_t *out, struct wf_error *error)
{
    uint64_t max = strcmp(size->name, "L") == 0   ? WF_LAYERS_MAX
                   : strcmp(size->name, "E") == 0 ? WF_EXPERTS_MAX
                                                  : WF_MODEL_SIZE_MAX;
    uint64_t min = !size->otherwise || strcmp(size->otherwise, "0") != 0;
    int64_t number = json_object_get_int64(value);
    if (!json_object_is_type(value, json_type_int) || number < (int64_t)min ||
        (uint64_t)number > max) {
        char expected[64];
        snprintf(expected, sizeof expected, "an integer from %llu to %llu", (unsigned long long)min,
                 (unsigned long long)max);
        return refuse_value(key, len, value, expected, error);
    }
    *out = (uint64_t)number;
    return WF_OK;
}

/* One value against the family's `match`. */
static enum wf_status read_match(const struct wf_family_size *size, const char *key, size_t len,
                                 struct json_object *value, uint64_t *out, struct wf_error *error)
{
    if (strcmp(size->match, "*") == 0) {
        *out = 1;
        return WF_OK;
    }
    if (strcmp(size->match, "true") == 0) {
        if (!json_object_is_type(value, json_type_boolean)) {
            return refuse_value(key, len, value, "true or false", error);
        }
        *out = json_object_get_boolean(value);
        return WF_OK;
    }
    if (!json_object_is_type(value, json_type_string) &&
        !json_object_is_type(value, json_type_int) &&
        !json_object_is_type(value, json_type_boolean)) {
        return refuse_value(key, len, value, "a text", error);
    }
    const char *text = json_object_get_string(value);
    size_t text_len = json_object_is_type(value, json_type_string)
                          ? (size_t)json_object_get_string_len(value)
                          : strlen(text);
    *out = one_of(size->match, text, text_len);
    return WF_OK;
}

/* One value for each layer, or ("@layer") the numbers of the layers that have it. */
static enum wf_status read_list(const struct wf_family_size *size, const char *key, size_t len,
                                struct json_object *list, struct wf_size_value *out,
                                struct wf_error *error)
{
    bool set = strcmp(size->match, "@layer") == 0;
    size_t count = json_object_array_length(list);
    if (count > WF_LAYERS_MAX) {
        return wf_error_set(error, WF_INVALID, "\"%.*s\": expected at most %d entries, found %zu",
                            (int)len, key, WF_LAYERS_MAX, count);
    }
    out->kind = set ? WF_SIZE_SET : WF_SIZE_LIST;
    out->raw = calloc(count + 1, sizeof *out->raw);
    if (!out->raw) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a list of layers");
    }
    static const struct wf_family_size layer = {"layer", NULL, "0", NULL};
    for (size_t i = 0; i < count; i++) {
        struct json_object *entry = json_object_array_get_idx(list, i);
        uint64_t value = 0;
        enum wf_status status = set ? read_number(&layer, key, len, entry, &value, error)
                                    : read_match(size, key, len, entry, &value, error);
        if (status != WF_OK) {
            return status;
        }
        out->raw[out->raw_count++] = (uint32_t)value;
    }
    return WF_OK;
}

/* "#key": how many entries a list has. */
static enum wf_status read_length(const struct config *config, const struct wf_family_size *size,
                                  struct wf_size_value *out, struct wf_error *error)
{
    struct json_object *list = find_key(config, size->key + 1, strlen(size->key + 1), &out->null);
    if (!list && size->otherwise) {
        return WF_OK;
    }
    size_t count = json_object_is_type(list, json_type_array) ? json_object_array_length(list)
                                                              : WF_LAYERS_MAX + 1;
    if (count > WF_LAYERS_MAX) {
        return refuse_value(size->key + 1, strlen(size->key + 1), list, "a list", error);
    }
    out->kind = WF_SIZE_NUMBER;
    out->value = count;
    return WF_OK;
}

static enum wf_status read_size(const struct config *config, const struct wf_family_size *size,
                                struct wf_size_value *out, struct wf_error *error)
{
    const char *keys = size->key, *key = NULL;
    size_t len = 0;
    struct json_object *value = NULL;
    if (keys && *keys == '#') {
        return read_length(config, size, out, error);
    }
    while (!value && keys && wf_expr_next(&keys, '|', &key, &len)) {
        value = find_key(config, key, len, &out->null);
    }
    if (!value && !size->otherwise) {
        return wf_error_set(error, WF_INVALID, "\"%s\" is needed%s", size->key,
                            out->null ? ", and null" : "");
    }
    if (!value) {
        return WF_OK;
    }
    out->null = false;
    len -= *key == '.';
    key += *key == '.';
    bool flag = size->match && strcmp(size->match, "true") == 0;
    if (size->match && !flag && json_object_is_type(value, json_type_array)) {
        return read_list(size, key, len, value, out, error);
    }
    if (size->match && strcmp(size->match, "@layer") == 0) {
        return refuse_value(key, len, value, "a list of layers", error);
    }
    out->kind = WF_SIZE_NUMBER;
    return size->match ? read_match(size, key, len, value, &out->value, error)
                       : read_number(size, key, len, value, &out->value, error);
}

/* One of the two spellings; NONE where absent or null. */
static enum wf_status read_dtype(struct json_object *object, const char *key, enum wf_dtype *out,
                                 struct wf_error *error)
{
    bool null = false;
    struct json_object *value = find_path(object, key, strlen(key), &null);
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

/* The text model's own statement goes before the whole's. */
static enum wf_status read_dtypes(const struct config *config, struct wf_model *model,
                                  struct wf_error *error)
{
    struct json_object *const objects[] = {config->text, config->top};
    model->dtype = WF_DTYPE_BF16;
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        enum wf_dtype old = WF_DTYPE_NONE, new = WF_DTYPE_NONE;
        enum wf_status status = read_dtype(objects[i], "torch_dtype", &old, error);
        if (status == WF_OK) {
            status = read_dtype(objects[i], "dtype", &new, error);
        }
        if (status != WF_OK) {
            return status;
        }
        if (old != WF_DTYPE_NONE && new != WF_DTYPE_NONE && old != new) {
            return wf_error_set(error, WF_INVALID,
                                "\"torch_dtype\" says %s and \"dtype\" says %s; give one",
                                wf_dtype_torch(old), wf_dtype_torch(new));
        }
        if (old != WF_DTYPE_NONE || new != WF_DTYPE_NONE) {
            model->dtype = new != WF_DTYPE_NONE ? new : old;
            break;
        }
    }
    return WF_OK;
}

static enum wf_status read_excluded(const struct config *config, struct wf_excluded *out,
                                    struct wf_error *error)
{
    static const char *const keys[] = {"quantization_config.modules_to_not_convert",
                                       "quantization_config.ignored_layers",
                                       "quantization_config.ignore"};
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        bool null = false;
        struct json_object *list = find_key(config, keys[i], strlen(keys[i]), &null);
        if (list && !json_object_is_type(list, json_type_array)) {
            return refuse_value(keys[i], strlen(keys[i]), list, "a list of names", error);
        }
        size_t count = list ? json_object_array_length(list) : 0;
        for (size_t j = 0; j < count && status == WF_OK; j++) {
            struct json_object *name = json_object_array_get_idx(list, j);
            status = json_object_is_type(name, json_type_string)
                         ? wf_excluded_add(out, json_object_get_string(name),
                                           (size_t)json_object_get_string_len(name), error)
                         : refuse_value(keys[i], strlen(keys[i]), name, "names", error);
        }
    }
    wf_excluded_sort(out);
    return status;
}

/* The method, and what kind of it. */
static void read_packing(const struct config *config, char out[WF_PACKING_MAX])
{
    static const char *const keys[] = {"quantization_config.quant_method",
                                       "quantization_config.quant_algo",
                                       "quantization_config.format"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        bool null = false;
        struct json_object *value = find_key(config, keys[i], strlen(keys[i]), &null);
        if (json_object_is_type(value, json_type_string)) {
            size_t used = strlen(out);
            snprintf(out + used, WF_PACKING_MAX - used, "%s%.30s", used > 0 ? " " : "",
                     json_object_get_string(value));
        }
    }
}

const char *wf_model_packing(const struct wf_model *model)
{
    return wf_memory(model)->packing;
}

static enum wf_status read_config(struct json_object *top, const struct wf_family *const *extra,
                                  struct wf_model *model, struct wf_error *error)
{
    if (!json_object_is_type(top, json_type_object)) {
        return wf_error_set(error, WF_INVALID, "a config is a JSON object; this is something else");
    }
    struct config config = {.top = top};
    enum wf_status status = find_family(&config, extra, model, error);
    if (status == WF_OK) {
        status = refuse_keys(&config, error);
    }
    if (status == WF_OK) {
        status = refuse_other_heads(&config, error);
    }
    for (size_t i = 0; status == WF_OK && i < config.family->size_count; i++) {
        status = read_size(&config, &config.family->sizes[i], &wf_memory(model)->sizes[i], error);
    }
    if (status == WF_OK) {
        status = read_excluded(&config, &wf_memory(model)->excluded, error);
    }
    if (status == WF_OK) {
        read_packing(&config, wf_memory(model)->packing);
        status = read_dtypes(&config, model, error);
    }
    if (status == WF_OK) {
        status = wf_model_resolve(model, error);
    }
    return status == WF_OK ? wf_model_build(model, error) : status;
}

enum wf_status wf_model_parse(const char *text, size_t len, const struct wf_family *const *extra,
                              struct wf_model **model_out, struct wf_error *error)
{
    struct json_object *config = NULL;
    enum wf_status status = wf_json_parse(text, len, WF_JSON_PYTHON, &config, error);
    if (status != WF_OK) {
        return status;
    }
    struct wf_model *model = calloc(1, sizeof *model);
    if (model) {
        model->memory = calloc(1, sizeof(struct wf_model_memory));
    }
    status = model && model->memory ? read_config(config, extra, model, error)
                                    : wf_error_set(error, WF_NO_MEMORY, "no memory for a model");
    json_object_put(config);
    if (status != WF_OK) {
        wf_model_free(model);
        return status;
    }
    *model_out = model;
    return WF_OK;
}
