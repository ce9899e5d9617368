/* bench_stream.c - the network transport against plain sockets and UCX's own way, between two
 * processes of this host (TCP over loopback) or two hosts (--address there, --peer here). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/bench/stream.h"
#include "tools/measure/plain_ucx.h"

struct stream_bench {
    const char *peer; /* address of the source */
    pid_t child;
    int control;
    struct stream_side side;
    struct wf_actor actor;
    struct wf_region target;
    struct wf_remote *remote;
    struct wf_plain_ucx *ucx;
    struct wf_op *ops;
    struct wf_read read;
    struct wf_read_source src;
    struct wf_read_target dst;
    uint64_t wire_bytes;
    unsigned streams; /* of the socket case */
    const char *cc;
};

const char *stream_tls(void)
{
    return getenv("UCX_TLS") == NULL ? "tcp" : NULL;
}

enum wf_status stream_side_open(struct stream_side *side, struct wf_error *error)
{
    const struct wf_transport_ucx_option tls = {"TLS", stream_tls()};
    const struct wf_transport_ucx_options options = {.options = &tls,
                                                     .option_count = tls.value != NULL};
    enum wf_status status = wf_loop_new(NULL, &side->loop, error);
    if (status == WF_OK) {
        status = wf_env_real_new(side->loop, NULL, &side->env, error);
    }
    if (status == WF_OK) {
        wf_loop_set_env(side->loop, side->env);
        status = wf_transport_ucx_new(side->loop, &options, &side->transport, error);
    }
    return status;
}

void stream_side_close(struct stream_side *side)
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

/* --- measuring ---------------------------------------------------------------------------------
 */

static enum wf_verdict take_done(struct wf_actor *self, struct wf_msg *msg)
{
    (void)msg;
    wf_loop_stop(self->loop);
    return WF_KEEP;
}

static double measure_read(void *context)
{
    struct stream_bench *bench = context;
    uint64_t start_ns = wf_bench_now_ns();
    bench->side.transport->ops->read(bench->side.transport, &bench->read);
    wf_loop_run(bench->side.loop);
    double gb_s = (double)bench->wire_bytes / (double)(wf_bench_now_ns() - start_ns);
    return bench->read.status == WF_OK ? gb_s : -1;
}

static double measure_sockets(void *context)
{
    struct stream_bench *bench = context;
    return stream_sockets(bench->control, bench->peer, bench->streams, bench->cc,
                          bench->target.address);
}

static double measure_ucx(void *context)
{
    struct stream_bench *bench = context;
    uint64_t start_ns = wf_bench_now_ns();
    bool ok = stream_send(bench->control, "U", 1) &&
              wf_plain_ucx_receive(bench->ucx, STREAM_BYTES, bench->control);
    double gb_s = (double)STREAM_BYTES / (double)(wf_bench_now_ns() - start_ns);
    return ok ? gb_s : -1;
}

static const struct socket_row {
    const char *params;
    unsigned streams;
    const char *cc;
} socket_rows[] = {
    {"streams=1", 1, ""},
    {"streams=2", 2, ""},
    {"streams=1,congestion=cubic", 1, "cubic"},
    {"streams=2,congestion=cubic", 2, "cubic"},
};
enum { SOCKET_ROWS = sizeof socket_rows / sizeof socket_rows[0] };

/* With the kernel's own congestion control, which UCX's sockets have too: another one is the host's
 * to choose, and what it would give is shown beside. */
static double measure_best(void *context)
{
    struct stream_bench *bench = context;
    double best = measure_ucx(bench);
    for (size_t i = 0; i < SOCKET_ROWS && socket_rows[i].cc[0] == '\0'; i++) {
        bench->streams = socket_rows[i].streams;
        bench->cc = socket_rows[i].cc;
        double gb_s = measure_sockets(bench);
        best = gb_s > best ? gb_s : best;
    }
    return best;
}

/* --- cases -------------------------------------------------------------------------------------
 */

static const struct case_row {
    const char *name, *params;
    enum wf_dtype src, dst;
    uint64_t ops, src_run,
        dst_run; /* bytes of a run on each side, every second one is used; 0: all */
} case_rows[] = {
    {"stream/run", "dtype=bf16", WF_DTYPE_BF16, WF_DTYPE_BF16, 1, 0, 0},
    {"stream/pieces", "count=2048,bytes=65536", WF_DTYPE_BF16, WF_DTYPE_BF16, 2048, 0, 0},
    {"stream/pieces", "count=32768,bytes=4096", WF_DTYPE_BF16, WF_DTYPE_BF16, 32768, 0, 0},
    {"stream/rows", "source=4096,target=dense", WF_DTYPE_BF16, WF_DTYPE_BF16, 1, 4096, 0},
    {"stream/rows", "source=dense,target=4096", WF_DTYPE_BF16, WF_DTYPE_BF16, 1, 0, 4096},
    {"stream/cast", "src=f32,dst=bf16", WF_DTYPE_F32, WF_DTYPE_BF16, 1, 0, 0},
    {"stream/cast", "src=bf16,dst=f32", WF_DTYPE_BF16, WF_DTYPE_F32, 1, 0, 0},
};
enum { OPS_MAX = 32768 };

static void set_case(struct stream_bench *bench, const struct case_row *row)
{
    uint64_t src_bytes = wf_dtype_bytes(row->src), dst_bytes = wf_dtype_bytes(row->dst);
    uint64_t wider = src_bytes > dst_bytes ? src_bytes : dst_bytes;
    uint64_t elements = STREAM_BYTES / wider / row->ops;
    uint64_t src_run = row->src_run != 0 ? row->src_run / src_bytes : elements;
    uint64_t dst_run = row->dst_run != 0 ? row->dst_run / dst_bytes : elements;
    uint64_t run = src_run < dst_run ? src_run : dst_run;
    for (uint64_t i = 0; i < row->ops; i++) {
        struct wf_box box = {.src_offset = i * elements * src_bytes,
                             .dst_offset = (row->ops - 1 - i) * elements * dst_bytes,
                             .elements = elements,
                             .axis_count = 2};
        box.axes[0].count = elements / run;
        box.axes[0].src_step = (int64_t)((row->src_run != 0 ? 2 : 1) * run * src_bytes);
        box.axes[0].dst_step = (int64_t)((row->dst_run != 0 ? 2 : 1) * run * dst_bytes);
        box.axes[1].count = run;
        box.axes[1].src_step = (int64_t)src_bytes;
        box.axes[1].dst_step = (int64_t)dst_bytes;
        bench->ops[i] = (struct wf_op){.box = box};
    }
    bench->src = (struct wf_read_source){bench->remote, 0, STREAM_REGION_BYTES, row->src};
    bench->dst = (struct wf_read_target){bench->target.address, STREAM_REGION_BYTES, row->dst};
    bench->read = (struct wf_read){.done = {.kind = WF_READ_DONE},
                                   .owner = &bench->actor,
                                   .ops = bench->ops,
                                   .op_count = (uint32_t)row->ops,
                                   .src_count = 1,
                                   .dst_count = 1,
                                   .src = &bench->src,
                                   .dst = &bench->dst,
                                   .deadline_ns = WF_NEVER_NS};
    bench->wire_bytes = row->ops * elements * (src_bytes < dst_bytes ? src_bytes : dst_bytes);
}

/* --- opening and closing -----------------------------------------------------------------------
 */

static enum wf_status start_source(struct stream_bench *bench, char address_out[static 64],
                                   struct wf_error *error)
{
    int listener;
    uint16_t port;
    enum wf_status status = stream_listen("127.0.0.1:0", &listener, &port, error);
    if (status != WF_OK) {
        return status;
    }
    fflush(NULL);
    bench->child = fork();
    if (bench->child == 0) {
        struct wf_error failure;
        status = stream_serve(listener, false, &failure);
        if (status != WF_OK) {
            fprintf(stderr, "weft bench: the source: %s\n", failure.text);
        }
        _exit(status == WF_OK ? 0 : 1);
    }
    close(listener);
    snprintf(address_out, 64, "127.0.0.1:%u", port);
    return bench->child > 0 ? WF_OK : wf_error_set(error, WF_NO_RESOURCE, "cannot fork");
}

static enum wf_status import(struct stream_bench *bench, struct wf_error *error)
{
    struct wf_import import = {
        .done = {.kind = WF_IMPORT_DONE}, .owner = &bench->actor, .len_bytes = STREAM_REGION_BYTES};
    if (!stream_send(bench->control, "H", 1) ||
        !stream_receive(bench->control, &import.handle, sizeof import.handle)) {
        return wf_error_set(error, WF_CONNECTION, "the source went away");
    }
    import.handle.fd = -1;
    bench->side.transport->ops->import_region(bench->side.transport, &import);
    wf_loop_run(bench->side.loop);
    bench->remote = import.remote;
    return import.status == WF_OK ? WF_OK
                                  : wf_error_set(error, import.status, "%s", import.error.text);
}

static enum wf_status open_plain_ucx(struct stream_bench *bench, struct wf_error *error)
{
    char theirs[WF_PLAIN_UCX_ADDRESS_MAX];
    enum wf_status status = wf_plain_ucx_new(bench->target.address, STREAM_REGION_BYTES,
                                             stream_tls(), &bench->ucx, error);
    if (status != WF_OK) {
        return status;
    }
    size_t len;
    const void *mine = wf_plain_ucx_address(bench->ucx, &len);
    uint32_t len32 = (uint32_t)len;
    bool ok = stream_send(bench->control, "A", 1) &&
              stream_send(bench->control, &len32, sizeof len32) &&
              stream_send(bench->control, mine, len) &&
              stream_receive(bench->control, &len32, sizeof len32) && len32 <= sizeof theirs &&
              stream_receive(bench->control, theirs, len32);
    return ok ? wf_plain_ucx_connect(bench->ucx, theirs, error)
              : wf_error_set(error, WF_CONNECTION, "the source has no plain ucx");
}

static enum wf_status open_bench(struct stream_bench *bench, struct wf_error *error)
{
    enum wf_status status = stream_connect(bench->peer, &bench->control, error);
    if (status == WF_OK) {
        status = stream_side_open(&bench->side, error);
    }
    if (status == WF_OK) {
        status = wf_memory_new("weft-bench", STREAM_REGION_BYTES, false, &bench->target, error);
    }
    if (status != WF_OK) {
        return status;
    }
    wf_actor_init(&bench->actor, bench->side.loop, "reader", take_done);
    bench->ops = calloc(OPS_MAX, sizeof *bench->ops);
    if (bench->ops == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the benchmark's boxes");
    }
    status = import(bench, error);
    return status == WF_OK ? open_plain_ucx(bench, error) : status;
}

static void close_bench(struct stream_bench *bench)
{
    wf_plain_ucx_free(bench->ucx);
    if (bench->remote != NULL) {
        bench->side.transport->ops->release_region(bench->side.transport, bench->remote);
    }
    if (bench->actor.loop != NULL) {
        wf_actor_close(&bench->actor);
        wf_actor_fini(&bench->actor);
    }
    stream_side_close(&bench->side);
    if (bench->control >= 0) {
        close(bench->control);
    }
    if (bench->child > 0) {
        kill(bench->child, SIGKILL);
        waitpid(bench->child, NULL, 0);
    }
    wf_memory_free(&bench->target);
    free(bench->ops);
}

/* What the limit is made of, one by one; a congestion control that is missing is left out. */
static enum wf_status measure_limits(struct stream_bench *stream, struct wf_bench *bench,
                                     struct wf_error *error)
{
    struct wf_bench_case spec = {.name = "stream/ucx",
                                 .params = "message=1048576,in_flight=8",
                                 .unit = "GB/s",
                                 .measure = measure_ucx};
    enum wf_status status = wf_bench_case(bench, &spec, stream, error);
    for (size_t i = 0; i < SOCKET_ROWS && status == WF_OK; i++) {
        stream->streams = socket_rows[i].streams;
        stream->cc = socket_rows[i].cc;
        spec.name = "stream/socket";
        spec.params = socket_rows[i].params;
        spec.measure = measure_sockets;
        if (measure_sockets(stream) >= 0) {
            status = wf_bench_case(bench, &spec, stream, error);
        }
    }
    return status;
}

static enum wf_status serve_other_host(const char *address, struct wf_error *error)
{
    int listener;
    uint16_t port;
    enum wf_status status = stream_listen(address, &listener, &port, error);
    if (status == WF_OK) {
        printf("serving on port %u; run `weft bench stream --peer HOST:%u` on the other host\n",
               port, port);
        fflush(stdout);
        status = stream_serve(listener, true, error);
        close(listener);
    }
    return status;
}

enum wf_status wf_bench_stream(struct wf_bench *bench, struct wf_error *error)
{
    char local[64];
    struct stream_bench stream = {.control = -1, .peer = wf_bench_peer(bench)};
    enum wf_status status = WF_OK;
    if (wf_bench_address(bench) != NULL) {
        return serve_other_host(wf_bench_address(bench), error);
    }
    if (stream.peer == NULL) {
        status = start_source(&stream, local, error);
        stream.peer = local;
    }
    if (status == WF_OK) {
        status = open_bench(&stream, error);
    }
    if (status == WF_OK) {
        status = measure_limits(&stream, bench, error);
    }
    for (size_t i = 0; i < sizeof case_rows / sizeof case_rows[0] && status == WF_OK; i++) {
        set_case(&stream, &case_rows[i]);
        const struct wf_bench_case spec = {
            .name = case_rows[i].name,
            .params = case_rows[i].params,
            .unit = "GB/s",
            .measure = measure_read,
            .limit_how =
                "the best of 1 and 2 plain sockets and UCX's active messages, all with the "
                "kernel's congestion control and memory larger than the caches",
            .limit = measure_best};
        status = wf_bench_case(bench, &spec, &stream, error);
    }
    close_bench(&stream);
    return status;
}
