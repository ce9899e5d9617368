/* version_manifest.h - weft_version.json: from text to plain values and back. For
 * tools/files/version_*.c, and for who only wants to know which version a folder is; the format is
 * told in version_folder.h. Pure but for _read.
 */
#ifndef WEFT_TOOLS_FILES_VERSION_MANIFEST_H
#define WEFT_TOOLS_FILES_VERSION_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "actors/round.h"
#include "runtime/status.h"
#include "tools/files/checkpoint.h"

/* Shards, config.json, the index. */
enum { WF_VERSION_FILES_MAX = WF_CHECKPOINT_FILES_MAX + 2 };

struct wf_version_file {
    char *name; /* owned */
    uint64_t bytes;
    uint64_t *chunks; /* owned; digest of each */
    uint64_t chunk_count;
};

struct wf_version_manifest {
    char job[WF_JOB_NAME_MAX];
    struct wf_version version;
    char label[WF_LABEL_MAX];
    struct wf_version_file *files; /* owned */
    uint32_t file_count;
};

/* Gives *text_out; free with free(). NO_MEMORY. */
enum wf_status wf_version_manifest_format(const struct wf_version_manifest *manifest,
                                          char **text_out, size_t *len_out, struct wf_error *error);
/* Gives *out; end with _fini. INVALID or UNSUPPORTED (another format) with a sentence; DIGEST: it
 * was changed since it was written. */
enum wf_status wf_version_manifest_parse(const char *text, size_t len,
                                         struct wf_version_manifest *out, struct wf_error *error);
/* The same of a file in a folder; the errors of wf_file_read_all too. */
enum wf_status wf_version_manifest_read(int folder_fd, const char *path,
                                        struct wf_version_manifest *out, struct wf_error *error);
void wf_version_manifest_fini(struct wf_version_manifest *manifest); /* zeroed is fine */

#endif
