/* test_client_terms.c - a rank whose server comes back under a later term. */
#include <criterion/criterion.h>

#include "tests/actors/client_world.h"

static struct client_world w;

static void close_world(void)
{
    client_close(&w);
}

TestSuite(terms, .fini = close_world);

static void begin_generation(uint64_t counter, uint64_t step)
{
    const struct wf_frame_generation frame = {
        .term = w.term, .generation_term = w.term, .counter = counter, .step = step};
    client_send(&w, WF_FRAME_generation, &frame);
    client_expect(&w, WF_FRAME_told);
}

/* Its journal was lost, and its generations count from 1 again. */
Test(terms, the_first_generation_of_a_later_term_ends_the_hold_too)
{
    client_open(&w, WF_TRAIN, WF_PUBLISH_HOLD);
    client_join(&w);
    begin_generation(1, 0);
    cr_assert_eq(w.readies, 1);
    cr_assert_not(w.restarted, "the job's own first one");
    cr_assert_eq(wf_client_publish(w.client, 4, "label", 0, NULL), WF_OK);
    client_expect(&w, WF_FRAME_publish);
    struct wf_env *env = wf_loop_env(w.server_loop);
    env->ops->close(env, w.conn);
    w.term++;
    client_expect(&w, WF_FRAME_hello);
    client_welcome(&w, false, (struct wf_version){0});
    client_expect(&w, WF_FRAME_publish);
    begin_generation(1, 4);
    cr_assert_eq(w.readies, 2);
    cr_assert(w.restarted, "the host has to let go of what it held");
    cr_assert_eq(wf_client_publish(w.client, 4, "label", 0, NULL), WF_OK);
}
