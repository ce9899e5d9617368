/* digest.h - digests of an edge: what origin and reader compute over the same boxes.
 *
 * A chunk is WF_DIGEST_CHUNK_BYTES of an op's box in row-major order, in the target's dtype (the
 * last chunk of an op is shorter). Chunks are counted through the ops of an edge in order. A
 * chunk's digest is wf_box_digest over it; the edge's sum is the sum of H(op, chunk, digest), each
 * half modulo 2^64, with H = XXH3-128 over three little-endian 64-bit integers and `chunk` counted
 * within its op. Chunks may be computed in any order and by several threads on disjoint ranges.
 */
#ifndef WEFT_ACTORS_DIGEST_H
#define WEFT_ACTORS_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/plan.h"
#include "models/hash.h"

enum {
    WF_DIGEST_CHUNK_BYTES = 1 << 20,
    WF_DIGEST_GRAIN = 8, /* chunks of one job */
};

/* What is digested: a box of a source tensor and of a target tensor, in the target's dtype. */
struct wf_digest_box {
    const struct wf_box *box; /* borrows */
    uint32_t src_tensor, dst_tensor;
    enum wf_dtype src_dtype, dst_dtype;
};

struct wf_digests {
    struct wf_digest_box *boxes; /* by op; owned */
    uint32_t op_count;
    uint64_t *first_chunk; /* of each op, then the total: op_count + 1 entries */
    uint64_t *chunks;      /* the digests */
};

/* Gives *digests_out (free it with wf_digests_free) for the ops of an edge between ranks of these
 * layouts; borrows the ops' boxes. NO_MEMORY. */
enum wf_status wf_digests_new(const struct wf_op *ops, uint32_t op_count,
                              const struct wf_layout *src, const struct wf_layout *dst,
                              struct wf_digests **digests_out, struct wf_error *error);
/* The same for a list of boxes; takes the list (malloc'd), also on failure. */
enum wf_status wf_digests_new_boxes(struct wf_digest_box *boxes, uint32_t count,
                                    struct wf_digests **digests_out, struct wf_error *error);
void wf_digests_free(struct wf_digests *digests); /* NULL is fine */
uint64_t wf_digests_count(const struct wf_digests *digests);
/* Chunks [first, first + count) from one side's memory; `tensors` by that side's tensor index. */
void wf_digests_compute(struct wf_digests *digests, bool side_dst, void *const *tensors,
                        uint64_t first, uint64_t count);
struct wf_hash wf_digests_sum(const struct wf_digests *digests);
/* The op that chunk `index` belongs to, and its number within the op. */
uint32_t wf_digests_op(const struct wf_digests *digests, uint64_t index, uint64_t *chunk_out);

#endif
