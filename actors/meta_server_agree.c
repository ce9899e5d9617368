/* meta_server_agree.c - what must be agreed before a round: members, plans, generation, and which
 * version every train rank has published. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/meta_server_internal.h"

/* --- members ---------------------------------------------------------------------------------- */
/* The frame, made once for each list: it changes only with its epoch. */
static struct wf_payload *members_frame(struct wf_meta_server *server)
{
    struct wf_server_shared *shared = &server->members_frame;
    if (shared->payload != NULL && shared->of == server->members_epoch) {
        return shared->payload;
    }
    struct wf_frame_members members = {.term = server->term,
                                       .epoch = server->members_epoch,
                                       .groups = server->groups,
                                       .groups_count = server->group_count,
                                       .peers_count = server->rank_count};
    members.peers = calloc(server->rank_count, sizeof members.peers[0]);
    WF_ASSERT(members.peers != NULL);
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        struct wf_el_peer *peer = &members.peers[i];
        *peer = (struct wf_el_peer){.side = rank->side,
                                    .rank = rank->rank,
                                    .engine = rank->engine,
                                    .group = rank->group,
                                    .group_rank = rank->group_rank,
                                    .incarnation = rank->incarnation,
                                    .layout = wf_server_place_layout(server, rank)};
        memcpy(peer->host, rank->host, sizeof peer->host);
        memcpy(peer->address, rank->address, sizeof peer->address);
    }
    struct wf_payload *payload =
        wf_server_shared_frame(server, shared, server->members_epoch, WF_FRAME_members, &members);
    free(members.peers);
    return wf_server_make_placements(server) ? payload : NULL;
}

const struct wf_payload *wf_server_send_members(struct wf_meta_server *server,
                                                const struct wf_server_rank *rank)
{
    struct wf_payload *payload = members_frame(server);
    if (payload != NULL && rank->conn != 0 && wf_server_send_placements(server, rank->conn)) {
        server->env->ops->send_shared(server->env, rank->conn, payload);
    }
    return payload;
}

void wf_server_on_look(struct wf_meta_server *server, struct wf_server_conn *conn)
{
    if (server->members_epoch == 0) {
        struct wf_frame_refused refused = {.status = WF_AGAIN};
        snprintf(refused.text, sizeof refused.text,
                 "not all ranks of the job have joined yet: nobody knows who holds what");
        wf_server_send_on(server, conn->id, WF_FRAME_refused, &refused);
        return;
    }
    struct wf_payload *payload = members_frame(server);
    if (payload != NULL && wf_server_send_placements(server, conn->id)) {
        wf_server_send_observer(server, conn, payload);
    }
}

/* A job starts when everybody has joined; who has not by then ends it. */
static bool all_joined_once(struct wf_meta_server *server)
{
    const struct wf_server_rank *missing = NULL;
    uint32_t joined = 0;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        bool there = server->ranks[i].presence == WF_PRESENT;
        joined += there;
        if (!there && missing == NULL) {
            missing = &server->ranks[i];
        }
    }
    if (missing == NULL) {
        return true;
    }
    if (wf_server_now(server) - server->started_ns > server->options.timeouts.join_ns) {
        char who[WF_CULPRIT_TEXT], limit[WF_DURATION_TEXT];
        wf_server_rank_text(missing, who, sizeof who);
        wf_duration_format(server->options.timeouts.join_ns, limit);
        wf_server_end(server, WF_TIMED_OUT,
                      "%.200s has not joined within %s (%" PRIu32 " of %" PRIu32 " ranks have)",
                      who, limit, joined, server->rank_count);
    }
    return false;
}

static void broadcast_members(struct wf_meta_server *server)
{
    server->members_due = false;
    server->members_epoch = server->epoch;
    server->members_ns = wf_server_now(server);
    wf_server_send_members_to_all(server);
    wf_server_progress(server, "plan", 0, server->rank_count, "deriving layouts and the plan");
}

/* --- plans ------------------------------------------------------------------------------------ */
void wf_server_on_planned(struct wf_meta_server *server, struct wf_server_rank *rank,
                          const struct wf_frame_planned *planned)
{
    if (planned->epoch != server->members_epoch || rank->presence != WF_PRESENT) {
        return;
    }
    if (planned->status != WF_OK) {
        char who[WF_CULPRIT_TEXT];
        wf_server_rank_text(rank, who, sizeof who);
        wf_server_end(server, WF_DISAGREE, "%.200s cannot plan: %.700s", who, planned->text);
        return;
    }
    rank->planned_epoch = planned->epoch;
    rank->planned = *planned;
}

/* The input hash that most ranks have; ties go to the first rank's. */
static struct wf_hash most_common_input(const struct wf_meta_server *server)
{
    struct wf_hash best = {0};
    uint32_t best_count = 0;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        uint32_t count = 0;
        for (uint32_t j = 0; j < server->rank_count; j++) {
            count += server->ranks[j].planned_epoch == server->members_epoch &&
                     wf_hash_equal(server->ranks[j].planned.input, server->ranks[i].planned.input);
        }
        if (server->ranks[i].planned_epoch == server->members_epoch && count > best_count) {
            best_count = count;
            best = server->ranks[i].planned.input;
        }
        if (best_count > server->rank_count / 2) {
            break;
        }
    }
    return best;
}

static bool inputs_agree(struct wf_meta_server *server)
{
    struct wf_hash common = most_common_input(server);
    char odd[600] = "";
    uint32_t odd_count = 0;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if (rank->planned_epoch != server->members_epoch ||
            wf_hash_equal(rank->planned.input, common)) {
            continue;
        }
        size_t used = strlen(odd);
        if (odd_count++ < 3) {
            char who[WF_CULPRIT_TEXT], hash[WF_HASH_TEXT];
            wf_server_rank_text(rank, who, sizeof who);
            wf_hash_format(rank->planned.input, hash);
            snprintf(odd + used, sizeof odd - used, "%s%.120s has %s", used > 0 ? ", " : "", who,
                     hash);
        }
    }
    if (odd_count > 0) {
        char hash[WF_HASH_TEXT];
        wf_hash_format(common, hash);
        wf_server_end(server, WF_DISAGREE,
                      "the inputs of the plan differ: %s; the others have %s (%" PRIu32
                      " ranks differ): start all ranks with the same Weft and job",
                      odd, hash, odd_count);
    }
    return odd_count == 0;
}

static bool edges_agree(struct wf_meta_server *server)
{
    struct wf_hash out = {0}, in = {0};
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        struct wf_hash *sum = rank->side == WF_TRAIN ? &out : &in;
        *sum = wf_hash_add(*sum, rank->planned.edge_sum);
    }
    if (!wf_hash_equal(out, in)) {
        char out_text[WF_HASH_TEXT], in_text[WF_HASH_TEXT];
        wf_hash_format(out, out_text);
        wf_hash_format(in, in_text);
        wf_server_end(server, WF_DISAGREE,
                      "equal inputs gave different plans: the train ranks' edges sum to %s, the "
                      "infer ranks' to %s; please report this",
                      out_text, in_text);
        return false;
    }
    return true;
}

/* True when every rank that is here has planned for these members, and equally. */
static bool plans_agree(struct wf_meta_server *server)
{
    uint32_t planned = 0;
    const struct wf_server_rank *waits = NULL;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        bool has = rank->planned_epoch == server->members_epoch;
        planned += has;
        if (!has && (rank->presence == WF_PRESENT || !server->agreed) && waits == NULL) {
            waits = rank;
        }
    }
    if (waits != NULL) {
        if (wf_server_now(server) - server->members_ns > server->options.timeouts.plan_ns) {
            char who[WF_CULPRIT_TEXT], limit[WF_DURATION_TEXT];
            wf_server_rank_text(waits, who, sizeof who);
            wf_duration_format(server->options.timeouts.plan_ns, limit);
            wf_server_end(server, WF_TIMED_OUT, "%.200s has not planned within %s", who, limit);
        }
        return false;
    }
    if (!inputs_agree(server) || (planned == server->rank_count && !edges_agree(server))) {
        return false;
    }
    if (!server->agreed) {
        server->agreed = true;
        server->generation_due = server->generation_due || server->generation == 0;
        wf_server_report_plan(server);
    }
    return true;
}

/* --- generations ------------------------------------------------------------------------------ */
void wf_server_send_generation(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    const struct wf_frame_generation generation = {.term = server->term,
                                                   .generation_term = server->generation_term,
                                                   .counter = server->generation,
                                                   .step = server->generation_step};
    wf_server_send(server, rank, WF_FRAME_generation, &generation);
}

/* True if the train side is complete and speaks of one generation. */
static bool train_side_ready(struct wf_meta_server *server)
{
    const struct wf_server_options *o = &server->options;
    bool complete = true;
    for (uint32_t i = 0; i < o->train_ranks; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        if (rank->presence == WF_PRESENT) {
            continue;
        }
        complete = false;
        char who[WF_CULPRIT_TEXT], limit[WF_DURATION_TEXT];
        wf_server_rank_text(rank, who, sizeof who);
        wf_duration_format(o->timeouts.join_ns, limit);
        if (rank->presence == WF_LEFT) {
            wf_server_end(server, WF_CLOSED, "%.200s left: nothing more can be published", who);
        } else if (wf_server_now(server) - rank->absent_ns > o->timeouts.join_ns) {
            wf_server_end(server, WF_PEER_LOST, "%.200s was lost and has not come back within %s",
                          who, limit);
        }
    }
    if (!complete || !server->generation_due) {
        return complete;
    }
    server->generation_due = false;
    server->generation = server->generation_term == server->term ? server->generation + 1 : 1;
    server->generation_term = server->term;
    server->generation_step = server->newest_step;
    const struct wf_journal_record record = {
        .kind = WF_JOURNAL_GENERATION,
        .generation = {server->generation_term, server->generation, server->generation_step}};
    if (!wf_server_journal(server, &record)) {
        return false;
    }
    for (uint32_t i = 0; i < o->train_ranks; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        rank->published_count = 0;
        rank->published_newest = (struct wf_version){0};
        rank->released_alone = (struct wf_version){0};
        rank->idle = false;
        rank->generation_told = false;
        rank->notice_told = true; /* a hold of an older generation ends with it */
        wf_server_send_generation(server, rank);
    }
    return true;
}

bool wf_server_agree(struct wf_meta_server *server)
{
    if (!server->agreed && server->members_epoch == 0 && !all_joined_once(server)) {
        return false;
    }
    if (server->members_due) {
        if (!wf_server_place_agreed(server)) {
            return false;
        }
        broadcast_members(server);
    }
    return plans_agree(server);
}

bool wf_server_may_publish(struct wf_meta_server *server)
{
    return train_side_ready(server);
}

/* --- publications ----------------------------------------------------------------------------- */
/* The version is over for the train side. Not while its round runs, even if an engine has decided:
 * others still read it. */
static bool is_resolved(const struct wf_meta_server *server, struct wf_version version)
{
    if (server->state == WF_SERVER_RECOVER) {
        return false; /* told when everybody is past the barrier */
    }
    bool runs = server->state == WF_SERVER_OPENED || server->state == WF_SERVER_CLOSING;
    if (runs && !server->round.noticed && !server->round.fill &&
        wf_version_compare(version, server->round.key.version) == 0) {
        return false;
    }
    return wf_version_compare(version, wf_server_committed(server)) <= 0 ||
           wf_version_compare(version, server->given_up) <= 0;
}

void wf_server_forget_published(struct wf_server_rank *rank, struct wf_version upto)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < rank->published_count; i++) {
        if (wf_version_compare(rank->published[i].version, upto) > 0) {
            rank->published[kept++] = rank->published[i];
        }
    }
    rank->published_count = kept;
}

void wf_server_on_publish(struct wf_meta_server *server, struct wf_server_rank *rank,
                          const struct wf_frame_publish *publish)
{
    struct wf_version version = publish->version;
    if (rank->side != WF_TRAIN || rank->presence != WF_PRESENT ||
        version.term != server->generation_term || version.counter != server->generation ||
        server->generation_due) {
        return; /* of a generation that is over */
    }
    if (!wf_hash_equal(publish->layout, rank->layout) || publish->models != 1) {
        wf_server_end(server, WF_DISAGREE,
                      "train rank %" PRIu32 " (host %s) published step %" PRIu64
                      " with other tensors or models than it joined with; start it again so that "
                      "the plan is made anew",
                      rank->rank, rank->host, version.step);
        return;
    }
    rank->generation_told = true;
    rank->idle = false;
    if (version.step > server->newest_step) {
        server->newest_step = version.step;
    }
    if (wf_version_compare(version, rank->published_newest) > 0) {
        rank->published_newest = version;
    }
    if (is_resolved(server, version)) { /* a repeat: it has not heard how that ended */
        const struct wf_round_key *last = wf_server_notice_round(server);
        if (last != NULL && wf_version_compare(version, last->version) == 0) {
            wf_server_send_notice(server, rank);
        } else {
            wf_server_release_alone(server, rank, version);
        }
        return;
    }
    for (uint32_t i = 0; i < rank->published_count; i++) {
        if (wf_version_compare(rank->published[i].version, version) == 0) {
            return;
        }
    }
    if (rank->published_count == WF_PUBLISHED_MAX) { /* the oldest slot was re-used */
        memmove(&rank->published[0], &rank->published[1], sizeof rank->published[0]);
        rank->published_count--;
    }
    struct wf_publication *last = &rank->published[rank->published_count++];
    last->version = version;
    memcpy(last->label, publish->label, sizeof last->label);
}

void wf_server_on_idle(struct wf_meta_server *server, struct wf_server_rank *rank,
                       const struct wf_frame_idle *idle)
{
    bool current = idle->version.step == 0 || (idle->version.term == server->generation_term &&
                                               idle->version.counter == server->generation);
    if (rank->side == WF_TRAIN && rank->presence == WF_PRESENT && current &&
        !server->generation_due) {
        rank->idle = true;
        rank->idle_version = idle->version;
    }
}

void wf_server_on_told(struct wf_meta_server *server, struct wf_server_rank *rank,
                       const struct wf_frame_told *told)
{
    const struct wf_round_key *key = &told->round, *last = wf_server_notice_round(server);
    if (rank->side != WF_TRAIN) {
        return;
    }
    if (key->version.step == 0) {
        rank->generation_told =
            rank->generation_told || (key->version.term == server->generation_term &&
                                      key->version.counter == server->generation);
    } else if (key->attempt == 0) {
        if (wf_version_compare(key->version, rank->released_alone) == 0) {
            rank->released_alone = (struct wf_version){0};
        }
    } else if (last != NULL && wf_round_key_equal(key, last)) {
        rank->notice_told = true;
    }
}

/* The policy skips the version, or it can no longer be published by all. */
void wf_server_release_alone(struct wf_meta_server *server, struct wf_server_rank *rank,
                             struct wf_version version)
{
    rank->released_alone = version;
    const struct wf_frame_released released = {
        .round = {.term = server->term, .epoch = server->epoch, .version = version},
        .version = wf_server_committed(server)};
    wf_server_send(server, rank, WF_FRAME_released, &released);
}

static bool has_published(const struct wf_server_rank *rank, struct wf_version version)
{
    for (uint32_t i = 0; i < rank->published_count; i++) {
        if (wf_version_compare(rank->published[i].version, version) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_wanted(const struct wf_meta_server *server, struct wf_version version)
{
    struct wf_version committed = wf_server_committed(server);
    bool first = committed.term != version.term || committed.counter != version.counter;
    return server->options.every <= 1 || first || version.step % server->options.every == 0;
}

/* The policy does not want it, or some train rank is past it without having published it. */
static bool is_obsolete(const struct wf_meta_server *server, struct wf_version version)
{
    bool gone = !is_wanted(server, version);
    for (uint32_t i = 0; i < server->options.train_ranks && !gone; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        gone = wf_version_compare(rank->published_newest, version) > 0 &&
               !has_published(rank, version);
    }
    return gone;
}

void wf_server_skip_obsolete(struct wf_meta_server *server)
{
    struct wf_version kept = {0}; /* most ranks wait with one version: it is looked at once */
    for (uint32_t i = 0; i < server->options.train_ranks; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        while (rank->published_count > 0) {
            struct wf_version version = rank->published[0].version;
            if (wf_version_compare(version, kept) == 0) {
                break;
            }
            if (!is_obsolete(server, version)) {
                kept = version;
                break;
            }
            wf_server_forget_published(rank, version);
            wf_server_release_alone(server, rank, version);
        }
    }
}

bool wf_server_candidate(const struct wf_meta_server *server, struct wf_publication *out)
{
    const struct wf_server_rank *first = &server->ranks[0];
    bool found = false;
    for (uint32_t i = 0; i < first->published_count; i++) {
        bool all = true;
        for (uint32_t j = 0; j < server->options.train_ranks && all; j++) {
            const struct wf_server_rank *rank = &server->ranks[j];
            all = rank->presence == WF_PRESENT && rank->planned_epoch == server->members_epoch &&
                  has_published(rank, first->published[i].version);
        }
        if (all) {
            *out = first->published[i];
            found = true;
            if (!server->options.drop_to_latest) {
                break; /* in order */
            }
        }
    }
    return found;
}
