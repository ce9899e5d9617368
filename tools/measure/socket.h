/* socket.h - what plain TCP carries between two threads of this host, over loopback.
 *
 * Each stream is a connection with a thread at either end. They are connected once, so that no pass
 * pays for that, and send from and receive into warm memory larger than the caches: what a program
 * with nothing but sockets would reach.
 */
#ifndef WEFT_TOOLS_MEASURE_SOCKET_H
#define WEFT_TOOLS_MEASURE_SOCKET_H

#include <stdint.h>

#include "runtime/status.h"

enum { WF_SOCKET_STREAMS_MAX = 8 };

struct wf_socket_limit {
    int ends[WF_SOCKET_STREAMS_MAX][2]; /* sender's, receiver's */
    uint32_t streams;
};

/* Connects `streams` pairs (1 to WF_SOCKET_STREAMS_MAX). Fini works on zeroed memory and after a
 * failure. */
enum wf_status wf_socket_limit_init(struct wf_socket_limit *limit, uint32_t streams,
                                    struct wf_error *error);
/* Moves `bytes` from one buffer to the other over the first `streams` connections; bytes a second,
 * or a negative figure if a connection failed. Blocks. */
double wf_socket_limit_pass(struct wf_socket_limit *limit, uint32_t streams, const uint8_t *from,
                            uint8_t *to, uint64_t bytes);
void wf_socket_limit_fini(struct wf_socket_limit *limit);

#endif
