/* wire_world.h - two envs that can reach each other, and actors that write down what they see: what
 * the contract suite of the wire runs on, real and simulated. */
#ifndef WEFT_TESTS_CONTRACT_WIRE_WORLD_H
#define WEFT_TESTS_CONTRACT_WIRE_WORLD_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/env.h"
#include "runtime/loop.h"

enum { SEEN_MAX = 4096 };

/* An actor that keeps a list of its wire messages. */
struct witness {
    struct wf_actor actor; /* first */
    struct wf_env *env;
    struct seen {
        uint32_t kind;
        uint64_t conn, listener;
        size_t len_bytes;
        uint8_t first, last; /* bytes of the frame */
        bool fd;
        int fd_number; /* the int at the start of its file, or -1 */
        enum wf_status status;
        char text[256];
    } seen[SEEN_MAX];
    size_t count, opened, frames, closed;
    size_t others; /* messages that are not the wire's */
    int kept_fd;   /* the newest that came, or -1 */
    bool hold;     /* keep frames instead of releasing them */
    struct wf_wire_msg *held[SEEN_MAX];
    size_t held_count;
};

struct wire_world {
    const char *name;
    const char *address; /* to listen on */
    struct wf_sim *sim;  /* NULL: real */
    struct wf_loop *loop[2];
    struct wf_env *env[2];
    struct witness server, client; /* on env 0 and 1 */
    char bound[WF_ADDRESS_MAX];
    uint64_t listener;
    struct wf_timer timer; /* the test's */
};

/* The real one: two loops and envs on this thread, turned in alternation. */
void wire_world_real(struct wire_world *world, const char *name, const char *address,
                     enum wf_poller_kind poller, const struct wf_env_real_options *options);
void wire_world_sim(struct wire_world *world, const char *address, uint64_t seed);
void wire_world_fini(struct wire_world *world);

/* Turns until done(world) holds; false after a generous deadline. */
bool wire_world_run(struct wire_world *world, bool (*done)(struct wire_world *world));
/* Turns for a while: what should not happen gets its chance. */
void wire_world_settle(struct wire_world *world);

/* Listens with `server`, connects with `client`, waits for both OPENED; the two connections. */
void wire_world_connect(struct wire_world *world, uint64_t *client_out, uint64_t *server_out);
/* Releases what was held. */
void witness_let_go(struct witness *witness);
/* The newest message of that kind, or NULL. */
const struct seen *witness_last(const struct witness *witness, uint32_t kind);

#endif
