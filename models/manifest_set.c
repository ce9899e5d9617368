/* manifest_set.c - layouts by the name of their files and their rank. */
#include "models/manifest_set.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    char *files;
    struct wf_layout **ranks;
    uint32_t rank_count;
};

struct wf_manifest_set {
    struct entry *entries; /* one for each group at most */
    uint32_t count;
};

static struct entry *find(const struct wf_manifest_set *set, const char *files)
{
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        if (strcmp(set->entries[i].files, files) == 0) {
            return &set->entries[i];
        }
    }
    return NULL;
}

static struct entry *make(struct wf_model *model, const char *files)
{
    model->manifests = model->manifests ? model->manifests : calloc(1, sizeof *model->manifests);
    struct wf_manifest_set *set = model->manifests;
    struct entry *grown = set ? reallocarray(set->entries, set->count + 1, sizeof *grown) : NULL;
    char *name = strdup(files);
    if (grown == NULL || name == NULL) {
        free(name);
        if (grown != NULL) {
            set->entries = grown;
        }
        return NULL;
    }
    set->entries = grown;
    grown[set->count] = (struct entry){.files = name};
    return &grown[set->count++];
}

enum wf_status wf_model_add_manifest(struct wf_model *model, const char *files, uint32_t rank,
                                     struct wf_layout *layout, struct wf_error *error)
{
    struct entry *entry = find(model->manifests, files);
    entry = entry ? entry : make(model, files);
    WF_ASSERT(entry == NULL || rank == entry->rank_count);
    struct wf_layout **grown =
        entry ? reallocarray(entry->ranks, (size_t)rank + 1, sizeof *grown) : NULL;
    if (grown == NULL) {
        wf_layout_free(layout);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the layouts of manifests");
    }
    grown[entry->rank_count++] = layout;
    entry->ranks = grown;
    return WF_OK;
}

const struct wf_layout *wf_model_manifest(const struct wf_model *model, const char *files,
                                          uint32_t rank)
{
    const struct entry *entry = find(model->manifests, files);
    return entry != NULL && rank < entry->rank_count ? entry->ranks[rank] : NULL;
}

void wf_manifest_set_free(struct wf_manifest_set *set)
{
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        for (uint32_t rank = 0; rank < set->entries[i].rank_count; rank++) {
            wf_layout_free(set->entries[i].ranks[rank]);
        }
        free(set->entries[i].ranks);
        free(set->entries[i].files);
    }
    if (set != NULL) {
        free(set->entries);
    }
    free(set);
}
