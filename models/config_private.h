/* config_private.h - between config.c (keys to sizes) and config_inventory.c (sizes to names). */
#ifndef WEFT_MODELS_CONFIG_PRIVATE_H
#define WEFT_MODELS_CONFIG_PRIVATE_H

#include "models/config.h"

/* Limits of a configuration, so that no product of sizes can overflow unseen. */
#define WF_MODEL_SIZE_MAX ((uint64_t)1 << 31)     /* any one size */
#define WF_MODEL_ELEMENTS_MAX ((uint64_t)1 << 56) /* of all parameters together */

/* Fills params, names and hash from the sizes that *model already holds. */
enum wf_status wf_model_build(struct wf_model *model, struct wf_error *error);

#endif
