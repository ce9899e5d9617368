/* layout_private.h - the growing layout behind layout_build.c, layout_derive.c and layout_match.c.
 */
#ifndef WEFT_MODELS_LAYOUT_PRIVATE_H
#define WEFT_MODELS_LAYOUT_PRIVATE_H

#include "models/layout.h"
#include "models/variant.h"

/* wf_layout.memory. */
struct wf_layout_memory {
    char *text; /* all names */
    size_t text_bytes;
    uint32_t *sorted; /* by name: tensors, then aliases counted on behind them */
};

/* A layout being made. Names are offsets into `text` until wf_build_end. Any failed allocation sets
 * `failed` and makes the rest do nothing; wf_build_end reports it. */
struct wf_build {
    struct wf_layout *layout;
    uint32_t tensor_room, piece_room, form_room, alias_room;
    char *text;
    size_t text_used, text_room;
    /* Where a layout is derived in a view: its pieces' parameters become the job's at the end. */
    const struct wf_model *job, *view;
    bool failed;
};

void wf_build_begin(struct wf_build *build);
/* Begins with a copy of a layout that wf_build_end gave. */
void wf_build_from(struct wf_build *build, const struct wf_layout *layout);
/* Adds a tensor of the product of `shape`; its pieces follow before the next tensor. */
void wf_build_tensor(struct wf_build *build, const char *name, enum wf_dtype dtype, uint32_t ndim,
                     const uint64_t *shape, enum wf_tensor_kind kind);
/* Dimensions of the newest tensor by falling stride, where memory does not follow its shape. */
void wf_build_order(struct wf_build *build, const uint32_t *order);
void wf_build_alias(struct wf_build *build, const char *name, uint32_t tensor);
/* A form before any piece has it, unless it is a run (0): their order counts for the hash. Gives
 * its index. Compares it with all that are there, as do the functions below that add a piece. */
uint32_t wf_build_form(struct wf_build *build, const struct wf_nest *nest);
/* A piece of the newest tensor. */
void wf_build_piece(struct wf_build *build, uint32_t param, const struct wf_nest *nest,
                    enum wf_value_rule value);
/* A part of a piece of any tensor that is there already, which has to leave the layout for its
 * parts.
 */
void wf_build_part(struct wf_build *build, const struct wf_piece *of, const struct wf_nest *nest,
                   enum wf_piece_kind kind);
/* A fill of the newest tensor with one byte; `nest` has its box on the tensor side. */
void wf_build_fill(struct wf_build *build, const struct wf_nest *nest, uint8_t byte);
/* A piece of the newest tensor with the parameter, kind, value rule and form of `like`; the form is
 * believed to be what wf_build_form gave for such a nest. For many forms that others chose: a piece
 * costs the same with any number of them. */
void wf_build_formed(struct wf_build *build, const struct wf_piece *like,
                     const struct wf_nest *nest);
/* Sorts, hashes and gives the layout, or frees everything and says why not: INVALID where one name
 * was given twice. `status` other than OK is the caller's own failure: frees and returns it. */
enum wf_status wf_build_end(struct wf_build *build, enum wf_status status,
                            struct wf_layout **layout_out, struct wf_error *error);

#endif
