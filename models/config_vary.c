/* config_vary.c - another model of the same family: what the config said, but for some sizes. */
#include <stdlib.h>
#include <string.h>

#include "models/config_private.h"

/* What the config said of a size, for another model. */
static bool copy_size(const struct wf_size_value *from, struct wf_size_value *to)
{
    *to = *from;
    to->at = NULL;
    to->raw = NULL;
    if (from->raw) {
        to->raw = malloc((from->raw_count + 1) * sizeof *to->raw);
        if (!to->raw) {
            return false;
        }
        memcpy(to->raw, from->raw, from->raw_count * sizeof *to->raw);
    }
    return true;
}

/* What the config says, as if it said `change` too. */
static void change_size(struct wf_model *model, const struct wf_size_change *change)
{
    uint32_t size = wf_family_find_size(model->family, change->name, strlen(change->name));
    if (size != WF_NONE) {
        struct wf_size_value *value = &wf_memory(model)->sizes[size];
        value->kind = WF_SIZE_NUMBER;
        value->value = change->value;
    }
}

static enum wf_status copy_model(const struct wf_model *from, struct wf_model *to,
                                 struct wf_error *error)
{
    struct wf_model_memory *memory = wf_memory(to);
    bool made = wf_excluded_copy(&wf_memory(from)->excluded, &memory->excluded);
    to->family = from->family;
    to->dtype = from->dtype;
    memcpy(memory->packing, wf_memory(from)->packing, sizeof memory->packing);
    memcpy(to->model_type, from->model_type, sizeof to->model_type);
    for (size_t i = 0; made && i < from->family->size_count; i++) {
        made = copy_size(&wf_memory(from)->sizes[i], &memory->sizes[i]);
    }
    return made ? WF_OK : wf_error_set(error, WF_NO_MEMORY, "no memory for a model");
}

enum wf_status wf_model_vary(const struct wf_model *model, const struct wf_size_change *changes,
                             size_t count, struct wf_model **model_out, struct wf_error *error)
{
    struct wf_model *copy = calloc(1, sizeof *copy);
    if (copy) {
        copy->memory = calloc(1, sizeof(struct wf_model_memory));
    }
    enum wf_status status = copy && copy->memory
                                ? copy_model(model, copy, error)
                                : wf_error_set(error, WF_NO_MEMORY, "no memory for a model");
    for (size_t i = 0; status == WF_OK && i < count; i++) {
        change_size(copy, &changes[i]);
    }
    if (status == WF_OK) {
        status = wf_model_resolve(copy, error);
    }
    if (status == WF_OK) {
        status = wf_model_build(copy, error);
    }
    if (status != WF_OK) {
        wf_model_free(copy);
        return status;
    }
    *model_out = copy;
    return WF_OK;
}

enum wf_status wf_model_with_layers(const struct wf_model *model, uint64_t layers,
                                    struct wf_model **model_out, struct wf_error *error)
{
    WF_ASSERT(!model->variants); /* config.h */
    if (layers == 0 || layers > WF_LAYERS_MAX) {
        return wf_error_set(error, WF_INVALID, "layers: expected 1 to %d, found %llu",
                            WF_LAYERS_MAX, (unsigned long long)layers);
    }
    const struct wf_size_change change = {"L", layers};
    return wf_model_vary(model, &change, 1, model_out, error);
}
