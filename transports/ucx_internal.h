/* ucx_internal.h - what the files of the UCX transport share. Private to transports/ucx*.c.
 *
 * A transport has two workers: the source's (made at the first export; its address is in the
 * handles) and the reader's (made at the first import). UCX writes into this process only through
 * the reader's worker, and a TCP connection that UCX was told to close may still write what its
 * peer sends: only the end of the worker is a barrier. Over TCP itself UCX is given nothing to
 * write to: chunks come in parts of one segment each, which are placed from UCX's own buffer when
 * they are there. Elsewhere they come by rendezvous, into the target or a buffer of ours. So a read
 * that must end while bytes are landing waits for them, and when nothing has landed for
 * UCX_BARRIER_NS the reader's worker is made anew; other reads ask again for what was on its way.
 *
 * A worker knows the interfaces of the moment in which it was made, and nobody tells a connection
 * that the address at its end has gone: both sides wait. So it is made anew, too, when what is
 * waited for does not come and the host's interfaces have changed.
 *
 *   slot: FREE -> REQUESTED -> (OFFERED -> ARRIVING ->) ARRIVED -> FREE
 *   (in parts: REQUESTED until the last one was placed)
 *   slot: REQUESTED, OFFERED, ARRIVING -(worker made anew)-> QUEUED -> REQUESTED
 *   slot: REQUESTED -(the source kept it for as long as it may)-> QUEUED -> REQUESTED
 *   read: OPEN -(all asked for and placed)-> done; OPEN -(failure)-> draining -(no slot ARRIVING)->
 * done
 *   peer: NEW -> GREETED -(WELCOME)-> READY -(error, its process ended)-> LOST -> (next use)
 * GREETED
 */
#ifndef WEFT_TRANSPORTS_UCX_INTERNAL_H
#define WEFT_TRANSPORTS_UCX_INTERNAL_H

#include "transports/ucx.h"
#include "transports/ucx_frames.h"
#include "transports/ucx_worker.h"

enum {
    UCX_AM_TO_SOURCE = 1,
    UCX_AM_TO_READER = 2,
    UCX_RENDEZVOUS_MIN = 16 << 10, /* bytes; smaller answers come at once, through UCX's buffers */
    UCX_DIRECT_MIN = 64 << 10,     /* bytes of a run that is received in place */
    /* Of an answer in parts: bytes of one (it, its head and UCX's fit into one segment of TCP, see
     * ucx.c), of a run that is sent from where it lies, and parts on their way to one lane of a
     * reader: few, so that what was packed is sent while the caches have it. */
    UCX_PART_BYTES = 120 << 10,
    UCX_PART_RUN_MIN = 32 << 10,
    UCX_PARTS_OUT = 8,
    UCX_SLOTS_MAX = 4096,       /* chunks on their way to one reader */
    UCX_NOTES_MAX = 4096,       /* small messages that were not acted upon yet */
    UCX_CLIENTS_MAX = 4096,     /* readers of one source */
    UCX_WAITING_MAX = 1024,     /* requests of one reader that wait for a buffer */
    UCX_REQUEST_MS_MAX = 60000, /* that a request may ask to be kept for; then it asks again */
};
#define UCX_BARRIER_NS UINT64_C(500000000)
#define UCX_LOOK_NS UINT64_C(1000000000)       /* of all sources' silence */
#define UCX_IMPORT_NS UINT64_C(10000000000)    /* of a source's silence */
#define UCX_REGISTER_NS UINT64_C(300000000000) /* that a source may take to register a region */
#define UCX_ASK_AGAIN_NS UINT64_C(20000000)    /* at first; then each time twice as much ... */
#define UCX_ASK_SELDOM_NS UINT64_C(500000000)  /* ... up to about this */
#define UCX_SEND_SLACK_NS UINT64_C(1000000000) /* of a send after its reader gave up */
#define UCX_WITHDRAW_NS UINT64_C(200000000)    /* that a withdrawal waits for readers to let go */

enum { UCX_REGISTERED = WF_TRANSPORT_OWN, UCX_UNREGISTERED };

struct ucx;

/* A small message as it came, kept until it is acted upon. */
struct ucx_note {
    struct ucx_note *next;
    struct ucx_head head;
    uint64_t deadline_ns; /* CHUNK: until then */
    struct ucx_cursor {   /* CHUNK in parts: what was sent so far */
        bool is_checked;
        uint32_t sent, at, slice; /* bytes; where in the body; which slice begins there */
        uint64_t element;         /* of that slice, from its first on */
    } cursor;
    uint32_t body_len;
    uint8_t body[];
};
struct ucx_notes {
    struct ucx_note *first, *last;
    uint32_t count;
};
/* NULL: no memory or too many. Callable within UCX's callbacks. */
struct ucx_note *ucx_notes_add(struct ucx_notes *notes, const struct ucx_head *head,
                               const void *body, size_t body_len);
struct ucx_note *ucx_notes_take(struct ucx_notes *notes);           /* gives; NULL: none */
void ucx_notes_put(struct ucx_notes *notes, struct ucx_note *note); /* takes; at the end */
void ucx_notes_clear(struct ucx_notes *notes);

/* --- the reader's side -------------------------------------------------------------------------
 */

enum ucx_peer_state { UCX_PEER_NEW, UCX_PEER_GREETED, UCX_PEER_READY, UCX_PEER_LOST };

/* A source process, known by its life. */
struct ucx_peer {
    struct ucx_peer *next;
    struct ucx *ucx;
    enum ucx_peer_state state;
    struct ucx_handle handle; /* address points to the bytes below */
    uint8_t address[WF_HANDLE_MAX];
    ucp_ep_h eps[WF_UCX_LANES_MAX]; /* NULL: none */
    uint32_t next_lane;
    bool failed; /* recorded by UCX's callback, acted upon later */
    char failure[UCX_TEXT_MAX];
    uint32_t refs;         /* remotes and imports */
    uint64_t flight_bytes; /* asked for and not there yet */
    struct wf_watch exit;  /* its process, when it is on this host */
    bool exit_watched;
    bool is_described;
    bool can_get;        /* by itself, from this peer */
    bool in_parts;       /* chunks are asked for in parts */
    uint64_t connection; /* its present connection's number among this reader's */
};

struct ucx_remote {
    struct wf_remote base;
    struct ucx_peer *peer;
    uint64_t region;
    unsigned open_reads;
    uint64_t address; /* where the source has it, when it gave a key */
    uint8_t *key;     /* key_len bytes; NULL: none */
    uint32_t key_len;
    struct ucx_remote *next; /* in the reader's list of those with a key */
    ucp_rkey_h rkey;         /* the key made usable on the peer's first connection; NULL: not yet */
    uint64_t rkey_of;        /* the peer's `connection` then */
};

struct ucx_import {
    struct ucx_import *next;
    struct wf_import *import;
    struct ucx_peer *peer;
    struct ucx_remote *remote;       /* to be given */
    struct wf_timer deadline, again; /* again: the source was not ready */
    uint64_t until_ns, again_ns;     /* until: that it may say so */
    struct ucx *ucx;
    uint64_t tag;
    bool asked;
};

struct ucx_read {
    struct ucx_read *next;
    struct ucx *ucx;
    struct wf_read *read;
    struct wf_timer deadline;
    uint32_t op; /* the next element that was not asked for */
    uint64_t element;
    uint32_t slots; /* that work for it */
    bool draining;
};

enum ucx_slot_state {
    UCX_SLOT_FREE,
    UCX_SLOT_QUEUED,    /* to be asked for (again) */
    UCX_SLOT_REQUESTED, /* asked for */
    UCX_SLOT_OFFERED,   /* the source is ready to send: `offer` */
    UCX_SLOT_ARRIVING,  /* bytes land in `direct` or `buffer` */
    UCX_SLOT_ARRIVED,   /* they are there, or `status` says why not */
};

/* One chunk: some elements of a read, of one peer. */
struct ucx_slot {
    enum ucx_slot_state state;
    uint32_t index, generation;
    struct ucx_slot *next_free, *next_event;
    bool is_event; /* in the list of what is to be acted upon */
    bool sending;  /* UCX still reads `head` and `body` */
    struct ucx *ucx;
    struct ucx_read *read;
    struct ucx_peer *peer;
    uint32_t op, end_op; /* from element `element` of op to before `end_element` of end_op */
    uint64_t element, end_element;
    uint32_t wire_bytes, slice_count, body_len;
    uint32_t placed;           /* bytes that came in answers small enough to be placed at once */
    struct ucx_remote *remote; /* one slice that lies there ... */
    uint64_t remote_offset;    /* ... in one piece from here on, as it is wanted; else NULL */
    uint8_t *direct;           /* where the bytes belong, when they need no other step */
    uint8_t *buffer;           /* chunk_bytes, made when first needed; else they land here */
    uint8_t *body;             /* UCX_BODY_MAX, likewise */
    uint8_t head[UCX_HEAD_BYTES];
    void *offer;
    enum wf_status status;
    char text[UCX_TEXT_MAX];
};

struct ucx_reader {
    struct ucx_worker worker;
    uint8_t life[UCX_LIFE_BYTES]; /* of the worker */
    bool closing;                 /* callbacks only free what is theirs */
    struct ucx_peer *peers;
    struct ucx_remote *keyed; /* remotes with a key */
    struct ucx_import *imports;
    uint64_t next_tag;
    uint64_t connections;   /* that were ever made */
    struct ucx_read *reads; /* oldest first */
    struct ucx_slot *slots;
    uint32_t slot_count;
    struct ucx_slot *free, *events, *last_event;
    uint64_t flight_bytes, flight_max; /* the most there ever were */
    uint64_t rebuilds;
    uint32_t receives; /* that UCX was given and did not end */
    struct wf_timer barrier;
    bool landed;          /* something arrived for a draining read since the barrier was armed */
    uint64_t devices;     /* of this host when the worker was made (ucx_devices.h) */
    struct wf_timer look; /* while anything is waited for */
    uint64_t heard, had_heard; /* what came or began; when it was looked last */
    struct ucx_notes notes;
};

/* --- the source's side -------------------------------------------------------------------------
 */

struct ucx_region {
    struct ucx_region *next;
    uint64_t id;
    uint8_t *address;
    uint64_t len_bytes;
    /* --- ucx_register.c's */
    struct ucx *ucx;
    struct ucx_context *context; /* holds; NULL: nothing is registered here */
    struct wf_job job;
    bool busy, withdrawn; /* busy: the job has what follows */
    ucs_status_t status;
    ucp_mem_h memory; /* registered for readers that can get; NULL: not */
    void *key;        /* UCX's */
    size_t key_len;
};

struct ucx_client {
    struct ucx_client *next;
    struct ucx *ucx;
    uint8_t life[UCX_LIFE_BYTES];
    uint64_t connection; /* as its reader numbers them */
    ucp_ep_h eps[WF_UCX_LANES_MAX];
    uint32_t lanes;                   /* open ones */
    bool failed;                      /* recorded; acted upon later: by force */
    bool dead;                        /* nothing more is heard from it; ends with its last send */
    uint32_t sends, waiting, buffers; /* buffers: that are taken for it */
};

/* An answer on its way. */
struct ucx_send {
    struct ucx_send *next, **link;
    struct ucx *ucx;
    struct ucx_client *client;
    struct ucx_region *region; /* when its own memory is sent */
    uint8_t *buffer;           /* when packed */
    uint64_t deadline_ns;
    uint8_t head[UCX_HEAD_BYTES];
};

struct ucx_source {
    struct ucx_worker worker;
    bool closing;
    struct ucx_region *regions;
    uint64_t next_region;
    struct ucx_client *clients;
    uint32_t client_count;
    struct ucx_notes notes, waiting; /* as they came; chunks that wait for a buffer */
    bool overran;                    /* there was no room for a note */
    struct ucx_send *sends;
    uint32_t sends_out;
    uint32_t jobs_out; /* regions that are being registered, or the reverse */
    struct ucx_buffer {
        struct ucx_buffer *next;
    } * buffers;                        /* idle ones of chunk_bytes */
    uint32_t buffers_out, buffer_limit; /* taken; taken and idle ones that may be */
    struct wf_timer check;
    uint64_t completed; /* sends; to see that something moved */
    uint64_t looked;    /* `completed` when what waits was looked at last */
};

struct ucx {
    struct wf_transport base;
    struct wf_loop *loop;
    struct wf_actor actor; /* jobs end here */
    struct ucx_library library;
    struct ucx_recipe recipe;
    uint8_t life[UCX_LIFE_BYTES]; /* as a source */
    uint64_t host;
    uint64_t transit_bytes, edge_bytes;
    uint32_t chunk_bytes, lanes;
    enum wf_ucx_get get;
    bool whole_chunks;
    bool has_rma; /* the context can get at all */
    char description[4096];
    struct ucx_reader reader;
    struct ucx_source source;
};

/* A small message to `ep`; copies head and body. Failure is the connection's to notice. */
void ucx_say(struct ucx_worker *worker, ucp_ep_h ep, unsigned am_id, const struct ucx_head *head,
             const void *body, size_t body_len);
/* An endpoint to a worker's address. `on_error` records. */
enum wf_status ucx_connect(struct ucx_worker *worker, const void *address,
                           ucp_err_handler_cb_t on_error, void *argument, ucp_ep_h *ep_out,
                           struct wf_error *error);
/* `force`: at once, and its operations end. Without it what was said still leaves. */
void ucx_disconnect(struct ucx_worker *worker, ucp_ep_h ep, bool force);

/* ucx_source.c */
enum wf_status ucx_export_region(struct wf_transport *t, const struct wf_region *region,
                                 struct wf_handle *handle_out, struct wf_error *error);
void ucx_withdraw_region(struct wf_transport *t, const struct wf_handle *handle);
void ucx_source_close(struct ucx *ucx);
/* ucx_serve.c: what the source does with what readers said. */
bool ucx_serve(struct ucx_worker *worker);
ucs_status_t ucx_serve_record(void *argument, const void *header, size_t header_len, void *data,
                              size_t data_len, const ucp_am_recv_param_t *param);
void ucx_send_end(struct ucx_send *send); /* UCX has let go of it */
/* What a DATA has. */
struct ucx_body {
    const void *bytes;
    uint32_t len, offset;      /* offset: in the chunk */
    struct ucx_region *region; /* whose memory it is, or NULL ... */
    uint8_t *buffer;           /* ... when it was packed into this; taken */
};
void ucx_transmit(struct ucx_client *client, const struct ucx_note *note,
                  const struct ucx_body *body);
void ucx_answer(struct ucx_client *client, const struct ucx_head *to, uint8_t kind,
                enum wf_status status, const char *why);
struct ucx_region *ucx_region_find(struct ucx *ucx, uint64_t id); /* NULL: none */
/* chunk_bytes, or NULL: none is free now, or this client has as many as are left for the others. So
 * one that takes nothing holds at most half of them, a second one half of the rest. */
uint8_t *ucx_buffer_take(struct ucx_client *client);
void ucx_buffer_give(struct ucx_client *client, uint8_t *buffer); /* NULL is fine */
/* Its connections end, and by force its sends too; nothing that it asked waits any more. */
void ucx_client_cut(struct ucx_client *client, bool force);

/* ucx_chunk.c: answers a request for a chunk, or goes on with it. False: not wholly now, because
 * there is no buffer or enough is on its way to this reader. */
bool ucx_chunk_serve(struct ucx_client *client, struct ucx_note *note);

/* ucx_register.c */
/* If readers can get at all. `busy` until it has ended; without a key then: it failed. */
void ucx_register(struct ucx_region *region);
/* Takes it: it is in no list any more, and freed when UCX has let go of it. */
void ucx_unregister(struct ucx_region *region);
void ucx_registered(struct ucx *ucx, struct wf_msg *msg); /* its job ended */

/* ucx_import.c */
void ucx_import_region(struct wf_transport *t, struct wf_import *import);
void ucx_release_region(struct wf_transport *t, struct wf_remote *remote);
void ucx_import_note(struct ucx *ucx, const struct ucx_note *note);
void ucx_imports_ask(struct ucx *ucx, struct ucx_peer *peer);
void ucx_imports_resume(struct ucx *ucx); /* after the worker was made anew */
/* Of one peer, or all (NULL). */
void ucx_imports_fail(struct ucx *ucx, struct ucx_peer *peer, enum wf_status status,
                      const char *why);

/* ucx_peer.c */
/* One reference more; NULL: no memory. */
struct ucx_peer *ucx_peer_get(struct ucx *ucx, const struct ucx_handle *handle);
void ucx_peer_put(struct ucx_peer *peer);
/* Connects unless it is; false: it cannot be, `failure` says why. */
bool ucx_peer_greet(struct ucx_peer *peer);
void ucx_peer_welcome(struct ucx *ucx, const struct ucx_note *note);
/* Acts on what failed; true if there was anything. */
bool ucx_peers_check(struct ucx *ucx);
void ucx_peer_lose(struct ucx_peer *peer);
void ucx_peers_hang_up(struct ucx *ucx); /* all, by force: the worker ends */

/* ucx_reader.c: the reader's worker and its slots */
enum wf_status ucx_reader_open(struct ucx *ucx, struct wf_error *error);
void ucx_reader_close(struct ucx *ucx);
void ucx_slot_event(struct ucx_slot *slot);
struct ucx_slot *ucx_slot_take(struct ucx *ucx);
/* What UCX was given to fill is full, or failed; callable within its callbacks. */
void ucx_slot_landed(struct ucx_slot *slot, ucs_status_t status);
void ucx_slot_free(struct ucx_slot *slot);
void ucx_slot_request(struct ucx_slot *slot); /* stays queued while its peer is not ready */
void ucx_slots_request(struct ucx *ucx);      /* all that are queued */
void ucx_barrier_arm(struct ucx *ucx);
/* Something is waited for: if nothing comes and the host's interfaces are not those that the worker
 * knows, it is made anew. */
void ucx_reader_watch(struct ucx *ucx);

/* ucx_read.c */
void ucx_read_start(struct wf_transport *t, struct wf_read *read);
void ucx_read_cancel(struct wf_transport *t, struct wf_read *read);
/* Asks for what credits allow. */
void ucx_reads_pump(struct ucx *ucx);
/* Acts on a slot whose state changed. */
void ucx_read_slot(struct ucx_slot *slot);
/* Puts bytes of the slot's chunk where they belong; false: they cut an element in two. Callable
 * within UCX's callbacks. */
bool ucx_read_place(const struct ucx_slot *slot, uint32_t offset, const uint8_t *bytes,
                    uint32_t len);
void ucx_read_fail(struct ucx_read *open, enum wf_status status, uint32_t op, const char *why);
/* After the worker was made anew. */
void ucx_reads_resume(struct ucx *ucx);
/* Of one peer, or all (NULL). */
void ucx_reads_fail(struct ucx *ucx, struct ucx_peer *peer, enum wf_status status, const char *why);

/* ucx_get.c: reading a source's memory without it */
bool ucx_get_wanted(const struct ucx *ucx); /* worth asking UCX for on this host */
/* Takes the body of OPENED. */
void ucx_get_keep(struct ucx_remote *remote, const uint8_t *body, uint32_t len);
void ucx_get_forget(struct ucx_remote *remote);
void ucx_get_drop_keys(struct ucx *ucx); /* before the worker ends: they are its memory */
/* True: the slot's bytes are coming, or its failure is recorded; false: it has to be asked for. */
bool ucx_get_start(struct ucx_slot *slot);

#endif
