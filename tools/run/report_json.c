/* report_json.c - a report as JSON: the keys are the contract of docs/job-file.md ("Report"). */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "tools/files/atomic.h"
#include "tools/run/report.h"

static const char *const state_names[] = {"committed", "aborted", "in_doubt"};

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
    put_u64(object, "cast_made_bytes", plan->cast_made_bytes);
    put_u64(object, "cast_once_bytes", plan->cast_once_bytes);
    put_u64(object, "cast_moving_bytes", plan->cast_moving_bytes);
    struct json_object *quantised = plan->cut_matrices > 0 ? json_object_new_object() : NULL;
    if (quantised != NULL) {
        put_u64(quantised, "matrices", plan->cut_matrices);
    }
    json_object_object_add(object, "quantised_by_engines", quantised);
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

/* One, or of copies that differ both, where nobody knows which is wrong. */
static struct json_object *culprits_json(const struct wf_frame_round_report *frame)
{
    const struct wf_culprit *all[] = {&frame->culprit, &frame->other};
    struct json_object *list = json_object_new_array();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct json_object *one = culprit_json(all[i]);
        if (one != NULL) {
            json_object_array_add(list, one);
        }
    }
    return list;
}

static void put_limit(struct json_object *to, const struct wf_report_round *round)
{
    bool committed = round->frame.state == WF_REPORT_COMMITTED;
    double seconds = committed ? wf_report_limit_seconds(round) : 0;
    double ratio = wf_report_limit_ratio(round);
    json_object_object_add(to, "limit_seconds",
                           seconds > 0 ? json_object_new_double(seconds) : NULL);
    json_object_object_add(to, "limit_ratio", ratio > 0 ? json_object_new_double(ratio) : NULL);
    json_object_object_add(to, "limit_how",
                           seconds > 0 ? json_object_new_string(round->limit_how) : NULL);
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
    json_object_object_add(object, "culprits", culprits_json(frame));
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
    put_u64(object, "replicas_checked", frame->replicas_checked);
    put_u64(object, "replicas_different", frame->replicas_different);
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

static struct json_object *checks_json(const struct wf_report *report)
{
    static const char *const by[] = {"loaders", "layout", "nothing"};
    struct json_object *list = json_object_new_array();
    for (uint32_t i = 0; i < report->check_count; i++) {
        const struct wf_run_check *check = &report->checks[i];
        struct json_object *one = json_object_new_object();
        put_text(one, "group", check->group);
        put_text(one, "spec", check->spec);
        put_text(one, "by", by[check->by]);
        json_object_object_add(one, "why",
                               check->why[0] ? json_object_new_string(check->why) : NULL);
        json_object_array_add(list, one);
    }
    return list;
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
    json_object_object_add(object, "checks", checks_json(report));
    json_object_object_add(object, "manifests_lack",
                           wf_manifest_lacks_json(report->lacks, report->lacks_count));
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
