/* metrics.c - one table of plain numbers, and the families that have labels. */
#include "tools/watch/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/watch/status_json.h"

#define SECOND 1e9

/* The families of one sample. */
enum unit { PLAIN, NANOSECONDS };
static const struct family {
    const char *name, *type, *help;
    size_t offset;
    enum unit unit;
} families[] = {
#define FIELD(name) offsetof(struct wf_frame_status, name)
    {"weft_term", "gauge", "Term of the server.", FIELD(term), PLAIN},
    {"weft_epoch", "gauge", "Membership number; grows whenever a rank joins, leaves or dies.",
     FIELD(epoch), PLAIN},
    {"weft_generation", "gauge", "Counter of the train side's generation.", FIELD(generation),
     PLAIN},
    {"weft_uptime_seconds", "gauge", "Since the server started.", FIELD(up_ns), NANOSECONDS},
    {"weft_committed_step", "gauge", "Step of the newest committed version; 0 before the first.",
     FIELD(committed.step), PLAIN},
    {"weft_stored_step", "gauge", "Step of the newest version that lies in a folder; 0: none does.",
     FIELD(stored.step), PLAIN},
    {"weft_versions_committed_total", "counter", "Versions committed since the server started.",
     FIELD(versions_committed), PLAIN},
    {"weft_fills_total", "counter", "Rounds that brought a committed version to ranks without it.",
     FIELD(fills), PLAIN},
    {"weft_bytes_moved_total", "counter", "Bytes that infer ranks have read.", FIELD(bytes_moved),
     PLAIN},
    {"weft_pause_seconds_total", "counter", "Longest pause of each committed round, summed up.",
     FIELD(pause_ns), NANOSECONDS},
    {"weft_pause_max_seconds", "gauge", "Longest pause of any committed round.",
     FIELD(pause_max_ns), NANOSECONDS},
    {"weft_digest_mismatches_total", "counter", "Chunks whose digest was not the source's.",
     FIELD(digest_mismatches), PLAIN},
    {"weft_replicas_different_total", "counter",
     "Ranks that held other bytes of something than the other ranks that hold it.",
     FIELD(replicas_different), PLAIN},
    {"weft_ranks_lost_total", "counter", "Ranks whose lease ran out.", FIELD(ranks_lost), PLAIN},
    {"weft_connections", "gauge", "Connections of ranks, observers and strangers.",
     FIELD(connections), PLAIN},
    {"weft_connections_refused_total", "counter",
     "Connections that did not show that they belong to the job.", FIELD(connections_refused),
     PLAIN},
#undef FIELD
};

static void head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void plain_families(FILE *out, const struct wf_frame_status *s)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const struct family *f = &families[i];
        uint64_t value;
        memcpy(&value, (const uint8_t *)s + f->offset, sizeof value);
        head(out, f->name, f->type, f->help);
        if (f->unit == NANOSECONDS) {
            fprintf(out, "%s %.9f\n", f->name, (double)value / SECOND);
        } else {
            fprintf(out, "%s %" PRIu64 "\n", f->name, value);
        }
    }
}

static void rounds(FILE *out, const struct wf_frame_status *s)
{
    const struct {
        const char *name;
        uint64_t ns;
    } phases[] = {{"grant", s->grant_ns},   {"transfer", s->transfer_ns}, {"verify", s->verify_ns},
                  {"decide", s->decide_ns}, {"flip", s->flip_ns},         {"total", s->total_ns}};
    head(out, "weft_rounds_total", "counter", "Rounds that have ended, by their result.");
    fprintf(out, "weft_rounds_total{result=\"committed\"} %" PRIu64 "\n", s->rounds_committed);
    fprintf(out, "weft_rounds_total{result=\"aborted\"} %" PRIu64 "\n", s->rounds_aborted);
    head(out, "weft_round_seconds_total", "counter",
         "Seconds of the phases of committed rounds, each the longest of its ranks.");
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        fprintf(out, "weft_round_seconds_total{phase=\"%s\"} %.9f\n", phases[i].name,
                (double)phases[i].ns / SECOND);
    }
}

static void ranks(FILE *out, const struct wf_frame_status *s)
{
    enum { PRESENCES = 5 };
    uint64_t count[2][PRESENCES] = {{0}}, peak[2] = {0}, lease = UINT64_MAX;
    for (uint32_t i = 0; i < s->ranks_count; i++) {
        const struct wf_el_status_rank *rank = &s->ranks[i];
        uint64_t side = rank->side == WF_TRAIN ? 0 : 1;
        count[side][rank->presence % PRESENCES]++;
        peak[side] = rank->bytes_peak > peak[side] ? rank->bytes_peak : peak[side];
        if (rank->presence == 2 && rank->lease_left_ns < lease) {
            lease = rank->lease_left_ns;
        }
    }
    head(out, "weft_ranks", "gauge", "Ranks by side and presence.");
    for (int side = 0; side < 2; side++) {
        for (uint64_t p = 0; p < PRESENCES; p++) {
            fprintf(out, "weft_ranks{side=\"%s\",presence=\"%s\"} %" PRIu64 "\n",
                    wf_side_name(side), wf_presence_word(p), count[side][p]);
        }
    }
    head(out, "weft_rank_own_bytes_peak", "gauge",
         "Largest memory of Weft's own that a rank of the side has reported.");
    fprintf(out, "weft_rank_own_bytes_peak{side=\"train\"} %" PRIu64 "\n", peak[0]);
    fprintf(out, "weft_rank_own_bytes_peak{side=\"infer\"} %" PRIu64 "\n", peak[1]);
    head(out, "weft_lease_left_min_seconds", "gauge",
         "What is left of the lease that ends first, of ranks that are present.");
    fprintf(out, "weft_lease_left_min_seconds %.9f\n",
            lease == UINT64_MAX ? 0.0 : (double)lease / SECOND);
}

static void engines(FILE *out, const struct wf_frame_status *s)
{
    head(out, "weft_engine_step", "gauge", "Step of the version that is committed for the engine.");
    for (uint32_t i = 0; i < s->engines_count; i++) {
        fprintf(out, "weft_engine_step{engine=\"%" PRIu64 "\"} %" PRIu64 "\n", s->engines[i].engine,
                s->engines[i].current.step);
    }
    head(out, "weft_engine_ranks_serving", "gauge", "Ranks of the engine that serve.");
    for (uint32_t i = 0; i < s->engines_count; i++) {
        fprintf(out, "weft_engine_ranks_serving{engine=\"%" PRIu64 "\"} %" PRIu64 "\n",
                s->engines[i].engine, s->engines[i].serving);
    }
}

static void waits(FILE *out, const struct wf_frame_status *s)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < s->waits_count; i++) {
        longest = s->waits[i].since_ns > longest ? s->waits[i].since_ns : longest;
    }
    head(out, "weft_waits", "gauge", "For how many answers the server waits now.");
    fprintf(out, "weft_waits %" PRIu32 "\n", s->waits_count);
    head(out, "weft_wait_max_seconds", "gauge", "How long the oldest of them has lasted.");
    fprintf(out, "weft_wait_max_seconds %.9f\n", (double)longest / SECOND);
}

char *wf_metrics_text(const struct wf_frame_status *s, size_t *len_out)
{
    static const char states[][12] = {"recovering", "idle", "opened", "closing", "ending", "ended"};
    char *text = NULL;
    FILE *out = open_memstream(&text, len_out);
    WF_ASSERT(out != NULL);
    head(out, "weft_info", "gauge", "The job and the version of Weft; always 1.");
    fprintf(out, "weft_info{job=\"%s\",version=\"%s\"} 1\n", s->job, s->weft_version);
    head(out, "weft_state", "gauge", "1 for the state that the server is in.");
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        fprintf(out, "weft_state{state=\"%s\"} %d\n", states[i], strcmp(states[i], s->state) == 0);
    }
    plain_families(out, s);
    rounds(out, s);
    ranks(out, s);
    engines(out, s);
    waits(out, s);
    WF_ASSERT(fclose(out) == 0);
    return text;
}
