/* casts.h - f32, f16 and bf16 into each other, over arrays. Pure; any thread.
 *
 * Narrowing rounds to nearest, ties to even; overflow gives infinity; NaN rules are those that
 * torch shows in tests/golden/torch-casts. `n` is elements; the arrays do not overlap. The portable
 * C path is the reference; wider ones are chosen once at run time and must be equal to it bit for
 * bit (tested over all patterns of 16 bits and random ones of 32).
 */
#ifndef WEFT_MODELS_CASTS_H
#define WEFT_MODELS_CASTS_H

#include <stddef.h>

#include "models/dtype.h"

typedef void wf_cast_t(void *dst, const void *src, size_t n);

/* The cast for a pair, or NULL if the pair is not castable. A type into itself copies bytes.
 * `portable` picks the reference. */
wf_cast_t *wf_cast_for(enum wf_dtype from, enum wf_dtype to, bool portable);

#endif
