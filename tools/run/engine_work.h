/* engine_work.h - what the stand-in for an engine makes of a version by itself.
 *
 * Engines keep tensors that nobody sends them: a norm's weight plus 1 beside it, the two halves of
 * an fp8 kv_b_proj in the model's dtype, a packed copy of a tied head. They go stale without an
 * error when a version arrives and nobody makes them anew; so the stand-in has them, and the
 * element check looks at them too. Which a rank has follows from its layout (the tensors that are
 * derived); the packed head, of which layouts know nothing, is asked for (run.packed_head).
 *
 * A version's are made from its bytes before the vote (hook after_write), into memory of their own,
 * and take the place of the old ones behind the flip (hook after_flip).
 */
#ifndef WEFT_TOOLS_RUN_ENGINE_WORK_H
#define WEFT_TOOLS_RUN_ENGINE_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "models/layout.h"
#include "runtime/status.h"
#include "tools/run/memory.h"

/* Rows of a packed head that stand side by side, element by element. */
enum { WF_PACKED_ROWS = 16 };
#define WF_PACKED_HEAD "packed:lm_head.weight"

struct wf_engine_work;

/* Both are borrowed. `packed_head`: of the embedding, if the layout has one. UNSUPPORTED: a derived
 * tensor that the stand-in cannot make, by name. *out is NULL if there is nothing to make. */
enum wf_status wf_engine_work_new(const struct wf_layout *layout,
                                  const struct wf_run_memory *memory, bool packed_head,
                                  struct wf_engine_work **out, struct wf_error *error);
void wf_engine_work_free(struct wf_engine_work *work); /* NULL is fine */

/* Makes everything from a version's bytes; `written` as hook after_write has it (by the layout's
 * tensors). Pool thread. */
void wf_engine_work_make(struct wf_engine_work *work, void *const *written);
/* What was made last is live. Pool thread. */
void wf_engine_work_adopt(struct wf_engine_work *work);
/* The live packed head, or NULL. */
const void *wf_engine_work_packed(const struct wf_engine_work *work, uint64_t *bytes_out,
                                  enum wf_dtype *dtype_out);

#endif
