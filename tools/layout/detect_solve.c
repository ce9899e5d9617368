/* detect_solve.c - sizes from shapes.
 *
 * A dimension is a product of sizes over the ranks that cut it, or a sum of such products in which
 * each size appears once at most. Which part of what is seen follows which size is found once, by
 * changing one size at a time. Then a part that follows one unknown size alone gives that size: in
 * one step where the part is in proportion to it, else by a second point of the line. Where nothing
 * does (rows of nq * d), one size of a product is chosen and the rest follows.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/layout/detect_private.h"

enum {
    ROUNDS_MAX = 64,
    CHOSEN_MAX = 3,      /* sizes that are chosen, one behind the other */
    CANDIDATES_MAX = 48, /* values of one */
    SMALL_MAX = 16,      /* values of a size that is no factor */
    FLAG_MAX = 2,        /* what names are made with */
};

/* Bits are sizes. */
struct follows {
    wf_size_bits_t any[WF_SEEN_PARTS];
    wf_size_bits_t alone[WF_SEEN_PARTS]; /* in proportion to it */
    wf_size_bits_t bent[WF_SEEN_PARTS];  /* on no line */
};

struct wf_solver {
    const struct wf_seen *dump;
    struct follows *follows; /* of each slot of the dump */
    wf_size_bits_t movers;   /* sizes that something follows */
    wf_size_bits_t loose;    /* sizes that nothing does, but which others must go with */
    uint32_t experts;        /* index of E, or WF_NONE */
    struct wf_guess_tie tie;
    uint64_t seeds[WF_FAMILY_SIZES_MAX]; /* of the last solution; 0: none yet */
};

/* One way of being solved. */
struct attempt {
    struct wf_solver *solver;
    struct wf_guess *guess;
    const struct wf_guess_ranks *ranks;
    struct wf_seen now;
    wf_size_bits_t open; /* sizes that are not solved */
    uint64_t experts;    /* E once it is known: trial layouts keep fewer */
    struct wf_left *left;
};

/* --- which part follows which size ----------------------------------------------------------- */

static bool is_open(const struct wf_guess *guess, size_t s)
{
    const struct wf_family_size *size = &guess->family->sizes[s];
    bool tied = guess->tie.on && guess->tie.size == s;
    return guess->state[s] == WF_GUESS_NUMBER && wf_guess_can_say(size) &&
           !wf_guess_is_flag(size) && !tied;
}

/* What is seen at three values of a size. */
struct points {
    uint64_t at[3];
    struct wf_seen seen[3];
    uint32_t count;
};

static void note_moves(struct wf_solver *solver, const struct points *points, size_t s)
{
    wf_size_bits_t bit = WF_SIZE_BIT(s);
    uint64_t from = points->at[0], to = points->at[1];
    for (uint32_t i = 0; i < solver->dump->count; i++) {
        const struct wf_seen_slot *slots[3] = {NULL};
        for (uint32_t k = 0; k < points->count; k++) {
            slots[k] = wf_seen_find(&points->seen[k], solver->dump->slots[i].pattern);
        }
        for (uint32_t p = 0; p < WF_SEEN_PARTS && slots[0] != NULL && slots[1] != NULL; p++) {
            uint64_t now = slots[0]->parts[p], then = slots[1]->parts[p];
            if (now == then) {
                continue;
            }
            solver->follows[i].any[p] |= bit;
            solver->movers |= bit;
            bool even = (unsigned __int128)now * to == (unsigned __int128)then * from;
            solver->follows[i].alone[p] |= even ? bit : 0;
            __int128 rise = (__int128)then - now, run = (__int128)to - from;
            bool line = slots[2] != NULL && ((__int128)slots[2]->parts[p] - now) * run ==
                                                rise * ((__int128)points->at[2] - from);
            solver->follows[i].bent[p] |= line ? 0 : bit;
        }
    }
}

static void probe(struct wf_solver *solver, const struct wf_guess *guess, const struct wf_seen *now,
                  size_t s)
{
    const uint64_t from = guess->value[s];
    const uint64_t tries[] = {from * 2, from * 4, from * 3, from / 2, from + 1, from / 4};
    struct points points = {.at = {from}, .seen = {*now}, .count = 1};
    for (size_t t = 0; t < sizeof tries / sizeof tries[0] && points.count < 3; t++) {
        struct wf_guess trial = *guess;
        trial.value[s] = tries[t];
        if (tries[t] != from &&
            wf_guess_seen(&trial, &wf_guess_one_rank, &points.seen[points.count])) {
            points.at[points.count++] = tries[t];
        }
    }
    if (points.count > 1) {
        note_moves(solver, &points, s);
    }
    for (uint32_t k = 1; k < points.count; k++) {
        wf_seen_fini(&points.seen[k]);
    }
}

/* Two sizes begin equal; whether names are the dump's only as long as they are. */
static struct wf_guess_tie find_tie(const struct wf_guess *guess, const struct wf_seen *dump)
{
    struct wf_guess_tie tie = {0};
    struct wf_seen seen;
    if (wf_guess_find_tie(guess, &tie) && is_open(guess, tie.size) && is_open(guess, tie.as)) {
        struct wf_guess trial = *guess;
        trial.value[tie.size] = 2 * trial.value[tie.as];
        if (wf_guess_seen(&trial, &wf_guess_one_rank, &seen)) {
            tie.on = wf_seen_misfits(&seen, dump) > 0;
            wf_seen_fini(&seen);
        }
    }
    return tie;
}

struct wf_solver *wf_solver_new(const struct wf_guess *begin, const struct wf_seen *dump)
{
    struct wf_solver *solver = calloc(1, sizeof *solver);
    struct wf_guess tied = *begin;
    const struct wf_guess *guess = &tied;
    struct wf_seen now;
    tied.tie = find_tie(begin, dump);
    if (solver == NULL || !wf_guess_seen(guess, &wf_guess_one_rank, &now)) {
        free(solver);
        return NULL;
    }
    solver->dump = dump;
    solver->tie = guess->tie;
    solver->experts = wf_guess_size(guess->family, "E");
    solver->follows = calloc(dump->count + 1, sizeof *solver->follows);
    uint32_t layers = wf_guess_size(guess->family, "L");
    for (size_t s = 0; s < guess->family->size_count && solver->follows != NULL; s++) {
        if (is_open(guess, s) && s != layers) {
            probe(solver, guess, &now, s);
            bool counts = wf_guess_is_count(guess, s);
            bool moves = solver->movers >> s & 1;
            bool on = guess->value[s] > FLAG_MAX; /* 1: a number that is one of few, or a flag */
            solver->loose |= !moves && !counts && on ? WF_SIZE_BIT(s) : 0;
        }
    }
    wf_seen_fini(&now);
    if (solver->follows == NULL) {
        free(solver);
        return NULL;
    }
    return solver;
}

void wf_solver_free(struct wf_solver *solver)
{
    if (solver != NULL) {
        free(solver->follows);
        free(solver);
    }
}

/* --- one part -------------------------------------------------------------------------------- */

/* The part of what is seen with one size changed; UINT64_MAX where that is refused. */
static uint64_t part_at(const struct attempt *a, size_t s, uint64_t value, uint32_t slot,
                        uint32_t part)
{
    struct wf_guess trial = *a->guess;
    struct wf_seen seen;
    trial.value[s] = value;
    if (!wf_guess_seen(&trial, a->ranks, &seen)) {
        return UINT64_MAX;
    }
    const struct wf_seen_slot *found = wf_seen_find(&seen, a->solver->dump->slots[slot].pattern);
    uint64_t result = found != NULL ? found->parts[part] : UINT64_MAX;
    wf_seen_fini(&seen);
    return result;
}

/* A size that is no factor (every how many layers, squares): a small one that makes the part. */
static bool solve_small(const struct attempt *a, size_t s, uint32_t slot, uint32_t part,
                        uint64_t want, uint64_t *value_out)
{
    for (uint64_t value = 0; value <= SMALL_MAX; value++) {
        if (part_at(a, s, value, slot, part) == want) {
            *value_out = value;
            return true;
        }
    }
    return false;
}

/* On a line through what is and a second point. */
static bool solve_line(const struct attempt *a, size_t s, uint32_t slot, uint32_t part,
                       uint64_t *value_out)
{
    const struct wf_seen_slot *want = &a->solver->dump->slots[slot];
    uint64_t from = a->guess->value[s], to = 0, then = UINT64_MAX;
    const uint64_t tries[] = {from * 2, from * 3, from / 2, from + 1};
    __int128 now = (__int128)wf_seen_find(&a->now, want->pattern)->parts[part];
    if (now == (__int128)want->parts[part]) { /* heads that are fewer than ranks show no more */
        *value_out = from;
        return true;
    }
    for (size_t t = 0; t < 4 && (then == UINT64_MAX || (__int128)then == now); t++) {
        to = tries[t];
        then = to != from ? part_at(a, s, to, slot, part) : UINT64_MAX;
    }
    __int128 rise = (__int128)then - now, run = (__int128)to - from;
    __int128 wanted = ((__int128)want->parts[part] - now) * run;
    if (then != UINT64_MAX && rise != 0 && wanted % rise == 0) {
        __int128 value = (__int128)from + wanted / rise;
        *value_out = (uint64_t)value;
        uint64_t made =
            value >= 0 && value <= INT32_MAX ? part_at(a, s, *value_out, slot, part) : UINT64_MAX;
        /* What the trial sizes of others do not go with cannot be tried, and is believed. */
        if (made == want->parts[part] || (made == UINT64_MAX && value > 0 && value <= INT32_MAX)) {
            return true;
        }
    }
    bool bent = a->solver->follows[slot].bent[part] >> s & 1;
    return bent && solve_small(a, s, slot, part, want->parts[part], value_out);
}

/* --- all parts ------------------------------------------------------------------------------- */

/* Halves the larger ones of these sizes until they are seen. */
static bool look_lower(struct attempt *a, wf_size_bits_t sizes)
{
    struct wf_guess *guess = a->guess;
    uint64_t largest = 0;
    for (size_t s = 0; s < guess->family->size_count; s++) {
        bool one = sizes >> s & 1;
        largest = one && guess->value[s] > largest ? guess->value[s] : largest;
    }
    for (uint64_t value = largest / 2; value > 0; value /= 2) {
        for (size_t s = 0; s < guess->family->size_count; s++) {
            bool one = (sizes >> s & 1) && s != a->solver->experts && guess->value[s] > value;
            guess->value[s] = one ? value : guess->value[s];
        }
        if (wf_guess_seen(guess, a->ranks, &a->now)) {
            return true;
        }
    }
    return false;
}

/* Solved sizes may not go with the trial values of the others (2 query heads, 16 KV heads): smaller
 * ones then, of all; or of one, where others must stay whole blocks of fp8. */
static bool look(struct attempt *a)
{
    wf_seen_fini(&a->now);
    if (wf_guess_seen(a->guess, a->ranks, &a->now)) {
        return true;
    }
    const struct wf_guess before = *a->guess;
    wf_size_bits_t yield = a->open | a->solver->loose;
    bool good = look_lower(a, yield);
    for (size_t s = 0; s < before.family->size_count && before.quant != NULL && !good; s++) {
        if (yield >> s & 1) {
            *a->guess = before;
            good = look_lower(a, WF_SIZE_BIT(s));
        }
    }
    return good;
}

static void say_left(const struct attempt *a, uint32_t slot, uint32_t part)
{
    const struct wf_seen_slot *want = &a->solver->dump->slots[slot];
    const struct wf_seen_slot *now = wf_seen_find(&a->now, want->pattern);
    size_t room = sizeof a->left->why;
    if (now == NULL) {
        snprintf(a->left->why, room, "%s is not there", want->name);
    } else if (part == WF_SEEN_MEMBERS) {
        snprintf(a->left->why, room,
                 "%s: all ranks together have %" PRIu64
                 " of its kind in a layer, expected %" PRIu64,
                 want->name, want->parts[part], now->parts[part]);
    } else {
        snprintf(a->left->why, room,
                 "%s: dimension %" PRIu32 " of all ranks together is %" PRIu64
                 ", expected %" PRIu64,
                 want->name, part, want->parts[part], now->parts[part]);
    }
}

/* Parts that nothing unknown moves must be the dump's. What experts move is seen with fewer. */
static uint32_t count_left(const struct attempt *a)
{
    const struct wf_solver *solver = a->solver;
    wf_size_bits_t experts = solver->experts != WF_NONE ? WF_SIZE_BIT(solver->experts) : 0;
    uint32_t left = 0, slot = 0, part = 0;
    for (uint32_t i = 0; i < solver->dump->count; i++) {
        const struct wf_seen_slot *want = &solver->dump->slots[i];
        const struct wf_seen_slot *now = wf_seen_find(&a->now, want->pattern);
        for (uint32_t p = 0; p < WF_SEEN_PARTS; p++) {
            wf_size_bits_t moved = solver->follows[i].any[p];
            bool known = (moved & (a->open | experts)) == 0;
            bool wrong = now == NULL ? p == 0 : known && now->parts[p] != want->parts[p];
            slot = wrong && left == 0 ? i : slot;
            part = wrong && left == 0 ? p : part;
            left += wrong;
        }
    }
    if (left > 0 && left < a->left->parts) {
        a->left->parts = left;
        say_left(a, slot, part);
    }
    return left;
}

/* How many slots a part says that follows the number of experts alone: in proportion (`even`), or
 * on a line where each rank has one more for something else (a shared expert). 0: not whole. */
static uint64_t count_slots(const struct attempt *a, uint32_t slot, uint32_t part, bool even)
{
    const struct wf_seen_slot *want = &a->solver->dump->slots[slot];
    uint64_t from = a->guess->value[a->solver->experts];
    uint64_t now = wf_seen_find(&a->now, want->pattern)->parts[part];
    uint64_t then = even ? 2 * now : part_at(a, a->solver->experts, 2 * from, slot, part);
    __int128 rise = (__int128)then - now, more = ((__int128)want->parts[part] - now) * from;
    bool whole = then != UINT64_MAX && rise > 0 && more % rise == 0;
    __int128 value = whole ? from + more / rise : 0;
    return value > 0 && value <= INT32_MAX ? (uint64_t)value : 0;
}

/* Experts, from all parts that follow their number alone; the router has as many rows as there are
 * experts, and slots may be more. False: fewer slots than experts. */
static bool solve_experts(struct attempt *a, bool *progress)
{
    const struct wf_solver *solver = a->solver;
    wf_size_bits_t bit = WF_SIZE_BIT(solver->experts);
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t i = 0; i < solver->dump->count; i++) {
        bool there = wf_seen_find(&a->now, solver->dump->slots[i].pattern) != NULL;
        for (uint32_t p = 0; p < WF_SEEN_PARTS && there; p++) {
            bool even = solver->follows[i].alone[p] == bit;
            if (solver->follows[i].any[p] != bit || (!even && !solver->tie.on)) {
                continue;
            }
            uint64_t value = count_slots(a, i, p, even);
            if (value == 0) {
                return false;
            }
            least = value < least ? value : least;
            most = value > most ? value : most;
        }
    }
    if (most == 0) {
        return true;
    }
    a->open &= ~bit;
    a->experts = least;
    *progress = true;
    if (most > least) { /* slots beyond the experts */
        size_t used = strlen(a->guess->sizes);
        if (!wf_guess_engine_knows(a->guess->engine, "redundant") ||
            strstr(a->guess->sizes, "ep=") == NULL || most >= 2 * least ||
            used + 32 > sizeof a->guess->sizes) {
            return false;
        }
        snprintf(a->guess->sizes + used, sizeof a->guess->sizes - used, ",redundant=%u",
                 (unsigned)(most - least));
    }
    return true;
}

/* The largest part that follows size s alone of those that are not known. */
static bool find_part(const struct attempt *a, size_t s, bool even, uint32_t *slot_out,
                      uint32_t *part_out)
{
    const struct wf_solver *solver = a->solver;
    wf_size_bits_t bit = WF_SIZE_BIT(s);
    uint64_t best = 0;
    for (uint32_t i = 0; i < solver->dump->count; i++) {
        const struct wf_seen_slot *want = &solver->dump->slots[i];
        const struct wf_seen_slot *now = wf_seen_find(&a->now, want->pattern);
        for (uint32_t p = 0; p < WF_SEEN_PARTS && now != NULL; p++) {
            bool alone = (solver->follows[i].any[p] & a->open) == bit;
            bool fits = !even || ((solver->follows[i].alone[p] & bit) != 0 && now->parts[p] > 0 &&
                                  a->guess->value[s] * want->parts[p] % now->parts[p] == 0);
            if (alone && fits && now->parts[p] > best) {
                best = now->parts[p];
                *slot_out = i;
                *part_out = p;
            }
        }
    }
    return best > 0;
}

static void set(struct attempt *a, size_t s, uint64_t value)
{
    a->guess->value[s] = value;
    a->open &= ~(WF_SIZE_BIT(s));
}

/* Every size that a part gives; proportions first, all of them at once. False: none can be. */
static bool solve_round(struct attempt *a, bool *progress)
{
    struct wf_guess next = *a->guess;
    wf_size_bits_t open = a->open;
    uint32_t slot = 0, part = 0;
    for (size_t s = 0; s < next.family->size_count; s++) {
        if ((open >> s & 1) && s != a->solver->experts && find_part(a, s, true, &slot, &part)) {
            const struct wf_seen_slot *want = &a->solver->dump->slots[slot];
            uint64_t now = wf_seen_find(&a->now, want->pattern)->parts[part];
            next.value[s] = a->guess->value[s] * want->parts[part] / now;
            open &= ~(WF_SIZE_BIT(s));
            *progress = true;
        }
    }
    if (*progress) {
        *a->guess = next;
        a->open = open;
        return true;
    }
    for (size_t s = 0; s < next.family->size_count; s++) {
        uint64_t value = 0;
        if ((a->open >> s & 1) && s != a->solver->experts && find_part(a, s, false, &slot, &part)) {
            if (!solve_line(a, s, slot, part, &value)) {
                return false;
            }
            set(a, s, value);
            *progress = true;
            return true;
        }
    }
    return true;
}

static bool solve(struct attempt *a, unsigned chosen);

/* --- choices --------------------------------------------------------------------------------- */

struct candidates {
    uint64_t values[CANDIDATES_MAX];
    uint32_t count;
};

static void add_candidate(struct candidates *list, uint64_t value)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->values[i] == value) {
            return;
        }
    }
    if (value > 0 && value <= INT32_MAX && list->count < CANDIDATES_MAX) {
        list->values[list->count++] = value;
    }
}

/* Values of a size of a product: what went before, what leaves the other one usual, usual ones
 * themselves, and whatever divides. */
static void list_candidates(const struct attempt *a, size_t s, wf_size_bits_t others, uint32_t slot,
                            uint32_t part, struct candidates *list)
{
    static const uint64_t usual[] = {128, 64, 256, 192, 96, 80, 32, 16, 512, 112, 8, 4, 2, 1};
    enum { USUAL = sizeof usual / sizeof usual[0], SCALES = 4, DIVISORS = 256 };
    const struct wf_seen_slot *want = &a->solver->dump->slots[slot];
    uint64_t now = wf_seen_find(&a->now, want->pattern)->parts[part], wanted = want->parts[part];
    for (uint64_t scale = 1; scale <= 1u << SCALES && a->solver->seeds[s] > 0; scale *= 2) {
        add_candidate(list, a->solver->seeds[s] * scale);
        add_candidate(list, a->solver->seeds[s] % scale == 0 ? a->solver->seeds[s] / scale : 0);
    }
    bool two = wf_size_bits_count(others) == 1 && now > 0;
    unsigned __int128 product = two ? (unsigned __int128)a->guess->value[s] *
                                          a->guess->value[wf_size_bits_first(others)] * wanted / now
                                    : 0;
    for (size_t u = 0; u < USUAL && two; u++) {
        bool divides = product % usual[u] == 0 && product / usual[u] <= INT32_MAX;
        add_candidate(list, divides ? (uint64_t)(product / usual[u]) : 0);
    }
    for (size_t u = 0; u < USUAL; u++) {
        add_candidate(list, usual[u]);
    }
    for (uint64_t d = 3; d < DIVISORS; d++) {
        add_candidate(list, wanted % d == 0 ? d : 0);
    }
}

/* Only a product shows: one of its sizes is chosen, then the rest follows. */
static bool choose(struct attempt *a, unsigned chosen)
{
    wf_size_bits_t product = 0;
    uint32_t slot = 0, part = 0;
    for (uint32_t i = 0; i < a->solver->dump->count; i++) {
        for (uint32_t p = 0; p < WF_SEEN_PARTS; p++) {
            wf_size_bits_t open = a->solver->follows[i].any[p] & a->open;
            int count = wf_size_bits_count(open);
            bool seen = wf_seen_find(&a->now, a->solver->dump->slots[i].pattern) != NULL;
            if (seen && count > 1 && (product == 0 || count < wf_size_bits_count(product))) {
                product = open;
                slot = i;
                part = p;
            }
        }
    }
    if (product == 0 || chosen == CHOSEN_MAX) {
        return false;
    }
    size_t s = wf_size_bits_first(product);
    struct candidates list = {.count = 0};
    list_candidates(a, s, product & ~(WF_SIZE_BIT(s)), slot, part, &list);
    const struct wf_guess before = *a->guess;
    const wf_size_bits_t open = a->open;
    for (uint32_t c = 0; c < list.count && before.trials->work > 0; c++) {
        *a->guess = before;
        a->open = open;
        set(a, s, list.values[c]);
        for (size_t f = 0; f < before.family->size_count; f++) {
            a->guess->free[f] |= product >> f & 1;
        }
        if (solve(a, chosen + 1)) {
            return true;
        }
    }
    *a->guess = before;
    a->open = open;
    return false;
}

static bool solve(struct attempt *a, unsigned chosen)
{
    for (unsigned round = 0; round < ROUNDS_MAX && a->guess->trials->work > 0; round++) {
        bool progress = false, experts = a->solver->experts != WF_NONE;
        if (!look(a)) {
            return false;
        }
        if (count_left(a) > 0) {
            return false;
        }
        if (experts && (a->open >> a->solver->experts & 1) && !solve_experts(a, &progress)) {
            return false;
        }
        if (!solve_round(a, &progress)) {
            return false;
        }
        if (!progress) {
            bool done = (a->open & a->solver->movers) == 0;
            return done || choose(a, chosen);
        }
    }
    return false;
}

bool wf_solver_run(struct wf_solver *solver, struct wf_guess *guess,
                   const struct wf_guess_ranks *ranks, struct wf_left *left_out)
{
    *left_out = (struct wf_left){UINT32_MAX - 1, "its sizes do not come out whole"};
    struct attempt a = {.solver = solver, .guess = guess, .ranks = ranks, .left = left_out};
    uint64_t total = 0;
    guess->tie = solver->tie;
    for (uint32_t i = 0; i < ranks->count; i++) {
        total += ranks->at[i].weight;
    }
    for (size_t s = 0; s < guess->family->size_count; s++) {
        bool moves = solver->movers >> s & 1;
        if (moves || (solver->loose >> s & 1)) {
            guess->value[s] = wf_guess_start(guess->family, s, total);
            guess->shows[s] = moves;
            a.open |= moves ? WF_SIZE_BIT(s) : 0;
        }
    }
    bool good = solve(&a, 0);
    wf_seen_fini(&a.now);
    if (good && solver->experts != WF_NONE && a.experts > 0) {
        guess->value[solver->experts] = a.experts;
    }
    if (guess->tie.on) {
        guess->value[guess->tie.size] = guess->value[guess->tie.as];
        guess->shows[guess->tie.size] = guess->shows[guess->tie.as];
    }
    for (size_t s = 0; s < guess->family->size_count && good; s++) {
        solver->seeds[s] = solver->movers >> s & 1 ? guess->value[s] : 0;
    }
    return good;
}
