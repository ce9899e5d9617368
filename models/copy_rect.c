/* copy_rect.c - cuts a range of a box's row-major order into rectangles, and walks those. */
#include "models/copy_rect.h"

#include <string.h>

struct cutter {
    const struct wf_box *box;
    uint64_t inner[WF_AXES_MAX]; /* elements of all axes inside axis a */
    wf_rect_visit_t *visit;
    void *user;
};

static bool continues(const struct wf_rect_axis *outer, const struct wf_rect_axis *inner)
{
    int64_t src, dst;
    return !__builtin_mul_overflow(inner->src_step, inner->count, &src) &&
           !__builtin_mul_overflow(inner->dst_step, inner->count, &dst) && src == outer->src_step &&
           dst == outer->dst_step;
}

static void add_axis(struct wf_rect *rect, struct wf_rect_axis axis)
{
    if (axis.count == 1) {
        return;
    }
    rect->elements *= axis.count;
    while (rect->axis_count > 0 && continues(&rect->axes[rect->axis_count - 1], &axis)) {
        axis.count *= rect->axes[--rect->axis_count].count;
    }
    rect->axes[rect->axis_count++] = axis;
}

static struct wf_rect_axis axis_of(const struct wf_box *box, uint32_t a)
{
    return (struct wf_rect_axis){box->axes[a].count, box->axes[a].src_step, box->axes[a].dst_step};
}

/* `count` indices of axis `a` from the corner, with all that is inside it. */
static void visit_rect(const struct cutter *cutter, uint32_t a, uint64_t count, uint64_t src_offset,
                       uint64_t dst_offset)
{
    struct wf_rect rect = {.src_offset = src_offset, .dst_offset = dst_offset, .elements = 1};
    struct wf_rect_axis axis = axis_of(cutter->box, a);
    axis.count = count;
    add_axis(&rect, axis);
    for (uint32_t b = a + 1; b < cutter->box->axis_count; b++) {
        add_axis(&rect, axis_of(cutter->box, b));
    }
    cutter->visit(cutter->user, &rect);
}

/* Elements [first, end) of the axes from `a` inwards: head, body, tail. One level per axis. */
static void cut(const struct cutter *cutter, uint32_t a, uint64_t first, uint64_t end,
                uint64_t src_offset, uint64_t dst_offset)
{
    uint64_t inner = cutter->inner[a];
    uint64_t low = first / inner, head = first % inner, high = end / inner, tail = end % inner;
    uint64_t src_step = (uint64_t)cutter->box->axes[a].src_step;
    uint64_t dst_step = (uint64_t)cutter->box->axes[a].dst_step;
    if (head > 0) {
        uint64_t head_end = low == high ? tail : inner;
        cut(cutter, a + 1, head, head_end, src_offset + low * src_step,
            dst_offset + low * dst_step);
        if (low == high) {
            return;
        }
        low++;
    }
    if (low < high) {
        visit_rect(cutter, a, high - low, src_offset + low * src_step, dst_offset + low * dst_step);
    }
    if (tail > 0) {
        cut(cutter, a + 1, 0, tail, src_offset + high * src_step, dst_offset + high * dst_step);
    }
}

void wf_box_visit(const struct wf_box *box, struct wf_copy_part part, wf_rect_visit_t *visit,
                  void *user)
{
    WF_ASSERT(part.first <= box->elements && part.count <= box->elements - part.first);
    if (part.count == 0) {
        return;
    }
    if (box->axis_count == 0) {
        struct wf_rect rect = {
            .src_offset = box->src_offset, .dst_offset = box->dst_offset, .elements = 1};
        visit(user, &rect);
        return;
    }
    struct cutter cutter = {.box = box, .visit = visit, .user = user};
    uint64_t inner = 1;
    for (uint32_t a = box->axis_count; a-- > 0;) {
        cutter.inner[a] = inner;
        inner *= box->axes[a].count;
    }
    cut(&cutter, 0, part.first, part.first + part.count, box->src_offset, box->dst_offset);
}

void wf_rect_walk_begin(struct wf_rect_walk *walk, const struct wf_rect *rect, uint32_t skip)
{
    memset(walk, 0, sizeof *walk);
    walk->src_offset = rect->src_offset;
    walk->dst_offset = rect->dst_offset;
    walk->skip = skip;
}

bool wf_rect_walk_next(struct wf_rect_walk *walk, const struct wf_rect *rect)
{
    for (uint32_t a = rect->axis_count; a-- > 0;) {
        if ((walk->skip >> a & 1) != 0) {
            continue;
        }
        const struct wf_rect_axis *axis = &rect->axes[a];
        walk->src_offset += (uint64_t)axis->src_step;
        walk->dst_offset += (uint64_t)axis->dst_step;
        if (++walk->index[a] < axis->count) {
            return true;
        }
        walk->index[a] = 0;
        walk->src_offset -= axis->count * (uint64_t)axis->src_step;
        walk->dst_offset -= axis->count * (uint64_t)axis->dst_step;
    }
    return false;
}

void wf_rect_ahead_begin(struct wf_rect_ahead *ahead, const struct wf_rect *rect, uint32_t skip,
                         const char *src, size_t run_bytes)
{
    wf_rect_walk_begin(&ahead->walk, rect, skip);
    ahead->src = src;
    ahead->bytes = run_bytes < WF_PREFETCH_BYTES ? run_bytes : WF_PREFETCH_BYTES;
    ahead->more = true;
    for (size_t bytes = 0; bytes < WF_PREFETCH_BYTES && ahead->more; bytes += run_bytes) {
        wf_rect_ahead_next(ahead, rect);
    }
}

void wf_rect_ahead_next(struct wf_rect_ahead *ahead, const struct wf_rect *rect)
{
    if (!ahead->more) {
        return;
    }
    for (size_t line = 0; line < ahead->bytes; line += 64) {
        __builtin_prefetch(ahead->src + ahead->walk.src_offset + line, 0, 2); /* into L2 */
    }
    ahead->more = wf_rect_walk_next(&ahead->walk, rect);
}
