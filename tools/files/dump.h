/* dump.h - what ranks had in memory, as files: names, shapes, and where each tensor's bytes lie.
 *
 * A dump is a folder with
 *   recipe.json          {"engine": "megatron", "tp": 3, ..., "model": CONFIG}: the keys of a SPEC
 *                        (models/recipe.h; values are numbers, words, true and false), and the
 *                        model's config inline or the path of a config or a Hugging Face folder,
 *                        from the dump's folder on
 *   rank_00.safetensors  or rank_00.pt, rank_01..., one file for each rank of the recipe, two
 * digits or more: the rank's tensors under the framework's own names Other files are not looked at.
 *
 * Opening reads headers only (safetensors) or the pickle (.pt: torch_pickle.h and torch_zip.h say
 * what is accepted; nothing in it is ever run). Data is read by pread where it is asked for: no
 * mapping, no whole files in memory, thread-safe; a file that shrinks gives IO. Everything is
 * checked: sizes, counts, numbers, names given twice, tensors that reach outside their file.
 *
 * A rank's tensors can also come from single files, without a folder and a recipe (`weft layout
 * detect`): several shards make one rank, and lines of "name TAB dtype TAB shape" as the rank files
 * of tests/golden/real have them (shape "4x16", "-" for none; further fields and lines that begin
 * with # or "alias" are passed over) give names and shapes without data.
 */
#ifndef WEFT_TOOLS_FILES_DUMP_H
#define WEFT_TOOLS_FILES_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "models/config.h"
#include "models/dtype.h"
#include "models/recipe.h"
#include "runtime/status.h"

enum {
    WF_DUMP_TENSORS_MAX = 1 << 20, /* of one rank */
    WF_DUMP_TEXT_MAX = 256 << 20,  /* bytes of lines, of a safetensors header, of a pickle */
    WF_DUMP_FILES_MAX = 4096,      /* of one rank, and ranks of one dump */
    WF_DUMP_NOTES_MAX = 20,        /* notes of one rank before the rest is only counted */
};

struct wf_dump_tensor {
    char *name;          /* owned by the rank */
    enum wf_dtype dtype; /* NONE: a type that this build does not know; it cannot be read */
    uint32_t ndim;
    uint64_t shape[WF_SHAPE_MAX];
    int64_t strides[WF_SHAPE_MAX]; /* elements, 0 or more; row-major in a safetensors file */
    uint64_t elements;
    uint32_t file;   /* of the rank; WF_NONE: only the name and the shape are known */
    uint64_t offset; /* byte of its first element in that file */
};

struct wf_dump_file {
    char *path; /* for messages; owned */
    int fd;     /* or -1 */
    uint64_t bytes;
    /* NULL: from fd. Otherwise it is no file, and this gives the bytes, which lie inside it. */
    enum wf_status (*read)(const struct wf_dump_file *file, void *buffer, size_t len,
                           uint64_t offset, struct wf_error *error);
    void *user;      /* for `read` */
    uint32_t number; /* for `read` */
};

struct wf_dump_rank {
    struct wf_dump_tensor *tensors; /* by name once it is sorted */
    struct wf_dump_file *files;
    uint32_t count, capacity, file_count;
};

struct wf_dump {
    char *folder;           /* as given; owned */
    char spec[WF_SPEC_MAX]; /* canonical */
    struct wf_recipe recipe;
    struct wf_model *model;     /* of the config alone; owned */
    struct wf_dump_rank *ranks; /* one for each rank of the recipe; owned */
    uint32_t rank_count;
};

struct wf_dump_options {
    const struct wf_family *const *families; /* beside the built-in ones; may be NULL */
    /* Called with a sentence for what was passed over (entries of a .pt that are no tensors); may
     * be NULL. */
    void (*note)(void *user, const char *sentence);
    void *user;
};

/* Opens every rank of a folder. `options` may be NULL. NOT_FOUND names the file that is absent; a
 * sentence names its file. Caller-owned *dump; end with wf_dump_close, also after a failure. */
enum wf_status wf_dump_open(const char *folder, const struct wf_dump_options *options,
                            struct wf_dump *dump, struct wf_error *error);
void wf_dump_close(struct wf_dump *dump);

/* Names in a folder of the files of ranks 0, 1, ...: rank_NN.safetensors, .pt or .tsv. Gives
 * *names_out (free each and the list) and *count_out: 0 where there are none. INVALID: a rank that
 * has two; NOT_FOUND: one that has none though a later one has. */
enum wf_status wf_dump_rank_files(const char *folder, char ***names_out, uint32_t *count_out,
                                  struct wf_error *error);
void wf_dump_rank_files_free(char **names, uint32_t count);

/* --- one rank -------------------------------------------------------------------------------- */

/* Adds the tensors of a file (safetensors, .pt or lines, told apart by the first bytes) to *rank:
 * zeroed memory, or what other shards gave. After the last one wf_dump_rank_sort. Free with
 * wf_dump_rank_fini, also after a failure. */
enum wf_status wf_dump_rank_add(struct wf_dump_rank *rank, const char *path,
                                const struct wf_dump_options *options, struct wf_error *error);
/* The same of names and shapes in memory: a whole file of lines, or the first bytes of a
 * safetensors file up to the end of its header; `file_bytes` is the size of the whole file. */
enum wf_status wf_dump_rank_parse(struct wf_dump_rank *rank, const char *text, size_t len,
                                  uint64_t file_bytes, struct wf_error *error);
/* Sorts the tensors by name; INVALID names one that is there twice. */
enum wf_status wf_dump_rank_sort(struct wf_dump_rank *rank, struct wf_error *error);
void wf_dump_rank_fini(struct wf_dump_rank *rank);

/* Borrowed; NULL when there is none. The rank is sorted. */
const struct wf_dump_tensor *wf_dump_rank_find(const struct wf_dump_rank *rank, const char *name);

/* Elements [first, first + count) of a tensor into `buffer` (count x bytes of its dtype), counted
 * in the order in which dense memory with strides `order` holds them (elements, one for each
 * dimension, a permutation of row-major without gaps, as struct wf_tensor's; NULL: row-major).
 * Reads that follow the tensor's own strides are one pread; others are gathered run by run through
 * a small window, so ask for many elements at once. INVALID if the tensor has no data, its dtype is
 * not known, or `order` is not dense; the range must lie inside the tensor. */
enum wf_status wf_dump_rank_read(const struct wf_dump_rank *rank,
                                 const struct wf_dump_tensor *tensor, const int64_t *order,
                                 uint64_t first, uint64_t count, void *buffer,
                                 struct wf_error *error);

#endif
