/* meta_client_internal.h - the MetaClient's state, shared by the files meta_client*.c.
 *
 * One per rank: the connection to the MetaServer, the lease, and the rank's protocol state
 * (docs/protocol.md). Infer: NONE, QUIET, READ, DOUBT, TOLD, FLIPPED about its newest round; beside
 * it what the host does (serving, quiescing, paused) and what the Receiver does (one request at a
 * time). Train: TRAIN, HOLD, DONE, REBORN, and two slots of snapshots.
 */
#ifndef WEFT_ACTORS_META_CLIENT_INTERNAL_H
#define WEFT_ACTORS_META_CLIENT_INTERNAL_H

#include "actors/handshake.h"
#include "actors/local.h"

enum { WF_SLOTS = 2 };

enum wf_link { WF_LINK_DOWN, WF_LINK_CONNECTING, WF_LINK_GREETING, WF_LINK_UP };

/* What the Receiver was asked last and has not answered. */
enum wf_receiver_busy {
    WF_RECEIVER_FREE,
    WF_RECEIVER_READING,
    WF_RECEIVER_STOPPING,
    WF_RECEIVER_FLIPPING
};

enum wf_host_state { WF_HOST_PAUSED, WF_HOST_QUIESCING, WF_HOST_SERVING };

/* KEPT: its version is over; fills may still read it until it is overwritten. */
enum wf_slot_state { WF_SLOT_FREE, WF_SLOT_KEPT, WF_SLOT_READY, WF_SLOT_COPYING };
struct wf_client_slot {
    enum wf_slot_state state;
    struct wf_version version;
    char label[WF_LABEL_MAX];
};

/* What a train rank's host is told about its buffers. */
enum wf_tell_kind { WF_TELL_READY, WF_TELL_RELEASED, WF_TELL_ABORTED };
enum { WF_TELLS_MAX = 8 }; /* that wait for the Sender */
struct wf_client_tell {
    enum wf_tell_kind kind;
    struct wf_version version;
    uint64_t attempt, step;
    uint32_t engines;
    bool again, restarted;
    struct wf_culprit culprit;
};

/* A published version whose trainer has a deadline of its own; version none: free. */
struct wf_client_doubt {
    struct wf_meta_client *client;
    struct wf_version version;
    struct wf_timer timer;
};

/* The newest fill from a replica, or from the store, that this rank takes part in. */
struct wf_client_fill {
    bool wanted;  /* its plan is to be made */
    bool planned; /* and was: `agreed`, or why not */
    bool source;  /* this rank's engine is read from; otherwise it reads */
    bool granted; /* source: peers may read */
    bool from_store;
    struct wf_round_key round;
    uint64_t engine; /* that is read from, if it is one */
    struct wf_el_member *members;
    uint32_t member_count;
    struct wf_agreed *agreed;
    struct wf_error error;
};

struct wf_meta_client {
    struct wf_actor actor;
    struct wf_rank *rank;
    struct wf_loop *loop;
    struct wf_env *env;

    /* --- connection */
    enum wf_link link;
    uint64_t conn;
    struct wf_handshake handshake; /* of conn */
    bool was_up;                   /* a server has welcomed this rank once */
    uint64_t down_ns;              /* since when there is no server */
    uint64_t backoff_ns;           /* before the next try */
    bool hello_waits;  /* a new term was seen: HELLO goes out when reading has stopped */
    uint64_t hello_ns; /* when HELLO was sent: the lease of a WELCOME counts from it */
    uint64_t sequence;
    struct wf_timer retry, beat;
    bool unsent; /* the connection was too full for a frame: it is said again */

    /* --- membership */
    uint64_t term, epoch, lease_ns, lease_until_ns;
    bool drop_to_latest;
    bool welcome_waits; /* a clean WELCOME is being carried out */
    struct wf_frame_welcome welcome;

    /* --- the plan */
    struct wf_frame members;                    /* newest MEMBERS not handed to the Converter yet */
    bool members_wait, planning, fill_planning; /* one of the two at a time */
    uint64_t planned_epoch, planning_epoch, planning_term;
    struct wf_tables tables, members_tables; /* that the server told: of the next MEMBERS, of
                                                `members` */
    bool placed;                             /* this rank's own table was changed once */
    bool placed_by_host;                     /* and by its host */
    bool moved; /* and again since `live` was written: no replica may read it */
    struct wf_frame_planned planned;

    /* --- memory of rounds: what HELLO reports */
    uint64_t state; /* enum wf_rank_state or enum wf_train_state */
    struct wf_round_key round;
    char round_label[WF_LABEL_MAX]; /* the user's; "": a fill, or only its key is known */
    struct wf_el_member *round_members;
    uint32_t round_member_count;
    struct wf_version live, committed;
    struct wf_round_key aborted;
    uint64_t writes[WF_SLOTS]; /* times that live memory, or a slot, may have begun to change */

    /* --- infer */
    enum wf_receiver_busy busy;
    enum wf_host_state host;
    bool has_voted;
    struct wf_frame_vote vote; /* about `round`; its list is transports below */
    struct wf_el_transport transports[WF_TRANSPORTS_MAX];
    uint64_t quiesced_ns; /* when the pause began */
    uint64_t pause_ns;    /* the last one's length */
    uint64_t flip_started_ns;
    bool aborting; /* STOP was sent for an ABORT: answer ABORTED */
    /* in place: `live` is none from READ to FLIPPED, and `untouched` what it was, until then */
    bool writing;
    struct wf_version untouched;
    struct wf_culprit abort_culprit;

    /* --- infer, fills from a replica (meta_client_fill.c) */
    struct wf_agreed *agreed; /* the job's plan, from which a fill's follows */
    struct wf_client_fill fill;
    uint64_t read_until_ns; /* of the round to read */

    /* --- train */
    uint64_t generation_term, generation_counter;
    bool has_generation;
    struct wf_version published; /* newest in this generation */
    char published_label[WF_LABEL_MAX];
    bool idle;
    struct wf_client_slot slots[WF_SLOTS];
    struct wf_client_doubt doubts[WF_SLOTS]; /* by slot; without snapshots the first */
    bool granted;
    uint32_t granted_slot;
    uint32_t revokes_out; /* REVOKEs that the Sender has not answered */
    struct wf_client_tell tells[WF_TELLS_MAX];
    uint32_t tell_count;

    /* --- the host's newest account, for observers whom a server that died has not told */
    struct wf_frame_note note; /* its list is own memory */
    uint64_t note_term;        /* whose server got it; 0: none yet */
    bool has_note;

    /* --- versions that its host puts where fills can read them */
    bool stores;
    struct wf_frame_stored stored; /* what it told last */

    /* --- the end */
    bool closing, ended; /* closing: waits until nothing can land; ended: the hook was called */
    bool said_goodbye;
    struct wf_error why;
};

/* --- meta_client.c -----------------------------------------------------------------------------
 */
uint64_t wf_client_now(const struct wf_meta_client *client);
/* False while the lease has run out: then nothing that changes the rank is obeyed. */
bool wf_client_has_lease(const struct wf_meta_client *client);
void wf_client_send_now(struct wf_meta_client *client, enum wf_frame_type type, const void *fields);
/* Sends if the server has welcomed us; what is lost is asked for again. */
void wf_client_send(struct wf_meta_client *client, enum wf_frame_type type, const void *fields);
void wf_client_answer(struct wf_meta_client *client, enum wf_frame_type type,
                      const struct wf_round_key *round); /* frames that are only a key */
void wf_client_local(struct wf_meta_client *client, struct wf_actor *to, enum wf_local_kind kind,
                     const struct wf_round_key *round, uint64_t slot, uint64_t deadline_ns);
void wf_client_remember_round(struct wf_meta_client *client, const struct wf_frame_open *open);
void wf_client_joined(struct wf_meta_client *client); /* answers WELCOME */
/* Ends the rank: reading stops, then the `ended` hook is called. */
void wf_client_end(struct wf_meta_client *client, enum wf_status status, const char *text);
/* Reading has stopped, a flip is over or the host is paused: goes on with what waited for it. */
void wf_client_continue(struct wf_meta_client *client);

/* --- meta_client_link.c ------------------------------------------------------------------------
 */
void wf_client_link_init(struct wf_meta_client *client); /* connects in the first turn */
void wf_client_link_lost(struct wf_meta_client *client, const char *why); /* it is closed */
void wf_client_drop_link(struct wf_meta_client *client, const char *why); /* closes it */
/* A frame of whom is not known yet to be the server (handshake.done). */
void wf_client_first_frame(struct wf_meta_client *client, const struct wf_frame *frame);
void wf_client_send_hello(struct wf_meta_client *client);

/* --- meta_client_infer.c ------------------------------------------------------------------------
 */
bool wf_client_infer_frame(struct wf_meta_client *client, struct wf_frame *frame);
void wf_client_infer_local(struct wf_meta_client *client, struct wf_local_msg *local);
/* Carries out the clean WELCOME as far as it can now. True when it is done. */
bool wf_client_infer_clean(struct wf_meta_client *client);
/* True when no read can land any more; otherwise stops it and is false. */
bool wf_client_infer_stop(struct wf_meta_client *client);

/* Goes on with a round whose plan, of a fill from a replica, is there now. */
void wf_client_infer_planned(struct wf_meta_client *client);
void wf_client_vote_no(struct wf_meta_client *client, const struct wf_round_key *round,
                       const char *reason);

/* --- meta_client_fill.c -------------------------------------------------------------------------
 */
/* An OPEN names an engine as source: whether it is this rank's own. */
bool wf_client_fill_is_source(const struct wf_meta_client *client,
                              const struct wf_frame_open *open);
/* The rank's part as a source: plans, then lets peers read; or votes no. */
void wf_client_fill_serve(struct wf_meta_client *client, const struct wf_frame_open *open);
/* As a reader: the plan is made; wf_client_infer_planned follows. */
void wf_client_fill_want(struct wf_meta_client *client, const struct wf_frame_open *open);
/* What it read or served before is over: nobody may read this rank's memory. */
void wf_client_fill_drop(struct wf_meta_client *client);
/* Asks the Planner for what is wanted, when it is free. */
void wf_client_fill_plan(struct wf_meta_client *client);
void wf_client_fill_planned(struct wf_meta_client *client, struct wf_local_msg *local);

/* --- meta_client_place.c ------------------------------------------------------------------------
 */
bool wf_client_place_is_stale(const struct wf_meta_client *client);
/* Votes no, by name. */
void wf_client_place_refuse(struct wf_meta_client *client, const struct wf_round_key *round);
void wf_client_place_planned(struct wf_meta_client *client); /* a new plan is in force */
void wf_client_place_tell(struct wf_meta_client *client);    /* the server, if there is a table */
void wf_client_place_told(struct wf_meta_client *client, const struct wf_frame_placement *frame);
/* The list has this rank's layout; otherwise the server is told, and the list is of no use. */
bool wf_client_place_is_known(struct wf_meta_client *client,
                              const struct wf_frame_members *members);
enum wf_status wf_client_place(struct wf_meta_client *client, const struct wf_placement *placement,
                               struct wf_error *error);

/* --- meta_client_replicas.c ----------------------------------------------------------------------
 */
void wf_client_replicas_asked(struct wf_meta_client *client,
                              const struct wf_frame_replicas_request *request);
void wf_client_replicas_done(struct wf_meta_client *client, const struct wf_local_msg *local);

/* --- meta_client_train.c ------------------------------------------------------------------------
 */
bool wf_client_train_frame(struct wf_meta_client *client, struct wf_frame *frame);
void wf_client_train_local(struct wf_meta_client *client, struct wf_local_msg *local);
void wf_client_train_joined(struct wf_meta_client *client); /* tells again what waits */

/* --- meta_client_doubt.c -------------------------------------------------------------------------
 */
/* `version` was published from that slot; its host is told if it is not over within that time (0:
 * never). What was in the slot before is in doubt no more. */
void wf_client_doubt_watch(struct wf_meta_client *client, uint32_t slot, struct wf_version version,
                           uint64_t within_ns);
/* The host is about to be told of its end: it and older ones are in doubt no more. */
void wf_client_doubt_settle(struct wf_meta_client *client, struct wf_version version);
void wf_client_doubt_end(struct wf_meta_client *client); /* of all of them */

/* --- meta_client_tell.c --------------------------------------------------------------------------
 */
/* At once, or when the Sender has answered every REVOKE. */
void wf_client_tell(struct wf_meta_client *client, const struct wf_client_tell *tell);
void wf_client_revoke(struct wf_meta_client *client); /* if anything is granted */
void wf_client_revoked(struct wf_meta_client *client);

/* --- for rank.c: the facade's calls --------------------------------------------------------------
 */
enum wf_status wf_client_publish(struct wf_meta_client *client, uint64_t step, const char *label,
                                 uint64_t within_ns, struct wf_error *error);
void wf_client_idle(struct wf_meta_client *client);
void wf_client_quiesced(struct wf_meta_client *client);
void wf_client_note(struct wf_meta_client *client, const struct wf_frame_note *note);
void wf_client_stored(struct wf_meta_client *client, struct wf_version version, bool writing);
struct wf_version wf_client_live(const struct wf_meta_client *client);
void wf_client_close_host(struct wf_meta_client *client);

#endif
