/* wire.c - connections of the real wire as objects: ids, life, deadlines, what owners are told. */
#include "runtime/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { WIRE_SLOT_BITS = 16, WIRE_SLOTS_MAX = 1 << WIRE_SLOT_BITS };

/* --- ids ---------------------------------------------------------------------------------------
 */
uint64_t wire_slot_take(struct wire *wire, void *object, bool is_listener)
{
    uint32_t number = wire->first_free;
    if (number != 0) {
        wire->first_free = wire->slots[number].next_free;
    } else {
        if (wire->slot_count == wire->slot_cap) {
            uint32_t cap = wire->slot_cap == 0 ? 64 : wire->slot_cap * 2;
            struct wire_slot *slots =
                cap > WIRE_SLOTS_MAX ? NULL : realloc(wire->slots, cap * sizeof *wire->slots);
            if (slots == NULL) {
                return 0;
            }
            wire->slots = slots;
            wire->slot_cap = cap;
        }
        if (wire->slot_count == 0) {
            wire->slots[wire->slot_count++] = (struct wire_slot){0};
        }
        number = wire->slot_count++;
        wire->slots[number] = (struct wire_slot){0};
    }
    struct wire_slot *slot = &wire->slots[number];
    slot->generation++;
    slot->object = object;
    slot->is_listener = is_listener;
    return slot->generation << WIRE_SLOT_BITS | number;
}

struct wire_slot *wire_slot_find(struct wire *wire, uint64_t id)
{
    uint64_t number = id & (WIRE_SLOTS_MAX - 1);
    if (number == 0 || number >= wire->slot_count) {
        return NULL;
    }
    struct wire_slot *slot = &wire->slots[number];
    bool is_it = slot->object != NULL && slot->generation == id >> WIRE_SLOT_BITS;
    return is_it ? slot : NULL;
}

void wire_slot_drop(struct wire *wire, uint64_t id)
{
    struct wire_slot *slot = wire_slot_find(wire, id);
    if (slot != NULL) {
        slot->object = NULL;
        slot->next_free = wire->first_free;
        wire->first_free = (uint32_t)(slot - wire->slots);
    }
}

struct wire_conn *wire_conn_find(struct wire *wire, uint64_t id)
{
    struct wire_slot *slot = wire_slot_find(wire, id);
    return slot == NULL || slot->is_listener ? NULL : slot->object;
}

/* --- messages ----------------------------------------------------------------------------------
 */
/* The env's own view of a message: which connection's account it is on. */
struct wire_msg {
    struct wf_wire_msg msg; /* first */
    struct wire_gate *gate; /* FRAME: holds a reference; else NULL */
    size_t cap;
    uint8_t bytes[];
};

static void gate_release(struct wire_gate *gate)
{
    if (--gate->references == 0) {
        free(gate);
    }
}

static void msg_release(struct wf_msg *msg)
{
    struct wire_msg *own = (struct wire_msg *)msg;
    if (own->msg.fd >= 0) {
        close(own->msg.fd);
    }
    struct wire_gate *gate = own->gate;
    if (gate != NULL) {
        gate->unreleased--;
        gate->unreleased_bytes -= own->msg.len_bytes;
        struct wire_conn *conn = gate->conn;
        if (conn != NULL && conn->paused && gate->unreleased <= WF_UNRELEASED_MAX / 2 &&
            gate->unreleased_bytes <= WIRE_UNRELEASED_BYTES / 2) {
            conn->paused = false;
            wire_conn_update(conn);
            if (conn->header_len > 0 && !conn->stranger) {
                wire_conn_deadline(conn, conn->wire->frame_timeout_ns, "half a frame");
            }
        }
        gate_release(gate);
    }
    free(own);
}

struct wf_wire_msg *wire_msg_new(enum wf_wire_kind kind, uint64_t conn, size_t cap)
{
    struct wire_msg *own = malloc(sizeof *own + cap);
    if (own == NULL) {
        return NULL;
    }
    memset(own, 0, sizeof *own);
    own->msg.msg.kind = kind;
    own->msg.msg.release = msg_release;
    own->msg.msg.lane = WF_LANE_CONTROL;
    own->msg.conn = conn;
    own->msg.bytes = own->bytes;
    own->msg.fd = -1;
    own->cap = cap;
    return &own->msg;
}

uint8_t *wire_msg_bytes(struct wf_wire_msg *msg)
{
    return ((struct wire_msg *)msg)->bytes;
}

struct wf_wire_msg *wire_msg_grow(struct wf_wire_msg *msg, size_t cap)
{
    struct wire_msg *own = realloc(msg, sizeof *own + cap);
    if (own == NULL) {
        return NULL;
    }
    own->msg.bytes = own->bytes;
    own->cap = cap;
    return &own->msg;
}

void wire_frame_deliver(struct wire_conn *conn, struct wf_wire_msg *frame)
{
    struct wire_msg *own = (struct wire_msg *)frame;
    struct wire_gate *gate = conn->gate;
    own->gate = gate;
    gate->references++;
    gate->unreleased++;
    gate->unreleased_bytes += frame->len_bytes;
    if (gate->unreleased >= WF_UNRELEASED_MAX || gate->unreleased_bytes >= WIRE_UNRELEASED_BYTES) {
        conn->paused = true;
    }
    wf_send(conn->owner, &frame->msg);
}

void wire_conn_opened(struct wire_conn *conn, const char *text)
{
    struct wf_wire_msg *opened = conn->opened_msg;
    conn->opened_msg = NULL;
    conn->state = WIRE_OPEN;
    if (!conn->stranger) {
        wf_timer_cancel(conn->wire->loop, &conn->timer);
    }
    opened->listener = conn->listener;
    snprintf(opened->text, sizeof opened->text, "%s", text);
    wf_send(conn->owner, &opened->msg);
}

/* --- deadlines and readiness -------------------------------------------------------------------
 */
static void timer_fire(struct wf_timer *timer)
{
    struct wire_conn *conn = WF_CONTAINER(timer, struct wire_conn, timer);
    if (conn->watch_failed) {
        wire_conn_end(conn, WF_NO_RESOURCE, "the kernel watches no more descriptors");
        return;
    }
    switch (conn->state) {
    case WIRE_RESOLVING:
    case WIRE_CONNECTING:
        wire_connect_timeout(conn);
        break;
    case WIRE_OPEN:
        if (conn->stranger) {
            wire_conn_end(conn, WF_PROTOCOL, "did not show within %.0f s that it belongs here",
                          (double)WF_STRANGER_NS / 1e9);
            break;
        }
        wire_conn_end(
            conn, WF_PROTOCOL, "expected the rest of a frame within %.1f s, found %zu of %zu bytes",
            (double)conn->wire->frame_timeout_ns / 1e9, conn->partial_len, conn->frame_len);
        break;
    case WIRE_GREETING:
    case WIRE_LINGERING:
        wire_conn_free(conn);
        break;
    }
}

void wire_conn_deadline(struct wire_conn *conn, uint64_t ns, const char *name)
{
    struct wf_loop *loop = conn->wire->loop;
    conn->timer.fire = timer_fire;
    conn->timer.name = name;
    wf_timer_arm(loop, &conn->timer, wf_loop_now_ns(loop) + ns);
}

static void conn_ready(struct wf_watch *watch, unsigned events)
{
    struct wire_conn *conn = (struct wire_conn *)watch;
    if (conn->state == WIRE_CONNECTING) {
        wire_connect_ready(conn);
        return;
    }
    if (events & WF_WRITABLE) {
        wire_flush(conn);
    }
    if (events & (WF_READABLE | WF_HANGUP)) {
        wire_read(conn);
    }
}

enum wf_status wire_conn_watch(struct wire_conn *conn, int fd)
{
    conn->watch = (struct wf_watch){.fd = fd, .ready = conn_ready, .events = WF_READABLE};
    if (conn->state == WIRE_CONNECTING) {
        conn->watch.events = WF_WRITABLE;
    }
    enum wf_status status = wf_watch_add(conn->wire->loop, &conn->watch);
    conn->watched = status == WF_OK;
    return status;
}

void wire_conn_update(struct wire_conn *conn)
{
    unsigned events = WF_WRITABLE;
    if (conn->state != WIRE_CONNECTING) {
        events = (conn->paused ? 0 : WF_READABLE) | (conn->first != NULL ? WF_WRITABLE : 0);
    }
    if (conn->watched && conn->watch.events != events &&
        wf_watch_modify(conn->wire->loop, &conn->watch, events) != WF_OK) {
        conn->watch_failed = true; /* callers go on using it: it ends at the next pass */
        wire_conn_deadline(conn, 0, "a watch that failed");
    }
}

/* --- life --------------------------------------------------------------------------------------
 */
struct wire_conn *wire_conn_new(struct wire *wire, struct wf_actor *owner, enum wire_state state)
{
    if (wire->conn_count >= WF_CONNECTIONS_MAX) {
        return NULL;
    }
    struct wire_conn *conn = calloc(1, sizeof *conn);
    struct wire_gate *gate = calloc(1, sizeof *gate);
    /* What the owner must hear in the end cannot depend on memory then. */
    struct wf_wire_msg *opened = wire_msg_new(WF_WIRE_OPENED, 0, 0);
    struct wf_wire_msg *closed = wire_msg_new(WF_WIRE_CLOSED, 0, 0);
    uint64_t id = conn == NULL ? 0 : wire_slot_take(wire, conn, false);
    if (conn == NULL || gate == NULL || opened == NULL || closed == NULL || id == 0) {
        wire_slot_drop(wire, id);
        free(conn);
        free(gate);
        free(opened);
        free(closed);
        return NULL;
    }
    gate->conn = conn;
    gate->references = 1;
    opened->conn = closed->conn = id;
    *conn = (struct wire_conn){.wire = wire,
                               .owner = owner,
                               .gate = gate,
                               .id = id,
                               .state = state,
                               .partial_fd = -1,
                               .opened_msg = opened,
                               .closed_msg = closed};
    conn->watch.fd = -1;
    wire->conn_count++;
    return conn;
}

void wire_conn_socket_close(struct wire_conn *conn)
{
    if (conn->watched) {
        wf_watch_remove(conn->wire->loop, &conn->watch);
        conn->watched = false;
    }
    if (conn->watch.fd >= 0) {
        close(conn->watch.fd);
        conn->watch.fd = -1;
    }
}

void wire_conn_free(struct wire_conn *conn)
{
    struct wire *wire = conn->wire;
    wf_timer_cancel(wire->loop, &conn->timer);
    wire_stranger_leave(conn);
    wire_conn_socket_close(conn);
    wire_connect_free(conn);
    wire_read_fini(conn);
    wire_write_fini(conn);
    conn->gate->conn = NULL;
    gate_release(conn->gate);
    free(conn->opened_msg);
    free(conn->closed_msg);
    wire_slot_drop(wire, conn->id);
    wire->conn_count--;
    free(conn);
}

bool wire_conn_end(struct wire_conn *conn, enum wf_status status, const char *format, ...)
{
    if (conn->owner != NULL && conn->state != WIRE_GREETING) {
        struct wf_wire_msg *closed = conn->closed_msg;
        conn->closed_msg = NULL;
        closed->status = status;
        va_list args;
        va_start(args, format);
        vsnprintf(closed->text, sizeof closed->text, format, args);
        va_end(args);
        wf_send(conn->owner, &closed->msg);
    }
    wire_conn_free(conn);
    return false;
}

void wire_conn_linger(struct wire_conn *conn)
{
    if (!conn->watched || conn->state == WIRE_CONNECTING) {
        wire_conn_free(conn);
        return;
    }
    conn->owner = NULL;
    conn->gate->conn = NULL;
    conn->state = WIRE_LINGERING;
    conn->paused = false;
    wire_read_fini(conn);
    wire_conn_deadline(conn, conn->wire->frame_timeout_ns, "the end of a closed connection");
    wire_flush(conn);
    wire_conn_update(conn);
}

void wire_close(struct wire *wire, uint64_t conn_or_listener)
{
    struct wire_slot *slot = wire_slot_find(wire, conn_or_listener);
    if (slot == NULL) {
        return;
    }
    if (slot->is_listener) {
        wire_listener_free(slot->object);
        return;
    }
    struct wire_conn *conn = slot->object;
    /* Lingering and greeting ones have ids that no owner knows. */
    if (conn->owner != NULL && conn->state != WIRE_GREETING) {
        wire_conn_linger(conn);
    }
}

/* Strangers may not have the descriptors that ranks, files and listeners need. */
static uint32_t strangers_max(void)
{
    struct rlimit files;
    bool few = getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur / 2 < WF_STRANGERS_MAX;
    return few ? (uint32_t)files.rlim_cur / 2 : WF_STRANGERS_MAX;
}

enum wf_status wire_init(struct wire *wire, struct wf_env *env, struct wf_loop *loop,
                         uint64_t frame_timeout_ns, struct wf_error *error)
{
    *wire = (struct wire){.env = env, .loop = loop, .strangers_max = strangers_max()};
    wire->frame_timeout_ns = frame_timeout_ns != 0 ? frame_timeout_ns : WIRE_FRAME_TIMEOUT_NS;
    wire->scratch = malloc(WIRE_SCRATCH_BYTES);
    if (wire->scratch == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %d bytes of an env",
                            WIRE_SCRATCH_BYTES);
    }
    wf_actor_init(&wire->actor, loop, "wire", wire_connect_resolved);
    return WF_OK;
}

/* Accepted connections of a listener that is closed before they have greeted. */
void wire_listener_forget(struct wire *wire, uint64_t listener)
{
    for (uint32_t i = 1; i < wire->slot_count; i++) {
        struct wire_conn *conn = wire->slots[i].is_listener ? NULL : wire->slots[i].object;
        if (conn != NULL && conn->state == WIRE_GREETING && conn->listener == listener) {
            wire_conn_free(conn);
        }
    }
}

/* The last chance of what is queued. A socket closed with bytes unread is reset by the kernel, and
 * what it had still to send is gone: so what came is read away first. */
static void last_flush(struct wire_conn *conn)
{
    wire_flush(conn);
    shutdown(conn->watch.fd, SHUT_WR);
    for (int i = 0; i < WIRE_LAST_READS; i++) {
        if (recv(conn->watch.fd, conn->wire->scratch, WIRE_SCRATCH_BYTES, MSG_DONTWAIT) <= 0) {
            break;
        }
    }
}

void wire_fini(struct wire *wire)
{
    for (uint32_t i = 1; i < wire->slot_count; i++) {
        struct wire_slot *slot = &wire->slots[i];
        if (slot->object != NULL && slot->is_listener) {
            wire_listener_free(slot->object);
        } else if (slot->object != NULL) {
            struct wire_conn *conn = slot->object;
            if (conn->watched && conn->state != WIRE_CONNECTING) {
                last_flush(conn);
            }
            wire_conn_free(conn);
        }
    }
    wf_actor_close(&wire->actor);
    wf_actor_fini(&wire->actor);
    wire_connect_fini(wire);
    free(wire->slots);
    free(wire->scratch);
}
