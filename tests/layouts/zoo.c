/* zoo.c - see zoo.h. */
#include "zoo.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define COMMON                                                       \
    "'hidden_size': $H, 'num_hidden_layers': $L, 'vocab_size': $V, " \
    "'num_attention_heads': $nq, 'rms_norm_eps': 1e-06, 'torch_dtype': '$dtype'"
#define TIED ", 'tie_word_embeddings': $tied"
#define UNTIED ", 'tie_word_embeddings': false"
#define DENSE ", 'num_key_value_heads': $nk, 'head_dim': $d, 'intermediate_size': $F"
#define EXPERTS ", 'num_experts': $E, 'num_experts_per_tok': 2, 'moe_intermediate_size': $I"
#define QWEN_MOE EXPERTS ", 'decoder_sparse_step': 1, 'mlp_only_layers': [], 'norm_topk_prob': true"
#define SHARED ", 'shared_expert_intermediate_size': $S"
#define DELTA                                                        \
    ", 'linear_num_key_heads': $gk, 'linear_num_value_heads': $gv, " \
    "'linear_key_head_dim': $ek, 'linear_value_head_dim': $ev, "     \
    "'linear_conv_kernel_dim': 4, 'full_attention_interval': 2"
#define DEEPSEEK                                                                       \
    ", 'num_key_value_heads': $nq, 'intermediate_size': $F, 'n_routed_experts': $E, "  \
    "'num_experts_per_tok': 2, 'moe_intermediate_size': $I, 'n_shared_experts': $ns, " \
    "'first_k_dense_replace': $dense, 'moe_layer_freq': 1, 'n_group': 1, 'topk_group': 1"
#define MLA                                                                    \
    ", 'kv_lora_rank': $c, 'qk_nope_head_dim': $dn, 'qk_rope_head_dim': $dr, " \
    "'v_head_dim': $dv"
#define NOAUX ", 'scoring_func': 'sigmoid', 'topk_method': 'noaux_tc'"
#define MTP ", 'num_nextn_predict_layers': $mtp"
#define BAILING                                                            \
    DENSE EXPERTS                                                          \
        ", 'num_shared_experts': $ns, 'first_k_dense_replace': $dense, "   \
        "'moe_shared_expert_intermediate_size': $I, 'use_qk_norm': true, " \
        "'use_qkv_bias': false, 'use_bias': false, 'moe_router_enable_expert_bias': true" MTP
#define VISION                                                             \
    "'vision_config': {'depth': 2, 'hidden_size': 16, 'num_heads': $vh, "  \
    "'intermediate_size': 24, 'patch_size': 2, 'temporal_patch_size': 2, " \
    "'spatial_merge_size': 2, 'in_channels': 3, 'out_hidden_size': $H, "   \
    "'num_position_embeddings': 16, 'deepstack_visual_indexes': $deep}"

const struct zoo_family zoo_families[] = {
    {"llama",
     "{'model_type': 'llama', " COMMON TIED DENSE ", 'attention_bias': $flag, 'mlp_bias': $flag}"},
    {"mistral", "{'model_type': 'mistral', " COMMON UNTIED DENSE "}"},
    {"mixtral", "{'model_type': 'mixtral', " COMMON UNTIED DENSE
                ", 'num_local_experts': $E, 'num_experts_per_tok': 2}"},
    {"qwen2", "{'model_type': 'qwen2', " COMMON TIED
              ", 'num_key_value_heads': $nk, 'intermediate_size': $F}"},
    {"qwen2_moe", "{'model_type': 'qwen2_moe', " COMMON UNTIED
                  ", 'num_key_value_heads': $nk, 'intermediate_size': $F" QWEN_MOE SHARED "}"},
    {"qwen3", "{'model_type': 'qwen3', " COMMON TIED DENSE "}"},
    {"qwen3_moe", "{'model_type': 'qwen3_moe', " COMMON TIED DENSE QWEN_MOE "}"},
    {"qwen3_next", "{'model_type': 'qwen3_next', " COMMON UNTIED DENSE QWEN_MOE SHARED DELTA "}"},
    {"qwen3_5",
     "{'model_type': 'qwen3_5', 'text_config': {'model_type': 'qwen3_5_text', " COMMON DENSE DELTA
     ", 'attn_output_gate': true}" TIED ", " VISION "}"},
    {"qwen3_5_moe", "{'model_type': 'qwen3_5_moe', 'text_config': {'model_type': "
                    "'qwen3_5_moe_text', " COMMON DENSE QWEN_MOE SHARED DELTA
                    ", 'attn_output_gate': true}" UNTIED ", " VISION "}"},
    {"qwen3_vl",
     "{'model_type': 'qwen3_vl', 'text_config': {'model_type': 'qwen3_vl_text', " COMMON DENSE TIED
     "}" TIED ", " VISION "}"},
    {"qwen3_vl_moe", "{'model_type': 'qwen3_vl_moe', 'text_config': {'model_type': "
                     "'qwen3_vl_moe_text', " COMMON DENSE QWEN_MOE "}" UNTIED ", " VISION "}"},
    {"deepseek_v2", "{'model_type': 'deepseek_v2', " COMMON UNTIED DEEPSEEK MLA
                    ", 'q_lora_rank': $lora, 'scoring_func': 'softmax'}"},
    {"deepseek_v3", "{'model_type': 'deepseek_v3', " COMMON UNTIED DEEPSEEK MLA
                    ", 'q_lora_rank': $lora" NOAUX MTP "}"},
    {"deepseek_v32", "{'model_type': 'deepseek_v32', " COMMON UNTIED DEEPSEEK MLA
                     ", 'q_lora_rank': $qr, 'index_topk': 4, 'index_n_heads': $ih, "
                     "'index_head_dim': 8" NOAUX "}"},
    {"kimi_k2",
     "{'model_type': 'kimi_k2', " COMMON UNTIED DEEPSEEK MLA ", 'q_lora_rank': $qr" NOAUX "}"},
    {"kimi_k25",
     "{'model_type': 'kimi_k25', 'text_config': {'model_type': 'kimi_k2', " COMMON DEEPSEEK MLA
     ", 'q_lora_rank': $qr" NOAUX "}" UNTIED "}"},
    {"glm4_moe", "{'model_type': 'glm4_moe', " COMMON UNTIED DENSE
                 ", 'n_routed_experts': $E, 'num_experts_per_tok': 2, 'moe_intermediate_size': $I, "
                 "'n_shared_experts': $ns, 'first_k_dense_replace': $dense, 'n_group': 1, "
                 "'topk_group': 1, 'attention_bias': $flag, 'use_qk_norm': $flag" MTP "}"},
    {"glm4_moe_lite", "{'model_type': 'glm4_moe_lite', " COMMON UNTIED DEEPSEEK MLA
                      ", 'q_lora_rank': $qr" NOAUX MTP "}"},
    {"bailing_moe_v2", "{'model_type': 'bailing_moe_v2', " COMMON UNTIED BAILING "}"},
    {"bailing_moe_linear", "{'model_type': 'bailing_moe_linear', " COMMON UNTIED BAILING
                           ", 'layer_group_size': 2, 'group_norm_size': 2}"},
    {"bailing_hybrid", "{'model_type': 'bailing_hybrid', " COMMON UNTIED BAILING MLA
                       ", 'q_lora_rank': $qr, 'layer_group_size': 2, 'group_norm_size': 2, "
                       "'full_attention_type': 'mla', 'router_dtype': 'fp32'}"},
    {"gpt_oss", "{'model_type': 'gpt_oss', " COMMON UNTIED DENSE
                ", 'attention_bias': true, 'num_local_experts': $E, 'num_experts_per_tok': 2}"},
    {"gemma2", "{'model_type': 'gemma2', " COMMON ", 'tie_word_embeddings': true" DENSE "}"},
    {"gemma3_text",
     "{'model_type': 'gemma3_text', " COMMON ", 'tie_word_embeddings': true" DENSE "}"},
    {NULL, NULL},
};

uint64_t zoo_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

unsigned zoo_pick(uint64_t *state, const unsigned *from, unsigned count)
{
    return from[zoo_random(state) % count];
}

/* --- configs --------------------------------------------------------------------------------- */

/* Every hole has one value throughout a config, except $flag, which is drawn each time. */
struct sizes {
    unsigned nk, nq, d, gk, gv, L;
    bool tied, bf16, deep, lora;
    struct {
        const char *name;
        unsigned value;
    } others[16];
};

static struct sizes draw_sizes(uint64_t *state)
{
    struct sizes s = {.nk = ZOO_PICK(state, 1, 2, 2, 3, 4, 4),
                      .d = ZOO_PICK(state, 2, 4),
                      .gk = ZOO_PICK(state, 2, 4),
                      .L = ZOO_PICK(state, 2, 2, 3, 4, 4, 6),
                      .tied = zoo_random(state) % 3 == 0,
                      .bf16 = zoo_random(state) % 4 > 0,
                      .deep = zoo_random(state) % 2 > 0,
                      .lora = zoo_random(state) % 4 > 0};
    s.nq = s.nk * ZOO_PICK(state, 1, 2, 2, 4);
    s.gv = s.gk * ZOO_PICK(state, 1, 2, 3);
    unsigned h = s.nq * ZOO_PICK(state, 2, 4); /* families that know no head size: H / nq */
    s.others[0].name = "H", s.others[0].value = h < 8 ? 8 : h;
    s.others[1].name = "V", s.others[1].value = ZOO_PICK(state, 24, 32, 61, 64, 100, 129);
    s.others[2].name = "F", s.others[2].value = ZOO_PICK(state, 12, 16, 24);
    s.others[3].name = "E", s.others[3].value = ZOO_PICK(state, 4, 4, 6, 8);
    s.others[4].name = "I", s.others[4].value = ZOO_PICK(state, 4, 8, 12);
    s.others[5].name = "S", s.others[5].value = ZOO_PICK(state, 4, 8, 12);
    s.others[6].name = "ek", s.others[6].value = ZOO_PICK(state, 2, 4);
    s.others[7].name = "ev", s.others[7].value = ZOO_PICK(state, 2, 4, 6);
    s.others[8].name = "c", s.others[8].value = ZOO_PICK(state, 6, 8);
    s.others[9].name = "dn", s.others[9].value = ZOO_PICK(state, 2, 4);
    s.others[10].name = "dr", s.others[10].value = ZOO_PICK(state, 2, 4);
    s.others[11].name = "dv", s.others[11].value = ZOO_PICK(state, 2, 4, 6);
    s.others[12].name = "qr", s.others[12].value = ZOO_PICK(state, 6, 8);
    s.others[13].name = "ns", s.others[13].value = ZOO_PICK(state, 1, 1, 2);
    s.others[14].name = "ih", s.others[14].value = ZOO_PICK(state, 2, 4);
    s.others[15].name = "mtp", s.others[15].value = ZOO_PICK(state, 0, 0, 0, 1);
    return s;
}

static bool is(const char *hole, const char *name)
{
    return strcmp(hole, name) == 0;
}

static void fill_hole(const struct sizes *s, const char *hole, uint64_t *state, char out[64])
{
    const struct {
        const char *name;
        unsigned value;
    } sizes[] = {{"nk", s->nk}, {"nq", s->nq}, {"d", s->d},         {"gk", s->gk},
                 {"gv", s->gv}, {"L", s->L},   {"dense", s->L / 3}, {"vh", 4}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (is(hole, sizes[i].name)) {
            snprintf(out, 64, "%u", sizes[i].value);
            return;
        }
    }
    for (size_t i = 0; i < sizeof s->others / sizeof s->others[0]; i++) {
        if (is(hole, s->others[i].name)) {
            snprintf(out, 64, "%u", s->others[i].value);
            return;
        }
    }
    if (is(hole, "lora")) {
        snprintf(out, 64, s->lora ? "8" : "null");
    } else if (is(hole, "dtype")) {
        snprintf(out, 64, s->bf16 ? "bfloat16" : "float32");
    } else if (is(hole, "deep")) {
        snprintf(out, 64, s->deep ? "[0]" : "[]");
    } else {
        bool yes = is(hole, "tied") ? s->tied : zoo_random(state) % 2 > 0;
        cr_assert(is(hole, "tied") || is(hole, "flag"), "no size fills $%s", hole);
        snprintf(out, 64, yes ? "true" : "false");
    }
}

void zoo_config(const struct zoo_family *family, uint64_t *state, char out[ZOO_CONFIG_MAX])
{
    struct sizes sizes = draw_sizes(state);
    size_t used = 0;
    for (const char *at = family->text; *at != '\0';) {
        cr_assert_lt(used + 64, (size_t)ZOO_CONFIG_MAX, "%s", family->name);
        if (*at != '$') {
            out[used++] = *at == '\'' ? '"' : *at;
            at++;
            continue;
        }
        char hole[16];
        size_t len = 0;
        for (at++; isalnum((unsigned char)*at) && len + 1 < sizeof hole; at++) {
            hole[len++] = *at;
        }
        hole[len] = '\0';
        fill_hole(&sizes, hole, state, out + used);
        used += strlen(out + used);
    }
    out[used] = '\0';
}

/* --- SPECs ----------------------------------------------------------------------------------- */

static bool one_in(uint64_t *state, unsigned n)
{
    return zoo_random(state) % n == 0;
}

/* Sizes that most recipes have, with how often each is drawn; 0 leaves the key out. */
static unsigned draw_size(const struct wf_engine_key *key, uint64_t *state)
{
    static const struct {
        const char *name;
        unsigned values[8];
    } known[] = {
        {"tp", {1, 2, 2, 2, 3, 4, 4, 6}},      {"pp", {0, 0, 0, 0, 0, 2, 2, 3}},
        {"dp", {0, 0, 0, 2, 2, 2, 3, 4}},      {"cp", {0, 0, 0, 0, 0, 0, 2, 2}},
        {"ep", {0, 0, 0, 2, 2, 2, 4, 4}},      {"etp", {0, 0, 0, 1, 1, 1, 2, 2}},
        {"vpp", {0, 0, 0, 0, 0, 2, 2, 3}},     {"vocab_div", {0, 0, 0, 1, 4, 8, 12, 16}},
        {"first", {0, 0, 0, 0, 0, 0, 1, 2}},   {"last", {0, 0, 0, 0, 0, 0, 1, 2}},
        {"engines", {0, 0, 0, 0, 0, 2, 2, 3}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (is(key->name, known[i].name)) {
            return known[i].values[zoo_random(state) % 8];
        }
    }
    unsigned value = ZOO_PICK(state, 1, 2, 2, 4);
    return one_in(state, 8) && value <= key->max ? value : 0;
}

/* One of words parted by '|'; "" for none. */
static void draw_word(const char *words, uint64_t *state, char out[64])
{
    unsigned count = 1;
    for (const char *at = words; *at != '\0'; at++) {
        count += *at == '|';
    }
    unsigned index = (unsigned)(zoo_random(state) % count);
    for (; index > 0; index--) {
        words = strchr(words, '|') + 1;
    }
    snprintf(out, 64, "%.*s", (int)strcspn(words, "|"), words);
}

/* Stages of a pipeline: all layers in random shares, the head and what predicts further at the
 * end. */
static void draw_layout(const struct wf_model *model, uint64_t *state, char out[WF_SPEC_MAX])
{
    size_t used = 0;
    out[used++] = 'E';
    for (uint64_t i = 0; i < model->layers; i++) {
        out[used++] = 't';
        if (one_in(state, 3)) {
            out[used++] = '|';
        }
    }
    for (uint32_t s = 0; s < model->family->stack_count; s++) {
        bool mtp = is(model->family->stacks[s].name, "mtp");
        for (uint32_t i = 0; i < wf_model_stack_count(model, s) && mtp; i++) {
            out[used++] = 'm';
        }
    }
    out[used++] = 'L';
    out[used] = '\0';
}

static bool draw_value(const struct wf_engine *engine, const struct wf_engine_key *key,
                       const struct wf_model *model, uint64_t *state, char out[WF_SPEC_MAX])
{
    static const char *const orders = "tp-cp-ep-dp-pp|tp-cp-pp-ep-dp|tp-ep-dp-pp-cp|cp-tp-ep-dp-pp";
    unsigned size = 0, versions = 0;
    switch (key->kind) {
    case WF_KEY_SIZE:
        size = draw_size(key, state);
        snprintf(out, WF_SPEC_MAX, "%u", size);
        return size > 0;
    case WF_KEY_FLAG:
        snprintf(out, WF_SPEC_MAX, "1");
        return one_in(state, 6);
    case WF_KEY_WORD:
        draw_word(key->words, state, out);
        return one_in(state, 6);
    case WF_KEY_VERSION:
        while (engine->versions[versions] != NULL) {
            versions++;
        }
        snprintf(out, WF_SPEC_MAX, "%s", engine->versions[zoo_random(state) % versions]);
        return one_in(state, 3);
    case WF_KEY_DTYPE:
        snprintf(out, WF_SPEC_MAX, one_in(state, 2) ? "f32" : "bf16");
        return one_in(state, 4);
    case WF_KEY_ACCOUNT:
        draw_word("embedding|loss|embedding+loss", state, out);
        return one_in(state, 10);
    case WF_KEY_ORDER:
        draw_word(orders, state, out);
        return one_in(state, 8);
    case WF_KEY_LAYOUT:
        draw_layout(model, state, out);
        return one_in(state, 8);
    default:
        return false;
    }
}

void zoo_spec(const struct wf_engine *engine, const struct wf_model *model, uint64_t *state,
              char out[WF_SPEC_MAX])
{
    size_t used = (size_t)snprintf(out, WF_SPEC_MAX, "%s:", engine->name);
    const char *mark = "";
    for (size_t i = 0; i < engine->key_count; i++) {
        char value[WF_SPEC_MAX];
        if (draw_value(engine, &engine->keys[i], model, state, value)) {
            used += (size_t)snprintf(out + used, WF_SPEC_MAX - used, "%s%s=%s", mark,
                                     engine->keys[i].name, value);
            cr_assert_lt(used, (size_t)WF_SPEC_MAX);
            mark = ",";
        }
    }
}
