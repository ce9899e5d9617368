/* bench_shm.c - the shared-memory transport against memcpy: whole reads, loop and jobs included. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/jobs.h"
#include "runtime/loop.h"
#include "tools/bench/bench.h"
#include "transports/memory.h"
#include "transports/transport.h"

enum {
    REGION_BYTES = 256 << 20,
    MOVED_BYTES = 128 << 20,
    THREADS_MAX = 16,
};

/* One process's side of the transport. */
struct side {
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_transport *transport;
};

struct shm_bench {
    unsigned threads;
    struct side reader;
    struct wf_actor actor;
    struct wf_region mapped, target, from; /* the source's memfd; the reader's; memcpy's source */
    struct wf_remote *remotes[2];          /* the memfd, and another process's memory */
    pid_t child;
    struct wf_op *ops;
    struct wf_read read;
    struct wf_read_source src;
    struct wf_read_target dst;
    uint64_t half_bytes; /* (bytes read + bytes written) / 2 */
};

static enum wf_status open_side(struct side *side, unsigned threads, struct wf_error *error)
{
    const struct wf_loop_options loop = {.poller = WF_POLLER_EPOLL, .spin_ns = 20000};
    const struct wf_env_real_options env = {.workers = threads};
    enum wf_status status = wf_loop_new(&loop, &side->loop, error);
    if (status == WF_OK) {
        status = wf_env_real_new(side->loop, &env, &side->env, error);
    }
    if (status == WF_OK) {
        wf_loop_set_env(side->loop, side->env);
        status = wf_transport_shm_new(side->loop, threads, &side->transport, error);
    }
    return status;
}

static void close_side(struct side *side)
{
    if (side->transport != NULL) {
        side->transport->ops->close(side->transport);
    }
    if (side->env != NULL) {
        wf_env_real_free(side->env);
    }
    if (side->loop != NULL) {
        wf_loop_free(side->loop);
    }
}

/* --- the source that cannot be mapped: a process that offers its memory and waits
 * ------------------ */

static void be_source(int out)
{
    struct side side = {0};
    struct wf_region memory;
    struct wf_handle handle;
    bool ok = open_side(&side, 1, NULL) == WF_OK &&
              wf_memory_new("weft-bench", REGION_BYTES, false, &memory, NULL) == WF_OK &&
              side.transport->ops->export_region(side.transport, &memory, &handle, NULL) == WF_OK;
    if (ok && write(out, &handle, sizeof handle) == (ssize_t)sizeof handle) {
        while (true) {
            pause();
        }
    }
    _exit(1);
}

static enum wf_status start_source(struct shm_bench *bench, struct wf_handle *handle_out,
                                   struct wf_error *error)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return wf_error_set(error, WF_IO, "cannot make a pipe");
    }
    bench->child = fork();
    if (bench->child == 0) {
        close(ends[0]);
        be_source(ends[1]);
    }
    close(ends[1]);
    ssize_t got = read(ends[0], handle_out, sizeof *handle_out);
    close(ends[0]);
    return got == (ssize_t)sizeof *handle_out
               ? WF_OK
               : wf_error_set(error, WF_IO, "the benchmark's second process did not start");
}

/* --- measuring
 * --------------------------------------------------------------------------------------- */

static enum wf_verdict take_done(struct wf_actor *self, struct wf_msg *msg)
{
    (void)msg;
    wf_loop_stop(self->loop);
    return WF_KEEP;
}

static double measure_read(void *context)
{
    struct shm_bench *bench = context;
    uint64_t start_ns = wf_bench_now_ns();
    bench->reader.transport->ops->read(bench->reader.transport, &bench->read);
    wf_loop_run(bench->reader.loop); /* sleeps: a turning loop would take a core from the copies */
    double rate = (double)bench->half_bytes / (double)(wf_bench_now_ns() - start_ns);
    return bench->read.status == WF_OK ? rate : -1;
}

struct slice {
    struct wf_job job;
    const struct shm_bench *bench;
    uint64_t offset, len_bytes;
};

static void copy_slice(struct wf_job *job)
{
    const struct slice *slice = (const struct slice *)job;
    memcpy((char *)slice->bench->target.address + slice->offset,
           (const char *)slice->bench->from.address + slice->offset, slice->len_bytes);
}

static enum wf_verdict ignore(struct wf_actor *self, struct wf_msg *msg)
{
    (void)self;
    (void)msg;
    return WF_KEEP;
}

static double copy_with(const struct shm_bench *bench, unsigned threads)
{
    struct wf_jobs *jobs;
    struct wf_actor actor;
    struct slice slices[THREADS_MAX];
    uint64_t each = REGION_BYTES / threads; /* large: only then does memcpy go past the caches */
    if (wf_jobs_new(threads, &jobs, NULL) != WF_OK) {
        return -1;
    }
    wf_actor_init(&actor, bench->reader.loop, "memcpy", ignore);
    memset(slices, 0, sizeof slices);
    uint64_t start_ns = wf_bench_now_ns();
    for (uint32_t i = 0; i < threads; i++) {
        slices[i].job = (struct wf_job){.owner = &actor, .work = copy_slice, .name = "memcpy"};
        slices[i].bench = bench;
        slices[i].offset = i * each;
        slices[i].len_bytes = each;
        wf_jobs_submit(jobs, &slices[i].job);
    }
    wf_jobs_free(jobs); /* waits for the last */
    double rate = (double)(each * threads) / (double)(wf_bench_now_ns() - start_ns);
    while (wf_loop_turn(bench->reader.loop)) {
    }
    wf_actor_close(&actor);
    wf_actor_fini(&actor);
    return rate;
}

static double measure_memcpy(void *context)
{
    const struct shm_bench *bench = context;
    double best = 0;
    for (unsigned threads = 1; threads <= bench->threads; threads++) {
        double rate = copy_with(bench, threads);
        best = rate > best ? rate : best;
    }
    return best;
}

/* --- cases
 * -------------------------------------------------------------------------------------------- */

struct case_row {
    const char *name, *params;
    unsigned remote;
    enum wf_dtype src, dst;
    uint64_t ops, run_bytes; /* 0 bytes: one run; in the source's type, every second run is read */
};

static const struct case_row case_rows[] = {
    {"shm/run", "source=memfd,dtype=bf16", 0, WF_DTYPE_BF16, WF_DTYPE_BF16, 1, 0},
    {"shm/pieces", "source=memfd,count=2048,bytes=65536", 0, WF_DTYPE_BF16, WF_DTYPE_BF16, 2048, 0},
    {"shm/rows", "source=memfd,run=4096", 0, WF_DTYPE_BF16, WF_DTYPE_BF16, 1, 4096},
    {"shm/rows", "source=memfd,run=512", 0, WF_DTYPE_BF16, WF_DTYPE_BF16, 1, 512},
    {"shm/cast", "source=memfd,src=f32,dst=bf16", 0, WF_DTYPE_F32, WF_DTYPE_BF16, 1, 0},
    {"shm/cast", "source=memfd,src=bf16,dst=f32", 0, WF_DTYPE_BF16, WF_DTYPE_F32, 1, 0},
    {"shm/run", "source=process,dtype=bf16", 1, WF_DTYPE_BF16, WF_DTYPE_BF16, 1, 0},
    {"shm/rows", "source=process,run=4096", 1, WF_DTYPE_BF16, WF_DTYPE_BF16, 1, 4096},
    {"shm/cast", "source=process,src=bf16,dst=f32", 1, WF_DTYPE_BF16, WF_DTYPE_F32, 1, 0},
};

static void set_case(struct shm_bench *bench, const struct case_row *row)
{
    uint64_t src_bytes = wf_dtype_bytes(row->src), dst_bytes = wf_dtype_bytes(row->dst);
    uint64_t wider = src_bytes > dst_bytes ? src_bytes : dst_bytes;
    uint64_t elements = MOVED_BYTES / wider / row->ops;
    uint64_t run = row->run_bytes != 0 ? row->run_bytes / src_bytes : elements;
    for (uint64_t i = 0; i < row->ops; i++) {
        struct wf_box box = {.src_offset = i * elements * src_bytes,
                             .dst_offset = i * elements * dst_bytes,
                             .elements = elements,
                             .axis_count = 2};
        box.axes[0].count = elements / run;
        box.axes[0].src_step = (int64_t)(2 * run * src_bytes);
        box.axes[0].dst_step = (int64_t)(run * dst_bytes);
        box.axes[1].count = run;
        box.axes[1].src_step = (int64_t)src_bytes;
        box.axes[1].dst_step = (int64_t)dst_bytes;
        bench->ops[i] = (struct wf_op){.box = box};
    }
    bench->src = (struct wf_read_source){bench->remotes[row->remote], 0, REGION_BYTES, row->src};
    bench->dst = (struct wf_read_target){bench->target.address, REGION_BYTES, row->dst};
    bench->read = (struct wf_read){.owner = &bench->actor,
                                   .ops = bench->ops,
                                   .op_count = (uint32_t)row->ops,
                                   .src_count = 1,
                                   .dst_count = 1,
                                   .src = &bench->src,
                                   .dst = &bench->dst,
                                   .deadline_ns = WF_NEVER_NS};
    bench->half_bytes = row->ops * elements * (src_bytes + dst_bytes) / 2;
}

static enum wf_status import(struct shm_bench *bench, const struct wf_handle *handle,
                             struct wf_remote **remote_out, struct wf_error *error)
{
    struct wf_import import = {.done = {.kind = WF_IMPORT_DONE},
                               .owner = &bench->actor,
                               .handle = *handle,
                               .len_bytes = REGION_BYTES};
    bench->reader.transport->ops->import_region(bench->reader.transport, &import);
    wf_loop_run(bench->reader.loop);
    if (import.status != WF_OK) {
        return wf_error_set(error, import.status, "%s", import.error.text);
    }
    *remote_out = import.remote;
    return WF_OK;
}

static enum wf_status open_bench(struct shm_bench *bench, struct wf_error *error)
{
    struct wf_handle handles[2];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    bench->threads = cores < 1 ? 1 : cores > THREADS_MAX ? THREADS_MAX : (unsigned)cores;
    enum wf_status status = start_source(bench, &handles[1], error);
    if (status == WF_OK) {
        status = open_side(&bench->reader, bench->threads, error);
    }
    if (status != WF_OK) {
        return status;
    }
    wf_actor_init(&bench->actor, bench->reader.loop, "reader", take_done);
    struct wf_transport *transport = bench->reader.transport;
    bench->ops = calloc(4096, sizeof *bench->ops);
    struct wf_region *regions[3] = {&bench->mapped, &bench->target, &bench->from};
    for (int i = 0; i < 3 && status == WF_OK; i++) {
        status = wf_memory_new("weft-bench", REGION_BYTES, i == 0, regions[i], error);
    }
    if (status == WF_OK) {
        status = transport->ops->export_region(transport, &bench->mapped, &handles[0], error);
    }
    for (int i = 0; i < 2 && status == WF_OK; i++) {
        handles[i].fd = handles[i].fd >= 0 ? dup(handles[i].fd) : -1;
        status = import(bench, &handles[i], &bench->remotes[i], error);
    }
    return bench->ops != NULL || status != WF_OK
               ? status
               : wf_error_set(error, WF_NO_MEMORY, "no memory for the benchmark's boxes");
}

static void close_bench(struct shm_bench *bench)
{
    struct wf_transport *transport = bench->reader.transport;
    for (int i = 0; i < 2; i++) {
        if (bench->remotes[i] != NULL) {
            transport->ops->release_region(transport, bench->remotes[i]);
        }
    }
    if (bench->actor.loop != NULL) {
        wf_actor_close(&bench->actor);
        wf_actor_fini(&bench->actor);
    }
    close_side(&bench->reader);
    if (bench->child > 0) {
        kill(bench->child, SIGKILL);
        waitpid(bench->child, NULL, 0);
    }
    wf_memory_free(&bench->mapped);
    wf_memory_free(&bench->target);
    wf_memory_free(&bench->from);
    free(bench->ops);
}

enum wf_status wf_bench_shm(struct wf_bench *bench, struct wf_error *error)
{
    struct shm_bench shm = {0};
    enum wf_status status = open_bench(&shm, error);
    for (size_t i = 0; i < sizeof case_rows / sizeof case_rows[0] && status == WF_OK; i++) {
        set_case(&shm, &case_rows[i]);
        const struct wf_bench_case spec = {
            .name = case_rows[i].name,
            .params = case_rows[i].params,
            .unit = "GB/s",
            .measure = measure_read,
            .limit_how = "memcpy of (bytes read + written) / 2, best of 1 to nproc threads",
            .limit = measure_memcpy};
        status = wf_bench_case(bench, &spec, &shm, error);
    }
    close_bench(&shm);
    return status;
}
