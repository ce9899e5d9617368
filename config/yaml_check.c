/* yaml_check.c - the walk: keys first, then each value by its schema's type. */
#include "config/yaml_check.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/nearest.h"

enum { KEYS_MAX = 64, PATH_MAX_BYTES = 256, SHOWN_MAX = 40 };

struct walk {
    yaml_document_t *document;
    const struct wf_yaml_reserved *reserved;
    size_t reserved_count;
    struct wf_error *error;
};

static unsigned long line_of(const yaml_node_t *node)
{
    return (unsigned long)node->start_mark.line + 1;
}

static const char *text_of(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

enum wf_status wf_yaml_parse(const char *text, size_t len, yaml_document_t *document_out,
                             struct wf_error *error)
{
    if (len > WF_YAML_BYTES_MAX) {
        return wf_error_set(error, WF_INVALID, "longer than %d bytes", WF_YAML_BYTES_MAX);
    }
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the YAML parser");
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    enum wf_status status = WF_OK;
    yaml_document_t next;
    if (!yaml_parser_load(&parser, document_out)) {
        status = wf_error_set(error, WF_INVALID, "line %lu: not valid YAML: %s",
                              (unsigned long)parser.problem_mark.line + 1,
                              parser.problem != NULL ? parser.problem : "unreadable");
    } else if (yaml_document_get_root_node(document_out) == NULL) {
        status = wf_error_set(error, WF_INVALID, "the file is empty; expected a mapping");
        yaml_document_delete(document_out);
    } else if (!yaml_parser_load(&parser, &next)) {
        status = wf_error_set(error, WF_INVALID, "line %lu: not valid YAML: %s",
                              (unsigned long)parser.problem_mark.line + 1,
                              parser.problem != NULL ? parser.problem : "unreadable");
        yaml_document_delete(document_out);
    } else {
        if (yaml_document_get_root_node(&next) != NULL) {
            status = wf_error_set(error, WF_INVALID, "holds several documents; expected one");
            yaml_document_delete(document_out);
        }
        yaml_document_delete(&next);
    }
    yaml_parser_delete(&parser);
    return status;
}

const yaml_node_t *wf_yaml_root_value(yaml_document_t *document, const char *key)
{
    return wf_yaml_value(document, yaml_document_get_root_node(document), key);
}

const yaml_node_t *wf_yaml_value(yaml_document_t *document, const yaml_node_t *mapping,
                                 const char *key)
{
    if (mapping == NULL || mapping->type != YAML_MAPPING_NODE) {
        return NULL;
    }
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        yaml_node_t *name = yaml_document_get_node(document, pair->key);
        if (name->type == YAML_SCALAR_NODE && name->data.scalar.length == strlen(key) &&
            memcmp(name->data.scalar.value, key, strlen(key)) == 0) {
            return yaml_document_get_node(document, pair->value);
        }
    }
    return NULL;
}

/* What was found, short enough for a sentence. */
static void describe(const yaml_node_t *node, char out[SHOWN_MAX + 24])
{
    if (node->type == YAML_MAPPING_NODE) {
        strcpy(out, "a mapping");
    } else if (node->type == YAML_SEQUENCE_NODE) {
        strcpy(out, "a list");
    } else {
        snprintf(out, SHOWN_MAX + 24, "\"%.*s\"", SHOWN_MAX, text_of(node));
    }
}

static enum wf_status expected(const struct walk *walk, const yaml_node_t *node, const char *path,
                               const char *what)
{
    char found[SHOWN_MAX + 24];
    describe(node, found);
    return wf_error_set(walk->error, WF_INVALID, "line %lu: %s: expected %s, found %s",
                        line_of(node), path, what, found);
}

static bool is_plain_number(const char *text)
{
    if (text[0] == '0') {
        return text[1] == '\0';
    }
    return text[0] != '\0' && strspn(text, "0123456789") == strlen(text) && strlen(text) <= 19;
}

static enum wf_status check_enum(const struct walk *walk, const cyaml_schema_value_t *schema,
                                 const yaml_node_t *node, const char *path)
{
    const char *words[KEYS_MAX];
    char list[300] = "";
    size_t count = 0;
    for (uint32_t i = 0; i < schema->enumeration.count && count < KEYS_MAX; i++) {
        words[count] = schema->enumeration.strings[i].str;
        if (strcmp(words[count], text_of(node)) == 0) {
            return WF_OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", count ? ", " : "one of ",
                 words[count]);
        count++;
    }
    return expected(walk, node, path, list);
}

static enum wf_status check_scalar(const struct walk *walk, const cyaml_schema_value_t *schema,
                                   const yaml_node_t *node, const char *path)
{
    if (node->type != YAML_SCALAR_NODE) {
        return expected(walk, node, path, "one value");
    }
    if (strlen(text_of(node)) != node->data.scalar.length) {
        return wf_error_set(walk->error, WF_INVALID, "line %lu: %s: the string holds a NUL byte",
                            line_of(node), path);
    }
    switch (schema->type) {
    case CYAML_UINT:
        if (!is_plain_number(text_of(node))) {
            return expected(walk, node, path, "a whole number in decimal digits");
        }
        return WF_OK;
    case CYAML_BOOL:
        if (strcmp(text_of(node), "true") != 0 && strcmp(text_of(node), "false") != 0) {
            return expected(walk, node, path, "true or false");
        }
        return WF_OK;
    case CYAML_ENUM:
        return check_enum(walk, schema, node, path);
    default:
        if (node->data.scalar.length > schema->string.max) {
            char what[64];
            snprintf(what, sizeof what, "at most %u bytes", schema->string.max);
            return expected(walk, node, path, what);
        }
        if (node->data.scalar.length < schema->string.min) {
            return expected(walk, node, path, "a string that is not empty");
        }
        return WF_OK;
    }
}

static bool is_reserved(const struct walk *walk, const char *path)
{
    for (size_t i = 0; i < walk->reserved_count; i++) {
        if (strcmp(walk->reserved[i].path, path) == 0) {
            return true;
        }
    }
    return false;
}

static enum wf_status unknown_key(const struct walk *walk, const yaml_node_t *key, const char *path,
                                  const cyaml_schema_field_t *fields)
{
    if (is_reserved(walk, path)) {
        return wf_error_set(walk->error, WF_UNSUPPORTED,
                            "line %lu: %s is not supported yet by weft %s; take it out",
                            line_of(key), path, WEFT_VERSION);
    }
    const char *words[KEYS_MAX];
    size_t count = 0;
    for (; fields[count].key != NULL && count < KEYS_MAX; count++) {
        words[count] = fields[count].key;
    }
    const char *near = wf_nearest(text_of(key), key->data.scalar.length, words, count);
    char list[400] = "";
    for (size_t i = 0; i < count; i++) {
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", words[i]);
    }
    return wf_error_set(walk->error, WF_INVALID,
                        "line %lu: unknown key \"%.*s\"%s%s%s; expected one of %s", line_of(key),
                        WF_ERROR_TEXT_MAX / 4, path, near != NULL ? ", did you mean \"" : "",
                        near != NULL ? near : "", near != NULL ? "\"?" : "", list);
}

static enum wf_status check_value(const struct walk *walk, const cyaml_schema_value_t *schema,
                                  const yaml_node_t *node, const char *path, int depth);

/* One key: known, given once; then its value. `seen` has the line of each field found so far. */
static enum wf_status check_pair(const struct walk *walk, const cyaml_schema_field_t *fields,
                                 const yaml_node_pair_t *pair, const char *path, int depth,
                                 unsigned long seen[KEYS_MAX])
{
    const yaml_node_t *key = yaml_document_get_node(walk->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(walk->document, pair->value);
    if (key->type != YAML_SCALAR_NODE || strlen(text_of(key)) != key->data.scalar.length) {
        return expected(walk, key, path[0] != '\0' ? path : "the file", "a key that is a word");
    }
    char inner[PATH_MAX_BYTES];
    snprintf(inner, sizeof inner, "%s%s%.64s", path, path[0] != '\0' ? "." : "", text_of(key));
    for (size_t i = 0; fields[i].key != NULL && i < KEYS_MAX; i++) {
        if (strcmp(fields[i].key, text_of(key)) != 0) {
            continue;
        }
        if (seen[i] != 0) {
            return wf_error_set(walk->error, WF_INVALID,
                                "line %lu: %s is given a second time (first on line %lu); keep one",
                                line_of(key), inner, seen[i]);
        }
        seen[i] = line_of(key);
        return check_value(walk, &fields[i].value, value, inner, depth + 1);
    }
    return unknown_key(walk, key, inner, fields);
}

static enum wf_status check_mapping(const struct walk *walk, const cyaml_schema_field_t *fields,
                                    const yaml_node_t *node, const char *path, int depth)
{
    if (node->type != YAML_MAPPING_NODE) {
        return expected(walk, node, path[0] != '\0' ? path : "the file", "a mapping of keys");
    }
    unsigned long seen[KEYS_MAX] = {0};
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        enum wf_status status = check_pair(walk, fields, pair, path, depth, seen);
        if (status != WF_OK) {
            return status;
        }
    }
    for (size_t i = 0; fields[i].key != NULL && i < KEYS_MAX; i++) {
        if (seen[i] == 0 && (fields[i].value.flags & CYAML_FLAG_OPTIONAL) == 0) {
            return wf_error_set(walk->error, WF_INVALID, "line %lu: %s%s%s is missing",
                                line_of(node), path, path[0] != '\0' ? "." : "", fields[i].key);
        }
    }
    return WF_OK;
}

static enum wf_status check_sequence(const struct walk *walk, const cyaml_schema_value_t *schema,
                                     const yaml_node_t *node, const char *path, int depth)
{
    if (node->type != YAML_SEQUENCE_NODE) {
        return expected(walk, node, path, "a list");
    }
    size_t count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    if (count < schema->sequence.min || count > schema->sequence.max) {
        return wf_error_set(walk->error, WF_INVALID,
                            "line %lu: %s: expected %u to %u entries, found %zu", line_of(node),
                            path, schema->sequence.min, schema->sequence.max, count);
    }
    for (size_t i = 0; i < count; i++) {
        char inner[PATH_MAX_BYTES + 16];
        snprintf(inner, sizeof inner, "%s[%zu]", path, i);
        inner[PATH_MAX_BYTES - 1] = '\0';
        const yaml_node_t *item =
            yaml_document_get_node(walk->document, node->data.sequence.items.start[i]);
        enum wf_status status = check_value(walk, schema->sequence.entry, item, inner, depth + 1);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

static enum wf_status check_value(const struct walk *walk, const cyaml_schema_value_t *schema,
                                  const yaml_node_t *node, const char *path, int depth)
{
    if (depth > WF_YAML_DEPTH_MAX) {
        return wf_error_set(walk->error, WF_INVALID, "line %lu: nested deeper than %d",
                            line_of(node), WF_YAML_DEPTH_MAX);
    }
    switch (schema->type) {
    case CYAML_MAPPING:
        return check_mapping(walk, schema->mapping.fields, node, path, depth);
    case CYAML_SEQUENCE:
        return check_sequence(walk, schema, node, path, depth);
    case CYAML_IGNORE:
        return WF_OK;
    default:
        return check_scalar(walk, schema, node, path);
    }
}

enum wf_status wf_yaml_check(yaml_document_t *document, const cyaml_schema_field_t *fields,
                             const struct wf_yaml_reserved *reserved, size_t reserved_count,
                             struct wf_error *error)
{
    struct walk walk = {document, reserved, reserved_count, error};
    return check_mapping(&walk, fields, yaml_document_get_root_node(document), "", 0);
}
