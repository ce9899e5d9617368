/* test_expect_layout.c - what the element check expects of tensors that only a layout describes:
 * rows of parameters, wherever they stand, or a refusal. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "models/engines/engine.h"
#include "models/manifest.h"
#include "models/manifest_set.h"
#include "tests/models/manifest_text.h"
#include "tools/check/expect.h"

#define QWEN3 "tests/golden/models/tiny-qwen3.json"

enum { TEXT_MAX = 2048 };

/* Two matrices of 96 x 64 in bf16, gate (0) and up (1), in one tensor. */
static const struct {
    const char *name, *shape, *forms, *pieces;
    uint32_t rects;
    uint64_t rows;
    const char *refusal;
} rows[] = {
    {"one below the other", "[192, 64]", "[[2, [6144, 1, 2]]]", "[0], [0, 0, 12288]", 2, 192, NULL},
    {"in turns", "[192, 64]", "[[2, [96, 64, 256], [64, 1, 2]]]", "[0], [0, 0, 128]", 192, 192,
     NULL},
    {"half of the columns", "[96, 32]", "[[2, [96, 64, 64], [32, 1, 2]]]", "[0, 0, 0, 32]", 1, 96,
     NULL},
    {"rows of another width", "[192, 32]", "[[2, [6144, 1, 2]]]", "[0]", 1, 192, NULL},
    {"transposed", "[64, 96]", "[[2, [96, 64, 2], [64, 1, 192]]]", "[0]", 1, 64, NULL},
    {"transposed, one after the other", "[128, 96]", "[[2, [96, 64, 2], [64, 1, 192]]]",
     "[0], [0, 0, 12288]", 2, 128, NULL},
    {"the same rows twice", "[192, 64]", "[[2, [2, 0, 12288], [6144, 1, 2]]]", "[0]", 2, 192, NULL},
    {"zeros behind", "[100, 64]", "[[2, [6144, 1, 2]], [2, [256, 1, 2]]]", "[0], [1, null, 12288]",
     1, 96, NULL},
    {"zeros before", "[100, 64]", "[[2, [256, 1, 2]], [2, [6144, 1, 2]]]", "[0, null], [1, 0, 512]",
     0, 0, "are not together"},
    {"a fill of sevens", "[100, 64]", "[[2, [6144, 1, 2]], [2, [256, 1, 2]]]",
     "[0], [1, null, 12288, 0, 7]", 0, 0, "a fill that is not of zeros"},
    {"less 1", "[96, 64]", "[[2, [6144, 1, 2]]]", "[0, 0, 0, 0, 1]", 0, 0, "values less 1"},
    {"side by side", "[96, 128]", "[[2, [96, 64, 256], [64, 1, 2]]]", "[0], [0, 0, 128]", 0, 0,
     "is not in rows"},
};

/* One rank whose only tensor is this. */
static void add_manifest(struct wf_model *model, size_t row, const char *files)
{
    char text[TEXT_MAX];
    msgpack_sbuffer bytes;
    struct wf_manifest read;
    struct wf_error error = {0};
    snprintf(text, sizeof text,
             "[\"weft-manifest\", 1, null, [\"model\", \"layers\", \"0\", \"mlp\", \"gate_proj\", "
             "\"up_proj\", \"weight\"], [[0, 0, 1, 2, 3, 4, 6], [4, 5, 6]], [[\"bf16\", 0, %s, "
             "[]]], %s, [[[0, 3], 0, %s]], []]",
             rows[row].shape, rows[row].forms, rows[row].pieces);
    manifest_of_text(text, &bytes);
    cr_assert_eq(wf_manifest_read((const uint8_t *)bytes.data, bytes.size, model, &read, &error),
                 WF_OK, "%s: %s", rows[row].name, error.text);
    msgpack_sbuffer_destroy(&bytes);
    cr_assert_eq(wf_model_add_manifest(model, files, 0, read.layout, &error), WF_OK);
}

Test(expect_layout, rows_of_parameters_are_found)
{
    struct wf_model *model = golden_model(QWEN3);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char spec[64];
        struct wf_recipe recipe;
        struct wf_expect expect = {0};
        struct wf_error error = {0};
        snprintf(spec, sizeof spec, "manifest:files=row-%zu", i);
        add_manifest(model, i, strchr(spec, '=') + 1);
        cr_assert_eq(wf_recipe_parse(spec, model, &recipe, &error), WF_OK, "%s", error.text);
        enum wf_status status = wf_expect_layout(&expect, model, &recipe, 0, &error);
        if (rows[i].refusal) {
            cr_expect(status == WF_UNSUPPORTED && strstr(error.text, rows[i].refusal), "%s: %s",
                      rows[i].name, error.text);
        } else {
            cr_assert_eq(status, WF_OK, "%s: %s", rows[i].name, error.text);
            const struct wf_expect_tensor *tensor = &expect.tensors[0];
            uint64_t found = 0;
            cr_expect_eq(tensor->rect_count, rows[i].rects, "%s", rows[i].name);
            for (uint32_t r = 0; r < tensor->rect_count; found += tensor->rects[r++].rows) {
                cr_expect_eq(tensor->rects[r].live_row, found, "%s", rows[i].name);
            }
            cr_expect_eq(found, rows[i].rows, "%s", rows[i].name);
        }
        wf_expect_fini(&expect);
    }
    wf_model_free(model);
}
