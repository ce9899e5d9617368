/* copy_digest.c - XXH3-64 over one side of a box, as if its elements stood in a row. */
#define XXH_STATIC_LINKING_ONLY /* for the size of the state: it stays on the stack */
#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h> /* the same functions by what the processor has */
#endif

#include "models/copy_rect.h"

enum {
    GATHERED_BYTES = 16 << 10, /* hashed at a time where elements must be brought together */
    RUN_BYTES_MIN = 256,       /* shorter runs are brought together too */
    /* The hash reads ahead too little for memory: 9.1 GB/s without this, 11.7 with it, where
     * reading alone is 15. */
    STEP_BYTES = 1024,
    AHEAD_BYTES = 4096,
};

struct digester {
    XXH3_state_t state;
    const char *base;
    enum wf_dtype dtype, as_dtype;
    size_t bytes, as_bytes; /* of one element */
};

static void hash_bytes(XXH3_state_t *state, const char *bytes, size_t len)
{
    size_t done = 0;
    while (len - done > STEP_BYTES) {
        for (size_t line = 0; line < STEP_BYTES && len - done > AHEAD_BYTES + line; line += 64) {
            __builtin_prefetch(bytes + done + AHEAD_BYTES + line, 0, 2); /* into L2 */
        }
        XXH3_64bits_update(state, bytes + done, STEP_BYTES);
        done += STEP_BYTES;
    }
    XXH3_64bits_update(state, bytes + done, len - done);
}

/* Row-major copies of at most GATHERED_BYTES at a time into a buffer that the caches keep. */
static void hash_gathered(struct digester *digester, const struct wf_rect *rect)
{
    _Alignas(64) char gathered[GATHERED_BYTES];
    struct wf_box box = {
        .src_offset = rect->src_offset, .elements = rect->elements, .axis_count = rect->axis_count};
    int64_t dst_step = (int64_t)digester->as_bytes;
    for (uint32_t a = rect->axis_count; a-- > 0;) {
        box.axes[a].count = rect->axes[a].count;
        box.axes[a].src_step = rect->axes[a].src_step;
        box.axes[a].dst_step = dst_step;
        dst_step *= (int64_t)rect->axes[a].count;
    }
    uint64_t at_a_time = GATHERED_BYTES / digester->as_bytes;
    for (uint64_t first = 0; first < box.elements; first += at_a_time) {
        struct wf_copy_part part = {first, box.elements - first};
        part.count = part.count < at_a_time ? part.count : at_a_time;
        /* Row-major places are consecutive: shift the box so that this part begins the buffer. */
        box.dst_offset = -(first * digester->as_bytes);
        wf_copy_box_cached(&box, digester->base, digester->dtype, gathered, digester->as_dtype,
                           part);
        hash_bytes(&digester->state, gathered, part.count * digester->as_bytes);
    }
}

static void hash_rect(void *user, const struct wf_rect *rect)
{
    struct digester *digester = user;
    uint32_t last = rect->axis_count - 1;
    size_t run_bytes = digester->bytes;
    if (rect->axis_count > 0) {
        run_bytes = rect->axes[last].src_step == (int64_t)digester->bytes
                        ? rect->axes[last].count * digester->bytes
                        : 0;
    }
    bool direct = rect->axis_count <= 1 ? run_bytes > 0 : run_bytes >= RUN_BYTES_MIN;
    if (digester->dtype != digester->as_dtype || !direct) {
        hash_gathered(digester, rect);
        return;
    }
    uint32_t skip = rect->axis_count > 0 ? 1u << last : 0;
    struct wf_rect_walk walk;
    struct wf_rect_ahead ahead;
    wf_rect_walk_begin(&walk, rect, skip);
    wf_rect_ahead_begin(&ahead, rect, skip, digester->base, run_bytes);
    do {
        wf_rect_ahead_next(&ahead, rect);
        hash_bytes(&digester->state, digester->base + walk.src_offset, run_bytes);
    } while (wf_rect_walk_next(&walk, rect));
}

uint64_t wf_box_digest(const struct wf_box *box, bool side_dst, const void *base,
                       enum wf_dtype dtype, enum wf_dtype as_dtype, struct wf_copy_part part)
{
    struct digester digester = {.base = base,
                                .dtype = dtype,
                                .as_dtype = as_dtype,
                                .bytes = wf_dtype_bytes(dtype),
                                .as_bytes = wf_dtype_bytes(as_dtype)};
    WF_ASSERT(wf_dtype_castable(dtype, as_dtype));
    /* Both sides the one that is read: what is contiguous there fuses, whatever the other is. */
    struct wf_box one_side = *box;
    one_side.src_offset = side_dst ? box->dst_offset : box->src_offset;
    for (uint32_t a = 0; a < box->axis_count; a++) {
        int64_t step = side_dst ? box->axes[a].dst_step : box->axes[a].src_step;
        one_side.axes[a].src_step = step;
        one_side.axes[a].dst_step = step;
    }
    XXH3_64bits_reset(&digester.state);
    wf_box_visit(&one_side, part, hash_rect, &digester);
    return XXH3_64bits_digest(&digester.state);
}
