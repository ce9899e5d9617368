/* test_prepare.c - a Sender makes codes, scales and norms before it answers readers: once a version
 * and slot, only what is read, and never from weights that are the trainer's own again. */
#include <criterion/criterion.h>
#include <string.h>

#include "actors/sender.h"
#include "tests/actors/stage.h"

static const char dense[] =
    "{\"model_type\": \"qwen3\", \"hidden_size\": 256, \"num_hidden_layers\": 2, "
    "\"vocab_size\": 100, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 128, \"intermediate_size\": 512, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\"}";
static const char delta[] =
    "{\"model_type\": \"qwen3_next\", \"hidden_size\": 16, \"num_hidden_layers\": 4, "
    "\"vocab_size\": 64, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 4, "
    "\"intermediate_size\": 32, \"num_experts\": 4, \"num_experts_per_tok\": 2, "
    "\"moe_intermediate_size\": 8, \"shared_expert_intermediate_size\": 8, "
    "\"decoder_sparse_step\": 1, \"mlp_only_layers\": [], \"full_attention_interval\": 4, "
    "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 4, "
    "\"linear_value_head_dim\": 4, \"linear_conv_kernel_dim\": 4, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\"}";

static const struct {
    const char *name;
    struct stage_options options;
} rows[] = {
    {"codes, held",
     {.train = "megatron:tp=2",
      .infer = "vllm:tp=1,quant=vllm",
      .config = dense,
      .share_memory = true}},
    {"codes of chunks",
     {.train = "fsdp:dp=2",
      .infer = "sglang:tp=1,quant=deepseek",
      .config = dense,
      .share_memory = true}},
    {"codes of snapshots",
     {.train = "megatron:tp=1,dp=2",
      .infer = "vllm:tp=2,quant=vllm_ue8m0",
      .config = dense,
      .share_memory = true,
      .publish = WF_PUBLISH_SNAPSHOT}},
    {"norms, held",
     {.train = "megatron:tp=2", .infer = "vllm:tp=1", .config = delta, .share_memory = true}},
    {"norms of snapshots, not shared",
     {.train = "megatron:tp=1,pp=2",
      .infer = "sglang:tp=2",
      .config = delta,
      .publish = WF_PUBLISH_SNAPSHOT}},
};
#define ROWS (sizeof rows / sizeof rows[0])

Test(prepare, what_arrives_is_what_the_rule_makes)
{
    for (size_t i = 0; i < ROWS; i++) {
        struct stage stage;
        stage_open(&stage, &rows[i].options);
        stage_plan(&stage);
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

/* --- how often, and how much --------------------------------------------------------------------
 */

static bool is_digested(void *user)
{
    const struct wf_sender *sender = user;
    return sender->granted && sender->digested;
}

/* Grants and waits until there is nothing left to do for it. */
static void grant(struct stage *stage, struct stage_rank *train, uint64_t version, uint64_t attempt)
{
    struct wf_round_key key = stage_key(stage, version, attempt);
    stage_send(train, wf_sender_actor(train->rank.sender), WF_LOCAL_GRANT, &key, 0);
    while (!wf_round_key_equal(&train->rank.sender->round, &key)) {
        wf_loop_turn(train->rank.loop);
    }
    cr_assert(stage_run(stage, is_digested, train->rank.sender));
}

/* A prepared tensor whose item is needed, or 0. */
static uint32_t find_made(const struct wf_sender *sender)
{
    uint32_t first, end;
    cr_assert_gt(sender->needed_count, 0);
    wf_prepare_item_tensors(sender->rank->prepare, sender->needed[0], &first, &end);
    return first;
}

Test(prepare, once_a_version)
{
    struct stage stage;
    stage_open(&stage, &rows[0].options);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct stage_rank *train = stage_train(&stage, 0);
    struct wf_sender *sender = train->rank.sender;
    grant(&stage, train, 1, 1);
    uint32_t tensor = find_made(sender);
    uint8_t *made = sender->slots[0].tensors[tensor], before = made[0];
    made[0] ^= 0xff; /* a mark: whoever makes it again wipes it away */
    grant(&stage, train, 1, 2);
    cr_expect_eq(made[0], (uint8_t)(before ^ 0xff), "a second attempt made it again");
    grant(&stage, train, 2, 1);
    cr_expect_eq(made[0], before, "another version did not");
    stage_close(&stage);
}

Test(prepare, only_what_an_op_reads)
{
    const struct stage_options copies = {
        .train = "megatron:tp=1,dp=2", .infer = "vllm:tp=1,quant=vllm", .config = dense};
    struct stage stage;
    stage_open(&stage, &copies);
    stage_plan(&stage);
    uint32_t needed = 0, items = 0;
    for (uint32_t r = 0; r < stage.train; r++) {
        const struct wf_sender *sender = stage_train(&stage, r)->rank.sender;
        items = wf_prepare_item_count(sender->rank->prepare);
        cr_expect(sender->needed_count > 0 && sender->needed_count < items, "rank %u: %u of %u", r,
                  sender->needed_count, items);
        needed += sender->needed_count;
    }
    cr_expect_geq(needed, items);
    cr_expect_lt(needed, 2 * items);
    stage_close(&stage);
}

/* --- the end of a grant -------------------------------------------------------------------------
 */

static bool is_preparing(void *user)
{
    return ((const struct wf_sender *)user)->prepare_batch.active;
}

Test(prepare, a_revoke_is_answered_when_nothing_reads_the_weights)
{
    struct stage stage;
    stage_open(&stage, &rows[0].options);
    stage_plan(&stage);
    struct stage_rank *train = stage_train(&stage, 0);
    struct wf_sender *sender = train->rank.sender;
    for (uint64_t version = 1; version <= 10; version++) {
        struct wf_round_key key = stage_key(&stage, version, 1);
        stage_send(train, wf_sender_actor(sender), WF_LOCAL_GRANT, &key, 0);
        cr_assert(stage_run(&stage, is_preparing, sender));
        stage_send(train, wf_sender_actor(sender), WF_LOCAL_REVOKE, &key, 0);
        struct wf_local_msg *answer = stage_wait(&stage, train, WF_LOCAL_REVOKED);
        cr_assert_not_null(answer);
        cr_assert_not(sender_is_working(sender), "version %llu", (unsigned long long)version);
        stage_drop(answer);
    }
    grant(&stage, train, 10, 2); /* makes what the last one did not come to */
    stage_close(&stage);
}

/* Never both at once: the copy would change what is read. */
static bool is_copied(void *user)
{
    const struct wf_sender *sender = user;
    cr_assert_not(sender->copy_batch.active && sender_is_working(sender));
    return sender->slots[0].made_of.step == 0 && sender->snapshot == NULL;
}

Test(prepare, a_snapshot_waits_for_what_is_made_of_its_slot)
{
    struct stage stage;
    stage_open(&stage, &rows[2].options);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct stage_rank *train = stage_train(&stage, 0);
    struct wf_sender *sender = train->rank.sender;
    struct wf_round_key first = stage_key(&stage, 1, 1), second = stage_key(&stage, 2, 1);
    stage_snapshot(&stage, &first);
    stage_send(train, wf_sender_actor(sender), WF_LOCAL_GRANT, &first, 0);
    cr_assert(stage_run(&stage, is_preparing, sender));
    stage_send(train, wf_sender_actor(sender), WF_LOCAL_REVOKE, &first, 0);
    stage_send(train, wf_sender_actor(sender), WF_LOCAL_SNAPSHOT, &second, 0);
    cr_assert(stage_run(&stage, is_copied, sender));
    stage_close(&stage);
}

/* --- memory -------------------------------------------------------------------------------------
 */

Test(prepare, more_than_the_budget_is_refused_with_both_numbers)
{
    for (int snapshot = 0; snapshot < 2; snapshot++) {
        struct stage stage;
        struct wf_sender *sender = NULL;
        struct wf_error error;
        struct stage_options options = rows[0].options;
        options.publish = snapshot ? WF_PUBLISH_SNAPSHOT : WF_PUBLISH_HOLD;
        stage_open(&stage, &options);
        struct wf_rank *rank = &stage_train(&stage, 0)->rank;
        rank->options.prepared_bytes_max = 4096;
        cr_expect_eq(wf_sender_new(rank, &sender, &error), WF_NO_RESOURCE);
        cr_expect(strstr(error.text, "4096") != NULL && strstr(error.text, "transit_budget"), "%s",
                  error.text);
        cr_expect_not_null(strstr(error.text, snapshot ? ", 2 times" : ", 1 times"), "%s",
                           error.text);
        stage_close(&stage);
    }
}

/* 66,560 matrices of experts, one a tensor: FSDP by experts of a very large model has more. */
static const char experts[] =
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 8, \"num_hidden_layers\": 65, "
    "\"vocab_size\": 64, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, "
    "\"intermediate_size\": 8, \"num_experts\": 512, \"num_experts_per_tok\": 2, "
    "\"moe_intermediate_size\": 4, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

Test(prepare, more_tensors_than_one_frame_places)
{
    const struct stage_options options = {.train = "megatron:tp=1,experts=sequential",
                                          .infer = "vllm:tp=1",
                                          .config = experts,
                                          .share_memory = true};
    struct stage stage;
    stage_open(&stage, &options);
    cr_assert_gt(wf_rank_source(&stage_train(&stage, 0)->rank)->tensor_count, WF_PLACES_FRAME);
    stage_plan(&stage);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    stage_step(&stage, 1);
    stage_transfer(&stage, &key); /* with digests */
    stage_close(&stage);
}
