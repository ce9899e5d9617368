/* fuzz_journal.c - throws bytes at the journal's reader: it must refuse them with a sentence, or
 * give a state that survives being written down and read again. */
#include <stdlib.h>
#include <string.h>

#include "actors/journal.h"
#include "tests/fuzz/fuzz.h"

static void check_same(const struct wf_journal_state *a, const struct wf_journal_state *b)
{
    WF_ASSERT(a->term == b->term && a->member_count == b->member_count && a->fill == b->fill);
    WF_ASSERT(wf_round_key_equal(&a->round, &b->round));
    for (uint32_t e = 0; e < a->engine_count; e++) {
        bool there = e < b->engine_count;
        struct wf_version none = {0};
        WF_ASSERT(wf_version_compare(a->engines[e].committed,
                                     there ? b->engines[e].committed : none) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_journal_state state = {.term = 0}, again = {.term = 0};
    struct wf_error error = {0};
    size_t good = 0;
    uint8_t *exact =
        malloc(size + 1); /* an exact copy, so that a sanitizer sees a read behind it */
    WF_ASSERT(exact != NULL);
    memcpy(exact, data, size);
    if (wf_journal_read(exact, size, &state, &good, &error) != WF_OK) {
        WF_ASSERT(error.text[0] != '\0');
    } else if (size > 0 && state.term > 0) {
        uint8_t *bytes = NULL;
        size_t len = 0;
        WF_ASSERT(good <= size);
        wf_journal_encode_state(&state, &bytes, &len);
        WF_ASSERT(wf_journal_read(bytes, len, &again, &good, &error) == WF_OK && good == len);
        /* A round of no version is none, with whatever else such a record had. */
        if (!wf_version_is_none(state.round.version)) {
            check_same(&state, &again);
        }
        free(bytes);
    }
    wf_journal_state_fini(&state);
    wf_journal_state_fini(&again);
    free(exact);
    return 0;
}

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    static const struct wf_el_member members[] = {{WF_TRAIN, 0, 0, 1}, {WF_INFER, 3, 1, 2}};
    static const struct wf_el_unit units[] = {{0}, {1}, {7}};
    const struct wf_round_key key = {3, 2, 1, {3, 1, 5}, 1};
    const struct wf_journal_record records[] = {
        {.kind = WF_JOURNAL_TERM, .term = 3, .epoch = 1},
        {.kind = WF_JOURNAL_GENERATION, .term = 3, .epoch = 1, .generation = {3, 1, 4}},
        {.kind = WF_JOURNAL_OPEN,
         .term = 3,
         .epoch = 2,
         .round = key,
         .policy = WF_COMMIT_EACH,
         .members = members,
         .member_count = 2},
        {.kind = WF_JOURNAL_DECIDE,
         .term = 3,
         .epoch = 2,
         .round = key,
         .engines = units,
         .engine_count = 2},
        {.kind = WF_JOURNAL_COMMITTED,
         .term = 3,
         .epoch = 2,
         .round = key,
         .engines = units,
         .engine_count = 3},
        {.kind = WF_JOURNAL_REBUILD, .term = 3, .epoch = 2, .begins = true},
    };
    const uint32_t count = sizeof records / sizeof records[0];
    uint8_t *bytes = NULL;
    size_t len = 0;
    if (index > count) {
        return 0;
    }
    wf_journal_encode_header("fuzzed", &bytes, &len);
    for (uint32_t i = 0; i < index; i++) {
        wf_journal_encode(&records[i], &bytes, &len);
    }
    len = len < cap ? len : cap;
    memcpy(out, bytes, len);
    free(bytes);
    return len;
}
