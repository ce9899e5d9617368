/* quantised.c - producers' rules for blocks of 128 x 128 and for rows, one value at a time.
 *
 * Sources: DeepSeek-V3 inference/kernel.py act_quant (floor 1e-4, divides) and Awex
 * per_block_cast_to_fp8, which is the same; vLLM utils/deep_gemm.py per_block_cast_to_fp8
 * (multiplies with the inverse; use_ue8m0: the scale up to a power of two); slime's fp8_kernel.py
 * (floor 1e-10); transformers integrations/finegrained_fp8.py (the factor first, a block of zeros
 * has 1); of rows slime's tools/convert_hf_to_fp8.py (channel_fp8: floor 1e-12, divides), and the
 * same multiplied. Tested against what they gave (tests/golden/fp8-quant-block, fp8-quant-rows).
 */
#include "tools/check/quantised.h"

#include <math.h>
#include <string.h>

#include "runtime/status.h"

static const float e4m3_max = 448;

bool wf_check_knows(enum wf_quant rule)
{
    switch (rule) {
    case WF_QUANT_DEEPSEEK:
    case WF_QUANT_AWEX:
    case WF_QUANT_VLLM:
    case WF_QUANT_VLLM_UE8M0:
    case WF_QUANT_SLIME:
    case WF_QUANT_TRANSFORMERS:
    case WF_QUANT_CHANNEL_DIV:
    case WF_QUANT_CHANNEL_MUL:
        return true;
    default:
        return false;
    }
}

/* The next power of two, itself if it is one. */
static float power_above(float value)
{
    int exponent;
    float mantissa = frexpf(value, &exponent); /* 0.5 <= mantissa < 1 */
    return ldexpf(1, mantissa == 0.5f ? exponent - 1 : exponent);
}

struct wf_check_block wf_check_block(enum wf_quant rule, float amax)
{
    struct wf_check_block block = {0};
    WF_ASSERT(wf_check_knows(rule));
    if (rule == WF_QUANT_TRANSFORMERS) {
        block.factor = amax > 0 ? e4m3_max / amax : 1;
        block.scale = 1 / block.factor;
        return block;
    }
    float floor = wf_quant_is_by_row(rule) ? 1e-12f : rule == WF_QUANT_SLIME ? 1e-10f : 1e-4f;
    block.scale = (amax < floor ? floor : amax) / e4m3_max;
    if (rule == WF_QUANT_VLLM_UE8M0) {
        block.scale = power_above(block.scale);
    }
    block.divides =
        rule == WF_QUANT_DEEPSEEK || rule == WF_QUANT_AWEX || rule == WF_QUANT_CHANNEL_DIV;
    block.factor = block.divides ? block.scale : 1 / block.scale;
    return block;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* To the nearest of the numbers that have three bits behind the first, ties to the even one; below
 * 2^-6 these are multiples of 2^-9: a number added whose last bit is worth that much makes the
 * processor round there, and leaves the multiple in its last bits. Without branches, so that the
 * compiler does several at once: a check of a large model is a billion of these. */
static inline uint8_t code_of(float scaled)
{
    uint32_t bits = bits_of(scaled), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    float size;
    memcpy(&size, &magnitude, sizeof size);
    uint32_t normal = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - ((127 - 7) << 3);
    uint32_t small = bits_of(size + 0x1p14f) - bits_of(0x1p14f);
    uint32_t code = magnitude < (uint32_t)(127 - 6) << 23 ? small : normal;
    code = magnitude >= bits_of(448) ? 0x7e : code;
    code = magnitude > 0x7f800000 ? 0x7f : code;
    return (uint8_t)(sign | code);
}

void wf_check_codes(const struct wf_check_block *block, const float *values, uint64_t count,
                    uint8_t *codes_out)
{
    float factor = block->factor;
    if (block->divides) {
        for (uint64_t i = 0; i < count; i++) {
            codes_out[i] = code_of(values[i] / factor);
        }
    } else {
        for (uint64_t i = 0; i < count; i++) {
            codes_out[i] = code_of(values[i] * factor);
        }
    }
}

uint8_t wf_check_code(const struct wf_check_block *block, float value)
{
    uint8_t code;
    wf_check_codes(block, &value, 1, &code);
    return code;
}

float wf_check_decode(const struct wf_check_block *block, uint8_t code)
{
    int exponent = (code >> 3) & 15, mantissa = code & 7;
    float magnitude = (code & 0x7f) == 0x7f ? NAN
                      : exponent == 0       ? ldexpf((float)mantissa, -9)
                                            : ldexpf((float)(8 + mantissa), exponent - 10);
    return (code & 0x80 ? -magnitude : magnitude) * block->scale;
}
