/* batch.c - cuts a batch into jobs and counts them. */
#include "actors/batch.h"

#include <string.h>

static void slot_work(struct wf_job *job)
{
    struct wf_batch_slot *slot = (struct wf_batch_slot *)job;
    struct wf_batch *batch = slot->batch;
    batch->work(batch, (unsigned)(slot - batch->slots), slot->first, slot->count);
}

void wf_batch_init(struct wf_batch *batch, struct wf_loop *loop, struct wf_actor *owner,
                   unsigned parallel, const char *name, wf_batch_work_t *work)
{
    memset(batch, 0, sizeof *batch);
    unsigned threads = parallel == 0 ? 1 : parallel;
    threads = threads < WF_BATCH_PARALLEL_MAX ? threads : WF_BATCH_PARALLEL_MAX;
    batch->loop = loop;
    batch->work = work;
    batch->slot_count = 2 * threads;
    for (unsigned i = 0; i < batch->slot_count; i++) {
        struct wf_batch_slot *slot = &batch->slots[i];
        slot->batch = batch;
        slot->job.done.kind = WF_BATCH_STEP;
        slot->job.owner = owner;
        slot->job.work = slot_work;
        slot->job.name = name;
    }
}

unsigned wf_batch_lanes(const struct wf_batch *batch)
{
    return batch->slot_count;
}

static void issue(struct wf_batch *batch, struct wf_batch_slot *slot)
{
    uint64_t left = batch->items - batch->next;
    slot->first = batch->next;
    slot->count = left < batch->grain ? left : batch->grain;
    batch->next += slot->count;
    batch->running++;
    struct wf_env *env = wf_loop_env(batch->loop);
    env->ops->job(env, &slot->job);
}

void wf_batch_start(struct wf_batch *batch, uint64_t items, uint64_t grain)
{
    WF_ASSERT(!batch->active && grain > 0);
    batch->items = items;
    batch->grain = grain;
    batch->next = 0;
    batch->active = true;
    issue(batch, &batch->slots[0]);
    for (unsigned i = 1; i < batch->slot_count && batch->next < items; i++) {
        issue(batch, &batch->slots[i]);
    }
}

struct wf_batch *wf_batch_step(struct wf_msg *msg)
{
    struct wf_batch_slot *slot = (struct wf_batch_slot *)msg; /* job first, done first in it */
    struct wf_batch *batch = slot->batch;
    batch->running--;
    if (batch->next < batch->items) {
        issue(batch, slot);
    }
    batch->active = batch->running > 0;
    return batch->active ? NULL : batch;
}

void wf_batch_stop(struct wf_batch *batch)
{
    batch->items = batch->next;
    batch->active = batch->running > 0;
}
