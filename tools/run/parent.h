/* parent.h - `weft run JOB.yaml` as a user meets it: a whole job on this host.
 *
 * Starts the MetaServer, one process a rank and one reader an engine, watches them, starts a rank
 * that died once more, observes the server, shows progress, and writes the report. Between versions
 * it measures the host's memory limit, then lets the trainers go on; so the element checks of one
 * version never run beside the transfer of the next. Where others start the ranks (scope) there is
 * no gate: trainers make their steps by themselves, and no limit is measured.
 */
#ifndef WEFT_TOOLS_RUN_PARENT_H
#define WEFT_TOOLS_RUN_PARENT_H

#include <stdbool.h>

#include "tools/run/hosts.h"
#include "tools/run/setup.h"

enum wf_parent_scope {
    WF_PARENT_HOST,     /* the server and all ranks, on this host */
    WF_PARENT_LEADER,   /* the server and train rank 0; a launcher starts the others */
    WF_PARENT_OBSERVER, /* nothing: the job runs elsewhere, this writes its report */
};

struct wf_parent_options {
    enum wf_parent_scope scope;
    const char *listen; /* LEADER: where the server listens */
    const char *server; /* LEADER, OBSERVER: where it is reached */

    struct wf_hosts *hosts; /* HOST: where the ranks go, placed; NULL: all of them here */
    const char *json;       /* where the report goes; NULL is the job file's */
    const char *timeline;   /* where the SVG goes; NULL is none */
    bool quiet;             /* no progress, no table */
    bool verbose;           /* every rank's own words about an aborted version */
    const char *token_file; /* as given; NULL: none was */
};

/* Runs the job; gives the exit status (0 or 1). */
int wf_parent_run(struct wf_run_setup *setup, const struct wf_parent_options *options);

#endif
