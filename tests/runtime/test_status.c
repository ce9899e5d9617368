/* test_status.c - sentences are cut, cleaned and prefixed; numbers from peers have a name. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/status.h"

Test(status, unknown_numbers_have_a_name)
{
    cr_assert_str_eq(wf_status_name(WF_DIGEST), "DIGEST");
    cr_assert_str_eq(wf_status_name(251), "UNKNOWN");
    cr_assert_str_eq(wf_status_text(-7), "unknown status");
}

Test(status, control_characters_do_not_reach_a_terminal)
{
    struct wf_error error;
    cr_assert_eq(wf_error_set(&error, WF_INVALID, "name \"%s\"", "a\x1b[2Jb\n"), WF_INVALID);
    cr_assert_str_eq(error.text, "name \"a?[2Jb?\"");
}

Test(status, a_long_sentence_is_cut_visibly)
{
    char longer[3000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    struct wf_error error;
    wf_error_set(&error, WF_IO, "%s", longer);
    cr_assert_eq(strlen(error.text), WF_ERROR_TEXT_MAX - 1);
    cr_assert_str_eq(error.text + strlen(error.text) - 3, "...");
}

Test(status, a_prefix_keeps_the_status)
{
    struct wf_error error;
    wf_error_set(&error, WF_IO, "cannot read");
    wf_error_prefix(&error, "file %d", 3);
    cr_assert_str_eq(error.text, "file 3: cannot read");
    cr_assert_eq(error.status, WF_IO);
    wf_error_prefix(NULL, "nothing");
    cr_assert_eq(wf_error_set(NULL, WF_IO, "nothing"), WF_IO);
}
