/* report.c - gathering rounds and notes; the JSON of DESIGN's report contract. */
#include "tools/run/report.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "tools/files/atomic.h"

static const char *const state_names[] = {"committed", "aborted", "in_doubt"};

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
    round->opened_ns = now_ns - frame->total_ns;
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
    bool moved = frame->transfer_ns > 0 && frame->state == WF_REPORT_COMMITTED;
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

/* --- JSON ------------------------------------------------------------------------------------ */
static void put_u64(struct json_object *to, const char *key, uint64_t value)
{
    json_object_object_add(to, key, json_object_new_uint64(value));
}

static void put_seconds(struct json_object *to, const char *key, uint64_t ns)
{
    json_object_object_add(to, key, json_object_new_double((double)ns * 1e-9));
}

static void put_text(struct json_object *to, const char *key, const char *text)
{
    json_object_object_add(to, key, json_object_new_string(text));
}

static void put_ratio(struct json_object *to, const char *key, uint64_t most, uint64_t total,
                      uint64_t count)
{
    double mean = count > 0 ? (double)total / (double)count : 0;
    json_object_object_add(to, key, json_object_new_double(mean > 0 ? (double)most / mean : 1.0));
}

static struct json_object *plan_json(const struct wf_report *report)
{
    const struct wf_frame_plan_report *plan = &report->plan;
    struct json_object *object = json_object_new_object();
    char hash[WF_HASH_TEXT];
    wf_hash_format(plan->input, hash);
    put_text(object, "hash", hash);
    put_u64(object, "ops", plan->ops);
    put_u64(object, "bytes_unique", plan->bytes_unique);
    put_u64(object, "bytes_moved", plan->bytes_moved);
    put_ratio(object, "egress_max_over_mean", plan->egress_max, plan->bytes_moved,
              plan->egress_ranks);
    put_ratio(object, "ingress_max_over_mean", plan->ingress_max, plan->bytes_moved,
              plan->infer_ranks);
    put_seconds(object, "build_seconds", plan->build_ns);
    return object;
}

static struct json_object *culprit_json(const struct wf_culprit *culprit)
{
    static const char *const sides[] = {"train", "infer", "server"};
    if (wf_culprit_is_none(culprit) || culprit->side >= WF_CULPRIT_NOBODY) {
        return NULL;
    }
    struct json_object *object = json_object_new_object();
    put_text(object, "side", sides[culprit->side]);
    put_u64(object, "rank", culprit->rank);
    put_text(object, "host", culprit->host);
    put_u64(object, "engine", culprit->engine);
    put_text(object, "object", culprit->object);
    put_text(object, "reason", culprit->reason);
    return object;
}

static void put_limit(struct json_object *to, const struct wf_report_round *round)
{
    double ratio = wf_report_limit_ratio(round);
    if (ratio > 0) {
        json_object_object_add(to, "limit_seconds",
                               json_object_new_double(wf_report_limit_seconds(round)));
        json_object_object_add(to, "limit_ratio", json_object_new_double(ratio));
        put_text(to, "limit_how", round->limit_how);
    } else {
        json_object_object_add(to, "limit_seconds", NULL);
        json_object_object_add(to, "limit_ratio", NULL);
        json_object_object_add(to, "limit_how", NULL);
    }
    put_text(to, "bound_by", wf_report_bound_by(round));
}

/* Median, quartiles and the samples themselves, each times `scale`. */
static struct json_object *samples_json(const struct wf_samples *samples, double scale)
{
    struct json_object *object = json_object_new_object();
    struct json_object *spread = json_object_new_array(), *all = json_object_new_array();
    for (int i = 0; i < 2; i++) {
        json_object_array_add(spread, json_object_new_double(
                                          scale * wf_samples_quantile(samples, 0, 0.25 + 0.5 * i)));
    }
    for (uint32_t i = 0; i < samples->count; i++) {
        json_object_array_add(all, json_object_new_double(scale * wf_samples_get(samples, i)));
    }
    json_object_object_add(object, "median",
                           json_object_new_double(scale * wf_samples_quantile(samples, 0, 0.5)));
    json_object_object_add(object, "spread", spread);
    json_object_object_add(object, "samples", all);
    return object;
}

static struct json_object *kind_json(const struct wf_limit_kind *kind)
{
    if (kind->ways == 0 || kind->samples[kind->best].count == 0) {
        return NULL;
    }
    struct json_object *object = samples_json(&kind->samples[kind->best], 1e-9);
    put_text(object, "how", kind->how);
    put_text(object, "unit", "GB/s");
    return object;
}

/* With the medians of both ways, the better of which the limit is. */
static struct json_object *link_json(const struct wf_limit_kind *link)
{
    static const char *const ways[] = {"socket", "ucx"};
    struct json_object *object = kind_json(link);
    for (uint32_t i = 0; object != NULL && i < WF_LINK_WAYS; i++) {
        const struct wf_samples *samples = &link->samples[i];
        json_object_object_add(
            object, ways[i],
            samples->count > 0 ? json_object_new_double(wf_samples_quantile(samples, 0, 0.5) * 1e-9)
                               : NULL);
    }
    return object;
}

static struct json_object *limits_json(const struct wf_report *report)
{
    if (report->limit == NULL) {
        return NULL;
    }
    struct json_object *object = json_object_new_object();
    struct wf_samples *ratios = calloc(1, sizeof *ratios);
    WF_ASSERT(ratios != NULL);
    wf_report_ratios(report, ratios);
    json_object_object_add(object, "memory", kind_json(&report->limit->memory));
    json_object_object_add(object, "link", link_json(&report->limit->link));
    json_object_object_add(object, "ratio", samples_json(ratios, 1));
    free(ratios);
    return object;
}

static struct json_object *selected_json(const struct wf_report *report)
{
    struct json_object *list = json_object_new_array();
    for (uint32_t i = 0; i < report->selected_count; i++) {
        const struct wf_report_selected *selected = &report->selected[i];
        if (selected->rank_count == 0) {
            continue;
        }
        struct json_object *one = json_object_new_object();
        struct json_object *ranks = json_object_new_array();
        for (uint32_t r = 0; r < selected->rank_count; r++) {
            json_object_array_add(ranks, json_object_new_int64(selected->ranks[r]));
        }
        put_text(one, "how", selected->text);
        json_object_object_add(one, "infer_ranks", ranks);
        json_object_array_add(list, one);
    }
    return list;
}

static struct json_object *round_json(const struct wf_report *report,
                                      const struct wf_report_round *round)
{
    struct wf_report_account account = wf_report_account(report, round);
    const struct wf_frame_round_report *frame = &round->frame;
    struct json_object *object = json_object_new_object();
    char version[WF_VERSION_TEXT];
    wf_version_format(frame->round.version, version);
    put_text(object, "version", version);
    put_text(object, "label", frame->label);
    put_u64(object, "attempt", frame->round.attempt);
    put_text(object, "state", state_names[frame->state <= 2 ? frame->state : 2]);
    json_object_object_add(object, "in_doubt", json_object_new_boolean(round->in_doubt));
    json_object_object_add(object, "culprit", culprit_json(&frame->culprit));
    const char *newer = frame->culprit.side == WF_CULPRIT_NOBODY ? frame->culprit.object : NULL;
    json_object_object_add(object, "dropped_for", newer ? json_object_new_string(newer) : NULL);
    if (frame->fill) {
        char source[WF_SOURCE_TEXT];
        wf_source_format(frame->source, source);
        put_text(object, "source", source);
    }
    put_u64(object, "bytes", frame->bytes);
    struct json_object *seconds = json_object_new_object();
    put_seconds(seconds, "grant", frame->grant_ns);
    put_seconds(seconds, "transfer", frame->transfer_ns);
    put_seconds(seconds, "verify", frame->verify_ns);
    put_seconds(seconds, "decide", frame->decide_ns);
    put_seconds(seconds, "flip", frame->flip_ns);
    put_seconds(seconds, "total", frame->total_ns);
    json_object_object_add(object, "seconds", seconds);
    put_seconds(object, "pause_seconds", frame->pause_ns);
    put_limit(object, round);
    put_u64(object, "digest_mismatches", frame->digest_mismatches);
    put_u64(object, "elements_checked", account.elements_checked);
    put_u64(object, "elements_wrong", account.elements_wrong);
    put_u64(object, "torn_reads", account.torn_reads);
    struct json_object *transports = json_object_new_array();
    for (uint32_t i = 0; i < frame->transports_count; i++) {
        struct json_object *one = json_object_new_object();
        put_text(one, "name", frame->transports[i].name);
        put_u64(one, "edges", frame->transports[i].edges);
        put_u64(one, "bytes", frame->transports[i].bytes);
        json_object_array_add(transports, one);
    }
    json_object_object_add(object, "transports", transports);
    return object;
}

static struct json_object *report_json(const struct wf_report *report)
{
    struct json_object *object = json_object_new_object();
    json_object_object_add(object, "ok", json_object_new_boolean(wf_report_ok(report)));
    put_text(object, "weft_version", WEFT_VERSION);
    put_text(object, "job", report->job);
    put_u64(object, "train_ranks", report->plan.train_ranks);
    put_u64(object, "infer_ranks", report->plan.infer_ranks);
    json_object_object_add(object, "plan", report->have_plan ? plan_json(report) : NULL);
    struct json_object *memory = json_object_new_object();
    put_u64(memory, "train", report->train_own_peak);
    put_u64(memory, "infer", report->infer_own_peak);
    json_object_object_add(object, "own_bytes_peak", memory);
    struct json_object *fills = json_object_new_array();
    struct json_object *versions = json_object_new_array();
    for (uint32_t i = 0; i < report->round_count; i++) {
        json_object_array_add(report->rounds[i].frame.fill ? fills : versions,
                              round_json(report, &report->rounds[i]));
    }
    json_object_object_add(object, "selected", selected_json(report));
    json_object_object_add(object, "limits", limits_json(report));
    json_object_object_add(object, "fills", fills);
    json_object_object_add(object, "versions", versions);
    return object;
}

static void write_json(FILE *out, const void *user)
{
    struct json_object *object = report_json(user);
    fputs(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY), out);
    fputc('\n', out);
    json_object_put(object);
}

enum wf_status wf_report_replace(const char *path, void (*write)(FILE *out, const void *user),
                                 const void *user, struct wf_error *error)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    WF_ASSERT(out != NULL);
    write(out, user);
    WF_ASSERT(fclose(out) == 0);
    enum wf_status status = wf_atomic_write_file(path, text, len, error);
    free(text);
    return status;
}

enum wf_status wf_report_write(const struct wf_report *report, const char *path,
                               struct wf_error *error)
{
    if (strcmp(path, "-") == 0) {
        write_json(stdout, report);
        return fflush(stdout) == 0 ? WF_OK
                                   : wf_error_set(error, WF_IO, "cannot write to standard output");
    }
    return wf_report_replace(path, write_json, report, error);
}
