/* local.h - messages between the actors of one rank. Private to actors/.
 *
 *   MetaClient --READ(key)--> Receiver --VALIDATE--> Validator
 *   MetaClient <--READ_DONE-- Receiver   (bytes staged and verified, or why not)
 *   MetaClient --STOP(key)--> Receiver, answered by STOPPED when nothing can land any more and
 *                             nothing is staged (also when there was nothing to stop)
 *   MetaClient --FLIP(key)--> Receiver, answered by FLIPPED when live memory is that version; with
 *                             a status other than OK live memory is no version any more. In place
 *                             that is known since READ_DONE, and FLIP copies nothing
 *   MetaClient --GRANT(key, slot)--> Sender (peers may read for this round), --REVOKE(key)-->,
 *                             answered by REVOKED when no work of the Sender reads the weights
 *   MetaClient --SNAPSHOT(key.version, slot)--> Sender, answered by SNAPSHOT_DONE
 *   MetaClient --REPLICAS(request, agreed)--> Sender, answered by REPLICAS_DONE, or not, where the
 *                             memory that it is about may not be read (any more)
 *   MetaClient --PLAN--> Converter -> Planner, answered by PLANNED
 *   MetaClient --PLAN_FILL(agreed)--> Planner, answered by FILL_PLANNED to the MetaClient alone
 *
 * A fill from a replica or from the store has a plan of its own, which READ and GRANT bring: the
 * source's Sender has no other, the reader's Receiver goes back to the job's after the round. A
 * store needs no grant.
 *
 * Of READ and FLIP at most one is outstanding. A READ gets exactly one READ_DONE, unless STOP
 * overtakes it: then STOPPED alone. STOP never comes during a FLIP. Answers repeat the key. GRANT
 * is idempotent and not answered. The MetaClient owns the protocol state
 * (docs/protocol.md): Receiver and Sender know only the round they were told of.
 */
#ifndef WEFT_ACTORS_LOCAL_H
#define WEFT_ACTORS_LOCAL_H

#include "actors/cast_memory.h"
#include "actors/messages.h"
#include "actors/placement.h"
#include "actors/plan.h"
#include "actors/rank.h"
#include "actors/round.h"
#include "models/assemble.h"
#include "models/prepare.h"

enum wf_local_kind {
    WF_LOCAL_PLAN = 0x300, /* to Converter; carries the MEMBERS frame */
    WF_LOCAL_PLANNED,      /* to MetaClient, Sender, Receiver */
    WF_LOCAL_READ,
    WF_LOCAL_READ_DONE,
    WF_LOCAL_STOP,
    WF_LOCAL_STOPPED,
    WF_LOCAL_FLIP,
    WF_LOCAL_FLIPPED,
    WF_LOCAL_GRANT,
    WF_LOCAL_REVOKE,
    WF_LOCAL_REVOKED,
    WF_LOCAL_SNAPSHOT, /* to Sender: copy the weights into a slot */
    WF_LOCAL_SNAPSHOT_DONE,
    WF_LOCAL_REPLICAS, /* to Sender */
    WF_LOCAL_REPLICAS_DONE,
    WF_LOCAL_PLAN_FILL, /* to Planner */
    WF_LOCAL_FILL_PLANNED,
};

/* The agreed plan, shared by reference count among the rank's actors. In a fill from a replica
 * (actors/planned.h) `train` stands for the sources, `infer` for the targets. */
struct wf_agreed {
    uint32_t references;
    struct wf_agreed *base;   /* fill: the job's, which owns the layouts */
    struct wf_el_peer *peers; /* fill: memory behind members.peers */
    bool of_store;            /* fill from the store: one source, which is no rank */
    struct wf_model *model;   /* NULL when borrowed from options */
    struct wf_frame members;  /* peers[] with addresses and incarnations; owns */
    struct wf_plan *plan;
    struct wf_layout **layouts; /* by member order: train ranks, then infer ranks; pointers may
                                   repeat and point into `owned` or at the rank's own */
    struct wf_layout **owns;    /* like layouts: of targets their own, where layouts[] is what they
                                   are planned with (models/assemble.h); NULL: both are one */
    struct wf_assemble *assemble; /* how this rank makes what is MADE in its layout, or NULL */
    struct wf_layout **bases; /* like layouts: by rule, where layouts[] is by a table; else NULL */
    struct wf_tables tables;  /* of the engines that have one */
    struct wf_layout **owned; /* freed with it; both arrays are malloc'd */
    uint32_t owned_count;
    struct wf_cast_memory *cast_memory; /* train: for what this rank casts by `plan`; or NULL */
    uint32_t train_ranks, infer_ranks;
    uint64_t build_ns;
    uint32_t cut_matrices; /* of which engines quantise blocks (models/assemble.h) */
};
/* With one reference. */
struct wf_agreed *wf_agreed_new(void);
struct wf_agreed *wf_agreed_hold(struct wf_agreed *agreed);
void wf_agreed_release(struct wf_agreed *agreed);

/* One struct serves all: which fields mean something follows from the kind. */
struct wf_local_msg {
    struct wf_msg msg;
    struct wf_round_key round;
    struct wf_agreed *agreed; /* PLANNED, PLAN_FILL, FILL_PLANNED, REPLICAS; READ and GRANT of a
                                 fill from a replica: holds a reference */
    struct wf_frame members;  /* PLAN: owns */
    struct wf_tables tables;  /* PLAN: owns */
    struct wf_frame_replicas replicas; /* REPLICAS: what is asked; REPLICAS_DONE: the answer, whose
                                          list is malloc'd and owned */
    uint64_t deadline_ns;              /* READ: on the loop's clock */
    uint64_t slot;                     /* GRANT, SNAPSHOT */
    bool wrote;            /* READ_DONE, STOPPED: something of the round may have landed */
    enum wf_status status; /* of answers */
    struct wf_error error;
    struct wf_culprit culprit;
    uint64_t bytes, grant_ns, transfer_ns, verify_ns, flip_ns, digest_mismatches;
    struct wf_el_transport transports[WF_TRANSPORTS_MAX];
    uint32_t transport_count;
};
/* malloc'd, zeroed, with a release that frees what it owns; NULL never (asserts on no memory). */
struct wf_local_msg *wf_local_msg_new(enum wf_local_kind kind, struct wf_actor *from);

/* --- the parts a rank is made of (constructed by rank.c) ---------------------------------------
 */
struct wf_meta_client;
struct wf_converter;
struct wf_planner;
struct wf_sender;
struct wf_receiver;
struct wf_validator;

enum { WF_LAYOUTS_BEFORE = 4 };
/* The rank as its parts see it. */
struct wf_rank {
    struct wf_loop *loop;
    struct wf_rank_options options; /* deep copy where the header says so */
    struct wf_recipe recipe;
    struct wf_layout *layout;   /* its own tensors */
    struct wf_layout *source;   /* train: what readers are given (models/prepare.h); NULL: that */
    struct wf_prepare *prepare; /* train: how to make what is new in it; NULL: nothing is */
    struct wf_layout **layouts_before; /* by tables that are over, newest last: plans of before have
                                          them still; the newest few once there is a new plan */
    uint32_t layouts_before_count;
    struct wf_table *table; /* its engine's, or NULL: by rule */
    uint32_t *order;        /* layout tensor -> options.tensors index */
    uint64_t incarnation;   /* wall clock seconds and chance: never used twice */
    uint64_t pid;
    struct wf_token token;        /* the job's, or none */
    char *strings;                /* memory behind the options' texts */
    char address[WF_ADDRESS_MAX]; /* the peer listener's, bound */
    struct wf_meta_client *client;
    struct wf_converter *converter;
    struct wf_planner *planner;
    struct wf_sender *sender;       /* infer: for fills of other engines */
    struct wf_receiver *receiver;   /* infer */
    struct wf_validator *validator; /* infer */
};

/* The layout of a rank as a source, which it announces and others plan with. */
const struct wf_layout *wf_rank_source(const struct wf_rank *rank);

/* Each part: _new makes it on the rank's loop, _actor gives its actor, _close stops new work and
 * drops connections, _free after the loop has turned until it is quiet. The parts that a
 * MetaClient asks (Converter, Planner, Sender, Receiver) begin with their actor, so that an actor
 * alone can stand for one (a benchmark's puppet). */
#define WF_PART(name)                                                                 \
    enum wf_status wf_##name##_new(struct wf_rank *rank, struct wf_##name **part_out, \
                                   struct wf_error *error);                           \
    struct wf_actor *wf_##name##_actor(struct wf_##name *part);                       \
    void wf_##name##_close(struct wf_##name *part);                                   \
    void wf_##name##_free(struct wf_##name *part);
WF_PART(meta_client)
WF_PART(converter)
WF_PART(planner)
WF_PART(sender)
WF_PART(receiver)
WF_PART(validator)
#undef WF_PART

/* What the rank's memory is at this moment, for the Sender to tell observers. */
void wf_meta_client_held(const struct wf_meta_client *client, struct wf_frame_held *held_out);

#endif
