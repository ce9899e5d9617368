/* msgpack_read.h - a cursor over msgpack that nobody has checked yet: one value at a time, bounded.
 *
 * For bytes from outside (frames, manifests). msgpack-c's unpacker is not used for them because it
 * allocates what a list's head claims before it has seen an element; here nothing is allocated, and
 * nothing behind `end` is looked at. Writing is msgpack-c's.
 *
 * A value is a head and, of a text and of bytes, so many bytes behind it. Whoever takes a head has
 * a number that nobody vouches for: a length is checked by wf_msgpack_take_span, a list's count by
 * its reader, who knows how few bytes an element can have. Numbers may be written longer than they
 * need to be.
 *
 * Whatever is not taken leaves the cursor where it was. Sentences are the caller's: it knows which
 * field or entry was expected. Pure; any thread.
 */
#ifndef WEFT_RUNTIME_MSGPACK_READ_H
#define WEFT_RUNTIME_MSGPACK_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wf_msgpack {
    const uint8_t *at, *end; /* borrowed; at <= end */
};

enum wf_msgpack_form {
    WF_MSGPACK_NUMBER, /* a whole number from 0 on: itself */
    WF_MSGPACK_TEXT,   /* its length in bytes */
    WF_MSGPACK_BYTES,  /* the same */
    WF_MSGPACK_LIST,   /* its number of entries, each of which has a byte at least */
};

enum wf_msgpack_taken {
    WF_MSGPACK_TAKEN,
    WF_MSGPACK_ENDS,  /* nothing is left, or the value's number is cut */
    WF_MSGPACK_OTHER, /* a value of another form begins here */
};

size_t wf_msgpack_left(const struct wf_msgpack *in); /* bytes */
enum wf_msgpack_taken wf_msgpack_take_head(struct wf_msgpack *in, enum wf_msgpack_form form,
                                           uint64_t *number_out);
/* A whole number of either sign; one above INT64_MAX is of another form. */
enum wf_msgpack_taken wf_msgpack_take_signed(struct wf_msgpack *in, int64_t *number_out);
/* The bytes behind a head, borrowed; false if fewer are left. */
bool wf_msgpack_take_span(struct wf_msgpack *in, uint64_t len, const uint8_t **start_out);
bool wf_msgpack_take_nil(struct wf_msgpack *in); /* false: something else stands there */

/* A big-endian number of at most 8 bytes, all of which are there. */
uint64_t wf_big_endian(const uint8_t *bytes, size_t size);

#endif
