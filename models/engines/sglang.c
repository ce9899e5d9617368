/* sglang.c - the table of SGLang: which live parameters its model classes have, how each is made,
 * its keys, and what is refused. Where ranks, layers and experts stand is in sglang_ranks.c.
 *
 * Read in the project (names in brackets are files below python/sglang/srt) and held against the
 * layouts of release 0.5.23 in tests/golden/real/sglang-*. Names follow the checkpoint's, because
 * the loaders rename only what they fuse; what one class does otherwise stands with its family.
 *
 *   fused linears   [layers/linear.py: QKVParallelLinear, MergedColumnParallelLinear] each rank
 *                   fuses its own shares; with more ranks than KV heads a head is repeated
 *   vocabulary      [layers/vocab_parallel_embedding.py] padded to 64, zeros behind; over the
 *                   attention's ranks under dp_attention, the head only with dp_lm_head
 *   attention       [layers/dp_attention.py: compute_dp_attention_world_info] over tp / dp ranks
 *   dense MLP       cut over all ranks; some classes keep it whole with moe_dense_tp=1
 *                   [layers/layer_boundary/layout.py: is_dense_ffn_fully_dp]
 *   experts         [layers/moe/fused_moe_triton/layer.py] over ep ranks, each cut over tp / ep
 *   shared experts  cut over all ranks; whole with DeepEP [models/deepseek_v2.py]
 *   block fp8       [layers/quantization/fp8.py] one scale for 128 x 128, named weight_scale_inv
 */
#include "models/engines/sglang.h"

#include "models/engines/keys.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define SCALE WF_SERVING_SCALE

static const struct wf_engine_row rows[] = {
    {.name = "{name}",
     .parts = "embedding",
     .when = "embeds",
     .pad = "vocab_multiple",
     .cuts = "0/embed"},
    {.name = "{name}", .parts = "final_norm", .when = "norms"},
    /* Of several stages the last has a head of its own, tied or not [models/qwen3.py]. */
    {.name = "{top}lm_head.weight",
     .parts = "head",
     .when = "heads && (!tied || pp > 1)",
     .pad = "vocab_multiple",
     .cuts = "0/head"},

    WF_SGLANG_WHOLE("input_norm|post_norm|attn_out_norm|mlp_out_norm|q_norm|k_norm"),
    WF_SGLANG_FUSED_OF("{dir}qkv_proj.weight", "q k v", "attn"),
    WF_SGLANG_FUSED_OF("{dir}qkv_proj.bias", "q_bias k_bias v_bias", "attn"),
    /* By head where a head is whole blocks, so that few KV heads are repeated with their scales. */
    WF_SGLANG_FUSED_OF("{dir}qkv_proj." SCALE,
                       "q_scale " WF_SERVING_KV_SCALE("k_scale") " " WF_SERVING_KV_SCALE("v_scale"),
                       "attn"),
    WF_SGLANG_FUSED_OF("{name}", WF_SERVING_QKV("qkv", "nq", "nk", "d"), "attn"),
    WF_SGLANG_FUSED_OF("{name}", WF_SERVING_QKV("qkv_scale", "nq", "nk", "d / 128"), "attn"),
    WF_SGLANG_FUSED_OF("{dir}qkv_proj." WF_SERVING_ROW_SCALE, "q_rows k_rows v_rows", "attn"),
    WF_SGLANG_COLUMNS_OF("o|o_scale", "attn"),
    WF_SGLANG_WHOLE("o_rows"),
    WF_SGLANG_WHOLE("o_bias"),
    WF_SGLANG_ROWS_OF("g_proj|g_norm", "attn"), /* [models/bailing_moe_linear.py] */

    /* MLA [models/deepseek_v2.py: DeepseekV2AttentionMLA]: one linear of both a-projections that no
     * rank cuts; without q_lora kv_a stands alone. */
    {.name = "{dir}fused_qkv_a_proj_with_mqa.weight", .parts = "q_a kv_a"},
    {.name = "{dir}fused_qkv_a_proj_with_mqa." SCALE, .parts = "q_a_scale kv_a_scale"},
    {.name = "{name}", .parts = "kv_a", .when = "!has.q_a"},
    {.name = "{name}", .parts = "kv_a_scale", .when = "!has.q_a_scale"},
    {.name = "{name}", .parts = "q", .when = "has.kv_b", .cuts = "0/attn"},
    {.name = "{name}", .parts = "q_scale", .when = "has.kv_b", .cuts = "0/attn"},
    WF_SGLANG_WHOLE("q_a_norm|kv_a_norm"),
    WF_SGLANG_ROWS_OF("q_b|q_b_scale|kv_b|kv_b_scale", "attn"),
    /* Copies for the absorbed products, made by the model's own post_load_weights
     * [models/deepseek_common/deepseek_weight_loader.py]: in the model's dtype they are the same
     * numbers and are written like any tensor; of fp8 weights they are dequantised. */
    {.name = "attr:{dir}w_kc",
     .parts = "kv_b(nq, dn + dv@0:dn)",
     .when = "!has.kv_b_scale",
     .cuts = "0/attn",
     .view = "(n a:dn) c -> n c a",
     .shape = "rows / dn, dn, columns",
     .order = "0 2 1"},
    {.name = "attr:{dir}w_vc",
     .parts = "kv_b(nq, dn + dv@dn:dn + dv)",
     .when = "!has.kv_b_scale && nq > attn_size",
     .cuts = "0/attn",
     .shape = "rows / dv, columns, dv",
     .order = "0 2 1"},
    /* The rows of a single head lie together, and contiguous() copies nothing. */
    {.name = "attr:{dir}w_vc",
     .parts = "kv_b(nq, dn + dv@dn:dn + dv)",
     .when = "!has.kv_b_scale && nq == attn_size",
     .cuts = "0/attn",
     .shape = "rows / dv, columns, dv",
     .kind = WF_ROW_VIEW},
    {.name = "attr:{dir}w_kc",
     .parts = "kv_b(nq, dn + dv@0:dn)",
     .when = "has.kv_b_scale",
     .cuts = "0/attn",
     .shape = "rows / dn, dn, columns",
     .order = "0 2 1",
     .dtype = "model",
     .kind = WF_ROW_DERIVED},
    {.name = "attr:{dir}w_vc",
     .parts = "kv_b(nq, dn + dv@dn:dn + dv)",
     .when = "has.kv_b_scale",
     .cuts = "0/attn",
     .shape = "rows / dv, columns, dv",
     .order = "0 2 1",
     .dtype = "model",
     .kind = WF_ROW_DERIVED},
    WF_SGLANG_KV_SCALES("kv_b", "attn_mqa", "fp8"),
    WF_SGLANG_KV_SCALES("kv_b", "attn_mha", "fp8"),
    /* V3.2's indexer [layers/attention/nsa/nsa_indexer.py] is whole on every rank. */
    WF_SGLANG_WHOLE("indexer_q_b|indexer_q_b_scale|indexer_k|indexer_k_scale|indexer_weights"),
    WF_SGLANG_WHOLE_AS("indexer_k_norm|indexer_k_norm_bias", "f32"),

    WF_SGLANG_DENSE_MLP("tp"),

    WF_SGLANG_WHOLE("router|shared_router"),
    WF_SGLANG_WHOLE_AS("router_correction", "f32"),
    WF_SGLANG_EXPERTS("1", WF_SGLANG_NO_EXTRA),
    WF_SGLANG_INT4_EXPERTS,
    WF_SERVING_SHARED(NULL),

    /* Gated delta nets [models/qwen3_next.py, qwen3_5.py]. Qwen3-Next's checkpoints hold q, k, v, z
     * by head and are cut as they stand. */
    WF_SGLANG_ROWS_OF("gdn_qkvz|gdn_qkvz_scale|gdn_ba|gdn_dt_bias", "attn"),
    WF_SGLANG_FUSED_OF("{dir}in_proj_qkvz.weight", WF_SERVING_GDN("gdn_qkv") " gdn_z", "attn"),
    WF_SGLANG_FUSED_OF("{dir}in_proj_qkvz." SCALE,
                       WF_SERVING_GDN_SCALE("gdn_qkv_scale") " gdn_z_scale", "attn"),
    WF_SGLANG_FUSED_OF("{dir}in_proj_ba.weight", "gdn_b gdn_a", "attn"),
    WF_SGLANG_FUSED_OF("{name}", WF_SERVING_GDN("gdn_conv"), "attn"),
    {.name = "{name}", .parts = "gdn_a_log", .cuts = "0/attn", .dtype = "f32"},
    WF_SGLANG_WHOLE("gdn_norm"),
    WF_SGLANG_COLUMNS_OF("gdn_out|gdn_out_scale", "attn"),

    /* Vision towers [models/qwen3_vl.py, siglip.py]: positions are a VocabParallelEmbedding, so
     * padded to 64 rows even where the tower is whole on every rank. */
    WF_SGLANG_WHOLE("vision_patch|vision_patch_bias|vision_post_norm|vision_post_norm_bias"),
    {.name = "{name}", .parts = "vision_pos", .when = "embeds", .pad = "64", .cuts = "0/vision"},
    WF_SGLANG_WHOLE("vision_norm1|vision_norm1_bias|vision_norm2|vision_norm2_bias"),
    WF_SGLANG_FUSED_OF("{dir}qkv_proj.weight", WF_SERVING_VISION_QKV("vision_qkv"), "vision"),
    WF_SGLANG_FUSED_OF("{dir}qkv_proj.bias", WF_SERVING_VISION_QKV("vision_qkv_bias"), "vision"),
    WF_SGLANG_FUSED_OF("{dir}qkv_proj.weight", "vision_q vision_k vision_v", "vision"),
    WF_SGLANG_FUSED_OF("{dir}qkv_proj.bias", "vision_q_bias vision_k_bias vision_v_bias", "vision"),
    WF_SGLANG_COLUMNS_OF("vision_proj|vision_fc2|merger_fc2|deepstack_fc2", "vision"),
    WF_SGLANG_WHOLE("vision_proj_bias|vision_fc2_bias|merger_fc2_bias|deepstack_fc2_bias"),
    WF_SGLANG_ROWS_OF("vision_fc1|vision_fc1_bias|merger_fc1|merger_fc1_bias|deepstack_fc1|"
                      "deepstack_fc1_bias",
                      "vision"),
    WF_SGLANG_WHOLE("merger_norm|merger_norm_bias|deepstack_norm|deepstack_norm_bias"),
    WF_SGLANG_WHOLE("vision_projection|vision_projection_norm"),
};

static const struct wf_engine_alias aliases[] = {
    {"embedding", "{top}lm_head.weight", "tied && pp == 1"},
};

static const char *const versions[] = {"0.5.23", NULL};

/* What stands behind a key in the framework is the option of ServerArgs of the same name (SGLang:
 * server_args.py), unless a comment says otherwise. */
static const struct wf_engine_key keys[] = {
    {.name = "version", .kind = WF_KEY_VERSION},
    {.name = "dtype", .kind = WF_KEY_DTYPE},
    WF_WORD_KEY("quant", quant, WF_RECIPE_QUANT_WORDS),
    WF_RANKS_KEY("tp", tp),
    WF_RANKS_KEY("pp", pp),
    /* dp_size: groups of ranks with an attention of their own; needs dp_attention */
    WF_RANKS_KEY("dp", own[WF_SGLANG_DP]),
    WF_RANKS_KEY("ep", ep),
    WF_RANKS_KEY("engines", engines),
    WF_FLAG_KEY("dp_attention", own[WF_SGLANG_DP_ATTENTION], 0), /* enable_dp_attention */
    WF_FLAG_KEY("dp_lm_head", own[WF_SGLANG_DP_LM_HEAD], 0),     /* enable_dp_lm_head */
    /* moe_dense_tp_size; 0: as tp */
    WF_SIZE_KEY("moe_dense_tp", own[WF_SGLANG_MOE_DENSE_TP], 0, WF_WORLD_MAX),
    /* ep_num_redundant_experts */
    WF_SIZE_KEY("redundant", own[WF_SGLANG_REDUNDANT], 0, WF_SLOTS_MAX),
    /* disable_shared_experts_fusion: separate; enforce_shared_experts_fusion: fused */
    WF_WORD_KEY("shared_experts", own[WF_SGLANG_SHARED], "auto|separate|fused"),
    /* moe_runner_backend */
    WF_WORD_KEY("moe_backend", own[WF_SGLANG_MOE_BACKEND],
                "auto|triton|triton_kernel|deep_gemm|cutlass|flashinfer_cutlass|flashinfer_trtllm|"
                "flashinfer_trtllm_routed|flashinfer_mxfp4|flashinfer_cutedsl|marlin|aiter"),
    /* moe_a2a_backend */
    WF_WORD_KEY("a2a", own[WF_SGLANG_A2A], "none|deepep|mooncake|nixl|mori|megamoe|flashinfer"),
    /* fp8_gemm_runner_backend */
    WF_WORD_KEY("fp8_gemm", own[WF_SGLANG_FP8_GEMM],
                "auto|triton|deep_gemm|cutlass|flashinfer_trtllm|flashinfer_cutlass|aiter"),
    /* attention_backend; only trtllm_mha changes a tensor (gpt-oss: the sinks' type) */
    WF_WORD_KEY("attention", own[WF_SGLANG_ATTENTION],
                "auto|trtllm_mha|triton|torch_native|flex_attention|dsa|nsa|cutlass_mla|fa3|fa4|"
                "flashinfer|flashmla|trtllm_mla|cutedsl_mla|tokenspeed_mla|dual_chunk_flash_attn"),
    /* post: after the quantisation methods' process_weights_after_loading */
    WF_WORD_KEY("stage", own[WF_SGLANG_STAGE], "load|post"),
    WF_WORD_KEY("capability", own[WF_SGLANG_CAPABILITY], "sm90|sm100"), /* of the device */
    WF_WORD_KEY("vision", own[WF_SGLANG_VISION], "tp|data"), /* data: mm_enable_dp_encoder */
    /* environment SGLANG_OPT_FUSE_SWIGLU_INTERLEAVED */
    WF_FLAG_KEY("swiglu_interleaved", own[WF_SGLANG_SWIGLU_INTERLEAVED], 0),
    WF_REFUSED_KEY("attn_cp", "1", "attention over several context ranks is not known"),
    WF_REFUSED_KEY("moe_dp", "1", "several data-parallel groups of experts are not known"),
    WF_REFUSED_KEY("placement", NULL, "a placement of experts is a table, given beside the SPEC"),
};

/* What neither an executed layout nor a rule shows, and what SGLang refuses itself. */
#define REQUIRES                                                                                   \
    "(ep == 1 || E > 0): the model has no experts that ep could deal out|"                         \
    "(E == 0 || tp <= E): SGLang's classes refuse more tensor parallel ranks than experts|"        \
    "(gk % attn_size == 0 && gv % attn_size == 0): heads of the delta nets cannot be divided "     \
    "over the attention's ranks|"                                                                  \
    "(a2a.none || a2a.deepep): what this all-to-all makes of shared experts is not known|"         \
    "(E == 0 || !moe_backend.auto || capability.sm90): on sm100 SGLang chooses the backend of "    \
    "experts by class and release; name it with moe_backend|"                                      \
    "(E == 0 || int4 || moe_backend.auto || moe_backend.triton || "                                \
    "moe_backend.triton_kernel || "                                                                \
    "moe_backend.deep_gemm || moe_backend.flashinfer_cutlass || "                                  \
    "moe_backend.flashinfer_trtllm): no layout of this backend of experts is known|"               \
    "(!moe_backend.flashinfer_trtllm || (I % (128 * etp_size) == 0 && H % 128 == 0)): TRT-LLM "    \
    "pads an expert's share to 128, and what the hook makes of the padding is not known|"          \
    "(!fp8 || (bn == 128 && bk == 128)): SGLang's block fp8 is known with blocks of 128 x 128|"    \
    "(!fp8 || E == 0 || (I % (128 * etp_size) == 0 && S % (128 * shared_size) == 0)): SGLang "     \
    "refuses shares of experts that are no whole fp8 blocks|"                                      \
    "(!fp8 || (c > 0 && !latents) || (nq * d % (128 * attn_size) == 0 && (nk < attn_size ? "       \
    "d : nk * d / attn_size) % 128 == 0)): SGLang refuses shares of q, k or v that are no "        \
    "whole fp8 blocks|"                                                                            \
    "(!fp8 || E == 0 || !(moe_backend.flashinfer_cutlass || moe_backend.triton_kernel)): "         \
    "SGLang does not run this backend of experts on block fp8|"                                    \
    "(!fp8_rows || E == 0 || S == 0): of experts in fp8 with a scale for each row, beside shared " \
    "ones no layout is known|"                                                                     \
    "(!fp8_rows || E == 0 || moe_backend.auto || moe_backend.triton): what this backend makes of " \
    "experts in fp8 with a scale for each row is not known|"                                       \
    "(!fp8_rows || stage.load): the hooks of fp8 with a scale for each row transpose the codes; "  \
    "write before them (stage=load) and let them run|"                                             \
    "(!fp8 || stage.load || capability.sm90): on sm100 the hooks requantise and repack the "       \
    "scales of block fp8; write before them (stage=load) and let them run|"                        \
    "(!fp8 || stage.load || fp8_gemm.auto || fp8_gemm.triton || fp8_gemm.deep_gemm): what the "    \
    "hook of this fp8_gemm leaves is not known; use stage=load|"                                   \
    "(!mxfp4 || stage.load): the hooks of mxfp4 interleave and repack on the device; write "       \
    "before them (stage=load) and let them run|"                                                   \
    "(!int4 || stage.load): the hooks of int4 repack for the device's kernel; write before them "  \
    "(stage=load) and let them run|"                                                               \
    "(!int4 || E == 0 || (I % (pack_group * etp_size) == 0 && H % pack_group == 0)): shares of "   \
    "int4 experts must be whole groups; use fewer ranks, or ep|"                                   \
    "(!int4 || moe_backend.auto || moe_backend.triton || moe_backend.marlin): what this backend "  \
    "makes of int4 experts is not known|"                                                          \
    "(!swiglu_interleaved || E == 0 || (moe_backend.triton && !fp8 && !mxfp4)): interleaved "      \
    "gate and up are known with moe_backend=triton and unquantised experts only"

const struct wf_engine wf_engine_sglang = {
    .name = "sglang",
    .view = WF_VIEW_SPEC,
    .versions = versions,
    .keys = keys,
    .key_count = COUNT(keys),
    .vocab_multiple = 64, /* [layers/vocab_parallel_embedding.py: DEFAULT_VOCAB_PADDING_SIZE] */
    .excluded_by = WF_EXCLUDED_BY_WORDS,
    .skipped_stacks = "mtp", /* a draft model of its own */
    .rows = rows,
    .row_count = COUNT(rows),
    .aliases = aliases,
    .alias_count = COUNT(aliases),
    .check_recipe = wf_sglang_check_recipe,
    .requires = REQUIRES,
    .chunks = wf_sglang_chunks,
    .coordinates = wf_sglang_coordinates,
    .experts = wf_sglang_experts,
};
