/* plan_job.c - the ranks of a job that is only planned. */
#include "tools/plan_job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/prepare.h"
#include "models/variant.h"
#include "tools/files/manifest_files.h"

static enum wf_status parse_group(struct wf_plan_job *job, enum wf_side side, const char *spec,
                                  const struct wf_placement *placement, struct wf_error *error)
{
    struct wf_plan_job_group *group = &job->groups[job->group_count];
    enum wf_status status = wf_recipe_parse(spec, NULL, &group->recipe, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "%s \"%s\"", side == WF_TRAIN ? "--train" : "--infer", spec);
        return status;
    }
    uint32_t *ranks = side == WF_TRAIN ? &job->train_ranks : &job->infer_ranks;
    group->recipe.placement = placement;
    group->spec = spec;
    group->side = side;
    group->first_rank = *ranks;
    group->rank_count = wf_recipe_world(&group->recipe);
    if (group->rank_count > WF_WORLD_MAX - *ranks) {
        return wf_error_set(error, WF_INVALID,
                            "\"%s\" brings one side to more than %d ranks, which is the limit",
                            spec, WF_WORLD_MAX);
    }
    *ranks += group->rank_count;
    job->group_count++;
    return WF_OK;
}

/* The job's model, and everything that can be wrong about it and a recipe. */
static enum wf_status make_model(struct wf_plan_job *job, const struct wf_model *config,
                                 struct wf_error *error)
{
    const struct wf_recipe *recipes[WF_PLAN_GROUPS_MAX];
    for (uint32_t g = 0; g < job->group_count; g++) {
        recipes[g] = &job->groups[g].recipe;
    }
    enum wf_status status = wf_model_for_job(config, recipes, job->group_count, &job->model, error);
    if (status == WF_OK) {
        status = wf_manifest_files_load(recipes, job->group_count, NULL, job->model, error);
    }
    for (uint32_t g = 0; g < job->group_count && status == WF_OK; g++) {
        status = wf_engine_check(job->model, recipes[g], error);
        if (status != WF_OK) {
            wf_error_prefix(error, "%s \"%s\"",
                            job->groups[g].side == WF_TRAIN ? "--train" : "--infer",
                            job->groups[g].spec);
        } else if (wf_manifest_lacks_find(job->model, recipes[g], job->groups[g].spec, NULL,
                                          &job->lacks[job->lacks_count])) {
            job->lacks_count++;
        }
    }
    return status;
}

/* Takes a layout; gives it, or the equal one that is there already. */
static const struct wf_layout *keep_layout(struct wf_plan_job *job, struct wf_layout *layout)
{
    for (uint32_t i = 0; i < job->layout_count; i++) {
        if (wf_hash_equal(job->layouts[i]->hash, layout->hash)) {
            wf_layout_free(layout);
            return job->layouts[i];
        }
    }
    job->layouts[job->layout_count++] = layout;
    return layout;
}

/* As members announce it: of a train rank the layout as a source. */
static enum wf_status derive(const struct wf_plan_job *job, const struct wf_plan_job_group *group,
                             uint32_t rank, struct wf_layout **layout_out, struct wf_error *error)
{
    struct wf_layout *own = NULL;
    enum wf_status status = wf_layout_derive(job->model, &group->recipe, rank, &own, error);
    if (status != WF_OK || group->side != WF_TRAIN) {
        *layout_out = own;
        return status;
    }
    status = wf_prepare_derive(job->model, own, layout_out, NULL, error);
    wf_layout_free(own);
    return status;
}

static enum wf_status derive_group(struct wf_plan_job *job, const struct wf_plan_job_group *group,
                                   uint32_t per_host, struct wf_error *error)
{
    bool train = group->side == WF_TRAIN;
    uint32_t member_first = train ? 0 : job->train_ranks;
    uint32_t per_engine = wf_recipe_ranks_per_engine(&group->recipe);
    uint32_t host_first = train ? 0 : (job->train_ranks + per_host - 1) / per_host;
    for (uint32_t r = 0; r < group->rank_count; r++) {
        uint32_t rank = group->first_rank + r, m = member_first + rank;
        const struct wf_layout *kept = NULL;
        struct wf_layout *layout = NULL;
        if (r >= per_engine) { /* the engines of a group are alike */
            kept = job->members[m - per_engine].layout;
        } else {
            enum wf_status status = derive(job, group, r, &layout, error);
            if (status != WF_OK) {
                wf_error_prefix(error, "%s \"%s\"", train ? "--train" : "--infer", group->spec);
                return status;
            }
            kept = keep_layout(job, layout);
        }
        struct wf_coordinates at = wf_recipe_coordinates(&group->recipe, r);
        job->members[m] = (struct wf_plan_member){.side = group->side,
                                                  .rank = rank,
                                                  .engine = train ? 0 : job->engines + at.engine,
                                                  .layout = kept,
                                                  .host = host_first + rank / per_host};
        job->input.member_count++;
    }
    if (!train) {
        job->engines += group->rank_count / wf_recipe_ranks_per_engine(&group->recipe);
    }
    return WF_OK;
}

/* As the ranks do once they know all layouts: what has no source as codes is assembled. */
static enum wf_status plan_targets(struct wf_plan_job *job, struct wf_error *error)
{
    const struct wf_layout **sources = calloc(job->train_ranks + 1ull, sizeof *sources);
    job->assembled_bytes = calloc(job->infer_ranks + 1ull, sizeof *job->assembled_bytes);
    if (sources == NULL || job->assembled_bytes == NULL) {
        free(sources);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu32 " layouts",
                            job->train_ranks);
    }
    for (uint32_t r = 0; r < job->train_ranks; r++) {
        sources[r] = job->members[r].layout;
    }
    enum wf_status status = wf_cuts_find(job->model, sources, job->train_ranks, &job->cuts, error);
    free(sources);
    for (uint32_t r = 0; r < job->infer_ranks && job->cuts != NULL && status == WF_OK; r++) {
        struct wf_plan_member *member = &job->members[job->train_ranks + r];
        struct wf_layout *planned = NULL;
        uint64_t own_bytes = member->layout->bytes;
        status = wf_assemble_derive(job->model, member->layout, job->cuts, &planned, NULL, error);
        if (status == WF_OK && planned != NULL) {
            member->layout = keep_layout(job, planned);
            job->assembled_bytes[r] = member->layout->bytes - own_bytes;
        }
    }
    return status;
}

enum wf_status wf_plan_job_init(struct wf_plan_job *job, const struct wf_model *config,
                                const char *train_spec, const struct wf_plan_job_infer *infer,
                                uint32_t infer_count, uint32_t per_host, struct wf_error *error)
{
    *job = (struct wf_plan_job){0};
    if (infer_count >= WF_PLAN_GROUPS_MAX) {
        return wf_error_set(error, WF_INVALID, "at most %d infer groups", WF_PLAN_GROUPS_MAX - 1);
    }
    enum wf_status status = parse_group(job, WF_TRAIN, train_spec, NULL, error);
    for (uint32_t i = 0; i < infer_count && status == WF_OK; i++) {
        status = parse_group(job, WF_INFER, infer[i].spec, infer[i].placement, error);
    }
    if (status == WF_OK) {
        status = make_model(job, config, error);
    }
    if (status != WF_OK) {
        return status;
    }
    uint64_t count = (uint64_t)job->train_ranks + job->infer_ranks;
    job->members = calloc(count, sizeof *job->members);
    job->layouts = calloc(count + job->infer_ranks, sizeof *job->layouts);
    if (job->members == NULL || job->layouts == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu64 " ranks", count);
    }
    job->input.model = job->model;
    job->input.members = job->members;
    for (uint32_t g = 0; g < job->group_count && status == WF_OK; g++) {
        status = derive_group(job, &job->groups[g], per_host, error);
    }
    return status == WF_OK ? plan_targets(job, error) : status;
}

void wf_plan_job_fini(struct wf_plan_job *job)
{
    for (uint32_t i = 0; i < job->layout_count; i++) {
        wf_layout_free(job->layouts[i]);
    }
    free(job->layouts);
    free(job->members);
    free(job->assembled_bytes);
    wf_cuts_free(job->cuts);
    wf_model_free(job->model);
    *job = (struct wf_plan_job){0};
}
