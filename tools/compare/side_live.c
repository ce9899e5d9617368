/* side_live.c - what running ranks hold, as a side: their layouts from what the server says of
 * them, their regions as files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/prepare.h"
#include "models/variant.h"
#include "tools/compare/side_private.h"
#include "tools/files/manifest_files.h"

enum { WHO_TEXT = 64 };

/* --- which ranks ----------------------------------------------------------------------------- */

static bool is_wanted(const struct wf_side_live *o, const struct wf_el_peer *peer)
{
    switch (o->who) {
    case WF_LIVE_TRAIN:
        return peer->side == WF_TRAIN;
    case WF_LIVE_RANK:
        return peer->side == WF_INFER && peer->rank == o->number;
    default:
        return peer->side == WF_INFER && peer->engine == o->number;
    }
}

static void who_text(const struct wf_side_live *o, char text[WHO_TEXT])
{
    if (o->who == WF_LIVE_TRAIN) {
        snprintf(text, WHO_TEXT, "the train side");
    } else {
        snprintf(text, WHO_TEXT, "%s %u", o->who == WF_LIVE_RANK ? "infer rank" : "engine",
                 o->number);
    }
}

static int by_rank(const void *a, const void *b)
{
    const struct wf_el_peer *x = *(const struct wf_el_peer *const *)a,
                            *y = *(const struct wf_el_peer *const *)b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static enum wf_status none_of(const struct wf_side_live *o, uint32_t engines, uint32_t ranks,
                              struct wf_error *error)
{
    char who[WHO_TEXT];
    who_text(o, who);
    return engines == 0 || o->who == WF_LIVE_TRAIN
               ? wf_error_set(error, WF_NOT_FOUND, "%s has not joined the job at %s", who,
                              o->address)
               : wf_error_set(error, WF_NOT_FOUND,
                              "the job at %s has no %s: its engines are 0 to %u, its infer ranks 0 "
                              "to %u",
                              o->address, who, engines - 1, ranks - 1);
}

/* In the order of ranks; *list_out is malloc'd. */
static enum wf_status choose(const struct wf_side_live *o, const struct wf_el_peer ***list_out,
                             uint32_t *count_out, struct wf_error *error)
{
    const struct wf_frame_members *members = wf_live_members(o->live);
    const struct wf_el_peer **list = calloc((size_t)members->peers_count + 1, sizeof(void *));
    uint32_t count = 0, engines = 0, ranks = 0;
    if (list == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a list of ranks");
    }
    for (uint32_t i = 0; i < members->peers_count; i++) {
        const struct wf_el_peer *peer = &members->peers[i];
        bool infer = peer->side == WF_INFER;
        engines = infer && peer->engine >= engines ? (uint32_t)peer->engine + 1 : engines;
        ranks += infer;
        if (is_wanted(o, peer) && peer->group < members->groups_count) {
            list[count++] = peer;
        }
    }
    if (count == 0) {
        free(list);
        return none_of(o, engines, ranks, error);
    }
    qsort(list, count, sizeof(void *), by_rank);
    *list_out = list;
    *count_out = count;
    return WF_OK;
}

/* --- the model ------------------------------------------------------------------------------- */

/* The job's model, as all its ranks have it: from the config and the recipes of all groups. */
static enum wf_status make_model(const struct wf_side_live *o, struct wf_compare_side *side,
                                 struct wf_error *error)
{
    const struct wf_frame_members *members = wf_live_members(o->live);
    struct wf_recipe *recipes = calloc((size_t)members->groups_count + 1, sizeof *recipes);
    const struct wf_recipe **list = calloc((size_t)members->groups_count + 1, sizeof(void *));
    enum wf_status status = recipes != NULL && list != NULL
                                ? WF_OK
                                : wf_error_set(error, WF_NO_MEMORY, "no memory for recipes");
    if (status == WF_OK && o->config == NULL) {
        status =
            wf_error_set(error, WF_INVALID,
                         "nothing says which model the job has: give --model, or its job file");
    }
    for (uint32_t i = 0; i < members->groups_count && status == WF_OK; i++) {
        list[i] = &recipes[i];
        status = wf_recipe_parse(members->groups[i].spec, NULL, &recipes[i], error);
    }
    if (status == WF_OK) {
        status = wf_model_for_job(o->config, list, members->groups_count, &side->owned, error);
    }
    if (status == WF_OK) {
        status = wf_manifest_files_load(list, members->groups_count, o->beside, side->owned, error);
    }
    for (uint32_t i = 0; i < members->groups_count && status == WF_OK; i++) {
        char theirs[WF_HASH_TEXT], ours[WF_HASH_TEXT];
        wf_hash_format(members->groups[i].model, theirs);
        wf_hash_format(side->owned->hash, ours);
        if (!wf_hash_equal(members->groups[i].model, side->owned->hash)) {
            status = wf_error_set(
                error, WF_MISMATCH,
                "%.200s (%s, %llu layers) is not the job's model: group %s of the job has the one "
                "with the hash %s, this one has %s; give --model with the config.json of the job, "
                "or its job file",
                o->config_path != NULL ? o->config_path : "A", side->owned->model_type,
                (unsigned long long)side->owned->layers, members->groups[i].name, theirs, ours);
        }
    }
    free(recipes);
    free(list);
    return status;
}

/* --- one rank -------------------------------------------------------------------------------- */

/* The layout that the rank announced, which must be the one that is derived here; and in the view
 * of its recipe, where the side's parameters stand. */
static enum wf_status derive(const struct wf_side_live *o, struct wf_compare_side *side,
                             const struct wf_el_peer *peer, const struct wf_recipe *group,
                             struct wf_layout **announced_out, struct wf_layout **layout_out,
                             struct wf_error *error)
{
    struct wf_recipe recipe = *group;
    struct wf_layout *own = NULL;
    const struct wf_table *table =
        peer->side == WF_INFER ? wf_tables_find(wf_live_tables(o->live), peer->engine) : NULL;
    recipe.placement = table != NULL ? &table->placement : NULL;
    enum wf_status status =
        wf_layout_derive(side->owned, &recipe, (uint32_t)peer->group_rank, announced_out, error);
    if (status == WF_OK && peer->side == WF_TRAIN) {
        own = *announced_out;
        *announced_out = NULL;
        status = wf_prepare_derive(side->owned, own, announced_out, NULL, error);
        wf_layout_free(own);
    }
    if (status == WF_OK && !wf_hash_equal(peer->layout, (struct wf_hash){0, 0}) &&
        !wf_hash_equal(peer->layout, (*announced_out)->hash)) {
        char who[WHO_TEXT];
        snprintf(who, sizeof who, "%s rank %llu", wf_side_name(peer->side),
                 (unsigned long long)peer->rank);
        status = wf_error_set(error, WF_MISMATCH,
                              "%s has another layout than its SPEC gives here: use the job's "
                              "version of weft",
                              who);
    }
    return status == WF_OK ? wf_layout_derive_view(side->owned, &recipe, (uint32_t)peer->group_rank,
                                                   layout_out, error)
                           : status;
}

static enum wf_status read_region(const struct wf_dump_file *file, void *buffer, size_t len,
                                  uint64_t offset, struct wf_error *error)
{
    enum wf_status status = wf_live_read(file->user, file->number, offset, buffer, len, error);
    if (status != WF_OK && status != WF_STALE) { /* of no use to the comparison */
        error->status = status = WF_IO;
    }
    return status;
}

static enum wf_status add_files(struct wf_dump_rank *files, struct wf_live_rank *rank,
                                struct wf_error *error)
{
    uint32_t count = wf_live_rank_regions(rank);
    files->files = calloc((size_t)count + 1, sizeof *files->files);
    for (uint32_t i = 0; i < count && files->files != NULL; i++) {
        struct wf_dump_file *file = &files->files[i];
        *file = (struct wf_dump_file){.path = strdup(wf_live_rank_who(rank)),
                                      .fd = -1,
                                      .bytes = wf_live_rank_region_bytes(rank, i),
                                      .read = read_region,
                                      .user = rank,
                                      .number = i};
        files->file_count++;
        if (file->path == NULL) {
            return wf_error_set(error, WF_NO_MEMORY, "no memory for a rank's regions");
        }
    }
    return files->files != NULL
               ? WF_OK
               : wf_error_set(error, WF_NO_MEMORY, "no memory for %u regions", count);
}

/* What its host derives, keeps or only views is nobody's parameter. */
static enum wf_status add_tensors(struct wf_dump_rank *files, const struct wf_layout *layout,
                                  const struct wf_live_rank *rank, struct wf_error *error)
{
    files->tensors = calloc((size_t)layout->tensor_count + 1, sizeof *files->tensors);
    files->capacity = layout->tensor_count;
    for (uint32_t i = 0; i < layout->tensor_count && files->tensors != NULL; i++) {
        const struct wf_tensor *tensor = &layout->tensors[i];
        struct wf_dump_tensor *added = &files->tensors[files->count];
        uint64_t bytes;
        if (tensor->kind != WF_TENSOR_WEIGHTS) {
            continue;
        }
        *added = (struct wf_dump_tensor){.dtype = tensor->dtype,
                                         .ndim = tensor->ndim,
                                         .elements = tensor->bytes / wf_dtype_bytes(tensor->dtype)};
        added->file = wf_live_rank_place(rank, i, &added->offset, &bytes);
        memcpy(added->shape, tensor->shape, sizeof added->shape);
        memcpy(added->strides, tensor->strides, sizeof added->strides);
        if (added->file == WF_LIVE_NOWHERE || bytes != tensor->bytes) {
            return wf_error_set(error, WF_PROTOCOL, "%s shows %s in %llu bytes; expected %llu",
                                wf_live_rank_who(rank), tensor->name, (unsigned long long)bytes,
                                (unsigned long long)tensor->bytes);
        }
        added->name = strdup(tensor->name);
        if (added->name == NULL) {
            return wf_error_set(error, WF_NO_MEMORY, "no memory for a name");
        }
        files->count++;
    }
    return files->tensors != NULL ? wf_dump_rank_sort(files, error)
                                  : wf_error_set(error, WF_NO_MEMORY, "no memory for %u tensors",
                                                 layout->tensor_count);
}

/* --- all of them ----------------------------------------------------------------------------- */

static enum wf_status connect_all(const struct wf_side_live *o, struct wf_compare_side *side,
                                  const struct wf_el_peer *const *peers, uint32_t count,
                                  const struct wf_recipe *recipe, struct wf_live_rank **ranks,
                                  struct wf_error *error)
{
    enum wf_status status = WF_OK;
    side->ranks = calloc(count, sizeof *side->ranks);
    if (side->ranks == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u ranks", count);
    }
    side->rank_count = count;
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        struct wf_layout *announced = NULL;
        status = derive(o, side, peers[i], recipe, &announced, &side->ranks[i].layout, error);
        status = status == WF_OK ? wf_live_connect(o->live, peers[i], announced->hash,
                                                   announced->tensor_count, &ranks[i], error)
                                 : status;
        wf_layout_free(announced);
    }
    return status;
}

static enum wf_status open_ranks(const struct wf_side_live *o, struct wf_compare_side *side,
                                 const struct wf_el_peer *const *peers, uint32_t count,
                                 struct wf_error *error)
{
    const struct wf_el_group *group = &wf_live_members(o->live)->groups[peers[0]->group];
    struct wf_live_rank **ranks = calloc(count, sizeof(void *));
    struct wf_recipe recipe;
    if (ranks == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u ranks", count);
    }
    enum wf_status status = make_model(o, side, error);
    status = status == WF_OK ? wf_recipe_parse(group->spec, side->owned, &recipe, error) : status;
    if (status == WF_OK) {
        wf_recipe_format(&recipe, side->spec);
        side->model = wf_model_view(side->owned, &recipe);
        status = connect_all(o, side, peers, count, &recipe, ranks, error);
    }
    status = status == WF_OK ? wf_live_begin(o->live, &side->version, error) : status;
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        status = add_files(&side->ranks[i].files, ranks[i], error);
        status = status == WF_OK
                     ? add_tensors(&side->ranks[i].files, side->ranks[i].layout, ranks[i], error)
                     : status;
    }
    free(ranks);
    return status;
}

static void name_side(const struct wf_side_live *o, struct wf_compare_side *side)
{
    char text[WF_VERSION_TEXT], who[WHO_TEXT], *path = NULL;
    wf_version_format(side->version, text);
    who_text(o, who);
    if (asprintf(&path, "%s of %s, version %s", who, o->address, text) >= 0) {
        free(side->path);
        side->path = path;
    }
}

enum wf_status wf_side_open_live(const struct wf_side_live *o, struct wf_compare_side *side,
                                 struct wf_error *error)
{
    const struct wf_el_peer **peers = NULL;
    uint32_t count = 0;
    *side = (struct wf_compare_side){.path = strdup(o->address),
                                     .serves = o->who != WF_LIVE_TRAIN,
                                     .partial = o->who == WF_LIVE_RANK};
    if (side->path == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a path");
    }
    enum wf_status status = choose(o, &peers, &count, error);
    status = status == WF_OK ? open_ranks(o, side, peers, count, error) : status;
    free(peers);
    if (status == WF_OK) {
        name_side(o, side);
        status = wf_side_index(side, error);
    }
    return status;
}
