/* checkpoint.c - matches a Hugging Face folder with a model, and reads parameters from it. */
#include "tools/files/checkpoint.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/families/family.h"
#include "models/layout.h"
#include "tools/files/hf_folder.h"
#include "tools/files/io.h"
#include "tools/files/stored.h"

enum { COMPARE_BYTES = 1 << 20 }; /* read at a time when two tensors are compared */

/* What is done with a tensor that is no parameter. */
enum extra_kind { EXTRA_SKIPPED, EXTRA_UNKNOWN, EXTRA_KINDS };

struct matcher {
    const struct wf_model *model;
    const struct wf_checkpoint_options *options;
    const struct wf_hf_folder *folder;
    struct wf_checkpoint *checkpoint;
    bool *found; /* one for each parameter */
    uint32_t notes[EXTRA_KINDS];
    const char *first_extra; /* a name that is no parameter, for the hint about prefixes */
};

static void note(struct matcher *m, enum extra_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void note(struct matcher *m, enum extra_kind kind, const char *format, ...)
{
    if (m->notes[kind]++ < WF_CHECKPOINT_NOTES_MAX && m->options->note != NULL) {
        char text[WF_ERROR_TEXT_MAX];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        m->options->note(m->options->user, text);
    }
}

static void note_rest(struct matcher *m)
{
    static const char *const kinds[EXTRA_KINDS] = {"skipped", "unknown"};
    for (int kind = 0; kind < EXTRA_KINDS; kind++) {
        uint32_t total = m->notes[kind];
        if (total > WF_CHECKPOINT_NOTES_MAX) {
            m->notes[kind] = 0;
            note(m, kind, "and %u more tensors %s", total - WF_CHECKPOINT_NOTES_MAX, kinds[kind]);
        }
    }
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* A tensor's shape and type against what the model says of it. */
static enum wf_status match_tensor(struct matcher *m, uint32_t file,
                                   const struct wf_st_tensor *tensor, uint32_t ndim,
                                   const uint64_t *shape, enum wf_dtype dtype,
                                   struct wf_error *error)
{
    const char *file_name = m->folder->files[file].name;
    if (tensor->ndim != ndim || memcmp(tensor->shape, shape, ndim * sizeof *shape) != 0) {
        char found[WF_SHAPE_TEXT], expected[WF_SHAPE_TEXT];
        wf_shape_format(tensor->ndim, tensor->shape, found);
        wf_shape_format(ndim, shape, expected);
        return wf_error_set(error, WF_MISMATCH,
                            "%s: tensor \"%.200s\" has shape %s, the config says %s; config.json "
                            "and weights are not of one model",
                            file_name, tensor->name, found, expected);
    }
    if (tensor->dtype == WF_DTYPE_NONE || (dtype != WF_DTYPE_NONE && tensor->dtype != dtype)) {
        return wf_error_set(error, WF_MISMATCH,
                            "%s: tensor \"%.200s\" is %s, the config says %s; convert the weights "
                            "or correct torch_dtype in config.json",
                            file_name, tensor->name, tensor->dtype_name,
                            wf_dtype_safetensors(dtype));
    }
    if (!wf_hf_folder_lists(m->folder, tensor->name)) {
        return wf_error_set(error, WF_MISMATCH,
                            "%s holds \"%.200s\", which the index does not list; the index is "
                            "stale",
                            file_name, tensor->name);
    }
    return WF_OK;
}

/* A type that the family fixes (a correction in f32) is the engines' and trainers' wish: files may
 * hold another that converts into it. */
static enum wf_dtype expected_dtype(const struct matcher *m, const struct wf_param *param,
                                    enum wf_dtype found)
{
    bool own = param->dtype != m->model->dtype;
    return own && wf_dtype_castable(found, param->dtype) ? found : param->dtype;
}

static enum wf_status found_twice(const struct matcher *m, uint32_t file, const char *tensor,
                                  uint32_t index, struct wf_error *error)
{
    return wf_error_set(error, WF_MISMATCH,
                        "%s: \"%.200s\" holds %s, which another tensor holds too; leave one out",
                        m->folder->files[file].name, tensor, m->model->params[index].name);
}

static enum wf_status match_param(struct matcher *m, uint32_t file, uint32_t index,
                                  const struct wf_st_tensor *tensor, struct wf_error *error)
{
    const struct wf_param *param = &m->model->params[index];
    enum wf_status status = match_tensor(m, file, tensor, param->ndim, param->shape,
                                         expected_dtype(m, param, tensor->dtype), error);
    if (status == WF_OK && m->found[index]) {
        status = found_twice(m, file, tensor->name, index, error);
    }
    if (status != WF_OK) {
        return status;
    }
    m->found[index] = true;
    m->checkpoint->entries[index] = (struct wf_checkpoint_entry){
        .file = file,
        .dtype = tensor->dtype,
        .offset = m->folder->files[file].data_offset + tensor->begin,
        .elements = tensor->elements,
        .piece = UINT32_MAX,
        .codes = UINT32_MAX,
    };
    return WF_OK;
}

/* Several parameters inside one tensor. */
static enum wf_status match_stored(struct matcher *m, uint32_t file, uint32_t stored,
                                   const struct wf_st_tensor *tensor, struct wf_error *error)
{
    const struct wf_layout *layout = m->checkpoint->stored;
    const struct wf_tensor *wanted = &layout->tensors[stored];
    enum wf_status status =
        match_tensor(m, file, tensor, wanted->ndim, wanted->shape, wanted->dtype, error);
    uint32_t first = 0, end = 0;
    wf_layout_pieces(layout, stored, &first, &end);
    for (uint32_t i = first; i < end && status == WF_OK; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        bool run = piece->form == 0;
        if (m->found[piece->param]) {
            return found_twice(m, file, tensor->name, piece->param, error);
        }
        m->found[piece->param] = true;
        m->checkpoint->entries[piece->param] = (struct wf_checkpoint_entry){
            .file = file,
            .dtype = tensor->dtype,
            .offset = m->folder->files[file].data_offset + tensor->begin +
                      (run ? piece->tensor_offset : 0),
            .elements = m->model->params[piece->param].elements,
            .piece = run ? UINT32_MAX : i,
            .codes = UINT32_MAX,
        };
    }
    return status;
}

/* Names that only quantised or packed checkpoints have: their weights are not what they look like.
 */
static bool is_scale(const char *name)
{
    static const char *const ends[] = {
        "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_packed",
        "weight_shape", ".qweight",         ".qzeros",        ".scales",
        ".g_idx",       ".input_scale",     ".k_scale",       ".v_scale",
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (ends_with(name, ends[i])) {
            return true;
        }
    }
    return false;
}

/* True if it is "STEM.bias" and "STEM.weight" is a parameter. */
static bool is_bias_of_param(const struct wf_model *model, const char *name)
{
    char weight[WF_NAME_MAX + 8];
    size_t stem = strlen(name) - strlen("bias");
    if (!ends_with(name, ".bias") || stem >= WF_NAME_MAX) {
        return false;
    }
    int len = snprintf(weight, sizeof weight, "%.*sweight", (int)stem, name);
    return wf_model_find(model, weight, (size_t)len) != UINT32_MAX;
}

/* The head's name in the files, "" if the family has none. */
static const char *head_name(const struct wf_model *model)
{
    uint32_t row = wf_family_find_row(model->family, WF_NONE, "head", strlen("head"));
    return row == WF_NONE ? "" : model->family->rows[row].name;
}

static enum wf_status match_extra(struct matcher *m, uint32_t file,
                                  const struct wf_st_tensor *tensor, struct wf_error *error)
{
    const char *file_name = m->folder->files[file].name;
    if (tensor->elements == 0) {
        note(m, EXTRA_SKIPPED, "%s: \"%.100s\" has no elements: skipped", file_name, tensor->name);
        return WF_OK;
    }
    if (ends_with(tensor->name, "rotary_emb.inv_freq")) {
        note(m, EXTRA_SKIPPED, "%s: \"%.100s\" follows from the config: skipped", file_name,
             tensor->name);
        return WF_OK;
    }
    if (m->model->tied && strcmp(tensor->name, head_name(m->model)) == 0) {
        return WF_OK; /* compared once all places are known */
    }
    if (is_scale(tensor->name)) {
        return wf_error_set(
            error, WF_UNSUPPORTED,
            "%s: tensor \"%.100s\" belongs to quantised weights, which this version "
            "does not read; use the unquantised checkpoint",
            file_name, tensor->name);
    }
    if (is_bias_of_param(m->model, tensor->name)) {
        return wf_error_set(error, WF_MISMATCH,
                            "%s: there is a bias \"%.100s\" that the config does not speak of; "
                            "leaving it out would be another model: correct config.json",
                            file_name, tensor->name);
    }
    m->first_extra = m->first_extra != NULL ? m->first_extra : tensor->name;
    if (m->options->extras_refuse) {
        return wf_error_set(error, WF_REFUSED,
                            "%s: tensor \"%.100s\" is no parameter of the model that config.json "
                            "describes (extras: refuse)",
                            file_name, tensor->name);
    }
    note(m, EXTRA_UNKNOWN, "%s: \"%.100s\" is no parameter of the model: not used", file_name,
         tensor->name);
    return WF_OK;
}

/* A tensor whose name is no parameter's. */
static enum wf_status match_other(struct matcher *m, uint32_t file,
                                  const struct wf_st_tensor *tensor, struct wf_error *error)
{
    if (m->checkpoint->stored == NULL) {
        enum wf_status status = wf_stored_layout(m->model, &m->checkpoint->stored, error);
        if (status != WF_OK) {
            return status;
        }
    }
    uint32_t stored = wf_layout_find(m->checkpoint->stored, tensor->name, strlen(tensor->name));
    return stored != UINT32_MAX ? match_stored(m, file, stored, tensor, error)
                                : match_extra(m, file, tensor, error);
}

static enum wf_status match_all(struct matcher *m, struct wf_error *error)
{
    for (uint32_t f = 0; f < m->folder->file_count; f++) {
        const struct wf_safetensors *header = m->folder->files[f].header;
        for (uint32_t t = 0; t < header->tensor_count; t++) {
            const struct wf_st_tensor *tensor = &header->tensors[t];
            uint32_t index = wf_model_find(m->model, tensor->name, strlen(tensor->name));
            enum wf_status status = index != UINT32_MAX ? match_param(m, f, index, tensor, error)
                                                        : match_other(m, f, tensor, error);
            if (status != WF_OK) {
                return status;
            }
        }
    }
    return WF_OK;
}

/* Says which parameters are missing and, where it can be seen, why. */
static enum wf_status check_missing(struct matcher *m, struct wf_error *error)
{
    uint32_t missing = 0, first = 0;
    for (uint32_t i = m->model->param_count; i-- > 0;) {
        if (!m->found[i]) {
            missing++;
            first = i;
        }
    }
    if (missing == 0) {
        return WF_OK;
    }
    char hint[256] = "";
    const char *name = m->model->params[first].name;
    if (strcmp(name, head_name(m->model)) == 0) {
        snprintf(hint, sizeof hint,
                 "; config.json says that the head is not tied "
                 "(tie_word_embeddings)");
    } else if (missing == m->model->param_count && m->first_extra != NULL) {
        snprintf(hint, sizeof hint,
                 "; the files have \"%.100s\": another model, or a prefix that a "
                 "wrapper added or took away",
                 m->first_extra);
    }
    return wf_error_set(error, WF_NOT_FOUND, "tensor \"%s\" is missing (%u of %u are)%s", name,
                        missing, m->model->param_count, hint);
}

static enum wf_status compare_bytes(int a_fd, uint64_t a, int b_fd, uint64_t b, uint64_t bytes,
                                    bool *equal_out, struct wf_error *error)
{
    uint8_t *buffers = malloc(2 * COMPARE_BYTES);
    if (buffers == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory to compare two tensors");
    }
    enum wf_status status = WF_OK;
    bool equal = true;
    for (uint64_t at = 0; equal && at < bytes; at += COMPARE_BYTES) {
        size_t part = bytes - at < COMPARE_BYTES ? (size_t)(bytes - at) : COMPARE_BYTES;
        status = wf_file_pread(a_fd, buffers, part, a + at, error);
        if (status == WF_OK) {
            status = wf_file_pread(b_fd, buffers + COMPARE_BYTES, part, b + at, error);
        }
        if (status != WF_OK) {
            break;
        }
        equal = memcmp(buffers, buffers + COMPARE_BYTES, part) == 0;
    }
    free(buffers);
    if (status == WF_OK) {
        *equal_out = equal;
    }
    return status;
}

/* The duplicate of a tied head must hold the embedding's very bytes. */
static enum wf_status check_head(struct matcher *m, const struct wf_hf_file *file,
                                 const struct wf_st_tensor *head, struct wf_error *error)
{
    uint32_t row = wf_family_find_row(m->model->family, WF_NONE, "embedding", strlen("embedding"));
    uint32_t index = wf_model_param(m->model, WF_NONE, WF_NONE, row, 0);
    if (index == UINT32_MAX) {
        return WF_OK;
    }
    const struct wf_checkpoint_entry *entry = &m->checkpoint->entries[index];
    uint64_t bytes = entry->elements * wf_dtype_bytes(entry->dtype);
    bool equal = head->dtype == entry->dtype && head->end - head->begin == bytes;
    if (equal) {
        enum wf_status status =
            compare_bytes(m->folder->files[entry->file].fd, entry->offset, file->fd,
                          file->data_offset + head->begin, bytes, &equal, error);
        if (status != WF_OK) {
            return status;
        }
    }
    if (!equal) {
        return wf_error_set(error, WF_MISMATCH,
                            "%s: config.json says that the head is tied, but %s differs from the "
                            "embedding; correct tie_word_embeddings",
                            file->name, head->name);
    }
    note(m, EXTRA_SKIPPED, "%s: %s equals the embedding it is tied to: skipped", file->name,
         head->name);
    return WF_OK;
}

static enum wf_status check_heads(struct matcher *m, struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (uint32_t f = 0; m->model->tied && status == WF_OK && f < m->folder->file_count; f++) {
        const struct wf_hf_file *file = &m->folder->files[f];
        const struct wf_st_tensor *head = wf_st_find(file->header, head_name(m->model));
        if (head != NULL && head->elements != 0) {
            status = check_head(m, file, head, error);
        }
    }
    return status;
}

/* Takes the descriptors and names over from the folder. */
static enum wf_status take_files(struct wf_checkpoint *checkpoint, struct wf_hf_folder *folder,
                                 struct wf_error *error)
{
    checkpoint->files = calloc(folder->file_count, sizeof *checkpoint->files);
    if (checkpoint->files == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u files", folder->file_count);
    }
    checkpoint->file_count = folder->file_count;
    for (uint32_t i = 0; i < folder->file_count; i++) {
        struct wf_hf_file *file = &folder->files[i];
        checkpoint->files[i] =
            (struct wf_checkpoint_file){.name = file->name, .fd = file->fd, .bytes = file->bytes};
        file->name = NULL;
        file->fd = -1;
    }
    return WF_OK;
}

static enum wf_status match(struct wf_checkpoint *checkpoint, const struct wf_model *model,
                            const struct wf_checkpoint_options *options,
                            const struct wf_hf_folder *folder, struct wf_error *error)
{
    struct matcher m = {.model = model,
                        .options = options,
                        .folder = folder,
                        .checkpoint = checkpoint,
                        .found = calloc(model->param_count + 1, sizeof *m.found)};
    checkpoint->entries = calloc(model->param_count + 1, sizeof *checkpoint->entries);
    checkpoint->entry_count = model->param_count;
    if (m.found == NULL || checkpoint->entries == NULL) {
        free(m.found);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u parameters", model->param_count);
    }
    enum wf_status status = match_all(&m, error);
    if (status == WF_OK) {
        status = check_missing(&m, error);
    }
    if (status == WF_OK) {
        status = check_heads(&m, error);
    }
    if (status == WF_OK) {
        note_rest(&m);
    }
    free(m.found);
    return status;
}

enum wf_status wf_checkpoint_open(const char *path, const struct wf_model *model,
                                  const struct wf_checkpoint_options *options,
                                  struct wf_checkpoint **out, struct wf_error *error)
{
    struct wf_hf_folder folder;
    struct wf_checkpoint *checkpoint = NULL;
    enum wf_status status = wf_hf_folder_open(path, options->note, options->user, &folder, error);
    if (status != WF_OK) {
        goto close_folder;
    }
    checkpoint = calloc(1, sizeof *checkpoint);
    if (checkpoint == NULL || (checkpoint->folder = strdup(path)) == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for a checkpoint");
        goto close_folder;
    }
    status = match(checkpoint, model, options, &folder, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", path);
        goto close_folder;
    }
    status = take_files(checkpoint, &folder, error);
    if (status == WF_OK) {
        *out = checkpoint;
        checkpoint = NULL;
    }
close_folder:
    wf_checkpoint_free(checkpoint);
    wf_hf_folder_close(&folder);
    return status;
}

void wf_checkpoint_free(struct wf_checkpoint *checkpoint)
{
    if (checkpoint == NULL) {
        return;
    }
    for (uint32_t i = 0; i < checkpoint->file_count; i++) {
        close(checkpoint->files[i].fd);
        free(checkpoint->files[i].name);
    }
    free(checkpoint->files);
    wf_layout_free(checkpoint->stored);
    free(checkpoint->entries);
    free(checkpoint->codes);
    free(checkpoint->folder);
    free(checkpoint);
}

enum wf_status wf_checkpoint_model(const char *path, const struct wf_family *const *families,
                                   struct wf_model **model_out, struct wf_error *error)
{
    char *text;
    size_t len;
    enum wf_status status = wf_hf_config_read(path, &text, &len, error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_model_parse(text, len, families, model_out, error);
    free(text);
    if (status != WF_OK) {
        wf_error_prefix(error, "the config of %s", path);
    }
    return status;
}
