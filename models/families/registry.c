/* registry.c - the families that this build knows.
 *
 * Roles, by which engines name rows:
 *   outside    embedding, final_norm, head (absent when tied)
 *   layer      input_norm; q k v (+_bias); qkv: a checkpoint's fused Q ++ K ++ V; q_norm k_norm; o
 *              o_bias; sinks; attn_out_norm: a norm behind the attention (Gemma); post_norm: the
 *              norm before the MLP; mlp_out_norm: a norm behind the MLP (Gemma)
 *   MLP        gate up down (+_bias); router router_bias; router_correction: what is added to the
 *              scores; expert_gate expert_up expert_down (+_bias); shared_gate shared_up
 *              shared_down, shared_router: the gate of the shared expert
 *   MLA        q_a q_a_norm q_b (or q), kv_a kv_a_norm kv_b; indexer_q_b indexer_k indexer_k_norm
 *              indexer_k_norm_bias indexer_weights
 *   delta net  gdn_qkvz gdn_ba (Qwen3-Next) or gdn_qkv gdn_z gdn_b gdn_a (Qwen3.5); gdn_conv
 *              gdn_a_log gdn_dt_bias gdn_norm gdn_out; lightning attention: g_proj g_norm
 *   mtp        the layer's, and mtp_embed_norm mtp_hidden_norm mtp_proj mtp_final_norm
 *              mtp_embedding mtp_head
 *   vision     vision_norm1 vision_norm2, vision_qkv or vision_q vision_k vision_v, vision_proj
 *              vision_fc1 vision_fc2 (+_bias); outside: vision_patch vision_post_norm (+_bias)
 *              vision_pos, vision_pool_*: a head that pools (SigLIP); merger_norm merger_fc1
 *              merger_fc2 (+_bias) or vision_projection, vision_projection_norm; deepstack:
 * deepstack_norm deepstack_fc1 deepstack_fc2 (+_bias) quantised  ROLE_scale: the scales of ROLE;
 * ROLE_rows: one for each of its rows; ROLE_scale2, ROLE_input_scale (nvfp4); ROLE_blocks (mxfp4)
 * Stacks: layer, mtp, vision, deepstack.
 */
#include "models/families/rows.h"

const struct wf_family *const wf_families[] = {
    &wf_family_bailing,    &wf_family_bailing_linear, &wf_family_deepseek,
    &wf_family_gemma2,     &wf_family_gemma3,         &wf_family_gemma3_text,
    &wf_family_glm4_moe,   &wf_family_glm4_moe_lite,  &wf_family_gpt_oss,
    &wf_family_kimi_k25,   &wf_family_llama,          &wf_family_mistral,
    &wf_family_mixtral,    &wf_family_qwen2,          &wf_family_qwen2_moe,
    &wf_family_qwen3,      &wf_family_qwen3_5,        &wf_family_qwen3_moe,
    &wf_family_qwen3_next, &wf_family_qwen3_vl,       NULL,
};
