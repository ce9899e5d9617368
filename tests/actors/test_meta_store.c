/* test_meta_store.c - fills from versions that lie in files, as the server sees them: when they are
 * a source, who takes part, what a rank that writes them changes. */
#include <criterion/criterion.h>
#include <string.h>

#include "actors/store.h"
#include "tests/actors/puppets.h"

static struct world w;

static void close_world(void)
{
    world_close(&w);
}

TestSuite(meta_store, .fini = close_world);

/* Engine 0's rank dies and comes back empty, after version 1 was committed. */
static struct puppet *lose_engine(void)
{
    struct puppet *rank = world_infer(&w, 0);
    puppet_drop(rank);
    rank->hello.incarnation++;
    rank->live = (struct wf_version){0};
    puppet_connect(rank);
    return rank;
}

static const struct wf_frame_open *expect_fill(struct puppet *rank)
{
    const struct wf_frame *frame = NULL;
    do {
        frame = puppet_expect(rank, WF_FRAME_open);
    } while (!frame->open.fill);
    return &frame->open;
}

static void tell(struct puppet *rank, uint64_t step, bool writing)
{
    struct wf_version version = world_infer(&w, 0)->live;
    for (uint32_t i = 0; i < w.infer_ranks; i++) {
        struct wf_version live = world_infer(&w, i)->live;
        version = live.term != 0 ? live : version;
    }
    version.step = step;
    const struct wf_frame_stored stored = {.version = version, .writing = writing};
    puppet_send(rank, WF_FRAME_stored, &stored);
    world_run(&w, 20 * PUPPET_MS);
}

static void start(uint32_t engines, uint32_t fill)
{
    const struct wf_server_options options = {.fill = fill};
    world_open(&w, engines, 1, &options);
    world_start(&w);
    world_commit(&w, 1);
}

Test(meta_store, only_readers_take_part_and_the_rest_is_as_in_any_fill)
{
    start(2, WF_FILL_STORE);
    struct puppet *observer = world_guest(&w, NULL);
    puppet_connect(observer);
    uint32_t opens = puppet_count(world_train(&w), WF_FRAME_open);
    uint32_t others = puppet_count(world_infer(&w, 1), WF_FRAME_open);
    struct puppet *lost = lose_engine();
    const struct wf_frame_open *open = expect_fill(lost);
    cr_assert_eq(open->source, WF_SOURCE_STORE);
    cr_assert_eq(open->members_count, 1);
    const struct wf_round_key fill = open->round;
    puppet_vote(lost, fill, true);
    const struct wf_frame *progress = NULL;
    do {
        progress = puppet_expect(observer, WF_FRAME_progress);
    } while (progress->progress.done == 0);
    cr_assert_str_eq(progress->progress.phase, "fill");
    cr_assert_eq(progress->progress.of, 1, "one reader, not %llu",
                 (unsigned long long)progress->progress.of);
    puppet_expect(lost, WF_FRAME_decide);
    puppet_key(lost, WF_FRAME_quiesced, fill);
    puppet_expect(lost, WF_FRAME_flip);
    puppet_flipped(lost, fill);
    puppet_expect(lost, WF_FRAME_resume);
    puppet_resumed(lost, fill);
    cr_assert_eq(puppet_count(world_train(&w), WF_FRAME_open), opens);
    cr_assert_eq(puppet_count(world_infer(&w, 1), WF_FRAME_open), others);
    world_commit(&w, 2);
}

Test(meta_store, ranks_that_have_the_version_come_first)
{
    start(2, WF_FILL_ANY | WF_FILL_STORE);
    struct puppet *lost = lose_engine();
    const struct wf_frame_open *open = expect_fill(lost);
    cr_assert_eq(open->source, 2, "engine 1");
    const struct wf_round_key key = open->round;
    puppet_vote(world_infer(&w, 1), key, false);
    puppet_expect(lost, WF_FRAME_abort);
    puppet_key(lost, WF_FRAME_aborted, key);
    puppet_key(world_infer(&w, 1), WF_FRAME_aborted, key);
    open = expect_fill(lost);
    cr_assert_eq(open->source, WF_SOURCE_STORE, "after the replica failed");
}

Test(meta_store, what_a_rank_tells_of_the_folder_counts)
{
    start(2, WF_FILL_STORE);
    struct puppet *keeper = world_infer(&w, 1);
    tell(keeper, 0, false); /* an older one lies there */
    struct puppet *lost = lose_engine();
    puppet_refuses(lost, WF_FRAME_open, 300 * PUPPET_MS);
    tell(keeper, 1, true);
    puppet_refuses(lost, WF_FRAME_open, 300 * PUPPET_MS);
    tell(keeper, 1, false);
    cr_assert_eq(expect_fill(lost)->source, WF_SOURCE_STORE);
}

Test(meta_store, the_job_does_not_end_while_the_version_is_being_written)
{
    start(2, WF_FILL_STORE);
    struct puppet *keeper = world_infer(&w, 1);
    tell(keeper, 1, true);
    struct puppet *lost = lose_engine();
    puppet_expect(lost, WF_FRAME_members);
    const struct wf_frame_idle idle = {.version = keeper->live};
    puppet_send(world_train(&w), WF_FRAME_idle, &idle);
    puppet_refuses(lost, WF_FRAME_leave, 500 * PUPPET_MS);
    struct wf_frame_status status;
    wf_meta_server_status(w.server, 10, &status);
    cr_assert_eq(status.waits_count, 1);
    cr_assert_str_eq(status.waits[0].what, "to write the version to its folder");
    cr_assert_eq(status.waits[0].rank, 1);
    cr_assert_str_eq(status.ranks[2].doing, "writing");
    cr_assert_eq(status.stored.step, 0);
    wf_meta_server_status_fini(&status);
    tell(keeper, 1, false);
    wf_meta_server_status(w.server, 10, &status);
    cr_assert_eq(status.stored.step, 1);
    wf_meta_server_status_fini(&status);
    cr_assert_eq(expect_fill(lost)->source, WF_SOURCE_STORE);
}

Test(meta_store, half_a_version_of_a_dead_writer_is_no_source)
{
    start(3, WF_FILL_STORE);
    struct puppet *keeper = world_infer(&w, 2);
    tell(keeper, 1, true);
    puppet_drop(keeper);
    keeper->hello.incarnation++;
    keeper->live = (struct wf_version){0};
    puppet_connect(keeper);
    struct puppet *lost = lose_engine();
    puppet_refuses(lost, WF_FRAME_open, 500 * PUPPET_MS);
}
