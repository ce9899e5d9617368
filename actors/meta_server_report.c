/* meta_server_report.c - what observers are told: the plan once, progress, the end of each round.
 */
#include <stdio.h>
#include <stdlib.h>
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
                                            .ingress_max = planned->ingress_max,
                                            .cast_made_bytes = planned->cast_made_bytes,
                                            .cast_once_bytes = planned->cast_once_bytes,
                                            .cast_moving_bytes = planned->cast_moving_bytes,
                                            .cut_matrices = planned->cut_matrices};
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

/* Members that read: in a fill the others may be a replica's ranks, or nobody. */
static uint32_t count_readers(const struct wf_meta_server *server)
{
    uint32_t count = 0;
    for (uint32_t i = server->options.train_ranks; i < server->rank_count; i++) {
        count += server->ranks[i].member;
    }
    return count;
}

void wf_server_report_progress(struct wf_meta_server *server)
{
    const struct wf_server_round *round = &server->round;
    if (server->progress_due) {
        server->progress_due = false;
        wf_server_progress(server, round->fill ? "fill" : "transfer", round->votes_yes,
                           count_readers(server), round->report.label);
    }
}

/* Observers of a server that follows another one come back when they have noticed: what they may
 * have missed is kept for them. */
static void keep_report(struct wf_meta_server *server)
{
    if (server->found_term == 0) {
        return;
    }
    struct wf_server_kept *kept = &server->kept[server->kept_count++ % WF_REPORTS_KEPT];
    const struct wf_frame_round_report *report = &server->round.report;
    free(kept->engines);
    kept->engines = calloc(report->engines_count + 1, sizeof kept->engines[0]);
    WF_ASSERT(kept->engines != NULL);
    if (report->engines_count > 0) {
        memcpy(kept->engines, report->engines, report->engines_count * sizeof kept->engines[0]);
    }
    memcpy(kept->transports, server->round.transports, sizeof kept->transports);
    kept->report = *report;
    kept->opened_ns = server->round.opened_ns;
    kept->report.engines = kept->engines;
    kept->report.transports = kept->transports;
}

void wf_server_forget_reports(struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < WF_REPORTS_KEPT; i++) {
        free(server->kept[i].engines);
    }
}

void wf_server_report_missed(struct wf_meta_server *server, uint64_t conn)
{
    uint64_t first =
        server->kept_count > WF_REPORTS_KEPT ? server->kept_count - WF_REPORTS_KEPT : 0;
    for (uint64_t i = first; i < server->kept_count; i++) {
        struct wf_server_kept *kept = &server->kept[i % WF_REPORTS_KEPT];
        kept->report.opened_ns = wf_server_now(server) - kept->opened_ns;
        wf_frame_send(server->env, conn, WF_FRAME_round_report, &kept->report, -1);
    }
    for (uint32_t i = 0; server->found_term > 0 && i < server->rank_count; i++) {
        if (server->ranks[i].note != NULL) {
            wf_frame_send(server->env, conn, WF_FRAME_note, server->ranks[i].note, -1);
        }
    }
    for (uint32_t i = 0; i < server->rank_count; i++) {
        struct wf_server_rank *rank = &server->ranks[i];
        if (rank->presence == WF_PRESENT || rank->presence == WF_FENCED) {
            struct wf_frame_presence presence = {.away = rank->presence == WF_FENCED};
            wf_server_blame(rank, &presence.who, presence.away ? "was lost" : "is here");
            wf_frame_send(server->env, conn, WF_FRAME_presence, &presence, -1);
        }
    }
}

void wf_server_forget_note(struct wf_server_rank *rank)
{
    if (rank->note != NULL) {
        free(rank->note->spans);
        free(rank->note);
        rank->note = NULL;
    }
}

static bool is_same_note(const struct wf_frame_note *a, const struct wf_frame_note *b)
{
    bool same = wf_version_compare(a->version, b->version) == 0 && a->attempt == b->attempt &&
                a->elements_checked == b->elements_checked &&
                a->elements_wrong == b->elements_wrong && a->torn_reads == b->torn_reads &&
                a->reads == b->reads && a->own_bytes_peak == b->own_bytes_peak &&
                strcmp(a->text, b->text) == 0 && a->spans_count == b->spans_count;
    for (uint32_t i = 0; same && i < a->spans_count; i++) {
        same = a->spans[i].start_ns == b->spans[i].start_ns &&
               a->spans[i].end_ns == b->spans[i].end_ns;
    }
    return same;
}

bool wf_server_keep_note(struct wf_server_rank *rank, const struct wf_frame_note *note)
{
    if (rank->note != NULL && is_same_note(rank->note, note)) {
        return false;
    }
    wf_server_forget_note(rank);
    rank->note = malloc(sizeof *rank->note);
    struct wf_el_span *spans = calloc(note->spans_count + 1, sizeof spans[0]);
    WF_ASSERT(rank->note != NULL && spans != NULL);
    if (note->spans_count > 0) {
        memcpy(spans, note->spans, note->spans_count * sizeof spans[0]);
    }
    *rank->note = *note;
    rank->note->spans = spans;
    return true;
}

void wf_server_report_round(struct wf_meta_server *server, bool committed)
{
    struct wf_server_round *round = &server->round;
    struct wf_frame_round_report *report = &round->report;
    uint64_t now = wf_server_now(server);
    report->state = committed ? WF_REPORT_COMMITTED : WF_REPORT_ABORTED;
    report->culprit = round->culprit;
    report->other = round->other;
    report->decide_ns = round->flip_sent_ns > 0 ? round->flip_sent_ns - round->last_vote_ns : 0;
    report->opened_ns = now - round->opened_ns;
    report->total_ns = (round->resumed_ns > 0 ? round->resumed_ns : now) - round->opened_ns;
    report->transports = round->transports;
    report->engines = server->units;
    report->engines_count = 0;
    for (uint32_t e = 0; e < server->options.engines; e++) {
        const struct wf_server_engine *engine = &server->engines[e];
        if (engine->unit == WF_UNIT_DECIDED && wf_server_engine_is_full(server, engine)) {
            server->units[report->engines_count++].engine = e;
        }
    }
    keep_report(server);
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
