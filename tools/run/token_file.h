/* token_file.h - where a job's token is kept on a host, and where its server can be found.
 *
 * A token file holds one token (actors/token.h), is its owner's alone (mode 0600), and is given to
 * every process of the job: by --token-file, the job file's server.token_file, or the variable
 * WEFT_TOKEN_FILE, in this order. Without any of them the processes that one user has on one host
 * share the file JOB.token in the run folder, which the first of them makes.
 *
 * Run folder: "run" in WEFT_CACHE, $XDG_RUNTIME_DIR/weft, XDG_CACHE_HOME/weft/run or
 * ~/.cache/weft/run, the first that is set; mode 0700;
 * /tmp/weft-run-UID where that cannot be made. Beside tokens it has a *note* of each server
 * that listens on this host, by which `weft status` finds it. Blocks on files; any thread.
 */
#ifndef WEFT_TOOLS_RUN_TOKEN_FILE_H
#define WEFT_TOOLS_RUN_TOKEN_FILE_H

#include "actors/token.h"
#include "config/job.h"
#include "runtime/env.h"

/* The run folder, made if need be. */
enum wf_status wf_run_folder(char folder[WF_PATH_MAX], struct wf_error *error);
/* The folder in it for what belongs to single processes, whose names have their numbers: one for
 * each kernel and process namespace, because a run folder may be shared (a home on NFS, mounted
 * into containers) and a number means somebody else there. */
enum wf_status wf_process_folder(char folder[WF_PATH_MAX], struct wf_error *error);
/* IO: it cannot be read; REFUSED: others can (the sentence has the chmod to run), or it is another
 * user's; INVALID: it holds no token. */
enum wf_status wf_token_load(const char *path, struct wf_token *token_out, struct wf_error *error);
/* The token of a process of `job`, and the file that has it: what `argument` (NULL: nothing), the
 * job's key or the environment says, else the run folder's, which is made with random bytes of
 * `env` if it is not there. `file` is the job file, or NULL. Without `env` (NULL) nothing is made,
 * and `job` may be "". INVALID: there is no token, and the sentence says how to give one. */
enum wf_status wf_token_of_job(const char *argument, const struct wf_job_file *file,
                               const char *job, struct wf_env *env, char path_out[WF_PATH_MAX],
                               struct wf_token *token_out, struct wf_error *error);

struct wf_server_note {
    char path[WF_PATH_MAX]; /* of the note itself, "" is none */
    char job[WF_JOB_NAME_MAX];
    char address[WF_ADDRESS_MAX];
};
/* Writes the note of this process's server and fills in its path. */
enum wf_status wf_server_note_write(struct wf_server_note *note, struct wf_error *error);
void wf_server_note_remove(const struct wf_server_note *note);
/* The note of the newest server that lives and has this address (NULL: any) and this job (NULL:
 * any). Notes of servers that are gone are removed. False: there is none. */
bool wf_server_note_find(const char *address, const char *job, struct wf_server_note *note_out);

#endif
