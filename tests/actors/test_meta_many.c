/* test_meta_many.c - a real MetaServer with so many ranks that what it tells all of them leaves in
 * several turns: each rank gets in order what follows from one another. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/meta_server.h"
#include "actors/meta_server_internal.h"
#include "runtime/env_sim.h"

enum { TRAIN = 1000, INFER = 8, RANKS = TRAIN + INFER };
#define MS UINT64_C(1000000)

struct many;
struct one {
    struct wf_actor actor;
    struct many *world;
    enum wf_side side;
    uint32_t rank;
    uint64_t conn;
    bool generation, opened, asked;
};

struct many {
    struct wf_sim *sim;
    struct wf_loop *loop;
    struct wf_meta_server *server;
    char address[WF_ADDRESS_MAX];
    struct one *ranks;
    struct wf_frame_generation generation;
    uint32_t generations, opens, asks, early;
    size_t open_bytes;
    /* MEMBERS are the same bytes for all, and many: decoded once. */
    void *members;
    size_t members_len;
    uint64_t members_epoch;
};

static void say(struct one *one, enum wf_frame_type type, const void *fields)
{
    cr_assert_eq(wf_frame_send(wf_loop_env(one->world->loop), one->conn, type, fields, -1), WF_OK);
}

static void say_hello(struct one *one)
{
    struct wf_frame_hello hello = {.proto_min = 1,
                                   .proto_max = 1,
                                   .job = "many",
                                   .side = one->side,
                                   .rank = one->rank,
                                   .incarnation =
                                       UINT64_MAX - one->rank, /* as long as drawn ones */
                                   .host = "here",
                                   .group_rank = one->rank};
    snprintf(hello.group, sizeof hello.group, "%s", wf_side_name(one->side));
    strcpy(hello.spec, one->side == WF_TRAIN ? "megatron:tp=1" : "vllm:tp=1");
    say(one, WF_FRAME_hello, &hello);
}

static void on_members(struct one *one, const struct wf_wire_msg *wire)
{
    struct many *world = one->world;
    if (wire->len_bytes != world->members_len ||
        memcmp(wire->bytes, world->members, wire->len_bytes) != 0) {
        struct wf_frame frame;
        struct wf_error error = {0};
        cr_assert_eq(wf_frame_decode(wire->bytes, wire->len_bytes, &frame, &error), WF_OK, "%s",
                     error.text);
        world->members_epoch = frame.members.epoch;
        wf_frame_fini(&frame);
        world->members_len = wire->len_bytes;
        world->members = realloc(world->members, wire->len_bytes);
        cr_assert_not_null(world->members);
        memcpy(world->members, wire->bytes, wire->len_bytes);
    }
    const struct wf_frame_planned planned = {.epoch = world->members_epoch, .ops = 1};
    say(one, WF_FRAME_planned, &planned);
}

static void on_frame(struct one *one, const struct wf_wire_msg *wire)
{
    struct many *world = one->world;
    switch (wf_frame_peek(wire->bytes, wire->len_bytes)) {
    case WF_FRAME_challenge:
        say_hello(one);
        break;
    case WF_FRAME_welcome: {
        struct wf_frame frame;
        struct wf_error error = {0};
        cr_assert_eq(wf_frame_decode(wire->bytes, wire->len_bytes, &frame, &error), WF_OK, "%s",
                     error.text);
        const struct wf_frame_joined joined = {.epoch = frame.welcome.epoch};
        wf_frame_fini(&frame);
        say(one, WF_FRAME_joined, &joined);
        break;
    }
    case WF_FRAME_members:
        on_members(one, wire);
        break;
    case WF_FRAME_generation: {
        struct wf_frame frame;
        struct wf_error error = {0};
        cr_assert_eq(wf_frame_decode(wire->bytes, wire->len_bytes, &frame, &error), WF_OK, "%s",
                     error.text);
        world->generation = frame.generation;
        world->generations += !one->generation;
        one->generation = true;
        wf_frame_fini(&frame);
        break;
    }
    case WF_FRAME_open:
        world->open_bytes = wire->len_bytes;
        world->opens += !one->opened;
        one->opened = true;
        break;
    case WF_FRAME_replicas_request:
        world->early += !one->opened;
        world->asks += !one->asked;
        one->asked = true;
        break;
    default:
        break;
    }
}

static enum wf_verdict on_message(struct wf_actor *self, struct wf_msg *msg)
{
    struct one *one = (struct one *)self;
    if (msg->kind == WF_WIRE_FRAME) {
        on_frame(one, (const struct wf_wire_msg *)msg);
    }
    return WF_FREE;
}

static void server_teardown(void *user, struct wf_loop *loop)
{
    (void)loop;
    wf_meta_server_free(((struct many *)user)->server);
}

static void ranks_teardown(void *user, struct wf_loop *loop)
{
    struct many *world = user;
    (void)loop;
    for (uint32_t i = 0; i < RANKS; i++) {
        wf_actor_close(&world->ranks[i].actor);
        wf_actor_fini(&world->ranks[i].actor);
    }
}

static void open_world(struct many *world)
{
    static const uint32_t engine_of[INFER] = {0};
    const struct wf_sim_options links = {.latency_max_ns = MS};
    const uint64_t long_ns = 600 * 1000 * MS; /* nothing here is about time */
    struct wf_error error = {0};
    *world = (struct many){.sim = wf_sim_new(1, &links)};
    struct wf_loop *server = wf_sim_rank_new(world->sim, "server", server_teardown, world);
    const struct wf_server_options options = {.job = "many",
                                              .listen = "server",
                                              .train_ranks = TRAIN,
                                              .infer_ranks = INFER,
                                              .engines = 1,
                                              .engine_of = engine_of,
                                              .validate_every = 1,
                                              .timeouts = {.connect_ns = long_ns,
                                                           .reconnect_ns = long_ns,
                                                           .lease_ns = long_ns,
                                                           .heartbeat_ns = long_ns,
                                                           .join_ns = long_ns,
                                                           .plan_ns = long_ns,
                                                           .round_ns = long_ns,
                                                           .quiesce_ns = long_ns,
                                                           .flip_ns = long_ns,
                                                           .repeat_ns = long_ns}};
    cr_assert_eq(wf_meta_server_new(server, &options, world->address, &world->server, &error),
                 WF_OK, "%s", error.text);
    world->loop = wf_sim_rank_new(world->sim, "ranks", ranks_teardown, world);
    world->ranks = calloc(RANKS, sizeof world->ranks[0]);
    cr_assert_not_null(world->ranks);
    struct wf_env *env = wf_loop_env(world->loop);
    for (uint32_t i = 0; i < RANKS; i++) {
        struct one *one = &world->ranks[i];
        *one = (struct one){.world = world,
                            .side = i < TRAIN ? WF_TRAIN : WF_INFER,
                            .rank = i < TRAIN ? i : i - TRAIN};
        wf_actor_init(&one->actor, world->loop, "one", on_message);
        cr_assert_eq(env->ops->connect(env, &one->actor, world->address, &one->conn, &error), WF_OK,
                     "%s", error.text);
    }
}

static void close_world(struct many *world)
{
    wf_sim_free(world->sim);
    free(world->ranks);
    free(world->members);
}

static bool all_have_generation(void *user)
{
    return ((struct many *)user)->generations == TRAIN;
}

static bool all_asked(void *user)
{
    return ((struct many *)user)->asks == TRAIN;
}

static bool run(struct many *world, bool (*done)(void *user))
{
    return wf_sim_run(world->sim, done, world, wf_sim_now_ns(world->sim) + 60 * 1000 * MS);
}

/* Whoever is asked for sums of a round has its OPEN: it would not know what it is asked of, and be
 * asked again a whole `repeat` later. */
Test(meta_many, sums_are_asked_for_behind_the_open_that_they_are_about)
{
    struct many world;
    open_world(&world);
    cr_assert(run(&world, all_have_generation), "%u of %u have a generation", world.generations,
              TRAIN);
    const struct wf_frame_publish publish = {
        .version = {world.generation.generation_term, world.generation.counter, 1}, .models = 1};
    for (uint32_t i = 0; i < TRAIN; i++) {
        say(&world.ranks[i], WF_FRAME_publish, &publish);
    }
    cr_assert(run(&world, all_asked), "%u of %u were asked", world.asks, TRAIN);
    cr_expect_gt(world.open_bytes * RANKS, WF_SLICE_BYTES,
                 "OPEN left in one turn: take more ranks");
    cr_expect_eq(world.early, 0, "%u of %u were asked before they had OPEN", world.early, TRAIN);
    close_world(&world);
}
