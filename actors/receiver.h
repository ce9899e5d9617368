/* receiver.h - what the files of the Receiver share. Private to actors/receiver*.c.
 *
 * The Receiver reads one version at a time into staging and, when told, copies staging to live
 * memory. In place there is no staging: it reads into live memory, which the MetaClient has seen
 * paused, and a flip copies nothing. It keeps a connection to each of its sources, and their
 * regions imported, over rounds.
 *
 *   IDLE --READ--> BEFORE --room for what is assembled, hook before_write--> READING
 *   READING --all boxes read, all origins' digests here--> VALIDATING
 *   VALIDATING --all edges match--> MAKING (codes and scales of what was assembled)
 *   MAKING --all made--> AFTER --hook after_write--> IDLE, READ_DONE(OK), staged
 *   VALIDATING --an edge differs--> NAMING (the origin's chunk digests) --> IDLE, READ_DONE(DIGEST)
 *   any of them --failure--> DRAINING --nothing open--> IDLE, READ_DONE(why)
 *   any of them --STOP--> DRAINING --nothing open--> IDLE, STOPPED
 *   IDLE --FLIP--> FLIPPING, hook after_flip --> IDLE, FLIPPED
 *
 * Invariants: outside READING and DRAINING no read is open; `staged` implies that staging holds
 * exactly `round` and its digests matched; a new plan is adopted in IDLE only.
 *
 * A fill from the rank's store of versions (actors/store.h) goes through the same phases without a
 * source: jobs read it (receiver_store.c); `open_reads` counts those that are out.
 *
 * A source: APART (a retry timer runs) -> CONNECTING -> GREETED (hello sent, regions come and are
 * imported) -> READY (all imports of all slots are done); any loss leads back to APART, and its
 * regions are released as soon as no read is open on them. An import that is out when its source is
 * lost has no source any more: what it gives is released when it comes.
 */
#ifndef WEFT_ACTORS_RECEIVER_H
#define WEFT_ACTORS_RECEIVER_H

#include "actors/batch.h"
#include "actors/handshake.h"
#include "actors/planned.h"
#include "actors/store.h"
#include "actors/validator.h"

enum {
    RECEIVER_SLOTS = 2,
    RECEIVER_MAPPED_OPEN = 2, /* one that moves and the next, so that no thread waits between */
    RECEIVER_RETRY_MIN_NS = 20 * 1000 * 1000,
    RECEIVER_RETRY_MAX_NS = 1000 * 1000 * 1000,
    RECEIVER_FLIP_BYTES = 8 << 20, /* of one flip job */
    RECEIVER_STORE_READERS = 4,    /* jobs that read a stored version at a time, at most */
    RECEIVER_STORE_LOOKS = 10,     /* for a version that is not there, half a second apart */
};
enum { RECEIVER_STORE_OPENED = 0x360, RECEIVER_STORE_READ, RECEIVER_HOOK_DONE, RECEIVER_CLAIMED };

enum source_state { SOURCE_APART, SOURCE_CONNECTING, SOURCE_GREETED, SOURCE_READY };
enum receiver_phase {
    RECEIVER_IDLE,
    RECEIVER_BEFORE,
    RECEIVER_READING,
    RECEIVER_VALIDATING,
    RECEIVER_MAKING,
    RECEIVER_AFTER,
    RECEIVER_NAMING,
    RECEIVER_DRAINING,
    RECEIVER_FLIPPING,
};

/* A region on its way. */
struct receiver_import {
    struct wf_import import;
    struct receiver_import *next;
    struct receiver_source *source; /* NULL: it was lost meanwhile */
    uint32_t slot, index;
};

struct receiver_slot {
    struct wf_remote **remotes; /* as many as were announced; NULL while an import is out */
    uint32_t remote_count;
    bool complete; /* the last region was announced */
    struct wf_el_place *places;
    uint32_t place_count; /* of those that came so far; all of them: */
    bool placed;
    struct wf_read_source *src; /* by the source's layout tensors; made when all is here */
};

struct receiver_source {
    struct wf_handshake handshake; /* of conn */
    struct wf_receiver *receiver;
    struct wf_el_peer peer;         /* copied from the plan's members */
    const struct wf_layout *layout; /* borrows from the plan */
    const struct wf_edge *edge;
    const struct wf_plan_cast *casts; /* of the source, in that plan: tensors behind its layout's */
    uint32_t cast_count;
    struct wf_op *reads;  /* the edge's ops, from there what is cast there; NULL: the edge's own */
    struct wf_hash input; /* of the plan that the connection agreed on */
    enum source_state state;
    uint64_t conn;
    struct wf_timer timer; /* APART: the retry; CONNECTING, GREETED: the limit */
    uint64_t retry_ns;
    char why[WF_REASON_MAX]; /* the last failure, for whoever waits */
    uint32_t address_number; /* CONNECTING: of the address being tried */
    uint32_t barred;         /* bits by index of the rank's transports: they do not work here */
    char barred_why[WF_REASON_MAX];
    struct wf_transport *transport; /* GREETED, READY: that the source took; borrows */
    struct receiver_slot slots[RECEIVER_SLOTS];
    uint32_t slot_count;             /* that the source has */
    struct receiver_import *imports; /* that are out */
    /* of the round */
    bool asked, granted, read_open, read_done, has_digest, named;
    uint64_t slot; /* that was granted */
    struct wf_read read;
    /* That `read` goes or went by: once it is done, the source may be connected anew. Borrows. */
    struct wf_transport *read_by;
    struct wf_digests *digests;
    uint64_t chunks_seen; /* NAMING: of the origin's list */
};

/* A job that reads a stored version, with its own memory. */
struct receiver_store_reader {
    struct wf_job job;
    struct receiver_store *store;
    struct wf_store_window window;
    uint8_t *block; /* a chunk as it is digested */
    uint64_t first, count;
    enum wf_status status;
    struct wf_error error;
};

/* A READ from the store; all zero without one. */
struct receiver_store {
    struct wf_receiver *receiver;
    struct wf_agreed *agreed; /* the plan of the fill; holds */
    struct wf_store_wanted wanted;
    struct wf_stored *stored; /* NULL: not open yet */
    struct wf_digests *digests;
    uint64_t next, bytes; /* the next chunk; of all, in the target's dtypes */
    struct wf_job open_job;
    enum wf_status open_status;
    struct wf_error open_error;
    uint32_t looks;
    struct wf_timer timer; /* between two looks */
    struct receiver_store_reader readers[RECEIVER_STORE_READERS];
    struct wf_validation validation;
    struct wf_validation_edge edge;
};

/* The host's hook that runs now, as a job: the phase says which. */
struct receiver_hook {
    struct wf_job job;
    bool running;
    void **written; /* by the rank's tensors, for after_write */
    enum wf_status status;
    struct wf_error error;
};

/* What is assembled in the plan at hand, and what codes and scales are made of it. */
struct receiver_make {
    struct wf_agreed *agreed;        /* whose plan that is; holds; or NULL */
    const struct wf_layout *planned; /* this rank's layout in it */
    uint64_t bytes;                  /* of the assembled tensors */
    struct wf_region memory;         /* of as many from a round's start on; or of another plan */
    uint8_t *scratch;                /* a part for each lane of `batch` */
    struct wf_job job;               /* BEFORE: claims the memory, gives back what was there */
    bool claiming;                   /* it runs */
    enum wf_status status;           /* how it ended */
    struct wf_error error;
    struct wf_batch batch;
    uint64_t start_ns;
};

struct wf_receiver {
    struct wf_actor actor; /* first: actors/local.h */
    struct wf_rank *rank;
    bool closing;

    struct wf_region staging;
    /* By layout tensor; NULL where the plan writes nothing. In place they are the same. staged_at
     * and dst go on with the assembled tensors of the plan at hand. */
    void **staged_at, **live_at;
    struct wf_read_target *dst;
    uint64_t *flip_first; /* first flip item of each tensor, then the total */
    struct wf_batch flip_batch;

    struct wf_agreed *agreed, *next_agreed;
    bool has_next;
    struct receiver_source **sources;
    uint32_t source_count;

    enum receiver_phase phase;
    struct wf_round_key round;
    bool staged, stopping; /* stopping: the answer is STOPPED (of `stop_round`) */
    bool wrote;            /* of `round`: where it lands was written to */
    struct wf_round_key stop_round;
    struct wf_timer deadline;
    uint64_t prepare_ns; /* the longest that a source worked before its grant */
    uint64_t started_ns, granted_ns, read_ns, deadline_ns;
    struct receiver_hook hook;
    struct receiver_make make;
    struct wf_agreed *stored; /* BEFORE: the fill from the store that follows; holds; or NULL */
    uint32_t open_reads, open_imports;
    bool validating;
    struct wf_validation validation; /* its edges: one for each source, in order */
    struct receiver_store store;
    struct wf_local_msg *answer; /* READ_DONE in the making */
};

/* receiver.c */
uint64_t receiver_now_ns(const struct wf_receiver *receiver);
/* A span of the round in the rank's trace. */
void receiver_trace(const struct wf_receiver *receiver, const char *name, uint64_t start_ns,
                    uint64_t end_ns);
/* Ends the round with a failure that `source` is to blame for. `object` may be empty; the sentence
 * is the rest of one that begins with the source's name. The first failure counts. */
void receiver_fail(struct wf_receiver *receiver, const struct receiver_source *source,
                   enum wf_status status, const char *object, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same with nobody but this rank itself to blame: the rest of "infer rank 3 (host b) ...". */
void receiver_fail_self(struct wf_receiver *receiver, enum wf_status status, const char *format,
                        ...) __attribute__((format(printf, 3, 4)));
/* Something ended: leaves DRAINING if nothing is open, answers a STOP. */
void receiver_settle(struct wf_receiver *receiver);
void receiver_tell(struct wf_receiver *receiver, struct wf_local_msg *answer);

/* receiver_staging.c */
enum wf_status receiver_staging_init(struct wf_receiver *receiver, struct wf_error *error);
void receiver_staging_fini(struct wf_receiver *receiver);
void receiver_flip(struct wf_receiver *receiver, const struct wf_local_msg *request);
void receiver_flipped(struct wf_receiver *receiver); /* the flip batch ended */
void receiver_flip_end(struct wf_receiver *receiver, enum wf_status status, const char *why);

/* receiver_source.c: one connection and what was imported over it. */
struct receiver_source *receiver_source_new(struct wf_receiver *receiver);
void receiver_source_free(struct receiver_source *source); /* no read open */
void receiver_source_connect(struct receiver_source *source);
/* Drops the connection, with the reason, and tries again later. */
void receiver_source_lose(struct receiver_source *source, enum wf_status status, const char *why);
void receiver_source_release(struct receiver_source *source); /* what was imported; no read open */
void receiver_source_event(struct receiver_source *source, struct wf_wire_msg *msg);
void receiver_source_imported(struct wf_receiver *receiver, struct wf_msg *msg); /* IMPORT_DONE */
bool receiver_source_send(struct receiver_source *source, enum wf_frame_type type,
                          const void *fields);

/* receiver_route.c: which address, which transport. */
/* The number-th address to try, from 0; false: there are no more. */
bool receiver_route_address(const struct receiver_source *source, uint32_t number,
                            char out[WF_ADDRESS_MAX]);
/* Names of the transports that may do, apart by spaces; false: none may. */
bool receiver_route_transports(const struct receiver_source *source,
                               char names_out[WF_TRANSPORT_NAMES_MAX]);
/* One of those; NULL: none has that name. */
struct wf_transport *receiver_route_find(const struct receiver_source *source, const char *name);
/* It does not work here. False: nothing is left to try. */
bool receiver_route_bar(struct receiver_source *source, const struct wf_transport *transport,
                        const char *why);
void receiver_route_forget(struct receiver_source *source); /* bars nothing any more */

/* receiver_hook.c: the host's work on a version, as jobs. Each goes on at once where the host has
 * no such hook; otherwise with the hook's end, if nothing has ended the round by then. */
enum wf_status receiver_hook_init(struct wf_receiver *receiver, struct wf_error *error);
void receiver_hook_fini(struct wf_receiver *receiver);
void receiver_hook_before(struct wf_receiver *receiver); /* then receiver_round_read */
void receiver_hook_after(struct wf_receiver *receiver);  /* then receiver_round_end_good */
void receiver_hook_flip(struct wf_receiver *receiver);   /* then receiver_flip_end */
void receiver_hook_done(struct wf_receiver *receiver);   /* HOOK_DONE */
/* The deadline passed while one runs. */
void receiver_hook_late(struct wf_receiver *receiver);

/* receiver_make.c: codes and scales that no source has (models/assemble.h). */
void receiver_make_init(struct wf_receiver *receiver);
void receiver_make_fini(struct wf_receiver *receiver);
/* This plan is at hand (NULL: none); room that another one had stays until the next round. In IDLE
 * only. */
void receiver_make_use(struct wf_receiver *receiver, struct wf_agreed *agreed);
/* A round of this plan begins: makes the room fit, as a job, then receiver_hook_before. */
void receiver_make_room(struct wf_receiver *receiver, struct wf_agreed *agreed);
void receiver_make_claimed(struct wf_receiver *receiver); /* CLAIMED */
void receiver_make_start(struct wf_receiver *receiver);   /* then receiver_hook_after */
void receiver_make_ended(struct wf_receiver *receiver);   /* the batch ended */
void receiver_make_late(struct wf_receiver *receiver);    /* the deadline passed meanwhile */

/* receiver_plan.c */
void receiver_plan_adopt(struct wf_receiver *receiver);
/* For one round (a fill from a replica); the plan of before is adopted again after it. */
void receiver_plan_borrow(struct wf_receiver *receiver, struct wf_agreed *agreed);
void receiver_plan_fini(struct wf_receiver *receiver);

/* receiver_round.c: READ to READ_DONE. */
void receiver_round_start(struct wf_receiver *receiver, const struct wf_local_msg *request);
void receiver_round_read(struct wf_receiver *receiver); /* the host is ready */
void receiver_round_end_good(struct wf_receiver *receiver);
void receiver_round_ready(struct receiver_source *source); /* it became READY */
void receiver_round_frame(struct receiver_source *source, const struct wf_frame *frame);
void receiver_round_read_done(struct receiver_source *source);
void receiver_round_validated(struct wf_receiver *receiver);
void receiver_round_lost(struct receiver_source *source, enum wf_status status);
void receiver_round_deadline(struct wf_timer *timer);

/* receiver_store.c: the same from the store. The phase is READING; `agreed` is of the store. */
void receiver_store_start(struct wf_receiver *receiver, struct wf_agreed *agreed);
void receiver_store_opened(struct wf_receiver *receiver);                   /* STORE_OPENED */
void receiver_store_read(struct wf_receiver *receiver, struct wf_msg *msg); /* STORE_READ */
/* True: what was written matches, and the answer's figures are in. False: the round failed. */
bool receiver_store_validated(struct wf_receiver *receiver);
void receiver_store_late(struct wf_receiver *receiver); /* the deadline passed */
void receiver_store_end(struct wf_receiver *receiver);  /* nothing of it runs any more */

#endif
