/* timeline.c - the rounds as an SVG picture: one row a rank, phases in colours. */
#include <string.h>

#include "tools/run/report.h"

enum { LEFT = 110, TOP = 56, ROW = 20, GAP = 12, WIDTH = 1180, LEGEND = 40 };

struct paint {
    const char *name, *colour;
};

static const struct paint paints[] = {
    {"load", "#9aa5b1"},   {"step", "#f2b134"},     {"digest", "#c77dff"}, {"transfer", "#2a9d8f"},
    {"verify", "#4ea8de"}, {"flip", "#e76f51"},     {"pause", "#d00000"},  {"check", "#b7c9a8"},
    {"hold", "#fbe3a8"},   {"snapshot", "#f4a261"}, {"write", "#8d6e63"},
};

static const char *colour_of(const char *name)
{
    for (size_t i = 0; i < sizeof paints / sizeof paints[0]; i++) {
        if (strcmp(paints[i].name, name) == 0) {
            return paints[i].colour;
        }
    }
    return "#888888";
}

struct frame {
    const struct wf_report *report;
    uint64_t start_ns, end_ns;
    uint32_t train_ranks, infer_ranks;
};

static double x_of(const struct frame *frame, uint64_t ns)
{
    double span = (double)(frame->end_ns - frame->start_ns);
    double at = ns > frame->start_ns ? (double)(ns - frame->start_ns) : 0;
    return LEFT + (WIDTH - LEFT - 20) * (span > 0 ? at / span : 0);
}

static int y_of(const struct frame *frame, uint32_t side, uint32_t rank)
{
    return TOP + (int)(side == WF_TRAIN ? rank : frame->train_ranks + rank) * ROW +
           (side == WF_INFER ? GAP : 0);
}

static void find_range(struct frame *frame)
{
    frame->start_ns = UINT64_MAX;
    for (uint32_t i = 0; i < frame->report->span_count; i++) {
        const struct wf_report_span *span = &frame->report->spans[i];
        frame->start_ns = span->start_ns < frame->start_ns ? span->start_ns : frame->start_ns;
        frame->end_ns = span->end_ns > frame->end_ns ? span->end_ns : frame->end_ns;
        uint32_t *ranks = span->side == WF_TRAIN ? &frame->train_ranks : &frame->infer_ranks;
        *ranks = span->rank + 1 > *ranks ? span->rank + 1 : *ranks;
    }
    if (frame->report->span_count == 0) {
        frame->start_ns = 0;
    }
}

static void draw_rows(const struct frame *frame, FILE *out)
{
    for (uint32_t side = WF_TRAIN; side <= WF_INFER; side++) {
        uint32_t ranks = side == WF_TRAIN ? frame->train_ranks : frame->infer_ranks;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            int y = y_of(frame, side, rank);
            fprintf(out, "<text x=\"8\" y=\"%d\">%s rank %u</text>\n", y + 13, wf_side_name(side),
                    rank);
            fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#f6f7f9\"/>\n",
                    LEFT, y, WIDTH - LEFT - 20, ROW - 4);
        }
    }
}

static void draw_span(const struct frame *frame, const struct wf_report_span *span, FILE *out)
{
    double x = x_of(frame, span->start_ns), width = x_of(frame, span->end_ns) - x;
    bool thin = strcmp(span->name, "pause") == 0;
    fprintf(out,
            "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s "
            "rank %u, step %llu: %s, %.2f ms</title></rect>\n",
            x, y_of(frame, span->side, span->rank) + (thin ? ROW - 7 : 0),
            width < 0.6 ? 0.6 : width, thin ? 3 : ROW - 4, colour_of(span->name),
            wf_side_name(span->side), span->rank, (unsigned long long)span->step, span->name,
            (double)(span->end_ns - span->start_ns) * 1e-6);
}

/* Holds first: what a train rank does meanwhile lies on top of them. */
static void draw_spans(const struct frame *frame, FILE *out)
{
    for (int holds = 1; holds >= 0; holds--) {
        for (uint32_t i = 0; i < frame->report->span_count; i++) {
            const struct wf_report_span *span = &frame->report->spans[i];
            if ((strcmp(span->name, "hold") == 0) == holds) {
                draw_span(frame, span, out);
            }
        }
    }
}

static void draw_rounds(const struct frame *frame, int bottom, FILE *out)
{
    for (uint32_t i = 0; i < frame->report->round_count; i++) {
        const struct wf_frame_round_report *round = &frame->report->rounds[i].frame;
        uint64_t opened_ns = frame->report->rounds[i].opened_ns;
        if (opened_ns < frame->start_ns) {
            continue;
        }
        /* Its age comes with a message: by how long that took it seems to have begun later. */
        double x = x_of(frame, opened_ns < frame->end_ns ? opened_ns : frame->end_ns);
        fprintf(
            out,
            "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\" stroke=\"%s\" "
            "stroke-dasharray=\"3 3\"/>\n<text x=\"%.2f\" y=\"%d\" fill=\"%s\">v%llu%s</text>\n",
            x, x, TOP - 8, bottom, round->state == WF_REPORT_COMMITTED ? "#444" : "#d00000", x + 3,
            TOP - 10, round->state == WF_REPORT_COMMITTED ? "#444" : "#d00000",
            (unsigned long long)round->round.version.step,
            round->state == WF_REPORT_COMMITTED ? "" : " aborted");
    }
}

static void draw_legend(int y, FILE *out)
{
    int x = LEFT;
    for (size_t i = 0; i < sizeof paints / sizeof paints[0]; i++) {
        fprintf(out,
                "<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" "
                "y=\"%d\">%s</text>\n",
                x, y, paints[i].colour, x + 16, y + 10, paints[i].name);
        x += 34 + 7 * (int)strlen(paints[i].name);
    }
}

static void write_svg(FILE *out, const void *user)
{
    struct frame frame = {.report = user};
    find_range(&frame);
    int bottom = TOP + (int)(frame.train_ranks + frame.infer_ranks) * ROW + GAP;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">\n<rect width=\"100%%\" "
            "height=\"100%%\" fill=\"white\"/>\n<text x=\"8\" y=\"20\" font-size=\"14\">weft: job "
            "%s, %.2f s</text>\n",
            WIDTH, bottom + LEGEND, frame.report->job,
            (double)(frame.end_ns - frame.start_ns) * 1e-9);
    draw_rows(&frame, out);
    draw_spans(&frame, out);
    draw_rounds(&frame, bottom, out);
    draw_legend(bottom + 14, out);
    fputs("</svg>\n", out);
}

enum wf_status wf_timeline_write(const struct wf_report *report, const char *path,
                                 struct wf_error *error)
{
    return wf_report_replace(path, write_svg, report, error);
}
