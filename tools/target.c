/* target.c - an address, a job file or the notes of this host's servers: where a job's server is.
 */
#include "tools/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/address.h"
#include "tools/run/token_file.h"

/* Where the system picked a port or a name, the note of the server says which. */
static bool is_reachable(const char *listen)
{
    size_t len = strlen(listen);
    if (len < 2) {
        return false;
    }
    bool picked = (strncmp(listen, "tcp:", 4) == 0 && strcmp(listen + len - 2, ":0") == 0) ||
                  listen[len - 1] == '*';
    return !picked;
}

static enum wf_status find_by_note(const char *job, struct wf_target *target,
                                   struct wf_error *error)
{
    struct wf_server_note note;
    if (!wf_server_note_find(NULL, job, &note)) {
        return wf_error_set(error, WF_CONNECTION,
                            "no server of %s%s runs on this host for this user: the job has ended, "
                            "or its server is elsewhere; then give the ADDRESS that it printed",
                            job != NULL ? "job " : "any job", job != NULL ? job : "");
    }
    strcpy(target->address, note.address);
    strcpy(target->job, note.job);
    return WF_OK;
}

/* A server that listens everywhere is there on this host too. */
static void make_reachable(struct wf_target *target)
{
    static const char *const wild[] = {"tcp:*:", "tcp:0.0.0.0:", "tcp:[::]:"};
    for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
        size_t len = strlen(wild[i]);
        if (strncmp(target->address, wild[i], len) == 0) {
            char local[WF_ADDRESS_MAX];
            snprintf(local, sizeof local, "tcp:localhost:%.15s", target->address + len);
            memcpy(target->address, local, sizeof local);
        }
    }
}

static enum wf_status find_by_file(const char *path, struct wf_target *target,
                                   struct wf_error *error)
{
    target->file = calloc(1, sizeof *target->file);
    WF_ASSERT(target->file != NULL);
    enum wf_status status = wf_job_load(path, target->file, error);
    if (status != WF_OK) {
        return status;
    }
    const struct wf_job_file *job = target->file;
    strcpy(target->job, job->name);
    if (job->server.address[0] != '\0') {
        strcpy(target->address, job->server.address);
    } else if (is_reachable(job->server.listen)) {
        strcpy(target->address, job->server.listen);
    } else {
        return find_by_note(job->name, target, error);
    }
    return WF_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);
    return len > end_len && memcmp(text + len - end_len, end, end_len) == 0;
}

bool wf_target_is_file(const char *text)
{
    struct stat info;
    return ends_with(text, ".yaml") || ends_with(text, ".yml") ||
           (stat(text, &info) == 0 && S_ISREG(info.st_mode));
}

/* What is neither. A path is told nothing of how an address goes on. */
static enum wf_status refuse(const char *text, const char *address_error, struct wf_error *error)
{
    struct stat info;
    bool folder = stat(text, &info) == 0 && S_ISDIR(info.st_mode);
    if (!folder && strchr(text, ':') != NULL) {
        return wf_error_set(error, WF_INVALID, "\"%s\" is no job file, and no address: %s", text,
                            address_error);
    }
    return wf_error_set(error, WF_INVALID,
                        "\"%s\": expected a job file (docs/job-file.md) or the address of a job's "
                        "server (HOST:PORT, unix:PATH or unix:@NAME), found %s",
                        text, folder ? "a folder" : "no file of that name");
}

enum wf_status wf_target_find(const char *text, struct wf_target *target, struct wf_error *error)
{
    enum wf_status status;
    if (text == NULL) {
        status = find_by_note(NULL, target, error);
    } else if (wf_target_is_file(text)) {
        status = find_by_file(text, target, error);
    } else {
        struct wf_server_note note;
        struct wf_error why = {0};
        status = wf_address_complete(text, target->address, &why);
        if (status != WF_OK) {
            status = refuse(text, why.text, error);
        }
        if (status == WF_OK && wf_server_note_find(target->address, NULL, &note)) {
            strcpy(target->job, note.job);
        }
    }
    make_reachable(target);
    return status;
}

void wf_target_fini(struct wf_target *target)
{
    free(target->file);
    wf_token_wipe(&target->token);
    target->file = NULL;
}
