/* live_option.c - finds the job, its token, its model and this host's transports, and asks. */
#include "tools/live_option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/address.h"
#include "tools/files/checkpoint.h"
#include "tools/run/reach.h"
#include "tools/run/token_file.h"

enum { WORKERS = 2, TRANSIT_BYTES = 64 << 20 };

/* --- what --------------------------------------------------------------------------------------
 */

static bool take_number(const char *text, const char *word, uint32_t *number_out)
{
    size_t len = strlen(word);
    if (strncmp(text, word, len) != 0) {
        return false;
    }
    size_t digits = strspn(text + len, "0123456789");
    if (digits == 0 || digits > 5 || text[len + digits] != '\0') {
        return false;
    }
    *number_out = (uint32_t)strtoul(text + len, NULL, 10);
    return true;
}

/* What stands behind a job, or looks like an ending, can only be meant as one. A path of a socket
 * has slashes of its own. */
static bool is_ending(const char *before, const char *end)
{
    char address[WF_ADDRESS_MAX];
    struct wf_server_note note;
    return strncmp(end, "engine:", 7) == 0 || strncmp(end, "infer:", 6) == 0 ||
           wf_target_is_file(before) ||
           (wf_address_complete(before, address, NULL) == WF_OK &&
            (strncmp(address, "unix:", 5) != 0 || wf_server_note_find(address, NULL, &note)));
}

/* The end of `where`, if it says which ranks; *where_out is malloc'd. */
static enum wf_status split(const char *where, char **where_out, struct wf_side_live *side,
                            struct wf_error *error)
{
    char *copy = strdup(where), *slash = copy != NULL ? strrchr(copy, '/') : NULL;
    if (copy == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for an address");
    }
    enum wf_status status = WF_OK;
    if (slash != NULL) {
        *slash = '\0';
    }
    if (slash != NULL && strcmp(slash + 1, "train") == 0) {
        side->who = WF_LIVE_TRAIN;
    } else if (slash != NULL && take_number(slash + 1, "engine:", &side->number)) {
        side->who = WF_LIVE_ENGINE;
    } else if (slash != NULL && take_number(slash + 1, "infer:", &side->number)) {
        side->who = WF_LIVE_RANK;
    } else if (slash != NULL && is_ending(copy, slash + 1)) {
        status = wf_error_set(error, WF_INVALID,
                              "%s: expected %s with /engine:N, /infer:R (numbers from 0) or /train "
                              "behind it, or nothing (engine 0); found /%s",
                              where, copy[0] != '\0' ? copy : "a job", slash + 1);
    } else if (slash != NULL) {
        *slash = '/';
    }
    *where_out = copy;
    return status;
}

/* --- the job -----------------------------------------------------------------------------------
 */

static enum wf_status take_families(const struct wf_job_file *file,
                                    struct wf_family_files *families, struct wf_error *error)
{
    enum wf_status status = WF_OK;
    for (uint32_t i = 0; file != NULL && i < file->family_count && status == WF_OK; i++) {
        status = wf_family_files_load(families, file->families[i], error);
    }
    return status;
}

static enum wf_status find_job(const struct wf_live_request *request,
                               struct wf_family_files *families, struct wf_live_session *session,
                               struct wf_error *error)
{
    char *where = NULL, path[WF_PATH_MAX];
    enum wf_status status = split(request->where, &where, &session->side, error);
    if (status == WF_OK) {
        status = wf_target_find(where[0] != '\0' ? where : NULL, &session->target, error);
    }
    free(where);
    const struct wf_job_file *file = session->target.file;
    const char *model = request->model != NULL ? request->model : file != NULL ? file->model : NULL;
    status = status == WF_OK ? take_families(file, families, error) : status;
    if (status == WF_OK && model != NULL) {
        status = wf_checkpoint_model(model, families->list, &session->config, error);
    }
    return status == WF_OK ? wf_token_of_job(request->token_file, file, session->target.job, NULL,
                                             path, &session->target.token, error)
                           : status;
}

/* --- the observer -------------------------------------------------------------------------------
 */

static enum wf_status open_transports(struct wf_live_session *session, struct wf_error *error)
{
    struct wf_job_file *none = calloc(1, sizeof *none);
    if (none == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a job");
    }
    none->transport.transit_bytes = TRANSIT_BYTES;
    /* A train rank's: the faults of a job are its readers'. */
    const struct wf_run_transports_options options = {.side = WF_TRAIN,
                                                      .server = session->target.address,
                                                      .host = session->host,
                                                      .workers = WORKERS};
    enum wf_status status = wf_run_transports_open(
        session->loop, session->target.file != NULL ? session->target.file : none, &options,
        &session->transports, error);
    free(none);
    return status;
}

static enum wf_status observe(const struct wf_live_request *request,
                              struct wf_live_session *session, struct wf_error *error)
{
    struct wf_target *target = &session->target;
    const struct wf_live_options options = {.loop = session->loop,
                                            .address = target->address,
                                            .job = target->job,
                                            .token = &target->token,
                                            .host = session->host,
                                            .transports = session->transports.list,
                                            .transport_count = session->transports.count,
                                            .timeout_ns = request->timeout_ns};
    enum wf_status status = wf_live_open(&options, &session->side.live, error);
    if (status == WF_CONNECTION || status == WF_TIMED_OUT) {
        wf_error_prefix(error, "no server answers at %s (has the job ended?)", target->address);
    } else if (status != WF_OK) {
        wf_error_prefix(error, "%s", target->address);
    }
    return status;
}

enum wf_status wf_live_session_open(const struct wf_live_request *request,
                                    struct wf_family_files *families,
                                    struct wf_live_session *session, bool *usage_out,
                                    struct wf_error *error)
{
    enum wf_status status = find_job(request, families, session, error);
    *usage_out = status == WF_INVALID || status == WF_UNSUPPORTED;
    status = status == WF_OK ? wf_reach_host_name(NULL, session->host, error) : status;
    if (status == WF_OK) {
        status = wf_loop_new(&(struct wf_loop_options){.poller = WF_POLLER_EPOLL}, &session->loop,
                             error);
    }
    if (status == WF_OK) {
        const struct wf_env_real_options options = {.workers = WORKERS};
        status = wf_env_real_new(session->loop, &options, &session->env, error);
    }
    if (status == WF_OK) {
        wf_loop_set_env(session->loop, session->env);
        wf_hold_init(&session->hold, session->env, "compare");
        status = open_transports(session, error);
    }
    session->side.config = session->config;
    session->side.config_path = request->model;
    session->side.address = session->target.address;
    if (session->target.file != NULL) {
        session->side.beside = session->target.file->path;
        session->side.model = session->target.file->model;
        session->side.config_path = request->model != NULL ? request->model : session->side.model;
    }
    return status == WF_OK ? observe(request, session, error) : status;
}

void wf_live_session_close(struct wf_live_session *session)
{
    wf_live_free(session->side.live);
    wf_run_transports_close(&session->transports);
    wf_env_real_free(session->env);
    if (session->loop != NULL) {
        wf_loop_free(session->loop);
    }
    wf_model_free(session->config);
    wf_target_fini(&session->target);
}
