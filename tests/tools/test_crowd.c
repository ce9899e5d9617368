/* test_crowd.c - what `weft bench control` runs, in small: real clients on real sockets register,
 * agree and commit; then their server dies, and they all come back to the next one at once. */
#include <criterion/criterion.h>

#include "tools/bench/control_crowd.h"

Test(crowd, commits_before_and_after_its_server_is_replaced)
{
    enum { RANKS = 64, ROUNDS = 2 };
    struct control_run run;
    struct wf_error error = {0};
    cr_assert_eq(control_crowd_run(RANKS, ROUNDS, &run, &error), WF_OK, "%s", error.text);
    cr_expect_gt(run.committed_s, run.agreed_s);
    cr_expect_gt(run.restarted_s, 0);
    cr_expect_gt(run.messages, RANKS * (3 + 2 * (1 + ROUNDS))); /* the least that ranks can say */
}
