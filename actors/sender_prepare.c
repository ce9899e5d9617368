/* sender_prepare.c - runs what models/prepare.h makes of the weights, once a version and slot. */
#include <stdlib.h>
#include <string.h>

#include "actors/sender.h"
#include "runtime/trace.h"

/* Pool thread. */
static void run_items(struct wf_batch *batch, unsigned lane, uint64_t first, uint64_t count)
{
    struct wf_sender *sender = WF_CONTAINER(batch, struct wf_sender, prepare_batch);
    struct sender_slot *slot = &sender->slots[sender->worked_slot];
    uint8_t *scratch = sender->scratch + lane * wf_prepare_scratch_bytes(sender->rank->prepare);
    for (uint64_t i = first; i < first + count; i++) {
        uint32_t item = sender->todo[i];
        wf_prepare_run(sender->rank->prepare, item, slot->tensors, scratch);
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
    size_t items = (size_t)wf_prepare_item_count(prepare) + 1;
    bool good = true;
    for (int i = 0; i < SENDER_SLOTS; i++) {
        sender->slots[i].made = calloc(items, 1);
        good = good && sender->slots[i].made != NULL;
    }
    sender->needed = calloc(items, sizeof *sender->needed);
    sender->todo = calloc(items, sizeof *sender->todo);
    size_t scratch = (size_t)wf_prepare_scratch_bytes(prepare);
    sender->scratch = calloc(wf_batch_lanes(&sender->prepare_batch), scratch + 1);
    if (!good || sender->scratch == NULL || sender->needed == NULL || sender->todo == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the sender's tables");
    }
    return WF_OK;
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

void sender_prepare_plan(struct wf_sender *sender)
{
    const struct wf_prepare *prepare = sender->rank->prepare;
    sender->needed_count = 0;
    if (prepare == NULL || sender->agreed == NULL) {
        return;
    }
    uint8_t *read = find_read(sender);
    for (uint32_t item = 0; item < wf_prepare_item_count(prepare); item++) {
        uint32_t first, end;
        wf_prepare_item_tensors(prepare, item, &first, &end);
        if (memchr(read + first, 1, end - first) != NULL) {
            sender->needed[sender->needed_count++] = item;
        }
    }
    free(read);
}

bool sender_prepare_start(struct wf_sender *sender)
{
    if (sender->needed_count == 0) {
        return false;
    }
    struct sender_slot *slot = &sender->slots[sender->worked_slot];
    if (wf_version_compare(slot->made_of, sender->round.version) != 0) {
        memset(slot->made, 0, wf_prepare_item_count(sender->rank->prepare));
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
