/* qwen3_vl.c - Qwen3-VL, dense and with experts: Qwen3 below another prefix, and a vision tower. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/rows.h"

/* Defaults of absent keys: transformers 5, models/qwen3_vl/configuration_qwen3_vl.py and
 * models/qwen3_vl_moe/configuration_qwen3_vl_moe.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", NULL, NULL},
    {"d", "head_dim", "null && H != nq * 128 ? 0 : 128", NULL},
    {"F", "intermediate_size", "0", NULL},
    WF_SIZE_TIED("0"),
    WF_SIZE_FLAG("attention_bias", "attention_bias", "0"),
    {"qk_norm", NULL, "1", NULL},
    WF_SIZES_QWEN_MOE("0", "0", ""),
    WF_SIZES_VISION,
    {"stage_experts", NULL, "1", NULL}, /* vLLM's class (engines/vllm.c) */
    WF_SIZES_FP8,
};

#define M "model.language_model."

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER(M), WF_STACKS_VISION};

/* [models/qwen3_vl/modeling_qwen3_vl.py] */
static const struct wf_family_row rows[] = {
    WF_ROW_EMBEDDING(M),
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
    WF_ROW_FINAL_NORM(M),
    WF_ROW_HEAD("lm_head.weight"),
    WF_ROWS_VISION,
};

/* The published files hold each expert transposed, in form A [vLLM: models/qwen3_vl_moe.py]. What
 * form those of fp8 checkpoints have is the files' alone: engines hold the experts as they hold
 * Qwen3-MoE's. */
static const struct wf_engine_row hf_rows[] = {
    WF_ROW_TRANSPOSED("{experts}gate_up_proj", "expert_gate expert_up", NULL, NULL),
    WF_ROW_TRANSPOSED("{experts}down_proj", "expert_down", NULL, NULL),
};

/* The class with experts has embedding, norm and head on every stage [vLLM:
 * models/qwen3_vl_moe.py], that without them where most have them. */
static const struct wf_engine_row vllm_rows[] = {
    {.name = "{name}",
     .parts = "embedding",
     .when = "E > 0 || embeds || (heads && tied)",
     .pad = "vocab_multiple",
     .cuts = "0/tp"},
    {.name = "{name}", .parts = "final_norm", .when = "E > 0 || heads"},
    {.name = "{name}",
     .parts = "head",
     .when = "!tied && (E > 0 || heads)",
     .pad = "vocab_multiple",
     .cuts = "0/tp"},
};
static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_ROUTER_ALIAS,
    {"embedding", "{top}lm_head.weight", "tied && !heads && E > 0"},
};

static const struct wf_family_engine engines[] = {
    {.engine = "hf",
     WF_ROWS_OF(hf_rows),
     .requires = "!(fp8 || fp8_rows) || E == 0: which form the experts of a quantised checkpoint "
                 "of this family "
                 "have is not known"},
    WF_MEGATRON_INSIDE,
    {.engine = "vllm",
     WF_ROWS_OF(vllm_rows),
     .requires = WF_VLLM_ENOUGH_EXPERTS "|" WF_VLLM_NO_O_BIAS,
     WF_ALIASES_OF(vllm_aliases),
     .quantised = WF_VLLM_QUANTISED_ROUTER " " WF_VLLM_QUANTISED_TOWER,
     .renames = "model.language_model.=>language_model.model. model.visual.=>visual. "
                "lm_head=>language_model.lm_head",
     .prefix = "language_model."},
    {.engine = "sglang",
     .requires = WF_SGLANG_ALL_SPARSE,
     .renames = "model.language_model.=>model. model.visual.=>visual."},
};

const struct wf_family wf_family_qwen3_vl = {
    .name = "qwen3_vl",
    .model_types = "qwen3_vl|qwen3_vl_moe",
    .text_config = "text_config",
    .refused = WF_REFUSED_ALWAYS "|" WF_REFUSED_SHARED "|" WF_REFUSED_MTP "|" WF_REFUSED_USE_BIAS
                                 "|" WF_REFUSED_QKV_BIAS "|" WF_REFUSED_MLP_BIAS,
    WF_FAMILY_TABLES,
    .requires =
        WF_REQUIRES_HEADS "|" WF_REQUIRES_HEAD_DIM "|" WF_REQUIRES_FP8
                          "|E == 0 || I > 0: \"moe_intermediate_size\" is needed with experts",
};
