/* meta_client_infer.c - an infer rank in a round: read, vote, pause, flip, resume, or drop it.
 *
 *   NONE --OPEN--> READ --staged and verified--> DOUBT --DECIDE--> TOLD --FLIP--> FLIPPED
 *                   |  failed: votes no            |
 *                   `------------ ABORT -----------`--> NONE, answered when nothing can land
 *
 * DECIDE pauses the host; FLIP is answered when the host has drained and the live memory is the new
 * version; RESUME lets the host serve again, and only the version that is live.
 *
 * In place, OPEN pauses the host: NONE --OPEN--> QUIET --PERMIT--> READ. What is read lands in the
 * live tensors, so the rank is dirty (`live` is none) from READ on, until FLIP, which changes only
 * that label. A round that ends before its first byte was written leaves the rank as it was.
 */
#include <stdio.h>
#include <string.h>

#include "actors/meta_client_internal.h"

static struct wf_actor *receiver(struct wf_meta_client *client)
{
    return wf_receiver_actor(client->rank->receiver);
}

static void stop_receiver(struct wf_meta_client *client)
{
    client->busy = WF_RECEIVER_STOPPING;
    wf_client_local(client, receiver(client), WF_LOCAL_STOP, &client->round, 0, 0);
}

static bool is_round(const struct wf_meta_client *client, const struct wf_round_key *key)
{
    return wf_round_key_equal(key, &client->round);
}

static void send_vote(struct wf_meta_client *client)
{
    client->vote.transports = client->transports;
    wf_client_send(client, WF_FRAME_vote, &client->vote);
}

void wf_client_vote_no(struct wf_meta_client *client, const struct wf_round_key *round,
                       const char *reason)
{
    const struct wf_rank_options *o = &client->rank->options;
    struct wf_frame_vote vote = {
        .round = *round, .culprit = {.side = o->side, .rank = o->rank, .engine = o->engine}};
    snprintf(vote.culprit.host, sizeof vote.culprit.host, "%s", o->host_name);
    snprintf(vote.culprit.reason, sizeof vote.culprit.reason, "%.*s", WF_REASON_MAX - 1, reason);
    if (is_round(client, round)) {
        client->vote = vote;
        client->has_voted = true;
    }
    wf_client_send(client, WF_FRAME_vote, &vote);
}

/* --- pausing the host
 * ----------------------------------------------------------------------------- */
static void answer_quiesced(struct wf_meta_client *client)
{
    bool asked = client->state == WF_RANK_TOLD || client->state == WF_RANK_QUIET;
    if (asked && client->host == WF_HOST_PAUSED) {
        wf_client_answer(client, WF_FRAME_quiesced, &client->round);
    }
}

static void pause_host(struct wf_meta_client *client)
{
    const struct wf_rank_options *o = &client->rank->options;
    if (client->host != WF_HOST_SERVING) {
        return;
    }
    client->quiesced_ns = wf_client_now(client);
    if (o->skip_quiesce) {
        client->host = WF_HOST_PAUSED;
        return;
    }
    client->host = WF_HOST_QUIESCING;
    o->hooks.quiesce(o->host, client->rank);
}

void wf_client_quiesced(struct wf_meta_client *client)
{
    if (client->host == WF_HOST_QUIESCING) {
        client->host = WF_HOST_PAUSED;
        answer_quiesced(client);
        wf_client_continue(client);
    }
}

/* --- frames
 * --------------------------------------------------------------------------------------- */
static bool is_in_place(const struct wf_meta_client *client)
{
    return client->rank->options.mode == WF_MODE_IN_PLACE;
}

/* The state is READ. A fill from a replica waits for its plan; an ABORT may come meanwhile. */
static void read_when_planned(struct wf_meta_client *client)
{
    const struct wf_client_fill *fill = &client->fill;
    bool from_replica = wf_round_key_equal(&fill->round, &client->round);
    if (from_replica && !fill->planned) {
        return;
    }
    if (from_replica && fill->agreed == NULL) {
        client->state = WF_RANK_NONE;
        wf_client_vote_no(client, &client->round, fill->error.text);
        return;
    }
    client->busy = WF_RECEIVER_READING;
    if (is_in_place(client)) {
        client->writing = true;
        client->writes[0]++;
        client->untouched = client->live;
        client->live = (struct wf_version){0};
    }
    struct wf_local_msg *local = wf_local_msg_new(WF_LOCAL_READ, &client->actor);
    local->round = client->round;
    local->deadline_ns = client->read_until_ns;
    local->agreed = from_replica ? wf_agreed_hold(fill->agreed) : NULL;
    wf_send(receiver(client), &local->msg);
}

void wf_client_infer_planned(struct wf_meta_client *client)
{
    if (client->state == WF_RANK_READ && client->busy == WF_RECEIVER_FREE && !client->closing &&
        is_round(client, &client->fill.round)) {
        read_when_planned(client);
    }
}

static void start_read(struct wf_meta_client *client, uint64_t deadline_ns)
{
    client->state = WF_RANK_READ;
    client->read_until_ns = wf_client_now(client) + deadline_ns;
    read_when_planned(client);
}

/* The Receiver has stopped: live memory is what it was if nothing was written. */
static void settle_live(struct wf_meta_client *client, bool wrote)
{
    if (client->writing && !wrote) {
        client->live = client->untouched;
    }
    client->writing = false;
}

static void on_open(struct wf_meta_client *client, const struct wf_frame_open *open)
{
    if (is_round(client, &open->round)) {
        if (client->has_voted && client->state != WF_RANK_READ) {
            send_vote(client); /* it was not heard */
        }
        answer_quiesced(client);
        return;
    }
    bool is_free = (client->state == WF_RANK_NONE || client->state == WF_RANK_FLIPPED) &&
                   client->busy == WF_RECEIVER_FREE && !client->welcome_waits;
    if (!is_free || wf_round_key_compare(&open->round, &client->round) <= 0) {
        return;
    }
    if (wf_client_place_is_stale(client)) {
        wf_client_place_refuse(client, &open->round);
        return;
    }
    if (wf_client_fill_is_source(client, open)) {
        wf_client_fill_serve(client, open);
        return;
    }
    wf_client_fill_drop(client);
    wf_client_remember_round(client, open);
    client->has_voted = false;
    if (open->source > 0) {
        wf_client_fill_want(client, open);
    }
    if (!is_in_place(client)) {
        start_read(client, open->deadline_ns);
        return;
    }
    client->state = WF_RANK_QUIET;
    pause_host(client);
    answer_quiesced(client);
}

static void on_permit(struct wf_meta_client *client, const struct wf_frame_permit *permit)
{
    if (is_round(client, &permit->round) && client->state == WF_RANK_QUIET &&
        client->host == WF_HOST_PAUSED && client->busy == WF_RECEIVER_FREE &&
        !client->welcome_waits) {
        start_read(client, permit->deadline_ns);
    }
}

static void on_decide(struct wf_meta_client *client, const struct wf_frame_decide *decide)
{
    if (!is_round(client, &decide->round)) {
        return;
    }
    if (client->state == WF_RANK_DOUBT) {
        client->state = WF_RANK_TOLD;
        if (wf_version_compare(client->round.version, client->committed) > 0) {
            client->committed = client->round.version;
        }
        pause_host(client);
    }
    answer_quiesced(client);
}

static void answer_flipped(struct wf_meta_client *client, uint64_t flip_ns)
{
    const struct wf_frame_flipped flipped = {
        .round = client->round, .live = client->live, .flip_ns = flip_ns};
    wf_client_send(client, WF_FRAME_flipped, &flipped);
}

static void start_flip(struct wf_meta_client *client)
{
    client->busy = WF_RECEIVER_FLIPPING;
    client->writes[0]++;
    client->flip_started_ns = wf_client_now(client);
    wf_client_local(client, receiver(client), WF_LOCAL_FLIP, &client->round, 0, 0);
}

static void on_flip(struct wf_meta_client *client, const struct wf_frame_flip *flip)
{
    if (!is_round(client, &flip->round) || client->busy != WF_RECEIVER_FREE ||
        client->welcome_waits) {
        return;
    }
    if (client->state == WF_RANK_FLIPPED) {
        answer_flipped(client, 0);
    } else if (client->state == WF_RANK_TOLD && client->host == WF_HOST_PAUSED) {
        start_flip(client);
    }
}

static void on_resume(struct wf_meta_client *client, const struct wf_frame_resume *resume)
{
    const struct wf_rank_options *o = &client->rank->options;
    bool quiet = (client->state == WF_RANK_NONE || client->state == WF_RANK_FLIPPED) &&
                 client->busy == WF_RECEIVER_FREE && !client->welcome_waits;
    if (!quiet || wf_version_is_none(resume->version) ||
        wf_version_compare(resume->version, client->live) != 0 ||
        wf_round_key_compare(&resume->round, &client->round) < 0) {
        return;
    }
    if (client->host == WF_HOST_QUIESCING) {
        return; /* drains for something newer */
    }
    if (client->host == WF_HOST_PAUSED) {
        client->host = WF_HOST_SERVING;
        client->pause_ns =
            client->quiesced_ns > 0 ? wf_client_now(client) - client->quiesced_ns : 0;
        o->hooks.resume(o->host, client->rank, client->live);
    }
    const struct wf_frame_resumed resumed = {.round = resume->round, .pause_ns = client->pause_ns};
    wf_client_send(client, WF_FRAME_resumed, &resumed);
}

static void answer_aborted(struct wf_meta_client *client)
{
    const struct wf_frame_aborted aborted = {.round = client->round, .live = client->live};
    wf_client_send(client, WF_FRAME_aborted, &aborted);
}

static void abort_done(struct wf_meta_client *client)
{
    const struct wf_rank_options *o = &client->rank->options;
    client->aborting = false;
    client->state = WF_RANK_NONE;
    answer_aborted(client);
    if (o->hooks.aborted != NULL) {
        o->hooks.aborted(o->host, client->rank, client->round.version, client->round.attempt, false,
                         &client->abort_culprit);
    }
}

static void on_abort(struct wf_meta_client *client, const struct wf_frame_abort *abort)
{
    int order = wf_round_key_compare(&abort->round, &client->round);
    bool busy = client->busy == WF_RECEIVER_FLIPPING || client->aborting || client->welcome_waits;
    bool decided = client->state == WF_RANK_TOLD ||
                   (order == 0 && client->state == WF_RANK_FLIPPED) ||
                   (order > 0 && client->state == WF_RANK_DOUBT);
    if (order < 0 || busy || decided) {
        return;
    }
    if (order == 0 && client->state == WF_RANK_NONE && client->busy == WF_RECEIVER_FREE &&
        is_round(client, &client->aborted)) {
        answer_aborted(client); /* it was not heard */
        return;
    }
    bool staged = client->state == WF_RANK_READ || client->state == WF_RANK_DOUBT;
    client->abort_culprit = abort->culprit;
    client->aborted = abort->round;
    client->aborting = true;
    if (order > 0) { /* its OPEN is late or lost: it will not be read any more */
        client->round = abort->round;
        client->has_voted = false;
    }
    if (client->busy == WF_RECEIVER_FREE && !staged) {
        abort_done(client);
    } else if (client->busy != WF_RECEIVER_STOPPING) {
        stop_receiver(client);
    }
}

bool wf_client_infer_frame(struct wf_meta_client *client, struct wf_frame *frame)
{
    switch (frame->type) {
    case WF_FRAME_open:
    case WF_FRAME_permit:
    case WF_FRAME_decide:
    case WF_FRAME_flip:
    case WF_FRAME_resume:
    case WF_FRAME_abort:
        break;
    default:
        return false;
    }
    if (!wf_client_has_lease(client)) {
        return true; /* lapsed: serves on, acts on nothing; what matters is repeated */
    }
    /* All of them begin with the round's key. */
    if (frame->open.round.term != client->term) {
        return true;
    }
    switch (frame->type) {
    case WF_FRAME_open:
        on_open(client, &frame->open);
        break;
    case WF_FRAME_permit:
        on_permit(client, &frame->permit);
        break;
    case WF_FRAME_decide:
        on_decide(client, &frame->decide);
        break;
    case WF_FRAME_flip:
        on_flip(client, &frame->flip);
        break;
    case WF_FRAME_resume:
        on_resume(client, &frame->resume);
        break;
    default:
        on_abort(client, &frame->abort);
        break;
    }
    return true;
}

/* --- answers of the Receiver
 * ------------------------------------------------------------------------ */
static void on_read_done(struct wf_meta_client *client, const struct wf_local_msg *local)
{
    const struct wf_rank_options *o = &client->rank->options;
    if (client->busy != WF_RECEIVER_READING || !is_round(client, &local->round)) {
        return; /* STOP is on its way: STOPPED follows */
    }
    client->busy = WF_RECEIVER_FREE;
    bool yes = local->status == WF_OK;
    client->state = yes ? WF_RANK_DOUBT : WF_RANK_NONE;
    if (!yes) {
        settle_live(client, local->wrote);
    }
    client->vote = (struct wf_frame_vote){.round = client->round,
                                          .yes = yes,
                                          .bytes = local->bytes,
                                          .grant_ns = local->grant_ns,
                                          .transfer_ns = local->transfer_ns,
                                          .verify_ns = local->verify_ns,
                                          .digest_mismatches = local->digest_mismatches,
                                          .transports_count = local->transport_count};
    memcpy(client->transports, local->transports, sizeof client->transports);
    if (!yes) {
        struct wf_culprit *why = &client->vote.culprit;
        *why = local->culprit;
        if (wf_culprit_is_none(why)) {
            *why = (struct wf_culprit){.side = WF_INFER, .rank = o->rank, .engine = o->engine};
            snprintf(why->host, sizeof why->host, "%s", o->host_name);
            snprintf(why->reason, sizeof why->reason, "could not read: %.300s",
                     local->error.text[0] != '\0' ? local->error.text
                                                  : wf_status_text(local->status));
        }
    }
    client->has_voted = true;
    send_vote(client);
    wf_client_continue(client);
}

static void on_stopped(struct wf_meta_client *client, const struct wf_local_msg *local)
{
    if (client->busy != WF_RECEIVER_STOPPING) {
        return;
    }
    client->busy = WF_RECEIVER_FREE;
    settle_live(client, local->wrote);
    if (client->aborting) {
        abort_done(client);
    } else if (client->state != WF_RANK_FLIPPED) {
        client->state = WF_RANK_NONE;
    }
    wf_client_continue(client);
}

static void on_flipped(struct wf_meta_client *client, const struct wf_local_msg *local)
{
    if (client->busy != WF_RECEIVER_FLIPPING) {
        return;
    }
    client->busy = WF_RECEIVER_FREE;
    client->state = WF_RANK_FLIPPED;
    client->live = local->status == WF_OK ? client->round.version : (struct wf_version){0};
    client->moved = false;
    client->writing = false;
    uint64_t flip_ns = wf_client_now(client) - client->flip_started_ns;
    if (client->welcome_waits) {
        wf_client_continue(client); /* JOINED reports it */
    } else {
        answer_flipped(client, flip_ns);
        wf_client_continue(client);
    }
}

void wf_client_infer_local(struct wf_meta_client *client, struct wf_local_msg *local)
{
    switch (local->msg.kind) {
    case WF_LOCAL_READ_DONE:
        on_read_done(client, local);
        break;
    case WF_LOCAL_STOPPED:
        on_stopped(client, local);
        break;
    case WF_LOCAL_FLIPPED:
        on_flipped(client, local);
        break;
    default:
        WF_ASSERT(!"an answer of the Receiver");
    }
}

/* --- being welcomed
 * ----------------------------------------------------------------------------------- */
/* True if the rank holds, staged, what was committed while it was away. */
static bool holds_committed(const struct wf_meta_client *client)
{
    return (client->state == WF_RANK_DOUBT || client->state == WF_RANK_TOLD) &&
           wf_version_compare(client->round.version, client->welcome.committed) == 0 &&
           wf_version_compare(client->live, client->welcome.committed) < 0;
}

bool wf_client_infer_clean(struct wf_meta_client *client)
{
    wf_client_fill_drop(client);
    if (client->busy == WF_RECEIVER_READING) {
        stop_receiver(client);
    }
    if (client->busy != WF_RECEIVER_FREE) {
        return false;
    }
    bool changes =
        holds_committed(client) || wf_version_compare(client->live, client->welcome.committed) != 0;
    if (changes && client->host != WF_HOST_PAUSED) {
        pause_host(client); /* it is not what its engine should serve */
        if (client->host != WF_HOST_PAUSED) {
            return false;
        }
    }
    if (holds_committed(client)) {
        start_flip(client);
        return false;
    }
    if (client->state == WF_RANK_DOUBT || client->state == WF_RANK_TOLD) {
        stop_receiver(client);
        return false;
    }
    client->state = WF_RANK_NONE;
    if (wf_round_key_compare(&client->welcome.round, &client->round) > 0) {
        client->round = client->welcome.round;
        client->round_member_count = 0;
        client->has_voted = false;
    }
    return true;
}

bool wf_client_infer_stop(struct wf_meta_client *client)
{
    if (client->busy == WF_RECEIVER_READING) {
        stop_receiver(client);
    }
    return client->busy == WF_RECEIVER_FREE;
}
