/* meta_server_recover.c - terms; a server that follows another one; a server that was away.
 *
 * A server on a used journal knows every decision that anybody was told. RECOVER then only brings
 * the ranks past the barrier of the newest round: each gets a clean WELCOME with what is committed
 * for its engine, flips that if it holds it staged, drops all else, and answers JOINED; who is
 * silent for a lease and a margin is gone. A round without DECIDE is aborted.
 *
 * When the journal is lost (only by order, `recover`), the ranks are the journal. No WELCOME is
 * sent until a lease has passed, every train rank was heard and every infer rank was heard or is
 * silent. Then the newest round that anyone knows is decided, for each unit, in this order: someone
 * was told that it is committed: commit; a member (the same incarnation as in OPEN) is heard and
 * does not hold it, or a train rank was told its abort: abort; otherwise commit, because silence
 * never proves an abort. That is journalled, and the rest is as above. A new generation begins.
 *
 * The recovered round gets a key of the new term, so that keys go on growing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/meta_server_internal.h"

/* What a rank said in its first HELLO. */
struct memory {
    bool heard;
    uint64_t state, incarnation;
    struct wf_round_key round, aborted;
    struct wf_version committed;
};

struct wf_server_recovery {
    bool collecting; /* no WELCOME yet */
    uint64_t since_ns;
    struct wf_round_key round; /* the one to recover, by its own key; of no version: none */
    bool fill;
    enum wf_commit_policy policy;
    struct wf_el_member *members; /* of that round; NULL: nobody knows them */
    uint32_t member_count;
    bool *member, *decided;  /* by engine */
    struct memory *memories; /* by rank */
    uint64_t heard_term;     /* the highest that any of them had adopted */
};

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* --- begin ------------------------------------------------------------------------------------ */
static void take_journal(struct wf_meta_server *server, const struct wf_journal_state *found)
{
    struct wf_server_recovery *r = server->recovery;
    server->found_term = found->term;
    server->found_round = r->round = found->round;
    r->fill = found->fill;
    r->policy = found->policy;
    if (found->member_count > 0) {
        r->members = calloc(found->member_count, sizeof r->members[0]);
        WF_ASSERT(r->members != NULL);
        memcpy(r->members, found->members, found->member_count * sizeof r->members[0]);
        r->member_count = found->member_count;
    }
    for (uint32_t e = 0; e < found->engine_count; e++) {
        server->engines[e].current = found->engines[e].committed;
    }
    server->generation_term = found->generation.term;
    server->generation = found->generation.counter;
    server->generation_step = server->newest_step = found->generation.step;
    if (found->round.version.step > server->newest_step) {
        server->newest_step = found->round.version.step;
    }
}

static void mark_member_engines(struct wf_meta_server *server)
{
    struct wf_server_recovery *r = server->recovery;
    for (uint32_t i = 0; i < r->member_count; i++) {
        const struct wf_el_member *m = &r->members[i];
        if (m->side == WF_INFER && m->engine < server->options.engines) {
            r->member[m->engine] = true;
        }
    }
}

/* From now on the round goes by a key of this term. */
static void adopt_round(struct wf_meta_server *server)
{
    struct wf_server_recovery *r = server->recovery;
    server->round = (struct wf_server_round){.key = r->round, .fill = r->fill};
    server->round.key.term = server->term;
    server->round.key.epoch = server->epoch;
    server->round.opened_ns = wf_server_now(server);
    server->round.report.round = server->round.key;
    server->round.report.fill = r->fill;
    server->attempt_version = r->round.version;
    server->attempt = r->round.attempt;
}

static bool begin_term(struct wf_meta_server *server, uint64_t above)
{
    uint64_t wall = server->env->ops->wall_s(server->env);
    uint64_t below = later(above, wall);
    if (below >= WF_TERM_MAX) {
        wf_server_stop(server, WF_REFUSED,
                       "term %" PRIu64 " is the last that there is, and this server's would have "
                       "to be above it: start the whole job anew, in an empty folder",
                       below);
        return false;
    }
    server->term = 1 + below;
    return wf_server_journal(server, &(struct wf_journal_record){.kind = WF_JOURNAL_TERM});
}

enum wf_status wf_server_recover_begin(struct wf_meta_server *server, struct wf_error *error)
{
    const struct wf_server_options *o = &server->options;
    const struct wf_journal_state *found = o->found;
    bool used = found != NULL && found->term > 0 && !found->ended;
    bool rebuild = o->recover || (used && found->rebuilding); /* the last one did not finish */
    if (used && found->engine_count > o->engines) {
        return wf_error_set(error, WF_REFUSED,
                            "the journal is of a job with %" PRIu32
                            " engines, this one has %" PRIu32 ": use another folder",
                            found->engine_count, o->engines);
    }
    server->state = used || rebuild ? WF_SERVER_RECOVER : WF_SERVER_IDLE;
    if (server->state == WF_SERVER_RECOVER) {
        struct wf_server_recovery *r = server->recovery = calloc(1, sizeof *r);
        WF_ASSERT(r != NULL);
        r->member = calloc(o->engines, sizeof r->member[0]);
        r->decided = calloc(o->engines, sizeof r->decided[0]);
        r->memories = calloc(server->rank_count, sizeof r->memories[0]);
        WF_ASSERT(r->member != NULL && r->decided != NULL && r->memories != NULL);
        r->collecting = rebuild;
        server->rebuilt = rebuild || (used && found->rebuilt);
        r->since_ns = server->started_ns;
        if (used) {
            take_journal(server, found);
        }
        mark_member_engines(server);
        for (uint32_t e = 0; used && e < found->engine_count; e++) {
            /* A server that rebuilt its journal writes COMMITTED, then OPEN. */
            r->decided[e] = r->member[e] &&
                            (found->engines[e].decided ||
                             wf_version_compare(server->engines[e].current, r->round.version) >= 0);
        }
    }
    const struct wf_journal_record begins = {.kind = WF_JOURNAL_REBUILD, .begins = true};
    if (!begin_term(server, found != NULL ? found->term : 0) ||
        (rebuild && !wf_server_journal(server, &begins))) {
        return wf_error_set(error, server->end.status, "%s", server->end.text);
    }
    if (server->state == WF_SERVER_RECOVER && !rebuild) {
        adopt_round(server);
    }
    return WF_OK;
}

void wf_server_recover_end(struct wf_meta_server *server)
{
    struct wf_server_recovery *r = server->recovery;
    if (r != NULL) {
        free(r->members);
        free(r->member);
        free(r->decided);
        free(r->memories);
        free(r);
        server->recovery = NULL;
    }
}

/* --- terms ------------------------------------------------------------------------------------ */
void wf_server_drop_ranks(struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < server->rank_count; i++) {
        wf_server_drop_rank_conn(server, &server->ranks[i]);
    }
    /* and who has seen our term and not answered yet */
    static const enum wf_conn_kind others[] = {WF_CONN_STRANGER, WF_CONN_CANDIDATE};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        while (server->conns[others[i]].first != NULL) {
            wf_server_conn_drop(server, server->conns[others[i]].first->id);
        }
    }
}

/* A server in RECOVER that hears of a higher term goes above it; everybody hears of the new one. */
static void go_above(struct wf_meta_server *server, uint64_t term)
{
    if (!begin_term(server, later(term, server->term))) {
        return;
    }
    wf_server_drop_ranks(server);
    for (uint32_t i = 0; i < server->rank_count; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        rank->presence = rank->presence == WF_LEFT ? WF_LEFT : WF_ABSENT;
        rank->absent_ns = wf_server_now(server);
    }
    if (!server->recovery->collecting) {
        adopt_round(server);
    }
}

/* The newest term that a rank remembers anything of; its own is the server's by now. */
static uint64_t newest_remembered(const struct wf_frame_hello *hello)
{
    return later(later(hello->round.term, hello->aborted.term),
                 later(hello->live.term, hello->committed.term));
}

/* A round that a server on this journal has opened, or has recovered under a later term. */
static bool is_recorded(const struct wf_meta_server *server, const struct wf_round_key *key)
{
    const struct wf_round_key *found = &server->found_round;
    if (key->term == 0 || key->term == server->term) {
        return true;
    }
    if (key->term <= found->term) {
        return wf_round_key_compare(key, found) <= 0;
    }
    return key->term <= server->found_term &&
           wf_version_compare(key->version, found->version) == 0 && key->attempt == found->attempt;
}

static bool remembers_unknown(const struct wf_meta_server *server,
                              const struct wf_frame_hello *hello)
{
    if (server->rebuilt) {
        return false;
    }
    uint64_t newest = newest_remembered(hello);
    if (server->found_term == 0) { /* this job's first server */
        return newest != 0 && (newest != server->term || server->generation == 0);
    }
    return !is_recorded(server, &hello->round) || !is_recorded(server, &hello->aborted) ||
           newest > later(server->found_term, server->term);
}

uint64_t wf_server_term_of(const struct wf_frame_hello *hello)
{
    return later(hello->term, newest_remembered(hello));
}

bool wf_server_may_hear(struct wf_meta_server *server, const struct wf_frame_hello *hello)
{
    bool recovers = server->state == WF_SERVER_RECOVER;
    uint64_t newest = newest_remembered(hello);
    /* Another server may have had this very term. */
    bool taken = recovers && server->recovery->collecting && newest >= server->term;
    if (recovers && (hello->term > server->term || taken)) {
        go_above(server, later(hello->term, newest));
        return false;
    }
    /* Who has served nobody yet was not replaced: it came without the record of who did. */
    bool new_here = server->found_term == 0 && server->generation == 0;
    if (hello->term > server->term && !(new_here && remembers_unknown(server, hello))) {
        wf_server_stop(server, WF_STALE,
                       "a newer MetaServer (term %" PRIu64 ") serves this job; this one has term "
                       "%" PRIu64 " and stops",
                       hello->term, server->term);
        return false;
    }
    if (remembers_unknown(server, hello)) {
        char version[WF_VERSION_TEXT];
        wf_version_format(hello->committed, version);
        wf_server_stop(server, WF_REFUSED,
                       "%s rank %" PRIu64 " (host %s) remembers another MetaServer (term %" PRIu64
                       ", version %s) of which %s: start the server with --recover, which "
                       "rebuilds the journal from the ranks, or start the whole job anew",
                       wf_side_name(hello->side), hello->rank, hello->host, newest, version,
                       server->found_term == 0
                           ? "this one has no record"
                           : "this one's journal has no record (is it a copy?)");
        return false;
    }
    return true;
}

/* --- what is heard ---------------------------------------------------------------------------- */
static void raise_engine(struct wf_meta_server *server, uint32_t engine, struct wf_version version)
{
    struct wf_server_engine *e = &server->engines[engine];
    if (wf_version_compare(version, e->current) <= 0) {
        return;
    }
    const struct wf_el_unit unit = {engine};
    const struct wf_journal_record record = {.kind = WF_JOURNAL_COMMITTED,
                                             .round = {.version = version},
                                             .engines = &unit,
                                             .engine_count = 1};
    e->current = version;
    wf_server_journal(server, &record);
}

/* Who was told that a version is committed proves that it is. */
static void raise_committed(struct wf_meta_server *server, enum wf_side side, uint32_t engine,
                            struct wf_version version)
{
    if (side == WF_INFER) {
        raise_engine(server, engine, version);
        return;
    }
    if (wf_version_compare(version, wf_server_committed(server)) > 0) {
        for (uint32_t e = 0; e < server->options.engines; e++) {
            raise_engine(server, e, version);
        }
    }
}

static void remember(struct wf_meta_server *server, const struct wf_server_rank *rank,
                     const struct wf_frame_hello *hello)
{
    struct wf_server_recovery *r = server->recovery;
    int order = wf_round_key_compare(&hello->round, &r->round);
    r->heard_term = later(r->heard_term, hello->term);
    struct memory *m = &r->memories[rank - server->ranks];
    struct wf_version told = m->committed; /* to an earlier incarnation, perhaps */
    *m = (struct memory){.heard = true,
                         .state = hello->state,
                         .incarnation = hello->incarnation,
                         .round = hello->round,
                         .aborted = hello->aborted,
                         .committed = hello->committed};
    m->committed = wf_version_compare(told, m->committed) > 0 ? told : m->committed;
    if (!r->collecting || order < 0 || (order == 0 && r->members != NULL)) {
        return;
    }
    r->round = hello->round;
    if (order > 0) {
        r->fill = false; /* not told; a fill's version is committed, and somebody says so */
        r->policy = server->options.policy;
        free(r->members);
        r->members = NULL;
        r->member_count = 0;
        memset(r->member, 0, server->options.engines * sizeof r->member[0]);
    }
    if (hello->members_count > 0) {
        r->members = calloc(hello->members_count, sizeof r->members[0]);
        WF_ASSERT(r->members != NULL);
        memcpy(r->members, hello->members, hello->members_count * sizeof r->members[0]);
        r->member_count = hello->members_count;
    }
}

bool wf_server_hear(struct wf_meta_server *server, struct wf_server_rank *rank,
                    const struct wf_frame_hello *hello)
{
    rank->returned = true;
    if (rank->side == WF_TRAIN) {
        server->newest_step = later(server->newest_step, hello->live.step);
        bool reborn = hello->state == WF_TRAINER_REBORN;
        server->generation_due = server->generation_due || (reborn && server->generation > 0);
    }
    if (server->state == WF_SERVER_RECOVER) {
        remember(server, rank, hello);
    }
    if (!wf_server_is_collecting(server)) {
        raise_committed(server, rank->side, rank->engine, hello->committed);
    }
    return server->state < WF_SERVER_ENDING && !wf_server_is_collecting(server) &&
           server->away_ns == 0;
}

bool wf_server_is_collecting(const struct wf_meta_server *server)
{
    return server->state == WF_SERVER_RECOVER && server->recovery->collecting;
}

void wf_server_recover_again(struct wf_meta_server *server)
{
    if (server->recovery != NULL) {
        server->recovery->since_ns = server->started_ns = wf_server_now(server);
    }
}

/* --- deciding without a journal -----------------------------------------------------------------
 */
static bool is_member(const struct wf_server_recovery *r, const struct wf_server_rank *rank,
                      const struct memory *m)
{
    for (uint32_t i = 0; i < r->member_count; i++) {
        const struct wf_el_member *member = &r->members[i];
        if (member->side == rank->side && member->rank == rank->rank) {
            return member->incarnation == m->incarnation; /* another one proves nothing */
        }
    }
    return r->members == NULL; /* nobody holds it staged, or the members were known */
}

static bool holds(const struct wf_server_recovery *r, const struct memory *m)
{
    bool voted_yes =
        m->state == WF_RANK_DOUBT || m->state == WF_RANK_TOLD || m->state == WF_RANK_FLIPPED;
    return voted_yes && wf_round_key_equal(&m->round, &r->round);
}

/* For one unit: an engine, or all of them. */
struct evidence {
    bool told_committed, disproved, heard;
};

static void weigh(const struct wf_meta_server *server, uint32_t engine, struct evidence *out)
{
    const struct wf_server_recovery *r = server->recovery;
    const struct wf_server_engine *e = &server->engines[engine];
    for (uint32_t i = 0; i < e->rank_count; i++) {
        const struct memory *m = &r->memories[e->ranks[i]];
        if (!m->heard) {
            continue;
        }
        out->heard = true;
        out->told_committed =
            out->told_committed || wf_version_compare(m->committed, r->round.version) >= 0;
        out->disproved =
            out->disproved || (!holds(r, m) && is_member(r, &server->ranks[e->ranks[i]], m));
    }
}

static bool train_side_was_told(const struct wf_meta_server *server, bool committed)
{
    const struct wf_server_recovery *r = server->recovery;
    for (uint32_t i = 0; i < server->options.train_ranks; i++) {
        const struct memory *m = &r->memories[i];
        bool told = committed ? wf_version_compare(m->committed, r->round.version) >= 0
                              : wf_round_key_equal(&m->aborted, &r->round);
        if (m->heard && m->state != WF_TRAINER_REBORN && told) {
            return true;
        }
    }
    return false;
}

static void decide_units(struct wf_meta_server *server)
{
    struct wf_server_recovery *r = server->recovery;
    bool together = r->policy == WF_COMMIT_ALL && !r->fill;
    bool told_abort = train_side_was_told(server, false);
    struct evidence all = {.told_committed = train_side_was_told(server, true)};
    for (uint32_t e = 0; e < server->options.engines; e++) {
        struct evidence one = {.heard = false};
        weigh(server, e, &one);
        /* Members that nobody knows: who is heard stands for them. */
        r->member[e] = r->member[e] || (r->members == NULL && one.heard);
        /* By what is left of a journal, which is not trusted otherwise. */
        bool recorded =
            r->member[e] && wf_version_compare(server->engines[e].current, r->round.version) >= 0;
        one.told_committed = (one.told_committed && r->member[e]) || recorded;
        all.told_committed = all.told_committed || one.told_committed;
        all.disproved = all.disproved || (one.disproved && r->member[e]);
        r->decided[e] = r->member[e] && (one.told_committed || (!one.disproved && !told_abort));
    }
    for (uint32_t e = 0; together && e < server->options.engines; e++) {
        r->decided[e] = r->member[e] && (all.told_committed || (!all.disproved && !told_abort));
    }
}

/* What was found out, before anybody is told: COMMITTED first, so that whoever reads OPEN knows. */
static void write_down(struct wf_meta_server *server)
{
    struct wf_server_recovery *r = server->recovery;
    for (uint32_t i = server->options.train_ranks; i < server->rank_count; i++) {
        raise_committed(server, WF_INFER, server->ranks[i].engine, r->memories[i].committed);
    }
    for (uint32_t e = 0; e < server->options.engines; e++) {
        if (r->decided[e]) {
            raise_engine(server, e, r->round.version);
        }
    }
    for (uint32_t i = 0; i < server->options.train_ranks; i++) {
        raise_committed(server, WF_TRAIN, 0, r->memories[i].committed);
    }
    adopt_round(server);
    server->newest_step = later(server->newest_step, r->round.version.step);
    const struct wf_journal_record open = {.kind = WF_JOURNAL_OPEN,
                                           .round = server->round.key,
                                           .policy = r->policy,
                                           .fill = r->fill,
                                           .members = r->members,
                                           .member_count = r->member_count};
    const struct wf_journal_record done = {.kind = WF_JOURNAL_REBUILD};
    if (wf_version_is_none(r->round.version) || wf_server_journal(server, &open)) {
        wf_server_journal(server, &done);
    }
}

static bool silent_since(const struct wf_meta_server *server, uint64_t since_ns)
{
    return wf_server_now(server) - since_ns > wf_server_lease_and_margin(server);
}

/* True when everybody who has to was heard. */
static bool collected(struct wf_meta_server *server)
{
    const struct wf_server_recovery *r = server->recovery;
    if (!silent_since(server, r->since_ns)) {
        return false; /* who was welcomed by the lost server may still read */
    }
    for (uint32_t i = 0; i < server->options.train_ranks; i++) {
        if (r->memories[i].heard) {
            continue;
        }
        if (wf_server_now(server) - r->since_ns > server->options.timeouts.join_ns) {
            char limit[WF_DURATION_TEXT];
            wf_duration_format(server->options.timeouts.join_ns, limit);
            wf_server_stop(server, WF_TIMED_OUT,
                           "train rank %" PRIu32 " was not heard of within %s: without it the "
                           "journal cannot be rebuilt; start it (again), then this server",
                           i, limit);
        }
        return false;
    }
    return true;
}

/* --- the state ----------------------------------------------------------------------------------
 */
/* Past the barrier: each rank has joined, or its lease is out. */
static bool barrier_passed(const struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        bool gone = rank->presence == WF_LEFT || rank->presence == WF_FENCED ||
                    (rank->presence == WF_ABSENT && silent_since(server, server->started_ns) &&
                     silent_since(server, rank->absent_ns));
        if (rank->presence != WF_PRESENT && !gone) {
            return false;
        }
    }
    return true;
}

/* What was published again and is over, but for the recovered round's own version. */
static void release_published(struct wf_meta_server *server)
{
    struct wf_version committed = wf_server_committed(server);
    for (uint32_t i = 0; i < server->options.train_ranks; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        struct wf_version first = rank->published[0].version;
        if (rank->published_count > 0 && wf_version_compare(first, committed) <= 0) {
            wf_server_forget_published(rank, committed);
            wf_server_release_alone(server, rank, first);
        }
    }
}

static void close_round(struct wf_meta_server *server)
{
    const struct wf_server_recovery *r = server->recovery;
    for (uint32_t e = 0; e < server->options.engines; e++) {
        server->engines[e].unit = !r->member[e]   ? WF_UNIT_OUT
                                  : r->decided[e] ? WF_UNIT_DECIDED
                                                  : WF_UNIT_CUT;
    }
    bool committed = wf_server_decided_units(server) > 0;
    if (!committed) {
        struct wf_culprit why = {.side = WF_CULPRIT_SERVER};
        snprintf(why.reason, sizeof why.reason, "was started again before this was decided");
        wf_server_blame_once(server, &why);
    }
    if (r->fill && !committed) {
        server->round.noticed = true; /* the version itself is committed */
    } else {
        wf_server_tell_train_side(server);
    }
    wf_server_report_round(server, committed);
}

void wf_server_recover(struct wf_meta_server *server)
{
    struct wf_server_recovery *r = server->recovery;
    if (r->collecting) {
        if (!collected(server)) {
            return;
        }
        mark_member_engines(server);
        if (!wf_version_is_none(r->round.version)) {
            decide_units(server);
        }
        server->generation = server->generation_term = 0; /* a new one, which no server has used */
        r->collecting = false;
        /* The lost server may have had this very term: above whatever its ranks had adopted. */
        go_above(server, r->heard_term);
        if (server->state == WF_SERVER_RECOVER) {
            write_down(server);
        }
        return;
    }
    if (!barrier_passed(server)) {
        return;
    }
    server->state = WF_SERVER_IDLE;
    if (!wf_version_is_none(r->round.version)) {
        close_round(server);
    }
    release_published(server);
    wf_server_recover_end(server);
    server->again = true;
}
