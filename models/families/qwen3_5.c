/* qwen3_5.c - Qwen3.5 and 3.6, dense and with experts: delta nets with parts stored apart, a vision
 * tower, layers that predict further tokens. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/rows.h"

/* Defaults of absent keys: transformers 5, models/qwen3_5/configuration_qwen3_5.py and
 * models/qwen3_5_moe/configuration_qwen3_5_moe.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "null ? nq : 2", NULL},
    {"d", "head_dim", "null && H != nq * 256 ? 0 : 256", NULL},
    {"F", "intermediate_size", "0", NULL},
    WF_SIZE_TIED("0"),
    {"qk_norm", NULL, "1", NULL},
    WF_SIZE_FLAG("gated", "attn_output_gate", "1"),
    WF_SIZES_QWEN_MOE("0", "0", "mtp || "),
    {"S", "shared_expert_intermediate_size", "0", NULL},
    WF_SIZES_DELTA,
    {"further", "mtp_num_hidden_layers", "0", NULL},
    WF_SIZES_VISION,
    {"stage_experts", NULL, "1", NULL}, /* vLLM's class (engines/vllm.c) */
    WF_SIZES_FP8,
};

#define M "model.language_model."
#define BOTH "layer mtp"

static const struct wf_family_stack stacks[] = {
    WF_STACK_LAYER(M),
    {"mtp", "mtp.layers.{i}.", "further", NULL},
    WF_STACKS_VISION,
};

/* [models/qwen3_5/modeling_qwen3_5.py]; vision as Qwen3-VL's. */
static const struct wf_family_row rows[] = {
    WF_ROW_EMBEDDING(M),
    WF_ROW_INPUT_NORM(BOTH),
    WF_ROWS_LINEAR("q", "self_attn.q_proj", "(1+gated)*nq*d", "H", BOTH, "!linear", "nq"),
    WF_ROWS_LINEAR("k", "self_attn.k_proj", "nk*d", "H", BOTH, "!linear", "nk"),
    WF_ROWS_LINEAR("v", "self_attn.v_proj", "nk*d", "H", BOTH, "!linear", "nk"),
    WF_ROWS_QK_NORM(BOTH, "!linear"),
    WF_ROWS_O_FP8(BOTH, "!linear"),
    WF_ROWS_LINEAR("gdn_qkv", "linear_attn.in_proj_qkv", "2*gk*ek+gv*ev", "H", NULL, "linear",
                   NULL),
    WF_ROWS_LINEAR("gdn_z", "linear_attn.in_proj_z", "gv*ev", "H", NULL, "linear", "gv"),
    WF_ROW("gdn_b", "linear_attn.in_proj_b.weight", "gv,H", NULL, "linear", "gv"),
    WF_ROW("gdn_a", "linear_attn.in_proj_a.weight", "gv,H", NULL, "linear", "gv"),
    WF_ROWS_DELTA(NULL),
    WF_ROW_POST_NORM(BOTH),
    WF_ROWS_MLP_FP8(BOTH, "!moe"),
    WF_ROW_ROUTER(BOTH),
    WF_ROWS_EXPERTS(BOTH),
    WF_ROWS_SHARED("mlp.shared_expert", BOTH),
    WF_ROW("shared_router", "mlp.shared_expert_gate.weight", "1,H", BOTH, "moe && S > 0", NULL),
    WF_ROWS_QWEN_MTP,
    WF_ROW_FINAL_NORM(M),
    WF_ROW_HEAD("lm_head.weight"),
    WF_ROWS_VISION,
};

/* The published files hold the layers' experts in one tensor (form B), transformers 5 writes them
 * one by one, as those of fp8 checkpoints and of further layers are: the reader of files takes
 * both. */
static const struct wf_engine_row hf_rows[] = {WF_ROWS_FORM_B("!mtp && !fp8 && !fp8_rows")};

static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_EMBEDDING_EVERYWHERE,
    WF_VLLM_SHARED,
};
static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_ROUTER_ALIAS,
};

/* SGLang [models/qwen3_5.py]: attention stands in the layer itself; the embedding is whole under
 * dp_attention; the delta net's kernel holds two vectors a second time. */
static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_EMBEDDING_WHOLE_UNDER_DP,
    WF_SGLANG_GEMMA_NORMS("post_attention_layernorm"),
    WF_SGLANG_GEMMA_NORM("q_norm", "q_norm", NULL),
    WF_SGLANG_GEMMA_NORM("k_norm", "k_norm", NULL),
    WF_SGLANG_QKV_WITH_KV_SCALES,
};
static const struct wf_engine_alias sglang_aliases[] = {WF_SGLANG_DELTA_ALIASES};

static const struct wf_family_engine engines[] = {
    {.engine = "hf", WF_ROWS_OF(hf_rows)},
    {.engine = "memory", .order = WF_ROUTER_FIRST},
    WF_MEGATRON_INSIDE,
    {.engine = "vllm",
     WF_ROWS_OF(vllm_rows),
     .requires = WF_VLLM_ENOUGH_EXPERTS,
     WF_ALIASES_OF(vllm_aliases),
     .quantised = WF_SERVING_QUANTISED_B_A " " WF_VLLM_QUANTISED_TOWER,
     .renames = "model.language_model.=>language_model.model. model.visual.=>visual. "
                "lm_head=>language_model.lm_head",
     .prefix = "language_model."},
    {.engine = "sglang",
     .requires = WF_SGLANG_ALL_SPARSE,
     .renames = "model.language_model.=>model. model.visual.=>visual. self_attn.=>",
     .quantised = WF_SERVING_QUANTISED_B_A,
     WF_ROWS_OF(sglang_rows),
     WF_ALIASES_OF(sglang_aliases)},
};

const struct wf_family wf_family_qwen3_5 = {
    .name = "qwen3_5",
    .model_types = "qwen3_5|qwen3_5_moe",
    .text_config = "text_config",
    .refused = WF_REFUSED_ALWAYS
    "|" WF_REFUSED_USE_BIAS "|" WF_REFUSED_QKV_BIAS "|" WF_REFUSED_MLP_BIAS "|"
    "attention_bias: biases of the attention|mtp_use_dedicated_embeddings: an embedding of its own "
    "for further tokens",
    WF_FAMILY_TABLES,
    .requires =
        WF_REQUIRES_HEADS "|" WF_REQUIRES_HEAD_DIM "|" WF_REQUIRES_DELTA "|" WF_REQUIRES_FP8
                          "|E == 0 || I > 0: \"moe_intermediate_size\" is needed with experts",
};
