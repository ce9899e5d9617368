/* test_step.c - the optimizer step: its rule bit by bit, its period, and that it spares NaNs. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/step.h"

static const struct {
    const char *name;
    enum wf_dtype dtype;
    uint32_t shift, exponent, bits;
} kinds[] = {
    {"bf16", WF_DTYPE_BF16, 0, 0x7f80, 16},    {"f16", WF_DTYPE_F16, 3, 0x7c00, 16},
    {"f32", WF_DTYPE_F32, 16, 0x7f800000, 32}, {"u8", WF_DTYPE_U8, 0, 0, 8},
    {"i32", WF_DTYPE_I32, 0, 0, 32},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* The rule as the header words it, written another way than the code. */
static uint32_t by_the_rule(uint32_t x, size_t kind, uint64_t steps)
{
    if (kinds[kind].exponent && (x & kinds[kind].exponent) == kinds[kind].exponent) {
        return x;
    }
    uint32_t m = x >> kinds[kind].shift & 127;
    uint32_t next = (uint32_t)((m + 37 * steps) % 128);
    return x - (m << kinds[kind].shift) + (next << kinds[kind].shift);
}

Test(step, follows_its_rule)
{
    static const struct {
        const char *name;
        enum wf_dtype dtype;
        uint32_t before, after_one, after_three;
    } rows[] = {
        {"bf16 1.0", WF_DTYPE_BF16, 0x3f80, 0x3fa5, 0x3fef},
        {"bf16 wraps, sign stays", WF_DTYPE_BF16, 0xbfff, 0xbfa4, 0xbfee},
        {"bf16 zero", WF_DTYPE_BF16, 0x0000, 0x0025, 0x006f},
        {"bf16 infinity", WF_DTYPE_BF16, 0xff80, 0xff80, 0xff80},
        {"bf16 NaN", WF_DTYPE_BF16, 0x7fc1, 0x7fc1, 0x7fc1},
        {"bf16 largest", WF_DTYPE_BF16, 0x7f7f, 0x7f24, 0x7f6e},
        {"f16 1.0", WF_DTYPE_F16, 0x3c00, 0x3d28, 0x3f78},
        {"f16 low bits stay", WF_DTYPE_F16, 0x3fff, 0x3d27, 0x3f77},
        {"f16 infinity", WF_DTYPE_F16, 0x7c00, 0x7c00, 0x7c00},
        {"f32 1.0", WF_DTYPE_F32, 0x3f800000, 0x3fa50000, 0x3fef0000},
        {"f32 low bits stay", WF_DTYPE_F32, 0x3fffffff, 0x3fa4ffff, 0x3feeffff},
        {"f32 NaN", WF_DTYPE_F32, 0x7f800001, 0x7f800001, 0x7f800001},
        {"packed bytes", WF_DTYPE_U8, 0xff, 0xa4, 0xee},
        {"packed words", WF_DTYPE_I32, 0xffffff80, 0xffffffa5, 0xffffffef},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cr_assert_eq(wf_step_value(rows[i].before, rows[i].dtype, 0), rows[i].before, "%s",
                     rows[i].name);
        cr_assert_eq(wf_step_value(rows[i].before, rows[i].dtype, 1), rows[i].after_one, "%s: %x",
                     rows[i].name, wf_step_value(rows[i].before, rows[i].dtype, 1));
        cr_assert_eq(wf_step_value(rows[i].before, rows[i].dtype, 3), rows[i].after_three, "%s: %x",
                     rows[i].name, wf_step_value(rows[i].before, rows[i].dtype, 3));
    }
}

static uint32_t pattern(uint32_t i, size_t bytes)
{
    return bytes == 1 ? i & 0xff : bytes == 2 ? i : i << 16 | i;
}

Test(step, arrays_and_single_values_agree_on_every_pattern)
{
    static const uint64_t steps[] = {0, 1, 2, 5, 127, 128, 129, UINT64_MAX};
    for (size_t kind = 0; kind < KINDS; kind++) {
        size_t bytes = kinds[kind].bits / 8;
        uint8_t *buffer = malloc(65536 * bytes);
        for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
            for (uint32_t i = 0; i < 65536; i++) {
                uint32_t x = pattern(i, bytes);
                memcpy(buffer + i * bytes, &x, bytes);
            }
            wf_step_apply(buffer, kinds[kind].dtype, 65536, steps[s]);
            for (uint32_t i = 0; i < 65536; i++) {
                uint32_t x = pattern(i, bytes), got = 0;
                memcpy(&got, buffer + i * bytes, bytes);
                uint32_t expected = by_the_rule(x, kind, steps[s] % 128);
                cr_assert_eq(got, expected, "%s %x after %zu", kinds[kind].name, x, s);
                cr_assert_eq(wf_step_value(x, kinds[kind].dtype, steps[s]), expected);
            }
        }
        free(buffer);
    }
}

Test(step, all_128_versions_of_a_number_differ)
{
    for (size_t kind = 0; kind < KINDS; kind++) {
        uint32_t x = kinds[kind].bits == 8 ? 0x51 : kinds[kind].bits == 16 ? 0x3a51 : 0x3a517abc;
        bool seen[128] = {false};
        for (uint64_t v = 0; v < WF_STEP_PERIOD; v++) {
            uint32_t m = wf_step_value(x, kinds[kind].dtype, v) >> kinds[kind].shift & 127;
            cr_assert(!seen[m], "%s version %d", kinds[kind].name, (int)v);
            seen[m] = true;
        }
    }
}

Test(step, of_a_bf16_value_in_f32_is_the_step_of_the_bf16)
{
    for (uint32_t i = 0; i < 65536; i++) {
        cr_assert_eq(wf_step_value(i << 16, WF_DTYPE_F32, 11), wf_step_value(i, WF_DTYPE_BF16, 11)
                                                                   << 16);
    }
}

Test(step, supports_what_can_be_cast_and_packed_weights)
{
    cr_assert(wf_step_supports(WF_DTYPE_BF16));
    cr_assert(wf_step_supports(WF_DTYPE_I32));
    cr_assert_not(wf_step_supports(WF_DTYPE_I64));
    cr_assert_not(wf_step_supports(WF_DTYPE_NONE));
}
