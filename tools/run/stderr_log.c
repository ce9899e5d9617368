/* stderr_log.c - a loop's log on standard error. */
#include "tools/run/stderr_log.h"

#include <unistd.h>

void wf_stderr_log_init(struct wf_stderr_log *log, struct wf_loop *loop, const char *who)
{
    wf_log_fd_init(&log->sink, STDERR_FILENO);
    wf_log_init(&log->log, &log->sink.sink, wf_loop_env(loop), WF_LOG_WARN, who);
    wf_loop_set_log(loop, &log->log);
}

void wf_stderr_log_fini(struct wf_stderr_log *log)
{
    wf_log_fd_fini(&log->sink);
}
