/* puppets.c - the world of test_meta_server.c. */
#include "tests/actors/puppets.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const struct wf_timeouts timeouts = {.connect_ns = 2000 * PUPPET_MS,
                                            .reconnect_ns = 2000 * PUPPET_MS,
                                            .lease_ns = 600 * PUPPET_MS,
                                            .heartbeat_ns = 100 * PUPPET_MS,
                                            .join_ns = 5000 * PUPPET_MS,
                                            .plan_ns = 3000 * PUPPET_MS,
                                            .round_ns = 2000 * PUPPET_MS,
                                            .quiesce_ns = 1000 * PUPPET_MS,
                                            .flip_ns = 1000 * PUPPET_MS,
                                            .repeat_ns = 200 * PUPPET_MS};

/* --- puppets ---------------------------------------------------------------------------------- */
void puppet_send(struct puppet *puppet, enum wf_frame_type type, const void *fields)
{
    enum wf_status status =
        wf_frame_send(wf_loop_env(puppet->world->loop), puppet->conn, type, fields, -1);
    cr_assert(status == WF_OK || status == WF_CLOSED, "%s: %s", wf_frame_name(type),
              wf_status_text(status));
}

static void beat(struct wf_timer *timer)
{
    struct puppet *puppet = WF_CONTAINER(timer, struct puppet, beat);
    uint64_t now = wf_loop_now_ns(puppet->world->loop);
    if (!puppet->closed && !puppet->silent) {
        const struct wf_frame_heartbeat heartbeat = {.sequence = 1, .sent_ns = now};
        puppet_send(puppet, WF_FRAME_heartbeat, &heartbeat);
    }
    wf_timer_arm(puppet->world->loop, timer, now + timeouts.heartbeat_ns);
}

static void answer(struct puppet *puppet, const struct wf_frame *frame)
{
    if (frame->type == WF_FRAME_challenge) {
        puppet_send(puppet, WF_FRAME_hello, &puppet->hello);
        if (!puppet->observer && !wf_timer_is_armed(&puppet->beat)) {
            wf_timer_arm(puppet->world->loop, &puppet->beat,
                         wf_loop_now_ns(puppet->world->loop) + timeouts.heartbeat_ns);
        }
    } else if (frame->type == WF_FRAME_welcome && !puppet->no_joined) {
        const struct wf_frame_joined joined = {.epoch = frame->welcome.epoch, .live = puppet->live};
        puppet_send(puppet, WF_FRAME_joined, &joined);
    } else if (frame->type == WF_FRAME_members && !puppet->no_planned) {
        const struct wf_frame_planned planned = {.epoch = frame->members.epoch,
                                                 .input = puppet->input,
                                                 .edge_sum = puppet->edge_sum,
                                                 .ops = 7};
        puppet_send(puppet, WF_FRAME_planned, &planned);
    }
}

static enum wf_verdict on_message(struct wf_actor *self, struct wf_msg *msg)
{
    struct puppet *puppet = (struct puppet *)self;
    const struct wf_wire_msg *wire = (const struct wf_wire_msg *)msg;
    if (wire->conn != puppet->conn) {
        return WF_FREE;
    }
    if (msg->kind == WF_WIRE_CLOSED) {
        puppet->closed = true;
    } else if (msg->kind == WF_WIRE_FRAME) {
        struct wf_error error = {0};
        cr_assert_lt(puppet->frame_count, PUPPET_FRAMES_MAX);
        struct wf_frame *frame = &puppet->frames[puppet->frame_count];
        cr_assert_eq(wf_frame_decode(wire->bytes, wire->len_bytes, frame, &error), WF_OK, "%s",
                     error.text);
        puppet->frame_count++;
        answer(puppet, frame);
    }
    return WF_FREE;
}

void puppet_connect(struct puppet *puppet)
{
    struct wf_env *env = wf_loop_env(puppet->world->loop);
    struct wf_error error = {0};
    puppet->closed = false;
    cr_assert_eq(
        env->ops->connect(env, &puppet->actor, puppet->world->address, &puppet->conn, &error),
        WF_OK, "%s", error.text);
}

void puppet_drop(struct puppet *puppet)
{
    struct wf_env *env = wf_loop_env(puppet->world->loop);
    env->ops->close(env, puppet->conn);
    puppet->closed = true;
}

struct wait {
    struct puppet *puppet;
    enum wf_frame_type type;
};

static bool has_come(void *user)
{
    struct wait *wait = user;
    struct puppet *puppet = wait->puppet;
    for (; puppet->seen < puppet->frame_count; puppet->seen++) {
        if (puppet->frames[puppet->seen].type == wait->type) {
            return true;
        }
    }
    return false;
}

const struct wf_frame *puppet_expect(struct puppet *puppet, enum wf_frame_type type)
{
    struct wait wait = {puppet, type};
    uint64_t limit = wf_sim_now_ns(puppet->world->sim) + 20000 * PUPPET_MS;
    bool came = has_come(&wait) || wf_sim_run(puppet->world->sim, has_come, &wait, limit);
    cr_assert(came, "%s rank %u waits for %s", wf_side_name(puppet->side), puppet->rank,
              wf_frame_name(type));
    return &puppet->frames[puppet->seen++];
}

uint32_t puppet_count(const struct puppet *puppet, enum wf_frame_type type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < puppet->frame_count; i++) {
        count += puppet->frames[i].type == type;
    }
    return count;
}

void puppet_refuses(struct puppet *puppet, enum wf_frame_type type, uint64_t ns)
{
    uint32_t before = puppet_count(puppet, type);
    world_run(puppet->world, ns);
    cr_assert_eq(puppet_count(puppet, type), before, "%s rank %u got %s",
                 wf_side_name(puppet->side), puppet->rank, wf_frame_name(type));
}

/* --- the world -------------------------------------------------------------------------------- */
static void on_ended(void *user, const struct wf_error *why)
{
    struct world *world = user;
    world->ended = true;
    world->why = *why;
}

static enum wf_status on_journal(void *user, const struct wf_journal_record *record,
                                 struct wf_error *error)
{
    (void)error;
    struct world *world = user;
    if (world->fails && record->kind == world->journal_fails) {
        return WF_IO;
    }
    cr_assert_lt(world->record_count, sizeof world->records / sizeof world->records[0]);
    world->records[world->record_count++] = *record;
    return WF_OK;
}

static void server_teardown(void *user, struct wf_loop *loop)
{
    struct world *world = user;
    (void)loop;
    wf_meta_server_free(world->server);
}

static void puppets_teardown(void *user, struct wf_loop *loop)
{
    struct world *world = user;
    for (uint32_t i = 0; i < world->puppet_count; i++) {
        struct puppet *puppet = &world->puppets[i];
        wf_timer_cancel(loop, &puppet->beat);
        wf_actor_close(&puppet->actor);
        wf_actor_fini(&puppet->actor);
        for (uint32_t f = 0; f < puppet->frame_count; f++) {
            wf_frame_fini(&puppet->frames[f]);
        }
    }
}

static struct puppet *new_puppet(struct world *world, enum wf_side side, uint32_t rank,
                                 uint32_t engine)
{
    cr_assert_lt(world->puppet_count, PUPPETS_MAX);
    struct puppet *puppet = &world->puppets[world->puppet_count++];
    *puppet = (struct puppet){.world = world, .side = side, .rank = rank, .engine = engine};
    puppet->hello = (struct wf_frame_hello){.proto_min = 1,
                                            .proto_max = 1,
                                            .job = "world",
                                            .side = side,
                                            .rank = rank,
                                            .engine = engine,
                                            .incarnation = 1000 + world->puppet_count,
                                            .host = "here",
                                            .pid = 100 + world->puppet_count,
                                            .group_rank = rank};
    snprintf(puppet->hello.group, sizeof puppet->hello.group, "%s", wf_side_name(side));
    snprintf(puppet->hello.spec, sizeof puppet->hello.spec, "%s",
             side == WF_TRAIN ? "megatron:tp=1" : "vllm:tp=1");
    puppet->beat = (struct wf_timer){.fire = beat, .name = "puppet"};
    wf_actor_init(&puppet->actor, world->loop, "puppet", on_message);
    return puppet;
}

void world_open(struct world *world, uint32_t engines, uint32_t per_engine,
                const struct wf_server_options *options)
{
    uint32_t engine_of[PUPPETS_MAX];
    struct wf_server_options o = options != NULL ? *options : (struct wf_server_options){0};
    struct wf_error error = {0};
    memset(world, 0, sizeof *world); /* megabytes: a literal would stand on the stack at -O0 */
    world->infer_ranks = engines * per_engine;
    const struct wf_sim_options links = {.latency_max_ns = PUPPET_MS};
    world->sim = wf_sim_new(1, &links);
    world->server_loop = wf_sim_rank_new(world->sim, "server", server_teardown, world);
    world->loop = wf_sim_rank_new(world->sim, "puppets", puppets_teardown, world);
    for (uint32_t i = 0; i < engines * per_engine; i++) {
        engine_of[i] = i / per_engine;
    }
    o.job = "world";
    o.listen = "server";
    o.train_ranks = o.train_ranks > 0 ? o.train_ranks : 1;
    o.infer_ranks = engines * per_engine;
    o.engines = engines;
    o.engine_of = engine_of;
    o.timeouts = timeouts;
    o.journal = on_journal;
    o.ended = on_ended;
    o.user = world;
    cr_assert_eq(wf_meta_server_new(world->server_loop, &o, world->address, &world->server, &error),
                 WF_OK, "%s", error.text);
    new_puppet(world, WF_TRAIN, 0, 0);
    for (uint32_t i = 0; i < engines * per_engine; i++) {
        new_puppet(world, WF_INFER, i, engine_of[i]);
    }
    for (uint32_t i = 1; i < o.train_ranks; i++) {
        new_puppet(world, WF_TRAIN, i, 0);
    }
}

void world_close(struct world *world)
{
    wf_sim_free(world->sim);
}

void world_run(struct world *world, uint64_t ns)
{
    wf_sim_run(world->sim, NULL, NULL, wf_sim_now_ns(world->sim) + ns);
}

struct puppet *world_train(struct world *world)
{
    return &world->puppets[0];
}

struct puppet *world_trainer(struct world *world, uint32_t rank)
{
    return &world->puppets[rank == 0 ? 0 : world->infer_ranks + rank];
}

struct puppet *world_infer(struct world *world, uint32_t rank)
{
    return &world->puppets[1 + rank];
}

struct puppet *world_guest(struct world *world, const struct puppet *like)
{
    struct puppet *guest =
        new_puppet(world, like != NULL ? like->side : WF_TRAIN, like != NULL ? like->rank : 0,
                   like != NULL ? like->engine : 0);
    if (like == NULL) {
        guest->observer = true;
        guest->hello.role = WF_ROLE_OBSERVER;
    }
    return guest;
}

void world_start(struct world *world)
{
    for (uint32_t i = 0; i < world->puppet_count; i++) {
        puppet_connect(&world->puppets[i]);
    }
    const struct wf_frame *frame = puppet_expect(world_train(world), WF_FRAME_generation);
    cr_assert_eq(frame->generation.counter, 1);
}

/* --- steps of a round --------------------------------------------------------------------------
 */
void puppet_publish(struct puppet *train, uint64_t step)
{
    const struct wf_frame *generation = NULL;
    for (uint32_t i = 0; i < train->frame_count; i++) {
        if (train->frames[i].type == WF_FRAME_generation) {
            generation = &train->frames[i];
        }
    }
    cr_assert_not_null(generation);
    const struct wf_frame_publish publish = {
        .version = {generation->generation.generation_term, generation->generation.counter, step},
        .models = 1};
    puppet_send(train, WF_FRAME_publish, &publish);
}

struct wf_round_key puppet_open(struct puppet *infer)
{
    return puppet_expect(infer, WF_FRAME_open)->open.round;
}

void puppet_vote(struct puppet *infer, struct wf_round_key key, bool yes)
{
    struct wf_frame_vote vote = {.round = key, .yes = yes, .bytes = 10};
    if (!yes) {
        vote.culprit = (struct wf_culprit){.side = WF_INFER, .rank = infer->rank};
        snprintf(vote.culprit.reason, sizeof vote.culprit.reason, "did not like it");
    }
    puppet_send(infer, WF_FRAME_vote, &vote);
}

void puppet_key(struct puppet *infer, enum wf_frame_type type, struct wf_round_key key)
{
    const struct wf_frame_aborted fields = {.round = key, .live = infer->live};
    puppet_send(infer, type, &fields); /* frames that are only a key, and ABORTED */
}

void puppet_flipped(struct puppet *infer, struct wf_round_key key)
{
    infer->live = key.version;
    const struct wf_frame_flipped flipped = {.round = key, .live = key.version, .flip_ns = 5};
    puppet_send(infer, WF_FRAME_flipped, &flipped);
}

void puppet_resumed(struct puppet *infer, struct wf_round_key key)
{
    const struct wf_frame_resumed resumed = {.round = key, .pause_ns = 9};
    puppet_send(infer, WF_FRAME_resumed, &resumed);
}

void world_commit(struct world *world, uint64_t step)
{
    struct puppet *train = world_train(world);
    struct wf_round_key key = {0};
    puppet_publish(train, step);
    for (uint32_t i = 1; i <= world->infer_ranks; i++) {
        key = puppet_open(&world->puppets[i]);
        puppet_vote(&world->puppets[i], key, true);
    }
    for (uint32_t i = 1; i <= world->infer_ranks; i++) {
        puppet_expect(&world->puppets[i], WF_FRAME_decide);
        puppet_key(&world->puppets[i], WF_FRAME_quiesced, key);
    }
    for (uint32_t i = 1; i <= world->infer_ranks; i++) {
        puppet_expect(&world->puppets[i], WF_FRAME_flip);
        puppet_flipped(&world->puppets[i], key);
    }
    for (uint32_t i = 1; i <= world->infer_ranks; i++) {
        puppet_expect(&world->puppets[i], WF_FRAME_resume);
        puppet_resumed(&world->puppets[i], key);
    }
    cr_assert_eq(puppet_expect(train, WF_FRAME_released)->released.version.step, step);
    puppet_key(train, WF_FRAME_told, key);
}
