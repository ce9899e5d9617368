/* bailing_linear.c - Ring and Ling 2.0 linear, Ling 2.5: lightning attention, and in the last layer
 * of each group softmax attention, grouped (2.0) or with latents (2.5). */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/rows.h"

/* Defaults of absent keys: configuration_bailing_moe_linear_v2.py beside the checkpoints. A model
 * whose last group is short is refused: ports disagree about its layers, and SGLang asserts that
 * there is none [models/bailing_moe_linear.py]. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "nq", NULL},
    {"d", "head_dim", "H / nq", NULL},
    {"F", "intermediate_size", "0", NULL},
    WF_SIZE_TIED("0"),
    WF_SIZE_FLAG("qk_norm", "use_qk_norm", "1"),
    {"layer_group", "layer_group_size", NULL, NULL},
    {"ng", "group_norm_size", "1", NULL},
    {"qr", "q_lora_rank", "0", NULL},
    {"c", "kv_lora_rank", "0", NULL},
    {"dn", "qk_nope_head_dim", "0", NULL},
    {"dr", "qk_rope_head_dim", "0", NULL},
    {"dv", "v_head_dim", "0", NULL},
    {"latents", "full_attention_type", "c > 0", "mla"},
    {"full", NULL, "mtp || (layer + 1) % layer_group == 0", NULL},
    {"linear", NULL, "!full", NULL},
    {"mla", NULL, "full && latents", NULL},
    WF_SIZES_BAILING_MOE,
    {"no_eplb", NULL, "1", NULL}, /* vLLM's class (engines/vllm.c) */
    WF_SIZES_FP8,
};

static const struct wf_family_stack stacks[] = {
    WF_STACK_LAYER("model."),
    WF_STACK_FURTHER("model."),
};

#define BOTH "layer mtp"

/* [modeling_bailing_moe_linear_v2.py beside the checkpoints]: lightning attention has a key and a
 * value for each query head. */
static const struct wf_family_row rows[] = {
    {"embedding", "model.word_embeddings.weight", "V,H", NULL, NULL, NULL, NULL},
    WF_ROW_INPUT_NORM(BOTH),
    WF_ROWS_LINEAR("qkv", "attention.query_key_value", "(linear ? 3*nq : nq+2*nk)*d", "H", BOTH,
                   "!mla", NULL),
    WF_ROWS_LINEAR("g_proj", "attention.g_proj", "nq*d", "H", BOTH, "linear", "nq"),
    WF_ROW("g_norm", "attention.g_norm.weight", "nq*d", BOTH, "linear", "nq"),
    WF_ROW("q_norm", "attention.query_layernorm.weight", "d", BOTH, "qk_norm && !mla", NULL),
    WF_ROW("k_norm", "attention.key_layernorm.weight", "d", BOTH, "qk_norm && !mla", NULL),
    WF_ROWS_MLA("attention.", BOTH, "mla"),
    WF_ROWS_LINEAR_IN("o", "attention.dense", "H", "nq*(mla ? dv : d)", BOTH, "1", "nq"),
    WF_ROWS_BAILING(BOTH),
    WF_ROWS_FURTHER("final_layernorm.weight"),
    WF_ROW_FINAL_NORM("model."),
    WF_ROW_HEAD("lm_head.weight"),
};

/* Its class is no part of transformers: memory and files agree. */
static const struct wf_engine_row memory_rows[] = {WF_ROWS_EXPERTS_APART};

/* Ling 2.5 alone has a class [vLLM: models/bailing_moe_linear.py]. Its router is f32 unless another
 * router_dtype than fp32 is said. */
static const struct wf_engine_row vllm_rows[] = {
    {.name = "{name}", .parts = "router", .when = "!router_said || router_f32", .dtype = "f32"},
    {.name = "{name}", .parts = "router", .when = "router_said && !router_f32", .dtype = "bf16"},
    {.name = "{name}", .parts = "g_proj|g_proj_scale|g_norm", .cuts = "0/tp"},
    {.name = "{name}", .parts = "o|o_scale", .when = "!mla", .cuts = "1/tp"},
    {.name = "{dir}o_proj.weight", .parts = "o", .when = "mla", .cuts = "1/tp"},
    {.name = "{dir}o_proj." WF_VLLM_SCALE, .parts = "o_scale", .when = "mla", .cuts = "1/tp"},
};
static const struct wf_engine_alias vllm_aliases[] = {
    WF_VLLM_MLA_ALIASES("mla"),
};

/* SGLang [models/bailing_moe_linear.py]: registered for Ling 2.5 alone. Lightning attention has a
 * key and a value for each query head; attention with latents calls its last linear o_proj; head
 * and router are f32. */
#define LINEAR_QKV "qkv(3 * nq@0:nq, d) qkv(3 * nq@nq:2 * nq, d) qkv(3 * nq@2 * nq:3 * nq, d)"
static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_EMBEDDING_WHOLE_UNDER_DP,
    {.name = "lm_head.weight",
     .parts = "head",
     .when = "heads",
     .pad = "vocab_multiple",
     .cuts = "0/head",
     .dtype = "f32"},
    {.name = "{name}",
     .parts = LINEAR_QKV,
     .when = "linear",
     .groups = "attn_size",
     .cuts = "0/attn"},
    {.name = "{name}",
     .parts = "qkv_scale(3 * nq@0:nq, d / 128) qkv_scale(3 * nq@nq:2 * nq, d / 128) "
              "qkv_scale(3 * nq@2 * nq:3 * nq, d / 128)",
     .when = "linear",
     .groups = "attn_size",
     .cuts = "0/attn"},
    WF_SGLANG_KV_SCALES("qkv", "attn", "linear && fp8"),
    {.name = "{name}", .parts = "g_proj_scale", .cuts = "0/attn"},
    {.name = "{dir}o_proj.{leaf}", .parts = "o|o_scale", .when = "mla", .cuts = "1/attn"},
    {.name = "{name}", .parts = "o|o_scale", .when = "!mla", .cuts = "1/attn"},
    WF_SGLANG_WHOLE_AS("router", "f32"),
};

static const struct wf_family_engine engines[] = {
    {.engine = "memory", WF_ROWS_OF(memory_rows)},
    {.engine = "vllm",
     WF_ROWS_OF(vllm_rows),
     WF_ALIASES_OF(vllm_aliases),
     .renames = "attention.=>self_attn.",
     .requires = WF_VLLM_NEVER_TIED
     "|latents: vLLM has no class for Ling and Ring 2.0 linear|ng % tp == 0: "
     "group_norm_size is no "
     "multiple of tp"},
    {.engine = "sglang",
     .requires =
         "latents: SGLang registers this class for Ling 2.5 alone|!tied: SGLang's class fails "
         "with a tied head|ng % attn_size == 0: groups "
         "of g_norm cannot be divided over the attention's ranks|redundant == 0: SGLang's "
         "class has no redundant experts|router_f32: SGLang's router would be bf16|a2a.none: "
         "SGLang's class cuts its shared experts whatever this says",
     WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_bailing_linear = {
    .name = "bailing_linear",
    .model_types = "bailing_moe_linear|bailing_hybrid",
    .refused = WF_REFUSED_BAILING,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS
    "|" WF_REQUIRES_BAILING
    "|L % layer_group == 0: num_hidden_layers is no multiple of layer_group_size, and whether the "
    "short group ends in softmax attention is not known",
};
