/* manifest.h - a layout spelled out piece by piece, for tensors that no recipe describes.
 *
 * A manifest is one msgpack list, written by `weft layout write`, by tools/weft_manifest.py or by
 * anybody's script:
 *
 *   "weft-manifest", 1,
 *   hash     16 bytes, wf_layout.hash, high half first, big-endian; or nil: nothing is compared
 *   words    [text]: what names are made of, between their dots
 *   params   [name]: the parameters that pieces show, in the order of their first use
 *   types    [[dtype, kind, shape, order]]: dtype as in SPECs ("bf16"); kind an enum
 *            wf_tensor_kind; order: the dimensions by falling stride, [] for row-major
 *   forms    [[unit, [count, param_step, tensor_step]...]]: bytes of an element; axes from outer
 *            to inner (models/piece.h)
 *   tensors  [[name, type, piece...]]: in the layout's order; pieces by rising offset
 *   aliases  [[name, tensor]]
 *
 *   name     [shared, word...]: so many words of the name before it in this list, then these
 *   piece    [form, param, offset, first, value], of which a tail of zeros may be left out. `param`
 *            counts from the parameter behind the last piece's (the first: from 0), so a layout in
 *            order has zeros; nil is a fill, `value` its byte. `offset` in bytes of the tensor,
 *            `first` in elements of the parameter, `value` an enum wf_value_rule
 *
 * Numbers are whole. 70,000 tensors take less than 2 MB. A manifest comes from outside: names are
 * looked up in the model, every piece is checked against its parameter and its tensor, counts have
 * limits, and what is read twice or left over is refused. Whether pieces cover their tensors and do
 * not overlap is the planner's proof, as for derived layouts.
 *
 * Pure; any thread.
 */
#ifndef WEFT_MODELS_MANIFEST_H
#define WEFT_MODELS_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "models/layout.h"

enum {
    WF_MANIFEST_BYTES_MAX = 64 << 20,
    WF_MANIFEST_WORDS_MAX = 1 << 20,
    WF_MANIFEST_PARAMS_MAX = 1 << 21,
    WF_MANIFEST_TYPES_MAX = 1 << 16,
    WF_MANIFEST_FORMS_MAX = 1 << 12,
    WF_MANIFEST_TENSORS_MAX = 1 << 20, /* also aliases */
    WF_MANIFEST_PIECES_MAX = 1 << 22,
    WF_MANIFEST_NAME_WORDS_MAX = 128, /* of one name */
};
#define WF_MANIFEST_MAGIC "weft-manifest"
#define WF_MANIFEST_VERSION 1

/* Gives *bytes_out; free with free(). UNSUPPORTED names what a manifest cannot say: more words,
 * forms or types than the limits. */
enum wf_status wf_manifest_write(const struct wf_model *model, const struct wf_layout *layout,
                                 uint8_t **bytes_out, size_t *len_out, struct wf_error *error);

/* A manifest as it was read. */
struct wf_manifest {
    struct wf_layout *layout; /* owned */
    struct wf_param *params;  /* without a model: names of the parameters; owned */
    uint32_t param_count;
    char *text; /* private: the names of params */
};

/* With a model pieces' parameters are its indices, they must lie inside its shapes, and the hash is
 * compared. Without one (to look at) they are indices into manifest_out->params, which know their
 * names only, and the layout's hash is what the manifest says, or 0. End with wf_manifest_fini,
 * also after a failure. */
enum wf_status wf_manifest_read(const uint8_t *bytes, size_t len, const struct wf_model *model,
                                struct wf_manifest *manifest_out, struct wf_error *error);
void wf_manifest_fini(struct wf_manifest *manifest);

#endif
