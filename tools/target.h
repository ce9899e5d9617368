/* target.h - which running job a command is about, found from what its user gave. */
#ifndef WEFT_TOOLS_TARGET_H
#define WEFT_TOOLS_TARGET_H

#include "actors/token.h"
#include "config/job.h"

struct wf_target {
    char address[WF_ADDRESS_MAX]; /* of the server, as this host reaches it */
    char job[WF_JOB_NAME_MAX];    /* "": not known */
    struct wf_job_file *file;     /* or NULL */
    struct wf_token token;        /* the caller's to fill in (tools/run/token_file.h) */
};

/* What is taken for a job file: a file, or what is called like one. */
bool wf_target_is_file(const char *text);
/* `text`: an address, a job file, or NULL: the server that started last on this host. `target` is
 * zeroed; end with wf_target_fini, also after a failure. INVALID, UNSUPPORTED: it makes no sense;
 * CONNECTION: no server of it runs here; IO. */
enum wf_status wf_target_find(const char *text, struct wf_target *target, struct wf_error *error);
void wf_target_fini(struct wf_target *target);

#endif
