/* ucx_frames.c - heads, slices and handles as bytes, and their checks. */
#include "transports/ucx_frames.h"

#include <string.h>
#include <xxhash.h>

enum {
    HEAD_MAGIC = 0x32585557, /* "WUX2" */
    HANDLE_FORMAT = 0x10,
    HANDLE_FIXED = 1 + UCX_LIFE_BYTES + 5 * 8 + 4 + 8,
};

struct cursor {
    uint8_t *at;
};

static void put(struct cursor *c, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        *c->at++ = (uint8_t)(value >> (8 * i));
    }
}

static void put_bytes(struct cursor *c, const void *bytes, size_t len)
{
    memcpy(c->at, bytes, len);
    c->at += len;
}

static uint64_t get(const uint8_t **at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t) * (*at)++ << (8 * i);
    }
    return value;
}

static void get_bytes(const uint8_t **at, void *bytes, size_t len)
{
    memcpy(bytes, *at, len);
    *at += len;
}

/* --- heads -------------------------------------------------------------------------------------
 */

void ucx_head_encode(const struct ucx_head *head, uint8_t bytes_out[static UCX_HEAD_BYTES])
{
    struct cursor c = {bytes_out};
    put(&c, HEAD_MAGIC, 4);
    put(&c, head->kind, 1);
    put(&c, head->lane, 1);
    put(&c, head->in_parts, 1);
    put(&c, 0, 1);
    put(&c, head->tag, 8);
    put(&c, head->status, 4);
    put(&c, head->count, 4);
    put(&c, head->timeout_ms, 4);
    put(&c, head->offset, 4);
    put(&c, head->region, 8);
    put(&c, head->len_bytes, 8);
    put_bytes(&c, head->source, UCX_LIFE_BYTES);
    put_bytes(&c, head->reader, UCX_LIFE_BYTES);
    WF_ASSERT(c.at == bytes_out + UCX_HEAD_BYTES);
}

bool ucx_head_decode(const void *bytes, size_t len, struct ucx_head *head_out)
{
    const uint8_t *at = bytes;
    if (len != UCX_HEAD_BYTES || get(&at, 4) != HEAD_MAGIC) {
        return false;
    }
    struct ucx_head head = {0};
    head.kind = (uint8_t)get(&at, 1);
    head.lane = (uint8_t)get(&at, 1);
    head.in_parts = (uint8_t)get(&at, 1);
    at += 1;
    head.tag = get(&at, 8);
    head.status = (uint32_t)get(&at, 4);
    head.count = (uint32_t)get(&at, 4);
    head.timeout_ms = (uint32_t)get(&at, 4);
    head.offset = (uint32_t)get(&at, 4);
    head.region = get(&at, 8);
    head.len_bytes = get(&at, 8);
    get_bytes(&at, head.source, UCX_LIFE_BYTES);
    get_bytes(&at, head.reader, UCX_LIFE_BYTES);
    if (head.kind == 0 || head.kind >= UCX_KIND_LIMIT) {
        return false;
    }
    *head_out = head;
    return true;
}

/* --- slices ------------------------------------------------------------------------------------
 */

size_t ucx_slice_encode(const struct ucx_slice *slice, uint8_t *bytes_out)
{
    struct cursor c = {bytes_out};
    put(&c, slice->region, 8);
    put(&c, slice->offset, 8);
    put(&c, slice->first, 8);
    put(&c, slice->count, 8);
    put(&c, slice->dtype, 1);
    put(&c, slice->wire_dtype, 1);
    put(&c, slice->axis_count, 2);
    for (uint32_t a = 0; a < slice->axis_count; a++) {
        put(&c, slice->axes[a].count, 8);
        put(&c, (uint64_t)slice->axes[a].step, 8);
    }
    return (size_t)(c.at - bytes_out);
}

size_t ucx_slice_decode(const uint8_t *bytes, size_t len, struct ucx_slice *slice_out)
{
    const uint8_t *at = bytes;
    if (len < UCX_SLICE_FIXED_BYTES) {
        return 0;
    }
    struct ucx_slice slice = {0};
    slice.region = get(&at, 8);
    slice.offset = get(&at, 8);
    slice.first = get(&at, 8);
    slice.count = get(&at, 8);
    slice.dtype = (uint8_t)get(&at, 1);
    slice.wire_dtype = (uint8_t)get(&at, 1);
    uint64_t axis_count = get(&at, 2);
    if (axis_count > WF_AXES_MAX || (len - UCX_SLICE_FIXED_BYTES) / 16 < axis_count) {
        return 0;
    }
    slice.axis_count = (uint8_t)axis_count;
    for (uint32_t a = 0; a < axis_count; a++) {
        slice.axes[a].count = get(&at, 8);
        slice.axes[a].step = (int64_t)get(&at, 8);
    }
    *slice_out = slice;
    return (size_t)(at - bytes);
}

enum wf_status ucx_slice_box(const struct ucx_slice *slice, uint64_t len_bytes,
                             struct wf_box *box_out, struct wf_error *error)
{
    uint64_t src_elem = wf_dtype_bytes((enum wf_dtype)slice->dtype);
    uint64_t elem = wf_dtype_bytes((enum wf_dtype)slice->wire_dtype);
    if (src_elem == 0 || elem == 0 ||
        !wf_dtype_castable((enum wf_dtype)slice->dtype, (enum wf_dtype)slice->wire_dtype)) {
        return wf_error_set(error, WF_INVALID, "a slice asks for a cast of type %u to type %u",
                            slice->dtype, slice->wire_dtype);
    }
    struct wf_box box = {.src_offset = slice->offset, .axis_count = slice->axis_count};
    uint64_t elements = 1;
    bool fits = true;
    for (uint32_t a = slice->axis_count; a-- > 0 && fits;) {
        uint64_t step;
        fits = !__builtin_mul_overflow(elements, elem, &step) && step <= INT64_MAX &&
               !__builtin_mul_overflow(elements, slice->axes[a].count, &elements);
        box.axes[a].count = slice->axes[a].count;
        box.axes[a].src_step = slice->axes[a].step;
        box.axes[a].dst_step = (int64_t)step;
    }
    uint64_t dense;
    box.elements = elements;
    if (!fits || __builtin_mul_overflow(elements, elem, &dense) || dense > INT64_MAX ||
        !wf_box_within(&box, (uint32_t)src_elem, len_bytes, (uint32_t)elem, dense)) {
        return wf_error_set(error, WF_INVALID,
                            "a slice at byte %llu reaches outside its region of %llu bytes",
                            (unsigned long long)slice->offset, (unsigned long long)len_bytes);
    }
    if (slice->count == 0 || slice->first > elements || slice->count > elements - slice->first) {
        return wf_error_set(error, WF_INVALID,
                            "a slice asks for %llu elements from %llu on, of a box that has %llu",
                            (unsigned long long)slice->count, (unsigned long long)slice->first,
                            (unsigned long long)elements);
    }
    *box_out = box;
    return WF_OK;
}

/* --- boxes -------------------------------------------------------------------------------------
 */

uint64_t ucx_box_run(const struct wf_box *box, bool side_dst, uint64_t elem_bytes, uint64_t first)
{
    uint64_t run = 1;
    for (uint32_t a = box->axis_count; a-- > 0;) {
        int64_t step = side_dst ? box->axes[a].dst_step : box->axes[a].src_step;
        if (box->axes[a].count > 1 && step != (int64_t)(run * elem_bytes)) {
            break;
        }
        run *= box->axes[a].count;
    }
    return run - first % run;
}

uint64_t ucx_box_offset(const struct wf_box *box, bool side_dst, uint64_t element)
{
    uint64_t offset = side_dst ? box->dst_offset : box->src_offset;
    for (uint32_t a = box->axis_count; a-- > 0;) {
        int64_t step = side_dst ? box->axes[a].dst_step : box->axes[a].src_step;
        offset += element % box->axes[a].count * (uint64_t)step;
        element /= box->axes[a].count;
    }
    return offset;
}

/* --- handles -----------------------------------------------------------------------------------
 */

enum wf_status ucx_handle_encode(const struct ucx_handle *from, struct wf_handle *handle_out,
                                 struct wf_error *error)
{
    if (from->address_len > WF_HANDLE_MAX - HANDLE_FIXED) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "ucx's address of this process has %u bytes, a handle has room for %d; "
                            "name fewer interfaces (transport.interfaces) or transports "
                            "(transport.ucx: TLS)",
                            from->address_len, WF_HANDLE_MAX - HANDLE_FIXED);
    }
    struct wf_handle handle = {.len = HANDLE_FIXED + from->address_len, .fd = -1};
    struct cursor c = {handle.bytes};
    put(&c, HANDLE_FORMAT, 1);
    put_bytes(&c, from->life, UCX_LIFE_BYTES);
    put(&c, from->host, 8);
    put(&c, from->pid, 8);
    put(&c, from->pid_start, 8);
    put(&c, from->region, 8);
    put(&c, from->len_bytes, 8);
    put(&c, from->address_len, 4);
    put_bytes(&c, from->address, from->address_len);
    put(&c, XXH3_64bits(handle.bytes, (size_t)(c.at - handle.bytes)), 8);
    *handle_out = handle;
    return WF_OK;
}

enum wf_status ucx_handle_decode(const struct wf_handle *handle, struct ucx_handle *to_out,
                                 struct wf_error *error)
{
    const uint8_t *at = handle->bytes;
    struct ucx_handle to;
    if (handle->len < HANDLE_FIXED || handle->len > WF_HANDLE_MAX || get(&at, 1) != HANDLE_FORMAT) {
        return wf_error_set(error, WF_PROTOCOL,
                            "a ucx handle has %u bytes in format %u; expected %d or more in format "
                            "%d: use one version of weft on both sides",
                            handle->len, handle->bytes[0], HANDLE_FIXED, HANDLE_FORMAT);
    }
    get_bytes(&at, to.life, UCX_LIFE_BYTES);
    to.host = get(&at, 8);
    to.pid = get(&at, 8);
    to.pid_start = get(&at, 8);
    to.region = get(&at, 8);
    to.len_bytes = get(&at, 8);
    to.address_len = (uint32_t)get(&at, 4);
    to.address = at;
    if (to.address_len != handle->len - HANDLE_FIXED) {
        return wf_error_set(error, WF_PROTOCOL,
                            "a ucx handle's address has %u bytes; expected %u: use one version of "
                            "weft on both sides",
                            to.address_len, handle->len - HANDLE_FIXED);
    }
    /* UCX believes every address that it is given: only one that arrived whole gets that far. */
    at += to.address_len;
    if (get(&at, 8) != XXH3_64bits(handle->bytes, handle->len - 8)) {
        return wf_error_set(
            error, WF_PROTOCOL,
            "a ucx handle is not what its sender wrote: its checksum differs; start "
            "both ranks again, and report it if that does not help");
    }
    *to_out = to;
    return WF_OK;
}
