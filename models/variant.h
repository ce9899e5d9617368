/* variant.h - a job's model of which some groups hold the weights quantised.
 *
 * A trainer holds bf16 matrices where an engine holds e4m3 codes and scales. Both are parameters:
 * the matrix, its codes and its scales are three of one inventory, the last two by a rule (quant.h)
 * that the whole job shares. Whoever plans, moves, digests or proves needs to know nothing of it;
 * only who makes codes from a matrix does (models/prepare.h).
 *
 * A job's model has two views, each an ordinary model: `plain`, the config without its
 * quantization_config, and `quantised`, the config with fp8 as the rule has it: with scales of
 * blocks, or of rows. The inventory of the job's model
 * is plain's, then, by the order of the quantised view, those of its parameters that plain has not
 * in the same dtype and shape, named "NAME@RULE" ("...q_proj.weight@vllm",
 * "...q_proj.weight_scale_inv@vllm"). Trainers have the plain view; an engine has the one that its
 * recipe's `quant` says: a rule's name, `none`, or nothing: as the config. The checkpoint (hf) has
 * the config's.
 *
 * Pure; read-only after it was made.
 */
#ifndef WEFT_MODELS_VARIANT_H
#define WEFT_MODELS_VARIANT_H

#include <stdbool.h>
#include <stdint.h>

#include "models/config.h"
#include "models/quant.h"
#include "models/recipe.h"
#include "runtime/status.h"

enum {
    /* Elements of a row that has one scale: what assemble.c makes of whole rows fits its tiles. */
    WF_VARIANT_ROW_MAX = 1 << 20,
};

/* A matrix and what stands for it in the quantised view: indices into the job's inventory. */
struct wf_variant_pair {
    uint32_t matrix, codes, scales;
};

struct wf_variants {
    enum wf_quant rule;
    struct wf_model *plain, *quantised; /* owned by the job's model */
    uint32_t plain_count;               /* parameters 0 .. plain_count - 1 are plain's */
    uint32_t *of_quantised;             /* job's index of each parameter of `quantised` */
    struct wf_variant_pair *pairs;      /* by rising `matrix` */
    uint32_t pair_count;
    uint32_t *pair_of;     /* of each parameter behind plain's: index into `pairs` */
    bool config_quantised; /* which of the views is the config's */
};

/* The job's model for a config's model and the recipes of its groups (parsed without a model).
 * Where no group asks for what the config does not say already and no trainer's view differs from
 * the config's, a copy of it without variants. The rule is the one that SPECs name; where none
 * does, `channel_div` for a config with a scale for each row, `deepseek` for others. INVALID: two
 * groups with different rules. UNSUPPORTED: the family has no rows for fp8 scales; the config is
 * quantised in another way; rows of more than WF_VARIANT_ROW_MAX elements with one scale. */
enum wf_status wf_model_for_job(const struct wf_model *config,
                                const struct wf_recipe *const *recipes, uint32_t recipe_count,
                                struct wf_model **model_out, struct wf_error *error);
/* The view that the config says: what its checkpoint holds. */
const struct wf_model *wf_model_config_view(const struct wf_model *model);
/* The view in which a recipe's layouts are derived: the model itself where it has no variants. */
const struct wf_model *wf_model_view(const struct wf_model *model, const struct wf_recipe *recipe);
/* The job's index of a parameter of a view. */
uint32_t wf_model_of_view(const struct wf_model *model, const struct wf_model *view,
                          uint32_t param);
/* The pair of which a parameter of the job's inventory is matrix, codes or scales, or NULL. */
const struct wf_variant_pair *wf_model_pair(const struct wf_model *model, uint32_t param);
/* For wf_model_free. */
void wf_variants_free(struct wf_variants *variants);

#endif
