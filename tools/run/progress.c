/* progress.c - one line, rewritten in place. */
#include "tools/run/progress.h"

#include <unistd.h>

#include "config/units.h"
#include "tools/run/report.h"

enum { BAR = 24 };

void wf_progress_init(struct wf_progress *progress, FILE *out, uint64_t versions)
{
    *progress = (struct wf_progress){.out = out, .versions = versions};
    progress->terminal = out != NULL && isatty(fileno(out));
}

void wf_progress_clear(struct wf_progress *progress)
{
    if (progress->shown) {
        fputs("\r\033[K", progress->out);
        fflush(progress->out);
        progress->shown = false;
    }
}

void wf_progress_plan(struct wf_progress *progress, const struct wf_frame_plan_report *plan)
{
    if (progress->out == NULL) {
        return;
    }
    char bytes[WF_BYTES_TEXT];
    wf_progress_clear(progress);
    fprintf(progress->out,
            "%llu trainer ranks and %llu inference ranks agree on a plan of %llu ops, %s\n",
            (unsigned long long)plan->train_ranks, (unsigned long long)plan->infer_ranks,
            (unsigned long long)plan->ops, wf_bytes_format(plan->bytes_moved, bytes));
}

void wf_progress_phase(struct wf_progress *progress, const struct wf_frame_progress *frame)
{
    if (!progress->terminal) {
        return;
    }
    char bar[BAR + 1];
    uint64_t full = frame->of > 0 ? frame->done * BAR / frame->of : 0;
    for (uint64_t i = 0; i < BAR; i++) {
        bar[i] = i < full ? '#' : '.';
    }
    bar[BAR] = '\0';
    fprintf(progress->out, "\r\033[Kversion %llu of %llu  [%s] %s %llu/%llu %.60s",
            (unsigned long long)frame->round.version.step, (unsigned long long)progress->versions,
            bar, frame->phase, (unsigned long long)frame->done, (unsigned long long)frame->of,
            frame->text);
    fflush(progress->out);
    progress->shown = true;
}

void wf_progress_doubt(struct wf_progress *progress, struct wf_version version)
{
    if (progress->out != NULL) {
        wf_progress_clear(progress);
        fprintf(progress->out, "version %llu of %llu is in doubt: the trainer's deadline passed\n",
                (unsigned long long)version.step, (unsigned long long)progress->versions);
    }
}

void wf_progress_given_up(struct wf_progress *progress, struct wf_version version)
{
    wf_progress_clear(progress);
    fprintf(progress->out != NULL ? progress->out : stderr,
            "version %llu of %llu is given up: the weights are free\n",
            (unsigned long long)version.step, (unsigned long long)progress->versions);
}

void wf_progress_round(struct wf_progress *progress, const struct wf_frame_round_report *round,
                       uint32_t keeping)
{
    bool committed = round->state == WF_REPORT_COMMITTED;
    FILE *out = progress->out != NULL || committed ? progress->out : stderr;
    if (out == NULL) {
        return;
    }
    char who[WF_CULPRIT_TEXT], rest[64] = "";
    wf_culprit_format(&round->culprit, who);
    wf_progress_clear(progress);
    if (committed) {
        bool without = !wf_culprit_is_none(&round->culprit);
        char bytes[WF_BYTES_TEXT];
        fprintf(out, "version %llu of %llu committed: %s in %.1f ms, pause %.1f ms%s%s\n",
                (unsigned long long)round->round.version.step,
                (unsigned long long)progress->versions, wf_bytes_format(round->bytes, bytes),
                (double)round->total_ns * 1e-6, (double)round->pause_ns * 1e-6,
                without ? "; but " : "", without ? who : "");
    } else {
        bool aborted = round->state == WF_REPORT_ABORTED;
        if (aborted && keeping > 0) {
            snprintf(rest, sizeof rest, "; %u infer %s what %s", keeping,
                     keeping == 1 ? "rank keeps" : "ranks keep",
                     keeping == 1 ? "it serves" : "they serve");
        }
        fprintf(out, "version %llu, attempt %llu %s: %s%s\n",
                (unsigned long long)round->round.version.step,
                (unsigned long long)round->round.attempt, aborted ? "aborted" : "in doubt", who,
                rest);
    }
}
