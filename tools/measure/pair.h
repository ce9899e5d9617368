/* pair.h - what one pair of processes of this host carries over loopback: by one plain TCP socket,
 * and by UCX's own active messages.
 *
 * The sending process is forked from this one and ends with it. Both walk over memory larger than
 * the caches, so that a pass finds no byte of the last one in them: fresh buffers. Connections are
 * made once, so that no pass pays for that.
 */
#ifndef WEFT_TOOLS_MEASURE_PAIR_H
#define WEFT_TOOLS_MEASURE_PAIR_H

#include <stdint.h>
#include <sys/types.h>

#include "runtime/status.h"

struct wf_pair;

struct wf_pair_options {
    uint8_t *from, *to; /* `bytes` each, touched before; `to` is none of the sender's */
    uint64_t bytes;
    const char *tls; /* of plain UCX (measure/plain_ucx.h) */
};

/* Forks: to be called before the process has threads. Memory and strings are borrowed until close.
 */
enum wf_status wf_pair_open(const struct wf_pair_options *options, struct wf_pair **pair_out,
                            struct wf_error *error);
/* Bytes a second of a pass of `bytes` (whole MiB, at most options.bytes); 0: this way does not work
 * here (no UCX), negative: it failed. Block; one thread at a time. */
double wf_pair_socket(struct wf_pair *pair, uint64_t bytes);
double wf_pair_ucx(struct wf_pair *pair, uint64_t bytes);
pid_t wf_pair_sender(const struct wf_pair *pair);
void wf_pair_close(struct wf_pair *pair); /* NULL is fine */

#endif
