/* copy.c - the copy engine: bounds, and which way a rectangle is copied: runs, tiles or elements.
 */
#include "models/copy.h"

#include <string.h>

#include "models/copy_rect.h"

enum { STRIDED_BLOCK = 256 /* elements gathered at a time */ };

/* --- bounds ---------------------------------------------------------------------------------- */

/* True if a side of the box stays inside [0, bytes). Steps and counts may be anything. */
static bool side_within(const struct wf_box *box, bool dst, uint32_t elem_bytes, uint64_t bytes)
{
    __int128 low = dst ? box->dst_offset : box->src_offset, high = low + elem_bytes;
    for (uint32_t a = 0; a < box->axis_count; a++) {
        int64_t step = dst ? box->axes[a].dst_step : box->axes[a].src_step;
        uint64_t stride = step < 0 ? -(uint64_t)step : (uint64_t)step, extent;
        if (__builtin_mul_overflow(stride, box->axes[a].count - 1, &extent)) {
            return false;
        }
        low -= step < 0 ? extent : 0;
        high += step < 0 ? 0 : extent;
    }
    return elem_bytes > 0 && low >= 0 && high <= bytes;
}

bool wf_box_within(const struct wf_box *box, uint32_t src_elem_bytes, uint64_t src_bytes,
                   uint32_t dst_elem_bytes, uint64_t dst_bytes)
{
    if (box->axis_count > WF_AXES_MAX) {
        return false;
    }
    uint64_t elements = 1;
    for (uint32_t a = 0; a < box->axis_count; a++) {
        if (box->axes[a].count == 0 ||
            __builtin_mul_overflow(elements, box->axes[a].count, &elements)) {
            return false;
        }
    }
    return elements == box->elements && side_within(box, false, src_elem_bytes, src_bytes) &&
           side_within(box, true, dst_elem_bytes, dst_bytes);
}

/* --- runs ------------------------------------------------------------------------------------ */

static void copy_runs(const struct wf_copier *copier, const struct wf_rect *rect, uint32_t run_axis)
{
    size_t n = rect->axes[run_axis].count;
    wf_cast_t *cast =
        n * copier->dst_bytes >= WF_STREAM_RUN_BYTES ? copier->long_cast : copier->cast;
    struct wf_rect_walk walk;
    struct wf_rect_ahead ahead;
    wf_rect_walk_begin(&walk, rect, 1u << run_axis);
    wf_rect_ahead_begin(&ahead, rect, 1u << run_axis, copier->src, n * copier->src_bytes);
    do {
        wf_rect_ahead_next(&ahead, rect);
        cast(copier->dst + walk.dst_offset, copier->src + walk.src_offset, n);
    } while (wf_rect_walk_next(&walk, rect));
}

/* --- elements -------------------------------------------------------------------------------- */

/* memcpy of a constant size is one move. */
#define MOVE_STRIDED(bytes)                                                      \
    for (size_t i = 0; i < n; i++) {                                             \
        memcpy(dst + (int64_t)i * dst_step, src + (int64_t)i * src_step, bytes); \
    }

static void move_strided(char *dst, int64_t dst_step, const char *src, int64_t src_step, size_t n,
                         size_t elem_bytes)
{
    switch (elem_bytes) {
    case 1:
        MOVE_STRIDED(1)
        break;
    case 2:
        MOVE_STRIDED(2)
        break;
    case 4:
        MOVE_STRIDED(4)
        break;
    default:
        MOVE_STRIDED(8)
        break;
    }
}
#undef MOVE_STRIDED

static void copy_strided_row(const struct wf_copier *copier, char *dst, int64_t dst_step,
                             const char *src, int64_t src_step, uint64_t count, bool same_type)
{
    if (same_type) {
        move_strided(dst, dst_step, src, src_step, count, copier->src_bytes);
        return;
    }
    char gathered[STRIDED_BLOCK * 4], cast[STRIDED_BLOCK * 4];
    for (uint64_t done = 0; done < count;) {
        size_t n = count - done < STRIDED_BLOCK ? count - done : STRIDED_BLOCK;
        move_strided(gathered, (int64_t)copier->src_bytes, src, src_step, n, copier->src_bytes);
        copier->cast(cast, gathered, n);
        move_strided(dst, dst_step, cast, (int64_t)copier->dst_bytes, n, copier->dst_bytes);
        src += (int64_t)n * src_step;
        dst += (int64_t)n * dst_step;
        done += n;
    }
}

static void copy_strided(const struct wf_copier *copier, const struct wf_rect *rect)
{
    uint32_t inner = rect->axis_count - 1;
    const struct wf_rect_axis *axis = &rect->axes[inner];
    struct wf_rect_walk walk;
    wf_rect_walk_begin(&walk, rect, 1u << inner);
    do {
        copy_strided_row(copier, copier->dst + walk.dst_offset, axis->dst_step,
                         copier->src + walk.src_offset, axis->src_step, axis->count,
                         copier->same_type);
    } while (wf_rect_walk_next(&walk, rect));
}

/* --- entrances ------------------------------------------------------------------------------- */

static void copy_rect(void *user, const struct wf_rect *rect)
{
    const struct wf_copier *copier = user;
    uint32_t src_axis = WF_AXES_MAX, dst_axis = WF_AXES_MAX;
    for (uint32_t a = 0; a < rect->axis_count; a++) {
        bool src_next = rect->axes[a].src_step == (int64_t)copier->src_bytes;
        bool dst_next = rect->axes[a].dst_step == (int64_t)copier->dst_bytes;
        if (src_next && dst_next) {
            copy_runs(copier, rect, a);
            return;
        }
        src_axis = src_next ? a : src_axis;
        dst_axis = dst_next ? a : dst_axis;
    }
    if (rect->axis_count == 0) {
        copier->cast(copier->dst + rect->dst_offset, copier->src + rect->src_offset, 1);
    } else if (src_axis < WF_AXES_MAX && dst_axis < WF_AXES_MAX) {
        wf_copy_tiles(copier, rect, src_axis, dst_axis);
    } else {
        copy_strided(copier, rect);
    }
}

static void copy_part(const struct wf_box *box, const void *src_base, enum wf_dtype src_dtype,
                      void *dst_base, enum wf_dtype dst_dtype, struct wf_copy_part part,
                      bool streaming)
{
    struct wf_copier copier = {.src = src_base,
                               .dst = dst_base,
                               .src_bytes = wf_dtype_bytes(src_dtype),
                               .dst_bytes = wf_dtype_bytes(dst_dtype),
                               .same_type = src_dtype == dst_dtype,
                               .cast = wf_cast_for(src_dtype, dst_dtype, false)};
    WF_ASSERT(copier.cast != NULL);
    copier.long_cast = streaming ? wf_cast_streaming_for(src_dtype, dst_dtype) : copier.cast;
    copier.store = streaming ? wf_cast_streaming_for(dst_dtype, dst_dtype)
                             : wf_cast_for(dst_dtype, dst_dtype, false);
    wf_box_visit(box, part, copy_rect, &copier);
    if (streaming) {
        wf_cast_fence();
    }
}

void wf_copy_box(const struct wf_box *box, const void *src_base, enum wf_dtype src_dtype,
                 void *dst_base, enum wf_dtype dst_dtype, struct wf_copy_part part)
{
    bool streaming = box->elements > WF_STREAM_BOX_BYTES / wf_dtype_bytes(dst_dtype);
    copy_part(box, src_base, src_dtype, dst_base, dst_dtype, part, streaming);
}

void wf_copy_box_cached(const struct wf_box *box, const void *src_base, enum wf_dtype src_dtype,
                        void *dst_base, enum wf_dtype dst_dtype, struct wf_copy_part part)
{
    copy_part(box, src_base, src_dtype, dst_base, dst_dtype, part, false);
}

struct filler {
    char *dst;
    size_t elem_bytes;
    uint8_t byte;
};

static void fill_rect(void *user, const struct wf_rect *rect)
{
    const struct filler *filler = user;
    size_t bytes = filler->elem_bytes;
    uint32_t skip = 0;
    for (uint32_t a = 0; a < rect->axis_count && skip == 0; a++) {
        if (rect->axes[a].dst_step == (int64_t)filler->elem_bytes) {
            skip = 1u << a;
            bytes *= rect->axes[a].count;
        }
    }
    struct wf_rect_walk walk;
    wf_rect_walk_begin(&walk, rect, skip);
    do {
        memset(filler->dst + walk.dst_offset, filler->byte, bytes);
    } while (wf_rect_walk_next(&walk, rect));
}

void wf_fill_nest(const struct wf_nest *nest, void *base, uint8_t byte)
{
    struct wf_box box = {.dst_offset = nest->tensor_offset,
                         .elements = wf_nest_elements(nest),
                         .axis_count = nest->axis_count};
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        int64_t step = nest->axes[a].tensor_step;
        box.axes[a].count = nest->axes[a].count;
        box.axes[a].src_step = step; /* as dst_step: so that all that can be fuses */
        box.axes[a].dst_step = step;
    }
    struct filler filler = {.dst = base, .elem_bytes = nest->elem_bytes, .byte = byte};
    wf_box_visit(&box, (struct wf_copy_part){0, box.elements}, fill_rect, &filler);
}
