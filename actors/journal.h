/* journal.h - the MetaServer's memory: its records, how they are written down, and what they add up
 * to. Pure.
 *
 * A journal is a file of records, each appended and synced before the frames that depend on it are
 * sent (docs/protocol.md). On disk a record is, little-endian:
 *
 *   u32 magic "WJR1"   u32 length of the payload   u64 XXH3 of the payload, seeded with its length
 *   payload: u64 words; the first is the kind
 *
 * The first record is the HEADER (format version, job); a file without one is no journal. A writer
 * that died leaves at most one unfinished record at the end: it is cut off when the journal is
 * read. A record that is wrong with a good one after it is no torn tail: the journal is refused and
 * the offset named.
 *
 * Folding: what counts of a journal is small (struct wf_journal_state), so a server writes the
 * folded state as a new journal when it starts, and when the file has grown.
 */
#ifndef WEFT_ACTORS_JOURNAL_H
#define WEFT_ACTORS_JOURNAL_H

#include "actors/messages.h"
#include "actors/round.h"

enum {
    WF_JOURNAL_VERSION = 1,
    WF_JOURNAL_PAYLOAD_MAX = 8 << 20, /* an OPEN with twice WF_RANKS_MAX members fits */
};

/* Numbers are the file's: only append. */
enum wf_journal_kind {
    WF_JOURNAL_HEADER = 1,
    WF_JOURNAL_TERM,
    WF_JOURNAL_GENERATION,
    WF_JOURNAL_OPEN,
    WF_JOURNAL_DECIDE,
    WF_JOURNAL_COMMITTED, /* for these engines, because somebody was told so */
    WF_JOURNAL_END,       /* of the job: what comes after it is another one's */
    WF_JOURNAL_REBUILD,   /* from the ranks: begins, or is done; between them it is not complete */
};

/* What a record has beside term and epoch follows from its kind. */
struct wf_journal_record {
    enum wf_journal_kind kind;
    uint64_t term, epoch;
    struct wf_version generation;       /* GENERATION; step: the newest published when it began */
    struct wf_round_key round;          /* OPEN, DECIDE; COMMITTED: its version */
    enum wf_commit_policy policy;       /* OPEN */
    bool fill;                          /* OPEN */
    bool begins;                        /* REBUILD */
    const struct wf_el_member *members; /* OPEN */
    uint32_t member_count;
    const struct wf_el_unit *engines; /* DECIDE, COMMITTED */
    uint32_t engine_count;
};

struct wf_journal_engine {
    bool decided; /* in the newest round */
    struct wf_version committed;
};

/* Zeroed memory is the state of an empty journal. */
struct wf_journal_state {
    char job[WF_JOB_NAME_MAX];
    uint64_t term, epoch; /* 0: no server has used it */
    bool ended;           /* the job was over; only `term` and `job` are left */
    bool rebuilding;      /* what is missing has to be asked for */
    bool rebuilt;         /* it was, and no round was opened since: who was away may know more */
    struct wf_version generation;
    struct wf_round_key round; /* the newest; of no version: none */
    enum wf_commit_policy policy;
    bool fill;
    struct wf_el_member *members; /* owns */
    uint32_t member_count;
    struct wf_journal_engine *engines; /* owns; those beyond have nothing */
    uint32_t engine_count;
};

/* Appends the record, or the header, to malloc'd *bytes of *len. */
void wf_journal_encode_header(const char *job, uint8_t **bytes, size_t *len);
void wf_journal_encode(const struct wf_journal_record *record, uint8_t **bytes, size_t *len);
/* A whole journal that folds to this state. */
void wf_journal_encode_state(const struct wf_journal_state *state, uint8_t **bytes, size_t *len);

void wf_journal_apply(struct wf_journal_state *state, const struct wf_journal_record *record);
/* Folds any bytes into zeroed *state. *good_out: the length without the torn tail. INVALID: not a
 * journal, of a later format, or damaged; the sentence names the offset. On failure *state holds
 * what came before. Free it in any case. */
enum wf_status wf_journal_read(const uint8_t *bytes, size_t len, struct wf_journal_state *state,
                               size_t *good_out, struct wf_error *error);
void wf_journal_state_fini(struct wf_journal_state *state);

#endif
