/* family.h - what a model family is: how its config reads, and which parameters follow from it.
 *
 * A family is data: texts and expressions (models/expr.h). The built-in ones are tables in this
 * folder; a user's is a YAML file of the same fields (families/file.h, docs/add-a-model.md). Both
 * pass wf_family_check, and nothing else knows any family by name. A family says nothing of
 * engines, except where an engine's own naming of this family departs from the engine's rule
 * (`engines`): the exception stands beside what it is an exception of.
 *
 * Sizes. Each has a short name for expressions and says which key of the config gives it. Names in
 * common use: H hidden, L layers, V vocabulary, nq query heads, nk KV heads, d head size, F dense
 * intermediate, E routed experts, I expert intermediate, S shared expert intermediate (total);
 * MLA: qr q_lora_rank, c kv_lora_rank, dn, dr, dv; delta nets: gk, gv heads, ek, ev head sizes, kc
 * kernel. H, L and V must exist; `tied` too (0 or 1). None of these four varies with the layer, nor
 * do E, fp8, fp8_rows, mxfp4 and packed.
 * Where `packed` is 1 the checkpoint's weights are packed in a way that no row says: parameters are
 * the unpacked model's, and engines that hold the packed ones must refuse.
 *
 * Stacks. What is repeated: the layers, layers that predict further tokens, blocks of a vision
 * tower. A row that belongs to a stack begins its name with "{layers}", which becomes the stack's
 * prefix with its number in it; one row may belong to several stacks. In its expressions `layer` is
 * the number (first + index), `index` counts from 0, and the name of any stack but "layer" is 1
 * in that stack and 0 elsewhere.
 *
 * Parameters are the checkpoint's tensors, except experts: always one parameter per expert and
 * matrix, gate and up apart, in [out, in] order ("{expert}" in the name), whatever form the
 * checkpoint has; the rows of engine "hf" (the checkpoint's files) and "memory" (the state dict in
 * memory, what FSDP shards) say how they are stored where it differs.
 */
#ifndef WEFT_MODELS_FAMILIES_FAMILY_H
#define WEFT_MODELS_FAMILIES_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/config.h"
#include "runtime/status.h"

struct wf_engine_row; /* models/engines/engine.h */
struct wf_engine_alias;

enum {
    WF_FAMILY_SIZES_MAX = 80,
    WF_FAMILY_STACKS_MAX = 8,
    WF_FAMILY_ROWS_MAX = 256,
    WF_FAMILY_TYPES_MAX = 16,
};

struct wf_family_size {
    const char *name; /* in expressions */
    /* Keys, parted by |, the first that is present and not null counts. "a.b" looks into an object;
     * a key is looked for in the text config first (`text_config` of the family), then at the top;
     * ".a" at the top only; "a.0" is an entry of a list, "#a" the number of its entries. NULL: only
     * `otherwise`. */
    const char *key;
    /* Expression over the sizes above when no key is there; NULL: one is needed. In it, `null` is 1
     * where the key is there and null. A number may be 0 only where this is "0". */
    const char *otherwise;
    /* NULL: a number. "true": true or false; "*": 1 whatever is there. Else the value is 1 where
     * the key's text equals one of these (parted by |), and where the key is a list, where its
     * entry for this layer does;
     * "@layer": a list of numbers, 1 where it has this layer. Lists say 0 of members of other
     * stacks than "layer". */
    const char *match;
};

struct wf_family_stack {
    const char *name;   /* "layer", "mtp", "vision": also a name in expressions */
    const char *prefix; /* "model.layers.{i}." */
    const char *count;  /* expression over sizes: how many; 0 is none */
    const char *first;  /* expression: the first one's number; NULL: 0 */
};

struct wf_family_row {
    const char *role;  /* "q", "expert_gate", "final_norm": engines name these, never HF names */
    const char *name;  /* "{layers}self_attn.q_proj.weight", "lm_head.weight" */
    const char *shape; /* an expression for each dimension, parted by commas */
    /* Names parted by spaces; NULL: "layer" if the name has {layers}. A name without {layers} can
     * be in a stack of one member only. */
    const char *stacks;
    /* Expression; NULL: always. In it and in `dtype`, `excluded` is 1 where the config says that
     * the row's module is not quantised (modules_to_not_convert; models/config_excluded.c). */
    const char *when;
    /* What the dimension that engines cut is counted in ("nq" heads of d rows); NULL: its own rows
     * or columns. Nothing ever cuts inside a unit, and what has fewer units than ranks is
     * replicated where an engine does so. */
    const char *unit;
    const char *dtype; /* "f32", "u8", ...; "f8_e4m3: EXPRESSION" where it holds, else the
                        * config's; NULL: the config's */
};

/* An engine's exceptions for this family. */
struct wf_family_engine {
    const char *engine;  /* "vllm", "sglang", "megatron", "hf", "memory" */
    const char *renames; /* "FROM=>TO FROM=>TO": applied in order to names the engine derives from
                          * canonical ones, each at its first place; NULL: none */
    const struct wf_engine_row *rows; /* take the place of the engine's rows for their roles */
    size_t row_count;
    const struct wf_engine_alias *aliases; /* beside the engine's */
    size_t alias_count;
    const char *prefix; /* {top} in the engine's names: "language_model."; NULL: nothing */
    /* As a family's `requires`, with what expressions of rows know: what this framework's class of
     * the family does not run. "pp == 1: SGLang's Qwen3-Next class has no pipeline stages". */
    const char *requires;
    /* "ROLE ROLE": weights that this framework's class of the family holds in block fp8 unless the
     * config's list leaves them, beside those whose rows say so; NULL: none. As checkpoints hold
     * them in the model's dtype, a config without them is refused (engines/unlisted.c). */
    const char *quantised;
    /* "ROLE<ROLE ...": for "memory", parameters that a module registers before others against the
     * order that most have (engines/fsdp_flat.c). */
    const char *order;
};

struct wf_family {
    const char *name;        /* as in messages and hashes */
    const char *model_types; /* of the config, parted by | */
    const char *text_config; /* key of the nested text model's config; NULL: none */
    /* Keys parted by | that must be absent, null, false, 0 or empty: they would add tensors, or
     * change what one holds, in ways this family does not say. "key: what it adds". */
    const char *refused;
    const struct wf_family_size *sizes;
    size_t size_count;
    const struct wf_family_stack *stacks;
    size_t stack_count;
    const struct wf_family_row *rows;
    size_t row_count;
    const struct wf_family_engine *engines;
    size_t engine_count;
    /* Expressions that must be 1, each with the sentence that is said when not, parted by '|':
     * "nq % nk == 0: num_attention_heads is no multiple of num_key_value_heads". */
    const char *requires;
};

extern const struct wf_family *const wf_families[]; /* built in; NULL-terminated */

/* Everything a table can get wrong: names that no size has, roles given twice in one stack, shapes
 * that are none, stacks that do not exist, engine rows of unknown roles. INVALID with a sentence.
 * The test of the built-in tables and the reader of users' files are the same function. */
enum wf_status wf_family_check(const struct wf_family *family, struct wf_error *error);
/* Whether a row belongs to a stack, or (WF_NONE) to none. */
bool wf_family_row_in_stack(const struct wf_family *family, const struct wf_family_row *row,
                            uint32_t stack);
/* Index of a row by role among the rows of a stack (UINT32_MAX stands for no stack), or UINT32_MAX.
 */
uint32_t wf_family_find_row(const struct wf_family *family, uint32_t stack, const char *role,
                            size_t len);

#endif
