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

/* Files and memory of transformers 5 disagree (LAYOUTS 3.14). */
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
    {.engine = "memory",
     .renames = "language_model.model.=>model.language_model. language_model.lm_head.=>lm_head."},
    WF_MEGATRON_INSIDE,
    {.engine = "vllm",
     .rows = vllm_rows,
     .row_count = WF_COUNT(vllm_rows),
     .aliases = vllm_aliases,
     .alias_count = WF_COUNT(vllm_aliases),
     .prefix = "language_model."},
    {.engine = "sglang",
     .prefix = "language_model.",
     .requires = WF_SGLANG_NO_DP_ATTENTION "|pp == 1: no layout of several stages is known",
     .rows = sglang_rows,
     .row_count = WF_COUNT(sglang_rows)},
};

const struct wf_family wf_family_gemma3 = {
    .name = "gemma3",
    .model_types = "gemma3",
    .text_config = "text_config",
    .refused = WF_REFUSED_GEMMA,
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
