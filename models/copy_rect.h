/* copy_rect.h - part of a box as rectangles. Private to copy*.c.
 *
 * A range of a box's elements in row-major order is at most one rectangle per axis and end. Inside
 * a rectangle the axes may be walked in any order. */
#ifndef WEFT_MODELS_COPY_RECT_H
#define WEFT_MODELS_COPY_RECT_H

#include "models/casts.h"
#include "models/copy.h"

struct wf_rect_axis {
    uint64_t count; /* more than 1 */
    int64_t src_step, dst_step;
};

struct wf_rect {
    uint64_t src_offset, dst_offset, elements;
    uint32_t axis_count; /* neighbours that continue on both sides are fused */
    struct wf_rect_axis axes[WF_AXES_MAX];
};

typedef void wf_rect_visit_t(void *user, const struct wf_rect *rect);

/* Visits the rectangles of the part in row-major order. The part lies inside the box. */
void wf_box_visit(const struct wf_box *box, struct wf_copy_part part, wf_rect_visit_t *visit,
                  void *user);

/* Walks all axes of a rectangle but those in `skip` (bits by axis), outer to inner. */
struct wf_rect_walk {
    uint64_t src_offset, dst_offset; /* of the place at hand */
    uint64_t index[WF_AXES_MAX];
    uint32_t skip;
};
void wf_rect_walk_begin(struct wf_rect_walk *walk, const struct wf_rect *rect, uint32_t skip);
bool wf_rect_walk_next(struct wf_rect_walk *walk, const struct wf_rect *rect); /* false: done */

/* Asks for the source of runs before they are read: the processor's own prefetch does not know
 * where the next run is. */
struct wf_rect_ahead {
    struct wf_rect_walk walk;
    const char *src;
    size_t bytes; /* of each run, at most WF_PREFETCH_BYTES */
    bool more;
};
enum { WF_PREFETCH_BYTES = 8192 /* how far ahead of the run at hand */ };
/* `skip` is the run's axis, `run_bytes` its bytes in the source. */
void wf_rect_ahead_begin(struct wf_rect_ahead *ahead, const struct wf_rect *rect, uint32_t skip,
                         const char *src, size_t run_bytes);
void wf_rect_ahead_next(struct wf_rect_ahead *ahead, const struct wf_rect *rect);

/* Casts (or moves) one element type into another between strided and tiled places. */
struct wf_copier {
    const char *src;
    char *dst;
    size_t src_bytes, dst_bytes; /* of one element */
    bool same_type;
    wf_cast_t *cast;      /* through the caches */
    wf_cast_t *long_cast; /* for runs of WF_STREAM_RUN_BYTES or more */
    wf_cast_t *store; /* moves runs of the destination's type, past the caches if long_cast does */
};

enum {
    /* Below these, a result is likely to be read from the caches, or its runs share lines. */
    WF_STREAM_RUN_BYTES = 64,
    WF_STREAM_BOX_BYTES = 256 << 10,
};

/* The rectangle's axis `src_axis` is contiguous in the source and `dst_axis` in the destination:
 * a transpose, by tiles. */
void wf_copy_tiles(const struct wf_copier *copier, const struct wf_rect *rect, uint32_t src_axis,
                   uint32_t dst_axis);

#endif
