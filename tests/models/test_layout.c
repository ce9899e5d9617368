/* test_layout.c - layouts as such: coverage, classes, names, hashes, and matching real tensors. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"
#include "models/layout_private.h"

static struct wf_layout *derive(const struct wf_model *model, const char *spec, uint32_t rank,
                                struct wf_recipe *recipe)
{
    struct wf_layout *layout = NULL;
    struct wf_error error = {0};
    cr_assert_eq(wf_recipe_parse(spec, model, recipe, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_layout_derive(model, recipe, rank, &layout, &error), WF_OK, "%s", error.text);
    return layout;
}

static const struct {
    const char *model, *spec;
} worlds[] = {
    {"tests/golden/models/tiny-llama.json", "hf:"},
    {"tests/golden/models/tiny-llama.json", "megatron:tp=3,pp=2"},
    {"tests/golden/models/tiny-llama.json", "megatron:tp=1,pp=2,vpp=2,dp=2"},
    {"tests/golden/models/tiny-llama.json", "megatron:tp=3,names=local,cp=2"},
    {"tests/golden/models/tiny-llama.json", "vllm:tp=3,engines=2"},
    {"tests/golden/models/tiny-llama.json", "vllm:pp=3"},
    {"tests/golden/models/tiny-qwen3.json", "hf:"},
    {"tests/golden/models/tiny-qwen3.json", "megatron:tp=8,pp=2"},
    {"tests/golden/models/tiny-qwen3.json", "megatron:tp=4,pp=3,account=embedding+loss"},
    {"tests/golden/models/tiny-qwen3.json", "megatron:tp=2,pp=2,layout=Et|t|t|tL"},
    {"tests/golden/models/tiny-qwen3.json", "megatron:tp=2,pp=2,first=1,dtype=f32"},
    {"tests/golden/models/tiny-qwen3.json", "vllm:tp=8,dp=2"},
    {"tests/golden/models/tiny-qwen3.json", "vllm:tp=4,pp=2,dtype=f16"},
};

/* Marks the bytes of one piece; each must be unmarked and inside the tensor. */
static void mark(const struct wf_layout *layout, uint32_t index, uint8_t *bytes, const char *spec)
{
    struct wf_nest nest = wf_layout_nest(layout, index);
    const struct wf_tensor *tensor = &layout->tensors[layout->pieces[index].tensor];
    uint64_t count = wf_nest_elements(&nest);
    for (uint64_t n = 0; n < count; n++) {
        uint64_t offset = nest.tensor_offset, rest = n;
        for (uint32_t a = nest.axis_count; a-- > 0;) {
            offset += rest % nest.axes[a].count * (uint64_t)nest.axes[a].tensor_step;
            rest /= nest.axes[a].count;
        }
        cr_assert(offset + nest.elem_bytes <= tensor->bytes && !bytes[offset], "%s %s byte %llu",
                  spec, tensor->name, (unsigned long long)offset);
        memset(bytes + offset, 1, nest.elem_bytes);
    }
}

Test(layout, every_byte_of_every_tensor_is_covered_once)
{
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        struct wf_model *model = golden_model(worlds[i].model);
        struct wf_recipe recipe = {0};
        uint32_t world = 1;
        for (uint32_t rank = 0; rank < world; rank++) {
            struct wf_layout *layout = derive(model, worlds[i].spec, rank, &recipe);
            world = wf_recipe_world(&recipe);
            uint32_t piece = 0;
            for (uint32_t t = 0; t < layout->tensor_count; t++) {
                uint8_t *bytes = calloc(1, layout->tensors[t].bytes);
                for (; piece < layout->piece_count && layout->pieces[piece].tensor == t; piece++) {
                    mark(layout, piece, bytes, worlds[i].spec);
                }
                cr_assert_null(memchr(bytes, 0, layout->tensors[t].bytes), "%s rank %u %s",
                               worlds[i].spec, rank, layout->tensors[t].name);
                free(bytes);
            }
            cr_assert_eq(piece, layout->piece_count, "%s", worlds[i].spec);
            wf_layout_free(layout);
        }
        wf_model_free(model);
    }
}

Test(layout, nests_are_well_formed)
{
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        struct wf_model *model = golden_model(worlds[i].model);
        struct wf_recipe recipe;
        struct wf_layout *layout = derive(model, worlds[i].spec, 0, &recipe);
        for (uint32_t p = 0; p < layout->piece_count; p++) {
            const struct wf_piece *piece = &layout->pieces[p];
            struct wf_nest nest = wf_layout_nest(layout, p);
            struct wf_error error = {0};
            uint64_t elements =
                piece->kind == WF_PIECE_DATA ? model->params[piece->param].elements : UINT64_MAX;
            cr_expect_eq(
                wf_nest_check(&nest, elements, layout->tensors[piece->tensor].bytes, &error), WF_OK,
                "%s: %s", worlds[i].spec, error.text);
            cr_expect_eq(piece->count, wf_nest_elements(&nest));
        }
        wf_layout_free(layout);
        wf_model_free(model);
    }
}

/* All ranks of an engine together hold every element of every parameter. */
Test(layout, a_group_holds_the_whole_model)
{
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        struct wf_model *model = golden_model(worlds[i].model);
        struct wf_recipe recipe = {0};
        uint8_t **held = calloc(model->param_count, sizeof *held);
        for (uint32_t p = 0; p < model->param_count; p++) {
            held[p] = calloc(1, model->params[p].elements);
        }
        uint32_t ranks = 1;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            struct wf_layout *layout = derive(model, worlds[i].spec, rank, &recipe);
            ranks = wf_recipe_ranks_per_engine(&recipe);
            for (uint32_t p = 0; p < layout->piece_count; p++) {
                struct wf_nest nest = wf_layout_nest(layout, p);
                uint64_t count = wf_nest_elements(&nest);
                for (uint64_t n = 0; n < count && layout->pieces[p].kind == WF_PIECE_DATA; n++) {
                    uint64_t element = nest.param_first, rest = n;
                    for (uint32_t a = nest.axis_count; a-- > 0;) {
                        element += rest % nest.axes[a].count * nest.axes[a].param_step;
                        rest /= nest.axes[a].count;
                    }
                    held[layout->pieces[p].param][element] = 1;
                }
            }
            wf_layout_free(layout);
        }
        for (uint32_t p = 0; p < model->param_count; p++) {
            cr_expect_null(memchr(held[p], 0, model->params[p].elements), "%s %s", worlds[i].spec,
                           model->params[p].name);
            free(held[p]);
        }
        free(held);
        wf_model_free(model);
    }
}

Test(layout, equal_ranks_are_one_class)
{
    static const struct {
        const char *name, *spec;
        uint32_t rank, other;
        bool same;
    } rows[] = {
        {"data-parallel copies", "megatron:tp=2,pp=2,dp=2", 0, 2, true},
        {"context-parallel copies", "megatron:tp=2,cp=2", 1, 3, true},
        {"engines", "vllm:tp=2,engines=3", 1, 5, true},
        {"TP ranks", "megatron:tp=2", 0, 1, false},
        {"stages", "vllm:pp=2", 0, 1, false},
    };
    struct wf_model *model = golden_model("tests/golden/models/tiny-qwen3.json");
    struct wf_recipe recipe;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wf_layout *a = derive(model, rows[i].spec, rows[i].rank, &recipe);
        struct wf_layout *b = derive(model, rows[i].spec, rows[i].other, &recipe);
        cr_expect_eq(wf_hash_equal(a->hash, b->hash), rows[i].same, "%s", rows[i].name);
        wf_layout_free(a);
        wf_layout_free(b);
    }
    struct wf_layout *bf16 = derive(model, "vllm:tp=2", 0, &recipe);
    struct wf_layout *f32 = derive(model, "vllm:tp=2,dtype=f32", 0, &recipe);
    cr_expect(!wf_hash_equal(bf16->hash, f32->hash));
    wf_layout_free(bf16);
    wf_layout_free(f32);
    wf_model_free(model);
}

Test(layout, names_and_aliases_are_found)
{
    struct wf_model *model = golden_model("tests/golden/models/tiny-llama.json");
    struct wf_recipe recipe;
    struct wf_layout *layout = derive(model, "vllm:tp=3,pp=2", 5, &recipe);
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const char *name = layout->tensors[i].name;
        cr_expect_eq(wf_layout_find(layout, name, strlen(name)), i, "%s", name);
        cr_expect_eq(wf_layout_find(layout, name, strlen(name) - 1), UINT32_MAX, "%s", name);
    }
    cr_assert_eq(layout->alias_count, 1);
    cr_expect_eq(wf_layout_find(layout, "lm_head.weight", 14), layout->aliases[0].tensor);
    cr_expect_str_eq(layout->tensors[layout->aliases[0].tensor].name, "model.embed_tokens.weight");
    cr_expect_eq(wf_layout_find(layout, "", 0), UINT32_MAX);
    wf_layout_free(layout);
    layout = derive(model, "vllm:tp=3,pp=2", 0, &recipe);
    cr_expect_eq(layout->alias_count, 0);
    wf_layout_free(layout);
    wf_model_free(model);
}

Test(layout, a_rank_that_does_not_exist_is_refused)
{
    struct wf_model *model = golden_model("tests/golden/models/tiny-qwen3.json");
    struct wf_recipe recipe;
    struct wf_layout *layout = derive(model, "vllm:tp=2", 1, &recipe), *none = NULL;
    struct wf_error error = {0};
    cr_expect_eq(wf_layout_derive(model, &recipe, 2, &none, &error), WF_INVALID);
    wf_layout_free(layout);
    wf_model_free(model);
}

Test(layout, engines_refuse_what_they_do_not_run)
{
    static const struct {
        const char *config, *spec, *fragment;
    } rows[] = {
        {"\"model_type\": \"qwen2\", \"head_dim\": 16", "vllm:tp=2", "ignores head_dim"},
        {"\"model_type\": \"qwen3\", \"attention_bias\": true", "vllm:tp=2", "o_proj"},
        {"\"model_type\": \"qwen2\", \"head_dim\": 16", "megatron:tp=2", NULL},
        {"\"model_type\": \"llama\", \"attention_bias\": true, \"mlp_bias\": true", "vllm:tp=2",
         NULL},
        {"\"model_type\": \"llama\", \"attention_bias\": true, \"mlp_bias\": true",
         "megatron:tp=2,names=local", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{%s, \"hidden_size\": 64, \"num_hidden_layers\": 1, \"vocab_size\": 128, "
                 "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, "
                 "\"intermediate_size\": 32}",
                 rows[i].config);
        struct wf_model *model = NULL;
        struct wf_recipe recipe;
        struct wf_error error = {0};
        cr_assert_eq(wf_model_parse(text, strlen(text), NULL, &model, &error), WF_OK, "%s",
                     error.text);
        enum wf_status status = wf_recipe_parse(rows[i].spec, model, &recipe, &error);
        cr_expect_eq(status, rows[i].fragment ? WF_UNSUPPORTED : WF_OK, "%s: %s", rows[i].config,
                     error.text);
        cr_expect(!rows[i].fragment || strstr(error.text, rows[i].fragment), "%s", error.text);
        wf_model_free(model);
    }
}

/* --- matching -------------------------------------------------------------------------------- */

struct live {
    struct wf_live_tensor *tensors;
    size_t count;
};

static struct live live_copy(const struct wf_layout *layout)
{
    struct live live = {calloc(layout->tensor_count + 4, sizeof *live.tensors),
                        layout->tensor_count};
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const struct wf_tensor *tensor = &layout->tensors[layout->tensor_count - 1 - i];
        struct wf_live_tensor *it = &live.tensors[i];
        *it = (struct wf_live_tensor){
            .name = tensor->name, .dtype = tensor->dtype, .ndim = tensor->ndim};
        int64_t step = 1;
        for (uint32_t axis = tensor->ndim; axis-- > 0;) {
            it->shape[axis] = tensor->shape[axis];
            it->strides[axis] = step;
            step *= (int64_t)tensor->shape[axis];
        }
    }
    return live;
}

Test(layout, real_tensors_in_any_order_match)
{
    struct wf_model *model = golden_model("tests/golden/models/tiny-llama.json");
    struct wf_recipe recipe;
    struct wf_layout *layout = derive(model, "vllm:tp=3", 1, &recipe);
    struct live live = live_copy(layout);
    const char *const ignore[] = {"rotary.inv_freq"};
    uint32_t order[64];
    struct wf_error error = {0};
    /* The alias beside its tensor, and a name that is ignored. */
    live.tensors[live.count] = live.tensors[wf_layout_find(layout, "lm_head.weight", 14)];
    live.tensors[live.count] = live.tensors[live.count - 1];
    live.tensors[live.count].name = "lm_head.weight";
    live.count++;
    live.tensors[live.count++] = (struct wf_live_tensor){.name = "rotary.inv_freq", .ndim = 1};
    cr_assert_eq(wf_layout_match(layout, live.tensors, live.count, ignore, 1, order, &error), WF_OK,
                 "%s", error.text);
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        cr_expect_eq(order[i], layout->tensor_count - 1 - i);
    }
    free(live.tensors);
    wf_layout_free(layout);
    wf_model_free(model);
}

enum change { ADD_NAME, DROP, SHAPE0, SWAP, DTYPE, STRIDE, TWICE, RENAME, DROP_ALL };

static const struct {
    const char *name;
    enum change change;
    const char *tensor, *text, *fragment, *cause;
} mismatch_rows[] = {
    {"unknown", ADD_NAME, NULL, "model.layers.0.mystery.weight", "mystery", "ignore"},
    {"bias", ADD_NAME, NULL, "model.layers.0.self_attn.qkv_proj.bias", "qkv_proj.bias",
     "flags for biases"},
    {"wrapped", RENAME, "model.norm.weight", "module.module.model.norm.weight", "module.module",
     "without"},
    {"scale", ADD_NAME, NULL, "model.layers.0.mlp.down_proj.weight_scale_inv", "scale_inv",
     "quantised"},
    {"typing error", RENAME, "model.norm.weight", "model.norm.weigth", "nearest", "norm"},
    {"missing", DROP, "model.norm.weight", NULL, "model.norm.weight", "missing"},
    {"missing head", DROP, "lm_head.weight", NULL, "lm_head.weight", "ties"},
    {"nothing", DROP_ALL, NULL, NULL, "missing", "nothing was registered"},
    {"other vocabulary", SHAPE0, "model.embed_tokens.weight", NULL, "expected shape 256x64",
     "padded"},
    {"other tp", SHAPE0, "model.layers.1.mlp.gate_up_proj.weight", NULL, "found 192x64", "tp"},
    {"transposed", SWAP, "model.layers.1.mlp.down_proj.weight", NULL, "down_proj", "transposed"},
    {"other dtype", DTYPE, "model.norm.weight", NULL, "expected dtype bf16, found f32",
     "dtype=f32"},
    {"view", STRIDE, "model.layers.0.mlp.down_proj.weight", NULL, "stride", "view"},
    {"twice", TWICE, "model.norm.weight", NULL, "model.norm.weight", "twice"},
};

/* `it` is the tensor to change, or NULL. */
static void spoil(struct live *live, struct wf_live_tensor *it, enum change change,
                  const char *text)
{
    uint64_t shape0 = it ? it->shape[0] : 0;
    switch (change) {
    case ADD_NAME:
        live->tensors[live->count] = live->tensors[0];
        live->tensors[live->count++].name = text;
        break;
    case DROP:
        *it = live->tensors[--live->count];
        break;
    case SHAPE0:
        it->shape[0] *= 2;
        break;
    case SWAP:
        it->shape[0] = it->shape[1];
        it->shape[1] = shape0;
        break;
    case DTYPE:
        it->dtype = WF_DTYPE_F32;
        break;
    case STRIDE:
        it->strides[0] += 8;
        break;
    case TWICE:
        live->tensors[live->count++] = *it;
        break;
    case RENAME:
        it->name = text;
        break;
    case DROP_ALL:
        live->count = 0;
        break;
    }
}

Test(layout, mismatches_name_the_tensor_and_a_cause)
{
    struct wf_model *model = golden_model("tests/golden/models/tiny-qwen3.json");
    struct wf_recipe recipe;
    struct wf_layout *layout = derive(model, "vllm:tp=2", 0, &recipe);
    for (size_t i = 0; i < sizeof mismatch_rows / sizeof mismatch_rows[0]; i++) {
        struct live live = live_copy(layout);
        struct wf_live_tensor *it = NULL;
        for (size_t t = 0; mismatch_rows[i].tensor && t < live.count; t++) {
            it = strcmp(live.tensors[t].name, mismatch_rows[i].tensor) == 0 ? &live.tensors[t] : it;
        }
        cr_assert(it || !mismatch_rows[i].tensor, "%s", mismatch_rows[i].name);
        spoil(&live, it, mismatch_rows[i].change, mismatch_rows[i].text);
        uint32_t order[64];
        struct wf_error error = {0};
        cr_expect_eq(wf_layout_match(layout, live.tensors, live.count, NULL, 0, order, &error),
                     WF_MISMATCH, "%s", mismatch_rows[i].name);
        cr_expect(strstr(error.text, mismatch_rows[i].fragment), "%s: %s", mismatch_rows[i].name,
                  error.text);
        cr_expect(strstr(error.text, mismatch_rows[i].cause), "%s: %s", mismatch_rows[i].name,
                  error.text);
        free(live.tensors);
    }
    wf_layout_free(layout);
    wf_model_free(model);
}

/* Of a tensor called "a" and one more: a tensor, or an alias. */
Test(layout, a_name_is_given_once)
{
    static const struct {
        const char *name;
        bool alias, refused;
    } rows[] = {{"b", false, false}, {"a", false, true}, {"b", true, false}, {"a", true, true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint64_t shape[] = {4};
        struct wf_build build;
        struct wf_layout *layout = NULL;
        struct wf_error error = {0};
        wf_build_begin(&build);
        wf_build_tensor(&build, "a", WF_DTYPE_F32, 1, shape, WF_TENSOR_WEIGHTS);
        if (rows[i].alias) {
            wf_build_alias(&build, rows[i].name, 0);
        } else {
            wf_build_tensor(&build, rows[i].name, WF_DTYPE_F32, 1, shape, WF_TENSOR_WEIGHTS);
        }
        cr_expect_eq(wf_build_end(&build, WF_OK, &layout, &error),
                     rows[i].refused ? WF_INVALID : WF_OK, "row %zu", i);
        cr_expect(!rows[i].refused || strstr(error.text, "a: two tensors"), "row %zu: %s", i,
                  error.text);
        wf_layout_free(layout);
    }
}

Test(layout, packed_weights_are_refused)
{
    static const char *const specs[] = {"hf:", "vllm:tp=2", "sglang:tp=2", "megatron:tp=2"};
    struct wf_model *model = golden_model("tests/golden/configs/Qwen3.6-27B-NVFP4.json");
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct wf_recipe recipe;
        struct wf_layout *layout = NULL;
        struct wf_error error = {0};
        enum wf_status status = wf_recipe_parse(specs[i], model, &recipe, &error);
        status = status == WF_OK ? wf_layout_derive(model, &recipe, 0, &layout, &error) : status;
        cr_expect_eq(status, WF_UNSUPPORTED, "%s", specs[i]);
        cr_expect(strstr(error.text, "quantization_config"), "%s: %s", specs[i], error.text);
    }
    wf_model_free(model);
}
