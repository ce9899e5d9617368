/* meta_server_replicas.c - compares what several ranks of a side hold alike (actors/replicas.h).
 *
 * Of a version that the policy validates: the train side's while the round is open, and nothing is
 * decided before it is known to agree; the infer side's when all serve again, before the round is
 * over. Ranks say one sum a group. Where two differ, halves of that group's chunks are asked for
 * until one chunk is left, and of its elements until one is, which the ranks then name.
 *
 *   OFF --begin--> SUMS --all have said--> DONE
 *                   `--some differ--> SEARCH --one element is left and named--> DONE
 *
 * Only answers of incarnations that are there count, and only those that were made of one plan are
 * compared, so nobody is blamed for what a rank said that is gone, or whose layout has changed.
 * Who is gone in the middle of it is not waited for: what is known by then is what is told.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/meta_server_internal.h"
#include "runtime/log.h"

static bool takes_part(const struct wf_meta_server *server, const struct wf_server_rank *rank)
{
    const struct wf_server_replicas *r = &server->replicas;
    if (rank->side != r->side || rank->presence != WF_PRESENT || rank->evicted) {
        return false;
    }
    return rank->side == WF_TRAIN
               ? rank->member && !rank->lost
               : rank->serving && wf_version_compare(rank->live, r->key.version) == 0;
}

static const struct wf_frame_replicas *said(const struct wf_server_rank *rank)
{
    return rank->copies_said && rank->copies_incarnation == rank->incarnation ? &rank->copies
                                                                              : NULL;
}

static void forget(struct wf_server_rank *rank)
{
    free(rank->copies.sums);
    rank->copies = (struct wf_frame_replicas){0};
    rank->copies_said = rank->copies_differ = false;
}

void wf_server_replicas_fini(struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < server->rank_count; i++) {
        forget(&server->ranks[i]);
    }
}

/* --- asking -------------------------------------------------------------------------------------
 */
/* What the search asks its two ranks for: the first half of what is left, or the one. */
static uint64_t search_count(const struct wf_server_replicas *r)
{
    return r->high - r->low > 1 ? (r->high - r->low) / 2 : 1;
}

static struct wf_frame_replicas_request search_request(const struct wf_server_replicas *r)
{
    struct wf_frame_replicas_request request = {
        .round = r->key, .group = r->group, .first = r->low, .count = search_count(r)};
    if (r->fine) {
        request.first = r->chunk;
        request.count = 1;
        request.within = r->low;
        request.elements = search_count(r);
    }
    return request;
}

/* Nobody answers of a round that he has not heard of: whose OPEN is still owed is asked right
 * behind it (meta_server_send.c), which with many ranks is some turns later. */
static void ask(struct wf_meta_server *server, const struct wf_server_rank *rank)
{
    const struct wf_server_replicas *r = &server->replicas;
    if (rank->owed & WF_OWED_OPEN) {
        return;
    }
    struct wf_frame_replicas_request request = {.round = r->key};
    if (r->stage == WF_REPLICAS_SEARCH) {
        request = search_request(r);
    }
    wf_server_send(server, rank, WF_FRAME_replicas_request, &request);
}

static bool is_awaited(const struct wf_meta_server *server, const struct wf_server_rank *rank)
{
    const struct wf_server_replicas *r = &server->replicas;
    bool in_time = server->state == (r->side == WF_TRAIN ? WF_SERVER_OPENED : WF_SERVER_CLOSING);
    if (!in_time || !takes_part(server, rank)) {
        return false;
    }
    if (r->stage == WF_REPLICAS_SEARCH) {
        return (rank == r->pair[0].rank && !r->pair[0].said) ||
               (rank == r->pair[1].rank && !r->pair[1].said);
    }
    return r->stage == WF_REPLICAS_SUMS && said(rank) == NULL;
}

static void ask_all(struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < server->rank_count; i++) {
        if (is_awaited(server, &server->ranks[i])) {
            ask(server, &server->ranks[i]);
        }
    }
}

void wf_server_replicas_repeat(struct wf_meta_server *server, struct wf_server_rank *rank)
{
    if (is_awaited(server, rank)) {
        ask(server, rank);
    }
}

const struct wf_server_rank *wf_server_replicas_awaited(const struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < server->rank_count; i++) {
        if (is_awaited(server, &server->ranks[i])) {
            return &server->ranks[i];
        }
    }
    return NULL;
}

void wf_server_replicas_begin(struct wf_meta_server *server, enum wf_side side)
{
    struct wf_server_replicas *r = &server->replicas;
    uint64_t every = server->options.validate_every, step = server->round.key.version.step;
    bool wanted = every > 0 && step % every == 0 && (side == WF_INFER || !server->round.fill);
    for (uint32_t i = 0; i < server->rank_count; i++) {
        forget(&server->ranks[i]);
    }
    *r = (struct wf_server_replicas){.stage = wanted ? WF_REPLICAS_SUMS : WF_REPLICAS_OFF,
                                     .side = side,
                                     .key = server->round.key,
                                     .begun_ns = wf_server_now(server)};
    if (side == WF_INFER) { /* train ranks are asked behind their OPEN, which is about to leave */
        ask_all(server);
    }
}

/* --- comparing ----------------------------------------------------------------------------------
 */
struct entry {
    struct wf_hash plan, sum;
    uint32_t group, chunks, rank;
};

static int compare_hashes(const struct wf_hash *a, const struct wf_hash *b)
{
    if (a->high != b->high) {
        return a->high < b->high ? -1 : 1;
    }
    return a->low < b->low ? -1 : a->low > b->low;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = compare_hashes(&x->plan, &y->plan);
    if (order == 0 && x->group != y->group) {
        order = x->group < y->group ? -1 : 1;
    }
    if (order == 0 && x->chunks != y->chunks) {
        order = x->chunks < y->chunks ? -1 : 1;
    }
    order = order == 0 ? compare_hashes(&x->sum, &y->sum) : order;
    return order != 0 ? order : x->rank < y->rank ? -1 : x->rank > y->rank;
}

static struct entry *list_entries(struct wf_meta_server *server, size_t *count_out)
{
    size_t count = 0;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        count += server->ranks[i].copies.sums_count;
    }
    struct entry *entries = calloc(count + 1, sizeof entries[0]);
    WF_ASSERT(entries != NULL);
    count = 0;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        const struct wf_frame_replicas *copies = takes_part(server, rank) ? said(rank) : NULL;
        for (uint32_t s = 0; copies != NULL && s < copies->sums_count; s++) {
            const struct wf_el_replica *sum = &copies->sums[s];
            entries[count++] = (struct entry){.plan = copies->plan,
                                              .sum = sum->sum,
                                              .group = (uint32_t)sum->group,
                                              .chunks = (uint32_t)sum->chunks,
                                              .rank = i};
        }
    }
    qsort(entries, count, sizeof entries[0], compare_entries);
    *count_out = count;
    return entries;
}

/* Entries [first, end) are of one group. Those that are not as most, or as the first rank's where
 * there is no most, are marked; the first of all groups is what will be looked for. */
static void compare_group(struct wf_meta_server *server, const struct entry *entries, size_t first,
                          size_t end)
{
    struct wf_server_replicas *r = &server->replicas;
    size_t best = first, best_count = 0, odd = end;
    for (size_t i = first, next; i < end; i = next) {
        for (next = i; next < end && wf_hash_equal(entries[next].sum, entries[i].sum); next++) {
        }
        if (next - i > best_count ||
            (next - i == best_count && entries[i].rank < entries[best].rank)) {
            best = i;
            best_count = next - i;
        }
    }
    for (size_t i = first; i < end; i++) {
        if (!wf_hash_equal(entries[i].sum, entries[best].sum)) {
            server->ranks[entries[i].rank].copies_differ = true;
            odd = odd == end || entries[i].rank < entries[odd].rank ? i : odd;
        }
    }
    if (odd < end && r->pair[0].rank == NULL) {
        r->group = entries[first].group;
        r->pair[0].rank = &server->ranks[entries[best].rank];
        r->pair[1].rank = &server->ranks[entries[odd].rank];
        for (int i = 0; i < 2; i++) {
            r->pair[i].incarnation = r->pair[i].rank->incarnation;
        }
        r->high = entries[first].chunks;
        r->holders = (uint32_t)(end - first);
        r->alike = (uint32_t)best_count;
    }
}

static void count_ranks(struct wf_meta_server *server)
{
    struct wf_frame_round_report *report = &server->round.report;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        const struct wf_frame_replicas *copies = takes_part(server, rank) ? said(rank) : NULL;
        bool twice = copies != NULL && copies->object[0] != '\0';
        report->replicas_checked += copies != NULL && (copies->sums_count > 0 || twice);
        report->replicas_different += copies != NULL && (rank->copies_differ || twice);
    }
}

static void finish(struct wf_meta_server *server, const struct wf_culprit *why)
{
    struct wf_server_replicas *r = &server->replicas;
    char text[WF_CULPRIT_TEXT], version[WF_VERSION_TEXT];
    r->stage = WF_REPLICAS_DONE;
    r->differ = true;
    wf_culprit_format(why, text);
    wf_version_format(r->key.version, version);
    wf_log(wf_loop_log(server->loop), WF_LOG_ERROR, "version %s: %s", version, text);
    server->round.culprit = *why; /* it matters more than who was lost meanwhile */
    server->round.other = (struct wf_culprit){0};
}

/* A rank that has something twice, and not alike. */
static bool find_twice(struct wf_meta_server *server)
{
    for (uint32_t i = 0; i < server->rank_count; i++) {
        const struct wf_server_rank *rank = &server->ranks[i];
        const struct wf_frame_replicas *copies = takes_part(server, rank) ? said(rank) : NULL;
        if (copies != NULL && copies->object[0] != '\0') {
            struct wf_culprit why;
            wf_server_blame(rank, &why, "holds two copies that differ: %s", copies->object);
            snprintf(why.object, sizeof why.object, "%s", copies->object);
            finish(server, &why);
            return true;
        }
    }
    return false;
}

static void compare_all(struct wf_meta_server *server)
{
    struct wf_server_replicas *r = &server->replicas;
    size_t count, end;
    struct entry *entries = list_entries(server, &count);
    for (size_t i = 0; i < count; i = end) {
        for (end = i;
             end < count && wf_hash_equal(entries[end].plan, entries[i].plan) &&
             entries[end].group == entries[i].group && entries[end].chunks == entries[i].chunks;
             end++) {
        }
        compare_group(server, entries, i, end);
    }
    free(entries);
    count_ranks(server);
    if (find_twice(server)) {
        return;
    }
    r->stage = r->pair[0].rank != NULL ? WF_REPLICAS_SEARCH : WF_REPLICAS_DONE;
}

/* --- naming -------------------------------------------------------------------------------------
 */
static void name(struct wf_meta_server *server)
{
    struct wf_server_replicas *r = &server->replicas;
    const char *object = r->pair[1].object[0] != '\0' ? r->pair[1].object : r->pair[0].object;
    bool known = 2 * r->alike > r->holders;
    char agree[64];
    struct wf_culprit why[2];
    snprintf(agree, sizeof agree, "; %" PRIu32 " of the %" PRIu32 " ranks that hold it are alike",
             r->alike, r->holders);
    for (int i = 0; i < 2; i++) {
        char other[WF_CULPRIT_TEXT];
        wf_server_rank_text(r->pair[1 - i].rank, other, sizeof other);
        wf_server_blame(r->pair[i].rank, &why[i], "holds other bytes of %.190s%s than %.90s%s",
                        object[0] != '\0' ? object : "what both hold alike",
                        object[0] != '\0' ? "," : "", other,
                        known ? agree : "; which of them is wrong is not known");
        snprintf(why[i].object, sizeof why[i].object, "%s", object);
    }
    finish(server, &why[1]);
    if (!known) {
        server->round.other = why[0];
    }
}

/* In which element is not known. */
static void name_without_place(struct wf_meta_server *server)
{
    struct wf_server_replicas *r = &server->replicas;
    r->pair[0].object[0] = r->pair[1].object[0] = '\0';
    name(server);
}

static bool is_gone(const struct wf_meta_server *server, const struct wf_server_copy *copy)
{
    return !takes_part(server, copy->rank) || copy->incarnation != copy->rank->incarnation ||
           copy->silent;
}

static void search(struct wf_meta_server *server)
{
    struct wf_server_replicas *r = &server->replicas;
    while (r->stage == WF_REPLICAS_SEARCH) {
        if (is_gone(server, &r->pair[0]) || is_gone(server, &r->pair[1])) {
            name_without_place(server);
            return;
        }
        if (!r->pair[0].said || !r->pair[1].said) {
            return;
        }
        if (r->high - r->low > 1) {
            bool same = wf_hash_equal(r->pair[0].sum, r->pair[1].sum);
            *(same ? &r->low : &r->high) = r->low + search_count(r);
        } else if (!r->fine && r->pair[0].holds == r->pair[1].holds && r->pair[0].holds > 1) {
            r->fine = true;
            r->chunk = r->low;
            r->low = 0;
            r->high = r->pair[0].holds;
        } else {
            name(server);
            return;
        }
        r->pair[0].said = r->pair[1].said = false;
        ask_all(server);
    }
}

static void advance(struct wf_meta_server *server)
{
    struct wf_server_replicas *r = &server->replicas;
    if (r->stage == WF_REPLICAS_SUMS && wf_server_replicas_awaited(server) == NULL) {
        compare_all(server);
        ask_all(server);
    }
    search(server);
}

/* --- what the round asks ------------------------------------------------------------------------
 */
enum wf_replicas_word wf_server_replicas_word(struct wf_meta_server *server)
{
    struct wf_server_replicas *r = &server->replicas;
    advance(server);
    if (r->stage == WF_REPLICAS_SUMS || r->stage == WF_REPLICAS_SEARCH) {
        return WF_REPLICAS_WAIT;
    }
    return r->differ ? WF_REPLICAS_DIFFER : WF_REPLICAS_AGREE;
}

bool wf_server_replicas_late(struct wf_meta_server *server)
{
    struct wf_server_replicas *r = &server->replicas;
    if (r->stage == WF_REPLICAS_SUMS) {
        compare_all(server);
    }
    if (r->stage == WF_REPLICAS_SEARCH) {
        name_without_place(server);
    }
    return r->differ;
}

static void tell_silent(const struct wf_meta_server *server, uint64_t limit_ns)
{
    char who[WF_CULPRIT_TEXT], more[32] = "", version[WF_VERSION_TEXT], limit[WF_DURATION_TEXT];
    uint32_t silent = 0;
    for (uint32_t i = 0; i < server->rank_count; i++) {
        silent += is_awaited(server, &server->ranks[i]);
    }
    wf_server_rank_text(wf_server_replicas_awaited(server), who, sizeof who);
    wf_version_format(server->replicas.key.version, version);
    wf_duration_format(limit_ns, limit);
    if (silent > 1) {
        snprintf(more, sizeof more, " and %" PRIu32 " more", silent - 1);
    }
    wf_log(wf_loop_log(server->loop), WF_LOG_WARN,
           "version %s: %.200s%s did not say within %s what others hold too: what is known without "
           "that is compared; look at that rank's log for why, or raise timeouts.round",
           version, who, more, limit);
}

bool wf_server_replicas_closed(struct wf_meta_server *server)
{
    struct wf_server_replicas *r = &server->replicas;
    if (r->side != WF_INFER || !wf_round_key_equal(&r->key, &server->round.key)) {
        wf_server_replicas_begin(server, WF_INFER);
    }
    if (wf_server_replicas_word(server) != WF_REPLICAS_WAIT) {
        return true;
    }
    uint64_t limit_ns = server->options.timeouts.round_ns;
    if (wf_server_now(server) - r->begun_ns < limit_ns) {
        return false;
    }
    tell_silent(server, limit_ns);
    wf_server_replicas_late(server);
    return true;
}

/* --- answers ------------------------------------------------------------------------------------
 */
static void take_half(struct wf_server_replicas *r, const struct wf_server_rank *rank,
                      const struct wf_frame_replicas *replicas)
{
    for (int i = 0; i < 2; i++) {
        struct wf_server_copy *copy = &r->pair[i];
        const struct wf_frame_replicas_request asked = search_request(r);
        if (copy->rank == rank && !copy->said && replicas->group == asked.group &&
            replicas->first == asked.first && replicas->count == asked.count &&
            replicas->within == asked.within && replicas->elements == asked.elements) {
            copy->said = true;
            copy->silent = replicas->sums_count == 0; /* it can say nothing of it any more */
            copy->sum = copy->silent ? (struct wf_hash){0, 0} : replicas->sums[0].sum;
            copy->holds = replicas->holds;
            memcpy(copy->object, replicas->object, sizeof copy->object);
        }
    }
}

/* Its copies are left out: the others' agree or not without them. */
static void tell_failed(const struct wf_meta_server *server, const struct wf_server_rank *rank,
                        const struct wf_frame_replicas *replicas)
{
    char who[WF_CULPRIT_TEXT], version[WF_VERSION_TEXT];
    wf_server_rank_text(rank, who, sizeof who);
    wf_version_format(replicas->round.version, version);
    wf_log(wf_loop_log(server->loop), WF_LOG_WARN,
           "version %s: %.200s could not compare what it holds with others' copies: %.300s; the "
           "version goes on without its word",
           version, who, replicas->object);
}

void wf_server_on_replicas(struct wf_meta_server *server, struct wf_server_rank *rank,
                           const struct wf_frame_replicas *replicas)
{
    struct wf_server_replicas *r = &server->replicas;
    if (!wf_round_key_equal(&replicas->round, &r->key) || !is_awaited(server, rank)) {
        return;
    }
    if (r->stage == WF_REPLICAS_SEARCH) {
        take_half(r, rank, replicas);
        return;
    }
    if (replicas->count != 0) {
        return;
    }
    forget(rank);
    rank->copies = *replicas;
    rank->copies.sums = calloc((size_t)replicas->sums_count + 1, sizeof replicas->sums[0]);
    WF_ASSERT(rank->copies.sums != NULL);
    if (replicas->sums_count > 0) {
        memcpy(rank->copies.sums, replicas->sums, replicas->sums_count * sizeof replicas->sums[0]);
    }
    rank->copies_said = true;
    rank->copies_incarnation = rank->incarnation;
    if (replicas->failed) {
        tell_failed(server, rank, replicas);
        rank->copies.object[0] = '\0'; /* no place in which two of its copies differ */
        rank->copies.sums_count = 0;
    }
}
