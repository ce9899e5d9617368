/* receiver_source.c - one source of the Receiver: connection, hello, imported regions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/receiver.h"

static struct wf_loop *loop_of(const struct receiver_source *source)
{
    return source->receiver->rank->loop;
}

static struct wf_env *env_of(const struct receiver_source *source)
{
    return wf_loop_env(loop_of(source));
}

static void arm(struct receiver_source *source, const char *name, uint64_t after_ns)
{
    source->timer.name = name;
    wf_timer_arm(loop_of(source), &source->timer, wf_loop_now_ns(loop_of(source)) + after_ns);
}

static void release(struct wf_remote *remote)
{
    if (remote != NULL) {
        remote->transport->ops->release_region(remote->transport, remote);
    }
}

void receiver_source_release(struct receiver_source *source)
{
    WF_ASSERT(!source->read_open);
    for (int i = 0; i < RECEIVER_SLOTS; i++) {
        struct receiver_slot *slot = &source->slots[i];
        for (uint32_t r = 0; r < slot->remote_count; r++) {
            release(slot->remotes[r]);
        }
        free(slot->remotes);
        free(slot->places);
        free(slot->src);
        memset(slot, 0, sizeof *slot);
    }
}

/* Nobody waits any more for what is on its way. */
static void orphan_imports(struct receiver_source *source)
{
    for (struct receiver_import *open; (open = source->imports) != NULL;) {
        source->imports = open->next;
        open->source = NULL;
    }
}

/* Clients that come back together must not come in step: half of the pause is drawn. */
static void retry_later(struct receiver_source *source)
{
    struct wf_env *env = env_of(source);
    uint64_t half = source->retry_ns / 2;
    arm(source, "the next try to connect", half + env->ops->choose(env, half + 1));
    source->retry_ns *= 2;
    if (source->retry_ns > RECEIVER_RETRY_MAX_NS) {
        source->retry_ns = RECEIVER_RETRY_MAX_NS;
    }
}

static void part(struct receiver_source *source)
{
    struct wf_env *env = env_of(source);
    if (source->conn != 0) {
        env->ops->close(env, source->conn);
        source->conn = 0;
    }
    source->state = SOURCE_APART;
    wf_timer_cancel(loop_of(source), &source->timer);
    orphan_imports(source);
    if (!source->read_open) {
        receiver_source_release(source);
    }
}

void receiver_source_lose(struct receiver_source *source, enum wf_status status, const char *why)
{
    snprintf(source->why, sizeof source->why, "%.*s", WF_REASON_MAX - 1, why);
    part(source);
    if (!source->receiver->closing) {
        retry_later(source);
    }
    receiver_round_lost(source, status);
}

/* Begins with the next address that takes a connection at all. */
static void try_addresses(struct receiver_source *source)
{
    struct wf_env *env = env_of(source);
    char address[WF_ADDRESS_MAX];
    while (receiver_route_address(source, source->address_number, address)) {
        struct wf_error error;
        source->handshake = (struct wf_handshake){0};
        if (env->ops->connect(env, &source->receiver->actor, address, &source->conn, &error) ==
            WF_OK) {
            return;
        }
        source->conn = 0;
        source->address_number++;
        snprintf(source->why, sizeof source->why, "cannot be reached: %.255s", error.text);
    }
    char why[WF_REASON_MAX];
    snprintf(why, sizeof why, "%s",
             source->address_number > 0 ? source->why
                                        : "has no address that this rank's host can reach");
    receiver_source_lose(source, source->address_number > 0 ? WF_CONNECTION : WF_UNSUPPORTED, why);
}

void receiver_source_connect(struct receiver_source *source)
{
    WF_ASSERT(source->state == SOURCE_APART);
    if (source->read_open) {
        retry_later(source); /* the regions of the last connection are still in use */
        return;
    }
    const struct wf_timeouts *timeouts = &source->receiver->rank->options.timeouts;
    source->state = SOURCE_CONNECTING;
    source->address_number = 0;
    arm(source, "a source's regions", timeouts->connect_ns + timeouts->plan_ns);
    try_addresses(source);
}

/* This way does not work: another, at once, or the source is lost for now. */
static void next_transport(struct receiver_source *source, enum wf_status status, const char *why)
{
    if (receiver_route_bar(source, source->transport, why)) {
        part(source);
        receiver_source_connect(source);
        return;
    }
    char all[WF_REASON_MAX];
    snprintf(all, sizeof all, "offered memory that cannot be used: %.340s", source->barred_why);
    receiver_route_forget(source);
    receiver_source_lose(source, status, all);
}

static void timer_fired(struct wf_timer *timer)
{
    struct receiver_source *source = WF_CONTAINER(timer, struct receiver_source, timer);
    if (source->state == SOURCE_APART) {
        receiver_source_connect(source);
    } else {
        receiver_source_lose(source, WF_TIMED_OUT, "it did not send its regions in time");
    }
}

bool receiver_source_send(struct receiver_source *source, enum wf_frame_type type,
                          const void *fields)
{
    enum wf_status status = wf_frame_send(env_of(source), source->conn, type, fields, -1);
    if (status != WF_OK) {
        receiver_source_lose(source, WF_CONNECTION, wf_status_text(status));
    }
    return status == WF_OK;
}

/* --- frames until READY
 * ------------------------------------------------------------------------------ */

static void say_hello(struct receiver_source *source)
{
    const struct wf_rank *rank = source->receiver->rank;
    struct wf_frame_peer_hello hello = {.proto_min = WF_PROTOCOL_MIN,
                                        .proto_max = WF_PROTOCOL_MAX,
                                        .rank = rank->options.rank,
                                        .incarnation = rank->incarnation,
                                        .source_rank = source->peer.rank,
                                        .source_incarnation = source->peer.incarnation,
                                        .input = source->input,
                                        .edge = source->edge->hash};
    snprintf(hello.job, sizeof hello.job, "%s", rank->options.job);
    if (!receiver_route_transports(source, hello.transports)) {
        receiver_route_forget(source);
        receiver_source_lose(source, WF_UNSUPPORTED,
                             "is on another host, and none of this rank's transports reads from "
                             "there; add ucx to transport.prefer");
        return;
    }
    source->transport = NULL;
    source->slot_count = 0;
    source->state = SOURCE_GREETED;
    receiver_source_send(source, WF_FRAME_peer_hello, &hello);
}

/* The source shows that it is of this job before anything else of it counts. */
static enum wf_status shake_hands(struct receiver_source *source, const struct wf_frame *frame,
                                  struct wf_error *error)
{
    const struct wf_rank *rank = source->receiver->rank;
    struct wf_handshake *handshake = &source->handshake;
    enum wf_status status;
    if (frame->type == WF_FRAME_proven) {
        status = wf_handshake_confirm(handshake, &rank->token, &frame->proven, error);
    } else if (frame->type == WF_FRAME_challenge && handshake->prove.proto_max == 0) {
        struct wf_frame_prove who = {.channel = WF_CHANNEL_PEER,
                                     .role = WF_ROLE_RANK,
                                     .side = WF_INFER,
                                     .rank = rank->options.rank,
                                     .incarnation = rank->incarnation};
        snprintf(who.job, sizeof who.job, "%s", rank->options.job);
        status = wf_handshake_answer(handshake, env_of(source), source->conn, &rank->token,
                                     &frame->challenge, &who, error);
    } else {
        status = wf_error_set(error, WF_PROTOCOL, "sent a %s frame that cannot come now",
                              wf_frame_name(frame->type));
    }
    if (status == WF_OK && handshake->done) {
        say_hello(source);
    }
    return status;
}

static enum wf_status take_places(struct receiver_source *source,
                                  const struct wf_frame_peer_places *frame, struct wf_error *error)
{
    struct receiver_slot *slot = &source->slots[frame->slot];
    uint32_t expected = source->layout->tensor_count + source->cast_count;
    uint32_t sent = slot->place_count;
    if (slot->placed || frame->first != sent) {
        return wf_error_set(error, WF_PROTOCOL,
                            "sent the places of its slot %llu twice or out of turn: those from "
                            "%llu on, after %u%s",
                            (unsigned long long)frame->slot, (unsigned long long)frame->first, sent,
                            slot->placed ? " that were all" : "");
    }
    if (frame->slot >= frame->slots) {
        return wf_error_set(error, WF_PROTOCOL,
                            "sent places of slot %llu and has %llu slots: expected a smaller "
                            "number",
                            (unsigned long long)frame->slot, (unsigned long long)frame->slots);
    }
    if (source->slot_count != 0 && frame->slots != source->slot_count) {
        return wf_error_set(error, WF_PROTOCOL, "has %llu slots, and said %u before",
                            (unsigned long long)frame->slots, source->slot_count);
    }
    bool some = frame->last ? sent + frame->places_count == expected : frame->places_count > 0;
    if (!some || frame->places_count > expected - sent) {
        return wf_error_set(error, WF_PROTOCOL,
                            "sent %u places for its %u tensors: expected one for each",
                            sent + frame->places_count, expected);
    }
    source->slot_count = (uint32_t)frame->slots;
    if (slot->places == NULL) {
        slot->places = calloc((size_t)expected + 1, sizeof *slot->places);
    }
    if (slot->places == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "has more tensors than fit in memory here");
    }
    memcpy(slot->places + sent, frame->places, frame->places_count * sizeof *slot->places);
    slot->place_count += frame->places_count;
    slot->placed = frame->last;
    return WF_OK;
}

/* Of the source's layout, or behind that one that it casts. */
static struct wf_tensor tensor_of(const struct receiver_source *source, uint32_t index)
{
    const struct wf_layout *layout = source->layout;
    if (index < layout->tensor_count) {
        return layout->tensors[index];
    }
    const struct wf_plan_cast *cast = &source->casts[index - layout->tensor_count];
    return (struct wf_tensor){.name = layout->tensors[cast->tensor].name,
                              .dtype = cast->to,
                              .bytes = cast->elements * wf_dtype_bytes(cast->to),
                              .kind = WF_TENSOR_WEIGHTS};
}

static enum wf_status resolve(const struct receiver_source *source, struct receiver_slot *slot,
                              struct wf_error *error)
{
    struct wf_read_source *src = calloc((size_t)slot->place_count + 1, sizeof *src);
    if (src == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "has more tensors than fit in memory here");
    }
    for (uint32_t i = 0; i < slot->place_count; i++) {
        const struct wf_el_place *place = &slot->places[i];
        const struct wf_tensor tensor = tensor_of(source, i);
        if (tensor.kind != WF_TENSOR_WEIGHTS && place->len_bytes == 0) {
            continue; /* not listed by its host, and never read */
        }
        uint64_t len =
            place->region < slot->remote_count ? slot->remotes[place->region]->len_bytes : 0;
        if (place->len_bytes != tensor.bytes || place->offset > len ||
            place->len_bytes > len - place->offset) {
            free(src);
            return wf_error_set(error, WF_PROTOCOL,
                                "placed tensor %s at byte %llu (%llu bytes) of region %llu; "
                                "expected %llu bytes inside it",
                                tensor.name, (unsigned long long)place->offset,
                                (unsigned long long)place->len_bytes,
                                (unsigned long long)place->region,
                                (unsigned long long)tensor.bytes);
        }
        src[i] = (struct wf_read_source){.remote = slot->remotes[place->region],
                                         .offset = place->offset,
                                         .len_bytes = place->len_bytes,
                                         .dtype = tensor.dtype};
    }
    slot->src = src;
    return WF_OK;
}

static enum wf_status start_import(struct receiver_source *source,
                                   const struct wf_frame_peer_region *frame, int *fd,
                                   struct wf_error *error)
{
    struct receiver_slot *slot = &source->slots[frame->slot];
    struct receiver_import *open = calloc(1, sizeof *open);
    struct wf_remote **remotes =
        realloc(slot->remotes, (slot->remote_count + 1) * sizeof *slot->remotes);
    slot->remotes = remotes != NULL ? remotes : slot->remotes;
    if (open == NULL || remotes == NULL) {
        free(open);
        return wf_error_set(error, WF_NO_MEMORY, "has more regions than fit in memory here");
    }
    open->source = source;
    open->next = source->imports;
    source->imports = open;
    open->slot = (uint32_t)frame->slot;
    open->index = slot->remote_count;
    slot->remotes[slot->remote_count++] = NULL;
    open->import = (struct wf_import){.done = {.kind = WF_IMPORT_DONE},
                                      .owner = &source->receiver->actor,
                                      .handle = {.len = frame->handle_len, .fd = *fd},
                                      .len_bytes = frame->len_bytes};
    memcpy(open->import.handle.bytes, frame->handle, frame->handle_len);
    *fd = -1; /* the transport takes it */
    source->receiver->open_imports++;
    source->transport->ops->import_region(source->transport, &open->import);
    return WF_OK;
}

static enum wf_status take_region(struct receiver_source *source,
                                  const struct wf_frame_peer_region *frame, int *fd,
                                  struct wf_error *error)
{
    struct receiver_slot *slot = &source->slots[frame->slot];
    struct wf_transport *transport = receiver_route_find(source, frame->transport);
    if (transport == NULL || (source->transport != NULL && source->transport != transport)) {
        return wf_error_set(error, WF_PROTOCOL,
                            "offered transport \"%s\", which it was not asked for",
                            frame->transport);
    }
    source->transport = transport;
    if (!slot->placed || slot->complete || frame->index != slot->remote_count) {
        char expected[64];
        snprintf(expected, sizeof expected, "region %u", slot->remote_count);
        return wf_error_set(error, WF_PROTOCOL,
                            "sent region %llu of slot %llu out of turn: expected %s",
                            (unsigned long long)frame->index, (unsigned long long)frame->slot,
                            !slot->placed    ? "the places of its tensors first"
                            : slot->complete ? "no more, the last one was there"
                                             : expected);
    }
    slot->complete = frame->last;
    return start_import(source, frame, fd, error);
}

/* All that was announced is here: the source can be read. */
static enum wf_status become_ready(struct receiver_source *source, struct wf_error *error)
{
    bool complete = source->imports == NULL;
    for (uint32_t i = 0; i < source->slot_count; i++) {
        complete = complete && source->slots[i].complete;
    }
    if (!complete || source->state != SOURCE_GREETED) {
        return WF_OK;
    }
    for (uint32_t i = 0; i < source->slot_count; i++) {
        enum wf_status status = resolve(source, &source->slots[i], error);
        if (status != WF_OK) {
            return status;
        }
    }
    source->state = SOURCE_READY;
    source->retry_ns = RECEIVER_RETRY_MIN_NS;
    wf_timer_cancel(loop_of(source), &source->timer);
    receiver_round_ready(source);
    return WF_OK;
}

static void lose_for(struct receiver_source *source, enum wf_status status,
                     const struct wf_error *error)
{
    char why[WF_REASON_MAX];
    snprintf(why, sizeof why, "%.*s", WF_REASON_MAX - 1, error->text);
    receiver_source_lose(source, status, why);
}

static void take_import(struct receiver_source *source, struct receiver_import *open)
{
    struct wf_import *import = &open->import;
    struct receiver_import **link = &source->imports;
    while (*link != open) {
        link = &(*link)->next;
    }
    *link = open->next;
    source->slots[open->slot].remotes[open->index] = import->remote;
    if (import->status != WF_OK) {
        char why[WF_REASON_MAX];
        snprintf(why, sizeof why, "region %u: %.380s", open->index, import->error.text);
        next_transport(source, import->status, why);
        return;
    }
    enum wf_status status = become_ready(source, &import->error);
    if (status != WF_OK) {
        lose_for(source, status, &import->error);
    }
}

void receiver_source_imported(struct wf_receiver *receiver, struct wf_msg *msg)
{
    struct receiver_import *open = WF_CONTAINER(msg, struct receiver_import, import.done);
    receiver->open_imports--;
    if (open->source != NULL) {
        take_import(open->source, open);
    } else {
        release(open->import.remote);
    }
    free(open);
}

static void take_refusal(struct receiver_source *source,
                         const struct wf_frame_peer_refused *refused)
{
    if (source->state == SOURCE_READY) {
        struct wf_frame frame = {.type = WF_FRAME_peer_refused, .peer_refused = *refused};
        receiver_round_frame(source, &frame);
        return;
    }
    char why[WF_REASON_MAX];
    snprintf(why, sizeof why, "refused this reader: %.250s%s%.100s", refused->text,
             source->barred != 0 ? "; " : "", source->barred_why);
    receiver_route_forget(source);
    receiver_source_lose(source, refused->status == WF_AGAIN ? WF_AGAIN : WF_REFUSED, why);
}

static void take_frame(struct receiver_source *source, const struct wf_frame *frame, int *fd)
{
    struct wf_error error = {.status = WF_OK};
    enum wf_status status = WF_OK;
    /* When all is here, one more place or region is refused by the same sentences. */
    bool greeted = source->state == SOURCE_GREETED || source->state == SOURCE_READY;
    if (frame->type == WF_FRAME_peer_refused) {
        take_refusal(source, &frame->peer_refused);
    } else if (source->state == SOURCE_CONNECTING) {
        status = shake_hands(source, frame, &error);
    } else if (frame->type == WF_FRAME_peer_places && greeted) {
        status = take_places(source, &frame->peer_places, &error);
    } else if (frame->type == WF_FRAME_peer_region && greeted) {
        status = take_region(source, &frame->peer_region, fd, &error);
    } else if (source->state == SOURCE_READY) {
        receiver_round_frame(source, frame);
    } else {
        status = wf_error_set(&error, WF_PROTOCOL, "sent a %s frame that cannot come now",
                              wf_frame_name(frame->type));
    }
    if (status != WF_OK) {
        lose_for(source, status, &error);
    }
}

void receiver_source_event(struct receiver_source *source, struct wf_wire_msg *msg)
{
    if (msg->msg.kind == WF_WIRE_CLOSED) {
        char why[WF_REASON_MAX];
        bool connecting = source->state == SOURCE_CONNECTING;
        snprintf(why, sizeof why, "%s: %.255s",
                 connecting ? "cannot be reached" : "closed its connection", msg->text);
        source->conn = 0;
        char next[WF_ADDRESS_MAX];
        if (connecting && receiver_route_address(source, source->address_number + 1, next)) {
            source->address_number++;
            try_addresses(source);
        } else {
            receiver_source_lose(source, WF_PEER_LOST, why);
        }
    } else if (msg->msg.kind == WF_WIRE_FRAME) {
        struct wf_frame frame;
        struct wf_error error;
        if (wf_frame_decode(msg->bytes, msg->len_bytes, &frame, &error) != WF_OK) {
            receiver_source_lose(source, WF_PROTOCOL, error.text);
            return;
        }
        take_frame(source, &frame, &msg->fd);
        wf_frame_fini(&frame);
    }
}

struct receiver_source *receiver_source_new(struct wf_receiver *receiver)
{
    struct receiver_source *source = calloc(1, sizeof *source);
    WF_ASSERT(source != NULL);
    source->receiver = receiver;
    source->timer.fire = timer_fired;
    source->retry_ns = RECEIVER_RETRY_MIN_NS;
    source->read.done.kind = WF_READ_DONE;
    source->read.owner = &receiver->actor;
    return source;
}

void receiver_source_free(struct receiver_source *source)
{
    struct wf_env *env = env_of(source);
    if (source->conn != 0) {
        env->ops->close(env, source->conn);
    }
    wf_timer_cancel(loop_of(source), &source->timer);
    orphan_imports(source);
    receiver_source_release(source);
    wf_digests_free(source->digests);
    free(source->reads);
    free(source);
}
