/* plan_job.h - the ranks of a job that is only planned: from a model and SPECs to the planner's
 * input. Used by `weft plan` and its benchmark. Reads no weights.
 *
 * Hosts are imagined: `per_host` ranks of one side stand on one host, and no host has both sides.
 */
#ifndef WEFT_TOOLS_PLAN_JOB_H
#define WEFT_TOOLS_PLAN_JOB_H

#include <stdint.h>

#include "actors/plan.h"
#include "models/assemble.h"
#include "models/recipe.h"
#include "tools/files/manifest_lacks.h"

enum { WF_PLAN_GROUPS_MAX = 64 };

/* What is asked for of one infer group. */
struct wf_plan_job_infer {
    const char *spec;
    const struct wf_placement *placement; /* NULL: experts stand by rule */
};

/* One group of ranks, as a SPEC says. */
struct wf_plan_job_group {
    const char *spec; /* borrows */
    struct wf_recipe recipe;
    enum wf_side side;
    uint32_t first_rank; /* within its side */
    uint32_t rank_count;
};

struct wf_plan_job {
    struct wf_model *model; /* the job's, of the config and the groups (models/variant.h); owned */
    struct wf_plan_job_group groups[WF_PLAN_GROUPS_MAX]; /* the train group, then infer groups */
    uint32_t group_count;
    uint32_t train_ranks, infer_ranks, engines;
    struct wf_manifest_lacks
        lacks[WF_PLAN_GROUPS_MAX]; /* of groups of which there is any to tell */
    uint32_t lacks_count;
    struct wf_plan_member *members;
    struct wf_layout **layouts; /* owned, the different ones: members share them */
    uint32_t layout_count;
    struct wf_cuts *cuts;      /* matrices that engines quantise themselves; NULL: none */
    uint64_t *assembled_bytes; /* by infer rank: of the matrices that it quantises */
    struct wf_plan_input input;
};

/* Parses the SPECs, reads the manifests that they name and derives every rank's layout. INVALID or
 * UNSUPPORTED: a SPEC or a table of experts is wrong, for this model or at all; the sentence names
 * it. Borrows what `infer` points to. Fini also after a failure. */
enum wf_status wf_plan_job_init(struct wf_plan_job *job, const struct wf_model *config,
                                const char *train_spec, const struct wf_plan_job_infer *infer,
                                uint32_t infer_count, uint32_t per_host, struct wf_error *error);
void wf_plan_job_fini(struct wf_plan_job *job); /* zeroed memory is fine */

#endif
