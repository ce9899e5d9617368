/* recipe.c - SPEC text into a recipe and back, driven by each engine's table of keys. */
#include "models/recipe.h"

#include <stdio.h>
#include <string.h>

#include "models/engines/engine.h"
#include "runtime/nearest.h"

enum {
    KEYS_MAX = 64,
    AXES_MAX = 8,     /* of an order */
    VALUE_TEXT = 128, /* of one key, in canonical text */
};

/* A piece of the SPEC; not NUL-terminated. */
struct slice {
    const char *text;
    size_t len;
};
#define SLICE(s) (int)(s).len, (s).text

static bool slice_is(struct slice slice, const char *text)
{
    return strlen(text) == slice.len && memcmp(text, slice.text, slice.len) == 0;
}

static struct slice cut_at(struct slice *rest, char mark, bool *found_out)
{
    const char *at = memchr(rest->text, mark, rest->len);
    struct slice head = {rest->text, at ? (size_t)(at - rest->text) : rest->len};
    *found_out = at != NULL;
    size_t used = head.len + (at ? 1 : 0);
    *rest = (struct slice){rest->text + used, rest->len - used};
    return head;
}

/* --- values ---------------------------------------------------------------------------------- */

static enum wf_status parse_number(const char *key, struct slice value, uint32_t max, uint32_t *out,
                                   struct wf_error *error)
{
    uint64_t number = 0;
    bool good = value.len > 0 && value.text[0] != '0';
    for (size_t i = 0; i < value.len && good; i++) {
        good = value.text[i] >= '0' && value.text[i] <= '9';
        number = good ? number * 10 + (uint64_t)(value.text[i] - '0') : 0;
        good = good && number <= max;
    }
    if (!good) {
        return wf_error_set(error, WF_INVALID,
                            "%s: expected a whole number from 1 to %u in plain digits, found "
                            "\"%.*s\"",
                            key, max, SLICE(value));
    }
    *out = (uint32_t)number;
    return WF_OK;
}

/* A known series, or one followed by a dot and more ("0.20" and "0.20.0" are the series "0.20"). */
static enum wf_status parse_version(const struct wf_engine *engine, struct slice value,
                                    char out[WF_VERSION_TEXT_MAX], struct wf_error *error)
{
    char known[128] = "";
    for (const char *const *series = engine->versions; *series; series++) {
        size_t len = strlen(*series);
        bool plain = strspn(value.text, "0123456789.") >= value.len;
        if (slice_is(value, *series) || (plain && value.len > len + 1 && value.text[len] == '.' &&
                                         memcmp(value.text, *series, len) == 0)) {
            snprintf(out, WF_VERSION_TEXT_MAX, "%s", *series);
            return WF_OK;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s", *series);
    }
    return wf_error_set(error, WF_UNSUPPORTED, "version \"%.*s\" of %s is not known; known:%s",
                        SLICE(value), engine->name, known);
}

static enum wf_status parse_dtype(struct slice value, enum wf_dtype *out, struct wf_error *error)
{
    enum wf_dtype dtype = wf_dtype_from_name(value.text, value.len);
    if (dtype == WF_DTYPE_NONE) {
        return wf_error_set(error, WF_INVALID, "dtype: expected f32, f16 or bf16, found \"%.*s\"",
                            SLICE(value));
    }
    if (!wf_dtype_castable(dtype, WF_DTYPE_F32)) {
        return wf_error_set(error, WF_UNSUPPORTED, "dtype %.*s is not supported yet", SLICE(value));
    }
    *out = dtype;
    return WF_OK;
}

static enum wf_status parse_account(struct slice value, struct wf_recipe *recipe,
                                    struct wf_error *error)
{
    if (slice_is(value, "embedding+loss")) {
        recipe->account_embedding = recipe->account_loss = true;
    } else if (slice_is(value, "embedding")) {
        recipe->account_embedding = true;
    } else if (slice_is(value, "loss")) {
        recipe->account_loss = true;
    } else {
        return wf_error_set(error, WF_INVALID,
                            "account: expected embedding, loss or embedding+loss, found \"%.*s\"",
                            SLICE(value));
    }
    return WF_OK;
}

static enum wf_status copy_text(const char *key, struct slice value, char *out, size_t room,
                                struct wf_error *error)
{
    if (value.len == 0 || value.len >= room) {
        return wf_error_set(error, WF_INVALID, "%s: expected 1 to %zu characters, found %zu", key,
                            room - 1, value.len);
    }
    memcpy(out, value.text, value.len);
    out[value.len] = '\0';
    return WF_OK;
}

/* The words of a table, parted by '|'. */
static bool next_word(struct slice *rest, struct slice *word_out)
{
    if (!rest->text) {
        return false;
    }
    bool more = false;
    *word_out = cut_at(rest, '|', &more);
    rest->text = more ? rest->text : NULL;
    return true;
}

static struct slice words_of(const char *words)
{
    return (struct slice){words, words ? strlen(words) : 0};
}

static uint32_t *number_at(const struct wf_engine_key *key, struct wf_recipe *recipe)
{
    return (uint32_t *)((char *)recipe + key->offset);
}

static enum wf_status parse_word(const struct wf_engine_key *key, struct slice value,
                                 struct wf_recipe *recipe, struct wf_error *error)
{
    struct slice rest = words_of(key->words), word;
    for (uint32_t i = 0; next_word(&rest, &word); i++) {
        if (word.len == value.len && memcmp(word.text, value.text, word.len) == 0) {
            *number_at(key, recipe) = i;
            return WF_OK;
        }
    }
    return wf_error_set(error, WF_INVALID, "%s: expected one of %s, found \"%.*s\"", key->name,
                        key->words, SLICE(value));
}

static enum wf_status parse_flag(const struct wf_engine_key *key, struct slice value,
                                 struct wf_recipe *recipe, struct wf_error *error)
{
    if (!slice_is(value, "0") && !slice_is(value, "1")) {
        return wf_error_set(error, WF_INVALID, "%s: expected 0 or 1, found \"%.*s\"", key->name,
                            SLICE(value));
    }
    *number_at(key, recipe) = slice_is(value, "1");
    return WF_OK;
}

/* Names of axes parted by '-', each at most once, all of them among the key's words. */
static enum wf_status parse_order(const struct wf_engine_key *key, struct slice value,
                                  struct wf_recipe *recipe, struct wf_error *error)
{
    bool seen[AXES_MAX] = {false}, more = true;
    struct slice rest = value;
    while (more) {
        struct slice axis = cut_at(&rest, '-', &more), words = words_of(key->words), word;
        size_t i = 0;
        bool known = false;
        while (!known && next_word(&words, &word)) {
            known = word.len == axis.len && memcmp(word.text, axis.text, word.len) == 0;
            i += !known;
        }
        WF_ASSERT(!known || i < AXES_MAX);
        if (!known || seen[i]) {
            return wf_error_set(error, WF_INVALID,
                                "order: expected names of %s, each once, parted by -, the fastest "
                                "first, found \"%.*s\"",
                                key->words, SLICE(value));
        }
        seen[i] = true;
    }
    return copy_text(key->name, value, recipe->order, sizeof recipe->order, error);
}

static enum wf_status parse_refused(const struct wf_engine_key *key, struct slice value,
                                    struct wf_error *error)
{
    if (key->only && slice_is(value, key->only)) {
        return WF_OK;
    }
    return wf_error_set(error, WF_UNSUPPORTED, "%s=%.*s: %s", key->name, SLICE(value), key->words);
}

static enum wf_status parse_value(const struct wf_engine_key *key, struct slice value,
                                  struct wf_recipe *recipe, struct wf_error *error)
{
    switch (key->kind) {
    case WF_KEY_SIZE:
        return parse_number(key->name, value, key->max, number_at(key, recipe), error);
    case WF_KEY_FLAG:
        return parse_flag(key, value, recipe, error);
    case WF_KEY_WORD:
        return parse_word(key, value, recipe, error);
    case WF_KEY_VERSION:
        return parse_version(recipe->engine, value, recipe->version, error);
    case WF_KEY_DTYPE:
        return parse_dtype(value, &recipe->dtype, error);
    case WF_KEY_ACCOUNT:
        return parse_account(value, recipe, error);
    case WF_KEY_ORDER:
        return parse_order(key, value, recipe, error);
    case WF_KEY_LAYOUT:
        return copy_text(key->name, value, recipe->layout, sizeof recipe->layout, error);
    case WF_KEY_REFUSED:
        return parse_refused(key, value, error);
    }
    WF_ASSERT(!"a key of a known kind");
    return WF_INVALID;
}

/* --- the whole ------------------------------------------------------------------------------- */

static enum wf_status find_engine(struct slice name, const struct wf_engine **out,
                                  struct wf_error *error)
{
    const char *words[16];
    char known[128] = "";
    size_t count = 0;
    for (const struct wf_engine *const *engine = wf_engines; *engine; engine++) {
        if (slice_is(name, (*engine)->name)) {
            *out = *engine;
            return WF_OK;
        }
        WF_ASSERT(count < sizeof words / sizeof words[0]);
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", count ? ", " : "",
                 (*engine)->name);
        words[count++] = (*engine)->name;
    }
    const char *nearest = wf_nearest(name.text, name.len, words, count);
    return wf_error_set(error, WF_INVALID,
                        "unknown engine \"%.*s\"%s%s%s; a SPEC is ENGINE:KEY=VALUE,... with one of "
                        "%s",
                        SLICE(name), nearest ? ", did you mean " : "", nearest ? nearest : "",
                        nearest ? "?" : "", known);
}

static enum wf_status find_key(const struct wf_engine *engine, struct slice name, size_t *index_out,
                               struct wf_error *error)
{
    const char *words[KEYS_MAX];
    WF_ASSERT(engine->key_count <= KEYS_MAX);
    for (size_t i = 0; i < engine->key_count; i++) {
        words[i] = engine->keys[i].name;
        if (slice_is(name, words[i])) {
            *index_out = i;
            return WF_OK;
        }
    }
    const char *nearest = wf_nearest(name.text, name.len, words, engine->key_count);
    return wf_error_set(error, WF_INVALID, "%s has no key \"%.*s\"%s%s%s", engine->name,
                        SLICE(name), nearest ? ", did you mean " : "", nearest ? nearest : "",
                        nearest ? "?" : "");
}

static enum wf_status parse_keys(struct slice rest, struct wf_recipe *recipe,
                                 struct wf_error *error)
{
    bool given[KEYS_MAX] = {false};
    bool more = rest.len > 0;
    while (more) {
        struct slice value = cut_at(&rest, ',', &more);
        bool equals = false;
        struct slice name = cut_at(&value, '=', &equals);
        size_t i = 0;
        if (!equals) {
            return wf_error_set(error, WF_INVALID,
                                "expected KEY=VALUE, found \"%.*s\" (a layout is written without "
                                "commas)",
                                SLICE(name));
        }
        enum wf_status status = find_key(recipe->engine, name, &i, error);
        if (status == WF_OK && given[i]) {
            status = wf_error_set(error, WF_INVALID, "key %s is given twice",
                                  recipe->engine->keys[i].name);
        }
        if (status == WF_OK) {
            status = parse_value(&recipe->engine->keys[i], value, recipe, error);
        }
        if (status != WF_OK) {
            return status;
        }
        given[i] = true;
    }
    return WF_OK;
}

static void set_defaults(const struct wf_engine *engine, struct wf_recipe *recipe)
{
    *recipe = (struct wf_recipe){.engine = engine,
                                 .tp = 1,
                                 .pp = 1,
                                 .dp = 1,
                                 .cp = 1,
                                 .vpp = 1,
                                 .ep = 1,
                                 .replicate = 1,
                                 .engines = 1};
    for (const char *const *series = engine->versions; series && *series; series++) {
        snprintf(recipe->version, sizeof recipe->version, "%s", *series);
    }
    for (size_t i = 0; i < engine->key_count; i++) {
        const struct wf_engine_key *key = &engine->keys[i];
        if (key->kind == WF_KEY_SIZE || key->kind == WF_KEY_FLAG || key->kind == WF_KEY_WORD) {
            *number_at(key, recipe) = key->normal;
        } else if (key->kind == WF_KEY_ORDER) {
            snprintf(recipe->order, sizeof recipe->order, "%s", key->only);
        }
    }
}

static uint64_t normal_multiple(const struct wf_recipe *recipe)
{
    const struct wf_engine *engine = recipe->engine;
    return (uint64_t)engine->vocab_multiple * (engine->vocab_multiple_per_tp ? recipe->tp : 1);
}

/* An axis of more than one rank must have a place in the order: axes are named as their keys. */
static enum wf_status check_order(const struct wf_recipe *recipe, const struct wf_engine_key *key,
                                  struct wf_error *error)
{
    struct slice words = words_of(key->words), word;
    while (next_word(&words, &word)) {
        struct slice rest = {recipe->order, strlen(recipe->order)};
        bool there = false, more = true;
        while (more) {
            struct slice axis = cut_at(&rest, '-', &more);
            there = there || (axis.len == word.len && memcmp(axis.text, word.text, word.len) == 0);
        }
        size_t i = 0;
        enum wf_status status = find_key(recipe->engine, word, &i, error);
        WF_ASSERT(status == WF_OK);
        uint32_t size = *number_at(&recipe->engine->keys[i], (struct wf_recipe *)recipe);
        if (!there && size > 1) {
            return wf_error_set(error, WF_INVALID, "order %s leaves out %.*s, whose size is %u",
                                recipe->order, SLICE(word), size);
        }
    }
    return WF_OK;
}

/* What is wrong about the recipe alone. */
static enum wf_status check_recipe(const struct wf_recipe *recipe, struct wf_error *error)
{
    const uint32_t sizes[] = {recipe->tp, recipe->pp,        recipe->dp,
                              recipe->cp, recipe->replicate, recipe->engines};
    uint64_t world = 1;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        world *= sizes[i]; /* each is at most WF_WORLD_MAX, and so is world before */
        if (world > WF_WORLD_MAX) {
            return wf_error_set(error, WF_INVALID, "the sizes multiply to more than %d ranks",
                                WF_WORLD_MAX);
        }
    }
    const struct wf_engine *engine = recipe->engine;
    for (size_t i = 0; i < engine->key_count; i++) {
        enum wf_status status = engine->keys[i].kind == WF_KEY_ORDER
                                    ? check_order(recipe, &engine->keys[i], error)
                                    : WF_OK;
        if (status != WF_OK) {
            return status;
        }
    }
    return engine->check_recipe ? engine->check_recipe(recipe, error) : WF_OK;
}

enum wf_status wf_recipe_parse(const char *spec, const struct wf_model *model,
                               struct wf_recipe *recipe_out, struct wf_error *error)
{
    struct slice rest = {spec, strnlen(spec, WF_SPEC_MAX)};
    if (rest.len == WF_SPEC_MAX) {
        return wf_error_set(error, WF_INVALID, "a SPEC has at most %d characters", WF_SPEC_MAX - 1);
    }
    bool colon = false;
    const struct wf_engine *engine = NULL;
    struct slice name = cut_at(&rest, ':', &colon);
    enum wf_status status = find_engine(name, &engine, error);
    if (status != WF_OK) {
        return status;
    }
    struct wf_recipe recipe;
    set_defaults(engine, &recipe);
    status = parse_keys(rest, &recipe, error);
    if (status == WF_OK) {
        recipe.etp = recipe.etp == recipe.tp ? 0 : recipe.etp; /* that is the rule */
        recipe.vocab_multiple =
            recipe.vocab_multiple ? recipe.vocab_multiple : (uint32_t)normal_multiple(&recipe);
        status = check_recipe(&recipe, error);
    }
    if (status == WF_OK && model) {
        status = wf_engine_check(model, &recipe, error);
    }
    if (status != WF_OK) {
        wf_error_prefix(error, "SPEC \"%.80s\"", spec);
        return status;
    }
    *recipe_out = recipe;
    return WF_OK;
}

/* --- back to text ---------------------------------------------------------------------------- */

static void put(char *text, char mark, const char *key, const char *value)
{
    size_t used = strlen(text);
    int n = snprintf(text + used, WF_SPEC_MAX - used, "%c%s=%s", mark, key, value);
    WF_ASSERT(n > 0 && used + (size_t)n < WF_SPEC_MAX);
}

/* The value's text if it is not what an absent key means, else NULL. */
static const char *value_text(const struct wf_recipe *recipe, const struct wf_recipe *normal,
                              const struct wf_engine_key *key, char room[VALUE_TEXT])
{
    struct slice words = words_of(key->words), word = {"", 0};
    uint32_t number = 0;
    switch (key->kind) {
    case WF_KEY_VERSION:
        return strcmp(recipe->version, normal->version) ? recipe->version : NULL;
    case WF_KEY_DTYPE:
        return recipe->dtype != WF_DTYPE_NONE ? wf_dtype_name(recipe->dtype) : NULL;
    case WF_KEY_ACCOUNT:
        if (recipe->account_embedding && recipe->account_loss) {
            return "embedding+loss";
        }
        return recipe->account_embedding ? "embedding" : recipe->account_loss ? "loss" : NULL;
    case WF_KEY_ORDER:
        return strcmp(recipe->order, normal->order) ? recipe->order : NULL;
    case WF_KEY_LAYOUT:
        return recipe->layout[0] ? recipe->layout : NULL;
    case WF_KEY_REFUSED:
        return NULL;
    case WF_KEY_WORD:
    case WF_KEY_FLAG:
    case WF_KEY_SIZE:
        break;
    }
    number = *number_at(key, (struct wf_recipe *)recipe);
    if (number == *number_at(key, (struct wf_recipe *)normal)) {
        return NULL;
    }
    snprintf(room, VALUE_TEXT, "%u", number);
    for (uint32_t i = 0; key->kind == WF_KEY_WORD && i <= number; i++) {
        WF_ASSERT(next_word(&words, &word));
        snprintf(room, VALUE_TEXT, "%.*s", SLICE(word));
    }
    return room;
}

void wf_recipe_format(const struct wf_recipe *recipe, char text_out[WF_SPEC_MAX])
{
    const struct wf_engine *engine = recipe->engine;
    struct wf_recipe normal;
    set_defaults(engine, &normal);
    normal.vocab_multiple = (uint32_t)normal_multiple(recipe);
    snprintf(text_out, WF_SPEC_MAX, "%s", engine->name);
    char mark = ':';
    for (size_t i = 0; i < engine->key_count; i++) {
        char room[VALUE_TEXT];
        const char *value = value_text(recipe, &normal, &engine->keys[i], room);
        if (value) {
            put(text_out, mark, engine->keys[i].name, value);
            mark = ',';
        }
    }
    if (mark == ':') {
        strcat(text_out, ":");
    }
}

uint32_t wf_recipe_ranks_per_engine(const struct wf_recipe *recipe)
{
    return recipe->tp * recipe->pp * recipe->dp * recipe->cp * recipe->replicate;
}

uint32_t wf_recipe_world(const struct wf_recipe *recipe)
{
    return wf_recipe_ranks_per_engine(recipe) * recipe->engines;
}

struct wf_coordinates wf_recipe_coordinates(const struct wf_recipe *recipe, uint32_t rank)
{
    WF_ASSERT(rank < wf_recipe_world(recipe));
    return recipe->engine->coordinates(recipe, rank);
}

enum wf_quant wf_recipe_rule(const struct wf_recipe *recipe)
{
    WF_ASSERT(recipe->quant < 1 + (uint32_t)WF_QUANT_COUNT);
    return recipe->quant > WF_RECIPE_QUANT_NONE ? (enum wf_quant)(recipe->quant - 1)
                                                : WF_QUANT_NONE;
}
