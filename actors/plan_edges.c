/* plan_edges.c - from tasks to edges: the boxes of each pair of ranks in their one order, merged,
 * counted and hashed.
 *
 * Order within an edge: target tensor, target offset. Neighbours fuse when one continues the other
 * along one axis on both sides. They fuse within one parameter only, even where the next parameter
 * (up after gate) continues on both sides: an op names its parameter, and so do digests and errors.
 */
#include <stdlib.h>
#include <string.h>

#include "actors/plan_parts.h"

/* The boxes of one unit from one train class, made when they are first needed. */
struct box_range {
    uint32_t first, count; /* count 0: not made yet */
};

struct edge_maker {
    struct wf_plan_build *build;
    struct wf_plan *plan;
    struct wf_box *boxes;
    uint32_t box_count, box_capacity;
    struct box_range *ranges; /* of unit u and holder h: ranges[range_first[u] + h] */
    uint32_t *range_first;
    struct wf_op *ops;
    uint64_t op_count, op_capacity;
    uint64_t *op_first;   /* of each edge */
    uint32_t *task_first; /* of each edge, and one behind the last */
    uint32_t *twins;      /* of each edge: the one whose ops it shares, or itself */
};

static bool append_box(void *user, const struct wf_box *box)
{
    struct edge_maker *maker = user;
    maker->boxes = wf_plan_grow(&maker->build->arena, maker->boxes, &maker->box_capacity,
                                maker->box_count + 1ull, sizeof *maker->boxes);
    if (maker->boxes == NULL) {
        return false;
    }
    maker->boxes[maker->box_count++] = *box;
    return true;
}

static const struct wf_plan_holder *task_holder(const struct wf_plan_build *build,
                                                const struct wf_plan_task *task, uint32_t *at_out)
{
    const struct wf_plan_atom *atom = &build->atoms[build->units[task->unit].atom];
    uint32_t at = 0;
    while (atom->holders[at].src_class != build->src_class_of[task->src_rank]) {
        at++;
    }
    *at_out = at;
    return &atom->holders[at];
}

/* Meets the task's part of a unit with the piece that holds it. */
static enum wf_status make_boxes(struct edge_maker *maker, const struct wf_plan_task *task,
                                 const struct wf_plan_holder *holder, struct box_range *range_out,
                                 struct wf_error *error)
{
    const struct wf_plan_unit *unit = &maker->build->units[task->unit];
    struct wf_nest src = wf_layout_nest(maker->build->src[holder->src_class].layout, holder->piece);
    struct wf_nest dst = unit->nest;
    uint64_t steps = task->high - task->low;
    if (dst.axis_count > 0 && steps != dst.axes[0].count && dst.axes[0].param_step > 0) {
        dst.param_first += task->low * dst.axes[0].param_step;
        dst.tensor_offset += task->low * (uint64_t)dst.axes[0].tensor_step;
        dst.axes[0].count = steps;
        wf_nest_normalise(&dst);
    }
    struct box_range range = {maker->box_count, 0};
    enum wf_status status = wf_nest_intersect(&src, &dst, append_box, maker, error);
    if (status != WF_OK) {
        wf_error_prefix(error, "parameter %s",
                        maker->build->input->model->params[unit->param].name);
        return status;
    }
    if (maker->build->arena.failed) {
        return wf_plan_no_memory(error);
    }
    range.count = maker->box_count - range.first;
    uint64_t elements = 0;
    for (uint32_t i = 0; i < range.count; i++) {
        elements += maker->boxes[range.first + i].elements;
    }
    WF_ASSERT(elements == wf_nest_elements(&dst)); /* an atom lies inside each of its holders */
    *range_out = range;
    return WF_OK;
}

static bool append_op(struct edge_maker *maker, const struct wf_op *op)
{
    if (maker->op_count == maker->op_capacity) {
        uint64_t capacity = maker->op_capacity < 512 ? 1024 : 2 * maker->op_capacity;
        struct wf_op *ops = realloc(maker->ops, capacity * sizeof *ops);
        if (ops == NULL) {
            return false;
        }
        maker->ops = ops;
        maker->op_capacity = capacity;
    }
    maker->ops[maker->op_count++] = *op;
    return true;
}

static enum wf_status add_task(struct edge_maker *maker, const struct wf_plan_task *task,
                               struct wf_error *error)
{
    struct wf_plan_build *build = maker->build;
    const struct wf_plan_unit *unit = &build->units[task->unit];
    uint32_t at;
    const struct wf_plan_holder *holder = task_holder(build, task, &at);
    bool whole = unit->nest.axis_count == 0 || unit->nest.axes[0].param_step == 0 ||
                 task->high - task->low == unit->nest.axes[0].count;
    struct box_range *kept = &maker->ranges[maker->range_first[task->unit] + at];
    struct box_range range = whole ? *kept : (struct box_range){0, 0};
    if (range.count == 0) {
        enum wf_status status = make_boxes(maker, task, holder, &range, error);
        if (status != WF_OK) {
            return status;
        }
        if (whole) {
            *kept = range;
        }
    }
    const struct wf_layout *src = build->src[holder->src_class].layout;
    struct wf_op op = {.param = unit->param,
                       .src_tensor = src->pieces[holder->piece].tensor,
                       .dst_tensor = unit->dst_tensor,
                       .kind = WF_OP_MOVE};
    for (uint32_t i = 0; i < range.count; i++) {
        op.box = maker->boxes[range.first + i];
        if (!append_op(maker, &op)) {
            return wf_plan_no_memory(error);
        }
    }
    return WF_OK;
}

/* --- order and merging -------------------------------------------------------------------------
 */

int wf_plan_compare_ops(const void *a, const void *b)
{
    const struct wf_op *x = a, *y = b;
    if (x->dst_tensor != y->dst_tensor) {
        return x->dst_tensor < y->dst_tensor ? -1 : 1;
    }
    return x->box.dst_offset < y->box.dst_offset ? -1 : x->box.dst_offset > y->box.dst_offset;
}

static bool axis_continues(const struct wf_box *a, const struct wf_box *b, uint32_t axis)
{
    uint64_t count = a->axes[axis].count;
    return a->src_offset + count * (uint64_t)a->axes[axis].src_step == b->src_offset &&
           a->dst_offset + count * (uint64_t)a->axes[axis].dst_step == b->dst_offset;
}

/* The axis along which b continues a on both sides, all else equal; or UINT32_MAX. */
static uint32_t fusing_axis(const struct wf_box *a, const struct wf_box *b)
{
    uint32_t different = UINT32_MAX;
    if (a->axis_count != b->axis_count) {
        return UINT32_MAX;
    }
    for (uint32_t i = 0; i < a->axis_count; i++) {
        if (a->axes[i].src_step != b->axes[i].src_step ||
            a->axes[i].dst_step != b->axes[i].dst_step) {
            return UINT32_MAX;
        }
        if (a->axes[i].count != b->axes[i].count) {
            if (different != UINT32_MAX) {
                return UINT32_MAX;
            }
            different = i;
        }
    }
    if (different != UINT32_MAX) {
        return axis_continues(a, b, different) ? different : UINT32_MAX;
    }
    for (uint32_t i = 0; i < a->axis_count; i++) {
        if (axis_continues(a, b, i)) {
            return i;
        }
    }
    return UINT32_MAX;
}

static void normalise_box(struct wf_box *box)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < box->axis_count; i++) {
        uint64_t count = box->axes[i].count;
        int64_t src_step = box->axes[i].src_step, dst_step = box->axes[i].dst_step;
        if (kept > 0 && box->axes[kept - 1].src_step == (int64_t)count * src_step &&
            box->axes[kept - 1].dst_step == (int64_t)count * dst_step) {
            count *= box->axes[--kept].count;
        }
        box->axes[kept].count = count;
        box->axes[kept].src_step = src_step;
        box->axes[kept++].dst_step = dst_step;
    }
    memset(&box->axes[kept], 0, (box->axis_count - kept) * sizeof box->axes[0]);
    box->axis_count = kept;
}

static bool fuse(struct wf_op *a, const struct wf_op *b)
{
    if (a->param != b->param || a->src_tensor != b->src_tensor || a->dst_tensor != b->dst_tensor) {
        return false;
    }
    uint32_t axis = fusing_axis(&a->box, &b->box);
    if (axis == UINT32_MAX) {
        return false;
    }
    a->box.axes[axis].count += b->box.axes[axis].count;
    a->box.elements += b->box.elements;
    if (b->box.param_first < a->box.param_first) {
        a->box.param_first = b->box.param_first;
    }
    normalise_box(&a->box);
    return true;
}

static void order_ops(struct edge_maker *maker, uint64_t first)
{
    uint64_t kept = first;
    for (uint64_t i = first + 1; i < maker->op_count; i++) {
        if (wf_plan_compare_ops(&maker->ops[i - 1], &maker->ops[i]) > 0) {
            qsort(maker->ops + first, maker->op_count - first, sizeof *maker->ops,
                  wf_plan_compare_ops);
            break;
        }
    }
    for (uint64_t i = first + 1; i < maker->op_count; i++) {
        if (!fuse(&maker->ops[kept], &maker->ops[i])) {
            maker->ops[++kept] = maker->ops[i];
        }
    }
    maker->op_count = kept + 1;
}

/* --- edges -------------------------------------------------------------------------------------
 */

/* One op as bytes, integers little-endian. */
struct op_bytes {
    size_t len;
    char bytes[(6 + 3 * WF_AXES_MAX) * sizeof(uint64_t)];
};

static void put_u64(struct op_bytes *out, uint64_t value)
{
    for (unsigned i = 0; i < sizeof value; i++) {
        out->bytes[out->len + i] = (char)(value >> 8 * i & 0xff);
    }
    out->len += sizeof value;
}

/* In one piece: hashing number by number would take longer than all else about an op. */
static void hash_op(struct wf_hasher *hasher, const struct wf_op *op)
{
    struct op_bytes out;
    out.len = 0;
    put_u64(&out, op->param);
    put_u64(&out, (uint64_t)op->src_tensor << 32 | op->dst_tensor);
    put_u64(&out, (uint64_t)op->kind << 16 | op->value_rule);
    put_u64(&out, op->box.param_first);
    put_u64(&out, op->box.src_offset);
    put_u64(&out, op->box.dst_offset);
    for (uint32_t a = 0; a < op->box.axis_count; a++) {
        put_u64(&out, op->box.axes[a].count);
        put_u64(&out, (uint64_t)op->box.axes[a].src_step);
        put_u64(&out, (uint64_t)op->box.axes[a].dst_step);
    }
    wf_hasher_text(hasher, out.bytes, out.len); /* its length tells the number of axes */
}

/* The hash of the ops alone, of which edges that share them have one. */
static struct wf_hash hash_ops(const struct wf_edge *edge)
{
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    wf_hasher_u64(&hasher, edge->op_count);
    for (uint32_t i = 0; i < edge->op_count; i++) {
        hash_op(&hasher, &edge->ops[i]);
    }
    return wf_hasher_end(&hasher);
}

static struct wf_hash hash_edge(const struct wf_edge *edge, struct wf_hash ops)
{
    struct wf_hasher hasher;
    wf_hasher_init(&hasher);
    wf_hasher_u64(&hasher, edge->src_rank);
    wf_hasher_u64(&hasher, edge->dst_rank);
    wf_hasher_u64(&hasher, ops.high);
    wf_hasher_u64(&hasher, ops.low);
    return wf_hasher_end(&hasher);
}

static uint64_t count_bytes(const struct wf_edge *edge, const struct wf_layout *dst)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < edge->op_count; i++) {
        const struct wf_op *op = &edge->ops[i];
        bytes += op->box.elements * wf_dtype_bytes(dst->tensors[op->dst_tensor].dtype);
    }
    return bytes;
}

void wf_plan_finish_edge(struct wf_edge *edge, const struct wf_layout *dst)
{
    edge->bytes = count_bytes(edge, dst);
    edge->hash = hash_edge(edge, hash_ops(edge));
}

/* --- order of tasks -------------------------------------------------------------------------- */

enum task_key { KEY_UNIT, KEY_SRC, KEY_DST, TASK_KEYS };

static uint32_t task_key(const struct wf_plan_task *task, enum task_key key)
{
    return key == KEY_UNIT ? task->unit : key == KEY_SRC ? task->src_rank : task->dst_rank;
}

/* By infer rank, train rank and unit; parts of one unit are made in rising order and stay so.
 * Counting sorts, the least of the keys first: there are far more tasks than values of a key. */
static enum wf_status sort_tasks(struct wf_plan_build *build, struct wf_error *error)
{
    const uint32_t values[TASK_KEYS] = {build->unit_count, build->train_count, build->infer_count};
    struct wf_plan_task *from = build->tasks,
                        *to = wf_plan_alloc(&build->arena, build->task_count, sizeof *to);
    for (int key = 0; key < TASK_KEYS && to != NULL; key++) {
        uint32_t *first = wf_plan_alloc(&build->scratch, values[key] + 1ull, sizeof *first);
        if (first == NULL) {
            return wf_plan_no_memory(error);
        }
        for (uint32_t t = 0; t < build->task_count; t++) {
            first[task_key(&from[t], (enum task_key)key) + 1]++;
        }
        for (uint32_t v = 0; v < values[key]; v++) {
            first[v + 1] += first[v];
        }
        for (uint32_t t = 0; t < build->task_count; t++) {
            to[first[task_key(&from[t], (enum task_key)key)]++] = from[t];
        }
        struct wf_plan_task *other = from;
        from = to;
        to = other;
        wf_plan_arena_reset(&build->scratch);
    }
    build->tasks = from;
    return to != NULL || build->task_count == 0 ? WF_OK : wf_plan_no_memory(error);
}

static enum wf_status init_maker(struct edge_maker *maker, struct wf_plan_build *build,
                                 struct wf_plan *plan, struct wf_error *error)
{
    uint32_t edges = 0;
    uint64_t ranges = 0;
    for (uint32_t t = 0; t < build->task_count; t++) {
        const struct wf_plan_task *task = &build->tasks[t];
        edges +=
            t == 0 || task->dst_rank != task[-1].dst_rank || task->src_rank != task[-1].src_rank;
    }
    *maker = (struct edge_maker){.build = build, .plan = plan};
    maker->range_first = wf_plan_alloc(&build->arena, build->unit_count, sizeof(uint32_t));
    maker->op_first = wf_plan_alloc(&build->arena, edges + 1ull, sizeof *maker->op_first);
    maker->task_first = wf_plan_alloc(&build->arena, edges + 2ull, sizeof *maker->task_first);
    maker->twins = wf_plan_alloc(&build->arena, edges + 1ull, sizeof *maker->twins);
    plan->edges = calloc(edges + 1ull, sizeof *plan->edges);
    if (build->arena.failed || plan->edges == NULL) {
        return wf_plan_no_memory(error);
    }
    for (uint32_t u = 0; u < build->unit_count; u++) {
        maker->range_first[u] = (uint32_t)ranges;
        ranges += build->atoms[build->units[u].atom].holder_count;
    }
    maker->ranges =
        ranges <= UINT32_MAX ? wf_plan_alloc(&build->arena, ranges, sizeof *maker->ranges) : NULL;
    return maker->ranges != NULL ? WF_OK : wf_plan_no_memory(error);
}

/* The edge between the same train rank and the first infer rank of the same class, or UINT32_MAX.
 * Edges are sorted by (dst_rank, src_rank); the last one is `edge` itself. */
static uint32_t find_twin(const struct edge_maker *maker, const struct wf_edge *edge)
{
    const struct wf_plan_build *build = maker->build;
    uint32_t dst = build->dst[build->dst_class_of[edge->dst_rank]].ranks[0];
    uint32_t low = 0, high = maker->plan->edge_count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct wf_edge *other = &maker->plan->edges[middle];
        bool before =
            other->dst_rank != dst ? other->dst_rank < dst : other->src_rank < edge->src_rank;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    const struct wf_edge *found = &maker->plan->edges[low];
    bool twin = found != edge && found->dst_rank == dst && found->src_rank == edge->src_rank;
    return twin ? low : UINT32_MAX;
}

/* The same parts of the same units: then the ops are the same too. */
static bool same_tasks(const struct edge_maker *maker, uint32_t twin, uint32_t first, uint32_t end)
{
    const struct wf_plan_task *tasks = maker->build->tasks;
    uint32_t other = maker->task_first[twin];
    if (maker->task_first[twin + 1] - other != end - first) {
        return false;
    }
    for (uint32_t t = first; t < end; t++, other++) {
        if (tasks[t].unit != tasks[other].unit || tasks[t].low != tasks[other].low ||
            tasks[t].high != tasks[other].high) {
            return false;
        }
    }
    return true;
}

/* The edge of tasks [first, end). Engines that are alike and get the same from one train rank share
 * the ops. */
static enum wf_status make_edge(struct edge_maker *maker, uint32_t first, uint32_t end,
                                struct wf_error *error)
{
    const struct wf_plan_build *build = maker->build;
    struct wf_plan *plan = maker->plan;
    uint32_t index = plan->edge_count++;
    struct wf_edge *edge = &plan->edges[index];
    edge->src_rank = build->tasks[first].src_rank;
    edge->dst_rank = build->tasks[first].dst_rank;
    maker->op_first[index] = maker->op_count;
    maker->task_first[index] = first;
    maker->task_first[index + 1] = end;
    uint32_t twin = find_twin(maker, edge);
    maker->twins[index] = index;
    if (twin != UINT32_MAX && same_tasks(maker, twin, first, end)) {
        maker->op_first[index] = maker->op_first[twin];
        maker->twins[index] = twin;
        edge->op_count = plan->edges[twin].op_count;
        return WF_OK;
    }
    for (uint32_t t = first; t < end; t++) {
        enum wf_status status = add_task(maker, &build->tasks[t], error);
        if (status != WF_OK) {
            return status;
        }
    }
    order_ops(maker, maker->op_first[index]);
    edge->op_count = (uint32_t)(maker->op_count - maker->op_first[index]);
    return WF_OK;
}

static enum wf_status make_edges(struct edge_maker *maker, struct wf_error *error)
{
    const struct wf_plan_build *build = maker->build;
    enum wf_status status = WF_OK;
    for (uint32_t first = 0, end; first < build->task_count && status == WF_OK; first = end) {
        const struct wf_plan_task *task = &build->tasks[first];
        end = first + 1;
        while (end < build->task_count && build->tasks[end].dst_rank == task->dst_rank &&
               build->tasks[end].src_rank == task->src_rank) {
            end++;
        }
        status = make_edge(maker, first, end, error);
    }
    return status;
}

static enum wf_status count_plan(struct edge_maker *maker, struct wf_error *error)
{
    const struct wf_plan_build *build = maker->build;
    struct wf_plan *plan = maker->plan;
    uint64_t *egress = wf_plan_alloc(&maker->build->arena, build->train_count, sizeof *egress);
    uint64_t *ingress = wf_plan_alloc(&maker->build->arena, build->infer_count, sizeof *ingress);
    struct wf_hash *hashes = wf_plan_alloc(&maker->build->arena, plan->edge_count, sizeof *hashes);
    if (egress == NULL || ingress == NULL || hashes == NULL) {
        return wf_plan_no_memory(error);
    }
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        struct wf_edge *edge = &plan->edges[e];
        edge->ops = maker->ops + maker->op_first[e];
        plan->op_count += edge->op_count;
        uint32_t twin = maker->twins[e];
        edge->bytes =
            twin != e ? plan->edges[twin].bytes
                      : count_bytes(edge, build->dst[build->dst_class_of[edge->dst_rank]].layout);
        hashes[e] = twin != e ? hashes[twin] : hash_ops(edge);
        edge->hash = hash_edge(edge, hashes[e]);
        plan->bytes_moved += edge->bytes;
        uint64_t *out = &egress[edge->src_rank], *in = &ingress[edge->dst_rank];
        *out += edge->bytes;
        *in += edge->bytes;
        plan->egress_max = *out > plan->egress_max ? *out : plan->egress_max;
        plan->ingress_max = *in > plan->ingress_max ? *in : plan->ingress_max;
    }
    return WF_OK;
}

enum wf_status wf_plan_edges(struct wf_plan_build *build, struct wf_plan *plan,
                             struct wf_error *error)
{
    struct edge_maker maker;
    enum wf_status status = sort_tasks(build, error);
    if (status != WF_OK) {
        return status;
    }
    status = init_maker(&maker, build, plan, error);
    if (status == WF_OK) {
        status = make_edges(&maker, error);
    }
    plan->memory = maker.ops;
    return status == WF_OK ? count_plan(&maker, error) : status;
}
