/* fsdp.h - what fsdp.c and fsdp_flat.c share. */
#ifndef WEFT_MODELS_ENGINES_FSDP_H
#define WEFT_MODELS_ENGINES_FSDP_H

#include "models/engines/engine.h"

enum { WF_FSDP_SHARD, WF_FSDP_FLAT, WF_FSDP_ALIGN }; /* recipe->own */

/* wf_engine.finish: FSDP1's flat parameters, where the recipe asks for them. */
enum wf_status wf_fsdp_finish(const struct wf_model *model, const struct wf_recipe *recipe,
                              uint32_t rank, struct wf_layout *whole, struct wf_layout **layout_out,
                              struct wf_error *error);

#endif
