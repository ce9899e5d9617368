/* make_checkpoint.c - writes a Hugging Face folder of known values, going on where it stopped. */
#include "tools/files/make_checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/config.h"
#include "models/json.h"
#include "models/safetensors.h"
#include "tools/files/atomic.h"
#include "tools/files/checkpoint.h"
#include "tools/files/hf_folder.h"
#include "tools/files/io.h"
#include "tools/files/known_values.h"
#include "tools/files/stored.h"

enum { BLOCK_BYTES = 4 << 20 }; /* made and written at a time */

struct maker {
    const struct wf_make_options *options;
    struct wf_make_report report;
    char *config; /* text of the new config.json; owned */
    size_t config_len;
    struct wf_model *model;   /* owned */
    struct wf_layout *layout; /* owned: the tensors of the files */
    uint32_t *shard_end;      /* owned; tensor after the last of each shard */
    uint8_t *block;           /* owned */
    uint64_t bytes_done;
};

/* --- the config ------------------------------------------------------------------------------- */

static bool set_number(struct json_object *root, const char *key, uint64_t value)
{
    return json_object_object_add(root, key, json_object_new_uint64(value)) == 0;
}

/* The dtype's key has two names; where both stand, both must say the same. */
static bool set_dtype(struct json_object *root, enum wf_dtype dtype)
{
    const char *name = wf_dtype_torch(dtype);
    bool has_new = json_object_object_get_ex(root, "dtype", NULL);
    bool has_old = json_object_object_get_ex(root, "torch_dtype", NULL);
    return (!has_new || json_object_object_add(root, "dtype", json_object_new_string(name)) == 0) &&
           ((has_new && !has_old) ||
            json_object_object_add(root, "torch_dtype", json_object_new_string(name)) == 0);
}

/* Where the layers are counted: in the text model's config, if it is nested. */
static struct json_object *text_model(struct json_object *root)
{
    struct json_object *nested = NULL;
    bool counts = json_object_object_get_ex(root, "text_config", &nested) &&
                  json_object_is_type(nested, json_type_object) &&
                  json_object_object_get_ex(nested, "num_hidden_layers", NULL);
    return counts ? nested : root;
}

/* A list with one entry for each layer must not be longer than there are layers. */
static bool cut_layer_list(struct json_object *root, uint64_t layers)
{
    struct json_object *list = NULL;
    if (!json_object_object_get_ex(root, "layer_types", &list) ||
        !json_object_is_type(list, json_type_array) || json_object_array_length(list) <= layers) {
        return true;
    }
    return json_object_array_del_idx(list, layers, json_object_array_length(list) - layers) == 0;
}

/* Changes what the options change; without such options the text stays as it is, byte for byte. */
static enum wf_status edit_config(struct maker *m, struct wf_error *error)
{
    const struct wf_make_options *options = m->options;
    struct json_object *root = NULL;
    if (options->layers == 0 && options->dtype == WF_DTYPE_NONE) {
        return WF_OK;
    }
    enum wf_status status = wf_json_parse(m->config, m->config_len, WF_JSON_PYTHON, &root, error);
    if (status != WF_OK) {
        return status;
    }
    bool ok = json_object_is_type(root, json_type_object);
    if (ok && options->layers != 0) {
        struct json_object *text_config = text_model(root);
        ok = set_number(text_config, "num_hidden_layers", options->layers) &&
             cut_layer_list(text_config, options->layers);
    }
    if (ok && options->dtype != WF_DTYPE_NONE) {
        ok = set_dtype(root, options->dtype);
    }
    const char *text = ok ? json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY |
                                                                     JSON_C_TO_STRING_NOSLASHESCAPE)
                          : NULL;
    char *copy = NULL;
    int len = text != NULL ? asprintf(&copy, "%s\n", text) : -1;
    json_object_put(root);
    if (len < 0) {
        return wf_error_set(error, ok ? WF_NO_MEMORY : WF_INVALID, "cannot edit the config%s",
                            ok ? ": no memory" : ", which is no JSON object");
    }
    free(m->config);
    m->config = copy;
    m->config_len = (size_t)len;
    return WF_OK;
}

static enum wf_status read_config(struct maker *m, struct wf_error *error)
{
    enum wf_status status =
        wf_hf_config_read(m->options->config, &m->config, &m->config_len, error);
    if (status != WF_OK) {
        return status;
    }
    status = edit_config(m, error);
    if (status == WF_OK) {
        status = wf_model_parse(m->config, m->config_len, m->options->families, &m->model, error);
    }
    if (status == WF_OK) {
        status = wf_stored_layout(m->model, &m->layout, error);
    }
    if (status != WF_OK) {
        wf_error_prefix(error, "the config of %s", m->options->config);
    }
    return status;
}

/* --- the shards ------------------------------------------------------------------------------- */

/* Cuts the tensors into shards of about equal bytes, none of them empty. */
static enum wf_status plan_shards(struct maker *m, struct wf_error *error)
{
    const struct wf_layout *layout = m->layout;
    uint32_t shards = m->options->shards;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const struct wf_tensor *tensor = &layout->tensors[i];
        if (!wf_known_values_supports(tensor->dtype)) {
            return wf_error_set(
                error, WF_UNSUPPORTED,
                "tensor \"%s\" would be %s; known values exist for f32, f16, "
                "bf16, f8_e4m3, i32 and u8: give a config without quantization_config",
                tensor->name, wf_dtype_name(tensor->dtype));
        }
        m->report.bytes += tensor->bytes;
        m->report.elements += tensor->bytes / wf_dtype_bytes(tensor->dtype);
    }
    m->report.tensors = layout->tensor_count;
    m->report.files = shards;
    if (shards > layout->tensor_count) {
        return wf_error_set(error, WF_INVALID, "%u shards are more than the %u tensors", shards,
                            layout->tensor_count);
    }
    m->shard_end = calloc(shards, sizeof *m->shard_end);
    m->block = malloc(BLOCK_BYTES);
    if (m->shard_end == NULL || m->block == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u shards", shards);
    }
    uint64_t so_far = 0;
    uint32_t shard = 0;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        so_far += layout->tensors[i].bytes;
        bool is_full = so_far / (shard + 1) >= m->report.bytes / shards;
        bool must_end = layout->tensor_count - i - 1 == shards - shard - 1; /* one each is left */
        if (shard + 1 < shards && (is_full || must_end)) {
            m->shard_end[shard++] = i + 1;
        }
    }
    m->shard_end[shards - 1] = layout->tensor_count;
    return WF_OK;
}

static uint32_t shard_first(const struct maker *m, uint32_t shard)
{
    return shard == 0 ? 0 : m->shard_end[shard - 1];
}

static void shard_name(const struct maker *m, uint32_t shard, char out[64])
{
    if (m->options->shards == 1) {
        snprintf(out, 64, WF_HF_SINGLE);
    } else {
        snprintf(out, 64, "model-%05u-of-%05u.safetensors", shard + 1, m->options->shards);
    }
}

static enum wf_status shard_header(const struct maker *m, uint32_t shard, uint8_t **bytes_out,
                                   size_t *len_out, struct wf_error *error)
{
    static const char *const metadata[] = {"format", "pt", "weft_values", WF_KNOWN_VALUES_VERSION,
                                           NULL};
    uint32_t first = shard_first(m, shard), count = m->shard_end[shard] - first;
    struct wf_st_tensor *tensors = calloc(count, sizeof *tensors);
    if (tensors == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u tensors", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct wf_tensor *tensor = &m->layout->tensors[first + i];
        tensors[i] = (struct wf_st_tensor){.name = tensor->name,
                                           .dtype = tensor->dtype,
                                           .ndim = tensor->ndim,
                                           .shape = tensor->shape};
    }
    enum wf_status status = wf_st_format(tensors, count, metadata, bytes_out, len_out, error);
    free(tensors);
    return status;
}

static uint64_t shard_bytes(const struct maker *m, uint32_t shard)
{
    uint64_t bytes = 0;
    for (uint32_t i = shard_first(m, shard); i < m->shard_end[shard]; i++) {
        bytes += m->layout->tensors[i].bytes;
    }
    return bytes;
}

/* --- what is there ---------------------------------------------------------------------------- */

enum state { ABSENT, EQUAL, DIFFERENT };

/* True if `name` begins with `bytes` and is `total` bytes long. */
static enum state compare_file(int folder_fd, const char *name, const void *bytes, size_t len,
                               uint64_t total)
{
    int fd = -1;
    uint64_t size = 0;
    enum wf_status status = wf_file_open(folder_fd, name, &fd, &size, NULL);
    if (status != WF_OK) {
        return status == WF_NOT_FOUND ? ABSENT : DIFFERENT;
    }
    char *found = size == total ? malloc(len) : NULL;
    bool equal = found != NULL && wf_file_pread(fd, found, len, 0, NULL) == WF_OK &&
                 memcmp(found, bytes, len) == 0;
    free(found);
    close(fd);
    return equal ? EQUAL : DIFFERENT;
}

/* Decides what happens to a file that is there: kept, written over, or all refused. */
static enum wf_status settle(const struct maker *m, const char *name, enum state state,
                             struct wf_error *error)
{
    if (state == DIFFERENT && !m->options->force) {
        return wf_error_set(
            error, WF_REFUSED,
            "%s/%s is there and is not what would be written (another model, dtype, "
            "number of layers or shards); give another --out, or --force to write "
            "over it",
            m->options->folder, name);
    }
    return WF_OK;
}

/* Files of another number of shards would be taken for weights by some readers. */
static bool is_stray(const struct maker *m, const char *name)
{
    unsigned shard, shards;
    int len = 0;
    if (strcmp(name, WF_HF_SINGLE) == 0) {
        return m->options->shards != 1;
    }
    if (strcmp(name, WF_HF_INDEX) == 0) {
        return m->options->shards == 1;
    }
    return sscanf(name, "model-%5u-of-%5u.safetensors%n", &shard, &shards, &len) == 2 &&
           (size_t)len == strlen(name) && (shards != m->options->shards || shards == 1);
}

static enum wf_status settle_strays(const struct maker *m, int folder_fd, struct wf_error *error)
{
    DIR *entries = wf_folder_entries(folder_fd, ".");
    enum wf_status status = WF_OK;
    if (entries == NULL) {
        return wf_error_set(error, WF_IO, "cannot read the folder %s: %s", m->options->folder,
                            strerror(errno));
    }
    for (struct dirent *entry; status == WF_OK && (entry = readdir(entries)) != NULL;) {
        if (is_stray(m, entry->d_name)) {
            status = settle(m, entry->d_name, DIFFERENT, error);
            if (status == WF_OK && unlinkat(folder_fd, entry->d_name, 0) != 0) {
                status = wf_error_set(error, WF_IO, "cannot remove %s/%s: %s", m->options->folder,
                                      entry->d_name, strerror(errno));
            }
        }
    }
    closedir(entries);
    return status;
}

/* --- writing ---------------------------------------------------------------------------------- */

static enum wf_status file_path(const struct maker *m, const char *name, char out[PATH_MAX],
                                struct wf_error *error)
{
    if (snprintf(out, PATH_MAX, "%s/%s", m->options->folder, name) >= PATH_MAX) {
        return wf_error_set(error, WF_INVALID, "the path %.100s... is too long",
                            m->options->folder);
    }
    return WF_OK;
}

struct writing {
    struct maker *maker;
    struct wf_atomic_file *file;
};

static enum wf_status write_part(void *user, const void *bytes, size_t len, struct wf_error *error)
{
    struct writing *writing = user;
    struct maker *m = writing->maker;
    enum wf_status status = wf_atomic_write(writing->file, bytes, len, error);
    m->bytes_done += status == WF_OK ? len : 0;
    if (status == WF_OK && m->options->progress != NULL) {
        m->options->progress(m->options->user, m->bytes_done, m->report.bytes);
    }
    return status;
}

static enum wf_status write_shard(struct maker *m, uint32_t shard, const uint8_t *header,
                                  size_t header_len, const char *name, struct wf_error *error)
{
    char path[PATH_MAX];
    struct wf_atomic_file file;
    enum wf_status status = file_path(m, name, path, error);
    if (status == WF_OK) {
        status = wf_atomic_open(&file, path, error);
    }
    if (status != WF_OK) {
        return status;
    }
    status = wf_atomic_write(&file, header, header_len, error);
    for (uint32_t i = shard_first(m, shard); status == WF_OK && i < m->shard_end[shard]; i++) {
        struct writing writing = {m, &file};
        status = wf_stored_known(m->model, m->layout, i, m->block, BLOCK_BYTES, write_part,
                                 &writing, error);
    }
    if (status != WF_OK) {
        wf_atomic_abort(&file);
        return status;
    }
    return wf_atomic_commit(&file, error);
}

/* One shard: compared if `only_look`, else written unless it is there. */
static enum wf_status do_shard(struct maker *m, int folder_fd, uint32_t shard, bool only_look,
                               struct wf_error *error)
{
    char name[64];
    uint8_t *header;
    size_t len;
    enum wf_status status = shard_header(m, shard, &header, &len, error);
    if (status != WF_OK) {
        return status;
    }
    uint64_t data = shard_bytes(m, shard);
    shard_name(m, shard, name);
    enum state state = compare_file(folder_fd, name, header, len, len + data);
    if (only_look) {
        status = settle(m, name, state, error);
    } else if (state == EQUAL) {
        m->bytes_done += data;
    } else {
        status = write_shard(m, shard, header, len, name, error);
        m->report.files_written++;
    }
    free(header);
    return status;
}

/* A small file: compared if `only_look`, else written unless it is there. */
static enum wf_status do_text(struct maker *m, int folder_fd, const char *name, const char *text,
                              size_t len, bool only_look, struct wf_error *error)
{
    char path[PATH_MAX];
    enum state state = compare_file(folder_fd, name, text, len, len);
    if (only_look) {
        return settle(m, name, state, error);
    }
    enum wf_status status = file_path(m, name, path, error);
    if (status != WF_OK || state == EQUAL) {
        return status;
    }
    m->report.files_written++;
    return wf_atomic_write_file(path, text, len, error);
}

static enum wf_status make_index(const struct maker *m, char **text_out, struct wf_error *error)
{
    struct json_object *root = json_object_new_object();
    struct json_object *metadata = json_object_new_object(), *map = json_object_new_object();
    json_object_object_add(root, "metadata", metadata);
    json_object_object_add(root, "weight_map", map);
    bool ok = set_number(metadata, "total_size", m->report.bytes);
    for (uint32_t shard = 0; ok && shard < m->options->shards; shard++) {
        char name[64];
        shard_name(m, shard, name);
        for (uint32_t i = shard_first(m, shard); ok && i < m->shard_end[shard]; i++) {
            ok = json_object_object_add(map, m->layout->tensors[i].name,
                                        json_object_new_string(name)) == 0;
        }
    }
    const char *text = ok ? json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY |
                                                                     JSON_C_TO_STRING_NOSLASHESCAPE)
                          : NULL;
    *text_out = text != NULL ? strdup(text) : NULL;
    json_object_put(root);
    return *text_out != NULL ? WF_OK : wf_error_set(error, WF_NO_MEMORY, "no memory for the index");
}

/* All files once: first only looking, so that a refusal comes before anything is touched. */
static enum wf_status do_all(struct maker *m, int folder_fd, const char *index, bool only_look,
                             struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (uint32_t shard = 0; status == WF_OK && shard < m->options->shards; shard++) {
        status = do_shard(m, folder_fd, shard, only_look, error);
    }
    if (status == WF_OK && index != NULL) {
        status = do_text(m, folder_fd, WF_HF_INDEX, index, strlen(index), only_look, error);
    }
    if (status == WF_OK) {
        status = do_text(m, folder_fd, WF_HF_CONFIG, m->config, m->config_len, only_look, error);
    }
    return status;
}

/* With --force the old config goes first: old weights must not stand under the new one, nor the
 * reverse, if we are stopped in between. */
static enum wf_status write_all(struct maker *m, int folder_fd, const char *index,
                                struct wf_error *error)
{
    enum wf_status status = do_all(m, folder_fd, index, true, error);
    if (status == WF_OK && m->options->force &&
        compare_file(folder_fd, WF_HF_CONFIG, m->config, m->config_len, m->config_len) ==
            DIFFERENT &&
        unlinkat(folder_fd, WF_HF_CONFIG, 0) != 0) {
        status = wf_error_set(error, WF_IO, "cannot remove %s/%s: %s", m->options->folder,
                              WF_HF_CONFIG, strerror(errno));
    }
    if (status == WF_OK) {
        status = settle_strays(m, folder_fd, error);
    }
    return status != WF_OK ? status : do_all(m, folder_fd, index, false, error);
}

enum wf_status wf_make_checkpoint(const struct wf_make_options *options,
                                  struct wf_make_report *report_out, struct wf_error *error)
{
    WF_ASSERT(options->shards >= 1 && options->shards <= WF_MAKE_SHARDS_MAX);
    struct maker m = {.options = options};
    char *index = NULL;
    int folder_fd = -1;
    enum wf_status status = read_config(&m, error);
    status = status != WF_OK ? status : plan_shards(&m, error);
    if (status == WF_OK && options->shards > 1) {
        status = make_index(&m, &index, error);
    }
    status = status != WF_OK ? status : wf_folder_make(options->folder, 0777, error);
    status = status != WF_OK ? status : wf_folder_open(options->folder, &folder_fd, error);
    status = status != WF_OK ? status : write_all(&m, folder_fd, index, error);
    if (folder_fd >= 0) {
        close(folder_fd);
    }
    free(index);
    free(m.config);
    free(m.shard_end);
    free(m.block);
    wf_layout_free(m.layout);
    wf_model_free(m.model);
    if (status == WF_OK) {
        *report_out = m.report;
    }
    return status;
}
