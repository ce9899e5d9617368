/* runs.h - the text files of an executed fixture: params.tsv and rank_NN.tsv.
 *
 * One line a tensor, fields parted by tabs; lines that begin with # are headers. Runs list a tensor
 * in storage order, parted by commas: `p:s+n` is n elements of parameter p from its flat index s,
 * `p:s+n*k/st` is k such runs whose starts are st apart, `z+n` is n zeros, `u+n` is n elements that
 * no parameter gives. Fields behind them: `strides=` (elements, by dimension), `shares=NAME+k` (the
 * tensor is a view into NAME from its element k on); then runs follow rising addresses. Files are
 * from outside: every number and line is checked. Pure.
 */
#ifndef WEFT_TOOLS_LAYOUT_RUNS_H
#define WEFT_TOOLS_LAYOUT_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/config.h"
#include "runtime/status.h"

enum { WF_CASE_LINES_MAX = 1 << 20 };

/* One line. Strings are NUL-terminated parts of the text that was parsed. */
struct wf_case_line {
    const char *name, *dtype, *runs; /* params.tsv: dtype and runs are "" */
    const char *target;              /* of an alias line, else NULL */
    const char *more;                /* the first field that is not known, "" if none */
    const char *shares;              /* the tensor that a view looks into, else NULL */
    uint64_t shares_at;              /* element of it */
    int64_t strides[WF_SHAPE_MAX];   /* row-major unless the line says others */
    uint64_t index;                  /* params.tsv only */
    uint32_t ndim;
    uint64_t shape[WF_SHAPE_MAX];
    uint64_t elements;
    unsigned number; /* of the line in its file, from 1 */
};

struct wf_case_lines {
    struct wf_case_line *lines; /* owned */
    size_t count;
};

/* `text` is changed and must outlive the lines. After OK free lines.lines. */
enum wf_status wf_case_params(char *text, size_t len, struct wf_case_lines *out,
                              struct wf_error *error);
enum wf_status wf_case_tensors(char *text, size_t len, struct wf_case_lines *out,
                               struct wf_error *error);

enum wf_run_kind { WF_RUN_PARAM, WF_RUN_ZERO, WF_RUN_UNKNOWN };

struct wf_run {
    enum wf_run_kind kind;
    uint64_t param, start, count, times, step;
    const char *text; /* where it stands, for messages */
    size_t len;
};

/* Reads the run at *text and moves *text behind it and its comma. NOT_FOUND at the end. */
enum wf_status wf_run_next(const char **text, struct wf_run *run_out, struct wf_error *error);

#endif
