/* sglang.h - what the files of the engine sglang share: its own keys in wf_recipe.own, its rows. */
#ifndef WEFT_MODELS_ENGINES_SGLANG_H
#define WEFT_MODELS_ENGINES_SGLANG_H

#include "models/engines/engine.h"

/* Indices into wf_recipe.own; words count from 0 as the table of keys lists them. */
enum wf_sglang_own {
    WF_SGLANG_DP_ATTENTION,
    WF_SGLANG_DP_LM_HEAD,
    WF_SGLANG_MOE_DENSE_TP, /* 0: as tp */
    WF_SGLANG_REDUNDANT,    /* slots beyond the experts, of all ranks */
    WF_SGLANG_SHARED,
    WF_SGLANG_MOE_BACKEND,
    WF_SGLANG_A2A,
    WF_SGLANG_FP8_GEMM,
    WF_SGLANG_ATTENTION,
    WF_SGLANG_STAGE,
    WF_SGLANG_CAPABILITY,
    WF_SGLANG_VISION,
    WF_SGLANG_SWIGLU_INTERLEAVED,
    WF_SGLANG_OWN_COUNT
};

extern const struct wf_engine_row wf_sglang_rows[];
extern const size_t wf_sglang_row_count;

#endif
