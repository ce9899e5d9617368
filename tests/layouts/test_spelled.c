/* test_spelled.c - every layout survives being spelled out: those of all executed fixtures, and of
 * random configs of every family with random SPECs of every engine, in fp8 jobs too.
 *
 * WEFT_SPELLED in the environment sets how many random ones are drawn of each family and engine.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/layout.h"
#include "models/manifest.h"
#include "models/variant.h"
#include "tools/layout/case.h"
#include "zoo.h"

#define REAL "tests/golden/real/"

enum { CASE_BYTES_MAX = 1 << 20, DRAWN = 4, RANKS_MAX = 4, CASES_WANTED = 90, SPELT_WANTED = 300 };

/* Ranks of a recipe there and back; gives how many. */
static unsigned check_ranks(const char *name, const struct wf_model *model,
                            const struct wf_recipe *recipe)
{
    uint32_t ranks = wf_recipe_ranks_per_engine(recipe);
    ranks = ranks < RANKS_MAX ? ranks : RANKS_MAX;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct wf_layout *layout = NULL;
        struct wf_manifest read;
        struct wf_error error = {0};
        uint8_t *bytes = NULL;
        size_t len = 0;
        if (wf_layout_derive(model, recipe, rank, &layout, &error) != WF_OK) {
            return 0; /* a recipe that this model has not */
        }
        cr_assert_eq(wf_manifest_write(model, layout, &bytes, &len, &error), WF_OK, "%s: %s", name,
                     error.text);
        cr_assert_eq(wf_manifest_read(bytes, len, model, &read, &error), WF_OK, "%s rank %u: %s",
                     name, rank, error.text);
        cr_assert(wf_hash_equal(read.layout->hash, layout->hash), "%s rank %u", name, rank);
        wf_manifest_fini(&read);
        free(bytes);
        wf_layout_free(layout);
    }
    return ranks;
}

/* In the model of a job with a trainer, where parameters of engines in fp8 are further ones. */
static unsigned check_in_job(const char *name, const struct wf_model *config,
                             const struct wf_recipe *recipe)
{
    struct wf_recipe trainer;
    struct wf_model *job = NULL;
    struct wf_error error = {0};
    const struct wf_recipe *recipes[] = {recipe, &trainer};
    cr_assert_eq(wf_recipe_parse("megatron:", NULL, &trainer, &error), WF_OK);
    if (wf_model_for_job(config, recipes, 2, &job, &error) != WF_OK) {
        return 0;
    }
    unsigned ranks = job->variants != NULL ? check_ranks(name, job, recipe) : 0;
    wf_model_free(job);
    return ranks;
}

Test(spelled, executed_fixtures)
{
    DIR *dir = opendir(REAL);
    unsigned cases = 0, in_jobs = 0;
    char *text = malloc(CASE_BYTES_MAX);
    cr_assert(dir && text);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[512];
        struct wf_case it;
        struct wf_error error = {0};
        snprintf(path, sizeof path, REAL "%s/case.json", entry->d_name);
        FILE *file = fopen(path, "rb");
        if (!file) {
            continue;
        }
        size_t len = fread(text, 1, CASE_BYTES_MAX, file);
        fclose(file);
        if (wf_case_parse(text, len, NULL, &it, &error) == WF_OK) {
            cases += check_ranks(entry->d_name, it.model, &it.recipe) > 0;
            in_jobs += check_in_job(entry->d_name, it.model, &it.recipe) > 0;
            wf_case_fini(&it);
        }
    }
    closedir(dir);
    free(text);
    cr_expect_geq(cases, (unsigned)CASES_WANTED);
    cr_expect_gt(in_jobs, 0u);
}

Test(spelled, random_ones)
{
    static const struct wf_engine *const engines[] = {
        &wf_engine_megatron, &wf_engine_fsdp, &wf_engine_vllm, &wf_engine_sglang, &wf_engine_hf};
    const char *said = getenv("WEFT_SPELLED");
    unsigned long drawn = said ? strtoul(said, NULL, 10) : DRAWN, spelt = 0;
    uint64_t state = 1;
    for (const struct zoo_family *family = zoo_families; family->name; family++) {
        for (size_t i = 0; i < drawn * sizeof engines / sizeof engines[0]; i++) {
            char config[ZOO_CONFIG_MAX], spec[WF_SPEC_MAX];
            struct wf_model *model = NULL;
            struct wf_recipe recipe;
            struct wf_error error = {0};
            zoo_config(family, &state, config);
            cr_assert_eq(wf_model_parse(config, strlen(config), NULL, &model, &error), WF_OK,
                         "%s: %s", family->name, error.text);
            zoo_spec(engines[i % (sizeof engines / sizeof engines[0])], model, &state, spec);
            if (wf_recipe_parse(spec, model, &recipe, &error) == WF_OK) {
                spelt += check_ranks(spec, model, &recipe) > 0;
                check_in_job(spec, model, &recipe);
            }
            wf_model_free(model);
        }
    }
    cr_expect_geq(spelt, (unsigned long)SPELT_WANTED * drawn / DRAWN);
}
