/* test_views.c - the layout that an engine has in a job which quantises is the one that a config
 * with fp8 gives it by itself: of every executed fixture in fp8, and of random configs of every
 * family with random SPECs. Only parameters are numbered otherwise.
 *
 * WEFT_VIEWS in the environment sets how many random ones are drawn of each family and engine.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/layout.h"
#include "models/variant.h"
#include "tools/layout/case.h"
#include "zoo.h"

#define REAL "tests/golden/real/"

enum {
    CASE_BYTES_MAX = 1 << 20,
    DRAWN = 12,
    SCALE = 128, /* sizes of random configs, so that many have whole blocks on every rank */
    CASES_WANTED = 12,
};

static const struct wf_recipe *trainer(void)
{
    static struct wf_recipe recipe;
    cr_assert_eq(wf_recipe_parse("megatron:", NULL, &recipe, NULL), WF_OK);
    return &recipe;
}

/* A job of the config with a trainer, in which `recipe` is quantised by a rule; NULL: refused. */
static struct wf_model *make_job(const struct wf_model *config, struct wf_recipe *recipe,
                                 uint32_t quant, struct wf_error *error)
{
    const struct wf_recipe *recipes[] = {trainer(), recipe};
    struct wf_model *job = NULL;
    recipe->quant = quant;
    return wf_model_for_job(config, recipes, 2, &job, error) == WF_OK ? job : NULL;
}

static bool is_same_tensor(const struct wf_tensor *a, const struct wf_tensor *b)
{
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->kind == b->kind &&
           a->ndim == b->ndim && a->bytes == b->bytes &&
           memcmp(a->shape, b->shape, a->ndim * sizeof a->shape[0]) == 0 &&
           memcmp(a->strides, b->strides, a->ndim * sizeof a->strides[0]) == 0;
}

static bool is_same_form(const struct wf_form *a, const struct wf_form *b)
{
    bool same = a->axis_count == b->axis_count && a->elem_bytes == b->elem_bytes;
    for (uint32_t i = 0; same && i < a->axis_count; i++) {
        same = a->axes[i].count == b->axes[i].count &&
               a->axes[i].param_step == b->axes[i].param_step &&
               a->axes[i].tensor_step == b->axes[i].tensor_step;
    }
    return same;
}

/* `of`: in the numbers of the job; `alone`: in those of its view. */
static void expect_same(const char *name, const struct wf_model *job, const struct wf_model *view,
                        const struct wf_layout *of, const struct wf_layout *alone)
{
    cr_assert(of->tensor_count == alone->tensor_count && of->piece_count == alone->piece_count &&
                  of->form_count == alone->form_count && of->alias_count == alone->alias_count,
              "%s: other counts", name);
    for (uint32_t i = 0; i < of->tensor_count; i++) {
        cr_assert(is_same_tensor(&of->tensors[i], &alone->tensors[i]), "%s: %s", name,
                  alone->tensors[i].name);
    }
    for (uint32_t i = 0; i < of->alias_count; i++) {
        cr_assert(strcmp(of->aliases[i].name, alone->aliases[i].name) == 0 &&
                      of->aliases[i].tensor == alone->aliases[i].tensor,
                  "%s: alias %s", name, alone->aliases[i].name);
    }
    for (uint32_t i = 1; i < of->form_count; i++) {
        cr_assert(is_same_form(&of->forms[i], &alone->forms[i]), "%s: form %u", name, i);
    }
    for (uint32_t i = 0; i < of->piece_count; i++) {
        struct wf_piece piece = alone->pieces[i];
        if (piece.kind == WF_PIECE_DATA) {
            piece.param = wf_model_of_view(job, view, piece.param);
        }
        const struct wf_piece *found = &of->pieces[i];
        cr_assert(found->param == piece.param && found->tensor == piece.tensor &&
                      found->param_first == piece.param_first &&
                      found->tensor_offset == piece.tensor_offset && found->count == piece.count &&
                      found->form == piece.form && found->kind == piece.kind &&
                      found->value_rule == piece.value_rule,
                  "%s: piece %u", name, i);
    }
}

/* Every rank of `spec`, or a refusal in the same words. Gives whether it is no refusal. */
static bool compare_ranks(const char *name, const struct wf_model *job, struct wf_recipe recipe,
                          const struct wf_model *config)
{
    const struct wf_model *view = wf_model_view(job, &recipe);
    struct wf_recipe alone = recipe;
    alone.quant = WF_RECIPE_QUANT_CONFIG;
    cr_assert_eq(view, job->variants->quantised, "%s", name);
    cr_assert(wf_hash_equal(view->hash, config->hash), "%s: another inventory", name);
    for (uint32_t rank = 0; rank < wf_recipe_ranks_per_engine(&recipe); rank++) {
        struct wf_layout *a = NULL, *b = NULL;
        struct wf_error first = {0}, second = {0};
        enum wf_status status = wf_layout_derive(config, &alone, rank, &b, &second);
        cr_assert_eq(wf_layout_derive(job, &recipe, rank, &a, &first), status, "%s: %s%s", name,
                     first.text, second.text);
        cr_expect_str_eq(first.text, second.text, "%s", name);
        if (status != WF_OK) {
            return false;
        }
        expect_same(name, job, view, a, b);
        wf_layout_free(a);
        wf_layout_free(b);
    }
    return true;
}

/* --- executed fixtures ----------------------------------------------------------------------- */

/* With the config as it is, and with the bf16 config of which `quant` makes the same. */
static void check_case(const char *name, struct wf_case *it)
{
    struct wf_error error = {0};
    struct wf_model *own = make_job(it->model, &it->recipe, WF_RECIPE_QUANT_CONFIG, &error);
    cr_assert(own && own->variants, "%s: %s", name, error.text);
    cr_expect(compare_ranks(name, own, it->recipe, it->model), "%s is refused", name);
    struct wf_model *made = make_job(own->variants->plain, &it->recipe, 1 + WF_QUANT_VLLM, &error);
    cr_assert(made && made->variants, "%s: %s", name, error.text);
    cr_expect(compare_ranks(name, made, it->recipe, it->model), "%s is refused", name);
    wf_model_free(made);
    wf_model_free(own);
}

Test(views, executed_fixtures_in_fp8)
{
    DIR *dir = opendir(REAL);
    unsigned count = 0;
    char *text = malloc(CASE_BYTES_MAX);
    cr_assert(dir && text);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[512];
        struct wf_case it;
        snprintf(path, sizeof path, REAL "%s/case.json", entry->d_name);
        FILE *file = fopen(path, "rb");
        size_t len = file ? fread(text, 1, CASE_BYTES_MAX, file) : 0;
        if (file) {
            fclose(file);
        }
        if (len == 0 || wf_case_parse(text, len, NULL, &it, NULL) != WF_OK) {
            continue; /* no fixture of a layout, or of one that is refused */
        }
        if (wf_model_size(it.model, "fp8")) {
            check_case(entry->d_name, &it);
            count++;
        }
        wf_case_fini(&it);
    }
    closedir(dir);
    free(text);
    cr_expect_geq(count, CASES_WANTED, "%u fixtures in fp8", count);
}

/* --- random ---------------------------------------------------------------------------------- */

static struct wf_model *parse(char *text, const char *more)
{
    struct wf_model *model = NULL;
    size_t end = strlen(text) - 1;
    cr_assert_eq(text[end], '}');
    snprintf(text + end, ZOO_CONFIG_MAX - end, "%s}", more);
    return wf_model_parse(text, strlen(text), NULL, &model, NULL) == WF_OK ? model : NULL;
}

/* One config with and without fp8. Gives how many layouts were compared. */
static unsigned check_drawn(const struct zoo_family *family, const struct wf_engine *engine,
                            uint64_t *state)
{
    char text[ZOO_CONFIG_MAX], other[ZOO_CONFIG_MAX], spec[WF_SPEC_MAX], name[2 * WF_SPEC_MAX];
    zoo_config_scaled(family, state, SCALE, text);
    memcpy(other, text, sizeof other);
    struct wf_model *plain = parse(text, "");
    struct wf_model *fp8 = parse(other, ", \"quantization_config\": {\"quant_method\": \"fp8\", "
                                        "\"weight_block_size\": [128, 128], "
                                        "\"modules_to_not_convert\": [\"...\"]}");
    struct wf_error error = {0};
    struct wf_recipe recipe;
    unsigned compared = 0;
    if (plain) {
        zoo_spec(engine, plain, state, spec);
        snprintf(name, sizeof name, "%s, %s", family->name, spec);
    }
    if (plain && wf_recipe_parse(spec, NULL, &recipe, NULL) == WF_OK) {
        struct wf_model *job = make_job(plain, &recipe, 1 + WF_QUANT_TRANSFORMERS, &error);
        cr_assert_eq(job != NULL, fp8 && wf_model_size(fp8, "fp8"), "%s: %s", name, error.text);
        compared = job ? compare_ranks(name, job, recipe, fp8) : 0;
        wf_model_free(job);
    }
    wf_model_free(plain);
    wf_model_free(fp8);
    return compared;
}

Test(views, random_configs_of_every_family)
{
    static const struct wf_engine *const engines[] = {&wf_engine_vllm, &wf_engine_sglang};
    const char *wanted = getenv("WEFT_VIEWS");
    unsigned times = wanted ? (unsigned)strtoul(wanted, NULL, 10) : DRAWN;
    uint64_t state = 1;
    unsigned compared = 0, families = 0;
    for (const struct zoo_family *family = zoo_families; family->name; family++) {
        unsigned before = compared;
        for (unsigned i = 0; i < 2 * times; i++) {
            compared += check_drawn(family, engines[i % 2], &state);
        }
        families += compared > before;
    }
    printf("%u layouts of %u families\n", compared, families);
    cr_expect_geq(families, 8);
}
