/* gemma3.c - Gemma 3, 4B and up: the text model below another prefix, and SigLIP's vision tower.
 *
 * A config without vision_config is the text model's alone, which transformers would complete with
 * a default tower. Published files call the tower vision_tower.vision_model; transformers 5.24
 * writes it without the second word (tests/golden/real/hf-transformers-5.24.0), and such files need
 * an own family with other names. */
#include "models/engines/sglang.h"
#include "models/engines/vllm.h"
#include "models/families/gemma.h"

/* vh hidden, vn heads, vi intermediate, vp sides of a patch, vg patches on a side of the image. */
#define VISION_SIZE(name, key, otherwise)                             \
    {                                                                 \
        name, "vision_config." key, "tower ? " otherwise " : 0", NULL \
    }

/* Defaults of absent keys: transformers 5, models/gemma3/configuration_gemma3.py and
 * models/siglip/configuration_siglip.py. */
static const struct wf_family_size sizes[] = {
    WF_SIZES_GEMMA("262208"),
    {"qk_norm", NULL, "1", NULL},
    {"tower", "vision_config", "0", "*"},
    VISION_SIZE("vl", "num_hidden_layers", "12"),
    VISION_SIZE("vh", "hidden_size", "768"),
    VISION_SIZE("vn", "num_attention_heads", "12"),
    VISION_SIZE("vi", "intermediate_size", "3072"),
    VISION_SIZE("vc", "num_channels", "3"),
    VISION_SIZE("vp", "patch_size", "16"),
    VISION_SIZE("vimage", "image_size", "224"),
    {"vg", NULL, "tower ? vimage // vp : 0", NULL},
    WF_SIZE_FLAG("pooled", "vision_config.vision_use_head", "tower"),
};

#define TOWER "vision_tower.vision_model."
#define PROJECTOR "multi_modal_projector."

static const struct wf_family_stack stacks[] = {
    WF_STACK_LAYER("language_model.model."),
    {"vision", TOWER "encoder.layers.{i}.", "vl", NULL},
};

/* Of the tower's blocks; outside them; of the head that pools, which Gemma does without but the
 * tower's class has unless it is told. */
#define LINEAR(role, module, rows, columns, unit)                       \
    WF_BLOCK("vision_" role, module ".weight", rows "," columns, unit), \
        WF_BLOCK("vision_" role "_bias", module ".bias", rows, unit)
#define NORM(role, module)                                  \
    WF_BLOCK("vision_" role, module ".weight", "vh", NULL), \
        WF_BLOCK("vision_" role "_bias", module ".bias", "vh", NULL)
#define OUTSIDE(role, name, shape)                             \
    {                                                          \
        "vision_" role, name, shape, NULL, "tower", NULL, NULL \
    }
#define POOL(role, name, shape)                                                    \
    {                                                                              \
        "vision_pool_" role, TOWER "head." name, shape, NULL, "pooled", NULL, NULL \
    }

/* [models/siglip/modeling_siglip.py, SiglipVisionTransformer; models/gemma3/modeling_gemma3.py,
 * Gemma3MultiModalProjector, whose matrix is [in, out]] */

static const struct wf_family_row rows[] = {
    WF_ROWS_GEMMA("language_model.model."),
    WF_ROWS_QK_NORM(NULL, NULL),
    WF_ROWS_GEMMA_MLP,
    WF_ROW_FINAL_NORM("language_model.model."),
    WF_ROW_HEAD("language_model.lm_head.weight"),
    OUTSIDE("patch", TOWER "embeddings.patch_embedding.weight", "vh,vc,vp,vp"),
    OUTSIDE("patch_bias", TOWER "embeddings.patch_embedding.bias", "vh"),
    OUTSIDE("pos", TOWER "embeddings.position_embedding.weight", "vg*vg,vh"),
    NORM("norm1", "layer_norm1"),
    LINEAR("k", "self_attn.k_proj", "vh", "vh", "vn"),
    LINEAR("v", "self_attn.v_proj", "vh", "vh", "vn"),
    LINEAR("q", "self_attn.q_proj", "vh", "vh", "vn"),
    WF_BLOCK("vision_proj", "self_attn.out_proj.weight", "vh,vh", "vn"),
    WF_BLOCK("vision_proj_bias", "self_attn.out_proj.bias", "vh", NULL),
    NORM("norm2", "layer_norm2"),
    LINEAR("fc1", "mlp.fc1", "vi", "vh", NULL),
    LINEAR("fc2", "mlp.fc2", "vh", "vi", NULL),
    OUTSIDE("post_norm", TOWER "post_layernorm.weight", "vh"),
    OUTSIDE("post_norm_bias", TOWER "post_layernorm.bias", "vh"),
    POOL("probe", "probe", "1,1,vh"),
    POOL("qkv", "attention.in_proj_weight", "3*vh,vh"),
    POOL("qkv_bias", "attention.in_proj_bias", "3*vh"),
    POOL("proj", "attention.out_proj.weight", "vh,vh"),
    POOL("proj_bias", "attention.out_proj.bias", "vh"),
    POOL("norm", "layernorm.weight", "vh"),
    POOL("norm_bias", "layernorm.bias", "vh"),
    POOL("fc1", "mlp.fc1.weight", "vi,vh"),
    POOL("fc1_bias", "mlp.fc1.bias", "vi"),
    POOL("fc2", "mlp.fc2.weight", "vh,vi"),
    POOL("fc2_bias", "mlp.fc2.bias", "vh"),
    OUTSIDE("projection", PROJECTOR "mm_input_projection_weight", "vh,H"),
    OUTSIDE("projection_norm", PROJECTOR "mm_soft_emb_norm.weight", "vh"),
};

#define POOLING                                                                     \
    "vision_pool_probe|vision_pool_qkv|vision_pool_qkv_bias|vision_pool_proj|"      \
    "vision_pool_proj_bias|vision_pool_norm|vision_pool_norm_bias|vision_pool_fc1|" \
    "vision_pool_fc1_bias|vision_pool_fc2|vision_pool_fc2_bias"
#define ENDS \
    "vision_patch|vision_patch_bias|vision_pos|vision_post_norm|vision_post_norm_bias|" POOLING
#define BLOCKS                                                                               \
    "vision_norm1|vision_norm1_bias|vision_q|vision_q_bias|vision_k|vision_k_bias|vision_v|" \
    "vision_v_bias|vision_proj|vision_proj_bias|vision_norm2|vision_norm2_bias|vision_fc1|"  \
    "vision_fc1_bias|vision_fc2|vision_fc2_bias"

/* [Megatron-Bridge: models/gemma_vl] The tower is the Hugging Face module, whole on every rank of
 * the stage that embeds; the projector is Megatron's own and cuts its output. */
static const struct wf_engine_row megatron_rows[] = {
    {.name = "{name}", .parts = BLOCKS},
    {.name = "{name}", .parts = ENDS, .when = "embeds"},
    {.name = PROJECTOR "mm_soft_embed_norm.weight",
     .parts = "vision_projection_norm",
     .when = "embeds"},
    {.name = PROJECTOR "proj.weight",
     .parts = "vision_projection",
     .when = "embeds",
     .cuts = "1/tp",
     .view = "r c -> c r",
     .shape = "columns, rows"},
};

/* [vLLM: models/gemma3_mm.py, siglip.py] The head that pools is not built, and the tower is cut
 * over all ranks whatever the encoder's mode says. */
static const struct wf_engine_row vllm_rows[] = {
    WF_VLLM_GEMMA3_ROWS,
    {.name = "{dir}qkv_proj.weight",
     .parts = "vision_q vision_k vision_v",
     .when = "embeds",
     .groups = "tp_size",
     .cuts = "0/tp"},
    {.name = "{dir}qkv_proj.bias",
     .parts = "vision_q_bias vision_k_bias vision_v_bias",
     .when = "embeds",
     .groups = "tp_size",
     .cuts = "0/tp"},
    {.name = "{name}", .parts = "vision_proj|vision_fc2", .when = "embeds", .cuts = "1/tp"},
    {.name = "{name}", .parts = "vision_fc1|vision_fc1_bias", .when = "embeds", .cuts = "0/tp"},
    {.name = "{name}", .parts = POOLING, .kind = WF_ROW_ABSENT},
};
static const struct wf_engine_alias vllm_aliases[] = {WF_VLLM_TIED_EVERYWHERE};
/* SGLang's tower is cut over all ranks, whatever the encoder's mode says [models/gemma3_mm.py gives
 * siglip.py no use_data_parallel]. */
static const struct wf_engine_row sglang_rows[] = {
    WF_SGLANG_GEMMA3_ROWS,
    {.name = "{name}", .parts = "vision_pos", .when = "embeds", .pad = "64", .cuts = "0/tp"},
    WF_SGLANG_FUSED_OF("{dir}qkv_proj.weight", "vision_q vision_k vision_v", "tp"),
    WF_SGLANG_FUSED_OF("{dir}qkv_proj.bias", "vision_q_bias vision_k_bias vision_v_bias", "tp"),
    WF_SGLANG_COLUMNS_OF("vision_proj|vision_fc2", "tp"),
    WF_SGLANG_ROWS_OF("vision_fc1|vision_fc1_bias", "tp"),
};

/* Both engines give the tower's linears the config of the quantisation, each with exceptions of its
 * own. */
#define REQUIRES                                                                                   \
    "!tower || !(fp8 || fp8_rows): which linears of the vision tower are fp8 in an engine is not " \
    "known"

/* Files and memory of transformers 5 disagree (tests/golden/real/hf-transformers-5.24.0). */
static const struct wf_family_engine engines[] = {
    {.engine = "memory",
     .renames =
         "language_model.model.=>model.language_model. language_model.lm_head.=>lm_head. " TOWER
         "=>model.vision_tower. " PROJECTOR "=>model." PROJECTOR},
    {.engine = "megatron",
     .prefix = "language_model.",
     .requires = "!tower || loader.bridge: mbridge builds a vision tower of its own, whose "
                 "layout is not known here; use loader=bridge",
     WF_ROWS_OF(megatron_rows)},
    {.engine = "vllm",
     WF_ROWS_OF(vllm_rows),
     WF_ALIASES_OF(vllm_aliases),
     .requires = REQUIRES,
     .prefix = "language_model."},
    /* [SGLang: models/gemma3_mm.py, siglip.py] */
    {.engine = "sglang",
     .prefix = "language_model.",
     .renames = "self_attn.out_proj=>self_attn.proj",
     .requires = WF_SGLANG_GEMMA3_REQUIRES
     "|" REQUIRES "|!pooled: SGLang's tower has no head that pools, and its loader refuses files "
     "with one; give \"vision_use_head\": false",
     WF_ROWS_OF(sglang_rows)},
};

const struct wf_family wf_family_gemma3 = {
    .name = "gemma3",
    .model_types = "gemma3",
    .text_config = "text_config",
    .refused = WF_REFUSED_GEMMA,
    WF_FAMILY_TABLES,
    .requires = WF_REQUIRES_HEADS "|" WF_REQUIRES_HEAD_DIM "|" WF_REQUIRES_FP8
                                  "|!tower || vh % vn == 0: the vision tower's hidden_size is no "
                                  "multiple of its num_attention_heads",
};
