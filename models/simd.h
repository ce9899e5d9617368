/* simd.h - which vector instructions this processor has. Private to casts*.c, quant*.c and their
 * tests. A further instruction set is one more value here and a table of kernels for it. */
#ifndef WEFT_MODELS_SIMD_H
#define WEFT_MODELS_SIMD_H

#include <stdbool.h>

enum wf_simd {
    WF_SIMD_NONE,   /* portable C */
    WF_SIMD_AVX2,   /* with f16c */
    WF_SIMD_AVX512, /* F, BW and VL. Not avx512_bf16: it takes subnormal numbers for zero */
    WF_SIMD_COUNT
};

/* Each value includes those before it. The tests read words that the C runtime filled at start. */
static inline enum wf_simd wf_simd_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl")) {
        return WF_SIMD_AVX512;
    }
#if defined(__clang__) /* which cannot be asked about it; processors with avx2 have it */
    bool has_f16c = true;
#else
    bool has_f16c = __builtin_cpu_supports("f16c");
#endif
    if (__builtin_cpu_supports("avx2") && has_f16c) {
        return WF_SIMD_AVX2;
    }
#endif
    return WF_SIMD_NONE;
}

#endif
