/* meta_server_waits.c - the waits of each state as sentences: "round 1.1.7 waits for infer rank 3
 * (host b) to vote, 2.1 s of 5 s". They are read off the facts by which meta_server_*.c decide. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/meta_server_waits.h"

struct list {
    const struct wf_meta_server *server;
    struct wf_el_status_wait *waits;
    uint32_t count;
    uint64_t now;
};

/* NULL rank: nobody in particular. */
static void add(struct list *list, const char *who, const struct wf_server_rank *rank,
                const char *what, uint64_t since_ns, uint64_t limit_ns)
{
    if (list->count == WF_STATUS_WAITS) {
        return;
    }
    struct wf_el_status_wait *wait = &list->waits[list->count++];
    *wait = (struct wf_el_status_wait){.side = 2,
                                       .since_ns = list->now > since_ns ? list->now - since_ns : 0,
                                       .limit_ns = limit_ns};
    snprintf(wait->who, sizeof wait->who, "%s", who);
    snprintf(wait->what, sizeof wait->what, "%s", what);
    if (rank != NULL) {
        wait->side = rank->side;
        wait->rank = rank->rank;
        wait->engine = rank->engine;
        memcpy(wait->host, rank->host, sizeof wait->host);
    }
}

/* --- members ---------------------------------------------------------------------------------- */
static void wait_for_ranks(struct list *list)
{
    const struct wf_meta_server *server = list->server;
    const struct wf_timeouts *t = &server->options.timeouts;
    const char *who = server->state == WF_SERVER_RECOVER ? "recovery" : "the job";
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        switch (rank->presence) {
        case WF_ABSENT:
            add(list, who, rank, rank->known ? "to come back" : "to join", rank->absent_ns,
                t->join_ns);
            break;
        case WF_FENCED:
            add(list, who, rank, "to be heard again", rank->absent_ns, t->join_ns);
            break;
        case WF_GREETED:
            add(list, who, rank, "to drop what it had and join", rank->heard_ns, t->join_ns);
            break;
        default:
            break;
        }
    }
}

static void wait_for_plans(struct list *list)
{
    const struct wf_meta_server *server = list->server;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        if (server->members_epoch != 0 && rank->presence == WF_PRESENT &&
            rank->planned_epoch != server->members_epoch) {
            add(list, "the plan", rank, "to plan", server->members_ns,
                server->options.timeouts.plan_ns);
        }
    }
}

/* --- a round ---------------------------------------------------------------------------------- */
struct want {
    const char *what;
    uint64_t since_ns, limit_ns; /* on the loop's clock */
};

/* What the round waits for of this member; false: nothing. */
static bool wants_of(const struct wf_meta_server *server, const struct wf_server_rank *rank,
                     struct want *want)
{
    const struct wf_server_engine *engine = &server->engines[rank->engine];
    const struct wf_timeouts *t = &server->options.timeouts;
    uint64_t began = server->round.deadline_ns - t->round_ns;
    switch (engine->unit) {
    case WF_UNIT_UNDECIDED:
        if (rank->in_place && !engine->permitted) {
            *want = (struct want){"to stop serving", engine->deadline_ns - t->quiesce_ns,
                                  t->quiesce_ns};
            return !rank->quiesced;
        }
        *want = (struct want){"to vote", began, t->round_ns};
        return rank->vote == WF_VOTE_NONE;
    case WF_UNIT_DECIDED:
        if (!engine->flip_sent) {
            *want = (struct want){"to stop serving", engine->deadline_ns - t->quiesce_ns,
                                  t->quiesce_ns};
            return !rank->quiesced;
        }
        *want = (struct want){rank->flipped ? "to serve again" : "to flip",
                              engine->deadline_ns - t->flip_ns, t->flip_ns};
        return !rank->flipped || (engine->resuming && !rank->serving);
    case WF_UNIT_CUT:
        *want = (struct want){"to drop it", engine->deadline_ns - t->flip_ns, t->flip_ns};
        return !rank->acked;
    case WF_UNIT_OUT:
        break;
    }
    return false;
}

static void wait_for_members(struct list *list)
{
    const struct wf_meta_server *server = list->server;
    char who[96], version[WF_VERSION_TEXT];
    wf_version_format(server->round.key.version, version);
    snprintf(who, sizeof who, "%s %s%s", server->round.fill ? "fill" : "round", version,
             server->round.key.attempt > 1 ? " (again)" : "");
    for (uint32_t i = server->options.train_ranks; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        struct want want;
        if (rank->member && !rank->lost && wants_of(server, rank, &want)) {
            add(list, who, rank, want.what, want.since_ns, want.limit_ns);
        }
    }
}

/* That copies of one side are compared: a round's second wait for the same ranks. */
static void wait_for_replicas(struct list *list)
{
    const struct wf_meta_server *server = list->server;
    const struct wf_server_rank *rank = wf_server_replicas_awaited(server);
    char who[96], version[WF_VERSION_TEXT];
    wf_version_format(server->round.key.version, version);
    snprintf(who, sizeof who, "round %s", version);
    if (rank != NULL) {
        add(list, who, rank, "to say what it holds that others hold too", server->replicas.begun_ns,
            server->options.timeouts.round_ns);
    }
}

/* --- the train side --------------------------------------------------------------------------- */
static void wait_for_trainers(struct list *list)
{
    const struct wf_meta_server *server = list->server;
    bool begun = server->generation > 0 && !server->generation_due;
    for (uint32_t i = 0; i < server->options.train_ranks; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        uint64_t ended = server->history.ended_ns, begin = server->members_ns;
        uint64_t since = server->publishing_ns != 0 ? server->publishing_ns
                         : ended > begin            ? ended
                                                    : begin;
        if (rank->presence != WF_PRESENT) {
            continue;
        }
        if (server->round.noticed && !rank->notice_told) {
            add(list, "the end of a round", rank, "to hear of it", list->now, 0);
        } else if (begun && !rank->generation_told) {
            add(list, "the generation", rank, "to hear of it", list->now, 0);
        } else if (server->state == WF_SERVER_IDLE && begun && !rank->idle &&
                   rank->published_count == 0) {
            add(list, "the next version", rank, "to publish", since,
                server->publishing_ns != 0 ? server->options.timeouts.publish_ns : 0);
        }
    }
}

static void wait_for_goodbyes(struct list *list)
{
    const struct wf_meta_server *server = list->server;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        if (server->ranks[i].conn != 0) {
            add(list, "the end of the job", &server->ranks[i], "to leave", server->ending_ns,
                server->options.timeouts.join_ns);
        }
    }
}

uint32_t wf_server_waits(const struct wf_meta_server *server,
                         struct wf_el_status_wait waits_out[WF_STATUS_WAITS])
{
    struct list list = {.server = server, .waits = waits_out, .now = wf_server_now(server)};
    if (server->state >= WF_SERVER_ENDING) {
        wait_for_goodbyes(&list);
        return list.count;
    }
    if (server->state == WF_SERVER_OPENED || server->state == WF_SERVER_CLOSING) {
        wait_for_members(&list);
        wait_for_replicas(&list);
    }
    wait_for_plans(&list);
    wait_for_trainers(&list);
    wait_for_ranks(&list);
    const struct wf_server_rank *writer = wf_server_waited_writer(server);
    if (writer != NULL) {
        add(&list, "a fill", writer, "to write the version to its folder", writer->storing_ns,
            server->options.timeouts.join_ns);
    }
    if (server->no_engine_ns != 0) {
        add(&list, "a published version", NULL, "any engine whose ranks are all there",
            server->no_engine_ns, server->options.timeouts.join_ns);
    }
    return list.count;
}
