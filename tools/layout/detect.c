/* detect.c - tries every family and engine whose names are those of the dumps, and proves what it
 * answers. */
#include "tools/layout/detect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/layout/detect_private.h"

enum {
    NEAREST_MAX = 8, /* families and engines whose names are tried to be made */
    SPARE_MISFITS = 40,
    DEPTH_MAX = 16,     /* layers of trial models */
    WORK_ALL = 3 << 18, /* tensors of trial layouts: a second or so */
};

/* A family in an engine, and how far its names are from the dump's. */
struct near {
    struct wf_guess guess;
    uint32_t misfits;
    uint32_t order; /* of engines, each with all its families: decides between equals */
};

struct detector {
    const struct wf_dump_rank *dumps;
    uint32_t count;
    const struct wf_family *const *families;
    struct wf_stages stages;
    struct wf_seen seen; /* of all ranks, the stages of a pipeline put together */
    struct wf_guess_ranks ranks;
    struct wf_detected *out;
    enum wf_dtype dtype;
    bool dtypes[WF_DTYPE_COUNT]; /* of its tensors */
    struct wf_guess_quant quant;
    struct wf_guess_list list;             /* of the guess at hand */
    uint32_t unlisted[WF_DETECT_FITS_MAX]; /* of each fit */
    struct wf_hash hashes[WF_DETECT_FITS_MAX];
    const struct wf_engine *engines[WF_DETECT_FITS_MAX];
    struct wf_trials trials;
    uint32_t nearest; /* misfits, or parts that were not made, of what came nearest */
    bool shapes;      /* its names fit */
};

/* --- what the dumps say ---------------------------------------------------------------------- */

static void read_types(struct detector *d)
{
    uint64_t counts[WF_DTYPE_COUNT] = {0};
    for (uint32_t r = 0; r < d->count; r++) {
        for (uint32_t i = 0; i < d->dumps[r].count; i++) {
            const struct wf_dump_tensor *tensor = &d->dumps[r].tensors[i];
            counts[tensor->dtype] += tensor->elements;
            d->dtypes[tensor->dtype] = true;
        }
    }
    const enum wf_dtype types[] = {WF_DTYPE_BF16, WF_DTYPE_F32, WF_DTYPE_F16};
    d->dtype = WF_DTYPE_BF16;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        d->dtype = counts[types[i]] > counts[d->dtype] ? types[i] : d->dtype;
    }
    for (uint32_t r = 0; r < d->count && d->quant.method == NULL; r++) {
        wf_guess_quant_find(&d->dumps[r], &d->quant);
    }
}

/* Ranks that show the same are looked at once. */
static bool read_ranks(struct detector *d)
{
    if (!wf_stages_find(d->dumps, d->count, &d->stages)) {
        d->stages = (struct wf_stages){d->count, 1, d->count, 1};
    }
    uint32_t ranks = d->stages.inner * d->stages.outer;
    uint64_t hashes[WF_DETECT_WORLD_MAX];
    bool good = true;
    for (uint32_t m = 0; m < ranks && good; m++) {
        struct wf_seen one = {0};
        uint32_t outer = m / d->stages.inner, i = m % d->stages.inner, like = 0;
        for (uint32_t s = 0; s < d->stages.stages && good; s++) {
            uint32_t rank = (outer * d->stages.stages + s) * d->stages.inner + i;
            good = wf_seen_add_dump(&one, &d->dumps[rank], s);
        }
        wf_seen_join(&one);
        uint64_t hash = wf_seen_hash(&one);
        while (like < d->ranks.count && hashes[like] != hash) {
            like++;
        }
        if (like == d->ranks.count) {
            hashes[d->ranks.count++] = hash;
            d->ranks.at[like].rank = m;
        }
        d->ranks.at[like].weight++;
        good = good && wf_seen_weigh(&d->seen, &one, 1);
        wf_seen_fini(&one);
    }
    return good;
}

/* --- an answer is proven --------------------------------------------------------------------- */

static int by_tensor_name(const void *key, const void *member)
{
    return strcmp(key, ((const struct wf_dump_tensor *)member)->name);
}

static const struct wf_dump_tensor *find_tensor(const struct wf_dump_rank *dump, const char *name)
{
    return bsearch(name, dump->tensors, dump->count, sizeof *dump->tensors, by_tensor_name);
}

static bool same_shape(const struct wf_dump_tensor *live, const struct wf_tensor *tensor)
{
    return live->ndim == tensor->ndim &&
           memcmp(live->shape, tensor->shape, tensor->ndim * sizeof tensor->shape[0]) == 0;
}

/* A name without the mark that layouts have before what is no parameter. */
static const char *unmarked(const char *name)
{
    const char *colon = strchr(name, ':');
    return colon != NULL ? colon + 1 : name;
}

/* What was seen when an answer was proven. */
struct proof {
    struct wf_hash hash;          /* of all ranks' layouts */
    char dtype[WF_NAME_MAX + 64]; /* the first type that differs; "" */
    uint32_t unlisted;            /* tensors that the dump need not have, and has not */
};

/* The layout's tensors are the dump's: all that are written must be there, and nothing else. */
static bool same_tensors(const struct wf_dump_rank *dump, const struct wf_layout *layout,
                         struct proof *proof)
{
    uint32_t found = 0;
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        const struct wf_tensor *tensor = &layout->tensors[t];
        const struct wf_dump_tensor *live = find_tensor(dump, tensor->name);
        bool marked = unmarked(tensor->name) != tensor->name;
        live = live == NULL && marked ? find_tensor(dump, unmarked(tensor->name)) : live;
        if (live == NULL ? tensor->kind == WF_TENSOR_WEIGHTS && !marked
                         : !same_shape(live, tensor)) {
            return false;
        }
        if (live != NULL && live->dtype != tensor->dtype && proof->dtype[0] == '\0') {
            snprintf(proof->dtype, sizeof proof->dtype, "%s is %s, the recipe's is %s", live->name,
                     wf_dtype_name(live->dtype), wf_dtype_name(tensor->dtype));
        }
        proof->unlisted += live == NULL && !marked;
        found += live != NULL;
    }
    for (uint32_t a = 0; a < layout->alias_count; a++) { /* a second name may be listed too */
        const struct wf_dump_tensor *live = find_tensor(dump, layout->aliases[a].name);
        found += live != NULL && same_shape(live, &layout->tensors[layout->aliases[a].tensor]);
    }
    return found == dump->count;
}

static bool ranks_fit(const struct detector *d, const struct wf_guess *guess, struct proof *proof)
{
    struct wf_recipe recipe;
    const struct wf_model *model = wf_guess_trial(guess, &recipe);
    bool good = model != NULL && (d->count == 1 || wf_recipe_world(&recipe) == d->count);
    *proof = (struct proof){.dtype = ""};
    for (uint32_t rank = 0; rank < d->count && good; rank++) {
        struct wf_layout *layout = NULL;
        good = wf_layout_derive(model, &recipe, rank, &layout, NULL) == WF_OK &&
               same_tensors(&d->dumps[rank], layout, proof);
        if (good) {
            uint64_t cost = layout->tensor_count;
            wf_guess_pay(guess, cost);
            proof->hash.low = (proof->hash.low ^ layout->hash.low) * 0x100000001b3u;
            proof->hash.high = (proof->hash.high ^ layout->hash.high) * 0x100000001b3u;
        }
        wf_layout_free(layout);
    }
    return good;
}

/* Whatever type most tensors have, one that all of them agree with is the recipe's; a few follow
 * the config's, which may be another. */
static bool all_ranks_fit(const struct detector *d, struct wf_guess *guess, struct proof *proof)
{
    static const enum wf_dtype types[] = {WF_DTYPE_BF16, WF_DTYPE_F32, WF_DTYPE_F16};
    enum { TYPES = sizeof types / sizeof types[0] };
    const struct wf_guess first = *guess;
    if (!ranks_fit(d, guess, proof)) {
        return false;
    }
    for (size_t i = 0; i < TYPES * TYPES && proof->dtype[0] != '\0'; i++) {
        guess->dtype = types[i % TYPES];
        guess->config_dtype = types[(i + i / TYPES) % TYPES]; /* first the same */
        bool there = d->dtypes[guess->dtype] && d->dtypes[guess->config_dtype];
        if (there && ranks_fit(d, guess, proof) && proof->dtype[0] == '\0') {
            return true;
        }
        *guess = first;
        (void)ranks_fit(d, guess, proof);
    }
    return true;
}

/* --- answers --------------------------------------------------------------------------------- */

static void append(char *text, size_t size, const char *mark, const char *key, const char *value)
{
    size_t used = strlen(text);
    if (used + 1 < size) {
        snprintf(text + used, size - used, "%s%.*s%s", used > 0 ? mark : "", (int)strcspn(key, "|"),
                 key + strspn(key, "#."), value);
    }
}

static bool format_spec(const struct wf_guess *guess, char out[WF_SPEC_MAX])
{
    struct wf_recipe recipe;
    const struct wf_model *model = wf_guess_model(guess, &recipe, NULL);
    if (model != NULL) {
        wf_recipe_format(&recipe, out);
    }
    return model != NULL;
}

/* Another SPEC of the same model and engine that makes the very same layouts is no other answer. Of
 * another engine it is one: the engine is what the user runs. */
static bool is_kept(const struct detector *d, const struct wf_guess *guess, const char *config,
                    const struct proof *proof)
{
    for (uint32_t i = 0; i < d->out->fit_count; i++) {
        const struct wf_detect_fit *fit = &d->out->fits[i];
        if (fit->family == guess->family && d->engines[i] == guess->engine &&
            strcmp(fit->config, config) == 0 && wf_hash_equal(d->hashes[i], proof->hash)) {
            return true;
        }
    }
    return false;
}

/* Whether one row less shows no different. Trying it is no part of the work that is allowed. */
static bool is_padded(const struct detector *d, const struct wf_guess *guess)
{
    struct wf_guess fewer = *guess;
    struct proof proof;
    uint32_t rows = wf_guess_size(guess->family, "V");
    struct wf_trials trials = {.work = WORK_ALL};
    if (rows == WF_NONE || guess->state[rows] != WF_GUESS_NUMBER || guess->value[rows] < 2) {
        return false;
    }
    fewer.value[rows]--;
    fewer.trials = &trials;
    bool padded = ranks_fit(d, &fewer, &proof);
    wf_trials_fini(&trials);
    return padded;
}

static struct wf_detect_fit *keep_fit(struct detector *d, const struct wf_guess *guess,
                                      const struct proof *proof)
{
    struct wf_detected *out = d->out;
    if (out->fit_count == WF_DETECT_FITS_MAX) {
        out->more = true;
        return NULL;
    }
    struct wf_detect_fit *fit = &out->fits[out->fit_count];
    *fit = (struct wf_detect_fit){.family = guess->family};
    fit->config = wf_guess_config(guess);
    if (fit->config == NULL || is_kept(d, guess, fit->config, proof) ||
        !format_spec(guess, fit->spec)) {
        free(fit->config);
        return NULL;
    }
    d->hashes[out->fit_count] = proof->hash;
    d->engines[out->fit_count] = guess->engine;
    out->fit_count++;
    memcpy(fit->dtype, proof->dtype, sizeof fit->dtype);
    fit->quant = guess->quant != NULL ? guess->quant->method : NULL;
    fit->padded = is_padded(d, guess);
    d->unlisted[out->fit_count - 1] = proof->unlisted;
    for (size_t s = 0; s < guess->family->size_count; s++) {
        const struct wf_family_size *size = &guess->family->sizes[s];
        char value[32];
        if (guess->state[s] == WF_GUESS_NUMBER && guess->shows[s]) {
            snprintf(value, sizeof value, "=%" PRIu64, guess->value[s]);
            append(fit->sizes, sizeof fit->sizes, ", ", size->key, value);
        }
        if (guess->list != NULL && guess->list->size == s) {
            append(fit->sizes, sizeof fit->sizes, ", ", size->key, " as listed in the config");
        }
        if (guess->free[s]) {
            append(fit->free, sizeof fit->free, " x ", size->key, "");
        }
    }
    return fit;
}

/* --- proving all words of a class ------------------------------------------------------------ */

/* The words of a class that make the dumps; those after the first with other contents go beside
 * it. */
static bool prove(struct detector *d, struct wf_guess *guess, const struct wf_words *words,
                  uint32_t class, uint64_t pattern)
{
    struct wf_detect_fit *fit = NULL;
    struct wf_hash seen[WF_WORDS_MAX];
    uint32_t count = 0;
    for (uint32_t w = words->classes[class].first; w < words->count && d->trials.work > 0; w++) {
        struct proof proof;
        char spec[WF_SPEC_MAX];
        if (words->class[w] != class) {
            continue;
        }
        memcpy(guess->words, words->texts[w], sizeof guess->words);
        if (!wf_recipe_pipeline(guess, &d->stages, d->dumps, pattern) ||
            !all_ranks_fit(d, guess, &proof)) {
            continue;
        }
        seen[count] = proof.hash;
        bool known = false;
        for (uint32_t i = 0; i < count; i++) {
            known |= memcmp(&seen[i], &seen[count], sizeof seen[i]) == 0;
        }
        count += !known;
        if (fit == NULL) {
            fit = keep_fit(d, guess, &proof);
            if (fit == NULL) {
                return true;
            }
        } else if (fit->dtype[0] != '\0' && proof.dtype[0] == '\0' && format_spec(guess, spec)) {
            /* Those before make the names and shapes, these the types too. */
            memcpy(fit->spec, spec, sizeof fit->spec);
            d->hashes[fit - d->out->fits] = proof.hash;
            fit->dtype[0] = fit->also[0] = '\0';
        } else if (!known && format_spec(guess, spec)) {
            append(fit->also, sizeof fit->also, " ", "", spec);
        }
    }
    return fit != NULL;
}

/* --- one family in one engine ---------------------------------------------------------------- */

/* A candidate whose names fit goes before one whose do not, then the one with fewer misfits. `why`
 * NULL: it is worked out. */
static void note_nearest(struct detector *d, const struct wf_guess *guess, bool names,
                         uint32_t left, const char *why)
{
    if (d->out->fit_count > 0 || d->shapes > names || (d->shapes == names && left >= d->nearest)) {
        return;
    }
    char spec[WF_SPEC_MAX], text[WF_EXPLAIN_MAX];
    wf_guess_spec(guess, spec);
    d->shapes = names;
    d->nearest = left;
    if (why == NULL && names) {
        wf_explain_layout(guess, d->dumps, d->count, text);
    } else if (why == NULL) {
        wf_explain_names(guess, &d->seen, text);
    }
    snprintf(d->out->nearest, sizeof d->out->nearest, "%s in %.200s: %s", guess->family->name, spec,
             why != NULL ? why : text);
}

/* The fewest layers that have every kind of tensor. */
static uint64_t find_depth(const struct wf_guess *guess, const struct wf_seen *dump,
                           uint32_t layers)
{
    struct wf_guess trial = *guess;
    for (uint64_t depth = 1; depth < guess->value[layers] && depth <= DEPTH_MAX; depth++) {
        struct wf_seen seen;
        trial.value[layers] = depth;
        if (!wf_guess_seen(&trial, &wf_guess_one_rank, &seen)) {
            continue;
        }
        bool all = wf_seen_misfits(&seen, dump) == 0;
        wf_seen_fini(&seen);
        if (all) {
            return depth;
        }
    }
    return guess->value[layers];
}

/* What is wrong whatever the model needs no solving. */
static bool is_recipe(const struct wf_guess *guess)
{
    char spec[WF_SPEC_MAX];
    struct wf_recipe recipe;
    wf_guess_spec(guess, spec);
    return wf_recipe_parse(spec, NULL, &recipe, NULL) == WF_OK;
}

/* Every parallel size that the engine may have with so many ranks. */
static void try_sizes(struct detector *d, const struct wf_guess *small, uint64_t layers,
                      const struct wf_words *words, uint32_t ranks, uint64_t pattern)
{
    uint32_t index = wf_guess_size(small->family, "L");
    struct wf_sizes_list list;
    wf_recipe_sizes(small, &d->stages, ranks, &list);
    for (uint32_t c = 0; c < words->class_count; c++) {
        struct wf_guess begin = *small;
        memcpy(begin.words, words->texts[words->classes[c].first], sizeof begin.words);
        struct wf_solver *solver = wf_solver_new(&begin, &d->seen);
        for (uint32_t i = 0; solver != NULL && i < list.count && d->trials.work > 0; i++) {
            struct wf_guess guess = begin;
            struct wf_left left;
            memcpy(guess.sizes, list.texts[i], sizeof guess.sizes);
            if (!is_recipe(&guess)) {
                continue;
            }
            bool solved = wf_solver_run(solver, &guess, &d->ranks, &left);
            guess.value[index] = layers;
            guess.shows[index] = true;
            guess.vocab = guess.value[wf_guess_size(guess.family, "V")];
            if (!solved || !prove(d, &guess, words, c, pattern)) {
                note_nearest(d, &guess, true, solved ? 0 : left.parts, solved ? NULL : left.why);
            }
        }
        wf_solver_free(solver);
    }
    free(list.texts);
}

static void try_near(struct detector *d, struct near *one)
{
    struct wf_guess *guess = &one->guess;
    uint32_t index = wf_guess_size(guess->family, "L");
    uint64_t pattern = wf_names_layer_pattern(guess);
    /* Megatron counts a stage's layers from 0: their numbers do not tell which they are. */
    bool numbered = d->stages.stages == 1 || !wf_guess_engine_knows(guess->engine, "account");
    bool counted = wf_names_count(guess, &d->seen);
    if (numbered && !(counted && wf_lists_stand(guess, d->dumps, d->count))) {
        counted |= wf_lists_count(guess, &d->seen, d->dumps, d->count, &d->list);
    }
    if (!counted) {
        note_nearest(d, guess, true, UINT32_MAX - 1,
                     "no number of layers of each kind gives as many tensors");
        return;
    }
    uint64_t layers = guess->value[index];
    guess->value[index] = find_depth(guess, &d->seen, index);
    struct wf_words *words = calloc(1, sizeof *words);
    if (words != NULL) {
        wf_words_find(guess, &d->seen, words);
        uint32_t ranks = d->stages.inner * d->stages.outer, before = d->out->fit_count;
        try_sizes(d, guess, layers, words, ranks, pattern);
        for (ranks = 2; d->count == 1 && ranks <= WF_DETECT_WORLD_MAX && d->trials.work > 0 &&
                        d->out->fit_count == before;
             ranks *= 2) {
            try_sizes(d, guess, layers, words, ranks, pattern);
        }
    }
    free(words);
}

static void start_engine(struct detector *d, const struct wf_family *family,
                         const struct wf_engine *engine, uint32_t order, struct near *list)
{
    struct near one = {.order = order,
                       .guess = {.family = family,
                                 .families = d->families,
                                 .engine = engine,
                                 .dtype = d->dtype,
                                 .config_dtype = d->dtype,
                                 .counts = wf_guess_counts(family),
                                 .trials = &d->trials}};
    for (size_t s = 0; s < family->size_count && d->quant.match != NULL; s++) {
        const char *match = family->sizes[s].match;
        one.guess.quant =
            match != NULL && strcmp(match, d->quant.match) == 0 ? &d->quant : one.guess.quant;
    }
    one.misfits = wf_names_begin(&one.guess, &d->seen);
    for (size_t i = 0; i < NEAREST_MAX; i++) { /* sorted: the nearest first */
        bool nearer = one.misfits < list[i].misfits ||
                      (one.misfits == list[i].misfits && one.order < list[i].order);
        if (nearer) {
            struct near other = list[i];
            list[i] = one;
            one = other;
        }
    }
}

/* All engines of a family one after the other: they begin with one model. */
static void start_family(struct detector *d, const struct wf_family *family, uint32_t number,
                         struct near *list)
{
    for (uint32_t e = 0; wf_engines[e] != NULL; e++) {
        bool codes = wf_engines[e]->view != WF_VIEW_PLAIN || d->quant.method == NULL;
        bool sizes = wf_engines[e]->layout == NULL; /* else it is told its layouts */
        if (codes && sizes) {                       /* trainers have no codes */
            start_engine(d, family, wf_engines[e], (e << 16) + number, list);
        }
    }
}

/* Answers that leave least out: those whose types are right, if there are any; then those of whose
 * tensors the dump has most. */
static void keep_best(struct detector *d)
{
    struct wf_detected *out = d->out;
    uint32_t least = UINT32_MAX, kept = 0;
    bool typed = false;
    for (uint32_t i = 0; i < out->fit_count; i++) {
        typed |= out->fits[i].dtype[0] == '\0';
    }
    for (uint32_t i = 0; i < out->fit_count; i++) {
        bool right = !typed || out->fits[i].dtype[0] == '\0';
        least = right && d->unlisted[i] < least ? d->unlisted[i] : least;
    }
    for (uint32_t i = 0; i < out->fit_count; i++) {
        bool right = !typed || out->fits[i].dtype[0] == '\0';
        if (right && d->unlisted[i] == least) {
            struct wf_detect_fit fit = out->fits[i];
            out->fits[kept++] = fit;
        } else {
            free(out->fits[i].config);
        }
    }
    out->fit_count = kept;
}

static enum wf_status try_all(struct detector *d, struct wf_error *error)
{
    struct near *list = calloc(NEAREST_MAX, sizeof *list);
    if (list == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory to detect with");
    }
    for (size_t i = 0; i < NEAREST_MAX; i++) {
        list[i].misfits = UINT32_MAX;
    }
    uint32_t number = 0;
    for (size_t f = 0; d->families != NULL && d->families[f] != NULL; f++) {
        start_family(d, d->families[f], number++, list);
    }
    for (size_t f = 0; wf_families[f] != NULL; f++) {
        start_family(d, wf_families[f], number++, list);
    }
    /* Once names fit, what began much farther off is not tried. */
    uint32_t fitting = UINT32_MAX;
    for (size_t i = 0; i < NEAREST_MAX && list[i].misfits < UINT32_MAX && d->trials.work > 0; i++) {
        if (fitting < UINT32_MAX && list[i].misfits > 2 * fitting + SPARE_MISFITS) {
            break;
        }
        uint32_t begun = list[i].misfits;
        list[i].misfits = wf_names_fit(&list[i].guess, &d->seen, list[i].misfits);
        if (list[i].misfits == 0) {
            fitting = begun < fitting ? begun : fitting;
            try_near(d, &list[i]);
        } else {
            note_nearest(d, &list[i].guess, false, list[i].misfits, NULL);
        }
    }
    free(list);
    return WF_OK;
}

enum wf_status wf_detect(const struct wf_dump_rank *dumps, uint32_t count,
                         const struct wf_family *const *families, struct wf_detected *out,
                         struct wf_error *error)
{
    *out = (struct wf_detected){.single = count == 1};
    struct detector d = {.dumps = dumps,
                         .count = count,
                         .families = families,
                         .out = out,
                         .nearest = UINT32_MAX,
                         .trials = {.work = WORK_ALL}};
    if (count == 0 || count > WF_DETECT_WORLD_MAX || dumps[0].count == 0) {
        return wf_error_set(error, WF_INVALID, "expected the tensors of 1 to %d ranks, found %s",
                            WF_DETECT_WORLD_MAX,
                            count == 0                    ? "none"
                            : count > WF_DETECT_WORLD_MAX ? "more files"
                                                          : "a file without tensors");
    }
    out->fits = calloc(WF_DETECT_FITS_MAX, sizeof *out->fits);
    read_types(&d);
    if (out->fits == NULL || !read_ranks(&d)) {
        wf_seen_fini(&d.seen);
        wf_guess_quant_fini(&d.quant);
        return wf_error_set(error, WF_NO_MEMORY, "no memory to detect with");
    }
    enum wf_status status = try_all(&d, error);
    keep_best(&d);
    out->gave_up = d.trials.work == 0;
    wf_guess_quant_fini(&d.quant);
    wf_trials_fini(&d.trials);
    wf_seen_fini(&d.seen);
    return status;
}

void wf_detected_fini(struct wf_detected *detected)
{
    for (uint32_t i = 0; i < detected->fit_count; i++) {
        free(detected->fits[i].config);
    }
    free(detected->fits);
    *detected = (struct wf_detected){0};
}
