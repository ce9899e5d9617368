/* fsdp.c - torch: FSDP2 and DTensor shards, and FSDP1's flat parameters, of a transformers model.
 *
 * Parameters are those of the state dict in memory of transformers 5 (the families' exceptions for
 * "memory" say where its names differ from the checkpoint's): experts fused, gate rows before up
 * rows. Layers that predict further tokens are not loaded by transformers and have no place here.
 *
 * Shards follow torch's chunk rule on dimension 0 (distributed/fsdp/_fully_shard/_fsdp_param.py),
 * or equal shares of dimension 1 where shard_placement_fn says so; a dimension that tensor
 * parallelism cut before is cut inside its blocks (_StridedShard). Tensor parallelism is the plan
 * of the dense models in transformers: q, k, v, gate, up, embedding and head by rows, o and down by
 * columns, everything else on each rank alike. Buffers are never sharded.
 */
#include "models/engines/fsdp.h"

#include <inttypes.h>
#include <string.h>

#include "models/engines/keys.h"

static const struct wf_engine_key keys[] = {
    {.name = "version", .kind = WF_KEY_VERSION},
    {.name = "dtype", .kind = WF_KEY_DTYPE},
    WF_RANKS_KEY("dp", dp),
    WF_RANKS_KEY("replicate", replicate),
    WF_RANKS_KEY("tp", tp),
    {.name = "order", .kind = WF_KEY_ORDER, .words = "tp|dp|replicate", .only = "tp-dp-replicate"},
    WF_FLAG_KEY("shard", own[WF_FSDP_SHARD], 0),
    WF_FLAG_KEY("flat", own[WF_FSDP_FLAT], 0),
    WF_SIZE_KEY("align", own[WF_FSDP_ALIGN], 0, 4096),
};

/* Of transformers: 4 keeps experts apart and other names in memory. */
static const char *const versions[] = {"5", NULL};

#define BY_ROWS "embedding|q|k|v|gate|up|q_bias|k_bias|v_bias|gate_bias|up_bias"
#define BY_COLUMNS "o|down"
#define FIRST "(shard == 0 || dims == 1)" /* sharded on dimension 0 */
#define SECOND "shard == 1 && dims > 1"

static const struct wf_engine_row rows[] = {
    {.name = "{name}", .parts = BY_ROWS, .when = "tp > 1 && " FIRST, .cuts = "0~tp 0~dp"},
    {.name = "{name}", .parts = BY_ROWS, .when = "tp > 1 && " SECOND, .cuts = "0~tp 1~dp"},
    /* A tied head is the embedding, and by that name listed already. */
    {.name = "{name}", .parts = "head", .when = "!tied && tp > 1 && " FIRST, .cuts = "0~tp 0~dp"},
    {.name = "{name}", .parts = "head", .when = "!tied && tp > 1 && " SECOND, .cuts = "0~tp 1~dp"},
    {.name = "{name}", .parts = BY_COLUMNS, .when = "tp > 1 && " FIRST, .cuts = "1~tp 0~dp"},
    {.name = "{name}", .parts = BY_COLUMNS, .when = "tp > 1 && " SECOND, .cuts = "1~tp 1~dp"},
    /* Dimension 0 of fused experts is their number: see experts(). */
    {.name = "{experts}gate_up_proj", .parts = "expert_gate expert_up", .when = "shard == 0"},
    {.name = "{experts}gate_up_proj",
     .parts = "expert_gate expert_up",
     .when = "shard == 1",
     .cuts = "0~dp"},
    {.name = "{experts}down_proj", .parts = "expert_down", .when = "shard == 0"},
    {.name = "{experts}down_proj", .parts = "expert_down", .when = "shard == 1", .cuts = "0~dp"},
    {.name = "{name}", .parts = "router_correction", .dtype = "f32"},
    {.name = "{name}", .parts = "*", .when = FIRST, .cuts = "0~dp"},
    {.name = "{name}", .parts = "*", .when = SECOND, .cuts = "1~dp"},
};

static const struct wf_engine_alias aliases[] = {{"embedding", "lm_head.weight", "tied"}};

/* --- ranks ----------------------------------------------------------------------------------- */

static struct wf_coordinates coordinates(const struct wf_recipe *recipe, uint32_t rank)
{
    static const char *const names[] = {"tp", "dp", "replicate"};
    const uint32_t sizes[] = {recipe->tp, recipe->dp, recipe->replicate};
    uint32_t axes[3], digits[3] = {0};
    uint32_t count = wf_engine_axes(recipe->order, names, 3, axes);
    for (uint32_t i = 0; i < count; i++) {
        digits[axes[i]] = rank % sizes[axes[i]];
        rank /= sizes[axes[i]];
    }
    uint32_t tp = digits[0], dp = digits[1], replicate = digits[2];
    /* Flat parameters are cut when all of them are there (fsdp_flat.c). */
    struct wf_coordinates at = {.tp = tp, .dp = replicate * recipe->dp + dp};
    at.group[WF_GROUP_TP].size = recipe->tp;
    at.group[WF_GROUP_TP].rank = tp;
    if (!recipe->own[WF_FSDP_FLAT]) {
        at.group[WF_GROUP_DP].size = recipe->dp;
        at.group[WF_GROUP_DP].rank = dp;
    }
    return at;
}

/* Whether the family's exceptions keep each expert in tensors of its own. */
static bool experts_apart(const struct wf_family *family)
{
    for (size_t i = 0; i < family->engine_count; i++) {
        const struct wf_family_engine *engine = &family->engines[i];
        for (size_t k = 0; strcmp(engine->engine, "memory") == 0 && k < engine->row_count; k++) {
            if (strncmp(engine->rows[k].parts, "expert_", 7) == 0 &&
                strcmp(engine->rows[k].name, "{name}") == 0) {
                return true;
            }
        }
    }
    return false;
}

/* The chunk rule over experts, where they are what is sharded. */
static enum wf_status experts(const struct wf_model *model, const struct wf_recipe *recipe,
                              const struct wf_coordinates *at, uint32_t layer,
                              uint32_t slots_out[WF_SLOTS_MAX], uint32_t *count_out,
                              struct wf_error *error)
{
    (void)layer;
    (void)error;
    uint64_t count = wf_model_size(model, "E");
    uint64_t ranks = at->group[WF_GROUP_DP].size, rank = at->group[WF_GROUP_DP].rank;
    if (recipe->own[WF_FSDP_SHARD] || ranks == 0 || experts_apart(model->family)) {
        ranks = 1;
        rank = 0;
    }
    uint64_t share = (count + ranks - 1) / ranks, first = share * rank;
    *count_out = 0;
    for (uint64_t expert = first; expert < first + share && expert < count; expert++) {
        slots_out[(*count_out)++] = (uint32_t)expert;
    }
    return WF_OK;
}

/* --- what no row says ------------------------------------------------------------------------ */

static enum wf_status check_recipe(const struct wf_recipe *recipe, struct wf_error *error)
{
    bool flat = recipe->own[WF_FSDP_FLAT];
    if (flat && (recipe->tp > 1 || recipe->own[WF_FSDP_SHARD])) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "flat=1 is FSDP1, which has no tensor parallelism and no shards of "
                            "another dimension; leave out tp and shard");
    }
    if (!flat && recipe->own[WF_FSDP_ALIGN]) {
        return wf_error_set(error, WF_INVALID,
                            "align is a key of flat parameters: it needs flat=1");
    }
    return WF_OK;
}

/* Roles whose place in a tensor-parallel plan differs from model to model. */
static const char *const not_planned[] = {"router", "kv_a", "gdn_conv", "qkv", "vision_patch"};

static enum wf_status check_plan(const struct wf_model *model, struct wf_error *error)
{
    for (size_t i = 0; i < sizeof not_planned / sizeof not_planned[0]; i++) {
        const char *name = wf_engine_find_role(model, not_planned[i]);
        if (name) {
            return wf_error_set(error, WF_UNSUPPORTED,
                                "tp: the tensor-parallel plan is known for dense models only, and "
                                "this one has %s",
                                name);
        }
    }
    return WF_OK;
}

/* What each of `parts` ranks has of `size` by torch's chunk rule can be divided over `ranks`. */
static bool divides(uint64_t size, uint64_t parts, uint64_t ranks)
{
    uint64_t chunk = (size + parts - 1) / parts, last = chunk ? size % chunk : 0;
    return last % ranks == 0 && (chunk % ranks == 0 || size < chunk);
}

/* FSDP shards dimension 1 in equal shares only, what tensor parallelism left of it included. */
static enum wf_status check_columns(const struct wf_model *model, const struct wf_recipe *recipe,
                                    struct wf_error *error)
{
    bool apart = experts_apart(model->family);
    for (uint32_t i = 0; i < model->param_count; i++) {
        const struct wf_param *param = &model->params[i];
        const char *role = model->family->rows[param->row].role;
        bool in_tp = strcmp(role, "o") == 0 || strcmp(role, "down") == 0;
        bool expert = param->expert != WF_NONE && !apart;
        if (expert ? param->ndim == 0 : param->ndim < 2) {
            continue;
        }
        /* Of fused experts dimension 1 is that of each one's rows, gate and up together. */
        bool pair = strcmp(role, "expert_gate") == 0 || strcmp(role, "expert_up") == 0;
        uint64_t size = expert ? param->shape[0] * (pair ? 2 : 1) : param->shape[1];
        uint32_t parts = in_tp ? recipe->tp : 1;
        if (!divides(size, parts, recipe->dp)) {
            return wf_error_set(error, WF_INVALID,
                                "shard=1: %s has %" PRIu64 " in dimension 1, which cannot be "
                                "divided equally over %" PRIu64 " ranks; FSDP shards unevenly on "
                                "dimension 0 only",
                                param->name, size, (uint64_t)recipe->dp * parts);
        }
    }
    return WF_OK;
}

static enum wf_status check(const struct wf_model *model, const struct wf_recipe *recipe,
                            struct wf_error *error)
{
    enum wf_status status = wf_engine_refuse_quantised(model, error);
    if (status == WF_OK && recipe->tp > 1) {
        status = check_plan(model, error);
    }
    if (status == WF_OK && recipe->own[WF_FSDP_SHARD]) {
        status = check_columns(model, recipe, error);
    }
    return status;
}

const struct wf_engine wf_engine_fsdp = {
    .name = "fsdp",
    .view = WF_VIEW_PLAIN,
    .versions = versions,
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .vocab_multiple = 1,
    .exceptions = "memory",
    .skipped_stacks = "mtp",
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
    .aliases = aliases,
    .alias_count = sizeof aliases / sizeof aliases[0],
    .check_recipe = check_recipe,
    .check = check,
    .coordinates = coordinates,
    .experts = experts,
    .finish = wf_fsdp_finish,
};
