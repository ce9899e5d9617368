/* family_file.c - the schema of a family's file, and how it is laid over what it extends. */
#include "config/family_file.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/yaml_check.h"
#include "models/engines/engine.h"
#include "models/expr.h"
#include "runtime/nearest.h"

enum { SAID_MAX = 200, ENGINES_MAX = 8, ENGINE_ROWS_MAX = 256, ALIASES_MAX = 64, LIST_MAX = 64 };

/* --- what libcyaml fills: NULL where a key is absent ----------------------------------------- */
struct raw_size {
    char *name, *key, *otherwise, *match;
    bool *remove;
};

struct raw_stack {
    char *name, *prefix, *count, *first;
};

struct raw_row {
    char *role, *name, *shape, *stacks, *when, *unit, *dtype;
    bool *remove;
};

struct raw_engine_row {
    char *name, *parts, *when, *groups, *pad, *cuts, *fill, *extra, *view, *shape, *order, *dtype,
        *data_when;
    enum wf_row_kind kind;
    enum wf_value_rule value;
};

struct raw_alias {
    char *role, *name, *when;
};

struct raw_engine {
    char *engine, *prefix, *quantised, *order;
    char **renames, **requires;
    struct raw_engine_row *rows;
    struct raw_alias *aliases;
    unsigned renames_count, requires_count, rows_count, aliases_count;
};

struct raw_family {
    char *family, *extends, *text_config;
    char **model_types, **refused, **requires;
    struct raw_size *sizes;
    struct raw_stack *stacks;
    struct raw_row *rows;
    struct raw_engine *engines;
    unsigned model_types_count, refused_count, requires_count, sizes_count, stacks_count,
        rows_count, engines_count;
};

/* --- the schema ------------------------------------------------------------------------------ */
#define TEXT(key, of)                                                                         \
    CYAML_FIELD_STRING_PTR(#key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct of, key, 0, \
                           WF_FAMILY_TEXT_MAX)
#define NEEDED(key, of) \
    CYAML_FIELD_STRING_PTR(#key, CYAML_FLAG_POINTER, struct of, key, 1, WF_FAMILY_TEXT_MAX)
#define FLAG(key, of) \
    CYAML_FIELD_BOOL_PTR(#key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct of, key)
#define TEXTS(key, of)                                                                            \
    CYAML_FIELD_SEQUENCE(#key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct of, key, &a_text, \
                         0, LIST_MAX)
#define LIST(key, of, entry, max)                                                                  \
    CYAML_FIELD_SEQUENCE(#key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct of, key, &(entry), \
                         0, max)
#define WORD(key, of, words)                                                               \
    CYAML_FIELD_ENUM(#key, CYAML_FLAG_OPTIONAL | CYAML_FLAG_STRICT, struct of, key, words, \
                     CYAML_ARRAY_LEN(words))

static const cyaml_schema_value_t a_text = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 1, WF_FAMILY_TEXT_MAX)};

static const cyaml_schema_field_t size_fields[] = {NEEDED(name, raw_size),    TEXT(key, raw_size),
                                                   TEXT(otherwise, raw_size), TEXT(match, raw_size),
                                                   FLAG(remove, raw_size),    CYAML_FIELD_END};
static const cyaml_schema_value_t a_size = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_size, size_fields)};

static const cyaml_schema_field_t stack_fields[] = {NEEDED(name, raw_stack),
                                                    TEXT(prefix, raw_stack), TEXT(count, raw_stack),
                                                    TEXT(first, raw_stack), CYAML_FIELD_END};
static const cyaml_schema_value_t a_stack = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_stack, stack_fields)};

static const cyaml_schema_field_t row_fields[] = {
    NEEDED(role, raw_row), TEXT(name, raw_row),   TEXT(shape, raw_row),
    TEXT(stacks, raw_row), TEXT(when, raw_row),   TEXT(unit, raw_row),
    TEXT(dtype, raw_row),  FLAG(remove, raw_row), CYAML_FIELD_END};
static const cyaml_schema_value_t a_row = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_row, row_fields)};

static const cyaml_strval_t kinds[] = {{"weights", WF_ROW_WEIGHTS},
                                       {"derived", WF_ROW_DERIVED},
                                       {"keep", WF_ROW_KEEP},
                                       {"view", WF_ROW_VIEW},
                                       {"absent", WF_ROW_ABSENT}};
static const cyaml_strval_t values[] = {{"copy", WF_VALUE_COPY}, {"less_one", WF_VALUE_LESS_ONE}};

static const cyaml_schema_field_t engine_row_fields[] = {
    NEEDED(name, raw_engine_row),        NEEDED(parts, raw_engine_row),
    TEXT(when, raw_engine_row),          TEXT(groups, raw_engine_row),
    TEXT(pad, raw_engine_row),           TEXT(cuts, raw_engine_row),
    TEXT(fill, raw_engine_row),          TEXT(extra, raw_engine_row),
    TEXT(view, raw_engine_row),          TEXT(shape, raw_engine_row),
    TEXT(order, raw_engine_row),         TEXT(dtype, raw_engine_row),
    TEXT(data_when, raw_engine_row),     WORD(kind, raw_engine_row, kinds),
    WORD(value, raw_engine_row, values), CYAML_FIELD_END};
static const cyaml_schema_value_t an_engine_row = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_engine_row, engine_row_fields)};

static const cyaml_schema_field_t alias_fields[] = {NEEDED(role, raw_alias), TEXT(name, raw_alias),
                                                    TEXT(when, raw_alias), CYAML_FIELD_END};
static const cyaml_schema_value_t an_alias = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_alias, alias_fields)};

static const cyaml_schema_field_t engine_fields[] = {
    NEEDED(engine, raw_engine),
    TEXTS(renames, raw_engine),
    TEXT(prefix, raw_engine),
    TEXTS(requires, raw_engine),
    TEXT(quantised, raw_engine),
    TEXT(order, raw_engine),
    LIST(rows, raw_engine, an_engine_row, ENGINE_ROWS_MAX),
    LIST(aliases, raw_engine, an_alias, ALIASES_MAX),
    CYAML_FIELD_END};
static const cyaml_schema_value_t an_engine = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct raw_engine, engine_fields)};

static const cyaml_schema_field_t family_fields[] = {
    NEEDED(family, raw_family),
    TEXT(extends, raw_family),
    TEXTS(model_types, raw_family),
    TEXT(text_config, raw_family),
    TEXTS(refused, raw_family),
    LIST(sizes, raw_family, a_size, WF_FAMILY_SIZES_MAX),
    LIST(stacks, raw_family, a_stack, WF_FAMILY_STACKS_MAX),
    LIST(rows, raw_family, a_row, WF_FAMILY_ROWS_MAX),
    TEXTS(requires, raw_family),
    LIST(engines, raw_family, an_engine, ENGINES_MAX),
    CYAML_FIELD_END};
static const cyaml_schema_value_t family_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct raw_family, family_fields)};

/* --- one file -------------------------------------------------------------------------------- */

/* Everything that a file's family points into. Texts are libcyaml's, or of what is extended. */
struct owned {
    struct wf_family family;
    struct raw_family *raw;
    struct wf_family_size sizes[WF_FAMILY_SIZES_MAX];
    struct wf_family_stack stacks[WF_FAMILY_STACKS_MAX];
    struct wf_family_row rows[WF_FAMILY_ROWS_MAX];
    struct wf_family_engine engines[ENGINES_MAX];
    struct wf_engine_row *engine_rows[ENGINES_MAX];
    struct wf_engine_alias *aliases[ENGINES_MAX];
    char *joined[3 + 2 * ENGINES_MAX];
    size_t joined_count;
};

static void free_owned(struct owned *o, const cyaml_config_t *config)
{
    for (size_t i = 0; i < ENGINES_MAX; i++) {
        free(o->engine_rows[i]);
        free(o->aliases[i]);
    }
    for (size_t i = 0; i < o->joined_count; i++) {
        free(o->joined[i]);
    }
    cyaml_free(config, &family_schema, o->raw, 0);
    free(o);
}

/* A list as the one text that tables have; NULL if there is none. */
static const char *join(struct owned *o, char *const *list, unsigned count, char mark)
{
    size_t len = 1;
    for (unsigned i = 0; i < count; i++) {
        len += strlen(list[i]) + 1;
    }
    char *text = list ? calloc(1, len) : NULL;
    WF_ASSERT(!list || text);
    for (unsigned i = 0; text && i < count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, len - used, "%s%s", i ? (char[]){mark, '\0'} : "", list[i]);
    }
    if (text) {
        o->joined[o->joined_count++] = text;
    }
    return text;
}

static const char *over(const char *mine, const char *theirs)
{
    return mine ? mine : theirs;
}

static bool is_set(const bool *flag)
{
    return flag && *flag;
}

static enum wf_status too_many(const char *what, int max, struct wf_error *error)
{
    return wf_error_set(error, WF_INVALID, "%s: more than %d with those of the family it extends",
                        what, max);
}

static enum wf_status nothing_to_remove(const char *what, const char *name, struct wf_error *error)
{
    return wf_error_set(error, WF_INVALID, "%s %s: there is none to remove", what, name);
}

static enum wf_status take_sizes(struct owned *o, struct wf_error *error)
{
    size_t *count = &o->family.size_count;
    for (unsigned i = 0; i < o->raw->sizes_count; i++) {
        const struct raw_size *raw = &o->raw->sizes[i];
        size_t at = 0;
        while (at < *count && strcmp(o->sizes[at].name, raw->name) != 0) {
            at++;
        }
        if (is_set(raw->remove)) {
            if (at == *count) {
                return nothing_to_remove("size", raw->name, error);
            }
            memmove(&o->sizes[at], &o->sizes[at + 1], (--*count - at) * sizeof o->sizes[0]);
            continue;
        }
        if (at == WF_FAMILY_SIZES_MAX) {
            return too_many("sizes", WF_FAMILY_SIZES_MAX, error);
        }
        struct wf_family_size base =
            at < *count ? o->sizes[at] : (struct wf_family_size){.name = raw->name};
        o->sizes[at] = (struct wf_family_size){raw->name, over(raw->key, base.key),
                                               over(raw->otherwise, base.otherwise),
                                               over(raw->match, base.match)};
        *count += at == *count;
    }
    return WF_OK;
}

static enum wf_status take_stacks(struct owned *o, struct wf_error *error)
{
    size_t *count = &o->family.stack_count;
    for (unsigned i = 0; i < o->raw->stacks_count; i++) {
        const struct raw_stack *raw = &o->raw->stacks[i];
        size_t at = 0;
        while (at < *count && strcmp(o->stacks[at].name, raw->name) != 0) {
            at++;
        }
        if (at == WF_FAMILY_STACKS_MAX) {
            return too_many("stacks", WF_FAMILY_STACKS_MAX, error);
        }
        struct wf_family_stack base =
            at < *count ? o->stacks[at] : (struct wf_family_stack){.name = raw->name};
        o->stacks[at] =
            (struct wf_family_stack){raw->name, over(raw->prefix, base.prefix),
                                     over(raw->count, base.count), over(raw->first, base.first)};
        *count += at == *count;
    }
    return WF_OK;
}

/* The row of the role; of several the one of the same stacks. */
static size_t find_row(const struct owned *o, const struct raw_row *raw)
{
    size_t at = 0;
    for (; at < o->family.row_count; at++) {
        const struct wf_family_row *row = &o->rows[at];
        bool stacks = !raw->stacks || (row->stacks && strcmp(row->stacks, raw->stacks) == 0);
        if (strcmp(row->role, raw->role) == 0 && stacks) {
            break;
        }
    }
    return at;
}

static enum wf_status take_rows(struct owned *o, struct wf_error *error)
{
    size_t *count = &o->family.row_count;
    for (unsigned i = 0; i < o->raw->rows_count; i++) {
        const struct raw_row *raw = &o->raw->rows[i];
        size_t at = find_row(o, raw);
        if (is_set(raw->remove)) {
            if (at == *count) {
                return nothing_to_remove("row", raw->role, error);
            }
            memmove(&o->rows[at], &o->rows[at + 1], (--*count - at) * sizeof o->rows[0]);
            continue;
        }
        if (at == WF_FAMILY_ROWS_MAX) {
            return too_many("rows", WF_FAMILY_ROWS_MAX, error);
        }
        struct wf_family_row base =
            at < *count ? o->rows[at] : (struct wf_family_row){.role = raw->role};
        o->rows[at] = (struct wf_family_row){.role = raw->role,
                                             .name = over(raw->name, base.name),
                                             .shape = over(raw->shape, base.shape),
                                             .stacks = over(raw->stacks, base.stacks),
                                             .when = over(raw->when, base.when),
                                             .unit = over(raw->unit, base.unit),
                                             .dtype = over(raw->dtype, base.dtype)};
        *count += at == *count;
    }
    return WF_OK;
}

static void take_engine(struct owned *o, const struct raw_engine *raw, size_t at)
{
    struct wf_engine_row *rows = calloc(raw->rows_count + 1, sizeof *rows);
    struct wf_engine_alias *aliases = calloc(raw->aliases_count + 1, sizeof *aliases);
    WF_ASSERT(rows && aliases);
    for (unsigned i = 0; i < raw->rows_count; i++) {
        const struct raw_engine_row *r = &raw->rows[i];
        rows[i] = (struct wf_engine_row){
            .name = r->name,
            .parts = r->parts,
            .when = r->when,
            .groups = r->groups,
            .pad = r->pad,
            .cuts = r->cuts,
            .fill = r->fill,
            .extra = r->extra,
            .view = r->view,
            .shape = r->shape,
            .order = r->order,
            .dtype = r->dtype,
            .data_when = r->data_when,
            .kind = r->kind,
            .value = r->value,
        };
    }
    for (unsigned i = 0; i < raw->aliases_count; i++) {
        const struct raw_alias *a = &raw->aliases[i];
        aliases[i] = (struct wf_engine_alias){a->role, a->name, a->when};
    }
    free(o->engine_rows[at]);
    free(o->aliases[at]);
    o->engine_rows[at] = rows;
    o->aliases[at] = aliases;
    o->engines[at] = (struct wf_family_engine){
        .engine = raw->engine,
        .renames = join(o, raw->renames, raw->renames_count, ' '),
        .rows = rows,
        .row_count = raw->rows_count,
        .aliases = aliases,
        .alias_count = raw->aliases_count,
        .prefix = raw->prefix,
        .requires = join(o, raw->requires, raw->requires_count, '|'),
        .quantised = raw->quantised,
        .order = raw->order,
    };
}

static enum wf_status take_engines(struct owned *o, struct wf_error *error)
{
    size_t *count = &o->family.engine_count, base = *count;
    for (unsigned i = 0; i < o->raw->engines_count; i++) {
        const struct raw_engine *raw = &o->raw->engines[i];
        size_t at = 0;
        while (at < *count && strcmp(o->engines[at].engine, raw->engine) != 0) {
            at++;
        }
        if (at < *count && (at >= base || o->engine_rows[at])) {
            return wf_error_set(error, WF_INVALID, "engines: %s stands twice", raw->engine);
        }
        if (at == ENGINES_MAX) {
            return too_many("engines", ENGINES_MAX, error);
        }
        take_engine(o, raw, at);
        *count += at == *count;
    }
    return WF_OK;
}

static enum wf_status extend(struct owned *o, const struct wf_family_files *files,
                             struct wf_error *error)
{
    const struct wf_family *base = wf_family_named(files, o->raw->extends);
    if (!base) {
        const char *names[WF_FAMILY_FILES_MAX + 64];
        size_t count = 0;
        for (const struct wf_family *const *f = wf_families; *f && count < 64; f++) {
            names[count++] = (*f)->name;
        }
        for (uint32_t i = 0; i < files->count; i++) {
            names[count++] = files->list[i]->name;
        }
        const char *near = wf_nearest(o->raw->extends, strlen(o->raw->extends), names, count);
        return wf_error_set(error, WF_INVALID,
                            "extends: no family is called \"%.60s\"%s%s%s (a file comes behind "
                            "the one that it extends)",
                            o->raw->extends, near ? "; did you mean \"" : "", near ? near : "",
                            near ? "\"?" : "");
    }
    if (base->engine_count > ENGINES_MAX) {
        return too_many("engines", ENGINES_MAX, error);
    }
    o->family = *base;
    memcpy(o->sizes, base->sizes, base->size_count * sizeof o->sizes[0]);
    memcpy(o->stacks, base->stacks, base->stack_count * sizeof o->stacks[0]);
    memcpy(o->rows, base->rows, base->row_count * sizeof o->rows[0]);
    if (base->engine_count > 0) {
        memcpy(o->engines, base->engines, base->engine_count * sizeof o->engines[0]);
    }
    return WF_OK;
}

static enum wf_status take_family(struct owned *o, const struct wf_family_files *files,
                                  struct wf_error *error)
{
    const struct raw_family *raw = o->raw;
    enum wf_status status = raw->extends ? extend(o, files, error) : WF_OK;
    if (status != WF_OK) {
        return status;
    }
    bool renamed = !raw->extends || strcmp(raw->family, o->family.name) != 0;
    if (renamed && raw->model_types_count == 0) {
        return wf_error_set(error, WF_INVALID,
                            "model_types: needed by a family of its own name (the config's "
                            "model_type, one or more)");
    }
    o->family.name = raw->family;
    o->family.model_types =
        over(join(o, raw->model_types, raw->model_types_count, '|'), o->family.model_types);
    o->family.text_config = over(raw->text_config, o->family.text_config);
    o->family.refused = over(join(o, raw->refused, raw->refused_count, '|'), o->family.refused);
    o->family.requires = over(join(o, raw->requires, raw->requires_count, '|'), o->family.requires);
    o->family.sizes = o->sizes;
    o->family.stacks = o->stacks;
    o->family.rows = o->rows;
    o->family.engines = o->engines;
    status = take_sizes(o, error);
    status = status == WF_OK ? take_stacks(o, error) : status;
    status = status == WF_OK ? take_rows(o, error) : status;
    status = status == WF_OK ? take_engines(o, error) : status;
    return status == WF_OK ? wf_family_check(&o->family, error) : status;
}

/* Two files may not speak of one name or one type. */
static enum wf_status check_others(const struct wf_family_files *files,
                                   const struct wf_family *family, struct wf_error *error)
{
    for (uint32_t i = 0; i < files->count; i++) {
        const char *mine = family->model_types, *type = NULL;
        size_t len = 0;
        if (strcmp(files->list[i]->name, family->name) == 0) {
            return wf_error_set(error, WF_INVALID, "family %s: another file gives it too",
                                family->name);
        }
        while (wf_expr_next(&mine, '|', &type, &len)) {
            const char *others = files->list[i]->model_types, *other = NULL;
            size_t other_len = 0;
            while (wf_expr_next(&others, '|', &other, &other_len)) {
                if (other_len == len && memcmp(type, other, len) == 0) {
                    return wf_error_set(error, WF_INVALID,
                                        "family %s: model_type %.*s is also of family %s, which "
                                        "another file gives",
                                        family->name, (int)len, type, files->list[i]->name);
                }
            }
        }
    }
    return WF_OK;
}

/* --- loading --------------------------------------------------------------------------------- */

/* Keeps the last thing libcyaml says: its own words if it refuses what our check let pass. */
static void keep_log(cyaml_log_t level, void *user, const char *format, va_list args)
{
    (void)level;
    char *kept = user;
    if (kept[0] == '\0') {
        vsnprintf(kept, SAID_MAX, format, args);
    }
}

static const cyaml_config_t plain_config = {
    .mem_fn = cyaml_mem, .log_level = CYAML_LOG_ERROR, .flags = CYAML_CFG_NO_ALIAS};

enum wf_status wf_family_files_parse(struct wf_family_files *files, const char *text, size_t len,
                                     struct wf_error *error)
{
    yaml_document_t document;
    if (files->count == WF_FAMILY_FILES_MAX) {
        return wf_error_set(error, WF_INVALID, "more than %d families", WF_FAMILY_FILES_MAX);
    }
    enum wf_status status = wf_yaml_parse(text, len, &document, error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_yaml_check(&document, family_fields, NULL, 0, error);
    yaml_document_delete(&document);
    if (status != WF_OK) {
        return status;
    }
    char said[SAID_MAX] = "";
    cyaml_config_t config = plain_config;
    config.log_fn = keep_log;
    config.log_ctx = said;
    struct owned *o = calloc(1, sizeof *o);
    WF_ASSERT(o);
    cyaml_err_t failed = cyaml_load_data((const uint8_t *)text, len, &config, &family_schema,
                                         (cyaml_data_t **)&o->raw, NULL);
    if (failed == CYAML_ERR_ALIAS) {
        status = wf_error_set(error, WF_INVALID, "aliases (*name) are not accepted; write it out");
    } else if (failed != CYAML_OK) {
        status = wf_error_set(error, WF_INVALID, "%s (%s)", cyaml_strerror(failed), said);
    } else {
        status = take_family(o, files, error);
    }
    if (status == WF_OK) {
        status = check_others(files, &o->family, error);
    }
    if (status != WF_OK) {
        free_owned(o, &plain_config);
        return status;
    }
    files->owned[files->count] = o;
    files->list[files->count++] = &o->family;
    return WF_OK;
}

enum wf_status wf_family_files_load(struct wf_family_files *files, const char *path,
                                    struct wf_error *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return wf_error_set(error, WF_IO,
                            "%s: cannot open: %s; expected a family file (docs/add-a-model.md)",
                            path, strerror(errno));
    }
    char *text = malloc(WF_YAML_BYTES_MAX + 1);
    WF_ASSERT(text != NULL);
    size_t len = fread(text, 1, WF_YAML_BYTES_MAX + 1, file);
    bool failed = ferror(file) != 0;
    int saved = errno;
    fclose(file);
    enum wf_status status =
        failed ? wf_error_set(error, WF_IO,
                              "cannot read: %s; expected a family file (docs/add-a-model.md)",
                              strerror(saved))
               : wf_family_files_parse(files, text, len, error);
    free(text);
    if (status != WF_OK) {
        wf_error_prefix(error, "%s", path);
    }
    return status;
}

void wf_family_files_fini(struct wf_family_files *files)
{
    while (files->count > 0) {
        free_owned(files->owned[--files->count], &plain_config);
        files->list[files->count] = NULL;
    }
}

const struct wf_family *wf_family_named(const struct wf_family_files *files, const char *name)
{
    for (uint32_t i = 0; files && i < files->count; i++) {
        if (strcmp(files->list[i]->name, name) == 0) {
            return files->list[i];
        }
    }
    for (const struct wf_family *const *family = wf_families; *family; family++) {
        if (strcmp((*family)->name, name) == 0) {
            return *family;
        }
    }
    return NULL;
}
