/* receiver.c - the infer rank's reader: its phases, its answers, its end. */
#include "actors/receiver.h"
#include "runtime/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t receiver_now_ns(const struct wf_receiver *receiver)
{
    return wf_loop_now_ns(receiver->rank->loop);
}

void receiver_trace(const struct wf_receiver *receiver, const char *name, uint64_t start_ns,
                    uint64_t end_ns)
{
    struct wf_trace_span span = {name, start_ns, end_ns, receiver->round.version.step, 0};
    wf_trace_add(wf_loop_trace(receiver->rank->loop), span);
}

void receiver_tell(struct wf_receiver *receiver, struct wf_local_msg *answer)
{
    wf_send(wf_meta_client_actor(receiver->rank->client), &answer->msg);
}

/* --- failing and draining
 * ------------------------------------------------------------------------- */

static void cancel_reads(struct wf_receiver *receiver)
{
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        struct receiver_source *source = receiver->sources[i];
        if (source->read_open) {
            source->read_by->ops->cancel(source->read_by, &source->read);
        }
    }
    receiver->validation.cancelled = receiver->store.validation.cancelled = true;
}

static void drain(struct wf_receiver *receiver)
{
    wf_timer_cancel(receiver->rank->loop, &receiver->deadline);
    receiver->phase = RECEIVER_DRAINING;
    receiver->staged = false;
    cancel_reads(receiver);
    wf_batch_stop(&receiver->make.batch);
}

static bool in_round(const struct wf_receiver *receiver)
{
    return receiver->phase == RECEIVER_BEFORE || receiver->phase == RECEIVER_READING ||
           receiver->phase == RECEIVER_VALIDATING || receiver->phase == RECEIVER_MAKING ||
           receiver->phase == RECEIVER_AFTER || receiver->phase == RECEIVER_NAMING;
}

static void blame(struct wf_culprit *culprit, const struct receiver_source *source,
                  const char *object)
{
    culprit->side = source->peer.side;
    culprit->rank = source->peer.rank;
    culprit->engine = source->peer.engine;
    snprintf(culprit->host, sizeof culprit->host, "%s", source->peer.host);
    snprintf(culprit->object, sizeof culprit->object, "%s", object);
}

void receiver_fail(struct wf_receiver *receiver, const struct receiver_source *source,
                   enum wf_status status, const char *object, const char *format, ...)
{
    if (!in_round(receiver)) {
        return; /* an earlier failure ends it already, or nobody waits */
    }
    struct wf_local_msg *answer = receiver->answer;
    va_list args;
    va_start(args, format);
    vsnprintf(answer->culprit.reason, sizeof answer->culprit.reason, format, args);
    va_end(args);
    blame(&answer->culprit, source, object);
    char who[WF_WHO_MAX];
    wf_peer_who(&source->peer, who);
    answer->status = status;
    wf_error_set(&answer->error, status, "%s %s", who, answer->culprit.reason);
    drain(receiver);
    receiver_settle(receiver);
}

void receiver_fail_self(struct wf_receiver *receiver, enum wf_status status, const char *format,
                        ...)
{
    if (!in_round(receiver)) {
        return;
    }
    struct wf_local_msg *answer = receiver->answer;
    const struct wf_rank_options *options = &receiver->rank->options;
    va_list args;
    va_start(args, format);
    vsnprintf(answer->culprit.reason, sizeof answer->culprit.reason, format, args);
    va_end(args);
    answer->culprit.side = options->side;
    answer->culprit.rank = options->rank;
    answer->culprit.engine = options->engine;
    snprintf(answer->culprit.host, sizeof answer->culprit.host, "%s", options->host_name);
    answer->status = status;
    wf_error_set(&answer->error, status, "infer rank %u %s", options->rank, answer->culprit.reason);
    drain(receiver);
    receiver_settle(receiver);
}

static void tell_stopped(struct wf_receiver *receiver)
{
    struct wf_local_msg *out = wf_local_msg_new(WF_LOCAL_STOPPED, &receiver->actor);
    out->round = receiver->stop_round;
    out->wrote = receiver->wrote;
    receiver->stopping = false;
    receiver->staged = false;
    receiver_tell(receiver, out);
}

static void end_round(struct wf_receiver *receiver)
{
    struct wf_local_msg *answer = receiver->answer;
    receiver->answer = NULL;
    receiver->phase = RECEIVER_IDLE;
    receiver_store_end(receiver);
    wf_agreed_release(receiver->stored);
    receiver->stored = NULL;
    if (answer == NULL) {
        return;
    }
    if (receiver->stopping || receiver->closing) {
        answer->msg.release(&answer->msg);
    } else {
        answer->wrote = receiver->wrote;
        receiver_tell(receiver, answer);
    }
}

void receiver_settle(struct wf_receiver *receiver)
{
    if (receiver->phase == RECEIVER_DRAINING && receiver->open_reads == 0 &&
        !receiver->validating && !receiver->hook.running && !receiver->make.batch.active &&
        !receiver->make.claiming) {
        end_round(receiver);
    }
    if (receiver->phase != RECEIVER_IDLE || receiver->closing) {
        return;
    }
    if (receiver->stopping) {
        tell_stopped(receiver);
    }
}

/* Only here, between messages: sources may be freed, and inner functions hold them. */
static void adopt_plan(struct wf_receiver *receiver)
{
    if (receiver->has_next && receiver->phase == RECEIVER_IDLE && !receiver->closing) {
        receiver_plan_adopt(receiver);
    }
    if (receiver->phase == RECEIVER_IDLE && receiver->make.agreed != receiver->agreed) {
        receiver_make_use(receiver, receiver->agreed); /* after a fill from the store */
    }
}

/* --- messages
 * -------------------------------------------------------------------------------------- */

static void take_stop(struct wf_receiver *receiver, const struct wf_local_msg *request)
{
    receiver->stopping = true;
    receiver->stop_round = request->round;
    if (in_round(receiver)) {
        drain(receiver);
    }
    receiver_settle(receiver);
}

static void take_plan(struct wf_receiver *receiver, const struct wf_local_msg *msg)
{
    wf_agreed_release(receiver->next_agreed);
    receiver->next_agreed = msg->status == WF_OK ? wf_agreed_hold(msg->agreed) : NULL;
    receiver->has_next = true;
}

static void take_local(struct wf_receiver *receiver, struct wf_local_msg *msg)
{
    switch (msg->msg.kind) {
    case WF_LOCAL_PLANNED:
        take_plan(receiver, msg);
        break;
    case WF_LOCAL_READ:
        receiver_round_start(receiver, msg);
        break;
    case WF_LOCAL_STOP:
        take_stop(receiver, msg);
        break;
    case WF_LOCAL_FLIP:
        receiver_flip(receiver, msg);
        break;
    default:
        break;
    }
}

static void take_wire(struct wf_receiver *receiver, struct wf_wire_msg *msg)
{
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        if (receiver->sources[i]->conn == msg->conn) {
            receiver_source_event(receiver->sources[i], msg);
            return;
        }
    }
}

static void take_read_done(struct wf_receiver *receiver, struct wf_msg *msg)
{
    struct receiver_source *source = WF_CONTAINER(msg, struct receiver_source, read.done);
    source->read_open = false;
    receiver->open_reads--;
    if (source->state == SOURCE_APART) {
        receiver_source_release(source);
    }
    receiver_round_read_done(source);
}

static void take_step(struct wf_receiver *receiver, struct wf_msg *msg)
{
    const struct wf_batch *ended = wf_batch_step(msg);
    if (ended == &receiver->flip_batch) {
        receiver_flipped(receiver);
    } else if (ended == &receiver->make.batch) {
        receiver_make_ended(receiver);
    }
}

static enum wf_verdict take(struct wf_receiver *receiver, struct wf_msg *msg)
{
    switch (msg->kind) {
    case WF_READ_DONE:
        take_read_done(receiver, msg);
        return WF_KEEP; /* part of its source */
    case RECEIVER_STORE_OPENED:
        receiver_store_opened(receiver);
        return WF_KEEP; /* part of the receiver, as READ's */
    case RECEIVER_STORE_READ:
        receiver_store_read(receiver, msg);
        return WF_KEEP;
    case RECEIVER_HOOK_DONE:
        receiver_hook_done(receiver);
        return WF_KEEP; /* part of the receiver */
    case RECEIVER_CLAIMED:
        receiver_make_claimed(receiver);
        return WF_KEEP;
    case WF_IMPORT_DONE:
        receiver_source_imported(receiver, msg);
        return WF_KEEP; /* freed there */
    case WF_VALIDATE:   /* came back: the Validator is closed */
    case WF_VALIDATED:
        receiver->validating = false;
        receiver_round_validated(receiver);
        return WF_KEEP; /* part of the receiver */
    case WF_BATCH_STEP:
        take_step(receiver, msg);
        return WF_KEEP;
    case WF_WIRE_OPENED:
    case WF_WIRE_FRAME:
    case WF_WIRE_CLOSED:
        take_wire(receiver, (struct wf_wire_msg *)msg);
        return WF_FREE;
    default:
        if (!receiver->closing && !msg->returned) {
            take_local(receiver, (struct wf_local_msg *)msg);
        }
        return WF_FREE;
    }
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct wf_receiver *receiver = WF_CONTAINER(self, struct wf_receiver, actor);
    adopt_plan(receiver); /* a timer may have ended the round that was in its way */
    enum wf_verdict verdict = take(receiver, msg);
    adopt_plan(receiver);
    return verdict;
}

/* --- making and freeing
 * ------------------------------------------------------------------------------ */

enum wf_status wf_receiver_new(struct wf_rank *rank, struct wf_receiver **part_out,
                               struct wf_error *error)
{
    struct wf_receiver *receiver = calloc(1, sizeof *receiver);
    if (receiver == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the receiver");
    }
    receiver->rank = rank;
    wf_actor_init(&receiver->actor, rank->loop, "receiver", handle);
    receiver->deadline.fire = receiver_round_deadline;
    receiver->deadline.name = "a version's transfer";
    receiver_make_init(receiver);
    enum wf_status status = receiver_staging_init(receiver, error);
    status = status == WF_OK ? receiver_hook_init(receiver, error) : status;
    if (status != WF_OK) {
        wf_receiver_close(receiver);
        wf_receiver_free(receiver);
        return status;
    }
    *part_out = receiver;
    return WF_OK;
}

_Static_assert(offsetof(struct wf_receiver, actor) == 0, "a puppet may stand for it");
struct wf_actor *wf_receiver_actor(struct wf_receiver *receiver)
{
    return &receiver->actor;
}

void wf_receiver_close(struct wf_receiver *receiver)
{
    receiver->closing = true;
    if (in_round(receiver)) {
        drain(receiver);
    }
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        receiver_source_lose(receiver->sources[i], WF_CLOSED, "this rank leaves");
    }
    wf_batch_stop(&receiver->flip_batch);
    receiver_settle(receiver);
}

void wf_receiver_free(struct wf_receiver *receiver)
{
    while (receiver->open_reads > 0 || receiver->open_imports > 0 || receiver->validating ||
           receiver->flip_batch.active || receiver->hook.running || receiver->make.batch.active ||
           receiver->make.claiming) {
        wf_loop_turn(receiver->rank->loop); /* what runs still points here */
    }
    receiver_settle(receiver);
    receiver_store_end(receiver);
    wf_actor_close(&receiver->actor);
    wf_actor_fini(&receiver->actor);
    receiver_plan_fini(receiver);
    receiver_make_fini(receiver);
    receiver_hook_fini(receiver);
    receiver_staging_fini(receiver);
    free(receiver);
}
