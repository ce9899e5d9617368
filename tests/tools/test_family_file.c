/* test_family_file.c - families from files: equal to the built-in ones they print as, laid over
 * what they extend, refused with the line and the reason; the examples of docs/add-a-model.md. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/family_file.h"
#include "models/engines/engine.h"
#include "models/layout.h"
#include "tools/layout/family_print.h"

static void expect_text(const char *family, const char *what, const char *a, const char *b)
{
    cr_assert((a == NULL) == (b == NULL) && (!a || strcmp(a, b) == 0), "%s: %s: \"%s\" \"%s\"",
              family, what, a ? a : "(none)", b ? b : "(none)");
}

/* --- round trip ------------------------------------------------------------------------------ */

static void expect_engine(const char *family, const struct wf_family_engine *a,
                          const struct wf_family_engine *b)
{
    expect_text(family, "engine", a->engine, b->engine);
    expect_text(family, "renames", a->renames, b->renames);
    expect_text(family, "prefix", a->prefix, b->prefix);
    expect_text(family, "requires", a->requires, b->requires);
    expect_text(family, "order", a->order, b->order);
    cr_assert_eq(a->row_count, b->row_count, "%s: %s", family, a->engine);
    cr_assert_eq(a->alias_count, b->alias_count, "%s: %s", family, a->engine);
    for (size_t i = 0; i < a->row_count; i++) {
        const struct wf_engine_row *x = &a->rows[i], *y = &b->rows[i];
        const char *const texts[][2] = {
            {x->name, y->name},          {x->parts, y->parts}, {x->when, y->when},
            {x->groups, y->groups},      {x->pad, y->pad},     {x->cuts, y->cuts},
            {x->fill, y->fill},          {x->extra, y->extra}, {x->view, y->view},
            {x->shape, y->shape},        {x->order, y->order}, {x->dtype, y->dtype},
            {x->data_when, y->data_when}};
        for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++) {
            expect_text(family, x->name, texts[t][0], texts[t][1]);
        }
        cr_assert_eq(x->kind, y->kind, "%s: %s", family, x->name);
        cr_assert_eq(x->value, y->value, "%s: %s", family, x->name);
    }
    for (size_t i = 0; i < a->alias_count; i++) {
        expect_text(family, "alias", a->aliases[i].role, b->aliases[i].role);
        expect_text(family, "alias", a->aliases[i].name, b->aliases[i].name);
        expect_text(family, "alias", a->aliases[i].when, b->aliases[i].when);
    }
}

static void expect_family(const struct wf_family *a, const struct wf_family *b)
{
    expect_text(a->name, "name", a->name, b->name);
    expect_text(a->name, "model_types", a->model_types, b->model_types);
    expect_text(a->name, "text_config", a->text_config, b->text_config);
    expect_text(a->name, "refused", a->refused, b->refused);
    expect_text(a->name, "requires", a->requires, b->requires);
    cr_assert(a->size_count == b->size_count && a->stack_count == b->stack_count &&
              a->row_count == b->row_count && a->engine_count == b->engine_count);
    for (size_t i = 0; i < a->size_count; i++) {
        expect_text(a->name, "size", a->sizes[i].name, b->sizes[i].name);
        expect_text(a->name, a->sizes[i].name, a->sizes[i].key, b->sizes[i].key);
        expect_text(a->name, a->sizes[i].name, a->sizes[i].otherwise, b->sizes[i].otherwise);
        expect_text(a->name, a->sizes[i].name, a->sizes[i].match, b->sizes[i].match);
    }
    for (size_t i = 0; i < a->stack_count; i++) {
        expect_text(a->name, "stack", a->stacks[i].name, b->stacks[i].name);
        expect_text(a->name, a->stacks[i].name, a->stacks[i].prefix, b->stacks[i].prefix);
        expect_text(a->name, a->stacks[i].name, a->stacks[i].count, b->stacks[i].count);
        expect_text(a->name, a->stacks[i].name, a->stacks[i].first, b->stacks[i].first);
    }
    for (size_t i = 0; i < a->row_count; i++) {
        const struct wf_family_row *x = &a->rows[i], *y = &b->rows[i];
        expect_text(a->name, "role", x->role, y->role);
        expect_text(a->name, x->role, x->name, y->name);
        expect_text(a->name, x->role, x->shape, y->shape);
        expect_text(a->name, x->role, x->stacks, y->stacks);
        expect_text(a->name, x->role, x->when, y->when);
        expect_text(a->name, x->role, x->unit, y->unit);
        expect_text(a->name, x->role, x->dtype, y->dtype);
    }
    for (size_t i = 0; i < a->engine_count; i++) {
        expect_engine(a->name, &a->engines[i], &b->engines[i]);
    }
}

Test(family_file, every_built_in_family_reads_back_equal)
{
    for (const struct wf_family *const *family = wf_families; *family; family++) {
        char *text = NULL;
        size_t len = 0;
        FILE *out = open_memstream(&text, &len);
        wf_family_print(out, *family);
        fclose(out);
        struct wf_family_files files = {0};
        struct wf_error error = {0};
        cr_assert_eq(wf_family_files_parse(&files, text, len, &error), WF_OK, "%s: %s",
                     (*family)->name, error.text);
        expect_family(*family, files.list[0]);
        cr_expect_eq(wf_family_named(&files, (*family)->name), files.list[0]);
        wf_family_files_fini(&files);
        free(text);
    }
}

/* --- extends --------------------------------------------------------------------------------- */

#define CONFIG                                                                      \
    "{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "   \
    "\"vocab_size\": 101, \"num_attention_heads\": 8, \"num_key_value_heads\": 2, " \
    "\"head_dim\": 16, \"intermediate_size\": 96}"

static struct wf_model *model_of(const struct wf_family_files *files, const char *config)
{
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(config, strlen(config), files->list, &model, &error), WF_OK, "%s",
                 error.text);
    return model;
}

Test(family_file, what_is_said_goes_over_what_is_extended)
{
    static const char text[] =
        "family: qwen3\nextends: qwen3\nsizes:\n  - {name: G, key: gates, otherwise: '3'}\n"
        "rows:\n  - {role: q_norm, name: '{layers}query_norm.weight'}\n"
        "  - {role: k_norm, remove: true}\n  - {role: extra, name: extra.weight, shape: 'G,H'}\n";
    struct wf_family_files files = {0};
    struct wf_error error = {0};
    cr_assert_eq(wf_family_files_parse(&files, text, strlen(text), &error), WF_OK, "%s",
                 error.text);
    struct wf_model *model = model_of(&files, CONFIG), *plain = NULL;
    cr_assert_eq(wf_model_parse(CONFIG, strlen(CONFIG), NULL, &plain, &error), WF_OK);
    uint32_t norm = wf_model_find(model, "model.layers.1.query_norm.weight", 32);
    cr_assert_neq(norm, WF_NONE);
    cr_expect_eq(model->params[norm].shape[0], 16, "the shape stays");
    cr_expect_eq(wf_model_find(model, "model.layers.1.self_attn.k_norm.weight", 38), WF_NONE);
    cr_expect_neq(wf_model_find(plain, "model.layers.1.self_attn.k_norm.weight", 38), WF_NONE);
    cr_expect_neq(wf_model_find(model, "extra.weight", 12), WF_NONE);
    cr_expect_eq(model->param_count, plain->param_count - 1);
    cr_expect(!wf_hash_equal(model->hash, plain->hash), "another table is another model");
    wf_model_free(model);
    wf_model_free(plain);
    wf_family_files_fini(&files);
}

Test(family_file, files_extend_earlier_files)
{
    static const char first[] = "family: mine\nextends: llama\nmodel_types: [mine]\n"
                                "rows:\n  - {role: o, name: '{layers}out.weight'}\n";
    static const char second[] = "family: ours\nextends: mine\nmodel_types: [ours]\n";
    struct wf_family_files files = {0};
    struct wf_error error = {0};
    cr_assert_eq(wf_family_files_parse(&files, first, strlen(first), &error), WF_OK);
    cr_assert_eq(wf_family_files_parse(&files, second, strlen(second), &error), WF_OK, "%s",
                 error.text);
    uint32_t row = wf_family_find_row(files.list[1], 0, "o", 1);
    cr_expect_str_eq(files.list[1]->rows[row].name, "{layers}out.weight");
    cr_expect_eq(wf_family_files_parse(&files, second, strlen(second), &error), WF_INVALID);
    cr_expect(strstr(error.text, "another file"), "%s", error.text);
    wf_family_files_fini(&files);
    cr_expect_eq(files.count, 0);
    cr_expect_null(files.list[0]);
}

Test(family_file, refusals_say_where_and_why)
{
    static const struct {
        const char *name, *text, *fragment;
    } rows[] = {
        {"nothing", "", "empty"},
        {"a list", "- a\n", "expected a mapping"},
        {"unknown key", "family: a\nrow: []\n", "did you mean \"rows\""},
        {"key twice", "family: a\nfamily: b\n", "family"},
        {"no name", "model_types: [a]\n", "family"},
        {"no types", "family: a\n", "model_types"},
        {"unknown base", "family: a\nextends: qwen33\nmodel_types: [a]\n", "did you mean"},
        {"base not read yet", "family: a\nextends: harbor\nmodel_types: [a]\n",
         "comes behind the one"},
        {"alias", "family: &x a\nmodel_types: [*x]\n", "alias"},
        {"size without a key", "family: a\nextends: llama\nmodel_types: [a]\nsizes: [{name: Q}]\n",
         "size Q"},
        {"size of nothing",
         "family: a\nextends: llama\nmodel_types: [a]\nsizes: [{name: F, otherwise: Z}]\n",
         "\"Z\""},
        {"row without a shape name",
         "family: a\nextends: llama\nmodel_types: [a]\nrows: [{role: q, shape: 'Z,H'}]\n",
         "row q: shape"},
        {"nothing to remove",
         "family: a\nextends: llama\nmodel_types: [a]\nrows: [{role: zz, remove: true}]\n",
         "none to remove"},
        {"engine twice",
         "family: a\nextends: llama\nmodel_types: [a]\nengines: [{engine: vllm}, {engine: vllm}]\n",
         "twice"},
        {"unknown engine",
         "family: a\nextends: llama\nmodel_types: [a]\nengines: [{engine: tgi}]\n", "tgi"},
        {"engine row of an unknown role",
         "family: a\nextends: llama\nmodel_types: [a]\nengines: [{engine: vllm, rows: "
         "[{name: x, parts: nope}]}]\n",
         "nope"},
        {"unknown kind",
         "family: a\nextends: llama\nmodel_types: [a]\nengines: [{engine: vllm, rows: "
         "[{name: x, parts: q, kind: odd}]}]\n",
         "derived"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_family_files files = {0};
        struct wf_error error = {0};
        cr_expect_eq(wf_family_files_parse(&files, rows[i].text, strlen(rows[i].text), &error),
                     WF_INVALID, "%s", rows[i].name);
        cr_expect(strstr(error.text, rows[i].fragment), "%s: %s", rows[i].name, error.text);
        cr_expect_eq(files.count, 0, "%s", rows[i].name);
        wf_family_files_fini(&files);
    }
}

/* --- the document ---------------------------------------------------------------------------- */

enum { DOCUMENT_MAX = 1 << 16, BLOCK_MAX = 4096 };

/* The number-th block of a language. */
static void block(const char *document, const char *language, unsigned number, char out[BLOCK_MAX])
{
    char mark[32];
    snprintf(mark, sizeof mark, "```%s\n", language);
    const char *at = document;
    for (unsigned i = 0; i <= number; i++) {
        at = strstr(at, mark);
        cr_assert(at, "block %u of %s", number, language);
        at += strlen(mark);
    }
    const char *end = strstr(at, "```");
    cr_assert(end && end - at < BLOCK_MAX);
    snprintf(out, BLOCK_MAX, "%.*s", (int)(end - at), at);
}

static void expect_tensor(const struct wf_model *model, const char *spec, const char *name,
                          uint64_t rows)
{
    struct wf_recipe recipe;
    struct wf_layout *layout = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_recipe_parse(spec, model, &recipe, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_layout_derive(model, &recipe, 1, &layout, &error), WF_OK, "%s", error.text);
    uint32_t tensor = wf_layout_find(layout, name, strlen(name));
    cr_assert_neq(tensor, UINT32_MAX, "%s: %s", spec, name);
    cr_expect_eq(layout->tensors[tensor].shape[0], rows, "%s: %s", spec, name);
    wf_layout_free(layout);
}

Test(family_file, the_document_keeps_its_word)
{
    char document[DOCUMENT_MAX], yaml[BLOCK_MAX], json[BLOCK_MAX];
    FILE *file = fopen("docs/add-a-model.md", "rb");
    cr_assert(file);
    document[fread(document, 1, sizeof document - 1, file)] = '\0';
    fclose(file);
    block(document, "json", 0, json);
    struct wf_family_files files = {0};
    struct wf_error error = {0};
    for (unsigned i = 0; i < 3; i++) {
        unsigned lines = 0;
        block(document, "yaml", i, yaml);
        for (const char *at = yaml; *at; at++) {
            lines += *at == '\n';
        }
        cr_expect_lt(lines, 30);
        cr_assert_eq(wf_family_files_parse(&files, yaml, strlen(yaml), &error), WF_OK, "%u: %s", i,
                     error.text);
    }
    struct wf_model *model = model_of(&files, json);
    expect_tensor(model, "megatron:tp=2", "decoder.layers.0.self_attention.linear_qkv.weight", 48);
    expect_tensor(model, "vllm:tp=2", "transformer.h.0.attn.qkv_proj.weight", 48);
    wf_model_free(model);
    char *type = strstr(json, "harbor");
    char other[BLOCK_MAX];
    snprintf(other, sizeof other, "%.*sharbor_vl%s", (int)(type - json), json, type + 6);
    model = model_of(&files, other);
    expect_tensor(model, "vllm:tp=2", "language_model.model.h.0.attn.wqkv.weight", 48);
    wf_model_free(model);
    model = model_of(&files, CONFIG);
    expect_tensor(model, "vllm:tp=2", "model.layers.0.self_attn.query_norm.weight", 16);
    wf_model_free(model);
    wf_family_files_fini(&files);
}
