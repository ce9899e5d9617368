/* detect_guess.c - a guess at a model and a recipe: its config, its SPEC, and what it derives. */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/layout/detect_private.h"

enum {
    KEY_ROOM = 128,
    TRIAL_COST = 40, /* of a config, in tensors */
    SPEC_COST = 10,
    BLOCK = 128,         /* of fp8, of backends that shuffle rows */
    FEW = 4,             /* of what is multiplied by itself in a shape */
    START_LAYERS = 4,    /* of every usual kind there is one among them */
    START_VOCAB = 65536, /* padding does not hide it */
};

const struct wf_guess_ranks wf_guess_one_rank = {.count = 1, .at = {{0, 1}}};
static const struct wf_guess_ranks two_ranks = {.count = 2, .at = {{0, 1}, {1, 1}}};

int wf_size_bits_count(wf_size_bits_t bits)
{
    return __builtin_popcountll((uint64_t)bits) + __builtin_popcountll((uint64_t)(bits >> 64));
}

size_t wf_size_bits_first(wf_size_bits_t bits)
{
    size_t size = 0;
    while (size < WF_FAMILY_SIZES_MAX && (bits >> size & 1) == 0) {
        size++;
    }
    return size;
}

bool wf_guess_is_flag(const struct wf_family_size *size)
{
    return size->match != NULL;
}

bool wf_guess_can_say(const struct wf_family_size *size)
{
    static const char quant[] = "quantization_config.";
    /* How many layers a list has is the list's to say (detect_lists.c). */
    bool count = size->key != NULL && size->key[0] == '#' && strstr(size->key, "layer") != NULL;
    return size->key != NULL && !count && strncmp(size->key, quant, sizeof quant - 1) != 0 &&
           (size->match == NULL || strcmp(size->match, "@layer") != 0);
}

uint32_t wf_guess_size(const struct wf_family *family, const char *name)
{
    for (uint32_t s = 0; s < family->size_count; s++) {
        if (strcmp(family->sizes[s].name, name) == 0) {
            return s;
        }
    }
    return WF_NONE;
}

bool wf_guess_has_role(const struct wf_family *family, const char *role)
{
    for (size_t r = 0; r < family->row_count; r++) {
        if (strcmp(family->rows[r].role, role) == 0) {
            return true;
        }
    }
    return false;
}

bool wf_guess_engine_knows(const struct wf_engine *engine, const char *key)
{
    for (size_t i = 0; i < engine->key_count; i++) {
        if (strcmp(engine->keys[i].name, key) == 0) {
            return engine->keys[i].kind != WF_KEY_REFUSED;
        }
    }
    return false;
}

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

static bool is_word(const char *text, const char *at, size_t len)
{
    return (at == text || strchr(letters, at[-1]) == NULL) && strspn(at, letters) == len;
}

static bool has_word(const char *text, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = text; at != NULL && (at = strstr(at, name)) != NULL; at++) {
        if (is_word(text, at, len)) {
            return true;
        }
    }
    return false;
}

/* It stands in the count of a stack, or beside the number of a layer; experts, which do too, show
 * in shapes. */
static bool is_count(const struct wf_family *family, const char *name)
{
    bool counts = false;
    if (strcmp(name, "E") == 0) {
        return false;
    }
    for (size_t i = 0; i < family->stack_count; i++) {
        counts |= has_word(family->stacks[i].count, name);
    }
    for (size_t i = 0; i < family->size_count; i++) {
        const char *rule = family->sizes[i].otherwise;
        counts |= rule != NULL && has_word(rule, "layer") && has_word(rule, name);
    }
    for (size_t i = 0; i < family->row_count; i++) {
        const char *when = family->rows[i].when;
        counts |= when != NULL && has_word(when, "layer") && has_word(when, name);
    }
    return counts;
}

wf_size_bits_t wf_guess_counts(const struct wf_family *family)
{
    wf_size_bits_t counts = 0;
    for (size_t s = 0; s < family->size_count; s++) {
        counts |= is_count(family, family->sizes[s].name) ? WF_SIZE_BIT(s) : 0;
    }
    return counts;
}

bool wf_guess_is_count(const struct wf_guess *guess, size_t size)
{
    return guess->counts >> size & 1;
}

/* The size on either side of the " == " at `mark`; WF_NONE: no size, or one that no config says. */
static uint32_t compared(const struct wf_family *family, const char *text, const char *mark,
                         bool behind)
{
    static const char equals[] = " == ";
    const char *at = behind ? mark + sizeof equals - 1 : mark;
    char name[KEY_ROOM];
    while (!behind && at > text && strchr(letters, at[-1]) != NULL) {
        at--;
    }
    snprintf(name, sizeof name, "%.*s", (int)strspn(at, letters), at);
    uint32_t size = wf_guess_size(family, name);
    return size != WF_NONE && wf_guess_can_say(&family->sizes[size]) ? size : WF_NONE;
}

bool wf_guess_find_tie(const struct wf_guess *guess, struct wf_guess_tie *tie_out)
{
    const struct wf_family *family = guess->family;
    for (size_t e = 0; e < family->engine_count; e++) {
        const struct wf_family_engine *own = &family->engines[e];
        bool same = strcmp(own->engine, guess->engine->name) == 0;
        for (size_t r = 0; r < own->row_count && same; r++) {
            const char *text = own->rows[r].when, *at = text;
            for (; at != NULL && (at = strstr(at, " == ")) != NULL; at++) {
                uint32_t a = compared(family, text, at, false),
                         b = compared(family, text, at, true);
                if (a != WF_NONE && b != WF_NONE) {
                    *tie_out = (struct wf_guess_tie){.size = a, .as = b};
                    return true;
                }
            }
        }
    }
    return false;
}

uint64_t wf_guess_start(const struct wf_family *family, size_t size, uint64_t ranks)
{
    static const struct {
        const char *name;
        uint64_t value;
    } own[] = {{"L", START_LAYERS}, {"ns", 1},   {"vp", FEW}, {"vt", FEW},
               {"vc", FEW},         {"vs", FEW}, {"kc", FEW}};
    const char *name = family->sizes[size].name;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strcmp(own[i].name, name) == 0) {
            return own[i].value;
        }
    }
    return strcmp(name, "V") == 0    ? START_VOCAB * ranks
           : strcmp(name, "E") == 0  ? 2 * ranks
           : strcmp(name, "vn") == 0 ? FEW * ranks /* a tower's heads have rows of two dimensions */
                                     : BLOCK * ranks;
}

/* --- configs --------------------------------------------------------------------------------- */

/* Of the keys parted by |, the first: "vision_config.depth" goes into an object, ".x" to the top,
 * "#x" is a list of so many entries. */
static bool put_key(struct json_object *root, struct json_object *text, const char *key,
                    struct json_object *value)
{
    char name[KEY_ROOM];
    key += *key == '#';
    if (*key == '.') {
        text = root;
        key++;
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(key, "|"), key);
    char *dot = strchr(name, '.');
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

static struct json_object *list_of(uint64_t count)
{
    struct json_object *list = json_object_new_array();
    for (uint64_t i = 0; i < count && i <= WF_LAYERS_MAX; i++) {
        json_object_array_add(list, json_object_new_uint64(i));
    }
    return list;
}

static struct json_object *value_of(const struct wf_family_size *size, uint64_t value)
{
    if (*size->key == '#') {
        return list_of(value);
    }
    if (!wf_guess_is_flag(size)) {
        return json_object_new_uint64(value);
    }
    if (strcmp(size->match, "true") == 0) {
        return json_object_new_boolean(value != 0);
    }
    char word[KEY_ROOM];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(size->match, "|"), size->match);
    return json_object_new_string(value != 0 ? word : "");
}

/* "full_attention" or what stands for the other kind; or the numbers of the layers. */
static struct json_object *layers_of(const struct wf_family_size *size, uint64_t layers,
                                     const struct wf_guess_list *list)
{
    bool numbers = strcmp(size->match, "@layer") == 0;
    bool full = strcmp(size->match, "full_attention") == 0;
    char word[KEY_ROOM];
    struct json_object *array = json_object_new_array();
    snprintf(word, sizeof word, "%.*s", (int)strcspn(size->match, "|"), size->match);
    for (uint64_t i = 0; i < layers && i < WF_LAYERS_MAX; i++) {
        const char *kind = list->of[i] ? word : full ? "linear_attention" : "other";
        if (!numbers) {
            json_object_array_add(array, json_object_new_string(kind));
        } else if (list->of[i]) {
            json_object_array_add(array, json_object_new_uint64(i));
        }
    }
    return array;
}

static struct json_object *config_of(const struct wf_guess *guess)
{
    const struct wf_family *family = guess->family;
    struct json_object *root = json_object_new_object(), *text = root;
    char type[KEY_ROOM];
    snprintf(type, sizeof type, "%.*s", (int)strcspn(family->model_types, "|"),
             family->model_types);
    json_object_object_add(root, "model_type", json_object_new_string(type));
    if (family->text_config != NULL) {
        text = json_object_new_object();
        json_object_object_add(root, family->text_config, text);
    }
    json_object_object_add(text, "torch_dtype",
                           json_object_new_string(wf_dtype_torch(guess->config_dtype)));
    for (size_t i = 0; i < family->size_count; i++) {
        if (guess->state[i] != WF_GUESS_ABSENT && wf_guess_can_say(&family->sizes[i])) {
            bool null = guess->state[i] == WF_GUESS_NULL;
            bool tied = guess->tie.on && guess->tie.size == i;
            uint64_t value = guess->value[tied ? guess->tie.as : i];
            put_key(root, text, family->sizes[i].key,
                    null ? NULL : value_of(&family->sizes[i], value));
        }
    }
    if (guess->list != NULL) {
        const struct wf_family_size *size = &family->sizes[guess->list->size];
        uint64_t layers = guess->value[wf_guess_size(family, "L")];
        put_key(root, text, size->key, layers_of(size, layers, guess->list));
    }
    if (guess->quant != NULL) {
        json_object_object_add(root, "quantization_config",
                               wf_guess_quant_config(guess->quant, guess->engine));
    }
    return root;
}

char *wf_guess_config(const struct wf_guess *guess)
{
    struct json_object *root = config_of(guess);
    const char *text = json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN);
    char *copy = text != NULL ? strdup(text) : NULL;
    json_object_put(root);
    return copy;
}

/* On one rank torch keeps the shapes of what FSDP1 flattens on more: two are looked at then. */
static bool is_alone(const struct wf_guess *guess)
{
    return guess->sizes[0] == '\0' && strstr(guess->words, "flat=1") != NULL;
}

void wf_guess_spec(const struct wf_guess *guess, char out[WF_SPEC_MAX])
{
    bool alone = is_alone(guess);
    const char *const texts[] = {guess->words, alone ? "dp=2" : guess->sizes, guess->pipeline};
    size_t used = (size_t)snprintf(out, WF_SPEC_MAX, "%s:", guess->engine->name);
    const char *mark = "";
    if (wf_guess_engine_knows(guess->engine, "dtype")) {
        used += (size_t)snprintf(out + used, WF_SPEC_MAX - used, "dtype=%s",
                                 wf_dtype_name(guess->dtype));
        mark = ",";
    }
    /* Megatron pads unless told; a multiple of all rows pads any smaller vocabulary to them. */
    if (wf_guess_engine_knows(guess->engine, "vocab_div")) {
        used += (size_t)snprintf(out + used, WF_SPEC_MAX - used, ",vocab_div=%" PRIu64,
                                 guess->vocab > 0 ? guess->vocab : 1);
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i][0] != '\0') {
            used += (size_t)snprintf(out + used, WF_SPEC_MAX - used, "%s%s", mark, texts[i]);
            mark = ",";
        }
    }
}

/* --- layouts --------------------------------------------------------------------------------- */

void wf_guess_pay(const struct wf_guess *guess, uint64_t cost)
{
    uint64_t *work = &guess->trials->work;
    *work -= *work > cost ? cost : *work;
}

void wf_trials_fini(struct wf_trials *trials)
{
    wf_model_free(trials->model);
    free(trials->text);
    *trials = (struct wf_trials){0};
}

bool wf_guess_is_no_model(const struct wf_guess *guess)
{
    return guess->trials->model == NULL;
}

/* The model of a guess, read anew where the last trial had another config. */
static const struct wf_model *read_model(const struct wf_guess *guess, struct wf_error *error)
{
    struct wf_trials *trials = guess->trials;
    char *text = wf_guess_config(guess);
    if (text == NULL) {
        return NULL;
    }
    bool same = trials->text != NULL && strcmp(text, trials->text) == 0;
    if (same && (trials->model != NULL || error == NULL)) {
        free(text);
        return trials->model;
    }
    wf_model_free(trials->model);
    free(trials->text);
    trials->text = text;
    trials->model = NULL;
    if (wf_model_parse(text, strlen(text), guess->families, &trials->model, error) != WF_OK) {
        trials->model = NULL;
    } else if (trials->model->family != guess->family) {
        wf_model_free(trials->model);
        trials->model = NULL;
    }
    wf_guess_pay(guess, TRIAL_COST + (trials->model != NULL ? trials->model->param_count / 4 : 0));
    return trials->model;
}

/* `first`: the caller derives rank 0, which is all that a recipe of one stage is checked by. */
static const struct wf_model *make(const struct wf_guess *guess, bool first,
                                   struct wf_recipe *recipe_out, struct wf_error *error)
{
    const struct wf_model *model = guess->trials->work > 0 ? read_model(guess, error) : NULL;
    char spec[WF_SPEC_MAX];
    wf_guess_spec(guess, spec);
    wf_guess_pay(guess, SPEC_COST);
    bool good =
        model != NULL && wf_recipe_parse(spec, NULL, recipe_out, error) == WF_OK &&
        ((first && recipe_out->pp == 1) || wf_engine_check(model, recipe_out, error) == WF_OK);
    return good ? model : NULL;
}

const struct wf_model *wf_guess_model(const struct wf_guess *guess, struct wf_recipe *recipe_out,
                                      struct wf_error *error)
{
    return make(guess, false, recipe_out, error);
}

const struct wf_model *wf_guess_trial(const struct wf_guess *guess, struct wf_recipe *recipe_out)
{
    return make(guess, true, recipe_out, NULL);
}

static bool add_rank(const struct wf_guess *guess, const struct wf_model *model,
                     const struct wf_recipe *recipe, uint32_t rank, uint64_t weight,
                     struct wf_seen *sum)
{
    struct wf_layout *layout = NULL;
    struct wf_seen one = {0};
    bool good = rank < wf_recipe_world(recipe) &&
                wf_layout_derive(model, recipe, rank, &layout, NULL) == WF_OK &&
                wf_seen_add_layout(&one, model, layout);
    if (good) {
        uint64_t cost = layout->tensor_count;
        wf_guess_pay(guess, cost);
        wf_seen_join(&one);
        good = wf_seen_weigh(sum, &one, weight);
    }
    wf_seen_fini(&one);
    wf_layout_free(layout);
    return good;
}

bool wf_guess_seen(const struct wf_guess *guess, const struct wf_guess_ranks *ranks,
                   struct wf_seen *out)
{
    struct wf_recipe recipe;
    const struct wf_model *model = wf_guess_trial(guess, &recipe);
    bool good = model != NULL;
    *out = (struct wf_seen){0};
    ranks = ranks == &wf_guess_one_rank && is_alone(guess) ? &two_ranks : ranks;
    for (uint32_t i = 0; i < ranks->count && good; i++) {
        good = add_rank(guess, model, &recipe, ranks->at[i].rank, ranks->at[i].weight, out);
    }
    if (!good) {
        wf_seen_fini(out);
    }
    return good;
}

bool wf_guess_shows(const struct wf_guess *guess, uint64_t *seen_out, uint64_t *content_out)
{
    struct wf_recipe recipe;
    const struct wf_model *model = wf_guess_trial(guess, &recipe);
    struct wf_layout *layout = NULL;
    struct wf_seen seen = {0};
    bool good = model != NULL && wf_layout_derive(model, &recipe, 0, &layout, NULL) == WF_OK &&
                wf_seen_add_layout(&seen, model, layout);
    if (good) {
        uint64_t cost = layout->tensor_count;
        wf_guess_pay(guess, cost);
        wf_seen_join(&seen);
        *seen_out = wf_seen_hash(&seen);
        *content_out = layout->hash.low;
    }
    wf_seen_fini(&seen);
    wf_layout_free(layout);
    return good;
}
