/* quant_x86.c - blocks into codes and back with AVX2 + F16C and with AVX-512 (F, BW, VL).
 *
 * As in casts_x86.c, each instruction set has a loop or two, of which the compiler makes a kernel
 * per format and arithmetic. Rows have a tail: under masks with AVX-512, by the reference with
 * AVX2.
 */
#include "models/quant_kernels.h"
#include "models/simd_x86.h"

#if defined(__x86_64__)

/* A block moves past the caches if each of its rows begins where such stores must. */
INLINE bool may_stream(const struct wf_quant_block *block)
{
    return block->streaming && ((uintptr_t)block->dst | block->dst_row_bytes) % VECTOR == 0;
}

/* Lines of the block after this one, as many as `bytes` at `at` have. */
INLINE void fetch_ahead(const struct wf_quant_block *block, const char *at, size_t bytes)
{
    if (block->ahead_bytes != 0) {
        for (size_t line = 0; line < bytes; line += 64) {
            _mm_prefetch(at + block->ahead_bytes + (int64_t)line, _MM_HINT_T0);
        }
    }
}

/* The rest of a block's columns, from `first` on, by the reference. */
INLINE struct wf_quant_block rest_of(const struct wf_quant_block *block, uint64_t first,
                                     size_t src_bytes, size_t dst_bytes)
{
    struct wf_quant_block rest = *block;
    rest.src += first * src_bytes;
    rest.dst += first * dst_bytes;
    rest.columns -= first;
    return rest;
}

/* --- AVX-512 --------------------------------------------------------------------------------- */

enum { STEP512 = 64 /* elements: as many codes as a vector has */ };

AVX512 INLINE uint32_t amax_wide_512(const struct wf_quant_block *block)
{
    __m512i mask = _mm512_set1_epi32(0x7fffffff), most = _mm512_setzero_si512(), other = most;
    for (uint64_t row = 0; row < block->rows; row++) {
        const char *at = block->src + row * block->src_row_bytes;
        uint64_t i = 0;
        for (; i + 32 <= block->columns; i += 32, at += 128) {
            most = _mm512_max_epu32(most, _mm512_and_si512(_mm512_loadu_si512(at), mask));
            other = _mm512_max_epu32(other, _mm512_and_si512(_mm512_loadu_si512(at + 64), mask));
        }
        for (; i < block->columns; i += 16, at += 64) {
            uint64_t left = block->columns - i;
            __mmask16 some = (__mmask16)(left >= 16 ? 0xffff : (1u << left) - 1);
            most =
                _mm512_max_epu32(most, _mm512_and_si512(_mm512_maskz_loadu_epi32(some, at), mask));
        }
    }
    return _mm512_reduce_max_epu32(_mm512_max_epu32(most, other));
}

AVX512 INLINE uint32_t amax_half_512(const struct wf_quant_block *block)
{
    __m512i mask = _mm512_set1_epi16(0x7fff), most = _mm512_setzero_si512(), other = most;
    for (uint64_t row = 0; row < block->rows; row++) {
        const char *at = block->src + row * block->src_row_bytes;
        uint64_t i = 0;
        for (; i + 64 <= block->columns; i += 64, at += 128) {
            most = _mm512_max_epu16(most, _mm512_and_si512(_mm512_loadu_si512(at), mask));
            other = _mm512_max_epu16(other, _mm512_and_si512(_mm512_loadu_si512(at + 64), mask));
        }
        for (; i < block->columns; i += 32, at += 64) {
            uint64_t left = block->columns - i;
            __mmask32 some = left >= 32 ? 0xffffffffu : (1u << left) - 1;
            most =
                _mm512_max_epu16(most, _mm512_and_si512(_mm512_maskz_loadu_epi16(some, at), mask));
        }
    }
    most = _mm512_max_epu16(most, other);
    return _mm512_reduce_max_epu32(_mm512_max_epu32(
        _mm512_and_si512(most, _mm512_set1_epi32(0xffff)), _mm512_srli_epi32(most, 16)));
}

/* Elements 16 * part and on of a step; those outside `some` are 0. */
AVX512 INLINE __m512 load_part_512(enum wf_dtype from, const char *src, int part, __mmask64 some)
{
    __mmask16 lanes = (__mmask16)(some >> (16 * part));
    const char *at = src + 16 * (size_t)part * size_of(from);
    if (from == WF_DTYPE_F32) {
        return _mm512_maskz_loadu_ps(lanes, at);
    }
    __m256i half = _mm256_maskz_loadu_epi16(lanes, at);
    return from == WF_DTYPE_F16
               ? _mm512_cvtph_ps(half)
               : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

AVX512 INLINE __m512i codes_of512(enum wf_dtype from, enum wf_quant_act act, __m512 value,
                                  __m512 factor)
{
    __m512 scaled =
        act == WF_QUANT_ACT_multiply ? _mm512_mul_ps(value, factor) : _mm512_div_ps(value, factor);
    if (act == WF_QUANT_ACT_divide_narrow && from == WF_DTYPE_BF16) {
        scaled =
            _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16_of512(scaled)), 16));
    }
    if (act == WF_QUANT_ACT_divide_narrow && from == WF_DTYPE_F16) {
        scaled =
            _mm512_cvtph_ps(_mm512_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    return fp8_of512(form_of(WF_DTYPE_F8_E4M3, false), scaled, _mm512_castps_si512(value));
}

AVX512 INLINE __m512i step_of512(enum wf_dtype from, enum wf_quant_act act, const char *src,
                                 __m512 factor, __mmask64 some)
{
    __m512i a = codes_of512(from, act, load_part_512(from, src, 0, some), factor);
    __m512i b = codes_of512(from, act, load_part_512(from, src, 1, some), factor);
    __m512i c = codes_of512(from, act, load_part_512(from, src, 2, some), factor);
    __m512i d = codes_of512(from, act, load_part_512(from, src, 3, some), factor);
    /* Packs work within quarters: [a0 b0 c0 d0 a1 b1 ...], four codes each. */
    __m512i packed = _mm512_packus_epi16(_mm512_packus_epi32(a, b), _mm512_packus_epi32(c, d));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), packed);
}

AVX512 INLINE void codes512(enum wf_dtype from, enum wf_quant_act act,
                            const struct wf_quant_block *block, bool streaming)
{
    __m512 factor = _mm512_set1_ps(block->factor);
    size_t step_bytes = STEP512 * size_of(from);
    for (uint64_t row = 0; row < block->rows; row++) {
        const char *src = block->src + row * block->src_row_bytes;
        char *dst = block->dst + row * block->dst_row_bytes;
        uint64_t i = 0;
        for (; i + STEP512 <= block->columns; i += STEP512, src += step_bytes) {
            fetch_ahead(block, src, step_bytes);
            put512(dst + i, step_of512(from, act, src, factor, ~(__mmask64)0), streaming);
        }
        if (i < block->columns) {
            __mmask64 some = ((__mmask64)1 << (block->columns - i)) - 1;
            _mm512_mask_storeu_epi8(dst + i, some, step_of512(from, act, src, factor, some));
        }
    }
}

AVX512 INLINE void values512(enum wf_dtype to, wf_quant_convert_t *reference,
                             const struct wf_quant_block *block, bool streaming)
{
    __m512 factor = _mm512_set1_ps(block->factor), nan = _mm512_set1_ps(__builtin_nanf(""));
    uint64_t whole = block->columns / 32 * 32;
    for (uint64_t row = 0; row < block->rows; row++) {
        const char *src = block->src + row * block->src_row_bytes;
        char *dst = block->dst + row * block->dst_row_bytes;
        for (uint64_t i = 0; i < whole; i += 32) {
            fetch_ahead(block, src + i, 32);
            struct block512 values = load_e4m3_512(src + i);
            values.low = _mm512_mul_ps(values.low, factor);
            values.high = _mm512_mul_ps(values.high, factor);
            values.low = _mm512_mask_mov_ps(
                values.low, _mm512_cmp_ps_mask(values.low, values.low, _CMP_UNORD_Q), nan);
            values.high = _mm512_mask_mov_ps(
                values.high, _mm512_cmp_ps_mask(values.high, values.high, _CMP_UNORD_Q), nan);
            store512(to, false, dst + i * size_of(to), values, streaming);
        }
    }
    struct wf_quant_block rest = rest_of(block, whole, 1, size_of(to));
    reference(&rest);
}

/* --- AVX2 ------------------------------------------------------------------------------------ */

enum { STEP256 = 16 /* elements: a block of simd_x86.h */ };

/* The largest of eight. */
AVX2 INLINE uint32_t most_of256(__m256i most)
{
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(1, 0, 3, 2)));
    four = _mm_max_epu32(four, _mm_shuffle_epi32(four, _MM_SHUFFLE(2, 3, 0, 1)));
    return (uint32_t)_mm_cvtsi128_si32(four);
}

AVX2 INLINE uint32_t amax256(enum wf_dtype from, wf_quant_amax_t *reference,
                             const struct wf_quant_block *block)
{
    bool wide = from == WF_DTYPE_F32;
    __m256i mask = wide ? _mm256_set1_epi32(0x7fffffff) : _mm256_set1_epi16(0x7fff);
    __m256i most = _mm256_setzero_si256();
    uint64_t step = 32 / size_of(from), whole = block->columns / step * step;
    for (uint64_t row = 0; row < block->rows; row++) {
        const char *at = block->src + row * block->src_row_bytes;
        for (uint64_t i = 0; i < whole; i += step, at += 32) {
            __m256i bits = _mm256_and_si256(_mm256_loadu_si256((const void *)at), mask);
            most = wide ? _mm256_max_epu32(most, bits) : _mm256_max_epu16(most, bits);
        }
    }
    if (!wide) {
        most = _mm256_max_epu32(_mm256_and_si256(most, _mm256_set1_epi32(0xffff)),
                                _mm256_srli_epi32(most, 16));
    }
    struct wf_quant_block rest = rest_of(block, whole, size_of(from), 0);
    uint32_t amax = most_of256(most), rest_amax = reference(&rest);
    return amax > rest_amax ? amax : rest_amax;
}

AVX2 INLINE __m256i codes_of256(enum wf_dtype from, enum wf_quant_act act, __m256 value,
                                __m256 factor)
{
    __m256 scaled =
        act == WF_QUANT_ACT_multiply ? _mm256_mul_ps(value, factor) : _mm256_div_ps(value, factor);
    if (act == WF_QUANT_ACT_divide_narrow && from == WF_DTYPE_BF16) {
        scaled = _mm256_castsi256_ps(_mm256_slli_epi32(bf16_of256(scaled), 16));
    }
    if (act == WF_QUANT_ACT_divide_narrow && from == WF_DTYPE_F16) {
        scaled =
            _mm256_cvtph_ps(_mm256_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    return fp8_of256(form_of(WF_DTYPE_F8_E4M3, false), scaled, _mm256_castps_si256(value));
}

AVX2 INLINE void codes256(enum wf_dtype from, enum wf_quant_act act, wf_quant_convert_t *reference,
                          const struct wf_quant_block *block, bool streaming)
{
    __m256 factor = _mm256_set1_ps(block->factor);
    uint64_t whole = block->columns / STEP256 * STEP256;
    size_t step_bytes = STEP256 * size_of(from);
    for (uint64_t row = 0; row < block->rows; row++) {
        const char *src = block->src + row * block->src_row_bytes;
        char *dst = block->dst + row * block->dst_row_bytes;
        for (uint64_t i = 0; i < whole; i += STEP256, src += step_bytes) {
            fetch_ahead(block, src, step_bytes);
            struct block256 values = load256(from, src);
            put_codes_256(dst + i, codes_of256(from, act, values.low, factor),
                          codes_of256(from, act, values.high, factor), streaming);
        }
    }
    struct wf_quant_block rest = rest_of(block, whole, size_of(from), 1);
    reference(&rest);
}

AVX2 INLINE void values256(enum wf_dtype to, wf_quant_convert_t *reference,
                           const struct wf_quant_block *block, bool streaming)
{
    __m256 factor = _mm256_set1_ps(block->factor), nan = _mm256_set1_ps(__builtin_nanf(""));
    uint64_t whole = block->columns / STEP256 * STEP256;
    for (uint64_t row = 0; row < block->rows; row++) {
        const char *src = block->src + row * block->src_row_bytes;
        char *dst = block->dst + row * block->dst_row_bytes;
        for (uint64_t i = 0; i < whole; i += STEP256) {
            fetch_ahead(block, src + i, STEP256);
            struct block256 values = load_e4m3_256(src + i);
            values.low = _mm256_mul_ps(values.low, factor);
            values.high = _mm256_mul_ps(values.high, factor);
            values.low = _mm256_blendv_ps(values.low, nan,
                                          _mm256_cmp_ps(values.low, values.low, _CMP_UNORD_Q));
            values.high = _mm256_blendv_ps(values.high, nan,
                                           _mm256_cmp_ps(values.high, values.high, _CMP_UNORD_Q));
            store256(to, false, dst + i * size_of(to), values, streaming);
        }
    }
    struct wf_quant_block rest = rest_of(block, whole, 1, size_of(to));
    reference(&rest);
}

/* --- kernels --------------------------------------------------------------------------------- */

#define REFERENCE(member, format) wf_quant_portable_kernels.member[WF_QUANT_FORMAT_##format]

#define CODES(format, dtype, act)                                                        \
    AVX512 static void avx512_codes_##format##_##act(const struct wf_quant_block *block) \
    {                                                                                    \
        if (may_stream(block)) {                                                         \
            codes512(WF_DTYPE_##dtype, WF_QUANT_ACT_##act, block, true);                 \
        } else {                                                                         \
            codes512(WF_DTYPE_##dtype, WF_QUANT_ACT_##act, block, false);                \
        }                                                                                \
    }                                                                                    \
    AVX2 static void avx2_codes_##format##_##act(const struct wf_quant_block *block)     \
    {                                                                                    \
        wf_quant_convert_t *reference = REFERENCE(codes, format)[WF_QUANT_ACT_##act];    \
        if (may_stream(block)) {                                                         \
            codes256(WF_DTYPE_##dtype, WF_QUANT_ACT_##act, reference, block, true);      \
        } else {                                                                         \
            codes256(WF_DTYPE_##dtype, WF_QUANT_ACT_##act, reference, block, false);     \
        }                                                                                \
    }

#define KERNELS(format, dtype)                                                                 \
    AVX512 static uint32_t avx512_amax_##format(const struct wf_quant_block *block)            \
    {                                                                                          \
        return WF_DTYPE_##dtype == WF_DTYPE_F32 ? amax_wide_512(block) : amax_half_512(block); \
    }                                                                                          \
    AVX2 static uint32_t avx2_amax_##format(const struct wf_quant_block *block)                \
    {                                                                                          \
        return amax256(WF_DTYPE_##dtype, REFERENCE(amax, format), block);                      \
    }                                                                                          \
    CODES(format, dtype, multiply)                                                             \
    CODES(format, dtype, divide)                                                               \
    CODES(format, dtype, divide_narrow)                                                        \
    AVX512 static void avx512_values_##format(const struct wf_quant_block *block)              \
    {                                                                                          \
        if (may_stream(block)) {                                                               \
            values512(WF_DTYPE_##dtype, REFERENCE(values, format), block, true);               \
        } else {                                                                               \
            values512(WF_DTYPE_##dtype, REFERENCE(values, format), block, false);              \
        }                                                                                      \
    }                                                                                          \
    AVX2 static void avx2_values_##format(const struct wf_quant_block *block)                  \
    {                                                                                          \
        if (may_stream(block)) {                                                               \
            values256(WF_DTYPE_##dtype, REFERENCE(values, format), block, true);               \
        } else {                                                                               \
            values256(WF_DTYPE_##dtype, REFERENCE(values, format), block, false);              \
        }                                                                                      \
    }
WF_QUANT_FORMAT_MAP(KERNELS)
#undef KERNELS
#undef CODES
#undef REFERENCE

#define ROW_512(kind, format) [WF_QUANT_FORMAT_##format] = avx512_##kind##_##format,
#define ROW_256(kind, format) [WF_QUANT_FORMAT_##format] = avx2_##kind##_##format,
#define AMAX_512(format, dtype) ROW_512(amax, format)
#define AMAX_256(format, dtype) ROW_256(amax, format)
#define VALUES_512(format, dtype) ROW_512(values, format)
#define VALUES_256(format, dtype) ROW_256(values, format)
#define CODES_512(format, dtype)                                    \
    [WF_QUANT_FORMAT_##format] = {avx512_codes_##format##_multiply, \
                                  avx512_codes_##format##_divide,   \
                                  avx512_codes_##format##_divide_narrow},
#define CODES_256(format, dtype)                                                                \
    [WF_QUANT_FORMAT_##format] = {avx2_codes_##format##_multiply, avx2_codes_##format##_divide, \
                                  avx2_codes_##format##_divide_narrow},

const struct wf_quant_kernels wf_quant_avx512_kernels = {
    .amax = {WF_QUANT_FORMAT_MAP(AMAX_512)},
    .codes = {WF_QUANT_FORMAT_MAP(CODES_512)},
    .values = {WF_QUANT_FORMAT_MAP(VALUES_512)},
};

const struct wf_quant_kernels wf_quant_avx2_kernels = {
    .amax = {WF_QUANT_FORMAT_MAP(AMAX_256)},
    .codes = {WF_QUANT_FORMAT_MAP(CODES_256)},
    .values = {WF_QUANT_FORMAT_MAP(VALUES_256)},
};

#endif
