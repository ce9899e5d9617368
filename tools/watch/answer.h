/* answer.h - what an HTTP request gets: which page, or why none. Pure but for the host's own name.
 *
 *   GET or HEAD  /            the page that watches a job
 *                /v1/status   JSON
 *                /metrics     Prometheus
 *
 * A request from this host (loopback, a unix socket) needs no proof, but its Host must be a name of
 * this host or a number: a page from elsewhere that a browser here has open cannot read the job
 * under a name of its own (DNS rebinding). Others show the job's token, or the secret derived from
 * it for watching (WF_TOKEN_FOR_WATCHING), as "Bearer SECRET" or as the password of "Basic".
 */
#ifndef WEFT_TOOLS_WATCH_ANSWER_H
#define WEFT_TOOLS_WATCH_ANSWER_H

#include <stdbool.h>

#include "actors/token.h"

enum {
    WF_HTTP_OK = 200,
    WF_HTTP_UNAUTHORIZED = 401,
    WF_HTTP_FORBIDDEN = 403,
    WF_HTTP_NOT_FOUND = 404,
    WF_HTTP_METHOD = 405
};

enum wf_page { WF_PAGE_NONE, WF_PAGE_INDEX, WF_PAGE_STATUS, WF_PAGE_METRICS };

struct wf_http_request {
    const char *method, *path;        /* the path without its query */
    const char *host, *authorization; /* header fields, or NULL */
    bool is_local;
};

struct wf_http_answer {
    unsigned code;
    enum wf_page page; /* OK: which */
    char text[400];    /* else: a sentence with its line end */
};

void wf_http_answer(const struct wf_http_request *request, const struct wf_token *token,
                    struct wf_http_answer *answer_out);

/* Does this Authorization field show the token, or what is derived from it? */
bool wf_http_is_authorized(const char *authorization, const struct wf_token *token);
/* A number, localhost, or this host's name, with or without a port. */
bool wf_http_is_own_host(const char *host);

#endif
