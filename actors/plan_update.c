/* plan_update.c - plans of members whose experts stand by a table: what differs from the plan by
 * rule is planned again, for the ranks and parameters concerned alone.
 *
 * Which parameters are concerned follows piece by piece from the two layouts of a rank. Of them,
 * and of nothing else, smaller layouts are made, which the planner's own steps meet; an op belongs
 * to one parameter, so that edges are the base's ops of other parameters and the new ops of these.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/plan_parts.h"

/* An infer rank whose layout is not the one by rule. */
struct moved {
    uint32_t rank;
    uint8_t *params; /* bits: parameters whose places differ */
};

struct update {
    const struct wf_plan_input *input;
    struct wf_plan_arena arena;
    uint32_t train_count, infer_count;
    struct moved *moved; /* ascending ranks */
    uint32_t moved_count;
    uint8_t *any;                   /* bits: parameters that any moved rank needs */
    struct wf_plan_member *members; /* of the smaller plan */
    struct wf_plan *part;           /* which that is */
    struct wf_error *error;
};

static bool has_bit(const uint8_t *bits, uint32_t index)
{
    return bits[index / 8] >> index % 8 & 1;
}

static void set_bit(uint8_t *bits, uint32_t index)
{
    bits[index / 8] |= (uint8_t)(1u << index % 8);
}

static uint8_t *new_bits(struct update *update)
{
    return wf_plan_alloc(&update->arena, update->input->model->param_count / 8 + 1u, 1);
}

static bool is_moved(const struct wf_plan_member *member)
{
    return member->base != NULL && !wf_hash_equal(member->base->hash, member->layout->hash);
}

/* --- what differs ------------------------------------------------------------------------------
 */

static bool same_place(const struct wf_layout *a, const struct wf_layout *b, uint32_t index)
{
    struct wf_nest x = wf_layout_nest(a, index), y = wf_layout_nest(b, index);
    const struct wf_piece *p = &a->pieces[index], *q = &b->pieces[index];
    return p->tensor == q->tensor && p->kind == q->kind && p->value_rule == q->value_rule &&
           x.param_first == y.param_first && x.tensor_offset == y.tensor_offset &&
           x.elem_bytes == y.elem_bytes && x.axis_count == y.axis_count &&
           memcmp(x.axes, y.axes, x.axis_count * sizeof x.axes[0]) == 0;
}

/* The tensors and their places are the same; only which parameter a place shows may differ. */
static enum wf_status compare_layouts(struct update *update, const struct wf_plan_member *member,
                                      struct moved *moved)
{
    const struct wf_layout *rule = member->base, *real = member->layout;
    bool alike = rule->tensor_count == real->tensor_count && rule->piece_count == real->piece_count;
    for (uint32_t i = 0; alike && i < rule->piece_count; i++) {
        uint32_t was = rule->pieces[i].param, is = real->pieces[i].param;
        alike = same_place(rule, real, i);
        if (alike && was != is && real->pieces[i].kind == WF_PIECE_DATA) {
            set_bit(moved->params, was);
            set_bit(moved->params, is);
            set_bit(update->any, is);
        }
    }
    return alike ? WF_OK
                 : wf_error_set(update->error, WF_INVALID,
                                "infer rank %" PRIu32
                                ": its placement of experts changes more than which experts stand "
                                "in its slots",
                                member->rank);
}

static enum wf_status find_moved(struct update *update)
{
    const struct wf_plan_input *input = update->input;
    uint32_t count = 0;
    for (uint32_t m = 0; m < input->member_count; m++) {
        update->train_count += input->members[m].side == WF_TRAIN;
        count += is_moved(&input->members[m]);
    }
    update->infer_count = input->member_count - update->train_count;
    update->moved = wf_plan_alloc(&update->arena, count, sizeof *update->moved);
    update->any = new_bits(update);
    enum wf_status status = update->arena.failed ? wf_plan_no_memory(update->error) : WF_OK;
    for (uint32_t m = 0; m < input->member_count && status == WF_OK; m++) {
        if (!is_moved(&input->members[m])) {
            continue;
        }
        struct moved *moved = &update->moved[update->moved_count++];
        *moved = (struct moved){.rank = m - update->train_count, .params = new_bits(update)};
        status = moved->params != NULL ? compare_layouts(update, &input->members[m], moved)
                                       : wf_plan_no_memory(update->error);
    }
    /* A parameter that left one slot of a rank may stand in another: it is planned whole. */
    for (uint32_t i = 0; i < update->moved_count && status == WF_OK; i++) {
        for (uint32_t b = 0; b < input->model->param_count / 8 + 1u; b++) {
            update->any[b] |= update->moved[i].params[b];
        }
    }
    return status;
}

/* --- the smaller plan --------------------------------------------------------------------------
 */

/* The layout's data pieces of these parameters; its tensors stay as they are. */
static const struct wf_layout *reduce(struct update *update, const struct wf_layout *layout,
                                      const uint8_t *params)
{
    struct wf_layout *small = wf_plan_alloc(&update->arena, 1, sizeof *small);
    uint32_t count = 0;
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        count += piece->kind == WF_PIECE_DATA && has_bit(params, piece->param);
    }
    struct wf_piece *pieces = wf_plan_alloc(&update->arena, count, sizeof *pieces);
    if (small == NULL || pieces == NULL) {
        return NULL;
    }
    *small = *layout;
    small->pieces = pieces;
    small->piece_count = 0;
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        if (piece->kind == WF_PIECE_DATA && has_bit(params, piece->param)) {
            pieces[small->piece_count++] = *piece;
        }
    }
    return small;
}

/* Layouts that are equal stay so. */
static const struct wf_layout *reduce_source(struct update *update, uint32_t member)
{
    const struct wf_plan_member *members = update->input->members;
    for (uint32_t m = 0; m < member; m++) {
        if (wf_hash_equal(members[m].layout->hash, members[member].layout->hash)) {
            return update->members[m].layout;
        }
    }
    return reduce(update, members[member].layout, update->any);
}

static enum wf_status plan_part(struct update *update)
{
    const struct wf_plan_member *members = update->input->members;
    uint32_t count = update->train_count + update->moved_count;
    update->members = wf_plan_alloc(&update->arena, count, sizeof *update->members);
    if (update->members == NULL) {
        return wf_plan_no_memory(update->error);
    }
    for (uint32_t m = 0; m < count && !update->arena.failed; m++) {
        bool train = m < update->train_count;
        const struct moved *moved = train ? NULL : &update->moved[m - update->train_count];
        const struct wf_plan_member *whole =
            &members[train ? m : update->train_count + moved->rank];
        update->members[m] = *whole;
        update->members[m].base = NULL;
        if (train) {
            update->members[m].layout = reduce_source(update, m);
            continue;
        }
        struct wf_layout *small = (struct wf_layout *)reduce(update, whole->layout, moved->params);
        if (small != NULL) { /* what is left of it follows from both */
            small->hash = wf_hash_add(whole->layout->hash, whole->base->hash);
        }
        update->members[m].rank = m - update->train_count;
        update->members[m].layout = small;
    }
    if (update->arena.failed) {
        return wf_plan_no_memory(update->error);
    }
    struct wf_plan_input input = {
        .model = update->input->model, .members = update->members, .member_count = count};
    return wf_plan_by_rule(&input, &update->part, update->error);
}

/* --- merging -----------------------------------------------------------------------------------
 */

/* Edges into one rank stand together, by source. */
struct cursor {
    const struct wf_plan *plan;
    uint32_t next;
};

static const struct wf_edge *edge_of(const struct cursor *cursor, uint32_t dst_rank)
{
    const struct wf_plan *plan = cursor->plan;
    bool here = cursor->next < plan->edge_count && plan->edges[cursor->next].dst_rank == dst_rank;
    return here ? &plan->edges[cursor->next] : NULL;
}

/* The next pair of edges from one source into a moved rank; either may be missing. */
static bool next_pair(struct cursor *base, uint32_t rank, struct cursor *part, uint32_t number,
                      const struct wf_edge **kept_out, const struct wf_edge **new_out)
{
    const struct wf_edge *kept = edge_of(base, rank), *new = edge_of(part, number);
    if (kept != NULL && new != NULL && kept->src_rank != new->src_rank) {
        bool kept_first = kept->src_rank < new->src_rank;
        kept = kept_first ? kept : NULL;
        new = kept_first ? NULL : new;
    }
    base->next += kept != NULL;
    part->next += new != NULL;
    *kept_out = kept;
    *new_out = new;
    return kept != NULL || new != NULL;
}

static void merge_pair(struct wf_plan *plan, const struct moved *moved, const struct wf_edge *kept,
                       const struct wf_edge *new, struct wf_op **ops, const struct wf_layout *dst)
{
    struct wf_edge edge = {.src_rank = kept != NULL ? kept->src_rank : new->src_rank,
                           .dst_rank = moved->rank,
                           .ops = *ops};
    struct wf_op *out = *ops;
    for (uint32_t i = 0; kept != NULL && i < kept->op_count; i++) {
        if (!has_bit(moved->params, kept->ops[i].param)) {
            *out++ = kept->ops[i];
        }
    }
    if (new != NULL) {
        memcpy(out, new->ops, new->op_count * sizeof *out);
        out += new->op_count;
    }
    edge.op_count = (uint32_t)(out - *ops);
    if (edge.op_count == 0) {
        return;
    }
    qsort(*ops, edge.op_count, sizeof **ops, wf_plan_compare_ops);
    wf_plan_finish_edge(&edge, dst);
    plan->edges[plan->edge_count++] = edge;
    *ops = out;
}

static enum wf_status count_totals(struct update *update, struct wf_plan *plan)
{
    uint64_t *egress = wf_plan_alloc(&update->arena, update->train_count, sizeof *egress);
    uint64_t *ingress = wf_plan_alloc(&update->arena, update->infer_count, sizeof *ingress);
    if (egress == NULL || ingress == NULL) {
        return wf_plan_no_memory(update->error);
    }
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        uint64_t *out = &egress[edge->src_rank], *in = &ingress[edge->dst_rank];
        *out += edge->bytes;
        *in += edge->bytes;
        plan->bytes_moved += edge->bytes;
        plan->op_count += edge->op_count;
        plan->egress_max = *out > plan->egress_max ? *out : plan->egress_max;
        plan->ingress_max = *in > plan->ingress_max ? *in : plan->ingress_max;
    }
    return WF_OK;
}

static enum wf_status merge(struct update *update, struct wf_plan *base, struct wf_plan *plan)
{
    uint64_t room = update->part->op_count;
    struct cursor from = {.plan = base}, part = {.plan = update->part};
    for (uint32_t e = 0, i = 0; e < base->edge_count; e++) {
        while (i < update->moved_count && update->moved[i].rank < base->edges[e].dst_rank) {
            i++;
        }
        bool moved = i < update->moved_count && update->moved[i].rank == base->edges[e].dst_rank;
        room += moved ? base->edges[e].op_count : 0;
    }
    struct wf_op *ops = plan->memory = calloc(room + 1, sizeof *ops);
    plan->edges =
        calloc((size_t)base->edge_count + update->part->edge_count + 1, sizeof *plan->edges);
    if (plan->memory == NULL || plan->edges == NULL) {
        return wf_plan_no_memory(update->error);
    }
    for (uint32_t rank = 0, i = 0; rank < update->infer_count; rank++) {
        bool moved = i < update->moved_count && update->moved[i].rank == rank;
        const struct wf_edge *kept = NULL, *new = NULL;
        while (!moved && (kept = edge_of(&from, rank)) != NULL) {
            plan->edges[plan->edge_count++] = *kept;
            from.next++;
        }
        const struct wf_layout *dst = update->input->members[update->train_count + rank].layout;
        while (moved && next_pair(&from, rank, &part, i, &kept, &new)) {
            merge_pair(plan, &update->moved[i], kept, new, &ops, dst);
        }
        i += moved;
    }
    return count_totals(update, plan);
}

/* --- the whole ---------------------------------------------------------------------------------
 */

static enum wf_status make_plan(struct update *update, struct wf_plan *base,
                                struct wf_plan **plan_out)
{
    enum wf_status status = find_moved(update);
    if (status != WF_OK) {
        return status;
    }
    if (update->moved_count == 0) {
        *plan_out = wf_plan_hold(base);
        return WF_OK;
    }
    struct wf_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return wf_plan_no_memory(update->error);
    }
    *plan = (struct wf_plan){.input_hash = wf_plan_input_hash(update->input),
                             .bytes_unique = base->bytes_unique,
                             .egress_ranks = base->egress_ranks,
                             .ingress_ranks = base->ingress_ranks,
                             .class_count = base->class_count,
                             .casts = base->casts,
                             .cast_count = base->cast_count,
                             .references = 1,
                             .base = wf_plan_hold(base)};
    status = plan_part(update);
    if (status == WF_OK) {
        status = merge(update, base, plan);
    }
    if (status == WF_OK) {
        wf_plan_count_casts(update->input, plan);
    }
    if (status != WF_OK) {
        wf_plan_free(plan);
        return status;
    }
    *plan_out = plan;
    return WF_OK;
}

enum wf_status wf_plan_update(const struct wf_plan_input *input, struct wf_plan *base,
                              struct wf_plan **plan_out, struct wf_error *error)
{
    struct wf_error unused;
    struct update update = {.input = input, .error = error != NULL ? error : &unused};
    enum wf_status status = make_plan(&update, base, plan_out);
    wf_plan_free(update.part);
    wf_plan_arena_free(&update.arena);
    return status;
}

/* The input with every layout by rule; free its members. */
static enum wf_status by_rule(const struct wf_plan_input *input, struct wf_plan_input *out,
                              struct wf_error *error)
{
    struct wf_plan_member *members = calloc(input->member_count + 1ull, sizeof *members);
    if (members == NULL) {
        return wf_plan_no_memory(error);
    }
    for (uint32_t m = 0; m < input->member_count; m++) {
        members[m] = input->members[m];
        members[m].layout = members[m].base != NULL ? members[m].base : members[m].layout;
        members[m].base = NULL;
    }
    *out = *input;
    out->members = members;
    return WF_OK;
}

struct wf_hash wf_plan_base_hash(const struct wf_plan_input *input)
{
    struct wf_plan_input rule;
    struct wf_error error;
    enum wf_status status = by_rule(input, &rule, &error);
    WF_ASSERT(status == WF_OK);
    struct wf_hash hash = wf_plan_input_hash(&rule);
    free((void *)rule.members);
    return hash;
}

enum wf_status wf_plan_build(const struct wf_plan_input *input, struct wf_plan **plan_out,
                             struct wf_error *error)
{
    bool any = false;
    for (uint32_t m = 0; m < input->member_count; m++) {
        any = any || is_moved(&input->members[m]);
    }
    if (!any) {
        return wf_plan_by_rule(input, plan_out, error);
    }
    struct wf_plan_input rule;
    struct wf_plan *base = NULL;
    enum wf_status status = by_rule(input, &rule, error);
    if (status == WF_OK) {
        status = wf_plan_by_rule(&rule, &base, error);
        free((void *)rule.members);
    }
    if (status == WF_OK) {
        status = wf_plan_update(input, base, plan_out, error);
    }
    wf_plan_free(base); /* held by what was made of it */
    return status;
}

/* --- the proof ---------------------------------------------------------------------------------
 */

/* The edges into moved ranks, as a plan of these ranks alone; all others must be the base's. */
static enum wf_status pick_edges(struct update *update, const struct wf_plan *plan,
                                 struct wf_plan *picked)
{
    const struct wf_plan *base = plan->base;
    struct cursor from = {.plan = base};
    for (uint32_t e = 0, i = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        while (i < update->moved_count && update->moved[i].rank < edge->dst_rank) {
            i++;
        }
        if (i < update->moved_count && update->moved[i].rank == edge->dst_rank) {
            struct wf_edge *out = &picked->edges[picked->edge_count++];
            *out = *edge;
            out->dst_rank = i;
            picked->op_count += edge->op_count;
            picked->bytes_moved += edge->bytes;
            continue;
        }
        while (from.next < base->edge_count && base->edges[from.next].dst_rank < edge->dst_rank) {
            from.next++;
        }
        const struct wf_edge *same = edge_of(&from, edge->dst_rank);
        from.next++;
        if (same == NULL || same->ops != edge->ops || same->src_rank != edge->src_rank ||
            same->op_count != edge->op_count || !wf_hash_equal(same->hash, edge->hash)) {
            return wf_error_set(update->error, WF_MISMATCH,
                                "the edge from train rank %" PRIu32 " to infer rank %" PRIu32
                                ", whose experts have not moved, is not the one by rule",
                                edge->src_rank, edge->dst_rank);
        }
    }
    return WF_OK;
}

enum wf_status wf_plan_prove_update(const struct wf_plan_input *input, const struct wf_plan *plan,
                                    struct wf_error *error)
{
    struct wf_error unused;
    struct update update = {.input = input, .error = error != NULL ? error : &unused};
    if (plan->base == NULL) {
        return wf_plan_prove(input, plan, error);
    }
    enum wf_status status = find_moved(&update);
    uint32_t count = update.train_count + update.moved_count;
    struct wf_plan_member *members = wf_plan_alloc(&update.arena, count, sizeof *members);
    struct wf_plan picked = {
        .edges = wf_plan_alloc(&update.arena, plan->edge_count + 1ull, sizeof *picked.edges)};
    if (status == WF_OK && update.arena.failed) {
        status = wf_plan_no_memory(update.error);
    }
    for (uint32_t m = 0; m < count && status == WF_OK; m++) {
        bool train = m < update.train_count;
        uint32_t rank = train ? m : update.moved[m - update.train_count].rank;
        members[m] = input->members[train ? m : update.train_count + rank];
        members[m].rank = train ? m : m - update.train_count;
    }
    if (status == WF_OK) {
        status = pick_edges(&update, plan, &picked);
    }
    if (status == WF_OK) {
        struct wf_plan_input moved = {
            .model = input->model, .members = members, .member_count = count};
        status = wf_plan_prove(&moved, &picked, error);
    }
    wf_plan_arena_free(&update.arena);
    return status;
}
