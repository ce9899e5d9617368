/* dump_rank.c - one rank's tensors from safetensors headers and from lines. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/safetensors.h"
#include "tools/files/dump_private.h"
#include "tools/files/io.h"

bool wf_dump_row_major(struct wf_dump_tensor *tensor)
{
    uint64_t step = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        if (tensor->shape[d] == 0) {
            tensor->elements = 0; /* whatever the others are */
            return true;
        }
    }
    for (uint32_t d = tensor->ndim; d-- > 0;) {
        tensor->strides[d] = (int64_t)step;
        if (__builtin_mul_overflow(step, tensor->shape[d], &step) || step > INT64_MAX) {
            return false;
        }
    }
    tensor->elements = step;
    return true;
}

static enum wf_status make_room(struct wf_dump_rank *rank, struct wf_error *error)
{
    if (rank->count == WF_DUMP_TENSORS_MAX) {
        return wf_error_set(error, WF_INVALID, "more than %d tensors", WF_DUMP_TENSORS_MAX);
    }
    if (rank->count < rank->capacity) {
        return WF_OK;
    }
    uint32_t capacity = rank->capacity == 0 ? 256 : rank->capacity * 2;
    void *grown = realloc(rank->tensors, capacity * sizeof *rank->tensors);
    if (grown == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu32 " tensors", capacity);
    }
    rank->tensors = grown;
    rank->capacity = capacity;
    return WF_OK;
}

enum wf_status wf_dump_add(struct wf_dump_rank *rank, const char *name, size_t name_len,
                           const struct wf_dump_tensor *tensor, struct wf_error *error)
{
    if (name_len == 0 || name_len >= WF_NAME_MAX) {
        return wf_error_set(error, WF_INVALID, "a tensor's name has %zu bytes; expected 1 to %d",
                            name_len, WF_NAME_MAX - 1);
    }
    for (size_t i = 0; i < name_len; i++) {
        unsigned char byte = (unsigned char)name[i];
        if (byte < 0x20 || byte == 0x7f) { /* would rewrite a terminal, or be a line of its own */
            return wf_error_set(
                error, WF_INVALID,
                "tensor \"%.*s\": its name has the control character 0x%02x; expected "
                "a text in one line: is the file damaged?",
                (int)name_len, name, byte);
        }
    }
    enum wf_status status = make_room(rank, error);
    if (status != WF_OK) {
        return status;
    }
    struct wf_dump_tensor *added = &rank->tensors[rank->count];
    *added = *tensor;
    added->name = strndup(name, name_len);
    if (added->name == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a name");
    }
    rank->count++;
    return WF_OK;
}

/* --- lines ----------------------------------------------------------------------------------- */

struct field {
    const char *text;
    size_t len;
};

/* The next field of a line, which ends at a tab or at `end`; *at moves behind the tab. */
static struct field next_field(const char **at, const char *end)
{
    const char *tab = *at < end ? memchr(*at, '\t', (size_t)(end - *at)) : NULL;
    struct field field = {*at, (size_t)((tab != NULL ? tab : end) - *at)};
    *at = tab != NULL ? tab + 1 : end;
    return field;
}

/* "4x16" or "-". */
static bool parse_shape(struct field field, struct wf_dump_tensor *tensor)
{
    const char *at = field.text, *end = field.text + field.len;
    tensor->ndim = 0;
    if (field.len == 1 && *at == '-') {
        return wf_dump_row_major(tensor);
    }
    while (at < end) {
        uint64_t number = 0;
        const char *begin = at;
        for (; at < end && *at >= '0' && *at <= '9'; at++) {
            if (__builtin_mul_overflow(number, 10, &number) ||
                __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number)) {
                return false;
            }
        }
        if (at == begin || tensor->ndim == WF_SHAPE_MAX) {
            return false;
        }
        tensor->shape[tensor->ndim++] = number;
        if (at == end) {
            return wf_dump_row_major(tensor);
        }
        if (*at++ != 'x') {
            return false;
        }
    }
    return false;
}

static enum wf_status parse_line(const char *line, const char *end, unsigned number,
                                 struct wf_dump_rank *rank, struct wf_error *error)
{
    struct field name = next_field(&line, end), dtype = next_field(&line, end),
                 shape = next_field(&line, end);
    struct wf_dump_tensor tensor = {.dtype = wf_dtype_from_torch(dtype.text, dtype.len),
                                    .file = WF_NONE};
    if (memchr(name.text, '\0', name.len) != NULL || dtype.len == 0 ||
        !parse_shape(shape, &tensor)) {
        return wf_error_set(
            error, WF_INVALID,
            "line %u: neither a safetensors file nor a torch .pt archive, and as lines "
            "expected \"name TAB dtype TAB shape\" with a shape like 4x16 of at most "
            "%d dimensions",
            number, WF_SHAPE_MAX);
    }
    enum wf_status status = wf_dump_add(rank, name.text, name.len, &tensor, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "line %u", number);
    }
    return status;
}

static enum wf_status parse_lines(const char *text, size_t len, struct wf_dump_rank *rank,
                                  struct wf_error *error)
{
    const char *all_end = text + len;
    unsigned number = 0;
    enum wf_status status = WF_OK;
    for (const char *line = text; line < all_end && status == WF_OK;) {
        const char *newline = memchr(line, '\n', (size_t)(all_end - line));
        const char *end = newline != NULL ? newline : all_end;
        number++;
        bool alias = end - line > 6 && memcmp(line, "alias\t", 6) == 0;
        if (end > line && *line != '#' && !alias) {
            status = parse_line(line, end, number, rank, error);
        }
        line = end + 1;
    }
    return status;
}

/* --- safetensors ----------------------------------------------------------------------------- */

/* `file` of the rank, or WF_NONE where only names and shapes count. */
static enum wf_status parse_header(const char *header, size_t len, uint64_t file_bytes,
                                   uint32_t file, struct wf_dump_rank *rank, struct wf_error *error)
{
    struct wf_safetensors *st = NULL;
    uint64_t data_offset = WF_ST_PREFIX_BYTES + len;
    enum wf_status status = wf_st_parse(header, len, file_bytes - data_offset, &st, error);
    for (uint32_t i = 0; status == WF_OK && i < st->tensor_count; i++) {
        const struct wf_st_tensor *from = &st->tensors[i];
        struct wf_dump_tensor tensor = {.dtype = from->dtype,
                                        .ndim = from->ndim,
                                        .file = file,
                                        .offset = data_offset + from->begin};
        if (from->ndim > WF_SHAPE_MAX) {
            status = wf_error_set(error, WF_INVALID,
                                  "%.200s has %" PRIu32 " dimensions; at most %d "
                                  "are possible",
                                  from->name, from->ndim, WF_SHAPE_MAX);
            break;
        }
        memcpy(tensor.shape, from->shape, from->ndim * sizeof tensor.shape[0]);
        status = wf_dump_row_major(&tensor)
                     ? wf_dump_add(rank, from->name, strlen(from->name), &tensor, error)
                     : wf_error_set(error, WF_INVALID, "%.200s: its shape overflows", from->name);
    }
    wf_st_free(st);
    return status;
}

/* A length that is small enough and JSON's first letter: no text begins with that many NULs. */
static bool is_safetensors(const char *text, size_t len)
{
    return len > WF_ST_PREFIX_BYTES && text[5] == '\0' && text[6] == '\0' && text[7] == '\0';
}

static enum wf_status parse(const char *text, size_t len, uint64_t file_bytes, uint32_t file,
                            struct wf_dump_rank *rank, struct wf_error *error)
{
    uint64_t header = 0;
    if (!is_safetensors(text, len)) {
        return parse_lines(text, len, rank, error);
    }
    enum wf_status status = wf_st_header_bytes((const uint8_t *)text, file_bytes, &header, error);
    if (status == WF_OK && header > len - WF_ST_PREFIX_BYTES) {
        status = wf_error_set(error, WF_INVALID, "the header is cut short");
    }
    return status == WF_OK ? parse_header(text + WF_ST_PREFIX_BYTES, (size_t)header, file_bytes,
                                          file, rank, error)
                           : status;
}

enum wf_status wf_dump_rank_parse(struct wf_dump_rank *rank, const char *text, size_t len,
                                  uint64_t file_bytes, struct wf_error *error)
{
    return parse(text, len, file_bytes, WF_NONE, rank, error);
}

/* --- by name --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct wf_dump_tensor *)a)->name,
                  ((const struct wf_dump_tensor *)b)->name);
}

enum wf_status wf_dump_rank_sort(struct wf_dump_rank *rank, struct wf_error *error)
{
    if (rank->count > 0) {
        qsort(rank->tensors, rank->count, sizeof *rank->tensors, by_name);
    }
    for (uint32_t i = 1; i < rank->count; i++) {
        if (strcmp(rank->tensors[i].name, rank->tensors[i - 1].name) == 0) {
            return wf_error_set(error, WF_INVALID, "tensor %s is there twice",
                                rank->tensors[i].name);
        }
    }
    return WF_OK;
}

static int name_is(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct wf_dump_tensor *)tensor)->name);
}

const struct wf_dump_tensor *wf_dump_rank_find(const struct wf_dump_rank *rank, const char *name)
{
    return rank->count > 0
               ? bsearch(name, rank->tensors, rank->count, sizeof *rank->tensors, name_is)
               : NULL;
}

/* --- files ----------------------------------------------------------------------------------- */

/* Opens the file behind the rank's last one. */
static enum wf_status open_file(struct wf_dump_rank *rank, const char *path, struct wf_error *error)
{
    if (rank->file_count == WF_DUMP_FILES_MAX) {
        return wf_error_set(error, WF_INVALID, "more than %d files", WF_DUMP_FILES_MAX);
    }
    void *grown = realloc(rank->files, (rank->file_count + 1) * sizeof *rank->files);
    if (grown != NULL) {
        rank->files = grown;
    }
    struct wf_dump_file file = {.path = strdup(path), .fd = -1};
    enum wf_status status =
        grown != NULL && file.path != NULL
            ? wf_file_open(AT_FDCWD, path, &file.fd, &file.bytes, error)
            : wf_error_set(error, WF_NO_MEMORY, "no memory for %u files", rank->file_count + 1);
    if (status != WF_OK) {
        free(file.path);
        return status;
    }
    rank->files[rank->file_count++] = file;
    return WF_OK;
}

/* What of the file is needed: all of a text, the header of a safetensors file. */
static enum wf_status needed_bytes(const struct wf_dump_file *file, const char *first,
                                   size_t first_len, size_t *len_out, struct wf_error *error)
{
    uint64_t header = 0, len = file->bytes;
    if (is_safetensors(first, first_len)) {
        enum wf_status status =
            wf_st_header_bytes((const uint8_t *)first, file->bytes, &header, error);
        if (status != WF_OK) {
            return status;
        }
        len = WF_ST_PREFIX_BYTES + header;
    }
    if (len > WF_DUMP_TEXT_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "it has %" PRIu64 " bytes to read; at most %d are read", len,
                            WF_DUMP_TEXT_MAX);
    }
    *len_out = (size_t)len;
    return WF_OK;
}

static enum wf_status read_names(struct wf_dump_rank *rank, const struct wf_dump_file *file,
                                 const char *first, size_t first_len, struct wf_error *error)
{
    size_t len = 0;
    enum wf_status status = needed_bytes(file, first, first_len, &len, error);
    if (status != WF_OK) {
        return status;
    }
    char *text = malloc(len + 1);
    if (text == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %zu bytes", len);
    }
    status = wf_file_pread(file->fd, text, len, 0, error);
    if (status == WF_OK) {
        status = parse(text, len, file->bytes, rank->file_count - 1, rank, error);
    }
    free(text);
    return status;
}

/* PROTO, a version, and not yet a text. */
static bool is_pickle(const char *first, size_t len)
{
    return len >= 2 && (uint8_t)first[0] == 0x80 && first[1] >= 2 && first[1] <= 5;
}

static enum wf_status read_at(void *fd, void *buffer, size_t len, uint64_t offset,
                              struct wf_error *error)
{
    return wf_file_pread(*(int *)fd, buffer, len, offset, error);
}

enum wf_status wf_dump_rank_add(struct wf_dump_rank *rank, const char *path,
                                const struct wf_dump_options *options, struct wf_error *error)
{
    char first[WF_ST_PREFIX_BYTES + 1] = {0};
    enum wf_status status = open_file(rank, path, error);
    if (status != WF_OK) {
        return status; /* its sentence names the file */
    }
    struct wf_dump_file *file = &rank->files[rank->file_count - 1];
    if (file->bytes == 0) { /* one without tensors has a header all the same */
        return wf_error_set(error, WF_INVALID,
                            "%s: expected the tensors of a rank, found an empty file; write it "
                            "again",
                            path);
    }
    size_t first_len = file->bytes < sizeof first ? (size_t)file->bytes : sizeof first;
    status = wf_file_pread(file->fd, first, first_len, 0, error);
    if (status == WF_OK && wf_dump_is_torch(first, first_len)) {
        const struct wf_zip_source source = {read_at, &file->fd, file->bytes};
        status = wf_dump_add_torch(rank, &source, rank->file_count - 1, options, error);
    } else if (status == WF_OK && is_pickle(first, first_len)) {
        status =
            wf_error_set(error, WF_UNSUPPORTED,
                         "a bare pickle, as torch before 1.6 wrote; save it again with a newer "
                         "torch (torch.save(torch.load(...)))");
    } else if (status == WF_OK) {
        status = read_names(rank, file, first, first_len, error);
    }
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", path);
    }
    return status;
}

void wf_dump_rank_fini(struct wf_dump_rank *rank)
{
    for (uint32_t i = 0; i < rank->count; i++) {
        free(rank->tensors[i].name);
    }
    for (uint32_t i = 0; i < rank->file_count; i++) {
        free(rank->files[i].path);
        if (rank->files[i].fd >= 0) {
            close(rank->files[i].fd);
        }
    }
    free(rank->tensors);
    free(rank->files);
    *rank = (struct wf_dump_rank){0};
}
