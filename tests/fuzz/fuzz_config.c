/* fuzz_config.c - throws text at the reader of configs: it must refuse with a sentence, or give an
 * inventory whose names, shapes and hash hold together. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "models/config.h"

static void check_model(const struct wf_model *model, const char *text, size_t len)
{
    WF_ASSERT(model->param_count > 0 && model->layers > 0);
    uint64_t total = 0;
    for (uint32_t i = 0; i < model->param_count; i++) {
        const struct wf_param *param = &model->params[i];
        uint64_t elements = 1;
        for (uint32_t axis = 0; axis < param->ndim; axis++) {
            WF_ASSERT(param->shape[axis] > 0);
            elements *= param->shape[axis];
        }
        total += param->elements;
        WF_ASSERT(elements == param->elements && total < (uint64_t)1 << 57);
        WF_ASSERT(wf_model_find(model, param->name, strlen(param->name)) == i);
        WF_ASSERT(wf_model_param(model, param->stack, param->index, param->row,
                                 param->expert == WF_NONE ? 0 : param->expert) == i);
    }
    struct wf_model *again = NULL;
    WF_ASSERT(wf_model_parse(text, len, NULL, &again, NULL) == WF_OK);
    WF_ASSERT(wf_hash_equal(again->hash, model->hash));
    wf_model_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct wf_model *model = NULL;
    struct wf_error error = {0};
    /* An exact copy, so that a sanitizer sees a read behind the end. */
    char *text = malloc(len ? len : 1);
    WF_ASSERT(text);
    memcpy(text, bytes, len);
    if (wf_model_parse(text, len, NULL, &model, &error) == WF_OK) {
        check_model(model, text, len);
    } else {
        WF_ASSERT(error.text[0] != '\0' && model == NULL);
    }
    wf_model_free(model);
    free(text);
    return 0;
}

static const char *const examples[] = {
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_size\": "
    "101, \"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"intermediate_size\": 96}",
    "{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"num_hidden_layers\": 3, \"vocab_size\": "
    "101, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"head_dim\": 16, "
    "\"intermediate_size\": 7, \"tie_word_embeddings\": true, \"torch_dtype\": \"float16\", "
    "\"rope_scaling\": {\"factor\": [1.5, {\"a\": null}]}}",
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"attention_bias\": "
    "null, \"mlp_bias\": false, \"hidden_size\": 8, \"num_hidden_layers\": 1, \"vocab_size\": 1, "
    "\"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"intermediate_size\": 1}",
    "{\"model_type\": \"qwen3_next\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_s"
    "ize\": 101, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \""
    "intermediate_size\": 96, \"num_experts\": 4, \"moe_intermediate_size\": 8, \"linear_nu"
    "m_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 8, \"linear_"
    "value_head_dim\": 12, \"shared_expert_intermediate_size\": 40, \"full_attention_inte"
    "rval\": 2, \"num_nextn_predict_layers\": 1}",
    "{\"model_type\": \"deepseek_v32\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab"
    "_size\": 101, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"intermediate_s"
    "ize\": 96, \"n_routed_experts\": 4, \"moe_intermediate_size\": 32, \"n_shared_experts\""
    ": 2, \"first_k_dense_replace\": 1, \"kv_lora_rank\": 20, \"qk_nope_head_dim\": 12, \"qk"
    "_rope_head_dim\": 8, \"v_head_dim\": 16, \"q_lora_rank\": 24, \"index_n_heads\": 2, \"in"
    "dex_head_dim\": 8, \"num_nextn_predict_layers\": 1, \"quantization_config\": {\"quant_"
    "method\": \"fp8\", \"weight_block_size\": [128, 128], \"modules_to_not_convert\": [\"lm_"
    "head\", \"model.layers.*.self_attn\", \"model.layers.0.mlp.gate\"]}}",
    "{\"model_type\": \"deepseek_v2\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_"
    "size\": 101, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"intermediate_si"
    "ze\": 96, \"n_routed_experts\": 4, \"moe_intermediate_size\": 32, \"n_shared_experts\":"
    " 2, \"first_k_dense_replace\": 1, \"kv_lora_rank\": 20, \"qk_nope_head_dim\": 12, \"qk_"
    "rope_head_dim\": 8, \"v_head_dim\": 16, \"q_lora_rank\": null, \"scoring_func\": \"softm"
    "ax\"}",
    "{\"model_type\": \"qwen3_5_moe\", \"text_config\": {\"hidden_size\": 64, \"num_hidden_lay"
    "ers\": 2, \"vocab_size\": 101, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 16, \"intermediate_size\": 96, \"num_experts\": 4, \"moe_intermediate_siz"
    "e\": 8, \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_"
    "dim\": 8, \"linear_value_head_dim\": 12, \"layer_types\": [\"linear_attention\", \"full_"
    "attention\"], \"mtp_num_hidden_layers\": 1}, \"vision_config\": {\"depth\": 2, \"hidden_"
    "size\": 16, \"num_heads\": 4, \"intermediate_size\": 24, \"patch_size\": 4, \"temporal_p"
    "atch_size\": 2, \"spatial_merge_size\": 2, \"out_hidden_size\": 64, \"num_position_emb"
    "eddings\": 16, \"deepstack_visual_indexes\": [0]}, \"tie_word_embeddings\": false}",
    "{\"model_type\": \"qwen3_vl\", \"text_config\": {\"hidden_size\": 64, \"num_hidden_layers"
    "\": 2, \"vocab_size\": 101, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"he"
    "ad_dim\": 16, \"intermediate_size\": 96}, \"vision_config\": {\"depth\": 2, \"hidden_siz"
    "e\": 16, \"num_heads\": 4, \"intermediate_size\": 24, \"patch_size\": 4, \"temporal_patc"
    "h_size\": 2, \"spatial_merge_size\": 2, \"out_hidden_size\": 64, \"num_position_embedd"
    "ings\": 16, \"deepstack_visual_indexes\": [0]}}",
    "{\"model_type\": \"gpt_oss\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_size"
    "\": 101, \"num_attention_heads\": 4, \"num_local_experts\": 2, \"intermediate_size\": 6"
    "4, \"head_dim\": 16, \"num_key_value_heads\": 2, \"quantization_config\": {\"quant_meth"
    "od\": \"mxfp4\"}}",
    "{\"model_type\": \"bailing_hybrid\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"voc"
    "ab_size\": 101, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 1"
    "6, \"intermediate_size\": 96, \"num_experts\": 4, \"moe_intermediate_size\": 8, \"num_s"
    "hared_experts\": 1, \"first_k_dense_replace\": 1, \"layer_group_size\": 2, \"kv_lora_r"
    "ank\": 20, \"q_lora_rank\": 24, \"qk_nope_head_dim\": 12, \"qk_rope_head_dim\": 8, \"v_h"
    "ead_dim\": 16}",
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_si"
    "ze\": 101, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"i"
    "ntermediate_size\": 96, \"num_experts\": 4, \"moe_intermediate_size\": 8, \"decoder_sp"
    "arse_step\": 1, \"mlp_only_layers\": [0], \"quantization_config\": {\"quant_method\": \""
    "fp8\", \"weight_block_size\": [128, 128], \"modules_to_not_convert\": [\"lm_head\", \"mo"
    "del.layers.*.self_attn\", \"model.layers.0.mlp.gate\"]}}",
    "{\"model_type\": \"glm4_moe\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"vocab_siz"
    "e\": 101, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"in"
    "termediate_size\": 96, \"n_routed_experts\": 4, \"moe_intermediate_size\": 8, \"n_shar"
    "ed_experts\": 1, \"first_k_dense_replace\": 1, \"attention_bias\": true, \"use_qk_norm"
    "\": true, \"num_nextn_predict_layers\": 1}",
    "{\"model_type\": \"gemma3\", \"text_config\": {\"hidden_size\": 64, \"num_hidden_layers\":"
    " 1, \"intermediate_size\": 8}}",
};
static const char *const words[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "false",
    "NaN",
    "-Infinity",
    "0",
    "1",
    "-1",
    "4096",
    "4097",
    "2147483648",
    "1e308",
    "1.0",
    "18446744073709551616",
    "\\u0000",
    "\\ud800",
    "\"",
    "\xef\xbb\xbf",
    "\xc3\xa4",
    "\xff",
    "head_dim",
    "num_hidden_layers",
    "\"quantization_config\": {}, ",
    "\"attention_bias\": true, ",
    "\"hidden_size\": 64, ",
    "[[[[[[[[[[[[[[[[",
    "mistral",
    "deepseek_v3",
    "kimi_k2",
    "mixtral",
    "8192",
    "1048576",
    "[0, 1, 1]",
    "\"num_experts\": 8192, ",
    "\"num_hidden_layers\": 4096, ",
    "\"full_attention\", ",
    "re:.*",
    "*.*.*",
};

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    return fuzz_text(examples, sizeof examples / sizeof examples[0], index, out, cap);
}

const char *fuzz_word(uint32_t index)
{
    return index < sizeof words / sizeof words[0] ? words[index] : NULL;
}
