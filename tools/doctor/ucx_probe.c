/* ucx_probe.c - a source and a reader of the ucx transport, each a process of its own. */
#include "tools/doctor/ucx_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/plan.h"
#include "runtime/env.h"
#include "runtime/loop.h"
#include "tools/doctor/doctor.h"
#include "transports/memory.h"
#include "transports/ucx.h"

enum { PROBE_BYTES = 64 << 20, READS = 4, PROBE_WAIT_MS = 15000 };

#define READ_NS UINT64_C(10000000000)

/* One of the two processes. */
struct side {
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_transport *transport;
    struct wf_region region;
};

struct reader {
    struct side side;
    struct wf_actor actor;
    struct wf_import import;
    struct wf_read read;
    struct wf_op op;
    struct wf_read_source source;
    struct wf_read_target target;
    uint64_t start_ns;
    int reads, out;
    struct wf_ucx_probe probe;
};

static enum wf_status open_side(struct side *side, const char *transports, struct wf_error *error)
{
    const struct wf_transport_ucx_option tls = {"TLS", transports};
    const struct wf_transport_ucx_options options = {.options = &tls,
                                                     .option_count = transports != NULL ? 1 : 0};
    const struct wf_env_real_options env = {.workers = 1};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDOUT_FILENO); /* UCX writes its log there; ours is the report's place */
    dup2(null, STDERR_FILENO);
    enum wf_status status = wf_loop_new(NULL, &side->loop, error);
    if (status == WF_OK) {
        status = wf_env_real_new(side->loop, &env, &side->env, error);
    }
    if (status == WF_OK) {
        wf_loop_set_env(side->loop, side->env);
        status = wf_transport_ucx_new(side->loop, &options, &side->transport, error);
    }
    return status == WF_OK ? wf_memory_new("weft-doctor", PROBE_BYTES, false, &side->region, error)
                           : status;
}

/* Offers its memory until it is killed. An empty handle says that it cannot; the sentence follows.
 */
static _Noreturn void be_source(const char *transports, int out)
{
    struct side side = {0};
    struct wf_handle handle = {.fd = -1};
    struct wf_error error;
    enum wf_status status = open_side(&side, transports, &error);
    if (status == WF_OK) {
        memset(side.region.address, 1, PROBE_BYTES);
        status = side.transport->ops->export_region(side.transport, &side.region, &handle, &error);
    }
    if (status != WF_OK) {
        handle.len = 0;
        snprintf((char *)handle.bytes, sizeof handle.bytes, "%s", error.text);
    }
    if (write(out, &handle, sizeof handle) == (ssize_t)sizeof handle && status == WF_OK) {
        wf_loop_run(side.loop);
    }
    _exit(0);
}

/* --- the reader ------------------------------------------------------------------------------- */
static _Noreturn void answer(struct reader *r)
{
    ssize_t sent = write(r->out, &r->probe, sizeof r->probe);
    _exit(sent == (ssize_t)sizeof r->probe ? 0 : 1);
}

static _Noreturn void fail(struct reader *r, const char *why)
{
    r->probe.good = false;
    snprintf(r->probe.text, sizeof r->probe.text, "%s", why);
    answer(r);
}

static void read_once(struct reader *r)
{
    r->start_ns = wf_look_now_ns();
    r->read = (struct wf_read){.done = {.kind = WF_READ_DONE},
                               .owner = &r->actor,
                               .ops = &r->op,
                               .op_count = 1,
                               .src_count = 1,
                               .dst_count = 1,
                               .src = &r->source,
                               .dst = &r->target,
                               .deadline_ns = wf_loop_now_ns(r->side.loop) + READ_NS};
    r->side.transport->ops->read(r->side.transport, &r->read);
}

static enum wf_verdict handle_done(struct wf_actor *self, struct wf_msg *msg)
{
    struct reader *r = WF_CONTAINER(self, struct reader, actor);
    if (msg->kind == WF_IMPORT_DONE) {
        if (r->import.status != WF_OK) {
            fail(r, r->import.error.text);
        }
        r->source.remote = r->import.remote;
        read_once(r);
        return WF_KEEP;
    }
    if (r->read.status != WF_OK) {
        fail(r, r->read.text);
    }
    double rate = PROBE_BYTES / ((double)(wf_look_now_ns() - r->start_ns) * 1e-9);
    r->probe.bytes_per_s = rate > r->probe.bytes_per_s ? rate : r->probe.bytes_per_s;
    if (++r->reads < READS) {
        read_once(r);
        return WF_KEEP;
    }
    const struct wf_transport_ops *ops = r->side.transport->ops;
    const char *text = ops->describe != NULL ? ops->describe(r->side.transport) : NULL;
    snprintf(r->probe.text, sizeof r->probe.text, "%s", text != NULL ? text : "");
    r->probe.good = true;
    answer(r);
}

static _Noreturn void be_reader(const char *transports, int in, int out)
{
    struct reader *r = calloc(1, sizeof *r);
    struct wf_error error;
    WF_ASSERT(r != NULL);
    r->out = out;
    r->import = (struct wf_import){
        .done = {.kind = WF_IMPORT_DONE}, .owner = &r->actor, .len_bytes = PROBE_BYTES};
    if (read(in, &r->import.handle, sizeof r->import.handle) != (ssize_t)sizeof r->import.handle) {
        fail(r, "the other process did not start");
    }
    r->import.handle.fd = -1;
    if (r->import.handle.len == 0) {
        fail(r, (const char *)r->import.handle.bytes);
    }
    if (open_side(&r->side, transports, &error) != WF_OK) {
        fail(r, error.text);
    }
    memset(r->side.region.address, 2, PROBE_BYTES);
    r->op.box = (struct wf_box){
        .elements = PROBE_BYTES / 4, .axis_count = 1, .axes = {{PROBE_BYTES / 4, 4, 4}}};
    r->source = (struct wf_read_source){.len_bytes = PROBE_BYTES, .dtype = WF_DTYPE_F32};
    r->target = (struct wf_read_target){
        .address = r->side.region.address, .len_bytes = PROBE_BYTES, .dtype = WF_DTYPE_F32};
    wf_actor_init(&r->actor, r->side.loop, "doctor", handle_done);
    r->side.transport->ops->import_region(r->side.transport, &r->import);
    wf_loop_run(r->side.loop);
    _exit(1);
}

/* --- the two ---------------------------------------------------------------------------------- */
static void end_child(pid_t pid)
{
    if (pid > 0) {
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
}

void wf_ucx_probe_run(const char *transports, struct wf_ucx_probe *probe_out)
{
    int handles[2] = {-1, -1}, answers[2] = {-1, -1};
    pid_t source = -1, reader = -1;
    *probe_out = (struct wf_ucx_probe){.text = "no process could be started"};
    fflush(NULL);
    if (pipe2(handles, O_CLOEXEC) == 0 && pipe2(answers, O_CLOEXEC) == 0) {
        source = fork();
        if (source == 0) {
            be_source(transports, handles[1]);
        }
        reader = source > 0 ? fork() : -1;
        if (reader == 0) {
            close(handles[1]); /* or the source's end would not be seen */
            be_reader(transports, handles[0], answers[1]);
        }
    }
    for (int i = 0; i < 2; i++) {
        if (handles[i] >= 0) {
            close(handles[i]);
        }
    }
    if (answers[1] >= 0) {
        close(answers[1]);
    }
    struct pollfd wait = {.fd = answers[0], .events = POLLIN};
    struct wf_ucx_probe probe;
    if (reader > 0 && poll(&wait, 1, PROBE_WAIT_MS) == 1 &&
        read(answers[0], &probe, sizeof probe) == (ssize_t)sizeof probe) {
        *probe_out = probe;
    } else if (reader > 0) {
        snprintf(probe_out->text, sizeof probe_out->text, "no answer within %d s",
                 PROBE_WAIT_MS / 1000);
    }
    end_child(reader);
    end_child(source);
    if (answers[0] >= 0) {
        close(answers[0]);
    }
}
