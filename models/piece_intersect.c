/* piece_intersect.c - what two nests of one parameter have in common, as boxes.
 *
 * Two contiguous runs meet as intervals. Otherwise the steps of both nests and 1 are put together.
 * If they are a divisor chain, an element number has one digit per step, and each axis of a nest is
 * a range of values over neighbouring digits: it is cut into head, body and tail until every digit
 * is an interval of its own (a "digit box"), and digit boxes intersect digit by digit. If they are
 * no chain, the shorter of the two axes concerned is written out index by index.
 */
#include <inttypes.h>
#include <string.h>

#include "models/piece.h"

enum {
    DIGITS_MAX = 2 * WF_AXES_MAX + 1, /* the steps of both nests, and 1 */
    BOXES_MAX = 1 << 20,              /* of one intersection, cases looked at while writing out
                                         included: more is a layout that nobody could move */
};

/* One axis of a nest, as a range of values over the digits [digit_first, digit_end). The values are
 * in units of `step` and count from the last multiple of `radix`. */
struct span {
    uint64_t count, step, start, radix; /* radix 0: the outermost, unbounded */
    int64_t tensor_step;
    uint32_t digit_first, digit_end;
    bool can_carry; /* some of its values pass `radix` */
};

struct interval {
    uint64_t low, high;
};

/* A nest over a chain; enumerates its digit boxes. */
struct side {
    struct span spans[WF_AXES_MAX + 1]; /* outer to inner */
    uint32_t span_count;
    uint64_t tensor_offset;
    uint64_t skipped[WF_AXES_MAX + 1]; /* of the box at hand: value of each span's index 0 */
    struct interval digits[DIGITS_MAX];
};

struct meeting {
    uint64_t chain[DIGITS_MAX]; /* rising; chain[0] is 1 */
    uint32_t digit_count;
    struct side src, dst;
    struct wf_axis repeats[WF_AXES_MAX]; /* of dst, outer to inner */
    uint32_t repeat_count;
    wf_box_emit_t *emit;
    void *user;
    uint32_t boxes; /* looked at so far, see BOXES_MAX */
    bool stopped, too_many;
};

/* --- emitting -------------------------------------------------------------------------------- */

/* The axes of a box before it is known whether they fit. */
struct axis_list {
    uint32_t count;
    struct {
        uint64_t count;
        int64_t src_step, dst_step;
    } axes[WF_AXES_MAX + DIGITS_MAX];
};

/* Adds an inner axis, fused with the ones outside it if both sides continue. */
static void add_axis(struct axis_list *list, uint64_t count, int64_t src_step, int64_t dst_step)
{
    while (list->count > 0) {
        int64_t src_span, dst_span;
        if (__builtin_mul_overflow(src_step, count, &src_span) ||
            __builtin_mul_overflow(dst_step, count, &dst_span) ||
            list->axes[list->count - 1].src_step != src_span ||
            list->axes[list->count - 1].dst_step != dst_span) {
            break;
        }
        count *= list->axes[--list->count].count;
    }
    list->axes[list->count].count = count;
    list->axes[list->count].src_step = src_step;
    list->axes[list->count++].dst_step = dst_step;
}

static bool count_box(struct meeting *meeting)
{
    if (meeting->boxes == BOXES_MAX) {
        meeting->too_many = true;
        return false;
    }
    meeting->boxes++;
    return true;
}

/* Where the corner of `digits` stands in a side's tensor. Arithmetic is modulo 2^64: partial sums
 * may leave the range, the result does not. */
static uint64_t offset_of(const struct meeting *meeting, const struct side *side,
                          const struct interval *digits)
{
    uint64_t offset = side->tensor_offset;
    for (uint32_t s = 0; s < side->span_count; s++) {
        const struct span *span = &side->spans[s];
        uint64_t value = 0;
        for (uint32_t d = span->digit_first; d < span->digit_end; d++) {
            value += digits[d].low * (meeting->chain[d] / span->step);
        }
        offset += (value - side->skipped[s]) * (uint64_t)span->tensor_step;
    }
    return offset;
}

static int64_t step_of(const struct meeting *meeting, const struct side *side, uint32_t digit)
{
    uint32_t s = 0;
    while (digit < side->spans[s].digit_first) {
        s++;
    }
    return (int64_t)((uint64_t)side->spans[s].tensor_step *
                     (meeting->chain[digit] / side->spans[s].step));
}

static bool emit_list(struct meeting *meeting, const struct axis_list *list, struct wf_box *box)
{
    box->elements = 1;
    box->axis_count = list->count;
    for (uint32_t a = 0; a < list->count; a++) {
        box->axes[a].count = list->axes[a].count;
        box->axes[a].src_step = list->axes[a].src_step;
        box->axes[a].dst_step = list->axes[a].dst_step;
        box->elements *= list->axes[a].count;
    }
    if (!count_box(meeting)) {
        return false;
    }
    meeting->stopped = !meeting->emit(meeting->user, box);
    return !meeting->stopped;
}

static bool emit_common(struct meeting *meeting, const struct interval *digits);

/* A box of too many axes: its outermost digit is written out. */
static bool emit_by_outermost(struct meeting *meeting, const struct interval *digits)
{
    struct interval one[DIGITS_MAX];
    memcpy(one, digits, sizeof one);
    uint32_t d = meeting->digit_count - 1;
    while (digits[d].high - digits[d].low == 1) {
        d--;
    }
    for (uint64_t value = digits[d].low; value < digits[d].high; value++) {
        one[d] = (struct interval){value, value + 1};
        if (!emit_common(meeting, one)) {
            return false;
        }
    }
    return true;
}

/* `digits` is the box that both sides have in common. */
static bool emit_common(struct meeting *meeting, const struct interval *digits)
{
    struct wf_box box = {.src_offset = offset_of(meeting, &meeting->src, digits),
                         .dst_offset = offset_of(meeting, &meeting->dst, digits)};
    struct axis_list list = {0};
    for (uint32_t r = 0; r < meeting->repeat_count; r++) {
        add_axis(&list, meeting->repeats[r].count, 0, meeting->repeats[r].tensor_step);
    }
    for (uint32_t d = meeting->digit_count; d-- > 0;) {
        box.param_first += digits[d].low * meeting->chain[d];
        if (digits[d].high - digits[d].low > 1) {
            add_axis(&list, digits[d].high - digits[d].low, step_of(meeting, &meeting->src, d),
                     step_of(meeting, &meeting->dst, d));
        }
    }
    return list.count > WF_AXES_MAX ? emit_by_outermost(meeting, digits)
                                    : emit_list(meeting, &list, &box);
}

/* --- digit boxes ----------------------------------------------------------------------------- */

/* Both recursions are bounded: one level per span and digit. `clip` is the box of dst while src is
 * enumerated, NULL while dst is. */
static bool walk_span(struct meeting *meeting, struct side *side, const struct interval *clip,
                      uint32_t s, bool carry_out);

static bool set_digit(struct side *side, const struct interval *clip, uint32_t digit, uint64_t low,
                      uint64_t high)
{
    if (clip != NULL) {
        low = low > clip[digit].low ? low : clip[digit].low;
        high = high < clip[digit].high ? high : clip[digit].high;
    }
    side->digits[digit] = (struct interval){low, high};
    return low < high;
}

/* Cuts the values [low, high) of span `s` at digit `digit` and what is under it. */
static bool walk_digit(struct meeting *meeting, struct side *side, const struct interval *clip,
                       uint32_t s, bool carry_in, uint32_t digit, uint64_t low, uint64_t high)
{
    const struct span *span = &side->spans[s];
    if (digit == span->digit_first) {
        return !set_digit(side, clip, digit, low, high) ||
               walk_span(meeting, side, clip, s + 1, carry_in);
    }
    uint64_t weight = meeting->chain[digit] / span->step;
    uint64_t first = low / weight, head = low % weight, last = high / weight, tail = high % weight;
    if (first == last) {
        return !set_digit(side, clip, digit, first, first + 1) ||
               walk_digit(meeting, side, clip, s, carry_in, digit - 1, head, tail);
    }
    if (head > 0) {
        if (set_digit(side, clip, digit, first, first + 1) &&
            !walk_digit(meeting, side, clip, s, carry_in, digit - 1, head, weight)) {
            return false;
        }
        first++;
    }
    if (first < last && set_digit(side, clip, digit, first, last) &&
        !walk_digit(meeting, side, clip, s, carry_in, digit - 1, 0, weight)) {
        return false;
    }
    return tail == 0 || !set_digit(side, clip, digit, last, last + 1) ||
           walk_digit(meeting, side, clip, s, carry_in, digit - 1, 0, tail);
}

/* Takes those values of span `s` that carry into the span outside it, or those that do not; inner
 * spans in turn are asked for both kinds. */
static bool walk_span(struct meeting *meeting, struct side *side, const struct interval *clip,
                      uint32_t s, bool carry_out)
{
    if (s == side->span_count) {
        if (clip != NULL) {
            return emit_common(meeting, side->digits); /* clipped to dst's: what is common */
        }
        return count_box(meeting) &&
               walk_span(meeting, &meeting->src, meeting->dst.digits, 0, false);
    }
    const struct span *span = &side->spans[s];
    bool inner_carries = s + 1 < side->span_count && side->spans[s + 1].can_carry;
    for (unsigned carry_in = 0; carry_in <= (inner_carries ? 1 : 0); carry_in++) {
        uint64_t low = span->start + carry_in, high = low + span->count;
        uint64_t base = carry_out ? span->radix : 0;
        side->skipped[s] = low - base;
        low = low > base ? low - base : 0;
        high = high > base ? high - base : 0;
        high = span->radix > 0 && high > span->radix ? span->radix : high;
        if (low < high &&
            !walk_digit(meeting, side, clip, s, carry_in, span->digit_end - 1, low, high)) {
            return false;
        }
    }
    return true;
}

static uint32_t digit_of(const struct meeting *meeting, uint64_t step)
{
    uint32_t digit = 0;
    while (meeting->chain[digit] != step) {
        digit++;
    }
    return digit;
}

/* `axes` by falling step, none of them 0, none overflowing the next, all steps in the chain. */
static void set_side(const struct meeting *meeting, struct side *side, const struct wf_nest *nest)
{
    side->span_count = 0;
    side->tensor_offset = nest->tensor_offset;
    uint64_t outer_step = 0;
    uint32_t digit_end = meeting->digit_count;
    for (uint32_t a = 0; a <= nest->axis_count; a++) {
        /* Digits below the smallest step are those of param_first: a span of one value. */
        struct wf_axis axis = {.count = 1, .param_step = 1};
        if (a < nest->axis_count) {
            axis = nest->axes[a];
        } else if (digit_end == 0) {
            break;
        }
        struct span *span = &side->spans[side->span_count++];
        uint64_t start = nest->param_first / axis.param_step;
        *span = (struct span){.count = axis.count,
                              .step = axis.param_step,
                              .radix = outer_step / axis.param_step,
                              .tensor_step = axis.tensor_step,
                              .digit_first = digit_of(meeting, axis.param_step),
                              .digit_end = digit_end};
        span->start = span->radix > 0 ? start % span->radix : start;
        outer_step = axis.param_step;
        digit_end = span->digit_first;
    }
    bool inner_carries = false;
    for (uint32_t s = side->span_count; s-- > 0;) {
        struct span *span = &side->spans[s];
        span->can_carry =
            span->radix > 0 && span->start + span->count + (inner_carries ? 1 : 0) > span->radix;
        inner_carries = span->can_carry;
    }
}

/* --- making a chain -------------------------------------------------------------------------- */

/* Number of cases that writing out all axes of this step would make. */
static uint64_t cost_of(const struct wf_nest *src, const struct wf_nest *dst, uint64_t step)
{
    uint64_t cost = 1;
    for (unsigned side = 0; side < 2; side++) {
        const struct wf_nest *nest = side == 0 ? src : dst;
        for (uint32_t a = 0; a < nest->axis_count; a++) {
            if (nest->axes[a].param_step == step &&
                __builtin_mul_overflow(cost, nest->axes[a].count, &cost)) {
                return UINT64_MAX;
            }
        }
    }
    return cost;
}

static void add_steps(struct meeting *meeting, const struct wf_nest *nest)
{
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        uint64_t step = nest->axes[a].param_step;
        uint32_t at = meeting->digit_count;
        while (meeting->chain[at - 1] > step) {
            at--;
        }
        if (meeting->chain[at - 1] == step) {
            continue;
        }
        memmove(&meeting->chain[at + 1], &meeting->chain[at],
                (meeting->digit_count - at) * sizeof meeting->chain[0]);
        meeting->chain[at] = step;
        meeting->digit_count++;
    }
}

/* Makes the chain; gives 0, or the step whose axes must be written out first. */
static uint64_t find_chain(struct meeting *meeting, const struct wf_nest *src,
                           const struct wf_nest *dst)
{
    meeting->chain[0] = 1;
    meeting->digit_count = 1;
    add_steps(meeting, src);
    add_steps(meeting, dst);
    uint64_t small = 0, large = 0;
    for (uint32_t d = 2; d < meeting->digit_count && small == 0; d++) {
        if (meeting->chain[d] % meeting->chain[d - 1] != 0) {
            small = meeting->chain[d - 1];
            large = meeting->chain[d];
        }
    }
    for (unsigned side = 0; side < 2 && small == 0; side++) {
        const struct wf_nest *nest = side == 0 ? src : dst;
        for (uint32_t a = 1; a < nest->axis_count; a++) {
            if (nest->axes[a].count > nest->axes[a - 1].param_step / nest->axes[a].param_step) {
                small = nest->axes[a].param_step;
                large = nest->axes[a - 1].param_step;
            }
        }
    }
    if (small == 0) {
        return 0;
    }
    return cost_of(src, dst, small) <= cost_of(src, dst, large) ? small : large;
}

static uint64_t last_element(const struct wf_nest *nest)
{
    uint64_t last = nest->param_first;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        last += (nest->axes[a].count - 1) * nest->axes[a].param_step;
    }
    return last;
}

static bool meet(struct meeting *meeting, const struct wf_nest *src, const struct wf_nest *dst);

/* Meets the other nest with one index of axis `a` of `nest` after the other. */
static bool write_out(struct meeting *meeting, const struct wf_nest *nest, uint32_t a,
                      const struct wf_nest *other, bool nest_is_src)
{
    struct wf_nest one = *nest;
    struct wf_axis axis = nest->axes[a];
    one.axis_count--;
    memmove(&one.axes[a], &one.axes[a + 1], (one.axis_count - a) * sizeof one.axes[0]);
    uint64_t extent = last_element(&one) - one.param_first, other_last = last_element(other);
    uint64_t first = 0;
    if (other->param_first > one.param_first + extent) {
        first = (other->param_first - one.param_first - extent - 1) / axis.param_step + 1;
    }
    for (uint64_t i = first; i < axis.count; i++) {
        one.param_first = nest->param_first + i * axis.param_step;
        one.tensor_offset = nest->tensor_offset + i * (uint64_t)axis.tensor_step;
        if (one.param_first > other_last) {
            return true;
        }
        if (!count_box(meeting) ||
            !meet(meeting, nest_is_src ? &one : other, nest_is_src ? other : &one)) {
            return false;
        }
    }
    return true;
}

/* Nests with sorted axes of more than one element and no repeats. Recurses once per axis. */
static bool meet(struct meeting *meeting, const struct wf_nest *src, const struct wf_nest *dst)
{
    if (last_element(src) < dst->param_first || last_element(dst) < src->param_first) {
        return true;
    }
    uint64_t step = find_chain(meeting, src, dst);
    if (step == 0) {
        set_side(meeting, &meeting->src, src);
        set_side(meeting, &meeting->dst, dst);
        return walk_span(meeting, &meeting->dst, NULL, 0, false);
    }
    for (uint32_t a = 0; a < src->axis_count; a++) {
        if (src->axes[a].param_step == step) {
            return write_out(meeting, src, a, dst, true);
        }
    }
    uint32_t a = 0;
    while (dst->axes[a].param_step != step) {
        a++;
    }
    return write_out(meeting, dst, a, src, false);
}

/* Splits a nest into repeats, in its order, and the rest by falling step. Of a repeat only index 0
 * stays in the rest. */
static uint32_t split_repeats(const struct wf_nest *nest, struct wf_nest *rest_out,
                              struct wf_axis repeats_out[WF_AXES_MAX])
{
    uint32_t repeat_count = 0;
    *rest_out = *nest;
    rest_out->axis_count = 0;
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        const struct wf_axis *axis = &nest->axes[a];
        if (axis->count == 1) {
            continue;
        }
        if (axis->param_step == 0) {
            repeats_out[repeat_count++] = *axis;
            continue;
        }
        uint32_t at = rest_out->axis_count++;
        while (at > 0 && rest_out->axes[at - 1].param_step < axis->param_step) {
            rest_out->axes[at] = rest_out->axes[at - 1];
            at--;
        }
        rest_out->axes[at] = *axis;
    }
    return repeat_count;
}

/* --- entrance -------------------------------------------------------------------------------- */

static void intersect_runs(uint64_t src_count, const struct wf_nest *src, uint64_t dst_count,
                           const struct wf_nest *dst, wf_box_emit_t *emit, void *user)
{
    uint64_t src_end = src->param_first + src_count, dst_end = dst->param_first + dst_count;
    uint64_t first = src->param_first > dst->param_first ? src->param_first : dst->param_first;
    uint64_t end = src_end < dst_end ? src_end : dst_end;
    if (first >= end) {
        return;
    }
    struct wf_box box = {.param_first = first, .elements = end - first};
    box.src_offset = src->tensor_offset + (first - src->param_first) * src->elem_bytes;
    box.dst_offset = dst->tensor_offset + (first - dst->param_first) * dst->elem_bytes;
    if (box.elements > 1) {
        box.axis_count = 1;
        box.axes[0].count = box.elements;
        box.axes[0].src_step = src->elem_bytes;
        box.axes[0].dst_step = dst->elem_bytes;
    }
    emit(user, &box);
}

enum wf_status wf_nest_intersect(const struct wf_nest *src, const struct wf_nest *dst,
                                 wf_box_emit_t *emit, void *user, struct wf_error *error)
{
    uint64_t src_count, dst_count;
    if (wf_nest_is_run(src, &src_count) && wf_nest_is_run(dst, &dst_count)) {
        intersect_runs(src_count, src, dst_count, dst, emit, user);
        return WF_OK;
    }
    struct meeting meeting = {.emit = emit, .user = user};
    struct wf_nest src_rest, dst_rest;
    struct wf_axis first_copy_only[WF_AXES_MAX];
    split_repeats(src, &src_rest, first_copy_only);
    meeting.repeat_count = split_repeats(dst, &dst_rest, meeting.repeats);
    meet(&meeting, &src_rest, &dst_rest);
    if (meeting.too_many) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "two nests at elements %" PRIu64 " and %" PRIu64
                            " of a parameter meet in more than %d boxes: their steps have no "
                            "common factors",
                            src->param_first, dst->param_first, BOXES_MAX);
    }
    return WF_OK;
}
