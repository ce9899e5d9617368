/* sender.c - a rank's server of bytes: takes local messages and wire events apart. */
#include "actors/sender.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the round's work: prepare, answer, digest ---------------------------------------------------
 */

bool sender_is_working(const struct wf_sender *sender)
{
    return sender->prepare_batch.active || sender->digest_batch.active ||
           sender->replicas.batch.active;
}

static void adopt(struct wf_sender *sender)
{
    struct wf_agreed *before = sender->agreed;
    sender->agreed = sender->next_agreed;
    sender->next_agreed = NULL;
    sender->has_next = false;
    sender_casts_plan(sender);
    wf_agreed_release(before);
    sender_digest_plan(sender);
    sender_prepare_plan(sender);
    sender->restart = true;
    sender_peers_replan(sender);
}

void sender_settle(struct wf_sender *sender)
{
    if (sender->has_next || sender->restart || !sender->granted) {
        wf_batch_stop(&sender->prepare_batch);
        wf_batch_stop(&sender->digest_batch);
        sender_replicas_stop(sender);
    }
    bool copying = sender->copy_batch.active; /* into tables that a plan makes anew */
    if (sender_is_working(sender) || (sender->has_next && copying)) {
        return; /* its end comes back here */
    }
    if (sender->has_next) {
        adopt(sender);
        sender_slots_continue(sender);
    }
    if (!sender->granted || sender->agreed == NULL || sender->closing) {
        return;
    }
    if (sender->restart) {
        sender->restart = false;
        sender->prepared = sender->digested = false;
        sender->worked_slot = sender->slot;
    }
    if (!sender->prepared && sender_prepare_start(sender)) {
        return;
    }
    sender->prepared = true;
    sender_peers_answer(sender);
    if (!sender->digested) {
        sender_digest_start(sender);
    }
}

/* --- local messages -----------------------------------------------------------------------------
 */

static void take_plan(struct wf_sender *sender, struct wf_local_msg *msg)
{
    wf_agreed_release(sender->next_agreed);
    sender->next_agreed = msg->status == WF_OK ? wf_agreed_hold(msg->agreed) : NULL;
    sender->has_next = true;
    sender_settle(sender);
}

static void take_grant(struct wf_sender *sender, const struct wf_local_msg *msg)
{
    bool same = sender->granted && wf_round_key_equal(&sender->round, &msg->round) &&
                sender->slot == msg->slot;
    if (!same && msg->slot < SENDER_SLOTS && sender->slots[msg->slot].tensors != NULL) {
        if (msg->agreed != NULL) { /* an infer rank has no plan but the fill's */
            wf_agreed_release(sender->next_agreed);
            sender->next_agreed = wf_agreed_hold(msg->agreed);
            sender->has_next = true;
        }
        sender->granted = true;
        sender->prepared = sender->rank->prepare == NULL && sender->cast_count == 0 &&
                           !sender->has_next; /* else not before the work begins */
        sender->digested = false;
        sender->restart = true;
        sender->prepare_ns = 0;
        sender->round = msg->round;
        sender->slot = msg->slot;
        sender_settle(sender);
    }
    sender_peers_answer(sender);
}

/* When no job reads memory that is not granted any more. */
static void answer_revokes(struct wf_sender *sender)
{
    bool quiet = !sender_is_working(sender) && !sender->closing;
    for (; sender->revokes > 0 && quiet; sender->revokes--) {
        struct wf_local_msg *out = wf_local_msg_new(WF_LOCAL_REVOKED, NULL);
        out->round = sender->revoked;
        wf_send(wf_meta_client_actor(sender->rank->client), &out->msg);
    }
}

static void take_revoke(struct wf_sender *sender, const struct wf_local_msg *msg)
{
    sender->revoked = msg->round;
    if (sender->granted && wf_round_key_equal(&sender->round, &msg->round)) {
        sender->granted = false;
        sender->prepared = sender->digested = false;
        sender_settle(sender);
    }
    sender_peers_answer(sender);
    sender_replicas_settle(sender);
    if (sender->rank->options.side == WF_TRAIN) { /* an infer rank waits for no answer */
        sender->revokes++;
        answer_revokes(sender);
    }
}

static enum wf_verdict take_local(struct wf_sender *sender, struct wf_local_msg *msg)
{
    switch (msg->msg.kind) {
    case WF_LOCAL_PLANNED:
        take_plan(sender, msg);
        return WF_FREE;
    case WF_LOCAL_GRANT:
        take_grant(sender, msg);
        return WF_FREE;
    case WF_LOCAL_REVOKE:
        take_revoke(sender, msg);
        return WF_FREE;
    case WF_LOCAL_REPLICAS:
        sender_replicas_ask(sender, msg);
        return WF_KEEP;
    case WF_LOCAL_SNAPSHOT:
        sender_slots_snapshot(sender, msg);
        return WF_KEEP;
    default:
        return WF_FREE;
    }
}

static void step(struct wf_sender *sender, const struct wf_batch *ended)
{
    if (ended == NULL) {
        return;
    }
    if (ended == &sender->copy_batch) {
        sender_slots_copied(sender);
    } else {
        answer_revokes(sender);
        sender_slots_continue(sender);
    }
    if (ended == &sender->prepare_batch) {
        sender_prepare_ended(sender);
    } else if (ended == &sender->digest_batch) {
        sender_digest_ended(sender);
    } else if (ended == &sender->replicas.batch) {
        sender_replicas_ended(sender);
    }
    sender_settle(sender);
    sender_replicas_settle(sender);
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct wf_sender *sender = WF_CONTAINER(self, struct wf_sender, actor);
    switch (msg->kind) {
    case WF_BATCH_STEP:
        step(sender, wf_batch_step(msg));
        return WF_KEEP;
    case SENDER_REPLICAS_MADE:
        sender_replicas_made(sender);
        return WF_KEEP;
    case WF_WIRE_OPENED:
        sender_peer_opened(sender, (struct wf_wire_msg *)msg);
        return WF_FREE;
    case WF_WIRE_FRAME:
        sender_peer_frame(sender, (struct wf_wire_msg *)msg);
        return WF_FREE;
    case WF_WIRE_CLOSED:
        sender_peer_closed(sender, (struct wf_wire_msg *)msg);
        return WF_FREE;
    default:
        return sender->closing || msg->returned ? WF_FREE
                                                : take_local(sender, (struct wf_local_msg *)msg);
    }
}

/* On every address of the list; what they became makes the rank's own list. */
static enum wf_status listen_all(struct wf_sender *sender, const char *list, struct wf_error *error)
{
    struct wf_env *env = wf_loop_env(sender->rank->loop);
    char *all = sender->rank->address;
    all[0] = '\0';
    while (*list != '\0') {
        char wanted[WF_ADDRESS_MAX], bound[WF_ADDRESS_MAX];
        size_t len = strcspn(list, " ");
        if (len == 0 || len >= sizeof wanted || sender->listener_count == WF_LISTENS_MAX) {
            return wf_error_set(error, WF_INVALID,
                                "a rank listens on at most %d addresses of less than %d bytes",
                                WF_LISTENS_MAX, WF_ADDRESS_MAX);
        }
        snprintf(wanted, sizeof wanted, "%.*s", (int)len, list);
        struct sender_listener *listener = &sender->listeners[sender->listener_count];
        enum wf_status status =
            env->ops->listen(env, &sender->actor, wanted, bound, &listener->id, error);
        if (status != WF_OK) {
            return status;
        }
        env->ops->guard(env, listener->id, NULL);
        sender->listener_count++;
        listener->is_unix = strncmp(bound, "unix:", 5) == 0;
        size_t used = strlen(all);
        if (used + strlen(bound) + 2 > WF_ADDRESS_MAX) {
            return wf_error_set(error, WF_INVALID,
                                "the addresses of a rank have more than %d bytes together",
                                WF_ADDRESS_MAX);
        }
        all[used] = ' ';
        strcpy(all + used + (used > 0), bound);
        list += len + (list[len] == ' ');
    }
    return WF_OK;
}

enum wf_status wf_sender_new(struct wf_rank *rank, struct wf_sender **part_out,
                             struct wf_error *error)
{
    struct wf_sender *sender = calloc(1, sizeof *sender);
    if (sender == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the sender");
    }
    sender->rank = rank;
    wf_actor_init(&sender->actor, rank->loop, "sender", handle);
    sender_digest_init(sender);
    sender_replicas_init(sender);
    enum wf_status status = sender_prepare_init(sender, error);
    if (status == WF_OK) {
        status = sender_slots_init(sender, error);
    }
    if (status == WF_OK) {
        status = listen_all(sender, rank->options.listen, error);
    }
    if (status != WF_OK) {
        wf_sender_close(sender);
        wf_sender_free(sender);
        return status;
    }
    *part_out = sender;
    return WF_OK;
}

_Static_assert(offsetof(struct wf_sender, actor) == 0, "a puppet may stand for it");
struct wf_actor *wf_sender_actor(struct wf_sender *sender)
{
    return &sender->actor;
}

void wf_sender_close(struct wf_sender *sender)
{
    sender->closing = true;
    sender->granted = false;
    struct wf_env *env = wf_loop_env(sender->rank->loop);
    while (sender->listener_count > 0) {
        env->ops->close(env, sender->listeners[--sender->listener_count].id);
    }
    sender_peers_drop(sender);
    wf_batch_stop(&sender->prepare_batch);
    wf_batch_stop(&sender->digest_batch);
    sender_replicas_stop(sender);
    wf_batch_stop(&sender->copy_batch);
}

void wf_sender_free(struct wf_sender *sender)
{
    while (sender_is_working(sender) || sender->copy_batch.active || sender->replicas.making) {
        wf_loop_turn(sender->rank->loop); /* jobs that run still point here */
    }
    wf_actor_close(&sender->actor);
    wf_actor_fini(&sender->actor);
    sender_slots_fini(sender);
    sender_casts_fini(sender);
    sender_prepare_fini(sender);
    sender_digest_fini(sender);
    sender_replicas_fini(sender);
    free(sender);
}
