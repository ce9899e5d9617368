/* test_round.c - order and text of versions, keys and culprits. */
#include <criterion/criterion.h>
#include <string.h>

#include "actors/round.h"

static const struct {
    const char *name;
    struct wf_version a, b;
    int order;
} version_rows[] = {
    {"equal", {1, 1, 4}, {1, 1, 4}, 0},
    {"step", {1, 1, 4}, {1, 1, 5}, -1},
    {"counter before step", {1, 2, 1}, {1, 1, 9}, 1},
    {"term before counter", {1, 9, 9}, {2, 1, 1}, -1},
    {"large numbers do not wrap", {0, 0, UINT64_MAX}, {0, 0, 1}, 1},
};

Test(round, versions_are_ordered)
{
    for (size_t i = 0; i < sizeof version_rows / sizeof version_rows[0]; i++) {
        int order = wf_version_compare(version_rows[i].a, version_rows[i].b);
        cr_expect_eq(order, version_rows[i].order, "%s", version_rows[i].name);
        order = wf_version_compare(version_rows[i].b, version_rows[i].a);
        cr_expect_eq(order, -version_rows[i].order, "%s", version_rows[i].name);
    }
    cr_assert(wf_version_is_none((struct wf_version){0}));
    cr_assert_not(wf_version_is_none((struct wf_version){0, 0, 1}));
}

static const struct {
    const char *name;
    struct wf_round_key a, b;
    int order;
} key_rows[] = {
    {"equal", {1, 2, 1, {1, 1, 1}, 1}, {1, 2, 1, {1, 1, 1}, 1}, 0},
    {"attempt", {1, 2, 1, {1, 1, 1}, 1}, {1, 2, 1, {1, 1, 1}, 2}, -1},
    {"version before attempt", {1, 2, 1, {1, 1, 2}, 1}, {1, 2, 1, {1, 1, 1}, 7}, 1},
    {"epoch before version", {1, 2, 1, {1, 1, 9}, 1}, {1, 3, 1, {1, 1, 1}, 1}, -1},
    {"term before all", {2, 1, 1, {1, 1, 1}, 1}, {1, 3, 1, {1, 1, 9}, 9}, 1},
};

Test(round, keys_are_ordered)
{
    for (size_t i = 0; i < sizeof key_rows / sizeof key_rows[0]; i++) {
        cr_expect_eq(wf_round_key_compare(&key_rows[i].a, &key_rows[i].b), key_rows[i].order, "%s",
                     key_rows[i].name);
        cr_expect_eq(wf_round_key_equal(&key_rows[i].a, &key_rows[i].b), key_rows[i].order == 0,
                     "%s", key_rows[i].name);
    }
    struct wf_round_key other_models = key_rows[0].a;
    other_models.models = 2;
    cr_assert_not(wf_round_key_equal(&key_rows[0].a, &other_models));
}

static const struct {
    struct wf_culprit culprit;
    const char *text;
} culprit_rows[] = {
    {{.side = WF_INFER,
      .rank = 3,
      .engine = 1,
      .host = "b",
      .reason = "did not vote on version 1.1.4 within 5 s"},
     "infer rank 3 (host b, engine 1) did not vote on version 1.1.4 within 5 s"},
    {{.side = WF_TRAIN, .rank = 2, .host = "a", .reason = "was lost"},
     "train rank 2 (host a) was lost"},
    {{.side = WF_CULPRIT_SERVER, .reason = "stopped"}, "the MetaServer stopped"},
    {{.side = WF_CULPRIT_NOBODY,
      .object = "1.1.4",
      .reason = "dropped for the newer version 1.1.4"},
     "dropped for the newer version 1.1.4"},
    {{.side = WF_TRAIN, .rank = 2, .reason = "was lost"}, "train rank 2 (host unknown) was lost"},
    {{.side = WF_TRAIN, .rank = 2}, ""},
};

Test(round, culprits_are_sentences)
{
    for (size_t i = 0; i < sizeof culprit_rows / sizeof culprit_rows[0]; i++) {
        char text[WF_CULPRIT_TEXT];
        wf_culprit_format(&culprit_rows[i].culprit, text);
        cr_expect_str_eq(text, culprit_rows[i].text);
    }
    char text[WF_VERSION_TEXT];
    wf_version_format((struct wf_version){1, 2, 3}, text);
    cr_assert_str_eq(text, "1.2.3");
    wf_version_format((struct wf_version){0}, text);
    cr_assert_str_eq(text, "none");
}
