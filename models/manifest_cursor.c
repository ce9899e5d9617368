/* manifest_cursor.c - msgpack, value by value: what a manifest says next, or why that cannot be.
 *
 * A cursor of our own, as frames have: msgpack-c's unpacker allocates what a list's head claims
 * before it has seen an element.
 */
#include "models/manifest_private.h"

#include <inttypes.h>
#include <stdio.h>

enum wf_status wf_manifest_refuse(struct wf_manifest_reader *r, const char *expected)
{
    return wf_error_set(r->error, WF_INVALID, "%s %" PRIu32 " (byte %zu): expected %s", r->part,
                        r->index, (size_t)(r->at - r->bytes), expected);
}

bool wf_manifest_take_big_endian(struct wf_manifest_reader *r, size_t size, uint64_t *number_out)
{
    if ((size_t)(r->end - r->at) < size) {
        return false;
    }
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++) {
        number = number << 8 | r->at[i];
    }
    r->at += size;
    *number_out = number;
    return true;
}

/* A number behind one of four codes that follow each other, of 1, 2, 4 and 8 bytes; or, of `forms`
 * bits, only some. */
static bool take_sized(struct wf_manifest_reader *r, uint8_t code, unsigned sizes,
                       uint64_t *number_out)
{
    for (unsigned i = 0; i < 4; i++) {
        if (r->at < r->end && (sizes >> i & 1) != 0 && *r->at == code + i) {
            r->at++;
            return wf_manifest_take_big_endian(r, (size_t)1 << i, number_out);
        }
    }
    return false;
}

/* A whole number in [0, most]. */
enum wf_status wf_manifest_take_number(struct wf_manifest_reader *r, uint64_t most,
                                       uint64_t *number_out)
{
    uint64_t number = 0;
    char expected[64];
    const uint8_t *begin = r->at;
    bool taken = r->at < r->end && *r->at < 0x80;
    if (taken) {
        number = *r->at++;
    } else {
        taken = take_sized(r, 0xcc, 15, &number);
    }
    if (!taken || number > most) {
        r->at = begin;
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
    uint64_t number = 0;
    const uint8_t *begin = r->at;
    if (r->at < r->end && *r->at >= 0xe0) {
        *number_out = (int8_t)*r->at++;
        return WF_OK;
    }
    for (unsigned i = 0; i < 4; i++) {
        unsigned shift = 64 - (8u << i);
        if (r->at < r->end && *r->at == 0xd0 + i) {
            r->at++;
            if (!wf_manifest_take_big_endian(r, (size_t)1 << i, &number)) {
                r->at = begin;
                return wf_manifest_refuse(r, "a whole number");
            }
            *number_out = (int64_t)(number << shift) >> shift;
            return WF_OK;
        }
    }
    enum wf_status status = wf_manifest_take_number(r, INT64_MAX, &number);
    *number_out = (int64_t)number;
    return status;
}

/* The head of a list of [least, most] entries, each of which has a byte at least. */
enum wf_status wf_manifest_take_list(struct wf_manifest_reader *r, uint32_t least, uint32_t most,
                                     uint32_t *count_out)
{
    uint64_t count = 0;
    char expected[96];
    const uint8_t *begin = r->at;
    bool taken = r->at < r->end && (*r->at & 0xf0) == 0x90;
    if (taken) {
        count = *r->at++ & 0x0f;
    } else if (r->at < r->end && (*r->at == 0xdc || *r->at == 0xdd)) {
        size_t size = *r->at++ == 0xdc ? 2 : 4;
        taken = wf_manifest_take_big_endian(r, size, &count);
    }
    if (!taken || count < least || count > most || count > (size_t)(r->end - r->at)) {
        r->at = begin;
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
    const uint8_t *begin = r->at;
    bool taken = r->at < r->end && (*r->at & 0xe0) == 0xa0;
    if (taken) {
        len = *r->at++ & 0x1f;
    } else {
        taken = take_sized(r, 0xd9, 7, &len);
    }
    if (!taken || len >= WF_NAME_MAX || len > (size_t)(r->end - r->at)) {
        r->at = begin;
        return wf_manifest_refuse(r, "a text of less than 256 bytes");
    }
    *text_out = (struct wf_manifest_word){(const char *)r->at, (uint32_t)len};
    r->at += len;
    return WF_OK;
}

bool wf_manifest_take_nil(struct wf_manifest_reader *r)
{
    bool nil = r->at < r->end && *r->at == 0xc0;
    r->at += nil;
    return nil;
}
