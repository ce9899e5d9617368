/* test_report.c - what a report keeps of what ranks say about their transports. */
#include <criterion/criterion.h>
#include <string.h>

#include "tools/run/report.h"

static void say(struct wf_report *report, enum wf_side side, uint32_t rank, const char *text)
{
    struct wf_frame_note note = {.side = side, .rank = rank, .version = {.step = 1}};
    snprintf(note.text, sizeof note.text, "%s", text);
    wf_report_note(report, &note);
}

Test(report, ranks_that_select_the_same_stand_together)
{
    struct wf_report report = {0};
    say(&report, WF_INFER, 2, "ucx; tcp/lo");
    say(&report, WF_INFER, 0, "ucx; tcp/lo");
    say(&report, WF_INFER, 1, "ucx; rc_mlx5/mlx5_0:1 (one-sided)");
    say(&report, WF_INFER, 3, ""); /* mapped memory: nothing to say */
    say(&report, WF_TRAIN, 4, "given up");
    cr_assert_eq(report.selected_count, 2);
    cr_assert_str_eq(report.selected[0].text, "ucx; tcp/lo");
    cr_assert_eq(report.selected[0].rank_count, 2);
    cr_assert_eq(report.selected[0].ranks[0], 0);
    cr_assert_eq(report.selected[0].ranks[1], 2);
    cr_assert_eq(report.selected[1].rank_count, 1);
    wf_report_fini(&report);
}

Test(report, a_rank_that_says_something_else_moves)
{
    struct wf_report report = {0};
    say(&report, WF_INFER, 0, "ucx");
    say(&report, WF_INFER, 0, "ucx; tcp/lo");
    say(&report, WF_INFER, 0, "ucx; tcp/lo");
    cr_assert_eq(report.selected_count, 2);
    cr_assert_eq(report.selected[0].rank_count, 0);
    cr_assert_eq(report.selected[1].rank_count, 1);
    wf_report_fini(&report);
}
