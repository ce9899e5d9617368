/* runs.c - reads params.tsv and rank_NN.tsv. */
#include "tools/layout/runs.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 8 };

/* Decimal digits from *at on; false if there is none or it does not fit. */
static bool take_number(const char **at, uint64_t *out)
{
    uint64_t value = 0;
    const char *start = *at;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(**at - '0'), &value)) {
            return false;
        }
    }
    *out = value;
    return *at != start;
}

static bool take_char(const char **at, char wanted)
{
    if (**at != wanted) {
        return false;
    }
    (*at)++;
    return true;
}

static bool parse_shape(const char *text, struct wf_case_line *line)
{
    line->ndim = 0;
    line->elements = 1;
    if (strcmp(text, "-") == 0) {
        return true;
    }
    do {
        if (line->ndim == WF_SHAPE_MAX || !take_number(&text, &line->shape[line->ndim]) ||
            __builtin_mul_overflow(line->elements, line->shape[line->ndim], &line->elements)) {
            return false;
        }
        line->ndim++;
    } while (take_char(&text, 'x'));
    return *text == '\0';
}

static void set_strides(struct wf_case_line *line)
{
    uint64_t step = 1;
    for (uint32_t axis = line->ndim; axis-- > 0;) {
        line->strides[axis] = (int64_t)step;
        step *= line->shape[axis]; /* wraps only beside a dimension of 0, which has no strides */
    }
}

/* "strides=4,1,2" with a number for each dimension. */
static bool parse_strides(const char *text, struct wf_case_line *line)
{
    for (uint32_t axis = 0; axis < line->ndim; axis++) {
        uint64_t stride = 0;
        if ((axis > 0 && !take_char(&text, ',')) || !take_number(&text, &stride) ||
            stride > INT64_MAX) {
            return false;
        }
        line->strides[axis] = (int64_t)stride;
    }
    return *text == '\0';
}

/* "shares=NAME+k". */
static bool parse_shares(char *text, struct wf_case_line *line)
{
    char *plus = strrchr(text, '+');
    if (!plus || plus == text) {
        return false;
    }
    *plus = '\0';
    const char *at = plus + 1;
    line->shares = text;
    return take_number(&at, &line->shares_at) && *at == '\0';
}

static bool parse_param(char **fields, size_t count, struct wf_case_line *line)
{
    const char *index = fields[0];
    if (count != 3 || !take_number(&index, &line->index) || *index != '\0') {
        return false;
    }
    line->name = fields[1];
    line->dtype = line->runs = "";
    return parse_shape(fields[2], line);
}

static bool parse_tensor(char **fields, size_t count, struct wf_case_line *line)
{
    if (count == 3 && strcmp(fields[0], "alias") == 0) {
        line->name = fields[1];
        line->target = fields[2];
        return true;
    }
    if (count < 3 || count > FIELDS_MAX) {
        return false;
    }
    line->name = fields[0];
    line->dtype = fields[1];
    line->runs = count > 3 ? fields[3] : "";
    if (!parse_shape(fields[2], line)) {
        return false;
    }
    set_strides(line);
    for (size_t i = 4; i < count; i++) {
        bool good = true;
        if (strncmp(fields[i], "strides=", 8) == 0) {
            good = parse_strides(fields[i] + 8, line);
        } else if (strncmp(fields[i], "shares=", 7) == 0) {
            good = parse_shares(fields[i] + 7, line);
        } else if (*line->more == '\0') {
            line->more = fields[i];
        }
        if (!good) {
            return false;
        }
    }
    return true;
}

/* Parts a line at its tabs, in place. */
static size_t split(char *line, char **fields)
{
    size_t count = 0;
    while (count < FIELDS_MAX) {
        fields[count++] = line;
        line = strchr(line, '\t');
        if (!line) {
            return count;
        }
        *line++ = '\0';
    }
    return FIELDS_MAX + 1;
}

static enum wf_status parse_lines(char *text, size_t len,
                                  bool (*parse)(char **, size_t, struct wf_case_line *),
                                  struct wf_case_lines *out, struct wf_error *error)
{
    struct wf_case_lines list = {0};
    size_t room = 0;
    unsigned number = 0;
    if (memchr(text, '\0', len)) {
        return wf_error_set(error, WF_INVALID, "it holds the character NUL");
    }
    for (char *at = text; at < text + len;) {
        char *end = memchr(at, '\n', len - (size_t)(at - text));
        char *next = end ? end + 1 : text + len;
        text[end ? end - text : (ptrdiff_t)len] = '\0';
        number++;
        char *fields[FIELDS_MAX];
        struct wf_case_line line = {.number = number, .more = ""};
        bool empty = *at == '#' || *at == '\0';
        if (!empty && !parse(fields, split(at, fields), &line)) {
            free(list.lines);
            return wf_error_set(error, WF_INVALID, "line %u is malformed", number);
        }
        if (!empty && list.count == room) {
            room = room ? room * 2 : 256;
            void *grown = room > WF_CASE_LINES_MAX
                              ? NULL
                              : reallocarray(list.lines, room, sizeof *list.lines);
            if (!grown) {
                free(list.lines);
                return wf_error_set(error, WF_NO_RESOURCE, "it has too many lines");
            }
            list.lines = grown;
        }
        if (!empty) {
            list.lines[list.count++] = line;
        }
        at = next;
    }
    *out = list;
    return WF_OK;
}

enum wf_status wf_case_params(char *text, size_t len, struct wf_case_lines *out,
                              struct wf_error *error)
{
    return parse_lines(text, len, parse_param, out, error);
}

enum wf_status wf_case_tensors(char *text, size_t len, struct wf_case_lines *out,
                               struct wf_error *error)
{
    return parse_lines(text, len, parse_tensor, out, error);
}

static bool parse_run(const char **at, struct wf_run *run)
{
    *run = (struct wf_run){.text = *at, .times = 1};
    if (take_char(at, 'z') || take_char(at, 'u')) {
        run->kind = run->text[0] == 'z' ? WF_RUN_ZERO : WF_RUN_UNKNOWN;
        return take_char(at, '+') && take_number(at, &run->count) && run->count > 0;
    }
    if (!take_number(at, &run->param) || !take_char(at, ':') || !take_number(at, &run->start) ||
        !take_char(at, '+') || !take_number(at, &run->count) || run->count == 0) {
        return false;
    }
    if (!take_char(at, '*')) {
        return true;
    }
    return take_number(at, &run->times) && run->times > 0 && take_char(at, '/') &&
           take_number(at, &run->step);
}

enum wf_status wf_run_next(const char **text, struct wf_run *run_out, struct wf_error *error)
{
    struct wf_run run;
    const char *at = *text;
    if (*at == '\0') {
        return WF_NOT_FOUND;
    }
    bool good = parse_run(&at, &run);
    run.len = strcspn(run.text, ",");
    uint64_t last = 0;
    if (!good || run.text + run.len != at || __builtin_mul_overflow(run.times, run.step, &last) ||
        __builtin_add_overflow(last, run.start, &last) ||
        __builtin_add_overflow(last, run.count, &last)) {
        return wf_error_set(error, WF_INVALID, "the run \"%.60s\" is malformed", run.text);
    }
    *text = *at == ',' ? at + 1 : at;
    *run_out = run;
    return WF_OK;
}
