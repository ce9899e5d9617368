/* scheduler.c - the run list, and the wake list by which other threads reach it. */
#include "runtime/scheduler.h"

#include "runtime/loop.h"

static struct wf_actor *of_run_link(struct wf_mail *link)
{
    return WF_CONTAINER(link, struct wf_actor, run_link);
}

static struct wf_actor *of_wake_link(struct wf_mail *link)
{
    return WF_CONTAINER(link, struct wf_actor, wake_link);
}

static struct wf_mail *sleeping(void)
{
    return (struct wf_mail *)(uintptr_t)WF_SCHEDULER_SLEEPING;
}

void wf_scheduler_init(struct wf_scheduler *scheduler)
{
    atomic_init(&scheduler->wakes, NULL);
    atomic_init(&scheduler->thread, (pthread_t)0);
}

void wf_scheduler_remove(struct wf_scheduler *scheduler, struct wf_actor *actor)
{
    size_t count = scheduler->runnable;
    for (size_t i = 0; i < count; i++) {
        struct wf_mail *link = wf_mail_list_pop(&scheduler->run);
        if (link == &actor->run_link) {
            scheduler->runnable--;
            actor->scheduled = false;
        } else {
            wf_mail_list_push(&scheduler->run, link);
        }
    }
}

bool wf_scheduler_wake(struct wf_scheduler *scheduler, struct wf_actor *actor)
{
    struct wf_mail *link = &actor->wake_link;
    struct wf_mail *old = atomic_load_explicit(&scheduler->wakes, memory_order_relaxed);
    /* Release pairs with the acquire in take_wakes: the loop must see the link and the message that
     * was pushed to the inbox before it. */
    do {
        atomic_store_explicit(&link->next, old == sleeping() ? NULL : old, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&scheduler->wakes, &old, link,
                                                    memory_order_release, memory_order_relaxed));
    return old == sleeping();
}

bool wf_scheduler_take_wakes(struct wf_scheduler *scheduler)
{
    if (atomic_load_explicit(&scheduler->wakes, memory_order_relaxed) == NULL) {
        return false;
    }
    struct wf_mail *link = atomic_exchange_explicit(&scheduler->wakes, NULL, memory_order_acquire);
    if (link == sleeping()) {
        return false;
    }
    /* The stack has the last one first; turn it, so that whoever was woken first runs first. */
    struct wf_mail *first = NULL;
    while (link != NULL) {
        struct wf_mail *next = atomic_load_explicit(&link->next, memory_order_relaxed);
        atomic_store_explicit(&link->next, first, memory_order_relaxed);
        first = link;
        link = next;
    }
    while (first != NULL) {
        struct wf_actor *actor = of_wake_link(first);
        first = atomic_load_explicit(&first->next, memory_order_relaxed);
        actor->inbox_awake = true;
        if (!actor->scheduled) {
            wf_scheduler_add(scheduler, actor);
        }
    }
    return true;
}

bool wf_scheduler_try_sleep(struct wf_scheduler *scheduler)
{
    struct wf_mail *expected = NULL;
    /* The order against a pusher comes from both changing this one word. */
    return scheduler->runnable == 0 &&
           atomic_compare_exchange_strong_explicit(&scheduler->wakes, &expected, sleeping(),
                                                   memory_order_relaxed, memory_order_relaxed);
}

/* Takes any of the run list's first `count`, which are there, by choice. */
static struct wf_mail *pick(struct wf_scheduler *scheduler, size_t count, struct wf_env *chooser)
{
    uint64_t skip = count > 1 ? chooser->ops->choose(chooser, count) : 0;
    struct wf_mail *before = NULL, *link = scheduler->run.first;
    for (; skip > 0; skip--) {
        before = link;
        link = atomic_load_explicit(&link->next, memory_order_relaxed);
    }
    if (before == NULL) {
        return wf_mail_list_pop(&scheduler->run);
    }
    struct wf_mail *next = atomic_load_explicit(&link->next, memory_order_relaxed);
    atomic_store_explicit(&before->next, next, memory_order_relaxed);
    if (next == NULL) {
        scheduler->run.last = before;
    }
    return link;
}

bool wf_scheduler_pass(struct wf_scheduler *scheduler, struct wf_env *chooser)
{
    wf_scheduler_take_wakes(scheduler);
    size_t count = scheduler->runnable;
    /* Handlers may take others off the list (fini), so it can be shorter than what is left. */
    for (size_t left = count; left > 0 && scheduler->runnable > 0; left--) {
        struct wf_mail *link;
        unsigned limit = WF_TURN_MESSAGES;
        if (chooser == NULL) {
            link = wf_mail_list_pop(&scheduler->run);
        } else {
            link =
                pick(scheduler, left < scheduler->runnable ? left : scheduler->runnable, chooser);
            limit = 1 + (unsigned)chooser->ops->choose(chooser, WF_TURN_MESSAGES);
        }
        scheduler->runnable--;
        struct wf_actor *actor = of_run_link(link);
        scheduler->running = actor;
        if (wf_actor_run(actor, limit)) {
            wf_scheduler_add(scheduler, actor);
        } else {
            actor->scheduled = false;
        }
        scheduler->running = NULL;
    }
    return count > 0;
}
