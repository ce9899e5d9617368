/* validator.h - the request that the Receiver gives to the Validator. Private to actors/.
 *
 * The Validator reads back the memory that was written, digests it as the origins did, and says
 * which edges differ. It touches nothing else and keeps nothing.
 */
#ifndef WEFT_ACTORS_VALIDATOR_H
#define WEFT_ACTORS_VALIDATOR_H

#include "actors/digest.h"
#include "actors/local.h"

enum { WF_VALIDATE = 0x350, WF_VALIDATED };

struct wf_validation_edge {
    struct wf_digests *digests; /* borrows; its chunks are computed here */
    uint64_t origin_chunks;     /* what the origin said */
    struct wf_hash origin_sum;
    uint64_t first_item; /* the Validator's */
    bool matches;        /* the answer */
};

/* Caller-owned until WF_VALIDATED comes back in the same message. One at a time. */
struct wf_validation {
    struct wf_msg msg; /* kind WF_VALIDATE; release NULL */
    struct wf_actor *reply_to;
    struct wf_validation_edge *edges;
    uint32_t edge_count;
    void *const *tensors; /* the written memory, by the rank's layout tensors */
    bool cancelled;       /* set by the caller, on the loop's thread: end soon, without an answer */
};

/* The first chunk, from index `first` on, that differs from the origin's list, which begins with
 * chunk `first`; UINT64_MAX if none does. *different_out counts all that do. The origin's entries
 * must be numbered as ours are: one that is not counts as different. */
uint64_t wf_validator_compare(const struct wf_digests *digests, uint64_t first,
                              const struct wf_el_chunk *origin, uint32_t count,
                              uint64_t *different_out);

#endif
