/* spell.c - layouts of a recipe's ranks to files. */
#include "tools/layout/spell.h"

#include <stdlib.h>
#include <string.h>

#include "models/layout.h"
#include "tools/files/atomic.h"
#include "tools/files/manifest_files.h"

static enum wf_status spell(const struct wf_model *model, const struct wf_recipe *recipe,
                            uint32_t rank, const char *path, struct wf_spelt *spelt,
                            struct wf_error *error)
{
    struct wf_layout *layout = NULL;
    uint8_t *bytes = NULL;
    size_t len = 0;
    enum wf_status status = wf_layout_derive(model, recipe, rank, &layout, error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_manifest_write(model, layout, &bytes, &len, error);
    if (status == WF_OK) {
        status = wf_atomic_write_file(path, bytes, len, error);
        spelt->manifests++;
        spelt->tensors += layout->tensor_count;
        spelt->bytes += len;
        free(bytes);
    }
    wf_layout_free(layout);
    return status;
}

enum wf_status wf_layout_spell(const struct wf_model *model, const struct wf_recipe *recipe,
                               uint32_t first, uint32_t end, const char *pattern,
                               struct wf_spelt *spelt_out, struct wf_error *error)
{
    struct wf_spelt spelt = {0};
    enum wf_status status = WF_OK;
    if (end - first > 1 && strstr(pattern, "%d") == NULL) {
        return wf_error_set(error, WF_INVALID,
                            "%s: expected %%d in it, for each of %u ranks has a manifest of its "
                            "own; or say which with --rank",
                            pattern, end - first);
    }
    for (uint32_t rank = first; rank < end && status == WF_OK; rank++) {
        char path[WF_MANIFEST_PATH_MAX];
        status = wf_manifest_file_path(pattern, NULL, rank, path, error);
        status = status == WF_OK ? spell(model, recipe, rank, path, &spelt, error) : status;
    }
    if (status == WF_OK) {
        *spelt_out = spelt;
    }
    return status;
}
