/* checkpoint.h - a Hugging Face folder: which file holds which parameter, and reading from it.
 *
 * Which files count. model.safetensors alone, or model.safetensors.index.json, whose weight_map
 * gives each tensor its file. Nothing else in the folder is looked at, and the order of a folder
 * never decides. Both at once is refused unless only one reading exists: an index that names only
 * model.safetensors, or none of whose files is there any more (stale; noted). An index is refused
 * if a file it names is absent, if a tensor is not in the file it says, if a file holds a needed
 * tensor that it does not list, or if two of its files hold one tensor. File names in it must be
 * plain (no folder), and the files regular; links are followed.
 *
 * What must be there. Every parameter of the model, in its shape and in the config's dtype, by
 * itself or inside the tensor in which its family stores it (experts in one tensor, perhaps
 * transposed); the first difference of each kind is named. What may be there besides: the head of a
 * tied model if its bytes equal the embedding's, rotary_emb.inv_freq and tensors without elements
 * (skipped, noted); any other extra tensor is noted or refused (`extras_refuse`). Always refused
 * are extras that say the weights mean something else: scales of quantised weights, and a bias
 * beside a known weight.
 *
 * Opening reads headers only. Reading is by pread: thread-safe, no mapping, a file that shrinks
 * gives IO.
 */
#ifndef WEFT_TOOLS_FILES_CHECKPOINT_H
#define WEFT_TOOLS_FILES_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "models/config.h"
#include "models/dtype.h"
#include "runtime/status.h"

enum {
    WF_CHECKPOINT_FILES_MAX = 4096,      /* shards of one folder */
    WF_CHECKPOINT_CONFIG_MAX = 16 << 20, /* bytes of config.json */
    WF_CHECKPOINT_NOTES_MAX = 20,        /* notes of one kind before the rest is only counted */
};

struct wf_layout; /* models/layout.h */

struct wf_checkpoint_options {
    bool extras_refuse; /* refuse extra tensors instead of noting them */
    /* Called with a sentence for each thing skipped or worth knowing; may be NULL. */
    void (*note)(void *user, const char *sentence);
    void *user;
};

/* Where one parameter is. */
struct wf_checkpoint_entry {
    uint32_t file;
    enum wf_dtype dtype;
    uint64_t offset; /* bytes, in the file: of the parameter if it is one run, else of the tensor */
    uint64_t elements;
    uint32_t piece; /* of `stored`: where in its tensor it lies; UINT32_MAX: one run */
    /* Index into `codes`: the files have codes and scales, of which the values of the parameter
     * are made (`file` and `offset` are those of the codes); UINT32_MAX: none. */
    uint32_t codes;
};

/* Fp8 codes of a matrix and their scales, of blocks or of rows. */
struct wf_checkpoint_codes {
    struct wf_checkpoint_entry codes, scales;
    uint64_t columns; /* of the matrix */
    bool by_row;      /* a scale for each row; else for each 128 x 128 */
};

struct wf_checkpoint_file {
    char *name; /* in the folder; owned */
    int fd;
    uint64_t bytes;
};

struct wf_checkpoint {
    struct wf_checkpoint_entry *entries; /* one for each parameter, in the model's order */
    struct wf_checkpoint_file *files;    /* by name */
    uint32_t entry_count, file_count;
    struct wf_checkpoint_codes *codes; /* owned; see wf_checkpoint_as_plain */
    uint32_t codes_count;
    char *folder;             /* as given; owned */
    struct wf_layout *stored; /* what the files hold; NULL if every tensor is a parameter. Owned */
};

/* The model of a folder (its config.json) or of a config file: what `model:` of a job file and
 * --model name. `families` beside the built-in ones (models/config.h; may be NULL). Gives
 * *model_out; free with wf_model_free. */
enum wf_status wf_checkpoint_model(const char *folder_or_config,
                                   const struct wf_family *const *families,
                                   struct wf_model **model_out, struct wf_error *error);

/* Gives *out; free with wf_checkpoint_free. `model` is borrowed during the call only. */
enum wf_status wf_checkpoint_open(const char *folder, const struct wf_model *model,
                                  const struct wf_checkpoint_options *options,
                                  struct wf_checkpoint **out, struct wf_error *error);
void wf_checkpoint_free(struct wf_checkpoint *checkpoint); /* NULL is fine */

/* Makes a checkpoint that was opened with a config's model one of the plain parameters of its job
 * (models/variant.h): entries are those of the job's model from 0 to plain_count, and a matrix that
 * the files hold as codes and scales is read as code times scale, rounded once to the model's
 * dtype. Nothing changes where the job has no variants or the config is not quantised. NO_MEMORY.
 */
enum wf_status wf_checkpoint_as_plain(struct wf_checkpoint *checkpoint, const struct wf_model *job,
                                      struct wf_error *error);

/* Elements [first, first + count) of a parameter in row-major order into `buffer`, in the
 * checkpoint's dtype (entries[param].dtype). The range must lie inside the parameter. */
enum wf_status wf_checkpoint_read(const struct wf_checkpoint *checkpoint, uint32_t param,
                                  uint64_t first, uint64_t count, void *buffer,
                                  struct wf_error *error);

#endif
