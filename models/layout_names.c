/* layout_names.c - names of an engine's tensors, from its patterns and the canonical names. */
#include <stdio.h>
#include <string.h>

#include "models/layout_rows.h"

/* A name being written. */
struct writer {
    char *out;
    size_t used;
    bool full;
};

static void put(struct writer *w, const char *text, size_t len)
{
    w->full = w->full || w->used + len >= WF_NAME_MAX;
    if (!w->full) {
        memcpy(w->out + w->used, text, len);
        w->used += len;
        w->out[w->used] = '\0';
    }
}

static void put_number(struct writer *w, uint64_t number)
{
    char text[24];
    size_t at = sizeof text;
    do {
        text[--at] = (char)('0' + number % 10);
    } while (number /= 10);
    put(w, text + at, sizeof text - at);
}

/* Replaces the first FROM of what was written since `start`. */
static void rename_one(struct writer *w, size_t start, const char *from, size_t from_len,
                       const char *to, size_t to_len)
{
    char *found = memmem(w->out + start, w->used - start, from, from_len);
    if (!found || w->full) {
        return;
    }
    if (w->used - from_len + to_len >= WF_NAME_MAX) {
        w->full = true;
        return;
    }
    char *behind = found + from_len;
    memmove(found + to_len, behind, w->used - (size_t)(behind - w->out) + 1);
    memcpy(found, to, to_len);
    w->used = w->used - from_len + to_len;
}

static void rename_all(struct writer *w, size_t start, const struct wf_family_engine *exceptions)
{
    const char *at = exceptions ? exceptions->renames : NULL;
    while (at && *at) {
        size_t len = strcspn(at, " ");
        const char *arrow = memmem(at, len, "=>", 2);
        if (arrow) {
            rename_one(w, start, at, (size_t)(arrow - at), arrow + 2,
                       len - (size_t)(arrow - at) - 2);
        }
        at += len + strspn(at + len, " ");
    }
}

/* Length of the name up to the word that `words` words follow: "a.b.c.weight", 2 -> "a.b.". */
static size_t without_words(const char *name, unsigned words)
{
    size_t len = strlen(name);
    for (; words > 0 && len > 0; words--) {
        len -= len > 0 && name[len - 1] == '.';
        while (len > 0 && name[len - 1] != '.') {
            len--;
        }
    }
    return len;
}

/* Length of a canonical name up to the expert's number, by the family's pattern: the number is the
 * word at which the pattern has {expert}. */
static size_t up_to_expert(const struct wf_row_at *at, const struct wf_param *param)
{
    const char *pattern = at->at.model->family->rows[param->row].name;
    const char *mark = strstr(pattern, "{expert}");
    if (!mark) {
        return without_words(param->name, 2);
    }
    const char *behind = mark + strlen("{expert}");
    size_t len = strlen(param->name) - strlen(behind);
    while (len > 0 && param->name[len - 1] >= '0' && param->name[len - 1] <= '9') {
        len--;
    }
    return len;
}

static void put_canonical(struct writer *w, const struct wf_row_at *at, const char *word,
                          size_t word_len, const struct wf_param *param)
{
    const char *name = param->name;
    size_t last = without_words(name, 1);
    if (word_len == 4 && memcmp(word, "name", 4) == 0) {
        put(w, name, strlen(name));
    } else if (word_len == 3 && memcmp(word, "dir", 3) == 0) {
        put(w, name, without_words(name, 2));
    } else if (word_len == 4 && memcmp(word, "leaf", 4) == 0) {
        put(w, name + last, strlen(name) - last);
    } else if (word_len == 7 && memcmp(word, "experts", 7) == 0) {
        put(w, name, up_to_expert(at, param));
    } else {
        w->full = true; /* no placeholder of that name: wf_engine_rows_check says so before */
    }
}

/* The number that the engine gives a member of a stack. */
static uint64_t shown_number(const struct wf_row_at *at, const struct wf_family_stack *stack)
{
    if (!at->recipe->engine->layers_count_from_chunk) {
        return at->at.index;
    }
    return at->at.index - (strcmp(stack->name, "layer") == 0 ? at->chunk->first_layer
                           : strcmp(stack->name, "mtp") == 0 ? at->chunk->first_mtp
                                                             : 0);
}

/* A pattern that holds {top} and {i} only. */
static void put_plain(struct writer *w, const char *pattern, const char *top, uint64_t number)
{
    for (const char *c = pattern; *c && !w->full;) {
        size_t plain = strcspn(c, "{");
        put(w, c, plain);
        c += plain;
        if (strncmp(c, "{top}", 5) == 0) {
            put(w, top, strlen(top));
            c += 5;
        } else if (strncmp(c, "{i}", 3) == 0) {
            put_number(w, number);
            c += 3;
        } else if (*c) {
            w->full = true;
        }
    }
}

static enum wf_status put_prefix(struct writer *w, const struct wf_row_at *at,
                                 const struct wf_bound *bound, const char *top,
                                 struct wf_error *error)
{
    const struct wf_engine *engine = at->recipe->engine;
    const struct wf_family_stack *stack = &at->at.model->family->stacks[bound->stack];
    for (size_t i = 0; i < engine->stack_count; i++) {
        uint64_t holds = 0;
        if (strcmp(engine->stacks[i].stack, stack->name) != 0) {
            continue;
        }
        enum wf_status status = wf_row_eval(at, engine->stacks[i].when, 1, &holds, error);
        if (status != WF_OK) {
            return status;
        }
        if (holds) {
            put_plain(w, engine->stacks[i].prefix, top, shown_number(at, stack));
            return WF_OK;
        }
    }
    return WF_OK;
}

/* One placeholder, "{word}". */
static enum wf_status put_word(struct writer *w, const struct wf_row_at *at,
                               const struct wf_binding *binding, const struct wf_bound *bound,
                               const char *word, size_t len, const struct wf_param *param,
                               struct wf_error *error)
{
    const char *top =
        binding->exceptions && binding->exceptions->prefix ? binding->exceptions->prefix : "";
    if (bound->stack != WF_NONE && len == 6 && memcmp(word, "layers", 6) == 0) {
        return put_prefix(w, at, bound, top, error);
    }
    if (bound->stack != WF_NONE && len == 1 && *word == 'i') {
        put_number(w, shown_number(at, &at->at.model->family->stacks[bound->stack]));
    } else if (len == 3 && memcmp(word, "top", 3) == 0) {
        put(w, top, strlen(top));
    } else {
        put_canonical(w, at, word, len, param);
    }
    return WF_OK;
}

enum wf_status wf_row_name(const struct wf_row_at *at, const struct wf_binding *binding,
                           const struct wf_bound *bound, const char *pattern, uint32_t slot,
                           uint32_t expert, char name_out[WF_NAME_MAX], struct wf_error *error)
{
    uint32_t params[WF_PARTS_MAX];
    struct writer w = {.out = name_out};
    name_out[0] = '\0';
    bool whole = wf_bound_params(at, bound, false, expert, params);
    WF_ASSERT(whole);
    const struct wf_param *param = &at->at.model->params[params[0]];
    put(&w, at->chunk->prefix, strlen(at->chunk->prefix));
    size_t start = w.used;
    bool canonical = false;
    for (const char *c = pattern; *c;) {
        size_t plain = strcspn(c, "{"), len = strcspn(c + plain, "}");
        put(&w, c, plain);
        c += plain;
        if (*c == '\0') {
            break;
        }
        if (strncmp(c, "{slot}", 6) == 0) {
            put_number(&w, slot);
        } else if (strncmp(c, "{expert}", 8) == 0) {
            put_number(&w, expert);
        } else {
            enum wf_status status = put_word(&w, at, binding, bound, c + 1, len - 1, param, error);
            if (status != WF_OK) {
                return status;
            }
            canonical = canonical || strchr("nde", c[1]) || strncmp(c, "{leaf}", 6) == 0;
        }
        c += len + (c[len] == '}');
    }
    if (canonical) {
        rename_all(&w, start, binding->exceptions);
    }
    if (w.full) {
        return wf_error_set(error, WF_INVALID,
                            "the name that \"%.100s\" makes for %.120s is longer than %d, or asks "
                            "for something unknown in braces",
                            pattern, param->name, WF_NAME_MAX - 1);
    }
    return WF_OK;
}
