/* bench_copy.c - the copy engine and its digest on one core, in the chunks that jobs take, against
 * moving (or reading) as many bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/copy.h"
#include "tools/bench/bench.h"

enum {
    SIDE_BYTES = 256 << 20, /* of each buffer: more than the caches hold */
    MOVED_BYTES = 128 << 20,
    CHUNK_BYTES = 1 << 20, /* what a job takes at a time */
    AHEAD_BYTES = 4096,
};

struct copying {
    char *src, *dst; /* SIDE_BYTES each, touched */
    struct wf_box box;
    enum wf_dtype src_dtype, dst_dtype;
    size_t half_bytes; /* (bytes read + bytes written) / 2 */
    uint64_t digest;   /* so that digests are not optimised away */
};

static double rate(size_t bytes, uint64_t start_ns)
{
    return (double)bytes / (double)(wf_bench_now_ns() - start_ns);
}

static struct wf_copy_part chunk_at(const struct copying *copying, uint64_t first)
{
    uint64_t count = CHUNK_BYTES / wf_dtype_bytes(copying->dst_dtype);
    uint64_t left = copying->box.elements - first;
    return (struct wf_copy_part){first, left < count ? left : count};
}

static double measure_copy(void *context)
{
    const struct copying *copying = context;
    uint64_t start_ns = wf_bench_now_ns();
    struct wf_copy_part part;
    for (uint64_t first = 0; first < copying->box.elements; first += part.count) {
        part = chunk_at(copying, first);
        wf_copy_box(&copying->box, copying->src, copying->src_dtype, copying->dst,
                    copying->dst_dtype, part);
    }
    return rate(copying->half_bytes, start_ns);
}

/* All of it, whatever the case moves: a C library may copy less than the caches hold in another
 * way, which is slower here. */
static double measure_memcpy(void *context)
{
    const struct copying *copying = context;
    uint64_t start_ns = wf_bench_now_ns();
    memcpy(copying->dst, copying->src, SIDE_BYTES);
    return rate(SIDE_BYTES, start_ns);
}

static double measure_digest(void *context)
{
    struct copying *copying = context;
    uint64_t start_ns = wf_bench_now_ns();
    struct wf_copy_part part;
    for (uint64_t first = 0; first < copying->box.elements; first += part.count) {
        part = chunk_at(copying, first);
        copying->digest += wf_box_digest(&copying->box, false, copying->src, copying->src_dtype,
                                         copying->dst_dtype, part);
    }
    return rate(copying->box.elements * wf_dtype_bytes(copying->src_dtype), start_ns);
}

/* Four sums and a prefetch a line, so that memory is what takes the time. */
static double measure_reading(void *context)
{
    struct copying *copying = context;
    typedef uint64_t wide __attribute__((vector_size(16)));
    uint64_t start_ns = wf_bench_now_ns();
    size_t bytes = copying->box.elements * wf_dtype_bytes(copying->src_dtype);
    wide a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t line = 0; line < bytes; line += 64) {
        const wide *words = (const wide *)(copying->src + line);
        __builtin_prefetch(copying->src + line + AHEAD_BYTES);
        a += words[0];
        b += words[1];
        c += words[2];
        d += words[3];
    }
    a += b + c + d;
    copying->digest += a[0] + a[1];
    return rate(bytes, start_ns);
}

struct shape_row {
    const char *name, *params;
    enum wf_dtype src, dst;
    uint64_t run_bytes;          /* in the source's type; 0: a transpose */
    uint64_t src_gaps, dst_gaps; /* runs between two runs */
};

static const struct shape_row rows[] = {
#define RUNS(bytes)                                                            \
    {"copy/gather", "run=" #bytes, WF_DTYPE_BF16, WF_DTYPE_BF16, bytes, 1, 0}, \
        {"copy/scatter", "run=" #bytes, WF_DTYPE_BF16, WF_DTYPE_BF16, bytes, 0, 1},
    RUNS(64) RUNS(128) RUNS(256) RUNS(512) RUNS(1024) RUNS(4096) RUNS(65536) RUNS(1048576)
#undef RUNS
        {"copy/whole", "dtype=bf16", WF_DTYPE_BF16, WF_DTYPE_BF16, MOVED_BYTES, 0, 0},
    {"copy/transpose", "dtype=bf16", WF_DTYPE_BF16, WF_DTYPE_BF16, 0, 0, 0},
    {"copy/transpose", "dtype=f32", WF_DTYPE_F32, WF_DTYPE_F32, 0, 0, 0},
    {"copy/transpose", "src=f32,dst=bf16", WF_DTYPE_F32, WF_DTYPE_BF16, 0, 0, 0},
    {"copy/gather_cast", "src=f32,dst=bf16,run=4096", WF_DTYPE_F32, WF_DTYPE_BF16, 4096, 1, 0},
    {"copy/gather_cast", "src=bf16,dst=f32,run=4096", WF_DTYPE_BF16, WF_DTYPE_F32, 4096, 1, 0},
};

static const struct shape_row digest_rows[] = {
    {"copy/digest", "dtype=bf16", WF_DTYPE_BF16, WF_DTYPE_BF16, MOVED_BYTES, 0, 0},
    {"copy/digest", "dtype=bf16,run=4096", WF_DTYPE_BF16, WF_DTYPE_BF16, 4096, 1, 0},
    {"copy/digest", "dtype=bf16,run=256", WF_DTYPE_BF16, WF_DTYPE_BF16, 256, 1, 0},
    {"copy/digest_cast", "src=f32,dst=bf16", WF_DTYPE_F32, WF_DTYPE_BF16, MOVED_BYTES, 0, 0},
};

static void set_shape(struct copying *copying, const struct shape_row *row)
{
    size_t src_bytes = wf_dtype_bytes(row->src), dst_bytes = wf_dtype_bytes(row->dst);
    size_t wider = src_bytes > dst_bytes ? src_bytes : dst_bytes;
    uint64_t elements = MOVED_BYTES / wider, run = row->run_bytes / src_bytes;
    int64_t src_step = (int64_t)src_bytes, dst_step = (int64_t)dst_bytes;
    struct wf_box box = {.axis_count = 2};
    if (run == 0) {
        /* 4,096 columns, as a weight matrix has; rows are contiguous in the target. */
        uint64_t columns = 4096, lines = elements / columns;
        box.axes[0].count = lines;
        box.axes[0].src_step = (int64_t)columns * src_step;
        box.axes[0].dst_step = dst_step;
        box.axes[1].count = columns;
        box.axes[1].src_step = src_step;
        box.axes[1].dst_step = (int64_t)lines * dst_step;
    } else {
        run = run < elements ? run : elements;
        box.axes[0].count = elements / run;
        box.axes[0].src_step = (int64_t)((row->src_gaps + 1) * run) * src_step;
        box.axes[0].dst_step = (int64_t)((row->dst_gaps + 1) * run) * dst_step;
        box.axes[1].count = run;
        box.axes[1].src_step = src_step;
        box.axes[1].dst_step = dst_step;
    }
    box.elements = box.axes[0].count * box.axes[1].count;
    copying->box = box;
    copying->src_dtype = row->src;
    copying->dst_dtype = row->dst;
    copying->half_bytes = box.elements * (src_bytes + dst_bytes) / 2;
}

static enum wf_status run_rows(struct wf_bench *bench, struct copying *copying,
                               const struct shape_row *shapes, size_t count,
                               struct wf_bench_case spec, struct wf_error *error)
{
    for (size_t i = 0; i < count; i++) {
        set_shape(copying, &shapes[i]);
        WF_ASSERT(wf_box_within(&copying->box, (uint32_t)wf_dtype_bytes(copying->src_dtype),
                                SIDE_BYTES, (uint32_t)wf_dtype_bytes(copying->dst_dtype),
                                SIDE_BYTES));
        spec.name = shapes[i].name;
        spec.params = shapes[i].params;
        enum wf_status status = wf_bench_case(bench, &spec, copying, error);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

enum wf_status wf_bench_copy(struct wf_bench *bench, struct wf_error *error)
{
    struct copying copying = {.src = aligned_alloc(4096, SIDE_BYTES),
                              .dst = aligned_alloc(4096, SIDE_BYTES)};
    const struct wf_bench_case copy = {.unit = "GB/s",
                                       .measure = measure_copy,
                                       .limit_how = "memcpy of 256 MiB",
                                       .limit = measure_memcpy};
    const struct wf_bench_case digest = {.unit = "GB/s",
                                         .measure = measure_digest,
                                         .limit_how = "reading as many bytes",
                                         .limit = measure_reading};
    enum wf_status status;
    if (copying.src == NULL || copying.dst == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "the benchmark needs 512 MiB of memory");
    } else {
        memset(copying.src, 0x3c, SIDE_BYTES);
        memset(copying.dst, 0x3c, SIDE_BYTES);
        status = run_rows(bench, &copying, rows, sizeof rows / sizeof rows[0], copy, error);
        if (status == WF_OK) {
            status = run_rows(bench, &copying, digest_rows,
                              sizeof digest_rows / sizeof digest_rows[0], digest, error);
        }
    }
    free(copying.src);
    free(copying.dst);
    return status;
}
