/* dump_private.h - what the files of the reader of dumps share. */
#ifndef WEFT_TOOLS_FILES_DUMP_PRIVATE_H
#define WEFT_TOOLS_FILES_DUMP_PRIVATE_H

#include "tools/files/dump.h"
#include "tools/files/torch_zip.h"

/* Adds a tensor: a copy of *tensor with a name of its own. */
enum wf_status wf_dump_add(struct wf_dump_rank *rank, const char *name, size_t name_len,
                           const struct wf_dump_tensor *tensor, struct wf_error *error);
/* Strides of the shape in row-major order and the number of elements; false if it overflows. */
bool wf_dump_row_major(struct wf_dump_tensor *tensor);
/* True for the first bytes of a zip archive. */
bool wf_dump_is_torch(const char *first, size_t len);
/* Adds the tensors of a torch.save archive, which is file `file` of the rank. */
enum wf_status wf_dump_add_torch(struct wf_dump_rank *rank, const struct wf_zip_source *source,
                                 uint32_t file, const struct wf_dump_options *options,
                                 struct wf_error *error);

#endif
