/* stored.h - tensors of a checkpoint's files that are not parameters one by one: experts in one
 * tensor, transposed, gate and up rows in turn (rows of engine "hf" in the families). */
#ifndef WEFT_TOOLS_FILES_STORED_H
#define WEFT_TOOLS_FILES_STORED_H

#include <stdint.h>

#include "models/config.h"
#include "models/layout.h"
#include "runtime/status.h"

/* What the files of a model hold. Gives *layout_out; free with wf_layout_free. UNSUPPORTED: weights
 * that are packed in a way that no table says. */
enum wf_status wf_stored_layout(const struct wf_model *model, struct wf_layout **layout_out,
                                struct wf_error *error);
/* Byte of an element of a piece's parameter inside the tensor. */
uint64_t wf_stored_byte(const struct wf_nest *nest, uint64_t element);
/* Byte behind the last one that a piece shows. */
uint64_t wf_stored_end(const struct wf_nest *nest);

/* Takes the next bytes of a tensor. */
typedef enum wf_status wf_stored_emit_t(void *user, const void *bytes, size_t len,
                                        struct wf_error *error);
/* A tensor's known values (known_values.h) from its first byte to its last, through `block` of
 * `block_bytes`. */
enum wf_status wf_stored_known(const struct wf_model *model, const struct wf_layout *layout,
                               uint32_t tensor, uint8_t *block, size_t block_bytes,
                               wf_stored_emit_t *emit, void *user, struct wf_error *error);

#endif
