/* meta_server_round.c - the first half of a round: OPEN, votes, and what is decided or cut.
 *
 * Units are engines; under policy `all` (and not in a fill) they are decided together. DECIDE is
 * journalled before anybody is told. Once a unit is decided nothing can undo it: a member that
 * misses a deadline then is evicted (no longer renewed, so that its lease runs out and it is
 * fenced) and its engine stays paused until it has the version. The train side is told after the
 * barrier: when every member has flipped, has answered ABORTED, or is gone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/meta_server_internal.h"

bool wf_server_is_member(const struct wf_meta_server *server, const struct wf_server_rank *rank,
                         const struct wf_round_key *key)
{
    return server->state != WF_SERVER_IDLE && (rank->member || rank->source) && !rank->lost &&
           rank->presence == WF_PRESENT && wf_round_key_equal(key, &server->round.key);
}

static bool decides_alone(const struct wf_meta_server *server)
{
    return server->round.fill || server->options.policy == WF_COMMIT_EACH;
}

void wf_server_blame_once(struct wf_meta_server *server, const struct wf_culprit *culprit)
{
    if (wf_culprit_is_none(&server->round.culprit)) {
        server->round.culprit = *culprit;
    }
}

/* The i-th member of an engine, or NULL when that rank is none. */
struct wf_server_rank *wf_server_member_at(struct wf_meta_server *server,
                                           const struct wf_server_engine *engine, uint32_t i)
{
    struct wf_server_rank *rank = &server->ranks[engine->ranks[i]];
    return rank->member ? rank : NULL;
}

/* --- OPEN ------------------------------------------------------------------------------------- */
static bool joins_round(const struct wf_meta_server *server, const struct wf_server_rank *rank,
                        struct wf_version version, bool fill)
{
    if (rank->side == WF_TRAIN) {
        return server->round.source == 0;
    }
    return wf_server_engine_is_whole(server, &server->engines[rank->engine]) &&
           (!fill || wf_version_compare(rank->live, version) != 0);
}

static uint32_t choose_members(struct wf_meta_server *server, struct wf_version version, bool fill)
{
    uint32_t count = 0;
    for (uint32_t e = 0; e < server->options.engines; e++) {
        server->engines[e].unit = WF_UNIT_OUT;
        server->engines[e].flip_sent = server->engines[e].resuming = false;
        server->engines[e].permitted = false;
    }
    for (uint32_t i = 0; i < server->rank_count; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        rank->member = joins_round(server, rank, version, fill);
        rank->source = rank->side == WF_INFER && server->round.source == rank->engine + 1ull;
        rank->lost = false;
        rank->vote = WF_VOTE_NONE;
        rank->quiesced = rank->flipped = rank->acked = false;
        count += rank->member && rank->side == WF_INFER;
        if (rank->member && rank->side == WF_INFER) {
            server->engines[rank->engine].unit = WF_UNIT_UNDECIDED;
        }
    }
    return count;
}

/* A fill from a replica may come between two attempts of a newer version, whose count goes on: an
 * epoch of its own keeps the keys apart. */
static struct wf_round_key next_replica_key(struct wf_meta_server *server,
                                            struct wf_version version)
{
    wf_server_raise_epoch(server);
    return (struct wf_round_key){.term = server->term,
                                 .epoch = server->epoch,
                                 .models = 1,
                                 .version = version,
                                 .attempt = 1};
}

static struct wf_round_key next_key(struct wf_meta_server *server, struct wf_version version)
{
    if (wf_version_compare(version, server->attempt_version) != 0) {
        server->attempt_version = version;
        server->attempt = 0;
    }
    struct wf_round_key key = {.term = server->term,
                               .epoch = server->epoch,
                               .models = 1,
                               .version = version,
                               .attempt = ++server->attempt};
    if (wf_round_key_compare(&key, &server->round.key) <= 0) { /* keys only grow */
        wf_server_raise_epoch(server);
        key.epoch = server->epoch;
    }
    return key;
}

static uint32_t list_members(const struct wf_meta_server *server, struct wf_el_member *members)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if (rank->member || rank->source) {
            members[count++] =
                (struct wf_el_member){rank->side, rank->rank, rank->engine, rank->incarnation};
        }
    }
    return count;
}

/* The deadline in it counts from receipt: made once for all who get it at one time. */
static struct wf_payload *open_frame(struct wf_meta_server *server)
{
    struct wf_server_round *round = &server->round;
    uint64_t now = wf_server_now(server);
    struct wf_frame_open open = {.round = round->key,
                                 .policy = server->options.policy,
                                 .fill = round->fill,
                                 .deadline_ns =
                                     round->deadline_ns > now ? round->deadline_ns - now : 1,
                                 .members = server->members,
                                 .members_count = server->member_count,
                                 .source = round->source};
    memcpy(open.label, round->report.label, sizeof open.label);
    return wf_server_shared_frame(server, &server->open_frame, now, WF_FRAME_open, &open);
}

const struct wf_payload *wf_server_send_open(struct wf_meta_server *server,
                                             const struct wf_server_rank *rank)
{
    struct wf_payload *payload = open_frame(server);
    if (payload != NULL && rank->conn != 0) {
        server->env->ops->send_shared(server->env, rank->conn, payload);
    }
    return payload;
}

void wf_server_open(struct wf_meta_server *server, const struct wf_publication *what, bool fill,
                    uint64_t source)
{
    struct wf_round_key key =
        source > 0 ? next_replica_key(server, what->version) : next_key(server, what->version);
    uint64_t now = wf_server_now(server);
    server->round =
        (struct wf_server_round){.key = key,
                                 .fill = fill,
                                 .source = source,
                                 .opened_ns = now,
                                 .last_vote_ns = now,
                                 .deadline_ns = now + server->options.timeouts.round_ns};
    server->round.report.round = key;
    server->round.report.fill = fill;
    server->round.report.source = source;
    memcpy(server->round.report.label, what->label, sizeof what->label);
    uint32_t readers = choose_members(server, what->version, fill);
    server->member_count = list_members(server, server->members);
    const struct wf_journal_record record = {.kind = WF_JOURNAL_OPEN,
                                             .round = key,
                                             .policy = server->options.policy,
                                             .fill = fill,
                                             .members = server->members,
                                             .member_count = server->member_count};
    if (!wf_server_journal(server, &record)) {
        return;
    }
    server->no_engine_ns = 0;
    server->state = WF_SERVER_OPENED;
    wf_server_pause_members(server);
    wf_server_shared_drop(&server->open_frame);
    wf_server_replicas_begin(server, WF_TRAIN);
    wf_server_send_open_to_all(server);
    wf_server_progress(server, fill ? "fill" : "transfer", 0, readers, what->label);
}

/* --- deciding and cutting --------------------------------------------------------------------- */
void wf_server_send_decide(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    struct wf_el_unit unit = {rank->engine};
    const struct wf_frame_decide decide = {
        .round = server->round.key, .engines = &unit, .engines_count = 1};
    wf_server_send(server, rank, WF_FRAME_decide, &decide);
}

void wf_server_send_abort(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    const struct wf_frame_abort abort = {.round = server->round.key,
                                         .culprit = server->round.culprit};
    wf_server_send(server, rank, WF_FRAME_abort, &abort);
}

/* Decides every unit in server->units (count of them): journal first, then the members. */
static void decide(struct wf_meta_server *server, uint32_t count)
{
    const struct wf_journal_record record = {.kind = WF_JOURNAL_DECIDE,
                                             .round = server->round.key,
                                             .engines = server->units,
                                             .engine_count = count};
    if (count == 0 || !wf_server_journal(server, &record)) {
        return;
    }
    uint64_t now = wf_server_now(server);
    for (uint32_t u = 0; u < count; u++) {
        struct wf_server_engine *engine = &server->engines[server->units[u].engine];
        engine->unit = WF_UNIT_DECIDED;
        engine->current = server->round.key.version;
        engine->deadline_ns = now + server->options.timeouts.quiesce_ns;
        for (uint32_t i = 0; i < engine->rank_count; i++) {
            struct wf_server_rank *rank = wf_server_member_at(server, engine, i);
            if (rank != NULL) {
                rank->serving = false;
                rank->resume_asked = false;
                rank->quiesced = false; /* in place: it is asked again, for the flip */
                wf_server_send_decide(server, rank);
            }
        }
    }
    server->again = true;
}

static void cut(struct wf_meta_server *server, struct wf_server_engine *engine)
{
    engine->unit = WF_UNIT_CUT;
    engine->deadline_ns = wf_server_now(server) + server->options.timeouts.flip_ns;
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        struct wf_server_rank *rank = wf_server_member_at(server, engine, i);
        if (rank != NULL && !rank->lost) {
            wf_server_send_abort(server, rank);
        }
    }
    server->again = true;
}

/* Every undecided unit. */
static void cut_rest(struct wf_meta_server *server)
{
    for (uint32_t e = 0; e < server->options.engines; e++) {
        if (server->engines[e].unit == WF_UNIT_UNDECIDED) {
            cut(server, &server->engines[e]);
        }
    }
}

/* Train ranks differ: another attempt would read the same. */
static void withdraw(struct wf_meta_server *server)
{
    server->round.withdrawn = true;
    cut_rest(server);
}

void wf_server_cut(struct wf_meta_server *server, struct wf_server_engine *engine)
{
    if (decides_alone(server)) {
        cut(server, engine);
    } else {
        cut_rest(server);
    }
}

static bool is_clean(struct wf_meta_server *server, const struct wf_server_engine *engine)
{
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        const struct wf_server_rank *rank = wf_server_member_at(server, engine, i);
        if (rank != NULL && (rank->lost || rank->vote != WF_VOTE_YES)) {
            return false;
        }
    }
    return true;
}

static bool is_broken(struct wf_meta_server *server, const struct wf_server_engine *engine)
{
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        const struct wf_server_rank *rank = wf_server_member_at(server, engine, i);
        if (rank != NULL && (rank->lost || rank->vote == WF_VOTE_NO ||
                             (server->round.source_lost && rank->vote != WF_VOTE_YES))) {
            return true;
        }
    }
    return false;
}

/* Units that are clean now, into server->units; under `all` only when all are. */
static uint32_t clean_units(struct wf_meta_server *server)
{
    uint32_t clean = 0, undecided = 0;
    for (uint32_t e = 0; e < server->options.engines; e++) {
        if (server->engines[e].unit == WF_UNIT_UNDECIDED) {
            undecided++;
            if (is_clean(server, &server->engines[e])) {
                server->units[clean++].engine = e;
            }
        }
    }
    return decides_alone(server) || clean == undecided ? clean : 0;
}

static void cut_broken(struct wf_meta_server *server)
{
    for (uint32_t e = 0; e < server->options.engines; e++) {
        struct wf_server_engine *engine = &server->engines[e];
        if (engine->unit == WF_UNIT_UNDECIDED && is_broken(server, engine)) {
            wf_server_cut(server, engine);
        }
    }
}

/* The first member that may read and has not voted, or NULL. */
static const struct wf_server_rank *not_voted(const struct wf_meta_server *server)
{
    for (uint32_t i = server->options.train_ranks; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if (rank->member && rank->vote == WF_VOTE_NONE && server->engines[rank->engine].permitted) {
            return rank;
        }
    }
    return NULL;
}

/* Who has not voted in time is named; what can still be decided alone was decided before. A reader
 * whose time has run out votes no and names whom it waited for: it is heard first. The time of a
 * reader in place begins with its PERMIT, that of what the train side has to say with OPEN. */
static void cut_late(struct wf_meta_server *server)
{
    uint64_t margin = server->options.timeouts.round_ns / WF_VOTE_MARGIN_PART;
    const struct wf_server_rank *silent = wf_server_replicas_awaited(server);
    if (wf_server_now(server) < server->round.deadline_ns + margin ||
        (wf_server_waits_for_pauses(server) && silent == NULL)) {
        return;
    }
    if (silent != NULL && wf_server_replicas_late(server)) {
        withdraw(server);
        return;
    }
    char version[WF_VERSION_TEXT], limit[WF_DURATION_TEXT];
    wf_version_format(server->round.key.version, version);
    wf_duration_format(server->options.timeouts.round_ns, limit);
    const struct wf_server_rank *late = not_voted(server);
    if (late != NULL || silent != NULL) {
        struct wf_culprit why;
        wf_server_blame(late != NULL ? late : silent, &why, "did not %s version %s within %s",
                        late != NULL ? "vote on" : "say what it holds of", version, limit);
        wf_server_blame_once(server, &why);
    }
    cut_rest(server);
}

static bool any_undecided(const struct wf_meta_server *server)
{
    for (uint32_t e = 0; e < server->options.engines; e++) {
        if (server->engines[e].unit == WF_UNIT_UNDECIDED) {
            return true;
        }
    }
    return false;
}

/* A newer version waits and the policy wants only the latest: this one is dropped, but not two in a
 * row, or a fast trainer would keep every version from committing. A fill from a replica is always
 * dropped: the train side would wait for it, and whom it was for is a member of the next round. */
static void cut_superseded(struct wf_meta_server *server)
{
    struct wf_publication newest;
    bool latest = server->options.drop_to_latest && !server->round.fill && !server->superseded_last;
    if ((!latest && server->round.source == 0) || !any_undecided(server) ||
        !wf_server_candidate(server, &newest) ||
        wf_version_compare(newest.version, server->round.key.version) <= 0) {
        return;
    }
    for (uint32_t e = 0; e < server->options.engines; e++) {
        if (server->engines[e].unit == WF_UNIT_DECIDED && !server->round.fill) {
            return;
        }
    }
    struct wf_culprit why = {.side = WF_CULPRIT_NOBODY};
    wf_version_format(newest.version, why.object);
    snprintf(why.reason, sizeof why.reason, "dropped for the newer version %s", why.object);
    wf_server_blame_once(server, &why);
    server->round.superseded = true;
    cut_rest(server);
}

/* --- the state ------------------------------------------------------------------------------
 */
void wf_server_opened(struct wf_meta_server *server)
{
    enum wf_replicas_word word = wf_server_replicas_word(server);
    if (word == WF_REPLICAS_DIFFER) {
        withdraw(server);
    } else if (word == WF_REPLICAS_AGREE) {
        decide(server, clean_units(server));
    }
    if (server->state != WF_SERVER_OPENED) {
        return; /* the journal failed */
    }
    cut_broken(server);
    cut_superseded(server);
    wf_server_permit_when_quiesced(server, word == WF_REPLICAS_AGREE);
    cut_late(server);
    for (uint32_t e = 0; e < server->options.engines; e++) {
        wf_server_flip_when_quiesced(server, &server->engines[e]);
    }
    wf_server_resume_engines(server);
    if (!any_undecided(server)) {
        server->state = WF_SERVER_CLOSING;
        server->again = true;
    }
}

/* --- votes --- */
void wf_server_on_vote(struct wf_meta_server *server, struct wf_server_rank *rank,
                       const struct wf_frame_vote *vote)
{
    if (!wf_server_is_member(server, rank, &vote->round) || rank->vote != WF_VOTE_NONE) {
        return;
    }
    bool is_source = rank->side == WF_TRAIN || rank->source;
    struct wf_culprit why = vote->culprit;
    if (!vote->yes && wf_culprit_is_none(&why)) {
        wf_server_blame(rank, &why, "voted no and gave no reason");
    }
    if (is_source) {
        if (!vote->yes && server->state == WF_SERVER_OPENED) {
            server->round.source_lost = true;
            server->round.withdrawn = true;
            wf_server_blame_once(server, &why);
        }
        return;
    }
    rank->vote = vote->yes ? WF_VOTE_YES : WF_VOTE_NO;
    if (server->round.flip_sent_ns == 0) { /* `each`: votes of later engines decide nothing there */
        server->round.last_vote_ns = wf_server_now(server);
    }
    if (rank->vote == WF_VOTE_NO) {
        server->round.report.digest_mismatches += vote->digest_mismatches;
        wf_server_blame_once(server, &why);
        return;
    }
    wf_server_report_vote(server, vote);
}

void wf_server_member_lost(struct wf_meta_server *server, struct wf_server_rank *rank,
                           const struct wf_culprit *why)
{
    bool in_round = server->state == WF_SERVER_OPENED || server->state == WF_SERVER_CLOSING;
    if (!in_round || !(rank->member || rank->source) || rank->lost) {
        return;
    }
    rank->lost = true;
    if (rank->side == WF_TRAIN || rank->source) {
        server->round.source_lost = true;
        if (any_undecided(server)) {
            wf_server_blame_once(server, why);
        }
    } else {
        wf_server_blame_once(server, why);
    }
}
