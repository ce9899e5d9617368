/* mixtral.c - Mixtral: every layer has experts, under names of their own. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/rows.h"

/* Defaults of absent keys: transformers 5, models/mixtral/configuration_mixtral.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "null ? nq : 8", NULL},
    {"d", "head_dim", "H / nq", NULL},
    WF_SIZE_TIED("0"),
    {"E", "num_local_experts", NULL, NULL},
    {"I", "intermediate_size", NULL, NULL},
    {"moe", NULL, "1", NULL},
    {"no_redundant", NULL, "1", NULL}, /* SGLang's class (engines/sglang_ranks.c) */
    WF_SIZES_FP8,
};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model.")};

#define MOE "block_sparse_moe."

/* [vLLM: models/mixtral.py] w1 is gate, w3 is up, w2 is down. */
static const struct wf_family_row rows[] = {
    WF_ROW_EMBEDDING("model."),
    WF_ROW_INPUT_NORM(NULL),
    WF_ROWS_QKV_FP8(NULL, "1"),
    WF_ROWS_O_FP8(NULL, "1"),
    WF_ROW_POST_NORM(NULL),
    WF_ROW("router", MOE "gate.weight", "E,H", NULL, NULL, NULL),
    WF_ROWS_LINEAR("expert_gate", MOE "experts.{expert}.w1", "I", "H", NULL, "1", NULL),
    WF_ROWS_LINEAR("expert_down", MOE "experts.{expert}.w2", "H", "I", NULL, "1", NULL),
    WF_ROWS_LINEAR("expert_up", MOE "experts.{expert}.w3", "I", "H", NULL, "1", NULL),
    WF_ROW_FINAL_NORM("model."),
    WF_ROW_HEAD("lm_head.weight"),
};

/* In memory transformers 5 calls the block mlp. */
static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_EMBEDDING_EVERYWHERE,
    WF_VLLM_NORM_EVERYWHERE,
    WF_VLLM_HEAD_EVERYWHERE,
};
static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_TIED_EVERYWHERE,
};

/* SGLang builds the head on every stage [models/mixtral.py]. */
static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_HEAD_EVERYWHERE(NULL),
    WF_SGLANG_QKV_WITH_KV_SCALES,
};

static const struct wf_family_engine engines[] = {
    {.engine = "memory", .renames = "block_sparse_moe.=>mlp.", .order = WF_ROUTER_FIRST},
    {.engine = "vllm", WF_ROWS_OF(vllm_rows), WF_ALIASES_OF(vllm_aliases)},
    {.engine = "sglang",
     .requires = WF_SGLANG_UNTIED
     "|" WF_SGLANG_NO_DP_ATTENTION
     "|nq * d == H: SGLang's class ignores head_dim and takes hidden_size / heads",
     WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_mixtral = {
    .name = "mixtral",
    .model_types = "mixtral",
    .refused = WF_REFUSED_ALWAYS "|" WF_REFUSED_NESTED "|" WF_REFUSED_SHARED "|" WF_REFUSED_MTP
                                 "|" WF_REFUSED_QK_NORM "|" WF_REFUSED_USE_BIAS
                                 "|" WF_REFUSED_QKV_BIAS "|" WF_REFUSED_MLP_BIAS "|"
                                 "attention_bias: biases of the attention",
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_FP8,
};
