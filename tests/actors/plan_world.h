/* plan_world.h - what the planner's tests stand on: ranks of real recipes or hand-made layouts, and
 * a mover that knows nothing but boxes. */
#ifndef WEFT_TESTS_ACTORS_PLAN_WORLD_H
#define WEFT_TESTS_ACTORS_PLAN_WORLD_H

#include "actors/plan.h"
#include "models/layout_private.h"
#include "models/recipe.h"

enum { WORLD_GROUPS_MAX = 4, WORLD_MEMBERS_MAX = 256 };

struct world {
    struct wf_model *model;
    struct wf_layout *layouts[WORLD_MEMBERS_MAX];
    struct wf_plan_member members[WORLD_MEMBERS_MAX];
    struct wf_plan_input input;
};

struct world_spec {
    const char *config; /* JSON */
    const char *train;
    const char *infer[WORLD_GROUPS_MAX];
    uint32_t per_host; /* 0: sides on hosts of their own; else ranks per host, counted alike on
                          both sides, so that train and infer ranks share hosts */
};

/* Makes ranks and layouts. False, with error, if a recipe or layout is refused. */
bool world_make(const struct world_spec *spec, struct world *world, struct wf_error *error);
void world_free(struct world *world);

/* A config of one family ("qwen3", "qwen2", "llama") with these sizes. */
struct world_sizes {
    const char *family;
    unsigned hidden, layers, vocab, query_heads, kv_heads, head_dim, intermediate;
    bool tied;
    const char *dtype;
};
void world_config(const struct world_sizes *sizes, char *text, size_t size);

/* Hand-made: a model of matrices [rows, columns], and layouts of rectangles. */
struct hand_param {
    const char *name;
    uint64_t rows, columns;
};
struct hand_piece {
    uint32_t tensor; /* pieces of one tensor stand together */
    enum wf_dtype dtype;
    uint64_t rows, columns; /* of the tensor */
    uint32_t param;         /* UINT32_MAX: fill */
    uint64_t param_row, param_column, tensor_row, tensor_column, high, wide;
};
void hand_model(struct world *world, const struct hand_param *params, uint32_t count);
/* Adds a rank of the side; train ranks first. Rows end with wide == 0. */
void hand_rank(struct world *world, enum wf_side side, uint32_t host,
               const struct hand_piece *pieces);
/* Adds a rank whose layout was built with wf_build_*. */
void hand_layout(struct world *world, enum wf_side side, uint32_t host, struct wf_build *build);

/* Moves numbered elements through the plan: every source place that shows element e of parameter p
 * holds a value made from (p, e), everything else holds rubbish. Then every target place must hold
 * the value of the element that its layout shows, every fill and the rest what they held before.
 * The types of both sides must have equal sizes. Gives the number of wrong elements and puts a
 * sentence about the first into `first_wrong`. */
uint64_t world_move(const struct world *world, const struct wf_plan *plan, char *first_wrong,
                    size_t size);
/* How many places of data the target layouts of the world have. */
uint64_t world_elements(const struct world *world);

#endif
