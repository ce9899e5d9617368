/* part.h - which part of a job this process is: all of it, one rank that a launcher started, or
 * somebody who only watches.
 *
 * Pure: the environment is looked up through a callback. Who has the server follows from the job
 * file, equally in all ranks:
 *   server.address   it runs already
 *   server.listen    the first train rank starts it there (the leader); the others go to the same
 *                    address, or, where it is "*" or 0.0.0.0, to the host that the launcher names
 *   neither          only where all ranks are on one host: an abstract unix address that follows
 *                    from the launcher's job id
 */
#ifndef WEFT_TOOLS_RUN_PART_H
#define WEFT_TOOLS_RUN_PART_H

#include "config/launcher.h"
#include "tools/run/setup.h"

enum wf_run_kind { WF_RUN_JOB, WF_RUN_RANK, WF_RUN_LEADER, WF_RUN_OBSERVER };

/* What the command line says. */
struct wf_run_wish {
    enum wf_launcher launcher;    /* UNSAID: the job file's */
    const enum wf_job_part *part; /* NULL: the job file's */
    const char *server;           /* with its scheme; NULL: the job file's */
    const char *token_file;       /* NULL: the job file's, or what the environment names */
    bool observe;
};

struct wf_run_part {
    enum wf_run_kind kind;
    enum wf_side side; /* RANK, LEADER (always train rank 0) */
    uint32_t rank;
    char listen[WF_ADDRESS_MAX]; /* LEADER: where its server listens */
    char server[WF_ADDRESS_MAX]; /* RANK, LEADER, OBSERVER: where the server is reached */
    uint32_t local_world;        /* ranks on this host; 0: not known */
};

/* INVALID: the environment or the job file does not say enough, or contradicts itself; or ranks are
 * on several hosts and nothing says where their token is. */
enum wf_status wf_run_part_find(const struct wf_run_setup *setup, const struct wf_run_wish *wish,
                                wf_variable_lookup_t *lookup, void *user,
                                struct wf_run_part *part_out, struct wf_error *error);

#endif
