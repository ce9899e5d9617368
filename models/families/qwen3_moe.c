/* qwen3_moe.c - Qwen3 with experts (30B-A3B, 235B-A22B, Coder): no shared expert, no correction. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/rows.h"

/* Defaults of absent keys: transformers 5, models/qwen3_moe/configuration_qwen3_moe.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "null ? nq : 4", NULL},
    {"d", "head_dim", "H / nq", NULL},
    {"F", "intermediate_size", "0", NULL},
    WF_SIZE_TIED("0"),
    WF_SIZE_FLAG("attention_bias", "attention_bias", "0"),
    {"qk_norm", NULL, "1", NULL},
    WF_SIZES_QWEN_MOE(NULL, NULL, ""),
    {"stage_experts", NULL, "1", NULL}, /* vLLM's class (engines/vllm.c) */
    WF_SIZES_FP8,
};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model.")};

/* [models/qwen3_moe/modeling_qwen3_moe.py] */
static const struct wf_family_row rows[] = {
    WF_ROW_EMBEDDING("model."),
    WF_ROW_INPUT_NORM(NULL),
    WF_ROWS_QKV_FP8(NULL, "1"),
    WF_ROWS_QKV_BIAS(NULL, "attention_bias"),
    WF_ROWS_QK_NORM(NULL, NULL),
    WF_ROWS_O_FP8(NULL, "1"),
    WF_ROW("o_bias", "self_attn.o_proj.bias", "H", NULL, "attention_bias", NULL),
    WF_ROW_POST_NORM(NULL),
    WF_ROWS_MLP_FP8(NULL, "!moe"),
    WF_ROW_ROUTER(NULL),
    WF_ROWS_EXPERTS(NULL),
    WF_ROW_FINAL_NORM("model."),
    WF_ROW_HEAD("lm_head.weight"),
};

static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_EMBEDDING_EVERYWHERE,
    WF_VLLM_NORM_EVERYWHERE,
    WF_VLLM_HEAD_EVERYWHERE,
};
static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_TIED_EVERYWHERE,
    WF_VLLM_ROUTER_ALIAS,
};

/* SGLang builds the head on every stage [models/qwen3_moe.py]. */
static const struct wf_engine_row sglang_rows[] = {WF_SGLANG_HEAD_EVERYWHERE(NULL)};

static const struct wf_family_engine engines[] = {
    {.engine = "vllm",
     WF_ROWS_OF(vllm_rows),
     WF_ALIASES_OF(vllm_aliases),
     .quantised = WF_VLLM_QUANTISED_ROUTER,
     .requires = WF_VLLM_ENOUGH_EXPERTS "|" WF_VLLM_NO_O_BIAS},
    {.engine = "sglang",
     .requires = WF_SGLANG_UNTIED "|" WF_SGLANG_ALL_SPARSE,
     WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_qwen3_moe = {
    .name = "qwen3_moe",
    .model_types = "qwen3_moe",
    .refused =
        WF_REFUSED_ALWAYS "|" WF_REFUSED_NESTED "|" WF_REFUSED_SHARED "|" WF_REFUSED_MTP
                          "|" WF_REFUSED_USE_BIAS "|" WF_REFUSED_QKV_BIAS "|" WF_REFUSED_MLP_BIAS,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_FP8,
};
