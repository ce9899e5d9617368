/* sender.h - what the files of the Sender share. Private to actors/sender*.c.
 *
 * The Sender serves readers of this rank's memory: a train rank's for all, an infer rank's for
 * fills of other engines. It never writes anything but its own snapshot slots, prepared tensors
 * (models/prepare.h) and what the plan has it cast once (actors/plan_casts.h); the latter two it
 * makes after GRANT and before it answers readers, once a version and slot. A reader's connection
 * goes through
 *
 *   CHALLENGED --peer_hello--> WAITING (no plan yet that knows this incarnation of the reader)
 *              --plan fits---> AGREED: places and regions were sent; requests are answered
 *   CHALLENGED --look--> LOOKING: an observer's, of no round (sender_look.c)
 *
 * A request that cannot be answered yet (grant before GRANT of its key, digest before it is
 * computed) waits under a timer that has a name; a request for an older round is refused.
 * `hold`: slot 0 is the trainer's own memory. `snapshot`: slots 0 and 1 are copies.
 */
#ifndef WEFT_ACTORS_SENDER_H
#define WEFT_ACTORS_SENDER_H

#include "actors/batch.h"
#include "actors/digest.h"
#include "actors/handshake.h"
#include "actors/local.h"
#include "actors/planned.h"
#include "actors/replicas.h"

enum {
    SENDER_SLOTS = 2,
    SENDER_BUCKETS = 1024,       /* of the table of connections */
    SENDER_PEERS_MAX = 8192,     /* connections from readers */
    SENDER_CHUNKS_FRAME = 32768, /* chunk digests in one frame */
    SENDER_COPY_BYTES = 8 << 20, /* of one snapshot job */
    SENDER_LOOKERS_MAX = 4,      /* observers that look at live memory */
};
#define SENDER_LOOK_NS UINT64_C(300000000000) /* of an observer's silence, at most */

enum { SENDER_ADDRESS_TEXT = 64, SENDER_REPLICAS_MADE = 0x360 };
enum peer_state { PEER_CHALLENGED, PEER_WAITING, PEER_AGREED, PEER_LOOKING };

struct sender_peer {
    struct sender_peer *next; /* in its bucket */
    struct wf_sender *sender;
    uint64_t conn;
    bool is_unix; /* descriptors can go along */
    enum peer_state state;
    struct wf_handshake handshake;
    char address[SENDER_ADDRESS_TEXT]; /* the other end's, for the log */
    struct wf_frame_peer_hello hello;  /* WAITING, AGREED */
    const struct wf_edge *edge;        /* AGREED: of the sender's plan */
    uint32_t transport;                /* AGREED, LOOKING: index of the rank's */
    struct wf_timer timer;             /* the wait for a hello, for a plan, or for what is asked */
    bool asks_grant, asks_digest, asks_chunks;
    struct wf_round_key key; /* of what is asked */
    uint32_t first_op, first_chunk;
};

/* Digests of one distinct list of ops: edges to engines of one shape may share it. Its chunks are
 * copied from the pool of distinct boxes, where each source byte is digested once however many
 * edges carry it. */
struct sender_digests {
    const struct wf_op *ops;
    uint32_t op_count;
    const struct wf_layout *dst;
    struct wf_digests *digests;
    uint32_t *pooled; /* by op: its box in the pool */
    struct wf_hash sum;
};

/* A slot's regions by one transport: exported when the first reader wants them so, because that may
 * be dear (registration) and many transports are there in case only. */
struct sender_offer {
    struct wf_handle *handles; /* by region index; NULL: not yet, or refused */
    enum wf_status status;     /* refused: why */
    char why[WF_REASON_MAX];
};

struct sender_slot {
    struct wf_region memory; /* own: snapshot, and what is prepared; zeroed where neither is */
    struct wf_region *list;  /* hold: the trainer's regions, then `memory`; NULL without that */
    const struct wf_region *own_regions; /* without what is cast */
    uint32_t own_count;                  /* 0: the slot does not exist */
    struct wf_region *list_with_casts;   /* own_regions and that; NULL: the plan casts nothing */
    const struct wf_region *regions;     /* which of both readers are told */
    uint32_t region_count;
    /* By the rank's transports; `bare`: for readers that no descriptor can reach. */
    struct sender_offer offers[WF_TRANSPORTS_MAX], bare[WF_TRANSPORTS_MAX];
    struct wf_el_place *places; /* by tensor of the source layout, then by what is cast */
    void **tensors;             /* by the same: where they are here */
    struct wf_version made_of;  /* of which items were run: what is prepared, then casts */
    uint8_t *made;              /* by item: was it? Jobs write their own items' */
};

/* Digests of what other ranks of this side hold too. */
struct sender_replicas {
    struct wf_local_msg *request; /* newest that is not answered; owned */
    struct wf_replicas *made;     /* NULL: it cannot be made, or was not yet */
    struct wf_hash made_of;       /* the plan's input hash */
    struct wf_round_key made_for; /* the round that it was made in, or could not be */
    struct wf_job job;            /* that makes it, of `agreed` */
    bool making;
    struct wf_agreed *agreed;
    const struct wf_layout *own;
    enum wf_status status;
    struct wf_error error;
    struct wf_batch batch; /* that computes the digests, of memory of `slot` */
    bool stopped;          /* before its end */
    uint64_t slot;
    bool has_computed;
    struct wf_round_key computed; /* of which */
};

struct wf_sender {
    struct wf_actor actor; /* first: actors/local.h */
    struct wf_rank *rank;
    struct wf_refusals refusals;
    struct sender_listener {
        uint64_t id;
        bool is_unix;
    } listeners[WF_LISTENS_MAX];
    uint32_t listener_count;
    bool closing;
    struct sender_peer *peers[SENDER_BUCKETS]; /* by connection */
    uint32_t peer_count, looker_count;         /* lookers: of them */
    struct sender_slot slots[SENDER_SLOTS];

    /* next: waits until no job reads `agreed`, or the slots' tables */
    struct wf_agreed *agreed, *next_agreed;
    bool has_next;

    uint32_t revokes;                   /* that wait until no job reads the weights */
    bool granted;                       /* peers may read `round`, when it is: */
    bool prepared, digested;            /* what they read is made; its digests are ready */
    struct wf_round_key round, revoked; /* revoked: the last that was */
    uint64_t slot;
    uint64_t worked_slot; /* that the jobs of the round work on */
    bool restart;         /* work is wanted for another round than that which is being done */

    const struct wf_plan_cast *casts;   /* of this rank, in agreed->plan */
    struct wf_cast_memory *cast_memory; /* NULL: there are none; holds */
    uint32_t cast_count, *cast_first;   /* by cast: its first item, then the total */

    struct wf_batch prepare_batch;
    uint8_t *scratch;        /* of each lane of the batch, one behind the other */
    uint32_t *needed, *todo; /* items: that the plan's ops read; that the batch runs */
    uint32_t item_count, needed_count, todo_count;
    uint64_t prepare_start_ns, prepare_ns; /* of the round's grant: it counts as transfer */

    struct sender_digests *sets;
    uint32_t set_count;
    struct wf_digests *pool; /* distinct boxes of all sets */
    struct wf_batch digest_batch;
    uint64_t digest_start_ns;

    struct sender_replicas replicas;

    struct wf_batch copy_batch; /* SNAPSHOT */
    struct wf_local_msg *snapshot;
    uint64_t *copy_first; /* first copy item of each layout tensor, then the total */
};

/* sender_peer.c: connections and frames. */
void sender_peer_opened(struct wf_sender *sender, const struct wf_wire_msg *msg);
void sender_peer_frame(struct wf_sender *sender, const struct wf_wire_msg *msg);
void sender_peer_closed(struct wf_sender *sender, const struct wf_wire_msg *msg);
void sender_peers_drop(struct wf_sender *sender); /* all of them */
/* A new plan: waits end, agreements that do not hold any more are dropped. */
void sender_peers_replan(struct wf_sender *sender);
/* Answers what can be answered now, refuses what never can. */
void sender_peers_answer(struct wf_sender *sender);
/* False: the peer was dropped, because its connection does not take frames any more. */
bool sender_peer_send(struct sender_peer *peer, enum wf_frame_type type, const void *fields,
                      int fd);
/* Says why and drops it. */
void sender_peer_refuse(struct sender_peer *peer, enum wf_status status, const char *text);
/* Drops it, with that name, unless something else is waited for by then. */
void sender_peer_wait(struct sender_peer *peer, const char *name, uint64_t timeout_ns);
/* The first of `transports` that this rank has and that can offer what it has; `who` can read by
 * them. */
enum wf_status sender_peer_choose(struct sender_peer *peer, const char *transports, const char *who,
                                  struct wf_error *error);
/* Places and regions of all slots, by that transport. False: the peer is gone. */
bool sender_peer_send_slots(struct sender_peer *peer);

/* sender_look.c. The peer may be gone afterwards. */
void sender_look_begin(struct sender_peer *peer, const struct wf_frame_look *look);
void sender_look_again(struct sender_peer *peer);

/* sender_slots.c: where the bytes are. */
/* A slot's handles by the rank's index-th transport, for a reader that descriptors can or cannot
 * reach. NULL: it cannot offer them. */
const struct wf_handle *sender_slots_offer(struct wf_sender *sender, uint64_t slot, uint32_t index,
                                           bool with_descriptors, struct wf_error *error);
enum wf_status sender_slots_init(struct wf_sender *sender, struct wf_error *error);
void sender_slots_fini(struct wf_sender *sender);
void sender_slots_snapshot(struct wf_sender *sender, struct wf_local_msg *request); /* takes it */
void sender_slots_copied(struct wf_sender *sender);
/* Takes back what was offered of the slot. */
void sender_slots_withdraw(struct wf_sender *sender, struct sender_slot *slot);
/* A digest ended, or a plan was adopted: a snapshot that waited for it begins. */
void sender_slots_continue(struct wf_sender *sender);

/* sender.c. Plan, grant or a batch of the round's work changed: adopts a waiting plan, starts or
 * restarts the work. */
void sender_settle(struct wf_sender *sender);
bool sender_is_working(const struct wf_sender *sender); /* a job of it reads the weights */

/* sender_prepare.c: what is made before readers are answered. */
enum wf_status sender_prepare_init(struct wf_sender *sender, struct wf_error *error);
void sender_prepare_plan(struct wf_sender *sender); /* a new plan was adopted */
/* Starts the batch that makes what is missing of the round's version in the worked slot; false:
 * nothing is. */
bool sender_prepare_start(struct wf_sender *sender);
void sender_prepare_ended(struct wf_sender *sender); /* the batch ended */
void sender_prepare_fini(struct wf_sender *sender);

/* sender_casts.c: what the plan has cast once; its places, and the items of that work. */
void sender_casts_plan(struct wf_sender *sender); /* a new plan was adopted, or there is none */
uint32_t sender_casts_items(const struct wf_sender *sender);
/* `tensors`: of a slot. Pool thread. */
void sender_casts_run(const struct wf_sender *sender, void *const *tensors, uint32_t item);
void sender_casts_fini(struct wf_sender *sender);

/* sender_digest.c: the digests of the round. */
void sender_digest_init(struct wf_sender *sender);
void sender_digest_plan(struct wf_sender *sender); /* a new plan was adopted, or there is none */
void sender_digest_start(struct wf_sender *sender);
void sender_digest_ended(struct wf_sender *sender); /* the batch ended */
const struct sender_digests *sender_digest_find(const struct wf_sender *sender,
                                                const struct wf_edge *edge);
void sender_digest_fini(struct wf_sender *sender);

/* sender_replicas.c: the digests of what others hold too. */
void sender_replicas_init(struct wf_sender *sender);
void sender_replicas_ask(struct wf_sender *sender, struct wf_local_msg *request); /* takes it */
void sender_replicas_made(struct wf_sender *sender);  /* its job ended */
void sender_replicas_ended(struct wf_sender *sender); /* its batch ended */
void sender_replicas_stop(struct wf_sender *sender);  /* no new jobs that read weights */
/* Goes on with what is asked, as far as it can. */
void sender_replicas_settle(struct wf_sender *sender);
void sender_replicas_fini(struct wf_sender *sender);

#endif
