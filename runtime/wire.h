/* wire.h - the real wire: the sockets of one env. Inside the runtime only (env_real.c, wire_*.c).
 *
 * A connection's life:
 *
 *   RESOLVING -> CONNECTING -> OPEN -> LINGERING -> gone        the side that connects
 *                  GREETING -> OPEN -> LINGERING -> gone        the side that accepts
 *
 * Its owner knows it from connect, or from OPEN on, until CLOSED or its own close. LINGERING sends
 * what is queued, says end of file, and reads away what comes until the peer does the same, so that
 * the kernel has no reason to reset the connection and lose the last frames. Every state but OPEN
 * between frames has a deadline, on the one timer.
 *
 * Descriptors are given to wf_watch; its calls come in passes of the loop and never from inside the
 * owner's own calls, so a function here may free its connection and say so by returning false.
 */
#ifndef WEFT_RUNTIME_WIRE_H
#define WEFT_RUNTIME_WIRE_H

#include <sys/stat.h>

#include "runtime/env.h"
#include "runtime/loop.h"
#include "runtime/wire_address.h"

enum {
    WIRE_HEADER_BYTES = 8,
    WIRE_SCRATCH_BYTES = 256 << 10,
    WIRE_READS_PER_TURN = 4,
    WIRE_ACCEPTS_PER_TURN = 64,
    WIRE_FDS_PER_READ = 8,            /* more in one piece than the kernel is asked for are lost */
    WIRE_PARTIAL_FIRST = 64 << 10,    /* room for a frame before more of it has come */
    WIRE_UNRELEASED_BYTES = 16 << 20, /* of one connection, beside WF_UNRELEASED_MAX */
    WIRE_PARTIAL_TOTAL = 256 << 20,   /* room for half frames of all connections */
    WIRE_PROGRESS_BYTES = 64 << 10,   /* so much of a frame restarts its deadline */
    WIRE_LINGER_BYTES = 1 << 20,      /* read away of a closed connection: then it is cut off */
    WIRE_LAST_READS = 64,             /* of a connection whose env goes */
    WIRE_BACKLOG = 4096,
    WIRE_LISTENERS_MAX = 64,
};
#define WIRE_CONNECT_NS UINT64_C(10000000000) /* for one address of a peer */
#define WIRE_ACCEPT_PAUSE_NS UINT64_C(100000000)
#define WIRE_FRAME_TIMEOUT_NS UINT64_C(10000000000) /* the default */

enum wire_state {
    WIRE_RESOLVING,
    WIRE_CONNECTING,
    WIRE_GREETING,
    WIRE_OPEN,
    WIRE_LINGERING,
};

/* What frames given away still know of their connection; lives until the last is released. */
struct wire_gate {
    struct wire_conn *conn; /* NULL: gone */
    uint32_t references, unreleased;
    uint64_t unreleased_bytes;
};

/* A frame, or what is left of it, that waits to leave. */
struct wire_chunk {
    struct wire_chunk *next;
    size_t len, sent;
    size_t own_len;            /* of bytes; what follows is in `shared` */
    struct wf_payload *shared; /* holds; NULL: all is in bytes */
    size_t shared_from;        /* where the rest begins in it */
    int fd;                    /* owns; goes with the first byte; -1 */
    uint8_t bytes[];
};

struct wire_conn {
    struct wf_watch watch; /* first; fd -1 before there is one */
    struct wf_timer timer; /* the state's deadline */
    struct wire *wire;
    struct wf_actor *owner; /* borrows; NULL once it may not be told any more */
    struct wire_gate *gate;
    uint64_t id, listener;
    enum wire_state state;
    bool watched, watch_failed, paused, write_failed, said_end, is_unix;
    /* A stranger: in wire->strangers, in the order of coming; its timer runs from accept on. */
    bool stranger, stranger_spoke;
    struct wire_conn *older, *newer;
    uint64_t accepted_ns;
    struct wf_wire_msg *opened_msg, *closed_msg; /* own; made first, so that they can be sent */
    /* connecting */
    struct wire_connect *connect; /* owns; NULL on the accepting side and after OPEN */
    /* reading */
    uint8_t header[WIRE_HEADER_BYTES];
    size_t header_len;
    struct wf_wire_msg *partial; /* owns; the frame that is coming, once its header is complete */
    size_t partial_cap, partial_len, frame_len, progress;
    size_t lingered;      /* bytes read away */
    int partial_fd;       /* came with the frame that is coming */
    bool started_in_read; /* its first byte was in the bytes being parsed */
    /* writing */
    struct wire_chunk *first, *last;
    uint64_t queued_bytes;
};

struct wire_listener {
    struct wf_watch watch; /* first */
    struct wf_timer timer; /* accepts again when descriptors ran out */
    struct wire *wire;
    struct wf_actor *owner; /* borrows */
    uint64_t id;
    bool is_unix, said_full, guarded;
    struct wf_actor *foreign;                             /* borrows; NULL: nobody wants them */
    char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* to unlink, or "" */
    dev_t device;
    ino_t inode;
};

/* Ids are (generation << 16 | slot number): never 0, never used twice. */
struct wire_slot {
    uint64_t generation;
    void *object; /* NULL: free */
    bool is_listener;
    uint32_t next_free;
};

struct wire {
    struct wf_env *env; /* borrows: for jobs, choices and the clock */
    struct wf_loop *loop;
    struct wf_actor actor; /* for jobs that come back */
    uint64_t frame_timeout_ns;
    struct wire_slot *slots;
    uint32_t slot_count, slot_cap, first_free; /* first_free: 0 is none, slot 0 is never used */
    uint32_t conn_count, listener_count;
    uint64_t partial_bytes;
    struct wire_conn *oldest_stranger, *newest_stranger;
    uint32_t stranger_count, strangers_max;
    struct wire_connect *resolving; /* list: whose jobs are out */
    uint8_t *scratch;
};

/* --- wire.c: connections as objects ------------------------------------------------------------
 */
enum wf_status wire_init(struct wire *wire, struct wf_env *env, struct wf_loop *loop,
                         uint64_t frame_timeout_ns, struct wf_error *error);
/* After the job pool is gone. */
void wire_fini(struct wire *wire);
void wire_close(struct wire *wire, uint64_t conn_or_listener);

/* Gives an id; 0: none is left. */
uint64_t wire_slot_take(struct wire *wire, void *object, bool is_listener);
void wire_slot_drop(struct wire *wire, uint64_t id);
struct wire_slot *wire_slot_find(struct wire *wire, uint64_t id);
struct wire_conn *wire_conn_find(struct wire *wire, uint64_t id);

/* NULL: no memory, or WF_CONNECTIONS_MAX are there. */
struct wire_conn *wire_conn_new(struct wire *wire, struct wf_actor *owner, enum wire_state state);
/* Begins to watch conn->watch.fd, which it owns from now on. */
enum wf_status wire_conn_watch(struct wire_conn *conn, int fd);
void wire_conn_update(struct wire_conn *conn); /* wants what its state needs */
void wire_conn_deadline(struct wire_conn *conn, uint64_t ns, const char *name);
/* Tells the owner CLOSED and frees the connection. Returns false, for callers that do so too. */
bool wire_conn_end(struct wire_conn *conn, enum wf_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Without a word to the owner: what is queued still leaves, then it ends. */
void wire_conn_linger(struct wire_conn *conn);
void wire_conn_free(struct wire_conn *conn);
/* OPENED to the owner. */
void wire_conn_opened(struct wire_conn *conn, const char *text);

void wire_conn_socket_close(struct wire_conn *conn); /* its socket only: another may follow */
void wire_listener_forget(struct wire *wire, uint64_t listener); /* those that still greet */

/* A message with room for `cap` bytes of payload; NULL: no memory. */
struct wf_wire_msg *wire_msg_new(enum wf_wire_kind kind, uint64_t conn, size_t cap);
struct wf_wire_msg *wire_msg_grow(struct wf_wire_msg *msg, size_t cap); /* NULL: msg is as before */
uint8_t *wire_msg_bytes(struct wf_wire_msg *msg);
/* Fills the message's account and gives it to the owner. */
void wire_frame_deliver(struct wire_conn *conn, struct wf_wire_msg *frame);

/* --- wire_connect.c ----------------------------------------------------------------------------
 */
enum wf_status wire_connect(struct wire *wire, struct wf_actor *owner, const char *address,
                            uint64_t *conn_out, struct wf_error *error);
void wire_connect_ready(struct wire_conn *conn);   /* the socket can tell how it went */
void wire_connect_timeout(struct wire_conn *conn); /* its timer passed */
void wire_connect_free(struct wire_conn *conn);    /* conn->connect; its job may be out */
enum wf_verdict wire_connect_resolved(struct wf_actor *actor, struct wf_msg *msg);
void wire_connect_fini(struct wire *wire); /* frees what was resolving */

/* --- wire_listen.c ------------------------------------------------------------------------------
 */
enum wf_status wire_listen(struct wire *wire, struct wf_actor *owner, const char *address,
                           char bound_out[WF_ADDRESS_MAX], uint64_t *listener_out,
                           struct wf_error *error);
void wire_listener_free(struct wire_listener *listener);
void wire_guard(struct wire *wire, uint64_t listener, struct wf_actor *foreign);
void wire_trust(struct wire *wire, uint64_t conn);
void wire_stranger_leave(struct wire_conn *conn); /* no longer one; others are ignored */
/* Its first byte begins no frame: given to whoever wants such. False: nobody does. */
bool wire_foreign_give(struct wire_conn *conn);
void wire_socket_peer(int fd, char out[WF_ADDRESS_MAX]); /* who the other end is, for people */
/* Unix: is the other end's user ours, or root? Abstract names belong to whoever comes first. */
bool wire_socket_may_talk(int fd);
/* Options of a connected or accepted socket. */
void wire_socket_tune(int fd, bool is_unix);

/* --- wire_read.c --------------------------------------------------------------------------------
 */
bool wire_read(struct wire_conn *conn); /* false: the connection is gone */
void wire_read_fini(struct wire_conn *conn);

/* --- wire_write.c -------------------------------------------------------------------------------
 */
enum wf_status wire_send(struct wire *wire, uint64_t id, const void *bytes, size_t len_bytes,
                         int fd);
enum wf_status wire_send_shared(struct wire *wire, uint64_t id, struct wf_payload *payload);
/* The empty frame that a connecting side begins with. */
void wire_greet(struct wire_conn *conn);
void wire_flush(
    struct wire_conn *conn); /* sends what it can; a failure ends writing, not reading */
void wire_write_fini(struct wire_conn *conn);

#endif
