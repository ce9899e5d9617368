/* transport_world_ucx.c - the ucx transport: the source is another process, over TCP or shared
 * memory. */
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/log.h"
#include "tests/contract/transport_world.h"
#include "tests/contract/transport_world_kinds.h"
#include "tests/contract/ucx_source.h"
#include "tests/transports/job_env.h"

extern char **environ;

struct ucx_world {
    struct job_env env;
    pid_t source;
    struct wf_timer give_up;
    bool gave_up;
};

pid_t world_ucx_source(const struct world *world)
{
    return ((const struct ucx_world *)world->data)->source;
}

/* Starts the source and reads its handle. */
static bool start_source(struct ucx_world *ucx, const char *tls, struct wf_handle *handle_out)
{
    const char *program = getenv("WEFT_TEST_UCX_SOURCE");
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%d", WORLD_BYTES);
    char *argv[] = {(char *)program, (char *)tls, bytes, NULL};
    int fds[2];
    posix_spawn_file_actions_t actions;
    if (program == NULL || pipe(fds) != 0) {
        return false;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, fds[0]);
    int failed = posix_spawn(&ucx->source, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    size_t len = 0;
    for (ssize_t got = 1; failed == 0 && got > 0 && len < sizeof *handle_out; len += (size_t)got) {
        got = read(fds[0], (char *)handle_out + len, sizeof *handle_out - len);
        got = got < 0 ? 0 : got;
    }
    close(fds[0]);
    return len == sizeof *handle_out;
}

static bool open_ucx(struct world *world, const char *tls)
{
    struct ucx_world *ucx = calloc(1, sizeof *ucx);
    struct wf_error error = {.text = "the source does not start"};
    world->data = ucx;
    ucx->env.env.ops = &job_env_ops;
    signal(SIGPIPE, SIG_IGN); /* transports/ucx.h wants it */
    if (wf_loop_new(NULL, &world->loop, &error) != WF_OK ||
        wf_jobs_new(1, &ucx->env.jobs, &error) != WF_OK) {
        return false;
    }
    wf_loop_set_env(world->loop, &ucx->env.env);
    if (!start_source(ucx, tls, &world->handle) ||
        ucx_test_transport(world->loop, tls, &world->transport, &error) != WF_OK) {
        fprintf(stderr, "ucx: %s\n", error.text);
        return false;
    }
    return true;
}

static bool open_tcp(struct world *world)
{
    return open_ucx(world, "tcp");
}

static bool open_get(struct world *world)
{
    return open_ucx(world, "get:tcp");
}

static bool open_rendezvous(struct world *world)
{
    return open_ucx(world, "rndv:tcp");
}

static bool open_posix(struct world *world)
{
    return open_ucx(world, "posix");
}

static void kill_source(struct world *world)
{
    struct ucx_world *ucx = world->data;
    if (ucx->source > 0) {
        kill(ucx->source, SIGKILL);
        waitpid(ucx->source, NULL, 0);
        ucx->source = 0;
    }
}

static void close_ucx(struct world *world)
{
    struct ucx_world *ucx = world->data;
    if (world->transport != NULL) {
        world->transport->ops->close(world->transport);
    }
    kill_source(world);
    wf_jobs_free(ucx->env.jobs);
    wf_loop_free(world->loop);
    free(world->data);
}

static void give_up(struct wf_timer *timer)
{
    WF_CONTAINER(timer, struct ucx_world, give_up)->gave_up = true;
}

static bool run_ucx(struct world *world, bool (*done)(struct world *world))
{
    struct ucx_world *ucx = world->data;
    ucx->gave_up = false;
    ucx->give_up.fire = give_up;
    ucx->give_up.name = "the test";
    wf_timer_arm(world->loop, &ucx->give_up,
                 job_env_now_ns(NULL) + (uint64_t)WORLD_PATIENCE_S * 1000 * 1000 * 1000);
    while (!ucx->gave_up && !done(world)) {
        wf_loop_turn(world->loop);
    }
    wf_timer_cancel(world->loop, &ucx->give_up);
    return done(world);
}

const struct world_kind world_ucx_tcp = {.name = "ucx, tcp",
                                         .open = open_tcp,
                                         .close = close_ucx,
                                         .kill_source = kill_source,
                                         .run = run_ucx};
const struct world_kind world_ucx_rendezvous = {.name = "ucx, rendezvous over tcp",
                                                .open = open_rendezvous,
                                                .close = close_ucx,
                                                .kill_source = kill_source,
                                                .run = run_ucx};
const struct world_kind world_ucx_get = {.name = "ucx, emulated get over tcp",
                                         .open = open_get,
                                         .close = close_ucx,
                                         .kill_source = kill_source,
                                         .run = run_ucx};
const struct world_kind world_ucx_posix = {.name = "ucx, posix",
                                           .open = open_posix,
                                           .close = close_ucx,
                                           .kill_source = kill_source,
                                           .run = run_ucx};
