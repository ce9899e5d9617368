/* receiver_plan.c - which sources a plan gives the Receiver; keeps what need not be made anew. */
#include <stdlib.h>
#include <string.h>

#include "actors/receiver.h"

/* The connection of an old source serves the new plan too if both ends would agree to the same. */
static struct receiver_source *take_old(struct wf_receiver *receiver, const struct wf_el_peer *peer,
                                        const struct wf_edge *edge, struct wf_hash input)
{
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        struct receiver_source *old = receiver->sources[i];
        if (old != NULL && old->peer.rank == peer->rank &&
            old->peer.incarnation == peer->incarnation &&
            strcmp(old->peer.address, peer->address) == 0 && wf_hash_equal(old->input, input) &&
            wf_hash_equal(old->edge->hash, edge->hash)) {
            receiver->sources[i] = NULL;
            return old;
        }
    }
    return NULL;
}

/* What is cast at the source is read from there; the plan's ops are about what it was cast from. */
static void set_reads(struct receiver_source *source, const struct wf_plan *plan,
                      const struct wf_layout *dst)
{
    const struct wf_edge *edge = source->edge;
    free(source->reads);
    source->reads = NULL;
    source->cast_count = wf_plan_casts_of(plan, edge->src_rank, &source->casts);
    if (source->cast_count == 0) {
        return;
    }
    source->reads = calloc(edge->op_count + 1ull, sizeof *source->reads);
    WF_ASSERT(source->reads != NULL);
    for (uint32_t i = 0; i < edge->op_count; i++) {
        source->reads[i] = edge->ops[i];
        wf_plan_cast_read(plan, source->layout, dst, edge->src_rank, &edge->ops[i],
                          &source->reads[i]);
    }
}

static struct receiver_source *make_source(struct wf_receiver *receiver,
                                           const struct wf_agreed *agreed,
                                           const struct wf_edge *edge)
{
    const struct wf_el_peer *peer = &agreed->members.members.peers[edge->src_rank];
    struct wf_hash input = agreed->plan->input_hash;
    struct receiver_source *source = take_old(receiver, peer, edge, input);
    if (source == NULL) {
        source = receiver_source_new(receiver);
    }
    source->peer = *peer;
    source->edge = edge;
    source->input = input;
    source->layout = agreed->layouts[edge->src_rank];
    const struct wf_layout *dst = agreed->layouts[agreed->train_ranks + edge->dst_rank];
    set_reads(source, agreed->plan, dst);
    wf_digests_free(source->digests);
    enum wf_status status =
        wf_digests_new(edge->ops, edge->op_count, source->layout, dst, &source->digests, NULL);
    WF_ASSERT(status == WF_OK);
    return source;
}

void receiver_plan_fini(struct wf_receiver *receiver)
{
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        if (receiver->sources[i] != NULL) {
            receiver_source_free(receiver->sources[i]);
        }
    }
    free(receiver->sources);
    free(receiver->validation.edges);
    receiver->sources = NULL;
    receiver->validation.edges = NULL;
    receiver->source_count = 0;
    wf_agreed_release(receiver->agreed);
    receiver->agreed = NULL;
    if (receiver->closing) {
        wf_agreed_release(receiver->next_agreed);
        receiver->next_agreed = NULL;
    }
}

void receiver_plan_adopt(struct wf_receiver *receiver)
{
    struct wf_agreed *agreed = receiver->next_agreed;
    receiver->next_agreed = NULL;
    receiver->has_next = false;
    uint32_t edge_count = agreed != NULL ? agreed->plan->edge_count : 0, count = 0;
    uint32_t own = agreed != NULL ? wf_agreed_position(agreed, WF_INFER, WF_INFER,
                                                       receiver->rank->options.rank)
                                  : 0;
    struct receiver_source **sources = calloc((size_t)edge_count + 1, sizeof(void *));
    WF_ASSERT(sources != NULL);
    for (uint32_t i = 0; i < edge_count; i++) {
        const struct wf_edge *edge = &agreed->plan->edges[i];
        if (edge->dst_rank == own) {
            sources[count++] = make_source(receiver, agreed, edge);
        }
    }
    receiver_plan_fini(receiver); /* what was not taken over */
    receiver->agreed = agreed;
    receiver_make_use(receiver, agreed);
    receiver->sources = sources;
    receiver->source_count = count;
    receiver->validation.edges = calloc((size_t)count + 1, sizeof *receiver->validation.edges);
    WF_ASSERT(receiver->validation.edges != NULL);
    receiver->validation.edge_count = count;
    for (uint32_t i = 0; i < count; i++) {
        if (sources[i]->state == SOURCE_APART && !wf_timer_is_armed(&sources[i]->timer)) {
            receiver_source_connect(sources[i]);
        }
    }
}

void receiver_plan_borrow(struct wf_receiver *receiver, struct wf_agreed *agreed)
{
    struct wf_agreed *job = wf_agreed_hold(receiver->agreed);
    WF_ASSERT(receiver->phase == RECEIVER_IDLE && !receiver->has_next);
    receiver->next_agreed = wf_agreed_hold(agreed);
    receiver_plan_adopt(receiver);
    receiver->next_agreed = job;
    receiver->has_next = true;
}
