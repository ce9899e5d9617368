/* test_casts.c - the reference against torch and the compiler's own conversion; every faster path
 * against the reference, bit for bit, at every alignment. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/casts.h"
#include "models/casts_kernels.h"
#include "models/simd.h"
#include "runtime/splitmix.h"

enum { GUARD = 64, RANDOM_BLOCK = 1 << 16, RANDOM_BLOCKS = 64 /* 4 M values */ };

struct bits_row {
    const char *name;
    uint32_t from, to;
};

struct bits_table {
    enum wf_dtype from, to;
    const struct bits_row *rows;
    size_t count;
};

static const struct bits_row f32_to_bf16_rows[] = {
    {"0", 0x00000000, 0x0000},
    {"1", 0x3f800000, 0x3f80},
    {"-1", 0xbf800000, 0xbf80},
    {"tie to even, down", 0x3f808000, 0x3f80},
    {"tie to even, up", 0x3f818000, 0x3f82},
    {"0.1", 0x3dcccccd, 0x3dcd},
    {"pi", 0x40490fdb, 0x4049},
    {"65472 carries into the exponent", 0x477fe000, 0x4780},
    {"largest finite", 0x7f7f0000, 0x7f7f},
    {"overflow", 0x7f7f8000, 0x7f80},
    {"-inf", 0xff800000, 0xff80},
    {"subnormal rounds up", 0x000116c2, 0x0001},
    {"subnormal stays", 0x00010000, 0x0001},
    {"signalling NaN", 0x7f800001, 0xffff},
    {"quiet NaN", 0x7fc00000, 0xffff},
    {"negative NaN", 0xffc12345, 0xffff},
};

static const struct bits_row f32_to_f16_rows[] = {
    {"largest finite", 0x477fefff, 0x7bff},
    {"overflow at 65520", 0x477ff000, 0x7c00},
    {"2^16", 0x47800000, 0x7c00},
    {"smallest normal", 0x38800000, 0x0400},
    {"rounds up to normal", 0x387ff000, 0x0400},
    {"largest subnormal", 0x387fc000, 0x03ff},
    {"smallest subnormal", 0x33800000, 0x0001},
    {"half of it, to even", 0x33000000, 0x0000},
    {"just above half", 0x33000001, 0x0001},
    {"negative, below half", 0xb2ffffff, 0x8000},
    {"subnormal source", 0x00000001, 0x0000},
    {"-inf", 0xff800000, 0xfc00},
    {"signalling NaN", 0x7f802000, 0x7e01},
    {"payload below f16", 0xff800001, 0xfe00},
    {"payload top bits", 0x7fffffff, 0x7fff},
    {"tie to even", 0x3f801000, 0x3c00},
    {"tie to even, up", 0x3f803000, 0x3c02},
};

static const struct bits_row f16_to_f32_rows[] = {
    {"1", 0x3c00, 0x3f800000},
    {"smallest subnormal", 0x0001, 0x33800000},
    {"largest subnormal", 0x83ff, 0xb87fc000},
    {"largest", 0x7bff, 0x477fe000},
    {"-inf", 0xfc00, 0xff800000},
    {"signalling NaN becomes quiet", 0x7c01, 0x7fc02000},
    {"quiet NaN", 0xfe01, 0xffc02000},
    {"-0", 0x8000, 0x80000000},
};

static const struct bits_row bf16_to_f32_rows[] = {
    {"NaN bits stay", 0x7f81, 0x7f810000},
    {"subnormal", 0x8001, 0x80010000},
};

static const struct bits_row bf16_to_f16_rows[] = {
    {"1", 0x3f80, 0x3c00},
    {"overflow", 0x4780, 0x7c00},
    {"vanishes", 0x3280, 0x0000},
    {"NaN keeps sign and top bits", 0xffa0, 0xff00},
};

static const struct bits_row f16_to_e4m3_rows[] = {
    {"1", 0x3c00, 0x38},
    {"464, to even", 0x5f40, 0x7e},
    {"480 saturates", 0x5f80, 0x7e},
    {"-inf saturates", 0xfc00, 0xfe},
    {"half of the smallest, to even", 0x1400, 0x00},
    {"above half", 0x1401, 0x01},
    {"subnormal source", 0x8001, 0x80},
    {"NaN", 0xfe01, 0xff},
};

static const struct bits_row f16_to_e5m2_rows[] = {
    {"1", 0x3c00, 0x3c},
    {"tie to even, down", 0x3c80, 0x3c},
    {"tie to even, up", 0x3d80, 0x3e},
    {"61440 is infinity", 0x7b80, 0x7c},
    {"below that", 0x7b7f, 0x7b},
    {"subnormal stays", 0x8100, 0x81},
    {"NaN", 0x7c01, 0x7f},
};

static const struct bits_row e4m3_to_f16_rows[] = {
    {"448", 0x7e, 0x5f00},
    {"smallest subnormal", 0x81, 0x9800},
    {"NaN", 0x7f, 0x7f80},
    {"-0", 0x80, 0x8000},
};

static const struct bits_row e5m2_to_f16_rows[] = {
    {"57344", 0x7b, 0x7b00},
    {"smallest subnormal", 0x01, 0x0100},
    {"-inf", 0xfc, 0xfc00},
    {"NaN becomes quiet", 0x7d, 0x7f00},
};

static const struct bits_row f16_to_bf16_rows[] = {
    {"1", 0x3c00, 0x3f80},
    {"tie to even", 0x3c04, 0x3f80},
    {"tie to even, up", 0x3c0c, 0x3f82},
    {"largest carries", 0x7bff, 0x4780},
    {"NaN", 0x7c01, 0xffff},
};

#define TABLE(from, to, rows)                                              \
    {                                                                      \
        WF_DTYPE_##from, WF_DTYPE_##to, rows, sizeof rows / sizeof rows[0] \
    }
static const struct bits_table tables[] = {
    TABLE(F32, BF16, f32_to_bf16_rows),    TABLE(F32, F16, f32_to_f16_rows),
    TABLE(F16, F32, f16_to_f32_rows),      TABLE(BF16, F32, bf16_to_f32_rows),
    TABLE(BF16, F16, bf16_to_f16_rows),    TABLE(F16, BF16, f16_to_bf16_rows),
    TABLE(F16, F8_E4M3, f16_to_e4m3_rows), TABLE(F16, F8_E5M2, f16_to_e5m2_rows),
    TABLE(F8_E4M3, F16, e4m3_to_f16_rows), TABLE(F8_E5M2, F16, e5m2_to_f16_rows),
};

Test(casts, values_that_are_known)
{
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        for (size_t r = 0; r < 2 * tables[t].count; r++) {
            const struct bits_row *row = &tables[t].rows[r / 2];
            uint32_t to = 0;
            wf_cast_bare_for(tables[t].from, tables[t].to, WF_CAST_SATURATE,
                             r % 2 == 0)(&to, &row->from, 1);
            cr_expect_eq(to, row->to, "%s to %s, %s: %08x", wf_dtype_name(tables[t].from),
                         wf_dtype_name(tables[t].to), row->name, to);
        }
    }
}

/* Tables of torch's, or of ml_dtypes where that is the rule. Without a file of inputs the input is
 * the index. */
struct torch_row {
    const char *in, *out;
    enum wf_dtype from, to;
    enum wf_cast_above above;
    size_t count;
};

static const struct torch_row torch_rows[] = {
    {"f32_to_bf16.in", "f32_to_bf16.out", WF_DTYPE_F32, WF_DTYPE_BF16, WF_CAST_SATURATE, 3032},
    {"f32_to_e4m3fn.in", "f32_to_e4m3fn.out", WF_DTYPE_F32, WF_DTYPE_F8_E4M3, WF_CAST_SATURATE,
     5552},
    {"f32_to_e5m2.in", "f32_to_e5m2.out", WF_DTYPE_F32, WF_DTYPE_F8_E5M2, WF_CAST_SATURATE, 5516},
    {NULL, "bf16_to_e4m3fn", WF_DTYPE_BF16, WF_DTYPE_F8_E4M3, WF_CAST_SATURATE, 65536},
    {NULL, "bf16_to_e4m3fn_nan_on_overflow", WF_DTYPE_BF16, WF_DTYPE_F8_E4M3, WF_CAST_NAN_ABOVE,
     65536},
    {NULL, "bf16_to_e5m2", WF_DTYPE_BF16, WF_DTYPE_F8_E5M2, WF_CAST_SATURATE, 65536},
    {NULL, "bf16_to_e5m2", WF_DTYPE_BF16, WF_DTYPE_F8_E5M2, WF_CAST_NAN_ABOVE, 65536},
    {NULL, "e4m3fn_to_f32", WF_DTYPE_F8_E4M3, WF_DTYPE_F32, WF_CAST_SATURATE, 256},
    {NULL, "e4m3fn_to_bf16", WF_DTYPE_F8_E4M3, WF_DTYPE_BF16, WF_CAST_SATURATE, 256},
    {NULL, "e5m2_to_f32", WF_DTYPE_F8_E5M2, WF_DTYPE_F32, WF_CAST_SATURATE, 256},
    {NULL, "e5m2_to_bf16", WF_DTYPE_F8_E5M2, WF_DTYPE_BF16, WF_CAST_SATURATE, 256},
};

static void *read_golden(const char *name, size_t len)
{
    char path[200];
    snprintf(path, sizeof path, "tests/golden/torch-casts/%s.bin", name);
    FILE *file = fopen(path, "rb");
    cr_assert(file != NULL, "%s", path);
    char *bytes = malloc(len + 1);
    cr_assert_eq(fread(bytes, 1, len + 1, file), len, "%s", path);
    fclose(file);
    return bytes;
}

/* torch's NaN in bf16 depends on its vector path; elsewhere bits are compared. */
static bool agrees(enum wf_dtype to, uint32_t made, uint32_t expected)
{
    bool both_nan = (made & 0x7fff) > 0x7f80 && (expected & 0x7fff) > 0x7f80;
    return made == expected || (to == WF_DTYPE_BF16 && both_nan);
}

static void check_torch(const struct torch_row *row, bool portable)
{
    size_t from_bytes = wf_dtype_bytes(row->from), to_bytes = wf_dtype_bytes(row->to), differ = 0;
    char *out = read_golden(row->out, to_bytes * row->count), *in;
    if (row->in != NULL) {
        in = read_golden(row->in, from_bytes * row->count);
    } else {
        in = malloc(from_bytes * row->count);
        for (size_t i = 0; i < row->count; i++) {
            memcpy(in + i * from_bytes, &i, from_bytes); /* little-endian */
        }
    }
    char *made = malloc(to_bytes * row->count);
    wf_cast_bare_for(row->from, row->to, row->above, portable)(made, in, row->count);
    for (size_t i = 0; i < row->count; i++) {
        uint32_t bits = 0, expected = 0;
        memcpy(&bits, made + i * to_bytes, to_bytes);
        memcpy(&expected, out + i * to_bytes, to_bytes);
        differ += !agrees(row->to, bits, expected);
    }
    cr_expect_eq(differ, 0, "%s, %s: %zu of %zu differ", row->out, portable ? "portable" : "chosen",
                 differ, row->count);
    free(in);
    free(out);
    free(made);
}

Test(casts, torch_agrees)
{
    for (size_t i = 0; i < 2 * sizeof torch_rows / sizeof torch_rows[0]; i++) {
        check_torch(&torch_rows[i / 2], i % 2 == 0);
    }
}

#ifdef __FLT16_MAX__
static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

Test(casts, the_compiler_agrees_on_f16_outside_nan)
{
    wf_cast_t *widen = wf_cast_for(WF_DTYPE_F16, WF_DTYPE_F32, true);
    wf_cast_t *narrow = wf_cast_for(WF_DTYPE_F32, WF_DTYPE_F16, true);
    for (uint32_t bits = 0; bits < 1 << 16; bits++) {
        uint16_t half_bits = (uint16_t)bits;
        _Float16 half;
        memcpy(&half, &half_bits, sizeof half);
        uint32_t wide;
        widen(&wide, &half_bits, 1);
        float expected = (float)half;
        cr_assert(expected != expected || memcmp(&wide, &expected, 4) == 0, "f16 %04x", bits);
    }
    for (uint64_t i = 0; i < 1 << 20; i++) {
        uint32_t bits = (uint32_t)(i * 4099 + (i & 1));
        uint16_t half_bits;
        narrow(&half_bits, &bits, 1);
        _Float16 expected = (_Float16)float_of(bits);
        cr_assert(expected != expected || memcmp(&half_bits, &expected, 2) == 0, "f32 %08x", bits);
    }
}
#endif

/* --- faster paths ---------------------------------------------------------------------------- */

struct path {
    const char *name;
    const struct wf_cast_kernels *kernels;
};

static size_t paths_of_this_machine(struct path paths_out[3])
{
    size_t count = 0;
    paths_out[count++] = (struct path){"portable", &wf_cast_portable_kernels};
#if defined(__x86_64__)
    if (wf_simd_best() >= WF_SIMD_AVX2) {
        paths_out[count++] = (struct path){"avx2", &wf_cast_avx2_kernels};
    }
    if (wf_simd_best() >= WF_SIMD_AVX512) {
        paths_out[count++] = (struct path){"avx512", &wf_cast_avx512_kernels};
    }
#endif
    return count;
}

struct pair_row {
    const char *name;
    enum wf_dtype from, to;
    enum wf_cast_above above;
};

static const struct pair_row pairs[WF_CAST_PAIR_COUNT] = {
#define PAIR_ROW(name, from, to, above) {#name, WF_DTYPE_##from, WF_DTYPE_##to, WF_CAST_##above},
    WF_CAST_PAIR_MAP(PAIR_ROW)
#undef PAIR_ROW
};

/* Casts n elements by every path and compares with the reference; guards stay. */
static void compare_paths(size_t pair, const char *src, size_t n, size_t dst_skew)
{
    struct path paths[3];
    size_t path_count = paths_of_this_machine(paths), bytes = n * wf_dtype_bytes(pairs[pair].to);
    char *expected = malloc(bytes + 1), *room = aligned_alloc(64, (bytes + 4 * GUARD) / 64 * 64);
    char *dst = room + GUARD + dst_skew;
    wf_cast_portable_kernels.plain[pair](expected, src, n);
    for (size_t p = 0; p < 2 * path_count; p++) {
        const struct wf_cast_kernels *kernels = paths[p / 2].kernels;
        memset(room, 0x5a, (bytes + 4 * GUARD) / 64 * 64);
        (p % 2 == 0 ? kernels->plain : kernels->streaming)[pair](dst, src, n);
        wf_cast_fence();
        bool guarded = true;
        for (size_t i = 0; i < 16; i++) {
            guarded = guarded && dst[-1 - (long)i] == 0x5a && dst[bytes + i] == 0x5a;
        }
        cr_expect(guarded && memcmp(dst, expected, bytes) == 0, "%s, %s, %zu elements, skew %zu",
                  pairs[pair].name, paths[p / 2].name, n, dst_skew);
    }
    free(expected);
    free(room);
}

Test(casts, all_patterns_of_16_bits)
{
    uint16_t *all = malloc(sizeof *all << 16);
    for (uint32_t i = 0; i < 1 << 16; i++) {
        all[i] = (uint16_t)i;
    }
    for (size_t pair = 0; pair < WF_CAST_PAIR_COUNT; pair++) {
        if (pairs[pair].from != WF_DTYPE_F32) {
            compare_paths(pair, (char *)all, 1 << 16, 0);
        }
    }
    free(all);
}

/* Around every value that f16, bf16 or fp8 can hold, and around every midpoint. */
Test(casts, boundaries_of_f32)
{
    static const uint32_t low[] = {0,      1,      0xfff,  0x1000, 0x1001, 0x1fff, 0x2000, 0x3000,
                                   0x7fff, 0x8000, 0x8001, 0xefff, 0xf000, 0xf001, 0xffff, 0x9fff};
    uint32_t *values = malloc(sizeof *values << 20);
    for (uint32_t i = 0; i < 1 << 20; i++) {
        values[i] = (i >> 4) << 16 | low[i & 15];
    }
    for (size_t pair = 0; pair < WF_CAST_PAIR_COUNT; pair++) {
        if (pairs[pair].from == WF_DTYPE_F32) {
            compare_paths(pair, (char *)values, 1 << 20, 0);
        }
    }
    free(values);
}

Test(casts, random_f32)
{
    uint64_t state = 2463534242;
    uint64_t *values = malloc(RANDOM_BLOCK * 4);
    for (size_t block = 0; block < RANDOM_BLOCKS; block++) {
        for (size_t i = 0; i < RANDOM_BLOCK / 2; i++) {
            values[i] = wf_splitmix64(&state);
        }
        for (size_t pair = 0; pair < WF_CAST_PAIR_COUNT; pair++) {
            if (pairs[pair].from == WF_DTYPE_F32) {
                compare_paths(pair, (char *)values, RANDOM_BLOCK, 0);
            }
        }
    }
    free(values);
}

Test(casts, any_length_and_alignment)
{
    uint64_t state = 12345, values[200];
    for (size_t i = 0; i < 200; i++) {
        values[i] = wf_splitmix64(&state);
    }
    for (size_t n = 0; n < 200; n++) {
        for (size_t pair = 0; pair < WF_CAST_PAIR_COUNT; pair++) {
            compare_paths(pair, (char *)values + n % 7, n, wf_splitmix64(&state) % 64);
        }
    }
}

Test(casts, copies_of_any_length_and_alignment)
{
    struct path paths[3];
    size_t path_count = paths_of_this_machine(paths);
    char src[4200], dst[4200];
    for (size_t i = 0; i < sizeof src; i++) {
        src[i] = (char)(i * 37 + i / 256);
    }
    for (size_t row = 0; row < 4 * 300 * path_count; row++) {
        size_t log_bytes = row % 4, n = row / 4 % 300, skew = row * 13 % 67;
        size_t len = n << log_bytes;
        memset(dst, 0x5a, sizeof dst);
        paths[row / 1200].kernels->copy_streaming[log_bytes](dst + 64 + skew, src + skew / 3, n);
        wf_cast_fence();
        cr_expect(memcmp(dst + 64 + skew, src + skew / 3, len) == 0 && dst[63 + skew] == 0x5a &&
                      dst[64 + skew + len] == 0x5a,
                  "%s, %zu bytes, skew %zu", paths[row / 1200].name, len, skew);
    }
}

static bool is_fp8(enum wf_dtype dtype)
{
    return dtype == WF_DTYPE_F8_E4M3 || dtype == WF_DTYPE_F8_E5M2;
}

Test(casts, only_castable_pairs_have_a_cast)
{
    for (int from = 0; from <= WF_DTYPE_COUNT; from++) {
        for (int to = 0; to <= WF_DTYPE_COUNT; to++) {
            enum wf_dtype a = (enum wf_dtype)from, b = (enum wf_dtype)to;
            bool castable = wf_dtype_castable(a, b);
            cr_expect_eq(wf_cast_for(a, b, false) != NULL, castable, "%d %d", from, to);
            cr_expect_eq(wf_cast_for(a, b, true) != NULL, castable, "%d %d", from, to);
            cr_expect_eq(wf_cast_streaming_for(a, b) != NULL, castable, "%d %d", from, to);
            bool bare = castable || (is_fp8(a) && wf_dtype_castable(b, WF_DTYPE_F32)) ||
                        (is_fp8(b) && wf_dtype_castable(a, WF_DTYPE_F32));
            for (int above = 0; above < 2; above++) {
                enum wf_cast_above rule = (enum wf_cast_above)above;
                cr_expect_eq(wf_cast_bare_for(a, b, rule, true) != NULL, bare, "%d %d", from, to);
                cr_expect_eq(wf_cast_bare_for(a, b, rule, false) != NULL, bare, "%d %d", from, to);
                cr_expect_eq(wf_cast_bare_streaming_for(a, b, rule) != NULL, bare, "%d %d", from,
                             to);
            }
        }
    }
    uint64_t from = 0x0102030405060708, to = 0;
    wf_cast_for(WF_DTYPE_I64, WF_DTYPE_I64, false)(&to, &from, 1);
    cr_expect_eq(to, from);
}
