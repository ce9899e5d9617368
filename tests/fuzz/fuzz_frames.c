/* fuzz_frames.c - throws bytes at the frame decoder: it must refuse, or give a frame that can be
 * sent again. One target for all frames: the type is the second byte. */
#include <stdlib.h>
#include <string.h>

#include "actors/messages.h"
#include "tests/actors/frames_random.h"
#include "tests/fuzz/fuzz.h"

enum { EXAMPLES_OF_A_TYPE = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_frame frame;
    struct wf_error error = {0};
    uint8_t *exact = malloc(size + 1); /* so that a sanitizer sees a read behind the end */
    WF_ASSERT(exact != NULL);
    memcpy(exact, data, size);
    enum wf_status status = wf_frame_decode(exact, size, &frame, &error);
    free(exact); /* a frame borrows nothing of its bytes */
    if (status != WF_OK) {
        WF_ASSERT(error.text[0] != '\0' && frame.memory == NULL);
        return 0;
    }
    uint8_t *again = NULL;
    size_t again_len = 0;
    WF_ASSERT(wf_frame_encode(frame.type, &frame.challenge, &again, &again_len, &error) == WF_OK);
    struct wf_frame copy;
    WF_ASSERT(wf_frame_decode(again, again_len, &copy, &error) == WF_OK);
    WF_ASSERT(frames_equal(&frame, &copy));
    wf_frame_fini(&copy);
    wf_frame_fini(&frame);
    free(again);
    return 0;
}

/* Some of every type that there is, so that every type is decoded on every run. */
size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    uint32_t types = 0;
    while (all_frame_types[types] != WF_FRAME_TYPE_NONE) {
        types++;
    }
    if (index >= types * EXAMPLES_OF_A_TYPE) {
        return 0;
    }
    struct wf_frame frame;
    uint64_t seed = index + 1;
    uint8_t *bytes = NULL;
    size_t len = 0;
    random_frame(&seed, all_frame_types[index % types], &frame);
    WF_ASSERT(wf_frame_encode(frame.type, &frame.challenge, &bytes, &len, NULL) == WF_OK);
    WF_ASSERT(len <= cap);
    memcpy(out, bytes, len);
    wf_frame_fini(&frame);
    free(bytes);
    return len;
}
