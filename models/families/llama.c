/* llama.c - Llama 2 and 3.x, and what calls itself one (SmolLM2). */
#include "models/engines/sglang.h"
#include "models/families/rows.h"

/* Defaults of absent keys: transformers 5, models/llama/configuration_llama.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "nq", NULL},
    {"d", "head_dim", "H / nq", NULL},
    {"F", "intermediate_size", NULL, NULL},
    WF_SIZE_TIED("0"),
    WF_SIZE_FLAG("attention_bias", "attention_bias", "0"),
    WF_SIZE_FLAG("mlp_bias", "mlp_bias", "0"),
    WF_SIZES_FP8,
};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model.")};

/* Biases: models/llama/modeling_llama.py, LlamaAttention (q, k, v and o under one
 * flag) and LlamaMLP. */
static const struct wf_family_row rows[] = {
    WF_ROW_EMBEDDING("model."),
    WF_ROW_INPUT_NORM(NULL),
    WF_ROWS_QKV_FP8(NULL, "1"),
    WF_ROWS_QKV_BIAS(NULL, "attention_bias"),
    WF_ROWS_O_FP8(NULL, "1"),
    WF_ROW("o_bias", "self_attn.o_proj.bias", "H", NULL, "attention_bias", NULL),
    WF_ROW_POST_NORM(NULL),
    WF_ROWS_MLP_FP8(NULL, "1"),
    WF_ROW("gate_bias", "mlp.gate_proj.bias", "F", NULL, "mlp_bias", NULL),
    WF_ROW("up_bias", "mlp.up_proj.bias", "F", NULL, "mlp_bias", NULL),
    WF_ROW("down_bias", "mlp.down_proj.bias", "H", NULL, "mlp_bias", NULL),
    WF_ROW_FINAL_NORM("model."),
    WF_ROW_HEAD("lm_head.weight"),
};

/* SGLang builds the head on every stage; tied, it is the embedding, so that stages behind the first
 * have none [models/llama.py: LlamaForCausalLM]. */
static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_HEAD_EVERYWHERE("!tied"),
    WF_SGLANG_QKV_WITH_KV_SCALES,
};
static const struct wf_engine_alias sglang_aliases[] = {WF_SGLANG_TIED_ON_FIRST_STAGE};

static const struct wf_family_engine engines[] = {
    {.engine = "sglang",
     .requires = WF_SGLANG_NO_DP_ATTENTION,
     WF_ROWS_OF(sglang_rows),
     WF_ALIASES_OF(sglang_aliases)},
};

const struct wf_family wf_family_llama = {
    .name = "llama",
    .model_types = "llama",
    .refused =
        WF_REFUSED_ALWAYS "|" WF_REFUSED_NESTED "|" WF_REFUSED_EXPERTS "|" WF_REFUSED_MTP
                          "|" WF_REFUSED_QK_NORM "|" WF_REFUSED_USE_BIAS "|" WF_REFUSED_QKV_BIAS,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_FP8,
};
