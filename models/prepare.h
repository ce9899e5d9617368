/* prepare.h - what a source makes of its tensors before others read them.
 *
 * Ops move and cast; they do not add, and they do not quantise. What needs more than a cast is made
 * once, by the rank that holds the values, in tensors of its own, the prepared ones, and given from
 * there: half the bytes go over the wire, once for all engines, and planner, digests, proof and
 * transports see ordinary tensors. Made are
 *
 *   values   of pieces that hold less (WF_VALUE_LESS_ONE): in f32, from which the reader casts
 *   codes    of a matrix (models/variant.h) by the job's rule, where this rank holds whole blocks
 *   scales   of the same blocks
 *
 * A rank's source layout is its own with the prepared tensors behind its tensors: it follows from
 * model, recipe and rank like every layout, so everybody derives it. Pieces whose values the rank
 * cannot give as they stand are not in it: the planner finds the prepared ones instead.
 *
 * A block that a cut divides between ranks is prepared by none of them; the planner then names the
 * parameter, the block and the ranks.
 *
 * Pure; a wf_prepare is read-only after it was made; items may run on any thread, each once, side
 * by side.
 */
#ifndef WEFT_MODELS_PREPARE_H
#define WEFT_MODELS_PREPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "models/layout.h"
#include "models/variant.h"
#include "runtime/status.h"

struct wf_prepare;

/* The source layout of a rank whose own is `own`, and how to make what is new in it. Where nothing
 * is, *source_out is a copy (equal hash) and *prepare_out NULL. Names of prepared tensors are
 * "prepared:NAME of the parameter", with ":2" and so on behind further parts of one. *prepare_out
 * borrows `own`. Either output pointer may be NULL. UNSUPPORTED: a type in which 1 is not added. */
enum wf_status wf_prepare_derive(const struct wf_model *model, const struct wf_layout *own,
                                 struct wf_layout **source_out, struct wf_prepare **prepare_out,
                                 struct wf_error *error);
void wf_prepare_free(struct wf_prepare *prepare);
/* Is a tensor of a source layout one that is prepared? */
bool wf_prepare_is_made(const struct wf_tensor *tensor);

/* Items of work, each some megabytes of one or several prepared tensors. */
uint32_t wf_prepare_item_count(const struct wf_prepare *prepare);
/* The prepared tensors (indices in the source layout) that an item writes: [*first, *end). Items
 * of tensors that nobody reads need not run. */
void wf_prepare_item_tensors(const struct wf_prepare *prepare, uint32_t item, uint32_t *first_out,
                             uint32_t *end_out);
/* Bytes that the item reads and writes, for shares of work. */
uint64_t wf_prepare_item_bytes(const struct wf_prepare *prepare, uint32_t item);
/* Scratch memory that wf_prepare_run wants, at most (a few MB). */
uint64_t wf_prepare_scratch_bytes(const struct wf_prepare *prepare);
/* Runs an item. `tensors`: addresses by the source layout's index; strides are the layout's. */
void wf_prepare_run(const struct wf_prepare *prepare, uint32_t item, void *const *tensors,
                    void *scratch);

#endif
