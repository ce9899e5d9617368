/* casts.c - the reference casts in portable C, and the choice of a faster path at run time. */
#include "models/casts.h"

#include "models/casts_kernels.h"
#include "models/float_bits.h"
#include "models/simd.h"

/* --- the reference, one number at a time ----------------------------------------------------- */

typedef uint32_t bits_f32;
typedef uint16_t bits_f16, bits_bf16;
typedef uint8_t bits_e4m3, bits_e5m2, bits_e4m3_nan;

static inline uint32_t f32_of_f32(uint32_t bits)
{
    return bits;
}

static inline uint8_t e4m3_of_f32(uint32_t bits)
{
    return wf_e4m3_of_f32_bits(bits, false);
}

static inline uint8_t e4m3_nan_of_f32(uint32_t bits)
{
    return wf_e4m3_of_f32_bits(bits, true);
}

/* memcpy, because neither side need be aligned. */
#define PORTABLE(from, to, widen, narrow)                                       \
    static void portable_##from##_to_##to(void *dst, const void *src, size_t n) \
    {                                                                           \
        for (size_t i = 0; i < n; i++) {                                        \
            bits_##from bits;                                                   \
            memcpy(&bits, (const char *)src + i * sizeof bits, sizeof bits);    \
            bits_##to made = narrow(widen(bits));                               \
            memcpy((char *)dst + i * sizeof made, &made, sizeof made);          \
        }                                                                       \
    }
#define PORTABLE_INTO(to, narrow)                 \
    PORTABLE(f32, to, f32_of_f32, narrow)         \
    PORTABLE(f16, to, wf_f32_bits_of_f16, narrow) \
    PORTABLE(bf16, to, wf_f32_bits_of_bf16, narrow)
#define PORTABLE_FROM(from, widen)                 \
    PORTABLE(from, f32, widen, f32_of_f32)         \
    PORTABLE(from, f16, widen, wf_f16_of_f32_bits) \
    PORTABLE(from, bf16, widen, wf_bf16_of_f32_bits)
PORTABLE(f32, bf16, f32_of_f32, wf_bf16_of_f32_bits)
PORTABLE(f32, f16, f32_of_f32, wf_f16_of_f32_bits)
PORTABLE(bf16, f32, wf_f32_bits_of_bf16, f32_of_f32)
PORTABLE(bf16, f16, wf_f32_bits_of_bf16, wf_f16_of_f32_bits)
PORTABLE(f16, f32, wf_f32_bits_of_f16, f32_of_f32)
PORTABLE(f16, bf16, wf_f32_bits_of_f16, wf_bf16_of_f32_bits)
PORTABLE_INTO(e4m3, e4m3_of_f32)
PORTABLE_INTO(e4m3_nan, e4m3_nan_of_f32)
PORTABLE_INTO(e5m2, wf_e5m2_of_f32_bits)
PORTABLE_FROM(e4m3, wf_f32_bits_of_e4m3)
PORTABLE_FROM(e5m2, wf_f32_bits_of_e5m2)
#undef PORTABLE_FROM
#undef PORTABLE_INTO
#undef PORTABLE

#define COPY(bytes)                                                \
    static void copy_##bytes(void *dst, const void *src, size_t n) \
    {                                                              \
        memcpy(dst, src, n *(bytes));                              \
    }
COPY(1)
COPY(2)
COPY(4)
COPY(8)
#undef COPY

static wf_cast_t *const copies[4] = {copy_1, copy_2, copy_4, copy_8};

const struct wf_cast_kernels wf_cast_portable_kernels = {
#define PORTABLE_ROW(name, from, to, above) [WF_CAST_##name] = portable_##name,
    .plain = {WF_CAST_PAIR_MAP(PORTABLE_ROW)},
    .streaming = {WF_CAST_PAIR_MAP(PORTABLE_ROW)},
#undef PORTABLE_ROW
    .copy_streaming = {copy_1, copy_2, copy_4, copy_8},
};

/* --- the choice ------------------------------------------------------------------------------ */

static const struct wf_cast_kernels *kernels(bool portable)
{
    static const struct wf_cast_kernels *const tables[WF_SIMD_COUNT] = {
        [WF_SIMD_NONE] = &wf_cast_portable_kernels,
#if defined(__x86_64__)
        [WF_SIMD_AVX2] = &wf_cast_avx2_kernels,
        [WF_SIMD_AVX512] = &wf_cast_avx512_kernels,
#endif
    };
    return tables[portable ? WF_SIMD_NONE : wf_simd_best()];
}

static enum wf_cast_pair pair_of(enum wf_dtype from, enum wf_dtype to, enum wf_cast_above above)
{
    enum wf_cast_above wanted = to == WF_DTYPE_F8_E4M3 ? above : WF_CAST_SATURATE;
#define PAIR_TEST(name, pair_from, pair_to, pair_above)             \
    if (from == WF_DTYPE_##pair_from && to == WF_DTYPE_##pair_to && \
        wanted == WF_CAST_##pair_above) {                           \
        return WF_CAST_##name;                                      \
    }
    WF_CAST_PAIR_MAP(PAIR_TEST)
#undef PAIR_TEST
    return WF_CAST_PAIR_COUNT;
}

/* All sizes of elements are powers of two up to 8. */
static wf_cast_t *copy_for(wf_cast_t *const by_size[4], size_t bytes)
{
    return bytes == 0 ? NULL : by_size[__builtin_ctz((unsigned)bytes)];
}

wf_cast_t *wf_cast_bare_for(enum wf_dtype from, enum wf_dtype to, enum wf_cast_above above,
                            bool portable)
{
    if (from == to) {
        return copy_for(copies, wf_dtype_bytes(from));
    }
    enum wf_cast_pair pair = pair_of(from, to, above);
    return pair == WF_CAST_PAIR_COUNT ? NULL : kernels(portable)->plain[pair];
}

wf_cast_t *wf_cast_bare_streaming_for(enum wf_dtype from, enum wf_dtype to,
                                      enum wf_cast_above above)
{
    const struct wf_cast_kernels *chosen = kernels(false);
    if (from == to) {
        return copy_for(chosen->copy_streaming, wf_dtype_bytes(from));
    }
    enum wf_cast_pair pair = pair_of(from, to, above);
    return pair == WF_CAST_PAIR_COUNT ? NULL : chosen->streaming[pair];
}

wf_cast_t *wf_cast_for(enum wf_dtype from, enum wf_dtype to, bool portable)
{
    return wf_dtype_castable(from, to) ? wf_cast_bare_for(from, to, WF_CAST_SATURATE, portable)
                                       : NULL;
}

wf_cast_t *wf_cast_streaming_for(enum wf_dtype from, enum wf_dtype to)
{
    return wf_dtype_castable(from, to) ? wf_cast_bare_streaming_for(from, to, WF_CAST_SATURATE)
                                       : NULL;
}

void wf_cast_fence(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}
