/* manifest_files.h - manifests as files (models/manifest.h): one for each rank of an engine. */
#ifndef WEFT_TOOLS_FILES_MANIFEST_FILES_H
#define WEFT_TOOLS_FILES_MANIFEST_FILES_H

#include <stdint.h>

#include "models/config.h"
#include "models/manifest.h"
#include "models/recipe.h"
#include "runtime/status.h"

enum { WF_MANIFEST_PATH_MAX = 1280 };

/* `pattern` with the rank for its %d, beside the file `beside` where it is not absolute (NULL: in
 * the working directory). INVALID: too long. */
enum wf_status wf_manifest_file_path(const char *pattern, const char *beside, uint32_t rank,
                                     char path_out[WF_MANIFEST_PATH_MAX], struct wf_error *error);
/* One file, as wf_manifest_read; the sentence begins with its path. */
enum wf_status wf_manifest_file_read(const char *path, const struct wf_model *model,
                                     struct wf_manifest *manifest_out, struct wf_error *error);
/* Reads the manifests of all recipes that have some into the job's model, which was just made. */
enum wf_status wf_manifest_files_load(const struct wf_recipe *const *recipes, uint32_t count,
                                      const char *beside, struct wf_model *model,
                                      struct wf_error *error);

#endif
