/* frames_random.h - a frame with random content within its bounds, for tests and the fuzzer. */
#ifndef WEFT_TESTS_ACTORS_FRAMES_RANDOM_H
#define WEFT_TESTS_ACTORS_FRAMES_RANDOM_H

#include "actors/messages.h"

/* Fills *frame with random fields of `type` (lists of up to 4 elements); free with wf_frame_fini.
 */
void random_frame(uint64_t *state, enum wf_frame_type type, struct wf_frame *frame);
/* True if all fields are equal, text by text and list by list. */
bool frames_equal(const struct wf_frame *a, const struct wf_frame *b);

/* Every frame type there is; the last is WF_FRAME_TYPE_NONE. */
extern const enum wf_frame_type all_frame_types[];

#endif
