/* expect_class.c - in which way an engine's model class is not like its others, retold.
 *
 * Sources (files below models/ of each): vLLM 0.33.0 qwen3_vl.py, qwen3_vl_moe.py, qwen3_5.py,
 * gemma3_mm.py, gpt_oss.py (hf_to_vllm_mapper: other names; embedding), mixtral.py; SGLang 0.5.23
 * qwen3_vl.py, qwen3_5.py (names), llama.py, qwen2.py, qwen3.py, qwen3_moe.py, deepseek_v2.py,
 * gpt_oss.py, mixtral.py (on which stages the head is made, and whether it is tied),
 * deepseek_v2.py, glm4_moe.py (determine_num_fused_shared_experts), qwen2_moe.py
 * (can_fuse_shared_expert); bailing_moe.py of both.
 */
#include "tools/check/expect_class.h"

#include <string.h>

/* Of no class in particular, on one stage. */
static const struct wf_expect_class plain[] = {
    [false] = {.text = "model.", .live = "model.", .head = "lm_head.weight"},
    [true] = {.sglang = true, .text = "model.", .live = "model.", .head = "lm_head.weight"},
};

#define VL .text = "model.language_model.", .head = "lm_head.weight"

static const struct wf_expect_class classes[] = {
    {.types = "|llama|mistral|qwen2|qwen3|deepseek_v2|deepseek_v3|deepseek_v32|kimi_k2|",
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .stages = true},
    {.types = "|qwen3_vl|qwen3_vl_moe|qwen3_5|qwen3_5_moe|",
     VL,
     .live = "language_model.model.",
     .live_top = "language_model.",
     .live_visual = "visual."},
    {.types = "|gemma3|kimi_k25|",
     .text = "language_model.model.",
     .live = "language_model.model.",
     .head = "language_model.lm_head.weight"},
    {.types = "|bailing_moe_v2|",
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .stored = "word_embeddings.weight",
     .one_qkv = true},
    {.types = "|gpt_oss|",
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .embedding = "embedding.weight",
     .attention = "attn.",
     .alternates = true},

    {.types = "|llama|mistral|",
     .sglang = true,
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .stages = true,
     .heads = WF_EXPECT_HEAD_EVERYWHERE},
    {.types = "|qwen2|qwen3|deepseek_v32|",
     .sglang = true,
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .stages = true,
     .heads = WF_EXPECT_HEAD_OWN},
    {.types = "|deepseek_v2|deepseek_v3|kimi_k2|",
     .sglang = true,
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .fuses = 256,
     .stages = true,
     .heads = WF_EXPECT_HEAD_OWN},
    {.types = "|glm4_moe|glm4_moe_lite|",
     .sglang = true,
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .fuses = 1},
    {.types = "|bailing_moe_v2|",
     .sglang = true,
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .stored = "word_embeddings.weight",
     .one_qkv = true},
    {.types = "|qwen3_moe|mixtral|",
     .sglang = true,
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .stages = true,
     .heads = WF_EXPECT_HEAD_NEVER_TIED},
    {.types = "|gpt_oss|",
     .sglang = true,
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .alternates = true,
     .heads = WF_EXPECT_HEAD_NEVER_TIED},
    {.types = "|qwen3_vl|qwen3_vl_moe|",
     .sglang = true,
     VL,
     .live = "model.",
     .live_visual = "visual."},
    /* Attention's modules stand in the layer itself. */
    {.types = "|qwen3_5|qwen3_5_moe|",
     .sglang = true,
     VL,
     .live = "model.",
     .live_visual = "visual.",
     .attention = ""},
    {.types = "|qwen3_next|",
     .sglang = true,
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .fuses_alike = true,
     .attention = ""},
    {.types = "|gemma3_text|",
     .sglang = true,
     .text = "model.",
     .live = "model.",
     .head = "lm_head.weight",
     .plain_embedding = true},
    {.types = "|gemma3|",
     .sglang = true,
     .text = "language_model.model.",
     .live = "language_model.model.",
     .head = "language_model.lm_head.weight",
     .plain_embedding = true},
    {.types = "|kimi_k25|",
     .sglang = true,
     .text = "language_model.model.",
     .live = "language_model.model.",
     .head = "language_model.lm_head.weight"},
};

/* "qwen3" is in "|qwen2|qwen3|". */
static bool is_in(const char *types, const char *type)
{
    size_t len = strlen(type);
    for (const char *at = types; (at = strstr(at, type)) != NULL; at++) {
        if (at > types && at[-1] == '|' && at[len] == '|') {
            return true;
        }
    }
    return false;
}

const struct wf_expect_class *wf_expect_class(const char *model_type, bool sglang)
{
    for (size_t i = 0; model_type[0] != '\0' && i < sizeof classes / sizeof classes[0]; i++) {
        if (classes[i].sglang == sglang && is_in(classes[i].types, model_type)) {
            return &classes[i];
        }
    }
    return &plain[sglang];
}
