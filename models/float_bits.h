/* float_bits.h - one number of a floating-point format into another, on its bits: what casts.h and
 * quant.h promise, once. Pure. Private to casts*.c and quant*.c.
 *
 * Everything goes through f32, which holds all values of the others. Narrowing rounds to nearest,
 * ties to even, and keeps subnormal numbers; nothing depends on the processor's modes.
 */
#ifndef WEFT_MODELS_FLOAT_BITS_H
#define WEFT_MODELS_FLOAT_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    WF_E4M3_MAX = 0x7e, /* 448 */
    WF_E4M3_NAN = 0x7f,
    WF_E5M2_INF = 0x7c,
    WF_E5M2_NAN = 0x7f,
};

static inline float wf_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t wf_bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* fraction / 2^shift, to the nearest, ties to even; shift 1..31. */
static inline uint32_t wf_round_shift(uint32_t fraction, uint32_t shift)
{
    uint32_t kept = fraction >> shift, rest = fraction & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1) != 0));
}

/* --- 16 bits --------------------------------------------------------------------------------- */

static inline uint32_t wf_f32_bits_of_bf16(uint16_t bits)
{
    return (uint32_t)bits << 16;
}

static inline uint16_t wf_bf16_of_f32_bits(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0xffff;
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

static inline uint32_t wf_f32_bits_of_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu,
             fraction = bits & 0x3ffu;
    if (exponent == 0x1f) {
        uint32_t quiet = fraction != 0 ? 0x400000u : 0;
        return sign | 0x7f800000u | quiet | fraction << 13;
    }
    if (exponent != 0) {
        return sign | (exponent + 112) << 23 | fraction << 13;
    }
    if (fraction == 0) {
        return sign;
    }
    /* Subnormal: fraction * 2^-24, whose leading one becomes implicit. */
    uint32_t shift = (uint32_t)__builtin_clz(fraction) - 21;
    return sign | (113 - shift) << 23 | ((fraction << shift) & 0x3ffu) << 13;
}

static inline uint16_t wf_f16_of_f32_bits(uint32_t bits)
{
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
    }
    if (magnitude >= 0x47800000u) { /* 2^16 and above */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude >= 0x38800000u) { /* normal in f16; a carry may reach infinity, as it must */
        uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
        return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
    }
    if (magnitude < 0x33000000u) { /* below half of the smallest subnormal */
        return sign;
    }
    uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | wf_round_shift(fraction, 126 - (magnitude >> 23)));
}

/* --- 8 bits ---------------------------------------------------------------------------------- */

/* Rounded to the nearest number of a format without an upper end, sign left out: codes go on above
 * the format's largest. `kept_bits` of the fraction stay; `bias` is the format's. */
static inline uint32_t wf_fp8_unbounded(uint32_t magnitude, uint32_t kept_bits, uint32_t bias)
{
    uint32_t exponent = magnitude >> 23, drop = 23 - kept_bits;
    if (exponent > 127 - bias) { /* normal in the format */
        uint32_t rounded = magnitude + (1u << (drop - 1)) - 1 + (magnitude >> drop & 1);
        return (rounded >> drop) - ((127 - bias) << kept_bits);
    }
    /* In units of the smallest subnormal, 2^(1 - bias - kept_bits). */
    uint32_t shift = 127 - bias + 1 + drop - exponent;
    return shift > 24 ? 0 : wf_round_shift((magnitude & 0x7fffffu) | 0x800000u, shift);
}

/* What would round to more than 448, and infinity, gives 448, or NaN if `nan_above`. */
static inline uint8_t wf_e4m3_of_f32_bits(uint32_t bits, bool nan_above)
{
    uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint8_t)(sign | WF_E4M3_NAN);
    }
    uint32_t code = wf_fp8_unbounded(magnitude, 3, 7);
    return (uint8_t)(sign | (code <= WF_E4M3_MAX ? code : nan_above ? WF_E4M3_NAN : WF_E4M3_MAX));
}

static inline uint8_t wf_e5m2_of_f32_bits(uint32_t bits)
{
    uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint8_t)(sign | WF_E5M2_NAN);
    }
    uint32_t code = wf_fp8_unbounded(magnitude, 2, 15);
    return (uint8_t)(sign | (code < WF_E5M2_INF ? code : WF_E5M2_INF));
}

/* f16 has e5m2's exponent, and eight bits more behind. */
static inline uint32_t wf_f32_bits_of_e5m2(uint8_t code)
{
    return wf_f32_bits_of_f16((uint16_t)(code << 8));
}

/* As f16 e4m3's bits stand for 2^-8 times its value, subnormal numbers too. */
static inline uint32_t wf_f32_bits_of_e4m3(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    uint16_t magnitude = (uint16_t)((code & 0x7fu) << 7);
    if ((code & 0x7fu) == WF_E4M3_NAN) {
        return sign | 0x7ff00000u;
    }
    return magnitude == 0 ? sign : sign | (wf_f32_bits_of_f16(magnitude) + (8u << 23));
}

#endif
