/* test_nearest.c - suggestions for mistyped words. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/nearest.h"

static const char *const words[] = {"policy", "transport", "timeouts", "run", "hf"};

enum { COUNT = sizeof words / sizeof words[0] };

static const struct {
    const char *typed, *nearest;
} rows[] = {
    {"polcy", "policy"}, {"transports", "transport"}, {"timeout", "timeouts"},
    {"rn", "run"},       {"zzzzzzzzzzzz", NULL},      {"", NULL},
};

Test(nearest, table)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *found = wf_nearest(rows[i].typed, strlen(rows[i].typed), words, COUNT);
        if (rows[i].nearest == NULL) {
            cr_assert_null(found, "\"%s\" gave %s", rows[i].typed, found);
        } else {
            cr_assert_not_null(found, "\"%s\"", rows[i].typed);
            cr_assert_str_eq(found, rows[i].nearest, "\"%s\"", rows[i].typed);
        }
    }
}

Test(nearest, a_word_of_any_length_is_survived)
{
    char longer[4096];
    memset(longer, 'p', sizeof longer);
    cr_assert_null(wf_nearest(longer, sizeof longer, words, COUNT));
}
