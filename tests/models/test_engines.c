/* test_engines.c - engines against vectors that the frameworks' own functions gave. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "golden.h"
#include "models/engines/engine.h"
#include "models/engines/megatron_pipeline.h"
#include "models/layout.h"

/* --- pipelines ------------------------------------------------------------------------------- */

static void expect_stage(const char *title, const struct wf_chunk *chunks, uint32_t count,
                         struct json_object *expected)
{
    cr_assert_eq(count, json_object_array_length(expected), "%s: chunks", title);
    for (uint32_t v = 0; v < count; v++) {
        struct json_object *layers = json_object_array_get_idx(expected, v);
        size_t layer_count = json_object_array_length(layers);
        cr_expect_eq(chunks[v].layer_count, layer_count, "%s chunk %u", title, v);
        if (layer_count > 0) {
            cr_expect_eq(chunks[v].first_layer, golden_at(layers, 0), "%s chunk %u", title, v);
            cr_expect_eq(golden_at(layers, layer_count - 1), golden_at(layers, 0) + layer_count - 1,
                         "%s chunk %u", title, v);
        }
    }
}

Test(engines, megatron_pipelines)
{
    struct json_object *root = golden_json("tests/golden/vectors/megatron_pp.json");
    struct json_object *cases = golden_get(root, "cases");
    for (size_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *it = json_object_array_get_idx(cases, i);
        struct json_object *layout = golden_get(it, "layout");
        uint32_t vpp = golden_number(it, "vpp");
        struct wf_stage_split split = {
            .layers = golden_number(it, "layers"),
            .pp = golden_number(it, "pp"),
            .vpp = vpp ? vpp : 1,
            .first = golden_number(it, "first"),
            .last = golden_number(it, "last"),
            .account_embedding = json_object_get_boolean(golden_get(it, "account_embedding")),
            .account_loss = json_object_get_boolean(golden_get(it, "account_loss")),
            .layout = layout ? json_object_get_string(layout) : "",
        };
        uint32_t embeddings = 0, heads = 0;
        for (uint32_t pp = 0; pp < split.pp; pp++) {
            struct wf_chunk chunks[WF_CHUNKS_MAX];
            uint32_t count = 0;
            struct wf_error error = {0};
            char title[64];
            snprintf(title, sizeof title, "case %zu stage %u", i, pp);
            cr_assert_eq(wf_megatron_stage(&split, pp, chunks, &count, &error), WF_OK, "%s: %s",
                         title, error.text);
            expect_stage(title, chunks, count,
                         json_object_array_get_idx(golden_get(it, "stages"), pp));
            for (uint32_t v = 0; v < count; v++) {
                embeddings += chunks[v].embedding;
                heads += chunks[v].head;
            }
        }
        cr_expect(embeddings == 1 && heads == 1, "case %zu", i);
    }
    json_object_put(root);
}

/* Every even, uneven and counted split that is accepted gives each layer to exactly one chunk. */
Test(engines, accepted_megatron_splits_are_partitions)
{
    uint32_t accepted = 0;
    for (uint32_t bits = 0; bits < 4 * 4 * 4 * 4 * 4 * 12; bits++) {
        struct wf_stage_split split = {
            .pp = 1 + bits % 4,
            .vpp = 1 + bits / 4 % 4,
            .first = bits / 16 % 4,
            .last = bits / 64 % 4,
            .account_embedding = bits / 256 % 4 & 1,
            .account_loss = bits / 256 % 4 & 2,
            .layers = 1 + bits / 1024,
            .layout = "",
        };
        bool seen[16] = {false}, ok = true;
        uint32_t covered = 0;
        for (uint32_t pp = 0; pp < split.pp && ok; pp++) {
            struct wf_chunk chunks[WF_CHUNKS_MAX];
            uint32_t count = 0;
            struct wf_error error = {0};
            ok = wf_megatron_stage(&split, pp, chunks, &count, &error) == WF_OK;
            cr_assert(ok || error.text[0], "%u", bits);
            cr_assert(ok || pp == 0, "%u: stages disagree whether the split is good", bits);
            for (uint32_t v = 0; v < count && ok; v++) {
                for (uint32_t i = 0; i < chunks[v].layer_count; i++) {
                    uint32_t layer = chunks[v].first_layer + i;
                    cr_assert(layer < split.layers && !seen[layer], "%u", bits);
                    seen[layer] = true;
                    covered++;
                }
            }
        }
        cr_assert(!ok || covered == split.layers, "%u", bits);
        accepted += ok;
    }
    cr_expect_gt(accepted, 100);
}

/* --- q, k and v ------------------------------------------------------------------------------ */

static struct wf_model *qkv_model(uint32_t heads, uint32_t kv_heads, uint32_t head_dim)
{
    char config[512];
    snprintf(config, sizeof config,
             "{\"model_type\": \"llama\", \"hidden_size\": 1, \"num_hidden_layers\": 1, "
             "\"vocab_size\": 64, \"num_attention_heads\": %u, \"num_key_value_heads\": %u, "
             "\"head_dim\": %u, \"intermediate_size\": 8, \"torch_dtype\": \"float32\"}",
             heads, kv_heads, head_dim);
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(config, strlen(config), &model, &error), WF_OK, "%s", error.text);
    return model;
}

/* Writes the row of [q; k; v] at each row of a rank's fused tensor; hidden size is 1. */
static uint32_t expand_rows(const struct wf_model *model, const struct wf_layout *layout,
                            const char *name, uint32_t *rows)
{
    uint32_t tensor = wf_layout_find(layout, name, strlen(name)), written = 0;
    cr_assert_neq(tensor, UINT32_MAX);
    for (uint32_t i = 0; i < layout->piece_count; i++) {
        if (layout->pieces[i].tensor != tensor) {
            continue;
        }
        uint32_t role = model->params[layout->pieces[i].param].role;
        uint64_t q = model->query_heads * model->head_dim, kv = model->kv_heads * model->head_dim;
        uint64_t base = role == WF_ROLE_Q ? 0 : role == WF_ROLE_K ? q : q + kv;
        struct wf_nest nest = wf_layout_nest(layout, i);
        uint64_t count = wf_nest_elements(&nest);
        for (uint64_t n = 0; n < count; n++) {
            uint64_t element = nest.param_first, offset = nest.tensor_offset, rest = n;
            for (uint32_t a = nest.axis_count; a-- > 0;) {
                uint64_t digit = rest % nest.axes[a].count;
                rest /= nest.axes[a].count;
                element += digit * nest.axes[a].param_step;
                offset += digit * (uint64_t)nest.axes[a].tensor_step;
            }
            cr_assert_lt(offset / 4, 64);
            rows[offset / 4] = (uint32_t)(base + element);
            written++;
        }
    }
    cr_assert_eq(written, layout->tensors[tensor].shape[0]);
    return written;
}

static void expect_rows(const struct wf_model *model, const char *engine, const char *tensor,
                        const char *tp, struct json_object *ranks)
{
    char spec[64];
    struct wf_recipe recipe;
    struct wf_error error = {0};
    snprintf(spec, sizeof spec, "%s:tp=%s", engine, tp);
    cr_assert_eq(wf_recipe_parse(spec, model, &recipe, &error), WF_OK, "%s", error.text);
    for (uint32_t rank = 0; rank < json_object_array_length(ranks); rank++) {
        struct json_object *expected = json_object_array_get_idx(ranks, rank);
        struct wf_layout *layout = NULL;
        uint32_t rows[64];
        cr_assert_eq(wf_layout_derive(model, &recipe, rank, &layout, &error), WF_OK, "%s",
                     error.text);
        uint32_t count = expand_rows(model, layout, tensor, rows);
        cr_assert_eq(count, json_object_array_length(expected), "%s rank %u", spec, rank);
        for (uint32_t i = 0; i < count; i++) {
            cr_expect_eq(rows[i], golden_at(expected, i), "%s rank %u row %u", spec, rank, i);
        }
        wf_layout_free(layout);
    }
}

Test(engines, query_key_value_packing)
{
    struct json_object *root = golden_json("tests/golden/vectors/qkv_packing.json");
    struct json_object *cases = golden_get(root, "cases");
    unsigned compared = 0;
    for (size_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *it = json_object_array_get_idx(cases, i);
        if (json_object_get_boolean(golden_get(it, "gated"))) {
            continue; /* no family of this build has gates */
        }
        struct wf_model *model =
            qkv_model(golden_number(it, "nq"), golden_number(it, "nkv"), golden_number(it, "d"));
        json_object_object_foreach(golden_get(it, "mcore_tp"), tp, ranks)
        {
            expect_rows(model, "megatron", "decoder.layers.0.self_attention.linear_qkv.weight", tp,
                        ranks);
            compared++;
        }
        json_object_object_foreach(golden_get(it, "engine_tp"), engine_tp, engine_ranks)
        {
            expect_rows(model, "vllm", "model.layers.0.self_attn.qkv_proj.weight", engine_tp,
                        engine_ranks);
            compared++;
        }
        wf_model_free(model);
    }
    cr_expect_gt(compared, 15);
    json_object_put(root);
}
