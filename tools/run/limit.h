/* limit.h - how fast this host can move bytes, measured beside the job it judges, between versions.
 *
 * Memory: memcpy between two buffers of the calling process, touched before; each thread its own
 * slice. Link, for jobs that read over a network: what one pair of processes carries over loopback
 * between such buffers, by a plain TCP socket or by UCX's own active messages, whichever is better.
 * The buffers are larger than the caches that belong to one machine of this size; the
 * job's other load (readers) goes on meanwhile, as it does during a transfer. Numbers of threads,
 * and the two ways, take turns in every pass, so that all see the same machine; samples are kept
 * over versions, and the one whose median is best is the limit.
 */
#ifndef WEFT_TOOLS_RUN_LIMIT_H
#define WEFT_TOOLS_RUN_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/status.h"
#include "tools/measure/pair.h"
#include "tools/measure/samples.h"

enum { WF_LIMIT_WAYS_MAX = 64 };
/* The ways of a link. */
enum wf_link_way { WF_LINK_SOCKET, WF_LINK_UCX, WF_LINK_WAYS };

/* One kind of moving: with 1, 2, ... threads, or by a socket and by UCX. */
struct wf_limit_kind {
    struct wf_samples *samples; /* by way: bytes a second */
    uint32_t ways, best;        /* best: index of the way with the best median */
    double bytes_per_s;         /* of the last measurement; 0: not measured */
    char how[200];
};

struct wf_limit {
    uint8_t *from, *to;
    uint64_t bytes;
    struct wf_pair *pair; /* NULL: no link is measured */
    struct wf_limit_kind memory, link;
};

struct wf_limit_options {
    uint64_t bytes;  /* of each buffer, at least 1 MiB */
    bool link;       /* measure that too */
    const char *tls; /* the transports that UCX has in the job, or NULL; borrowed until fini */
};

/* With `link` it forks: before the process has threads. Fini works after a failure. */
enum wf_status wf_limit_init(struct wf_limit *limit, const struct wf_limit_options *options,
                             struct wf_error *error);
/* Blocks for some tenths of a second: run it as a job. */
void wf_limit_measure(struct wf_limit *limit);
void wf_limit_fini(struct wf_limit *limit);

#endif
