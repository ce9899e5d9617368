/* meta_server_conns.c - the server's connections: who is a stranger, a candidate, a rank, an
 * observer; what each may cost.
 *
 * A stranger has greeted and not said a HELLO that we accept. There are at most as many as there
 * are ranks and WF_STRANGERS_SPARE more, each for connect_ns: the oldest goes first, so that a rank
 * that comes now finds room however many others stay silent.
 */
#include <stdio.h>
#include <stdlib.h>

#include "actors/meta_server_internal.h"

static struct wf_server_conn **bucket_slot(struct wf_meta_server *server, uint64_t id)
{
    struct wf_server_conn **slot = &server->buckets[id % WF_SERVER_BUCKETS];
    while (*slot != NULL && (*slot)->id != id) {
        slot = &(*slot)->next;
    }
    return slot;
}

struct wf_server_conn *wf_server_conn_find(struct wf_meta_server *server, uint64_t id)
{
    return *bucket_slot(server, id);
}

static void list_leave(struct wf_meta_server *server, struct wf_server_conn *conn)
{
    struct wf_server_conn_list *list = &server->conns[conn->kind];
    *(conn->before != NULL ? &conn->before->after : &list->first) = conn->after;
    *(conn->after != NULL ? &conn->after->before : &list->last) = conn->before;
    list->count--;
}

static void list_join(struct wf_meta_server *server, struct wf_server_conn *conn)
{
    struct wf_server_conn_list *list = &server->conns[conn->kind];
    conn->before = list->last;
    conn->after = NULL;
    *(list->last != NULL ? &list->last->after : &list->first) = conn;
    list->last = conn;
    list->count++;
}

void wf_server_conn_become(struct wf_meta_server *server, struct wf_server_conn *conn,
                           enum wf_conn_kind kind, struct wf_server_rank *rank)
{
    if (conn->kind == WF_CONN_CANDIDATE) {
        conn->rank->candidates--;
    }
    list_leave(server, conn);
    conn->kind = kind;
    conn->rank = rank;
    list_join(server, conn);
    if (kind == WF_CONN_CANDIDATE) {
        rank->candidates++;
    }
}

void wf_server_conn_forget(struct wf_meta_server *server, uint64_t id)
{
    struct wf_server_conn **slot = bucket_slot(server, id);
    struct wf_server_conn *conn = *slot;
    if (conn != NULL) {
        *slot = conn->next;
        if (conn->kind == WF_CONN_CANDIDATE) {
            conn->rank->candidates--;
        }
        list_leave(server, conn);
        wf_frame_fini(&conn->hello);
        free(conn);
    }
}

void wf_server_conn_drop(struct wf_meta_server *server, uint64_t id)
{
    server->env->ops->close(server->env, id);
    wf_server_conn_forget(server, id);
}

/* --- strangers ---------------------------------------------------------------------------------
 */
static void let_go(struct wf_meta_server *server, const struct wf_server_conn *conn,
                   const char *why)
{
    wf_refusals_log(&server->refusals, server->loop, conn->address, why);
    wf_server_conn_drop(server, conn->id);
}

struct wf_server_conn *wf_server_conn_open(struct wf_meta_server *server, uint64_t id,
                                           const char *address)
{
    struct wf_server_conn_list *strangers = &server->conns[WF_CONN_STRANGER];
    if (strangers->count >= server->rank_count + WF_STRANGERS_SPARE) {
        let_go(server, strangers->first, "it has not said who it is, and others want to");
    }
    struct wf_server_conn *conn = calloc(1, sizeof *conn);
    WF_ASSERT(conn != NULL);
    conn->id = id;
    conn->since_ns = wf_server_now(server);
    snprintf(conn->address, sizeof conn->address, "%.*s", WF_PEER_TEXT - 1, address);
    conn->next = server->buckets[id % WF_SERVER_BUCKETS];
    server->buckets[id % WF_SERVER_BUCKETS] = conn;
    list_join(server, conn);
    return conn;
}

void wf_server_drop_silent(struct wf_meta_server *server)
{
    uint64_t now = wf_server_now(server), limit = server->options.timeouts.connect_ns;
    struct wf_server_conn *conn;
    while ((conn = server->conns[WF_CONN_STRANGER].first) != NULL && now - conn->since_ns > limit) {
        let_go(server, conn, "it has not said who it is in time");
    }
}

/* --- observers ---------------------------------------------------------------------------------
 */
void wf_server_send_observer(struct wf_meta_server *server, struct wf_server_conn *conn,
                             struct wf_payload *payload)
{
    if (server->env->ops->send_shared(server->env, conn->id, payload) == WF_NO_RESOURCE) {
        let_go(server, conn, "an observer that does not read what it gets");
    }
}

void wf_server_send_observers(struct wf_meta_server *server, enum wf_frame_type type,
                              const void *fields)
{
    struct wf_server_conn *next = server->conns[WF_CONN_OBSERVER].first;
    if (next == NULL) {
        return;
    }
    struct wf_payload *payload = NULL;
    if (wf_frame_payload(type, fields, &payload, NULL) != WF_OK) {
        return; /* news that nobody depends on */
    }
    while (next != NULL) {
        struct wf_server_conn *conn = next;
        next = conn->after;
        wf_server_send_observer(server, conn, payload);
    }
    wf_payload_release(payload);
}
