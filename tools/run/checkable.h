/* checkable.h - by what the element check of a job knows what each group's ranks must hold.
 *
 * Asked before anything starts, so that a job of which it does not know everything is refused with
 * one sentence, or, where the job does not want to be checked, says that nothing was.
 */
#ifndef WEFT_TOOLS_RUN_CHECKABLE_H
#define WEFT_TOOLS_RUN_CHECKABLE_H

#include "models/layout.h"
#include "tools/run/setup.h"

enum wf_run_check_by {
    WF_RUN_CHECK_LOADERS, /* the engines' loaders, retold apart from the layouts that moved it */
    WF_RUN_CHECK_LAYOUT,  /* the layout's own word: a family from a file */
    WF_RUN_CHECK_NOTHING, /* `knows` says whether it could be */
};

struct wf_run_check {
    enum wf_run_check_by by;
    bool knows;               /* else no reader can look for torn versions either */
    const char *group, *spec; /* borrows from the setup */
    char why[sizeof((struct wf_error *)0)->text]; /* of the last two; "" of the first */
};

/* Fills checks_out[WF_GROUPS_MAX] with an entry for each group that serves, in order. Refuses, as
 * the element check does, a group that it does not know, unless policy.validate_every is 0. */
enum wf_status wf_run_check_all(const struct wf_run_setup *setup, struct wf_run_check *checks_out,
                                uint32_t *count_out, struct wf_error *error);
/* A tensor that is written and not checked would make "no wrong elements" a half-truth: UNSUPPORTED
 * names it, or one that has another size. */
enum wf_status wf_run_check_tensors(const struct wf_layout *layout, const struct wf_verify *verify,
                                    struct wf_error *error);

#endif
