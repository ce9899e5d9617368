/* signals.c - SIGTERM and SIGINT by a descriptor. */
#include "tools/run/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void ready(struct wf_watch *watch, unsigned events)
{
    (void)events;
    struct wf_signals *signals = WF_CONTAINER(watch, struct wf_signals, watch);
    struct signalfd_siginfo info;
    if (read(watch->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        signals->came(signals->user);
    }
}

enum wf_status wf_signals_open(struct wf_signals *signals, struct wf_loop *loop,
                               void (*came)(void *user), void *user, struct wf_error *error)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    *signals = (struct wf_signals){.watch = {.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
                                             .events = WF_READABLE,
                                             .ready = ready},
                                   .loop = loop,
                                   .came = came,
                                   .user = user};
    if (signals->watch.fd < 0 || wf_watch_add(loop, &signals->watch) != WF_OK) {
        int number = errno;
        if (signals->watch.fd >= 0) {
            close(signals->watch.fd);
        }
        return wf_error_set(error, WF_NO_RESOURCE, "cannot watch signals: %s%s", strerror(number),
                            wf_errno_advice(number));
    }
    signals->is_open = true;
    return WF_OK;
}

void wf_signals_close(struct wf_signals *signals)
{
    if (signals->is_open) {
        wf_watch_remove(signals->loop, &signals->watch);
        close(signals->watch.fd);
        signals->is_open = false;
    }
}
