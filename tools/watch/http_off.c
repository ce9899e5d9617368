/* http_off.c - a build without libmicrohttpd: nobody takes those who speak HTTP. */
#include "tools/watch/http.h"

struct wf_http *wf_http_new(struct wf_loop *loop, const struct wf_http_options *options)
{
    (void)loop;
    (void)options;
    return NULL;
}

struct wf_actor *wf_http_actor(struct wf_http *http)
{
    (void)http;
    return NULL;
}

void wf_http_free(struct wf_http *http)
{
    (void)http;
}
