/* glm4_moe_lite.c - GLM-4.7-Flash: DeepSeek's layers with other sizes. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/mla.h"

/* Defaults of absent keys: transformers 5, models/glm4_moe_lite/configuration_glm4_moe_lite.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_DEEPSEEK("null ? 0 : 768"),
    {"stage_experts", NULL, "1", NULL}, /* vLLM's class (engines/vllm.c) */
};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model."),
                                                WF_STACK_FURTHER("model.")};

static const struct wf_family_row rows[] = {WF_ROWS_DEEPSEEK("model.", "lm_head.weight")};

static const struct wf_engine_row vllm_rows[] = {
    {.name = "{name}", .parts = "router", .dtype = "f32"},
};
static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_MLA_ALIASES(NULL),
};

#define FUSED_WHERE "S == I"

/* SGLang fuses one shared expert, keeps the router in f32 and builds the head on every stage
 * [models/glm4_moe_lite.py]. */
static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_HEAD_EVERYWHERE(NULL),
    WF_SGLANG_WHOLE_AS("router", "f32"),
    WF_SGLANG_FUSING_EXPERTS(FUSED_WHERE),
    WF_SGLANG_DENSE_MLP_ONCE,
};

static const struct wf_family_engine engines[] = {
    {.engine = "vllm",
     .requires = WF_VLLM_NEVER_TIED,
     WF_ROWS_OF(vllm_rows),
     WF_ALIASES_OF(vllm_aliases)},
    {.engine = "sglang",
     .requires = WF_SGLANG_UNTIED "|" WF_SGLANG_FUSING_REQUIRES(FUSED_WHERE),
     WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .model_types = "glm4_moe_lite",
    .refused = WF_REFUSED_DEEPSEEK "|" WF_REFUSED_NESTED,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_DEEPSEEK,
};
