/* limit.h - how fast this host can move bytes, measured beside the job it judges, between versions.
 *
 * Memory: memcpy between two buffers of the calling process, touched before; each thread its own
 * slice. Link, for jobs that read over a network: a plain TCP socket over loopback between the same
 * buffers. The buffers are larger than the caches that belong to one machine of this size; the
 * job's other load (readers) goes on meanwhile, as it does during a transfer. Numbers of threads
 * take turns in every pass, so that all see the same machine; samples are kept over versions, and
 * the number whose median is best is the limit.
 */
#ifndef WEFT_TOOLS_RUN_LIMIT_H
#define WEFT_TOOLS_RUN_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/status.h"
#include "tools/measure/samples.h"
#include "tools/measure/socket.h"

enum { WF_LIMIT_WAYS_MAX = 64 };

/* One kind of moving, with 1, 2, ... threads or streams. */
struct wf_limit_kind {
    struct wf_samples *samples; /* by way: bytes a second */
    uint32_t ways, best;        /* best: index of the way with the best median */
    double bytes_per_s;         /* of the last measurement; 0: not measured */
    char how[120];
};

struct wf_limit {
    uint8_t *from, *to;
    uint64_t bytes;
    struct wf_socket_limit sockets;
    struct wf_limit_kind memory, link;
};

/* `link`: measure that too. */
enum wf_status wf_limit_init(struct wf_limit *limit, uint64_t bytes, bool link,
                             struct wf_error *error);
/* Blocks for some tenths of a second: run it as a job. */
void wf_limit_measure(struct wf_limit *limit);
void wf_limit_fini(struct wf_limit *limit);

#endif
