/* manifest_cursor.c - msgpack, value by value: what a manifest says next, or why that cannot be.
 * The cursor is runtime/msgpack_read.h's; here are the limits and the sentences. */
#include "models/manifest_private.h"

#include <inttypes.h>
#include <stdio.h>

enum wf_status wf_manifest_refuse(struct wf_manifest_reader *r, const char *expected)
{
    return wf_error_set(r->error, WF_INVALID, "%s %" PRIu32 " (byte %zu): expected %s", r->part,
                        r->index, (size_t)(r->in.at - r->bytes), expected);
}

/* A whole number in [0, most]. */
enum wf_status wf_manifest_take_number(struct wf_manifest_reader *r, uint64_t most,
                                       uint64_t *number_out)
{
    uint64_t number = 0;
    char expected[64];
    struct wf_msgpack begin = r->in;
    if (wf_msgpack_take_head(&r->in, WF_MSGPACK_NUMBER, &number) != WF_MSGPACK_TAKEN ||
        number > most) {
        r->in = begin;
        snprintf(expected, sizeof expected, "a whole number up to %" PRIu64, most);
        return wf_manifest_refuse(r, expected);
    }
    *number_out = number;
    return WF_OK;
}

enum wf_status wf_manifest_take_index(struct wf_manifest_reader *r, uint32_t count,
                                      uint32_t *index_out)
{
    uint64_t number = 0;
    if (count == 0) {
        return wf_manifest_refuse(r, "nothing that names an entry of an empty list");
    }
    enum wf_status status = wf_manifest_take_number(r, count - 1, &number);
    *index_out = (uint32_t)number;
    return status;
}

/* A whole number of either sign. */
enum wf_status wf_manifest_take_signed(struct wf_manifest_reader *r, int64_t *number_out)
{
    return wf_msgpack_take_signed(&r->in, number_out) == WF_MSGPACK_TAKEN
               ? WF_OK
               : wf_manifest_refuse(r, "a whole number of at most 63 bits and a sign");
}

/* The head of a list of [least, most] entries, each of which has a byte at least. */
enum wf_status wf_manifest_take_list(struct wf_manifest_reader *r, uint32_t least, uint32_t most,
                                     uint32_t *count_out)
{
    uint64_t count = 0;
    char expected[96];
    struct wf_msgpack begin = r->in;
    if (wf_msgpack_take_head(&r->in, WF_MSGPACK_LIST, &count) != WF_MSGPACK_TAKEN ||
        count < least || count > most || count > wf_msgpack_left(&r->in)) {
        r->in = begin;
        char upper[32] = "";
        if (least < most) {
            snprintf(upper, sizeof upper, " to %" PRIu32, most);
        }
        snprintf(expected, sizeof expected, "a list of %" PRIu32 "%s entries", least, upper);
        return wf_manifest_refuse(r, expected);
    }
    *count_out = (uint32_t)count;
    return WF_OK;
}

enum wf_status wf_manifest_take_text(struct wf_manifest_reader *r,
                                     struct wf_manifest_word *text_out)
{
    uint64_t len = 0;
    const uint8_t *start = NULL;
    struct wf_msgpack begin = r->in;
    if (wf_msgpack_take_head(&r->in, WF_MSGPACK_TEXT, &len) != WF_MSGPACK_TAKEN ||
        len >= WF_NAME_MAX || !wf_msgpack_take_span(&r->in, len, &start)) {
        r->in = begin;
        return wf_manifest_refuse(r, "a text of less than 256 bytes");
    }
    *text_out = (struct wf_manifest_word){(const char *)start, (uint32_t)len};
    return WF_OK;
}
