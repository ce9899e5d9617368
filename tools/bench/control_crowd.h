/* control_crowd.h - what `weft bench control` measures: a real MetaServer with a crowd of real
 * MetaClients, each on a TCP connection of its own, and the same bytes without any protocol.
 */
#ifndef WEFT_TOOLS_BENCH_CONTROL_CROWD_H
#define WEFT_TOOLS_BENCH_CONTROL_CROWD_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

enum {
    CONTROL_ENGINE_RANKS = 8,
    CONTROL_THREADS = 2, /* the clients share so many loops; the server has its own */
    CONTROL_EXCHANGES_MAX = 16,
};

/* Seconds from the first connect, until everybody ... */
struct control_run {
    double registered_s; /* ... has joined: the first MEMBERS is out */
    double agreed_s;     /* ... has planned alike: the train side may publish */
    double committed_s;  /* ... serves the first version, and the train side is told */
    double round_s;      /* one of the following rounds, publish to released */
    double restarted_s;  /* from a new server on the old one's journal to the next version's end */
    double server_cpu_s; /* the server's thread, all of it */
    uint64_t messages;   /* the server handled: frames, connections */
};

/* `ranks` (even, at least 2 * CONTROL_ENGINE_RANKS) are half train, half infer ranks. Their
 * layouts, plans, reads and hosts are puppets that answer at once. Runs 1 + `rounds` commits, then
 * the server dies, all come back to another one at once, and it commits one more. */
enum wf_status control_crowd_run(uint32_t ranks, unsigned rounds, struct control_run *out,
                                 struct wf_error *error);

/* The payloads of one rank's frames from HELLO to the first commit, in pairs: what the server
 * sends, what the rank answers. */
struct control_exchange {
    size_t down_bytes, up_bytes;
};
size_t control_exchanges(uint32_t ranks, struct control_exchange out[CONTROL_EXCHANGES_MAX]);

/* The same bytes between bare sockets and two bare epoll loops: an exchange begins when the one
 * before is over on all connections. Gives seconds from the first connect. */
enum wf_status control_raw_run(uint32_t conns, const struct control_exchange *exchanges,
                               size_t count, double *seconds_out, struct wf_error *error);

#endif
