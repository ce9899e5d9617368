/* test_quantised.c - the element check's own telling of the rules, against what producers gave and
 * against the codes themselves. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/quantised.h"

enum { ROWS = 132, COLUMNS = 136, BLOCKS = 2 };

static void read_file(const char *name, void *out, size_t len)
{
    char path[200];
    snprintf(path, sizeof path, "tests/golden/fp8-quant-%s", name);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fread(out, 1, len, file), len, "%s", path);
    cr_assert_eq(fgetc(file), EOF, "%s", path);
    fclose(file);
}

static float value_at(const uint16_t *bits, unsigned row, unsigned column)
{
    uint32_t wide = (uint32_t)bits[row * COLUMNS + column] << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static float amax_of(const uint16_t *bits, unsigned i, unsigned j)
{
    float amax = 0;
    for (unsigned r = i * 128; r < ROWS && r < (i + 1) * 128; r++) {
        for (unsigned c = j * 128; c < COLUMNS && c < (j + 1) * 128; c++) {
            float magnitude = fabsf(value_at(bits, r, c));
            amax = magnitude > amax ? magnitude : amax;
        }
    }
    return amax;
}

static const struct {
    enum wf_quant rule;
    const char *variant;
} rows[] = {
    {WF_QUANT_DEEPSEEK, "block_div_floor1e-4"}, {WF_QUANT_AWEX, "block_div_floor1e-4"},
    {WF_QUANT_VLLM, "block_mul_floor1e-4"},     {WF_QUANT_VLLM_UE8M0, "block_mul_floor1e-4_ue8m0"},
    {WF_QUANT_SLIME, "block_mul_floor1e-10"},   {WF_QUANT_TRANSFORMERS, "block_hf"},
};

Test(quantised, gives_what_producers_gave)
{
    uint16_t values[ROWS * COLUMNS];
    uint8_t codes[ROWS * COLUMNS];
    float scales[BLOCKS * BLOCKS];
    read_file("block/w_bf16.bin", values, sizeof values);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[64];
        unsigned wrong_codes = 0, wrong_scales = 0;
        snprintf(name, sizeof name, "block/%s.q.bin", rows[i].variant);
        read_file(name, codes, sizeof codes);
        snprintf(name, sizeof name, "block/%s.scale.bin", rows[i].variant);
        read_file(name, scales, sizeof scales);
        for (unsigned r = 0; r < ROWS; r++) {
            for (unsigned c = 0; c < COLUMNS; c++) {
                struct wf_check_block block =
                    wf_check_block(rows[i].rule, amax_of(values, r / 128, c / 128));
                wrong_scales += memcmp(&block.scale, &scales[r / 128 * BLOCKS + c / 128], 4) != 0;
                wrong_codes +=
                    wf_check_code(&block, value_at(values, r, c)) != codes[r * COLUMNS + c];
                c += c < 128 && r % 16 != 0 ? 30 : 0; /* amax is not kept: some will do */
            }
        }
        cr_expect_eq(wrong_codes, 0, "%s: %u codes", rows[i].variant, wrong_codes);
        cr_expect_eq(wrong_scales, 0, "%s: %u scales", rows[i].variant, wrong_scales);
    }
}

/* A scale for each row, which is a block of its own. */
Test(quantised, gives_what_producers_gave_for_rows)
{
    enum { HIGH = 12, WIDE = 256 };
    static const struct {
        enum wf_quant rule;
        const char *codes, *scales;
    } channels[] = {
        {WF_QUANT_CHANNEL_DIV, "rows/channel_div.q.bin", "rows/channel_div.scale.bin"},
        {WF_QUANT_CHANNEL_MUL, "rows/channel_mul.q.bin", "rows/channel_mul.scale.bin"},
    };
    uint16_t bits[HIGH * WIDE];
    uint8_t codes[HIGH * WIDE];
    float scales[HIGH];
    read_file("rows/w_bf16.bin", bits, sizeof bits);
    for (size_t i = 0; i < sizeof channels / sizeof channels[0]; i++) {
        read_file(channels[i].codes, codes, sizeof codes);
        read_file(channels[i].scales, scales, sizeof scales);
        for (unsigned r = 0; r < HIGH; r++) {
            float values[WIDE], amax = 0;
            for (unsigned c = 0; c < WIDE; c++) {
                uint32_t wide = (uint32_t)bits[r * WIDE + c] << 16;
                memcpy(&values[c], &wide, sizeof wide);
                amax = fabsf(values[c]) > amax ? fabsf(values[c]) : amax;
            }
            struct wf_check_block block = wf_check_block(channels[i].rule, amax);
            cr_expect_eq(block.scale, scales[r], "%s: row %u", channels[i].codes, r);
            for (unsigned c = 0; c < WIDE; c++) {
                cr_expect_eq(wf_check_code(&block, values[c]), codes[r * WIDE + c], "%s[%u, %u]",
                             channels[i].codes, r, c);
            }
        }
    }
}

/* Every code is the nearest to its own value, and of two neighbours' middle the even one is. */
Test(quantised, codes_and_their_values_agree)
{
    const struct wf_check_block one = {.scale = 1, .factor = 1};
    for (unsigned code = 0; code < 256; code++) {
        float value = wf_check_decode(&one, (uint8_t)code);
        if ((code & 0x7f) == 0x7f) {
            cr_expect(isnan(value), "%02x", code);
            continue;
        }
        cr_expect_eq(wf_check_code(&one, value), code, "%02x", code);
        if ((code & 0x7f) < 0x7e) {
            float next = wf_check_decode(&one, (uint8_t)(code + 1)), middle = (value + next) / 2;
            cr_expect_eq(wf_check_code(&one, middle), code + (code & 1), "%02x", code);
            cr_expect_eq(wf_check_code(&one, middle + (next - middle) / 1024), code + 1, "%02x",
                         code);
            cr_expect_eq(wf_check_code(&one, middle - (next - middle) / 1024), code, "%02x", code);
        }
    }
    cr_expect_eq(wf_check_code(&one, 1e30f), 0x7e);
    cr_expect_eq(wf_check_code(&one, -INFINITY), 0xfe);
    cr_expect_eq(wf_check_code(&one, NAN) & 0x7f, 0x7f);
}

Test(quantised, rules_without_such_blocks_are_not_known)
{
    for (unsigned rule = 0; rule < WF_QUANT_COUNT; rule++) {
        uint32_t block_rows = 0, block_columns = 0;
        if (rule != WF_QUANT_NONE) {
            wf_quant_block((enum wf_quant)rule, &block_rows, &block_columns);
        }
        bool wanted =
            (block_rows == 128 && block_columns == 128) || wf_quant_is_by_row((enum wf_quant)rule);
        cr_expect_eq(wf_check_knows((enum wf_quant)rule), wanted, "%s",
                     wf_quant_name((enum wf_quant)rule));
    }
}
