/* values.h - two arrays of values: how many differ, by how much, and which is the first. Pure. */
#ifndef WEFT_TOOLS_COMPARE_VALUES_H
#define WEFT_TOOLS_COMPARE_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/dtype.h"

/* What was seen of one parameter so far; zeroed before the first call. Two values are equal if
 * their difference is no more than the tolerance: then +0 and -0 are equal, and so are two NaNs. A
 * NaN beside a number differs. */
struct wf_values {
    uint64_t elements, different;
    uint64_t nan_a, nan_b; /* elements */
    uint64_t nan_both;     /* of them: in the same place, which is equal */
    uint64_t first;        /* index of the first that differs */
    double first_a, first_b;
    double max_abs, sum_abs; /* of |a - b| where both are finite numbers, over all elements */
    uint64_t one_ulp;        /* of `different`: by one place of bf16, f16 or f32 alone */
};

struct wf_values_block {
    enum wf_dtype dtype; /* of both */
    const void *a, *b;   /* `count` elements */
    const float *slack;  /* a tolerance for each element, beside `tolerance`; may be NULL */
    const uint8_t *seen; /* 0: left out; may be NULL */
    uint64_t index;      /* of the first element, for `first` */
    uint64_t count;
    double tolerance;
};

void wf_values_add(struct wf_values *values, const struct wf_values_block *block);

/* f32 of any dtype (integers too) for reports and tests of hypotheses. */
void wf_values_to_f32(enum wf_dtype dtype, const void *from, float *to, uint64_t count);
/* The distance from a code of e4m3 to the next larger one, without the scale. */
float wf_values_e4m3_step(uint8_t code);

#endif
