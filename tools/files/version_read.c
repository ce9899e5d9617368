/* version_read.c - a place of versions as a store (actors/store.h): opens, checks, reads. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "tools/files/checkpoint.h"
#include "tools/files/hf_folder.h"
#include "tools/files/io.h"
#include "tools/files/version_folder.h"
#include "tools/files/version_manifest.h"
#include "tools/files/version_place.h"

/* What to do about a tensor that does not fit. */
#define OF_ANOTHER "was files.folder written by a job of another model?"

struct folder_store {
    struct wf_store store; /* first */
    char *place;           /* owned */
};

/* Where a tensor is. */
struct place {
    uint32_t file; /* of hf.files */
    uint64_t offset;
    bool found;
};

struct wf_stored {
    struct wf_hf_folder hf;
    struct wf_version_manifest manifest;
    const struct wf_version_file **said; /* what the manifest says of hf.files; owned */
    struct place *places;                /* by layout tensor; owned */
    const struct wf_layout *layout;
};

/* --- opening ---------------------------------------------------------------------------------- */
static enum wf_status read_manifest(struct wf_stored *stored, const char *folder,
                                    const struct wf_store_wanted *wanted, struct wf_error *error)
{
    char found[WF_VERSION_TEXT];
    int fd = -1;
    enum wf_status status = wf_folder_open(folder, &fd, error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_version_manifest_read(fd, WF_VERSION_FILE, &stored->manifest, error);
    close(fd);
    if (status == WF_NOT_FOUND) {
        return wf_error_set(error, WF_REFUSED,
                            "there is no " WF_VERSION_FILE ": it is not a version that Weft wrote");
    }
    if (status != WF_OK) {
        return status;
    }
    wf_version_format(stored->manifest.version, found);
    if (strcmp(stored->manifest.job, wanted->job) != 0) {
        return wf_error_set(error, WF_REFUSED, "it is of job \"%s\", not of \"%s\"",
                            stored->manifest.job, wanted->job);
    }
    if (wf_version_compare(stored->manifest.version, wanted->version) != 0) {
        return wf_error_set(error, WF_REFUSED, "it holds version %s under another one's name",
                            found);
    }
    return WF_OK;
}

/* A file's chunk-aligned bytes [first, first + len), compared with what was written. */
static enum wf_status read_chunks(int fd, const struct wf_version_file *said, uint64_t first,
                                  size_t len, uint8_t *bytes, struct wf_error *error)
{
    enum wf_status status = wf_file_pread(fd, bytes, len, first, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", said->name);
        return status;
    }
    for (size_t at = 0; at < len; at += WF_VERSION_CHUNK_BYTES) {
        size_t part = len - at < WF_VERSION_CHUNK_BYTES ? len - at : WF_VERSION_CHUNK_BYTES;
        uint64_t chunk = (first + at) / WF_VERSION_CHUNK_BYTES;
        if (XXH3_64bits(bytes + at, part) != said->chunks[chunk]) {
            return wf_error_set(error, WF_DIGEST,
                                "%s is damaged: bytes %" PRIu64 " to %" PRIu64
                                " are not those that were written",
                                said->name, first + at, first + at + part - 1);
        }
    }
    return WF_OK;
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + WF_VERSION_CHUNK_BYTES - 1) / WF_VERSION_CHUNK_BYTES * WF_VERSION_CHUNK_BYTES;
}

/* The chunks of a file's first `end` bytes. */
static enum wf_status compare(int fd, const struct wf_version_file *said, uint64_t end,
                              struct wf_error *error)
{
    uint8_t *bytes = malloc(WF_VERSION_CHUNK_BYTES);
    if (bytes == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory to compare %s", said->name);
    }
    enum wf_status status = WF_OK;
    for (uint64_t at = 0; at < end && status == WF_OK; at += WF_VERSION_CHUNK_BYTES) {
        uint64_t left = said->bytes - at;
        size_t len = left < WF_VERSION_CHUNK_BYTES ? (size_t)left : WF_VERSION_CHUNK_BYTES;
        status = read_chunks(fd, said, at, len, bytes, error);
    }
    free(bytes);
    return status;
}

enum wf_status wf_version_file_check(int folder_fd, const struct wf_version_file *file, bool whole,
                                     struct wf_error *error)
{
    uint64_t bytes = 0;
    int fd = -1;
    enum wf_status status = wf_file_open(folder_fd, file->name, &fd, &bytes, error);
    if (status == WF_NOT_FOUND) {
        return wf_error_set(error, WF_REFUSED, "%s is missing", file->name);
    }
    if (status != WF_OK) {
        return status;
    }
    if (bytes != file->bytes) {
        status =
            wf_error_set(error, WF_DIGEST, "%s has %" PRIu64 " bytes, %" PRIu64 " were written",
                         file->name, bytes, file->bytes);
    } else if (whole) {
        status = compare(fd, file, file->bytes, error);
    }
    close(fd);
    return status;
}

static const struct wf_version_file *listed(const struct wf_stored *stored, const char *name)
{
    for (uint32_t i = 0; i < stored->manifest.file_count; i++) {
        if (strcmp(stored->manifest.files[i].name, name) == 0) {
            return &stored->manifest.files[i];
        }
    }
    return NULL;
}

static enum wf_status not_listed(const char *name, struct wf_error *error)
{
    return wf_error_set(error, WF_REFUSED,
                        "%s is not of this version: " WF_VERSION_FILE " knows no such file", name);
}

/* Before the headers are parsed: a cut file is told as that. The small ones, which say what the
 * weights mean and where they are, are compared as a whole. */
static enum wf_status check_files(const struct wf_stored *stored, const char *folder,
                                  struct wf_error *error)
{
    int folder_fd = -1;
    if (listed(stored, WF_HF_CONFIG) == NULL) {
        return not_listed(WF_HF_CONFIG, error);
    }
    enum wf_status status = wf_folder_open(folder, &folder_fd, error);
    if (status != WF_OK) {
        return status;
    }
    for (uint32_t i = 0; i < stored->manifest.file_count && status == WF_OK; i++) {
        const struct wf_version_file *file = &stored->manifest.files[i];
        bool whole = strcmp(file->name, WF_HF_CONFIG) == 0 || strcmp(file->name, WF_HF_INDEX) == 0;
        status = wf_version_file_check(folder_fd, file, whole, error);
    }
    close(folder_fd);
    return status;
}

/* Each file of weights, and the index, is one that the manifest knows. */
static enum wf_status pair_files(struct wf_stored *stored, struct wf_error *error)
{
    stored->said = calloc(stored->hf.file_count + 1, sizeof(void *));
    if (stored->said == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu32 " files",
                            stored->hf.file_count);
    }
    if (stored->hf.index != NULL && listed(stored, WF_HF_INDEX) == NULL) {
        return not_listed(WF_HF_INDEX, error);
    }
    for (uint32_t f = 0; f < stored->hf.file_count; f++) {
        const struct wf_hf_file *file = &stored->hf.files[f];
        stored->said[f] = listed(stored, file->name);
        if (stored->said[f] == NULL) {
            return not_listed(file->name, error);
        }
        if (stored->said[f]->bytes != file->bytes) { /* changed since it was looked at */
            return wf_error_set(error, WF_DIGEST,
                                "%s has %" PRIu64 " bytes, %" PRIu64 " were written", file->name,
                                file->bytes, stored->said[f]->bytes);
        }
    }
    return WF_OK;
}

/* The headers decide what is read from where: they must be what was written too. */
static enum wf_status check_header(const struct wf_stored *stored, uint32_t f,
                                   struct wf_error *error)
{
    const struct wf_hf_file *file = &stored->hf.files[f];
    return compare(file->fd, stored->said[f], round_up(file->data_offset), error);
}

static enum wf_status place_tensor(struct wf_stored *stored, uint32_t f,
                                   const struct wf_st_tensor *found, struct wf_error *error)
{
    const struct wf_hf_file *file = &stored->hf.files[f];
    uint32_t index = wf_layout_find(stored->layout, found->name, strlen(found->name));
    const struct wf_tensor *tensor = index != UINT32_MAX ? &stored->layout->tensors[index] : NULL;
    if (tensor == NULL) {
        return wf_error_set(
            error, WF_MISMATCH,
            "%s: tensor \"%.100s\": the job's model has no such tensor; " OF_ANOTHER, file->name,
            found->name);
    }
    if (tensor->dtype != found->dtype || tensor->ndim != found->ndim ||
        memcmp(tensor->shape, found->shape, tensor->ndim * sizeof *tensor->shape) != 0) {
        char has[WF_SHAPE_TEXT], expected[WF_SHAPE_TEXT];
        wf_shape_format(found->ndim, found->shape, has);
        wf_shape_format(tensor->ndim, tensor->shape, expected);
        return wf_error_set(
            error, WF_MISMATCH,
            "%s: tensor \"%.100s\" is %s of %s, the job's model has %s of %s; " OF_ANOTHER,
            file->name, found->name, has, found->dtype_name, expected,
            wf_dtype_safetensors(tensor->dtype));
    }
    uint64_t offset = file->data_offset + found->begin;
    if (offset % wf_dtype_bytes(tensor->dtype) != 0) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "%s: tensor \"%.100s\" does not stand at a multiple of its elements",
                            file->name, found->name);
    }
    stored->places[index] = (struct place){.file = f, .offset = offset, .found = true};
    return WF_OK;
}

static enum wf_status place_tensors(struct wf_stored *stored, struct wf_error *error)
{
    const struct wf_layout *layout = stored->layout;
    stored->places = calloc(layout->tensor_count + 1, sizeof *stored->places);
    if (stored->places == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu32 " tensors",
                            layout->tensor_count);
    }
    for (uint32_t f = 0; f < stored->hf.file_count; f++) {
        const struct wf_safetensors *header = stored->hf.files[f].header;
        enum wf_status status = check_header(stored, f, error);
        for (uint32_t t = 0; t < header->tensor_count && status == WF_OK; t++) {
            status = place_tensor(stored, f, &header->tensors[t], error);
        }
        if (status != WF_OK) {
            return status;
        }
    }
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        if (!stored->places[i].found) {
            return wf_error_set(error, WF_MISMATCH,
                                "tensor \"%.100s\" of the job's model is in no file; " OF_ANOTHER,
                                layout->tensors[i].name);
        }
    }
    return WF_OK;
}

static void close_stored(struct wf_stored *stored)
{
    wf_hf_folder_close(&stored->hf);
    wf_version_manifest_fini(&stored->manifest);
    free(stored->said);
    free(stored->places);
    free(stored);
}

static enum wf_status open_folder(struct wf_stored *stored, const char *folder,
                                  const struct wf_store_wanted *wanted, struct wf_error *error)
{
    enum wf_status status = read_manifest(stored, folder, wanted, error);
    status = status != WF_OK ? status : check_files(stored, folder, error);
    if (status == WF_OK) {
        wf_hf_folder_close(&stored->hf);
        status = wf_hf_folder_open(folder, NULL, NULL, &stored->hf, error);
    }
    status = status != WF_OK ? status : pair_files(stored, error);
    return status != WF_OK ? status : place_tensors(stored, error);
}

static enum wf_status open_version(struct wf_store *store, const struct wf_store_wanted *wanted,
                                   struct wf_stored **stored_out, struct wf_error *error)
{
    const struct folder_store *folders = (const struct folder_store *)store;
    char name[WF_VERSION_TEXT], *folder = NULL;
    wf_version_format(wanted->version, name);
    struct wf_stored *stored = calloc(1, sizeof *stored);
    if (stored == NULL || asprintf(&folder, "%s/%s", folders->place, name) < 0) {
        free(stored);
        return wf_error_set(error, WF_NO_MEMORY, "no memory to open version %s", name);
    }
    stored->layout = wanted->layout;
    stored->hf.fd = -1;
    enum wf_status status = open_folder(stored, folder, wanted, error);
    if (status == WF_NOT_FOUND) {
        wf_error_set(error, status, "version %s is not in %s", name, folders->place);
    } else if (status != WF_OK) {
        wf_error_prefix(error, "%s", folder);
    }
    free(folder);
    if (status != WF_OK) {
        close_stored(stored);
        return status;
    }
    *stored_out = stored;
    return WF_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */
static enum wf_status grow_window(struct wf_store_window *window, size_t len,
                                  struct wf_error *error)
{
    if (len <= window->capacity) {
        return WF_OK;
    }
    size_t capacity = (size_t)round_up(len);
    uint8_t *memory = aligned_alloc(64, capacity);
    if (memory == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %zu bytes of a file", len);
    }
    if (window->len > 0) {
        memcpy(memory, window->memory, window->len);
    }
    free(window->memory);
    window->memory = memory;
    window->capacity = capacity;
    return WF_OK;
}

/* Whole chunks. What follows what is here already goes on from there: readers go forward, and the
 * chunk in which one piece ends and the next begins is read once. */
static enum wf_status load_window(const struct wf_stored *stored, struct wf_store_window *window,
                                  uint32_t f, uint64_t first, uint64_t end, struct wf_error *error)
{
    uint64_t begin = first / WF_VERSION_CHUNK_BYTES * WF_VERSION_CHUNK_BYTES;
    uint64_t stop = round_up(end), here = window->first + window->len;
    stop = stop < stored->hf.files[f].bytes ? stop : stored->hf.files[f].bytes;
    size_t len = (size_t)(stop - begin), kept = 0;
    WF_ASSERT(len <= WF_VERSION_WINDOW_BYTES);
    if (window->file == f && begin >= window->first && begin < here) {
        kept = (size_t)(here - begin);
        memmove(window->memory, window->memory + (begin - window->first), kept);
    }
    window->file = f;
    window->first = begin;
    window->len = kept;
    enum wf_status status = grow_window(window, len, error);
    if (status == WF_OK) {
        status = read_chunks(stored->hf.files[f].fd, stored->said[f], begin + kept, len - kept,
                             window->memory + kept, error);
    }
    window->len = status == WF_OK ? len : 0;
    return status;
}

static enum wf_status read_bytes(struct wf_stored *stored, struct wf_store_window *window,
                                 uint32_t tensor, uint64_t first, uint64_t len,
                                 const uint8_t **bytes_out, struct wf_error *error)
{
    const struct place *place = &stored->places[tensor];
    uint64_t bytes = stored->layout->tensors[tensor].bytes;
    WF_ASSERT(len > 0 && len <= WF_VERSION_READ_BYTES && first <= bytes && len <= bytes - first);
    uint64_t begin = place->offset + first, end = begin + len;
    bool here =
        window->file == place->file && begin >= window->first && end <= window->first + window->len;
    if (!here) {
        enum wf_status status = load_window(stored, window, place->file, begin, end, error);
        if (status != WF_OK) {
            return status;
        }
    }
    *bytes_out = window->memory + (begin - window->first);
    return WF_OK;
}

/* --- the store -------------------------------------------------------------------------------- */
static const struct wf_store_ops folder_ops = {
    .open = open_version, .read = read_bytes, .close = close_stored};

enum wf_status wf_version_store_new(const char *place, struct wf_store **store_out,
                                    struct wf_error *error)
{
    struct folder_store *folders = calloc(1, sizeof *folders);
    if (folders == NULL || (folders->place = strdup(place)) == NULL) {
        free(folders);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a store of versions");
    }
    folders->store.ops = &folder_ops;
    folders->store.read_max = WF_VERSION_READ_BYTES;
    *store_out = &folders->store;
    return WF_OK;
}

void wf_version_store_free(struct wf_store *store)
{
    if (store != NULL) {
        free(((struct folder_store *)store)->place);
        free(store);
    }
}

enum wf_status wf_version_newest(const char *place, const char *job, const struct wf_layout *layout,
                                 void (*note)(void *user, const char *sentence), void *user,
                                 struct wf_version *version_out, struct wf_error *error)
{
    struct wf_version *versions = NULL;
    struct wf_store *store = NULL;
    uint32_t count = 0;
    int fd = -1;
    enum wf_status status = wf_folder_open(place, &fd, error);
    if (status == WF_OK) {
        status = wf_version_place_list(fd, &versions, &count, error);
        close(fd);
    }
    status = status != WF_OK ? status : wf_version_store_new(place, &store, error);
    bool found = false;
    for (uint32_t i = count; status == WF_OK && !found && i-- > 0;) {
        const struct wf_store_wanted wanted = {
            .job = job, .version = versions[i], .layout = layout};
        struct wf_stored *stored = NULL;
        struct wf_error why;
        found = store->ops->open(store, &wanted, &stored, &why) == WF_OK;
        if (found) {
            *version_out = versions[i];
            store->ops->close(stored);
        } else if (note != NULL) {
            note(user, why.text);
        }
    }
    wf_version_store_free(store);
    free(versions);
    if (status == WF_OK && !found) {
        status = wf_error_set(error, WF_NOT_FOUND, "there is no version of job \"%s\" in %s", job,
                              place);
    }
    return status;
}
