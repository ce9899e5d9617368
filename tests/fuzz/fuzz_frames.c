/* fuzz_frames.c - throws bytes at the frame decoder: it must refuse, or give a frame that can be
 * sent again.
 *
 * With files as arguments it decodes each once (for crashes found elsewhere). Without, it changes
 * well-formed frames at random; `--count N` and `--seed N` choose how many and which.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../actors/frames_random.h"
#include "actors/messages.h"

enum { COUNT_DEFAULT = 20000, CHANGES_MAX = 8 };

static void fuzz_one(const uint8_t *bytes, size_t len)
{
    struct wf_frame frame;
    struct wf_error error = {0};
    if (wf_frame_decode(bytes, len, &frame, &error) != WF_OK) {
        WF_ASSERT(error.text[0] != '\0' && frame.memory == NULL);
        return;
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
}

/* Flips, cuts, repeats and splices: what a broken or hostile peer might send. */
static void change(uint64_t *seed, uint8_t **bytes, size_t *len)
{
    uint8_t *b = *bytes;
    size_t at = random_next(seed) % *len;
    switch (random_next(seed) % 4) {
    case 0:
        b[at] = (uint8_t)random_next(seed);
        break;
    case 1:
        b[at] ^= (uint8_t)(1u << random_next(seed) % 8);
        break;
    case 2:
        *len = at + 1;
        break;
    default: {
        size_t count = 1 + random_next(seed) % 16;
        b = realloc(b, *len + count);
        WF_ASSERT(b != NULL);
        memmove(b + at + count, b + at, *len - at);
        *len += count;
        *bytes = b;
    }
    }
}

static void fuzz_changes(uint64_t seed, uint64_t count)
{
    size_t types = 0;
    while (all_frame_types[types] != WF_FRAME_TYPE_NONE) {
        types++;
    }
    for (uint64_t i = 0; i < count; i++) {
        struct wf_frame frame;
        random_frame(&seed, all_frame_types[i % types], &frame);
        uint8_t *bytes = NULL;
        size_t len = 0;
        WF_ASSERT(wf_frame_encode(frame.type, &frame.challenge, &bytes, &len, NULL) == WF_OK);
        for (uint64_t n = random_next(&seed) % CHANGES_MAX; n > 0; n--) {
            change(&seed, &bytes, &len);
        }
        fuzz_one(bytes, len);
        wf_frame_fini(&frame);
        free(bytes);
    }
}

static int fuzz_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    uint8_t *bytes = malloc(WF_FRAME_MAX + 1);
    WF_ASSERT(bytes != NULL);
    size_t len = fread(bytes, 1, WF_FRAME_MAX + 1, file);
    fclose(file);
    fuzz_one(bytes, len);
    free(bytes);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, count = COUNT_DEFAULT;
    int failed = 0;
    bool files = false;
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[++i], NULL, 10);
        } else if (i + 1 < argc && strcmp(argv[i], "--count") == 0) {
            count = strtoull(argv[++i], NULL, 10);
        } else {
            files = true;
            failed |= fuzz_file(argv[i]);
        }
    }
    if (!files) {
        fuzz_changes(seed, count);
        printf("%llu frames changed at random (seed %llu): refused or sent again\n",
               (unsigned long long)count, (unsigned long long)seed);
    }
    return failed;
}
