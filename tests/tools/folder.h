/* folder.h - temporary folders and checkpoints with planted faults, for the tests of this folder.
 */
#ifndef WEFT_TESTS_TOOLS_FOLDER_H
#define WEFT_TESTS_TOOLS_FOLDER_H

#include <stdint.h>

#include "models/config.h"

enum { FOLDER_PATH_MAX = 300 };

/* Makes an empty folder; its path is in `path`. */
void folder_make(char path[FOLDER_PATH_MAX]);
/* Removes it with what is in it. */
void folder_remove(const char *path);
/* "FOLDER/NAME" in a buffer of the caller. */
const char *folder_join(char out[2 * FOLDER_PATH_MAX], const char *folder, const char *name);
void folder_write(const char *folder, const char *name, const void *bytes, size_t len);

struct wf_model *folder_model(const char *config); /* under tests/golden/models */

enum edit_kind { EDIT_NONE, EDIT_DROP, EDIT_ADD, EDIT_RETYPE, EDIT_RESHAPE, EDIT_PREFIX_ALL };
struct edit {
    enum edit_kind kind;
    const char *name;      /* the tensor; EDIT_PREFIX_ALL: what is put before every name */
    enum wf_dtype dtype;   /* ADD, RETYPE */
    uint64_t rows;         /* ADD, RESHAPE: a vector of so many elements */
    const char *values_of; /* ADD: known values of this name instead of its own */
};

/* Writes parameters [first, end) of the model with known values into FOLDER/FILE, after edits. */
void folder_write_weights(const char *folder, const char *file, const struct wf_model *model,
                          uint32_t first, uint32_t end, const struct edit *edits,
                          uint32_t edit_count);

#endif
