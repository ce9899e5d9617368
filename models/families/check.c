/* check.c - everything a family's table can get wrong, whatever the config: built-in tables and
 * users' files go through the same door. */
#include <string.h>

#include "models/config_private.h"
#include "models/engines/engine.h"
#include "models/expr.h"
#include "models/families/family.h"

enum { WORD_MAX = 64, REQUIRES_MAX = 512 };

struct checker {
    const struct wf_family *family;
    struct wf_error *error;
    uint32_t limit; /* sizes from here on are not known yet */
    bool placed;    /* inside a stack: layer and index are known */
    bool null;      /* in an `otherwise` */
    bool excluded;  /* in a row's `when` or `dtype` */
};

static bool is_text(const char *text, const char *name, size_t len)
{
    return len > 0 && *text == *name && strncmp(text, name, len) == 0 && text[len] == '\0';
}

static uint32_t find_stack(const struct wf_family *family, const char *name, size_t len)
{
    for (uint32_t i = 0; i < family->stack_count; i++) {
        if (is_text(family->stacks[i].name, name, len)) {
            return i;
        }
    }
    return WF_NONE;
}

static bool lookup(void *user, const char *name, size_t len, uint64_t *value_out)
{
    const struct checker *c = user;
    *value_out = 1;
    uint32_t size = wf_family_find_size(c->family, name, len);
    if (size != WF_NONE) {
        return size < c->limit;
    }
    return (c->placed && (is_text("layer", name, len) || is_text("index", name, len))) ||
           (c->null && is_text("null", name, len)) ||
           (c->excluded && is_text("excluded", name, len)) ||
           (find_stack(c->family, name, len) != WF_NONE && !is_text("layer", name, len));
}

static enum wf_status check_expression(struct checker *c, const char *text, size_t len)
{
    return wf_expr_check(text, len, lookup, c, c->error);
}

/* A word of expressions and roles: letters, digits and _, no digit first. */
static enum wf_status check_word(struct checker *c, const char *what, const char *word)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    size_t len = word ? strlen(word) : 0, known = 0;
    while (known < len && (strchr(letters, word[known]) ||
                           (known > 0 && word[known] >= '0' && word[known] <= '9'))) {
        known++;
    }
    if (len == 0 || len > WORD_MAX || known < len) {
        return wf_error_set(c->error, WF_INVALID,
                            "%s \"%.80s\": expected letters, digits and _, at most %d, a letter "
                            "first",
                            what, word ? word : "", WORD_MAX);
    }
    return WF_OK;
}

static enum wf_status check_head(struct checker *c)
{
    const struct wf_family *f = c->family;
    enum wf_status status = check_word(c, "the family's name", f->name);
    if (status != WF_OK) {
        return status;
    }
    const char *list = f->model_types, *item = NULL;
    size_t len = 0;
    unsigned types = 0;
    while (list && wf_expr_next(&list, '|', &item, &len)) {
        types += len > 0;
        if (len == 0 || len >= WORD_MAX || types > WF_FAMILY_TYPES_MAX || memchr(item, '|', len)) {
            return wf_error_set(c->error, WF_INVALID,
                                "model_types \"%.80s\": expected 1 to %d texts of at most %d bytes",
                                f->model_types, WF_FAMILY_TYPES_MAX, WORD_MAX - 1);
        }
    }
    if (types == 0) {
        return wf_error_set(c->error, WF_INVALID, "model_types: at least one is needed");
    }
    if (f->size_count > WF_FAMILY_SIZES_MAX || f->stack_count > WF_FAMILY_STACKS_MAX ||
        f->row_count > WF_FAMILY_ROWS_MAX || f->row_count == 0) {
        return wf_error_set(c->error, WF_INVALID,
                            "expected at most %d sizes, %d stacks and 1 to %d rows; found %zu, %zu "
                            "and %zu",
                            WF_FAMILY_SIZES_MAX, WF_FAMILY_STACKS_MAX, WF_FAMILY_ROWS_MAX,
                            f->size_count, f->stack_count, f->row_count);
    }
    return WF_OK;
}

/* Rows of engines speak of sizes and stacks by their names, and of words of their own. */
static enum wf_status refuse_engine_word(struct checker *c, const char *what, const char *name)
{
    const struct wf_engine *engine = wf_engine_of_word(name, strlen(name));
    return engine ? wf_error_set(c->error, WF_INVALID,
                                 "%s %s: the name is taken: expressions of engines (%s) mean "
                                 "something else by it; choose another",
                                 what, name, engine->name)
                  : WF_OK;
}

static enum wf_status check_sizes(struct checker *c)
{
    static const char *const needed[] = {"H", "L", "V", "tied"};
    for (uint32_t i = 0; i < c->family->size_count; i++) {
        const struct wf_family_size *size = &c->family->sizes[i];
        enum wf_status status = check_word(c, "size", size->name);
        if (status == WF_OK) {
            status = refuse_engine_word(c, "size", size->name);
        }
        if (status != WF_OK) {
            return status;
        }
        size_t len = strlen(size->name);
        if (wf_family_find_size(c->family, size->name, len) != i ||
            find_stack(c->family, size->name, len) != WF_NONE || strcmp(size->name, "layer") == 0 ||
            strcmp(size->name, "index") == 0 || strcmp(size->name, "null") == 0 ||
            strcmp(size->name, "excluded") == 0) {
            return wf_error_set(c->error, WF_INVALID, "size %s: the name is taken", size->name);
        }
        if (!size->key && !size->otherwise) {
            return wf_error_set(c->error, WF_INVALID, "size %s: a key or otherwise is needed",
                                size->name);
        }
        c->limit = i;
        c->null = c->placed = true;
        if (size->otherwise &&
            check_expression(c, size->otherwise, strlen(size->otherwise)) != WF_OK) {
            wf_error_prefix(c->error, "size %s", size->name);
            return WF_INVALID;
        }
    }
    c->limit = (uint32_t)c->family->size_count;
    c->null = c->placed = false;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (wf_family_find_size(c->family, needed[i], strlen(needed[i])) == WF_NONE) {
            return wf_error_set(c->error, WF_INVALID, "size %s is needed in every family",
                                needed[i]);
        }
    }
    return WF_OK;
}

static enum wf_status check_stack(struct checker *c, uint32_t number)
{
    const struct wf_family_stack *stack = &c->family->stacks[number];
    enum wf_status status = check_word(c, "stack", stack->name);
    if (status == WF_OK) {
        status = refuse_engine_word(c, "stack", stack->name);
    }
    if (status != WF_OK) {
        return status;
    }
    const char *mark = stack->prefix ? strstr(stack->prefix, "{i}") : NULL;
    if (find_stack(c->family, stack->name, strlen(stack->name)) != number) {
        return wf_error_set(c->error, WF_INVALID, "stack %s: the name is taken", stack->name);
    }
    if (!mark || strchr(mark + 1, '{') || strchr(stack->prefix, '{') != mark ||
        strlen(stack->prefix) > WF_NAME_MAX / 2) {
        return wf_error_set(c->error, WF_INVALID,
                            "stack %s: expected a prefix with {i} once, of at most %d bytes; found "
                            "\"%.80s\"",
                            stack->name, WF_NAME_MAX / 2, stack->prefix ? stack->prefix : "");
    }
    if (strcmp(stack->name, "layer") == 0 && (!stack->count || strcmp(stack->count, "L") != 0)) {
        return wf_error_set(c->error, WF_INVALID, "stack layer: its count is L");
    }
    const char *const expressions[] = {stack->count ? stack->count : "", stack->first};
    for (size_t i = 0; i < 2 && status == WF_OK; i++) {
        status =
            expressions[i] ? check_expression(c, expressions[i], strlen(expressions[i])) : WF_OK;
    }
    if (status != WF_OK) {
        wf_error_prefix(c->error, "stack %s", stack->name);
    }
    return status;
}

static enum wf_status check_stacks(struct checker *c)
{
    if (find_stack(c->family, "layer", 5) == WF_NONE) {
        return wf_error_set(c->error, WF_INVALID, "stack layer is needed in every family");
    }
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < c->family->stack_count && status == WF_OK; i++) {
        status = check_stack(c, i);
    }
    return status;
}

static bool has_prefix(const struct wf_family_row *row)
{
    return strncmp(row->name, "{layers}", 8) == 0;
}

static bool is_stacked(const struct wf_family_row *row)
{
    return row->stacks || has_prefix(row);
}

bool wf_family_row_in_stack(const struct wf_family *family, const struct wf_family_row *row,
                            uint32_t stack)
{
    const char *list = row->stacks ? row->stacks : "layer", *item = NULL;
    size_t len = 0;
    if (stack == WF_NONE) {
        return !is_stacked(row);
    }
    while (stack < family->stack_count && is_stacked(row) &&
           wf_expr_next(&list, ' ', &item, &len)) {
        if (is_text(family->stacks[stack].name, item, len)) {
            return true;
        }
    }
    return false;
}

/* {layers} only in front, {expert} at most once and only in a stack, nothing else in braces. */
static enum wf_status check_name(struct checker *c, const struct wf_family_row *row)
{
    bool stacked = is_stacked(row);
    const char *rest = row->name + (has_prefix(row) ? 8 : 0), *mark = strstr(rest, "{expert}");
    const char *last = mark ? mark + 8 : rest;
    bool braces = strchr(last, '{') || strchr(last, '}') ||
                  (mark && memchr(rest, '{', (size_t)(mark - rest)));
    if (*rest == '\0' || strlen(row->name) > WF_NAME_MAX / 2 || braces || (mark && !stacked)) {
        return wf_error_set(c->error, WF_INVALID,
                            "row %s: expected a name of at most %d bytes with {layers} in front or "
                            "not at all and {expert} at most once behind it; found \"%.120s\"",
                            row->role, WF_NAME_MAX / 2, row->name);
    }
    if (mark && wf_family_find_size(c->family, "E", 1) == WF_NONE) {
        return wf_error_set(c->error, WF_INVALID, "row %s has {expert}: size E is needed",
                            row->role);
    }
    const char *list = row->stacks, *item = NULL;
    size_t len = 0;
    while (list && wf_expr_next(&list, ' ', &item, &len)) {
        if (find_stack(c->family, item, len) == WF_NONE) {
            return wf_error_set(c->error, WF_INVALID, "row %s: no stack is called \"%.*s\"",
                                row->role, (int)len, item);
        }
    }
    return WF_OK;
}

static enum wf_status check_shape(struct checker *c, const struct wf_family_row *row)
{
    const char *list = row->shape ? row->shape : "", *item = NULL;
    size_t len = 0;
    unsigned axes = 0;
    while (wf_expr_next(&list, ',', &item, &len)) {
        enum wf_status status =
            ++axes > WF_SHAPE_MAX
                ? wf_error_set(c->error, WF_INVALID, "more than %d dimensions", WF_SHAPE_MAX)
                : check_expression(c, item, len);
        if (status != WF_OK) {
            wf_error_prefix(c->error, "row %s: shape", row->role);
            return status;
        }
    }
    return WF_OK;
}

static enum wf_status check_dtype(struct checker *c, const struct wf_family_row *row)
{
    const char *text = row->dtype, *name = NULL;
    size_t len = 0;
    if (!text || !wf_expr_next(&text, ':', &name, &len)) {
        return WF_OK;
    }
    if (wf_dtype_from_name(name, len) == WF_DTYPE_NONE) {
        return wf_error_set(c->error, WF_INVALID,
                            "row %s: dtype \"%.40s\" is none; \"f32\" or \"f8_e4m3: EXPRESSION\" "
                            "are",
                            row->role, row->dtype);
    }
    return *text ? check_expression(c, text, strlen(text)) : WF_OK;
}

static enum wf_status check_row(struct checker *c, uint32_t number)
{
    const struct wf_family_row *row = &c->family->rows[number];
    enum wf_status status = check_word(c, "role", row->role);
    if (status == WF_OK && !row->name) {
        status = wf_error_set(c->error, WF_INVALID, "row %s: a name is needed", row->role);
    }
    if (status == WF_OK) {
        status = check_name(c, row);
    }
    c->placed = status == WF_OK && is_stacked(row);
    if (status == WF_OK) {
        status = check_shape(c, row);
    }
    const char *const expressions[] = {row->when, row->unit};
    for (size_t i = 0; i < 2 && status == WF_OK; i++) {
        c->excluded = i == 0;
        status =
            expressions[i] ? check_expression(c, expressions[i], strlen(expressions[i])) : WF_OK;
        if (status != WF_OK) {
            wf_error_prefix(c->error, "row %s: %s", row->role, i ? "unit" : "when");
        }
    }
    c->excluded = true;
    status = status == WF_OK ? check_dtype(c, row) : status;
    c->excluded = false;
    return status;
}

/* A role once in every stack and once outside. */
static enum wf_status check_twice(struct checker *c, uint32_t number)
{
    const struct wf_family_row *row = &c->family->rows[number];
    size_t len = strlen(row->role);
    for (uint32_t stack = 0; stack <= c->family->stack_count; stack++) {
        bool outside = stack == c->family->stack_count;
        uint32_t in = outside ? WF_NONE : stack;
        bool here = outside ? !is_stacked(row) : wf_family_row_in_stack(c->family, row, stack);
        if (here && wf_family_find_row(c->family, in, row->role, len) != number) {
            return wf_error_set(c->error, WF_INVALID, "role %s stands twice in %s%s", row->role,
                                outside ? "the rows outside stacks" : "stack ",
                                outside ? "" : c->family->stacks[stack].name);
        }
    }
    return WF_OK;
}

static enum wf_status check_rows(struct checker *c)
{
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < c->family->row_count && status == WF_OK; i++) {
        status = check_row(c, i);
    }
    for (uint32_t i = 0; i < c->family->row_count && status == WF_OK; i++) {
        status = check_twice(c, i);
    }
    return status;
}

static enum wf_status check_requires(struct checker *c)
{
    const char *list = c->family->requires, *item = NULL;
    size_t len = 0;
    c->placed = false;
    while (list && wf_expr_next(&list, '|', &item, &len)) {
        const char *rest = item, *rule = NULL;
        size_t rule_len = 0;
        if (!memchr(item, ':', len) || !wf_expr_next(&rest, ':', &rule, &rule_len) ||
            rest >= item + len) {
            return wf_error_set(c->error, WF_INVALID,
                                "requires \"%.*s\": expected EXPRESSION: sentence",
                                len > 80 ? 80 : (int)len, item);
        }
        enum wf_status status = check_expression(c, rule, rule_len);
        if (status != WF_OK) {
            wf_error_prefix(c->error, "requires");
            return status;
        }
    }
    return WF_OK;
}

static const struct wf_engine *find_engine(const char *name)
{
    for (const struct wf_engine *const *engine = wf_engines; *engine; engine++) {
        if (strcmp((*engine)->exceptions ? (*engine)->exceptions : (*engine)->name, name) == 0) {
            return *engine;
        }
    }
    return NULL;
}

/* "FROM=>TO FROM=>TO". */
static enum wf_status check_renames(struct checker *c, const struct wf_family_engine *exceptions)
{
    const char *list = exceptions->renames, *item = NULL;
    size_t len = 0;
    while (list && wf_expr_next(&list, ' ', &item, &len)) {
        const char *arrow = strstr(item, "=>");
        if (len > 0 && (!arrow || arrow == item || arrow + 2 > item + len)) {
            return wf_error_set(c->error, WF_INVALID,
                                "engine %s: rename \"%.*s\": expected FROM=>TO", exceptions->engine,
                                len > 80 ? 80 : (int)len, item);
        }
    }
    return WF_OK;
}

/* An expression that rows of this engine might have. */
static enum wf_status check_row_expression(struct checker *c, const struct wf_engine *engine,
                                           const char *role, const char *when)
{
    const struct wf_engine_row row = {.name = "{name}", .parts = role, .when = when};
    return wf_engine_rows_check(engine, c->family, &row, 1, c->error);
}

static enum wf_status check_aliases(struct checker *c, const struct wf_engine *engine,
                                    const struct wf_family_engine *exceptions)
{
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < exceptions->alias_count && status == WF_OK; i++) {
        const struct wf_engine_alias *alias = &exceptions->aliases[i];
        status = check_word(c, "alias of role", alias->role);
        if (status == WF_OK) {
            status = check_row_expression(c, engine, alias->role, alias->when);
        }
    }
    return status;
}

/* "EXPRESSION: sentence|EXPRESSION: sentence", with what rows know. */
static enum wf_status check_engine_requires(struct checker *c, const struct wf_engine *engine,
                                            const struct wf_family_engine *exceptions)
{
    const char *list = exceptions->requires, *item = NULL;
    size_t len = 0;
    enum wf_status status = WF_OK;
    while (status == WF_OK && list && wf_expr_next(&list, '|', &item, &len)) {
        const char *rest = item, *rule = NULL;
        size_t rule_len = 0;
        char text[REQUIRES_MAX];
        if (!memchr(item, ':', len) || !wf_expr_next(&rest, ':', &rule, &rule_len) ||
            rest >= item + len || rule_len >= sizeof text) {
            return wf_error_set(c->error, WF_INVALID,
                                "requires \"%.*s\": expected EXPRESSION: sentence",
                                len > 80 ? 80 : (int)len, item);
        }
        memcpy(text, rule, rule_len);
        text[rule_len] = '\0';
        status = check_row_expression(c, engine, c->family->rows[0].role, text);
    }
    return status;
}

static enum wf_status check_quantised(struct checker *c, const struct wf_family_engine *exceptions)
{
    const char *list = exceptions->quantised, *role = NULL;
    size_t len = 0;
    while (wf_expr_next(&list, ' ', &role, &len)) {
        bool found = false;
        for (size_t i = 0; i < c->family->row_count && !found; i++) {
            found = is_text(c->family->rows[i].role, role, len);
        }
        if (!found) {
            return wf_error_set(c->error, WF_INVALID, "quantised \"%.*s\": no row has this role",
                                len > 80 ? 80 : (int)len, role);
        }
    }
    return WF_OK;
}

static enum wf_status check_engines(struct checker *c)
{
    for (size_t i = 0; i < c->family->engine_count; i++) {
        const struct wf_family_engine *exceptions = &c->family->engines[i];
        const struct wf_engine *engine =
            exceptions->engine ? find_engine(exceptions->engine) : NULL;
        if (!engine) {
            return wf_error_set(c->error, WF_INVALID, "no engine is called \"%.40s\"",
                                exceptions->engine ? exceptions->engine : "");
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(c->family->engines[j].engine, exceptions->engine) == 0) {
                return wf_error_set(c->error, WF_INVALID, "engine %s stands twice",
                                    exceptions->engine);
            }
        }
        enum wf_status status = check_renames(c, exceptions);
        if (status == WF_OK) {
            status = wf_engine_rows_check(engine, c->family, exceptions->rows,
                                          exceptions->row_count, c->error);
        }
        if (status == WF_OK) {
            status = check_aliases(c, engine, exceptions);
        }
        if (status == WF_OK) {
            status = check_engine_requires(c, engine, exceptions);
        }
        if (status == WF_OK) {
            status = check_quantised(c, exceptions);
        }
        if (status != WF_OK) {
            wf_error_prefix(c->error, "engine %s", exceptions->engine);
            return status;
        }
    }
    return WF_OK;
}

enum wf_status wf_family_check(const struct wf_family *family, struct wf_error *error)
{
    static enum wf_status (*const checks[])(struct checker *) = {
        check_head, check_sizes, check_stacks, check_rows, check_requires, check_engines};
    struct checker c = {.family = family, .error = error};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        enum wf_status status = checks[i](&c);
        if (status != WF_OK) {
            wf_error_prefix(error, "family %.40s", family->name ? family->name : "");
            return status;
        }
    }
    return WF_OK;
}

uint32_t wf_family_find_row(const struct wf_family *family, uint32_t stack, const char *role,
                            size_t len)
{
    for (uint32_t i = 0; i < family->row_count; i++) {
        const struct wf_family_row *row = &family->rows[i];
        if (is_text(row->role, role, len) && wf_family_row_in_stack(family, row, stack)) {
            return i;
        }
    }
    return WF_NONE;
}
