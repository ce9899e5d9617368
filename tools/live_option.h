/* live_option.h - the option --against-live of `weft compare`: from what its user gave to an
 * observer of a running job. */
#ifndef WEFT_TOOLS_LIVE_OPTION_H
#define WEFT_TOOLS_LIVE_OPTION_H

#include "config/family_file.h"
#include "tools/compare/side.h"
#include "tools/run/hold.h"
#include "tools/run/transports.h"
#include "tools/target.h"

struct wf_live_request {
    const char *where;      /* SERVER or JOB.yaml, then perhaps /train, /engine:N or /infer:R */
    const char *token_file; /* or NULL */
    const char *model;      /* a config or a folder, or NULL: the job file's, else side A's */
    uint64_t timeout_ns;
};

struct wf_live_session {
    struct wf_target target;
    struct wf_loop *loop;
    struct wf_env *env;
    struct wf_hold hold; /* as "compare" */
    struct wf_run_transports transports;
    struct wf_model *config;  /* or NULL */
    struct wf_side_live side; /* for wf_compare_options.live */
    char host[WF_HOST_MAX];
};

/* Connects to the server. Adds the families of a job file to `families`. *session is zeroed; end
 * with wf_live_session_close, also after a failure, when the sides are closed. *usage_out: true
 * where the command line or the job file is wrong. */
enum wf_status wf_live_session_open(const struct wf_live_request *request,
                                    struct wf_family_files *families,
                                    struct wf_live_session *session, bool *usage_out,
                                    struct wf_error *error);
void wf_live_session_close(struct wf_live_session *session);

#endif
