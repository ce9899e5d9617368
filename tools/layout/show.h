/* show.h - one rank's layout for people and for scripts. */
#ifndef WEFT_TOOLS_LAYOUT_SHOW_H
#define WEFT_TOOLS_LAYOUT_SHOW_H

#include <json-c/json.h>
#include <stdint.h>
#include <stdio.h>

#include "models/config.h"
#include "models/layout.h"
#include "models/recipe.h"

/* Tensors with their pieces: "parameter[first] x count" for runs, axes as
 * count(step in the parameter, step in the tensor) otherwise. `recipe` NULL: the layout is a
 * manifest's, and of `model` only names of parameters are asked. */
void wf_layout_print(FILE *out, const struct wf_model *model, const struct wf_recipe *recipe,
                     uint32_t rank, const struct wf_layout *layout);
/* {spec, rank, coordinates, hash, bytes, tensors: [{name, dtype, shape, bytes, kind where it is
 * not weights, pieces: [{param or
 * fill, param_first, less_one where it is so, tensor_offset, axes: [{count, param_step,
 * tensor_step}]}]}], aliases:
 * [{name, tensor}]}; steps in elements of the parameter and bytes of the tensor. The caller puts
 * it; NULL without memory. */
struct json_object *wf_layout_to_json(const struct wf_model *model, const struct wf_recipe *recipe,
                                      uint32_t rank, const struct wf_layout *layout);

#endif
