/* fuzz_recipe.c - throws text at the parser of SPECs: it must refuse with a sentence, or give a
 * recipe that survives its own text, and layouts that cover their tensors exactly. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "models/layout.h"

static const char *const configs[] = {
    "{\"model_type\": \"llama\", \"hidden_size\": 72, \"num_hidden_layers\": 4, \"vocab_size\": "
    "384, \"num_attention_heads\": 9, \"num_key_value_heads\": 3, \"intermediate_size\": 96, "
    "\"tie_word_embeddings\": true, \"attention_bias\": true, \"mlp_bias\": true}",
    "{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"num_hidden_layers\": 6, \"vocab_size\": "
    "500, \"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"head_dim\": 16, "
    "\"intermediate_size\": 96}",
    "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 32, \"num_hidden_layers\": 3, "
    "\"vocab_size\": 100, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
    "\"intermediate_size\": 48, \"n_routed_experts\": 6, \"moe_intermediate_size\": 16, "
    "\"n_shared_experts\": 1, \"first_k_dense_replace\": 1, \"q_lora_rank\": 12, "
    "\"kv_lora_rank\": 12, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4, "
    "\"v_head_dim\": 8, \"num_nextn_predict_layers\": 1, \"topk_method\": \"noaux_tc\", "
    "\"scoring_func\": \"sigmoid\"}",
    "{\"model_type\": \"qwen3_next\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "
    "\"vocab_size\": 64, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 8, \"intermediate_size\": 24, \"num_experts\": 4, "
    "\"moe_intermediate_size\": 8, \"shared_expert_intermediate_size\": 8, "
    "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 4, "
    "\"linear_value_head_dim\": 4, \"full_attention_interval\": 2}",
};

static void check_layout(const struct wf_model *model, const struct wf_recipe *recipe,
                         uint32_t rank)
{
    struct wf_layout *layout = NULL;
    struct wf_error error = {0};
    WF_ASSERT(wf_layout_derive(model, recipe, rank, &layout, &error) == WF_OK);
    uint32_t piece = 0;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        uint64_t bytes = 0;
        for (; piece < layout->piece_count && layout->pieces[piece].tensor == i; piece++) {
            struct wf_nest nest = wf_layout_nest(layout, piece);
            uint64_t elements = layout->pieces[piece].kind == WF_PIECE_DATA
                                    ? model->params[layout->pieces[piece].param].elements
                                    : UINT64_MAX;
            WF_ASSERT(wf_nest_check(&nest, elements, layout->tensors[i].bytes, &error) == WF_OK);
            bytes += wf_nest_elements(&nest) * nest.elem_bytes;
        }
        bool written = layout->tensors[i].kind == WF_TENSOR_WEIGHTS;
        WF_ASSERT(bytes == (written ? layout->tensors[i].bytes : 0));
    }
    WF_ASSERT(piece == layout->piece_count);
    wf_layout_free(layout);
}

static void check_recipe(const struct wf_model *model, const struct wf_recipe *recipe)
{
    char text[WF_SPEC_MAX], second[WF_SPEC_MAX];
    struct wf_recipe again;
    struct wf_error error = {0};
    uint32_t world = wf_recipe_world(recipe);
    WF_ASSERT(world > 0 && world <= WF_WORLD_MAX && recipe->vocab_multiple > 0);
    wf_recipe_format(recipe, text);
    WF_ASSERT(wf_recipe_parse(text, model, &again, &error) == WF_OK);
    wf_recipe_format(&again, second);
    WF_ASSERT(strcmp(text, second) == 0);
    check_layout(model, recipe, 0);
    check_layout(model, recipe, world / 2);
    check_layout(model, recipe, world - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    char *spec = malloc(len + 1);
    WF_ASSERT(spec);
    memcpy(spec, bytes, len);
    spec[len] = '\0';
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct wf_model *model = NULL;
        struct wf_recipe recipe;
        struct wf_error error = {0};
        WF_ASSERT(wf_model_parse(configs[i], strlen(configs[i]), NULL, &model, &error) == WF_OK);
        if (wf_recipe_parse(spec, model, &recipe, &error) == WF_OK) {
            check_recipe(model, &recipe);
        } else {
            WF_ASSERT(error.text[0] != '\0');
        }
        wf_model_free(model);
    }
    free(spec);
    return 0;
}

static const char *const examples[] = {
    "megatron:tp=3,pp=2,dp=2",
    "megatron:tp=4,pp=2,vpp=3,vocab_div=128,cp=2",
    "megatron:pp=4,account=embedding+loss",
    "megatron:pp=3,first=2,last=2",
    "megatron:pp=2,layout=E(tt|)*2t|tL,names=local",
    "megatron:tp=2,version=0.16.1,order=pp-dp-tp-cp,dtype=f32",
    "vllm:tp=2,engines=2,pp=2",
    "vllm:version=0.33.0,tp=8,dtype=f16,dp=3",
    "megatron:tp=2,dp=6,ep=3,etp=2,experts=sequential,loader=mbridge",
    "megatron:pp=4,layout=Et|tt|m|L,skip_mtp=0,dp=2,ep=2",
    "fsdp:dp=5,replicate=2,tp=2,order=dp-tp-replicate",
    "fsdp:dp=2,shard=1",
    "fsdp:dp=3,flat=1,align=8,version=5",
    "sglang:tp=4,ep=2,dp=2,dp_attention=1",
    "hf:",
};
static const char *const words[] = {
    "megatron:",   "vllm:",
    "hf:",         "sglang:",
    ",",           "=",
    ":",           "tp=",
    "pp=",         "vpp=",
    "dp=",         "cp=",
    "engines=",    "first=",
    "last=",       "layout=",
    "account=",    "order=",
    "vocab_div=",  "names=",
    "version=",    "dtype=",
    "ep=",         "etp=",
    "0",           "1",
    "2",           "3",
    "4",           "6",
    "8",           "9",
    "12",          "64",
    "256",         "65536",
    "4294967297",  "18446744073709551617",
    "-1",          "01",
    "E",           "t",
    "L",           "|",
    "(t|)*4",      "t*65535",
    "m",           "((((((((((",
    "))",          "*",
    "tp-cp-dp-pp", "embedding+loss",
    "fsdp:",       "shard=",
    "flat=",       "align=",
    "replicate=",  "experts=",
    "sequential",  "loader=",
    "mbridge",     "skip_mtp=",
    "local",       "bf16",
};

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    return fuzz_text(examples, sizeof examples / sizeof examples[0], index, out, cap);
}

const char *fuzz_word(uint32_t index)
{
    return index < sizeof words / sizeof words[0] ? words[index] : NULL;
}
