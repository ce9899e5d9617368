/* transport_world_shm.c - the shm transport: a memfd in this process, and another process's memory.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/contract/transport_world.h"
#include "tests/contract/transport_world_kinds.h"
#include "tests/transports/job_env.h"
#include "transports/fault.h"
#include "transports/memory.h"

struct shm_world {
    struct job_env env;
    struct wf_transport *source; /* memfd: the exporting side */
    struct wf_region memory;
    pid_t child;
    struct wf_timer give_up;
    bool gave_up;
};

static bool loop_with_env(struct shm_world *shm, struct wf_loop **loop_out)
{
    struct wf_error error;
    struct wf_loop_options options = {.poller = WF_POLLER_EPOLL};
    shm->env.env.ops = &job_env_ops;
    if (wf_loop_new(&options, loop_out, &error) != WF_OK ||
        wf_jobs_new(2, &shm->env.jobs, &error) != WF_OK) {
        fprintf(stderr, "%s\n", error.text);
        return false;
    }
    wf_loop_set_env(*loop_out, &shm->env.env);
    return true;
}

static void fill(uint8_t *bytes)
{
    for (uint64_t i = 0; i < WORLD_BYTES; i++) {
        bytes[i] = world_byte(i);
    }
}

static bool open_memfd(struct world *world)
{
    struct shm_world *shm = calloc(1, sizeof *shm);
    struct wf_error error;
    world->data = shm;
    if (!loop_with_env(shm, &world->loop) ||
        wf_transport_shm_new(world->loop, 2, &world->transport, &error) != WF_OK ||
        wf_transport_shm_new(world->loop, 1, &shm->source, &error) != WF_OK ||
        wf_memory_new("contract", WORLD_BYTES, true, &shm->memory, &error) != WF_OK ||
        shm->source->ops->export_region(shm->source, &shm->memory, &world->handle, &error) !=
            WF_OK) {
        fprintf(stderr, "%s\n", error.text);
        return false;
    }
    fill(shm->memory.address);
    return true;
}

static bool open_fault(struct world *world)
{
    return open_memfd(world) && wf_transport_fault_new(world->loop, world->transport, NULL, 0, 1,
                                                       &world->transport, NULL) == WF_OK;
}

/* The child's whole life: offers private memory, writes its handle, waits to be killed. */
static void be_source(int out)
{
    struct shm_world *shm = calloc(1, sizeof *shm);
    struct wf_loop *loop;
    struct wf_transport *transport;
    struct wf_handle handle;
    struct wf_error error;
    bool ok = loop_with_env(shm, &loop) &&
              wf_transport_shm_new(loop, 1, &transport, &error) == WF_OK &&
              wf_memory_new("contract", WORLD_BYTES, false, &shm->memory, &error) == WF_OK &&
              transport->ops->export_region(transport, &shm->memory, &handle, &error) == WF_OK;
    if (!ok) {
        _exit(1);
    }
    fill(shm->memory.address);
    if (write(out, &handle, sizeof handle) != sizeof handle) {
        _exit(1);
    }
    while (true) {
        pause();
    }
}

static bool open_process(struct world *world)
{
    struct shm_world *shm = calloc(1, sizeof *shm);
    struct wf_error error;
    int pipe_fds[2];
    world->data = shm;
    if (pipe(pipe_fds) != 0) {
        return false;
    }
    shm->child = fork();
    if (shm->child == 0) {
        close(pipe_fds[0]);
        be_source(pipe_fds[1]);
    }
    close(pipe_fds[1]);
    ssize_t got = read(pipe_fds[0], &world->handle, sizeof world->handle);
    close(pipe_fds[0]);
    if (got != sizeof world->handle || !loop_with_env(shm, &world->loop) ||
        wf_transport_shm_new(world->loop, 2, &world->transport, &error) != WF_OK) {
        return false;
    }
    return true;
}

static void kill_process(struct world *world)
{
    struct shm_world *shm = world->data;
    if (shm->child > 0) {
        kill(shm->child, SIGKILL);
        waitpid(shm->child, NULL, 0);
        shm->child = 0;
    }
}

static void kill_memfd(struct world *world)
{
    struct shm_world *shm = world->data;
    shm->source->ops->close(shm->source);
    shm->source = NULL;
    wf_memory_free(&shm->memory);
    world->handle.fd = -1;
}

static void close_shm(struct world *world)
{
    struct shm_world *shm = world->data;
    if (world->transport != NULL) {
        world->transport->ops->close(world->transport);
    }
    if (shm->source != NULL) {
        shm->source->ops->close(shm->source);
    }
    kill_process(world);
    wf_jobs_free(shm->env.jobs);
    wf_loop_free(world->loop);
    wf_memory_free(&shm->memory);
    free(shm);
}

static void give_up(struct wf_timer *timer)
{
    struct shm_world *shm = WF_CONTAINER(timer, struct shm_world, give_up);
    shm->gave_up = true;
}

static bool run_real(struct world *world, bool (*done)(struct world *world))
{
    struct shm_world *shm = world->data;
    shm->gave_up = false;
    shm->give_up.fire = give_up;
    shm->give_up.name = "the test";
    wf_timer_arm(world->loop, &shm->give_up,
                 job_env_now_ns(NULL) + (uint64_t)WORLD_PATIENCE_S * 1000 * 1000 * 1000);
    while (!shm->gave_up && !done(world)) {
        wf_loop_turn(world->loop);
    }
    wf_timer_cancel(world->loop, &shm->give_up);
    return done(world);
}

const struct world_kind world_shm_memfd = {.name = "shm, memfd",
                                           .open = open_memfd,
                                           .close = close_shm,
                                           .kill_source = kill_memfd,
                                           .run = run_real,
                                           .survives_source = true};
const struct world_kind world_fault = {.name = "fault around shm, no faults",
                                       .open = open_fault,
                                       .close = close_shm,
                                       .kill_source = kill_memfd,
                                       .run = run_real,
                                       .survives_source = true};
const struct world_kind world_shm_process = {.name = "shm, process memory",
                                             .open = open_process,
                                             .close = close_shm,
                                             .kill_source = kill_process,
                                             .run = run_real};
