/* fuzz_main.c - runs a fuzz target for a bounded number of inputs, the same on every run:
 * FUZZER --examples FOLDER writes the inputs that others are made from; FUZZER [INPUTS [SEED]] (or
 * WEFT_FUZZ_SECONDS, see fuzz.h), or FUZZER FILE... to run kept inputs again. */
#include <ctype.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/splitmix.h"
#include "tests/fuzz/fuzz.h"

enum {
    INPUT_MAX = 64 << 10,
    INPUTS_DEFAULT = 10000,
    WARM_INPUTS = 1000,        /* until pools and tables have their size */
    LEAK_BYTES_MAX = 64 << 10, /* growth of the heap after that */
    KEPT_BYTES_MAX = 1032,     /* a freed block up to that size may be kept for its thread, ... */
    KEPT_BLOCKS = 8,           /* ... and so many of a size, at most */
};

struct maker {
    uint64_t state;           /* of the draws */
    uint32_t examples, words; /* how many the target has */
};

__attribute__((weak)) const char *fuzz_word(uint32_t index)
{
    (void)index;
    return NULL;
}

static size_t below(struct maker *maker, size_t n)
{
    return n == 0 ? 0 : wf_splitmix64(&maker->state) % n;
}

static uint8_t any_byte(struct maker *maker)
{
    return (uint8_t)wf_splitmix64(&maker->state);
}

/* --- changing ---------------------------------------------------------------------------------
 */
/* A word for the letters and digits at `at`, or between what is there. */
static size_t put_word(struct maker *maker, uint8_t *data, size_t len, size_t at)
{
    const char *word = fuzz_word((uint32_t)below(maker, maker->words));
    size_t add = strlen(word), gone = 0;
    while (below(maker, 3) != 0 && at + gone < len && isalnum(data[at + gone])) {
        gone++;
    }
    if (len - gone + add > INPUT_MAX) {
        return len;
    }
    memmove(data + at + add, data + at + gone, len - at - gone);
    memcpy(data + at, word, add);
    return len - gone + add;
}

/* Changes a valid input a little: bits, bytes, cuts, doubled and moved parts, words. */
static size_t mutate(struct maker *maker, uint8_t *data, size_t len)
{
    const size_t ways = maker->words > 0 ? 12 : 6;
    for (size_t changes = 1 + below(maker, 4); changes > 0 && len > 0; changes--) {
        size_t at = below(maker, len), part = 1 + below(maker, len - at);
        switch (below(maker, ways)) {
        case 0:
            data[at] ^= (uint8_t)(1u << below(maker, 8));
            break;
        case 1:
            data[at] = any_byte(maker);
            break;
        case 2:
            data[at] = (uint8_t)(below(maker, 2) ? 0xff : 0);
            break;
        case 3:
            len = at;
            break;
        case 4:
            memmove(data + at, data + at + part, len - at - part);
            len -= part;
            break;
        case 5:
            part = part < INPUT_MAX - len ? part : INPUT_MAX - len;
            memmove(data + at + part, data + at, len - at);
            len += part;
            break;
        default:
            len = put_word(maker, data, len, at);
            break;
        }
    }
    return len;
}

static size_t make_input(struct maker *maker, uint8_t *data)
{
    if (maker->examples == 0 || below(maker, 8) == 0) {
        size_t len = below(maker, 512);
        for (size_t i = 0; i < len; i++) {
            data[i] = any_byte(maker);
        }
        return len;
    }
    size_t len = fuzz_example((uint32_t)below(maker, maker->examples), data, INPUT_MAX);
    return mutate(maker, data, len);
}

static int run_files(int count, char **paths, uint8_t *data)
{
    for (int i = 0; i < count; i++) {
        FILE *file = fopen(paths[i], "rb");
        if (file == NULL) {
            fprintf(stderr, "%s: cannot be read\n", paths[i]);
            return 1;
        }
        size_t len = fread(data, 1, INPUT_MAX, file);
        fclose(file);
        LLVMFuzzerTestOneInput(data, len);
    }
    return 0;
}

/* What libFuzzer begins with: each example in a file of its own. */
static int write_examples(const char *folder, uint8_t *data)
{
    size_t len;
    for (uint32_t i = 0; (len = fuzz_example(i, data, INPUT_MAX)) > 0; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/example-%u", folder, i);
        FILE *file = fopen(path, "wb");
        if (file == NULL || fwrite(data, 1, len, file) != len || fclose(file) != 0) {
            fprintf(stderr, "%s: cannot be written\n", path);
            return 1;
        }
    }
    return 0;
}

/* Runs one input: what takes long is as much a finding as what crashes. */
static void run_timed(const uint8_t *data, size_t len, uint64_t *slowest_us)
{
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    LLVMFuzzerTestOneInput(data, len);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    uint64_t us = (uint64_t)((after.tv_sec - before.tv_sec) * 1000000 +
                             (after.tv_nsec - before.tv_nsec) / 1000);
    *slowest_us = us > *slowest_us ? us : *slowest_us;
}

/* Bytes in use. glibc counts as used what a thread keeps of its freed blocks; millions of inputs
 * come by all sizes in the end, which looks like a leak of 100 KiB. So that is filled first. */
static size_t heap_bytes(void)
{
    void *blocks[KEPT_BLOCKS];
    for (size_t bytes = 8; bytes <= KEPT_BYTES_MAX; bytes += 16) {
        for (int i = 0; i < KEPT_BLOCKS; i++) {
            blocks[i] = malloc(bytes);
        }
        for (int i = 0; i < KEPT_BLOCKS; i++) {
            free(blocks[i]);
        }
    }
    return mallinfo2().uordblks;
}

/* Changed examples, for a number of inputs or a time; finds what leaks with each. */
static int run_changed(unsigned long inputs, uint64_t seed, uint8_t *data)
{
    struct maker maker = {.state = seed};
    for (size_t len; (len = fuzz_example(maker.examples, data, INPUT_MAX)) > 0; maker.examples++) {
        LLVMFuzzerTestOneInput(data, len);
    }
    while (fuzz_word(maker.words) != NULL) {
        maker.words++;
    }
    size_t warm = 0;
    uint64_t i = 0, slowest_us = 0;
    for (; fuzz_goes_on(i, inputs); i++) {
        if (i == WARM_INPUTS) {
            warm = heap_bytes();
        }
        size_t len = make_input(&maker, data);
        run_timed(data, len, &slowest_us);
    }
    size_t now = heap_bytes();
    printf("%llu inputs from %u examples; heap %zu bytes; slowest %llu us\n", (unsigned long long)i,
           maker.examples, now, (unsigned long long)slowest_us);
    if (warm != 0 && now > warm + LEAK_BYTES_MAX) {
        fprintf(stderr, "the heap grew from %zu to %zu bytes\n", warm, now);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    uint8_t *data = malloc(INPUT_MAX);
    char *end = NULL;
    unsigned long inputs = argc > 1 ? strtoul(argv[1], &end, 10) : INPUTS_DEFAULT;
    int status;
    if (argc == 3 && strcmp(argv[1], "--examples") == 0) {
        status = write_examples(argv[2], data);
    } else if (argc > 1 && *end != '\0') {
        status = run_files(argc - 1, argv + 1, data);
    } else {
        status = run_changed(inputs, argc > 2 ? strtoull(argv[2], NULL, 10) : 1, data);
    }
    free(data);
    return status;
}
