/* quant_x86.c - strips of blocks into codes and back with AVX2 + F16C and with AVX-512 (F, BW, VL).
 *
 * As in casts_x86.c, each instruction set has a loop or two, of which the compiler makes a kernel
 * per format and arithmetic. Rows have a tail: under masks with AVX-512, by the reference with
 * AVX2.
 */
#include "models/quant_kernels.h"
#include "models/simd_x86.h"

#if defined(__x86_64__)

/* A strip moves past the caches if all its blocks begin where such stores must. */
INLINE bool may_stream(const struct wf_quant_strip *strip)
{
    bool one = strip->block_columns >= strip->columns;
    return strip->streaming && (one || strip->block_columns % VECTOR == 0) &&
           ((uintptr_t)strip->dst | strip->dst_row_bytes) % VECTOR == 0;
}

/* Lines of the strip after this one, as many as `bytes` at `at` have. */
INLINE void fetch_ahead(const struct wf_quant_strip *strip, const char *at, size_t bytes)
{
    if (strip->ahead_bytes != 0) {
        for (size_t line = 0; line < bytes; line += 64) {
            _mm_prefetch(at + strip->ahead_bytes + (int64_t)line, _MM_HINT_T1);
        }
    }
}

/* Columns of the block that begins at `first`. */
INLINE uint64_t width_of(const struct wf_quant_strip *strip, uint64_t first)
{
    uint64_t left = strip->columns - first;
    return left < strip->block_columns ? left : strip->block_columns;
}

/* What is left of a block in columns [first, end), as a strip for the reference. */
INLINE struct wf_quant_strip rest_of(const struct wf_quant_strip *strip, uint64_t first,
                                     uint64_t end, size_t src_bytes)
{
    struct wf_quant_strip rest = *strip;
    rest.src += first * src_bytes;
    rest.columns = rest.block_columns = end - first;
    return rest;
}

/* The same of one row, to be converted. */
INLINE struct wf_quant_strip rest_of_row(const struct wf_quant_strip *strip, const char *src,
                                         char *dst, uint64_t columns, const float *factor)
{
    return (struct wf_quant_strip){.src = src,
                                   .dst = dst,
                                   .rows = 1,
                                   .columns = columns,
                                   .block_columns = columns,
                                   .src_row_bytes = strip->src_row_bytes,
                                   .dst_row_bytes = strip->dst_row_bytes,
                                   .factors = factor};
}

/* --- AVX-512 --------------------------------------------------------------------------------- */

enum { STEP512 = 64 /* elements: as many codes as a vector has */ };

AVX512 INLINE __m512i masked_load_512(bool wide, const char *at, uint64_t count)
{
    return wide ? _mm512_maskz_loadu_epi32((__mmask16)((1u << count) - 1), at)
                : _mm512_maskz_loadu_epi16((__mmask32)((1u << count) - 1), at);
}

AVX512 INLINE __m512i more_of_512(bool wide, __m512i most, __m512i bits)
{
    return wide ? _mm512_max_epu32(most, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)))
                : _mm512_max_epu16(most, _mm512_and_si512(bits, _mm512_set1_epi16(0x7fff)));
}

/* The largest magnitude of `columns` columns from `src` on. */
AVX512 INLINE uint32_t block_amax_512(bool wide, const struct wf_quant_strip *strip,
                                      const char *src, uint64_t columns)
{
    uint64_t step = wide ? 16 : 32;
    __m512i most = _mm512_setzero_si512(), other = most;
    for (uint64_t row = 0; row < strip->rows; row++) {
        const char *at = src + row * strip->src_row_bytes;
        uint64_t left = columns;
        for (; left >= 2 * step; left -= 2 * step, at += 128) {
            most = more_of_512(wide, most, _mm512_loadu_si512(at));
            other = more_of_512(wide, other, _mm512_loadu_si512(at + 64));
        }
        if (left >= step) {
            most = more_of_512(wide, most, _mm512_loadu_si512(at));
            left -= step;
            at += 64;
        }
        if (left > 0) {
            other = more_of_512(wide, other, masked_load_512(wide, at, left));
        }
    }
    if (wide) {
        return _mm512_reduce_max_epu32(_mm512_max_epu32(most, other));
    }
    most = _mm512_max_epu16(most, other);
    return _mm512_reduce_max_epu32(_mm512_max_epu32(
        _mm512_and_si512(most, _mm512_set1_epi32(0xffff)), _mm512_srli_epi32(most, 16)));
}

AVX512 INLINE void amax512(enum wf_dtype from, const struct wf_quant_strip *strip,
                           uint32_t *amax_out)
{
    for (uint64_t first = 0; first < strip->columns; first += strip->block_columns) {
        *amax_out++ = block_amax_512(from == WF_DTYPE_F32, strip,
                                     strip->src + first * size_of(from), width_of(strip, first));
    }
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
                            const struct wf_quant_strip *strip, bool streaming)
{
    size_t step_bytes = STEP512 * size_of(from);
    for (uint64_t row = 0; row < strip->rows; row++) {
        const char *src = strip->src + row * strip->src_row_bytes;
        char *dst = strip->dst + row * strip->dst_row_bytes;
        const float *factor = strip->factors;
        for (uint64_t first = 0; first < strip->columns; first += strip->block_columns) {
            __m512 by = _mm512_set1_ps(*factor++);
            uint64_t left = width_of(strip, first);
            for (; left >= STEP512; left -= STEP512, src += step_bytes, dst += STEP512) {
                fetch_ahead(strip, src, step_bytes);
                put512(dst, step_of512(from, act, src, by, ~(__mmask64)0), streaming);
            }
            __mmask64 some = ((__mmask64)1 << left) - 1;
            if (left > 0) {
                _mm512_mask_storeu_epi8(dst, some, step_of512(from, act, src, by, some));
            }
            src += left * size_of(from);
            dst += left;
        }
    }
}

AVX512 INLINE __m512 value_of512(__m512 code, __m512 factor)
{
    __m512 value = _mm512_mul_ps(code, factor);
    return _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q),
                              _mm512_set1_ps(__builtin_nanf("")));
}

AVX512 INLINE void values512(enum wf_dtype to, wf_quant_convert_t *reference,
                             const struct wf_quant_strip *strip, bool streaming)
{
    for (uint64_t row = 0; row < strip->rows; row++) {
        const char *src = strip->src + row * strip->src_row_bytes;
        char *dst = strip->dst + row * strip->dst_row_bytes;
        const float *factor = strip->factors;
        for (uint64_t first = 0; first < strip->columns; first += strip->block_columns) {
            __m512 by = _mm512_set1_ps(*factor);
            uint64_t left = width_of(strip, first);
            for (; left >= 32; left -= 32, src += 32, dst += 32 * size_of(to)) {
                fetch_ahead(strip, src, 32);
                struct block512 values = load_e4m3_512(src);
                values.low = value_of512(values.low, by);
                values.high = value_of512(values.high, by);
                store512(to, false, dst, values, streaming);
            }
            if (left > 0) {
                struct wf_quant_strip rest = rest_of_row(strip, src, dst, left, factor);
                reference(&rest);
            }
            src += left;
            dst += left * size_of(to);
            factor++;
        }
    }
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

AVX2 INLINE uint32_t block_amax_256(bool wide, const struct wf_quant_strip *strip, const char *src,
                                    uint64_t vectors)
{
    __m256i mask = wide ? _mm256_set1_epi32(0x7fffffff) : _mm256_set1_epi16(0x7fff);
    __m256i most = _mm256_setzero_si256();
    for (uint64_t row = 0; row < strip->rows; row++) {
        const char *at = src + row * strip->src_row_bytes;
        for (uint64_t i = 0; i < vectors; i++, at += 32) {
            __m256i bits = _mm256_and_si256(_mm256_loadu_si256((const void *)at), mask);
            most = wide ? _mm256_max_epu32(most, bits) : _mm256_max_epu16(most, bits);
        }
    }
    return most_of256(wide ? most
                           : _mm256_max_epu32(_mm256_and_si256(most, _mm256_set1_epi32(0xffff)),
                                              _mm256_srli_epi32(most, 16)));
}

AVX2 INLINE void amax256(enum wf_dtype from, wf_quant_amax_t *reference,
                         const struct wf_quant_strip *strip, uint32_t *amax_out)
{
    uint64_t step = 32 / size_of(from);
    for (uint64_t first = 0; first < strip->columns; first += strip->block_columns) {
        uint64_t width = width_of(strip, first), whole = width / step * step;
        uint32_t amax = block_amax_256(from == WF_DTYPE_F32, strip,
                                       strip->src + first * size_of(from), width / step);
        if (whole < width) {
            struct wf_quant_strip rest =
                rest_of(strip, first + whole, first + width, size_of(from));
            uint32_t rest_amax;
            reference(&rest, &rest_amax);
            amax = amax > rest_amax ? amax : rest_amax;
        }
        *amax_out++ = amax;
    }
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
                          const struct wf_quant_strip *strip, bool streaming)
{
    size_t step_bytes = STEP256 * size_of(from);
    for (uint64_t row = 0; row < strip->rows; row++) {
        const char *src = strip->src + row * strip->src_row_bytes;
        char *dst = strip->dst + row * strip->dst_row_bytes;
        const float *factor = strip->factors;
        for (uint64_t first = 0; first < strip->columns; first += strip->block_columns) {
            __m256 by = _mm256_set1_ps(*factor);
            uint64_t left = width_of(strip, first);
            for (; left >= STEP256; left -= STEP256, src += step_bytes, dst += STEP256) {
                fetch_ahead(strip, src, step_bytes);
                struct block256 values = load256(from, src);
                put_codes_256(dst, codes_of256(from, act, values.low, by),
                              codes_of256(from, act, values.high, by), streaming);
            }
            if (left > 0) {
                struct wf_quant_strip rest = rest_of_row(strip, src, dst, left, factor);
                reference(&rest);
            }
            src += left * size_of(from);
            dst += left;
            factor++;
        }
    }
}

AVX2 INLINE __m256 value_of256(__m256 code, __m256 factor)
{
    __m256 value = _mm256_mul_ps(code, factor);
    return _mm256_blendv_ps(value, _mm256_set1_ps(__builtin_nanf("")),
                            _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
}

AVX2 INLINE void values256(enum wf_dtype to, wf_quant_convert_t *reference,
                           const struct wf_quant_strip *strip, bool streaming)
{
    for (uint64_t row = 0; row < strip->rows; row++) {
        const char *src = strip->src + row * strip->src_row_bytes;
        char *dst = strip->dst + row * strip->dst_row_bytes;
        const float *factor = strip->factors;
        for (uint64_t first = 0; first < strip->columns; first += strip->block_columns) {
            __m256 by = _mm256_set1_ps(*factor);
            uint64_t left = width_of(strip, first);
            for (; left >= STEP256; left -= STEP256, src += STEP256, dst += STEP256 * size_of(to)) {
                fetch_ahead(strip, src, STEP256);
                struct block256 values = load_e4m3_256(src);
                values.low = value_of256(values.low, by);
                values.high = value_of256(values.high, by);
                store256(to, false, dst, values, streaming);
            }
            if (left > 0) {
                struct wf_quant_strip rest = rest_of_row(strip, src, dst, left, factor);
                reference(&rest);
            }
            src += left;
            dst += left * size_of(to);
            factor++;
        }
    }
}

/* --- kernels --------------------------------------------------------------------------------- */

#define REFERENCE(member, format) wf_quant_portable_kernels.member[WF_QUANT_FORMAT_##format]

#define CODES(format, dtype, act)                                                        \
    AVX512 static void avx512_codes_##format##_##act(const struct wf_quant_strip *strip) \
    {                                                                                    \
        if (may_stream(strip)) {                                                         \
            codes512(WF_DTYPE_##dtype, WF_QUANT_ACT_##act, strip, true);                 \
        } else {                                                                         \
            codes512(WF_DTYPE_##dtype, WF_QUANT_ACT_##act, strip, false);                \
        }                                                                                \
    }                                                                                    \
    AVX2 static void avx2_codes_##format##_##act(const struct wf_quant_strip *strip)     \
    {                                                                                    \
        wf_quant_convert_t *reference = REFERENCE(codes, format)[WF_QUANT_ACT_##act];    \
        if (may_stream(strip)) {                                                         \
            codes256(WF_DTYPE_##dtype, WF_QUANT_ACT_##act, reference, strip, true);      \
        } else {                                                                         \
            codes256(WF_DTYPE_##dtype, WF_QUANT_ACT_##act, reference, strip, false);     \
        }                                                                                \
    }

#define KERNELS(format, dtype)                                                                  \
    AVX512 static void avx512_amax_##format(const struct wf_quant_strip *strip,                 \
                                            uint32_t *amax_out)                                 \
    {                                                                                           \
        amax512(WF_DTYPE_##dtype, strip, amax_out);                                             \
    }                                                                                           \
    AVX2 static void avx2_amax_##format(const struct wf_quant_strip *strip, uint32_t *amax_out) \
    {                                                                                           \
        amax256(WF_DTYPE_##dtype, REFERENCE(amax, format), strip, amax_out);                    \
    }                                                                                           \
    CODES(format, dtype, multiply)                                                              \
    CODES(format, dtype, divide)                                                                \
    CODES(format, dtype, divide_narrow)                                                         \
    AVX512 static void avx512_values_##format(const struct wf_quant_strip *strip)               \
    {                                                                                           \
        if (may_stream(strip)) {                                                                \
            values512(WF_DTYPE_##dtype, REFERENCE(values, format), strip, true);                \
        } else {                                                                                \
            values512(WF_DTYPE_##dtype, REFERENCE(values, format), strip, false);               \
        }                                                                                       \
    }                                                                                           \
    AVX2 static void avx2_values_##format(const struct wf_quant_strip *strip)                   \
    {                                                                                           \
        if (may_stream(strip)) {                                                                \
            values256(WF_DTYPE_##dtype, REFERENCE(values, format), strip, true);                \
        } else {                                                                                \
            values256(WF_DTYPE_##dtype, REFERENCE(values, format), strip, false);               \
        }                                                                                       \
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
