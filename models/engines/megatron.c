/* megatron.c - Megatron-core: parameters of its GPT model, series 0.16 and 0.20.
 *
 * Two sets of names: Transformer Engine's layer spec, which fuses a norm into the linear behind it,
 * and the local one. Facts: parameter names and order, grouped linear_qkv, gate and up paired per
 * rank in linear_fc1, the head's copy on the last stage when tied, and the order of ranks, as
 * megatron/core/{models/gpt,transformer,parallel_state.py} have them.
 */
#include <stddef.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/engines/megatron_pipeline.h"

#define LAYER "decoder.layers.{layer}."

static const struct wf_engine_row te_rows[] = {
    {"embedding.word_embeddings.weight",
     WF_PLACE_EMBEDDING,
     WF_GROUPS_ONE,
     WF_CUT_ROWS,
     true,
     {WF_ROLE_EMBEDDING}},
    {LAYER "self_attention.linear_proj.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_COLUMNS,
     false,
     {WF_ROLE_O}},
    {LAYER "self_attention.linear_proj.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_O_BIAS}},
    {LAYER "self_attention.linear_qkv.layer_norm_weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_INPUT_NORM}},
    {LAYER "self_attention.linear_qkv.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_KV_HEADS,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_Q, WF_ROLE_K, WF_ROLE_V}},
    {LAYER "self_attention.linear_qkv.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_KV_HEADS,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_Q_BIAS, WF_ROLE_K_BIAS, WF_ROLE_V_BIAS}},
    {LAYER "self_attention.q_layernorm.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_Q_NORM}},
    {LAYER "self_attention.k_layernorm.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_K_NORM}},
    {LAYER "mlp.linear_fc1.layer_norm_weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_POST_NORM}},
    {LAYER "mlp.linear_fc1.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_TP,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_GATE, WF_ROLE_UP}},
    {LAYER "mlp.linear_fc1.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_TP,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_GATE_BIAS, WF_ROLE_UP_BIAS}},
    {LAYER "mlp.linear_fc2.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_COLUMNS,
     false,
     {WF_ROLE_DOWN}},
    {LAYER "mlp.linear_fc2.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_DOWN_BIAS}},
    {"decoder.final_layernorm.weight",
     WF_PLACE_HEAD,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_FINAL_NORM}},
    {"output_layer.weight",
     WF_PLACE_HEAD_UNLESS_SHARED,
     WF_GROUPS_ONE,
     WF_CUT_ROWS,
     true,
     {WF_ROLE_HEAD}},
};

static const struct wf_engine_row local_rows[] = {
    {"embedding.word_embeddings.weight",
     WF_PLACE_EMBEDDING,
     WF_GROUPS_ONE,
     WF_CUT_ROWS,
     true,
     {WF_ROLE_EMBEDDING}},
    {LAYER "input_layernorm.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_INPUT_NORM}},
    {LAYER "self_attention.linear_proj.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_COLUMNS,
     false,
     {WF_ROLE_O}},
    {LAYER "self_attention.linear_proj.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_O_BIAS}},
    {LAYER "self_attention.linear_qkv.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_KV_HEADS,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_Q, WF_ROLE_K, WF_ROLE_V}},
    {LAYER "self_attention.linear_qkv.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_KV_HEADS,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_Q_BIAS, WF_ROLE_K_BIAS, WF_ROLE_V_BIAS}},
    {LAYER "self_attention.q_layernorm.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_Q_NORM}},
    {LAYER "self_attention.k_layernorm.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_K_NORM}},
    {LAYER "pre_mlp_layernorm.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_POST_NORM}},
    {LAYER "mlp.linear_fc1.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_TP,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_GATE, WF_ROLE_UP}},
    {LAYER "mlp.linear_fc1.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_TP,
     WF_CUT_ROWS,
     false,
     {WF_ROLE_GATE_BIAS, WF_ROLE_UP_BIAS}},
    {LAYER "mlp.linear_fc2.weight",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_COLUMNS,
     false,
     {WF_ROLE_DOWN}},
    {LAYER "mlp.linear_fc2.bias",
     WF_PLACE_LAYER,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_DOWN_BIAS}},
    {"decoder.final_layernorm.weight",
     WF_PLACE_HEAD,
     WF_GROUPS_ONE,
     WF_CUT_NONE,
     false,
     {WF_ROLE_FINAL_NORM}},
    {"output_layer.weight",
     WF_PLACE_HEAD_UNLESS_SHARED,
     WF_GROUPS_ONE,
     WF_CUT_ROWS,
     true,
     {WF_ROLE_HEAD}},
};

static const char *const versions[] = {"0.16", "0.20", NULL};

#define SIZE_KEY(name, field, normal, max)                                      \
    {                                                                           \
        name, WF_KEY_SIZE, offsetof(struct wf_recipe, field), normal, max, NULL \
    }

static const struct wf_engine_key keys[] = {
    {"version", WF_KEY_VERSION, 0, 0, 0, NULL},
    {"dtype", WF_KEY_DTYPE, 0, 0, 0, NULL},
    SIZE_KEY("tp", tp, 1, WF_WORLD_MAX),
    SIZE_KEY("pp", pp, 1, WF_WORLD_MAX),
    SIZE_KEY("dp", dp, 1, WF_WORLD_MAX),
    SIZE_KEY("cp", cp, 1, WF_WORLD_MAX),
    SIZE_KEY("vpp", vpp, 1, WF_CHUNKS_MAX),
    SIZE_KEY("vocab_div", vocab_multiple, 0, 1u << 30),
    SIZE_KEY("first", first, 0, WF_LAYERS_MAX),
    SIZE_KEY("last", last, 0, WF_LAYERS_MAX),
    {"account", WF_KEY_ACCOUNT, 0, 0, 0, NULL},
    {"order", WF_KEY_ORDER, 0, 0, 0, "tp-cp-ep-dp-pp"},
    {"layout", WF_KEY_LAYOUT, 0, 0, 0, NULL},
    {"names", WF_KEY_NAMES, 0, 0, 0, NULL},
    SIZE_KEY("ep", ep, 1, WF_WORLD_MAX),
    SIZE_KEY("etp", etp, 0, WF_WORLD_MAX),
    {"experts", WF_KEY_LATER, 0, 0, 0, "grouped"},
};

static enum wf_status chunks(const struct wf_model *model, const struct wf_recipe *recipe,
                             uint32_t pp, struct wf_chunk *chunks_out, uint32_t *count_out,
                             struct wf_error *error)
{
    struct wf_stage_split split = {
        .layers = (uint32_t)model->layers,
        .pp = recipe->pp,
        .vpp = recipe->vpp,
        .first = recipe->first,
        .last = recipe->last,
        .account_embedding = recipe->account_embedding,
        .account_loss = recipe->account_loss,
        .layout = recipe->layout,
    };
    return wf_megatron_stage(&split, pp, chunks_out, count_out, error);
}

/* The rank's digits in the mixed radix of `order`, leftmost first; experts' axis has size 1 here.
 */
static struct wf_coordinates coordinates(const struct wf_recipe *recipe, uint32_t rank)
{
    struct wf_coordinates at = {0};
    const struct {
        const char *name;
        uint32_t size, *out;
    } axes[] = {
        {"tp", recipe->tp, &at.tp},
        {"cp", recipe->cp, &at.cp},
        {"dp", recipe->dp, &at.dp},
        {"pp", recipe->pp, &at.pp},
    };
    for (const char *axis = recipe->order; *axis; axis += axis[2] ? 3 : 2) {
        for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
            if (memcmp(axis, axes[i].name, 2) == 0) {
                *axes[i].out = rank % axes[i].size;
                rank /= axes[i].size;
            }
        }
    }
    return at;
}

const struct wf_engine wf_engine_megatron = {
    .name = "megatron",
    .versions = versions,
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .vocab_multiple = 128,
    .vocab_multiple_per_tp = true,
    .layers_count_from_chunk = true,
    .tables = {{te_rows, sizeof te_rows / sizeof te_rows[0]},
               {local_rows, sizeof local_rows / sizeof local_rows[0]}},
    .chunks = chunks,
    .coordinates = coordinates,
};
