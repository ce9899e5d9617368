/* test_recover.c - servers that follow another one: what they decide, by journal and by ranks. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/meta_server_internal.h"
#include "tests/actors/puppets.h"

static struct world w;

enum { OLD_TERM = 5 };
static const struct wf_round_key key = {
    .term = OLD_TERM, .epoch = 1, .models = 1, .version = {OLD_TERM, 1, 3}, .attempt = 1};
static const struct wf_version before = {OLD_TERM, 1, 2};

/* The round of the puppets that world_open makes: one train rank, two engines of one rank. */
static struct wf_el_member members[3];

static void make_members(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        const struct puppet *puppet = &w.puppets[i];
        members[i] = (struct wf_el_member){puppet->side, puppet->rank, puppet->engine,
                                           puppet->hello.incarnation};
    }
}

/* What a rank says, in rows: '-' is silent. */
enum say {
    SILENT,
    DOUBT,   /* voted yes, was told nothing */
    TOLD,    /* of DECIDE: `committed` is the version */
    DROPPED, /* knows the round and does not hold it */
    REBORN,  /* a new incarnation */
};

static void say(struct puppet *puppet, enum say what)
{
    struct wf_frame_hello *hello = &puppet->hello;
    puppet->live = before;
    hello->term = OLD_TERM;
    hello->live = hello->committed = before;
    hello->round = key;
    hello->state = what == DOUBT ? WF_RANK_DOUBT : what == TOLD ? WF_RANK_TOLD : WF_RANK_NONE;
    if (what == DOUBT || what == TOLD) {
        hello->members = members;
        hello->members_count = 3;
    }
    if (what == TOLD) {
        hello->committed = key.version;
    }
    if (what == REBORN) {
        hello->incarnation += 500;
        hello->round = (struct wf_round_key){0};
        hello->live = hello->committed = puppet->live = (struct wf_version){0};
        hello->term = 0;
    }
    if (what != SILENT) {
        puppet_connect(puppet);
    }
}

/* The train rank: still holds, was told the commit, or the abort; or is another one. */
enum train { HOLDS, TOLD_COMMIT, TOLD_ABORT, NEW };

static void say_train(struct puppet *puppet, enum train what)
{
    struct wf_frame_hello *hello = &puppet->hello;
    hello->term = OLD_TERM;
    hello->state = WF_TRAINER_HOLD;
    hello->round = key;
    hello->live = key.version;
    hello->committed = what == TOLD_COMMIT ? key.version : before;
    if (what == TOLD_ABORT) {
        hello->aborted = key;
    }
    if (what == NEW) {
        hello->incarnation += 500;
        hello->term = 0;
        hello->state = WF_TRAINER_REBORN;
        hello->round = (struct wf_round_key){0};
        hello->live = hello->committed = (struct wf_version){0};
    }
    puppet_connect(puppet);
}

static const struct {
    const char *name;
    enum wf_commit_policy policy;
    enum train train;
    enum say a, b;
    bool commit_a, commit_b;
} rows[] = {
    {"all in doubt", WF_COMMIT_ALL, HOLDS, DOUBT, DOUBT, true, true},
    {"one in doubt, one silent", WF_COMMIT_ALL, HOLDS, DOUBT, SILENT, true, true},
    {"one in doubt, one reborn proves nothing", WF_COMMIT_ALL, HOLDS, DOUBT, REBORN, true, true},
    {"one dropped it", WF_COMMIT_ALL, HOLDS, DOUBT, DROPPED, false, false},
    {"one was told", WF_COMMIT_ALL, HOLDS, TOLD, DOUBT, true, true},
    {"one was told, one dropped it", WF_COMMIT_ALL, HOLDS, TOLD, DROPPED, true, true},
    {"the train rank was told the abort", WF_COMMIT_ALL, TOLD_ABORT, DOUBT, DOUBT, false, false},
    {"the train rank was told the commit", WF_COMMIT_ALL, TOLD_COMMIT, DOUBT, DROPPED, true, true},
    {"a reborn train rank proves nothing", WF_COMMIT_ALL, NEW, DOUBT, DOUBT, true, true},
    {"each: one told, one in doubt", WF_COMMIT_EACH, HOLDS, TOLD, DOUBT, true, true},
    {"each: one in doubt, one dropped it", WF_COMMIT_EACH, HOLDS, DOUBT, DROPPED, true, false},
    {"each: told the abort, one was told", WF_COMMIT_EACH, TOLD_ABORT, DOUBT, DOUBT, false, false},
};

static void check_current(const char *name, uint32_t engine, bool committed)
{
    struct wf_version want = committed ? key.version : before;
    cr_expect(wf_version_compare(w.server->engines[engine].current, want) == 0,
              "%s: engine %u has step %llu", name, engine,
              (unsigned long long)w.server->engines[engine].current.step);
}

Test(recover, the_ranks_are_the_journal)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct wf_server_options options = {.policy = rows[i].policy, .recover = true};
        world_open(&w, 2, 1, &options);
        make_members();
        say_train(world_train(&w), rows[i].train);
        say(world_infer(&w, 0), rows[i].a);
        say(world_infer(&w, 1), rows[i].b);
        world_run(&w, 2000 * PUPPET_MS);
        cr_assert(!w.ended, "%s: %s", rows[i].name, w.why.text);
        check_current(rows[i].name, 0, rows[i].commit_a);
        check_current(rows[i].name, 1, rows[i].commit_b);
        world_close(&w);
    }
}

/* --- an intact journal --------------------------------------------------------------------------
 */
static const struct {
    const char *name;
    bool decided_a, decided_b;
    enum wf_frame_type notice;
} journals[] = {
    {"OPEN alone", false, false, WF_FRAME_round_aborted},
    {"both decided", true, true, WF_FRAME_released},
    {"one decided", true, false, WF_FRAME_released},
};

/* Whatever ranks believe, the journal decides; they are told when all are past the barrier. */
Test(recover, the_journal_decides)
{
    for (size_t i = 0; i < sizeof journals / sizeof journals[0]; i++) {
        struct wf_journal_engine engines[2] = {
            {.decided = journals[i].decided_a,
             .committed = journals[i].decided_a ? key.version : before},
            {.decided = journals[i].decided_b,
             .committed = journals[i].decided_b ? key.version : before}};
        struct wf_el_member all[3] = {
            {WF_TRAIN, 0, 0, 1}, {WF_INFER, 0, 0, 2}, {WF_INFER, 1, 1, 3}};
        const struct wf_journal_state found = {.term = OLD_TERM,
                                               .epoch = 1,
                                               .generation = {OLD_TERM, 1, 0},
                                               .round = key,
                                               .policy = WF_COMMIT_EACH,
                                               .members = all,
                                               .member_count = 3,
                                               .engines = engines,
                                               .engine_count = 2};
        const struct wf_server_options options = {.policy = WF_COMMIT_EACH, .found = &found};
        world_open(&w, 2, 1, &options);
        make_members();
        cr_assert_gt(w.server->term, OLD_TERM, "%s", journals[i].name);
        say(world_infer(&w, 0), DOUBT);
        say_train(world_train(&w), HOLDS);
        world_run(&w, 100 * PUPPET_MS);
        cr_expect_eq(puppet_count(world_train(&w), journals[i].notice), 0,
                     "%s: told before all were past the barrier", journals[i].name);
        say(world_infer(&w, 1), DOUBT);
        for (uint32_t e = 0; e < 2; e++) {
            const struct wf_frame *welcome = puppet_expect(world_infer(&w, e), WF_FRAME_welcome);
            cr_expect(welcome->welcome.clean && welcome->welcome.term == w.server->term);
            cr_expect(wf_version_compare(welcome->welcome.committed, engines[e].committed) == 0,
                      "%s: engine %u is welcomed with step %llu", journals[i].name, e,
                      (unsigned long long)welcome->welcome.committed.step);
            cr_expect(wf_round_key_compare(&welcome->welcome.round, &key) > 0);
        }
        puppet_expect(world_train(&w), journals[i].notice);
        const struct wf_frame *generation = puppet_expect(world_train(&w), WF_FRAME_generation);
        cr_expect(generation->generation.generation_term == OLD_TERM &&
                      generation->generation.counter == 1,
                  "%s: the generation stays", journals[i].name);
        world_close(&w);
    }
}

static const struct {
    const char *name;
    uint64_t term, step, attempt;
    bool stops;
} copies[] = {
    {"the journal's round", OLD_TERM, 3, 1, false},
    {"an older one", OLD_TERM, 2, 1, false},
    {"a newer one of its term", OLD_TERM, 4, 1, true},
    {"a term that it does not have", OLD_TERM + 1, 3, 1, true},
};

Test(recover, a_copy_of_a_journal_is_not_trusted)
{
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++) {
        const struct wf_journal_state found = {.term = OLD_TERM, .epoch = 1, .round = key};
        const struct wf_server_options options = {.found = &found};
        world_open(&w, 2, 1, &options);
        struct puppet *a = world_infer(&w, 0);
        a->hello.term = copies[i].term;
        a->hello.round = key;
        a->hello.round.term = copies[i].term;
        a->hello.round.version.step = copies[i].step;
        a->hello.round.attempt = copies[i].attempt;
        puppet_connect(a);
        world_run(&w, 200 * PUPPET_MS);
        cr_expect_eq(w.ended, copies[i].stops, "%s: %s", copies[i].name, w.why.text);
        if (copies[i].stops) {
            cr_expect_not_null(strstr(w.why.text, "(is it a copy?)"), "%s", w.why.text);
        }
        world_close(&w);
    }
}

Test(recover, no_server_follows_the_last_term)
{
    world_open(&w, 1, 1, NULL);
    static const uint32_t engine_of[] = {0};
    const struct wf_journal_state found = {.term = WF_TERM_MAX, .epoch = 1};
    const struct wf_server_options options = {.job = "job",
                                              .listen = "another",
                                              .train_ranks = 1,
                                              .infer_ranks = 1,
                                              .engines = 1,
                                              .engine_of = engine_of,
                                              .timeouts = wf_timeouts_default,
                                              .found = &found};
    struct wf_meta_server *server = NULL;
    char bound[WF_ADDRESS_MAX];
    struct wf_error error = {0};
    cr_assert_eq(wf_meta_server_new(w.server_loop, &options, bound, &server, &error), WF_REFUSED);
    cr_assert_not_null(strstr(error.text, "is the last that there is"), "%s", error.text);
    world_close(&w);
}
