/* setup.c - job file to model, recipes and worlds. */
#include "tools/run/setup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/files/checkpoint.h"

/* `model` of the job: a folder with config.json and weights. */
static enum wf_status load_model(struct wf_run_setup *setup, struct wf_error *error)
{
    struct stat info;
    if (stat(setup->job.model, &info) != 0) {
        return wf_error_set(error, WF_IO,
                            "model: %s: %s; expected a Hugging Face folder (weft make-checkpoint "
                            "makes one of known values)",
                            setup->job.model, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return wf_error_set(error, WF_INVALID,
                            "model: %s is no folder; weft run needs the weights too: make a folder "
                            "with weft make-checkpoint --model %s --out DIR",
                            setup->job.model, setup->job.model);
    }
    snprintf(setup->folder, sizeof setup->folder, "%s", setup->job.model);
    return wf_checkpoint_model(setup->folder, &setup->model, error);
}

static enum wf_status load_specs(struct wf_run_setup *setup, struct wf_error *error)
{
    enum wf_status status =
        wf_recipe_parse(setup->job.train_spec, setup->model, &setup->train, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "train.spec");
        return status;
    }
    setup->train_ranks = wf_recipe_world(&setup->train);
    for (uint32_t i = 0; i < setup->job.infer_count; i++) {
        struct wf_recipe *recipe = &setup->infer[i];
        status = wf_recipe_parse(setup->job.infer[i].spec, setup->model, recipe, error);
        if (status != WF_OK) {
            wf_error_prefix(error, "infer[%u].spec", i);
            return status;
        }
        setup->infer_ranks += wf_recipe_world(recipe);
        setup->engines += wf_recipe_world(recipe) / wf_recipe_ranks_per_engine(recipe);
    }
    return WF_OK;
}

enum wf_status wf_run_setup_load(const char *job_path, struct wf_run_setup *setup_out,
                                 bool *usage_out, struct wf_error *error)
{
    struct wf_run_setup *setup = setup_out;
    memset(setup, 0, sizeof *setup);
    *usage_out = true;
    enum wf_status status = wf_job_load(job_path, &setup->job, error);
    if (status == WF_IO) {
        *usage_out = false;
    }
    if (status == WF_OK) {
        *usage_out = false;
        status = load_model(setup, error);
    }
    if (status == WF_OK) {
        *usage_out = true;
        status = load_specs(setup, error);
    }
    if (status != WF_OK) {
        wf_run_setup_fini(setup);
    }
    return status;
}

void wf_run_setup_fini(struct wf_run_setup *setup)
{
    wf_model_free(setup->model);
    setup->model = NULL;
}

struct wf_run_place wf_run_place(const struct wf_run_setup *setup, uint32_t infer_rank)
{
    struct wf_run_place place = {0};
    uint32_t first = 0;
    for (uint32_t i = 0; i < setup->job.infer_count; i++) {
        uint32_t world = wf_recipe_world(&setup->infer[i]);
        uint32_t per_engine = wf_recipe_ranks_per_engine(&setup->infer[i]);
        if (infer_rank < first + world) {
            place.group = i;
            place.group_rank = infer_rank - first;
            place.engine += place.group_rank / per_engine;
            place.engine_rank = place.group_rank % per_engine;
            place.engine_ranks = per_engine;
            return place;
        }
        first += world;
        place.engine += world / per_engine;
    }
    WF_ASSERT(!"an infer rank beyond the job's");
    return place;
}
