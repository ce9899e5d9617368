/* casts_kernels.h - the paths behind casts.h, one row of pointers each. Private to casts*.c.
 *
 * Casts are numbered by enum wf_cast_pair. Streaming kernels may end without a fence. */
#ifndef WEFT_MODELS_CASTS_KERNELS_H
#define WEFT_MODELS_CASTS_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "models/casts.h"

/* X(name of the function, from, to) for every pair that changes the type. */
#define WF_CAST_PAIR_MAP(X)   \
    X(f32_to_bf16, F32, BF16) \
    X(f32_to_f16, F32, F16)   \
    X(bf16_to_f32, BF16, F32) \
    X(bf16_to_f16, BF16, F16) \
    X(f16_to_f32, F16, F32)   \
    X(f16_to_bf16, F16, BF16)

enum wf_cast_pair {
#define WF_CAST_PAIR_ENUM(name, from, to) WF_CAST_##name,
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
extern const struct wf_cast_kernels wf_cast_avx2_kernels;   /* needs avx2 and f16c */
extern const struct wf_cast_kernels wf_cast_avx512_kernels; /* needs avx512f, bw and vl */
#endif

#endif
