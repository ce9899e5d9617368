/* vllm_rows.h - vLLM's tensors as rows, apart from its rules; private to engines/vllm*.c. */
#ifndef WEFT_MODELS_ENGINES_VLLM_ROWS_H
#define WEFT_MODELS_ENGINES_VLLM_ROWS_H

#include "models/engines/engine.h"

/* Counted here, because the engine's table needs constants. */
enum { WF_VLLM_ROWS = 66, WF_VLLM_ALIASES = 8 };
extern const struct wf_engine_row wf_vllm_rows[WF_VLLM_ROWS];
extern const struct wf_engine_alias wf_vllm_aliases[WF_VLLM_ALIASES];

/* Where its own keys stand in wf_recipe.own. */
enum wf_vllm_own {
    WF_VLLM_REDUNDANT,
    WF_VLLM_EPLB,
    WF_VLLM_STRATEGY,
    WF_VLLM_STAGE,
    WF_VLLM_MOE_BACKEND,
    WF_VLLM_DEEP_GEMM,
    WF_VLLM_VISION,
    WF_VLLM_CAPABILITY,
    WF_VLLM_QUANT,
};
enum { WF_VLLM_LINEAR, WF_VLLM_ROUND_ROBIN };
enum { WF_VLLM_LOAD, WF_VLLM_POST };
enum { WF_VLLM_AUTO, WF_VLLM_TRITON, WF_VLLM_FLASHINFER_CUTLASS, WF_VLLM_FLASHINFER_TRTLLM };
/* The last ones leave before the hook what triton leaves; what they leave after it is not known. */
#define WF_VLLM_MOE_BACKENDS \
    "auto|triton|flashinfer_cutlass|flashinfer_trtllm|deep_gemm|cutlass|marlin"
enum { WF_VLLM_GEMM_UNSAID, WF_VLLM_GEMM_OFF };

#endif
