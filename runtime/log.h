/* log.h - lines for people: to a descriptor, or to any other sink.
 *
 *   wf_log(log, WF_LOG_INFO, "rank %u tensor %u registered", rank, tensor);
 *
 * A log belongs to one loop's thread and is passed explicitly or kept at the loop
 * (wf_loop_set_log); NULL logs nothing. Levels go by volume: info per job, debug per operation,
 * trace per packet. Text is lower case, one line; control characters are replaced by '?', longer
 * lines are cut with "...".
 *
 * The same text is written at most WF_LOG_BURST times in WF_LOG_WINDOW_NS of the env's time; the
 * first line after that says how many were left out. Logging never blocks for long and never fails
 * for its caller: what cannot be written (reader gone, disk full, pipe full) is dropped and
 * counted.
 */
#ifndef WEFT_RUNTIME_LOG_H
#define WEFT_RUNTIME_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/env.h"
#include "runtime/status.h"

enum wf_log_level { WF_LOG_ERROR, WF_LOG_WARN, WF_LOG_INFO, WF_LOG_DEBUG, WF_LOG_TRACE };

enum {
    WF_LOG_LINE_MAX = 1024, /* bytes of a line with its newline */
    WF_LOG_WHO_MAX = 64,    /* bytes of `who` with its NUL */
    WF_LOG_BURST = 5,       /* times that one text is written in a window */
    WF_LOG_REMEMBERED = 16, /* texts that are told apart at a time */
};
#define WF_LOG_WINDOW_NS UINT64_C(10000000000)

/* "error", "warn", ...; INVALID and an error that lists them for anything else. */
enum wf_status wf_log_level_parse(const char *text, enum wf_log_level *level_out,
                                  struct wf_error *error);
const char *wf_log_level_name(enum wf_log_level level);

struct wf_log_sink {
    /* One line with its newline. */
    void (*write)(struct wf_log_sink *sink, enum wf_log_level level, const char *line, size_t len);
};

/* A sink that writes to a descriptor. */
struct wf_log_fd {
    struct wf_log_sink sink;
    int fd;           /* owns, a duplicate; -1 when there was none */
    uint64_t dropped; /* lines that could not be written */
};
/* Keeps a duplicate of `fd`, so that a number closed and used again by something else is never
 * written to; a descriptor that is closed already gives a sink that drops everything. */
void wf_log_fd_init(struct wf_log_fd *sink, int fd);
void wf_log_fd_fini(struct wf_log_fd *sink);

struct wf_log_memory {
    uint64_t hash, window_start_ns;
    uint32_t written, left_out;
};

struct wf_log {
    struct wf_log_sink *sink; /* borrows */
    struct wf_env *env;       /* borrows; for the time */
    enum wf_log_level level;  /* lines of higher levels are not written */
    char who[WF_LOG_WHO_MAX];
    struct wf_log_memory remembered[WF_LOG_REMEMBERED];
};

/* `who` begins every line: "train rank 3". */
void wf_log_init(struct wf_log *log, struct wf_log_sink *sink, struct wf_env *env,
                 enum wf_log_level level, const char *who);

/* Evaluates its arguments only if the line is wanted. */
#define wf_log(log, level_, ...)                                     \
    do {                                                             \
        struct wf_log *log_of_line = (log);                          \
        if (log_of_line != NULL && (level_) <= log_of_line->level) { \
            wf_log_line(log_of_line, (level_), __VA_ARGS__);         \
        }                                                            \
    } while (0)
void wf_log_line(struct wf_log *log, enum wf_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
