/* sender_digest.c - the origin's digests: one pass over each distinct box, once a round. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

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
        free(sender->sets[i].pooled);
    }
    free(sender->sets);
    wf_digests_free(sender->pool);
    sender->sets = NULL;
    sender->pool = NULL;
    sender->set_count = 0;
}

/* --- the pool of distinct boxes ------------------------------------------------------------------
 */

/* Open addressing; entries are index + 1 of `boxes`. At most half full. */
struct pool_maker {
    struct wf_digest_box *boxes;
    uint32_t count;
    uint32_t *table;
    size_t mask;
};

/* The digest reads one side only: where the bytes go does not matter. */
static bool same_source(const struct wf_digest_box *a, const struct wf_digest_box *b)
{
    const struct wf_box *left = a->box, *right = b->box;
    bool same = a->src_tensor == b->src_tensor && a->dst_dtype == b->dst_dtype &&
                left->src_offset == right->src_offset && left->elements == right->elements &&
                left->axis_count == right->axis_count;
    for (uint32_t i = 0; same && i < left->axis_count; i++) {
        same = left->axes[i].count == right->axes[i].count &&
               left->axes[i].src_step == right->axes[i].src_step;
    }
    return same;
}

static size_t slot_of(const struct pool_maker *maker, const struct wf_digest_box *box)
{
    uint64_t fields[4] = {box->src_tensor, box->box->src_offset, box->box->elements,
                          box->dst_dtype};
    return (size_t)XXH3_64bits(fields, sizeof fields) & maker->mask;
}

static uint32_t pool_box(struct pool_maker *maker, const struct wf_digest_box *box)
{
    size_t slot = slot_of(maker, box);
    while (maker->table[slot] != 0) {
        if (same_source(&maker->boxes[maker->table[slot] - 1], box)) {
            return maker->table[slot] - 1;
        }
        slot = (slot + 1) & maker->mask;
    }
    maker->boxes[maker->count] = *box;
    maker->table[slot] = ++maker->count;
    return maker->count - 1;
}

/* As for the sets: without this memory, taken at start, the rank cannot serve at all. */
static void make_pool(struct wf_sender *sender)
{
    struct pool_maker maker = {.mask = 1};
    size_t ops = 0;
    for (uint32_t i = 0; i < sender->set_count; i++) {
        ops += sender->sets[i].op_count;
    }
    while (maker.mask < 2 * ops) {
        maker.mask = 2 * maker.mask + 1;
    }
    maker.boxes = calloc(ops + 1, sizeof *maker.boxes);
    maker.table = calloc(maker.mask + 1, sizeof *maker.table);
    WF_ASSERT(maker.boxes != NULL && maker.table != NULL && ops < UINT32_MAX);
    for (uint32_t i = 0; i < sender->set_count; i++) {
        struct sender_digests *set = &sender->sets[i];
        set->pooled = calloc((size_t)set->op_count + 1, sizeof *set->pooled);
        WF_ASSERT(set->pooled != NULL);
        for (uint32_t op = 0; op < set->op_count; op++) {
            set->pooled[op] = pool_box(&maker, &set->digests->boxes[op]);
        }
    }
    free(maker.table);
    enum wf_status status = wf_digests_new_boxes(maker.boxes, maker.count, &sender->pool, NULL);
    WF_ASSERT(status == WF_OK);
}

/* Brings the pool's digests into the order of a set. */
static void fold(const struct wf_digests *pool, struct sender_digests *set)
{
    struct wf_digests *digests = set->digests;
    for (uint32_t op = 0; op < set->op_count; op++) {
        uint64_t count = digests->first_chunk[op + 1] - digests->first_chunk[op];
        memcpy(&digests->chunks[digests->first_chunk[op]],
               &pool->chunks[pool->first_chunk[set->pooled[op]]], count * sizeof *pool->chunks);
    }
    set->sum = wf_digests_sum(digests);
}

/* A bounded number of small allocations at start: without them the rank cannot serve at all. */
static void make_sets(struct wf_sender *sender)
{
    const struct wf_plan *plan = sender->agreed->plan;
    const struct wf_rank_options *options = &sender->rank->options;
    uint32_t own = wf_agreed_position(sender->agreed, WF_TRAIN, options->side, options->rank);
    sender->sets = calloc((size_t)plan->edge_count + 1, sizeof *sender->sets);
    WF_ASSERT(sender->sets != NULL);
    for (uint32_t i = 0; i < plan->edge_count; i++) {
        const struct wf_edge *edge = &plan->edges[i];
        if (edge->src_rank != own || sender_digest_find(sender, edge) != NULL) {
            continue;
        }
        struct sender_digests *set = &sender->sets[sender->set_count];
        set->ops = edge->ops;
        set->op_count = edge->op_count;
        set->dst = layout_of(sender->agreed, WF_INFER, edge->dst_rank);
        enum wf_status status = wf_digests_new(
            edge->ops, edge->op_count, wf_rank_source(sender->rank), set->dst, &set->digests, NULL);
        WF_ASSERT(status == WF_OK);
        sender->set_count++;
    }
    make_pool(sender);
}

/* --- the computation
 * ------------------------------------------------------------------------------ */

/* Pool thread. */
static void compute(struct wf_batch *batch, unsigned lane, uint64_t first, uint64_t count)
{
    struct wf_sender *sender = WF_CONTAINER(batch, struct wf_sender, digest_batch);
    (void)lane;
    wf_digests_compute(sender->pool, false, sender->slots[sender->worked_slot].tensors, first,
                       count);
}

void sender_digest_init(struct wf_sender *sender)
{
    wf_batch_init(&sender->digest_batch, sender->rank->loop, &sender->actor,
                  sender->rank->options.capacity_jobs, "digest", compute);
}

void sender_digest_plan(struct wf_sender *sender)
{
    free_sets(sender);
    if (sender->agreed != NULL) {
        make_sets(sender);
    }
}

void sender_digest_start(struct wf_sender *sender)
{
    sender->digest_start_ns = wf_loop_now_ns(sender->rank->loop);
    wf_batch_start(&sender->digest_batch, wf_digests_count(sender->pool), WF_DIGEST_GRAIN);
}

void sender_digest_ended(struct wf_sender *sender)
{
    if (!sender->granted || sender->restart || sender->has_next || sender->closing) {
        return; /* not of this round, or not all of it */
    }
    for (uint32_t i = 0; i < sender->set_count; i++) {
        fold(sender->pool, &sender->sets[i]);
    }
    sender->digested = true;
    struct wf_trace_span span = {"digest", sender->digest_start_ns,
                                 wf_loop_now_ns(sender->rank->loop), sender->round.version.step, 0};
    wf_trace_add(wf_loop_trace(sender->rank->loop), span);
    sender_peers_answer(sender);
}

void sender_digest_fini(struct wf_sender *sender)
{
    free_sets(sender);
    wf_agreed_release(sender->agreed);
    wf_agreed_release(sender->next_agreed);
}
