/* expect_layer.c - one layer as the engines' loaders fill it: linears, attention of each kind.
 *
 * Sources of the rules (vLLM 0.33.0, SGLang 0.5.23 where it is not alike): layers/linear.py
 * QKVParallelLinear, MergedColumnParallelLinear, RowParallelLinear (rows and columns of a rank, a
 * KV head kept by several ranks); models/deepseek_v2.py (fused_qkv_a_proj whole on every rank,
 * named ..._with_mqa in SGLang); models/qwen3_next.py (in_proj_qkvz and in_proj_ba by rows, conv1d
 * by its three parts); models/qwen3_5.py (those two of parts that are stored apart);
 * models/gpt_oss.py (sinks by heads); models/bailing_moe.py (q, k and v stored in one);
 * models/deepseek_v32 (the indexer).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/expect.h"

/* --- linears --------------------------------------------------------------------------------- */

/* A tensor that every rank has whole. An absent one is no error. */
enum wf_status wf_expect_add_whole(struct wf_expect_builder *b, const char *layer, const char *name,
                                   const char *live_name)
{
    uint32_t param = wf_expect_find(b, layer, name), tensor = 0;
    if (param == WF_NONE) {
        return WF_OK;
    }
    enum wf_status status =
        wf_expect_add(b, layer, live_name, wf_expect_columns(b, param), &tensor);
    return status == WF_OK ? wf_expect_put(b, tensor, param, 0, wf_expect_rows(b, param), 0)
                           : status;
}

/* The same rows of each of up to three tensors, those of one rank, one below the other. */
enum wf_status wf_expect_add_rows(struct wf_expect_builder *b, const char *layer,
                                  const char *const *names, const char *live_name)
{
    uint32_t tensor = 0;
    enum wf_status status = WF_OK;
    for (size_t i = 0; i < 3 && names[i] != NULL && status == WF_OK; i++) {
        uint32_t param = 0;
        uint64_t part = 0;
        status = wf_expect_need(b, layer, names[i], &param);
        if (status == WF_OK) {
            status = wf_expect_divide(b, wf_expect_rows(b, param), names[i], &part);
        }
        if (status == WF_OK && i == 0) {
            status = wf_expect_add(b, layer, live_name, wf_expect_columns(b, param), &tensor);
        }
        if (status == WF_OK) {
            status = wf_expect_put(b, tensor, param, b->place.tp_rank * part, part, 0);
        }
    }
    return status;
}

/* RowParallelLinear: all rows, a rank's columns. Its bias is whole on every rank. */
enum wf_status wf_expect_add_columns(struct wf_expect_builder *b, const char *layer,
                                     const char *module, const char *live_module)
{
    char name[WF_NAME_MAX], live[WF_NAME_MAX];
    uint32_t param = 0, tensor = 0;
    uint64_t part = 0;
    snprintf(name, sizeof name, "%s.weight", module);
    snprintf(live, sizeof live, "%s.weight", live_module);
    enum wf_status status = wf_expect_need(b, layer, name, &param);
    if (status == WF_OK) {
        status = wf_expect_divide(b, wf_expect_columns(b, param), module, &part);
    }
    if (status == WF_OK) {
        status = wf_expect_add(b, layer, live, part, &tensor);
    }
    if (status == WF_OK) {
        status =
            wf_expect_put(b, tensor, param, 0, wf_expect_rows(b, param), b->place.tp_rank * part);
    }
    if (status != WF_OK) {
        return status;
    }
    snprintf(name, sizeof name, "%s.bias", module);
    snprintf(live, sizeof live, "%s.bias", live_module);
    return wf_expect_add_whole(b, layer, name, live);
}

/* --- attention ------------------------------------------------------------------------------- */

/* Where a rank's KV heads begin, and how many they are. */
static enum wf_status kv_share(struct wf_expect_builder *b, uint64_t kv, uint64_t *first_out,
                               uint64_t *count_out)
{
    uint32_t tp = b->place.tp;
    if (kv >= tp) {
        enum wf_status status = wf_expect_divide(b, kv, "the number of KV heads", count_out);
        *first_out = b->place.tp_rank * *count_out;
        return status;
    }
    if (kv == 0 || tp % kv != 0) {
        return wf_error_set(b->error, WF_INVALID,
                            "tp=%u is no multiple of the %" PRIu64 " KV heads", tp, kv);
    }
    *count_out = 1;
    *first_out = b->place.tp_rank / (tp / kv);
    return WF_OK;
}

/* What a rank has of q's heads and of k's and v's. */
struct heads {
    uint64_t of[2], first[2], count[2];
};

static enum wf_status heads_of(struct wf_expect_builder *b, struct heads *heads)
{
    *heads =
        (struct heads){{wf_model_size(b->model, "nq"), wf_model_size(b->model, "nk")}, {0}, {0}};
    enum wf_status status =
        wf_expect_divide(b, heads->of[0], "the number of query heads", &heads->count[0]);
    heads->first[0] = b->place.tp_rank * heads->count[0];
    return status == WF_OK ? kv_share(b, heads->of[1], &heads->first[1], &heads->count[1]) : status;
}

/* QKVParallelLinear: a rank's rows of q (with their gates, if it has any), of k and of v. */
static enum wf_status add_qkv(struct wf_expect_builder *b, const char *layer, const char *live,
                              const char *what)
{
    static const char *const parts[] = {"q", "k", "v"};
    char name[WF_NAME_MAX];
    struct heads heads;
    uint32_t tensor = 0;
    enum wf_status status = heads_of(b, &heads);
    for (int i = 0; status == WF_OK && i < 3; i++) {
        uint32_t param = 0;
        bool kv = i > 0;
        snprintf(name, sizeof name, "self_attn.%s_proj.%s", parts[i], what);
        status = wf_expect_need(b, layer, name, &param);
        if (status == WF_OK && i == 0) {
            snprintf(name, sizeof name, "%sqkv_proj.%s", live, what);
            status = wf_expect_add(b, layer, name, wf_expect_columns(b, param), &tensor);
        }
        if (status == WF_OK) {
            uint64_t size = wf_expect_rows(b, param) / heads.of[kv]; /* of a head */
            status =
                wf_expect_put(b, tensor, param, heads.first[kv] * size, heads.count[kv] * size, 0);
        }
    }
    return status;
}

/* Ling's checkpoints have q, k and v one below the other, in one. */
static enum wf_status add_one_qkv(struct wf_expect_builder *b, const char *layer)
{
    static const char name[] = "attention.query_key_value.weight";
    static const char *const norms[] = {"attention.query_layernorm.weight",
                                        "attention.key_layernorm.weight"};
    struct heads heads;
    uint32_t param = 0, tensor = 0;
    uint64_t before = 0;
    enum wf_status status = heads_of(b, &heads);
    status = status == WF_OK ? wf_expect_need(b, layer, name, &param) : status;
    if (status == WF_OK) {
        status = wf_expect_add(b, layer, name, wf_expect_columns(b, param), &tensor);
    }
    for (int i = 0; status == WF_OK && i < 3; i++) {
        uint64_t size = wf_expect_rows(b, param) / (heads.of[0] + 2 * heads.of[1]);
        status = wf_expect_put(b, tensor, param, (before + heads.first[i > 0]) * size,
                               heads.count[i > 0] * size, 0);
        before += heads.of[i > 0];
    }
    for (size_t i = 0; status == WF_OK && i < 2; i++) {
        status = wf_expect_add_whole(b, layer, norms[i], norms[i]);
    }
    return status == WF_OK ? wf_expect_add_columns(b, layer, "attention.dense", "attention.dense")
                           : status;
}

static enum wf_status add_attention(struct wf_expect_builder *b, const char *layer)
{
    const char *live = b->class->attention != NULL ? b->class->attention : "self_attn.";
    static const char sinks[] = "self_attn.sinks";
    char name[WF_NAME_MAX];
    static const char *const norms[] = {"self_attn.q_norm.weight", "self_attn.k_norm.weight"};
    enum wf_status status = add_qkv(b, layer, live, "weight");
    if (status == WF_OK && wf_expect_find(b, layer, "self_attn.q_proj.bias") != WF_NONE) {
        status = add_qkv(b, layer, live, "bias");
    }
    if (status == WF_OK) {
        snprintf(name, sizeof name, "%so_proj", live);
        status = wf_expect_add_columns(b, layer, "self_attn.o_proj", name);
    }
    for (size_t i = 0; status == WF_OK && i < 2; i++) {
        snprintf(name, sizeof name, "%s%s", live, norms[i] + strlen("self_attn."));
        status = wf_expect_add_whole(b, layer, norms[i], name);
        if (status == WF_OK) {
            status = wf_expect_add_gemma(b, layer, norms[i], name);
        }
    }
    if (status == WF_OK && wf_expect_find(b, layer, sinks) != WF_NONE) {
        snprintf(name, sizeof name, "%ssinks", live);
        status = wf_expect_add_rows(b, layer, (const char *const[]){sinks, NULL}, name);
    }
    return status;
}

/* q_a and kv_a, whole on every rank, one below the other. */
static enum wf_status add_latent(struct wf_expect_builder *b, const char *layer)
{
    uint32_t q = 0, kv = 0, tensor = 0;
    enum wf_status status = wf_expect_need(b, layer, "self_attn.q_a_proj.weight", &q);
    if (status == WF_OK) {
        status = wf_expect_need(b, layer, "self_attn.kv_a_proj_with_mqa.weight", &kv);
    }
    if (status == WF_OK) {
        status = wf_expect_add(b, layer,
                               b->place.sglang ? "self_attn.fused_qkv_a_proj_with_mqa.weight"
                                               : "self_attn.fused_qkv_a_proj.weight",
                               wf_expect_columns(b, q), &tensor);
    }
    if (status == WF_OK) {
        status = wf_expect_put(b, tensor, q, 0, wf_expect_rows(b, q), 0);
    }
    return status == WF_OK ? wf_expect_put(b, tensor, kv, 0, wf_expect_rows(b, kv), 0) : status;
}

/* What SGLang keeps beside kv_b_proj [models/deepseek_common/deepseek_weight_loader.py]: of each
 * head of a rank the rows that make keys, transposed, and those that make values; of a quantised
 * kv_b_proj dequantised. */
static enum wf_status add_absorbed(struct wf_expect_builder *b, const char *layer)
{
    uint64_t dn = wf_model_size(b->model, "dn"), dv = wf_model_size(b->model, "dv"), heads = 0;
    uint32_t param = 0, keys = 0, values = 0;
    char name[2 * WF_NAME_MAX], live[WF_NAME_MAX];
    wf_expect_live(b, layer, live);
    enum wf_status status = wf_expect_need(b, layer, "self_attn.kv_b_proj.weight", &param);
    if (status == WF_OK) {
        status = wf_expect_divide(b, wf_model_size(b->model, "nq"), "the number of heads", &heads);
    }
    uint64_t latent = status == WF_OK ? wf_expect_columns(b, param) : 0;
    if (status == WF_OK) {
        snprintf(name, sizeof name, "attr:%sself_attn.w_kc", live);
        status = wf_expect_add(b, "", name, dn, &keys);
    }
    if (status == WF_OK) {
        snprintf(name, sizeof name, "attr:%sself_attn.w_vc", live);
        status = wf_expect_add(b, "", name, latent, &values);
    }
    if (status == WF_OK && b->place.quant != WF_QUANT_NONE) {
        b->expect->tensors[keys].kind = b->expect->tensors[values].kind = WF_EXPECT_DEQUANTISED;
    }
    for (uint64_t h = 0; status == WF_OK && h < heads; h++) {
        uint64_t row = (b->place.tp_rank * heads + h) * (dn + dv);
        status = wf_expect_put_transposed(b, keys, param, row, 0, latent);
        if (status == WF_OK) {
            status = wf_expect_put(b, values, param, row + dn, dv, 0);
        }
    }
    return status;
}

/* V3.2's indexer is whole on every rank; vLLM has two of its linears in one. */
static enum wf_status add_indexer(struct wf_expect_builder *b, const char *layer)
{
    static const char *const whole[] = {
        "self_attn.indexer.wq_b.weight", "self_attn.indexer.k_norm.weight",
        "self_attn.indexer.k_norm.bias", "self_attn.indexer.wk.weight",
        "self_attn.indexer.weights_proj.weight"};
    uint32_t k = wf_expect_find(b, layer, whole[3]), weights = wf_expect_find(b, layer, whole[4]);
    bool one = !b->place.sglang && k != WF_NONE && weights != WF_NONE;
    enum wf_status status = WF_OK;
    uint32_t tensor = 0;
    for (size_t i = 0; status == WF_OK && i < (one ? 3 : 5); i++) {
        status = wf_expect_add_whole(b, layer, whole[i], whole[i]);
    }
    if (status != WF_OK || !one) {
        return status;
    }
    status = wf_expect_add(b, layer, "self_attn.indexer.wk_weights_proj.weight",
                           wf_expect_columns(b, k), &tensor);
    if (status == WF_OK) {
        status = wf_expect_put(b, tensor, k, 0, wf_expect_rows(b, k), 0);
    }
    return status == WF_OK ? wf_expect_put(b, tensor, weights, 0, wf_expect_rows(b, weights), 0)
                           : status;
}

static enum wf_status add_mla(struct wf_expect_builder *b, const char *layer)
{
    static const char *const names[][2] = {{"self_attn.q_b_proj.weight", NULL},
                                           {"self_attn.q_proj.weight", NULL},
                                           {"self_attn.kv_b_proj.weight", NULL}};
    static const char *const norms[] = {"self_attn.q_a_layernorm.weight",
                                        "self_attn.kv_a_layernorm.weight"};
    enum wf_status status =
        wf_expect_find(b, layer, "self_attn.q_a_proj.weight") != WF_NONE
            ? add_latent(b, layer)
            : wf_expect_add_whole(b, layer, "self_attn.kv_a_proj_with_mqa.weight",
                                  "self_attn.kv_a_proj_with_mqa.weight");
    for (size_t i = 0; status == WF_OK && i < 3; i++) {
        if (wf_expect_find(b, layer, names[i][0]) != WF_NONE) {
            status = wf_expect_add_rows(b, layer, names[i], names[i][0]);
        }
    }
    for (size_t i = 0; status == WF_OK && i < 2; i++) {
        status = wf_expect_add_whole(b, layer, norms[i], norms[i]);
    }
    if (status == WF_OK) {
        status = add_indexer(b, layer);
    }
    if (status == WF_OK && b->place.sglang) {
        status = add_absorbed(b, layer);
    }
    return status == WF_OK ? wf_expect_add_columns(b, layer, "self_attn.o_proj", "self_attn.o_proj")
                           : status;
}

/* Of `name`, which has rows of q, of k and of v, a rank's share of each. */
static enum wf_status add_three(struct wf_expect_builder *b, const char *layer, const char *name,
                                const char *live_name, uint32_t *tensor_out)
{
    uint64_t keys = wf_model_size(b->model, "gk") * wf_model_size(b->model, "ek");
    uint64_t values = wf_model_size(b->model, "gv") * wf_model_size(b->model, "ev");
    const uint64_t sizes[] = {keys, keys, values};
    uint64_t row = 0;
    uint32_t param = 0;
    enum wf_status status = wf_expect_need(b, layer, name, &param);
    if (status == WF_OK) {
        status = wf_expect_add(b, layer, live_name, wf_expect_columns(b, param), tensor_out);
    }
    for (int i = 0; status == WF_OK && i < 3; i++) {
        uint64_t part = 0;
        status = wf_expect_divide(b, sizes[i], "a delta net's part", &part);
        if (status == WF_OK) {
            status = wf_expect_put(b, *tensor_out, param, row + b->place.tp_rank * part, part, 0);
        }
        row += sizes[i];
    }
    return status;
}

/* Stored apart: q, k and v, below them z; b, below it a. */
static enum wf_status add_apart(struct wf_expect_builder *b, const char *layer)
{
    static const char *const ba[] = {"linear_attn.in_proj_b.weight", "linear_attn.in_proj_a.weight",
                                     NULL};
    uint32_t z = 0, tensor = 0;
    uint64_t part = 0;
    enum wf_status status = add_three(b, layer, "linear_attn.in_proj_qkv.weight",
                                      "linear_attn.in_proj_qkvz.weight", &tensor);
    if (status == WF_OK) {
        status = wf_expect_need(b, layer, "linear_attn.in_proj_z.weight", &z);
    }
    if (status == WF_OK) {
        status = wf_expect_divide(b, wf_expect_rows(b, z), "a delta net's part", &part);
    }
    if (status == WF_OK) {
        status = wf_expect_put(b, tensor, z, b->place.tp_rank * part, part, 0);
    }
    return status == WF_OK ? wf_expect_add_rows(b, layer, ba, "linear_attn.in_proj_ba.weight")
                           : status;
}

static enum wf_status add_delta_net(struct wf_expect_builder *b, const char *layer)
{
    static const char conv[] = "linear_attn.conv1d.weight";
    static const char *const rows[][2] = {{"linear_attn.dt_bias", NULL},
                                          {"linear_attn.A_log", NULL},
                                          {"linear_attn.in_proj_qkvz.weight", NULL},
                                          {"linear_attn.in_proj_ba.weight", NULL}};
    bool apart = wf_expect_find(b, layer, "linear_attn.in_proj_qkv.weight") != WF_NONE;
    uint32_t tensor = 0;
    enum wf_status status = add_three(b, layer, conv, conv, &tensor);
    for (size_t i = 0; status == WF_OK && i < (apart ? 2 : 4); i++) {
        status = wf_expect_add_rows(b, layer, rows[i], rows[i][0]);
    }
    if (status == WF_OK && apart) {
        status = add_apart(b, layer);
    }
    if (status == WF_OK) {
        status =
            wf_expect_add_whole(b, layer, "linear_attn.norm.weight", "linear_attn.norm.weight");
    }
    return status == WF_OK
               ? wf_expect_add_columns(b, layer, "linear_attn.out_proj", "linear_attn.out_proj")
               : status;
}

enum wf_status wf_expect_layer(struct wf_expect_builder *b, const char *layer)
{
    static const char *const norms[] = {"input_layernorm.weight", "post_attention_layernorm.weight",
                                        "pre_feedforward_layernorm.weight",
                                        "post_feedforward_layernorm.weight"};
    enum wf_status status = WF_OK;
    if (wf_expect_find(b, layer, "linear_attn.conv1d.weight") != WF_NONE) {
        status = add_delta_net(b, layer);
    } else if (wf_expect_find(b, layer, "self_attn.kv_b_proj.weight") != WF_NONE) {
        status = add_mla(b, layer);
    } else {
        status = b->class->one_qkv ? add_one_qkv(b, layer) : add_attention(b, layer);
    }
    if (status == WF_OK) {
        bool dense = wf_expect_find(b, layer, "mlp.gate_proj.weight") != WF_NONE;
        status = dense ? wf_expect_mlp(b, layer, "mlp.") : wf_expect_moe(b, layer);
    }
    for (size_t i = 0; status == WF_OK && i < sizeof norms / sizeof norms[0]; i++) {
        status = wf_expect_add_whole(b, layer, norms[i], norms[i]);
        if (status == WF_OK) {
            status = wf_expect_add_gemma(b, layer, norms[i], norms[i]);
        }
    }
    return status;
}
