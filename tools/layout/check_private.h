/* check_private.h - what the parts of the checker share: check.c reads a folder, check_params.c
 * knows where checkpoint tensors lie in canonical parameters, check_tensor.c compares a rank. */
#ifndef WEFT_TOOLS_LAYOUT_CHECK_PRIVATE_H
#define WEFT_TOOLS_LAYOUT_CHECK_PRIVATE_H

#include "models/layout.h"
#include "tools/layout/case.h"
#include "tools/layout/check.h"
#include "tools/layout/look.h"
#include "tools/layout/runs.h"

enum { WF_CHECK_STEPS_MAX = 1 << 26 }; /* comparisons of one case: more is no fixture */

/* Where the elements of one tensor of the checkpoint are canonical: a parameter under its own name,
 * or a tensor of a layout of stored tensors (fused experts). */
struct wf_check_source {
    const struct wf_layout *stored; /* NULL: parameter `index` itself */
    uint32_t index;
};

enum { WF_CHECK_STORED_MAX = 2 };

struct wf_checker {
    const struct wf_case_tables *tables;
    int folder;
    struct wf_case it;
    char *params_text;
    struct wf_case_lines params;
    struct wf_check_source *sources;               /* of each line of params.tsv */
    struct wf_layout *stored[WF_CHECK_STORED_MAX]; /* files and memory; NULL where there is none */
    struct wf_layout *layout;                      /* of the rank at hand */
    uint64_t steps;
    struct wf_case_result *result;
    struct wf_error *error;
};

/* Finds the sources of all of c->params and that they are all of the model. */
enum wf_status wf_check_params(struct wf_checker *c);
/* The canonical element that element `element` of line `line` of params.tsv is; `run` of it and
 * those behind are neighbours on both sides. False if none is. */
bool wf_check_source_at(const struct wf_checker *c, uint64_t line, uint64_t element,
                        struct wf_look *look_out);
/* Every line of a rank's file against c->layout, and the other way round. `seen` has an entry for
 * each tensor and, behind them, each alias. */
enum wf_status wf_check_lines(struct wf_checker *c, const struct wf_case_lines *lines, bool *seen);
bool wf_check_same_shape(const struct wf_case_line *line, uint32_t ndim, const uint64_t *shape);

#endif
