/* plan_cuts.h - what `weft plan` says of blocks that engines quantise themselves. */
#ifndef WEFT_TOOLS_PLAN_CUTS_H
#define WEFT_TOOLS_PLAN_CUTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/plan_job.h"

enum { WF_PLAN_CUTS_TEXT = 320 };

/* Which block of which matrix is cut first, and between which ranks: "model...q_proj.weight: rows
 * 1280..1407, columns 0..127 are cut between train ranks 0, 1". Only of a job that has cuts. */
void wf_plan_cuts_first(const struct wf_plan_job *job, char text_out[WF_PLAN_CUTS_TEXT]);
/* The most that one infer rank assembles. */
uint64_t wf_plan_cuts_bytes(const struct wf_plan_job *job);
/* Says why a parameter is made by engines; false where it is not, and nothing is said. */
bool wf_plan_cuts_explain(FILE *out, const struct wf_plan_job *job, uint32_t param);

#endif
