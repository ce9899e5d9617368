/* ucx_source.h - what the ucx world and its source, another process, agree on. */
#ifndef WEFT_TESTS_CONTRACT_UCX_SOURCE_H
#define WEFT_TESTS_CONTRACT_UCX_SOURCE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "transports/ucx.h"

enum { UCX_TEST_CHUNK = 256 << 10, UCX_TEST_TRANSIT = 2 << 20 };

/* The process of a world's source (transport_world_ucx.c). */
struct world;
pid_t world_ucx_source(const struct world *world);

/* A transport over the transports of UCX that `tls` names; "get:" before them: by one-sided reads,
 * which UCX emulates over TCP; "rndv:": large chunks by rendezvous, over TCP too. */
static inline enum wf_status ucx_test_transport(struct wf_loop *loop, const char *tls,
                                                struct wf_transport **transport_out,
                                                struct wf_error *error)
{
    bool by_get = strncmp(tls, "get:", 4) == 0, whole = strncmp(tls, "rndv:", 5) == 0;
    const char *room = getenv("WEFT_TEST_UCX_SOCKET"); /* bytes of a socket's buffer */
    const struct wf_transport_ucx_option option[] = {{"TLS", tls + (by_get  ? 4
                                                                    : whole ? 5
                                                                            : 0)},
                                                     {"TCP_SNDBUF", room},
                                                     {"TCP_RCVBUF", room}};
    const char *lanes = getenv("WEFT_TEST_UCX_LANES");
    const struct wf_transport_ucx_options options = {
        .transit_bytes = UCX_TEST_TRANSIT,
        .chunk_bytes = UCX_TEST_CHUNK,
        .lanes = lanes != NULL ? (uint32_t)atoi(lanes) : 2,
        .get = by_get ? WF_UCX_GET_ALWAYS : WF_UCX_GET_NATIVE,
        .whole_chunks = whole,
        .options = option,
        .option_count = room != NULL ? 3 : 1};
    return wf_transport_ucx_new(loop, &options, transport_out, error);
}

#endif
