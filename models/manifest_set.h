/* manifest_set.h - the layouts that a job's ranks have by manifests, kept with the job's model.
 *
 * A SPEC "manifest:files=PATTERN,ranks=N" says where they lie; whoever makes the job's model reads
 * them (tools/files/manifest_files.h) and adds them before anything is derived. From then on the
 * model is read-only, and wf_layout_derive gives them as it gives every layout.
 *
 * Pure. Not thread-safe while it is added to.
 */
#ifndef WEFT_MODELS_MANIFEST_SET_H
#define WEFT_MODELS_MANIFEST_SET_H

#include <stdint.h>

#include "models/config.h"
#include "models/layout.h"
#include "runtime/status.h"

struct wf_manifest_set;

/* The layout of rank `rank` (in its engine) of groups with this `files`. Takes `layout`, also where
 * it fails. Of one `files` ranks are added as 0, 1, 2, ... */
enum wf_status wf_model_add_manifest(struct wf_model *model, const char *files, uint32_t rank,
                                     struct wf_layout *layout, struct wf_error *error);
/* Borrowed; NULL: there is none. */
const struct wf_layout *wf_model_manifest(const struct wf_model *model, const char *files,
                                          uint32_t rank);
/* For wf_model_free. */
void wf_manifest_set_free(struct wf_manifest_set *set);

#endif
