/* piece.h - the data model: affine loop nests between a parameter and a tensor.
 *
 * A nest says: for every index vector i with 0 <= i[a] < axes[a].count,
 *     parameter element  param_first   + sum i[a] * axes[a].param_step        (row-major, elements)
 *     stands at byte     tensor_offset + sum i[a] * axes[a].tensor_step       of the tensor.
 * Axes go from outer to inner. On the parameter side the steps that are not 0 form a divisor chain
 * (each divides the next larger) and no digit overflows into the next, so a parameter element has
 * at most one index vector per repeat; step 0 repeats: the same element at several places (target
 * side only; a source reads the first copy). A nest without axes is one element.
 *
 * Pieces of a layout share axis lists, interned as forms (form 0 is "a contiguous run of count").
 * Everything here is pure: it works on caller's memory or through callbacks, and never overflows
 * silently: sizes are checked when nests are built (wf_nest_check).
 *
 * The algorithm of intersection and what was measured: docs/how-it-works.md.
 */
#ifndef WEFT_MODELS_PIECE_H
#define WEFT_MODELS_PIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

enum { WF_AXES_MAX = 8 };

struct wf_axis {
    uint64_t count;
    uint64_t param_step; /* elements; 0 repeats */
    int64_t tensor_step; /* bytes */
};

struct wf_nest {
    uint64_t param_first;   /* elements */
    uint64_t tensor_offset; /* bytes */
    uint32_t elem_bytes;    /* of the tensor's dtype */
    uint32_t axis_count;
    struct wf_axis axes[WF_AXES_MAX];
};

/* What two nests of one parameter have in common: a strided box with two sides. */
struct wf_box {
    uint64_t param_first;            /* elements: the first element, for messages and hashes */
    uint64_t src_offset, dst_offset; /* bytes */
    uint64_t elements;               /* product of counts, repeats included */
    uint32_t axis_count;
    struct {
        uint64_t count;
        int64_t src_step, dst_step; /* bytes */
    } axes[WF_AXES_MAX]; /* outer to inner in parameter order; innermost runs are fused */
};

/* Refuses (INVALID, with a sentence) a nest whose axes are no chain, overflow a digit, are empty,
 * or reach outside [0, param_elements) or [0, tensor_bytes). */
enum wf_status wf_nest_check(const struct wf_nest *nest, uint64_t param_elements,
                             uint64_t tensor_bytes, struct wf_error *error);
uint64_t wf_nest_elements(const struct wf_nest *nest); /* repeats included */
/* Fuses neighbouring axes that are contiguous on both sides and drops axes of count 1: afterwards
 * equal sets of (element, byte) pairs in the same order have equal nests. */
void wf_nest_normalise(struct wf_nest *nest);
/* True, with the outputs written, if the nest is one contiguous run on both sides. */
bool wf_nest_is_run(const struct wf_nest *nest, uint64_t *elements_out);

/* Calls `emit` for boxes that are pairwise disjoint and together are exactly the elements that both
 * nests show (for a repeat of `dst`, once for each place; of a repeat of `src` the first copy).
 * A box's axes are dst's repeats (src_step 0) and then the parameter's digits, outer to inner, so
 * that row-major order of the box is the parameter's order within one place. The order of the boxes
 * depends on the two nests alone; it is that of rising param_first while the steps of both nests
 * form one chain and neither's digits carry. Emit's false stops (and the result is OK). Nests must
 * have passed wf_nest_check. UNSUPPORTED if steps without common factors lead to more than 2^20
 * boxes; those emitted by then are right, but not all. */
typedef bool wf_box_emit_t(void *user, const struct wf_box *box);
enum wf_status wf_nest_intersect(const struct wf_nest *src, const struct wf_nest *dst,
                                 wf_box_emit_t *emit, void *user, struct wf_error *error);

/* Composition. `inner` maps a parameter into a whole tensor (bytes, elem_bytes each); `outer` maps
 * that whole tensor, seen as a parameter of elements in storage order, into a shard. Emits normal
 * nests parameter -> shard, axes by falling parameter step. This is how fuse rules meet cut rules.
 * INVALID if the element sizes differ; UNSUPPORTED as for wf_nest_intersect, and if inner's tensor
 * steps run backwards or are no multiples of its elements. */
typedef bool wf_nest_emit_t(void *user, const struct wf_nest *nest);
enum wf_status wf_nest_compose(const struct wf_nest *inner, const struct wf_nest *outer,
                               wf_nest_emit_t *emit, void *user, struct wf_error *error);

/* --- interned forms ------------------------------------------------------------------------- */
struct wf_form {
    uint8_t axis_count, repeat_count;
    uint16_t reserved;
    uint32_t elem_bytes;
    struct wf_axis axes[WF_AXES_MAX]; /* outer to inner */
};

enum wf_piece_kind { WF_PIECE_DATA, WF_PIECE_FILL, WF_PIECE_MADE };

/* What a tensor holds of a parameter's values. */
enum wf_value_rule {
    WF_VALUE_COPY,
    WF_VALUE_LESS_ONE, /* the value minus 1: a norm that is stored zero-centred */
};

/* 40 bytes. DATA: parameter `param` from `param_first`, at `tensor_offset` of `tensor`; form 0 is a
 * contiguous run of `count` elements. FILL: `param` is unused, the box is in tensor bytes (form's
 * elem_bytes = bytes of the pattern's unit), `value_rule` is the byte to write. MADE: as DATA, but
 * its rank makes the values from others that it receives (models/assemble.h): no op writes them. Of
 * DATA `value_rule` is an enum wf_value_rule; plans refuse what they cannot carry out. */
struct wf_piece {
    uint32_t param, tensor; /* indices into the inventory and into the layout's tensors */
    uint64_t param_first, tensor_offset, count;
    uint32_t form;
    uint16_t kind, value_rule;
};

#endif
