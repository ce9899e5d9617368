/* yaml_check.h - walks a YAML document against a libcyaml schema before libcyaml loads it.
 *
 * libcyaml converts well and explains badly: it takes the last of two equal keys, reads 0x10 as a
 * number and reports an unknown key without its line's alternatives. This pass refuses whatever can
 * be read in two ways and writes the sentence a person needs: line, key, what was expected, what
 * was found, the nearest known key. It knows nothing of Weft: the schema is the caller's.
 */
#ifndef WEFT_CONFIG_YAML_CHECK_H
#define WEFT_CONFIG_YAML_CHECK_H

#include <cyaml/cyaml.h>
#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

#include "runtime/status.h"

enum { WF_YAML_BYTES_MAX = 1 << 20, WF_YAML_DEPTH_MAX = 16 };

/* A key that is known but belongs to a later version: "transport.ucx". */
struct wf_yaml_reserved {
    const char *path;
};

/* Parses `text`. The document belongs to the caller (yaml_document_delete) when OK. Refuses syntax
 * errors, no or several documents, aliases, and NUL in strings. */
enum wf_status wf_yaml_parse(const char *text, size_t len, yaml_document_t *document_out,
                             struct wf_error *error);
/* The value of `key` in a mapping, or NULL. */
const yaml_node_t *wf_yaml_value(yaml_document_t *document, const yaml_node_t *mapping,
                                 const char *key);
/* The value of `key` in the root mapping, or NULL. */
const yaml_node_t *wf_yaml_root_value(yaml_document_t *document, const char *key);
/* Checks the whole document against `fields` of its root mapping; values that the schema ignores
 * are the caller's to check. `reserved` (count of them)
 * are dotted paths that are refused as "not supported yet". */
enum wf_status wf_yaml_check(yaml_document_t *document, const cyaml_schema_field_t *fields,
                             const struct wf_yaml_reserved *reserved, size_t reserved_count,
                             struct wf_error *error);

#endif
