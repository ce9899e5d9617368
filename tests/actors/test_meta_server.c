/* test_meta_server.c - a round as the server sees it: order, barriers, deadlines, the journal. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "runtime/log.h"
#include "tests/actors/puppets.h"

static struct world w;

static void close_world(void)
{
    world_close(&w);
}

TestSuite(meta_server, .fini = close_world);

/* --- the good way ------------------------------------------------------------------------------
 */
Test(meta_server, a_version_commits_and_is_released)
{
    world_open(&w, 2, 2, NULL);
    world_start(&w);
    world_commit(&w, 1);
    world_commit(&w, 2);
    const struct wf_frame *frame = puppet_expect(world_infer(&w, 0), WF_FRAME_lease);
    cr_assert_gt(frame->lease.term, 0);
}

Test(meta_server, flip_waits_for_all_to_be_quiesced_and_resume_for_all_to_flip)
{
    world_open(&w, 1, 2, NULL);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0), *b = world_infer(&w, 1);
    puppet_publish(world_train(&w), 1);
    struct wf_round_key key = puppet_open(a);
    puppet_vote(a, key, true);
    puppet_refuses(a, WF_FRAME_decide, 100 * PUPPET_MS);
    puppet_vote(b, key, true);
    puppet_expect(a, WF_FRAME_decide);
    puppet_key(a, WF_FRAME_quiesced, key);
    puppet_refuses(a, WF_FRAME_flip, 100 * PUPPET_MS);
    puppet_key(b, WF_FRAME_quiesced, key);
    puppet_expect(a, WF_FRAME_flip);
    puppet_flipped(a, key);
    puppet_refuses(a, WF_FRAME_resume, 100 * PUPPET_MS);
    puppet_refuses(world_train(&w), WF_FRAME_released, 100 * PUPPET_MS);
    puppet_flipped(b, key);
    puppet_expect(a, WF_FRAME_resume);
    puppet_expect(b, WF_FRAME_resume);
    puppet_expect(world_train(&w), WF_FRAME_released);
}

Test(meta_server, under_each_an_engine_does_not_wait_for_another)
{
    const struct wf_server_options options = {.policy = WF_COMMIT_EACH};
    world_open(&w, 2, 1, &options);
    world_start(&w);
    struct puppet *fast = world_infer(&w, 0), *slow = world_infer(&w, 1);
    puppet_publish(world_train(&w), 1);
    struct wf_round_key key = puppet_open(fast);
    puppet_vote(fast, key, true);
    puppet_expect(fast, WF_FRAME_decide);
    puppet_key(fast, WF_FRAME_quiesced, key);
    puppet_expect(fast, WF_FRAME_flip);
    puppet_flipped(fast, key);
    puppet_expect(fast, WF_FRAME_resume);
    puppet_resumed(fast, key);
    /* A PUBLISH repeated after a reconnect must not end the hold: the other engine still reads. */
    puppet_publish(world_train(&w), 1);
    puppet_refuses(world_train(&w), WF_FRAME_released, 300 * PUPPET_MS);
    puppet_vote(slow, key, false);
    puppet_expect(slow, WF_FRAME_abort);
    puppet_refuses(world_train(&w), WF_FRAME_released, 100 * PUPPET_MS);
    puppet_key(slow, WF_FRAME_aborted, key);
    const struct wf_frame *frame = puppet_expect(world_train(&w), WF_FRAME_released);
    cr_assert_eq(frame->released.engines_count, 1);
    cr_assert_eq(frame->released.engines[0].engine, 0);
}

/* --- aborts -------------------------------------------------------------------------------------
 */
Test(meta_server, an_abort_is_a_barrier_and_names_who_is_to_blame)
{
    world_open(&w, 2, 1, NULL);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0), *b = world_infer(&w, 1);
    puppet_publish(world_train(&w), 1);
    struct wf_round_key key = puppet_open(a);
    puppet_vote(a, key, false);
    const struct wf_frame *frame = puppet_expect(b, WF_FRAME_abort);
    cr_assert_str_eq(frame->abort.culprit.reason, "did not like it");
    puppet_expect(a, WF_FRAME_abort);
    puppet_key(a, WF_FRAME_aborted, key);
    puppet_refuses(world_train(&w), WF_FRAME_round_aborted, 200 * PUPPET_MS);
    cr_assert_eq(puppet_count(a, WF_FRAME_open), 1, "opened again before the barrier");
    puppet_key(b, WF_FRAME_aborted, key);
    frame = puppet_expect(world_train(&w), WF_FRAME_round_aborted);
    cr_assert_eq(frame->round_aborted.again, 1);
    cr_assert_str_eq(frame->round_aborted.culprit.reason, "did not like it");
    struct wf_round_key second = puppet_open(a);
    cr_assert_eq(second.attempt, key.attempt + 1);
    cr_assert_eq(wf_version_compare(second.version, key.version), 0);
}

Test(meta_server, a_version_is_given_up_after_its_attempts)
{
    const struct wf_server_options options = {.attempts_max = 2};
    world_open(&w, 1, 1, &options);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0);
    puppet_publish(world_train(&w), 1);
    for (uint64_t attempt = 1; attempt <= 2; attempt++) {
        struct wf_round_key key = puppet_open(a);
        cr_assert_eq(key.attempt, attempt);
        puppet_vote(a, key, false);
        puppet_expect(a, WF_FRAME_abort);
        puppet_key(a, WF_FRAME_aborted, key);
        const struct wf_frame *frame = puppet_expect(world_train(&w), WF_FRAME_round_aborted);
        cr_assert_eq(frame->round_aborted.again, attempt == 1);
    }
    puppet_refuses(a, WF_FRAME_open, 500 * PUPPET_MS);
    world_commit(&w, 2);
}

Test(meta_server, who_does_not_vote_in_time_is_named)
{
    world_open(&w, 2, 1, NULL);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0), *b = world_infer(&w, 1);
    puppet_publish(world_train(&w), 1);
    puppet_vote(a, puppet_open(a), true);
    const struct wf_frame *frame = puppet_expect(a, WF_FRAME_abort);
    char text[WF_CULPRIT_TEXT], version[WF_VERSION_TEXT], expected[200];
    wf_culprit_format(&frame->abort.culprit, text);
    wf_version_format(frame->abort.round.version, version);
    snprintf(expected, sizeof expected,
             "infer rank 1 (host here, engine 1) did not vote on version %s within 2 s", version);
    cr_assert_str_eq(text, expected);
    puppet_expect(b, WF_FRAME_abort);
}

Test(meta_server, who_runs_out_of_time_may_name_whom_it_waited_for)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0);
    puppet_publish(world_train(&w), 1);
    struct wf_round_key key = puppet_open(a);
    world_run(&w, 2050 * PUPPET_MS); /* the round's time, and its vote's way */
    puppet_vote(a, key, false);
    const struct wf_frame *frame = puppet_expect(a, WF_FRAME_abort);
    cr_assert_str_eq(frame->abort.culprit.reason, "did not like it");
}

Test(meta_server, only_the_exact_key_counts)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0);
    puppet_publish(world_train(&w), 1);
    struct wf_round_key key = puppet_open(a);
    struct wf_round_key wrong[] = {key, key, key, key};
    wrong[0].attempt++;
    wrong[1].epoch++;
    wrong[2].version.step++;
    wrong[3].models = 2;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        puppet_vote(a, wrong[i], true);
    }
    puppet_refuses(a, WF_FRAME_decide, 100 * PUPPET_MS);
    puppet_vote(a, key, true);
    puppet_expect(a, WF_FRAME_decide);
    puppet_key(a, WF_FRAME_quiesced, wrong[0]);
    puppet_refuses(a, WF_FRAME_flip, 100 * PUPPET_MS);
}

/* --- repeating -----------------------------------------------------------------------------------
 */
Test(meta_server, what_is_not_answered_is_repeated)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0), *train = world_train(&w);
    puppet_publish(train, 1);
    struct wf_round_key key = puppet_open(a);
    puppet_expect(a, WF_FRAME_open);
    puppet_expect(train, WF_FRAME_open);
    puppet_expect(train, WF_FRAME_open);
    puppet_vote(a, key, true);
    puppet_expect(a, WF_FRAME_decide);
    puppet_expect(a, WF_FRAME_decide);
    puppet_key(a, WF_FRAME_quiesced, key);
    puppet_expect(a, WF_FRAME_flip);
    puppet_expect(a, WF_FRAME_flip);
    puppet_flipped(a, key);
    puppet_expect(a, WF_FRAME_resume);
    puppet_expect(a, WF_FRAME_resume);
    puppet_resumed(a, key);
    puppet_expect(train, WF_FRAME_released);
    puppet_expect(train, WF_FRAME_released);
    puppet_key(train, WF_FRAME_told, key);
    world_run(&w, 50 * PUPPET_MS);
    puppet_refuses(train, WF_FRAME_released, 1000 * PUPPET_MS);
    puppet_refuses(a, WF_FRAME_resume, 500 * PUPPET_MS);
}

Test(meta_server, a_connection_that_breaks_loses_nothing)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0);
    puppet_publish(world_train(&w), 1);
    struct wf_round_key key = puppet_open(a);
    puppet_drop(a);
    a->hello.term = a->frames[0].challenge.term;
    puppet_connect(a);
    const struct wf_frame *frame = puppet_expect(a, WF_FRAME_welcome);
    cr_assert_eq(frame->welcome.clean, 0);
    cr_assert(wf_round_key_equal(&puppet_expect(a, WF_FRAME_open)->open.round, &key));
    puppet_vote(a, key, true);
    puppet_expect(a, WF_FRAME_decide);
}

/* --- leases
 * --------------------------------------------------------------------------------------- */
Test(meta_server, a_silent_member_is_fenced_and_readmitted_between_rounds)
{
    world_open(&w, 2, 1, NULL);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0), *b = world_infer(&w, 1);
    puppet_publish(world_train(&w), 1);
    struct wf_round_key key = puppet_open(a);
    puppet_vote(a, key, true);
    b->silent = true;
    const struct wf_frame *frame = puppet_expect(a, WF_FRAME_abort);
    cr_assert_eq(frame->abort.culprit.rank, 1);
    cr_assert(strstr(frame->abort.culprit.reason, "nothing was heard of it for 675 ms") != NULL,
              "%s", frame->abort.culprit.reason);
    uint32_t welcomes = puppet_count(b, WF_FRAME_welcome);
    b->silent = false;
    world_run(&w, 300 * PUPPET_MS);
    cr_assert_eq(puppet_count(b, WF_FRAME_welcome), welcomes, "readmitted during the round");
    puppet_key(a, WF_FRAME_aborted, key);
    b->seen = b->frame_count;
    frame = puppet_expect(b, WF_FRAME_welcome);
    cr_assert_eq(frame->welcome.clean, 1);
    cr_assert(wf_round_key_compare(&frame->welcome.round, &key) >= 0);
}

Test(meta_server, after_the_decision_a_lost_rank_keeps_its_engine_paused_until_it_is_filled)
{
    const struct wf_server_options options = {.fill = WF_FILL_TRAINER};
    world_open(&w, 1, 2, &options);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0), *b = world_infer(&w, 1), *train = world_train(&w);
    puppet_publish(train, 1);
    struct wf_round_key key = puppet_open(a);
    puppet_vote(a, key, true);
    puppet_vote(b, key, true);
    puppet_expect(a, WF_FRAME_decide);
    puppet_key(a, WF_FRAME_quiesced, key);
    puppet_drop(b); /* dies; a new incarnation knows nothing */
    b->hello.incarnation++;
    b->live = (struct wf_version){0};
    puppet_connect(b);
    puppet_expect(a, WF_FRAME_flip);
    puppet_flipped(a, key);
    puppet_expect(train, WF_FRAME_released);
    puppet_key(train, WF_FRAME_told, key);
    puppet_refuses(a, WF_FRAME_resume, 300 * PUPPET_MS);
    const struct wf_frame_idle idle = {.version = key.version};
    puppet_send(train, WF_FRAME_idle, &idle);
    b->seen = 0;
    const struct wf_frame *frame = NULL;
    do { /* the first round's OPEN was for the first incarnation */
        frame = puppet_expect(b, WF_FRAME_open);
    } while (wf_round_key_equal(&frame->open.round, &key));
    cr_assert_eq(frame->open.fill, 1);
    cr_assert_eq(frame->open.members_count, 2, "the train rank and the one that lacks it");
    struct wf_round_key fill = frame->open.round;
    cr_assert_gt(wf_round_key_compare(&fill, &key), 0);
    puppet_vote(b, fill, true);
    puppet_expect(b, WF_FRAME_decide);
    puppet_key(b, WF_FRAME_quiesced, fill);
    puppet_expect(b, WF_FRAME_flip);
    puppet_flipped(b, fill);
    puppet_expect(a, WF_FRAME_resume);
    puppet_expect(b, WF_FRAME_resume);
}

/* --- the journal
 * ------------------------------------------------------------------------------------ */
Test(meta_server, the_journal_is_written_in_the_order_that_recovery_needs)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    world_commit(&w, 1);
    static const enum wf_journal_kind wanted[] = {WF_JOURNAL_TERM, WF_JOURNAL_GENERATION,
                                                  WF_JOURNAL_OPEN, WF_JOURNAL_DECIDE};
    size_t at = 0;
    for (uint32_t i = 0; i < w.record_count && at < 4; i++) {
        at += w.records[i].kind == wanted[at];
    }
    cr_assert_eq(at, 4, "record %zu is missing or late", at);
}

static const struct {
    const char *name;
    enum wf_journal_kind fails;
    enum wf_frame_type never; /* what must not be sent then */
} journal_rows[] = {
    {"generation", WF_JOURNAL_GENERATION, WF_FRAME_generation},
    {"open", WF_JOURNAL_OPEN, WF_FRAME_open},
    {"decide", WF_JOURNAL_DECIDE, WF_FRAME_decide},
};

Test(meta_server, what_cannot_be_journalled_is_not_said)
{
    for (size_t i = 0; i < sizeof journal_rows / sizeof journal_rows[0]; i++) {
        const char *name = journal_rows[i].name;
        world_open(&w, 1, 1, NULL);
        w.fails = true;
        w.journal_fails = journal_rows[i].fails;
        for (uint32_t p = 0; p < w.puppet_count; p++) {
            puppet_connect(&w.puppets[p]);
        }
        if (journal_rows[i].fails != WF_JOURNAL_GENERATION) {
            puppet_expect(world_train(&w), WF_FRAME_generation);
            puppet_publish(world_train(&w), 1);
        }
        if (journal_rows[i].fails == WF_JOURNAL_DECIDE) {
            puppet_vote(world_infer(&w, 0), puppet_open(world_infer(&w, 0)), true);
        }
        world_run(&w, 100 * PUPPET_MS);
        cr_expect(w.ended && strstr(w.why.text, "the journal cannot be written") != NULL, "%s: %s",
                  name, w.why.text);
        cr_expect_eq(puppet_count(world_infer(&w, 0), WF_FRAME_refused), 0,
                     "%s: the rank would end, and no server could go on with it", name);
        cr_expect_eq(puppet_count(world_train(&w), journal_rows[i].never) +
                         puppet_count(world_infer(&w, 0), journal_rows[i].never),
                     0, "%s", name);
        if (i + 1 < sizeof journal_rows / sizeof journal_rows[0]) {
            world_close(&w);
        }
    }
}

/* --- the policy and the end
 * -------------------------------------------------------------------------- */
Test(meta_server, every_n_skips_steps)
{
    const struct wf_server_options options = {.every = 2};
    world_open(&w, 1, 1, &options);
    world_start(&w);
    world_commit(&w, 1); /* the first always */
    world_commit(&w, 2);
    struct puppet *train = world_train(&w);
    puppet_publish(train, 3);
    const struct wf_frame *frame = puppet_expect(train, WF_FRAME_released);
    cr_assert_eq(frame->released.round.version.step, 3);
    cr_assert_eq(frame->released.round.attempt, 0);
    cr_assert_eq(frame->released.engines_count, 0);
    cr_assert_eq(frame->released.version.step, 2);
    puppet_key(train, WF_FRAME_told, frame->released.round);
    world_commit(&w, 4);
}

Test(meta_server, drop_to_latest_drops_a_round_but_not_two_in_a_row)
{
    const struct wf_server_options options = {.drop_to_latest = true};
    world_open(&w, 1, 1, &options);
    world_start(&w);
    struct puppet *train = world_train(&w), *a = world_infer(&w, 0);
    puppet_publish(train, 1);
    struct wf_round_key first = puppet_open(a);
    puppet_publish(train, 2);
    const struct wf_frame *frame = puppet_expect(a, WF_FRAME_abort);
    cr_assert_eq(frame->abort.culprit.side, WF_CULPRIT_NOBODY);
    puppet_key(a, WF_FRAME_aborted, first);
    frame = puppet_expect(train, WF_FRAME_round_aborted);
    cr_assert_eq(frame->round_aborted.again, 0);
    cr_assert_eq(frame->round_aborted.culprit.side, WF_CULPRIT_NOBODY);
    char newer[WF_VERSION_TEXT];
    wf_version_format((struct wf_version){first.version.term, first.version.counter, 2}, newer);
    cr_assert_str_eq(frame->round_aborted.culprit.object, newer);
    struct wf_round_key second = puppet_open(a);
    cr_assert_eq(second.version.step, 2);
    puppet_publish(train, 3);
    puppet_refuses(a, WF_FRAME_abort, 300 * PUPPET_MS);
    puppet_vote(a, second, true);
    puppet_expect(a, WF_FRAME_decide);
}

Test(meta_server, weights_of_another_layout_than_the_plan_s_are_refused)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    world_commit(&w, 1);
    struct wf_version live = world_infer(&w, 0)->live;
    const struct wf_frame_publish publish = {
        .version = {live.term, live.counter, 2}, .layout = {1, 2}, .models = 1};
    puppet_send(world_train(&w), WF_FRAME_publish, &publish);
    const struct wf_frame *frame = puppet_expect(world_infer(&w, 0), WF_FRAME_refused);
    cr_assert_eq(frame->refused.status, WF_DISAGREE);
    cr_assert(strstr(frame->refused.text, "train rank 0") != NULL, "%s", frame->refused.text);
}

Test(meta_server, the_job_ends_when_all_is_done_and_waits_for_goodbyes)
{
    world_open(&w, 1, 1, NULL);
    struct puppet *observer = world_guest(&w, NULL);
    world_start(&w);
    world_commit(&w, 1);
    struct wf_version version = world_infer(&w, 0)->live;
    const struct wf_frame_idle idle = {.version = version};
    puppet_send(world_train(&w), WF_FRAME_idle, &idle);
    puppet_expect(world_train(&w), WF_FRAME_leave);
    puppet_expect(world_infer(&w, 0), WF_FRAME_leave);
    puppet_expect(observer, WF_FRAME_leave);
    const struct wf_frame_note note = {.rank = 77, .elements_checked = 5};
    puppet_send(world_infer(&w, 0), WF_FRAME_note, &note);
    const struct wf_frame *frame = puppet_expect(observer, WF_FRAME_note);
    cr_assert_eq(frame->note.rank, 0, "a rank speaks for itself");
    cr_assert_eq(frame->note.side, WF_INFER);
    cr_assert_not(w.ended);
    puppet_drop(world_train(&w));
    const struct wf_frame_leave leave = {.reason = "done"};
    puppet_send(world_infer(&w, 0), WF_FRAME_leave, &leave);
    world_run(&w, 50 * PUPPET_MS);
    cr_assert(w.ended);
    cr_assert_eq(w.why.status, WF_CLOSED);
    cr_assert(strstr(w.why.text, "the job is complete: every engine has version") != NULL, "%s",
              w.why.text);
}

Test(meta_server, the_end_does_not_wait_for_the_goodbye_of_a_silent_rank)
{
    world_open(&w, 2, 1, NULL);
    world_start(&w);
    world_commit(&w, 1);
    const struct wf_frame_idle idle = {.version = world_infer(&w, 0)->live};
    const struct wf_frame_leave leave = {.reason = "done"};
    puppet_send(world_train(&w), WF_FRAME_idle, &idle);
    puppet_expect(world_infer(&w, 1), WF_FRAME_leave);
    world_infer(&w, 1)->silent = true; /* frozen: it neither answers nor closes */
    puppet_send(world_train(&w), WF_FRAME_leave, &leave);
    puppet_send(world_infer(&w, 0), WF_FRAME_leave, &leave);
    world_run(&w, 300 * PUPPET_MS);
    cr_assert_not(w.ended, "its lease still runs");
    world_run(&w, 1000 * PUPPET_MS);
    cr_assert(w.ended);
}

/* --- the end ---------------------------------------------------------------------------------- */
struct heard {
    struct wf_log_sink sink; /* first */
    char text[2000];
};

static void hear(struct wf_log_sink *sink, enum wf_log_level level, const char *line, size_t len)
{
    struct heard *heard = (struct heard *)sink;
    if (level == WF_LOG_WARN) {
        snprintf(heard->text, sizeof heard->text, "%.*s", (int)len, line);
    }
}

Test(meta_server, an_end_that_cannot_be_journalled_is_told)
{
    struct heard heard = {.sink = {.write = hear}};
    struct wf_log log;
    world_open(&w, 1, 1, NULL);
    wf_log_init(&log, &heard.sink, wf_loop_env(w.server_loop), WF_LOG_WARN, "server");
    wf_loop_set_log(w.server_loop, &log);
    world_start(&w);
    w.fails = true;
    w.journal_fails = WF_JOURNAL_END;
    wf_meta_server_close(w.server, "enough");
    puppet_drop(world_train(&w));
    puppet_drop(world_infer(&w, 0));
    world_run(&w, 1000 * PUPPET_MS);
    cr_assert(w.ended);
    cr_expect_not_null(strstr(heard.text, "its end cannot be journalled"), "%s", heard.text);
    wf_loop_set_log(w.server_loop, NULL);
}

/* --- options ---------------------------------------------------------------------------------- */
static const struct {
    const char *name;
    uint32_t engine_of[2];
    uint32_t engines;
    const char *says;
} option_rows[] = {
    {"beyond the last engine", {0, 2}, 2, "infer rank 1 is in engine 2 of 2"},
    {"an engine without a rank", {0, 2}, 3, "engine 1 of 3 has no rank"},
    {"the last engine without a rank", {0, 0}, 2, "engine 1 of 2 has no rank"},
};

Test(meta_server, engines_are_checked)
{
    world_open(&w, 1, 1, NULL);
    for (size_t i = 0; i < sizeof option_rows / sizeof option_rows[0]; i++) {
        const struct wf_server_options options = {.job = "job",
                                                  .listen = "another",
                                                  .train_ranks = 1,
                                                  .infer_ranks = 2,
                                                  .engines = option_rows[i].engines,
                                                  .engine_of = option_rows[i].engine_of,
                                                  .timeouts = wf_timeouts_default};
        struct wf_meta_server *server = NULL;
        char bound[WF_ADDRESS_MAX];
        struct wf_error error = {0};
        cr_expect_eq(wf_meta_server_new(w.server_loop, &options, bound, &server, &error),
                     WF_INVALID, "%s", option_rows[i].name);
        cr_expect_not_null(strstr(error.text, option_rows[i].says), "%s: %s", option_rows[i].name,
                           error.text);
    }
}
