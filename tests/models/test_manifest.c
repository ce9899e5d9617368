/* test_manifest.c - layouts spelled out and read back; everything else is refused by name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "manifest_text.h"
#include "models/layout_private.h"
#include "models/manifest.h"
#include "models/manifest_set.h"
#include "models/variant.h"

#define LLAMA "tests/golden/models/tiny-llama.json"
#define QWEN3 "tests/golden/models/tiny-qwen3.json"
#define MOE "tests/golden/models/tiny-qwen3-moe.json"
#define NEXT "tests/golden/models/tiny-qwen3-next.json"
#define V3 "tests/golden/models/tiny-deepseek-v3.json"
#define KIMI "tests/golden/configs/Kimi-K2-Instruct.json"

enum { TENSORS_MANY = 70000, BYTES_FEW = 2000000, TEXT_MAX = 4096, KIMI_LAYERS = 32 };

/* The job's model of one recipe, which is parsed with it. */
static struct wf_model *job_of(const char *config, const char *spec, struct wf_recipe *recipe)
{
    struct wf_model *alone = golden_model(config), *job = NULL;
    struct wf_error error = {0};
    const struct wf_recipe *recipes[] = {recipe};
    cr_assert_eq(wf_recipe_parse(spec, NULL, recipe, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_model_for_job(alone, recipes, 1, &job, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_recipe_parse(spec, job, recipe, &error), WF_OK, "%s", error.text);
    wf_model_free(alone);
    return job;
}

static struct wf_layout *derive(const struct wf_model *model, const struct wf_recipe *recipe,
                                uint32_t rank)
{
    struct wf_layout *layout = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_layout_derive(model, recipe, rank, &layout, &error), WF_OK, "%s", error.text);
    return layout;
}

/* --- there and back -------------------------------------------------------------------------- */

static void expect_same_tensors(const char *name, const struct wf_layout *a,
                                const struct wf_layout *b)
{
    cr_assert(a->tensor_count == b->tensor_count && a->alias_count == b->alias_count &&
                  a->piece_count == b->piece_count && a->form_count == b->form_count &&
                  a->bytes == b->bytes,
              "%s: other counts", name);
    for (uint32_t i = 0; i < a->tensor_count; i++) {
        const struct wf_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        cr_assert(strcmp(x->name, y->name) == 0 && x->dtype == y->dtype && x->kind == y->kind &&
                      x->ndim == y->ndim && x->bytes == y->bytes &&
                      memcmp(x->shape, y->shape, x->ndim * sizeof x->shape[0]) == 0 &&
                      memcmp(x->strides, y->strides, x->ndim * sizeof x->strides[0]) == 0,
                  "%s: %s", name, x->name);
    }
}

static void expect_same_names(const char *name, const struct wf_model *model,
                              const struct wf_layout *layout, const struct wf_manifest *looked_at)
{
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *a = &layout->pieces[i], *b = &looked_at->layout->pieces[i];
        cr_assert(a->kind == b->kind && a->tensor == b->tensor && a->count == b->count &&
                      a->param_first == b->param_first && a->tensor_offset == b->tensor_offset,
                  "%s: piece %u", name, i);
        if (a->kind == WF_PIECE_DATA) {
            cr_assert(b->param < looked_at->param_count, "%s", name);
            cr_assert_str_eq(looked_at->params[b->param].name, model->params[a->param].name, "%s",
                             name);
        }
    }
}

static void check_round_trip(const char *name, const struct wf_model *model,
                             const struct wf_layout *layout)
{
    uint8_t *bytes = NULL, *again = NULL;
    size_t len = 0, again_len = 0;
    struct wf_manifest read, looked_at;
    struct wf_error error = {0};
    cr_assert_eq(wf_manifest_write(model, layout, &bytes, &len, &error), WF_OK, "%s: %s", name,
                 error.text);
    cr_assert_eq(wf_manifest_read(bytes, len, model, &read, &error), WF_OK, "%s: %s", name,
                 error.text);
    cr_expect(wf_hash_equal(read.layout->hash, layout->hash), "%s", name);
    expect_same_tensors(name, layout, read.layout);
    cr_assert_eq(wf_manifest_write(model, read.layout, &again, &again_len, &error), WF_OK);
    cr_expect(again_len == len && memcmp(again, bytes, len) == 0, "%s: other bytes", name);
    cr_assert_eq(wf_manifest_read(bytes, len, NULL, &looked_at, &error), WF_OK, "%s: %s", name,
                 error.text);
    expect_same_tensors(name, layout, looked_at.layout);
    expect_same_names(name, model, layout, &looked_at);
    wf_manifest_fini(&looked_at);
    wf_manifest_fini(&read);
    free(again);
    free(bytes);
}

Test(manifest, a_layout_comes_back_with_its_hash)
{
    static const struct {
        const char *config, *spec;
    } rows[] = {
        {LLAMA, "hf:"},
        {LLAMA, "megatron:tp=3,pp=2"},
        {LLAMA, "vllm:pp=3"},
        {LLAMA, "fsdp:dp=5"},
        {LLAMA, "fsdp:dp=3,flat=1"},
        {QWEN3, "megatron:tp=8,pp=2"},
        {QWEN3, "megatron:tp=2,pp=2,layout=Et|t|t|tL,dtype=f32"},
        {QWEN3, "vllm:tp=8,dp=2"},
        {QWEN3, "vllm:tp=4,dtype=f16"},
        {MOE, "hf:"},
        {MOE, "megatron:tp=2,dp=2,ep=2,etp=2"},
        {MOE, "vllm:tp=2,ep=2,redundant=2"},
        {MOE, "sglang:tp=2,stage=post,moe_backend=triton"},
        {NEXT, "megatron:tp=2"}, /* norms less 1 */
        {NEXT, "vllm:tp=2"},
        {V3, "megatron:tp=2"},
        {V3, "sglang:tp=2"}, /* views, and tensors that the engine derives */
        {"tests/golden/models/blocks-qwen3-moe.json", "vllm:tp=2,quant=vllm"},
        {"tests/golden/models/blocks-deepseek-v3.json", "sglang:tp=2,quant=deepseek"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_recipe recipe;
        struct wf_model *model = job_of(rows[i].config, rows[i].spec, &recipe);
        for (uint32_t rank = 0; rank < wf_recipe_ranks_per_engine(&recipe); rank++) {
            struct wf_layout *layout = derive(model, &recipe, rank);
            check_round_trip(rows[i].spec, model, layout);
            wf_layout_free(layout);
        }
        wf_model_free(model);
    }
}

Test(manifest, seventy_thousand_tensors_are_less_than_two_megabytes)
{
    struct wf_recipe recipe;
    struct wf_error error = {0};
    struct wf_model *whole = golden_model(KIMI), *model = NULL;
    cr_assert_eq(wf_model_with_layers(whole, KIMI_LAYERS, &model, &error), WF_OK);
    cr_assert_eq(wf_recipe_parse("hf:", model, &recipe, &error), WF_OK);
    struct wf_layout *layout = derive(model, &recipe, 0);
    uint8_t *bytes = NULL;
    size_t len = 0;
    cr_assert_geq(layout->tensor_count, (uint32_t)TENSORS_MANY);
    cr_assert_eq(wf_manifest_write(model, layout, &bytes, &len, &error), WF_OK, "%s", error.text);
    cr_expect_lt(len, (size_t)BYTES_FEW, "%u tensors: %zu bytes", layout->tensor_count, len);
    free(bytes);
    check_round_trip("Kimi-K2", model, layout);
    wf_layout_free(layout);
    wf_model_free(model);
    wf_model_free(whole);
}

/* --- what is no manifest --------------------------------------------------------------------- */

/* A manifest in parts, as JSON. `embed`: rows 0 to 3 of the embedding, transposed, behind a fill
 * of two elements; `norm`: the final norm. */
enum part { MAGIC, VERSION, HASH, WORDS, PARAMS, TYPES, FORMS, TENSORS, ALIASES, PARTS };
static const char *const plain[PARTS] = {
    [MAGIC] = "\"weft-manifest\"",
    [VERSION] = "1",
    [HASH] = "null",
    [WORDS] = "[\"model\", \"norm\", \"weight\", \"embed_tokens\", \"embed\", \"head\"]",
    [PARAMS] = "[[0, 0, 1, 2], [1, 3, 2]]",
    [TYPES] = "[[\"bf16\", 0, [72], []], [\"bf16\", 0, [290], []], [\"f32\", 2, [3, 2], [1, 0]]]",
    [FORMS] = "[[2, [72, 1, 2]], [2, [2, 1, 2]], [2, [4, 72, 2], [72, 1, 8]]]",
    [TENSORS] = "[[[0, 1], 0, [0]], [[0, 4], 1, [1, null], [2, 0, 4]], [[0, 2], 2]]",
    [ALIASES] = "[[[0, 5], 1]]",
};

static void put_together(enum part part, const char *instead, const char *more,
                         msgpack_sbuffer *out)
{
    char text[TEXT_MAX];
    size_t used = 0;
    for (int i = 0; i < PARTS; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%c%s", i == 0 ? '[' : ',',
                                 i == (int)part && instead ? instead : plain[i]);
    }
    snprintf(text + used, sizeof text - used, "%s]", more);
    manifest_of_text(text, out);
}

Test(manifest, one_by_hand_is_what_it_says)
{
    struct wf_model *model = golden_model(LLAMA);
    struct wf_manifest read;
    struct wf_error error = {0};
    msgpack_sbuffer bytes;
    put_together(PARTS, NULL, "", &bytes);
    cr_assert_eq(wf_manifest_read((const uint8_t *)bytes.data, bytes.size, model, &read, &error),
                 WF_OK, "%s", error.text);
    const struct wf_layout *layout = read.layout;
    cr_assert_eq(layout->tensor_count, 3);
    cr_assert_eq(layout->piece_count, 3);
    cr_expect_eq(wf_layout_find(layout, "head", 4), 1);
    cr_expect_eq(layout->tensors[2].kind, WF_TENSOR_KEEP);
    cr_expect_eq(layout->tensors[2].strides[0], 1);
    cr_expect_eq(layout->tensors[2].strides[1], 3);
    cr_expect_eq(layout->bytes, 2 * 72 + 2 * 290 + 4 * 6);
    cr_expect_str_eq(model->params[layout->pieces[0].param].name, "model.norm.weight");
    cr_expect_eq(layout->pieces[1].kind, WF_PIECE_FILL);
    cr_expect_str_eq(model->params[layout->pieces[2].param].name, "model.embed_tokens.weight");
    cr_expect_eq(layout->pieces[2].tensor_offset, 4);
    struct wf_nest nest = wf_layout_nest(layout, 2);
    cr_expect_eq(nest.axis_count, 2);
    cr_expect_eq(nest.axes[0].param_step, 72);
    cr_expect_eq(nest.axes[1].tensor_step, 8);
    wf_manifest_fini(&read);
    msgpack_sbuffer_destroy(&bytes);
    wf_model_free(model);
}

/* The manifest's forms 1 and 3 are runs; 2, 4 and 5 are one, 4 spelled with an axis of one step. */
Test(manifest, forms_that_are_equal_are_one)
{
    struct wf_model *model = golden_model(LLAMA);
    char text[TEXT_MAX];
    struct wf_manifest read;
    struct wf_error error = {0};
    msgpack_sbuffer bytes;
    snprintf(text, sizeof text,
             "[%s, 1, null, %s, %s, [[\"bf16\", 0, [64], []]], [[2, [2, 2, 4]], [2, [2, 1, 2]], "
             "[2, [2, 1, 4]], [2, [2, 1, 2], [1, 1, 2]], [2, [1, 9, 2], [2, 1, 4]], "
             "[2, [2, 1, 4]]], [[[0, 1], 0, [5, 0, 0], [2, 0, 8, 1], [4, null, 16, 7, 9], "
             "[1, -1, 24], [3, -1, 32], [0, -1, 40], [2, null, 48]]], []]",
             plain[MAGIC], plain[WORDS], plain[PARAMS]);
    manifest_of_text(text, &bytes);
    cr_assert_eq(wf_manifest_read((const uint8_t *)bytes.data, bytes.size, model, &read, &error),
                 WF_OK, "%s", error.text);
    static const struct {
        uint32_t form;
        uint64_t count, param_first;
        uint16_t kind, value;
    } rows[] = {
        {2, 2, 0, WF_PIECE_DATA, 0}, {2, 2, 1, WF_PIECE_DATA, 0}, {2, 2, 0, WF_PIECE_FILL, 9},
        {0, 2, 0, WF_PIECE_DATA, 0}, {0, 2, 0, WF_PIECE_DATA, 0}, {1, 2, 0, WF_PIECE_DATA, 0},
        {2, 2, 0, WF_PIECE_FILL, 0},
    };
    const struct wf_layout *layout = read.layout;
    cr_expect_eq(layout->form_count, 3);
    cr_assert_eq(layout->piece_count, sizeof rows / sizeof rows[0]);
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        const struct wf_piece *piece = &layout->pieces[i];
        cr_expect(piece->form == rows[i].form && piece->count == rows[i].count &&
                      piece->param_first == rows[i].param_first && piece->kind == rows[i].kind &&
                      piece->value_rule == rows[i].value,
                  "piece %u", i);
    }
    wf_manifest_fini(&read);
    msgpack_sbuffer_destroy(&bytes);
    wf_model_free(model);
}

/* The reader knows a piece's form: 2^22 pieces do not each look through 2^12 forms. */
Test(manifest, a_form_that_is_known_is_not_looked_for)
{
    struct wf_build build;
    struct wf_layout *layout = NULL;
    struct wf_error error = {0};
    const struct wf_nest one = {.elem_bytes = 2, .axis_count = 1, .axes = {{2, 1, 4}}},
                         other = {.elem_bytes = 2, .axis_count = 1, .axes = {{2, 1, 6}}};
    const uint64_t shape[] = {64};
    wf_build_begin(&build);
    wf_build_tensor(&build, "a", WF_DTYPE_BF16, 1, shape, WF_TENSOR_WEIGHTS);
    cr_expect_eq(wf_build_form(&build, &one), 1);
    cr_expect_eq(wf_build_form(&build, &other), 2);
    const struct wf_piece like = {.form = 2};
    wf_build_formed(&build, &like, &one); /* believed, so not compared */
    cr_assert_eq(wf_build_end(&build, WF_OK, &layout, &error), WF_OK, "%s", error.text);
    cr_expect_eq(layout->pieces[0].form, 2);
    cr_expect_eq(layout->form_count, 3);
    wf_layout_free(layout);
}

static const struct {
    const char *name;
    enum part part;
    const char *instead, *more, *fragment;
    enum wf_status status;
} refusals[] = {
    {"another magic", MAGIC, "\"weft\"", "", "\"weft-manifest\"", WF_INVALID},
    {"no magic", MAGIC, "7", "",
     "is no manifest: part 0 (byte 1): expected a text of less than 256 bytes", WF_INVALID},
    {"a later version", VERSION, "2", "", "version 2 of manifests; this build reads version 1",
     WF_UNSUPPORTED},
    {"no hash", HASH, "[]", "", "16 bytes, or nil", WF_INVALID},
    {"a part more", PARTS, NULL, ", 1", "a list of 9 entries", WF_INVALID},
    {"words that are none", WORDS, "{}", "", "words 0 (byte 17): expected a list", WF_INVALID},
    {"a word with a dot", WORDS, "[\"a.b\"]", "", "a word without dots and NULs", WF_INVALID},
    {"a word with a NUL", WORDS, "[\"a\\u0000b\"]", "", "a word without dots and NULs", WF_INVALID},
    {"an unknown parameter", PARAMS, "[[0, 0, 2], [1, 3, 2]]", "",
     "names the parameter model.weight, which the model does not have", WF_INVALID},
    {"a word that is not there", PARAMS, "[[0, 0, 9]]", "", "a whole number up to 5", WF_INVALID},
    {"more words than before", PARAMS, "[[1, 0]]", "", "a whole number up to 0", WF_INVALID},
    {"a name of nothing", PARAMS, "[[0]]", "", "a name of 1 to 128 words", WF_INVALID},
    {"a dtype of nobody", TYPES, "[[\"f17\", 0, [72], []]]", "", "a dtype that this build knows",
     WF_INVALID},
    {"a kind of nobody", TYPES, "[[\"bf16\", 4, [72], []]]", "", "a whole number up to 3",
     WF_INVALID},
    {"a negative shape", TYPES, "[[\"bf16\", 0, [-1], []]]", "", "a whole number", WF_INVALID},
    {"a shape of too much", TYPES, "[[\"bf16\", 0, [4294967296, 4294967296], []]]", "",
     "less than 2^63 bytes", WF_INVALID},
    {"six dimensions", TYPES, "[[\"bf16\", 0, [1, 1, 1, 1, 1, 1], []]]", "",
     "a list of 0 to 5 entries", WF_INVALID},
    {"an order of fewer", TYPES, "[[\"bf16\", 0, [1, 2], [0]]]", "", "each dimension once",
     WF_INVALID},
    {"an order twice", TYPES, "[[\"bf16\", 0, [1, 2], [0, 0]]]", "", "each dimension once",
     WF_INVALID},
    {"elements of nothing", FORMS, "[[0]]", "", "an element of 1 to 8 bytes", WF_INVALID},
    {"nine axes", FORMS,
     "[[2, [2, 1, 2], [2, 1, 2], [2, 1, 2], [2, 1, 2], [2, 1, 2], [2, 1, 2], [2, 1, 2], [2, 1, 2], "
     "[2, 1, 2]]]",
     "", "a list of 1 to 9 entries", WF_INVALID},
    {"half an element", FORMS, "[[2, [72, 1, 3]]]", "", "a step of whole elements", WF_INVALID},
    {"an axis of two", FORMS, "[[2, [72, 1]]]", "", "a list of 3 entries", WF_INVALID},
    {"a form of nobody", TENSORS, "[[[0, 1], 0, [3]]]", "", "a whole number up to 2", WF_INVALID},
    {"a type of nobody", TENSORS, "[[[0, 1], 3]]", "", "a whole number up to 2", WF_INVALID},
    {"a parameter of nobody", TENSORS, "[[[0, 1], 0, [0, 2]]]", "", "a parameter of the list",
     WF_INVALID},
    {"a parameter before the first", TENSORS, "[[[0, 1], 0, [0, -1]]]", "",
     "a parameter of the list", WF_INVALID},
    {"a rule of nobody", TENSORS, "[[[0, 1], 0, [0, 0, 0, 0, 2]]]", "", "a rule of values",
     WF_INVALID},
    {"a piece of six", TENSORS, "[[[0, 1], 0, [0, 0, 0, 0, 0, 0]]]", "", "a list of 1 to 5 entries",
     WF_INVALID},
    {"a fill of no byte", TENSORS, "[[[0, 1], 0, [0, null, 0, 0, 256]]]", "",
     "a whole number up to 255", WF_INVALID},
    {"beyond the tensor", TENSORS, "[[[0, 1], 0, [0, 0, 2]]]", "",
     "norm: model.norm.weight: a piece that begins at byte 2 reaches outside", WF_INVALID},
    {"beyond the parameter", TENSORS, "[[[0, 1], 0, [0, 0, 0, 1]]]", "",
     "norm: model.norm.weight: a piece that begins at element 1 reaches past", WF_INVALID},
    {"between two elements", TENSORS, "[[[0, 1], 0, [1, 0, 1]]]", "", "of its elements",
     WF_INVALID},
    {"two at one place", TENSORS, "[[[0, 1], 0, [1], [1, -1]]]", "",
     "norm: model.norm.weight: begins at byte 0 of the tensor, the piece before it at byte 0: they "
     "overlap",
     WF_INVALID},
    {"not in order", TENSORS, "[[[0, 1], 0, [1, 0, 4], [1, -1, 2]]]", "", "pieces by rising byte",
     WF_INVALID},
    {"elements of another size", FORMS, "[[4, [72, 1, 4]], [2], [2]]", "", "of its elements",
     WF_INVALID},
    {"a piece of what is kept", TENSORS, "[[[0, 1], 2, [0]]]", "", "derived, kept and view tensors",
     WF_INVALID},
    {"a tensor twice", TENSORS, "[[[0, 1], 0, [0]], [[0, 1], 0, [0]]]", "", "norm: two tensors",
     WF_INVALID},
    {"a second name of nobody", ALIASES, "[[[0, 5], 3]]", "", "a whole number up to 2", WF_INVALID},
    {"a second name that is taken", ALIASES, "[[[0, 1], 1]]", "", "norm: two tensors", WF_INVALID},
};

Test(manifest, everything_else_is_refused_by_name)
{
    struct wf_model *model = golden_model(LLAMA);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct wf_manifest read;
        struct wf_error error = {0};
        msgpack_sbuffer bytes;
        put_together(refusals[i].part, refusals[i].instead, refusals[i].more, &bytes);
        enum wf_status status =
            wf_manifest_read((const uint8_t *)bytes.data, bytes.size, model, &read, &error);
        cr_expect_eq(status, refusals[i].status, "%s: %s", refusals[i].name, error.text);
        cr_expect(strstr(error.text, refusals[i].fragment), "%s: %s", refusals[i].name, error.text);
        cr_expect_null(read.layout, "%s", refusals[i].name);
        wf_manifest_fini(&read);
        msgpack_sbuffer_destroy(&bytes);
    }
    wf_model_free(model);
}

Test(manifest, a_list_is_not_believed_before_its_entries_are_there)
{
    /* Nine parts, of which the words claim to be 2^20, or 2^32 - 1. */
    static const uint8_t claims[][5] = {{0xdd, 0, 0x10, 0, 0}, {0xdd, 0xff, 0xff, 0xff, 0xff}};
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        uint8_t bytes[32] = {0x99, 0xad};
        struct wf_manifest read;
        struct wf_error error = {0};
        memcpy(bytes + 2, WF_MANIFEST_MAGIC, 13);
        bytes[15] = 1;
        bytes[16] = 0xc0;
        memcpy(bytes + 17, claims[i], sizeof claims[i]);
        cr_expect_eq(wf_manifest_read(bytes, sizeof bytes, NULL, &read, &error), WF_INVALID);
        cr_expect(strstr(error.text, "words 0 (byte 17): expected a list of 0 to 1048576 entries"),
                  "%s", error.text);
        wf_manifest_fini(&read);
    }
    struct wf_manifest none;
    struct wf_error error = {0};
    const uint8_t *nothing = (const uint8_t *)"";
    cr_expect_eq(wf_manifest_read(nothing, 0, NULL, &none, &error), WF_INVALID);
    cr_expect_eq(wf_manifest_read(nothing, WF_MANIFEST_BYTES_MAX + 1ull, NULL, &none, &error),
                 WF_INVALID);
    cr_expect(strstr(error.text, "at most 67108864 are read"), "%s", error.text);
}

Test(manifest, one_of_another_model_is_refused)
{
    struct wf_recipe recipe;
    struct wf_error error = {0};
    struct wf_model *model = job_of(QWEN3, "vllm:tp=2", &recipe);
    struct wf_model *fewer = NULL;
    struct wf_layout *layout = derive(model, &recipe, 0);
    uint8_t *bytes = NULL;
    size_t len = 0;
    struct wf_manifest read;
    cr_assert_eq(wf_manifest_write(model, layout, &bytes, &len, &error), WF_OK);
    /* One layer more: the same names, at other numbers. */
    cr_assert_eq(wf_model_with_layers(model, model->layers + 1, &fewer, &error), WF_OK);
    cr_expect_eq(wf_manifest_read(bytes, len, fewer, &read, &error), WF_MISMATCH);
    cr_expect(strstr(error.text, "made for another model, or changed"), "%s", error.text);
    wf_manifest_fini(&read);
    wf_model_free(fewer);
    cr_assert_eq(wf_model_with_layers(model, 1, &fewer, &error), WF_OK);
    cr_expect_eq(wf_manifest_read(bytes, len, fewer, &read, &error), WF_INVALID);
    cr_expect(strstr(error.text, "names the parameter model.layers.1."), "%s", error.text);
    wf_manifest_fini(&read);
    wf_model_free(fewer);
    free(bytes);
    wf_layout_free(layout);
    wf_model_free(model);
}

/* Cut anywhere it is none; changed anywhere it is none, or says the same in other bytes. */
Test(manifest, every_byte_counts)
{
    struct wf_recipe recipe;
    struct wf_model *model = job_of(MOE, "megatron:tp=2,dp=2,ep=2,etp=2", &recipe);
    struct wf_layout *layout = derive(model, &recipe, 1);
    struct wf_error error = {0};
    uint8_t *bytes = NULL;
    size_t len = 0;
    cr_assert_eq(wf_manifest_write(model, layout, &bytes, &len, &error), WF_OK);
    for (size_t i = 0; i < len; i++) {
        struct wf_manifest read;
        uint8_t *cut = malloc(i + 1), kept = bytes[i];
        memcpy(cut, bytes, i);
        error.text[0] = '\0';
        cr_assert_neq(wf_manifest_read(cut, i, model, &read, &error), WF_OK, "cut at %zu", i);
        cr_assert(error.text[0], "cut at %zu", i);
        wf_manifest_fini(&read);
        free(cut);
        for (unsigned change = 1; change < 256; change = change * 3 + 1) {
            bytes[i] = (uint8_t)(kept ^ change);
            error.text[0] = '\0';
            enum wf_status status = wf_manifest_read(bytes, len, model, &read, &error);
            cr_assert(status == WF_OK ? wf_hash_equal(read.layout->hash, layout->hash)
                                      : error.text[0] != '\0',
                      "byte %zu ^ %u: %s", i, change, error.text);
            wf_manifest_fini(&read);
        }
        bytes[i] = kept;
    }
    free(bytes);
    wf_layout_free(layout);
    wf_model_free(model);
}

/* --- as a group's layouts -------------------------------------------------------------------- */

static void add_manifests(struct wf_model *job, const char *files, const char *spec)
{
    struct wf_recipe recipe;
    struct wf_error error = {0};
    cr_assert_eq(wf_recipe_parse(spec, job, &recipe, &error), WF_OK, "%s", error.text);
    for (uint32_t rank = 0; rank < wf_recipe_ranks_per_engine(&recipe); rank++) {
        cr_assert_eq(wf_model_add_manifest(job, files, rank, derive(job, &recipe, rank), &error),
                     WF_OK);
    }
}

Test(manifest, a_group_has_the_layouts_of_its_files)
{
    struct wf_recipe recipe, spelt;
    struct wf_error error = {0};
    struct wf_model *job = job_of(QWEN3, "vllm:tp=2,engines=2", &recipe);
    add_manifests(job, "a-%d", "vllm:tp=2");
    add_manifests(job, "b-%d", "megatron:tp=2,pp=2");
    cr_assert_eq(wf_recipe_parse("manifest:files=a-%d,ranks=2,engines=2", job, &spelt, &error),
                 WF_OK, "%s", error.text);
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct wf_layout *a = derive(job, &recipe, rank), *b = derive(job, &spelt, rank);
        cr_expect(wf_hash_equal(a->hash, b->hash), "rank %u", rank);
        cr_expect_eq(wf_layout_find(b, "lm_head.weight", 14),
                     wf_layout_find(a, "lm_head.weight", 14));
        cr_expect_eq(wf_recipe_coordinates(&spelt, rank).engine, rank / 2);
        wf_layout_free(a);
        wf_layout_free(b);
    }
    static const struct {
        const char *spec, *fragment;
    } rows[] = {
        {"manifest:files=c-%d,ranks=2", "no manifest was read for rank 0 of c-%d"},
        {"manifest:files=a-%d,ranks=3", "no manifest was read for rank 2 of a-%d"},
        {"manifest:files=b-%d,ranks=4,quant=vllm", "expected a quant that the job was made with"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_layout *none = NULL;
        enum wf_status status = wf_recipe_parse(rows[i].spec, job, &spelt, &error);
        status = status == WF_OK ? wf_layout_derive(job, &spelt, 0, &none, &error) : status;
        cr_expect_neq(status, WF_OK, "%s", rows[i].spec);
        cr_expect(strstr(error.text, rows[i].fragment), "%s: %s", rows[i].spec, error.text);
    }
    wf_model_free(job);
}

Test(manifest, real_tensors_that_differ_are_named_without_a_guess_at_recipes)
{
    struct wf_recipe recipe;
    struct wf_error error = {0};
    struct wf_model *job = job_of(QWEN3, "vllm:tp=2", &recipe);
    uint32_t order[64];
    add_manifests(job, "a-%d", "vllm:tp=2");
    cr_assert_eq(wf_recipe_parse("manifest:files=a-%d,ranks=2", job, &recipe, &error), WF_OK);
    struct wf_layout *layout = derive(job, &recipe, 0);
    struct wf_live_tensor live[64] = {0};
    cr_assert_leq(layout->tensor_count, 64);
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const struct wf_tensor *tensor = &layout->tensors[i];
        live[i] = (struct wf_live_tensor){
            .name = tensor->name, .dtype = tensor->dtype, .ndim = tensor->ndim};
        memcpy(live[i].shape, tensor->shape, sizeof live[i].shape);
        memcpy(live[i].strides, tensor->strides, sizeof live[i].strides);
    }
    cr_expect_eq(wf_layout_match_recipe(job, &recipe, 0, layout, live, layout->tensor_count, NULL,
                                        0, order, &error),
                 WF_OK, "%s", error.text);
    live[3].shape[0] *= 2;
    cr_expect_eq(wf_layout_match_recipe(job, &recipe, 0, layout, live, layout->tensor_count, NULL,
                                        0, order, &error),
                 WF_MISMATCH);
    cr_expect(strstr(error.text, live[3].name) && !strstr(error.text, "was started with"), "%s",
              error.text);
    wf_layout_free(layout);
    wf_model_free(job);
}
