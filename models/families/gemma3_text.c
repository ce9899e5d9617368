/* gemma3_text.c - Gemma 3, 270M and 1B: norms on q and k. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/gemma.h"

/* Defaults of absent keys: transformers 5, models/gemma3/configuration_gemma3.py. */
static const struct wf_family_size sizes[] = {WF_SIZES_GEMMA("262208"),
                                              {"qk_norm", NULL, "1", NULL}};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model.")};

static const struct wf_family_row rows[] = {
    WF_ROWS_GEMMA("model."),     WF_ROWS_QK_NORM(NULL, NULL),   WF_ROWS_GEMMA_MLP,
    WF_ROW_FINAL_NORM("model."), WF_ROW_HEAD("lm_head.weight"),
};

static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_EMBEDDING_EVERYWHERE,
    WF_VLLM_NORM_EVERYWHERE,
    WF_VLLM_HEAD_EVERYWHERE,
};
static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_TIED_EVERYWHERE,
};

/* SGLang [models/gemma3_causal.py]: a plain embedding, whole on every rank and without padding. */
static const struct wf_engine_row sglang_rows[] = {
    {.name = "{name}", .parts = "embedding", .when = "embeds"},
};

static const struct wf_family_engine engines[] = {
    {.engine = "vllm",
     .rows = vllm_rows,
     .row_count = WF_COUNT(vllm_rows),
     .aliases = vllm_aliases,
     .alias_count = WF_COUNT(vllm_aliases)},
    {.engine = "sglang",
     .requires = WF_SGLANG_NO_DP_ATTENTION "|pp == 1: no layout of several stages is known",
     .rows = sglang_rows,
     .row_count = WF_COUNT(sglang_rows)},
};

const struct wf_family wf_family_gemma3_text = {
    .name = "gemma3_text",
    .model_types = "gemma3_text",
    .refused = WF_REFUSED_GEMMA "|" WF_REFUSED_NESTED,
    .sizes = sizes,
    .size_count = WF_COUNT(sizes),
    .stacks = stacks,
    .stack_count = WF_COUNT(stacks),
    .rows = rows,
    .row_count = WF_COUNT(rows),
    .engines = engines,
    .engine_count = WF_COUNT(engines),
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_HEAD_DIM,
};
