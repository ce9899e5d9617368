/* children.c - fork, exec, pidfd. */
#include "tools/run/children.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GATE_FD = 3, EXEC_FAILED = 127 };

static void describe_exit(int status, char *text, size_t size, bool *clean)
{
    *clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (WIFSIGNALED(status)) {
        snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else {
        snprintf(text, size, "ended with status %d", WEXITSTATUS(status));
    }
}

static void child_exited(struct wf_watch *watch, unsigned events)
{
    (void)events;
    struct wf_child *child = WF_CONTAINER(watch, struct wf_child, watch);
    if (child->pid == 0 || waitpid(child->pid, &child->exit_status, WNOHANG) <= 0) {
        return;
    }
    wf_timer_cancel(child->all->loop, &child->frozen);
    wf_watch_remove(child->all->loop, watch);
    close(child->pidfd);
    if (child->gate >= 0) {
        close(child->gate);
    }
    child->gate = -1;
    child->pid = 0;
    char text[96];
    bool clean = false;
    describe_exit(child->exit_status, text, sizeof text, &clean);
    child->all->ended(child->all->user, child, clean, text);
}

/* In the child: only async-signal-safe calls between fork and exec. */
static _Noreturn void become(pid_t parent, const struct wf_child *child, int gate_read, int out_fd,
                             char *const *arguments)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(EXEC_FAILED);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    bool far = child->far_host != NULL;
    int null = open("/dev/null", O_RDWR);
    dup2(far ? gate_read : null, STDIN_FILENO);
    dup2(out_fd >= 0 ? out_fd : null, STDOUT_FILENO);
    if (far) {
        dup2(child->err_fd, STDERR_FILENO);
    } else if (gate_read == GATE_FD) {
        fcntl(gate_read, F_SETFD, 0);
    } else {
        dup2(gate_read, GATE_FD);
    }
    setpgid(0,
            0); /* a terminal's interrupt reaches the parent alone, which ends the job in order */
    if (far) {
        execvp(arguments[0], arguments);
    } else {
        execv("/proc/self/exe", arguments);
    }
    _exit(EXEC_FAILED);
}

static enum wf_status watch_child(struct wf_children *all, struct wf_child *child,
                                  struct wf_error *error)
{
    child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    if (child->pidfd < 0) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot watch a process: %s%s", strerror(errno),
                            wf_errno_advice(errno));
    }
    fcntl(child->pidfd, F_SETFD, FD_CLOEXEC);
    child->watch =
        (struct wf_watch){.fd = child->pidfd, .events = WF_READABLE, .ready = child_exited};
    enum wf_status status = wf_watch_add(all->loop, &child->watch);
    if (status != WF_OK) {
        close(child->pidfd);
        wf_error_set(error, status, "cannot watch process %d", (int)child->pid);
    }
    return status;
}

enum wf_status wf_child_start(struct wf_children *all, struct wf_child *child,
                              const char *const *arguments, int out_fd, struct wf_error *error)
{
    char *list[WF_CHILD_ARGS_MAX + 2] = {(char *)"weft"};
    int count = child->far_host == NULL ? 1 : 0;
    for (int i = 0; arguments[i] != NULL; i++) {
        WF_ASSERT(count <= WF_CHILD_ARGS_MAX);
        list[count++] = (char *)arguments[i];
    }
    int gate[2];
    if (pipe2(gate, O_CLOEXEC) != 0) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot make a pipe to a process: %s%s",
                            strerror(errno), wf_errno_advice(errno));
    }
    pid_t parent = getpid();
    fflush(NULL);
    child->pid = fork();
    if (child->pid == 0) {
        become(parent, child, gate[0], out_fd, list);
    }
    int saved = errno;
    close(gate[0]);
    if (child->pid < 0) {
        child->pid = 0;
        close(gate[1]);
        return wf_error_set(error, WF_NO_RESOURCE, "cannot start a process: %s%s", strerror(saved),
                            saved == EAGAIN ? "; raise the limit of processes (ulimit -u)"
                                            : wf_errno_advice(saved));
    }
    child->all = all;
    child->gate = gate[1];
    child->starts++;
    enum wf_status status = watch_child(all, child, error);
    if (status != WF_OK) {
        kill(child->pid, SIGKILL);
        waitpid(child->pid, NULL, 0);
        close(child->gate);
        child->gate = -1;
        child->pid = 0;
    }
    return status;
}

void wf_children_signal(struct wf_children *all, int signal_number)
{
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->children[i].pid > 0) {
            kill(all->children[i].pid, signal_number);
        }
    }
}

uint32_t wf_children_running(const struct wf_children *all)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        running += all->children[i].pid > 0;
    }
    return running;
}

void wf_children_fini(struct wf_children *all)
{
    wf_children_signal(all, SIGKILL);
    for (uint32_t i = 0; i < all->count; i++) {
        struct wf_child *child = &all->children[i];
        if (child->pid > 0) {
            waitpid(child->pid, NULL, 0);
            wf_timer_cancel(all->loop, &child->frozen);
            wf_watch_remove(all->loop, &child->watch);
            close(child->pidfd);
            close(child->gate);
            child->pid = 0;
        }
    }
    free(all->children);
    all->children = NULL;
    all->count = 0;
}

bool wf_child_tell(struct wf_child *child, const char *line)
{
    if (child->gate < 0) {
        return false;
    }
    size_t len = strlen(line);
    return write(child->gate, line, len) == (ssize_t)len;
}
