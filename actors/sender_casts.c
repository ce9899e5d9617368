/* sender_casts.c - what the plan has this rank cast once: its places, and the work.
 *
 * Cast tensors are numbered behind the source layout's tensors. They lie in a region of their own,
 * the slot's last, which comes and goes with the plan: so offers of the slot are made anew then,
 * and readers who have the old ones belong to an old plan.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/sender.h"
#include "models/copy.h"

enum { ITEM_ELEMENTS = 1 << 20 };

static uint32_t tensor_count(const struct wf_sender *sender)
{
    return wf_rank_source(sender->rank)->tensor_count;
}

/* --- places ------------------------------------------------------------------------------------
 */

/* The slot's own regions, and behind them what is cast. */
static void list_regions(struct wf_sender *sender, uint32_t index)
{
    struct sender_slot *slot = &sender->slots[index];
    sender_slots_withdraw(sender, slot);
    free(slot->list_with_casts);
    slot->list_with_casts = NULL;
    slot->regions = slot->own_regions;
    slot->region_count = slot->own_count;
    if (sender->cast_memory == NULL) {
        return;
    }
    slot->list_with_casts = calloc(slot->own_count + 1ull, sizeof *slot->list_with_casts);
    WF_ASSERT(slot->list_with_casts != NULL);
    memcpy(slot->list_with_casts, slot->own_regions, slot->own_count * sizeof *slot->own_regions);
    slot->list_with_casts[slot->own_count] = sender->cast_memory->slots[index];
    slot->regions = slot->list_with_casts;
    slot->region_count = slot->own_count + 1;
}

/* A bounded number of small allocations at start: without them the rank cannot serve at all. */
static void list_places(struct wf_sender *sender, uint32_t index)
{
    struct sender_slot *slot = &sender->slots[index];
    uint32_t first = tensor_count(sender), all = first + sender->cast_count;
    slot->places = reallocarray(slot->places, all + 1ull, sizeof *slot->places);
    slot->tensors = reallocarray(slot->tensors, all + 1ull, sizeof *slot->tensors);
    WF_ASSERT(slot->places != NULL && slot->tensors != NULL);
    for (uint32_t i = 0; i < sender->cast_count; i++) {
        const struct wf_plan_cast *cast = &sender->casts[i];
        uint64_t offset = wf_plan_cast_bytes(sender->casts, i);
        slot->places[first + i] = (struct wf_el_place){slot->own_count, offset,
                                                       cast->elements * wf_dtype_bytes(cast->to)};
        slot->tensors[first + i] = (uint8_t *)sender->cast_memory->slots[index].address + offset;
    }
}

static void count_items(struct wf_sender *sender)
{
    free(sender->cast_first);
    sender->cast_first = calloc(sender->cast_count + 1ull, sizeof *sender->cast_first);
    WF_ASSERT(sender->cast_first != NULL);
    for (uint32_t i = 0; i < sender->cast_count; i++) {
        uint64_t elements = sender->casts[i].elements;
        sender->cast_first[i + 1] = sender->cast_first[i] + (uint32_t)(elements / ITEM_ELEMENTS) +
                                    (elements % ITEM_ELEMENTS != 0);
    }
}

void sender_casts_plan(struct wf_sender *sender)
{
    const struct wf_agreed *agreed = sender->agreed;
    struct wf_cast_memory *memory = agreed != NULL ? agreed->cast_memory : NULL;
    sender->casts = NULL;
    sender->cast_count = 0;
    if (memory != NULL) {
        sender->cast_count =
            wf_plan_casts_of(agreed->plan, sender->rank->options.rank, &sender->casts);
    }
    bool same = memory == sender->cast_memory;
    struct wf_cast_memory *before = sender->cast_memory;
    sender->cast_memory = wf_cast_memory_hold(memory);
    for (uint32_t i = 0; i < SENDER_SLOTS; i++) {
        if (sender->slots[i].own_count > 0) {
            if (!same) {
                list_regions(sender, i);
            }
            list_places(sender, i);
        }
    }
    wf_cast_memory_release(before);
    count_items(sender);
}

/* --- work --------------------------------------------------------------------------------------
 */

uint32_t sender_casts_items(const struct wf_sender *sender)
{
    return sender->cast_first != NULL ? sender->cast_first[sender->cast_count] : 0;
}

void sender_casts_run(const struct wf_sender *sender, void *const *tensors, uint32_t item)
{
    uint32_t low = 0, high = sender->cast_count; /* cast_first[low] <= item < cast_first[high] */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        low = sender->cast_first[middle] <= item ? middle : low;
        high = sender->cast_first[middle] <= item ? high : middle;
    }
    const struct wf_plan_cast *cast = &sender->casts[low];
    uint64_t wide = wf_dtype_bytes(cast->from), narrow = wf_dtype_bytes(cast->to);
    uint64_t first = (uint64_t)(item - sender->cast_first[low]) * ITEM_ELEMENTS;
    uint64_t left = cast->elements - first;
    struct wf_box run = {.elements = cast->elements,
                         .axis_count = 1,
                         .axes = {{cast->elements, (int64_t)wide, (int64_t)narrow}}};
    wf_copy_box(&run, (const uint8_t *)tensors[cast->tensor] + cast->first * wide, cast->from,
                tensors[tensor_count(sender) + low], cast->to,
                (struct wf_copy_part){first, left < ITEM_ELEMENTS ? left : ITEM_ELEMENTS});
}

void sender_casts_fini(struct wf_sender *sender)
{
    for (int i = 0; i < SENDER_SLOTS; i++) {
        free(sender->slots[i].list_with_casts);
    }
    wf_cast_memory_release(sender->cast_memory);
    free(sender->cast_first);
}
