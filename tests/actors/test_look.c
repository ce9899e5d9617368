/* test_look.c - an observer's connection to a rank: who may look, what it is shown, what it is told
 * when the memory changes, and that it leaves nothing behind. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "actors/sender.h"
#include "tests/actors/stage.h"

static const struct stage_options plain = {
    .train = "megatron:tp=1", .infer = "vllm:tp=1", .share_memory = true};

/* A connection that the test writes by hand, from the infer rank's loop to the train rank. */
struct looker {
    struct wf_actor actor;
    struct stage_rank *from;
    uint64_t conn;
    bool challenged, closed, is_refused;
    uint32_t places, regions, helds;
    struct wf_frame_peer_refused refused;
    struct wf_frame_held held;
};

static struct stage stage;

static void take_frame(struct looker *looker, const struct wf_wire_msg *msg)
{
    struct wf_frame frame;
    struct wf_error error;
    cr_assert_eq(wf_frame_decode(msg->bytes, msg->len_bytes, &frame, &error), WF_OK, "%s",
                 error.text);
    looker->challenged = looker->challenged || frame.type == WF_FRAME_challenge;
    looker->places += frame.type == WF_FRAME_peer_places ? frame.peer_places.places_count : 0;
    looker->regions += frame.type == WF_FRAME_peer_region;
    if (frame.type == WF_FRAME_held) {
        looker->helds++;
        looker->held = frame.held;
    } else if (frame.type == WF_FRAME_peer_refused) {
        looker->is_refused = true;
        looker->refused = frame.peer_refused;
    }
    wf_frame_fini(&frame);
}

static enum wf_verdict take(struct wf_actor *self, struct wf_msg *msg)
{
    struct looker *looker = WF_CONTAINER(self, struct looker, actor);
    if (msg->kind == WF_WIRE_FRAME) {
        take_frame(looker, (struct wf_wire_msg *)msg);
    } else if (msg->kind == WF_WIRE_CLOSED) {
        looker->closed = true;
    }
    return WF_FREE;
}

static bool is_challenged(void *user)
{
    return ((struct looker *)user)->challenged;
}

static bool is_closed(void *user)
{
    return ((struct looker *)user)->closed;
}

static bool is_told(void *user)
{
    return ((struct looker *)user)->helds > 0;
}

static bool has_no_lookers(void *user)
{
    return ((struct wf_sender *)user)->looker_count == 0;
}

static void call(struct looker *looker)
{
    memset(looker, 0, sizeof *looker);
    looker->from = stage_infer(&stage, 0);
    wf_actor_init(&looker->actor, looker->from->rank.loop, "looker", take);
    struct wf_env *env = looker->from->env;
    struct wf_error error;
    cr_assert_eq(env->ops->connect(env, &looker->actor, stage_train(&stage, 0)->rank.address,
                                   &looker->conn, &error),
                 WF_OK, "%s", error.text);
    cr_assert(stage_run(&stage, is_challenged, looker));
}

static void hang_up(struct looker *looker)
{
    struct wf_env *env = looker->from->env;
    env->ops->close(env, looker->conn);
    wf_actor_close(&looker->actor);
    wf_actor_fini(&looker->actor);
}

static struct wf_frame_look good_look(void)
{
    return (struct wf_frame_look){.proto_min = WF_PROTOCOL_MIN,
                                  .proto_max = WF_PROTOCOL_MAX,
                                  .job = "stage",
                                  .side = WF_TRAIN,
                                  .incarnation = stage_train(&stage, 0)->rank.incarnation,
                                  .transports = "pigeon shm"};
}

static void say(struct looker *looker, const struct wf_frame_look *look)
{
    looker->helds = 0;
    cr_assert_eq(wf_frame_send(looker->from->env, looker->conn, WF_FRAME_look, look, -1), WF_OK);
}

/* Without a plan and without a round. */
Test(look, it_is_shown_the_memory_and_told_what_it_is)
{
    stage_open(&stage, &plain);
    struct stage_rank *train = stage_train(&stage, 0);
    struct wf_sender *sender = train->rank.sender;
    struct looker looker;
    train->client.held = (struct wf_frame_held){.version = {1, 1, 4}, .writes = 7};
    struct wf_frame_look look = good_look();
    call(&looker);
    say(&looker, &look);
    cr_assert(stage_run(&stage, is_told, &looker));
    cr_assert_eq(looker.places, train->rank.layout->tensor_count);
    cr_assert_eq(looker.regions, 1);
    cr_assert_eq(looker.held.version.step, 4);
    cr_assert_eq(looker.held.writes, 7);
    train->client.held.writes = 8;
    say(&looker, &look);
    cr_assert(stage_run(&stage, is_told, &looker));
    cr_assert_eq(looker.regions, 1, "they are shown once");
    cr_assert_eq(looker.held.writes, 8);
    cr_assert_eq(sender->looker_count, 1);
    stage_plan(&stage); /* is none of its business */
    say(&looker, &look);
    cr_assert(stage_run(&stage, is_told, &looker));
    hang_up(&looker);
    cr_assert(stage_run(&stage, has_no_lookers, sender));
    stage_close(&stage);
}

static void another_protocol(struct wf_frame_look *look)
{
    look->proto_min = look->proto_max = 200;
}

static void another_job(struct wf_frame_look *look)
{
    snprintf(look->job, sizeof look->job, "elsewhere");
}

static void another_side(struct wf_frame_look *look)
{
    look->side = WF_INFER;
}

static void another_rank(struct wf_frame_look *look)
{
    look->rank = 5;
}

static void another_life(struct wf_frame_look *look)
{
    look->incarnation++;
}

static void another_transport(struct wf_frame_look *look)
{
    snprintf(look->transports, sizeof look->transports, "pigeon");
}

static void no_change(struct wf_frame_look *look)
{
    (void)look;
}

static const struct {
    const char *name;
    void (*spoil)(struct wf_frame_look *look);
    uint32_t others; /* that look already */
    enum wf_status status;
    const char *says;
} rows[] = {
    {"another protocol", another_protocol, 0, WF_PROTOCOL, "versions 200 to 200 are spoken there"},
    {"another job", another_job, 0, WF_REFUSED, "this is job \"stage\", not \"elsewhere\""},
    {"another side", another_side, 0, WF_REFUSED, "this is train rank 0, not infer rank 0"},
    {"another rank", another_rank, 0, WF_REFUSED, "this is train rank 0, not train rank 5"},
    {"an earlier life", another_life, 0, WF_STALE, "train rank 0 was restarted"},
    {"another transport", another_transport, 0, WF_UNSUPPORTED, "the observer can read by: pigeon"},
    {"one too many", no_change, SENDER_LOOKERS_MAX, WF_AGAIN, "4 observers look at train rank 0"},
};

Test(look, it_is_checked_before_memory_is_shown)
{
    stage_open(&stage, &plain);
    struct wf_sender *sender = stage_train(&stage, 0)->rank.sender;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct looker looker;
        struct wf_frame_look look = good_look();
        rows[i].spoil(&look);
        call(&looker);
        sender->looker_count = rows[i].others;
        say(&looker, &look);
        cr_assert(stage_run(&stage, is_closed, &looker), "%s", rows[i].name);
        sender->looker_count = 0;
        cr_assert(looker.is_refused, "%s", rows[i].name);
        cr_assert_eq(looker.refused.status, rows[i].status, "%s", rows[i].name);
        cr_assert_not_null(strstr(looker.refused.text, rows[i].says), "%s: %s", rows[i].name,
                           looker.refused.text);
        cr_assert_eq(looker.regions + looker.helds, 0, "%s", rows[i].name);
        hang_up(&looker);
    }
    stage_close(&stage);
}

/* What a reader of a round may ask is not answered. */
Test(look, it_has_no_part_in_rounds)
{
    stage_open(&stage, &plain);
    struct looker looker;
    struct wf_frame_look look = good_look();
    call(&looker);
    say(&looker, &look);
    cr_assert(stage_run(&stage, is_told, &looker));
    const struct wf_frame_grant_request request = {.round = stage_key(&stage, 1, 1)};
    wf_frame_send(looker.from->env, looker.conn, WF_FRAME_grant_request, &request, -1);
    cr_assert(stage_run(&stage, is_closed, &looker));
    cr_assert_eq(looker.refused.status, WF_PROTOCOL);
    cr_assert_eq(stage_train(&stage, 0)->rank.sender->looker_count, 0);
    hang_up(&looker);
    stage_close(&stage);
}

/* One that hangs is dropped: here its time is over at once. */
Test(look, it_asks_or_goes)
{
    stage_open(&stage, &plain);
    struct wf_sender *sender = stage_train(&stage, 0)->rank.sender;
    struct sender_peer *peer = NULL;
    struct looker looker;
    struct wf_frame_look look = good_look();
    call(&looker);
    say(&looker, &look);
    cr_assert(stage_run(&stage, is_told, &looker));
    for (uint32_t i = 0; i < SENDER_BUCKETS; i++) {
        peer = sender->peers[i] != NULL ? sender->peers[i] : peer;
    }
    cr_assert_not_null(peer);
    cr_assert(wf_timer_is_armed(&peer->timer));
    wf_timer_arm(sender->rank->loop, &peer->timer, wf_loop_now_ns(sender->rank->loop));
    cr_assert(stage_run(&stage, is_closed, &looker));
    cr_assert_eq(looker.refused.status, WF_TIMED_OUT);
    cr_assert_not_null(strstr(looker.refused.text, "waited too long for the observer's next look"),
                       "%s", looker.refused.text);
    cr_assert_eq(sender->looker_count, 0);
    hang_up(&looker);
    stage_close(&stage);
}

/* With a token, only who has proven to be an observer looks. */
Test(look, a_rank_does_not_look)
{
    stage_open(&stage, &plain);
    struct wf_rank *train = &stage_train(&stage, 0)->rank;
    struct looker looker;
    struct wf_frame_look look = good_look();
    call(&looker); /* no token is asked for yet */
    train->token.is_set = true;
    say(&looker, &look);
    cr_assert(stage_run(&stage, is_closed, &looker));
    cr_assert_eq(looker.refused.status, WF_REFUSED);
    cr_assert_not_null(strstr(looker.refused.text, "only an observer looks"), "%s",
                       looker.refused.text);
    train->token.is_set = false;
    hang_up(&looker);
    stage_close(&stage);
}
