/* live_rank.c - one rank that is looked at: its connection, its regions, reads of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/live/live_private.h"

static void fail(struct wf_live_rank *rank, enum wf_status status, const char *why)
{
    if (rank->error.status == WF_OK) {
        wf_error_set(&rank->error, status, "%s %s", rank->who, why);
    }
}

/* --- transports and addresses ---------------------------------------------------------------- */

static bool may_do(const struct wf_live_rank *rank, uint32_t index)
{
    const struct wf_live_options *o = &rank->live->options;
    bool maps = (o->transports[index]->ops->caps & WF_CAP_MAP) != 0;
    return (rank->barred & 1U << index) == 0 && (!maps || strcmp(rank->peer.host, o->host) == 0);
}

static void list_transports(const struct wf_live_rank *rank, char *names, size_t room)
{
    const struct wf_live_options *o = &rank->live->options;
    size_t len = 0;
    names[0] = '\0';
    for (uint32_t i = 0; i < o->transport_count; i++) {
        if (may_do(rank, i) && len < room) {
            len += (size_t)snprintf(names + len, room - len, "%s%s", len > 0 ? " " : "",
                                    o->transports[i]->ops->name);
        }
    }
}

static void release(struct wf_live_rank *rank)
{
    for (uint32_t s = 0; s < LIVE_SLOTS; s++) {
        struct live_slot *slot = &rank->slots[s];
        for (uint32_t r = 0; r < slot->remote_count; r++) {
            if (slot->remotes[r] != NULL) {
                struct wf_transport *transport = slot->remotes[r]->transport;
                transport->ops->release_region(transport, slot->remotes[r]);
            }
        }
        free(slot->remotes);
        free(slot->places);
        *slot = (struct live_slot){0};
    }
    rank->slot_count = 0;
}

static void part(struct wf_live_rank *rank)
{
    if (rank->conn != 0) {
        rank->live->env->ops->close(rank->live->env, rank->conn);
    }
    rank->conn = 0;
    rank->connection++;
    release(rank);
}

/* The next address that takes a connection at all. */
static void call(struct wf_live_rank *rank)
{
    struct wf_live *live = rank->live;
    char address[WF_ADDRESS_MAX];
    struct wf_error why = {.text = "it has no address that this host can reach"};
    while (wf_peer_address(&rank->peer, live->options.host, rank->address_number, address)) {
        rank->handshake = (struct wf_handshake){0};
        if (live->env->ops->connect(live->env, &live->actor, address, &rank->conn, &why) == WF_OK) {
            return;
        }
        rank->conn = 0;
        rank->address_number++;
    }
    char text[WF_REASON_MAX];
    snprintf(text, sizeof text, "cannot be reached: %.300s", why.text);
    fail(rank, WF_CONNECTION, text);
}

/* --- frames ---------------------------------------------------------------------------------- */

static void send_look(struct wf_live_rank *rank)
{
    struct wf_frame_look look = {.proto_min = WF_PROTOCOL_MIN,
                                 .proto_max = WF_PROTOCOL_MAX,
                                 .side = rank->peer.side,
                                 .rank = rank->peer.rank,
                                 .incarnation = rank->peer.incarnation};
    snprintf(look.job, sizeof look.job, "%s", rank->live->options.job);
    list_transports(rank, look.transports, sizeof look.transports);
    if (look.transports[0] == '\0') {
        char text[WF_REASON_MAX];
        snprintf(text, sizeof text, "cannot be read by any transport that this process has%s%.200s",
                 rank->barred != 0 ? ": " : "; it is on another host: ucx is needed",
                 rank->barred_why);
        fail(rank, WF_UNSUPPORTED, text);
        return;
    }
    if (wf_frame_send(rank->live->env, rank->conn, WF_FRAME_look, &look, -1) != WF_OK) {
        fail(rank, WF_CONNECTION, "takes no frames any more");
    }
}

static enum wf_status shake_hands(struct wf_live_rank *rank, const struct wf_frame *frame,
                                  struct wf_error *error)
{
    const struct wf_live_options *o = &rank->live->options;
    enum wf_status status;
    if (frame->type == WF_FRAME_proven) {
        status = wf_handshake_confirm(&rank->handshake, o->token, &frame->proven, error);
    } else if (frame->type == WF_FRAME_challenge && rank->handshake.prove.proto_max == 0) {
        struct wf_frame_prove who = {.channel = WF_CHANNEL_PEER, .role = WF_ROLE_OBSERVER};
        snprintf(who.job, sizeof who.job, "%s", o->job);
        status = wf_handshake_answer(&rank->handshake, rank->live->env, rank->conn, o->token,
                                     &frame->challenge, &who, error);
    } else {
        status = wf_error_set(error, WF_PROTOCOL, "a %s frame cannot come now",
                              wf_frame_name(frame->type));
    }
    if (status == WF_OK && rank->handshake.done) {
        send_look(rank);
    }
    return status;
}

static enum wf_status take_places(struct wf_live_rank *rank,
                                  const struct wf_frame_peer_places *frame, struct wf_error *error)
{
    struct live_slot *slot = &rank->slots[frame->slot];
    uint32_t expected = rank->tensor_count, sent = slot->place_count;
    bool other = rank->slot_count != 0 && frame->slots != rank->slot_count;
    bool some = frame->last ? sent + frame->places_count == expected : frame->places_count > 0;
    if (slot->placed || frame->first != sent || frame->slot >= frame->slots || other || !some ||
        frame->places_count > expected - sent) {
        return wf_error_set(error, WF_PROTOCOL,
                            "it sent %u places from %llu on for slot %llu of %llu; expected %u, "
                            "each once",
                            frame->places_count, (unsigned long long)frame->first,
                            (unsigned long long)frame->slot, (unsigned long long)frame->slots,
                            expected);
    }
    if (slot->places == NULL) {
        slot->places = calloc((size_t)expected + 1, sizeof *slot->places);
    }
    if (slot->places == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for %u places", expected);
    }
    memcpy(slot->places + sent, frame->places, frame->places_count * sizeof *slot->places);
    slot->place_count += frame->places_count;
    slot->placed = frame->last;
    rank->slot_count = (uint32_t)frame->slots;
    return WF_OK;
}

static struct wf_transport *find_transport(const struct wf_live_rank *rank, const char *name)
{
    const struct wf_live_options *o = &rank->live->options;
    for (uint32_t i = 0; i < o->transport_count; i++) {
        if (may_do(rank, i) && strcmp(o->transports[i]->ops->name, name) == 0) {
            return o->transports[i];
        }
    }
    return NULL;
}

static enum wf_status take_region(struct wf_live_rank *rank,
                                  const struct wf_frame_peer_region *frame, int *fd,
                                  struct wf_error *error)
{
    struct live_slot *slot = &rank->slots[frame->slot];
    struct wf_transport *transport = find_transport(rank, frame->transport);
    if (transport == NULL || (rank->transport != NULL && rank->transport != transport) ||
        !slot->placed || slot->complete || frame->index != slot->remote_count) {
        return wf_error_set(
            error, WF_PROTOCOL, "it sent region %llu of slot %llu by %.32s out of turn",
            (unsigned long long)frame->index, (unsigned long long)frame->slot, frame->transport);
    }
    struct live_import *open = calloc(1, sizeof *open);
    void *remotes = realloc(slot->remotes, (slot->remote_count + 1) * sizeof *slot->remotes);
    slot->remotes = remotes != NULL ? remotes : slot->remotes;
    if (open == NULL || remotes == NULL) {
        free(open);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for its regions");
    }
    *open = (struct live_import){.rank = rank,
                                 .connection = rank->connection,
                                 .slot = (uint32_t)frame->slot,
                                 .index = slot->remote_count};
    open->import = (struct wf_import){.done = {.kind = WF_IMPORT_DONE},
                                      .owner = &rank->live->actor,
                                      .handle = {.len = frame->handle_len, .fd = *fd},
                                      .len_bytes = frame->len_bytes};
    memcpy(open->import.handle.bytes, frame->handle, frame->handle_len);
    *fd = -1; /* the transport takes it */
    slot->remotes[slot->remote_count++] = NULL;
    slot->complete = frame->last;
    rank->transport = transport;
    rank->imports++;
    transport->ops->import_region(transport, &open->import);
    return WF_OK;
}

/* This way does not work: all of it again by another. */
static void bar(struct wf_live_rank *rank, const char *why)
{
    const struct wf_live_options *o = &rank->live->options;
    for (uint32_t i = 0; i < o->transport_count; i++) {
        rank->barred |= o->transports[i] == rank->transport ? 1U << i : 0;
    }
    size_t len = strlen(rank->barred_why);
    snprintf(rank->barred_why + len, sizeof rank->barred_why - len, "%s%s: %.200s",
             len > 0 ? "; " : "", rank->transport->ops->name, why);
    part(rank);
    rank->transport = NULL;
    rank->address_number = 0;
    call(rank);
}

void live_rank_imported(struct wf_msg *msg)
{
    struct wf_import *import = WF_CONTAINER(msg, struct wf_import, done);
    struct live_import *open = WF_CONTAINER(import, struct live_import, import);
    struct wf_live_rank *rank = open->rank;
    rank->imports--;
    bool ours = open->connection == rank->connection;
    if (ours && import->status == WF_OK) {
        rank->slots[open->slot].remotes[open->index] = import->remote;
    } else if (import->remote != NULL) {
        import->remote->transport->ops->release_region(import->remote->transport, import->remote);
    }
    if (ours && import->status != WF_OK) {
        bar(rank, import->error.text);
    }
    free(open);
}

static enum wf_status take_frame(struct wf_live_rank *rank, const struct wf_frame *frame, int *fd,
                                 struct wf_error *error)
{
    if (frame->type == WF_FRAME_peer_refused) {
        enum wf_status status = (enum wf_status)frame->peer_refused.status;
        return wf_error_set(error, status == WF_UNSUPPORTED ? status : WF_REFUSED, "%s",
                            frame->peer_refused.text);
    }
    if (!rank->handshake.done) {
        return shake_hands(rank, frame, error);
    }
    switch (frame->type) {
    case WF_FRAME_peer_places:
        return take_places(rank, &frame->peer_places, error);
    case WF_FRAME_peer_region:
        return take_region(rank, &frame->peer_region, fd, error);
    case WF_FRAME_held:
        rank->held = frame->held;
        rank->held_count++;
        return WF_OK;
    default:
        return wf_error_set(error, WF_PROTOCOL, "a %s frame cannot come now",
                            wf_frame_name(frame->type));
    }
}

void live_rank_message(struct wf_live_rank *rank, struct wf_wire_msg *msg)
{
    char why[WF_REASON_MAX];
    struct wf_error error;
    struct wf_frame frame;
    if (msg->msg.kind == WF_WIRE_CLOSED) {
        rank->conn = 0;
        if (!rank->handshake.done && rank->error.status == WF_OK) {
            rank->address_number++;
            call(rank);
            return;
        }
        snprintf(why, sizeof why, "has ended, or its connection has: %.255s", msg->text);
        fail(rank, WF_CONNECTION, why);
        return;
    }
    enum wf_status status = wf_frame_decode(msg->bytes, msg->len_bytes, &frame, &error);
    if (status == WF_OK) {
        status = take_frame(rank, &frame, &msg->fd, &error);
        wf_frame_fini(&frame);
    }
    if (status != WF_OK) {
        snprintf(why, sizeof why, "does not let itself be looked at: %.300s", error.text);
        fail(rank, status, why);
    }
}

/* --- connecting ------------------------------------------------------------------------------ */

static bool is_ready(void *user)
{
    const struct wf_live_rank *rank = user;
    bool complete = rank->held_count > 0 && rank->imports == 0 && rank->slot_count > 0;
    for (uint32_t i = 0; i < rank->slot_count; i++) {
        complete = complete && rank->slots[i].complete;
    }
    return complete || rank->error.status != WF_OK;
}

/* Places that it sent lie inside regions that it sent. */
static void check_places(struct wf_live_rank *rank)
{
    for (uint32_t s = 0; s < rank->slot_count; s++) {
        const struct live_slot *slot = &rank->slots[s];
        for (uint32_t i = 0; i < slot->place_count; i++) {
            const struct wf_el_place *place = &slot->places[i];
            uint64_t len =
                place->region < slot->remote_count ? slot->remotes[place->region]->len_bytes : 0;
            if (place->len_bytes > 0 &&
                (place->offset > len || place->len_bytes > len - place->offset)) {
                fail(rank, WF_PROTOCOL, "placed a tensor outside of its regions");
            }
        }
    }
}

enum wf_status wf_live_connect(struct wf_live *live, const struct wf_el_peer *peer,
                               struct wf_hash layout, uint32_t tensor_count,
                               struct wf_live_rank **rank_out, struct wf_error *error)
{
    struct wf_live_rank *rank = calloc(1, sizeof *rank);
    void *grown = realloc(live->ranks, (live->rank_count + 1) * sizeof *live->ranks);
    live->ranks = grown != NULL ? grown : live->ranks;
    if (rank == NULL || grown == NULL) {
        free(rank);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a rank");
    }
    live->ranks[live->rank_count++] = rank;
    rank->live = live;
    rank->peer = *peer;
    rank->layout = layout;
    rank->tensor_count = tensor_count;
    wf_peer_who(peer, rank->who);
    call(rank);
    if (!live_wait(live, is_ready, rank, live->options.timeout_ns)) {
        fail(rank, WF_TIMED_OUT, "does not show its memory in time");
    }
    if (rank->error.status == WF_OK) {
        check_places(rank);
    }
    if (rank->error.status != WF_OK) {
        *error = rank->error;
        return rank->error.status;
    }
    *rank_out = rank;
    return WF_OK;
}

/* --- looking --------------------------------------------------------------------------------- */

struct question {
    struct wf_live_rank *rank;
    uint64_t count;
};

static bool is_answered(void *user)
{
    const struct question *question = user;
    return question->rank->error.status != WF_OK || question->rank->held_count > question->count;
}

enum wf_status live_rank_look(struct wf_live_rank *rank, struct wf_error *error)
{
    struct question question = {rank, rank->held_count};
    if (rank->error.status == WF_OK) {
        send_look(rank);
    }
    if (!live_wait(rank->live, is_answered, &question, rank->live->options.timeout_ns)) {
        fail(rank, WF_TIMED_OUT, "does not answer in time");
    }
    rank->looked_ns = wf_loop_now_ns(rank->live->loop);
    if (rank->error.status == WF_OK && rank->held.slot >= rank->slot_count) {
        fail(rank, WF_PROTOCOL, "holds its version in a slot that it has not shown");
    }
    if (rank->error.status == WF_OK && !wf_hash_equal(rank->held.layout, rank->layout)) {
        fail(rank, WF_STALE, "has placed its experts anew: look again");
    }
    if (rank->error.status != WF_OK) {
        *error = rank->error;
    }
    return rank->error.status;
}

enum wf_status live_rank_same(const struct wf_live_rank *rank, struct wf_error *error)
{
    const struct wf_frame_held *now = &rank->held, *first = &rank->first;
    char before[WF_VERSION_TEXT], by_now[WF_VERSION_TEXT];
    wf_version_format(first->version, before);
    wf_version_format(now->version, by_now);
    if (wf_version_is_none(now->version)) {
        return wf_error_set(error, WF_STALE,
                            "%s held version %s and %s: nothing can be concluded; look again when "
                            "no version comes in",
                            rank->who, before, now->why);
    }
    if (wf_version_compare(now->version, first->version) != 0 || now->writes != first->writes ||
        now->slot != first->slot) {
        return wf_error_set(error, WF_STALE,
                            "%s held version %s, has been written to since and holds version %s: "
                            "nothing can be concluded; look again when no version comes in",
                            rank->who, before, by_now);
    }
    return WF_OK;
}

/* --- reading --------------------------------------------------------------------------------- */

static bool is_read(void *user)
{
    return !((struct wf_live *)user)->read_open;
}

static enum wf_status read_some(struct wf_live_rank *rank, uint32_t region, uint64_t offset,
                                void *out, size_t len, struct wf_error *error)
{
    struct wf_live *live = rank->live;
    struct wf_remote *remote = rank->slots[rank->first.slot].remotes[region];
    struct wf_op op = {.box = {.src_offset = offset, .elements = len, .axis_count = 1}};
    op.box.axes[0].count = len;
    op.box.axes[0].src_step = op.box.axes[0].dst_step = 1;
    const struct wf_read_source src = {remote, 0, remote->len_bytes, WF_DTYPE_U8};
    const struct wf_read_target dst = {out, len, WF_DTYPE_U8};
    live->read =
        (struct wf_read){.done = {.kind = WF_READ_DONE},
                         .owner = &live->actor,
                         .ops = &op,
                         .op_count = 1,
                         .src_count = 1,
                         .dst_count = 1,
                         .src = &src,
                         .dst = &dst,
                         .deadline_ns = wf_loop_now_ns(live->loop) + live->options.timeout_ns};
    live->read_open = true;
    remote->transport->ops->read(remote->transport, &live->read);
    live_wait(live, is_read, live, 0); /* it has a deadline, and may write until it is done */
    return live->read.status == WF_OK
               ? WF_OK
               : wf_error_set(error, live->read.status, "%s cannot be read: %s", rank->who,
                              live->read.text);
}

enum wf_status wf_live_read(struct wf_live_rank *rank, uint32_t region, uint64_t offset, void *out,
                            size_t len, struct wf_error *error)
{
    enum wf_status status = rank->error.status;
    if (status != WF_OK) {
        *error = rank->error;
    }
    for (size_t done = 0; done < len && status == WF_OK;) {
        size_t part = len - done < LIVE_READ_MAX ? len - done : LIVE_READ_MAX;
        status = read_some(rank, region, offset + done, (uint8_t *)out + done, part, error);
        done += part;
    }
    if (status == WF_OK && wf_loop_now_ns(rank->live->loop) - rank->looked_ns > LIVE_LOOK_NS) {
        status = live_rank_look(rank, error);
        status = status == WF_OK ? live_rank_same(rank, error) : status;
    }
    return status;
}

const char *wf_live_rank_who(const struct wf_live_rank *rank)
{
    return rank->who;
}

uint32_t wf_live_rank_regions(const struct wf_live_rank *rank)
{
    return rank->slots[rank->first.slot].remote_count;
}

uint64_t wf_live_rank_region_bytes(const struct wf_live_rank *rank, uint32_t region)
{
    return rank->slots[rank->first.slot].remotes[region]->len_bytes;
}

uint32_t wf_live_rank_place(const struct wf_live_rank *rank, uint32_t tensor, uint64_t *offset_out,
                            uint64_t *bytes_out)
{
    const struct wf_el_place *place = &rank->slots[rank->first.slot].places[tensor];
    *offset_out = place->offset;
    *bytes_out = place->len_bytes;
    return place->len_bytes > 0 ? (uint32_t)place->region : WF_LIVE_NOWHERE;
}

void live_rank_free(struct wf_live_rank *rank)
{
    part(rank);
    free(rank);
}
