/* layout_rows.c - binds an engine's rows to a model's family. */
#include "models/layout_rows.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/expr.h"
#include "models/layout_roles.h"

/* --- expressions ----------------------------------------------------------------------------- */

static bool is(const char *name, size_t len, const char *word)
{
    return len > 0 && *name == *word && strlen(word) == len && memcmp(name, word, len) == 0;
}

static uint64_t version_number(const char *version)
{
    unsigned parts[3] = {0, 0, 0};
    sscanf(version, "%u.%u.%u", &parts[0], &parts[1], &parts[2]);
    return (uint64_t)parts[0] * 1000000 + (uint64_t)parts[1] * 1000 + parts[2];
}

static bool lookup_group(const struct wf_row_at *at, const char *name, size_t len, uint64_t *out)
{
    for (unsigned group = 0; group < WF_GROUP_COUNT; group++) {
        size_t used = strlen(wf_groups[group]);
        if (len <= used || memcmp(name, wf_groups[group], used) != 0) {
            continue;
        }
        uint32_t size = at->rank->group[group].size;
        if (is(name + used, len - used, "_size")) {
            *out = size ? size : 1;
            return true;
        }
        if (is(name + used, len - used, "_rank")) {
            *out = at->rank->group[group].rank;
            return true;
        }
    }
    return false;
}

/* Index of a word in "a|b|c", or UINT32_MAX. */
static uint32_t word_index(const char *words, const char *word, size_t len)
{
    for (uint32_t i = 0;; i++) {
        size_t end = strcspn(words, "|");
        if (end == len && memcmp(words, word, len) == 0) {
            return i;
        }
        if (words[end] == '\0') {
            return UINT32_MAX;
        }
        words += end + 1;
    }
}

static bool lookup_key(const struct wf_recipe *recipe, const char *name, size_t len, uint64_t *out)
{
    const char *dot = memchr(name, '.', len);
    size_t key_len = dot ? (size_t)(dot - name) : len;
    const struct wf_engine *engine = recipe->engine;
    for (size_t i = 0; i < engine->key_count; i++) {
        const struct wf_engine_key *key = &engine->keys[i];
        if (!is(name, key_len, key->name)) {
            continue;
        }
        uint32_t value = 0;
        if (key->kind == WF_KEY_SIZE || key->kind == WF_KEY_FLAG || key->kind == WF_KEY_WORD) {
            memcpy(&value, (const char *)recipe + key->offset, sizeof value);
        }
        if (key->kind == WF_KEY_WORD && dot) {
            uint32_t word = word_index(key->words, dot + 1, len - key_len - 1);
            *out = word == value;
            return word != UINT32_MAX;
        }
        *out = value;
        return !dot && (key->kind == WF_KEY_SIZE || key->kind == WF_KEY_FLAG);
    }
    return false;
}

/* "has.ROLE". Without a model (rows alone) a role that no built-in family has is unknown. */
static bool lookup_has(const struct wf_row_at *at, const char *role, size_t len, uint64_t *out)
{
    const struct wf_model *model = at->at.model;
    *out = 0;
    if (model) {
        uint32_t row = wf_family_find_row(model->family, at->at.stack, role, len);
        *out =
            row != WF_NONE && wf_model_param(model, at->at.stack, at->at.index, row, 0) != WF_NONE;
        return true;
    }
    for (const struct wf_family *const *family = wf_families; *family; family++) {
        for (size_t i = 0; i < (*family)->row_count; i++) {
            if (is(role, len, (*family)->rows[i].role)) {
                return true;
            }
        }
    }
    return false;
}

bool wf_row_lookup_own(const struct wf_row_at *at, const char *name, size_t len, uint64_t *out)
{
    const struct {
        const char *name;
        uint64_t value;
        bool known;
    } own[] = {
        {"embeds", at->chunk->embedding, true},
        {"heads", at->chunk->head, true},
        {"norms", at->chunk->final_norm, true},
        {"predicts", at->chunk->mtp_count > 0, true},
        {"dims", at->dims, true},
        {"chunk", at->chunk_index, true},
        {"chunks", at->chunk_count, true},
        {"pp_rank", at->rank->pp, true},
        {"dp_rank", at->rank->dp, true},
        {"vocab_multiple", at->recipe->vocab_multiple, true},
        {"slots", at->slots, at->sized},
        {"rows", at->rows, at->sized},
        {"columns", at->columns, at->sized},
        {"x", at->extra, at->in_extra},
    };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (is(name, len, own[i].name)) {
            *out = own[i].value;
            return own[i].known;
        }
    }
    if (is(name, len, "version")) {
        *out = version_number(at->recipe->version);
        return true;
    }
    if (len > 4 && memcmp(name, "has.", 4) == 0) {
        return lookup_has(at, name + 4, len - 4, out);
    }
    return lookup_group(at, name, len, out) || lookup_key(at->recipe, name, len, out);
}

bool wf_family_knows(const struct wf_family *family, const char *name, size_t len)
{
    for (size_t i = 0; i < family->size_count; i++) {
        if (is(name, len, family->sizes[i].name)) {
            return true;
        }
    }
    for (size_t i = 0; i < family->stack_count; i++) {
        if (is(name, len, family->stacks[i].name)) {
            return true;
        }
    }
    return false;
}

/* Rows speak of all families: a size or stack that only others have is 0 in this one. */
static bool some_family_knows(const char *name, size_t len)
{
    for (const struct wf_family *const *family = wf_families; *family; family++) {
        if (wf_family_knows(*family, name, len)) {
            return true;
        }
    }
    return false;
}

/* Sizes that vary, `layer` and `index` are those that have no value outside the stacks. */
static bool varies(const struct wf_model *model, const char *name, size_t len)
{
    struct wf_model_at nowhere = {model, WF_NONE, WF_NONE};
    uint64_t unused = 0;
    return !wf_model_lookup(&nowhere, name, len, &unused);
}

bool wf_row_lookup(void *user, const char *name, size_t len, uint64_t *out)
{
    const struct wf_row_at *at = user;
    struct wf_model_at model_at = at->at;
    if (wf_model_lookup(&model_at, name, len, out)) {
        if (at->of_member_out && varies(at->at.model, name, len)) {
            *at->of_member_out = true;
        }
        return true;
    }
    if (wf_row_lookup_own(at, name, len, out)) {
        if (at->of_member_out && len > 4 && memcmp(name, "has.", 4) == 0) {
            *at->of_member_out = true;
        }
        return true;
    }
    *out =
        0; /* behind those who said no; of this family's own, one that varies, where no layer is */
    return !wf_family_knows(at->at.model->family, name, len) && some_family_knows(name, len);
}

enum wf_status wf_row_eval(const struct wf_row_at *at, const char *text, uint64_t otherwise,
                           uint64_t *value_out, struct wf_error *error)
{
    *value_out = otherwise;
    if (!text) {
        return WF_OK;
    }
    struct wf_row_at copy = *at;
    return wf_expr_eval(text, strlen(text), wf_row_lookup, &copy, value_out, error);
}

enum wf_status wf_row_holds(const struct wf_row_at *at, const struct wf_engine_row *row,
                            struct wf_verdict *last, bool *holds_out, struct wf_error *error)
{
    const bool same_place = last->chunk == at->chunk_index && last->dims == at->dims;
    enum wf_status status = WF_OK;
    if (!last->known || last->of_member || !same_place) {
        struct wf_row_at here = *at;
        uint64_t holds = 0;
        *last = (struct wf_verdict){.known = true, .chunk = at->chunk_index, .dims = at->dims};
        here.of_member_out = &last->of_member;
        status = wf_row_eval(&here, row->when, 1, &holds, error);
        last->holds = holds != 0;
    }
    *holds_out = last->holds;
    return status;
}

enum wf_status wf_row_require(const struct wf_row_at *at, const char *list, struct wf_error *error)
{
    const char *item;
    size_t len;
    enum wf_status status = WF_OK;
    while (list && status == WF_OK && wf_expr_next(&list, '|', &item, &len)) {
        const char *why = item, *rule;
        size_t rule_len = 0;
        uint64_t holds = 0;
        struct wf_row_at place = *at;
        (void)wf_expr_next(&why, ':', &rule, &rule_len);
        status = wf_expr_eval(rule, rule_len, wf_row_lookup, &place, &holds, error);
        if (status == WF_OK && !holds) {
            why += strspn(why, " ");
            status = wf_error_set(error, WF_UNSUPPORTED, "%s, %s: %.*s (it needs %.*s)",
                                  at->recipe->engine->name, at->at.model->family->name,
                                  why < item + len ? (int)(item + len - why) : 0, why,
                                  (int)rule_len, rule);
        }
    }
    return status;
}

/* --- parts ----------------------------------------------------------------------------------- */

enum wf_status wf_row_part_next(const char **text, struct wf_row_part *part_out, bool *more_out,
                                struct wf_error *error)
{
    const char *at = *text + strspn(*text, " ");
    *part_out = (struct wf_row_part){.role = at, .family_row = WF_NONE};
    *more_out = *at != '\0';
    if (!*more_out) {
        return WF_OK;
    }
    part_out->role_len = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
    at += part_out->role_len;
    if (part_out->role_len > 0 && *at == '(') {
        size_t depth = 0;
        part_out->share = at + 1;
        do {
            depth += *at == '(';
            depth -= *at == ')';
            at++;
        } while (depth > 0 && *at);
        if (depth > 0) {
            return wf_error_set(error, WF_INVALID, "parts \"%.100s\": a ( is not closed", *text);
        }
        part_out->share_len = (size_t)(at - 1 - part_out->share);
    }
    if (part_out->role_len == 0 || (*at != '\0' && *at != ' ')) {
        return wf_error_set(error, WF_INVALID,
                            "parts \"%.100s\": expected roles parted by spaces, each with a share "
                            "in parentheses where it has one",
                            *text);
    }
    *text = at;
    return WF_OK;
}

bool wf_bound_params(const struct wf_row_at *at, const struct wf_bound *bound, bool extra,
                     uint32_t expert, uint32_t params_out[WF_PARTS_MAX])
{
    const struct wf_model *model = at->at.model;
    uint32_t first = extra ? bound->part_count : 0;
    uint32_t count = extra ? bound->extra_count : bound->part_count;
    for (uint32_t i = 0; i < count; i++) {
        const struct wf_row_part *part = &bound->parts[first + i];
        uint32_t param = wf_model_param(model, bound->stack, at->at.index, part->family_row,
                                        extra || !bound->per_expert ? 0 : expert);
        if (param == WF_NONE && model->tied && bound->stack == WF_NONE && part->role_len == 4 &&
            memcmp(part->role, "head", 4) == 0) {
            uint32_t row = wf_family_find_row(model->family, WF_NONE, "embedding", 9);
            param = row == WF_NONE ? WF_NONE : wf_model_param(model, WF_NONE, WF_NONE, row, 0);
        }
        if (param == WF_NONE) {
            return false;
        }
        params_out[i] = param;
    }
    return true;
}

/* --- binding --------------------------------------------------------------------------------- */

struct binder {
    const struct wf_model *model;
    const struct wf_family *family;
    const struct wf_engine *engine;
    struct wf_binding *out;
    uint8_t covered[WF_FAMILY_STACKS_MAX + 1][WF_FAMILY_ROWS_MAX];
    struct wf_roles roles; /* each part of each row is looked for in every stack */
    bool from_exceptions;
    struct wf_error *error;
};

static const char *exceptions_name(const struct wf_engine *engine)
{
    return engine->exceptions ? engine->exceptions : engine->name;
}

static uint8_t *cover(struct binder *b, uint32_t stack, uint32_t row)
{
    return &b->covered[stack == WF_NONE ? WF_FAMILY_STACKS_MAX : stack][row];
}

static uint32_t find_row(const struct binder *b, uint32_t stack, const char *role, size_t len)
{
    return wf_roles_find(&b->roles, b->family, stack, role, len);
}

/* The embedding stands for a head that has no row of its own. */
static uint32_t find_role(const struct binder *b, uint32_t stack, const struct wf_row_part *part)
{
    uint32_t row = find_row(b, stack, part->role, part->role_len);
    if (row == WF_NONE && stack == WF_NONE && is(part->role, part->role_len, "head")) {
        row = find_row(b, WF_NONE, "embedding", strlen("embedding"));
    }
    return row;
}

/* A role that the family's exceptions speak of is theirs alone. */
static bool taken_by_exception(struct binder *b, uint32_t stack, uint32_t row)
{
    return !b->from_exceptions && *cover(b, stack, row) == 2;
}

static enum wf_status push(struct binder *b, const struct wf_bound *bound)
{
    if (b->out->count == WF_BOUND_MAX) {
        return wf_error_set(b->error, WF_INVALID, "more than %d rows for a %s model in %s",
                            WF_BOUND_MAX, b->family->name, b->engine->name);
    }
    b->out->rows[b->out->count++] = *bound;
    return WF_OK;
}

static enum wf_status read_parts(struct binder *b, const struct wf_engine_row *row,
                                 const char *parts, size_t parts_len, struct wf_bound *out)
{
    char *text = strndup(parts, parts_len);
    if (!text) {
        return wf_error_set(b->error, WF_NO_MEMORY, "no memory for a layout");
    }
    const char *at = text;
    enum wf_status status = WF_OK;
    for (bool more = true; more && status == WF_OK;) {
        struct wf_row_part part;
        status = wf_row_part_next(&at, &part, &more, b->error);
        if (status == WF_OK && more && out->part_count + out->extra_count == WF_PARTS_MAX) {
            status = wf_error_set(b->error, WF_INVALID, "%s: more than %d parts", row->name,
                                  WF_PARTS_MAX);
        }
        if (status == WF_OK && more) {
            part.role = parts + (part.role - text);
            part.share = part.share ? parts + (part.share - text) : NULL;
            out->parts[out->part_count + out->extra_count] = part;
            *(out->extra_times ? &out->extra_count : &out->part_count) += 1;
        }
    }
    free(text);
    return status;
}

/* Binds parts to one stack; *whole_out is false if the family lacks one of them there. */
static void resolve(struct binder *b, struct wf_bound *bound, bool *whole_out)
{
    *whole_out = bound->part_count > 0;
    for (uint32_t i = 0; i < bound->part_count + bound->extra_count && *whole_out; i++) {
        struct wf_row_part *part = &bound->parts[i];
        part->family_row = find_role(b, bound->stack, part);
        *whole_out =
            part->family_row != WF_NONE && !taken_by_exception(b, bound->stack, part->family_row);
    }
}

static bool stack_is_skipped(const struct wf_engine *engine, const struct wf_family *family,
                             uint32_t stack)
{
    const char *skipped = stack != WF_NONE ? engine->skipped_stacks : NULL;
    size_t len = skipped ? strlen(family->stacks[stack].name) : 0;
    for (const char *at = skipped; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, family->stacks[stack].name, len) == 0 &&
            (at[len] == ' ' || at[len] == '\0')) {
            return true;
        }
    }
    return false;
}

static enum wf_status bind_parts(struct binder *b, const struct wf_engine_row *row,
                                 const char *parts, size_t len)
{
    struct wf_bound bound = {.row = row, .name = row->name};
    enum wf_status status = read_parts(b, row, parts, len, &bound);
    const char *colon = row->extra ? strchr(row->extra, ':') : NULL;
    if (status == WF_OK && row->extra && !colon) {
        return wf_error_set(b->error, WF_INVALID, "extra \"%s\": expected COUNT: PARTS",
                            row->extra);
    }
    if (status == WF_OK && colon) {
        bound.extra_times = row->extra;
        bound.extra_times_len = (size_t)(colon - row->extra);
        status = read_parts(b, row, colon + 1, strlen(colon + 1), &bound);
    }
    for (uint32_t s = 0; s <= b->family->stack_count && status == WF_OK; s++) {
        bool whole = false;
        bound.stack = s == b->family->stack_count ? WF_NONE : s;
        resolve(b, &bound, &whole);
        if (!whole || stack_is_skipped(b->engine, b->family, bound.stack)) {
            continue;
        }
        bound.per_expert =
            strstr(b->family->rows[bound.parts[0].family_row].name, "{expert}") != NULL;
        for (uint32_t i = 0; i < bound.part_count + bound.extra_count; i++) {
            *cover(b, bound.stack, bound.parts[i].family_row) = b->from_exceptions ? 2 : 1;
        }
        status = push(b, &bound);
    }
    return status;
}

static enum wf_status bind_row(struct binder *b, const struct wf_engine_row *row)
{
    if (strcmp(row->parts, "*") == 0) {
        return WF_OK; /* last */
    }
    if (!strchr(row->parts, '|')) {
        return bind_parts(b, row, row->parts, strlen(row->parts));
    }
    enum wf_status status = WF_OK;
    for (const char *at = row->parts; status == WF_OK;) {
        size_t len = strcspn(at, "|");
        status = bind_parts(b, row, at, len);
        if (at[len] == '\0') {
            break;
        }
        at += len + 1;
    }
    return status;
}

/* Exceptions come first: what they cover is marked when the engine's own rows are bound. */
static enum wf_status bind_all(struct binder *b, const struct wf_engine_row *rows, size_t count,
                               bool exceptions)
{
    enum wf_status status = WF_OK;
    b->from_exceptions = exceptions;
    for (size_t i = 0; i < count && status == WF_OK; i++) {
        status = bind_row(b, &rows[i]);
    }
    return status;
}

/* A name of a parameter of this row that the model has in this stack, or NULL. */
static const char *any_param(const struct wf_model *model, uint32_t stack, uint32_t row)
{
    uint32_t members = stack == WF_NONE ? 1 : wf_model_stack_count(model, stack);
    for (uint32_t i = 0; i < members; i++) {
        uint32_t param = wf_model_param(model, stack, stack == WF_NONE ? WF_NONE : i, row, 0);
        if (param != WF_NONE) {
            return model->params[param].name;
        }
    }
    return NULL;
}

/* One row for each wildcard of the engine. */
static enum wf_status push_wildcards(struct binder *b, uint32_t stack, uint32_t row, bool *any_out)
{
    const char *role = b->family->rows[row].role;
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < b->engine->row_count && status == WF_OK; i++) {
        const struct wf_engine_row *wildcard = &b->engine->rows[i];
        if (strcmp(wildcard->parts, "*") != 0) {
            continue;
        }
        struct wf_bound bound = {.row = wildcard,
                                 .name = wildcard->name,
                                 .stack = stack,
                                 .part_count = 1,
                                 .wildcard = true};
        bound.parts[0] =
            (struct wf_row_part){.role = role, .role_len = strlen(role), .family_row = row};
        bound.per_expert = strstr(b->family->rows[row].name, "{expert}") != NULL;
        status = push(b, &bound);
        *any_out = true;
    }
    return status;
}

/* What no row has is the wildcards', the skipped stacks' or a sentence. */
static enum wf_status bind_rest(struct binder *b)
{
    for (uint32_t row = 0; row < b->family->row_count; row++) {
        const char *role = b->family->rows[row].role;
        for (uint32_t s = 0; s <= b->family->stack_count; s++) {
            uint32_t stack = s == b->family->stack_count ? WF_NONE : s;
            const char *name = any_param(b->model, stack, row);
            bool any = false;
            if (!name || find_row(b, stack, role, strlen(role)) != row ||
                stack_is_skipped(b->engine, b->family, stack)) {
                continue;
            }
            enum wf_status status = push_wildcards(b, stack, row, &any);
            if (status != WF_OK) {
                return status;
            }
            if (!any && !*cover(b, stack, row)) {
                return wf_error_set(b->error, WF_UNSUPPORTED,
                                    "%s has no place for %s (%s of a %s model); a family file can "
                                    "say where it goes",
                                    b->engine->name, name, role, b->family->name);
            }
        }
    }
    return WF_OK;
}

enum wf_status wf_binding_make(const struct wf_model *model, const struct wf_engine *engine,
                               struct wf_binding *binding_out, struct wf_error *error)
{
    /* Half a megabyte of which few rows are used: not cleared for each layout. */
    *binding_out = (struct wf_binding){.rows = malloc(WF_BOUND_MAX * sizeof *binding_out->rows)};
    struct binder *b = calloc(1, sizeof *b);
    if (!b || !binding_out->rows) {
        free(b);
        free(binding_out->rows);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a layout");
    }
    *b = (struct binder){.model = model,
                         .family = model->family,
                         .engine = engine,
                         .out = binding_out,
                         .error = error};
    const struct wf_family *family = model->family;
    wf_roles_index(family, &b->roles);
    for (size_t i = 0; i < family->engine_count; i++) {
        if (strcmp(family->engines[i].engine, exceptions_name(engine)) == 0) {
            binding_out->exceptions = &family->engines[i];
        }
    }
    const struct wf_family_engine *exceptions = binding_out->exceptions;
    enum wf_status status = WF_OK;
    if (exceptions) {
        status = bind_all(b, exceptions->rows, exceptions->row_count, true);
    }
    if (status == WF_OK) {
        status = bind_all(b, engine->rows, engine->row_count, false);
    }
    if (status == WF_OK) {
        status = bind_rest(b);
    }
    free(b);
    if (status != WF_OK) {
        free(binding_out->rows);
        binding_out->rows = NULL;
    }
    return status;
}
