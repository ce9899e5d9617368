/* stderr_log.h - what the lower parts warn of, on the standard error of a process of a job.
 *
 * The object must live as long as the loop uses it; loop thread only.
 */
#ifndef WEFT_TOOLS_RUN_STDERR_LOG_H
#define WEFT_TOOLS_RUN_STDERR_LOG_H

#include "runtime/log.h"
#include "runtime/loop.h"

struct wf_stderr_log {
    struct wf_log_fd sink;
    struct wf_log log;
};

/* Warnings and errors of `loop`, whose env is set already, go to standard error as `who`'s. */
void wf_stderr_log_init(struct wf_stderr_log *log, struct wf_loop *loop, const char *who);
/* After the loop's last turn. */
void wf_stderr_log_fini(struct wf_stderr_log *log);

#endif
