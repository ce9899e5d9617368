/* test_sender_casts.c - what a plan has a train rank cast once: readers get it from there, the same
 * values as without it; a wrong one is found; its memory lasts; its places wait for a snapshot.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "actors/sender.h"
#include "tests/actors/stage.h"
#include "transports/memory.h"

static const char dense[] =
    "{\"model_type\": \"qwen3\", \"hidden_size\": 256, \"num_hidden_layers\": 2, "
    "\"vocab_size\": 100, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 128, \"intermediate_size\": 512, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\"}";

#define POLICY(bytes)           \
    {                           \
        .cast_bytes_max = bytes \
    }
#define ALL POLICY(UINT64_C(1) << 30)

/* `made`: tensors that some rank casts ahead are expected. */
static const struct {
    const char *name;
    bool made;
    struct stage_options options;
} rows[] = {
    {"held",
     true,
     {.train = "megatron:tp=2,dtype=f32",
      .infer = "vllm:tp=1,engines=3",
      .policy = ALL,
      .share_memory = true}},
    {"snapshots",
     true,
     {.train = "fsdp:dp=2,dtype=f32",
      .infer = "sglang:tp=2,engines=2",
      .policy = ALL,
      .publish = WF_PUBLISH_SNAPSHOT}},
    {"in place, half of them",
     true,
     {.train = "megatron:tp=2,dtype=f32",
      .infer = "vllm:tp=2,engines=2",
      .policy = POLICY(100000),
      .share_memory = true,
      .mode = WF_MODE_IN_PLACE}},
    {"beside codes",
     true,
     {.train = "megatron:tp=2,dtype=f32",
      .infer = "vllm:tp=1,engines=3,quant=vllm",
      .config = dense,
      .policy = ALL,
      .share_memory = true}},
    {"one reader",
     false,
     {.train = "megatron:tp=2,dtype=f32",
      .infer = "vllm:tp=1",
      .policy = ALL,
      .share_memory = true}},
    {"no budget",
     false,
     {.train = "megatron:tp=2,dtype=f32", .infer = "vllm:tp=1,engines=3", .share_memory = true}},
};
#define ROWS (sizeof rows / sizeof rows[0])

Test(sender_casts, the_same_values_arrive)
{
    for (size_t i = 0; i < ROWS; i++) {
        struct stage stage;
        stage_open(&stage, &rows[i].options);
        stage_plan(&stage);
        bool made = false;
        for (uint32_t r = 0; r < stage.train; r++) {
            made = made || stage_train(&stage, r)->rank.sender->cast_count > 0;
        }
        cr_expect_eq(made, rows[i].made, "%s", rows[i].name);
        for (uint64_t version = 1; version <= 2; version++) {
            struct wf_round_key key = stage_key(&stage, version, 1);
            stage_step(&stage, version);
            if (rows[i].options.publish == WF_PUBLISH_SNAPSHOT) {
                stage_snapshot(&stage, &key);
            }
            stage_transfer(&stage, &key);
            stage_flip(&stage, &key);
            cr_expect(stage_live_is_right(&stage), "%s, version %d", rows[i].name, (int)version);
        }
        stage_close(&stage);
    }
}

static bool is_digested(void *user)
{
    const struct wf_sender *sender = user;
    return sender->granted && sender->digested;
}

static void grant(struct stage *stage, const struct wf_round_key *key)
{
    for (uint32_t r = 0; r < stage->train; r++) {
        struct stage_rank *train = stage_train(stage, r);
        stage_send(train, wf_sender_actor(train->rank.sender), WF_LOCAL_GRANT, key, 0);
        while (!wf_round_key_equal(&train->rank.sender->round, key)) {
            wf_loop_turn(train->rank.loop);
        }
        cr_assert(stage_run(stage, is_digested, train->rank.sender));
    }
}

/* The origin digests what it holds, not what it made of that. */
Test(sender_casts, a_wrong_one_is_found)
{
    struct stage stage;
    stage_open(&stage, &rows[0].options);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    grant(&stage, &key);
    struct wf_rank *source = &stage_train(&stage, 0)->rank;
    uint8_t *made = source->sender->slots[0].tensors[wf_rank_source(source)->tensor_count];
    made[0] ^= 0x40;
    struct stage_rank *rank = stage_infer(&stage, 0);
    stage_send(rank, wf_receiver_actor(rank->rank.receiver), WF_LOCAL_READ, &key,
               rank->env->ops->now_ns(rank->env) + UINT64_C(5000000000));
    struct wf_local_msg *done = stage_wait(&stage, rank, WF_LOCAL_READ_DONE);
    cr_assert_not_null(done);
    cr_expect_eq(done->status, WF_DIGEST, "%s: %s", wf_status_name(done->status), done->error.text);
    stage_drop(done);
    stage_close(&stage);
}

/* One engine comes back: the plan is the same, and so is the memory that the others have mapped. */
Test(sender_casts, memory_lasts)
{
    struct stage stage;
    stage_open(&stage, &rows[0].options);
    stage_plan(&stage);
    const struct wf_sender *sender = stage_train(&stage, 0)->rank.sender;
    const void *before = sender->cast_memory->slots[0].address;
    stage_restart(&stage, stage.train, &rows[0].options);
    stage_plan(&stage);
    cr_expect_eq(sender->cast_memory->slots[0].address, before);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    stage_step(&stage, 1);
    stage_transfer(&stage, &key);
    stage_flip(&stage, &key);
    cr_expect(stage_live_is_right(&stage));
    stage_close(&stage);
}

/* They stand before the library's: whether memory is unmapped by who calls, or by a job. */
static pthread_t loop_thread;
static const void *watched;
static _Atomic bool given_back, by_loop;
void __real_wf_memory_free(struct wf_region *region);
void __wrap_wf_memory_free(struct wf_region *region);
void __wrap_wf_memory_free(struct wf_region *region)
{
    if (watched != NULL && region->address == watched) {
        given_back = true;
        by_loop = pthread_equal(pthread_self(), loop_thread) != 0;
    }
    __real_wf_memory_free(region);
}

void __real_wf_memory_retire(struct wf_env *env, struct wf_region *region);
void __wrap_wf_memory_retire(struct wf_env *env, struct wf_region *region);
void __wrap_wf_memory_retire(struct wf_env *env, struct wf_region *region)
{
    given_back = given_back || (watched != NULL && region->address == watched);
    __real_wf_memory_retire(env, region);
}

static bool is_given_back(void *user)
{
    (void)user;
    return given_back;
}

/* A plan that casts more needs larger memory: the one of before is let go of by the loop, and
 * unmapped elsewhere. */
Test(sender_casts, memory_is_given_back_off_the_loop)
{
    const struct wf_plan_policy less = POLICY(100000), more = ALL;
    struct stage_options options = rows[0].options;
    struct stage stage;
    options.policy = less;
    stage_open(&stage, &options);
    stage_plan(&stage);
    const struct wf_sender *sender = stage_train(&stage, 0)->rank.sender;
    const struct wf_cast_memory *before = sender->cast_memory;
    loop_thread = pthread_self();
    watched = before->slots[0].address;
    for (uint32_t r = 0; r < stage.train + stage.infer; r++) {
        stage.ranks[r].rank.options.policy = more;
    }
    stage_plan(&stage);
    cr_assert_neq(sender->cast_memory, before, "the larger plan fits into the old memory");
    cr_assert(stage_run(&stage, is_given_back, NULL), "it is never given back");
    watched = NULL;
    cr_expect_not(by_loop, "the loop unmapped it");
    stage_close(&stage);
}

/* Holds the only thread of a rank's pool until a byte comes. */
struct gate {
    struct wf_job job;
    int fds[2];
};

static void wait_for_byte(struct wf_job *job)
{
    struct gate *gate = WF_CONTAINER(job, struct gate, job);
    char byte;
    WF_ASSERT(read(gate->fds[0], &byte, 1) == 1);
}

static void close_gate(struct gate *gate, struct stage_rank *rank)
{
    *gate = (struct gate){.job = {.done = {.kind = WF_LOCAL_PLAN},
                                  .owner = wf_sender_actor(rank->rank.sender),
                                  .work = wait_for_byte,
                                  .name = "gate"}};
    cr_assert_eq(pipe(gate->fds), 0);
    rank->env->ops->job(rank->env, &gate->job);
}

static void open_gate(struct gate *gate)
{
    cr_assert_eq(write(gate->fds[1], "", 1), 1);
}

/* As the Planner would. NULL: there is no plan any more. */
static void send_planned(struct stage_rank *rank, struct wf_agreed *agreed)
{
    struct wf_local_msg *msg = wf_local_msg_new(WF_LOCAL_PLANNED, NULL);
    msg->status = agreed != NULL ? WF_OK : WF_AGAIN;
    msg->agreed = agreed != NULL ? wf_agreed_hold(agreed) : NULL;
    wf_send(wf_sender_actor(rank->rank.sender), &msg->msg);
    while (wf_loop_turn(rank->rank.loop)) {
    }
}

/* A plan comes while the pool copies: the tables that the copy's jobs read stay where they are. */
Test(sender_casts, a_plan_waits_for_the_snapshot)
{
    struct stage stage;
    stage_open(&stage, &rows[1].options);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    struct stage_rank *train = stage_train(&stage, 0);
    struct wf_sender *sender = train->rank.sender;
    struct wf_agreed *agreed = wf_agreed_hold(sender->agreed);
    send_planned(train, NULL);
    cr_assert_eq(sender->cast_count, 0);
    struct gate gate;
    close_gate(&gate, train);
    stage_send(train, wf_sender_actor(sender), WF_LOCAL_SNAPSHOT, &key, 0);
    send_planned(train, agreed);
    cr_assert(sender->copy_batch.active);
    cr_expect_eq(sender->cast_count, 0, "the tables were made anew while jobs read them");
    open_gate(&gate);
    struct wf_local_msg *answer = stage_wait(&stage, train, WF_LOCAL_SNAPSHOT_DONE);
    cr_assert(answer != NULL && answer->status == WF_OK);
    stage_drop(answer);
    cr_expect(sender->agreed == agreed && sender->cast_count > 0);
    wf_agreed_release(agreed);
    stage_snapshot(&stage, &key);
    stage_transfer(&stage, &key);
    stage_flip(&stage, &key);
    cr_expect(stage_live_is_right(&stage));
    stage_close(&stage);
    close(gate.fds[0]);
    close(gate.fds[1]);
}
