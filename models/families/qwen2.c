/* qwen2.c - Qwen2 and Qwen2.5 dense: biases on q, k and v, none on o, whatever the config says. */
#include "models/engines/sglang.h"
#include "models/families/rows.h"

/* Defaults of absent keys: transformers 5, models/qwen2/configuration_qwen2.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "null ? nq : 32", NULL},
    {"d", "head_dim", "H / nq", NULL},
    {"F", "intermediate_size", NULL, NULL},
    WF_SIZE_TIED("0"),
    {"attention_bias", NULL, "1", NULL},
    WF_SIZES_FP8,
};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model.")};

/* [models/qwen2/modeling_qwen2.py] */
static const struct wf_family_row rows[] = {
    WF_ROW_EMBEDDING("model."),   WF_ROW_INPUT_NORM(NULL),     WF_ROWS_QKV_FP8(NULL, "1"),
    WF_ROWS_QKV_BIAS(NULL, NULL), WF_ROWS_O_FP8(NULL, "1"),    WF_ROW_POST_NORM(NULL),
    WF_ROWS_MLP_FP8(NULL, "1"),   WF_ROW_FINAL_NORM("model."), WF_ROW_HEAD("lm_head.weight"),
};

static const struct wf_engine_row sglang_rows[] = {WF_SGLANG_QKV_WITH_KV_SCALES};

static const struct wf_family_engine engines[] = {
    {.engine = "vllm",
     .requires =
         "d * nq == H: vLLM's Qwen2 class ignores head_dim and takes hidden_size / heads; it would "
         "load a part of each head"},
    {.engine = "sglang", .requires = WF_SGLANG_NO_DP_ATTENTION, WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_qwen2 = {
    .name = "qwen2",
    .model_types = "qwen2",
    .refused =
        WF_REFUSED_ALWAYS "|" WF_REFUSED_NESTED "|" WF_REFUSED_EXPERTS "|" WF_REFUSED_MTP
                          "|" WF_REFUSED_QK_NORM "|" WF_REFUSED_USE_BIAS "|" WF_REFUSED_MLP_BIAS,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_FP8,
};
