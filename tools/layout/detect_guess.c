/* detect_guess.c - sizes of a family as a config, and solving for them from shapes.
 *
 * Shapes and numbers of tensors are sums of products in which each size appears once at most; so
 * they are linear in each size while the others stay. A size is solved for from whatever depends on
 * it and otherwise on solved sizes only. Where nothing does (rows of nq * d), one size of the
 * product is chosen among usual ones.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "tools/layout/detect_private.h"

#define NEARER 1e-9 /* less is the same */

enum {
    START = 16,        /* of a size: has the divisors that small recipes need */
    START_ROWS = 4096, /* of a vocabulary: padding must not hide it */
    START_LAYERS = 4,
    START_EXPERTS = 8,
    ROUNDS_MAX = 12,
    FREE_MAX = 3,     /* products of which one size is chosen */
    SMALL_MAX = 16,   /* values that are tried of a size that is no factor */
    TRIAL_COST = 100, /* of a config, in tensors */
};

/* --- configs --------------------------------------------------------------------------------- */

bool wf_guess_is_flag(const struct wf_family_size *size)
{
    return size->match != NULL;
}

/* Of the keys parted by |, the first: "vision_config.depth" goes into an object, ".x" to the top.
 */
static bool put_key(struct json_object *root, struct json_object *text, const char *key,
                    struct json_object *value)
{
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(key, "|"), key);
    char *dot = strchr(name, '.');
    if (dot == name) {
        return json_object_object_add(root, name + 1, value) == 0;
    }
    if (dot == NULL) {
        return json_object_object_add(text, name, value) == 0;
    }
    *dot = '\0';
    struct json_object *inner = NULL;
    if (!json_object_object_get_ex(root, name, &inner)) {
        inner = json_object_new_object();
        json_object_object_add(root, name, inner);
    }
    return json_object_object_add(inner, dot + 1, value) == 0;
}

static struct json_object *value_of(const struct wf_family_size *size, uint64_t value)
{
    if (!wf_guess_is_flag(size)) {
        return json_object_new_uint64(value);
    }
    if (strcmp(size->match, "true") == 0) {
        return json_object_new_boolean(value != 0);
    }
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(size->match, "|"), size->match);
    return json_object_new_string(value != 0 ? word : "");
}

static struct json_object *config_of(const struct wf_guess *guess)
{
    const struct wf_family *family = guess->family;
    struct json_object *root = json_object_new_object(), *text = root;
    char type[64];
    snprintf(type, sizeof type, "%.*s", (int)strcspn(family->model_types, "|"),
             family->model_types);
    json_object_object_add(root, "model_type", json_object_new_string(type));
    if (family->text_config != NULL) {
        text = json_object_new_object();
        json_object_object_add(root, family->text_config, text);
    }
    json_object_object_add(text, "torch_dtype", json_object_new_string("bfloat16"));
    for (size_t i = 0; i < family->size_count; i++) {
        if (guess->given[i] && family->sizes[i].key != NULL) {
            put_key(root, text, family->sizes[i].key, value_of(&family->sizes[i], guess->value[i]));
        }
    }
    return root;
}

struct wf_model *wf_guess_model(const struct wf_guess *guess)
{
    struct json_object *root = config_of(guess);
    size_t len = 0;
    const char *text = json_object_to_json_string_length(root, JSON_C_TO_STRING_PLAIN, &len);
    struct wf_model *model = NULL;
    if (text == NULL || wf_model_parse(text, len, guess->families, &model, NULL) != WF_OK) {
        model = NULL;
    }
    json_object_put(root);
    return model;
}

bool wf_guess_seen(const struct wf_guess *guess, struct wf_seen *out)
{
    struct wf_model *model = wf_guess_model(guess);
    struct wf_recipe recipe;
    *out = (struct wf_seen){0};
    uint64_t cost = TRIAL_COST + (model != NULL ? model->param_count : 0);
    *guess->work -= *guess->work > cost ? cost : *guess->work;
    bool good = *guess->work > 0 && model != NULL &&
                wf_recipe_parse(guess->spec, model, &recipe, NULL) == WF_OK;
    for (uint32_t rank = 0; rank < guess->ranks && good; rank++) {
        struct wf_layout *layout = NULL;
        good = wf_layout_derive(model, &recipe, rank, &layout, NULL) == WF_OK &&
               wf_seen_add_layout(out, layout);
        *guess->work -= good && *guess->work > layout->tensor_count ? layout->tensor_count : 0;
        wf_layout_free(layout);
    }
    wf_model_free(model);
    if (!good) {
        wf_seen_fini(out);
    }
    return good;
}

/* --- names ----------------------------------------------------------------------------------- */

static double alike(const struct wf_guess *guess, const struct wf_seen *seen)
{
    struct wf_seen own;
    if (!wf_guess_seen(guess, &own)) {
        return -1;
    }
    double near = wf_seen_alike(&own, seen);
    wf_seen_fini(&own);
    return near;
}

/* What a family says of itself ("1" for every how many layers have experts) goes with more than any
 * number of ours; but not "0", which hides what the size is of. */
static uint64_t start_of(const struct wf_family_size *size)
{
    uint64_t rule = size->otherwise != NULL && strspn(size->otherwise, "0123456789") > 0 &&
                            size->otherwise[strspn(size->otherwise, "0123456789")] == '\0'
                        ? strtoull(size->otherwise, NULL, 10)
                        : 0;
    return rule > 0                       ? rule
           : strcmp(size->name, "V") == 0 ? START_ROWS
           : strcmp(size->name, "L") == 0 ? START_LAYERS
           : strcmp(size->name, "E") == 0 ? START_EXPERTS
                                          : START;
}

/* Gives the size the value that brings names nearest, if one brings them nearer. */
static bool improve(struct wf_guess *guess, size_t size, const struct wf_seen *seen, double *near)
{
    const uint64_t numbers[] = {0, 1, 2, start_of(&guess->family->sizes[size])}, flags[] = {0, 1};
    bool flag = wf_guess_is_flag(&guess->family->sizes[size]), better = false;
    struct wf_guess best = *guess;
    for (size_t i = 0; i < (flag ? 2 : 4); i++) {
        struct wf_guess trial = *guess;
        trial.given[size] = true;
        trial.value[size] = flag ? flags[i] : numbers[i];
        double now = alike(&trial, seen);
        if (now >= *near + NEARER) {
            *near = now;
            best = trial;
            better = true;
        }
    }
    *guess = best;
    return better;
}

static bool is_off(const struct wf_family_size *size)
{
    return size->otherwise != NULL && strcmp(size->otherwise, "0") == 0;
}

double wf_guess_start(struct wf_guess *guess, const struct wf_seen *seen)
{
    const struct wf_family *family = guess->family;
    double near = -1;
    /* First only what every config has to say, then all numbers. */
    for (int all = 0; all < 2 && near < 0; all++) {
        for (size_t i = 0; i < family->size_count; i++) {
            const struct wf_family_size *size = &family->sizes[i];
            bool number = size->key != NULL && !wf_guess_is_flag(size);
            guess->given[i] = number && (all || size->otherwise == NULL);
            guess->value[i] = start_of(size);
        }
        near = alike(guess, seen);
    }
    /* As near as it may come: 16 dense layers of 4 hide the experts, one does not. */
    struct wf_guess few = *guess;
    for (size_t i = 0; i < family->size_count; i++) {
        few.value[i] = is_off(&family->sizes[i]) && few.value[i] == START ? 1 : few.value[i];
    }
    double may = alike(&few, seen);
    return may > near ? may : near;
}

double wf_guess_trim(struct wf_guess *guess, const struct wf_seen *seen)
{
    double near = alike(guess, seen);
    for (size_t s = 0; s < guess->family->size_count && near >= 0; s++) {
        struct wf_guess trial = *guess;
        trial.given[s] = false;
        bool has_rule = guess->given[s] && guess->family->sizes[s].otherwise != NULL;
        double now = has_rule ? alike(&trial, seen) : -1;
        if (now >= near + NEARER) {
            *guess = trial;
            near = now;
        }
    }
    return near;
}

double wf_guess_improve(struct wf_guess *guess, const struct wf_seen *seen, double near)
{
    const struct wf_family *family = guess->family;
    bool better = near >= 0;
    for (int pass = 0; pass < 2 && better && near < 1; pass++) {
        better = false;
        for (size_t i = 0; i < family->size_count && near < 1; i++) {
            better |= family->sizes[i].key != NULL && improve(guess, i, seen, &near);
        }
    }
    return near;
}

static bool same_seen(const struct wf_seen *a, const struct wf_seen *b)
{
    bool same = a->count == b->count;
    for (uint32_t i = 0; i < a->count && same; i++) {
        same = a->slots[i].pattern == b->slots[i].pattern &&
               memcmp(a->slots[i].parts, b->slots[i].parts, sizeof a->slots[i].parts) == 0;
    }
    return same;
}

void wf_guess_spell_out(struct wf_guess *guess)
{
    struct wf_model *model = wf_guess_model(guess);
    struct wf_seen before, after;
    if (model == NULL || !wf_guess_seen(guess, &before)) {
        wf_model_free(model);
        return;
    }
    for (size_t s = 0; s < guess->family->size_count; s++) {
        const struct wf_family_size *size = &guess->family->sizes[s];
        struct wf_guess trial = *guess;
        trial.given[s] = true;
        trial.value[s] = wf_model_size(model, size->name);
        if (guess->given[s] || size->key == NULL || wf_guess_is_flag(size) || trial.value[s] == 0 ||
            !wf_guess_seen(&trial, &after)) {
            continue;
        }
        if (same_seen(&before, &after)) {
            *guess = trial;
        }
        wf_seen_fini(&after);
    }
    wf_seen_fini(&before);
    wf_model_free(model);
}

/* --- sizes ----------------------------------------------------------------------------------- */

/* What the ranks show with one size changed. */
struct probe {
    uint64_t from, to; /* of the size; equal: no other value is taken */
    struct wf_seen seen;
};

struct solver {
    struct wf_guess *guess;
    const struct wf_seen *seen;
    struct wf_seen now;
    struct probe probes[WF_FAMILY_SIZES_MAX];
};

static bool is_number(const struct wf_guess *guess, size_t size)
{
    return guess->family->sizes[size].key != NULL && !wf_guess_is_flag(&guess->family->sizes[size]);
}

/* The size's own value if the config says it, else what the model makes of its absence. */
static uint64_t current(const struct wf_guess *guess, size_t size)
{
    if (guess->given[size]) {
        return guess->value[size];
    }
    struct wf_model *model = wf_guess_model(guess);
    uint64_t value = model != NULL ? wf_model_size(model, guess->family->sizes[size].name) : 0;
    wf_model_free(model);
    return value;
}

/* A value that shows somewhere, or one that shows nowhere if all that are taken are such. */
static void probe_size(struct solver *solver, size_t size)
{
    struct probe *probe = &solver->probes[size];
    probe->from = probe->to = current(solver->guess, size);
    const uint64_t tries[] = {probe->from * 2, probe->from / 2, probe->from * 3,
                              probe->from + 1, probe->from + 2, probe->from / 4};
    bool shows = false;
    for (size_t i = 0; i < sizeof tries / sizeof tries[0] && !shows; i++) {
        struct wf_guess trial = *solver->guess;
        struct wf_seen seen;
        trial.given[size] = true;
        trial.value[size] = tries[i];
        if (tries[i] == probe->from || !wf_guess_seen(&trial, &seen)) {
            continue;
        }
        shows = !same_seen(&seen, &solver->now);
        wf_seen_fini(&probe->seen);
        probe->seen = seen;
        probe->to = tries[i];
    }
}

/* Bit s: size s, not solved yet, moves this part of this slot. */
static uint64_t movers(const struct solver *solver, uint32_t slot, uint32_t part)
{
    uint64_t pattern = solver->seen->slots[slot].pattern, bits = 0;
    const struct wf_seen_slot *now = wf_seen_find(&solver->now, pattern);
    for (size_t s = 0; s < solver->guess->family->size_count && now != NULL; s++) {
        const struct wf_seen_slot *then = wf_seen_find(&solver->probes[s].seen, pattern);
        if (then != NULL && then->parts[part] != now->parts[part]) {
            bits |= UINT64_C(1) << s;
        }
    }
    return bits;
}

static bool makes_part(const struct solver *solver, uint32_t slot, uint32_t part, size_t s,
                       uint64_t value)
{
    const struct wf_seen_slot *want = &solver->seen->slots[slot];
    struct wf_guess trial = *solver->guess;
    struct wf_seen seen;
    trial.given[s] = true;
    trial.value[s] = value;
    if (!wf_guess_seen(&trial, &seen)) {
        return false;
    }
    const struct wf_seen_slot *found = wf_seen_find(&seen, want->pattern);
    bool makes = found != NULL && found->parts[part] == want->parts[part];
    wf_seen_fini(&seen);
    return makes;
}

/* Of a size that is no factor (every how many layers): a small one that makes the part. */
static bool solve_small(const struct solver *solver, uint32_t slot, uint32_t part, size_t s,
                        uint64_t *value_out)
{
    for (uint64_t value = 0; value <= SMALL_MAX; value++) {
        if (makes_part(solver, slot, part, s, value)) {
            *value_out = value;
            return true;
        }
    }
    return false;
}

/* The value of size s that makes the part what the dump has, if the part rises with it evenly;
 * false if no whole number does. */
static bool solve_even(const struct solver *solver, uint32_t slot, uint32_t part, size_t s,
                       uint64_t *value_out)
{
    const struct wf_seen_slot *want = &solver->seen->slots[slot];
    const struct probe *probe = &solver->probes[s];
    __int128 now = (__int128)wf_seen_find(&solver->now, want->pattern)->parts[part];
    __int128 then = (__int128)wf_seen_find(&probe->seen, want->pattern)->parts[part];
    __int128 rise = then - now, run = (__int128)probe->to - probe->from;
    __int128 wanted = ((__int128)want->parts[part] - now) * run;
    if (rise == 0 || wanted % rise != 0) {
        return false;
    }
    __int128 value = (__int128)probe->from + wanted / rise;
    *value_out = (uint64_t)value;
    return value >= 0 && value <= UINT32_MAX;
}

/* A count (part 0) need not rise evenly; a value that the others' trial sizes do not go with cannot
 * be tried and is believed. */
static bool solve_part(const struct solver *solver, uint32_t slot, uint32_t part, size_t s,
                       uint64_t *value_out)
{
    bool even = solve_even(solver, slot, part, s, value_out);
    if (part > 0 || (even && makes_part(solver, slot, part, s, *value_out))) {
        return even;
    }
    uint64_t small;
    if (solve_small(solver, slot, part, s, &small)) {
        *value_out = small;
        return true;
    }
    return even;
}

/* Solved sizes may not go with the trial values of the others (2 query heads, 16 KV heads): smaller
 * ones then. */
static bool settle(struct solver *solver)
{
    for (uint64_t value = START; value > 0; value /= 2) {
        if (wf_guess_seen(solver->guess, &solver->now)) {
            return true;
        }
        for (size_t s = 0; s < solver->guess->family->size_count; s++) {
            bool open = is_number(solver->guess, s) && !solver->guess->solved[s] &&
                        solver->guess->given[s] && solver->guess->value[s] > value / 2;
            solver->guess->value[s] = open ? value / 2 : solver->guess->value[s];
        }
    }
    return false;
}

static bool probe_all(struct solver *solver)
{
    if (!settle(solver)) {
        return false;
    }
    for (size_t s = 0; s < solver->guess->family->size_count; s++) {
        solver->probes[s] = (struct probe){0};
        if (is_number(solver->guess, s) && !solver->guess->solved[s] && !solver->guess->still[s]) {
            probe_size(solver, s);
        }
    }
    return true;
}

static void drop_probes(struct solver *solver)
{
    wf_seen_fini(&solver->now);
    for (size_t s = 0; s < WF_FAMILY_SIZES_MAX; s++) {
        wf_seen_fini(&solver->probes[s].seen);
    }
}

/* One round: every size that some part shows alone. False if a part cannot be made. */
static bool solve_round(struct solver *solver, bool *progress, uint64_t *product_out)
{
    struct wf_guess next = *solver->guess;
    uint64_t moved = 0;
    *progress = false;
    *product_out = 0;
    for (uint32_t slot = 0; slot < solver->seen->count; slot++) {
        for (uint32_t part = 0; part < WF_SEEN_PARTS; part++) {
            uint64_t bits = movers(solver, slot, part), value = 0;
            int count = __builtin_popcountll(bits);
            moved |= bits;
            if (count > 1 && (*product_out == 0 || count < __builtin_popcountll(*product_out))) {
                *product_out = bits;
            }
            size_t s = count == 1 ? (size_t)__builtin_ctzll(bits) : 0;
            if (count != 1 || next.solved[s]) {
                continue;
            }
            if (!solve_part(solver, slot, part, s, &value)) {
                return false;
            }
            next.given[s] = next.solved[s] = *progress = true;
            next.value[s] = value;
        }
    }
    for (size_t s = 0; s < solver->guess->family->size_count; s++) {
        next.moves[s] |= moved >> s & 1;
        next.still[s] |= !next.moves[s] && solver->probes[s].to != solver->probes[s].from;
    }
    *solver->guess = next;
    return true;
}

static bool solve_from(struct wf_guess *guess, const struct wf_seen *seen, unsigned chosen,
                       wf_guess_check_t *check, void *user);

/* Only a product shows: one of its sizes is what is usual, then the rest follows. */
static bool choose(struct wf_guess *guess, const struct wf_seen *seen, uint64_t product,
                   unsigned chosen, wf_guess_check_t *check, void *user)
{
    size_t last = 63 - (size_t)__builtin_clzll(product);
    /* The first: what it is now, which of a size that configs mostly leave out is its rule. */
    const uint64_t usual[] = {
        current(guess, last), 128, 64, 256, 192, 512, 96, 80, 32, 16, 8, 4, 2, 1};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0] && chosen < FREE_MAX; i++) {
        struct wf_guess trial = *guess;
        trial.given[last] = trial.solved[last] = true;
        trial.value[last] = usual[i];
        for (size_t s = 0; s < WF_FAMILY_SIZES_MAX; s++) {
            trial.free[s] |= product >> s & 1;
        }
        if (solve_from(&trial, seen, chosen + 1, check, user)) {
            *guess = trial;
            return true;
        }
    }
    return false;
}

static bool solve_from(struct wf_guess *guess, const struct wf_seen *seen, unsigned chosen,
                       wf_guess_check_t *check, void *user)
{
    for (unsigned round = 0; round < ROUNDS_MAX; round++) {
        struct solver *solver = calloc(1, sizeof *solver);
        bool progress = false;
        uint64_t product = 0;
        if (solver == NULL) {
            return false;
        }
        solver->guess = guess;
        solver->seen = seen;
        bool good = probe_all(solver) && solve_round(solver, &progress, &product);
        drop_probes(solver);
        free(solver);
        if (!good) {
            return false;
        }
        if (!progress) {
            return product != 0 ? choose(guess, seen, product, chosen, check, user)
                                : check(user, guess);
        }
    }
    return false;
}

bool wf_guess_solve(struct wf_guess *guess, const struct wf_seen *seen, wf_guess_check_t *check,
                    void *user)
{
    return solve_from(guess, seen, 0, check, user);
}
