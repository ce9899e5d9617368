/* fuzz_version.c - throws bytes at the reader of weft_version.json: it must refuse them with a
 * sentence, or give what is written and read again as the same. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/files/version_manifest.h"

static void check_same(const struct wf_version_manifest *a, const struct wf_version_manifest *b)
{
    WF_ASSERT(strcmp(a->job, b->job) == 0 && strcmp(a->label, b->label) == 0);
    WF_ASSERT(wf_version_compare(a->version, b->version) == 0 && a->file_count == b->file_count);
    for (uint32_t i = 0; i < a->file_count; i++) {
        const struct wf_version_file *x = &a->files[i], *y = &b->files[i];
        WF_ASSERT(strcmp(x->name, y->name) == 0 && x->bytes == y->bytes);
        WF_ASSERT(x->chunk_count == y->chunk_count &&
                  memcmp(x->chunks, y->chunks, x->chunk_count * sizeof *x->chunks) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_version_manifest manifest = {0}, again = {0};
    struct wf_error error = {0};
    char *exact = malloc(size + 1), *text = NULL;
    size_t len = 0;
    WF_ASSERT(exact != NULL);
    memcpy(exact, data, size);
    if (wf_version_manifest_parse(exact, size, &manifest, &error) != WF_OK) {
        WF_ASSERT(error.text[0] != '\0' && manifest.files == NULL);
    } else {
        WF_ASSERT(wf_version_manifest_format(&manifest, &text, &len, &error) == WF_OK);
        WF_ASSERT(wf_version_manifest_parse(text, len, &again, &error) == WF_OK);
        check_same(&manifest, &again);
    }
    wf_version_manifest_fini(&manifest);
    wf_version_manifest_fini(&again);
    free(text);
    free(exact);
    return 0;
}

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    uint64_t chunks[] = {0, UINT64_MAX, 0x0123456789abcdef};
    struct wf_version_file files[] = {
        {(char *)"model.safetensors", 3 << 20, chunks, 3},
        {(char *)"other.safetensors", 5, chunks + 1, 1},
        {(char *)"empty", 0, chunks, 0},
    };
    char *text = NULL;
    size_t len = 0;
    if (index >= sizeof files / sizeof files[0]) {
        return 0;
    }
    const struct wf_version_manifest manifest = {.job = "fuzzed",
                                                 .version = {1764460800, 1, index},
                                                 .label = "step-7",
                                                 .files = files,
                                                 .file_count = index + 1};
    WF_ASSERT(wf_version_manifest_format(&manifest, &text, &len, NULL) == WF_OK);
    len = len < cap ? len : cap;
    memcpy(out, text, len);
    free(text);
    return len;
}

const char *fuzz_word(uint32_t index)
{
    static const char *const words[] = {
        "\"format\": 2",
        "\"chunk_bytes\": 1048576",
        "\"version\": \"1.1.1\"",
        "\"files\": [",
        "\"name\": \"a\"",
        "\"bytes\": 1048577",
        "\"chunks\": \"",
        "\"digest\": \"",
        "0000000000000000",
        "ffffffffffffffff",
        "\"job\": \"",
        "\"label\": \"\"",
        "null",
        "{",
        "}",
        "]",
        ",",
        "-1",
        "9223372036854775807",
        "../",
        "\\u0000",
    };
    return index < sizeof words / sizeof words[0] ? words[index] : NULL;
}
