/* meta_server.h - the MetaServer: discovery, agreement, epochs, leases, rounds, votes, reports.
 *
 * One actor on one loop; its whole outside is the env's wire. It implements the server's part of
 * docs/protocol.md. The journal's records are written through `journal` in the order the protocol
 * demands (term, GENERATION, OPEN, DECIDE before the frames that need them).
 */
#ifndef WEFT_ACTORS_META_SERVER_H
#define WEFT_ACTORS_META_SERVER_H

#include "actors/messages.h"
#include "actors/rank.h"
#include "actors/round.h"
#include "actors/token.h"
#include "runtime/loop.h"

struct wf_meta_server;

enum wf_journal_kind {
    WF_JOURNAL_TERM,
    WF_JOURNAL_GENERATION,
    WF_JOURNAL_EPOCH,
    WF_JOURNAL_OPEN,
    WF_JOURNAL_DECIDE,
    WF_JOURNAL_COMMITTED,
};
struct wf_journal_record {
    enum wf_journal_kind kind;
    uint64_t term, epoch, counter;
    struct wf_round_key round;
    enum wf_commit_policy policy;
    const struct wf_el_member *members; /* OPEN */
    uint32_t member_count;
    const struct wf_el_unit *engines; /* DECIDE, COMMITTED */
    uint32_t engine_count;
};

struct wf_server_options {
    const char *job;
    const struct wf_token *token; /* copied; NULL: none, anybody may join */
    const char *listen;
    /* Gets WF_WIRE_FOREIGN for those who do not speak frames (HTTP); NULL: they are refused. */
    struct wf_actor *foreign;
    uint32_t train_ranks;
    uint32_t infer_ranks;
    uint32_t engines;
    const uint32_t *engine_of; /* infer_ranks entries: the engine of each infer rank; copied */
    enum wf_commit_policy policy;
    uint64_t every;      /* sync every n-th published step; 0 and 1: each */
    bool drop_to_latest; /* snapshot only */
    bool fill;
    struct wf_timeouts timeouts;
    uint32_t attempts_max; /* of one version before it is given up; default 3 */
    /* Must be durable when it returns OK; may be NULL (nothing survives the server). */
    enum wf_status (*journal)(void *user, const struct wf_journal_record *record);
    void *user;
    /* Loop thread, once, from an actor's turn: the job is over (CLOSED), everybody has left or was
     * given up; or the server had to stop. Free the server afterwards, not inside. */
    void (*ended)(void *user, const struct wf_error *why);
};

/* Loop thread. bound_out gets the address ranks connect to. */
enum wf_status wf_meta_server_new(struct wf_loop *loop, const struct wf_server_options *options,
                                  char bound_out[WF_ADDRESS_MAX],
                                  struct wf_meta_server **server_out, struct wf_error *error);
/* What the server knows now; at most `ranks_max` ranks are listed, all are counted. For
 * weft status, and for who serves it over HTTP. Free what it gives with _status_fini. */
void wf_meta_server_status(struct wf_meta_server *server, uint32_t ranks_max,
                           struct wf_frame_status *status_out);
void wf_meta_server_status_fini(struct wf_frame_status *status);
/* Ends the job early: tells everybody LEAVE with `reason`; `ended` follows when all have left. */
void wf_meta_server_close(struct wf_meta_server *server, const char *reason);
void wf_meta_server_free(struct wf_meta_server *server);

#endif
