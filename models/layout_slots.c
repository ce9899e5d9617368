/* layout_slots.c - which experts stand in the slots of one member of a stack on one rank. */
#include <inttypes.h>
#include <string.h>

#include "models/layout_rows.h"

/* Contiguous equal shares, where the engine has no rule of its own. */
static enum wf_status equal_experts(const struct wf_row_at *at, uint32_t slots_out[WF_SLOTS_MAX],
                                    uint32_t *count_out, struct wf_error *error)
{
    uint64_t experts = wf_model_size(at->at.model, "E");
    uint32_t size = at->rank->group[WF_GROUP_EP].size, rank = at->rank->group[WF_GROUP_EP].rank;
    size = size ? size : 1;
    if (experts > WF_EXPERTS_MAX || experts % size != 0) {
        return wf_error_set(error, WF_INVALID,
                            "%" PRIu64 " experts cannot be divided over ep=%" PRIu32, experts,
                            size);
    }
    *count_out = (uint32_t)(experts / size);
    for (uint32_t i = 0; i < *count_out; i++) {
        slots_out[i] = rank * *count_out + i;
    }
    return WF_OK;
}

/* Dense layers have none, and blocks of a vision tower neither. */
static bool has_experts(const struct wf_row_at *at, const struct wf_binding *binding)
{
    uint32_t params[WF_PARTS_MAX];
    for (uint32_t i = 0; i < binding->count; i++) {
        const struct wf_bound *bound = &binding->rows[i];
        if (bound->per_expert && bound->stack == at->at.stack &&
            wf_bound_params(at, bound, false, 0, params)) {
            return true;
        }
    }
    return false;
}

enum wf_status wf_slots_find(const struct wf_row_at *at, const struct wf_binding *binding,
                             uint32_t slots_out[WF_SLOTS_MAX], uint32_t *count_out,
                             struct wf_error *error)
{
    struct wf_recipe recipe = *at->recipe;
    *count_out = 0;
    if (!has_experts(at, binding)) {
        return WF_OK;
    }
    if (!recipe.engine->experts) {
        return equal_experts(at, slots_out, count_out, error);
    }
    if (strcmp(at->at.model->family->stacks[at->at.stack].name, "layer") != 0) {
        recipe.placement = NULL; /* its rows are those of the layers */
    }
    return recipe.engine->experts(at->at.model, &recipe, at->rank, at->at.index, slots_out,
                                  count_out, error);
}
