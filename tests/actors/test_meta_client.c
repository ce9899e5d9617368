/* test_meta_client.c - a rank's side of the protocol, message by message. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/actors/client_world.h"

static struct client_world w;

static void close_world(void)
{
    client_close(&w);
}

TestSuite(infer, .fini = close_world);
TestSuite(train, .fini = close_world);

static void resume(struct wf_round_key key, uint64_t step)
{
    const struct wf_frame_resume frame = {.round = key, .version = client_version(&w, step)};
    client_send(&w, WF_FRAME_resume, &frame);
}

/* Serves version 1 after a whole round. */
static void serve_first(void)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    client_reach(&w, WF_RANK_FLIPPED, 1);
    resume(client_key(&w, 1, 1), 1);
    client_expect(&w, WF_FRAME_resumed);
    cr_assert_eq(w.resumes, 1);
}

/* --- infer -------------------------------------------------------------------------------------
 */
Test(infer, an_engine_starts_paused_and_pauses_before_each_flip)
{
    serve_first();
    cr_assert_eq(w.quiesces, 0, "it was not serving yet");
    client_reach(&w, WF_RANK_DOUBT, 2);
    const struct wf_frame_decide decide = {.round = client_key(&w, 2, 1)};
    client_send(&w, WF_FRAME_decide, &decide);
    client_silent(&w, WF_FRAME_quiesced, 50 * CLIENT_MS);
    cr_assert_eq(w.quiesces, 1);
    const struct wf_frame_flip flip = {.round = client_key(&w, 2, 1)};
    client_send(&w, WF_FRAME_flip, &flip); /* a server would not: the host still drains */
    client_silent(&w, WF_FRAME_flipped, 50 * CLIENT_MS);
    cr_assert_eq(w.receiver.asked_count, 3, "READ, FLIP, READ and no FLIP");
    wf_client_quiesced(w.client);
    client_expect(&w, WF_FRAME_quiesced);
}

Test(infer, answers_that_were_lost_are_given_again)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    struct wf_round_key key = client_key(&w, 1, 1);
    client_reach(&w, WF_RANK_DOUBT, 1);
    const struct wf_frame_open open = {.round = key, .deadline_ns = 1000 * CLIENT_MS};
    client_send(&w, WF_FRAME_open, &open);
    cr_assert_eq(client_expect(&w, WF_FRAME_vote)->vote.yes, 1);
    const struct wf_frame_decide decide = {.round = key};
    client_send(&w, WF_FRAME_decide, &decide);
    client_expect(&w, WF_FRAME_quiesced);
    client_send(&w, WF_FRAME_decide, &decide);
    client_expect(&w, WF_FRAME_quiesced);
    client_send(&w, WF_FRAME_flip, &key);
    client_answer(&w, &w.receiver, WF_LOCAL_FLIPPED, client_asked(&w, &w.receiver, WF_LOCAL_FLIP),
                  WF_OK);
    client_expect(&w, WF_FRAME_flipped);
    client_send(&w, WF_FRAME_flip, &key);
    cr_assert_eq(client_expect(&w, WF_FRAME_flipped)->flipped.live.step, 1);
    resume(key, 1);
    client_expect(&w, WF_FRAME_resumed);
    resume(key, 1);
    client_expect(&w, WF_FRAME_resumed);
    cr_assert_eq(w.resumes, 1, "the host is told once");
}

Test(infer, an_abort_is_answered_when_nothing_can_land_any_more)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    client_reach(&w, WF_RANK_READ, 1);
    const struct wf_frame_abort abort = {.round = client_key(&w, 1, 1)};
    client_send(&w, WF_FRAME_abort, &abort);
    const struct wf_local_msg *asked = client_asked(&w, &w.receiver, WF_LOCAL_STOP);
    client_silent(&w, WF_FRAME_aborted, 200 * CLIENT_MS);
    cr_assert_eq(w.aborts, 0);
    client_answer(&w, &w.receiver, WF_LOCAL_STOPPED, asked, WF_OK);
    client_expect(&w, WF_FRAME_aborted);
    cr_assert_eq(w.aborts, 1);
    client_send(&w, WF_FRAME_abort, &abort);
    client_expect(&w, WF_FRAME_aborted);
    cr_assert_eq(w.aborts, 1, "told once");
    client_reach(&w, WF_RANK_DOUBT, 2);
}

Test(infer, an_abort_overtakes_its_open)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    const struct wf_frame_abort abort = {.round = client_key(&w, 1, 1)};
    client_send(&w, WF_FRAME_abort, &abort);
    client_expect(&w, WF_FRAME_aborted);
    const struct wf_frame_open open = {.round = client_key(&w, 1, 1), .deadline_ns = CLIENT_MS};
    client_send(&w, WF_FRAME_open, &open);
    client_run(&w, 100 * CLIENT_MS);
    cr_assert_eq(w.receiver.asked_count, 0, "it reads what was aborted");
}

Test(infer, a_decided_rank_obeys_no_abort)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    client_reach(&w, WF_RANK_TOLD, 1);
    const struct wf_frame_abort abort = {.round = client_key(&w, 1, 1)};
    client_send(&w, WF_FRAME_abort, &abort);
    client_silent(&w, WF_FRAME_aborted, 100 * CLIENT_MS);
}

static const struct {
    const char *name;
    enum wf_rank_state state; /* of round 2, over a served version 1 that is paused again */
    uint64_t key_step, version_step;
} resume_rows[] = {
    {"another version than the live one", WF_RANK_FLIPPED, 2, 1},
    {"a round that is over", WF_RANK_FLIPPED, 1, 2},
    {"while it is told to flip", WF_RANK_TOLD, 2, 1},
};

Test(infer, resume_is_obeyed_only_for_what_is_live_and_quiet)
{
    for (size_t i = 0; i < sizeof resume_rows / sizeof resume_rows[0]; i++) {
        serve_first();
        client_reach(&w, resume_rows[i].state, 2);
        resume(client_key(&w, resume_rows[i].key_step, 1), resume_rows[i].version_step);
        client_run(&w, 100 * CLIENT_MS);
        cr_expect_eq(w.resumes, 1, "%s", resume_rows[i].name);
        if (i + 1 < sizeof resume_rows / sizeof resume_rows[0]) {
            client_close(&w);
        }
    }
}

Test(infer, a_failed_read_votes_no_and_says_why)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    client_reach(&w, WF_RANK_READ, 1);
    client_answer(&w, &w.receiver, WF_LOCAL_READ_DONE, w.receiver.asked[0], WF_DIGEST);
    const struct wf_frame *frame = client_expect(&w, WF_FRAME_vote);
    cr_assert_eq(frame->vote.yes, 0);
    cr_assert_str_eq(frame->vote.culprit.reason, "could not read: the part says so");
    cr_assert_eq(frame->vote.culprit.side, WF_INFER);
}

Test(infer, a_failed_flip_leaves_no_version)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    client_reach(&w, WF_RANK_TOLD, 1);
    struct wf_round_key key = client_key(&w, 1, 1);
    client_send(&w, WF_FRAME_flip, &key);
    client_answer(&w, &w.receiver, WF_LOCAL_FLIPPED, client_asked(&w, &w.receiver, WF_LOCAL_FLIP),
                  WF_IO);
    cr_assert(wf_version_is_none(client_expect(&w, WF_FRAME_flipped)->flipped.live));
    resume(key, 1);
    client_silent(&w, WF_FRAME_resumed, 100 * CLIENT_MS);
}

Test(infer, a_lapsed_rank_acts_on_nothing_until_it_is_renewed)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    client_reach(&w, WF_RANK_DOUBT, 1);
    w.no_leases = true;
    client_run(&w, 750 * CLIENT_MS); /* after two leases it would ask anew */
    const struct wf_frame_decide decide = {.round = client_key(&w, 1, 1)};
    client_send(&w, WF_FRAME_decide, &decide);
    client_silent(&w, WF_FRAME_quiesced, 200 * CLIENT_MS);
    w.no_leases = false;
    client_run(&w, 200 * CLIENT_MS);
    client_send(&w, WF_FRAME_decide, &decide);
    client_expect(&w, WF_FRAME_quiesced);
}

Test(infer, frames_of_another_term_are_not_obeyed)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    struct wf_frame_open open = {.round = client_key(&w, 1, 1), .deadline_ns = CLIENT_MS};
    open.round.term = 6;
    client_send(&w, WF_FRAME_open, &open);
    client_run(&w, 100 * CLIENT_MS);
    cr_assert_eq(w.receiver.asked_count, 0);
}

static const struct {
    const char *name;
    enum wf_rank_state state; /* of round 2, while version 1 is served */
    uint64_t committed;       /* what WELCOME says */
    enum wf_local_kind asks;  /* of the Receiver; 0: nothing */
    bool pauses;
    uint64_t live; /* what JOINED says */
} clean_rows[] = {
    {"nothing happened", WF_RANK_NONE, 1, 0, false, 1},
    {"it was reading", WF_RANK_READ, 1, WF_LOCAL_STOP, false, 1},
    {"it holds what was aborted", WF_RANK_DOUBT, 1, WF_LOCAL_STOP, false, 1},
    {"it holds what was committed", WF_RANK_DOUBT, 2, WF_LOCAL_FLIP, true, 2},
    {"it missed a version", WF_RANK_NONE, 3, 0, true, 1},
    {"it holds a version that is over", WF_RANK_DOUBT, 3, WF_LOCAL_STOP, true, 1},
};

Test(infer, a_clean_welcome_drops_flips_and_pauses_what_it_must)
{
    for (size_t i = 0; i < sizeof clean_rows / sizeof clean_rows[0]; i++) {
        serve_first();
        client_reach(&w, clean_rows[i].state, 2);
        client_welcome(&w, true, client_version(&w, clean_rows[i].committed));
        client_run(&w, 30 * CLIENT_MS);
        cr_expect_eq(w.quiesces, clean_rows[i].pauses, "%s", clean_rows[i].name);
        if (clean_rows[i].pauses) {
            wf_client_quiesced(w.client);
        }
        if (clean_rows[i].asks != 0) {
            const struct wf_local_msg *asked = client_asked(&w, &w.receiver, clean_rows[i].asks);
            client_silent(&w, WF_FRAME_joined, 50 * CLIENT_MS);
            client_answer(&w, &w.receiver,
                          clean_rows[i].asks == WF_LOCAL_FLIP ? WF_LOCAL_FLIPPED : WF_LOCAL_STOPPED,
                          asked, WF_OK);
        }
        const struct wf_frame *frame = client_expect(&w, WF_FRAME_joined);
        cr_expect_eq(frame->joined.live.step, clean_rows[i].live, "%s", clean_rows[i].name);
        cr_expect_eq(frame->joined.serving, !clean_rows[i].pauses, "%s", clean_rows[i].name);
        if (i + 1 < sizeof clean_rows / sizeof clean_rows[0]) {
            client_close(&w);
        }
    }
}

Test(infer, a_broken_connection_is_made_again_and_changes_nothing)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    client_reach(&w, WF_RANK_DOUBT, 1);
    struct wf_env *env = wf_loop_env(w.server_loop);
    env->ops->close(env, w.conn);
    const struct wf_frame *frame = client_expect(&w, WF_FRAME_hello);
    cr_assert_eq(frame->hello.incarnation, 42);
    cr_assert_eq(frame->hello.state, WF_RANK_DOUBT);
    cr_assert_eq(frame->hello.round.version.step, 1);
    client_welcome(&w, false, (struct wf_version){0});
    cr_assert_eq(client_expect(&w, WF_FRAME_joined)->joined.state, WF_RANK_DOUBT);
    cr_assert_eq(w.receiver.asked_count, 1);
}

Test(infer, no_server_for_too_long_ends_the_rank)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    w.refuses = true;
    struct wf_env *env = wf_loop_env(w.server_loop);
    env->ops->close(env, w.conn);
    client_run(&w, 10000 * CLIENT_MS);
    cr_assert_eq(w.ends, 1);
    cr_assert_eq(w.ended.status, WF_CONNECTION);
    cr_assert(strstr(w.ended.text, "no MetaServer at") != NULL, "%s", w.ended.text);
    cr_assert_lt(w.connections, 60, "tries are spaced: %u", w.connections);
}

Test(infer, the_end_waits_until_nothing_can_land)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    client_join(&w);
    client_reach(&w, WF_RANK_READ, 1);
    const struct wf_frame_leave leave = {.reason = "enough"};
    client_send(&w, WF_FRAME_leave, &leave);
    const struct wf_local_msg *asked = client_asked(&w, &w.receiver, WF_LOCAL_STOP);
    cr_assert_eq(w.ends, 0);
    client_answer(&w, &w.receiver, WF_LOCAL_STOPPED, asked, WF_OK);
    cr_assert_eq(w.ends, 1);
    cr_assert_eq(w.ended.status, WF_CLOSED);
    cr_assert_str_eq(w.ended.text, "enough");
    const struct wf_frame_note note = {.elements_checked = 3};
    wf_client_note(w.client, &note);
    cr_assert_eq(client_expect(&w, WF_FRAME_note)->note.elements_checked, 3);
}

/* --- train ---------------------------------------------------------------------------------------
 */
static enum wf_status publish(uint64_t step)
{
    return wf_client_publish(w.client, step, "label", 0, NULL);
}

static void generation(uint64_t counter, uint64_t step)
{
    const struct wf_frame_generation frame = {
        .term = w.term, .generation_term = w.term, .counter = counter, .step = step};
    client_send(&w, WF_FRAME_generation, &frame);
    client_expect(&w, WF_FRAME_told);
}

static void start_train(enum wf_publish_mode mode)
{
    client_open(&w, WF_TRAIN, mode);
    client_join(&w);
    cr_assert_eq(publish(1), WF_AGAIN, "no generation yet");
    generation(1, 0);
    cr_assert_eq(w.readies, 1);
    cr_assert_not(w.restarted);
}

static void open_round(uint64_t step, uint64_t attempt)
{
    const struct wf_frame_open open = {.round = client_key(&w, step, attempt),
                                       .deadline_ns = 1000 * CLIENT_MS};
    client_send(&w, WF_FRAME_open, &open);
}

static void released(uint64_t step, uint64_t attempt)
{
    struct wf_el_unit unit = {0};
    const struct wf_frame_released frame = {.round = client_key(&w, step, attempt),
                                            .version = client_version(&w, step),
                                            .engines = &unit,
                                            .engines_count = attempt > 0};
    client_send(&w, WF_FRAME_released, &frame);
    client_expect(&w, WF_FRAME_told);
    client_run(&w, 5 * CLIENT_MS);
}

static void round_aborted(uint64_t step, uint64_t attempt, bool again)
{
    const struct wf_frame_round_aborted frame = {.round = client_key(&w, step, attempt),
                                                 .again = again};
    client_send(&w, WF_FRAME_round_aborted, &frame);
    client_expect(&w, WF_FRAME_told);
    client_run(&w, 5 * CLIENT_MS);
}

Test(train, a_hold_ends_only_by_released_or_a_final_abort)
{
    start_train(WF_PUBLISH_HOLD);
    cr_assert_eq(publish(1), WF_OK);
    client_expect(&w, WF_FRAME_publish);
    cr_assert_eq(publish(2), WF_AGAIN);
    open_round(1, 1);
    client_asked(&w, &w.sender, WF_LOCAL_GRANT);
    round_aborted(1, 1, true);
    client_asked(&w, &w.sender, WF_LOCAL_REVOKE);
    cr_assert_eq(w.aborts, 1);
    cr_assert(w.aborted_again);
    cr_assert_eq(publish(2), WF_AGAIN);
    round_aborted(1, 1, false); /* an older notice, repeated: not what was said */
    cr_assert_eq(publish(2), WF_AGAIN);
    open_round(1, 2);
    client_asked(&w, &w.sender, WF_LOCAL_GRANT);
    released(1, 2);
    cr_assert_eq(w.releases, 1);
    cr_assert_eq(w.released_engines, 1);
    cr_assert_eq(publish(1), WF_REFUSED, "not newer");
    cr_assert_eq(publish(2), WF_OK);
    open_round(2, 1);
    round_aborted(2, 1, false);
    cr_assert_eq(w.aborts, 2);
    cr_assert_eq(publish(3), WF_OK);
    released(3, 0); /* the policy skips it */
    cr_assert_eq(w.releases, 2);
    cr_assert_eq(w.released_engines, 0);
}

Test(train, the_host_is_told_when_no_work_reads_its_buffers)
{
    start_train(WF_PUBLISH_HOLD);
    w.keeps_revokes = true;
    publish(1);
    open_round(1, 1);
    client_asked(&w, &w.sender, WF_LOCAL_GRANT);
    round_aborted(1, 1, false);
    const struct wf_local_msg *asked = client_asked(&w, &w.sender, WF_LOCAL_REVOKE);
    client_run(&w, 50 * CLIENT_MS);
    cr_assert_eq(w.aborts, 0);
    client_answer(&w, &w.sender, WF_LOCAL_REVOKED, asked, WF_OK);
    client_run(&w, 5 * CLIENT_MS);
    cr_assert_eq(w.aborts, 1);
    publish(2);
    open_round(2, 1);
    released(2, 1);
    asked = client_asked(&w, &w.sender, WF_LOCAL_REVOKE);
    generation(2, 2); /* what follows is told after it, in order */
    cr_assert_eq(w.releases, 0);
    cr_assert_eq(w.readies, 1);
    cr_assert_eq(publish(3), WF_AGAIN, "under which generation?");
    wf_client_idle(w.client); /* of the generation before */
    client_silent(&w, WF_FRAME_idle, 10 * CLIENT_MS);
    client_answer(&w, &w.sender, WF_LOCAL_REVOKED, asked, WF_OK);
    client_run(&w, 5 * CLIENT_MS);
    cr_assert_eq(w.releases, 1);
    cr_assert_eq(w.readies, 2);
}

/* An env whose connections are too full for anything but heartbeats. */
struct full_env {
    struct wf_env env;
    struct wf_env_ops ops;
    struct wf_env *real;
};

static enum wf_status refuse_send(struct wf_env *env, uint64_t conn, const void *bytes,
                                  size_t len_bytes, int fd)
{
    (void)conn;
    (void)bytes;
    (void)len_bytes;
    (void)fd;
    (void)env;
    return WF_NO_RESOURCE;
}

Test(train, what_a_full_connection_refused_is_said_again)
{
    start_train(WF_PUBLISH_HOLD);
    struct full_env full = {.real = w.client->env};
    full.ops = *full.real->ops;
    full.ops.send = refuse_send;
    full.env.ops = &full.ops;
    w.client->env = &full.env;
    publish(1);
    wf_client_idle(w.client);
    w.client->env = full.real;
    client_silent(&w, WF_FRAME_publish, 10 * CLIENT_MS);
    cr_assert_eq(client_expect(&w, WF_FRAME_publish)->publish.version.step, 1);
    cr_assert_eq(client_expect(&w, WF_FRAME_idle)->idle.version.step, 1);
    client_silent(&w, WF_FRAME_publish, 300 * CLIENT_MS);
}

Test(train, what_is_told_again_is_answered_again_and_not_done_again)
{
    start_train(WF_PUBLISH_HOLD);
    publish(1);
    open_round(1, 1);
    open_round(1, 1);
    released(1, 1);
    released(1, 1);
    cr_assert_eq(w.releases, 1);
    uint32_t grants = 0;
    for (uint32_t i = 0; i < w.sender.asked_count; i++) {
        grants += w.sender.asked[i]->msg.kind == WF_LOCAL_GRANT;
    }
    cr_assert_eq(grants, 1);
    publish(2);
    released(1, 1); /* late: version 2 stays held */
    cr_assert_eq(publish(3), WF_AGAIN);
}

Test(train, a_round_for_what_is_gone_is_voted_down)
{
    start_train(WF_PUBLISH_HOLD);
    open_round(1, 1);
    const struct wf_frame *frame = client_expect(&w, WF_FRAME_vote);
    cr_assert_eq(frame->vote.yes, 0);
    cr_assert_str_eq(frame->vote.culprit.reason, "no longer holds version 7.1.1");
    cr_assert_eq(w.sender.asked_count, 0);
}

Test(train, an_idle_rank_serves_fills)
{
    start_train(WF_PUBLISH_HOLD);
    publish(1);
    open_round(1, 1);
    wf_client_idle(w.client);
    cr_assert_eq(client_expect(&w, WF_FRAME_idle)->idle.version.step, 1);
    released(1, 1);
    open_round(1, 2);
    client_asked(&w, &w.sender, WF_LOCAL_REVOKE);
    const struct wf_local_msg *asked = client_asked(&w, &w.sender, WF_LOCAL_GRANT);
    cr_assert_eq(asked->round.attempt, 2);
}

Test(train, a_new_generation_ends_every_hold)
{
    start_train(WF_PUBLISH_HOLD);
    publish(4);
    generation(2, 4);
    cr_assert_eq(w.readies, 2);
    cr_assert(w.restarted);
    cr_assert_eq(w.ready_step, 4);
    cr_assert_eq(publish(4), WF_OK);
    const struct wf_frame *frame = client_expect(&w, WF_FRAME_publish);
    cr_assert_eq(frame->publish.version.counter, 2);
    cr_assert_eq(frame->publish.version.step, 4);
    generation(2, 4);
    generation(1, 0);
    cr_assert_eq(w.readies, 2, "old news");
}

Test(train, what_is_held_is_published_again_after_a_broken_connection)
{
    start_train(WF_PUBLISH_HOLD);
    publish(1);
    client_expect(&w, WF_FRAME_publish);
    wf_client_idle(w.client);
    client_expect(&w, WF_FRAME_idle);
    struct wf_env *env = wf_loop_env(w.server_loop);
    env->ops->close(env, w.conn);
    cr_assert_eq(client_expect(&w, WF_FRAME_hello)->hello.state, WF_TRAINER_HOLD);
    client_welcome(&w, false, (struct wf_version){0});
    cr_assert_eq(client_expect(&w, WF_FRAME_publish)->publish.version.step, 1);
    client_expect(&w, WF_FRAME_idle);
}

static void copy(uint64_t slot)
{
    const struct wf_local_msg *asked = client_asked(&w, &w.sender, WF_LOCAL_SNAPSHOT);
    cr_assert_eq(asked->slot, slot);
    client_answer(&w, &w.sender, WF_LOCAL_SNAPSHOT_DONE, asked, WF_OK);
}

Test(train, snapshots_wait_in_two_slots)
{
    start_train(WF_PUBLISH_SNAPSHOT);
    cr_assert_eq(publish(1), WF_OK);
    cr_assert_eq(publish(2), WF_AGAIN, "one copy at a time");
    copy(0);
    cr_assert_eq(w.copies, 1);
    cr_assert_eq(client_expect(&w, WF_FRAME_publish)->publish.version.step, 1);
    open_round(1, 1);
    cr_assert_eq(client_asked(&w, &w.sender, WF_LOCAL_GRANT)->slot, 0);
    cr_assert_eq(publish(2), WF_OK);
    copy(1);
    cr_assert_eq(publish(3), WF_AGAIN, "slot 0 is read, slot 1 waits");
    released(1, 1);
    cr_assert_eq(publish(3), WF_OK);
    copy(0);
}

Test(train, drop_to_latest_overwrites_what_nobody_reads)
{
    start_train(WF_PUBLISH_SNAPSHOT);
    w.client->drop_to_latest = true;
    publish(1);
    copy(0);
    open_round(1, 1);
    client_asked(&w, &w.sender, WF_LOCAL_GRANT);
    cr_assert_eq(publish(2), WF_OK);
    copy(1);
    cr_assert_eq(publish(3), WF_OK);
    copy(1);
    open_round(2, 1); /* opened before PUBLISH 3 was heard */
    cr_assert_eq(client_expect(&w, WF_FRAME_vote)->vote.yes, 0);
}

Test(train, a_failed_copy_is_not_published)
{
    start_train(WF_PUBLISH_SNAPSHOT);
    publish(1);
    client_answer(&w, &w.sender, WF_LOCAL_SNAPSHOT_DONE,
                  client_asked(&w, &w.sender, WF_LOCAL_SNAPSHOT), WF_NO_MEMORY);
    cr_assert_eq(w.copies, 1);
    cr_assert_eq(w.copy_error.status, WF_NO_MEMORY);
    client_silent(&w, WF_FRAME_publish, 50 * CLIENT_MS);
}

/* --- the plan
 * --------------------------------------------------------------------------------------- */
static void members(uint64_t epoch)
{
    const struct wf_frame_members frame = {.term = w.term, .epoch = epoch};
    client_send(&w, WF_FRAME_members, &frame);
}

Test(train, members_are_planned_once_and_answered_as_often_as_asked)
{
    start_train(WF_PUBLISH_HOLD);
    members(3);
    const struct wf_local_msg *first = client_asked(&w, &w.converter, WF_LOCAL_PLAN);
    cr_assert_eq(first->members.members.epoch, 3);
    members(3);
    members(5); /* newer, while it plans */
    client_run(&w, 20 * CLIENT_MS);
    cr_assert_eq(w.converter.asked_count, 1);
    client_answer(&w, &w.converter, WF_LOCAL_PLANNED, first, WF_DISAGREE);
    const struct wf_frame *frame = client_expect(&w, WF_FRAME_planned);
    cr_assert_eq(frame->planned.epoch, 3);
    cr_assert_eq(frame->planned.status, WF_DISAGREE);
    cr_assert_str_eq(frame->planned.text, "the part says so");
    const struct wf_local_msg *second = client_asked(&w, &w.converter, WF_LOCAL_PLAN);
    cr_assert_eq(second->members.members.epoch, 5);
    client_answer(&w, &w.converter, WF_LOCAL_PLANNED, second, WF_DISAGREE);
    cr_assert_eq(client_expect(&w, WF_FRAME_planned)->planned.epoch, 5);
    members(5);
    cr_assert_eq(client_expect(&w, WF_FRAME_planned)->planned.epoch, 5);
    cr_assert_eq(w.converter.asked_count, 2);
}
