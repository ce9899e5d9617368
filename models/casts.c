/* casts.c - the reference casts in portable C, and the choice of a faster path at run time. */
#include "models/casts.h"

#include "models/casts_kernels.h"

/* --- the reference, one number at a time ----------------------------------------------------- */

static inline uint32_t f32_bits_of_bf16(uint16_t bits)
{
    return (uint32_t)bits << 16;
}

static inline uint16_t bf16_of_f32_bits(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0xffff;
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

static inline uint32_t f32_bits_of_f16(uint16_t bits)
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

static inline uint16_t f16_of_f32_bits(uint32_t bits)
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
    uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u, shift = 126 - (magnitude >> 23);
    uint32_t kept = fraction >> shift, rest = fraction & ((1u << shift) - 1);
    uint32_t half = 1u << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1) != 0);
    return (uint16_t)(sign | kept);
}

static inline uint16_t f16_of_bf16(uint16_t bits)
{
    return f16_of_f32_bits(f32_bits_of_bf16(bits));
}

static inline uint16_t bf16_of_f16(uint16_t bits)
{
    return bf16_of_f32_bits(f32_bits_of_f16(bits));
}

/* memcpy, because neither side need be aligned. */
#define PORTABLE(name, from_t, to_t, convert)                                \
    static void portable_##name(void *dst, const void *src, size_t n)        \
    {                                                                        \
        for (size_t i = 0; i < n; i++) {                                     \
            from_t from;                                                     \
            memcpy(&from, (const char *)src + i * sizeof from, sizeof from); \
            to_t to = convert(from);                                         \
            memcpy((char *)dst + i * sizeof to, &to, sizeof to);             \
        }                                                                    \
    }
PORTABLE(f32_to_bf16, uint32_t, uint16_t, bf16_of_f32_bits)
PORTABLE(f32_to_f16, uint32_t, uint16_t, f16_of_f32_bits)
PORTABLE(bf16_to_f32, uint16_t, uint32_t, f32_bits_of_bf16)
PORTABLE(bf16_to_f16, uint16_t, uint16_t, f16_of_bf16)
PORTABLE(f16_to_f32, uint16_t, uint32_t, f32_bits_of_f16)
PORTABLE(f16_to_bf16, uint16_t, uint16_t, bf16_of_f16)
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
#define PORTABLE_ROW(name, from, to) [WF_CAST_##name] = portable_##name,
    .plain = {WF_CAST_PAIR_MAP(PORTABLE_ROW)},
    .streaming = {WF_CAST_PAIR_MAP(PORTABLE_ROW)},
#undef PORTABLE_ROW
    .copy_streaming = {copy_1, copy_2, copy_4, copy_8},
};

/* --- the choice ------------------------------------------------------------------------------ */

#if defined(__clang__) /* which cannot be asked about it; processors with avx2 have it */
#define HAS_F16C() true
#else
#define HAS_F16C() __builtin_cpu_supports("f16c")
#endif

static const struct wf_cast_kernels *kernels(bool portable)
{
#if defined(__x86_64__)
    /* Each test reads a word that the C runtime filled at start. avx512_bf16 is not used: its
     * conversion takes subnormal numbers for zero. */
    if (!portable && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl")) {
        return &wf_cast_avx512_kernels;
    }
    if (!portable && __builtin_cpu_supports("avx2") && HAS_F16C()) {
        return &wf_cast_avx2_kernels;
    }
#endif
    (void)portable;
    return &wf_cast_portable_kernels;
}

static enum wf_cast_pair pair_of(enum wf_dtype from, enum wf_dtype to)
{
#define PAIR_TEST(name, pair_from, pair_to)                         \
    if (from == WF_DTYPE_##pair_from && to == WF_DTYPE_##pair_to) { \
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

wf_cast_t *wf_cast_for(enum wf_dtype from, enum wf_dtype to, bool portable)
{
    if (from == to) {
        return copy_for(copies, wf_dtype_bytes(from));
    }
    enum wf_cast_pair pair = pair_of(from, to);
    return pair == WF_CAST_PAIR_COUNT ? NULL : kernels(portable)->plain[pair];
}

wf_cast_t *wf_cast_streaming_for(enum wf_dtype from, enum wf_dtype to)
{
    const struct wf_cast_kernels *chosen = kernels(false);
    if (from == to) {
        return copy_for(chosen->copy_streaming, wf_dtype_bytes(from));
    }
    enum wf_cast_pair pair = pair_of(from, to);
    return pair == WF_CAST_PAIR_COUNT ? NULL : chosen->streaming[pair];
}

void wf_cast_fence(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}
