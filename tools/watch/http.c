/* http.c - libmicrohttpd inside our loop: connections in, bodies out, an end for each. */
#include "tools/watch/http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "actors/meta_server.h"
#include "runtime/log.h"
#include "tools/watch/answer.h"
#include "tools/watch/metrics.h"
#include "tools/watch/page.h"
#include "tools/watch/status_json.h"

enum { TIMEOUT_S = 5 /* without a byte */ };

/* One connection, from when it was given to the library until that has closed it. */
struct visitor {
    struct visitor *next;
    struct wf_http *http;
    int fd; /* the library's */
    bool is_local, closed_by_us;
    uint64_t came_ns;
};

/* A body that is shared by the requests of a moment. */
struct body {
    struct MHD_Response *response; /* owns a reference; NULL: none yet */
    uint64_t made_ns;
};

struct wf_http {
    struct wf_actor actor;
    struct wf_loop *loop;
    struct wf_http_options options;
    struct MHD_Daemon *daemon;
    struct wf_watch watch; /* of its epoll descriptor */
    struct wf_timer timer;
    struct visitor *visitors;
    struct visitor coming; /* what is being given to the library now */
    struct body status, metrics;
    uint64_t refused;
};

static uint64_t now(const struct wf_http *http)
{
    return wf_loop_now_ns(http->loop);
}

/* --- bodies ----------------------------------------------------------------------------------- */
static struct MHD_Response *make_response(char *text, size_t len, bool gives, const char *type)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        len, text, gives ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (response == NULL) {
        if (gives) {
            free(text);
        }
        return NULL;
    }
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Connection", "close");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    return response;
}

static struct MHD_Response *fresh(struct wf_http *http, struct body *body, enum wf_page page)
{
    if (body->response != NULL && now(http) - body->made_ns < WF_HTTP_FRESH_NS) {
        return body->response;
    }
    struct wf_frame_status status;
    size_t len = 0;
    http->options.status(http->options.user, WF_HTTP_RANKS_MAX, &status);
    char *text =
        page == WF_PAGE_STATUS ? wf_status_json(&status, &len) : wf_metrics_text(&status, &len);
    wf_meta_server_status_fini(&status);
    if (body->response != NULL) {
        MHD_destroy_response(body->response);
    }
    body->made_ns = now(http);
    body->response = make_response(text, len, true,
                                   page == WF_PAGE_STATUS ? "application/json; charset=utf-8"
                                                          : "text/plain; version=0.0.4");
    return body->response;
}

static struct MHD_Response *index_page(void)
{
    struct MHD_Response *response =
        make_response((char *)wf_page_html, wf_page_html_len, false, "text/html; charset=utf-8");
    if (response != NULL) {
        MHD_add_response_header(response, "Content-Security-Policy",
                                "default-src 'none'; style-src 'unsafe-inline'; script-src "
                                "'unsafe-inline'; connect-src 'self'; img-src data:; "
                                "frame-ancestors 'none'; base-uri 'none'");
    }
    return response;
}

static struct MHD_Response *refusal(const struct wf_http_answer *answer)
{
    char *text = strdup(answer->text);
    struct MHD_Response *response =
        text == NULL ? NULL : make_response(text, strlen(text), true, "text/plain");
    if (response != NULL && answer->code == WF_HTTP_UNAUTHORIZED) {
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer realm=\"weft\"");
        MHD_add_response_header(response, "WWW-Authenticate", "Basic realm=\"weft\"");
    }
    if (response != NULL && answer->code == WF_HTTP_METHOD) {
        MHD_add_response_header(response, "Allow", "GET, HEAD");
    }
    return response;
}

/* --- requests: called by the library, inside our turns ---------------------------------------- */
static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_len, void **state)
{
    struct wf_http *http = user;
    (void)version;
    (void)data;
    if (*state == NULL) { /* the head alone has come */
        *state = http;
        return MHD_YES;
    }
    if (*data_len > 0) { /* a body is read away and not kept */
        *data_len = 0;
        return MHD_YES;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    const struct visitor *visitor = info == NULL ? NULL : info->socket_context;
    const struct wf_http_request request = {
        .method = method,
        .path = path,
        .host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host"),
        .authorization = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization"),
        .is_local = visitor != NULL && visitor->is_local};
    struct wf_http_answer answer;
    struct MHD_Response *response;
    wf_http_answer(&request, &http->options.token, &answer);
    bool shared = answer.page == WF_PAGE_STATUS || answer.page == WF_PAGE_METRICS;
    if (shared) {
        response = fresh(http, answer.page == WF_PAGE_STATUS ? &http->status : &http->metrics,
                         answer.page);
    } else {
        response = answer.page == WF_PAGE_INDEX ? index_page() : refusal(&answer);
    }
    if (response == NULL) {
        return MHD_NO;
    }
    enum MHD_Result queued = MHD_queue_response(connection, answer.code, response);
    if (!shared) {
        MHD_destroy_response(response);
    }
    return queued;
}

static void on_connection(void *user, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct wf_http *http = user;
    (void)connection;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        struct visitor *visitor = calloc(1, sizeof *visitor);
        if (visitor != NULL) {
            *visitor = http->coming;
            visitor->next = http->visitors;
            http->visitors = visitor;
        }
        *context = visitor;
        return;
    }
    for (struct visitor **link = &http->visitors; *link != NULL; link = &(*link)->next) {
        if (*link == *context) {
            *link = (*link)->next;
            free(*context);
            break;
        }
    }
    *context = NULL;
}

static void on_complaint(void *user, const char *format, va_list args)
{
    char text[300];
    struct wf_http *http = user;
    vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\r\n")] = '\0';
    wf_log(wf_loop_log(http->loop), WF_LOG_DEBUG, "http: %s", text);
}

/* --- the loop --------------------------------------------------------------------------------- */
/* Lets the library work, ends who had its time, and sets the clock for the next look. */
static void pump(struct wf_http *http)
{
    uint64_t next = WF_NEVER_NS, time = now(http);
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    for (struct visitor *v = http->visitors; v != NULL; v = v->next) {
        if (!v->closed_by_us && time - v->came_ns >= WF_HTTP_LIFE_NS) {
            v->closed_by_us = true;
            shutdown(v->fd, SHUT_RDWR); /* the library sees its end and closes it */
        }
        if (!v->closed_by_us && v->came_ns + WF_HTTP_LIFE_NS < next) {
            next = v->came_ns + WF_HTTP_LIFE_NS;
        }
    }
    MHD_run(http->daemon);
    if (MHD_get_timeout(http->daemon, &wait_ms) == MHD_YES &&
        time + wait_ms * UINT64_C(1000000) < next) {
        next = time + wait_ms * UINT64_C(1000000);
    }
    if (next != WF_NEVER_NS && http->visitors != NULL) {
        wf_timer_arm(http->loop, &http->timer, next);
    }
}

static void on_timer(struct wf_timer *timer)
{
    pump(WF_CONTAINER(timer, struct wf_http, timer));
}

static void on_ready(struct wf_watch *watch, unsigned events)
{
    (void)events;
    pump(WF_CONTAINER(watch, struct wf_http, watch));
}

/* --- connections ------------------------------------------------------------------------------ */
static bool is_local(const struct sockaddr *address)
{
    const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
    switch (address->sa_family) {
    case AF_UNIX:
        return true;
    case AF_INET:
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    case AF_INET6:
        return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
    default:
        return false;
    }
}

static uint32_t visitor_count(const struct wf_http *http)
{
    uint32_t count = 0;
    for (const struct visitor *v = http->visitors; v != NULL; v = v->next) {
        count++;
    }
    return count;
}

static void take(struct wf_http *http, struct wf_wire_msg *msg)
{
    union {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_storage storage;
    } peer = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t len = sizeof peer;
    if (visitor_count(http) >= WF_HTTP_CONNECTIONS_MAX ||
        getpeername(msg->fd, &peer.any, &len) != 0) {
        if (http->refused++ == 0) {
            wf_log(wf_loop_log(http->loop), WF_LOG_WARN,
                   "closed an HTTP connection of %s: %d are open; later ones are closed without a "
                   "line",
                   msg->text, WF_HTTP_CONNECTIONS_MAX);
        }
        return; /* release closes it */
    }
    http->coming = (struct visitor){
        .http = http, .fd = msg->fd, .is_local = is_local(&peer.any), .came_ns = now(http)};
    int fd = msg->fd;
    msg->fd = -1;
    MHD_add_connection(http->daemon, fd, &peer.any, len); /* closes it if it cannot */
    pump(http);
}

static enum wf_verdict on_message(struct wf_actor *self, struct wf_msg *msg)
{
    if (msg->kind == WF_WIRE_FOREIGN && !msg->returned) {
        take((struct wf_http *)self, (struct wf_wire_msg *)msg);
    }
    return WF_FREE;
}

/* --- life ------------------------------------------------------------------------------------- */
static bool start(struct wf_http *http)
{
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request,
        http, MHD_OPTION_EXTERNAL_LOGGER, on_complaint, http, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, http, MHD_OPTION_CONNECTION_LIMIT, (unsigned)WF_HTTP_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)WF_HTTP_CONNECTION_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_END);
    if (http->daemon == NULL) {
        return false;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    http->watch = (struct wf_watch){
        .fd = info == NULL ? -1 : info->epoll_fd, .events = WF_READABLE, .ready = on_ready};
    if (http->watch.fd < 0 || wf_watch_add(http->loop, &http->watch) != WF_OK) {
        MHD_stop_daemon(http->daemon);
        return false;
    }
    return true;
}

struct wf_http *wf_http_new(struct wf_loop *loop, const struct wf_http_options *options)
{
    struct wf_http *http = calloc(1, sizeof *http);
    WF_ASSERT(http != NULL);
    http->loop = loop;
    http->options = *options;
    http->timer = (struct wf_timer){.fire = on_timer, .name = "http"};
    wf_actor_init(&http->actor, loop, "http", on_message);
    if (!start(http)) {
        wf_log(wf_loop_log(loop), WF_LOG_WARN, "cannot answer HTTP: libmicrohttpd does not start");
        wf_actor_close(&http->actor);
        wf_actor_fini(&http->actor);
        free(http);
        return NULL;
    }
    return http;
}

struct wf_actor *wf_http_actor(struct wf_http *http)
{
    return http == NULL ? NULL : &http->actor;
}

void wf_http_free(struct wf_http *http)
{
    if (http == NULL) {
        return;
    }
    wf_actor_close(&http->actor);
    wf_watch_remove(http->loop, &http->watch);
    wf_timer_cancel(http->loop, &http->timer);
    MHD_stop_daemon(http->daemon);
    if (http->status.response != NULL) {
        MHD_destroy_response(http->status.response);
    }
    if (http->metrics.response != NULL) {
        MHD_destroy_response(http->metrics.response);
    }
    wf_actor_fini(&http->actor);
    wf_token_wipe(&http->options.token);
    free(http);
}
