/* kimi_k25.c - Kimi K2.5: K2 below another prefix. Its vision tower is described nowhere that we
 * know, so its tensors are unknown ones. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/mla.h"

/* Defaults of absent keys: as DeepSeek V3's. */
static const struct wf_family_size sizes[] = {WF_SIZES_DEEPSEEK("null ? 0 : 1536")};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("language_model.model."),
                                                WF_STACK_FURTHER("language_model.model.")};

static const struct wf_family_row rows[] = {
    WF_ROWS_DEEPSEEK("language_model.model.", "language_model.lm_head.weight")};

static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_SHARED,
};
static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_ROUTER_ALIAS,
    WF_VLLM_CORRECTION_ALIAS,
    WF_VLLM_MLA_ALIASES("ih == 0"),
};

static const struct wf_family_engine engines[] = {
    {.engine = "vllm",
     WF_ROWS_OF(vllm_rows),
     WF_ALIASES_OF(vllm_aliases),
     .prefix = "language_model."},
    {.engine = "sglang", .prefix = "language_model."},
};

const struct wf_family wf_family_kimi_k25 = {
    .name = "kimi_k25",
    .model_types = "kimi_k25",
    .text_config = "text_config",
    .refused = WF_REFUSED_DEEPSEEK,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_DEEPSEEK,
};
