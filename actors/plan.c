/* plan.c - the planner's doors: build, free, and the hashes that agreement compares. */
#include "actors/plan.h"

#include <stdlib.h>

#include "actors/plan_parts.h"

const char *wf_side_name(uint64_t side)
{
    return side == WF_TRAIN ? "train" : "infer";
}

struct wf_hash wf_plan_input_hash(const struct wf_plan_input *input)
{
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    wf_hasher_u64(&hasher, WF_PLANNER_VERSION);
    wf_hasher_u64(&hasher, input->model->hash.high);
    wf_hasher_u64(&hasher, input->model->hash.low);
    wf_hasher_u64(&hasher, input->policy.cast_bytes_max);
    wf_hasher_u64(&hasher, input->policy.near_maps);
    wf_hasher_u64(&hasher, input->member_count);
    for (uint32_t m = 0; m < input->member_count; m++) {
        const struct wf_plan_member *member = &input->members[m];
        wf_hasher_u64(&hasher, member->side);
        wf_hasher_u64(&hasher, member->rank);
        wf_hasher_u64(&hasher, member->layout->hash.high);
        wf_hasher_u64(&hasher, member->layout->hash.low);
        wf_hasher_u64(&hasher, member->host);
    }
    return wf_hasher_end(&hasher);
}

struct wf_hash wf_plan_edge_sum(const struct wf_plan *plan, enum wf_side side, uint32_t rank)
{
    struct wf_hash sum = {0, 0};
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        if ((side == WF_TRAIN ? edge->src_rank : edge->dst_rank) == rank) {
            sum = wf_hash_add(sum, edge->hash);
        }
    }
    return sum;
}

/* Train ranks that hold a byte that some infer rank needs. */
static uint32_t count_needed_ranks(const struct wf_plan_build *build, bool *needed)
{
    uint32_t ranks = 0;
    for (uint32_t g = 0; g < build->group_count; g++) {
        const struct wf_plan_group *group = &build->groups[g];
        for (uint32_t i = 0; i < group->class_count && group->demand > 0; i++) {
            uint32_t class = group->classes[i];
            ranks += needed[class] ? 0 : build->src[class].rank_count;
            needed[class] = true;
        }
    }
    return ranks;
}

static enum wf_status build_steps(struct wf_plan_build *build, struct wf_plan *plan,
                                  struct wf_error *error)
{
    static enum wf_status (*const steps[])(struct wf_plan_build *, struct wf_error *) = {
        wf_plan_classes, wf_plan_atoms, wf_plan_units, wf_plan_balance, wf_plan_assign};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        enum wf_status status = steps[i](build, error);
        if (status != WF_OK) {
            return status;
        }
    }
    bool *needed = wf_plan_alloc(&build->arena, build->src_count, sizeof *needed);
    if (needed == NULL) {
        return wf_plan_no_memory(error);
    }
    plan->input_hash = wf_plan_input_hash(build->input);
    plan->egress_ranks = count_needed_ranks(build, needed);
    plan->ingress_ranks = build->infer_count;
    plan->class_count = build->src_count + build->dst_count;
    enum wf_status status = wf_plan_unique(build, &plan->bytes_unique, error);
    status = status == WF_OK ? wf_plan_edges(build, plan, error) : status;
    return status == WF_OK ? wf_plan_choose_casts(build->input, plan, error) : status;
}

enum wf_status wf_plan_by_rule(const struct wf_plan_input *input, struct wf_plan **plan_out,
                               struct wf_error *error)
{
    struct wf_plan_build build = {.input = input};
    struct wf_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return wf_plan_no_memory(error);
    }
    plan->references = 1;
    enum wf_status status = build_steps(&build, plan, error);
    wf_plan_arena_free(&build.arena);
    wf_plan_arena_free(&build.scratch);
    if (status != WF_OK) {
        wf_plan_free(plan);
        return status;
    }
    *plan_out = plan;
    return WF_OK;
}

struct wf_plan *wf_plan_hold(struct wf_plan *plan)
{
    __atomic_fetch_add(&plan->references, 1, __ATOMIC_RELAXED);
    return plan;
}

void wf_plan_free(struct wf_plan *plan)
{
    if (plan == NULL || __atomic_fetch_sub(&plan->references, 1, __ATOMIC_ACQ_REL) > 1) {
        return;
    }
    if (plan->base == NULL) {
        free((void *)plan->casts); /* else the base's */
    }
    wf_plan_free(plan->base);
    free(plan->edges);
    free(plan->memory);
    free(plan);
}
