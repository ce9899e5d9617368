/* plan_casts.h - which tensors a train rank casts once, for all who would have them cast each.
 *
 * Over a network the narrower of an op's two types travels, whoever casts. What differs is how
 * often the origin does it: a trainer in f32 whose bf16 engines stream from it casts every element
 * once a reader, packs it, and cannot be read one-sidedly. So where several readers want elements
 * of a tensor in a narrower type, the plan may have the origin make them once, after GRANT and
 * before it answers (as what models/prepare.h makes), in a cast tensor: the elements of the tensor
 * from the first to the last that those readers read, in the order of its memory. Whoever reads
 * them reads them there, the rest casts while it moves. The values are the same either way.
 *
 * It takes memory, so the job bounds it (wf_plan_policy): of each train rank's tensors those go
 * first that save most casts for each byte. When no other fits, a tensor that is larger than what
 * is left of the budget has its first elements cast, if that pays: up to the end of the last op
 * that lies in them whole. So it does where readers cut rows (vocabulary, column-parallel matrices,
 * stacked experts), and not where an op spans the tensor. Readers that see the origin's pages cast
 * in the one pass that copies: they do not count, but read what is made for others.
 *
 * The ops of a plan, its proof and its digests are about the tensors as they are held: the origin
 * digests its own values, so that a cast tensor that is not of the version, or wrong, is found as
 * any wrong byte is. Only where an op's bytes come from is another place, by wf_plan_cast_read,
 * which both ends call. Casts follow from the plan and the policy alone; a plan by tables of
 * experts has the casts of the plan by rule.
 *
 * Pure.
 */
#ifndef WEFT_ACTORS_PLAN_CASTS_H
#define WEFT_ACTORS_PLAN_CASTS_H

#include "actors/plan.h"

/* Of a train rank. It is a tensor behind those of its source layout: the first of a rank's casts
 * has number layout->tensor_count, the next one more. */
struct wf_plan_cast {
    uint32_t src_rank, tensor; /* what is cast, in the source layout */
    enum wf_dtype from, to;
    uint64_t first, elements; /* of the tensor's memory */
    uint64_t saved;           /* elements that the origin would have cast more than that */
};

/* What the plan would have cast once if memory were no matter: what is there and not in the plan
 * did not fit; what is not there has too few readers. *casts_out is malloc'd (NULL: none);
 * *budget_out: the least wf_plan_policy.cast_bytes_max with which the plan has all of them. */
enum wf_status wf_plan_casts_wanted(const struct wf_plan_input *input, const struct wf_plan *plan,
                                    struct wf_plan_cast **casts_out, uint32_t *count_out,
                                    uint64_t *budget_out, struct wf_error *error);
/* A rank's casts; gives how many. */
uint32_t wf_plan_casts_of(const struct wf_plan *plan, uint32_t src_rank,
                          const struct wf_plan_cast **first_out);
/* Bytes of the first `count` of a rank's casts, one behind the other at multiples of 64: where the
 * next one lies. */
uint64_t wf_plan_cast_bytes(const struct wf_plan_cast *casts, uint32_t count);
/* What an op of the edge (between ranks with these layouts) reads, if that is a cast tensor:
 * *read_out is the op with its number and the box in it. Else NULL, and nothing is written.
 * `read_out` may be NULL. */
const struct wf_plan_cast *wf_plan_cast_read(const struct wf_plan *plan,
                                             const struct wf_layout *src,
                                             const struct wf_layout *dst, uint32_t src_rank,
                                             const struct wf_op *op, struct wf_op *read_out);

#endif
