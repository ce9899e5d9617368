/* meta_server_permit.c - members that read in place: paused first, then permitted to read.
 *
 * What such a rank reads lands in the tensors that it serves from. So OPEN pauses it, and PERMIT
 * comes only when all such members of the unit have answered QUIESCED: until then an abort costs
 * nothing, and no rank of an engine is written to while another still computes. Nor does it come
 * before the copies of the train side, where they are compared, are known to agree: what differs is
 * given up, and must not have taken the version that the engine holds. From PERMIT on the
 * server takes the rank for dirty; FLIPPED or ABORTED says what it holds.
 */
#include "actors/meta_server_internal.h"

static bool is_unit(const struct wf_server_engine *engine)
{
    return engine->unit == WF_UNIT_UNDECIDED && !engine->permitted;
}

static bool decided_together(const struct wf_meta_server *server)
{
    return !server->round.fill && server->options.policy == WF_COMMIT_ALL;
}

static struct wf_server_rank *in_place_member(struct wf_meta_server *server,
                                              const struct wf_server_engine *engine, uint32_t i)
{
    struct wf_server_rank *rank = wf_server_member_at(server, engine, i);
    return rank != NULL && rank->in_place && !rank->lost ? rank : NULL;
}

/* The first member of the engine that is not paused, or NULL. */
static struct wf_server_rank *not_quiesced(struct wf_meta_server *server,
                                           const struct wf_server_engine *engine)
{
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        struct wf_server_rank *rank = in_place_member(server, engine, i);
        if (rank != NULL && !rank->quiesced) {
            return rank;
        }
    }
    return NULL;
}

void wf_server_pause_members(struct wf_meta_server *server)
{
    uint64_t deadline_ns = wf_server_now(server) + server->options.timeouts.quiesce_ns;
    for (uint32_t e = 0; e < server->options.engines; e++) {
        struct wf_server_engine *engine = &server->engines[e];
        engine->permitted = true; /* staged members need none */
        for (uint32_t i = 0; i < engine->rank_count; i++) {
            struct wf_server_rank *rank = in_place_member(server, engine, i);
            if (rank != NULL) {
                rank->serving = rank->resume_asked = false;
                engine->permitted = false;
                engine->deadline_ns = deadline_ns;
            }
        }
    }
}

void wf_server_send_permit(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    uint64_t now = wf_server_now(server), deadline_ns = server->round.deadline_ns;
    const struct wf_frame_permit permit = {
        .round = server->round.key, .deadline_ns = deadline_ns > now ? deadline_ns - now : 1};
    wf_server_send(server, rank, WF_FRAME_permit, &permit);
}

/* Their time to vote begins here, not with the pause. */
static void permit(struct wf_meta_server *server, struct wf_server_engine *engine)
{
    engine->permitted = true;
    server->round.deadline_ns = wf_server_now(server) + server->options.timeouts.round_ns;
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        struct wf_server_rank *rank = in_place_member(server, engine, i);
        if (rank != NULL) {
            rank->live = (struct wf_version){0};
            wf_server_send_permit(server, rank);
        }
    }
}

bool wf_server_waits_for_pauses(struct wf_meta_server *server)
{
    for (uint32_t e = 0; e < server->options.engines; e++) {
        if (is_unit(&server->engines[e])) {
            return true;
        }
    }
    return false;
}

/* Evicted, so that the next attempt does not wait for them too. */
static void evict_late(struct wf_meta_server *server, struct wf_server_engine *engine)
{
    struct wf_server_rank *rank = not_quiesced(server, engine);
    if (rank == NULL || wf_server_now(server) < engine->deadline_ns) {
        return;
    }
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        rank = in_place_member(server, engine, i);
        if (rank != NULL && !rank->quiesced) {
            wf_server_evict(server, rank, "stop serving for", server->options.timeouts.quiesce_ns);
        }
    }
    wf_server_cut(server, engine);
}

void wf_server_permit_when_quiesced(struct wf_meta_server *server, bool agreed)
{
    bool all = true;
    for (uint32_t e = 0; e < server->options.engines; e++) {
        struct wf_server_engine *engine = &server->engines[e];
        if (is_unit(engine)) {
            evict_late(server, engine);
            all = all && not_quiesced(server, engine) == NULL;
        }
    }
    for (uint32_t e = 0; e < server->options.engines; e++) {
        struct wf_server_engine *engine = &server->engines[e];
        bool ready = decided_together(server) ? all : not_quiesced(server, engine) == NULL;
        if (is_unit(engine) && ready && agreed) {
            permit(server, engine);
        }
    }
}
