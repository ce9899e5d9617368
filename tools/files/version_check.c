/* version_check.c - looks at every byte of a version in its folder, for a person who wants to know.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/files/checkpoint.h"
#include "tools/files/hf_folder.h"
#include "tools/files/io.h"
#include "tools/files/version_folder.h"
#include "tools/files/version_manifest.h"
#include "tools/files/version_place.h"

enum { READ_BYTES = 1 << 20 };

enum wf_status wf_version_list(const char *place, struct wf_version **versions_out,
                               uint32_t *count_out, struct wf_error *error)
{
    int fd = -1;
    enum wf_status status = wf_folder_open(place, &fd, error);
    if (status == WF_OK) {
        status = wf_version_place_list(fd, versions_out, count_out, error);
        close(fd);
    }
    return status;
}

/* Whose it is, by its own word: what follows is checked against that, the config first, for it says
 * what else is to be there. */
static enum wf_status read_manifest(const char *folder, struct wf_version_info *info,
                                    struct wf_error *error)
{
    struct wf_version_manifest manifest = {0};
    int fd = -1;
    enum wf_status status = wf_folder_open(folder, &fd, error);
    if (status != WF_OK) {
        return status;
    }
    status = wf_version_manifest_read(fd, WF_VERSION_FILE, &manifest, error);
    for (uint32_t i = 0; status == WF_OK && i < manifest.file_count; i++) {
        if (strcmp(manifest.files[i].name, WF_HF_CONFIG) == 0) {
            status = wf_version_file_check(fd, &manifest.files[i], true, error);
        }
    }
    close(fd);
    if (manifest.file_count > 0) {
        memcpy(info->job, manifest.job, sizeof info->job);
        memcpy(info->label, manifest.label, sizeof info->label);
        info->files = manifest.file_count;
    }
    wf_version_manifest_fini(&manifest);
    return status;
}

static enum wf_status read_all(const struct wf_store *store, struct wf_stored *stored,
                               const struct wf_layout *layout, struct wf_error *error)
{
    struct wf_store_window window = {0};
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; status == WF_OK && i < layout->tensor_count; i++) {
        uint64_t bytes = layout->tensors[i].bytes;
        for (uint64_t at = 0; status == WF_OK && at < bytes; at += READ_BYTES) {
            const uint8_t *got = NULL;
            uint64_t len = bytes - at < READ_BYTES ? bytes - at : READ_BYTES;
            status = store->ops->read(stored, &window, i, at, len, &got, error);
        }
    }
    free(window.memory);
    return status;
}

static enum wf_status check_folder(const char *place, const char *folder,
                                   const struct wf_family *const *families, bool whole,
                                   struct wf_version_info *info, struct wf_error *error)
{
    struct wf_model *model = NULL;
    struct wf_recipe recipe;
    struct wf_layout *layout = NULL;
    struct wf_store *store = NULL;
    struct wf_stored *stored = NULL;
    enum wf_status status = read_manifest(folder, info, error);
    status = status != WF_OK ? status : wf_checkpoint_model(folder, families, &model, error);
    status = status != WF_OK ? status : wf_recipe_parse("hf:", model, &recipe, error);
    status = status != WF_OK ? status : wf_layout_derive(model, &recipe, 0, &layout, error);
    status = status != WF_OK ? status : wf_version_store_new(place, &store, error);
    if (status == WF_OK) {
        info->tensors = layout->tensor_count;
        info->bytes = layout->bytes;
        const struct wf_store_wanted wanted = {
            .job = info->job, .version = info->version, .layout = layout};
        status = store->ops->open(store, &wanted, &stored, error);
    }
    if (status == WF_OK && whole) {
        status = read_all(store, stored, layout, error);
    }
    if (stored != NULL) {
        store->ops->close(stored);
    }
    wf_version_store_free(store);
    wf_layout_free(layout);
    wf_model_free(model);
    return status;
}

enum wf_status wf_version_check(const char *place, struct wf_version version,
                                const struct wf_family *const *families, bool whole,
                                struct wf_version_info *info_out, struct wf_error *error)
{
    struct wf_version_info info = {.version = version};
    char name[WF_VERSION_TEXT], *folder = NULL;
    wf_version_format(version, name);
    if (asprintf(&folder, "%s/%s", place, name) < 0) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a path");
    }
    enum wf_status status = check_folder(place, folder, families, whole, &info, error);
    free(folder);
    *info_out = info;
    return status;
}
