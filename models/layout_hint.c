/* layout_hint.c - when a rank's tensors are not those of its recipe: which recipe they are of.
 *
 * A wrong size, option or stage in a recipe shows in some tensor, and the sentence about that one
 * tensor seldom says why. So recipes that differ in one key are tried, and the first whose layout
 * the tensors match as a whole is named. Only runs where a registration fails.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/layout.h"

enum { SIZES_TRIED_MAX = 64, WORDS_TRIED_MAX = 32 };

struct search {
    const struct wf_model *model;
    const struct wf_recipe *recipe;
    uint32_t rank;
    const struct wf_live_tensor *live;
    size_t live_count;
    const char *const *ignore;
    size_t ignore_count;
};

/* A padding that followed from tp follows from the other tp. */
static void adjust_padding(const struct wf_recipe *from, struct wf_recipe *to)
{
    const struct wf_engine *engine = from->engine;
    if (engine->vocab_multiple_per_tp &&
        from->vocab_multiple == engine->vocab_multiple * from->tp) {
        to->vocab_multiple = engine->vocab_multiple * to->tp;
    }
}

static bool matches(const struct search *s, const struct wf_recipe *tried)
{
    struct wf_error ignored = {0};
    struct wf_layout *layout = NULL;
    char spec[WF_SPEC_MAX];
    struct wf_recipe parsed;
    /* Its text is parsed again, so that everything that a SPEC must pass is asked. */
    wf_recipe_format(tried, spec);
    if (wf_recipe_parse(spec, s->model, &parsed, &ignored) != WF_OK) {
        return false;
    }
    parsed.placement = s->recipe->placement;
    uint32_t rank = s->rank % wf_recipe_world(&parsed);
    if (wf_layout_derive(s->model, &parsed, rank, &layout, &ignored) != WF_OK) {
        return false;
    }
    uint32_t *order = calloc((size_t)layout->tensor_count + 1, sizeof *order);
    bool same = order && wf_layout_match(layout, s->live, s->live_count, s->ignore, s->ignore_count,
                                         order, &ignored) == WF_OK;
    free(order);
    wf_layout_free(layout);
    return same;
}

static uint32_t *value_at(const struct wf_engine_key *key, struct wf_recipe *recipe)
{
    return (uint32_t *)((char *)recipe + key->offset);
}

static void describe(const struct wf_engine_key *key, uint32_t value, char out[64])
{
    const char *word = key->words;
    if (key->kind != WF_KEY_WORD) {
        snprintf(out, 64, "%s=%" PRIu32, key->name, value);
        return;
    }
    for (; value > 0 && word; value--) {
        word = strchr(word, '|') ? strchr(word, '|') + 1 : NULL;
    }
    snprintf(out, 64, "%s=%.*s", key->name, word ? (int)strcspn(word, "|") : 0, word ? word : "");
}

static uint32_t count_words(const struct wf_engine_key *key)
{
    uint32_t count = 1;
    for (const char *at = key->words; (at = strchr(at, '|')); at++) {
        count++;
    }
    return count < WORDS_TRIED_MAX ? count : WORDS_TRIED_MAX;
}

/* Other values of a key, in the order in which they are likely; UINT32_MAX behind the last. */
static uint32_t candidate(const struct wf_engine_key *key, const struct wf_recipe *recipe,
                          uint32_t number)
{
    switch (key->kind) {
    case WF_KEY_FLAG:
        return number < 2 ? number : UINT32_MAX;
    case WF_KEY_WORD:
        return number < count_words(key) ? number : UINT32_MAX;
    case WF_KEY_SIZE: /* all of an engine's ranks (experts dealt out), then one, two, four, ... */
        if (number == 0) {
            return recipe->tp * recipe->dp <= key->max ? recipe->tp * recipe->dp : 1;
        }
        return number <= 7 && 1u << (number - 1) <= SIZES_TRIED_MAX &&
                       1u << (number - 1) <= key->max
                   ? 1u << (number - 1)
                   : UINT32_MAX;
    default:
        return UINT32_MAX;
    }
}

/* Keys that no layout of one rank depends on by themselves. */
static bool is_idle(const struct wf_engine_key *key)
{
    return strcmp(key->name, "engines") == 0 || strcmp(key->name, "replicate") == 0;
}

static bool find(const struct search *s, char found[64], char said[64])
{
    const struct wf_engine *engine = s->recipe->engine;
    for (size_t k = 0; k < engine->key_count; k++) {
        const struct wf_engine_key *key = &engine->keys[k];
        uint32_t value = 0;
        for (uint32_t n = 0; !is_idle(key) && (value = candidate(key, s->recipe, n)) != UINT32_MAX;
             n++) {
            struct wf_recipe tried = *s->recipe;
            if (*value_at(key, &tried) == value) {
                continue;
            }
            *value_at(key, &tried) = value;
            adjust_padding(s->recipe, &tried);
            if (matches(s, &tried)) {
                describe(key, value, found);
                describe(key, *value_at(key, (struct wf_recipe *)s->recipe), said);
                return true;
            }
        }
    }
    return false;
}

enum wf_status wf_layout_match_recipe(const struct wf_model *model, const struct wf_recipe *recipe,
                                      uint32_t rank, const struct wf_layout *layout,
                                      const struct wf_live_tensor *live, size_t live_count,
                                      const char *const *ignore, size_t ignore_count,
                                      uint32_t *order_out, struct wf_error *error)
{
    struct wf_error plain = {0};
    enum wf_status status =
        wf_layout_match(layout, live, live_count, ignore, ignore_count, order_out, &plain);
    if (status == WF_OK) {
        return WF_OK;
    }
    const struct search search = {model, recipe, rank, live, live_count, ignore, ignore_count};
    char found[64], said[64];
    if (live_count == 0 || recipe->engine->layout || !find(&search, found, said)) {
        *error = plain;
        return status;
    }
    const char *cause = strstr(plain.text, "; likely cause: ");
    size_t len = cause ? (size_t)(cause - plain.text) : strlen(plain.text);
    return wf_error_set(error, status,
                        "%.*s; likely cause: %s was started with %s; the recipe says %s (all %zu "
                        "tensors match then)",
                        (int)len, plain.text, recipe->engine->name, found, said, live_count);
}
