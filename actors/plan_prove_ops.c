/* plan_prove_ops.c - that one op moves the right elements, by its box and the two layouts alone.
 *
 * A piece turned round maps places in its tensor to elements of the parameter; the op's box maps
 * places in the same tensor to ordinals. Where they meet, ordinals map to elements. That is done at
 * the source and at the target, and the two maps must be total and equal.
 */
#include <inttypes.h>
#include <string.h>

#include "actors/plan_prove_parts.h"

/* Places are counted in bytes: a piece's steps may be any multiple of one. */
struct collector {
    struct wf_proof_list *list; /* ordinal -> element */
    uint32_t owner;
    uint64_t elements;
    bool too_many;
};

static bool collect_box(void *user, const struct wf_box *box)
{
    struct collector *collector = user;
    struct wf_proof_map map = {
        .from = box->dst_offset, .to = box->src_offset, .axis_count = box->axis_count};
    for (uint32_t a = 0; a < box->axis_count; a++) {
        map.axes[a].count = box->axes[a].count;
        map.axes[a].from_step = box->axes[a].dst_step;
        map.axes[a].to_step = box->axes[a].src_step;
    }
    collector->elements += box->elements;
    collector->too_many = !wf_proof_add_map(collector->list, &map, collector->owner);
    return !collector->too_many && !collector->list->failed;
}

/* One side of the box: place -> ordinal. */
static bool box_places(const struct wf_box *box, bool dst, struct wf_proof_list *list)
{
    struct wf_proof_map map = {.from = dst ? box->dst_offset : box->src_offset,
                               .axis_count = box->axis_count};
    uint64_t ordinal_step = 1;
    for (uint32_t a = box->axis_count; a-- > 0;) {
        map.axes[a].count = box->axes[a].count;
        map.axes[a].from_step = dst ? box->axes[a].dst_step : box->axes[a].src_step;
        map.axes[a].to_step = (int64_t)ordinal_step;
        ordinal_step *= box->axes[a].count;
    }
    list->count = 0;
    return wf_proof_add_map(list, &map, 0);
}

/* Appends place -> element of a piece. */
static bool piece_places(const struct wf_nest *nest, struct wf_proof_list *list)
{
    struct wf_proof_map map = {
        .from = nest->tensor_offset, .to = nest->param_first, .axis_count = nest->axis_count};
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        map.axes[a].count = nest->axes[a].count;
        map.axes[a].from_step = nest->axes[a].tensor_step;
        map.axes[a].to_step = (int64_t)nest->axes[a].param_step;
    }
    return wf_proof_add_map(list, &map, 0);
}

static enum wf_status unprovable(const char *what, struct wf_error *error)
{
    return wf_error_set(error, WF_MISMATCH, "the steps of its %s have no order that can be proven",
                        what);
}

/* Ordinal -> element, as one side's pieces of the parameter show it. MISMATCH if it is not total.
 */
static enum wf_status side_elements(const struct wf_op *op, const struct wf_proof_side *side,
                                    bool dst, struct wf_proof_scratch *scratch,
                                    struct wf_error *error)
{
    struct wf_proof_list *result = dst ? &scratch->dst : &scratch->src;
    struct wf_proof_list *places = &scratch->box;
    uint32_t tensor = dst ? op->dst_tensor : op->src_tensor;
    const char *name = side->layout->tensors[tensor].name;
    struct collector collector = {.list = result};
    result->count = 0;
    if (!box_places(&op->box, dst, places)) {
        return unprovable("box", error);
    }
    size_t box_count = places->count;
    for (uint32_t i = side->first[tensor]; i < side->first[tensor + 1]; i++) {
        const struct wf_piece *piece = &side->layout->pieces[side->order[i]];
        if (piece->kind != WF_PIECE_DATA || piece->param != op->param) {
            continue;
        }
        struct wf_nest nest = wf_layout_nest(side->layout, side->order[i]);
        places->count = box_count;
        if (!piece_places(&nest, places)) {
            return unprovable("piece", error);
        }
        for (size_t p = box_count; p < places->count; p++) {
            for (size_t b = 0; b < box_count; b++) {
                enum wf_status status = wf_nest_intersect(&places->nests[p], &places->nests[b],
                                                          collect_box, &collector, error);
                if (status != WF_OK || collector.too_many) {
                    return status != WF_OK ? status : unprovable("map", error);
                }
            }
        }
    }
    if (places->failed || result->failed) {
        return wf_proof_no_memory(error);
    }
    if (collector.elements != op->box.elements) {
        return wf_error_set(error, WF_MISMATCH,
                            "only %" PRIu64 " of its %" PRIu64 " elements stand where %s tensor %s "
                            "shows the parameter",
                            collector.elements, op->box.elements, dst ? "target" : "source", name);
    }
    return WF_OK;
}

struct comparison {
    uint64_t equal;
    bool differs;
    uint64_t src_element, dst_element;
};

static bool compare_box(void *user, const struct wf_box *box)
{
    struct comparison *comparison = user;
    bool same = box->src_offset == box->dst_offset;
    for (uint32_t a = 0; a < box->axis_count; a++) {
        same = same && box->axes[a].src_step == box->axes[a].dst_step;
    }
    if (!same) {
        comparison->differs = true;
        comparison->src_element = box->src_offset;
        comparison->dst_element = box->dst_offset;
        return false;
    }
    comparison->equal += box->elements;
    return true;
}

static enum wf_status compare_sides(const struct wf_op *op, const struct wf_proof_scratch *scratch,
                                    struct wf_error *error)
{
    struct comparison comparison = {0};
    for (size_t s = 0; s < scratch->src.count; s++) {
        for (size_t d = 0; d < scratch->dst.count; d++) {
            enum wf_status status = wf_nest_intersect(
                &scratch->src.nests[s], &scratch->dst.nests[d], compare_box, &comparison, error);
            if (status != WF_OK) {
                return status;
            }
            if (comparison.differs) {
                return wf_error_set(error, WF_MISMATCH,
                                    "it reads element %" PRIu64 " of the parameter where its "
                                    "target shows element %" PRIu64,
                                    comparison.src_element, comparison.dst_element);
            }
        }
    }
    if (comparison.equal != op->box.elements) {
        return wf_error_set(error, WF_MISMATCH,
                            "only %" PRIu64 " of its %" PRIu64 " elements are the same on both "
                            "sides",
                            comparison.equal, op->box.elements);
    }
    return WF_OK;
}

static enum wf_status check_fields(const struct wf_model *model, const struct wf_op *op,
                                   const struct wf_layout *src, const struct wf_layout *dst,
                                   struct wf_error *error)
{
    const struct wf_box *box = &op->box;
    if (op->param >= model->param_count || op->src_tensor >= src->tensor_count ||
        op->dst_tensor >= dst->tensor_count || op->kind != WF_OP_MOVE || op->value_rule != 0 ||
        box->axis_count > WF_AXES_MAX) {
        return wf_error_set(
            error, WF_MISMATCH,
            "parameter %" PRIu32 ", source tensor %" PRIu32 ", target tensor %" PRIu32
            ", kind %u, value rule %u or %" PRIu32 " axes do not exist",
            op->param, op->src_tensor, op->dst_tensor, op->kind, op->value_rule, box->axis_count);
    }
    uint64_t elements = 1;
    for (uint32_t a = 0; a < box->axis_count; a++) {
        if (__builtin_mul_overflow(elements, box->axes[a].count, &elements)) {
            return wf_error_set(error, WF_MISMATCH, "its box has more than 2^64 elements");
        }
    }
    if (elements != box->elements || elements == 0) {
        return wf_error_set(error, WF_MISMATCH,
                            "its box says %" PRIu64 " elements but its axes have %" PRIu64,
                            box->elements, elements);
    }
    enum wf_dtype from = src->tensors[op->src_tensor].dtype,
                  to = dst->tensors[op->dst_tensor].dtype;
    if (!wf_dtype_castable(from, to)) {
        return wf_error_set(error, WF_MISMATCH, "it casts %s to %s, which does not exist",
                            wf_dtype_name(from), wf_dtype_name(to));
    }
    return WF_OK;
}

enum wf_status wf_proof_op(const struct wf_model *model, const struct wf_op *op,
                           const struct wf_proof_side *src, const struct wf_proof_side *dst,
                           struct wf_proof_scratch *scratch, struct wf_error *error)
{
    enum wf_status status = check_fields(model, op, src->layout, dst->layout, error);
    if (status == WF_OK) {
        status = side_elements(op, src, false, scratch, error);
    }
    if (status == WF_OK) {
        status = side_elements(op, dst, true, scratch, error);
    }
    return status == WF_OK ? compare_sides(op, scratch, error) : status;
}
