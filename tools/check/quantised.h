/* quantised.h - what a producer's rule makes of one block, or row, of values, told a second time.
 *
 * The element check's own arithmetic: plain C, one value at a time, from the formulas (sources: the
 * comments of quantised.c); it shares nothing with models/quant.h but the rules' names. Only rules
 * whose blocks are 128 x 128 or a whole row are here: no engine holds others.
 *
 * Pure; any thread.
 */
#ifndef WEFT_TOOLS_CHECK_QUANTISED_H
#define WEFT_TOOLS_CHECK_QUANTISED_H

#include <stdbool.h>
#include <stdint.h>

#include "models/quant.h"

enum { WF_CHECK_BLOCK = 128 }; /* rows and columns of a block */

/* What a rule makes of a block: its stored scale, and what its values are divided by or multiplied
 * with. */
struct wf_check_block {
    float scale, factor;
    bool divides;
};

/* False: the check does not know the rule. */
bool wf_check_knows(enum wf_quant rule);
/* `amax`: of the block's magnitudes, NaNs left out. */
struct wf_check_block wf_check_block(enum wf_quant rule, float amax);
uint8_t wf_check_code(const struct wf_check_block *block, float value);
/* The same of values that stand one after the other. */
void wf_check_codes(const struct wf_check_block *block, const float *values, uint64_t count,
                    uint8_t *codes_out);
/* What a code stands for: times the scale. */
float wf_check_decode(const struct wf_check_block *block, uint8_t code);

#endif
