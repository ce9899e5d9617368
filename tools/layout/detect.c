/* detect.c - tries every family, engine and recipe whose names are those of the dumps. */
#include "tools/layout/detect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "tools/layout/detect_private.h"

/* Names that are not nearly those of the dump are not tried further. */
#define NEAR_ENOUGH 0.9

enum {
    NEAREST_MAX = 16, /* families and engines that are tried, those of the nearest names */
    /* Tensors of trial layouts: of all, and of one recipe. A million take two or three seconds. */
    WORK_ALL = 4 << 20,
    WORK_RECIPE = 1 << 18,
};

struct detector {
    const struct wf_dump_rank *dumps;
    uint32_t count;
    const struct wf_family *const *families;
    struct wf_seen seen;
    struct wf_detected *out;
    double nearest;
    uint64_t work;
};

/* --- a fit is shown -------------------------------------------------------------------------- */

static int by_tensor_name(const void *key, const void *member)
{
    return strcmp(key, ((const struct wf_dump_tensor *)member)->name);
}

/* The layout's tensors are the dump's: all that are written must be there, and nothing else. */
static bool same_tensors(const struct wf_dump_rank *dump, const struct wf_layout *layout)
{
    uint32_t found = 0;
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        const struct wf_tensor *tensor = &layout->tensors[t];
        const struct wf_dump_tensor *live = bsearch(tensor->name, dump->tensors, dump->count,
                                                    sizeof *dump->tensors, by_tensor_name);
        if (live == NULL && tensor->kind == WF_TENSOR_WEIGHTS) {
            return false;
        }
        if (live != NULL &&
            (live->ndim != tensor->ndim ||
             memcmp(live->shape, tensor->shape, tensor->ndim * sizeof tensor->shape[0]) != 0)) {
            return false;
        }
        found += live != NULL;
    }
    for (uint32_t a = 0; a < layout->alias_count; a++) { /* a second name may be listed too */
        found += bsearch(layout->aliases[a].name, dump->tensors, dump->count, sizeof *dump->tensors,
                         by_tensor_name) != NULL;
    }
    return found == dump->count;
}

static bool all_ranks_fit(void *user, const struct wf_guess *guess)
{
    const struct detector *d = user;
    struct wf_model *model = wf_guess_model(guess);
    struct wf_recipe recipe;
    bool good = model != NULL && wf_recipe_parse(guess->spec, model, &recipe, NULL) == WF_OK &&
                (d->count == 1 || wf_recipe_world(&recipe) == d->count);
    for (uint32_t rank = 0; rank < d->count && good; rank++) {
        struct wf_layout *layout = NULL;
        good = wf_layout_derive(model, &recipe, rank, &layout, NULL) == WF_OK &&
               same_tensors(&d->dumps[rank], layout);
        wf_layout_free(layout);
    }
    wf_model_free(model);
    return good;
}

static void append(char *text, size_t size, const char *mark, const char *key, const char *value)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%.*s%s", used > 0 ? mark : "", (int)strcspn(key, "|"),
             key, value);
}

static void keep_fit(struct detector *d, const struct wf_guess *guess)
{
    struct wf_detected *out = d->out;
    if (out->fit_count == WF_DETECT_FITS_MAX) {
        out->more = true;
        return;
    }
    struct wf_detect_fit *fit = &out->fits[out->fit_count++];
    *fit = (struct wf_detect_fit){.family = guess->family};
    memcpy(fit->spec, guess->spec, sizeof fit->spec);
    for (size_t s = 0; s < guess->family->size_count; s++) {
        const struct wf_family_size *size = &guess->family->sizes[s];
        char value[32];
        if (guess->given[s] && (guess->moves[s] || wf_guess_is_flag(size))) {
            snprintf(value, sizeof value, "=%" PRIu64, guess->value[s]);
            append(fit->sizes, sizeof fit->sizes, ", ", size->key, value);
        }
        if (guess->free[s]) {
            append(fit->free, sizeof fit->free, " x ", size->key, "");
        }
    }
}

/* --- recipes --------------------------------------------------------------------------------- */

static void try_spec(struct detector *d, const struct wf_guess *begin, const char *spec)
{
    struct wf_guess guess = *begin;
    guess.ranks = d->count;
    snprintf(guess.spec, sizeof guess.spec, "%s", spec);
    uint64_t slice = d->work < WORK_RECIPE ? d->work : WORK_RECIPE, left = slice;
    guess.work = &left;
    if (wf_guess_solve(&guess, &d->seen, all_ranks_fit, d)) {
        keep_fit(d, &guess);
    }
    d->work -= slice - left;
    d->out->gave_up = d->out->gave_up || left == 0;
}

static bool knows(const struct wf_engine *engine, const char *key)
{
    for (size_t i = 0; i < engine->key_count; i++) {
        if (strcmp(engine->keys[i].name, key) == 0) {
            return engine->keys[i].kind != WF_KEY_REFUSED;
        }
    }
    return false;
}

enum { UNSAID = 0 /* of a size: its key is left out */ };

/* "engine:more" and the sizes that are said. */
static bool make_spec(const struct wf_engine *engine, const char *more, const uint32_t *sizes,
                      const char *const *keys, size_t count, char out[WF_SPEC_MAX])
{
    size_t used = (size_t)snprintf(out, WF_SPEC_MAX, "%s:%s", engine->name, more);
    const char *mark = *more != '\0' ? "," : "";
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] == UNSAID) {
            continue;
        }
        if (!knows(engine, keys[i])) {
            return false;
        }
        used += (size_t)snprintf(out + used, WF_SPEC_MAX - used, "%s%s=%" PRIu32, mark, keys[i],
                                 sizes[i]);
        mark = ",";
    }
    return used < WF_SPEC_MAX;
}

/* `sizes` of tp, pp, dp and ep, of which 1 is not said; etp unsaid (as tp), then each up to
 * `etp_max`. */
static void try_etp(struct detector *d, const struct wf_guess *begin,
                    const struct wf_engine *engine, const char *more, const uint32_t sizes[4],
                    uint32_t etp_max)
{
    static const char *const keys[] = {"tp", "pp", "dp", "ep", "etp"};
    for (uint32_t etp = UNSAID; etp <= etp_max; etp += etp == UNSAID ? 1 : etp) {
        uint32_t all[] = {UNSAID, UNSAID, UNSAID, UNSAID, etp};
        char spec[WF_SPEC_MAX];
        for (size_t i = 0; i < 4; i++) {
            all[i] = sizes[i] > 1 ? sizes[i] : UNSAID;
        }
        if (etp != sizes[0] && make_spec(engine, more, all, keys, 5, spec)) {
            try_spec(d, begin, spec);
        }
    }
}

/* Sizes whose product are the ranks that there are; of a single dump any small ones, without those
 * that shapes cannot show. Without experts ep and etp are not tried. */
static void try_recipes(struct detector *d, const struct wf_guess *begin,
                        const struct wf_engine *engine, const char *more, bool experts)
{
    uint32_t world = d->count > 1 ? d->count : WF_DETECT_WORLD_MAX / 4;
    uint32_t group = experts ? world : 1;
    for (uint32_t tp = 1; tp <= world; tp *= d->count > 1 ? 1 : 2, tp += d->count > 1) {
        for (uint32_t pp = 1; pp * tp <= world && (pp == 1 || d->count > 1); pp++) {
            uint32_t dp = d->count > 1 ? d->count / (tp * pp) : 1;
            if (d->count > 1 && tp * pp * dp != d->count) {
                continue;
            }
            for (uint32_t ep = 1; ep <= group; ep *= 2) {
                const uint32_t sizes[] = {tp, pp, dp, ep};
                try_etp(d, begin, engine, more, sizes, experts && tp * dp > 1 ? tp * dp : 0);
            }
        }
    }
}

/* --- families and engines -------------------------------------------------------------------- */

/* Words that change names: each is tried. */
static const struct {
    const char *engine, *more;
} variants[] = {
    {"megatron", "vocab_div=1"}, /* the padded vocabulary is one like any other */
    {"megatron", "vocab_div=1,names=local,experts=sequential"},
    {"megatron", "vocab_div=1,experts=sequential"},
    {"megatron", "vocab_div=1,version=0.16"},
    {"fsdp", ""},
    {"fsdp", "flat=1"},
    {"fsdp", "shard=1"},
    {"vllm", ""},
    {"sglang", ""},
    {"hf", ""},
};

static void note_nearest(struct detector *d, const struct wf_guess *guess, double near)
{
    struct wf_seen own;
    if (near <= d->nearest || !wf_guess_seen(guess, &own)) {
        return;
    }
    const char *other = "";
    for (uint32_t i = 0; i < d->seen.count && *other == '\0'; i++) {
        if (wf_seen_find(&own, d->seen.slots[i].pattern) == NULL) {
            other = d->seen.slots[i].name;
        }
    }
    d->nearest = near;
    snprintf(d->out->nearest, sizeof d->out->nearest, "%s in %.60s%s%.255s", guess->family->name,
             guess->spec, *other != '\0' ? ", which has no " : ", whose shapes differ", other);
    wf_seen_fini(&own);
}

/* A family in an engine, and how near its names are. */
struct near {
    struct wf_guess guess;
    const struct wf_engine *engine;
    const char *more;
    double near;
};

static void start_family(struct detector *d, const struct wf_family *family, size_t variant,
                         struct near *list)
{
    struct near one = {.more = variants[variant].more};
    for (size_t e = 0; wf_engines[e] != NULL; e++) {
        bool same = strcmp(wf_engines[e]->name, variants[variant].engine) == 0;
        one.engine = same ? wf_engines[e] : one.engine;
    }
    if (one.engine == NULL) {
        return;
    }
    one.guess =
        (struct wf_guess){.family = family, .families = d->families, .work = &d->work, .ranks = 1};
    snprintf(one.guess.spec, sizeof one.guess.spec, "%s:%s", one.engine->name, one.more);
    one.near = wf_guess_start(&one.guess, &d->seen);
    for (size_t i = 0; i < NEAREST_MAX; i++) { /* sorted: the nearest first */
        if (one.near > list[i].near) {
            struct near other = list[i];
            list[i] = one;
            one = other;
        }
    }
}

static void come_near(struct detector *d, struct near *one)
{
    one->near = wf_guess_trim(&one->guess, &d->seen);
    one->near = wf_guess_improve(&one->guess, &d->seen, one->near);
    note_nearest(d, &one->guess, one->near);
}

static int by_nearness(const void *a, const void *b)
{
    const struct near *x = a, *y = b;
    return x->near > y->near ? -1 : x->near < y->near;
}

static void try_near(struct detector *d, struct near *one)
{
    wf_guess_spell_out(&one->guess);
    struct wf_model *model = wf_guess_model(&one->guess);
    bool experts = model != NULL && wf_model_size(model, "E") > 0;
    wf_model_free(model);
    try_recipes(d, &one->guess, one->engine, one->more, experts);
}

static enum wf_status try_all(struct detector *d, struct wf_error *error)
{
    struct near *list = calloc(NEAREST_MAX, sizeof *list);
    if (list == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory to detect with");
    }
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
        for (size_t f = 0; d->families != NULL && d->families[f] != NULL; f++) {
            start_family(d, d->families[f], v, list);
        }
        for (size_t f = 0; wf_families[f] != NULL; f++) {
            start_family(d, wf_families[f], v, list);
        }
    }
    size_t count = 0;
    for (; count < NEAREST_MAX && list[count].engine != NULL; count++) {
        come_near(d, &list[count]);
    }
    qsort(list, count, sizeof *list, by_nearness); /* work may not last for all */
    for (size_t i = 0; i < count && list[i].near >= NEAR_ENOUGH; i++) {
        try_near(d, &list[i]);
    }
    free(list);
    return WF_OK;
}

enum wf_status wf_detect(const struct wf_dump_rank *dumps, uint32_t count,
                         const struct wf_family *const *families, struct wf_detected *out,
                         struct wf_error *error)
{
    *out = (struct wf_detected){0};
    struct detector d = {.dumps = dumps,
                         .count = count,
                         .families = families,
                         .out = out,
                         .nearest = -1,
                         .work = WORK_ALL};
    if (count == 0 || count > WF_DETECT_WORLD_MAX || dumps[0].count == 0) {
        return wf_error_set(error, WF_INVALID, "expected the tensors of 1 to %d ranks, found %s",
                            WF_DETECT_WORLD_MAX,
                            count == 0                    ? "none"
                            : count > WF_DETECT_WORLD_MAX ? "more files"
                                                          : "a file without tensors");
    }
    out->fits = calloc(WF_DETECT_FITS_MAX, sizeof *out->fits);
    bool good = out->fits != NULL;
    for (uint32_t i = 0; i < count && good; i++) {
        good = wf_seen_add_dump(&d.seen, &dumps[i]);
    }
    if (!good) {
        wf_seen_fini(&d.seen);
        return wf_error_set(error, WF_NO_MEMORY, "no memory to detect with");
    }
    enum wf_status status = try_all(&d, error);
    wf_seen_fini(&d.seen);
    return status;
}

void wf_detected_fini(struct wf_detected *detected)
{
    free(detected->fits);
    *detected = (struct wf_detected){0};
}
