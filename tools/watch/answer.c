/* answer.c - routes and permission, apart from the library that speaks HTTP, so that both are
 * fuzzed. */
#include "tools/watch/answer.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { HOST_NAME_BYTES = 256, SECRET_BYTES = 256 };

/* --- permission ------------------------------------------------------------------------------- */
/* Compared as 32 bytes in constant time; what is no token is none of ours. */
static bool is_secret(const char *text, const struct wf_token *token)
{
    struct wf_token shown, watching;
    struct wf_error error;
    if (strlen(text) >= SECRET_BYTES ||
        wf_token_parse(text, strlen(text), &shown, &error) != WF_OK) {
        return false;
    }
    wf_token_derive(token, WF_TOKEN_FOR_WATCHING, &watching);
    bool is_token = wf_token_equal(shown.bytes, token->bytes);
    bool is_derived = wf_token_equal(shown.bytes, watching.bytes);
    wf_token_wipe(&shown);
    wf_token_wipe(&watching);
    return is_token || is_derived;
}

static const char *after_scheme(const char *authorization, const char *scheme)
{
    size_t len = strlen(scheme);
    if (strncasecmp(authorization, scheme, len) != 0 || authorization[len] != ' ') {
        return NULL;
    }
    return authorization + len + strspn(authorization + len, " ");
}

bool wf_http_is_authorized(const char *authorization, const struct wf_token *token)
{
    char pair[SECRET_BYTES];
    if (!token->is_set) {
        return true; /* a job without a token has no secrets */
    }
    if (authorization == NULL) {
        return false;
    }
    const char *bearer = after_scheme(authorization, "Bearer");
    const char *basic = after_scheme(authorization, "Basic");
    if (bearer != NULL) {
        return is_secret(bearer, token);
    }
    bool good = basic != NULL && wf_token_base64(basic, pair, sizeof pair);
    const char *colon = good ? strchr(pair, ':') : NULL;
    bool is_it = colon != NULL && is_secret(colon + 1, token);
    explicit_bzero(pair, sizeof pair);
    return is_it;
}

bool wf_http_is_own_host(const char *host)
{
    char own[HOST_NAME_BYTES] = "";
    size_t len = strcspn(host, ":");
    gethostname(own, sizeof own - 1);
    return host[0] == '[' || /* an IPv6 number */
           strspn(host, "0123456789.") == len ||
           (len == 9 && strncasecmp(host, "localhost", 9) == 0) ||
           (len > 10 && strncasecmp(host + len - 10, ".localhost", 10) == 0) ||
           (len == strlen(own) && strncasecmp(host, own, len) == 0);
}

/* --- routes ----------------------------------------------------------------------------------- */
static void say(struct wf_http_answer *answer, unsigned code, const char *text)
{
    answer->code = code;
    answer->page = WF_PAGE_NONE;
    snprintf(answer->text, sizeof answer->text, "%s\n", text);
}

static enum wf_page page_of(const char *path)
{
    static const struct {
        const char *path;
        enum wf_page page;
    } pages[] = {
        {"/", WF_PAGE_INDEX}, {"/v1/status", WF_PAGE_STATUS}, {"/metrics", WF_PAGE_METRICS}};
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        if (strcmp(path, pages[i].path) == 0) {
            return pages[i].page;
        }
    }
    return WF_PAGE_NONE;
}

void wf_http_answer(const struct wf_http_request *request, const struct wf_token *token,
                    struct wf_http_answer *answer)
{
    *answer = (struct wf_http_answer){.code = WF_HTTP_OK};
    if (request->is_local && request->host != NULL && !wf_http_is_own_host(request->host)) {
        say(answer, WF_HTTP_FORBIDDEN,
            "this host is not known by that name: use localhost, its address or its host name");
    } else if (!request->is_local && !wf_http_is_authorized(request->authorization, token)) {
        say(answer, WF_HTTP_UNAUTHORIZED,
            "from another host, show the job's secret for watching: `weft status --secret` prints "
            "it where the token file is. Authorization: Bearer SECRET, or Basic with SECRET as the "
            "password");
    } else if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0) {
        say(answer, WF_HTTP_METHOD, "a job can be watched here and not changed: use GET");
    } else {
        answer->page = page_of(request->path);
        if (answer->page == WF_PAGE_NONE) {
            say(answer, WF_HTTP_NOT_FOUND,
                "here are / (a page), /v1/status (JSON) and /metrics (Prometheus)");
        }
    }
}
