/* ucx_source.c - a source or a reader in a process of its own, to be killed.
 *
 *   ucx_source TLS BYTES         offers a region of known bytes: writes the handle to standard
 *                                output, serves until it is killed
 *   ucx_source TLS BYTES read    takes a handle from standard input and reads all of it, again and
 *                                again; writes a byte when the first read is under way
 *   ucx_source TLS BYTES strided reads every second byte likewise: the source has to pack
 */
#include "tests/contract/ucx_source.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/contract/transport_world.h"
#include "tests/transports/job_env.h"
#include "transports/memory.h"

struct reader {
    struct wf_actor actor;
    struct wf_transport *transport;
    struct wf_import import;
    struct wf_op op;
    struct wf_read_source src;
    struct wf_read_target dst;
    struct wf_read read;
};

static enum wf_verdict read_again(struct wf_actor *self, struct wf_msg *msg)
{
    struct reader *reader = (struct reader *)self;
    if (msg->kind == WF_IMPORT_DONE) {
        if (reader->import.status != WF_OK) {
            fprintf(stderr, "ucx_source: %s\n", reader->import.error.text);
            _exit(1);
        }
        reader->src.remote = reader->import.remote;
    }
    reader->transport->ops->read(reader->transport, &reader->read);
    if (msg->kind == WF_IMPORT_DONE && write(STDOUT_FILENO, "r", 1) != 1) {
        _exit(1);
    }
    return WF_KEEP;
}

static int be_reader(struct wf_loop *loop, struct wf_transport *transport, uint64_t bytes,
                     int64_t stride)
{
    static struct reader reader;
    struct wf_handle handle;
    if (read(STDIN_FILENO, &handle, sizeof handle) != sizeof handle) {
        return 1;
    }
    wf_actor_init(&reader.actor, loop, "reader", read_again);
    reader.transport = transport;
    reader.op.box = (struct wf_box){0, 0, 0, bytes / stride, 1, {{bytes / stride, stride, 1}}};
    reader.src = (struct wf_read_source){NULL, 0, bytes, WF_DTYPE_U8};
    reader.dst = (struct wf_read_target){malloc(bytes), bytes, WF_DTYPE_U8};
    reader.read = (struct wf_read){.done = {.kind = WF_READ_DONE},
                                   .owner = &reader.actor,
                                   .ops = &reader.op,
                                   .op_count = 1,
                                   .src_count = 1,
                                   .dst_count = 1,
                                   .src = &reader.src,
                                   .dst = &reader.dst,
                                   .deadline_ns = WF_NEVER_NS};
    reader.import = (struct wf_import){.done = {.kind = WF_IMPORT_DONE},
                                       .owner = &reader.actor,
                                       .handle = handle,
                                       .len_bytes = bytes};
    reader.import.handle.fd = -1;
    transport->ops->import_region(transport, &reader.import);
    wf_loop_run(loop);
    return 0;
}

int main(int argc, char **argv)
{
    struct job_env env = {.env.ops = &job_env_ops};
    struct wf_loop *loop;
    struct wf_transport *transport;
    struct wf_region memory;
    struct wf_handle handle;
    struct wf_error error;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN); /* as weft does: UCX writes to sockets of readers that died */
    uint64_t bytes = argc >= 3 ? strtoull(argv[2], NULL, 10) : 0;
    if (bytes == 0 || wf_loop_new(NULL, &loop, &error) != WF_OK) {
        return 1;
    }
    wf_loop_set_env(loop, &env.env);
    if (wf_jobs_new(1, &env.jobs, &error) != WF_OK) {
        return 1;
    }
    if (ucx_test_transport(loop, argv[1], &transport, &error) != WF_OK) {
        fprintf(stderr, "ucx_source: %s\n", error.text);
        return 1;
    }
    if (argc == 4) {
        return be_reader(loop, transport, bytes, strcmp(argv[3], "strided") == 0 ? 2 : 1);
    }
    if (wf_memory_new("contract", bytes, false, &memory, &error) != WF_OK ||
        transport->ops->export_region(transport, &memory, &handle, &error) != WF_OK) {
        fprintf(stderr, "ucx_source: %s\n", error.text);
        return 1;
    }
    for (uint64_t i = 0; i < bytes; i++) {
        ((uint8_t *)memory.address)[i] = world_byte(i);
    }
    if (write(STDOUT_FILENO, &handle, sizeof handle) != sizeof handle) {
        return 1;
    }
    wf_loop_run(loop);
    return 0;
}
