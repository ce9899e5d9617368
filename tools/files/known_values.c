/* known_values.c - a hash of name and index, shaped into a sane weight. */
#include "tools/files/known_values.h"

#include <stddef.h>

#include "runtime/status.h"

/* Where the 3 drawn bits of the exponent begin: 2^-9, in f32's and f16's biased exponents; 1 in
 * e4m3's, which has no normal number below 2^-6. */
enum { F32_EXPONENT = 127 - 9, F16_EXPONENT = 15 - 9, F8_EXPONENT = 7 };

/* FNV-1a, 32 bits. */
static uint32_t hash_name(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    }
    return hash;
}

/* The name enters between two rounds: entering before both, it would only shift the index. */
static inline uint32_t hash_index(uint32_t index, uint32_t seed)
{
    uint32_t x = index * 0x9e3779b1u;
    x ^= x >> 16;
    x += seed;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* Three bits of the exponent; one value in 8,192 is an outlier, once more as large. So the largest
 * value of a block of 128 x 128 is mostly one of a few, and changes with each step. */
static inline uint32_t exponent_of(uint32_t x)
{
    const uint32_t outlier = 0x7f80001fu;
    return (x >> 28 & 7) + ((x & outlier) == outlier);
}

/* Sign, exponent, 23 bits of mantissa from bits 31, above, and 22..0. */
static inline uint32_t shape_f32(uint32_t x)
{
    return (x & 0x80000000u) | (F32_EXPONENT + exponent_of(x)) << 23 | (x & 0x7fffffu);
}

static inline uint16_t shape_f16(uint32_t x)
{
    return (uint16_t)((x >> 16 & 0x8000u) | (F16_EXPONENT + exponent_of(x)) << 10 |
                      (x >> 13 & 0x3ffu));
}

static inline uint8_t shape_f8(uint32_t x)
{
    return (uint8_t)((x >> 24 & 0x80u) | (F8_EXPONENT + (x >> 28 & 7)) << 3 | (x >> 20 & 7u));
}

bool wf_known_values_supports(enum wf_dtype dtype)
{
    return dtype == WF_DTYPE_F32 || dtype == WF_DTYPE_F16 || dtype == WF_DTYPE_BF16 ||
           dtype == WF_DTYPE_F8_E4M3 || dtype == WF_DTYPE_I32 || dtype == WF_DTYPE_U8;
}

/* A run within which the upper half of the index does not change. */
static void fill_run(uint32_t first, uint64_t count, uint32_t seed, enum wf_dtype dtype,
                     void *buffer)
{
    uint32_t *words = buffer;
    uint16_t *halves = buffer;
    uint8_t *bytes = buffer;
    if (dtype == WF_DTYPE_F32) {
        for (uint64_t i = 0; i < count; i++) {
            words[i] = shape_f32(hash_index(first + (uint32_t)i, seed));
        }
    } else if (dtype == WF_DTYPE_BF16) {
        for (uint64_t i = 0; i < count; i++) {
            halves[i] = (uint16_t)(shape_f32(hash_index(first + (uint32_t)i, seed)) >> 16);
        }
    } else if (dtype == WF_DTYPE_I32) {
        for (uint64_t i = 0; i < count; i++) {
            words[i] = hash_index(first + (uint32_t)i, seed);
        }
    } else if (dtype == WF_DTYPE_U8) {
        for (uint64_t i = 0; i < count; i++) {
            bytes[i] = (uint8_t)(hash_index(first + (uint32_t)i, seed) >> 24);
        }
    } else if (dtype == WF_DTYPE_F8_E4M3) {
        for (uint64_t i = 0; i < count; i++) {
            bytes[i] = shape_f8(hash_index(first + (uint32_t)i, seed));
        }
    } else {
        for (uint64_t i = 0; i < count; i++) {
            halves[i] = shape_f16(hash_index(first + (uint32_t)i, seed));
        }
    }
}

void wf_known_values_fill(const char *name, uint64_t first, uint64_t count, enum wf_dtype dtype,
                          void *buffer)
{
    WF_ASSERT(wf_known_values_supports(dtype));
    uint32_t seed = hash_name(name);
    uint8_t *at = buffer;
    while (count > 0) {
        uint64_t left = (1ULL << 32) - (uint32_t)first, run = count < left ? count : left;
        fill_run((uint32_t)first, run, seed + 0x9e3779b9u * (uint32_t)(first >> 32), dtype, at);
        at += run * wf_dtype_bytes(dtype);
        first += run;
        count -= run;
    }
}
