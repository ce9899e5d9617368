/* family.h - what a model family is: a table of its checkpoint's tensors, and how its config reads.
 *
 * A family is data. Adding one is one file with one `const struct wf_family` and one line in
 * registry.c; nothing else knows any family by name, except the engines' own refusals.
 *
 * Rows whose name holds "{layer}" stand together and are repeated per layer. A shape is one
 * expression per dimension, parted by commas; an expression is a sum of products of sizes
 * ("nq*d,H", "V,H") with the names of wf_sizes in config_inventory.c:
 *   H hidden, L layers, V vocabulary, nq query heads, nk KV heads, d head size, F intermediate.
 */
#ifndef WEFT_MODELS_FAMILIES_FAMILY_H
#define WEFT_MODELS_FAMILIES_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/config.h"

/* What a parameter is to a model. Engines name roles, never Hugging Face names. */
enum wf_role {
    WF_ROLE_NONE,
    WF_ROLE_EMBEDDING,
    WF_ROLE_INPUT_NORM,
    WF_ROLE_Q,
    WF_ROLE_K,
    WF_ROLE_V,
    WF_ROLE_Q_BIAS,
    WF_ROLE_K_BIAS,
    WF_ROLE_V_BIAS,
    WF_ROLE_Q_NORM,
    WF_ROLE_K_NORM,
    WF_ROLE_O,
    WF_ROLE_O_BIAS,
    WF_ROLE_POST_NORM, /* between attention and MLP */
    WF_ROLE_GATE,
    WF_ROLE_UP,
    WF_ROLE_DOWN,
    WF_ROLE_GATE_BIAS,
    WF_ROLE_UP_BIAS,
    WF_ROLE_DOWN_BIAS,
    WF_ROLE_FINAL_NORM,
    WF_ROLE_HEAD, /* no parameter of its own when tied: the embedding stands for it */
    WF_ROLE_COUNT
};

/* When a row exists. */
enum wf_family_when {
    WF_ROW_ALWAYS,
    WF_ROW_ATTENTION_BIAS,
    WF_ROW_MLP_BIAS,
    WF_ROW_UNTIED,
};

struct wf_family_row {
    enum wf_role role;
    enum wf_family_when when;
    const char *name, *shape;
};

/* How a flag of the config reads. */
enum wf_family_switch {
    WF_SWITCH_KEY,    /* the config's key; absent and null mean false */
    WF_SWITCH_ALWAYS, /* part of the architecture; the key is not looked at */
    WF_SWITCH_NEVER,  /* the family has no such tensors: the key must not be true */
};

struct wf_family {
    const char *name;       /* as in messages and hashes */
    const char *model_type; /* of the config */
    const struct wf_family_row *rows;
    size_t row_count;
    enum wf_family_switch attention_bias, mlp_bias;
    bool qk_norm;
    bool tied_if_absent;
    /* What an absent key means in this family's library class; 0: as many KV heads as query heads,
     * and hidden / heads. */
    uint64_t kv_heads_if_absent, head_dim_if_absent;
};

extern const struct wf_family *const wf_families[]; /* NULL-terminated */
extern const struct wf_family wf_family_llama, wf_family_mistral, wf_family_qwen2, wf_family_qwen3;

#endif
