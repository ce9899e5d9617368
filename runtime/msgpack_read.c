/* msgpack_read.c - the heads of msgpack's values, from bytes that nobody has checked. */
#include "runtime/msgpack_read.h"

enum { SIZES = 4, NIL = 0xc0, NEVER = 0xc1, SIGNED_FORM = 0xd0, NEGATIVE = 0xe0 };

/* How msgpack writes a head: `mask` and `tag` of the form of one byte, which holds the number too,
 * then the forms with numbers of 1, 2, 4 and 8 bytes (0: there is none of that size). */
struct head {
    uint8_t mask, tag;
    uint8_t sized[SIZES];
};
static const struct head heads[] = {
    [WF_MSGPACK_NUMBER] = {0x80, 0x00, {0xcc, 0xcd, 0xce, 0xcf}},
    [WF_MSGPACK_TEXT] = {0xe0, 0xa0, {0xd9, 0xda, 0xdb, 0}},
    [WF_MSGPACK_BYTES] = {0xff, NEVER, {0xc4, 0xc5, 0xc6, 0}}, /* has no form of one byte */
    [WF_MSGPACK_LIST] = {0xf0, 0x90, {0, 0xdc, 0xdd, 0}},
};

uint64_t wf_big_endian(const uint8_t *bytes, size_t size)
{
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++) {
        number = number << 8 | bytes[i];
    }
    return number;
}

size_t wf_msgpack_left(const struct wf_msgpack *in)
{
    return (size_t)(in->end - in->at);
}

/* The number of `size` bytes behind a form's byte, with that byte. */
static enum wf_msgpack_taken take_sized(struct wf_msgpack *in, size_t size, uint64_t *number_out)
{
    if (wf_msgpack_left(in) < 1 + size) {
        return WF_MSGPACK_ENDS;
    }
    *number_out = wf_big_endian(in->at + 1, size);
    in->at += 1 + size;
    return WF_MSGPACK_TAKEN;
}

enum wf_msgpack_taken wf_msgpack_take_head(struct wf_msgpack *in, enum wf_msgpack_form form,
                                           uint64_t *number_out)
{
    const struct head *head = &heads[form];
    if (in->at == in->end) {
        return WF_MSGPACK_ENDS;
    }
    uint8_t first = *in->at;
    if ((first & head->mask) == head->tag && first != NEVER) {
        in->at++;
        *number_out = first & (uint8_t)~head->mask;
        return WF_MSGPACK_TAKEN;
    }
    for (unsigned i = 0; i < SIZES; i++) {
        if (head->sized[i] != 0 && head->sized[i] == first) {
            return take_sized(in, (size_t)1 << i, number_out);
        }
    }
    return WF_MSGPACK_OTHER;
}

enum wf_msgpack_taken wf_msgpack_take_signed(struct wf_msgpack *in, int64_t *number_out)
{
    struct wf_msgpack begin = *in;
    uint64_t number = 0;
    if (in->at < in->end && *in->at >= NEGATIVE) {
        *number_out = (int8_t)*in->at++;
        return WF_MSGPACK_TAKEN;
    }
    for (unsigned i = 0; i < SIZES && in->at < in->end; i++) {
        if (*in->at == SIGNED_FORM + i) {
            enum wf_msgpack_taken taken = take_sized(in, (size_t)1 << i, &number);
            unsigned shift = 64 - (8u << i);
            if (taken == WF_MSGPACK_TAKEN) {
                *number_out = (int64_t)(number << shift) >> shift;
            }
            return taken;
        }
    }
    enum wf_msgpack_taken taken = wf_msgpack_take_head(in, WF_MSGPACK_NUMBER, &number);
    if (taken != WF_MSGPACK_TAKEN) {
        return taken;
    }
    if (number > INT64_MAX) {
        *in = begin;
        return WF_MSGPACK_OTHER;
    }
    *number_out = (int64_t)number;
    return taken;
}

bool wf_msgpack_take_span(struct wf_msgpack *in, uint64_t len, const uint8_t **start_out)
{
    if (len > wf_msgpack_left(in)) {
        return false;
    }
    *start_out = in->at;
    in->at += len;
    return true;
}

bool wf_msgpack_take_nil(struct wf_msgpack *in)
{
    bool nil = in->at < in->end && *in->at == NIL;
    in->at += nil;
    return nil;
}
