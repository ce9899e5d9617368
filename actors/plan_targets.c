/* plan_targets.c - the layouts that targets are planned with: their own, and what they assemble. */
#include <stdlib.h>
#include <string.h>

#include "actors/planned.h"
#include "models/assemble.h"

/* Own layouts met so far and what they are planned as. */
struct targets {
    const struct wf_model *model;
    struct wf_agreed *agreed;
    struct wf_cuts *cuts;
    struct wf_layout **own, **planned;
    uint32_t count;
    struct wf_error *error;
};

static enum wf_status replace(struct targets *t, struct wf_layout **layout,
                              struct wf_assemble **assemble_out)
{
    for (uint32_t i = 0; i < t->count; i++) {
        if (t->own[i] == *layout) {
            *layout = t->planned[i];
            return WF_OK;
        }
    }
    struct wf_layout *planned = NULL;
    enum wf_status status =
        wf_assemble_derive(t->model, *layout, t->cuts, &planned, assemble_out, t->error);
    if (status == WF_OK) {
        t->own[t->count] = *layout;
        t->planned[t->count++] = planned != NULL ? planned : *layout;
        *layout = planned != NULL ? planned : *layout;
        t->agreed->owned[t->agreed->owned_count] = planned;
        t->agreed->owned_count += planned != NULL;
    }
    return status;
}

static enum wf_status replace_all(struct targets *t, uint32_t own)
{
    struct wf_agreed *agreed = t->agreed;
    uint32_t count = agreed->train_ranks + agreed->infer_ranks;
    enum wf_status status = WF_OK;
    if (own != UINT32_MAX) { /* first: what is made here goes with this very layout */
        status = replace(t, &agreed->layouts[agreed->train_ranks + own], &agreed->assemble);
    }
    for (uint32_t i = agreed->train_ranks; i < count && status == WF_OK; i++) {
        if (i != agreed->train_ranks + own || own == UINT32_MAX) {
            status = replace(t, &agreed->layouts[i], NULL);
        }
        if (status == WF_OK && agreed->bases != NULL && agreed->bases[i] != NULL) {
            status = replace(t, &agreed->bases[i], NULL);
        }
    }
    return status;
}

static bool make_room(struct targets *t)
{
    struct wf_agreed *agreed = t->agreed;
    size_t count = (size_t)agreed->train_ranks + agreed->infer_ranks;
    size_t more = 2 * (size_t)agreed->infer_ranks + 1;
    struct wf_layout **owned =
        reallocarray(agreed->owned, agreed->owned_count + more, sizeof(struct wf_layout *));
    agreed->owned = owned != NULL ? owned : agreed->owned;
    agreed->owns = calloc(count + 1, sizeof(struct wf_layout *));
    t->own = calloc(more, sizeof(struct wf_layout *));
    t->planned = calloc(more, sizeof(struct wf_layout *));
    if (owned == NULL || agreed->owns == NULL || t->own == NULL || t->planned == NULL) {
        return false;
    }
    memcpy(agreed->owns, agreed->layouts, count * sizeof(struct wf_layout *));
    return true;
}

enum wf_status wf_agreed_plan_targets(struct wf_agreed *agreed, const struct wf_rank *rank,
                                      struct wf_error *error)
{
    struct targets t = {.model = rank->options.model, .agreed = agreed, .error = error};
    enum wf_status status = wf_cuts_find(t.model, (const struct wf_layout *const *)agreed->layouts,
                                         agreed->train_ranks, &t.cuts, error);
    if (status == WF_OK && t.cuts != NULL) {
        agreed->cut_matrices = t.cuts->count;
        uint32_t own = wf_agreed_position(agreed, WF_INFER, rank->options.side, rank->options.rank);
        status = make_room(&t) ? replace_all(&t, own)
                               : wf_error_set(error, WF_NO_MEMORY, "no memory for %u layouts",
                                              agreed->infer_ranks);
    }
    free(t.own);
    free(t.planned);
    wf_cuts_free(t.cuts);
    return status;
}

struct wf_layout *const *wf_agreed_owns(const struct wf_agreed *agreed)
{
    return agreed->owns != NULL ? agreed->owns : agreed->layouts;
}
