/* version_write.c - writes one version as a Hugging Face folder that appears whole or not at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "models/json.h"
#include "models/safetensors.h"
#include "tools/files/hf_folder.h"
#include "tools/files/version_folder.h"
#include "tools/files/version_manifest.h"
#include "tools/files/version_place.h"

enum { OTHERS = 2 }; /* files with digests that are no shards: config.json, the index */

struct writer {
    const struct wf_version_save *save;
    int place_fd, folder_fd;
    char name[WF_VERSION_TEXT], partial[WF_VERSION_NAME_MAX];
    uint32_t *order;     /* tensors as they stand in the files; owned */
    uint32_t *shard_end; /* place in `order` after the last of each shard; owned */
    uint32_t shard_count;
    struct wf_version_manifest manifest; /* its files so far: shards, then the others */
    uint8_t *block;                      /* one chunk; owned */
};

/* --- shards ----------------------------------------------------------------------------------- */
static uint64_t bytes_at(const struct writer *w, uint32_t at)
{
    return w->save->layout->tensors[w->order[at]].bytes;
}

/* Larger elements first: then each tensor stands at a multiple of its element's size. */
static void order_shard(struct writer *w, uint32_t first, uint32_t end)
{
    const struct wf_tensor *tensors = w->save->layout->tensors;
    for (uint32_t i = first + 1; i < end; i++) {
        uint32_t tensor = w->order[i], at = i;
        size_t bytes = wf_dtype_bytes(tensors[tensor].dtype);
        for (; at > first && wf_dtype_bytes(tensors[w->order[at - 1]].dtype) < bytes; at--) {
            w->order[at] = w->order[at - 1];
        }
        w->order[at] = tensor;
    }
}

static enum wf_status plan_shards(struct writer *w, struct wf_error *error)
{
    const struct wf_layout *layout = w->save->layout;
    uint64_t limit = w->save->shard_bytes != 0 ? w->save->shard_bytes : WF_VERSION_SHARD_BYTES;
    uint64_t filled = 0;
    w->order = calloc(layout->tensor_count + 1, sizeof *w->order);
    w->shard_end = calloc(layout->tensor_count + 1, sizeof *w->shard_end);
    w->block = malloc(WF_VERSION_CHUNK_BYTES);
    if (w->order == NULL || w->shard_end == NULL || w->block == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu32 " tensors",
                            layout->tensor_count);
    }
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        uint64_t bytes = layout->tensors[i].bytes;
        w->order[i] = i;
        if (filled > 0 && bytes > limit - (filled < limit ? filled : limit)) {
            w->shard_end[w->shard_count++] = i;
            filled = 0;
        }
        filled += bytes;
    }
    w->shard_end[w->shard_count++] = layout->tensor_count;
    for (uint32_t s = 0; s < w->shard_count; s++) {
        order_shard(w, s > 0 ? w->shard_end[s - 1] : 0, w->shard_end[s]);
    }
    w->manifest.files = calloc(w->shard_count + OTHERS, sizeof *w->manifest.files);
    return w->manifest.files != NULL
               ? WF_OK
               : wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu32 " files",
                              w->shard_count);
}

static enum wf_status shard_header(const struct writer *w, uint32_t first, uint32_t end,
                                   uint8_t **bytes_out, size_t *len_out, struct wf_error *error)
{
    const char *const metadata[] = {"format",       "pt",    "weft_job", w->save->job,
                                    "weft_version", w->name, NULL};
    struct wf_st_tensor *tensors = calloc(end - first + 1, sizeof *tensors);
    if (tensors == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu32 " tensors", end - first);
    }
    for (uint32_t i = first; i < end; i++) {
        const struct wf_tensor *tensor = &w->save->layout->tensors[w->order[i]];
        tensors[i - first] = (struct wf_st_tensor){.name = tensor->name,
                                                   .dtype = tensor->dtype,
                                                   .ndim = tensor->ndim,
                                                   .shape = tensor->shape};
    }
    enum wf_status status = wf_st_format(tensors, end - first, metadata, bytes_out, len_out, error);
    free(tensors);
    return status;
}

/* --- one file: written chunk by chunk, each digested while it is in the cache -------------------
 */
struct sink {
    struct writer *w;
    struct wf_version_file *file;
    int fd;
    size_t filled; /* of w->block */
};

static enum wf_status write_out(int fd, const char *name, const void *bytes, size_t len,
                                struct wf_error *error)
{
    const char *at = bytes;
    while (len > 0) {
        ssize_t put = write(fd, at, len);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return wf_version_failed("writing", name, error);
        }
        at += put;
        len -= (size_t)put;
    }
    return WF_OK;
}

static enum wf_status put_chunk(struct sink *sink, const void *bytes, size_t len,
                                struct wf_error *error)
{
    struct wf_version_file *file = sink->file;
    file->chunks[file->chunk_count++] = XXH3_64bits(bytes, len);
    file->bytes += len;
    return write_out(sink->fd, file->name, bytes, len, error);
}

static enum wf_status put(struct sink *sink, const uint8_t *bytes, uint64_t len,
                          struct wf_error *error)
{
    enum wf_status status = WF_OK;
    while (len > 0 && status == WF_OK) {
        size_t room = WF_VERSION_CHUNK_BYTES - sink->filled;
        size_t part = len < room ? (size_t)len : room;
        if (part == WF_VERSION_CHUNK_BYTES) { /* a whole chunk needs no copy */
            status = put_chunk(sink, bytes, part, error);
        } else {
            memcpy(sink->w->block + sink->filled, bytes, part);
            sink->filled += part;
            if (sink->filled == WF_VERSION_CHUNK_BYTES) {
                status = put_chunk(sink, sink->w->block, sink->filled, error);
                sink->filled = 0;
            }
        }
        bytes += part;
        len -= part;
    }
    return status;
}

static enum wf_status create(struct writer *w, const char *name, int *fd_out,
                             struct wf_error *error)
{
    *fd_out =
        openat(w->folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    return *fd_out >= 0 ? WF_OK : wf_version_failed("making", name, error);
}

/* Closes `fd` in every case; the first failure counts. */
static enum wf_status finish_file(int fd, const char *name, enum wf_status status,
                                  struct wf_error *error)
{
    if (status == WF_OK && fsync(fd) != 0) {
        status = wf_version_failed("syncing", name, error);
    }
    if (close(fd) != 0 && status == WF_OK) {
        status = wf_version_failed("closing", name, error);
    }
    return status;
}

/* What is in the block yet, then as above. */
static enum wf_status finish_sink(struct sink *sink, enum wf_status status, struct wf_error *error)
{
    if (status == WF_OK && sink->filled > 0) {
        status = put_chunk(sink, sink->w->block, sink->filled, error);
    }
    return finish_file(sink->fd, sink->file->name, status, error);
}

/* A new file of at most so many bytes, in the manifest too. Takes `name`; NULL: no memory. */
static enum wf_status open_sink(struct writer *w, char *name, uint64_t bytes, struct sink *sink_out,
                                struct wf_error *error)
{
    struct wf_version_file *file = &w->manifest.files[w->manifest.file_count++];
    *sink_out = (struct sink){.w = w, .file = file, .fd = -1};
    file->name = name;
    file->chunks = calloc(bytes / WF_VERSION_CHUNK_BYTES + 1, sizeof *file->chunks);
    return file->name != NULL && file->chunks != NULL
               ? create(w, file->name, &sink_out->fd, error)
               : wf_error_set(error, WF_NO_MEMORY, "no memory for the digests of a file");
}

static enum wf_status write_text(struct writer *w, const char *name, const char *text, size_t len,
                                 struct wf_error *error)
{
    struct sink sink;
    enum wf_status status = open_sink(w, strdup(name), len, &sink, error);
    if (status != WF_OK) {
        return status;
    }
    return finish_sink(&sink, put(&sink, (const uint8_t *)text, len, error), error);
}

static char *shard_name(const struct writer *w, uint32_t shard)
{
    char *name = NULL;
    int len = w->shard_count == 1
                  ? asprintf(&name, WF_HF_SINGLE)
                  : asprintf(&name, "model-%05" PRIu32 "-of-%05" PRIu32 ".safetensors", shard + 1,
                             w->shard_count);
    return len < 0 ? NULL : name;
}

static enum wf_status write_shard(struct writer *w, uint32_t shard, struct wf_error *error)
{
    uint32_t first = shard > 0 ? w->shard_end[shard - 1] : 0, end = w->shard_end[shard];
    uint8_t *header = NULL;
    size_t header_len = 0;
    enum wf_status status = shard_header(w, first, end, &header, &header_len, error);
    if (status != WF_OK) {
        return status;
    }
    uint64_t bytes = header_len;
    for (uint32_t i = first; i < end; i++) {
        bytes += bytes_at(w, i);
    }
    struct sink sink;
    status = open_sink(w, shard_name(w, shard), bytes, &sink, error);
    if (status == WF_OK) {
        status = put(&sink, header, header_len, error);
        for (uint32_t i = first; i < end && status == WF_OK; i++) {
            status = put(&sink, w->save->tensors[w->order[i]], bytes_at(w, i), error);
        }
        status = finish_sink(&sink, status, error);
    }
    free(header);
    return status;
}

/* --- the folder ------------------------------------------------------------------------------- */
static enum wf_status write_index(struct writer *w, struct wf_error *error)
{
    struct json_object *root = json_object_new_object();
    struct json_object *metadata = json_object_new_object(), *map = json_object_new_object();
    json_object_object_add(root, "metadata", metadata);
    json_object_object_add(root, "weight_map", map);
    bool ok = json_object_object_add(metadata, "total_size",
                                     json_object_new_uint64(w->save->layout->bytes)) == 0;
    for (uint32_t shard = 0, i = 0; ok && shard < w->shard_count; shard++) {
        for (; ok && i < w->shard_end[shard]; i++) {
            const char *tensor = w->save->layout->tensors[w->order[i]].name;
            ok = json_object_object_add(map, tensor,
                                        json_object_new_string(w->manifest.files[shard].name)) == 0;
        }
    }
    size_t len = 0;
    const char *text =
        ok ? json_object_to_json_string_length(
                 root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE, &len)
           : NULL;
    enum wf_status status = text != NULL
                                ? write_text(w, WF_HF_INDEX, text, len, error)
                                : wf_error_set(error, WF_NO_MEMORY, "no memory for the index");
    json_object_put(root);
    return status;
}

static enum wf_status write_manifest(struct writer *w, struct wf_error *error)
{
    char *text = NULL;
    size_t len = 0;
    snprintf(w->manifest.job, sizeof w->manifest.job, "%s", w->save->job);
    snprintf(w->manifest.label, sizeof w->manifest.label, "%s", w->save->label);
    w->manifest.version = w->save->version;
    enum wf_status status = wf_version_manifest_format(&w->manifest, &text, &len, error);
    if (status != WF_OK) {
        return status;
    }
    int fd = -1;
    status = create(w, WF_VERSION_FILE, &fd, error);
    if (status == WF_OK) {
        status = finish_file(fd, WF_VERSION_FILE, write_out(fd, WF_VERSION_FILE, text, len, error),
                             error);
    }
    free(text);
    return status;
}

static enum wf_status write_all(struct writer *w, struct wf_error *error)
{
    enum wf_status status = plan_shards(w, error);
    for (uint32_t s = 0; s < w->shard_count && status == WF_OK; s++) {
        status = write_shard(w, s, error);
    }
    if (status == WF_OK && w->shard_count > 1) {
        status = write_index(w, error);
    }
    if (status == WF_OK) {
        status = write_text(w, WF_HF_CONFIG, w->save->config, w->save->config_len, error);
    }
    status = status != WF_OK ? status : write_manifest(w, error);
    if (status == WF_OK && fsync(w->folder_fd) != 0 && errno != EINVAL) {
        status = wf_version_failed("syncing", w->partial, error);
    }
    return status;
}

static enum wf_status publish(struct writer *w, struct wf_error *error)
{
    /* One of that name is there and is not whole: a reader finds it gone, then the new one. */
    enum wf_status status =
        wf_version_place_retire(w->place_fd, w->save->version, &w->save->notes, error);
    if (status != WF_OK) {
        return status;
    }
    if (renameat(w->place_fd, w->partial, w->place_fd, w->name) != 0) {
        return wf_version_failed("renaming to", w->name, error);
    }
    if (fsync(w->place_fd) != 0 && errno != EINVAL) { /* some file systems cannot */
        return wf_version_failed("syncing the folder of", w->name, error);
    }
    wf_version_place_prune(w->place_fd, w->save);
    return WF_OK;
}

static bool is_there(const struct wf_version_save *save)
{
    struct wf_store *store = NULL;
    struct wf_stored *stored = NULL;
    const struct wf_store_wanted wanted = {
        .job = save->job, .version = save->version, .layout = save->layout};
    bool there = wf_version_store_new(save->place, &store, NULL) == WF_OK &&
                 store->ops->open(store, &wanted, &stored, NULL) == WF_OK;
    if (stored != NULL) {
        store->ops->close(stored);
    }
    wf_version_store_free(store);
    return there;
}

enum wf_status wf_version_write(const struct wf_version_save *save, struct wf_error *error)
{
    WF_ASSERT(save->keep > 0 && save->keep <= WF_VERSION_KEEP_MAX);
    struct writer w = {.save = save, .place_fd = -1, .folder_fd = -1};
    wf_version_format(save->version, w.name);
    enum wf_status status = wf_version_place_lock(save->place, &save->notes, &w.place_fd, error);
    bool begun = status == WF_OK && !is_there(save);
    if (begun) {
        status = wf_version_place_claim(w.place_fd, save->version, save->job, error);
        wf_version_place_name(w.place_fd, save->version, WF_VERSION_PARTIAL, w.partial);
    }
    if (begun && status == WF_OK && mkdirat(w.place_fd, w.partial, 0777) != 0) {
        status = wf_version_failed("making", w.partial, error);
    }
    if (begun && status == WF_OK) {
        w.folder_fd = openat(w.place_fd, w.partial, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        status = w.folder_fd >= 0 ? write_all(&w, error)
                                  : wf_version_failed("opening", w.partial, error);
        status = status != WF_OK ? status : publish(&w, error);
        if (status != WF_OK) {
            wf_version_place_remove(w.place_fd, w.partial, NULL);
        }
    }
    if (begun && status != WF_OK) {
        wf_error_prefix(error, "%s", save->place);
    }
    if (w.folder_fd >= 0) {
        close(w.folder_fd);
    }
    if (w.place_fd >= 0) {
        close(w.place_fd); /* and with it the lock */
    }
    wf_version_manifest_fini(&w.manifest);
    free(w.order);
    free(w.shard_end);
    free(w.block);
    return status;
}
