/* quant.c - the rules, the walk over a matrix's blocks, and the reference kernels in portable C. */
#include "models/quant.h"

#include <string.h>

#include "models/casts.h"
#include "models/float_bits.h"
#include "models/quant_kernels.h"
#include "models/simd.h"
#include "runtime/status.h"

/* --- rules ----------------------------------------------------------------------------------- */

/* The arithmetic of a rule, all of it in f32. Where producers clamp to 448 before the cast it says
 * nothing: a cast that saturates does the same. */
struct quant_rule {
    const char *name;
    uint32_t block_rows, block_columns;
    float amax_floor; /* 0: none, and a block of zeros has the scale 1 */
    enum wf_quant_act act;
    bool power_of_two;  /* the scale is rounded up to one */
    bool inverse_first; /* factor = 448 / amax; the scale is its inverse, and not the other way */
};

#define FORM_DEEPSEEK 1e-4f, WF_QUANT_ACT_divide, false, false
#define FORM_VLLM 1e-4f, WF_QUANT_ACT_multiply, false, false
#define FORM_VLLM_UE8M0 1e-4f, WF_QUANT_ACT_multiply, true, false
#define FORM_AWEX FORM_DEEPSEEK
#define FORM_SLIME 1e-10f, WF_QUANT_ACT_multiply, false, false
#define FORM_TRANSFORMERS 0, WF_QUANT_ACT_multiply, false, true
#define FORM_ROW128 FORM_DEEPSEEK
#define FORM_ROW128_UE8M0 1e-4f, WF_QUANT_ACT_divide, true, false
#define FORM_CHANNEL_DIV 1e-12f, WF_QUANT_ACT_divide, false, false
#define FORM_CHANNEL_MUL 1e-12f, WF_QUANT_ACT_multiply, false, false
#define FORM_TENSOR FORM_CHANNEL_DIV
#define FORM_TENSOR_BF16 1e-12f, WF_QUANT_ACT_divide_narrow, false, false

static const struct quant_rule rules[WF_QUANT_COUNT] = {[WF_QUANT_NONE] = {.name = "none"},
#define QUANT_ROW(name, text, rows, columns) [WF_QUANT_##name] = {text, rows, columns, FORM_##name},
                                                        WF_QUANT_MAP(QUANT_ROW)
#undef QUANT_ROW
};

static const struct quant_rule *rule_of(enum wf_quant rule)
{
    unsigned index = (unsigned)rule;
    return &rules[index < WF_QUANT_COUNT ? index : WF_QUANT_NONE];
}

const char *wf_quant_name(enum wf_quant rule)
{
    return rule_of(rule)->name;
}

enum wf_quant wf_quant_from_name(const char *text, size_t len)
{
    for (unsigned i = WF_QUANT_NONE + 1; i < WF_QUANT_COUNT; i++) {
        if (strlen(rules[i].name) == len && memcmp(rules[i].name, text, len) == 0) {
            return (enum wf_quant)i;
        }
    }
    return WF_QUANT_NONE;
}

void wf_quant_block(enum wf_quant rule, uint32_t *rows_out, uint32_t *columns_out)
{
    *rows_out = rule_of(rule)->block_rows;
    *columns_out = rule_of(rule)->block_columns;
}

bool wf_quant_is_by_row(enum wf_quant rule)
{
    return rule_of(rule)->block_rows == 1 && rule_of(rule)->block_columns == 0;
}

static float up_to_power_of_two(float value)
{
    uint32_t bits = wf_bits_of_f32(value);
    if (bits >= 0x7f800000u) {
        return value;
    }
    return wf_f32_of_bits((bits + 0x7fffffu) & 0x7f800000u);
}

/* What is stored for a block, and what its values are multiplied with or divided by. */
static float scale_of(const struct quant_rule *rule, float amax, float *factor_out)
{
    if (rule->inverse_first) {
        *factor_out = amax > 0 ? 448.0f / amax : 1.0f;
        return 1.0f / *factor_out;
    }
    float scale = (amax > rule->amax_floor ? amax : rule->amax_floor) / 448.0f;
    scale = rule->power_of_two ? up_to_power_of_two(scale) : scale;
    *factor_out = rule->act == WF_QUANT_ACT_multiply ? 1.0f / scale : scale;
    return scale;
}

/* --- the reference kernels ------------------------------------------------------------------- */

struct format_row {
    size_t bytes;
    uint32_t infinity;
};

static const struct format_row formats[WF_QUANT_FORMAT_COUNT] = {
    [WF_QUANT_FORMAT_f32] = {4, 0x7f800000u},
    [WF_QUANT_FORMAT_f16] = {2, 0x7c00u},
    [WF_QUANT_FORMAT_bf16] = {2, 0x7f80u},
};

/* memcpy, because a matrix need not be aligned. */
static inline uint32_t load_bits(enum wf_quant_format format, const char *at)
{
    if (format == WF_QUANT_FORMAT_f32) {
        uint32_t bits;
        memcpy(&bits, at, sizeof bits);
        return bits;
    }
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return bits;
}

static inline void store_bits(enum wf_quant_format format, char *at, uint32_t bits)
{
    if (format == WF_QUANT_FORMAT_f32) {
        memcpy(at, &bits, sizeof bits);
        return;
    }
    uint16_t half = (uint16_t)bits;
    memcpy(at, &half, sizeof half);
}

static inline uint32_t magnitude_mask(enum wf_quant_format format)
{
    return format == WF_QUANT_FORMAT_f32 ? 0x7fffffffu : 0x7fffu;
}

static inline uint32_t widened(enum wf_quant_format format, uint32_t bits)
{
    return format == WF_QUANT_FORMAT_f32   ? bits
           : format == WF_QUANT_FORMAT_f16 ? wf_f32_bits_of_f16((uint16_t)bits)
                                           : wf_f32_bits_of_bf16((uint16_t)bits);
}

static inline uint32_t narrowed(enum wf_quant_format format, uint32_t bits)
{
    return format == WF_QUANT_FORMAT_f32   ? bits
           : format == WF_QUANT_FORMAT_f16 ? wf_f16_of_f32_bits(bits)
                                           : wf_bf16_of_f32_bits(bits);
}

/* Columns of the block that begins at `first`. */
static inline uint64_t block_end(const struct wf_quant_strip *strip, uint64_t first)
{
    uint64_t left = strip->columns - first;
    return first + (left < strip->block_columns ? left : strip->block_columns);
}

/* Of the magnitudes up to `limit` in columns [first, end). */
static inline uint32_t largest(enum wf_quant_format format, const struct wf_quant_strip *strip,
                               uint64_t first, uint64_t end, uint32_t limit)
{
    uint32_t amax = 0;
    for (uint64_t row = 0; row < strip->rows; row++) {
        const char *at = strip->src + row * strip->src_row_bytes;
        for (uint64_t i = first; i < end; i++) {
            uint32_t bits =
                load_bits(format, at + i * formats[format].bytes) & magnitude_mask(format);
            amax = bits > amax && bits <= limit ? bits : amax;
        }
    }
    return amax;
}

static inline void find_amax(enum wf_quant_format format, const struct wf_quant_strip *strip,
                             uint32_t *amax_out)
{
    for (uint64_t first = 0; first < strip->columns; first += strip->block_columns) {
        *amax_out++ = largest(format, strip, first, block_end(strip, first), UINT32_MAX);
    }
}

/* Signs are set aside: rounding is the same on both sides of zero, and a NaN made by arithmetic has
 * a sign that depends on the processor. */
static inline uint8_t code_of(enum wf_quant_format format, enum wf_quant_act act, uint32_t bits,
                              float factor)
{
    uint32_t sign = bits & (magnitude_mask(format) + 1);
    float value = wf_f32_of_bits(widened(format, bits ^ sign));
    float scaled = act == WF_QUANT_ACT_multiply ? value * factor : value / factor;
    uint32_t scaled_bits = wf_bits_of_f32(scaled) & 0x7fffffffu;
    if (act == WF_QUANT_ACT_divide_narrow) {
        scaled_bits = widened(format, narrowed(format, scaled_bits)) & 0x7fffffffu;
    }
    return (uint8_t)(wf_e4m3_of_f32_bits(scaled_bits, false) | (sign != 0 ? 0x80 : 0));
}

static inline void make_codes(enum wf_quant_format format, enum wf_quant_act act,
                              const struct wf_quant_strip *strip)
{
    for (uint64_t row = 0; row < strip->rows; row++) {
        const char *from = strip->src + row * strip->src_row_bytes;
        uint8_t *to = (uint8_t *)strip->dst + row * strip->dst_row_bytes;
        const float *factor = strip->factors;
        for (uint64_t i = 0; i < strip->columns; factor++) {
            for (uint64_t end = block_end(strip, i); i < end; i++) {
                uint32_t bits = load_bits(format, from + i * formats[format].bytes);
                to[i] = code_of(format, act, bits, *factor);
            }
        }
    }
}

static inline void make_values(enum wf_quant_format format, const struct wf_quant_strip *strip)
{
    for (uint64_t row = 0; row < strip->rows; row++) {
        const uint8_t *from = (const uint8_t *)strip->src + row * strip->src_row_bytes;
        char *to = strip->dst + row * strip->dst_row_bytes;
        const float *factor = strip->factors;
        for (uint64_t i = 0; i < strip->columns; factor++) {
            for (uint64_t end = block_end(strip, i); i < end; i++) {
                float value = wf_f32_of_bits(wf_f32_bits_of_e4m3(from[i])) * *factor;
                uint32_t bits = value != value ? 0x7fc00000u : wf_bits_of_f32(value);
                store_bits(format, to + i * formats[format].bytes, narrowed(format, bits));
            }
        }
    }
}

#define CODES(format, act)                                                 \
    static void codes_##format##_##act(const struct wf_quant_strip *strip) \
    {                                                                      \
        make_codes(WF_QUANT_FORMAT_##format, WF_QUANT_ACT_##act, strip);   \
    }
#define KERNELS(format, dtype)                                                        \
    static void amax_##format(const struct wf_quant_strip *strip, uint32_t *amax_out) \
    {                                                                                 \
        find_amax(WF_QUANT_FORMAT_##format, strip, amax_out);                         \
    }                                                                                 \
    CODES(format, multiply)                                                           \
    CODES(format, divide)                                                             \
    CODES(format, divide_narrow)                                                      \
    static void values_##format(const struct wf_quant_strip *strip)                   \
    {                                                                                 \
        make_values(WF_QUANT_FORMAT_##format, strip);                                 \
    }
WF_QUANT_FORMAT_MAP(KERNELS)
#undef KERNELS
#undef CODES

const struct wf_quant_kernels wf_quant_portable_kernels = {
#define AMAX_ROW(format, dtype) [WF_QUANT_FORMAT_##format] = amax_##format,
#define VALUES_ROW(format, dtype) [WF_QUANT_FORMAT_##format] = values_##format,
#define CODES_ROW(format, dtype)                                                      \
    [WF_QUANT_FORMAT_##format] = {codes_##format##_multiply, codes_##format##_divide, \
                                  codes_##format##_divide_narrow},
    .amax = {WF_QUANT_FORMAT_MAP(AMAX_ROW)},
    .codes = {WF_QUANT_FORMAT_MAP(CODES_ROW)},
    .values = {WF_QUANT_FORMAT_MAP(VALUES_ROW)},
#undef AMAX_ROW
#undef VALUES_ROW
#undef CODES_ROW
};

static const struct wf_quant_kernels *kernels_of(bool portable)
{
    static const struct wf_quant_kernels *const tables[WF_SIMD_COUNT] = {
        [WF_SIMD_NONE] = &wf_quant_portable_kernels,
#if defined(__x86_64__)
        [WF_SIMD_AVX2] = &wf_quant_avx2_kernels,
        [WF_SIMD_AVX512] = &wf_quant_avx512_kernels,
#endif
    };
    return tables[portable ? WF_SIMD_NONE : wf_simd_best()];
}

/* --- the walk over blocks -------------------------------------------------------------------- */

static enum wf_quant_format format_of(enum wf_dtype dtype)
{
#define FORMAT_TEST(name, format_dtype)     \
    if (dtype == WF_DTYPE_##format_dtype) { \
        return WF_QUANT_FORMAT_##name;      \
    }
    WF_QUANT_FORMAT_MAP(FORMAT_TEST)
#undef FORMAT_TEST
    WF_ASSERT(false);
    return WF_QUANT_FORMAT_COUNT;
}

enum {
    /* Results below this are likely to be read from the caches soon. */
    STREAM_BYTES = 4 << 20,
    /* A strip is looked at twice, while the next one is on its way: both should fit the second
     * cache. Longer runs are faster: 128 x 128 of bf16 gave 0.44 of memcpy by single blocks, 0.54
     * by four, 0.60 by fifteen. */
    STRIP_BYTES = 384 << 10,
    STRIP_BLOCKS = 64,
    /* Where rows are read once, one after another (casts_x86.c). */
    AHEAD_BYTES = 8192,
};

/* Two matrices of one shape, cut into blocks alike, and those gathered into strips. */
struct walk {
    const char *src;
    char *dst;
    uint64_t rows, columns, src_row_bytes, dst_row_bytes, src_bytes, dst_bytes;
    uint64_t block_rows, block_columns, strip_columns;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* As many blocks a strip as STRIP_BYTES of the source hold, or all if each is looked at once. */
static void walk_cut(struct walk *walk, enum wf_quant rule, bool once)
{
    const struct quant_rule *form = rule_of(rule);
    WF_ASSERT(form->block_rows != 0 || rule == WF_QUANT_TENSOR || rule == WF_QUANT_TENSOR_BF16);
    walk->block_rows = form->block_rows != 0 ? form->block_rows : walk->rows;
    walk->block_columns = form->block_columns != 0 ? form->block_columns : walk->columns;
    uint64_t block_bytes = walk->block_rows * walk->block_columns * walk->src_bytes;
    uint64_t blocks = least(STRIP_BYTES / (block_bytes > 0 ? block_bytes : 1), STRIP_BLOCKS);
    walk->strip_columns = once ? walk->columns : walk->block_columns * (blocks > 0 ? blocks : 1);
}

/* Bytes from a strip's values to those of the next one: in its rows, or below. */
static int64_t ahead_of(const struct walk *walk, uint64_t row, uint64_t column)
{
    if (column + walk->strip_columns < walk->columns) {
        return (int64_t)(walk->strip_columns * walk->src_bytes);
    }
    if (row + walk->block_rows < walk->rows) {
        return (int64_t)(walk->block_rows * walk->src_row_bytes - column * walk->src_bytes);
    }
    return 0;
}

static struct wf_quant_strip strip_at(const struct walk *walk, uint64_t row, uint64_t column)
{
    return (struct wf_quant_strip){
        .src = walk->src + row * walk->src_row_bytes + column * walk->src_bytes,
        .dst = walk->dst + row * walk->dst_row_bytes + column * walk->dst_bytes,
        .rows = least(walk->block_rows, walk->rows - row),
        .columns = least(walk->strip_columns, walk->columns - column),
        .block_columns = walk->block_columns,
        .src_row_bytes = walk->src_row_bytes,
        .dst_row_bytes = walk->dst_row_bytes,
        .ahead_bytes = ahead_of(walk, row, column),
        .streaming = walk->rows * walk->columns * walk->dst_bytes >= STREAM_BYTES};
}

/* Producers do not let NaN count; it is rare enough to look again. */
static void make_scales(const struct wf_quant_kernels *kernels, const struct quant_rule *form,
                        enum wf_quant_format format, const struct wf_quant_strip *strip,
                        float *scales, float factors_out[STRIP_BLOCKS])
{
    uint32_t amax[STRIP_BLOCKS];
    kernels->amax[format](strip, amax);
    uint32_t block = 0;
    for (uint64_t first = 0; first < strip->columns; first += strip->block_columns, block++) {
        uint32_t infinity = formats[format].infinity;
        if (amax[block] > infinity) {
            amax[block] = largest(format, strip, first, block_end(strip, first), infinity);
        }
        float widest = wf_f32_of_bits(widened(format, amax[block]));
        scales[block] = scale_of(form, widest, &factors_out[block]);
    }
}

void wf_quantise_by(const struct wf_quant_kernels *kernels, enum wf_quant rule,
                    const struct wf_quant_matrix *matrix, uint8_t *codes, uint64_t code_stride,
                    float *scales, uint64_t scale_stride)
{
    const struct quant_rule *form = rule_of(rule);
    enum wf_quant_format format = format_of(matrix->dtype);
    struct walk walk = {.src = matrix->values,
                        .dst = (char *)codes,
                        .rows = matrix->rows,
                        .columns = matrix->columns,
                        .src_row_bytes = matrix->row_bytes,
                        .dst_row_bytes = code_stride,
                        .src_bytes = formats[format].bytes,
                        .dst_bytes = 1};
    walk_cut(&walk, rule, false);
    for (uint64_t row = 0; row < walk.rows; row += walk.block_rows) {
        float *scale = scales + row / walk.block_rows * scale_stride;
        for (uint64_t column = 0; column < walk.columns; column += walk.strip_columns) {
            struct wf_quant_strip strip = strip_at(&walk, row, column);
            float factors[STRIP_BLOCKS];
            make_scales(kernels, form, format, &strip, scale + column / walk.block_columns,
                        factors);
            strip.factors = factors;
            kernels->codes[format][form->act](&strip);
        }
    }
    wf_cast_fence();
}

void wf_dequantise_by(const struct wf_quant_kernels *kernels, enum wf_quant rule,
                      const uint8_t *codes, uint64_t code_stride, const float *scales,
                      uint64_t scale_stride, uint64_t rows, uint64_t columns, void *dst,
                      enum wf_dtype dst_dtype, uint64_t dst_row_bytes)
{
    enum wf_quant_format format = format_of(dst_dtype);
    struct walk walk = {.src = (const char *)codes,
                        .dst = dst,
                        .rows = rows,
                        .columns = columns,
                        .src_row_bytes = code_stride,
                        .dst_row_bytes = dst_row_bytes,
                        .src_bytes = 1,
                        .dst_bytes = formats[format].bytes};
    walk_cut(&walk, rule, true);
    for (uint64_t row = 0; columns > 0 && row < walk.rows; row += walk.block_rows) {
        struct wf_quant_strip strip = strip_at(&walk, row, 0);
        strip.factors = scales + row / walk.block_rows * scale_stride;
        strip.ahead_bytes = AHEAD_BYTES;
        kernels->values[format](&strip);
    }
    wf_cast_fence();
}

void wf_quantise(enum wf_quant rule, const struct wf_quant_matrix *matrix, uint8_t *codes,
                 uint64_t code_stride, float *scales, uint64_t scale_stride, bool portable)
{
    wf_quantise_by(kernels_of(portable), rule, matrix, codes, code_stride, scales, scale_stride);
}

void wf_dequantise(enum wf_quant rule, const uint8_t *codes, uint64_t code_stride,
                   const float *scales, uint64_t scale_stride, uint64_t rows, uint64_t columns,
                   void *dst, enum wf_dtype dst_dtype, uint64_t dst_row_bytes, bool portable)
{
    wf_dequantise_by(kernels_of(portable), rule, codes, code_stride, scales, scale_stride, rows,
                     columns, dst, dst_dtype, dst_row_bytes);
}
