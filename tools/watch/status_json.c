/* status_json.c - writes a status with json-c, and the sentences of its waits. */
#include "tools/watch/status_json.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1e9

const char *wf_presence_word(uint64_t presence)
{
    static const char *const words[] = {"absent", "joining", "present", "lost", "left"};
    return presence < sizeof words / sizeof words[0] ? words[presence] : "unknown";
}

const char *wf_round_state_word(uint64_t state)
{
    static const char *const words[] = {"committed", "aborted", "in_doubt", "running"};
    return state < sizeof words / sizeof words[0] ? words[state] : "unknown";
}

void wf_wait_text(const struct wf_el_status_wait *wait, char text_out[WF_WAIT_TEXT])
{
    char whom[160] = "", since[80];
    if (wait->side == WF_TRAIN) {
        snprintf(whom, sizeof whom, "train rank %u%s%s%s ", (unsigned)wait->rank,
                 wait->host[0] != '\0' ? " (host " : "", wait->host,
                 wait->host[0] != '\0' ? ")" : "");
    } else if (wait->side == WF_INFER) {
        snprintf(whom, sizeof whom, "infer rank %u (%s%s%sengine %u) ", (unsigned)wait->rank,
                 wait->host[0] != '\0' ? "host " : "", wait->host,
                 wait->host[0] != '\0' ? ", " : "", (unsigned)wait->engine);
    }
    if (wait->limit_ns > 0) {
        snprintf(since, sizeof since, "%.1f s of %.1f s", (double)wait->since_ns / SECOND,
                 (double)wait->limit_ns / SECOND);
    } else {
        snprintf(since, sizeof since, "%.1f s", (double)wait->since_ns / SECOND);
    }
    snprintf(text_out, WF_WAIT_TEXT, "%s waits for %s%s, %s", wait->who, whom, wait->what, since);
}

/* --- values ----------------------------------------------------------------------------------- */
static void put(struct json_object *to, const char *key, struct json_object *value)
{
    json_object_object_add(to, key, value);
}

static void put_number(struct json_object *to, const char *key, uint64_t value)
{
    put(to, key, json_object_new_uint64(value));
}

static void put_seconds(struct json_object *to, const char *key, uint64_t ns)
{
    char text[40];
    snprintf(text, sizeof text, "%.6f", (double)ns / SECOND);
    put(to, key, json_object_new_double_s((double)ns / SECOND, text));
}

/* What came over the wire may hold any bytes; JSON may not. */
static void put_text(struct json_object *to, const char *key, const char *value)
{
    char clean[WF_ERROR_TEXT_MAX];
    size_t len = 0;
    for (; value[len] != '\0' && len + 1 < sizeof clean; len++) {
        unsigned char byte = (unsigned char)value[len];
        clean[len] = byte >= 0x20 && byte < 0x7f ? value[len] : '?';
    }
    clean[len] = '\0';
    put(to, key, json_object_new_string(clean));
}

static void put_version(struct json_object *to, const char *key, struct wf_version version)
{
    char text[WF_VERSION_TEXT];
    wf_version_format(version, text);
    put(to, key, wf_version_is_none(version) ? NULL : json_object_new_string(text));
}

/* Longer than doubles are exact, so it is a text. */
static void put_long(struct json_object *to, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    put(to, key, json_object_new_string(text));
}

/* --- parts ------------------------------------------------------------------------------------ */
static const char *side_word(uint64_t side)
{
    return side == WF_TRAIN ? "train" : side == WF_INFER ? "infer" : "server";
}

static struct json_object *rank_object(const struct wf_el_status_rank *rank)
{
    struct json_object *o = json_object_new_object();
    put_text(o, "side", side_word(rank->side));
    put_number(o, "rank", rank->rank);
    if (rank->side == WF_INFER) {
        put_number(o, "engine", rank->engine);
    }
    put_text(o, "host", rank->host);
    put_number(o, "pid", rank->pid);
    put_long(o, "incarnation", rank->incarnation);
    put_text(o, "presence", wf_presence_word(rank->presence));
    put_text(o, "doing", rank->doing);
    put_seconds(o, "heard_seconds_ago", rank->heard_ns);
    put_seconds(o, "lease_seconds_left", rank->lease_left_ns);
    put_version(o, "version", rank->live);
    if (rank->side == WF_INFER) {
        put(o, "serving", json_object_new_boolean(rank->serving != 0));
    }
    put_number(o, "own_bytes_peak", rank->bytes_peak);
    return o;
}

static struct json_object *engine_object(const struct wf_el_status_engine *engine)
{
    struct json_object *o = json_object_new_object();
    put_number(o, "engine", engine->engine);
    put_number(o, "ranks", engine->ranks);
    put_number(o, "ranks_serving", engine->serving);
    put_version(o, "version", engine->current);
    return o;
}

static struct json_object *culprit_object(const struct wf_culprit *culprit)
{
    char text[WF_CULPRIT_TEXT];
    if (wf_culprit_is_none(culprit) || culprit->side == WF_CULPRIT_NOBODY) {
        return NULL;
    }
    struct json_object *o = json_object_new_object();
    wf_culprit_format(culprit, text);
    put_text(o, "side", side_word(culprit->side));
    put_number(o, "rank", culprit->rank);
    put_text(o, "host", culprit->host);
    put_text(o, "text", text);
    return o;
}

/* One, or of copies that differ both, where nobody knows which is wrong. */
static struct json_object *culprits_list(const struct wf_el_status_round *round)
{
    const struct wf_culprit *all[] = {&round->culprit, &round->other};
    struct json_object *list = json_object_new_array();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct json_object *one = culprit_object(all[i]);
        if (one != NULL) {
            json_object_array_add(list, one);
        }
    }
    return list;
}

static struct json_object *round_object(const struct wf_el_status_round *round)
{
    struct json_object *o = json_object_new_object(), *seconds = json_object_new_object();
    char source[WF_SOURCE_TEXT];
    put_version(o, "version", round->round.version);
    put_number(o, "attempt", round->round.attempt);
    put_text(o, "label", round->label);
    put(o, "fill", json_object_new_boolean(round->fill != 0));
    wf_source_format(round->source, source);
    put(o, "source", round->fill != 0 ? json_object_new_string(source) : NULL);
    put_text(o, "state", wf_round_state_word(round->state));
    put(o, "culprit", culprit_object(&round->culprit));
    bool dropped = round->culprit.side == WF_CULPRIT_NOBODY;
    put(o, "dropped_for", dropped ? json_object_new_string(round->culprit.object) : NULL);
    put(o, "culprits", culprits_list(round));
    put_seconds(o, "opened_seconds_ago", round->opened_ns);
    put_number(o, "bytes", round->bytes);
    put_seconds(seconds, "grant", round->grant_ns);
    put_seconds(seconds, "transfer", round->transfer_ns);
    put_seconds(seconds, "verify", round->verify_ns);
    put_seconds(seconds, "decide", round->decide_ns);
    put_seconds(seconds, "flip", round->flip_ns);
    put_seconds(seconds, "total", round->total_ns);
    put(o, "seconds", seconds);
    put_seconds(o, "pause_seconds", round->pause_ns);
    put_number(o, "digest_mismatches", round->digest_mismatches);
    put_number(o, "replicas_checked", round->replicas_checked);
    put_number(o, "replicas_different", round->replicas_different);
    put_number(o, "engines", round->engines);
    return o;
}

static struct json_object *wait_object(const struct wf_el_status_wait *wait)
{
    char text[WF_WAIT_TEXT];
    struct json_object *o = json_object_new_object(), *whom = NULL;
    if (wait->side != 2) {
        whom = json_object_new_object();
        put_text(whom, "side", side_word(wait->side));
        put_number(whom, "rank", wait->rank);
        if (wait->side == WF_INFER) {
            put_number(whom, "engine", wait->engine);
        }
        put_text(whom, "host", wait->host);
    }
    put_text(o, "who", wait->who);
    put(o, "whom", whom);
    put_text(o, "what", wait->what);
    put_seconds(o, "since_seconds", wait->since_ns);
    if (wait->limit_ns > 0) {
        put_seconds(o, "limit_seconds", wait->limit_ns);
    } else {
        put(o, "limit_seconds", NULL);
    }
    wf_wait_text(wait, text);
    put_text(o, "text", text);
    return o;
}

static struct json_object *totals_object(const struct wf_frame_status *s)
{
    struct json_object *o = json_object_new_object(), *seconds = json_object_new_object();
    put_number(o, "rounds_committed", s->rounds_committed);
    put_number(o, "rounds_aborted", s->rounds_aborted);
    put_number(o, "fills", s->fills);
    put_number(o, "versions_committed", s->versions_committed);
    put_number(o, "bytes_moved", s->bytes_moved);
    put_seconds(seconds, "grant", s->grant_ns);
    put_seconds(seconds, "transfer", s->transfer_ns);
    put_seconds(seconds, "verify", s->verify_ns);
    put_seconds(seconds, "decide", s->decide_ns);
    put_seconds(seconds, "flip", s->flip_ns);
    put_seconds(seconds, "total", s->total_ns);
    put(o, "seconds", seconds);
    put_seconds(o, "pause_seconds", s->pause_ns);
    put_seconds(o, "pause_seconds_max", s->pause_max_ns);
    put_number(o, "digest_mismatches", s->digest_mismatches);
    put_number(o, "replicas_different", s->replicas_different);
    put_number(o, "ranks_lost", s->ranks_lost);
    put_number(o, "connections", s->connections);
    put_number(o, "connections_refused", s->connections_refused);
    return o;
}

#define PUT_LIST(to, name, count, items, make)                              \
    do {                                                                    \
        struct json_object *list = json_object_new_array_ext((int)(count)); \
        for (uint32_t i = 0; i < (count); i++) {                            \
            json_object_array_add(list, make(&(items)[i]));                 \
        }                                                                   \
        put(to, name, list);                                                \
    } while (0)

char *wf_status_json(const struct wf_frame_status *s, size_t *len_out)
{
    struct json_object *o = json_object_new_object(), *plan = NULL;
    char hash[WF_HASH_TEXT];
    put_text(o, "weft_version", s->weft_version);
    put_text(o, "job", s->job);
    put_text(o, "state", s->state);
    put_number(o, "term", s->term);
    put_number(o, "epoch", s->epoch);
    put_number(o, "generation", s->generation);
    put_seconds(o, "up_seconds", s->up_ns);
    put_version(o, "committed", s->committed);
    put_version(o, "stored", s->stored);
    if (s->agreed) {
        plan = json_object_new_object();
        wf_hash_format(s->plan, hash);
        put_text(plan, "hash", hash);
        put_number(plan, "ops", s->plan_ops);
        put_number(plan, "bytes_moved", s->plan_bytes);
    }
    put(o, "plan", plan);
    put_number(o, "train_ranks", s->train_ranks);
    put_number(o, "infer_ranks", s->infer_ranks);
    put(o, "totals", totals_object(s));
    PUT_LIST(o, "engines", s->engines_count, s->engines, engine_object);
    PUT_LIST(o, "ranks", s->ranks_count, s->ranks, rank_object);
    PUT_LIST(o, "rounds", s->rounds_count, s->rounds, round_object);
    PUT_LIST(o, "waits", s->waits_count, s->waits, wait_object);
    char *text = strdup(
        json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(o);
    WF_ASSERT(text != NULL);
    *len_out = strlen(text);
    return text;
}
