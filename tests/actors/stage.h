/* stage.h - the data actors of a few ranks in one process, without a server.
 *
 * Each rank has its own loop and real env; the test is their MetaClient: it sends local messages
 * and finds the answers in `answers`. Loops are turned one after the other in the test's thread.
 */
#ifndef WEFT_TESTS_ACTORS_STAGE_H
#define WEFT_TESTS_ACTORS_STAGE_H

#include "actors/local.h"
#include "transports/memory.h"

enum {
    STAGE_RANKS_MAX = 8,
    STAGE_ANSWERS_MAX = 8,
    STAGE_PATIENCE_S = 100 /* of what must happen: a machine may be very slow */
};

struct wf_meta_client {
    struct wf_actor actor;
    struct wf_local_msg *answers[STAGE_ANSWERS_MAX]; /* oldest first; owned */
    uint32_t answer_count;
    struct wf_frame_held held; /* what it says its memory is */
};

struct stage_rank {
    struct wf_rank rank;
    struct wf_meta_client client;
    struct wf_env *env;
    struct wf_transport *transports[WF_TRANSPORTS_MAX];
    struct wf_region memory;
    struct wf_rank_tensor *tensors;
    bool open;
};

struct stage {
    struct wf_model *model;
    struct wf_recipe recipes[2];              /* by side */
    struct stage_rank ranks[STAGE_RANKS_MAX]; /* train, then infer */
    uint32_t train, infer;
    uint64_t epoch;
};

struct stage_options {
    const char *train, *infer; /* SPECs */
    const char *config;        /* of the model; NULL: a small llama */
    bool share_memory;         /* trainers' memory is a memfd */
    enum wf_publish_mode publish;
    enum wf_update_mode mode;
    struct wf_plan_policy policy;
    /* Changes a rank's transports, host name or listen list before its parts are made; NULL: none.
     * rank->transports[0] is shm. */
    void (*equip)(struct stage_rank *rank, const void *user);
    const void *user;
};

void stage_open(struct stage *stage, const struct stage_options *options);
void stage_close(struct stage *stage);
/* One rank dies and is made again, empty, as a new incarnation. */
void stage_restart(struct stage *stage, uint32_t index, const struct stage_options *options);

struct stage_rank *stage_train(struct stage *stage, uint32_t rank);
struct stage_rank *stage_infer(struct stage *stage, uint32_t rank);
/* Fills a trainer's memory with bytes that depend on the version. */
void stage_step(struct stage *stage, uint64_t version);
struct wf_round_key stage_key(const struct stage *stage, uint64_t version, uint64_t attempt);

/* Sends a local message to an actor of `rank`. */
void stage_send(struct stage_rank *rank, struct wf_actor *to, enum wf_local_kind kind,
                const struct wf_round_key *key, uint64_t deadline_ns);
/* A MEMBERS frame as it would come from the server, for rank's Converter. `spoil`: a member whose
 * announced layout hash is wrong, or UINT32_MAX. */
void stage_send_plan(struct stage *stage, struct stage_rank *rank, uint32_t spoil);
/* Turns all loops until `done(user)`; false after STAGE_PATIENCE_S. */
bool stage_run(struct stage *stage, bool (*done)(void *user), void *user);
/* Runs until rank has an answer of that kind and gives it (the caller frees with stage_drop);
 * NULL after STAGE_PATIENCE_S. */
struct wf_local_msg *stage_wait(struct stage *stage, struct stage_rank *rank,
                                enum wf_local_kind kind);
void stage_drop(struct wf_local_msg *answer);
/* Plans on all ranks, until all are PLANNED with OK. */
void stage_plan(struct stage *stage);
/* Copies the weights of all trainers that publish snapshots; before it grants. */
void stage_snapshot(struct stage *stage, const struct wf_round_key *key);
/* Grants to all trainers, reads on all infer ranks until READ_DONE with OK. */
void stage_transfer(struct stage *stage, const struct wf_round_key *key);
void stage_flip(struct stage *stage, const struct wf_round_key *key);
/* Every element of every infer rank's live memory against a naive move by the plan's boxes. */
bool stage_live_is_right(struct stage *stage);

#endif
