/* test_detect.c - families and sizes of executed layouts are found from names and shapes; files
 * that are no dumps give a sentence. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tools/layout/detect_files.h"

/* The true answer must be among those that fit. */
static void expect_found(const char *folder, const char *family, const char *spec, const char *size)
{
    struct wf_detect_files files;
    struct wf_detected detected = {0};
    struct wf_error error = {0};
    char path[256], *paths[] = {path};
    bool found = false;
    snprintf(path, sizeof path, "tests/golden/real/%s", folder);
    cr_assert_eq(wf_detect_read(paths, 1, &files, &error), WF_OK, "%s: %s", folder, error.text);
    cr_assert_eq(wf_detect(files.dumps, files.count, NULL, &detected, &error), WF_OK, "%s: %s",
                 folder, error.text);
    for (uint32_t i = 0; i < detected.fit_count; i++) {
        const struct wf_detect_fit *fit = &detected.fits[i];
        found |= strcmp(fit->family->name, family) == 0 && strcmp(fit->spec, spec) == 0 &&
                 strstr(fit->sizes, size) != NULL;
    }
    cr_expect(found, "%s: %s in %s with %s is not among %u fits; nearest %s", folder, family, spec,
              size, detected.fit_count, detected.nearest);
    wf_detected_fini(&detected);
    wf_detect_files_fini(&files);
}

Test(detect, shards_of_fsdp)
{
    expect_found("fsdp2-qwen3-dp2", "qwen3", "fsdp:dp=2", "num_attention_heads=4");
}

Test(detect, megatron)
{
    expect_found("megatron-qwen3-tp2", "qwen3", "megatron:vocab_div=1,tp=2",
                 "num_attention_heads=4");
}

Test(detect, vllm)
{
    expect_found("vllm-qwen3-tp2", "qwen3", "vllm:tp=2", "intermediate_size=96");
}

/* Sizes that follow from others (heads), count layers (intervals, first dense ones) or hide others
 * (experts behind dense layers), and ETP unlike TP. */
Test(detect, experts)
{
    expect_found("vllm-qwen3moe-tp4", "qwen3_moe", "vllm:tp=4", "num_experts=4");
    expect_found("megatron-qwen3moe-tp2-ep2-etp1", "qwen3_moe",
                 "megatron:vocab_div=1,tp=2,ep=2,etp=1", "head_dim=16");
}

Test(detect, latents)
{
    expect_found("vllm-deepseekv3-tp2", "deepseek", "vllm:tp=2", "first_k_dense_replace=1");
}

Test(detect, intervals)
{
    expect_found("sglang-qwen3next-tp2", "qwen3_next", "sglang:tp=2", "full_attention_interval=2");
}

Test(detect, dumps_are_checked)
{
    static const struct {
        const char *name, *text;
        enum wf_status status;
        const char *fragment;
    } rows[] = {
        {"one tensor", "a.weight\tbfloat16\t4x16\n", WF_OK, NULL},
        {"a header and an alias", "# name\nalias\tb\ta\na\tfloat32\t-\tz+1\n", WF_OK, NULL},
        {"no shape", "a.weight\tbfloat16\n", WF_INVALID, "line 1"},
        {"no dtype", "a.weight\t\t4\n", WF_INVALID, "line 1"},
        {"letters", "a.weight\tbfloat16\t4xb\n", WF_INVALID, "line 1"},
        {"an x at the end", "a\tbfloat16\t4x\n", WF_INVALID, "line 1"},
        {"too many dimensions", "a\tbfloat16\t1x1x1x1x1x1\n", WF_INVALID, "at most 5"},
        {"overflow", "a\tbfloat16\t4294967296x4294967296\n", WF_INVALID, "line 1"},
        {"number overflow", "a\tbfloat16\t99999999999999999999\n", WF_INVALID, "line 1"},
        {"no name", "\tbfloat16\t4\n", WF_INVALID, "name"},
        {"a name twice", "a\tbfloat16\t4\na\tbfloat16\t4\n", WF_INVALID, "twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_dump_rank dump = {0};
        struct wf_error error = {0};
        size_t len = strlen(rows[i].text);
        enum wf_status status = wf_dump_rank_parse(&dump, rows[i].text, len, len, &error);
        status = status == WF_OK ? wf_dump_rank_sort(&dump, &error) : status;
        cr_expect_eq(status, rows[i].status, "%s: %s", rows[i].name, error.text);
        cr_expect(rows[i].fragment == NULL || strstr(error.text, rows[i].fragment), "%s: %s",
                  rows[i].name, error.text);
        wf_dump_rank_fini(&dump);
    }
}

Test(detect, a_safetensors_header_is_a_dump)
{
    static const char json[] =
        "{\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]}}";
    char file[256] = {(char)(sizeof json - 1)};
    struct wf_dump_rank dump = {0};
    struct wf_error error = {0};
    memcpy(file + 8, json, sizeof json - 1);
    size_t len = 8 + sizeof json - 1;
    cr_assert_eq(wf_dump_rank_parse(&dump, file, len, len + 12, &error), WF_OK, "%s", error.text);
    cr_assert_eq(dump.count, 1);
    cr_expect_str_eq(dump.tensors[0].name, "a.weight");
    cr_expect(dump.tensors[0].ndim == 2 && dump.tensors[0].shape[1] == 3);
    wf_dump_rank_fini(&dump);
    cr_expect_neq(wf_dump_rank_parse(&dump, file, len - 1, len + 12, &error), WF_OK);
    cr_expect(error.text[0] != '\0');
    wf_dump_rank_fini(&dump);
}
