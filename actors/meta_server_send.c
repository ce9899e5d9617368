/* meta_server_send.c - frames to ranks: one rank's, and the large ones that all of them get.
 *
 * MEMBERS and OPEN grow with the ranks, and so does their number. They are encoded once, queues
 * share them, and a turn sends WF_SLICE_BYTES of them at most: who has not had his is *owed* it, so
 * that a server with thousands of ranks still hears them while it tells them.
 */
#include <stddef.h>

#include "actors/meta_server_internal.h"

void wf_server_send_on(struct wf_meta_server *server, uint64_t conn, enum wf_frame_type type,
                       const void *fields)
{
    enum wf_status status = wf_frame_send(server->env, conn, type, fields, -1);
    WF_ASSERT(status != WF_INVALID); /* a full queue or a closed one is made good by repeating */
}

void wf_server_send(struct wf_meta_server *server, const struct wf_server_rank *rank,
                    enum wf_frame_type type, const void *fields)
{
    if (rank->conn != 0) {
        wf_server_send_on(server, rank->conn, type, fields);
    }
}

void wf_server_shared_drop(struct wf_server_shared *shared)
{
    wf_payload_release(shared->payload);
    shared->payload = NULL;
}

struct wf_payload *wf_server_shared_frame(struct wf_meta_server *server,
                                          struct wf_server_shared *shared, uint64_t of,
                                          enum wf_frame_type type, const void *fields)
{
    if (shared->payload != NULL && shared->of == of) {
        return shared->payload;
    }
    struct wf_error error = {0};
    wf_server_shared_drop(shared);
    shared->of = of;
    if (wf_frame_payload(type, fields, &shared->payload, &error) != WF_OK) {
        wf_server_end(server, error.status, "%s", error.text);
        return NULL;
    }
    return shared->payload;
}

/* --- what is owed --------------------------------------------------------------------------------
 */
static void owe(struct wf_meta_server *server, struct wf_server_rank *rank, unsigned what)
{
    server->owed_count += rank->owed == 0;
    rank->owed |= what;
}

/* Bytes that went to the rank: what it is owed and still has a use for. */
static size_t pay(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    const struct wf_payload *sent = NULL;
    size_t bytes = 0;
    unsigned owed = rank->owed;
    rank->owed = 0;
    server->owed_count--;
    if ((owed & WF_OWED_MEMBERS) && rank->presence == WF_PRESENT && !server->members_due &&
        rank->planned_epoch != server->members_epoch) {
        sent = wf_server_send_members(server, rank);
        bytes += sent != NULL ? sent->len_bytes : 0;
    }
    bool asked = (rank->member || rank->source) && !rank->lost;
    if ((owed & WF_OWED_OPEN) && asked && server->state == WF_SERVER_OPENED) {
        sent = wf_server_send_open(server, rank);
        bytes += sent != NULL ? sent->len_bytes : 0;
    }
    if (owed & WF_OWED_OPEN) { /* what waited for it */
        wf_server_replicas_repeat(server, rank);
    }
    return bytes;
}

static void slice_soon(struct wf_meta_server *server)
{
    if (server->owed_count > 0 && !server->slice_out) {
        server->slice_out = true;
        wf_send(&server->actor, &server->slice);
    }
}

void wf_server_pay_slice(struct wf_meta_server *server)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < server->rank_count && server->owed_count > 0; i++) {
        if (bytes >= WF_SLICE_BYTES) {
            break;
        }
        struct wf_server_rank *rank = &server->ranks[server->owed_next];
        server->owed_next = (server->owed_next + 1) % server->rank_count;
        if (rank->owed != 0) {
            bytes += pay(server, rank);
        }
    }
    slice_soon(server);
}

void wf_server_send_members_to_all(struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < server->rank_count; i++) {
        if (server->ranks[i].presence == WF_PRESENT) {
            owe(server, &server->ranks[i], WF_OWED_MEMBERS);
        }
    }
    wf_server_pay_slice(server);
}

void wf_server_send_open_to_all(struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if ((rank->member || rank->source) && !rank->lost) {
            owe(server, &server->ranks[i], WF_OWED_OPEN);
        }
    }
    wf_server_pay_slice(server);
}

/* --- what most have ------------------------------------------------------------------------------
 */
/* What a rank's heartbeats say it has is hardly ever lost (only when its queue was full), so it is
 * repeated seldom. */
static bool lacks(const struct wf_meta_server *server, const struct wf_server_rank *rank,
                  unsigned what, bool has)
{
    return (rank->owed & what) == 0 && (!has || server->repeats % WF_REPEATS_KNOWN == 0);
}

void wf_server_repeat_members(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    if (lacks(server, rank, WF_OWED_MEMBERS, rank->has_members == server->members_epoch)) {
        owe(server, rank, WF_OWED_MEMBERS);
        slice_soon(server);
    }
}

void wf_server_repeat_open(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    if (lacks(server, rank, WF_OWED_OPEN,
              wf_round_key_equal(&rank->has_round, &server->round.key))) {
        owe(server, rank, WF_OWED_OPEN);
        slice_soon(server);
    }
}
