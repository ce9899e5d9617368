/* piece.c - nests by themselves: checks, the normal form, and composition. */
#include "models/piece.h"

#include <inttypes.h>
#include <string.h>

/* --- checks ---------------------------------------------------------------------------------- */

/* Axes of more than one element, by falling parameter step: the order in which digits are compared.
 * Stable, so that equal steps keep the order of the nest. Gives their number. */
static uint32_t sort_axes(const struct wf_nest *nest, struct wf_axis sorted_out[WF_AXES_MAX])
{
    uint32_t count = 0;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        if (nest->axes[a].count == 1) {
            continue;
        }
        uint32_t at = count++;
        while (at > 0 && sorted_out[at - 1].param_step < nest->axes[a].param_step) {
            sorted_out[at] = sorted_out[at - 1];
            at--;
        }
        sorted_out[at] = nest->axes[a];
    }
    return count;
}

static enum wf_status check_chain(const struct wf_nest *nest, struct wf_error *error)
{
    struct wf_axis sorted[WF_AXES_MAX];
    uint32_t count = sort_axes(nest, sorted);
    for (uint32_t a = 1; a < count && sorted[a].param_step > 0; a++) {
        uint64_t outer = sorted[a - 1].param_step, inner = sorted[a].param_step, extent;
        if (outer % inner != 0) {
            return wf_error_set(error, WF_INVALID,
                                "a nest's parameter steps must divide one another: %" PRIu64
                                " does not divide %" PRIu64,
                                inner, outer);
        }
        if (__builtin_mul_overflow(sorted[a].count, inner, &extent) || extent > outer) {
            return wf_error_set(error, WF_INVALID,
                                "a nest's axis of %" PRIu64 " steps of %" PRIu64
                                " elements runs into the next, whose step is %" PRIu64,
                                sorted[a].count, inner, outer);
        }
    }
    return WF_OK;
}

static enum wf_status check_axes(const struct wf_nest *nest, struct wf_error *error)
{
    if (nest->axis_count > WF_AXES_MAX || nest->elem_bytes == 0) {
        return wf_error_set(error, WF_INVALID,
                            "a nest needs at most %d axes and elements of at least 1 byte; it has "
                            "%" PRIu32 " axes and %" PRIu32 " bytes",
                            WF_AXES_MAX, nest->axis_count, nest->elem_bytes);
    }
    uint64_t elements = 1;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        const struct wf_axis *axis = &nest->axes[a];
        if (axis->count == 0) {
            return wf_error_set(error, WF_INVALID, "axis %" PRIu32 " of a nest is empty", a);
        }
        if (__builtin_mul_overflow(elements, axis->count, &elements)) {
            return wf_error_set(error, WF_INVALID, "a nest has more than 2^64 elements");
        }
        uint64_t stride =
            axis->tensor_step < 0 ? -(uint64_t)axis->tensor_step : (uint64_t)axis->tensor_step;
        if (axis->count > 1 && stride < nest->elem_bytes) {
            return wf_error_set(error, WF_INVALID,
                                "axis %" PRIu32 " of a nest puts elements of %" PRIu32
                                " bytes %" PRIu64 " bytes apart",
                                a, nest->elem_bytes, stride);
        }
    }
    return check_chain(nest, error);
}

/* 128 bits hold every sum here: each term is below 2^64 once it was compared with its bound. */
static enum wf_status check_range(const struct wf_nest *nest, uint64_t param_elements,
                                  uint64_t tensor_bytes, struct wf_error *error)
{
    __int128 param_last = nest->param_first;
    __int128 low = nest->tensor_offset, high = (__int128)nest->tensor_offset + nest->elem_bytes;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        const struct wf_axis *axis = &nest->axes[a];
        uint64_t steps = axis->count - 1, param_extent, stride, tensor_extent;
        stride = axis->tensor_step < 0 ? -(uint64_t)axis->tensor_step : (uint64_t)axis->tensor_step;
        if (__builtin_mul_overflow(steps, axis->param_step, &param_extent) ||
            __builtin_mul_overflow(steps, stride, &tensor_extent)) {
            return wf_error_set(error, WF_INVALID, "axis %" PRIu32 " of a nest passes 2^64", a);
        }
        param_last += param_extent;
        low -= axis->tensor_step < 0 ? tensor_extent : 0;
        high += axis->tensor_step < 0 ? 0 : tensor_extent;
    }
    if (param_last >= param_elements) {
        return wf_error_set(error, WF_INVALID,
                            "a piece that begins at element %" PRIu64
                            " reaches past its parameter of %" PRIu64 " elements",
                            nest->param_first, param_elements);
    }
    if (low < 0 || high > tensor_bytes) {
        return wf_error_set(error, WF_INVALID,
                            "a piece that begins at byte %" PRIu64
                            " reaches outside its tensor of %" PRIu64 " bytes",
                            nest->tensor_offset, tensor_bytes);
    }
    return WF_OK;
}

enum wf_status wf_nest_check(const struct wf_nest *nest, uint64_t param_elements,
                             uint64_t tensor_bytes, struct wf_error *error)
{
    enum wf_status status = check_axes(nest, error);
    return status != WF_OK ? status : check_range(nest, param_elements, tensor_bytes, error);
}

uint64_t wf_nest_elements(const struct wf_nest *nest)
{
    uint64_t elements = 1;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        elements *= nest->axes[a].count;
    }
    return elements;
}

/* --- normal form ----------------------------------------------------------------------------- */

static bool continues(const struct wf_axis *outer, const struct wf_axis *inner)
{
    uint64_t param_step;
    int64_t tensor_step;
    return !__builtin_mul_overflow(inner->param_step, inner->count, &param_step) &&
           !__builtin_mul_overflow(inner->tensor_step, inner->count, &tensor_step) &&
           param_step == outer->param_step && tensor_step == outer->tensor_step;
}

void wf_nest_normalise(struct wf_nest *nest)
{
    struct wf_axis kept[WF_AXES_MAX];
    uint32_t count = 0;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        struct wf_axis axis = nest->axes[a];
        if (axis.count == 1) {
            continue;
        }
        while (count > 0 && continues(&kept[count - 1], &axis)) {
            axis.count *= kept[--count].count;
        }
        kept[count++] = axis;
    }
    memset(nest->axes, 0, sizeof nest->axes); /* so that equal nests are equal bytes too */
    memcpy(nest->axes, kept, count * sizeof kept[0]);
    nest->axis_count = count;
}

bool wf_nest_is_run(const struct wf_nest *nest, uint64_t *elements_out)
{
    struct wf_nest normal = *nest;
    wf_nest_normalise(&normal);
    if (normal.axis_count > 1) {
        return false;
    }
    if (normal.axis_count == 1 && (normal.axes[0].param_step != 1 ||
                                   normal.axes[0].tensor_step != (int64_t)normal.elem_bytes)) {
        return false;
    }
    *elements_out = normal.axis_count == 1 ? normal.axes[0].count : 1;
    return true;
}

/* --- composition ----------------------------------------------------------------------------- */

struct composer {
    wf_nest_emit_t *emit;
    void *user;
    uint32_t elem_bytes;
};

/* The whole tensor's elements in storage order become the parameter, the parameter's elements the
 * bytes. A step that goes backwards, or by parts of an element, has no such reading. */
static enum wf_status swap_sides(const struct wf_nest *inner, struct wf_nest *swapped_out,
                                 struct wf_error *error)
{
    struct wf_nest swapped = {.param_first = inner->tensor_offset / inner->elem_bytes,
                              .tensor_offset = inner->param_first,
                              .elem_bytes = 1};
    bool whole = inner->tensor_offset % inner->elem_bytes == 0;
    for (uint32_t a = 0; a < inner->axis_count; a++) {
        const struct wf_axis *axis = &inner->axes[a];
        if (axis->count == 1) {
            continue;
        }
        whole = whole && axis->tensor_step > 0 && axis->tensor_step % inner->elem_bytes == 0 &&
                axis->param_step <= INT64_MAX;
        swapped.axes[swapped.axis_count++] =
            (struct wf_axis){.count = axis->count,
                             .param_step = (uint64_t)axis->tensor_step / inner->elem_bytes,
                             .tensor_step = (int64_t)axis->param_step};
    }
    if (!whole) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "a nest whose tensor steps run backwards or split elements of %" PRIu32
                            " bytes cannot be composed",
                            inner->elem_bytes);
    }
    *swapped_out = swapped;
    return WF_OK;
}

/* Emits `nest`, whose axes are by falling parameter step. A cut of the tensor may have split an
 * axis where the parameter has no digit: then the steps are no chain, and the shorter of the two
 * axes is written out. */
static bool emit_chain(const struct composer *composer, struct wf_nest *nest)
{
    for (uint32_t a = 1; a < nest->axis_count && nest->axes[a].param_step > 0; a++) {
        const struct wf_axis *outer = &nest->axes[a - 1], *inner = &nest->axes[a];
        if (outer->param_step % inner->param_step == 0 &&
            inner->count <= outer->param_step / inner->param_step) {
            continue;
        }
        uint32_t shorter = inner->count < outer->count ? a : a - 1;
        struct wf_axis axis = nest->axes[shorter];
        for (uint64_t i = 0; i < axis.count; i++) {
            struct wf_nest one = *nest;
            one.axis_count--;
            memmove(&one.axes[shorter], &one.axes[shorter + 1],
                    (one.axis_count - shorter) * sizeof one.axes[0]);
            one.param_first += i * axis.param_step;
            one.tensor_offset += i * (uint64_t)axis.tensor_step;
            if (!emit_chain(composer, &one)) {
                return false;
            }
        }
        return true;
    }
    wf_nest_normalise(nest);
    return composer->emit(composer->user, nest);
}

static bool emit_box_as_nest(void *user, const struct wf_box *box)
{
    const struct composer *composer = user;
    struct wf_nest nest = {.elem_bytes = composer->elem_bytes, .axis_count = box->axis_count};
    nest.param_first = box->src_offset;
    nest.tensor_offset = box->dst_offset;
    for (uint32_t a = 0; a < box->axis_count; a++) {
        nest.axes[a] = (struct wf_axis){.count = box->axes[a].count,
                                        .param_step = (uint64_t)box->axes[a].src_step,
                                        .tensor_step = box->axes[a].dst_step};
    }
    struct wf_axis sorted[WF_AXES_MAX];
    nest.axis_count = sort_axes(&nest, sorted);
    memset(nest.axes, 0, sizeof nest.axes);
    memcpy(nest.axes, sorted, nest.axis_count * sizeof sorted[0]);
    return emit_chain(composer, &nest);
}

enum wf_status wf_nest_compose(const struct wf_nest *inner, const struct wf_nest *outer,
                               wf_nest_emit_t *emit, void *user, struct wf_error *error)
{
    if (inner->elem_bytes != outer->elem_bytes) {
        return wf_error_set(error, WF_INVALID,
                            "a whole tensor of %" PRIu32 "-byte elements cannot be cut into shards "
                            "of %" PRIu32 "-byte elements",
                            inner->elem_bytes, outer->elem_bytes);
    }
    struct wf_nest swapped;
    enum wf_status status = swap_sides(inner, &swapped, error);
    if (status != WF_OK) {
        return status;
    }
    struct composer composer = {.emit = emit, .user = user, .elem_bytes = outer->elem_bytes};
    return wf_nest_intersect(&swapped, outer, emit_box_as_nest, &composer, error);
}
