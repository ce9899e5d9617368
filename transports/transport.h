/* transport.h - how bytes move between two ranks: a table of functions and capability bits.
 *
 * Only readers move data: a source exports regions of its memory, a reader imports them and reads
 * boxes out of them into its own memory. Nobody writes into another process's memory. Callers ask
 * for capabilities, never for a transport's name. All calls are made on the loop's thread and do
 * not block; completions arrive as messages to the owner of the import or read.
 *
 *   source                                   reader
 *   export_region -> handle (+ fd)  --frame-->  import_region ... done message -> remote
 *                                               read(boxes) ... done message
 *   (withdraw_region)                           release_region
 *
 * Rules for every transport (tests/contract/test_transport.c runs them on all):
 *   - Every op is checked against its two buffers before any byte of the read moves: one bad op
 *     (outside a buffer, a cast that does not exist) ends the read with INVALID, failed_op set,
 *     nothing written.
 *   - Each read ends with exactly one done message: OK, or the first failure, or CANCELLED, or
 *     TIMED_OUT when deadline_ns passes first. It is sent when nothing of the read can land any
 *     more, so cancel is a barrier and so is the deadline. A read that failed may have written a
 *     part. A read without ops is OK at once.
 *   - A source that dies is PEER_LOST where the transport can know it (memory that was mapped stays
 *     readable: there the connection to the source tells).
 */
#ifndef WEFT_TRANSPORTS_TRANSPORT_H
#define WEFT_TRANSPORTS_TRANSPORT_H

#include <stdint.h>

#include "actors/plan.h"
#include "models/dtype.h"
#include "runtime/env.h"
#include "runtime/loop.h"
#include "runtime/status.h"

enum wf_transport_cap {
    WF_CAP_MAP = 1 << 0,    /* a reader sees the source's pages themselves */
    WF_CAP_GET = 1 << 1,    /* one-sided reads */
    WF_CAP_STREAM = 1 << 2, /* two-sided; the reader places what arrives */
    WF_CAP_COLLECTIVE = 1 << 3,
    WF_CAP_DEVICE = 1 << 4,  /* device memory */
    WF_CAP_WAKE_FD = 1 << 5, /* completions can wake a sleeping loop */
    WF_CAP_CAST = 1 << 6,    /* casts while moving */
};

enum wf_memory_kind { WF_MEMORY_HOST, WF_MEMORY_DEVICE };

/* One allocation of this process that may be read by peers. */
struct wf_region {
    uint8_t memory;          /* enum wf_memory_kind */
    uint8_t device_uuid[16]; /* zero for host memory */
    void *address;
    uint64_t len_bytes;
    int fd; /* the memfd behind it, or -1: then it cannot be mapped by peers */
    uint64_t fd_offset;
};

enum { WF_HANDLE_MAX = 1024 };
/* What a peer needs to import a region. Opaque; travels in a frame, the fd beside it. */
struct wf_handle {
    uint32_t len;
    uint8_t bytes[WF_HANDLE_MAX];
    int fd; /* to pass along with the frame, or -1; borrows the region's */
};

struct wf_transport;

/* An imported region: the first member of what each transport keeps about one. Read-only. */
struct wf_remote {
    struct wf_transport *transport;
    uint64_t len_bytes; /* what may be read */
};

enum { WF_READ_DONE = 0x200, WF_IMPORT_DONE = 0x201, WF_TRANSPORT_OWN = 0x210 /* kinds inside */ };

/* One import. Caller-owned until `done` comes back, which it does exactly once; there is no cancel:
 * whoever does not want the region any more releases it then. */
struct wf_import {
    struct wf_msg done;      /* kind WF_IMPORT_DONE; release is the caller's */
    struct wf_actor *owner;  /* borrows */
    struct wf_handle handle; /* from a peer, and checked; its fd is taken at once, in every case */
    uint64_t len_bytes;      /* what the peer says the region has */
    /* results, valid in `done` */
    enum wf_status status;
    struct wf_remote *remote; /* OK: to be given to release_region, else NULL */
    struct wf_error error;    /* when status is not OK */
};

/* One read: ops of one edge. Caller-owned until `done` comes back. */
struct wf_read {
    struct wf_msg done;     /* kind WF_READ_DONE; release is the caller's */
    struct wf_actor *owner; /* borrows */
    const struct wf_op *ops;
    uint32_t op_count;
    /* For op i: source bytes are src[ops[i].src_tensor], destination dst[ops[i].dst_tensor]. The
     * tables have src_count and dst_count entries. */
    uint32_t src_count, dst_count;
    const struct wf_read_source {
        struct wf_remote *remote;
        uint64_t offset; /* of the tensor in the region */
        uint64_t len_bytes;
        enum wf_dtype dtype;
    } * src;
    const struct wf_read_target {
        void *address;
        uint64_t len_bytes;
        enum wf_dtype dtype;
    } * dst;
    uint64_t deadline_ns; /* of the loop's clock */
    /* results, valid in `done` */
    enum wf_status status;
    uint32_t failed_op; /* when status is not OK: the op to blame, or the first that was not begun
                         * when time ran out; else UINT32_MAX */
    uint64_t bytes;     /* written */
    char text[256];     /* why, when status is not OK */
    void *transport_data;
};

struct wf_transport_ops {
    const char *name;
    uint32_t caps;
    enum wf_status (*export_region)(struct wf_transport *t, const struct wf_region *region,
                                    struct wf_handle *handle_out, struct wf_error *error);
    /* The caller may unmap the memory as soon as this returns: readers that are being sent from it
     * lose their connection. What is dear about either (pinning memory) is done by a job. It may
     * turn the transport over for as long as that takes, at most 200 ms. */
    void (*withdraw_region)(struct wf_transport *t, const struct wf_handle *handle);
    /* Maps and touches what can be mapped, connects what must be, probes ways that may be
     * forbidden with the call itself; nothing of that on the loop's thread if it takes long. Keep
     * the region over rounds: a mapping is dear. UNSUPPORTED says what this host forbids and what
     * to do. */
    void (*import_region)(struct wf_transport *t, struct wf_import *import);
    void (*release_region)(struct wf_transport *t,
                           struct wf_remote *remote); /* no read may be open */
    void (*read)(struct wf_transport *t, struct wf_read *read);
    /* done follows, once; a read whose done is already on its way is left alone */
    void (*cancel)(struct wf_transport *t, struct wf_read *read);
    void (*close)(struct wf_transport *t); /* no read or import may be open; frees it */
    /* NULL, or what a person should know about how it moves bytes (library, devices). Borrowed
     * until the next call of the transport; it may grow as peers are met. */
    const char *(*describe)(struct wf_transport *t);
};

struct wf_transport {
    const struct wf_transport_ops *ops;
};

/* Makes the transport of this host's shared memory: memfd mapped read-only where the region has
 * one, process_vm_readv (probed) where not. Copies as jobs of the loop's env, `parallel` at a time
 * (0: 1). */
enum wf_status wf_transport_shm_new(struct wf_loop *loop, unsigned parallel,
                                    struct wf_transport **transport_out, struct wf_error *error);

#endif
