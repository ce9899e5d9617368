/* fuzz_safetensors.c - throws headers at the safetensors parser: it must refuse with a sentence, or
 * give tensors that tile the data exactly.
 *
 * With files as arguments it parses each once, as a whole file. Without, it changes well-formed
 * headers at random; `--count N` and `--seed N` choose how many and which.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "models/safetensors.h"

enum { COUNT_DEFAULT = 20000, CHANGES_MAX = 6, HEADER_MAX = 4096, FILE_MAX = 1 << 20 };

static uint64_t random_next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void check_tiles(const struct wf_safetensors *st, uint64_t data_bytes)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < st->tensor_count; i++) {
        const struct wf_st_tensor *tensor = &st->tensors[i];
        WF_ASSERT(tensor->begin == at && tensor->end >= at);
        WF_ASSERT(wf_st_find(st, tensor->name) == tensor);
        if (tensor->dtype != WF_DTYPE_NONE) {
            WF_ASSERT(tensor->end - tensor->begin ==
                      tensor->elements * wf_dtype_bytes(tensor->dtype));
        }
        at = tensor->end;
    }
    WF_ASSERT(at == data_bytes);
}

static bool fuzz_one(const char *header, size_t len, uint64_t data_bytes)
{
    struct wf_safetensors *st = NULL;
    struct wf_error error = {0};
    if (wf_st_parse(header, len, data_bytes, &st, &error) != WF_OK) {
        WF_ASSERT(error.text[0] != '\0' && st == NULL);
        return false;
    }
    check_tiles(st, data_bytes);
    wf_st_free(st);
    return true;
}

/* A whole file: the prefix is as untrusted as the rest. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t header_bytes;
    uint8_t *bytes = malloc(size + 1);
    WF_ASSERT(bytes != NULL);
    memcpy(bytes, data, size);
    if (size >= WF_ST_PREFIX_BYTES &&
        wf_st_header_bytes(bytes, size, &header_bytes, NULL) == WF_OK) {
        fuzz_one((const char *)bytes + WF_ST_PREFIX_BYTES, (size_t)header_bytes,
                 size - WF_ST_PREFIX_BYTES - header_bytes);
    }
    free(bytes);
    return 0;
}

#ifndef WEFT_LIBFUZZER
static void fuzz_file(const char *path)
{
    uint8_t *bytes = malloc(FILE_MAX);
    FILE *in = fopen(path, "rb");
    WF_ASSERT(bytes != NULL && in != NULL);
    LLVMFuzzerTestOneInput(bytes, fread(bytes, 1, FILE_MAX, in));
    fclose(in);
    free(bytes);
}

/* A header with a few tensors; what it needs of data in *data_out. */
static size_t well_formed(uint64_t *seed, char *text, uint64_t *data_out)
{
    static const char *const dtypes[] = {"F32", "BF16", "U8", "F4", "I64", "F8_E4M3"};
    static const uint32_t bits[] = {32, 16, 8, 4, 64, 8};
    uint64_t at = 0;
    int len = snprintf(text, HEADER_MAX, "{\"__metadata__\":{\"format\":\"pt\"}");
    uint32_t count = (uint32_t)(random_next(seed) % 5);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t kind = (uint32_t)(random_next(seed) % 6);
        uint64_t rows = random_next(seed) % 4, columns = 2 * (random_next(seed) % 4);
        uint64_t end = at + rows * columns * bits[kind] / 8;
        len += snprintf(text + len, (size_t)(HEADER_MAX - len),
                        ",\"t%u\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64 ",%" PRIu64
                        "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                        i, dtypes[kind], rows, columns, at, end);
        at = end;
    }
    len +=
        snprintf(text + len, (size_t)(HEADER_MAX - len), "}%*s", (int)(random_next(seed) % 8), "");
    *data_out = at;
    return (size_t)len;
}

/* Flips, cuts and other tokens: what a broken writer or a hostile file might hold. */
static size_t change(uint64_t *seed, char *text, size_t len)
{
    static const char *const tokens[] = {
        "[",       "]",    "{",  "}", ",", "-1", "1e9", "null", "\"t0\":", "18446744073709551615",
        "\\u0000", "\xff", "0.5"};
    size_t at = random_next(seed) % len;
    uint64_t kind = random_next(seed) % 4;
    if (kind == 0) {
        text[at] = (char)random_next(seed);
    } else if (kind == 1) {
        text[at] = (char)('0' + random_next(seed) % 10);
    } else if (kind == 2) {
        return at + 1;
    } else {
        const char *token = tokens[random_next(seed) % (sizeof tokens / sizeof tokens[0])];
        size_t add = strlen(token);
        if (len + add < HEADER_MAX) {
            memmove(text + at + add, text + at, len - at);
            memcpy(text + at, token, add);
            return len + add;
        }
    }
    return len;
}

static void fuzz_random(uint64_t seed, uint64_t count)
{
    uint64_t accepted = 0;
    for (uint64_t i = 0; fuzz_goes_on(i, count); i++) {
        char text[HEADER_MAX];
        uint64_t data_bytes;
        size_t len = well_formed(&seed, text, &data_bytes);
        WF_ASSERT(fuzz_one(text, len, data_bytes));
        uint64_t changes = 1 + random_next(&seed) % CHANGES_MAX;
        for (uint64_t c = 0; c < changes; c++) {
            len = change(&seed, text, len);
        }
        /* Its own block, so that a sanitizer sees a step beyond its end. */
        char *copy = malloc(len);
        WF_ASSERT(copy != NULL);
        memcpy(copy, text, len);
        accepted += fuzz_one(copy, len, data_bytes);
        free(copy);
    }
    printf("%" PRIu64 " changed headers, %" PRIu64 " still valid\n", count, accepted);
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, count = COUNT_DEFAULT;
    bool files = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--count") == 0 && i + 1 < argc) {
            count = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            seed = strtoull(argv[++i], NULL, 10) | 1;
        } else {
            fuzz_file(argv[i]);
            files = true;
        }
    }
    if (!files) {
        fuzz_random(seed, count);
    }
    return 0;
}
#endif
