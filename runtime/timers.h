/* timers.h - the timers of one loop, earliest first: a 4-ary heap of pointers.
 *
 * Inside the runtime only (loop.c); everyone else uses wf_timer_* of loop.h. Loop thread.
 */
#ifndef WEFT_RUNTIME_TIMERS_H
#define WEFT_RUNTIME_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/loop.h"

struct wf_timers {
    struct wf_timer **heap; /* owns the array, borrows the timers */
    size_t count, capacity;
    uint64_t next_order;
};

/* Zeroed is empty. Armed timers are forgotten. */
void wf_timers_fini(struct wf_timers *timers);
void wf_timers_arm(struct wf_timers *timers, struct wf_timer *timer, uint64_t due_ns);
void wf_timers_cancel(struct wf_timers *timers, struct wf_timer *timer);
/* When the first is due, or WF_NEVER_NS. */
uint64_t wf_timers_next_ns(const struct wf_timers *timers);
/* Fires what is due at now_ns, but nothing that was armed meanwhile; true if any fired. */
bool wf_timers_fire(struct wf_timers *timers, uint64_t now_ns);

#endif
