/* diagnose.h - the likeliest cause of what a comparison found, in sentences.
 *
 * Every parameter that differs is held against a table of hypotheses, each with its own test of the
 * data: another parameter's values, a layer's or an expert's neighbour, rows in another order, a
 * transposed matrix, a block's factor, ... A test looks at samples first and at everything before
 * it is believed. Nothing is concluded from how files are called.
 *
 * Parameters with one finding in common make one sentence, with the first of them as the example.
 */
#ifndef WEFT_TOOLS_COMPARE_DIAGNOSE_H
#define WEFT_TOOLS_COMPARE_DIAGNOSE_H

#include "tools/compare/compare.h"

enum {
    WF_DIAGNOSE_PARAMS_MAX = 256,        /* looked at, of those that differ */
    WF_DIAGNOSE_ELEMENTS_MAX = 16 << 20, /* of a parameter that is looked at whole in f32 */
    WF_DIAGNOSE_NEIGHBOURS = 2,          /* layers and experts on either side */
};

/* Adds to compare->diagnosis. */
enum wf_status wf_diagnose(struct wf_compare *compare, struct wf_error *error);

#endif
