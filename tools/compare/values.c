/* values.c - differences of two arrays: equal blocks by their bytes, the rest value by value. */
#include "tools/compare/values.h"

#include <math.h>
#include <string.h>

#include "models/casts.h"

enum { BLOCK = 1024 /* elements looked at at a time: both stay in the first cache */ };

/* --- decoding -------------------------------------------------------------------------------- */

/* Bits of an 8-bit float: sign, exponent, mantissa. */
static float small_float(uint8_t code, int mantissa_bits, int bias)
{
    int mantissa = code & ((1 << mantissa_bits) - 1);
    int exponent = (code & 0x7f) >> mantissa_bits;
    float value = exponent == 0 ? ldexpf((float)mantissa, 1 - bias - mantissa_bits)
                                : ldexpf((float)(mantissa + (1 << mantissa_bits)),
                                         exponent - bias - mantissa_bits);
    return code & 0x80 ? -value : value;
}

static float from_e4m3(uint8_t code)
{
    return (code & 0x7f) == 0x7f ? NAN : small_float(code, 3, 7);
}

static float from_e5m2(uint8_t code)
{
    if ((code & 0x7c) == 0x7c) {
        return code & 3 ? NAN : code & 0x80 ? -INFINITY : INFINITY;
    }
    return small_float(code, 2, 15);
}

float wf_values_e4m3_step(uint8_t code)
{
    int exponent = (code & 0x7f) >> 3;
    return ldexpf(1.0F, (exponent == 0 ? 1 : exponent) - 7 - 3);
}

#define EACH(type, expression)                \
    for (uint64_t i = 0; i < count; i++) {    \
        type value = ((const type *)from)[i]; \
        to[i] = (float)(expression);          \
    }                                         \
    break

void wf_values_to_f32(enum wf_dtype dtype, const void *from, float *to, uint64_t count)
{
    switch (dtype) {
    case WF_DTYPE_F32:
    case WF_DTYPE_F16:
    case WF_DTYPE_BF16:
        wf_cast_for(dtype, WF_DTYPE_F32, false)(to, from, count);
        break;
    case WF_DTYPE_F8_E4M3:
        EACH(uint8_t, from_e4m3(value));
    case WF_DTYPE_F8_E5M2:
        EACH(uint8_t, from_e5m2(value));
    case WF_DTYPE_F64:
        EACH(double, value);
    case WF_DTYPE_I64:
        EACH(int64_t, value);
    case WF_DTYPE_I32:
        EACH(int32_t, value);
    case WF_DTYPE_I16:
        EACH(int16_t, value);
    case WF_DTYPE_I8:
        EACH(int8_t, value);
    default:
        EACH(uint8_t, value);
    }
}
#undef EACH

/* --- equal bytes ----------------------------------------------------------------------------- */

#define COUNT_NAN(type, mask, infinity)                       \
    {                                                         \
        const type *values = from;                            \
        uint32_t found = 0;                                   \
        for (uint32_t i = 0; i < count; i++) {                \
            found += (type)(values[i] & (mask)) > (infinity); \
        }                                                     \
        return found;                                         \
    }

/* At most BLOCK elements. */
static uint32_t count_nan(enum wf_dtype dtype, const void *from, uint32_t count)
{
    switch (dtype) {
    case WF_DTYPE_F32:
        COUNT_NAN(uint32_t, 0x7fffffffU, 0x7f800000U)
    case WF_DTYPE_F16:
        COUNT_NAN(uint16_t, 0x7fffU, 0x7c00U)
    case WF_DTYPE_BF16:
        COUNT_NAN(uint16_t, 0x7fffU, 0x7f80U)
    case WF_DTYPE_F8_E4M3:
        COUNT_NAN(uint8_t, 0x7fU, 0x7eU)
    case WF_DTYPE_F8_E5M2:
        COUNT_NAN(uint8_t, 0x7fU, 0x7cU)
    default:
        return 0;
    }
}
#undef COUNT_NAN

/* --- value by value -------------------------------------------------------------------------- */

/* A number whose neighbours are the type's neighbouring values. */
static int64_t place_of(enum wf_dtype dtype, const void *from, uint32_t i)
{
    uint32_t bits = 0;
    uint32_t width = dtype == WF_DTYPE_F32 ? 32 : 16;
    if (width == 32) {
        memcpy(&bits, (const uint32_t *)from + i, sizeof bits);
    } else {
        bits = ((const uint16_t *)from)[i];
    }
    uint32_t sign = 1U << (width - 1);
    return bits & sign ? -(int64_t)(bits & ~sign) : (int64_t)bits;
}

static bool one_place_apart(enum wf_dtype dtype, const void *a, const void *b, uint32_t i)
{
    if (dtype != WF_DTYPE_F32 && dtype != WF_DTYPE_F16 && dtype != WF_DTYPE_BF16) {
        return false;
    }
    int64_t apart = place_of(dtype, a, i) - place_of(dtype, b, i);
    return apart == 1 || apart == -1;
}

#define APART(type)                                              \
    {                                                            \
        type x = ((const type *)a)[i], y = ((const type *)b)[i]; \
        double apart = fabs((double)x - (double)y);              \
        return x != y && apart == 0 ? 1 : apart;                 \
    }

/* Of numbers that f32 may take for one: packed words, say, have more than its 24 bits. */
static double wide_apart(enum wf_dtype dtype, const void *a, const void *b, uint32_t i)
{
    switch (dtype) {
    case WF_DTYPE_I32:
        APART(int32_t)
    case WF_DTYPE_I64:
        APART(int64_t)
    case WF_DTYPE_F64:
        APART(double)
    default:
        return 0;
    }
}
#undef APART

static void add_values(struct wf_values *values, const struct wf_values_block *block, uint64_t done,
                       const void *a_bits, const void *b_bits, uint32_t count)
{
    float a[BLOCK], b[BLOCK];
    wf_values_to_f32(block->dtype, a_bits, a, count);
    wf_values_to_f32(block->dtype, b_bits, b, count);
    for (uint32_t i = 0; i < count; i++) {
        if (block->seen != NULL && block->seen[done + i] == 0) {
            continue;
        }
        bool a_nan = isnan(a[i]), b_nan = isnan(b[i]);
        values->elements++;
        values->nan_a += a_nan;
        values->nan_b += b_nan;
        values->nan_both += a_nan && b_nan;
        double apart = a[i] == b[i]       ? wide_apart(block->dtype, a_bits, b_bits, i)
                       : (a_nan && b_nan) ? 0
                                          : fabs((double)a[i] - (double)b[i]);
        double allowed =
            block->tolerance + (block->slack != NULL ? (double)block->slack[done + i] : 0);
        if (isfinite(apart)) {
            values->max_abs = apart > values->max_abs ? apart : values->max_abs;
            values->sum_abs += apart;
        }
        if (apart <= allowed) { /* not where a NaN stands beside a number */
            continue;
        }
        if (values->different++ == 0) {
            values->first = block->index + done + i;
            values->first_a = (double)a[i];
            values->first_b = (double)b[i];
        }
        values->one_ulp += one_place_apart(block->dtype, a_bits, b_bits, i);
    }
}

void wf_values_add(struct wf_values *values, const struct wf_values_block *block)
{
    size_t bytes = wf_dtype_bytes(block->dtype);
    for (uint64_t done = 0; done < block->count; done += BLOCK) {
        uint32_t n = block->count - done < BLOCK ? (uint32_t)(block->count - done) : BLOCK;
        const char *a = (const char *)block->a + done * bytes;
        const char *b = (const char *)block->b + done * bytes;
        if (block->seen == NULL && memcmp(a, b, n * bytes) == 0) {
            uint32_t nan = count_nan(block->dtype, a, n);
            values->elements += n;
            values->nan_a += nan;
            values->nan_b += nan;
            values->nan_both += nan;
        } else {
            add_values(values, block, done, a, b, n);
        }
    }
}
