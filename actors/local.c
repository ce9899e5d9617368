/* local.c - life of the messages and of the agreed plan that a rank's actors share. */
#include "actors/local.h"

#include <stdlib.h>

static void release_local(struct wf_msg *msg)
{
    struct wf_local_msg *local = (struct wf_local_msg *)msg;
    wf_agreed_release(local->agreed);
    wf_frame_fini(&local->members);
    wf_tables_fini(&local->tables);
    free(local->replicas.sums);
    free(local);
}

struct wf_local_msg *wf_local_msg_new(enum wf_local_kind kind, struct wf_actor *from)
{
    struct wf_local_msg *local = calloc(1, sizeof *local);
    WF_ASSERT(local != NULL);
    local->msg.kind = kind;
    /* Never back to its sender: nobody takes it, and the parts of a rank are freed one after the
     * other, so that a message to a later part may be from one that is gone. */
    (void)from;
    local->msg.release = release_local;
    local->msg.lane = WF_LANE_CONTROL;
    return local;
}

const struct wf_layout *wf_rank_source(const struct wf_rank *rank)
{
    return rank->source != NULL ? rank->source : rank->layout;
}

struct wf_agreed *wf_agreed_new(void)
{
    struct wf_agreed *agreed = calloc(1, sizeof *agreed);
    WF_ASSERT(agreed != NULL);
    agreed->references = 1;
    return agreed;
}

struct wf_agreed *wf_agreed_hold(struct wf_agreed *agreed)
{
    if (agreed != NULL) {
        agreed->references++;
    }
    return agreed;
}

void wf_agreed_release(struct wf_agreed *agreed)
{
    if (agreed == NULL || --agreed->references > 0) {
        return;
    }
    wf_cast_memory_release(agreed->cast_memory);
    wf_plan_free(agreed->plan);
    wf_assemble_free(agreed->assemble);
    for (uint32_t i = 0; i < agreed->owned_count; i++) {
        wf_layout_free(agreed->owned[i]);
    }
    free(agreed->owned);
    free(agreed->layouts);
    free(agreed->bases);
    free(agreed->owns);
    wf_tables_fini(&agreed->tables);
    wf_model_free(agreed->model);
    wf_frame_fini(&agreed->members);
    free(agreed->peers);
    wf_agreed_release(agreed->base);
    free(agreed);
}
