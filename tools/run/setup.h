/* setup.h - a job file resolved: model, recipes, worlds, and who is who.
 *
 * Everything that can be wrong with a job before anything was started is found here.
 */
#ifndef WEFT_TOOLS_RUN_SETUP_H
#define WEFT_TOOLS_RUN_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "config/job.h"
#include "models/config.h"
#include "models/recipe.h"
#include "runtime/status.h"
#include "tools/check/verify.h"

struct wf_run_setup {
    struct wf_job_file job;
    const char *given[WF_FAMILY_FILES_MAX]; /* further files of families, of the command line */
    uint32_t given_count;
    struct wf_family_files families; /* of both */
    struct wf_model *config;         /* what the folder holds */
    struct wf_model *model;   /* the job's: of the config and of what groups hold (variant.h) */
    char folder[WF_PATH_MAX]; /* the HF folder with the weights */
    bool made;                /* job.model is a configuration: the folder is one of known values */
    struct wf_recipe train;
    enum wf_dtype *less_one; /* by parameter: the type in which trainers hold it less 1; or NONE */
    struct wf_recipe infer[WF_GROUPS_MAX];
    struct wf_placement tables[WF_GROUPS_MAX]
                              [WF_JOB_PLACEMENTS_MAX]; /* of job.infer's placements */
    uint32_t train_ranks, infer_ranks, engines;
    uint32_t keepers; /* infer groups that keep versions: none or one */
};

/* Where an infer rank stands. */
struct wf_run_place {
    uint32_t group;      /* index into job.infer */
    uint32_t group_rank; /* what the group's recipe numbers */
    uint32_t engine;     /* over all groups */
    uint32_t engine_rank, engine_ranks;
};

/* Loads the job file and the model's config. usage_out: true when the job file or a SPEC is wrong
 * (exit status 2), false when a file could not be read. setup_out is zeroed but for `given`, which
 * is borrowed. Fini works on zeroed memory. */
enum wf_status wf_run_setup_load(const char *job_path, struct wf_run_setup *setup_out,
                                 bool *usage_out, struct wf_error *error);
/* less_one.c: malloc'd, for setup.less_one. */
enum wf_status wf_run_less_one(const struct wf_model *model, const struct wf_recipe *train,
                               enum wf_dtype **types_out, struct wf_error *error);
/* If the job names a configuration and its folder of known values is not there yet, makes it, with
 * a line on standard error. Of several processes of a host that call it at once, one does it. */
enum wf_status wf_run_setup_make(const struct wf_run_setup *setup, struct wf_error *error);
/* Opens the folder's weights once, so that what is wrong with them is told once and before anything
 * starts; what is only worth knowing goes to standard error. */
enum wf_status wf_run_setup_try(const struct wf_run_setup *setup, struct wf_error *error);
/* Opens the folder's weights as the plain parameters of the job's model. */
enum wf_status wf_run_setup_open(const struct wf_run_setup *setup, bool extras_refuse,
                                 struct wf_checkpoint **out, struct wf_error *error);
void wf_run_setup_fini(struct wf_run_setup *setup);
/* True if the ranks of an infer group (`hf`) serve nobody and keep versions as folders. */
bool wf_run_keeps(const struct wf_run_setup *setup, uint32_t group);
struct wf_run_place wf_run_place(const struct wf_run_setup *setup, uint32_t infer_rank);
/* A group's table of experts by its number: 0 is by rule (NULL), then job.infer's placements. */
const struct wf_placement *wf_run_table(const struct wf_run_setup *setup, uint32_t group,
                                        uint32_t table);
/* Its number; UINT32_MAX: none of the group's is equal. */
uint32_t wf_run_table_find(const struct wf_run_setup *setup, uint32_t group,
                           const struct wf_placement *placement);
/* The number of the one that holds after a version was served; 0: at the start. */
uint32_t wf_run_table_after(const struct wf_run_setup *setup, uint32_t group, uint64_t step);
/* The same for the element check, of experts that stand by that table. */
struct wf_verify_place wf_run_verify_place(const struct wf_run_setup *setup, uint32_t infer_rank,
                                           uint32_t table);

#endif
