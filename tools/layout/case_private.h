/* case_private.h - what the readers of case.json share: one function for each framework that turns
 * it into SPEC text, and the helpers that they use.
 *
 * A framework's function is given the model, which was read before, and may add to `it` what no
 * SPEC says (a placement of experts). It reads every key that a layout follows from and refuses
 * (UNSUPPORTED, with a sentence) what it does not know.
 */
#ifndef WEFT_TOOLS_LAYOUT_CASE_PRIVATE_H
#define WEFT_TOOLS_LAYOUT_CASE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

#include "tools/layout/case.h"

/* SPEC text being collected. */
struct wf_case_spec {
    char text[WF_SPEC_MAX]; /* begins with "ENGINE:" */
    size_t used;
    bool full; /* something did not fit: refused at the end */
};

typedef enum wf_status wf_case_reader_t(struct json_object *root, struct wf_case *it,
                                        struct wf_case_spec *spec, struct wf_error *error);
wf_case_reader_t wf_case_megatron, wf_case_fsdp, wf_case_vllm, wf_case_sglang;

void wf_case_put(struct wf_case_spec *spec, const char *key, const char *value, size_t len);
void wf_case_put_number(struct wf_case_spec *spec, const char *key, uint64_t number);
/* "version" up to the first space: "0.20.0 (NVIDIA/Megatron-LM ...)". */
enum wf_status wf_case_put_version(struct wf_case_spec *spec, struct json_object *root,
                                   struct wf_error *error);
/* Sizes under "parallel"; an absent one is the SPEC's default. */
enum wf_status wf_case_put_parallel(struct wf_case_spec *spec, struct json_object *root,
                                    const char *const *keys, size_t count, struct wf_error *error);

/* The value at a key, or NULL where absent or null. */
struct json_object *wf_case_get(struct json_object *object, const char *key);
/* The string at a key, or NULL. Not owned. */
const char *wf_case_text(struct json_object *object, const char *key, size_t *len_out);
bool wf_case_text_begins(struct json_object *object, const char *key, const char *begin);
enum wf_status wf_case_need_text(struct json_object *object, const char *key, const char **text_out,
                                 size_t *len_out, struct wf_error *error);
bool wf_case_is_true(struct json_object *value);

/* What an option of an engine becomes: its number, its text, or `value` (1) for true, at `key` of
 * the SPEC. With a `word` only that text is known, and becomes `value`. Without a key: nothing. */
struct wf_case_option {
    const char *name; /* "engine_options.eplb_config.num_redundant_experts" */
    const char *key, *word, *value;
};
/* Every member of `map` (which stands at `path`, and may be NULL); one without a row is refused. */
enum wf_status wf_case_put_options(struct wf_case_spec *spec, struct json_object *map,
                                   const char *path, const struct wf_case_option *options,
                                   size_t count, struct wf_error *error);
/* "model_dtype". */
enum wf_status wf_case_put_dtype(struct wf_case_spec *spec, struct json_object *root,
                                 struct wf_error *error);
/* "stage": before or after the hooks that rewrite weights. */
enum wf_status wf_case_put_stage(struct wf_case_spec *spec, struct json_object *root,
                                 struct wf_error *error);
/* "quant_methods": one that is not known is refused. */
enum wf_status wf_case_check_methods(struct json_object *root, const char *const *known,
                                     size_t count, struct wf_error *error);

#endif
