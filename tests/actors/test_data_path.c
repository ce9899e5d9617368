/* test_data_path.c - a version's way from trainers' memory to engines' memory, and all that may
 * stop it: with real connections and shared memory, without a server. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "actors/receiver.h"
#include "actors/sender.h"
#include "tests/actors/stage.h"
#include "tests/runtime/descriptors.h"

static const struct stage_options plain = {
    .train = "megatron:tp=2", .infer = "vllm:tp=2", .share_memory = true};

static const uint64_t ms_ns = 1000 * 1000;

static uint64_t in_ms(const struct stage_rank *rank, uint64_t ms)
{
    return rank->env->ops->now_ns(rank->env) + ms * ms_ns;
}

static void grant(struct stage *stage, uint32_t rank, const struct wf_round_key *key)
{
    struct stage_rank *train = stage_train(stage, rank);
    stage_send(train, wf_sender_actor(train->rank.sender), WF_LOCAL_GRANT, key, 0);
}

static void read_version(struct stage *stage, uint32_t rank, const struct wf_round_key *key,
                         uint64_t ms)
{
    struct stage_rank *infer = stage_infer(stage, rank);
    stage_send(infer, wf_receiver_actor(infer->rank.receiver), WF_LOCAL_READ, key,
               in_ms(infer, ms));
}

static struct wf_local_msg *read_done(struct stage *stage, uint32_t rank)
{
    struct wf_local_msg *answer = stage_wait(stage, stage_infer(stage, rank), WF_LOCAL_READ_DONE);
    cr_assert_not_null(answer);
    return answer;
}

/* --- versions arrive
 * ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    struct stage_options options;
} way_rows[] = {
    {"mapped", {.train = "megatron:tp=2", .infer = "vllm:tp=2", .share_memory = true}},
    {"process memory", {.train = "megatron:tp=2", .infer = "vllm:tp=2", .share_memory = false}},
    {"pipeline to two engines",
     {.train = "megatron:tp=1,pp=2", .infer = "vllm:tp=1,engines=2", .share_memory = true}},
    {"uneven sizes",
     {.train = "megatron:tp=2,pp=2", .infer = "vllm:tp=1,engines=3", .share_memory = true}},
    {"in place",
     {.train = "megatron:tp=2,pp=2",
      .infer = "vllm:tp=1,engines=3",
      .share_memory = true,
      .mode = WF_MODE_IN_PLACE}},
    {"in place, process memory",
     {.train = "megatron:tp=2", .infer = "vllm:tp=2", .mode = WF_MODE_IN_PLACE}},
};

Test(data_path, versions_arrive_whole)
{
    for (size_t i = 0; i < sizeof way_rows / sizeof way_rows[0]; i++) {
        struct stage stage;
        stage_open(&stage, &way_rows[i].options);
        stage_plan(&stage);
        for (uint64_t version = 1; version <= 3; version++) {
            struct wf_round_key key = stage_key(&stage, version, 1);
            stage_step(&stage, version);
            stage_transfer(&stage, &key);
            cr_assert_eq(stage_live_is_right(&stage), way_rows[i].options.mode == WF_MODE_IN_PLACE,
                         "%s: live memory before the flip", way_rows[i].name);
            stage_flip(&stage, &key);
            cr_assert(stage_live_is_right(&stage), "%s: version %llu", way_rows[i].name,
                      (unsigned long long)version);
        }
        stage_close(&stage);
    }
}

Test(data_path, in_place_says_whether_it_wrote_and_needs_no_staging)
{
    struct stage_options options = plain;
    options.mode = WF_MODE_IN_PLACE;
    struct stage stage;
    stage_open(&stage, &options);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct stage_rank *rank = stage_infer(&stage, 0);
    cr_assert_null(rank->rank.receiver->staging.address);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    memset(rank->memory.address, 0x77, rank->memory.len_bytes);
    for (int granted = 0; granted < 2; granted++) {
        key.attempt = 1 + (uint64_t)granted;
        for (uint32_t i = 0; i < stage.train && granted; i++) {
            grant(&stage, i, &key);
        }
        read_version(&stage, 0, &key, 15000);
        if (granted) { /* nobody grants the first */
            struct wf_local_msg *done = read_done(&stage, 0);
            cr_assert_eq(done->status, WF_OK, "%s", done->error.text);
            stage_drop(done);
        }
        stage_send(rank, wf_receiver_actor(rank->rank.receiver), WF_LOCAL_STOP, &key, 0);
        struct wf_local_msg *stopped = stage_wait(&stage, rank, WF_LOCAL_STOPPED);
        cr_assert_not_null(stopped);
        cr_assert_eq(stopped->wrote, granted);
        stage_drop(stopped);
        cr_assert_eq(*(const uint8_t *)rank->memory.address == 0x77, !granted);
    }
    stage_close(&stage);
}

Test(data_path, the_answer_has_the_numbers)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    grant(&stage, 0, &key);
    grant(&stage, 1, &key);
    read_version(&stage, 0, &key, 15000);
    struct wf_local_msg *done = read_done(&stage, 0);
    cr_assert_eq(done->status, WF_OK, "%s", done->error.text);
    cr_assert(wf_round_key_equal(&done->round, &key));
    uint64_t bytes = 0;
    const struct wf_receiver *receiver = stage_infer(&stage, 0)->rank.receiver;
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        bytes += receiver->sources[i]->edge->bytes;
    }
    cr_assert_eq(done->bytes, bytes);
    cr_assert_eq(done->transport_count, 1);
    cr_assert_str_eq(done->transports[0].name, "shm");
    cr_assert_eq(done->transports[0].edges, receiver->source_count);
    cr_assert_eq(done->transports[0].bytes, bytes);
    stage_drop(done);
    stage_close(&stage);
}

Test(data_path, a_snapshot_stays_while_training_goes_on)
{
    struct stage_options options = plain;
    options.publish = WF_PUBLISH_SNAPSHOT;
    struct stage stage;
    stage_open(&stage, &options);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    stage_snapshot(&stage, &key);
    stage_step(&stage, 2); /* the next step overwrites the weights */
    stage_transfer(&stage, &key);
    stage_flip(&stage, &key);
    cr_assert_not(stage_live_is_right(&stage), "that is version 2");
    stage_step(&stage, 1);
    cr_assert(stage_live_is_right(&stage));
    stage_close(&stage);
}

/* --- what stops a version
 * --------------------------------------------------------------------------------- */

static bool is_validating(void *user)
{
    return ((const struct wf_receiver *)user)->phase == RECEIVER_VALIDATING;
}

Test(data_path, a_byte_that_changed_in_staging_is_named)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    grant(&stage, 0, &key);
    grant(&stage, 1, &key);
    read_version(&stage, 0, &key, 15000);
    struct wf_receiver *receiver = stage_infer(&stage, 0)->rank.receiver;
    cr_assert(stage_run(&stage, is_validating, receiver));
    const struct receiver_source *source = receiver->sources[0];
    const struct wf_op *op = &source->edge->ops[source->edge->op_count - 1];
    ((uint8_t *)receiver->staged_at[op->dst_tensor])[op->box.dst_offset] ^= 0x10;
    struct wf_local_msg *done = read_done(&stage, 0);
    cr_assert_eq(done->status, WF_DIGEST, "%s", done->error.text);
    cr_assert_eq(done->digest_mismatches, 1);
    cr_assert_eq(done->culprit.side, WF_TRAIN);
    cr_assert_eq(done->culprit.rank, source->peer.rank);
    char object[WF_OBJECT_MAX];
    snprintf(object, sizeof object, "chunk 0 of box %u of %s", source->edge->op_count - 1,
             stage.model->params[op->param].name);
    cr_assert_str_eq(done->culprit.object, object);
    cr_assert_not_null(strstr(done->culprit.reason, object), "%s", done->culprit.reason);
    cr_assert_not_null(strstr(done->culprit.reason, "1.1.1"), "%s", done->culprit.reason);
    stage_drop(done);
    struct stage_rank *rank = stage_infer(&stage, 0);
    stage_send(rank, wf_receiver_actor(receiver), WF_LOCAL_FLIP, &key, 0);
    struct wf_local_msg *flipped = stage_wait(&stage, rank, WF_LOCAL_FLIPPED);
    cr_assert_eq(flipped->status, WF_REFUSED);
    stage_drop(flipped);
    key.attempt = 2;
    stage_transfer(&stage, &key);
    stage_flip(&stage, &key);
    cr_assert(stage_live_is_right(&stage));
    stage_close(&stage);
}

Test(data_path, an_older_round_is_refused)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct wf_round_key old = stage_key(&stage, 1, 1), newer = stage_key(&stage, 2, 1);
    grant(&stage, 0, &newer);
    grant(&stage, 1, &newer);
    read_version(&stage, 0, &old, 15000);
    struct wf_local_msg *done = read_done(&stage, 0);
    cr_assert_eq(done->status, WF_STALE, "%s", done->error.text);
    cr_assert_not_null(strstr(done->error.text, "train rank"), "%s", done->error.text);
    cr_assert_not_null(strstr(done->error.text, "version 1.1.1"), "%s", done->error.text);
    stage_drop(done);
    stage_close(&stage);
}

Test(data_path, a_revoked_round_is_refused)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    for (uint32_t i = 0; i < stage.train; i++) {
        struct stage_rank *rank = stage_train(&stage, i);
        grant(&stage, i, &key);
        stage_send(rank, wf_sender_actor(rank->rank.sender), WF_LOCAL_REVOKE, &key, 0);
    }
    read_version(&stage, 1, &key, 15000);
    struct wf_local_msg *done = read_done(&stage, 1);
    cr_assert_eq(done->status, WF_STALE, "%s", done->error.text);
    stage_drop(done);
    stage_close(&stage);
}

static bool sources_are_ready(void *user)
{
    const struct wf_receiver *receiver = user;
    bool ready = receiver->source_count > 0;
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        ready = ready && receiver->sources[i]->state == SOURCE_READY;
    }
    return ready;
}

Test(data_path, a_grant_that_does_not_come_is_named)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    grant(&stage, 0, &key);
    cr_assert(stage_run(&stage, sources_are_ready, stage_infer(&stage, 0)->rank.receiver));
    read_version(&stage, 0, &key, 1000);
    struct wf_local_msg *done = read_done(&stage, 0);
    cr_assert_eq(done->status, WF_TIMED_OUT, "%s", done->error.text);
    cr_assert_str_eq(
        done->error.text,
        "train rank 1 (host here) did not grant version 1.1.1 to infer rank 0 within 1 s");
    cr_assert_str_eq(done->culprit.host, "here");
    stage_drop(done);
    stage_close(&stage);
}

Test(data_path, a_late_grant_is_enough)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    stage_step(&stage, 7);
    struct wf_round_key key = stage_key(&stage, 7, 1);
    read_version(&stage, 0, &key, 15000);
    read_version(&stage, 1, &key, 15000);
    grant(&stage, 1, &key);
    grant(&stage, 0, &key);
    for (uint32_t i = 0; i < 2; i++) {
        struct wf_local_msg *done = read_done(&stage, i);
        cr_assert_eq(done->status, WF_OK, "%s", done->error.text);
        stage_drop(done);
    }
    stage_flip(&stage, &key);
    cr_assert(stage_live_is_right(&stage));
    stage_close(&stage);
}

Test(data_path, a_wrong_edge_hash_is_a_disagreement)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct stage_rank *rank = stage_infer(&stage, 0);
    struct wf_receiver *receiver = rank->rank.receiver;
    /* The plan that this reader made is another one, though from the same input. */
    struct wf_agreed *agreed = wf_agreed_hold(receiver->agreed);
    for (uint32_t i = 0; i < agreed->plan->edge_count; i++) {
        agreed->plan->edges[i].hash.low ^= 1;
    }
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        receiver_source_lose(receiver->sources[i], WF_CLOSED, "test");
    }
    struct wf_round_key key = stage_key(&stage, 1, 1);
    grant(&stage, 0, &key);
    grant(&stage, 1, &key);
    read_version(&stage, 0, &key, 15000);
    struct wf_local_msg *done = read_done(&stage, 0);
    cr_assert_eq(done->status, WF_REFUSED, "%s", done->error.text);
    cr_assert_not_null(strstr(done->error.text, "infer rank 0 has edge hash"), "%s",
                       done->error.text);
    stage_drop(done);
    wf_agreed_release(agreed);
    stage_close(&stage);
}

Test(data_path, a_restarted_source_is_found_again)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    stage_transfer(&stage, &key);
    key = stage_key(&stage, 2, 1);
    read_version(&stage, 0, &key, 15000); /* asked, not granted */
    struct wf_receiver *receiver = stage_infer(&stage, 0)->rank.receiver;
    uint64_t before = stage_train(&stage, 1)->rank.incarnation;
    for (int i = 0; i < 50; i++) {
        wf_loop_turn(stage_infer(&stage, 0)->rank.loop);
    }
    cr_assert_eq(receiver->phase, RECEIVER_READING);
    stage_restart(&stage, 1, &plain);
    cr_assert_neq(before, stage_train(&stage, 1)->rank.incarnation);
    struct wf_local_msg *done = read_done(&stage, 0);
    cr_assert_eq(done->status, WF_PEER_LOST, "%s", done->error.text);
    cr_assert_eq(done->culprit.rank, 1);
    cr_assert_not_null(strstr(done->error.text, "train rank 1 (host here)"), "%s",
                       done->error.text);
    stage_drop(done);
    stage.epoch++;
    stage_plan(&stage);
    stage_step(&stage, 3);
    key = stage_key(&stage, 3, 1);
    stage_transfer(&stage, &key);
    stage_flip(&stage, &key);
    cr_assert(stage_live_is_right(&stage));
    stage_close(&stage);
}

static void stop(struct stage *stage, const struct wf_round_key *key)
{
    struct stage_rank *rank = stage_infer(stage, 0);
    stage_send(rank, wf_receiver_actor(rank->rank.receiver), WF_LOCAL_STOP, key, 0);
    struct wf_local_msg *stopped = stage_wait(stage, rank, WF_LOCAL_STOPPED);
    cr_assert_not_null(stopped);
    cr_assert(wf_round_key_equal(&stopped->round, key));
    cr_assert_eq(rank->rank.receiver->open_reads, 0);
    cr_assert_eq(rank->rank.receiver->phase, RECEIVER_IDLE);
    cr_assert_not(rank->rank.receiver->staged);
    cr_assert_eq(rank->client.answer_count, 0, "a stopped read is answered by STOPPED alone");
    stage_drop(stopped);
}

static bool has_open_read(void *user)
{
    return ((const struct wf_receiver *)user)->open_reads > 0;
}

Test(data_path, stop_is_a_barrier)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    stop(&stage, &key); /* nothing to stop */
    read_version(&stage, 0, &key, 15000);
    stop(&stage, &key); /* before the grant */
    key = stage_key(&stage, 1, 2);
    grant(&stage, 0, &key);
    grant(&stage, 1, &key);
    read_version(&stage, 0, &key, 15000);
    struct wf_receiver *receiver = stage_infer(&stage, 0)->rank.receiver;
    cr_assert(stage_run(&stage, has_open_read, receiver));
    stop(&stage, &key); /* in the middle */
    key = stage_key(&stage, 1, 3);
    stage_step(&stage, 5);
    stage_transfer(&stage, &key);
    stop(&stage, &key); /* staged: dropped */
    struct stage_rank *rank = stage_infer(&stage, 0);
    stage_send(rank, wf_receiver_actor(receiver), WF_LOCAL_FLIP, &key, 0);
    struct wf_local_msg *flipped = stage_wait(&stage, rank, WF_LOCAL_FLIPPED);
    cr_assert_eq(flipped->status, WF_REFUSED);
    stage_drop(flipped);
    stage_close(&stage);
}

Test(data_path, a_rank_with_another_layout_is_named)
{
    struct stage stage;
    stage_open(&stage, &plain);
    struct stage_rank *rank = stage_infer(&stage, 1);
    stage_send_plan(&stage, rank, 1);
    struct wf_local_msg *planned = stage_wait(&stage, rank, WF_LOCAL_PLANNED);
    cr_assert_eq(planned->status, WF_DISAGREE);
    cr_assert_not_null(strstr(planned->error.text, "train rank 1 (host here) has another input"),
                       "%s", planned->error.text);
    cr_assert_eq(planned->round.epoch, stage.epoch);
    stage_drop(planned);
    stage_close(&stage);
}

/* --- nothing leaks
 * ------------------------------------------------------------------------------------------- */

static unsigned count_maps(void)
{
    unsigned count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    cr_assert_not_null(maps);
    while (fgets(line, sizeof line, maps) != NULL) {
        count += strstr(line, "memfd:") != NULL;
    }
    fclose(maps);
    return count;
}

Test(data_path, two_hundred_rounds_keep_descriptors_and_mappings)
{
    struct stage stage;
    stage_open(&stage, &plain);
    stage_plan(&stage);
    unsigned fds = 0, maps = 0;
    for (uint64_t version = 1; version <= 200; version++) {
        struct wf_round_key key = stage_key(&stage, version, 1);
        if (version % 20 == 0) { /* connections break now and then */
            struct wf_receiver *receiver = stage_infer(&stage, 0)->rank.receiver;
            receiver_source_lose(receiver->sources[version / 20 % 2], WF_CONNECTION, "test");
        }
        stage_transfer(&stage, &key);
        stage_flip(&stage, &key);
        if (version == 5) {
            fds = open_descriptors();
            maps = count_maps();
        }
    }
    cr_assert_eq(open_descriptors(), fds);
    cr_assert_eq(count_maps(), maps);
    stage_close(&stage);
}
