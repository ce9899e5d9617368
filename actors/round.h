/* round.h - versions, round keys, culprits: the values that frames and actors share. Pure. */
#ifndef WEFT_ACTORS_ROUND_H
#define WEFT_ACTORS_ROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/plan.h"
#include "runtime/status.h"

enum {
    WF_LABEL_MAX = 65, /* bytes of a user's label with its NUL */
    WF_JOB_NAME_MAX = 65,
    WF_HOST_MAX = 65,
    WF_OBJECT_MAX = 300,
    WF_REASON_MAX = 400,
    WF_ENGINES_MAX = 4096,
    WF_RANKS_MAX = 65536,
    WF_MODELS_MAX = 32,
};

/* A server's term is above all that it hears of: bounded, so that one is left above. */
#define WF_TERM_MAX ((uint64_t)INT64_MAX)

/* (generation, step), ordered lexicographically; all zero is "none". Text: "term.counter.step". */
struct wf_version {
    uint64_t term, counter, step;
};

/* The key of a round: in every frame of it; only exact matches count. */
struct wf_round_key {
    uint64_t term; /* of the server that opened it */
    uint64_t epoch;
    uint64_t models; /* bit i: model i of the job's list takes part; bit 0 is "main" */
    struct wf_version version;
    uint64_t attempt; /* from 1; a failed attempt is burned */
};

enum wf_commit_policy { WF_COMMIT_ALL, WF_COMMIT_EACH /* quorum is reserved */ };
/* Sources of fills, tried in this order; ANY: any rank. STORE: versions that lie in files
 * (actors/store.h). */
enum { WF_FILL_TRAINER = 1, WF_FILL_REPLICA = 2, WF_FILL_ANY = 3, WF_FILL_STORE = 4 };
/* What OPEN names as a fill's source: 0 is the train side, n + 1 engine n, and this the store. */
enum { WF_SOURCE_STORE = WF_ENGINES_MAX + 1, WF_SOURCE_TEXT = 32 };
void wf_source_format(uint64_t source, char text_out[WF_SOURCE_TEXT]); /* "train", "engine 3",
                                                                          "folder" */
enum wf_publish_mode { WF_PUBLISH_HOLD, WF_PUBLISH_SNAPSHOT };
/* In place: read straight into the live tensors, while the engine is paused from OPEN on. */
enum wf_update_mode { WF_MODE_STAGED, WF_MODE_IN_PLACE };

/* States as sketches of the protocol name them (docs/protocol.md). */
enum wf_rank_state {
    WF_RANK_NONE,
    WF_RANK_READ,
    WF_RANK_DOUBT,
    WF_RANK_TOLD,
    WF_RANK_FLIPPED,
    WF_RANK_QUIET, /* in place: pauses or is paused for its round, may not read yet */
};
enum wf_train_state { WF_TRAINER_TRAIN, WF_TRAINER_HOLD, WF_TRAINER_DONE, WF_TRAINER_REBORN };

/* Why, and who is to blame, so that the cause travels with the abort. Empty reason: nothing is
 * said. NOBODY: no fault; the rules let a newer version take the place of this one, which `object`
 * names
 * ("1.1.4"), and `reason` is a whole clause. */
enum { WF_CULPRIT_SERVER = 2, WF_CULPRIT_NOBODY, WF_CULPRIT_SIDES };
struct wf_culprit {
    uint64_t side; /* enum wf_side, or of the above */
    uint64_t rank;
    uint64_t engine;
    char host[WF_HOST_MAX];
    char object[WF_OBJECT_MAX]; /* "box 7 of model.layers.3.mlp.down_proj.weight" */
    char reason[WF_REASON_MAX]; /* the rest of a sentence that begins with who */
};

int wf_version_compare(struct wf_version a, struct wf_version b); /* <0, 0, >0 */
bool wf_version_is_none(struct wf_version v);
bool wf_round_key_equal(const struct wf_round_key *a, const struct wf_round_key *b);
/* Order of rounds: term, then epoch, version, attempt. */
int wf_round_key_compare(const struct wf_round_key *a, const struct wf_round_key *b);
enum { WF_VERSION_TEXT = 64 };
void wf_version_format(struct wf_version v, char text_out[WF_VERSION_TEXT]);

enum { WF_CULPRIT_TEXT = 640 };
bool wf_culprit_is_none(const struct wf_culprit *culprit);
/* "infer rank 3 (host b, engine 1) did not vote on version 1.1.4 within 5 s": who, then `reason`,
 * which is therefore written as the rest of such a sentence; for NOBODY that alone. Empty text
 * without a reason. */
void wf_culprit_format(const struct wf_culprit *culprit, char text_out[WF_CULPRIT_TEXT]);

#endif
