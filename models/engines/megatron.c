/* megatron.c - Megatron-core: parameters of its GPT model, series 0.16 and 0.20.
 *
 * Two sets of names: Transformer Engine's layer spec, which fuses a norm into the linear behind it,
 * and the local one. Where the facts are from, below megatron/core:
 *   names and which norm is fused     models/gpt/gpt_layer_specs.py,
 * extensions/transformer_engine.py embedding, head, further tokens   models/gpt/gpt_model.py,
 * transformer/multi_token_prediction.py final norm transformer/transformer_block.py grouped
 * linear_qkv, gated q       transformer/attention.py MLA transformer/multi_latent_attention.py
 *   experts, router, shared experts   transformer/moe/{experts,router,shared_experts}.py
 *   delta net                         ssm/gated_delta_net/gdn.py
 *   order of ranks                    parallel_state.py
 * and what a bridge adds (Gemma, vision towers, lightning attention) from Megatron-Bridge
 * (models/gemma, models/qwen_vl), mbridge (models/gemma3, models/qwen3_5) and AReaL
 * (models/mcore/bailing_moe_bridge.py). The rows themselves: megatron_rows.c.
 */
#include <inttypes.h>
#include <string.h>

#include "models/engines/keys.h"
#include "models/engines/megatron_pipeline.h"
#include "models/engines/megatron_rows.h"

static const char *const versions[] = {"0.16", "0.20", NULL};

enum { OWN_NAMES, OWN_EXPERTS, OWN_SKIP_MTP, OWN_LOADER, OWN_SHARED_GATE, OWN_FINAL_NORM };
enum { NAMES_TE, NAMES_LOCAL };                               /* words of `names` */
enum { EXPERTS_GROUPED, EXPERTS_SEQUENTIAL, EXPERTS_SINGLE }; /* of `experts` */
enum { FINAL_NORM_HEAD, FINAL_NORM_LAYER };                   /* of `final_norm` */

static const struct wf_engine_key keys[] = {
    {.name = "version", .kind = WF_KEY_VERSION},
    {.name = "dtype", .kind = WF_KEY_DTYPE},
    WF_RANKS_KEY("tp", tp),
    WF_RANKS_KEY("pp", pp),
    WF_RANKS_KEY("dp", dp),
    WF_RANKS_KEY("cp", cp),
    WF_RANKS_KEY("ep", ep),
    WF_SIZE_KEY("etp", etp, 0, WF_WORLD_MAX),
    WF_SIZE_KEY("vpp", vpp, 1, WF_CHUNKS_MAX),
    WF_SIZE_KEY("vocab_div", vocab_multiple, 0, 1u << 30),
    WF_SIZE_KEY("first", first, 0, WF_LAYERS_MAX),
    WF_SIZE_KEY("last", last, 0, WF_LAYERS_MAX),
    {.name = "account", .kind = WF_KEY_ACCOUNT},
    {.name = "order", .kind = WF_KEY_ORDER, .words = "tp|cp|ep|dp|pp", .only = "tp-cp-ep-dp-pp"},
    {.name = "layout", .kind = WF_KEY_LAYOUT},
    WF_WORD_KEY("names", own[OWN_NAMES], "te|local"),
    WF_WORD_KEY("experts", own[OWN_EXPERTS], "grouped|sequential|single"),
    WF_WORD_KEY("loader", own[OWN_LOADER], "bridge|mbridge"),
    WF_FLAG_KEY("skip_mtp", own[OWN_SKIP_MTP], 0),
    WF_FLAG_KEY("shared_gate", own[OWN_SHARED_GATE], 1),
    WF_WORD_KEY("final_norm", own[OWN_FINAL_NORM], "head|layer"),
};

/* The body of a further-token layer was renamed; what stands beside it was not. */
static const struct wf_engine_stack stacks[] = {
    {"layer", "{top}decoder.layers.{i}.", NULL},
    {"mtp", "{top}mtp.layers.{i}.mtp_model_layer.", "version >= 20000"},
    {"mtp", "{top}mtp.layers.{i}.transformer_layer.", NULL},
    {"vision", "vision_model.blocks.{i}.", WF_MEGATRON_HF_VISION},
    {"vision", "vision_model.decoder.layers.{i}.", NULL},
    {"deepstack", "vision_model.decoder.deepstack_merger_list.{i}.", NULL},
};

/* --- ranks ----------------------------------------------------------------------------------- */

enum { AXIS_TP, AXIS_CP, AXIS_EP, AXIS_DP, AXIS_PP, AXIS_COUNT };

/* The two grids over the same ranks: dense ones without ep, experts' without cp. */
struct grids {
    uint32_t dense[AXIS_COUNT], experts[AXIS_COUNT];
};

static struct grids grids_of(const struct wf_recipe *recipe)
{
    uint32_t etp = recipe->etp ? recipe->etp : recipe->tp;
    uint32_t world = wf_recipe_world(recipe);
    struct grids grids = {
        .dense = {recipe->tp, recipe->cp, 1, recipe->dp, recipe->pp},
        .experts = {etp, 1, recipe->ep, world / recipe->pp / recipe->ep / etp, recipe->pp},
    };
    return grids;
}

static uint32_t axes_of(const struct wf_recipe *recipe, uint32_t axes_out[AXIS_COUNT])
{
    static const char *const names[AXIS_COUNT] = {"tp", "cp", "ep", "dp", "pp"};
    return wf_engine_axes(recipe->order, names, AXIS_COUNT, axes_out);
}

static void digits(const struct wf_recipe *recipe, const uint32_t sizes[AXIS_COUNT], uint32_t rank,
                   uint32_t digits_out[AXIS_COUNT])
{
    uint32_t axes[AXIS_COUNT], count = axes_of(recipe, axes);
    memset(digits_out, 0, AXIS_COUNT * sizeof *digits_out);
    for (uint32_t i = 0; i < count; i++) {
        digits_out[axes[i]] = rank % sizes[axes[i]];
        rank /= sizes[axes[i]];
    }
}

static struct wf_coordinates coordinates(const struct wf_recipe *recipe, uint32_t rank)
{
    struct grids grids = grids_of(recipe);
    uint32_t dense[AXIS_COUNT], experts[AXIS_COUNT];
    digits(recipe, grids.dense, rank, dense);
    digits(recipe, grids.experts, rank, experts);
    struct wf_coordinates at = {
        .tp = dense[AXIS_TP], .pp = dense[AXIS_PP], .dp = dense[AXIS_DP], .cp = dense[AXIS_CP]};
    at.group[WF_GROUP_TP].size = recipe->tp;
    at.group[WF_GROUP_TP].rank = dense[AXIS_TP];
    at.group[WF_GROUP_ETP].size = grids.experts[AXIS_TP];
    at.group[WF_GROUP_ETP].rank = experts[AXIS_TP];
    at.group[WF_GROUP_EP].size = recipe->ep;
    at.group[WF_GROUP_EP].rank = experts[AXIS_EP];
    return at;
}

/* Ranks between neighbours of a pipeline. */
static uint64_t pipeline_stride(const struct wf_recipe *recipe, const uint32_t sizes[AXIS_COUNT])
{
    uint32_t axes[AXIS_COUNT], count = axes_of(recipe, axes);
    uint64_t stride = 1;
    for (uint32_t i = 0; i < count && axes[i] != AXIS_PP; i++) {
        stride *= sizes[axes[i]];
    }
    return stride;
}

/* Both grids must have the same pipelines, and as many data-parallel ranks unless pp is last. */
static enum wf_status check_recipe(const struct wf_recipe *recipe, struct wf_error *error)
{
    uint64_t world = wf_recipe_world(recipe), etp = recipe->etp ? recipe->etp : recipe->tp;
    uint64_t cell = etp * recipe->ep * recipe->pp;
    if (world % cell != 0) {
        return wf_error_set(error, WF_INVALID,
                            "%" PRIu64 " ranks (tp x cp x dp x pp) cannot be divided by "
                            "%" PRIu64 " (etp=%" PRIu64 " x ep=%" PRIu32 " x pp=%" PRIu32
                            "); experts' ranks are the same ones in another grid",
                            world, cell, etp, recipe->ep, recipe->pp);
    }
    struct grids grids = grids_of(recipe);
    size_t len = strlen(recipe->order);
    bool pp_last = len >= 2 && memcmp(recipe->order + len - 2, "pp", 2) == 0;
    if (recipe->pp > 1 && !pp_last &&
        (grids.experts[AXIS_DP] != recipe->dp ||
         pipeline_stride(recipe, grids.dense) != pipeline_stride(recipe, grids.experts))) {
        return wf_error_set(error, WF_INVALID,
                            "order %s: where pp is not last, dense layers and experts must have "
                            "the same pipelines and as many data-parallel ranks, found %" PRIu32
                            " and %" PRIu32,
                            recipe->order, recipe->dp, grids.experts[AXIS_DP]);
    }
    return WF_OK;
}

/* --- the pipeline ---------------------------------------------------------------------------- */

static uint32_t count_of_stack(const struct wf_model *model, const char *name)
{
    for (uint32_t i = 0; i < model->family->stack_count; i++) {
        if (strcmp(model->family->stacks[i].name, name) == 0) {
            return wf_model_stack_count(model, i);
        }
    }
    return 0;
}

static enum wf_status chunks(const struct wf_model *model, const struct wf_recipe *recipe,
                             uint32_t pp, struct wf_chunk *chunks_out, uint32_t *count_out,
                             struct wf_error *error)
{
    struct wf_stage_split split = {
        .layers = (uint32_t)model->layers,
        .mtp = recipe->own[OWN_SKIP_MTP] ? 0 : count_of_stack(model, "mtp"),
        .pp = recipe->pp,
        .vpp = recipe->vpp,
        .first = recipe->first,
        .last = recipe->last,
        .account_embedding = recipe->account_embedding,
        .account_loss = recipe->account_loss,
        .layout = recipe->layout,
        .norm_with_layer = recipe->own[OWN_FINAL_NORM] == FINAL_NORM_LAYER,
    };
    return wf_megatron_stage(&split, pp, chunks_out, count_out, error);
}

/* --- what no row says ------------------------------------------------------------------------ */

static bool is_at_least(const struct wf_recipe *recipe, const char *series)
{
    const char *const *at = versions;
    while (*at && strcmp(*at, series) != 0 && strcmp(*at, recipe->version) != 0) {
        at++;
    }
    return *at && strcmp(*at, series) == 0;
}

static enum wf_status check_heads(const struct wf_model *model, const struct wf_recipe *recipe,
                                  struct wf_error *error)
{
    uint64_t nk = wf_model_size(model, "nk"), gk = wf_model_size(model, "gk");
    bool grouped = wf_engine_find_role(model, "k") || wf_engine_find_role(model, "qkv");
    if (grouped && nk > 0 && nk % recipe->tp != 0 && recipe->tp % nk != 0) {
        return wf_error_set(error, WF_INVALID,
                            "%" PRIu64 " KV heads cannot be divided over tp=%" PRIu32
                            " (neither divides the other)",
                            nk, recipe->tp);
    }
    const char *lightning = wf_engine_find_role(model, "g_norm"),
               *gdn = wf_engine_find_role(model, "gdn_conv");
    if (lightning && wf_model_size(model, "ng") % recipe->tp != 0) {
        return wf_error_set(error, WF_INVALID,
                            "%s: %" PRIu64 " groups of its norm cannot be divided over "
                            "tp=%" PRIu32,
                            lightning, wf_model_size(model, "ng"), recipe->tp);
    }
    if (gdn && gk % recipe->tp != 0) {
        return wf_error_set(error, WF_INVALID,
                            "%s: %" PRIu64 " key heads cannot be divided over tp=%" PRIu32, gdn, gk,
                            recipe->tp);
    }
    return WF_OK;
}

static enum wf_status check(const struct wf_model *model, const struct wf_recipe *recipe,
                            struct wf_error *error)
{
    const char *router = wf_engine_find_role(model, "router"),
               *gate = wf_engine_find_role(model, "shared_router");
    if (router && recipe->own[OWN_NAMES] == NAMES_LOCAL &&
        recipe->own[OWN_EXPERTS] != EXPERTS_SEQUENTIAL) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "names=local has experts=sequential only: grouped experts are "
                            "Transformer Engine's");
    }
    if (gate && !recipe->own[OWN_SHARED_GATE]) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "shared_gate=0: this model has %s, and a Megatron that was built "
                            "without moe_shared_expert_gate has no place for it; set it there",
                            gate);
    }
    /* transformer/mla_qk_norm_config.py: a norm before linear_q_proj that no checkpoint has. */
    const char *q = wf_engine_find_role(model, "kv_a") && !wf_engine_find_role(model, "q_a")
                        ? wf_engine_find_role(model, "q")
                        : NULL;
    if (q && is_at_least(recipe, "0.20")) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "%s: without q_lora_rank Megatron 0.20 adds "
                            "self_attention.linear_q_proj.layer_norm_weight, which no parameter "
                            "of the model gives; use version=0.16",
                            q);
    }
    const char *indexer = wf_engine_find_role(model, "indexer_k");
    if (indexer && (!is_at_least(recipe, "0.20") || recipe->own[OWN_NAMES] == NAMES_LOCAL)) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "%s: sparse attention is known of Megatron 0.20 with names=te only; "
                            "others keep the halves of the indexer's rows in another order",
                            indexer);
    }
    enum wf_status status = wf_engine_refuse_quantised(model, error);
    return status == WF_OK ? check_heads(model, recipe, error) : status;
}

const struct wf_engine wf_engine_megatron = {
    .name = "megatron",
    .view = WF_VIEW_PLAIN,
    .versions = versions,
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .vocab_multiple = 128,
    .vocab_multiple_per_tp = true,
    .layers_count_from_chunk = true,
    .stacks = stacks,
    .stack_count = sizeof stacks / sizeof stacks[0],
    .rows = wf_megatron_rows,
    .row_count = WF_MEGATRON_ROWS,
    .check_recipe = check_recipe,
    .check = check,
    .chunks = chunks,
    .coordinates = coordinates,
};
