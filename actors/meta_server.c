/* meta_server.c - life of the MetaServer: connections, dispatch of frames, the tick, the end. */
#include "actors/meta_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/meta_server_internal.h"
#include "runtime/log.h"

enum { ATTEMPTS_DEFAULT = 3 };

uint64_t wf_server_now(const struct wf_meta_server *server)
{
    return wf_loop_now_ns(server->loop);
}

void wf_duration_format(uint64_t ns, char text_out[WF_DURATION_TEXT])
{
    if (ns >= 1000000000 && ns % 1000000000 == 0) {
        snprintf(text_out, WF_DURATION_TEXT, "%" PRIu64 " s", ns / 1000000000);
    } else {
        snprintf(text_out, WF_DURATION_TEXT, "%" PRIu64 " ms", ns / 1000000);
    }
}

void wf_server_blame(const struct wf_server_rank *rank, struct wf_culprit *out, const char *format,
                     ...)
{
    *out = (struct wf_culprit){.side = rank->side, .rank = rank->rank, .engine = rank->engine};
    memcpy(out->host, rank->host, sizeof out->host);
    va_list args;
    va_start(args, format);
    vsnprintf(out->reason, sizeof out->reason, format, args);
    va_end(args);
}

void wf_server_rank_text(const struct wf_server_rank *rank, char *text, size_t bytes)
{
    const char *host = rank->host[0] != '\0' ? rank->host : "unknown";
    if (rank->side == WF_TRAIN) {
        snprintf(text, bytes, "train rank %" PRIu32 " (host %s)", rank->rank, host);
    } else {
        snprintf(text, bytes, "infer rank %" PRIu32 " (host %s, engine %" PRIu32 ")", rank->rank,
                 host, rank->engine);
    }
}

/* --- connections ------------------------------------------------------------------------------ */
static void on_opened(struct wf_meta_server *server, const struct wf_wire_msg *wire)
{
    struct wf_server_conn *conn = wf_server_conn_open(server, wire->conn, wire->text);
    wf_handshake_open(&conn->handshake, server->env, conn->id, &server->token, server->term);
}

/* The connection ends. If it was a rank's, whoever waits for the place takes it. */
static void leave_rank(struct wf_meta_server *server, const struct wf_server_conn *conn)
{
    if (conn->kind == WF_CONN_RANK && conn->rank->conn == conn->id) {
        conn->rank->conn = 0;
        wf_server_on_rank_closed(server, conn->rank);
    }
}

static void on_closed(struct wf_meta_server *server, const struct wf_wire_msg *wire)
{
    uint64_t id = wire->conn;
    struct wf_server_conn *conn = wf_server_conn_find(server, id);
    if (conn != NULL && !conn->handshake.done && wire->status != WF_CLOSED) {
        wf_refusals_log(&server->refusals, server->loop, conn->address, wire->text);
    }
    if (conn != NULL) {
        leave_rank(server, conn);
    }
    wf_server_conn_forget(server, id);
}

/* --- dispatch --------------------------------------------------------------------------------- */
static void on_note(struct wf_meta_server *server, struct wf_server_rank *rank,
                    struct wf_frame_note *note)
{
    rank->bytes_peak = note->own_bytes_peak;
    note->side = rank->side; /* a rank speaks for itself only */
    note->rank = rank->rank;
    note->engine = rank->engine;
    if (wf_server_keep_note(rank, note)) {
        wf_server_send_observers(server, WF_FRAME_note, note);
    }
}

static bool on_rank_frame(struct wf_meta_server *server, struct wf_server_rank *rank,
                          struct wf_frame *frame)
{
    switch (frame->type) {
#define HANDLE(name)                                     \
    case WF_FRAME_##name:                                \
        wf_server_on_##name(server, rank, &frame->name); \
        return true;
        HANDLE(joined)
        HANDLE(heartbeat)
        HANDLE(leave)
        HANDLE(planned)
        HANDLE(placement)
        HANDLE(publish)
        HANDLE(idle)
        HANDLE(told)
        HANDLE(vote)
        HANDLE(quiesced)
        HANDLE(flipped)
        HANDLE(resumed)
        HANDLE(aborted)
        HANDLE(stored)
        HANDLE(replicas)
#undef HANDLE
    case WF_FRAME_note:
        on_note(server, rank, &frame->note);
        return true;
    default:
        return false;
    }
}

static void refuse(struct wf_meta_server *server, uint64_t conn, const struct wf_error *error)
{
    struct wf_frame_refused refused = {.status = error->status};
    memcpy(refused.text, error->text, sizeof refused.text);
    wf_server_send_on(server, conn, WF_FRAME_refused, &refused);
}

/* Nothing else of a stranger is looked at. */
static void on_proof(struct wf_meta_server *server, struct wf_server_conn *conn,
                     const struct wf_wire_msg *wire)
{
    struct wf_error error = {0};
    if (wf_handshake_check(&conn->handshake, server->env, conn->id, &server->token, server->job,
                           WF_CHANNEL_SERVER, wire->bytes, wire->len_bytes, &error) != WF_OK) {
        wf_refusals_log(&server->refusals, server->loop, conn->address, error.text);
        refuse(server, conn->id, &error);
        wf_server_conn_drop(server, conn->id);
    }
}

static void on_frame(struct wf_meta_server *server, const struct wf_wire_msg *wire)
{
    struct wf_server_conn *conn = wf_server_conn_find(server, wire->conn);
    if (conn == NULL) {
        return; /* closed by us; the frame was on its way */
    }
    struct wf_frame frame;
    struct wf_error error = {0};
    if (!conn->handshake.done) {
        on_proof(server, conn, wire);
        return;
    }
    enum wf_status status = wf_frame_decode(wire->bytes, wire->len_bytes, &frame, &error);
    bool expected = true;
    if (status == WF_OK) {
        if (conn->kind == WF_CONN_STRANGER && frame.type == WF_FRAME_hello) {
            wf_server_on_hello(server, conn, &frame);
        } else if (conn->kind == WF_CONN_OBSERVER && frame.type == WF_FRAME_status_request) {
            wf_server_on_status_request(server, conn, &frame.status_request);
        } else if (conn->kind == WF_CONN_OBSERVER && frame.type == WF_FRAME_look) {
            wf_server_on_look(server, conn);
        } else if (conn->kind == WF_CONN_RANK) {
            expected = on_rank_frame(server, conn->rank, &frame);
        } else {
            expected = (conn->kind == WF_CONN_OBSERVER && frame.type == WF_FRAME_leave) ||
                       (conn->kind == WF_CONN_CANDIDATE && frame.type == WF_FRAME_heartbeat);
        }
    }
    if (status == WF_OK && !expected) {
        status = wf_error_set(&error, WF_PROTOCOL, "frame %s was not expected here",
                              wf_frame_name(frame.type));
    }
    wf_frame_fini(&frame);
    conn = wf_server_conn_find(server, wire->conn);
    if (status != WF_OK && conn != NULL) {
        wf_refusals_log(&server->refusals, server->loop, conn->address, error.text);
        refuse(server, wire->conn, &error);
        leave_rank(server, conn);
        wf_server_conn_drop(server, wire->conn);
    }
}

/* After what is in the inbox by now: a crowd that answers together is looked at once. */
static void advance_soon(struct wf_meta_server *server)
{
    if (!server->advance_out) {
        server->advance_out = true;
        wf_send(&server->actor, &server->advance);
    }
}

/* A sign of life of a rank that has its place changes nothing that could be acted on, and with
 * thousands of ranks there are thousands of them in a second. */
static bool is_mere_beat(struct wf_meta_server *server, const struct wf_wire_msg *wire)
{
    const struct wf_server_conn *conn =
        wire->msg.kind == WF_WIRE_FRAME ? wf_server_conn_find(server, wire->conn) : NULL;
    return conn != NULL && conn->kind == WF_CONN_RANK && conn->rank->presence == WF_PRESENT &&
           wf_frame_peek(wire->bytes, wire->len_bytes) == WF_FRAME_heartbeat;
}

static enum wf_verdict on_message(struct wf_actor *self, struct wf_msg *msg)
{
    struct wf_meta_server *server = (struct wf_meta_server *)self;
    const struct wf_wire_msg *wire = (const struct wf_wire_msg *)msg;
    if (msg->kind == WF_SERVER_ADVANCE) {
        server->advance_out = false;
        wf_server_advance(server);
        return WF_KEEP;
    }
    if (msg->kind == WF_SERVER_SLICE) {
        server->slice_out = false;
        wf_server_pay_slice(server);
        return WF_KEEP;
    }
    if (server->state == WF_SERVER_ENDED) {
        return WF_FREE;
    }
    wf_server_check_absence(server);
    switch (msg->kind) {
    case WF_WIRE_OPENED:
        on_opened(server, wire);
        break;
    case WF_WIRE_FRAME:
        on_frame(server, wire);
        break;
    case WF_WIRE_CLOSED:
        on_closed(server, wire);
        break;
    default:
        WF_ASSERT(!"a message that the server knows");
    }
    if (!is_mere_beat(server, wire)) {
        advance_soon(server);
    }
    return WF_FREE;
}

/* --- journal and end -------------------------------------------------------------------------- */
bool wf_server_journal(struct wf_meta_server *server, const struct wf_journal_record *record)
{
    if (server->state >= WF_SERVER_ENDING) {
        return false; /* a record was refused before: nothing more is decided */
    }
    if (server->options.journal == NULL) {
        return true;
    }
    struct wf_journal_record full = *record;
    full.term = server->term;
    full.epoch = server->epoch;
    struct wf_error error = {.status = WF_OK};
    enum wf_status status = server->options.journal(server->options.user, &full, &error);
    if (status != WF_OK) {
        wf_server_stop(server, status,
                       "the journal cannot be written, so nothing may be decided: %.600s; make "
                       "room, then start the server again: the ranks wait for it",
                       error.text[0] != '\0' ? error.text : wf_status_text(status));
    }
    return status == WF_OK;
}

void wf_server_raise_epoch(struct wf_meta_server *server)
{
    server->epoch++; /* within a term: the next server's term is higher */
}

void wf_server_membership_changed(struct wf_meta_server *server)
{
    server->membership++;
    wf_server_raise_epoch(server);
}

/* What everybody gets at the end: a goodbye, or why there is none. */
static void send_end(struct wf_meta_server *server, uint64_t conn)
{
    if (server->end.status == WF_CLOSED) {
        struct wf_frame_leave leave = {0};
        snprintf(leave.reason, sizeof leave.reason, "%.*s", WF_REASON_MAX - 1, server->end.text);
        wf_server_send_on(server, conn, WF_FRAME_leave, &leave);
    } else {
        refuse(server, conn, &server->end);
    }
}

/* False: it is ending already, and the first reason counts. */
static bool begin_end(struct wf_meta_server *server, enum wf_status status, const char *format,
                      va_list args)
{
    if (server->state >= WF_SERVER_ENDING) {
        return false;
    }
    wf_error_vset(&server->end, status, format, args);
    server->state = WF_SERVER_ENDING;
    return true;
}

void wf_server_end(struct wf_meta_server *server, enum wf_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bool begins = begin_end(server, status, format, args);
    va_end(args);
    if (!begins) {
        return;
    }
    server->ending_ns = wf_server_now(server);
    for (uint32_t i = 0; i < server->rank_count; i++) {
        if (server->ranks[i].conn != 0) {
            send_end(server, server->ranks[i].conn);
        }
    }
    static const enum wf_conn_kind others[] = {WF_CONN_CANDIDATE, WF_CONN_OBSERVER};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        for (struct wf_server_conn *conn = server->conns[others[i]].first; conn != NULL;
             conn = conn->after) {
            send_end(server, conn->id);
        }
    }
}

void wf_server_stop(struct wf_meta_server *server, enum wf_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    server->stops |= begin_end(server, status, format, args);
    va_end(args);
}

static void close_all(struct wf_meta_server *server)
{
    for (int i = 0; i < WF_SERVER_BUCKETS; i++) {
        while (server->buckets[i] != NULL) {
            wf_server_conn_drop(server, server->buckets[i]->id);
        }
    }
    if (server->listener != 0) {
        server->env->ops->close(server->env, server->listener);
        server->listener = 0;
    }
    wf_timer_cancel(server->loop, &server->tick);
}

/* ENDING: over when nobody who lives is connected any more, or when waiting for goodbyes took too
 * long. */
static void ending(struct wf_meta_server *server)
{
    bool waits = false;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        waits = waits || (rank->conn != 0 && !wf_server_is_silent(server, rank));
    }
    uint64_t waited = wf_server_now(server) - server->ending_ns;
    if (!server->stops && waits && waited < server->options.timeouts.join_ns) {
        return;
    }
    if (!server->stops && server->options.journal != NULL) {
        const struct wf_journal_record record = {
            .kind = WF_JOURNAL_END, .term = server->term, .epoch = server->epoch};
        struct wf_error error = {0};
        enum wf_status status = server->options.journal(server->options.user, &record, &error);
        if (status != WF_OK) { /* all know it anyway */
            wf_log(wf_loop_log(server->loop), WF_LOG_WARN,
                   "the job is over, but its end cannot be journalled (%.600s): a server that is "
                   "started on this journal waits for the job's ranks",
                   error.text[0] != '\0' ? error.text : wf_status_text(status));
        }
    }
    close_all(server);
    server->state = WF_SERVER_ENDED;
    if (server->options.ended != NULL) {
        server->options.ended(server->options.user, &server->end);
    }
}

/* --- the turn --------------------------------------------------------------------------------- */
void wf_server_advance(struct wf_meta_server *server)
{
    if (server->state < WF_SERVER_ENDING && wf_server_is_away(server)) {
        return;
    }
    wf_server_report_progress(server);
    do {
        server->again = false;
        switch (server->state) {
        case WF_SERVER_RECOVER:
            wf_server_recover(server);
            break;
        case WF_SERVER_IDLE:
            wf_server_idle(server);
            break;
        case WF_SERVER_OPENED:
            wf_server_opened(server);
            break;
        case WF_SERVER_CLOSING:
            wf_server_closing(server);
            break;
        case WF_SERVER_ENDING:
            ending(server);
            break;
        case WF_SERVER_ENDED:
            break;
        }
    } while (server->again);
}

static void arm_tick(struct wf_meta_server *server)
{
    const struct wf_timeouts *t = &server->options.timeouts;
    uint64_t period = t->repeat_ns < t->heartbeat_ns ? t->repeat_ns : t->heartbeat_ns;
    wf_timer_arm(server->loop, &server->tick, wf_server_now(server) + period / 2 + 1);
}

static void on_tick(struct wf_timer *timer)
{
    struct wf_meta_server *server = WF_CONTAINER(timer, struct wf_meta_server, tick);
    uint64_t now = wf_server_now(server);
    wf_server_check_absence(server);
    if (server->state < WF_SERVER_ENDING) {
        wf_server_drop_silent(server);
        wf_server_check_leases(server);
        if (now >= server->repeat_ns && server->away_ns == 0) {
            server->repeat_ns = now + server->options.timeouts.repeat_ns;
            server->repeats++;
            for (uint32_t i = 0; i < server->rank_count; i++) {
                wf_server_repeat(server, &server->ranks[i]);
            }
        }
    }
    wf_server_advance(server);
    if (server->state != WF_SERVER_ENDED) {
        arm_tick(server);
    }
}

/* --- life ------------------------------------------------------------------------------------- */
static void make_members(struct wf_meta_server *server)
{
    const struct wf_server_options *o = &server->options;
    server->rank_count = o->train_ranks + o->infer_ranks;
    server->ranks = calloc(server->rank_count, sizeof server->ranks[0]);
    server->engines = calloc(o->engines, sizeof server->engines[0]);
    server->engine_ranks = calloc(o->infer_ranks, sizeof server->engine_ranks[0]);
    server->units = calloc(o->engines, sizeof server->units[0]);
    server->told_units = calloc(o->engines, sizeof server->told_units[0]);
    server->members = calloc(server->rank_count, sizeof server->members[0]);
    WF_ASSERT(server->ranks && server->engines && server->engine_ranks && server->units &&
              server->told_units && server->members);
    for (uint32_t i = 0; i < server->rank_count; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        rank->side = i < o->train_ranks ? WF_TRAIN : WF_INFER;
        rank->rank = rank->side == WF_TRAIN ? i : i - o->train_ranks;
        rank->engine = rank->side == WF_TRAIN ? 0 : o->engine_of[rank->rank];
        rank->absent_ns = server->started_ns;
        rank->notice_told = true; /* there is none yet */
    }
    uint32_t at = 0;
    for (uint32_t e = 0; e < o->engines; e++) {
        server->engines[e] =
            (struct wf_server_engine){.engine = e, .ranks = &server->engine_ranks[at]};
        for (uint32_t r = 0; r < o->infer_ranks; r++) {
            if (o->engine_of[r] == e) {
                server->engine_ranks[at++] = o->train_ranks + r;
                server->engines[e].rank_count++;
            }
        }
    }
}

/* Each rank is in an engine, and each engine has a rank. */
static enum wf_status check_engines(const struct wf_server_options *o, struct wf_error *error)
{
    bool has_rank[WF_ENGINES_MAX] = {false};
    for (uint32_t r = 0; r < o->infer_ranks; r++) {
        if (o->engine_of[r] >= o->engines) {
            return wf_error_set(error, WF_INVALID,
                                "infer rank %" PRIu32 " is in engine %" PRIu32 " of %" PRIu32
                                ": engines are numbered from 0",
                                r, o->engine_of[r], o->engines);
        }
        has_rank[o->engine_of[r]] = true;
    }
    for (uint32_t e = 0; e < o->engines; e++) {
        if (!has_rank[e]) {
            return wf_error_set(error, WF_INVALID,
                                "engine %" PRIu32 " of %" PRIu32 " has no rank: give it one, or "
                                "say fewer engines",
                                e, o->engines);
        }
    }
    return WF_OK;
}

static enum wf_status check_options(const struct wf_server_options *o, struct wf_error *error)
{
    if (strlen(o->job) == 0 || strlen(o->job) >= WF_JOB_NAME_MAX) {
        return wf_error_set(error, WF_INVALID, "the job's name must have 1 to %d bytes",
                            WF_JOB_NAME_MAX - 1);
    }
    if (o->train_ranks == 0 || o->infer_ranks == 0 || o->train_ranks > WF_RANKS_MAX / 2 ||
        o->infer_ranks > WF_RANKS_MAX / 2 || o->engines == 0 || o->engines > WF_ENGINES_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "a job needs 1 to %d ranks on each side and 1 to %d engines, not "
                            "%" PRIu32 ", %" PRIu32 " and %" PRIu32,
                            WF_RANKS_MAX / 2, WF_ENGINES_MAX, o->train_ranks, o->infer_ranks,
                            o->engines);
    }
    return check_engines(o, error);
}

enum wf_status wf_meta_server_new(struct wf_loop *loop, const struct wf_server_options *options,
                                  char bound_out[WF_ADDRESS_MAX],
                                  struct wf_meta_server **server_out, struct wf_error *error)
{
    enum wf_status status = check_options(options, error);
    if (status != WF_OK) {
        return status;
    }
    struct wf_meta_server *server = calloc(1, sizeof *server);
    WF_ASSERT(server != NULL);
    server->loop = loop;
    server->env = wf_loop_env(loop);
    server->options = *options;
    snprintf(server->job, sizeof server->job, "%s", options->job);
    if (server->options.attempts_max == 0) {
        server->options.attempts_max = ATTEMPTS_DEFAULT;
    }
    server->started_ns = server->tick_ns = wf_server_now(server);
    make_members(server);
    server->options.engine_of = NULL; /* borrowed for this call only */
    server->options.job = server->job;
    if (options->token != NULL) {
        server->token = *options->token;
    }
    server->options.token = NULL;
    wf_actor_init(&server->actor, loop, "meta_server", on_message);
    server->advance = (struct wf_msg){.kind = WF_SERVER_ADVANCE, .lane = WF_LANE_CONTROL};
    server->slice = (struct wf_msg){.kind = WF_SERVER_SLICE, .lane = WF_LANE_CONTROL};
    server->tick = (struct wf_timer){.fire = on_tick, .name = "meta_server tick"};
    server->epoch = 1;
    status = wf_server_recover_begin(server, error);
    server->options.found = NULL;
    if (status == WF_OK) {
        status = server->env->ops->listen(server->env, &server->actor, options->listen, bound_out,
                                          &server->listener, error);
    }
    if (status == WF_OK) {
        server->env->ops->guard(server->env, server->listener, options->foreign);
    }
    if (status != WF_OK) {
        wf_meta_server_free(server);
        return status;
    }
    arm_tick(server);
    *server_out = server;
    return WF_OK;
}

void wf_meta_server_close(struct wf_meta_server *server, const char *reason)
{
    wf_server_end(server, WF_CLOSED, "%s", reason);
}

void wf_meta_server_stop(struct wf_meta_server *server, const char *reason)
{
    wf_server_stop(server, WF_CLOSED, "%s", reason);
    wf_server_advance(server);
}

void wf_meta_server_free(struct wf_meta_server *server)
{
    if (server == NULL) {
        return;
    }
    close_all(server);
    wf_server_recover_end(server);
    wf_actor_close(&server->actor);
    wf_actor_fini(&server->actor);
    wf_server_shared_drop(&server->members_frame);
    wf_server_shared_drop(&server->open_frame);
    for (uint32_t i = 0; i < server->rank_count; i++) {
        wf_server_forget_note(&server->ranks[i]);
    }
    wf_server_place_fini(server);
    wf_server_replicas_fini(server);
    wf_server_forget_reports(server);
    free(server->ranks);
    free(server->engines);
    free(server->engine_ranks);
    free(server->units);
    free(server->told_units);
    free(server->members);
    free(server->groups);
    wf_token_wipe(&server->token);
    free(server);
}
