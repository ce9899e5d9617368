/* known_values.h - weights that anyone can recompute: a function of tensor name and flat index.
 *
 * docs/checkpoint-values.md gives the function in words and in ten lines of Python; a test runs
 * those lines against a file. Every value is finite, of either sign, and 2^-9 <= |x| < 1, one in
 * 8,192 of them from 2^-1 up; f16 and bf16 values are the f32 value with the lower mantissa bits
 * cut off; e4m3 values too, times 512 and without those from 2^-1 up. Packed weights are no
 * numbers: i32 and u8 elements are the hash itself and its upper byte.
 *
 * Pure; any thread.
 */
#ifndef WEFT_TOOLS_FILES_KNOWN_VALUES_H
#define WEFT_TOOLS_FILES_KNOWN_VALUES_H

#include <stdbool.h>
#include <stdint.h>

#include "models/dtype.h"

/* Raised whenever the function changes: it is written into the files. */
#define WF_KNOWN_VALUES_VERSION "2"

bool wf_known_values_supports(enum wf_dtype dtype); /* f32, f16, bf16, e4m3, i32, u8 */

/* Elements [first, first + count) of the tensor `name` into `buffer`, which is aligned to an
 * element. The dtype must be supported. */
void wf_known_values_fill(const char *name, uint64_t first, uint64_t count, enum wf_dtype dtype,
                          void *buffer);

#endif
