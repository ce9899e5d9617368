/* loop.c - passes, timers, watches and sleeping of one loop. */
#include "runtime/loop.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/poller.h"
#include "runtime/scheduler.h"
#include "runtime/timers.h"

enum {
    LOOK_PASSES = 64,    /* while there is work, descriptors are looked at after so many passes */
    LOOK_NS = 50000,     /* or after this long, whichever comes first */
    CLOCK_MESSAGES = 32, /* messages that may be handled without a look at the clock */
    SPIN_CHECKS = 16,    /* looks at the wake list between two at clock and descriptors */
};

struct wf_loop {
    struct wf_scheduler scheduler; /* first: wf_loop_scheduler */
    struct wf_timers timers;
    struct wf_env *env;                               /* borrows */
    struct wf_log *log;                               /* borrows */
    struct wf_trace *trace;                           /* borrows */
    struct wf_poller *poller;                         /* owns; NULL without */
    struct wf_progress_source *sources, *next_source; /* borrowed; the one to call next */
    uint64_t spin_ns;
    uint64_t now_ns;    /* valid while now_known */
    uint64_t looked_ns; /* when descriptors were looked at, as far as the clock was read */
    uint64_t messages_at_clock;
    unsigned passes_since_look;
    bool in_pass, now_known;
    atomic_bool stop;
    struct wf_loop_stats stats;
};

_Static_assert(offsetof(struct wf_loop, scheduler) == 0, "wf_loop_scheduler relies on it");

static void assert_here(struct wf_loop *loop)
{
    wf_scheduler_assert_here(&loop->scheduler);
}

static enum wf_status make_poller(enum wf_poller_kind kind, struct wf_poller **poller_out,
                                  struct wf_error *error)
{
    switch (kind) {
    case WF_POLLER_NONE:
        *poller_out = NULL;
        return WF_OK;
    case WF_POLLER_EPOLL:
        return wf_poller_epoll_new(poller_out, error);
    case WF_POLLER_LIBEVENT:
        return wf_poller_libevent_new(poller_out, error);
    }
    return wf_error_set(error, WF_INVALID, "no such poller: %d", (int)kind);
}

/* On a single processor the sender that is waited for could not run while we spin. */
static bool can_spin(void)
{
    cpu_set_t usable;
    return sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) > 1;
}

enum wf_status wf_loop_new(const struct wf_loop_options *options, struct wf_loop **loop_out,
                           struct wf_error *error)
{
    struct wf_loop_options defaults = {.poller = WF_POLLER_EPOLL, .spin_ns = WF_SPIN_DEFAULT_NS};
    if (options == NULL) {
        options = &defaults;
    }
    struct wf_loop *loop = aligned_alloc(_Alignof(struct wf_loop), sizeof *loop);
    if (loop == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a loop");
    }
    memset(loop, 0, sizeof *loop);
    enum wf_status status = make_poller(options->poller, &loop->poller, error);
    if (status != WF_OK) {
        free(loop);
        return status;
    }
    loop->spin_ns = can_spin() ? options->spin_ns : 0;
    wf_scheduler_init(&loop->scheduler);
    atomic_init(&loop->stop, false);
    *loop_out = loop;
    return WF_OK;
}

void wf_loop_free(struct wf_loop *loop)
{
    if (loop == NULL) {
        return;
    }
    assert_here(loop);
    WF_ASSERT(loop->scheduler.actors == 0 && loop->sources == NULL);
    if (loop->poller != NULL) {
        loop->poller->ops->free(loop->poller);
    }
    wf_timers_fini(&loop->timers);
    free(loop);
}

void wf_loop_set_env(struct wf_loop *loop, struct wf_env *env)
{
    assert_here(loop);
    loop->env = env;
}

struct wf_env *wf_loop_env(struct wf_loop *loop)
{
    return loop->env;
}

void wf_loop_set_log(struct wf_loop *loop, struct wf_log *log)
{
    assert_here(loop);
    loop->log = log;
}

struct wf_log *wf_loop_log(struct wf_loop *loop)
{
    return loop->log;
}

void wf_loop_set_trace(struct wf_loop *loop, struct wf_trace *trace)
{
    assert_here(loop);
    loop->trace = trace;
}

struct wf_trace *wf_loop_trace(struct wf_loop *loop)
{
    return loop->trace;
}

static uint64_t read_clock(struct wf_loop *loop)
{
    WF_ASSERT(loop->env != NULL);
    return loop->env->ops->now_ns(loop->env);
}

uint64_t wf_loop_now_ns(struct wf_loop *loop)
{
    assert_here(loop);
    if (!loop->in_pass || !loop->now_known) {
        loop->now_ns = read_clock(loop);
        loop->now_known = true;
        loop->messages_at_clock = loop->scheduler.messages;
    }
    return loop->now_ns;
}

/* --- watches -----------------------------------------------------------------------------------
 */

enum wf_status wf_watch_add(struct wf_loop *loop, struct wf_watch *watch)
{
    assert_here(loop);
    return loop->poller != NULL ? loop->poller->ops->add(loop->poller, watch) : WF_UNSUPPORTED;
}

enum wf_status wf_watch_modify(struct wf_loop *loop, struct wf_watch *watch, unsigned events)
{
    assert_here(loop);
    return loop->poller->ops->modify(loop->poller, watch, events);
}

void wf_watch_remove(struct wf_loop *loop, struct wf_watch *watch)
{
    assert_here(loop);
    loop->poller->ops->remove(loop->poller, watch);
}

static bool dispatch_watches(struct wf_loop *loop)
{
    bool moved = false;
    unsigned events;
    for (struct wf_watch *watch; (watch = wf_poller_take(loop->poller, &events)) != NULL;) {
        watch->ready(watch, events);
        moved = true;
    }
    return moved;
}

/* Looks at the descriptors if it is time; with nothing else to do it always is. */
static void look(struct wf_loop *loop)
{
    loop->passes_since_look++;
    bool is_late = loop->now_known && loop->now_ns - loop->looked_ns >= LOOK_NS;
    if (loop->passes_since_look >= LOOK_PASSES || is_late ||
        !wf_scheduler_has_work(&loop->scheduler)) {
        loop->poller->ops->wait(loop->poller, 0, 0);
        loop->passes_since_look = 0;
        loop->looked_ns = loop->now_ns;
    }
}

/* --- progress sources --------------------------------------------------------------------------
 */

void wf_loop_add_source(struct wf_loop *loop, struct wf_progress_source *source)
{
    assert_here(loop);
    struct wf_progress_source **link = &loop->sources;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    source->next = NULL;
    *link = source;
}

void wf_loop_remove_source(struct wf_loop *loop, struct wf_progress_source *source)
{
    assert_here(loop);
    struct wf_progress_source **link = &loop->sources;
    while (*link != source) {
        WF_ASSERT(*link != NULL);
        link = &(*link)->next;
    }
    *link = source->next;
    if (loop->next_source == source) {
        loop->next_source = source->next;
    }
}

static bool progress_sources(struct wf_loop *loop)
{
    bool moved = false;
    loop->next_source = loop->sources;
    while (loop->next_source != NULL) {
        struct wf_progress_source *source = loop->next_source;
        loop->next_source = source->next;
        moved |= source->progress(source);
    }
    return moved;
}

/* All are asked, so that each sees that the loop was about to sleep. */
static bool arm_sources(struct wf_loop *loop)
{
    bool may_sleep = true;
    for (struct wf_progress_source *source = loop->sources; source != NULL; source = source->next) {
        may_sleep &= source->arm(source);
    }
    return may_sleep;
}

/* --- timers ------------------------------------------------------------------------------------
 */

void wf_timer_arm(struct wf_loop *loop, struct wf_timer *timer, uint64_t due_ns)
{
    assert_here(loop);
    wf_timers_arm(&loop->timers, timer, due_ns);
}

void wf_timer_cancel(struct wf_loop *loop, struct wf_timer *timer)
{
    assert_here(loop);
    wf_timers_cancel(&loop->timers, timer);
}

bool wf_timer_is_armed(const struct wf_timer *timer)
{
    return timer->heap_index_plus_1 != 0;
}

uint64_t wf_loop_next_timer_ns(struct wf_loop *loop)
{
    assert_here(loop);
    return wf_timers_next_ns(&loop->timers);
}

/* --- passes ------------------------------------------------------------------------------------
 */

static void bind_thread(struct wf_loop *loop)
{
    if (!wf_scheduler_is_here(&loop->scheduler)) {
        assert_here(loop);
        atomic_store_explicit(&loop->scheduler.thread, pthread_self(), memory_order_relaxed);
    }
}

bool wf_loop_turn(struct wf_loop *loop)
{
    bind_thread(loop);
    WF_ASSERT(!loop->in_pass); /* a handler must not turn its own loop */
    loop->in_pass = true;
    loop->now_known = false;
    bool has_timers = loop->timers.count > 0, moved = false;
    bool is_stale = loop->scheduler.messages - loop->messages_at_clock >= CLOCK_MESSAGES;
    if (has_timers || (is_stale && loop->poller != NULL && loop->env != NULL)) {
        wf_loop_now_ns(loop);
    }
    if (loop->poller != NULL) {
        look(loop);
        moved |= loop->poller->ready_first != NULL && dispatch_watches(loop);
    }
    if (loop->sources != NULL) {
        moved |= progress_sources(loop);
    }
    if (has_timers) {
        moved |= wf_timers_fire(&loop->timers, loop->now_ns);
    }
    struct wf_env *chooser = loop->poller == NULL ? loop->env : NULL;
    moved |= wf_scheduler_pass(&loop->scheduler, chooser);
    loop->in_pass = false;
    loop->stats.passes += moved;
    return moved;
}

bool wf_loop_has_work(struct wf_loop *loop)
{
    assert_here(loop);
    return wf_scheduler_has_work(&loop->scheduler) ||
           (loop->poller != NULL && loop->poller->ready_first != NULL);
}

/* --- sleeping ----------------------------------------------------------------------------------
 */

static bool is_stopped(struct wf_loop *loop)
{
    return atomic_load_explicit(&loop->stop, memory_order_acquire);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* True when something came within spin_ns: a message from a thread that answers at once then costs
 * neither side a system call. */
static bool spin(struct wf_loop *loop)
{
    if (loop->spin_ns == 0) {
        return false;
    }
    loop->stats.spins++;
    uint64_t until_ns = wf_loop_now_ns(loop) + loop->spin_ns;
    do {
        for (unsigned i = 0; i < SPIN_CHECKS; i++) {
            if (wf_scheduler_has_work(&loop->scheduler)) {
                return true;
            }
            relax();
        }
        if (loop->sources != NULL && progress_sources(loop)) {
            return true;
        }
        loop->poller->ops->wait(loop->poller, 0, 0);
        if (loop->poller->ready_first != NULL || is_stopped(loop)) {
            return true;
        }
    } while (wf_loop_now_ns(loop) < until_ns && loop->now_ns < wf_timers_next_ns(&loop->timers));
    return false;
}

/* All inboxes that can be are marked empty by now (wf_actor_run does it as its last act), so what
 * is left is to say that the loop sleeps, and to block. */
static void sleep_until_something(struct wf_loop *loop)
{
    uint64_t now_ns = wf_loop_now_ns(loop), until_ns = wf_timers_next_ns(&loop->timers);
    if (until_ns <= now_ns || !wf_scheduler_try_sleep(&loop->scheduler)) {
        return;
    }
    /* A stop before this is seen here; one after it rings, and the wait ends. */
    if (is_stopped(loop) || !arm_sources(loop)) {
        wf_scheduler_take_wakes(&loop->scheduler);
        return;
    }
    loop->stats.sleeps++;
    loop->poller->ops->wait(loop->poller, now_ns, until_ns);
    bool woken = wf_scheduler_take_wakes(&loop->scheduler);
    loop->stats.wakes +=
        woken || loop->poller->ready_first != NULL || wf_loop_now_ns(loop) >= until_ns;
}

void wf_loop_run(struct wf_loop *loop)
{
    WF_ASSERT(loop->poller != NULL && loop->env != NULL);
    while (!is_stopped(loop)) {
        if (!wf_loop_turn(loop) && !spin(loop)) {
            sleep_until_something(loop);
        }
    }
    atomic_store_explicit(&loop->stop, false, memory_order_relaxed);
    atomic_store_explicit(&loop->scheduler.thread, (pthread_t)0, memory_order_relaxed);
}

void wf_loop_wake(struct wf_loop *loop)
{
    if (loop->poller != NULL) {
        loop->poller->ops->wake(loop->poller);
    }
}

void wf_loop_stop(struct wf_loop *loop)
{
    atomic_store_explicit(&loop->stop, true, memory_order_release);
    wf_loop_wake(loop);
}

struct wf_loop_stats wf_loop_stats(const struct wf_loop *loop)
{
    struct wf_loop_stats stats = loop->stats;
    stats.messages = loop->scheduler.messages;
    return stats;
}
