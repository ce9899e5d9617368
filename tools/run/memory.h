/* memory.h - a rank's own weights in one region: allocation, placement, what it has cost.
 *
 * All tensors of a layout one after the other, each at a multiple of WF_TENSOR_ALIGN, in one memfd
 * (so that peers can map it) or in anonymous memory (transport.share_memory: false). Every page is
 * touched when it is made: memory that is granted and missing later is found here, not in a round.
 */
#ifndef WEFT_TOOLS_RUN_MEMORY_H
#define WEFT_TOOLS_RUN_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/rank.h"
#include "models/layout.h"
#include "runtime/status.h"
#include "transports/transport.h"

enum { WF_TENSOR_ALIGN = 4096 };

struct wf_run_memory {
    struct wf_region region;
    struct wf_rank_tensor *tensors; /* one for each tensor of the layout, in its order */
    uint32_t tensor_count;
};

enum wf_status wf_run_memory_new(const struct wf_layout *layout, bool shared,
                                 struct wf_run_memory *memory_out, struct wf_error *error);
void wf_run_memory_fini(struct wf_run_memory *memory);

/* Bytes of memory that this process has made now: anonymous pages, and memfds that it maps writable
 * (weights, snapshots; a peer's are mapped read-only). */
uint64_t wf_run_own_bytes(void);

#endif
