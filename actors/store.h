/* store.h - versions that lie in files: how a rank reads one that nobody else can give it.
 *
 * Actors open no files. A host that has a place where versions lie gives its rank a struct wf_store
 * (wf_rank_options.store), a table of functions over it: tools/files/version_folder.h for Hugging
 * Face folders, a table in memory for the simulator. A fill whose OPEN names WF_SOURCE_STORE as its
 * source is read through it by each reader for itself; nobody serves.
 *
 * What the store promises: a version is there whole or not at all, and no byte leaves `read` that
 * was not compared with the digests that were stored with the version. The bytes are those of a
 * source rank whose layout is that of the recipe "hf:": tensors by the names of the Hugging Face
 * checkpoint, each whole and row-major.
 */
#ifndef WEFT_ACTORS_STORE_H
#define WEFT_ACTORS_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "actors/round.h"
#include "models/layout.h"
#include "runtime/status.h"

struct wf_store;
struct wf_stored; /* a version that was opened: the store's own */

/* Which version: all of it must be as stored, or it is another one. Borrowed while the version is
 * open. */
struct wf_store_wanted {
    const char *job;
    struct wf_version version;
    const struct wf_layout *layout;
};

/* What `read` keeps between two calls of one thread: verified bytes of one file. Zeroed at first;
 * `memory` is malloc'd by `read` and freed by the owner of the window. */
struct wf_store_window {
    uint8_t *memory;
    size_t capacity;
    uint32_t file;
    uint64_t first, len; /* what of it is here; len 0: nothing */
};

struct wf_store_ops {
    /* Pool thread; blocks on the disk. NOT_FOUND: the version is not there (yet). Otherwise a
     * failure says what is wrong with what is there: of another job or model, damaged, cut. Gives
     * *stored_out, to be given to `close`. */
    enum wf_status (*open)(struct wf_store *store, const struct wf_store_wanted *wanted,
                           struct wf_stored **stored_out, struct wf_error *error);
    /* Pool threads, several at a time, each with a window of its own; blocks on the disk. Bytes
     * [first, first + len) of the layout's tensor, inside it, len from 1 to `read_max`;
     * *bytes_out points into the window until its next use. DIGEST: they are not what was stored;
     * IO. */
    enum wf_status (*read)(struct wf_stored *stored, struct wf_store_window *window,
                           uint32_t tensor, uint64_t first, uint64_t len, const uint8_t **bytes_out,
                           struct wf_error *error);
    /* Any thread; no read is running. */
    void (*close)(struct wf_stored *stored);
};

struct wf_store {
    const struct wf_store_ops *ops;
    uint64_t read_max; /* bytes of one `read`, at least 8: what bounds a window */
};

#endif
