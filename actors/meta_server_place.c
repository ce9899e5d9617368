/* meta_server_place.c - tables of experts: what each rank says, and what its engine agrees on.
 *
 * A rank's layout follows from its engine's table, so a new table is an event like a join: when all
 * ranks of the engine that are here say the same one, the epoch rises and everybody plans anew.
 * Until then the list of members is not sent: part of an engine would be planned wrongly. Ranks
 * that began with an old table are told the one that their engine has (actors/placement.h).
 */
#include <inttypes.h>
#include <stdlib.h>

#include "actors/meta_server_internal.h"

void wf_server_on_placement(struct wf_meta_server *server, struct wf_server_rank *rank,
                            const struct wf_frame_placement *placement)
{
    struct wf_table *table = NULL;
    struct wf_error error = {0};
    if (rank->side != WF_INFER || placement->engine != rank->engine) {
        return;
    }
    if (wf_table_of_frame(placement, &table, &error) != WF_OK) {
        char who[WF_CULPRIT_TEXT];
        wf_server_rank_text(rank, who, sizeof who);
        wf_server_end(server, WF_PROTOCOL, "%.200s: %.700s", who, error.text);
        return;
    }
    bool news = !wf_hash_equal(wf_table_hash(table), wf_table_hash(rank->table)) ||
                !wf_hash_equal(placement->layout, rank->layout);
    wf_table_release(rank->table);
    rank->table = table;
    rank->table_said = true;
    rank->layout = placement->layout;
    if (news) {
        rank->moved = rank->live;
        server->members_due = true;
        wf_server_raise_epoch(server);
    }
}

void wf_server_place_joined(struct wf_meta_server *server, const struct wf_server_rank *rank)
{
    if (rank->side == WF_INFER && rank->table == NULL && server->engines[rank->engine].placed) {
        server->members_due = true;
        wf_server_raise_epoch(server);
    }
}

bool wf_server_place_moves(const struct wf_meta_server *server,
                           const struct wf_server_engine *engine)
{
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[engine->ranks[i]];
        if (!wf_version_is_none(rank->moved) &&
            wf_version_compare(rank->moved, engine->current) == 0) {
            return true;
        }
    }
    return false;
}

void wf_server_place_forget(struct wf_server_rank *rank)
{
    wf_table_release(rank->table);
    rank->table = NULL;
    rank->table_told = false;
    rank->moved = (struct wf_version){0};
}

/* A rank of the engine that is here and says another table than the first of them, or NULL. */
static const struct wf_server_rank *odd_rank(const struct wf_meta_server *server,
                                             const struct wf_server_engine *engine,
                                             const struct wf_server_rank **first_out)
{
    const struct wf_server_rank *first = NULL;
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[engine->ranks[i]];
        if (rank->presence != WF_PRESENT) {
            continue;
        }
        first = first != NULL ? first : rank;
        if (!wf_hash_equal(wf_table_hash(rank->table), wf_table_hash(first->table))) {
            *first_out = first;
            return rank;
        }
    }
    *first_out = first;
    return NULL;
}

/* How much a rank's table says of its engine's: with it a version was written, or a plan made. */
static int weight_of(const struct wf_server_rank *rank)
{
    return !wf_version_is_none(rank->live) ? 2 : rank->planned_epoch != 0;
}

/* One of the present ranks whose tables say most, if those are of one mind; or NULL. */
static const struct wf_server_rank *speaker(const struct wf_meta_server *server,
                                            const struct wf_server_engine *engine)
{
    const struct wf_server_rank *found = NULL;
    bool agree = true;
    for (uint32_t i = 0; i < engine->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[engine->ranks[i]];
        if (rank->presence != WF_PRESENT || (found != NULL && weight_of(rank) < weight_of(found))) {
            continue;
        }
        bool same =
            found != NULL && wf_hash_equal(wf_table_hash(rank->table), wf_table_hash(found->table));
        agree = found == NULL || weight_of(rank) > weight_of(found) || (agree && same);
        found = rank;
    }
    return agree ? found : NULL;
}

/* Tells it those who have said less, once until frames are repeated. */
static void tell_newcomers(struct wf_meta_server *server, const struct wf_server_engine *engine)
{
    const struct wf_server_rank *first = speaker(server, engine);
    for (uint32_t i = 0; first != NULL && i < engine->rank_count; i++) {
        struct wf_server_rank *rank = &server->ranks[engine->ranks[i]];
        if (rank->presence != WF_PRESENT || rank->table_told ||
            weight_of(rank) >= weight_of(first) ||
            wf_hash_equal(wf_table_hash(rank->table), wf_table_hash(first->table))) {
            continue;
        }
        struct wf_frame_placement frame;
        wf_table_to_frame(first->table, rank->engine, &frame);
        frame.take = 1;
        wf_server_send(server, rank, WF_FRAME_placement, &frame);
        free(frame.experts);
        rank->table_told = true;
    }
}

bool wf_server_place_agreed(struct wf_meta_server *server)
{
    for (uint32_t e = 0; e < server->options.engines; e++) {
        const struct wf_server_rank *first = NULL;
        const struct wf_server_rank *odd = odd_rank(server, &server->engines[e], &first);
        if (odd == NULL) {
            continue;
        }
        tell_newcomers(server, &server->engines[e]);
        uint64_t now = wf_server_now(server);
        server->placing_ns = server->placing_ns != 0 ? server->placing_ns : now;
        if (now - server->placing_ns > server->options.timeouts.plan_ns) {
            char limit[WF_DURATION_TEXT];
            wf_duration_format(server->options.timeouts.plan_ns, limit);
            wf_server_end(server, WF_TIMED_OUT,
                          "engine %" PRIu32 ": infer ranks %" PRIu32 " and %" PRIu32
                          " have had different tables of experts for %s: give all its ranks one",
                          e, first->rank, odd->rank, limit);
        }
        return false;
    }
    server->placing_ns = 0;
    return true;
}

/* The engine's table; one without ranks keeps what its ranks said last. */
static struct wf_table *table_of(const struct wf_meta_server *server,
                                 const struct wf_server_engine *engine)
{
    const struct wf_server_rank *first = NULL;
    (void)odd_rank(server, engine, &first);
    return first != NULL ? first->table : server->ranks[engine->ranks[0]].table;
}

struct wf_hash wf_server_place_layout(const struct wf_meta_server *server,
                                      const struct wf_server_rank *rank)
{
    if (rank->side != WF_INFER) {
        return rank->layout;
    }
    struct wf_hash table = wf_table_hash(table_of(server, &server->engines[rank->engine]));
    bool same = wf_hash_equal(table, wf_table_hash(rank->table));
    return same && rank->table_said ? rank->layout : (struct wf_hash){0, 0};
}

bool wf_server_make_placements(struct wf_meta_server *server)
{
    for (uint32_t e = 0; e < server->options.engines; e++) {
        struct wf_server_engine *engine = &server->engines[e];
        struct wf_table *table = table_of(server, engine);
        engine->placed = engine->placed || table != NULL;
        if (!engine->placed) {
            continue; /* never had one */
        }
        struct wf_frame_placement frame;
        wf_table_to_frame(table, e, &frame);
        struct wf_payload *made = wf_server_shared_frame(
            server, &engine->placement_frame, server->members_epoch, WF_FRAME_placement, &frame);
        free(frame.experts);
        if (made == NULL) {
            return false;
        }
    }
    return true;
}

bool wf_server_send_placements(struct wf_meta_server *server, uint64_t conn)
{
    for (uint32_t e = 0; e < server->options.engines; e++) {
        const struct wf_server_shared *made = &server->engines[e].placement_frame;
        if (made->payload != NULL && made->of == server->members_epoch &&
            server->env->ops->send_shared(server->env, conn, made->payload) != WF_OK) {
            return false; /* its queue is full: the list of members would be wrong without it */
        }
    }
    return true;
}

void wf_server_place_fini(struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < server->rank_count; i++) {
        wf_server_place_forget(&server->ranks[i]);
    }
    for (uint32_t e = 0; e < server->options.engines; e++) {
        wf_server_shared_drop(&server->engines[e].placement_frame);
    }
}
