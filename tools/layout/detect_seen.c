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

static void put(struct wf_seen *seen, const char *name, uint32_t ndim, const uint64_t *shape)
{
    struct wf_seen_slot *slot = &seen->slots[seen->count++];
    *slot = (struct wf_seen_slot){.pattern = pattern_of(name), .parts = {1}, .name = name};
    memcpy(slot->parts + 1, shape, ndim * sizeof *shape);
}

/* Joins slots of one pattern: their number, and the largest of each dimension. */
static void join(struct wf_seen *seen)
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
        last->parts[0]++;
        for (uint32_t d = 1; d < WF_SEEN_PARTS; d++) {
            last->parts[d] = slot->parts[d] > last->parts[d] ? slot->parts[d] : last->parts[d];
        }
    }
    seen->count = seen->count > 0 ? kept + 1 : 0;
}

bool wf_seen_dump(const struct wf_dump *dump, struct wf_seen *out)
{
    *out = (struct wf_seen){.slots = calloc(dump->count + 1, sizeof *out->slots)};
    for (uint32_t i = 0; i < dump->count && out->slots != NULL; i++) {
        put(out, dump->tensors[i].name, dump->tensors[i].ndim, dump->tensors[i].shape);
    }
    join(out);
    return out->slots != NULL;
}

bool wf_seen_layout(const struct wf_layout *layout, struct wf_seen *out)
{
    *out = (struct wf_seen){.slots = calloc(layout->tensor_count + 1, sizeof *out->slots)};
    for (uint32_t i = 0; i < layout->tensor_count && out->slots != NULL; i++) {
        put(out, layout->tensors[i].name, layout->tensors[i].ndim, layout->tensors[i].shape);
    }
    join(out);
    for (uint32_t i = 0; i < out->count; i++) {
        out->slots[i].name = NULL; /* the layout goes */
    }
    return out->slots != NULL;
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
