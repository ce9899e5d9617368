/* sim_wire.c - the simulated network: listeners by name, connections with latency that can break.
 *
 * A connection is two ends. What is sent from one arrives at the other as events, each later than
 * the one before it, so order holds while the connection does. An end stops existing for its owner
 * when the owner closes it or CLOSED was delivered; things that arrive after that vanish.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/sim_internal.h"

static uint64_t latency(struct wf_sim *sim)
{
    return wf_sim_range(sim, sim->options.latency_min_ns, sim->options.latency_max_ns);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t arrival_between(struct wf_sim *sim, uint32_t a, uint32_t b)
{
    uint64_t time = sim->now_ns + latency(sim);
    time = later(time, sim->ranks[a]->stalled_until_ns);
    return later(time, sim->ranks[b]->stalled_until_ns);
}

/* When something sent now reaches `end`, after all that is on its way to it. */
static uint64_t arrival_in_order(struct wf_sim *sim, uint32_t from, struct sim_port *end)
{
    end->last_ns = later(arrival_between(sim, from, end->rank), end->last_ns + 1);
    return end->last_ns;
}

static struct sim_port *port_new(struct wf_sim *sim, uint32_t rank, struct wf_actor *owner,
                                 uint64_t *id_out)
{
    struct sim_port *port = sim_alloc(sizeof *port);
    port->rank = rank;
    port->owner = owner;
    port->open = true;
    sim_grow(&sim->ports, sim->port_count, &sim->port_cap, sizeof *sim->ports);
    *id_out = sim->port_count++;
    sim->ports[*id_out] = port;
    port->next_of_rank = sim->ranks[rank]->newest_port;
    sim->ranks[rank]->newest_port = *id_out;
    return port;
}

/* The port if it belongs to the rank of env and its owner has not seen the end of it. */
static struct sim_port *port_of(struct sim_rank *rank, uint64_t id)
{
    struct wf_sim *sim = rank->sim;
    if (id == 0 || id >= sim->port_count) {
        return NULL;
    }
    struct sim_port *port = sim->ports[id];
    return port->rank == rank->id && port->open ? port : NULL;
}

static uint64_t name_hash(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static struct sim_port *listener_find(struct wf_sim *sim, const char *address, uint64_t *id_out)
{
    uint64_t hash = name_hash(address);
    for (uint64_t i = 0; i < sim->name_count; i++) {
        struct sim_port *port = sim->ports[sim->names[i].port];
        if (sim->names[i].hash == hash && strcmp(port->address, address) == 0) {
            *id_out = sim->names[i].port;
            return port;
        }
    }
    return NULL;
}

static void name_remove(struct wf_sim *sim, const struct sim_port *port)
{
    for (uint64_t i = 0; i < sim->name_count; i++) {
        if (sim->ports[sim->names[i].port] == port) {
            sim->names[i] = sim->names[--sim->name_count];
            return;
        }
    }
}

void wf_sim_move_names(struct wf_sim *sim, struct wf_loop *loop)
{
    uint32_t rank = wf_sim_rank_id(loop);
    for (uint64_t i = sim->name_count; i-- > 0;) {
        if (sim->ports[sim->names[i].port]->rank == rank) {
            sim->names[i] = sim->names[--sim->name_count];
        }
    }
}

/* --- messages --------------------------------------------------------------------------------- */
static void wire_msg_release(struct wf_msg *msg)
{
    free(msg);
}

static struct wf_wire_msg *wire_msg_new(enum wf_wire_kind kind, uint64_t conn, const void *bytes,
                                        size_t len_bytes)
{
    struct wf_wire_msg *wire = malloc(sizeof *wire + len_bytes);
    WF_ASSERT(wire != NULL);
    memset(wire, 0, sizeof *wire);
    wire->msg.kind = kind;
    wire->msg.release = wire_msg_release;
    wire->msg.lane = WF_LANE_CONTROL;
    wire->conn = conn;
    wire->bytes = (uint8_t *)(wire + 1);
    wire->len_bytes = len_bytes;
    wire->fd = -1;
    if (len_bytes > 0) {
        memcpy(wire + 1, bytes, len_bytes);
    }
    return wire;
}

static struct wf_wire_msg *closed_msg(uint64_t conn, enum wf_status status, const char *text)
{
    struct wf_wire_msg *wire = wire_msg_new(WF_WIRE_CLOSED, conn, NULL, 0);
    wire->status = status;
    snprintf(wire->text, sizeof wire->text, "%s", text);
    return wire;
}

/* Sends an event to an end. */
static void post(struct wf_sim *sim, enum sim_kind kind, uint64_t end_id, struct wf_wire_msg *wire,
                 uint64_t time_ns)
{
    struct wf_sim_event *event = sim_event_new(sim, kind, sim->ports[end_id]->rank);
    event->port = end_id;
    event->wire = wire;
    sim_event_push(sim, event, time_ns);
}

static void give(struct sim_port *port, struct wf_sim_event *event)
{
    struct wf_wire_msg *wire = event->wire;
    event->wire = NULL;
    wf_send(port->owner, &wire->msg);
}

/* --- listen and connect ----------------------------------------------------------------------- */
/* "tcp:HOST:0" and "...*" become something that nobody listens on. */
static void address_complete(struct wf_sim *sim, const char *address, char out[WF_ADDRESS_MAX])
{
    size_t len = strlen(address);
    uint64_t unused = 0;
    do {
        uint64_t number = ++sim->next_number;
        if (len > 0 && address[len - 1] == '*') {
            snprintf(out, WF_ADDRESS_MAX, "%.*s%06" PRIx64, (int)(len - 1), address, number);
        } else if (strncmp(address, "tcp:", 4) == 0 && len > 2 &&
                   strcmp(address + len - 2, ":0") == 0) {
            snprintf(out, WF_ADDRESS_MAX, "%.*s%" PRIu64, (int)(len - 1), address,
                     20000 + number % 40000);
        } else {
            snprintf(out, WF_ADDRESS_MAX, "%s", address);
            return;
        }
    } while (listener_find(sim, out, &unused) != NULL);
}

static enum wf_status rank_check(const struct sim_rank *rank, const char *address,
                                 struct wf_error *error)
{
    if (!rank->alive) {
        return wf_error_set(error, WF_CLOSED, "simulated rank %s is dead", rank->name);
    }
    if (address[0] == '\0' || strlen(address) > WF_ADDRESS_MAX - 16) {
        return wf_error_set(error, WF_INVALID,
                            "expected an address of 1 to %d bytes, found %zu: \"%.64s\"",
                            WF_ADDRESS_MAX - 16, strlen(address), address);
    }
    return WF_OK;
}

enum wf_status sim_wire_listen(struct wf_env *env, struct wf_actor *owner, const char *address,
                               char bound_out[WF_ADDRESS_MAX], uint64_t *listener_out,
                               struct wf_error *error)
{
    struct sim_rank *rank = sim_rank_of_env(env);
    enum wf_status status = rank_check(rank, address, error);
    if (status != WF_OK) {
        return status;
    }
    char name[WF_ADDRESS_MAX];
    uint64_t id = 0;
    address_complete(rank->sim, address, name);
    if (listener_find(rank->sim, name, &id) != NULL) {
        return wf_error_set(error, WF_NO_RESOURCE,
                            "cannot listen on %s: it is in use by simulated rank %s", name,
                            rank->sim->ranks[rank->sim->ports[id]->rank]->name);
    }
    struct sim_port *port = port_new(rank->sim, rank->id, owner, &id);
    port->is_listener = true;
    port->address = sim_copy_text(name);
    sim_grow(&rank->sim->names, rank->sim->name_count, &rank->sim->name_cap,
             sizeof *rank->sim->names);
    rank->sim->names[rank->sim->name_count++] = (struct sim_name){name_hash(name), id};
    memcpy(bound_out, name, sizeof name);
    *listener_out = id;
    return WF_OK;
}

enum wf_status sim_wire_connect(struct wf_env *env, struct wf_actor *owner, const char *address,
                                uint64_t *conn_out, struct wf_error *error)
{
    struct sim_rank *rank = sim_rank_of_env(env);
    struct wf_sim *sim = rank->sim;
    enum wf_status status = rank_check(rank, address, error);
    if (status != WF_OK) {
        return status;
    }
    struct sim_port *port = port_new(sim, rank->id, owner, conn_out);
    port->address = sim_copy_text(address);
    struct wf_sim_event *event = sim_event_new(sim, SIM_CONNECT, WF_SIM_HOST);
    event->port = *conn_out;
    sim_event_push(sim, event, later(sim->now_ns + latency(sim), rank->stalled_until_ns));
    return WF_OK;
}

static void deliver_connect(struct wf_sim *sim, uint64_t id)
{
    struct sim_port *from = sim->ports[id];
    if (!from->open || !sim->ranks[from->rank]->alive) {
        return;
    }
    uint64_t listener_id = 0, accepted_id = 0;
    struct sim_port *listener = listener_find(sim, from->address, &listener_id);
    if (listener == NULL) {
        char text[sizeof((struct wf_wire_msg *)0)->text];
        snprintf(text, sizeof text, "cannot connect to %.100s: nobody listens there",
                 from->address);
        post(sim, SIM_CLOSED, id, closed_msg(id, WF_CONNECTION, text),
             arrival_in_order(sim, from->rank, from));
        return;
    }
    struct sim_port *accepted = port_new(sim, listener->rank, listener->owner, &accepted_id);
    accepted->peer = id;
    accepted->stranger = listener->guarded;
    from->peer = accepted_id;
    struct wf_wire_msg *wire = wire_msg_new(WF_WIRE_OPENED, accepted_id, NULL, 0);
    wire->listener = listener_id;
    snprintf(wire->text, sizeof wire->text, "sim:%.200s", sim->ranks[from->rank]->name);
    accepted->last_ns = later(sim->now_ns, sim->ranks[listener->rank]->stalled_until_ns);
    post(sim, SIM_OPENED, accepted_id, wire, accepted->last_ns);
    wire = wire_msg_new(WF_WIRE_OPENED, id, NULL, 0);
    snprintf(wire->text, sizeof wire->text, "%.200s", from->address);
    post(sim, SIM_OPENED, id, wire, arrival_in_order(sim, listener->rank, from));
}

/* --- send and close --------------------------------------------------------------------------- */
/* Both ends learn it in their own time; what is under way is lost from then on. */
static void connection_break(struct wf_sim *sim, uint64_t id)
{
    struct sim_port *ends[] = {sim->ports[id], sim->ports[sim->ports[id]->peer]};
    uint64_t ids[] = {id, sim->ports[id]->peer};
    for (int i = 0; i < 2; i++) {
        ends[i]->broken = true;
        post(sim, SIM_CLOSED, ids[i],
             closed_msg(ids[i], WF_CONNECTION, "the connection broke: reset by peer"),
             arrival_between(sim, ends[0]->rank, ends[1]->rank));
    }
}

enum wf_status sim_wire_send(struct wf_env *env, uint64_t conn, const void *bytes, size_t len_bytes,
                             int fd)
{
    struct sim_rank *rank = sim_rank_of_env(env);
    struct wf_sim *sim = rank->sim;
    struct sim_port *port = port_of(rank, conn);
    if (port == NULL || port->is_listener || !rank->alive) {
        return WF_CLOSED;
    }
    if (!port->connected) {
        return WF_AGAIN;
    }
    if (len_bytes > WF_FRAME_MAX || fd != -1) {
        return WF_INVALID;
    }
    if (!sim->faults_off && !port->broken && wf_sim_chance(sim, sim->options.break_per_million)) {
        connection_break(sim, conn);
    }
    struct sim_port *peer = sim->ports[port->peer];
    if (port->broken || !peer->open) {
        return WF_OK; /* it cannot know that yet */
    }
    if (peer->bytes_away + len_bytes > WF_SEND_QUEUE_MAX) {
        return WF_NO_RESOURCE;
    }
    peer->bytes_away += len_bytes;
    post(sim, SIM_FRAME, port->peer, wire_msg_new(WF_WIRE_FRAME, port->peer, bytes, len_bytes),
         arrival_in_order(sim, rank->id, peer));
    return WF_OK;
}

enum wf_status sim_wire_send_shared(struct wf_env *env, uint64_t conn, struct wf_payload *payload)
{
    return sim_wire_send(env, conn, payload->bytes, payload->len_bytes, -1);
}

static void end_close(struct wf_sim *sim, struct sim_port *port)
{
    port->open = false;
    if (port->is_listener) {
        name_remove(sim, port);
    }
    if (port->is_listener || port->peer == 0 || port->broken) {
        return;
    }
    port->broken = true;
    struct sim_port *peer = sim->ports[port->peer];
    if (peer->open) {
        post(sim, SIM_CLOSED, port->peer,
             closed_msg(port->peer, WF_CLOSED, "the peer closed the connection"),
             arrival_in_order(sim, port->rank, peer));
    }
}

void sim_wire_close(struct wf_env *env, uint64_t conn_or_listener)
{
    struct sim_rank *rank = sim_rank_of_env(env);
    struct sim_port *port = port_of(rank, conn_or_listener);
    if (port != NULL) {
        end_close(rank->sim, port);
    }
}

bool wf_sim_break_one(struct wf_sim *sim)
{
    uint64_t count = 0, chosen = 0;
    for (uint64_t id = 1; id < sim->port_count; id++) {
        const struct sim_port *port = sim->ports[id];
        if (port->open && port->connected && !port->broken && port->peer != 0 &&
            wf_sim_choose(sim, ++count) == 0) {
            chosen = id;
        }
    }
    if (chosen != 0) {
        connection_break(sim, chosen);
    }
    return chosen != 0;
}

/* --- strangers -------------------------------------------------------------------------------- */
void sim_wire_guard(struct wf_env *env, uint64_t listener, struct wf_actor *foreign)
{
    struct sim_port *port = port_of(sim_rank_of_env(env), listener);
    (void)foreign; /* everybody speaks frames here */
    if (port != NULL && port->is_listener) {
        port->guarded = true;
    }
}

void sim_wire_trust(struct wf_env *env, uint64_t conn)
{
    struct sim_port *port = port_of(sim_rank_of_env(env), conn);
    if (port != NULL) {
        port->stranger = false;
    }
}

/* False: what it sent is not for the owner, who hears why. */
static bool may_speak(struct wf_sim *sim, uint64_t id, const struct wf_wire_msg *frame)
{
    struct sim_port *port = sim->ports[id];
    const char *why = !port->stranger                            ? NULL
                      : frame->len_bytes > WF_STRANGER_FRAME_MAX ? "a first frame that is too long"
                      : port->stranger_spoke                     ? "sent more before it was trusted"
                                                                 : NULL;
    port->stranger_spoke = true;
    if (why != NULL) {
        wf_send(port->owner, &closed_msg(id, WF_PROTOCOL, why)->msg);
        end_close(sim, port);
    }
    return why == NULL;
}

/* --- delivery --------------------------------------------------------------------------------- */
static void deliver_opened(struct wf_sim *sim, struct sim_port *port, struct wf_sim_event *event)
{
    if (!port->open) {
        return;
    }
    uint64_t listener = event->wire->listener;
    if (listener != 0 && !sim->ports[listener]->open) {
        end_close(sim, port); /* it stood in the queue of a listener that is gone */
        return;
    }
    port->connected = true;
    give(port, event);
}

static void deliver_closed(struct sim_port *port, struct wf_sim_event *event)
{
    if (!port->open) {
        return;
    }
    port->open = false;
    if (port->connected || port->address != NULL) {
        give(port, event); /* else it was accepted and the owner never heard of it */
    }
}

void sim_wire_deliver(struct wf_sim *sim, struct wf_sim_event *event)
{
    struct sim_port *port = sim->ports[event->port];
    switch (event->kind) {
    case SIM_CONNECT:
        deliver_connect(sim, event->port);
        break;
    case SIM_OPENED:
        deliver_opened(sim, port, event);
        break;
    case SIM_FRAME:
        port->bytes_away -= event->wire->len_bytes;
        if (port->open && port->connected && may_speak(sim, event->port, event->wire)) {
            give(port, event);
        }
        break;
    case SIM_CLOSED:
        deliver_closed(port, event);
        break;
    default:
        WF_ASSERT(false);
    }
}

/* --- the death of a rank ---------------------------------------------------------------------- */
void sim_wire_crash(struct wf_sim *sim, uint32_t rank)
{
    for (uint64_t id = sim->ranks[rank]->newest_port; id != 0; id = sim->ports[id]->next_of_rank) {
        struct sim_port *port = sim->ports[id];
        if (port->is_listener && port->open) {
            end_close(sim, port);
        }
        if (port->is_listener || port->broken) {
            continue;
        }
        port->broken = true;
        if (port->peer == 0 || !sim->ports[port->peer]->open) {
            continue;
        }
        /* Not in order: what is under way arrives or not. A kernel closes a dead process's sockets
         * as if it had done so itself, or resets them. */
        bool reset = wf_sim_choose(sim, 2) == 0;
        post(sim, SIM_CLOSED, port->peer,
             reset ? closed_msg(port->peer, WF_CONNECTION, "the connection broke: reset by peer")
                   : closed_msg(port->peer, WF_CLOSED, "the peer closed the connection"),
             arrival_between(sim, rank, sim->ports[port->peer]->rank));
    }
}

void sim_wire_drain(struct wf_sim *sim, uint32_t rank)
{
    for (uint64_t id = sim->ranks[rank]->newest_port; id != 0; id = sim->ports[id]->next_of_rank) {
        struct sim_port *port = sim->ports[id];
        if (!port->open) {
            continue;
        }
        port->open = false;
        if ((port->connected || port->address != NULL)) {
            wf_send(port->owner,
                    &closed_msg(id, WF_CONNECTION, "this simulated rank is dead")->msg);
        }
    }
}

void sim_wire_fini(struct wf_sim *sim)
{
    for (uint64_t id = 1; id < sim->port_count; id++) {
        free(sim->ports[id]->address);
        free(sim->ports[id]);
    }
    free(sim->ports);
    free(sim->names);
}
