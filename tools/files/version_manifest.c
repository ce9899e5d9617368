/* version_manifest.c - reads and writes weft_version.json. */
#include "tools/files/version_manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/hash.h"
#include "models/json.h"
#include "tools/files/hf_folder.h"
#include "tools/files/io.h"
#include "tools/files/version_folder.h"

enum { FORMAT = 2, CHUNK_DIGITS = 16, WHY_MAX = 700 };

void wf_version_manifest_fini(struct wf_version_manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->file_count; i++) {
        free(manifest->files[i].name);
        free(manifest->files[i].chunks);
    }
    free(manifest->files);
    memset(manifest, 0, sizeof *manifest);
}

static void digest(const struct wf_version_manifest *m, char text_out[WF_HASH_TEXT])
{
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    wf_hasher_u64(&hasher, FORMAT);
    wf_hasher_text(&hasher, m->job, strlen(m->job));
    wf_hasher_u64(&hasher, m->version.term);
    wf_hasher_u64(&hasher, m->version.counter);
    wf_hasher_u64(&hasher, m->version.step);
    wf_hasher_text(&hasher, m->label, strlen(m->label));
    wf_hasher_u64(&hasher, WF_VERSION_CHUNK_BYTES);
    wf_hasher_u64(&hasher, m->file_count);
    for (uint32_t i = 0; i < m->file_count; i++) {
        const struct wf_version_file *file = &m->files[i];
        wf_hasher_text(&hasher, file->name, strlen(file->name));
        wf_hasher_u64(&hasher, file->bytes);
        for (uint64_t c = 0; c < file->chunk_count; c++) {
            wf_hasher_u64(&hasher, file->chunks[c]);
        }
    }
    wf_hash_format(wf_hasher_end(&hasher), text_out);
}

/* --- writing ---------------------------------------------------------------------------------- */
static bool add(struct json_object *object, const char *key, struct json_object *value)
{
    return value != NULL && json_object_object_add(object, key, value) == 0;
}

static bool add_text(struct json_object *object, const char *key, const char *text)
{
    return add(object, key, json_object_new_string(text));
}

static bool add_chunks(struct json_object *object, const struct wf_version_file *file)
{
    char *digits = malloc(file->chunk_count * CHUNK_DIGITS + 1);
    if (digits == NULL) {
        return false;
    }
    digits[0] = '\0';
    for (uint64_t i = 0; i < file->chunk_count; i++) {
        snprintf(digits + i * CHUNK_DIGITS, CHUNK_DIGITS + 1, "%016" PRIx64, file->chunks[i]);
    }
    bool ok = add_text(object, "chunks", digits);
    free(digits);
    return ok;
}

static bool add_files(struct json_object *root, const struct wf_version_manifest *manifest)
{
    struct json_object *list = json_object_new_array();
    bool ok = add(root, "files", list);
    for (uint32_t i = 0; ok && i < manifest->file_count; i++) {
        struct json_object *entry = json_object_new_object();
        ok = entry != NULL && json_object_array_add(list, entry) == 0 &&
             add_text(entry, "name", manifest->files[i].name) &&
             add(entry, "bytes", json_object_new_uint64(manifest->files[i].bytes)) &&
             add_chunks(entry, &manifest->files[i]);
    }
    return ok;
}

enum wf_status wf_version_manifest_format(const struct wf_version_manifest *manifest,
                                          char **text_out, size_t *len_out, struct wf_error *error)
{
    char version[WF_VERSION_TEXT], sum[WF_HASH_TEXT];
    wf_version_format(manifest->version, version);
    digest(manifest, sum);
    struct json_object *root = json_object_new_object();
    bool ok = root != NULL && add_text(root, "weft_version", WEFT_VERSION) &&
              add(root, "format", json_object_new_uint64(FORMAT)) &&
              add_text(root, "job", manifest->job) && add_text(root, "version", version) &&
              add_text(root, "label", manifest->label) &&
              add(root, "chunk_bytes", json_object_new_uint64(WF_VERSION_CHUNK_BYTES)) &&
              add_files(root, manifest) && add_text(root, "digest", sum);
    const char *text = ok ? json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY |
                                                                     JSON_C_TO_STRING_NOSLASHESCAPE)
                          : NULL;
    int len = text != NULL ? asprintf(text_out, "%s\n", text) : -1;
    json_object_put(root);
    if (len < 0) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for " WF_VERSION_FILE);
    }
    *len_out = (size_t)len;
    return WF_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */
static const char *kind_of(struct json_object *value)
{
    return value != NULL ? json_type_to_name(json_object_get_type(value)) : "nothing";
}

/* A needed text without NUL, at most size - 1 bytes. */
static enum wf_status get_text(struct json_object *object, const char *key, size_t size,
                               const char **text_out, struct wf_error *error)
{
    struct json_object *value = NULL;
    json_object_object_get_ex(object, key, &value);
    if (!json_object_is_type(value, json_type_string)) {
        return wf_error_set(error, WF_INVALID, "\"%s\": expected a text, found %s", key,
                            kind_of(value));
    }
    size_t len = (size_t)json_object_get_string_len(value);
    if (len >= size || strlen(json_object_get_string(value)) != len) {
        return wf_error_set(error, WF_INVALID,
                            "\"%s\": expected at most %zu bytes without NUL, found %zu%s", key,
                            size - 1, len, len < size ? " with one" : "");
    }
    *text_out = json_object_get_string(value);
    return WF_OK;
}

static bool parse_chunk(const char *digits, uint64_t *chunk_out)
{
    uint64_t value = 0;
    for (int i = 0; i < CHUNK_DIGITS; i++) {
        char c = digits[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 16;
        if (digit == 16) {
            return false;
        }
        value = value << 4 | digit;
    }
    *chunk_out = value;
    return true;
}

static enum wf_status take_chunks(struct json_object *entry, struct wf_version_file *file,
                                  struct wf_error *error)
{
    const char *digits = NULL;
    uint64_t count =
        file->bytes / WF_VERSION_CHUNK_BYTES + (file->bytes % WF_VERSION_CHUNK_BYTES != 0);
    enum wf_status status = get_text(entry, "chunks", WF_JSON_BYTES_MAX, &digits, error);
    if (status != WF_OK) {
        return status;
    }
    if (strlen(digits) / CHUNK_DIGITS != count || strlen(digits) % CHUNK_DIGITS != 0) {
        return wf_error_set(error, WF_INVALID,
                            "\"chunks\" of %s: expected %" PRIu64 " digests of %d digits, found "
                            "%zu digits",
                            file->name, count, CHUNK_DIGITS, strlen(digits));
    }
    file->chunks = calloc(count + 1, sizeof *file->chunks);
    if (file->chunks == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu64 " digests", count);
    }
    file->chunk_count = count;
    for (uint64_t i = 0; i < count; i++) {
        if (!parse_chunk(digits + i * CHUNK_DIGITS, &file->chunks[i])) {
            return wf_error_set(error, WF_INVALID, "\"chunks\" of %s: expected digits 0-9, a-f",
                                file->name);
        }
    }
    return WF_OK;
}

static enum wf_status take_file(struct json_object *entry, struct wf_version_file *file,
                                struct wf_error *error)
{
    const char *name = NULL;
    if (!json_object_is_type(entry, json_type_object)) {
        return wf_error_set(error, WF_INVALID, "expected an object, found %s", kind_of(entry));
    }
    enum wf_status status = get_text(entry, "name", 256, &name, error);
    if (status == WF_OK && !wf_file_name_is_plain(name, strlen(name))) {
        status = wf_error_set(error, WF_REFUSED,
                              "\"name\": expected a file's name without a folder, found "
                              "\"%.100s\"",
                              name);
    }
    if (status == WF_OK) {
        status = wf_json_get_u64(entry, "bytes", 0, INT64_MAX, &file->bytes, error);
    }
    if (status == WF_OK && (file->name = strdup(name)) == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for a file name");
    }
    return status == WF_OK ? take_chunks(entry, file, error) : status;
}

static enum wf_status take_files(struct json_object *root, struct wf_version_manifest *manifest,
                                 struct wf_error *error)
{
    struct json_object *list = NULL;
    json_object_object_get_ex(root, "files", &list);
    if (!json_object_is_type(list, json_type_array)) {
        return wf_error_set(error, WF_INVALID, "\"files\": expected a list, found %s",
                            kind_of(list));
    }
    size_t count = json_object_array_length(list);
    if (count == 0 || count > WF_VERSION_FILES_MAX) {
        return wf_error_set(error, WF_INVALID, "\"files\": expected 1 to %d, found %zu",
                            WF_VERSION_FILES_MAX, count);
    }
    manifest->files = calloc(count, sizeof *manifest->files);
    if (manifest->files == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %zu files", count);
    }
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < count && status == WF_OK; i++) {
        manifest->file_count++;
        status = take_file(json_object_array_get_idx(list, i), &manifest->files[i], error);
        if (status != WF_OK) {
            wf_error_prefix(error, "\"files\"[%zu]", i);
        }
    }
    return status;
}

static enum wf_status take_format(struct json_object *root, struct wf_error *error)
{
    uint64_t format = 0, chunk_bytes = 0;
    enum wf_status status = wf_json_get_u64(root, "format", 0, INT64_MAX, &format, error);
    if (status == WF_OK && format < FORMAT) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "format %" PRIu64 ", in which " WF_HF_CONFIG
                            " and the index have no digest; this Weft reads format %d: write the "
                            "version anew, or read it with the Weft that wrote it",
                            format, FORMAT);
    }
    if (status == WF_OK && format != FORMAT) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "format %" PRIu64 "; this Weft reads format %d: update it", format,
                            FORMAT);
    }
    return status == WF_OK ? wf_json_get_u64(root, "chunk_bytes", WF_VERSION_CHUNK_BYTES,
                                             WF_VERSION_CHUNK_BYTES, &chunk_bytes, error)
                           : status;
}

static enum wf_status take_root(struct json_object *root, struct wf_version_manifest *manifest,
                                struct wf_error *error)
{
    const char *job = NULL, *version = NULL, *label = NULL, *said = NULL;
    if (!json_object_is_type(root, json_type_object)) {
        return wf_error_set(error, WF_INVALID, "expected an object, found %s", kind_of(root));
    }
    enum wf_status status = take_format(root, error);
    status = status != WF_OK ? status : get_text(root, "job", sizeof manifest->job, &job, error);
    status = status != WF_OK ? status : get_text(root, "version", WF_VERSION_TEXT, &version, error);
    status =
        status != WF_OK ? status : get_text(root, "label", sizeof manifest->label, &label, error);
    status = status != WF_OK ? status : get_text(root, "digest", WF_HASH_TEXT, &said, error);
    if (status == WF_OK && !wf_version_parse(version, &manifest->version)) {
        status = wf_error_set(error, WF_INVALID,
                              "\"version\": expected term.counter.step, found \"%s\"", version);
    }
    status = status != WF_OK ? status : take_files(root, manifest, error);
    if (status != WF_OK) {
        return status;
    }
    snprintf(manifest->job, sizeof manifest->job, "%s", job);
    snprintf(manifest->label, sizeof manifest->label, "%s", label);
    char sum[WF_HASH_TEXT];
    digest(manifest, sum);
    if (strcmp(sum, said) != 0) {
        return wf_error_set(error, WF_DIGEST,
                            "its digest is %s, its contents give %s: it was changed since it was "
                            "written",
                            said, sum);
    }
    return WF_OK;
}

enum wf_status wf_version_manifest_parse(const char *text, size_t len,
                                         struct wf_version_manifest *out, struct wf_error *error)
{
    struct json_object *root = NULL;
    struct wf_version_manifest manifest = {0};
    enum wf_status status = wf_json_parse(text, len, WF_JSON_STRICT, &root, error);
    if (status == WF_OK) {
        status = take_root(root, &manifest, error);
    }
    json_object_put(root);
    if (status != WF_OK) {
        if ((status == WF_INVALID || status == WF_REFUSED) && error != NULL) {
            struct wf_error why = *error;
            wf_error_set(error, status,
                         "%.*s; it is not as Weft wrote it: restore it, or use another version",
                         WHY_MAX, why.text);
        }
        wf_error_prefix(error, WF_VERSION_FILE);
        wf_version_manifest_fini(&manifest);
        return status;
    }
    *out = manifest;
    return WF_OK;
}

enum wf_status wf_version_manifest_read(int folder_fd, const char *path,
                                        struct wf_version_manifest *out, struct wf_error *error)
{
    char *text = NULL;
    size_t len = 0;
    enum wf_status status =
        wf_file_read_all(folder_fd, path, WF_JSON_BYTES_MAX, &text, &len, error);
    if (status == WF_OK) {
        status = wf_version_manifest_parse(text, len, out, error);
        free(text);
    }
    return status;
}
