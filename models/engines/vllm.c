/* vllm.c - vLLM: live parameters of its Llama, Qwen2 and Qwen3 classes (release 0.33.0).
 *
 * Facts: names and order, KV replication, the split of layers and the tied head on the last stage
 * as vLLM's own model classes, QKVParallelLinear and distributed/utils.py have them.
 */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "models/engines/engine.h"

#define LAYER "model.layers.{layer}."

static const struct wf_engine_row rows[] = {
    {"model.embed_tokens.weight",
     WF_PLACE_EMBEDDING_OR_COPY,
     WF_GROUPS_ONE,
     WF_CUT_ROWS,
     true,
     {WF_ROLE_EMBEDDING}},
    {LAYER "self_attn.qkv_proj.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_TP,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_Q, WF_ROLE_K, WF_ROLE_V}},
    {LAYER "self_attn.qkv_proj.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_TP,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_Q_BIAS, WF_ROLE_K_BIAS, WF_ROLE_V_BIAS}},
    {LAYER "self_attn.o_proj.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_COLUMNS,
     false,
     {WF_ROLE_O}},
    {LAYER "self_attn.o_proj.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_O_BIAS}},
    {LAYER "self_attn.q_norm.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_Q_NORM}},
    {LAYER "self_attn.k_norm.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_K_NORM}},
    {LAYER "mlp.gate_up_proj.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_TP,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_GATE, WF_ROLE_UP}},
    {LAYER "mlp.gate_up_proj.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_TP,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_GATE_BIAS, WF_ROLE_UP_BIAS}},
    {LAYER "mlp.down_proj.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_COLUMNS,
     false,
     {WF_ROLE_DOWN}},
    {LAYER "mlp.down_proj.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_DOWN_BIAS}},
    {LAYER "input_layernorm.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_INPUT_NORM}},
    {LAYER "post_attention_layernorm.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_POST_NORM}},
    {"model.norm.weight", WF_PLACE_HEAD, WF_GROUPS_ONE, WF_CUT_NONE, false, {WF_ROLE_FINAL_NORM}},
    {"lm_head.weight", WF_PLACE_HEAD_UNTIED, WF_GROUPS_ONE, WF_CUT_ROWS, true, {WF_ROLE_HEAD}},
};

static const struct wf_engine_alias aliases[] = {
    {"lm_head.weight", "model.embed_tokens.weight", WF_PLACE_HEAD_TIED},
};

static const char *const versions[] = {"0.33", NULL};

#define SIZE_KEY(name, field)                                                       \
    {                                                                               \
        name, WF_KEY_SIZE, offsetof(struct wf_recipe, field), 1, WF_WORLD_MAX, NULL \
    }
#define LATER_KEY(name, only)             \
    {                                     \
        name, WF_KEY_LATER, 0, 0, 0, only \
    }

static const struct wf_engine_key keys[] = {
    {"version", WF_KEY_VERSION, 0, 0, 0, NULL},
    {"dtype", WF_KEY_DTYPE, 0, 0, 0, NULL},
    SIZE_KEY("tp", tp),
    SIZE_KEY("pp", pp),
    SIZE_KEY("dp", dp),
    SIZE_KEY("engines", engines),
    SIZE_KEY("ep", ep),
    LATER_KEY("moe_backend", NULL),
    LATER_KEY("placement", NULL),
    LATER_KEY("redundant", NULL),
    LATER_KEY("quant", NULL),
    LATER_KEY("stage", "load"),
    LATER_KEY("dp_attention", NULL),
    LATER_KEY("moe_dense_tp", NULL),
    LATER_KEY("shared_experts", NULL),
    LATER_KEY("vision", NULL),
    LATER_KEY("capability", NULL),
};

static enum wf_status check(const struct wf_model *model, const struct wf_recipe *recipe,
                            struct wf_error *error)
{
    (void)recipe;
    bool qwen2 = strcmp(model->family->name, "qwen2") == 0;
    if (qwen2 && model->head_dim * model->query_heads != model->hidden) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "vLLM's Qwen2 class ignores head_dim and takes hidden_size / heads; "
                            "with head_dim %" PRIu64 " it would load a part of each head",
                            model->head_dim);
    }
    if (strcmp(model->family->name, "qwen3") == 0 && model->attention_bias) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "vLLM's Qwen3 class has no bias on o_proj; a config with "
                            "attention_bias cannot be served by it");
    }
    return WF_OK;
}

/* Layers divided equally; the rest goes one each to the stages before the last, from behind. */
static enum wf_status chunks(const struct wf_model *model, const struct wf_recipe *recipe,
                             uint32_t pp, struct wf_chunk *chunks_out, uint32_t *count_out,
                             struct wf_error *error)
{
    uint32_t layers = (uint32_t)model->layers, stages = recipe->pp;
    if (stages > layers) {
        return wf_error_set(error, WF_INVALID,
                            "%" PRIu32 " layers cannot fill pp=%" PRIu32 " stages", layers, stages);
    }
    uint32_t base = layers / stages, rest = layers % stages;
    uint32_t first_longer = rest > 0 ? stages - 1 - rest : stages;
    struct wf_chunk chunk = {.embedding = pp == 0, .head = pp == stages - 1};
    for (uint32_t stage = 0; stage <= pp; stage++) {
        chunk.first_layer += chunk.layer_count;
        chunk.layer_count = base + (stage >= first_longer && stage < stages - 1 ? 1 : 0);
    }
    chunks_out[0] = chunk;
    *count_out = 1;
    return WF_OK;
}

/* Inside an engine rank = (dp * PP + pp) * TP + tp; engines one after the other. */
static struct wf_coordinates coordinates(const struct wf_recipe *recipe, uint32_t rank)
{
    uint32_t per_engine = wf_recipe_ranks_per_engine(recipe), local = rank % per_engine;
    return (struct wf_coordinates){.engine = rank / per_engine,
                                   .tp = local % recipe->tp,
                                   .pp = local / recipe->tp % recipe->pp,
                                   .dp = local / recipe->tp / recipe->pp};
}

const struct wf_engine wf_engine_vllm = {
    .name = "vllm",
    .versions = versions,
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .vocab_multiple = 64,
    .tables = {{rows, sizeof rows / sizeof rows[0]}},
    .aliases = aliases,
    .alias_count = sizeof aliases / sizeof aliases[0],
    .check = check,
    .chunks = chunks,
    .coordinates = coordinates,
};
