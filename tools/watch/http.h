/* http.h - HTTP for those who come to a server's port and do not speak frames.
 *
 * An actor on the server's loop takes connections that the wire hands over (WF_WIRE_FOREIGN) and
 * gives them to libmicrohttpd, whose epoll descriptor the loop watches: no thread, nothing blocks.
 * Bodies are made once and serve all requests of WF_HTTP_FRESH_NS. Every connection is closed after
 * its answer, and after WF_HTTP_LIFE_NS in any case. Loop thread.
 *
 * In a build without libmicrohttpd (feature `http`) wf_http_new gives NULL and the wire tells
 * strangers that nobody answers HTTP here.
 */
#ifndef WEFT_TOOLS_WATCH_HTTP_H
#define WEFT_TOOLS_WATCH_HTTP_H

#include "actors/messages.h"
#include "actors/token.h"
#include "runtime/loop.h"

enum {
    WF_HTTP_CONNECTIONS_MAX = 64,     /* at a time; more are closed */
    WF_HTTP_CONNECTION_BYTES = 16384, /* memory of one: its request must fit */
    WF_HTTP_RANKS_MAX = 4096,         /* listed in a status */
};
#define WF_HTTP_LIFE_NS UINT64_C(10000000000)
#define WF_HTTP_FRESH_NS UINT64_C(200000000)

struct wf_http;

struct wf_http_options {
    struct wf_token token;
    /* Fills what is shown; freed with wf_meta_server_status_fini. Called in a turn of the loop. */
    void (*status)(void *user, uint32_t ranks_max, struct wf_frame_status *status_out);
    void *user;
};

/* NULL: this build has no HTTP, or it cannot start, which is logged. */
struct wf_http *wf_http_new(struct wf_loop *loop, const struct wf_http_options *options);
/* Who takes WF_WIRE_FOREIGN; NULL of NULL. */
struct wf_actor *wf_http_actor(struct wf_http *http);
void wf_http_free(struct wf_http *http); /* NULL is fine */

#endif
