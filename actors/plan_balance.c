/* plan_balance.c - how many bytes each train class gives to each group of units, such that the
 * busiest rank gives as little as can be.
 *
 * Ranks of one class can stand in for each other, so the question is one of classes: class c with
 * R ranks may give at most L * R bytes, and L is to be smallest. First every group, those with the
 * fewest classes first, is poured over its classes like water, which is already best when groups
 * nest. Then L starts at a lower bound; what a class has above L * R moves along groups to classes
 * with room. If some class is stuck, every class that can be reached from it is full, and all they
 * give is needed from them alone: their mean is a higher lower bound, and L rises to it. It ends
 * because L rises to the mean of another set of classes each time.
 */
#include <string.h>

#include "actors/plan_parts.h"

struct slot {
    uint32_t group, index; /* group's quota[index] is this class's */
};

struct flow {
    struct wf_plan_build *build;
    uint64_t *load;       /* of each class */
    struct slot *slots;   /* by class */
    uint32_t *slot_first; /* class_count + 1 */
    /* the search */
    uint32_t *queue;
    uint32_t *from;   /* the class from which each class was reached; itself: the start */
    struct slot *via; /* group, and the index of the class it was reached from */
    bool *reached;
};

static enum wf_status init_flow(struct flow *flow, struct wf_plan_build *build,
                                struct wf_error *error)
{
    uint32_t count = build->src_count, total = 0;
    struct wf_plan_arena *arena = &build->arena;
    *flow = (struct flow){.build = build,
                          .load = wf_plan_alloc(arena, count, sizeof *flow->load),
                          .slot_first = wf_plan_alloc(arena, count + 2ull, sizeof(uint32_t)),
                          .queue = wf_plan_alloc(arena, count, sizeof(uint32_t)),
                          .from = wf_plan_alloc(arena, count, sizeof(uint32_t)),
                          .via = wf_plan_alloc(arena, count, sizeof(struct slot)),
                          .reached = wf_plan_alloc(arena, count, sizeof(bool))};
    for (uint32_t g = 0; g < build->group_count; g++) {
        total += build->groups[g].class_count;
    }
    flow->slots = wf_plan_alloc(arena, total, sizeof *flow->slots);
    if (arena->failed) {
        return wf_plan_no_memory(error);
    }
    for (uint32_t g = 0; g < build->group_count; g++) {
        for (uint32_t i = 0; i < build->groups[g].class_count; i++) {
            flow->slot_first[build->groups[g].classes[i] + 2]++;
        }
    }
    for (uint32_t c = 0; c < count; c++) {
        flow->slot_first[c + 2] += flow->slot_first[c + 1];
    }
    for (uint32_t g = 0; g < build->group_count; g++) {
        for (uint32_t i = 0; i < build->groups[g].class_count; i++) {
            flow->slots[flow->slot_first[build->groups[g].classes[i] + 1]++] = (struct slot){g, i};
        }
    }
    return WF_OK;
}

/* a/b < c/d without division. */
static bool ratio_less(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return (unsigned __int128)a * d < (unsigned __int128)c * b;
}

/* Pours a group's demand over its classes, the emptiest first, to one level of bytes per rank. */
static void pour_group(struct flow *flow, struct wf_plan_group *group, uint32_t *order)
{
    const struct wf_plan_class *classes = flow->build->src;
    for (uint32_t i = 0; i < group->class_count; i++) {
        uint32_t class = group->classes[i], at = i;
        for (; at > 0; at--) {
            uint32_t before = group->classes[order[at - 1]];
            if (!ratio_less(flow->load[class], classes[class].rank_count, flow->load[before],
                            classes[before].rank_count)) {
                break;
            }
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    uint64_t bytes = group->demand, ranks = 0; /* demand and loads of the classes that share it */
    uint32_t sharing = 0;
    for (; sharing < group->class_count; sharing++) {
        uint32_t class = group->classes[order[sharing]];
        if (sharing > 0 &&
            !ratio_less(flow->load[class], classes[class].rank_count, bytes, ranks)) {
            break;
        }
        bytes += flow->load[class];
        ranks += classes[class].rank_count;
    }
    uint64_t left = group->demand;
    for (uint32_t i = sharing; i > 0; i--) { /* the emptiest last: it takes what rounding leaves */
        uint32_t slot = order[i - 1], class = group->classes[slot];
        unsigned __int128 level = (unsigned __int128)bytes * classes[class].rank_count / ranks;
        uint64_t part = level > flow->load[class] ? (uint64_t)level - flow->load[class] : 0;
        part = i == 1 || part > left ? left : part;
        group->quota[slot] = part;
        flow->load[class] += part;
        left -= part;
    }
}

static enum wf_status pour_all(struct flow *flow, struct wf_error *error)
{
    struct wf_plan_build *build = flow->build;
    uint32_t *order = wf_plan_alloc(&build->arena, build->src_count, sizeof *order);
    if (order == NULL) {
        return wf_plan_no_memory(error);
    }
    uint32_t poured = 0;
    for (uint32_t size = 1; poured < build->group_count; size++) {
        for (uint32_t g = 0; g < build->group_count; g++) {
            if (build->groups[g].class_count == size) {
                pour_group(flow, &build->groups[g], order);
                poured++;
            }
        }
    }
    return WF_OK;
}

/* Walks from class `start` along groups that take bytes from it, to the first class with room.
 * Gives that class, or UINT32_MAX; `reached` holds all classes that were met. */
static uint32_t find_room(struct flow *flow, uint32_t start, uint64_t level)
{
    struct wf_plan_build *build = flow->build;
    uint32_t head = 0, tail = 0;
    memset(flow->reached, 0, build->src_count * sizeof *flow->reached);
    flow->reached[start] = true;
    flow->from[start] = start;
    flow->queue[tail++] = start;
    while (head < tail) {
        uint32_t class = flow->queue[head++];
        for (uint32_t s = flow->slot_first[class]; s < flow->slot_first[class + 1]; s++) {
            const struct wf_plan_group *group = &build->groups[flow->slots[s].group];
            for (uint32_t i = 0; i < group->class_count && group->quota[flow->slots[s].index] > 0;
                 i++) {
                uint32_t next = group->classes[i];
                if (flow->reached[next]) {
                    continue;
                }
                flow->reached[next] = true;
                flow->from[next] = class;
                flow->via[next] = flow->slots[s];
                if (flow->load[next] < level * build->src[next].rank_count) {
                    return next;
                }
                flow->queue[tail++] = next;
            }
        }
    }
    return UINT32_MAX;
}

static uint32_t group_slot(const struct wf_plan_group *group, uint32_t class)
{
    uint32_t i = 0;
    while (group->classes[i] != class) {
        i++;
    }
    return i;
}

/* Moves as much as the path that ends at `end` carries. */
static void move_along(struct flow *flow, uint32_t start, uint32_t end, uint64_t level)
{
    struct wf_plan_build *build = flow->build;
    uint64_t excess = flow->load[start] - level * build->src[start].rank_count;
    uint64_t room = level * build->src[end].rank_count - flow->load[end];
    uint64_t bytes = excess < room ? excess : room;
    for (uint32_t c = end; c != start; c = flow->from[c]) {
        uint64_t quota = build->groups[flow->via[c].group].quota[flow->via[c].index];
        bytes = quota < bytes ? quota : bytes;
    }
    for (uint32_t c = end; c != start; c = flow->from[c]) {
        struct wf_plan_group *group = &build->groups[flow->via[c].group];
        group->quota[flow->via[c].index] -= bytes;
        group->quota[group_slot(group, c)] += bytes;
    }
    flow->load[start] -= bytes;
    flow->load[end] += bytes;
}

static uint64_t mean_up(uint64_t bytes, uint64_t ranks)
{
    return bytes / ranks + (bytes % ranks != 0);
}

/* What the reached classes give on average: nobody else can take any of it. */
static uint64_t reached_mean(const struct flow *flow)
{
    uint64_t bytes = 0, ranks = 0;
    for (uint32_t c = 0; c < flow->build->src_count; c++) {
        if (flow->reached[c]) {
            bytes += flow->load[c];
            ranks += flow->build->src[c].rank_count;
        }
    }
    return mean_up(bytes, ranks);
}

static uint64_t lower_bound(const struct flow *flow)
{
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < flow->build->src_count; c++) {
        bytes += flow->load[c];
    }
    return mean_up(bytes, flow->build->train_count);
}

enum wf_status wf_plan_balance(struct wf_plan_build *build, struct wf_error *error)
{
    struct flow flow;
    enum wf_status status = init_flow(&flow, build, error);
    if (status == WF_OK) {
        status = pour_all(&flow, error);
    }
    if (status != WF_OK) {
        return status;
    }
    uint64_t level = lower_bound(&flow);
    for (uint32_t c = 0; c < build->src_count;) {
        if (flow.load[c] <= level * build->src[c].rank_count) {
            c++;
            continue;
        }
        uint32_t end = find_room(&flow, c, level);
        if (end != UINT32_MAX) {
            move_along(&flow, c, end, level);
        } else {
            level = reached_mean(&flow);
        }
    }
    build->class_load = flow.load;
    build->load_max = level;
    return WF_OK;
}
