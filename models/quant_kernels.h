/* quant_kernels.h - the paths behind quant.h, one table of pointers each. Private to quant*.c.
 *
 * quant.c walks over the blocks of a matrix and knows the rules; a kernel does arithmetic on a few
 * blocks. A further instruction set (simd.h) is one more file with one more table.
 */
#ifndef WEFT_MODELS_QUANT_KERNELS_H
#define WEFT_MODELS_QUANT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/quant.h"

/* X(name, dtype): what can be quantised, and what codes can be turned into. */
#define WF_QUANT_FORMAT_MAP(X) \
    X(f32, F32)                \
    X(f16, F16)                \
    X(bf16, BF16)

/* X(name): what is done with a value before it becomes a code, in f32. */
#define WF_QUANT_ACT_MAP(X)               \
    X(multiply)      /* value * factor */ \
    X(divide)        /* value / factor */ \
    X(divide_narrow) /* value / factor, rounded to the matrix's dtype */

enum wf_quant_format {
#define WF_QUANT_FORMAT_ENUM(name, dtype) WF_QUANT_FORMAT_##name,
    WF_QUANT_FORMAT_MAP(WF_QUANT_FORMAT_ENUM)
#undef WF_QUANT_FORMAT_ENUM
        WF_QUANT_FORMAT_COUNT
};

enum wf_quant_act {
#define WF_QUANT_ACT_ENUM(name) WF_QUANT_ACT_##name,
    WF_QUANT_ACT_MAP(WF_QUANT_ACT_ENUM)
#undef WF_QUANT_ACT_ENUM
        WF_QUANT_ACT_COUNT
};

/* Blocks beside each other: values of a matrix and their codes, or codes and the values made of
 * them. The last block may have fewer columns. */
struct wf_quant_strip {
    const char *src;
    char *dst;
    uint64_t rows, columns, block_columns;
    uint64_t src_row_bytes, dst_row_bytes;
    const float *factors; /* of each block */
    /* While at `src`, lines this far on are fetched towards the core: the strip after this one. 0:
     * there is none. */
    int64_t ahead_bytes;
    bool streaming; /* store past the caches, where dst is aligned for it */
};

/* The largest magnitude of each block as the bits of the matrix's dtype, NaN counted as larger than
 * infinity. */
typedef void wf_quant_amax_t(const struct wf_quant_strip *strip, uint32_t *amax_out);
typedef void wf_quant_convert_t(const struct wf_quant_strip *strip);

struct wf_quant_kernels {
    wf_quant_amax_t *amax[WF_QUANT_FORMAT_COUNT];
    wf_quant_convert_t *codes[WF_QUANT_FORMAT_COUNT][WF_QUANT_ACT_COUNT];
    wf_quant_convert_t *values[WF_QUANT_FORMAT_COUNT];
};

extern const struct wf_quant_kernels wf_quant_portable_kernels;
#if defined(__x86_64__)
extern const struct wf_quant_kernels wf_quant_avx2_kernels, wf_quant_avx512_kernels; /* simd.h */
#endif

/* quant.h's functions with kernels of the caller's choice. */
void wf_quantise_by(const struct wf_quant_kernels *kernels, enum wf_quant rule,
                    const struct wf_quant_matrix *matrix, uint8_t *codes, uint64_t code_stride,
                    float *scales, uint64_t scale_stride);
void wf_dequantise_by(const struct wf_quant_kernels *kernels, enum wf_quant rule,
                      const uint8_t *codes, uint64_t code_stride, const float *scales,
                      uint64_t scale_stride, uint64_t rows, uint64_t columns, void *dst,
                      enum wf_dtype dst_dtype, uint64_t dst_row_bytes);

#endif
