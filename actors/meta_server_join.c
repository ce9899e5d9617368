/* meta_server_join.c - who is who: HELLO, identity, groups, WELCOME and JOINED, leases, fencing.
 *
 * One identity (side, rank) has one incarnation that speaks for it. A HELLO of another incarnation
 * is the death of the first, at once, if the first is dead for all we know: never seen, fenced,
 * left, or its connection is closed. While the first has an open connection the newcomer waits as a
 * candidate: the next sign of life of the first refuses it by name, the end of the first's
 * connection or lease admits it. An incarnation that was replaced is refused for ever, so two
 * processes with one identity do not take turns.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/meta_server_internal.h"

static void send_refused(struct wf_meta_server *server, struct wf_server_conn *conn,
                         const struct wf_error *error)
{
    struct wf_frame_refused refused = {.status = error->status};
    memcpy(refused.text, error->text, sizeof refused.text);
    wf_refusals_log(&server->refusals, server->loop, conn->address, error->text);
    wf_frame_send(server->env, conn->id, WF_FRAME_refused, &refused, -1);
    wf_server_conn_drop(server, conn->id);
}

/* Ranks of one engine pause together. */
static const struct wf_server_rank *rank_of_other_mode(const struct wf_meta_server *server,
                                                       const struct wf_server_rank *rank,
                                                       const struct wf_frame_hello *hello)
{
    const struct wf_server_engine *engine = &server->engines[rank->engine];
    for (uint32_t i = 0; rank->side == WF_INFER && i < engine->rank_count; i++) {
        const struct wf_server_rank *other = &server->ranks[engine->ranks[i]];
        bool here = other->presence == WF_PRESENT || other->presence == WF_GREETED;
        if (other != rank && here && other->in_place != (hello->mode == WF_MODE_IN_PLACE)) {
            return other;
        }
    }
    return NULL;
}

static enum wf_status check_identity(const struct wf_meta_server *server,
                                     const struct wf_frame_hello *hello,
                                     struct wf_server_rank **rank_out, struct wf_error *error)
{
    const struct wf_server_options *o = &server->options;
    uint32_t count = hello->side == WF_TRAIN ? o->train_ranks : o->infer_ranks;
    const char *side = wf_side_name(hello->side);
    if (hello->rank >= count) {
        return wf_error_set(error, WF_REFUSED,
                            "%s rank %" PRIu64 " was refused: this job has %s ranks 0 to %" PRIu32
                            ": start it with the server's job file",
                            side, hello->rank, side, count - 1);
    }
    struct wf_server_rank *rank =
        &server->ranks[(hello->side == WF_TRAIN ? 0 : o->train_ranks) + hello->rank];
    if (hello->side == WF_INFER && hello->engine != rank->engine) {
        return wf_error_set(error, WF_REFUSED,
                            "infer rank %" PRIu64 " says it is in engine %" PRIu64
                            ", this job has it in engine %" PRIu32 ": start it with the same job",
                            hello->rank, hello->engine, rank->engine);
    }
    const struct wf_server_rank *other = rank_of_other_mode(server, rank, hello);
    if (other != NULL) {
        return wf_error_set(error, WF_DISAGREE,
                            "infer rank %" PRIu64 " is %s, infer rank %" PRIu32
                            " of the same engine is not: give all its ranks one mode",
                            hello->rank, other->in_place ? "staged" : "updated in place",
                            other->rank);
    }
    for (uint32_t i = 0; i < WF_RETIRED_MAX && i < rank->retired_count; i++) {
        if (rank->retired[i] == hello->incarnation) {
            return wf_error_set(error, WF_STALE,
                                "this process was replaced as %s rank %" PRIu64 " by pid %" PRIu64
                                " on host %s: end it",
                                side, hello->rank, rank->pid, rank->host);
        }
    }
    *rank_out = rank;
    return WF_OK;
}

/* What was proven is what is said. */
static bool is_whom_it_proved(const struct wf_meta_server *server,
                              const struct wf_frame_prove *proven,
                              const struct wf_frame_hello *hello)
{
    return !server->token.is_set ||
           (proven->role == hello->role && proven->side == hello->side &&
            proven->rank == hello->rank && proven->incarnation == hello->incarnation);
}

static enum wf_status check_hello(const struct wf_meta_server *server,
                                  const struct wf_server_conn *conn,
                                  const struct wf_frame_hello *hello, struct wf_error *error)
{
    if (!is_whom_it_proved(server, &conn->handshake.prove, hello)) {
        return wf_error_set(error, WF_REFUSED,
                            "the hello names another process than the proof before it");
    }
    enum wf_status status = wf_protocol_check(hello->proto_min, hello->proto_max, error);
    if (status != WF_OK) {
        return status;
    }
    bool any = hello->role == WF_ROLE_OBSERVER && hello->job[0] == '\0';
    if (!any && strcmp(hello->job, server->job) != 0) {
        return wf_error_set(error, WF_REFUSED,
                            "this MetaServer serves job \"%s\", not \"%s\": check the address",
                            server->job, hello->job);
    }
    if (wf_server_term_of(hello) >= WF_TERM_MAX) {
        return wf_error_set(error, WF_REFUSED,
                            "it remembers term %" PRIu64 ", the last that there is: no server "
                            "can be above it; start the whole job anew",
                            wf_server_term_of(hello));
    }
    if (server->state >= WF_SERVER_ENDING) {
        return wf_error_set(error, WF_CLOSED, "the job is over: %.900s", server->end.text);
    }
    return WF_OK;
}

/* A group states its recipe once: all who name the group must mean the same. */
static enum wf_status join_group(struct wf_meta_server *server, const struct wf_frame_hello *hello,
                                 uint32_t *group_out, struct wf_error *error)
{
    for (uint32_t g = 0; g < server->group_count; g++) {
        const struct wf_el_group *group = &server->groups[g];
        if (strcmp(group->name, hello->group) != 0) {
            continue;
        }
        if (group->side != hello->side || strcmp(group->spec, hello->spec) != 0 ||
            !wf_hash_equal(group->model, hello->model)) {
            char theirs[WF_HASH_TEXT], ours[WF_HASH_TEXT];
            wf_hash_format(hello->model, theirs);
            wf_hash_format(group->model, ours);
            return wf_error_set(error, WF_DISAGREE,
                                "group \"%s\": %s rank %" PRIu64
                                " (host %s) brings recipe %.300s of model %s, the group has "
                                "%.300s of model %s: start all its ranks from one job file",
                                group->name, wf_side_name(hello->side), hello->rank, hello->host,
                                hello->spec, theirs, group->spec, ours);
        }
        *group_out = g;
        return WF_OK;
    }
    if (server->group_count == WF_ENGINES_MAX) {
        return wf_error_set(error, WF_NO_RESOURCE,
                            "more than %d groups: give engines of one spec one group",
                            WF_ENGINES_MAX);
    }
    server->groups = realloc(server->groups, (server->group_count + 1) * sizeof server->groups[0]);
    WF_ASSERT(server->groups != NULL);
    struct wf_el_group *group = &server->groups[server->group_count];
    *group = (struct wf_el_group){.side = hello->side, .model = hello->model};
    memcpy(group->name, hello->group, sizeof group->name);
    memcpy(group->spec, hello->spec, sizeof group->spec);
    *group_out = server->group_count++;
    return WF_OK;
}

/* --- incarnations ----------------------------------------------------------------------------- */
static void lose(struct wf_meta_server *server, struct wf_server_rank *rank,
                 const struct wf_culprit *why)
{
    wf_server_member_lost(server, rank, why);
    rank->serving = false;
    rank->resume_asked = false;
}

void wf_server_drop_rank_conn(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    if (rank->conn != 0) {
        uint64_t conn = rank->conn;
        rank->conn = 0;
        wf_server_conn_drop(server, conn);
    }
}

/* The old incarnation is dead: what it has told is void. */
static void retire(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    struct wf_culprit why;
    wf_server_blame(rank, &why, "was lost: a new incarnation of it has joined");
    lose(server, rank, &why);
    rank->retired[rank->retired_count++ % WF_RETIRED_MAX] = rank->incarnation;
    wf_server_drop_rank_conn(server, rank);
    wf_server_forget_note(rank);
    if (rank->storing) { /* half of it lies nowhere; what lay there before still does */
        rank->storing = false;
        rank->stored = (struct wf_version){0};
    }
    rank->live = (struct wf_version){0};
    rank->evicted = false;
    rank->absent_ns = wf_server_now(server);
    rank->planned_epoch = 0;
    wf_server_place_forget(rank);
    rank->published_count = 0;
    rank->published_newest = (struct wf_version){0};
    rank->released_alone = (struct wf_version){0};
    rank->idle = false;
    rank->generation_told = false;
    rank->notice_told = true; /* a new process held nothing */
    rank->presence = WF_ABSENT;
    wf_server_membership_changed(server);
    if (rank->side == WF_TRAIN && server->generation > 0) {
        server->generation_due = true;
    }
}

static void take_hello(struct wf_meta_server *server, struct wf_server_rank *rank,
                       const struct wf_frame_hello *hello, uint32_t group)
{
    bool moved = !rank->known || rank->incarnation != hello->incarnation ||
                 strcmp(rank->address, hello->address) != 0 ||
                 strcmp(rank->host, hello->host) != 0 ||
                 !wf_hash_equal(rank->layout, hello->layout);
    server->members_due = server->members_due || moved;
    rank->table_said = rank->table_said && !moved;
    rank->known = true;
    rank->incarnation = hello->incarnation;
    memcpy(rank->host, hello->host, sizeof rank->host);
    memcpy(rank->address, hello->address, sizeof rank->address);
    rank->pid = hello->pid;
    rank->group = group;
    rank->group_rank = (uint32_t)hello->group_rank;
    rank->in_place = rank->side == WF_INFER && hello->mode == WF_MODE_IN_PLACE;
    rank->layout = hello->layout;
}

void wf_server_send_welcome(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    const struct wf_frame_welcome welcome = {
        .term = server->term,
        .epoch = rank->welcome_epoch,
        .clean = rank->welcome_clean,
        .round = server->round.key,
        .committed = rank->side == WF_INFER ? server->engines[rank->engine].current
                                            : wf_server_committed(server),
        .lease_ns = server->options.timeouts.lease_ns,
        .sent_ns = rank->sent_ns,
        .drop_to_latest = server->options.drop_to_latest};
    wf_server_send(server, rank, WF_FRAME_welcome, &welcome);
}

void wf_server_greet(struct wf_meta_server *server, struct wf_server_rank *rank, bool clean)
{
    if (!rank->evicted) {
        rank->heard_ns = wf_server_now(server);
    }
    rank->welcome_clean = clean;
    rank->welcome_epoch = server->epoch;
    if (clean) {
        rank->presence = WF_GREETED;
    }
    wf_server_send_welcome(server, rank);
}

static void admit(struct wf_meta_server *server, struct wf_server_rank *rank, uint64_t conn,
                  const struct wf_frame_hello *hello)
{
    uint32_t group = 0;
    struct wf_error error = {0};
    struct wf_server_conn *own = wf_server_conn_find(server, conn);
    if (join_group(server, hello, &group, &error) != WF_OK) {
        send_refused(server, own, &error);
        return;
    }
    bool same = rank->known && rank->incarnation == hello->incarnation;
    if (rank->known && !same) {
        retire(server, rank);
    }
    if (rank->conn != conn) {
        wf_server_drop_rank_conn(server, rank);
    }
    take_hello(server, rank, hello, group);
    rank->conn = conn;
    rank->sent_ns = 0;
    rank->has_members = 0; /* its answers may have gone with its connection */
    rank->has_round = (struct wf_round_key){0};
    wf_server_conn_become(server, own, WF_CONN_RANK, rank);
    if (!rank->evicted || rank->presence == WF_FENCED) {
        rank->heard_ns = wf_server_now(server);
    }
    if (!wf_server_hear(server, rank, hello)) {
        return; /* not yet */
    }
    switch (rank->presence) {
    case WF_ABSENT:
    case WF_LEFT:
        wf_server_greet(server, rank, true);
        break;
    case WF_GREETED:
        wf_server_greet(server, rank, true); /* the first WELCOME may have been lost */
        break;
    case WF_PRESENT:
        if (!rank->evicted) { /* who is gets a WELCOME, and its lease, after it was fenced */
            wf_server_greet(server, rank, hello->term != server->term);
        }
        break;
    case WF_FENCED:
        break; /* wf_server_readmit, between rounds */
    }
}

void wf_server_on_hello(struct wf_meta_server *server, struct wf_server_conn *conn,
                        struct wf_frame *frame)
{
    const struct wf_frame_hello *hello = &frame->hello;
    const uint64_t id = conn->id;
    struct wf_server_rank *rank = NULL;
    struct wf_error error = {0};
    if (server->stops) { /* it is the next server's to answer */
        wf_server_conn_drop(server, id);
        return;
    }
    enum wf_status status = check_hello(server, conn, hello, &error);
    if (status == WF_OK && hello->role == WF_ROLE_OBSERVER) {
        wf_server_conn_become(server, conn, WF_CONN_OBSERVER, NULL);
        if (server->agreed) {
            wf_frame_send(server->env, conn->id, WF_FRAME_plan_report, &server->plan_report, -1);
        }
        wf_server_report_missed(server, conn->id);
        return;
    }
    if (status == WF_OK) {
        status = check_identity(server, hello, &rank, &error);
    }
    if (status != WF_OK) {
        send_refused(server, conn, &error);
        return;
    }
    if (!wf_server_may_hear(server, hello)) {
        wf_server_conn_drop(server, id);
        return;
    }
    bool other = rank->known && rank->incarnation != hello->incarnation;
    if (other && rank->conn != 0 && rank->presence != WF_LEFT) {
        /* until the first incarnation shows whether it lives */
        wf_server_conn_become(server, conn, WF_CONN_CANDIDATE, rank);
        conn->hello = *frame;
        *frame = (struct wf_frame){0};
        return;
    }
    admit(server, rank, conn->id, hello);
}

static struct wf_server_conn *find_candidate(struct wf_meta_server *server,
                                             const struct wf_server_rank *rank)
{
    struct wf_server_conn *conn = server->conns[WF_CONN_CANDIDATE].first;
    while (conn != NULL && (rank->candidates == 0 || conn->rank != rank)) {
        conn = rank->candidates == 0 ? NULL : conn->after;
    }
    return conn;
}

/* The first incarnation lives: whoever else claims its identity is refused. */
static void refuse_candidates(struct wf_meta_server *server, const struct wf_server_rank *rank)
{
    struct wf_server_conn *conn;
    while ((conn = find_candidate(server, rank)) != NULL) {
        char who[WF_CULPRIT_TEXT];
        struct wf_error error = {0};
        wf_server_rank_text(rank, who, sizeof who);
        wf_error_set(&error, WF_REFUSED,
                     "%.200s is already served by pid %" PRIu64
                     ", which is alive: two processes have one identity; stop one of them",
                     who, rank->pid);
        send_refused(server, conn, &error);
    }
}

/* The first incarnation is dead: one who waits takes its place. */
static void admit_candidate(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    struct wf_server_conn *conn = find_candidate(server, rank);
    if (conn != NULL) {
        struct wf_frame hello = conn->hello;
        conn->hello = (struct wf_frame){0};
        wf_server_conn_become(server, conn, WF_CONN_STRANGER, NULL);
        admit(server, rank, conn->id, &hello.hello);
        wf_frame_fini(&hello);
    }
}

void wf_server_on_joined(struct wf_meta_server *server, struct wf_server_rank *rank,
                         const struct wf_frame_joined *joined)
{
    if (joined->epoch != rank->welcome_epoch || rank->presence == WF_FENCED) {
        return; /* an answer to an earlier WELCOME */
    }
    bool first = rank->presence == WF_GREETED;
    rank->table_said = true; /* it would have come before */
    rank->presence = WF_PRESENT;
    if (first) {
        struct wf_culprit who; /* also whom an earlier server fenced, or this one before RECOVER */
        wf_server_blame(rank, &who, "has joined");
        wf_server_report_presence(server, false, &who);
        server->membership++;
        rank->live = joined->live;
        rank->serving = joined->serving != 0;
        rank->resume_asked = false;
        wf_server_place_joined(server, rank);
    }
    wf_server_repeat(server, rank);
}

void wf_server_on_heartbeat(struct wf_meta_server *server, struct wf_server_rank *rank,
                            const struct wf_frame_heartbeat *heartbeat)
{
    refuse_candidates(server, rank);
    if (rank->evicted && rank->presence != WF_FENCED) {
        return;
    }
    if (rank->presence == WF_FENCED && rank->heard_ns <= rank->fenced_ns) {
        struct wf_culprit who;
        wf_server_blame(rank, &who, "is heard again");
        wf_server_report_presence(server, false, &who);
    }
    rank->heard_ns = wf_server_now(server);
    rank->sent_ns = heartbeat->sent_ns;
    rank->has_members = heartbeat->members;
    rank->has_round = heartbeat->round;
    if (server->away_ns != 0) {
        return;
    }
    if (rank->presence == WF_PRESENT || rank->presence == WF_GREETED) {
        const struct wf_frame_lease lease = {.term = server->term,
                                             .epoch = server->epoch,
                                             .sequence = heartbeat->sequence,
                                             .sent_ns = heartbeat->sent_ns};
        wf_server_send(server, rank, WF_FRAME_lease, &lease);
    }
}

void wf_server_on_leave(struct wf_meta_server *server, struct wf_server_rank *rank,
                        const struct wf_frame_leave *leave)
{
    if (server->state < WF_SERVER_ENDING) {
        struct wf_culprit why;
        wf_server_blame(rank, &why, "left the job: %.300s", leave->reason);
        lose(server, rank, &why);
        wf_server_membership_changed(server);
        rank->absent_ns = wf_server_now(server);
    }
    rank->presence = WF_LEFT;
    wf_server_drop_rank_conn(server, rank);
    admit_candidate(server, rank);
}

void wf_server_on_rank_closed(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    if (server->state < WF_SERVER_ENDING) {
        admit_candidate(server, rank);
    }
}

uint64_t wf_server_lease_and_margin(const struct wf_meta_server *server)
{
    uint64_t lease = server->options.timeouts.lease_ns;
    return lease + lease / WF_LEASE_MARGIN_PART;
}

bool wf_server_is_silent(const struct wf_meta_server *server, const struct wf_server_rank *rank)
{
    return wf_server_now(server) - rank->heard_ns > wf_server_lease_and_margin(server);
}

void wf_server_check_leases(struct wf_meta_server *server)
{
    uint64_t now = wf_server_now(server);
    for (uint32_t i = 0; i < server->rank_count; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        bool leased = rank->presence == WF_PRESENT || rank->presence == WF_GREETED;
        if (!leased || !wf_server_is_silent(server, rank)) {
            continue;
        }
        char silent[WF_DURATION_TEXT];
        struct wf_culprit why;
        wf_duration_format(wf_server_lease_and_margin(server), silent);
        wf_server_blame(rank, &why, "was lost: %s for %s (its lease and a margin)",
                        rank->evicted ? "it missed a deadline and was not renewed"
                                      : "nothing was heard of it",
                        silent);
        server->history.sums.ranks_lost++;
        rank->presence = WF_FENCED;
        rank->evicted = false;
        rank->fenced_ns = now;
        rank->absent_ns = now;
        wf_server_report_presence(server, true, &why);
        lose(server, rank, &why);
        wf_server_membership_changed(server);
        admit_candidate(server, rank);
    }
}

void wf_server_readmit(struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < server->rank_count; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        if (rank->presence == WF_FENCED && rank->conn != 0 && rank->heard_ns > rank->fenced_ns) {
            wf_server_greet(server, rank, true);
        }
    }
}
