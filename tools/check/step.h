/* step.h - the deterministic "optimizer step" that makes every version differ everywhere.
 *
 * A step changes the bits of an element of the checkpoint, in the checkpoint's dtype: the top 7
 * bits m of its mantissa become (m + 37) mod 128; sign, exponent and lower mantissa bits stay. 37
 * is odd, so 128 steps go through all values before they repeat, and n steps at once are m + 37 n.
 * (bf16: bits 0..6; f16: bits 3..9; f32: bits 16..22.) Infinities and NaNs stay as they are, so
 * that nothing becomes one and no one becomes something else; zeros become subnormal numbers. Of
 * packed weights (u8, i32) it is bits 0..6, whatever they mean.
 *
 * An f32 that holds a bf16 value keeps holding one, with the same 7 bits: stepping before or after
 * that cast is the same. Other casts change the bits, so steps are always taken in the checkpoint's
 * dtype, before a cast.
 *
 * Pure; any thread.
 */
#ifndef WEFT_TOOLS_CHECK_STEP_H
#define WEFT_TOOLS_CHECK_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "models/dtype.h"

enum { WF_STEP_PERIOD = 128, WF_STEP_ADD = 37 };

/* True for f32, f16, bf16, u8 and i32. */
bool wf_step_supports(enum wf_dtype dtype);

/* `steps` steps on `elements` elements in place, at memory speed; `buffer` is aligned to an
 * element. The dtype must be supported. */
void wf_step_apply(void *buffer, enum wf_dtype dtype, uint64_t elements, uint64_t steps);

/* The same on one element's bits. */
uint32_t wf_step_value(uint32_t bits, enum wf_dtype dtype, uint64_t steps);

#endif
