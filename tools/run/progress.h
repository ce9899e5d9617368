/* progress.h - the live line of a running job on a terminal, a line a version elsewhere. */
#ifndef WEFT_TOOLS_RUN_PROGRESS_H
#define WEFT_TOOLS_RUN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "actors/messages.h"

struct wf_progress {
    FILE *out; /* borrows; NULL: silent, but for versions that are aborted: standard error */
    bool terminal, shown;
    uint64_t versions;
};

void wf_progress_init(struct wf_progress *progress, FILE *out, uint64_t versions);
void wf_progress_plan(struct wf_progress *progress, const struct wf_frame_plan_report *plan);
void wf_progress_phase(struct wf_progress *progress, const struct wf_frame_progress *frame);
/* Of an aborted version: `keeping` infer ranks that are there keep what they serve. */
void wf_progress_round(struct wf_progress *progress, const struct wf_frame_round_report *round,
                       uint32_t keeping);
/* No further attempt: the trainer has its weights back. */
void wf_progress_given_up(struct wf_progress *progress, struct wf_version version);
void wf_progress_doubt(struct wf_progress *progress, struct wf_version version);
/* Takes the live line away, before something else is printed. */
void wf_progress_clear(struct wf_progress *progress);

#endif
