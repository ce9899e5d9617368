/* plan_casts.c - chooses what is cast once: counts who reads what in which type, the best first. */
#include "actors/plan_casts.h"

#include <stdlib.h>
#include <string.h>

#include "actors/plan_parts.h"
#include "models/prepare.h"

enum {
    ALIGN = 64,        /* of a tensor in what a source prepares */
    WORTH_PARTS = 256, /* of a cast saved for each byte, which casts are compared by */
    PARTS_TRIED = 4,   /* tensors of a rank of which a part may fit; each is a look at all ops */
};

/* A tensor of one train rank that readers want in a narrower type. */
struct wanted {
    struct wf_plan_cast cast;
    uint64_t read, end; /* elements that readers read, each his own; behind the last of them */
    uint64_t bytes, worth;
    bool taken;
};

/* Of a tensor: what readers read that ends before `limit`. */
struct part {
    uint32_t tensor;
    enum wf_dtype to;
    uint64_t limit, read, end;
};

struct chooser {
    const struct wf_plan_input *input;
    const struct wf_plan *plan;
    uint32_t train_count;
    uint32_t *by_source, *first; /* edges of train rank r: by_source[first[r]] .. */
    uint32_t *at;                /* by tensor and type: 1 + index into `wanted` */
    struct wanted *wanted;       /* of the rank at hand */
    struct part part;            /* of a tensor of it */
    uint32_t wanted_count, wanted_room;
    struct wf_plan_cast *casts;
    uint32_t cast_count, cast_room;
    bool failed;
};

static bool grow(struct chooser *chooser, void *array, uint32_t count, uint32_t *room, size_t size)
{
    if (count < *room) {
        return true;
    }
    uint32_t more = *room > 0 ? 2 * *room : 64;
    void *grown = reallocarray(*(void **)array, more, size);
    chooser->failed = grown == NULL;
    if (grown != NULL) {
        *(void **)array = grown;
        *room = more;
    }
    return grown != NULL;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool narrows(enum wf_dtype from, enum wf_dtype to)
{
    return wf_dtype_bytes(to) < wf_dtype_bytes(from);
}

/* The elements of its source tensor between which an op reads; false: they are not whole ones. */
static bool op_range(const struct wf_op *op, uint64_t elem_bytes, uint64_t *first_out,
                     uint64_t *end_out)
{
    int64_t low = (int64_t)op->box.src_offset, high = low, each = (int64_t)elem_bytes;
    bool whole = low % each == 0;
    for (uint32_t a = 0; a < op->box.axis_count; a++) {
        int64_t step = op->box.axes[a].src_step;
        int64_t way = step * (int64_t)(op->box.axes[a].count - 1);
        low += way < 0 ? way : 0;
        high += way > 0 ? way : 0;
        whole = whole && step % each == 0;
    }
    *first_out = (uint64_t)(low / each);
    *end_out = (uint64_t)(high / each) + 1;
    return whole && low >= 0;
}

/* --- what is wanted of a rank ------------------------------------------------------------------
 */

static void want(struct chooser *chooser, const struct wf_op *op, uint32_t src_rank,
                 enum wf_dtype from, enum wf_dtype to)
{
    uint64_t first, end;
    if (!op_range(op, wf_dtype_bytes(from), &first, &end)) {
        return;
    }
    uint32_t *at = &chooser->at[(size_t)op->src_tensor * WF_DTYPE_COUNT + to];
    if (*at == 0) {
        if (!grow(chooser, &chooser->wanted, chooser->wanted_count, &chooser->wanted_room,
                  sizeof *chooser->wanted)) {
            return;
        }
        chooser->wanted[chooser->wanted_count] = (struct wanted){.cast = {.src_rank = src_rank,
                                                                          .tensor = op->src_tensor,
                                                                          .from = from,
                                                                          .to = to,
                                                                          .first = first},
                                                                 .end = end};
        *at = ++chooser->wanted_count;
    }
    struct wanted *wanted = &chooser->wanted[*at - 1];
    wanted->read += op->box.elements;
    wanted->cast.first = first < wanted->cast.first ? first : wanted->cast.first;
    wanted->end = end > wanted->end ? end : wanted->end;
}

static void add_to_part(struct chooser *chooser, const struct wf_op *op, uint32_t src_rank,
                        enum wf_dtype from, enum wf_dtype to)
{
    struct part *part = &chooser->part;
    uint64_t first, end;
    (void)src_rank;
    if (op->src_tensor == part->tensor && to == part->to &&
        op_range(op, wf_dtype_bytes(from), &first, &end) && end <= part->limit) {
        part->read += op->box.elements;
        part->end = end > part->end ? end : part->end;
    }
}

typedef void take_t(struct chooser *chooser, const struct wf_op *op, uint32_t src_rank,
                    enum wf_dtype from, enum wf_dtype to);

/* Gives `take` the rank's ops that narrow for readers who count. */
static void gather(struct chooser *chooser, uint32_t rank, take_t *take)
{
    const struct wf_plan_member *members = chooser->input->members;
    const struct wf_layout *src = members[rank].layout;
    for (uint32_t i = chooser->first[rank]; i < chooser->first[rank + 1]; i++) {
        const struct wf_edge *edge = &chooser->plan->edges[chooser->by_source[i]];
        const struct wf_plan_member *reader = &members[chooser->train_count + edge->dst_rank];
        if (chooser->input->policy.near_maps && reader->host == members[rank].host) {
            continue;
        }
        for (uint32_t o = 0; o < edge->op_count; o++) {
            const struct wf_op *op = &edge->ops[o];
            const struct wf_tensor *held = &src->tensors[op->src_tensor];
            enum wf_dtype to = reader->layout->tensors[op->dst_tensor].dtype;
            /* What is made is made from what is held, all at once: not from what is made. */
            if (narrows(held->dtype, to) && !wf_prepare_is_made(held)) {
                take(chooser, op, rank, held->dtype, to);
            }
        }
    }
}

/* --- choice ------------------------------------------------------------------------------------
 */

static int compare_worth(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    if (x->worth != y->worth) {
        return x->worth > y->worth ? -1 : 1;
    }
    if (x->cast.tensor != y->cast.tensor) {
        return x->cast.tensor < y->cast.tensor ? -1 : 1;
    }
    return x->cast.to < y->cast.to ? -1 : x->cast.to > y->cast.to;
}

static int compare_casts(const void *a, const void *b)
{
    const struct wf_plan_cast *x = a, *y = b;
    if (x->tensor != y->tensor) {
        return x->tensor < y->tensor ? -1 : 1;
    }
    return x->to < y->to ? -1 : x->to > y->to;
}

/* Where two readers share less than half of the elements, casting for each is as good. */
static bool is_worth_it(struct wanted *wanted)
{
    struct wf_plan_cast *cast = &wanted->cast;
    cast->elements = wanted->end - cast->first;
    cast->saved = wanted->read > cast->elements ? wanted->read - cast->elements : 0;
    uint64_t bytes = cast->elements * wf_dtype_bytes(cast->to);
    wanted->bytes = aligned(bytes);
    wanted->worth = cast->saved * WORTH_PARTS / bytes;
    return 2 * cast->saved >= cast->elements;
}

/* What the rank prepares anyhow comes first. */
static uint64_t budget(const struct chooser *chooser, const struct wf_layout *src)
{
    uint64_t left = chooser->input->policy.cast_bytes_max;
    for (uint32_t t = 0; t < src->tensor_count; t++) {
        uint64_t bytes = src->tensors[t].bytes;
        bytes = wf_prepare_is_made(&src->tensors[t]) ? aligned(bytes) : 0;
        left = left > bytes ? left - bytes : 0;
    }
    return left;
}

static void keep(struct chooser *chooser, struct wanted *wanted, uint64_t *left)
{
    if (wanted->bytes <= *left && grow(chooser, &chooser->casts, chooser->cast_count,
                                       &chooser->cast_room, sizeof *chooser->casts)) {
        *left -= wanted->bytes;
        chooser->casts[chooser->cast_count++] = wanted->cast;
        wanted->taken = true;
    }
}

/* Of a tensor that does not fit its first rows may: up to where the last op ends that lies in what
 * is left of the budget. What straddles that end is cast while it moves, as what lies behind it. */
static void keep_part(struct chooser *chooser, uint32_t rank, const struct wanted *whole,
                      uint64_t *left)
{
    struct wanted wanted = *whole;
    uint64_t room = *left / ALIGN * ALIGN / wf_dtype_bytes(whole->cast.to);
    chooser->part = (struct part){
        .tensor = whole->cast.tensor, .to = whole->cast.to, .limit = whole->cast.first + room};
    gather(chooser, rank, add_to_part);
    wanted.read = chooser->part.read;
    wanted.end = chooser->part.end;
    if (wanted.read > 0 && is_worth_it(&wanted)) {
        keep(chooser, &wanted, left);
    }
}

static void choose(struct chooser *chooser, uint32_t rank)
{
    uint64_t left = budget(chooser, chooser->input->members[rank].layout);
    uint32_t before = chooser->cast_count, kept = 0, tried = 0;
    for (uint32_t i = 0; i < chooser->wanted_count; i++) {
        struct wanted wanted = chooser->wanted[i];
        chooser->at[(size_t)wanted.cast.tensor * WF_DTYPE_COUNT + wanted.cast.to] = 0;
        if (is_worth_it(&wanted)) {
            chooser->wanted[kept++] = wanted;
        }
    }
    if (kept > 0) {
        qsort(chooser->wanted, kept, sizeof *chooser->wanted, compare_worth);
    }
    for (uint32_t i = 0; i < kept; i++) {
        keep(chooser, &chooser->wanted[i], &left);
    }
    for (uint32_t i = 0; i < kept && left >= ALIGN && tried < PARTS_TRIED; i++) {
        if (!chooser->wanted[i].taken) {
            keep_part(chooser, rank, &chooser->wanted[i], &left);
            tried++;
        }
    }
    if (chooser->cast_count > before) {
        qsort(chooser->casts + before, chooser->cast_count - before, sizeof *chooser->casts,
              compare_casts);
    }
    chooser->wanted_count = 0;
}

static void sort_edges(struct chooser *chooser)
{
    const struct wf_plan *plan = chooser->plan;
    uint32_t tensors = 0;
    for (uint32_t r = 0; r < chooser->train_count; r++) {
        uint32_t count = chooser->input->members[r].layout->tensor_count;
        tensors = count > tensors ? count : tensors;
    }
    chooser->by_source = calloc(plan->edge_count + 1ull, sizeof *chooser->by_source);
    chooser->first = calloc(chooser->train_count + 2ull, sizeof *chooser->first);
    chooser->at = calloc((size_t)tensors * WF_DTYPE_COUNT + 1, sizeof *chooser->at);
    chooser->failed = chooser->by_source == NULL || chooser->first == NULL || chooser->at == NULL;
    if (chooser->failed) {
        return;
    }
    /* Counted two places on, summed, then moved one on while they are dealt out. */
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        chooser->first[plan->edges[e].src_rank + 2]++;
    }
    for (uint32_t r = 0; r < chooser->train_count; r++) {
        chooser->first[r + 2] += chooser->first[r + 1];
    }
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        chooser->by_source[chooser->first[plan->edges[e].src_rank + 1]++] = e;
    }
}

static uint32_t count_train(const struct wf_plan_input *input)
{
    uint32_t train = 0;
    while (train < input->member_count && input->members[train].side == WF_TRAIN) {
        train++;
    }
    return train;
}

void wf_plan_count_casts(const struct wf_plan_input *input, struct wf_plan *plan)
{
    uint32_t train = count_train(input);
    plan->cast_made_bytes = plan->cast_once_bytes = plan->cast_moving_bytes = 0;
    for (uint32_t c = 0; c < plan->cast_count; c++) {
        plan->cast_made_bytes += plan->casts[c].elements * wf_dtype_bytes(plan->casts[c].to);
    }
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        const struct wf_layout *src = input->members[edge->src_rank].layout;
        const struct wf_layout *dst = input->members[train + edge->dst_rank].layout;
        for (uint32_t o = 0; o < edge->op_count; o++) {
            const struct wf_op *op = &edge->ops[o];
            enum wf_dtype to = dst->tensors[op->dst_tensor].dtype;
            if (!narrows(src->tensors[op->src_tensor].dtype, to)) {
                continue;
            }
            uint64_t bytes = op->box.elements * wf_dtype_bytes(to);
            if (wf_plan_cast_read(plan, src, dst, edge->src_rank, op, NULL) != NULL) {
                plan->cast_once_bytes += bytes;
            } else {
                plan->cast_moving_bytes += bytes;
            }
        }
    }
}

/* Into chooser->casts, which are freed where it fails. */
static enum wf_status choose_all(struct chooser *chooser, struct wf_error *error)
{
    if (chooser->input->policy.cast_bytes_max > 0) {
        sort_edges(chooser);
        for (uint32_t r = 0; r < chooser->train_count && !chooser->failed; r++) {
            gather(chooser, r, want);
            choose(chooser, r);
        }
    }
    free(chooser->by_source);
    free(chooser->first);
    free(chooser->at);
    free(chooser->wanted);
    if (chooser->failed) {
        free(chooser->casts);
        return wf_plan_no_memory(error);
    }
    return WF_OK;
}

enum wf_status wf_plan_choose_casts(const struct wf_plan_input *input, struct wf_plan *plan,
                                    struct wf_error *error)
{
    struct chooser chooser = {.input = input, .plan = plan, .train_count = count_train(input)};
    enum wf_status status = choose_all(&chooser, error);
    if (status == WF_OK) {
        plan->casts = chooser.casts;
        plan->cast_count = chooser.cast_count;
        wf_plan_count_casts(input, plan);
    }
    return status;
}

enum wf_status wf_plan_casts_wanted(const struct wf_plan_input *input, const struct wf_plan *plan,
                                    struct wf_plan_cast **casts_out, uint32_t *count_out,
                                    uint64_t *budget_out, struct wf_error *error)
{
    struct wf_plan_input roomy = *input;
    roomy.policy.cast_bytes_max = UINT64_MAX;
    struct chooser chooser = {.input = &roomy, .plan = plan, .train_count = count_train(input)};
    enum wf_status status = choose_all(&chooser, error);
    *budget_out = 0;
    for (uint32_t c = 0; status == WF_OK && c < chooser.cast_count;) {
        uint32_t rank = chooser.casts[c].src_rank, first = c;
        while (c < chooser.cast_count && chooser.casts[c].src_rank == rank) {
            c++;
        }
        uint64_t bytes = wf_plan_cast_bytes(chooser.casts + first, c - first) + UINT64_MAX -
                         budget(&chooser, input->members[rank].layout);
        *budget_out = bytes > *budget_out ? bytes : *budget_out;
    }
    *casts_out = status == WF_OK ? chooser.casts : NULL;
    *count_out = status == WF_OK ? chooser.cast_count : 0;
    return status;
}

/* --- reading -----------------------------------------------------------------------------------
 */

/* The first cast of the plan that does not stand before (src_rank, tensor, to). */
static uint32_t find_cast(const struct wf_plan *plan, uint32_t src_rank, uint32_t tensor,
                          enum wf_dtype to)
{
    const struct wf_plan_cast key = {.tensor = tensor, .to = to};
    uint32_t low = 0, high = plan->cast_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct wf_plan_cast *cast = &plan->casts[middle];
        bool before =
            cast->src_rank != src_rank ? cast->src_rank < src_rank : compare_casts(cast, &key) < 0;
        low = before ? middle + 1 : low;
        high = before ? high : middle;
    }
    return low;
}

uint32_t wf_plan_casts_of(const struct wf_plan *plan, uint32_t src_rank,
                          const struct wf_plan_cast **first_out)
{
    uint32_t first = find_cast(plan, src_rank, 0, 0), end = first;
    while (end < plan->cast_count && plan->casts[end].src_rank == src_rank) {
        end++;
    }
    *first_out = plan->cast_count > 0 ? plan->casts + first : NULL;
    return end - first;
}

uint64_t wf_plan_cast_bytes(const struct wf_plan_cast *casts, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += aligned(casts[i].elements * wf_dtype_bytes(casts[i].to));
    }
    return bytes;
}

const struct wf_plan_cast *wf_plan_cast_read(const struct wf_plan *plan,
                                             const struct wf_layout *src,
                                             const struct wf_layout *dst, uint32_t src_rank,
                                             const struct wf_op *op, struct wf_op *read_out)
{
    if (plan->cast_count == 0) {
        return NULL;
    }
    enum wf_dtype from = src->tensors[op->src_tensor].dtype;
    enum wf_dtype to = dst->tensors[op->dst_tensor].dtype;
    uint32_t at = find_cast(plan, src_rank, op->src_tensor, to);
    const struct wf_plan_cast *cast = at < plan->cast_count ? &plan->casts[at] : NULL;
    uint64_t first, end;
    if (cast == NULL || cast->src_rank != src_rank || cast->tensor != op->src_tensor ||
        cast->to != to || !op_range(op, wf_dtype_bytes(from), &first, &end) ||
        first < cast->first || end > cast->first + cast->elements) {
        return NULL;
    }
    if (read_out != NULL) {
        uint64_t wide = wf_dtype_bytes(from), narrow = wf_dtype_bytes(to);
        *read_out = *op;
        read_out->src_tensor = src->tensor_count + (at - find_cast(plan, src_rank, 0, 0));
        read_out->box.src_offset = (op->box.src_offset / wide - cast->first) * narrow;
        for (uint32_t a = 0; a < op->box.axis_count; a++) {
            read_out->box.axes[a].src_step =
                op->box.axes[a].src_step / (int64_t)wide * (int64_t)narrow;
        }
    }
    return cast;
}
