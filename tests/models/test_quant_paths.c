/* test_quant_paths.c - quantising and back by every vector path, against the reference, bit for
 * bit: every pattern, every rule, ragged edges, strides, alignment. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "models/quant.h"
#include "models/quant_kernels.h"
#include "models/simd.h"
#include "runtime/splitmix.h"

enum {
    GUARD = 64,
    FILL = 0x5a,
    PATTERNS = 1 << 16,
    SCALE_STRIDE = 12, /* more than any shape has */
};

struct path {
    const char *name;
    const struct wf_quant_kernels *kernels;
};

static size_t paths_of_this_machine(struct path paths_out[2])
{
    size_t count = 0;
#if defined(__x86_64__)
    if (wf_simd_best() >= WF_SIMD_AVX2) {
        paths_out[count++] = (struct path){"avx2", &wf_quant_avx2_kernels};
    }
    if (wf_simd_best() >= WF_SIMD_AVX512) {
        paths_out[count++] = (struct path){"avx512", &wf_quant_avx512_kernels};
    }
#endif
    return count;
}

static const enum wf_dtype dtypes[WF_QUANT_FORMAT_COUNT] = {
#define DTYPE_OF(name, dtype) [WF_QUANT_FORMAT_##name] = WF_DTYPE_##dtype,
    WF_QUANT_FORMAT_MAP(DTYPE_OF)
#undef DTYPE_OF
};

/* What rules give, and what they cannot. */
static const uint32_t factors[] = {
    0x3f800000, 0x43e00000, 0x40000000, 0x3b124925, 0x346facad, 0x2b7f0000, 0x4e924925, 0x54123456,
    0x00000000, 0x00000001, 0x00400000, 0x7f7fffff, 0x7f800000, 0x34000000, 0x3f7fffff, 0x42e8f1c3,
};

/* Aligned for stores past the caches, filled with FILL. */
static void *room(size_t len)
{
    size_t bytes = (len + GUARD) / 64 * 64;
    return memset(aligned_alloc(64, bytes), FILL, bytes);
}

/* --- kernels --------------------------------------------------------------------------------- */

/* A kernel on blocks whose rows are not beside each other. */
static void compare_strip(const struct path *path, wf_quant_convert_t *tested,
                          wf_quant_convert_t *reference, struct wf_quant_strip strip,
                          size_t dst_bytes, const char *what)
{
    size_t len = GUARD + strip.rows * strip.dst_row_bytes + GUARD;
    char *expected = room(len), *made = room(len);
    cr_assert_leq(strip.columns * dst_bytes, strip.dst_row_bytes);
    strip.dst = expected + GUARD;
    reference(&strip);
    for (int streaming = 0; streaming < 2; streaming++) {
        strip.dst = made + GUARD;
        strip.streaming = streaming != 0;
        tested(&strip);
        cr_expect_eq(memcmp(made, expected, len), 0, "%s, %s, factor %a, %lu x %lu, streaming %d",
                     path->name, what, strip.factors[0], (unsigned long)strip.rows,
                     (unsigned long)strip.columns, streaming);
    }
    free(expected);
    free(made);
}

static void compare_codes(const struct path *path, enum wf_quant_format format, const char *src,
                          size_t count, const float two_factors[2])
{
    size_t bytes = wf_dtype_bytes(dtypes[format]);
    struct wf_quant_strip strip = {.src = src,
                                   .rows = count / 256,
                                   .columns = 256,
                                   .block_columns = 192,
                                   .factors = two_factors,
                                   .src_row_bytes = 256 * bytes,
                                   .dst_row_bytes = 320};
    for (size_t act = 0; act < WF_QUANT_ACT_COUNT; act++) {
        compare_strip(path, path->kernels->codes[format][act],
                      wf_quant_portable_kernels.codes[format][act], strip, 1,
                      wf_dtype_name(dtypes[format]));
    }
}

Test(quant_paths, every_pattern_as_a_value)
{
    struct path paths[2];
    size_t path_count = paths_of_this_machine(paths);
    uint16_t *halves = malloc(sizeof *halves * PATTERNS);
    for (size_t i = 0; i < PATTERNS; i++) {
        halves[i] = (uint16_t)i;
    }
    for (size_t i = 0; i < path_count * sizeof factors / sizeof factors[0]; i++) {
        const struct path *path = &paths[i % path_count];
        float two_factors[2] = {0, 0.3f};
        memcpy(&two_factors[0], &factors[i / path_count], 4);
        compare_codes(path, WF_QUANT_FORMAT_bf16, (char *)halves, PATTERNS, two_factors);
        compare_codes(path, WF_QUANT_FORMAT_f16, (char *)halves, PATTERNS, two_factors);
    }
    free(halves);
}

Test(quant_paths, random_f32_as_a_value)
{
    struct path paths[2];
    size_t path_count = paths_of_this_machine(paths);
    uint64_t state = 8151, *words = malloc(sizeof *words * PATTERNS / 2);
    for (size_t i = 0; i < path_count * 4 * sizeof factors / sizeof factors[0]; i++) {
        for (size_t k = 0; k < PATTERNS / 2; k++) {
            words[k] = wf_splitmix64(&state);
        }
        float two_factors[2] = {0, 3};
        memcpy(&two_factors[0], &factors[i / path_count / 4], 4);
        compare_codes(&paths[i % path_count], WF_QUANT_FORMAT_f32, (char *)words, PATTERNS,
                      two_factors);
    }
    free(words);
}

Test(quant_paths, every_code_as_a_value)
{
    struct path paths[2];
    size_t path_count = paths_of_this_machine(paths);
    uint64_t state = 5;
    uint8_t codes[3][320];
    for (size_t i = 0; i < sizeof codes; i++) {
        codes[i / 320][i % 320] = (uint8_t)i;
    }
    for (size_t i = 0; i < path_count * 4000; i++) {
        uint64_t random = wf_splitmix64(&state);
        enum wf_quant_format format = (enum wf_quant_format)(i / path_count % 3);
        size_t bytes = wf_dtype_bytes(dtypes[format]);
        uint32_t bits = i < 64 ? factors[i % 16] : (uint32_t)(random >> 32);
        float three_factors[3] = {1.5f, 1 / 448.0f};
        memcpy(&three_factors[2], &bits, sizeof bits);
        memcpy(&three_factors[i % 2], &bits, sizeof bits);
        struct wf_quant_strip strip = {.src = (const char *)codes + random % 40,
                                       .rows = 2,
                                       .columns = 256 + random / 64 % 24,
                                       .block_columns = 120 + random / 64 % 9,
                                       .factors = three_factors,
                                       .src_row_bytes = 320,
                                       .dst_row_bytes = 280 * bytes + random / 2048 % 3 * 8};
        compare_strip(&paths[i % path_count], paths[i % path_count].kernels->values[format],
                      wf_quant_portable_kernels.values[format], strip, bytes,
                      wf_dtype_name(dtypes[format]));
    }
}

/* --- rules ----------------------------------------------------------------------------------- */

struct shape_row {
    uint64_t rows, columns, gap; /* elements between rows */
};

static const struct shape_row shapes[] = {
    {1, 1, 0},     {1, 127, 0},   {3, 128, 3},    {128, 128, 0},  {129, 129, 7}, {130, 260, 0},
    {257, 15, 64}, {64, 1000, 0}, {200, 383, 1},  {7, 16, 0},     {2, 31, 33},   {256, 64, 64},
    {5, 0, 0},     {0, 5, 0},     {127, 65, 127}, {300, 512, 128}};

/* Values as `kind` says: bits of any kind; of one magnitude or another by block; few that are not
 * zero; tiny. */
static void fill(char *values, size_t bytes, enum wf_dtype dtype, unsigned kind, uint64_t *state)
{
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t random = wf_splitmix64(state);
        if (kind == 1) { /* exponents within four of each other, so that nothing overflows */
            random &= dtype == WF_DTYPE_F32   ? 0x81ffffff81ffffffu
                      : dtype == WF_DTYPE_F16 ? 0x8fff8fff8fff8fffu
                                              : 0x81ff81ff81ff81ffu;
            random |= dtype == WF_DTYPE_F32   ? 0x3c0000003c000000u
                      : dtype == WF_DTYPE_F16 ? 0x2000200020002000u
                                              : 0x3c003c003c003c00u;
        } else if (kind == 2) {
            random = i % 4096 == 0 ? random : 0;
        } else if (kind == 3) {
            random &= 0x8000010080000100u;
        }
        memcpy(values + i, &random, 8);
    }
}

struct made {
    size_t count; /* elements with the gaps, and guards */
    uint8_t *codes;
    float *scales;
    char *values;
};

static struct made make(const struct wf_quant_kernels *kernels, enum wf_quant rule,
                        const struct wf_quant_matrix *matrix, uint64_t gap)
{
    uint64_t stride = matrix->columns + gap, scale_stride = SCALE_STRIDE + gap;
    size_t bytes = wf_dtype_bytes(matrix->dtype), count = matrix->rows * stride + GUARD;
    struct made made = {count, room(count), room(matrix->rows * scale_stride * 4),
                        room(count * bytes)};
    wf_quantise_by(kernels, rule, matrix, made.codes, stride, made.scales, scale_stride);
    wf_dequantise_by(kernels, rule, made.codes, stride, made.scales, scale_stride, matrix->rows,
                     matrix->columns, made.values, matrix->dtype, stride * bytes);
    return made;
}

static void unmake(struct made *made)
{
    free(made->codes);
    free(made->scales);
    free(made->values);
}

static void compare_rule(enum wf_quant rule, const struct wf_quant_matrix *matrix, uint64_t gap,
                         unsigned kind)
{
    struct path paths[2];
    size_t path_count = paths_of_this_machine(paths);
    size_t bytes = wf_dtype_bytes(matrix->dtype);
    size_t scale_bytes = matrix->rows * (SCALE_STRIDE + gap) * 4;
    struct made expected = make(&wf_quant_portable_kernels, rule, matrix, gap);
    for (size_t p = 0; p < path_count; p++) {
        struct made made = make(paths[p].kernels, rule, matrix, gap);
        bool codes = memcmp(made.codes, expected.codes, expected.count) == 0;
        bool scales = memcmp(made.scales, expected.scales, scale_bytes) == 0;
        bool values = memcmp(made.values, expected.values, expected.count * bytes) == 0;
        cr_expect(codes && scales && values, "%s, %s, %s, kind %u, %lu x %lu:%s%s%s", paths[p].name,
                  wf_quant_name(rule), wf_dtype_name(matrix->dtype), kind,
                  (unsigned long)matrix->rows, (unsigned long)matrix->columns,
                  codes ? "" : " codes", scales ? "" : " scales", values ? "" : " values");
        unmake(&made);
    }
    unmake(&expected);
}

Test(quant_paths, rules_on_ragged_matrices)
{
    uint64_t state = 99;
    char *values = room(300 * 640 * 4 + GUARD);
    size_t shape_count = sizeof shapes / sizeof shapes[0];
    for (size_t i = 0; i < shape_count * 4 * WF_QUANT_FORMAT_COUNT; i++) {
        const struct shape_row *shape = &shapes[i % shape_count];
        unsigned kind = (unsigned)(i / shape_count % 4);
        enum wf_dtype dtype = dtypes[i / shape_count / 4];
        size_t bytes = wf_dtype_bytes(dtype), skew = i % 3 * bytes;
        fill(values, shape->rows * (shape->columns + shape->gap) * bytes + 16, dtype, kind, &state);
        struct wf_quant_matrix matrix = {.values = values + skew,
                                         .dtype = dtype,
                                         .rows = shape->rows,
                                         .columns = shape->columns,
                                         .row_bytes = (shape->columns + shape->gap) * bytes};
        for (unsigned rule = WF_QUANT_NONE + 1; rule < WF_QUANT_COUNT; rule++) {
            compare_rule((enum wf_quant)rule, &matrix, shape->gap, kind);
        }
    }
    free(values);
}

/* A row of values below its amax for each amax that bf16 has, infinity too. */
Test(quant_paths, every_pattern_as_an_amax)
{
    struct path paths[2];
    size_t path_count = paths_of_this_machine(paths);
    uint64_t state = 3;
    for (uint32_t amax = 0; amax <= 0x7f80; amax++) {
        uint16_t values[64];
        for (size_t i = 0; i < 64; i++) {
            uint64_t random = wf_splitmix64(&state);
            uint32_t below = (uint32_t)(random % (amax < 1600 ? amax + 1 : 1600));
            values[i] = (uint16_t)((amax - below) | (random >> 48 & 0x8000));
        }
        values[amax % 64] = (uint16_t)amax;
        struct wf_quant_matrix matrix = {values, WF_DTYPE_BF16, 1, 64, 128};
        for (unsigned r = WF_QUANT_NONE + 1; r < WF_QUANT_COUNT; r++) {
            enum wf_quant rule = (enum wf_quant)r;
            uint8_t expected[64], codes[64];
            float expected_scale, scale;
            wf_quantise_by(&wf_quant_portable_kernels, rule, &matrix, expected, 64, &expected_scale,
                           1);
            for (size_t p = 0; p < path_count; p++) {
                wf_quantise_by(paths[p].kernels, rule, &matrix, codes, 64, &scale, 1);
                cr_assert(memcmp(codes, expected, 64) == 0 && scale == expected_scale,
                          "%s, %s, amax %04x", paths[p].name, wf_quant_name(rule), amax);
            }
        }
    }
}
