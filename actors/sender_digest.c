/* sender_digest.c - the origin's digests: one pass over each distinct box, once a round. */
#include <stdlib.h>
#include <string.h>

#include "actors/sender.h"
#include "runtime/trace.h"

static const struct wf_layout *layout_of(const struct wf_agreed *agreed, enum wf_side side,
                                         uint32_t rank)
{
    return agreed->layouts[side == WF_TRAIN ? rank : agreed->train_ranks + rank];
}

static bool same_ops(const struct sender_digests *set, const struct wf_edge *edge,
                     const struct wf_layout *dst)
{
    return set->op_count == edge->op_count && wf_hash_equal(set->dst->hash, dst->hash) &&
           (set->ops == edge->ops ||
            memcmp(set->ops, edge->ops, edge->op_count * sizeof *edge->ops) == 0);
}

const struct sender_digests *sender_digest_find(const struct wf_sender *sender,
                                                const struct wf_edge *edge)
{
    const struct wf_layout *dst = layout_of(sender->agreed, WF_INFER, edge->dst_rank);
    for (uint32_t i = 0; i < sender->set_count; i++) {
        if (same_ops(&sender->sets[i], edge, dst)) {
            return &sender->sets[i];
        }
    }
    return NULL;
}

static void free_sets(struct wf_sender *sender)
{
    for (uint32_t i = 0; i < sender->set_count; i++) {
        wf_digests_free(sender->sets[i].digests);
    }
    free(sender->sets);
    sender->sets = NULL;
    sender->set_count = 0;
    sender->set_items = 0;
}

/* A bounded number of small allocations at start: without them the rank cannot serve at all. */
static void make_sets(struct wf_sender *sender)
{
    const struct wf_plan *plan = sender->agreed->plan;
    sender->sets = calloc((size_t)plan->edge_count + 1, sizeof *sender->sets);
    WF_ASSERT(sender->sets != NULL);
    for (uint32_t i = 0; i < plan->edge_count; i++) {
        const struct wf_edge *edge = &plan->edges[i];
        if (edge->src_rank != sender->rank->options.rank ||
            sender_digest_find(sender, edge) != NULL) {
            continue;
        }
        struct sender_digests *set = &sender->sets[sender->set_count];
        set->ops = edge->ops;
        set->op_count = edge->op_count;
        set->dst = layout_of(sender->agreed, WF_INFER, edge->dst_rank);
        set->first_item = sender->set_items;
        enum wf_status status = wf_digests_new(edge->ops, edge->op_count, sender->rank->layout,
                                               set->dst, &set->digests, NULL);
        WF_ASSERT(status == WF_OK);
        sender->set_items += wf_digests_count(set->digests);
        sender->set_count++;
    }
}

/* Pool thread. */
static void compute(struct wf_batch *batch, uint64_t first, uint64_t count)
{
    struct wf_sender *sender =
        (struct wf_sender *)((char *)batch - offsetof(struct wf_sender, digest_batch));
    void *const *tensors = sender->slots[sender->digested_slot].tensors;
    for (uint32_t i = 0; i < sender->set_count && count > 0; i++) {
        struct sender_digests *set = &sender->sets[i];
        uint64_t end = set->first_item + wf_digests_count(set->digests);
        if (first >= end) {
            continue;
        }
        uint64_t here = end - first < count ? end - first : count;
        wf_digests_compute(set->digests, false, tensors, first - set->first_item, here);
        first += here;
        count -= here;
    }
}

void sender_digest_init(struct wf_sender *sender)
{
    wf_batch_init(&sender->digest_batch, sender->rank->loop, &sender->actor,
                  sender->rank->options.capacity_jobs, "digest", compute);
}

static void adopt(struct wf_sender *sender)
{
    free_sets(sender);
    wf_agreed_release(sender->agreed);
    sender->agreed = sender->next_agreed;
    sender->next_agreed = NULL;
    sender->has_next = false;
    if (sender->agreed != NULL) {
        make_sets(sender);
    }
    sender->digested = false;
    sender->restart = true;
    sender_peers_replan(sender);
}

void sender_digest_settle(struct wf_sender *sender)
{
    struct wf_batch *batch = &sender->digest_batch;
    if (sender->has_next || sender->restart || !sender->granted) {
        wf_batch_stop(batch);
    }
    if (batch->active) {
        return; /* its end comes back here */
    }
    if (sender->has_next) {
        adopt(sender);
    }
    if (sender->restart && sender->granted && sender->agreed != NULL && !sender->closing) {
        sender->restart = false;
        sender->digested_slot = sender->slot;
        sender->digest_start_ns = wf_loop_now_ns(sender->rank->loop);
        wf_batch_start(batch, sender->set_items, WF_DIGEST_GRAIN);
    }
}

void sender_digest_ended(struct wf_sender *sender)
{
    bool wanted = sender->granted && !sender->restart && !sender->has_next && !sender->closing;
    if (wanted) {
        for (uint32_t i = 0; i < sender->set_count; i++) {
            sender->sets[i].sum = wf_digests_sum(sender->sets[i].digests);
        }
        sender->digested = true;
        struct wf_trace_span span = {"digest", sender->digest_start_ns,
                                     wf_loop_now_ns(sender->rank->loop), sender->round.version.step,
                                     0};
        wf_trace_add(wf_loop_trace(sender->rank->loop), span);
        sender_peers_answer(sender);
    }
    sender_digest_settle(sender);
}

void sender_digest_fini(struct wf_sender *sender)
{
    free_sets(sender);
    wf_agreed_release(sender->agreed);
    wf_agreed_release(sender->next_agreed);
}
