/* plan_print.h - a plan in words: the table of `weft plan` and the lines of `weft plan explain`. */
#ifndef WEFT_TOOLS_PLAN_PRINT_H
#define WEFT_TOOLS_PLAN_PRINT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/plan_job.h"

/* What was measured and computed around a plan. */
struct wf_plan_facts {
    double build_seconds, derive_seconds, prove_seconds;
    double egress_max_over_mean, ingress_max_over_mean; /* 1 if nothing is moved */
    double link_gbps;                                   /* 0: not given */
    double bound_seconds;                               /* with a link only */
    uint32_t per_host;
    const char *proof; /* "ok" or the first wrong box */
};

/* Restricts what is printed to one rank; all: every rank. */
struct wf_plan_focus {
    bool all;
    enum wf_side side;
    uint32_t rank;
};

void wf_plan_print(FILE *out, const struct wf_plan_job *job, const struct wf_plan *plan,
                   const struct wf_plan_facts *facts, const struct wf_plan_focus *focus);
/* Every box of one parameter, or of those that touch the rank in focus. */
void wf_plan_explain(FILE *out, const struct wf_plan_job *job, const struct wf_plan *plan,
                     uint32_t param, const struct wf_plan_focus *focus);

#endif
