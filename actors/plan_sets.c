/* plan_sets.c - sets of elements of one parameter: common part, difference, cutting into disjoint
 * sets.
 *
 * Everything rests on wf_nest_intersect: a set is a nest whose "tensor" is the parameter itself, so
 * a box of two sets is a set again. A difference is an intersection with the complement, and the
 * complement of a nest is at most axes + 2 nests: what comes before it, the gap behind each item of
 * each axis, and what comes after it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/plan_parts.h"

struct wf_nest wf_plan_set_of(const struct wf_nest *nest)
{
    struct wf_nest set = {
        .param_first = nest->param_first, .tensor_offset = nest->param_first, .elem_bytes = 1};
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        uint64_t step = nest->axes[a].param_step;
        if (step == 0 || nest->axes[a].count == 1) {
            continue; /* a repeat shows no further element */
        }
        uint32_t at = set.axis_count++;
        for (; at > 0 && set.axes[at - 1].param_step < step; at--) {
            set.axes[at] = set.axes[at - 1];
        }
        set.axes[at] = (struct wf_axis){nest->axes[a].count, step, (int64_t)step};
    }
    wf_nest_normalise(&set);
    return set;
}

uint64_t wf_plan_set_end(const struct wf_nest *set)
{
    uint64_t last = set->param_first;
    for (uint32_t a = 0; a < set->axis_count; a++) {
        last += (set->axes[a].count - 1) * set->axes[a].param_step;
    }
    return last + 1;
}

bool wf_plan_set_equal(const struct wf_nest *a, const struct wf_nest *b)
{
    if (a->param_first != b->param_first || a->axis_count != b->axis_count) {
        return false;
    }
    for (uint32_t i = 0; i < a->axis_count; i++) {
        if (a->axes[i].count != b->axes[i].count ||
            a->axes[i].param_step != b->axes[i].param_step) {
            return false;
        }
    }
    return true;
}

uint64_t wf_plan_sets_elements(const struct wf_plan_sets *sets)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < sets->count; i++) {
        elements += wf_nest_elements(&sets->nests[i]);
    }
    return elements;
}

static bool append_set(struct wf_plan_sets *sets, const struct wf_nest *set)
{
    sets->nests = wf_plan_grow(sets->arena, sets->nests, &sets->capacity, sets->count + 1ull,
                               sizeof sets->nests[0]);
    if (sets->nests == NULL) {
        return false;
    }
    sets->nests[sets->count++] = *set;
    return true;
}

static bool append_box(void *user, const struct wf_box *box)
{
    struct wf_nest nest = {.param_first = box->src_offset, .axis_count = box->axis_count};
    for (uint32_t a = 0; a < box->axis_count; a++) {
        nest.axes[a].count = box->axes[a].count;
        nest.axes[a].param_step = (uint64_t)box->axes[a].src_step;
    }
    struct wf_nest set = wf_plan_set_of(&nest);
    return append_set(user, &set);
}

enum wf_status wf_plan_set_meet(const struct wf_nest *a, const struct wf_nest *b,
                                struct wf_plan_sets *out, struct wf_error *error)
{
    if (wf_plan_set_end(a) <= b->param_first || wf_plan_set_end(b) <= a->param_first) {
        return WF_OK;
    }
    enum wf_status status = wf_nest_intersect(a, b, append_box, out, error);
    return status == WF_OK && out->arena->failed ? wf_plan_no_memory(error) : status;
}

/* Adds the run of `length` elements at `first`, repeated along the first `axis_count` axes of
 * `set`, cut with `a`. */
static enum wf_status meet_gap(const struct wf_nest *a, const struct wf_nest *set,
                               uint32_t axis_count, uint64_t first, uint64_t length,
                               struct wf_plan_sets *out, struct wf_error *error)
{
    if (length == 0) {
        return WF_OK;
    }
    if (axis_count == WF_AXES_MAX) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "cutting overlapping sources of one parameter needs more than %d axes",
                            WF_AXES_MAX);
    }
    struct wf_nest gap = {.param_first = first, .axis_count = axis_count + 1};
    memcpy(gap.axes, set->axes, axis_count * sizeof gap.axes[0]);
    gap.axes[axis_count] = (struct wf_axis){length, 1, 1};
    gap = wf_plan_set_of(&gap);
    return wf_plan_set_meet(a, &gap, out, error);
}

enum wf_status wf_plan_set_minus(const struct wf_nest *a, const struct wf_nest *b,
                                 uint64_t elements, struct wf_plan_sets *out,
                                 struct wf_error *error)
{
    uint64_t first = b->param_first;
    enum wf_status status = meet_gap(a, b, 0, 0, first, out, error);
    for (uint32_t k = 0; k < b->axis_count && status == WF_OK; k++) {
        const struct wf_axis *inner = k + 1 < b->axis_count ? &b->axes[k + 1] : NULL;
        uint64_t item = inner != NULL ? inner->count * inner->param_step : 1;
        status = meet_gap(a, b, k + 1, first + item, b->axes[k].param_step - item, out, error);
    }
    uint64_t end = first + (b->axis_count > 0 ? b->axes[0].count * b->axes[0].param_step : 1);
    if (status == WF_OK && end < elements) {
        status = meet_gap(a, b, 0, end, elements - end, out, error);
    }
    return status;
}

/* --- cutting overlapping sets ----------------------------------------------------------------- */

struct partition {
    struct wf_plan_arena *arena;
    const struct wf_nest *inputs;
    uint64_t elements;
    struct wf_plan_sets *sets;
    struct wf_plan_cover *covers; /* parallel to sets->nests */
    uint32_t cover_capacity;
};

static enum wf_status inputs_disjoint(const struct partition *p, uint32_t count, bool *disjoint_out,
                                      struct wf_error *error)
{
    struct wf_plan_sets common = {.arena = p->arena};
    for (uint32_t i = 1; i < count && common.count == 0; i++) {
        for (uint32_t j = 0; j < i && common.count == 0; j++) {
            enum wf_status status = wf_plan_set_meet(&p->inputs[i], &p->inputs[j], &common, error);
            if (status != WF_OK) {
                return status;
            }
        }
    }
    *disjoint_out = common.count == 0;
    return WF_OK;
}

/* Gives the sets from `from` on a cover: that of `base`, and `input`. */
static bool cover_new_sets(struct partition *p, uint32_t from, struct wf_plan_cover base,
                           uint32_t input)
{
    p->covers = wf_plan_grow(p->arena, p->covers, &p->cover_capacity, p->sets->count + 1ull,
                             sizeof p->covers[0]);
    uint32_t *inputs = wf_plan_alloc(p->arena, base.input_count + 1ull, sizeof *inputs);
    if (p->covers == NULL || inputs == NULL) {
        return false;
    }
    if (base.input_count > 0) {
        memcpy(inputs, base.inputs, base.input_count * sizeof *inputs);
    }
    inputs[base.input_count] = input;
    struct wf_plan_cover cover = {inputs, base.input_count + (input != UINT32_MAX)};
    for (uint32_t i = from; i < p->sets->count; i++) {
        p->covers[i] = cover;
    }
    return true;
}

/* Cuts set `at` by `input`: the part inside stays at `at` and behind, the part outside follows. The
 * rest of the input shrinks by it. */
static enum wf_status cut_by(struct partition *p, uint32_t at, uint32_t input,
                             struct wf_plan_sets *rest, struct wf_error *error)
{
    struct wf_nest whole = p->sets->nests[at];
    struct wf_plan_cover base = p->covers[at];
    struct wf_plan_sets inside = {.arena = p->arena}, less = {.arena = p->arena};
    enum wf_status status = wf_plan_set_meet(&whole, &p->inputs[input], &inside, error);
    if (status != WF_OK || inside.count == 0) {
        return status;
    }
    for (uint32_t i = 0; i < rest->count && status == WF_OK; i++) {
        status = wf_plan_set_minus(&rest->nests[i], &whole, p->elements, &less, error);
    }
    if (status != WF_OK) {
        return status;
    }
    *rest = less;
    uint32_t outside_first = p->sets->count;
    status = wf_plan_set_minus(&whole, &p->inputs[input], p->elements, p->sets, error);
    if (status != WF_OK) {
        return status;
    }
    if (!cover_new_sets(p, outside_first, base, UINT32_MAX)) {
        return wf_plan_no_memory(error);
    }
    uint32_t inside_first = p->sets->count;
    p->sets->nests[at] = inside.nests[0];
    for (uint32_t i = 1; i < inside.count; i++) {
        if (!append_set(p->sets, &inside.nests[i])) {
            return wf_plan_no_memory(error);
        }
    }
    if (!cover_new_sets(p, inside_first, base, input)) {
        return wf_plan_no_memory(error);
    }
    uint32_t *inputs = wf_plan_alloc(p->arena, base.input_count + 1ull, sizeof *inputs);
    if (inputs == NULL) {
        return wf_plan_no_memory(error);
    }
    memcpy(inputs, base.inputs, base.input_count * sizeof *inputs);
    inputs[base.input_count] = input;
    p->covers[at] = (struct wf_plan_cover){inputs, base.input_count + 1};
    return WF_OK;
}

static enum wf_status add_input(struct partition *p, uint32_t input, bool disjoint,
                                struct wf_error *error)
{
    struct wf_plan_sets rest = {.arena = p->arena};
    if (!append_set(&rest, &p->inputs[input])) {
        return wf_plan_no_memory(error);
    }
    uint32_t before = p->sets->count;
    for (uint32_t at = 0; at < before && !disjoint; at++) {
        enum wf_status status = cut_by(p, at, input, &rest, error);
        if (status != WF_OK) {
            return status;
        }
    }
    uint32_t from = p->sets->count;
    for (uint32_t i = 0; i < rest.count; i++) {
        if (!append_set(p->sets, &rest.nests[i])) {
            return wf_plan_no_memory(error);
        }
    }
    struct wf_plan_cover nothing = {NULL, 0};
    return cover_new_sets(p, from, nothing, input) ? WF_OK : wf_plan_no_memory(error);
}

enum wf_status wf_plan_partition(struct wf_plan_arena *arena, const struct wf_nest *inputs,
                                 uint32_t input_count, uint64_t elements, struct wf_plan_sets *out,
                                 struct wf_plan_cover **covers_out, struct wf_error *error)
{
    struct partition p = {.arena = arena, .inputs = inputs, .elements = elements, .sets = out};
    bool disjoint = true;
    enum wf_status status = inputs_disjoint(&p, input_count, &disjoint, error);
    for (uint32_t i = 0; i < input_count && status == WF_OK; i++) {
        status = add_input(&p, i, disjoint, error);
    }
    if (status == WF_OK) {
        *covers_out = p.covers;
    }
    return status;
}

/* --- words ------------------------------------------------------------------------------------ */

/* Rows and columns when the set is a rectangle of a matrix of `columns`. */
static bool set_rectangle(const struct wf_nest *set, uint64_t columns, uint64_t *rows_out,
                          uint64_t *width_out)
{
    const struct wf_axis *axes = set->axes;
    uint64_t column = set->param_first % columns;
    if (set->axis_count == 0 || (set->axis_count == 1 && axes[0].param_step == columns)) {
        *rows_out = set->axis_count == 0 ? 1 : axes[0].count;
        *width_out = 1;
        return true;
    }
    if (set->axis_count == 1 && axes[0].param_step == 1) {
        bool whole = column == 0 && axes[0].count % columns == 0;
        *rows_out = whole ? axes[0].count / columns : 1;
        *width_out = whole ? columns : axes[0].count;
        return whole || column + axes[0].count <= columns;
    }
    if (set->axis_count == 2 && axes[1].param_step == 1 && axes[0].param_step == columns) {
        *rows_out = axes[0].count;
        *width_out = axes[1].count;
        return column + axes[1].count <= columns;
    }
    return false;
}

void wf_plan_set_format(const struct wf_nest *set, const struct wf_param *param,
                        char text_out[WF_PLAN_SET_TEXT])
{
    int used = snprintf(text_out, WF_PLAN_SET_TEXT, "%" PRIu64 " elements in %" PRIu64 "..%" PRIu64,
                        wf_nest_elements(set), set->param_first, wf_plan_set_end(set) - 1);
    uint64_t rows, width;
    if (param->ndim != 2 || !set_rectangle(set, param->shape[1], &rows, &width)) {
        return;
    }
    uint64_t row = set->param_first / param->shape[1], column = set->param_first % param->shape[1];
    used += snprintf(text_out + used, WF_PLAN_SET_TEXT - (size_t)used,
                     " (rows %" PRIu64 "..%" PRIu64, row, row + rows - 1);
    if (width != param->shape[1]) {
        used += snprintf(text_out + used, WF_PLAN_SET_TEXT - (size_t)used,
                         ", columns %" PRIu64 "..%" PRIu64, column, column + width - 1);
    }
    snprintf(text_out + used, WF_PLAN_SET_TEXT - (size_t)used, " of [%" PRIu64 ", %" PRIu64 "])",
             param->shape[0], param->shape[1]);
}
