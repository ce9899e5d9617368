/* limit.h - how fast this host can copy memory, measured beside the job it judges.
 *
 * Two buffers of the calling process, touched before; the best of 1..nproc threads copies all of
 * the bytes, each thread its own slice. The buffers are larger than the caches that belong to one
 * machine of this size; the job's other load (readers) goes on meanwhile, as it does during a
 * transfer.
 */
#ifndef WEFT_TOOLS_RUN_LIMIT_H
#define WEFT_TOOLS_RUN_LIMIT_H

#include <stdint.h>

#include "runtime/status.h"

struct wf_limit {
    uint8_t *from, *to;
    uint64_t bytes;
    uint32_t workers_max;
    double bytes_per_s; /* of the last measurement: median of its passes, best number of workers */
    uint32_t workers;   /* that reached it */
    char how[96];
};

enum wf_status wf_limit_init(struct wf_limit *limit, uint64_t bytes, struct wf_error *error);
/* Blocks for some tenths of a second: run it as a job. */
void wf_limit_measure(struct wf_limit *limit);
void wf_limit_fini(struct wf_limit *limit);

#endif
