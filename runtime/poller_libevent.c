/* poller_libevent.c - the poller on an event_base of our own.
 *
 * libevent's callbacks only record. Its epoll backend is required: the wake descriptor relies on
 * edges, and hang-ups on EV_CLOSED. The base keeps at least the wake event, without which
 * EVLOOP_ONCE would return at once instead of waiting.
 */
#include "runtime/poller.h"

#include <event2/event.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NS_PER_US = 1000, US_PER_S = 1000000 };

struct libevent_poller {
    struct wf_poller base;
    struct event_base *events;
    struct event *timer, *wake;
    int wake_fd;
    uint64_t armed_ns; /* when `timer` fires, WF_NEVER_NS when it is off */
};

/* What a watch's poller_data points to: callbacks get the watch, and need the poller too. */
struct libevent_watch {
    struct libevent_poller *poller;
    struct wf_watch *watch;
    struct event *event;
};

static struct libevent_poller *of_base(struct wf_poller *poller)
{
    return (struct libevent_poller *)poller;
}

static void record(evutil_socket_t fd, short what, void *argument)
{
    (void)fd;
    struct libevent_watch *entry = argument;
    unsigned events = (what & EV_READ ? WF_READABLE : 0) | (what & EV_WRITE ? WF_WRITABLE : 0) |
                      (what & EV_CLOSED ? WF_READABLE | WF_HANGUP : 0);
    wf_poller_record(&entry->poller->base, entry->watch, events);
}

static void on_timer(evutil_socket_t fd, short what, void *argument)
{
    (void)fd;
    (void)what;
    ((struct libevent_poller *)argument)->armed_ns = WF_NEVER_NS;
}

/* The event has ended the wait by being there; edge-triggered, so nothing to read. */
static void on_wake(evutil_socket_t fd, short what, void *argument)
{
    (void)fd;
    (void)what;
    (void)argument;
}

static enum wf_status set_events(struct libevent_poller *poller, struct libevent_watch *entry,
                                 unsigned events)
{
    event_del(entry->event);
    if (events == 0) {
        return WF_OK;
    }
    short wanted = (short)(EV_PERSIST | (events & WF_READABLE ? EV_READ | EV_CLOSED : 0) |
                           (events & WF_WRITABLE ? EV_WRITE : 0));
    event_assign(entry->event, poller->events, entry->watch->fd, wanted, record, entry);
    return event_add(entry->event, NULL) == 0 ? WF_OK : WF_NO_RESOURCE;
}

/* libevent prints a warning of its own for these, so they are found before it is asked. */
static enum wf_status check_fd(int fd)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0) {
        return WF_INVALID;
    }
    return S_ISREG(stat.st_mode) || S_ISDIR(stat.st_mode) ? WF_UNSUPPORTED : WF_OK;
}

static void free_entry(struct libevent_watch *entry)
{
    if (entry->event != NULL) {
        event_free(entry->event);
    }
    free(entry);
}

static enum wf_status libevent_add(struct wf_poller *base, struct wf_watch *watch)
{
    watch->poller_data = NULL;
    watch->pending = 0;
    enum wf_status status = check_fd(watch->fd);
    if (status != WF_OK) {
        return status;
    }
    struct libevent_watch *entry = malloc(sizeof *entry);
    if (entry == NULL) {
        return WF_NO_MEMORY;
    }
    *entry = (struct libevent_watch){.poller = of_base(base), .watch = watch};
    entry->event = event_new(of_base(base)->events, watch->fd, EV_PERSIST, record, entry);
    status = entry->event != NULL ? set_events(of_base(base), entry, watch->events) : WF_NO_MEMORY;
    if (status != WF_OK) {
        free_entry(entry);
        return status;
    }
    watch->poller_data = entry;
    return WF_OK;
}

static enum wf_status libevent_modify(struct wf_poller *base, struct wf_watch *watch,
                                      unsigned events)
{
    if (events == watch->events) {
        return WF_OK;
    }
    enum wf_status status = set_events(of_base(base), watch->poller_data, events);
    if (status == WF_OK) {
        watch->events = events;
    }
    return status;
}

static void libevent_remove(struct wf_poller *base, struct wf_watch *watch)
{
    if (watch->poller_data != NULL) {
        free_entry(watch->poller_data);
        watch->poller_data = NULL;
    }
    wf_poller_forget(base, watch);
}

static void arm_timer(struct libevent_poller *poller, uint64_t now_ns, uint64_t until_ns)
{
    if (poller->armed_ns == until_ns) {
        return;
    }
    poller->armed_ns = until_ns;
    if (until_ns == WF_NEVER_NS) {
        event_del(poller->timer);
        return;
    }
    /* Rounded up: waking before the time would only lead to another sleep. */
    uint64_t left_us = (until_ns - now_ns + NS_PER_US - 1) / NS_PER_US;
    struct timeval left = {.tv_sec = (time_t)(left_us / US_PER_S),
                           .tv_usec = (suseconds_t)(left_us % US_PER_S)};
    event_add(poller->timer, &left);
}

static void libevent_wait(struct wf_poller *base, uint64_t now_ns, uint64_t until_ns)
{
    struct libevent_poller *poller = of_base(base);
    bool may_block = until_ns > now_ns;
    if (may_block) {
        arm_timer(poller, now_ns, until_ns);
    }
    /* EVLOOP_NONBLOCK alone goes on as long as anything is ready, so for ever here: who makes it
     * not ready is the pass that comes after. */
    event_base_loop(poller->events, EVLOOP_ONCE | (may_block ? 0 : EVLOOP_NONBLOCK));
}

static void libevent_wake(struct wf_poller *base)
{
    wf_poller_ring(of_base(base)->wake_fd);
}

static void libevent_free(struct wf_poller *base)
{
    struct libevent_poller *poller = of_base(base);
    if (poller->wake != NULL) {
        event_free(poller->wake);
    }
    if (poller->timer != NULL) {
        event_free(poller->timer);
    }
    if (poller->events != NULL) {
        event_base_free(poller->events);
    }
    if (poller->wake_fd >= 0) {
        close(poller->wake_fd);
    }
    free(poller);
}

/* No locks: only our thread calls it. No environment: a variable that takes epoll away would break
 * what the first comment says. */
static struct event_base *make_base(void)
{
    struct event_config *config = event_config_new();
    if (config == NULL) {
        return NULL;
    }
    event_config_require_features(config, EV_FEATURE_ET | EV_FEATURE_EARLY_CLOSE);
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK);
    event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV);
    event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

enum wf_status wf_poller_libevent_new(struct wf_poller **poller_out, struct wf_error *error)
{
    struct libevent_poller *poller = calloc(1, sizeof *poller);
    if (poller == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a poller");
    }
    static const struct wf_poller_ops ops = {
        .add = libevent_add,
        .modify = libevent_modify,
        .remove = libevent_remove,
        .wait = libevent_wait,
        .wake = libevent_wake,
        .free = libevent_free,
    };
    poller->base.ops = &ops;
    poller->armed_ns = WF_NEVER_NS;
    poller->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    poller->events = poller->wake_fd >= 0 ? make_base() : NULL;
    if (poller->events != NULL) {
        poller->timer = event_new(poller->events, -1, 0, on_timer, poller);
        poller->wake =
            event_new(poller->events, poller->wake_fd, EV_READ | EV_PERSIST | EV_ET, on_wake, NULL);
    }
    if (poller->timer == NULL || poller->wake == NULL || event_add(poller->wake, NULL) != 0) {
        libevent_free(&poller->base);
        return wf_error_set(error, WF_NO_RESOURCE,
                            "cannot make a libevent base with its epoll backend (version %s); "
                            "raise the limit of open files, or use the epoll poller",
                            event_get_version());
    }
    *poller_out = &poller->base;
    return WF_OK;
}
