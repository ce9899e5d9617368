/* casts_x86.c - the casts with AVX2 + F16C and with AVX-512 (F, BW, VL).
 *
 * Each instruction set has one loop that loads a block as f32, and stores it; the compiler makes a
 * kernel per pair of types out of it. Heads and tails that do not fill a block go to the reference.
 * Streaming stores need an aligned destination: where its elements cannot be aligned, the kernel
 * stores through the caches.
 */
#include "models/casts_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define AVX2 __attribute__((target("avx2,f16c")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,f16c")))

enum {
    VECTOR = 64, /* bytes that streaming stores are aligned to */
    /* Bytes of the source, into the second cache: a core waits for memory with more lines there
     * than in the first. 2 threads copy 20 GB/s with this, 17 with 2 KiB into the first, 16.7
     * without. */
    PREFETCH_AHEAD = 8192,
};

/* Elements to do before dst is aligned to VECTOR; `n` or more if it never is. */
INLINE size_t head_of(const void *dst, size_t elem_bytes, size_t n)
{
    size_t past = (uintptr_t)dst % VECTOR;
    if (past % elem_bytes != 0) {
        return n;
    }
    return past == 0 ? 0 : (VECTOR - past) / elem_bytes;
}

INLINE size_t size_of(enum wf_dtype dtype)
{
    return dtype == WF_DTYPE_F32 ? 4 : 2;
}

/* --- AVX-512: blocks of 32 elements ---------------------------------------------------------- */

struct block512 {
    __m512 low, high;
};

AVX512 INLINE struct block512 load512(enum wf_dtype from, const char *src)
{
    if (from == WF_DTYPE_F32) {
        return (struct block512){_mm512_loadu_ps(src), _mm512_loadu_ps(src + 64)};
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

AVX512 INLINE void put512(char *dst, __m512i value, bool streaming)
{
    if (streaming) {
        _mm512_stream_si512((void *)dst, value);
    } else {
        _mm512_storeu_si512(dst, value);
    }
}

AVX512 INLINE void store512(enum wf_dtype to, char *dst, struct block512 block, bool streaming)
{
    if (to == WF_DTYPE_F32) {
        put512(dst, _mm512_castps_si512(block.low), streaming);
        put512(dst + 64, _mm512_castps_si512(block.high), streaming);
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

AVX512 INLINE void cast512(enum wf_dtype from, enum wf_dtype to, wf_cast_t *reference, char *dst,
                           const char *src, size_t n, bool streaming)
{
    size_t i = streaming ? head_of(dst, size_of(to), n) : 0;
    if (i >= n && streaming) {
        streaming = false;
        i = 0;
    }
    reference(dst, src, i);
    for (; i + 32 + PREFETCH_AHEAD / size_of(from) <= n; i += 32) {
        const char *at = src + i * size_of(from);
        _mm_prefetch(at + PREFETCH_AHEAD, _MM_HINT_T1);
        if (from == WF_DTYPE_F32) {
            _mm_prefetch(at + PREFETCH_AHEAD + 64, _MM_HINT_T1);
        }
        store512(to, dst + i * size_of(to), load512(from, at), streaming);
    }
    for (; i + 32 <= n; i += 32) {
        store512(to, dst + i * size_of(to), load512(from, src + i * size_of(from)), streaming);
    }
    reference(dst + i * size_of(to), src + i * size_of(from), n - i);
}

AVX512 INLINE void copy512(char *dst, const char *src, size_t n)
{
    size_t i = head_of(dst, 1, n);
    i = i < n ? i : n;
    memcpy(dst, src, i);
    for (; i + 256 <= n; i += 256) {
        for (size_t k = 0; k < 256 && i + PREFETCH_AHEAD < n; k += 64) {
            _mm_prefetch(src + i + k + PREFETCH_AHEAD, _MM_HINT_T1);
        }
        __m512i a = _mm512_loadu_si512(src + i), b = _mm512_loadu_si512(src + i + 64),
                c = _mm512_loadu_si512(src + i + 128), d = _mm512_loadu_si512(src + i + 192);
        put512(dst + i, a, true);
        put512(dst + i + 64, b, true);
        put512(dst + i + 128, c, true);
        put512(dst + i + 192, d, true);
    }
    for (; i + 64 <= n; i += 64) {
        put512(dst + i, _mm512_loadu_si512(src + i), true);
    }
    memcpy(dst + i, src + i, n - i);
}

/* --- AVX2: blocks of 16 elements ------------------------------------------------------------- */

struct block256 {
    __m256 low, high;
};

AVX2 INLINE struct block256 load256(enum wf_dtype from, const char *src)
{
    if (from == WF_DTYPE_F32) {
        return (struct block256){_mm256_loadu_ps((const void *)src),
                                 _mm256_loadu_ps((const void *)(src + 32))};
    }
    __m128i low = _mm_loadu_si128((const void *)src);
    __m128i high = _mm_loadu_si128((const void *)(src + 16));
    if (from == WF_DTYPE_F16) {
        return (struct block256){_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)};
    }
    return (struct block256){
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16)),
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(high), 16))};
}

/* The upper half of each lane holds zeros, so that a pack with saturation changes nothing. */
AVX2 INLINE __m256i bf16_of256(__m256 value)
{
    __m256i bits = _mm256_castps_si256(value);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_or_si256(rounded, nan), 16);
}

AVX2 INLINE void put256(char *dst, __m256i value, bool streaming)
{
    if (streaming) {
        _mm256_stream_si256((void *)dst, value);
    } else {
        _mm256_storeu_si256((void *)dst, value);
    }
}

AVX2 INLINE void store256(enum wf_dtype to, char *dst, struct block256 block, bool streaming)
{
    if (to == WF_DTYPE_F32) {
        put256(dst, _mm256_castps_si256(block.low), streaming);
        put256(dst + 32, _mm256_castps_si256(block.high), streaming);
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

AVX2 INLINE void cast256(enum wf_dtype from, enum wf_dtype to, wf_cast_t *reference, char *dst,
                         const char *src, size_t n, bool streaming)
{
    size_t i = streaming ? head_of(dst, size_of(to), n) : 0;
    if (i >= n && streaming) {
        streaming = false;
        i = 0;
    }
    reference(dst, src, i);
    for (; i + 16 + PREFETCH_AHEAD / size_of(from) <= n; i += 16) {
        const char *at = src + i * size_of(from);
        _mm_prefetch(at + PREFETCH_AHEAD, _MM_HINT_T1);
        store256(to, dst + i * size_of(to), load256(from, at), streaming);
    }
    for (; i + 16 <= n; i += 16) {
        store256(to, dst + i * size_of(to), load256(from, src + i * size_of(from)), streaming);
    }
    reference(dst + i * size_of(to), src + i * size_of(from), n - i);
}

AVX2 INLINE void copy256(char *dst, const char *src, size_t n)
{
    size_t i = head_of(dst, 1, n);
    i = i < n ? i : n;
    memcpy(dst, src, i);
    for (; i + 64 <= n; i += 64) {
        if (i + PREFETCH_AHEAD < n) {
            _mm_prefetch(src + i + PREFETCH_AHEAD, _MM_HINT_T1);
        }
        __m256i a = _mm256_loadu_si256((const void *)(src + i));
        __m256i b = _mm256_loadu_si256((const void *)(src + i + 32));
        put256(dst + i, a, true);
        put256(dst + i + 32, b, true);
    }
    memcpy(dst + i, src + i, n - i);
}

/* --- kernels --------------------------------------------------------------------------------- */

#define KERNELS(name, from, to)                                                                 \
    AVX512 static void avx512_##name(void *dst, const void *src, size_t n)                      \
    {                                                                                           \
        cast512(WF_DTYPE_##from, WF_DTYPE_##to, wf_cast_portable_kernels.plain[WF_CAST_##name], \
                dst, src, n, false);                                                            \
    }                                                                                           \
    AVX512 static void avx512_stream_##name(void *dst, const void *src, size_t n)               \
    {                                                                                           \
        cast512(WF_DTYPE_##from, WF_DTYPE_##to, wf_cast_portable_kernels.plain[WF_CAST_##name], \
                dst, src, n, true);                                                             \
    }                                                                                           \
    AVX2 static void avx2_##name(void *dst, const void *src, size_t n)                          \
    {                                                                                           \
        cast256(WF_DTYPE_##from, WF_DTYPE_##to, wf_cast_portable_kernels.plain[WF_CAST_##name], \
                dst, src, n, false);                                                            \
    }                                                                                           \
    AVX2 static void avx2_stream_##name(void *dst, const void *src, size_t n)                   \
    {                                                                                           \
        cast256(WF_DTYPE_##from, WF_DTYPE_##to, wf_cast_portable_kernels.plain[WF_CAST_##name], \
                dst, src, n, true);                                                             \
    }
WF_CAST_PAIR_MAP(KERNELS)
#undef KERNELS

#define COPIES(bytes)                                                            \
    AVX512 static void avx512_copy_##bytes(void *dst, const void *src, size_t n) \
    {                                                                            \
        copy512(dst, src, n *(bytes));                                           \
    }                                                                            \
    AVX2 static void avx2_copy_##bytes(void *dst, const void *src, size_t n)     \
    {                                                                            \
        copy256(dst, src, n *(bytes));                                           \
    }
COPIES(1)
COPIES(2)
COPIES(4)
COPIES(8)
#undef COPIES

#define ROW_AVX512(name, from, to) [WF_CAST_##name] = avx512_##name,
#define ROW_AVX512_STREAM(name, from, to) [WF_CAST_##name] = avx512_stream_##name,
#define ROW_AVX2(name, from, to) [WF_CAST_##name] = avx2_##name,
#define ROW_AVX2_STREAM(name, from, to) [WF_CAST_##name] = avx2_stream_##name,

const struct wf_cast_kernels wf_cast_avx512_kernels = {
    .plain = {WF_CAST_PAIR_MAP(ROW_AVX512)},
    .streaming = {WF_CAST_PAIR_MAP(ROW_AVX512_STREAM)},
    .copy_streaming = {avx512_copy_1, avx512_copy_2, avx512_copy_4, avx512_copy_8},
};

const struct wf_cast_kernels wf_cast_avx2_kernels = {
    .plain = {WF_CAST_PAIR_MAP(ROW_AVX2)},
    .streaming = {WF_CAST_PAIR_MAP(ROW_AVX2_STREAM)},
    .copy_streaming = {avx2_copy_1, avx2_copy_2, avx2_copy_4, avx2_copy_8},
};

#endif
