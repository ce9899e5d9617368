/* gemma.h - what Gemma 2 and 3 share: four norms a layer, a tied head
 * [models/gemma3/modeling_gemma3.py, Gemma3DecoderLayer].
 *
 * post_attention_layernorm is a norm of what the attention gives, not the one before the MLP. */
#ifndef WEFT_MODELS_FAMILIES_GEMMA_H
#define WEFT_MODELS_FAMILIES_GEMMA_H

#include "models/families/rows.h"

/* Newer libraries leave the tied flag out of what they write when it is true, which is the default.
 */
#define WF_SIZES_GEMMA(vocab)                                                       \
    {"H", "hidden_size", NULL, NULL}, {"L", "num_hidden_layers", NULL, NULL},       \
        {"V", "vocab_size", vocab, NULL}, {"nq", "num_attention_heads", "8", NULL}, \
        {"nk", "num_key_value_heads", "null ? nq : 4", NULL},                       \
        {"d", "head_dim", "null && H != nq * 256 ? 0 : 256", NULL},                 \
        {"F", "intermediate_size", NULL, NULL}, WF_SIZE_TIED("!null"), WF_SIZES_FP8

#define WF_ROWS_GEMMA_MLP                                                               \
    WF_ROW("attn_out_norm", "post_attention_layernorm.weight", "H", NULL, NULL, NULL),  \
        WF_ROW("post_norm", "pre_feedforward_layernorm.weight", "H", NULL, NULL, NULL), \
        WF_ROWS_MLP_FP8(NULL, "1"),                                                     \
        WF_ROW("mlp_out_norm", "post_feedforward_layernorm.weight", "H", NULL, NULL, NULL)
#define WF_ROWS_GEMMA(M)                                                      \
    WF_ROW_EMBEDDING(M), WF_ROW_INPUT_NORM(NULL), WF_ROWS_QKV_FP8(NULL, "1"), \
        WF_ROWS_O_FP8(NULL, "1")

/* vLLM's Gemma 3 classes take no notice of stages. */
#define WF_VLLM_GEMMA3_ROWS \
    WF_VLLM_EMBEDDING_EVERYWHERE, WF_VLLM_NORM_EVERYWHERE, WF_VLLM_HEAD_EVERYWHERE
/* SGLang [models/gemma3_causal.py]: a plain embedding, whole on every rank and without padding. */
#define WF_SGLANG_GEMMA3_ROWS                                    \
    WF_SGLANG_QKV_WITH_KV_SCALES,                                \
    {                                                            \
        .name = "{name}", .parts = "embedding", .when = "embeds" \
    }
#define WF_SGLANG_GEMMA3_REQUIRES \
    WF_SGLANG_NO_DP_ATTENTION     \
    "|pp == 1: no layout of several stages is known|tied: SGLang's class loads no head of its own"

#define WF_REFUSED_GEMMA                                                                      \
    WF_REFUSED_ALWAYS                                                                         \
    "|" WF_REFUSED_EXPERTS "|" WF_REFUSED_MTP "|" WF_REFUSED_USE_BIAS "|" WF_REFUSED_QKV_BIAS \
    "|" WF_REFUSED_MLP_BIAS "|attention_bias: biases of the attention"

#endif
