/* poller_epoll.c - the poller as one epoll descriptor with a timerfd and an eventfd in it.
 *
 * One descriptor tells all, so a host's own event loop can poll it in place of ours.
 */
#include "runtime/poller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    NS_PER_S = 1000000000,
    EPOLL_BATCH = 64, /* reported by one wait; the rest by the next */
};

struct epoll_poller {
    struct wf_poller base;
    int epoll_fd, timer_fd, wake_fd;
    uint64_t armed_ns; /* what the timerfd is set to, WF_NEVER_NS when it is off */
};

static struct epoll_poller *of_base(struct wf_poller *poller)
{
    return (struct epoll_poller *)poller;
}

static uint32_t epoll_bits(unsigned events)
{
    return (events & WF_READABLE ? EPOLLIN | EPOLLRDHUP : 0) |
           (events & WF_WRITABLE ? EPOLLOUT : 0);
}

/* With no bits set epoll would still report hang-ups, so a silent watch is not in the set;
 * poller_data says whether it is. */
static enum wf_status control(struct epoll_poller *poller, struct wf_watch *watch, unsigned events)
{
    struct epoll_event event = {.events = epoll_bits(events), .data.ptr = watch};
    bool is_in = watch->poller_data != NULL;
    if (!is_in && events == 0) {
        return WF_OK;
    }
    int op = !is_in ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    if (epoll_ctl(poller->epoll_fd, op, watch->fd, &event) != 0) {
        return wf_poller_status(errno);
    }
    watch->poller_data = events != 0 ? watch : NULL;
    return WF_OK;
}

static enum wf_status epoll_add(struct wf_poller *base, struct wf_watch *watch)
{
    watch->poller_data = NULL;
    watch->pending = 0;
    return control(of_base(base), watch, watch->events);
}

static enum wf_status epoll_modify(struct wf_poller *base, struct wf_watch *watch, unsigned events)
{
    if (events == watch->events) {
        return WF_OK;
    }
    enum wf_status status = control(of_base(base), watch, events);
    if (status == WF_OK) {
        watch->events = events;
    }
    return status;
}

static void epoll_remove(struct wf_poller *base, struct wf_watch *watch)
{
    control(of_base(base), watch, 0);
    watch->poller_data = NULL;
    wf_poller_forget(base, watch);
}

/* Setting it costs a system call, so it stays as it is while the same time is waited for. */
static void arm_timer(struct epoll_poller *poller, uint64_t now_ns, uint64_t until_ns)
{
    if (poller->armed_ns == until_ns) {
        return;
    }
    struct itimerspec spec = {0};
    if (until_ns != WF_NEVER_NS) {
        uint64_t left_ns = until_ns - now_ns;
        spec.it_value.tv_sec = (time_t)(left_ns / NS_PER_S);
        spec.it_value.tv_nsec = (long)(left_ns % NS_PER_S);
    }
    timerfd_settime(poller->timer_fd, 0, &spec, NULL);
    poller->armed_ns = until_ns;
}

static void record(struct epoll_poller *poller, const struct epoll_event *event)
{
    if (event->data.ptr == &poller->wake_fd) {
        return; /* edge-triggered: nothing to read */
    }
    if (event->data.ptr == &poller->timer_fd) {
        poller->armed_ns = WF_NEVER_NS;
        return;
    }
    struct wf_watch *watch = event->data.ptr;
    unsigned events =
        (event->events & EPOLLIN ? WF_READABLE : 0) | (event->events & EPOLLOUT ? WF_WRITABLE : 0);
    if (event->events & (EPOLLERR | EPOLLHUP)) {
        events |= WF_READABLE | WF_WRITABLE;
    }
    if (event->events & EPOLLRDHUP) {
        events |= WF_READABLE | WF_HANGUP;
    }
    wf_poller_record(&poller->base, watch, events);
}

static void epoll_look(struct wf_poller *base, uint64_t now_ns, uint64_t until_ns)
{
    struct epoll_poller *poller = of_base(base);
    struct epoll_event events[EPOLL_BATCH];
    bool may_block = until_ns > now_ns;
    if (may_block) {
        arm_timer(poller, now_ns, until_ns);
    }
    int count = epoll_wait(poller->epoll_fd, events, EPOLL_BATCH, may_block ? -1 : 0);
    for (int i = 0; i < count; i++) {
        record(poller, &events[i]);
    }
}

static void epoll_wake(struct wf_poller *base)
{
    wf_poller_ring(of_base(base)->wake_fd);
}

static void epoll_free(struct wf_poller *base)
{
    struct epoll_poller *poller = of_base(base);
    int fds[] = {poller->epoll_fd, poller->timer_fd, poller->wake_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    free(poller);
}

static const struct wf_poller_ops epoll_ops = {
    .add = epoll_add,
    .modify = epoll_modify,
    .remove = epoll_remove,
    .wait = epoll_look,
    .wake = epoll_wake,
    .free = epoll_free,
};

/* Both are edge-triggered: each write, each expiry is an edge, so neither needs to be read. */
static bool add_own(struct epoll_poller *poller, int *fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = fd};
    return *fd >= 0 && epoll_ctl(poller->epoll_fd, EPOLL_CTL_ADD, *fd, &event) == 0;
}

enum wf_status wf_poller_epoll_new(struct wf_poller **poller_out, struct wf_error *error)
{
    struct epoll_poller *poller = calloc(1, sizeof *poller);
    if (poller == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a poller");
    }
    poller->base.ops = &epoll_ops;
    poller->armed_ns = WF_NEVER_NS;
    poller->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    poller->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    poller->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (poller->epoll_fd < 0 || !add_own(poller, &poller->timer_fd) ||
        !add_own(poller, &poller->wake_fd)) {
        int error_number = errno;
        epoll_free(&poller->base);
        return wf_error_set(error, WF_NO_RESOURCE,
                            "cannot make the three descriptors of a loop (epoll, timerfd, "
                            "eventfd): %s; raise the limit of open files",
                            strerror(error_number));
    }
    *poller_out = &poller->base;
    return WF_OK;
}
