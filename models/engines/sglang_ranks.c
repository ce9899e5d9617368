/* sglang_ranks.c - where SGLang's ranks, layers and experts stand.
 *
 * Facts (files below python/sglang/srt of the project, release 0.5.23): rank = pp * TP + tp, and tp
 * as (attention dp, attention tp) and as (ep, expert tp), the last fastest
 * [distributed/parallel_state.py; layers/dp_attention.py: compute_dp_attention_world_info]; layers
 * over stages [distributed/utils.py: get_pp_indices]; experts over slots
 * [eplb/expert_location.py; layers/moe/fused_moe_triton/layer.py].
 */
#include <inttypes.h>

#include "models/engines/sglang.h"

static uint32_t attention_ranks(const struct wf_recipe *recipe)
{
    return recipe->tp / recipe->own[WF_SGLANG_DP];
}

static void set_group(struct wf_coordinates *at, enum wf_group group, uint32_t size)
{
    at->group[group].size = size;
    at->group[group].rank = at->tp % size;
}

struct wf_coordinates wf_sglang_coordinates(const struct wf_recipe *recipe, uint32_t rank)
{
    uint32_t per_engine = recipe->tp * recipe->pp, local = rank % per_engine;
    uint32_t attention = attention_ranks(recipe), inside = recipe->tp / recipe->ep;
    bool whole_dense = recipe->own[WF_SGLANG_MOE_DENSE_TP] == 1;
    bool whole_shared = recipe->own[WF_SGLANG_A2A] != WF_SGLANG_A2A_NONE;
    bool whole_vision = recipe->own[WF_SGLANG_VISION] == WF_SGLANG_VISION_DATA;
    struct wf_coordinates at = {
        .engine = rank / per_engine, .tp = local % recipe->tp, .pp = local / recipe->tp};
    at.dp = at.tp / attention;
    set_group(&at, WF_GROUP_TP, recipe->tp);
    set_group(&at, WF_GROUP_ATTN, attention);
    set_group(&at, WF_GROUP_EMBED, attention);
    set_group(&at, WF_GROUP_HEAD, recipe->own[WF_SGLANG_DP_LM_HEAD] ? attention : recipe->tp);
    set_group(&at, WF_GROUP_DENSE, whole_dense ? 1 : recipe->tp);
    set_group(&at, WF_GROUP_SHARED, whole_shared ? 1 : recipe->tp);
    set_group(&at, WF_GROUP_VISION, whole_vision ? 1 : attention);
    set_group(&at, WF_GROUP_ETP, inside);
    at.group[WF_GROUP_EP].size = recipe->ep;
    at.group[WF_GROUP_EP].rank = at.tp / inside;
    return at;
}

/* Layers divided equally; the last stages have one more each where that leaves a rest. */
enum wf_status wf_sglang_chunks(const struct wf_model *model, const struct wf_recipe *recipe,
                                uint32_t pp, struct wf_chunk *chunks_out, uint32_t *count_out,
                                struct wf_error *error)
{
    uint32_t layers = (uint32_t)model->layers, stages = recipe->pp;
    if (stages > layers) {
        return wf_error_set(error, WF_INVALID,
                            "%" PRIu32 " layers cannot fill pp=%" PRIu32 " stages", layers, stages);
    }
    uint32_t base = layers / stages, shorter = stages - layers % stages;
    uint32_t longer_before = pp > shorter ? pp - shorter : 0;
    chunks_out[0] = (struct wf_chunk){.first_layer = pp * base + longer_before,
                                      .layer_count = base + (pp >= shorter ? 1 : 0),
                                      .embedding = pp == 0,
                                      .head = pp == stages - 1,
                                      .final_norm = pp == stages - 1,
                                      .others = true};
    *count_out = 1;
    return WF_OK;
}

/* Slots of all ranks are dealt out contiguously and equally; slot i holds expert i % E until EPLB
 * moves experts, after which a placement says it. Classes that ask for no redundant slots have none
 * whatever the options say [models/glm4_moe.py, mixtral.py]: their families have the size
 * "no_redundant". */
enum wf_status wf_sglang_experts(const struct wf_model *model, const struct wf_recipe *recipe,
                                 const struct wf_coordinates *at, uint32_t layer,
                                 uint32_t slots_out[WF_SLOTS_MAX], uint32_t *count_out,
                                 struct wf_error *error)
{
    uint32_t experts = (uint32_t)wf_model_size(model, "E");
    bool heeds = !wf_model_size(model, "no_redundant");
    uint32_t redundant = heeds ? recipe->own[WF_SGLANG_REDUNDANT] : 0;
    uint32_t slots = experts + redundant, ranks = recipe->ep;
    *count_out = 0;
    if (experts == 0) {
        return WF_OK;
    }
    if (slots % ranks != 0 || slots > WF_SLOTS_MAX) {
        return wf_error_set(error, WF_INVALID,
                            "%" PRIu32 " experts and %" PRIu32
                            " redundant ones: expected slots that ep=%" PRIu32
                            " divides, and at most %d of them",
                            experts, redundant, ranks, WF_SLOTS_MAX);
    }
    const struct wf_placement *placement = recipe->placement;
    enum wf_status status = wf_engine_check_placement(placement, layer, slots, experts, error);
    uint32_t share = slots / ranks, first = share * at->group[WF_GROUP_EP].rank;
    for (uint32_t i = 0; i < share && status == WF_OK; i++) {
        uint32_t slot = first + i;
        slots_out[i] =
            placement ? placement->experts[(size_t)layer * slots + slot] : slot % experts;
    }
    *count_out = status == WF_OK ? share : 0;
    return status;
}

enum wf_status wf_sglang_check_recipe(const struct wf_recipe *recipe, struct wf_error *error)
{
    uint32_t dp = recipe->own[WF_SGLANG_DP], dense = recipe->own[WF_SGLANG_MOE_DENSE_TP];
    bool attention = recipe->own[WF_SGLANG_DP_ATTENTION] != 0;
    if (dp > 1 && !attention) {
        return wf_error_set(error, WF_INVALID,
                            "dp=%" PRIu32 " without dp_attention=1 is so many servers of their "
                            "own: say engines=%" PRIu32,
                            dp, dp);
    }
    if (dp == 1 && attention) {
        return wf_error_set(error, WF_INVALID,
                            "dp_attention=1 with dp=1: SGLang turns it off; expected dp of 2 or "
                            "more, or neither");
    }
    if (recipe->own[WF_SGLANG_DP_LM_HEAD] && !attention) {
        return wf_error_set(error, WF_INVALID, "dp_lm_head=1 needs dp_attention=1");
    }
    if (recipe->tp % dp != 0) {
        return wf_error_set(error, WF_INVALID,
                            "dp=%" PRIu32 " groups of attention do not divide tp=%" PRIu32, dp,
                            recipe->tp);
    }
    if (recipe->tp % recipe->ep != 0) {
        return wf_error_set(error, WF_INVALID, "ep=%" PRIu32 " does not divide tp=%" PRIu32,
                            recipe->ep, recipe->tp);
    }
    if (recipe->own[WF_SGLANG_A2A] != WF_SGLANG_A2A_NONE && recipe->ep != recipe->tp) {
        return wf_error_set(error, WF_INVALID,
                            "a2a: SGLang deals experts over all tensor parallel ranks then; "
                            "expected ep=%" PRIu32,
                            recipe->tp);
    }
    if (dense != 0 && dense != 1 && dense != recipe->tp) {
        return wf_error_set(error, WF_INVALID,
                            "moe_dense_tp=%" PRIu32 ": expected 1 or tp=%" PRIu32, dense,
                            recipe->tp);
    }
    return WF_OK;
}
