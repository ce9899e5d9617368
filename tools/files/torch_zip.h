/* torch_zip.h - the zip archive that torch.save writes: which stored bytes of the file an entry is.
 *
 * Our own reader of the central directory, and not a zip library: entries are stored, not packed,
 * and are read where they lie, gigabytes at a time, by pread; libraries give an entry as a stream
 * through a handle of their own and do not say where it begins. They also accept what no torch
 * writes. Here is refused whatever two readers could take in two ways, and whatever torch does not
 * write: packed or encrypted entries, bytes behind the archive's end, several disks, names given
 * twice or empty, a directory that does not end where the end record begins, entries that overlap
 * each other or the directory, a local header of another name. Zip64 is read (torch always writes
 * it). CRCs are not checked, as torch does not.
 *
 * Works through a function that reads; any thread.
 */
#ifndef WEFT_TOOLS_FILES_TORCH_ZIP_H
#define WEFT_TOOLS_FILES_TORCH_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/status.h"

enum {
    WF_ZIP_ENTRIES_MAX = 1 << 20,
    WF_ZIP_DIRECTORY_MAX = 256 << 20, /* bytes */
    WF_ZIP_NAME_MAX = 512,            /* bytes of an entry's name */
};

struct wf_zip_source {
    /* Reads exactly `len` bytes at `offset`, which lie inside the file. */
    enum wf_status (*read)(void *user, void *buffer, size_t len, uint64_t offset,
                           struct wf_error *error);
    void *user;
    uint64_t bytes; /* of the file */
};

struct wf_zip_entry {
    const char *name; /* name_len bytes, no NUL behind it */
    uint32_t name_len;
    uint64_t header; /* of its local header in the file */
    uint64_t bytes;
    uint64_t end; /* where the next header, or the directory, begins */
};

struct wf_zip {
    struct wf_zip_entry *entries; /* by name */
    uint32_t count;
    char *directory; /* private: holds the names */
};

/* Caller-owned *zip_out; end with wf_zip_fini, also after a failure. */
enum wf_status wf_zip_open(const struct wf_zip_source *source, struct wf_zip *zip_out,
                           struct wf_error *error);
void wf_zip_fini(struct wf_zip *zip);

/* Borrowed; NULL when there is none. */
const struct wf_zip_entry *wf_zip_find(const struct wf_zip *zip, const char *name, size_t len);
/* Byte of the file at which the entry's data begins; its `bytes` lie inside the file. */
enum wf_status wf_zip_data(const struct wf_zip_source *source, const struct wf_zip_entry *entry,
                           uint64_t *offset_out, struct wf_error *error);

#endif
