/* plan.h - the planner: pure, deterministic, integers only.
 *
 * plan(source layouts, target layouts, topology) -> edges. An edge is the ordered list of ops
 * between one train rank and one infer rank. Layouts are intersected once per pair of layout
 * classes; members are assigned afterwards. Of several train ranks that hold the same bytes the one
 * is chosen that makes the largest egress smallest (same host first, ties by rank number). Each
 * needed byte of each target tensor is written by exactly one op, or is fill; wf_plan_prove shows
 * that without trusting anything the planner did.
 *
 * Plans name (tensor, offset), never addresses.
 */
#ifndef WEFT_ACTORS_PLAN_H
#define WEFT_ACTORS_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "models/config.h"
#include "models/hash.h"
#include "models/layout.h"
#include "models/piece.h"
#include "runtime/status.h"

enum { WF_PLANNER_VERSION = 3 };
enum wf_side { WF_TRAIN, WF_INFER };
const char *wf_side_name(uint64_t side); /* "train", "infer" */

enum wf_op_kind { WF_OP_MOVE /* delta and adapter payloads are reserved */ };

/* One box moved and cast from a source tensor to a target tensor. */
struct wf_op {
    uint32_t param;
    uint32_t src_tensor, dst_tensor; /* indices in the layouts of the edge's two ranks */
    uint16_t kind;                   /* enum wf_op_kind */
    uint16_t value_rule;             /* 0: cast src dtype to dst dtype */
    struct wf_box box;               /* offsets within the two tensors */
};

struct wf_plan_cast;

struct wf_edge {
    uint32_t src_rank, dst_rank; /* numbers within the train and infer sides */
    uint32_t op_count;
    const struct wf_op *ops; /* in the order both ends count them; may be shared by edges */
    uint64_t bytes;          /* target dtype, repeats included */
    struct wf_hash hash;     /* of the ordered ops and both rank numbers */
};

struct wf_plan_member {
    enum wf_side side;
    uint32_t rank;
    uint32_t engine;                /* infer: which engine, numbered over all groups */
    const struct wf_layout *layout; /* borrows; equal layouts may be one pointer or several */
    uint32_t host;                  /* small number: equal means one host */
    /* Infer: the layout by the engine's rule where `layout` has the same tensors with other experts
     * in their slots (a placement table); NULL: `layout` is by rule. Borrows. */
    const struct wf_layout *base;
};

/* What the job says about casts (actors/plan_casts.h); part of the input hash. Zeroed: every cast
 * is made while its bytes move. */
struct wf_plan_policy {
    uint64_t cast_bytes_max; /* of one train rank: what it prepares and casts ahead, together */
    bool near_maps; /* readers on a train rank's host see its memory and cast it themselves */
};

struct wf_plan_input {
    const struct wf_model *model;
    const struct wf_plan_member *members; /* train ranks 0..T-1, then infer ranks 0..I-1 */
    uint32_t member_count;
    struct wf_plan_policy policy;
};

struct wf_plan {
    struct wf_hash
        input_hash; /* planner version, policy, model, every member's (side, rank, layout, host) */
    struct wf_edge *edges; /* sorted by (dst_rank, src_rank) */
    uint32_t edge_count;
    uint64_t op_count; /* over all edges */
    uint64_t bytes_moved, bytes_unique;
    uint64_t egress_max, ingress_max;     /* bytes of the busiest rank of each side */
    uint32_t egress_ranks, ingress_ranks; /* train ranks that hold a needed byte; infer ranks */
    uint32_t class_count;
    const struct wf_plan_cast *casts; /* by (src_rank, tensor, dtype); actors/plan_casts.h */
    uint32_t cast_count;
    uint64_t cast_made_bytes; /* that train ranks cast once */
    /* Of ops that narrow, target bytes, repeats included: read from there; cast while they move. */
    uint64_t cast_once_bytes, cast_moving_bytes;
    void *memory;
    uint32_t references;  /* wf_plan_free drops one; any thread */
    struct wf_plan *base; /* owns the ops of edges that are as in it; NULL: a plan by rule */
};

/* Gives *plan_out (all edges). Refusals (INVALID, UNSUPPORTED) name parameter, ranks and box: a
 * parameter with no source, two sources that show one box differently typed, a cast that does not
 * exist. */
enum wf_status wf_plan_build(const struct wf_plan_input *input, struct wf_plan **plan_out,
                             struct wf_error *error);
/* Expert placement. A plan of members with tables is defined as the plan of their layouts by rule,
 * in which the ops of the parameters that stand elsewhere are planned again, edge by edge, for the
 * ranks concerned alone: so whoever has that first plan makes any table's from it, cheaply, and who
 * joins later gets the same. `base` is the plan of `input` with every layout by rule (its hash is
 * wf_plan_base_hash) and is held by the result; wf_plan_build does both. Refuses (INVALID) a table
 * that changes more than which parameters stand in a rank's slots. */
enum wf_status wf_plan_update(const struct wf_plan_input *input, struct wf_plan *base,
                              struct wf_plan **plan_out, struct wf_error *error);
struct wf_hash wf_plan_base_hash(const struct wf_plan_input *input);
struct wf_plan *wf_plan_hold(struct wf_plan *plan);
void wf_plan_free(struct wf_plan *plan);
/* The input hash alone (what agreement compares first). */
struct wf_hash wf_plan_input_hash(const struct wf_plan_input *input);
/* Sum of the hashes of a rank's edges (modulo 2^64 per half): out-edges of a train rank, in-edges
 * of an infer rank. The totals of both sides are equal if the plans are. */
struct wf_hash wf_plan_edge_sum(const struct wf_plan *plan, enum wf_side side, uint32_t rank);

/* The coverage proof: OK if every byte of every target tensor is written exactly once, or is fill,
 * derived or keep, and every op reads inside its source what the target's pieces say it should.
 * MISMATCH names the first wrong box. */
enum wf_status wf_plan_prove(const struct wf_plan_input *input, const struct wf_plan *plan,
                             struct wf_error *error);
/* Of a plan whose base was proven: the edges into ranks that have a table, and that all others are
 * the base's own. */
enum wf_status wf_plan_prove_update(const struct wf_plan_input *input, const struct wf_plan *plan,
                                    struct wf_error *error);

#endif
