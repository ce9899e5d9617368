/* test_meta_status.c - what a status says of a job at its stations: ranks, rounds, sums, waits. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "actors/meta_server_internal.h"
#include "tests/actors/puppets.h"

static struct world w;

/* "WHO waits for SIDE RANK WHAT", one a line. */
static void waits_text(const struct wf_frame_status *status, char out[2000])
{
    out[0] = '\0';
    for (uint32_t i = 0; i < status->waits_count; i++) {
        const struct wf_el_status_wait *wait = &status->waits[i];
        size_t len = strlen(out);
        snprintf(out + len, 2000 - len, "%s: %s %d %s\n", wait->who,
                 wait->side == WF_TRAIN   ? "train"
                 : wait->side == WF_INFER ? "infer"
                                          : "nobody",
                 (int)wait->rank, wait->what);
    }
}

/* The status now; its waits are compared with `waits` where the term stands as TERM. */
static void expect(const char *when, const char *state, const char *doing, const char *waits)
{
    struct wf_frame_status status;
    char text[2000], wanted[2000];
    wf_meta_server_status(w.server, UINT32_MAX, &status);
    cr_expect_str_eq(status.state, state, "%s: state %s", when, status.state);
    cr_expect_eq(status.ranks_count, 3, "%s", when);
    cr_expect_str_eq(status.ranks[1].doing, doing, "%s: infer rank 0 is %s", when,
                     status.ranks[1].doing);
    waits_text(&status, text);
    snprintf(wanted, sizeof wanted, waits, (int)status.term);
    cr_expect_str_eq(text, wanted, "%s: waits for\n%s", when, text);
    wf_meta_server_status_fini(&status);
}

static void vote(uint32_t rank, struct wf_round_key *key)
{
    *key = puppet_open(world_infer(&w, rank));
    puppet_vote(world_infer(&w, rank), *key, true);
}

Test(meta_status, names_who_is_waited_for_at_every_station)
{
    struct wf_round_key key;
    world_open(&w, 1, 2, NULL);
    expect("at first", "idle", "not here yet",
           "the job: train 0 to join\nthe job: infer 0 to join\nthe job: infer 1 to join\n");
    puppet_connect(world_train(&w));
    puppet_connect(world_infer(&w, 0));
    world_run(&w, 50 * PUPPET_MS);
    expect("one is missing", "idle", "paused", "the job: infer 1 to join\n");
    world_infer(&w, 1)->no_planned = true;
    puppet_connect(world_infer(&w, 1));
    world_run(&w, 50 * PUPPET_MS);
    expect("one plans", "idle", "paused", "the plan: infer 1 to plan\n");
    world_infer(&w, 1)->no_planned = false;
    puppet_expect(world_train(&w), WF_FRAME_generation);
    world_run(&w, 50 * PUPPET_MS);
    expect("nothing is published", "idle", "paused",
           "the generation: train 0 to hear of it\n"); /* puppets do not answer */
    puppet_publish(world_train(&w), 1);
    vote(0, &key);
    world_run(&w, 20 * PUPPET_MS);
    expect("one has voted", "opened", "voted", "round %d.1.1: infer 1 to vote\n");
    vote(1, &key);
    puppet_expect(world_infer(&w, 1), WF_FRAME_decide);
    puppet_key(world_infer(&w, 1), WF_FRAME_quiesced, key);
    world_run(&w, 20 * PUPPET_MS);
    expect("one pauses", "closing", "pausing", "round %d.1.1: infer 0 to stop serving\n");
    puppet_key(world_infer(&w, 0), WF_FRAME_quiesced, key);
    puppet_expect(world_infer(&w, 0), WF_FRAME_flip);
    puppet_flipped(world_infer(&w, 1), key);
    world_run(&w, 20 * PUPPET_MS);
    expect("one flips", "closing", "flipping", "round %d.1.1: infer 0 to flip\n");
    world_close(&w);
}

Test(meta_status, sums_up_rounds_and_remembers_the_last)
{
    struct wf_frame_status status;
    world_open(&w, 1, 2, NULL);
    world_start(&w);
    for (uint64_t step = 1; step <= 3; step++) {
        world_commit(&w, step);
    }
    struct puppet *guest = world_guest(&w, NULL);
    puppet_connect(guest);
    world_run(&w, 50 * PUPPET_MS);
    const struct wf_frame_status_request request = {.ranks = 2};
    puppet_send(guest, WF_FRAME_status_request, &request);
    const struct wf_frame_status *asked = &puppet_expect(guest, WF_FRAME_status)->status;
    cr_assert_eq(asked->ranks_count, 2, "as many as were asked for");
    cr_assert_eq(asked->rounds_committed, 3);
    cr_assert_str_eq(asked->job, "world");

    wf_meta_server_status(w.server, UINT32_MAX, &status);
    cr_assert_eq(status.ranks_count, 3);
    cr_assert_eq(status.train_ranks, 1);
    cr_assert_eq(status.infer_ranks, 2);
    cr_assert_eq(status.versions_committed, 3);
    cr_assert_eq(status.rounds_aborted, 0);
    cr_assert_eq(status.bytes_moved, 3 * 2 * 10);
    cr_assert_eq(status.pause_ns, 3 * 9);
    cr_assert_eq(status.pause_max_ns, 9);
    cr_assert_eq(status.committed.step, 3);
    cr_assert_eq(status.rounds_count, 3);
    cr_assert_eq(status.rounds[2].round.version.step, 3);
    cr_assert_eq(status.rounds[2].engines, 1);
    cr_assert_gt(status.rounds[0].opened_ns, status.rounds[2].opened_ns);
    cr_assert_eq(status.engines_count, 1);
    cr_assert_eq(status.engines[0].serving, 2);
    cr_assert(status.ranks[1].serving && status.ranks[1].live.step == 3);
    cr_assert_gt(status.ranks[1].lease_left_ns, 0);
    wf_meta_server_status_fini(&status);
    world_close(&w);
}

Test(meta_status, keeps_as_many_rounds_as_it_says)
{
    struct wf_frame_status status;
    world_open(&w, 1, 1, NULL);
    for (uint64_t step = 1; step <= 66; step++) {
        w.server->round.key.version.step = step;
        wf_server_remember_round(w.server);
    }
    wf_meta_server_status(w.server, UINT32_MAX, &status);
    cr_assert_eq(status.rounds_committed, 66);
    cr_assert_eq(status.rounds_count, WF_STATUS_ROUNDS - 1);
    cr_assert_eq(status.rounds[0].round.version.step, 66 - WF_STATUS_ROUNDS + 2);
    cr_assert_eq(status.rounds[status.rounds_count - 1].round.version.step, 66);
    wf_meta_server_status_fini(&status);
    world_close(&w);
}

/* --- an observer that does not read ------------------------------------------------------------
 */
static struct {
    struct wf_env_ops ops, real;
    uint64_t full; /* the connection */
    uint32_t tries;
} queue;

static enum wf_status send_to_full(struct wf_env *env, uint64_t conn, const void *bytes, size_t len,
                                   int fd)
{
    queue.tries += conn == queue.full;
    return conn == queue.full ? WF_NO_RESOURCE : queue.real.send(env, conn, bytes, len, fd);
}

static enum wf_status send_shared_to_full(struct wf_env *env, uint64_t conn,
                                          struct wf_payload *payload)
{
    queue.tries += conn == queue.full;
    return conn == queue.full ? WF_NO_RESOURCE : queue.real.send_shared(env, conn, payload);
}

Test(meta_status, an_observer_that_asks_and_does_not_read_is_let_go)
{
    world_open(&w, 1, 2, NULL);
    world_start(&w);
    struct puppet *guest = world_guest(&w, NULL);
    puppet_connect(guest);
    world_run(&w, 50 * PUPPET_MS);
    struct wf_env *env = w.server->env;
    queue.real = queue.ops = *env->ops;
    queue.ops.send = send_to_full;
    queue.ops.send_shared = send_shared_to_full;
    queue.full = w.server->conns[WF_CONN_OBSERVER].first->id;
    env->ops = &queue.ops;
    const struct wf_frame_status_request request = {.ranks = 3};
    puppet_send(guest, WF_FRAME_status_request, &request);
    world_run(&w, 50 * PUPPET_MS);
    cr_expect_eq(queue.tries, 1, "made %u times", queue.tries);
    cr_expect(guest->closed);
    cr_expect_eq(w.server->conns[WF_CONN_OBSERVER].count, 0);
    env->ops = &queue.real;
    world_close(&w);
}
