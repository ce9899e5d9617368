/* sender_replicas.c - digests of what other ranks hold too, when the server asks for them.
 *
 * Of a train rank in the memory that a round's readers read, once the round's own digests are
 * there, and while it is granted; of an infer rank in its live tensors. A request that cannot be
 * answered is dropped: the server asks again while it wants to know.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/replicas.h"
#include "actors/sender.h"
#include "runtime/log.h"

enum { REPLICAS_GRAIN = 8 /* chunks of one job */ };
#define NO_MEMORY_FOR_SUMS "there is no memory for its sums"

/* Pool thread. */
static void make(struct wf_job *job)
{
    struct wf_sender *sender = WF_CONTAINER(job, struct wf_sender, replicas.job);
    struct sender_replicas *r = &sender->replicas;
    const struct wf_rank *rank = sender->rank;
    bool train = rank->options.side == WF_TRAIN;
    const struct wf_replicas_input input = {
        .model = rank->options.model,
        .layouts = wf_agreed_owns(r->agreed) + (train ? 0 : r->agreed->train_ranks),
        .rank_count = train ? r->agreed->train_ranks : r->agreed->infer_ranks,
        .rank = rank->options.rank,
        .side = rank->options.side,
        .own = r->own};
    r->status = wf_replicas_new(&input, &r->made, &r->error);
}

/* Pool thread. */
static void compute(struct wf_batch *batch, unsigned lane, uint64_t first, uint64_t count)
{
    struct wf_sender *sender = WF_CONTAINER(batch, struct wf_sender, replicas.batch);
    (void)lane;
    if (count > 0) {
        wf_replicas_compute(sender->replicas.made, sender->slots[sender->replicas.slot].tensors,
                            first, count);
    }
}

void sender_replicas_init(struct wf_sender *sender)
{
    struct sender_replicas *r = &sender->replicas;
    wf_batch_init(&r->batch, sender->rank->loop, &sender->actor, 1, "replicas", compute);
    r->job = (struct wf_job){.done = {.kind = SENDER_REPLICAS_MADE},
                             .owner = &sender->actor,
                             .work = make,
                             .name = "replicas"};
}

static void drop(struct sender_replicas *r)
{
    if (r->request != NULL) {
        r->request->msg.release(&r->request->msg);
        r->request = NULL;
    }
}

/* --- answers
 * -------------------------------------------------------------------------------------- */
/* Without this the server would take the silence for agreement. */
static void say_failed(struct wf_frame_replicas *frame, const char *why)
{
    frame->failed = 1;
    snprintf(frame->object, sizeof frame->object, "%.299s", why);
}

static void list_sums(const struct wf_sender *sender, struct wf_frame_replicas *frame)
{
    const struct sender_replicas *r = &sender->replicas;
    uint32_t count;
    const struct wf_replicas_group *groups = wf_replicas_groups(r->made, &count);
    count = count < WF_REPLICA_GROUPS_MAX ? count : WF_REPLICA_GROUPS_MAX;
    frame->sums = calloc((size_t)count + 1, sizeof frame->sums[0]);
    if (frame->sums == NULL) {
        say_failed(frame, NO_MEMORY_FOR_SUMS);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct wf_el_replica *sum = &frame->sums[frame->sums_count++];
        *sum = (struct wf_el_replica){.group = groups[i].id, .chunks = groups[i].chunks};
        wf_replicas_sum(r->made, sum->group, 0, sum->chunks, &sum->sum);
    }
    wf_replicas_own_differ(r->made, sender->rank->options.model, sender->rank->layout,
                           frame->object, sizeof frame->object);
}

/* Of chunks, from what was computed; of elements in one, from memory: a server that looks for the
 * first that differs asks some twenty times for halves of what it asked before. */
static void add_sum(const struct wf_sender *sender, struct wf_frame_replicas *frame)
{
    const struct sender_replicas *r = &sender->replicas;
    const struct wf_replicas_part part = {.group = (uint32_t)frame->group,
                                          .chunk = frame->first,
                                          .first = frame->within,
                                          .count = frame->elements};
    struct wf_el_replica sum = {.group = frame->group, .chunks = frame->count};
    bool has = frame->elements > 0
                   ? wf_replicas_part_sum(r->made, sender->slots[r->slot].tensors, part, &sum.sum)
                   : wf_replicas_sum(r->made, part.group, frame->first, frame->count, &sum.sum);
    frame->sums = calloc(1, sizeof frame->sums[0]);
    if (frame->sums == NULL) {
        say_failed(frame, NO_MEMORY_FOR_SUMS);
        return;
    }
    if (has) {
        frame->sums[frame->sums_count++] = sum;
    }
    if (frame->count == 1) {
        frame->holds = wf_replicas_elements(r->made, part.group, frame->first);
        wf_replicas_describe(r->made, sender->rank->options.model, sender->rank->layout, part,
                             frame->object, sizeof frame->object);
    }
}

static void answer(struct wf_sender *sender)
{
    struct sender_replicas *r = &sender->replicas;
    struct wf_local_msg *out = wf_local_msg_new(WF_LOCAL_REPLICAS_DONE, NULL);
    struct wf_frame_replicas *frame = &out->replicas;
    *frame = r->request->replicas;
    frame->plan = r->made_of;
    if (r->made == NULL) {
        say_failed(frame, r->error.text);
    } else if (frame->count == 0) {
        list_sums(sender, frame);
    } else {
        add_sum(sender, frame);
    }
    drop(r);
    wf_send(wf_meta_client_actor(sender->rank->client), &out->msg);
}

/* --- the work -----------------------------------------------------------------------------------
 */
/* True if the request is about memory that may be read now; `*later_out`: it will be. */
static bool may_read(const struct wf_sender *sender, bool *later_out)
{
    *later_out = false;
    if (sender->rank->options.side == WF_INFER) {
        return true;
    }
    bool granted = sender->granted &&
                   wf_round_key_equal(&sender->round, &sender->replicas.request->replicas.round);
    *later_out = granted && !sender->digested;
    return granted && sender->digested;
}

static void start_making(struct sender_replicas *r, const struct wf_layout *own, struct wf_env *env)
{
    wf_replicas_free(r->made);
    r->made = NULL;
    r->has_computed = false;
    r->agreed = wf_agreed_hold(r->request->agreed);
    r->made_of = r->agreed->plan->input_hash;
    r->made_for = r->request->replicas.round;
    r->own = own;
    r->making = true;
    r->status = WF_OK;
    env->ops->job(env, &r->job);
}

/* Of another plan, or it was not to be had; memory there may be in the next round. */
static bool must_make(const struct sender_replicas *r)
{
    bool same_plan = wf_hash_equal(r->made_of, r->request->agreed->plan->input_hash);
    bool same_round = wf_round_key_equal(&r->made_for, &r->request->replicas.round);
    return !same_plan || (r->made == NULL && r->status == WF_NO_MEMORY && !same_round);
}

void sender_replicas_settle(struct wf_sender *sender)
{
    struct sender_replicas *r = &sender->replicas;
    if (sender->closing) {
        drop(r);
        wf_batch_stop(&r->batch);
    }
    if (r->request == NULL || r->batch.active || r->making) {
        return;
    }
    bool later;
    if (!may_read(sender, &later)) {
        if (!later) {
            drop(r);
        }
        return;
    }
    const struct wf_round_key *key = &r->request->replicas.round;
    if (must_make(r)) {
        start_making(r, sender->rank->layout, wf_loop_env(sender->rank->loop));
    } else if (r->made == NULL || (r->has_computed && wf_round_key_equal(&r->computed, key))) {
        answer(sender);
    } else {
        r->computed = *key;
        r->has_computed = false;
        r->stopped = false;
        r->slot = sender->rank->options.side == WF_TRAIN ? sender->worked_slot : 0;
        wf_batch_start(&r->batch, wf_replicas_chunks(r->made), REPLICAS_GRAIN);
    }
}

void sender_replicas_ask(struct wf_sender *sender, struct wf_local_msg *request)
{
    drop(&sender->replicas);
    sender->replicas.request = request;
    sender_replicas_settle(sender);
}

static void warn_of_left_out(struct wf_log *log, const struct wf_replicas *made)
{
    uint32_t groups;
    wf_replicas_groups(made, &groups);
    if (wf_replicas_unseen(made) > 0) {
        wf_log(log, WF_LOG_WARN,
               "%" PRIu64 " elements that other ranks hold too are not compared with theirs: the "
               "layouts cut them too differently; nothing is to be done, what a transfer checks "
               "covers them as before",
               wf_replicas_unseen(made));
    }
    if (groups > WF_REPLICA_GROUPS_MAX) {
        wf_log(log, WF_LOG_WARN,
               "%" PRIu32 " of the %" PRIu32 " groups of ranks that this rank shares elements with "
               "are not compared: an answer has room for %d; only a layout whose tensors are "
               "spread very unevenly has that many",
               groups - WF_REPLICA_GROUPS_MAX, groups, (int)WF_REPLICA_GROUPS_MAX);
    }
}

void sender_replicas_made(struct wf_sender *sender)
{
    struct sender_replicas *r = &sender->replicas;
    r->making = false;
    wf_agreed_release(r->agreed);
    r->agreed = NULL;
    struct wf_log *log = wf_loop_log(sender->rank->loop);
    if (r->status != WF_OK) {
        wf_log(log, WF_LOG_WARN, "copies are not compared with those of other ranks: %.600s",
               r->error.text);
    } else if (r->made != NULL) {
        warn_of_left_out(log, r->made);
    }
    sender_replicas_settle(sender);
}

void sender_replicas_stop(struct wf_sender *sender)
{
    sender->replicas.stopped = sender->replicas.stopped || sender->replicas.batch.active;
    wf_batch_stop(&sender->replicas.batch);
}

void sender_replicas_ended(struct wf_sender *sender)
{
    sender->replicas.has_computed = !sender->replicas.stopped;
}

void sender_replicas_fini(struct wf_sender *sender)
{
    struct sender_replicas *r = &sender->replicas;
    drop(r);
    wf_agreed_release(r->agreed);
    wf_replicas_free(r->made);
}
