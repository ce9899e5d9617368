/* parent_internal.h - the supervisor's state, shared by parent.c (life, stopping),
 * parent_children.c (processes), parent_server.c (its own server), parent_hosts.c (processes on
 * other hosts) and parent_gate.c (progress of versions). Everything happens on its loop's thread.
 */
#ifndef WEFT_TOOLS_RUN_PARENT_INTERNAL_H
#define WEFT_TOOLS_RUN_PARENT_INTERNAL_H

#include "actors/handshake.h"
#include "runtime/env.h"
#include "runtime/loop.h"
#include "tools/run/children.h"
#include "tools/run/far.h"
#include "tools/run/limit.h"
#include "tools/run/parent.h"
#include "tools/run/process.h"
#include "tools/run/progress.h"
#include "tools/run/report.h"
#include "tools/run/signals.h"
#include "tools/run/stderr_log.h"

#define WF_PARENT_SECOND_NS 1000000000ULL

enum parent_kind { PARENT_LIMIT_DONE = 0x1000 };
enum parent_state { STARTING, RUNNING, FINISHING, STOPPING };

/* A server that was started again repeats the newest accounts. */
struct parent_told {
    struct wf_version version;
    uint64_t attempt;
};

struct parent {
    struct wf_actor actor;
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_run_setup *setup;
    const struct wf_parent_options *options;
    struct wf_children children;
    struct wf_report report;
    struct wf_run_check checks[WF_GROUPS_MAX]; /* of the report */
    struct wf_manifest_lacks lacks[1 + WF_GROUPS_MAX];
    struct wf_progress progress;
    struct wf_limit limit;
    struct wf_job limit_job;
    struct wf_stderr_log log;
    struct wf_signals signals;
    struct wf_timer timer; /* of the state: notes, stopping */
    enum parent_state state;
    char server[WF_ADDRESS_MAX];
    char bound[WF_ADDRESS_MAX]; /* where our own server listens; "": there is none, or not yet */
    char journal[WF_PATH_MAX];  /* its folder, ours to remove; "": the job names one */
    bool was_lost;
    uint64_t lost_ns; /* since when there is no connection to it; 0: there is one */
    char token_file[WF_PATH_MAX];
    struct wf_token token;
    struct wf_handshake handshake; /* of conn */
    char reader_prefix[64];
    uint64_t conn, started_ns;
    struct wf_timer reconnect;
    bool greeted;              /* the server has answered once */
    uint64_t allowed;          /* the step trainers may make */
    uint64_t settled;          /* newest step that is committed or given up */
    uint64_t given_up;         /* newest step that was told to be */
    bool *noted;               /* by infer rank: its account of `settled` has come */
    struct parent_told *told;  /* by rank, train ranks first: the newest account */
    uint64_t *held_step;       /* by infer rank: the newest step that it said it has */
    uint64_t weights_bytes;    /* of the model */
    struct wf_far_output *far; /* by child; NULL: none on another host was started */
    bool *away;                /* by train rank, then infer rank: fenced for all we know */
    bool measuring, failed;
};

/* --- parent.c */
/* Bounds the wait of this state; `name` says what for. */
void wf_parent_arm(struct parent *p, uint64_t wait_ns, const char *name);
void wf_parent_stop(struct parent *p, bool failed);
/* As an observer. A failure comes later, with the connection's end. */
enum wf_status wf_parent_connect(struct parent *p, struct wf_error *error);
/* A sentence on standard error, beside the progress line. */
void wf_parent_complain(struct parent *p, const char *text);

/* --- parent_children.c */
/* Names all processes of the job, starts them, and connects to the server as an observer. */
enum wf_status wf_parent_start_all(struct parent *p, struct wf_error *error);
/* "infer rank 1, infer rank 2 and 3 more" */
void wf_parent_name_running(const struct parent *p, char *text, size_t size);

/* A rank was fenced, or is heard again: one that stays silent is killed. */
void wf_parent_take_presence(struct parent *p, const struct wf_frame_presence *presence);

/* --- parent_hosts.c */
/* Where a child runs; NULL: here, because there is no list, or it is the server. */
const struct wf_run_host *wf_parent_host_of(const struct parent *p, const struct wf_child *child);
/* An engine has a reader unless its ranks are on several hosts, or it keeps versions. */
bool wf_parent_reads(const struct parent *p, uint32_t engine);
/* Starts a child on another host; `arguments` have room for 4 more. */
enum wf_status wf_parent_start_far(struct parent *p, struct wf_child *child,
                                   const struct wf_run_host *host, const char **arguments,
                                   struct wf_error *error);
void wf_parent_end_far(struct parent *p);
/* Where the server listens for other hosts; "" if the default will do. */
enum wf_status wf_parent_far_listen(struct parent *p, char listen_out[WF_ADDRESS_MAX],
                                    struct wf_error *error);
/* Puts the address by which other hosts reach a server that is bound to all of this host's. */
enum wf_status wf_parent_far_server(struct parent *p, const char *bound, struct wf_error *error);

/* --- parent_server.c */
/* Our own server, if there is to be one: at first, waiting until it listens, or again on its
 * journal at the same address, without waiting. */
enum wf_status wf_parent_start_server(struct parent *p, struct wf_error *error);
void wf_parent_end_server(struct parent *p); /* it is gone: so is its journal */

/* --- parent_gate.c */
/* To be called whenever an account has come or a version has ended. */
void wf_parent_check_gate(struct parent *p);
/* Lets the trainers make the next step, or finish. */
void wf_parent_open_gate(struct parent *p);
/* Appends a name to a list; `before` are in it already. Long lists are cut, the end says how. */
void wf_parent_list(char *text, size_t size, const char *name, uint32_t before);
void wf_parent_list_end(char *text, size_t size, uint32_t count);
/* The infer ranks whose accounts are missing, in the same words. */
void wf_parent_name_awaited(const struct parent *p, char *text, size_t size);
/* When all is over: the job failed if a rank lacks the newest committed version. */
void wf_parent_check_end(struct parent *p);
void wf_parent_take_frame(struct parent *p, const struct wf_wire_msg *wire);

#endif
