/* test_mailbox.c - what one thread sees of a mailbox; test_mailbox_model.c and tests/tsan have the
 * interleavings. */
#include <criterion/criterion.h>

#include "runtime/mailbox.h"

/* A row is a script: p pushes the next message, o pops one, e marks empty, c closes. What each step
 * must give: p: S(chedule) Q(ueued) C(losed); o: the message's number or -; e: y or n; c: '.'. */
static const struct script_row {
    const char *name, *steps, *results;
} script_rows[] = {
    {"the first push schedules", "ppp", "SQQ"},
    {"first in, first out", "pppooo", "SQQ012"},
    {"empty gives nothing", "oo", "--"},
    {"push and pop in turn", "popopo", "S0Q1Q2"},
    {"after mark_empty a push schedules again", "poeppoo", "S0ySQ12"},
    {"not empty while something waits", "ppoeoe", "SQ0n1y"},
    {"closed refuses, what waits stays", "ppcpooo", "SQ.C01-"},
    {"closed from the start", "cpo", ".C-"},
    {"closing keeps the mark", "poecpo", "S0y.C-"},
    {"closed when empty is marked", "pcoep", "S.0yC"},
};

static char step(struct wf_mailbox *box, struct wf_mail *mails, unsigned *pushed, char what)
{
    switch (what) {
    case 'p':
        return "QSC"[wf_mailbox_push(box, &mails[(*pushed)++])];
    case 'o': {
        struct wf_mail *mail = wf_mailbox_pop(box);
        return mail != NULL ? (char)('0' + (mail - mails)) : '-';
    }
    case 'e':
        return wf_mailbox_mark_empty(box) ? 'y' : 'n';
    default:
        wf_mailbox_close(box);
        return '.';
    }
}

Test(mailbox, scripts)
{
    for (size_t i = 0; i < sizeof script_rows / sizeof script_rows[0]; i++) {
        const struct script_row *row = &script_rows[i];
        struct wf_mailbox box;
        struct wf_mail mails[8];
        unsigned pushed = 0;
        wf_mailbox_init(&box);
        for (size_t s = 0; row->steps[s] != '\0'; s++) {
            char found = step(&box, mails, &pushed, row->steps[s]);
            cr_assert_eq(found, row->results[s], "%s: step %zu gave %c, not %c", row->name, s,
                         found, row->results[s]);
        }
    }
}

Test(mailbox, a_list_is_first_in_first_out_and_can_be_used_again)
{
    struct wf_mail_list list = {0};
    struct wf_mail mails[3];
    for (int round = 0; round < 2; round++) {
        cr_assert_null(wf_mail_list_pop(&list));
        for (int i = 0; i < 3; i++) {
            wf_mail_list_push(&list, &mails[i]);
        }
        for (int i = 0; i < 3; i++) {
            cr_assert_eq(wf_mail_list_pop(&list), &mails[i]);
        }
    }
}
