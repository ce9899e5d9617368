/* dump_torch.c - a rank's tensors from a torch.save archive: ROOT/data.pkl says which,
 * ROOT/data/KEY are their storages. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/files/dump_private.h"
#include "tools/files/torch_pickle.h"

#define PICKLE "/data.pkl"
#define STORAGE "/data/"
#define ORDER_OF_BYTES "/byteorder"

struct adding {
    struct wf_dump_rank *rank;
    const struct wf_zip_source *source;
    const struct wf_zip *zip;
    const char *root; /* root_len bytes */
    size_t root_len;
    uint32_t file;
    const struct wf_dump_options *options;
    uint32_t notes;
};

bool wf_dump_is_torch(const char *first, size_t len)
{
    return len >= 4 && memcmp(first, "PK\3\4", 4) == 0;
}

/* ROOT`middle``end` */
static const struct wf_zip_entry *find_entry(const struct adding *a, const char *middle,
                                             const char *end, size_t end_len)
{
    char name[WF_ZIP_NAME_MAX];
    size_t middle_len = strlen(middle);
    if (a->root_len + middle_len + end_len > sizeof name) {
        return NULL;
    }
    memcpy(name, a->root, a->root_len);
    memcpy(name + a->root_len, middle, middle_len);
    memcpy(name + a->root_len + middle_len, end, end_len);
    return wf_zip_find(a->zip, name, a->root_len + middle_len + end_len);
}

/* --- tensors --------------------------------------------------------------------------------- */

static enum wf_status add_tensor(void *user, const char *name, size_t name_len,
                                 const struct wf_pickle_tensor *from, struct wf_error *error)
{
    struct adding *a = user;
    struct wf_dump_tensor tensor = {
        .dtype = from->dtype, .ndim = from->ndim, .elements = from->elements, .file = a->file};
    const struct wf_zip_entry *entry = find_entry(a, STORAGE, from->key, from->key_len);
    uint64_t data = 0;
    if (entry == NULL) {
        return wf_error_set(error, WF_INVALID, "%s: its storage %.*s is not in the archive", name,
                            from->key_len < 40 ? (int)from->key_len : 40, from->key);
    }
    if (entry->bytes != from->storage_bytes && from->dtype != WF_DTYPE_NONE) {
        return wf_error_set(error, WF_INVALID,
                            "%s: its storage has %" PRIu64
                            " bytes in the archive; expected %" PRIu64,
                            name, entry->bytes, from->storage_bytes);
    }
    enum wf_status status = wf_zip_data(a->source, entry, &data, error);
    if (status != WF_OK) {
        return status;
    }
    tensor.offset = data + from->offset;
    memcpy(tensor.shape, from->shape, sizeof tensor.shape);
    memcpy(tensor.strides, from->strides, sizeof tensor.strides);
    return wf_dump_add(a->rank, name, name_len, &tensor, error);
}

static void add_note(void *user, const char *sentence)
{
    struct adding *a = user;
    if (a->options != NULL && a->options->note != NULL && a->notes < WF_DUMP_NOTES_MAX) {
        a->options->note(a->options->user, sentence);
    }
    a->notes++;
}

/* --- the archive ----------------------------------------------------------------------------- */

/* The one folder that holds everything, by its data.pkl. */
static enum wf_status find_root(struct adding *a, const struct wf_zip_entry **pickle_out,
                                struct wf_error *error)
{
    const size_t end = strlen(PICKLE);
    uint32_t found = 0;
    for (uint32_t i = 0; i < a->zip->count; i++) {
        const struct wf_zip_entry *entry = &a->zip->entries[i];
        const char *slash = memchr(entry->name, '/', entry->name_len);
        if (slash != NULL && slash > entry->name &&
            entry->name_len - (size_t)(slash - entry->name) == end &&
            memcmp(slash, PICKLE, end) == 0) {
            found++;
            *pickle_out = entry;
            a->root = entry->name;
            a->root_len = entry->name_len - end;
        }
    }
    return found == 1 ? WF_OK
                      : wf_error_set(error, WF_INVALID,
                                     "a zip archive with %" PRIu32 " data.pkl; torch.save writes "
                                     "one",
                                     found);
}

static enum wf_status read_entry(const struct adding *a, const struct wf_zip_entry *entry,
                                 uint64_t most, uint8_t **bytes_out, struct wf_error *error)
{
    uint64_t data = 0;
    if (entry->bytes > most) {
        return wf_error_set(error, WF_INVALID,
                            "%.*s has %" PRIu64 " bytes; at most %" PRIu64 " are read",
                            (int)entry->name_len, entry->name, entry->bytes, most);
    }
    enum wf_status status = wf_zip_data(a->source, entry, &data, error);
    uint8_t *bytes = status == WF_OK ? malloc((size_t)entry->bytes + 1) : NULL;
    if (status == WF_OK && bytes == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu64 " bytes", entry->bytes);
    }
    if (status == WF_OK) {
        status = a->source->read(a->source->user, bytes, (size_t)entry->bytes, data, error);
    }
    if (status != WF_OK) {
        free(bytes);
        return status;
    }
    *bytes_out = bytes;
    return WF_OK;
}

/* Absent in files of torch before 2.1, which wrote only on little-endian machines. */
static enum wf_status check_byte_order(const struct adding *a, struct wf_error *error)
{
    enum { WORD_MAX = 16 };
    const struct wf_zip_entry *entry = find_entry(a, ORDER_OF_BYTES, "", 0);
    uint8_t *word = NULL;
    if (entry == NULL) {
        return WF_OK;
    }
    enum wf_status status = read_entry(a, entry, WORD_MAX, &word, error);
    if (status == WF_OK && (entry->bytes != 6 || memcmp(word, "little", 6) != 0)) {
        status = wf_error_set(error, WF_UNSUPPORTED,
                              "its bytes are in the order \"%.*s\"; expected little",
                              (int)entry->bytes, (char *)word);
    }
    free(word);
    return status;
}

static enum wf_status add_tensors(struct adding *a, struct wf_error *error)
{
    const struct wf_zip_entry *pickle = NULL;
    const struct wf_pickle_sink sink = {add_tensor, add_note, a};
    uint8_t *bytes = NULL;
    enum wf_status status = find_root(a, &pickle, error);
    status = status == WF_OK ? check_byte_order(a, error) : status;
    status = status == WF_OK ? read_entry(a, pickle, WF_PICKLE_BYTES_MAX, &bytes, error) : status;
    status = status == WF_OK ? wf_pickle_read(bytes, (size_t)pickle->bytes, &sink, error) : status;
    free(bytes);
    if (status == WF_OK && a->notes > WF_DUMP_NOTES_MAX && a->options != NULL &&
        a->options->note != NULL) {
        char sentence[64];
        snprintf(sentence, sizeof sentence, "and %" PRIu32 " more are passed over",
                 a->notes - WF_DUMP_NOTES_MAX);
        a->options->note(a->options->user, sentence);
    }
    return status;
}

enum wf_status wf_dump_add_torch(struct wf_dump_rank *rank, const struct wf_zip_source *source,
                                 uint32_t file, const struct wf_dump_options *options,
                                 struct wf_error *error)
{
    struct wf_zip zip = {0};
    struct adding adding = {
        .rank = rank, .source = source, .zip = &zip, .file = file, .options = options};
    enum wf_status status = wf_zip_open(source, &zip, error);
    status = status == WF_OK ? add_tensors(&adding, error) : status;
    wf_zip_fini(&zip);
    return status;
}
