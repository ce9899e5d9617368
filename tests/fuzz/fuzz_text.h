/* fuzz_text.h - drives a fuzz target over text: files, or seeds changed at random.
 *
 * A target defines LLVMFuzzerTestOneInput and the seeds and words below, and calls fuzz_text_main.
 * Built with -DWEFT_LIBFUZZER it has no main, for libFuzzer.
 */
#ifndef WEFT_TESTS_FUZZ_TEXT_H
#define WEFT_TESTS_FUZZ_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

enum { FUZZ_TEXT_MAX = 8192, FUZZ_CHANGES_MAX = 6 };

struct fuzz_text {
    const char *const *seeds, *const *words;
    size_t seed_count, word_count;
    uint64_t state;
    char text[FUZZ_TEXT_MAX];
    size_t len;
};

static inline uint64_t fuzz_next(struct fuzz_text *fuzz)
{
    fuzz->state ^= fuzz->state << 13;
    fuzz->state ^= fuzz->state >> 7;
    fuzz->state ^= fuzz->state << 17;
    return fuzz->state * 0x2545f4914f6cdd1d;
}

/* Replaces `gone` bytes at `at` by a word. */
static inline void fuzz_replace(struct fuzz_text *fuzz, size_t at, size_t gone, const char *word,
                                size_t len)
{
    if (fuzz->len - gone + len > FUZZ_TEXT_MAX) {
        return;
    }
    memmove(fuzz->text + at + len, fuzz->text + at + gone, fuzz->len - at - gone);
    memmove(fuzz->text + at, word, len);
    fuzz->len += len - gone;
}

static inline void fuzz_change(struct fuzz_text *fuzz)
{
    size_t at = fuzz->len ? fuzz_next(fuzz) % fuzz->len : 0, left = fuzz->len - at;
    const char *word = fuzz->words[fuzz_next(fuzz) % fuzz->word_count];
    char copy[64];
    size_t copied = left < sizeof copy ? left : fuzz_next(fuzz) % sizeof copy;
    switch (fuzz_next(fuzz) % 6) {
    case 0: /* one byte */
        if (left) {
            fuzz->text[at] = (char)fuzz_next(fuzz);
        }
        break;
    case 1: /* cut out */
        fuzz_replace(fuzz, at, left ? fuzz_next(fuzz) % (left < 20 ? left : 20) : 0, "", 0);
        break;
    case 2: /* repeat what stands here, elsewhere */
        memcpy(copy, fuzz->text + at, copied);
        fuzz_replace(fuzz, fuzz->len ? fuzz_next(fuzz) % fuzz->len : 0, 0, copy, copied);
        break;
    case 3: /* put a word in */
        fuzz_replace(fuzz, at, 0, word, strlen(word));
        break;
    default: { /* a word for a run of letters or digits */
        size_t run = 0;
        while (run < left && (fuzz->text[at + run] > '/' || fuzz->text[at + run] == '.') &&
               fuzz->text[at + run] != ':' && fuzz->text[at + run] != '=') {
            run++;
        }
        fuzz_replace(fuzz, at, run, word, strlen(word));
    }
    }
}

/* Runs one input; inputs that take long are as much a finding as those that crash. */
static inline void fuzz_timed(const uint8_t *bytes, size_t len, uint64_t *slowest_us)
{
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    LLVMFuzzerTestOneInput(bytes, len);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    uint64_t us = (uint64_t)((after.tv_sec - before.tv_sec) * 1000000 +
                             (after.tv_nsec - before.tv_nsec) / 1000);
    *slowest_us = us > *slowest_us ? us : *slowest_us;
}

static inline int fuzz_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot open %s\n", path);
        return 1;
    }
    char *bytes = malloc(1 << 20);
    size_t len = bytes ? fread(bytes, 1, 1 << 20, file) : 0;
    fclose(file);
    LLVMFuzzerTestOneInput((const uint8_t *)bytes, len);
    free(bytes);
    return 0;
}

/* With files as arguments runs each once; else `--count N` changed seeds from `--seed N`. */
static inline int fuzz_text_main(struct fuzz_text *fuzz, int argc, char **argv, uint64_t count)
{
    int failed = 0, files = 0;
    uint64_t slowest_us = 0;
    fuzz->state = 1;
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            fuzz->state = strtoull(argv[++i], NULL, 10) | 1;
        } else if (i + 1 < argc && strcmp(argv[i], "--count") == 0) {
            count = strtoull(argv[++i], NULL, 10);
        } else {
            files++;
            failed |= fuzz_file(argv[i]);
        }
    }
    for (uint64_t n = 0; !files && fuzz_goes_on(n, count); n++) {
        const char *seed = fuzz->seeds[fuzz_next(fuzz) % fuzz->seed_count];
        fuzz->len = strlen(seed);
        memcpy(fuzz->text, seed, fuzz->len);
        for (uint64_t changes = fuzz_next(fuzz) % FUZZ_CHANGES_MAX; changes > 0; changes--) {
            fuzz_change(fuzz);
        }
        fuzz_timed((const uint8_t *)fuzz->text, fuzz->len, &slowest_us);
    }
    printf("slowest input: %llu us\n", (unsigned long long)slowest_us);
    return failed;
}

#endif
