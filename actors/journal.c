/* journal.c - records of the journal as bytes, and folding them. */
#include "actors/journal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAGIC UINT32_C(0x31524a57) /* "WJR1" */

enum { HEAD_BYTES = 16, WORD = 8, JOB_WORDS = (WF_JOB_NAME_MAX + WORD - 1) / WORD };

/* --- writing ---------------------------------------------------------------------------------- */
static void put_le(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get_le(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;) {
        value = value << 8 | at[i];
    }
    return value;
}

struct writer {
    uint8_t *at;
};

static void put(struct writer *w, uint64_t word)
{
    put_le(w->at, word, WORD);
    w->at += WORD;
}

static void put_version(struct writer *w, struct wf_version v)
{
    put(w, v.term);
    put(w, v.counter);
    put(w, v.step);
}

static void put_key(struct writer *w, const struct wf_round_key *key)
{
    put(w, key->term);
    put(w, key->epoch);
    put(w, key->models);
    put_version(w, key->version);
    put(w, key->attempt);
}

static uint64_t checksum(const uint8_t *payload, size_t len)
{
    return XXH3_64bits_withSeed(payload, len, len);
}

/* Room for one more record; its payload begins where the result says. */
static uint8_t *grow(uint8_t **bytes, size_t *len, size_t payload)
{
    *bytes = realloc(*bytes, *len + HEAD_BYTES + payload);
    WF_ASSERT(*bytes != NULL && payload <= WF_JOURNAL_PAYLOAD_MAX);
    return *bytes + *len + HEAD_BYTES;
}

static void seal(uint8_t *bytes, size_t *len, size_t payload)
{
    uint8_t *head = bytes + *len;
    put_le(head, MAGIC, 4);
    put_le(head + 4, payload, 4);
    put_le(head + 8, checksum(head + HEAD_BYTES, payload), WORD);
    *len += HEAD_BYTES + payload;
}

void wf_journal_encode_header(const char *job, uint8_t **bytes, size_t *len)
{
    size_t payload = (2 + JOB_WORDS) * WORD;
    struct writer w = {grow(bytes, len, payload)};
    put(&w, WF_JOURNAL_HEADER);
    put(&w, WF_JOURNAL_VERSION);
    memset(w.at, 0, (size_t)JOB_WORDS * WORD);
    memcpy(w.at, job, strnlen(job, WF_JOB_NAME_MAX - 1));
    seal(*bytes, len, payload);
}

static size_t words_of(const struct wf_journal_record *r)
{
    switch (r->kind) {
    case WF_JOURNAL_GENERATION:
        return 3 + 3;
    case WF_JOURNAL_OPEN:
        return 3 + 7 + 3 + 4 * (size_t)r->member_count;
    case WF_JOURNAL_DECIDE:
    case WF_JOURNAL_COMMITTED:
        return 3 + 7 + 1 + (size_t)r->engine_count;
    case WF_JOURNAL_REBUILD:
        return 3 + 1;
    default:
        return 3;
    }
}

void wf_journal_encode(const struct wf_journal_record *record, uint8_t **bytes, size_t *len)
{
    size_t payload = words_of(record) * WORD;
    struct writer w = {grow(bytes, len, payload)};
    put(&w, record->kind);
    put(&w, record->term);
    put(&w, record->epoch);
    switch (record->kind) {
    case WF_JOURNAL_GENERATION:
        put_version(&w, record->generation);
        break;
    case WF_JOURNAL_OPEN:
        put_key(&w, &record->round);
        put(&w, record->policy);
        put(&w, record->fill);
        put(&w, record->member_count);
        for (uint32_t i = 0; i < record->member_count; i++) {
            const struct wf_el_member *m = &record->members[i];
            put(&w, m->side);
            put(&w, m->rank);
            put(&w, m->engine);
            put(&w, m->incarnation);
        }
        break;
    case WF_JOURNAL_DECIDE:
    case WF_JOURNAL_COMMITTED:
        put_key(&w, &record->round);
        put(&w, record->engine_count);
        for (uint32_t i = 0; i < record->engine_count; i++) {
            put(&w, record->engines[i].engine);
        }
        break;
    case WF_JOURNAL_REBUILD:
        put(&w, record->begins);
        break;
    default:
        break;
    }
    seal(*bytes, len, payload);
}

/* COMMITTED for each engine, neighbours with one version together; DECIDE for the decided. */
static void encode_engines(const struct wf_journal_state *state, uint8_t **bytes, size_t *len)
{
    struct wf_el_unit *units = calloc(state->engine_count + 1, sizeof units[0]);
    WF_ASSERT(units != NULL);
    struct wf_journal_record r = {
        .kind = WF_JOURNAL_COMMITTED, .term = state->term, .epoch = state->epoch, .engines = units};
    for (uint32_t e = 0; e < state->engine_count;) {
        r.round.version = state->engines[e].committed;
        r.engine_count = 0;
        do {
            units[r.engine_count++].engine = e++;
        } while (e < state->engine_count &&
                 wf_version_compare(state->engines[e].committed, r.round.version) == 0);
        if (!wf_version_is_none(r.round.version)) {
            wf_journal_encode(&r, bytes, len);
        }
    }
    r.kind = WF_JOURNAL_DECIDE;
    r.round = state->round;
    r.engine_count = 0;
    for (uint32_t e = 0; e < state->engine_count; e++) {
        if (state->engines[e].decided) {
            units[r.engine_count++].engine = e;
        }
    }
    if (r.engine_count > 0) {
        wf_journal_encode(&r, bytes, len);
    }
    free(units);
}

void wf_journal_encode_state(const struct wf_journal_state *state, uint8_t **bytes, size_t *len)
{
    struct wf_journal_record r = {
        .kind = WF_JOURNAL_TERM, .term = state->term, .epoch = state->epoch};
    wf_journal_encode_header(state->job, bytes, len);
    if (state->term == 0) {
        return;
    }
    wf_journal_encode(&r, bytes, len);
    if (state->ended) {
        r.kind = WF_JOURNAL_END;
        wf_journal_encode(&r, bytes, len);
        return;
    }
    if (state->rebuilding) {
        r.kind = WF_JOURNAL_REBUILD;
        r.begins = true;
        wf_journal_encode(&r, bytes, len);
    }
    if (state->generation.counter > 0) {
        r.kind = WF_JOURNAL_GENERATION;
        r.generation = state->generation;
        wf_journal_encode(&r, bytes, len);
    }
    if (!wf_version_is_none(state->round.version)) {
        r.kind = WF_JOURNAL_OPEN;
        r.round = state->round;
        r.policy = state->policy;
        r.fill = state->fill;
        r.members = state->members;
        r.member_count = state->member_count;
        wf_journal_encode(&r, bytes, len);
    }
    encode_engines(state, bytes, len);
    if (state->rebuilt) {
        r.kind = WF_JOURNAL_REBUILD;
        r.begins = false;
        wf_journal_encode(&r, bytes, len);
    }
}

/* --- folding ---------------------------------------------------------------------------------- */
static struct wf_journal_engine *engine_at(struct wf_journal_state *state, uint64_t engine)
{
    if (engine >= state->engine_count) {
        uint32_t count = (uint32_t)engine + 1;
        state->engines = realloc(state->engines, count * sizeof state->engines[0]);
        WF_ASSERT(state->engines != NULL);
        memset(&state->engines[state->engine_count], 0,
               (count - state->engine_count) * sizeof state->engines[0]);
        state->engine_count = count;
    }
    return &state->engines[engine];
}

static void apply_open(struct wf_journal_state *state, const struct wf_journal_record *record)
{
    state->round = record->round;
    state->policy = record->policy;
    state->fill = record->fill;
    free(state->members);
    state->members = calloc(record->member_count + 1, sizeof state->members[0]);
    WF_ASSERT(state->members != NULL);
    if (record->member_count > 0) {
        memcpy(state->members, record->members, record->member_count * sizeof state->members[0]);
    }
    state->member_count = record->member_count;
    for (uint32_t e = 0; e < state->engine_count; e++) {
        state->engines[e].decided = false;
    }
}

static void forget(struct wf_journal_state *state)
{
    struct wf_journal_state kept = {
        .term = state->term, .epoch = state->epoch, .ended = state->ended};
    memcpy(kept.job, state->job, sizeof kept.job);
    wf_journal_state_fini(state);
    *state = kept;
}

void wf_journal_apply(struct wf_journal_state *state, const struct wf_journal_record *record)
{
    state->term = record->term > state->term ? record->term : state->term;
    state->epoch = record->epoch;
    state->ended = record->kind == WF_JOURNAL_END;
    switch (record->kind) {
    case WF_JOURNAL_END:
        forget(state);
        break;
    case WF_JOURNAL_GENERATION:
        state->generation = record->generation;
        break;
    case WF_JOURNAL_REBUILD:
        state->rebuilding = record->begins;
        state->rebuilt = !record->begins;
        break;
    case WF_JOURNAL_OPEN:
        state->rebuilt = false;
        apply_open(state, record);
        break;
    case WF_JOURNAL_DECIDE:
    case WF_JOURNAL_COMMITTED:
        for (uint32_t i = 0; i < record->engine_count; i++) {
            struct wf_journal_engine *engine = engine_at(state, record->engines[i].engine);
            engine->decided = engine->decided || record->kind == WF_JOURNAL_DECIDE;
            if (wf_version_compare(record->round.version, engine->committed) > 0) {
                engine->committed = record->round.version;
            }
        }
        break;
    default:
        break;
    }
}

void wf_journal_state_fini(struct wf_journal_state *state)
{
    free(state->members);
    free(state->engines);
    *state = (struct wf_journal_state){.members = NULL};
}

/* --- reading ---------------------------------------------------------------------------------- */
struct reader {
    const uint8_t *at;
    uint64_t words;
    bool good; /* no word was missing, none out of bounds */
};

static uint64_t take(struct reader *r, uint64_t max)
{
    if (r->words == 0) {
        r->good = false;
        return 0;
    }
    uint64_t word = get_le(r->at, WORD);
    r->at += WORD;
    r->words--;
    r->good = r->good && word <= max;
    return word <= max ? word : 0;
}

static struct wf_version take_version(struct reader *r)
{
    struct wf_version v;
    v.term = take(r, WF_TERM_MAX);
    v.counter = take(r, UINT64_MAX);
    v.step = take(r, UINT64_MAX);
    return v;
}

static struct wf_round_key take_key(struct reader *r)
{
    struct wf_round_key key;
    key.term = take(r, WF_TERM_MAX);
    key.epoch = take(r, UINT64_MAX);
    key.models = take(r, UINT64_MAX);
    key.version = take_version(r);
    key.attempt = take(r, UINT64_MAX);
    return key;
}

/* So many elements of `each` words are what is left. */
static uint32_t take_count(struct reader *r, uint64_t each)
{
    uint64_t count = take(r, UINT32_MAX);
    r->good = r->good && count * each == r->words;
    return r->good ? (uint32_t)count : 0;
}

static void *list_of(uint32_t count, size_t size)
{
    void *list = calloc((size_t)count + 1, size);
    WF_ASSERT(list != NULL);
    return list;
}

static void take_members(struct reader *r, struct wf_journal_record *record)
{
    uint32_t count = take_count(r, 4);
    struct wf_el_member *members = list_of(count, sizeof members[0]);
    for (uint32_t i = 0; i < count; i++) {
        members[i].side = take(r, 1);
        members[i].rank = take(r, WF_RANKS_MAX);
        members[i].engine = take(r, WF_ENGINES_MAX);
        members[i].incarnation = take(r, UINT64_MAX);
    }
    record->members = members;
    record->member_count = count;
}

static void take_engines(struct reader *r, struct wf_journal_record *record)
{
    uint32_t count = take_count(r, 1);
    struct wf_el_unit *units = list_of(count, sizeof units[0]);
    for (uint32_t i = 0; i < count; i++) {
        units[i].engine = take(r, WF_ENGINES_MAX);
    }
    record->engines = units;
    record->engine_count = count;
}

/* False: the words are not those of such a record. */
static bool decode(struct reader *r, enum wf_journal_kind kind, struct wf_journal_record *record)
{
    *record = (struct wf_journal_record){.kind = kind};
    record->term = take(r, WF_TERM_MAX);
    record->epoch = take(r, UINT64_MAX);
    switch (kind) {
    case WF_JOURNAL_TERM:
    case WF_JOURNAL_END:
        break;
    case WF_JOURNAL_GENERATION:
        record->generation = take_version(r);
        break;
    case WF_JOURNAL_OPEN:
        record->round = take_key(r);
        record->policy = (enum wf_commit_policy)take(r, WF_COMMIT_EACH);
        record->fill = take(r, 1) != 0;
        take_members(r, record);
        break;
    case WF_JOURNAL_DECIDE:
    case WF_JOURNAL_COMMITTED:
        record->round = take_key(r);
        take_engines(r, record);
        break;
    case WF_JOURNAL_REBUILD:
        record->begins = take(r, 1) != 0;
        break;
    default:
        return false;
    }
    return r->good && r->words == 0;
}

static bool apply_header(struct reader *r, struct wf_journal_state *state, struct wf_error *error)
{
    uint64_t version = take(r, UINT64_MAX);
    if (version > WF_JOURNAL_VERSION) {
        wf_error_set(error, WF_INVALID,
                     "the journal has format %" PRIu64
                     ", this Weft reads up to %d: use the Weft that wrote it",
                     version, WF_JOURNAL_VERSION);
        return false;
    }
    if (version == 0 || r->words != JOB_WORDS || state->job[0] != '\0') {
        wf_error_set(error, WF_INVALID, "the journal has a wrong header");
        return false;
    }
    memcpy(state->job, r->at, WF_JOB_NAME_MAX - 1);
    state->job[WF_JOB_NAME_MAX - 1] = '\0';
    return true;
}

static bool apply_payload(const uint8_t *payload, size_t len, size_t offset,
                          struct wf_journal_state *state, struct wf_error *error)
{
    struct reader r = {payload, len / WORD, len % WORD == 0};
    uint64_t kind = take(&r, UINT64_MAX);
    if (offset == 0 && kind != WF_JOURNAL_HEADER) {
        wf_error_set(error, WF_INVALID, "this is not a journal: it does not begin with a header");
        return false;
    }
    if (kind == WF_JOURNAL_HEADER) {
        return apply_header(&r, state, error);
    }
    struct wf_journal_record record = {.kind = WF_JOURNAL_HEADER};
    bool good = kind <= WF_JOURNAL_REBUILD && decode(&r, (enum wf_journal_kind)kind, &record);
    if (good) {
        wf_journal_apply(state, &record);
    } else {
        wf_error_set(error, WF_INVALID,
                     "the journal's record at offset %zu (kind %" PRIu64
                     ") does not have the form of this Weft's records",
                     offset, kind);
    }
    free((void *)record.members);
    free((void *)record.engines);
    return good;
}

/* The length of the good record that begins at `at`, or 0. */
static size_t record_at(const uint8_t *bytes, size_t len, size_t at)
{
    if (len - at < HEAD_BYTES || get_le(bytes + at, 4) != MAGIC) {
        return 0;
    }
    size_t payload = (size_t)get_le(bytes + at + 4, 4);
    if (payload < WORD || payload > WF_JOURNAL_PAYLOAD_MAX || payload > len - at - HEAD_BYTES ||
        get_le(bytes + at + 8, WORD) != checksum(bytes + at + HEAD_BYTES, payload)) {
        return 0;
    }
    return HEAD_BYTES + payload;
}

/* A bad record is a torn tail only if nothing good follows. */
static bool any_record_after(const uint8_t *bytes, size_t len, size_t at, size_t *found_out)
{
    for (size_t next = at + 1; next + HEAD_BYTES <= len; next++) {
        if (record_at(bytes, len, next) > 0) {
            *found_out = next;
            return true;
        }
    }
    return false;
}

enum wf_status wf_journal_read(const uint8_t *bytes, size_t len, struct wf_journal_state *state,
                               size_t *good_out, struct wf_error *error)
{
    size_t at = 0, next = 0;
    while (at < len) {
        size_t record = record_at(bytes, len, at);
        if (record == 0 && any_record_after(bytes, len, at, &next)) {
            return wf_error_set(error, WF_INVALID,
                                "the journal is damaged at offset %zu, in the middle (a good "
                                "record follows at %zu)",
                                at, next);
        }
        if (record == 0) {
            break;
        }
        if (!apply_payload(bytes + at + HEAD_BYTES, record - HEAD_BYTES, at, state, error)) {
            return WF_INVALID;
        }
        at += record;
    }
    if (at == 0 && len > 0) {
        return wf_error_set(error, WF_INVALID, "this is not a journal: it has no header");
    }
    *good_out = at;
    return WF_OK;
}
