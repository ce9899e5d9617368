/* meta_server.h - the MetaServer: discovery, agreement, epochs, leases, rounds, votes, reports.
 *
 * One actor on one loop; its whole outside is the env's wire. It implements the server's part of
 * docs/protocol.md. The journal's records are written through `journal` in the order the protocol
 * demands (term, GENERATION, OPEN, DECIDE before the frames that need them). A server that starts
 * on a journal that was used before gets what it says as `found`, and recovers; one whose journal
 * was lost does so only if it is told to.
 */
#ifndef WEFT_ACTORS_META_SERVER_H
#define WEFT_ACTORS_META_SERVER_H

#include "actors/journal.h"
#include "actors/messages.h"
#include "actors/rank.h"
#include "actors/round.h"
#include "actors/token.h"
#include "runtime/loop.h"

struct wf_meta_server;

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
    /* Versions whose step this divides are compared between ranks that hold the same: a difference
     * on the train side aborts them, on the infer side it is reported. 0: none. */
    uint64_t validate_every;
    uint32_t fill; /* WF_FILL_ bits: where ranks that lack a version may get it from; 0: nowhere */
    struct wf_timeouts timeouts;
    uint32_t attempts_max; /* of one version before it is given up; default 3 */
    /* Must be durable when it returns OK; may be NULL (nothing survives the server). */
    enum wf_status (*journal)(void *user, const struct wf_journal_record *record,
                              struct wf_error *error);
    void *user;
    /* What the journal said at start; borrowed for the call. NULL, or of term 0: a new job. */
    const struct wf_journal_state *found;
    /* The journal is lost, or not to be trusted: rebuild its contents from the ranks. */
    bool recover;
    /* Loop thread, once, from an actor's turn: the job is over (CLOSED), everybody has left or was
     * given up; or it failed; or only this server had to stop and the ranks wait for the next. Free
     * the server afterwards, not inside. */
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
/* Ends this server and not the job, which waits for another one on the same journal; `ended` is
 * called before this returns. */
void wf_meta_server_stop(struct wf_meta_server *server, const char *reason);
void wf_meta_server_free(struct wf_meta_server *server);

#endif
