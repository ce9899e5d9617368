/* casts_kernels.h - the paths behind casts.h, one row of pointers each. Private to casts*.c.
 *
 * Casts are numbered by enum wf_cast_pair. Streaming kernels may end without a fence. */
#ifndef WEFT_MODELS_CASTS_KERNELS_H
#define WEFT_MODELS_CASTS_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "models/casts.h"

/* X(name of the function, from, to, rule for what is too large) for every pair that changes the
 * type. First those that wf_cast_for gives (wf_dtype_castable), then the fp8 ones. */
#define WF_CAST_PAIR_MAP(X)                       \
    X(f32_to_bf16, F32, BF16, SATURATE)           \
    X(f32_to_f16, F32, F16, SATURATE)             \
    X(bf16_to_f32, BF16, F32, SATURATE)           \
    X(bf16_to_f16, BF16, F16, SATURATE)           \
    X(f16_to_f32, F16, F32, SATURATE)             \
    X(f16_to_bf16, F16, BF16, SATURATE)           \
    X(f32_to_e4m3, F32, F8_E4M3, SATURATE)        \
    X(f16_to_e4m3, F16, F8_E4M3, SATURATE)        \
    X(bf16_to_e4m3, BF16, F8_E4M3, SATURATE)      \
    X(f32_to_e4m3_nan, F32, F8_E4M3, NAN_ABOVE)   \
    X(f16_to_e4m3_nan, F16, F8_E4M3, NAN_ABOVE)   \
    X(bf16_to_e4m3_nan, BF16, F8_E4M3, NAN_ABOVE) \
    X(f32_to_e5m2, F32, F8_E5M2, SATURATE)        \
    X(f16_to_e5m2, F16, F8_E5M2, SATURATE)        \
    X(bf16_to_e5m2, BF16, F8_E5M2, SATURATE)      \
    X(e4m3_to_f32, F8_E4M3, F32, SATURATE)        \
    X(e4m3_to_f16, F8_E4M3, F16, SATURATE)        \
    X(e4m3_to_bf16, F8_E4M3, BF16, SATURATE)      \
    X(e5m2_to_f32, F8_E5M2, F32, SATURATE)        \
    X(e5m2_to_f16, F8_E5M2, F16, SATURATE)        \
    X(e5m2_to_bf16, F8_E5M2, BF16, SATURATE)

enum wf_cast_pair {
#define WF_CAST_PAIR_ENUM(name, from, to, above) WF_CAST_##name,
    WF_CAST_PAIR_MAP(WF_CAST_PAIR_ENUM)
#undef WF_CAST_PAIR_ENUM
        WF_CAST_PAIR_COUNT
};

struct wf_cast_kernels {
    wf_cast_t *plain[WF_CAST_PAIR_COUNT], *streaming[WF_CAST_PAIR_COUNT];
    wf_cast_t *copy_streaming[4]; /* of elements of 1, 2, 4 and 8 bytes */
};

extern const struct wf_cast_kernels wf_cast_portable_kernels;
#if defined(__x86_64__)
extern const struct wf_cast_kernels wf_cast_avx2_kernels, wf_cast_avx512_kernels; /* simd.h */
#endif

#endif
