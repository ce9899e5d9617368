/* far_end.c - the far end of a process on another host: standard input becomes token and gate. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/run/far.h"
#include "tools/run/process.h"

enum { TOKEN_WAIT_MS = 30000 };

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

enum wf_status wf_far_take_gate(char path_out[WF_PATH_MAX], struct wf_error *error)
{
    static const char head[] = "token ";
    char line[WF_TOKEN_TEXT + sizeof head + 1];
    struct wf_token token;
    enum wf_status status = read_line(line, sizeof line, error);
    if (status == WF_OK && strncmp(line, head, sizeof head - 1) != 0) {
        status = wf_error_set(error, WF_CONNECTION, "--gate-stdin: expected \"token HEX\" first");
    }
    const char *text = line + sizeof head - 1;
    if (status == WF_OK) {
        status = wf_token_parse(text, strlen(text), &token, error);
    }
    if (status != WF_OK) {
        return status;
    }
    wf_token_wipe(&token);
    if (dup2(STDIN_FILENO, WF_GATE_FD) < 0) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot make the gate: %s", strerror(errno));
    }
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    close(null);
    /* After the gate has its number. Only this process can open it by the path. */
    int fd = memfd_create("weft-token", MFD_CLOEXEC);
    size_t len = strlen(text);
    bool good = fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text, len) == (ssize_t)len;
    explicit_bzero(line, sizeof line);
    if (!good) {
        return wf_error_set(error, WF_NO_RESOURCE, "cannot keep the token: %s", strerror(errno));
    }
    snprintf(path_out, WF_PATH_MAX, "/proc/self/fd/%d", fd);
    return WF_OK;
}
