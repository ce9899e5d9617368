/* report.h - what a job did: gathered from the server's frames, written as JSON and as a table.
 *
 * The JSON's keys are the contract of docs/job-file.md ("Report"). Not thread-safe.
 */
#ifndef WEFT_TOOLS_RUN_REPORT_H
#define WEFT_TOOLS_RUN_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "actors/messages.h"
#include "runtime/status.h"
#include "tools/files/manifest_lacks.h"
#include "tools/run/checkable.h"
#include "tools/run/limit.h"

/* One attempt at one version. */
struct wf_report_round {
    struct wf_frame_round_report frame; /* lists are copies */
    uint64_t opened_ns;                 /* on this host's clock, as the spans are */
    /* Bytes a second that this host moves in memory and over a network; 0: not measured. */
    double memory_bytes_per_s, link_bytes_per_s;
    char limit_how[2 * sizeof(((struct wf_limit_kind *)0)->how) + 2];
    bool in_doubt; /* the trainer's own deadline passed before it ended */
};

/* A version whose trainer was told that it is in doubt. */
struct wf_report_doubt {
    struct wf_version version;
    bool settled; /* an attempt at it has ended since, or it was committed before that was said */
};

/* What the ranks found of one step. Notes may come before the round's own report does. */
struct wf_report_account {
    uint64_t step;
    uint64_t elements_checked, elements_wrong, torn_reads, reads;
};

/* How ranks' transports move bytes, in their own words: those that say the same together. */
struct wf_report_selected {
    char text[WF_OBJECT_MAX];
    uint32_t *ranks; /* inference ranks, ascending */
    uint32_t rank_count;
};

/* A span of a rank's time on this host's clock, for the timeline. */
struct wf_report_span {
    uint32_t side, rank, engine;
    uint64_t step;
    char name[32];
    uint64_t start_ns, end_ns;
};

struct wf_report {
    char job[WF_JOB_NAME_MAX];
    uint64_t versions_wanted; /* steps 1..versions_wanted */
    uint64_t every;           /* of which each `every`-th is a version */
    bool only_latest;         /* versions may be dropped for newer ones */
    bool failed;              /* the job did not end as it should */
    bool have_plan;
    struct wf_frame_plan_report plan;
    struct wf_report_round *rounds;
    uint32_t round_count;
    struct wf_report_account *accounts; /* one a step that has any */
    uint32_t account_count;
    struct wf_report_doubt *doubts;
    uint32_t doubt_count;
    struct wf_report_span *spans;
    uint32_t span_count;
    struct wf_report_selected *selected; /* as each rank said last */
    uint32_t selected_count;
    const struct wf_run_check *checks; /* borrows; of each infer group that serves */
    uint32_t check_count;
    const struct wf_manifest_lacks *lacks; /* borrows; of groups of which there is any to tell */
    uint32_t lacks_count;
    const struct wf_limit *limit;            /* borrows; NULL: nothing was measured */
    uint64_t train_own_peak, infer_own_peak; /* bytes, the largest rank of each side */
};

void wf_report_fini(struct wf_report *report);
void wf_report_plan(struct wf_report *report, const struct wf_frame_plan_report *frame);
/* `now_ns`: of this host's clock; the server's own begins elsewhere. */
void wf_report_round(struct wf_report *report, const struct wf_frame_round_report *frame,
                     uint64_t now_ns);
void wf_report_note(struct wf_report *report, const struct wf_frame_note *note);
/* A trainer's own deadline for a version passed; it may be told late, when that is committed.
 * False: that is known. */
bool wf_report_in_doubt(struct wf_report *report, struct wf_version version);
/* At the end: versions of which nobody heard again get an entry that says so. */
void wf_report_close_doubts(struct wf_report *report);
/* What was measured of this host, for the newest round of `step`. `limit` is borrowed until the
 * report is freed: its samples are reported too. */
void wf_report_limit(struct wf_report *report, uint64_t step, const struct wf_limit *limit);
/* The shortest that the round's transfer could have taken by that: its bytes by each transport at
 * the rate of memory or of the link, one after the other, since both need this host's cores. 0: not
 * known. */
double wf_report_limit_seconds(const struct wf_report_round *round);
/* Of fewer bytes caches and messages decide, and the limit is that of buffers larger than caches.
 */
#define WF_REPORT_RATIO_BYTES_MIN UINT64_C(32000000)
/* That over the measured transfer: 1 is the limit. 0: not known, nothing was committed, or fewer
 * bytes than that moved. */
double wf_report_limit_ratio(const struct wf_report_round *round);
/* Adds the ratio of every round that has one. */
void wf_report_ratios(const struct wf_report *report, struct wf_samples *samples_out);
/* The last attempt at `step`, or NULL. */
const struct wf_report_round *wf_report_last(const struct wf_report *report, uint64_t step);
/* The account that belongs to a round: that of its step, if it is the step's last attempt; else
 * zeros. */
struct wf_report_account wf_report_account(const struct wf_report *report,
                                           const struct wf_report_round *round);
/* Every wanted version committed in the end, nothing wrong, nothing torn, copies alike, no failure
 * besides. */
bool wf_report_ok(const struct wf_report *report);
/* Writes the JSON to `path` ("-" is standard output). */
enum wf_status wf_report_write(const struct wf_report *report, const char *path,
                               struct wf_error *error);
void wf_report_print(const struct wf_report *report, FILE *out);
/* What kept the transfer of a round from its limit, in a few words. */
const char *wf_report_bound_by(const struct wf_report_round *round);
/* An SVG picture: one row a rank, time to the right, phases in colours, versions marked. */
enum wf_status wf_timeline_write(const struct wf_report *report, const char *path,
                                 struct wf_error *error);
/* Creates `path` whole or not at all, with what `write` prints. */
enum wf_status wf_report_replace(const char *path, void (*write)(FILE *out, const void *user),
                                 const void *user, struct wf_error *error);

#endif
