/* test_checkable.c - of all public models the element check knows what ranks hold, tensor by tensor
 * and in their sizes; what engines do with options that nobody retells it refuses by name. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/layout.h"
#include "models/variant.h"
#include "tests/tools/folder.h"
#include "tools/files/checkpoint.h"
#include "tools/run/checkable.h"

#define CONFIGS "tests/golden/configs"
enum { LAYERS = 5 }; /* at most: some have three dense ones first */

/* Rank 1 of two, in the job's plain view. NOT_FOUND: the model does not run so at all. */
static enum wf_status ask(const struct wf_model *config, const char *spec, struct wf_error *error)
{
    struct wf_recipe train, recipe;
    const struct wf_recipe *recipes[] = {&train, &recipe};
    struct wf_model *model = NULL;
    struct wf_verify *verify = NULL;
    struct wf_layout *layout = NULL;
    cr_assert_eq(wf_recipe_parse("fsdp:dp=2", NULL, &train, error), WF_OK, "%s", error->text);
    cr_assert_eq(wf_recipe_parse(spec, NULL, &recipe, error), WF_OK, "%s", error->text);
    if (wf_model_for_job(config, recipes, 2, &model, error) != WF_OK ||
        wf_recipe_parse(spec, model, &recipe, error) != WF_OK ||
        wf_layout_derive(model, &recipe, 1, &layout, error) != WF_OK) {
        wf_model_free(model);
        return WF_NOT_FOUND;
    }
    const struct wf_verify_place place = {.tp = 2,
                                          .tp_rank = 1,
                                          .pp = 1,
                                          .sglang = spec[0] == 's',
                                          .vision_whole = strstr(spec, "vision=data") != NULL,
                                          .recipe = &recipe,
                                          .rank = 1};
    enum wf_status status = wf_verify_open(NULL, model, &place, &verify, error);
    if (status == WF_OK) {
        status = wf_run_check_tensors(layout, verify, error);
    }
    wf_layout_free(layout);
    wf_verify_free(verify);
    wf_model_free(model);
    return status;
}

static struct wf_model *few_layers(const char *path)
{
    struct wf_model *whole = NULL, *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_checkpoint_model(path, NULL, &whole, &error), WF_OK, "%s", error.text);
    uint64_t layers = whole->layers < LAYERS ? whole->layers : LAYERS;
    cr_assert_eq(wf_model_with_layers(whole, layers, &model, &error), WF_OK, "%s", error.text);
    wf_model_free(whole);
    return model;
}

Test(checkable, public_models)
{
    static const char *const specs[] = {"vllm:tp=2,quant=none", "sglang:tp=2,quant=none"};
    struct dirent **entries = NULL;
    uint32_t known = 0;
    int count = scandir(CONFIGS, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", CONFIGS, entries[i]->d_name);
        bool json = strstr(entries[i]->d_name, ".json") != NULL;
        free(entries[i]);
        struct wf_model *model = json ? few_layers(path) : NULL;
        for (size_t s = 0; s < 2 && json; s++) {
            struct wf_error error = {0};
            enum wf_status status = ask(model, specs[s], &error);
            cr_expect(status == WF_OK || status == WF_NOT_FOUND, "%s %s: %s", path, specs[s],
                      error.text);
            known += status == WF_OK;
        }
        wf_model_free(model);
    }
    free(entries);
    /* Both engines, of 64: without those whose weights are packed, and a class that no engine has.
     */
    cr_assert_eq(known, 2 * 58, "%u are known", known);
}

Test(checkable, options)
{
    static const struct {
        const char *spec, *why; /* NULL: it is known */
        bool alternates;        /* of a model whose experts' rows do */
    } rows[] = {
        {"vllm:tp=2,deep_gemm=off,capability=90", NULL, false},
        {"vllm:tp=2,stage=post,moe_backend=triton", "what vllm changes with stage=post", false},
        {"vllm:tp=2,dp=2", "what vllm changes with dp=2", false},
        {"sglang:tp=2,attention=fa3,moe_backend=triton", NULL, false},
        {"sglang:tp=2,moe_backend=triton_kernel", "with moe_backend=triton_kernel", false},
        {"sglang:tp=2,moe_backend=flashinfer_cutlass", "with moe_backend=flashinfer_cutlass",
         false},
        {"sglang:tp=2,dp=2,dp_attention=1", "what sglang changes with dp=2", false},
        {"sglang:tp=2,moe_dense_tp=1", "what sglang changes with moe_dense_tp=1", false},
        {"sglang:tp=2", "as SGLang's triton_kernel keeps them", true},
        {"sglang:tp=2,moe_backend=triton", NULL, true},
        {"vllm:tp=2", NULL, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_model *model =
            folder_model(rows[i].alternates ? "tiny-gpt-oss.json" : "tiny-qwen3-moe.json");
        struct wf_error error = {0};
        enum wf_status status = ask(model, rows[i].spec, &error);
        cr_expect_eq(status, rows[i].why ? WF_UNSUPPORTED : WF_OK, "%s: %s", rows[i].spec,
                     error.text);
        cr_expect(rows[i].why == NULL || strstr(error.text, rows[i].why), "%s: %s", rows[i].spec,
                  error.text);
        wf_model_free(model);
    }
}
