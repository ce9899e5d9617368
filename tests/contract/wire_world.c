/* wire_world.c - makes and turns the worlds of the wire's contract suite. */
#include "tests/contract/wire_world.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/env_sim.h"

static int number_of(int fd)
{
    int number = -1;
    return fd >= 0 && pread(fd, &number, sizeof number, 0) == sizeof number ? number : -1;
}

static enum wf_verdict witness_handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct witness *witness = (struct witness *)self;
    struct wf_wire_msg *wire = (struct wf_wire_msg *)msg;
    if (msg->kind < WF_WIRE_OPENED || msg->kind > WF_WIRE_FOREIGN) {
        witness->others++;
        return WF_FREE;
    }
    cr_assert_lt(witness->count, (size_t)SEEN_MAX);
    struct seen *seen = &witness->seen[witness->count++];
    *seen = (struct seen){.kind = msg->kind,
                          .conn = wire->conn,
                          .listener = wire->listener,
                          .len_bytes = wire->len_bytes,
                          .fd = wire->fd >= 0,
                          .fd_number = number_of(wire->fd),
                          .status = wire->status};
    memcpy(seen->text, wire->text, sizeof seen->text);
    witness->opened += msg->kind == WF_WIRE_OPENED;
    witness->frames += msg->kind == WF_WIRE_FRAME;
    witness->closed += msg->kind == WF_WIRE_CLOSED;
    if (wire->len_bytes > 0) {
        seen->first = wire->bytes[0];
        seen->last = wire->bytes[wire->len_bytes - 1];
    }
    if (wire->fd >= 0) {
        if (witness->kept_fd >= 0) {
            close(witness->kept_fd);
        }
        witness->kept_fd = wire->fd;
        wire->fd = -1;
    }
    if (witness->hold && msg->kind == WF_WIRE_FRAME) {
        witness->held[witness->held_count++] = wire;
        return WF_KEEP;
    }
    return WF_FREE;
}

void witness_let_go(struct witness *witness)
{
    for (; witness->held_count > 0; witness->held_count--) {
        struct wf_msg *msg = &witness->held[witness->held_count - 1]->msg;
        msg->release(msg);
    }
}

static void witness_init(struct witness *witness, struct wf_loop *loop, const char *name)
{
    memset(witness, 0, sizeof *witness);
    witness->kept_fd = -1;
    witness->env = wf_loop_env(loop);
    wf_actor_init(&witness->actor, loop, name, witness_handle);
}

static void witness_fini(struct witness *witness)
{
    witness_let_go(witness);
    wf_actor_close(&witness->actor);
    wf_actor_fini(&witness->actor);
    if (witness->kept_fd >= 0) {
        close(witness->kept_fd);
    }
}

void wire_world_real(struct wire_world *world, const char *name, const char *address,
                     enum wf_poller_kind poller, const struct wf_env_real_options *options)
{
    memset(world, 0, sizeof *world);
    world->name = name;
    world->address = address;
    for (int i = 0; i < 2; i++) {
        struct wf_error error;
        cr_assert_eq(
            wf_loop_new(&(struct wf_loop_options){.poller = poller}, &world->loop[i], &error),
            WF_OK, "%s", error.text);
        cr_assert_eq(wf_env_real_new(world->loop[i], options, &world->env[i], &error), WF_OK, "%s",
                     error.text);
        wf_loop_set_env(world->loop[i], world->env[i]);
    }
    witness_init(&world->server, world->loop[0], "server");
    witness_init(&world->client, world->loop[1], "client");
}

static void sim_teardown(void *user, struct wf_loop *loop)
{
    struct wire_world *world = user;
    wf_sim_drain(world->sim, loop);
    witness_fini(loop == world->loop[0] ? &world->server : &world->client);
}

void wire_world_sim(struct wire_world *world, const char *address, uint64_t seed)
{
    memset(world, 0, sizeof *world);
    world->name = "sim";
    world->address = address;
    struct wf_sim_options options = wf_sim_options_swarm(seed);
    world->sim = wf_sim_new(seed, &options);
    for (int i = 0; i < 2; i++) {
        world->loop[i] =
            wf_sim_rank_new(world->sim, i == 0 ? "server" : "client", sim_teardown, world);
        world->env[i] = wf_loop_env(world->loop[i]);
    }
    witness_init(&world->server, world->loop[0], "server");
    witness_init(&world->client, world->loop[1], "client");
}

void wire_world_fini(struct wire_world *world)
{
    if (world->sim != NULL) {
        wf_sim_free(world->sim);
        return;
    }
    witness_fini(&world->server);
    witness_fini(&world->client);
    for (int i = 0; i < 2; i++) {
        wf_env_real_free(world->env[i]);
        wf_loop_free(world->loop[i]);
    }
}

static bool turn_both(struct wire_world *world)
{
    bool moved = wf_loop_turn(world->loop[0]);
    return wf_loop_turn(world->loop[1]) || moved;
}

struct run_query {
    struct wire_world *world;
    bool (*done)(struct wire_world *world);
};

static bool query_done(void *user)
{
    struct run_query *query = user;
    return query->done(query->world);
}

bool wire_world_run(struct wire_world *world, bool (*done)(struct wire_world *world))
{
    const uint64_t patience_ns = UINT64_C(100000000000);
    if (world->sim != NULL) {
        struct run_query query = {world, done};
        return wf_sim_run(world->sim, query_done, &query, wf_sim_now_ns(world->sim) + patience_ns);
    }
    uint64_t until = world->env[0]->ops->now_ns(world->env[0]) + patience_ns;
    while (!done(world)) {
        if (!turn_both(world) && world->env[0]->ops->now_ns(world->env[0]) > until) {
            return false;
        }
    }
    return true;
}

void wire_world_settle(struct wire_world *world)
{
    if (world->sim != NULL) {
        wf_sim_run(world->sim, NULL, NULL, wf_sim_now_ns(world->sim) + UINT64_C(1000000000));
        return;
    }
    /* Enough passes without news: loopback delivers inside the system call that sends. */
    for (int idle = 0; idle < 2000; idle++) {
        idle = turn_both(world) ? 0 : idle;
    }
}

static bool both_open(struct wire_world *world)
{
    return world->client.opened + world->client.closed > 0 && world->server.opened > 0;
}

void wire_world_connect(struct wire_world *world, uint64_t *client_out, uint64_t *server_out)
{
    struct wf_error error = {0};
    struct wf_env *server = world->env[0], *client = world->env[1];
    cr_assert_eq(server->ops->listen(server, &world->server.actor, world->address, world->bound,
                                     &world->listener, &error),
                 WF_OK, "%s: %s", world->name, error.text);
    cr_assert_eq(
        client->ops->connect(client, &world->client.actor, world->bound, client_out, &error), WF_OK,
        "%s: %s", world->name, error.text);
    cr_assert(wire_world_run(world, both_open), "%s: no connection", world->name);
    cr_assert_eq(world->client.seen[0].kind, WF_WIRE_OPENED, "%s: %s", world->name,
                 world->client.seen[0].text);
    cr_assert_eq(world->client.seen[0].conn, *client_out, "%s", world->name);
    cr_assert_eq(world->client.seen[0].listener, 0, "%s", world->name);
    cr_assert_eq(world->server.seen[0].listener, world->listener, "%s", world->name);
    *server_out = world->server.seen[0].conn;
}

const struct seen *witness_last(const struct witness *witness, uint32_t kind)
{
    for (size_t i = witness->count; i > 0; i--) {
        if (witness->seen[i - 1].kind == kind) {
            return &witness->seen[i - 1];
        }
    }
    return NULL;
}
