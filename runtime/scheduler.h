/* scheduler.h - which actors of a loop run next, and the hand-over from other threads.
 *
 * Inside the runtime only (actor.c, loop.c). Two ways lead to the run list: an actor that its own
 * thread sent to goes there directly; one that another thread found with an empty inbox goes over
 * the wake list, a lock-free stack of actors whose head word also says "the loop sleeps":
 *
 *   NULL      awake, nothing to take        pusher: puts itself there
 *   SLEEPING  blocked or about to block     pusher: puts itself there and must wake the poller
 *   an actor  things to take                pusher: puts itself in front
 *
 * The loop goes NULL -> SLEEPING by compare-and-swap just before it blocks, so whoever pushed
 * before is seen, and whoever pushes after wakes it: no wake-up can be lost, and a busy loop costs
 * its senders no system call.
 */
#ifndef WEFT_RUNTIME_SCHEDULER_H
#define WEFT_RUNTIME_SCHEDULER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/actor.h"
#include "runtime/env.h"
#include "runtime/status.h"

enum { WF_SCHEDULER_SLEEPING = 1 }; /* a value of `wakes` that is no actor */

struct wf_scheduler {
    _Alignas(64) _Atomic(struct wf_mail *) wakes; /* the stack of wake_links */
    /* The thread that runs the loop, 0 while none does. Written by that thread, compared by all. */
    _Alignas(64) _Atomic(pthread_t) thread;
    struct wf_mail_list run; /* actors' run_links, first scheduled first */
    size_t runnable;         /* length of `run` */
    struct wf_actor *running;
    uint64_t messages; /* handled so far */
    uint32_t actors, next_id;
};

void wf_scheduler_init(struct wf_scheduler *scheduler);

/* Any thread: does the caller run this loop? */
static inline bool wf_scheduler_is_here(struct wf_scheduler *scheduler)
{
    return atomic_load_explicit(&scheduler->thread, memory_order_relaxed) == pthread_self();
}
/* Asserts that no other thread runs this loop. */
static inline void wf_scheduler_assert_here(struct wf_scheduler *scheduler)
{
    pthread_t thread = atomic_load_explicit(&scheduler->thread, memory_order_relaxed);
    WF_ASSERT(thread == (pthread_t)0 || thread == pthread_self());
}

/* Loop thread. Puts an actor that is not scheduled on the run list. */
static inline void wf_scheduler_add(struct wf_scheduler *scheduler, struct wf_actor *actor)
{
    actor->scheduled = true;
    wf_mail_list_push(&scheduler->run, &actor->run_link);
    scheduler->runnable++;
}
/* Loop thread. Takes a scheduled actor off the run list, wherever it is. */
void wf_scheduler_remove(struct wf_scheduler *scheduler, struct wf_actor *actor);
/* Another thread, after WF_PUSH_SCHEDULE. True: the loop sleeps, the caller must wake it. */
bool wf_scheduler_wake(struct wf_scheduler *scheduler, struct wf_actor *actor);
/* Loop thread. Moves what others woke to the run list; true if there was any. */
bool wf_scheduler_take_wakes(struct wf_scheduler *scheduler);
/* Loop thread: is anything on the run list or the wake list? */
static inline bool wf_scheduler_has_work(struct wf_scheduler *scheduler)
{
    return scheduler->runnable != 0 ||
           (uintptr_t)atomic_load_explicit(&scheduler->wakes, memory_order_relaxed) >
               WF_SCHEDULER_SLEEPING;
}
/* Loop thread, before it blocks. False: somebody was woken, do not. After blocking take_wakes ends
 * the sleep. */
bool wf_scheduler_try_sleep(struct wf_scheduler *scheduler);

/* Loop thread. Runs each actor that is on the run list now once. With `chooser` (the simulator's
 * env, else NULL) it draws who goes next and how many messages one takes. True if any ran. */
bool wf_scheduler_pass(struct wf_scheduler *scheduler, struct wf_env *chooser);

/* In actor.c: handles up to `limit` messages; true if the actor must run again. */
bool wf_actor_run(struct wf_actor *actor, unsigned limit);

/* Every loop begins with its scheduler (asserted in loop.c). */
static inline struct wf_scheduler *wf_loop_scheduler(struct wf_loop *loop)
{
    return (struct wf_scheduler *)loop;
}
/* In loop.c, any thread: makes a blocked poller return. */
void wf_loop_wake(struct wf_loop *loop);

#endif
