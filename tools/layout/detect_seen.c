/* detect_seen.c - tensors put together by name without numbers: how many, and how large. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tools/layout/detect_private.h"

/* A word between dots that is a number, and digits behind "weight" and "bias" (Megatron glues the
 * expert to them), read as "#". */
static uint64_t pattern_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *at = name; *at != '\0';) {
        size_t digits = strspn(at, "0123456789");
        bool begins = at == name || at[-1] == '.';
        bool glued = at - name >= 6 && memcmp(at - 6, "weight", 6) == 0;
        glued = glued || (at - name >= 4 && memcmp(at - 4, "bias", 4) == 0);
        bool ends = at[digits] == '.' || at[digits] == '\0';
        bool number = digits > 0 && ends && (begins || glued);
        hash = (hash ^ (unsigned char)(number ? '#' : *at)) * 0x100000001b3u;
        at += number ? digits : 1;
    }
    return hash;
}

static int by_pattern(const void *a, const void *b)
{
    const struct wf_seen_slot *x = a, *y = b;
    return x->pattern < y->pattern ? -1 : x->pattern > y->pattern;
}

/* Joins neighbours of one pattern: their number, and of each dimension the largest or the sum. */
static void join(struct wf_seen *seen, bool sum)
{
    uint32_t kept = 0;
    if (seen->count > 0) {
        qsort(seen->slots, seen->count, sizeof *seen->slots, by_pattern);
    }
    for (uint32_t i = 1; i < seen->count; i++) {
        struct wf_seen_slot *last = &seen->slots[kept], *slot = &seen->slots[i];
        if (last->pattern != slot->pattern) {
            seen->slots[++kept] = *slot;
            continue;
        }
        last->parts[0] += slot->parts[0];
        for (uint32_t d = 1; d < WF_SEEN_PARTS; d++) {
            uint64_t larger = last->parts[d] > slot->parts[d] ? last->parts[d] : slot->parts[d];
            last->parts[d] = sum ? last->parts[d] + slot->parts[d] : larger;
        }
    }
    seen->count = seen->count > 0 ? kept + 1 : 0;
}

static void put(struct wf_seen *rank, const char *name, bool keep_name, uint32_t ndim,
                const uint64_t *shape)
{
    struct wf_seen_slot *slot = &rank->slots[rank->count++];
    *slot = (struct wf_seen_slot){
        .pattern = pattern_of(name), .parts = {1}, .name = keep_name ? name : ""};
    memcpy(slot->parts + 1, shape, ndim * sizeof *shape);
}

/* Adds what one rank has to what the others have. */
static bool add_rank(struct wf_seen *seen, struct wf_seen *rank)
{
    join(rank, false);
    void *grown = realloc(seen->slots, (seen->count + rank->count + 1) * sizeof *seen->slots);
    if (grown != NULL) {
        seen->slots = grown;
        memcpy(seen->slots + seen->count, rank->slots, rank->count * sizeof *seen->slots);
        seen->count += rank->count;
        join(seen, true);
    }
    wf_seen_fini(rank);
    return grown != NULL;
}

bool wf_seen_add_dump(struct wf_seen *seen, const struct wf_dump_rank *dump)
{
    struct wf_seen rank = {.slots = calloc(dump->count + 1, sizeof *rank.slots)};
    for (uint32_t i = 0; i < dump->count && rank.slots != NULL; i++) {
        const struct wf_dump_tensor *tensor = &dump->tensors[i];
        put(&rank, tensor->name, true, tensor->ndim, tensor->shape);
    }
    return rank.slots != NULL && add_rank(seen, &rank);
}

bool wf_seen_add_layout(struct wf_seen *seen, const struct wf_layout *layout)
{
    struct wf_seen rank = {.slots = calloc(layout->tensor_count + 1, sizeof *rank.slots)};
    for (uint32_t i = 0; i < layout->tensor_count && rank.slots != NULL; i++) {
        const struct wf_tensor *tensor = &layout->tensors[i];
        put(&rank, tensor->name, false, tensor->ndim, tensor->shape); /* the layout goes */
    }
    return rank.slots != NULL && add_rank(seen, &rank);
}

const struct wf_seen_slot *wf_seen_find(const struct wf_seen *seen, uint64_t pattern)
{
    const struct wf_seen_slot key = {.pattern = pattern};
    return seen->count > 0
               ? bsearch(&key, seen->slots, seen->count, sizeof *seen->slots, by_pattern)
               : NULL;
}

double wf_seen_alike(const struct wf_seen *a, const struct wf_seen *b)
{
    uint32_t common = 0;
    for (uint32_t i = 0; i < a->count; i++) {
        common += wf_seen_find(b, a->slots[i].pattern) != NULL;
    }
    return a->count + b->count > 0 ? 2.0 * common / (a->count + b->count) : 0;
}

void wf_seen_fini(struct wf_seen *seen)
{
    free(seen->slots);
    *seen = (struct wf_seen){0};
}
