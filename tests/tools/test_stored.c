/* test_stored.c - experts in files: one tensor for all of them, transposed, gate and up in turn, or
 * one by one; every element is found where it belongs. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tools/folder.h"
#include "tools/files/checkpoint.h"
#include "tools/files/known_values.h"
#include "tools/files/make_checkpoint.h"

#define SIZES                                                                   \
    "\"hidden_size\": 12, \"num_hidden_layers\": 2, \"vocab_size\": 10, "       \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 4, " \
    "\"torch_dtype\": \"bfloat16\""
#define EXPERTS "\"num_experts\": 3, \"moe_intermediate_size\": 5"
#define VISION                                                                             \
    "\"vision_config\": {\"depth\": 1, \"hidden_size\": 8, \"num_heads\": 2, "             \
    "\"intermediate_size\": 6, \"patch_size\": 2, \"temporal_patch_size\": 2, "            \
    "\"spatial_merge_size\": 2, \"out_hidden_size\": 12, \"num_position_embeddings\": 4, " \
    "\"deepstack_visual_indexes\": [0]}"
#define DELTA                                                                  \
    "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, "             \
    "\"linear_key_head_dim\": 2, \"linear_value_head_dim\": 3, "               \
    "\"full_attention_interval\": 2, \"shared_expert_intermediate_size\": 3, " \
    "\"mtp_num_hidden_layers\": 1"

static const struct {
    const char *name, *config, *fused; /* a tensor of the files, or NULL */
} rows[] = {
    {"interleaved and transposed",
     "{\"model_type\": \"gpt_oss\", " SIZES ", \"num_local_experts\": 3, "
     "\"intermediate_size\": 5}",
     "model.layers.1.mlp.experts.gate_up_proj"},
    {"transposed",
     "{\"model_type\": \"qwen3_vl_moe\", \"text_config\": {" SIZES ", " EXPERTS "}, " VISION "}",
     "model.language_model.layers.1.mlp.experts.down_proj"},
    {"fused",
     "{\"model_type\": \"qwen3_5_moe\", \"text_config\": {" SIZES ", " EXPERTS ", " DELTA
     "}, " VISION "}",
     "model.language_model.layers.0.mlp.experts.gate_up_proj"},
    {"one by one",
     "{\"model_type\": \"qwen3_moe\", \"intermediate_size\": 8, \"tie_word_embeddings\": "
     "true, " SIZES ", " EXPERTS "}",
     NULL},
};

/* Whole parameters, and ranges that begin and end anywhere. */
static void expect_values(const char *title, const struct wf_model *model,
                          const struct wf_checkpoint *checkpoint)
{
    struct wf_error error = {0};
    for (uint32_t p = 0; p < model->param_count; p++) {
        uint64_t elements = model->params[p].elements;
        enum wf_dtype dtype = checkpoint->entries[p].dtype;
        size_t bytes = wf_dtype_bytes(dtype);
        uint8_t *found = malloc(elements * bytes), *known = malloc(elements * bytes);
        wf_known_values_fill(model->params[p].name, 0, elements, dtype, known);
        for (uint64_t first = 0; first < elements; first += 1 + elements / 3) {
            uint64_t count = first % 2 ? (elements - first) / 2 : elements - first;
            cr_assert_eq(wf_checkpoint_read(checkpoint, p, first, count, found, &error), WF_OK,
                         "%s", error.text);
            cr_assert_eq(memcmp(found, known + first * bytes, count * bytes), 0, "%s: %s", title,
                         model->params[p].name);
        }
        free(found);
        free(known);
    }
}

static void open_and_expect(const char *title, const char *folder, bool fused)
{
    const struct wf_checkpoint_options strict = {.extras_refuse = true};
    struct wf_model *model = NULL;
    struct wf_checkpoint *checkpoint = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_checkpoint_model(folder, NULL, &model, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_checkpoint_open(folder, model, &strict, &checkpoint, &error), WF_OK, "%s: %s",
                 title, error.text);
    cr_expect_eq(checkpoint->stored != NULL, fused, "%s", title);
    expect_values(title, model, checkpoint);
    wf_checkpoint_free(checkpoint);
    wf_model_free(model);
}

Test(stored, made_checkpoints_have_the_published_form)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char folder[FOLDER_PATH_MAX], config[2 * FOLDER_PATH_MAX];
        struct wf_make_report report;
        struct wf_error error = {0};
        folder_make(folder);
        folder_write(folder, "source.json", rows[i].config, strlen(rows[i].config));
        struct wf_make_options options = {
            .config = folder_join(config, folder, "source.json"), .folder = folder, .shards = 3};
        cr_assert_eq(wf_make_checkpoint(&options, &report, &error), WF_OK, "%s: %s", rows[i].name,
                     error.text);
        char index[2 * FOLDER_PATH_MAX], text[1 << 16] = "";
        FILE *file = fopen(folder_join(index, folder, "model.safetensors.index.json"), "rb");
        cr_assert(file);
        cr_assert_gt(fread(text, 1, sizeof text - 1, file), 0);
        fclose(file);
        cr_expect(rows[i].fused == NULL || strstr(text, rows[i].fused), "%s", rows[i].name);
        open_and_expect(rows[i].name, folder, rows[i].fused != NULL);
        folder_remove(folder);
    }
}

/* What transformers 5 writes for families whose published files are fused. */
Test(stored, experts_one_by_one_are_read_as_well)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char folder[FOLDER_PATH_MAX];
        struct wf_model *model = NULL;
        folder_make(folder);
        folder_write(folder, "config.json", rows[i].config, strlen(rows[i].config));
        cr_assert_eq(wf_model_parse(rows[i].config, strlen(rows[i].config), NULL, &model, NULL),
                     WF_OK);
        folder_write_weights(folder, "model.safetensors", model, 0, model->param_count, NULL, 0);
        wf_model_free(model);
        open_and_expect(rows[i].name, folder, false);
        folder_remove(folder);
    }
}

Test(stored, faults_are_named)
{
    static const struct {
        const char *name;
        struct edit edit;
        const char *fragment;
    } faults[] = {
        {"an expert is missing",
         {.kind = EDIT_DROP, .name = "model.layers.1.mlp.experts.2.up_proj.weight"},
         "model.layers.1.mlp.experts.2.up_proj.weight\" is missing"},
        {"an expert of another shape",
         {.kind = EDIT_RESHAPE, .name = "model.layers.0.mlp.experts.1.down_proj.weight", .rows = 7},
         "shape"},
        {"a fused tensor of another shape",
         {.kind = EDIT_ADD,
          .name = "model.layers.0.mlp.experts.gate_up_proj",
          .dtype = WF_DTYPE_BF16,
          .rows = 4},
         "shape"},
    };
    const struct wf_checkpoint_options strict = {.extras_refuse = true};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        char folder[FOLDER_PATH_MAX];
        struct wf_model *model = NULL;
        struct wf_checkpoint *checkpoint = NULL;
        struct wf_error error = {0};
        folder_make(folder);
        cr_assert_eq(wf_model_parse(rows[0].config, strlen(rows[0].config), NULL, &model, NULL),
                     WF_OK);
        folder_write_weights(folder, "model.safetensors", model, 0, model->param_count,
                             &faults[i].edit, 1);
        cr_expect_neq(wf_checkpoint_open(folder, model, &strict, &checkpoint, &error), WF_OK, "%s",
                      faults[i].name);
        cr_expect(strstr(error.text, faults[i].fragment), "%s: %s", faults[i].name, error.text);
        wf_model_free(model);
        folder_remove(folder);
    }
}

Test(stored, packed_weights_are_refused)
{
    static const char config[] =
        "{\"model_type\": \"qwen3_moe\", " SIZES ", " EXPERTS
        ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\"}}";
    char folder[FOLDER_PATH_MAX], path[2 * FOLDER_PATH_MAX];
    struct wf_make_report report;
    struct wf_error error = {0};
    folder_make(folder);
    folder_write(folder, "source.json", config, strlen(config));
    struct wf_make_options options = {
        .config = folder_join(path, folder, "source.json"), .folder = folder, .shards = 1};
    cr_expect_eq(wf_make_checkpoint(&options, &report, &error), WF_UNSUPPORTED);
    cr_expect(strstr(error.text, "packed"), "%s", error.text);
    folder_remove(folder);
}
