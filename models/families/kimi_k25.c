/* kimi_k25.c - Kimi K2.5: K2 below another prefix, and MoonViT's vision tower. A config without
 * vision_config is the text model's alone. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/mla.h"

/* vh hidden, vn heads, vi intermediate, vp sides of a patch, vx and vy positions, vm merged
 * patches; `key` as the checkpoint's own code calls it, and as transformers does. */
#define VISION_SIZE(name, key, other, otherwise)                                              \
    {                                                                                         \
        name, "vision_config." key "|vision_config." other, "tower ? " otherwise " : 0", NULL \
    }

/* Defaults of absent keys: as DeepSeek V3's; of the tower [SGLang: configs/kimi_k25.py]. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_DEEPSEEK("null ? 0 : 1536"),
    {"tower", "vision_config", "0", "*"},
    VISION_SIZE("vl", "vt_num_hidden_layers", "num_hidden_layers", "27"),
    VISION_SIZE("vh", "vt_hidden_size", "hidden_size", "1152"),
    VISION_SIZE("vn", "vt_num_attention_heads", "num_attention_heads", "16"),
    VISION_SIZE("vi", "vt_intermediate_size", "intermediate_size", "4304"),
    VISION_SIZE("vy", "init_pos_emb_height", "pos_emb_height", "64"),
    VISION_SIZE("vx", "init_pos_emb_width", "pos_emb_width", "64"),
    /* As transformers reads them, and vLLM and SGLang with it; positions as SGLang does. */
    {"tvl", "vision_config.num_hidden_layers", "tower ? 27 : 0", NULL},
    {"tvh", "vision_config.hidden_size", "tower ? 1152 : 0", NULL},
    {"tvn", "vision_config.num_attention_heads", "tower ? 16 : 0", NULL},
    {"tvi", "vision_config.intermediate_size", "tower ? 4304 : 0", NULL},
    {"ivy", "vision_config.init_pos_emb_height", "tower ? 64 : 0", NULL},
    {"ivx", "vision_config.init_pos_emb_width", "tower ? 64 : 0", NULL},
    {"vp", "vision_config.patch_size", "tower ? 14 : 0", NULL},
    {"vdown", "vision_config.merge_kernel_size.0", "2", NULL},
    {"vacross", "vision_config.merge_kernel_size.1", "2", NULL},
    {"vm", NULL, "vdown * vacross * vh", NULL},
    {"vmerged", "vision_config.mm_hidden_size", "vh", NULL},
    {"vo", "vision_config.text_hidden_size", "H", NULL},
    {"patchmerger", "vision_config.mm_projector_type", "1", "patchmerger"},
    {"divided_fixed", "vision_config.pos_emb_type", "1", "divided_fixed"},
};

static const struct wf_family_stack stacks[] = {
    WF_STACK_LAYER("language_model.model."),
    WF_STACK_FURTHER("language_model.model."),
    {"vision", "vision_tower.encoder.blocks.{i}.", "vl", NULL},
};

#define OUTSIDE(role, name, shape)                   \
    {                                                \
        role, name, shape, NULL, "tower", NULL, NULL \
    }

/* The tower and the projector [vLLM: models/kimi_k25_vit.py]. */
static const struct wf_family_row rows[] = {
    WF_ROWS_DEEPSEEK("language_model.model.", "language_model.lm_head.weight"),
    OUTSIDE("vision_patch", "vision_tower.patch_embed.proj.weight", "vh,3,vp,vp"),
    OUTSIDE("vision_patch_bias", "vision_tower.patch_embed.proj.bias", "vh"),
    OUTSIDE("vision_pos", "vision_tower.patch_embed.pos_emb.weight", "vy,vx,vh"),
    WF_BLOCK("vision_norm1", "norm0.weight", "vh", NULL),
    WF_BLOCK("vision_norm1_bias", "norm0.bias", "vh", NULL),
    WF_BLOCK("vision_norm2", "norm1.weight", "vh", NULL),
    WF_BLOCK("vision_norm2_bias", "norm1.bias", "vh", NULL),
    WF_BLOCK("vision_qkv", "wqkv.weight", "3*vh,vh", NULL),
    WF_BLOCK("vision_qkv_bias", "wqkv.bias", "3*vh", NULL),
    WF_BLOCK("vision_proj", "wo.weight", "vh,vh", "vn"),
    WF_BLOCK("vision_proj_bias", "wo.bias", "vh", NULL),
    WF_BLOCK("vision_fc1", "mlp.fc0.weight", "vi,vh", NULL),
    WF_BLOCK("vision_fc1_bias", "mlp.fc0.bias", "vi", NULL),
    WF_BLOCK("vision_fc2", "mlp.fc1.weight", "vh,vi", NULL),
    WF_BLOCK("vision_fc2_bias", "mlp.fc1.bias", "vh", NULL),
    OUTSIDE("vision_post_norm", "vision_tower.encoder.final_layernorm.weight", "vh"),
    OUTSIDE("vision_post_norm_bias", "vision_tower.encoder.final_layernorm.bias", "vh"),
    OUTSIDE("merger_norm", "mm_projector.pre_norm.weight", "vh"),
    OUTSIDE("merger_norm_bias", "mm_projector.pre_norm.bias", "vh"),
    OUTSIDE("merger_fc1", "mm_projector.proj.0.weight", "vm,vm"),
    OUTSIDE("merger_fc1_bias", "mm_projector.proj.0.bias", "vm"),
    OUTSIDE("merger_fc2", "mm_projector.proj.2.weight", "H,vm"),
    OUTSIDE("merger_fc2_bias", "mm_projector.proj.2.bias", "H"),
};

#define MERGER "merger_norm|merger_norm_bias|merger_fc1|merger_fc1_bias|merger_fc2|merger_fc2_bias"
#define ENDS \
    "vision_patch|vision_patch_bias|vision_pos|vision_post_norm|vision_post_norm_bias|" MERGER
#define CUT "vision_qkv|vision_qkv_bias|vision_proj|vision_fc1|vision_fc1_bias|vision_fc2"
#define BLOCKS                                                                        \
    "vision_norm1|vision_norm1_bias|vision_norm2|vision_norm2_bias|vision_proj_bias|" \
    "vision_fc2_bias|" CUT
/* Engines' projectors are whole; so are positions, which are no vocabulary. */
#define WHOLE                                           \
    {                                                   \
        .name = "{name}", .parts = "vision_pos|" MERGER \
    }
#define MERGER_NAMES \
    "mm_projector.proj.0=>mm_projector.linear_1 mm_projector.proj.2=>mm_projector.linear_2"

/* [Megatron-Bridge: models/kimi_vl] The checkpoint's own modules, whole on every rank of the stage
 * that embeds. */
static const struct wf_engine_row megatron_rows[] = {
    {.name = "{name}", .parts = BLOCKS},
    {.name = "{name}", .parts = ENDS, .when = "embeds"},
};

/* In memory [transformers 5: conversion_mapping.py, kimi_k25] q, k and v of the tower stand apart,
 * and each head of q and of k has its even rows before its odd ones. */
#define HALF_HEADS(role, first, last)                                                    \
    role "(3 * vn@" first ":" last ", vh / vn / 2, 2@0) " role "(3 * vn@" first ":" last \
         ", vh / vn / 2, 2@1)"
#define APART(leaf, what, parts_, groups_)                                           \
    {.name = "{dir}attn." leaf "_proj." what,                                        \
     .parts = parts_,                                                                \
     .groups = groups_,                                                              \
     .when = "shard == 0 || dims == 1",                                              \
     .cuts = "0~dp"},                                                                \
    {                                                                                \
        .name = "{dir}attn." leaf "_proj." what, .parts = parts_, .groups = groups_, \
        .when = "shard == 1 && dims > 1", .cuts = "1~dp"                             \
    }
#define APART_QKV(what, role)                                     \
    APART("q", what, HALF_HEADS(role, "0", "vn"), "vn"),          \
        APART("k", what, HALF_HEADS(role, "vn", "2 * vn"), "vn"), \
        APART("v", what, role "(3 * vn@2 * vn:3 * vn, vh / vn)", NULL)

static const struct wf_engine_row memory_rows[] = {
    APART_QKV("weight", "vision_qkv"),
    APART_QKV("bias", "vision_qkv_bias"),
};
#define MEMORY_NAMES                                                                         \
    "language_model.model.=>model.language_model. language_model.lm_head.=>lm_head. "        \
    ".norm1.=>.norm2. .norm0.=>.norm1. .mlp.fc1.=>.mlp.fc2. .mlp.fc0.=>.mlp.fc1. "           \
    ".wo.=>.attn.proj. pos_emb.weight=>pos_emb.position_embeddings "                         \
    "mm_projector.proj.0=>mm_projector.in_proj mm_projector.proj.2=>mm_projector.out_proj "  \
    "mm_projector.=>model.mm_projector. vision_tower.encoder.blocks.=>vision_tower.layers. " \
    "vision_tower.encoder.=>vision_tower. vision_tower.=>model.vision_tower."

/* [vLLM: models/kimi_k25.py, vision.py: is_vit_use_data_parallel] On the first stage; heads that do
 * not divide leave the tower whole. */
#define DIVIDES "embeds && vn % tp == 0"
static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_SHARED,
    {.name = "{name}", .parts = "vision_pos|" MERGER, .when = "embeds"},
    {.name = "{name}", .parts = CUT, .when = "embeds && vn % tp != 0"},
    {.name = "{name}",
     .parts = WF_SERVING_VISION_QKV("vision_qkv"),
     .when = DIVIDES,
     .groups = "vision_size",
     .cuts = "0/vision"},
    {.name = "{name}",
     .parts = WF_SERVING_VISION_QKV("vision_qkv_bias"),
     .when = DIVIDES,
     .groups = "vision_size",
     .cuts = "0/vision"},
    {.name = "{name}", .parts = "vision_proj|vision_fc2", .when = DIVIDES, .cuts = "1/vision"},
    {.name = "{name}", .parts = "vision_fc1|vision_fc1_bias", .when = DIVIDES, .cuts = "0/vision"},
};
/* [SGLang: models/kimi_k25.py, kimi_vl_moonvit.py: MLP2] Only the attention is cut. */
static const struct wf_engine_row sglang_rows[] = {
    WHOLE,
    WF_SGLANG_DENSE_MLP_ONCE,
    {.name = "{name}", .parts = "vision_fc1|vision_fc1_bias|vision_fc2"},
    WF_SGLANG_FUSED_OF("{dir}attn.qkv_proj.weight", WF_SERVING_VISION_QKV("vision_qkv"), "vision"),
    WF_SGLANG_FUSED_OF("{dir}attn.qkv_proj.bias", WF_SERVING_VISION_QKV("vision_qkv_bias"),
                       "vision"),
};
/* A tower whose sizes a program reads under other names is another tower there, and loads nothing.
 */
#define SIZES_READ "vl == tvl && vh == tvh && vn == tvn && vi == tvi"
#define SAY_BOTH                                                                                  \
    " reads the vision tower's sizes as num_hidden_layers, hidden_size, num_attention_heads and " \
    "intermediate_size of vision_config, without vt_; expected the same sizes under both names"

static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_ROUTER_ALIAS,
    WF_VLLM_CORRECTION_ALIAS,
    WF_VLLM_MLA_ALIASES("ih == 0"),
};

static const struct wf_family_engine engines[] = {
    {.engine = "memory", WF_ROWS_OF(memory_rows), .renames = MEMORY_NAMES},
    {.engine = "megatron",
     .prefix = "language_model.",
     .requires = "!tower || loader.bridge: how mbridge builds this vision tower is not known; use "
                 "loader=bridge",
     WF_ROWS_OF(megatron_rows)},
    {.engine = "vllm",
     WF_ROWS_OF(vllm_rows),
     WF_ALIASES_OF(vllm_aliases),
     .renames = MERGER_NAMES,
     .requires = WF_VLLM_NEVER_TIED "|" SIZES_READ ": vLLM" SAY_BOTH
                                    "|!tower || !(fp8 || fp8_rows): which linears of the vision "
                                    "tower are fp8 in vLLM is not known",
     .prefix = "language_model."},
    {.engine = "sglang",
     .requires = WF_SGLANG_MLA_HEAD
     "|" SIZES_READ ": SGLang" SAY_BOTH
     "|vy == ivy && vx == ivx: SGLang reads the vision tower's positions as init_pos_emb_height "
     "and init_pos_emb_width of vision_config; expected them",
     WF_ROWS_OF(sglang_rows),
     .renames = MERGER_NAMES " .wo.=>.attn.proj.",
     .prefix = "language_model."},
};

const struct wf_family wf_family_kimi_k25 = {
    .name = "kimi_k25",
    .model_types = "kimi_k25",
    .text_config = "text_config",
    .refused = WF_REFUSED_DEEPSEEK,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_DEEPSEEK
    "|!tower || (patchmerger && divided_fixed): a vision tower with another mm_projector_type "
    "than "
    "patchmerger or another pos_emb_type than divided_fixed is not known|!tower || (vmerged == vh "
    "&& "
    "vo == H): mm_hidden_size and text_hidden_size of vision_config are those of the tower and the "
    "text model|!tower || vh % (2 * vn) == 0: the vision tower's hidden size is no multiple of its "
    "heads",
};
