/* make_checkpoint.h - a Hugging Face folder with a model's exact names and shapes and known values.
 *
 * Writes the weights (model.safetensors, or numbered shards and their index), then config.json: a
 * folder without it is unfinished and no reader takes it. Each file appears whole or not at all.
 * What is there already and equal is kept, so a second call does nothing, and a call after a crash
 * or a full disk goes on where the first stopped; "equal" is the whole header and the size, which
 * hold the model, the dtype, the shards and the version of the values. What is there and differs is
 * refused, unless `force`.
 */
#ifndef WEFT_TOOLS_FILES_MAKE_CHECKPOINT_H
#define WEFT_TOOLS_FILES_MAKE_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "models/dtype.h"
#include "runtime/status.h"

enum { WF_MAKE_SHARDS_MAX = 4096 };

struct wf_make_options {
    const char *config;                      /* a config.json, or a folder that has one */
    const char *folder;                      /* made if absent */
    uint64_t layers;                         /* 0: the config's */
    enum wf_dtype dtype;                     /* NONE: the config's */
    uint32_t shards;                         /* 1..WF_MAKE_SHARDS_MAX, at most one a parameter */
    bool force;                              /* write over what differs */
    const struct wf_family *const *families; /* beside the built-in ones; may be NULL */
    /* Called while bytes are written; may be NULL. */
    void (*progress)(void *user, uint64_t bytes_done, uint64_t bytes_total);
    void *user;
};

struct wf_make_report {
    uint32_t tensors, files; /* files of weights */
    uint64_t elements, bytes;
    uint32_t files_written; /* 0: everything was there */
};

enum wf_status wf_make_checkpoint(const struct wf_make_options *options,
                                  struct wf_make_report *report_out, struct wf_error *error);

#endif
