/* dump.c - names and shapes from safetensors headers and from lines. */
#include "tools/layout/dump.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/safetensors.h"
#include "tools/files/io.h"

static enum wf_status add_tensor(struct wf_dump *dump, const char *name, size_t name_len,
                                 const struct wf_dump_tensor *tensor, struct wf_error *error)
{
    if (dump->count == WF_DUMP_TENSORS_MAX) {
        return wf_error_set(error, WF_INVALID, "more than %d tensors", WF_DUMP_TENSORS_MAX);
    }
    if (name_len == 0 || name_len >= WF_NAME_MAX) {
        return wf_error_set(error, WF_INVALID, "a tensor's name has %zu bytes; expected 1 to %d",
                            name_len, WF_NAME_MAX - 1);
    }
    if (dump->count == dump->capacity) {
        uint32_t capacity = dump->capacity == 0 ? 256 : dump->capacity * 2;
        void *grown = realloc(dump->tensors, capacity * sizeof *dump->tensors);
        if (grown == NULL) {
            return wf_error_set(error, WF_NO_MEMORY, "no memory for %" PRIu32 " tensors", capacity);
        }
        dump->tensors = grown;
        dump->capacity = capacity;
    }
    struct wf_dump_tensor *added = &dump->tensors[dump->count];
    *added = *tensor;
    added->name = strndup(name, name_len);
    if (added->name == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a name");
    }
    dump->count++;
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
    uint64_t elements = 1;
    tensor->ndim = 0;
    if (field.len == 1 && *at == '-') {
        return true;
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
        if (at == begin || tensor->ndim == WF_SHAPE_MAX ||
            __builtin_mul_overflow(elements, number, &elements)) {
            return false;
        }
        tensor->shape[tensor->ndim++] = number;
        if (at == end) {
            return true;
        }
        if (*at++ != 'x') {
            return false;
        }
    }
    return false;
}

static enum wf_status parse_line(const char *line, const char *end, unsigned number,
                                 struct wf_dump *dump, struct wf_error *error)
{
    struct field name = next_field(&line, end), dtype = next_field(&line, end),
                 shape = next_field(&line, end);
    struct wf_dump_tensor tensor = {.dtype = wf_dtype_from_torch(dtype.text, dtype.len)};
    if (memchr(name.text, '\0', name.len) != NULL || dtype.len == 0 ||
        !parse_shape(shape, &tensor)) {
        return wf_error_set(error, WF_INVALID,
                            "line %u: expected \"name TAB dtype TAB shape\" with a shape like 4x16 "
                            "of at most %d dimensions",
                            number, WF_SHAPE_MAX);
    }
    enum wf_status status = add_tensor(dump, name.text, name.len, &tensor, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "line %u", number);
    }
    return status;
}

static enum wf_status parse_lines(const char *text, size_t len, struct wf_dump *dump,
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
            status = parse_line(line, end, number, dump, error);
        }
        line = end + 1;
    }
    return status;
}

/* --- safetensors ----------------------------------------------------------------------------- */

static enum wf_status parse_header(const char *header, size_t len, uint64_t data_bytes,
                                   struct wf_dump *dump, struct wf_error *error)
{
    struct wf_safetensors *st = NULL;
    enum wf_status status = wf_st_parse(header, len, data_bytes, &st, error);
    for (uint32_t i = 0; status == WF_OK && i < st->tensor_count; i++) {
        const struct wf_st_tensor *from = &st->tensors[i];
        struct wf_dump_tensor tensor = {.dtype = from->dtype, .ndim = from->ndim};
        if (from->ndim > WF_SHAPE_MAX) {
            status = wf_error_set(error, WF_INVALID,
                                  "%.200s has %" PRIu32 " dimensions; at most %d "
                                  "are possible",
                                  from->name, from->ndim, WF_SHAPE_MAX);
            break;
        }
        memcpy(tensor.shape, from->shape, from->ndim * sizeof tensor.shape[0]);
        status = add_tensor(dump, from->name, strlen(from->name), &tensor, error);
    }
    wf_st_free(st);
    return status;
}

/* A length that is small enough and JSON's first letter: no text begins with that many NULs. */
static bool is_safetensors(const char *text, size_t len)
{
    return len > WF_ST_PREFIX_BYTES && text[5] == '\0' && text[6] == '\0' && text[7] == '\0';
}

enum wf_status wf_dump_parse(const char *text, size_t len, uint64_t file_bytes,
                             struct wf_dump *dump, struct wf_error *error)
{
    uint64_t header = 0;
    if (!is_safetensors(text, len)) {
        return parse_lines(text, len, dump, error);
    }
    enum wf_status status = wf_st_header_bytes((const uint8_t *)text, file_bytes, &header, error);
    if (status == WF_OK && header > len - WF_ST_PREFIX_BYTES) {
        status = wf_error_set(error, WF_INVALID, "the header is cut short");
    }
    return status == WF_OK ? parse_header(text + WF_ST_PREFIX_BYTES, (size_t)header,
                                          file_bytes - WF_ST_PREFIX_BYTES - header, dump, error)
                           : status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct wf_dump_tensor *)a)->name,
                  ((const struct wf_dump_tensor *)b)->name);
}

enum wf_status wf_dump_sort(struct wf_dump *dump, struct wf_error *error)
{
    if (dump->count > 0) {
        qsort(dump->tensors, dump->count, sizeof *dump->tensors, by_name);
    }
    for (uint32_t i = 1; i < dump->count; i++) {
        if (strcmp(dump->tensors[i].name, dump->tensors[i - 1].name) == 0) {
            return wf_error_set(error, WF_INVALID, "tensor %s is there twice",
                                dump->tensors[i].name);
        }
    }
    return WF_OK;
}

/* --- files ----------------------------------------------------------------------------------- */

/* What of the file is needed: all of a text, the header of a safetensors file. */
static enum wf_status needed_bytes(int fd, uint64_t bytes, size_t *len_out, struct wf_error *error)
{
    char prefix[WF_ST_PREFIX_BYTES + 1] = {0};
    uint64_t header = 0;
    *len_out = (size_t)bytes;
    enum wf_status status = WF_OK;
    if (bytes >= sizeof prefix) {
        status = wf_file_pread(fd, prefix, sizeof prefix, 0, error);
        if (status == WF_OK && is_safetensors(prefix, sizeof prefix)) {
            status = wf_st_header_bytes((const uint8_t *)prefix, bytes, &header, error);
            *len_out = (size_t)(WF_ST_PREFIX_BYTES + header);
        }
    }
    if (status == WF_OK && *len_out > WF_DUMP_TEXT_MAX) {
        status = wf_error_set(error, WF_INVALID, "it has %zu bytes to read; at most %d are read",
                              *len_out, WF_DUMP_TEXT_MAX);
    }
    return status;
}

enum wf_status wf_dump_read(const char *path, struct wf_dump *dump, struct wf_error *error)
{
    int fd = -1;
    uint64_t bytes = 0;
    size_t len = 0;
    char *text = NULL;
    enum wf_status status = wf_file_open(AT_FDCWD, path, &fd, &bytes, error);
    if (status != WF_OK) {
        return status; /* its sentence names the file */
    }
    status = needed_bytes(fd, bytes, &len, error);
    if (status == WF_OK) {
        text = malloc(len + 1);
        status = text != NULL ? wf_file_pread(fd, text, len, 0, error)
                              : wf_error_set(error, WF_NO_MEMORY, "no memory for %zu bytes", len);
    }
    if (status == WF_OK) {
        status = wf_dump_parse(text, len, bytes, dump, error);
    }
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", path);
    }
    free(text);
    close(fd);
    return status;
}

void wf_dump_fini(struct wf_dump *dump)
{
    for (uint32_t i = 0; i < dump->count; i++) {
        free(dump->tensors[i].name);
    }
    free(dump->tensors);
    *dump = (struct wf_dump){0};
}
