/* parent.h - `weft run JOB.yaml` as a user meets it: a whole job on this host.
 *
 * Starts the MetaServer, one process a rank and one reader an engine, watches them, starts a rank
 * that died once more, observes the server, shows progress, and writes the report. Between versions
 * it measures the host's memory limit, then lets the trainers go on; so the element checks of one
 * version never run beside the transfer of the next.
 */
#ifndef WEFT_TOOLS_RUN_PARENT_H
#define WEFT_TOOLS_RUN_PARENT_H

#include <stdbool.h>

#include "tools/run/setup.h"

struct wf_parent_options {
    const char *json;     /* where the report goes; NULL is the job file's */
    const char *timeline; /* where the SVG goes; NULL is none */
    bool quiet;           /* no progress, no table */
};

/* Runs the job; gives the exit status (0 or 1). */
int wf_parent_run(struct wf_run_setup *setup, const struct wf_parent_options *options);

#endif
