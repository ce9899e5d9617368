/* torch_pickle.h - the tensors that the data.pkl of a torch.save describes, without running it.
 *
 * A pickle is a program for a small machine that can import and call anything. This reader knows
 * the opcodes that torch.save writes (protocols 2 to 5) and these names: the dict that a state dict
 * is (collections.OrderedDict), functions that put a tensor together
 * (torch._utils._rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_parameter,
 * _rebuild_parameter_with_state), storage classes, dtypes, and a few whose result is passed over
 * (torch.Size, torch.device, _io.BytesIO, _codecs.encode: what TransformerEngine's _extra_state is
 * made of). Nothing is called: a name and its arguments give a description of a tensor, or nothing.
 * Any other opcode or name is refused, with its position.
 *
 * Names of tensors are the keys, joined with "." where dicts stand in dicts. Trainers put the model
 * beside other things: if the outermost dict has "model", "state_dict" or "module" that is a dict,
 * that one is taken as if it stood alone; if it has "model0", "model1", ... (Megatron's virtual
 * stages), those are taken, with their keys before the names; what stands beside them is passed
 * over. Entries that are no tensors are passed over, each with a note.
 *
 * Limits bound time and memory: objects, nesting, bytes. A dict that stands at two places is
 * refused. Pure; any thread.
 */
#ifndef WEFT_TOOLS_FILES_TORCH_PICKLE_H
#define WEFT_TOOLS_FILES_TORCH_PICKLE_H

#include <stddef.h>
#include <stdint.h>

#include "models/config.h"
#include "models/dtype.h"
#include "runtime/status.h"

enum {
    WF_PICKLE_OBJECTS_MAX = 1 << 24,
    WF_PICKLE_BYTES_MAX = 256 << 20,
    WF_PICKLE_NESTING_MAX = 16, /* dicts in dicts */
};

struct wf_pickle_tensor {
    const char *key; /* the storage's: the name of its entry under data/; key_len bytes */
    uint32_t key_len;
    enum wf_dtype dtype;    /* NONE: torch knows it, this build does not */
    uint64_t storage_bytes; /* what the storage must have */
    uint64_t offset;        /* bytes in the storage: of the first element */
    uint64_t elements;
    uint32_t ndim;
    uint64_t shape[WF_SHAPE_MAX];
    int64_t strides[WF_SHAPE_MAX]; /* elements, none negative; all inside the storage */
};

struct wf_pickle_sink {
    /* A tensor; what is not OK ends the reading. Pointers are valid during the call. */
    enum wf_status (*tensor)(void *user, const char *name, size_t name_len,
                             const struct wf_pickle_tensor *tensor, struct wf_error *error);
    /* What was passed over, for people; may be NULL. */
    void (*note)(void *user, const char *sentence);
    void *user;
};

enum wf_status wf_pickle_read(const uint8_t *bytes, size_t len, const struct wf_pickle_sink *sink,
                              struct wf_error *error);

#endif
