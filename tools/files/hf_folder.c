/* hf_folder.c - finds the safetensors files of a folder and checks the index against them. */
#include "tools/files/hf_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/json.h"
#include "tools/files/checkpoint.h"
#include "tools/files/io.h"

static bool is_there(int folder_fd, const char *name)
{
    struct stat info;
    return fstatat(folder_fd, name, &info, 0) == 0;
}

static void note_text(wf_hf_note_t *note, void *user, const char *text)
{
    if (note != NULL) {
        note(user, text);
    }
}

static struct json_object *weight_map(const struct wf_hf_folder *folder)
{
    struct json_object *map = NULL;
    if (folder->index != NULL) {
        json_object_object_get_ex(folder->index, "weight_map", &map);
    }
    return map;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Nothing that we read is there: says what is, since the folder may be of another kind. The first
 * such name in alphabetical order, so that the message does not depend on the folder's own. */
static enum wf_status nothing_found(int folder_fd, const char *path, struct wf_error *error)
{
    char found[NAME_MAX + 1] = "";
    DIR *entries = wf_folder_entries(folder_fd, ".");
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot != NULL &&
            (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".bin") == 0 ||
             strcmp(dot, ".pth") == 0 || strcmp(dot, ".gguf") == 0) &&
            (found[0] == '\0' || strcmp(entry->d_name, found) < 0)) {
            snprintf(found, sizeof found, "%s", entry->d_name);
        }
    }
    if (entries != NULL) {
        closedir(entries);
    }
    return wf_error_set(error, WF_NOT_FOUND, "%s has neither %s nor %s%s%s%s", path, WF_HF_SINGLE,
                        WF_HF_INDEX, found[0] != '\0' ? "; there is " : "", found,
                        found[0] != '\0'
                            ? ", which is not what a Hugging Face folder of safetensors "
                              "is made of: save it with save_pretrained"
                            : "");
}

static enum wf_status check_map_entry(const char *tensor, struct json_object *value,
                                      struct wf_error *error)
{
    if (!json_object_is_type(value, json_type_string)) {
        return wf_error_set(error, WF_INVALID,
                            "%s: the file of \"%.100s\" is no string; expected a file name",
                            WF_HF_INDEX, tensor);
    }
    const char *name = json_object_get_string(value);
    if (!wf_file_name_is_plain(name, (size_t)json_object_get_string_len(value))) {
        return wf_error_set(error, WF_REFUSED,
                            "%s: \"%.100s\" is said to be in \"%.100s\"; only plain file names of "
                            "the same folder are followed",
                            WF_HF_INDEX, tensor, name);
    }
    return WF_OK;
}

/* The distinct file names of the map, sorted, copied into folder->files. */
static enum wf_status list_files(struct wf_hf_folder *folder, struct json_object *map,
                                 struct wf_error *error)
{
    size_t entries = (size_t)json_object_object_length(map), count = 0;
    const char **names = calloc(entries + 1, sizeof *names);
    if (names == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %zu names", entries);
    }
    enum wf_status status = WF_OK;
    json_object_object_foreach(map, tensor, value)
    {
        status = check_map_entry(tensor, value, error);
        if (status != WF_OK) {
            goto free_names;
        }
        names[count++] = json_object_get_string(value);
    }
    qsort(names, count, sizeof *names, compare_names);
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        if (distinct == 0 || strcmp(names[distinct - 1], names[i]) != 0) {
            names[distinct++] = names[i];
        }
    }
    if (distinct == 0 || distinct > WF_CHECKPOINT_FILES_MAX) {
        status = wf_error_set(error, WF_INVALID, "%s names %zu files; expected 1 to %d",
                              WF_HF_INDEX, distinct, WF_CHECKPOINT_FILES_MAX);
        goto free_names;
    }
    folder->files = calloc(distinct, sizeof *folder->files);
    for (size_t i = 0; folder->files != NULL && i < distinct; i++) {
        folder->files[i] = (struct wf_hf_file){.fd = -1, .name = strdup(names[i])};
        folder->file_count++;
        if (folder->files[i].name == NULL) {
            status = WF_NO_MEMORY;
        }
    }
    if (folder->files == NULL || status == WF_NO_MEMORY) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for %zu file names", distinct);
    }
free_names:
    free(names);
    return status;
}

static void drop_files(struct wf_hf_folder *folder)
{
    for (uint32_t i = 0; i < folder->file_count; i++) {
        if (folder->files[i].fd >= 0) {
            close(folder->files[i].fd);
        }
        free(folder->files[i].name);
        wf_st_free(folder->files[i].header);
    }
    free(folder->files);
    folder->files = NULL;
    folder->file_count = 0;
    json_object_put(folder->index);
    folder->index = NULL;
}

static enum wf_status read_index(struct wf_hf_folder *folder, struct wf_error *error)
{
    char *text;
    size_t len;
    enum wf_status status =
        wf_file_read_all(folder->fd, WF_HF_INDEX, WF_JSON_BYTES_MAX, &text, &len, error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_json_parse(text, len, WF_JSON_PYTHON, &folder->index, error);
    free(text);
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", WF_HF_INDEX);
        return status;
    }
    struct json_object *map = NULL;
    if (json_object_is_type(folder->index, json_type_object)) {
        map = weight_map(folder);
    }
    if (!json_object_is_type(map, json_type_object)) {
        return wf_error_set(error, WF_INVALID,
                            "%s has no object \"weight_map\" that gives each tensor its file",
                            WF_HF_INDEX);
    }
    return list_files(folder, map, error);
}

static enum wf_status use_single(struct wf_hf_folder *folder, struct wf_error *error)
{
    drop_files(folder);
    folder->files = calloc(1, sizeof *folder->files);
    char *name = strdup(WF_HF_SINGLE);
    if (folder->files == NULL || name == NULL) {
        free(name);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a file name");
    }
    folder->files[0] = (struct wf_hf_file){.fd = -1, .name = name};
    folder->file_count = 1;
    return WF_OK;
}

/* Both a single file and an index are there: fine only if just one reading exists. */
static enum wf_status settle_both(struct wf_hf_folder *folder, wf_hf_note_t *note, void *user,
                                  struct wf_error *error)
{
    if (folder->file_count == 1 && strcmp(folder->files[0].name, WF_HF_SINGLE) == 0) {
        return WF_OK;
    }
    for (uint32_t i = 0; i < folder->file_count; i++) {
        if (is_there(folder->fd, folder->files[i].name)) {
            return wf_error_set(error, WF_REFUSED,
                                "there are both %s and an %s that names %s: some readers take the "
                                "one and some the other; remove the one that is not meant",
                                WF_HF_SINGLE, WF_HF_INDEX, folder->files[i].name);
        }
    }
    note_text(note, user,
              WF_HF_INDEX " is stale: none of the files it names is there; " WF_HF_SINGLE
                          " is used");
    return use_single(folder, error);
}

static enum wf_status open_file(struct wf_hf_folder *folder, struct wf_hf_file *file,
                                struct wf_error *error)
{
    uint8_t prefix[WF_ST_PREFIX_BYTES];
    uint64_t header_bytes;
    enum wf_status status = wf_file_open(folder->fd, file->name, &file->fd, &file->bytes, error);
    if (status != WF_OK) {
        if (status == WF_NOT_FOUND && folder->index != NULL) {
            wf_error_prefix(error, "%s names a file that is not there", WF_HF_INDEX);
        }
        return status;
    }
    if (file->bytes < WF_ST_PREFIX_BYTES) {
        status = wf_error_set(error, WF_INVALID,
                              "the file has %" PRIu64 " bytes, less than the %d that any "
                              "safetensors file has",
                              file->bytes, WF_ST_PREFIX_BYTES);
        goto name_it;
    }
    status = wf_file_pread(file->fd, prefix, sizeof prefix, 0, error);
    if (status == WF_OK) {
        status = wf_st_header_bytes(prefix, file->bytes, &header_bytes, error);
    }
    if (status != WF_OK) {
        goto name_it;
    }
    char *header = malloc((size_t)header_bytes + 1);
    if (header == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for a header of %" PRIu64 " bytes",
                              header_bytes);
        goto name_it;
    }
    status = wf_file_pread(file->fd, header, (size_t)header_bytes, sizeof prefix, error);
    if (status == WF_OK) {
        file->data_offset = sizeof prefix + header_bytes;
        status = wf_st_parse(header, (size_t)header_bytes, file->bytes - file->data_offset,
                             &file->header, error);
    }
    free(header);
name_it:
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", file->name);
    }
    return status;
}

static struct wf_hf_file *find_file(struct wf_hf_folder *folder, const char *name)
{
    for (uint32_t low = 0, high = folder->file_count; low < high;) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(folder->files[middle].name, name);
        if (order == 0) {
            return &folder->files[middle];
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* The index and the files say the same: what it lists is where it says, and nowhere else. */
static enum wf_status check_index(struct wf_hf_folder *folder, struct wf_error *error)
{
    struct json_object *map = weight_map(folder);
    json_object_object_foreach(map, tensor, value)
    {
        struct wf_hf_file *file = find_file(folder, json_object_get_string(value));
        WF_ASSERT(file != NULL);
        if (wf_st_find(file->header, tensor) == NULL) {
            return wf_error_set(error, WF_MISMATCH,
                                "%s says that \"%.100s\" is in %s, but that file does not hold it; "
                                "the index is stale",
                                WF_HF_INDEX, tensor, file->name);
        }
    }
    for (uint32_t f = 0; f < folder->file_count; f++) {
        const struct wf_hf_file *file = &folder->files[f];
        for (uint32_t t = 0; t < file->header->tensor_count; t++) {
            const char *name = file->header->tensors[t].name;
            struct json_object *listed;
            if (json_object_object_get_ex(map, name, &listed) &&
                strcmp(json_object_get_string(listed), file->name) != 0) {
                return wf_error_set(error, WF_REFUSED,
                                    "tensor \"%.100s\" is in two files, %s and %s; which one is "
                                    "meant cannot be known",
                                    name, json_object_get_string(listed), file->name);
            }
        }
    }
    return WF_OK;
}

enum wf_status wf_hf_folder_open(const char *path, wf_hf_note_t *note, void *user,
                                 struct wf_hf_folder *folder, struct wf_error *error)
{
    *folder = (struct wf_hf_folder){.fd = -1};
    enum wf_status status = wf_folder_open(path, &folder->fd, error);
    if (status != WF_OK) {
        return status;
    }
    bool single = is_there(folder->fd, WF_HF_SINGLE), index = is_there(folder->fd, WF_HF_INDEX);
    if (!single && !index) {
        return nothing_found(folder->fd, path, error);
    }
    if (index) {
        status = read_index(folder, error);
        if (status == WF_OK && single) {
            status = settle_both(folder, note, user, error);
        }
    } else {
        status = use_single(folder, error);
    }
    for (uint32_t i = 0; status == WF_OK && i < folder->file_count; i++) {
        status = open_file(folder, &folder->files[i], error);
    }
    if (status == WF_OK && folder->index != NULL) {
        status = check_index(folder, error);
    }
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", path);
    }
    return status;
}

void wf_hf_folder_close(struct wf_hf_folder *folder)
{
    drop_files(folder);
    if (folder->fd >= 0) {
        close(folder->fd);
    }
    folder->fd = -1;
}

bool wf_hf_folder_lists(const struct wf_hf_folder *folder, const char *tensor)
{
    struct json_object *map = weight_map(folder);
    return map == NULL || json_object_object_get_ex(map, tensor, NULL);
}

enum wf_status wf_hf_config_read(const char *path, char **text_out, size_t *len_out,
                                 struct wf_error *error)
{
    struct stat info;
    char *name = NULL;
    bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if (asprintf(&name, is_folder ? "%s/" WF_HF_CONFIG : "%s", path) < 0) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a path");
    }
    enum wf_status status =
        wf_file_read_all(AT_FDCWD, name, WF_CHECKPOINT_CONFIG_MAX, text_out, len_out, error);
    free(name);
    return status == WF_NOT_FOUND
               ? wf_error_set(
                     error, status, "expected a config.json or a Hugging Face folder, found %s: %s",
                     is_folder ? "a folder without " WF_HF_CONFIG : "nothing of that name", path)
               : status;
}

void wf_shape_format(uint32_t ndim, const uint64_t *shape, char text_out[WF_SHAPE_TEXT])
{
    int at = snprintf(text_out, WF_SHAPE_TEXT, "[");
    for (uint32_t i = 0; i < ndim && at < WF_SHAPE_TEXT; i++) {
        at += snprintf(text_out + at, (size_t)(WF_SHAPE_TEXT - at), "%s%" PRIu64, i > 0 ? ", " : "",
                       shape[i]);
    }
    if (at < WF_SHAPE_TEXT - 1) {
        snprintf(text_out + at, (size_t)(WF_SHAPE_TEXT - at), "]");
    }
}
