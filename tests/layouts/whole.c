/* whole.c - see whole.h. */
#include "whole.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128, LARGEST = 0x7e };

/* The value of a positive code. */
static float value_of(unsigned code)
{
    unsigned exponent = code >> 3, mantissa = code & 7;
    return exponent == 0 ? ldexpf((float)mantissa, -9)
                         : ldexpf((float)(8 + mantissa), (int)exponent - 10);
}

/* The nearest code; of two as near the even one. */
static uint8_t code_of(float value)
{
    float size = fabsf(value);
    unsigned low = 0, high = LARGEST;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (value_of(middle) <= size) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double below = (double)size - value_of(low), above = (double)value_of(high) - size;
    bool up = above < below || (above == below && (high & 1) == 0);
    return (uint8_t)((signbit(value) ? 0x80 : 0) | (up ? high : low));
}

static float up_to_power(float value)
{
    int exponent;
    return frexpf(value, &exponent) == 0.5F ? value : ldexpf(1.0F, exponent);
}

static float scale_of(enum wf_quant rule, float largest)
{
    switch (rule) {
    case WF_QUANT_SLIME:
        return fmaxf(largest, 1e-10F) / 448.0F;
    case WF_QUANT_TRANSFORMERS:
        return largest == 0 ? 1.0F : 1.0F / (448.0F / largest);
    case WF_QUANT_VLLM_UE8M0:
        return up_to_power(fmaxf(largest, 1e-4F) / 448.0F);
    default:
        return fmaxf(largest, 1e-4F) / 448.0F;
    }
}

static float scaled(enum wf_quant rule, float value, float scale, float largest)
{
    float inverse =
        rule == WF_QUANT_TRANSFORMERS ? (largest == 0 ? 1.0F : 448.0F / largest) : 1.0F / scale;
    return rule == WF_QUANT_DEEPSEEK || rule == WF_QUANT_AWEX ? value / scale : value * inverse;
}

void whole_quantise(enum wf_quant rule, const float *values, uint64_t rows, uint64_t columns,
                    struct whole *out)
{
    uint64_t high = (rows + BLOCK - 1) / BLOCK, wide = (columns + BLOCK - 1) / BLOCK;
    float *largest = calloc(high * wide, sizeof *largest);
    out->codes = malloc(rows * columns);
    out->scales = malloc(high * wide * sizeof *out->scales);
    for (uint64_t e = 0; e < rows * columns; e++) {
        float *at = &largest[e / columns / BLOCK * wide + e % columns / BLOCK];
        *at = fmaxf(*at, fabsf(values[e]));
    }
    for (uint64_t b = 0; b < high * wide; b++) {
        out->scales[b] = scale_of(rule, largest[b]);
    }
    for (uint64_t e = 0; e < rows * columns; e++) {
        uint64_t b = e / columns / BLOCK * wide + e % columns / BLOCK;
        out->codes[e] = code_of(scaled(rule, values[e], out->scales[b], largest[b]));
    }
    free(largest);
}

void whole_fini(struct whole *whole)
{
    free(whole->codes);
    free(whole->scales);
    *whole = (struct whole){0};
}
