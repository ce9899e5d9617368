/* timers.c - the heap behind a loop's timers. */
#include "runtime/timers.h"

#include <stdlib.h>

enum { HEAP_WAYS = 4, HEAP_FIRST_CAPACITY = 16 };

static bool is_before(const struct wf_timer *a, const struct wf_timer *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void place(struct wf_timers *timers, size_t index, struct wf_timer *timer)
{
    timers->heap[index] = timer;
    timer->heap_index_plus_1 = (uint32_t)(index + 1);
}

static void sift_up(struct wf_timers *timers, size_t index, struct wf_timer *timer)
{
    while (index > 0) {
        size_t parent = (index - 1) / HEAP_WAYS;
        if (!is_before(timer, timers->heap[parent])) {
            break;
        }
        place(timers, index, timers->heap[parent]);
        index = parent;
    }
    place(timers, index, timer);
}

static void sift_down(struct wf_timers *timers, size_t index, struct wf_timer *timer)
{
    for (;;) {
        size_t best = index * HEAP_WAYS + 1, end = best + HEAP_WAYS;
        if (best >= timers->count) {
            break;
        }
        for (size_t child = best + 1; child < end && child < timers->count; child++) {
            if (is_before(timers->heap[child], timers->heap[best])) {
                best = child;
            }
        }
        if (!is_before(timers->heap[best], timer)) {
            break;
        }
        place(timers, index, timers->heap[best]);
        index = best;
    }
    place(timers, index, timer);
}

/* Moves `timer` from `index` to where its key belongs. */
static void settle(struct wf_timers *timers, size_t index, struct wf_timer *timer)
{
    if (index > 0 && is_before(timer, timers->heap[(index - 1) / HEAP_WAYS])) {
        sift_up(timers, index, timer);
    } else {
        sift_down(timers, index, timer);
    }
}

static void grow(struct wf_timers *timers)
{
    size_t capacity = timers->capacity == 0 ? HEAP_FIRST_CAPACITY : 2 * timers->capacity;
    struct wf_timer **heap = realloc(timers->heap, capacity * sizeof *heap);
    /* A wait without its deadline would be worse than no process: there is no way on. */
    WF_ASSERT(heap != NULL && capacity < UINT32_MAX);
    timers->heap = heap;
    timers->capacity = capacity;
}

void wf_timers_fini(struct wf_timers *timers)
{
    free(timers->heap);
    *timers = (struct wf_timers){0};
}

void wf_timers_arm(struct wf_timers *timers, struct wf_timer *timer, uint64_t due_ns)
{
    timer->due_ns = due_ns;
    timer->order = timers->next_order++;
    if (timer->heap_index_plus_1 != 0) {
        settle(timers, timer->heap_index_plus_1 - 1, timer);
        return;
    }
    if (timers->count == timers->capacity) {
        grow(timers);
    }
    timers->count++;
    sift_up(timers, timers->count - 1, timer);
}

void wf_timers_cancel(struct wf_timers *timers, struct wf_timer *timer)
{
    if (timer->heap_index_plus_1 == 0) {
        return;
    }
    size_t index = timer->heap_index_plus_1 - 1;
    timer->heap_index_plus_1 = 0;
    timers->count--;
    struct wf_timer *last = timers->heap[timers->count];
    if (last != timer) {
        settle(timers, index, last);
    }
}

uint64_t wf_timers_next_ns(const struct wf_timers *timers)
{
    return timers->count > 0 ? timers->heap[0]->due_ns : WF_NEVER_NS;
}

bool wf_timers_fire(struct wf_timers *timers, uint64_t now_ns)
{
    uint64_t armed_meanwhile = timers->next_order;
    bool fired = false;
    while (timers->count > 0) {
        struct wf_timer *timer = timers->heap[0];
        if (timer->due_ns > now_ns || timer->order >= armed_meanwhile) {
            break;
        }
        wf_timers_cancel(timers, timer);
        timer->fire(timer);
        fired = true;
    }
    return fired;
}
