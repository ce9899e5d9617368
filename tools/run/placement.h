/* placement.h - tables of experts, as files. */
#ifndef WEFT_TOOLS_RUN_PLACEMENT_H
#define WEFT_TOOLS_RUN_PLACEMENT_H

#include "models/recipe.h"

/* A JSON list of layers, each a list of the expert that each slot holds, all of one length; or an
 * object with that as "physical_to_logical_map", as expert load balancers write it. Free with
 * wf_run_placement_fini, which zeroed memory is fine for. */
enum wf_status wf_run_placement_load(const char *path, struct wf_placement *placement_out,
                                     struct wf_error *error);
void wf_run_placement_fini(struct wf_placement *placement);

#endif
