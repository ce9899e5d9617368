/* side_open.c - what kind of folder a side is, and its files, model and layouts. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/variant.h"
#include "tools/compare/side_private.h"
#include "tools/files/checkpoint.h"
#include "tools/files/hf_folder.h"
#include "tools/files/io.h"
#include "tools/files/manifest_files.h"
#include "tools/files/stored.h"
#include "tools/files/version_folder.h"
#include "tools/files/version_manifest.h"

enum { PATH_ROOM = 4096 };

/* --- lists of sentences ---------------------------------------------------------------------- */

enum wf_status wf_texts_add(struct wf_texts *texts, struct wf_error *error, const char *format, ...)
{
    if (texts->count == texts->capacity) {
        uint32_t capacity = texts->capacity == 0 ? 16 : 2 * texts->capacity;
        void *grown = realloc(texts->items, capacity * sizeof *texts->items);
        if (grown == NULL) {
            return wf_error_set(error, WF_NO_MEMORY, "no memory for a list");
        }
        texts->items = grown;
        texts->capacity = capacity;
    }
    va_list args;
    va_start(args, format);
    int len = vasprintf(&texts->items[texts->count], format, args);
    va_end(args);
    if (len < 0) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a list");
    }
    texts->count++;
    return WF_OK;
}

void wf_texts_fini(struct wf_texts *texts)
{
    for (uint32_t i = 0; i < texts->count; i++) {
        free(texts->items[i]);
    }
    free(texts->items);
    *texts = (struct wf_texts){0};
}

/* --- kinds of folders ------------------------------------------------------------------------ */

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_ROOM];
    return (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path &&
           access(path, F_OK) == 0;
}

static void take_note(void *user, const char *sentence)
{
    struct wf_compare_side *side = user;
    wf_texts_add(&side->notes, NULL, "%s", sentence);
}

static enum wf_status refuse(struct wf_compare_side *side, const struct wf_error *why,
                             struct wf_error *error)
{
    side->by_names = true;
    return wf_texts_add(&side->refused, error, "%s", why->text);
}

static enum wf_status refuse_path(const char *path, const char *found, struct wf_error *error)
{
    return wf_error_set(error, WF_NOT_FOUND,
                        "%s: expected a Hugging Face folder (config.json and safetensors) or a "
                        "dump (recipe.json and rank_00.safetensors); found %s",
                        path, found);
}

/* Every rank's file, whatever it holds. */
static enum wf_status open_rank_files(struct wf_compare_side *side, struct wf_error *error)
{
    struct stat info;
    if (stat(side->path, &info) != 0) {
        return refuse_path(side->path, errno == ENOENT ? "nothing of that name" : strerror(errno),
                           error);
    }
    if (!S_ISDIR(info.st_mode)) {
        return refuse_path(side->path, "no folder", error);
    }
    char **names = NULL, path[PATH_ROOM];
    uint32_t count = 0;
    const struct wf_dump_options options = {.note = take_note, .user = side};
    enum wf_status status = wf_dump_rank_files(side->path, &names, &count, error);
    if (status == WF_OK && count == 0) {
        status = refuse_path(side->path,
                             has_file(side->path, "config.json")
                                 ? "a config.json without weights (weft make-checkpoint makes some)"
                                 : "neither",
                             error);
    }
    if (status == WF_OK && (side->ranks = calloc(count, sizeof *side->ranks)) == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for %u ranks", count);
    }
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        side->rank_count = i + 1;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", side->path, names[i]) >= sizeof path) {
            status = wf_error_set(error, WF_INVALID, "the path of %s is too long", names[i]);
        }
        status = status == WF_OK ? wf_dump_rank_add(&side->ranks[i].files, path, &options, error)
                                 : status;
        status = status == WF_OK ? wf_dump_rank_sort(&side->ranks[i].files, error) : status;
    }
    wf_dump_rank_files_free(names, count);
    return status;
}

/* The model as ranks of this recipe see it: with codes and scales where it says a rule. */
static enum wf_status take_model(struct wf_compare_side *side, const struct wf_model *config,
                                 const struct wf_recipe *recipe, struct wf_error *error)
{
    char beside[PATH_ROOM];
    struct wf_recipe alone;
    struct wf_error why;
    const struct wf_recipe *recipes[] = {&alone};
    enum wf_status status = wf_recipe_parse(side->spec, NULL, &alone, &why);
    status = status == WF_OK ? wf_model_for_job(config, recipes, 1, &side->owned, &why) : status;
    snprintf(beside, sizeof beside, "%s/recipe.json", side->path);
    status =
        status == WF_OK ? wf_manifest_files_load(recipes, 1, beside, side->owned, &why) : status;
    if (status != WF_OK) {
        return refuse(side, &why, error);
    }
    side->model = wf_model_view(side->owned, recipe);
    return WF_OK;
}

/* The ranks change their owner. */
static enum wf_status take_dump(struct wf_compare_side *side, struct wf_dump *dump,
                                struct wf_error *error)
{
    side->ranks = calloc(dump->rank_count, sizeof *side->ranks);
    if (side->ranks == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u ranks", dump->rank_count);
    }
    side->rank_count = dump->rank_count;
    for (uint32_t i = 0; i < dump->rank_count; i++) {
        side->ranks[i].files = dump->ranks[i];
        dump->ranks[i] = (struct wf_dump_rank){0};
    }
    memcpy(side->spec, dump->spec, sizeof side->spec);
    side->config = dump->model;
    dump->model = NULL;
    return take_model(side, side->config, &dump->recipe, error);
}

static enum wf_status derive_all(struct wf_compare_side *side, const struct wf_recipe *recipe,
                                 struct wf_error *error)
{
    for (uint32_t i = 0; i < side->rank_count; i++) {
        struct wf_error why;
        enum wf_status status =
            wf_layout_derive_view(side->owned, recipe, i, &side->ranks[i].layout, &why);
        if (status == WF_NO_MEMORY) {
            return wf_error_set(error, status, "%s", why.text);
        }
        if (status != WF_OK) {
            return refuse(side, &why, error);
        }
    }
    return WF_OK;
}

static enum wf_status open_dump(struct wf_compare_side *side,
                                const struct wf_family *const *families, struct wf_error *error)
{
    struct wf_dump dump;
    struct wf_error why;
    const struct wf_dump_options options = {.families = families, .note = take_note, .user = side};
    enum wf_status status = wf_dump_open(side->path, &options, &dump, &why);
    if (status == WF_OK) {
        status = take_dump(side, &dump, error);
        side->serves =
            strncmp(side->spec, "megatron", 8) != 0 && strncmp(side->spec, "fsdp", 4) != 0;
        status =
            status == WF_OK && !side->by_names ? derive_all(side, &dump.recipe, error) : status;
    } else if (why.status == WF_IO) { /* says nothing of recipe or model: nobody has read them */
        status = wf_error_set(error, WF_IO, "%s", why.text);
    } else {
        /* The recipe or the model: the files may be good. */
        status = open_rank_files(side, error);
        if (status != WF_OK) {
            wf_error_set(error, why.status, "%s", why.text);
        } else {
            side->recipe_wrong = why.status == WF_INVALID || why.status == WF_NOT_FOUND;
            status = refuse(side, &why, error);
        }
    }
    wf_dump_close(&dump);
    return status;
}

/* Only for messages: whatever is wrong with it is none of this comparison's business. */
static void take_version(struct wf_compare_side *side)
{
    struct wf_version_manifest manifest = {0};
    int fd = -1;
    if (!has_file(side->path, WF_VERSION_FILE) || wf_folder_open(side->path, &fd, NULL) != WF_OK) {
        return;
    }
    if (wf_version_manifest_read(fd, WF_VERSION_FILE, &manifest, NULL) == WF_OK) {
        side->version = manifest.version;
    }
    wf_version_manifest_fini(&manifest);
    close(fd);
}

/* A Hugging Face folder is one rank whose shards are its files. */
static enum wf_status open_folder(struct wf_compare_side *side,
                                  const struct wf_family *const *families, struct wf_error *error)
{
    struct wf_hf_folder folder;
    struct wf_error why;
    char path[PATH_ROOM];
    enum wf_status status = wf_hf_folder_open(side->path, take_note, side, &folder, error);
    if (status == WF_OK && (side->ranks = calloc(1, sizeof *side->ranks)) == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for a folder");
    }
    side->rank_count = side->ranks != NULL;
    for (uint32_t i = 0; i < folder.file_count && status == WF_OK; i++) {
        if ((size_t)snprintf(path, sizeof path, "%s/%s", side->path, folder.files[i].name) >=
            sizeof path) {
            status = wf_error_set(error, WF_INVALID, "the path of %s is too long", side->path);
            break;
        }
        status = wf_dump_rank_add(&side->ranks[0].files, path, NULL, error);
    }
    wf_hf_folder_close(&folder);
    take_version(side);
    status = status == WF_OK ? wf_dump_rank_sort(&side->ranks[0].files, error) : status;
    if (status != WF_OK) {
        return status;
    }
    snprintf(side->spec, sizeof side->spec, "hf");
    status = wf_checkpoint_model(side->path, families, &side->owned, &why);
    if (status != WF_OK) {
        return status == WF_IO ? wf_error_set(error, WF_IO, "%s", why.text)
                               : refuse(side, &why, error);
    }
    side->model = side->config = side->owned;
    if (wf_stored_layout(side->model, &side->ranks[0].layout, &why) != WF_OK) {
        /* Tensors that are parameters one by one need no layout. */
        return wf_texts_add(&side->refused, error, "%s: %s", side->path, why.text);
    }
    return WF_OK;
}

enum wf_status wf_side_open(const char *path, const struct wf_family *const *families,
                            struct wf_compare_side *side, struct wf_error *error)
{
    *side = (struct wf_compare_side){.path = strdup(path)};
    if (side->path == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a path");
    }
    enum wf_status status = WF_OK;
    if (has_file(path, "recipe.json")) {
        status = open_dump(side, families, error);
    } else if (has_file(path, WF_HF_SINGLE) || has_file(path, WF_HF_INDEX)) {
        status = open_folder(side, families, error);
    } else {
        status = open_rank_files(side, error);
        struct wf_error why = {.status = WF_NOT_FOUND};
        snprintf(why.text, sizeof why.text,
                 "%.900s has no recipe.json: nobody says which framework "
                 "made it",
                 path);
        status = status == WF_OK ? refuse(side, &why, error) : status;
    }
    return status == WF_OK ? wf_side_index(side, error) : status;
}

void wf_side_close(struct wf_compare_side *side)
{
    for (uint32_t i = 0; i < side->rank_count; i++) {
        wf_dump_rank_fini(&side->ranks[i].files);
        wf_layout_free(side->ranks[i].layout);
        free(side->ranks[i].live);
    }
    for (uint32_t i = 0; i < side->param_count && side->by_names; i++) {
        free((char *)side->params[i].name);
    }
    for (uint32_t i = 0; i < side->shape_count; i++) {
        free(side->shapes[i].name);
    }
    free(side->shapes);
    free(side->ranks);
    free(side->params);
    free(side->by_name);
    free(side->sources);
    free(side->window);
    free(side->path);
    wf_texts_fini(&side->refused);
    wf_texts_fini(&side->unknown);
    wf_texts_fini(&side->notes);
    if (side->config != side->owned) {
        wf_model_free(side->config);
    }
    wf_model_free(side->owned);
    *side = (struct wf_compare_side){0};
}
