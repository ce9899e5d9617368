/* version_folder.h - versions of a job as Hugging Face folders: written whole, read with proof.
 *
 * A place (`files.folder` of a job file) holds one folder a version, named as versions are written
 * everywhere ("1764460800.1.42": term, counter, step):
 *
 *   config.json                        the model's, byte for byte
 *   model.safetensors                  or, above WF_VERSION_SHARD_BYTES, model-00001-of-00003...
 *   model.safetensors.index.json       and their index
 *   weft_version.json                  whose version it is, and digests; what makes it Weft's
 *
 * Any Hugging Face loader takes it. weft_version.json is {"weft_version", "format": 2, "job",
 * "version", "label", "chunk_bytes", "files": [{"name", "bytes", "chunks"}], "digest"}: `files` are
 * all the others above, and `chunks` the XXH3-64 of each `chunk_bytes` (1 MiB) of a file, its
 * header included, 16 hex digits each and without gaps, the last chunk shorter; `digest` is the
 * hash of all that stands before it. Format 1 had no digests of config.json and the index; it is
 * refused.
 *
 * Writing. Everything goes to ".VERSION.weft-partial" in the place; each file is synced, then the
 * folder, then it is renamed to its final name and the place is synced. Whatever fails (a full
 * device, a size limit, kill -9), a final name shows a whole version. One process writes a place at
 * a time (a lock on the place itself); what a killed one left is removed by the next. The newest
 * `keep` versions of the job stay, the one just written among them whatever its name, and whatever
 * is not the job's: an older one is first renamed
 * away (".VERSION.weft-old"), then removed, so no reader opens a part of it; who has it open reads
 * on. What cannot be removed (a folder in it, a file that an NFS client holds) stays under such a
 * name, is noted, and stops nothing; the next write tries again.
 *
 * Reading. `open` looks at names, sizes, headers, the digest of weft_version.json and every byte of
 * config.json and the index, which costs little; `read` compares every chunk that a byte comes
 * from, so damage inside is found by whoever needs those bytes. By pread, never mapped.
 *
 * The process must ignore SIGXFSZ and SIGPIPE. Blocks on the disk. Thread-safe as actors/store.h
 * says; writing is one call at a time for one place.
 */
#ifndef WEFT_TOOLS_FILES_VERSION_FOLDER_H
#define WEFT_TOOLS_FILES_VERSION_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "actors/store.h"
#include "models/layout.h"
#include "runtime/status.h"

#define WF_VERSION_FILE "weft_version.json"
#define WF_VERSION_PARTIAL ".weft-partial"
#define WF_VERSION_OLD ".weft-old"

#define WF_VERSION_SHARD_BYTES (UINT64_C(5000) * 1000 * 1000)
enum {
    WF_VERSION_CHUNK_BYTES = 1 << 20,
    WF_VERSION_KEEP_MAX = 1000,
    /* The longest window (actors/store.h): what one reading thread needs beside the weights. */
    WF_VERSION_READ_BYTES = 32 << 20,
    WF_VERSION_WINDOW_BYTES = WF_VERSION_READ_BYTES + 2 * WF_VERSION_CHUNK_BYTES,
};

/* --- writing ---------------------------------------------------------------------------------- */
/* Where sentences go about what stops nothing, on the caller's thread. */
struct wf_version_notes {
    void (*say)(void *user, const char *sentence); /* NULL: nowhere */
    void *user;
};

/* All borrowed during the call. */
struct wf_version_save {
    const char *place; /* made if it is not there; its parents must be */
    const char *job;
    struct wf_version version;
    const char *label;
    const char *config; /* text of config.json */
    size_t config_len;
    const struct wf_layout *layout; /* of the recipe "hf:" */
    void *const *tensors;           /* by its tensors: where each is, contiguous */
    uint64_t shard_bytes;           /* 0: WF_VERSION_SHARD_BYTES */
    uint32_t keep;                  /* 1 to WF_VERSION_KEEP_MAX */
    struct wf_version_notes notes;  /* old versions that could not be removed */
};

/* Pool thread. OK also when that version is there already and whole. NO_MEMORY, IO, or REFUSED:
 * another process writes there, or what bears that name is not of this job. After a failure the
 * place is as it was. That an old version cannot be removed is none. */
enum wf_status wf_version_write(const struct wf_version_save *save, struct wf_error *error);

/* Whether versions can be written to a place, before there is one: makes it, looks whether it is
 * free and removes what a killed writer left; of what it cannot remove it tells `notes`. */
enum wf_status wf_version_prepare(const char *place, const struct wf_version_notes *notes,
                                  struct wf_error *error);

/* "term.counter.step" exactly as wf_version_format writes it. */
bool wf_version_parse(const char *text, struct wf_version *version_out);

/* --- reading ---------------------------------------------------------------------------------- */
/* The store over a place. `place` is copied; it need not be there yet. NO_MEMORY. Free it with
 * wf_version_store_free, when all that was opened is closed. */
enum wf_status wf_version_store_new(const char *place, struct wf_store **store_out,
                                    struct wf_error *error);
void wf_version_store_free(struct wf_store *store); /* NULL is fine */

/* The versions in a place by their folders' names, oldest first. Gives *versions_out; free(). */
enum wf_status wf_version_list(const char *place, struct wf_version **versions_out,
                               uint32_t *count_out, struct wf_error *error);

/* What a version says of itself; zeros where it could not be read. */
struct wf_version_info {
    struct wf_version version;
    char job[WF_JOB_NAME_MAX], label[WF_LABEL_MAX];
    uint32_t files, tensors;
    uint64_t bytes;
};
/* Whether it is a version of the job that it names, of the model in its config.json, and whole:
 * every byte of it, or (not `whole`) so far as `open` looks. `families` beside the built-in ones
 * (models/config.h; may be NULL). *info_out is written in any case. */
enum wf_status wf_version_check(const char *place, struct wf_version version,
                                const struct wf_family *const *families, bool whole,
                                struct wf_version_info *info_out, struct wf_error *error);

/* The newest version of `job` in a place that `open` takes, so far as that looks; the sentence of
 * each folder that it does not take goes to `note` (may be NULL). NOT_FOUND: there is none. */
enum wf_status wf_version_newest(const char *place, const char *job, const struct wf_layout *layout,
                                 void (*note)(void *user, const char *sentence), void *user,
                                 struct wf_version *version_out, struct wf_error *error);

#endif
