/* qwen3.c - Qwen3 dense: norms on q and k, an explicit head size; also as block fp8. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/rows.h"

/* Defaults of absent keys: transformers 5, models/qwen3/configuration_qwen3.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "null ? nq : 32", NULL},
    {"d", "head_dim", "null && H != nq * 128 ? 0 : 128", NULL},
    {"F", "intermediate_size", NULL, NULL},
    WF_SIZE_TIED("0"),
    WF_SIZE_FLAG("attention_bias", "attention_bias", "0"),
    {"qk_norm", NULL, "1", NULL},
    WF_SIZES_FP8,
};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model.")};

/* [models/qwen3/modeling_qwen3.py] */
static const struct wf_family_row rows[] = {
    WF_ROW_EMBEDDING("model."),
    WF_ROW_INPUT_NORM(NULL),
    WF_ROWS_QKV_FP8(NULL, "1"),
    WF_ROWS_QKV_BIAS(NULL, "attention_bias"),
    WF_ROWS_QK_NORM(NULL, NULL),
    WF_ROWS_O_FP8(NULL, "1"),
    WF_ROW("o_bias", "self_attn.o_proj.bias", "H", NULL, "attention_bias", NULL),
    WF_ROW_POST_NORM(NULL),
    WF_ROWS_MLP_FP8(NULL, "1"),
    WF_ROW_FINAL_NORM("model."),
    WF_ROW_HEAD("lm_head.weight"),
};

static const struct wf_family_engine engines[] = {
    {.engine = "vllm", .requires = WF_VLLM_NO_O_BIAS},
};

const struct wf_family wf_family_qwen3 = {
    .name = "qwen3",
    .model_types = "qwen3",
    .refused =
        WF_REFUSED_ALWAYS "|" WF_REFUSED_NESTED "|" WF_REFUSED_EXPERTS "|" WF_REFUSED_MTP
                          "|" WF_REFUSED_USE_BIAS "|" WF_REFUSED_QKV_BIAS "|" WF_REFUSED_MLP_BIAS,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_HEAD_DIM "|" WF_REQUIRES_FP8,
};
