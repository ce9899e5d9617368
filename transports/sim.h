/* sim.h - the transport of simulated ranks: reads that take virtual time and go wrong on purpose.
 *
 * A region is known to the whole world (runtime/env_sim.h); a read copies its ops in several slices
 * at different virtual times, so whatever changes the source meanwhile tears the read, as memory
 * read by another host would be. Slices of different ops are taken in different order. A read fails
 * with PEER_LOST as soon as the source is dead or withdrew the region; a frozen source can be read,
 * a frozen reader's slices wait for its thaw, and one of them may then still land before the
 * deadline or a cancel is noticed. All this is drawn from the world's choices.
 */
#ifndef WEFT_TRANSPORTS_SIM_H
#define WEFT_TRANSPORTS_SIM_H

#include "runtime/env_sim.h"
#include "transports/transport.h"

/* Zeroed is a healthy link with the defaults beside the fields. Faults follow wf_sim_set_faults. */
struct wf_sim_link_options {
    uint64_t latency_min_ns, latency_max_ns; /* of each slice; max 0: 200 us */
    uint64_t bytes_per_us;                   /* 0: 10,000 */
    uint32_t stall_per_million;              /* slices that come later ... */
    uint64_t stall_max_ns;                   /* ... by at most this; 0: 1 s */
    uint32_t fail_per_million;               /* slices that end their read with CONNECTION */
    uint32_t corrupt_per_million;            /* slices of which one byte arrives wrong */
};

/* `loop` is a simulated rank's. The transport may be closed with reads or imports open if the
 * rank is dead: they vanish then. */
enum wf_status wf_transport_sim_new(struct wf_loop *loop, const struct wf_sim_link_options *options,
                                    struct wf_transport **transport_out, struct wf_error *error);

#endif
