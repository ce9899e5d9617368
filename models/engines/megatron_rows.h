/* megatron_rows.h - the rows of Megatron's table, apart from its rules. */
#ifndef WEFT_MODELS_ENGINES_MEGATRON_ROWS_H
#define WEFT_MODELS_ENGINES_MEGATRON_ROWS_H

#include "models/engines/engine.h"

/* Where mbridge keeps the vision tower of Qwen3.5 as the Hugging Face module: under its names and
 * whole on every rank (that family has delta nets). */
#define WF_MEGATRON_HF_VISION "loader.mbridge && gk > 0"

enum { WF_MEGATRON_ROWS = 117 };
extern const struct wf_engine_row wf_megatron_rows[WF_MEGATRON_ROWS];

#endif
