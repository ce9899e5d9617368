/* config_names.c - the index of a model's parameters by name: a hash table of open addresses. */
#include <stdlib.h>
#include <string.h>

#include "models/config_private.h"
#include "runtime/pages.h"

enum { PREFETCH_AHEAD = 16, SLOTS_MIN = 16 };
#define TO_NUL SIZE_MAX

/* The slot of a name (of `len` bytes, or TO_NUL): where it stands, or the free one where it would.
 * A slot is the upper half of
 * the name's hash and the parameter's number. */
static uint64_t *find_slot(const struct wf_model *model, const char *name, size_t len,
                           uint64_t hash)
{
    const struct wf_model_memory *memory = wf_memory(model);
    for (uint32_t at = (uint32_t)hash & memory->slot_mask;; at = (at + 1) & memory->slot_mask) {
        uint64_t *slot = &memory->slots[at];
        uint32_t param = (uint32_t)*slot;
        if (param == WF_NONE) {
            return slot;
        }
        const char *known = *slot >> 32 == hash >> 32 ? model->params[param].name : NULL;
        size_t known_len = known ? strlen(known) : 0;
        if (known && known_len == (len == TO_NUL ? strlen(name) : len) &&
            memcmp(known, name, known_len) == 0) {
            return slot;
        }
    }
}

/* The table is larger than a cache: each slot is asked for some names before it is needed. */
enum wf_status wf_model_index(struct wf_model *model, const uint64_t *hashes,
                              struct wf_error *error)
{
    struct wf_model_memory *memory = wf_memory(model);
    uint32_t count = SLOTS_MIN;
    while (count < 2 * model->param_count) {
        count *= 2;
    }
    free(memory->slots);
    memory->slots = wf_pages_alloc(count * sizeof *memory->slots);
    if (!memory->slots) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for an inventory");
    }
    memset(memory->slots, 0xff, count * sizeof *memory->slots);
    memory->slot_mask = count - 1;
    for (uint32_t i = 0; i < model->param_count; i++) {
        if (i + PREFETCH_AHEAD < model->param_count) {
            __builtin_prefetch(&memory->slots[(uint32_t)hashes[i + PREFETCH_AHEAD] & (count - 1)],
                               1);
        }
        const char *name = model->params[i].name;
        uint64_t *slot = find_slot(model, name, TO_NUL, hashes[i]);
        if ((uint32_t)*slot != WF_NONE) {
            return wf_error_set(error, WF_INVALID,
                                "two rows of the family %s give a parameter the name %s",
                                model->family->name, name);
        }
        *slot = hashes[i] >> 32 << 32 | i;
    }
    return WF_OK;
}

uint32_t wf_model_find(const struct wf_model *model, const char *name, size_t len)
{
    return (uint32_t)*find_slot(model, name, len, wf_hash_bytes(name, len));
}
