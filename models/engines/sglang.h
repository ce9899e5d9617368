/* sglang.h - what the files of the engine sglang share with the families: its own keys in
 * wf_recipe.own, its rows, and rows that a family's exceptions repeat with a change.
 */
#ifndef WEFT_MODELS_ENGINES_SGLANG_H
#define WEFT_MODELS_ENGINES_SGLANG_H

#include "models/engines/engine.h"
#include "models/engines/serving.h"

/* Indices into wf_recipe.own; words count from 0 as the table of keys lists them. */
enum wf_sglang_own {
    WF_SGLANG_DP,
    WF_SGLANG_DP_ATTENTION,
    WF_SGLANG_DP_LM_HEAD,
    WF_SGLANG_MOE_DENSE_TP, /* 0: as tp */
    WF_SGLANG_REDUNDANT,    /* slots beyond the experts, of all ranks */
    WF_SGLANG_SHARED,
    WF_SGLANG_MOE_BACKEND,
    WF_SGLANG_A2A,
    WF_SGLANG_FP8_GEMM,
    WF_SGLANG_ATTENTION,
    WF_SGLANG_STAGE,
    WF_SGLANG_CAPABILITY,
    WF_SGLANG_VISION,
    WF_SGLANG_SWIGLU_INTERLEAVED,
    WF_SGLANG_OWN_COUNT
};
enum { WF_SGLANG_A2A_NONE, WF_SGLANG_A2A_DEEPEP };
enum { WF_SGLANG_VISION_TP, WF_SGLANG_VISION_DATA };

/* Where ranks, layers and experts stand, and what is not run: sglang_ranks.c. */
enum wf_status wf_sglang_check_recipe(const struct wf_recipe *recipe, struct wf_error *error);
enum wf_status wf_sglang_chunks(const struct wf_model *model, const struct wf_recipe *recipe,
                                uint32_t pp, struct wf_chunk *chunks_out, uint32_t *count_out,
                                struct wf_error *error);
struct wf_coordinates wf_sglang_coordinates(const struct wf_recipe *recipe, uint32_t rank);
enum wf_status wf_sglang_experts(const struct wf_model *model, const struct wf_recipe *recipe,
                                 const struct wf_coordinates *at, uint32_t layer,
                                 uint32_t slots_out[WF_SLOTS_MAX], uint32_t *count_out,
                                 struct wf_error *error);

/* --- rows ------------------------------------------------------------------------------------ */

#define WF_SGLANG_WHOLE(parts_)           \
    {                                     \
        .name = "{name}", .parts = parts_ \
    }
#define WF_SGLANG_WHOLE_AS(parts_, dtype_)                 \
    {                                                      \
        .name = "{name}", .parts = parts_, .dtype = dtype_ \
    }
#define WF_SGLANG_ROWS_OF(parts_, group)                      \
    {                                                         \
        .name = "{name}", .parts = parts_, .cuts = "0/" group \
    }
#define WF_SGLANG_COLUMNS_OF(parts_, group)                   \
    {                                                         \
        .name = "{name}", .parts = parts_, .cuts = "1/" group \
    }
/* A linear that every rank of a group fuses from its own shares. */
#define WF_SGLANG_FUSED_OF(name_, parts_, group)                                    \
    {                                                                               \
        .name = name_, .parts = parts_, .groups = group "_size", .cuts = "0/" group \
    }

/* Whole blocks of fp8 on every rank, or refused: a scale is never repeated. */
#define WF_SGLANG_DENSE_SCALE(role_, group) role_ "(" group "_size, F / 128 / " group "_size)"
/* A dense MLP, cut over a group: "tp" in most classes, whatever moe_dense_tp says. */
#define WF_SGLANG_DENSE_MLP(group)                                                                 \
    WF_SGLANG_FUSED_OF("{dir}gate_up_proj.weight", "gate up", group),                              \
        WF_SGLANG_FUSED_OF("{dir}gate_up_proj." WF_SERVING_SCALE,                                  \
                           WF_SGLANG_DENSE_SCALE("gate_scale", group) " " WF_SGLANG_DENSE_SCALE(   \
                               "up_scale", group),                                                 \
                           group),                                                                 \
        WF_SGLANG_FUSED_OF("{dir}gate_up_proj." WF_SERVING_ROW_SCALE, "gate_rows up_rows", group), \
        WF_SGLANG_COLUMNS_OF("down|down_scale", group),                                            \
    {                                                                                              \
        .name = "{name}", .parts = "down_rows"                                                     \
    }
/* Of the classes that ask is_dense_ffn_fully_dp [models/deepseek_v2.py, glm4_moe.py,
 * glm4_moe_lite.py, bailing_moe.py]: whole on every rank with moe_dense_tp=1. */
#define WF_SGLANG_DENSE_MLP_ONCE WF_SGLANG_DENSE_MLP("dense")

/* The head of classes that build it on every stage of a pipeline. */
#define WF_SGLANG_HEAD_EVERYWHERE(when_)                                                        \
    {                                                                                           \
        .name = "{top}lm_head.weight", .parts = "head", .when = when_, .pad = "vocab_multiple", \
        .cuts = "0/head"                                                                        \
    }
/* Of those that build it whether it is tied or not: no loader of theirs fills a tied one. */
#define WF_SGLANG_UNTIED \
    "!tied: SGLang's class has a head of its own that nothing fills when it is tied"
/* DeepSeek's class has it on the last stage, and ties it on a single one alone. */
#define WF_SGLANG_MLA_HEAD                                                             \
    "(!tied || pp == 1): SGLang's class has a head of its own on the last stage that " \
    "nothing fills when it is tied"
/* Of those whose tied head is the embedding itself: with several stages only one that embeds has
 * it. */
#define WF_SGLANG_TIED_ON_FIRST_STAGE                   \
    {                                                   \
        "embedding", "lm_head.weight", "tied && pp > 1" \
    }

/* GemmaRMSNorm [layers/layernorm.py] keeps weight + 1 beside weight, for its kernels, and its
 * loader renews it. `module` is the module's name behind {dir}. */
#define WF_SGLANG_GEMMA_NORM(role, module, when_)                                    \
    {.name = "{name}", .parts = role, .when = when_},                                \
    {                                                                                \
        .name = "buffer:{dir}" module ".gemma_weight", .parts = role, .when = when_, \
        .kind = WF_ROW_DERIVED                                                       \
    }

/* Scales of the KV cache of an fp8 model, -1 until they are calibrated, 1 behind the hook
 * [layers/quantization/kv_cache.py]: for classes that give their attention (`module`) the config of
 * the quantisation. */
#define WF_SGLANG_KV_SCALE(role, name_, when_)                                            \
    {                                                                                     \
        .name = "{dir}" name_, .parts = role, .when = when_, .shape = "", .dtype = "f32", \
        .kind = WF_ROW_KEEP                                                               \
    }
#define WF_SGLANG_KV_SCALES(role, module, when_)        \
    WF_SGLANG_KV_SCALE(role, module ".k_scale", when_), \
        WF_SGLANG_KV_SCALE(role, module ".v_scale", when_)
/* Of classes with a qkv_proj: the rows of a family take the place of the engine's for a part. */
#define WF_SGLANG_QKV_WITH_KV_SCALES                             \
    WF_SGLANG_FUSED_OF("{dir}qkv_proj.weight", "q k v", "attn"), \
        WF_SGLANG_KV_SCALES("k", "attn", "fp8")

/* Every Gemma-style norm that all such classes have. */
#define WF_SGLANG_GEMMA_NORMS(post)                              \
    WF_SGLANG_GEMMA_NORM("input_norm", "input_layernorm", NULL), \
        WF_SGLANG_GEMMA_NORM("post_norm", post, NULL),           \
        WF_SGLANG_GEMMA_NORM("final_norm", "norm", "norms")

/* Classes whose embedding every rank has whole under dp_attention, padded all the same
 * [models/qwen3_5.py: enable_tp=not is_dp_attention_enabled()]. */
#define WF_SGLANG_EMBEDDING_WHOLE_UNDER_DP                                        \
    {.name = "{name}",                                                            \
     .parts = "embedding",                                                        \
     .when = "embeds && !dp_attention",                                           \
     .pad = "vocab_multiple",                                                     \
     .cuts = "0/embed"},                                                          \
    {                                                                             \
        .name = "{name}", .parts = "embedding", .when = "embeds && dp_attention", \
        .pad = "vocab_multiple"                                                   \
    }

/* [layers/radix_linear_attention.py: RadixLinearAttention] */
#define WF_SGLANG_DELTA_ALIASES                              \
    {"gdn_a_log", "{dir}linear_attn.attn.A_log", NULL},      \
    {                                                        \
        "gdn_dt_bias", "{dir}linear_attn.attn.dt_bias", NULL \
    }

/* Qwen's classes say is_layer_sparse = True [models/qwen2_moe.py, qwen3_moe.py, qwen3_next.py]. */
#define WF_SGLANG_ALL_SPARSE                                                                \
    "(E == 0 || (moe_step == 1 && mlp_only_count == 0)): SGLang's class builds experts in " \
    "every layer, and loads nothing where mlp_only_layers or decoder_sparse_step make it dense"

#define WF_SGLANG_NO_DP_ATTENTION                                                 \
    "dp == 1: SGLang's class cuts its attention over all tensor parallel ranks, " \
    "whatever dp_attention says"

/* --- experts --------------------------------------------------------------------------------- */

/* w13 is gate, up of each local expert; two backends have the loader store up first
 * [layers/moe/fused_moe_triton/layer.py: _load_w13, load_up_proj_weight_first]. */
#define WF_SGLANG_UP_FIRST "(moe_backend.flashinfer_cutlass || moe_backend.flashinfer_trtllm)"
/* The hook of the unquantised method shuffles rows for TRT-LLM's kernels. */
#define WF_SGLANG_TILED "(moe_backend.flashinfer_trtllm && stage.post && !has.expert_gate_scale)"
/* triton_kernels' matrix product wants [in, out], and its experts are made so before they are
 * loaded [layers/quantization/unquant.py: UnquantizedFusedMoEMethod.create_weights]. */
#define WF_SGLANG_TRANSPOSED "moe_backend.triton_kernel"
/* SGLANG_OPT_FUSE_SWIGLU_INTERLEAVED: the hook interleaves gate and up, in place. */
#define WF_SGLANG_INTERLEAVED "(swiglu_interleaved && stage.post && !has.expert_gate_scale)"

#define WF_SGLANG_W13(suffix, parts_, extra_, when_)                                          \
    {                                                                                         \
        .name = "{experts}w13_" suffix, .parts = parts_, .when = when_, .groups = "etp_size", \
        .cuts = "0/etp", .extra = extra_                                                      \
    }
#define WF_SGLANG_W2(suffix, parts_, extra_, when_)                                     \
    {                                                                                   \
        .name = "{experts}w2_" suffix, .parts = parts_, .when = when_, .cuts = "1/etp", \
        .extra = extra_                                                                 \
    }
/* What every backend makes of experts while `when` holds; E(PARTS) gives the extra slots' parts. */
#define WF_SGLANG_EXPERTS(when_, E)                                                              \
    WF_SGLANG_W13("weight", "expert_gate expert_up", E("shared_gate shared_up"),                 \
                  when_ " && !" WF_SGLANG_UP_FIRST " && !" WF_SGLANG_TRANSPOSED                  \
                        " && !" WF_SGLANG_INTERLEAVED),                                          \
        WF_SGLANG_W13("weight", "expert_up expert_gate", E("shared_up shared_gate"),             \
                      when_ " && " WF_SGLANG_UP_FIRST " && !" WF_SGLANG_TILED),                  \
        {.name = "{experts}w13_weight",                                                          \
         .parts = "expert_gate expert_up",                                                       \
         .when = when_ " && " WF_SGLANG_INTERLEAVED,                                             \
         .groups = "I",                                                                          \
         .cuts = "0/etp",                                                                        \
         .extra = E("shared_gate shared_up")},                                                   \
        {.name = "{experts}w13_weight",                                                          \
         .parts = "expert_gate expert_up",                                                       \
         .when = when_ " && " WF_SGLANG_TRANSPOSED,                                              \
         .groups = "etp_size",                                                                   \
         .cuts = "0/etp",                                                                        \
         .extra = E("shared_gate shared_up"),                                                    \
         .view = "e r c -> e c r",                                                               \
         .shape = "slots, columns, rows"},                                                       \
        {.name = "{experts}w13_weight",                                                          \
         .parts = "expert_up expert_gate",                                                       \
         .when = when_ " && " WF_SGLANG_TILED,                                                   \
         .groups = "etp_size",                                                                   \
         .cuts = "0/etp",                                                                        \
         .extra = E("shared_up shared_gate"),                                                    \
         .view = "e (g:2 i a:8 b:2) (k l:64) -> e k i b g a l",                                  \
         .shape = "slots, columns / 64, rows, 64"},                                              \
        WF_SGLANG_W2("weight", "expert_down", E("shared_down"),                                  \
                     when_ " && !" WF_SGLANG_TILED " && !" WF_SGLANG_TRANSPOSED),                \
        {.name = "{experts}w2_weight",                                                           \
         .parts = "expert_down",                                                                 \
         .when = when_ " && " WF_SGLANG_TRANSPOSED,                                              \
         .cuts = "1/etp",                                                                        \
         .extra = E("shared_down"),                                                              \
         .view = "e r c -> e c r",                                                               \
         .shape = "slots, columns, rows"},                                                       \
        {.name = "{experts}w2_weight",                                                           \
         .parts = "expert_down",                                                                 \
         .when = when_ " && " WF_SGLANG_TILED,                                                   \
         .cuts = "1/etp",                                                                        \
         .extra = E("shared_down"),                                                              \
         .view = "e (i a:8 b:4) (k l:64) -> e k i b a l",                                        \
         .shape = "slots, columns / 64, rows, 64"},                                              \
        WF_SGLANG_W13(WF_SERVING_SCALE, "expert_gate_scale expert_up_scale",                     \
                      E("shared_gate_scale shared_up_scale"), when_ " && !" WF_SGLANG_UP_FIRST), \
        WF_SGLANG_W13(WF_SERVING_SCALE, "expert_up_scale expert_gate_scale",                     \
                      E("shared_up_scale shared_gate_scale"), when_ " && " WF_SGLANG_UP_FIRST),  \
        WF_SGLANG_W2(WF_SERVING_SCALE, "expert_down_scale", E("shared_down_scale"), when_),      \
        WF_SGLANG_W13(WF_SERVING_ROW_SCALE, "expert_gate_rows expert_up_rows", NULL, when_),     \
    {                                                                                            \
        .name = "{experts}w2_" WF_SERVING_ROW_SCALE, .parts = "expert_down_rows", .when = when_  \
    }
/* int4 before the hook [layers/quantization/compressed_tensors/schemes/
 * compressed_tensors_wNa16_moe.py]: each expert transposed. What stands beside is no parameter:
 * shapes, and orders that a checkpoint without actorder does not have. */
#define WF_SGLANG_INT4_W13(name_, parts_)                                                      \
    {                                                                                          \
        .name = "{experts}w13_" name_, .parts = parts_, .groups = "etp_size", .cuts = "0/etp", \
        .view = "e r c -> e c r", .shape = "slots, columns, rows"                              \
    }
#define WF_SGLANG_INT4_W2(name_, parts_)                                                          \
    {                                                                                             \
        .name = "{experts}w2_" name_, .parts = parts_, .cuts = "1/etp", .view = "e r c -> e c r", \
        .shape = "slots, columns, rows"                                                           \
    }
#define WF_SGLANG_INT4_KEEP(name_, parts_, shape_, dtype_)                            \
    {                                                                                 \
        .name = "{experts}" name_, .parts = parts_, .shape = shape_, .dtype = dtype_, \
        .kind = WF_ROW_KEEP                                                           \
    }
#define WF_SGLANG_INT4_EXPERTS                                                                    \
    WF_SGLANG_INT4_W13("weight_packed", "expert_gate_int4 expert_up_int4"),                       \
        WF_SGLANG_INT4_W13("weight_scale", "expert_gate_int4_scale expert_up_int4_scale"),        \
        WF_SGLANG_INT4_W2("weight_packed", "expert_down_int4"),                                   \
        WF_SGLANG_INT4_W2("weight_scale", "expert_down_int4_scale"),                              \
        WF_SGLANG_INT4_KEEP("w13_weight_shape", "expert_gate_int4", "slots, 2", "model"),         \
        WF_SGLANG_INT4_KEEP("w2_weight_shape", "expert_down_int4", "slots, 2", "model"),          \
        WF_SGLANG_INT4_KEEP("w13_weight_g_idx", "expert_gate_int4", "slots, H", "i32"),           \
        WF_SGLANG_INT4_KEEP("w13_g_idx_sort_indices", "expert_gate_int4", "slots, H", "i32"),     \
        WF_SGLANG_INT4_KEEP("w2_weight_g_idx", "expert_down_int4", "slots, I / etp_size", "i32"), \
        WF_SGLANG_INT4_KEEP("w2_g_idx_sort_indices", "expert_down_int4", "slots, I / etp_size",   \
                            "i32"),                                                               \
    {                                                                                             \
        .parts = "expert_gate_int4_shape|expert_up_int4_shape|expert_down_int4_shape",            \
        .kind = WF_ROW_ABSENT                                                                     \
    }
#define WF_SGLANG_NO_EXTRA(parts_) NULL
#define WF_SGLANG_ONE_EXTRA(parts_) "1: " parts_

/* Whether the shared expert stands in a slot behind the routed ones, for classes that can
 * [models/deepseek_v2.py, glm4_moe.py, glm4_moe_lite.py: determine_num_fused_shared_experts]: by
 * itself without expert parallelism where `rule` holds, and where it is asked for. */
#define WF_SGLANG_FUSES(rule) \
    "(shared_experts.fused || (shared_experts.auto && ep == 1 && a2a.none && (" rule ")))"
/* The rows of experts of such a class; its exceptions take the place of the engine's. */
#define WF_SGLANG_FUSING_EXPERTS(rule)                                    \
    WF_SGLANG_EXPERTS(WF_SGLANG_FUSES(rule), WF_SGLANG_ONE_EXTRA),        \
        WF_SGLANG_EXPERTS("!" WF_SGLANG_FUSES(rule), WF_SGLANG_NO_EXTRA), \
        WF_SERVING_SHARED("!" WF_SGLANG_FUSES(rule))
#define WF_SGLANG_FUSING_REQUIRES(rule)                                                        \
    "(!shared_experts.fused || (ep == 1 && a2a.none)): a fused shared expert with expert "     \
    "parallelism is not known|"                                                                \
    "(redundant == 0 || !" WF_SGLANG_FUSES(                                                    \
        rule) "): a fused shared expert behind redundant ones is not known; say "              \
              "shared_experts=separate|"                                                       \
              "(S <= I || !" WF_SGLANG_FUSES(                                                  \
                  rule) "): several shared experts in one are not fused; say "                 \
                        "shared_experts=separate|"                                             \
                        "(!int4 || !" WF_SGLANG_FUSES(                                         \
                            rule) "): a shared expert fused with int4 ones is not known; say " \
                                  "shared_experts=separate"

#endif
