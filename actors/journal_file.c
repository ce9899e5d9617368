/* journal_file.c - opening, appending to and compacting the journal's file. */
#include "actors/journal_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "journal"
#define DAMAGED_NAME "journal.damaged"

struct wf_journal_file {
    struct wf_env *env;
    struct wf_folder *folder;
    struct wf_journal_state state;
    size_t bytes, compacted_bytes;
    bool failed; /* what is on the disk is not known any more */
};

static enum wf_status compact(struct wf_journal_file *file, struct wf_error *error)
{
    uint8_t *bytes = NULL;
    size_t len = 0;
    wf_journal_encode_state(&file->state, &bytes, &len);
    enum wf_status status =
        file->env->ops->file_replace(file->env, file->folder, FILE_NAME, bytes, len, error);
    free(bytes);
    file->bytes = file->compacted_bytes = len;
    return status;
}

static enum wf_status put_aside(struct wf_journal_file *file, const uint8_t *bytes, size_t len,
                                struct wf_error *error)
{
    wf_journal_state_fini(&file->state);
    return file->env->ops->file_replace(file->env, file->folder, DAMAGED_NAME, bytes, len, error);
}

static enum wf_status load(struct wf_journal_file *file, const char *path, const char *job,
                           bool recover, struct wf_error *error)
{
    uint8_t *bytes = NULL;
    size_t len = 0, good = 0;
    enum wf_status status =
        file->env->ops->file_read(file->env, file->folder, FILE_NAME, &bytes, &len, error);
    if (status != WF_OK && status != WF_NOT_FOUND) {
        return status;
    }
    struct wf_error bad = {0};
    status = wf_journal_read(bytes, len, &file->state, &good, &bad);
    if (status == WF_INVALID && recover) {
        status = put_aside(file, bytes, len, error);
    } else if (status == WF_INVALID) {
        status = wf_error_set(error, status,
                              "%.300s/" FILE_NAME ": %.300s. With --recover the server keeps this "
                              "file as " DAMAGED_NAME " and rebuilds the journal from the ranks",
                              path, bad.text);
    }
    free(bytes);
    if (status == WF_OK && file->state.job[0] != '\0' && strcmp(file->state.job, job) != 0) {
        status = wf_error_set(error, WF_REFUSED,
                              "the journal in %.300s is of job \"%s\", not \"%s\": give each job "
                              "its own folder",
                              path, file->state.job, job);
    }
    snprintf(file->state.job, sizeof file->state.job, "%s", job);
    return status;
}

enum wf_status wf_journal_file_open(struct wf_env *env, const char *path, const char *job,
                                    bool recover, struct wf_journal_file **file_out,
                                    struct wf_error *error)
{
    struct wf_journal_file *file = calloc(1, sizeof *file);
    WF_ASSERT(file != NULL);
    file->env = env;
    enum wf_status status = env->ops->folder_open(env, path, &file->folder, error);
    if (status == WF_OK) {
        status = load(file, path, job, recover, error);
    }
    if (status == WF_OK) {
        status = compact(file, error);
    }
    if (status != WF_OK) {
        wf_journal_file_close(file);
        return status;
    }
    *file_out = file;
    return WF_OK;
}

const struct wf_journal_state *wf_journal_file_state(const struct wf_journal_file *file)
{
    return &file->state;
}

enum wf_status wf_journal_file_append(struct wf_journal_file *file,
                                      const struct wf_journal_record *record,
                                      struct wf_error *error)
{
    if (file->failed) {
        return wf_error_set(error, WF_IO,
                            "an earlier write to the journal failed: start "
                            "the server again when the disk is well");
    }
    uint8_t *bytes = NULL;
    size_t len = 0;
    wf_journal_apply(&file->state, record);
    wf_journal_encode(record, &bytes, &len);
    bool large = file->bytes + len > WF_JOURNAL_COMPACT_BYTES &&
                 file->bytes + len > 2 * file->compacted_bytes;
    enum wf_status status =
        large ? compact(file, error)
              : file->env->ops->file_append(file->env, file->folder, FILE_NAME, bytes, len, error);
    file->bytes += large ? 0 : len;
    file->failed = status != WF_OK;
    free(bytes);
    return status;
}

void wf_journal_file_close(struct wf_journal_file *file)
{
    if (file != NULL) {
        if (file->folder != NULL) {
            file->env->ops->folder_close(file->env, file->folder);
        }
        wf_journal_state_fini(&file->state);
        free(file);
    }
}
