/* engine.h - what a framework is: a table of its tensors, and how its ranks stand.
 *
 * An engine is data plus three small functions. A row says how one tensor is made of parameters:
 * a fuse rule (parts into a whole tensor, as if one rank had it all) and a cut rule (the whole
 * tensor into one rank's). Their product is never written down: wf_nest_compose makes it. Adding an
 * engine is one file and one line in registry.c.
 *
 * Fuse rule. The rows of each part are divided into `groups` equal shares and the tensor is, for
 * each group, that group's share of part 0, then of part 1, ... One group is plain stacking; groups
 * of KV heads make Megatron's linear_qkv; groups of TP ranks make everything that each rank fuses
 * by itself (gate and up, vLLM's qkv). A part with fewer heads than groups gives the same head to
 * several neighbouring groups (KV replication).
 *
 * Cut rule. Whole, by equal ranges of rows, or by equal ranges of columns over the TP ranks. Heads
 * are never split by a cut of columns or of TP groups. `padded` rows are first rounded up to the
 * recipe's vocab_multiple; the rows beyond the vocabulary are fills of zero.
 */
#ifndef WEFT_MODELS_ENGINES_ENGINE_H
#define WEFT_MODELS_ENGINES_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/config.h"
#include "models/families/family.h"
#include "models/recipe.h"
#include "runtime/status.h"

enum { WF_PARTS_MAX = 4, WF_CHUNKS_MAX = 256, WF_PREFIX_MAX = 32 };

enum wf_groups { WF_GROUPS_ONE, WF_GROUPS_KV_HEADS, WF_GROUPS_TP };
enum wf_cut { WF_CUT_NONE, WF_CUT_ROWS, WF_CUT_COLUMNS };

/* Which pipeline chunks have the row. A tied head in the same chunk as the embedding is the
 * embedding itself; in another chunk it is a copy. */
enum wf_place {
    WF_PLACE_LAYER,              /* once per layer of the chunk */
    WF_PLACE_EMBEDDING,          /* the chunk that embeds */
    WF_PLACE_EMBEDDING_OR_COPY,  /* and the chunk of the head, when tied */
    WF_PLACE_HEAD,               /* the chunk that gives logits */
    WF_PLACE_HEAD_UNLESS_SHARED, /* ... unless tied to the embedding of the same chunk */
    WF_PLACE_HEAD_UNTIED,        /* ... when there is a head of its own */
    WF_PLACE_HEAD_TIED,          /* aliases: ... when there is none */
};

struct wf_engine_row {
    const char *name; /* "{layer}" is replaced */
    enum wf_place place;
    enum wf_groups groups;
    enum wf_cut cut;
    bool padded;
    enum wf_role parts[WF_PARTS_MAX]; /* WF_ROLE_NONE ends; a row without its roles is left out */
};

struct wf_engine_rows {
    const struct wf_engine_row *rows;
    size_t count;
};

struct wf_engine_alias {
    const char *name, *target;
    enum wf_place place;
};

/* Part of a rank's model: layers [first_layer, first_layer + layer_count) and maybe the ends. */
struct wf_chunk {
    uint32_t first_layer, layer_count;
    bool embedding, head;
    char prefix[WF_PREFIX_MAX]; /* of the chunk's tensor names */
};

/* A key of the engine's SPEC. */
enum wf_key_kind {
    WF_KEY_SIZE, /* uint32_t at `offset`; `normal` when absent (0: worked out) */
    WF_KEY_VERSION,
    WF_KEY_DTYPE,
    WF_KEY_ACCOUNT,
    WF_KEY_NAMES,
    WF_KEY_ORDER,
    WF_KEY_LAYOUT,
    WF_KEY_LATER, /* of later versions: refused unless it is `only` */
};

struct wf_engine_key {
    const char *name;
    enum wf_key_kind kind;
    size_t offset;
    uint32_t normal, max;
    const char *only;
};

struct wf_engine {
    const char *name;
    const char *const *versions; /* known series, oldest first, NULL-terminated; may be NULL */
    const struct wf_engine_key *keys;
    size_t key_count;
    /* Padding of the vocabulary when no key says otherwise; times TP where `per_tp`. */
    uint32_t vocab_multiple;
    bool vocab_multiple_per_tp;
    bool layers_count_from_chunk;    /* {layer} begins at 0 in every chunk */
    struct wf_engine_rows tables[2]; /* [1] for local names, may be empty */
    const struct wf_engine_alias *aliases;
    size_t alias_count;
    /* What tables cannot say: refuses combinations that this framework does not run. May be NULL.
     */
    enum wf_status (*check)(const struct wf_model *model, const struct wf_recipe *recipe,
                            struct wf_error *error);
    /* The chunks of one pipeline rank, in the framework's order. */
    enum wf_status (*chunks)(const struct wf_model *model, const struct wf_recipe *recipe,
                             uint32_t pp, struct wf_chunk *chunks_out, uint32_t *count_out,
                             struct wf_error *error);
    struct wf_coordinates (*coordinates)(const struct wf_recipe *recipe, uint32_t rank);
};

extern const struct wf_engine *const wf_engines[]; /* NULL-terminated */
extern const struct wf_engine wf_engine_hf, wf_engine_megatron, wf_engine_vllm;

/* The rows in use under this recipe. */
const struct wf_engine_rows *wf_engine_table(const struct wf_recipe *recipe);
/* What a parameter is counted in when it is divided: heads, vocabulary rows or intermediate rows
 * (columns of o and down). */
uint64_t wf_engine_units(const struct wf_model *model, enum wf_role role, const char **what_out);
/* Everything that can be wrong about (model, recipe) whatever the rank: sizes that do not divide,
 * parameters that the engine has no place for, pipelines that do not fit the layers. */
enum wf_status wf_engine_check(const struct wf_model *model, const struct wf_recipe *recipe,
                               struct wf_error *error);

#endif
