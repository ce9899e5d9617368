/* job_files.c - the keys of a job file that say where versions lie, and what fills read from. */
#include <stdio.h>
#include <string.h>

#include "config/job_raw.h"

enum { KEEP_DEFAULT = 2, KEEP_MAX = 1000 };

const cyaml_schema_field_t wf_job_files_fields[] = {
    CYAML_FIELD_STRING_PTR("folder", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct raw_files,
                           folder, 1, WF_PATH_MAX - 1),
    CYAML_FIELD_UINT_PTR("keep", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct raw_files, keep),
    CYAML_FIELD_UINT_PTR("every", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct raw_files,
                         every),
    CYAML_FIELD_END};

enum wf_status wf_job_take_files(const struct raw_files *raw, struct wf_job_file *job,
                                 struct wf_error *error)
{
    job->files.keep = KEEP_DEFAULT;
    job->files.every = 1;
    if (raw == NULL) {
        return WF_OK;
    }
    if (raw->folder == NULL) {
        return wf_error_set(error, WF_INVALID,
                            "files.folder is missing: say where versions lie, or leave files out");
    }
    if (raw->keep != NULL && (*raw->keep < 1 || *raw->keep > KEEP_MAX)) {
        return wf_error_set(error, WF_INVALID, "files.keep: expected 1 to %d, found %llu", KEEP_MAX,
                            (unsigned long long)*raw->keep);
    }
    if (raw->every != NULL && *raw->every == 0) {
        return wf_error_set(error, WF_INVALID, "files.every: expected 1 or more, found 0");
    }
    job->files.keep = raw->keep != NULL ? (uint32_t)*raw->keep : KEEP_DEFAULT;
    job->files.every = raw->every != NULL ? *raw->every : 1;
    return wf_job_take_path("files.folder", job->path, raw->folder, job->files.folder, error);
}

static const struct {
    const char *word;
    uint32_t bit;
} sources[] = {{"train", WF_FILL_TRAINER}, {"engine", WF_FILL_REPLICA}, {"folder", WF_FILL_STORE}};

static uint32_t source_of(const char *word, size_t len)
{
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        if (strlen(sources[i].word) == len && memcmp(sources[i].word, word, len) == 0) {
            return sources[i].bit;
        }
    }
    return 0;
}

enum wf_status wf_job_take_fill(const char *text, struct wf_job_file *job, struct wf_error *error)
{
    uint32_t all = WF_FILL_ANY | (job->files.folder[0] != '\0' ? (uint32_t)WF_FILL_STORE : 0);
    if (text == NULL || strcmp(text, "true") == 0) {
        job->policy.fill = all;
        return WF_OK;
    }
    if (strcmp(text, "false") == 0) {
        job->policy.fill = 0;
        return WF_OK;
    }
    job->policy.fill = 0;
    for (const char *at = text; at != NULL;) {
        at += strspn(at, " ");
        size_t len = strcspn(at, ", ");
        uint32_t bit = source_of(at, len);
        at += len;
        at += strspn(at, " ");
        if (bit == 0 || (job->policy.fill & bit) != 0 || (*at != ',' && *at != '\0')) {
            return wf_error_set(error, WF_INVALID,
                                "policy.fill: expected true, false, or some of train, engine and "
                                "folder, parted by commas, each once, found \"%s\"",
                                text);
        }
        job->policy.fill |= bit;
        at = *at == ',' ? at + 1 : NULL;
    }
    if ((job->policy.fill & ~all) != 0) {
        return wf_error_set(error, WF_INVALID,
                            "policy.fill: folder needs files.folder, which says where versions "
                            "lie");
    }
    return WF_OK;
}
