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

static const struct wf_engine_row vllm_rows[] = {WF_VLLM_GEMMA3_ROWS};
static const struct wf_engine_alias vllm_aliases[] = {WF_VLLM_TIED_EVERYWHERE};
static const struct wf_engine_row sglang_rows[] = {WF_SGLANG_GEMMA3_ROWS};

static const struct wf_family_engine engines[] = {
    {.engine = "vllm", WF_ROWS_OF(vllm_rows), WF_ALIASES_OF(vllm_aliases)},
    {.engine = "sglang", .requires = WF_SGLANG_GEMMA3_REQUIRES, WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_gemma3_text = {
    .name = "gemma3_text",
    .model_types = "gemma3_text",
    .refused = WF_REFUSED_GEMMA "|" WF_REFUSED_NESTED,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_HEAD_DIM "|" WF_REQUIRES_FP8,
};
