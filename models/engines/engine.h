/* engine.h - what a framework is: a table of its tensors, and how its ranks stand.
 *
 * An engine is data plus a few small functions. A row says how one tensor is made of parameters.
 * models/layout_derive.c makes every tensor in the same four steps, each an affine nest, and
 * composes them; their product is never written down:
 *
 *   part   a parameter, or a regular share of its rows                      parts
 *   fuse   parts -> a whole two-dimensional tensor, as if one rank had it   groups
 *   cut    whole tensor -> this rank's                                      pad, cuts
 *   view   this rank's rows and columns -> the order in memory              slots, view, shape
 *
 * Parts. "q k v": roles of the family, in the order in which they are fused. "a|b|c" stands for
 * three rows with one part each; "*" for one row for each role of the family that no row before has
 * at that place.
 * A part in brackets is a share of the parameter's rows: the rows are factored, and of a factor
 * "@LO:HI" takes a range and "@N" one: "qkvz(gk, 2*ek+2*gv/gk*ev@0:ek)" is q of Qwen3-Next's fused
 * parameter, "q(nq, 2@1, d)" the gates of a gated q. What is taken of the first factor is what the
 * part is counted in (its unit); without brackets the family's row says that. A factor "*N" repeats
 * what is before it N times: "scale(I / 128, *2)" is every row twice; factors of the columns follow
 * a semicolon, "scale(I / 128, *2; H / 128, *2)"; such a part is counted in its
 * rows.
 *
 * Groups. The rows of each part are divided into `groups` equal shares and the tensor is, for each
 * group, that group's share of part 0, then of part 1, ... One group is plain stacking; nk groups
 * make Megatron's linear_qkv; groups of TP ranks make everything that each rank fuses by itself
 * (gate and up, vLLM's qkv); as many groups as rows interleave. A part with fewer units than groups
 * gives the same unit to several neighbouring groups (KV replication).
 *
 * Cuts, in order, parted by spaces: "0/tp" divides rows over the ranks of a group, "1/tp" columns;
 * equal shares, no unit split where a part has units. "0~dp" is torch's chunk rule: shares of
 * ceil(n / ranks), then a short one, then empty ones. `pad` first rounds the dimension of the first
 * cut up to a multiple, each part for itself; "E1;E2" also rounds what is left of it after all cuts
 * up to a multiple of E2; what is beyond is a fill of `fill` bytes. Groups, pads and factors follow
 * from sizes and the recipe alone: they are the same for every layer with the same sizes.
 *
 * Experts. A row whose parts are per expert is one tensor for each expert that this rank has when
 * its name has {slot} (counted here), {expert} (counted in the model) or {name}, and else one
 * tensor with a leading dimension of those experts; each is fused and cut by itself. `extra` adds
 * slots behind them: "COUNT: PARTS", with x counting them ("ns: shared_gate(ns@x, I)
 * shared_up(ns@x, I)").
 *
 * View. "e (g:2 i a:8 b:2) (k l:64) -> e k i b g a l": dimensions (e slots if there are any, rows,
 * columns) factored, and the order of the factors in memory. One factor of a dimension may be
 * without a size. NULL: as they stand. `shape` gives the local shape where it is not (slots, rows,
 * further dimensions of the first part): expressions parted by commas, with `slots`, `rows` and
 * `columns` (local). `order` lists the dimensions of that shape by falling stride ("0 2 1") where
 * memory does not follow it.
 *
 * Names. {layers}: the engine's prefix of the stack, number included; {i}: that number alone;
 * {top}: the `prefix` of the family's exceptions (a text model inside a larger one). {name}: the
 * first part's canonical name; {dir}: that up to its module ("...self_attn." of
 * "...self_attn.q_proj.weight"); {leaf}: its last word; {experts}: up to "{expert}"
 * ("...mlp.experts."). Those four go through the family's renames for this engine. The chunk's
 * prefix comes before everything.
 *
 * Expressions know what models/config.h's wf_model_lookup knows at the row's place; every key of
 * the engine's SPEC by its name (flags and numbers), words as "KEY.WORD"; `version` as major *
 * 1,000,000 + minor * 1,000 + patch; `embeds`, `heads` and `norms`: whether this chunk embeds,
 * gives logits, has the final norm; GROUP_size and GROUP_rank for the names of wf_groups[]; `chunk`
 * and `chunks` of this rank; `predicts`: whether this chunk has members of stack "mtp"; `has.ROLE`:
 * whether the model has that role's parameter at the row's place; `dims`: dimensions of the first
 * part's parameter. A name that only sizes or stacks
 * of other built-in families have is 0: rows speak of all families. A size that varies with the
 * layer has no value outside the stacks, where `requires` is read.
 */
#ifndef WEFT_MODELS_ENGINES_ENGINE_H
#define WEFT_MODELS_ENGINES_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/config.h"
#include "models/families/family.h"
#include "models/piece.h"
#include "models/recipe.h"
#include "runtime/status.h"

struct wf_layout; /* models/layout.h */

enum { WF_PARTS_MAX = 12, WF_CHUNKS_MAX = 256, WF_PREFIX_MAX = 32, WF_SLOTS_MAX = 8192 };
_Static_assert((int)WF_EXPERTS_MAX <= (int)WF_SLOTS_MAX, "each expert of a model can have a slot");

enum wf_row_kind {
    WF_ROW_WEIGHTS,
    WF_ROW_DERIVED, /* computed by the engine from its parts after they were written: no pieces */
    WF_ROW_KEEP,    /* never written (scales until calibrated) */
    WF_ROW_VIEW,    /* a view into another tensor's memory, listed under a name of its own */
    WF_ROW_ABSENT,  /* this engine has no such tensor, and needs none: no tensor at all */
};

struct wf_engine_row {
    const char *name, *parts;
    const char *when; /* expression; NULL: always. Of several rows with one part any may hold */
    const char *groups, *pad, *cuts, *fill; /* NULL: 1, none, whole, 0 */
    const char *extra, *view, *shape, *order;
    const char *dtype; /* NULL: the recipe's where the parameter has the model's, else its own;
                        * "f32"; "model": the recipe's whatever the parameter has;
                        * "config": the config's whatever the recipe says;
                        * "f32: EXPR" f32 where EXPR holds, else as NULL */
    const char
        *data_when; /* expression; where it is 0 the whole tensor is fill. NULL: always data */
    enum wf_row_kind kind;
    enum wf_value_rule value; /* of all its parts */
};

/* A second name of the tensor whose first part has the role; without a name, in a family: the
 * engine's own aliases of the role do not hold. */
struct wf_engine_alias {
    const char *role, *name, *when;
};

/* Of several for one stack the first that holds. */
struct wf_engine_stack {
    const char *stack, *prefix; /* "layer", "{top}decoder.layers.{i}." */
    const char *when;           /* expression; NULL: always */
};

/* Part of a rank's model. */
struct wf_chunk {
    uint32_t first_layer, layer_count; /* of stack "layer" */
    uint32_t first_mtp, mtp_count;     /* of stack "mtp" */
    bool embedding, head;
    bool final_norm; /* where it does not stand with the head */
    bool others;     /* all members of all other stacks (vision) */
    char prefix[WF_PREFIX_MAX];
};

/* A key of the engine's SPEC. Numbers, flags and words are a uint32_t at `offset` of the recipe. */
enum wf_key_kind {
    WF_KEY_SIZE, /* `normal` when absent (0: worked out), 1..max when given */
    WF_KEY_FLAG, /* 0 or 1 */
    WF_KEY_WORD, /* index into `words` (parted by |) */
    WF_KEY_VERSION,
    WF_KEY_DTYPE,
    WF_KEY_ACCOUNT,
    WF_KEY_ORDER, /* of the axes in `words` (parted by |), named as their SIZE keys; `only`: when
                   * absent */
    WF_KEY_LAYOUT,
    WF_KEY_REFUSED, /* known and refused with the sentence in `words`, unless it is `only` */
};

struct wf_engine_key {
    const char *name;
    enum wf_key_kind kind;
    size_t offset;
    uint32_t normal, max;
    const char *words;
    const char *only;
};

/* Which view of a job's model (models/variant.h) the engine's ranks have. */
enum wf_engine_view {
    WF_VIEW_CONFIG, /* the config's: a checkpoint */
    WF_VIEW_PLAIN,  /* trainers */
    WF_VIEW_SPEC,   /* what `quant` of the SPEC says */
};

struct wf_engine {
    const char *name;
    enum wf_engine_view view;
    const char *const *versions; /* known series, oldest first, NULL-terminated; may be NULL */
    const struct wf_engine_key *keys;
    size_t key_count;
    /* Padding of the vocabulary when no key says otherwise; times TP where `per_tp`. It is the
     * value of the recipe's vocab_multiple, in expressions `vocab_multiple`. */
    uint32_t vocab_multiple;
    bool vocab_multiple_per_tp;
    bool layers_count_from_chunk;    /* {i} begins at 0 in every chunk */
    enum wf_excluded_by excluded_by; /* how it reads a block fp8 config's list */
    const char *exceptions;     /* which wf_family_engine is this engine's; NULL: its own name */
    const char *skipped_stacks; /* not in this engine's model: "mtp" */
    const struct wf_engine_stack *stacks; /* prefixes; a stack that is not here has none */
    size_t stack_count;
    const struct wf_engine_row *rows;
    size_t row_count;
    const struct wf_engine_alias *aliases;
    size_t alias_count;
    /* What is wrong about a recipe alone, whatever the model: `coordinates` may rely on it. May be
     * NULL. */
    enum wf_status (*check_recipe)(const struct wf_recipe *recipe, struct wf_error *error);
    /* As a family's `requires`, with what expressions of rows know: what this framework does not
     * run whatever the family. UNSUPPORTED with the sentence. NULL: nothing */
    const char *requires;
    /* What tables cannot say: refuses combinations that this framework does not run. May be NULL.
     */
    enum wf_status (*check)(const struct wf_model *model, const struct wf_recipe *recipe,
                            struct wf_error *error);
    /* The chunks of one pipeline rank, in the framework's order. */
    enum wf_status (*chunks)(const struct wf_model *model, const struct wf_recipe *recipe,
                             uint32_t pp, struct wf_chunk *chunks_out, uint32_t *count_out,
                             struct wf_error *error);
    struct wf_coordinates (*coordinates)(const struct wf_recipe *recipe, uint32_t rank);
    /* The experts of this rank's slots in one member of a stack that has experts, in the order of
     * the slots; gives their count (0 where the model has none). NULL: contiguous equal shares over
     * WF_GROUP_EP. */
    enum wf_status (*experts)(const struct wf_model *model, const struct wf_recipe *recipe,
                              const struct wf_coordinates *at, uint32_t layer,
                              uint32_t slots_out[WF_SLOTS_MAX], uint32_t *count_out,
                              struct wf_error *error);
    /* Makes the rank's layout from the one that the table gives, where a tensor depends on others
     * (flat parameters). Takes `whole` and gives *layout_out. May be NULL. */
    enum wf_status (*finish)(const struct wf_model *model, const struct wf_recipe *recipe,
                             uint32_t rank, struct wf_layout *whole, struct wf_layout **layout_out,
                             struct wf_error *error);
    /* Gives a rank's layout where no table does; such an engine has no rows. NULL: the rows do. */
    enum wf_status (*layout)(const struct wf_model *model, const struct wf_recipe *recipe,
                             uint32_t rank, struct wf_layout **layout_out, struct wf_error *error);
};

extern const struct wf_engine *const wf_engines[]; /* NULL-terminated */
extern const struct wf_engine wf_engine_hf, wf_engine_megatron, wf_engine_fsdp, wf_engine_vllm,
    wf_engine_sglang, wf_engine_manifest;

/* The first parameter of the role anywhere in the model, and its name; NULL: there is none. */
const struct wf_param *wf_engine_find_param(const struct wf_model *model, const char *role);
const char *wf_engine_find_role(const struct wf_model *model, const char *role);
/* The axes of a recipe's order that are among `names`, fastest first, as indices into `names`;
 * gives their count. Those it leaves out have size 1. */
uint32_t wf_engine_axes(const char *order, const char *const *names, uint32_t count,
                        uint32_t *axes_out);
/* For trainers, whose tensors are not quantised: UNSUPPORTED where the model's config says that its
 * weights are. */
enum wf_status wf_engine_refuse_quantised(const struct wf_model *model, struct wf_error *error);
/* UNSUPPORTED where the model's weights are packed in a way that no row says (several formats in
 * one checkpoint, awq), or that `engine` is not known to hold (nvfp4): a layout would be a wrong
 * one, told by no shape. */
enum wf_status wf_engine_refuse_packed(const struct wf_model *model, const struct wf_engine *engine,
                                       struct wf_error *error);
/* Of an engine that holds block fp8 as its config says: UNSUPPORTED where it reads the config's
 * list of modules that are not quantised otherwise than the family's rows do. */
enum wf_status wf_engine_refuse_unlisted(const struct wf_model *model,
                                         const struct wf_engine *engine, struct wf_error *error);
/* Everything that can be wrong about (model, recipe) whatever the rank: sizes that do not divide,
 * parameters that the engine has no place for, pipelines that do not fit the layers. */
enum wf_status wf_engine_check(const struct wf_model *model, const struct wf_recipe *recipe,
                               struct wf_error *error);
/* What can be wrong about an engine's (or a family's) rows alone, whatever the model: texts that do
 * not parse, roles no built-in family has. For tests and the reader of users' files. */
enum wf_status wf_engine_rows_check(const struct wf_engine *engine, const struct wf_family *family,
                                    const struct wf_engine_row *rows, size_t count,
                                    struct wf_error *error);
/* An engine whose expressions know this word of themselves ("heads", "tp_size", "dp"), or NULL: a
 * family that named a size so would change what that engine's rows say. */
const struct wf_engine *wf_engine_of_word(const char *name, size_t len);
/* Of a layer with experts, for an engine's `experts`: INVALID unless `placement` (NULL: by rule)
 * has `slots` slots there, and in them each of the experts at least once. */
enum wf_status wf_engine_check_placement(const struct wf_placement *placement, uint32_t layer,
                                         uint32_t slots, uint32_t experts, struct wf_error *error);

#endif
