/* meta_server_absence.c - a server that was not run for half a lease may have been replaced.
 *
 * It is *away*: it closes all connections and renews and decides nothing until every train rank has
 * said HELLO again and every infer rank has, or was fenced. A HELLO of a higher term ends it, as
 * any server; otherwise it goes on where it was, as after connections that broke.
 */
#include "actors/meta_server_internal.h"

void wf_server_check_absence(struct wf_meta_server *server)
{
    uint64_t now = wf_server_now(server), last = server->tick_ns;
    server->tick_ns = now;
    if (now - last <= server->options.timeouts.lease_ns / 2 || server->state >= WF_SERVER_ENDING) {
        return;
    }
    server->away_ns = now;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        rank->heard_ns = now; /* it was not they who were silent */
        rank->returned = false;
    }
    wf_server_drop_ranks(server);
    wf_server_recover_again(server);
}

static bool is_back(const struct wf_server_rank *rank)
{
    bool leased = rank->presence == WF_PRESENT || rank->presence == WF_GREETED;
    return rank->returned || (rank->side == WF_INFER ? !leased : !rank->known);
}

bool wf_server_is_away(struct wf_meta_server *server)
{
    if (server->away_ns == 0) {
        return false;
    }
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if (is_back(rank) || rank->presence == WF_LEFT) {
            continue;
        }
        if (wf_server_now(server) - server->away_ns > server->options.timeouts.join_ns) {
            char who[WF_CULPRIT_TEXT], limit[WF_DURATION_TEXT];
            wf_server_rank_text(rank, who, sizeof who);
            wf_duration_format(server->options.timeouts.join_ns, limit);
            wf_server_stop(server, WF_PEER_LOST,
                           "this server was not run for a while, and %.200s has not come back to "
                           "it within %s: another server may have the job",
                           who, limit);
            return false;
        }
        return true;
    }
    server->away_ns = 0;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        if (rank->conn != 0 && !wf_server_is_collecting(server) && rank->presence != WF_FENCED) {
            wf_server_greet(server, rank, rank->presence != WF_PRESENT);
        }
    }
    return false;
}
