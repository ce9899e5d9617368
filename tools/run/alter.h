/* alter.h - test only: a rank of `weft run` whose weights are not what they should be.
 *
 * Copies that several ranks hold alike are compared (actors/replicas.h), and a test of that needs
 * one that differs. So the environment may ask one process of a job to change one bit:
 *
 *   WEFT_TEST_ALTER=WHO,STEP,TENSOR,BYTE      train:1,2,decoder.final_layernorm.weight,0
 *
 * When a trainer (train:1) has made the weights of STEP, before it publishes them; when an engine's
 * worker (infer:3) has resumed with them. The lowest bit of that byte is flipped. Without the
 * variable nothing is changed.
 */
#ifndef WEFT_TOOLS_RUN_ALTER_H
#define WEFT_TOOLS_RUN_ALTER_H

#include <stdint.h>

#include "models/layout.h"
#include "tools/run/process.h"

/* The rank's weights are those of `step` now. A value that makes no sense ends the process. */
void wf_alter_weights(struct wf_process *process, const struct wf_layout *layout,
                      const struct wf_run_memory *memory, uint64_t step);

#endif
