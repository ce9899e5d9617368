/* pool.c - a free list over one block of memory. */
#include "runtime/pool.h"

#include <stdlib.h>
#include <string.h>

#define TAKEN SIZE_MAX

enum { ALIGNMENT = 64 };

enum wf_status wf_pool_init(struct wf_pool *pool, const char *name, size_t size_bytes, size_t count,
                            struct wf_error *error)
{
    WF_ASSERT(size_bytes > 0 && count > 0);
    struct wf_pool made = {.name = name, .count = count};
    size_t bytes;
    /* The first test keeps the rounding up from wrapping. */
    if (size_bytes < WF_POOL_BYTES_MAX) {
        made.stride = (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        if (!__builtin_mul_overflow(made.stride, count, &bytes) && bytes <= WF_POOL_BYTES_MAX) {
            made.memory = aligned_alloc(ALIGNMENT, bytes);
            made.next_free = calloc(count, sizeof *made.next_free);
        }
    }
    if (made.memory == NULL || made.next_free == NULL) {
        free(made.memory);
        free(made.next_free);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %zu %s of %zu bytes", count, name,
                            size_bytes);
    }
    memset(made.memory, 0, bytes);
    for (size_t i = 0; i < count; i++) {
        made.next_free[i] = i + 1;
    }
    *pool = made;
    return WF_OK;
}

void wf_pool_fini(struct wf_pool *pool)
{
    WF_ASSERT(pool->in_use == 0);
    free(pool->memory);
    free(pool->next_free);
    *pool = (struct wf_pool){0};
}

enum wf_status wf_pool_take(struct wf_pool *pool, void **object_out, struct wf_error *error)
{
    size_t index = pool->first_free;
    if (index == pool->count) {
        return wf_error_set(error, WF_NO_RESOURCE, "all %zu %s are in use", pool->count,
                            pool->name);
    }
    pool->first_free = pool->next_free[index];
    pool->next_free[index] = TAKEN;
    pool->in_use++;
    *object_out = pool->memory + index * pool->stride;
    return WF_OK;
}

void wf_pool_give(struct wf_pool *pool, void *object)
{
    size_t offset = (size_t)((char *)object - pool->memory), index = offset / pool->stride;
    WF_ASSERT(index < pool->count && offset % pool->stride == 0);
    WF_ASSERT(pool->next_free[index] == TAKEN); /* given back twice */
    pool->next_free[index] = pool->first_free;
    pool->first_free = index;
    pool->in_use--;
}
