/* test_report.c - what a report keeps of what ranks say about their transports; what makes it good,
 * and versions of which a trainer was in doubt. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

enum { ROUNDS_MAX = 4 };

struct round {
    uint64_t step, counter, state;
    bool fill;
};

static void tell(struct wf_report *report, const struct round *round)
{
    const struct wf_frame_round_report frame = {.round.version = {1, round->counter, round->step},
                                                .state = round->state,
                                                .fill = round->fill};
    wf_report_round(report, &frame, 0);
}

/* Of a job of one version. */
static const struct {
    const char *name;
    struct round rounds[ROUNDS_MAX];
    bool good;
} rows[] = {
    {"committed", {{1, 1, WF_REPORT_COMMITTED, false}}, true},
    {"nothing was heard", {{0}}, false},
    {"at the second attempt",
     {{1, 1, WF_REPORT_ABORTED, false}, {1, 1, WF_REPORT_COMMITTED, false}},
     true},
    {"a fill afterwards came to nothing",
     {{1, 1, WF_REPORT_COMMITTED, false}, {1, 1, WF_REPORT_ABORTED, true}},
     true},
    {"only a fill was committed: the server before had told of the version",
     {{1, 1, WF_REPORT_COMMITTED, true}},
     true},
    {"given up in the next generation",
     {{1, 1, WF_REPORT_COMMITTED, false}, {1, 2, WF_REPORT_ABORTED, false}},
     false},
};

Test(report, the_newest_attempt_at_a_version_decides)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_report report = {.versions_wanted = 1, .every = 1};
        for (int r = 0; r < ROUNDS_MAX && rows[i].rounds[r].step > 0; r++) {
            tell(&report, &rows[i].rounds[r]);
        }
        cr_expect_eq(wf_report_ok(&report), rows[i].good, "%s", rows[i].name);
        wf_report_fini(&report);
    }
}

Test(report, a_doubt_is_settled_by_the_next_end_of_an_attempt)
{
    const struct round early = {1, 1, WF_REPORT_ABORTED, false};
    const struct round late = {1, 1, WF_REPORT_COMMITTED, false};
    const struct wf_version first = {1, 1, 1}, second = {1, 1, 2};
    struct wf_report report = {.versions_wanted = 2, .every = 1};
    tell(&report, &early);
    cr_assert(wf_report_in_doubt(&report, first));
    cr_assert_not(wf_report_in_doubt(&report, first), "each train rank says it");
    tell(&report, &late);
    cr_assert(wf_report_in_doubt(&report, second));
    wf_report_close_doubts(&report);
    cr_assert_eq(report.round_count, 3);
    cr_assert_not(report.rounds[0].in_doubt);
    cr_assert(report.rounds[1].in_doubt);
    cr_assert_eq(report.rounds[2].frame.state, WF_REPORT_IN_DOUBT);
    cr_assert_eq(report.rounds[2].frame.round.version.step, 2);
    cr_assert_not(wf_report_ok(&report));
    wf_report_fini(&report);
}

/* Told late, over a link that was down. */
static const struct {
    const char *name;
    struct round rounds[ROUNDS_MAX];
    uint32_t reported;
    bool good, in_doubt; /* in_doubt: the first round */
} late_rows[] = {
    {"committed", {{1, 1, WF_REPORT_COMMITTED, false}}, 1, true, true},
    {"a fill since",
     {{1, 1, WF_REPORT_COMMITTED, false}, {1, 1, WF_REPORT_ABORTED, true}},
     2,
     true,
     true},
    {"only a fill", {{1, 1, WF_REPORT_COMMITTED, true}}, 2, false, false},
    {"an attempt came to nothing", {{1, 1, WF_REPORT_ABORTED, false}}, 2, false, false},
    {"another generation's", {{1, 2, WF_REPORT_COMMITTED, false}}, 2, false, false},
};

Test(report, a_doubt_that_is_told_after_the_commit_takes_nothing_back)
{
    for (size_t i = 0; i < sizeof late_rows / sizeof late_rows[0]; i++) {
        struct wf_report report = {.versions_wanted = 1, .every = 1};
        for (int r = 0; r < ROUNDS_MAX && late_rows[i].rounds[r].step > 0; r++) {
            tell(&report, &late_rows[i].rounds[r]);
        }
        cr_expect(wf_report_in_doubt(&report, (struct wf_version){1, 1, 1}), "%s",
                  late_rows[i].name);
        wf_report_close_doubts(&report);
        cr_expect_eq(report.round_count, late_rows[i].reported, "%s", late_rows[i].name);
        cr_expect_eq(report.rounds[0].in_doubt, late_rows[i].in_doubt, "%s", late_rows[i].name);
        cr_expect_eq(wf_report_ok(&report), late_rows[i].good, "%s", late_rows[i].name);
        wf_report_fini(&report);
    }
}

/* --- who is blamed for a round, as scripts read it --- */
static const struct {
    const char *name;
    struct wf_culprit culprit;
    const char *says;
} blame_rows[] = {
    {"nothing is said", {0}, "\"culprit\":null,\"dropped_for\":null"},
    {"a rank",
     {.side = WF_INFER, .rank = 3, .reason = "was lost"},
     "{\"side\":\"infer\",\"rank\":3"},
    {"the server", {.side = WF_CULPRIT_SERVER, .reason = "stopped"}, "{\"side\":\"server\""},
    {"a newer version: no fault",
     {.side = WF_CULPRIT_NOBODY,
      .object = "1.1.3",
      .reason = "dropped for the newer version 1.1.3"},
     "\"culprit\":null,\"dropped_for\":\"1.1.3\""},
};

Test(report, nobody_is_blamed_for_a_version_that_made_way)
{
    for (size_t i = 0; i < sizeof blame_rows / sizeof blame_rows[0]; i++) {
        struct wf_report report = {.versions_wanted = 1, .every = 1};
        const struct wf_frame_round_report frame = {.round.version = {1, 1, 2},
                                                    .state = WF_REPORT_ABORTED,
                                                    .fill = true,
                                                    .culprit = blame_rows[i].culprit};
        wf_report_round(&report, &frame, 0);
        char path[] = "/tmp/weft-report-XXXXXX", text[16384] = "";
        int fd = mkstemp(path);
        struct wf_error error = {0};
        cr_assert(fd >= 0 && close(fd) == 0);
        cr_assert_eq(wf_report_write(&report, path, &error), WF_OK, "%s", error.text);
        FILE *in = fopen(path, "r");
        cr_assert_not_null(in);
        size_t len = 0;
        for (int c; (c = fgetc(in)) != EOF && len + 1 < sizeof text;) {
            text[len] = (char)c;
            len += !isspace(c); /* it is laid out for eyes */
        }
        text[len] = '\0';
        fclose(in);
        unlink(path);
        cr_expect_not_null(strstr(text, blame_rows[i].says), "%s: %s", blame_rows[i].name, text);
        wf_report_fini(&report);
    }
}

/* The server waits for the comparison of copies before it tells. */
Test(report, a_round_that_is_told_late_was_opened_when_it_was)
{
    const struct wf_frame_round_report frame = {
        .round.version = {1, 1, 1}, .state = WF_REPORT_COMMITTED, .opened_ns = 70, .total_ns = 10};
    struct wf_report report = {.versions_wanted = 1, .every = 1};
    wf_report_round(&report, &frame, 100);
    cr_expect_eq(report.rounds[0].opened_ns, 30);
    wf_report_round(&report, &frame, 60); /* this host has not been up for as long */
    cr_expect_eq(report.rounds[1].opened_ns, 0);
    wf_report_fini(&report);
}

/* On a slow machine the last round's may be told so late. */
Test(report, a_round_that_seems_to_begin_behind_the_end_is_in_the_picture)
{
    struct wf_report_span span = {.name = "step", .start_ns = 10, .end_ns = 20};
    struct wf_report report = {.versions_wanted = 1, .every = 1, .spans = &span, .span_count = 1};
    const struct wf_frame_round_report frame = {
        .round.version = {1, 1, 7}, .state = WF_REPORT_COMMITTED, .opened_ns = 5};
    wf_report_round(&report, &frame, 30);
    char path[] = "/tmp/weft-report-XXXXXX", text[16384] = "";
    int fd = mkstemp(path);
    struct wf_error error = {0};
    cr_assert_geq(fd, 0);
    cr_assert_eq(wf_timeline_write(&report, path, &error), WF_OK, "%s", error.text);
    close(fd);
    FILE *in = fopen(path, "r");
    cr_assert_not_null(in);
    cr_assert_gt(fread(text, 1, sizeof text - 1, in), 0);
    fclose(in);
    unlink(path);
    cr_expect_not_null(strstr(text, ">v7<"), "%s", text);
    report.spans = NULL;
    report.span_count = 0;
    wf_report_fini(&report);
}

/* --- what a person reads of how bytes moved --- */

Test(report, a_library_that_was_only_opened_has_moved_nothing)
{
    struct wf_el_transport ways[] = {{.name = "shm", .edges = 1, .bytes = 1500 * 1000 * 1000},
                                     {.name = "ucx", .edges = 1, .bytes = 250 * 1000 * 1000}};
    const struct wf_frame_round_report frame = {.round.version = {1, 1, 1},
                                                .state = WF_REPORT_COMMITTED,
                                                .transports = ways,
                                                .transports_count = 2};
    struct wf_report report = {.versions_wanted = 1, .every = 1};
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    cr_assert_not_null(out);
    wf_report_round(&report, &frame, 0);
    wf_report_round(&report, &frame, 0);
    say(&report, WF_INFER, 0, "ucx 1.13.1");
    wf_report_print(&report, out);
    fclose(out);
    cr_expect_not_null(strstr(text, "moved    3 GB by shm, 500 MB by ucx\n"), "%s", text);
    cr_expect_not_null(strstr(text, "opened   ucx 1.13.1 (1 inference rank)\n"), "%s", text);
    free(text);
    wf_report_fini(&report);
}
