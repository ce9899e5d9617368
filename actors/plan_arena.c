/* plan_arena.c - the planner's memory: handed out in blocks, freed all at once. */
#include <stdlib.h>
#include <string.h>

#include "actors/plan_parts.h"

enum { BLOCK_BYTES_MIN = 256 << 10, ALIGN_BYTES = 16 };

struct wf_plan_block {
    struct wf_plan_block *older;
    _Alignas(16) unsigned char bytes[];
};

void *wf_plan_alloc(struct wf_plan_arena *arena, size_t count, size_t bytes_each)
{
    size_t bytes;
    if (arena->failed || __builtin_mul_overflow(count, bytes_each, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)ALIGN_BYTES, &bytes)) {
        arena->failed = true;
        return NULL;
    }
    bytes = (bytes - 1) / ALIGN_BYTES * ALIGN_BYTES; /* rounded up; at least 0 */
    if (bytes > arena->size - arena->used || arena->blocks == NULL) {
        size_t size = bytes > BLOCK_BYTES_MIN ? bytes : BLOCK_BYTES_MIN;
        struct wf_plan_block *block = calloc(1, sizeof *block + size);
        if (block == NULL) {
            arena->failed = true;
            return NULL;
        }
        block->older = arena->blocks;
        arena->blocks = block;
        arena->used = 0;
        arena->size = size;
    }
    void *memory = arena->blocks->bytes + arena->used;
    arena->used += bytes;
    return memory;
}

void *wf_plan_grow(struct wf_plan_arena *arena, void *array, uint32_t *capacity, uint64_t needed,
                   size_t bytes_each)
{
    if (array != NULL && needed <= *capacity) {
        return array;
    }
    uint64_t wanted = needed > 2 * (uint64_t)*capacity ? needed : 2 * (uint64_t)*capacity;
    wanted = wanted < 8 ? 8 : wanted;
    if (wanted > UINT32_MAX) {
        arena->failed = true;
        return NULL;
    }
    void *larger = wf_plan_alloc(arena, wanted, bytes_each);
    if (larger == NULL) {
        return NULL;
    }
    if (array != NULL) {
        memcpy(larger, array, (size_t)*capacity * bytes_each);
    }
    *capacity = (uint32_t)wanted;
    return larger;
}

void wf_plan_arena_reset(struct wf_plan_arena *arena)
{
    struct wf_plan_block *newest = arena->blocks;
    while (newest != NULL && newest->older != NULL) {
        struct wf_plan_block *older = newest->older;
        newest->older = older->older;
        free(older);
    }
    if (newest != NULL) {
        memset(newest->bytes, 0, arena->used); /* what is handed out is zeroed */
    }
    arena->used = 0;
}

void wf_plan_arena_free(struct wf_plan_arena *arena)
{
    while (arena->blocks != NULL) {
        struct wf_plan_block *older = arena->blocks->older;
        free(arena->blocks);
        arena->blocks = older;
    }
    *arena = (struct wf_plan_arena){0};
}

enum wf_status wf_plan_no_memory(struct wf_error *error)
{
    return wf_error_set(error, WF_NO_MEMORY,
                        "not enough memory to make the plan, or more than 2^32 boxes in it");
}
