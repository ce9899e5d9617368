/* print.c - tables of a status. */
#include "tools/watch/print.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "tools/watch/status_json.h"

enum { SHORT_TEXT = 32, LINE_MAX_BYTES = 4096 };

/* What ranks say of themselves may hold any bytes; a terminal obeys some. */
static void put(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(FILE *out, const char *format, ...)
{
    char text[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *at = text; *at != '\0'; at++) {
        if (*at != '\n' && (*at < ' ' || *at > '~')) {
            *at = '?';
        }
    }
    fputs(text, out);
}

static void duration(uint64_t ns, char out[SHORT_TEXT])
{
    double s = (double)ns / 1e9;
    if (s >= 3600) {
        snprintf(out, SHORT_TEXT, "%.0f h %02.0f min", (double)(uint64_t)(s / 3600),
                 (double)((uint64_t)s / 60 % 60));
    } else if (s >= 60) {
        snprintf(out, SHORT_TEXT, "%.0f min %02.0f s", (double)(uint64_t)(s / 60),
                 (double)((uint64_t)s % 60));
    } else if (s >= 1) {
        snprintf(out, SHORT_TEXT, "%.2f s", s);
    } else {
        snprintf(out, SHORT_TEXT, ns == 0 ? "0 s" : s >= 1e-3 ? "%.1f ms" : "%.3f ms", s * 1e3);
    }
}

static void size_text(uint64_t bytes, char out[SHORT_TEXT])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        unit++;
    }
    snprintf(out, SHORT_TEXT, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value,
             units[unit]);
}

static void version_text(struct wf_version version, char out[WF_VERSION_TEXT])
{
    if (wf_version_is_none(version)) {
        snprintf(out, WF_VERSION_TEXT, "none");
    } else {
        wf_version_format(version, out);
    }
}

static void print_job(const struct wf_frame_status *s, FILE *out)
{
    char version[WF_VERSION_TEXT], up[SHORT_TEXT], bytes[SHORT_TEXT], pause[SHORT_TEXT];
    char hash[WF_HASH_TEXT];
    version_text(s->committed, version);
    duration(s->up_ns, up);
    put(out,
        "job %s: %s, committed version %s\n"
        "server: term %" PRIu64 ", epoch %" PRIu64 ", up %s, weft %s\n",
        s->job, s->state, version, s->term, s->epoch, up, s->weft_version);
    if (!wf_version_is_none(s->stored)) {
        version_text(s->stored, version);
        put(out, "in a folder: version %s\n", version);
    }
    size_text(s->plan_bytes, bytes);
    wf_hash_format(s->plan, hash);
    if (s->agreed) {
        put(out, "plan %.8s: %" PRIu64 " ops, %s a version\n", hash, s->plan_ops, bytes);
    } else {
        put(out, "no plan yet: not every rank has been there\n");
    }
    size_text(s->bytes_moved, bytes);
    duration(s->pause_max_ns, pause);
    put(out,
        "rounds: %" PRIu64 " committed (%" PRIu64 " of them fills), %" PRIu64 " aborted; %s "
        "moved; longest pause %s; %" PRIu64 " ranks lost\n",
        s->rounds_committed, s->fills, s->rounds_aborted, bytes, pause, s->ranks_lost);
}

static void print_engines(const struct wf_frame_status *s, FILE *out)
{
    put(out, "\n%-8s %-22s %s\n", "engine", "version", "ranks that serve");
    for (uint32_t i = 0; i < s->engines_count; i++) {
        char version[WF_VERSION_TEXT];
        version_text(s->engines[i].current, version);
        put(out, "%-8" PRIu64 " %-22s %" PRIu64 " of %" PRIu64 "\n", s->engines[i].engine, version,
            s->engines[i].serving, s->engines[i].ranks);
    }
}

static void print_rank(const struct wf_el_status_rank *rank, FILE *out)
{
    char name[SHORT_TEXT], version[WF_VERSION_TEXT], lease[SHORT_TEXT] = "-", heard[SHORT_TEXT];
    bool leased = rank->presence == 1 || rank->presence == 2;
    snprintf(name, sizeof name, "%s:%" PRIu64, wf_side_name(rank->side), rank->rank);
    version_text(rank->live, version);
    if (leased) {
        duration(rank->lease_left_ns, lease);
    }
    duration(rank->heard_ns, heard);
    put(out, "%-12s %-12s %-22s %-10s %-12s %-8" PRIu64 " %s\n", name, rank->doing,
        rank->side == WF_TRAIN ? "" : version, lease, rank->host[0] != '\0' ? heard : "-",
        rank->pid, rank->host);
}

static void print_ranks(const struct wf_frame_status *s, FILE *out)
{
    put(out, "\n%-12s %-12s %-22s %-10s %-12s %-8s %s\n", "rank", "doing", "version", "lease",
        "heard ago", "pid", "host");
    for (uint32_t i = 0; i < s->ranks_count && i < WF_PRINT_RANKS; i++) {
        print_rank(&s->ranks[i], out);
    }
    uint64_t all = s->train_ranks + s->infer_ranks;
    uint64_t shown = s->ranks_count < WF_PRINT_RANKS ? s->ranks_count : WF_PRINT_RANKS;
    if (all > shown) {
        put(out, "and %" PRIu64 " more ranks; --json lists them\n", all - shown);
    }
}

static void print_round(const struct wf_el_status_round *round, FILE *out)
{
    char version[WF_VERSION_TEXT], total[SHORT_TEXT], transfer[SHORT_TEXT], pause[SHORT_TEXT];
    char bytes[SHORT_TEXT], when[SHORT_TEXT], culprit[WF_CULPRIT_TEXT] = "";
    char source[WF_SOURCE_TEXT], fill[WF_SOURCE_TEXT + 16] = "";
    version_text(round->round.version, version);
    duration(round->total_ns, total);
    duration(round->transfer_ns, transfer);
    duration(round->pause_ns, pause);
    duration(round->opened_ns, when);
    size_text(round->bytes, bytes);
    if (!wf_culprit_is_none(&round->culprit)) {
        wf_culprit_format(&round->culprit, culprit);
    }
    if (round->fill) {
        wf_source_format(round->source, source);
        snprintf(fill, sizeof fill, "fill from %s ", source);
    }
    put(out, "%-22s %-7" PRIu64 " %-10s %-10s %-10s %-10s %-9s %-12s %s%s\n", version,
        round->round.attempt, wf_round_state_word(round->state), total, transfer, pause, bytes,
        when, fill, culprit);
}

static void print_rounds(const struct wf_frame_status *s, FILE *out)
{
    put(out, "\n%-22s %-7s %-10s %-10s %-10s %-10s %-9s %-12s\n", "round", "attempt", "result",
        "total", "transfer", "pause", "bytes", "opened ago");
    for (uint32_t i = 0; i < s->rounds_count && i < WF_PRINT_ROUNDS; i++) {
        print_round(&s->rounds[s->rounds_count - 1 - i], out);
    }
    if (s->rounds_count == 0) {
        put(out, "none yet\n");
    }
}

void wf_status_print(const struct wf_frame_status *s, FILE *out)
{
    print_job(s, out);
    print_engines(s, out);
    print_ranks(s, out);
    print_rounds(s, out);
}

void wf_status_print_waits(const struct wf_frame_status *s, FILE *out)
{
    for (uint32_t i = 0; i < s->waits_count; i++) {
        char text[WF_WAIT_TEXT];
        wf_wait_text(&s->waits[i], text);
        put(out, "%s\n", text);
    }
    if (s->waits_count == 0) {
        put(out, "the server of job %s waits for nobody\n", s->job);
    }
}
