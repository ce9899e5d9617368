/* far.h - processes of a job on other hosts, started through a remote shell.
 *
 * Near end: a child of ours that runs `ssh HOST "exec weft run JOB ..."` (or what WEFT_RSH says
 * instead of ssh and its options). Its standard input is the gate: first the line "token HEX", so
 * that the token appears in no command line, then the gate's lines. When this process ends, however
 * it ends, the child dies with it (PR_SET_PDEATHSIG), the connection closes, and the far end sees
 * the end of its standard input. What the far end writes to its standard error comes out here, each
 * line with the host's name before it.
 *
 * Far end: `weft run --gate-stdin` makes of its standard input what a process of this host finds at
 * descriptor 3, and of the token a file that only it has. It is two processes: the outer one copies
 * the gate and kills the rank when standard input ends, so that a frozen rank goes too; the rank
 * dies with it.
 *
 * Nothing is copied: the program (or what WEFT_REMOTE names), the job file and the model have to be
 * at the same paths on every host. Loop thread only.
 */
#ifndef WEFT_TOOLS_RUN_FAR_H
#define WEFT_TOOLS_RUN_FAR_H

#include "actors/token.h"
#include "tools/run/children.h"
#include "tools/run/hosts.h"

enum { WF_FAR_COMMAND_MAX = 16 << 10, WF_FAR_LINE_MAX = 1024 };

/* The standard error of one far process. Zeroed is none. */
struct wf_far_output {
    struct wf_watch watch;
    struct wf_loop *loop;
    const char *host; /* borrows */
    void (*said)(void *user, const char *host, const char *line);
    void *user;
    char line[WF_FAR_LINE_MAX];
    size_t len;
    bool open;
};

/* "exec '/usr/bin/weft' 'run' ..." for a POSIX shell: every word quoted. False: it is too long. */
bool wf_far_command(const char *program, const char *const *arguments,
                    char command_out[WF_FAR_COMMAND_MAX]);
/* Starts the child there and sends it the token. `output->said` and `user` are set by the caller,
 * the rest here. */
enum wf_status wf_far_start(struct wf_children *all, struct wf_child *child,
                            const struct wf_run_host *host, const char *const *arguments,
                            const struct wf_token *token, struct wf_far_output *output,
                            struct wf_error *error);
/* Says what is left and stops watching. */
void wf_far_output_fini(struct wf_far_output *output);

/* The far end, before there are threads: returns in the rank's process, where descriptor 3 is the
 * gate and `path_out` the token's file. CONNECTION: the first line did not come or is no token. */
enum wf_status wf_far_take_gate(char path_out[WF_PATH_MAX], struct wf_error *error);

#endif
