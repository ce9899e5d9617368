/* metrics.h - a status in the text format of Prometheus (version 0.0.4): HELP, TYPE, samples.
 * docs/watching.md has the table. */
#ifndef WEFT_TOOLS_WATCH_METRICS_H
#define WEFT_TOOLS_WATCH_METRICS_H

#include "actors/messages.h"

/* Gives malloc'd text; its length in *len_out. */
char *wf_metrics_text(const struct wf_frame_status *status, size_t *len_out);

#endif
