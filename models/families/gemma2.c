/* gemma2.c - Gemma 2: no norms on q and k. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/gemma.h"

/* Defaults of absent keys: transformers 5, models/gemma2/configuration_gemma2.py. */
static const struct wf_family_size sizes[] = {WF_SIZES_GEMMA("256000")};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model.")};

static const struct wf_family_row rows[] = {
    WF_ROWS_GEMMA("model."),
    WF_ROWS_GEMMA_MLP,
    WF_ROW_FINAL_NORM("model."),
    WF_ROW_HEAD("lm_head.weight"),
};

/* Its class has no head: logits are the embedding's [vLLM: models/gemma2.py]. */
static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_EMBEDDING_EVERYWHERE,
    WF_VLLM_NORM_EVERYWHERE,
    {.name = "{name}", .parts = "head", .kind = WF_ROW_ABSENT},
};
static const struct wf_engine_alias vllm_aliases[] = {
    {"embedding", NULL, NULL},
};

/* SGLang [models/gemma2.py]: logits come from the embedding itself, there is no head. */
static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_GEMMA_NORMS("pre_feedforward_layernorm"),
    WF_SGLANG_GEMMA_NORM("attn_out_norm", "post_attention_layernorm", NULL),
    WF_SGLANG_GEMMA_NORM("mlp_out_norm", "post_feedforward_layernorm", NULL),
    WF_SGLANG_QKV_WITH_KV_SCALES,
};
static const struct wf_engine_alias sglang_aliases[] = {{"embedding", NULL, NULL}};

static const struct wf_family_engine engines[] = {
    {.engine = "vllm",
     WF_ROWS_OF(vllm_rows),
     WF_ALIASES_OF(vllm_aliases),
     .requires = "tied: vLLM's Gemma 2 class has no head of its own"},
    {.engine = "sglang",
     .requires =
         WF_SGLANG_NO_DP_ATTENTION "|pp == 1: SGLang's class has one stage|tied: SGLang's class "
                                   "has no head of its own",
     WF_ROWS_OF(sglang_rows),
     WF_ALIASES_OF(sglang_aliases)},
};

const struct wf_family wf_family_gemma2 = {
    .name = "gemma2",
    .model_types = "gemma2",
    .refused = WF_REFUSED_GEMMA "|" WF_REFUSED_NESTED "|" WF_REFUSED_QK_NORM,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_HEAD_DIM "|" WF_REQUIRES_FP8,
};
