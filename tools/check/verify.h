/* verify.h - what a rank of vLLM or SGLang must hold, computed from the checkpoint's files by
 * another way.
 *
 * The element check of a run. It imitates what the engines' own weight loaders do with each tensor
 * of a checkpoint (take a rank's rows of q, k, v, gate and up one below the other; a rank's columns
 * of o_proj and down_proj; experts one below the other; a rank's rows of the padded vocabulary,
 * zeros below), and shares nothing with the code that moves weights: no layouts, pieces, plans,
 * casts. It knows only the model's sizes and names (models/config.h) and reads the checkpoint's
 * files. Tested against layouts that the engines themselves produced (tests/golden/real). What it
 * does not know it refuses; it covers less than layouts do.
 *
 * Read-only after open: any number of threads may check different tensors at once. Memory: about 2
 * MiB for each call in progress.
 */
#ifndef WEFT_TOOLS_CHECK_VERIFY_H
#define WEFT_TOOLS_CHECK_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "models/config.h"
#include "models/dtype.h"
#include "models/quant.h"
#include "runtime/status.h"
#include "tools/check/step.h"
#include "tools/files/checkpoint.h"

struct wf_verify;

/* Where SGLang has the expert that all tokens share. */
enum wf_verify_shared {
    WF_VERIFY_SHARED_AUTO, /* where its class puts it by itself */
    WF_VERIFY_SHARED_SEPARATE,
    WF_VERIFY_SHARED_FUSED, /* in a slot behind the others */
};

struct wf_verify_place {
    uint32_t tp, tp_rank, pp, pp_rank;
    uint32_t ep, ep_rank; /* ranks over which experts are dealt out whole; 0 or 1: each is cut */
    bool sglang;          /* else vLLM */
    enum wf_verify_shared shared;
    bool round_robin;     /* vLLM was told to deal experts out in turns, and not to balance them */
    bool vision_whole;    /* the vision tower is on every rank, not cut */
    enum wf_quant quant;  /* the rule by which matrices are quantised; NONE: they are not */
    uint32_t packed_rows; /* of a group in the stand-in's packed head; 0: there is none */
    uint32_t slots;       /* of experts, of all ranks; 0: as many as experts */
    /* [layer][slots]: which expert each holds; NULL: slot i expert i modulo their number. Read by
     * wf_verify_open alone. */
    const uint32_t *slot_experts;
    uint32_t slot_layers;
    /* What the SPEC says: options that nobody has told of here are refused; and for a model of a
     * family from a file, of which nobody knows more than its layout. May be NULL. Read by
     * wf_verify_open alone. */
    const struct wf_recipe *recipe;
    uint32_t rank; /* in the recipe's world */
    /* By parameter: the type in which trainers hold its values less 1, or NONE; NULL: none is. Read
     * by wf_verify_open alone. */
    const enum wf_dtype *less_one;
};

/* Whether weights are packed and move as they are (int4, mxfp4, nvfp4). */
bool wf_verify_is_packed(const struct wf_model *model);
/* False: of the model's family, which is from a file, of the engine, which has manifests, or of
 * weights that are packed nobody knows more than the layout. */
bool wf_verify_is_retold(const struct wf_model *model, const struct wf_recipe *recipe);

/* `checkpoint` and `model` are borrowed for the life of *out; without a checkpoint (NULL) only
 * names and sizes can be asked for. INVALID names the size that does not
 * divide, UNSUPPORTED a tensor or dtype that cannot be checked. Free with wf_verify_free. */
enum wf_status wf_verify_open(const struct wf_checkpoint *checkpoint, const struct wf_model *model,
                              const struct wf_verify_place *place, struct wf_verify **out,
                              struct wf_error *error);
void wf_verify_free(struct wf_verify *verify); /* NULL is fine */

/* The rank's tensors under the engine's names, each buffer once (a tied head is the embedding). */
uint32_t wf_verify_tensor_count(const struct wf_verify *verify);
const char *wf_verify_tensor_name(const struct wf_verify *verify, uint32_t tensor); /* borrowed */
uint64_t wf_verify_tensor_elements(const struct wf_verify *verify, uint32_t tensor);

/* A rank's live tensor: row-major, without gaps. */
struct wf_verify_live {
    const void *address;
    enum wf_dtype dtype;
    uint64_t bytes;
};

struct wf_verify_result {
    uint64_t elements_checked, elements_wrong;
    /* The first wrong element of the first such tensor; tensor is "" while there is none. */
    struct {
        char tensor[WF_NAME_MAX];
        uint64_t index;           /* in the rank's tensor */
        uint32_t expected, found; /* bits, in the live dtype */
    } first_wrong;
};

/* Compares one tensor with its value `steps` steps (step.h) after the checkpoint, and adds to
 * *result (zeroed by the caller before the first). Every element counts, padding too. MISMATCH if
 * the live size is not the expected one; IO if the files cannot be read. Wrong elements are no
 * error. */
enum wf_status wf_verify_tensor(const struct wf_verify *verify, uint32_t tensor, uint64_t steps,
                                const struct wf_verify_live *live, struct wf_verify_result *result,
                                struct wf_error *error);

/* Finds a live tensor by name: false if there is none. */
typedef bool wf_verify_lookup_t(void *user, const char *name, struct wf_verify_live *live_out);

/* All tensors of the rank. A tensor that `lookup` does not find is MISMATCH. */
enum wf_status wf_verify_rank(const struct wf_verify *verify, uint64_t steps,
                              wf_verify_lookup_t *lookup, void *user,
                              struct wf_verify_result *result, struct wf_error *error);

/* Where an element of a live tensor comes from: parameter and flat index, or false for padding,
 * which is zero. */
bool wf_verify_locate(const struct wf_verify *verify, uint32_t tensor, uint64_t index,
                      uint32_t *param_out, uint64_t *flat_out);

/* True of tensors whose elements are no elements of the checkpoint, cast, but made of some: codes
 * and scales (models/variant.h), and what an engine derives. wf_verify_locate gives false. */
bool wf_verify_is_made(const struct wf_verify *verify, uint32_t tensor);
/* What an element of such a tensor is after each number of steps: its bits in the live dtype. Some
 * milliseconds. */
enum wf_status wf_verify_versions(const struct wf_verify *verify, uint32_t tensor, uint64_t index,
                                  enum wf_dtype live, uint32_t bits_out[WF_STEP_PERIOD],
                                  struct wf_error *error);

/* The bits that one element must have `steps` steps after a base value read from the checkpoint:
 * the step in `from`, then the cast to `to` (round to nearest even). */
uint32_t wf_verify_value(uint32_t base_bits, enum wf_dtype from, enum wf_dtype to, uint64_t steps);

#endif
