/* test_sender.c - what a Sender says to readers that are wrong, and to strangers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/sender.h"
#include "tests/actors/stage.h"

static const struct stage_options plain = {
    .train = "megatron:tp=1", .infer = "vllm:tp=1", .share_memory = true};

/* A connection to the Sender that the test writes by hand, from the infer rank's loop. */
struct caller {
    struct wf_actor actor;
    struct stage_rank *from;
    uint64_t conn;
    bool challenged, closed;
    uint32_t regions;
    struct wf_frame_peer_refused refused;
    bool is_refused;
};

static void take_frame(struct caller *caller, const struct wf_wire_msg *msg)
{
    struct wf_frame frame;
    struct wf_error error;
    cr_assert_eq(wf_frame_decode(msg->bytes, msg->len_bytes, &frame, &error), WF_OK, "%s",
                 error.text);
    caller->challenged = caller->challenged || frame.type == WF_FRAME_challenge;
    caller->regions += frame.type == WF_FRAME_peer_region;
    if (frame.type == WF_FRAME_peer_refused) {
        caller->is_refused = true;
        caller->refused = frame.peer_refused;
    }
    wf_frame_fini(&frame);
}

static enum wf_verdict take(struct wf_actor *self, struct wf_msg *msg)
{
    struct caller *caller = WF_CONTAINER(self, struct caller, actor);
    if (msg->kind == WF_WIRE_FRAME) {
        take_frame(caller, (struct wf_wire_msg *)msg);
    } else if (msg->kind == WF_WIRE_CLOSED) {
        caller->closed = true;
    }
    return WF_FREE;
}

static bool is_challenged(void *user)
{
    return ((struct caller *)user)->challenged;
}

static bool is_closed(void *user)
{
    return ((struct caller *)user)->closed;
}

static bool has_regions(void *user)
{
    return ((struct caller *)user)->regions > 0;
}

static bool was_refused(void *user)
{
    return ((struct caller *)user)->is_refused;
}

static void dial(struct stage *stage, struct caller *caller)
{
    memset(caller, 0, sizeof *caller);
    caller->from = stage_infer(stage, 0);
    wf_actor_init(&caller->actor, caller->from->rank.loop, "caller", take);
    struct wf_env *env = caller->from->env;
    struct wf_error error;
    cr_assert_eq(env->ops->connect(env, &caller->actor, stage_train(stage, 0)->rank.address,
                                   &caller->conn, &error),
                 WF_OK, "%s", error.text);
}

static void call(struct stage *stage, struct caller *caller)
{
    dial(stage, caller);
    cr_assert(stage_run(stage, is_challenged, caller));
}

static void hang_up(struct caller *caller)
{
    struct wf_env *env = caller->from->env;
    env->ops->close(env, caller->conn);
    wf_actor_close(&caller->actor);
    wf_actor_fini(&caller->actor);
}

static struct wf_frame_peer_hello good_hello(struct stage *stage)
{
    const struct wf_rank *infer = &stage_infer(stage, 0)->rank;
    const struct wf_agreed *agreed = stage_train(stage, 0)->rank.sender->agreed;
    return (struct wf_frame_peer_hello){.proto_min = WF_PROTOCOL_MIN,
                                        .proto_max = WF_PROTOCOL_MAX,
                                        .job = "stage",
                                        .incarnation = infer->incarnation,
                                        .source_incarnation =
                                            stage_train(stage, 0)->rank.incarnation,
                                        .input = agreed->plan->input_hash,
                                        .edge = agreed->plan->edges[0].hash,
                                        .transports = "pigeon shm"};
}

static void say(struct caller *caller, enum wf_frame_type type, const void *fields)
{
    cr_assert_eq(wf_frame_send(caller->from->env, caller->conn, type, fields, -1), WF_OK);
}

/* --- hellos
 * ------------------------------------------------------------------------------------------- */

static void newer_protocol(struct wf_frame_peer_hello *hello)
{
    hello->proto_min = hello->proto_max = 200;
}

static void another_job(struct wf_frame_peer_hello *hello)
{
    snprintf(hello->job, sizeof hello->job, "elsewhere");
}

static void another_rank(struct wf_frame_peer_hello *hello)
{
    hello->source_rank = 5;
}

static void another_life(struct wf_frame_peer_hello *hello)
{
    hello->source_incarnation++;
}

static void another_input(struct wf_frame_peer_hello *hello)
{
    hello->input.high++;
}

static void another_edge(struct wf_frame_peer_hello *hello)
{
    hello->edge.low++;
}

static void no_transport(struct wf_frame_peer_hello *hello)
{
    hello->transports[0] = '\0';
}

static void another_transport(struct wf_frame_peer_hello *hello)
{
    snprintf(hello->transports, sizeof hello->transports, "pigeon shmm");
}

static const struct {
    const char *name;
    void (*spoil)(struct wf_frame_peer_hello *hello);
    enum wf_status status;
    const char *says;
} hello_rows[] = {
    {"another protocol", newer_protocol, WF_PROTOCOL,
     "versions 200 to 200 are spoken there, 1 to 1 here"},
    {"another job", another_job, WF_REFUSED, "this is job \"stage\", not \"elsewhere\""},
    {"meant for another rank", another_rank, WF_REFUSED, "this is train rank 0, not 5"},
    {"meant for an earlier life", another_life, WF_STALE, "train rank 0 was restarted"},
    {"another input", another_input, WF_DISAGREE, "infer rank 0 planned from input"},
    {"another edge", another_edge, WF_DISAGREE, "infer rank 0 has edge hash"},
    {"no transport", no_transport, WF_UNSUPPORTED, "train rank 0 offers: shm"},
    {"another transport", another_transport, WF_UNSUPPORTED, "can read by: pigeon shmm"},
};

Test(sender, hellos_are_checked_before_regions_are_shown)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    for (size_t i = 0; i < sizeof hello_rows / sizeof hello_rows[0]; i++) {
        struct caller caller;
        call(&stage, &caller);
        struct wf_frame_peer_hello hello = good_hello(&stage);
        hello_rows[i].spoil(&hello);
        say(&caller, WF_FRAME_peer_hello, &hello);
        cr_assert(stage_run(&stage, is_closed, &caller), "%s", hello_rows[i].name);
        cr_assert(caller.is_refused, "%s", hello_rows[i].name);
        cr_assert_eq(caller.refused.status, hello_rows[i].status, "%s", hello_rows[i].name);
        cr_assert_not_null(strstr(caller.refused.text, hello_rows[i].says), "%s: %s",
                           hello_rows[i].name, caller.refused.text);
        cr_assert_eq(caller.regions, 0, "%s", hello_rows[i].name);
        hang_up(&caller);
    }
    stage_close(&stage);
}

Test(sender, one_reader_more_than_it_takes_is_refused)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct wf_sender *sender = stage_train(&stage, 0)->rank.sender;
    struct caller caller;
    uint32_t count = sender->peer_count;
    sender->peer_count = SENDER_PEERS_MAX;
    dial(&stage, &caller);
    cr_assert(stage_run(&stage, is_closed, &caller));
    cr_assert(caller.is_refused);
    cr_assert_eq(caller.refused.status, WF_AGAIN);
    cr_assert_not_null(strstr(caller.refused.text, "train rank 0 has 8192 connections"), "%s",
                       caller.refused.text);
    cr_assert_not(caller.challenged);
    sender->peer_count = count;
    hang_up(&caller);
    call(&stage, &caller);
    hang_up(&caller);
    stage_close(&stage);
}

Test(sender, a_good_hello_gets_the_regions)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct caller caller;
    call(&stage, &caller);
    struct wf_frame_peer_hello hello = good_hello(&stage);
    say(&caller, WF_FRAME_peer_hello, &hello);
    cr_assert(stage_run(&stage, has_regions, &caller));
    cr_assert_not(caller.is_refused);
    hang_up(&caller);
    stage_close(&stage);
}

Test(sender, a_hello_may_come_before_the_plan_that_knows_it)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct caller caller;
    call(&stage, &caller);
    struct wf_frame_peer_hello hello = good_hello(&stage);
    hello.incarnation = ++stage_infer(&stage, 0)->rank.incarnation;
    say(&caller, WF_FRAME_peer_hello, &hello);
    stage.epoch++;
    stage_plan(&stage);
    cr_assert(stage_run(&stage, has_regions, &caller));
    cr_assert_not(caller.is_refused);
    hang_up(&caller);
    stage_close(&stage);
}

/* --- strangers
 * ------------------------------------------------------------------------------------------ */

Test(sender, nonsense_ends_the_connection)
{
    static const struct {
        const char *name;
        enum wf_frame_type type;
    } rows[] = {{"a request before the hello", WF_FRAME_grant_request},
                {"a frame of the server", WF_FRAME_heartbeat},
                {"its own kind of frame", WF_FRAME_digest},
                {"bytes", WF_FRAME_TYPE_NONE}};
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct caller caller;
        const union {
            struct wf_frame_grant_request request;
            struct wf_frame_heartbeat heartbeat;
            struct wf_frame_digest digest;
        } zero = {0};
        call(&stage, &caller);
        if (rows[i].type != WF_FRAME_TYPE_NONE) {
            say(&caller, rows[i].type, &zero);
        } else {
            struct wf_env *env = caller.from->env;
            cr_assert_eq(env->ops->send(env, caller.conn, "GET / HTTP/1.0", 14, -1), WF_OK);
        }
        cr_assert(stage_run(&stage, is_closed, &caller), "%s", rows[i].name);
        cr_assert(caller.is_refused, "%s", rows[i].name);
        cr_assert_eq(caller.refused.status, WF_PROTOCOL, "%s", rows[i].name);
        hang_up(&caller);
    }
    cr_assert_eq(stage_train(&stage, 0)->rank.sender->peer_count, 1, "only the real reader stays");
    stage_close(&stage);
}

Test(sender, an_old_key_is_refused_and_a_current_one_served_on_one_connection)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct wf_round_key key = stage_key(&stage, 4, 2), old = stage_key(&stage, 4, 1);
    struct stage_rank *train = stage_train(&stage, 0);
    stage_send(train, wf_sender_actor(train->rank.sender), WF_LOCAL_GRANT, &key, 0);
    struct caller caller;
    call(&stage, &caller);
    struct wf_frame_peer_hello hello = good_hello(&stage);
    say(&caller, WF_FRAME_peer_hello, &hello);
    cr_assert(stage_run(&stage, has_regions, &caller));
    struct wf_frame_grant_request request = {.round = old};
    say(&caller, WF_FRAME_grant_request, &request);
    cr_assert(stage_run(&stage, was_refused, &caller));
    cr_assert_eq(caller.refused.status, WF_STALE);
    cr_assert(wf_round_key_equal(&caller.refused.round, &old));
    cr_assert_not_null(strstr(caller.refused.text, "attempt 1 of version 1.1.4"), "%s",
                       caller.refused.text);
    cr_assert_not(caller.closed);
    hang_up(&caller);
    stage_close(&stage);
}

static const struct sender_peer *only_peer(const struct wf_sender *sender)
{
    for (uint32_t i = 0; i < SENDER_BUCKETS; i++) {
        if (sender->peers[i] != NULL) {
            return sender->peers[i];
        }
    }
    return NULL;
}

static bool asks_for_step_2(void *user)
{
    const struct sender_peer *peer = only_peer(user);
    return peer != NULL && peer->asks_grant && peer->key.version.step == 2;
}

static bool asks_for_step_1(void *user)
{
    const struct sender_peer *peer = only_peer(user);
    return peer != NULL && peer->asks_grant && peer->key.version.step == 1;
}

Test(sender, an_older_version_may_be_granted_after_a_newer_one_was_revoked)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct stage_rank *train = stage_train(&stage, 0);
    struct wf_sender *sender = train->rank.sender;
    struct wf_round_key newer = stage_key(&stage, 2, 1), fill = stage_key(&stage, 1, 2);
    stage_send(train, wf_sender_actor(sender), WF_LOCAL_GRANT, &newer, 0);
    stage_send(train, wf_sender_actor(sender), WF_LOCAL_REVOKE, &newer, 0);
    struct stage_rank *infer = stage_infer(&stage, 0);
    uint64_t deadline_ns = infer->env->ops->now_ns(infer->env) + UINT64_C(15000000000);
    stage_send(infer, wf_receiver_actor(infer->rank.receiver), WF_LOCAL_READ, &fill, deadline_ns);
    cr_assert(stage_run(&stage, asks_for_step_1, sender)); /* asked before it is granted */
    stage_send(train, wf_sender_actor(sender), WF_LOCAL_GRANT, &fill, 0);
    struct wf_local_msg *done = stage_wait(&stage, infer, WF_LOCAL_READ_DONE);
    cr_assert_eq(done->status, WF_OK, "%s", done->error.text);
    stage_drop(done);
    stage_close(&stage);
}

Test(sender, each_round_waits_its_own_time)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct wf_sender *sender = stage_train(&stage, 0)->rank.sender;
    struct stage_rank *infer = stage_infer(&stage, 0);
    struct wf_actor *receiver = wf_receiver_actor(infer->rank.receiver);
    struct wf_round_key first = stage_key(&stage, 1, 1), second = stage_key(&stage, 2, 1);
    uint64_t deadline_ns = infer->env->ops->now_ns(infer->env) + UINT64_C(15000000000);
    stage_send(infer, receiver, WF_LOCAL_READ, &first, deadline_ns);
    cr_assert(stage_run(&stage, asks_for_step_1, sender));
    uint64_t due_ns = only_peer(sender)->timer.due_ns;
    stage_send(infer, receiver, WF_LOCAL_STOP, &first, 0);
    stage_send(infer, receiver, WF_LOCAL_READ, &second, deadline_ns);
    cr_assert(stage_run(&stage, asks_for_step_2, sender));
    cr_assert_gt(only_peer(sender)->timer.due_ns, due_ns);
    stage_close(&stage);
}

/* The policy is the job's, on both sides; the region of what is cast only train ranks have. */
Test(sender, more_regions_than_a_reader_can_be_told_of)
{
    static const struct {
        const char *name;
        enum wf_side side;
        uint32_t regions;
        uint64_t cast_bytes_max;
        bool refused;
    } rows[] = {
        {"train", WF_TRAIN, WF_REGIONS_MAX, 0, false},
        {"train, one more", WF_TRAIN, WF_REGIONS_MAX + 1, 0, true},
        {"train that casts", WF_TRAIN, WF_REGIONS_MAX - 1, 1, false},
        {"train that casts, one more", WF_TRAIN, WF_REGIONS_MAX, 1, true},
        {"infer where trainers cast", WF_INFER, WF_REGIONS_MAX, 1, false},
        {"infer, one more", WF_INFER, WF_REGIONS_MAX + 1, 1, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct stage stage;
        struct wf_error error = {0};
        struct wf_sender *sender = NULL;
        stage_open(&stage, &plain);
        struct wf_rank *rank = rows[i].side == WF_TRAIN ? &stage_train(&stage, 0)->rank
                                                        : &stage_infer(&stage, 0)->rank;
        struct wf_region *all = calloc(rows[i].regions, sizeof *all);
        struct wf_rank_options before = rank->options;
        for (uint32_t r = 0; r < rows[i].regions; r++) {
            all[r] = before.regions[0];
        }
        rank->options.regions = all;
        rank->options.region_count = rows[i].regions;
        rank->options.policy.cast_bytes_max = rows[i].cast_bytes_max;
        enum wf_status status = wf_sender_new(rank, &sender, &error);
        cr_expect_eq(status, rows[i].refused ? WF_NO_RESOURCE : WF_OK, "%s: %s", rows[i].name,
                     error.text);
        cr_expect_eq(strstr(error.text, "4097 regions") != NULL, rows[i].refused, "%s: %s",
                     rows[i].name, error.text);
        if (status == WF_OK) {
            wf_sender_close(sender);
            wf_sender_free(sender);
        }
        rank->options = before;
        free(all);
        stage_close(&stage);
    }
}

static bool shows_same(const struct wf_digest_box *a, const struct wf_digest_box *b)
{
    bool same = a->src_tensor == b->src_tensor && a->box->src_offset == b->box->src_offset &&
                a->box->elements == b->box->elements && a->box->axis_count == b->box->axis_count;
    for (uint32_t i = 0; same && i < a->box->axis_count; i++) {
        same = a->box->axes[i].count == b->box->axes[i].count &&
               a->box->axes[i].src_step == b->box->axes[i].src_step;
    }
    return same;
}

Test(sender, each_box_is_digested_once_for_all_engines)
{
    const struct stage_options options = {
        .train = "megatron:tp=1,pp=2", .infer = "vllm:tp=1,engines=4", .share_memory = true};
    struct stage stage;
    stage_open(&stage, &options);
    stage_plan(&stage);
    for (uint32_t r = 0; r < stage.train; r++) {
        const struct wf_sender *sender = stage_train(&stage, r)->rank.sender;
        const struct wf_digests *pool = sender->pool;
        uint32_t ops = 0;
        for (uint32_t i = 0; i < sender->agreed->plan->edge_count; i++) {
            const struct wf_edge *edge = &sender->agreed->plan->edges[i];
            ops += edge->src_rank == r ? edge->op_count : 0;
        }
        cr_assert_eq(ops, 4 * pool->op_count);
        for (uint32_t i = 0; i < pool->op_count; i++) {
            for (uint32_t k = 0; k < i; k++) {
                cr_assert_not(shows_same(&pool->boxes[i], &pool->boxes[k]), "boxes %u and %u", i,
                              k);
            }
        }
    }
    stage_close(&stage);
}

/* --- the end of a grant
 * ------------------------------------------------------------------------------ */

static bool is_digesting(void *user)
{
    return ((const struct wf_sender *)user)->digest_batch.active;
}

Test(sender, a_revoke_is_answered_when_no_digest_reads_the_weights)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct stage_rank *train = stage_train(&stage, 0);
    struct wf_sender *sender = train->rank.sender;
    for (uint64_t attempt = 1; attempt <= 20; attempt++) {
        struct wf_round_key key = stage_key(&stage, 1, attempt);
        stage_send(train, wf_sender_actor(sender), WF_LOCAL_GRANT, &key, 0);
        cr_assert(stage_run(&stage, is_digesting, sender));
        stage_send(train, wf_sender_actor(sender), WF_LOCAL_REVOKE, &key, 0);
        struct wf_local_msg *answer = stage_wait(&stage, train, WF_LOCAL_REVOKED);
        cr_assert_not_null(answer);
        cr_assert_not(sender->digest_batch.active, "attempt %llu", (unsigned long long)attempt);
        stage_drop(answer);
    }
    stage_close(&stage);
}

/* What the rank answers when it is asked for its sums, in that round. */
static struct wf_local_msg *ask_for_sums(struct stage *stage, const struct wf_round_key *key)
{
    struct stage_rank *train = stage_train(stage, 0);
    struct wf_local_msg *request = wf_local_msg_new(WF_LOCAL_REPLICAS, &train->client.actor);
    request->agreed = wf_agreed_hold(train->rank.sender->agreed);
    request->replicas.round = *key;
    wf_send(wf_sender_actor(train->rank.sender), &request->msg);
    struct wf_local_msg *answer = stage_wait(stage, train, WF_LOCAL_REPLICAS_DONE);
    cr_assert_not_null(answer);
    return answer;
}

/* An answer without sums would be taken for agreement. */
Test(sender, says_why_it_cannot_compare_and_tries_again_in_the_next_round)
{
    const struct stage_options two = {
        .train = "megatron:tp=2", .infer = "vllm:tp=1", .share_memory = true};
    struct stage stage;
    stage_open(&stage, &two);
    stage_plan(&stage);
    struct wf_sender *sender = stage_train(&stage, 0)->rank.sender;
    struct wf_round_key key = stage_key(&stage, 1, 1), next = stage_key(&stage, 2, 1);
    stage_send(stage_train(&stage, 0), wf_sender_actor(sender), WF_LOCAL_GRANT, &key, 0);
    struct wf_local_msg *answer = ask_for_sums(&stage, &key);
    cr_expect(answer->replicas.failed == 0 && answer->replicas.sums_count > 0);
    stage_drop(answer);
    wf_replicas_free(sender->replicas.made); /* as where memory was short */
    sender->replicas.made = NULL;
    sender->replicas.status = WF_NO_MEMORY;
    snprintf(sender->replicas.error.text, sizeof sender->replicas.error.text, "memory is short");
    answer = ask_for_sums(&stage, &key);
    cr_expect(answer->replicas.failed == 1 && answer->replicas.sums_count == 0);
    cr_expect_str_eq(answer->replicas.object, "memory is short");
    stage_drop(answer);
    stage_send(stage_train(&stage, 0), wf_sender_actor(sender), WF_LOCAL_GRANT, &next, 0);
    answer = ask_for_sums(&stage, &next);
    cr_expect(answer->replicas.failed == 0 && answer->replicas.sums_count > 0);
    stage_drop(answer);
    stage_close(&stage);
}

/* The parts of a rank are freed one after the other: what goes back to a part that is gone would be
 * a write to freed memory (a rank that ends because it cannot plan did so). */
Test(sender, messages_between_parts_never_go_back)
{
    struct wf_actor somebody;
    struct wf_local_msg *msg = wf_local_msg_new(WF_LOCAL_PLANNED, &somebody);
    cr_expect_null(msg->msg.from);
    msg->msg.release(&msg->msg);
}
