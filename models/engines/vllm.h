/* vllm.h - what the files of the engine vllm share: its own keys in wf_recipe.own, its rows, and
 * rows and aliases that the exceptions of families repeat.
 *
 * Names in brackets are files under vllm/model_executor of release 0.33.0. Which class of vLLM does
 * what its others do not:
 *
 *   takes no notice of stages: embedding, final norm and head (all of them)  mixtral, qwen2_moe,
 *       qwen3_moe, qwen3_vl_moe, gpt_oss, gemma3; gemma2 (which has no head at all);
 *       qwen3_next: embedding, head; qwen3_5: embedding
 *   hands its router to the experts' runner (WF_VLLM_ROUTER_ALIASES)          qwen3_moe,
 * qwen3_vl_moe, qwen3_next, qwen3_5, deepseek_v2 and what builds on it keeps shared experts whole
 * under sequence parallelism (WF_VLLM_SHARED)    deepseek_v2, qwen3_next, qwen3_5 wraps latent
 * attention twice (WF_VLLM_MLA_ALIASES)                        deepseek_v2, glm4_moe_lite,
 * bailing_moe_linear, but not deepseek_v32
 */
#ifndef WEFT_MODELS_ENGINES_VLLM_H
#define WEFT_MODELS_ENGINES_VLLM_H

#include "models/engines/engine.h"
#include "models/engines/serving.h"

/* Counted here, because the engine's table needs constants. */
enum { WF_VLLM_ROWS = 89, WF_VLLM_ALIASES = 10 };
extern const struct wf_engine_row wf_vllm_rows[WF_VLLM_ROWS];
extern const struct wf_engine_alias wf_vllm_aliases[WF_VLLM_ALIASES];

/* Where its own keys stand in wf_recipe.own. */
enum wf_vllm_own {
    WF_VLLM_REDUNDANT,
    WF_VLLM_EPLB,
    WF_VLLM_STRATEGY,
    WF_VLLM_STAGE,
    WF_VLLM_MOE_BACKEND,
    WF_VLLM_DEEP_GEMM,
    WF_VLLM_VISION,
    WF_VLLM_CAPABILITY,
};
enum { WF_VLLM_LINEAR, WF_VLLM_ROUND_ROBIN };
enum { WF_VLLM_LOAD, WF_VLLM_POST };
enum { WF_VLLM_AUTO, WF_VLLM_TRITON, WF_VLLM_FLASHINFER_CUTLASS, WF_VLLM_FLASHINFER_TRTLLM };
/* The last ones leave before the hook what triton leaves; what they leave after it is not known. */
#define WF_VLLM_MOE_BACKENDS \
    "auto|triton|flashinfer_cutlass|flashinfer_trtllm|deep_gemm|cutlass|marlin"
enum { WF_VLLM_GEMM_UNSAID, WF_VLLM_GEMM_OFF };

#define WF_VLLM_SCALE WF_SERVING_SCALE

/* --- for the exceptions of families ---------------------------------------------------------- */

/* Classes that build these on every stage, and load them there. */
#define WF_VLLM_EMBEDDING_EVERYWHERE                                                    \
    {                                                                                   \
        .name = "{name}", .parts = "embedding", .pad = "vocab_multiple", .cuts = "0/tp" \
    }
#define WF_VLLM_NORM_EVERYWHERE                 \
    {                                           \
        .name = "{name}", .parts = "final_norm" \
    }
#define WF_VLLM_HEAD_EVERYWHERE                                                      \
    {                                                                                \
        .name = "{name}", .parts = "head", .when = "!tied", .pad = "vocab_multiple", \
        .cuts = "0/tp"                                                               \
    }
/* ... and tie the head there; the engine's own alias holds on the last stage. */
#define WF_VLLM_TIED_EVERYWHERE                              \
    {                                                        \
        "embedding", "{top}lm_head.weight", "tied && !heads" \
    }

/* Whole under sequence parallelism: group "shared" is one rank then. */
#define WF_VLLM_SHARED WF_SERVING_SHARED(NULL)

/* Qwen's blocks of experts want at least as many experts as tensor parallel ranks. */
#define WF_VLLM_ENOUGH_EXPERTS \
    "E == 0 || tp <= E: vLLM refuses more tensor parallel ranks than experts"

/* Linears that are made with the config's quantisation [models/qwen3_vl.py: Qwen3_VisionTransformer
 * and Qwen3_VisionPatchMerger; models/qwen3_moe.py: gate]; see .quantised in families/family.h. */
#define WF_VLLM_QUANTISED_ROUTER "router"
#define WF_VLLM_QUANTISED_TOWER                                           \
    "vision_qkv vision_proj vision_fc1 vision_fc2 merger_fc1 merger_fc2 " \
    "deepstack_fc1 deepstack_fc2"

/* Classes whose head is a tensor of its own whatever the config says; a tied checkpoint leaves it
 * as it was allocated. */
#define WF_VLLM_NEVER_TIED "!tied: vLLM's class does not tie its head"

/* Where the config asks for biases of the attention the checkpoint has one on o_proj too, which the
 * loader drops without a word. */
#define WF_VLLM_NO_O_BIAS "!attention_bias: vLLM's Qwen3 classes have no bias on o_proj"

/* The router in the experts' runner; what it corrects with, where there is such a thing. */
#define WF_VLLM_ROUTER_ALIAS                       \
    {                                              \
        "router", "{dir}experts.gate.weight", NULL \
    }
#define WF_VLLM_CORRECTION_ALIAS                                               \
    {                                                                          \
        "router_correction", "{dir}experts.gate.e_score_correction_bias", NULL \
    }

/* [layers/mla.py: MultiHeadLatentAttentionWrapper] and, for kv_b, the attention inside it. */
#define WF_VLLM_MLA_ALIAS(role, leaf, when) \
    {                                       \
        role, "{dir}mla_attn." leaf, when   \
    }
#define WF_VLLM_MLA_ALIASES(when)                                                   \
    WF_VLLM_MLA_ALIAS("q_a", "fused_qkv_a_proj.weight", when),                      \
        WF_VLLM_MLA_ALIAS("q_a_scale", "fused_qkv_a_proj." WF_VLLM_SCALE, when),    \
        WF_VLLM_MLA_ALIAS("q_a_norm", "q_a_layernorm.weight", when),                \
        WF_VLLM_MLA_ALIAS("q_b", "q_b_proj.weight", when),                          \
        WF_VLLM_MLA_ALIAS("q_b_scale", "q_b_proj." WF_VLLM_SCALE, when),            \
        WF_VLLM_MLA_ALIAS("q", "q_proj.weight", when),                              \
        WF_VLLM_MLA_ALIAS("q_scale", "q_proj." WF_VLLM_SCALE, when),                \
        WF_VLLM_MLA_ALIAS("kv_a", "kv_a_proj_with_mqa.weight", when),               \
        WF_VLLM_MLA_ALIAS("kv_a_scale", "kv_a_proj_with_mqa." WF_VLLM_SCALE, when), \
        WF_VLLM_MLA_ALIAS("kv_a_norm", "kv_a_layernorm.weight", when),              \
        WF_VLLM_MLA_ALIAS("kv_b", "kv_b_proj.weight", when),                        \
        WF_VLLM_MLA_ALIAS("kv_b_scale", "kv_b_proj." WF_VLLM_SCALE, when),          \
        WF_VLLM_MLA_ALIAS("kv_b", "mla_attn.kv_b_proj.weight", when),               \
        WF_VLLM_MLA_ALIAS("kv_b_scale", "mla_attn.kv_b_proj." WF_VLLM_SCALE, when), \
        WF_VLLM_MLA_ALIAS("o", "o_proj.weight", when),                              \
        WF_VLLM_MLA_ALIAS("o_scale", "o_proj." WF_VLLM_SCALE, when)

/* --- gpt-oss [models/gpt_oss.py] ------------------------------------------------------------- */

/* Its checkpoints interleave gate and up, and so do its experts. mxfp4: shares are whole blocks of
 * 32, ceil(I / 32 / ranks) of them, the last ranks having fewer or none; what a rank keeps is
 * padded to 64 for Triton's kernels [layers/fused_moe/oracle/mxfp4.py]. The bias behind the second
 * matrix is added once: on the first rank of those that share an expert. */
#define WF_VLLM_OSS_W13(name_, gate, up, pad_)                                          \
    {                                                                                   \
        .name = "{experts}routed_experts." name_, .parts = gate " " up,                 \
        .groups = "(I ^ (32 * etp_size)) * 32 * etp_size", .pad = pad_, .cuts = "0/etp" \
    }
#define WF_VLLM_OSS_EXPERTS                                                                     \
    {.name = "{experts}routed_experts.w13_weight",                                              \
     .parts = "expert_gate expert_up",                                                          \
     .groups = "I",                                                                             \
     .cuts = "0/etp"},                                                                          \
        {.name = "{experts}routed_experts.w2_weight", .parts = "expert_down", .cuts = "1/etp"}, \
        {.name = "{experts}routed_experts.w13_bias",                                            \
         .parts = "expert_gate_bias expert_up_bias",                                            \
         .when = "!mxfp4",                                                                      \
         .groups = "I",                                                                         \
         .cuts = "0/etp"},                                                                      \
        WF_VLLM_OSS_W13("w13_weight", "expert_gate_blocks", "expert_up_blocks",                 \
                        "32 * etp_size;128"),                                                   \
        WF_VLLM_OSS_W13("w13_weight_scale", "expert_gate_scale", "expert_up_scale",             \
                        "32 * etp_size;128"),                                                   \
        {.name = "{experts}routed_experts.w13_bias",                                            \
         .parts = "expert_gate_bias expert_up_bias",                                            \
         .when = "mxfp4",                                                                       \
         .groups = "(I ^ (32 * etp_size)) * 32 * etp_size",                                     \
         .pad = "32 * etp_size;128",                                                            \
         .cuts = "0/etp"},                                                                      \
        {.name = "{experts}routed_experts.w2_weight",                                           \
         .parts = "expert_down_blocks",                                                         \
         .pad = "16 * etp_size;32",                                                             \
         .cuts = "1/etp"},                                                                      \
        {.name = "{experts}routed_experts.w2_weight_scale",                                     \
         .parts = "expert_down_scale",                                                          \
         .pad = "etp_size;2",                                                                   \
         .cuts = "1/etp"},                                                                      \
    {                                                                                           \
        .name = "{experts}routed_experts.w2_bias", .parts = "expert_down_bias",                 \
        .data_when = "etp_rank == 0"                                                            \
    }

#endif
