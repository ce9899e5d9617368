/* qwen2.c - Qwen2 and Qwen2.5 dense: biases on q, k and v, none on o. */
#include "models/families/family.h"

#define LAYER "model.layers.{layer}."

static const struct wf_family_row rows[] = {
    {WF_ROLE_EMBEDDING, WF_ROW_ALWAYS, "model.embed_tokens.weight", "V,H"},
    {WF_ROLE_INPUT_NORM, WF_ROW_ALWAYS, LAYER "input_layernorm.weight", "H"},
    {WF_ROLE_Q, WF_ROW_ALWAYS, LAYER "self_attn.q_proj.weight", "nq*d,H"},
    {WF_ROLE_K, WF_ROW_ALWAYS, LAYER "self_attn.k_proj.weight", "nk*d,H"},
    {WF_ROLE_V, WF_ROW_ALWAYS, LAYER "self_attn.v_proj.weight", "nk*d,H"},
    {WF_ROLE_Q_BIAS, WF_ROW_ALWAYS, LAYER "self_attn.q_proj.bias", "nq*d"},
    {WF_ROLE_K_BIAS, WF_ROW_ALWAYS, LAYER "self_attn.k_proj.bias", "nk*d"},
    {WF_ROLE_V_BIAS, WF_ROW_ALWAYS, LAYER "self_attn.v_proj.bias", "nk*d"},
    {WF_ROLE_O, WF_ROW_ALWAYS, LAYER "self_attn.o_proj.weight", "H,nq*d"},
    {WF_ROLE_POST_NORM, WF_ROW_ALWAYS, LAYER "post_attention_layernorm.weight", "H"},
    {WF_ROLE_GATE, WF_ROW_ALWAYS, LAYER "mlp.gate_proj.weight", "F,H"},
    {WF_ROLE_UP, WF_ROW_ALWAYS, LAYER "mlp.up_proj.weight", "F,H"},
    {WF_ROLE_DOWN, WF_ROW_ALWAYS, LAYER "mlp.down_proj.weight", "H,F"},
    {WF_ROLE_FINAL_NORM, WF_ROW_ALWAYS, "model.norm.weight", "H"},
    {WF_ROLE_HEAD, WF_ROW_UNTIED, "lm_head.weight", "V,H"},
};

/* Defaults of absent keys: transformers 5, models/qwen2/configuration_qwen2.py. */
const struct wf_family wf_family_qwen2 = {
    .name = "qwen2",
    .model_type = "qwen2",
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
    .attention_bias = WF_SWITCH_ALWAYS,
    .mlp_bias = WF_SWITCH_NEVER,
    .qk_norm = false,
    .tied_if_absent = false,
    .kv_heads_if_absent = 32,
    .head_dim_if_absent = 0,
};
