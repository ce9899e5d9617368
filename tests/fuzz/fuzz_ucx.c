/* fuzz_ucx.c - what a reader or a source of the ucx transport is sent: heads, slices, handles.
 *
 * Input: which of them, the length of the region (4 bytes), bytes. What is taken can be written and
 * read again, and a box that was found to lie in the region lies there.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "transports/ucx_frames.h"

enum { HEAD, SLICE, HANDLE, KINDS, PREFIX = 1 + 4 };

static void try_head(const uint8_t *bytes, size_t len)
{
    struct ucx_head head, again;
    uint8_t written[UCX_HEAD_BYTES];
    if (!ucx_head_decode(bytes, len, &head)) {
        return;
    }
    ucx_head_encode(&head, written);
    WF_ASSERT(ucx_head_decode(written, sizeof written, &again));
    WF_ASSERT(again.tag == head.tag && again.len_bytes == head.len_bytes);
}

static void try_slices(const uint8_t *bytes, size_t len, uint64_t region_bytes)
{
    struct ucx_slice slice;
    struct wf_box box;
    struct wf_error error = {0};
    for (size_t took; (took = ucx_slice_decode(bytes, len, &slice)) > 0;
         bytes += took, len -= took) {
        uint8_t written[UCX_SLICE_MAX_BYTES];
        WF_ASSERT(took <= len && ucx_slice_encode(&slice, written) == took);
        WF_ASSERT(memcmp(written, bytes, took) == 0);
        if (ucx_slice_box(&slice, region_bytes, &box, &error) != WF_OK) {
            WF_ASSERT(error.text[0] != '\0');
            continue;
        }
        __int128 least = slice.offset, most = slice.offset;
        for (uint32_t a = 0; a < slice.axis_count; a++) {
            __int128 reach = (__int128)slice.axes[a].step * (slice.axes[a].count - 1);
            *(reach < 0 ? &least : &most) += reach;
        }
        most += wf_dtype_bytes((enum wf_dtype)slice.dtype);
        WF_ASSERT(least >= 0 && most <= region_bytes);
        for (int end = 0; end < 2; end++) {
            uint64_t element = slice.first + (end ? slice.count - 1 : 0);
            uint64_t offset = ucx_box_offset(&box, false, element);
            WF_ASSERT(offset >= least && offset < most);
            WF_ASSERT(ucx_box_run(&box, true, wf_dtype_bytes((enum wf_dtype)slice.wire_dtype),
                                  element) <= box.elements);
        }
    }
}

static void try_handle(const uint8_t *bytes, size_t len)
{
    struct wf_handle handle = {.len = (uint32_t)len, .fd = -1}, again;
    struct ucx_handle parts;
    struct wf_error error = {0};
    memcpy(handle.bytes, bytes, len < sizeof handle.bytes ? len : sizeof handle.bytes);
    if (ucx_handle_decode(&handle, &parts, &error) != WF_OK) {
        WF_ASSERT(error.text[0] != '\0');
        return;
    }
    WF_ASSERT(ucx_handle_encode(&parts, &again, &error) == WF_OK);
    WF_ASSERT(again.len == handle.len && memcmp(again.bytes, handle.bytes, handle.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < PREFIX) {
        return 0;
    }
    uint32_t region_bytes;
    memcpy(&region_bytes, data + 1, sizeof region_bytes);
    size_t len = size - PREFIX;
    uint8_t *exact = malloc(len + 1); /* so that a sanitizer sees a read behind the end */
    WF_ASSERT(exact != NULL);
    memcpy(exact, data + PREFIX, len);
    switch (data[0] % KINDS) {
    case HEAD:
        try_head(exact, len);
        break;
    case SLICE:
        try_slices(exact, len, region_bytes);
        break;
    default:
        try_handle(exact, len);
        break;
    }
    free(exact);
    return 0;
}

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    static const struct ucx_slice slices[] = {
        {1, 0, 0, 1000, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{1000, 1}}},
        {1, 16, 90, 10, WF_DTYPE_F32, WF_DTYPE_BF16, 2, {{5, 128}, {20, 4}}},
        {1, 999, 0, 1000, WF_DTYPE_U8, WF_DTYPE_U8, 1, {{1000, -1}}},
    };
    const uint32_t region_bytes = 1000;
    const struct ucx_handle parts = {
        .pid = 17, .region = 1, .len_bytes = 1000, .address_len = 5, .address = (uint8_t *)"there"};
    struct ucx_head head = {.kind = UCX_CHUNK, .count = 3, .tag = 1, .len_bytes = 1000};
    struct wf_handle handle;
    (void)cap; /* far larger than any of these */
    out[0] = (uint8_t)index;
    memcpy(out + 1, &region_bytes, sizeof region_bytes);
    size_t at = PREFIX;
    switch (index) {
    case HEAD:
        ucx_head_encode(&head, out + at);
        return at + UCX_HEAD_BYTES;
    case SLICE:
        for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++) {
            at += ucx_slice_encode(&slices[i], out + at);
        }
        return at;
    case HANDLE:
        WF_ASSERT(ucx_handle_encode(&parts, &handle, NULL) == WF_OK);
        memcpy(out + at, handle.bytes, handle.len);
        return at + handle.len;
    default:
        return 0;
    }
}
