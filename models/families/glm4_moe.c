/* glm4_moe.c - GLM-4.5, 4.5-Air, 4.6: grouped attention with biases, DeepSeek's experts. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/rows.h"

/* Defaults of absent keys: transformers 5, models/glm4_moe/configuration_glm4_moe.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "null ? nq : 8", NULL},
    {"d", "head_dim", "H / nq", NULL},
    {"F", "intermediate_size", "0", NULL},
    WF_SIZE_TIED("0"),
    WF_SIZE_FLAG("attention_bias", "attention_bias", "0"),
    WF_SIZE_FLAG("qk_norm", "use_qk_norm", "0"),
    WF_SIZES_DEEPSEEK_MOE,
    {"stage_experts", NULL, "1", NULL}, /* vLLM's class (engines/vllm.c) */
    {"no_redundant", NULL, "1", NULL},  /* SGLang's class (engines/sglang_ranks.c) */
    WF_SIZES_FP8,
};

static const struct wf_family_stack stacks[] = {
    WF_STACK_LAYER("model."),
    WF_STACK_FURTHER("model."),
};

#define BOTH "layer mtp"

/* Biases on q, k and v only [models/glm4_moe/modeling_glm4_moe.py, Glm4MoeAttention]. */
static const struct wf_family_row rows[] = {
    WF_ROW_EMBEDDING("model."),
    WF_ROW_INPUT_NORM(BOTH),
    WF_ROWS_QKV_FP8(BOTH, "1"),
    WF_ROWS_QKV_BIAS(BOTH, "attention_bias"),
    WF_ROWS_QK_NORM(BOTH, "qk_norm"),
    WF_ROWS_O_FP8(BOTH, "1"),
    WF_ROW_POST_NORM(BOTH),
    WF_ROWS_MLP_FP8(BOTH, "!moe"),
    WF_ROW_ROUTER(BOTH),
    {"router_correction", WF_LAYERS "mlp.gate.e_score_correction_bias", "E", BOTH, "moe", NULL,
     "f32"},
    WF_ROWS_EXPERTS(BOTH),
    WF_ROWS_SHARED("mlp.shared_experts", BOTH),
    WF_ROWS_FURTHER("shared_head.norm.weight"),
    WF_ROW_FINAL_NORM("model."),
    WF_ROW_HEAD("lm_head.weight"),
};

static const struct wf_engine_row vllm_rows[] = {
    {.name = "{name}", .parts = "router", .dtype = "f32"},
};

#define FUSED_WHERE "1"

/* SGLang fuses the shared expert, keeps the router in f32 and builds the head on every stage
 * [models/glm4_moe.py]. */
static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_HEAD_EVERYWHERE(NULL),
    WF_SGLANG_WHOLE_AS("router", "f32"),
    WF_SGLANG_FUSING_EXPERTS(FUSED_WHERE),
    WF_SGLANG_DENSE_MLP_ONCE,
};

static const struct wf_family_engine engines[] = {
    {.engine = "vllm", .requires = WF_VLLM_NEVER_TIED, WF_ROWS_OF(vllm_rows)},
    {.engine = "sglang",
     .requires = WF_SGLANG_UNTIED "|" WF_SGLANG_FUSING_REQUIRES(FUSED_WHERE),
     WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_glm4_moe = {
    .name = "glm4_moe",
    .model_types = "glm4_moe",
    .refused = WF_REFUSED_ALWAYS "|" WF_REFUSED_NESTED "|" WF_REFUSED_USE_BIAS
                                 "|" WF_REFUSED_QKV_BIAS "|" WF_REFUSED_MLP_BIAS,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS
    "|" WF_REQUIRES_FP8 "|E == 0 || I > 0: \"moe_intermediate_size\" is needed with experts",
};
