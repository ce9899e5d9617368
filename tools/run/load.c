/* load.c - the needed runs of each parameter, read once in windows, placed by the layout's pieces.
 *
 * All pieces that show a parameter are served by one pass over it, which skips what none of them
 * needs.
 */
#include "tools/run/load.h"

#include <stdlib.h>
#include <string.h>

#include "models/copy.h"
#include "models/piece.h"
#include "tools/check/step.h"

#define NONE UINT64_MAX

/* Gaps of a page or less are read, not skipped: the file system reads them anyway. */
enum { GAP_BYTES = 4 << 10 };

/* A piece of the parameter that is being read. */
struct part {
    uint32_t piece, param;
    uint32_t file; /* of the parameter, and where it is in it */
    uint64_t offset;
    struct wf_nest nest;
    struct wf_nest order; /* the same, axes by falling parameter step, runs taken out */
    uint64_t run;         /* elements of a contiguous run of the parameter */
};

struct loading {
    const struct wf_checkpoint *checkpoint;
    const struct wf_layout *layout;
    const struct wf_run_memory *memory;
    uint64_t step;
    uint8_t *window;
    float *less_one;    /* the window's elements less 1, while a part wants them so */
    struct part *parts; /* in the order of the files' bytes */
    uint32_t part_count;
    /* of the piece that is being placed */
    enum wf_dtype from, placed, to; /* of the checkpoint, of what is placed, of the tensor */
    const void *source;
    uint8_t *tensor;
    uint64_t tensor_bytes, window_bytes;
    bool outside;
};

/* --- which elements ----------------------------------------------------------------------------
 */
static void order_axes(struct part *part)
{
    struct wf_nest *order = &part->order;
    *order = part->nest;
    order->axis_count = 0;
    for (uint32_t a = 0; a < part->nest.axis_count; a++) {
        struct wf_axis axis = part->nest.axes[a];
        uint32_t at = order->axis_count;
        if (axis.param_step == 0 || axis.count == 1) {
            continue; /* shows no further element */
        }
        for (; at > 0 && order->axes[at - 1].param_step < axis.param_step; at--) {
            order->axes[at] = order->axes[at - 1];
        }
        order->axes[at] = axis;
        order->axis_count++;
    }
    part->run = 1;
    while (order->axis_count > 0 && order->axes[order->axis_count - 1].param_step == part->run) {
        part->run *= order->axes[--order->axis_count].count;
    }
}

/* The first run of the part that does not end before `from`: [*first, *end). False: none is left.
 * The digits of `from` in the nest's steps, rounded up; the steps are a divisor chain. */
static bool next_run(const struct part *part, uint64_t from, uint64_t *first, uint64_t *end)
{
    const struct wf_nest *order = &part->order;
    uint64_t reach = order->param_first + part->run - 1, digits[WF_AXES_MAX] = {0}, start;
    uint64_t rest = from > reach ? from - reach : 0;
    uint32_t a = 0;
    while (a < order->axis_count && rest / order->axes[a].param_step < order->axes[a].count) {
        digits[a] = rest / order->axes[a].param_step;
        rest %= order->axes[a].param_step;
        a++;
    }
    if (rest > 0) { /* beyond the largest with these digits: the next larger */
        memset(&digits[a], 0, (WF_AXES_MAX - a) * sizeof digits[0]);
        do {
            if (a == 0) {
                return false;
            }
            digits[a] = 0;
            a--;
        } while (++digits[a] == order->axes[a].count);
    }
    start = order->param_first;
    for (a = 0; a < order->axis_count; a++) {
        start += digits[a] * order->axes[a].param_step;
    }
    *end = start + part->run;
    *first = start > from ? start : from;
    return true;
}

/* The first element from `from` on that any part shows, or NONE. */
static uint64_t next_needed(const struct part *parts, uint32_t count, uint64_t from)
{
    uint64_t least = NONE, first, end;
    for (uint32_t i = 0; i < count; i++) {
        if (next_run(&parts[i], from, &first, &end) && first < least) {
            least = first;
        }
    }
    return least;
}

/* The end, `limit` at most, of the needed elements from `from` on: the first larger gap. */
static uint64_t span_end(const struct part *parts, uint32_t count, uint64_t from, uint64_t limit,
                         uint64_t gap)
{
    uint64_t reach = from, first, end;
    for (bool grown = true; grown && reach < limit;) {
        grown = false;
        for (uint32_t i = 0; i < count; i++) {
            if (next_run(&parts[i], reach, &first, &end) && first - reach <= gap) {
                reach = end;
                grown = true;
            }
        }
    }
    return reach < limit ? reach : limit;
}

/* --- placing -----------------------------------------------------------------------------------
 */
static bool place_box(void *user, const struct wf_box *box)
{
    struct loading *loading = user;
    if (!wf_box_within(box, (uint32_t)wf_dtype_bytes(loading->placed), loading->window_bytes,
                       (uint32_t)wf_dtype_bytes(loading->to), loading->tensor_bytes)) {
        loading->outside = true;
        return false;
    }
    struct wf_copy_part whole = {0, box->elements};
    wf_copy_box(box, loading->source, loading->placed, loading->tensor, loading->to, whole);
    return true;
}

/* The window's elements less 1, in f32. */
static void take_one(struct loading *loading, uint64_t count)
{
    int64_t bytes = (int64_t)wf_dtype_bytes(loading->from);
    struct wf_box run = {
        .elements = count, .axis_count = 1, .axes = {{count, bytes, sizeof(float)}}};
    wf_copy_box_cached(&run, loading->window, loading->from, loading->less_one, WF_DTYPE_F32,
                       (struct wf_copy_part){0, count});
    for (uint64_t i = 0; i < count; i++) {
        loading->less_one[i] -= 1;
    }
}

static enum wf_status place_window(struct loading *loading, const struct part *part, uint64_t first,
                                   uint64_t count, struct wf_error *error)
{
    uint32_t tensor = loading->layout->pieces[part->piece].tensor;
    bool less_one = loading->layout->pieces[part->piece].value_rule == WF_VALUE_LESS_ONE;
    loading->placed = less_one ? WF_DTYPE_F32 : loading->from;
    loading->source = less_one ? (const void *)loading->less_one : loading->window;
    if (less_one) {
        take_one(loading, count);
    }
    uint32_t elem_bytes = (uint32_t)wf_dtype_bytes(loading->placed);
    struct wf_nest source = {.param_first = first,
                             .elem_bytes = elem_bytes,
                             .axis_count = 1,
                             .axes = {{count, 1, (int64_t)elem_bytes}}};
    loading->to = loading->layout->tensors[tensor].dtype;
    loading->tensor = loading->memory->tensors[tensor].address;
    loading->tensor_bytes = loading->layout->tensors[tensor].bytes;
    loading->window_bytes = count * elem_bytes;
    enum wf_status status = wf_nest_intersect(&source, &part->nest, place_box, loading, error);
    WF_ASSERT(!loading->outside);
    return status;
}

/* Reads what is needed of [base, limit) to its place in the window. *end_out: where that ends;
 * *next_out: the next needed element after it. */
static enum wf_status read_window(struct loading *loading, const struct part *parts, uint32_t count,
                                  uint64_t base, uint64_t limit, uint64_t *end_out,
                                  uint64_t *next_out, struct wf_error *error)
{
    uint64_t elem_bytes = wf_dtype_bytes(loading->from), at = base, end = base;
    while (at < limit) {
        end = span_end(parts, count, at, limit, GAP_BYTES / elem_bytes);
        enum wf_status status =
            wf_checkpoint_read(loading->checkpoint, parts->param, at, end - at,
                               loading->window + (at - base) * elem_bytes, error);
        if (status != WF_OK) {
            return status;
        }
        at = next_needed(parts, count, end);
    }
    *end_out = end;
    *next_out = at;
    return WF_OK;
}

static enum wf_status load_param(struct loading *loading, const struct part *parts, uint32_t count,
                                 struct wf_error *error)
{
    loading->from = loading->checkpoint->entries[parts->param].dtype;
    uint64_t window = WF_LOAD_WINDOW_BYTES / wf_dtype_bytes(loading->from), end = 0, next = 0;
    enum wf_status status = WF_OK;
    for (uint64_t base = next_needed(parts, count, 0); base != NONE && status == WF_OK;
         base = next) {
        status = read_window(loading, parts, count, base, base + window, &end, &next, error);
        if (status != WF_OK) {
            break;
        }
        wf_step_apply(loading->window, loading->from, end - base, loading->step);
        for (uint32_t i = 0; i < count && status == WF_OK; i++) {
            status = place_window(loading, &parts[i], base, end - base, error);
        }
    }
    return status;
}

/* --- the whole ---------------------------------------------------------------------------------
 */
/* A disk likes to be read in order. */
static int by_place(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    return x->file != y->file       ? (x->file > y->file) - (x->file < y->file)
           : x->offset != y->offset ? (x->offset > y->offset) - (x->offset < y->offset)
           : x->param != y->param   ? (x->param > y->param) - (x->param < y->param)
                                    : (x->piece > y->piece) - (x->piece < y->piece);
}

static enum wf_status list_parts(struct loading *loading, const struct wf_model *model,
                                 struct wf_error *error)
{
    const struct wf_layout *layout = loading->layout;
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        if (piece->kind != WF_PIECE_DATA) {
            continue;
        }
        enum wf_dtype from = loading->checkpoint->entries[piece->param].dtype;
        enum wf_dtype to = layout->tensors[piece->tensor].dtype;
        if (!wf_dtype_castable(from, to)) {
            return wf_error_set(error, WF_UNSUPPORTED, "%s: no cast from %s to %s",
                                model->params[piece->param].name, wf_dtype_name(from),
                                wf_dtype_name(to));
        }
        struct part *part = &loading->parts[loading->part_count++];
        part->piece = i;
        part->param = piece->param;
        part->file = loading->checkpoint->entries[piece->param].file;
        part->offset = loading->checkpoint->entries[piece->param].offset;
        part->nest = wf_layout_nest(layout, i);
        order_axes(part);
    }
    qsort(loading->parts, loading->part_count, sizeof *loading->parts, by_place);
    return WF_OK;
}

enum wf_status wf_run_load(const struct wf_checkpoint *checkpoint, const struct wf_model *model,
                           const struct wf_layout *layout, const struct wf_run_memory *memory,
                           uint64_t step, struct wf_error *error)
{
    struct loading loading = {.checkpoint = checkpoint,
                              .layout = layout,
                              .memory = memory,
                              .step = step,
                              .window = malloc(WF_LOAD_WINDOW_BYTES),
                              .less_one = malloc(WF_LOAD_WINDOW_BYTES / 2 * sizeof(float)),
                              .parts = calloc(layout->piece_count + 1, sizeof *loading.parts)};
    enum wf_status status = WF_OK;
    if (loading.window == NULL || loading.less_one == NULL || loading.parts == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory to load the checkpoint through");
    }
    if (status == WF_OK) {
        memset(memory->region.address, 0, memory->region.len_bytes);
        status = list_parts(&loading, model, error);
    }
    for (uint32_t i = 0, count; i < loading.part_count && status == WF_OK; i += count) {
        const struct part *parts = &loading.parts[i];
        for (count = 1; i + count < loading.part_count && parts[count].param == parts->param;) {
            count++;
        }
        status = load_param(&loading, parts, count, error);
    }
    free(loading.window);
    free(loading.less_one);
    free(loading.parts);
    return status;
}
