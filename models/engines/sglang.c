/* sglang.c - SGLang: its keys, and how its ranks, layers and experts stand (release 0.5.23).
 *
 * The rows of its tensors are in sglang_rows.c. "SGLang:" in comments names a file below
 * python/sglang/srt of the project.
 */
#include "models/engines/sglang.h"

#include <stddef.h>

static const char *const versions[] = {"0.5.23", NULL};

#define OWN(index) (offsetof(struct wf_recipe, own) + (index) * sizeof(uint32_t))
#define SIZE_KEY(name, field)                                                             \
    {                                                                                     \
        name, WF_KEY_SIZE, offsetof(struct wf_recipe, field), 1, WF_WORLD_MAX, NULL, NULL \
    }
#define FLAG_KEY(name, index)                           \
    {                                                   \
        name, WF_KEY_FLAG, OWN(index), 0, 1, NULL, NULL \
    }
#define WORD_KEY(name, index, words)                     \
    {                                                    \
        name, WF_KEY_WORD, OWN(index), 0, 0, words, NULL \
    }
#define REFUSED_KEY(name, only, why)             \
    {                                            \
        name, WF_KEY_REFUSED, 0, 0, 0, why, only \
    }

/* What stands behind a key in the framework is the option of ServerArgs of the same name (SGLang:
 * server_args.py), unless a comment says otherwise. */
static const struct wf_engine_key keys[] = {
    {"version", WF_KEY_VERSION, 0, 0, 0, NULL, NULL},
    {"dtype", WF_KEY_DTYPE, 0, 0, 0, NULL, NULL},
    SIZE_KEY("tp", tp),
    SIZE_KEY("pp", pp),
    SIZE_KEY("dp", dp), /* dp_size: groups of ranks with their own attention; needs dp_attention */
    SIZE_KEY("ep", ep),
    SIZE_KEY("engines", engines),
    FLAG_KEY("dp_attention", WF_SGLANG_DP_ATTENTION), /* enable_dp_attention */
    FLAG_KEY("dp_lm_head", WF_SGLANG_DP_LM_HEAD),     /* enable_dp_lm_head */
    /* moe_dense_tp_size; 0: as tp */
    {"moe_dense_tp", WF_KEY_SIZE, OWN(WF_SGLANG_MOE_DENSE_TP), 0, 1, NULL, NULL},
    /* ep_num_redundant_experts */
    {"redundant", WF_KEY_SIZE, OWN(WF_SGLANG_REDUNDANT), 0, WF_SLOTS_MAX, NULL, NULL},
    /* disable_shared_experts_fusion: separate; enforce_shared_experts_fusion: fused */
    WORD_KEY("shared_experts", WF_SGLANG_SHARED, "auto|separate|fused"),
    /* moe_runner_backend */
    WORD_KEY("moe_backend", WF_SGLANG_MOE_BACKEND,
             "auto|triton|triton_kernel|deep_gemm|cutlass|flashinfer_cutlass|flashinfer_trtllm|"
             "flashinfer_trtllm_routed|flashinfer_mxfp4|flashinfer_cutedsl|marlin|aiter"),
    /* moe_a2a_backend */
    WORD_KEY("a2a", WF_SGLANG_A2A, "none|deepep|mooncake|nixl|mori|megamoe|flashinfer"),
    /* fp8_gemm_runner_backend */
    WORD_KEY("fp8_gemm", WF_SGLANG_FP8_GEMM,
             "auto|triton|deep_gemm|cutlass|flashinfer_trtllm|flashinfer_cutlass|aiter"),
    WORD_KEY("attention", WF_SGLANG_ATTENTION, "auto|trtllm_mha"), /* attention_backend */
    /* post: after the quantisation methods' process_weights_after_loading */
    WORD_KEY("stage", WF_SGLANG_STAGE, "load|post"),
    WORD_KEY("capability", WF_SGLANG_CAPABILITY, "sm90|sm100"), /* of the device */
    WORD_KEY("vision", WF_SGLANG_VISION, "tp|data"),            /* data: mm_enable_dp_encoder */
    /* environment SGLANG_OPT_FUSE_SWIGLU_INTERLEAVED */
    FLAG_KEY("swiglu_interleaved", WF_SGLANG_SWIGLU_INTERLEAVED),
    REFUSED_KEY("attn_cp", "1", "attention over several context ranks is not known"),
    REFUSED_KEY("moe_dp", "1", "several data-parallel groups of experts are not known"),
    REFUSED_KEY("quant", NULL,
                "quantisation while loading is not known; weights that were stored "
                "quantised follow from the config alone"),
    REFUSED_KEY("placement", NULL, "a placement of experts is a table, given beside the SPEC"),
};

const struct wf_engine wf_engine_sglang = {
    .name = "sglang",
    .versions = versions,
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .vocab_multiple =
        64, /* SGLang: layers/vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE */
    .skipped_stacks = "mtp", /* a separate draft model */
};
