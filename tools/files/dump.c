/* dump.c - a dump's folder: its recipe, its model, and which files are its ranks. */
#include "tools/files/dump.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/json.h"
#include "models/variant.h"
#include "tools/files/checkpoint.h"
#include "tools/files/io.h"
#include "tools/files/manifest_files.h"

#define RECIPE_FILE "recipe.json"

enum { PATH_ROOM = 4096 };

/* --- the recipe ------------------------------------------------------------------------------ */

static bool is_word(const char *text, size_t len)
{
    return len > 0 && strlen(text) == len && strcspn(text, ",:=") == len;
}

/* One key of recipe.json behind the SPEC so far. */
static enum wf_status put_key(const char *key, struct json_object *value, char spec[WF_SPEC_MAX],
                              struct wf_error *error)
{
    char text[WF_SPEC_MAX] = "";
    enum json_type type = json_object_get_type(value);
    size_t used = strlen(spec);
    if (type == json_type_boolean || type == json_type_int) {
        snprintf(text, sizeof text, "%" PRId64, json_object_get_int64(value));
    } else if (type == json_type_string &&
               is_word(json_object_get_string(value), (size_t)json_object_get_string_len(value))) {
        snprintf(text, sizeof text, "%s", json_object_get_string(value));
    } else {
        return wf_error_set(error, WF_INVALID,
                            "%.40s: expected a whole number, a word, true or false; found %.80s",
                            key, json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN));
    }
    bool first = spec[used - 1] == ':';
    int len = snprintf(spec + used, WF_SPEC_MAX - used, "%s%s=%s", first ? "" : ",", key, text);
    if (!is_word(key, strlen(key)) || (size_t)len >= WF_SPEC_MAX - used) {
        return wf_error_set(error, WF_INVALID, "the key %.40s: a SPEC has at most %d bytes", key,
                            WF_SPEC_MAX - 1);
    }
    return WF_OK;
}

/* {"engine": "vllm", "tp": 2} as "vllm:tp=2". */
static enum wf_status spec_of(struct json_object *root, char spec[WF_SPEC_MAX],
                              struct wf_error *error)
{
    struct json_object *engine = NULL;
    if (!json_object_is_type(root, json_type_object)) {
        return wf_error_set(error, WF_INVALID, "expected an object");
    }
    json_object_object_get_ex(root, "engine", &engine);
    const char *name = json_object_get_string(engine);
    if (!json_object_is_type(engine, json_type_string) || strlen(name) > 40 ||
        !is_word(name, (size_t)json_object_get_string_len(engine))) {
        return wf_error_set(error, WF_INVALID, "expected \"engine\": the name of an engine");
    }
    snprintf(spec, WF_SPEC_MAX, "%s:", name);
    enum wf_status status = WF_OK;
    json_object_object_foreach(root, key, value)
    {
        if (status == WF_OK && strcmp(key, "engine") != 0 && strcmp(key, "model") != 0) {
            status = put_key(key, value, spec, error);
        }
    }
    return status;
}

/* "model": a config inline, or a path from the dump's folder on. */
static enum wf_status model_of(struct json_object *root, const char *folder,
                               const struct wf_family *const *families, struct wf_model **model_out,
                               struct wf_error *error)
{
    struct json_object *model = NULL;
    json_object_object_get_ex(root, "model", &model);
    if (json_object_is_type(model, json_type_object)) {
        size_t len = 0;
        const char *text = json_object_to_json_string_length(model, JSON_C_TO_STRING_PLAIN, &len);
        return text != NULL ? wf_model_parse(text, len, families, model_out, error)
                            : wf_error_set(error, WF_NO_MEMORY, "no memory for the config");
    }
    const char *path = json_object_get_string(model);
    char whole[PATH_ROOM];
    if (!json_object_is_type(model, json_type_string) ||
        strlen(path) != (size_t)json_object_get_string_len(model)) {
        return wf_error_set(error, WF_INVALID,
                            "expected \"model\": a config inline, or the path of one");
    }
    int len = path[0] == '/' ? snprintf(whole, sizeof whole, "%s", path)
                             : snprintf(whole, sizeof whole, "%s/%s", folder, path);
    if ((size_t)len >= sizeof whole) {
        return wf_error_set(error, WF_INVALID, "the path of the model is too long");
    }
    return wf_checkpoint_model(whole, families, model_out, error);
}

/* With the model as its ranks see it, where the SPEC says that they hold codes and scales.
 * Manifests lie in the folder. */
static enum wf_status read_spec(struct wf_dump *dump, const char *folder, const char *spec,
                                struct wf_error *error)
{
    char beside[PATH_ROOM];
    struct wf_model *job = NULL;
    const struct wf_recipe *recipes[] = {&dump->recipe};
    snprintf(beside, sizeof beside, "%s/" RECIPE_FILE, folder);
    enum wf_status status = wf_recipe_parse(spec, NULL, &dump->recipe, error);
    status = status == WF_OK ? wf_model_for_job(dump->model, recipes, 1, &job, error) : status;
    status = status == WF_OK ? wf_manifest_files_load(recipes, 1, beside, job, error) : status;
    status = status == WF_OK ? wf_recipe_parse(spec, job, &dump->recipe, error) : status;
    wf_model_free(job);
    return status;
}

static enum wf_status read_recipe(const char *folder, const struct wf_family *const *families,
                                  struct wf_dump *dump, struct wf_error *error)
{
    int fd = -1;
    char *text = NULL, spec[WF_SPEC_MAX] = "";
    size_t len = 0;
    struct json_object *root = NULL;
    enum wf_status status = wf_folder_open(folder, &fd, error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_file_read_all(fd, RECIPE_FILE, WF_CHECKPOINT_CONFIG_MAX, &text, &len, error);
    close(fd);
    if (status == WF_OK) {
        status = wf_json_parse(text, len, WF_JSON_PYTHON, &root, error);
    }
    free(text);
    status = status == WF_OK ? spec_of(root, spec, error) : status;
    status = status == WF_OK ? model_of(root, folder, families, &dump->model, error) : status;
    status = status == WF_OK ? read_spec(dump, folder, spec, error) : status;
    if (status == WF_OK) {
        wf_recipe_format(&dump->recipe, dump->spec);
    } else {
        wf_error_prefix(error, "%s/" RECIPE_FILE, folder);
    }
    json_object_put(root);
    return status;
}

/* --- the ranks' files ------------------------------------------------------------------------ */

/* The number in rank_NN.safetensors, rank_NN.pt and rank_NN.tsv; WF_NONE for other names. */
static uint32_t rank_of(const char *name)
{
    static const char *const ends[] = {".safetensors", ".pt", ".tsv"};
    enum { DIGITS_MIN = 2, DIGITS_MAX = 6 };
    if (strncmp(name, "rank_", 5) != 0) {
        return WF_NONE;
    }
    size_t digits = strspn(name + 5, "0123456789");
    bool known = false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        known = known || strcmp(name + 5 + digits, ends[i]) == 0;
    }
    return known && digits >= DIGITS_MIN && digits <= DIGITS_MAX
               ? (uint32_t)strtoul(name + 5, NULL, 10)
               : WF_NONE;
}

static int is_rank(const struct dirent *entry)
{
    return rank_of(entry->d_name) != WF_NONE;
}

static int by_rank(const struct dirent **a, const struct dirent **b)
{
    uint32_t x = rank_of((*a)->d_name), y = rank_of((*b)->d_name);
    return x != y ? (x < y ? -1 : 1) : strcmp((*a)->d_name, (*b)->d_name);
}

/* Entries by rank are ranks 0, 1, ... each once. */
static enum wf_status check_ranks(struct dirent *const *entries, uint32_t count,
                                  struct wf_error *error)
{
    if (count > WF_DUMP_FILES_MAX) {
        return wf_error_set(error, WF_INVALID, "more than %d ranks", WF_DUMP_FILES_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rank = rank_of(entries[i]->d_name);
        if (rank < i) {
            return wf_error_set(error, WF_INVALID, "%s and %s are both there; one of them is stale",
                                entries[i - 1]->d_name, entries[i]->d_name);
        }
        if (rank > i) {
            return wf_error_set(error, WF_NOT_FOUND,
                                "no file rank_%02" PRIu32 ".*, though %s is there", i,
                                entries[i]->d_name);
        }
    }
    return WF_OK;
}

enum wf_status wf_dump_rank_files(const char *folder, char ***names_out, uint32_t *count_out,
                                  struct wf_error *error)
{
    struct dirent **entries = NULL;
    int found = scandir(folder, &entries, is_rank, by_rank);
    if (found < 0) {
        return wf_error_set(error, errno == ENOENT ? WF_NOT_FOUND : WF_IO, "%s: %s", folder,
                            strerror(errno));
    }
    uint32_t count = (uint32_t)found;
    enum wf_status status = check_ranks(entries, count, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", folder);
    }
    char **names = status == WF_OK ? calloc(count + 1, sizeof *names) : NULL;
    for (uint32_t i = 0; i < count && names != NULL; i++) {
        names[i] = strdup(entries[i]->d_name);
        if (names[i] == NULL) {
            wf_dump_rank_files_free(names, i);
            names = NULL;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        free(entries[i]);
    }
    free(entries);
    if (status == WF_OK && names == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for %u names", count);
    }
    if (status == WF_OK) {
        *names_out = names;
        *count_out = count;
    }
    return status;
}

void wf_dump_rank_files_free(char **names, uint32_t count)
{
    for (uint32_t i = 0; i < count && names != NULL; i++) {
        free(names[i]);
    }
    free(names);
}

/* --- all of it ------------------------------------------------------------------------------- */

static enum wf_status open_rank(const char *folder, const char *name,
                                const struct wf_dump_options *options, struct wf_dump_rank *rank,
                                struct wf_error *error)
{
    char path[PATH_ROOM];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path) {
        return wf_error_set(error, WF_INVALID, "the path of %s is too long", name);
    }
    enum wf_status status = wf_dump_rank_add(rank, path, options, error);
    if (status == WF_OK) {
        status = wf_dump_rank_sort(rank, error);
        if (status != WF_OK) {
            wf_error_prefix(error, "%s", path);
        }
    }
    return status;
}

enum wf_status wf_dump_open(const char *folder, const struct wf_dump_options *options,
                            struct wf_dump *dump, struct wf_error *error)
{
    char **names = NULL;
    uint32_t count = 0;
    *dump = (struct wf_dump){.folder = strdup(folder)};
    if (dump->folder == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a path");
    }
    enum wf_status status =
        read_recipe(folder, options != NULL ? options->families : NULL, dump, error);
    if (status == WF_OK) {
        status = wf_dump_rank_files(folder, &names, &count, error);
    }
    uint32_t world = status == WF_OK ? wf_recipe_world(&dump->recipe) : 0;
    if (status == WF_OK && count != world) {
        status = wf_error_set(error, count < world ? WF_NOT_FOUND : WF_INVALID,
                              "%s: expected the files of %u %s (%s), rank_00 to rank_%02u; "
                              "found those of %u",
                              folder, world, world == 1 ? "rank" : "ranks", dump->spec, world - 1,
                              count);
    }
    if (status == WF_OK && (dump->ranks = calloc(count, sizeof *dump->ranks)) == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for %u ranks", count);
    }
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        dump->rank_count = i + 1;
        status = open_rank(folder, names[i], options, &dump->ranks[i], error);
    }
    wf_dump_rank_files_free(names, count);
    return status;
}

void wf_dump_close(struct wf_dump *dump)
{
    for (uint32_t i = 0; i < dump->rank_count; i++) {
        wf_dump_rank_fini(&dump->ranks[i]);
    }
    free(dump->ranks);
    wf_model_free(dump->model);
    free(dump->folder);
    *dump = (struct wf_dump){0};
}
