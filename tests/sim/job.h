/* job.h - a whole job under the simulator: a MetaServer, 4 train ranks (tp2 pp2), 2 engines of 2
 * ranks, hosts that train, publish, pause and serve, faults drawn from the seed, and a checker that
 * looks after every event. With `cut` the train ranks are FSDP's.
 *
 * Each published (generation, step) has its own content: every element of every tensor of every
 * train rank is one number that follows from the version, and what engines have that is made of it
 * (codes and scales, norms that trainers hold less 1) follows too. So whatever an engine may serve
 * can be compared with the version it claims, and with what its other ranks hold. In jobs with
 * experts the number follows from the parameter too, so that swapped experts are seen.
 */
#ifndef WEFT_TESTS_SIM_JOB_H
#define WEFT_TESTS_SIM_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "actors/rank.h"

enum {
    JOB_TRAIN = 4,
    JOB_INFER = 4,
    JOB_RANKS = JOB_TRAIN + JOB_INFER,
    JOB_ENGINES = 2,
    JOB_FAULTS_MAX = 6,
    JOB_RECORDS = 10, /* kinds of records in a journal */
    JOB_ALTERED_STEP = 2,
};

/* Where a fault strikes: at a drawn time, or when its target reaches a state of the protocol. The
 * last two are drawn in jobs with `prepared` and `cut` alone. */
/* clang-format off */
#define JOB_POINT_MAP(X) \
    X(AT_TIME) X(AT_PLANNING) X(AT_READ) X(AT_DOUBT) X(AT_QUIESCING) X(AT_TOLD) X(AT_FLIPPING) \
    X(AT_QUIET) X(AT_WRITING) X(AT_SOURCE) X(AT_FLIPPED) X(AT_DROPPING) X(AT_HOLD) X(AT_GRANTED) X(AT_OPENED) X(AT_CLOSING) \
    X(AT_PREPARING) X(AT_QUANTISING)
/* clang-format on */
enum job_point {
#define JOB_POINT_ENUM(name) JOB_##name,
    JOB_POINT_MAP(JOB_POINT_ENUM)
#undef JOB_POINT_ENUM
        JOB_POINT_COUNT
};
/* The last three are the server's: its journal is lost with it; another server gets its address; it
 * dies in the middle of a write, or the disk is full. */
#define JOB_FAULT_MAP(X) \
    X(CRASH) X(FREEZE_SHORT) X(FREEZE_LONG) X(BREAK) X(STALL) X(LOSE) X(TAKEOVER) X(WRITE)
enum job_fault_kind {
#define JOB_FAULT_ENUM(name) JOB_##name,
    JOB_FAULT_MAP(JOB_FAULT_ENUM)
#undef JOB_FAULT_ENUM
        JOB_FAULT_COUNT
};

struct job_options {
    uint64_t seed;
    uint32_t versions; /* at least so many steps; 0: 3 */
    enum wf_commit_policy policy;
    enum wf_publish_mode publish;
    bool drop_to_latest, no_fill;
    bool faults;        /* draw some */
    bool server_faults; /* some of them the server's, which has a journal then */
    bool slow_links;    /* reads take long */
    bool bad_links;     /* reads stall and fail */
    bool corrupt;       /* and arrive corrupted */
    bool skip_quiesce;  /* the planted bug: ranks flip without the pause */
    bool unseen_flips;  /* another: as if no rank ever flipped to what is released */
    bool swapped;       /* a third: hosts have another table of experts than they tell */
    uint32_t in_place;  /* bit e: engine e is updated in place */
    enum { JOB_NO_STORE, JOB_STORE_TOO, JOB_STORE_ALONE } store; /* as a source of fills */
    uint64_t deadline_ns;                                        /* of the trainers' own; 0: none */
    bool experts;  /* the model has some, which engines move after versions */
    bool prepared; /* the model has what trainers prepare: norms that they hold less 1 */
    bool quant;    /* and engines want codes and scales too */
    bool cut;      /* which no trainer has whole blocks for: FSDP; with `prepared` and `quant` */
    bool casts;    /* trainers are in f32, engines in bf16: what fits is cast once */
    uint64_t every;
    uint64_t validate_every; /* copies are compared; engines pack nothing then */
    /* One rank's copy of the last norm differs in step JOB_ALTERED_STEP. */
    enum { JOB_UNALTERED, JOB_ALTERED_TRAIN, JOB_ALTERED_INFER } altered;
    uint32_t attempts_max; /* 0: the server's default */
    FILE *trace;           /* events of the world */
};

struct job_result {
    char failure[400]; /* empty: all was well */
    uint64_t trace_hash, events;
    uint32_t commits, aborts, fills, replica_fills, store_fills, doubts, struck, struck_server;
    uint32_t placements;   /* tables that ranks took */
    uint32_t tables_taken; /* that newcomers were told */
    uint32_t struck_at[JOB_POINT_COUNT], struck_by[JOB_FAULT_COUNT];
    uint32_t struck_server_by[JOB_FAULT_COUNT], struck_record[JOB_RECORDS];
    uint64_t digest_mismatches;
    uint64_t compared;  /* copies of ranks, over all rounds */
    uint32_t different; /* rounds that found a difference */
    uint64_t last_step;
    char culprit[700]; /* of the last aborted round */
};

/* What a seed stands for: policies, publish modes and links vary with it. */
struct job_options job_options_of_seed(uint64_t seed);
struct job_options job_options_of_server_seed(uint64_t seed);
/* With experts; every second one has faults of the server. */
struct job_options job_options_of_experts_seed(uint64_t seed);
/* With `prepared`, every second one with `quant`; every third one has faults of the server. */
struct job_options job_options_of_prepared_seed(uint64_t seed);
/* With `validate_every`, of all the others' kinds; some of them altered. */
struct job_options job_options_of_replicas_seed(uint64_t seed);
/* With `cut`; every third one has faults of the server. */
struct job_options job_options_of_cut_seed(uint64_t seed);
/* With `casts`; every third one has faults of the server. */
struct job_options job_options_of_casts_seed(uint64_t seed);
/* Runs one seed to its end: faults first, then none, until the job is complete. */
void job_run(const struct job_options *options, struct job_result *result);

extern const char *const job_point_names[JOB_POINT_COUNT];
extern const char *const job_fault_names[JOB_FAULT_COUNT];

#endif
