/* transport_world_sim.c - the sim transport: a source and a reader of one simulated world. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/env_sim.h"
#include "tests/contract/transport_world.h"
#include "tests/contract/transport_world_kinds.h"
#include "transports/sim.h"

struct sim_world {
    struct world *world;
    struct wf_sim *sim;
    struct wf_loop *source_loop;
    struct wf_transport *source;
    uint8_t *memory;
};

static void source_teardown(void *user, struct wf_loop *loop)
{
    (void)loop;
    struct sim_world *sim = user;
    sim->source->ops->close(sim->source);
    free(sim->memory);
}

static void reader_teardown(void *user, struct wf_loop *loop)
{
    (void)loop;
    struct sim_world *sim = user;
    sim->world->transport->ops->close(sim->world->transport);
}

static bool open_sim(struct world *world)
{
    struct sim_world *sim = calloc(1, sizeof *sim);
    struct wf_error error;
    world->data = sim;
    sim->world = world;
    sim->sim = wf_sim_new(5, NULL);
    sim->source_loop = wf_sim_rank_new(sim->sim, "source", source_teardown, sim);
    world->loop = wf_sim_rank_new(sim->sim, "reader", reader_teardown, sim);
    sim->memory = malloc(WORLD_BYTES);
    for (uint64_t i = 0; i < WORLD_BYTES; i++) {
        sim->memory[i] = world_byte(i);
    }
    const struct wf_region region = {
        .memory = WF_MEMORY_HOST, .address = sim->memory, .len_bytes = WORLD_BYTES, .fd = -1};
    if (wf_transport_sim_new(world->loop, NULL, &world->transport, &error) != WF_OK ||
        wf_transport_sim_new(sim->source_loop, NULL, &sim->source, &error) != WF_OK ||
        sim->source->ops->export_region(sim->source, &region, &world->handle, &error) != WF_OK) {
        fprintf(stderr, "%s\n", error.text);
        return false;
    }
    return true;
}

static void close_sim(struct world *world)
{
    struct sim_world *sim = world->data;
    wf_sim_free(sim->sim);
    free(sim);
}

static void kill_sim(struct world *world)
{
    struct sim_world *sim = world->data;
    wf_sim_crash(sim->sim, sim->source_loop);
}

struct query {
    struct world *world;
    bool (*done)(struct world *world);
};

static bool query_done(void *user)
{
    struct query *query = user;
    return query->done(query->world);
}

static bool run_sim(struct world *world, bool (*done)(struct world *world))
{
    struct sim_world *sim = world->data;
    struct query query = {world, done};
    return wf_sim_run(sim->sim, query_done, &query, WF_NEVER_NS);
}

const struct world_kind world_sim = {
    .name = "sim", .open = open_sim, .close = close_sim, .kill_source = kill_sim, .run = run_sim};
