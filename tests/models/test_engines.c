/* test_engines.c - engines against vectors that the frameworks' own functions gave. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "golden.h"
#include "models/engines/engine.h"
#include "models/engines/megatron_pipeline.h"

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
        bool further = layout && strchr(json_object_get_string(layout), 'm');
        uint32_t vpp = golden_number(it, "vpp");
        struct wf_stage_split split = {
            .layers = golden_number(it, "layers"),
            .mtp = further,
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

/* Further-token layers and the final norm, on stages that layouts and even splits give. */
Test(engines, megatron_further_tokens)
{
    static const struct {
        uint32_t layers, mtp, pp, vpp;
        const char *layout;
        /* "STAGE.CHUNK" of the further-token layers and of the final norm; or what is said. */
        const char *mtp_at, *norm_at, *refused;
    } rows[] = {
        {4, 1, 2, 1, "", "1.0", "1.0", NULL},
        {4, 2, 2, 2, "", "1.1", "1.1", NULL},
        {4, 0, 2, 2, "", "", "1.1", NULL},
        {4, 1, 2, 1, "Ett|ttmL", "1.0", "1.0", NULL},
        {4, 1, 4, 1, "Ett|tt|m|L", "2.0", "1.0", NULL},
        {4, 2, 4, 1, "Ett|tt|mm|L", "2.0", "1.0", NULL},
        {6, 1, 2, 2, "Ett|tt|tt|mL", "1.1", "0.1", NULL},
        {61, 1, 16, 2, "Ettt|(tt|)*29,m|L", "14.1", "13.1", NULL},
        {4, 2, 4, 1, "Ett|tt|m|mL", NULL, NULL, "together in one stage"},
        {4, 1, 4, 1, "Ett|m|tt|L", NULL, NULL, "behind all t"},
        {4, 1, 2, 2, "Ett|ttm||L", NULL, NULL, "last virtual stage"},
        {4, 2, 2, 1, "Ett|ttmL", NULL, NULL, "places 1 further-token layers (m), the model has 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_stage_split split = {.layers = rows[i].layers,
                                       .mtp = rows[i].mtp,
                                       .pp = rows[i].pp,
                                       .vpp = rows[i].vpp,
                                       .layout = rows[i].layout};
        char mtp_at[64] = "", norm_at[64] = "";
        for (uint32_t pp = 0; pp < split.pp; pp++) {
            struct wf_chunk chunks[WF_CHUNKS_MAX];
            uint32_t count = 0;
            struct wf_error error = {0};
            enum wf_status status = wf_megatron_stage(&split, pp, chunks, &count, &error);
            cr_assert_eq(status, rows[i].refused ? WF_INVALID : WF_OK, "row %zu: %s", i,
                         error.text);
            cr_assert(!rows[i].refused || strstr(error.text, rows[i].refused), "row %zu: %s", i,
                      error.text);
            for (uint32_t v = 0; v < count; v++) {
                char here[32];
                snprintf(here, sizeof here, "%u.%u", pp, v);
                strcat(mtp_at, chunks[v].mtp_count ? here : "");
                strcat(norm_at, chunks[v].final_norm ? here : "");
                cr_expect(chunks[v].mtp_count == 0 || chunks[v].mtp_count == split.mtp);
            }
        }
        cr_expect(rows[i].refused || strcmp(mtp_at, rows[i].mtp_at) == 0, "row %zu: m at %s", i,
                  mtp_at);
        cr_expect(rows[i].refused || strcmp(norm_at, rows[i].norm_at) == 0, "row %zu: norm at %s",
                  i, norm_at);
    }
}

/* What is wrong about tables alone, whatever the model. */
Test(engines, tables_are_sound)
{
    for (const struct wf_engine *const *engine = wf_engines; *engine; engine++) {
        struct wf_error error = {0};
        cr_expect_eq(
            wf_engine_rows_check(*engine, NULL, (*engine)->rows, (*engine)->row_count, &error),
            WF_OK, "%s: %s", (*engine)->name, error.text);
    }
}
