/* config.h - a model's config.json, and the canonical inventory that follows from it.
 *
 * The inventory is the list of parameters: the checkpoint's tensors by canonical (Hugging Face)
 * name, unpadded and unfused. Everything that names a parameter by number means its index here, so
 * the order is part of the format: order of the family's table, layers ascending.
 *
 * Parsing is strict where a number is needed and deaf where it is not: an unneeded key of any
 * content is ignored; a needed one must be an integer in range; a key given twice is refused; a
 * flag that would add tensors which this build does not know is refused, never dropped; an unknown
 * family is refused, never treated like its nearest relative.
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

enum { WF_SHAPE_MAX = 4, WF_NAME_MAX = 256, WF_LAYERS_MAX = 4096 };

struct wf_param {
    const char *name; /* owned by the model */
    uint32_t ndim;
    uint64_t shape[WF_SHAPE_MAX];
    uint64_t elements;
    enum wf_dtype dtype; /* the config's torch_dtype unless the family says otherwise */
    uint32_t layer;      /* WF_NO_LAYER outside the layers */
    uint32_t role;       /* enum wf_role, models/families/family.h */
};
#define WF_NO_LAYER UINT32_MAX

/* The sizes a family's expressions use (names of the shared notation in docs/how-it-works.md). */
struct wf_model {
    const struct wf_family *family;
    char model_type[64];
    uint64_t hidden, layers, vocab, query_heads, kv_heads, head_dim, intermediate;
    bool tied, attention_bias, mlp_bias, qk_norm;
    enum wf_dtype dtype;
    struct wf_param *params;
    uint32_t param_count;
    struct wf_hash hash; /* of all of the above */
    void *names;         /* index by name; private */
};

/* `text` is the JSON of a config (len bytes, no NUL needed). Gives *model_out. */
enum wf_status wf_model_parse(const char *text, size_t len, struct wf_model **model_out,
                              struct wf_error *error);
void wf_model_free(struct wf_model *model);
/* The same family and sizes with another layer count (make-checkpoint --layers, tests). */
enum wf_status wf_model_with_layers(const struct wf_model *model, uint64_t layers,
                                    struct wf_model **model_out, struct wf_error *error);
/* Index of a parameter by name, or UINT32_MAX. */
uint32_t wf_model_find(const struct wf_model *model, const char *name, size_t len);

#endif
