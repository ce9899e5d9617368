/* plan_parts.h - what the planner's own files share; nobody else includes it.
 *
 * The steps, one file each, in order:
 *   plan_classes.c  check the input, group members into layout classes, index pieces by parameter
 *   plan_atoms.c    cut what the train classes show of a parameter into disjoint atoms, each with
 *                   all the places that hold it
 *   plan_units.c    meet atoms with the pieces of each infer class: a unit is one box of one target
 *                   tensor that can come from one group of train classes
 *   plan_balance.c  how many bytes each train class gives to each group (a flow), and from that the
 *                   smallest possible load of the busiest rank
 *   plan_assign.c   one train rank for each unit of each infer rank, within those loads
 *   plan_edges.c    boxes, merged and hashed, by pair of ranks
 *   plan_casts.c    what a train rank casts once for several readers
 * and, for members with a table of experts, plan_update.c: the edges that differ, made by the same
 * steps from what of the layouts is concerned.
 *
 * Everything lives in one arena that is freed when the plan was made. An arena that runs out of
 * memory remembers it; its functions then give NULL.
 */
#ifndef WEFT_ACTORS_PLAN_PARTS_H
#define WEFT_ACTORS_PLAN_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/plan.h"
#include "models/piece.h"

/* --- memory ---------------------------------------------------------------------------------- */
struct wf_plan_block;
struct wf_plan_arena {
    struct wf_plan_block *blocks;
    size_t used, size; /* of the newest block */
    bool failed;
};
/* Zeroed memory; NULL when there is none (and `failed` is set). `count` 0 gives a valid pointer. */
void *wf_plan_alloc(struct wf_plan_arena *arena, size_t count, size_t bytes_each);
/* The array with room for `needed` elements: itself, or a copy of at least twice the size. */
void *wf_plan_grow(struct wf_plan_arena *arena, void *array, uint32_t *capacity, uint64_t needed,
                   size_t bytes_each);
/* Forgets all that was handed out, and keeps a block for what comes. */
void wf_plan_arena_reset(struct wf_plan_arena *arena);
void wf_plan_arena_free(struct wf_plan_arena *arena);

/* --- sets of parameter elements -------------------------------------------------------------- */
/* A set is a nest whose tensor side repeats the parameter side (elem_bytes 1, tensor_offset =
 * param_first, tensor_step = param_step), axes falling, normalised: the same set written the same
 * way is equal bytes. Sets of one parameter only are compared. */
struct wf_plan_sets {
    struct wf_nest *nests;
    uint32_t count, capacity;
    struct wf_plan_arena *arena;
};
struct wf_nest wf_plan_set_of(const struct wf_nest *nest); /* repeats dropped */
uint64_t wf_plan_set_end(const struct wf_nest *set);       /* 1 + its last element */
bool wf_plan_set_equal(const struct wf_nest *a, const struct wf_nest *b);
/* Append a and b, or what of a is not in b, as disjoint sets; `elements` is the parameter's. */
enum wf_status wf_plan_set_meet(const struct wf_nest *a, const struct wf_nest *b,
                                struct wf_plan_sets *out, struct wf_error *error);
enum wf_status wf_plan_set_minus(const struct wf_nest *a, const struct wf_nest *b,
                                 uint64_t elements, struct wf_plan_sets *out,
                                 struct wf_error *error);
uint64_t wf_plan_sets_elements(const struct wf_plan_sets *sets);
/* "elements 0..4095 (rows 0..3 of [8, 1024])" */
enum { WF_PLAN_SET_TEXT = 192 };
void wf_plan_set_format(const struct wf_nest *set, const struct wf_param *param,
                        char text_out[WF_PLAN_SET_TEXT]);

/* --- classes --------------------------------------------------------------------------------- */
struct wf_plan_class {
    const struct wf_layout *layout;
    const uint32_t *ranks; /* ascending */
    uint32_t rank_count;
    uint32_t *order; /* data pieces by parameter, then by index */
    uint32_t piece_count;
};

/* A piece of one of a side's classes. */
struct wf_plan_shown {
    uint32_t class, piece;
};

/* All data pieces of a side: those of parameter p are shown[first[p]] .. shown[first[p + 1] - 1],
 * by class, then by index. */
struct wf_plan_index {
    uint32_t *first;
    struct wf_plan_shown *shown;
};

/* One place where an atom stands on the train side. */
struct wf_plan_holder {
    uint32_t src_class, piece;
};

struct wf_plan_atom {
    struct wf_nest set;
    uint64_t elements;
    const struct wf_plan_holder *holders; /* one a class, by class */
    uint32_t holder_count;
    uint32_t group;
};

/* Train classes that hold the same atoms, ascending. */
struct wf_plan_group {
    const uint32_t *classes;
    uint32_t class_count, rank_count;
    uint64_t demand; /* bytes, over all infer ranks */
    uint64_t *quota; /* of each class; sums to demand */
};

/* A box of a target tensor of an infer class. Its bytes go to each rank of the class. */
struct wf_plan_unit {
    struct wf_nest nest; /* parameter -> target tensor; the outermost axis may be cut */
    uint64_t bytes;      /* target dtype, repeats included */
    uint32_t dst_class, dst_tensor, param;
    uint32_t atom;
};

/* Elements [low, high) of a unit's axis 0 go from src_rank to dst_rank. */
struct wf_plan_task {
    uint32_t dst_rank, src_rank, unit;
    uint64_t low, high;
};

struct wf_plan_build {
    const struct wf_plan_input *input;
    struct wf_plan_arena arena;
    struct wf_plan_arena scratch; /* for what is needed of one parameter; reset after each */
    /* What ranks hold is listed, and nobody reads it: an atom's holders have one type, those of
     * another have an atom of their own; what a rank makes for itself counts as any other, what it
     * receives only for that does not. */
    bool lists_only;
    uint32_t train_count, infer_count; /* ranks; members[train_count + r] is infer rank r */
    struct wf_plan_class *src, *dst;
    uint32_t src_count, dst_count;
    struct wf_plan_index src_index, dst_index;
    uint32_t *src_class_of, *dst_class_of; /* by rank */
    uint32_t *atom_first;                  /* of each parameter; param_count + 1 */
    struct wf_plan_atom *atoms;
    uint32_t atom_count, atom_capacity;
    struct wf_plan_group *groups;
    uint32_t group_count, group_capacity;
    struct wf_plan_unit *units; /* by class, then (tensor, offset) */
    uint32_t unit_count, unit_capacity;
    uint32_t *unit_first; /* of each infer class; dst_count + 1 */
    uint64_t *class_load; /* bytes that each train class gives */
    uint64_t load_max;    /* the busiest rank's, as small as cutting can make it */
    struct wf_plan_task *tasks;
    uint32_t task_count, task_capacity;
};

/* wf_plan_build where no member has a table of experts: all of it. */
enum wf_status wf_plan_by_rule(const struct wf_plan_input *input, struct wf_plan **plan_out,
                               struct wf_error *error);
enum wf_status wf_plan_classes(struct wf_plan_build *build, struct wf_error *error);
/* All members are sources; there are no targets. */
enum wf_status wf_plan_class_sources(struct wf_plan_build *build, struct wf_error *error);
enum wf_status wf_plan_atoms(struct wf_plan_build *build, struct wf_error *error);
enum wf_status wf_plan_units(struct wf_plan_build *build, struct wf_error *error);
/* Canonical bytes in target dtypes that some target needs. */
enum wf_status wf_plan_unique(struct wf_plan_build *build, uint64_t *bytes_out,
                              struct wf_error *error);
enum wf_status wf_plan_balance(struct wf_plan_build *build, struct wf_error *error);
enum wf_status wf_plan_assign(struct wf_plan_build *build, struct wf_error *error);
enum wf_status wf_plan_edges(struct wf_plan_build *build, struct wf_plan *plan,
                             struct wf_error *error);

/* plan_casts.c: what is cast once, of a plan whose edges are made; the totals, of one whose casts
 * are there too. */
enum wf_status wf_plan_choose_casts(const struct wf_plan_input *input, struct wf_plan *plan,
                                    struct wf_error *error);
void wf_plan_count_casts(const struct wf_plan_input *input, struct wf_plan *plan);

/* Order of the ops of one edge: target tensor, then offset; of two that stand alike neither is. */
int wf_plan_compare_ops(const void *a, const void *b);
/* Bytes and hash, from ranks and ops; dst: the target's layout. */
void wf_plan_finish_edge(struct wf_edge *edge, const struct wf_layout *dst);

/* Cuts sets that may overlap into disjoint ones. `cover` says for each result which of the inputs
 * hold it. Inputs are different from one another. */
struct wf_plan_cover {
    const uint32_t *inputs;
    uint32_t input_count;
};
enum wf_status wf_plan_partition(struct wf_plan_arena *arena, const struct wf_nest *inputs,
                                 uint32_t input_count, uint64_t elements, struct wf_plan_sets *out,
                                 struct wf_plan_cover **covers_out, struct wf_error *error);
enum wf_status wf_plan_no_memory(struct wf_error *error);

#endif
