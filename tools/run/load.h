/* load.h - a rank's weights out of a checkpoint, as of any step.
 *
 * What a trainer does at its start: reads the parts of the parameters that its layout shows,
 * applies the optimizer's steps so far (tools/check/step.h), and places them in its tensors. A rank
 * that was started again gets the weights of any step this way. One pass in the order of the files
 * reads what is needed once, through one window, so that little memory is needed beside the
 * weights.
 */
#ifndef WEFT_TOOLS_RUN_LOAD_H
#define WEFT_TOOLS_RUN_LOAD_H

#include "models/config.h"
#include "models/layout.h"
#include "runtime/status.h"
#include "tools/files/checkpoint.h"
#include "tools/run/memory.h"

enum { WF_LOAD_WINDOW_BYTES = 1 << 20 };

/* Fills every tensor of `memory` (made for `layout`). Padding that no parameter covers is zero.
 * Blocks on the disk. */
enum wf_status wf_run_load(const struct wf_checkpoint *checkpoint, const struct wf_model *model,
                           const struct wf_layout *layout, const struct wf_run_memory *memory,
                           uint64_t step, struct wf_error *error);

#endif
