/* sender_prepare.c - runs what is made of the weights before readers read, once a version and slot:
 * first what models/prepare.h prepares, then what the plan has cast. */
#include <stdlib.h>
#include <string.h>

#include "actors/sender.h"
#include "runtime/trace.h"

/* Items of models/prepare.h; those of casts are behind them. */
static uint32_t prepared_items(const struct wf_sender *sender)
{
    const struct wf_prepare *prepare = sender->rank->prepare;
    return prepare != NULL ? wf_prepare_item_count(prepare) : 0;
}

/* Pool thread. */
static void run_items(struct wf_batch *batch, unsigned lane, uint64_t first, uint64_t count)
{
    struct wf_sender *sender = WF_CONTAINER(batch, struct wf_sender, prepare_batch);
    struct sender_slot *slot = &sender->slots[sender->worked_slot];
    uint32_t prepared = prepared_items(sender);
    for (uint64_t i = first; i < first + count; i++) {
        uint32_t item = sender->todo[i];
        if (item < prepared) {
            const struct wf_prepare *prepare = sender->rank->prepare;
            wf_prepare_run(prepare, item, slot->tensors,
                           sender->scratch + lane * wf_prepare_scratch_bytes(prepare));
        } else {
            sender_casts_run(sender, slot->tensors, item - prepared);
        }
        slot->made[item] = 1;
    }
}

enum wf_status sender_prepare_init(struct wf_sender *sender, struct wf_error *error)
{
    const struct wf_prepare *prepare = sender->rank->prepare;
    wf_batch_init(&sender->prepare_batch, sender->rank->loop, &sender->actor,
                  sender->rank->options.capacity_jobs, "prepare", run_items);
    if (prepare == NULL) {
        return WF_OK;
    }
    size_t scratch = (size_t)wf_prepare_scratch_bytes(prepare);
    sender->scratch = calloc(wf_batch_lanes(&sender->prepare_batch), scratch + 1);
    return sender->scratch != NULL ? WF_OK
                                   : wf_error_set(error, WF_NO_MEMORY, "no memory to prepare in");
}

/* Which tensors of the source layout some op of this rank's edges reads. */
static uint8_t *find_read(const struct wf_sender *sender)
{
    const struct wf_plan *plan = sender->agreed->plan;
    const struct wf_rank_options *options = &sender->rank->options;
    uint32_t own = wf_agreed_position(sender->agreed, WF_TRAIN, options->side, options->rank);
    uint8_t *read = calloc((size_t)wf_rank_source(sender->rank)->tensor_count + 1, 1);
    WF_ASSERT(read != NULL);
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        for (uint32_t o = 0; edge->src_rank == own && o < edge->op_count; o++) {
            read[edge->ops[o].src_tensor] = 1;
        }
    }
    return read;
}

/* A bounded number of small allocations at start: without them the rank cannot serve at all. Casts
 * may lie elsewhere now: nothing is made. */
static void make_tables(struct wf_sender *sender, size_t items)
{
    bool good = true;
    for (int i = 0; i < SENDER_SLOTS; i++) {
        free(sender->slots[i].made);
        sender->slots[i].made = calloc(items + 1, 1);
        sender->slots[i].made_of = (struct wf_version){0};
        good = good && sender->slots[i].made != NULL;
    }
    free(sender->needed);
    free(sender->todo);
    sender->needed = calloc(items + 1, sizeof *sender->needed);
    sender->todo = calloc(items + 1, sizeof *sender->todo);
    WF_ASSERT(good && sender->needed != NULL && sender->todo != NULL);
}

void sender_prepare_plan(struct wf_sender *sender)
{
    const struct wf_prepare *prepare = sender->rank->prepare;
    uint32_t prepared = prepared_items(sender), items = prepared + sender_casts_items(sender);
    sender->needed_count = 0;
    if (items != sender->item_count || sender->cast_count > 0) {
        make_tables(sender, items);
        sender->item_count = items;
    }
    if (items == 0 || sender->agreed == NULL) {
        return;
    }
    uint8_t *read = find_read(sender);
    for (uint32_t item = 0; item < prepared; item++) {
        uint32_t first, end;
        wf_prepare_item_tensors(prepare, item, &first, &end);
        if (memchr(read + first, 1, end - first) != NULL) {
            sender->needed[sender->needed_count++] = item;
        }
    }
    free(read);
    for (uint32_t item = prepared; item < items; item++) {
        sender->needed[sender->needed_count++] = item;
    }
}

bool sender_prepare_start(struct wf_sender *sender)
{
    if (sender->needed_count == 0) {
        return false;
    }
    struct sender_slot *slot = &sender->slots[sender->worked_slot];
    if (wf_version_compare(slot->made_of, sender->round.version) != 0) {
        memset(slot->made, 0, sender->item_count);
        slot->made_of = sender->round.version;
    }
    sender->todo_count = 0;
    for (uint32_t i = 0; i < sender->needed_count; i++) {
        if (!slot->made[sender->needed[i]]) {
            sender->todo[sender->todo_count++] = sender->needed[i];
        }
    }
    if (sender->todo_count > 0) {
        sender->prepare_start_ns = wf_loop_now_ns(sender->rank->loop);
        wf_batch_start(&sender->prepare_batch, sender->todo_count, 1);
    }
    return sender->todo_count > 0;
}

void sender_prepare_ended(struct wf_sender *sender)
{
    uint64_t now_ns = wf_loop_now_ns(sender->rank->loop);
    struct wf_trace_span span = {"prepare", sender->prepare_start_ns, now_ns,
                                 sender->round.version.step, 0};
    sender->prepare_ns += now_ns - sender->prepare_start_ns;
    wf_trace_add(wf_loop_trace(sender->rank->loop), span);
}

void sender_prepare_fini(struct wf_sender *sender)
{
    for (int i = 0; i < SENDER_SLOTS; i++) {
        free(sender->slots[i].made);
    }
    free(sender->scratch);
    free(sender->needed);
    free(sender->todo);
}
