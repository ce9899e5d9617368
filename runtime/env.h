/* env.h - everything outside a rank goes through this table: clock, choices, wire, jobs.
 *
 * Actors never call the operating system. They ask their loop's env, and there are two:
 * wf_env_real_new (sockets, threads, CLOCK_MONOTONIC) and the simulator's (runtime/env_sim.h:
 * virtual time, a seeded choice source, links with latency and faults). One contract suite
 * (tests/contract/wire.c) runs on both. An env belongs to one loop; all calls are made on the
 * loop's thread and never block.
 *
 * Wire. A connection carries whole frames, in order, at most WF_FRAME_MAX bytes each, until it
 * closes. Addresses are "tcp:HOST:PORT" (port 0 picks one), "unix:PATH" and "unix:@NAME" (abstract;
 * NAME ends with the kernel's choice when it ends in '*'). What happens arrives as messages to the
 * actor that owns the connection or listener:
 *
 *   WF_WIRE_OPENED   connect succeeded, or a listener accepted (then `listener` is not 0)
 *   WF_WIRE_FRAME    `bytes`, `len_bytes`; `fd` is a descriptor passed along with it or -1 (also
 *                    when this process could not take it). Whoever wants it sets msg->fd = -1 and
 *                    then owns it; otherwise release closes it
 *   WF_WIRE_CLOSED   the last message of a connection, unless the owner closed it itself; `status`
 *                    and `text` say why. A connect that failed gives this without OPENED
 *
 *   WF_WIRE_FOREIGN  to the actor that wf_env_ops.guard names: somebody came to `listener` whose
 *                    first byte begins no frame; `fd` is the connection, of which nothing has been
 *                    read, `text` the peer's address. Taken as in FRAME; release closes it
 *
 * A peer that sends a frame longer than the limit, or half a frame for longer than the frame
 * timeout, is closed with PROTOCOL. CLOSED's status is CLOSED when the peer ended the connection
 * between frames, CONNECTION when it broke or never came about, PROTOCOL, NO_RESOURCE.
 *
 * Files. A folder is this process's alone from folder_open to folder_close (or its death): a second
 * process is refused and told who has it. File names are plain. What append and replace have
 * written is on the disk when they return OK; when they fail, or the process dies in the middle,
 * replace has left the old file or the new one, append the old bytes or those and a beginning of
 * the new. These calls wait for the disk: the only ones that block.
 *
 * On the stream a frame is a 4-byte magic "WFT1", a 4-byte little-endian length, then the payload;
 * the magic's first byte cannot begin an HTTP method, so one port can serve both. The side that
 * connects first sends one empty frame by itself; the accepting side's OPENED follows only then, so
 * strangers that say nothing, or something else, never reach an actor. A descriptor travels with
 * its frame's first byte.
 */
#ifndef WEFT_RUNTIME_ENV_H
#define WEFT_RUNTIME_ENV_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/actor.h"
#include "runtime/status.h"

struct wf_env;
struct wf_job;
struct wf_folder;

enum {
    WF_FRAME_MAX = 4 << 20,       /* bytes of one frame's payload */
    WF_ADDRESS_MAX = 300,         /* bytes of an address string with its NUL */
    WF_SEND_QUEUE_MAX = 64 << 20, /* bytes that may wait to leave on one connection */
    WF_CONNECTIONS_MAX = 16384,   /* per env; one more is refused, accept included */
    WF_FILE_MAX = 64 << 20,       /* bytes of a file that file_read takes */
    WF_UNRELEASED_MAX = 256,      /* frames of one connection that its owner has not released */
    WF_STRANGER_FRAME_MAX = 4096, /* bytes of a stranger's frame */
    WF_STRANGERS_MAX = 4096,      /* accepted and not trusted; the oldest gives way */
};
#define WF_STRANGER_NS UINT64_C(10000000000)     /* from accept to trust */
#define WF_STRANGER_GRACE_NS UINT64_C(500000000) /* before one gives way to others */

enum wf_wire_kind { WF_WIRE_OPENED = 0x100, WF_WIRE_FRAME, WF_WIRE_CLOSED, WF_WIRE_FOREIGN };

/* The env's; an owner that returns KEEP calls msg.release itself later, on the loop's thread. A
 * connection whose owner holds WF_UNRELEASED_MAX frames is not read until some are released. */
struct wf_wire_msg {
    struct wf_msg msg; /* kind is one of enum wf_wire_kind; lane is CONTROL */
    uint64_t conn;     /* never 0, never used twice by one env */
    uint64_t listener; /* OPENED: the listener that accepted it, else 0 */
    const uint8_t *bytes;
    size_t len_bytes;
    int fd;
    enum wf_status status; /* CLOSED: why */
    char text[256];        /* CLOSED: why; OPENED: the peer's address */
};

/* A payload that leaves on many connections: its bytes are there once, however many queues it waits
 * in. For the loop of its env; not to be changed once it was sent. */
struct wf_payload {
    uint32_t references;
    size_t len_bytes;
    uint8_t *bytes;
};
/* With one reference; takes `bytes` (malloc'd), also when it gives NULL (no memory). */
struct wf_payload *wf_payload_new(uint8_t *bytes, size_t len_bytes);
struct wf_payload *wf_payload_hold(struct wf_payload *payload);
void wf_payload_release(struct wf_payload *payload); /* NULL is fine */

struct wf_env_ops {
    uint64_t (*now_ns)(struct wf_env *env); /* monotonic */
    uint64_t (*wall_s)(struct wf_env *env); /* seconds since 1970; only for terms and logs */
    uint64_t (*choose)(struct wf_env *env, uint64_t n); /* 0..n-1, n > 0; every free decision */
    void (*random)(struct wf_env *env, void *bytes, size_t len_bytes); /* keys, incarnations */

    /* HOST of a listening tcp address is numeric, "localhost" or "*". INVALID: the address makes no
     * sense or is too long; NO_RESOURCE: it is in use, or there are too many. */
    enum wf_status (*listen)(struct wf_env *env, struct wf_actor *owner, const char *address,
                             char bound_out[WF_ADDRESS_MAX], uint64_t *listener_out,
                             struct wf_error *error);
    /* Returns at once; OPENED or CLOSED follows as a message. */
    enum wf_status (*connect)(struct wf_env *env, struct wf_actor *owner, const char *address,
                              uint64_t *conn_out, struct wf_error *error);
    /* For a listener, right after `listen`: whoever it accepts is a *stranger* until its owner
     * trusts the connection. A stranger may send one frame of WF_STRANGER_FRAME_MAX bytes and has
     * WF_STRANGER_NS; more, or later, is closed with PROTOCOL. There are WF_STRANGERS_MAX of them
     * (or half of the files that this process might open when the env was made, if that is less);
     * one more, or one for whom there is no descriptor, takes the place of the oldest, once that
     * had WF_STRANGER_GRACE_NS (the simulator has neither time nor number of them). `foreign` (or
     * NULL: they get an answer in HTTP and are closed) gets WF_WIRE_FOREIGN. */
    void (*guard)(struct wf_env *env, uint64_t listener, struct wf_actor *foreign);
    /* An accepted connection is a stranger no more; unknown ids and others are ignored. */
    void (*trust)(struct wf_env *env, uint64_t conn);
    /* Copies `bytes`. `fd` (or -1) is duplicated by the kernel and stays the caller's; it needs a
     * unix connection. AGAIN: not OPENED yet; NO_RESOURCE: the send queue is full; INVALID: too
     * long or a descriptor where none can go; CLOSED: no such connection any more. */
    enum wf_status (*send)(struct wf_env *env, uint64_t conn, const void *bytes, size_t len_bytes,
                           int fd);
    /* The same for a payload that others get too: what cannot leave at once is held, not copied. */
    enum wf_status (*send_shared)(struct wf_env *env, uint64_t conn, struct wf_payload *payload);
    /* A connection or listener of this env; unknown ids are ignored. Frames queued are still sent
     * if the peer takes them. Nothing more is sent to the owner about it, but what was already in
     * its inbox still comes: owners ignore ids that they no longer know. */
    void (*close)(struct wf_env *env, uint64_t conn_or_listener);

    /* Makes the folder (mode 0700; its parents must be there) and locks it. REFUSED: in use. */
    enum wf_status (*folder_open)(struct wf_env *env, const char *path,
                                  struct wf_folder **folder_out, struct wf_error *error);
    /* Gives *bytes_out (malloc'd). NOT_FOUND: no such file; NO_RESOURCE: over WF_FILE_MAX. */
    enum wf_status (*file_read)(struct wf_env *env, struct wf_folder *folder, const char *name,
                                uint8_t **bytes_out, size_t *len_out, struct wf_error *error);
    /* To a file that replace has made (mode 0600). IO: what it holds now is not known for sure; the
     * old bytes are there. */
    enum wf_status (*file_append)(struct wf_env *env, struct wf_folder *folder, const char *name,
                                  const void *bytes, size_t len_bytes, struct wf_error *error);
    enum wf_status (*file_replace)(struct wf_env *env, struct wf_folder *folder, const char *name,
                                   const void *bytes, size_t len_bytes, struct wf_error *error);
    void (*folder_close)(struct wf_env *env, struct wf_folder *folder);

    /* Runs job->work on a pool thread (real) or after a chosen virtual time (sim), then sends
     * &job->done to job->owner. */
    void (*job)(struct wf_env *env, struct wf_job *job);
};

struct wf_env {
    const struct wf_env_ops *ops;
};

/* A piece of CPU-heavy pure work. The caller owns the memory until `done` comes back. Without an
 * owner nobody is told: `work` has the job's memory for itself and frees it; it runs once whatever
 * becomes of the loop, in the simulator at once. */
struct wf_job {
    struct wf_msg done;     /* kind and release set by the caller; sent to owner after work */
    struct wf_actor *owner; /* borrows; NULL: none */
    void (*work)(struct wf_job *job); /* touches nothing but what the job points to */
    const char *name;                 /* for traces */
    struct wf_mail link;              /* the pool's */
};

struct wf_env_real_options {
    unsigned workers;          /* threads for jobs; 0 means 1 */
    uint64_t frame_timeout_ns; /* half a frame may wait this long; 0 means 10 s */
};

/* The env of a loop of this process, which must have a poller. Gives *env_out; free it with
 * wf_env_real_free after the loop's last turn and before wf_loop_free, while the owners of jobs
 * that are out are still there: it waits for them. Connections are closed without a word to their
 * owners; queued frames that a peer does not take at once are lost. */
struct wf_loop;
enum wf_status wf_env_real_new(struct wf_loop *loop, const struct wf_env_real_options *options,
                               struct wf_env **env_out, struct wf_error *error);
void wf_env_real_free(struct wf_env *env);

#endif
