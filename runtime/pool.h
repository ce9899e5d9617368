/* pool.h - a fixed number of objects of one size, made at start, so that the data path allocates
 * nothing. One thread. Pages are touched when the pool is made, never during a round.
 */
#ifndef WEFT_RUNTIME_POOL_H
#define WEFT_RUNTIME_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

#define WF_POOL_BYTES_MAX (UINT64_C(1) << 40) /* of one pool */

struct wf_pool {
    const char *name; /* borrows; for errors */
    char *memory;     /* owns */
    size_t stride, count, in_use;
    size_t first_free; /* index of the next object to give out, `count` when there is none */
    size_t *next_free; /* owns; per object: the next free one, or TAKEN */
};

/* `count` > 0 objects of `size_bytes` > 0, aligned for any type. NO_MEMORY: there is not enough, or
 * more than WF_POOL_BYTES_MAX was asked for. */
enum wf_status wf_pool_init(struct wf_pool *pool, const char *name, size_t size_bytes, size_t count,
                            struct wf_error *error);
/* Everything was given back. Zeroed memory is fine. */
void wf_pool_fini(struct wf_pool *pool);
/* *object_out has the bytes that it was given back with (zeroes at first). NO_RESOURCE: all are in
 * use; the error says of which pool. */
enum wf_status wf_pool_take(struct wf_pool *pool, void **object_out, struct wf_error *error);
void wf_pool_give(struct wf_pool *pool, void *object);

#endif
