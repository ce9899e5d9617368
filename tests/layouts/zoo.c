/* zoo.c - see zoo.h. */
#include "zoo.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define COMMON                                                       \
    "'hidden_size': $H, 'num_hidden_layers': $L, 'vocab_size': $V, " \
    "'num_attention_heads': $nq, 'rms_norm_eps': 1e-06, 'torch_dtype': '$dtype'"
/* Layers in groups of two. */
#define EVEN                                                            \
    "'hidden_size': $H, 'num_hidden_layers': $even, 'vocab_size': $V, " \
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
#define FURTHER ", 'mtp_num_hidden_layers': $mtp"
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
#define SIGLIP                                                                                \
    "'vision_config': {'num_hidden_layers': 2, 'hidden_size': 16, 'num_attention_heads': 4, " \
    "'intermediate_size': 24, 'image_size': 10, 'patch_size': 2, 'vision_use_head': $flag}"
#define MOONVIT                                                                        \
    "'vision_config': {'vt_num_hidden_layers': 2, 'vt_hidden_size': 16, "              \
    "'vt_num_attention_heads': 4, 'vt_intermediate_size': 24, 'patch_size': 2, "       \
    "'init_pos_emb_height': 5, 'init_pos_emb_width': 3, 'merge_kernel_size': [2, 1], " \
    "'num_hidden_layers': 2, 'hidden_size': 16, 'num_attention_heads': 4, "            \
    "'intermediate_size': 24, 'pos_emb_height': 5, 'pos_emb_width': 3}"

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
    {"qwen3_next",
     "{'model_type': 'qwen3_next', " COMMON UNTIED DENSE QWEN_MOE SHARED DELTA FURTHER "}"},
    {"qwen3_5",
     "{'model_type': 'qwen3_5', 'text_config': {'model_type': 'qwen3_5_text', " COMMON DENSE DELTA
     ", 'attn_output_gate': true}" TIED ", " VISION "}"},
    {"qwen3_5_moe", "{'model_type': 'qwen3_5_moe', 'text_config': {'model_type': "
                    "'qwen3_5_moe_text', " COMMON DENSE QWEN_MOE SHARED DELTA FURTHER
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
     ", 'q_lora_rank': $qr" NOAUX "}" UNTIED ", " MOONVIT "}"},
    {"glm4_moe", "{'model_type': 'glm4_moe', " COMMON UNTIED DENSE
                 ", 'n_routed_experts': $E, 'num_experts_per_tok': 2, 'moe_intermediate_size': $I, "
                 "'n_shared_experts': $ns, 'first_k_dense_replace': $dense, 'n_group': 1, "
                 "'topk_group': 1, 'attention_bias': $flag, 'use_qk_norm': $flag" MTP "}"},
    {"glm4_moe_lite", "{'model_type': 'glm4_moe_lite', " COMMON UNTIED DEEPSEEK MLA
                      ", 'q_lora_rank': $qr" NOAUX MTP "}"},
    {"bailing_moe_v2", "{'model_type': 'bailing_moe_v2', " COMMON UNTIED BAILING "}"},
    {"bailing_moe_linear", "{'model_type': 'bailing_moe_linear', " EVEN UNTIED BAILING
                           ", 'layer_group_size': 2, 'group_norm_size': 4}"},
    {"bailing_hybrid", "{'model_type': 'bailing_hybrid', " EVEN UNTIED BAILING MLA
                       ", 'q_lora_rank': $qr, 'layer_group_size': 2, 'group_norm_size': 4, "
                       "'full_attention_type': 'mla', 'router_dtype': 'fp32'}"},
    {"gpt_oss", "{'model_type': 'gpt_oss', " COMMON UNTIED DENSE
                ", 'attention_bias': true, 'num_local_experts': $E, 'num_experts_per_tok': 2}"},
    {"gemma2", "{'model_type': 'gemma2', " COMMON ", 'tie_word_embeddings': true" DENSE "}"},
    {"gemma3", "{'model_type': 'gemma3', 'text_config': {'model_type': 'gemma3_text', " COMMON DENSE
               "}, 'tie_word_embeddings': true, " SIGLIP "}"},
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
    struct sizes s = {
        .nk = ZOO_PICK(state, 1, 1, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 8, 8, 3),
        .d = ZOO_PICK(state, 2, 4),
        .gk = ZOO_PICK(state, 2, 4, 4, 4),
        .L = ZOO_PICK(state, 2, 2, 3, 4, 4, 6),
        .tied = zoo_random(state) % 3 == 0,
        .bf16 = zoo_random(state) % 4 > 0,
        .deep = zoo_random(state) % 2 > 0,
        .lora = zoo_random(state) % 4 > 0};
    s.nq = s.nk * (s.nk == 8 ? ZOO_PICK(state, 1, 2) : ZOO_PICK(state, 1, 2, 2, 4));
    s.gv = s.gk * ZOO_PICK(state, 1, 2, 3);
    unsigned h = s.nq * ZOO_PICK(state, 2, 4); /* families that know no head size: H / nq */
    s.others[0].name = "H", s.others[0].value = h < 8 ? (8 + s.nq - 1) / s.nq * s.nq : h;
    s.others[1].name = "V", s.others[1].value = ZOO_PICK(state, 24, 32, 61, 64, 100, 129);
    s.others[2].name = "F", s.others[2].value = ZOO_PICK(state, 12, 16, 24, 24);
    s.others[3].name = "E", s.others[3].value = ZOO_PICK(state, 4, 4, 8, 8, 8, 6);
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
                 {"gv", s->gv}, {"L", s->L},   {"dense", s->L / 3}, {"even", (s->L + 1) / 2 * 2},
                 {"vh", 4}};
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

/* Counts of heads, experts and layers stay. */
static void scale_sizes(struct sizes *s, unsigned scale)
{
    static const char *const scaled[] = {"H", "F",  "I",  "S",  "ek", "ev",
                                         "c", "dn", "dr", "dv", "qr"};
    s->d *= scale;
    for (size_t i = 0; i < sizeof s->others / sizeof s->others[0]; i++) {
        for (size_t k = 0; k < sizeof scaled / sizeof scaled[0]; k++) {
            s->others[i].value *= is(s->others[i].name, scaled[k]) ? scale : 1;
        }
    }
}

void zoo_config(const struct zoo_family *family, uint64_t *state, char out[ZOO_CONFIG_MAX])
{
    zoo_config_scaled(family, state, 1, out);
}

void zoo_config_scaled(const struct zoo_family *family, uint64_t *state, unsigned scale,
                       char out[ZOO_CONFIG_MAX])
{
    struct sizes sizes = draw_sizes(state);
    scale_sizes(&sizes, scale);
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

/* Parallel sizes that go together; 0 leaves a key out. Now and then they do not go together:
 * refusals are tested as well. */
struct drawn {
    const char *key;
    unsigned value;
};
enum { DRAWN_MAX = 12 };

static unsigned divisor_of(unsigned number, uint64_t *state)
{
    unsigned divisor = 1 + (unsigned)(zoo_random(state) % number);
    while (number % divisor != 0) {
        divisor--;
    }
    return one_in(state, 40) ? divisor + 1 : divisor;
}

static void draw_megatron(const struct wf_model *model, uint64_t *state, struct drawn *out)
{
    unsigned layers = (unsigned)model->layers;
    bool experts = wf_model_size(model, "E") > 0;
    unsigned tp = ZOO_PICK(state, 1, 2, 2, 2, 4, 4), cp = ZOO_PICK(state, 1, 1, 1, 1, 2),
             dp = ZOO_PICK(state, 1, 1, 2, 2, 3, 4), pp = ZOO_PICK(state, 1, 1, 1, 2, 2, 3);
    bool ends = pp > 2 && one_in(state, 4); /* the middle takes what is left */
    tp = wf_model_size(model, "nq") % tp == 0 ? tp : 1;
    pp = !ends && layers % pp != 0 ? divisor_of(layers, state) : pp;
    unsigned group = tp * cp * dp, ep = experts ? divisor_of(group, state) : 1;
    ep = wf_model_size(model, "E") % ep == 0 ? ep : 1;
    unsigned etp = experts ? divisor_of(group / ep > 0 ? group / ep : 1, state) : 0;
    unsigned vpp =
        pp > 1 && layers % pp == 0 && one_in(state, 3) ? divisor_of(layers / pp, state) : 1;
    const struct drawn drawn[] = {{"tp", tp},
                                  {"cp", cp},
                                  {"dp", dp},
                                  {"pp", pp},
                                  {"ep", ep},
                                  {"vpp", vpp},
                                  {"vocab_div", ZOO_PICK(state, 0, 0, 4, 8, 16, 12)},
                                  {"first", ends ? 1 : 0},
                                  {NULL, 0}};
    memcpy(out, drawn, sizeof drawn);
    if (etp > 0) { /* 1 is not the default */
        out[8] = (struct drawn){"etp", etp};
        out[9].key = NULL;
    }
}

static void draw_fsdp(const struct wf_model *model, uint64_t *state, struct drawn *out)
{
    bool dense = wf_model_size(model, "E") == 0 && wf_model_size(model, "gk") == 0 &&
                 wf_model_size(model, "c") == 0;
    unsigned tp = dense && one_in(state, 3) ? ZOO_PICK(state, 2, 2, 4) : 1;
    const struct drawn drawn[] = {{"tp", tp},
                                  {"dp", ZOO_PICK(state, 1, 2, 3, 4, 5, 8)},
                                  {"replicate", ZOO_PICK(state, 1, 1, 1, 2, 3)},
                                  {"flat", tp == 1 && one_in(state, 6)},
                                  {NULL, 0}};
    memcpy(out, drawn, sizeof drawn);
}

static void draw_vllm(const struct wf_model *model, uint64_t *state, struct drawn *out)
{
    unsigned heads = (unsigned)wf_model_size(model, "nq");
    unsigned tp = ZOO_PICK(state, 1, 2, 2, 2, 4, 4, 8), dp = ZOO_PICK(state, 1, 1, 1, 2);
    tp = heads % tp == 0 ? tp : divisor_of(heads, state);
    bool dealt = wf_model_size(model, "E") > 0 && one_in(state, 2);
    const struct drawn drawn[] = {{"tp", tp},
                                  {"dp", dp},
                                  {"pp", ZOO_PICK(state, 1, 1, 1, 2)},
                                  {"ep", dealt ? tp * dp : 1},
                                  {"engines", ZOO_PICK(state, 1, 1, 2, 3)},
                                  {"redundant", dealt && one_in(state, 6) ? tp * dp : 0},
                                  {"eplb", dealt && one_in(state, 8)},
                                  {NULL, 0}};
    memcpy(out, drawn, sizeof drawn);
}

static void draw_sglang(const struct wf_model *model, uint64_t *state, struct drawn *out)
{
    bool experts = wf_model_size(model, "E") > 0;
    unsigned tp = ZOO_PICK(state, 1, 2, 2, 2, 4, 4);
    unsigned heads = (unsigned)wf_model_size(model, "nq");
    tp = heads % tp == 0 ? tp : divisor_of(heads, state);
    unsigned dp = one_in(state, 4) ? divisor_of(tp, state) : 1;
    const struct drawn drawn[] = {{"tp", tp},
                                  {"pp", ZOO_PICK(state, 1, 1, 1, 2)},
                                  {"ep", experts && one_in(state, 2) ? divisor_of(tp, state) : 1},
                                  {"engines", ZOO_PICK(state, 1, 1, 2, 3)},
                                  {"dp", dp},
                                  {"dp_attention", dp > 1},
                                  {"dp_lm_head", dp > 1 && one_in(state, 3)},
                                  {NULL, 0}};
    memcpy(out, drawn, sizeof drawn);
}

/* One of words parted by '|'. */
static void draw_word(const char *words, uint64_t *state, char out[WF_SPEC_MAX])
{
    unsigned count = 1;
    for (const char *at = words; *at != '\0'; at++) {
        count += *at == '|';
    }
    for (unsigned index = (unsigned)(zoo_random(state) % count); index > 0; index--) {
        words = strchr(words, '|') + 1;
    }
    snprintf(out, WF_SPEC_MAX, "%.*s", (int)strcspn(words, "|"), words);
}

/* All words in some order, joined by '-'. */
static void draw_order(const char *words, uint64_t *state, char out[WF_SPEC_MAX])
{
    unsigned left = 0, count = 1;
    for (const char *at = words; *at != '\0'; at++) {
        count += *at == '|';
    }
    left = (1u << count) - 1;
    for (size_t used = 0; left != 0;) {
        unsigned pick = (unsigned)(zoo_random(state) % count);
        const char *word = words;
        if ((left >> pick & 1) == 0) {
            continue;
        }
        left &= ~(1u << pick);
        for (; pick > 0; pick--) {
            word = strchr(word, '|') + 1;
        }
        used += (size_t)snprintf(out + used, WF_SPEC_MAX - used, "%s%.*s", used > 0 ? "-" : "",
                                 (int)strcspn(word, "|"), word);
    }
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

/* A key that is no parallel size. */
static bool draw_value(const struct wf_engine *engine, const struct wf_engine_key *key,
                       const struct wf_model *model, uint64_t *state, char out[WF_SPEC_MAX])
{
    unsigned versions = 0;
    switch (key->kind) {
    case WF_KEY_FLAG:
        snprintf(out, WF_SPEC_MAX, "%u", 1 - key->normal);
        return one_in(state, 16);
    case WF_KEY_WORD:
        draw_word(key->words, state, out);
        return one_in(state, is(key->name, "a2a") || is(key->name, "names") ? 32 : 12);
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
        return one_in(state, 16);
    case WF_KEY_ORDER:
        draw_order(key->words, state, out);
        return one_in(state, 10);
    case WF_KEY_LAYOUT:
        draw_layout(model, state, out);
        return one_in(state, 16);
    default:
        return false;
    }
}

static bool is_drawn(const struct drawn *drawn, const char *key)
{
    for (; drawn->key != NULL; drawn++) {
        if (is(drawn->key, key)) {
            return true;
        }
    }
    return false;
}

void zoo_spec(const struct wf_engine *engine, const struct wf_model *model, uint64_t *state,
              char out[WF_SPEC_MAX])
{
    struct drawn drawn[DRAWN_MAX] = {{NULL, 0}};
    static const struct {
        const struct wf_engine *engine;
        void (*draw)(const struct wf_model *model, uint64_t *state, struct drawn *out);
    } drawers[] = {{&wf_engine_megatron, draw_megatron},
                   {&wf_engine_fsdp, draw_fsdp},
                   {&wf_engine_vllm, draw_vllm},
                   {&wf_engine_sglang, draw_sglang}};
    for (size_t i = 0; i < sizeof drawers / sizeof drawers[0]; i++) {
        if (drawers[i].engine == engine) {
            drawers[i].draw(model, state, drawn);
        }
    }
    size_t used = (size_t)snprintf(out, WF_SPEC_MAX, "%s:", engine->name);
    const char *mark = "";
    for (size_t i = 0; drawn[i].key != NULL; i++) {
        if (drawn[i].value > 0) {
            used += (size_t)snprintf(out + used, WF_SPEC_MAX - used, "%s%s=%u", mark, drawn[i].key,
                                     drawn[i].value);
            mark = ",";
        }
    }
    for (size_t i = 0; i < engine->key_count; i++) {
        char value[WF_SPEC_MAX];
        /* `quant` is the whole job's: drawn by the tests that make one. */
        if (!is_drawn(drawn, engine->keys[i].name) && !is(engine->keys[i].name, "quant") &&
            draw_value(engine, &engine->keys[i], model, state, value)) {
            used += (size_t)snprintf(out + used, WF_SPEC_MAX - used, "%s%s=%s", mark,
                                     engine->keys[i].name, value);
            cr_assert_lt(used, (size_t)WF_SPEC_MAX);
            mark = ",";
        }
    }
}
