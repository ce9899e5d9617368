/* test_inventory.c - the inventory of public configurations equals the tables beside them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "golden.h"

static const char *const models[] = {
    "Llama-3.1-405B",  "Llama-3.1-70B", "Llama-3.1-8B", "Llama-3.2-3B",
    "Mistral-7B-v0.3", "Qwen2.5-0.5B",  "Qwen2.5-1.5B", "Qwen2.5-3B",
    "Qwen2.5-7B",      "Qwen2.5-32B",   "Qwen3-0.6B",   "Qwen3-1.7B",
    "Qwen3-4B",        "Qwen3-8B",      "Qwen3-14B",    "Qwen3-32B",
};

/* Compares one pattern of the table with one parameter. */
static void expect_param(const struct wf_model *model, const char *title, const char *pattern,
                         const char *shape, uint32_t layer)
{
    char name[WF_NAME_MAX], found[128] = "";
    const char *mark = strstr(pattern, "{layer}");
    if (mark) {
        snprintf(name, sizeof name, "%.*s%u%s", (int)(mark - pattern), pattern, layer, mark + 7);
    } else {
        snprintf(name, sizeof name, "%s", pattern);
    }
    uint32_t index = wf_model_find(model, name, strlen(name));
    cr_assert_neq(index, UINT32_MAX, "%s: %s is missing", title, name);
    const struct wf_param *param = &model->params[index];
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < param->ndim; axis++) {
        size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%s%llu", axis ? "x" : "",
                 (unsigned long long)param->shape[axis]);
        elements *= param->shape[axis];
    }
    cr_expect_str_eq(found, shape, "%s: %s", title, name);
    cr_expect_eq(param->elements, elements, "%s: %s", title, name);
    cr_expect_eq(param->layer, mark ? layer : WF_NO_LAYER, "%s: %s", title, name);
}

static void check(const char *title)
{
    char path[256], pattern[128], shape[64], layers[32];
    snprintf(path, sizeof path, "tests/golden/configs/%s.json", title);
    struct wf_model *model = golden_model(path);
    snprintf(path, sizeof path, "tests/golden/inventory/%s.tsv", title);
    size_t len = 0;
    char *text = golden_text(path, &len), *rest = text;
    uint64_t total = 0, counted = 0;
    uint32_t params = 0;
    for (char *line; (line = strsep(&rest, "\n"));) {
        unsigned first = 0, last = 0, count = 0;
        unsigned long long number = 0;
        if (sscanf(line, "# total %llu", &number) == 1) {
            total = number;
        } else if (sscanf(line, "%127s %63s %31s %u", pattern, shape, layers, &count) == 4 &&
                   line[0] != '#') {
            bool layered = sscanf(layers, "%u-%u", &first, &last) == 2;
            cr_expect_eq(count, layered ? last - first + 1 : 1, "%s: %s", title, pattern);
            for (unsigned layer = first; layer <= last; layer++) {
                expect_param(model, title, pattern, shape, layer);
            }
            params += count;
        }
    }
    for (uint32_t i = 0; i < model->param_count; i++) {
        counted += model->params[i].elements;
    }
    cr_expect_eq(params, model->param_count, "%s: %u of the table, %u derived", title, params,
                 model->param_count);
    cr_expect_eq(total, counted, "%s: total", title);
    free(text);
    wf_model_free(model);
}

Test(inventory, equals_the_tables)
{
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        check(models[i]);
    }
}

Test(inventory, order_is_the_tables_order_with_layers_ascending)
{
    struct wf_model *model = golden_model("tests/golden/configs/Qwen3-0.6B.json");
    cr_assert_str_eq(model->params[0].name, "model.embed_tokens.weight");
    cr_assert_str_eq(model->params[1].name, "model.layers.0.input_layernorm.weight");
    cr_assert_str_eq(model->params[12].name, "model.layers.1.input_layernorm.weight");
    cr_assert_str_eq(model->params[model->param_count - 1].name, "model.norm.weight");
    for (uint32_t i = 2; i + 1 < model->param_count; i++) {
        cr_expect_geq(model->params[i].layer, model->params[i - 1].layer, "%s",
                      model->params[i].name);
    }
    wf_model_free(model);
}
