/* bailing.c - Ling and Ring 2.0 (mini, flash, 1T): a fused q, k and v, DeepSeek's kind of experts.
 */
#include "models/engines/sglang.h"
#include "models/families/rows.h"

/* Defaults of absent keys: Ling-V2's configuration_bailing_moe_v2.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "nq", NULL},
    {"d", "head_dim", "H / nq", NULL},
    {"F", "intermediate_size", "0", NULL},
    WF_SIZE_TIED("0"),
    WF_SIZE_FLAG("qk_norm", "use_qk_norm", "1"),
    WF_SIZES_BAILING_MOE,
    {"no_eplb", NULL, "1", NULL}, /* vLLM's class (engines/vllm.c) */
    WF_SIZES_FP8,
};

static const struct wf_family_stack stacks[] = {
    WF_STACK_LAYER("model."),
    WF_STACK_FURTHER("model."),
};

#define BOTH "layer mtp"

/* [modeling_bailing_moe_v2.py beside the checkpoints] */
static const struct wf_family_row rows[] = {
    {"embedding", "model.word_embeddings.weight", "V,H", NULL, NULL, NULL, NULL},
    WF_ROW_INPUT_NORM(BOTH),
    WF_ROWS_LINEAR("qkv", "attention.query_key_value", "(nq+2*nk)*d", "H", BOTH, "1", NULL),
    WF_ROW("q_norm", "attention.query_layernorm.weight", "d", BOTH, "qk_norm", NULL),
    WF_ROW("k_norm", "attention.key_layernorm.weight", "d", BOTH, "qk_norm", NULL),
    WF_ROWS_LINEAR_IN("o", "attention.dense", "H", "nq*d", BOTH, "1", "nq"),
    WF_ROWS_BAILING(BOTH),
    WF_ROWS_FURTHER("final_layernorm.weight"),
    WF_ROW_FINAL_NORM("model."),
    WF_ROW_HEAD("lm_head.weight"),
};

/* Its class is no part of transformers: memory and files agree. */
static const struct wf_engine_row memory_rows[] = {WF_ROWS_EXPERTS_APART};

/* [vLLM: models/bailing_moe.py] Another router_dtype than fp32 is bf16, whatever it says. */
static const struct wf_engine_row vllm_rows[] = {
    {.name = "{name}",
     .parts = "router",
     .when = "!router_said || router_f32",
     .dtype = "f32: router_f32"},
    {.name = "{name}", .parts = "router", .when = "router_said && !router_f32", .dtype = "bf16"},
};

/* SGLang [models/bailing_moe.py]: the router in router_dtype, the head on every stage, and the
 * last stage embeds too where that is the head. */
static const struct wf_engine_row sglang_rows[] = {
    {.name = "{name}",
     .parts = "embedding",
     .when = "embeds || (tied && heads)",
     .pad = "vocab_multiple",
     .cuts = "0/embed"},
    WF_SGLANG_HEAD_EVERYWHERE("!tied"),
    WF_SGLANG_WHOLE_AS("router", "f32: router_f32"),
    WF_SGLANG_DENSE_MLP_ONCE,
};
static const struct wf_engine_alias sglang_aliases[] = {WF_SGLANG_TIED_ON_FIRST_STAGE};

static const struct wf_family_engine engines[] = {
    {.engine = "memory", WF_ROWS_OF(memory_rows)},
    {.engine = "vllm",
     .requires =
         "further == 0: vLLM's class of Ling 2.0 refuses a checkpoint that has layers which "
         "predict further tokens; give it one without (num_nextn_predict_layers 0)",
     WF_ROWS_OF(vllm_rows)},
    {.engine = "sglang",
     .requires = "redundant == 0: SGLang's class has no redundant experts",
     WF_ROWS_OF(sglang_rows),
     WF_ALIASES_OF(sglang_aliases)},
};

const struct wf_family wf_family_bailing = {
    .name = "bailing",
    .model_types = "bailing_moe_v2",
    .refused = WF_REFUSED_BAILING,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_BAILING,
};
