/* memory.h - memory that is claimed at start: mapped, touched, and shareable if wanted.
 *
 * Fresh pages cost seven times a copy, and a full shared-memory mount or control group shows only
 * at the first touch, so every buffer of the data path comes from here before the first round.
 * Shareable memory is a memfd sealed against shrinking and growing, as the shm transport wants it.
 * Huge pages are asked for in both kinds: they read a fifth faster, and a peer maps them at once.
 * Getting them for a memfd costs about as much as the first touch.
 */
#ifndef WEFT_TRANSPORTS_MEMORY_H
#define WEFT_TRANSPORTS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/env.h"
#include "runtime/status.h"
#include "transports/transport.h"

/* Zeroed, page-aligned, all pages present. `name` appears in /proc for shareable memory. len_bytes
 * > 0. NO_MEMORY says how much was asked for and what refused. Free with wf_memory_free. */
enum wf_status wf_memory_new(const char *name, uint64_t len_bytes, bool shareable,
                             struct wf_region *region_out, struct wf_error *error);
/* Maps `len_bytes` of fd from `offset` on (a multiple of the page size; fd -1: anonymous memory) at
 * an address where huge pages of the file can be mapped as such. `protection` and `flags` are
 * mmap's. NULL with errno set. */
void *wf_memory_map(int fd, uint64_t offset, uint64_t len_bytes, int protection, int flags);
/* Unmaps, closes, zeroes *region. A zeroed region is fine. */
void wf_memory_free(struct wf_region *region);
/* The same as a job of `env`, because to give gigabytes back takes as long as a lease may be short;
 * zeroes *region at once. For the thread of env's loop. */
void wf_memory_retire(struct wf_env *env, struct wf_region *region);

#endif
