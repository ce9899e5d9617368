/* wire_connect.c - reaching a peer: look-up of its name, its addresses one after the other. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/wire.h"

#define RETRY_MIN_NS UINT64_C(1000000) /* a full listen queue of a unix socket */
#define RETRY_MAX_NS UINT64_C(20000000)

struct wire_connect {
    struct wf_job job; /* first; the look-up */
    bool job_out;
    struct wire_connect *prev, *next; /* wire->resolving while the job is out */
    struct wire *wire;
    uint64_t conn;
    char text[WF_ADDRESS_MAX]; /* as given, for sentences */
    struct wf_wire_address address;
    struct wf_wire_targets targets;
    unsigned current;
    uint64_t give_up_ns;   /* when the current address has had its time */
    struct wf_error error; /* why the newest try failed */
};

static bool connect_next(struct wire_conn *conn);

static void resolve_work(struct wf_job *job)
{
    struct wire_connect *connect = (struct wire_connect *)job;
    wf_wire_address_resolve(&connect->address, &connect->targets, &connect->error);
}

static void resolve_start(struct wire_connect *connect)
{
    struct wire *wire = connect->wire;
    connect->job =
        (struct wf_job){.owner = &wire->actor, .work = resolve_work, .name = "look up a host name"};
    connect->job_out = true;
    connect->prev = NULL;
    connect->next = wire->resolving;
    if (connect->next != NULL) {
        connect->next->prev = connect;
    }
    wire->resolving = connect;
    wire->env->ops->job(wire->env, &connect->job);
}

static void resolve_unlink(struct wire_connect *connect)
{
    *(connect->prev != NULL ? &connect->prev->next : &connect->wire->resolving) = connect->next;
    if (connect->next != NULL) {
        connect->next->prev = connect->prev;
    }
    connect->job_out = false;
}

/* The wire's own actor: a look-up came back, perhaps to nobody. */
enum wf_verdict wire_connect_resolved(struct wf_actor *actor, struct wf_msg *msg)
{
    (void)actor;
    struct wire_connect *connect = (struct wire_connect *)msg;
    resolve_unlink(connect);
    struct wire_conn *conn = wire_conn_find(connect->wire, connect->conn);
    if (conn == NULL || conn->connect != connect) {
        free(connect);
    } else {
        connect_next(conn);
    }
    return WF_KEEP; /* it is freed by now, or part of what is not */
}

void wire_connect_free(struct wire_conn *conn)
{
    if (conn->connect != NULL && !conn->connect->job_out) {
        free(conn->connect);
    } /* else the job's return frees it */
    conn->connect = NULL;
}

void wire_connect_fini(struct wire *wire)
{
    for (struct wire_connect *connect; (connect = wire->resolving) != NULL;) {
        wire->resolving = connect->next;
        free(connect);
    }
}

/* --- trying addresses --------------------------------------------------------------------------
 */
static void connected(struct wire_conn *conn)
{
    char text[WF_ADDRESS_MAX];
    snprintf(text, sizeof text, "%s", conn->connect->text);
    wire_connect_free(conn);
    wire_conn_opened(conn, text);
    wire_greet(conn);
    wire_conn_update(conn);
}

static void note_failure(struct wire_conn *conn, const char *why)
{
    struct wire_connect *connect = conn->connect;
    char address[WF_ADDRESS_MAX];
    const struct wf_wire_target *target = &connect->targets.target[connect->current];
    wf_wire_address_format(&target->any, target->len, address);
    wf_error_set(&connect->error, WF_CONNECTION, "%s (tried %s)", why, address);
}

/* A socket that was given its own port as the peer's connects to itself. */
static bool is_itself(int fd)
{
    struct wf_wire_target own = {.len = sizeof own.storage}, peer = {.len = sizeof peer.storage};
    return getsockname(fd, &own.any, &own.len) == 0 && getpeername(fd, &peer.any, &peer.len) == 0 &&
           own.any.sa_family != AF_UNIX && own.len == peer.len &&
           memcmp(&own.storage, &peer.storage, own.len) == 0;
}

/* 0, or the errno that ends this try. */
static int connect_start(struct wire_conn *conn, const struct wf_wire_target *target)
{
    int fd = socket(target->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return errno;
    }
    wire_socket_tune(fd, conn->is_unix);
    if (connect(fd, &target->any, target->len) != 0 && errno != EINPROGRESS) {
        int number = errno;
        close(fd);
        return number;
    }
    conn->state = WIRE_CONNECTING;
    if (wire_conn_watch(conn, fd) != WF_OK) {
        wire_conn_socket_close(conn);
        return ENOSPC;
    }
    return 0;
}

static bool is_time_up(const struct wire_conn *conn)
{
    return wf_loop_now_ns(conn->wire->loop) >= conn->connect->give_up_ns;
}

/* Tries the current address and those after it; false: the connection is gone. */
static bool connect_next(struct wire_conn *conn)
{
    struct wire_connect *connect = conn->connect;
    struct wf_loop *loop = conn->wire->loop;
    for (; connect->current < connect->targets.count; connect->current++, connect->give_up_ns = 0) {
        if (connect->give_up_ns == 0) {
            connect->give_up_ns = wf_loop_now_ns(loop) + WIRE_CONNECT_NS;
        }
        int number = connect_start(conn, &connect->targets.target[connect->current]);
        if (number == 0) {
            wire_conn_deadline(conn, WIRE_CONNECT_NS, "a connect");
            return true;
        }
        if (number == EAGAIN && conn->is_unix && !is_time_up(conn)) {
            /* Its listen queue is full: so many came at once that each should wait otherwise. */
            uint64_t span = RETRY_MAX_NS - RETRY_MIN_NS;
            struct wf_env *env = conn->wire->env;
            wire_conn_deadline(conn, RETRY_MIN_NS + env->ops->choose(env, span), "a full queue");
            return true;
        }
        note_failure(conn, number == EAGAIN ? "its queue stayed full" : strerror(number));
    }
    return wire_conn_end(conn, WF_CONNECTION, "cannot connect to %s: %s", connect->text,
                         connect->error.text);
}

static void try_failed(struct wire_conn *conn, const char *why)
{
    note_failure(conn, why);
    wire_conn_socket_close(conn);
    conn->connect->current++;
    conn->connect->give_up_ns = 0;
    connect_next(conn);
}

void wire_connect_ready(struct wire_conn *conn)
{
    int number = 0;
    socklen_t len = sizeof number;
    if (getsockopt(conn->watch.fd, SOL_SOCKET, SO_ERROR, &number, &len) != 0) {
        number = errno;
    }
    if (number != 0) {
        try_failed(conn, strerror(number));
    } else if (is_itself(conn->watch.fd)) {
        try_failed(conn, "nobody listens there (it connected to itself)");
    } else if (conn->is_unix && !wire_socket_may_talk(conn->watch.fd)) {
        try_failed(conn, "it belongs to another user");
    } else {
        connected(conn);
    }
}

void wire_connect_timeout(struct wire_conn *conn)
{
    if (conn->connect->job_out) {
        wire_conn_end(conn, WF_CONNECTION,
                      "cannot connect to %s: the look-up of its name takes "
                      "longer than %.0f s",
                      conn->connect->text, (double)WIRE_CONNECT_NS / 1e9);
    } else if (conn->watched) {
        try_failed(conn, "no answer");
    } else {
        connect_next(conn); /* it waited for room in a queue */
    }
}

enum wf_status wire_connect(struct wire *wire, struct wf_actor *owner, const char *text,
                            uint64_t *conn_out, struct wf_error *error)
{
    struct wf_wire_address address;
    enum wf_status status = wf_wire_address_parse(text, &address, error);
    if (status == WF_OK && (address.is_wildcard || (!address.is_unix && address.port == 0))) {
        status = wf_error_set(error, WF_INVALID, "cannot connect to %s: it names nobody", text);
    }
    if (status != WF_OK) {
        return status;
    }
    struct wire_connect *connect = calloc(1, sizeof *connect);
    struct wire_conn *conn = connect == NULL ? NULL : wire_conn_new(wire, owner, WIRE_RESOLVING);
    if (conn == NULL) {
        free(connect);
        return wf_error_set(error, WF_NO_RESOURCE,
                            "cannot connect to %s: no memory, or more than %d connections", text,
                            WF_CONNECTIONS_MAX);
    }
    connect->wire = wire;
    connect->conn = conn->id;
    connect->address = address;
    snprintf(connect->text, sizeof connect->text, "%s", text);
    conn->connect = connect;
    conn->is_unix = address.is_unix;
    *conn_out = conn->id;
    if (wf_wire_address_inline(&address, false, &connect->targets) == WF_OK) {
        /* In a pass, not here: its outcome is a message, after this returned. */
        wire_conn_deadline(conn, 0, "a connect");
    } else {
        wire_conn_deadline(conn, WIRE_CONNECT_NS, "a look-up of a name");
        resolve_start(connect);
    }
    return WF_OK;
}
