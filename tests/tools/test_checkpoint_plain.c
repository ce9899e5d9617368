/* test_checkpoint_plain.c - matrices out of a checkpoint of codes and scales, read as values. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/variant.h"
#include "tests/tools/folder.h"
#include "tools/files/checkpoint.h"
#include "tools/files/known_values.h"
#include "tools/files/make_checkpoint.h"

#define SIZES                                                                         \
    "\"model_type\": \"qwen3_moe\", \"hidden_size\": 200, \"num_hidden_layers\": 1, " \
    "\"vocab_size\": 10, \"num_attention_heads\": 3, \"num_key_value_heads\": 1, "    \
    "\"head_dim\": 100, \"intermediate_size\": 8, \"tie_word_embeddings\": true, "    \
    "\"num_experts\": 2, \"moe_intermediate_size\": 130, \"torch_dtype\": \"bfloat16\""
#define FP8 \
    ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}"
#define FP8_ROWS                                                                              \
    ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "      \
    "\"float-quantized\", \"ignore\": [\"lm_head\", \"re:.*mlp.gate$\"], \"config_groups\": " \
    "{\"group_0\": {\"weights\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": "       \
    "\"channel\", \"symmetric\": true}, \"input_activations\": {\"dynamic\": true}}}}"

static float decode(uint8_t code)
{
    return ldexpf((float)(8 + (code & 7)), (code >> 3 & 15) - 10) * (code & 0x80 ? -1 : 1);
}

/* Round to nearest even; the values are far from the ends. */
static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void expect_matrix(const struct wf_checkpoint *checkpoint, const struct wf_model *job,
                          const struct wf_variant_pair *pair)
{
    const struct wf_param *matrix = &job->params[pair->matrix];
    const struct wf_param *scales = &job->params[pair->scales];
    struct wf_error error = {0};
    uint8_t *codes = malloc(matrix->elements);
    float *known = malloc(scales->elements * sizeof *known);
    uint16_t *found = malloc(matrix->elements * sizeof *found);
    char name[WF_NAME_MAX];
    wf_known_values_fill(matrix->name, 0, matrix->elements, WF_DTYPE_F8_E4M3, codes);
    bool by_row = wf_quant_is_by_row(job->variants->rule);
    uint64_t high = by_row ? 1 : 128, wide = by_row ? matrix->shape[1] : 128;
    snprintf(name, sizeof name, "%s_scale%s", matrix->name, by_row ? "" : "_inv");
    wf_known_values_fill(name, 0, scales->elements, WF_DTYPE_F32, known);
    for (uint64_t first = 0; first < matrix->elements; first += 1 + matrix->elements / 3) {
        uint64_t count = first % 2 ? (matrix->elements - first) / 2 : matrix->elements - first;
        cr_assert_eq(wf_checkpoint_read(checkpoint, pair->matrix, first, count, found, &error),
                     WF_OK, "%s", error.text);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t row = (first + i) / matrix->shape[1], column = (first + i) % matrix->shape[1];
            float scale = known[row / high * scales->shape[1] + column / wide];
            cr_assert_eq(found[i], to_bf16(decode(codes[first + i]) * scale), "%s[%llu]",
                         matrix->name, (unsigned long long)(first + i));
        }
    }
    free(codes);
    free(known);
    free(found);
}

/* FOLDER of the config, opened for a job of a trainer in bf16. */
static void open_and_expect(const char *config, const char *engine_spec, bool codes)
{
    char folder[FOLDER_PATH_MAX], path[2 * FOLDER_PATH_MAX], out[2 * FOLDER_PATH_MAX];
    struct wf_error error = {0};
    struct wf_model *model = NULL, *job = NULL;
    struct wf_checkpoint *checkpoint = NULL;
    struct wf_recipe trainer, engine;
    struct wf_make_report report;
    const struct wf_recipe *recipes[] = {&trainer, &engine};
    const struct wf_checkpoint_options strict = {.extras_refuse = true};
    folder_make(folder);
    folder_write(folder, "config.json", config, strlen(config));
    folder_join(path, folder, "config.json");
    folder_join(out, folder, "weights");
    const struct wf_make_options options = {.config = path, .folder = out, .shards = 2};
    cr_assert_eq(wf_make_checkpoint(&options, &report, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_recipe_parse("megatron:", NULL, &trainer, &error), WF_OK);
    cr_assert_eq(wf_recipe_parse(engine_spec, NULL, &engine, &error), WF_OK);
    cr_assert_eq(wf_checkpoint_model(out, NULL, &model, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_model_for_job(model, recipes, 2, &job, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_checkpoint_open(out, model, &strict, &checkpoint, &error), WF_OK, "%s",
                 error.text);
    cr_assert_eq(wf_checkpoint_as_plain(checkpoint, job, &error), WF_OK, "%s", error.text);
    cr_assert_eq(checkpoint->entry_count, job->variants->plain_count);
    cr_expect_eq(checkpoint->codes_count, codes ? job->variants->pair_count : 0);
    for (uint32_t p = 0; p < checkpoint->entry_count; p++) {
        const struct wf_param *param = &job->params[p];
        cr_expect(checkpoint->entries[p].dtype == param->dtype &&
                      checkpoint->entries[p].elements == param->elements,
                  "%s", param->name);
        if (codes && wf_model_pair(job, p)) {
            expect_matrix(checkpoint, job, wf_model_pair(job, p));
            continue;
        }
        uint16_t *found = malloc(param->elements * 4), *known = malloc(param->elements * 4);
        wf_known_values_fill(param->name, 0, param->elements, param->dtype, known);
        cr_assert_eq(wf_checkpoint_read(checkpoint, p, 0, param->elements, found, &error), WF_OK);
        cr_expect_arr_eq(found, known, param->elements * wf_dtype_bytes(param->dtype), "%s",
                         param->name);
        free(found);
        free(known);
    }
    wf_checkpoint_free(checkpoint);
    wf_model_free(job);
    wf_model_free(model);
    folder_remove(out);
    folder_remove(folder);
}

Test(checkpoint_plain, codes_are_read_as_values)
{
    open_and_expect("{" SIZES FP8 "}", "vllm:quant=vllm", true);
}

Test(checkpoint_plain, codes_with_a_scale_for_each_row_too)
{
    open_and_expect("{" SIZES FP8_ROWS "}", "vllm:", true);
}

Test(checkpoint_plain, what_has_no_codes_stays)
{
    open_and_expect("{" SIZES "}", "vllm:quant=vllm", false);
}
