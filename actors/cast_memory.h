/* cast_memory.h - where a train rank casts ahead what its plan says (actors/plan_casts.h).
 *
 * Claimed with the plan, off the loop's thread, because touching gigabytes takes longer than a
 * lease; and kept for plans that need no more, so that readers' mappings last. Private to actors/.
 */
#ifndef WEFT_ACTORS_CAST_MEMORY_H
#define WEFT_ACTORS_CAST_MEMORY_H

#include "actors/plan_casts.h"
#include "transports/transport.h"

enum { WF_CAST_SLOTS = 2 };

struct wf_cast_memory {
    uint32_t references;
    struct wf_env *env;  /* borrows: its jobs unmap what the loop is the last to let go of */
    uint32_t slot_count; /* as many as the rank gives readers */
    struct wf_region slots[WF_CAST_SLOTS];
};

/* Memory for what `src_rank` casts, for each slot: *kept again if that is large enough, else new,
 * which takes the place of *kept (held apart from what is given). NULL where the rank casts
 * nothing. NO_MEMORY; NO_RESOURCE: with its tensors they are more than can be told to readers. Pool
 * thread, not for one `kept` at once; `env` is the rank's. */
enum wf_status wf_cast_memory_claim(struct wf_env *env, const struct wf_plan *plan,
                                    uint32_t src_rank, uint32_t tensor_count, uint32_t slot_count,
                                    struct wf_cast_memory **kept, struct wf_cast_memory **out,
                                    struct wf_error *error);
struct wf_cast_memory *wf_cast_memory_hold(struct wf_cast_memory *memory); /* NULL is fine */
/* NULL is fine; loop thread: it is unmapped by a job. */
void wf_cast_memory_release(struct wf_cast_memory *memory);

#endif
