/* expect_experts.c - experts as the engines' loaders fill them.
 *
 * Sources of the rules (vLLM 0.33.0, SGLang 0.5.23 where it is not alike): layers/fused_moe (w13:
 * gate, then up; an expert's rows and columns over the TP ranks without expert parallelism, else
 * whole experts, expert_map_manager.py: contiguous, the first ranks having one more where they do
 * not divide; in turns where that was asked for and the model has expert groups and no spare slot);
 * models/mixtral.py (other names); models/gpt_oss.py (rows of gate and of up in turn; biases, of
 * which only the first of the ranks that share an expert has the one behind the second matrix,
 * since what they compute is summed).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check/expect.h"

#define SHARED UINT64_MAX /* the slot behind those of routed experts */

enum matrix { GATE, UP, DOWN, MATRICES };

/* Of a layer: the checkpoint's names of experts, and what is put into which live tensor. */
struct experts {
    const char *dir;                    /* of the checkpoint */
    const char *names[MATRICES];        /* of a matrix */
    uint64_t slots, first, step, count; /* of all ranks; the first here, to the next, how many */
    bool fused;                         /* one more slot behind them has the shared expert */
    const char *shared;                 /* the module of that one */
};

/* [SGLang: determine_num_fused_shared_experts] of classes that can, one shared expert, where
 * experts are not dealt out; [can_fuse_shared_expert] of Qwen3-Next wherever sizes are alike. */
static bool is_fused(struct wf_expect_builder *b, const char *layer)
{
    uint32_t at = b->class->fuses;
    if (b->class->fuses_alike) {
        return b->place.sglang && b->place.shared != WF_VERIFY_SHARED_SEPARATE &&
               wf_expect_find(b, layer, "mlp.shared_expert.gate_proj.weight") != WF_NONE &&
               wf_model_size(b->model, "S") == wf_model_size(b->model, "I");
    }
    bool alike = wf_expect_find(b, layer, "mlp.shared_experts.gate_proj.weight") != WF_NONE &&
                 wf_model_size(b->model, "ns") == 1;
    bool by_itself = b->place.shared == WF_VERIFY_SHARED_AUTO && b->place.ep <= 1 &&
                     (at == 1 || (at > 0 && wf_model_size(b->model, "E") == at));
    return b->place.sglang && alike &&
           (by_itself || (at > 0 && b->place.shared == WF_VERIFY_SHARED_FUSED));
}

static struct experts experts_of(struct wf_expect_builder *b, const char *layer)
{
    struct experts of = {.dir = "mlp.", .names = {"gate_proj", "up_proj", "down_proj"}};
    if (wf_expect_find(b, layer, "block_sparse_moe.gate.weight") != WF_NONE) {
        of = (struct experts){.dir = "block_sparse_moe.", .names = {"w1", "w3", "w2"}};
    }
    of.slots = b->place.slots > 0 ? b->place.slots : wf_model_size(b->model, "E");
    uint64_t ranks = b->place.ep > 0 ? b->place.ep : 1, at = b->place.ep_rank;
    uint64_t rest = of.slots % ranks;
    of.count = of.slots / ranks + (at < rest);
    of.first = at * (of.slots / ranks) + (at < rest ? at : rest);
    of.step = 1;
    if (b->place.round_robin && ranks > 1 && wf_model_size(b->model, "n_group") > 1 &&
        of.slots == wf_model_size(b->model, "E")) {
        of.first = at;
        of.step = ranks;
    }
    of.fused = is_fused(b, layer);
    of.shared = b->class->fuses_alike ? "shared_expert" : "shared_experts";
    return of;
}

static enum wf_status add_tensor(struct wf_expect_builder *b, const char *layer,
                                 const struct experts *of, const char *leaf, uint64_t columns,
                                 uint32_t *tensor_out)
{
    char name[WF_NAME_MAX];
    snprintf(name, sizeof name, "%sexperts.%s%s", of->dir, b->place.sglang ? "" : "routed_experts.",
             leaf);
    return wf_expect_add(b, layer, name, columns, tensor_out);
}

static uint64_t slot_here(const struct experts *of, uint64_t i)
{
    return i < of->count ? of->first + i * of->step : SHARED;
}

/* Which expert a slot of the layer holds. */
static uint64_t expert_of(const struct wf_expect_builder *b, uint64_t slots, uint64_t slot)
{
    const uint32_t *table = b->place.slot_experts;
    return table != NULL && b->layer < b->place.slot_layers ? table[b->layer * slots + slot]
                                                            : slot % wf_model_size(b->model, "E");
}

static enum wf_status need_matrix(struct wf_expect_builder *b, const char *layer,
                                  const struct experts *of, uint64_t slot, enum matrix matrix,
                                  const char *what, uint32_t *param_out)
{
    char name[WF_NAME_MAX];
    if (slot != SHARED) {
        snprintf(name, sizeof name, "%sexperts.%" PRIu64 ".%s.%s", of->dir,
                 expert_of(b, of->slots, slot), of->names[matrix], what);
    } else {
        snprintf(name, sizeof name, "%s%s.%s.%s", of->dir, of->shared, of->names[matrix], what);
    }
    return wf_expect_need(b, layer, name, param_out);
}

/* Experts that other ranks have are known too. */
static void ask_for_all(struct wf_expect_builder *b, const char *layer, const struct experts *of)
{
    static const char *const whats[] = {"weight", "bias"};
    char name[WF_NAME_MAX];
    uint64_t experts = wf_model_size(b->model, "E");
    for (uint64_t i = 0; i < experts * MATRICES * (b->class->alternates ? 2 : 1); i++) {
        snprintf(name, sizeof name, "%sexperts.%" PRIu64 ".%s.%s", of->dir, i % experts,
                 of->names[i / experts % MATRICES], whats[i / experts / MATRICES]);
        wf_expect_find(b, layer, name);
    }
}

/* The share of rows or columns of one expert that a rank has. */
static enum wf_status expert_share(struct wf_expect_builder *b, uint64_t size, uint64_t *first_out,
                                   uint64_t *count_out)
{
    *first_out = 0;
    *count_out = size;
    if (b->place.ep > 1) {
        return WF_OK;
    }
    enum wf_status status = wf_expect_divide(b, size, "an expert's intermediate size", count_out);
    *first_out = b->place.tp_rank * *count_out;
    return status;
}

/* A rank's rows of a slot's gate and up (`what`: weight or bias), below what is there. */
static enum wf_status put_pair(struct wf_expect_builder *b, const char *layer,
                               const struct experts *of, uint64_t slot, const char *what,
                               uint32_t tensor)
{
    uint32_t params[2] = {0, 0};
    uint64_t first = 0, count = 0;
    enum wf_status status = need_matrix(b, layer, of, slot, GATE, what, &params[0]);
    if (status == WF_OK) {
        status = need_matrix(b, layer, of, slot, UP, what, &params[1]);
    }
    if (status == WF_OK) {
        status = expert_share(b, wf_expect_rows(b, params[0]), &first, &count);
    }
    if (status == WF_OK && b->class->alternates) {
        return wf_expect_put_alternating(b, tensor, params, first, count);
    }
    for (int i = 0; i < 2 && status == WF_OK; i++) {
        status = wf_expect_put(b, tensor, params[i], first, count, 0);
    }
    return status;
}

static enum wf_status put_down(struct wf_expect_builder *b, const char *layer,
                               const struct experts *of, uint64_t slot, uint32_t tensor)
{
    uint32_t param = 0;
    uint64_t first = 0, count = 0;
    enum wf_status status = need_matrix(b, layer, of, slot, DOWN, "weight", &param);
    if (status == WF_OK) {
        status = expert_share(b, wf_expect_columns(b, param), &first, &count);
    }
    if (status != WF_OK) {
        return status;
    }
    b->expect->tensors[tensor].columns = count;
    return wf_expect_put(b, tensor, param, 0, wf_expect_rows(b, param), first);
}

/* w13: of each slot here its expert's gate and up; w2: down. */
static enum wf_status add_experts(struct wf_expect_builder *b, const char *layer,
                                  const struct experts *of)
{
    uint32_t w13 = 0, w2 = 0;
    enum wf_status status =
        add_tensor(b, layer, of, "w13_weight", wf_model_size(b->model, "H"), &w13);
    if (status == WF_OK) { /* its columns are those of the experts */
        status = add_tensor(b, layer, of, "w2_weight", 0, &w2);
    }
    for (uint64_t i = 0; status == WF_OK && i < of->count + of->fused; i++) {
        status = put_pair(b, layer, of, slot_here(of, i), "weight", w13);
        if (status == WF_OK) {
            status = put_down(b, layer, of, slot_here(of, i), w2);
        }
    }
    return status;
}

static enum wf_status add_biases(struct wf_expect_builder *b, const char *layer,
                                 const struct experts *of)
{
    bool sums = b->place.ep > 1 || b->place.tp_rank == 0; /* else zeros */
    uint32_t w13 = 0, w2 = 0;
    enum wf_status status =
        add_tensor(b, layer, of, b->place.sglang ? "w13_weight_bias" : "w13_bias", 1, &w13);
    if (status == WF_OK) {
        status = add_tensor(b, layer, of, b->place.sglang ? "w2_weight_bias" : "w2_bias", 1, &w2);
    }
    for (uint64_t i = 0; status == WF_OK && i < of->count; i++) {
        uint32_t param = 0;
        status = put_pair(b, layer, of, slot_here(of, i), "bias", w13);
        if (status == WF_OK) {
            status = need_matrix(b, layer, of, slot_here(of, i), DOWN, "bias", &param);
        }
        if (status == WF_OK && sums) {
            status = wf_expect_put(b, w2, param, 0, wf_expect_rows(b, param), 0);
        }
    }
    if (status == WF_OK) {
        b->expect->tensors[w2].rows = of->count * wf_model_size(b->model, "H");
    }
    return status;
}

enum wf_status wf_expect_mlp(struct wf_expect_builder *b, const char *layer, const char *dir)
{
    char gate[WF_NAME_MAX], up[WF_NAME_MAX], live[WF_NAME_MAX];
    static const char *const whats[] = {"weight", "bias"};
    enum wf_status status = WF_OK;
    for (int i = 0; status == WF_OK && i < 2; i++) {
        snprintf(gate, sizeof gate, "%sgate_proj.%s", dir, whats[i]);
        snprintf(up, sizeof up, "%sup_proj.%s", dir, whats[i]);
        snprintf(live, sizeof live, "%sgate_up_proj.%s", dir, whats[i]);
        if (i == 0 || wf_expect_find(b, layer, gate) != WF_NONE) {
            status = wf_expect_add_rows(b, layer, (const char *const[]){gate, up, NULL}, live);
        }
    }
    snprintf(live, sizeof live, "%sdown_proj", dir);
    return status == WF_OK ? wf_expect_add_columns(b, layer, live, live) : status;
}

/* Left to itself SGLang gives experts whose rows alternate (gpt-oss) to triton_kernels, which keeps
 * them transposed: of those nothing is told a second time. */
static bool are_transposed(const struct wf_expect_builder *b)
{
    char spec[WF_SPEC_MAX];
    if (!b->place.sglang || !b->class->alternates || b->place.recipe == NULL) {
        return false;
    }
    wf_recipe_format(b->place.recipe, spec);
    return strstr(spec, "moe_backend=triton") == NULL;
}

enum wf_status wf_expect_moe(struct wf_expect_builder *b, const char *layer)
{
    static const char *const whole[] = {"mlp.gate.weight",
                                        "mlp.gate.e_score_correction_bias",
                                        "mlp.gate.expert_bias",
                                        "mlp.router.weight",
                                        "mlp.router.bias",
                                        "block_sparse_moe.gate.weight",
                                        "mlp.shared_expert_gate.weight"};
    static const char *const shared[] = {"mlp.shared_experts.", "mlp.shared_expert."};
    const struct experts of = experts_of(b, layer);
    if (b->place.sglang && b->place.ep > 0 && of.slots % b->place.ep != 0) {
        return wf_error_set(b->error, WF_UNSUPPORTED,
                            "the element check knows equal shares of experts of SGLang only, not "
                            "%" PRIu64 " over %u",
                            of.slots, b->place.ep);
    }
    if (are_transposed(b)) {
        return wf_error_set(b->error, WF_UNSUPPORTED,
                            "the element check does not know experts as SGLang's triton_kernel "
                            "keeps them, which it takes for this model by itself; it knows "
                            "moe_backend=triton");
    }
    ask_for_all(b, layer, &of);
    enum wf_status status = add_experts(b, layer, &of);
    if (status == WF_OK && b->class->alternates) {
        status = add_biases(b, layer, &of);
    }
    for (size_t i = 0; status == WF_OK && i < sizeof whole / sizeof whole[0]; i++) {
        status = wf_expect_add_whole(b, layer, whole[i], whole[i]);
    }
    for (size_t i = 0; status == WF_OK && !of.fused && i < 2; i++) {
        char name[WF_NAME_MAX];
        snprintf(name, sizeof name, "%sgate_proj.weight", shared[i]);
        if (wf_expect_find(b, layer, name) != WF_NONE) {
            status = wf_expect_mlp(b, layer, shared[i]);
        }
    }
    return status;
}
