/* family_file.h - model families from users' YAML files, beside the built-in ones.
 *
 * A file has the fields of struct wf_family (models/families/family.h) under the same names; lists
 * where that has texts parted by '|' or spaces (model_types, refused, requires, renames). With
 * `extends: NAME` it begins as that family (built in, or of an earlier file): a size, stack or row
 * that is there already keeps what the file does not say, new ones come behind, `remove: true`
 * takes one out, and an engine's entry takes the place of the whole entry. `family` may be the name
 * of what it extends: then it takes its place. docs/add-a-model.md has an example.
 *
 * What a file gives passes wf_family_check, as the built-in tables do. An error names line and key.
 */
#ifndef WEFT_CONFIG_FAMILY_FILE_H
#define WEFT_CONFIG_FAMILY_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "models/families/family.h"
#include "runtime/status.h"

enum { WF_FAMILY_FILES_MAX = 16, WF_FAMILY_TEXT_MAX = 512 };

/* Zeroed memory holds none. */
struct wf_family_files {
    const struct wf_family *list[WF_FAMILY_FILES_MAX + 1]; /* NULL-terminated: for wf_model_parse */
    void *owned[WF_FAMILY_FILES_MAX];                      /* private */
    uint32_t count;
};

/* Adds the family of a file. IO: it cannot be read; the sentence begins with the path. */
enum wf_status wf_family_files_load(struct wf_family_files *files, const char *path,
                                    struct wf_error *error);
/* The same from memory: any bytes. */
enum wf_status wf_family_files_parse(struct wf_family_files *files, const char *text, size_t len,
                                     struct wf_error *error);
/* Models that were made with these families must be gone. */
void wf_family_files_fini(struct wf_family_files *files);
/* A family by name: of the files (NULL: none), else built in; NULL if there is none. */
const struct wf_family *wf_family_named(const struct wf_family_files *files, const char *name);

#endif
