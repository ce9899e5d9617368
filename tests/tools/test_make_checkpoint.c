/* test_make_checkpoint.c - the folder is readable, repeatable, and never silently replaced. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tools/folder.h"
#include "tools/files/checkpoint.h"
#include "tools/files/known_values.h"
#include "tools/files/make_checkpoint.h"

#define QWEN3 "tests/golden/models/tiny-qwen3.json"
#define LLAMA "tests/golden/models/tiny-llama.json"

static char folder[FOLDER_PATH_MAX];

static void set_up(void)
{
    folder_make(folder);
}

static void tear_down(void)
{
    folder_remove(folder);
}

TestSuite(make_checkpoint, .init = set_up, .fini = tear_down);

static enum wf_status make(struct wf_make_options options, struct wf_make_report *report,
                           struct wf_error *error)
{
    options.folder = folder;
    return wf_make_checkpoint(&options, report, error);
}

static bool is_there(const char *name)
{
    char path[2 * FOLDER_PATH_MAX];
    struct stat info;
    return stat(folder_join(path, folder, name), &info) == 0;
}

/* Opens the folder as any reader would and compares every element. */
static void expect_values(uint64_t layers, enum wf_dtype dtype)
{
    const struct wf_checkpoint_options strict = {.extras_refuse = true};
    struct wf_model *model = NULL;
    struct wf_checkpoint *checkpoint = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_checkpoint_model(folder, NULL, &model, &error), WF_OK, "%s", error.text);
    cr_assert_eq(model->layers, layers);
    cr_assert_eq(model->dtype, dtype);
    cr_assert_eq(wf_checkpoint_open(folder, model, &strict, &checkpoint, &error), WF_OK, "%s",
                 error.text);
    for (uint32_t p = 0; p < model->param_count; p++) {
        uint64_t elements = model->params[p].elements, bytes = elements * wf_dtype_bytes(dtype);
        uint8_t *found = malloc(bytes), *known = malloc(bytes);
        cr_assert_eq(checkpoint->entries[p].dtype, dtype);
        cr_assert_eq(wf_checkpoint_read(checkpoint, p, 0, elements, found, &error), WF_OK);
        wf_known_values_fill(model->params[p].name, 0, elements, dtype, known);
        cr_assert_eq(memcmp(found, known, bytes), 0, "%s", model->params[p].name);
        free(found);
        free(known);
    }
    wf_checkpoint_free(checkpoint);
    wf_model_free(model);
}

Test(make_checkpoint, writes_what_was_asked_and_nothing_the_second_time)
{
    static const struct {
        const char *name;
        struct wf_make_options options;
        uint64_t layers;
        enum wf_dtype dtype;
        uint32_t files;
    } rows[] = {
        {"plain", {.config = QWEN3, .shards = 1}, 4, WF_DTYPE_BF16, 1},
        {"tied", {.config = LLAMA, .shards = 1}, 4, WF_DTYPE_BF16, 1},
        {"fewer layers", {.config = LLAMA, .shards = 1, .layers = 2}, 2, WF_DTYPE_BF16, 1},
        {"more layers", {.config = QWEN3, .shards = 1, .layers = 6}, 6, WF_DTYPE_BF16, 1},
        {"f32 in shards",
         {.config = QWEN3, .shards = 3, .dtype = WF_DTYPE_F32},
         4,
         WF_DTYPE_F32,
         3},
        {"f16, one tensor a shard",
         {.config = LLAMA, .shards = 20, .layers = 2, .dtype = WF_DTYPE_F16},
         2,
         WF_DTYPE_F16,
         20},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_make_report report;
        struct wf_error error = {0};
        folder_remove(folder); /* it makes the folder too */
        cr_assert_eq(make(rows[i].options, &report, &error), WF_OK, "%s: %s", rows[i].name,
                     error.text);
        cr_assert_eq(report.files, rows[i].files, "%s", rows[i].name);
        cr_assert_eq(report.files_written, rows[i].files + (rows[i].files > 1) + 1, "%s",
                     rows[i].name);
        expect_values(rows[i].layers, rows[i].dtype);
        cr_assert_eq(make(rows[i].options, &report, &error), WF_OK, "%s again: %s", rows[i].name,
                     error.text);
        cr_assert_eq(report.files_written, 0, "%s again", rows[i].name);
    }
}

Test(make_checkpoint, config_is_copied_byte_for_byte)
{
    struct wf_make_report report;
    char path[2 * FOLDER_PATH_MAX], command[4 * FOLDER_PATH_MAX];
    cr_assert_eq(make((struct wf_make_options){.config = QWEN3, .shards = 1}, &report, NULL),
                 WF_OK);
    snprintf(command, sizeof command, "cmp -s %s %s", QWEN3,
             folder_join(path, folder, "config.json"));
    cr_assert_eq(system(command), 0);
}

Test(make_checkpoint, what_differs_is_refused_and_kept)
{
    static const struct {
        const char *name;
        struct wf_make_options options;
    } rows[] = {
        {"another model", {.config = LLAMA, .shards = 1}},
        {"another dtype", {.config = QWEN3, .shards = 1, .dtype = WF_DTYPE_F32}},
        {"fewer layers", {.config = QWEN3, .shards = 1, .layers = 3}},
        {"shards", {.config = QWEN3, .shards = 2}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_make_report report;
        struct wf_error error = {0};
        cr_assert_eq(make((struct wf_make_options){.config = QWEN3, .shards = 1}, &report, NULL),
                     WF_OK);
        cr_assert_eq(make(rows[i].options, &report, &error), WF_REFUSED, "%s", rows[i].name);
        cr_assert_not_null(strstr(error.text, "--force"), "%s: %s", rows[i].name, error.text);
        expect_values(4, WF_DTYPE_BF16);
        cr_assert_not(is_there("model-00001-of-00002.safetensors"), "%s", rows[i].name);
    }
}

Test(make_checkpoint, force_replaces_and_leaves_no_stray_weights)
{
    struct wf_make_report report;
    struct wf_error error = {0};
    cr_assert_eq(make((struct wf_make_options){.config = QWEN3, .shards = 3}, &report, NULL),
                 WF_OK);
    folder_write(folder, "notes.txt", "mine", 4);
    cr_assert_eq(make((struct wf_make_options){.config = LLAMA, .shards = 2, .force = true},
                      &report, &error),
                 WF_OK, "%s", error.text);
    expect_values(4, WF_DTYPE_BF16);
    cr_assert_not(is_there("model-00001-of-00003.safetensors"));
    cr_assert_eq(make((struct wf_make_options){.config = LLAMA, .shards = 1, .force = true},
                      &report, &error),
                 WF_OK, "%s", error.text);
    expect_values(4, WF_DTYPE_BF16);
    cr_assert_not(is_there("model.safetensors.index.json"));
    cr_assert(is_there("notes.txt"), "other people's files stay");
}

Test(make_checkpoint, goes_on_after_a_failure_and_is_unfinished_until_then)
{
    struct rlimit limit = {.rlim_cur = 60000, .rlim_max = RLIM_INFINITY};
    struct wf_make_options options = {.config = QWEN3, .shards = 8};
    struct wf_make_report report;
    struct wf_error error = {0};
    struct wf_model *model = NULL;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    enum wf_status status = make(options, &report, &error);
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
    cr_assert_eq(status, WF_IO);
    cr_assert_not_null(strstr(error.text, "file-size limit"), "%s", error.text);
    cr_assert_eq(wf_checkpoint_model(folder, NULL, &model, &error), WF_NOT_FOUND,
                 "no config.json yet");
    cr_assert_eq(make(options, &report, &error), WF_OK, "%s", error.text);
    expect_values(4, WF_DTYPE_BF16);
}

Test(make_checkpoint, refusals)
{
    static const struct {
        const char *name;
        struct wf_make_options options;
        const char *expected;
    } rows[] = {
        {"no config",
         {.config = "tests/golden/models/nothing.json", .shards = 1},
         "nothing of that name"},
        {"more shards than tensors", {.config = QWEN3, .shards = 4000}, "more than the"},
        {"not a config", {.config = "meson.build", .shards = 1}, "meson.build"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_make_report report;
        struct wf_error error = {0};
        cr_assert_neq(make(rows[i].options, &report, &error), WF_OK, "%s", rows[i].name);
        cr_assert_not_null(strstr(error.text, rows[i].expected), "%s: %s", rows[i].name,
                           error.text);
        cr_assert_not(is_there("config.json"));
    }
}

Test(known_values, are_sane_and_do_not_depend_on_the_cut)
{
    static const enum wf_dtype dtypes[] = {WF_DTYPE_F32, WF_DTYPE_F16, WF_DTYPE_BF16, WF_DTYPE_I32,
                                           WF_DTYPE_U8};
    enum { COUNT = 1 << 17 };
    static uint8_t whole[COUNT * 4], part[COUNT * 4];
    uint64_t first = (1ULL << 32) - COUNT / 2; /* across the 32-bit edge of the index */
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
        size_t bytes = wf_dtype_bytes(dtypes[d]);
        wf_known_values_fill("some.weight", first, COUNT, dtypes[d], whole);
        for (uint64_t i = 0; i < COUNT; i += 13) {
            uint64_t count = COUNT - i < 13 ? COUNT - i : 13;
            wf_known_values_fill("some.weight", first + i, count, dtypes[d], part + i * bytes);
        }
        cr_assert_eq(memcmp(whole, part, COUNT * bytes), 0);
    }
    wf_known_values_fill("some.weight", 0, COUNT, WF_DTYPE_F32, whole);
    uint32_t negative = 0, outliers = 0;
    for (size_t i = 0; i < COUNT; i++) {
        float value;
        memcpy(&value, whole + 4 * i, 4);
        float size = value < 0 ? -value : value;
        cr_assert(size >= 1.0f / 512 && size < 1, "%zu: %g", i, (double)value);
        outliers += size >= 0.5f;
        negative += value < 0;
    }
    cr_assert(negative > COUNT / 3 && negative < COUNT * 2 / 3);
    cr_assert(outliers > 4 && outliers < 48, "%u", outliers); /* 16 are to be expected */
    cr_assert_not(wf_known_values_supports(WF_DTYPE_I8));
}
