/* detect_private.h - what the parts of `weft layout detect` share.
 *
 * detect_seen.c     what a dump or a derived layout shows, by pattern of names
 * detect_guess.c    a family, a config and a SPEC as values that can be changed, and their layouts
 * detect_names.c    flags, words and counts until the patterns of names are the dump's
 * detect_lists.c    layers that alternate without a rule
 * detect_quant.c    how the dump's weights are quantised, for the config
 * detect_words.c    words of a SPEC that shapes do not tell apart
 * detect_solve.c    the sizes that shapes show, for given words and parallel sizes
 * detect_recipe.c   which parallel sizes and pipelines a dump can have
 * detect_explain.c  what speaks against the nearest guess where nothing fits
 * detect.c          all of it in order, and the proof of each answer
 */
#ifndef WEFT_TOOLS_LAYOUT_DETECT_PRIVATE_H
#define WEFT_TOOLS_LAYOUT_DETECT_PRIVATE_H

#include "models/engines/engine.h"
#include "models/layout.h"
#include "tools/layout/detect.h"

/* --- what is seen ---------------------------------------------------------------------------- */

enum {
    WF_SEEN_MEMBERS = WF_SHAPE_MAX, /* the part behind the dimensions: tensors of one layer */
    WF_SEEN_PARTS
};

/* All tensors whose names differ in numbers only. */
struct wf_seen_slot {
    uint64_t pattern; /* hash of the name without its numbers */
    uint64_t number;  /* of different first numbers (layers); before joining that number */
    /* Of each dimension the largest on a rank, then how many in one layer: each summed over the
     * ranks, so that what is cut unevenly is whole again. */
    uint64_t parts[WF_SEEN_PARTS];
    const char *name; /* one of them; of a layout it goes with the layout, and is "" */
    uint32_t ndim;
    bool optional; /* a layout's: a dump need not list it */
    bool layer;    /* a layout's: of stack "layer" */
    bool numbered; /* the name has a number */
};

struct wf_seen {
    struct wf_seen_slot *slots; /* by pattern once joined; owned */
    uint32_t count, room;
};

/* Add a rank's tensors to what is not joined yet; `stage` tells layers of the same number apart.
 * False without memory. */
bool wf_seen_add_dump(struct wf_seen *seen, const struct wf_dump_rank *dump, uint32_t stage);
bool wf_seen_add_layout(struct wf_seen *seen, const struct wf_model *model,
                        const struct wf_layout *layout);
/* One slot for each pattern; what was added counts as one rank. */
void wf_seen_join(struct wf_seen *seen);
/* Adds `weight` ranks that show what `rank` (joined) does. False without memory. */
bool wf_seen_weigh(struct wf_seen *sum, const struct wf_seen *rank, uint64_t weight);
const struct wf_seen_slot *wf_seen_find(const struct wf_seen *seen, uint64_t pattern);
/* Patterns of one that the other lacks, or has with other dimensions; `layout` may have more where
 * they are optional. What only the dump has counts most: a trial model says all that it can. */
uint32_t wf_seen_misfits(const struct wf_seen *layout, const struct wf_seen *dump);
/* Equal for ranks that show the same. */
uint64_t wf_seen_hash(const struct wf_seen *seen);
void wf_seen_fini(struct wf_seen *seen);

/* The pattern of a name of what is of this type, and its chunk and first number (0 where it has
 * none).
 */
uint64_t wf_seen_pattern(const char *name, enum wf_dtype dtype, uint64_t *chunk_out,
                         uint64_t *number_out);

/* --- guesses --------------------------------------------------------------------------------- */

enum wf_guess_state { WF_GUESS_ABSENT, WF_GUESS_NUMBER, WF_GUESS_NULL };

enum { WF_GUESS_WORDS = 192, WF_GUESS_PIPELINE = 384 };

/* Ranks that are looked at, each for `weight` alike. */
struct wf_guess_ranks {
    uint32_t count;
    struct {
        uint32_t rank;
        uint64_t weight;
    } at[WF_DETECT_WORLD_MAX];
};

/* A bit for each size of a family. */
typedef unsigned __int128 wf_size_bits_t;
#define WF_SIZE_BIT(size) ((wf_size_bits_t)1 << (size))
_Static_assert(WF_FAMILY_SIZES_MAX <= 128, "a bit for each size");
int wf_size_bits_count(wf_size_bits_t bits);
size_t wf_size_bits_first(wf_size_bits_t bits); /* of some */

/* How a dump's weights are quantised. */
struct wf_guess_quant {
    const char
        *method; /* as told: "fp8", "fp8_rows", "mxfp4", "int4", "nvfp4"; NULL: they are not */
    const char *match;         /* the word of a config that a family must know */
    uint64_t group;            /* of int4: numbers that share a scale */
    struct json_object *plain; /* modules of a checkpoint that are not quantised; owned; or NULL */
};
void wf_guess_quant_find(const struct wf_dump_rank *dump, struct wf_guess_quant *out);
/* The config's quantization_config; the caller owns it. */
struct json_object *wf_guess_quant_config(const struct wf_guess_quant *quant,
                                          const struct wf_engine *engine);
void wf_guess_quant_fini(struct wf_guess_quant *quant);

/* A size that the config says layer by layer. */
struct wf_guess_list {
    uint32_t size;
    bool of[WF_LAYERS_MAX];
};

/* Two sizes that some row of the engine's holds for where they are equal. */
struct wf_guess_tie {
    bool on; /* they are: the config says `size` as `as` */
    uint32_t size, as;
};

/* What all trials share: the work that is allowed yet, and the model of the last one. */
struct wf_trials {
    uint64_t work;          /* tensors that trial layouts may have yet */
    char *text;             /* the last config; owned; NULL: none yet */
    struct wf_model *model; /* its model; owned; NULL: refused */
};

struct wf_guess {
    const struct wf_family *family;
    const struct wf_family *const *families; /* for the parser */
    const struct wf_engine *engine;
    enum wf_dtype dtype, config_dtype;  /* of the SPEC, of the config */
    const struct wf_guess_quant *quant; /* NULL: none; borrows */
    const struct wf_guess_list *list;   /* NULL: none; borrows */
    struct wf_guess_tie tie;
    char words[WF_GUESS_WORDS], sizes[WF_GUESS_WORDS], pipeline[WF_GUESS_PIPELINE];
    enum wf_guess_state state[WF_FAMILY_SIZES_MAX];
    uint64_t value[WF_FAMILY_SIZES_MAX];
    uint64_t vocab;                  /* multiple to which the vocabulary is padded; 0: not at all */
    bool free[WF_FAMILY_SIZES_MAX];  /* chosen where only a product shows */
    bool shows[WF_FAMILY_SIZES_MAX]; /* some shape or number of tensors depends on it */
    wf_size_bits_t counts;           /* wf_guess_counts of the family */
    struct wf_trials *trials;        /* borrows */
};

/* True for a size that a config gives as true or false or a word. */
bool wf_guess_is_flag(const struct wf_family_size *size);
/* Whether a guess may say it: it has a key, and no other than that of a quantisation. */
bool wf_guess_can_say(const struct wf_family_size *size);
/* Sizes that say how many members or layers of a kind there are, as bits. */
wf_size_bits_t wf_guess_counts(const struct wf_family *family);
bool wf_guess_is_count(const struct wf_guess *guess, size_t size);
/* Index of a size, or WF_NONE. */
uint32_t wf_guess_size(const struct wf_family *family, const char *name);
/* The sizes that the family's rows in the guess's engine compare; false: none. It is not on. */
bool wf_guess_find_tie(const struct wf_guess *guess, struct wf_guess_tie *tie_out);
bool wf_guess_has_role(const struct wf_family *family, const char *role);
bool wf_guess_engine_knows(const struct wf_engine *engine, const char *key);
/* The config as JSON; the caller frees it. NULL without memory. */
char *wf_guess_config(const struct wf_guess *guess);
void wf_guess_spec(const struct wf_guess *guess, char out[WF_SPEC_MAX]);
/* Its model and recipe, or NULL where they are refused (then *error says why) or no work is left.
 * The model is the trials', until the next one. */
const struct wf_model *wf_guess_model(const struct wf_guess *guess, struct wf_recipe *recipe_out,
                                      struct wf_error *error);
/* The same for a caller that derives rank 0 next: what that would refuse is not refused here. */
const struct wf_model *wf_guess_trial(const struct wf_guess *guess, struct wf_recipe *recipe_out);
/* Whether it was the config that was refused last: no words of a SPEC help. */
bool wf_guess_is_no_model(const struct wf_guess *guess);
/* Takes so many tensors off the work that is allowed. */
void wf_guess_pay(const struct wf_guess *guess, uint64_t cost);
void wf_trials_fini(struct wf_trials *trials);
/* What the ranks, rank 0 among them, have by a guess; false where anything refuses it, or no work
 * is left. */
bool wf_guess_seen(const struct wf_guess *guess, const struct wf_guess_ranks *ranks,
                   struct wf_seen *out);
/* As wf_guess_seen of rank 0, as a hash; *content_out: of what its tensors hold as well. */
bool wf_guess_shows(const struct wf_guess *guess, uint64_t *seen_out, uint64_t *content_out);
extern const struct wf_guess_ranks wf_guess_one_rank;

/* A first value for a size that shapes show, `ranks` and usual blocks divide it. */
uint64_t wf_guess_start(const struct wf_family *family, size_t size, uint64_t ranks);

/* --- names ----------------------------------------------------------------------------------- */

/* A trial config that says all it can; gives its misfits, UINT32_MAX if the family takes none. */
uint32_t wf_names_begin(struct wf_guess *guess, const struct wf_seen *dump);
/* Words of the engine's SPEC that bring names nearest, then flags of the config until they are the
 * dump's; gives the misfits that are left. */
uint32_t wf_names_fit(struct wf_guess *guess, const struct wf_seen *dump, uint32_t misfits);
/* The counts (layers, dense layers, intervals) that give as many tensors of each pattern. */
bool wf_names_count(struct wf_guess *guess, const struct wf_seen *dump);
/* Whether layers of each kind stand where the guess has them, too. */
bool wf_lists_stand(const struct wf_guess *guess, const struct wf_dump_rank *dumps, uint32_t count);
/* wf_names_count with a list of one size's layers, for what no rule gives: where a name tells of
 * which kind a layer is. Fills *list, which the guess then borrows. */
bool wf_lists_count(struct wf_guess *guess, const struct wf_seen *dump,
                    const struct wf_dump_rank *dumps, uint32_t count, struct wf_guess_list *list);
/* A pattern that every layer has, in the guess's own layout; 0: there is none. `stack`: "layer",
 * "mtp". */
uint64_t wf_names_layer_pattern(const struct wf_guess *guess);
/* The next words of the engine that go with the family; *at begins at 0. False behind the last. */
bool wf_names_words(const struct wf_guess *guess, uint32_t *at, char words_out[WF_GUESS_WORDS]);

/* --- words that show alike ------------------------------------------------------------------- */

enum {
    WF_WORDS_MAX = 96,        /* choices of words in all */
    WF_WORD_CLASSES_MAX = 24, /* that show differently */
};

struct wf_word_class {
    uint64_t shows; /* hash of names and shapes, of one rank divided in several ways */
    uint32_t first; /* of its words */
};

/* Each with contents of its own. */
struct wf_words {
    char texts[WF_WORDS_MAX][WF_GUESS_WORDS];
    uint64_t holds[WF_WORDS_MAX]; /* hash of contents */
    uint32_t class[WF_WORDS_MAX], count;
    struct wf_word_class classes[WF_WORD_CLASSES_MAX];
    uint32_t class_count;
};
/* All words with which the guess's names are the dump's. */
void wf_words_find(const struct wf_guess *guess, const struct wf_seen *dump,
                   struct wf_words *words);

/* --- why not --------------------------------------------------------------------------------- */

enum { WF_EXPLAIN_MAX = 1024 };

/* The first name that the dump or the guess has alone, and the likeliest cause. */
void wf_explain_names(const struct wf_guess *guess, const struct wf_seen *dump,
                      char out[WF_EXPLAIN_MAX]);
/* The first tensor of the first rank that is not what the guess derives, or why it derives none. */
void wf_explain_layout(const struct wf_guess *guess, const struct wf_dump_rank *dumps,
                       uint32_t count, char out[WF_EXPLAIN_MAX]);

/* --- sizes ----------------------------------------------------------------------------------- */

struct wf_solver;
/* Finds which part follows which size, of one rank. NULL: the family refuses it, or no memory. */
struct wf_solver *wf_solver_new(const struct wf_guess *guess, const struct wf_seen *dump);
void wf_solver_free(struct wf_solver *solver);
/* How far a solver came that found nothing. */
struct wf_left {
    uint32_t parts;              /* that were not made, the fewest */
    char why[WF_NAME_MAX + 128]; /* the first of them */
};
/* Solves for the sizes with the guess's words and sizes of a SPEC, from what `ranks` of the dump
 * show together. */
bool wf_solver_run(struct wf_solver *solver, struct wf_guess *guess,
                   const struct wf_guess_ranks *ranks, struct wf_left *left_out);

/* --- recipes --------------------------------------------------------------------------------- */

/* How the ranks of a dump stand by their names: rank = (outer * stages + stage) * inner + i. */
struct wf_stages {
    uint32_t world, stages, inner, outer;
};
/* False where no pipeline has these ranks. */
bool wf_stages_find(const struct wf_dump_rank *dumps, uint32_t count, struct wf_stages *out);

/* Sizes of SPECs ("tp=2,ep=2"), the likeliest first. */
struct wf_sizes_list {
    char (*texts)[WF_GUESS_WORDS]; /* owned */
    uint32_t count, room;
    bool failed; /* no memory */
};
/* All that the engine may have with `ranks` ranks of each stage. */
void wf_recipe_sizes(const struct wf_guess *guess, const struct wf_stages *stages, uint32_t ranks,
                     struct wf_sizes_list *out);
/* Sets the words of the pipeline that give each stage the layers that the dump has there. False:
 * the engine has none. `pattern`: wf_names_layer_pattern. */
bool wf_recipe_pipeline(struct wf_guess *guess, const struct wf_stages *stages,
                        const struct wf_dump_rank *dumps, uint64_t pattern);

#endif
