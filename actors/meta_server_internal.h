/* meta_server_internal.h - the MetaServer's state, shared by the files meta_server*.c.
 *
 * Everything happens in the server's one actor: a frame, a closed connection or a tick changes
 * facts about ranks and the round, then wf_server_advance does whatever those facts allow. Frames
 * that were sent before are repeated by the tick and when a connection comes back, so handlers of
 * answers only note facts.
 *
 *   IDLE     no round: readmission, membership, agreement, generations, opening, the job's end
 *   OPENED   members read and vote; a unit (engine, or all of them) is decided or cut
 *   CLOSING  every unit is decided or cut: flips and aborts finish, then the trainers are told
 *   ENDING   everybody was told to leave; waits for goodbyes
 *   RECOVER  before IDLE, of a server that is not the job's first (meta_server_recover.c)
 *
 * A server that was not run for half a lease is *away*: whatever its state, it decides and renews
 * nothing until the ranks have said HELLO again (meta_server_recover.c).
 */
#ifndef WEFT_ACTORS_META_SERVER_INTERNAL_H
#define WEFT_ACTORS_META_SERVER_INTERNAL_H

#include "actors/handshake.h"
#include "actors/meta_server.h"
#include "actors/placement.h"

enum {
    WF_SERVER_BUCKETS = 4096, /* of connections by id */
    WF_STRANGERS_SPARE = 512, /* connections that have not said who they are, beside one a rank */
    WF_REPEATS_KNOWN = 8,     /* so seldom is repeated what a rank says it has */
    WF_SLICE_BYTES = 8 << 20, /* of frames to all ranks that leave in one turn */
    WF_PUBLISHED_MAX = 2,     /* versions of a train rank that wait: snapshot slots */
    WF_RETIRED_MAX = 8,       /* replaced incarnations remembered for each rank */
    WF_LEASE_MARGIN_PART = 8, /* the server's margin: a lease's 8th, for clocks that drift */
    WF_VOTE_MARGIN_PART = 8,  /* a round's 8th, for votes of readers whose time has run out */
    WF_PEER_TEXT = 64,        /* bytes of an address in a log line */
};

enum wf_server_state {
    WF_SERVER_RECOVER,
    WF_SERVER_IDLE,
    WF_SERVER_OPENED,
    WF_SERVER_CLOSING,
    WF_SERVER_ENDING,
    WF_SERVER_ENDED,
};

enum { WF_SERVER_ADVANCE = 0x3a0, WF_SERVER_SLICE }; /* messages to itself */
enum { WF_OWED_MEMBERS = 1, WF_OWED_OPEN = 2 };

enum wf_presence {
    WF_ABSENT,  /* no living incarnation is known */
    WF_GREETED, /* has its WELCOME, has not answered JOINED */
    WF_PRESENT, /* may be a member */
    WF_FENCED,  /* its lease ran out; readmitted between rounds */
    WF_LEFT,    /* said goodbye */
};

enum wf_vote { WF_VOTE_NONE, WF_VOTE_YES, WF_VOTE_NO };

struct wf_publication {
    struct wf_version version;
    char label[WF_LABEL_MAX];
};

struct wf_server_rank {
    enum wf_side side;
    uint32_t rank, engine;
    /* --- the incarnation that speaks for it */
    enum wf_presence presence;
    bool known;    /* some incarnation said HELLO */
    uint64_t conn; /* 0: none now */
    uint64_t incarnation;
    uint64_t retired[WF_RETIRED_MAX]; /* ring */
    uint32_t retired_count;
    char host[WF_HOST_MAX], address[WF_ADDRESS_MAX];
    uint64_t pid;
    uint32_t group, group_rank;
    struct wf_hash layout;
    struct wf_table *table;          /* infer: of experts, as it said last; NULL: by rule */
    bool table_said;                 /* since the HELLO that brought `layout` */
    bool table_told;                 /* its engine's, lately: it began with another */
    struct wf_version moved;         /* that it held when it told a new table; none: never */
    struct wf_frame_replicas copies; /* what it said of them; own memory: its list */
    uint64_t copies_incarnation;     /* that said it */
    bool copies_said, copies_differ; /* differ: from what most hold */
    uint64_t heard_ns, fenced_ns;
    uint64_t sent_ns;   /* by the rank's clock: its newest heartbeat; 0: its HELLO is newer */
    uint64_t absent_ns; /* when it was last seen to be present no more */
    bool evicted;       /* missed a deadline that cannot be undone: its lease is not renewed */
    bool in_place;      /* its mode: it pauses at OPEN and reads into what it serves from */
    bool welcome_clean;
    bool returned; /* has said HELLO since the server was away */
    uint64_t welcome_epoch;
    uint32_t candidates; /* connections that claim its identity */
    /* what its newest heartbeat says it has */
    uint64_t has_members;
    struct wf_round_key has_round;
    unsigned owed; /* WF_OWED_ bits: frames that it gets in a later turn */
    struct wf_version live;
    bool serving, resume_asked;
    bool stores, storing;       /* it has told of stored versions; one is being written */
    struct wf_version stored;   /* that it told of last */
    uint64_t storing_ns;        /* when it began */
    uint64_t bytes_peak;        /* as it noted last */
    struct wf_frame_note *note; /* its newest, own memory: for observers who come back */
    /* --- the plan */
    uint64_t planned_epoch; /* MEMBERS that it has answered */
    struct wf_frame_planned planned;
    /* --- the round */
    bool member, lost;
    bool source; /* of a fill from a replica: it is read from and nothing else */
    enum wf_vote vote;
    bool quiesced, flipped, acked; /* quiesced: since OPEN (in place), then since DECIDE;
                                      acked: ABORTED */
    /* --- train */
    struct wf_publication published[WF_PUBLISHED_MAX]; /* oldest first */
    uint32_t published_count;
    struct wf_version published_newest, released_alone; /* released_alone: skipped for it, told? */
    bool generation_told, notice_told, idle;
    struct wf_version idle_version;
};

enum wf_unit_status { WF_UNIT_OUT, WF_UNIT_UNDECIDED, WF_UNIT_DECIDED, WF_UNIT_CUT };

/* An encoded frame that many get, and when or of what it was made. */
struct wf_server_shared {
    struct wf_payload *payload; /* holds; NULL: none */
    uint64_t of;
};

struct wf_server_engine {
    uint32_t engine;
    uint32_t *ranks; /* indices of its ranks */
    uint32_t rank_count;
    struct wf_version current; /* committed for it */
    bool placed;               /* has had a table of experts: ranks are told of each change */
    struct wf_server_shared placement_frame;
    /* --- the round */
    enum wf_unit_status unit;
    bool permitted; /* its in_place members may read */
    bool flip_sent, resuming;
    uint64_t deadline_ns; /* of what it is doing now: quiesce, flip, abort */
};

struct wf_server_round {
    struct wf_round_key key;
    bool fill, noticed;
    bool source_lost; /* nobody can read any more; votes that are in stand */
    bool withdrawn;   /* a train rank said that it no longer has the version */
    bool superseded;  /* dropped for a newer version */
    uint32_t votes_yes;
    uint64_t source; /* as in OPEN: 0 the train side, n + 1 engine n */
    uint64_t opened_ns, deadline_ns, last_vote_ns, flip_sent_ns;
    uint64_t resumed_ns;                 /* all serve again; 0: not yet */
    struct wf_frame_round_report report; /* lists: engines and transports below */
    struct wf_el_transport transports[16];
    struct wf_culprit culprit, other; /* as in its report */
};

/* What the train side was told last. */
struct wf_server_notice {
    enum wf_frame_type type; /* released, round_aborted, or none yet */
    struct wf_frame_released released;
    struct wf_frame_round_aborted aborted;
};

/* What a status says of the past; filled by meta_server_status.c. */
struct wf_server_history {
    struct wf_el_status_round
        rounds[WF_STATUS_ROUNDS - 1]; /* ring; opened_ns on the loop's clock */
    uint64_t count;                   /* ever; the newest is count - 1 */
    struct wf_frame_status sums;      /* its sums alone */
    struct wf_version newest_committed;
    uint64_t ended_ns; /* when the newest round did; 0: none has */
};

/* meta_server_replicas.c's. */
enum wf_replicas_stage {
    WF_REPLICAS_OFF,
    WF_REPLICAS_SUMS,   /* each rank's, of all its groups */
    WF_REPLICAS_SEARCH, /* for the first element in which two of them differ */
    WF_REPLICAS_DONE,
};
struct wf_server_copy {
    const struct wf_server_rank *rank;
    uint64_t incarnation;
    bool said, silent;
    struct wf_hash sum;
    uint64_t holds; /* elements of the last chunk */
    char object[WF_OBJECT_MAX];
};
struct wf_server_replicas {
    enum wf_replicas_stage stage;
    enum wf_side side;
    struct wf_round_key key; /* of the round whose version is compared */
    uint64_t begun_ns;
    bool differ;
    /* SEARCH: somewhere in chunks [low, high) of the group; if `fine`, in elements [low, high) of
     * `chunk` */
    uint32_t group;
    uint64_t low, high, chunk;
    bool fine;
    struct wf_server_copy pair[2]; /* one of most, and one that differs from it */
    uint32_t holders, alike;       /* ranks that hold the group; that hold it as most do */
};

enum wf_conn_kind { WF_CONN_STRANGER, WF_CONN_CANDIDATE, WF_CONN_RANK, WF_CONN_OBSERVER };
enum { WF_CONN_KINDS = WF_CONN_OBSERVER + 1 };

struct wf_server_conn {
    struct wf_server_conn *next;           /* in its bucket */
    struct wf_server_conn *before, *after; /* of its kind, in the order of becoming it */
    uint64_t id;
    enum wf_conn_kind kind;
    struct wf_server_rank *rank; /* CANDIDATE, RANK */
    uint64_t since_ns;
    struct wf_handshake handshake;
    char address[WF_PEER_TEXT]; /* the other end's, for the log */
    struct wf_frame hello;      /* CANDIDATE: owns */
};

struct wf_server_conn_list {
    struct wf_server_conn *first, *last;
    uint32_t count;
};

enum { WF_REPORTS_KEPT = 4 };
struct wf_server_kept {
    struct wf_frame_round_report report; /* its lists are these */
    uint64_t opened_ns;                  /* on the loop's clock */
    struct wf_el_transport transports[16];
    struct wf_el_unit *engines; /* own memory */
};

struct wf_meta_server {
    struct wf_actor actor;
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_server_options options; /* job, engine_of: own copies */
    char job[WF_JOB_NAME_MAX];
    struct wf_token token;
    struct wf_refusals refusals;
    uint64_t listener;
    struct wf_server_conn *buckets[WF_SERVER_BUCKETS];
    struct wf_server_conn_list conns[WF_CONN_KINDS];
    struct wf_server_rank *ranks; /* train ranks, then infer ranks */
    uint32_t rank_count;
    struct wf_server_engine *engines;
    uint32_t *engine_ranks; /* memory behind engines[].ranks */
    struct wf_el_group *groups;
    uint32_t group_count;

    enum wf_server_state state;
    struct wf_server_recovery *recovery; /* RECOVER: meta_server_recover.c's */
    uint64_t away_ns; /* since when it waits for HELLOs after an absence; 0: not */
    uint64_t term, epoch, members_epoch;
    uint64_t found_term; /* newest of the journal at start; 0: a new job */
    struct wf_round_key found_round;
    bool rebuilt; /* from the ranks: the journal was lost, and who was away may know more */
    uint64_t generation_term, generation; /* counter; 0: none yet */
    bool members_due, generation_due;     /* to be done in IDLE */
    bool agreed;                          /* the plan, once */
    uint64_t members_ns, started_ns;
    uint64_t placing_ns;    /* since when ranks of an engine have different tables; 0: not */
    uint64_t publishing_ns; /* since when some train ranks have published and others not; 0: not */
    uint64_t no_engine_ns;  /* since when a version waits for any complete engine; 0: not */
    struct wf_version given_up, attempt_version;
    uint64_t attempt;
    bool superseded_last;         /* the round before this one was dropped for a newer version */
    uint64_t newest_step;         /* that any train rank has published */
    uint64_t generation_step;     /* that, when the generation began: what all publish first */
    struct wf_server_round round; /* the newest; over when IDLE */
    struct wf_el_member *members; /* rank_count entries: the round's */
    uint32_t member_count;
    uint64_t membership;    /* counts joins, leaves and deaths */
    uint32_t fill_failures; /* in a row, since that count was fill_membership */
    uint64_t fill_membership;
    struct wf_server_notice notice;
    struct wf_el_unit *units, *told_units; /* engine_count entries: lists in frames and reports */
    struct wf_frame_plan_report plan_report;
    struct wf_server_replicas replicas;
    struct wf_server_history history;
    struct wf_server_kept kept[WF_REPORTS_KEPT]; /* ring */
    uint64_t kept_count;

    struct wf_timer tick;
    uint64_t tick_ns;      /* the last one */
    uint64_t repeat_ns;    /* when unanswered frames are repeated next */
    bool again;            /* facts changed during wf_server_advance */
    struct wf_msg advance; /* to itself, behind what is in the inbox: time to advance */
    struct wf_msg slice;   /* to itself: time to send more of what is owed */
    bool advance_out, slice_out, progress_due;
    uint32_t owed_count, owed_next; /* ranks that are owed something; where to look for the next */
    struct wf_server_shared members_frame, open_frame;
    uint32_t repeats; /* times that unanswered frames were repeated */
    struct wf_error end;
    bool stops; /* ENDING: only this server; the ranks are told nothing and wait for the next */
    uint64_t ending_ns;
};

/* --- meta_server.c -----------------------------------------------------------------------------
 */
/* Does what the facts allow, until nothing more follows. */
void wf_server_advance(struct wf_meta_server *server);
/* Durable before it returns, or the server stops and this is false. */
bool wf_server_journal(struct wf_meta_server *server, const struct wf_journal_record *record);
/* Ends the job: everybody is told. CLOSED: it is over as it should be. */
void wf_server_end(struct wf_meta_server *server, enum wf_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends this server and not the job: connections close without a word, the ranks wait for another.
 */
void wf_server_stop(struct wf_meta_server *server, enum wf_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
uint64_t wf_server_now(const struct wf_meta_server *server);
void wf_server_raise_epoch(struct wf_meta_server *server);
/* Somebody joined, left or died: a new epoch. */
void wf_server_membership_changed(struct wf_meta_server *server);
/* "5 s", "250 ms" */
enum { WF_DURATION_TEXT = 32 };
void wf_duration_format(uint64_t ns, char text_out[WF_DURATION_TEXT]);
/* Fills *out with who the rank is and the rest of the sentence. */
void wf_server_blame(const struct wf_server_rank *rank, struct wf_culprit *out, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));
void wf_server_rank_text(const struct wf_server_rank *rank, char *text, size_t bytes);

/* --- meta_server_send.c ------------------------------------------------------------------------
 */
void wf_server_send_on(struct wf_meta_server *server, uint64_t conn, enum wf_frame_type type,
                       const void *fields);
void wf_server_send(struct wf_meta_server *server, const struct wf_server_rank *rank,
                    enum wf_frame_type type, const void *fields);
/* Gives the frame encoded, made anew unless it was made of `of`. NULL: it is too long, and the
 * server has ended the job with that reason. */
struct wf_payload *wf_server_shared_frame(struct wf_meta_server *server,
                                          struct wf_server_shared *shared, uint64_t of,
                                          enum wf_frame_type type, const void *fields);
void wf_server_shared_drop(struct wf_server_shared *shared);
/* To everybody present, to all members; some now, the rest in later turns. */
void wf_server_send_members_to_all(struct wf_meta_server *server);
void wf_server_send_open_to_all(struct wf_meta_server *server);
void wf_server_pay_slice(struct wf_meta_server *server);
/* To a rank that has not answered, unless it is owed it or says it has it. */
void wf_server_repeat_members(struct wf_meta_server *server, struct wf_server_rank *rank);
void wf_server_repeat_open(struct wf_meta_server *server, struct wf_server_rank *rank);

/* --- meta_server_conns.c -----------------------------------------------------------------------
 */
/* A stranger; the oldest one goes if there are too many. `address`: for people. */
struct wf_server_conn *wf_server_conn_open(struct wf_meta_server *server, uint64_t id,
                                           const char *address);
struct wf_server_conn *wf_server_conn_find(struct wf_meta_server *server, uint64_t id);
/* `rank`: whose identity it has or claims; NULL for strangers and observers. */
void wf_server_conn_become(struct wf_meta_server *server, struct wf_server_conn *conn,
                           enum wf_conn_kind kind, struct wf_server_rank *rank);
void wf_server_conn_forget(struct wf_meta_server *server, uint64_t id);
void wf_server_conn_drop(struct wf_meta_server *server, uint64_t id); /* closes and forgets it */
void wf_server_drop_silent(struct wf_meta_server *server); /* strangers whose time is over */
/* One that does not read what it asked for is let go, and `conn` freed: it may come back and see
 * the state then. */
void wf_server_send_observer(struct wf_meta_server *server, struct wf_server_conn *conn,
                             struct wf_payload *payload);
void wf_server_send_observers(struct wf_meta_server *server, enum wf_frame_type type,
                              const void *fields);

/* --- meta_server_join.c ------------------------------------------------------------------------
 */
void wf_server_on_hello(struct wf_meta_server *server, struct wf_server_conn *conn,
                        struct wf_frame *frame);
void wf_server_on_joined(struct wf_meta_server *server, struct wf_server_rank *rank,
                         const struct wf_frame_joined *joined);
void wf_server_on_heartbeat(struct wf_meta_server *server, struct wf_server_rank *rank,
                            const struct wf_frame_heartbeat *heartbeat);
void wf_server_on_leave(struct wf_meta_server *server, struct wf_server_rank *rank,
                        const struct wf_frame_leave *leave);
void wf_server_on_rank_closed(struct wf_meta_server *server, struct wf_server_rank *rank);
/* Nothing was heard of it for its lease and a margin. */
bool wf_server_is_silent(const struct wf_meta_server *server, const struct wf_server_rank *rank);
uint64_t wf_server_lease_and_margin(const struct wf_meta_server *server);
/* Answers the HELLO of a rank that has one coming. */
void wf_server_greet(struct wf_meta_server *server, struct wf_server_rank *rank, bool clean);
void wf_server_drop_rank_conn(struct wf_meta_server *server, struct wf_server_rank *rank);
/* Fences who was silent for a lease. */
void wf_server_check_leases(struct wf_meta_server *server);
/* IDLE: readmits who was fenced and is heard again. */
void wf_server_readmit(struct wf_meta_server *server);
void wf_server_send_welcome(struct wf_meta_server *server, struct wf_server_rank *rank);

/* --- meta_server_place.c -----------------------------------------------------------------------
 */
void wf_server_on_placement(struct wf_meta_server *server, struct wf_server_rank *rank,
                            const struct wf_frame_placement *placement);
void wf_server_place_forget(struct wf_server_rank *rank); /* its incarnation is gone */
/* All ranks that are here say the same table as the others of their engine. */
bool wf_server_place_agreed(struct wf_meta_server *server);
/* What MEMBERS says of a rank's layout: none of one that is not here and whose engine has moved its
 * experts since: nobody knows how it will come back. */
struct wf_hash wf_server_place_layout(const struct wf_meta_server *server,
                                      const struct wf_server_rank *rank);
/* It has joined anew. By its recipe's rule, of which ranks say nothing, in an engine that has moved
 * its experts: that is news as any other table. */
void wf_server_place_joined(struct wf_meta_server *server, const struct wf_server_rank *rank);
/* Its experts move, or have since its version was written: nobody can be filled from them. */
bool wf_server_place_moves(const struct wf_meta_server *server,
                           const struct wf_server_engine *engine);
/* With MEMBERS, of the same moment. False: the server ends. */
bool wf_server_make_placements(struct wf_meta_server *server);
/* Before MEMBERS. False: not all could be sent. */
bool wf_server_send_placements(struct wf_meta_server *server, uint64_t conn);
void wf_server_place_fini(struct wf_meta_server *server);

/* --- meta_server_agree.c -----------------------------------------------------------------------
 */
void wf_server_on_planned(struct wf_meta_server *server, struct wf_server_rank *rank,
                          const struct wf_frame_planned *planned);
void wf_server_on_publish(struct wf_meta_server *server, struct wf_server_rank *rank,
                          const struct wf_frame_publish *publish);
void wf_server_on_idle(struct wf_meta_server *server, struct wf_server_rank *rank,
                       const struct wf_frame_idle *idle);
void wf_server_on_told(struct wf_meta_server *server, struct wf_server_rank *rank,
                       const struct wf_frame_told *told);
/* IDLE: sends MEMBERS, checks plans. True: everybody who is here has one. */
bool wf_server_agree(struct wf_meta_server *server);
/* IDLE, then: begins generations. True: the train side is complete. */
bool wf_server_may_publish(struct wf_meta_server *server);
/* An observer asks who holds what. */
void wf_server_on_look(struct wf_meta_server *server, struct wf_server_conn *conn);
/* What was sent, or NULL. */
const struct wf_payload *wf_server_send_members(struct wf_meta_server *server,
                                                const struct wf_server_rank *rank);
void wf_server_send_generation(struct wf_meta_server *server, struct wf_server_rank *rank);
/* Releases what a rank published and not everybody can publish any more. */
void wf_server_skip_obsolete(struct wf_meta_server *server);
void wf_server_forget_published(struct wf_server_rank *rank, struct wf_version upto);
/* The version to open next, or false. */
bool wf_server_candidate(const struct wf_meta_server *server, struct wf_publication *out);
void wf_server_release_alone(struct wf_meta_server *server, struct wf_server_rank *rank,
                             struct wf_version version);

/* --- meta_server_idle.c ------------------------------------------------------------------------
 */
/* The rank that writes the version which others lack to where they can be filled from; NULL: nobody
 * waits for any. */
const struct wf_server_rank *wf_server_waited_writer(const struct wf_meta_server *server);
void wf_server_on_stored(struct wf_meta_server *server, struct wf_server_rank *rank,
                         const struct wf_frame_stored *stored);
void wf_server_idle(struct wf_meta_server *server);
struct wf_version wf_server_committed(const struct wf_meta_server *server); /* newest anywhere */
/* All ranks present, planned and not on their way out. */
bool wf_server_engine_is_whole(const struct wf_meta_server *server,
                               const struct wf_server_engine *engine);
/* All ranks present and holding the engine's committed version. */
bool wf_server_engine_is_full(const struct wf_meta_server *server,
                              const struct wf_server_engine *engine);
void wf_server_resume_engines(struct wf_meta_server *server);
void wf_server_send_resume(struct wf_meta_server *server, struct wf_server_rank *rank);

/* --- meta_server_round.c: the first half -------------------------------------------------------
 */
/* `source`: as in OPEN. */
void wf_server_open(struct wf_meta_server *server, const struct wf_publication *what, bool fill,
                    uint64_t source);
void wf_server_opened(struct wf_meta_server *server);
void wf_server_on_vote(struct wf_meta_server *server, struct wf_server_rank *rank,
                       const struct wf_frame_vote *vote);
/* A member's incarnation is gone (fenced, replaced, left): its votes are void. */
void wf_server_member_lost(struct wf_meta_server *server, struct wf_server_rank *rank,
                           const struct wf_culprit *why);
/* An answer counts: right key, a member's incarnation. */
bool wf_server_is_member(const struct wf_meta_server *server, const struct wf_server_rank *rank,
                         const struct wf_round_key *key);
/* The i-th rank of an engine if it is a member, else NULL. */
struct wf_server_rank *wf_server_member_at(struct wf_meta_server *server,
                                           const struct wf_server_engine *engine, uint32_t i);
void wf_server_blame_once(struct wf_meta_server *server, const struct wf_culprit *culprit);
/* What was sent, or NULL. */
const struct wf_payload *wf_server_send_open(struct wf_meta_server *server,
                                             const struct wf_server_rank *rank);
void wf_server_send_decide(struct wf_meta_server *server, struct wf_server_rank *rank);
void wf_server_send_abort(struct wf_meta_server *server, struct wf_server_rank *rank);
/* The unit is aborted: alone, or with all that is undecided where they are decided together. */
void wf_server_cut(struct wf_meta_server *server, struct wf_server_engine *engine);

/* --- meta_server_permit.c: members that read in place --------------------------------------------
 */
/* OPEN was sent: they pause. */
void wf_server_pause_members(struct wf_meta_server *server);
/* A unit whose in_place members are all paused may read, once the train side's copies are known to
 * agree (or are not compared); who is late to pause is evicted and named. */
void wf_server_permit_when_quiesced(struct wf_meta_server *server, bool agreed);
/* Some unit is not permitted yet: the time to vote has not begun for it. */
bool wf_server_waits_for_pauses(struct wf_meta_server *server);
void wf_server_send_permit(struct wf_meta_server *server, struct wf_server_rank *rank);

/* --- meta_server_close.c: the second half --------------------------------------------------------
 */
void wf_server_closing(struct wf_meta_server *server);
/* It missed a deadline: named, and not renewed any more. */
void wf_server_evict(struct wf_meta_server *server, struct wf_server_rank *rank, const char *what,
                     uint64_t limit_ns);
/* A decided unit: FLIP when all are quiesced; who is late is evicted. */
void wf_server_flip_when_quiesced(struct wf_meta_server *server, struct wf_server_engine *engine);
void wf_server_on_quiesced(struct wf_meta_server *server, struct wf_server_rank *rank,
                           const struct wf_frame_quiesced *quiesced);
void wf_server_on_flipped(struct wf_meta_server *server, struct wf_server_rank *rank,
                          const struct wf_frame_flipped *flipped);
void wf_server_on_resumed(struct wf_meta_server *server, struct wf_server_rank *rank,
                          const struct wf_frame_resumed *resumed);
void wf_server_on_aborted(struct wf_meta_server *server, struct wf_server_rank *rank,
                          const struct wf_frame_aborted *aborted);
/* Sends again what this rank has not answered. */
void wf_server_repeat(struct wf_meta_server *server, struct wf_server_rank *rank);
void wf_server_send_notice(struct wf_meta_server *server, struct wf_server_rank *rank);
/* Of the newest round whose end the train side was told; NULL: of none. */
const struct wf_round_key *wf_server_notice_round(const struct wf_meta_server *server);
/* After the barrier: how the round ended. */
void wf_server_tell_train_side(struct wf_meta_server *server);
uint32_t wf_server_decided_units(struct wf_meta_server *server); /* into server->units */

/* --- meta_server_replicas.c ----------------------------------------------------------------------
 */
/* The round's version is compared on this side, if the policy validates it. */
void wf_server_replicas_begin(struct wf_meta_server *server, enum wf_side side);
enum wf_replicas_word { WF_REPLICAS_WAIT, WF_REPLICAS_AGREE, WF_REPLICAS_DIFFER };
/* What is known of that by now. Where they differ the round has its culprit. */
enum wf_replicas_word wf_server_replicas_word(struct wf_meta_server *server);
/* Nobody is waited for any more: what was said by now is compared, and what differs is told without
 * the element. True: something does. */
bool wf_server_replicas_late(struct wf_meta_server *server);
/* All serve the version: begins, and is true when nothing is left to wait for. */
bool wf_server_replicas_closed(struct wf_meta_server *server);
void wf_server_on_replicas(struct wf_meta_server *server, struct wf_server_rank *rank,
                           const struct wf_frame_replicas *replicas);
void wf_server_replicas_repeat(struct wf_meta_server *server, struct wf_server_rank *rank);
/* The first rank that has not answered, or NULL. */
const struct wf_server_rank *wf_server_replicas_awaited(const struct wf_meta_server *server);
void wf_server_replicas_fini(struct wf_meta_server *server);

/* --- meta_server_recover.c: terms, and what a server that is not the first has to find out ------
 */
/* The server's term; with a journal that was used, or by order, the state RECOVER. */
enum wf_status wf_server_recover_begin(struct wf_meta_server *server, struct wf_error *error);
void wf_server_recover(struct wf_meta_server *server);     /* the state */
void wf_server_recover_end(struct wf_meta_server *server); /* frees it */
/* False: this HELLO is not answered (a newer term, or rounds of which there is no record); the
 * server goes above that term, or stops. */
/* The highest term that a HELLO speaks of. */
uint64_t wf_server_term_of(const struct wf_frame_hello *hello);
bool wf_server_may_hear(struct wf_meta_server *server, const struct wf_frame_hello *hello);
/* A rank that was admitted: what it remembers. False: its WELCOME has to wait. */
bool wf_server_hear(struct wf_meta_server *server, struct wf_server_rank *rank,
                    const struct wf_frame_hello *hello);
bool wf_server_is_collecting(const struct wf_meta_server *server); /* no WELCOME yet */
void wf_server_recover_again(struct wf_meta_server *server);       /* its waits begin anew */
void wf_server_drop_ranks(
    struct wf_meta_server *server); /* connections of all that are no observers */

/* --- meta_server_absence.c ---------------------------------------------------------------------
 */
/* First in each turn: if the server was not run for half a lease, it is away. */
void wf_server_check_absence(struct wf_meta_server *server);
/* True while it is; ends it when the ranks are back. */
bool wf_server_is_away(struct wf_meta_server *server);

/* --- meta_server_status.c: also wf_meta_server_status -----------------------------------------
 */
/* A round has ended: round.report is complete. */
void wf_server_remember_round(struct wf_meta_server *server);
void wf_server_on_status_request(struct wf_meta_server *server, struct wf_server_conn *conn,
                                 const struct wf_frame_status_request *request);

/* --- meta_server_report.c ----------------------------------------------------------------------
 */
void wf_server_report_plan(struct wf_meta_server *server);
void wf_server_report_vote(struct wf_meta_server *server, const struct wf_frame_vote *vote);
void wf_server_report_progress(struct wf_meta_server *server); /* of votes, if there are new ones */
void wf_server_report_round(struct wf_meta_server *server, bool committed);
/* False: it is the one that is kept, sent again. */
bool wf_server_keep_note(struct wf_server_rank *rank, const struct wf_frame_note *note);
void wf_server_forget_note(struct wf_server_rank *rank);
/* To one observer, if the server follows another one: how the newest rounds ended, and what ranks
 * said of them. */
void wf_server_report_missed(struct wf_meta_server *server, uint64_t conn);
void wf_server_forget_reports(struct wf_meta_server *server);
void wf_server_report_presence(struct wf_meta_server *server, bool away,
                               const struct wf_culprit *who);
void wf_server_progress(struct wf_meta_server *server, const char *phase, uint64_t done,
                        uint64_t of, const char *text);

#endif
