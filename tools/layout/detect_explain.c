/* detect_explain.c - where nothing fits: the first tensor that speaks against what comes nearest.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/layout/detect_private.h"

/* A tensor of the guess whose kind the dump does not have. */
static bool find_missing(const struct wf_guess *guess, const struct wf_seen *dump,
                         char out[WF_EXPLAIN_MAX])
{
    struct wf_recipe recipe;
    struct wf_layout *layout = NULL;
    const struct wf_model *model = wf_guess_model(guess, &recipe, NULL);
    bool derived = model != NULL && wf_layout_derive(model, &recipe, 0, &layout, NULL) == WF_OK;
    bool found = false;
    for (uint32_t t = 0; derived && t < layout->tensor_count && !found; t++) {
        const struct wf_tensor *tensor = &layout->tensors[t];
        uint64_t chunk, number,
            pattern = wf_seen_pattern(tensor->name, tensor->dtype, &chunk, &number);
        const struct wf_seen_slot *slot = wf_seen_find(dump, pattern);
        if (slot == NULL && tensor->kind == WF_TENSOR_WEIGHTS) {
            found = true;
            snprintf(
                out, WF_EXPLAIN_MAX,
                "expected %s, or others of its kind, found none; likely cause: the dump is not "
                "whole, or the model's class is another one",
                tensor->name);
        } else if (slot != NULL && slot->ndim != tensor->ndim) {
            found = true;
            snprintf(out, WF_EXPLAIN_MAX,
                     "%s: expected %" PRIu32 " dimensions, found %" PRIu32
                     "; likely cause: a stage or a backend that rewrites it",
                     slot->name, tensor->ndim, slot->ndim);
        }
    }
    wf_layout_free(layout);
    return found;
}

void wf_explain_names(const struct wf_guess *guess, const struct wf_seen *dump,
                      char out[WF_EXPLAIN_MAX])
{
    struct wf_seen own;
    const char *name = NULL;
    snprintf(out, WF_EXPLAIN_MAX, "its names differ");
    if (!wf_guess_seen(guess, &wf_guess_one_rank, &own)) {
        return;
    }
    for (uint32_t i = 0; i < dump->count && name == NULL; i++) {
        bool known = wf_seen_find(&own, dump->slots[i].pattern) != NULL;
        name = known ? NULL : dump->slots[i].name;
    }
    wf_seen_fini(&own);
    if (name != NULL) {
        snprintf(out, WF_EXPLAIN_MAX,
                 "%s is no tensor of it; likely cause: a model's class or a version of the "
                 "framework that this build does not know",
                 name);
        return;
    }
    (void)find_missing(guess, dump, out);
}

static enum wf_status match(const struct wf_dump_rank *dump, const struct wf_layout *layout,
                            struct wf_error *error)
{
    struct wf_live_tensor *live = calloc((size_t)dump->count + 1, sizeof *live);
    uint32_t *order = calloc((size_t)layout->tensor_count + 1, sizeof *order);
    enum wf_status status = live != NULL && order != NULL ? WF_OK : WF_NO_MEMORY;
    for (uint32_t i = 0; i < dump->count && status == WF_OK; i++) {
        const struct wf_dump_tensor *tensor = &dump->tensors[i];
        uint32_t known = wf_layout_find(layout, tensor->name, strlen(tensor->name));
        live[i] = (struct wf_live_tensor){tensor->name, tensor->dtype, tensor->ndim, {0}, {0}};
        memcpy(live[i].shape, tensor->shape, sizeof live[i].shape);
        /* How it lies in memory is not what is asked here. */
        memcpy(live[i].strides,
               known < layout->tensor_count ? layout->tensors[known].strides : tensor->strides,
               sizeof live[i].strides);
    }
    if (status == WF_OK) {
        status = wf_layout_match(layout, live, dump->count, NULL, 0, order, error);
    }
    free(live);
    free(order);
    return status;
}

void wf_explain_layout(const struct wf_guess *guess, const struct wf_dump_rank *dumps,
                       uint32_t count, char out[WF_EXPLAIN_MAX])
{
    struct wf_recipe recipe;
    struct wf_error error = {0};
    const struct wf_model *model = wf_guess_model(guess, &recipe, &error);
    enum wf_status status = model != NULL ? WF_OK : WF_INVALID;
    snprintf(out, WF_EXPLAIN_MAX, "its layout differs");
    for (uint32_t rank = 0; rank < count && status == WF_OK; rank++) {
        struct wf_layout *layout = NULL;
        status =
            rank < wf_recipe_world(&recipe)
                ? wf_layout_derive(model, &recipe, rank, &layout, &error)
                : wf_error_set(&error, WF_MISMATCH, "expected %" PRIu32 " ranks, found %" PRIu32,
                               wf_recipe_world(&recipe), count);
        if (status == WF_OK) {
            status = match(&dumps[rank], layout, &error);
            if (status != WF_OK) {
                wf_error_prefix(&error, "rank %" PRIu32, rank);
            }
        }
        wf_layout_free(layout);
    }
    if (status != WF_OK) {
        snprintf(out, WF_EXPLAIN_MAX, "%s", error.text);
    }
}
