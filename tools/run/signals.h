/* signals.h - SIGTERM and SIGINT of a process of a job, as a call in a pass of its loop. */
#ifndef WEFT_TOOLS_RUN_SIGNALS_H
#define WEFT_TOOLS_RUN_SIGNALS_H

#include "runtime/loop.h"

/* Caller-owned. Zeroed is closed. */
struct wf_signals {
    struct wf_watch watch;
    bool is_open;
    struct wf_loop *loop; /* borrows */
    void (*came)(void *user);
    void *user;
};

/* Blocks both signals and begins to watch them: `came` is called for each. Loop thread. */
enum wf_status wf_signals_open(struct wf_signals *signals, struct wf_loop *loop,
                               void (*came)(void *user), void *user, struct wf_error *error);
void wf_signals_close(struct wf_signals *signals); /* closed is fine */

#endif
