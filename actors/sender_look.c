/* sender_look.c - observers who look at this rank's memory (`weft compare --against-live`).
 *
 *   CHALLENGED --look--> LOOKING: places and regions were sent; each look is answered by HELD
 *
 * They read by a transport like a reader of a round, at any time, and nothing here waits for them:
 * no grant, no hold, no work of this rank but the answers. What they have read is one version if
 * HELD says the same before and after. One that dies leaves nothing behind but its connection; one
 * that hangs is dropped when it has not asked for SENDER_LOOK_NS.
 */
#include <stdio.h>
#include <string.h>

#include "actors/sender.h"

static enum wf_status check(const struct sender_peer *peer, const struct wf_frame_look *look,
                            struct wf_error *error)
{
    const struct wf_sender *sender = peer->sender;
    const struct wf_rank_options *options = &sender->rank->options;
    const char *side = wf_side_name(options->side);
    if (sender->rank->token.is_set && peer->handshake.prove.role != WF_ROLE_OBSERVER) {
        return wf_error_set(error, WF_REFUSED, "only an observer looks; a rank reads in rounds");
    }
    enum wf_status status = wf_protocol_check(look->proto_min, look->proto_max, error);
    if (status != WF_OK) {
        return status;
    }
    if (look->job[0] != '\0' && strcmp(look->job, options->job) != 0) {
        return wf_error_set(error, WF_REFUSED, "this is job \"%s\", not \"%s\"", options->job,
                            look->job);
    }
    if (look->side != (uint64_t)options->side || look->rank != options->rank) {
        return wf_error_set(error, WF_REFUSED, "this is %s rank %u, not %s rank %llu", side,
                            options->rank, wf_side_name(look->side),
                            (unsigned long long)look->rank);
    }
    if (look->incarnation != sender->rank->incarnation) {
        return wf_error_set(error, WF_STALE, "%s rank %u was restarted: ask the server again", side,
                            options->rank);
    }
    if (sender->looker_count >= SENDER_LOOKERS_MAX) {
        return wf_error_set(error, WF_AGAIN,
                            "%u observers look at %s rank %u, as many as it takes: one must end "
                            "first",
                            sender->looker_count, side, options->rank);
    }
    return WF_OK;
}

static void answer(struct sender_peer *peer)
{
    struct wf_frame_held held;
    wf_meta_client_held(peer->sender->rank->client, &held);
    sender_peer_wait(peer, "the observer's next look", SENDER_LOOK_NS);
    sender_peer_send(peer, WF_FRAME_held, &held, -1);
}

void sender_look_begin(struct sender_peer *peer, const struct wf_frame_look *look)
{
    struct wf_sender *sender = peer->sender;
    struct wf_error error;
    enum wf_status status = check(peer, look, &error);
    if (status == WF_OK) {
        status = sender_peer_choose(peer, look->transports, "the observer", &error);
    }
    if (status != WF_OK) {
        sender_peer_refuse(peer, status, error.text);
        return;
    }
    peer->state = PEER_LOOKING;
    sender->looker_count++;
    if (sender_peer_send_slots(peer)) {
        answer(peer);
    }
}

void sender_look_again(struct sender_peer *peer)
{
    answer(peer);
}
