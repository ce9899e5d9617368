/* vllm.c - vLLM: the keys of its SPEC, where its ranks, layers and experts stand, and what it does
 * not run (release 0.33.0).
 *
 * Facts: rank = (dp * PP + pp) * TP + tp [vllm/distributed/parallel_state.py]; layers over stages
 * [vllm/distributed/utils.py: get_pp_indices]; experts [layers/fused_moe/expert_map_manager.py];
 * shared experts under sequence parallelism [config/parallel.py: use_sequence_parallel_moe].
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/keys.h"
#include "models/engines/vllm.h"

enum { FP8_BLOCK = 128, FINEST_BLOCK = 32, TRTLLM_BLOCK = 128, CAPABILITY_TRTLLM = 100 };

static const char *const versions[] = {"0.33", NULL};

static const struct wf_engine_key keys[] = {
    {.name = "version", .kind = WF_KEY_VERSION},
    {.name = "dtype", .kind = WF_KEY_DTYPE},
    WF_WORD_KEY("quant", quant, WF_RECIPE_QUANT_WORDS),
    WF_RANKS_KEY("tp", tp),
    WF_RANKS_KEY("pp", pp),
    WF_RANKS_KEY("dp", dp),
    WF_RANKS_KEY("ep", ep),
    WF_RANKS_KEY("engines", engines),
    {.name = "partition", .kind = WF_KEY_LAYOUT},
    WF_SIZE_KEY("redundant", own[WF_VLLM_REDUNDANT], 0, WF_SLOTS_MAX),
    WF_FLAG_KEY("eplb", own[WF_VLLM_EPLB], 0),
    WF_WORD_KEY("strategy", own[WF_VLLM_STRATEGY], "linear|round_robin"),
    WF_WORD_KEY("stage", own[WF_VLLM_STAGE], "load|post"),
    WF_WORD_KEY("moe_backend", own[WF_VLLM_MOE_BACKEND], WF_VLLM_MOE_BACKENDS),
    WF_WORD_KEY("deep_gemm", own[WF_VLLM_DEEP_GEMM], "unsaid|off"),
    WF_WORD_KEY("vision", own[WF_VLLM_VISION], "tp|data"),
    WF_SIZE_KEY("capability", own[WF_VLLM_CAPABILITY], 0, 200),
    WF_REFUSED_KEY("placement", NULL, "a table of experts is given beside the SPEC, as a file"),
    WF_REFUSED_KEY("shared_experts", NULL, "vLLM's own rule decides where shared experts stand"),
    WF_REFUSED_KEY("dp_attention", NULL,
                   "it is an option of SGLang; vLLM's dp always repeats attention"),
    WF_REFUSED_KEY("moe_dense_tp", NULL, "it is an option of SGLang"),
};

/* --- where ranks stand ----------------------------------------------------------------------- */

static uint32_t flat_size(const struct wf_recipe *recipe)
{
    return recipe->tp * recipe->dp;
}

/* Inside an engine rank = (dp * PP + pp) * TP + tp; engines one after the other. Experts see tensor
 * and data parallel ranks as one group, in which they are dealt out (ep) or cut. Shared experts are
 * whole under sequence parallelism, which vLLM turns on by itself for tp, dp and ep together. */
static struct wf_coordinates coordinates(const struct wf_recipe *recipe, uint32_t rank)
{
    uint32_t per_engine = wf_recipe_ranks_per_engine(recipe), local = rank % per_engine;
    struct wf_coordinates at = {.engine = rank / per_engine,
                                .tp = local % recipe->tp,
                                .pp = local / recipe->tp % recipe->pp,
                                .dp = local / recipe->tp / recipe->pp};
    uint32_t flat = at.dp * recipe->tp + at.tp;
    bool dealt = recipe->ep > 1, sequence = dealt && recipe->dp > 1 && recipe->tp > 1;
    bool data = recipe->own[WF_VLLM_VISION] != 0;
    at.group[WF_GROUP_TP].size = recipe->tp;
    at.group[WF_GROUP_TP].rank = at.tp;
    at.group[WF_GROUP_EP].size = dealt ? flat_size(recipe) : 1;
    at.group[WF_GROUP_EP].rank = dealt ? flat : 0;
    at.group[WF_GROUP_ETP].size = dealt ? 1 : flat_size(recipe);
    at.group[WF_GROUP_ETP].rank = dealt ? 0 : flat;
    at.group[WF_GROUP_SHARED].size = sequence ? 1 : recipe->tp;
    at.group[WF_GROUP_SHARED].rank = sequence ? 0 : at.tp;
    at.group[WF_GROUP_VISION].size = data ? 1 : recipe->tp;
    at.group[WF_GROUP_VISION].rank = data ? 0 : at.tp;
    return at;
}

/* VLLM_PP_LAYER_PARTITION: layers of each stage, "3-5-4". */
static enum wf_status read_partition(const char *text, uint32_t layers, uint32_t stages,
                                     uint32_t *counts, struct wf_error *error)
{
    uint64_t sum = 0, stage = 0;
    const char *at = text;
    for (bool more = true; more && stage < stages; stage++) {
        size_t digits = strspn(at, "0123456789");
        if (digits == 0 || digits > 4) {
            break;
        }
        counts[stage] = (uint32_t)strtoul(at, NULL, 10);
        sum += counts[stage];
        at += digits;
        more = *at == '-';
        at += more;
    }
    if (*at != '\0' || stage != stages || sum != layers) {
        return wf_error_set(error, WF_INVALID,
                            "partition=%.60s: expected %" PRIu32 " numbers of layers parted by -, "
                            "together %" PRIu32,
                            text, stages, layers);
    }
    return WF_OK;
}

/* Layers divided equally; the rest goes one each to the stages before the last, from behind. */
static void divide_layers(uint32_t layers, uint32_t stages, uint32_t *counts)
{
    uint32_t base = layers / stages, rest = layers % stages;
    uint32_t first_longer = rest > 0 ? stages - 1 - rest : stages;
    for (uint32_t stage = 0; stage < stages; stage++) {
        counts[stage] = base + (stage >= first_longer && stage < stages - 1 ? 1 : 0);
    }
}

/* Classes that look for a layer with experts among their stage's and raise where they find none:
 * their families have the size "stage_experts" [models/glm4_moe.py: extract_moe_parameters;
 * qwen3_moe.py, qwen3_next.py, qwen3_5.py, qwen3_vl_moe.py: set_moe_parameters]. */
static enum wf_status check_stage_experts(const struct wf_model *model,
                                          const struct wf_chunk *chunk, uint32_t pp,
                                          struct wf_error *error)
{
    if (!wf_model_size(model, "stage_experts") || wf_model_size(model, "E") == 0) {
        return WF_OK;
    }
    struct wf_model_at at = {.model = model};
    while (strcmp(model->family->stacks[at.stack].name, "layer") != 0) {
        at.stack++;
    }
    for (uint32_t i = 0; i < chunk->layer_count; i++) {
        uint64_t experts = 0;
        at.index = chunk->first_layer + i;
        if (wf_model_lookup(&at, "moe", strlen("moe"), &experts) && experts) {
            return WF_OK;
        }
    }
    return wf_error_set(error, WF_UNSUPPORTED,
                        "pipeline stage %" PRIu32 " has %" PRIu32 " layers from layer %" PRIu32
                        " on, none of them with experts, and vLLM's class refuses such a stage; "
                        "use fewer stages, or partition= (VLLM_PP_LAYER_PARTITION)",
                        pp, chunk->layer_count, chunk->first_layer);
}

static enum wf_status chunks(const struct wf_model *model, const struct wf_recipe *recipe,
                             uint32_t pp, struct wf_chunk *chunks_out, uint32_t *count_out,
                             struct wf_error *error)
{
    uint32_t layers = (uint32_t)model->layers, stages = recipe->pp, counts[WF_LAYERS_MAX];
    if (stages > layers || stages > WF_LAYERS_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "%" PRIu32 " layers cannot fill pp=%" PRIu32 " stages", layers, stages);
    }
    divide_layers(layers, stages, counts);
    enum wf_status status =
        recipe->layout[0] ? read_partition(recipe->layout, layers, stages, counts, error) : WF_OK;
    struct wf_chunk chunk = {.embedding = pp == 0, .head = pp == stages - 1, .others = pp == 0};
    for (uint32_t stage = 0; stage <= pp && status == WF_OK; stage++) {
        chunk.first_layer += chunk.layer_count;
        chunk.layer_count = counts[stage];
    }
    uint64_t deep = wf_model_size(model, "vd");
    if (status == WF_OK && stages > 1 && counts[0] < deep) {
        status = wf_error_set(error, WF_INVALID,
                              "pp=%" PRIu32 ": the first of them has %" PRIu32 " layers, and those "
                              "that deepstack_visual_indexes feeds are %" PRIu64
                              "; vLLM refuses a stage behind the first that has one",
                              stages, counts[0], deep);
    }
    if (status == WF_OK && stages > 1) {
        status = check_stage_experts(model, &chunk, pp, error);
    }
    chunks_out[0] = chunk;
    *count_out = 1;
    return status;
}

/* --- experts --------------------------------------------------------------------------------- */

/* Classes that hand no word of EPLB to their experts take no notice of it: they have a slot for
 * each expert whatever the options say. Their families have the size "no_eplb". */
static uint32_t redundant_slots(const struct wf_model *model, const struct wf_recipe *recipe)
{
    return wf_model_size(model, "no_eplb") ? 0 : recipe->own[WF_VLLM_REDUNDANT];
}

static bool balances(const struct wf_model *model, const struct wf_recipe *recipe)
{
    return !wf_model_size(model, "no_eplb") &&
           (recipe->own[WF_VLLM_EPLB] != 0 || recipe->own[WF_VLLM_REDUNDANT] != 0);
}

/* round_robin silently becomes linear in a model without expert groups, with EPLB, and where tokens
 * go through an all-to-all (dp > 1 with the default backend). */
static bool is_round_robin(const struct wf_model *model, const struct wf_recipe *recipe)
{
    return recipe->own[WF_VLLM_STRATEGY] == WF_VLLM_ROUND_ROBIN && recipe->ep > 1 &&
           wf_model_size(model, "n_group") > 1 && !balances(model, recipe) && recipe->dp == 1;
}

/* Physical slots are dealt out contiguously, the first ranks having one more where they do not
 * divide; slot i holds expert i % E until EPLB moves experts, after which a placement says it. */
static enum wf_status experts(const struct wf_model *model, const struct wf_recipe *recipe,
                              const struct wf_coordinates *at, uint32_t layer,
                              uint32_t slots_out[WF_SLOTS_MAX], uint32_t *count_out,
                              struct wf_error *error)
{
    uint32_t logical = (uint32_t)wf_model_size(model, "E");
    uint32_t slots = logical + redundant_slots(model, recipe);
    uint32_t size = at->group[WF_GROUP_EP].size, rank = at->group[WF_GROUP_EP].rank;
    const struct wf_placement *placement = recipe->placement;
    *count_out = 0;
    if (logical == 0) {
        return WF_OK;
    }
    if (slots > WF_SLOTS_MAX) {
        return wf_error_set(error, WF_INVALID, "%" PRIu32 " slots of experts are more than %d",
                            slots, WF_SLOTS_MAX);
    }
    enum wf_status status = wf_engine_check_placement(placement, layer, slots, logical, error);
    if (status != WF_OK) {
        return status;
    }
    uint32_t base = slots / size, rest = slots % size;
    uint32_t count = base + (rank < rest), first = rank * base + (rank < rest ? rank : rest);
    bool robin = is_round_robin(model, recipe);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = robin ? rank + i * size : first + i;
        slots_out[i] =
            placement ? placement->experts[(size_t)layer * slots + slot] : slot % logical;
    }
    *count_out = count;
    return WF_OK;
}

/* --- what it does not run -------------------------------------------------------------------- */

static enum wf_status check_recipe(const struct wf_recipe *recipe, struct wf_error *error)
{
    uint64_t flat = (uint64_t)recipe->tp * recipe->dp;
    if (recipe->ep != 1 && recipe->ep != flat) {
        return wf_error_set(error, WF_INVALID,
                            "ep=%" PRIu32 ": vLLM deals experts over all tensor and data parallel "
                            "ranks or not at all; expected 1 or tp x dp = %" PRIu64,
                            recipe->ep, flat);
    }
    bool eplb = recipe->own[WF_VLLM_EPLB] || recipe->own[WF_VLLM_REDUNDANT];
    if (eplb && recipe->ep == 1) {
        return wf_error_set(error, WF_INVALID,
                            "redundant experts and eplb need experts that are dealt out "
                            "(ep = tp x dp)");
    }
    uint32_t capability = recipe->own[WF_VLLM_CAPABILITY];
    if (recipe->own[WF_VLLM_MOE_BACKEND] == WF_VLLM_FLASHINFER_TRTLLM && capability != 0 &&
        capability < CAPABILITY_TRTLLM) {
        return wf_error_set(error, WF_INVALID,
                            "moe_backend=flashinfer_trtllm needs capability=%d or more, not "
                            "%" PRIu32,
                            CAPABILITY_TRTLLM, capability);
    }
    return WF_OK;
}

static enum wf_status check_stage(const struct wf_model *model, const struct wf_recipe *recipe,
                                  struct wf_error *error)
{
    bool moe = wf_model_size(model, "E") > 0;
    if (recipe->own[WF_VLLM_STAGE] != WF_VLLM_POST) {
        return WF_OK;
    }
    if (wf_model_size(model, "int4")) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "stage=post of int4 experts: their hook repacks weights and scales for "
                            "the kernel that the device decides; write before the hook "
                            "(stage=load) and let it run");
    }
    if (wf_model_size(model, "fp8_rows")) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "stage=post of fp8 with a scale for each row: the hook transposes "
                            "the codes; write before it (stage=load) and let it run");
    }
    if (wf_model_size(model, "mxfp4")) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "stage=post of mxfp4 experts: their hooks interleave and repack "
                            "weights and scales on the device; write before the hook "
                            "(stage=load) and let it run");
    }
    uint32_t backend = recipe->own[WF_VLLM_MOE_BACKEND];
    if (moe && (backend == WF_VLLM_AUTO || backend > WF_VLLM_FLASHINFER_TRTLLM)) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "stage=post with experts needs moe_backend triton, "
                            "flashinfer_cutlass or flashinfer_trtllm: what the hook leaves in "
                            "them depends on it, and is not known for others");
    }
    if (wf_model_size(model, "fp8") && recipe->own[WF_VLLM_DEEP_GEMM] != WF_VLLM_GEMM_OFF) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "stage=post with fp8 needs deep_gemm=off (VLLM_USE_DEEP_GEMM=0): "
                            "DeepGEMM's hook rewrites scales, and weights on newer devices, in a "
                            "layout that is not known here");
    }
    return WF_OK;
}

/* Padding of an expert's share, and the finer blocks of fp8. */
static enum wf_status check_experts(const struct wf_model *model, const struct wf_recipe *recipe,
                                    struct wf_error *error)
{
    uint64_t count = wf_model_size(model, "E"), inside = wf_model_size(model, "I");
    uint64_t hidden = wf_model_size(model, "H"), ranks = recipe->ep > 1 ? 1 : flat_size(recipe);
    uint32_t backend = recipe->own[WF_VLLM_MOE_BACKEND];
    bool fp8 = wf_model_size(model, "fp8") != 0, trtllm = backend == WF_VLLM_FLASHINFER_TRTLLM;
    if (count == 0) {
        return WF_OK;
    }
    uint32_t redundant = redundant_slots(model, recipe);
    if ((count + redundant) % recipe->ep != 0 && balances(model, recipe)) {
        return wf_error_set(error, WF_INVALID,
                            "%" PRIu64 " experts and %" PRIu32 " redundant ones cannot be dealt "
                            "equally over ep=%" PRIu32 ", which EPLB needs",
                            count, redundant, recipe->ep);
    }
    if (inside % ranks != 0) {
        return wf_error_set(error, WF_INVALID,
                            "an expert's size %" PRIu64 " cannot be divided over %" PRIu64
                            " ranks (tp x dp without ep)",
                            inside, ranks);
    }
    uint64_t share = inside / ranks, group = wf_model_size(model, "pack_group");
    if (wf_model_size(model, "int4") && (share % group != 0 || hidden % group != 0)) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "int4 experts with a share of %" PRIu64 " and hidden size %" PRIu64
                            ": vLLM needs whole groups of %" PRIu64
                            " numbers; use fewer ranks, or ep",
                            share, hidden, group);
    }
    if (wf_model_size(model, "mxfp4") && backend > WF_VLLM_TRITON) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "mxfp4 experts are known with moe_backend=triton only; others pad "
                            "them otherwise");
    }
    if (trtllm && (share % TRTLLM_BLOCK != 0 || hidden % TRTLLM_BLOCK != 0)) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "moe_backend=flashinfer_trtllm with an expert share of %" PRIu64
                            " and hidden size %" PRIu64 ": it pads what is no multiple of %d, "
                            "which is not known here",
                            share, hidden, TRTLLM_BLOCK);
    }
    if (!fp8 || share % FP8_BLOCK == 0) {
        return WF_OK;
    }
    if (backend > WF_VLLM_TRITON) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "fp8 experts whose share %" PRIu64 " is no multiple of %d are known "
                            "with moe_backend=triton only; other backends pad the share",
                            share, FP8_BLOCK);
    }
    if (share % FINEST_BLOCK != 0 || hidden % FP8_BLOCK != 0 || inside % FP8_BLOCK != 0) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "fp8 experts with a share of %" PRIu64 ": vLLM refines blocks down to "
                            "%d only, and needs whole blocks in the checkpoint",
                            share, FINEST_BLOCK);
    }
    return WF_OK;
}

/* Dense linears in block fp8 [layers/quantization/utils/fp8_utils.py: validate_fp8_block_shape]:
 * every share that a rank cuts must be whole blocks, and so must every part of a fused linear but
 * the last. */
static enum wf_status check_blocks(const struct wf_model *model, const struct wf_recipe *recipe,
                                   struct wf_error *error)
{
    static const struct {
        const char *role;
        unsigned dimension;
        bool fused, whole; /* not the last part of a fused one; not cut */
    } linears[] = {{"q", 0, true, false},          {"k", 0, true, false},
                   {"v", 0, false, false},         {"o", 1, false, false},
                   {"gate", 0, true, false},       {"up", 0, false, false},
                   {"down", 1, false, false},      {"q_a", 0, true, true},
                   {"q_b", 0, false, false},       {"kv_b", 0, false, false},
                   {"gdn_z", 0, false, false},     {"gdn_qkvz", 0, false, false},
                   {"gdn_out", 1, false, false},   {"shared_gate", 0, true, false},
                   {"shared_up", 0, false, false}, {"shared_down", 1, false, false}};
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++) {
        const struct wf_param *param = wf_engine_find_param(model, linears[i].role);
        uint64_t cut = linears[i].whole ? 1 : recipe->tp;
        if (!param || param->dtype != WF_DTYPE_F8_E4M3 || (cut == 1 && !linears[i].fused)) {
            continue;
        }
        uint64_t size = param->shape[linears[i].dimension];
        bool repeated = strcmp(linears[i].role, "k") == 0 || strcmp(linears[i].role, "v") == 0;
        uint64_t heads = repeated ? wf_model_size(model, "nk") : cut;
        uint64_t ranks = heads < cut ? heads : cut;
        if (ranks == 0 || size % ranks != 0 || size / ranks % FP8_BLOCK != 0) {
            return wf_error_set(error, WF_INVALID,
                                "%s: its %" PRIu64 " %s over %" PRIu64 " ranks are no whole "
                                "blocks of %d; vLLM refuses it",
                                param->name, size, linears[i].dimension ? "columns" : "rows", ranks,
                                FP8_BLOCK);
        }
    }
    return WF_OK;
}

static enum wf_status check(const struct wf_model *model, const struct wf_recipe *recipe,
                            struct wf_error *error)
{
    uint64_t nets = wf_model_size(model, "gk"), values = wf_model_size(model, "gv");
    enum wf_status status = check_stage(model, recipe, error);
    if (status == WF_OK) {
        status = check_experts(model, recipe, error);
    }
    if (status == WF_OK && wf_model_size(model, "fp8")) {
        status = check_blocks(model, recipe, error);
    }
    if (status == WF_OK && wf_model_size(model, "fp8") &&
        (wf_model_size(model, "bn") != FP8_BLOCK || wf_model_size(model, "bk") != FP8_BLOCK)) {
        status = wf_error_set(error, WF_UNSUPPORTED,
                              "fp8 in blocks of %" PRIu64 " x %" PRIu64 " is not known in vLLM; "
                              "only %d x %d is",
                              wf_model_size(model, "bn"), wf_model_size(model, "bk"), FP8_BLOCK,
                              FP8_BLOCK);
    }
    if (status != WF_OK) {
        return status;
    }
    if (nets % recipe->tp != 0 || values % recipe->tp != 0) {
        return wf_error_set(error, WF_INVALID,
                            "%" PRIu64 " key and %" PRIu64 " value heads of the delta nets cannot "
                            "be divided over tp=%" PRIu32,
                            nets, values, recipe->tp);
    }
    if (wf_engine_find_param(model, "indexer_k_scale")) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "vLLM keeps the indexer's wk in the model's dtype, joined with "
                            "weights_proj; of an fp8 checkpoint it dequantises it, which is no "
                            "move of bytes");
    }
    return WF_OK;
}

const struct wf_engine wf_engine_vllm = {
    .name = "vllm",
    .view = WF_VIEW_SPEC,
    .versions = versions,
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .vocab_multiple = 64,
    .skipped_stacks = "mtp",
    .rows = wf_vllm_rows,
    .row_count = WF_VLLM_ROWS,
    .aliases = wf_vllm_aliases,
    .alias_count = WF_VLLM_ALIASES,
    .check_recipe = check_recipe,
    .check = check,
    .chunks = chunks,
    .coordinates = coordinates,
    .experts = experts,
};
