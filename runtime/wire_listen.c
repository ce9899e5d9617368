/* wire_listen.c - listening sockets: binding, stale files, accepting without spinning. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/log.h"
#include "runtime/wire.h"

enum {
    WILDCARD_TRIES = 16,
    KEEPALIVE_IDLE_S = 30, /* middle boxes forget silent connections */
    KEEPALIVE_INTERVAL_S = 10,
    KEEPALIVE_PROBES = 6,
};

/* --- options and peers -------------------------------------------------------------------------
 */
void wire_socket_tune(int fd, bool is_unix)
{
    if (is_unix) {
        return;
    }
    /* What fails here costs speed, not correctness. */
    const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
    }
}

static bool peer_credentials(int fd, struct ucred *credentials)
{
    socklen_t len = sizeof *credentials;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, credentials, &len) == 0;
}

bool wire_socket_may_talk(int fd)
{
    struct ucred peer;
    uid_t self = geteuid();
    return peer_credentials(fd, &peer) && (peer.uid == self || peer.uid == 0);
}

void wire_socket_peer(int fd, char out[WF_ADDRESS_MAX])
{
    struct wf_wire_target peer = {.len = sizeof peer.storage};
    struct ucred credentials;
    if (getpeername(fd, &peer.any, &peer.len) != 0) {
        snprintf(out, WF_ADDRESS_MAX, "a peer that is gone");
    } else if (peer.any.sa_family == AF_UNIX && peer_credentials(fd, &credentials)) {
        snprintf(out, WF_ADDRESS_MAX, "unix:pid %d uid %u", (int)credentials.pid,
                 (unsigned)credentials.uid);
    } else {
        wf_wire_address_format(&peer.any, peer.len, out);
    }
}

/* --- accepting ---------------------------------------------------------------------------------
 */
static void accept_again(struct wf_timer *timer)
{
    struct wire_listener *listener = WF_CONTAINER(timer, struct wire_listener, timer);
    wf_watch_modify(listener->wire->loop, &listener->watch, WF_READABLE);
}

/* Descriptors or memory ran out. The queue of the kernel keeps who waits; asking again at once
 * would only spin. */
static void accept_pause(struct wire_listener *listener, const char *why)
{
    struct wf_loop *loop = listener->wire->loop;
    listener->timer.fire = accept_again;
    listener->timer.name = "accepting again";
    wf_timer_arm(loop, &listener->timer, wf_loop_now_ns(loop) + WIRE_ACCEPT_PAUSE_NS);
    wf_watch_modify(loop, &listener->watch, 0);
    if (!listener->said_full) {
        listener->said_full = true;
        wf_log(wf_loop_log(loop), WF_LOG_WARN,
               "cannot accept more connections: %s; those who come wait (raise the limit of open "
               "files)",
               why);
    }
}

/* --- strangers ---------------------------------------------------------------------------------
 */
void wire_stranger_leave(struct wire_conn *conn)
{
    struct wire *wire = conn->wire;
    if (!conn->stranger) {
        return;
    }
    *(conn->older != NULL ? &conn->older->newer : &wire->oldest_stranger) = conn->newer;
    *(conn->newer != NULL ? &conn->newer->older : &wire->newest_stranger) = conn->older;
    conn->stranger = false;
    wire->stranger_count--;
}

static void stranger_come(struct wire_conn *conn)
{
    struct wire *wire = conn->wire;
    conn->stranger = true;
    conn->accepted_ns = wf_loop_now_ns(wire->loop);
    conn->older = wire->newest_stranger;
    *(conn->older != NULL ? &conn->older->newer : &wire->oldest_stranger) = conn;
    wire->newest_stranger = conn;
    wire->stranger_count++;
}

/* Whoever means well has said so long before it is the oldest. False: nobody had its time yet. */
static bool stranger_give_way(struct wire *wire)
{
    struct wire_conn *oldest = wire->oldest_stranger;
    if (oldest == NULL || wf_loop_now_ns(wire->loop) < oldest->accepted_ns + WF_STRANGER_GRACE_NS) {
        return false;
    }
    if (oldest->state == WIRE_OPEN) {
        wire_conn_end(oldest, WF_NO_RESOURCE,
                      "gave way to others: too many connections that have not shown that they "
                      "belong here");
    } else {
        wire_conn_free(oldest);
    }
    return true;
}

void wire_trust(struct wire *wire, uint64_t id)
{
    struct wire_conn *conn = wire_conn_find(wire, id);
    if (conn != NULL && conn->stranger && conn->state == WIRE_OPEN) {
        wire_stranger_leave(conn);
        wf_timer_cancel(wire->loop, &conn->timer);
        if (conn->header_len > 0) {
            wire_conn_deadline(conn, wire->frame_timeout_ns, "half a frame");
        }
    }
}

void wire_guard(struct wire *wire, uint64_t id, struct wf_actor *foreign)
{
    struct wire_slot *slot = wire_slot_find(wire, id);
    if (slot != NULL && slot->is_listener) {
        struct wire_listener *listener = slot->object;
        listener->guarded = true;
        listener->foreign = foreign;
    }
}

bool wire_foreign_give(struct wire_conn *conn)
{
    struct wire_slot *slot = wire_slot_find(conn->wire, conn->listener);
    struct wf_actor *taker = slot == NULL ? NULL : ((struct wire_listener *)slot->object)->foreign;
    if (taker == NULL) {
        return false;
    }
    struct wf_wire_msg *given = conn->opened_msg;
    conn->opened_msg = NULL;
    given->msg.kind = WF_WIRE_FOREIGN;
    given->listener = conn->listener;
    char peer[WF_ADDRESS_MAX];
    wire_socket_peer(conn->watch.fd, peer);
    snprintf(given->text, sizeof given->text, "%.*s", (int)sizeof given->text - 1, peer);
    wf_watch_remove(conn->wire->loop, &conn->watch);
    conn->watched = false;
    given->fd = conn->watch.fd;
    conn->watch.fd = -1;
    wire_conn_free(conn);
    wf_send(taker, &given->msg);
    return true;
}

static void accepted(struct wire_listener *listener, int fd)
{
    struct wire *wire = listener->wire;
    struct wire_conn *conn = NULL;
    if (!listener->is_unix || wire_socket_may_talk(fd)) {
        conn = wire_conn_new(wire, listener->owner, WIRE_GREETING);
    }
    if (conn == NULL) {
        close(fd);
        return;
    }
    conn->is_unix = listener->is_unix;
    conn->listener = listener->id;
    wire_socket_tune(fd, listener->is_unix);
    if (wire_conn_watch(conn, fd) != WF_OK) {
        wire_conn_free(conn);
        return;
    }
    if (listener->guarded) {
        stranger_come(conn);
        wire_conn_deadline(conn, WF_STRANGER_NS, "a stranger's proof");
    } else {
        wire_conn_deadline(conn, wire->frame_timeout_ns, "a stranger's first frame");
    }
}

static void listener_ready(struct wf_watch *watch, unsigned events)
{
    (void)events;
    struct wire_listener *listener = (struct wire_listener *)watch;
    struct wire *wire = listener->wire;
    for (int i = 0; i < WIRE_ACCEPTS_PER_TURN; i++) {
        if (wire->stranger_count >= wire->strangers_max && listener->guarded &&
            !stranger_give_way(wire)) {
            accept_pause(listener, "too many have come at once");
            return;
        }
        int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            listener->said_full = false;
            accepted(listener, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            int number = errno;
            if (!stranger_give_way(wire)) {
                accept_pause(listener, strerror(number));
                return;
            }
        } else if (errno == EAGAIN || errno == EINVAL || errno == EBADF) {
            return;
        } /* else: one that was already broken; the next may not be */
    }
}

/* --- binding -----------------------------------------------------------------------------------
 */
/* A socket file that nobody listens on, left by a process that died. */
static bool is_stale(const struct wf_wire_target *target)
{
    struct stat info;
    if (stat(target->un.sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool stale = fd >= 0 && connect(fd, &target->any, target->len) != 0 && errno == ECONNREFUSED;
    if (fd >= 0) {
        close(fd);
    }
    return stale;
}

static int bind_target(int fd, const struct wf_wire_address *address,
                       const struct wf_wire_target *target)
{
    int on = 1;
    if (!address->is_unix) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    }
    int result = bind(fd, &target->any, target->len);
    if (result != 0 && errno == EADDRINUSE && address->is_unix && !address->is_abstract) {
        if (is_stale(target) && unlink(target->un.sun_path) == 0) {
            return bind(fd, &target->any, target->len);
        }
        errno = EADDRINUSE;
    }
    return result;
}

/* Puts something unlikely where the '*' was. */
static void wildcard_fill(struct wire *wire, const struct wf_wire_address *pattern,
                          struct wf_wire_address *out)
{
    *out = *pattern;
    uint64_t number = wire->env->ops->choose(wire->env, UINT64_MAX);
    size_t len = strlen(out->path);
    snprintf(out->path + len, sizeof out->path - len, "%014llx", (unsigned long long)(number >> 8));
}

static enum wf_status bind_failed(const char *text, struct wf_error *error)
{
    int number = errno;
    if (number == EADDRINUSE) {
        return wf_error_set(error, WF_NO_RESOURCE,
                            "cannot listen on %s: it is in use by another process; end that one "
                            "or choose another address",
                            text);
    }
    enum wf_status status =
        number == EMFILE || number == ENFILE || number == ENOBUFS ? WF_NO_RESOURCE : WF_IO;
    return wf_error_set(error, status, "cannot listen on %s: %s%s", text, strerror(number),
                        wf_errno_advice(number));
}

/* Gives a bound and listening socket. */
static enum wf_status bind_address(struct wire *wire, const struct wf_wire_address *pattern,
                                   const char *text, struct wf_wire_target *bound, int *fd_out,
                                   struct wf_error *error)
{
    for (int tries = 0;; tries++) {
        struct wf_wire_address address = *pattern;
        if (pattern->is_wildcard) {
            wildcard_fill(wire, pattern, &address);
        }
        struct wf_wire_targets targets;
        if (wf_wire_address_inline(&address, true, &targets) != WF_OK) {
            return wf_error_set(error, WF_INVALID,
                                "cannot listen on %s: expected a numeric address, localhost or *, "
                                "found the name \"%s\"",
                                text, address.host);
        }
        *bound = targets.target[0];
        int fd = socket(bound->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd >= 0 && bind_target(fd, &address, bound) == 0 && listen(fd, WIRE_BACKLOG) == 0) {
            *fd_out = fd;
            return WF_OK;
        }
        enum wf_status status = bind_failed(text, error);
        bool again = errno == EADDRINUSE && pattern->is_wildcard && tries < WILDCARD_TRIES;
        if (fd >= 0) {
            close(fd);
        }
        if (!again) {
            return status;
        }
    }
}

/* --- listeners ---------------------------------------------------------------------------------
 */
void wire_listener_free(struct wire_listener *listener)
{
    struct wire *wire = listener->wire;
    struct stat info;
    wf_timer_cancel(wire->loop, &listener->timer);
    wf_watch_remove(wire->loop, &listener->watch);
    close(listener->watch.fd);
    /* Only its own file: somebody may have replaced it. */
    if (listener->path[0] != '\0' && lstat(listener->path, &info) == 0 &&
        info.st_dev == listener->device && info.st_ino == listener->inode) {
        unlink(listener->path);
    }
    wire_slot_drop(wire, listener->id);
    wire->listener_count--;
    wire_listener_forget(wire, listener->id);
    free(listener);
}

static void remember_path(struct wire_listener *listener, const struct wf_wire_address *address,
                          const struct wf_wire_target *bound)
{
    struct stat info;
    if (address->is_unix && !address->is_abstract && lstat(bound->un.sun_path, &info) == 0) {
        snprintf(listener->path, sizeof listener->path, "%s", bound->un.sun_path);
        listener->device = info.st_dev;
        listener->inode = info.st_ino;
    }
}

enum wf_status wire_listen(struct wire *wire, struct wf_actor *owner, const char *text,
                           char bound_out[WF_ADDRESS_MAX], uint64_t *listener_out,
                           struct wf_error *error)
{
    struct wf_wire_address address;
    struct wf_wire_target bound;
    int fd = -1;
    enum wf_status status = wf_wire_address_parse(text, &address, error);
    if (status == WF_OK && wire->listener_count >= WIRE_LISTENERS_MAX) {
        status = wf_error_set(error, WF_NO_RESOURCE, "more than %d listeners in one env",
                              WIRE_LISTENERS_MAX);
    }
    if (status == WF_OK) {
        status = bind_address(wire, &address, text, &bound, &fd, error);
    }
    if (status != WF_OK) {
        return status;
    }
    struct wire_listener *listener = calloc(1, sizeof *listener);
    uint64_t id = listener == NULL ? 0 : wire_slot_take(wire, listener, true);
    if (id != 0) {
        *listener = (struct wire_listener){
            .wire = wire, .owner = owner, .id = id, .is_unix = address.is_unix};
        listener->watch =
            (struct wf_watch){.fd = fd, .events = WF_READABLE, .ready = listener_ready};
        status = wf_watch_add(wire->loop, &listener->watch);
    }
    if (id == 0 || status != WF_OK) {
        wire_slot_drop(wire, id);
        free(listener);
        close(fd);
        return wf_error_set(error, WF_NO_RESOURCE, "no resources to listen on %s", text);
    }
    wire->listener_count++;
    remember_path(listener, &address, &bound);
    bound.len = sizeof bound.storage;
    getsockname(fd, &bound.any, &bound.len); /* cannot fail on a bound socket */
    wf_wire_address_format(&bound.any, bound.len, bound_out);
    *listener_out = id;
    return WF_OK;
}
