/* layout_rows.h - an engine's rows bound to one model: what layout_derive.c walks.
 *
 * Binding resolves roles into rows of the family once for each layout: alternatives and "*" are
 * spread out, a row stands once for each stack that has its parts, and the family's exceptions for
 * the engine have taken the place of the engine's rows. Private to models/layout_*.c.
 */
#ifndef WEFT_MODELS_LAYOUT_ROWS_H
#define WEFT_MODELS_LAYOUT_ROWS_H

#include "models/engines/engine.h"
#include "models/expr.h"
#include "models/layout_private.h"

enum { WF_BOUND_MAX = 1024, WF_FACTORS_MAX = 6 };

/* Where expressions of a row are read: everything that engine.h promises them. */
struct wf_row_at {
    struct wf_model_at at;
    const struct wf_recipe *recipe;
    const struct wf_coordinates *rank;
    const struct wf_chunk *chunk;
    uint32_t chunk_index, chunk_count;
    uint64_t slots, rows, columns, extra;
    uint32_t dims;        /* of the first part's parameter */
    bool sized, in_extra; /* slots, rows and columns are known; `x` is */
    /* Set where a value that was asked for is the member's own; NULL: nobody wants to know. */
    bool *of_member_out;
};
/* wf_expr_lookup_t over a wf_row_at. */
bool wf_row_lookup(void *at, const char *name, size_t len, uint64_t *value_out);
/* The same without the model's names. */
bool wf_row_lookup_own(const struct wf_row_at *at, const char *name, size_t len,
                       uint64_t *value_out);
/* Whether a family has a size or a stack of this name. */
bool wf_family_knows(const struct wf_family *family, const char *name, size_t len);
/* An expression of a table at a place; NULL text gives `otherwise`. */
enum wf_status wf_row_eval(const struct wf_row_at *at, const char *text, uint64_t otherwise,
                           uint64_t *value_out, struct wf_error *error);
/* What a row's condition came to when it was last read; zeroed before the first time. */
struct wf_verdict {
    bool known, of_member, holds;
    uint32_t chunk, dims;
};
/* The condition of a row (`when`) at a place. One that asked for nothing of the member's own holds
 * for all members of the chunk alike and is not read again: a large model's layers would read each
 * a hundred times. */
enum wf_status wf_row_holds(const struct wf_row_at *at, const struct wf_engine_row *row,
                            struct wf_verdict *last, bool *holds_out, struct wf_error *error);
/* "EXPRESSION: sentence|...": UNSUPPORTED with the first sentence that does not hold: what the
 * framework does not run, in the words of its table. NULL: nothing. */
enum wf_status wf_row_require(const struct wf_row_at *at, const char *list, struct wf_error *error);

/* A part as its text says it. */
struct wf_row_part {
    const char *role;
    size_t role_len;
    const char *share; /* inside the parentheses, or NULL */
    size_t share_len;
    uint32_t family_row;
};

struct wf_bound {
    const struct wf_engine_row *row;
    uint32_t stack; /* or WF_NONE */
    uint32_t part_count, extra_count;
    struct wf_row_part parts[WF_PARTS_MAX]; /* the extra ones behind */
    const char *extra_times;                /* expression before the colon */
    size_t extra_times_len;
    bool per_expert; /* its parts are experts' */
    bool wildcard;   /* from "*" */
    const char *name;
};

struct wf_binding {
    struct wf_bound *rows;
    uint32_t count;
    const struct wf_family_engine *exceptions; /* or NULL */
};

/* Reads one part of "q k(nk, d@0)" from *text. INVALID where it is none; false in *more_out at the
 * end. */
enum wf_status wf_row_part_next(const char **text, struct wf_row_part *part_out, bool *more_out,
                                struct wf_error *error);
/* Free binding->rows with free. UNSUPPORTED names a parameter for which the engine has no row. */
enum wf_status wf_binding_make(const struct wf_model *model, const struct wf_engine *engine,
                               struct wf_binding *binding_out, struct wf_error *error);

/* The experts of this rank's slots in the member at hand, in the order of the slots: none where the
 * member has no parameters of experts. A placement is read in stack "layer" only; elsewhere the
 * engine's rule holds. INVALID as the engine's `experts`. */
enum wf_status wf_slots_find(const struct wf_row_at *at, const struct wf_binding *binding,
                             uint32_t slots_out[WF_SLOTS_MAX], uint32_t *count_out,
                             struct wf_error *error);

/* The name of a bound row's tensor (or of an alias, by its pattern). `slot` and `expert` are for
 * names that have them. INVALID when it does not fit WF_NAME_MAX. */
enum wf_status wf_row_name(const struct wf_row_at *at, const struct wf_binding *binding,
                           const struct wf_bound *bound, const char *pattern, uint32_t slot,
                           uint32_t expert, char name_out[WF_NAME_MAX], struct wf_error *error);

/* --- one tensor ------------------------------------------------------------------------------ */

/* A nest of one part inside a slot's slab of this rank's tensor. */
struct wf_slab_nest {
    uint32_t part;
    enum wf_piece_kind kind;
    struct wf_nest nest;
};

/* What a bound row's tensor looks like here, the same for every slot. Kept from member to member of
 * a stack while the parameters' shapes stay (layers are alike), unless its groups, pads, units or
 * factors asked for what each member has of its own. */
struct wf_slab {
    bool known, of_member;
    uint32_t index;         /* the member it was made for */
    uint64_t rows, columns; /* local */
    uint32_t elem_bytes;
    enum wf_dtype dtype;
    uint32_t nest_count, nest_room;
    struct wf_slab_nest *nests;
    uint64_t shapes[WF_PARTS_MAX][WF_SHAPE_MAX]; /* of the parts it was made for */
};
void wf_slab_free(struct wf_slab *slab);

/* Parameters of a bound row's parts at `at` for one expert; false if the model lacks one. `extra`:
 * the extra parts instead. A tied head is the embedding. */
bool wf_bound_params(const struct wf_row_at *at, const struct wf_bound *bound, bool extra,
                     uint32_t expert, uint32_t params_out[WF_PARTS_MAX]);
/* Fills *slab for these parameters. INVALID names the parameter and the sizes that do not divide.
 */
enum wf_status wf_slab_make(const struct wf_row_at *at, const struct wf_bound *bound, bool extra,
                            const uint32_t *params, struct wf_slab *slab, struct wf_error *error);
/* The view of a row over (slots, rows, columns) as a nest from logical elements into memory. */
enum wf_status wf_view_make(const struct wf_row_at *at, const char *view, bool stacked,
                            uint32_t elem_bytes, struct wf_nest *nest_out, struct wf_error *error);
/* What can be wrong about a view's text alone: `lookup` is asked for the names of its sizes. */
enum wf_status wf_view_check(const char *view, wf_expr_lookup_t *lookup, void *user,
                             struct wf_error *error);

#endif
