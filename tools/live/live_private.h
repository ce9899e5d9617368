/* live_private.h - between the files live*.c.
 *
 * One actor gets all messages of a wf_live and stops the loop after each; who waits looks again
 * whether what it waits for has come.
 */
#ifndef WEFT_TOOLS_LIVE_LIVE_PRIVATE_H
#define WEFT_TOOLS_LIVE_LIVE_PRIVATE_H

#include "actors/handshake.h"
#include "actors/planned.h"
#include "tools/live/live.h"

enum { LIVE_SLOTS = 2, LIVE_READ_MAX = 1 << 30 /* bytes of one read of a transport */ };
#define LIVE_LOOK_NS UINT64_C(200000000)  /* between two questions whether it is still the same */
#define LIVE_AGAIN_NS UINT64_C(100000000) /* while ranks do not hold one version */

struct live_slot {
    struct wf_el_place *places;
    uint32_t place_count;
    bool placed;                /* all of them were sent */
    struct wf_remote **remotes; /* NULL while an import is out */
    uint32_t remote_count;
    bool complete;
};

struct live_import {
    struct wf_import import;
    struct wf_live_rank *rank;
    uint32_t connection; /* of the rank, when it began */
    uint32_t slot, index;
};

struct wf_live_rank {
    struct wf_live *live;
    struct wf_el_peer peer;
    char who[WF_WHO_MAX];
    struct wf_hash layout;
    uint32_t tensor_count;
    uint64_t conn;       /* 0: none */
    uint32_t connection; /* counts them */
    struct wf_handshake handshake;
    uint32_t address_number;
    uint32_t barred; /* bits by transport: they do not work here */
    char barred_why[WF_REASON_MAX];
    struct wf_transport *transport; /* that the rank took */
    struct live_slot slots[LIVE_SLOTS];
    uint32_t slot_count, imports;
    struct wf_frame_held held, first; /* newest; when reading began */
    uint64_t held_count, looked_ns;
    struct wf_error error; /* OK until it fails */
};

struct wf_live {
    struct wf_actor actor;
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_live_options options;
    struct wf_timer timer;
    bool late;
    uint64_t conn; /* to the server; 0: done with it */
    struct wf_handshake handshake;
    struct wf_frame members;
    struct wf_tables tables;
    struct wf_error error;
    struct wf_live_rank **ranks;
    uint32_t rank_count;
    struct wf_read read;
    bool read_open;
};

/* Turns the loop until done(user), `ns` at most (0: however long it takes). False: it was too long.
 */
bool live_wait(struct wf_live *live, bool (*done)(void *user), void *user, uint64_t ns);

/* live_rank.c */
void live_rank_message(struct wf_live_rank *rank, struct wf_wire_msg *msg);
void live_rank_imported(struct wf_msg *msg);
/* Has its newest HELD, or has failed. */
enum wf_status live_rank_look(struct wf_live_rank *rank, struct wf_error *error);
/* Its memory is what it was when reading began. */
enum wf_status live_rank_same(const struct wf_live_rank *rank, struct wf_error *error);
void live_rank_free(struct wf_live_rank *rank);

#endif
