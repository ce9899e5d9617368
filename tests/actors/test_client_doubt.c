/* test_client_doubt.c - a trainer's own deadline: told once, the hold goes on, the outcome settles.
 */
#include <criterion/criterion.h>

#include "tests/actors/client_world.h"

static struct client_world w;

static void close_world(void)
{
    client_close(&w);
}

TestSuite(doubt, .fini = close_world);

enum { WITHIN_MS = 200 };

static enum wf_status publish(uint64_t step)
{
    return wf_client_publish(w.client, step, "label", WITHIN_MS * CLIENT_MS, NULL);
}

static void generation(uint64_t counter)
{
    const struct wf_frame_generation frame = {
        .term = w.term, .generation_term = w.term, .counter = counter};
    client_send(&w, WF_FRAME_generation, &frame);
    client_expect(&w, WF_FRAME_told);
    client_run(&w, 5 * CLIENT_MS);
}

static void start(enum wf_publish_mode mode)
{
    client_open(&w, WF_TRAIN, mode);
    client_join(&w);
    generation(1);
    cr_assert_eq(publish(1), WF_OK);
}

static void copied(void)
{
    client_answer(&w, &w.sender, WF_LOCAL_SNAPSHOT_DONE,
                  client_asked(&w, &w.sender, WF_LOCAL_SNAPSHOT), WF_OK);
}

static void open_round(void)
{
    const struct wf_frame_open open = {.round = client_key(&w, 1, 1),
                                       .deadline_ns = 1000 * CLIENT_MS};
    client_send(&w, WF_FRAME_open, &open);
    client_asked(&w, &w.sender, WF_LOCAL_GRANT);
}

static void release(void)
{
    struct wf_el_unit unit = {0};
    const struct wf_frame_released frame = {.round = client_key(&w, 1, 1),
                                            .version = client_version(&w, 1),
                                            .engines = &unit,
                                            .engines_count = 1};
    client_send(&w, WF_FRAME_released, &frame);
    client_expect(&w, WF_FRAME_told);
    client_run(&w, 5 * CLIENT_MS);
}

static void give_up(bool again)
{
    const struct wf_frame_round_aborted frame = {.round = client_key(&w, 1, 1), .again = again};
    client_send(&w, WF_FRAME_round_aborted, &frame);
    client_expect(&w, WF_FRAME_told);
    client_run(&w, 5 * CLIENT_MS);
}

Test(doubt, then_it_is_committed)
{
    start(WF_PUBLISH_HOLD);
    client_expect(&w, WF_FRAME_publish);
    client_run(&w, (WITHIN_MS + 50) * CLIENT_MS);
    cr_assert_eq(w.doubts, 1);
    cr_assert_eq(w.doubted.step, 1);
    cr_assert_eq(publish(2), WF_AGAIN, "the hold goes on");
    open_round(); /* and it may be read */
    release();
    cr_assert_eq(w.releases, 1);
    client_run(&w, 2 * WITHIN_MS * CLIENT_MS);
    cr_assert_eq(w.doubts, 1, "told once");
    cr_assert_eq(publish(2), WF_OK);
}

Test(doubt, then_it_is_given_up)
{
    start(WF_PUBLISH_HOLD);
    open_round();
    client_run(&w, (WITHIN_MS + 50) * CLIENT_MS);
    cr_assert_eq(w.doubts, 1);
    cr_assert_eq(publish(2), WF_AGAIN);
    give_up(false);
    cr_assert_eq(w.aborts, 1);
    cr_assert_eq(publish(2), WF_OK);
}

static const struct {
    const char *name;
    enum wf_publish_mode mode;
    void (*ends)(void);
} over[] = {
    {"released", WF_PUBLISH_HOLD, release},
    {"snapshot released", WF_PUBLISH_SNAPSHOT, release},
};

Test(doubt, no_doubt_about_what_is_over)
{
    for (size_t i = 0; i < sizeof over / sizeof over[0]; i++) {
        start(over[i].mode);
        if (over[i].mode == WF_PUBLISH_SNAPSHOT) {
            copied();
        }
        open_round();
        over[i].ends();
        client_run(&w, 2 * WITHIN_MS * CLIENT_MS);
        cr_expect_eq(w.doubts, 0, "%s", over[i].name);
        if (i == 0) {
            client_close(&w);
        }
    }
}

static const struct {
    const char *name;
    uint64_t within_ns; /* of the version that takes the slot */
} takers[] = {
    {"later deadline", 10 * WITHIN_MS *CLIENT_MS},
    {"no deadline", 0},
};

Test(doubt, a_dropped_version_takes_its_own_doubt_along)
{
    for (size_t i = 0; i < sizeof takers / sizeof takers[0]; i++) {
        if (i > 0) {
            client_close(&w);
        }
        start(WF_PUBLISH_SNAPSHOT);
        w.client->drop_to_latest = true;
        copied();
        open_round();
        cr_assert_eq(publish(2), WF_OK);
        copied();
        cr_assert_eq(wf_client_publish(w.client, 3, "", takers[i].within_ns, NULL), WF_OK);
        copied(); /* over version 2: version 1 is read */
        client_run(&w, 2 * WITHIN_MS * CLIENT_MS);
        cr_expect_eq(w.doubts, 1, "%s", takers[i].name);
        cr_expect_eq(w.doubted.step, 1, "%s", takers[i].name);
    }
}

Test(doubt, an_attempt_that_is_repeated_settles_nothing)
{
    start(WF_PUBLISH_HOLD);
    open_round();
    give_up(true);
    client_run(&w, (WITHIN_MS + 50) * CLIENT_MS);
    cr_assert_eq(w.doubts, 1);
}

Test(doubt, a_new_generation_takes_the_version_back)
{
    start(WF_PUBLISH_HOLD);
    generation(2);
    client_run(&w, 2 * WITHIN_MS * CLIENT_MS);
    cr_assert_eq(w.doubts, 0);
}
