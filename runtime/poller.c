/* poller.c - what both pollers share: the list of ready watches. */
#include "runtime/poller.h"

#include <errno.h>
#include <unistd.h>

void wf_poller_record(struct wf_poller *poller, struct wf_watch *watch, unsigned events)
{
    if (watch->pending == 0 && events != 0) {
        watch->next_ready = NULL;
        if (poller->ready_last == NULL) {
            poller->ready_first = watch;
        } else {
            poller->ready_last->next_ready = watch;
        }
        poller->ready_last = watch;
    }
    watch->pending |= events;
}

void wf_poller_forget(struct wf_poller *poller, struct wf_watch *watch)
{
    if (watch->pending == 0) {
        return;
    }
    struct wf_watch *before = NULL;
    for (struct wf_watch *w = poller->ready_first; w != watch; w = w->next_ready) {
        before = w;
    }
    if (before == NULL) {
        poller->ready_first = watch->next_ready;
    } else {
        before->next_ready = watch->next_ready;
    }
    if (poller->ready_last == watch) {
        poller->ready_last = before;
    }
    watch->pending = 0;
}

struct wf_watch *wf_poller_take(struct wf_poller *poller, unsigned *events_out)
{
    for (;;) {
        struct wf_watch *watch = poller->ready_first;
        if (watch == NULL) {
            return NULL;
        }
        poller->ready_first = watch->next_ready;
        if (poller->ready_first == NULL) {
            poller->ready_last = NULL;
        }
        unsigned events = watch->pending;
        watch->pending = 0;
        /* It may have been modified after the wait that recorded this. */
        unsigned wanted = events & watch->events;
        if (wanted != 0) {
            *events_out = wanted | (events & WF_HANGUP);
            return watch;
        }
    }
}

enum wf_status wf_poller_status(int error_number)
{
    switch (error_number) {
    case EPERM:
        return WF_UNSUPPORTED;
    case ENOMEM:
        return WF_NO_MEMORY;
    case ENOSPC:
        return WF_NO_RESOURCE;
    case EBADF:
    case EEXIST:
    case EINVAL:
        return WF_INVALID;
    default:
        return WF_IO;
    }
}

void wf_poller_ring(int event_fd)
{
    int kept = errno;
    uint64_t one = 1;
    /* It can only fail when the counter is full, and then the descriptor is readable anyway. */
    ssize_t written = write(event_fd, &one, sizeof one);
    (void)written;
    errno = kept;
}
