/* log.c - making a line, holding back repetition, writing it to a descriptor. */
#include "runtime/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};
enum { LEVELS = sizeof level_names / sizeof level_names[0] };

const char *wf_log_level_name(enum wf_log_level level)
{
    return level_names[level];
}

enum wf_status wf_log_level_parse(const char *text, enum wf_log_level *level_out,
                                  struct wf_error *error)
{
    for (size_t i = 0; i < LEVELS; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *level_out = (enum wf_log_level)i;
            return WF_OK;
        }
    }
    return wf_error_set(error, WF_INVALID,
                        "unknown log level \"%s\"; expected error, warn, info, debug or trace",
                        text);
}

/* --- to a descriptor ---------------------------------------------------------------------------
 */

/* A pipe whose reader has gone answers with SIGPIPE, and this library must neither install a
 * handler nor let its host die: the signal is blocked for the write and taken back if it is ours.
 * sigprocmask concerns this thread only on Linux. */
static ssize_t write_without_signal(int fd, const char *line, size_t len)
{
    sigset_t pipe_only, before, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    sigprocmask(SIG_BLOCK, &pipe_only, &before);
    ssize_t written = write(fd, line, len);
    int error_number = errno;
    if (written < 0 && error_number == EPIPE && !sigismember(&pending, SIGPIPE)) {
        struct timespec at_once = {0};
        sigtimedwait(&pipe_only, NULL, &at_once);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error_number;
    return written;
}

static void fd_write(struct wf_log_sink *sink, enum wf_log_level level, const char *line,
                     size_t len)
{
    (void)level;
    struct wf_log_fd *to = (struct wf_log_fd *)sink;
    if (to->fd < 0) {
        to->dropped++;
        return;
    }
    int kept = errno;
    ssize_t written = write_without_signal(to->fd, line, len);
    if (written < 0 && errno == EPIPE) {
        wf_log_fd_fini(to); /* nobody reads it any more, nor will */
    }
    to->dropped += written != (ssize_t)len;
    errno = kept;
}

void wf_log_fd_init(struct wf_log_fd *sink, int fd)
{
    *sink = (struct wf_log_fd){.sink.write = fd_write, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)};
}

void wf_log_fd_fini(struct wf_log_fd *sink)
{
    if (sink->fd >= 0) {
        close(sink->fd);
    }
    sink->fd = -1;
}

/* --- lines -------------------------------------------------------------------------------------
 */

static void clean(char *text)
{
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
}

void wf_log_init(struct wf_log *log, struct wf_log_sink *sink, struct wf_env *env,
                 enum wf_log_level level, const char *who)
{
    *log = (struct wf_log){.sink = sink, .env = env, .level = level};
    snprintf(log->who, sizeof log->who, "%s", who);
    clean(log->who);
}

/* FNV-1a: told apart well enough; two texts taken for one only cost a line. */
static uint64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    }
    return hash;
}

static bool makes_room_before(const struct wf_log_memory *a, const struct wf_log_memory *b)
{
    bool a_is_free = a->written == 0, b_is_free = b->written == 0;
    return a_is_free != b_is_free ? a_is_free : a->window_start_ns < b->window_start_ns;
}

/* The slot of this text; a new text takes a free one, or the one whose window began first. */
static struct wf_log_memory *recall(struct wf_log *log, uint64_t hash)
{
    struct wf_log_memory *oldest = &log->remembered[0];
    for (size_t i = 0; i < WF_LOG_REMEMBERED; i++) {
        struct wf_log_memory *slot = &log->remembered[i];
        if (slot->hash == hash && slot->written > 0) {
            return slot;
        }
        if (makes_room_before(slot, oldest)) {
            oldest = slot;
        }
    }
    *oldest = (struct wf_log_memory){.hash = hash};
    return oldest;
}

/* False: this text was written often enough. Else *left_out_out is how many lines like it were not
 * written before. */
static bool may_write(struct wf_log *log, const char *text, uint32_t *left_out_out)
{
    struct wf_log_memory *slot = recall(log, hash_of(text));
    uint64_t now_ns = log->env->ops->now_ns(log->env);
    if (slot->written == 0 || now_ns - slot->window_start_ns >= WF_LOG_WINDOW_NS) {
        *left_out_out = slot->left_out;
        *slot = (struct wf_log_memory){.hash = slot->hash, .window_start_ns = now_ns, .written = 1};
        return true;
    }
    if (slot->written == WF_LOG_BURST) {
        slot->left_out++;
        return false;
    }
    slot->written++;
    *left_out_out = 0;
    return true;
}

void wf_log_line(struct wf_log *log, enum wf_log_level level, const char *format, ...)
{
    char text[WF_LOG_LINE_MAX], line[WF_LOG_LINE_MAX], when[32] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    clean(text);
    uint32_t left_out;
    if (!may_write(log, text, &left_out)) {
        return;
    }
    time_t seconds = (time_t)log->env->ops->wall_s(log->env);
    struct tm utc;
    if (gmtime_r(&seconds, &utc) != NULL) {
        strftime(when, sizeof when, "%H:%M:%S", &utc);
    }
    char repeated[48] = "";
    if (left_out > 0) {
        snprintf(repeated, sizeof repeated, " (%u more like this left out)", left_out);
    }
    int len = snprintf(line, sizeof line, "%s %-5s %s: %s%s", when, level_names[level], log->who,
                       text, repeated);
    if (len >= (int)sizeof line - 1) {
        len = sizeof line - 2;
        memcpy(line + len - 3, "...", 3);
    }
    line[len] = '\n';
    log->sink->write(log->sink, level, line, (size_t)len + 1);
}
