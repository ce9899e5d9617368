/* job.h - a job file: one YAML document checked against a schema, turned into plain values.
 *
 * The schema is a table (config/job.c); docs/job-file.md says what each key means, and a test holds
 * the two together. An error names the file, the line, the key, what was expected, and the nearest
 * valid key. Relative paths are relative to the job file's folder; `~` and variables are not
 * expanded.
 */
#ifndef WEFT_CONFIG_JOB_H
#define WEFT_CONFIG_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/rank.h"
#include "actors/round.h"
#include "config/family_file.h"
#include "config/interfaces.h"
#include "config/launcher.h"
#include "runtime/status.h"
#include "transports/fault.h"

enum {
    WF_GROUPS_MAX = 64,
    WF_IGNORE_MAX = 64,
    WF_PATH_MAX = 1024,
    WF_JOB_TRANSPORT_NAME = 16,
    WF_JOB_UCX_MAX = 64,
    WF_FAULT_RANKS_MAX = 64,
    WF_JOB_PLACEMENTS_MAX = 4,
};

/* Which ranks of a job a launcher starts: its rank 0 is the first of them, train ranks first. */
enum wf_job_part { WF_PART_ALL, WF_PART_TRAIN, WF_PART_INFER };

/* Where the experts of a group's engines stand after a version; 0: from the start. */
struct wf_job_placement {
    char table[WF_PATH_MAX]; /* a file: tools/run/placement.h */
    uint64_t after;
};

struct wf_job_group {
    char name[WF_LABEL_MAX];
    char spec[WF_SPEC_MAX];
    enum wf_update_mode mode;
    char staging[32];       /* "host" */
    char host[WF_HOST_MAX]; /* test: the name of the host that its ranks are taken to be on */
    char ignore[WF_IGNORE_MAX][WF_NAME_MAX];
    uint32_t ignore_count;
    struct wf_job_placement placements[WF_JOB_PLACEMENTS_MAX]; /* by `after`, rising */
    uint32_t placement_count;
};

struct wf_job_ucx_option {
    char name[64], value[256]; /* UCX's own: "TLS", "tcp" */
};

/* What goes wrong on purpose with reads of inference ranks. */
struct wf_job_fault {
    struct wf_fault fault;
    char transport[WF_JOB_TRANSPORT_NAME];          /* "": any */
    uint64_t seed;                                  /* of the draws; default 1 */
    uint32_t ranks[WF_FAULT_RANKS_MAX], rank_count; /* 0: all */
};

#define WF_TRANSIT_DEFAULT (UINT64_C(64) << 20) /* of transport.transit_budget */
#define WF_TRANSIT_MIN (UINT64_C(1) << 20)
#define WF_TRANSIT_MAX (UINT64_C(1) << 40)

struct wf_job_file {
    char path[WF_PATH_MAX]; /* of the file */
    char name[WF_JOB_NAME_MAX];
    char model[WF_PATH_MAX];                         /* HF folder, or a config.json */
    char families[WF_FAMILY_FILES_MAX][WF_PATH_MAX]; /* files of families (config/family_file.h) */
    uint32_t family_count;
    char train_spec[WF_SPEC_MAX];
    enum wf_publish_mode publish;
    uint64_t deadline_ns; /* of the trainer's own for a version's outcome; 0: none */
    struct wf_job_group infer[WF_GROUPS_MAX]; /* ranks are numbered in list order */
    uint32_t infer_count;
    struct {
        enum wf_commit_policy commit;
        uint64_t every;
        bool drop_to_latest;
        uint64_t validate_every; /* element check every n versions; default 1; 0 never */
        uint32_t fill;           /* WF_FILL_ bits; default: all that there are */
        bool extras_refuse;      /* extra tensors in an HF folder: refuse instead of warn */
    } policy;
    struct {
        char folder[WF_PATH_MAX]; /* where versions lie as Hugging Face folders, or "" */
        uint32_t keep;            /* so many of the newest; default 2 */
        uint64_t every;           /* which are written; default 1 */
    } files;
    struct {
        char prefer[WF_TRANSPORTS_MAX][WF_JOB_TRANSPORT_NAME]; /* "shm", "ucx" */
        uint32_t prefer_count;                                 /* 0: auto */
        bool share_memory; /* test: false makes trainers use memory that cannot be mapped */
        char interfaces[WF_INTERFACES_TEXT]; /* rules (config/interfaces.h), or "" */
        bool transit_is_set;                 /* the file says it: what is prepared has to fit too */
        uint64_t transit_bytes;              /* of one rank: in flight and packed; default 64 MiB */
        uint32_t lanes; /* connections to each source that is read over a network; default 1 */
        struct wf_job_ucx_option ucx[WF_JOB_UCX_MAX];
        uint32_t ucx_count;
    } transport;
    struct wf_job_fault faults[WF_FAULTS_MAX];
    uint32_t fault_count;
    struct wf_timeouts timeouts;
    struct {
        /* With their schemes (config/address.h). */
        char listen[WF_ADDRESS_MAX];  /* default: an abstract unix address of this run */
        char address[WF_ADDRESS_MAX]; /* an already running server, or "" */
        char token_file[WF_PATH_MAX]; /* "" is none: whoever starts the server makes one */
        char journal[WF_PATH_MAX];    /* the folder of its journal, or "" */
    } server;
    struct {
        uint64_t versions;         /* default 5 */
        bool readers;              /* default true */
        bool skip_pause;           /* test-only switch: flips without the pause */
        bool skip_derived;         /* test-only switch: derived tensors are not made anew */
        bool packed_head;          /* engines keep a packed copy of a tied head */
        enum wf_launcher launcher; /* whose environment counts; default UNSAID */
        enum wf_job_part part;     /* what that launcher starts */
        uint64_t frozen_ns; /* a fenced rank of which nothing is heard for so long is killed */
    } run;
    char report[WF_PATH_MAX]; /* "" is none */
};

/* Reads the file; the sentence of an error begins with its path. IO: it cannot be read. */
enum wf_status wf_job_load(const char *path, struct wf_job_file *job_out, struct wf_error *error);

/* Visits every key that a job file may have, with its path ("infer.spec"), a mapping before what is
 * in it. */
enum wf_job_key { WF_JOB_KEY_NEEDED, WF_JOB_KEY_OPTIONAL };
typedef void wf_job_visit_t(void *user, const char *path, enum wf_job_key kind);
void wf_job_keys(wf_job_visit_t *visit, void *user);
/* "all", "train" or "infer". */
bool wf_job_part_parse(const char *word, enum wf_job_part *part_out);
/* The same from memory: any bytes. `path` only decides what relative paths mean. */
enum wf_status wf_job_parse(const char *path, const char *text, size_t len,
                            struct wf_job_file *job_out, struct wf_error *error);

#endif
