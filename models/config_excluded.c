/* config_excluded.c - the modules that a quantised checkpoint leaves as they are.
 *
 * A config lists them (modules_to_not_convert, ignored_layers, ignore). An entry excludes the
 * module that it names, modules inside it and modules whose name ends with it, by whole words
 * between dots: where transformers (quantizers/quantizers_utils.py, should_convert_module) and vLLM
 * (layers/quantization/utils/quant_utils.py, is_layer_skipped) agree. "*" stands for any text.
 *
 * "re:" begins a regular expression of Python's, matched from the name's beginning [vLLM:
 * layers/quantization/compressed_tensors/utils.py, should_ignore_layer]. Those are known that are a
 * text with "*" written another way: letters, digits, "_" and "-", "\\." for a dot, "." for any one
 * letter ("?" in our texts), ".*", (one|or|another), and "$" at the end.
 *
 * Where engines read a list of block fp8 otherwise, wf_model_leaves says it as each does; a config
 * that they read differently from the family's rows is refused (models/engines/unlisted.c).
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/config_private.h"

static int compare_hashes(const void *a, const void *b)
{
    const struct wf_excluded_entry *x = a, *y = b;
    return x->hash < y->hash ? -1 : x->hash > y->hash;
}

static enum wf_status add_entry(struct wf_excluded *list, const char *text, size_t len,
                                struct wf_error *error)
{
    bool wild = memchr(text, '*', len) != NULL || memchr(text, '?', len) != NULL;
    if (len >= WF_NAME_MAX || list->count == WF_EXCLUDED_MAX ||
        (wild && list->wild_count == WF_EXCLUDED_WILD_MAX)) {
        return wf_error_set(error, WF_INVALID,
                            "the list of modules that are not quantised: expected at most %d names "
                            "of at most %d bytes, and %d with *",
                            WF_EXCLUDED_MAX, WF_NAME_MAX - 1, WF_EXCLUDED_WILD_MAX);
    }
    if (list->count == list->room) {
        uint32_t room = list->room ? 2 * list->room : 64;
        struct wf_excluded_entry *more = realloc(list->entries, room * sizeof *more);
        if (!more) {
            return wf_error_set(error, WF_NO_MEMORY, "no memory for a list of modules");
        }
        list->entries = more;
        list->room = room;
    }
    struct wf_excluded_entry *entry = &list->entries[list->count++];
    memcpy(entry->text, text, len);
    entry->text[len] = '\0';
    /* Those with a star stand first, before every hash. */
    entry->hash = wild ? 0 : wf_hash_bytes(text, len) | 1;
    list->wild_count += wild;
    list->cut = list->cut || (len >= 3 && memcmp(text, "...", 3) == 0);
    for (size_t i = 0; i < len && !list->numbered; i++) {
        list->numbered = isdigit((unsigned char)text[i]) != 0;
    }
    return WF_OK;
}

/* A regular expression as texts with stars, one for each choice of its alternatives. */
struct expansion {
    struct wf_excluded *list;
    const char *whole; /* for the sentence */
    size_t whole_len;
    char text[WF_NAME_MAX];
    uint32_t depth; /* of choices */
    struct wf_error *error;
};

static enum wf_status refuse_regex(const struct expansion *e)
{
    return wf_error_set(e->error, WF_UNSUPPORTED,
                        "the list of modules that are not quantised: \"%.*s\": expected a regular "
                        "expression of names, ., \\., .*, (one|or|another) and a $ at its end",
                        (int)(e->whole_len < 80 ? e->whole_len : 80), e->whole);
}

/* Reads on from `at` with `used` bytes written; each choice of an alternative reads to the end. */
static enum wf_status expand(struct expansion *e, const char *at, const char *end, size_t used)
{
    while (at < end && used + 2 < sizeof e->text) {
        size_t left = (size_t)(end - at);
        if (*at == '(' && e->depth < WF_EXCLUDED_CHOICES_MAX) {
            const char *close = memchr(at, ')', left);
            enum wf_status status = close ? WF_OK : refuse_regex(e);
            e->depth++;
            for (const char *item = at + 1, *stop; status == WF_OK && item <= close;
                 item = stop + 1) {
                size_t len = strcspn(item, "|)");
                stop = item + len;
                bool plain = strspn(item, WF_EXCLUDED_LETTERS) >= len;
                if (!plain || used + len + 2 >= sizeof e->text) {
                    return refuse_regex(e);
                }
                memcpy(e->text + used, item, len);
                status = expand(e, close + 1, end, used + len);
            }
            e->depth--;
            return status;
        }
        if (left == 1 && *at == '$') { /* up to the name's end, or a dot */
            return add_entry(e->list, e->text, used, e->error);
        }
        bool dot = left >= 2 && at[0] == '\\' && at[1] == '.',
             any = left >= 2 && at[0] == '.' && at[1] == '*', one = !any && *at == '.';
        if (!dot && !any && !one && !strchr(WF_EXCLUDED_LETTERS, *at)) {
            return refuse_regex(e);
        }
        e->text[used++] = dot ? '.' : any ? '*' : one ? '?' : *at;
        at += dot || any ? 2 : 1;
    }
    if (at < end) {
        return refuse_regex(e);
    }
    e->text[used++] = '*'; /* it need not match to the name's end */
    return add_entry(e->list, e->text, used, e->error);
}

enum wf_status wf_excluded_add(struct wf_excluded *list, const char *text, size_t len,
                               struct wf_error *error)
{
    static const char mark[] = "re:";
    if (len < strlen(mark) || memcmp(text, mark, strlen(mark)) != 0) {
        return add_entry(list, text, len, error);
    }
    struct expansion e = {.list = list, .whole = text, .whole_len = len, .error = error};
    return expand(&e, text + strlen(mark), text + len, 0);
}

void wf_excluded_sort(struct wf_excluded *list)
{
    if (list->count > 0) {
        qsort(list->entries, list->count, sizeof *list->entries, compare_hashes);
    }
}

static bool has_exactly(const struct wf_excluded *list, const char *text, size_t len)
{
    uint64_t hash = wf_hash_bytes(text, len) | 1;
    uint32_t low = list->wild_count, high = list->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (list->entries[middle].hash < hash) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < list->count && list->entries[low].hash == hash; low++) {
        if (strlen(list->entries[low].text) == len &&
            memcmp(list->entries[low].text, text, len) == 0) {
            return true;
        }
    }
    return false;
}

/* A pattern with stars against the beginning of a name, up to its end or a dot. */
static bool matches_wild(const char *pattern, const char *name)
{
    const char *star = NULL, *back = NULL;
    for (;;) {
        if (*pattern == '*') {
            star = pattern++;
            back = name;
        } else if (*pattern == '\0' && (*name == '\0' || *name == '.')) {
            return true;
        } else if (*name != '\0' && (*pattern == *name || *pattern == '?')) {
            pattern++;
            name++;
        } else if (star && *back != '\0') {
            pattern = star + 1;
            name = ++back;
        } else {
            return false;
        }
    }
}

bool wf_excluded_has(const struct wf_excluded *list, const char *module)
{
    if (list->count == 0) {
        return false;
    }
    size_t len = strlen(module);
    bool found = has_exactly(list, module, len);
    for (size_t i = 0; i < len && !found; i++) {
        if (module[i] == '.') {
            found = has_exactly(list, module, i) || has_exactly(list, module + i + 1, len - i - 1);
        }
    }
    for (uint32_t i = 0; i < list->wild_count && !found; i++) {
        found = matches_wild(list->entries[i].text, module);
    }
    return found;
}

/* An entry that is the module's whole name. vLLM maps both its own modules and the list from the
 * checkpoint's names to its own, "model.visual." to "visual.": either way of writing is one. */
static bool names_module(const struct wf_excluded *list, const char *module, size_t len)
{
    static const char tower[] = "model.visual.";
    size_t model = strlen("model.");
    return has_exactly(list, module, len) ||
           (len > model && strncmp(module, tower, strlen(tower)) == 0 &&
            has_exactly(list, module + model, len - model));
}

/* An entry that is some of the module's words in a row; SGLang takes each with and without
 * "model." before it. */
static bool names_words(const struct wf_excluded *list, const char *module, size_t len)
{
    char text[sizeof "model." + WF_NAME_MAX] = "model.";
    size_t model = strlen("model.");
    for (size_t from = 0; from < len; from += strcspn(module + from, ".") + 1) {
        size_t left = len - from;
        memcpy(text + model, module + from, left);
        for (size_t to = left; to > 0; to--) {
            bool ends = to == left || module[from + to] == '.';
            if (ends &&
                (has_exactly(list, text + model, to) || has_exactly(list, text, model + to))) {
                return true;
            }
        }
    }
    return false;
}

bool wf_model_leaves(const struct wf_model *model, const struct wf_param *param,
                     enum wf_excluded_by by)
{
    const struct wf_excluded *list = &wf_memory(model)->excluded;
    bool (*names)(const struct wf_excluded *, const char *, size_t) =
        by == WF_EXCLUDED_BY_WORDS ? names_words : names_module;
    const char *dot = strrchr(param->name, '.');
    size_t len = dot ? (size_t)(dot - param->name) : strlen(param->name);
    const char *experts = param->expert == WF_NONE ? NULL : strstr(param->name, ".experts.");
    if (list->count == 0) {
        return false;
    }
    if (by == WF_EXCLUDED_BY_PATTERN) {
        char module[WF_NAME_MAX];
        snprintf(module, sizeof module, "%.*s", (int)len, param->name);
        return wf_excluded_has(list, module);
    }
    if (experts) { /* one module of all, which an entry of one expert names too */
        size_t all = (size_t)(experts - param->name) + strlen(".experts");
        return names(list, param->name, all) || has_exactly(list, param->name, len);
    }
    return names(list, param->name, len);
}

bool wf_model_list_is_cut(const struct wf_model *model)
{
    return wf_memory(model)->excluded.cut;
}

bool wf_excluded_copy(const struct wf_excluded *from, struct wf_excluded *to)
{
    struct wf_excluded_entry *entries = malloc((from->count + 1) * sizeof *entries);
    if (entries && from->count > 0) {
        memcpy(entries, from->entries, from->count * sizeof *entries);
    }
    *to = (struct wf_excluded){entries,          from->count,    from->count + 1,
                               from->wild_count, from->numbered, from->cut};
    return entries != NULL;
}
