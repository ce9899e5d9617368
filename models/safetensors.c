/* safetensors.c - reads the header of a safetensors file and refuses what the format forbids. */
#include "models/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/json.h"

/* Every dtype of the format with its bits per element; those of dtype.h are looked up there. */
static const struct {
    const char *name;
    uint32_t bits;
} st_dtypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};

enum wf_status wf_st_header_bytes(const uint8_t prefix[WF_ST_PREFIX_BYTES], uint64_t file_bytes,
                                  uint64_t *header_bytes_out, struct wf_error *error)
{
    uint64_t bytes = 0;
    for (int i = WF_ST_PREFIX_BYTES - 1; i >= 0; i--) {
        bytes = bytes << 8 | prefix[i];
    }
    if (bytes > WF_ST_HEADER_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "the header claims %" PRIu64 " bytes, at most %d are allowed; this is "
                            "no safetensors file, or its first 8 bytes are damaged",
                            bytes, WF_ST_HEADER_MAX);
    }
    if (file_bytes < WF_ST_PREFIX_BYTES || bytes > file_bytes - WF_ST_PREFIX_BYTES) {
        return wf_error_set(error, WF_INVALID,
                            "the header claims %" PRIu64 " bytes but the file has only %" PRIu64
                            " in all; it is truncated or no safetensors file",
                            bytes, file_bytes);
    }
    *header_bytes_out = bytes;
    return WF_OK;
}

/* A JSON integer that is not negative. */
static bool item_u64(struct json_object *item, uint64_t *value_out)
{
    if (!json_object_is_type(item, json_type_int) || json_object_get_int64(item) < 0) {
        return false;
    }
    *value_out = json_object_get_uint64(item);
    return true;
}

static bool parse_dtype(struct json_object *item, struct wf_st_tensor *tensor, uint32_t *bits_out)
{
    if (!json_object_is_type(item, json_type_string)) {
        return false;
    }
    const char *text = json_object_get_string(item);
    size_t len = (size_t)json_object_get_string_len(item);
    for (size_t i = 0; i < sizeof st_dtypes / sizeof st_dtypes[0]; i++) {
        if (strlen(st_dtypes[i].name) == len && memcmp(st_dtypes[i].name, text, len) == 0) {
            memcpy(tensor->dtype_name, text, len + 1);
            tensor->dtype = wf_dtype_from_safetensors(text, len);
            *bits_out = st_dtypes[i].bits;
            return true;
        }
    }
    return false;
}

/* Fills elements and checks that the byte range is exactly as long as shape and dtype say. */
static enum wf_status check_size(struct wf_st_tensor *tensor, uint32_t bits, struct wf_error *error)
{
    uint64_t elements = 1, total_bits;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        if (__builtin_mul_overflow(elements, tensor->shape[i], &elements)) {
            return wf_error_set(error, WF_INVALID, "the product of its shape overflows 64 bits");
        }
    }
    if (__builtin_mul_overflow(elements, (uint64_t)bits, &total_bits)) {
        return wf_error_set(error, WF_INVALID, "shape times element size overflows 64 bits");
    }
    if (total_bits % 8 != 0) {
        return wf_error_set(error, WF_INVALID, "%" PRIu64 " elements of %s are no whole bytes",
                            elements, tensor->dtype_name);
    }
    if (tensor->end < tensor->begin || tensor->end - tensor->begin != total_bits / 8) {
        return wf_error_set(error, WF_INVALID,
                            "data_offsets [%" PRIu64 ", %" PRIu64 "] do not span the %" PRIu64
                            " bytes that its shape and dtype %s need",
                            tensor->begin, tensor->end, total_bits / 8, tensor->dtype_name);
    }
    tensor->elements = elements;
    return WF_OK;
}

/* One tensor's object. `shapes` has room for its dimensions. */
static enum wf_status parse_tensor(struct json_object *value, struct wf_st_tensor *tensor,
                                   uint64_t *shapes, struct wf_error *error)
{
    struct json_object *dtype, *shape, *offsets;
    uint32_t bits;
    if (!json_object_is_type(value, json_type_object) ||
        !json_object_object_get_ex(value, "dtype", &dtype) ||
        !json_object_object_get_ex(value, "shape", &shape) ||
        !json_object_object_get_ex(value, "data_offsets", &offsets)) {
        return wf_error_set(error, WF_INVALID,
                            "expected an object with dtype, shape and data_offsets");
    }
    if (!parse_dtype(dtype, tensor, &bits)) {
        return wf_error_set(error, WF_INVALID, "unknown dtype %.40s",
                            json_object_to_json_string_ext(dtype, JSON_C_TO_STRING_PLAIN));
    }
    if (!json_object_is_type(shape, json_type_array)) {
        return wf_error_set(error, WF_INVALID, "shape is no list");
    }
    tensor->ndim = (uint32_t)json_object_array_length(shape);
    tensor->shape = shapes;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        if (!item_u64(json_object_array_get_idx(shape, i), &shapes[i])) {
            return wf_error_set(error, WF_INVALID, "shape[%u] is no integer of 0 or more", i);
        }
    }
    if (!json_object_is_type(offsets, json_type_array) || json_object_array_length(offsets) != 2 ||
        !item_u64(json_object_array_get_idx(offsets, 0), &tensor->begin) ||
        !item_u64(json_object_array_get_idx(offsets, 1), &tensor->end)) {
        return wf_error_set(error, WF_INVALID,
                            "data_offsets must be two integers of 0 or more, begin and end");
    }
    return check_size(tensor, bits, error);
}

static enum wf_status check_metadata(struct json_object *metadata, struct wf_error *error)
{
    if (metadata == NULL) { /* null stands for absent */
        return WF_OK;
    }
    if (!json_object_is_type(metadata, json_type_object)) {
        return wf_error_set(error, WF_INVALID, "__metadata__ is no object");
    }
    struct json_object_iterator at = json_object_iter_begin(metadata);
    struct json_object_iterator end = json_object_iter_end(metadata);
    for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
        if (!json_object_is_type(json_object_iter_peek_value(&at), json_type_string)) {
            return wf_error_set(error, WF_INVALID,
                                "__metadata__ may hold only strings; the value of \"%.80s\" is "
                                "none",
                                json_object_iter_peek_name(&at));
        }
    }
    return WF_OK;
}

/* Room for all tensors and their dimensions, counted before anything is filled. */
static enum wf_status allocate(struct wf_safetensors *st, struct json_object *root,
                               struct wf_error *error)
{
    size_t tensors = 0, dims = 0;
    json_object_object_foreach(root, key, value)
    {
        struct json_object *shape;
        (void)key;
        tensors++;
        if (json_object_is_type(value, json_type_object) &&
            json_object_object_get_ex(value, "shape", &shape) &&
            json_object_is_type(shape, json_type_array)) {
            dims += json_object_array_length(shape);
        }
    }
    st->tensors = calloc(tensors + 1, sizeof *st->tensors);
    st->by_name = calloc(tensors + 1, sizeof *st->by_name);
    st->shapes = calloc(dims + 1, sizeof *st->shapes);
    if (st->tensors == NULL || st->by_name == NULL || st->shapes == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a header of %zu tensors", tensors);
    }
    return WF_OK;
}

static enum wf_status parse_entries(struct wf_safetensors *st, struct json_object *root,
                                    struct wf_error *error)
{
    uint64_t *shapes = st->shapes;
    json_object_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            enum wf_status status = check_metadata(value, error);
            if (status != WF_OK) {
                return status;
            }
            continue;
        }
        struct wf_st_tensor *tensor = &st->tensors[st->tensor_count];
        tensor->name = key;
        enum wf_status status = parse_tensor(value, tensor, shapes, error);
        if (status != WF_OK) {
            wf_error_prefix(error, "tensor \"%.100s\"", key);
            return status;
        }
        shapes += tensor->ndim;
        st->tensor_count++;
    }
    return WF_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct wf_st_tensor *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    if (x->end != y->end) {
        return x->end < y->end ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int compare_index(const void *a, const void *b, void *tensors)
{
    const struct wf_st_tensor *x = (const struct wf_st_tensor *)tensors + *(const uint32_t *)a;
    const struct wf_st_tensor *y = (const struct wf_st_tensor *)tensors + *(const uint32_t *)b;
    return strcmp(x->name, y->name);
}

/* Sorts by place and checks that the ranges tile the data: the reference's rule against holes,
 * overlaps and files that are two things at once. */
static enum wf_status check_ranges(struct wf_safetensors *st, struct wf_error *error)
{
    uint64_t at = 0;
    qsort(st->tensors, st->tensor_count, sizeof *st->tensors, compare_offsets);
    for (uint32_t i = 0; i < st->tensor_count; i++) {
        const struct wf_st_tensor *tensor = &st->tensors[i];
        if (tensor->begin != at) {
            return wf_error_set(error, WF_INVALID,
                                "tensor \"%.100s\" begins at byte %" PRIu64
                                " of the data but the one before it ends at %" PRIu64 "; %s",
                                tensor->name, tensor->begin, at,
                                tensor->begin < at ? "ranges may not overlap"
                                                   : "the data may have no holes");
        }
        at = tensor->end;
    }
    if (at != st->data_bytes) {
        return wf_error_set(
            error, WF_INVALID,
            "the tensors need %" PRIu64 " bytes of data, the file has %" PRIu64 "; %s", at,
            st->data_bytes,
            at > st->data_bytes ? "it is truncated" : "the rest belongs to no tensor");
    }
    for (uint32_t i = 0; i < st->tensor_count; i++) {
        st->by_name[i] = i;
    }
    qsort_r(st->by_name, st->tensor_count, sizeof *st->by_name, compare_index, st->tensors);
    return WF_OK;
}

enum wf_status wf_st_parse(const char *header, size_t header_bytes, uint64_t data_bytes,
                           struct wf_safetensors **out, struct wf_error *error)
{
    struct json_object *root = NULL;
    enum wf_status status = wf_json_parse(header, header_bytes, WF_JSON_STRICT, &root, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "the header");
        return status;
    }
    struct wf_safetensors *st = calloc(1, sizeof *st);
    if (st == NULL) {
        json_object_put(root);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a safetensors header");
    }
    st->json = root;
    st->data_bytes = data_bytes;
    if (!json_object_is_type(root, json_type_object)) {
        status = wf_error_set(error, WF_INVALID, "the header is no JSON object");
        goto free_st;
    }
    status = allocate(st, root, error);
    if (status == WF_OK) {
        status = parse_entries(st, root, error);
    }
    if (status == WF_OK) {
        status = check_ranges(st, error);
    }
    if (status != WF_OK) {
        goto free_st;
    }
    *out = st;
    return WF_OK;
free_st:
    wf_st_free(st);
    return status;
}

void wf_st_free(struct wf_safetensors *st)
{
    if (st == NULL) {
        return;
    }
    json_object_put(st->json);
    free(st->tensors);
    free(st->by_name);
    free(st->shapes);
    free(st);
}

const struct wf_st_tensor *wf_st_find(const struct wf_safetensors *st, const char *name)
{
    uint32_t low = 0, high = st->tensor_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct wf_st_tensor *tensor = &st->tensors[st->by_name[middle]];
        int order = strcmp(tensor->name, name);
        if (order == 0) {
            return tensor;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* --- writing -------------------------------------------------------------------------------- */

/* Each value hangs on its parent as soon as it exists, so freeing the root frees all. */
static struct json_object *add_child(struct json_object *parent, const char *key,
                                     struct json_object *child)
{
    if (child != NULL && json_object_object_add(parent, key, child) != 0) {
        json_object_put(child);
        return NULL;
    }
    return child;
}

static bool add_number(struct json_object *array, uint64_t value)
{
    struct json_object *number = json_object_new_uint64(value);
    if (number != NULL && json_object_array_add(array, number) != 0) {
        json_object_put(number);
        return false;
    }
    return number != NULL;
}

static bool add_entry(struct json_object *root, const struct wf_st_tensor *tensor, uint64_t *at)
{
    struct json_object *entry = add_child(root, tensor->name, json_object_new_object());
    if (entry == NULL ||
        add_child(entry, "dtype", json_object_new_string(wf_dtype_safetensors(tensor->dtype))) ==
            NULL) {
        return false;
    }
    struct json_object *shape = add_child(entry, "shape", json_object_new_array());
    struct json_object *offsets = add_child(entry, "data_offsets", json_object_new_array());
    if (shape == NULL || offsets == NULL || !add_number(offsets, *at)) {
        return false;
    }
    uint64_t bytes = wf_dtype_bytes(tensor->dtype);
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes) ||
            !add_number(shape, tensor->shape[i])) {
            return false;
        }
    }
    return !__builtin_add_overflow(*at, bytes, at) && add_number(offsets, *at);
}

static bool add_metadata(struct json_object *root, const char *const *metadata)
{
    if (metadata == NULL) {
        return true;
    }
    struct json_object *object = add_child(root, "__metadata__", json_object_new_object());
    for (; object != NULL && metadata[0] != NULL; metadata += 2) {
        if (add_child(object, metadata[0], json_object_new_string(metadata[1])) == NULL) {
            return false;
        }
    }
    return object != NULL;
}

enum wf_status wf_st_format(const struct wf_st_tensor *tensors, uint32_t tensor_count,
                            const char *const *metadata, uint8_t **bytes_out, size_t *len_out,
                            struct wf_error *error)
{
    struct json_object *root = json_object_new_object();
    uint64_t at = 0;
    bool ok = root != NULL && add_metadata(root, metadata);
    for (uint32_t i = 0; ok && i < tensor_count; i++) {
        ok = add_entry(root, &tensors[i], &at);
    }
    size_t len = 0;
    const char *text = ok ? json_object_to_json_string_length(
                                root, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &len)
                          : NULL;
    size_t padded = (len + 7) / 8 * 8;
    uint8_t *bytes = text != NULL ? malloc(WF_ST_PREFIX_BYTES + padded) : NULL;
    if (bytes != NULL) {
        for (int i = 0; i < WF_ST_PREFIX_BYTES; i++) {
            bytes[i] = (uint8_t)((uint64_t)padded >> (8 * i));
        }
        memset(bytes + WF_ST_PREFIX_BYTES, ' ', padded);
        memcpy(bytes + WF_ST_PREFIX_BYTES, text, len);
    }
    json_object_put(root);
    if (bytes == NULL) {
        return wf_error_set(error, WF_NO_MEMORY,
                            "no memory for a header of %u tensors, or sizes that overflow",
                            tensor_count);
    }
    if (padded > WF_ST_HEADER_MAX) {
        free(bytes);
        return wf_error_set(error, WF_INVALID,
                            "a header of %zu bytes; the format allows %d: use more shards", padded,
                            WF_ST_HEADER_MAX);
    }
    *bytes_out = bytes;
    *len_out = WF_ST_PREFIX_BYTES + padded;
    return WF_OK;
}
