/* casts_x86.c - the casts with AVX2 + F16C and with AVX-512 (F, BW, VL).
 *
 * Each instruction set has one loop that loads a block as f32, and stores it; the compiler makes a
 * kernel per pair of types out of it. Heads and tails that do not fill a block go to the reference.
 * Streaming stores need an aligned destination: where its elements cannot be aligned, the kernel
 * stores through the caches.
 */
#include "models/casts_kernels.h"
#include "models/simd_x86.h"

#if defined(__x86_64__)

enum {
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

/* --- AVX-512 -------------------------------------------------------------------------------- */

AVX512 INLINE void cast512(enum wf_dtype from, enum wf_dtype to, bool above_nan,
                           wf_cast_t *reference, char *dst, const char *src, size_t n,
                           bool streaming)
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
        store512(to, above_nan, dst + i * size_of(to), load512(from, at), streaming);
    }
    for (; i + 32 <= n; i += 32) {
        store512(to, above_nan, dst + i * size_of(to), load512(from, src + i * size_of(from)),
                 streaming);
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

/* --- AVX2 ----------------------------------------------------------------------------------- */

AVX2 INLINE void cast256(enum wf_dtype from, enum wf_dtype to, bool above_nan, wf_cast_t *reference,
                         char *dst, const char *src, size_t n, bool streaming)
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
        store256(to, above_nan, dst + i * size_of(to), load256(from, at), streaming);
    }
    for (; i + 16 <= n; i += 16) {
        store256(to, above_nan, dst + i * size_of(to), load256(from, src + i * size_of(from)),
                 streaming);
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

#define KERNELS(name, from, to, above)                                                \
    AVX512 static void avx512_##name(void *dst, const void *src, size_t n)            \
    {                                                                                 \
        cast512(WF_DTYPE_##from, WF_DTYPE_##to, WF_CAST_##above == WF_CAST_NAN_ABOVE, \
                wf_cast_portable_kernels.plain[WF_CAST_##name], dst, src, n, false);  \
    }                                                                                 \
    AVX512 static void avx512_stream_##name(void *dst, const void *src, size_t n)     \
    {                                                                                 \
        cast512(WF_DTYPE_##from, WF_DTYPE_##to, WF_CAST_##above == WF_CAST_NAN_ABOVE, \
                wf_cast_portable_kernels.plain[WF_CAST_##name], dst, src, n, true);   \
    }                                                                                 \
    AVX2 static void avx2_##name(void *dst, const void *src, size_t n)                \
    {                                                                                 \
        cast256(WF_DTYPE_##from, WF_DTYPE_##to, WF_CAST_##above == WF_CAST_NAN_ABOVE, \
                wf_cast_portable_kernels.plain[WF_CAST_##name], dst, src, n, false);  \
    }                                                                                 \
    AVX2 static void avx2_stream_##name(void *dst, const void *src, size_t n)         \
    {                                                                                 \
        cast256(WF_DTYPE_##from, WF_DTYPE_##to, WF_CAST_##above == WF_CAST_NAN_ABOVE, \
                wf_cast_portable_kernels.plain[WF_CAST_##name], dst, src, n, true);   \
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

#define ROW_AVX512(name, from, to, above) [WF_CAST_##name] = avx512_##name,
#define ROW_AVX512_STREAM(name, from, to, above) [WF_CAST_##name] = avx512_stream_##name,
#define ROW_AVX2(name, from, to, above) [WF_CAST_##name] = avx2_##name,
#define ROW_AVX2_STREAM(name, from, to, above) [WF_CAST_##name] = avx2_stream_##name,

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
