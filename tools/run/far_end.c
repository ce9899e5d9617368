/* far_end.c - the far end of a process on another host: standard input becomes token and gate. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/run/far.h"
#include "tools/run/process.h"

enum { TOKEN_WAIT_MS = 30000, COPY_BYTES = 4096 };

/* Reads up to the line's end and no further: what follows is the gate's. */
static enum wf_status read_line(char *line, size_t size, struct wf_error *error)
{
    size_t len = 0;
    struct pollfd wait = {.fd = STDIN_FILENO, .events = POLLIN};
    while (len + 1 < size && poll(&wait, 1, TOKEN_WAIT_MS) == 1 &&
           read(STDIN_FILENO, line + len, 1) == 1) {
        if (line[len] == '\n') {
            line[len] = '\0';
            return WF_OK;
        }
        len++;
    }
    return wf_error_set(error, WF_CONNECTION,
                        "--gate-stdin: expected a line with the token on standard input within "
                        "%d s; it is for weft run --hosts",
                        TOKEN_WAIT_MS / 1000);
}

/* --- the keeper ------------------------------------------------------------------------------- */
struct keeper {
    pid_t pid;
    int pidfd, gate; /* the writing end of the rank's gate */
    char bytes[COPY_BYTES];
    size_t at, len; /* of what the gate has not taken yet */
};

/* Copies what can be copied now; false: standard input has ended. */
static bool copy_some(struct keeper *keeper, short input, short output)
{
    if (keeper->len == 0 && input != 0) {
        ssize_t got = read(STDIN_FILENO, keeper->bytes, sizeof keeper->bytes);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
            return false;
        }
        keeper->at = 0;
        keeper->len = got > 0 ? (size_t)got : 0;
    } else if (input & (POLLHUP | POLLRDHUP | POLLERR)) {
        return false; /* and the rank does not take what came before */
    } else if (output != 0) {
        ssize_t put = write(keeper->gate, keeper->bytes + keeper->at, keeper->len);
        bool later = put < 0 && (errno == EINTR || errno == EAGAIN);
        size_t taken = put > 0 ? (size_t)put : later ? 0 : keeper->len; /* gone: it is ending */
        keeper->at += taken;
        keeper->len -= taken;
    }
    return true;
}

/* Copies the gate until the rank ends, or standard input: then the rank is killed, as one that is
 * frozen would never read that its gate has closed. Ends as the rank did. */
static _Noreturn void keep(struct keeper *keeper)
{
    bool open = keeper->pidfd >= 0, ended = false;
    int status = 0;
    fcntl(keeper->gate, F_SETFL, O_NONBLOCK);
    while (open && !ended) {
        struct pollfd waits[] = {
            {.fd = STDIN_FILENO, .events = (short)(POLLRDHUP | (keeper->len == 0 ? POLLIN : 0))},
            {.fd = keeper->len > 0 ? keeper->gate : -1, .events = POLLOUT},
            {.fd = keeper->pidfd, .events = POLLIN}};
        int ready = poll(waits, sizeof waits / sizeof waits[0], -1);
        ended = ready > 0 && waits[2].revents != 0;
        if (ready < 0) {
            open = errno == EINTR;
        } else if (!ended) {
            open = copy_some(keeper, waits[0].revents, waits[1].revents);
        }
    }
    if (!open) {
        kill(keeper->pid, SIGKILL);
    }
    while (waitpid(keeper->pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status)) {
        kill(getpid(), SIGKILL); /* the remote shell tells the near end that it was a signal */
    }
    _exit(WEXITSTATUS(status));
}

/* Returns in the rank's process, which has the gate and dies with the one that keeps it. */
static enum wf_status become_rank(struct wf_error *error)
{
    struct keeper keeper = {0};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot make the gate: %s", strerror(errno));
    }
    pid_t parent = getpid();
    fflush(NULL);
    keeper.pid = fork();
    if (keeper.pid < 0) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot start a process: %s", strerror(errno));
    }
    if (keeper.pid > 0) {
        close(ends[0]);
        keeper.gate = ends[1];
        keeper.pidfd = (int)syscall(SYS_pidfd_open, keeper.pid, 0);
        if (keeper.pidfd < 0) {
            fprintf(stderr, "weft run: cannot watch a process: %s\n", strerror(errno));
        }
        keep(&keeper);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    close(ends[1]);
    if (dup2(ends[0], WF_GATE_FD) < 0) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot make the gate: %s", strerror(errno));
    }
    if (ends[0] != WF_GATE_FD) {
        close(ends[0]);
    }
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    close(null);
    return WF_OK;
}

/* Only this process can open the token by the path. */
static enum wf_status keep_token(const char *text, char path_out[WF_PATH_MAX],
                                 struct wf_error *error)
{
    int low = memfd_create("weft-token", MFD_CLOEXEC);
    int fd = fcntl(low, F_DUPFD_CLOEXEC, WF_GATE_FD + 1); /* the gate's number is taken */
    size_t len = strlen(text);
    close(low);
    if (fd < 0 || fchmod(fd, 0600) != 0 || write(fd, text, len) != (ssize_t)len) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot keep the token: %s", strerror(errno));
    }
    snprintf(path_out, WF_PATH_MAX, "/proc/self/fd/%d", fd);
    return WF_OK;
}

/* The whole of the far end's start; `line` is the caller's to wipe. */
static enum wf_status take_gate(char *line, size_t size, char path_out[WF_PATH_MAX],
                                struct wf_error *error)
{
    static const char head[] = "token ";
    struct wf_token token;
    enum wf_status status = read_line(line, size, error);
    if (status == WF_OK && strncmp(line, head, sizeof head - 1) != 0) {
        status = wf_error_set(error, WF_CONNECTION, "--gate-stdin: expected \"token HEX\" first");
    }
    const char *text = line + sizeof head - 1;
    if (status == WF_OK) {
        status = wf_token_parse(text, strlen(text), &token, error);
        wf_token_wipe(&token);
    }
    return status == WF_OK ? keep_token(text, path_out, error) : status;
}

enum wf_status wf_far_take_gate(char path_out[WF_PATH_MAX], struct wf_error *error)
{
    char line[WF_TOKEN_TEXT + 16];
    enum wf_status status = take_gate(line, sizeof line, path_out, error);
    explicit_bzero(line, sizeof line); /* before there are two processes that have it */
    return status == WF_OK ? become_rank(error) : status;
}
