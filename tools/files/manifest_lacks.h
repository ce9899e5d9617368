/* manifest_lacks.h - what is likely wrong with a group's manifests and nobody else finds:
 * parameters that none of its ranks has, and a file behind the last rank's.
 *
 * Both may be meant (an engine without the layers of multi-token prediction), so they are told, not
 * refused: a matrix written under another one's name, and `ranks` left out, look the same.
 */
#ifndef WEFT_TOOLS_FILES_MANIFEST_LACKS_H
#define WEFT_TOOLS_FILES_MANIFEST_LACKS_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "models/config.h"
#include "models/recipe.h"

enum { WF_MANIFEST_LACKS_TEXT = 640 };

struct wf_manifest_lacks {
    const char *spec;       /* borrows */
    const char *first;      /* the first parameter that no rank has, or NULL; the model's */
    uint32_t count, params; /* how many no rank has; of how many */
    uint32_t ranks;         /* of one engine, as the SPEC says */
    bool next_file;         /* there is one for rank `ranks` too */
};

/* Of a group whose manifests are in the job's model; `beside` as for wf_manifest_files_load. False:
 * it has no manifests, or nothing is to be told. */
bool wf_manifest_lacks_find(const struct wf_model *model, const struct wf_recipe *recipe,
                            const char *spec, const char *beside,
                            struct wf_manifest_lacks *lacks_out);
/* One line, without its end. */
void wf_manifest_lacks_format(const struct wf_manifest_lacks *lacks,
                              char text_out[WF_MANIFEST_LACKS_TEXT]);
/* A list with `spec`, `lacks`, `of`, `first` and `next_file` of each. */
struct json_object *wf_manifest_lacks_json(const struct wf_manifest_lacks *lacks, uint32_t count);

#endif
