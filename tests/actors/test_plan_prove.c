/* test_plan_prove.c - the coverage proof finds every way in which a right plan was made wrong. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan_world.h"

#define F32 WF_DTYPE_F32

static struct world made;

/* A plan whose ops can be changed. */
struct copy {
    struct wf_plan plan;
    struct wf_op **ops; /* of each edge, with room for one more */
};

static struct copy copy_plan(const struct wf_plan *plan)
{
    struct copy copy = {.plan = *plan};
    copy.plan.edges = calloc(plan->edge_count, sizeof *copy.plan.edges);
    copy.ops = calloc(plan->edge_count, sizeof *copy.ops);
    memcpy(copy.plan.edges, plan->edges, plan->edge_count * sizeof *plan->edges);
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        copy.ops[e] = calloc(plan->edges[e].op_count + 1, sizeof *copy.ops[e]);
        memcpy(copy.ops[e], plan->edges[e].ops, plan->edges[e].op_count * sizeof *copy.ops[e]);
        copy.plan.edges[e].ops = copy.ops[e];
    }
    return copy;
}

static void free_copy(struct copy *copy)
{
    for (uint32_t e = 0; e < copy->plan.edge_count; e++) {
        free(copy->ops[e]);
    }
    free(copy->ops);
    free(copy->plan.edges);
}

/* Makes the totals right again, so that only the boxes themselves are wrong. */
static void count_again(struct copy *copy)
{
    copy->plan.op_count = copy->plan.bytes_moved = 0;
    for (uint32_t e = 0; e < copy->plan.edge_count; e++) {
        struct wf_edge *edge = &copy->plan.edges[e];
        edge->bytes = 0;
        for (uint32_t o = 0; o < edge->op_count; o++) {
            edge->bytes += edge->ops[o].box.elements * 4;
        }
        copy->plan.op_count += edge->op_count;
        copy->plan.bytes_moved += edge->bytes;
    }
}

struct mutation {
    const char *name;
    /* Changes op `o` of edge `e`; false if this op cannot be made wrong in this way. */
    bool (*mutate)(struct copy *copy, uint32_t e, uint32_t o);
    const char *says; /* one of the sentences that fit; NULL: any */
    bool names_param;
};

static bool drop_op(struct copy *copy, uint32_t e, uint32_t o)
{
    struct wf_edge *edge = &copy->plan.edges[e];
    memmove(&copy->ops[e][o], &copy->ops[e][o + 1],
            (edge->op_count - o - 1) * sizeof(struct wf_op));
    edge->op_count--;
    return true;
}

static bool repeat_op(struct copy *copy, uint32_t e, uint32_t o)
{
    struct wf_edge *edge = &copy->plan.edges[e];
    copy->ops[e][edge->op_count++] = copy->ops[e][o];
    return true;
}

static bool shift_target(struct copy *copy, uint32_t e, uint32_t o)
{
    copy->ops[e][o].box.dst_offset += 4;
    return true;
}

static bool shift_source(struct copy *copy, uint32_t e, uint32_t o)
{
    copy->ops[e][o].box.src_offset += 4;
    return true;
}

static bool shift_both(struct copy *copy, uint32_t e, uint32_t o)
{
    copy->ops[e][o].box.src_offset += 4;
    copy->ops[e][o].box.dst_offset += 4;
    return true;
}

static bool half_element(struct copy *copy, uint32_t e, uint32_t o)
{
    copy->ops[e][o].box.src_offset += 2;
    return true;
}

static bool shorten(struct copy *copy, uint32_t e, uint32_t o)
{
    struct wf_box *box = &copy->ops[e][o].box;
    if (box->axis_count == 0) {
        return false;
    }
    box->elements = box->elements / box->axes[0].count * (box->axes[0].count - 1);
    box->axes[0].count--;
    return true;
}

static bool lengthen(struct copy *copy, uint32_t e, uint32_t o)
{
    struct wf_box *box = &copy->ops[e][o].box;
    if (box->axis_count == 0) {
        return false;
    }
    box->elements = box->elements / box->axes[0].count * (box->axes[0].count + 1);
    box->axes[0].count++;
    return true;
}

static bool backwards(struct copy *copy, uint32_t e, uint32_t o)
{
    struct wf_box *box = &copy->ops[e][o].box;
    if (box->axis_count == 0) {
        return false;
    }
    box->src_offset += (box->axes[0].count - 1) * (uint64_t)box->axes[0].src_step;
    box->axes[0].src_step = -box->axes[0].src_step;
    return true;
}

static bool standing_still(struct copy *copy, uint32_t e, uint32_t o)
{
    struct wf_box *box = &copy->ops[e][o].box;
    if (box->axis_count == 0) {
        return false;
    }
    box->axes[0].dst_step = 0;
    return true;
}

static bool wrong_elements(struct copy *copy, uint32_t e, uint32_t o)
{
    copy->ops[e][o].box.elements++;
    return true;
}

static bool wrong_param(struct copy *copy, uint32_t e, uint32_t o)
{
    copy->ops[e][o].param = (copy->ops[e][o].param + 1) % made.model->param_count;
    return true;
}

static bool no_param(struct copy *copy, uint32_t e, uint32_t o)
{
    copy->ops[e][o].param = made.model->param_count;
    return true;
}

static bool wrong_source_tensor(struct copy *copy, uint32_t e, uint32_t o)
{
    copy->ops[e][o].src_tensor ^= 1;
    return true;
}

static bool wrong_target_tensor(struct copy *copy, uint32_t e, uint32_t o)
{
    copy->ops[e][o].dst_tensor ^= 1;
    return true;
}

static bool no_tensor(struct copy *copy, uint32_t e, uint32_t o)
{
    copy->ops[e][o].dst_tensor = UINT32_MAX;
    return true;
}

/* The source becomes the next tensor-parallel rank: right only for what all of them hold. */
static bool wrong_rank(struct copy *copy, uint32_t e, uint32_t o)
{
    const struct wf_op *op = &copy->ops[e][o];
    copy->plan.edges[e].src_rank ^= 1;
    return made.model->params[op->param].ndim == 2;
}

/* This op and the next swap the places they read. */
static bool swap_sources(struct copy *copy, uint32_t e, uint32_t o)
{
    if (o + 1 == copy->plan.edges[e].op_count ||
        copy->ops[e][o].box.elements != copy->ops[e][o + 1].box.elements) {
        return false;
    }
    struct wf_op *a = &copy->ops[e][o], *b = &copy->ops[e][o + 1], kept = *a;
    a->src_tensor = b->src_tensor;
    a->box.src_offset = b->box.src_offset;
    b->src_tensor = kept.src_tensor;
    b->box.src_offset = kept.box.src_offset;
    return true;
}

static bool other_kind(struct copy *copy, uint32_t e, uint32_t o)
{
    copy->ops[e][o].kind = 1;
    return true;
}

static const struct mutation mutations[] = {
    {"dropped", drop_op, "are written", true},
    {"done twice", repeat_op, "is written twice", true},
    {"target shifted by an element", shift_target, NULL, true},
    {"source shifted by an element", shift_source, NULL, true},
    {"both shifted by an element", shift_both, NULL, true},
    {"source shifted by half an element", half_element, "source tensor", true},
    {"one step too few", shorten, NULL, true},
    {"one step too many", lengthen, NULL, true},
    {"read backwards", backwards, "reads element", true},
    {"written to one place", standing_still, NULL, true},
    {"says more elements than it has", wrong_elements, "its axes have", true},
    {"named after another parameter", wrong_param, NULL, false},
    {"named after no parameter", no_param, "do not exist", false},
    {"read from another tensor", wrong_source_tensor, NULL, true},
    {"written to another tensor", wrong_target_tensor, NULL, true},
    {"written to no tensor", no_tensor, "do not exist", true},
    {"read from another rank", wrong_rank, NULL, false},
    {"swapped with the next", swap_sources, NULL, false},
    {"of an unknown kind", other_kind, "do not exist", true},
};

static void make(void)
{
    char config[1024];
    struct world_sizes sizes = {"qwen3", 32, 2, 101, 8, 4, 8, 48, false, "float32"};
    struct world_spec spec = {
        .config = config, .train = "megatron:tp=2,pp=2", .infer = {"vllm:tp=4"}};
    struct wf_error error = {0};
    world_config(&sizes, config, sizeof config);
    cr_assert(world_make(&spec, &made, &error), "%s", error.text);
}

static struct wf_plan *build(void)
{
    struct wf_plan *plan = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_plan_build(&made.input, &plan, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_plan_prove(&made.input, plan, &error), WF_OK, "%s", error.text);
    return plan;
}

static void check_mutation(const struct wf_plan *plan, const struct mutation *mutation, uint32_t e,
                           uint32_t o)
{
    struct copy copy = copy_plan(plan);
    struct wf_error error = {0};
    const char *param = made.model->params[copy.ops[e][o].param].name;
    if (mutation->mutate(&copy, e, o)) {
        count_again(&copy);
        cr_expect_eq(wf_plan_prove(&made.input, &copy.plan, &error), WF_MISMATCH,
                     "%s: edge %" PRIu32 ", op %" PRIu32 " (%s)", mutation->name, e, o, param);
        cr_expect(!mutation->names_param || strstr(error.text, param) != NULL,
                  "%s: edge %" PRIu32 ", op %" PRIu32 ": no %s in \"%s\"", mutation->name, e, o,
                  param, error.text);
        cr_expect(mutation->says == NULL || strstr(error.text, mutation->says) != NULL,
                  "%s: edge %" PRIu32 ", op %" PRIu32 ": no \"%s\" in \"%s\"", mutation->name, e, o,
                  mutation->says, error.text);
        cr_expect(strstr(error.text, "infer rank") != NULL, "%s: \"%s\"", mutation->name,
                  error.text);
    }
    free_copy(&copy);
}

Test(plan_prove, catches_every_mutation_of_every_op)
{
    make();
    struct wf_plan *plan = build();
    for (size_t i = 0; i < sizeof mutations / sizeof mutations[0]; i++) {
        for (uint32_t e = 0; e < plan->edge_count; e++) {
            for (uint32_t o = 0; o < plan->edges[e].op_count; o++) {
                check_mutation(plan, &mutations[i], e, o);
            }
        }
    }
    wf_plan_free(plan);
    world_free(&made);
}

Test(plan_prove, checks_edges_and_totals)
{
    make();
    struct wf_plan *plan = build();
    struct wf_error error = {0};
    struct copy copy = copy_plan(plan);
    copy.plan.edges[1].dst_rank = 99;
    cr_expect_eq(wf_plan_prove(&made.input, &copy.plan, &error), WF_MISMATCH);
    cr_expect(strstr(error.text, "infer rank 99") != NULL, "%s", error.text);
    copy.plan.edges[1].dst_rank = plan->edges[1].dst_rank;
    copy.plan.edges[1].src_rank = 99;
    cr_expect_eq(wf_plan_prove(&made.input, &copy.plan, &error), WF_MISMATCH);
    copy.plan.edges[1].src_rank = plan->edges[1].src_rank;
    copy.plan.edges[1].bytes++;
    cr_expect_eq(wf_plan_prove(&made.input, &copy.plan, &error), WF_MISMATCH);
    copy.plan.edges[1].bytes--;
    copy.plan.bytes_moved++;
    cr_expect_eq(wf_plan_prove(&made.input, &copy.plan, &error), WF_MISMATCH);
    copy.plan.bytes_moved--;
    copy.plan.op_count++;
    cr_expect_eq(wf_plan_prove(&made.input, &copy.plan, &error), WF_MISMATCH);
    copy.plan.op_count--;
    copy.plan.edge_count = 0; /* nothing is written at all */
    copy.plan.op_count = copy.plan.bytes_moved = 0;
    cr_expect_eq(wf_plan_prove(&made.input, &copy.plan, &error), WF_MISMATCH);
    cr_expect(strstr(error.text, "infer rank 0") != NULL, "%s", error.text);
    cr_expect_eq(wf_plan_prove(&made.input, &copy.plan, NULL), WF_MISMATCH);
    copy.plan.edge_count = plan->edge_count;
    free_copy(&copy);
    wf_plan_free(plan);
    world_free(&made);
}

/* --- target layouts that do not fill their tensors ----------------------------------------------
 */

struct cover_row {
    const char *name;
    struct hand_piece pieces[4];
    const char *says; /* NULL: right */
};

static const struct cover_row cover_rows[] = {
    {"exact", {{0, F32, 8, 4, 0, 0, 0, 0, 0, 8, 4}}, NULL},
    {"rows and fill",
     {{0, F32, 9, 4, 0, 0, 0, 0, 0, 8, 4}, {0, F32, 9, 4, UINT32_MAX, 0, 0, 8, 0, 1, 4}},
     NULL},
    {"columns and fill",
     {{0, F32, 8, 5, 0, 0, 0, 0, 0, 8, 4}, {0, F32, 8, 5, UINT32_MAX, 0, 0, 0, 4, 8, 1}},
     NULL},
    {"rows that nothing shows", {{0, F32, 9, 4, 0, 0, 0, 0, 0, 8, 4}}, "show 128 of 144 bytes"},
    {"fill over data",
     {{0, F32, 8, 4, 0, 0, 0, 0, 0, 8, 4}, {0, F32, 8, 4, UINT32_MAX, 0, 0, 7, 3, 1, 1}},
     "both show byte 124"},
    {"two columns overlap",
     {{0, F32, 8, 4, 0, 0, 0, 0, 0, 8, 3}, {0, F32, 8, 4, 0, 0, 2, 0, 2, 8, 2}},
     "both show byte 8"},
};

Test(plan_prove, target_layouts_fill_their_tensors)
{
    static const struct hand_param params[] = {{"alpha", 8, 4}};
    static const struct hand_piece source[] = {{0, F32, 8, 4, 0, 0, 0, 0, 0, 8, 4}, {0}};
    for (size_t i = 0; i < sizeof cover_rows / sizeof cover_rows[0]; i++) {
        const struct cover_row *row = &cover_rows[i];
        struct wf_plan *plan = NULL;
        struct wf_error error = {0};
        hand_model(&made, params, 1);
        hand_rank(&made, WF_TRAIN, 0, source);
        hand_rank(&made, WF_INFER, 0, row->pieces);
        cr_assert_eq(wf_plan_build(&made.input, &plan, &error), WF_OK, "%s: %s", row->name,
                     error.text);
        enum wf_status status = wf_plan_prove(&made.input, plan, &error);
        cr_expect_eq(status, row->says == NULL ? WF_OK : WF_MISMATCH, "%s: %s", row->name,
                     error.text);
        cr_expect(row->says == NULL || strstr(error.text, row->says) != NULL, "%s: \"%s\"",
                  row->name, error.text);
        wf_plan_free(plan);
        world_free(&made);
    }
}
