/* plan_assign.c - one train rank for each unit of each infer rank.
 *
 * The balance said how many bytes of each group come from each train class; within a class every
 * rank takes an equal share. Units are handed out infer rank by infer rank, large ones first, to
 * the candidate that is best by: room for it; same host; already a source of this infer rank (fewer
 * connections); most room; lowest rank. A large unit for which nobody has room is cut along its
 * outermost axis where the room ends. If both sides share hosts, a first pass hands out only what
 * stays on one host, so that no stranger takes that room.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/plan_parts.h"

enum {
    /* A unit may exceed its source's room by this part of the busiest rank's load. */
    SLACK_PARTS = 512,
    /* Smaller boxes are never cut: the balance of so few bytes is not worth two boxes. */
    CUT_BYTES_MIN = 64 << 10,
};

struct assigner {
    struct wf_plan_build *build;
    uint64_t slack;
    int64_t *rank_room; /* of each train rank; below 0 when it took a little too much */
    int64_t **quota_room;
    uint32_t *sorted;    /* units of each class, in the order of handing out */
    uint32_t *source_of; /* of each train rank: 1 + the infer rank it was last given to */
    struct wf_plan_task *left;
    uint32_t left_count, left_capacity;
};

struct candidate {
    uint32_t rank, slot;
    int64_t room;
    bool fits, near, known;
};

static enum wf_status init_assigner(struct assigner *as, struct wf_plan_build *build,
                                    struct wf_error *error)
{
    struct wf_plan_arena *arena = &build->arena;
    *as = (struct assigner){
        .build = build,
        .slack = build->load_max / SLACK_PARTS,
        .rank_room = wf_plan_alloc(arena, build->train_count, sizeof *as->rank_room),
        .quota_room = wf_plan_alloc(arena, build->group_count, sizeof *as->quota_room),
        .sorted = wf_plan_alloc(arena, build->unit_count, sizeof *as->sorted),
        .source_of = wf_plan_alloc(arena, build->train_count, sizeof *as->source_of)};
    for (uint32_t g = 0; g < build->group_count && !arena->failed; g++) {
        const struct wf_plan_group *group = &build->groups[g];
        as->quota_room[g] = wf_plan_alloc(arena, group->class_count, sizeof *as->quota_room[g]);
        for (uint32_t i = 0; i < group->class_count && !arena->failed; i++) {
            as->quota_room[g][i] = (int64_t)group->quota[i];
        }
    }
    for (uint32_t r = 0; r < build->train_count && !arena->failed; r++) {
        uint32_t class = build->src_class_of[r];
        uint64_t ranks = build->src[class].rank_count;
        as->rank_room[r] = (int64_t)((build->class_load[class] + ranks - 1) / ranks);
    }
    return arena->failed ? wf_plan_no_memory(error) : WF_OK;
}

static uint32_t unit_ranks(const struct wf_plan_build *build, uint32_t unit)
{
    return build->groups[build->atoms[build->units[unit].atom].group].rank_count;
}

/* Few candidates first, then many bytes, then the unit's own order. */
static int compare_handing(const void *a, const void *b, void *user)
{
    const struct wf_plan_build *build = user;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    uint32_t x_ranks = unit_ranks(build, x), y_ranks = unit_ranks(build, y);
    if (x_ranks != y_ranks) {
        return x_ranks < y_ranks ? -1 : 1;
    }
    if (build->units[x].bytes != build->units[y].bytes) {
        return build->units[x].bytes > build->units[y].bytes ? -1 : 1;
    }
    return x < y ? -1 : x > y;
}

static uint32_t host_of(const struct wf_plan_build *build, enum wf_side side, uint32_t rank)
{
    return build->input->members[side == WF_TRAIN ? rank : build->train_count + rank].host;
}

static bool better(const struct candidate *a, const struct candidate *b)
{
    if (a->fits != b->fits) {
        return a->fits;
    }
    if (a->fits && a->near != b->near) {
        return a->near;
    }
    if (a->fits && a->known != b->known) {
        return a->known;
    }
    if (a->room != b->room) {
        return a->room > b->room;
    }
    return a->rank < b->rank;
}

/* The best source of `bytes` for an infer rank. */
static struct candidate best_candidate(const struct assigner *as, uint32_t dst_rank, uint32_t unit,
                                       uint64_t bytes)
{
    const struct wf_plan_build *build = as->build;
    uint32_t group_index = build->atoms[build->units[unit].atom].group;
    const struct wf_plan_group *group = &build->groups[group_index];
    uint32_t host = host_of(build, WF_INFER, dst_rank);
    struct candidate best = {.rank = UINT32_MAX};
    for (uint32_t i = 0; i < group->class_count; i++) {
        const struct wf_plan_class *class = &build->src[group->classes[i]];
        for (uint32_t m = 0; m < class->rank_count; m++) {
            uint32_t rank = class->ranks[m];
            struct candidate one = {
                .rank = rank, .slot = i, .room = as->quota_room[group_index][i]};
            one.room = as->rank_room[rank] < one.room ? as->rank_room[rank] : one.room;
            one.fits = (int64_t)bytes <= one.room + (int64_t)as->slack;
            one.near = host_of(build, WF_TRAIN, rank) == host;
            one.known = as->source_of[rank] == dst_rank + 1;
            if (best.rank == UINT32_MAX || better(&one, &best)) {
                best = one;
            }
        }
    }
    return best;
}

static bool append_task(struct wf_plan_build *build, struct wf_plan_task task)
{
    build->tasks = wf_plan_grow(&build->arena, build->tasks, &build->task_capacity,
                                build->task_count + 1ull, sizeof task);
    if (build->tasks == NULL) {
        return false;
    }
    build->tasks[build->task_count++] = task;
    return true;
}

/* Steps of a unit's axis 0, if it is one along which a cut makes two boxes of different elements;
 * else 1. */
static uint64_t unit_steps(const struct wf_plan_unit *unit)
{
    return unit->nest.axis_count > 0 && unit->nest.axes[0].param_step > 0 ? unit->nest.axes[0].count
                                                                          : 1;
}

/* How many of `steps` steps to take for about `bytes` of them: whole rows where a row is less than
 * the box, at least one, and not all. */
static uint64_t cut_steps(const struct wf_plan_build *build, const struct wf_plan_unit *unit,
                          uint64_t step_bytes, uint64_t steps, uint64_t bytes)
{
    const struct wf_param *param = &build->input->model->params[unit->param];
    uint64_t row = param->ndim > 1 ? param->shape[param->ndim - 1] : 1;
    uint64_t grain = unit->nest.axes[0].param_step < row ? row / unit->nest.axes[0].param_step : 1;
    grain = grain < steps ? grain : 1;
    uint64_t taken = bytes / step_bytes / grain * grain;
    taken = taken < grain ? grain : taken;
    return taken < steps ? taken : steps;
}

/* Gives the task's range to the best source, or part after part to several. */
static bool hand_out(struct assigner *as, struct wf_plan_task task)
{
    struct wf_plan_build *build = as->build;
    const struct wf_plan_unit *unit = &build->units[task.unit];
    uint32_t group = build->atoms[unit->atom].group;
    uint64_t step_bytes = unit->bytes / unit_steps(unit);
    while (task.low < task.high) {
        uint64_t steps = task.high - task.low, bytes = steps * step_bytes;
        struct candidate best = best_candidate(as, task.dst_rank, task.unit, bytes);
        if (!best.fits && bytes >= CUT_BYTES_MIN && build->groups[group].rank_count > 1) {
            uint64_t share = bytes / build->groups[group].rank_count;
            uint64_t room = best.room > 0 ? (uint64_t)best.room : 0;
            steps = cut_steps(build, unit, step_bytes, steps, room > share ? room : share);
            bytes = steps * step_bytes;
        }
        as->rank_room[best.rank] -= (int64_t)bytes;
        as->quota_room[group][best.slot] -= (int64_t)bytes;
        as->source_of[best.rank] = task.dst_rank + 1;
        struct wf_plan_task part = {task.dst_rank, best.rank, task.unit, task.low,
                                    task.low + steps};
        if (!append_task(build, part)) {
            return false;
        }
        task.low += steps;
    }
    return true;
}

static bool leave_for_later(struct assigner *as, struct wf_plan_task task)
{
    as->left = wf_plan_grow(&as->build->arena, as->left, &as->left_capacity, as->left_count + 1ull,
                            sizeof *as->left);
    if (as->left == NULL) {
        return false;
    }
    as->left[as->left_count++] = task;
    return true;
}

static int compare_hosts(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static enum wf_status sides_share_hosts(struct wf_plan_build *build, bool *share_out,
                                        struct wf_error *error)
{
    const struct wf_plan_input *input = build->input;
    uint64_t *sorted = wf_plan_alloc(&build->arena, input->member_count, sizeof *sorted);
    if (sorted == NULL) {
        return wf_plan_no_memory(error);
    }
    for (uint32_t m = 0; m < input->member_count; m++) {
        sorted[m] = (uint64_t)input->members[m].host << 1 | (m < build->train_count ? 0 : 1);
    }
    qsort(sorted, input->member_count, sizeof *sorted, compare_hosts);
    *share_out = false;
    for (uint32_t m = 1; m < input->member_count; m++) {
        *share_out |= sorted[m] != sorted[m - 1] && sorted[m] >> 1 == sorted[m - 1] >> 1;
    }
    return WF_OK;
}

/* The first pass: what fits on the same host; the rest is left for later. */
static bool first_pass(struct assigner *as, bool near_only)
{
    struct wf_plan_build *build = as->build;
    for (uint32_t d = 0; d < build->infer_count; d++) {
        uint32_t class = build->dst_class_of[d];
        for (uint32_t i = build->unit_first[class]; i < build->unit_first[class + 1]; i++) {
            uint32_t u = as->sorted[i];
            struct wf_plan_task task = {d, 0, u, 0, unit_steps(&build->units[u])};
            bool now = !near_only;
            if (near_only) {
                struct candidate best = best_candidate(as, d, u, build->units[u].bytes);
                now = best.fits && best.near;
            }
            if (now ? !hand_out(as, task) : !leave_for_later(as, task)) {
                return false;
            }
        }
    }
    return true;
}

/* What the first pass left, infer rank by infer rank; it knows what the first pass gave. */
static bool second_pass(struct assigner *as)
{
    struct wf_plan_build *build = as->build;
    uint32_t given = build->task_count, at = 0;
    for (uint32_t i = 0; i < as->left_count; i++) {
        uint32_t dst_rank = as->left[i].dst_rank;
        for (; at < given && build->tasks[at].dst_rank <= dst_rank; at++) {
            as->source_of[build->tasks[at].src_rank] = build->tasks[at].dst_rank + 1;
        }
        if (!hand_out(as, as->left[i])) {
            return false;
        }
    }
    return true;
}

enum wf_status wf_plan_assign(struct wf_plan_build *build, struct wf_error *error)
{
    struct assigner as;
    enum wf_status status = init_assigner(&as, build, error);
    if (status != WF_OK) {
        return status;
    }
    for (uint32_t u = 0; u < build->unit_count; u++) {
        as.sorted[u] = u;
    }
    for (uint32_t c = 0; c < build->dst_count; c++) {
        uint32_t count = build->unit_first[c + 1] - build->unit_first[c];
        qsort_r(as.sorted + build->unit_first[c], count, sizeof *as.sorted, compare_handing, build);
    }
    bool share = false;
    status = sides_share_hosts(build, &share, error);
    if (status != WF_OK) {
        return status;
    }
    bool done = first_pass(&as, share) && second_pass(&as);
    return done ? WF_OK : wf_plan_no_memory(error);
}
