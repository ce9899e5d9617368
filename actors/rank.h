/* rank.h - one rank of a job: the facade over its actors, for hosts (weft run, the simulator, later
 * the public library).
 *
 * A rank is made on a loop with wf_rank_new, which registers its tensors against the layout its
 * recipe implies, listens for peers and connects to the MetaServer; everything else happens by
 * turns of the loop. The host is told what matters through hooks, which are called from an actor's
 * turn on the loop's thread, never from inside one of the host's own calls, and must not block;
 * long work answers later. The three hooks about writing are the exception: they are the work, and
 * run on the pool.
 *
 * Actors inside: MetaClient (protocol state, lease, connection to the server), Converter (layouts),
 * Planner (the plan), on the train side Sender, on the infer side Receiver and Validator.
 */
#ifndef WEFT_ACTORS_RANK_H
#define WEFT_ACTORS_RANK_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/messages.h"
#include "actors/plan.h"
#include "actors/round.h"
#include "actors/store.h"
#include "actors/token.h"
#include "models/layout.h"
#include "runtime/loop.h"
#include "runtime/status.h"
#include "transports/transport.h"

struct wf_rank;

enum {
    WF_TRANSPORTS_MAX = 8,
    WF_LISTENS_MAX = 4,
    WF_TRANSPORT_NAMES_MAX = 256, /* bytes of a list of them, apart by spaces, with its NUL */
};

/* All hooks may be NULL except where said; `host` is wf_rank_options.host. */
struct wf_rank_hooks {
    /* Infer. An engine starts paused: it serves after its first resume. Later, before a flip: stop
     * using the weights and drain what is in flight; then call wf_rank_quiesced(rank). The rank
     * waits for it under the deadline `quiesce_ns`. Needed. */
    void (*quiesce)(void *host, struct wf_rank *rank);
    /* Infer. All ranks of the engine hold `version`: serve again. Needed. Also after an abort that
     * follows a quiesce, with the old version. */
    void (*resume)(void *host, struct wf_rank *rank, struct wf_version version);
    /* Infer. This rank was started with another table of experts than the other ranks of its engine
     * have by now, and has no weights yet: from now on its slots are by `placement` (NULL: by the
     * recipe's rule), which is borrowed for the call. A status other than OK, with a sentence,
     * ends the rank, as does the lack of the hook. */
    enum wf_status (*take_table)(void *host, struct wf_rank *rank,
                                 const struct wf_placement *placement, struct wf_error *error);
    /* Infer. The next three are the engine's own work on a version (packed and derived tensors).
     * They are called on a thread of the pool, one at a time, and may take their time: the rank
     * lives on meanwhile, and whatever ends the round waits for their return. They call nothing of
     * wf_rank. A status other than OK needs a sentence in `error`.
     *
     * Before the first byte of `version` is written where it lands. In place the engine is paused,
     * and what must be undone first (packing) is undone here: from this call on the weights count
     * as written to, whatever becomes of the version. Staged, the engine serves and its weights
     * stay untouched. A failure votes no. */
    enum wf_status (*before_write)(void *host, struct wf_rank *rank, struct wf_version version,
                                   struct wf_error *error);
    /* The version is whole and verified, and nobody has voted for it here: `written[i]` is where
     * the new bytes of options.tensors[i] are (staged: in the staging area, to be read only; in
     * place: the tensor itself), NULL where the job writes none (derived, kept and viewed tensors).
     * What is derived is made here, in place in its tensor, staged in memory of the host's own. A
     * failure votes no: no engine gets the version, and in place this one is filled again. */
    enum wf_status (*after_write)(void *host, struct wf_rank *rank, struct wf_version version,
                                  void *const *written, struct wf_error *error);
    /* Between quiesce and resume, after the local copy: what after_write made takes the place of
     * what was. It is too late for a vote, so nothing that can fail belongs here: a failure leaves
     * the engine gated until it is filled again. */
    enum wf_status (*after_flip)(void *host, struct wf_rank *rank, struct wf_version version,
                                 struct wf_error *error);
    /* Train. Generation known, plan agreed: publishing may begin. Called again, with `restarted`
     * true, when a new generation began because a train rank was lost, or the server had lost
     * its journal: whatever was held is the host's again; publish the current weights again. `step`
     * is the newest step that any train rank of the job has published (0: none): what a restarted
     * rank has to rebuild. */
    void (*ready)(void *host, struct wf_rank *rank, bool restarted, uint64_t step);
    /* Train, snapshot. The copy of `version` is complete and published (why: NULL), or it failed
     * and is not: in both cases the buffers are the host's again. */
    void (*copied)(void *host, struct wf_rank *rank, struct wf_version version,
                   const struct wf_error *why);
    /* Train. Every decided engine has version v (`engines` of them; 0: the policy skipped it, or it
     * can no longer be published by all train ranks): buffers are the host's again. */
    void (*released)(void *host, struct wf_rank *rank, struct wf_version version, uint32_t engines);
    /* Train. The time that wf_rank_publish_within gave has passed and what becomes of `version` is
     * not known: it is in doubt, and may still be committed or given up. Nothing has ended: buffers
     * that are held stay held, changing them anyway needs leaving the job (wf_rank_close). Once a
     * version; `released` or `aborted` settles it, or `ready` with a new generation. */
    void (*in_doubt)(void *host, struct wf_rank *rank, struct wf_version version);
    /* Train and infer. The attempt ended without a commit. Train: unless `again`, buffers are the
     * host's again; with it the hold stays: the server tries the version once more, or a train rank
     * was lost and `ready` will ask for the same weights under a new generation. */
    void (*aborted)(void *host, struct wf_rank *rank, struct wf_version version, uint64_t attempt,
                    bool again, const struct wf_culprit *culprit);
    /* Once: the rank cannot go on (refused, disagreement, no server) or the job is over (status
     * CLOSED), and none of its reads can land any more. Nothing follows. wf_rank_note still works
     * until wf_rank_free: the server waits for each rank's goodbye before it ends. */
    void (*ended)(void *host, struct wf_rank *rank, const struct wf_error *why);
};

struct wf_timeouts {
    uint64_t connect_ns;   /* without a server since the start */
    uint64_t reconnect_ns; /* without a server later: long enough to start one by hand */
    uint64_t lease_ns, heartbeat_ns, join_ns, plan_ns;
    uint64_t
        publish_ns; /* the first train rank's PUBLISH of a version to the last one's; 0: no limit */
    uint64_t round_ns;   /* OPEN to the last vote */
    uint64_t quiesce_ns; /* QUIESCE to QUIESCED */
    uint64_t flip_ns;    /* FLIP to RESUMED */
    uint64_t repeat_ns;  /* the server repeats what is unanswered this often */
};
extern const struct wf_timeouts wf_timeouts_default;

struct wf_rank_tensor {
    struct wf_live_tensor live; /* name, dtype, shape, strides */
    void *address;
    uint32_t region; /* index into regions */
    uint64_t offset; /* in that region */
};

struct wf_rank_options {
    const char *job;              /* <= 64 bytes */
    const struct wf_token *token; /* copied; NULL: none, and only for who has none */
    const char *server;           /* address of the MetaServer */
    const char *listen;           /* where readers reach this rank: addresses apart by spaces,
                                     "unix:@weft-rank-* tcp:10.0.0.7:0"; WF_LISTENS_MAX at most */
    const char *host_name; /* equal names are one host: readers there try unix and shm first */
    enum wf_side side;
    uint32_t rank;                   /* within its side */
    uint32_t engine;                 /* infer: over all groups */
    const char *group;               /* name of the group the recipe belongs to */
    uint32_t group_rank;             /* rank within the group: what the recipe's coordinates mean */
    const struct wf_model *model;    /* borrows */
    const struct wf_recipe *recipe;  /* copied, with the table of experts that it has at start */
    const struct wf_region *regions; /* borrows until free */
    uint32_t region_count;
    const struct wf_rank_tensor *tensors; /* copied */
    uint32_t tensor_count;
    const char *const *ignore;
    uint32_t ignore_count;
    enum wf_publish_mode publish; /* train */
    enum wf_update_mode mode;     /* infer */
    bool packs; /* infer: between versions the tensors hold other bytes than their layout says
                   (packed in place, undone in before_write): nobody is filled from this rank,
                   compares it or looks at it */
    uint64_t staging_bytes_max;             /* infer; 0: as much as the weights need */
    uint64_t prepared_bytes_max;            /* train; what it prepares (models/prepare.h), of all
                                               slots together; 0: as much as that needs */
    struct wf_plan_policy policy;           /* the same in all ranks of a job */
    struct wf_transport *const *transports; /* borrows until free; in order of preference */
    uint32_t transport_count;               /* 1 to WF_TRANSPORTS_MAX, of different names */
    uint32_t capacity_jobs;                 /* digests and flips at a time; 0: 1 */
    struct wf_store *store; /* infer; borrows until free; NULL: no versions lie in files */
    struct wf_timeouts timeouts;
    struct wf_rank_hooks hooks;
    void *host;
    bool skip_quiesce; /* test only: flips without asking; torn reads are expected */
};

/* Loop thread. Refusals of the tensors are given here; refusals of others come by `ended`. */
enum wf_status wf_rank_new(struct wf_loop *loop, const struct wf_rank_options *options,
                           struct wf_rank **rank_out, struct wf_error *error);
/* Train: the weights are `step` and stable, until released or aborted without `again` (hold) or
 * until `copied` (snapshot; `released` follows for every version that is not dropped). Steps grow.
 * AGAIN: an earlier version still holds the buffers (hold) or both slots (snapshot), or no
 * generation is known yet (before the ready hook). REFUSED: not newer. CLOSED: the rank has ended.
 */
enum wf_status wf_rank_publish(struct wf_rank *rank, uint64_t step, const char *label,
                               struct wf_error *error);
/* The same with a deadline of the caller's own: if the version is not over after `within_ns` (0: no
 * limit) the hook `in_doubt` says so. In snapshot mode too, though the buffers may be free by then.
 */
enum wf_status wf_rank_publish_within(struct wf_rank *rank, uint64_t step, const char *label,
                                      uint64_t within_ns, struct wf_error *error);
/* Train: nothing more will be published; the weights stay what was published last, fills may read
 * them (hold; in snapshot mode the slot is kept). A new generation takes it back: publish and say
 * it again. The job ends when every train rank has said it and all engines have what they can get.
 */
void wf_rank_idle(struct wf_rank *rank);
/* Infer: the answer to the quiesce hook. */
void wf_rank_quiesced(struct wf_rank *rank);
/* Infer: the engine places its experts by this table from now on (EPLB); NULL: by its recipe's
 * rule. Called on every rank of the engine with the same table, before the experts move. Until all
 * ranks of the job have planned with it, the rank takes part in no round: one that was planned with
 * the old table is refused by name. Its tensors stay what they are; only what their slots show
 * changes. AGAIN: a round is under way here: move nothing, ask again after `resume` or later.
 * INVALID: the table does not fit the model or the recipe. */
enum wf_status wf_rank_place(struct wf_rank *rank, const struct wf_placement *placement,
                             struct wf_error *error);
/* Sends a NOTE about a version to the server (for reports). */
void wf_rank_note(struct wf_rank *rank, const struct wf_frame_note *note);
/* Infer: this host puts versions where stores (actors/store.h) of other ranks find them. `version`
 * lies there now, or (`writing`) is being written: the job waits for it if somebody could be filled
 * from there alone, timeouts.join_ns at most. After a failure: what lies there still; none: nothing
 * does. */
void wf_rank_stored(struct wf_rank *rank, struct wf_version version, bool writing);
/* Infer: the user's label of the round that this rank took part in last; empty: none, or a fill.
 * Until the next turn of the loop. */
const char *wf_rank_label(const struct wf_rank *rank);
/* What this rank holds and serves. */
struct wf_version wf_rank_live(const struct wf_rank *rank);
/* Leaves the job: no new work; `ended` follows (if it has not been called yet) when nothing of it
 * can land any more. */
void wf_rank_close(struct wf_rank *rank);
/* After `ended`, or before the first turn; never from inside a hook. Says goodbye to the server. */
void wf_rank_free(struct wf_rank *rank);

#endif
