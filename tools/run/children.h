/* children.h - the processes of a job on this host: start, watch, end.
 *
 * Each child is this same program with other arguments, or a remote shell. It dies with its parent
 * (PR_SET_PDEATHSIG), so that a parent killed without warning leaves nothing behind. Exits are seen
 * through pidfds on the parent's loop. Loop thread only.
 */
#ifndef WEFT_TOOLS_RUN_CHILDREN_H
#define WEFT_TOOLS_RUN_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/loop.h"
#include "runtime/status.h"

enum { WF_CHILD_ARGS_MAX = 64 };
enum wf_child_kind { WF_CHILD_SERVER, WF_CHILD_TRAIN, WF_CHILD_INFER, WF_CHILD_READER };

struct wf_children;
struct wf_child {
    enum wf_child_kind kind;
    uint32_t number; /* rank, or engine of a reader */
    pid_t pid;       /* 0: not running */
    int gate;        /* writing end of the pipe that is its descriptor 3, or -1 */
    uint32_t starts;
    /* On another host (tools/run/far.h): its name, then `arguments` begin with a program's name,
     * the gate is its standard input, and its standard error is err_fd. NULL: on this host. */
    const char *far_host;
    int err_fd;
    struct wf_timer frozen; /* the owner's; cancelled when the child ends */
    /* private */
    struct wf_watch watch;
    int pidfd;
    struct wf_children *all;
    int exit_status; /* of waitpid */
};

struct wf_children {
    struct wf_loop *loop;
    struct wf_child *children;
    uint32_t count;
    /* A child ended; child->pid is 0 already. `text` says how: "was killed by signal 9 (Killed)".
     */
    void (*ended)(void *user, struct wf_child *child, bool clean, const char *text);
    void *user;
};

/* Starts the child with `arguments` (NULL-terminated, without the program's name). `out_fd`: its
 * standard output, or -1 for none (it writes nothing there). Its standard error is ours. */
enum wf_status wf_child_start(struct wf_children *all, struct wf_child *child,
                              const char *const *arguments, int out_fd, struct wf_error *error);
/* Sends a signal to all that run. */
void wf_children_signal(struct wf_children *all, int signal_number);
uint32_t wf_children_running(const struct wf_children *all);
/* Kills what still runs and waits for it. */
void wf_children_fini(struct wf_children *all);
/* Writes a line to the child's gate; false if it is gone. */
bool wf_child_tell(struct wf_child *child, const char *line);

#endif
