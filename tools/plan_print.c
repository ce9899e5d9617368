/* plan_print.c - a plan in words. */
#include "tools/plan_print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/plan_casts.h"
#include "config/units.h"
#include "models/prepare.h"
#include "models/variant.h"
#include "tools/plan_cuts.h"

enum {
    SIDE_TEXT = 192,
    RANK_LINES_MAX = 32, /* of one side; of more ranks only the busiest and idlest are told */
};

static int range_text(char *text, size_t size, const char *one, const char *many, uint64_t first,
                      uint64_t count)
{
    return count == 1
               ? snprintf(text, size, "%s %" PRIu64, one, first)
               : snprintf(text, size, "%s %" PRIu64 "..%" PRIu64, many, first, first + count - 1);
}

static const struct wf_layout *layout_of(const struct wf_plan_job *job, enum wf_side side,
                                         uint32_t rank)
{
    return job->members[side == WF_TRAIN ? rank : job->train_ranks + rank].layout;
}

static bool in_focus(const struct wf_plan_focus *focus, const struct wf_edge *edge)
{
    return focus->all || focus->rank == (focus->side == WF_TRAIN ? edge->src_rank : edge->dst_rank);
}

/* --- the table -------------------------------------------------------------------------------- */

struct rank_total {
    uint64_t bytes, ops;
    uint32_t peers;
};

static void add_edge(struct rank_total *total, const struct wf_edge *edge)
{
    total->bytes += edge->bytes;
    total->ops += edge->op_count;
    total->peers++;
}

static void print_ranks(FILE *out, const struct rank_total *totals, uint32_t count,
                        enum wf_side side)
{
    char text[WF_BYTES_TEXT];
    uint32_t busiest = 0, idlest = 0;
    for (uint32_t r = 0; r < count; r++) {
        busiest = totals[r].bytes > totals[busiest].bytes ? r : busiest;
        idlest = totals[r].bytes < totals[idlest].bytes ? r : idlest;
    }
    for (uint32_t r = 0; r < count; r++) {
        if (count > RANK_LINES_MAX && r != busiest && r != idlest) {
            continue;
        }
        fprintf(out, "  %-5s %6" PRIu32 "  %5s  %10s  %8" PRIu64 "  %5" PRIu32 "%s\n",
                wf_side_name(side), r, side == WF_TRAIN ? "gives" : "gets",
                wf_bytes_format(totals[r].bytes, text), totals[r].ops, totals[r].peers,
                count <= RANK_LINES_MAX ? ""
                : r == busiest          ? "  the busiest"
                                        : "  the idlest");
    }
}

static void print_all_ranks(FILE *out, const struct wf_plan_job *job, const struct wf_plan *plan)
{
    struct rank_total *train = calloc(job->train_ranks, sizeof *train);
    struct rank_total *infer = calloc(job->infer_ranks, sizeof *infer);
    if (train != NULL && infer != NULL) {
        for (uint32_t e = 0; e < plan->edge_count; e++) {
            add_edge(&train[plan->edges[e].src_rank], &plan->edges[e]);
            add_edge(&infer[plan->edges[e].dst_rank], &plan->edges[e]);
        }
        fprintf(out, "\n  side    rank              bytes     boxes  peers\n");
        print_ranks(out, train, job->train_ranks, WF_TRAIN);
        print_ranks(out, infer, job->infer_ranks, WF_INFER);
    }
    free(train);
    free(infer);
}

static void print_rank_edges(FILE *out, const struct wf_plan *plan,
                             const struct wf_plan_focus *focus)
{
    char text[WF_BYTES_TEXT];
    fprintf(out, "\n  edges of %s rank %" PRIu32 "                bytes     boxes\n",
            wf_side_name(focus->side), focus->rank);
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        if (in_focus(focus, edge)) {
            fprintf(out, "  train %6" PRIu32 " -> infer %6" PRIu32 "  %10s  %8" PRIu32 "\n",
                    edge->src_rank, edge->dst_rank, wf_bytes_format(edge->bytes, text),
                    edge->op_count);
        }
    }
}

static void print_groups(FILE *out, const struct wf_plan_job *job)
{
    for (uint32_t g = 0; g < job->group_count; g++) {
        const struct wf_plan_job_group *group = &job->groups[g];
        uint32_t engines = group->rank_count / wf_recipe_ranks_per_engine(&group->recipe);
        char ranks[SIDE_TEXT];
        range_text(ranks, sizeof ranks, "rank", "ranks", group->first_rank, group->rank_count);
        fprintf(out, "%-9s  %s: %s", wf_side_name(group->side), group->spec, ranks);
        if (group->side == WF_INFER) {
            fprintf(out, ", %" PRIu32 " %s", engines, engines == 1 ? "engine" : "engines");
        }
        fprintf(out, "\n");
    }
}

/* In the largest unit of 2^10 that says it exactly, as budgets are typed. */
static const char *budget_text(uint64_t bytes, char text_out[WF_BYTES_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    for (; unit < 4 && bytes > 0 && bytes % 1024 == 0; unit++) {
        bytes /= 1024;
    }
    snprintf(text_out, WF_BYTES_TEXT, "%" PRIu64 "%s", bytes, units[unit]);
    return text_out;
}

/* Budgets are typed in whole MiB where they are not less than one. */
static uint64_t whole_mebibytes(uint64_t bytes)
{
    return (bytes + (1 << 20) - 1) >> 20 << 20;
}

/* What engines hold in a narrower type, and who casts it how often. */
static void print_casts(FILE *out, const struct wf_plan_job *job, const struct wf_plan *plan)
{
    char made[WF_BYTES_TEXT], once[WF_BYTES_TEXT], saved[WF_BYTES_TEXT], moving[WF_BYTES_TEXT],
        all[WF_BYTES_TEXT], budget[WF_BYTES_TEXT], more[WF_BYTES_TEXT];
    uint64_t enough = 0;
    uint32_t wanted_count = 0;
    struct wf_plan_cast *wanted = NULL;
    struct wf_error ignored;
    if (plan->cast_once_bytes + plan->cast_moving_bytes == 0) {
        return;
    }
    wf_plan_casts_wanted(&job->input, plan, &wanted, &wanted_count, &enough, &ignored);
    free(wanted);
    fprintf(out, "casts      over a network %s are narrower at the engines: ",
            wf_bytes_format(plan->cast_once_bytes + plan->cast_moving_bytes, all));
    if (plan->cast_once_bytes > 0) {
        fprintf(out,
                "%s of them are read from %s that origins cast once (%" PRIu32
                " %s), which saves casting %s; ",
                wf_bytes_format(plan->cast_once_bytes, once),
                wf_bytes_format(plan->cast_made_bytes, made), plan->cast_count,
                plan->cast_count == 1 ? "tensor" : "tensors",
                wf_bytes_format(plan->cast_once_bytes > plan->cast_made_bytes
                                    ? plan->cast_once_bytes - plan->cast_made_bytes
                                    : 0,
                                saved));
    }
    if (plan->cast_moving_bytes == 0 || plan->cast_once_bytes == 0) {
        fprintf(out, "%s cast while they move\n",
                plan->cast_moving_bytes == 0 ? "none are" : "all are");
    } else {
        fprintf(out, "%s are cast while they move\n",
                wf_bytes_format(plan->cast_moving_bytes, moving));
    }
    if (enough > job->input.policy.cast_bytes_max) {
        fprintf(
            out,
            "           not all that several read fits into --transit-budget, %s for each train "
            "rank; into %s it would\n",
            budget_text(job->input.policy.cast_bytes_max, budget),
            budget_text(whole_mebibytes(enough), more));
    } else if (plan->cast_moving_bytes > 0) {
        fprintf(out, "           those have one reader, or hardly a second one\n");
    }
}

void wf_plan_print(FILE *out, const struct wf_plan_job *job, const struct wf_plan *plan,
                   const struct wf_plan_facts *facts, const struct wf_plan_focus *focus)
{
    char hash[WF_HASH_TEXT], moved[WF_BYTES_TEXT], unique[WF_BYTES_TEXT], most[WF_BYTES_TEXT];
    wf_hash_format(plan->input_hash, hash);
    print_groups(out, job);
    fprintf(out, "plan       %s, %" PRIu32 " layout classes\n", hash, plan->class_count);
    fprintf(out,
            "moves      %s in %" PRIu64 " boxes over %" PRIu32
            " edges; %s of them unique, each leaves the trainer %.2f times\n",
            wf_bytes_format(plan->bytes_moved, moved), plan->op_count, plan->edge_count,
            wf_bytes_format(plan->bytes_unique, unique),
            plan->bytes_unique > 0 ? (double)plan->bytes_moved / (double)plan->bytes_unique : 0.0);
    fprintf(out,
            "egress     busiest rank gives %s, %.3f of the mean over %" PRIu32
            " %s a needed byte\n",
            wf_bytes_format(plan->egress_max, most), facts->egress_max_over_mean,
            plan->egress_ranks, plan->egress_ranks == 1 ? "rank that holds" : "ranks that hold");
    fprintf(out, "ingress    busiest rank gets %s, %.3f of the mean over %" PRIu32 " %s\n",
            wf_bytes_format(plan->ingress_max, most), facts->ingress_max_over_mean,
            plan->ingress_ranks, plan->ingress_ranks == 1 ? "rank" : "ranks");
    print_casts(out, job, plan);
    if (facts->link_gbps > 0) {
        fprintf(out,
                "bound      %.4g s: the busiest host of %" PRIu32 " ranks at %g Gbit/s each way\n",
                facts->bound_seconds, facts->per_host, facts->link_gbps);
    }
    if (job->cuts != NULL) {
        char first[WF_PLAN_CUTS_TEXT];
        wf_plan_cuts_first(job, first);
        fprintf(out,
                "quantised  blocks of %" PRIu32
                " matrices by engines, which assemble %s of them in one rank at most, because no "
                "train rank has them whole (%s)\n",
                job->cuts->count, wf_bytes_format(wf_plan_cuts_bytes(job), most), first);
    }
    for (uint32_t i = 0; i < job->lacks_count; i++) {
        char lacks[WF_MANIFEST_LACKS_TEXT];
        wf_manifest_lacks_format(&job->lacks[i], lacks);
        fprintf(out, "beware     %s\n", lacks);
    }
    fprintf(out, "proof      %s\n", facts->proof);
    fprintf(out, "time       plan %.4f s, layouts %.4f s, proof %.4f s\n", facts->build_seconds,
            facts->derive_seconds, facts->prove_seconds);
    if (focus->all) {
        print_all_ranks(out, job, plan);
    } else {
        print_rank_edges(out, plan, focus);
    }
}

/* --- explain ---------------------------------------------------------------------------------- */

/* One side of a box within its tensor, in elements. */
struct side_box {
    uint64_t first;
    uint32_t axis_count;
    struct {
        uint64_t count;
        int64_t step;
    } axes[WF_AXES_MAX];
};

/* Axes that follow one another closely on this side are one, whatever the other side does. */
static struct side_box side_of(const struct wf_box *box, bool dst, uint64_t elem_bytes)
{
    struct side_box side = {.first = (dst ? box->dst_offset : box->src_offset) / elem_bytes};
    for (uint32_t a = 0; a < box->axis_count; a++) {
        uint64_t count = box->axes[a].count;
        int64_t step = (dst ? box->axes[a].dst_step : box->axes[a].src_step) / (int64_t)elem_bytes;
        if (side.axis_count > 0 && side.axes[side.axis_count - 1].step == (int64_t)count * step) {
            count *= side.axes[--side.axis_count].count;
        }
        side.axes[side.axis_count].count = count;
        side.axes[side.axis_count++].step = step;
    }
    return side;
}

/* "rows 0..511"; "rows 0..4095, columns 0..1023"; "4 blocks of 128 rows, 192 rows apart, from row
 * 0"; "elements 0..31"; else runs. */
static void side_text(const struct side_box *side, const struct wf_tensor *tensor,
                      char text_out[SIDE_TEXT])
{
    uint64_t width = tensor->ndim == 2 && tensor->shape[1] > 0 ? tensor->shape[1] : 1;
    uint64_t row = side->first / width, column = side->first % width;
    uint32_t last = side->axis_count > 0 ? side->axis_count - 1 : 0;
    uint64_t run = side->axis_count > 0 && side->axes[last].step == 1 ? side->axes[last].count : 1;
    uint32_t outer = side->axis_count > 0 && side->axes[last].step == 1 ? last : side->axis_count;
    bool whole_rows = tensor->ndim == 2 && column == 0 && run % width == 0;
    if (outer == 0 && (tensor->ndim != 2 || whole_rows)) {
        range_text(text_out, SIDE_TEXT, tensor->ndim == 2 ? "row" : "element",
                   tensor->ndim == 2 ? "rows" : "elements", row, run / width);
    } else if (tensor->ndim == 2 && column + run <= width &&
               (outer == 0 || (outer == 1 && side->axes[0].step == (int64_t)width))) {
        int used = range_text(text_out, SIDE_TEXT, "row", "rows", row,
                              outer == 0 ? 1 : side->axes[0].count);
        used += snprintf(text_out + used, SIDE_TEXT - (size_t)used, ", ");
        range_text(text_out + used, SIDE_TEXT - (size_t)used, "column", "columns", column, run);
    } else if (outer == 1 && whole_rows && side->axes[0].step % (int64_t)width == 0) {
        snprintf(text_out, SIDE_TEXT,
                 "%" PRIu64 " blocks of %" PRIu64 " rows, %" PRId64
                 " rows apart, from row %" PRIu64,
                 side->axes[0].count, run / width, side->axes[0].step / (int64_t)width, row);
    } else {
        int used = snprintf(text_out, SIDE_TEXT, "runs of %" PRIu64 " from element %" PRIu64, run,
                            side->first);
        for (uint32_t a = outer; a-- > 0 && used < SIDE_TEXT;) {
            used += snprintf(text_out + used, SIDE_TEXT - (size_t)used,
                             ", %" PRIu64 " times %" PRId64 " apart", side->axes[a].count,
                             side->axes[a].step);
        }
    }
}

/* The casts of a job that has all the memory it wants. */
struct wanted_casts {
    struct wf_plan_cast *casts;
    uint32_t count;
};

static const char *why_moving(const struct wanted_casts *wanted, const struct wf_edge *edge,
                              const struct wf_op *op, enum wf_dtype to)
{
    for (uint32_t c = 0; c < wanted->count; c++) {
        const struct wf_plan_cast *cast = &wanted->casts[c];
        if (cast->src_rank == edge->src_rank && cast->tensor == op->src_tensor && cast->to == to) {
            return "while it moves, for it does not fit into --transit-budget";
        }
    }
    return "while it moves, for it has one reader, or hardly a second one";
}

static void print_op(FILE *out, const struct wf_plan_job *job, const struct wf_plan *plan,
                     const struct wanted_casts *wanted, const struct wf_edge *edge,
                     const struct wf_op *op)
{
    const struct wf_layout *from_layout = layout_of(job, WF_TRAIN, edge->src_rank);
    const struct wf_layout *to_layout = layout_of(job, WF_INFER, edge->dst_rank);
    const struct wf_tensor *src = &from_layout->tensors[op->src_tensor];
    const struct wf_tensor *dst = &to_layout->tensors[op->dst_tensor];
    char src_text[SIDE_TEXT], dst_text[SIDE_TEXT], bytes[WF_BYTES_TEXT];
    struct side_box from = side_of(&op->box, false, wf_dtype_bytes(src->dtype));
    struct side_box to = side_of(&op->box, true, wf_dtype_bytes(dst->dtype));
    side_text(&from, src, src_text);
    side_text(&to, dst, dst_text);
    fprintf(out,
            "  train rank %" PRIu32 " %s [%s]\n    -> infer rank %" PRIu32 " %s [%s]: %" PRIu64
            " elements, %s",
            edge->src_rank, src->name, src_text, edge->dst_rank, dst->name, dst_text,
            op->box.elements,
            wf_bytes_format(op->box.elements * wf_dtype_bytes(dst->dtype), bytes));
    if (src->dtype != dst->dtype) {
        const struct wf_plan_cast *cast =
            wf_plan_cast_read(plan, from_layout, to_layout, edge->src_rank, op, NULL);
        fprintf(out, ", cast from %s to %s %s", wf_dtype_name(src->dtype),
                wf_dtype_name(dst->dtype),
                cast != NULL ? "once by the origin, for all who read it so"
                : wf_dtype_bytes(dst->dtype) < wf_dtype_bytes(src->dtype)
                    ? why_moving(wanted, edge, op, dst->dtype)
                    : "by the reader");
    }
    fprintf(out, "\n");
}

static bool is_prepared(const struct wf_plan_job *job, const struct wf_edge *edge,
                        const struct wf_op *op)
{
    return wf_prepare_is_made(&layout_of(job, WF_TRAIN, edge->src_rank)->tensors[op->src_tensor]);
}

/* Why the origin makes what is read, and what that saves. */
static void print_prepared(FILE *out, const struct wf_plan_job *job, uint32_t param,
                           uint64_t elements)
{
    const struct wf_variant_pair *pair = wf_model_pair(job->model, param);
    char made[WF_BYTES_TEXT], matrix[WF_BYTES_TEXT];
    if (pair == NULL || pair->matrix == param) {
        fprintf(out,
                "prepared by the origin: the trainer holds it less 1, which it adds in f32; ops "
                "move and cast\n");
    } else if (pair->scales == param) {
        fprintf(out, "prepared by the origin with the codes: one for each block of %s by rule %s\n",
                job->model->params[pair->matrix].name, wf_quant_name(job->model->variants->rule));
    } else {
        const struct wf_param *of = &job->model->params[pair->matrix];
        fprintf(
            out,
            "prepared by the origin: codes of %s by rule %s, made once for all engines, because "
            "%s move then instead of %s in %s\n",
            of->name, wf_quant_name(job->model->variants->rule), wf_bytes_format(elements, made),
            wf_bytes_format(elements * wf_dtype_bytes(of->dtype), matrix),
            wf_dtype_name(of->dtype));
    }
}

void wf_plan_explain(FILE *out, const struct wf_plan_job *job, const struct wf_plan *plan,
                     uint32_t param, const struct wf_plan_focus *focus)
{
    const struct wf_param *named = &job->model->params[param];
    struct wanted_casts wanted = {0};
    uint64_t count = 0, elements = 0, budget = 0;
    struct wf_error ignored;
    bool prepared = false;
    wf_plan_casts_wanted(&job->input, plan, &wanted.casts, &wanted.count, &budget, &ignored);
    fprintf(out, "%s, %s [", named->name, wf_dtype_name(named->dtype));
    for (uint32_t i = 0; i < named->ndim; i++) {
        fprintf(out, "%s%" PRIu64, i > 0 ? ", " : "", named->shape[i]);
    }
    fprintf(out, "]\n");
    for (uint32_t e = 0; e < plan->edge_count; e++) {
        const struct wf_edge *edge = &plan->edges[e];
        for (uint32_t i = 0; i < edge->op_count && in_focus(focus, edge); i++) {
            if (edge->ops[i].param == param) {
                print_op(out, job, plan, &wanted, edge, &edge->ops[i]);
                prepared = prepared || is_prepared(job, edge, &edge->ops[i]);
                count++;
                elements += edge->ops[i].box.elements;
            }
        }
    }
    free(wanted.casts);
    if (count == 0) {
        fprintf(out, "no box of it moves\n");
    } else {
        fprintf(out, "%" PRIu64 " %s, %" PRIu64 " elements: the parameter %.4g times\n", count,
                count == 1 ? "box" : "boxes", elements, (double)elements / (double)named->elements);
    }
    const struct wf_variant_pair *pair = wf_model_pair(job->model, param);
    if (prepared) {
        print_prepared(out, job, param, elements);
    }
    bool cut = wf_plan_cuts_explain(out, job, param);
    if (!prepared && !cut && pair != NULL && pair->matrix == param) {
        fprintf(out, "engines in fp8 have it as %s and %s\n", job->model->params[pair->codes].name,
                job->model->params[pair->scales].name);
    }
}
