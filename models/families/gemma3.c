/* gemma3.c - Gemma 3, 4B and up: the text model below another prefix. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/gemma.h"

/* Defaults of absent keys: transformers 5, models/gemma3/configuration_gemma3.py. */
static const struct wf_family_size sizes[] = {WF_SIZES_GEMMA("262208"),
                                              {"qk_norm", NULL, "1", NULL}};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("language_model.model.")};

static const struct wf_family_row rows[] = {
    WF_ROWS_GEMMA("language_model.model."),
    WF_ROWS_QK_NORM(NULL, NULL),
    WF_ROWS_GEMMA_MLP,
    WF_ROW_FINAL_NORM("language_model.model."),
    WF_ROW_HEAD("language_model.lm_head.weight"),
};

static const struct wf_engine_row vllm_rows[] = {WF_VLLM_GEMMA3_ROWS};
static const struct wf_engine_alias vllm_aliases[] = {WF_VLLM_TIED_EVERYWHERE};
static const struct wf_engine_row sglang_rows[] = {WF_SGLANG_GEMMA3_ROWS};

/* Files and memory of transformers 5 disagree (tests/golden/real/hf-transformers-5.24.0). */
static const struct wf_family_engine engines[] = {
    {.engine = "memory",
     .renames = "language_model.model.=>model.language_model. language_model.lm_head.=>lm_head."},
    WF_MEGATRON_INSIDE,
    {.engine = "vllm",
     WF_ROWS_OF(vllm_rows),
     WF_ALIASES_OF(vllm_aliases),
     .prefix = "language_model."},
    {.engine = "sglang",
     .prefix = "language_model.",
     .requires = WF_SGLANG_GEMMA3_REQUIRES,
     WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_gemma3 = {
    .name = "gemma3",
    .model_types = "gemma3",
    .text_config = "text_config",
    .refused = WF_REFUSED_GEMMA,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_HEAD_DIM "|" WF_REQUIRES_FP8,
};
