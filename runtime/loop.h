/* loop.h - one thread, all actors of one rank: passes, timers, watches, sleeping.
 *
 * A pass (wf_loop_turn) fires due timers, runs each actor that was scheduled at its start once (at
 * most WF_TURN_MESSAGES messages each, control before data), and looks at the poller at most every
 * 50 us or 64 passes while there is work. wf_loop_run repeats passes and sleeps when nothing moved:
 * it spins `spin_ns`, marks inboxes empty, arms its progress sources, and only then blocks in the
 * poller until a descriptor, a timer or a wake from another thread. An idle loop does not wake.
 *
 * Under the simulator the loop has no poller and nobody calls wf_loop_run: the simulator calls
 * wf_loop_turn and wf_loop_next_timer_ns and moves virtual time itself.
 *
 * All functions are for the loop's thread unless marked "any thread"; they assert it. While no
 * thread runs the loop, any one thread may call them.
 */
#ifndef WEFT_RUNTIME_LOOP_H
#define WEFT_RUNTIME_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/actor.h"
#include "runtime/env.h"
#include "runtime/status.h"

struct wf_log;
struct wf_trace;

enum { WF_TURN_MESSAGES = 100 };
#define WF_NEVER_NS UINT64_MAX
#define WF_SPIN_DEFAULT_NS UINT64_C(20000)

enum wf_poller_kind { WF_POLLER_NONE, WF_POLLER_EPOLL, WF_POLLER_LIBEVENT };

struct wf_loop_options {
    enum wf_poller_kind poller; /* NONE under the simulator */
    /* How long to spin before sleeping; 0 is none. On a single processor no loop spins. */
    uint64_t spin_ns;
};

/* Makes a loop; NULL options: epoll and the default spin. With a poller the loop may block and be
 * woken. It belongs to no thread until the first turn, whose thread it then keeps until wf_loop_run
 * returns (the last turn's thread otherwise); sends from that thread need no atomics. *loop_out is
 * freed by wf_loop_free after every actor was closed and finished and every watch removed. */
enum wf_status wf_loop_new(const struct wf_loop_options *options, struct wf_loop **loop_out,
                           struct wf_error *error);
void wf_loop_free(struct wf_loop *loop);

/* The env, set once after wf_loop_new (the real env needs the loop's poller) and before anything
 * asks for the time: a timer, wf_loop_now_ns, wf_loop_run. Without a poller the env's choose draws
 * which actor runs next and how many messages it takes. */
void wf_loop_set_env(struct wf_loop *loop, struct wf_env *env);
struct wf_env *wf_loop_env(struct wf_loop *loop);

/* The log and the trace of this rank, for whoever runs on the loop; NULL (the start) is none.
 * Borrowed, set before the first turn. */
void wf_loop_set_log(struct wf_loop *loop, struct wf_log *log);
struct wf_log *wf_loop_log(struct wf_loop *loop);
void wf_loop_set_trace(struct wf_loop *loop, struct wf_trace *trace);
struct wf_trace *wf_loop_trace(struct wf_loop *loop);

/* The time of the current pass, read when a pass first needs it; outside a pass the time now. */
uint64_t wf_loop_now_ns(struct wf_loop *loop);

/* One pass; true if anything moved. */
bool wf_loop_turn(struct wf_loop *loop);
/* True if an actor is scheduled or a watch is ready now. */
bool wf_loop_has_work(struct wf_loop *loop);
/* When the next timer is due, or WF_NEVER_NS. */
uint64_t wf_loop_next_timer_ns(struct wf_loop *loop);
/* Turns and sleeps until wf_loop_stop. */
void wf_loop_run(struct wf_loop *loop);
/* Any thread, also from a signal handler: makes wf_loop_run return after its pass, or the next
 * wf_loop_run at once when none is going on. */
void wf_loop_stop(struct wf_loop *loop);

/* --- timers: caller-owned memory; zeroed is an unarmed timer --------------------------------- */
struct wf_timer {
    uint64_t due_ns;
    uint64_t order; /* equal times fire in the order of arming */
    void (*fire)(struct wf_timer *timer);
    const char *name; /* borrows: the wait's name, which appears when it passes */
    uint32_t heap_index_plus_1;
};
/* Arms or re-arms; fire runs in a pass of this loop with the timer already unarmed. A timer armed
 * by another's fire runs in the next pass at the earliest. */
void wf_timer_arm(struct wf_loop *loop, struct wf_timer *timer, uint64_t due_ns);
void wf_timer_cancel(struct wf_loop *loop, struct wf_timer *timer); /* unarmed is fine */
bool wf_timer_is_armed(const struct wf_timer *timer);

/* --- watches: descriptors, for the real env and transports only ------------------------------ */
enum { WF_READABLE = 1, WF_WRITABLE = 2, WF_HANGUP = 4 };
struct wf_watch {
    int fd;
    unsigned events; /* wanted: WF_READABLE | WF_WRITABLE, or 0 while it waits */
    void (*ready)(struct wf_watch *watch, unsigned events); /* in a pass, never inside the poller */
    void *poller_data;                                      /* the poller's */
    struct wf_watch *next_ready;                            /* the loop's */
    unsigned pending;
};
enum wf_status wf_watch_add(struct wf_loop *loop, struct wf_watch *watch);
enum wf_status wf_watch_modify(struct wf_loop *loop, struct wf_watch *watch, unsigned events);
void wf_watch_remove(struct wf_loop *loop,
                     struct wf_watch *watch); /* ready will not be called again */

/* --- progress sources: libraries that must be called to get on (UCX, devices); transports only -
 */
/* Caller-owned memory. Both functions are called on the loop's thread, never inside one another. */
struct wf_progress_source {
    /* Called in every pass and while the loop spins; true if anything moved. */
    bool (*progress)(struct wf_progress_source *source);
    /* Called right before the loop blocks. True: it may, and a descriptor that the source watches
     * (an ordinary wf_watch) becomes readable when there is something to progress. False: there is
     * already, the loop goes round instead. */
    bool (*arm)(struct wf_progress_source *source);
    struct wf_progress_source *next; /* the loop's */
};
/* Zeroed but for the functions; it stays the caller's until removed. Both may be called from
 * within any progress. A loop without sources pays one comparison a pass. */
void wf_loop_add_source(struct wf_loop *loop, struct wf_progress_source *source);
void wf_loop_remove_source(struct wf_loop *loop, struct wf_progress_source *source);

/* Counters for tests and `weft status`. */
struct wf_loop_stats {
    uint64_t passes;   /* turns in which something moved */
    uint64_t messages; /* handled by actors */
    uint64_t spins;    /* times it looked for a while before blocking */
    uint64_t sleeps;   /* times it blocked */
    uint64_t wakes;    /* sleeps that found something to do; sleeps - wakes were for nothing */
};
struct wf_loop_stats wf_loop_stats(const struct wf_loop *loop);

#endif
