/* print.h - a status for people at a terminal. */
#ifndef WEFT_TOOLS_WATCH_PRINT_H
#define WEFT_TOOLS_WATCH_PRINT_H

#include <stdio.h>

#include "actors/messages.h"

enum { WF_PRINT_RANKS = 64, WF_PRINT_ROUNDS = 10 }; /* more are counted */

/* Job, engines, ranks, last rounds. */
void wf_status_print(const struct wf_frame_status *status, FILE *out);
/* Who waits for whom, one a line. */
void wf_status_print_waits(const struct wf_frame_status *status, FILE *out);

#endif
