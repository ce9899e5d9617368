/* plan_prove.c - the coverage proof. It trusts nothing that the planner did.
 *
 * For each infer rank, tensor by tensor:
 *   1. the layout's pieces lie inside the tensor, are pairwise disjoint and fill it (fills
 *      included); derived and kept tensors have none (once per different layout);
 *   2. each op writes only what data pieces of its parameter show in its tensor, and reads the very
 *      same elements of the parameter from pieces of its source (plan_prove_ops.c);
 *   3. the boxes that the rank's ops write are pairwise disjoint, and as many elements as the
 *      tensor's data pieces have.
 * Together: every element is written exactly once, with the right one, or is fill, derived or kept.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "actors/plan_prove_parts.h"

struct op_ref {
    const struct wf_edge *edge;
    const struct wf_op *op;
};

struct prover {
    const struct wf_plan_input *input;
    const struct wf_plan *plan;
    struct wf_error *error;
    uint32_t train_count, infer_count;
    struct wf_proof_side *sides; /* of different layouts */
    uint32_t side_count;
    uint32_t *side_of;                 /* of each member */
    uint32_t *edge_first, *edge_order; /* edges by infer rank */
    struct op_ref *refs;               /* ops of the infer rank at hand, by target tensor */
    uint64_t *ref_first;
    struct wf_proof_list bytes;
    struct wf_proof_scratch scratch;
};

/* --- 1: layouts --------------------------------------------------------------------------------
 */

static enum wf_status index_side(struct wf_proof_side *side, const struct wf_layout *layout,
                                 struct wf_error *error)
{
    side->layout = layout;
    side->first = calloc(layout->tensor_count + 2ull, sizeof *side->first);
    side->order = calloc(layout->piece_count + 1ull, sizeof *side->order);
    if (side->first == NULL || side->order == NULL) {
        return wf_proof_no_memory(error);
    }
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        if (layout->pieces[i].tensor >= layout->tensor_count) {
            return wf_error_set(error, WF_MISMATCH,
                                "piece %" PRIu32 " is of tensor %" PRIu32
                                ", but there are %" PRIu32,
                                i, layout->pieces[i].tensor, layout->tensor_count);
        }
        side->first[layout->pieces[i].tensor + 2]++;
    }
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        side->first[t + 2] += side->first[t + 1];
    }
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        side->order[side->first[layout->pieces[i].tensor + 1]++] = i;
    }
    return WF_OK;
}

/* A fill shows no parameter: only its places are looked at. */
static struct wf_nest piece_nest(const struct wf_layout *layout, uint32_t index)
{
    struct wf_nest nest = wf_layout_nest(layout, index);
    if (layout->pieces[index].kind != WF_PIECE_DATA) {
        nest.param_first = 0;
        for (uint32_t a = 0; a < nest.axis_count; a++) {
            nest.axes[a].param_step = 0;
        }
    }
    return nest;
}

static enum wf_status check_piece(const struct wf_model *model, const struct wf_layout *layout,
                                  uint32_t index, struct wf_error *error)
{
    const struct wf_piece *piece = &layout->pieces[index];
    const struct wf_tensor *tensor = &layout->tensors[piece->tensor];
    struct wf_nest nest = piece_nest(layout, index);
    bool data = piece->kind == WF_PIECE_DATA;
    if (data &&
        (piece->param >= model->param_count || nest.elem_bytes != wf_dtype_bytes(tensor->dtype))) {
        return wf_error_set(error, WF_MISMATCH,
                            "tensor %s shows parameter %" PRIu32 " of %" PRIu32
                            " in elements of %" PRIu32 " bytes",
                            tensor->name, piece->param, model->param_count, nest.elem_bytes);
    }
    enum wf_status status =
        wf_nest_check(&nest, data ? model->params[piece->param].elements : 1, tensor->bytes, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "piece %" PRIu32 " of tensor %s", index, tensor->name);
        return WF_MISMATCH;
    }
    return WF_OK;
}

static struct wf_proof_map nest_places(const struct wf_nest *nest)
{
    struct wf_proof_map map = {.from = nest->tensor_offset, .axis_count = nest->axis_count};
    for (uint32_t a = 0; a < nest->axis_count; a++) {
        map.axes[a].count = nest->axes[a].count;
        map.axes[a].from_step = nest->axes[a].tensor_step;
    }
    return map;
}

/* Its pieces are disjoint and fill it. */
static enum wf_status check_tensor(struct prover *prover, const struct wf_proof_side *side,
                                   uint32_t tensor)
{
    const struct wf_tensor *named = &side->layout->tensors[tensor];
    uint64_t bytes = 0;
    prover->bytes.count = 0;
    for (uint32_t i = side->first[tensor]; i < side->first[tensor + 1]; i++) {
        struct wf_nest nest = piece_nest(side->layout, side->order[i]);
        struct wf_proof_map map = nest_places(&nest);
        bytes += wf_nest_elements(&nest) * nest.elem_bytes;
        if (!wf_proof_add_bytes(&prover->bytes, &map, nest.elem_bytes, side->order[i])) {
            return wf_error_set(prover->error, WF_MISMATCH,
                                "tensor %s: the steps of piece %" PRIu32
                                " have no order that can be proven",
                                named->name, side->order[i]);
        }
    }
    struct wf_proof_clash clash;
    enum wf_status status = wf_proof_clash(&prover->bytes, &clash, prover->error);
    if (status != WF_OK) {
        return status;
    }
    if (clash.found) {
        return wf_error_set(prover->error, WF_MISMATCH,
                            "tensor %s: pieces %" PRIu32 " and %" PRIu32
                            " of its layout both show byte %" PRIu64,
                            named->name, clash.a, clash.b, clash.at);
    }
    uint64_t wanted = named->kind == WF_TENSOR_WEIGHTS ? named->bytes : 0;
    if (bytes != wanted) {
        return wf_error_set(prover->error, WF_MISMATCH,
                            "tensor %s: the pieces of its layout show %" PRIu64 " of %" PRIu64
                            " bytes",
                            named->name, bytes, wanted);
    }
    return WF_OK;
}

static enum wf_status check_layout(struct prover *prover, struct wf_proof_side *side, bool covers)
{
    const struct wf_layout *layout = side->layout;
    for (uint32_t t = 0; t < layout->tensor_count && covers && !side->covers; t++) {
        enum wf_status status = check_tensor(prover, side, t);
        if (status != WF_OK) {
            return status;
        }
    }
    side->covers = side->covers || covers;
    return WF_OK;
}

static enum wf_status check_member(struct prover *prover, uint32_t member)
{
    const struct wf_layout *layout = prover->input->members[member].layout;
    uint32_t s = 0;
    while (s < prover->side_count && !wf_hash_equal(prover->sides[s].layout->hash, layout->hash)) {
        s++;
    }
    prover->side_of[member] = s;
    if (s == prover->side_count) {
        prover->side_count++;
        enum wf_status status = index_side(&prover->sides[s], layout, prover->error);
        for (uint32_t i = 0; i < layout->piece_count && status == WF_OK; i++) {
            status = check_piece(prover->input->model, layout, i, prover->error);
        }
        if (status != WF_OK) {
            return status;
        }
    }
    return check_layout(prover, &prover->sides[s], member >= prover->train_count);
}

static enum wf_status check_members(struct prover *prover)
{
    for (uint32_t m = 0; m < prover->input->member_count; m++) {
        enum wf_status status = check_member(prover, m);
        if (status != WF_OK) {
            bool train = m < prover->train_count;
            wf_error_prefix(prover->error, "%s rank %" PRIu32, train ? "train" : "infer",
                            train ? m : m - prover->train_count);
            return status;
        }
    }
    return WF_OK;
}

/* --- edges by infer rank -----------------------------------------------------------------------
 */

static enum wf_status index_edges(struct prover *prover)
{
    const struct wf_plan *plan = prover->plan;
    prover->edge_first = calloc(prover->infer_count + 2ull, sizeof *prover->edge_first);
    prover->edge_order = calloc(plan->edge_count + 1ull, sizeof *prover->edge_order);
    if (prover->edge_first == NULL || prover->edge_order == NULL) {
        return wf_proof_no_memory(prover->error);
    }
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        if (edge->src_rank >= prover->train_count || edge->dst_rank >= prover->infer_count) {
            return wf_error_set(prover->error, WF_MISMATCH,
                                "edge %" PRIu32 " goes from train rank %" PRIu32
                                " to infer rank %" PRIu32 "; there are %" PRIu32 " and %" PRIu32,
                                e, edge->src_rank, edge->dst_rank, prover->train_count,
                                prover->infer_count);
        }
        prover->edge_first[edge->dst_rank + 2]++;
    }
    for (uint32_t d = 0; d < prover->infer_count; d++) {
        prover->edge_first[d + 2] += prover->edge_first[d + 1];
    }
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        prover->edge_order[prover->edge_first[plan->edges[e].dst_rank + 1]++] = e;
    }
    return WF_OK;
}

static const struct wf_proof_side *member_side(const struct prover *prover, enum wf_side side,
                                               uint32_t rank)
{
    return &prover->sides[prover->side_of[side == WF_TRAIN ? rank : prover->train_count + rank]];
}

/* --- 2: ops ------------------------------------------------------------------------------------
 */

static enum wf_status wrong_op(const struct prover *prover, const struct wf_edge *edge,
                               const struct wf_op *op)
{
    const struct wf_model *model = prover->input->model;
    wf_error_prefix(prover->error,
                    "box %td of parameter %s from train rank %" PRIu32 " to infer rank %" PRIu32,
                    op - edge->ops,
                    op->param < model->param_count ? model->params[op->param].name : "(unknown)",
                    edge->src_rank, edge->dst_rank);
    return WF_MISMATCH;
}

static enum wf_status check_edge(struct prover *prover, const struct wf_edge *edge,
                                 uint64_t *op_count, uint64_t *bytes)
{
    const struct wf_proof_side *src = member_side(prover, WF_TRAIN, edge->src_rank);
    const struct wf_proof_side *dst = member_side(prover, WF_INFER, edge->dst_rank);
    uint64_t edge_bytes = 0;
    for (uint32_t i = 0; i < edge->op_count; i++) {
        const struct wf_op *op = &edge->ops[i];
        enum wf_status status =
            wf_proof_op(prover->input->model, op, src, dst, &prover->scratch, prover->error);
        if (status != WF_OK) {
            return status == WF_NO_MEMORY ? status : wrong_op(prover, edge, op);
        }
        edge_bytes += op->box.elements * wf_dtype_bytes(dst->layout->tensors[op->dst_tensor].dtype);
    }
    if (edge_bytes != edge->bytes) {
        return wf_error_set(prover->error, WF_MISMATCH,
                            "the edge from train rank %" PRIu32 " to infer rank %" PRIu32
                            " says %" PRIu64 " bytes, its boxes have %" PRIu64,
                            edge->src_rank, edge->dst_rank, edge->bytes, edge_bytes);
    }
    *op_count += edge->op_count;
    *bytes += edge_bytes;
    return WF_OK;
}

static enum wf_status check_edges(struct prover *prover)
{
    const struct wf_plan *plan = prover->plan;
    uint64_t op_count = 0, bytes = 0;
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        enum wf_status status = check_edge(prover, &plan->edges[e], &op_count, &bytes);
        if (status != WF_OK) {
            return status;
        }
    }
    if (op_count != plan->op_count || bytes != plan->bytes_moved) {
        return wf_error_set(prover->error, WF_MISMATCH,
                            "the plan says %" PRIu64 " boxes and %" PRIu64
                            " bytes, its edges have %" PRIu64 " and %" PRIu64,
                            plan->op_count, plan->bytes_moved, op_count, bytes);
    }
    return WF_OK;
}

/* --- 3: coverage -------------------------------------------------------------------------------
 */

/* Lists the ops of one infer rank by target tensor. */
static enum wf_status gather_ops(struct prover *prover, uint32_t rank)
{
    const struct wf_layout *layout = member_side(prover, WF_INFER, rank)->layout;
    uint64_t count = 0;
    free(prover->refs);
    free(prover->ref_first);
    for (uint32_t i = prover->edge_first[rank]; i < prover->edge_first[rank + 1]; i++) {
        count += prover->plan->edges[prover->edge_order[i]].op_count;
    }
    prover->refs = calloc(count + 1, sizeof *prover->refs);
    prover->ref_first = calloc(layout->tensor_count + 2ull, sizeof *prover->ref_first);
    if (prover->refs == NULL || prover->ref_first == NULL) {
        return wf_proof_no_memory(prover->error);
    }
    for (unsigned pass = 0; pass < 2; pass++) {
        for (uint32_t i = prover->edge_first[rank]; i < prover->edge_first[rank + 1]; i++) {
            const struct wf_edge *edge = &prover->plan->edges[prover->edge_order[i]];
            for (uint32_t o = 0; o < edge->op_count; o++) {
                uint32_t tensor = edge->ops[o].dst_tensor;
                if (pass == 0) {
                    prover->ref_first[tensor + 2]++;
                } else {
                    prover->refs[prover->ref_first[tensor + 1]++] =
                        (struct op_ref){edge, &edge->ops[o]};
                }
            }
        }
        for (uint32_t t = 0; t < layout->tensor_count && pass == 0; t++) {
            prover->ref_first[t + 2] += prover->ref_first[t + 1];
        }
    }
    return WF_OK;
}

static enum wf_status wrong_clash(const struct prover *prover, uint32_t rank, uint32_t tensor,
                                  const struct wf_proof_clash *clash)
{
    const struct op_ref *refs = prover->refs + prover->ref_first[tensor];
    const struct wf_param *params = prover->input->model->params;
    return wf_error_set(prover->error, WF_MISMATCH,
                        "infer rank %" PRIu32 ", tensor %s: byte %" PRIu64
                        " is written twice: by a box of parameter %s from train rank %" PRIu32
                        " and by one of parameter %s from train rank %" PRIu32,
                        rank, member_side(prover, WF_INFER, rank)->layout->tensors[tensor].name,
                        clash->at, params[refs[clash->a].op->param].name,
                        refs[clash->a].edge->src_rank, params[refs[clash->b].op->param].name,
                        refs[clash->b].edge->src_rank);
}

/* Says which parameter of the tensor lacks elements. */
static enum wf_status wrong_count(const struct prover *prover, uint32_t rank, uint32_t tensor)
{
    const struct wf_proof_side *side = member_side(prover, WF_INFER, rank);
    for (uint32_t i = side->first[tensor]; i < side->first[tensor + 1]; i++) {
        const struct wf_piece *piece = &side->layout->pieces[side->order[i]];
        uint64_t needed = 0, written = 0;
        for (uint32_t j = side->first[tensor]; j < side->first[tensor + 1]; j++) {
            struct wf_nest nest = wf_layout_nest(side->layout, side->order[j]);
            const struct wf_piece *other = &side->layout->pieces[side->order[j]];
            bool same = other->kind == WF_PIECE_DATA && other->param == piece->param;
            needed += same ? wf_nest_elements(&nest) : 0;
        }
        for (uint64_t r = prover->ref_first[tensor]; r < prover->ref_first[tensor + 1]; r++) {
            const struct wf_op *op = prover->refs[r].op;
            written += op->param == piece->param ? op->box.elements : 0;
        }
        if (piece->kind == WF_PIECE_DATA && written != needed) {
            return wf_error_set(prover->error, WF_MISMATCH,
                                "infer rank %" PRIu32 ", tensor %s: only %" PRIu64 " of %" PRIu64
                                " elements of parameter %s are written",
                                rank, side->layout->tensors[tensor].name, written, needed,
                                prover->input->model->params[piece->param].name);
        }
    }
    return wf_error_set(prover->error, WF_MISMATCH,
                        "infer rank %" PRIu32 ", tensor %s: more is written than its pieces show",
                        rank, side->layout->tensors[tensor].name);
}

static enum wf_status cover_tensor(struct prover *prover, uint32_t rank, uint32_t tensor)
{
    const struct wf_proof_side *side = member_side(prover, WF_INFER, rank);
    const struct wf_tensor *named = &side->layout->tensors[tensor];
    uint64_t needed = 0, written = 0, first = prover->ref_first[tensor];
    for (uint32_t i = side->first[tensor]; i < side->first[tensor + 1]; i++) {
        struct wf_nest nest = wf_layout_nest(side->layout, side->order[i]);
        bool data = side->layout->pieces[side->order[i]].kind == WF_PIECE_DATA;
        needed += data ? wf_nest_elements(&nest) : 0;
    }
    prover->bytes.count = 0;
    for (uint64_t r = first; r < prover->ref_first[tensor + 1]; r++) {
        const struct wf_box *box = &prover->refs[r].op->box;
        struct wf_proof_map map = {.from = box->dst_offset, .axis_count = box->axis_count};
        for (uint32_t a = 0; a < box->axis_count; a++) {
            map.axes[a].count = box->axes[a].count;
            map.axes[a].from_step = box->axes[a].dst_step;
        }
        written += box->elements;
        if (!wf_proof_add_bytes(&prover->bytes, &map, (uint32_t)wf_dtype_bytes(named->dtype),
                                (uint32_t)(r - first))) {
            return wf_error_set(prover->error, WF_MISMATCH,
                                "infer rank %" PRIu32
                                ", tensor %s: a box writes one byte twice, or "
                                "its steps have no order that can be proven",
                                rank, named->name);
        }
    }
    struct wf_proof_clash clash;
    enum wf_status status = wf_proof_clash(&prover->bytes, &clash, prover->error);
    if (status != WF_OK) {
        return status;
    }
    if (clash.found) {
        return wrong_clash(prover, rank, tensor, &clash);
    }
    return needed == written ? WF_OK : wrong_count(prover, rank, tensor);
}

static enum wf_status cover_ranks(struct prover *prover)
{
    for (uint32_t rank = 0; rank < prover->infer_count; rank++) {
        enum wf_status status = gather_ops(prover, rank);
        const struct wf_layout *layout = member_side(prover, WF_INFER, rank)->layout;
        for (uint32_t t = 0; t < layout->tensor_count && status == WF_OK; t++) {
            status = cover_tensor(prover, rank, t);
        }
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

/* -----------------------------------------------------------------------------------------------
 */

static void fini_prover(struct prover *prover)
{
    for (uint32_t s = 0; s < prover->side_count; s++) {
        free(prover->sides[s].first);
        free(prover->sides[s].order);
    }
    free(prover->sides);
    free(prover->side_of);
    free(prover->edge_first);
    free(prover->edge_order);
    free(prover->refs);
    free(prover->ref_first);
    wf_proof_list_fini(&prover->bytes);
    wf_proof_list_fini(&prover->scratch.box);
    wf_proof_list_fini(&prover->scratch.src);
    wf_proof_list_fini(&prover->scratch.dst);
}

static enum wf_status prove(struct prover *prover)
{
    static enum wf_status (*const steps[])(struct prover *) = {check_members, index_edges,
                                                               check_edges, cover_ranks};
    prover->sides = calloc(prover->input->member_count + 1ull, sizeof *prover->sides);
    prover->side_of = calloc(prover->input->member_count + 1ull, sizeof *prover->side_of);
    if (prover->sides == NULL || prover->side_of == NULL) {
        return wf_proof_no_memory(prover->error);
    }
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && status == WF_OK; i++) {
        status = steps[i](prover);
    }
    return status;
}

enum wf_status wf_plan_prove(const struct wf_plan_input *input, const struct wf_plan *plan,
                             struct wf_error *error)
{
    struct wf_error unused;
    struct prover prover = {.input = input, .plan = plan, .error = error != NULL ? error : &unused};
    for (uint32_t m = 0; m < input->member_count; m++) {
        bool train = input->members[m].side == WF_TRAIN;
        prover.train_count += train;
        prover.infer_count += !train;
    }
    enum wf_status status = prove(&prover);
    fini_prover(&prover);
    return status;
}
