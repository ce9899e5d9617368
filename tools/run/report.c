/* report.c - gathering rounds and notes, and what they come to. */
#include "tools/run/report.h"

#include <stdlib.h>
#include <string.h>

static void *copy_list(const void *list, size_t count, size_t size)
{
    void *copy = calloc(count + 1, size);
    WF_ASSERT(copy != NULL);
    if (count > 0) {
        memcpy(copy, list, count * size);
    }
    return copy;
}

void wf_report_fini(struct wf_report *report)
{
    for (uint32_t i = 0; i < report->round_count; i++) {
        free(report->rounds[i].frame.transports);
        free(report->rounds[i].frame.engines);
    }
    free(report->rounds);
    free(report->accounts);
    free(report->doubts);
    free(report->spans);
    for (uint32_t i = 0; i < report->selected_count; i++) {
        free(report->selected[i].ranks);
    }
    free(report->selected);
    memset(report, 0, sizeof *report);
}

void wf_report_plan(struct wf_report *report, const struct wf_frame_plan_report *frame)
{
    report->plan = *frame;
    report->have_plan = true;
}

void wf_report_round(struct wf_report *report, const struct wf_frame_round_report *frame,
                     uint64_t now_ns)
{
    report->rounds = realloc(report->rounds, (report->round_count + 1) * sizeof *report->rounds);
    WF_ASSERT(report->rounds != NULL);
    struct wf_report_round *round = &report->rounds[report->round_count++];
    memset(round, 0, sizeof *round);
    round->frame = *frame;
    /* An age, of another host perhaps: that one may have been up for longer than this. */
    round->opened_ns = frame->opened_ns < now_ns ? now_ns - frame->opened_ns : 0;
    round->frame.transports =
        copy_list(frame->transports, frame->transports_count, sizeof *frame->transports);
    round->frame.engines = copy_list(frame->engines, frame->engines_count, sizeof *frame->engines);
    for (uint32_t i = 0; i < report->doubt_count && !frame->fill; i++) {
        struct wf_report_doubt *doubt = &report->doubts[i];
        if (wf_version_compare(doubt->version, frame->round.version) == 0) {
            round->in_doubt = true;
            doubt->settled = true;
        }
    }
}

/* --- versions in doubt ------------------------------------------------------------------------ */
bool wf_report_in_doubt(struct wf_report *report, struct wf_version version)
{
    for (uint32_t i = 0; i < report->doubt_count; i++) {
        if (wf_version_compare(report->doubts[i].version, version) == 0) {
            return false; /* each train rank says it */
        }
    }
    report->doubts = realloc(report->doubts, (report->doubt_count + 1) * sizeof *report->doubts);
    WF_ASSERT(report->doubts != NULL);
    struct wf_report_doubt *doubt = &report->doubts[report->doubt_count++];
    *doubt = (struct wf_report_doubt){.version = version};
    for (uint32_t i = 0; i < report->round_count; i++) { /* said late, over a link that was down */
        struct wf_report_round *round = &report->rounds[i];
        if (!round->frame.fill && round->frame.state == WF_REPORT_COMMITTED &&
            wf_version_compare(round->frame.round.version, version) == 0) {
            round->in_doubt = doubt->settled = true;
        }
    }
    return true;
}

void wf_report_close_doubts(struct wf_report *report)
{
    for (uint32_t i = 0; i < report->doubt_count; i++) {
        if (!report->doubts[i].settled) {
            const struct wf_frame_round_report frame = {.round.version = report->doubts[i].version,
                                                        .state = WF_REPORT_IN_DOUBT};
            wf_report_round(report, &frame, 0);
        }
    }
}

static struct wf_report_round *newest_round(const struct wf_report *report, uint64_t step)
{
    for (uint32_t i = report->round_count; i-- > 0;) {
        if (report->rounds[i].frame.round.version.step == step) {
            return &report->rounds[i];
        }
    }
    return NULL;
}

const struct wf_report_round *wf_report_last(const struct wf_report *report, uint64_t step)
{
    return newest_round(report, step);
}

static void add_span(struct wf_report *report, const struct wf_frame_note *note,
                     const struct wf_el_span *from)
{
    report->spans = realloc(report->spans, (report->span_count + 1) * sizeof *report->spans);
    WF_ASSERT(report->spans != NULL);
    struct wf_report_span *span = &report->spans[report->span_count++];
    *span = (struct wf_report_span){.side = (uint32_t)note->side,
                                    .rank = (uint32_t)note->rank,
                                    .engine = (uint32_t)note->engine,
                                    .step = note->version.step,
                                    .start_ns = from->start_ns,
                                    .end_ns = from->end_ns};
    snprintf(span->name, sizeof span->name, "%s", from->name);
}

static struct wf_report_account *account_of(struct wf_report *report, uint64_t step)
{
    for (uint32_t i = 0; i < report->account_count; i++) {
        if (report->accounts[i].step == step) {
            return &report->accounts[i];
        }
    }
    report->accounts =
        realloc(report->accounts, (report->account_count + 1) * sizeof *report->accounts);
    WF_ASSERT(report->accounts != NULL);
    struct wf_report_account *account = &report->accounts[report->account_count++];
    *account = (struct wf_report_account){.step = step};
    return account;
}

struct wf_report_account wf_report_account(const struct wf_report *report,
                                           const struct wf_report_round *round)
{
    uint64_t step = round->frame.round.version.step;
    for (uint32_t i = 0; i < report->account_count; i++) {
        if (report->accounts[i].step == step && newest_round(report, step) == round) {
            return report->accounts[i];
        }
    }
    return (struct wf_report_account){.step = step};
}

static void drop_selected(struct wf_report_selected *selected, uint32_t rank)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < selected->rank_count; i++) {
        if (selected->ranks[i] != rank) {
            selected->ranks[kept++] = selected->ranks[i];
        }
    }
    selected->rank_count = kept;
}

static void add_selected(struct wf_report_selected *selected, uint32_t rank)
{
    selected->ranks =
        realloc(selected->ranks, (selected->rank_count + 1) * sizeof *selected->ranks);
    WF_ASSERT(selected->ranks != NULL);
    uint32_t at = selected->rank_count++;
    for (; at > 0 && selected->ranks[at - 1] > rank; at--) {
        selected->ranks[at] = selected->ranks[at - 1];
    }
    selected->ranks[at] = rank;
}

static void take_selected(struct wf_report *report, uint32_t rank, const char *text)
{
    struct wf_report_selected *same = NULL;
    for (uint32_t i = 0; i < report->selected_count; i++) {
        drop_selected(&report->selected[i], rank);
        if (strcmp(report->selected[i].text, text) == 0) {
            same = &report->selected[i];
        }
    }
    if (same == NULL) {
        report->selected =
            realloc(report->selected, (report->selected_count + 1) * sizeof *report->selected);
        WF_ASSERT(report->selected != NULL);
        same = &report->selected[report->selected_count++];
        memset(same, 0, sizeof *same);
        snprintf(same->text, sizeof same->text, "%s", text);
    }
    add_selected(same, rank);
}

void wf_report_note(struct wf_report *report, const struct wf_frame_note *note)
{
    if (note->side == WF_INFER && note->text[0] != '\0') {
        take_selected(report, (uint32_t)note->rank, note->text);
    }
    if (note->side == WF_INFER) {
        struct wf_report_account *account = account_of(report, note->version.step);
        account->elements_checked += note->elements_checked;
        account->elements_wrong += note->elements_wrong;
        account->torn_reads += note->torn_reads;
        account->reads += note->reads;
    }
    uint64_t *peak = note->side == WF_TRAIN ? &report->train_own_peak : &report->infer_own_peak;
    if (note->side <= WF_INFER && note->own_bytes_peak > *peak) {
        *peak = note->own_bytes_peak;
    }
    for (uint32_t i = 0; i < note->spans_count; i++) {
        add_span(report, note, &note->spans[i]);
    }
}

/* A disk's rate is not measured. */
static bool comes_from_disk(const struct wf_el_transport *transport)
{
    return strcmp(transport->name, "folder") == 0;
}

static bool moves_in_memory(const struct wf_el_transport *transport)
{
    return strcmp(transport->name, "shm") == 0;
}

/* How the limits of the round were found: those that count for it. */
static void describe_limit(struct wf_report_round *round, const struct wf_limit *limit)
{
    bool memory = false, link = false;
    for (uint32_t i = 0; i < round->frame.transports_count; i++) {
        memory = memory || moves_in_memory(&round->frame.transports[i]);
        link = link || !moves_in_memory(&round->frame.transports[i]);
    }
    snprintf(round->limit_how, sizeof round->limit_how, "%s%s%s", memory ? limit->memory.how : "",
             memory && link ? "; " : "", link ? limit->link.how : "");
}

void wf_report_limit(struct wf_report *report, uint64_t step, const struct wf_limit *limit)
{
    struct wf_report_round *round = newest_round(report, step);
    report->limit = limit;
    if (round != NULL) {
        round->memory_bytes_per_s = limit->memory.bytes_per_s;
        round->link_bytes_per_s = limit->link.bytes_per_s;
        describe_limit(round, limit);
    }
}

double wf_report_limit_seconds(const struct wf_report_round *round)
{
    double seconds = 0;
    for (uint32_t i = 0; i < round->frame.transports_count; i++) {
        const struct wf_el_transport *transport = &round->frame.transports[i];
        double rate =
            moves_in_memory(transport) ? round->memory_bytes_per_s : round->link_bytes_per_s;
        if (transport->bytes > 0 && (rate <= 0 || comes_from_disk(transport))) {
            return 0;
        }
        seconds += transport->bytes > 0 ? (double)transport->bytes / rate : 0;
    }
    return seconds;
}

double wf_report_limit_ratio(const struct wf_report_round *round)
{
    const struct wf_frame_round_report *frame = &round->frame;
    bool moved = frame->transfer_ns > 0 && frame->state == WF_REPORT_COMMITTED &&
                 frame->bytes >= WF_REPORT_RATIO_BYTES_MIN;
    return moved ? wf_report_limit_seconds(round) / ((double)frame->transfer_ns * 1e-9) : 0;
}

void wf_report_ratios(const struct wf_report *report, struct wf_samples *samples_out)
{
    for (uint32_t i = 0; i < report->round_count; i++) {
        double ratio = wf_report_limit_ratio(&report->rounds[i]);
        if (ratio > 0) {
            wf_samples_add(samples_out, ratio);
        }
    }
}

/* The newest attempt decides. A fill that came to nothing takes no version back. */
static bool is_committed(const struct wf_report *report, uint64_t step)
{
    for (uint32_t i = report->round_count; i-- > 0;) {
        const struct wf_frame_round_report *frame = &report->rounds[i].frame;
        if (frame->round.version.step == step &&
            (!frame->fill || frame->state == WF_REPORT_COMMITTED)) {
            return frame->state == WF_REPORT_COMMITTED;
        }
    }
    return false;
}

bool wf_report_ok(const struct wf_report *report)
{
    uint64_t every = report->every > 0 ? report->every : 1;
    uint64_t last = report->versions_wanted / every * every;
    bool good = report->versions_wanted > 0 && !report->failed;
    /* The first step is a version too; where versions may be dropped, only the last has to come. */
    if (last == 0 || !report->only_latest) {
        good = good && is_committed(report, 1);
    }
    for (uint64_t step = report->only_latest ? last : every; good && step <= last && step > 0;
         step += every) {
        good = is_committed(report, step);
    }
    for (uint32_t i = 0; i < report->round_count; i++) {
        good = good && report->rounds[i].frame.replicas_different == 0;
    }
    for (uint32_t i = 0; i < report->account_count; i++) {
        good =
            good && report->accounts[i].elements_wrong == 0 && report->accounts[i].torn_reads == 0;
    }
    return good;
}

const char *wf_report_bound_by(const struct wf_report_round *round)
{
    double transfer = (double)round->frame.transfer_ns * 1e-9;
    if (round->frame.state != WF_REPORT_COMMITTED || round->frame.bytes == 0 || transfer <= 0) {
        return "nothing moved";
    }
    double limit = wf_report_limit_seconds(round);
    if (limit <= 0) {
        return "not measured";
    }
    if (round->frame.bytes < WF_REPORT_RATIO_BYTES_MIN) {
        return "too few bytes to tell";
    }
    uint64_t by_link = 0;
    for (uint32_t i = 0; i < round->frame.transports_count; i++) {
        const struct wf_el_transport *transport = &round->frame.transports[i];
        by_link += moves_in_memory(transport) ? 0 : transport->bytes;
    }
    bool mostly_link =
        round->link_bytes_per_s > 0 && 2 * (double)by_link / round->link_bytes_per_s > limit;
    return limit / transfer < 0.5 ? "scheduling of ranks on this host's cores"
           : mostly_link          ? "TCP on this host"
                                  : "memory bandwidth";
}
