/* simd_x86.h - numbers of all floating-point formats into vectors of f32 and back, with AVX2 + F16C
 * and with AVX-512 (F, BW, VL), bit for bit as float_bits.h. Private to casts_x86.c and
 * quant_x86.c, whose functions it becomes a part of.
 *
 * A block is what one load or store handles: two vectors. `above_nan` is for e4m3 only. */
#ifndef WEFT_MODELS_SIMD_X86_H
#define WEFT_MODELS_SIMD_X86_H

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/dtype.h"

#define INLINE static inline __attribute__((always_inline))
#define AVX2 __attribute__((target("avx2,f16c")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,f16c")))

enum { VECTOR = 64 /* bytes that streaming stores are aligned to */ };

/* wf_dtype_bytes, known to the compiler. */
INLINE size_t size_of(enum wf_dtype dtype)
{
    bool is_fp8 = dtype == WF_DTYPE_F8_E4M3 || dtype == WF_DTYPE_F8_E5M2;
    return dtype == WF_DTYPE_F32 ? 4 : is_fp8 ? 1 : 2;
}

/* --- fp8 by arithmetic ----------------------------------------------------------------------- */

/* To round a number to k bits behind its leading one, add 2^(23 - k) times its power of two: what
 * stays at the low end of the sum's fraction is the number in units of its last place, and the
 * addition has rounded it. Below the format's least normal number that one's power of two is used,
 * which makes subnormal codes. The code is then those low bits and k times the exponent.
 *
 * A number that is too large is put down to one whose code is the right one, and so is NaN: 480 as
 * e4m3 and 114688 as e5m2 would have the codes that mean NaN. */
struct fp8_form {
    int kept_bits;
    uint32_t least_normal;  /* f32 bits */
    uint32_t above, nan;    /* f32 bits of what stands for a number too large, and for NaN */
    uint32_t exponent_bias; /* of the sum of low bits and exponent, modulo 128; even */
};

INLINE struct fp8_form form_of(enum wf_dtype to, bool above_nan)
{
    if (to == WF_DTYPE_F8_E5M2) {
        return (struct fp8_form){2, 0x38800000, 0x47800000, 0x47e00000, 104};
    }
    return (struct fp8_form){3, 0x3c800000, above_nan ? 0x43f00000 : 0x43e00000, 0x43f00000, 24};
}

/* --- AVX-512: blocks of 32 elements ---------------------------------------------------------- */

struct block512 {
    __m512 low, high;
};

AVX512 INLINE struct block512 widen_f16_512(__m512i bits)
{
    return (struct block512){_mm512_cvtph_ps(_mm512_castsi512_si256(bits)),
                             _mm512_cvtph_ps(_mm512_extracti64x4_epi64(bits, 1))};
}

/* As f16 e4m3's bits stand for 2^-8 times its value. */
AVX512 INLINE struct block512 load_e4m3_512(const char *src)
{
    __m512i codes = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)src));
    __m512i bits = _mm512_and_si512(_mm512_slli_epi16(codes, 7), _mm512_set1_epi16((short)0xbfff));
    __mmask32 nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(codes, _mm512_set1_epi16(0x7f)),
                                            _mm512_set1_epi16(0x7f));
    bits = _mm512_or_si512(bits, _mm512_maskz_mov_epi16(nan, _mm512_set1_epi16(0x7c00)));
    struct block512 block = widen_f16_512(bits);
    __m512 scale = _mm512_set1_ps(256);
    return (struct block512){_mm512_mul_ps(block.low, scale), _mm512_mul_ps(block.high, scale)};
}

AVX512 INLINE struct block512 load512(enum wf_dtype from, const char *src)
{
    if (from == WF_DTYPE_F32) {
        return (struct block512){_mm512_loadu_ps(src), _mm512_loadu_ps(src + 64)};
    }
    if (from == WF_DTYPE_F8_E4M3) {
        return load_e4m3_512(src);
    }
    if (from == WF_DTYPE_F8_E5M2) {
        __m512i codes = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)src));
        return widen_f16_512(_mm512_slli_epi16(codes, 8));
    }
    __m256i low = _mm256_loadu_si256((const void *)src);
    __m256i high = _mm256_loadu_si256((const void *)(src + 32));
    if (from == WF_DTYPE_F16) {
        return (struct block512){_mm512_cvtph_ps(low), _mm512_cvtph_ps(high)};
    }
    return (struct block512){
        _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(low), 16)),
        _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16))};
}

AVX512 INLINE __m256i bf16_of512(__m512 value)
{
    __m512i bits = _mm512_castps_si512(value);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    rounded = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(-1));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

/* Codes of |value|, with the sign of `signs`, in the low byte of each element; the others are 0. */
AVX512 INLINE __m512i fp8_of512(struct fp8_form form, __m512 value, __m512i signs)
{
    __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(value), _mm512_set1_epi32(0x7fffffff));
    __m512 most = _mm512_castsi512_ps(_mm512_set1_epi32((int)form.above));
    __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32((int)form.nan));
    __mmask16 number = _mm512_cmp_ps_mask(value, value, _CMP_ORD_Q);
    __m512 bounded = _mm512_mask_min_ps(nan, number, _mm512_castsi512_ps(magnitude), most);
    __m512i exponent =
        _mm512_and_si512(_mm512_castps_si512(bounded), _mm512_set1_epi32(0x7f800000));
    exponent = _mm512_max_epi32(exponent, _mm512_set1_epi32((int)form.least_normal));
    __m512i addend = _mm512_add_epi32(
        exponent, _mm512_set1_epi32(((23 - form.kept_bits) << 23) + (int)form.exponent_bias));
    __m512i sum = _mm512_castps_si512(_mm512_add_ps(bounded, _mm512_castsi512_ps(addend)));
    __m512i code = _mm512_add_epi32(sum, _mm512_srli_epi32(addend, 23 - (unsigned)form.kept_bits));
    /* Bits 0 to 6 of the code, the others of what the shift leaves: the sign. (c ? a : b) */
    return _mm512_ternarylogic_epi32(code, _mm512_srli_epi32(signs, 24), _mm512_set1_epi32(0x7f),
                                     0xe4);
}

AVX512 INLINE void put512(char *dst, __m512i value, bool streaming)
{
    if (streaming) {
        _mm512_stream_si512((void *)dst, value);
    } else {
        _mm512_storeu_si512(dst, value);
    }
}

AVX512 INLINE void store_fp8_512(struct fp8_form form, char *dst, struct block512 block,
                                 bool streaming)
{
    __m128i low = _mm512_cvtepi32_epi8(fp8_of512(form, block.low, _mm512_castps_si512(block.low)));
    __m128i high =
        _mm512_cvtepi32_epi8(fp8_of512(form, block.high, _mm512_castps_si512(block.high)));
    __m256i both = _mm256_set_m128i(high, low);
    if (streaming) {
        _mm256_stream_si256((void *)dst, both);
    } else {
        _mm256_storeu_si256((void *)dst, both);
    }
}

AVX512 INLINE void store512(enum wf_dtype to, bool above_nan, char *dst, struct block512 block,
                            bool streaming)
{
    if (to == WF_DTYPE_F32) {
        put512(dst, _mm512_castps_si512(block.low), streaming);
        put512(dst + 64, _mm512_castps_si512(block.high), streaming);
        return;
    }
    if (size_of(to) == 1) {
        store_fp8_512(form_of(to, above_nan), dst, block, streaming);
        return;
    }
    __m256i low, high;
    if (to == WF_DTYPE_F16) {
        low = _mm512_cvtps_ph(block.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        high = _mm512_cvtps_ph(block.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    } else {
        low = bf16_of512(block.low);
        high = bf16_of512(block.high);
    }
    put512(dst, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), streaming);
}

/* --- AVX2: blocks of 16 elements ------------------------------------------------------------- */

struct block256 {
    __m256 low, high;
};

AVX2 INLINE struct block256 widen_f16_256(__m256i bits)
{
    return (struct block256){_mm256_cvtph_ps(_mm256_castsi256_si128(bits)),
                             _mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1))};
}

AVX2 INLINE struct block256 load_e4m3_256(const char *src)
{
    __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)src));
    __m256i bits = _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16((short)0xbfff));
    __m256i low = _mm256_set1_epi16(0x7f);
    __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(codes, low), low);
    bits = _mm256_or_si256(bits, _mm256_and_si256(nan, _mm256_set1_epi16(0x7c00)));
    struct block256 block = widen_f16_256(bits);
    __m256 scale = _mm256_set1_ps(256);
    return (struct block256){_mm256_mul_ps(block.low, scale), _mm256_mul_ps(block.high, scale)};
}

AVX2 INLINE struct block256 load256(enum wf_dtype from, const char *src)
{
    if (from == WF_DTYPE_F32) {
        return (struct block256){_mm256_loadu_ps((const void *)src),
                                 _mm256_loadu_ps((const void *)(src + 32))};
    }
    if (from == WF_DTYPE_F8_E4M3) {
        return load_e4m3_256(src);
    }
    __m128i low = _mm_loadu_si128((const void *)src);
    if (from == WF_DTYPE_F8_E5M2) {
        return widen_f16_256(_mm256_slli_epi16(_mm256_cvtepu8_epi16(low), 8));
    }
    __m128i high = _mm_loadu_si128((const void *)(src + 16));
    if (from == WF_DTYPE_F16) {
        return (struct block256){_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)};
    }
    return (struct block256){
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16)),
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(high), 16))};
}

/* The upper half of each element holds zeros, so that a pack with saturation changes nothing. */
AVX2 INLINE __m256i bf16_of256(__m256 value)
{
    __m256i bits = _mm256_castps_si256(value);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_or_si256(rounded, nan), 16);
}

AVX2 INLINE __m256i fp8_of256(struct fp8_form form, __m256 value, __m256i signs)
{
    __m256 magnitude = _mm256_and_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
    __m256 most = _mm256_castsi256_ps(_mm256_set1_epi32((int)form.above));
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32((int)form.nan));
    __m256 bounded = _mm256_blendv_ps(_mm256_min_ps(magnitude, most), nan,
                                      _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    __m256i exponent =
        _mm256_and_si256(_mm256_castps_si256(bounded), _mm256_set1_epi32(0x7f800000));
    exponent = _mm256_max_epi32(exponent, _mm256_set1_epi32((int)form.least_normal));
    __m256i addend = _mm256_add_epi32(
        exponent, _mm256_set1_epi32(((23 - form.kept_bits) << 23) + (int)form.exponent_bias));
    __m256i sum = _mm256_castps_si256(_mm256_add_ps(bounded, _mm256_castsi256_ps(addend)));
    __m256i code = _mm256_add_epi32(sum, _mm256_srli_epi32(addend, 23 - form.kept_bits));
    return _mm256_or_si256(_mm256_and_si256(code, _mm256_set1_epi32(0x7f)),
                           _mm256_and_si256(_mm256_srli_epi32(signs, 24), _mm256_set1_epi32(0x80)));
}

AVX2 INLINE void put256(char *dst, __m256i value, bool streaming)
{
    if (streaming) {
        _mm256_stream_si256((void *)dst, value);
    } else {
        _mm256_storeu_si256((void *)dst, value);
    }
}

/* Sixteen codes, each in the low byte of an element of 32 bits. */
AVX2 INLINE void put_codes_256(char *dst, __m256i low, __m256i high, bool streaming)
{
    __m256i packed = _mm256_packus_epi32(low, high);
    packed = _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0));
    __m128i codes =
        _mm_packus_epi16(_mm256_castsi256_si128(packed), _mm256_extracti128_si256(packed, 1));
    if (streaming) {
        _mm_stream_si128((void *)dst, codes);
    } else {
        _mm_storeu_si128((void *)dst, codes);
    }
}

AVX2 INLINE void store256(enum wf_dtype to, bool above_nan, char *dst, struct block256 block,
                          bool streaming)
{
    if (to == WF_DTYPE_F32) {
        put256(dst, _mm256_castps_si256(block.low), streaming);
        put256(dst + 32, _mm256_castps_si256(block.high), streaming);
        return;
    }
    if (size_of(to) == 1) {
        struct fp8_form form = form_of(to, above_nan);
        put_codes_256(dst, fp8_of256(form, block.low, _mm256_castps_si256(block.low)),
                      fp8_of256(form, block.high, _mm256_castps_si256(block.high)), streaming);
        return;
    }
    if (to == WF_DTYPE_F16) {
        __m128i low = _mm256_cvtps_ph(block.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        __m128i high = _mm256_cvtps_ph(block.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        put256(dst, _mm256_set_m128i(high, low), streaming);
        return;
    }
    __m256i packed = _mm256_packus_epi32(bf16_of256(block.low), bf16_of256(block.high));
    put256(dst, _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)), streaming);
}

#endif
#endif
