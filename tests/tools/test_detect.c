/* test_detect.c - what detect answers where something is wrong with a dump; files that are no dumps
 * give a sentence. Executed layouts: test_detect_real.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tools/layout/detect_files.h"

/* One rank of Qwen3 in vLLM with a change: what is said where nothing fits. */
static const char qwen3[] = "model.embed_tokens.weight\tbfloat16\t128x64\n"
                            "model.layers.0.input_layernorm.weight\tbfloat16\t64\n"
                            "model.layers.0.self_attn.qkv_proj.weight\tbfloat16\t128x64\n"
                            "model.layers.0.self_attn.q_norm.weight\tbfloat16\t16\n"
                            "model.layers.0.self_attn.k_norm.weight\tbfloat16\t16\n"
                            "model.layers.0.self_attn.o_proj.weight\tbfloat16\t64x64\n"
                            "model.layers.0.post_attention_layernorm.weight\tbfloat16\t64\n"
                            "model.layers.0.mlp.gate_up_proj.weight\tbfloat16\t192x64\n"
                            "model.layers.0.mlp.down_proj.weight\tbfloat16\t64x96\n"
                            "model.norm.weight\tbfloat16\t64\n"
                            "lm_head.weight\tbfloat16\t128x64\n";

static const struct {
    const char *name, *from, *to; /* text of `qwen3` that is replaced; "" adds */
    const char *fragments[3];     /* of the nearest; none: it is found */
} changed[] = {
    {"as it is", "", "", {NULL}},
    {"a shape", "64x96", "64x95", {"qwen3 in", "mlp.", "expected"}},
    {"a norm of another size",
     "model.norm.weight\tbfloat16\t64",
     "model.norm.weight\tbfloat16\t65",
     {"qwen3 in", "dimension", "expected"}},
    {"an unknown name",
     "",
     "model.layers.0.mlp.surprise.weight\tbfloat16\t64\n",
     {"mlp.surprise.weight is no tensor of it", "likely cause"}},
    {"an absent one",
     "model.layers.0.self_attn.o_proj.weight\tbfloat16\t64x64\n",
     "",
     {"o_proj.weight", "found none", "likely cause"}},
};

static void detect_text(const char *text, struct wf_detected *detected)
{
    struct wf_dump_rank dump = {0};
    struct wf_error error = {0};
    size_t len = strlen(text);
    cr_assert_eq(wf_dump_rank_parse(&dump, text, len, len, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_dump_rank_sort(&dump, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_detect(&dump, 1, NULL, detected, &error), WF_OK, "%s", error.text);
    wf_dump_rank_fini(&dump);
}

Test(detect, what_speaks_against_the_nearest_is_said)
{
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++) {
        char text[4096];
        struct wf_detected detected = {0};
        const char *at = strstr(qwen3, changed[i].from);
        cr_assert(at, "%s", changed[i].name);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - qwen3), qwen3, changed[i].to,
                 at + strlen(changed[i].from));
        detect_text(text, &detected);
        bool found = changed[i].fragments[0] == NULL;
        cr_expect_eq(detected.fit_count > 0, found, "%s", changed[i].name);
        for (size_t f = 0; f < 3 && changed[i].fragments[f] != NULL; f++) {
            cr_expect(strstr(detected.nearest, changed[i].fragments[f]), "%s: %s", changed[i].name,
                      detected.nearest);
        }
        wf_detected_fini(&detected);
    }
}

/* The line goes into a job file as it is, and its types are the dump's. */
Test(detect, an_answer_is_a_recipe)
{
    struct wf_detected detected = {0};
    detect_text(qwen3, &detected);
    cr_assert_gt(detected.fit_count, 0);
    for (uint32_t i = 0; i < detected.fit_count; i++) {
        const struct wf_detect_fit *fit = &detected.fits[i];
        struct wf_recipe recipe;
        struct wf_error error = {0};
        char again[WF_SPEC_MAX];
        cr_expect_eq(wf_recipe_parse(fit->spec, NULL, &recipe, &error), WF_OK, "%s", error.text);
        wf_recipe_format(&recipe, again);
        cr_expect_str_eq(again, fit->spec);
        cr_expect_str_eq(fit->dtype, "");
    }
    wf_detected_fini(&detected);
}

/* Engines that make the very same tensors are several answers: which one runs is what the reader
 * knows, and the layout does not. */
Test(detect, engines_that_make_the_same_are_all_answers)
{
    static const char *const specs[] = {"vllm:dtype=bf16", "sglang:dtype=bf16"};
    struct wf_detected detected = {0};
    detect_text(qwen3, &detected);
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
        uint32_t found = 0;
        for (uint32_t i = 0; i < detected.fit_count; i++) {
            const struct wf_detect_fit *fit = &detected.fits[i];
            found += strcmp(fit->family->name, "qwen3") == 0 && strcmp(fit->spec, specs[s]) == 0;
        }
        cr_expect_eq(found, 1, "%s", specs[s]);
    }
    wf_detected_fini(&detected);
}

/* vLLM and SGLang pad the vocabulary to a multiple of 64: 128 rows may be fewer, 101 of plain FSDP
 * may not. */
Test(detect, rows_that_may_be_padding_are_told)
{
    static const struct {
        const char *name, *folder;
        bool padded;
    } rows[] = {{"sharded as they are", "fsdp2-qwen3-dp2", false},
                {"padded by Megatron", "megatron-qwen3-tp1", true},
                {"padded by vLLM", "vllm-qwen3-tp2", true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_detect_files files = {0};
        struct wf_detected detected = {0};
        struct wf_error error = {0};
        char path[256];
        char *paths[] = {path};
        snprintf(path, sizeof path, "tests/golden/real/%s", rows[i].folder);
        cr_assert_eq(wf_detect_read(paths, 1, &files, &error), WF_OK, "%s", error.text);
        cr_assert_eq(wf_detect(files.dumps, files.count, NULL, &detected, &error), WF_OK);
        cr_expect_gt(detected.fit_count, 0, "%s", rows[i].name);
        for (uint32_t f = 0; f < detected.fit_count; f++) {
            cr_expect_eq(detected.fits[f].padded, rows[i].padded, "%s: %s", rows[i].name,
                         detected.fits[f].spec);
        }
        wf_detected_fini(&detected);
        wf_detect_files_fini(&files);
    }
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
