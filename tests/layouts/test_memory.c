/* test_memory.c - contents of tensors in a trainer's memory that no executed layout of
 * tests/golden/real shows. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "models/layout.h"
#include "tools/layout/look.h"

#define KIMI                                                                     \
    "{\"model_type\": \"kimi_k25\", \"text_config\": {\"hidden_size\": 16, "     \
    "\"num_hidden_layers\": 1, \"vocab_size\": 64, \"num_attention_heads\": 2, " \
    "\"intermediate_size\": 24, \"q_lora_rank\": 12, \"kv_lora_rank\": 10, "     \
    "\"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4, \"v_head_dim\": 8}, "     \
    "\"vision_config\": {\"patch_size\": 2, \"vt_hidden_size\": 24, "            \
    "\"vt_num_hidden_layers\": 1, \"vt_num_attention_heads\": 2, \"vt_intermediate_size\": 20}}"

/* Of Kimi K2.5's tower transformers takes q, k and v apart, and each head's rows of q and of k by
 * halves: the even ones, then the odd ones [core_model_loading.py: PermuteForRope]. */
Test(memory, heads_of_a_tower_are_halved)
{
    enum { HIDDEN = 24, HEADS = 2, HEAD = HIDDEN / HEADS, HALF = HEAD / 2, RANKS = 2 };
    static const char *const leaves[] = {"q", "k", "v"};
    struct wf_model *model = NULL;
    struct wf_recipe recipe;
    struct wf_error error = {0};
    cr_assert_eq(wf_model_parse(KIMI, strlen(KIMI), NULL, &model, &error), WF_OK, "%s", error.text);
    cr_assert_eq(wf_recipe_parse("fsdp:dp=2", model, &recipe, &error), WF_OK, "%s", error.text);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct wf_layout *layout = NULL;
        cr_assert_eq(wf_layout_derive(model, &recipe, rank, &layout, NULL), WF_OK);
        for (uint64_t leaf = 0; leaf < 3; leaf++) {
            char name[WF_NAME_MAX];
            snprintf(name, sizeof name, "model.vision_tower.layers.0.attn.%s_proj.weight",
                     leaves[leaf]);
            uint32_t tensor = wf_layout_find(layout, name, strlen(name));
            cr_assert_neq(tensor, UINT32_MAX, "%s", name);
            for (uint64_t i = 0; i < HIDDEN / RANKS * HIDDEN; i++) {
                uint64_t row = rank * (HIDDEN / RANKS) + i / HIDDEN, in = row % HEAD;
                uint64_t from = leaf < 2 ? in % HALF * 2 + in / HALF : in;
                uint64_t expected =
                    (leaf * HIDDEN + row / HEAD * HEAD + from) * HIDDEN + i % HIDDEN;
                struct wf_look look;
                cr_assert(wf_layout_look(layout, tensor, i, &look));
                cr_assert_eq(look.element, expected, "rank %u %s[%u]", rank, name, (unsigned)i);
            }
        }
        wf_layout_free(layout);
    }
    wf_model_free(model);
}
