/* replicas.h - what several ranks of one side hold alike, and digests by which that is compared.
 *
 * Elements of a parameter that stand on several ranks (data-parallel copies, norms and routers on
 * every rank of a tensor-parallel group, kv heads that are repeated, the engines of a group,
 * redundant experts) must have the same bytes everywhere; which copy is read would matter
 * otherwise. From the layouts of a side follow its *groups*: lists of element sets that the same
 * ranks hold in one type. Every rank derives the same groups from the same layouts, so two ranks
 * need to exchange one sum a group, and, where those differ, the sums of halves of it.
 *
 * A rank's chunks are those of digest.h, over its boxes of all its groups, in the order of
 * parameters within a group; a group's chunks are counted from 0. What stands twice on the rank
 * itself is compared there.
 *
 * Left out: padding, which belongs to no parameter; codes and scales on train ranks, which are made
 * of matrices that are compared (models/prepare.h); sets that some rank's piece shows only in
 * several boxes, of which `unseen` counts the elements (no layout that Weft derives has any).
 *
 * Pure, apart from the memory that is digested. Any thread, one at a time; wf_replicas_compute on
 * disjoint ranges from several.
 */
#ifndef WEFT_ACTORS_REPLICAS_H
#define WEFT_ACTORS_REPLICAS_H

#include <stdint.h>

#include "actors/digest.h"
#include "models/config.h"
#include "models/hash.h"
#include "models/layout.h"

struct wf_replicas;

struct wf_replicas_input {
    const struct wf_model *model; /* borrows for the call */
    /* Of the ranks of one side, by rank: source layouts of train ranks (models/prepare.h), own ones
     * of infer ranks. Equal ones may be one pointer. Borrows for the call. */
    struct wf_layout *const *layouts;
    uint32_t rank_count, rank;
    enum wf_side side;
    const struct wf_layout *own; /* the rank's own tensors; borrows for the call */
};

/* A group that the rank is in. */
struct wf_replicas_group {
    uint32_t id; /* the same at all ranks that are in it; ascending */
    uint32_t chunks;
    uint32_t ranks; /* that hold it, this one too */
};

/* Gives *out (wf_replicas_free). INVALID, NO_MEMORY, UNSUPPORTED as the planner. */
enum wf_status wf_replicas_new(const struct wf_replicas_input *input, struct wf_replicas **out,
                               struct wf_error *error);
void wf_replicas_free(struct wf_replicas *replicas); /* NULL is fine */

const struct wf_replicas_group *wf_replicas_groups(const struct wf_replicas *replicas,
                                                   uint32_t *count_out);
uint64_t wf_replicas_unseen(const struct wf_replicas *replicas);
/* Chunks to compute: those of all groups, and those of second copies. */
uint64_t wf_replicas_chunks(const struct wf_replicas *replicas);
/* `tensors`: addresses by the index in `own`. */
void wf_replicas_compute(struct wf_replicas *replicas, void *const *tensors, uint64_t first,
                         uint64_t count);

/* Afterwards. The sum over chunks [first, first + count) of a group, cut at its end. False: the
 * rank is not in that group. */
bool wf_replicas_sum(const struct wf_replicas *replicas, uint32_t group, uint64_t first,
                     uint64_t count, struct wf_hash *sum_out);
/* Some elements of one chunk of a group. */
struct wf_replicas_part {
    uint32_t group;
    uint64_t chunk;
    uint64_t first, count; /* elements, counted in the chunk; count 0: all of it */
};
/* Elements of the chunk; 0: there is none. */
uint64_t wf_replicas_elements(const struct wf_replicas *replicas, uint32_t group, uint64_t chunk);
/* Digests them now, at most a chunk's bytes; `tensors` as for wf_replicas_compute. False: there are
 * none. */
bool wf_replicas_part_sum(const struct wf_replicas *replicas, void *const *tensors,
                          struct wf_replicas_part part, struct wf_hash *sum_out);
/* "model.norm.weight, elements 0..1023, in final_layernorm.weight" ("element 7" of one); `own` as
 * in the input. Empty: there are none. */
void wf_replicas_describe(const struct wf_replicas *replicas, const struct wf_model *model,
                          const struct wf_layout *own, struct wf_replicas_part part, char *text,
                          size_t bytes);
/* False: what stands twice on this rank is the same. True: the first place where it is not, as
 * "model.embed_tokens.weight, elements 0..1023, in A and in B". */
bool wf_replicas_own_differ(const struct wf_replicas *replicas, const struct wf_model *model,
                            const struct wf_layout *own, char *text, size_t bytes);

#endif
