/* meta_server_status.c - a picture of the server at one moment, and sums over its rounds. It reads
 * the server's facts and changes none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/meta_server_internal.h"
#include "actors/meta_server_waits.h"

/* --- the past --------------------------------------------------------------------------------- */
static void describe_round(const struct wf_server_round *round,
                           const struct wf_frame_round_report *r, uint64_t engines,
                           struct wf_el_status_round *out)
{
    *out = (struct wf_el_status_round){.round = round->key,
                                       .fill = round->fill,
                                       .state = r->state,
                                       .culprit = r->culprit,
                                       .other = r->other,
                                       .opened_ns = round->opened_ns,
                                       .bytes = r->bytes,
                                       .grant_ns = r->grant_ns,
                                       .transfer_ns = r->transfer_ns,
                                       .verify_ns = r->verify_ns,
                                       .decide_ns = r->decide_ns,
                                       .flip_ns = r->flip_ns,
                                       .total_ns = r->total_ns,
                                       .pause_ns = r->pause_ns,
                                       .digest_mismatches = r->digest_mismatches,
                                       .engines = engines,
                                       .source = r->source,
                                       .replicas_checked = r->replicas_checked,
                                       .replicas_different = r->replicas_different};
    memcpy(out->label, r->label, sizeof out->label);
}

static void add_sums(struct wf_server_history *history, const struct wf_el_status_round *round)
{
    struct wf_frame_status *sums = &history->sums;
    bool committed = round->state == WF_REPORT_COMMITTED;
    sums->rounds_committed += committed;
    sums->rounds_aborted += !committed;
    sums->fills += committed && round->fill;
    if (committed && wf_version_compare(round->round.version, history->newest_committed) > 0) {
        history->newest_committed = round->round.version;
        sums->versions_committed++;
    }
    sums->bytes_moved += round->bytes;
    sums->digest_mismatches += round->digest_mismatches;
    sums->replicas_different += round->replicas_different;
    if (committed) { /* phases of a round that was cut short say nothing */
        sums->grant_ns += round->grant_ns;
        sums->transfer_ns += round->transfer_ns;
        sums->verify_ns += round->verify_ns;
        sums->decide_ns += round->decide_ns;
        sums->flip_ns += round->flip_ns;
        sums->total_ns += round->total_ns;
        sums->pause_ns += round->pause_ns;
        sums->pause_max_ns =
            round->pause_ns > sums->pause_max_ns ? round->pause_ns : sums->pause_max_ns;
    }
}

void wf_server_remember_round(struct wf_meta_server *server)
{
    struct wf_server_history *history = &server->history;
    size_t slots = sizeof history->rounds / sizeof history->rounds[0];
    struct wf_el_status_round *kept = &history->rounds[history->count++ % slots];
    const struct wf_frame_round_report *report = &server->round.report;
    describe_round(&server->round, report, report->engines_count, kept);
    add_sums(history, kept);
    history->ended_ns = wf_server_now(server);
}

/* --- now -------------------------------------------------------------------------------------- */
static const char *state_word(const struct wf_meta_server *server)
{
    switch (server->state) {
    case WF_SERVER_RECOVER:
        return "recovering";
    case WF_SERVER_IDLE:
        return "idle";
    case WF_SERVER_OPENED:
        return "opened";
    case WF_SERVER_CLOSING:
        return "closing";
    case WF_SERVER_ENDING:
        return "ending";
    default:
        return "ended";
    }
}

static const char *doing_in_round(const struct wf_meta_server *server,
                                  const struct wf_server_rank *rank)
{
    switch (server->engines[rank->engine].unit) {
    case WF_UNIT_UNDECIDED:
        return rank->vote == WF_VOTE_YES           ? "voted"
               : rank->vote == WF_VOTE_NO          ? "voted no"
               : rank->in_place && !rank->quiesced ? "pausing"
                                                   : "reading";
    case WF_UNIT_DECIDED:
        return !rank->quiesced  ? "pausing"
               : !rank->flipped ? "flipping"
               : !rank->serving ? "resuming"
                                : "serving";
    case WF_UNIT_CUT:
        return rank->acked ? "dropped" : "dropping";
    case WF_UNIT_OUT:
        break;
    }
    return NULL;
}

static const char *doing(const struct wf_meta_server *server, const struct wf_server_rank *rank)
{
    bool in_round = server->state == WF_SERVER_OPENED || server->state == WF_SERVER_CLOSING;
    const char *word = NULL;
    switch (rank->presence) {
    case WF_ABSENT:
        return rank->known ? "gone" : "not here yet";
    case WF_GREETED:
        return "joining";
    case WF_FENCED:
        return "lost";
    case WF_LEFT:
        return "left";
    case WF_PRESENT:
        break;
    }
    if (rank->evicted) {
        return "too late";
    }
    if (server->members_epoch != 0 && rank->planned_epoch != server->members_epoch) {
        return "planning";
    }
    if (rank->side == WF_TRAIN) {
        return rank->published_count > 0 ? "holding" : rank->idle ? "finished" : "training";
    }
    if (in_round && rank->member && !rank->lost) {
        word = doing_in_round(server, rank);
    }
    return word != NULL ? word : rank->storing ? "writing" : rank->serving ? "serving" : "paused";
}

static void describe_rank(const struct wf_meta_server *server, const struct wf_server_rank *rank,
                          struct wf_el_status_rank *out)
{
    uint64_t now = wf_server_now(server), lease = server->options.timeouts.lease_ns;
    uint64_t silent = rank->known && now > rank->heard_ns ? now - rank->heard_ns : 0;
    bool leased = rank->presence == WF_PRESENT || rank->presence == WF_GREETED;
    *out =
        (struct wf_el_status_rank){.side = rank->side,
                                   .rank = rank->rank,
                                   .engine = rank->engine,
                                   .incarnation = rank->incarnation,
                                   .pid = rank->pid,
                                   .presence = rank->presence,
                                   .heard_ns = silent,
                                   .lease_left_ns = leased && silent < lease ? lease - silent : 0,
                                   .live = rank->live,
                                   .serving = rank->side == WF_INFER && rank->serving,
                                   .bytes_peak = rank->bytes_peak};
    memcpy(out->host, rank->host, sizeof out->host);
    snprintf(out->doing, sizeof out->doing, "%s", doing(server, rank));
}

static void list_engines(const struct wf_meta_server *server, struct wf_frame_status *status)
{
    status->engines = calloc((size_t)server->options.engines + 1, sizeof status->engines[0]);
    WF_ASSERT(status->engines != NULL);
    for (uint32_t e = 0; e < server->options.engines; e++) {
        const struct wf_server_engine *engine = &server->engines[e];
        struct wf_el_status_engine *out = &status->engines[status->engines_count++];
        *out = (struct wf_el_status_engine){
            .engine = e, .ranks = engine->rank_count, .current = engine->current};
        for (uint32_t i = 0; i < engine->rank_count; i++) {
            const struct wf_server_rank *rank = &server->ranks[engine->ranks[i]];
            out->serving += rank->serving && rank->presence == WF_PRESENT;
        }
    }
}

static void list_rounds(const struct wf_meta_server *server, struct wf_frame_status *status)
{
    const struct wf_server_history *history = &server->history;
    uint64_t slots = sizeof history->rounds / sizeof history->rounds[0],
             now = wf_server_now(server);
    uint64_t first = history->count > slots ? history->count - slots : 0;
    status->rounds = calloc(WF_STATUS_ROUNDS, sizeof status->rounds[0]);
    WF_ASSERT(status->rounds != NULL);
    for (uint64_t i = first; i < history->count; i++) {
        status->rounds[status->rounds_count++] = history->rounds[i % slots];
    }
    if (server->state == WF_SERVER_OPENED || server->state == WF_SERVER_CLOSING) {
        struct wf_frame_round_report report = server->round.report;
        report.state = WF_REPORT_RUNNING;
        report.culprit = server->round.culprit;
        report.other = server->round.other;
        report.total_ns = now - server->round.opened_ns;
        describe_round(&server->round, &report, 0, &status->rounds[status->rounds_count++]);
    }
    for (uint32_t i = 0; i < status->rounds_count; i++) {
        status->rounds[i].opened_ns = now - status->rounds[i].opened_ns;
    }
}

static struct wf_version newest_stored(const struct wf_meta_server *server)
{
    struct wf_version newest = {0};
    for (uint32_t i = server->options.train_ranks; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if (rank->stores && !rank->storing && wf_version_compare(rank->stored, newest) > 0) {
            newest = rank->stored;
        }
    }
    return newest;
}

static uint32_t count_connections(const struct wf_meta_server *server)
{
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof server->conns / sizeof server->conns[0]; i++) {
        count += server->conns[i].count;
    }
    return count;
}

void wf_meta_server_status(struct wf_meta_server *server, uint32_t ranks_max,
                           struct wf_frame_status *out)
{
    *out = server->history.sums;
    snprintf(out->weft_version, sizeof out->weft_version, "%s", WEFT_VERSION);
    memcpy(out->job, server->job, sizeof out->job);
    snprintf(out->state, sizeof out->state, "%s", state_word(server));
    out->term = server->term;
    out->epoch = server->epoch;
    out->generation = server->generation;
    out->up_ns = wf_server_now(server) - server->started_ns;
    out->agreed = server->agreed;
    if (server->agreed) {
        out->plan = server->plan_report.input;
        out->plan_ops = server->plan_report.ops;
        out->plan_bytes = server->plan_report.bytes_moved;
    }
    out->committed = wf_server_committed(server);
    out->stored = newest_stored(server);
    out->train_ranks = server->options.train_ranks;
    out->infer_ranks = server->options.infer_ranks;
    out->connections = count_connections(server);
    out->connections_refused = server->refusals.total;
    list_engines(server, out);
    list_rounds(server, out);
    out->ranks_count = server->rank_count < ranks_max ? server->rank_count : ranks_max;
    out->ranks = calloc((size_t)out->ranks_count + 1, sizeof out->ranks[0]);
    out->waits = calloc(WF_STATUS_WAITS, sizeof out->waits[0]);
    WF_ASSERT(out->ranks != NULL && out->waits != NULL);
    for (uint32_t i = 0; i < out->ranks_count; i++) {
        describe_rank(server, &server->ranks[i], &out->ranks[i]);
    }
    out->waits_count = wf_server_waits(server, out->waits);
}

void wf_meta_server_status_fini(struct wf_frame_status *status)
{
    free(status->engines);
    free(status->ranks);
    free(status->rounds);
    free(status->waits);
    *status = (struct wf_frame_status){0};
}

void wf_server_on_status_request(struct wf_meta_server *server, struct wf_server_conn *conn,
                                 const struct wf_frame_status_request *request)
{
    struct wf_frame_status status;
    wf_meta_server_status(server, (uint32_t)request->ranks, &status);
    struct wf_payload *payload = NULL;
    while (wf_frame_payload(WF_FRAME_status, &status, &payload, NULL) == WF_NO_RESOURCE &&
           status.ranks_count > 0) {
        status.ranks_count /= 2; /* more than fit into one frame */
    }
    if (payload != NULL) {
        wf_server_send_observer(server, conn, payload);
        wf_payload_release(payload);
    }
    wf_meta_server_status_fini(&status);
}
