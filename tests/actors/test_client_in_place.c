/* test_client_in_place.c - a rank that reads into what it serves from: paused first, dirty until
 * the flip, and as it was if nothing was written. */
#include <criterion/criterion.h>

#include "tests/actors/client_world.h"

static struct client_world w;

static void close_world(void)
{
    client_close(&w);
}

TestSuite(in_place, .fini = close_world);

static void open_round(uint64_t step)
{
    const struct wf_frame_open open = {.round = client_key(&w, step, 1)};
    client_send(&w, WF_FRAME_open, &open);
}

static const struct wf_local_msg *permitted(uint64_t step)
{
    const struct wf_frame_permit permit = {.round = client_key(&w, step, 1),
                                           .deadline_ns = 1000 * CLIENT_MS};
    client_send(&w, WF_FRAME_permit, &permit);
    return client_asked(&w, &w.receiver, WF_LOCAL_READ);
}

static void resume(uint64_t step)
{
    const struct wf_frame_resume frame = {.round = client_key(&w, step, 1),
                                          .version = client_version(&w, step)};
    client_send(&w, WF_FRAME_resume, &frame);
}

/* Serves version 1. */
static void serve_first(void)
{
    client_open(&w, WF_INFER, WF_PUBLISH_HOLD);
    w.rank.options.mode = WF_MODE_IN_PLACE;
    client_join(&w);
    open_round(1);
    client_expect(&w, WF_FRAME_quiesced);
    const struct wf_local_msg *asked = permitted(1);
    client_answer(&w, &w.receiver, WF_LOCAL_READ_DONE, asked, WF_OK);
    client_expect(&w, WF_FRAME_vote);
    const struct wf_round_key key = client_key(&w, 1, 1);
    client_send(&w, WF_FRAME_decide, &(struct wf_frame_decide){.round = key});
    client_expect(&w, WF_FRAME_quiesced);
    client_send(&w, WF_FRAME_flip, &key);
    client_answer(&w, &w.receiver, WF_LOCAL_FLIPPED, client_asked(&w, &w.receiver, WF_LOCAL_FLIP),
                  WF_OK);
    cr_assert_eq(client_expect(&w, WF_FRAME_flipped)->flipped.live.step, 1);
    resume(1);
    client_expect(&w, WF_FRAME_resumed);
    cr_assert_eq(w.resumes, 1);
}

Test(in_place, it_pauses_at_open_and_reads_when_permitted)
{
    serve_first();
    open_round(2);
    client_silent(&w, WF_FRAME_quiesced, 50 * CLIENT_MS);
    cr_assert_eq(w.quiesces, 1);
    cr_assert_eq(w.receiver.asked_count, 2, "it reads before it is paused");
    wf_client_quiesced(w.client);
    client_expect(&w, WF_FRAME_quiesced);
    open_round(2); /* the answer was lost */
    client_expect(&w, WF_FRAME_quiesced);
    cr_assert_eq(w.receiver.asked_count, 2, "it reads before it is permitted to");
    cr_assert_eq(wf_client_live(w.client).step, 1, "nothing is written yet");
    permitted(2);
    cr_assert(wf_version_is_none(wf_client_live(w.client)), "it is dirty");
    open_round(2);
    client_silent(&w, WF_FRAME_quiesced, 50 * CLIENT_MS);
}

/* What ends the round, and what the rank holds then. */
enum ending { AN_ABORT_BEFORE_PERMIT, AN_ABORT, A_VOTE_NO, A_CLEAN_WELCOME };
static const struct {
    const char *name;
    enum ending ending;
    bool wrote;
    uint64_t live;
} end_rows[] = {
    {"aborted before it was permitted", AN_ABORT_BEFORE_PERMIT, false, 1},
    {"aborted before the first byte", AN_ABORT, false, 1},
    {"aborted while it was written", AN_ABORT, true, 0},
    {"no source granted", A_VOTE_NO, false, 1},
    {"a digest differs", A_VOTE_NO, true, 0},
    {"fenced while it was written", A_CLEAN_WELCOME, true, 0},
};

static uint64_t live_after(enum ending ending, bool wrote)
{
    const struct wf_frame_abort abort = {.round = client_key(&w, 2, 1)};
    const struct wf_local_msg *asked = ending != AN_ABORT_BEFORE_PERMIT ? permitted(2) : NULL;
    enum wf_local_kind answer = ending == A_VOTE_NO ? WF_LOCAL_READ_DONE : WF_LOCAL_STOPPED;
    if (ending == A_CLEAN_WELCOME) {
        client_welcome(&w, true, client_version(&w, 1));
    } else if (ending == AN_ABORT) {
        client_send(&w, WF_FRAME_abort, &abort);
    }
    if (answer == WF_LOCAL_STOPPED && asked != NULL) {
        asked = client_asked(&w, &w.receiver, WF_LOCAL_STOP);
    }
    if (asked != NULL) {
        ((struct wf_local_msg *)asked)->wrote = wrote; /* the fake's answer repeats it */
        client_answer(&w, &w.receiver, answer, asked, ending == A_VOTE_NO ? WF_DIGEST : WF_OK);
    }
    if (ending == A_CLEAN_WELCOME) {
        return client_expect(&w, WF_FRAME_joined)->joined.live.step;
    }
    if (ending == A_VOTE_NO) {
        cr_assert_eq(client_expect(&w, WF_FRAME_vote)->vote.yes, 0);
    }
    if (ending != AN_ABORT) {
        client_send(&w, WF_FRAME_abort, &abort);
    }
    return client_expect(&w, WF_FRAME_aborted)->aborted.live.step;
}

Test(in_place, what_it_holds_after_a_failed_round)
{
    for (size_t i = 0; i < sizeof end_rows / sizeof end_rows[0]; i++) {
        serve_first();
        open_round(2);
        client_run(&w, 20 * CLIENT_MS);
        wf_client_quiesced(w.client);
        client_expect(&w, WF_FRAME_quiesced);
        uint64_t live = live_after(end_rows[i].ending, end_rows[i].wrote);
        cr_expect_eq(live, end_rows[i].live, "%s: it holds %llu", end_rows[i].name,
                     (unsigned long long)live);
        const struct wf_frame_resume frame = {.round = client_key(&w, 2, 1),
                                              .version = client_version(&w, 1)};
        client_send(&w, WF_FRAME_resume, &frame);
        client_run(&w, 50 * CLIENT_MS);
        cr_expect_eq(w.resumes, end_rows[i].live == 1 ? 2 : 1, "%s", end_rows[i].name);
        if (i + 1 < sizeof end_rows / sizeof end_rows[0]) {
            client_close(&w);
        }
    }
}

/* Fenced after its vote, it hears that the version was committed: only the label is missing. */
Test(in_place, what_was_committed_meanwhile_needs_only_its_label)
{
    serve_first();
    open_round(2);
    client_run(&w, 20 * CLIENT_MS);
    wf_client_quiesced(w.client);
    client_answer(&w, &w.receiver, WF_LOCAL_READ_DONE, permitted(2), WF_OK);
    client_expect(&w, WF_FRAME_vote);
    client_welcome(&w, true, client_version(&w, 2));
    client_answer(&w, &w.receiver, WF_LOCAL_FLIPPED, client_asked(&w, &w.receiver, WF_LOCAL_FLIP),
                  WF_OK);
    cr_assert_eq(client_expect(&w, WF_FRAME_joined)->joined.live.step, 2);
}
