/* ucx_worker.h - one UCX worker on a loop: progressed in passes, armed before sleep, woken by its
 * descriptor. Private to transports/ucx*.c.
 *
 * UCX's callbacks only record; what they recorded is acted upon by `after`, outside UCX.
 */
#ifndef WEFT_TRANSPORTS_UCX_WORKER_H
#define WEFT_TRANSPORTS_UCX_WORKER_H

#include "runtime/loop.h"
#include "transports/ucx_library.h"

/* How a context is made; every worker has its own, because a context knows the devices of the
 * moment in which it was made, and interfaces come and go. */
struct ucx_recipe {
    ucp_config_t *config;
    struct ucx_environment environment;
    uint64_t features;
    bool chooses_devices; /* nobody named any: those of ucx_devices.h */
};
/* NO_DEVICE: one went away meanwhile. */
ucs_status_t ucx_context_open(const struct ucx_library *ucx, struct ucx_recipe *recipe,
                              ucp_context_h *context_out);

/* A worker's context, which outlives it while somebody registers memory in it. Loop thread. */
struct ucx_context {
    uint32_t references;
    const struct ucx_library *ucx; /* borrows */
    ucp_context_h handle;
    bool threads; /* others may register memory while the worker is progressed */
};
struct ucx_context *ucx_context_hold(struct ucx_context *context);
void ucx_context_release(struct ucx_context *context); /* NULL is fine */

struct ucx_worker {
    struct wf_progress_source source;
    struct wf_watch watch;
    struct wf_loop *loop;                     /* borrows */
    const struct ucx_library *ucx;            /* borrows */
    bool (*after)(struct ucx_worker *worker); /* acts on what was recorded; true if it did */
    struct ucx_context *context;              /* holds */
    ucp_worker_h worker;                      /* NULL: not made */
    ucp_address_t *address;
    size_t address_len;
};

/* Makes a context and the worker in it, with one handler of active messages; `after` and its
 * owner's fields may be set before. */
enum wf_status ucx_worker_open(struct ucx_worker *worker, struct wf_loop *loop,
                               const struct ucx_library *ucx, struct ucx_recipe *recipe,
                               unsigned am_id, ucp_am_recv_callback_t on_message, void *argument,
                               struct wf_error *error);
/* Nothing of this worker touches any memory afterwards: its connections are gone. Callbacks of
 * operations that were out may run inside. Zeroed or closed is fine. */
void ucx_worker_close(struct ucx_worker *worker);
/* After every connection was closed by force, before the worker is: lets UCX take back what it had
 * open. UCX 1.22 corrupts memory, and 1.13 asserts, when a worker ends with that still to do.
 * `*open` counts the operations that have not ended; it may stay above 0. A few milliseconds. */
void ucx_worker_settle(struct ucx_worker *worker, const uint32_t *open);
/* Progress and `after` until nothing moves, at most a few times. */
bool ucx_worker_progress(struct ucx_worker *worker);
/* "Destination is unreachable" */
const char *ucx_worker_text(const struct ucx_worker *worker, ucs_status_t status);

#endif
