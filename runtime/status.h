/* status.h - the one list of outcomes, and an error that carries a sentence.
 *
 * Every function that can fail returns enum wf_status. Functions whose caller needs to tell a
 * person what happened also take a `struct wf_error *` (last argument, may be NULL), which is
 * written only on failure. The first to know writes the sentence: what was expected, what was
 * found, what to do. Callers pass it on and may prefix it (wf_error_prefix).
 *
 * Pure, thread-safe, allocates nothing.
 */
#ifndef WEFT_RUNTIME_STATUS_H
#define WEFT_RUNTIME_STATUS_H

#include <stdarg.h>
#include <stddef.h>

/* Grouped by what must be rebuilt after it: the operation, the edge (one pair of ranks), the rank,
 * the job. Numbers are stable: they travel in frames and reports. */
#define WF_STATUS_MAP(X)                                                      \
    X(OK, 0, "ok")                                                            \
    /* operation */                                                           \
    X(AGAIN, 1, "not now, try again")                                         \
    X(NO_MEMORY, 2, "out of memory")                                          \
    X(NO_RESOURCE, 3, "a bounded resource is exhausted")                      \
    X(INVALID, 4, "invalid argument or input")                                \
    X(NOT_FOUND, 5, "not found")                                              \
    X(UNSUPPORTED, 6, "not supported")                                        \
    X(IO, 7, "input or output failed")                                        \
    X(MISMATCH, 8, "two things that must agree differ")                       \
    X(TIMED_OUT, 9, "the deadline passed")                                    \
    X(CANCELLED, 10, "cancelled")                                             \
    X(CLOSED, 11, "the addressee is closed")                                  \
    X(IN_DOUBT, 12, "the outcome is not known yet")                           \
    /* edge */                                                                \
    X(CONNECTION, 20, "the connection to a peer failed")                      \
    X(PROTOCOL, 21, "a peer sent something that the protocol does not allow") \
    X(DIGEST, 22, "the bytes that arrived are not the bytes that were sent")  \
    /* rank */                                                                \
    X(PEER_LOST, 30, "a rank was lost")                                       \
    X(STALE, 31, "the sender belongs to an older term, epoch or incarnation") \
    X(DIRTY, 32, "the rank's weights are not one version")                    \
    /* job */                                                                 \
    X(ABORTED, 40, "the round was aborted")                                   \
    X(DISAGREE, 41, "ranks disagree about the plan")                          \
    X(REFUSED, 42, "refused")

enum wf_status {
#define WF_STATUS_ENUM(name, code, text) WF_##name = code,
    WF_STATUS_MAP(WF_STATUS_ENUM)
#undef WF_STATUS_ENUM
};

enum { WF_ERROR_TEXT_MAX = 1024 };

struct wf_error {
    enum wf_status status;
    char text[WF_ERROR_TEXT_MAX]; /* NUL-terminated, no newline; cut with "..." when longer */
};

/* "NO_MEMORY"; "UNKNOWN" for a number that is not in the list (numbers also come from peers). */
const char *wf_status_name(int status);
/* "out of memory"; "unknown status" for a number that is not in the list. */
const char *wf_status_text(int status);

/* Fills *error (if not NULL) with a printf-style sentence; control characters that a hostile name
 * may have brought are replaced by '?'. Returns `status`, so that a function can end with it. */
enum wf_status wf_error_set(struct wf_error *error, enum wf_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum wf_status wf_error_vset(struct wf_error *error, enum wf_status status, const char *format,
                             va_list args);

/* Puts "prefix: " before the text (for example the file's name); NULL error is fine. */
void wf_error_prefix(struct wf_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What a person can do about an errno, to stand behind strerror's words: "; raise the limit of open
 * files (ulimit -n)"; empty for most. */
const char *wf_errno_advice(int number);

/* Our own bugs: prints file, line and expression and aborts, in every build type. */
#define WF_ASSERT(condition) \
    ((condition) ? (void)0 : wf_assert_failed(#condition, __FILE__, __LINE__))
_Noreturn void wf_assert_failed(const char *condition, const char *file, int line);

#endif
