/* recipe.h - the few numbers from which a layout follows, and their SPEC text.
 *
 * SPEC is "engine:key=value,...", for example "megatron:tp=2,pp=2,vocab_div=128" or
 * "vllm:tp=2,engines=2". An unknown engine, key or word is refused with the nearest known one; a
 * key given twice, a number with a suffix, sign or leading zero, and sizes whose product passes
 * WF_WORLD_MAX are refused. Sizes are whole numbers from 1, flags 0 or 1. Keys that an engine knows
 * and cannot carry out are refused with the reason.
 *
 *   all       dtype (f32, f16, bf16); version, a known series ("0.20.0" is the series 0.20)
 *   megatron  tp, pp, dp, cp; vpp: virtual stages; ep, etp: ranks over which experts are dealt out
 *             and cut (etp: as tp unless given); vocab_div: the whole multiple that the vocabulary
 *             is padded to (default 128 x tp; 1: none); first, last: layers of those stages;
 *             account: embedding, loss or embedding+loss count as a layer; layout: explicit
 *             stages, "Et|tt|tt|tmL", written without commas; order: of rank digits, fastest first
 *             (tp-cp-ep-dp-pp); names: te or local; experts: grouped, sequential or single (of
 *             moe_single_grouped_weight); skip_mtp: 1 leaves out the layers that predict further
 *             tokens; loader: bridge or mbridge, which name some modules of Gemma and of vision
 *             towers differently; shared_gate: 0 where the gate of shared experts was not built
 *   fsdp      dp: ranks over which each parameter is sharded; replicate: copies of that group; tp;
 *             order: of rank digits, fastest first (tp-dp-replicate, the mesh's last axis first);
 *             shard: 0 or 1, the dimension; flat: 1 is FSDP1 (with use_orig_params); align:
 *             elements at whose multiples its parameters begin (default: 16 bytes of the tensors'
 *             dtype; where another is computed with, of that)
 *   vllm and sglang
 *             quant: whether the engine holds matrices as fp8 codes and scales: config (or absent),
 *             as the config says; none; or the rule by which they are made (models/quant.h), one
 *             for the whole job: deepseek, vllm, ... with scales of blocks of 128 x 128,
 *             channel_div and channel_mul with one for each row; where the config has fp8 and no
 *             group names one it is deepseek, or channel_div
 *   vllm      tp, pp, dp; ep: 1, or all of dp x tp with expert parallelism; engines: that many
 *             alike, ranks one engine after the other; eplb, redundant: slots beyond the experts;
 *             strategy: linear or round_robin, of experts; stage: load, or post for what the hooks
 *             after it leave; moe_backend, deep_gemm, capability: what decides those; vision: tp,
 *             or data for a tower that is whole on every rank; partition: layers of each stage,
 *             "3-5-4" (VLLM_PP_LAYER_PARTITION)
 *   sglang    tp, pp, engines; dp with dp_attention: groups with an attention of their own;
 *             dp_lm_head; moe_dense_tp: 1 keeps dense layers whole; ep; redundant; shared_experts:
 *             auto, separate or fused; moe_backend, a2a, fp8_gemm, attention, stage, capability,
 *             vision, swiglu_interleaved: the options that change a layout, each by its own name
 *             (engines/sglang.c says whose)
 *   hf        none: one rank that holds every parameter whole
 *   manifest  layouts that are read from files (models/manifest.h): files: their path, with one %d
 *             for a rank's number in its engine; ranks of an engine; engines; quant, as of vllm:
 *             whether the job has codes and scales that the manifests name
 *
 * Pure. A recipe is a plain value; two with equal canonical text (wf_recipe_format) are equal.
 */
#ifndef WEFT_MODELS_RECIPE_H
#define WEFT_MODELS_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/config.h"
#include "models/dtype.h"
#include "models/quant.h"
#include "runtime/status.h"

struct wf_engine; /* models/engines/engine.h: tables of names, cuts and fuse rules */

enum {
    WF_SPEC_MAX = 1024,
    WF_VERSION_TEXT_MAX = 32,
    WF_PIPELINE_TEXT_MAX = 256,
    WF_WORLD_MAX = 65536
};

/* Groups of ranks over which cuts divide. What each means is the engine's; a group that an engine
 * has not is one rank. */
enum wf_group {
    WF_GROUP_TP,
    WF_GROUP_ETP, /* inside an expert */
    WF_GROUP_EP,
    WF_GROUP_DP, /* shards of FSDP */
    WF_GROUP_ATTN,
    WF_GROUP_DENSE,
    WF_GROUP_EMBED,
    WF_GROUP_HEAD,
    WF_GROUP_SHARED, /* shared experts */
    WF_GROUP_VISION,
    WF_GROUP_COUNT
};
extern const char *const wf_groups[WF_GROUP_COUNT]; /* "tp", "etp", ... as cuts name them */

/* Which expert each physical slot holds, when that is no rule but a table (EPLB). */
struct wf_placement {
    uint32_t layers, slots;  /* layers of stack "layer"; slots of all ranks of an engine */
    const uint32_t *experts; /* [layers][slots]; rows of layers without experts are not read */
};

enum { WF_RECIPE_OWN = 16 };

/* What `quant` says: a rule is 1 + enum wf_quant, one of WF_QUANT_ENGINE_MAP. */
enum { WF_RECIPE_QUANT_CONFIG = 0, WF_RECIPE_QUANT_NONE = 1 };
#define WF_RECIPE_QUANT_WORD(name, text, rows, columns) "|" text
#define WF_RECIPE_QUANT_WORDS "config|none" WF_QUANT_ENGINE_MAP(WF_RECIPE_QUANT_WORD)

struct wf_recipe {
    const struct wf_engine *engine;
    char version[WF_VERSION_TEXT_MAX];     /* of the framework; the newest known unless given */
    enum wf_dtype dtype;                   /* of the tensors; NONE means the model's */
    uint32_t tp, pp, dp, cp, vpp, ep, etp; /* etp 0: as tp */
    uint32_t replicate;                    /* fsdp: copies of the whole group of shards */
    uint32_t engines;
    uint32_t quant;          /* WF_RECIPE_QUANT_CONFIG, ..._NONE, or a rule */
    uint32_t vocab_multiple; /* whole multiple that the vocabulary is padded to; 1 is no padding */
    uint32_t first, last;    /* megatron: layers of the first and last stage; 0 is not given */
    bool account_embedding, account_loss; /* megatron `account` */
    char order[32]; /* of rank digits, fastest first: the engine's key says of which */
    char layout[WF_PIPELINE_TEXT_MAX];    /* megatron explicit stages */
    uint32_t own[WF_RECIPE_OWN];          /* further keys of the engine: its table says which */
    const struct wf_placement *placement; /* not part of the SPEC; NULL: the rule. Not owned */
};

/* Where a rank stands. */
struct wf_coordinates {
    uint32_t engine; /* which engine of the group (engines=N); 0 for trainers */
    uint32_t tp, pp, dp, cp;
    struct {
        uint32_t size, rank; /* size 0 reads as 1 */
    } group[WF_GROUP_COUNT];
};

/* With a model also everything that can be wrong about the pair: sizes that do not divide (INVALID,
 * with the parameter and the size), combinations that the framework does not run (UNSUPPORTED).
 * `model` may be NULL. */
enum wf_status wf_recipe_parse(const char *spec, const struct wf_model *model,
                               struct wf_recipe *recipe_out, struct wf_error *error);
/* Canonical text: every key that is not at its default, in a fixed order. Always fits. */
void wf_recipe_format(const struct wf_recipe *recipe, char text_out[WF_SPEC_MAX]);
/* Ranks in all: 1..WF_WORLD_MAX, guaranteed by wf_recipe_parse. */
uint32_t wf_recipe_world(const struct wf_recipe *recipe);
/* Ranks of one engine (for trainers the world). */
uint32_t wf_recipe_ranks_per_engine(const struct wf_recipe *recipe);
struct wf_coordinates wf_recipe_coordinates(const struct wf_recipe *recipe, uint32_t rank);
/* The rule that `quant` names; NONE where it names none. */
enum wf_quant wf_recipe_rule(const struct wf_recipe *recipe);

#endif
