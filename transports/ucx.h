/* ucx.h - the network transport: UCX, opened at run time.
 *
 * Streams: the reader asks for chunks, the source packs them (or sends them from where they lie)
 * and the reader places what arrives. How they travel (TCP, RDMA, shared memory) is UCX's choice;
 * what it chose is logged and told by describe.
 *
 * - UCX is looked for when a transport is made and never unloaded. Its signal handlers are turned
 *   off (UCX_HANDLE_ERRORS=none while it is loaded, unless the environment says otherwise).
 * - The process must ignore SIGPIPE, as `weft` and Python do: UCX 1.13 writes to sockets of peers
 *   that died without saying that it wants no signal.
 * - Whoever can connect to UCX's ports is trusted by UCX itself: its TCP protocol lets a peer write
 *   anywhere into this process. Use it on networks whose hosts are trusted, as with RDMA.
 * - Registering memory for one-sided reads, and the reverse, are jobs of the loop's env: export and
 *   withdraw return at once, and readers that import meanwhile wait. The env must still do jobs
 * when the transport is closed. (A UCX that was built without threads registers on the loop's
 * thread.)
 * - UCX's shared memory does not bear readers that are killed while they ask: the source they asked
 *   hears nobody any more. Leave it out (TLS "^sm") where that can happen.
 * - A peer that dies is noticed by its connections, and on this host by its process (pidfd), which
 *   is quicker where UCX moves bytes through shared memory.
 */
#ifndef WEFT_TRANSPORTS_UCX_H
#define WEFT_TRANSPORTS_UCX_H

#include "transports/transport.h"

enum {
    WF_UCX_LANES_MAX = 8,
    WF_UCX_CHUNK_MIN = 64 << 10,
    WF_UCX_CHUNK_MAX = 8 << 20,
    WF_UCX_OPTIONS_MAX = 64,
};

struct wf_transport_ucx_option {
    const char *name, *value; /* UCX's own, with or without the prefix UCX_ */
};

/* When a reader reads a source's memory itself instead of asking for it: what is contiguous there
 * and needs no cast. */
enum wf_ucx_get {
    WF_UCX_GET_NATIVE, /* where the hardware does it (RDMA) */
    WF_UCX_GET_NEVER,
    /* Also where UCX emulates it: for tests. It is slow, and UCX 1.13 ends a source whose reader
     * dies in the middle of an emulated get. */
    WF_UCX_GET_ALWAYS,
};

/* Zeroed is the defaults. Strings are borrowed until wf_transport_ucx_new returns. */
struct wf_transport_ucx_options {
    /* Bytes in flight to this reader, and bytes packed by this source: each at most this; 0: 64
     * MiB. */
    uint64_t transit_bytes;
    uint64_t edge_bytes;  /* of them for one source; 0: 16 MiB, but no more than transit_bytes */
    uint32_t chunk_bytes; /* of one request; 0: 1 MiB; the same in the whole job */
    uint32_t lanes;       /* connections to each source; 0: 1 */
    enum wf_ucx_get get;
    bool whole_chunks; /* for tests: by rendezvous also where parts are quicker (TCP) */
    /* libucp.so.0 or the folder that has it; NULL: what WEFT_UCX_LIBRARY names, else what the
     * system has. */
    const char *library;
    /* NICs, comma-separated ("eth0,mlx5_0:1"); NULL: UCX's choice among all but bridges that lead
     * nowhere (ucx_devices.h) */
    const char *interfaces;
    const char *host; /* equal strings mean one host; NULL: this machine's boot id */
    const struct wf_transport_ucx_option *options;
    uint32_t option_count;
};

/* UNSUPPORTED: this build has no UCX, or none was found, or it cannot be used; the sentence says
 * why. INVALID: an option that does not exist. The transport is for readers and sources alike; what
 * either needs is made at the first import or export. */
enum wf_status wf_transport_ucx_new(struct wf_loop *loop,
                                    const struct wf_transport_ucx_options *options,
                                    struct wf_transport **transport_out, struct wf_error *error);

#endif
