/* stream.h - the two processes of `weft bench stream` and what they measure against each other.
 *
 * The source listens on a TCP address; the reader connects to it, names what it wants, byte by
 * byte, and times it:
 *   'H'            the handle of Weft's region
 *   'A'            the address of a plain UCX worker (length, bytes)
 *   'S' n cc       n*(connections with 'D' first) get n-th parts of STREAM_BYTES; cc: a name, 16
 *                bytes
 *   'U'            STREAM_BYTES as active messages, by UCX's own rendezvous
 * Everything walks over a region larger than the caches.
 */
#ifndef WEFT_TOOLS_BENCH_STREAM_H
#define WEFT_TOOLS_BENCH_STREAM_H

#include <sys/types.h>

#include "runtime/env.h"
#include "runtime/loop.h"
#include "runtime/status.h"
#include "transports/memory.h"
#include "transports/ucx.h"

enum {
    STREAM_REGION_BYTES = 256 << 20,
    STREAM_BYTES = 128 << 20, /* of one sample */
    STREAM_SOCKETS_MAX = 4,
    STREAM_CC_BYTES = 16, /* TCP_CA_NAME_MAX */
};

/* One process's loop and transport. */
struct stream_side {
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_transport *transport; /* NULL in a build without UCX */
};
enum wf_status stream_side_open(struct stream_side *side, struct wf_error *error);
void stream_side_close(struct stream_side *side);

/* Whole or not at all; false when the connection ended. */
bool stream_send(int fd, const void *bytes, size_t len);
bool stream_receive(int fd, void *bytes, size_t len);
/* "HOST:PORT", port 0 picks one; the address bound is written to bound_out. */
enum wf_status stream_listen(const char *address, int *fd_out, uint16_t *port_out,
                             struct wf_error *error);
enum wf_status stream_connect(const char *address, int *fd_out, struct wf_error *error);

/* Serves readers, one after another, until `forever` is false and the first one left. */
enum wf_status stream_serve(int listener, bool forever, struct wf_error *error);

/* GB/s of `streams` plain sockets with the congestion control `cc` ("": the kernel's default), or
 * -1. */
double stream_sockets(int control, const char *address, unsigned streams, const char *cc,
                      uint8_t *into);

/* UCX's transports as `weft bench stream` wants them: TCP, unless the environment says otherwise.
 */
const char *stream_tls(void);

#endif
