/* ucx_source.c - a source in a process of its own: offers one region of known bytes.
 *
 *   ucx_source TLS BYTES    writes the handle to standard output, serves until it is killed
 */
#include "tests/contract/ucx_source.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/transports/job_env.h"
#include "transports/memory.h"

/* As world_byte in test_transport.c. */
static uint8_t byte_at(uint64_t i)
{
    return (uint8_t)((i * UINT64_C(0x9E3779B97F4A7C15)) >> 45);
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
    uint64_t bytes = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    if (bytes == 0 || wf_loop_new(NULL, &loop, &error) != WF_OK) {
        return 1;
    }
    wf_loop_set_env(loop, &env.env);
    if (ucx_test_transport(loop, argv[1], &transport, &error) != WF_OK ||
        wf_memory_new("contract", bytes, false, &memory, &error) != WF_OK ||
        transport->ops->export_region(transport, &memory, &handle, &error) != WF_OK) {
        fprintf(stderr, "ucx_source: %s\n", error.text);
        return 1;
    }
    for (uint64_t i = 0; i < bytes; i++) {
        ((uint8_t *)memory.address)[i] = byte_at(i);
    }
    if (write(STDOUT_FILENO, &handle, sizeof handle) != sizeof handle) {
        return 1;
    }
    wf_loop_run(loop);
    return 0;
}
