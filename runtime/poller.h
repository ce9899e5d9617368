/* poller.h - waiting for descriptors, a time or another thread's wake, by one of two means.
 *
 * Inside the runtime only (loop.c). Two implementations, libevent and epoll with a timerfd, keep
 * one contract (tests/contract/test_poller.c):
 *
 * - A wait records what is ready in a list and calls nobody; the loop calls `ready` in its pass.
 * - Level-triggered: what stays readable is reported by every wait. A watch with events 0 is
 *   silent, a hang-up of its peer included.
 * - An error or hang-up is reported as all that the watch wants, so that the next read or write
 *   tells. WF_HANGUP comes with WF_READABLE when a socket's peer will send no more; it is never
 *   asked for, and may be missing (pipes).
 * - A wake from any thread, or from a signal handler, ends a wait that is going on, or else the
 *   next one; several wakes may end only one.
 * - A descriptor has at most one watch, which is removed before the descriptor is closed.
 *
 * Only `wake` may be called from a thread other than the loop's.
 */
#ifndef WEFT_RUNTIME_POLLER_H
#define WEFT_RUNTIME_POLLER_H

#include <stdint.h>

#include "runtime/loop.h"
#include "runtime/status.h"

struct wf_poller;

struct wf_poller_ops {
    /* watch->fd with watch->events. UNSUPPORTED: a descriptor that is always ready (a file);
     * NO_RESOURCE, NO_MEMORY: the kernel's limits; INVALID: not open. */
    enum wf_status (*add)(struct wf_poller *poller, struct wf_watch *watch);
    /* The poller sets watch->events, on success only. */
    enum wf_status (*modify)(struct wf_poller *poller, struct wf_watch *watch, unsigned events);
    void (*remove)(struct wf_poller *poller, struct wf_watch *watch);
    /* Returns when something is ready, woken, or at until_ns; at once when until_ns <= now_ns.
     * WF_NEVER_NS: no limit. Times are of one clock that runs like CLOCK_MONOTONIC. May return
     * early for no reason, but not again and again. */
    void (*wait)(struct wf_poller *poller, uint64_t now_ns, uint64_t until_ns);
    void (*wake)(struct wf_poller *poller);
    void (*free)(struct wf_poller *poller);
};

struct wf_poller {
    const struct wf_poller_ops *ops;
    struct wf_watch *ready_first, *ready_last; /* watches with something pending */
};

enum wf_status wf_poller_epoll_new(struct wf_poller **poller_out, struct wf_error *error);
enum wf_status wf_poller_libevent_new(struct wf_poller **poller_out, struct wf_error *error);

/* For the implementations: records that `events` of a watch are ready. */
void wf_poller_record(struct wf_poller *poller, struct wf_watch *watch, unsigned events);
/* For the implementations: drops what is recorded of a watch that is removed. */
void wf_poller_forget(struct wf_poller *poller, struct wf_watch *watch);
/* For the implementations: what an errno of adding or modifying means. */
enum wf_status wf_poller_status(int error_number);
/* For the implementations: a write to the wake descriptor, safe in signal handlers. */
void wf_poller_ring(int event_fd);

/* Takes the next watch with something it still wants; NULL: none. */
struct wf_watch *wf_poller_take(struct wf_poller *poller, unsigned *events_out);

#endif
