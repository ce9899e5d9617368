/* fuzz_dump.c - names and shapes of a dump, as `weft layout detect` reads them: any bytes are
 * refused with a sentence, or give tensors whose names differ and whose shapes do not overflow. */
#include <string.h>

#include "fuzz.h"
#include "models/safetensors.h"
#include "tools/files/dump.h"

enum { DATA_BYTES = 6 };

/* What begins as JSON is the header of a safetensors file, so that words in it change no length
 * that stands before it: its length is put before it, and DATA_BYTES of data are said to follow. */
static size_t wrap_header(const uint8_t *data, size_t size, char *text)
{
    for (int i = 0; i < WF_ST_PREFIX_BYTES; i++) {
        text[i] = (char)((uint64_t)size >> (8 * i));
    }
    memcpy(text + WF_ST_PREFIX_BYTES, data, size);
    return WF_ST_PREFIX_BYTES + size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_dump_rank dump = {0};
    struct wf_error error = {0};
    bool header = size > 0 && data[0] == '{';
    /* Of its own, so that a step beyond its end is seen. */
    char *text = malloc(size + (header ? WF_ST_PREFIX_BYTES : 1));
    WF_ASSERT(text != NULL);
    size_t len = size;
    if (header) {
        len = wrap_header(data, size, text);
    } else {
        memcpy(text, data, size);
    }
    enum wf_status status =
        wf_dump_rank_parse(&dump, text, len, len + (header ? DATA_BYTES : 0), &error);
    if (status == WF_OK) {
        status = wf_dump_rank_sort(&dump, &error);
    }
    WF_ASSERT(status == WF_OK || error.text[0] != '\0');
    for (uint32_t i = 0; i < dump.count && status == WF_OK; i++) {
        uint64_t elements = 1;
        for (uint32_t d = 0; d < dump.tensors[i].ndim; d++) {
            WF_ASSERT(!__builtin_mul_overflow(elements, dump.tensors[i].shape[d], &elements));
        }
        WF_ASSERT(i == 0 || strcmp(dump.tensors[i - 1].name, dump.tensors[i].name) < 0);
    }
    wf_dump_rank_fini(&dump);
    free(text);
    return 0;
}

static const char *const examples[] = {
    "# name\tdtype\tshape\truns\na.weight\tbfloat16\t4x16\t0:0+64\nb\tfloat32\t-\tz+1\n",
    "alias\tb\ta\nmodel.layers.0.mlp.w13\tfloat8_e4m3fn\t4x64x64\n",
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]}}",
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[2,6]},"
    "\"a\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[0,2]}}",
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,6],\"data_offsets\":[0,6]}}",
};
/* A whole safetensors file, behind the texts. */
static const char file[] = "\x37\0\0\0\0\0\0\0"
                           "{\"a\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]}}"
                           "abcdef";
static const char *const words[] = {
    "\t",
    "\n",
    "-",
    "x",
    "#",
    "alias\t",
    "bfloat16",
    "float8",
    "4x4",
    "[1,2]",
    "[]",
    "[0]",
    "1,1,1,1,1,1,",
    "4294967296",
    "\"U8\"",
    "F4",
    "\"F64\"",
    "null",
    "\"a\":{},",
    "{",
    "}",
    "\"shape\"",
    "[",
    "]",
    ",",
    "__metadata__",
    "a",
    "18446744073709551616",
};

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    const uint32_t texts = sizeof examples / sizeof examples[0];
    if (index == texts) {
        memcpy(out, file, sizeof file - 1);
        return sizeof file - 1;
    }
    return fuzz_text(examples, texts, index, out, cap);
}

const char *fuzz_word(uint32_t index)
{
    return index < sizeof words / sizeof words[0] ? words[index] : NULL;
}
