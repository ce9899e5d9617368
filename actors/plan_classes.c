/* plan_classes.c - checks what the planner was given, groups ranks whose layouts are equal, and
 * lists each class's pieces by parameter. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/plan_parts.h"

/* Train ranks 0..T-1, then infer ranks 0..I-1, at least one of each. */
static enum wf_status count_members(struct wf_plan_build *build, struct wf_error *error)
{
    const struct wf_plan_input *input = build->input;
    uint32_t train = 0;
    while (train < input->member_count && input->members[train].side == WF_TRAIN) {
        train++;
    }
    for (uint32_t m = 0; m < input->member_count; m++) {
        const struct wf_plan_member *member = &input->members[m];
        enum wf_side side = m < train ? WF_TRAIN : WF_INFER;
        uint32_t rank = m < train ? m : m - train;
        if (member->side != side || member->rank != rank) {
            return wf_error_set(
                error, WF_INVALID,
                "member %" PRIu32 " of a plan must be %s rank %" PRIu32 ", but is %s rank %" PRIu32,
                m, wf_side_name(side), rank, wf_side_name(member->side), member->rank);
        }
    }
    if (train == 0 || train == input->member_count) {
        return wf_error_set(error, WF_INVALID,
                            "a plan needs ranks on both sides; there are %" PRIu32
                            " train and %" PRIu32 " infer ranks",
                            train, input->member_count - train);
    }
    build->train_count = train;
    build->infer_count = input->member_count - train;
    return WF_OK;
}

static enum wf_status check_piece(const struct wf_plan_build *build,
                                  const struct wf_plan_member *member, uint32_t index,
                                  struct wf_error *error)
{
    const struct wf_model *model = build->input->model;
    const struct wf_layout *layout = member->layout;
    const struct wf_piece *piece = &layout->pieces[index];
    if (piece->tensor >= layout->tensor_count ||
        (piece->kind == WF_PIECE_DATA && piece->param >= model->param_count)) {
        return wf_error_set(error, WF_INVALID,
                            "%s rank %" PRIu32 ": piece %" PRIu32 " shows parameter %" PRIu32
                            " of %" PRIu32 " in tensor %" PRIu32 " of %" PRIu32
                            ": its layout was made for another model",
                            wf_side_name(member->side), member->rank, index, piece->param,
                            model->param_count, piece->tensor, layout->tensor_count);
    }
    if (piece->kind != WF_PIECE_DATA) {
        return WF_OK;
    }
    const struct wf_param *param = &model->params[piece->param];
    const struct wf_tensor *tensor = &layout->tensors[piece->tensor];
    struct wf_nest nest = wf_layout_nest(layout, index);
    struct wf_error why;
    enum wf_status status = wf_nest_check(&nest, param->elements, tensor->bytes, &why);
    if (status == WF_OK) {
        return WF_OK;
    }
    return wf_error_set(error, status, "%s rank %" PRIu32 ", tensor %s, parameter %s: %s",
                        wf_side_name(member->side), member->rank, tensor->name, param->name,
                        why.text);
}

static enum wf_status check_pieces(const struct wf_plan_build *build,
                                   const struct wf_plan_member *member, struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < member->layout->piece_count && status == WF_OK; i++) {
        status = check_piece(build, member, i, error);
    }
    return status;
}

static bool is_indexed(const struct wf_plan_build *build, const struct wf_layout *layout,
                       const struct wf_piece *piece)
{
    static const char assembled[] = "assembled:"; /* models/assemble.h */
    if (!build->lists_only) {
        return piece->kind == WF_PIECE_DATA;
    }
    return piece->kind != WF_PIECE_FILL &&
           strncmp(layout->tensors[piece->tensor].name, assembled, sizeof assembled - 1) != 0;
}

/* Lists a side's data pieces by parameter: a counting sort, so that equal parameters stay in the
 * order of classes and pieces. */
static enum wf_status index_side(struct wf_plan_build *build, struct wf_plan_class *classes,
                                 uint32_t class_count, struct wf_plan_index *out,
                                 struct wf_error *error)
{
    uint32_t param_count = build->input->model->param_count;
    uint64_t total = 0;
    uint32_t *first = wf_plan_alloc(&build->arena, param_count + 2ull, sizeof *first);
    for (uint32_t c = 0; c < class_count && first != NULL; c++) {
        const struct wf_layout *layout = classes[c].layout;
        for (uint32_t i = 0; i < layout->piece_count; i++) {
            if (is_indexed(build, layout, &layout->pieces[i])) {
                first[layout->pieces[i].param + 2]++;
                classes[c].piece_count++;
            }
        }
        total += classes[c].piece_count;
    }
    uint32_t *orders = wf_plan_alloc(&build->arena, total, sizeof *orders);
    out->shown =
        total <= UINT32_MAX ? wf_plan_alloc(&build->arena, total, sizeof *out->shown) : NULL;
    out->first = first;
    if (first == NULL || orders == NULL || out->shown == NULL) {
        return wf_plan_no_memory(error);
    }
    for (uint32_t p = 0; p < param_count; p++) {
        first[p + 2] += first[p + 1];
    }
    for (uint32_t c = 0; c < class_count; c++) {
        const struct wf_layout *layout = classes[c].layout;
        for (uint32_t i = 0; i < layout->piece_count; i++) {
            if (is_indexed(build, layout, &layout->pieces[i])) {
                out->shown[first[layout->pieces[i].param + 1]++] = (struct wf_plan_shown){c, i};
            }
        }
        classes[c].order = orders;
        orders += classes[c].piece_count;
        classes[c].piece_count = 0;
    }
    for (uint64_t i = 0; i < total; i++) {
        struct wf_plan_class *class = &classes[out->shown[i].class];
        class->order[class->piece_count++] = out->shown[i].piece;
    }
    return WF_OK;
}

struct hashed_rank {
    struct wf_hash hash;
    uint32_t rank;
};

static int compare_hashed(const void *a, const void *b)
{
    const struct hashed_rank *x = a, *y = b;
    if (x->hash.high != y->hash.high) {
        return x->hash.high < y->hash.high ? -1 : 1;
    }
    if (x->hash.low != y->hash.low) {
        return x->hash.low < y->hash.low ? -1 : 1;
    }
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Numbers the classes of one side by their first rank: sorted by hash, each rank learns the first
 * rank of its run; then ranks ascending open classes. */
static enum wf_status group_side(struct wf_plan_build *build, enum wf_side side,
                                 struct wf_error *error)
{
    uint32_t count = side == WF_TRAIN ? build->train_count : build->infer_count;
    const struct wf_plan_member *members =
        build->input->members + (side == WF_TRAIN ? 0 : build->train_count);
    struct wf_plan_arena *arena = &build->arena;
    struct hashed_rank *sorted = wf_plan_alloc(arena, count, sizeof *sorted);
    uint32_t *class_of = wf_plan_alloc(arena, count, sizeof *class_of);
    uint32_t *ranks = wf_plan_alloc(arena, count, sizeof *ranks);
    struct wf_plan_class *classes = wf_plan_alloc(arena, count, sizeof *classes);
    if (sorted == NULL || class_of == NULL || ranks == NULL || classes == NULL) {
        return wf_plan_no_memory(error);
    }
    for (uint32_t r = 0; r < count; r++) {
        sorted[r] = (struct hashed_rank){members[r].layout->hash, r};
    }
    qsort(sorted, count, sizeof *sorted, compare_hashed);
    for (uint32_t i = 0; i < count; i++) {
        ranks[i] = sorted[i].rank;
        bool opens = i == 0 || !wf_hash_equal(sorted[i].hash, sorted[i - 1].hash);
        class_of[sorted[i].rank] = opens ? i : class_of[sorted[i - 1].rank];
    }
    uint32_t class_count = 0;
    for (uint32_t r = 0; r < count; r++) {
        uint32_t run = class_of[r]; /* where the run of equal hashes begins in `ranks` */
        if (ranks[run] == r) {
            struct wf_plan_class *class = &classes[class_count];
            enum wf_status status = check_pieces(build, &members[r], error);
            if (status != WF_OK) {
                return status;
            }
            class->layout = members[r].layout;
            class->ranks = &ranks[run];
            class_of[r] = class_count++;
        } else {
            class_of[r] = class_of[ranks[run]];
        }
        classes[class_of[r]].rank_count++;
    }
    *(side == WF_TRAIN ? &build->src : &build->dst) = classes;
    *(side == WF_TRAIN ? &build->src_count : &build->dst_count) = class_count;
    *(side == WF_TRAIN ? &build->src_class_of : &build->dst_class_of) = class_of;
    return index_side(build, classes, class_count,
                      side == WF_TRAIN ? &build->src_index : &build->dst_index, error);
}

enum wf_status wf_plan_classes(struct wf_plan_build *build, struct wf_error *error)
{
    enum wf_status status = count_members(build, error);
    if (status == WF_OK) {
        status = group_side(build, WF_TRAIN, error);
    }
    return status == WF_OK ? group_side(build, WF_INFER, error) : status;
}

enum wf_status wf_plan_class_sources(struct wf_plan_build *build, struct wf_error *error)
{
    build->train_count = build->input->member_count;
    return group_side(build, WF_TRAIN, error);
}
