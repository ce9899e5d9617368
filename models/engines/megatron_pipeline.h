/* megatron_pipeline.h - which layers a Megatron pipeline stage holds. Pure.
 *
 * Rules of megatron/core/transformer: even and uneven splits, embedding and loss counted as layers,
 * virtual stages, and the explicit layout string ("Et|tt|tt|tL": E embedding, t a layer, m a layer
 * that predicts further tokens, L loss; | parts stages; x*n and (...)*n repeat; the stages of all
 * ranks come before those of the next virtual stage). Further-token layers stand together, on the
 * last stage unless a layout says where; with them, or where mtp_num_layers is 0 and not unset, the
 * final norm stands with the last layer, else with the head.
 */
#ifndef WEFT_MODELS_ENGINES_MEGATRON_PIPELINE_H
#define WEFT_MODELS_ENGINES_MEGATRON_PIPELINE_H

#include "models/engines/engine.h"

struct wf_stage_split {
    uint32_t layers, pp, vpp; /* vpp 1: none */
    uint32_t mtp;             /* layers that predict further tokens */
    uint32_t first, last;     /* layers of the first and last stage; 0: not given */
    bool account_embedding, account_loss;
    bool norm_with_layer; /* mtp_num_layers is set, be it to 0 */
    const char *layout;   /* "": none */
};

/* The chunks of stage `pp`, one per virtual stage, at most WF_CHUNKS_MAX. With virtual stages their
 * names begin with "model0.", "model1.", ... INVALID says what does not divide or contradicts. */
enum wf_status wf_megatron_stage(const struct wf_stage_split *split, uint32_t pp,
                                 struct wf_chunk *chunks_out, uint32_t *count_out,
                                 struct wf_error *error);

#endif
