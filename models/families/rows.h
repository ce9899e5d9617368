/* rows.h - sizes and rows that many families share, so that each fact is written once.
 *
 * Names are those of the checkpoints' own indices; [file, class] is where transformers 5.24 reads
 * them, unless another program is named. `M` is the text model's prefix in the checkpoint
 * ("model."), `W` a stack list.
 */
#ifndef WEFT_MODELS_FAMILIES_ROWS_H
#define WEFT_MODELS_FAMILIES_ROWS_H

#include "models/engines/engine.h"
#include "models/families/family.h"

#define WF_LAYERS "{layers}"
#define WF_COUNT(table) (sizeof(table) / sizeof(table)[0])
/* What every family's last lines say: its tables stand above under these names. */
#define WF_FAMILY_TABLES                                                        \
    .sizes = sizes, .size_count = WF_COUNT(sizes), .stacks = stacks,            \
    .stack_count = WF_COUNT(stacks), .rows = rows, .row_count = WF_COUNT(rows), \
    .engines = engines, .engine_count = WF_COUNT(engines)
/* An engine's exceptions. */
#define WF_ROWS_OF(table) .rows = table, .row_count = WF_COUNT(table)
#define WF_ALIASES_OF(table) .aliases = table, .alias_count = WF_COUNT(table)

/* Keys that every config has. */
#define WF_SIZES_BASE                                                         \
    {"H", "hidden_size", NULL, NULL}, {"L", "num_hidden_layers", NULL, NULL}, \
        {"V", "vocab_size", NULL, NULL},                                      \
    {                                                                         \
        "nq", "num_attention_heads", NULL, NULL                               \
    }

/* The whole model's statement goes before the text model's: newer libraries write a default into
 * the nested config [SGLang: models/qwen3_vl.py]. */
#define WF_SIZE_TIED(otherwise)                                               \
    {                                                                         \
        "tied", ".tie_word_embeddings|tie_word_embeddings", otherwise, "true" \
    }

#define WF_SIZE_FLAG(name, key, otherwise) \
    {                                      \
        name, key, otherwise, "true"       \
    }

#define WF_STACK_LAYER(M)                   \
    {                                       \
        "layer", M "layers.{i}.", "L", NULL \
    }

#define WF_REQUIRES_HEADS "nq % nk == 0: num_attention_heads is no multiple of num_key_value_heads"
/* Where null may mean the family's default or H / nq. */
#define WF_REQUIRES_HEAD_DIM                                                                \
    "d > 0: \"head_dim\" is null: readers of such configs disagree whether that means the " \
    "family's default or hidden_size / num_attention_heads; give the number"

/* Keys that add tensors or change them in ways that no family here says. */
#define WF_REFUSED_ALWAYS                                                        \
    "compression_config: packed or scaled weights|audio_config: an audio tower|" \
    "bias: biases under another flag than attention_bias or mlp_bias"
#define WF_REFUSED_NESTED \
    "text_config: a text model nested in a larger one|vision_config: a vision tower"
#define WF_REFUSED_EXPERTS \
    "num_experts: experts|num_local_experts: experts|n_routed_experts: experts"
#define WF_REFUSED_MTP "num_nextn_predict_layers: layers that predict further tokens"
#define WF_REFUSED_QK_NORM \
    "use_qk_norm: norms on q and k under a flag|qk_layernorm: norms on q and k under a flag"
#define WF_REFUSED_MLP_BIAS "mlp_bias: biases of the MLP"
#define WF_REFUSED_USE_BIAS                                                \
    "use_bias: biases under another flag than attention_bias or mlp_bias|" \
    "norm_head: a normalised head"
#define WF_REFUSED_SHARED                                                                \
    "shared_expert_intermediate_size: a shared expert|n_shared_experts: shared experts|" \
    "num_shared_experts: shared experts"
#define WF_REFUSED_BAILING                                                           \
    WF_REFUSED_ALWAYS                                                                \
    "|" WF_REFUSED_NESTED "|" WF_REFUSED_USE_BIAS "|" WF_REFUSED_MLP_BIAS            \
    "|use_qkv_bias: biases of the attention|attention_bias: biases of the attention" \
    "|norm_head: a head that engines normalise when they load it"
#define WF_REFUSED_QKV_BIAS "qkv_bias: biases under another flag than attention_bias"

#define WF_ROW_EMBEDDING(M)                                                 \
    {                                                                       \
        "embedding", M "embed_tokens.weight", "V,H", NULL, NULL, NULL, NULL \
    }
#define WF_ROW_FINAL_NORM(M)                                       \
    {                                                              \
        "final_norm", M "norm.weight", "H", NULL, NULL, NULL, NULL \
    }
#define WF_ROW_HEAD(name)                              \
    {                                                  \
        "head", name, "V,H", NULL, "!tied", NULL, NULL \
    }

/* A row of a stack: role, name below the layer, shape, stacks, when, unit, dtype. */
#define WF_ROW(role, name, shape, stacks, when, unit)         \
    {                                                         \
        role, WF_LAYERS name, shape, stacks, when, unit, NULL \
    }

#define WF_ROWS_QKV(W, when)                                             \
    WF_ROW("q", "self_attn.q_proj.weight", "nq*d,H", W, when, "nq"),     \
        WF_ROW("k", "self_attn.k_proj.weight", "nk*d,H", W, when, "nk"), \
        WF_ROW("v", "self_attn.v_proj.weight", "nk*d,H", W, when, "nk")
#define WF_ROWS_QKV_BIAS(W, when)                                         \
    WF_ROW("q_bias", "self_attn.q_proj.bias", "nq*d", W, when, "nq"),     \
        WF_ROW("k_bias", "self_attn.k_proj.bias", "nk*d", W, when, "nk"), \
        WF_ROW("v_bias", "self_attn.v_proj.bias", "nk*d", W, when, "nk")
#define WF_ROWS_QK_NORM(W, when)                                     \
    WF_ROW("q_norm", "self_attn.q_norm.weight", "d", W, when, NULL), \
        WF_ROW("k_norm", "self_attn.k_norm.weight", "d", W, when, NULL)
#define WF_ROW_INPUT_NORM(W) WF_ROW("input_norm", "input_layernorm.weight", "H", W, NULL, NULL)
#define WF_ROW_POST_NORM(W) \
    WF_ROW("post_norm", "post_attention_layernorm.weight", "H", W, NULL, NULL)
#define WF_ROW_O(W, when) WF_ROW("o", "self_attn.o_proj.weight", "H,nq*d", W, when, "nq")

/* A linear of a checkpoint that may be quantised, unless the config excludes the module; `when` is
 * "1" for always.
 *   block fp8 [DeepSeek-V3: inference/kernel.py]
 *     e4m3, and one f32 scale for bn x bk elements
 *   fp8 by row [vLLM: layers/quantization/compressed_tensors/schemes/
 *   compressed_tensors_w8a8_fp8.py]
 *     e4m3, and one scale for each row, in f32 in engines
 *   int4 [vLLM: layers/quantization/compressed_tensors/schemes/compressed_tensors_wNa16.py]
 *     eight numbers of a row in an i32, a scale of the model's dtype for each pack_group of them,
 *     and the shape before it was packed
 *   nvfp4 [vLLM: layers/quantization/modelopt.py, ModelOptNvFp4LinearMethod]
 *     two numbers in a byte, an e4m3 scale for 16 of them, one f32 scale of those, and the input's
 *
 * Rows that most models have not begin with a size that is 0: they cost nothing then.
 */
#define WF_WHEN_PACKED(format, when) format " && (" when ") && !excluded"
#define WF_ROWS_LINEAR_OF(role, module, rows, columns, W, when, unit, row_unit) \
    {role,                                                                      \
     WF_LAYERS module ".weight",                                                \
     rows "," columns,                                                          \
     W,                                                                         \
     "(" when ") && !((int4 || nvfp4) && !excluded)",                           \
     unit,                                                                      \
     "f8_e4m3: (fp8 || fp8_rows) && !excluded"},                                \
        {role "_rows",                                                          \
         WF_LAYERS module ".weight_scale",                                      \
         rows ",1",                                                             \
         W,                                                                     \
         WF_WHEN_PACKED("fp8_rows", when),                                      \
         row_unit,                                                              \
         "f32"},                                                                \
        {role "_scale",                                                         \
         WF_LAYERS module ".weight_scale_inv",                                  \
         "(" rows ")^bn,(" columns ")^bk",                                      \
         W,                                                                     \
         WF_WHEN_PACKED("fp8", when),                                           \
         NULL,                                                                  \
         "f32"},                                                                \
        {role "_int4",                                                          \
         WF_LAYERS module ".weight_packed",                                     \
         rows ",(" columns ")/8",                                               \
         W,                                                                     \
         WF_WHEN_PACKED("int4", when),                                          \
         unit,                                                                  \
         "i32"},                                                                \
        {role "_int4_scale",                                                    \
         WF_LAYERS module ".weight_scale",                                      \
         rows ",(" columns ")/pack_group",                                      \
         W,                                                                     \
         WF_WHEN_PACKED("int4", when),                                          \
         unit,                                                                  \
         NULL},                                                                 \
        {role "_int4_shape",                                                    \
         WF_LAYERS module ".weight_shape",                                      \
         "2",                                                                   \
         W,                                                                     \
         WF_WHEN_PACKED("int4", when),                                          \
         NULL,                                                                  \
         "i32"},                                                                \
        {role "_nvfp4",                                                         \
         WF_LAYERS module ".weight",                                            \
         rows ",(" columns ")/2",                                               \
         W,                                                                     \
         WF_WHEN_PACKED("nvfp4", when),                                         \
         unit,                                                                  \
         "u8"},                                                                 \
        {role "_nvfp4_scale",                                                   \
         WF_LAYERS module ".weight_scale",                                      \
         rows ",(" columns ")/16",                                              \
         W,                                                                     \
         WF_WHEN_PACKED("nvfp4", when),                                         \
         unit,                                                                  \
         "f8_e4m3"},                                                            \
        {role "_nvfp4_scale2",                                                  \
         WF_LAYERS module ".weight_scale_2",                                    \
         "",                                                                    \
         W,                                                                     \
         WF_WHEN_PACKED("nvfp4", when),                                         \
         NULL,                                                                  \
         "f32"},                                                                \
    {                                                                           \
        role "_nvfp4_input", WF_LAYERS module ".input_scale", "", W,            \
            WF_WHEN_PACKED("nvfp4", when), NULL, "f32"                          \
    }

/* `unit` is one of rows, or of columns, which scales of rows have not. */
#define WF_ROWS_LINEAR(role, module, rows, columns, W, when, unit) \
    WF_ROWS_LINEAR_OF(role, module, rows, columns, W, when, unit, unit)
#define WF_ROWS_LINEAR_IN(role, module, rows, columns, W, when, unit) \
    WF_ROWS_LINEAR_OF(role, module, rows, columns, W, when, unit, NULL)

#define WF_ROWS_QKV_FP8(W, when)                                             \
    WF_ROWS_LINEAR("q", "self_attn.q_proj", "nq*d", "H", W, when, "nq"),     \
        WF_ROWS_LINEAR("k", "self_attn.k_proj", "nk*d", "H", W, when, "nk"), \
        WF_ROWS_LINEAR("v", "self_attn.v_proj", "nk*d", "H", W, when, "nk")
#define WF_ROWS_O_FP8(W, when) \
    WF_ROWS_LINEAR_IN("o", "self_attn.o_proj", "H", "nq*d", W, when, "nq")
#define WF_ROWS_MLP_FP8(W, when)                                      \
    WF_ROWS_LINEAR("gate", "mlp.gate_proj", "F", "H", W, when, NULL), \
        WF_ROWS_LINEAR("up", "mlp.up_proj", "F", "H", W, when, NULL), \
        WF_ROWS_LINEAR("down", "mlp.down_proj", "H", "F", W, when, NULL)
#define WF_ROW_ROUTER(W) WF_ROW("router", "mlp.gate.weight", "E,H", W, "moe", NULL)
/* Routed experts, one parameter each, whatever the checkpoint's form. */
#define WF_ROWS_EXPERTS(W)                                                                     \
    WF_ROWS_LINEAR("expert_gate", "mlp.experts.{expert}.gate_proj", "I", "H", W, "moe", NULL), \
        WF_ROWS_LINEAR("expert_up", "mlp.experts.{expert}.up_proj", "I", "H", W, "moe", NULL), \
        WF_ROWS_LINEAR("expert_down", "mlp.experts.{expert}.down_proj", "H", "I", W, "moe", NULL)
/* `module`: "mlp.shared_experts" or "mlp.shared_expert". */
#define WF_ROWS_SHARED(module, W)                                                          \
    WF_ROWS_LINEAR("shared_gate", module ".gate_proj", "S", "H", W, "moe && S > 0", NULL), \
        WF_ROWS_LINEAR("shared_up", module ".up_proj", "S", "H", W, "moe && S > 0", NULL), \
        WF_ROWS_LINEAR("shared_down", module ".down_proj", "H", "S", W, "moe && S > 0", NULL)

/* Block fp8 [transformers: quantizers/quantizer_finegrained_fp8.py, vLLM: layers/quantization/
 * fp8.py]; int4 of compressed-tensors' pack-quantized, symmetric and in groups; nvfp4 of modelopt,
 * without scales of the KV cache. `packed`: weights are packed in a way that no row says (several
 * formats in one checkpoint, awq, ...): the inventory is the unpacked model's, and
 * layouts of files and engines are refused. */
#define WF_PACK(key) \
    "quantization_config.weights." key "|quantization_config.config_groups.group_0.weights." key
#define WF_SIZES_FP8                                                                            \
    {"fp8", "quantization_config.quant_method", "0", "fp8"},                                    \
        {"bn", "quantization_config.weight_block_size.0", "0", NULL},                           \
        {"bk", "quantization_config.weight_block_size.1", "0", NULL},                           \
        {"fp8_static", "quantization_config.activation_scheme", "0", "static"},                 \
        {"quantised", "quantization_config.quant_method", "0", "*"},                            \
        {"pack_quantized", "quantization_config.format", "0", "pack-quantized"},                \
        {"pack_bits", WF_PACK("num_bits"), "0", NULL},                                          \
        {"pack_group", WF_PACK("group_size"), "0", NULL},                                       \
        {"pack_symmetric", WF_PACK("symmetric"), "0", "true"},                                  \
        {"pack_order", WF_PACK("actorder"), "0", "*"},                                          \
        {"pack_groups", "quantization_config.config_groups.group_1", "0", "*"},                 \
        {"int4", NULL,                                                                          \
         "pack_quantized && pack_bits == 4 && pack_group > 0 && pack_symmetric && !pack_order"  \
         " && !pack_groups",                                                                    \
         NULL},                                                                                 \
        {"modelopt", "quantization_config.quant_method", "0", "modelopt"},                      \
        {"nvfp4_all", "quantization_config.quant_algo", "0", "NVFP4"},                          \
        {"kv_quantised",                                                                        \
         "quantization_config.kv_cache_scheme|"                                                 \
         "quantization_config.kv_cache_quant_algo",                                             \
         "0", "*"},                                                                             \
        {"nvfp4", NULL, "modelopt && nvfp4_all && !kv_quantised && !pack_groups", NULL},        \
        {"pack_float", "quantization_config.format", "0", "float-quantized"},                   \
        {"pack_channel", WF_PACK("strategy"), "0", "channel"},                                  \
        {"pack_dynamic", "quantization_config.config_groups.group_0.input_activations.dynamic", \
         "0", "true"},                                                                          \
        {"fp8_rows", NULL,                                                                      \
         "pack_float && pack_channel && pack_dynamic && pack_bits == 8 && pack_symmetric"       \
         " && !pack_groups && !kv_quantised",                                                   \
         NULL},                                                                                 \
    {                                                                                           \
        "packed", NULL, "quantised && !fp8 && !fp8_rows && !int4 && !nvfp4", NULL               \
    }
#define WF_REQUIRES_FP8                                                                            \
    "!fp8 || (bn > 0 && bk > 0): fp8 without weight_block_size has one scale a tensor or a row; "  \
    "such checkpoints are not supported|!fp8 || !fp8_static: fp8 with a static activation_scheme " \
    "has input scales; such checkpoints are not supported"

/* Which layers have experts, in Qwen's configs; `mtp` is "mtp || " where layers that predict
 * further tokens have them too [transformers: models/qwen3_moe/ modeling_qwen3_moe.py,
 * Qwen3MoeDecoderLayer]. */
#define WF_SIZES_QWEN_MOE(E_otherwise, I_otherwise, mtp)                                  \
    {"E", "num_experts|num_local_experts", E_otherwise, NULL},                            \
        {"I", "moe_intermediate_size", I_otherwise, NULL},                                \
        {"moe_step", "decoder_sparse_step", "1", NULL},                                   \
        {"mlp_only", "mlp_only_layers", "0", "@layer"},                                   \
        {"mlp_only_count", "#mlp_only_layers", "0", NULL},                                \
    {                                                                                     \
        "moe", NULL, "E > 0 && (" mtp "(!mlp_only && (layer + 1) % moe_step == 0))", NULL \
    }

/* Gated delta nets [models/qwen3_next/modeling_qwen3_next.py, Qwen3NextGatedDeltaNet]: sizes and
 * the rows that both kinds of checkpoint share. */
#define WF_SIZES_DELTA                                                                          \
    {"gk", "linear_num_key_heads", NULL, NULL}, {"gv", "linear_num_value_heads", NULL, NULL},   \
        {"ek", "linear_key_head_dim", NULL, NULL}, {"ev", "linear_value_head_dim", NULL, NULL}, \
        {"kc", "linear_conv_kernel_dim", "4", NULL},                                            \
        {"full_interval", "full_attention_interval", "4", NULL},                                \
        {"full", "layer_types", "(layer + 1) % full_interval == 0", "full_attention"},          \
    {                                                                                           \
        "linear", NULL, "!full && !mtp", NULL                                                   \
    }
#define WF_ROWS_DELTA(W)                                                                      \
    WF_ROW("gdn_conv", "linear_attn.conv1d.weight", "2*gk*ek+gv*ev,1,kc", W, "linear", NULL), \
        WF_ROW("gdn_a_log", "linear_attn.A_log", "gv", W, "linear", "gv"),                    \
        WF_ROW("gdn_dt_bias", "linear_attn.dt_bias", "gv", W, "linear", "gv"),                \
        WF_ROW("gdn_norm", "linear_attn.norm.weight", "ev", W, "linear", NULL),               \
        WF_ROWS_LINEAR_IN("gdn_out", "linear_attn.out_proj", "H", "gv*ev", W, "linear", "gv")
#define WF_REQUIRES_DELTA \
    "gv % gk == 0: linear_num_value_heads is no multiple of linear_num_key_heads"

/* Qwen's layers that predict further tokens [vLLM: models/qwen3_next_mtp.py]: their shared parts
 * stand beside the stack's members under one name, so there is one. */
#define WF_ROWS_QWEN_MTP                                                                      \
    {"mtp_proj", "mtp.fc.weight", "H,2*H", "mtp", NULL, NULL, NULL},                          \
        {"mtp_embed_norm", "mtp.pre_fc_norm_embedding.weight", "H", "mtp", NULL, NULL, NULL}, \
        {"mtp_hidden_norm", "mtp.pre_fc_norm_hidden.weight", "H", "mtp", NULL, NULL, NULL},   \
    {                                                                                         \
        "mtp_final_norm", "mtp.norm.weight", "H", "mtp", NULL, NULL, NULL                     \
    }

/* MLA [models/deepseek_v3/modeling_deepseek_v3.py, DeepseekV3Attention], `A` is the attention's
 * module. */
#define WF_SIZES_MLA(qr_otherwise)                                                      \
    {"qr", "q_lora_rank", qr_otherwise, NULL}, {"c", "kv_lora_rank", NULL, NULL},       \
        {"dn", "qk_nope_head_dim", NULL, NULL}, {"dr", "qk_rope_head_dim", NULL, NULL}, \
    {                                                                                   \
        "dv", "v_head_dim", NULL, NULL                                                  \
    }
#define WF_ROWS_MLA(A, W, when)                                                              \
    WF_ROWS_LINEAR("q", A "q_proj", "nq*(dn+dr)", "H", W, when " && qr == 0", "nq"),         \
        WF_ROWS_LINEAR("q_a", A "q_a_proj", "qr", "H", W, when " && qr > 0", NULL),          \
        WF_ROW("q_a_norm", A "q_a_layernorm.weight", "qr", W, when " && qr > 0", NULL),      \
        WF_ROWS_LINEAR("q_b", A "q_b_proj", "nq*(dn+dr)", "qr", W, when " && qr > 0", "nq"), \
        WF_ROWS_LINEAR("kv_a", A "kv_a_proj_with_mqa", "c+dr", "H", W, when, NULL),          \
        WF_ROW("kv_a_norm", A "kv_a_layernorm.weight", "c", W, when, NULL),                  \
        WF_ROWS_LINEAR("kv_b", A "kv_b_proj", "nq*(dn+dv)", "c", W, when, "nq")

/* DeepSeek's experts [the same file, DeepseekV3MoE] and the layers that predict further tokens,
 * numbered behind the others. Their copies of the embedding and the head, which some checkpoints
 * store, are the model's own tensors and no parameters. */
#define WF_SIZES_DEEPSEEK_MOE                                                                     \
    {"E", "n_routed_experts", "0", NULL}, {"I", "moe_intermediate_size", "0", NULL},              \
        {"ns", "n_shared_experts", "0", NULL}, {"S", NULL, "ns * I", NULL},                       \
        {"dense", "first_k_dense_replace", "0", NULL}, {"moe_freq", "moe_layer_freq", "1", NULL}, \
        {"n_group", "n_group", "0", NULL},                                                        \
        {"moe", NULL, "E > 0 && layer >= dense && layer % moe_freq == 0", NULL},                  \
    {                                                                                             \
        "further", "num_nextn_predict_layers", "0", NULL                                          \
    }
#define WF_STACK_FURTHER(M)                    \
    {                                          \
        "mtp", M "layers.{i}.", "further", "L" \
    }
/* `norm`: "shared_head.norm.weight" (DeepSeek, GLM) or "final_layernorm.weight" (Ling). */
#define WF_ROWS_FURTHER(norm)                                              \
    WF_ROW("mtp_embed_norm", "enorm.weight", "H", "mtp", NULL, NULL),      \
        WF_ROW("mtp_hidden_norm", "hnorm.weight", "H", "mtp", NULL, NULL), \
        WF_ROW("mtp_proj", "eh_proj.weight", "H,2*H", "mtp", NULL, NULL),  \
        WF_ROW("mtp_final_norm", norm, "H", "mtp", NULL, NULL)

/* Ling's experts: a correction under a flag, shared experts with a size of their own
 * [modeling_bailing_moe_v2.py beside the checkpoints].
 */
#define WF_SIZES_BAILING_MOE                                                                    \
    {"E", "num_experts", "0", NULL}, {"I", "moe_intermediate_size", "0", NULL},                 \
        {"ns", "num_shared_experts", "0", NULL},                                                \
        {"S_one", "moe_shared_expert_intermediate_size", "I", NULL},                            \
        {"S", NULL, "ns * S_one", NULL}, {"dense", "first_k_dense_replace", "0", NULL},         \
        {"n_group", "n_group", "0", NULL},                                                      \
        WF_SIZE_FLAG("correction", "moe_router_enable_expert_bias", "1"),                       \
        {"router_said", "router_dtype", "0", "*"}, {"router_f32", "router_dtype", "0", "fp32"}, \
        {"moe", NULL, "E > 0 && layer >= dense", NULL},                                         \
    {                                                                                           \
        "further", "num_nextn_predict_layers", "0", NULL                                        \
    }
#define WF_ROWS_BAILING(W)                                             \
    WF_ROW_POST_NORM(W), WF_ROWS_MLP_FP8(W, "!moe"), WF_ROW_ROUTER(W), \
        {"router_correction",                                          \
         WF_LAYERS "mlp.gate.expert_bias",                             \
         "E",                                                          \
         W,                                                            \
         "moe && correction",                                          \
         NULL,                                                         \
         "f32"},                                                       \
        WF_ROWS_EXPERTS(W), WF_ROWS_SHARED("mlp.shared_experts", W)
#define WF_REQUIRES_BAILING \
    WF_REQUIRES_FP8 "|E == 0 || I > 0: \"moe_intermediate_size\" is needed with experts"

/* Qwen's vision tower [models/qwen3_vl/modeling_qwen3_vl.py, Qwen3VLVisionModel]: vh hidden, vn
 * heads, vi intermediate, vm merged patches. */
#define WF_SIZES_VISION                                                                            \
    {"vl", "vision_config.depth", "0", NULL}, {"vh", "vision_config.hidden_size", "0", NULL},      \
        {"vn", "vision_config.num_heads", "0", NULL},                                              \
        {"vi", "vision_config.intermediate_size", "0", NULL},                                      \
        {"vp", "vision_config.patch_size", "0", NULL},                                             \
        {"vt", "vision_config.temporal_patch_size", "0", NULL},                                    \
        {"vc", "vision_config.in_channels|vision_config.in_chans", "3", NULL},                     \
        {"vs", "vision_config.spatial_merge_size", "0", NULL}, {"vm", NULL, "vs * vs * vh", NULL}, \
        {"vo", "vision_config.out_hidden_size", "H", NULL},                                        \
        {"vq", "vision_config.num_position_embeddings", "0", NULL},                                \
    {                                                                                              \
        "vd", "#vision_config.deepstack_visual_indexes", "0", NULL                                 \
    }
#define WF_STACKS_VISION                                                                \
    {"vision", "model.visual.blocks.{i}.", "vl", NULL},                                 \
    {                                                                                   \
        "deepstack", "model.visual.deepstack_merger_list.{i}.", "vl > 0 ? vd : 0", NULL \
    }
#define WF_VISION(role, name, shape)                                  \
    {                                                                 \
        role, "model.visual." name, shape, NULL, "vl > 0", NULL, NULL \
    }
#define WF_BLOCK(role, name, shape, unit) WF_ROW(role, name, shape, "vision", NULL, unit)
#define WF_DEEP(role, name, shape) WF_ROW(role, name, shape, "deepstack", NULL, NULL)
#define WF_ROWS_VISION                                                      \
    WF_VISION("vision_patch", "patch_embed.proj.weight", "vh,vc,vt,vp,vp"), \
        WF_VISION("vision_patch_bias", "patch_embed.proj.bias", "vh"),      \
        WF_VISION("vision_pos", "pos_embed.weight", "vq,vh"),               \
        WF_BLOCK("vision_norm1", "norm1.weight", "vh", NULL),               \
        WF_BLOCK("vision_norm1_bias", "norm1.bias", "vh", NULL),            \
        WF_BLOCK("vision_norm2", "norm2.weight", "vh", NULL),               \
        WF_BLOCK("vision_norm2_bias", "norm2.bias", "vh", NULL),            \
        WF_BLOCK("vision_qkv", "attn.qkv.weight", "3*vh,vh", NULL),         \
        WF_BLOCK("vision_qkv_bias", "attn.qkv.bias", "3*vh", NULL),         \
        WF_BLOCK("vision_proj", "attn.proj.weight", "vh,vh", "vn"),         \
        WF_BLOCK("vision_proj_bias", "attn.proj.bias", "vh", NULL),         \
        WF_BLOCK("vision_fc1", "mlp.linear_fc1.weight", "vi,vh", NULL),     \
        WF_BLOCK("vision_fc1_bias", "mlp.linear_fc1.bias", "vi", NULL),     \
        WF_BLOCK("vision_fc2", "mlp.linear_fc2.weight", "vh,vi", NULL),     \
        WF_BLOCK("vision_fc2_bias", "mlp.linear_fc2.bias", "vh", NULL),     \
        WF_DEEP("deepstack_norm", "norm.weight", "vm"),                     \
        WF_DEEP("deepstack_norm_bias", "norm.bias", "vm"),                  \
        WF_DEEP("deepstack_fc1", "linear_fc1.weight", "vm,vm"),             \
        WF_DEEP("deepstack_fc1_bias", "linear_fc1.bias", "vm"),             \
        WF_DEEP("deepstack_fc2", "linear_fc2.weight", "vo,vm"),             \
        WF_DEEP("deepstack_fc2_bias", "linear_fc2.bias", "vo"),             \
        WF_VISION("merger_norm", "merger.norm.weight", "vh"),               \
        WF_VISION("merger_norm_bias", "merger.norm.bias", "vh"),            \
        WF_VISION("merger_fc1", "merger.linear_fc1.weight", "vm,vm"),       \
        WF_VISION("merger_fc1_bias", "merger.linear_fc1.bias", "vm"),       \
        WF_VISION("merger_fc2", "merger.linear_fc2.weight", "vo,vm"),       \
        WF_VISION("merger_fc2_bias", "merger.linear_fc2.bias", "vo")

/* Experts of a checkpoint in one tensor, form B (tests/golden/real/hf-transformers-5.24.0): [E, 2I,
 * H] and [E, H, I]. */
#define WF_ROWS_FORM_B(when_)                                                           \
    {.name = "{experts}gate_up_proj", .parts = "expert_gate expert_up", .when = when_}, \
    {                                                                                   \
        .name = "{experts}down_proj", .parts = "expert_down", .when = when_             \
    }
/* Form A: each expert transposed, [E, H, 2I] and [E, I, H]. */
#define WF_ROW_TRANSPOSED(name_, parts_, groups_, when_)                  \
    {                                                                     \
        .name = name_, .parts = parts_, .when = when_, .groups = groups_, \
        .view = "e r c -> e c r", .shape = "slots, columns, rows"         \
    }

/* Experts one by one in memory, where FSDP's rows would fuse them. */
#define WF_ROWS_EXPERTS_APART                                                                 \
    {.name = "{name}",                                                                        \
     .parts = "expert_gate|expert_up|expert_down",                                            \
     .when = "shard == 0",                                                                    \
     .cuts = "0~dp"},                                                                         \
    {                                                                                         \
        .name = "{name}", .parts = "expert_gate|expert_up|expert_down", .when = "shard == 1", \
        .cuts = "1~dp"                                                                        \
    }

/* A module that registers its router before its experts [transformers 5: the sparse blocks of
 * mixtral, qwen2_moe, qwen3_next, qwen3_5_moe and gpt_oss]. */
#define WF_ROUTER_FIRST "router<expert_gate router_bias<expert_gate"

/* Megatron's text model inside one with a vision tower [Megatron-Bridge: models/qwen_vl,
 * models/gemma_vl]. */
#define WF_MEGATRON_INSIDE                                \
    {                                                     \
        .engine = "megatron", .prefix = "language_model." \
    }

extern const struct wf_family wf_family_bailing, wf_family_bailing_linear, wf_family_deepseek,
    wf_family_gemma2, wf_family_gemma3, wf_family_gemma3_text, wf_family_glm4_moe,
    wf_family_glm4_moe_lite, wf_family_gpt_oss, wf_family_kimi_k25, wf_family_llama,
    wf_family_mistral, wf_family_mixtral, wf_family_qwen2, wf_family_qwen2_moe, wf_family_qwen3,
    wf_family_qwen3_5, wf_family_qwen3_moe, wf_family_qwen3_next, wf_family_qwen3_vl;

#endif
