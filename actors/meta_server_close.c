/* meta_server_close.c - the second half of a round: pause, flip, resume; the barrier of an abort;
 * telling the train side; and repeating what was not answered.
 *
 * Once a unit is decided nothing can undo it: a member that misses a deadline then is evicted (no
 * longer renewed, so that its lease runs out and it is fenced) and its engine stays paused until it
 * has the version. The train side is told after the barrier: when every member has flipped, has
 * answered ABORTED, or is gone.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/meta_server_internal.h"

/* --- after the decision ------------------------------------------------------------------------
 */
static void send_flip(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    const struct wf_frame_flip flip = {.round = server->round.key};
    wf_server_send(server, rank, WF_FRAME_flip, &flip);
}

void wf_server_evict(struct wf_meta_server *server, struct wf_server_rank *rank, const char *what,
                     uint64_t limit_ns)
{
    if (rank->evicted) {
        return;
    }
    char version[WF_VERSION_TEXT], limit[WF_DURATION_TEXT];
    struct wf_culprit why;
    wf_version_format(server->round.key.version, version);
    wf_duration_format(limit_ns, limit);
    wf_server_blame(rank, &why, "did not %s version %s within %s", what, version, limit);
    wf_server_blame_once(server, &why);
    rank->evicted = true;
    rank->absent_ns = wf_server_now(server);
}

/* Evicts the members of a unit that have not done what `done` looks at. */
static void evict_late(struct wf_meta_server *server, struct wf_server_engine *engine,
                       bool (*done)(const struct wf_server_rank *), const char *what,
                       uint64_t limit_ns)
{
    if (wf_server_now(server) < engine->deadline_ns) {
        return;
    }
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        struct wf_server_rank *rank = wf_server_member_at(server, engine, i);
        if (rank != NULL && !rank->lost && !done(rank)) {
            wf_server_evict(server, rank, what, limit_ns);
        }
    }
}

static bool has_quiesced(const struct wf_server_rank *rank)
{
    return rank->quiesced;
}
static bool has_flipped(const struct wf_server_rank *rank)
{
    return rank->flipped;
}
static bool has_acked(const struct wf_server_rank *rank)
{
    return rank->acked;
}
static bool is_serving(const struct wf_server_rank *rank)
{
    return rank->serving;
}

/* True if every member has done it or is gone. */
static bool all_have(struct wf_meta_server *server, const struct wf_server_engine *engine,
                     bool (*done)(const struct wf_server_rank *))
{
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        const struct wf_server_rank *rank = wf_server_member_at(server, engine, i);
        if (rank != NULL && !rank->lost && !done(rank)) {
            return false;
        }
    }
    return true;
}

void wf_server_flip_when_quiesced(struct wf_meta_server *server, struct wf_server_engine *engine)
{
    const struct wf_timeouts *t = &server->options.timeouts;
    if (engine->unit != WF_UNIT_DECIDED) {
        return;
    }
    if (!engine->flip_sent) {
        if (!all_have(server, engine, has_quiesced)) {
            evict_late(server, engine, has_quiesced, "stop serving for", t->quiesce_ns);
            return;
        }
        engine->flip_sent = true;
        engine->deadline_ns = wf_server_now(server) + t->flip_ns;
        if (server->round.flip_sent_ns == 0) {
            server->round.flip_sent_ns = wf_server_now(server);
        }
        for (uint32_t i = 0; i < engine->rank_count; i++) {
            struct wf_server_rank *rank = wf_server_member_at(server, engine, i);
            if (rank != NULL && !rank->lost) {
                send_flip(server, rank);
            }
        }
    }
    if (!all_have(server, engine, has_flipped)) {
        evict_late(server, engine, has_flipped, "flip to", t->flip_ns);
    } else if (!wf_server_engine_is_full(server, engine)) {
        return; /* paused until a fill, or the next version */
    } else if (!engine->resuming) {
        engine->resuming = true; /* wf_server_resume_engines sends it in this turn */
        engine->deadline_ns = wf_server_now(server) + t->flip_ns;
    } else {
        evict_late(server, engine, is_serving, "resume with", t->flip_ns);
    }
}

/* Past the barrier: nobody reads for this round any more. */
static bool unit_is_closed(struct wf_meta_server *server, struct wf_server_engine *engine)
{
    switch (engine->unit) {
    case WF_UNIT_OUT:
        return true;
    case WF_UNIT_UNDECIDED:
        return false;
    case WF_UNIT_DECIDED:
        return engine->flip_sent && all_have(server, engine, has_flipped);
    case WF_UNIT_CUT:
        if (!all_have(server, engine, has_acked)) {
            evict_late(server, engine, has_acked, "drop", server->options.timeouts.flip_ns);
            return false;
        }
        return true;
    }
    return true;
}

static bool unit_resumed(struct wf_meta_server *server, const struct wf_server_engine *engine)
{
    return engine->unit != WF_UNIT_DECIDED || !wf_server_engine_is_full(server, engine) ||
           all_have(server, engine, is_serving);
}

/* --- telling the train side ---------------------------------------------------------------------
 */
const struct wf_round_key *wf_server_notice_round(const struct wf_meta_server *server)
{
    return server->notice.type == WF_FRAME_released        ? &server->notice.released.round
           : server->notice.type == WF_FRAME_round_aborted ? &server->notice.aborted.round
                                                           : NULL;
}

void wf_server_send_notice(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    if (server->notice.type == WF_FRAME_released) {
        wf_server_send(server, rank, WF_FRAME_released, &server->notice.released);
    } else if (server->notice.type == WF_FRAME_round_aborted) {
        wf_server_send(server, rank, WF_FRAME_round_aborted, &server->notice.aborted);
    }
}

/* A train rank was lost: this version ends with its generation, but the same weights are published
 * anew under the next one, so nobody may train on meanwhile. */
static bool comes_again(const struct wf_meta_server *server)
{
    return server->generation_due && !server->round.fill && !server->round.superseded;
}

/* A failed attempt is tried again while the train side still holds the version. */
static bool tries_again(const struct wf_meta_server *server)
{
    return !server->round.fill && !server->round.superseded && !server->generation_due &&
           !server->round.withdrawn && server->attempt < server->options.attempts_max;
}

uint32_t wf_server_decided_units(struct wf_meta_server *server)
{
    uint32_t count = 0;
    for (uint32_t e = 0; e < server->options.engines; e++) {
        if (server->engines[e].unit == WF_UNIT_DECIDED) {
            server->units[count++].engine = e;
        }
    }
    return count;
}

void wf_server_tell_train_side(struct wf_meta_server *server)
{
    struct wf_server_round *round = &server->round;
    struct wf_version version = round->key.version;
    uint32_t decided = wf_server_decided_units(server);
    bool over = true;
    if (decided > 0) {
        memcpy(server->told_units, server->units, decided * sizeof server->units[0]);
        server->notice.type = WF_FRAME_released;
        server->notice.released = (struct wf_frame_released){.round = round->key,
                                                             .version = version,
                                                             .engines = server->told_units,
                                                             .engines_count = decided};
    } else {
        over = !tries_again(server);
        server->notice.type = WF_FRAME_round_aborted;
        server->notice.aborted = (struct wf_frame_round_aborted){
            .round = round->key, .again = !over || comes_again(server), .culprit = round->culprit};
        if (over && !round->fill) {
            server->given_up = version;
        }
    }
    round->noticed = true;
    server->superseded_last = round->superseded;
    for (uint32_t i = 0; i < server->options.train_ranks; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        if (over) {
            wf_server_forget_published(rank, version);
        }
        rank->notice_told = false;
        wf_server_send_notice(server, rank);
    }
}

/* --- the state --- */
void wf_server_closing(struct wf_meta_server *server)
{
    bool closed = true, resumed = true;
    for (uint32_t e = 0; e < server->options.engines; e++) {
        struct wf_server_engine *engine = &server->engines[e];
        wf_server_flip_when_quiesced(server, engine);
        closed = unit_is_closed(server, engine) && closed;
    }
    wf_server_resume_engines(server);
    if (!closed) {
        return;
    }
    if (server->round.source > 0) {
        server->round.noticed = true; /* the train side has no part in it */
    } else if (!server->round.noticed) {
        wf_server_tell_train_side(server);
    }
    for (uint32_t e = 0; e < server->options.engines; e++) {
        resumed = unit_resumed(server, &server->engines[e]) && resumed;
    }
    bool committed = wf_server_decided_units(server) > 0;
    if (resumed && server->round.resumed_ns == 0) {
        server->round.resumed_ns = wf_server_now(server);
    }
    if (resumed && (!committed || wf_server_replicas_closed(server))) {
        wf_server_report_round(server, committed);
        if (server->round.fill) {
            bool failed = !committed && !server->round.superseded;
            server->fill_failures = committed ? 0 : server->fill_failures + failed;
        }
        server->state = WF_SERVER_IDLE;
        server->again = true;
    }
}

/* --- answers --- */
void wf_server_on_quiesced(struct wf_meta_server *server, struct wf_server_rank *rank,
                           const struct wf_frame_quiesced *quiesced)
{
    if (wf_server_is_member(server, rank, &quiesced->round) && rank->side == WF_INFER &&
        (rank->in_place || server->engines[rank->engine].unit == WF_UNIT_DECIDED)) {
        rank->quiesced = true;
    }
}

void wf_server_on_flipped(struct wf_meta_server *server, struct wf_server_rank *rank,
                          const struct wf_frame_flipped *flipped)
{
    if (!wf_server_is_member(server, rank, &flipped->round) || rank->side != WF_INFER ||
        rank->flipped || !server->engines[rank->engine].flip_sent) {
        return;
    }
    rank->flipped = true;
    rank->live = flipped->live;
    if (wf_version_compare(flipped->live, server->round.key.version) != 0) {
        char version[WF_VERSION_TEXT];
        struct wf_culprit why;
        wf_version_format(server->round.key.version, version);
        wf_server_blame(rank, &why, "could not write version %s into its weights", version);
        wf_server_blame_once(server, &why);
    }
    if (flipped->flip_ns > server->round.report.flip_ns) {
        server->round.report.flip_ns = flipped->flip_ns;
    }
}

void wf_server_on_resumed(struct wf_meta_server *server, struct wf_server_rank *rank,
                          const struct wf_frame_resumed *resumed)
{
    if (rank->presence != WF_PRESENT || rank->side != WF_INFER || !rank->resume_asked ||
        !wf_round_key_equal(&resumed->round, &server->round.key)) {
        return;
    }
    rank->serving = true;
    if (rank->member && resumed->pause_ns > server->round.report.pause_ns) {
        server->round.report.pause_ns = resumed->pause_ns;
    }
}

void wf_server_on_aborted(struct wf_meta_server *server, struct wf_server_rank *rank,
                          const struct wf_frame_aborted *aborted)
{
    if (wf_server_is_member(server, rank, &aborted->round) && rank->side == WF_INFER &&
        server->engines[rank->engine].unit == WF_UNIT_CUT) {
        rank->acked = true;
        if (rank->in_place) {
            rank->live = aborted->live; /* what it was, or nothing */
        }
    }
}

/* --- repeating ----------------------------------------------------------------------------------
 */
static void repeat_round(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    const struct wf_server_engine *engine = &server->engines[rank->engine];
    if (rank->side == WF_TRAIN || rank->source) {
        if (server->state == WF_SERVER_OPENED) {
            wf_server_repeat_open(server, rank);
        }
        return;
    }
    switch (engine->unit) {
    case WF_UNIT_OUT:
        break;
    case WF_UNIT_UNDECIDED:
        if (rank->vote == WF_VOTE_NONE) {
            wf_server_repeat_open(server, rank);
            if (rank->in_place && engine->permitted) {
                wf_server_send_permit(server, rank);
            }
        }
        break;
    case WF_UNIT_DECIDED:
        if (!rank->quiesced) {
            wf_server_send_decide(server, rank);
        } else if (engine->flip_sent && !rank->flipped) {
            send_flip(server, rank);
        }
        break;
    case WF_UNIT_CUT:
        if (!rank->acked) {
            wf_server_send_abort(server, rank);
        }
        break;
    }
}

void wf_server_repeat(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    if (rank->presence == WF_GREETED) {
        wf_server_send_welcome(server, rank);
        return;
    }
    if (rank->presence != WF_PRESENT || server->state >= WF_SERVER_ENDING ||
        server->state == WF_SERVER_RECOVER) {
        return;
    }
    rank->table_told = false;
    if (server->members_epoch != 0 && !server->members_due &&
        rank->planned_epoch != server->members_epoch) {
        wf_server_repeat_members(server, rank);
    }
    if (rank->side == WF_TRAIN) {
        if (server->generation > 0 && !server->generation_due && !rank->generation_told) {
            wf_server_send_generation(server, rank);
        }
        if (!rank->notice_told) {
            wf_server_send_notice(server, rank);
        }
        if (!wf_version_is_none(rank->released_alone)) {
            wf_server_release_alone(server, rank, rank->released_alone);
        }
    } else if (rank->resume_asked && !rank->serving &&
               wf_server_engine_is_full(server, &server->engines[rank->engine])) {
        wf_server_send_resume(server, rank);
    }
    if ((rank->member || rank->source) && !rank->lost && server->state != WF_SERVER_IDLE) {
        repeat_round(server, rank);
    }
    wf_server_replicas_repeat(server, rank); /* behind OPEN, if that is repeated */
}
