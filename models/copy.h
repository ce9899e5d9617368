/* copy.h - the copy engine: strided boxes, with a cast on the way. Pure; any thread.
 *
 * One pass: each source byte is read once and each destination byte written once. Long inner runs
 * go as runs (with streaming stores where the run and the whole are large); boxes whose inner runs
 * are short, or whose sides order the axes differently (a transpose), are tiled.
 */
#ifndef WEFT_MODELS_COPY_H
#define WEFT_MODELS_COPY_H

#include <stddef.h>
#include <stdint.h>

#include "models/dtype.h"
#include "models/piece.h"

struct wf_copy_part {
    uint64_t first, count; /* elements of the box in row-major order of its axes */
};

/* Copies elements [part.first, part.first + part.count) of the box from src_base to dst_base,
 * casting src_dtype to dst_dtype by casts.h. The caller has checked that the box lies inside both
 * buffers (wf_box_within) and the part inside the box (asserted). The buffers do not overlap. Boxes
 * of more than 256 KiB are stored past the caches; they are visible to other threads on return. */
void wf_copy_box(const struct wf_box *box, const void *src_base, enum wf_dtype src_dtype,
                 void *dst_base, enum wf_dtype dst_dtype, struct wf_copy_part part);

/* wf_copy_box without stores past the caches: for results that are read at once. */
void wf_copy_box_cached(const struct wf_box *box, const void *src_base, enum wf_dtype src_dtype,
                        void *dst_base, enum wf_dtype dst_dtype, struct wf_copy_part part);

/* True if every byte the box touches lies inside [0, src_bytes) and [0, dst_bytes), no axis is
 * empty and `elements` is the product of the counts. Never overflows: boxes also come from peers.
 */
bool wf_box_within(const struct wf_box *box, uint32_t src_elem_bytes, uint64_t src_bytes,
                   uint32_t dst_elem_bytes, uint64_t dst_bytes);

/* XXH3-64 of elements [part] of one side of the box in row-major order, as they would be after a
 * cast to `as_dtype`: what the origin and the reader both compute (a digest does not depend on
 * strides). `side_dst` false: read by src steps from base with dtype `dtype`. */
uint64_t wf_box_digest(const struct wf_box *box, bool side_dst, const void *base,
                       enum wf_dtype dtype, enum wf_dtype as_dtype, struct wf_copy_part part);

/* Bytes [*first_out, *end_out) of the source, in which all that a part reads lies: the least and
 * the last of its places if the part is whole along its inner axes, otherwise somewhat more, but
 * never beyond the box. The part is not empty and lies inside the box. */
void wf_box_source_span(const struct wf_box *box, uint32_t elem_bytes, struct wf_copy_part part,
                        uint64_t *first_out, uint64_t *end_out);

/* Writes the fill byte over a nest's side of the tensor that lies at `base`. */
void wf_fill_nest(const struct wf_nest *nest, void *base, uint8_t byte);

#endif
