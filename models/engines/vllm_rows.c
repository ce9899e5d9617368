/* vllm_rows.c - which live parameters vLLM's model classes have, and how each is made.
 *
 * Read in release 0.33.0 (names in brackets are files under vllm/model_executor unless said) and
 * held against tests/golden/real/vllm-*. Names follow the checkpoint's, because vLLM's loaders
 * rename only what they fuse; a family's renames stand with the family.
 *
 *   fused linears   [layers/linear.py: QKVParallelLinear, MergedColumnParallelLinear] each rank
 *                   fuses its own shares; with more ranks than KV heads a head is repeated
 *   vocabulary      [layers/vocab_parallel_embedding.py] padded to 64, zeros behind
 *   experts         [layers/fused_moe/routed_experts.py] w13 is gate, up of each local expert; cut
 *                   over tensor and data parallel ranks together unless they are dealt out
 *   block fp8       [layers/quantization/fp8.py] one scale for 128 x 128; where an expert's share
 *                   is no multiple of 128 its scales are repeated to a finer square block
 *                   [layers/fused_moe/oracle/fp8.py: refine_fp8_moe_block_shape]
 *   fp8 by row      [layers/quantization/compressed_tensors/schemes/
 *                   compressed_tensors_w8a8_fp8.py] scales are cut as rows are, and whole where
 *                   columns are cut
 *   after the hook  [layers/fused_moe/oracle/unquantized.py, fp8.py; layers/quantization/utils/
 *                   flashinfer_utils.py] the backend decides what w13 and w2 hold
 */
#include "models/engines/vllm.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define SCALE WF_SERVING_SCALE
#define ROW_SCALE WF_SERVING_ROW_SCALE
/* Scales of the attention of compressed-tensors [layers/quantization/compressed_tensors/
 * compressed_tensors.py: CompressedTensorsKVCacheMethod]: 1 and 0 until they are calibrated. */
#define KV_KEEP(name_, dtype_)                                                             \
    {                                                                                      \
        .name = "{dir}attn." name_, .parts = "k_rows", .when = "stage.load", .shape = "1", \
        .dtype = dtype_, .kind = WF_ROW_KEEP                                               \
    }

/* A fused linear that every rank makes from its own shares. */
#define FUSED(name_, parts_)                                                \
    {                                                                       \
        .name = name_, .parts = parts_, .groups = "tp_size", .cuts = "0/tp" \
    }
#define WHOLE(parts_)                     \
    {                                     \
        .name = "{name}", .parts = parts_ \
    }
#define ROWS(parts_)                                      \
    {                                                     \
        .name = "{name}", .parts = parts_, .cuts = "0/tp" \
    }
#define COLUMNS(parts_)                                   \
    {                                                     \
        .name = "{name}", .parts = parts_, .cuts = "1/tp" \
    }

/* Of a vision tower: on the first stage. */
#define TOWER_WHOLE(parts_)                                 \
    {                                                       \
        .name = "{name}", .parts = parts_, .when = "embeds" \
    }
#define TOWER_FUSED(name_, parts_)                                                 \
    {                                                                              \
        .name = name_, .parts = parts_, .when = "embeds", .groups = "vision_size", \
        .cuts = "0/vision"                                                         \
    }

/* Experts: what the hook of the backend made of them, if it ran. */
#define PLAIN "stage.load || moe_backend.triton"
#define SWAPPED "stage.post && moe_backend.flashinfer_cutlass"
#define SHUFFLED "stage.post && moe_backend.flashinfer_trtllm"
#define EXPERTS(name_, parts_, when_)                                             \
    {                                                                             \
        .name = "{experts}routed_experts." name_, .parts = parts_, .when = when_, \
        .groups = "etp_size", .cuts = "0/etp"                                     \
    }
/* w2's scales and weights have the cut dimension in columns. */
#define EXPERTS_DOWN(name_, parts_, when_)                                                        \
    {                                                                                             \
        .name = "{experts}routed_experts." name_, .parts = parts_, .when = when_, .cuts = "1/etp" \
    }

/* The finer block of a share that is no multiple of 128: gcd(128, share, H), at least 32 (check()
 * of vllm.c refuses less). */
#define SHARE "(I / etp_size)"
#define REFINED SHARE " % 128 != 0"
#define BLOCK "(" SHARE " % 64 == 0 && H % 64 == 0 ? 64 : 32)"
#define REPEAT "*(128 / " BLOCK ")"
#define FINE(role_, rows_, columns_) \
    role_ "(" rows_ " ^ 128, " REPEAT "; " columns_ " ^ 128, " REPEAT ")"

/* KV heads of Ling; lightning attention has as many as query heads. */
#define LING_KV "(linear * nq + !linear * nk)"

const struct wf_engine_row wf_vllm_rows[] = {
    /* Most classes have the embedding on the first stage, and on the last if the head is tied to
     * it. Classes that take no notice of stages stand in their families. */
    {.name = "{name}",
     .parts = "embedding",
     .when = "embeds || (heads && tied)",
     .pad = "vocab_multiple",
     .cuts = "0/tp"},
    {.name = "{name}", .parts = "final_norm", .when = "heads"},
    {.name = "{name}",
     .parts = "head",
     .when = "heads && !tied",
     .pad = "vocab_multiple",
     .cuts = "0/tp"},

    WHOLE("input_norm|post_norm|attn_out_norm|mlp_out_norm|q_norm|k_norm"),
    FUSED("{dir}qkv_proj.weight", "q k v"),
    FUSED("{dir}qkv_proj.bias", "q_bias k_bias v_bias"),
    FUSED("{dir}qkv_proj." SCALE,
          "q_scale " WF_SERVING_KV_SCALE("k_scale") " " WF_SERVING_KV_SCALE("v_scale")),
    FUSED("{name}", WF_SERVING_QKV("qkv", "nq", LING_KV, "d")),
    FUSED("{name}", WF_SERVING_QKV("qkv_scale", "nq", LING_KV, "d / 128")),
    FUSED("{dir}qkv_proj." ROW_SCALE, "q_rows k_rows v_rows"),
    COLUMNS("o|o_scale"),
    WHOLE("o_bias|o_rows"),
    ROWS("sinks"),
    /* Scales of the attention of an fp8 model until they are calibrated; the hook removes them.
     * Attention over latents, lightning attention and Ling's [models/bailing_moe.py] have none. */
    {.name = "{dir}attn.q_scale",
     .parts = "k_scale",
     .when = "stage.load",
     .shape = "",
     .dtype = "model",
     .kind = WF_ROW_KEEP},
    {.name = "{dir}attn.k_scale",
     .parts = "k_scale",
     .when = "stage.load",
     .shape = "",
     .dtype = "model",
     .kind = WF_ROW_KEEP},
    {.name = "{dir}attn.v_scale",
     .parts = "k_scale",
     .when = "stage.load",
     .shape = "",
     .dtype = "model",
     .kind = WF_ROW_KEEP},
    {.name = "{dir}attn.prob_scale",
     .parts = "k_scale",
     .when = "stage.load",
     .shape = "",
     .dtype = "model",
     .kind = WF_ROW_KEEP},

    KV_KEEP("k_scale", "f32"),
    KV_KEEP("v_scale", "f32"),
    KV_KEEP("q_scale", "f32"),
    KV_KEEP("k_zero_point", "model"),
    KV_KEEP("v_zero_point", "model"),
    KV_KEEP("q_zero_point", "model"),

    /* MLA [models/deepseek_v2.py: DeepseekV2MLAAttention]: the two a-projections are one linear
     * that no rank cuts; without q_lora kv_a stands alone. */
    {.name = "{dir}fused_qkv_a_proj.weight", .parts = "q_a kv_a"},
    {.name = "{dir}fused_qkv_a_proj." SCALE, .parts = "q_a_scale kv_a_scale"},
    {.name = "{name}", .parts = "kv_a|kv_a_scale", .when = "qr == 0"},
    {.name = "{name}", .parts = "q|q_scale", .when = "mla", .cuts = "0/tp"},
    WHOLE("q_a_norm|kv_a_norm"),
    ROWS("q_b|q_b_scale|kv_b|kv_b_scale"),
    /* [layers/attention/mla_attention.py: process_weights_after_loading] */
    {.name = "{dir}mla_attn.mla_attn.W_UV",
     .parts = "kv_b(nq, dn + dv@dn:dn + dv)",
     .when = "stage.post && !has.kv_b_scale",
     .cuts = "0/tp",
     .shape = "rows / dv, columns, dv",
     .kind = WF_ROW_VIEW},
    {.name = "{dir}mla_attn.mla_attn.W_UK_T",
     .parts = "kv_b(nq, dn + dv@0:dn)",
     .when = "stage.post && !has.kv_b_scale",
     .cuts = "0/tp",
     .shape = "rows / dn, dn, columns",
     .kind = WF_ROW_VIEW},
    /* Of an fp8 kv_b_proj they are copies in the model's dtype, which the hook makes. */
    {.name = "{dir}mla_attn.mla_attn.W_UV",
     .parts = "kv_b(nq, dn + dv@dn:dn + dv)",
     .when = "stage.post && has.kv_b_scale",
     .cuts = "0/tp",
     .shape = "rows / dv, columns, dv",
     .dtype = "model",
     .kind = WF_ROW_DERIVED},
    {.name = "{dir}mla_attn.mla_attn.W_UK_T",
     .parts = "kv_b(nq, dn + dv@0:dn)",
     .when = "stage.post && has.kv_b_scale",
     .cuts = "0/tp",
     .shape = "rows / dn, dn, columns",
     .dtype = "model",
     .kind = WF_ROW_DERIVED},
    /* The indexer of V3.2 [models/deepseek_v32/attention.py] is whole on every rank. */
    WHOLE("indexer_q_b|indexer_q_b_scale"),
    {.name = "{dir}wk_weights_proj.weight", .parts = "indexer_k indexer_weights"},
    {.name = "{name}", .parts = "indexer_k_norm|indexer_k_norm_bias", .dtype = "f32"},

    FUSED("{dir}gate_up_proj.weight", "gate up"),
    FUSED("{dir}gate_up_proj.bias", "gate_bias up_bias"),
    FUSED("{dir}gate_up_proj." SCALE, "gate_scale up_scale"),
    FUSED("{dir}gate_up_proj." ROW_SCALE, "gate_rows up_rows"),
    COLUMNS("down|down_scale"),
    WHOLE("down_bias|down_rows"),

    WHOLE("router|router_bias|shared_router"),
    {.name = "{name}", .parts = "router_correction", .dtype = "f32"},
    FUSED("{dir}gate_up_proj.weight", "shared_gate shared_up"),
    FUSED("{dir}gate_up_proj." SCALE, "shared_gate_scale shared_up_scale"),
    FUSED("{dir}gate_up_proj." ROW_SCALE, "shared_gate_rows shared_up_rows"),
    COLUMNS("shared_down|shared_down_scale"),
    WHOLE("shared_down_rows"),

    EXPERTS("w13_weight", "expert_gate expert_up", PLAIN),
    EXPERTS("w13_weight", "expert_up expert_gate", SWAPPED),
    EXPERTS_DOWN("w2_weight", "expert_down", PLAIN " || " SWAPPED),
    /* bf16 [flashinfer: shuffle_matrix_a with an epilogue tile of 128, then blocks of 128 bytes]:
     * gate and up by eights, rows of a block permuted, columns in blocks of 64. Shapes stay. */
    {.name = "{experts}routed_experts.w13_weight",
     .parts = "expert_up expert_gate",
     .when = SHUFFLED " && !fp8",
     .groups = "etp_size",
     .cuts = "0/etp",
     .view = "e (u:2 g a:8 b:2) (k l:64) -> e k g b u a l"},
    {.name = "{experts}routed_experts.w2_weight",
     .parts = "expert_down",
     .when = SHUFFLED " && !fp8",
     .cuts = "1/etp",
     .view = "e (g a:8 b:4) (k l:64) -> e k g b a l"},
    /* Block fp8: up and gate each by themselves, columns in blocks of 128, which the shape shows.
     */
    {.name = "{experts}routed_experts.w13_weight",
     .parts = "expert_up expert_gate",
     .when = SHUFFLED " && fp8",
     .groups = "etp_size",
     .cuts = "0/etp",
     .view = "e (u:2 g a:8 b:2) (k l:128) -> e k u g b a l",
     .shape = "slots, columns / 128, rows, 128"},
    {.name = "{experts}routed_experts.w2_weight",
     .parts = "expert_down",
     .when = SHUFFLED " && fp8",
     .cuts = "1/etp",
     .view = "e (g a:8 b:2) (k l:128) -> e k g b a l",
     .shape = "slots, columns / 128, rows, 128"},
    EXPERTS("w13_" SCALE, "expert_gate_scale expert_up_scale", "(" PLAIN ") && !(" REFINED ")"),
    EXPERTS("w13_" SCALE, FINE("expert_gate_scale", "I", "H") " " FINE("expert_up_scale", "I", "H"),
            "(" PLAIN ") && " REFINED),
    EXPERTS("w13_" SCALE, "expert_up_scale expert_gate_scale", SWAPPED " || " SHUFFLED),
    EXPERTS_DOWN("w2_" SCALE, "expert_down_scale", "!(" REFINED ")"),
    EXPERTS_DOWN("w2_" SCALE, FINE("expert_down_scale", "H", "I"), REFINED),
    EXPERTS("w13_" ROW_SCALE, "expert_gate_rows expert_up_rows", NULL),
    {.name = "{experts}routed_experts.w2_" ROW_SCALE, .parts = "expert_down_rows"},

    /* int4 before the hook [layers/quantization/compressed_tensors/compressed_tensors_moe/
     * compressed_tensors_moe_wna16.py]: as in the checkpoint. Shapes are the same for ever, and of
     * the model's dtype here. */
    EXPERTS("w13_weight_packed", "expert_gate_int4 expert_up_int4", NULL),
    EXPERTS("w13_weight_scale", "expert_gate_int4_scale expert_up_int4_scale", "int4"),
    EXPERTS_DOWN("w2_weight_packed", "expert_down_int4", NULL),
    EXPERTS_DOWN("w2_weight_scale", "expert_down_int4_scale", "int4"),
    {.name = "{experts}routed_experts.w13_weight_shape",
     .parts = "expert_gate_int4",
     .shape = "slots, 2",
     .dtype = "model",
     .kind = WF_ROW_KEEP},
    {.name = "{experts}routed_experts.w2_weight_shape",
     .parts = "expert_down_int4",
     .shape = "slots, 2",
     .dtype = "model",
     .kind = WF_ROW_KEEP},
    {.parts = "expert_gate_int4_shape|expert_up_int4_shape|expert_down_int4_shape",
     .kind = WF_ROW_ABSENT},

    /* Gated delta nets [layers/mamba/gdn/qwen_gdn_linear_attn.py]. Qwen3-Next's checkpoints hold
     * q, k, v, z by head and are cut as they stand. */
    ROWS("gdn_qkvz|gdn_qkvz_scale|gdn_ba|gdn_dt_bias"),
    FUSED("{dir}in_proj_qkvz.weight", WF_SERVING_GDN("gdn_qkv") " gdn_z"),
    FUSED("{dir}in_proj_qkvz." SCALE, WF_SERVING_GDN_SCALE("gdn_qkv_scale") " gdn_z_scale"),
    FUSED("{dir}in_proj_ba.weight", "gdn_b gdn_a"),
    FUSED("{name}", WF_SERVING_GDN("gdn_conv")),
    {.name = "{name}", .parts = "gdn_a_log", .cuts = "0/tp", .dtype = "f32"},
    WHOLE("gdn_norm"),
    COLUMNS("gdn_out|gdn_out_scale"),

    /* Vision towers [models/qwen3_vl.py, siglip.py]; whole on every rank with vision=data, and on
     * the first stage alone [models/interfaces.py: _mark_tower_model, under Model Runner V2, which
     * is what 0.33 takes by itself]. */
    TOWER_WHOLE("vision_patch|vision_patch_bias|vision_pos|vision_post_norm|"
                "vision_post_norm_bias"),
    TOWER_WHOLE("vision_norm1|vision_norm1_bias|vision_norm2|vision_norm2_bias"),
    TOWER_FUSED("{dir}qkv_proj.weight", "vision_q vision_k vision_v"),
    TOWER_FUSED("{dir}qkv_proj.bias", "vision_q_bias vision_k_bias vision_v_bias"),
    TOWER_FUSED("{name}", WF_SERVING_VISION_QKV("vision_qkv")),
    TOWER_FUSED("{name}", WF_SERVING_VISION_QKV("vision_qkv_bias")),
    {.name = "{name}",
     .parts = "vision_proj|vision_fc2|merger_fc2|deepstack_fc2",
     .when = "embeds",
     .cuts = "1/vision"},
    TOWER_WHOLE("vision_proj_bias|vision_fc2_bias|merger_fc2_bias|deepstack_fc2_bias"),
    {.name = "{name}",
     .parts = "vision_fc1|vision_fc1_bias|merger_fc1|merger_fc1_bias|deepstack_fc1|"
              "deepstack_fc1_bias",
     .when = "embeds",
     .cuts = "0/vision"},
    TOWER_WHOLE("merger_norm|merger_norm_bias|deepstack_norm|deepstack_norm_bias"),
    TOWER_WHOLE("vision_projection|vision_projection_norm"),
};
_Static_assert(COUNT(wf_vllm_rows) == WF_VLLM_ROWS, "count them in vllm.h");

#define SHARED "{top}model.layers.{i}.mlp.experts._shared_experts._layer."

/* The runner of the experts holds the correction bias and the shared experts a second time
 * [layers/fused_moe/runner/moe_runner.py]. */
const struct wf_engine_alias wf_vllm_aliases[] = {
    {"embedding", "{top}lm_head.weight", "heads && tied"},
    {"router_correction", "{dir}experts.routed_experts.e_score_correction_bias", NULL},
    {"shared_gate", SHARED "gate_up_proj.weight", NULL},
    {"shared_gate_scale", SHARED "gate_up_proj." SCALE, NULL},
    {"shared_gate_rows", SHARED "gate_up_proj." ROW_SCALE, NULL},
    {"shared_down", SHARED "down_proj.weight", NULL},
    {"shared_down_rows", SHARED "down_proj." ROW_SCALE, NULL},
    {"shared_down_scale", SHARED "down_proj." SCALE, NULL},
    {"shared_router", "{dir}shared_expert.expert_gate.weight", NULL},
    {"shared_router", SHARED "expert_gate.weight", NULL},
};
_Static_assert(COUNT(wf_vllm_aliases) == WF_VLLM_ALIASES, "count them in vllm.h");
