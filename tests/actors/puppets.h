/* puppets.h - a real MetaServer in a simulated world, and ranks that do exactly what a test says.
 *
 * A puppet owns one connection, speaks frames, keeps what it gets, and answers heartbeats, WELCOME
 * and MEMBERS by itself unless told not to. Everything else is the test's.
 */
#ifndef WEFT_TESTS_ACTORS_PUPPETS_H
#define WEFT_TESTS_ACTORS_PUPPETS_H

#include "actors/meta_server.h"
#include "runtime/env_sim.h"

enum { PUPPETS_MAX = 12, PUPPET_FRAMES_MAX = 400 };
#define PUPPET_MS UINT64_C(1000000)

struct world;
struct puppet {
    struct wf_actor actor;
    struct world *world;
    struct wf_timer beat;
    uint64_t conn;
    enum wf_side side;
    uint32_t rank, engine;
    bool observer;
    /* what it tells; set before puppet_connect */
    struct wf_frame_hello hello;
    struct wf_version live;
    struct wf_hash input, edge_sum;
    bool silent;     /* sends no heartbeats */
    bool no_joined;  /* does not answer WELCOME */
    bool no_planned; /* does not answer MEMBERS */
    /* what it got */
    struct wf_frame frames[PUPPET_FRAMES_MAX];
    uint32_t frame_count, seen; /* seen: looked at by puppet_expect */
    bool closed;
};

struct world {
    struct wf_sim *sim;
    struct wf_loop *server_loop, *loop;
    struct wf_meta_server *server;
    char address[WF_ADDRESS_MAX];
    struct puppet puppets[PUPPETS_MAX]; /* train rank 0, infer ranks, other train ranks, guests */
    uint32_t puppet_count, infer_ranks;
    bool ended;
    struct wf_error why;
    /* the journal: what was written, and how many frames the puppets had got by then */
    struct wf_journal_record records[64];
    uint32_t record_count;
    enum wf_journal_kind journal_fails; /* with fails set */
    bool fails;
};

/* `engines` engines of `per_engine` ranks. `options` may be NULL; its counts and callbacks are
 * filled in, but for train_ranks if it is not 0 (1 train rank then). */
void world_open(struct world *world, uint32_t engines, uint32_t per_engine,
                const struct wf_server_options *options);
void world_close(struct world *world);
void world_run(struct world *world, uint64_t ns);
/* All ranks connect and agree; the train rank has its generation. */
void world_start(struct world *world);

struct puppet *world_train(struct world *world);
struct puppet *world_trainer(struct world *world, uint32_t rank); /* of several */
struct puppet *world_infer(struct world *world, uint32_t rank);
/* Another process: an observer, or a second one with the identity of `like`. */
struct puppet *world_guest(struct world *world, const struct puppet *like);

void puppet_connect(struct puppet *puppet);
void puppet_drop(struct puppet *puppet); /* closes its connection */
void puppet_send(struct puppet *puppet, enum wf_frame_type type, const void *fields);
/* The next frame of that type that was not looked at yet; runs the world until it comes. */
const struct wf_frame *puppet_expect(struct puppet *puppet, enum wf_frame_type type);
/* Runs the world for `ns`; no frame of that type may come. */
void puppet_refuses(struct puppet *puppet, enum wf_frame_type type, uint64_t ns);
uint32_t puppet_count(const struct puppet *puppet, enum wf_frame_type type);

/* Steps of a round, as a good rank answers. */
void puppet_publish(struct puppet *train, uint64_t step);
struct wf_round_key puppet_open(struct puppet *infer); /* waits for OPEN */
void puppet_vote(struct puppet *infer, struct wf_round_key key, bool yes);
void puppet_key(struct puppet *infer, enum wf_frame_type type, struct wf_round_key key);
void puppet_flipped(struct puppet *infer, struct wf_round_key key);
void puppet_resumed(struct puppet *infer, struct wf_round_key key);
/* All of it: the version commits everywhere and is released. */
void world_commit(struct world *world, uint64_t step);

#endif
