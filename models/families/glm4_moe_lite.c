/* glm4_moe_lite.c - GLM-4.7-Flash: DeepSeek's layers with other sizes. */
#include "models/families/mla.h"

/* Defaults of absent keys: transformers 5, models/glm4_moe_lite/configuration_glm4_moe_lite.py. */
static const struct wf_family_size sizes[] = {WF_SIZES_DEEPSEEK("null ? 0 : 768")};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model."),
                                                WF_STACK_FURTHER("model.")};

static const struct wf_family_row rows[] = {WF_ROWS_DEEPSEEK("model.", "lm_head.weight")};

const struct wf_family wf_family_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .model_types = "glm4_moe_lite",
    .refused = WF_REFUSED_DEEPSEEK "|" WF_REFUSED_NESTED,
    .sizes = sizes,
    .size_count = WF_COUNT(sizes),
    .stacks = stacks,
    .stack_count = WF_COUNT(stacks),
    .rows = rows,
    .row_count = WF_COUNT(rows),
    .requires = WF_REQUIRES_DEEPSEEK,
};
