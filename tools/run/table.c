/* table.c - the table a person reads at the end of a job. */
#include <string.h>

#include "config/units.h"
#include "tools/run/report.h"

static double ms(uint64_t ns)
{
    return (double)ns * 1e-6;
}

static void print_plan(const struct wf_report *report, FILE *out)
{
    const struct wf_frame_plan_report *plan = &report->plan;
    char hash[WF_HASH_TEXT], moved[WF_BYTES_TEXT], unique[WF_BYTES_TEXT];
    wf_hash_format(plan->input, hash);
    double mean =
        plan->egress_ranks > 0 ? (double)plan->bytes_moved / (double)plan->egress_ranks : 0;
    fprintf(out,
            "plan     %s\n         %llu ranks -> %llu ranks, %llu ops, %s moved (%s "
            "unique), egress max/mean %.3f, built in %.1f ms\n",
            hash, (unsigned long long)plan->train_ranks, (unsigned long long)plan->infer_ranks,
            (unsigned long long)plan->ops, wf_bytes_format(plan->bytes_moved, moved),
            wf_bytes_format(plan->bytes_unique, unique),
            mean > 0 ? (double)plan->egress_max / mean : 1.0, ms(plan->build_ns));
    if (plan->cast_once_bytes + plan->cast_moving_bytes > 0) {
        char made[WF_BYTES_TEXT], once[WF_BYTES_TEXT], moving[WF_BYTES_TEXT];
        fprintf(
            out,
            "         narrower at the engines: %s cast once by trainers and read as %s, %s cast "
            "while they move\n",
            wf_bytes_format(plan->cast_made_bytes, made),
            wf_bytes_format(plan->cast_once_bytes, once),
            wf_bytes_format(plan->cast_moving_bytes, moving));
    }
    if (plan->cut_matrices > 0) {
        fprintf(out,
                "         blocks of %llu %s quantised by engines: no source has them whole (weft "
                "plan says which)\n",
                (unsigned long long)plan->cut_matrices,
                plan->cut_matrices == 1 ? "matrix" : "matrices");
    }
    fprintf(out, "\n");
}

static void print_round(const struct wf_report_round *round, FILE *out)
{
    const struct wf_frame_round_report *frame = &round->frame;
    char version[WF_VERSION_TEXT];
    wf_version_format(frame->round.version, version);
    if (frame->state != WF_REPORT_COMMITTED) {
        char who[WF_CULPRIT_TEXT];
        wf_culprit_format(&frame->culprit, who);
        fprintf(out, "%-18s %2llu  %s: %s\n", version, (unsigned long long)frame->round.attempt,
                frame->state == WF_REPORT_ABORTED ? "aborted" : "in doubt",
                who[0] != '\0' ? who : "no culprit known");
        return;
    }
    if (frame->replicas_different > 0) {
        char who[WF_CULPRIT_TEXT];
        wf_culprit_format(&frame->culprit, who);
        fprintf(out, "%-18s %2s  %s\n", version, "", who);
    }
    double transfer = (double)frame->transfer_ns * 1e-9;
    double rate = transfer > 0 ? (double)frame->bytes * 1e-9 / transfer : 0;
    char limit[16] = "     -";
    if (wf_report_limit_ratio(round) > 0) {
        snprintf(limit, sizeof limit, "%5.0f%%", 100 * wf_report_limit_ratio(round));
    }
    fprintf(out, "%-18s %2llu %7.1f %9.1f %7.1f %7.1f %7.1f %8.1f %7.1f %6.1f %s  %s\n", version,
            (unsigned long long)frame->round.attempt, ms(frame->grant_ns), ms(frame->transfer_ns),
            ms(frame->verify_ns), ms(frame->decide_ns), ms(frame->flip_ns), ms(frame->total_ns),
            ms(frame->pause_ns), rate, limit, wf_report_bound_by(round));
}

static void print_kind(const struct wf_limit_kind *kind, FILE *out)
{
    if (kind->ways > 0 && kind->samples[kind->best].count > 0) {
        const struct wf_samples *samples = &kind->samples[kind->best];
        fprintf(out, "limit    %s (median of %u passes; half of them %.2f to %.2f)\n", kind->how,
                samples->count, wf_samples_quantile(samples, 0, 0.25) * 1e-9,
                wf_samples_quantile(samples, 0, 0.75) * 1e-9);
    }
}

static void print_limits(const struct wf_report *report, FILE *out)
{
    struct wf_samples ratios = {.count = 0};
    wf_report_ratios(report, &ratios);
    fputc('\n', out);
    if (report->limit == NULL || ratios.count == 0) {
        return;
    }
    print_kind(&report->limit->memory, out);
    print_kind(&report->limit->link, out);
    fprintf(out, "transfer %.0f %% of the limit (median of %u %s; half of them %.0f to %.0f)\n",
            100 * wf_samples_quantile(&ratios, 0, 0.5), ratios.count,
            ratios.count == 1 ? "version" : "versions", 100 * wf_samples_quantile(&ratios, 0, 0.25),
            100 * wf_samples_quantile(&ratios, 0, 0.75));
}

enum { WAYS_MAX = 4 }; /* there are two transports */

/* By which transports the committed versions came. */
static void print_moved(const struct wf_report *report, FILE *out)
{
    struct wf_el_transport ways[WAYS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < report->round_count; i++) {
        const struct wf_frame_round_report *frame = &report->rounds[i].frame;
        for (uint32_t t = 0; frame->state == WF_REPORT_COMMITTED && t < frame->transports_count;
             t++) {
            uint32_t w = 0;
            while (w < count && strcmp(ways[w].name, frame->transports[t].name) != 0) {
                w++;
            }
            if (w < count) {
                ways[w].bytes += frame->transports[t].bytes;
            } else if (w < WAYS_MAX) {
                ways[count++] = frame->transports[t];
            }
        }
    }
    for (uint32_t w = 0; w < count; w++) {
        char bytes[WF_BYTES_TEXT];
        fprintf(out, "%s%s by %s%s", w == 0 ? "moved    " : ", ",
                wf_bytes_format(ways[w].bytes, bytes), ways[w].name, w + 1 == count ? "\n" : "");
    }
}

/* What was opened, and behind it the connections that carried anything. */
static void print_selected(const struct wf_report *report, FILE *out)
{
    for (uint32_t i = 0; i < report->selected_count; i++) {
        const struct wf_report_selected *selected = &report->selected[i];
        if (selected->rank_count > 0) {
            fprintf(out, "opened   %s (%u inference rank%s)\n", selected->text,
                    selected->rank_count, selected->rank_count == 1 ? "" : "s");
        }
    }
}

/* Never let "0 wrong" be read of what nobody looked at. */
static bool print_checks(const struct wf_report *report, FILE *out)
{
    bool all = true;
    for (uint32_t i = 0; i < report->check_count; i++) {
        const struct wf_run_check *check = &report->checks[i];
        if (check->by != WF_RUN_CHECK_LOADERS) {
            fprintf(out, "beware   %s (%s): %s\n", check->group, check->spec, check->why);
            all = all && check->by == WF_RUN_CHECK_LAYOUT;
        }
    }
    return all;
}

/* Each round compares the same ranks again. */
static void print_copies(const struct wf_report *report, FILE *out)
{
    uint64_t least = UINT64_MAX, most = 0, rounds = 0, different = 0, differing = 0;
    for (uint32_t i = 0; i < report->round_count; i++) {
        const struct wf_frame_round_report *frame = &report->rounds[i].frame;
        if (frame->replicas_checked > 0) {
            least = frame->replicas_checked < least ? frame->replicas_checked : least;
            most = frame->replicas_checked > most ? frame->replicas_checked : most;
            different =
                frame->replicas_different > different ? frame->replicas_different : different;
            differing += frame->replicas_different > 0;
            rounds++;
        }
    }
    if (rounds == 0) {
        return;
    }
    fprintf(out, "copies   of ");
    if (least < most) {
        fprintf(out, "%llu to ", (unsigned long long)least);
    }
    fprintf(out, "%llu ranks compared with each other in %llu round%s, ", (unsigned long long)most,
            (unsigned long long)rounds, rounds == 1 ? "" : "s");
    if (differing == 0) {
        fprintf(out, "all alike\n");
    } else {
        fprintf(out, "different in %llu of them, on %llu of the ranks at most\n",
                (unsigned long long)differing, (unsigned long long)different);
    }
}

void wf_report_print(const struct wf_report *report, FILE *out)
{
    uint64_t checked = 0, wrong = 0, torn = 0, reads = 0;
    fputc('\n', out);
    if (report->have_plan) {
        print_plan(report, out);
    }
    if (report->round_count == 0) {
        fprintf(out, "result   NOT OK: no version was sent\n");
        return;
    }
    fprintf(out, "%-18s %2s %7s %9s %7s %7s %7s %8s %7s %6s %6s  %s\n", "version", "#", "grant",
            "transfer", "verify", "decide", "flip", "total", "pause", "GB/s", "limit", "bound by");
    fprintf(out, "%-18s %2s %7s %9s %7s %7s %7s %8s %7s\n", "", "", "ms", "ms", "ms", "ms", "ms",
            "ms", "ms");
    for (uint32_t i = 0; i < report->round_count; i++) {
        print_round(&report->rounds[i], out);
    }
    for (uint32_t i = 0; i < report->account_count; i++) {
        checked += report->accounts[i].elements_checked;
        wrong += report->accounts[i].elements_wrong;
        torn += report->accounts[i].torn_reads;
        reads += report->accounts[i].reads;
    }
    print_limits(report, out);
    print_moved(report, out);
    print_selected(report, out);
    fprintf(out,
            "checked  %llu elements against the checkpoint, %llu wrong; %llu reads during "
            "inference, %llu torn\n",
            (unsigned long long)checked, (unsigned long long)wrong, (unsigned long long)reads,
            (unsigned long long)torn);
    print_copies(report, out);
    bool beware = !print_checks(report, out);
    if (report->train_own_peak > 0) {
        fprintf(out, "memory   largest trainer rank %.1f MB, largest inference rank %.1f MB\n",
                (double)report->train_own_peak * 1e-6, (double)report->infer_own_peak * 1e-6);
    }
    fprintf(out, "result   %s%s\n", wf_report_ok(report) ? "ok" : "NOT OK",
            beware ? ", as far as anybody looked" : "");
}
