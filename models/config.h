/* config.h - a model's config.json, and the canonical inventory that follows from it.
 *
 * The inventory is the list of parameters by canonical (Hugging Face) name, unpadded and unfused
 * (families/family.h says what a parameter is). Everything that names a parameter by number means
 * its index here, so the order is part of the format: order of the family's rows; neighbouring rows
 * with a stack are repeated for each of its members, stack after stack, neighbouring rows with
 * "{expert}" for each expert.
 *
 * Parsing is strict where a number is needed and deaf where it is not: an unneeded key of any
 * content is ignored; a needed one must be an integer in range; a key given twice is refused; a
 * flag that would add tensors which the family does not know is refused, never dropped; an unknown
 * family is refused, never treated like its nearest relative.
 *
 * A model is read-only after it was made and may be used from any thread.
 */
#ifndef WEFT_MODELS_CONFIG_H
#define WEFT_MODELS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/dtype.h"
#include "models/hash.h"
#include "runtime/status.h"

struct wf_family; /* models/families/family.h */
struct wf_manifest_set;
struct wf_variants; /* models/variant.h */

enum { WF_SHAPE_MAX = 5, WF_NAME_MAX = 256, WF_LAYERS_MAX = 4096, WF_EXPERTS_MAX = 8192 };
#define WF_NONE UINT32_MAX /* no stack, no index, no expert, no parameter */

struct wf_param {
    const char *name; /* owned by the model */
    uint32_t ndim;
    uint64_t shape[WF_SHAPE_MAX];
    uint64_t elements;
    enum wf_dtype dtype;   /* the config's torch_dtype unless the family says otherwise */
    bool own_dtype;        /* the family says the dtype, not the config */
    uint32_t row;          /* of the family: its role, unit, ... */
    uint32_t stack, index; /* which member of which stack, or WF_NONE */
    uint32_t expert;       /* or WF_NONE */
};

struct wf_model {
    const struct wf_family *family;
    char model_type[64];
    enum wf_dtype dtype;
    struct wf_param *params;
    uint32_t param_count;
    uint64_t layers;     /* size L */
    bool tied;           /* size tied */
    struct wf_hash hash; /* of family, sizes and parameters */
    /* Of a job's model of which some groups hold the weights quantised; owned; else NULL. */
    struct wf_variants *variants;
    /* Of a job's model some groups of which have manifests (models/manifest_set.h); owned. */
    struct wf_manifest_set *manifests;
    void *memory; /* private: sizes, lists, names, index of parameters */
};

/* `text` is the JSON of a config (len bytes, no NUL needed); `extra` are further families that go
 * before the built-in ones (NULL-terminated, may be NULL; must outlive the model). */
enum wf_status wf_model_parse(const char *text, size_t len, const struct wf_family *const *extra,
                              struct wf_model **model_out, struct wf_error *error);
void wf_model_free(struct wf_model *model);
/* The same family and sizes with another layer count (make-checkpoint --layers, tests); per-layer
 * lists are cut, or refused where they are too short. Of a model without variants. */
enum wf_status wf_model_with_layers(const struct wf_model *model, uint64_t layers,
                                    struct wf_model **model_out, struct wf_error *error);
/* Index of a parameter by name, or WF_NONE. */
uint32_t wf_model_find(const struct wf_model *model, const char *name, size_t len);
/* The parameter of a family's row in a member of a stack (WF_NONE outside), for one expert (0
 * where the row has none), or WF_NONE where the model has none; with variants those of the plain
 * view. Constant time. */
uint32_t wf_model_param(const struct wf_model *model, uint32_t stack, uint32_t index, uint32_t row,
                        uint32_t expert);
/* How the config calls its quantisation, for sentences: "modelopt NVFP4", "awq"; "" for none. */
const char *wf_model_packing(const struct wf_model *model);
/* How engines read the list of modules that a block fp8 checkpoint leaves as they are. */
enum wf_excluded_by {
    WF_EXCLUDED_BY_NAME,  /* an entry is a module's whole name [vLLM 0.33: fp8.py, "exact"] */
    WF_EXCLUDED_BY_WORDS, /* an entry is words of it, in a row [SGLang 0.5.23: layers/quantization/
                           * utils.py, _module_path_match] */
    WF_EXCLUDED_BY_PATTERN, /* compressed-tensors' own way, in both: names and "re:" */
};
/* Whether the config's list, so read, has the module of a weight. */
bool wf_model_leaves(const struct wf_model *model, const struct wf_param *param,
                     enum wf_excluded_by by);
/* Whether that list was cut for reading: an entry begins with "...". */
bool wf_model_list_is_cut(const struct wf_model *model);
/* How many members a stack of the family has in this model. */
uint32_t wf_model_stack_count(const struct wf_model *model, uint32_t stack);

/* A place of the model in which expressions are read. */
struct wf_model_at {
    const struct wf_model *model;
    uint32_t stack, index; /* WF_NONE outside the stacks */
};
/* wf_expr_lookup_t over a wf_model_at: sizes, `layer`, `index`, names of stacks. */
bool wf_model_lookup(void *at, const char *name, size_t len, uint64_t *value_out);
/* A size by name (for tools and tests), or 0. */
uint64_t wf_model_size(const struct wf_model *model, const char *name);

#endif
