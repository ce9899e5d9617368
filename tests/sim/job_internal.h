/* job_internal.h - the world's parts, shared by tests/sim/job*.c. */
#ifndef WEFT_TESTS_SIM_JOB_INTERNAL_H
#define WEFT_TESTS_SIM_JOB_INTERNAL_H

#include "actors/journal_file.h"
#include "actors/meta_client_internal.h"
#include "actors/meta_server_internal.h"
#include "actors/receiver.h"
#include "actors/sender.h"
#include "runtime/env_sim.h"
#include "tests/sim/job.h"
#include "transports/sim.h"

#define MS UINT64_C(1000000)
#define SEC (1000 * MS)

struct job;
struct job_rank {
    struct job *job;
    enum wf_side side;
    uint32_t index, engine;
    struct wf_loop *loop;
    struct wf_rank *rank;
    struct wf_transport *transport;
    struct wf_region memory;
    struct wf_rank_tensor *tensors;
    struct wf_layout *layout; /* own derivation, to make the tensors */
    uint32_t *marks;          /* of each two bytes of memory, by the table that it has */
    bool alive, frozen, ended;
    uint64_t restart_ns, thaw_ns; /* of the world; 0: not */
    struct wf_error why;
    struct wf_timer timer;
    /* infer */
    bool serving;
    uint32_t table; /* of experts, that it took: 0 is by rule */
    uint32_t moves; /* of its engine's, that it knows of */
    struct wf_timer placing;
    struct wf_version version, top;
    struct wf_version released;         /* train: newest that engines are said to have */
    struct wf_version settled, doubted; /* train: newest whose end, whose doubt it was told */
    struct wf_frame_held held;          /* newest version that observers were told of, */
    bool held_ended;                    /* and since then none */
    /* train */
    uint64_t step; /* of the weights */
    bool must_publish, waits_outcome, finished;
};

struct job_fault {
    enum job_fault_kind kind;
    enum job_point point;
    uint32_t target; /* whose state is watched: rank index; JOB_RANKS: the server */
    bool at_server;  /* it is the server that is struck then */
    uint32_t skip;   /* passes by so often before it strikes */
    uint64_t after_ns;
    bool inside, armed, struck;
    uint64_t strike_ns;
};

enum { JOB_SERVERS_MAX = 12, JOB_ABANDONED_MAX = 64 };

/* A version's newest round, as the server records it. */
struct job_round {
    struct wf_version version;
    uint64_t opened_ns;
    uint32_t decided; /* bit e: engine e is */
};
struct job_server {
    struct job *job;
    struct wf_loop *loop;
    struct wf_meta_server *server;
    struct wf_journal_file *journal;
    enum wf_journal_kind record; /* that it writes */
    bool alive, frozen, ended;
    uint64_t thaw_ns;
    struct wf_error why;
};

struct job {
    struct job_options options;
    struct job_result *result;
    struct wf_sim *sim;
    struct wf_model *model;
    struct wf_recipe recipes[2];
    struct wf_sim_link_options links;
    struct wf_store store;
    struct wf_loop *observer_loop;
    struct job_server servers[JOB_SERVERS_MAX], *current; /* current: the newest */
    uint32_t server_count, server_disk;
    struct wf_meta_server *server; /* current->server; NULL: it is dead */
    bool server_ended, server_recovers, journal_was_lost;
    uint64_t server_restart_ns;
    bool write_armed;
    enum wf_sim_write write_what;
    struct wf_version abandoned[JOB_ABANDONED_MAX]; /* a train rank was told that it was aborted */
    uint32_t abandoned_count;
    struct wf_version flipped[JOB_ABANDONED_MAX]; /* that any rank has flipped to, dead ones too */
    uint32_t flipped_count;
    struct job_round rounds[JOB_ABANDONED_MAX];
    uint32_t round_count;
    /* Until when a fault may show: at a rank; at the server or at any connection. */
    uint64_t rank_hurt_ns[JOB_RANKS], hurt_ns;
    char address[WF_ADDRESS_MAX];
    struct wf_token token;
    struct {
        uint32_t table; /* that its hosts agreed on, after the newest version that they served */
        uint32_t moves;
        struct wf_version after;
    } engines[JOB_ENGINES];
    struct job_rank ranks[JOB_RANKS];
    struct job_fault faults[JOB_FAULTS_MAX];
    uint32_t fault_count;
    bool calm; /* faults are over */
    uint64_t final_step;
    struct {
        struct wf_actor actor;
        uint64_t conn;
        struct wf_handshake handshake;
        struct wf_timer retry;
    } observer;
};

void job_fail(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct wf_timeouts job_timeouts(void);

/* job_host.c: the processes */
void job_rank_start(struct job *job, uint32_t index);
void job_rank_teardown(void *user, struct wf_loop *loop);
/* The bits that elements of a tensor of an infer rank have then. */
uint32_t job_arrived(const struct job_rank *host, uint64_t tensor, uint16_t content);
void job_rank_release_ended(struct job_rank *host);

/* job_marks.c. A mark is 1 + a parameter's index in the inventory, in jobs with experts, whose
 * elements are all bf16; elsewhere, and for a fill: 0. */
uint16_t job_content(struct wf_version version, uint32_t mark); /* an element's bf16 */
void job_mark_tensor(const struct wf_layout *layout, uint32_t tensor, uint32_t *marks);
/* The host's elements are what `layout` says; all of them become that version's. */
void job_rank_mark(struct job_rank *host, const struct wf_layout *layout);
void job_rank_write(struct job_rank *host, struct wf_version version);

/* job_replicas.c: the copy that differs, where the job has one */
bool job_is_altered(const struct job_rank *host, uint64_t tensor); /* in what it serves */
void job_alter(struct job_rank *host, struct wf_version version);
void job_check_replicas(struct job *job, const struct wf_frame_round_report *report);
/* False, and the job has failed: an engine in place reads the version in which trainers differ. */
bool job_check_unwritten(struct job *job);

/* job_server.c */
void job_server_start(struct job *job);
void job_server_strike(struct job *job, enum job_fault_kind kind);
void job_server_step(struct job *job); /* thaws, starts again */

/* job_store.c: of job->store */
extern const struct wf_store_ops job_store_ops;

/* job_faults.c */
void job_faults_draw(struct job *job);
void job_faults_step(struct job *job); /* after each event */
bool job_faults_over(const struct job *job);
void job_faults_stop(struct job *job);

/* job_check.c: after each event; false: it has failed */
bool job_check(struct job *job);
bool job_check_end(struct job *job);
/* A train rank is about to change its weights: nobody who counts may be in the middle of a read. */
void job_check_unread(const struct job_rank *writer);
/* A train rank was told that a version is given up; a rank has flipped to one. Both is wrong. */
void job_check_abandoned(struct job *job, struct wf_version version);
void job_check_flipped(struct job *job, struct wf_version version);
/* A server that is not recovering opens a round; any decides for engines. */
void job_check_opened(struct job *job, struct wf_version version);
void job_check_decided(struct job *job, const struct wf_journal_record *record);
/* A train rank was told that engines have it. */
void job_check_released(struct job *job, struct wf_version version);

/* job_observer.c */
void job_observer_start(struct job *job);
void job_observer_again(struct job *job); /* its server has another address now */

#endif
