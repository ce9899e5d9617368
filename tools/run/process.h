/* process.h - the life of every process of `weft run` that is a rank or an engine's reader.
 *
 *   loop, env, transports --> the kind's start --> signals and gate --> loop --> exit status
 *
 * The gate is descriptor 3: lines from the parent, which ends the process when it closes. SIGTERM
 * and SIGINT end it in order. One object a process, first or not in the kind's own object, which
 * the kind's functions find from it (WF_CONTAINER). Loop thread only, but for wf_process_say.
 */
#ifndef WEFT_TOOLS_RUN_PROCESS_H
#define WEFT_TOOLS_RUN_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/rank.h"
#include "runtime/loop.h"
#include "runtime/trace.h"
#include "tools/run/hold.h"
#include "tools/run/memory.h"
#include "tools/run/setup.h"
#include "tools/run/signals.h"
#include "tools/run/stderr_log.h"
#include "tools/run/transports.h"

#define WF_RUN_IN_DOUBT "in doubt" /* a trainer's note: its own deadline for a version passed */

enum { WF_GATE_FD = 3, WF_PROCESS_SPANS = 256 };

/* What the command line told this process. */
struct wf_process_options {
    enum wf_side side;
    uint32_t rank;             /* a reader: its engine */
    const char *server;        /* NULL: the job file's */
    const char *reader_socket; /* NULL: no reader */
    const char *token_file;    /* NULL: the job file's, or the run folder's */
    const struct wf_job_file *job;
    bool gate;    /* descriptor 3 is a gate */
    bool verbose; /* says of aborted versions what the parent says once for all */
    bool crowded; /* more ranks than cores here: a loop that spins takes another's core */
};

struct wf_process;

/* What one kind of process does. */
struct wf_process_kind {
    const char *name; /* of its actor */
    bool reader; /* no rank: no jobs, transports or token, and to be asked to end is no failure */
    enum wf_verdict (*handle)(struct wf_actor *actor, struct wf_msg *msg);
    /* Loop, env and actor are there. A rank joins the job (wf_process_join). */
    enum wf_status (*start)(struct wf_process *process, struct wf_error *error);
    void (*gate_said)(struct wf_process *process, const char *line); /* NULL: it is told nothing */
    /* The rank has ended: true while the loop must go on all the same. */
    bool (*busy)(const struct wf_process *process);
    /* The rank is freed, the loop turns a last time after it: timers and connections. NULL: none.
     */
    void (*close)(struct wf_process *process);
    /* Nothing else is left, no job runs: memory. Zeroed where start did not get to it. */
    void (*fini)(struct wf_process *process);
};

struct wf_process {
    const struct wf_process_kind *kind;
    const struct wf_process_options *options;
    const struct wf_run_setup *setup;
    struct wf_run_place place; /* an infer rank's */
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_actor actor;
    struct wf_rank *rank;
    bool closing;        /* the rank is leaving the job */
    bool ended;          /* it has left */
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
    int exit_status;
};

/* The whole life of a process; gives its exit status. Borrows all. */
int wf_process_run(struct wf_process *process, const struct wf_process_kind *kind,
                   const struct wf_run_setup *setup, const struct wf_process_options *options);
/* Fills a rank's options but for what only its kind knows: hooks, ignore, store. The infer recipe
 * is the group's, with experts placed by rule. Borrows `memory` and `rank_out`'s strings. */
void wf_process_rank_options(const struct wf_process *process, const struct wf_run_memory *memory,
                             struct wf_rank_options *rank_out);
/* Makes the rank; its hooks get the process as their host, and `ended` is the process's own. */
enum wf_status wf_process_join(struct wf_process *process, struct wf_rank_options *rank,
                               struct wf_error *error);
/* The rank leaves the job and the process ends with this status, unless it has failed before. A
 * reader's loop stops at once. */
void wf_process_end(struct wf_process *process, int exit_status);
/* Stops the loop if the rank has ended and its kind is not busy: call when it no longer is. */
void wf_process_stop_when_quiet(struct wf_process *process);
/* Whether this rank tells of an aborted version itself: not where a parent does, once for all. */
bool wf_process_tells_aborts(const struct wf_process *process);
/* Prints "weft: train rank 3: TEXT" to standard error. Any thread. */
void wf_process_say(const struct wf_process *process, const char *text);
uint64_t wf_process_now_ns(const struct wf_process *process);
/* Adds a span of a version to the trace. `name` is a literal. */
void wf_process_span(struct wf_process *process, const char *name, uint64_t start_ns,
                     uint64_t end_ns, uint64_t step);
/* Sends a note to the server: the caller's fields, with who says it and the spans of the trace that
 * no note has carried yet. */
void wf_process_note(struct wf_process *process, struct wf_frame_note *note);

/* The bodies of the kinds of process; they give the exit status. A keeper is the infer rank of a
 * group that wf_run_keeps. */
int wf_train_process(const struct wf_run_setup *setup, const struct wf_process_options *options);
int wf_infer_process(const struct wf_run_setup *setup, const struct wf_process_options *options);
int wf_keeper_process(const struct wf_run_setup *setup, const struct wf_process_options *options);
int wf_reader_process(const struct wf_run_setup *setup, const struct wf_process_options *options);

#endif
