/* status.c - names of outcomes; writing an error's sentence. */
#include "runtime/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct status_row {
    int code;
    const char *name, *text;
};

static const struct status_row status_rows[] = {
#define STATUS_ROW(name, code, text) {code, #name, text},
    WF_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
};

static const struct status_row *find_status(int status)
{
    for (size_t i = 0; i < sizeof status_rows / sizeof status_rows[0]; i++) {
        if (status_rows[i].code == status) {
            return &status_rows[i];
        }
    }
    return NULL;
}

const char *wf_status_name(int status)
{
    const struct status_row *row = find_status(status);
    return row != NULL ? row->name : "UNKNOWN";
}

const char *wf_status_text(int status)
{
    const struct status_row *row = find_status(status);
    return row != NULL ? row->text : "unknown status";
}

/* A name from a file may hold escapes that would rewrite a terminal. */
static void clean_text(char *text, int wanted)
{
    if (wanted >= WF_ERROR_TEXT_MAX) {
        memcpy(text + WF_ERROR_TEXT_MAX - 4, "...", 4);
    }
    for (char *c = text; *c != '\0'; c++) {
        unsigned char u = (unsigned char)*c;
        if (u < 0x20 || u == 0x7f) {
            *c = '?';
        }
    }
}

enum wf_status wf_error_vset(struct wf_error *error, enum wf_status status, const char *format,
                             va_list args)
{
    if (error == NULL) {
        return status;
    }
    /* Written apart first: the arguments may point into *error itself. */
    char text[WF_ERROR_TEXT_MAX];
    int wanted = vsnprintf(text, sizeof text, format, args);
    clean_text(text, wanted);
    memcpy(error->text, text, sizeof text);
    error->status = status;
    return status;
}

enum wf_status wf_error_set(struct wf_error *error, enum wf_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    wf_error_vset(error, status, format, args);
    va_end(args);
    return status;
}

void wf_error_prefix(struct wf_error *error, const char *format, ...)
{
    if (error == NULL) {
        return;
    }
    char prefix[WF_ERROR_TEXT_MAX], text[WF_ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    memcpy(text, error->text, sizeof text);
    wf_error_set(error, error->status, "%s: %s", prefix, text);
}

const char *wf_errno_advice(int number)
{
    return number == EMFILE || number == ENFILE ? "; raise the limit of open files (ulimit -n)"
           : number == ENOSYS                   ? "; Linux 5.3 or newer is needed"
                                                : "";
}

void wf_assert_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr, "weft: internal error at %s:%d: %s is false; please report it\n", file, line,
            condition);
    abort();
}
