/* whole.h - a matrix quantised as a whole, value by value: what codes and scales must be wherever
 * they were made. By the element check's arithmetic (tools/check/quantised.h), which is independent
 * of models/quant.c. */
#ifndef WEFT_TESTS_LAYOUTS_WHOLE_H
#define WEFT_TESTS_LAYOUTS_WHOLE_H

#include "models/quant.h"

struct whole {
    uint8_t *codes; /* rows x columns */
    float *scales;  /* of blocks of 128 x 128, or of rows, row-major */
};

void whole_quantise(enum wf_quant rule, const float *values, uint64_t rows, uint64_t columns,
                    struct whole *out);
void whole_fini(struct whole *whole);

#endif
