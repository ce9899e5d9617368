/* process.h - what every rank process of `weft run` has: a loop, an env, a transport, a gate.
 *
 * The gate is descriptor 3: lines from the parent, which ends the process when it closes. SIGTERM
 * and SIGINT end it in order. One object a process; loop thread only.
 */
#ifndef WEFT_TOOLS_RUN_PROCESS_H
#define WEFT_TOOLS_RUN_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/rank.h"
#include "runtime/loop.h"
#include "runtime/trace.h"
#include "tools/run/hold.h"
#include "tools/run/setup.h"
#include "tools/run/signals.h"
#include "tools/run/stderr_log.h"
#include "tools/run/transports.h"

#define WF_RUN_IN_DOUBT "in doubt" /* a trainer's note: its own deadline for a version passed */

enum { WF_GATE_FD = 3, WF_NOTE_SPANS = 48, WF_PROCESS_SPANS = 256 };

/* What the command line told this process. */
struct wf_process_options {
    enum wf_side side;
    uint32_t rank;             /* a reader: its engine */
    const char *server;        /* NULL: the job file's */
    const char *reader_socket; /* NULL: no reader */
    const char *token_file;    /* NULL: the job file's, or the run folder's */
    const struct wf_job_file *job;
    bool gate;    /* descriptor 3 is a gate */
    bool crowded; /* more ranks than cores here: a loop that spins takes another's core */
};

struct wf_process {
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_hold hold; /* for tests */
    struct wf_run_transports transports;
    struct wf_stderr_log log;
    struct wf_trace trace; /* what the rank and its host did */
    uint64_t spans_noted;  /* of the trace's `written`: what went out with notes */
    struct wf_signals signals;
    struct wf_watch gate;
    char host[WF_HOST_MAX];
    char listen[2 * WF_ADDRESS_MAX]; /* where readers reach this rank */
    struct wf_token token;           /* the job's; a reader has none */
    char gate_line[64];
    uint32_t gate_len;
    void (*gate_said)(void *user, const char *line); /* a line without its end; NULL: gate closed */
    void (*asked_to_end)(void *user);                /* a signal, or the parent is gone */
    void *user;
    int exit_status;
};

/* Makes the loop, the env (`workers` threads for jobs; 0: a reader) and a rank's transports. */
enum wf_status wf_process_init(struct wf_process *process, const struct wf_run_setup *setup,
                               const struct wf_process_options *options, unsigned workers,
                               struct wf_error *error);
/* Begins to watch signals and the gate; then wf_loop_run. */
enum wf_status wf_process_watch(struct wf_process *process,
                                const struct wf_process_options *options, struct wf_error *error);
void wf_process_fini(struct wf_process *process);
/* Prints "weft: train rank 3: TEXT" to standard error. */
void wf_process_say(const struct wf_process_options *options, const char *text);
/* The spans of the trace that no note has carried yet, at most WF_NOTE_SPANS; gives how many. */
uint32_t wf_process_spans(struct wf_process *process, struct wf_el_span spans_out[WF_NOTE_SPANS]);
/* Fills the options of a rank that do not depend on its side. */
void wf_process_rank_options(const struct wf_process *process, const struct wf_run_setup *setup,
                             const struct wf_process_options *options,
                             struct wf_rank_options *rank_out);

/* The bodies of the kinds of process; they give the exit status. A keeper is the infer rank of a
 * group that wf_run_keeps. */
int wf_train_process(struct wf_run_setup *setup, const struct wf_process_options *options);
int wf_infer_process(struct wf_run_setup *setup, const struct wf_process_options *options);
int wf_keeper_process(struct wf_run_setup *setup, const struct wf_process_options *options);
int wf_reader_process(struct wf_run_setup *setup, const struct wf_process_options *options);

#endif
