/* test_meta_observers.c - what observers hear: the plan, rounds, who is away, accounts of ranks. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/actors/puppets.h"

static struct world w;

static void close_world(void)
{
    world_close(&w);
}

TestSuite(meta_observers, .fini = close_world);

Test(meta_observers, a_report_lists_the_engines_that_serve)
{
    world_open(&w, 2, 1, NULL);
    struct puppet *observer = world_guest(&w, NULL);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0), *b = world_infer(&w, 1);
    puppet_publish(world_train(&w), 1);
    struct wf_round_key key = puppet_open(a);
    puppet_vote(a, key, true);
    puppet_vote(b, key, true);
    puppet_expect(b, WF_FRAME_decide);
    b->silent = true; /* after the decision, before its flip */
    puppet_expect(a, WF_FRAME_decide);
    puppet_key(a, WF_FRAME_quiesced, key);
    puppet_expect(a, WF_FRAME_flip);
    puppet_flipped(a, key);
    puppet_expect(a, WF_FRAME_resume);
    puppet_resumed(a, key);
    const struct wf_frame *frame = puppet_expect(observer, WF_FRAME_round_report);
    cr_assert_eq(frame->round_report.state, WF_REPORT_COMMITTED);
    cr_assert_eq(frame->round_report.engines_count, 1);
    cr_assert_eq(frame->round_report.engines[0].engine, 0);
    cr_assert_eq(frame->round_report.culprit.rank, 1);
}

Test(meta_observers, observers_hear_who_was_fenced_and_who_is_back)
{
    world_open(&w, 2, 1, NULL);
    struct puppet *observer = world_guest(&w, NULL);
    world_start(&w);
    struct puppet *a = world_infer(&w, 0), *b = world_infer(&w, 1);
    puppet_publish(world_train(&w), 1);
    puppet_open(a); /* and it reads for a while: nobody is readmitted before it ends */
    uint32_t joined = puppet_count(observer, WF_FRAME_presence);
    cr_assert_eq(joined, 3, "each rank's joining");
    observer->seen = observer->frame_count;
    b->silent = true;
    const struct wf_frame *frame = puppet_expect(observer, WF_FRAME_presence);
    cr_assert_eq(frame->presence.away, 1);
    cr_assert_eq(frame->presence.who.side, WF_INFER);
    cr_assert_eq(frame->presence.who.rank, 1);
    cr_assert(strstr(frame->presence.who.reason, "nothing was heard of it") != NULL);
    struct puppet *late = world_guest(&w, NULL);
    puppet_connect(late);
    for (int i = 0; i < 3; i++) {
        frame = puppet_expect(late, WF_FRAME_presence);
        cr_assert_eq(frame->presence.away,
                     frame->presence.who.side == WF_INFER && frame->presence.who.rank == 1,
                     "who comes late hears of everybody");
    }
    b->silent = false;
    frame = puppet_expect(observer, WF_FRAME_presence);
    cr_assert_eq(frame->presence.away, 0, "at its first heartbeat, whatever the round does");
    cr_assert_eq(frame->presence.who.rank, 1);
    world_run(&w, 1000 * PUPPET_MS);
    cr_assert_eq(puppet_count(observer, WF_FRAME_presence), joined + 2, "once each");
}

Test(meta_observers, a_note_that_comes_again_over_a_new_connection_is_passed_on_once)
{
    world_open(&w, 1, 1, NULL);
    struct puppet *observer = world_guest(&w, NULL);
    world_start(&w);
    world_commit(&w, 1);
    struct wf_frame_note note = {.version = world_infer(&w, 0)->live, .elements_checked = 9};
    puppet_send(world_infer(&w, 0), WF_FRAME_note, &note);
    puppet_expect(observer, WF_FRAME_note);
    uint32_t welcomes = puppet_count(world_infer(&w, 0), WF_FRAME_welcome);
    puppet_drop(world_infer(&w, 0));
    puppet_connect(world_infer(&w, 0));
    puppet_expect(world_infer(&w, 0), WF_FRAME_welcome);
    cr_assert_eq(puppet_count(world_infer(&w, 0), WF_FRAME_welcome), welcomes + 1);
    puppet_send(world_infer(&w, 0), WF_FRAME_note, &note);
    note.reads = 1; /* says more */
    puppet_send(world_infer(&w, 0), WF_FRAME_note, &note);
    cr_assert_eq(puppet_expect(observer, WF_FRAME_note)->note.reads, 1);
    cr_assert_eq(puppet_count(observer, WF_FRAME_note), 2);
}

Test(meta_observers, observers_hear_of_the_plan_and_of_rounds)
{
    world_open(&w, 1, 1, NULL);
    struct puppet *observer = world_guest(&w, NULL);
    world_start(&w);
    const struct wf_frame *frame = puppet_expect(observer, WF_FRAME_plan_report);
    cr_assert_eq(frame->plan_report.ops, 7);
    world_commit(&w, 1);
    frame = puppet_expect(observer, WF_FRAME_round_report);
    cr_assert_eq(frame->round_report.state, WF_REPORT_COMMITTED);
    cr_assert_eq(frame->round_report.bytes, 10);
    cr_assert_eq(frame->round_report.pause_ns, 9);
    cr_assert_eq(frame->round_report.engines_count, 1);
    cr_assert_gt(frame->round_report.total_ns, 0);
    cr_assert_geq(frame->round_report.opened_ns, frame->round_report.total_ns, "so long ago");
    cr_assert_gt(puppet_count(observer, WF_FRAME_progress), 0);
}

Test(meta_observers, an_observer_is_told_who_holds_what)
{
    world_open(&w, 2, 1, NULL);
    struct puppet *early = world_guest(&w, NULL);
    puppet_connect(early);
    world_run(&w, 100 * PUPPET_MS);
    const struct wf_frame_look look = {.proto_min = 1, .proto_max = 1};
    puppet_send(early, WF_FRAME_look, &look);
    const struct wf_frame *frame = puppet_expect(early, WF_FRAME_refused);
    cr_assert_eq(frame->refused.status, WF_AGAIN);
    cr_assert_not_null(strstr(frame->refused.text, "have joined"), "%s", frame->refused.text);
    cr_assert_not(early->closed, "it may ask again");
    world_start(&w);
    puppet_send(early, WF_FRAME_look, &look);
    frame = puppet_expect(early, WF_FRAME_members);
    cr_assert_eq(frame->members.peers_count, 3);
    cr_assert_eq(frame->members.peers[2].incarnation, world_infer(&w, 1)->hello.incarnation);
    cr_assert_eq(puppet_count(world_infer(&w, 0), WF_FRAME_members), 1, "and nobody else");
}

Test(meta_observers, a_rank_does_not_ask_who_holds_what)
{
    world_open(&w, 1, 1, NULL);
    world_start(&w);
    const struct wf_frame_look look = {.proto_min = 1, .proto_max = 1};
    puppet_send(world_infer(&w, 0), WF_FRAME_look, &look);
    const struct wf_frame *frame = puppet_expect(world_infer(&w, 0), WF_FRAME_refused);
    cr_assert_eq(frame->refused.status, WF_PROTOCOL);
}
