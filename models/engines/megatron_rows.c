/* megatron_rows.c - the tensors of Megatron-core's GPT model and of the bridges' vision towers.
 *
 * One line a tensor: name, parts, when, groups, cuts; sources stand in megatron.c. Rows whose roles
 * a family has not are not its own, so conditions only part what one role can be called.
 */
#include "models/engines/megatron_rows.h"

#define ROW(name_, parts_, when_, groups_, cuts_, ...)                                   \
    {                                                                                    \
        .name = name_, .parts = parts_, .when = when_, .groups = groups_, .cuts = cuts_, \
        __VA_ARGS__                                                                      \
    }
/* Cut on output rows, on input columns, not at all. */
#define ROWS(name, parts, when) ROW(name, parts, when, NULL, "0/tp", .pad = NULL)
#define COLUMNS(name, parts, when) ROW(name, parts, when, NULL, "1/tp", .pad = NULL)
#define WHOLE(name, parts, when) ROW(name, parts, when, NULL, NULL, .pad = NULL)
/* Fused by every rank for itself, and by every KV head with its queries. */
#define PAIRED(name, parts, when) ROW(name, parts, when, "tp_size", "0/tp", .pad = NULL)
#define GROUPED(name, parts, groups, when) ROW(name, parts, when, groups, "0/tp", .pad = NULL)

#define L "{layers}"
#define ATTN "{layers}self_attention."
#define INDEXER "{layers}self_attention.core_attention.indexer."
#define MLP "{layers}mlp."
#define MTP "{top}mtp.layers.{i}."

/* Which attention a layer has follows from its parameters. */
#define IS_MLA "has.kv_a"
#define IS_LIGHTNING "has.g_proj"
#define FUSED_QKV_NORM "names.te && (has.q || has.qkv) && !has.kv_a && !has.g_proj"
#define FUSED_DELTA_NORM "names.te && has.gdn_conv"
/* An indexer reads the normed latent of q, so no norm is fused then. */
#define FUSED_LATENT_NORM "names.te && !has.indexer_k"
#define PLAIN_INPUT_NORM "names.local || has.kv_a || has.g_proj"

/* Q ++ K ++ V of a checkpoint, taken apart: n query heads, m KV heads of d rows. */
#define FUSED_QKV(role, n, m, d)                                                                 \
    role "(" n "+2*" m "@0:" n ", " d ") " role "(" n "+2*" m "@" n ":" n "+" m ", " d ") " role \
         "(" n "+2*" m "@" n "+" m ":" n "+2*" m ", " d ")"

/* Of Qwen3-Next's rows of one key head: q, k, v, z; b, a. */
#define QKVZ "2*ek+2*(gv/gk*ev)"
#define DELTA_NEXT                                                \
    "gdn_qkvz(gk, " QKVZ "@0:ek) gdn_qkvz(gk, " QKVZ "@ek:2*ek) " \
    "gdn_qkvz(gk, " QKVZ "@2*ek:2*ek+gv/gk*ev) "                  \
    "gdn_qkvz(gk, " QKVZ "@2*ek+gv/gk*ev:" QKVZ ") "              \
    "gdn_ba(gk, 2*(gv/gk)@0:gv/gk) gdn_ba(gk, 2*(gv/gk)@gv/gk:2*(gv/gk))"
/* Q ++ K ++ V by head, as Qwen3.5's projection and every convolution have them. */
#define DELTA_QKV(role)                                                              \
    role "(2*(gk*ek)+gv*ev@0:gk*ek) " role "(2*(gk*ek)+gv*ev@gk*ek:2*(gk*ek)) " role \
         "(2*(gk*ek)+gv*ev@2*(gk*ek):2*(gk*ek)+gv*ev)"

#define HF_VISION WF_MEGATRON_HF_VISION
#define VISION "!(" WF_MEGATRON_HF_VISION ")"
/* Outside the tower's blocks; the tower stands where the embedding does. */
#define VISION_END "embeds && !(" WF_MEGATRON_HF_VISION ")"
#define HF_VISION_END "embeds && " WF_MEGATRON_HF_VISION
#define TOWER "vision_model."

const struct wf_engine_row wf_megatron_rows[WF_MEGATRON_ROWS] = {
    /* A chunk that predicts further tokens embeds too; a tied head needs no tensor where the
     * embedding is at hand. */
    ROW("{top}embedding.word_embeddings.weight", "embedding", "embeds || predicts", NULL, "0/tp",
        .pad = "vocab_multiple"),
    WHOLE("{top}decoder.final_layernorm.weight", "final_norm", "norms"),
    ROW("{top}output_layer.weight", "head", "heads && !(tied && embeds)", NULL, "0/tp",
        .pad = "vocab_multiple"),

    /* norms */
    WHOLE(ATTN "linear_qkv.layer_norm_weight", "input_norm", FUSED_QKV_NORM),
    WHOLE(ATTN "in_proj.layer_norm_weight", "input_norm", FUSED_DELTA_NORM),
    WHOLE(L "input_layernorm.weight", "input_norm", PLAIN_INPUT_NORM),
    WHOLE(MLP "linear_fc1.layer_norm_weight", "post_norm", "names.te && !has.router"),
    WHOLE(L "pre_mlp_layernorm.weight", "post_norm", "names.local || has.router"),
    WHOLE(ATTN "linear_proj.post_layernorm.weight", "attn_out_norm", "loader.bridge"),
    WHOLE(L "post_attention_layernorm.weight", "attn_out_norm", "loader.mbridge"),
    WHOLE(MLP "linear_fc2.post_layernorm.weight", "mlp_out_norm", "loader.bridge"),
    WHOLE(L "post_feedforward_layernorm.weight", "mlp_out_norm", "loader.mbridge"),

    /* attention; a gated q has, head by head, its rows and then its gate's */
    GROUPED(ATTN "linear_qkv.weight", "q k v", "nk", "!gated"),
    GROUPED(ATTN "linear_qkv.weight", "q(nq, 2@0, d) q(nq, 2@1, d) k v", "nk", "gated"),
    GROUPED(ATTN "linear_qkv.bias", "q_bias k_bias v_bias", "nk", "!gated"),
    GROUPED(ATTN "linear_qkv.weight", FUSED_QKV("qkv", "nq", "nk", "d"), "nk", "!" IS_LIGHTNING),
    WHOLE(ATTN "q_layernorm.weight", "q_norm", NULL),
    WHOLE(ATTN "k_layernorm.weight", "k_norm", NULL),
    COLUMNS(ATTN "linear_proj.weight", "o", NULL),
    WHOLE(ATTN "linear_proj.bias", "o_bias", NULL),
    ROWS(ATTN "core_attention.softmax_offset", "sinks", NULL),

    /* lightning attention: every query head has a key and a value */
    GROUPED(ATTN "linear_qkv.weight", FUSED_QKV("qkv", "nq", "nq", "d"), "nq", IS_LIGHTNING),
    ROWS(ATTN "linear_gate.weight", "g_proj", NULL),
    ROWS(ATTN "gate_norm.weight", "g_norm", NULL),

    /* latent attention: the local layers cut what Transformer Engine's keep whole on every rank */
    ROWS(ATTN "linear_q_proj.weight", "q", IS_MLA),
    WHOLE(ATTN "linear_q_down_proj.weight", "q_a", "names.te"),
    ROWS(ATTN "linear_q_down_proj.weight", "q_a", "names.local"),
    WHOLE(ATTN "linear_q_up_proj.layer_norm_weight", "q_a_norm", FUSED_LATENT_NORM),
    WHOLE(ATTN "q_layernorm.weight", "q_a_norm", "!(" FUSED_LATENT_NORM ")"),
    ROWS(ATTN "linear_q_up_proj.weight", "q_b", NULL),
    WHOLE(ATTN "linear_kv_down_proj.weight", "kv_a", "names.te"),
    ROWS(ATTN "linear_kv_down_proj.weight", "kv_a", "names.local"),
    WHOLE(ATTN "linear_kv_up_proj.layer_norm_weight", "kv_a_norm", FUSED_LATENT_NORM),
    WHOLE(ATTN "kv_layernorm.weight", "kv_a_norm", "!(" FUSED_LATENT_NORM ")"),
    ROWS(ATTN "linear_kv_up_proj.weight", "kv_b", NULL),

    /* the indexer of sparse attention, alike on every rank */
    WHOLE(INDEXER "linear_wq_b.weight", "indexer_q_b", NULL),
    WHOLE(INDEXER "linear_wk.weight", "indexer_k", NULL),
    ROW(INDEXER "k_norm.weight", "indexer_k_norm", NULL, NULL, NULL, .dtype = "model"),
    ROW(INDEXER "k_norm.bias", "indexer_k_norm_bias", NULL, NULL, NULL, .dtype = "model"),
    WHOLE(INDEXER "linear_weights_proj.weight", "indexer_weights", NULL),

    /* delta net: each rank's Q K V Z B A; its output norm is the one that Megatron alone keeps
     * zero-centred */
    PAIRED(ATTN "in_proj.weight", DELTA_NEXT, NULL),
    PAIRED(ATTN "in_proj.weight", DELTA_QKV("gdn_qkv") " gdn_z gdn_b gdn_a", NULL),
    PAIRED(ATTN "conv1d.weight", DELTA_QKV("gdn_conv"), NULL),
    ROW(ATTN "A_log", "gdn_a_log", NULL, NULL, "0/tp", .dtype = "model"),
    ROW(ATTN "dt_bias", "gdn_dt_bias", NULL, NULL, "0/tp", .dtype = "model"),
    ROW(ATTN "out_norm.weight", "gdn_norm", NULL, NULL, NULL, .dtype = "model",
        .value = WF_VALUE_LESS_ONE),
    COLUMNS(ATTN "out_proj.weight", "gdn_out", NULL),

    /* dense MLP */
    PAIRED(MLP "linear_fc1.weight", "gate up", NULL),
    PAIRED(MLP "linear_fc1.bias", "gate_bias up_bias", NULL),
    COLUMNS(MLP "linear_fc2.weight", "down", NULL),
    WHOLE(MLP "linear_fc2.bias", "down_bias", NULL),

    /* experts; the correction is a buffer that is kept in f32, by mbridge's get_model
     * (core/util.py) in the decoder only, by Megatron-Bridge's and Megatron's own everywhere */
    WHOLE(MLP "router.weight", "router", NULL),
    WHOLE(MLP "router.bias", "router_bias", NULL),
    ROW(MLP "router.expert_bias", "router_correction", "!mtp || loader.bridge", NULL, NULL,
        .dtype = "f32"),
    ROW(MLP "router.expert_bias", "router_correction", "mtp && loader.mbridge", NULL, NULL,
        .dtype = "model"),
    ROW(MLP "experts.linear_fc1.weight{slot}", "expert_gate expert_up", "experts.grouped",
        "etp_size", "0/etp", .pad = NULL),
    ROW(MLP "experts.linear_fc1.bias{slot}", "expert_gate_bias expert_up_bias",
        "!experts.sequential", "etp_size", "0/etp", .pad = NULL),
    ROW(MLP "experts.linear_fc2.weight{slot}", "expert_down", "experts.grouped", NULL, "1/etp",
        .pad = NULL),
    WHOLE(MLP "experts.linear_fc2.bias{slot}", "expert_down_bias", "!experts.sequential"),
    ROW(MLP "experts.linear_fc1.weight", "expert_gate expert_up", "experts.single", "etp_size",
        "0/etp", .pad = NULL),
    ROW(MLP "experts.linear_fc2.weight", "expert_down", "experts.single", NULL, "1/etp",
        .pad = NULL),
    ROW(MLP "experts.local_experts.{slot}.linear_fc1.weight", "expert_gate expert_up",
        "experts.sequential", "etp_size", "0/etp", .pad = NULL),
    ROW(MLP "experts.local_experts.{slot}.linear_fc1.bias", "expert_gate_bias expert_up_bias",
        "experts.sequential", "etp_size", "0/etp", .pad = NULL),
    ROW(MLP "experts.local_experts.{slot}.linear_fc2.weight", "expert_down", "experts.sequential",
        NULL, "1/etp", .pad = NULL),
    WHOLE(MLP "experts.local_experts.{slot}.linear_fc2.bias", "expert_down_bias",
          "experts.sequential"),
    PAIRED(MLP "shared_experts.linear_fc1.weight", "shared_gate shared_up", NULL),
    COLUMNS(MLP "shared_experts.linear_fc2.weight", "shared_down", NULL),
    WHOLE(MLP "shared_experts.gate_weight", "shared_router", NULL),

    /* further tokens; their layers' bodies have the rows above */
    WHOLE(MTP "enorm.weight", "mtp_embed_norm", NULL),
    WHOLE(MTP "hnorm.weight", "mtp_hidden_norm", NULL),
    ROWS(MTP "eh_proj.weight", "mtp_proj", NULL),
    WHOLE(MTP "final_layernorm.weight", "mtp_final_norm", NULL),

    /* vision tower */
    WHOLE(TOWER "patch_embed.proj.weight", "vision_patch", "embeds"),
    WHOLE(TOWER "patch_embed.proj.bias", "vision_patch_bias", "embeds"),
    WHOLE(TOWER "pos_embed.weight", "vision_pos", "embeds"),
    WHOLE(ATTN "linear_qkv.layer_norm_weight", "vision_norm1", VISION),
    WHOLE(ATTN "linear_qkv.layer_norm_bias", "vision_norm1_bias", VISION),
    WHOLE(MLP "linear_fc1.layer_norm_weight", "vision_norm2", VISION),
    WHOLE(MLP "linear_fc1.layer_norm_bias", "vision_norm2_bias", VISION),
    GROUPED(ATTN "linear_qkv.weight", FUSED_QKV("vision_qkv", "vn", "vn", "vh/vn"), "vn", VISION),
    GROUPED(ATTN "linear_qkv.bias", FUSED_QKV("vision_qkv_bias", "vn", "vn", "vh/vn"), "vn",
            VISION),
    COLUMNS(ATTN "linear_proj.weight", "vision_proj", VISION),
    WHOLE(ATTN "linear_proj.bias", "vision_proj_bias", VISION),
    ROWS(MLP "linear_fc1.weight", "vision_fc1", VISION),
    ROWS(MLP "linear_fc1.bias", "vision_fc1_bias", VISION),
    COLUMNS(MLP "linear_fc2.weight", "vision_fc2", VISION),
    WHOLE(MLP "linear_fc2.bias", "vision_fc2_bias", VISION),
    WHOLE(TOWER "merger.patch_norm.weight", "merger_norm", VISION_END),
    WHOLE(TOWER "merger.patch_norm.bias", "merger_norm_bias", VISION_END),
    ROWS(TOWER "merger.linear_fc1.weight", "merger_fc1", VISION_END),
    ROWS(TOWER "merger.linear_fc1.bias", "merger_fc1_bias", VISION_END),
    COLUMNS(TOWER "merger.linear_fc2.weight", "merger_fc2", VISION_END),
    WHOLE(TOWER "merger.linear_fc2.bias", "merger_fc2_bias", VISION_END),
    WHOLE(L "patch_norm.weight", "deepstack_norm", NULL),
    WHOLE(L "patch_norm.bias", "deepstack_norm_bias", NULL),
    ROWS(L "linear_fc1.weight", "deepstack_fc1", NULL),
    ROWS(L "linear_fc1.bias", "deepstack_fc1_bias", NULL),
    COLUMNS(L "linear_fc2.weight", "deepstack_fc2", NULL),
    WHOLE(L "linear_fc2.bias", "deepstack_fc2_bias", NULL),
    /* the same as the Hugging Face module: whole */
    WHOLE(L "norm1.weight", "vision_norm1", HF_VISION),
    WHOLE(L "norm1.bias", "vision_norm1_bias", HF_VISION),
    WHOLE(L "norm2.weight", "vision_norm2", HF_VISION),
    WHOLE(L "norm2.bias", "vision_norm2_bias", HF_VISION),
    WHOLE(L "attn.qkv.weight", "vision_qkv", HF_VISION),
    WHOLE(L "attn.qkv.bias", "vision_qkv_bias", HF_VISION),
    WHOLE(L "attn.proj.weight", "vision_proj", HF_VISION),
    WHOLE(L "attn.proj.bias", "vision_proj_bias", HF_VISION),
    WHOLE(L "mlp.linear_fc1.weight", "vision_fc1", HF_VISION),
    WHOLE(L "mlp.linear_fc1.bias", "vision_fc1_bias", HF_VISION),
    WHOLE(L "mlp.linear_fc2.weight", "vision_fc2", HF_VISION),
    WHOLE(L "mlp.linear_fc2.bias", "vision_fc2_bias", HF_VISION),
    WHOLE(TOWER "merger.norm.weight", "merger_norm", HF_VISION_END),
    WHOLE(TOWER "merger.norm.bias", "merger_norm_bias", HF_VISION_END),
    WHOLE(TOWER "merger.linear_fc1.weight", "merger_fc1", HF_VISION_END),
    WHOLE(TOWER "merger.linear_fc1.bias", "merger_fc1_bias", HF_VISION_END),
    WHOLE(TOWER "merger.linear_fc2.weight", "merger_fc2", HF_VISION_END),
    WHOLE(TOWER "merger.linear_fc2.bias", "merger_fc2_bias", HF_VISION_END),
};
