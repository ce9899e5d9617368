/* test_meta_in_place.c - members that read in place, as the server sees them: PERMIT after all
 * pauses, what they hold after an abort, and who may not be of two modes; and fills from a replica,
 * by which a dirty engine comes back. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/actors/puppets.h"

static struct world w;

static void close_world(void)
{
    world_close(&w);
}

TestSuite(meta_in_place, .fini = close_world);

static void start(uint32_t engines, uint32_t per_engine, enum wf_commit_policy policy)
{
    const struct wf_server_options options = {.policy = policy};
    world_open(&w, engines, per_engine, &options);
    for (uint32_t i = 0; i < engines * per_engine; i++) {
        world_infer(&w, i)->hello.mode = WF_MODE_IN_PLACE;
    }
    world_start(&w);
}

/* The pause, for all infer ranks; gives the key. */
static struct wf_round_key pause_all(uint64_t step)
{
    struct wf_round_key key = {0};
    puppet_publish(world_train(&w), step);
    for (uint32_t i = 0; i < w.infer_ranks; i++) {
        key = puppet_open(world_infer(&w, i));
        puppet_key(world_infer(&w, i), WF_FRAME_quiesced, key);
    }
    for (uint32_t i = 0; i < w.infer_ranks; i++) {
        cr_assert(wf_round_key_equal(
            &puppet_expect(world_infer(&w, i), WF_FRAME_permit)->permit.round, &key));
    }
    return key;
}

/* Everything from PERMIT to RESUMED. */
static void commit(struct wf_round_key key)
{
    for (uint32_t i = 0; i < w.infer_ranks; i++) {
        puppet_vote(world_infer(&w, i), key, true);
    }
    for (uint32_t i = 0; i < w.infer_ranks; i++) {
        struct puppet *rank = world_infer(&w, i);
        puppet_expect(rank, WF_FRAME_decide);
        puppet_refuses(rank, WF_FRAME_flip, 50 * PUPPET_MS);
        puppet_key(rank, WF_FRAME_quiesced, key);
    }
    for (uint32_t i = 0; i < w.infer_ranks; i++) {
        puppet_expect(world_infer(&w, i), WF_FRAME_flip);
        puppet_flipped(world_infer(&w, i), key);
    }
    for (uint32_t i = 0; i < w.infer_ranks; i++) {
        puppet_expect(world_infer(&w, i), WF_FRAME_resume);
        puppet_resumed(world_infer(&w, i), key);
    }
    puppet_expect(world_train(&w), WF_FRAME_released);
    puppet_key(world_train(&w), WF_FRAME_told, key);
}

static const struct {
    const char *name;
    enum wf_commit_policy policy;
    bool other_waits; /* the other engine's ranks are paused, and yet not permitted */
} permit_rows[] = {
    {"all: one unit", WF_COMMIT_ALL, true},
    {"each: a unit for each engine", WF_COMMIT_EACH, false},
};

Test(meta_in_place, permit_comes_when_the_unit_is_paused)
{
    for (size_t i = 0; i < sizeof permit_rows / sizeof permit_rows[0]; i++) {
        start(2, 2, permit_rows[i].policy);
        struct puppet *late = world_infer(&w, 3);
        struct wf_round_key key = {0};
        puppet_publish(world_train(&w), 1);
        for (uint32_t r = 0; r < 4; r++) {
            key = puppet_open(world_infer(&w, r));
            if (r < 3) {
                puppet_key(world_infer(&w, r), WF_FRAME_quiesced, key);
            }
        }
        puppet_refuses(world_infer(&w, 2), WF_FRAME_permit, 100 * PUPPET_MS);
        cr_expect_eq(puppet_count(world_infer(&w, 0), WF_FRAME_permit) == 0,
                     permit_rows[i].other_waits, "%s", permit_rows[i].name);
        puppet_key(late, WF_FRAME_quiesced, key);
        for (uint32_t r = 0; r < 4; r++) {
            puppet_expect(world_infer(&w, r), WF_FRAME_permit);
        }
        commit(key);
        if (i == 0) {
            world_close(&w);
        }
    }
}

Test(meta_in_place, an_untouched_engine_resumes_after_an_abort_and_a_dirty_one_waits)
{
    start(2, 1, WF_COMMIT_ALL);
    struct puppet *untouched = world_infer(&w, 0), *dirty = world_infer(&w, 1);
    commit(pause_all(1));
    struct wf_round_key key = pause_all(2);
    puppet_vote(dirty, key, false);
    puppet_expect(dirty, WF_FRAME_abort);
    puppet_expect(untouched, WF_FRAME_abort);
    dirty->live = (struct wf_version){0};
    puppet_key(dirty, WF_FRAME_aborted, key);
    puppet_key(untouched, WF_FRAME_aborted, key);
    cr_assert_eq(puppet_expect(untouched, WF_FRAME_resume)->resume.version.step, 1);
    cr_assert_eq(puppet_count(dirty, WF_FRAME_resume), 1, "of version 1: it holds none now");
    key = puppet_open(dirty); /* the next attempt makes it whole */
    cr_assert_eq(key.attempt, 2);
    puppet_key(dirty, WF_FRAME_quiesced, key);
    puppet_key(untouched, WF_FRAME_quiesced, puppet_open(untouched));
    puppet_expect(dirty, WF_FRAME_permit);
    commit(key);
}

Test(meta_in_place, who_does_not_pause_in_time_is_named_and_left_out)
{
    start(2, 1, WF_COMMIT_ALL);
    commit(pause_all(1));
    struct puppet *good = world_infer(&w, 0), *stuck = world_infer(&w, 1);
    puppet_publish(world_train(&w), 2);
    puppet_key(good, WF_FRAME_quiesced, puppet_open(good));
    const struct wf_round_key first = puppet_open(stuck);
    struct wf_round_key key = first;
    const struct wf_frame *frame = puppet_expect(stuck, WF_FRAME_abort);
    char text[WF_CULPRIT_TEXT];
    wf_culprit_format(&frame->abort.culprit, text);
    cr_assert_not_null(strstr(text, "infer rank 1 (host here, engine 1) did not stop serving for"),
                       "%s", text);
    cr_assert_eq(puppet_count(good, WF_FRAME_permit), 1, "of version 1");
    puppet_key(good, WF_FRAME_aborted, key);
    puppet_key(stuck, WF_FRAME_aborted, key);
    while (wf_round_key_equal(&key, &first)) { /* the first was repeated meanwhile */
        key = puppet_open(good);
    }
    puppet_key(good, WF_FRAME_quiesced, key);
    puppet_expect(good, WF_FRAME_permit);
    puppet_refuses(stuck, WF_FRAME_open, 100 * PUPPET_MS);
}

Test(meta_in_place, what_is_lost_is_repeated)
{
    start(1, 1, WF_COMMIT_ALL);
    struct puppet *rank = world_infer(&w, 0);
    struct wf_round_key key = pause_all(1);
    uint32_t permits = puppet_count(rank, WF_FRAME_permit);
    puppet_expect(rank, WF_FRAME_open);
    puppet_expect(rank, WF_FRAME_permit);
    cr_assert_gt(puppet_count(rank, WF_FRAME_permit), permits);
    commit(key);
}

Test(meta_in_place, one_engine_has_one_mode)
{
    world_open(&w, 1, 2, NULL);
    world_infer(&w, 0)->hello.mode = WF_MODE_IN_PLACE;
    puppet_connect(world_infer(&w, 0));
    world_run(&w, 50 * PUPPET_MS);
    puppet_connect(world_infer(&w, 1));
    const struct wf_frame *frame = puppet_expect(world_infer(&w, 1), WF_FRAME_refused);
    cr_assert_str_eq(frame->refused.text,
                     "infer rank 1 is staged, infer rank 0 of the same engine is not: give all "
                     "its ranks one mode");
}

/* --- fills from a replica ------------------------------------------------------------------------
 */
/* Engine 0's rank dies and comes back empty; the trainer has moved on. Gives the fill's OPEN. */
static const struct wf_frame_open *lose_engine(struct puppet *rank)
{
    puppet_drop(rank);
    rank->hello.incarnation++;
    rank->live = (struct wf_version){0};
    puppet_connect(rank);
    const struct wf_frame *frame = NULL;
    do {
        frame = puppet_expect(rank, WF_FRAME_open);
    } while (!frame->open.fill);
    return &frame->open;
}

Test(meta_in_place, a_replica_fills_and_the_train_side_has_no_part_in_it)
{
    const struct wf_server_options options = {.fill = WF_FILL_ANY};
    world_open(&w, 2, 1, &options);
    world_start(&w);
    struct puppet *lost = world_infer(&w, 0), *replica = world_infer(&w, 1);
    world_commit(&w, 1);
    uint32_t opens = puppet_count(world_train(&w), WF_FRAME_open);
    const struct wf_frame_open *open = lose_engine(lost);
    cr_assert_eq(open->source, 2, "engine 1");
    cr_assert_eq(open->members_count, 2, "the reader and its source");
    const struct wf_round_key fill = open->round;
    const struct wf_frame *frame = NULL;
    do {
        frame = puppet_expect(replica, WF_FRAME_open);
    } while (!wf_round_key_equal(&frame->open.round, &fill));
    puppet_vote(lost, fill, true);
    puppet_expect(lost, WF_FRAME_decide);
    puppet_key(lost, WF_FRAME_quiesced, fill);
    puppet_expect(lost, WF_FRAME_flip);
    puppet_flipped(lost, fill);
    puppet_expect(lost, WF_FRAME_resume);
    puppet_resumed(lost, fill);
    cr_assert_eq(puppet_count(world_train(&w), WF_FRAME_open), opens);
    puppet_refuses(world_train(&w), WF_FRAME_released, 100 * PUPPET_MS);
    cr_assert_eq(puppet_count(replica, WF_FRAME_decide), 1, "of version 1");
    world_commit(&w, 2);
}

Test(meta_in_place, after_a_replica_that_could_not_the_next_one_fills)
{
    const struct wf_server_options options = {.fill = WF_FILL_REPLICA};
    world_open(&w, 3, 1, &options);
    world_start(&w);
    struct puppet *lost = world_infer(&w, 0), *first = world_infer(&w, 1);
    world_commit(&w, 1);
    const struct wf_frame_open *open = lose_engine(lost);
    cr_assert_eq(open->source, 2, "engine 1");
    const struct wf_round_key key = open->round;
    puppet_vote(first, key, false);
    puppet_expect(lost, WF_FRAME_abort);
    puppet_key(lost, WF_FRAME_aborted, key);
    puppet_key(first, WF_FRAME_aborted, key);
    const struct wf_frame *frame = puppet_expect(lost, WF_FRAME_open);
    cr_assert(frame->open.fill);
    cr_assert_gt(wf_round_key_compare(&frame->open.round, &key), 0);
    cr_assert_eq(frame->open.source, 3, "engine 2, not %d", (int)frame->open.source - 1);
    cr_assert_eq(frame->open.members_count, 2);
    cr_assert_eq(frame->open.members[1].engine, 2);
}

Test(meta_in_place, a_version_that_waits_ends_a_fill_from_a_replica)
{
    const struct wf_server_options options = {.fill = WF_FILL_ANY};
    world_open(&w, 2, 1, &options);
    world_start(&w);
    struct puppet *lost = world_infer(&w, 0);
    world_commit(&w, 1);
    const struct wf_round_key fill = lose_engine(lost)->round;
    puppet_publish(world_train(&w), 2);
    const struct wf_frame *frame = puppet_expect(lost, WF_FRAME_abort);
    cr_assert(wf_round_key_equal(&frame->abort.round, &fill));
    cr_assert_eq(frame->abort.culprit.side, WF_CULPRIT_NOBODY, "no fault: the newer one is better");
    cr_assert_not_null(strstr(frame->abort.culprit.reason, "for the newer version"), "%s",
                       frame->abort.culprit.reason);
    puppet_key(lost, WF_FRAME_aborted, fill);
    do {
        frame = puppet_expect(lost, WF_FRAME_open);
    } while (wf_round_key_equal(&frame->open.round, &fill));
    cr_assert_eq(frame->open.round.version.step, 2);
    cr_assert_eq(frame->open.fill, 0);
}
