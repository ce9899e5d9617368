/* cast_memory.c - claims and counts references. */
#include "actors/cast_memory.h"

#include <stdlib.h>

#include "actors/messages.h"
#include "transports/memory.h"

struct wf_cast_memory *wf_cast_memory_hold(struct wf_cast_memory *memory)
{
    if (memory != NULL) {
        __atomic_fetch_add(&memory->references, 1, __ATOMIC_RELAXED);
    }
    return memory;
}

static bool is_last(struct wf_cast_memory *memory)
{
    return memory != NULL && __atomic_fetch_sub(&memory->references, 1, __ATOMIC_ACQ_REL) == 1;
}

void wf_cast_memory_release(struct wf_cast_memory *memory)
{
    if (is_last(memory)) {
        for (uint32_t i = 0; i < WF_CAST_SLOTS; i++) {
            wf_memory_retire(memory->env, &memory->slots[i]);
        }
        free(memory);
    }
}

/* Pool thread. */
static void release_here(struct wf_cast_memory *memory)
{
    if (is_last(memory)) {
        for (uint32_t i = 0; i < WF_CAST_SLOTS; i++) {
            wf_memory_free(&memory->slots[i]);
        }
        free(memory);
    }
}

static enum wf_status make(struct wf_env *env, uint64_t bytes, uint32_t slot_count,
                           struct wf_cast_memory **out, struct wf_error *error)
{
    struct wf_cast_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for what is cast ahead");
    }
    memory->references = 1;
    memory->env = env;
    memory->slot_count = slot_count;
    for (uint32_t i = 0; i < slot_count; i++) {
        enum wf_status status = wf_memory_new("weft-cast", bytes, true, &memory->slots[i], error);
        if (status != WF_OK) {
            release_here(memory);
            wf_error_prefix(error, "what is cast ahead (give transport.transit_budget less)");
            return status;
        }
    }
    *out = memory;
    return WF_OK;
}

enum wf_status wf_cast_memory_claim(struct wf_env *env, const struct wf_plan *plan,
                                    uint32_t src_rank, uint32_t tensor_count, uint32_t slot_count,
                                    struct wf_cast_memory **kept, struct wf_cast_memory **out,
                                    struct wf_error *error)
{
    const struct wf_plan_cast *casts;
    uint32_t count = wf_plan_casts_of(plan, src_rank, &casts);
    *out = NULL;
    if (count == 0) {
        return WF_OK;
    }
    if (count > WF_PLACES_MAX - tensor_count) {
        return wf_error_set(error, WF_NO_RESOURCE,
                            "train rank %u has %u tensors and casts %u of them ahead: expected at "
                            "most %d together; give transport.transit_budget less",
                            src_rank, tensor_count, count, WF_PLACES_MAX);
    }
    uint64_t bytes = wf_plan_cast_bytes(casts, count);
    if (*kept == NULL || (*kept)->slots[0].len_bytes < bytes || (*kept)->slot_count != slot_count) {
        struct wf_cast_memory *made = NULL;
        enum wf_status status = make(env, bytes, slot_count, &made, error);
        if (status != WF_OK) {
            return status;
        }
        release_here(*kept);
        *kept = made;
    }
    *out = wf_cast_memory_hold(*kept);
    return WF_OK;
}
