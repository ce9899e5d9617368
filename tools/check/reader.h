/* reader.h - stands in for inference: sees whether an engine's weights are one version.
 *
 * A forward step of an engine reads weights of all its ranks. Here it samples single elements of
 * all tensors of all ranks in turn, and decodes each: the set of step counts (mod 128, step.h)
 * after which the checkpoint's value would be what is in memory. If no count is in all sets of one
 * forward step, the step has seen a mixture: a torn read. It knows nothing of Weft: addresses of
 * tensors, and the values they could have.
 *
 * The caller owns time: it calls begin, then sample as often and as slowly as it likes, then end;
 * it keeps to WF_READER_RATE_MAX positions a second, and it pauses by not being between begin and
 * end. One thread.
 */
#ifndef WEFT_TOOLS_CHECK_READER_H
#define WEFT_TOOLS_CHECK_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/status.h"
#include "tools/check/verify.h"

enum { WF_READER_RATE_MAX = 2000 }; /* positions a second, all readers of a job together */

struct wf_reader;

/* One rank of the engine: what it should hold, and where it lies in the reader's memory. */
struct wf_reader_rank {
    const struct wf_verify *verify;         /* borrows */
    const struct wf_checkpoint *checkpoint; /* borrows; the one that `verify` was opened with */
    const struct wf_verify_live *live; /* borrows; one for each tensor of `verify`, in its order */
};

struct wf_reader_stats {
    uint64_t forward_steps, torn_steps, positions;
};

/* What one forward step saw. */
struct wf_reader_seen {
    bool torn;
    uint64_t versions[2]; /* bit v of 128: all positions fit v steps */
    uint64_t positions;
    /* If torn, the position that contradicted the ones before it. */
    uint32_t rank;
    char tensor[WF_NAME_MAX];
    uint64_t index;
};

/* `ranks` is copied, what it points to is borrowed. `seed` decides the positions. MISMATCH if a
 * live tensor has another size than expected. Gives *out; free with wf_reader_free. */
enum wf_status wf_reader_new(const struct wf_reader_rank *ranks, uint32_t rank_count, uint64_t seed,
                             struct wf_reader **out, struct wf_error *error);
void wf_reader_free(struct wf_reader *reader); /* NULL is fine */

/* Starts a forward step. */
void wf_reader_begin(struct wf_reader *reader);
/* Reads `positions` more elements: ranks take turns, tensors of a rank take turns, the element is
 * drawn. IO if the checkpoint cannot be read. */
enum wf_status wf_reader_sample(struct wf_reader *reader, uint32_t positions,
                                struct wf_error *error);
/* Ends the step; *seen_out may be NULL. */
void wf_reader_end(struct wf_reader *reader, struct wf_reader_seen *seen_out);

struct wf_reader_stats wf_reader_stats(const struct wf_reader *reader);

#endif
