/* whole.c - see whole.h. */
#include "whole.h"

#include <stdlib.h>
#include <string.h>

#include "tools/check/quantised.h"

void whole_quantise(enum wf_quant rule, const float *values, uint64_t rows, uint64_t columns,
                    struct whole *out)
{
    bool by_row = wf_quant_is_by_row(rule);
    uint64_t tall = by_row ? 1 : WF_CHECK_BLOCK, broad = by_row ? columns : WF_CHECK_BLOCK;
    uint64_t high = (rows + tall - 1) / tall, wide = (columns + broad - 1) / broad;
    float *largest = calloc(high * wide, sizeof *largest);
    out->codes = malloc(rows * columns);
    out->scales = malloc(high * wide * sizeof *out->scales);
    for (uint64_t e = 0; e < rows * columns; e++) {
        float *at = &largest[e / columns / tall * wide + e % columns / broad];
        float size = values[e] < 0 ? -values[e] : values[e];
        *at = size > *at ? size : *at;
    }
    for (uint64_t e = 0; e < rows * columns; e++) {
        uint64_t b = e / columns / tall * wide + e % columns / broad;
        struct wf_check_block block = wf_check_block(rule, largest[b]);
        out->scales[b] = block.scale;
        out->codes[e] = wf_check_code(&block, values[e]);
    }
    free(largest);
}

void whole_fini(struct whole *whole)
{
    free(whole->codes);
    free(whole->scales);
    *whole = (struct whole){0};
}
