/* config_inventory.c - the list of parameters that follows from a model's family and sizes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/config.h"
#include "models/config_private.h"
#include "models/families/family.h"

/* The names that shape expressions use, and where their values stand. */
static const struct {
    const char *name;
    size_t offset;
} wf_sizes[] = {
    {"H", offsetof(struct wf_model, hidden)},       {"L", offsetof(struct wf_model, layers)},
    {"V", offsetof(struct wf_model, vocab)},        {"nq", offsetof(struct wf_model, query_heads)},
    {"nk", offsetof(struct wf_model, kv_heads)},    {"d", offsetof(struct wf_model, head_dim)},
    {"F", offsetof(struct wf_model, intermediate)},
};

/* Owned by wf_model.names. */
struct names {
    uint32_t *sorted; /* parameter indices by name */
    char text[];      /* all names, NUL-terminated */
};

static uint64_t size_of(const struct wf_model *model, const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof wf_sizes / sizeof wf_sizes[0]; i++) {
        if (strlen(wf_sizes[i].name) == len && memcmp(wf_sizes[i].name, name, len) == 0) {
            return *(const uint64_t *)((const char *)model + wf_sizes[i].offset);
        }
    }
    WF_ASSERT(!"a family's shape names an unknown size");
    return 0;
}

/* Evaluates one expression (up to ',' or the end) and moves *text past it. False on overflow. */
static bool evaluate(const struct wf_model *model, const char **text, uint64_t *out)
{
    uint64_t sum = 0, product = 1;
    for (const char *at = *text;;) {
        size_t len = strcspn(at, "*+,");
        uint64_t factor = 0;
        if (*at >= '0' && *at <= '9') {
            factor = strtoull(at, NULL, 10);
        } else {
            factor = size_of(model, at, len);
        }
        if (__builtin_mul_overflow(product, factor, &product)) {
            return false;
        }
        at += len;
        if (*at != '*') {
            if (__builtin_add_overflow(sum, product, &sum)) {
                return false;
            }
            product = 1;
        }
        if (*at == '\0' || *at == ',') {
            *text = *at == ',' ? at + 1 : at;
            *out = sum;
            return true;
        }
        at++;
    }
}

static bool row_exists(const struct wf_model *model, const struct wf_family_row *row)
{
    switch (row->when) {
    case WF_ROW_ATTENTION_BIAS:
        return model->attention_bias;
    case WF_ROW_MLP_BIAS:
        return model->mlp_bias;
    case WF_ROW_UNTIED:
        return !model->tied;
    default:
        return true;
    }
}

static bool row_is_layered(const struct wf_family_row *row)
{
    return strstr(row->name, "{layer}") != NULL;
}

/* Shape and element count of one row, the same for every layer. */
static enum wf_status shape_row(const struct wf_model *model, const struct wf_family_row *row,
                                struct wf_param *out, struct wf_error *error)
{
    *out = (struct wf_param){
        .role = row->role, .layer = WF_NO_LAYER, .dtype = model->dtype, .elements = 1};
    const char *text = row->shape;
    bool fits = true;
    while (*text && fits) {
        WF_ASSERT(out->ndim < WF_SHAPE_MAX);
        uint64_t *size = &out->shape[out->ndim++];
        fits = evaluate(model, &text, size) &&
               !__builtin_mul_overflow(out->elements, *size, &out->elements) &&
               out->elements <= WF_MODEL_ELEMENTS_MAX;
    }
    if (!fits) {
        return wf_error_set(error, WF_INVALID,
                            "the config's sizes make %s larger than 2^56 elements", row->name);
    }
    return WF_OK;
}

/* Writes a row's name for one layer; returns its length with the NUL. */
static size_t name_row(const struct wf_family_row *row, uint32_t layer, char *out, size_t room)
{
    const char *mark = strstr(row->name, "{layer}");
    int n = mark ? snprintf(out, room, "%.*s%u%s", (int)(mark - row->name), row->name, layer,
                            mark + strlen("{layer}"))
                 : snprintf(out, room, "%s", row->name);
    WF_ASSERT(n > 0 && n < WF_NAME_MAX);
    return (size_t)n + 1;
}

struct builder {
    struct wf_model *model;
    char *text; /* NULL in the first pass, which only counts */
    size_t text_used;
    uint64_t elements;
};

static enum wf_status add_param(struct builder *b, const struct wf_family_row *row, uint32_t layer,
                                struct wf_error *error)
{
    struct wf_model *model = b->model;
    char name[WF_NAME_MAX];
    size_t len = name_row(row, layer, name, sizeof name);
    if (b->text) {
        struct wf_param *param = &model->params[model->param_count];
        enum wf_status status = shape_row(model, row, param, error);
        if (status != WF_OK) {
            return status;
        }
        b->elements += param->elements;
        if (b->elements > WF_MODEL_ELEMENTS_MAX) {
            return wf_error_set(error, WF_INVALID,
                                "the config's sizes make the model larger than 2^56 elements");
        }
        param->layer = layer;
        param->name = memcpy(b->text + b->text_used, name, len);
    }
    b->text_used += len;
    model->param_count++;
    return WF_OK;
}

/* Every row in the table's order, a block of layered rows once per layer. */
static enum wf_status walk_rows(struct builder *b, struct wf_error *error)
{
    const struct wf_family *family = b->model->family;
    b->text_used = 0;
    b->model->param_count = 0;
    for (size_t first = 0; first < family->row_count;) {
        bool layered = row_is_layered(&family->rows[first]);
        size_t end = first + 1;
        while (layered && end < family->row_count && row_is_layered(&family->rows[end])) {
            end++;
        }
        uint32_t times = layered ? (uint32_t)b->model->layers : 1;
        for (uint32_t layer = 0; layer < times; layer++) {
            for (size_t i = first; i < end; i++) {
                if (!row_exists(b->model, &family->rows[i])) {
                    continue;
                }
                enum wf_status status =
                    add_param(b, &family->rows[i], layered ? layer : WF_NO_LAYER, error);
                if (status != WF_OK) {
                    return status;
                }
            }
        }
        first = end;
    }
    return WF_OK;
}

static int compare_names(const void *a, const void *b, void *model)
{
    const struct wf_param *params = ((struct wf_model *)model)->params;
    return strcmp(params[*(const uint32_t *)a].name, params[*(const uint32_t *)b].name);
}

static void hash_model(struct wf_model *model)
{
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    wf_hasher_text(&hasher, model->family->name, strlen(model->family->name));
    wf_hasher_text(&hasher, model->model_type, strlen(model->model_type));
    const uint64_t numbers[] = {
        model->hidden,         model->layers,   model->vocab,        model->query_heads,
        model->kv_heads,       model->head_dim, model->intermediate, model->tied,
        model->attention_bias, model->mlp_bias, model->qk_norm,      model->dtype,
        model->param_count,
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        wf_hasher_u64(&hasher, numbers[i]);
    }
    for (uint32_t i = 0; i < model->param_count; i++) {
        const struct wf_param *param = &model->params[i];
        wf_hasher_text(&hasher, param->name, strlen(param->name));
        wf_hasher_u64(&hasher, param->dtype);
        wf_hasher_u64(&hasher, param->ndim);
        for (uint32_t axis = 0; axis < param->ndim; axis++) {
            wf_hasher_u64(&hasher, param->shape[axis]);
        }
    }
    model->hash = wf_hasher_end(&hasher);
}

enum wf_status wf_model_build(struct wf_model *model, struct wf_error *error)
{
    struct builder b = {.model = model};
    enum wf_status status = walk_rows(&b, error);
    if (status != WF_OK) {
        return status;
    }
    struct names *names = calloc(1, sizeof *names + b.text_used);
    if (names) {
        model->names = names;
        names->sorted = calloc(model->param_count, sizeof *names->sorted);
        model->params = calloc(model->param_count, sizeof *model->params);
    }
    if (!names || !names->sorted || !model->params) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for an inventory");
    }
    b.text = names->text;
    status = walk_rows(&b, error);
    if (status != WF_OK) {
        return status;
    }
    for (uint32_t i = 0; i < model->param_count; i++) {
        names->sorted[i] = i;
    }
    qsort_r(names->sorted, model->param_count, sizeof *names->sorted, compare_names, model);
    hash_model(model);
    return WF_OK;
}

void wf_model_free(struct wf_model *model)
{
    if (!model) {
        return;
    }
    struct names *names = model->names;
    if (names) {
        free(names->sorted);
    }
    free(names);
    free(model->params);
    free(model);
}

enum wf_status wf_model_with_layers(const struct wf_model *model, uint64_t layers,
                                    struct wf_model **model_out, struct wf_error *error)
{
    if (layers == 0 || layers > WF_LAYERS_MAX) {
        return wf_error_set(error, WF_INVALID, "layers: expected 1 to %d, found %llu",
                            WF_LAYERS_MAX, (unsigned long long)layers);
    }
    struct wf_model *copy = malloc(sizeof *copy);
    if (!copy) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a model");
    }
    *copy = *model;
    copy->layers = layers;
    copy->params = NULL;
    copy->names = NULL;
    enum wf_status status = wf_model_build(copy, error);
    if (status != WF_OK) {
        wf_model_free(copy);
        return status;
    }
    *model_out = copy;
    return WF_OK;
}

uint32_t wf_model_find(const struct wf_model *model, const char *name, size_t len)
{
    const struct names *names = model->names;
    uint32_t low = 0, high = model->param_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const char *known = model->params[names->sorted[middle]].name;
        size_t known_len = strlen(known);
        int order = memcmp(known, name, known_len < len ? known_len : len);
        if (order == 0) {
            order = known_len < len ? -1 : known_len > len;
        }
        if (order == 0) {
            return names->sorted[middle];
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return UINT32_MAX;
}
