/* manifest_files.c - finds and reads the manifests that SPECs name. */
#include "tools/files/manifest_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/engines/engine.h"
#include "models/manifest_set.h"
#include "tools/files/io.h"

enum wf_status wf_manifest_file_path(const char *pattern, const char *beside, uint32_t rank,
                                     char path_out[WF_MANIFEST_PATH_MAX], struct wf_error *error)
{
    const char *slash = beside != NULL ? strrchr(beside, '/') : NULL;
    const char *mark = strstr(pattern, "%d"), *behind = mark != NULL ? mark + 2 : "";
    int folder = pattern[0] == '/' || slash == NULL ? 0 : (int)(slash - beside) + 1;
    int before = mark != NULL ? (int)(mark - pattern) : (int)strlen(pattern);
    char number[16] = "";
    if (mark != NULL) {
        snprintf(number, sizeof number, "%u", rank);
    }
    int wanted = snprintf(path_out, WF_MANIFEST_PATH_MAX, "%.*s%.*s%s%s", folder,
                          beside != NULL ? beside : "", before, pattern, number, behind);
    return wanted > 0 && wanted < WF_MANIFEST_PATH_MAX
               ? WF_OK
               : wf_error_set(error, WF_INVALID, "the path of %s has more than %d bytes", pattern,
                              WF_MANIFEST_PATH_MAX - 1);
}

enum wf_status wf_manifest_file_read(const char *path, const struct wf_model *model,
                                     struct wf_manifest *manifest_out, struct wf_error *error)
{
    char *bytes = NULL;
    size_t len = 0;
    *manifest_out = (struct wf_manifest){0};
    enum wf_status status =
        wf_file_read_all(AT_FDCWD, path, WF_MANIFEST_BYTES_MAX, &bytes, &len, error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_manifest_read((const uint8_t *)bytes, len, model, manifest_out, error);
    free(bytes);
    if (status != WF_OK) {
        wf_error_prefix(error, "manifest %s", path);
    }
    return status;
}

static enum wf_status load(const struct wf_recipe *recipe, const char *beside,
                           struct wf_model *model, struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (uint32_t rank = 0; rank < recipe->pp && status == WF_OK; rank++) {
        char path[WF_MANIFEST_PATH_MAX];
        struct wf_manifest manifest = {0};
        if (wf_model_manifest(model, recipe->layout, rank) != NULL) {
            continue; /* another group's */
        }
        status = wf_manifest_file_path(recipe->layout, beside, rank, path, error);
        if (status == WF_OK) {
            status = wf_manifest_file_read(path, model, &manifest, error);
        }
        if (status == WF_OK) {
            status = wf_model_add_manifest(model, recipe->layout, rank, manifest.layout, error);
            manifest.layout = NULL;
        }
        wf_manifest_fini(&manifest);
    }
    return status;
}

enum wf_status wf_manifest_files_load(const struct wf_recipe *const *recipes, uint32_t count,
                                      const char *beside, struct wf_model *model,
                                      struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; i < count && status == WF_OK; i++) {
        if (recipes[i]->engine == &wf_engine_manifest) {
            status = load(recipes[i], beside, model, error);
        }
    }
    return status;
}
