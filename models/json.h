/* json.h - the one door for JSON: json-c's tree and writer behind a reader that refuses more.
 *
 * Refused, with line and column: a key given twice in one object (compared after its escapes),
 * nesting deeper than 64, more than `WF_JSON_BYTES_MAX` bytes, invalid UTF-8, anything after the
 * value, comments, and in strict mode integers beyond 64 bits, halves of surrogate pairs and keys
 * that hold NUL. WF_JSON_PYTHON also accepts what Python's json writes: NaN, Infinity, integers of
 * any size (they become doubles, so they are no integer later), lone surrogates, and a byte-order
 * mark; a member whose key holds NUL is left out. After parsing, use json-c's own functions to
 * walk; strings may hold NUL, so compare with their length. Keys never do.
 *
 * Pure apart from json-c's allocations; any thread.
 */
#ifndef WEFT_MODELS_JSON_H
#define WEFT_MODELS_JSON_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

enum { WF_JSON_STRICT = 0, WF_JSON_PYTHON = 1 };
enum { WF_JSON_BYTES_MAX = 128 << 20 };

/* Gives *value_out (NULL for the text "null"); free with json_object_put. */
enum wf_status wf_json_parse(const char *text, size_t len, unsigned flags,
                             struct json_object **value_out, struct wf_error *error);
/* A needed integer of object `object`: NOT_FOUND if absent or null (no sentence written when
 * `error` is NULL), INVALID if it is no integer or not in [min, max]. A float with an integral
 * value is no integer. */
enum wf_status wf_json_get_u64(struct json_object *object, const char *key, uint64_t min,
                               uint64_t max, uint64_t *value_out, struct wf_error *error);
/* Absent and null give `*value_out` unchanged and NOT_FOUND; other than true/false is INVALID. */
enum wf_status wf_json_get_bool(struct json_object *object, const char *key, bool *value_out,
                                struct wf_error *error);

#endif
