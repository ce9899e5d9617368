/* fuzz_safetensors.c - throws headers at the safetensors parser: it must refuse with a sentence, or
 * give tensors that tile the data exactly.
 *
 * Input: how many bytes of data follow the header (2 bytes), the header. The same bytes are tried
 * as a whole file too, whose prefix is as untrusted as the rest.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "models/safetensors.h"
#include "runtime/splitmix.h"

enum { EXAMPLES = 32, TENSORS_MAX = 5, DATA_LEN_BYTES = 2 };

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

static void try_header(const uint8_t *header, size_t len, uint64_t data_bytes)
{
    struct wf_safetensors *st = NULL;
    struct wf_error error = {0};
    if (wf_st_parse((const char *)header, len, data_bytes, &st, &error) != WF_OK) {
        WF_ASSERT(error.text[0] != '\0' && st == NULL);
        return;
    }
    check_tiles(st, data_bytes);
    wf_st_free(st);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t header_bytes;
    uint8_t *exact = malloc(size + 1); /* so that a sanitizer sees a step behind the end */
    WF_ASSERT(exact != NULL);
    memcpy(exact, data, size);
    if (size >= DATA_LEN_BYTES) {
        try_header(exact + DATA_LEN_BYTES, size - DATA_LEN_BYTES, exact[0] | exact[1] << 8);
    }
    if (size >= WF_ST_PREFIX_BYTES &&
        wf_st_header_bytes(exact, size, &header_bytes, NULL) == WF_OK) {
        try_header(exact + WF_ST_PREFIX_BYTES, (size_t)header_bytes,
                   size - WF_ST_PREFIX_BYTES - header_bytes);
    }
    free(exact);
    return 0;
}

/* A header with a few tensors. */
size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    static const char *const dtypes[] = {"F32", "BF16", "U8", "F4", "I64", "F8_E4M3"};
    static const uint32_t bits[] = {32, 16, 8, 4, 64, 8};
    uint64_t seed = index, at = 0;
    if (index >= EXAMPLES) {
        return 0;
    }
    char *text = (char *)out + DATA_LEN_BYTES;
    size_t room = cap - DATA_LEN_BYTES;
    size_t len = (size_t)snprintf(text, room, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = 0; i < index % TENSORS_MAX; i++) {
        uint32_t kind = (uint32_t)(wf_splitmix64(&seed) % 6);
        uint64_t rows = wf_splitmix64(&seed) % 4, columns = 2 * (wf_splitmix64(&seed) % 4);
        uint64_t end = at + rows * columns * bits[kind] / 8;
        len += (size_t)snprintf(text + len, room - len,
                                ",\"t%u\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64 ",%" PRIu64
                                "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                                i, dtypes[kind], rows, columns, at, end);
        at = end;
    }
    len += (size_t)snprintf(text + len, room - len, "}%*s", (int)(index % 8), "");
    out[0] = (uint8_t)at;
    out[1] = (uint8_t)(at >> 8);
    struct wf_safetensors *st = NULL;
    WF_ASSERT(wf_st_parse(text, len, at, &st, NULL) == WF_OK);
    wf_st_free(st);
    return DATA_LEN_BYTES + len;
}

const char *fuzz_word(uint32_t index)
{
    static const char *const words[] = {
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "-1",
        "0",
        "1",
        "8",
        "64",
        "null",
        "1e9",
        "0.5",
        "\"t0\":",
        "\"dtype\":",
        "\"shape\":",
        "\"data_offsets\":",
        "\"__metadata__\":",
        "18446744073709551615",
        "\\u0000",
        "\xff",
        "F4",
        "BF16",
        "F8_E4M3",
        "U8",
    };
    return index < sizeof words / sizeof words[0] ? words[index] : NULL;
}
