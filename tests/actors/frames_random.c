/* frames_random.c - random frames from the same table, by other code than the codec's. */
#include "frames_random.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/splitmix.h"

const enum wf_frame_type all_frame_types[] = {
#define TYPE_ROW(name, number) WF_FRAME_##name,
    WF_FRAME_MAP(TYPE_ROW)
#undef TYPE_ROW
        WF_FRAME_TYPE_NONE};

static uint64_t random_upto(uint64_t *s, uint64_t max)
{
    uint64_t width = wf_splitmix64(s) % 65; /* small and large numbers alike */
    uint64_t number = wf_splitmix64(s) >> (width == 64 ? 0 : width);
    return max == UINT64_MAX ? number : number % (max + 1);
}

static void random_text(uint64_t *s, char *text, size_t bound)
{
    size_t len = wf_splitmix64(s) % 4 == 0 ? bound - 1 : wf_splitmix64(s) % bound;
    for (size_t i = 0; i < len; i++) {
        text[i] = (char)(1 + wf_splitmix64(s) % 255);
    }
    text[len] = '\0';
}

static void random_culprit(uint64_t *s, struct wf_culprit *culprit)
{
    culprit->side = random_upto(s, WF_CULPRIT_SIDES - 1);
    culprit->rank = random_upto(s, WF_RANKS_MAX);
    culprit->engine = random_upto(s, WF_ENGINES_MAX);
    random_text(s, culprit->host, sizeof culprit->host);
    random_text(s, culprit->object, sizeof culprit->object);
    random_text(s, culprit->reason, sizeof culprit->reason);
}

static struct wf_version random_version(uint64_t *s)
{
    return (struct wf_version){random_upto(s, WF_TERM_MAX), random_upto(s, UINT64_MAX),
                               random_upto(s, UINT64_MAX)};
}

static struct wf_round_key random_key(uint64_t *s)
{
    return (struct wf_round_key){random_upto(s, WF_TERM_MAX), random_upto(s, UINT64_MAX),
                                 random_upto(s, UINT64_MAX), random_version(s),
                                 random_upto(s, UINT64_MAX)};
}

/* The lists of a frame are put into one block, as the decoder's are. */
struct list_block {
    struct list_block *next;
    _Alignas(16) uint8_t bytes[];
};
static void *new_list(struct wf_frame *frame, size_t bytes)
{
    struct list_block *block = calloc(1, sizeof *block + bytes);
    WF_ASSERT(block != NULL);
    block->next = frame->memory;
    frame->memory = block;
    return block->bytes;
}

#define FILL_U64(n, max) to->n = random_upto(s, max);
#define FILL_TEXT(n, max) random_text(s, to->n, max);
#define FILL_BYTES(n, max)                                  \
    to->n##_len = (uint32_t)(wf_splitmix64(s) % (max + 1)); \
    for (uint32_t i = 0; i < to->n##_len; i++) {            \
        to->n[i] = (uint8_t)wf_splitmix64(s);               \
    }
#define FILL_HASH(n, unused) to->n = (struct wf_hash){wf_splitmix64(s), wf_splitmix64(s)};
#define FILL_KEY(n, unused) to->n = random_key(s);
#define FILL_VERSION(n, unused) to->n = random_version(s);
#define FILL_CULPRIT(n, unused) random_culprit(s, &to->n);
#define FILL_LIST(n, el, max)                                     \
    to->n##_count = (uint32_t)(wf_splitmix64(s) % 5);             \
    to->n = NULL;                                                 \
    if (to->n##_count > 0) {                                      \
        to->n = new_list(frame, to->n##_count * sizeof to->n[0]); \
        for (uint32_t i = 0; i < to->n##_count; i++) {            \
            fill_el_##el(s, frame, &to->n[i]);                    \
        }                                                         \
    }
#define FILL(kind, ...) FILL_##kind(__VA_ARGS__)
#define FILL_ELEMENT(name)                                                                   \
    static void fill_el_##name(uint64_t *s, struct wf_frame *frame, struct wf_el_##name *to) \
    {                                                                                        \
        (void)frame;                                                                         \
        WF_FIELDS_##name(FILL)                                                               \
    }
WF_ELEMENT_MAP(FILL_ELEMENT)
#define FILL_FRAME(name, number)                                 \
    static void fill_##name(uint64_t *s, struct wf_frame *frame) \
    {                                                            \
        struct wf_frame_##name *to = &frame->name;               \
        WF_FIELDS_##name(FILL)                                   \
    }
WF_FRAME_MAP(FILL_FRAME)

void random_frame(uint64_t *state, enum wf_frame_type type, struct wf_frame *frame)
{
    memset(frame, 0, sizeof *frame);
    frame->type = type;
    switch (type) {
#define FILL_CASE(name, number)    \
    case number:                   \
        fill_##name(state, frame); \
        break;
        WF_FRAME_MAP(FILL_CASE)
    default:
        WF_ASSERT(!"a frame type");
    }
}

static bool culprits_equal(const struct wf_culprit *a, const struct wf_culprit *b)
{
    return a->side == b->side && a->rank == b->rank && a->engine == b->engine &&
           strcmp(a->host, b->host) == 0 && strcmp(a->object, b->object) == 0 &&
           strcmp(a->reason, b->reason) == 0;
}

#define EQUAL_U64(n, max) &&a->n == b->n
#define EQUAL_TEXT(n, max) &&strcmp(a->n, b->n) == 0
#define EQUAL_BYTES(n, max) &&a->n##_len == b->n##_len &&memcmp(a->n, b->n, a->n##_len) == 0
#define EQUAL_HASH(n, unused) &&wf_hash_equal(a->n, b->n)
#define EQUAL_KEY(n, unused) &&wf_round_key_equal(&a->n, &b->n)
#define EQUAL_VERSION(n, unused) &&wf_version_compare(a->n, b->n) == 0
#define EQUAL_CULPRIT(n, unused) &&culprits_equal(&a->n, &b->n)
#define EQUAL_LIST(n, el, max) &&lists_equal_##el(a->n, a->n##_count, b->n, b->n##_count)
#define EQUAL(kind, ...) EQUAL_##kind(__VA_ARGS__)
#define EQUAL_ELEMENT(name)                                                        \
    static bool lists_equal_##name(const struct wf_el_##name *a, uint32_t a_count, \
                                   const struct wf_el_##name *b, uint32_t b_count) \
    {                                                                              \
        if (a_count != b_count) {                                                  \
            return false;                                                          \
        }                                                                          \
        for (uint32_t i = 0; i < a_count; i++, a++, b++) {                         \
            if (!(true WF_FIELDS_##name(EQUAL))) {                                 \
                return false;                                                      \
            }                                                                      \
        }                                                                          \
        return true;                                                               \
    }
WF_ELEMENT_MAP(EQUAL_ELEMENT)
#define EQUAL_FRAME(name, number)                                                              \
    static bool equal_##name(const struct wf_frame_##name *a, const struct wf_frame_##name *b) \
    {                                                                                          \
        return true WF_FIELDS_##name(EQUAL);                                                   \
    }
WF_FRAME_MAP(EQUAL_FRAME)

bool frames_equal(const struct wf_frame *a, const struct wf_frame *b)
{
    if (a->type != b->type) {
        return false;
    }
    switch (a->type) {
#define EQUAL_CASE(name, number) \
    case number:                 \
        return equal_##name(&a->name, &b->name);
        WF_FRAME_MAP(EQUAL_CASE)
    default:
        return false;
    }
}
