/* meta_server_idle.c - between rounds: readmission, agreement, the next version, fills, resuming
 * engines, the end of the job. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/meta_server_internal.h"

struct wf_version wf_server_committed(const struct wf_meta_server *server)
{
    struct wf_version newest = {0};
    for (uint32_t e = 0; e < server->options.engines; e++) {
        if (wf_version_compare(server->engines[e].current, newest) > 0) {
            newest = server->engines[e].current;
        }
    }
    return newest;
}

bool wf_server_engine_is_whole(const struct wf_meta_server *server,
                               const struct wf_server_engine *engine)
{
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[engine->ranks[i]];
        if (rank->presence != WF_PRESENT || rank->evicted ||
            rank->planned_epoch != server->members_epoch) {
            return false;
        }
    }
    return engine->rank_count > 0;
}

bool wf_server_engine_is_full(const struct wf_meta_server *server,
                              const struct wf_server_engine *engine)
{
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[engine->ranks[i]];
        if (rank->presence != WF_PRESENT || wf_version_compare(rank->live, engine->current) != 0) {
            return false;
        }
    }
    return !wf_version_is_none(engine->current);
}

void wf_server_send_resume(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    rank->resume_asked = true;
    const struct wf_frame_resume resume = {.round = server->round.key,
                                           .version = server->engines[rank->engine].current};
    wf_server_send(server, rank, WF_FRAME_resume, &resume);
}

void wf_server_resume_engines(struct wf_meta_server *server)
{
    for (uint32_t e = 0; e < server->options.engines; e++) {
        const struct wf_server_engine *engine = &server->engines[e];
        bool reading = server->state == WF_SERVER_OPENED && engine->unit == WF_UNIT_UNDECIDED;
        bool dropping = server->state != WF_SERVER_IDLE && engine->unit == WF_UNIT_CUT;
        if (reading || dropping || !wf_server_engine_is_full(server, engine)) {
            continue;
        }
        for (uint32_t i = 0; i < engine->rank_count; i++) {
            struct wf_server_rank *rank = &server->ranks[engine->ranks[i]];
            if (!rank->serving && !rank->resume_asked) {
                wf_server_send_resume(server, rank);
            }
        }
    }
}

/* --- fills ------------------------------------------------------------------------------------ */
/* A fill that fails for a reason that lasts is not tried for ever: only while members change. */
static bool fill_may_work(struct wf_meta_server *server)
{
    if (server->fill_membership != server->membership) {
        server->fill_membership = server->membership;
        server->fill_failures = 0;
    }
    return server->options.fill != 0 && server->fill_failures < server->options.attempts_max;
}

/* The train side's weights are the newest committed version and stay so. */
static bool train_side_is_source(const struct wf_meta_server *server)
{
    struct wf_version committed = wf_server_committed(server);
    for (uint32_t i = 0; i < server->options.train_ranks; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if (rank->presence != WF_PRESENT || !rank->idle ||
            wf_version_compare(rank->idle_version, committed) != 0) {
            return false;
        }
    }
    return !wf_version_is_none(committed);
}

/* The newest committed version is there, whole, and nobody of the engine is on his way out. */
static bool is_replica(const struct wf_meta_server *server, const struct wf_server_engine *engine)
{
    return wf_server_engine_is_whole(server, engine) && wf_server_engine_is_full(server, engine) &&
           wf_version_compare(engine->current, wf_server_committed(server)) == 0 &&
           !wf_server_place_moves(server, engine);
}

/* The wanted-th replica, those of the reader's own group first: they hold its very tensors. Gives
 * its engine + 1; 0 if there are not so many, and then their number. */
static uint64_t find_replica(const struct wf_meta_server *server,
                             const struct wf_server_rank *reader, uint32_t wanted,
                             uint32_t *count_out)
{
    uint32_t count = 0;
    for (int own_group = 1; own_group >= 0; own_group--) {
        for (uint32_t e = 0; e < server->options.engines; e++) {
            const struct wf_server_engine *engine = &server->engines[e];
            bool same = server->ranks[engine->ranks[0]].group == reader->group;
            if (same == own_group && is_replica(server, engine) && count++ == wanted) {
                return e + 1ull;
            }
        }
    }
    *count_out = count;
    return 0;
}

/* --- versions that lie in files --- */
void wf_server_on_stored(struct wf_meta_server *server, struct wf_server_rank *rank,
                         const struct wf_frame_stored *stored)
{
    rank->stores = true;
    rank->storing = stored->writing != 0;
    rank->stored = stored->version;
    rank->storing_ns = wf_server_now(server);
    server->fill_failures = 0; /* what was not there may be there now */
}

/* A rank is writing the newest committed version where fills can read it. Not for ever. */
static const struct wf_server_rank *writer(const struct wf_meta_server *server)
{
    struct wf_version committed = wf_server_committed(server);
    for (uint32_t i = server->options.train_ranks; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if (rank->storing && rank->presence == WF_PRESENT &&
            wf_version_compare(rank->stored, committed) == 0 &&
            wf_server_now(server) - rank->storing_ns <= server->options.timeouts.join_ns) {
            return (server->options.fill & WF_FILL_STORE) != 0 ? rank : NULL;
        }
    }
    return NULL;
}

/* It lies there by what ranks told; or none of them has told anything: then its reader will see. */
static bool store_is_source(const struct wf_meta_server *server)
{
    struct wf_version committed = wf_server_committed(server);
    bool told = false;
    for (uint32_t i = server->options.train_ranks; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        told = told || rank->stores;
        if (rank->stores && !rank->storing && wf_version_compare(rank->stored, committed) == 0) {
            return true;
        }
    }
    return !told && !wf_version_is_none(committed);
}

/* The way to fill that is tried now: the train side, then the replicas, then the store, one after
 * the failure of the other, and round again. False: there is none. */
static bool choose_source(const struct wf_meta_server *server, const struct wf_server_rank *reader,
                          uint64_t *source_out)
{
    uint32_t allowed = server->options.fill, replicas = 0;
    uint32_t train = (allowed & WF_FILL_TRAINER) != 0 && train_side_is_source(server);
    if ((allowed & WF_FILL_REPLICA) != 0) {
        find_replica(server, reader, UINT32_MAX, &replicas);
    }
    uint32_t store = (allowed & WF_FILL_STORE) != 0 && store_is_source(server);
    if (train + replicas + store == 0) {
        return false;
    }
    uint32_t way = server->fill_failures % (train + replicas + store);
    *source_out = way < train              ? 0
                  : way < train + replicas ? find_replica(server, reader, way - train, &replicas)
                                           : WF_SOURCE_STORE;
    return true;
}

/* A rank without the newest committed version whose engine could take it; NULL: there is none. */
static const struct wf_server_rank *first_without(const struct wf_meta_server *server)
{
    struct wf_version committed = wf_server_committed(server);
    for (uint32_t e = 0; e < server->options.engines; e++) {
        const struct wf_server_engine *engine = &server->engines[e];
        for (uint32_t i = 0; i < engine->rank_count; i++) {
            const struct wf_server_rank *rank = &server->ranks[engine->ranks[i]];
            if (wf_version_compare(rank->live, committed) != 0 &&
                wf_server_engine_is_whole(server, engine)) {
                return rank;
            }
        }
    }
    return NULL;
}

const struct wf_server_rank *wf_server_waited_writer(const struct wf_meta_server *server)
{
    return server->state == WF_SERVER_IDLE && first_without(server) != NULL ? writer(server) : NULL;
}

/* --- the end ---------------------------------------------------------------------------------- */
/* Infer ranks that may still come back, or that are about to serve what they have. */
static bool waits_for_ranks(const struct wf_meta_server *server)
{
    for (uint32_t i = server->options.train_ranks; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        const struct wf_server_engine *engine = &server->engines[rank->engine];
        if (rank->presence == WF_PRESENT && !rank->evicted) {
            if (!rank->serving && wf_server_engine_is_full(server, engine)) {
                return true;
            }
        } else if (rank->presence != WF_LEFT &&
                   wf_server_now(server) - rank->absent_ns < server->options.timeouts.join_ns) {
            return true;
        }
    }
    return false;
}

static bool train_side_is_idle(const struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < server->options.train_ranks; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if (!rank->idle || rank->published_count > 0 || !rank->notice_told ||
            !wf_version_is_none(rank->released_alone)) {
            return false;
        }
    }
    return true;
}

static void end_if_over(struct wf_meta_server *server)
{
    if (!train_side_is_idle(server) || waits_for_ranks(server)) {
        return;
    }
    if (wf_server_waited_writer(server) != NULL) {
        return; /* somebody will be filled from there */
    }
    const struct wf_server_rank *without = NULL;
    struct wf_version committed = wf_server_committed(server);
    for (uint32_t i = server->options.train_ranks; i < server->rank_count; i++) {
        if (without == NULL && wf_version_compare(server->ranks[i].live, committed) != 0) {
            without = &server->ranks[i];
        }
    }
    char version[WF_VERSION_TEXT], who[WF_CULPRIT_TEXT];
    wf_version_format(committed, version);
    if (without == NULL) {
        wf_server_end(server, WF_CLOSED, "the job is complete: every engine has version %s",
                      version);
    } else {
        wf_server_rank_text(without, who, sizeof who);
        wf_server_end(server, WF_CLOSED, "the job is over: %.200s does not have version %s", who,
                      version);
    }
}

/* A version waits and no engine could take it: not for ever. */
static void wait_for_an_engine(struct wf_meta_server *server)
{
    uint64_t now = wf_server_now(server);
    if (server->no_engine_ns == 0) {
        server->no_engine_ns = now;
    }
    if (now - server->no_engine_ns <= server->options.timeouts.join_ns) {
        return;
    }
    for (uint32_t i = server->options.train_ranks; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if (rank->presence != WF_PRESENT) {
            char who[WF_CULPRIT_TEXT], limit[WF_DURATION_TEXT];
            wf_server_rank_text(rank, who, sizeof who);
            wf_duration_format(server->options.timeouts.join_ns, limit);
            wf_server_end(server, WF_PEER_LOST, "no engine was complete for %s: %.200s is missing",
                          limit, who);
            return;
        }
    }
}

/* Some train ranks have published a version and others, though present, have not: not for ever. */
static void wait_for_publishers(struct wf_meta_server *server)
{
    const struct wf_server_rank *first = NULL, *late = NULL;
    for (uint32_t i = 0; i < server->options.train_ranks; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if (rank->published_count > 0) {
            first = first == NULL ? rank : first;
        } else {
            late = late == NULL ? rank : late;
        }
    }
    uint64_t now = wf_server_now(server), limit_ns = server->options.timeouts.publish_ns;
    if (first == NULL || late == NULL) {
        server->publishing_ns = 0;
    } else if (server->publishing_ns == 0) {
        server->publishing_ns = now;
    } else if (limit_ns > 0 && now - server->publishing_ns > limit_ns) {
        char who[WF_CULPRIT_TEXT], limit[WF_DURATION_TEXT];
        wf_server_rank_text(late, who, sizeof who);
        wf_duration_format(limit_ns, limit);
        wf_server_end(server, WF_TIMED_OUT,
                      "%.200s has not published step %" PRIu64 " within %s of train rank %" PRIu32
                      "; see what holds it up, or raise timeouts.publish",
                      who, first->published[0].version.step, limit, first->rank);
    }
}

static bool an_engine_is_whole(const struct wf_meta_server *server)
{
    for (uint32_t e = 0; e < server->options.engines; e++) {
        if (wf_server_engine_is_whole(server, &server->engines[e])) {
            return true;
        }
    }
    return false;
}

static bool fill(struct wf_meta_server *server)
{
    struct wf_publication committed = {.version = wf_server_committed(server)};
    const struct wf_server_rank *reader = first_without(server);
    uint64_t source = 0;
    if (reader == NULL || !fill_may_work(server) || !choose_source(server, reader, &source)) {
        return false;
    }
    wf_server_open(server, &committed, true, source);
    return true;
}

void wf_server_idle(struct wf_meta_server *server)
{
    struct wf_publication next;
    wf_server_readmit(server);
    wf_server_resume_engines(server); /* after a restart: before all are there to plan */
    if (!wf_server_agree(server) || server->state != WF_SERVER_IDLE) {
        return;
    }
    wf_server_resume_engines(server);
    if (!wf_server_may_publish(server)) {
        if (server->state == WF_SERVER_IDLE) {
            fill(server); /* a replica may be there though the train side is not */
        }
        return;
    }
    wf_server_skip_obsolete(server);
    wait_for_publishers(server);
    if (server->state != WF_SERVER_IDLE) {
        return;
    }
    if (wf_server_candidate(server, &next)) {
        if (an_engine_is_whole(server)) {
            wf_server_open(server, &next, false, 0);
        } else {
            wait_for_an_engine(server);
        }
        return;
    }
    server->no_engine_ns = 0;
    if (!fill(server)) {
        end_if_over(server);
    }
}
