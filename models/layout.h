/* layout.h - all pieces of one rank: what each of its tensors shows of which parameter.
 *
 * Derived from (model, recipe, rank) alone. Pieces are sorted by (tensor, tensor_offset); tensors
 * stand chunk by chunk, those outside the stacks first, then member after member of each stack, in
 * the order of the engine's rows. Aliases are second names of one tensor (a tied head): written
 * once. Pure; a layout is read-only after it was made and may be used from any thread.
 */
#ifndef WEFT_MODELS_LAYOUT_H
#define WEFT_MODELS_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/config.h"
#include "models/dtype.h"
#include "models/hash.h"
#include "models/piece.h"
#include "models/recipe.h"
#include "runtime/status.h"

enum wf_tensor_kind {
    WF_TENSOR_WEIGHTS, /* pieces and fills cover it */
    WF_TENSOR_DERIVED, /* recomputed by the engine's hook; no pieces */
    WF_TENSOR_KEEP,    /* never written; no pieces */
    WF_TENSOR_VIEW,    /* a view into another tensor, which is written; no pieces */
};

struct wf_tensor {
    const char *name; /* the framework's own; owned by the layout */
    enum wf_dtype dtype;
    uint32_t ndim;
    uint64_t shape[WF_SHAPE_MAX];
    /* Elements. Row-major unless the engine keeps the dimensions in another order; there are never
     * gaps. Pieces count bytes of memory, not of the row-major reading. */
    int64_t strides[WF_SHAPE_MAX];
    uint64_t bytes;
    enum wf_tensor_kind kind;
};

struct wf_alias {
    const char *name; /* owned by the layout */
    uint32_t tensor;
};

struct wf_layout {
    struct wf_tensor *tensors;
    struct wf_piece *pieces;
    struct wf_form *forms; /* forms[0] is unused: a run */
    struct wf_alias *aliases;
    uint32_t tensor_count, piece_count, form_count, alias_count;
    uint64_t bytes;      /* of all tensors */
    struct wf_hash hash; /* of everything above: equal hashes are one layout class */
    void *memory;        /* private */
};

/* Gives *layout_out; free with wf_layout_free. INVALID names the parameter and the size that does
 * not divide; UNSUPPORTED says what this build does not know. */
enum wf_status wf_layout_derive(const struct wf_model *model, const struct wf_recipe *recipe,
                                uint32_t rank, struct wf_layout **layout_out,
                                struct wf_error *error);
void wf_layout_free(struct wf_layout *layout);

/* As wf_layout_derive, but its pieces' parameters are those of the view that the recipe's ranks
 * have (models/variant.h), for who knows nothing of the job. UNSUPPORTED names a parameter of a
 * manifest that the view has not. */
enum wf_status wf_layout_derive_view(const struct wf_model *job, const struct wf_recipe *recipe,
                                     uint32_t rank, struct wf_layout **layout_out,
                                     struct wf_error *error);

/* A piece as a nest (its form expanded; elem_bytes from its tensor). */
struct wf_nest wf_layout_nest(const struct wf_layout *layout, uint32_t piece);
/* A tensor's pieces: [*first_out, *end_out), all of them beside each other. */
void wf_layout_pieces(const struct wf_layout *layout, uint32_t tensor, uint32_t *first_out,
                      uint32_t *end_out);
/* Writes every fill: tensors[i] is where tensor i lies; NULL: it is left out. */
void wf_layout_write_fills(const struct wf_layout *layout, void *const *tensors);
/* Index of a tensor by name or alias, or UINT32_MAX. */
uint32_t wf_layout_find(const struct wf_layout *layout, const char *name, size_t len);

/* What a rank really has, for registration. */
struct wf_live_tensor {
    const char *name;
    enum wf_dtype dtype;
    uint32_t ndim;
    uint64_t shape[WF_SHAPE_MAX];
    int64_t strides[WF_SHAPE_MAX]; /* elements */
};
/* Compares the real tensors with the layout: unknown, missing, other shape, dtype or stride are
 * MISMATCH that names the tensor, what was expected and why, what was found and the likeliest
 * cause. `ignore` lists names that may be extra. order_out[i] (layout->tensor_count entries) is the
 * live tensor of layout tensor i, or UINT32_MAX for a view or a derived tensor that is not listed:
 * neither is written. Marks of layouts before names ("buffer:", "attr:") need not be listed. */
enum wf_status wf_layout_match(const struct wf_layout *layout, const struct wf_live_tensor *live,
                               size_t live_count, const char *const *ignore, size_t ignore_count,
                               uint32_t *order_out, struct wf_error *error);
/* As wf_layout_match for the layout that follows from these three; where the tensors do not match
 * it, looks for a recipe beside this one whose layout they match, and says so ("... was started
 * with ep=4; the recipe says ep=1"). */
enum wf_status wf_layout_match_recipe(const struct wf_model *model, const struct wf_recipe *recipe,
                                      uint32_t rank, const struct wf_layout *layout,
                                      const struct wf_live_tensor *live, size_t live_count,
                                      const char *const *ignore, size_t ignore_count,
                                      uint32_t *order_out, struct wf_error *error);

#endif
