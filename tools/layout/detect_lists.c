/* detect_lists.c - layers that alternate without a rule: which are of which kind, as the config's
 * list of them says it (layer_types, mlp_only_layers), read off the numbers in the dump's names. */
#include <stdlib.h>
#include <string.h>

#include "tools/layout/detect_private.h"

enum { TRIAL_LAYERS = 2 };

/* Whether a config may say a size layer by layer. */
static bool is_list(const struct wf_family_size *size)
{
    return size->match != NULL && size->key != NULL && strstr(size->key, "layer") != NULL &&
           strcmp(size->match, "true") != 0 && strcmp(size->match, "*") != 0;
}

/* What a layout has where all layers are, or none is, of a kind. */
static bool see_kind(const struct wf_guess *guess, struct wf_guess_list *list, bool all,
                     struct wf_seen *out)
{
    struct wf_guess trial = *guess;
    trial.list = list;
    trial.value[wf_guess_size(guess->family, "L")] = TRIAL_LAYERS;
    memset(list->of, all, TRIAL_LAYERS * sizeof list->of[0]);
    return wf_guess_seen(&trial, &wf_guess_one_rank, out);
}

/* Layers with a name that only this kind has. False: no name tells. */
static bool read_layers(const struct wf_dump_rank *dumps, uint32_t count,
                        const struct wf_seen *kind, const struct wf_seen *others, bool mark,
                        struct wf_guess_list *list)
{
    bool found = false;
    for (uint32_t r = 0; r < count; r++) {
        for (uint32_t i = 0; i < dumps[r].count; i++) {
            uint64_t chunk = 0, number = 0;
            uint64_t pattern = wf_seen_pattern(dumps[r].tensors[i].name, dumps[r].tensors[i].dtype,
                                               &chunk, &number);
            bool tells =
                wf_seen_find(kind, pattern) != NULL && wf_seen_find(others, pattern) == NULL;
            if (tells && number > 0 && number <= WF_LAYERS_MAX) {
                list->of[number - 1] = mark;
                found = true;
            }
        }
    }
    return found;
}

/* Layers that are all of one kind need no list. */
static bool is_mixed(const struct wf_guess *guess, const struct wf_guess_list *list)
{
    uint64_t layers = guess->value[wf_guess_size(guess->family, "L")], marked = 0;
    for (uint64_t i = 0; i < layers && i < WF_LAYERS_MAX; i++) {
        marked += list->of[i];
    }
    return marked > 0 && marked < layers;
}

/* A rule that the names came out with for the moment gives way to the list. */
static void drop_rules(struct wf_guess *guess)
{
    uint32_t layers = wf_guess_size(guess->family, "L");
    for (size_t s = 0; s < guess->family->size_count; s++) {
        bool rule = s != layers && wf_guess_is_count(guess, s) &&
                    wf_guess_can_say(&guess->family->sizes[s]) &&
                    guess->family->sizes[s].otherwise != NULL;
        guess->state[s] = rule ? WF_GUESS_ABSENT : guess->state[s];
    }
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* One number for a pattern in a layer. */
static uint64_t place_of(uint64_t pattern, uint64_t number)
{
    return pattern ^ number * 0x9e3779b97f4a7c15u;
}

/* All places of a layout, second names as well, sorted; the caller frees them. NULL without memory.
 */
static uint64_t *list_places(const struct wf_layout *layout)
{
    size_t count = (size_t)layout->tensor_count + layout->alias_count;
    uint64_t *places = calloc(count + 1, sizeof *places);
    for (uint32_t t = 0; places != NULL && t < count; t++) {
        bool alias = t >= layout->tensor_count;
        const struct wf_alias *second = alias ? &layout->aliases[t - layout->tensor_count] : NULL;
        const struct wf_tensor *tensor = &layout->tensors[alias ? second->tensor : t];
        uint64_t chunk = 0, number = 0;
        uint64_t pattern =
            wf_seen_pattern(alias ? second->name : tensor->name, tensor->dtype, &chunk, &number);
        places[t] = place_of(pattern, number);
    }
    if (places != NULL) {
        qsort(places, count, sizeof *places, by_value);
    }
    return places;
}

bool wf_lists_stand(const struct wf_guess *guess, const struct wf_dump_rank *dumps, uint32_t count)
{
    struct wf_recipe recipe;
    struct wf_layout *layout = NULL;
    const struct wf_model *model = wf_guess_trial(guess, &recipe);
    if (model == NULL || wf_layout_derive(model, &recipe, 0, &layout, NULL) != WF_OK) {
        return true; /* it is not for this that it fails */
    }
    wf_guess_pay(guess, layout->tensor_count);
    uint64_t *places = list_places(layout);
    size_t all = (size_t)layout->tensor_count + layout->alias_count;
    bool stand = true;
    for (uint32_t r = 0; places != NULL && r < count && stand; r++) {
        for (uint32_t i = 0; i < dumps[r].count && stand; i++) {
            const struct wf_dump_tensor *tensor = &dumps[r].tensors[i];
            uint64_t chunk = 0, number = 0;
            uint64_t pattern = wf_seen_pattern(tensor->name, tensor->dtype, &chunk, &number);
            uint64_t place = place_of(pattern, number);
            stand = number == 0 || bsearch(&place, places, all, sizeof place, by_value) != NULL;
        }
    }
    free(places);
    wf_layout_free(layout);
    return stand;
}

bool wf_lists_count(struct wf_guess *guess, const struct wf_seen *dump,
                    const struct wf_dump_rank *dumps, uint32_t count, struct wf_guess_list *list)
{
    const struct wf_guess before = *guess;
    for (uint32_t s = 0; s < before.family->size_count; s++) {
        struct wf_seen kind = {0}, others = {0};
        if (!is_list(&before.family->sizes[s])) {
            continue;
        }
        *guess = before;
        drop_rules(guess);
        list->size = s;
        bool good = see_kind(guess, list, true, &kind) && see_kind(guess, list, false, &others);
        memset(list->of, 0, sizeof list->of);
        /* Those of the other kind come last: where no name tells of the kind, all others are. */
        bool tells = good && read_layers(dumps, count, &kind, &others, true, list);
        if (good && !tells) {
            memset(list->of, 1, sizeof list->of);
            tells = read_layers(dumps, count, &others, &kind, false, list);
        }
        wf_seen_fini(&kind);
        wf_seen_fini(&others);
        guess->list = list;
        if (tells && wf_names_count(guess, dump) && is_mixed(guess, list) &&
            wf_lists_stand(guess, dumps, count)) {
            return true;
        }
    }
    *guess = before;
    return false;
}
