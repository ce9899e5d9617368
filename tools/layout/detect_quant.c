/* detect_quant.c - how the weights of a dump are quantised: by names and types, and which modules
 * are not, for the config of the models that are tried. */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/hash.h"
#include "tools/layout/detect_private.h"

enum {
    BLOCK = 128,     /* the one block of fp8 that engines know */
    PER_WORD = 8,    /* int4 numbers in an i32 */
    STARS_MAX = 48,  /* modules of a kind that are excluded in every layer; a config may have 64 */
    ALONE_MAX = 512, /* modules that are excluded by their full names */
};

/* --- which way ------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    size_t len = strlen(name), used = strlen(end);
    return len >= used && strcmp(name + len - used, end) == 0;
}

/* The tensor whose name is this one's up to `end`, with `other` in its place. */
static const struct wf_dump_tensor *find_beside(const struct wf_dump_rank *dump, const char *name,
                                                const char *end, const char *other)
{
    char beside[WF_NAME_MAX + 32];
    size_t stem = strlen(name) - strlen(end);
    if (stem >= WF_NAME_MAX) {
        return NULL;
    }
    snprintf(beside, sizeof beside, "%.*s%s", (int)stem, name, other);
    return wf_dump_rank_find(dump, beside);
}

/* Numbers of a row that share a scale: what the packed words and the scales differ by. */
static uint64_t group_of(const struct wf_dump_tensor *packed, const struct wf_dump_tensor *scale)
{
    uint64_t group = 0;
    for (uint32_t d = 0; d < packed->ndim && d < scale->ndim; d++) {
        if (packed->shape[d] != scale->shape[d] && scale->shape[d] > 0) {
            group = packed->shape[d] * PER_WORD / scale->shape[d];
        }
    }
    return group > 0 ? group : PER_WORD;
}

static bool find_int4(const struct wf_dump_rank *dump, struct wf_guess_quant *out)
{
    for (uint32_t i = 0; i < dump->count; i++) {
        const struct wf_dump_tensor *tensor = &dump->tensors[i];
        const struct wf_dump_tensor *scale = NULL;
        if (tensor->dtype == WF_DTYPE_I32 && ends_with(tensor->name, "weight_packed")) {
            scale = find_beside(dump, tensor->name, "packed", "scale");
        }
        if (scale != NULL) {
            *out = (struct wf_guess_quant){"int4", "pack-quantized", group_of(tensor, scale), NULL};
            return true;
        }
    }
    return false;
}

/* Two numbers in a byte, with scales of scales. */
static bool find_nvfp4(const struct wf_dump_rank *dump, struct wf_guess_quant *out)
{
    for (uint32_t i = 0; i < dump->count; i++) {
        const struct wf_dump_tensor *tensor = &dump->tensors[i];
        if (tensor->dtype == WF_DTYPE_U8 && ends_with(tensor->name, "weight") &&
            find_beside(dump, tensor->name, "", "_scale_2") != NULL) {
            *out = (struct wf_guess_quant){"nvfp4", "NVFP4", 0, NULL};
            return true;
        }
    }
    return false;
}

/* --- what is not ----------------------------------------------------------------------------- */

/* "a.layers.*.b" of a module's name. */
static void put_stars(char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0';) {
        size_t digits = strspn(at, "0123456789");
        bool word = digits > 0 && (at == text || at[-1] == '.') &&
                    (at[digits] == '.' || at[digits] == '\0');
        *to++ = word ? '*' : *at;
        at += word ? digits : 1;
    }
    *to = '\0';
}

static bool is_listed(struct json_object *list, const char *text)
{
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        if (strcmp(json_object_get_string(json_object_array_get_idx(list, i)), text) == 0) {
            return true;
        }
    }
    return false;
}

/* A matrix without codes or scales beside it. */
static bool is_plain(const struct wf_dump_rank *dump, const struct wf_dump_tensor *tensor)
{
    return tensor->ndim == 2 && ends_with(tensor->name, ".weight") &&
           find_beside(dump, tensor->name, "", "_scale_inv") == NULL &&
           find_beside(dump, tensor->name, "", "_scale") == NULL;
}

/* The module of a tensor, and its kind. */
static void name_module(const char *name, char module[WF_NAME_MAX], char kind[WF_NAME_MAX])
{
    const char *end = strrchr(name, '.');
    snprintf(module, WF_NAME_MAX, "%.*s", end != NULL ? (int)(end - name) : 0, name);
    memcpy(kind, module, WF_NAME_MAX);
    put_stars(kind);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Hashes of the kinds of which some have codes, sorted; the caller frees them. NULL without memory.
 */
static uint64_t *list_coded(const struct wf_dump_rank *dump, size_t *count_out)
{
    uint64_t *kinds = calloc((size_t)dump->count + 1, sizeof *kinds);
    *count_out = 0;
    for (uint32_t i = 0; kinds != NULL && i < dump->count; i++) {
        if (strstr(dump->tensors[i].name, "weight_") != NULL) {
            char module[WF_NAME_MAX], kind[WF_NAME_MAX];
            name_module(dump->tensors[i].name, module, kind);
            kinds[(*count_out)++] = wf_hash_bytes(kind, strlen(kind));
        }
    }
    if (kinds != NULL) {
        qsort(kinds, *count_out, sizeof *kinds, by_value);
    }
    return kinds;
}

/* Kinds of modules of which some are plain and some are not go by their full names. */
static void list_plain(const struct wf_dump_rank *dump, struct json_object *plain)
{
    struct json_object *seen = json_object_new_array(); /* few */
    size_t alone = 0, coded = 0;
    uint64_t *kinds = list_coded(dump, &coded);
    for (uint32_t i = 0; kinds != NULL && i < dump->count; i++) {
        char module[WF_NAME_MAX], kind[WF_NAME_MAX];
        if (!is_plain(dump, &dump->tensors[i])) {
            continue;
        }
        name_module(dump->tensors[i].name, module, kind);
        uint64_t hash = wf_hash_bytes(kind, strlen(kind));
        bool mixed = bsearch(&hash, kinds, coded, sizeof hash, by_value) != NULL;
        if (mixed && alone < ALONE_MAX) {
            json_object_array_add(plain, json_object_new_string(module));
            alone++;
        } else if (!mixed && json_object_array_length(seen) < STARS_MAX && !is_listed(seen, kind)) {
            json_object_array_add(seen, json_object_new_string(kind));
            json_object_array_add(plain, json_object_new_string(kind));
        }
    }
    free(kinds);
    json_object_put(seen);
}

static bool has_type(const struct wf_dump_rank *dump, enum wf_dtype dtype)
{
    for (uint32_t i = 0; i < dump->count; i++) {
        if (dump->tensors[i].dtype == dtype) {
            return true;
        }
    }
    return false;
}

/* One for each row of a matrix of codes. */
static bool has_row_scales(const struct wf_dump_rank *dump)
{
    for (uint32_t i = 0; i < dump->count; i++) {
        const struct wf_dump_tensor *tensor = &dump->tensors[i];
        const struct wf_dump_tensor *scale = NULL;
        if (tensor->dtype == WF_DTYPE_F8_E4M3) {
            scale = find_beside(dump, tensor->name, "", "_scale");
        }
        if (scale != NULL && scale->ndim == tensor->ndim && scale->ndim >= 2 &&
            scale->shape[scale->ndim - 1] == 1) {
            return true;
        }
    }
    return false;
}

void wf_guess_quant_find(const struct wf_dump_rank *dump, struct wf_guess_quant *out)
{
    *out = (struct wf_guess_quant){0};
    if (find_int4(dump, out) || find_nvfp4(dump, out)) {
        out->plain = json_object_new_array();
        list_plain(dump, out->plain);
    } else if (has_row_scales(dump)) {
        *out = (struct wf_guess_quant){"fp8_rows", "float-quantized", 0, NULL};
    } else if (has_type(dump, WF_DTYPE_F8_E4M3)) {
        *out = (struct wf_guess_quant){"fp8", "fp8", 0, NULL};
    } else if (has_type(dump, WF_DTYPE_U8)) {
        *out = (struct wf_guess_quant){"mxfp4", "mxfp4", 0, NULL};
    }
}

void wf_guess_quant_fini(struct wf_guess_quant *quant)
{
    json_object_put(quant->plain);
    *quant = (struct wf_guess_quant){0};
}

/* --- the config ------------------------------------------------------------------------------ */

/* Engines hold int4 experts alone, under names of their own. */
static struct json_object *experts_alone(void)
{
    static const char *const others[] = {
        "lm_head",
        "re:.*attn.*",
        "re:.*attention.*",
        "re:.*shared_expert.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
    };
    struct json_object *list = json_object_new_array();
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        json_object_array_add(list, json_object_new_string(others[i]));
    }
    return list;
}

static void put_int4(struct json_object *object, const struct wf_guess_quant *quant)
{
    struct json_object *weights = json_object_new_object();
    json_object_object_add(weights, "num_bits", json_object_new_int(4));
    json_object_object_add(weights, "type", json_object_new_string("int"));
    json_object_object_add(weights, "strategy", json_object_new_string("group"));
    json_object_object_add(weights, "group_size", json_object_new_uint64(quant->group));
    json_object_object_add(weights, "symmetric", json_object_new_boolean(true));
    json_object_object_add(object, "quant_method", json_object_new_string("compressed-tensors"));
    json_object_object_add(object, "format", json_object_new_string("pack-quantized"));
    json_object_object_add(object, "weights", weights);
}

/* Modules that are not quantised: a list that nobody knows. */
static void put_unknown(struct json_object *object, const char *key)
{
    struct json_object *list = json_object_new_array();
    json_object_array_add(list, json_object_new_string("..."));
    json_object_object_add(object, key, list);
}

static void put_rows(struct json_object *object)
{
    struct json_object *groups = json_object_new_object(), *group = json_object_new_object();
    struct json_object *weights = json_object_new_object(), *inputs = json_object_new_object();
    json_object_object_add(weights, "num_bits", json_object_new_int(8));
    json_object_object_add(weights, "type", json_object_new_string("float"));
    json_object_object_add(weights, "strategy", json_object_new_string("channel"));
    json_object_object_add(weights, "symmetric", json_object_new_boolean(true));
    json_object_object_add(inputs, "dynamic", json_object_new_boolean(true));
    json_object_object_add(group, "weights", weights);
    json_object_object_add(group, "input_activations", inputs);
    json_object_object_add(groups, "group_0", group);
    json_object_object_add(object, "quant_method", json_object_new_string("compressed-tensors"));
    json_object_object_add(object, "format", json_object_new_string("float-quantized"));
    json_object_object_add(object, "config_groups", groups);
    put_unknown(object, "ignore");
}

struct json_object *wf_guess_quant_config(const struct wf_guess_quant *quant,
                                          const struct wf_engine *engine)
{
    struct json_object *object = json_object_new_object();
    bool names = strcmp(engine->name, "hf") == 0; /* the list's */
    if (strcmp(quant->method, "int4") == 0) {
        put_int4(object, quant);
    } else if (strcmp(quant->method, "fp8_rows") == 0) {
        put_rows(object);
    } else if (strcmp(quant->method, "nvfp4") == 0) {
        json_object_object_add(object, "quant_method", json_object_new_string("modelopt"));
        json_object_object_add(object, "quant_algo", json_object_new_string("NVFP4"));
    } else {
        struct json_object *block = json_object_new_array();
        json_object_array_add(block, json_object_new_int(BLOCK));
        json_object_array_add(block, json_object_new_int(BLOCK));
        json_object_object_add(object, "quant_method", json_object_new_string(quant->method));
        json_object_object_add(object, "weight_block_size", block);
        put_unknown(object, "modules_to_not_convert");
    }
    if (quant->plain != NULL) {
        json_object_object_add(object, "ignore",
                               names ? json_object_get(quant->plain) : experts_alone());
    }
    return object;
}
