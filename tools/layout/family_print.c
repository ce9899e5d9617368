/* family_print.c - see family_print.h: lists are blocks, what they list stands on one line each. */
#include "tools/layout/family_print.h"

#include <stddef.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/expr.h"

/* A text of a struct under its key. */
struct field {
    const char *key;
    size_t offset;
};

#define FIELD(type, key)                 \
    {                                    \
#key, offsetof(struct type, key) \
    }
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const struct field size_fields[] = {FIELD(wf_family_size, name), FIELD(wf_family_size, key),
                                           FIELD(wf_family_size, otherwise),
                                           FIELD(wf_family_size, match)};
static const struct field stack_fields[] = {
    FIELD(wf_family_stack, name), FIELD(wf_family_stack, prefix), FIELD(wf_family_stack, count),
    FIELD(wf_family_stack, first)};
static const struct field row_fields[] = {FIELD(wf_family_row, role),  FIELD(wf_family_row, name),
                                          FIELD(wf_family_row, shape), FIELD(wf_family_row, stacks),
                                          FIELD(wf_family_row, when),  FIELD(wf_family_row, unit),
                                          FIELD(wf_family_row, dtype)};
static const struct field engine_row_fields[] = {
    FIELD(wf_engine_row, name),     FIELD(wf_engine_row, parts), FIELD(wf_engine_row, when),
    FIELD(wf_engine_row, groups),   FIELD(wf_engine_row, pad),   FIELD(wf_engine_row, cuts),
    FIELD(wf_engine_row, fill),     FIELD(wf_engine_row, extra), FIELD(wf_engine_row, view),
    FIELD(wf_engine_row, shape),    FIELD(wf_engine_row, order), FIELD(wf_engine_row, dtype),
    FIELD(wf_engine_row, data_when)};
static const struct field alias_fields[] = {
    FIELD(wf_engine_alias, role), FIELD(wf_engine_alias, name), FIELD(wf_engine_alias, when)};

/* Bare where YAML can read it in one way only. */
static void print_text(FILE *out, const char *text, size_t len)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789.";
    static const char *const taken[] = {"null", "true", "false", "yes", "no", "on", "off"};
    bool bare = len > 0 && strchr(plain, text[0]) && text[0] > '9';
    for (size_t i = 0; i < len && bare; i++) {
        bare = text[i] != '\0' && strchr(plain, text[i]);
    }
    for (size_t i = 0; i < COUNT(taken) && bare; i++) {
        bare = strlen(taken[i]) != len || strncasecmp(taken[i], text, len) != 0;
    }
    if (bare) {
        fprintf(out, "%.*s", (int)len, text);
        return;
    }
    putc('"', out);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"' || text[i] == '\\') {
            putc('\\', out);
        }
        putc(text[i], out);
    }
    putc('"', out);
}

/* "{name: H, key: hidden_size", without the end. */
static void print_open(FILE *out, const char *indent, const void *of, const struct field *fields,
                       size_t count)
{
    const char *mark = "{";
    fprintf(out, "%s- ", indent);
    for (size_t i = 0; i < count; i++) {
        const char *text = *(const char *const *)((const char *)of + fields[i].offset);
        if (text) {
            fprintf(out, "%s%s: ", mark, fields[i].key);
            print_text(out, text, strlen(text));
            mark = ", ";
        }
    }
}

static void print_entry(FILE *out, const char *indent, const void *of, const struct field *fields,
                        size_t count)
{
    print_open(out, indent, of, fields, count);
    fputs("}\n", out);
}

/* A text of the tables that a file has as a list. */
static void print_list(FILE *out, const char *indent, const char *key, const char *list, char mark)
{
    const char *item = NULL;
    size_t len = 0;
    if (!list) {
        return;
    }
    fprintf(out, "%s%s:\n", indent, key);
    while (wf_expr_next(&list, mark, &item, &len)) {
        fprintf(out, "%s  - ", indent);
        print_text(out, item, len);
        putc('\n', out);
    }
}

static void print_one(FILE *out, const char *indent, const char *key, const char *text)
{
    if (text) {
        fprintf(out, "%s%s: ", indent, key);
        print_text(out, text, strlen(text));
        putc('\n', out);
    }
}

static void print_engine_row(FILE *out, const struct wf_engine_row *row)
{
    static const char *const kinds[] = {[WF_ROW_WEIGHTS] = "weights",
                                        [WF_ROW_DERIVED] = "derived",
                                        [WF_ROW_KEEP] = "keep",
                                        [WF_ROW_VIEW] = "view",
                                        [WF_ROW_ABSENT] = "absent"};
    print_open(out, "      ", row, engine_row_fields, COUNT(engine_row_fields));
    if (row->kind != WF_ROW_WEIGHTS) {
        fprintf(out, ", kind: %s", kinds[row->kind]);
    }
    if (row->value == WF_VALUE_LESS_ONE) {
        fputs(", value: less_one", out);
    }
    fputs("}\n", out);
}

static void print_engine(FILE *out, const struct wf_family_engine *engine)
{
    fprintf(out, "  - engine: %s\n", engine->engine);
    print_list(out, "    ", "renames", engine->renames, ' ');
    print_one(out, "    ", "prefix", engine->prefix);
    print_list(out, "    ", "requires", engine->requires, '|');
    print_one(out, "    ", "quantised", engine->quantised);
    print_one(out, "    ", "order", engine->order);
    if (engine->row_count > 0) {
        fputs("    rows:\n", out);
    }
    for (size_t i = 0; i < engine->row_count; i++) {
        print_engine_row(out, &engine->rows[i]);
    }
    if (engine->alias_count > 0) {
        fputs("    aliases:\n", out);
    }
    for (size_t i = 0; i < engine->alias_count; i++) {
        print_entry(out, "      ", &engine->aliases[i], alias_fields, COUNT(alias_fields));
    }
}

void wf_family_print(FILE *out, const struct wf_family *family)
{
    print_one(out, "", "family", family->name);
    print_list(out, "", "model_types", family->model_types, '|');
    print_one(out, "", "text_config", family->text_config);
    fputs("sizes:\n", out);
    for (size_t i = 0; i < family->size_count; i++) {
        print_entry(out, "  ", &family->sizes[i], size_fields, COUNT(size_fields));
    }
    fputs("stacks:\n", out);
    for (size_t i = 0; i < family->stack_count; i++) {
        print_entry(out, "  ", &family->stacks[i], stack_fields, COUNT(stack_fields));
    }
    fputs("rows:\n", out);
    for (size_t i = 0; i < family->row_count; i++) {
        print_entry(out, "  ", &family->rows[i], row_fields, COUNT(row_fields));
    }
    print_list(out, "", "requires", family->requires, '|');
    print_list(out, "", "refused", family->refused, '|');
    if (family->engine_count > 0) {
        fputs("engines:\n", out);
    }
    for (size_t i = 0; i < family->engine_count; i++) {
        print_engine(out, &family->engines[i]);
    }
}
