/* quant.h - fp8 codes with scales: each producer's rule by its name, and back. Pure; any thread.
 *
 * A matrix of `rows` x `columns` values becomes e4m3 codes of the same shape and one f32 scale for
 * each block, row-major: ceil(rows / block_rows) x ceil(columns / block_columns). Blocks at the
 * edges are smaller; nothing is padded. value = code * scale, whatever the tensor is called.
 *
 * Producers differ in the least amax, in whether they multiply by the inverse or divide, in what a
 * block of zeros gets, and in rounding scales to powers of two. That is a code or the last place of
 * a scale now and then, which is why the rule has a name, and results are equal bit for bit to what
 * the producer's own code gave (tests/golden/fp8-quant-block, fp8-quant-rows).
 *
 * NaN: a value that is NaN gives a code that is NaN, and does not count for its block's amax. An
 * infinity makes its block's scale infinite, as it does for the producers.
 *
 * The portable path is the reference; wider ones are equal to it bit for bit.
 */
#ifndef WEFT_MODELS_QUANT_H
#define WEFT_MODELS_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/dtype.h"

/* X(enum, name in SPECs, block_rows, block_columns, form of the arithmetic (quant.c)). A block size
 * of 0 is the whole dimension. Numbers travel in frames: only append. Rules that can be an engine's
 * `quant` stand first: blocks of 128 x 128, and a scale for each row; the others are arithmetic: no
 * layout of an engine with their scales is known. */
#define WF_QUANT_ENGINE_MAP(X)                                                                     \
    X(DEEPSEEK, "deepseek", 128, 128)         /* max(amax, 1e-4) / 448; x / s */                   \
    X(VLLM, "vllm", 128, 128)                 /* max(amax, 1e-4) / 448; x * (1 / s) */             \
    X(VLLM_UE8M0, "vllm_ue8m0", 128, 128)     /* the same, s up to a power of two (also SGLang) */ \
    X(AWEX, "awex", 128, 128)                 /* as deepseek */                                    \
    X(SLIME, "slime", 128, 128)               /* max(amax, 1e-10) / 448; x * (1 / s), clamped */   \
    X(TRANSFORMERS, "transformers", 128, 128) /* f = 448 / amax (1 for zeros), s = 1 / f */        \
    X(CHANNEL_DIV, "channel_div", 1, 0)       /* max(amax, 1e-12) / 448; x / s, clamped */         \
    X(CHANNEL_MUL, "channel_mul", 1, 0)       /* the same; x * (1 / s), clamped */
#define WF_QUANT_MAP(X)                                                              \
    WF_QUANT_ENGINE_MAP(X)                                                           \
    X(ROW128, "row128", 1, 128) /* max(amax, 1e-4) / 448; x / s */                   \
    X(ROW128_UE8M0, "row128_ue8m0", 1, 128)                                          \
    X(TENSOR, "tensor", 0, 0)           /* max(amax, 1e-12) / 448; x / s, clamped */ \
    X(TENSOR_BF16, "tensor_bf16", 0, 0) /* slime's: the quotient of bf16 values rounds to bf16 */

enum wf_quant {
    WF_QUANT_NONE = 0,
#define WF_QUANT_ENUM(name, text, rows, columns) WF_QUANT_##name,
    WF_QUANT_MAP(WF_QUANT_ENUM)
#undef WF_QUANT_ENUM
        WF_QUANT_COUNT
};

const char *wf_quant_name(enum wf_quant rule);                  /* "deepseek"; "none" */
enum wf_quant wf_quant_from_name(const char *text, size_t len); /* NONE when unknown */
/* Sizes of a block; 0: the whole dimension. */
void wf_quant_block(enum wf_quant rule, uint32_t *rows_out, uint32_t *columns_out);
/* Is a block a whole row? */
bool wf_quant_is_by_row(enum wf_quant rule);

/* A matrix in memory: rows may stand apart, the elements of a row do not. */
struct wf_quant_matrix {
    const void *values;  /* first row */
    enum wf_dtype dtype; /* f32, f16 or bf16 */
    uint64_t rows, columns;
    uint64_t row_bytes; /* from one row to the next */
};

/* Quantises a matrix that consists of whole blocks of its parameter (its first element begins one;
 * what ends at the parameter's edge may be less). `codes`: rows x columns bytes, rows `code_stride`
 * apart; `scales`: f32, rows of blocks `scale_stride` elements apart. One pass over memory where
 * a row of blocks fits the second cache. */
void wf_quantise(enum wf_quant rule, const struct wf_quant_matrix *matrix, uint8_t *codes,
                 uint64_t code_stride, float *scales, uint64_t scale_stride, bool portable);

/* dst = cast(float(code) * scale), product in f32, one rounding; rows of dst are `dst_row_bytes`
 * apart. dst_dtype: f32, f16 or bf16. */
void wf_dequantise(enum wf_quant rule, const uint8_t *codes, uint64_t code_stride,
                   const float *scales, uint64_t scale_stride, uint64_t rows, uint64_t columns,
                   void *dst, enum wf_dtype dst_dtype, uint64_t dst_row_bytes, bool portable);

#endif
