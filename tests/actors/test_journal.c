/* test_journal.c - the journal's records, what they fold to, and what is refused. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "actors/journal.h"

static const struct wf_el_member members[] = {
    {WF_TRAIN, 0, 0, 11}, {WF_INFER, 0, 0, 21}, {WF_INFER, 1, 1, 22}};
static const struct wf_el_unit units[] = {{0}, {1}};

static struct wf_round_key key(uint64_t step, uint64_t attempt)
{
    return (struct wf_round_key){
        .term = 5, .epoch = 2, .models = 1, .version = {5, 1, step}, .attempt = attempt};
}

/* A history: each row is one record. */
static struct wf_journal_record record(int row)
{
    const struct wf_journal_record rows[] = {
        {.kind = WF_JOURNAL_TERM, .term = 5, .epoch = 1},
        {.kind = WF_JOURNAL_GENERATION, .term = 5, .epoch = 1, .generation = {5, 1, 0}},
        {.kind = WF_JOURNAL_OPEN,
         .term = 5,
         .epoch = 2,
         .round = key(1, 1),
         .policy = WF_COMMIT_EACH,
         .members = members,
         .member_count = 3},
        {.kind = WF_JOURNAL_DECIDE,
         .term = 5,
         .epoch = 2,
         .round = key(1, 1),
         .engines = units,
         .engine_count = 2},
        {.kind = WF_JOURNAL_OPEN,
         .term = 5,
         .epoch = 3,
         .round = key(2, 1),
         .policy = WF_COMMIT_EACH,
         .fill = true,
         .members = members,
         .member_count = 2},
        {.kind = WF_JOURNAL_DECIDE,
         .term = 5,
         .epoch = 3,
         .round = key(2, 1),
         .engines = units,
         .engine_count = 1},
        {.kind = WF_JOURNAL_TERM, .term = 9, .epoch = 1},
        {.kind = WF_JOURNAL_COMMITTED,
         .term = 9,
         .epoch = 1,
         .round = {.version = {5, 1, 7}},
         .engines = &units[1],
         .engine_count = 1},
        {.kind = WF_JOURNAL_REBUILD, .term = 9, .epoch = 1, .begins = true},
    };
    return rows[row];
}
enum { RECORDS = 9 };

/* Ends of the header and of each record. */
static void write_history(uint8_t **bytes, size_t *len, size_t ends[RECORDS + 1])
{
    wf_journal_encode_header("job", bytes, len);
    ends[0] = *len;
    for (int i = 0; i < RECORDS; i++) {
        struct wf_journal_record r = record(i);
        wf_journal_encode(&r, bytes, len);
        ends[i + 1] = *len;
    }
}

static void check_whole(const struct wf_journal_state *s, const char *name)
{
    cr_expect_str_eq(s->job, "job", "%s", name);
    cr_expect(s->term == 9 && s->rebuilding, "%s", name);
    cr_expect_eq(s->generation.counter, 1, "%s", name);
    struct wf_round_key newest = key(2, 1);
    cr_expect(wf_round_key_equal(&s->round, &newest), "%s", name);
    cr_expect(s->fill && s->policy == WF_COMMIT_EACH, "%s", name);
    cr_assert_eq(s->member_count, 2, "%s", name);
    cr_expect_eq(s->members[1].incarnation, 21, "%s", name);
    cr_assert_eq(s->engine_count, 2, "%s", name);
    cr_expect(s->engines[0].decided && !s->engines[1].decided, "%s", name);
    cr_expect_eq(s->engines[0].committed.step, 2, "%s", name);
    cr_expect_eq(s->engines[1].committed.step, 7, "%s", name);
}

Test(journal, folds_and_compacts)
{
    uint8_t *bytes = NULL, *folded = NULL;
    size_t len = 0, folded_len = 0, ends[RECORDS + 1], good = 0;
    struct wf_journal_state state = {.term = 0}, again = {.term = 0};
    struct wf_error error = {0};
    write_history(&bytes, &len, ends);
    cr_assert_eq(wf_journal_read(bytes, len, &state, &good, &error), WF_OK, "%s", error.text);
    cr_expect_eq(good, len);
    check_whole(&state, "the history");
    wf_journal_encode_state(&state, &folded, &folded_len);
    cr_expect_lt(folded_len, len);
    cr_assert_eq(wf_journal_read(folded, folded_len, &again, &good, &error), WF_OK, "%s",
                 error.text);
    cr_expect_eq(good, folded_len);
    check_whole(&again, "the folded history");
    wf_journal_state_fini(&state);
    wf_journal_state_fini(&again);
    free(bytes);
    free(folded);
}

/* Whatever length reached the disk, and whatever is in the blocks that did not. */
Test(journal, a_torn_tail_is_cut)
{
    uint8_t *bytes = NULL;
    size_t len = 0, ends[RECORDS + 1];
    write_history(&bytes, &len, ends);
    for (size_t cut = ends[0]; cut < len; cut++) {
        for (int holes = 0; holes < 2; holes++) {
            size_t last = 0, good = 0;
            while (ends[last + 1] <= cut) {
                last++;
            }
            size_t torn = holes ? ends[last + 1] : cut;
            uint8_t *copy = calloc(1, torn + 1);
            memcpy(copy, bytes, cut);
            struct wf_journal_state state = {.term = 0};
            struct wf_error error = {0};
            cr_assert_eq(wf_journal_read(copy, torn, &state, &good, &error), WF_OK,
                         "cut at %zu, holes %d: %s", cut, holes, error.text);
            /* A record whose last bytes are zero anyway is whole. */
            cr_expect(good == ends[last] || (holes && good == ends[last + 1]),
                      "cut at %zu, holes %d: good to %zu, not %zu", cut, holes, good, ends[last]);
            wf_journal_state_fini(&state);
            free(copy);
        }
    }
    free(bytes);
}

Test(journal, damage_in_the_middle_is_named)
{
    uint8_t *bytes = NULL;
    size_t len = 0, good = 0, ends[RECORDS + 1];
    write_history(&bytes, &len, ends);
    for (int i = 0; i < RECORDS; i++) { /* the record that ends there; the header is the first */
        char offset[40];
        size_t start = i == 0 ? 0 : ends[i - 1];
        snprintf(offset, sizeof offset, "at offset %zu,", start);
        for (size_t at = start; at < ends[i]; at += 5) {
            bytes[at] ^= 0x10;
            struct wf_journal_state state = {.term = 0};
            struct wf_error error = {0};
            cr_expect_eq(wf_journal_read(bytes, len, &state, &good, &error), WF_INVALID, "byte %zu",
                         at);
            cr_expect_not_null(strstr(error.text, offset), "byte %zu: %s", at, error.text);
            wf_journal_state_fini(&state);
            bytes[at] ^= 0x10;
        }
    }
    free(bytes);
}

static const struct {
    const char *name, *text;
    size_t len;
} strangers[] = {
    {"text", "this is no journal at all, but a note to myself\n", 48},
    {"zeros", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24},
    {"a part of a magic", "WJ", 2},
};

Test(journal, strangers_are_refused)
{
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        struct wf_journal_state state = {.term = 0};
        struct wf_error error = {0};
        size_t good = 0;
        cr_expect_eq(wf_journal_read((const uint8_t *)strangers[i].text, strangers[i].len, &state,
                                     &good, &error),
                     WF_INVALID, "%s", strangers[i].name);
        cr_expect_not_null(strstr(error.text, "not a journal"), "%s: %s", strangers[i].name,
                           error.text);
        wf_journal_state_fini(&state);
    }
}

Test(journal, a_rebuilt_one_says_so_until_the_next_round)
{
    uint8_t *bytes = NULL, *folded = NULL;
    size_t len = 0, folded_len = 0, ends[RECORDS + 1], good = 0;
    struct wf_journal_state state = {.term = 0}, again = {.term = 0};
    struct wf_error error = {0};
    write_history(&bytes, &len, ends); /* its end: a rebuilding that is not done */
    const struct wf_journal_record done = {.kind = WF_JOURNAL_REBUILD, .term = 9, .epoch = 4};
    wf_journal_encode(&done, &bytes, &len);
    cr_assert_eq(wf_journal_read(bytes, len, &state, &good, &error), WF_OK, "%s", error.text);
    cr_expect(state.rebuilt && !state.rebuilding);
    wf_journal_encode_state(&state, &folded, &folded_len);
    cr_assert_eq(wf_journal_read(folded, folded_len, &again, &good, &error), WF_OK, "%s",
                 error.text);
    cr_expect(again.rebuilt && !again.rebuilding, "folded");
    cr_expect(wf_round_key_equal(&again.round, &state.round));
    const struct wf_journal_record open = {
        .kind = WF_JOURNAL_OPEN, .term = 9, .epoch = 4, .round = key(3, 1)};
    wf_journal_apply(&again, &open);
    cr_expect_not(again.rebuilt, "its own round");
    wf_journal_state_fini(&state);
    wf_journal_state_fini(&again);
    free(bytes);
    free(folded);
}

Test(journal, a_job_that_is_over_leaves_its_term)
{
    uint8_t *bytes = NULL, *folded = NULL;
    size_t len = 0, folded_len = 0, ends[RECORDS + 1], good = 0;
    struct wf_journal_state state = {.term = 0}, again = {.term = 0};
    struct wf_error error = {0};
    write_history(&bytes, &len, ends);
    const struct wf_journal_record end = {.kind = WF_JOURNAL_END, .term = 9, .epoch = 4};
    wf_journal_encode(&end, &bytes, &len);
    cr_assert_eq(wf_journal_read(bytes, len, &state, &good, &error), WF_OK, "%s", error.text);
    wf_journal_encode_state(&state, &folded, &folded_len);
    cr_assert_eq(wf_journal_read(folded, folded_len, &again, &good, &error), WF_OK, "%s",
                 error.text);
    const struct wf_journal_state *both[] = {&state, &again};
    for (int i = 0; i < 2; i++) {
        cr_expect(both[i]->ended && both[i]->term == 9 && !both[i]->rebuilding);
        cr_expect(both[i]->engine_count == 0 && wf_version_is_none(both[i]->round.version));
    }
    const struct wf_journal_record next = {.kind = WF_JOURNAL_TERM, .term = 12, .epoch = 1};
    wf_journal_apply(&state, &next);
    cr_expect(!state.ended && state.term == 12);
    wf_journal_state_fini(&state);
    wf_journal_state_fini(&again);
    free(bytes);
    free(folded);
}

Test(journal, an_empty_file_is_an_empty_journal)
{
    struct wf_journal_state state = {.term = 0};
    size_t good = 1;
    cr_expect_eq(wf_journal_read(NULL, 0, &state, &good, NULL), WF_OK);
    cr_expect_eq(good, 0);
    cr_expect_eq(state.term, 0);
}
