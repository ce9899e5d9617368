/* test_world.c - the simulator itself: equal seeds give equal traces, crashes and freezes do
 * what the header says, and time moves by events only. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/env_sim.h"

enum { PEERS = 3, ROUNDS = 20 };

/* A process that greets a server again and again; the server answers each frame. */
struct peer {
    struct wf_actor actor;
    struct wf_loop *loop;
    struct wf_timer timer;
    struct wf_job job;
    uint64_t conn;
    uint32_t frames, closed, jobs, ticks;
    bool is_server, job_out;
    struct world *world;
};

struct world {
    struct wf_sim *sim;
    struct peer server, peers[PEERS];
    uint32_t alive;
};

static void job_work(struct wf_job *job)
{
    struct peer *peer = WF_CONTAINER(job, struct peer, job);
    peer->jobs++;
}

static void job_start(struct peer *peer)
{
    peer->job = (struct wf_job){.done.kind = 1, .owner = &peer->actor, .work = job_work};
    peer->job_out = true;
    wf_loop_env(peer->loop)->ops->job(wf_loop_env(peer->loop), &peer->job);
}

static enum wf_verdict peer_handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct peer *peer = (struct peer *)self;
    struct wf_env *env = wf_loop_env(peer->loop);
    struct wf_wire_msg *wire = (struct wf_wire_msg *)msg;
    switch (msg->kind) {
    case 1:
        peer->job_out = false;
        env->ops->send(env, peer->conn, "next", 4, -1);
        break;
    case WF_WIRE_OPENED:
        if (!peer->is_server) {
            cr_assert_eq(env->ops->send(env, wire->conn, "hello", 5, -1), WF_OK);
        }
        break;
    case WF_WIRE_FRAME:
        peer->frames++;
        if (peer->is_server) {
            env->ops->send(env, wire->conn, "welcome", 7, -1);
        } else if (peer->frames < ROUNDS && !peer->job_out) {
            job_start(peer);
        }
        break;
    case WF_WIRE_CLOSED:
        peer->closed++;
        break;
    default:
        cr_assert_fail("unknown message %u", msg->kind);
    }
    return WF_FREE;
}

static void tick(struct wf_timer *timer)
{
    struct peer *peer = WF_CONTAINER(timer, struct peer, timer);
    peer->ticks++;
    wf_timer_arm(peer->loop, timer, wf_loop_now_ns(peer->loop) + UINT64_C(1000000));
}

static void teardown(void *user, struct wf_loop *loop)
{
    struct peer *peer = user;
    wf_timer_cancel(loop, &peer->timer);
    wf_sim_drain(peer->world->sim, loop);
    cr_assert_not(peer->job_out, "drain brings jobs back");
    wf_actor_close(&peer->actor);
    wf_actor_fini(&peer->actor);
    peer->world->alive--;
}

static void peer_init(struct world *world, struct peer *peer, const char *name, bool is_server)
{
    memset(peer, 0, sizeof *peer);
    peer->world = world;
    peer->is_server = is_server;
    peer->loop = wf_sim_rank_new(world->sim, name, teardown, peer);
    struct wf_env *env = wf_loop_env(peer->loop);
    wf_actor_init(&peer->actor, peer->loop, name, peer_handle);
    peer->timer.fire = tick;
    wf_timer_arm(peer->loop, &peer->timer, wf_loop_now_ns(peer->loop) + UINT64_C(1000000));
    char bound[WF_ADDRESS_MAX];
    struct wf_error error = {0};
    enum wf_status status =
        is_server ? env->ops->listen(env, &peer->actor, "tcp:a:1", bound, &peer->conn, &error)
                  : env->ops->connect(env, &peer->actor, "tcp:a:1", &peer->conn, &error);
    cr_assert_eq(status, WF_OK, "%s", error.text);
    world->alive++;
}

static void world_init(struct world *world, uint64_t seed, uint32_t break_per_million)
{
    struct wf_sim_options options = wf_sim_options_swarm(seed);
    options.break_per_million = break_per_million;
    memset(world, 0, sizeof *world);
    world->sim = wf_sim_new(seed, &options);
    peer_init(world, &world->server, "server", true);
    for (int i = 0; i < PEERS; i++) {
        peer_init(world, &world->peers[i], "peer", false);
    }
}

static bool all_done(void *user)
{
    struct world *world = user;
    for (int i = 0; i < PEERS; i++) {
        if (world->peers[i].frames < ROUNDS && world->peers[i].closed == 0) {
            return false;
        }
    }
    return true;
}

static uint64_t run_seed(uint64_t seed, uint32_t break_per_million)
{
    struct world *world = malloc(sizeof *world);
    world_init(world, seed, break_per_million);
    cr_assert(wf_sim_run(world->sim, all_done, world, UINT64_C(60000000000)), "seed %lu", seed);
    uint64_t hash = wf_sim_trace_hash(world->sim);
    wf_sim_free(world->sim);
    cr_assert_eq(world->alive, 0);
    free(world);
    return hash;
}

Test(sim_world, equal_seeds_give_equal_traces_and_others_do_not)
{
    uint64_t last = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t hash = run_seed(seed, 20000);
        /* Different memory addresses must not matter. */
        void *shift = malloc(1000 * seed);
        cr_assert_eq(hash, run_seed(seed, 20000), "seed %lu gives two traces", seed);
        free(shift);
        cr_assert_neq(hash, last, "seed %lu", seed);
        last = hash;
    }
}

Test(sim_world, a_crash_is_seen_by_peers_and_frees_the_name)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct world *world = malloc(sizeof *world);
        world_init(world, seed, 0);
        /* After the connects, somewhere in the middle. */
        wf_sim_run(world->sim, NULL, NULL, wf_sim_range(world->sim, 1, 20000000));
        wf_sim_crash(world->sim, world->server.loop);
        cr_assert_eq(world->alive, PEERS, "teardown ran");
        wf_sim_run(world->sim, NULL, NULL, wf_sim_now_ns(world->sim) + UINT64_C(100000000));
        for (int i = 0; i < PEERS; i++) {
            cr_assert_eq(world->peers[i].closed, 1, "seed %lu peer %d", seed, i);
        }
        peer_init(world, &world->server, "server again", true);
        wf_sim_free(world->sim);
        cr_assert_eq(world->alive, 0);
        free(world);
    }
}

static void crash_own(struct wf_timer *timer)
{
    struct peer *peer = WF_CONTAINER(timer, struct peer, timer);
    wf_sim_crash(peer->world->sim, peer->loop);
    cr_assert_eq(peer->world->alive, PEERS + 1, "teardown waits for the end of the turn");
}

Test(sim_world, a_rank_may_crash_in_its_own_turn)
{
    struct world *world = malloc(sizeof *world);
    world_init(world, 7, 0);
    world->peers[1].timer.fire = crash_own;
    wf_sim_run(world->sim, NULL, NULL, UINT64_C(50000000));
    cr_assert_eq(world->alive, PEERS);
    cr_assert_eq(world->server.closed, 1);
    wf_sim_free(world->sim);
    free(world);
}

Test(sim_world, a_frozen_rank_does_nothing_and_loses_nothing)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct world *world = malloc(sizeof *world);
        world_init(world, seed, 0);
        struct peer *peer = &world->peers[0];
        wf_sim_run(world->sim, NULL, NULL, wf_sim_range(world->sim, 1, 20000000));
        wf_sim_freeze(world->sim, peer->loop);
        uint32_t frames = peer->frames, jobs = peer->jobs, ticks = peer->ticks;
        wf_sim_run(world->sim, NULL, NULL, wf_sim_now_ns(world->sim) + UINT64_C(1000000000));
        cr_assert(peer->frames == frames && peer->jobs == jobs && peer->ticks == ticks,
                  "seed %lu: it moved", seed);
        cr_assert_eq(peer->closed, 0);
        wf_sim_thaw(world->sim, peer->loop);
        cr_assert(wf_sim_run(world->sim, all_done, world,
                             wf_sim_now_ns(world->sim) + UINT64_C(1000000000)),
                  "seed %lu: it is stuck", seed);
        wf_sim_free(world->sim);
        free(world);
    }
}

Test(sim_world, a_stalled_rank_hears_nothing_until_then)
{
    struct world *world = malloc(sizeof *world);
    world_init(world, 3, 0);
    wf_sim_stall(world->sim, world->peers[2].loop, UINT64_C(5000000000));
    wf_sim_run(world->sim, NULL, NULL, UINT64_C(4999999999));
    cr_assert_eq(world->peers[2].frames, 0);
    cr_assert_geq(world->peers[1].frames, ROUNDS);
    wf_sim_run(world->sim, NULL, NULL, UINT64_C(6000000000));
    cr_assert_geq(world->peers[2].frames, ROUNDS);
    wf_sim_free(world->sim);
    free(world);
}

struct counted {
    struct wf_sim_call call;
    int ran, lost;
};

static void count_call(struct wf_sim_call *call)
{
    ((struct counted *)call)->ran++;
}

static void lost_call(struct wf_sim_call *call)
{
    ((struct counted *)call)->lost++;
}

Test(sim_world, calls_run_once_unless_cancelled_or_lost_with_their_rank)
{
    struct world *world = malloc(sizeof *world);
    world_init(world, 3, 0);
    uint32_t rank = wf_sim_rank_id(world->peers[0].loop);
    struct counted counted[4] = {0};
    for (int i = 0; i < 4; i++) {
        counted[i].call.run = count_call;
        counted[i].call.lost = lost_call;
        wf_sim_call_after(world->sim, i == 3 ? WF_SIM_HOST : rank,
                          UINT64_C(1000000) * (uint64_t)(i + 1), &counted[i].call);
    }
    wf_sim_run(world->sim, NULL, NULL, UINT64_C(1500000));
    wf_sim_call_cancel(world->sim, &counted[1].call);
    wf_sim_call_cancel(world->sim, &counted[1].call);
    wf_sim_crash(world->sim, world->peers[0].loop);
    wf_sim_run(world->sim, NULL, NULL, UINT64_C(10000000));
    const int expected[4][2] = {{1, 0}, {0, 0}, {0, 1}, {1, 0}};
    for (int i = 0; i < 4; i++) {
        cr_assert(counted[i].ran == expected[i][0] && counted[i].lost == expected[i][1],
                  "call %d ran %d times, lost %d", i, counted[i].ran, counted[i].lost);
    }
    wf_sim_free(world->sim);
    free(world);
}

Test(sim_world, regions_end_with_their_rank)
{
    struct world *world = malloc(sizeof *world);
    world_init(world, 3, 0);
    uint8_t memory[100];
    const void *address = NULL;
    uint64_t len = 0;
    uint32_t rank = wf_sim_rank_id(world->peers[0].loop);
    uint64_t a = wf_sim_region_add(world->sim, rank, memory, sizeof memory);
    uint64_t b = wf_sim_region_add(world->sim, rank, memory, 10);
    cr_assert(wf_sim_region_find(world->sim, b, &address, &len) && len == 10);
    wf_sim_region_remove(world->sim, b);
    cr_assert_not(wf_sim_region_find(world->sim, b, &address, &len));
    cr_assert(wf_sim_region_find(world->sim, a, &address, &len) && address == memory);
    wf_sim_crash(world->sim, world->peers[0].loop);
    cr_assert_not(wf_sim_region_find(world->sim, a, &address, &len));
    cr_assert_not(wf_sim_region_find(world->sim, 0, &address, &len));
    cr_assert_not(wf_sim_region_find(world->sim, 99, &address, &len));
    wf_sim_free(world->sim);
    free(world);
}

Test(sim_world, clocks_of_ranks_differ)
{
    struct world *world = malloc(sizeof *world);
    world_init(world, 3, 0);
    struct wf_env *a = wf_loop_env(world->peers[0].loop), *b = wf_loop_env(world->peers[1].loop);
    cr_assert_neq(a->ops->now_ns(a), b->ops->now_ns(b));
    uint64_t before = a->ops->now_ns(a);
    wf_sim_run(world->sim, NULL, NULL, UINT64_C(123456789));
    cr_assert_eq(a->ops->now_ns(a) - before, 123456789);
    wf_sim_free(world->sim);
    free(world);
}

Test(sim_world, a_thousand_ranks_fit)
{
    enum { MANY = 1000 };
    struct world *world = malloc(sizeof *world);
    struct peer *peers = calloc(MANY, sizeof *peers);
    memset(world, 0, sizeof *world);
    world->sim = wf_sim_new(1, NULL);
    peer_init(world, &world->server, "server", true);
    for (int i = 0; i < MANY; i++) {
        peer_init(world, &peers[i], "peer", false);
    }
    wf_sim_run(world->sim, NULL, NULL, UINT64_C(100000000));
    for (int i = 0; i < MANY; i++) {
        cr_assert_eq(peers[i].frames, ROUNDS, "peer %d", i);
    }
    wf_sim_free(world->sim);
    free(peers);
    free(world);
}
