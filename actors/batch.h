/* batch.h - one piece of work over many items, cut into jobs of the env, a few at a time.
 *
 * The owner is an actor. Its handler passes each message of kind WF_BATCH_STEP to wf_batch_step,
 * which issues the next job and says when the batch has ended: all items done, or stopped and
 * nothing running any more (so stop is a barrier). All calls on the loop's thread; `work` runs on
 * the pool's threads, several at a time, on disjoint ranges.
 */
#ifndef WEFT_ACTORS_BATCH_H
#define WEFT_ACTORS_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/env.h"
#include "runtime/loop.h"

enum { WF_BATCH_STEP = 0x340, WF_BATCH_PARALLEL_MAX = 16 };

struct wf_batch;
/* Items [first, first + count); touches nothing but what `batch` leads to. Of the jobs that run at
 * one time each has another `lane`, below wf_batch_lanes: for memory that a job works in. */
typedef void wf_batch_work_t(struct wf_batch *batch, unsigned lane, uint64_t first, uint64_t count);

struct wf_batch_slot {
    struct wf_job job;
    struct wf_batch *batch;
    uint64_t first, count;
};

struct wf_batch {
    struct wf_loop *loop;
    wf_batch_work_t *work;
    uint64_t items, grain, next;
    unsigned running, slot_count;
    bool active;
    /* Two for each thread: the pool always has the next job while the loop learns of the last. */
    struct wf_batch_slot slots[2 * WF_BATCH_PARALLEL_MAX];
};

/* `parallel` jobs at a time: 0 means 1, more than WF_BATCH_PARALLEL_MAX means that. The batch must
 * not move afterwards. */
void wf_batch_init(struct wf_batch *batch, struct wf_loop *loop, struct wf_actor *owner,
                   unsigned parallel, const char *name, wf_batch_work_t *work);
unsigned wf_batch_lanes(const struct wf_batch *batch);
/* Not while active. `grain` items a job, > 0. Without items one job with count 0 runs, so that the
 * end always comes as a step. */
void wf_batch_start(struct wf_batch *batch, uint64_t items, uint64_t grain);
/* The batch, if it ended with this step; else NULL. The message belongs to the batch: the handler
 * returns WF_KEEP. */
struct wf_batch *wf_batch_step(struct wf_msg *msg);
/* No new jobs. If it is still active afterwards its end comes as a step; otherwise it has ended. */
void wf_batch_stop(struct wf_batch *batch);

#endif
