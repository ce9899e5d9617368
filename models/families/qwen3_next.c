/* qwen3_next.c - Qwen3-Next: three of four layers are gated delta nets, q is gated, experts
 * everywhere. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/rows.h"

/* Defaults of absent keys: transformers 5, models/qwen3_next/configuration_qwen3_next.py. The
 * config does not say whether the checkpoint has a layer that predicts further tokens; transformers
 * ignores it, and here it is there when num_nextn_predict_layers says so. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "null ? nq : 2", NULL},
    {"d", "head_dim", "null && H != nq * 256 ? 0 : 256", NULL},
    {"F", "intermediate_size", "0", NULL},
    WF_SIZE_TIED("0"),
    {"qk_norm", NULL, "1", NULL},
    WF_SIZE_FLAG("gated", "attn_output_gate", "1"),
    WF_SIZES_QWEN_MOE(NULL, NULL, "mtp || "),
    {"S", "shared_expert_intermediate_size", NULL, NULL},
    WF_SIZES_DELTA,
    {"further", "num_nextn_predict_layers|mtp_num_hidden_layers", "0", NULL},
    {"stage_experts", NULL, "1", NULL}, /* vLLM's class (engines/vllm.c) */
    WF_SIZES_FP8,
};

static const struct wf_family_stack stacks[] = {
    WF_STACK_LAYER("model."),
    {"mtp", "mtp.layers.{i}.", "further", NULL},
};

#define BOTH "layer mtp"

/* [models/qwen3_next/modeling_qwen3_next.py] A gated q is by head q, then its gate; a delta net's
 * inputs are by key head q, k, v, z, and b, a. */
static const struct wf_family_row rows[] = {
    WF_ROW_EMBEDDING("model."),
    WF_ROW_INPUT_NORM(BOTH),
    WF_ROWS_LINEAR("q", "self_attn.q_proj", "(1+gated)*nq*d", "H", BOTH, "!linear", "nq"),
    WF_ROWS_LINEAR("k", "self_attn.k_proj", "nk*d", "H", BOTH, "!linear", "nk"),
    WF_ROWS_LINEAR("v", "self_attn.v_proj", "nk*d", "H", BOTH, "!linear", "nk"),
    WF_ROWS_QK_NORM(BOTH, "!linear"),
    WF_ROWS_O_FP8(BOTH, "!linear"),
    WF_ROWS_LINEAR("gdn_qkvz", "linear_attn.in_proj_qkvz", "gk*(2*ek+2*(gv/gk)*ev)", "H", NULL,
                   "linear", "gk"),
    WF_ROW("gdn_ba", "linear_attn.in_proj_ba.weight", "2*gv,H", NULL, "linear", "gk"),
    WF_ROWS_DELTA(NULL),
    WF_ROW_POST_NORM(BOTH),
    WF_ROWS_MLP_FP8(BOTH, "!moe"),
    WF_ROW_ROUTER(BOTH),
    WF_ROWS_EXPERTS(BOTH),
    WF_ROWS_SHARED("mlp.shared_expert", BOTH),
    WF_ROW("shared_router", "mlp.shared_expert_gate.weight", "1,H", BOTH, "moe", NULL),
    WF_ROWS_QWEN_MTP,
    WF_ROW_FINAL_NORM("model."),
    WF_ROW_HEAD("lm_head.weight"),
};

static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_EMBEDDING_EVERYWHERE,
    WF_VLLM_HEAD_EVERYWHERE,
    WF_VLLM_SHARED,
};
static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_ROUTER_ALIAS,
};

/* SGLang [models/qwen3_next.py]: attention stands in the layer itself; the norm of the delta net
 * keeps the config's dtype; the delta net's kernel holds two vectors a second time. */
/* One shared expert of the routed ones' size stands in a slot behind those that a rank has, with
 * expert parallelism too [models/qwen2_moe.py: can_fuse_shared_expert, Qwen2MoeSparseMoeBlock; of
 * the classes that build it this one alone asks for it on CUDA]. */
#define FUSES "(S > 0 && S == I && a2a.none && !shared_experts.separate)"

static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_EXPERTS(FUSES, WF_SGLANG_ONE_EXTRA),
    WF_SGLANG_EXPERTS("!" FUSES, WF_SGLANG_NO_EXTRA),
    WF_SERVING_SHARED("!" FUSES),
    WF_SGLANG_GEMMA_NORMS("post_attention_layernorm"),
    WF_SGLANG_GEMMA_NORM("q_norm", "q_norm", NULL),
    WF_SGLANG_GEMMA_NORM("k_norm", "k_norm", NULL),
    WF_SGLANG_WHOLE_AS("gdn_norm", "config"),
    WF_SGLANG_QKV_WITH_KV_SCALES,
};
static const struct wf_engine_alias sglang_aliases[] = {WF_SGLANG_DELTA_ALIASES};

static const struct wf_family_engine engines[] = {
    {.engine = "memory", .order = WF_ROUTER_FIRST},
    {.engine = "vllm",
     WF_ROWS_OF(vllm_rows),
     WF_ALIASES_OF(vllm_aliases),
     .quantised = WF_SERVING_QUANTISED_BA,
     .requires = WF_VLLM_ENOUGH_EXPERTS "|!tied: vLLM's Qwen3-Next class does not tie its head"},
    {.engine = "sglang",
     .renames = "self_attn.=>",
     .quantised = WF_SERVING_QUANTISED_BA,
     .requires = "pp == 1: SGLang's class has one stage|" WF_SGLANG_UNTIED "|" WF_SGLANG_ALL_SPARSE
                 "|!int4 || !" FUSES ": a shared expert fused with int4 ones is not known; say "
                 "shared_experts=separate",
     WF_ROWS_OF(sglang_rows),
     WF_ALIASES_OF(sglang_aliases)},
};

const struct wf_family wf_family_qwen3_next = {
    .name = "qwen3_next",
    .model_types = "qwen3_next",
    .refused = WF_REFUSED_ALWAYS "|" WF_REFUSED_NESTED "|" WF_REFUSED_USE_BIAS
                                 "|" WF_REFUSED_QKV_BIAS "|" WF_REFUSED_MLP_BIAS "|"
                                 "attention_bias: biases of the attention",
    WF_FAMILY_TABLES,
    .requires =
        WF_REQUIRES_HEADS "|" WF_REQUIRES_HEAD_DIM "|" WF_REQUIRES_DELTA "|" WF_REQUIRES_FP8,
};
