/* deepseek.c - DeepSeek V2, V3, R1 and V3.2, Kimi K2, Moonlight. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/mla.h"

/* Defaults of absent keys: transformers 5, models/deepseek_v3/configuration_deepseek_v3.py. */
static const struct wf_family_size sizes[] = {WF_SIZES_DEEPSEEK("null ? 0 : 1536")};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model."),
                                                WF_STACK_FURTHER("model.")};

static const struct wf_family_row rows[] = {WF_ROWS_DEEPSEEK("model.", "lm_head.weight")};

/* V3.2's class builds its attention without the wrapper, and keeps dense layers whole where tokens
 * are dealt out over the ranks and there is one stage [vLLM: models/deepseek_v32/nvidia/model.py].
 */
#define WHOLE_MLP "ih > 0 && dp > 1 && tp > 1 && ep > 1 && pp == 1"
#define MLP_ROWS(name_, parts_, groups_, cuts_)                                        \
    {.name = name_, .parts = parts_, .when = WHOLE_MLP},                               \
    {                                                                                  \
        .name = name_, .parts = parts_, .when = "!(" WHOLE_MLP ")", .groups = groups_, \
        .cuts = cuts_                                                                  \
    }
static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_SHARED,
    MLP_ROWS("{dir}gate_up_proj.weight", "gate up", "tp_size", "0/tp"),
    MLP_ROWS("{dir}gate_up_proj." WF_VLLM_SCALE, "gate_scale up_scale", "tp_size", "0/tp"),
    MLP_ROWS("{name}", "down|down_scale", NULL, "1/tp"),
};
static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_ROUTER_ALIAS,
    WF_VLLM_CORRECTION_ALIAS,
    WF_VLLM_MLA_ALIASES("ih == 0"),
};

/* SGLang fuses the shared expert of V3 and R1 [models/deepseek_v2.py:
 * determine_num_fused_shared_experts]; the classes of V2 and V3.2 and other
 * sizes do not. */
#define FUSED_WHERE "E == 256 && S == I && ih == 0 && !v2"

static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_FUSING_EXPERTS(FUSED_WHERE),
    WF_SGLANG_DENSE_MLP_ONCE,
};

static const struct wf_family_engine engines[] = {
    {.engine = "vllm",
     .requires = WF_VLLM_NEVER_TIED,
     WF_ROWS_OF(vllm_rows),
     WF_ALIASES_OF(vllm_aliases)},
    {.engine = "sglang",
     .requires = WF_SGLANG_FUSING_REQUIRES(FUSED_WHERE) "|" WF_SGLANG_MLA_HEAD,
     WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_deepseek = {
    .name = "deepseek",
    .model_types = "deepseek_v2|deepseek_v3|deepseek_v32|kimi_k2",
    .refused = WF_REFUSED_DEEPSEEK "|" WF_REFUSED_NESTED,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_DEEPSEEK,
};
