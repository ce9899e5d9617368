/* detect_seen.c - tensors put together by name without numbers: how many, and how large. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tools/layout/detect_private.h"

enum { FIRST_ROOM = 64, CHUNK_SHIFT = 24, STAGE_SHIFT = 40 };

/* Marks that stand before names in files of executed layouts, and need not elsewhere. */
static const char *skip_mark(const char *name, bool *marked)
{
    static const char *const marks[] = {"buffer:", "attr:"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        size_t len = strlen(marks[i]);
        if (strncmp(name, marks[i], len) == 0) {
            *marked = true;
            return name + len;
        }
    }
    return name;
}

/* "model1." before the names of a virtual stage. */
static const char *skip_chunk(const char *name, uint64_t *chunk)
{
    static const char word[] = "model";
    const char *digits = name + sizeof word - 1;
    size_t count = strncmp(name, word, sizeof word - 1) == 0 ? strspn(digits, "0123456789") : 0;
    if (count == 0 || count > 3 || digits[count] != '.') {
        return name;
    }
    *chunk = 1 + strtoull(digits, NULL, 10);
    return digits + count + 1;
}

/* A word between dots that is a number, and digits behind "weight" and "bias" (Megatron glues the
 * expert to them), read as "#". */
uint64_t wf_seen_pattern(const char *name, enum wf_dtype dtype, uint64_t *chunk_out,
                         uint64_t *number_out)
{
    bool marked = false, first = true;
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    *chunk_out = *number_out = 0;
    name = skip_chunk(skip_mark(name, &marked), chunk_out);
    for (const char *at = name; *at != '\0';) {
        size_t digits = isdigit((unsigned char)*at) ? strspn(at, "0123456789") : 0;
        bool begins = at == name || at[-1] == '.';
        bool glued = at - name >= 6 && memcmp(at - 6, "weight", 6) == 0;
        glued = glued || (at - name >= 4 && memcmp(at - 4, "bias", 4) == 0);
        bool ends = at[digits] == '.' || at[digits] == '\0';
        bool number = digits > 0 && ends && (begins || glued);
        if (number && first) {
            *number_out = 1 + strtoull(at, NULL, 10) % ((1u << CHUNK_SHIFT) - 1);
            first = false;
        }
        hash = (hash ^ (unsigned char)(number ? '#' : *at)) * 0x100000001b3u;
        at += number ? digits : 1;
    }
    return dtype == WF_DTYPE_U8 ? hash ^ 1
                                : hash; /* in some layers packed, as they are in others */
}

static struct wf_seen_slot *put(struct wf_seen *seen, const char *name, enum wf_dtype dtype,
                                uint32_t stage, uint32_t ndim, const uint64_t *shape)
{
    if (seen->count == seen->room) {
        uint32_t room = seen->room > 0 ? seen->room * 2 : FIRST_ROOM;
        void *grown = realloc(seen->slots, room * sizeof *seen->slots);
        if (grown == NULL) {
            return NULL;
        }
        seen->slots = grown;
        seen->room = room;
    }
    struct wf_seen_slot *slot = &seen->slots[seen->count++];
    uint64_t chunk = 0, number = 0;
    bool marked = false;
    *slot = (struct wf_seen_slot){.ndim = ndim, .name = ""};
    slot->pattern = wf_seen_pattern(name, dtype, &chunk, &number);
    slot->number = number + (chunk << CHUNK_SHIFT) + ((uint64_t)stage << STAGE_SHIFT);
    slot->numbered = number > 0;
    slot->parts[WF_SEEN_MEMBERS] = 1;
    memcpy(slot->parts, shape, ndim * sizeof *shape);
    (void)skip_mark(name, &marked);
    slot->optional = marked;
    return slot;
}

bool wf_seen_add_dump(struct wf_seen *seen, const struct wf_dump_rank *dump, uint32_t stage)
{
    for (uint32_t i = 0; i < dump->count; i++) {
        const struct wf_dump_tensor *tensor = &dump->tensors[i];
        struct wf_seen_slot *slot =
            put(seen, tensor->name, tensor->dtype, stage, tensor->ndim, tensor->shape);
        if (slot == NULL) {
            return false;
        }
        slot->name = tensor->name;
        slot->optional = false;
    }
    return true;
}

bool wf_seen_add_layout(struct wf_seen *seen, const struct wf_model *model,
                        const struct wf_layout *layout)
{
    uint32_t piece = 0;
    for (uint32_t i = 0; i < layout->tensor_count + layout->alias_count; i++) {
        bool alias = i >= layout->tensor_count;
        const struct wf_alias *second = alias ? &layout->aliases[i - layout->tensor_count] : NULL;
        const struct wf_tensor *tensor = &layout->tensors[alias ? second->tensor : i];
        struct wf_seen_slot *slot = put(seen, alias ? second->name : tensor->name, tensor->dtype, 0,
                                        tensor->ndim, tensor->shape);
        if (slot == NULL) {
            return false;
        }
        slot->optional |= alias || tensor->kind != WF_TENSOR_WEIGHTS;
        for (; !alias && piece < layout->piece_count && layout->pieces[piece].tensor == i;
             piece++) {
            uint32_t param = layout->pieces[piece].param;
            uint32_t stack = param < model->param_count ? model->params[param].stack : WF_NONE;
            slot->layer |= layout->pieces[piece].kind == WF_PIECE_DATA && stack != WF_NONE &&
                           strcmp(model->family->stacks[stack].name, "layer") == 0;
        }
    }
    return true;
}

static int by_pattern(const void *a, const void *b)
{
    const struct wf_seen_slot *x = a, *y = b;
    if (x->pattern != y->pattern) {
        return x->pattern < y->pattern ? -1 : 1;
    }
    return x->number < y->number ? -1 : x->number > y->number;
}

void wf_seen_join(struct wf_seen *seen)
{
    uint32_t kept = 0;
    if (seen->count == 0) {
        return;
    }
    qsort(seen->slots, seen->count, sizeof *seen->slots, by_pattern);
    uint64_t number = seen->slots[0].number;
    seen->slots[0].number = 1;
    for (uint32_t i = 1; i < seen->count; i++) {
        struct wf_seen_slot *last = &seen->slots[kept], *slot = &seen->slots[i];
        bool same = last->pattern == slot->pattern, layer = slot->number != number;
        number = slot->number;
        if (!same) {
            slot->number = 1;
            seen->slots[++kept] = *slot;
            continue;
        }
        last->number += layer;
        last->parts[WF_SEEN_MEMBERS] += slot->parts[WF_SEEN_MEMBERS];
        last->optional = last->optional && slot->optional;
        last->layer = last->layer || slot->layer;
        for (uint32_t d = 0; d < WF_SHAPE_MAX; d++) {
            last->parts[d] = last->parts[d] > slot->parts[d] ? last->parts[d] : slot->parts[d];
        }
    }
    seen->count = kept + 1;
    for (uint32_t i = 0; i < seen->count; i++) {
        seen->slots[i].parts[WF_SEEN_MEMBERS] /= seen->slots[i].number;
    }
}

bool wf_seen_weigh(struct wf_seen *sum, const struct wf_seen *rank, uint64_t weight)
{
    void *grown = realloc(sum->slots, (sum->count + rank->count + 1) * sizeof *sum->slots);
    if (grown == NULL) {
        return false;
    }
    sum->slots = grown;
    sum->room = sum->count + rank->count + 1;
    for (uint32_t i = 0; i < rank->count; i++) {
        struct wf_seen_slot *slot = &sum->slots[sum->count + i];
        *slot = rank->slots[i];
        for (uint32_t d = 0; d < WF_SEEN_PARTS; d++) {
            slot->parts[d] *= weight;
        }
    }
    sum->count += rank->count;
    qsort(sum->slots, sum->count, sizeof *sum->slots, by_pattern);
    uint32_t kept = 0;
    for (uint32_t i = 1; i < sum->count; i++) {
        struct wf_seen_slot *last = &sum->slots[kept], *slot = &sum->slots[i];
        if (last->pattern != slot->pattern) {
            sum->slots[++kept] = *slot;
            continue;
        }
        last->number = last->number > slot->number ? last->number : slot->number;
        last->optional = last->optional && slot->optional;
        last->layer = last->layer || slot->layer;
        for (uint32_t d = 0; d < WF_SEEN_PARTS; d++) {
            last->parts[d] += slot->parts[d];
        }
    }
    sum->count = sum->count > 0 ? kept + 1 : 0;
    return true;
}

const struct wf_seen_slot *wf_seen_find(const struct wf_seen *seen, uint64_t pattern)
{
    uint32_t low = 0, high = seen->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (seen->slots[middle].pattern < pattern) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < seen->count && seen->slots[low].pattern == pattern ? &seen->slots[low] : NULL;
}

uint32_t wf_seen_misfits(const struct wf_seen *layout, const struct wf_seen *dump)
{
    enum { LACKING = 4 };
    uint32_t misfits = 0, both = 0;
    for (uint32_t i = 0; i < layout->count; i++) {
        const struct wf_seen_slot *slot = &layout->slots[i];
        const struct wf_seen_slot *found = wf_seen_find(dump, slot->pattern);
        misfits += found == NULL ? !slot->optional : found->ndim != slot->ndim;
        both += found != NULL;
    }
    /* Patterns stand once in either: a dump of a million foreign names is not walked each time. */
    return misfits + LACKING * (dump->count - both);
}

uint64_t wf_seen_hash(const struct wf_seen *seen)
{
    uint64_t hash = seen->count;
    for (uint32_t i = 0; i < seen->count; i++) {
        const struct wf_seen_slot *slot = &seen->slots[i];
        hash = (hash ^ slot->pattern) * 0x100000001b3u;
        hash = (hash ^ slot->number ^ (uint64_t)slot->ndim << 32) * 0x100000001b3u;
        for (uint32_t d = 0; d < WF_SEEN_PARTS; d++) {
            hash = (hash ^ slot->parts[d]) * 0x100000001b3u;
        }
    }
    return hash;
}

void wf_seen_fini(struct wf_seen *seen)
{
    free(seen->slots);
    *seen = (struct wf_seen){0};
}
