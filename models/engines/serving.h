/* serving.h - what the tables of both serving engines say alike: shares of the rows of parameters
 * that hold several things one after the other, scales of block fp8, shared experts. */
#ifndef WEFT_MODELS_ENGINES_SERVING_H
#define WEFT_MODELS_ENGINES_SERVING_H

#define WF_SERVING_SCALE "weight_scale_inv"
#define WF_SERVING_ROW_SCALE "weight_scale"

/* Q ++ K ++ V by head: `q` and `kv` heads of `rows` rows each. */
#define WF_SERVING_QKV(role_, q, kv, rows)                                                        \
    role_ "(" q " + 2 * " kv "@0:" q ", " rows ") " role_ "(" q " + 2 * " kv "@" q ":" q " + " kv \
          ", " rows ") " role_ "(" q " + 2 * " kv "@" q " + " kv ":" q " + 2 * " kv ", " rows ")"
#define WF_SERVING_VISION_QKV(role_) WF_SERVING_QKV(role_, "vn", "vn", "vh / vn")

/* Scales of k and v: by head where a head is whole blocks, so that few KV heads are repeated with
 * their scales. */
#define WF_SERVING_KV_SCALE(role_) \
    role_ "(d % 128 == 0 ? nk : nk * d / 128, d % 128 == 0 ? d / 128 : 1)"

/* Q, k and v of a gated delta net, in one parameter; and their scales. */
#define WF_SERVING_GDN(role_)                                  \
    role_ "(2 * gk * ek + gv * ev@0:gk * ek) " role_           \
          "(2 * gk * ek + gv * ev@gk * ek:2 * gk * ek) " role_ \
          "(2 * gk * ek + gv * ev@2 * gk * ek:2 * gk * ek + gv * ev)"
#define WF_SERVING_GDN_BLOCKS "(2 * gk * ek + gv * ev) / 128"
#define WF_SERVING_GDN_SCALE(role_)                                                      \
    role_ "(" WF_SERVING_GDN_BLOCKS "@0:gk * ek / 128) " role_ "(" WF_SERVING_GDN_BLOCKS \
          "@gk * ek / 128:2 * gk * ek / 128) " role_ "(" WF_SERVING_GDN_BLOCKS           \
          "@2 * gk * ek / 128:" WF_SERVING_GDN_BLOCKS ")"

/* Gates of delta nets, which both engines make with the config's quantisation [vLLM:
 * layers/mamba/gdn/qwen_gdn_linear_attn.py, in_proj_ba; SGLang: models/qwen3_next.py, qwen3_5.py];
 * see .quantised in families/family.h. As Qwen3-Next's checkpoints name them, and Qwen3.5's. */
#define WF_SERVING_QUANTISED_BA "gdn_ba"
#define WF_SERVING_QUANTISED_B_A "gdn_b gdn_a"

/* Shared experts that no slot of the routed ones holds, cut over group "shared". */
#define WF_SERVING_SHARED(when_)                                                   \
    {.name = "{dir}gate_up_proj.weight",                                           \
     .parts = "shared_gate shared_up",                                             \
     .when = when_,                                                                \
     .groups = "shared_size",                                                      \
     .cuts = "0/shared"},                                                          \
        {.name = "{dir}gate_up_proj." WF_SERVING_SCALE,                            \
         .parts = "shared_gate_scale shared_up_scale",                             \
         .when = when_,                                                            \
         .groups = "shared_size",                                                  \
         .cuts = "0/shared"},                                                      \
    {                                                                              \
        .name = "{name}", .parts = "shared_down|shared_down_scale", .when = when_, \
        .cuts = "1/shared"                                                         \
    }

#endif
