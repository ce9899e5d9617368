/* ucx_probe.h - moves some memory between two processes through the ucx transport, and times it.
 *
 * Both are children, so that this process never loads UCX; both are killed when the time is over.
 */
#ifndef WEFT_TOOLS_DOCTOR_UCX_PROBE_H
#define WEFT_TOOLS_DOCTOR_UCX_PROBE_H

#include <stdbool.h>

struct wf_ucx_probe {
    bool good;
    double bytes_per_s; /* the best of several reads of warm memory */
    char text[300];     /* what UCX chose; or why not */
};

/* `transports`: UCX's TLS option, or NULL for its own choice. Blocks for up to 15 s, usually less
 * than one. */
void wf_ucx_probe_run(const char *transports, struct wf_ucx_probe *probe_out);

#endif
