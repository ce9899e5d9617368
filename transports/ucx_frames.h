/* ucx_frames.h - what readers and sources say to each other over UCX. Pure. Private to
 * transports/ucx*.c and its tests.
 *
 * Each message is an active message: a fixed head (little-endian) and a body.
 *
 *   reader -> source                    source -> reader
 *   HELLO  body: the reader's address   WELCOME
 *   OPEN   a region and its length      OPENED
 *   CHUNK  body: slices                 DATA  body: the slices' elements, one after another
 *   BYE    nothing more will be asked
 *
 * OPENED's body is empty, or the address of the region (8 bytes) and UCX's key to it, for readers
 * that can read it by themselves.
 *
 * Answers carry the tag of what they answer and a status; when that is not OK their body is a
 * sentence. A head names the source's life and the reader's life (random numbers of 16 bytes), so
 * that nothing of an earlier life is ever taken for this one's. A reader may connect again within
 * its life: the tag of HELLO and BYE is the connection's number, which only grows, because what is
 * said on two connections may overtake each other.
 *
 * A chunk asked for in parts is answered by several DATA, each small enough for one message of the
 * transport below, in any order, together the whole; no element is cut in two. Otherwise one DATA
 * is the answer, by rendezvous when it is large. An answer that is not OK ends the chunk.
 *
 * DATA with TIMED_OUT: the request was kept for as long as it may be, and the reader asks again.
 *
 * A slice is a range of elements of a strided box in one region, in row-major order, cast to the
 * wire's dtype. Whoever reads a slice from a peer checks it with ucx_slice_box before use.
 */
#ifndef WEFT_TRANSPORTS_UCX_FRAMES_H
#define WEFT_TRANSPORTS_UCX_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/copy.h"
#include "models/dtype.h"
#include "runtime/status.h"
#include "transports/transport.h"

enum {
    UCX_LIFE_BYTES = 16,
    UCX_HEAD_BYTES = 4 + 4 + 8 + 4 * 4 + 2 * 8 + 2 * UCX_LIFE_BYTES,
    UCX_SLICE_FIXED_BYTES = 36,
    UCX_SLICE_MAX_BYTES = UCX_SLICE_FIXED_BYTES + 16 * WF_AXES_MAX,
    UCX_BODY_MAX = 16 << 10, /* of a request */
    UCX_TEXT_MAX = 240,
    UCX_ANSWER_MAX = 1024, /* body of a small answer: a sentence, or OPENED's key */
};

enum ucx_kind {
    UCX_HELLO = 1,
    UCX_WELCOME,
    UCX_OPEN,
    UCX_OPENED,
    UCX_CHUNK,
    UCX_DATA,
    UCX_BYE,
    UCX_KIND_LIMIT
};

struct ucx_head {
    uint8_t kind;               /* enum ucx_kind */
    uint8_t lane;               /* CHUNK: where the answer goes; HELLO: how many there are */
    uint32_t status;            /* answers: enum wf_status */
    uint32_t count;             /* CHUNK: slices */
    uint8_t in_parts;           /* CHUNK: the answer is to come in parts (0 or 1) */
    uint32_t timeout_ms;        /* CHUNK: after that nobody wants the answer */
    uint32_t offset;            /* DATA: in the chunk, of the part that is the body */
    uint64_t tag;               /* the asker's; HELLO, BYE: the connection's number */
    uint64_t region, len_bytes; /* OPEN: both; CHUNK: len_bytes of the answer's body */
    uint8_t source[UCX_LIFE_BYTES], reader[UCX_LIFE_BYTES];
};

void ucx_head_encode(const struct ucx_head *head, uint8_t bytes_out[static UCX_HEAD_BYTES]);
/* False: these bytes are no head of this version. */
bool ucx_head_decode(const void *bytes, size_t len, struct ucx_head *head_out);

struct ucx_slice {
    uint64_t region;
    uint64_t offset;           /* of the box's first element in the region */
    uint64_t first, count;     /* elements of the box */
    uint8_t dtype, wire_dtype; /* enum wf_dtype */
    uint8_t axis_count;
    struct {
        uint64_t count;
        int64_t step; /* bytes */
    } axes[WF_AXES_MAX];
};

/* Writes at most UCX_SLICE_MAX_BYTES; returns how many. */
size_t ucx_slice_encode(const struct ucx_slice *slice, uint8_t *bytes_out);
/* Reads one from the front of `bytes`; returns its length, 0 if there is none. */
size_t ucx_slice_decode(const uint8_t *bytes, size_t len, struct ucx_slice *slice_out);

/* The slice's box with a dense destination in the wire's dtype. INVALID (with a sentence) unless
 * every byte it touches lies within the region's `len_bytes`, the cast exists, the range lies in
 * the box and has at least one element. */
enum wf_status ucx_slice_box(const struct ucx_slice *slice, uint64_t len_bytes,
                             struct wf_box *box_out, struct wf_error *error);

/* How many elements from element `first` on lie one after another on one side of a box. */
uint64_t ucx_box_run(const struct wf_box *box, bool side_dst, uint64_t elem_bytes, uint64_t first);
/* The byte offset of an element on one side. */
uint64_t ucx_box_offset(const struct wf_box *box, bool side_dst, uint64_t element);

/* --- handles -----------------------------------------------------------------------------------
 */

struct ucx_handle {
    uint8_t life[UCX_LIFE_BYTES]; /* the source's */
    uint64_t host;                /* hash of its host's name */
    uint64_t pid, pid_start;      /* for whoever is on the same host */
    uint64_t region, len_bytes;
    uint32_t address_len;
    const uint8_t *address; /* of its worker; in the handle */
};

/* UNSUPPORTED: the address does not fit. */
enum wf_status ucx_handle_encode(const struct ucx_handle *from, struct wf_handle *handle_out,
                                 struct wf_error *error);
enum wf_status ucx_handle_decode(const struct wf_handle *handle, struct ucx_handle *to_out,
                                 struct wf_error *error);

#endif
