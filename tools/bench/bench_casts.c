/* bench_casts.c - casts from memory to memory on one core, against moving as many bytes. */
#include <stdlib.h>
#include <string.h>

#include "models/casts.h"
#include "tools/bench/bench.h"

enum { ELEMENTS = 64 << 20 /* 256 MiB as f32: more than the caches hold */ };

struct casting {
    char *src, *dst; /* 4 * ELEMENTS bytes each, touched */
    wf_cast_t *cast;
    size_t half_bytes; /* (bytes read + bytes written) / 2 */
};

static double rate(size_t bytes, uint64_t start_ns)
{
    return (double)bytes / (double)(wf_bench_now_ns() - start_ns);
}

static double measure_cast(void *context)
{
    const struct casting *casting = context;
    uint64_t start_ns = wf_bench_now_ns();
    casting->cast(casting->dst, casting->src, ELEMENTS);
    wf_cast_fence();
    return rate(casting->half_bytes, start_ns);
}

static double measure_memcpy(void *context)
{
    const struct casting *casting = context;
    uint64_t start_ns = wf_bench_now_ns();
    memcpy(casting->dst, casting->src, casting->half_bytes);
    return rate(casting->half_bytes, start_ns);
}

struct cast_row {
    const char *name;
    enum wf_dtype from, to;
};

static const struct cast_row rows[] = {
    {"casts/bf16_to_f32", WF_DTYPE_BF16, WF_DTYPE_F32},
    {"casts/f32_to_bf16", WF_DTYPE_F32, WF_DTYPE_BF16},
    {"casts/f16_to_f32", WF_DTYPE_F16, WF_DTYPE_F32},
    {"casts/f32_to_f16", WF_DTYPE_F32, WF_DTYPE_F16},
    {"casts/bf16_to_f16", WF_DTYPE_BF16, WF_DTYPE_F16},
    {"casts/f16_to_bf16", WF_DTYPE_F16, WF_DTYPE_BF16},
    {"casts/bf16_to_bf16", WF_DTYPE_BF16, WF_DTYPE_BF16},
};

static enum wf_status run_rows(struct wf_bench *bench, struct casting *casting,
                               struct wf_error *error)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        casting->cast = wf_cast_streaming_for(rows[i].from, rows[i].to);
        casting->half_bytes =
            (size_t)ELEMENTS * (wf_dtype_bytes(rows[i].from) + wf_dtype_bytes(rows[i].to)) / 2;
        struct wf_bench_case spec = {.name = rows[i].name,
                                     .params = "elements=67108864,threads=1",
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
    struct casting casting = {.src = malloc(bytes), .dst = malloc(bytes)};
    enum wf_status status;
    if (casting.src == NULL || casting.dst == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "the benchmark needs 512 MiB of memory");
    } else {
        memset(casting.src, 0x3c, bytes);
        memset(casting.dst, 0x3c, bytes);
        status = run_rows(bench, &casting, error);
    }
    free(casting.src);
    free(casting.dst);
    return status;
}
