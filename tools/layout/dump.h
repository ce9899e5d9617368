/* dump.h - names and shapes of one rank's tensors, read from a file of the user's.
 *
 * Two formats, told apart by the first bytes: a safetensors file, of which the header alone is read
 * (it must be valid: models/safetensors.h), and lines of "name TAB dtype TAB shape" as the rank
 * files of tests/golden/real have them (shape "4x16", "-" for none; further fields and lines that
 * begin with # or "alias" are passed over). Everything is checked: sizes, counts, numbers, names
 * given twice.
 */
#ifndef WEFT_TOOLS_LAYOUT_DUMP_H
#define WEFT_TOOLS_LAYOUT_DUMP_H

#include <stddef.h>
#include <stdint.h>

#include "models/config.h"
#include "runtime/status.h"

enum {
    WF_DUMP_TENSORS_MAX = 1 << 20,
    WF_DUMP_TEXT_MAX = 256 << 20,
    WF_DUMP_FILES_MAX = 4096,
};

struct wf_dump_tensor {
    char *name;          /* owned by the dump */
    enum wf_dtype dtype; /* NONE: a type that this build does not know */
    uint32_t ndim;
    uint64_t shape[WF_SHAPE_MAX];
};

struct wf_dump {
    struct wf_dump_tensor *tensors; /* by name */
    uint32_t count, capacity;
};

/* `text` is a whole file of lines, or the first bytes of a safetensors file up to the end of its
 * header; `file_bytes` is the size of the whole file. Adds to *dump (zeroed memory, or what other
 * shards gave: a name in two of them is INVALID). Free with wf_dump_fini, also after a failure. */
enum wf_status wf_dump_parse(const char *text, size_t len, uint64_t file_bytes,
                             struct wf_dump *dump, struct wf_error *error);
/* Sorts the tensors by name; INVALID names one that is there twice. */
enum wf_status wf_dump_sort(struct wf_dump *dump, struct wf_error *error);
enum wf_status wf_dump_read(const char *path, struct wf_dump *dump, struct wf_error *error);
void wf_dump_fini(struct wf_dump *dump);

#endif
