/* transports.h - the transports of a rank process, as the job file wants them.
 *
 * `auto` is shm, and after it ucx if the rank may have to do with other hosts (the server has a TCP
 * address) and UCX can be loaded. A transport that the job file names has to be there. Readers of
 * the job's `faults` get theirs wrapped.
 */
#ifndef WEFT_TOOLS_RUN_TRANSPORTS_H
#define WEFT_TOOLS_RUN_TRANSPORTS_H

#include "actors/rank.h"
#include "runtime/loop.h"
#include "tools/run/setup.h"

struct wf_run_transports {
    struct wf_transport *list[WF_TRANSPORTS_MAX];
    uint32_t count;
};

/* What they depend on beside the job file. */
struct wf_run_transports_options {
    enum wf_side side;
    uint32_t rank;
    const char *server; /* its address */
    const char *host;   /* this rank's host name */
    unsigned workers;   /* threads for copies */
};

/* *out may be given to close in every case. UNSUPPORTED says what is missing. */
enum wf_status wf_run_transports_open(struct wf_loop *loop, const struct wf_job_file *job,
                                      const struct wf_run_transports_options *options,
                                      struct wf_run_transports *out, struct wf_error *error);
/* May a rank of the job have to do with other hosts? `server`: its address, or NULL. */
bool wf_run_transports_afar(const struct wf_job_file *job, const char *server);
/* Do readers of one host map each other's memory, if that can be? */
bool wf_run_transports_map(const struct wf_job_file *job);
/* The transports of UCX (its TLS) as the job has them for its ranks, or NULL: UCX chooses. */
const char *wf_run_transports_tls(const struct wf_job_file *job);
/* What a person should know about how they move bytes ("ucx 1.13.1 (libucp.so.0); tcp/lo"): "" for
 * those that have nothing to say. It may grow as peers are met; what does not fit is cut. */
void wf_run_transports_describe(const struct wf_run_transports *transports, char *text_out,
                                size_t room);
void wf_run_transports_close(struct wf_run_transports *transports);

#endif
