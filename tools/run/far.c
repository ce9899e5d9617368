/* far.c - the near end of a process on another host. */
#include "tools/run/far.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REMOTE_SHELL                                                            \
    "ssh -T -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=5 -o " \
    "ServerAliveCountMax=3"

enum { SHELL_WORDS_MAX = 24, SHELL_TEXT_MAX = 1024 };

/* Appends `word` in single quotes, a quote in it as '\''. */
static bool quote(const char *word, char *out, size_t size, size_t *len)
{
    if (*len + 2 >= size) {
        return false;
    }
    out[(*len)++] = '\'';
    for (; *word != '\0'; word++) {
        const char *piece = *word == '\'' ? "'\\''" : NULL;
        size_t need = piece != NULL ? strlen(piece) : 1;
        if (*len + need + 2 >= size) {
            return false;
        }
        memcpy(out + *len, piece != NULL ? piece : word, need);
        *len += need;
    }
    out[(*len)++] = '\'';
    return true;
}

bool wf_far_command(const char *program, const char *const *arguments,
                    char command_out[WF_FAR_COMMAND_MAX])
{
    static const char head[] = "exec ";
    size_t len = sizeof head - 1;
    memcpy(command_out, head, len);
    bool good = quote(program, command_out, WF_FAR_COMMAND_MAX, &len);
    for (int i = 0; good && arguments[i] != NULL; i++) {
        command_out[len++] = ' ';
        good = quote(arguments[i], command_out, WF_FAR_COMMAND_MAX, &len);
    }
    command_out[len] = '\0';
    return good;
}

/* --- what the far end says -------------------------------------------------------------------- */
static void say_line(struct wf_far_output *output)
{
    output->line[output->len] = '\0';
    output->len = 0;
    output->said(output->user, output->host, output->line);
}

static void close_output(struct wf_far_output *output)
{
    if (output->open) {
        wf_watch_remove(output->loop, &output->watch);
        close(output->watch.fd);
        output->open = false;
    }
}

/* False at the end of what can be read now; closes at the end of all. */
static bool read_some(struct wf_far_output *output)
{
    char bytes[512];
    ssize_t got = read(output->watch.fd, bytes, sizeof bytes);
    for (ssize_t i = 0; i < got; i++) {
        if (bytes[i] == '\n') {
            say_line(output);
        } else if (bytes[i] != '\r') {
            output->line[output->len++] = bytes[i];
        }
        if (output->len + 1 == sizeof output->line) {
            say_line(output); /* an overlong line comes in pieces */
        }
    }
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        if (output->len > 0) {
            say_line(output);
        }
        close_output(output);
    }
    return got > 0;
}

static void output_ready(struct wf_watch *watch, unsigned events)
{
    (void)events;
    read_some(WF_CONTAINER(watch, struct wf_far_output, watch));
}

void wf_far_output_fini(struct wf_far_output *output)
{
    while (output->open && read_some(output)) {
    }
    close_output(output);
}

static enum wf_status watch_output(struct wf_far_output *output, int fd, struct wf_loop *loop,
                                   const char *host, struct wf_error *error)
{
    fcntl(fd, F_SETFL, O_NONBLOCK);
    output->loop = loop;
    output->host = host;
    output->len = 0;
    output->watch = (struct wf_watch){.fd = fd, .events = WF_READABLE, .ready = output_ready};
    enum wf_status status = wf_watch_add(loop, &output->watch);
    if (status != WF_OK) {
        close(fd);
        return wf_error_set(error, status, "cannot watch what %s says", host);
    }
    output->open = true;
    return WF_OK;
}

/* --- starting --------------------------------------------------------------------------------- */
/* This program's file, which is expected at the same path there. */
static enum wf_status program_path(char out[PATH_MAX], struct wf_error *error)
{
    const char *given = getenv("WEFT_REMOTE");
    ssize_t len = given == NULL || given[0] == '\0' ? readlink("/proc/self/exe", out, PATH_MAX - 1)
                                                    : snprintf(out, PATH_MAX, "%s", given);
    if (len <= 0 || len >= PATH_MAX) {
        return wf_error_set(error, WF_IO, "cannot tell where this program is; set WEFT_REMOTE");
    }
    out[len] = '\0';
    return WF_OK;
}

/* WEFT_RSH or ssh, cut into words, which lie in `text`; gives how many. */
static enum wf_status shell_words(char text[SHELL_TEXT_MAX], const char **words, int *count_out,
                                  struct wf_error *error)
{
    const char *given = getenv("WEFT_RSH");
    int count = 0;
    bool is_given = given != NULL && given[0] != '\0';
    bool fits =
        snprintf(text, SHELL_TEXT_MAX, "%s", is_given ? given : REMOTE_SHELL) < SHELL_TEXT_MAX;
    for (char *rest = text, *word; fits && (word = strsep(&rest, " ")) != NULL;) {
        if (word[0] != '\0') {
            fits = count < SHELL_WORDS_MAX;
            words[fits ? count++ : 0] = word;
        }
    }
    *count_out = count;
    return fits ? WF_OK
                : wf_error_set(
                      error, WF_INVALID,
                      "WEFT_RSH: expected at most %d words in %d bytes, found more: put them "
                      "into a script, or into ssh's configuration",
                      SHELL_WORDS_MAX, SHELL_TEXT_MAX - 1);
}

enum wf_status wf_far_start(struct wf_children *all, struct wf_child *child,
                            const struct wf_run_host *host, const char *const *arguments,
                            const struct wf_token *token, struct wf_far_output *output,
                            struct wf_error *error)
{
    const char *words[SHELL_WORDS_MAX + 3];
    char shell[SHELL_TEXT_MAX], program[PATH_MAX], line[WF_TOKEN_TEXT + 16];
    char command[WF_FAR_COMMAND_MAX], secret[WF_TOKEN_TEXT];
    int count = 0, ends[2];
    enum wf_status status = shell_words(shell, words, &count, error);
    if (status == WF_OK) {
        status = program_path(program, error);
    }
    if (status == WF_OK && !wf_far_command(program, arguments, command)) {
        status = wf_error_set(error, WF_INVALID, "the command for %s is too long", host->name);
    }
    if (status == WF_OK && pipe2(ends, O_CLOEXEC) != 0) {
        status = wf_error_set(error, WF_NO_RESOURCE, "cannot make a pipe: %s", strerror(errno));
    }
    if (status != WF_OK) {
        return status;
    }
    words[count++] = host->address;
    words[count++] = command;
    words[count] = NULL;
    child->far_host = host->name;
    child->err_fd = ends[1];
    status = wf_child_start(all, child, words, -1, error);
    close(ends[1]);
    close_output(output); /* of an earlier start */
    if (status != WF_OK) {
        close(ends[0]);
        return status;
    }
    wf_token_format(token, secret);
    snprintf(line, sizeof line, "token %s\n", secret);
    wf_child_tell(child, line);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(line, sizeof line);
    return watch_output(output, ends[0], all->loop, host->name, error);
}
