/* test_client_held.c - which version a rank says its memory is, and how often it says that it may
 * have begun to change. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/actors/client_world.h"

static struct client_world w;

static void close_world(void)
{
    client_close(&w);
}

TestSuite(held, .fini = close_world);

/* `step` 0: none, and a reason that has these words. */
static uint64_t expect(const char *when, uint64_t step, const char *why)
{
    struct wf_frame_held held;
    wf_meta_client_held(w.client, &held);
    cr_assert_eq(held.version.step, step, "%s: step %llu", when,
                 (unsigned long long)held.version.step);
    cr_assert_not_null(strstr(held.why, why), "%s: %s", when, held.why);
    cr_assert_eq(held.why[0] == '\0', step > 0, "%s", when);
    return held.writes;
}

static void reach(enum wf_rank_state state, uint64_t step)
{
    client_reach(&w, state, step);
}

Test(held, a_flip_is_counted_before_it_begins)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    uint64_t writes = expect("at first", 0, "holds no version yet");
    reach(WF_RANK_FLIPPED, 1);
    uint64_t first = expect("flipped", 1, "");
    cr_assert_eq(first, writes + 1);
    reach(WF_RANK_DOUBT, 2);
    cr_assert_eq(expect("another is staged", 1, ""), first, "nothing was written to");
    const struct wf_round_key key = client_key(&w, 2, 1);
    client_send(&w, WF_FRAME_decide, &(struct wf_frame_decide){.round = key});
    client_run(&w, 20 * CLIENT_MS);
    wf_client_quiesced(w.client);
    client_expect(&w, WF_FRAME_quiesced);
    cr_assert_eq(expect("paused", 1, ""), first);
    client_send(&w, WF_FRAME_flip, &key);
    const struct wf_local_msg *asked = client_asked(&w, &w.receiver, WF_LOCAL_FLIP);
    cr_assert_eq(expect("flipping", 0, "is flipping"), first + 1);
    client_answer(&w, &w.receiver, WF_LOCAL_FLIPPED, asked, WF_OK);
    client_expect(&w, WF_FRAME_flipped);
    cr_assert_eq(expect("flipped again", 2, ""), first + 1);
}

Test(held, a_flip_that_failed_leaves_no_version)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    reach(WF_RANK_TOLD, 1);
    const struct wf_round_key key = client_key(&w, 1, 1);
    client_send(&w, WF_FRAME_flip, &key);
    client_answer(&w, &w.receiver, WF_LOCAL_FLIPPED, client_asked(&w, &w.receiver, WF_LOCAL_FLIP),
                  WF_IO);
    client_expect(&w, WF_FRAME_flipped);
    expect("after a failure", 0, "holds no version");
}

/* Its memory is not what its layout says, whatever version it serves. */
Test(held, a_rank_that_packs_shows_nothing_and_fills_nobody)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    w.rank.options.packs = true;
    client_join(&w);
    w.client->live = client_version(&w, 1);
    expect("serves", 0, "packs its tensors");
    const struct wf_frame_open open = {
        .round = client_key(&w, 1, 2), .deadline_ns = 1000 * CLIENT_MS, .fill = 1, .source = 1};
    client_send(&w, WF_FRAME_open, &open);
    const struct wf_frame *vote = client_expect(&w, WF_FRAME_vote);
    cr_assert_eq(vote->vote.yes, 0);
    cr_assert_not_null(strstr(vote->vote.culprit.reason, "packs its tensors"), "%s",
                       vote->vote.culprit.reason);
}

/* Read in place and aborted before anything was written: the version of before, and counted. */
Test(held, a_read_in_place_is_counted_whatever_becomes_of_it)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    w.rank.options.mode = WF_MODE_IN_PLACE;
    client_join(&w);
    w.client->live = client_version(&w, 1);
    uint64_t before = expect("serves", 1, "");
    const struct wf_frame_open open = {.round = client_key(&w, 2, 1)};
    client_send(&w, WF_FRAME_open, &open);
    client_expect(&w, WF_FRAME_quiesced);
    cr_assert_eq(expect("paused", 1, ""), before);
    const struct wf_frame_permit permit = {.round = client_key(&w, 2, 1),
                                           .deadline_ns = 1000 * CLIENT_MS};
    client_send(&w, WF_FRAME_permit, &permit);
    const struct wf_local_msg *asked = client_asked(&w, &w.receiver, WF_LOCAL_READ);
    cr_assert_eq(expect("reading", 0, "in place"), before + 1);
    client_answer(&w, &w.receiver, WF_LOCAL_READ_DONE, asked, WF_DIGEST);
    cr_assert_eq(client_expect(&w, WF_FRAME_vote)->vote.yes, 0);
    cr_assert_eq(expect("as it was", 1, ""), before + 1);
}

Test(held, a_train_rank_holds_a_version_while_it_holds)
{
    struct wf_error error;
    client_open(&w, WF_TRAIN, WF_PUBLISH_HOLD);
    client_join(&w);
    const struct wf_frame_generation generation = {
        .term = w.term, .generation_term = w.term, .counter = 1};
    client_send(&w, WF_FRAME_generation, &generation);
    client_expect(&w, WF_FRAME_told);
    expect("training", 0, "is training");
    cr_assert_eq(wf_client_publish(w.client, 1, "", 0, &error), WF_OK, "%s", error.text);
    uint64_t held = expect("published", 1, "");
    const struct wf_frame_released released = {
        .round = {.term = w.term, .models = 1, .version = w.client->published, .attempt = 1}};
    client_send(&w, WF_FRAME_released, &released);
    client_expect(&w, WF_FRAME_told);
    cr_assert_eq(expect("released", 0, "is training"), held + 1);
    cr_assert_eq(wf_client_publish(w.client, 2, "", 0, &error), WF_OK, "%s", error.text);
    wf_client_idle(w.client);
    held = expect("published and idle", 2, "");
    struct wf_frame_released last = released;
    last.round.version = w.client->published;
    client_send(&w, WF_FRAME_released, &last);
    client_expect(&w, WF_FRAME_told);
    cr_assert_eq(expect("idle", 2, ""), held, "it stays what it was");
}

Test(held, a_copy_is_a_version_until_its_slot_is_copied_into)
{
    struct wf_error error;
    struct wf_frame_held at;
    client_open(&w, WF_TRAIN, WF_PUBLISH_SNAPSHOT);
    client_join(&w);
    const struct wf_frame_generation generation = {
        .term = w.term, .generation_term = w.term, .counter = 1};
    client_send(&w, WF_FRAME_generation, &generation);
    client_expect(&w, WF_FRAME_told);
    cr_assert_eq(wf_client_publish(w.client, 1, "", 0, &error), WF_OK, "%s", error.text);
    const struct wf_local_msg *asked = client_asked(&w, &w.sender, WF_LOCAL_SNAPSHOT);
    expect("copying", 0, "no complete copy");
    client_answer(&w, &w.sender, WF_LOCAL_SNAPSHOT_DONE, asked, WF_OK);
    client_expect(&w, WF_FRAME_publish);
    uint64_t first = expect("copied", 1, "");
    cr_assert_eq(wf_client_publish(w.client, 2, "", 0, &error), WF_OK, "%s", error.text);
    asked = client_asked(&w, &w.sender, WF_LOCAL_SNAPSHOT);
    cr_assert_eq(expect("copying into the other slot", 1, ""), first);
    wf_meta_client_held(w.client, &at);
    uint64_t slot = at.slot;
    client_answer(&w, &w.sender, WF_LOCAL_SNAPSHOT_DONE, asked, WF_OK);
    client_expect(&w, WF_FRAME_publish);
    expect("the newest is shown", 2, "");
    wf_meta_client_held(w.client, &at);
    cr_assert_neq(at.slot, slot);
}
