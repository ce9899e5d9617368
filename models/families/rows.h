/* rows.h - sizes and rows that many families share, so that each fact is written once.
 *
 * Sources of names: the checkpoints' own indices and transformers' modeling files (LAYOUTS: 3.0);
 * `M` is the text model's prefix in the checkpoint ("model."), `W` a stack list.
 */
#ifndef WEFT_MODELS_FAMILIES_ROWS_H
#define WEFT_MODELS_FAMILIES_ROWS_H

#include "models/engines/engine.h"
#include "models/families/family.h"

#define WF_LAYERS "{layers}"
#define WF_COUNT(table) (sizeof(table) / sizeof(table)[0])

/* Keys that every config has. */
#define WF_SIZES_BASE                                                         \
    {"H", "hidden_size", NULL, NULL}, {"L", "num_hidden_layers", NULL, NULL}, \
        {"V", "vocab_size", NULL, NULL},                                      \
    {                                                                         \
        "nq", "num_attention_heads", NULL, NULL                               \
    }

/* The whole model's statement goes before the text model's: newer libraries write a default into
 * the nested config (LAYOUTS 2.13). */
#define WF_SIZE_TIED(otherwise)                                               \
    {                                                                         \
        "tied", ".tie_word_embeddings|tie_word_embeddings", otherwise, "true" \
    }

#define WF_SIZE_FLAG(name, key, otherwise) \
    {                                      \
        name, key, otherwise, "true"       \
    }

#define WF_STACK_LAYER(M)                   \
    {                                       \
        "layer", M "layers.{i}.", "L", NULL \
    }

#define WF_REQUIRES_HEADS "nq % nk == 0: num_attention_heads is no multiple of num_key_value_heads"
/* Where null may mean the family's default or H / nq. */
#define WF_REQUIRES_HEAD_DIM                                                                \
    "d > 0: \"head_dim\" is null: readers of such configs disagree whether that means the " \
    "family's default or hidden_size / num_attention_heads; give the number"

/* Keys that add tensors or change them in ways that no family here says. */
#define WF_REFUSED_ALWAYS                                                        \
    "compression_config: packed or scaled weights|audio_config: an audio tower|" \
    "bias: biases under another flag than attention_bias or mlp_bias"
#define WF_REFUSED_QUANTISED "quantization_config: packed or scaled weights"
#define WF_REFUSED_NESTED \
    "text_config: a text model nested in a larger one|vision_config: a vision tower"
#define WF_REFUSED_EXPERTS \
    "num_experts: experts|num_local_experts: experts|n_routed_experts: experts"
#define WF_REFUSED_MTP "num_nextn_predict_layers: layers that predict further tokens"
#define WF_REFUSED_QK_NORM \
    "use_qk_norm: norms on q and k under a flag|qk_layernorm: norms on q and k under a flag"
#define WF_REFUSED_MLP_BIAS "mlp_bias: biases of the MLP"
#define WF_REFUSED_USE_BIAS                                                \
    "use_bias: biases under another flag than attention_bias or mlp_bias|" \
    "norm_head: a normalised head"
#define WF_REFUSED_QKV_BIAS "qkv_bias: biases under another flag than attention_bias"

#define WF_ROW_EMBEDDING(M)                                                 \
    {                                                                       \
        "embedding", M "embed_tokens.weight", "V,H", NULL, NULL, NULL, NULL \
    }
#define WF_ROW_FINAL_NORM(M)                                       \
    {                                                              \
        "final_norm", M "norm.weight", "H", NULL, NULL, NULL, NULL \
    }
#define WF_ROW_HEAD(name)                              \
    {                                                  \
        "head", name, "V,H", NULL, "!tied", NULL, NULL \
    }

/* A row of a stack: role, name below the layer, shape, stacks, when, unit, dtype. */
#define WF_ROW(role, name, shape, stacks, when, unit)         \
    {                                                         \
        role, WF_LAYERS name, shape, stacks, when, unit, NULL \
    }

#define WF_ROWS_QKV(W, when)                                             \
    WF_ROW("q", "self_attn.q_proj.weight", "nq*d,H", W, when, "nq"),     \
        WF_ROW("k", "self_attn.k_proj.weight", "nk*d,H", W, when, "nk"), \
        WF_ROW("v", "self_attn.v_proj.weight", "nk*d,H", W, when, "nk")
#define WF_ROWS_QKV_BIAS(W, when)                                         \
    WF_ROW("q_bias", "self_attn.q_proj.bias", "nq*d", W, when, "nq"),     \
        WF_ROW("k_bias", "self_attn.k_proj.bias", "nk*d", W, when, "nk"), \
        WF_ROW("v_bias", "self_attn.v_proj.bias", "nk*d", W, when, "nk")
#define WF_ROWS_QK_NORM(W, when)                                     \
    WF_ROW("q_norm", "self_attn.q_norm.weight", "d", W, when, NULL), \
        WF_ROW("k_norm", "self_attn.k_norm.weight", "d", W, when, NULL)
#define WF_ROWS_MLP(W, when)                                      \
    WF_ROW("gate", "mlp.gate_proj.weight", "F,H", W, when, NULL), \
        WF_ROW("up", "mlp.up_proj.weight", "F,H", W, when, NULL), \
        WF_ROW("down", "mlp.down_proj.weight", "H,F", W, when, NULL)
#define WF_ROW_INPUT_NORM(W) WF_ROW("input_norm", "input_layernorm.weight", "H", W, NULL, NULL)
#define WF_ROW_POST_NORM(W) \
    WF_ROW("post_norm", "post_attention_layernorm.weight", "H", W, NULL, NULL)
#define WF_ROW_O(W, when) WF_ROW("o", "self_attn.o_proj.weight", "H,nq*d", W, when, "nq")

/* Routed experts, one parameter each. */
#define WF_ROWS_EXPERTS(W, when)                                                          \
    WF_ROW("expert_gate", "mlp.experts.{expert}.gate_proj.weight", "I,H", W, when, NULL), \
        WF_ROW("expert_up", "mlp.experts.{expert}.up_proj.weight", "I,H", W, when, NULL), \
        WF_ROW("expert_down", "mlp.experts.{expert}.down_proj.weight", "H,I", W, when, NULL)

extern const struct wf_family wf_family_llama, wf_family_mistral, wf_family_qwen2, wf_family_qwen3;

#endif
