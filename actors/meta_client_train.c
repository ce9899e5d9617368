/* meta_client_train.c - a train rank: publishing, granting, and when its buffers are its own again.
 *
 *   TRAIN --publish--> HOLD --RELEASED, or ABORTED for good--> TRAIN (DONE when it is idle)
 *
 * Nothing else ends a hold but a new generation, which the server begins only between rounds. In
 * snapshot mode the rank is never in HOLD: versions wait in two slots, and a slot is re-used when
 * its version is over, or when the policy wants only the latest and nobody reads it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/meta_client_internal.h"

static struct wf_actor *sender(struct wf_meta_client *client)
{
    return wf_sender_actor(client->rank->sender);
}

static bool is_snapshot(const struct wf_meta_client *client)
{
    return client->rank->options.publish == WF_PUBLISH_SNAPSHOT;
}

static void send_publish(struct wf_meta_client *client, struct wf_version version,
                         const char *label)
{
    struct wf_frame_publish publish = {
        .version = version, .layout = wf_rank_source(client->rank)->hash, .models = 1};
    snprintf(publish.label, sizeof publish.label, "%s", label);
    wf_client_send(client, WF_FRAME_publish, &publish);
}

static void send_idle(struct wf_meta_client *client)
{
    const struct wf_frame_idle idle = {.version = client->published};
    wf_client_send(client, WF_FRAME_idle, &idle);
}

void wf_client_train_joined(struct wf_meta_client *client)
{
    if (client->state == WF_TRAINER_HOLD) {
        send_publish(client, client->published, client->published_label);
    }
    for (int i = 0; i < WF_SLOTS; i++) { /* oldest first */
        const struct wf_client_slot *a = &client->slots[i], *b = &client->slots[1 - i];
        bool older = b->state != WF_SLOT_READY || wf_version_compare(a->version, b->version) < 0;
        if (a->state == WF_SLOT_READY && older) {
            send_publish(client, a->version, a->label);
        }
    }
    for (int i = 0; i < WF_SLOTS; i++) {
        const struct wf_client_slot *a = &client->slots[i], *b = &client->slots[1 - i];
        if (a->state == WF_SLOT_READY && b->state == WF_SLOT_READY &&
            wf_version_compare(a->version, b->version) > 0) {
            send_publish(client, a->version, a->label);
        }
    }
    if (client->idle) {
        send_idle(client);
    }
}

/* --- the host's calls
 * ------------------------------------------------------------------------------ */
/* A slot to copy into, or -1: a free one, else one whose version is over, else, if the policy drops
 * versions, the oldest that nobody reads. */
static int find_slot(const struct wf_meta_client *client)
{
    int best = -1;
    for (int i = 0; i < WF_SLOTS; i++) {
        const struct wf_client_slot *slot = &client->slots[i];
        bool read = client->granted && client->granted_slot == (uint32_t)i;
        if (slot->state == WF_SLOT_COPYING) {
            return -1; /* one copy at a time */
        }
        if (read || (slot->state == WF_SLOT_READY && !client->drop_to_latest)) {
            continue;
        }
        const struct wf_client_slot *other = best >= 0 ? &client->slots[best] : NULL;
        if (other == NULL || slot->state < other->state ||
            (slot->state == other->state &&
             wf_version_compare(slot->version, other->version) < 0)) {
            best = i;
        }
    }
    return best;
}

static enum wf_status publish_snapshot(struct wf_meta_client *client, struct wf_version version,
                                       const char *label, uint32_t *slot_out,
                                       struct wf_error *error)
{
    int at = find_slot(client);
    if (at < 0) {
        return wf_error_set(error, WF_AGAIN, "both snapshot slots are in use: publish later");
    }
    struct wf_client_slot *slot = &client->slots[at];
    *slot = (struct wf_client_slot){.state = WF_SLOT_COPYING, .version = version};
    client->writes[at]++;
    snprintf(slot->label, sizeof slot->label, "%s", label);
    const struct wf_round_key key = {.term = client->term, .models = 1, .version = version};
    wf_client_local(client, sender(client), WF_LOCAL_SNAPSHOT, &key, (uint64_t)at, 0);
    *slot_out = (uint32_t)at;
    return WF_OK;
}

enum wf_status wf_client_publish(struct wf_meta_client *client, uint64_t step, const char *label,
                                 uint64_t within_ns, struct wf_error *error)
{
    const char *text = label != NULL ? label : "";
    if (client->closing) {
        return wf_error_set(error, WF_CLOSED, "the rank has ended: %.900s", client->why.text);
    }
    if (client->rank->options.side != WF_TRAIN || step == 0 || strlen(text) >= WF_LABEL_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "only train ranks publish, steps from 1, labels of at most %d bytes",
                            WF_LABEL_MAX - 1);
    }
    if (client->tell_count > 0) { /* it may be a new generation */
        return wf_error_set(error, WF_AGAIN,
                            "the host is about to be told of its buffers: "
                            "publish from that hook on");
    }
    if (!client->has_generation) {
        return wf_error_set(error, WF_AGAIN, "the job has no generation yet: wait for `ready`");
    }
    struct wf_version version = {client->generation_term, client->generation_counter, step};
    char held[WF_VERSION_TEXT];
    wf_version_format(client->published, held);
    if (client->state == WF_TRAINER_HOLD) {
        return wf_error_set(error, WF_AGAIN,
                            "version %s still holds the buffers: publish "
                            "when it was released or aborted",
                            held);
    }
    if (wf_version_compare(version, client->published) <= 0) {
        return wf_error_set(error, WF_REFUSED,
                            "step %" PRIu64 " is not newer than version %s: "
                            "steps have to grow",
                            step, held);
    }
    uint32_t slot = 0;
    if (is_snapshot(client)) {
        enum wf_status status = publish_snapshot(client, version, text, &slot, error);
        if (status != WF_OK) {
            return status;
        }
    }
    client->published = version;
    client->idle = false;
    wf_client_doubt_watch(client, slot, version, within_ns);
    snprintf(client->published_label, sizeof client->published_label, "%s", text);
    if (!is_snapshot(client)) {
        client->state = WF_TRAINER_HOLD;
        client->live = version;
        send_publish(client, version, text);
    }
    return WF_OK;
}

void wf_client_idle(struct wf_meta_client *client)
{
    for (uint32_t i = 0; i < client->tell_count; i++) {
        if (client->tells[i].kind == WF_TELL_READY) {
            return; /* a new generation takes it back */
        }
    }
    client->idle = true;
    if (client->state == WF_TRAINER_TRAIN) {
        client->state = WF_TRAINER_DONE;
    }
    if (client->has_generation) {
        send_idle(client);
    }
}

/* --- grants
 * ----------------------------------------------------------------------------------------- */
/* Where `version` can be read, or -1. */
static int find_source(const struct wf_meta_client *client, struct wf_version version)
{
    if (!is_snapshot(client)) {
        bool stable = client->state == WF_TRAINER_HOLD || client->state == WF_TRAINER_DONE;
        return stable && wf_version_compare(client->live, version) == 0 ? 0 : -1;
    }
    for (int i = 0; i < WF_SLOTS; i++) {
        const struct wf_client_slot *slot = &client->slots[i];
        bool there = slot->state == WF_SLOT_READY || slot->state == WF_SLOT_KEPT;
        if (there && wf_version_compare(slot->version, version) == 0) {
            return i;
        }
    }
    return -1;
}

static void vote_no(struct wf_meta_client *client, const struct wf_round_key *round)
{
    const struct wf_rank_options *o = &client->rank->options;
    struct wf_frame_vote vote = {.round = *round, .culprit = {.side = WF_TRAIN, .rank = o->rank}};
    char version[WF_VERSION_TEXT];
    wf_version_format(round->version, version);
    snprintf(vote.culprit.host, sizeof vote.culprit.host, "%s", o->host_name);
    snprintf(vote.culprit.reason, sizeof vote.culprit.reason, "no longer holds version %s",
             version);
    wf_client_send(client, WF_FRAME_vote, &vote);
}

static void on_open(struct wf_meta_client *client, const struct wf_frame_open *open)
{
    int order = wf_round_key_compare(&open->round, &client->round);
    if (order < 0 || !wf_client_has_lease(client) || open->round.term != client->term ||
        (order == 0 && client->granted)) {
        return;
    }
    int source = find_source(client, open->round.version);
    if (source < 0) {
        vote_no(client, &open->round);
        return;
    }
    wf_client_revoke(client);
    wf_client_remember_round(client, open);
    client->granted = true;
    client->granted_slot = (uint32_t)source;
    wf_client_local(client, sender(client), WF_LOCAL_GRANT, &client->round, (uint64_t)source, 0);
}

/* --- the end of a hold
 * -------------------------------------------------------------------------------- */
/* The versions up to this one are over. */
static bool end_slots(struct wf_meta_client *client, struct wf_version version)
{
    bool waited = false;
    for (int i = 0; i < WF_SLOTS; i++) {
        struct wf_client_slot *slot = &client->slots[i];
        int order = wf_version_compare(slot->version, version);
        if (slot->state == WF_SLOT_READY && order <= 0) {
            slot->state = WF_SLOT_KEPT;
            waited = waited || order == 0;
        }
    }
    return waited;
}

/* True if that version was held (hold), or is over now (snapshot). */
static bool end_hold(struct wf_meta_client *client, struct wf_version version)
{
    if (is_snapshot(client)) {
        return end_slots(client, version);
    }
    if (client->state != WF_TRAINER_HOLD || wf_version_compare(client->published, version) != 0) {
        return false;
    }
    client->state = client->idle ? WF_TRAINER_DONE : WF_TRAINER_TRAIN;
    client->writes[0] += !client->idle;
    return true;
}

static void on_released(struct wf_meta_client *client, const struct wf_frame_released *released)
{
    if (wf_version_compare(released->version, client->committed) > 0) {
        client->committed = released->version;
    }
    if (released->round.attempt > 0 &&
        wf_round_key_compare(&released->round, &client->round) >= 0) {
        wf_client_revoke(client);
        client->round = released->round;
    }
    bool ended = end_hold(client, released->round.version);
    wf_client_answer(client, WF_FRAME_told, &released->round);
    if (ended) {
        const struct wf_client_tell tell = {.kind = WF_TELL_RELEASED,
                                            .version = released->round.version,
                                            .engines = released->engines_count};
        wf_client_tell(client, &tell);
    }
}

static void on_round_aborted(struct wf_meta_client *client,
                             const struct wf_frame_round_aborted *aborted)
{
    bool repeat = wf_round_key_equal(&aborted->round, &client->aborted);
    int order = wf_round_key_compare(&aborted->round, &client->round);
    wf_client_answer(client, WF_FRAME_told, &aborted->round);
    if (repeat || order < 0) {
        return;
    }
    wf_client_revoke(client);
    client->round = aborted->round;
    client->aborted = aborted->round;
    bool held = find_source(client, aborted->round.version) >= 0;
    if (!aborted->again) {
        end_hold(client, aborted->round.version);
    }
    if (held) {
        const struct wf_client_tell tell = {.kind = WF_TELL_ABORTED,
                                            .version = aborted->round.version,
                                            .attempt = aborted->round.attempt,
                                            .again = aborted->again != 0,
                                            .culprit = aborted->culprit};
        wf_client_tell(client, &tell);
    }
}

static void on_generation(struct wf_meta_client *client,
                          const struct wf_frame_generation *generation)
{
    struct wf_round_key told = {.version = {generation->generation_term, generation->counter, 0}};
    struct wf_version own = {client->generation_term, client->generation_counter, 0};
    if (generation->term != client->term) {
        return;
    }
    wf_client_answer(client, WF_FRAME_told, &told);
    if (client->has_generation && wf_version_compare(told.version, own) <= 0) {
        return;
    }
    /* The first of a term is no beginning for a rank that was there before: a server whose journal
     * was lost counts from 1 again. */
    bool restarted = client->has_generation || generation->counter > 1;
    client->has_generation = true;
    client->generation_term = generation->generation_term;
    client->generation_counter = generation->counter;
    client->published = told.version;
    client->state = WF_TRAINER_TRAIN;
    client->idle = false;
    client->writes[0]++;
    wf_client_revoke(client);
    for (int i = 0; i < WF_SLOTS; i++) {
        if (client->slots[i].state != WF_SLOT_COPYING) {
            client->slots[i].state = WF_SLOT_FREE;
        }
    }
    const struct wf_client_tell tell = {
        .kind = WF_TELL_READY, .restarted = restarted, .step = generation->step};
    wf_client_tell(client, &tell);
}

bool wf_client_train_frame(struct wf_meta_client *client, struct wf_frame *frame)
{
    switch (frame->type) {
    case WF_FRAME_open:
        on_open(client, &frame->open);
        return true;
    case WF_FRAME_released:
        on_released(client, &frame->released);
        return true;
    case WF_FRAME_round_aborted:
        on_round_aborted(client, &frame->round_aborted);
        return true;
    case WF_FRAME_generation:
        on_generation(client, &frame->generation);
        return true;
    case WF_FRAME_abort:
    case WF_FRAME_decide:
        return true;
    default:
        return false;
    }
}

/* --- the Sender's answers
 * ------------------------------------------------------------------------------ */
void wf_client_train_local(struct wf_meta_client *client, struct wf_local_msg *local)
{
    const struct wf_rank_options *o = &client->rank->options;
    if (local->msg.kind == WF_LOCAL_REVOKED) {
        wf_client_revoked(client);
        return;
    }
    WF_ASSERT(local->msg.kind == WF_LOCAL_SNAPSHOT_DONE && local->slot < WF_SLOTS);
    struct wf_client_slot *slot = &client->slots[local->slot];
    WF_ASSERT(slot->state == WF_SLOT_COPYING);
    bool ours = slot->version.term == client->generation_term &&
                slot->version.counter == client->generation_counter;
    bool good = local->status == WF_OK && ours;
    slot->state = good ? WF_SLOT_READY : WF_SLOT_FREE;
    if (good) {
        client->live = slot->version;
        send_publish(client, slot->version, slot->label);
    }
    if (client->closing) {
        return;
    }
    if (local->status == WF_OK && !ours) {
        wf_error_set(&local->error, WF_STALE,
                     "a new generation began during the copy: publish when `ready` asks for it");
    }
    if (o->hooks.copied != NULL) {
        o->hooks.copied(o->host, client->rank, slot->version, good ? NULL : &local->error);
    }
}
