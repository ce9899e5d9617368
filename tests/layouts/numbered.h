/* numbered.h - ranks of both sides whose elements are numbers, moved through a real plan by the
 * real copy functions, and checked place by place. What trainers prepare they prepare, what
 * targets assemble they quantise; codes and scales are compared with those of the whole matrix
 * (whole.h).
 *
 * The number of an element follows from its parameter and its index alone, and is exact in every
 * float type of 16 bits or more, so that casts change its type and not its meaning. */
#ifndef WEFT_TESTS_LAYOUTS_NUMBERED_H
#define WEFT_TESTS_LAYOUTS_NUMBERED_H

#include "actors/plan.h"
#include "models/assemble.h"
#include "models/prepare.h"
#include "tests/layouts/whole.h"

enum { NUMBERED_MEMBERS_MAX = 512, NUMBERED_GROUPS_MAX = 4, NUMBERED_WRONG_MAX = 512 };

struct numbered {
    const struct wf_model *model;
    struct wf_recipe train, infer[NUMBERED_GROUPS_MAX];
    uint32_t infer_count;
    struct wf_plan_member members[NUMBERED_MEMBERS_MAX];
    struct wf_layout *layouts[NUMBERED_MEMBERS_MAX]; /* what members plan with */
    struct wf_layout *own[NUMBERED_MEMBERS_MAX];     /* train: of the rank's own tensors */
    struct wf_prepare *prepare[NUMBERED_MEMBERS_MAX];
    struct wf_layout *planned[NUMBERED_MEMBERS_MAX]; /* infer: with what is assembled, or NULL */
    struct wf_assemble *assemble[NUMBERED_MEMBERS_MAX];
    struct wf_cuts *cuts;
    struct whole *wholes;    /* by matrix: quantised as a whole, when it was first wanted */
    enum wf_dtype *less_one; /* by parameter: in what type train ranks hold it less 1; or NONE */
    struct wf_plan_input input;
};

/* Derives the layouts of all ranks of the recipes. A refusal gives its status and sentence. End
 * with numbered_fini in any case. */
enum wf_status numbered_make(struct numbered *world, const struct wf_model *model,
                             const struct wf_recipe *train, const struct wf_recipe *infer,
                             uint32_t infer_count, struct wf_error *error);
void numbered_fini(struct numbered *world);

/* Each false with a sentence in `wrong`.
 *
 * Tiles: every place of every rank's tensors is shown by one piece or fill; the train ranks hold
 * every element of a parameter equally often, and as often as the recipe's sizes say; every engine
 * holds every element of each parameter that it does not declare to be without. */
bool numbered_tiles(const struct numbered *world, char wrong[NUMBERED_WRONG_MAX]);
/* Moves: every element of every target arrives once and is the right one; fills hold their byte;
 * nothing is written where nothing belongs. */
bool numbered_moves(const struct numbered *world, const struct wf_plan *plan,
                    char wrong[NUMBERED_WRONG_MAX]);
/* 16 bits that are a number of bf16 below 2 in size and mean the same in f32; types of one byte get
 * eight of them, types that are never cast all. */
uint64_t numbered_number(uint32_t param, uint64_t element, enum wf_dtype dtype);
/* What a target in `dtype` must have: of what trainers hold less 1 the number is what they hold. */
uint64_t numbered_wanted(const struct numbered *world, uint32_t param, uint64_t element,
                         enum wf_dtype dtype);
/* Elements that two nests of a parameter both show. */
uint64_t numbered_common(const struct wf_nest *a, const struct wf_nest *b);
/* Elements that the moves check. */
uint64_t numbered_elements(const struct numbered *world);

#endif
