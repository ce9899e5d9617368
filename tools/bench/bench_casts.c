/* bench_casts.c - casts and fp8 quantising from memory to memory on one core, against moving as
 * many bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/casts.h"
#include "models/quant.h"
#include "runtime/splitmix.h"
#include "tools/bench/bench.h"

enum {
    ROWS = 8192,
    COLUMNS = 8192,
    ELEMENTS = ROWS * COLUMNS, /* 256 MiB as f32: more than the caches hold */
};

struct cast_row {
    const char *name;
    enum wf_dtype from, to;
    enum wf_quant rule; /* NONE: a cast */
};

#define CAST(name, from, to)                                         \
    {                                                                \
        "casts/" name, WF_DTYPE_##from, WF_DTYPE_##to, WF_QUANT_NONE \
    }
#define QUANT(name, from, to, rule)                                    \
    {                                                                  \
        "casts/" name, WF_DTYPE_##from, WF_DTYPE_##to, WF_QUANT_##rule \
    }
static const struct cast_row rows[] = {
    CAST("bf16_to_f32", BF16, F32),
    CAST("f32_to_bf16", F32, BF16),
    CAST("f16_to_f32", F16, F32),
    CAST("f32_to_f16", F32, F16),
    CAST("bf16_to_f16", BF16, F16),
    CAST("f16_to_bf16", F16, BF16),
    CAST("bf16_to_bf16", BF16, BF16),
    CAST("bf16_to_e4m3", BF16, F8_E4M3),
    CAST("f32_to_e4m3", F32, F8_E4M3),
    CAST("bf16_to_e5m2", BF16, F8_E5M2),
    CAST("e4m3_to_bf16", F8_E4M3, BF16),
    CAST("e4m3_to_f32", F8_E4M3, F32),
    CAST("e5m2_to_bf16", F8_E5M2, BF16),
    QUANT("fp8_block", BF16, F8_E4M3, VLLM),
    QUANT("fp8_block_divide", BF16, F8_E4M3, DEEPSEEK),
    QUANT("fp8_block_f32", F32, F8_E4M3, VLLM),
    QUANT("fp8_row", BF16, F8_E4M3, ROW128),
    QUANT("fp8_channel", BF16, F8_E4M3, CHANNEL_MUL),
    QUANT("fp8_tensor", BF16, F8_E4M3, TENSOR),
    QUANT("fp8_dequant", F8_E4M3, BF16, VLLM),
};

struct casting {
    char *src, *dst; /* 4 * ELEMENTS bytes each, touched */
    float *scales;   /* ELEMENTS / 128 */
    const struct cast_row *row;
    size_t half_bytes; /* (bytes read + bytes written) / 2 */
};

static double rate(size_t bytes, uint64_t start_ns)
{
    return (double)bytes / (double)(wf_bench_now_ns() - start_ns);
}

static uint64_t scale_stride(enum wf_quant rule)
{
    uint32_t block_rows, block_columns;
    wf_quant_block(rule, &block_rows, &block_columns);
    return block_columns == 0 ? 1 : COLUMNS / block_columns;
}

static double measure_cast(void *context)
{
    const struct casting *casting = context;
    const struct cast_row *row = casting->row;
    uint64_t start_ns = wf_bench_now_ns();
    if (row->rule == WF_QUANT_NONE) {
        wf_cast_bare_streaming_for(row->from, row->to, WF_CAST_SATURATE)(casting->dst, casting->src,
                                                                         ELEMENTS);
        wf_cast_fence();
    } else if (row->from == WF_DTYPE_F8_E4M3) {
        wf_dequantise(row->rule, (const uint8_t *)casting->src, COLUMNS, casting->scales,
                      scale_stride(row->rule), ROWS, COLUMNS, casting->dst, row->to,
                      COLUMNS * wf_dtype_bytes(row->to), false);
    } else {
        struct wf_quant_matrix matrix = {casting->src, row->from, ROWS, COLUMNS,
                                         COLUMNS * wf_dtype_bytes(row->from)};
        wf_quantise(row->rule, &matrix, (uint8_t *)casting->dst, COLUMNS, casting->scales,
                    scale_stride(row->rule), false);
    }
    return rate(casting->half_bytes, start_ns);
}

static double measure_memcpy(void *context)
{
    const struct casting *casting = context;
    uint64_t start_ns = wf_bench_now_ns();
    memcpy(casting->dst, casting->src, casting->half_bytes);
    return rate(casting->half_bytes, start_ns);
}

/* Weights of about 1/32 in the format of the source, of either sign; a code for each as fp8. */
static void fill(struct casting *casting)
{
    uint64_t state = 1;
    const struct cast_row *row = casting->row;
    uint64_t keep = row->from == WF_DTYPE_F32    ? 0x81ffffff81ffffffu
                    : row->from == WF_DTYPE_F16  ? 0x8fff8fff8fff8fffu
                    : row->from == WF_DTYPE_BF16 ? 0x81ff81ff81ff81ffu
                                                 : 0xf7f7f7f7f7f7f7f7u;
    uint64_t exponent = row->from == WF_DTYPE_F32    ? 0x3c0000003c000000u
                        : row->from == WF_DTYPE_F16  ? 0x2000200020002000u
                        : row->from == WF_DTYPE_BF16 ? 0x3c003c003c003c00u
                                                     : 0;
    for (size_t i = 0; i < ELEMENTS * wf_dtype_bytes(row->from); i += 8) {
        uint64_t word = (wf_splitmix64(&state) & keep) | exponent;
        memcpy(casting->src + i, &word, 8);
    }
    for (size_t i = 0; i < ELEMENTS / 128; i++) {
        casting->scales[i] = 0x1p-8f;
    }
}

static enum wf_status run_rows(struct wf_bench *bench, struct casting *casting,
                               struct wf_error *error)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        casting->row = &rows[i];
        casting->half_bytes =
            (size_t)ELEMENTS * (wf_dtype_bytes(rows[i].from) + wf_dtype_bytes(rows[i].to)) / 2;
        fill(casting);
        char params[100];
        snprintf(params, sizeof params, "rows=%d,columns=%d,rule=%s,threads=1", ROWS, COLUMNS,
                 wf_quant_name(rows[i].rule));
        struct wf_bench_case spec = {.name = rows[i].name,
                                     .params = params,
                                     .unit = "GB/s",
                                     .measure = measure_cast,
                                     .limit_how = "memcpy of (bytes read + written) / 2",
                                     .limit = measure_memcpy};
        enum wf_status status = wf_bench_case(bench, &spec, casting, error);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

enum wf_status wf_bench_casts(struct wf_bench *bench, struct wf_error *error)
{
    size_t bytes = (size_t)ELEMENTS * 4;
    struct casting casting = {.src = malloc(bytes),
                              .dst = malloc(bytes),
                              .scales = malloc(ELEMENTS / 128 * sizeof(float))};
    enum wf_status status;
    if (casting.src == NULL || casting.dst == NULL || casting.scales == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "the benchmark needs 514 MiB of memory");
    } else {
        memset(casting.src, 0x3c, bytes);
        memset(casting.dst, 0x3c, bytes);
        status = run_rows(bench, &casting, error);
    }
    free(casting.src);
    free(casting.dst);
    free(casting.scales);
    return status;
}
