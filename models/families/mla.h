/* mla.h - DeepSeek's tables, which several families share: latent attention, experts with a
 * correction, shared experts, an indexer, layers that predict further tokens.
 *
 * `M` is the text model's prefix, `HEAD` the head's name. */
#ifndef WEFT_MODELS_FAMILIES_MLA_H
#define WEFT_MODELS_FAMILIES_MLA_H

#include "models/families/rows.h"

/* The correction is there when noaux_tc chooses experts: everywhere but in V2, whose class has no
 * such key [vLLM: models/deepseek_v2.py, DeepseekV2MoE]. */
#define WF_SIZES_DEEPSEEK(qr_otherwise)                                                    \
    WF_SIZES_FP8, WF_SIZES_BASE, WF_SIZE_TIED("0"), {"F", "intermediate_size", "0", NULL}, \
        WF_SIZES_MLA(qr_otherwise), {"mla", NULL, "1", NULL},                              \
        {"v2", ".model_type", "0", "deepseek_v2"}, WF_SIZES_DEEPSEEK_MOE,                  \
        {"noaux", "topk_method", "!v2", "noaux_tc"}, {"ih", "index_n_heads", "0", NULL},   \
    {                                                                                      \
        "id", "index_head_dim", "0", NULL                                                  \
    }

#define WF_BOTH "layer mtp"
#define WF_ROWS_DEEPSEEK(M, HEAD)                                                                 \
    WF_ROW_EMBEDDING(M), WF_ROW_INPUT_NORM(WF_BOTH), WF_ROWS_MLA("self_attn.", WF_BOTH, "1"),     \
        WF_ROWS_LINEAR_IN("o", "self_attn.o_proj", "H", "nq*dv", WF_BOTH, "1", "nq"),             \
        WF_ROWS_LINEAR("indexer_q_b", "self_attn.indexer.wq_b", "ih*id", "qr", WF_BOTH, "ih > 0", \
                       NULL),                                                                     \
        WF_ROWS_LINEAR("indexer_k", "self_attn.indexer.wk", "id", "H", WF_BOTH, "ih > 0", NULL),  \
        WF_ROW("indexer_k_norm", "self_attn.indexer.k_norm.weight", "id", WF_BOTH, "ih > 0",      \
               NULL),                                                                             \
        WF_ROW("indexer_k_norm_bias", "self_attn.indexer.k_norm.bias", "id", WF_BOTH, "ih > 0",   \
               NULL),                                                                             \
        WF_ROW("indexer_weights", "self_attn.indexer.weights_proj.weight", "ih,H", WF_BOTH,       \
               "ih > 0", NULL),                                                                   \
        WF_ROW_POST_NORM(WF_BOTH), WF_ROWS_MLP_FP8(WF_BOTH, "!moe"), WF_ROW_ROUTER(WF_BOTH),      \
        {"router_correction",                                                                     \
         WF_LAYERS "mlp.gate.e_score_correction_bias",                                            \
         "E",                                                                                     \
         WF_BOTH,                                                                                 \
         "moe && noaux",                                                                          \
         NULL,                                                                                    \
         "f32"},                                                                                  \
        WF_ROWS_EXPERTS(WF_BOTH), WF_ROWS_SHARED("mlp.shared_experts", WF_BOTH),                  \
        WF_ROWS_FURTHER("shared_head.norm.weight"), WF_ROW_FINAL_NORM(M), WF_ROW_HEAD(HEAD)

#define WF_REFUSED_DEEPSEEK                                                                   \
    WF_REFUSED_ALWAYS "|" WF_REFUSED_USE_BIAS "|" WF_REFUSED_QKV_BIAS "|" WF_REFUSED_MLP_BIAS \
                      "|attention_bias: biases of the attention"
#define WF_REQUIRES_DEEPSEEK                                                              \
    WF_REQUIRES_FP8 "|E == 0 || I > 0: \"moe_intermediate_size\" is needed with experts|" \
                    "ih == 0 || (id > 0 && qr > 0): an indexer needs index_head_dim and " \
                    "q_lora_rank"

#endif
