/* test_inventory.c - names and shapes of public configurations equal the tables beside them: the
 * checkpoint's files and, of transformers 5.24.0, the state dict in memory.
 *
 * The tables are of the language model as it was before it was quantised: quantization_config is
 * taken out of the config first, and again with it the tables' tensors must be there, with scales
 * beside them. Layers that predict further tokens and vision towers come on top; towers have tables
 * of their own (tests/golden/towers), and those of transformers have them too.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "inventory.h"
#include "models/families/family.h"

enum { TITLES_MAX = 128, TITLE_MAX = 64, CONFIGS = 64, MEMORIES = 19 };

struct titles {
    char names[TITLES_MAX][TITLE_MAX];
    size_t count;
};

static int compare_titles(const void *a, const void *b)
{
    return strcmp(a, b);
}

static struct titles list(const char *folder, const char *suffix)
{
    struct titles titles = {.count = 0};
    DIR *dir = opendir(folder);
    cr_assert(dir, "%s", folder);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *dot = strrchr(entry->d_name, '.');
        if (dot && strcmp(dot, suffix) == 0 && titles.count < TITLES_MAX) {
            snprintf(titles.names[titles.count++], TITLE_MAX, "%.*s", (int)(dot - entry->d_name),
                     entry->d_name);
        }
    }
    closedir(dir);
    qsort(titles.names, titles.count, TITLE_MAX, compare_titles);
    return titles;
}

/* What configs leave out: the tower that transformers' tables were made with is its default, and
 * the published ones. */
struct tower {
    const char *title, *config;
};
static const struct tower default_towers[] = {{"Gemma-3-4B", "{}"}, {NULL, NULL}};
static const struct tower published_towers[] = {
    {"Gemma-3-4B", "{\"hidden_size\": 1152, \"image_size\": 896, \"intermediate_size\": 4304, "
                   "\"num_attention_heads\": 16, \"num_hidden_layers\": 27, \"patch_size\": 14, "
                   "\"vision_use_head\": false}"},
    {"Kimi-K2.5", "{\"patch_size\": 14, \"vt_hidden_size\": 1152, \"vt_num_hidden_layers\": 27, "
                  "\"vt_num_attention_heads\": 16, \"vt_intermediate_size\": 4304}"},
    {NULL, NULL}};

static void add_tower(struct json_object *config, const struct tower *towers, const char *title)
{
    for (; towers != NULL && towers->title != NULL; towers++) {
        if (strcmp(towers->title, title) == 0) {
            json_object_object_add(config, "vision_config", json_tokener_parse(towers->config));
        }
    }
}

/* The config of a title, without quantization_config if not wanted. */
static struct wf_model *read_model(const char *title, bool quantised, const struct tower *towers,
                                   uint64_t *params_out)
{
    char path[256];
    snprintf(path, sizeof path, "tests/golden/configs/%s.json", title);
    struct json_object *config = golden_json(path);
    *params_out = (uint64_t)json_object_get_int64(
        golden_get(golden_get(config, "_derived"), "language_params"));
    if (!quantised) {
        json_object_object_del(config, "quantization_config");
    }
    add_tower(config, towers, title);
    const char *text = json_object_to_json_string(config);
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(text, strlen(text), NULL, &model, &error), WF_OK, "%s: %s", title,
                 error.text);
    json_object_put(config);
    return model;
}

/* Layers that predict further tokens, and the vision tower. */
static bool is_beside(const struct wf_model *model, const struct wf_param *param)
{
    const struct wf_family *family = model->family;
    const char *role = family->rows[param->row].role;
    const char *stack = param->stack == WF_NONE ? "" : family->stacks[param->stack].name;
    return (strcmp(stack, "") != 0 && strcmp(stack, "layer") != 0) ||
           strncmp(role, "vision_", 7) == 0 || strncmp(role, "merger_", 7) == 0;
}

static bool is_scale(const struct wf_model *model, const struct wf_param *param)
{
    return strstr(model->family->rows[param->row].role, "_scale") != NULL;
}

struct check {
    const struct wf_model *model;
    const struct wf_layout *layout;
    const char *title;
    unsigned tensors;
};

static void expect_line(void *user, const struct inventory_line *line)
{
    struct check *check = user;
    check->tensors +=
        inventory_expect(check->layout, wf_model_size(check->model, "E"), check->title, line);
}

/* What transformers 5.24.0 writes otherwise than the published files have it: experts in another
 * form, Gemma's tower without a word of its name. */
static void expect_written(void *user, const struct inventory_line *line)
{
    static const char short_name[] = "vision_tower.";
    struct check *check = user;
    struct inventory_line published = *line;
    char pattern[WF_NAME_MAX];
    bool experts = strstr(line->pattern, ".mlp.experts.") != NULL;
    if (experts && (strcmp(check->title, "Qwen3-VL-30B-A3B") == 0 ||
                    strcmp(check->title, "Qwen3.5-35B-A3B") == 0)) {
        /* Two tensors a layer, whatever the form. */
        check->tensors +=
            strstr(line->pattern, "down_proj") ? 2 * (unsigned)check->model->layers : 0;
        return;
    }
    if (strncmp(line->pattern, short_name, strlen(short_name)) == 0) {
        snprintf(pattern, sizeof pattern, "vision_tower.vision_model.%s",
                 line->pattern + strlen(short_name));
        published.pattern = pattern;
    }
    expect_line(user, &published);
}

/* Every tensor of the layout that is no part of the tables. */
static unsigned count_beside(const struct wf_model *model, const struct wf_layout *layout)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        bool first = i == 0 || piece->tensor != layout->pieces[i - 1].tensor;
        const struct wf_param *param = &model->params[piece->param];
        count += first && (is_beside(model, param) || is_scale(model, param));
    }
    return count;
}

static void check_files(const char *title, bool quantised)
{
    char path[256];
    uint64_t params = 0, elements = 0;
    struct wf_model *model = read_model(title, quantised, NULL, &params);
    struct check check = {model, inventory_layout(model, "hf", title), title, 0};
    snprintf(path, sizeof path, "tests/golden/inventory/%s.tsv", title);
    uint64_t total = inventory_read(path, NULL, expect_line, &check);
    for (uint32_t i = 0; i < model->param_count; i++) {
        const struct wf_param *param = &model->params[i];
        elements += is_beside(model, param) || is_scale(model, param) ? 0 : param->elements;
    }
    cr_expect_eq(elements, total, "%s: %llu elements, not %llu", title,
                 (unsigned long long)elements, (unsigned long long)total);
    cr_expect_eq(elements, params, "%s: parameters of the config", title);
    cr_expect_eq(check.tensors + count_beside(model, check.layout), check.layout->tensor_count,
                 "%s: %u tensors of the table, %u derived", title, check.tensors,
                 check.layout->tensor_count);
    wf_layout_free((struct wf_layout *)check.layout);
    wf_model_free(model);
}

Test(inventory, files_equal_the_tables)
{
    struct titles titles = list("tests/golden/configs", ".json");
    cr_expect_eq(titles.count, CONFIGS);
    for (size_t i = 0; i < titles.count; i++) {
        check_files(titles.names[i], false);
    }
}

/* Block fp8 keeps names and shapes and adds scales. */
Test(inventory, fp8_adds_scales_only)
{
    static const char *const titles[] = {
        "DeepSeek-R1",         "DeepSeek-V3",       "DeepSeek-V3.2", "Kimi-K2-Instruct",
        "Qwen3-235B-A22B-FP8", "Qwen3-30B-A3B-FP8", "Qwen3-32B-FP8"};
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) {
        check_files(titles[i], true);
    }
}

/* Of stack "mtp", which transformers does not load. */
static unsigned count_further(const struct wf_model *model)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < model->param_count; i++) {
        uint32_t stack = model->params[i].stack;
        count += stack != WF_NONE && strcmp(model->family->stacks[stack].name, "mtp") == 0;
    }
    return count;
}

/* One of transformers' tables in full, towers included. */
static void check_transformers(const char *title, const char *spec, const char *where,
                               inventory_each_t *expect, bool further)
{
    char path[256];
    uint64_t params = 0;
    struct wf_model *model = read_model(title, false, default_towers, &params);
    struct check check = {model, inventory_layout(model, spec, title), title, 0};
    snprintf(path, sizeof path, "tests/golden/real/hf-transformers-5.24.0/%s.tsv", title);
    inventory_read(path, where, expect, &check);
    uint32_t derived = check.layout->tensor_count + check.layout->alias_count -
                       (further ? count_further(model) : 0);
    cr_expect_eq(check.tensors, derived, "%s %s: %u of the table, %u derived", title, where,
                 check.tensors, derived);
    wf_layout_free((struct wf_layout *)check.layout);
    wf_model_free(model);
}

Test(inventory, memory_equals_transformers)
{
    struct titles titles = list("tests/golden/real/hf-transformers-5.24.0", ".tsv");
    cr_expect_eq(titles.count, MEMORIES);
    for (size_t i = 0; i < titles.count; i++) {
        check_transformers(titles.names[i], "fsdp", "memory", expect_line, false);
    }
}

Test(inventory, files_equal_what_transformers_writes)
{
    struct titles titles = list("tests/golden/real/hf-transformers-5.24.0", ".tsv");
    for (size_t i = 0; i < titles.count; i++) {
        check_transformers(titles.names[i], "hf", "disk", expect_written, true);
    }
}

Test(inventory, towers_equal_the_tables)
{
    for (const struct tower *tower = published_towers; tower->title != NULL; tower++) {
        char path[256];
        uint64_t params = 0;
        unsigned beside = 0;
        struct wf_model *model = read_model(tower->title, false, published_towers, &params);
        struct check check = {model, inventory_layout(model, "hf", tower->title), tower->title, 0};
        snprintf(path, sizeof path, "tests/golden/towers/%s.tsv", tower->title);
        inventory_read(path, NULL, expect_line, &check);
        for (uint32_t i = 0; i < model->param_count; i++) {
            beside += is_beside(model, &model->params[i]);
        }
        cr_expect_eq(check.tensors, beside, "%s: %u tensors of the table, %u derived", tower->title,
                     check.tensors, beside);
        wf_layout_free((struct wf_layout *)check.layout);
        wf_model_free(model);
    }
}

/* mxfp4: experts as blocks and scales, input dimension in blocks of 32. */
Test(inventory, mxfp4_holds_blocks)
{
    uint64_t params = 0;
    struct wf_model *model = read_model("gpt-oss-20b", true, NULL, &params);
    struct wf_layout *layout = inventory_layout(model, "hf", "gpt-oss-20b");
    static const struct inventory_line lines[] = {
        {"model.layers.{layer}.mlp.experts.gate_up_proj_blocks", "32x5760x90x16", "0-23", 24},
        {"model.layers.{layer}.mlp.experts.gate_up_proj_scales", "32x5760x90", "0-23", 24},
        {"model.layers.{layer}.mlp.experts.down_proj_blocks", "32x2880x90x16", "0-23", 24},
        {"model.layers.{layer}.mlp.experts.down_proj_scales", "32x2880x90", "0-23", 24},
        {"model.layers.{layer}.mlp.experts.gate_up_proj_bias", "32x5760", "0-23", 24},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        inventory_expect(layout, wf_model_size(model, "E"), "gpt-oss-20b", &lines[i]);
    }
    wf_layout_free(layout);
    wf_model_free(model);
}

/* The packed tensors of a table are among those of the checkpoint, and of these dtypes. */
static void expect_packed(const struct wf_model *model, const char *title,
                          const struct inventory_line *lines, const enum wf_dtype *dtypes,
                          size_t count)
{
    struct wf_layout *layout = inventory_layout(model, "hf", title);
    for (size_t i = 0; i < count; i++) {
        char name[WF_NAME_MAX];
        inventory_expect(layout, wf_model_size(model, "E"), title, &lines[i]);
        const char *mark = strstr(lines[i].pattern, "{layer}"), *expert = strstr(mark, "{expert}");
        snprintf(
            name, sizeof name, "%.*s1%.*s%s%s", (int)(mark - lines[i].pattern), lines[i].pattern,
            (int)(expert ? expert - mark - strlen("{layer}") : strlen(mark + strlen("{layer}"))),
            mark + strlen("{layer}"), expert ? "0" : "", expert ? expert + strlen("{expert}") : "");
        uint32_t tensor = wf_layout_find(layout, name, strlen(name));
        cr_assert_neq(tensor, UINT32_MAX, "%s", name);
        cr_expect_eq(layout->tensors[tensor].dtype, dtypes[i], "%s", name);
    }
    wf_layout_free(layout);
}

/* int4: eight numbers in an i32, a scale of the model's dtype for 32, routed experts alone. The
 * published checkpoint has 595 GB. */
Test(inventory, int4_packs_routed_experts)
{
#define EXPERT "language_model.model.layers.{layer}.mlp.experts.{expert}."
    static const struct inventory_line lines[] = {
        {EXPERT "gate_proj.weight_packed", "2048x896", "1-60", 23040},
        {EXPERT "gate_proj.weight_scale", "2048x224", "1-60", 23040},
        {EXPERT "gate_proj.weight_shape", "2", "1-60", 23040},
        {EXPERT "down_proj.weight_packed", "7168x256", "1-60", 23040},
        {EXPERT "down_proj.weight_scale", "7168x64", "1-60", 23040},
        {"language_model.model.layers.{layer}.mlp.shared_experts.gate_proj.weight", "2048x7168",
         "1-60", 60},
        {"language_model.model.layers.{layer}.self_attn.o_proj.weight", "7168x8192", "0-60", 61},
    };
    static const enum wf_dtype dtypes[] = {WF_DTYPE_I32,  WF_DTYPE_BF16, WF_DTYPE_I32, WF_DTYPE_I32,
                                           WF_DTYPE_BF16, WF_DTYPE_BF16, WF_DTYPE_BF16};
    uint64_t params = 0, bytes = 0;
    struct wf_model *model = read_model("Kimi-K2.5", true, NULL, &params);
    expect_packed(model, "Kimi-K2.5", lines, dtypes, sizeof lines / sizeof lines[0]);
    for (uint32_t i = 0; i < model->param_count; i++) {
        bytes += model->params[i].elements * wf_dtype_bytes(model->params[i].dtype);
    }
    cr_expect_eq(bytes / 1000000000, 595u, "%llu bytes", (unsigned long long)bytes);
    wf_model_free(model);
}

/* nvfp4 of every linear that is not in `ignore`: bytes, two kinds of scales, the input's. */
Test(inventory, nvfp4_packs_linears)
{
#define LAYER "model.layers.{layer}."
    static const struct inventory_line lines[] = {
        {LAYER "mlp.experts.{expert}.gate_proj.weight", "768x1024", "0-47", 6144},
        {LAYER "mlp.experts.{expert}.gate_proj.weight_scale", "768x128", "0-47", 6144},
        {LAYER "mlp.experts.{expert}.down_proj.weight", "2048x384", "0-47", 6144},
        {LAYER "mlp.experts.{expert}.down_proj.weight_scale_2", "", "0-47", 6144},
        {LAYER "mlp.experts.{expert}.down_proj.input_scale", "", "0-47", 6144},
        {LAYER "self_attn.q_proj.weight", "4096x2048", "0-47", 48},
        {LAYER "mlp.gate.weight", "128x2048", "0-47", 48},
    };
    static const enum wf_dtype dtypes[] = {WF_DTYPE_U8,  WF_DTYPE_F8_E4M3, WF_DTYPE_U8,
                                           WF_DTYPE_F32, WF_DTYPE_F32,     WF_DTYPE_BF16,
                                           WF_DTYPE_BF16};
    struct json_object *config = golden_json("tests/golden/configs/Qwen3-30B-A3B.json");
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    json_object_object_add(
        config, "quantization_config",
        json_tokener_parse("{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", "
                           "\"ignore\": [\"lm_head\", \"model.layers.*.self_attn*\"]}"));
    const char *text = json_object_to_json_string(config);
    cr_assert_eq(wf_model_parse(text, strlen(text), NULL, &model, &error), WF_OK, "%s", error.text);
    expect_packed(model, "nvfp4", lines, dtypes, sizeof lines / sizeof lines[0]);
    wf_model_free(model);
    json_object_put(config);
}

/* Weights of several formats, which the config does not tell apart: the inventory is the unpacked
 * model's, and no layout is given. */
Test(inventory, packed_weights_have_no_layout)
{
    static const char *const specs[] = {"hf", "vllm:tp=2", "sglang:tp=2", "megatron:tp=2"};
    uint64_t params = 0;
    struct wf_model *model = read_model("Qwen3.6-35B-A3B-NVFP4", true, NULL, &params);
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct wf_recipe recipe;
        struct wf_layout *layout = NULL;
        struct wf_error error = {0};
        cr_assert_eq(wf_recipe_parse(specs[i], NULL, &recipe, &error), WF_OK, "%s", error.text);
        cr_expect_eq(wf_layout_derive(model, &recipe, 0, &layout, &error), WF_UNSUPPORTED, "%s",
                     specs[i]);
        cr_expect(strstr(error.text, "modelopt MIXED_PRECISION"), "%s: %s", specs[i], error.text);
    }
    wf_model_free(model);
}
