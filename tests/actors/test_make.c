/* test_make.c - a Receiver quantises what it assembled, between the verdict and its answer: from
 * matrices that are verified, in room that it claims, and stopped like everything else. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "actors/receiver.h"
#include "models/assemble.h"
#include "tests/actors/stage.h"

static const char dense[] =
    "{\"model_type\": \"qwen3\", \"hidden_size\": 256, \"num_hidden_layers\": 2, "
    "\"vocab_size\": 100, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 128, \"intermediate_size\": 512, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"bfloat16\"}";

enum { ROWS = 256, COLUMNS = 512 }; /* of o_proj */
#define O_PROJ "model.layers.1.self_attn.o_proj.weight"

static void equip(struct stage_rank *rank, const void *user)
{
    const uint64_t *allowed = user;
    if (allowed != NULL && rank->rank.options.side == WF_INFER) {
        rank->rank.options.staging_bytes_max = *allowed;
    }
}

static void open_stage(struct stage *stage, enum wf_update_mode mode, const uint64_t *allowed)
{
    const struct stage_options options = {.train = "fsdp:dp=3",
                                          .infer = "vllm:tp=1,quant=vllm",
                                          .config = dense,
                                          .share_memory = true,
                                          .mode = mode,
                                          .equip = equip,
                                          .user = allowed};
    stage_open(stage, &options);
    stage_plan(stage);
    stage_step(stage, 1);
}

static struct wf_rank *reader(struct stage *stage)
{
    return &stage_infer(stage, 0)->rank;
}

static void *live(struct stage *stage, const char *name)
{
    const struct wf_rank *rank = reader(stage);
    uint32_t tensor = wf_layout_find(rank->layout, name, strlen(name));
    cr_assert_neq(tensor, UINT32_MAX, "%s", name);
    return rank->options.tensors[rank->order[tensor]].address;
}

/* The matrix as the trainers hold it: rows 0..85, 86..171, 172..255. */
static uint16_t *gather(struct stage *stage)
{
    uint16_t *matrix = malloc(ROWS * COLUMNS * sizeof *matrix), *at = matrix;
    for (uint32_t r = 0; r < stage->train; r++) {
        const struct wf_rank *train = &stage_train(stage, r)->rank;
        uint32_t tensor = wf_layout_find(train->layout, O_PROJ, strlen(O_PROJ));
        uint64_t bytes = train->layout->tensors[tensor].bytes;
        memcpy(at, train->options.tensors[train->order[tensor]].address, bytes);
        at += bytes / sizeof *at;
    }
    cr_assert_eq(at - matrix, ROWS * COLUMNS);
    return matrix;
}

static bool is_quantised(struct stage *stage)
{
    uint8_t *codes = malloc(ROWS * COLUMNS);
    float scales[ROWS / 128 * COLUMNS / 128];
    uint16_t *matrix = gather(stage);
    const struct wf_quant_matrix values = {matrix, WF_DTYPE_BF16, ROWS, COLUMNS,
                                           COLUMNS * sizeof *matrix};
    wf_quantise(WF_QUANT_VLLM, &values, codes, COLUMNS, scales, COLUMNS / 128, true);
    bool good = memcmp(codes, live(stage, O_PROJ), ROWS * COLUMNS) == 0 &&
                memcmp(scales, live(stage, O_PROJ "_scale_inv"), sizeof scales) == 0;
    free(codes);
    free(matrix);
    return good;
}

Test(make, what_arrives_is_what_the_rule_makes)
{
    static const enum wf_update_mode modes[] = {WF_MODE_STAGED, WF_MODE_IN_PLACE};
    for (unsigned m = 0; m < 2; m++) {
        struct stage stage;
        open_stage(&stage, modes[m], NULL);
        for (uint64_t version = 1; version <= 2; version++) {
            struct wf_round_key key = stage_key(&stage, version, 1);
            stage_step(&stage, version);
            stage_transfer(&stage, &key);
            cr_expect(modes[m] == WF_MODE_IN_PLACE || !is_quantised(&stage), "before the flip");
            stage_flip(&stage, &key);
            cr_expect(is_quantised(&stage), "mode %u, version %d", m, (int)version);
        }
        stage_close(&stage);
    }
}

static void read_version(struct stage *stage, const struct wf_round_key *key)
{
    for (uint32_t r = 0; r < stage->train; r++) {
        struct stage_rank *train = stage_train(stage, r);
        stage_send(train, wf_sender_actor(train->rank.sender), WF_LOCAL_GRANT, key, 0);
    }
    struct wf_rank *rank = reader(stage);
    stage_send(stage_infer(stage, 0), wf_receiver_actor(rank->receiver), WF_LOCAL_READ, key,
               wf_loop_now_ns(rank->loop) + UINT64_C(15000000000));
}

Test(make, no_room_is_a_vote_no)
{
    struct stage stage;
    uint64_t allowed = UINT64_C(1800000); /* for the staging alone */
    open_stage(&stage, WF_MODE_STAGED, &allowed);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    read_version(&stage, &key);
    struct wf_local_msg *done = stage_wait(&stage, stage_infer(&stage, 0), WF_LOCAL_READ_DONE);
    cr_assert_not_null(done);
    cr_expect_eq(done->status, WF_NO_RESOURCE);
    cr_expect(strstr(done->error.text, "has no room for the matrices that it quantises itself") &&
                  strstr(done->error.text, "1800000"),
              "%s", done->error.text);
    cr_expect_not(done->wrote);
    stage_drop(done);
    stage_close(&stage);
}

static bool is_making(void *user)
{
    const struct wf_receiver *receiver = user;
    return receiver->phase == RECEIVER_MAKING;
}

/* While it works: the deadline, and a STOP. Neither leaves anything staged, and the next one goes
 * well in the same room. */
Test(make, late_and_stopped)
{
    struct stage stage;
    open_stage(&stage, WF_MODE_STAGED, NULL);
    struct stage_rank *rank = stage_infer(&stage, 0);
    struct wf_receiver *receiver = rank->rank.receiver;
    struct wf_round_key key = stage_key(&stage, 1, 1);
    read_version(&stage, &key);
    cr_assert(stage_run(&stage, is_making, receiver));
    receiver->deadline.fire(&receiver->deadline);
    struct wf_local_msg *done = stage_wait(&stage, rank, WF_LOCAL_READ_DONE);
    cr_assert_not_null(done);
    cr_expect_eq(done->status, WF_TIMED_OUT);
    cr_expect_not_null(strstr(done->error.text, "had not quantised the matrices"), "%s",
                       done->error.text);
    stage_drop(done);
    const void *room = receiver->make.memory.address;
    key = stage_key(&stage, 1, 2);
    read_version(&stage, &key);
    cr_assert(stage_run(&stage, is_making, receiver));
    stage_send(rank, wf_receiver_actor(receiver), WF_LOCAL_STOP, &key, 0);
    done = stage_wait(&stage, rank, WF_LOCAL_STOPPED);
    cr_assert_not_null(done);
    cr_expect(receiver->phase == RECEIVER_IDLE && !receiver->staged);
    stage_drop(done);
    key = stage_key(&stage, 1, 3);
    stage_transfer(&stage, &key);
    stage_flip(&stage, &key);
    cr_expect(is_quantised(&stage));
    cr_expect_eq(receiver->make.memory.address, room);
    stage_close(&stage);
}

/* The loop gives no room back: another plan keeps it, and a job takes what fits its bytes. */
Test(make, room_goes_and_comes_in_a_job)
{
    struct stage stage;
    open_stage(&stage, WF_MODE_STAGED, NULL);
    struct wf_receiver *receiver = reader(&stage)->receiver;
    struct receiver_make *make = &receiver->make;
    struct wf_round_key key = stage_key(&stage, 1, 1);
    stage_transfer(&stage, &key);
    const uint64_t bytes = make->memory.len_bytes;
    cr_assert_gt(bytes, 0);
    receiver_make_use(receiver, NULL);
    cr_expect(make->bytes == 0 && make->memory.len_bytes == bytes, "unmapped by the loop");
    struct wf_error error;
    wf_memory_free(&make->memory); /* as if that plan had needed more */
    cr_assert_eq(wf_memory_new("more", 2 * bytes, false, &make->memory, &error), WF_OK);
    key = stage_key(&stage, 1, 2);
    stage_transfer(&stage, &key);
    cr_expect_eq(make->memory.len_bytes, bytes);
    stage_flip(&stage, &key);
    cr_expect(is_quantised(&stage));
    stage_close(&stage);
}
