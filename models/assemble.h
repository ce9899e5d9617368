/* assemble.h - what a target makes of matrices, where no source has their codes.
 *
 * Codes and scales come from whoever holds whole blocks of the matrix (prepare.h). Where no source
 * does, because a cut between its ranks divides blocks (FSDP over many ranks), or because it holds
 * the matrix alone (a replica or a folder in bf16), the target receives the matrix and applies the
 * rule itself. Twice the bytes move, for these blocks only; codes and scales are the same.
 *
 * A target's planned layout is its own with the assembled tensors behind its tensors: each holds a
 * rectangle of a matrix, in the dtype that the sources hold it in, that is what the target shows of
 * codes that nobody has, rounded out to whole blocks. What shows those codes and scales is in it
 * still, as WF_PIECE_MADE: places that no op writes. Which blocks these are follows from the
 * layouts of all sources, so that everybody derives the same planned layouts, as all others.
 *
 * All assembled tensors of a target are there at once, from a round's first read until their codes
 * are made: in bf16 twice the bytes of the codes that have no source, in f32 four times, and of
 * experts each slot's. The most is a fill of an engine in fp8 from a replica or a folder in bf16:
 * twice its quantised weights. It is not less, because a round's digests are of what was written
 * and are compared when all of it was: to take the room of one matrix for the next would need
 * verdicts in between. Whoever has a limit states it (wf_rank_options.staging_bytes_max: staging
 * and this together), and a round that needs more is refused with both numbers.
 *
 * Pure; both objects are read-only after they were made; items may run on any thread, each once,
 * side by side.
 */
#ifndef WEFT_MODELS_ASSEMBLE_H
#define WEFT_MODELS_ASSEMBLE_H

#include <stdbool.h>
#include <stdint.h>

#include "models/layout.h"
#include "models/variant.h"
#include "runtime/status.h"

/* A rectangle of whole blocks of a matrix. */
struct wf_cut_region {
    uint64_t rows[2], columns[2]; /* [first, end) */
    bool cut;                     /* no source has its codes; else sources have all of them */
};

/* The matrices of a job of which some block is whole in no source. */
struct wf_cuts {
    enum wf_dtype *dtypes; /* by pair of the model's variants: the dtype that targets assemble the
                              matrix in; WF_DTYPE_NONE where all its codes have sources */
    uint32_t count;        /* pairs with another dtype than that */
    /* Of pair p regions[first[p]] to regions[first[p + 1] - 1] are all of the matrix; none where
     * nothing is cut. */
    struct wf_cut_region *regions;
    uint32_t *first;
};

/* `sources`: the layouts of all sources of a plan (wf_prepare_derive's); equal pointers may repeat.
 * Of experts of one layer and role all count as cut where one is: which of them stand in a slot
 * may change. A matrix that no source has any element of is not cut: it has no source, which is the
 * planner's to refuse. *cuts_out is NULL where nothing is cut. */
enum wf_status wf_cuts_find(const struct wf_model *model, const struct wf_layout *const *sources,
                            uint32_t source_count, struct wf_cuts **cuts_out,
                            struct wf_error *error);
void wf_cuts_free(struct wf_cuts *cuts);

struct wf_assemble;

/* The planned layout of a target whose own is `own`, and how to make what is MADE in it; both NULL
 * where `own` shows nothing that is cut. Assembled tensors are called "assembled:NAME of the
 * matrix", with ":2" and so on behind further parts of one. *assemble_out borrows *planned_out;
 * `assemble_out` may be NULL. UNSUPPORTED: scales in a type that f32 is not cast to. */
enum wf_status wf_assemble_derive(const struct wf_model *model, const struct wf_layout *own,
                                  const struct wf_cuts *cuts, struct wf_layout **planned_out,
                                  struct wf_assemble **assemble_out, struct wf_error *error);
void wf_assemble_free(struct wf_assemble *assemble);

/* Items of work, each some megabytes of an assembled tensor. They write different bytes. */
uint32_t wf_assemble_item_count(const struct wf_assemble *assemble);
/* Scratch memory that wf_assemble_run wants, at most (about a megabyte). */
uint64_t wf_assemble_scratch_bytes(const struct wf_assemble *assemble);
/* Applies the rule to an item's blocks and writes their codes and scales wherever the target shows
 * them. `tensors`: addresses by the planned layout's index. */
void wf_assemble_run(const struct wf_assemble *assemble, uint32_t item, void *const *tensors,
                     void *scratch);

#endif
