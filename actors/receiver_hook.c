/* receiver_hook.c - the host's own work on a version: hooks that run on the pool, one at a time. */
#include <stdlib.h>

#include "actors/receiver.h"

/* --- jobs: pool threads ------------------------------------------------------------------------
 */
static struct wf_receiver *of_job(struct wf_job *job)
{
    return WF_CONTAINER(job, struct wf_receiver, hook.job);
}

static void before_work(struct wf_job *job)
{
    struct wf_receiver *r = of_job(job);
    const struct wf_rank_options *o = &r->rank->options;
    r->hook.status = o->hooks.before_write(o->host, r->rank, r->round.version, &r->hook.error);
}

static void after_work(struct wf_job *job)
{
    struct wf_receiver *r = of_job(job);
    const struct wf_rank_options *o = &r->rank->options;
    r->hook.status =
        o->hooks.after_write(o->host, r->rank, r->round.version, r->hook.written, &r->hook.error);
}

static void flip_work(struct wf_job *job)
{
    struct wf_receiver *r = of_job(job);
    const struct wf_rank_options *o = &r->rank->options;
    r->hook.status = o->hooks.after_flip(o->host, r->rank, r->round.version, &r->hook.error);
}

/* --- the loop's part ---------------------------------------------------------------------------
 */
enum wf_status receiver_hook_init(struct wf_receiver *receiver, struct wf_error *error)
{
    const struct wf_rank *rank = receiver->rank;
    receiver->hook.written =
        calloc((size_t)rank->options.tensor_count + 1, sizeof *receiver->hook.written);
    if (receiver->hook.written == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the receiver's tables");
    }
    for (uint32_t i = 0; i < rank->layout->tensor_count; i++) {
        if (receiver->staged_at[i] != NULL) {
            receiver->hook.written[rank->order[i]] = receiver->staged_at[i];
        }
    }
    return WF_OK;
}

void receiver_hook_fini(struct wf_receiver *receiver)
{
    free(receiver->hook.written);
}

static void start(struct wf_receiver *receiver, void (*work)(struct wf_job *job), const char *name)
{
    struct receiver_hook *hook = &receiver->hook;
    struct wf_env *env = wf_loop_env(receiver->rank->loop);
    hook->running = true;
    hook->status = WF_CLOSED; /* unless it runs */
    hook->error.text[0] = '\0';
    hook->job = (struct wf_job){.done = {.kind = RECEIVER_HOOK_DONE},
                                .owner = &receiver->actor,
                                .work = work,
                                .name = name};
    env->ops->job(env, &hook->job);
}

void receiver_hook_before(struct wf_receiver *receiver)
{
    const struct wf_rank_options *options = &receiver->rank->options;
    receiver->phase = RECEIVER_BEFORE;
    if (options->hooks.before_write == NULL) {
        receiver_round_read(receiver);
        return;
    }
    receiver->wrote = options->mode == WF_MODE_IN_PLACE;
    start(receiver, before_work, "before_write");
}

void receiver_hook_after(struct wf_receiver *receiver)
{
    receiver->phase = RECEIVER_AFTER;
    if (receiver->rank->options.hooks.after_write == NULL) {
        receiver_round_end_good(receiver);
        return;
    }
    start(receiver, after_work, "after_write");
}

void receiver_hook_flip(struct wf_receiver *receiver)
{
    if (receiver->rank->options.hooks.after_flip == NULL || receiver->closing) {
        receiver_flip_end(receiver, WF_OK, "");
        return;
    }
    start(receiver, flip_work, "after_flip");
}

/* A hook that failed; a host may have left the sentence out. */
static void fail(struct wf_receiver *receiver, const char *name)
{
    const struct receiver_hook *hook = &receiver->hook;
    receiver_fail_self(receiver, hook->status, "has a hook %s that failed: %.250s", name,
                       hook->error.text[0] != '\0' ? hook->error.text
                                                   : wf_status_text(hook->status));
}

void receiver_hook_done(struct wf_receiver *receiver)
{
    struct receiver_hook *hook = &receiver->hook;
    hook->running = false;
    if (receiver->phase == RECEIVER_FLIPPING) {
        receiver_flip_end(receiver, hook->status, hook->error.text);
    } else if (receiver->phase == RECEIVER_BEFORE && hook->status == WF_OK) {
        receiver_round_read(receiver);
    } else if (receiver->phase == RECEIVER_BEFORE) {
        fail(receiver, "before_write");
    } else if (receiver->phase == RECEIVER_AFTER && hook->status == WF_OK) {
        receiver_round_end_good(receiver);
    } else if (receiver->phase == RECEIVER_AFTER) {
        fail(receiver, "after_write");
    } else {
        receiver_settle(receiver);
    }
}

void receiver_hook_late(struct wf_receiver *receiver)
{
    double seconds = (double)(receiver->deadline_ns - receiver->started_ns) / 1e9;
    receiver_fail_self(receiver, WF_TIMED_OUT,
                       "has a hook %s that had not returned when the round's %.2g s were over",
                       receiver->phase == RECEIVER_BEFORE ? "before_write" : "after_write",
                       seconds);
}
