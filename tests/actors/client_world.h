/* client_world.h - a real MetaClient between a server that says what a test wants and a Receiver,
 * Sender and Converter that only keep what they are asked.
 */
#ifndef WEFT_TESTS_ACTORS_CLIENT_WORLD_H
#define WEFT_TESTS_ACTORS_CLIENT_WORLD_H

#include "actors/local.h"
#include "actors/meta_client_internal.h"
#include "runtime/env_sim.h"

enum { CLIENT_FRAMES_MAX = 300, CLIENT_LOCALS_MAX = 64 };
#define CLIENT_MS UINT64_C(1000000)

/* A part that keeps its requests; the test answers. */
struct wf_part_fake {
    struct wf_actor actor;
    struct wf_local_msg *asked[CLIENT_LOCALS_MAX];
    uint32_t asked_count, seen;
};

struct client_world {
    struct wf_sim *sim;
    /* --- the server's end */
    struct wf_loop *server_loop;
    struct wf_actor server;
    uint64_t conn; /* the newest connection */
    uint32_t connections;
    uint64_t term;
    struct wf_token token;         /* the server's; none at first, and none has the rank */
    struct wf_handshake handshake; /* of conn */
    bool lies;                     /* it claims to have proven what it cannot */
    bool keeps_revokes;            /* the Sender does not answer them by itself */
    bool no_leases, refuses;       /* refuses: closes every connection */
    struct wf_frame frames[CLIENT_FRAMES_MAX];
    uint32_t frame_count, seen;
    /* --- the rank */
    struct wf_loop *loop;
    struct wf_rank rank;
    struct wf_model model;
    struct wf_layout layout;
    struct wf_part_fake converter, sender, receiver;
    struct wf_meta_client *client;
    /* --- what its host was told */
    uint32_t quiesces, resumes, readies, releases, aborts, copies, doubts, ends;
    struct wf_version resumed;
    bool aborted_again, restarted;
    uint32_t released_engines;
    uint64_t ready_step;
    struct wf_version doubted;
    struct wf_error ended, copy_error;
};

void client_open(struct client_world *w, enum wf_side side, enum wf_publish_mode publish);
void client_close(struct client_world *w);
void client_run(struct client_world *w, uint64_t ns);
/* The rank connects, is welcomed clean and has joined. */
void client_join(struct client_world *w);
void client_send(struct client_world *w, enum wf_frame_type type, const void *fields);
void client_welcome(struct client_world *w, bool clean, struct wf_version committed);
/* The next frame of that type; runs the world until it comes. */
const struct wf_frame *client_expect(struct client_world *w, enum wf_frame_type type);
/* Runs the world a while: no such frame may come. */
void client_silent(struct client_world *w, enum wf_frame_type type, uint64_t ns);
/* The next request to a part; runs the world until it comes. */
const struct wf_local_msg *client_asked(struct client_world *w, struct wf_part_fake *part,
                                        enum wf_local_kind kind);
/* The part answers `asked`. */
void client_answer(struct client_world *w, struct wf_part_fake *part, enum wf_local_kind kind,
                   const struct wf_local_msg *asked, enum wf_status status);

struct wf_version client_version(const struct client_world *w, uint64_t step);
struct wf_round_key client_key(const struct client_world *w, uint64_t step, uint64_t attempt);
/* An infer rank as it is at that point of the round `step`, attempt 1. */
void client_reach(struct client_world *w, enum wf_rank_state state, uint64_t step);

#endif
