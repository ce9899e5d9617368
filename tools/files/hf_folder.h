/* hf_folder.h - which files of a Hugging Face folder hold its tensors, and their headers.
 *
 * The rules are told in checkpoint.h, which is what other code uses. Blocks on the disk.
 */
#ifndef WEFT_TOOLS_FILES_HF_FOLDER_H
#define WEFT_TOOLS_FILES_HF_FOLDER_H

#include <stdint.h>

#include "models/safetensors.h"
#include "runtime/status.h"

struct json_object;

#define WF_HF_CONFIG "config.json"
#define WF_HF_SINGLE "model.safetensors"
#define WF_HF_INDEX "model.safetensors.index.json"

typedef void wf_hf_note_t(void *user, const char *sentence);

struct wf_hf_file {
    char *name; /* in the folder; owned */
    int fd;
    uint64_t bytes, data_offset;
    struct wf_safetensors *header;
};

struct wf_hf_folder {
    int fd;
    struct wf_hf_file *files; /* in the order of their names */
    uint32_t file_count;
    struct json_object *index; /* the whole index file, or NULL for a single file */
};

/* Finds the files, opens them, parses their headers and checks the index against them. `note` may
 * be NULL. `folder` is caller-owned; end with wf_hf_folder_close, also after a failure. */
enum wf_status wf_hf_folder_open(const char *path, wf_hf_note_t *note, void *user,
                                 struct wf_hf_folder *folder, struct wf_error *error);
void wf_hf_folder_close(struct wf_hf_folder *folder);

/* The text of a config: of `path` itself, or of the config.json in it if it is a folder. Gives
 * *text_out (NUL behind it); free with free(). The sentence names the file. */
enum wf_status wf_hf_config_read(const char *path, char **text_out, size_t *len_out,
                                 struct wf_error *error);

/* "[1024, 16]", for people; a longer one is cut. */
enum { WF_SHAPE_TEXT = 128 };
void wf_shape_format(uint32_t ndim, const uint64_t *shape, char text_out[WF_SHAPE_TEXT]);

/* True if the index lists the tensor; true for every tensor when there is no index. */
bool wf_hf_folder_lists(const struct wf_hf_folder *folder, const char *tensor);

#endif
