/* side_private.h - between the files side*.c. */
#ifndef WEFT_TOOLS_COMPARE_SIDE_PRIVATE_H
#define WEFT_TOOLS_COMPARE_SIDE_PRIVATE_H

#include "tools/compare/side.h"

/* Matches the ranks' files with their layouts and makes `params` and `sources`. */
enum wf_status wf_side_index(struct wf_compare_side *side, struct wf_error *error);
/* The numbers in a name: "model.layers.3.mlp.experts.7.x" has layer 3 and expert 7. */
void wf_side_numbers(const char *name, uint32_t *layer_out, uint32_t *expert_out);

#endif
