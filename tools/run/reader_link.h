/* reader_link.h - the words between an infer rank and its engine's reader (a stand-in for
 * inference).
 *
 * Frames on a unix connection, rank to reader unless said, one struct each, this host's byte order:
 * both ends are this program.
 *   WEIGHTS + a descriptor   the rank's weights, which the reader maps read-only; behind the struct
 *                            one struct wf_reader_tensor for each tensor
 *   PAUSE                    stop the forward pass; answered by PAUSED (reader to rank) with counts
 *   RESUME                   the engine serves `step`; the forward pass runs when all ranks resumed
 *   COUNT                    answered by COUNTED with the counts since RESUME
 */
#ifndef WEFT_TOOLS_RUN_READER_LINK_H
#define WEFT_TOOLS_RUN_READER_LINK_H

#include <stdint.h>

#include "models/config.h"

enum wf_reader_word {
    WF_READER_WEIGHTS = 1,
    WF_READER_PAUSE,
    WF_READER_PAUSED,
    WF_READER_RESUME,
    WF_READER_COUNT,
    WF_READER_COUNTED,
};

struct wf_reader_frame {
    uint32_t word;
    uint32_t engine_rank;   /* WEIGHTS */
    uint64_t bytes;         /* WEIGHTS: of the region */
    uint64_t step;          /* RESUME */
    uint64_t table;         /* RESUME: by which experts stand (tools/run/setup.h) */
    uint64_t forward, torn; /* PAUSED, COUNTED: forward steps since the last report, torn ones */
    uint64_t positions;
};

struct wf_reader_tensor {
    char name[WF_NAME_MAX];
    uint64_t offset, bytes; /* in the region */
    uint64_t dtype;         /* enum wf_dtype */
};

#endif
