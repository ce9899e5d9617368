/* fuzz_main.c - runs a fuzz target for a bounded number of inputs, the same on every run:
 * FUZZER --examples FOLDER writes the inputs that others are made from; FUZZER [INPUTS [SEED]] (or
 * WEFT_FUZZ_SECONDS, see fuzz.h), or FUZZER FILE... to run kept inputs again. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum {
    INPUT_MAX = 64 << 10,
    INPUTS_DEFAULT = 10000,
    WARM_INPUTS = 1000,        /* until pools and tables have their size */
    LEAK_BYTES_MAX = 64 << 10, /* growth of the heap after that */
};

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t n)
{
    return n == 0 ? 0 : next(state) % n;
}

/* Changes a valid input a little: bits, bytes, cuts, doubled and moved parts. */
static size_t mutate(uint64_t *state, uint8_t *data, size_t len)
{
    for (size_t changes = 1 + below(state, 4); changes > 0 && len > 0; changes--) {
        size_t at = below(state, len), part = 1 + below(state, len - at);
        switch (below(state, 6)) {
        case 0:
            data[at] ^= (uint8_t)(1u << below(state, 8));
            break;
        case 1:
            data[at] = (uint8_t)next(state);
            break;
        case 2:
            data[at] = (uint8_t)(below(state, 2) ? 0xff : 0);
            break;
        case 3:
            len = at;
            break;
        case 4:
            memmove(data + at, data + at + part, len - at - part);
            len -= part;
            break;
        default:
            part = part < INPUT_MAX - len ? part : INPUT_MAX - len;
            memmove(data + at + part, data + at, len - at);
            len += part;
            break;
        }
    }
    return len;
}

static size_t make_input(uint64_t *state, uint32_t examples, uint8_t *data)
{
    if (examples == 0 || below(state, 8) == 0) {
        size_t len = below(state, 512);
        for (size_t i = 0; i < len; i++) {
            data[i] = (uint8_t)next(state);
        }
        return len;
    }
    size_t len = fuzz_example((uint32_t)below(state, examples), data, INPUT_MAX);
    return mutate(state, data, len);
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

/* Changed examples, for a number of inputs or a time; finds what leaks with each. */
static int run_changed(unsigned long inputs, uint64_t state, uint8_t *data)
{
    uint32_t examples = 0;
    for (size_t len; (len = fuzz_example(examples, data, INPUT_MAX)) > 0; examples++) {
        LLVMFuzzerTestOneInput(data, len);
    }
    size_t warm = 0;
    uint64_t i = 0;
    for (; fuzz_goes_on(i, inputs); i++) {
        if (i == WARM_INPUTS) {
            warm = mallinfo2().uordblks;
        }
        LLVMFuzzerTestOneInput(data, make_input(&state, examples, data));
    }
    size_t now = mallinfo2().uordblks;
    printf("%llu inputs from %u examples; heap %zu bytes\n", (unsigned long long)i, examples, now);
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
