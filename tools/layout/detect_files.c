/* detect_files.c - see detect_files.h. */
#include "tools/layout/detect_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_ROOM = 4096 };

static enum wf_status add_dump(struct wf_detect_files *files, struct wf_dump_rank **dump_out,
                               struct wf_error *error)
{
    if (files->count == WF_DUMP_FILES_MAX) {
        return wf_error_set(error, WF_INVALID, "more than %d files", WF_DUMP_FILES_MAX);
    }
    void *grown = realloc(files->dumps, (files->count + 1) * sizeof *files->dumps);
    if (grown == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u files", files->count + 1);
    }
    files->dumps = grown;
    *dump_out = &files->dumps[files->count++];
    **dump_out = (struct wf_dump_rank){0};
    return WF_OK;
}

static enum wf_status add_file(struct wf_detect_files *files, const char *path,
                               struct wf_error *error)
{
    struct wf_dump_rank *dump = NULL;
    enum wf_status status = add_dump(files, &dump, error);
    status = status == WF_OK ? wf_dump_rank_add(dump, path, NULL, error) : status;
    return status == WF_OK && dump->count == 0
               ? wf_error_set(error, WF_INVALID,
                              "%s: expected the tensors of a rank (a safetensors file, a torch .pt "
                              "file, or lines of name, dtype and shape), found none",
                              path)
               : status;
}

static enum wf_status add_ranks(struct wf_detect_files *files, const char *folder,
                                struct wf_error *error)
{
    char path[PATH_ROOM], **names = NULL;
    uint32_t count = 0;
    enum wf_status status = wf_dump_rank_files(folder, &names, &count, error);
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        status = add_file(files, path, error);
    }
    wf_dump_rank_files_free(names, count);
    return status;
}

static int is_shard(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name);
    static const char end[] = ".safetensors";
    return len >= sizeof end && strcmp(entry->d_name + len - strlen(end), end) == 0;
}

static enum wf_status add_shards(struct wf_detect_files *files, const char *folder,
                                 struct wf_error *error)
{
    struct dirent **shards = NULL;
    int count = scandir(folder, &shards, is_shard, alphasort);
    struct wf_dump_rank *dump = NULL;
    enum wf_status status =
        count > 0 ? add_dump(files, &dump, error)
                  : wf_error_set(error, count < 0 ? WF_IO : WF_NOT_FOUND, "%s: %s", folder,
                                 count < 0 ? strerror(errno)
                                           : "neither rank_00.* nor *.safetensors is there");
    for (int i = 0; i < count; i++) {
        char path[PATH_ROOM];
        snprintf(path, sizeof path, "%s/%s", folder, shards[i]->d_name);
        status = status == WF_OK ? wf_dump_rank_add(dump, path, NULL, error) : status;
        free(shards[i]);
    }
    free(shards);
    return status;
}

/* --- flat parameters ------------------------------------------------------------------------- */

/* FSDP1's views have one dimension each; no model's parameters all have. */
static bool is_flat(const struct wf_detect_files *files)
{
    for (uint32_t r = 0; r < files->count; r++) {
        for (uint32_t i = 0; i < files->dumps[r].count; i++) {
            const struct wf_dump_tensor *tensor = &files->dumps[r].tensors[i];
            if (tensor->ndim != 1 || tensor->dtype == WF_DTYPE_NONE) {
                return false;
            }
        }
    }
    return files->count > 1;
}

/* Adds the tensors of `from` that `rank` has not, without elements; both are sorted. */
static enum wf_status add_empty(struct wf_dump_rank *rank, const struct wf_dump_rank *from,
                                struct wf_error *error)
{
    char *lines = NULL;
    size_t len = 0;
    FILE *text = open_memstream(&lines, &len);
    for (uint32_t i = 0; i < from->count && text != NULL; i++) {
        const struct wf_dump_tensor *tensor = &from->tensors[i];
        if (wf_dump_rank_find(rank, tensor->name) == NULL) {
            fprintf(text, "%s\t%s\t0\n", tensor->name, wf_dtype_torch(tensor->dtype));
        }
    }
    bool good = text != NULL && fclose(text) == 0;
    enum wf_status status = good ? WF_OK : wf_error_set(error, WF_NO_MEMORY, "no memory for names");
    if (status == WF_OK && len > 0) {
        status = wf_dump_rank_parse(rank, lines, len, len, error);
    }
    free(lines);
    return status == WF_OK ? wf_dump_rank_sort(rank, error) : status;
}

/* A rank has elements of some flat parameters only, and a dump need not list the others. */
static enum wf_status fill_flat(struct wf_detect_files *files, struct wf_error *error)
{
    struct wf_dump_rank all = {0};
    enum wf_status status = WF_OK;
    for (uint32_t r = 0; r < files->count && status == WF_OK; r++) {
        status = add_empty(&all, &files->dumps[r], error);
    }
    for (uint32_t r = 0; r < files->count && status == WF_OK; r++) {
        status = add_empty(&files->dumps[r], &all, error);
    }
    wf_dump_rank_fini(&all);
    return status;
}

enum wf_status wf_detect_read(char *const *paths, size_t path_count, struct wf_detect_files *out,
                              struct wf_error *error)
{
    enum wf_status status = WF_OK;
    *out = (struct wf_detect_files){0};
    for (size_t i = 0; i < path_count && status == WF_OK; i++) {
        struct stat info;
        uint32_t before = out->count;
        bool folder = stat(paths[i], &info) == 0 && S_ISDIR(info.st_mode);
        status = folder ? add_ranks(out, paths[i], error) : add_file(out, paths[i], error);
        if (status == WF_OK && folder && out->count == before) {
            status = add_shards(out, paths[i], error);
        }
    }
    for (uint32_t i = 0; i < out->count && status == WF_OK; i++) {
        status = wf_dump_rank_sort(&out->dumps[i], error);
        if (status != WF_OK) {
            wf_error_prefix(error, "rank %u", i);
        }
    }
    return status == WF_OK && is_flat(out) ? fill_flat(out, error) : status;
}

void wf_detect_files_fini(struct wf_detect_files *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        wf_dump_rank_fini(&files->dumps[i]);
    }
    free(files->dumps);
    *files = (struct wf_detect_files){0};
}

/* --- the answer ------------------------------------------------------------------------------ */

static void print_fit(FILE *out, const struct wf_detect_fit *fit)
{
    fprintf(out, "%-14s %s\n    %s\n", fit->family->name, fit->spec, fit->sizes);
    if (fit->free[0] != '\0') {
        fprintf(out, "    only the product shows of %s\n", fit->free);
    }
    if (fit->padded) {
        fprintf(out, "    vocab_size may be smaller: the last rows may be padding\n");
    }
    if (fit->quant != NULL) {
        fprintf(out,
                "    holds %s codes and scales: the model's config has a quantization_config\n",
                fit->quant);
    }
    if (strstr(fit->spec, "redundant=") != NULL) {
        fprintf(out,
                "    which expert stands in which slot shows nowhere: if it is not the engine's "
                "own rule (EPLB), give its table as infer.placements\n");
    }
    if (fit->dtype[0] != '\0') {
        fprintf(out, "    names and shapes fit; types do not: %s\n", fit->dtype);
    }
    for (const char *at = fit->also; *at != '\0';) {
        size_t len = strcspn(at, " ");
        fprintf(out, "    shows no different: %.*s\n", (int)len, at);
        at += len + (at[len] == ' ');
    }
}

void wf_detected_print(FILE *out, const struct wf_detected *detected)
{
    if (detected->fit_count == 0) {
        fprintf(out, "nothing fits; nearest: %s\n",
                detected->nearest[0] != '\0' ? detected->nearest
                                             : "no family and engine has a name like these");
    }
    if (detected->fit_count > 1) {
        fprintf(out, "ambiguous: these %u make the same names and shapes%s\n", detected->fit_count,
                detected->more ? ", and more do" : "");
    }
    for (uint32_t i = 0; i < detected->fit_count; i++) {
        print_fit(out, &detected->fits[i]);
    }
    if (detected->single && detected->fit_count > 0) {
        fprintf(out, "one dump does not show over how many ranks it was divided: it may also be "
                     "rank 0 of more, of a model as much larger\n");
    }
    if (detected->gave_up) {
        fprintf(out, "not everything was tried: it would have taken more work than is allowed\n");
    }
}

struct json_object *wf_detected_to_json(const struct wf_detected *detected)
{
    struct json_object *root = json_object_new_object(), *fits = json_object_new_array();
    for (uint32_t i = 0; i < detected->fit_count; i++) {
        const struct wf_detect_fit *fit = &detected->fits[i];
        struct json_object *object = json_object_new_object(), *also = json_object_new_array();
        json_object_object_add(object, "family", json_object_new_string(fit->family->name));
        json_object_object_add(object, "spec", json_object_new_string(fit->spec));
        json_object_object_add(object, "config", json_tokener_parse(fit->config));
        json_object_object_add(object, "sizes", json_object_new_string(fit->sizes));
        json_object_object_add(object, "free", json_object_new_string(fit->free));
        json_object_object_add(object, "padded", json_object_new_boolean(fit->padded));
        json_object_object_add(object, "quant",
                               fit->quant ? json_object_new_string(fit->quant) : NULL);
        json_object_object_add(object, "dtype", json_object_new_string(fit->dtype));
        for (const char *at = fit->also; *at != '\0';) {
            size_t len = strcspn(at, " ");
            json_object_array_add(also, json_object_new_string_len(at, (int)len));
            at += len + (at[len] == ' ');
        }
        json_object_object_add(object, "also", also);
        json_object_array_add(fits, object);
    }
    json_object_object_add(root, "fits", fits);
    json_object_object_add(root, "more", json_object_new_boolean(detected->more));
    json_object_object_add(root, "gave_up", json_object_new_boolean(detected->gave_up));
    json_object_object_add(root, "single", json_object_new_boolean(detected->single));
    json_object_object_add(root, "nearest", json_object_new_string(detected->nearest));
    return root;
}
