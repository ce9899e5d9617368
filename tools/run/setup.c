/* setup.c - job file to model, recipes and worlds. */
#include "tools/run/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/engines/engine.h"
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/layout.h"
#include "models/variant.h"
#include "tools/files/checkpoint.h"
#include "tools/files/io.h"
#include "tools/files/make_checkpoint.h"
#include "tools/files/manifest_files.h"
#include "tools/run/placement.h"

/* Where checkpoints of known values are kept: one folder a configuration, named after its hash, so
 * that two configurations never share one. */
static enum wf_status cache_folder(struct wf_run_setup *setup, struct wf_error *error)
{
    const char *own = getenv("WEFT_CACHE"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    const char *root = own != NULL ? own : cache != NULL ? cache : home != NULL ? home : "/tmp";
    const char *below = own != NULL ? "" : cache != NULL ? "/weft" : "/.cache/weft";
    const char *slash = strrchr(setup->job.model, '/');
    const char *name = slash != NULL ? slash + 1 : setup->job.model;
    const char *dot = strrchr(name, '.');
    int name_len = dot != NULL ? (int)(dot - name) : (int)strlen(name);
    char hash[WF_HASH_TEXT];
    wf_hash_format(setup->config->hash, hash);
    int wanted = snprintf(setup->folder, sizeof setup->folder, "%s%s/%.*s-%.12s", root, below,
                          name_len, name, hash);
    if (wanted >= (int)sizeof setup->folder) {
        return wf_error_set(error, WF_INVALID,
                            "the cache folder's path is too long; set WEFT_CACHE to a shorter one");
    }
    setup->made = true;
    return WF_OK;
}

/* `model` of the job: a folder with config.json and weights, or a configuration alone. */
static enum wf_status load_model(struct wf_run_setup *setup, struct wf_error *error)
{
    struct stat info;
    if (stat(setup->job.model, &info) != 0) {
        return wf_error_set(error, WF_IO,
                            "model: %s: %s; expected a Hugging Face folder or a config.json",
                            setup->job.model, strerror(errno));
    }
    enum wf_status status =
        wf_checkpoint_model(setup->job.model, setup->families.list, &setup->config, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "model");
        return status;
    }
    if (!S_ISDIR(info.st_mode)) {
        return cache_folder(setup, error);
    }
    snprintf(setup->folder, sizeof setup->folder, "%s", setup->job.model);
    return WF_OK;
}

static void show_making(void *user, uint64_t bytes_done, uint64_t bytes_total)
{
    (void)user;
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K  %.1f of %.1f GB", (double)bytes_done * 1e-9,
                (double)bytes_total * 1e-9);
    }
}

static void make_parents(const char *folder)
{
    struct wf_error ignored;
    char path[WF_PATH_MAX];
    snprintf(path, sizeof path, "%s", folder);
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        *slash = '\0';
        wf_folder_make(path, 0777, &ignored);
    }
}

/* One process makes the folder, the others of this host wait for it; -1 where no lock can be had.
 */
static int lock_folder(const struct wf_run_setup *setup)
{
    char path[WF_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s.lock", setup->folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    return fd;
}

static enum wf_status make_folder(const struct wf_run_setup *setup, struct wf_error *error)
{
    fprintf(stderr, "making a checkpoint of known values in %s\n", setup->folder);
    struct wf_make_report report;
    struct wf_make_options options = {.config = setup->job.model,
                                      .folder = setup->folder,
                                      .shards = 1,
                                      .families = setup->families.list,
                                      .progress = show_making};
    enum wf_status status = wf_make_checkpoint(&options, &report, error);
    fputs(isatty(STDERR_FILENO) ? "\r\033[K" : "", stderr);
    return status;
}

enum wf_status wf_run_setup_make(const struct wf_run_setup *setup, struct wf_error *error)
{
    char ready[WF_PATH_MAX + 16];
    snprintf(ready, sizeof ready, "%s/config.json", setup->folder);
    if (!setup->made || access(ready, F_OK) == 0) {
        return WF_OK;
    }
    make_parents(setup->folder);
    int lock = lock_folder(setup);
    enum wf_status status = access(ready, F_OK) == 0 ? WF_OK : make_folder(setup, error);
    if (lock >= 0) {
        close(lock); /* the file stays: removing it would let two in */
    }
    return status;
}

static void show_note(void *user, const char *sentence)
{
    (void)user;
    fprintf(stderr, "weft: note: %s\n", sentence);
}

enum wf_status wf_run_setup_try(const struct wf_run_setup *setup, struct wf_error *error)
{
    struct wf_checkpoint *checkpoint = NULL;
    struct wf_checkpoint_options options = {.extras_refuse = setup->job.policy.extras_refuse,
                                            .note = show_note};
    enum wf_status status =
        wf_checkpoint_open(setup->folder, setup->config, &options, &checkpoint, error);
    wf_checkpoint_free(checkpoint);
    return status;
}

enum wf_status wf_run_setup_open(const struct wf_run_setup *setup, bool extras_refuse,
                                 struct wf_checkpoint **out, struct wf_error *error)
{
    struct wf_checkpoint *checkpoint = NULL;
    struct wf_checkpoint_options options = {.extras_refuse = extras_refuse};
    enum wf_status status =
        wf_checkpoint_open(setup->folder, setup->config, &options, &checkpoint, error);
    if (status == WF_OK) {
        status = wf_checkpoint_as_plain(checkpoint, setup->model, error);
    }
    if (status != WF_OK) {
        wf_checkpoint_free(checkpoint);
        return status;
    }
    *out = checkpoint;
    return WF_OK;
}

/* What only the layout can tell (heads that do not divide) is told before anything starts. */
static enum wf_status try_layout(const struct wf_run_setup *setup, const struct wf_recipe *recipe,
                                 uint32_t rank, struct wf_error *error)
{
    struct wf_layout *layout = NULL;
    enum wf_status status = wf_layout_derive(setup->model, recipe, rank, &layout, error);
    if (status == WF_OK) {
        wf_layout_free(layout);
    }
    return status;
}

/* Adds a group's ranks and engines to the job's. */
static enum wf_status add_group(struct wf_run_setup *setup, const struct wf_recipe *recipe,
                                struct wf_error *error)
{
    bool keeps = strcmp(recipe->engine->name, "hf") == 0;
    if (keeps && setup->job.files.folder[0] == '\0') {
        return wf_error_set(error, WF_INVALID,
                            "hf is the engine that keeps versions as folders: give files.folder");
    }
    if (keeps && setup->keepers++ > 0) {
        return wf_error_set(error, WF_INVALID,
                            "one rank keeps versions in files.folder: leave the second hf out");
    }
    /* What stands in for inference here, and what checks it, knows these. */
    if (!keeps && recipe->engine != &wf_engine_vllm && recipe->engine != &wf_engine_sglang &&
        recipe->engine != &wf_engine_manifest) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "expected vllm, sglang or manifest, which weft run can check, found "
                            "%s",
                            recipe->engine->name);
    }
    uint64_t world = wf_recipe_world(recipe);
    uint64_t ranks = setup->infer_ranks + world;
    uint64_t engines = setup->engines + world / wf_recipe_ranks_per_engine(recipe);
    if (ranks > WF_RANKS_MAX / 2 || engines > WF_ENGINES_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "the job would have %llu inference ranks in %llu engines; at most %d "
                            "in %d are possible",
                            (unsigned long long)ranks, (unsigned long long)engines,
                            WF_RANKS_MAX / 2, WF_ENGINES_MAX);
    }
    setup->infer_ranks = (uint32_t)ranks;
    setup->engines = (uint32_t)engines;
    return WF_OK;
}

/* Each table by itself: what it says of any layer, to a rank that has all of its stage. */
static enum wf_status load_tables(struct wf_run_setup *setup, uint32_t group,
                                  struct wf_error *error)
{
    for (uint32_t i = 0; i < setup->job.infer[group].placement_count; i++) {
        struct wf_placement *table = &setup->tables[group][i];
        struct wf_recipe recipe = setup->infer[group];
        enum wf_status status =
            wf_run_placement_load(setup->job.infer[group].placements[i].table, table, error);
        recipe.placement = table;
        for (uint32_t rank = 0; rank < wf_recipe_ranks_per_engine(&recipe) && status == WF_OK;
             rank++) {
            status = try_layout(setup, &recipe, rank, error);
        }
        if (status != WF_OK) {
            wf_error_prefix(error, "infer[%u].placements[%u].table", group, i);
            return status;
        }
    }
    return WF_OK;
}

/* The job's model follows from the config and from what the groups hold quantised. */
static enum wf_status make_model(struct wf_run_setup *setup, struct wf_error *error)
{
    const struct wf_recipe *recipes[1 + WF_GROUPS_MAX] = {&setup->train};
    enum wf_status status = wf_recipe_parse(setup->job.train_spec, NULL, &setup->train, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "train.spec");
    }
    for (uint32_t i = 0; i < setup->job.infer_count && status == WF_OK; i++) {
        recipes[1 + i] = &setup->infer[i];
        status = wf_recipe_parse(setup->job.infer[i].spec, NULL, &setup->infer[i], error);
        if (status != WF_OK) {
            wf_error_prefix(error, "infer[%u].spec", i);
        }
    }
    if (status == WF_OK) {
        status = wf_model_for_job(setup->config, recipes, 1 + setup->job.infer_count, &setup->model,
                                  error);
    }
    return status == WF_OK ? wf_manifest_files_load(recipes, 1 + setup->job.infer_count,
                                                    setup->job.path, setup->model, error)
                           : status;
}

/* With the model, everything that can be wrong about it and a recipe. */
static enum wf_status load_specs(struct wf_run_setup *setup, struct wf_error *error)
{
    enum wf_status status =
        wf_recipe_parse(setup->job.train_spec, setup->model, &setup->train, error);
    if (status == WF_OK) {
        status = try_layout(setup, &setup->train, 0, error);
    }
    if (status == WF_OK && wf_recipe_world(&setup->train) > WF_RANKS_MAX / 2) {
        status = wf_error_set(error, WF_INVALID, "%u ranks; at most %d are possible",
                              wf_recipe_world(&setup->train), WF_RANKS_MAX / 2);
    }
    if (status == WF_OK) {
        status = wf_run_less_one(setup->model, &setup->train, &setup->less_one, error);
    }
    if (status != WF_OK) {
        wf_error_prefix(error, "train.spec");
        return status;
    }
    setup->train_ranks = wf_recipe_world(&setup->train);
    for (uint32_t i = 0; i < setup->job.infer_count; i++) {
        struct wf_recipe *recipe = &setup->infer[i];
        status = wf_recipe_parse(setup->job.infer[i].spec, setup->model, recipe, error);
        if (status == WF_OK) {
            status = try_layout(setup, recipe, 0, error);
        }
        if (status == WF_OK) {
            status = add_group(setup, recipe, error);
        }
        if (status != WF_OK) {
            wf_error_prefix(error, "infer[%u].spec", i);
            return status;
        }
        status = load_tables(setup, i, error);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

/* A fault of a rank that is not there would never come, and nobody would notice. */
static enum wf_status check_fault_ranks(const struct wf_run_setup *setup, struct wf_error *error)
{
    for (uint32_t i = 0; i < setup->job.fault_count; i++) {
        const struct wf_job_fault *fault = &setup->job.faults[i];
        for (uint32_t k = 0; k < fault->rank_count; k++) {
            if (fault->ranks[k] >= setup->infer_ranks) {
                return wf_error_set(error, WF_INVALID,
                                    "faults[%u].ranks: %u: the job has infer ranks 0 to %u", i,
                                    fault->ranks[k], setup->infer_ranks - 1);
            }
        }
    }
    return WF_OK;
}

/* Those of the job file, then those of the command line. */
static enum wf_status load_families(struct wf_run_setup *setup, bool *usage_out,
                                    struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < setup->job.family_count && status == WF_OK; i++) {
        status = wf_family_files_load(&setup->families, setup->job.families[i], error);
    }
    for (uint32_t i = 0; i < setup->given_count && status == WF_OK; i++) {
        status = wf_family_files_load(&setup->families, setup->given[i], error);
    }
    *usage_out = status != WF_IO;
    return status;
}

enum wf_status wf_run_setup_load(const char *job_path, struct wf_run_setup *setup_out,
                                 bool *usage_out, struct wf_error *error)
{
    struct wf_run_setup *setup = setup_out;
    struct wf_run_setup given = {.given_count = setup->given_count};
    memcpy(given.given, setup->given, sizeof given.given);
    *setup = given;
    *usage_out = true;
    enum wf_status status = wf_job_load(job_path, &setup->job, error);
    if (status == WF_IO) {
        *usage_out = false;
    }
    if (status == WF_OK) {
        status = load_families(setup, usage_out, error);
    }
    if (status == WF_OK) {
        *usage_out = false;
        status = load_model(setup, error);
    }
    if (status == WF_OK) {
        *usage_out = true;
        status = make_model(setup, error);
    }
    if (status == WF_OK) {
        status = load_specs(setup, error);
    }
    if (status == WF_OK) {
        status = check_fault_ranks(setup, error);
    }
    if (status != WF_OK) {
        wf_run_setup_fini(setup);
    }
    return status;
}

void wf_run_setup_fini(struct wf_run_setup *setup)
{
    for (uint32_t i = 0; i < WF_GROUPS_MAX; i++) {
        for (uint32_t k = 0; k < WF_JOB_PLACEMENTS_MAX; k++) {
            wf_run_placement_fini(&setup->tables[i][k]);
        }
    }
    wf_model_free(setup->model);
    wf_model_free(setup->config);
    setup->model = setup->config = NULL;
    free(setup->less_one);
    setup->less_one = NULL;
    wf_family_files_fini(&setup->families);
}

bool wf_run_keeps(const struct wf_run_setup *setup, uint32_t group)
{
    return strcmp(setup->infer[group].engine->name, "hf") == 0;
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

const struct wf_placement *wf_run_table(const struct wf_run_setup *setup, uint32_t group,
                                        uint32_t table)
{
    return table > 0 ? &setup->tables[group][table - 1] : NULL;
}

uint32_t wf_run_table_find(const struct wf_run_setup *setup, uint32_t group,
                           const struct wf_placement *placement)
{
    uint32_t table = placement == NULL ? 0 : setup->job.infer[group].placement_count;
    for (; table > 0; table--) {
        const struct wf_placement *own = wf_run_table(setup, group, table);
        size_t slots = (size_t)own->layers * own->slots;
        if (own->layers == placement->layers && own->slots == placement->slots &&
            memcmp(own->experts, placement->experts, slots * sizeof own->experts[0]) == 0) {
            return table;
        }
    }
    return placement == NULL ? 0 : UINT32_MAX;
}

uint32_t wf_run_table_after(const struct wf_run_setup *setup, uint32_t group, uint64_t step)
{
    const struct wf_job_group *of = &setup->job.infer[group];
    uint32_t table = 0;
    while (table < of->placement_count && of->placements[table].after <= step) {
        table++;
    }
    return table;
}

/* Of all ranks of an engine; 0: it has no experts. */
static uint32_t slots_of(const struct wf_run_setup *setup, const struct wf_recipe *recipe,
                         const struct wf_coordinates *at)
{
    uint32_t *slots = calloc(WF_SLOTS_MAX, sizeof *slots), all = 0;
    uint32_t ranks = at->group[WF_GROUP_EP].size > 0 ? at->group[WF_GROUP_EP].size : 1;
    struct wf_recipe rule = *recipe;
    struct wf_error error;
    WF_ASSERT(slots != NULL);
    rule.placement = NULL;
    for (uint32_t r = 0; r < ranks && recipe->engine->experts != NULL; r++) {
        struct wf_coordinates other = *at;
        uint32_t count = 0;
        other.group[WF_GROUP_EP].rank = r;
        if (recipe->engine->experts(setup->model, &rule, &other, 0, slots, &count, &error) ==
            WF_OK) {
            all += count;
        }
    }
    free(slots);
    return all;
}

struct wf_verify_place wf_run_verify_place(const struct wf_run_setup *setup, uint32_t infer_rank,
                                           uint32_t table)
{
    struct wf_run_place place = wf_run_place(setup, infer_rank);
    const struct wf_recipe *recipe = &setup->infer[place.group];
    struct wf_coordinates at = wf_recipe_coordinates(recipe, place.group_rank);
    const struct wf_placement *experts = wf_run_table(setup, place.group, table);
    const struct wf_variants *variants = setup->model->variants;
    bool sglang = strcmp(recipe->engine->name, "sglang") == 0;
    bool quantised = variants && (recipe->engine->layout != NULL || /* its names say which are */
                                  wf_model_view(setup->model, recipe) == variants->quantised);
    return (struct wf_verify_place){
        .recipe = recipe,
        .less_one = setup->less_one,
        .rank = place.group_rank,
        .tp = recipe->tp,
        .tp_rank = at.tp,
        .pp = recipe->pp,
        .pp_rank = at.pp,
        .ep = at.group[WF_GROUP_EP].size,
        .ep_rank = at.group[WF_GROUP_EP].rank,
        .slots = slots_of(setup, recipe, &at),
        .slot_experts = experts != NULL ? experts->experts : NULL,
        .quant = quantised ? variants->rule : WF_QUANT_NONE,
        .round_robin = !sglang && recipe->own[WF_VLLM_STRATEGY] == WF_VLLM_ROUND_ROBIN &&
                       recipe->own[WF_VLLM_EPLB] == 0,
        .vision_whole = at.group[WF_GROUP_VISION].size <= 1,
        .slot_layers = experts != NULL ? experts->layers : 0,
        .shared = sglang ? recipe->own[WF_SGLANG_SHARED] : 0,
        .sglang = sglang};
}
