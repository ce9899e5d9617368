/* test_peer_token.c - readers and sources: weights move between ranks of one token, and between no
 * others, in either direction. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "actors/receiver.h"
#include "actors/sender.h"
#include "tests/actors/stage.h"

static const struct wf_token ours = {.is_set = true, .bytes = "the token of this job"},
                             theirs = {.is_set = true, .bytes = "the token of another"},
                             none = {.is_set = false};

/* By side. */
struct tokens {
    const struct wf_token *of[2];
};

static void equip(struct stage_rank *rank, const void *user)
{
    const struct tokens *tokens = user;
    rank->rank.token = *tokens->of[rank->rank.options.side];
}

static struct stage_options options_for(const struct tokens *tokens)
{
    return (struct stage_options){.train = "megatron:tp=2",
                                  .infer = "vllm:tp=1",
                                  .share_memory = true,
                                  .equip = equip,
                                  .user = tokens};
}

Test(peer_token, weights_move_where_all_have_it)
{
    const struct tokens tokens = {.of = {&ours, &ours}};
    const struct stage_options options = options_for(&tokens);
    struct stage stage;
    stage_open(&stage, &options);
    stage_plan(&stage);
    stage_step(&stage, 1);
    struct wf_round_key key = stage_key(&stage, 1, 1);
    stage_transfer(&stage, &key);
    stage_flip(&stage, &key);
    cr_assert(stage_live_is_right(&stage));
    stage_close(&stage);
}

static const struct {
    const char *name;
    struct tokens tokens;
    const char *sentence;
} rows[] = {
    {"a reader of another job", {{&ours, &theirs}}, "did not prove that it knows the job's token"},
    {"a reader without a token", {{&ours, &none}}, "asks for the job's token and none was given"},
    {"a source without a token", {{&none, &ours}}, "asks for no proof of the job's token"},
};

Test(peer_token, and_between_no_others)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct stage_options options = options_for(&rows[i].tokens);
        struct stage stage;
        stage_open(&stage, &options);
        stage_plan(&stage);
        struct stage_rank *rank = stage_infer(&stage, 0);
        struct wf_round_key key = stage_key(&stage, 1, 1);
        stage_send(rank, wf_receiver_actor(rank->rank.receiver), WF_LOCAL_READ, &key,
                   rank->env->ops->now_ns(rank->env) + 300 * 1000 * 1000);
        struct wf_local_msg *done = stage_wait(&stage, rank, WF_LOCAL_READ_DONE);
        cr_assert_not_null(done, "%s", rows[i].name);
        cr_expect_neq(done->status, WF_OK, "%s", rows[i].name);
        cr_expect(strstr(done->error.text, rows[i].sentence) != NULL, "%s: %s", rows[i].name,
                  done->error.text);
        for (uint32_t s = 0; s < 2; s++) {
            cr_expect(rank->rank.receiver->sources[s]->state < SOURCE_READY, "%s", rows[i].name);
        }
        stage_drop(done);
        stage_close(&stage);
    }
}
