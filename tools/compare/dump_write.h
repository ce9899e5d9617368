/* dump_write.h - a dump (tools/files/dump.h) of what ranks would hold of a model's weights.
 *
 * Each rank's file is written tensor by tensor, from its first byte to its last, out of a side
 * (side.h): a Hugging Face folder. Of a tensor no more is in memory than pieces that lie inside
 * each other. Views, derived tensors and second names of a tensor are left out, as a framework's
 * own list of parameters leaves them out. Each file appears whole or not at all, recipe.json last.
 */
#ifndef WEFT_TOOLS_COMPARE_DUMP_WRITE_H
#define WEFT_TOOLS_COMPARE_DUMP_WRITE_H

#include <stdint.h>

#include "runtime/status.h"

struct wf_family;

struct wf_dump_write_options {
    const char *model, *spec, *folder; /* a Hugging Face folder; SPEC; made if absent */
    const struct wf_family *const *families;
    /* Called as ranks are done; may be NULL. */
    void (*progress)(void *user, uint32_t ranks_done, uint32_t ranks_total);
    void *user;
};

struct wf_dump_written {
    uint32_t ranks;
    uint64_t tensors, bytes;
};

/* INVALID: the SPEC is wrong. UNSUPPORTED: a tensor whose dimensions the framework keeps in another
 * order, or whose values the folder does not have (fp8 of a folder that is not). REFUSED: the
 * folder holds a dump over more ranks, or part of one. IO: the model cannot be read or the dump not
 * written. */
enum wf_status wf_dump_write(const struct wf_dump_write_options *options,
                             struct wf_dump_written *written_out, struct wf_error *error);

#endif
