/* test_quant.c - every rule against what its producer's own code gave. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/casts.h"
#include "models/quant.h"
#include "tests/models/golden.h"

enum { GUARD = 0x5a };

static void *read_bytes(const char *folder, const char *variant, const char *ending, size_t len)
{
    char path[200];
    snprintf(path, sizeof path, "tests/golden/%s/%s%s", folder, variant, ending);
    size_t found;
    void *bytes = golden_text(path, &found);
    cr_assert_eq(found, len, "%s: %zu bytes, not %zu", path, found, len);
    return bytes;
}

struct golden_row {
    enum wf_quant rule;
    const char *folder, *variant;
    size_t rows, columns, scales;
};

#define BLOCK "fp8-quant-block"
#define ROWS "fp8-quant-rows"
static const struct golden_row golden_rows[] = {
    {WF_QUANT_DEEPSEEK, BLOCK, "block_div_floor1e-4", 132, 136, 4},
    {WF_QUANT_VLLM, BLOCK, "block_mul_floor1e-4", 132, 136, 4},
    {WF_QUANT_VLLM_UE8M0, BLOCK, "block_mul_floor1e-4_ue8m0", 132, 136, 4},
    {WF_QUANT_AWEX, BLOCK, "block_div_floor1e-4", 132, 136, 4},
    {WF_QUANT_SLIME, BLOCK, "block_mul_floor1e-10", 132, 136, 4},
    {WF_QUANT_TRANSFORMERS, BLOCK, "block_hf", 132, 136, 4},
    {WF_QUANT_ROW128, ROWS, "row128_div_floor1e-4", 12, 256, 24},
    {WF_QUANT_ROW128_UE8M0, ROWS, "row128_div_floor1e-4_ue8m0", 12, 256, 24},
    {WF_QUANT_CHANNEL_DIV, ROWS, "channel_div", 12, 256, 12},
    {WF_QUANT_CHANNEL_MUL, ROWS, "channel_mul", 12, 256, 12},
    {WF_QUANT_TENSOR, ROWS, "tensor_fp32_quotient", 12, 256, 1},
    {WF_QUANT_TENSOR_BF16, ROWS, "tensor_bf16_quotient", 12, 256, 1},
};

static void check_golden(const struct golden_row *row, bool portable)
{
    size_t count = row->rows * row->columns, differ = 0;
    void *values = read_bytes(row->folder, "w_bf16", ".bin", 2 * count);
    uint8_t *codes = read_bytes(row->folder, row->variant, ".q.bin", count);
    float *scales = read_bytes(row->folder, row->variant, ".scale.bin", 4 * row->scales);
    struct wf_quant_matrix matrix = {.values = values,
                                     .dtype = WF_DTYPE_BF16,
                                     .rows = row->rows,
                                     .columns = row->columns,
                                     .row_bytes = 2 * row->columns};
    uint32_t block_rows, block_columns;
    wf_quant_block(row->rule, &block_rows, &block_columns);
    uint64_t scale_stride =
        block_columns == 0 ? 1 : (row->columns + block_columns - 1) / block_columns;
    uint8_t *made = malloc(count);
    float made_scales[24];
    wf_quantise(row->rule, &matrix, made, row->columns, made_scales, scale_stride, portable);
    for (size_t i = 0; i < count; i++) {
        differ += made[i] != codes[i];
    }
    cr_expect_eq(differ, 0, "%s, %s: %zu codes differ", wf_quant_name(row->rule),
                 portable ? "portable" : "chosen", differ);
    cr_expect_eq(memcmp(made_scales, scales, 4 * row->scales), 0, "%s: scales differ",
                 wf_quant_name(row->rule));
    free(made);
    free(values);
    free(codes);
    free(scales);
}

Test(quant, every_rule_gives_what_its_producer_gave)
{
    size_t count = sizeof golden_rows / sizeof golden_rows[0];
    cr_expect_eq(count, WF_QUANT_COUNT - 1, "each rule has a row");
    for (size_t i = 0; i < 2 * count; i++) {
        check_golden(&golden_rows[i / 2], i % 2 == 0);
    }
}

Test(quant, dequantising_gives_what_torch_gave)
{
    size_t count = 132 * 136;
    uint8_t *codes = read_bytes(BLOCK, "block_mul_floor1e-10", ".q.bin", count);
    float *scales = read_bytes(BLOCK, "block_mul_floor1e-10", ".scale.bin", 16);
    void *expected = read_bytes(BLOCK, "block_mul_floor1e-10", ".dequant_bf16.bin", 2 * count);
    void *made = malloc(2 * count);
    for (int portable = 0; portable < 2; portable++) {
        memset(made, GUARD, 2 * count);
        wf_dequantise(WF_QUANT_SLIME, codes, 136, scales, 2, 132, 136, made, WF_DTYPE_BF16, 272,
                      portable != 0);
        cr_expect_eq(memcmp(made, expected, 2 * count), 0, "portable %d", portable);
    }
    free(codes);
    free(scales);
    free(expected);
    free(made);
}

/* --- scales ---------------------------------------------------------------------------------- */

Test(quant, scales_of_known_amaxes)
{
    struct json_object *golden = golden_json("tests/golden/vectors/fp8_block_scale.json");
    struct json_object *cases = golden_get(golden, "cases");
    for (size_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *row = json_object_array_get_idx(cases, i);
        float amax = (float)json_object_get_double(golden_get(row, "amax")), scales[2];
        uint32_t expected =
            (uint32_t)strtoul(json_object_get_string(golden_get(row, "scale_fp32_bits")), NULL, 16);
        uint8_t code;
        struct wf_quant_matrix matrix = {&amax, WF_DTYPE_F32, 1, 1, 4};
        wf_quantise(WF_QUANT_DEEPSEEK, &matrix, &code, 1, &scales[0], 1, true);
        wf_quantise(WF_QUANT_VLLM_UE8M0, &matrix, &code, 1, &scales[1], 1, true);
        cr_expect_eq(memcmp(&scales[0], &expected, 4), 0, "amax %g: %a", amax, scales[0]);
        cr_expect_eq(scales[1], ldexpf(1, (int)golden_number(row, "ue8m0_exponent") - 127),
                     "amax %g: %a", amax, scales[1]);
    }
    json_object_put(golden);
}

struct zero_row {
    enum wf_quant rule;
    float scale;
};

static const struct zero_row zero_rows[] = {
    {WF_QUANT_DEEPSEEK, 1e-4f / 448},     {WF_QUANT_VLLM, 1e-4f / 448},
    {WF_QUANT_VLLM_UE8M0, 0x1p-22f},      {WF_QUANT_SLIME, 1e-10f / 448},
    {WF_QUANT_TRANSFORMERS, 1},           {WF_QUANT_ROW128_UE8M0, 0x1p-22f},
    {WF_QUANT_CHANNEL_DIV, 1e-12f / 448}, {WF_QUANT_TENSOR_BF16, 1e-12f / 448},
};

Test(quant, a_block_of_zeros_keeps_their_signs)
{
    for (size_t i = 0; i < sizeof zero_rows / sizeof zero_rows[0]; i++) {
        uint16_t values[3] = {0, 0x8000, 0};
        uint8_t codes[3];
        float scale;
        struct wf_quant_matrix matrix = {values, WF_DTYPE_BF16, 1, 3, 6};
        wf_quantise(zero_rows[i].rule, &matrix, codes, 3, &scale, 1, false);
        cr_expect_eq(scale, zero_rows[i].scale, "%s: %a", wf_quant_name(zero_rows[i].rule), scale);
        cr_expect(codes[0] == 0 && codes[1] == 0x80 && codes[2] == 0, "%s",
                  wf_quant_name(zero_rows[i].rule));
    }
}

struct odd_row {
    const char *name;
    enum wf_quant rule;
    uint16_t values[4]; /* bf16 */
    float scale;
    uint8_t codes[4];
};

#define INF_F __builtin_inff()
static const struct odd_row odd_rows[] = {
    {"NaN does not count",
     WF_QUANT_VLLM,
     {0x3f80, 0x7fc0, 0xff81, 0xbf80},
     1.0f / 448,
     {0x7e, 0x7f, 0xff, 0xfe}},
    {"only NaN",
     WF_QUANT_DEEPSEEK,
     {0x7fc0, 0x7fc0, 0xffc0, 0x7fff},
     1e-4f / 448,
     {0x7f, 0x7f, 0xff, 0x7f}},
    {"only NaN, no floor",
     WF_QUANT_TRANSFORMERS,
     {0x7fc0, 0x7fc0, 0xffc0, 0},
     1,
     {0x7f, 0x7f, 0xff, 0}},
    {"an infinity, divided",
     WF_QUANT_DEEPSEEK,
     {0x3f80, 0x7f80, 0xff80, 0x8000},
     INF_F,
     {0x00, 0x7f, 0xff, 0x80}},
    {"an infinity, multiplied",
     WF_QUANT_SLIME,
     {0xbf80, 0x7f80, 0xff80, 0},
     INF_F,
     {0x80, 0x7f, 0xff, 0x00}},
    {"an infinity, powers of two",
     WF_QUANT_VLLM_UE8M0,
     {0xbf80, 0x7f80, 0xff80, 0},
     INF_F,
     {0x80, 0x7f, 0xff, 0x00}},
    {"an infinity, inverse first",
     WF_QUANT_TRANSFORMERS,
     {0xbf80, 0x7f80, 0xff80, 0},
     INF_F,
     {0x80, 0x7f, 0xff, 0x00}},
    {"NaN beside an infinity",
     WF_QUANT_CHANNEL_DIV,
     {0x7fff, 0x7f80, 0xffff, 0},
     INF_F,
     {0x7f, 0x7f, 0xff, 0x00}},
    {"largest finite",
     WF_QUANT_VLLM,
     {0x7f7f, 0x0001, 0x3f80, 0xff7f},
     0x1.fep127f / 448,
     {0x7e, 0x00, 0x00, 0xfe}},
    {"subnormal values under a floor",
     WF_QUANT_CHANNEL_MUL,
     {0x0001, 0x807f, 0x0080, 0},
     1e-12f / 448,
     {0x00, 0x80, 0x00, 0x00}},
    {"subnormal codes",
     WF_QUANT_ROW128_UE8M0,
     {0x43e0, 0x3b00, 0x3a81, 0xba80},
     1,
     {0x7e, 0x01, 0x01, 0x80}},
};

Test(quant, odd_values)
{
    for (size_t i = 0; i < 2 * sizeof odd_rows / sizeof odd_rows[0]; i++) {
        const struct odd_row *row = &odd_rows[i / 2];
        uint8_t codes[4];
        float scale;
        struct wf_quant_matrix matrix = {row->values, WF_DTYPE_BF16, 1, 4, 8};
        wf_quantise(row->rule, &matrix, codes, 4, &scale, 1, i % 2 == 0);
        cr_expect_eq(scale, row->scale, "%s: %a", row->name, scale);
        cr_expect_eq(memcmp(codes, row->codes, 4), 0, "%s: %02x %02x %02x %02x", row->name,
                     codes[0], codes[1], codes[2], codes[3]);
    }
}

Test(quant, names)
{
    for (unsigned rule = WF_QUANT_NONE; rule < WF_QUANT_COUNT; rule++) {
        const char *name = wf_quant_name((enum wf_quant)rule);
        enum wf_quant expected = rule == WF_QUANT_NONE ? WF_QUANT_NONE : (enum wf_quant)rule;
        cr_expect_eq(wf_quant_from_name(name, strlen(name)), expected, "%s", name);
    }
    cr_expect_str_eq(wf_quant_name((enum wf_quant)99), "none");
    cr_expect_eq(wf_quant_from_name("vllm_", 5), WF_QUANT_NONE);
}
