/* safetensors.h - the header of a safetensors file: checked on the way in, written on the way out.
 *
 * A file is 8 bytes (length of the header, little-endian), the header (a JSON object, padded with
 * white space), and the data. The header gives each tensor {dtype, shape, data_offsets [begin,
 * end)} relative to the data, and may hold "__metadata__", strings by name.
 *
 * What is accepted is what the reference implementation accepts (huggingface/safetensors,
 * safetensors/src/tensor.rs): any order of tensors, scalars (shape []), tensors without elements,
 * white space before and after the object, unknown keys of a tensor; and refused what it refuses: a
 * header over 100,000,000 bytes or beyond the file, invalid UTF-8 or JSON, a shape whose product
 * overflows, a byte range that is not shape times dtype, ranges that overlap or leave a hole, and
 * data that no tensor describes. In addition a name that occurs twice is refused, as the format's
 * text demands, because two readers would take two different tensors, and a name with a NUL in it,
 * which C readers cut short.
 *
 * Pure: works on memory; who reads and writes files is tools/files. Any thread.
 */
#ifndef WEFT_MODELS_SAFETENSORS_H
#define WEFT_MODELS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "models/dtype.h"
#include "runtime/status.h"

enum {
    WF_ST_PREFIX_BYTES = 8,
    WF_ST_HEADER_MAX = 100000000, /* bytes; the reference's limit */
    WF_ST_DTYPE_NAME_MAX = 12,    /* bytes of the longest dtype name and its NUL */
};

struct wf_st_tensor {
    const char *name;    /* holds no NUL: such names are refused */
    enum wf_dtype dtype; /* NONE for a dtype that the format knows and this build does not */
    char dtype_name[WF_ST_DTYPE_NAME_MAX]; /* as the file writes it: "BF16" */
    uint32_t ndim;
    const uint64_t *shape;
    uint64_t elements;
    uint64_t begin, end; /* bytes, relative to the data */
};

struct wf_safetensors {
    struct wf_st_tensor *tensors; /* in the order of their data */
    uint32_t tensor_count;
    uint64_t data_bytes;
    uint32_t *by_name; /* private */
    void *json;        /* private: the parsed header, which holds the names */
    uint64_t *shapes;  /* private */
};

/* The header's length from the file's first 8 bytes; `file_bytes` is the size of the whole file. */
enum wf_status wf_st_header_bytes(const uint8_t prefix[WF_ST_PREFIX_BYTES], uint64_t file_bytes,
                                  uint64_t *header_bytes_out, struct wf_error *error);

/* Parses a header (without the 8 bytes) of a file with `data_bytes` bytes of data. `header` may be
 * freed afterwards. Gives *out; free with wf_st_free. */
enum wf_status wf_st_parse(const char *header, size_t header_bytes, uint64_t data_bytes,
                           struct wf_safetensors **out, struct wf_error *error);
void wf_st_free(struct wf_safetensors *st); /* NULL is fine */

/* Borrowed from `st`; NULL when there is none. */
const struct wf_st_tensor *wf_st_find(const struct wf_safetensors *st, const char *name);

/* The first bytes of a file that holds `tensors` in this order: 8 bytes and header, padded to a
 * multiple of 8. Of each tensor name, dtype, ndim and shape are used; their data follows
 * without gaps. `metadata` (borrows; pairs name, value, ended by NULL; or NULL) becomes
 * "__metadata__". Equal input gives equal bytes. Gives *bytes_out; free with free(). */
enum wf_status wf_st_format(const struct wf_st_tensor *tensors, uint32_t tensor_count,
                            const char *const *metadata, uint8_t **bytes_out, size_t *len_out,
                            struct wf_error *error);

#endif
