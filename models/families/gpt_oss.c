/* gpt_oss.c - gpt-oss: sinks, biases everywhere, experts whose gate and up rows alternate; bf16 or
 * mxfp4. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/rows.h"

/* Defaults of absent keys: transformers 5, models/gpt_oss/configuration_gpt_oss.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_BASE,
    {"nk", "num_key_value_heads", "null ? nq : 8", NULL},
    {"d", "head_dim", "null && H != nq * 64 ? 0 : 64", NULL},
    WF_SIZE_TIED("0"),
    WF_SIZE_FLAG("attention_bias", "attention_bias", "1"),
    {"E", "num_local_experts", NULL, NULL},
    {"I", "intermediate_size", NULL, NULL},
    {"moe", NULL, "1", NULL},
    {"no_eplb", NULL, "1", NULL}, /* vLLM's class (engines/vllm.c) */
    {"mxfp4", "quantization_config.quant_method", "0", "mxfp4"},
    {"quantised", "quantization_config.quant_method", "0", "*"},
    {"packed", NULL, "quantised && !mxfp4", NULL},
};

static const struct wf_family_stack stacks[] = {WF_STACK_LAYER("model.")};

#define EXPERT "mlp.experts.{expert}."
/* mxfp4 [gpt-oss: gpt_oss/torch/weights.py]: 32 values are 16 bytes and a scale; of an expert alone
 * by name, as they are nowhere else. */
#define BLOCKS(role, name, rows, columns)                                                      \
    {role "_blocks",                                                                           \
     WF_LAYERS EXPERT name ".blocks",                                                          \
     rows "," columns "/32*16",                                                                \
     NULL,                                                                                     \
     "mxfp4",                                                                                  \
     NULL,                                                                                     \
     "u8"},                                                                                    \
    {                                                                                          \
        role "_scale", WF_LAYERS EXPERT name ".scales", rows "," columns "/32", NULL, "mxfp4", \
            NULL, "u8"                                                                         \
    }

/* [models/gpt_oss/modeling_gpt_oss.py] */
static const struct wf_family_row rows[] = {
    WF_ROW_EMBEDDING("model."),
    WF_ROW_INPUT_NORM(NULL),
    WF_ROWS_QKV(NULL, NULL),
    WF_ROWS_QKV_BIAS(NULL, "attention_bias"),
    WF_ROW_O(NULL, NULL),
    WF_ROW("o_bias", "self_attn.o_proj.bias", "H", NULL, "attention_bias", NULL),
    WF_ROW("sinks", "self_attn.sinks", "nq", NULL, NULL, "nq"),
    WF_ROW_POST_NORM(NULL),
    WF_ROW("router", "mlp.router.weight", "E,H", NULL, NULL, NULL),
    WF_ROW("router_bias", "mlp.router.bias", "E", NULL, NULL, NULL),
    WF_ROW("expert_gate", EXPERT "gate_proj.weight", "I,H", NULL, "!mxfp4", NULL),
    WF_ROW("expert_up", EXPERT "up_proj.weight", "I,H", NULL, "!mxfp4", NULL),
    WF_ROW("expert_down", EXPERT "down_proj.weight", "H,I", NULL, "!mxfp4", NULL),
    BLOCKS("expert_gate", "gate_proj", "I", "H"),
    BLOCKS("expert_up", "up_proj", "I", "H"),
    BLOCKS("expert_down", "down_proj", "H", "I"),
    WF_ROW("expert_gate_bias", EXPERT "gate_proj.bias", "I", NULL, NULL, NULL),
    WF_ROW("expert_up_bias", EXPERT "up_proj.bias", "I", NULL, NULL, NULL),
    WF_ROW("expert_down_bias", EXPERT "down_proj.bias", "H", NULL, NULL, NULL),
    WF_ROW_FINAL_NORM("model."),
    WF_ROW_HEAD("lm_head.weight"),
};

/* Row 2j of the fused tensors is row j of gate, row 2j + 1 that of up: as many groups as rows. In
 * bf16 each expert is transposed (form A); blocks are not. */
#define FORM_A                                                                      \
    WF_ROW_TRANSPOSED("{experts}gate_up_proj", "expert_gate expert_up", "I", NULL), \
        WF_ROW_TRANSPOSED("{experts}down_proj", "expert_down", NULL, NULL),         \
        {.name = "{experts}gate_up_proj_bias",                                      \
         .parts = "expert_gate_bias expert_up_bias",                                \
         .groups = "I"},                                                            \
    {                                                                               \
        .name = "{experts}down_proj_bias", .parts = "expert_down_bias"              \
    }

static const struct wf_engine_row hf_rows[] = {
    FORM_A,
    {.name = "{experts}gate_up_proj_blocks",
     .parts = "expert_gate_blocks expert_up_blocks",
     .groups = "I",
     .shape = "slots, rows, columns / 16, 16"},
    {.name = "{experts}gate_up_proj_scales",
     .parts = "expert_gate_scale expert_up_scale",
     .groups = "I"},
    {.name = "{experts}down_proj_blocks",
     .parts = "expert_down_blocks",
     .shape = "slots, rows, columns / 16, 16"},
    {.name = "{experts}down_proj_scales", .parts = "expert_down_scale"},
};
static const struct wf_engine_row memory_rows[] = {FORM_A};

static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_EMBEDDING_EVERYWHERE,
    WF_VLLM_NORM_EVERYWHERE,
    WF_VLLM_HEAD_EVERYWHERE,
    WF_VLLM_OSS_EXPERTS,
};

/* SGLang [models/gpt_oss.py]: attention and router keep the config's dtype, sinks bf16 or what the
 * attention's backend wants, gate and up rows alternate as in the checkpoint, biases of experts
 * have a dtype of their own [layers/quantization/unquant.py, mxfp4.py], and only the first rank of
 * an expert keeps w2's. By itself it takes triton_kernels, whose experts are transposed. Shares of
 * mxfp4 experts are whole blocks, the last one short, in tensors of a multiple of 64. */
#define TRANSPOSED "(moe_backend.triton_kernel || (moe_backend.auto && ep == 1 && !mxfp4))"
#define ALTERNATING(name_, parts_) \
    .name = "{experts}" name_, .parts = parts_, .groups = "I", .cuts = "0/etp"
#define BLOCKS_OF(name_, parts_)                                 \
    .name = "{experts}" name_, .parts = parts_, .when = "mxfp4", \
    .groups = "(I ^ (32 * etp_size)) * 32 * etp_size", .pad = "32 * etp_size;128", .cuts = "0/etp"
#define DOWN_BLOCKS_OF(name_, parts_, pad_) \
    .name = "{experts}" name_, .parts = parts_, .pad = pad_, .cuts = "1/etp"

static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_HEAD_EVERYWHERE(NULL),
    {.name = "{dir}qkv_proj.weight",
     .parts = "q k v",
     .groups = "attn_size",
     .cuts = "0/attn",
     .dtype = "config"},
    {.name = "{dir}qkv_proj.bias",
     .parts = "q_bias k_bias v_bias",
     .groups = "attn_size",
     .cuts = "0/attn",
     .dtype = "config"},
    {.name = "{name}", .parts = "o", .cuts = "1/attn", .dtype = "config"},
    WF_SGLANG_WHOLE_AS("o_bias|router|router_bias", "config"),
    {.name = "{name}",
     .parts = "sinks",
     .when = "!attention.trtllm_mha",
     .cuts = "0/attn",
     .dtype = "bf16"},
    {.name = "{name}",
     .parts = "sinks",
     .when = "attention.trtllm_mha",
     .cuts = "0/attn",
     .dtype = "f32"},
    {ALTERNATING("w13_weight", "expert_gate expert_up"), .when = "!" TRANSPOSED},
    {ALTERNATING("w13_weight", "expert_gate expert_up"), .when = TRANSPOSED,
     .view = "e r c -> e c r", .shape = "slots, columns, rows"},
    {.name = "{experts}w2_weight", .parts = "expert_down", .when = "!" TRANSPOSED, .cuts = "1/etp"},
    {.name = "{experts}w2_weight",
     .parts = "expert_down",
     .when = TRANSPOSED,
     .cuts = "1/etp",
     .view = "e r c -> e c r",
     .shape = "slots, columns, rows"},
    {ALTERNATING("w13_weight_bias", "expert_gate_bias expert_up_bias"), .when = "!mxfp4",
     .dtype = "f32"},
    {.name = "{experts}w2_weight_bias",
     .parts = "expert_down_bias",
     .dtype = "f32",
     .when = "!mxfp4",
     .data_when = "etp_rank == 0"},
    {BLOCKS_OF("w13_weight", "expert_gate_blocks expert_up_blocks")},
    {BLOCKS_OF("w13_weight_scale", "expert_gate_scale expert_up_scale"), .fill = "127"},
    {BLOCKS_OF("w13_weight_bias", "expert_gate_bias expert_up_bias"), .dtype = "bf16"},
    {DOWN_BLOCKS_OF("w2_weight", "expert_down_blocks", "16 * etp_size;32")},
    {DOWN_BLOCKS_OF("w2_weight_scale", "expert_down_scale", "etp_size;2"), .fill = "127"},
    {.name = "{experts}w2_weight_bias",
     .parts = "expert_down_bias",
     .dtype = "bf16",
     .when = "mxfp4",
     .data_when = "etp_rank == 0"},
};

static const struct wf_family_engine engines[] = {
    {.engine = "hf", WF_ROWS_OF(hf_rows)},
    {.engine = "memory",
     WF_ROWS_OF(memory_rows),
     .requires = "shard == 0: shards of dimension 1 of transposed experts are not known",
     .order = WF_ROUTER_FIRST},
    {.engine = "vllm",
     WF_ROWS_OF(vllm_rows),
     .renames = "self_attn.=>attn. embed_tokens=>embedding",
     .requires = "!tied: vLLM's gpt-oss class does not tie its head|nk >= tp: vLLM's gpt-oss class "
                 "does not repeat KV heads|I % (tp * pp * dp) == 0: vLLM's "
                 "gpt-oss class needs an expert size that all ranks divide|E % ep == 0: vLLM's "
                 "gpt-oss class "
                 "deals experts out equally"},
    {.engine = "sglang",
     .requires = WF_SGLANG_UNTIED
     "|"
     "(moe_backend.auto || moe_backend.triton || moe_backend.triton_kernel): what this "
     "backend makes of gpt-oss's experts is not known|(capability.sm90 || "
     "!attention.auto): on sm100 the dtype of the sinks follows the attention's backend; "
     "name it with attention|redundant == 0: SGLang's loader of gpt-oss places no "
     "redundant experts|(ep == 1 || mxfp4): SGLang's loader of gpt-oss in bf16 deals out no "
     "experts|I % etp_size == 0: an expert's size cannot be divided over its "
     "ranks",
     WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_gpt_oss = {
    .name = "gpt_oss",
    .model_types = "gpt_oss",
    .refused = WF_REFUSED_ALWAYS "|" WF_REFUSED_NESTED "|" WF_REFUSED_SHARED "|" WF_REFUSED_MTP
                                 "|" WF_REFUSED_QK_NORM "|" WF_REFUSED_USE_BIAS
                                 "|" WF_REFUSED_QKV_BIAS "|" WF_REFUSED_MLP_BIAS,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_HEAD_DIM,
};
