/* casts.c - the reference casts in portable C, and the choice of a faster path at run time. */
#include "models/casts.h"

#include "models/casts_kernels.h"
#include "models/float_bits.h"

/* --- the reference, one number at a time ----------------------------------------------------- */

static inline uint16_t f16_of_bf16(uint16_t bits)
{
    return wf_f16_of_f32_bits(wf_f32_bits_of_bf16(bits));
}

static inline uint16_t bf16_of_f16(uint16_t bits)
{
    return wf_bf16_of_f32_bits(wf_f32_bits_of_f16(bits));
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
PORTABLE(f32_to_bf16, uint32_t, uint16_t, wf_bf16_of_f32_bits)
PORTABLE(f32_to_f16, uint32_t, uint16_t, wf_f16_of_f32_bits)
PORTABLE(bf16_to_f32, uint16_t, uint32_t, wf_f32_bits_of_bf16)
PORTABLE(bf16_to_f16, uint16_t, uint16_t, f16_of_bf16)
PORTABLE(f16_to_f32, uint16_t, uint32_t, wf_f32_bits_of_f16)
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
