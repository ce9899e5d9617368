/* qwen2_moe.c - Qwen1.5-MoE and Qwen2-57B-A14B: biases on q, k and v, a gated shared expert. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/rows.h"

/* Defaults of absent keys: transformers 5, models/qwen2_moe/configuration_qwen2_moe.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "null ? nq : 16", NULL},
    {"d", "head_dim", "H / nq", NULL},
    {"F", "intermediate_size", "0", NULL},
    WF_SIZE_TIED("0"),
    WF_SIZE_FLAG("attention_bias", "qkv_bias", "1"),
    WF_SIZES_QWEN_MOE(NULL, NULL, ""),
    {"S", "shared_expert_intermediate_size", NULL, NULL},
    {"no_eplb", NULL, "1", NULL}, /* vLLM's class (engines/vllm.c) */
    WF_SIZES_FP8,
};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model.")};

/* [models/qwen2_moe/modeling_qwen2_moe.py] */
static const struct wf_family_row rows[] = {
    WF_ROW_EMBEDDING("model."),
    WF_ROW_INPUT_NORM(NULL),
    WF_ROWS_QKV_FP8(NULL, "1"),
    WF_ROWS_QKV_BIAS(NULL, "attention_bias"),
    WF_ROWS_O_FP8(NULL, "1"),
    WF_ROW_POST_NORM(NULL),
    WF_ROWS_MLP_FP8(NULL, "!moe"),
    WF_ROW_ROUTER(NULL),
    WF_ROWS_EXPERTS(NULL),
    WF_ROWS_SHARED("mlp.shared_expert", NULL),
    WF_ROW("shared_router", "mlp.shared_expert_gate.weight", "1,H", NULL, "moe", NULL),
    WF_ROW_FINAL_NORM("model."),
    WF_ROW_HEAD("lm_head.weight"),
};

/* [vLLM: models/qwen2_moe.py] The class has biases on q, k and v whatever qkv_bias says: without
 * them in the checkpoint nothing writes its own. */
static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_EMBEDDING_EVERYWHERE,
    WF_VLLM_NORM_EVERYWHERE,
    WF_VLLM_HEAD_EVERYWHERE,
    {.name = "{dir}qkv_proj.weight", .parts = "q k v", .groups = "tp_size", .cuts = "0/tp"},
    {.name = "{dir}qkv_proj.bias",
     .parts = "q k v",
     .when = "!attention_bias",
     .cuts = "0/tp",
     .shape = "rows",
     .dtype = "model",
     .kind = WF_ROW_KEEP},
};
static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_TIED_EVERYWHERE,
};

/* SGLang builds the head on every stage [models/qwen2_moe.py]. */
static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_HEAD_EVERYWHERE(NULL),
    WF_SGLANG_QKV_WITH_KV_SCALES,
};

static const struct wf_family_engine engines[] = {
    {.engine = "memory", .order = WF_ROUTER_FIRST},
    {.engine = "vllm",
     .requires = WF_VLLM_ENOUGH_EXPERTS
     "|nq * d == H: vLLM's class ignores head_dim and takes hidden_size / heads",
     WF_ROWS_OF(vllm_rows),
     WF_ALIASES_OF(vllm_aliases)},
    {.engine = "sglang",
     .requires = WF_SGLANG_UNTIED
     "|" WF_SGLANG_ALL_SPARSE "|"
     "nq * d == H: SGLang's class ignores head_dim and takes hidden_size / heads",
     WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_qwen2_moe = {
    .name = "qwen2_moe",
    .model_types = "qwen2_moe",
    .refused = WF_REFUSED_ALWAYS "|" WF_REFUSED_NESTED "|" WF_REFUSED_QK_NORM "|" WF_REFUSED_MTP
                                 "|" WF_REFUSED_USE_BIAS "|" WF_REFUSED_MLP_BIAS,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_FP8,
};
