/* meta_server_report.c - what observers are told: the plan once, progress, the end of each round.
 */
#include <stdio.h>
#include <string.h>

#include "actors/meta_server_internal.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void wf_server_report_plan(struct wf_meta_server *server)
{
    struct wf_frame_plan_report *report = &server->plan_report;
    const struct wf_frame_planned *planned = &server->ranks[0].planned; /* equal at all ranks */
    *report = (struct wf_frame_plan_report){.input = planned->input,
                                            .train_ranks = server->options.train_ranks,
                                            .infer_ranks = server->options.infer_ranks,
                                            .ops = planned->ops,
                                            .bytes_unique = planned->bytes_unique,
                                            .bytes_moved = planned->bytes_moved,
                                            .egress_max = planned->egress_max,
                                            .egress_ranks = planned->egress_ranks,
                                            .ingress_max = planned->ingress_max};
    for (uint32_t i = 0; i < server->rank_count; i++) {
        report->build_ns = larger(report->build_ns, server->ranks[i].planned.build_ns);
    }
    wf_server_send_observers(server, WF_FRAME_plan_report, report);
}

static void add_transport(struct wf_server_round *round, const struct wf_el_transport *add)
{
    struct wf_frame_round_report *report = &round->report;
    uint32_t i = 0;
    while (i < report->transports_count && strcmp(round->transports[i].name, add->name) != 0) {
        i++;
    }
    if (i == sizeof round->transports / sizeof round->transports[0]) {
        return; /* there are fewer transports than that */
    }
    if (i == report->transports_count) {
        round->transports[i] = (struct wf_el_transport){0};
        memcpy(round->transports[i].name, add->name, sizeof add->name);
        report->transports_count++;
    }
    round->transports[i].edges += add->edges;
    round->transports[i].bytes += add->bytes;
}

void wf_server_report_vote(struct wf_meta_server *server, const struct wf_frame_vote *vote)
{
    struct wf_server_round *round = &server->round;
    struct wf_frame_round_report *report = &round->report;
    report->bytes += vote->bytes;
    report->digest_mismatches += vote->digest_mismatches;
    report->grant_ns = larger(report->grant_ns, vote->grant_ns);
    report->transfer_ns = larger(report->transfer_ns, vote->transfer_ns);
    report->verify_ns = larger(report->verify_ns, vote->verify_ns);
    for (uint32_t i = 0; i < vote->transports_count; i++) {
        add_transport(round, &vote->transports[i]);
    }
    round->votes_yes++;
    server->progress_due = true; /* one line for all votes that came together */
}

void wf_server_report_progress(struct wf_meta_server *server)
{
    const struct wf_server_round *round = &server->round;
    if (server->progress_due) {
        server->progress_due = false;
        wf_server_progress(server, round->fill ? "fill" : "transfer", round->votes_yes,
                           server->member_count - server->options.train_ranks, round->report.label);
    }
}

/* The engines that serve the round's version by now. */
static void list_engines(struct wf_meta_server *server)
{
    struct wf_frame_round_report *report = &server->round.report;
    report->transports = server->round.transports;
    report->engines = server->units;
    report->engines_count = 0;
    for (uint32_t e = 0; e < server->options.engines; e++) {
        const struct wf_server_engine *engine = &server->engines[e];
        if (engine->unit == WF_UNIT_DECIDED && wf_server_engine_is_full(server, engine)) {
            server->units[report->engines_count++].engine = e;
        }
    }
}

void wf_server_report_recovered(struct wf_meta_server *server, uint64_t conn)
{
    if (server->round.recovered && server->round.noticed) {
        list_engines(server);
        wf_frame_send(server->env, conn, WF_FRAME_round_report, &server->round.report, -1);
    }
}

void wf_server_report_round(struct wf_meta_server *server, bool committed)
{
    struct wf_server_round *round = &server->round;
    struct wf_frame_round_report *report = &round->report;
    uint64_t now = wf_server_now(server);
    report->state = committed ? WF_REPORT_COMMITTED : WF_REPORT_ABORTED;
    report->culprit = round->culprit;
    report->decide_ns = round->flip_sent_ns > 0 ? round->flip_sent_ns - round->last_vote_ns : 0;
    report->total_ns = now - round->opened_ns;
    list_engines(server);
    wf_server_send_observers(server, WF_FRAME_round_report, report);
    wf_server_remember_round(server);
}

void wf_server_report_presence(struct wf_meta_server *server, bool away,
                               const struct wf_culprit *who)
{
    const struct wf_frame_presence presence = {.away = away, .who = *who};
    wf_server_send_observers(server, WF_FRAME_presence, &presence);
}

void wf_server_progress(struct wf_meta_server *server, const char *phase, uint64_t done,
                        uint64_t of, const char *text)
{
    struct wf_frame_progress progress = {.round = server->round.key, .done = done, .of = of};
    snprintf(progress.phase, sizeof progress.phase, "%s", phase);
    snprintf(progress.text, sizeof progress.text, "%s", text);
    wf_server_send_observers(server, WF_FRAME_progress, &progress);
}
