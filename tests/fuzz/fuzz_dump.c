/* fuzz_dump.c - names and shapes of a dump, as `weft layout detect` reads them: any bytes are
 * refused with a sentence, or give tensors whose names differ and whose shapes do not overflow. */
#include <string.h>

#include "fuzz.h"
#include "tools/files/dump.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_dump_rank dump = {0};
    struct wf_error error = {0};
    char *text = malloc(size + 1); /* of its own, so that a step beyond its end is seen */
    WF_ASSERT(text != NULL);
    memcpy(text, data, size);
    enum wf_status status = wf_dump_rank_parse(&dump, text, size, size, &error);
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

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    static const char *const examples[] = {
        "# name\tdtype\tshape\truns\na.weight\tbfloat16\t4x16\t0:0+64\nb\tfloat32\t-\tz+1\n",
        "alias\tb\ta\nmodel.layers.0.mlp.w13\tfloat8_e4m3fn\t4x64x64\n",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]}}",
    };
    if (index >= sizeof examples / sizeof examples[0]) {
        return 0;
    }
    size_t len = strlen(examples[index]);
    if (examples[index][0] != '{') {
        WF_ASSERT(len <= cap);
        memcpy(out, examples[index], len);
        return len;
    }
    WF_ASSERT(len + 14 <= cap); /* length, header, six bytes of data */
    memset(out, 0, len + 14);
    out[0] = (uint8_t)len;
    memcpy(out + 8, examples[index], len);
    return len + 14;
}
