/* meta_client_held.c - which version this rank's memory is now, for observers who look at it.
 *
 * Nothing waits for them: what they read counts if the answer is the same before and after, so each
 * time that memory may begin to change is counted before it can (`writes`). Infer: a flip, a read
 * in place, experts that are moved. Train: the end of a hold, or a copy into a slot.
 */
#include <stdio.h>

#include "actors/meta_client_internal.h"

static void held_by_infer(const struct wf_meta_client *client, struct wf_frame_held *out)
{
    const char *why = client->busy == WF_RECEIVER_FLIPPING ? "is flipping to another version"
                      : client->writing                    ? "is being written to, in place"
                      : client->moved ? "is moving its experts: its next version will stand by them"
                      : client->rank->options.packs
                          ? "packs its tensors: what they hold is not what their layout says; "
                            "look at an engine that does not"
                      : wf_version_is_none(client->live) ? "holds no version yet"
                                                         : "";
    snprintf(out->why, sizeof out->why, "%s", why);
    out->version = why[0] == '\0' ? client->live : (struct wf_version){0};
}

static void held_by_train(const struct wf_meta_client *client, struct wf_frame_held *out)
{
    if (client->state == WF_TRAINER_HOLD || client->state == WF_TRAINER_DONE) {
        out->version = client->live;
    }
    if (wf_version_is_none(out->version)) {
        snprintf(out->why, sizeof out->why,
                 "is training: its weights are a version only while it holds one");
    }
}

/* The newest copy. */
static void held_in_slots(const struct wf_meta_client *client, struct wf_frame_held *out)
{
    for (uint32_t i = 0; i < WF_SLOTS; i++) {
        const struct wf_client_slot *slot = &client->slots[i];
        bool there = slot->state == WF_SLOT_READY || slot->state == WF_SLOT_KEPT;
        if (there && wf_version_compare(slot->version, out->version) > 0) {
            out->version = slot->version;
            out->slot = i;
        }
    }
    if (wf_version_is_none(out->version)) {
        snprintf(out->why, sizeof out->why, "has no complete copy of a version");
    }
}

void wf_meta_client_held(const struct wf_meta_client *client, struct wf_frame_held *held_out)
{
    const struct wf_rank_options *o = &client->rank->options;
    *held_out = (struct wf_frame_held){.layout = wf_rank_source(client->rank)->hash};
    if (o->side == WF_INFER) {
        held_by_infer(client, held_out);
    } else if (o->publish == WF_PUBLISH_SNAPSHOT) {
        held_in_slots(client, held_out);
    } else {
        held_by_train(client, held_out);
    }
    held_out->writes = client->writes[held_out->slot];
}
