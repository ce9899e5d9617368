/* sender_peer.c - the Sender's connections: hello checked, regions sent, requests answered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/sender.h"

static struct wf_env *env_of(const struct wf_sender *sender)
{
    return wf_loop_env(sender->rank->loop);
}

static struct sender_peer *find_peer(const struct wf_sender *sender, uint64_t conn)
{
    struct sender_peer *peer = sender->peers[conn % SENDER_BUCKETS];
    while (peer != NULL && peer->conn != conn) {
        peer = peer->next;
    }
    return peer;
}

static void drop(struct sender_peer *peer)
{
    struct wf_sender *sender = peer->sender;
    struct sender_peer **link = &sender->peers[peer->conn % SENDER_BUCKETS];
    while (*link != peer) {
        link = &(*link)->next;
    }
    *link = peer->next;
    sender->peer_count--;
    sender->looker_count -= peer->state == PEER_LOOKING;
    wf_timer_cancel(sender->rank->loop, &peer->timer);
    struct wf_env *env = env_of(sender);
    env->ops->close(env, peer->conn);
    free(peer);
}

bool sender_peer_send(struct sender_peer *peer, enum wf_frame_type type, const void *fields, int fd)
{
    enum wf_status status = wf_frame_send(env_of(peer->sender), peer->conn, type, fields, fd);
    if (status != WF_OK) {
        drop(peer);
    }
    return status == WF_OK;
}

static bool refuse(struct sender_peer *peer, enum wf_status status, const char *text)
{
    struct wf_frame_peer_refused frame = {.round = peer->key, .status = status};
    snprintf(frame.text, sizeof frame.text, "%s", text);
    return sender_peer_send(peer, WF_FRAME_peer_refused, &frame, -1);
}

void sender_peer_refuse(struct sender_peer *peer, enum wf_status status, const char *text)
{
    if (refuse(peer, status, text)) {
        drop(peer);
    }
}

void sender_peer_wait(struct sender_peer *peer, const char *name, uint64_t timeout_ns)
{
    struct wf_loop *loop = peer->sender->rank->loop;
    peer->timer.name = name;
    wf_timer_arm(loop, &peer->timer, wf_loop_now_ns(loop) + timeout_ns);
}

static void waited_too_long(struct wf_timer *timer)
{
    struct sender_peer *peer = WF_CONTAINER(timer, struct sender_peer, timer);
    char text[WF_REASON_MAX];
    snprintf(text, sizeof text, "%s rank %u waited too long for %s",
             wf_side_name(peer->sender->rank->options.side), peer->sender->rank->options.rank,
             timer->name);
    if (peer->state != PEER_AGREED) {
        sender_peer_refuse(peer, WF_TIMED_OUT, text);
        return;
    }
    peer->asks_grant = peer->asks_digest = peer->asks_chunks = false;
    refuse(peer, WF_TIMED_OUT, text);
}

static void refuse_one_more(struct wf_sender *sender, const struct wf_wire_msg *msg)
{
    struct wf_env *env = env_of(sender);
    struct wf_frame_peer_refused frame = {.status = WF_AGAIN};
    snprintf(frame.text, sizeof frame.text,
             "%s rank %u has %d connections, as many as it takes: one must end first",
             wf_side_name(sender->rank->options.side), sender->rank->options.rank,
             SENDER_PEERS_MAX);
    wf_refusals_log(&sender->refusals, sender->rank->loop, msg->text, frame.text);
    wf_frame_send(env, msg->conn, WF_FRAME_peer_refused, &frame, -1); /* then it is closed anyway */
    env->ops->close(env, msg->conn);
}

void sender_peer_opened(struct wf_sender *sender, const struct wf_wire_msg *msg)
{
    struct wf_env *env = env_of(sender);
    if (sender->closing) {
        env->ops->close(env, msg->conn);
        return;
    }
    if (sender->peer_count >= SENDER_PEERS_MAX) {
        refuse_one_more(sender, msg);
        return;
    }
    struct sender_peer *peer = calloc(1, sizeof *peer);
    WF_ASSERT(peer != NULL);
    peer->sender = sender;
    peer->conn = msg->conn;
    peer->timer.fire = waited_too_long;
    struct sender_peer **bucket = &sender->peers[msg->conn % SENDER_BUCKETS];
    peer->next = *bucket;
    *bucket = peer;
    sender->peer_count++;
    for (uint32_t i = 0; i < sender->listener_count; i++) {
        peer->is_unix = peer->is_unix ||
                        (sender->listeners[i].id == msg->listener && sender->listeners[i].is_unix);
    }
    sender_peer_wait(peer, "the reader's hello", sender->rank->options.timeouts.connect_ns);
    snprintf(peer->address, sizeof peer->address, "%.*s", SENDER_ADDRESS_TEXT - 1, msg->text);
    wf_handshake_open(&peer->handshake, env, peer->conn, &sender->rank->token, 0);
}

void sender_peer_closed(struct wf_sender *sender, const struct wf_wire_msg *msg)
{
    struct sender_peer *peer = find_peer(sender, msg->conn);
    if (peer != NULL) {
        if (!peer->handshake.done && msg->status != WF_CLOSED) {
            wf_refusals_log(&sender->refusals, sender->rank->loop, peer->address, msg->text);
        }
        drop(peer);
    }
}

void sender_peers_drop(struct wf_sender *sender)
{
    for (uint32_t i = 0; i < SENDER_BUCKETS; i++) {
        while (sender->peers[i] != NULL) {
            drop(sender->peers[i]);
        }
    }
}

/* --- the hello
 * ------------------------------------------------------------------------------------ */

/* What does not depend on a plan. */
static enum wf_status check_identity(const struct wf_sender *sender,
                                     const struct wf_frame_prove *proven,
                                     const struct wf_frame_peer_hello *hello,
                                     struct wf_error *error)
{
    if (sender->rank->token.is_set &&
        (proven->rank != hello->rank || proven->incarnation != hello->incarnation)) {
        return wf_error_set(error, WF_REFUSED,
                            "the hello names another process than the proof before it");
    }
    const struct wf_rank_options *options = &sender->rank->options;
    const char *side = wf_side_name(options->side);
    enum wf_status status = wf_protocol_check(hello->proto_min, hello->proto_max, error);
    if (status != WF_OK) {
        return status;
    }
    if (strcmp(hello->job, options->job) != 0) {
        return wf_error_set(error, WF_REFUSED, "this is job \"%s\", not \"%s\"", options->job,
                            hello->job);
    }
    if (hello->source_rank != options->rank) {
        return wf_error_set(error, WF_REFUSED, "this is %s rank %u, not %llu", side, options->rank,
                            (unsigned long long)hello->source_rank);
    }
    if (hello->source_incarnation != sender->rank->incarnation) {
        return wf_error_set(error, WF_STALE,
                            "%s rank %u was restarted: infer rank %llu knows its earlier life",
                            side, options->rank, (unsigned long long)hello->rank);
    }
    return WF_OK;
}

/* AGAIN: a plan that is on its way may know this reader. */
static enum wf_status check_plan(const struct wf_sender *sender,
                                 const struct wf_frame_peer_hello *hello,
                                 const struct wf_edge **edge_out, struct wf_error *error)
{
    const struct wf_agreed *agreed = sender->agreed;
    const struct wf_rank_options *options = &sender->rank->options;
    uint32_t rank = options->rank, own = 0, target = UINT32_MAX;
    const char *side = wf_side_name(options->side);
    unsigned long long reader = (unsigned long long)hello->rank;
    if (agreed != NULL) {
        own = wf_agreed_position(agreed, WF_TRAIN, options->side, rank);
        target = wf_agreed_position(agreed, WF_INFER, WF_INFER, hello->rank);
    }
    if (target == UINT32_MAX ||
        agreed->members.members.peers[agreed->train_ranks + target].incarnation !=
            hello->incarnation) {
        return wf_error_set(error, WF_AGAIN, "a plan with this life of infer rank %llu", reader);
    }
    char theirs[WF_HASH_TEXT], ours[WF_HASH_TEXT];
    bool same_input = wf_hash_equal(hello->input, agreed->plan->input_hash);
    if (!same_input && options->side == WF_INFER) {
        return wf_error_set(error, WF_AGAIN, "the plan of the fill that infer rank %llu wants",
                            reader); /* what is here may be of the last one */
    }
    if (!same_input) {
        wf_hash_format(hello->input, theirs);
        wf_hash_format(agreed->plan->input_hash, ours);
        return wf_error_set(error, WF_DISAGREE,
                            "infer rank %llu planned from input %s, %s rank %u from %s", reader,
                            theirs, side, rank, ours);
    }
    for (uint32_t i = 0; i < agreed->plan->edge_count; i++) {
        const struct wf_edge *edge = &agreed->plan->edges[i];
        if (edge->src_rank != own || edge->dst_rank != target) {
            continue;
        }
        if (wf_hash_equal(hello->edge, edge->hash)) {
            *edge_out = edge;
            return WF_OK;
        }
        wf_hash_format(hello->edge, theirs);
        wf_hash_format(edge->hash, ours);
        return wf_error_set(error, WF_DISAGREE,
                            "infer rank %llu has edge hash %s for what %s rank %u calls %s: "
                            "one of them planned wrongly; use one version of weft",
                            reader, theirs, side, rank, ours);
    }
    return wf_error_set(error, WF_DISAGREE, "%s rank %u has nothing for infer rank %llu", side,
                        rank, reader);
}

static uint64_t slot_count(const struct wf_sender *sender)
{
    uint64_t count = 0;
    for (int i = 0; i < SENDER_SLOTS; i++) {
        count += sender->slots[i].region_count > 0;
    }
    return count;
}

/* False: the peer is gone. */
static bool send_places(struct sender_peer *peer, uint64_t index)
{
    const struct sender_slot *slot = &peer->sender->slots[index];
    uint32_t count = wf_rank_source(peer->sender->rank)->tensor_count, first = 0;
    count += peer->state == PEER_AGREED ? peer->sender->cast_count : 0; /* others know no plan */
    bool open = true;
    do {
        uint32_t left = count - first;
        struct wf_frame_peer_places frame = {.slot = index,
                                             .slots = slot_count(peer->sender),
                                             .first = first,
                                             .places = slot->places + first,
                                             .places_count =
                                                 left < WF_PLACES_FRAME ? left : WF_PLACES_FRAME,
                                             .last = left <= WF_PLACES_FRAME};
        open = sender_peer_send(peer, WF_FRAME_peer_places, &frame, -1);
        first += frame.places_count;
    } while (open && first < count);
    return open;
}

static bool send_slot(struct sender_peer *peer, uint64_t index)
{
    struct wf_sender *sender = peer->sender;
    const struct sender_slot *slot = &sender->slots[index];
    bool open = send_places(peer, index);
    if (!open) {
        return false;
    }
    struct wf_error error;
    const struct wf_handle *handles =
        sender_slots_offer(sender, index, peer->transport, peer->is_unix, &error);
    WF_ASSERT(handles != NULL); /* they were there when the transport was chosen */
    const char *name = sender->rank->options.transports[peer->transport]->ops->name;
    for (uint32_t i = 0; i < slot->region_count && open; i++) {
        struct wf_frame_peer_region region = {.index = i,
                                              .slot = index,
                                              .handle_len = handles[i].len,
                                              .len_bytes = slot->regions[i].len_bytes,
                                              .last = i + 1 == slot->region_count};
        snprintf(region.transport, sizeof region.transport, "%s", name);
        memcpy(region.handle, handles[i].bytes, handles[i].len);
        open = sender_peer_send(peer, WF_FRAME_peer_region, &region, handles[i].fd);
    }
    return open;
}

bool sender_peer_send_slots(struct sender_peer *peer)
{
    bool open = true;
    for (uint64_t i = 0; i < SENDER_SLOTS && open; i++) {
        open = peer->sender->slots[i].region_count == 0 || send_slot(peer, i);
    }
    return open;
}

/* Can this rank's index-th transport offer all its slots to the reader? */
static bool can_offer(struct sender_peer *peer, uint32_t index, struct wf_error *error)
{
    for (uint64_t i = 0; i < SENDER_SLOTS; i++) {
        if (peer->sender->slots[i].region_count > 0 &&
            sender_slots_offer(peer->sender, i, index, peer->is_unix, error) == NULL) {
            wf_error_prefix(error, "%s", peer->sender->rank->options.transports[index]->ops->name);
            return false;
        }
    }
    return true;
}

enum wf_status sender_peer_choose(struct sender_peer *peer, const char *transports, const char *who,
                                  struct wf_error *error)
{
    const struct wf_rank_options *options = &peer->sender->rank->options;
    struct wf_error refusal = {.text = ""};
    char ours[WF_TRANSPORT_NAMES_MAX] = "";
    for (const char *list = transports; *list != '\0';) {
        size_t len = strcspn(list, " ");
        for (uint32_t i = 0; i < options->transport_count; i++) {
            const char *name = options->transports[i]->ops->name;
            if (strlen(name) == len && strncmp(name, list, len) == 0 &&
                can_offer(peer, i, &refusal)) {
                peer->transport = i;
                return WF_OK;
            }
        }
        list += len + (list[len] == ' ');
    }
    for (uint32_t i = 0; i < options->transport_count; i++) {
        size_t used = strlen(ours);
        snprintf(ours + used, sizeof ours - used, "%s%s", i > 0 ? ", " : "",
                 options->transports[i]->ops->name);
    }
    return wf_error_set(error, WF_UNSUPPORTED,
                        "%s can read by: %s; %s rank %u offers: %s%s%.250s; give both the same "
                        "transport.prefer",
                        who, transports, wf_side_name(options->side), options->rank, ours,
                        refusal.text[0] != '\0' ? "; " : "", refusal.text);
}

/* The peer may be gone afterwards. */
static void agree(struct sender_peer *peer)
{
    struct wf_sender *sender = peer->sender;
    struct wf_error error;
    const struct wf_edge *edge;
    enum wf_status status = check_plan(sender, &peer->hello, &edge, &error);
    if (status == WF_AGAIN) {
        return;
    }
    if (status == WF_OK) {
        char who[32];
        snprintf(who, sizeof who, "infer rank %llu", (unsigned long long)peer->hello.rank);
        status = sender_peer_choose(peer, peer->hello.transports, who, &error);
    }
    if (status != WF_OK) {
        sender_peer_refuse(peer, status, error.text);
        return;
    }
    wf_timer_cancel(sender->rank->loop, &peer->timer);
    peer->edge = edge;
    peer->state = PEER_AGREED;
    sender_peer_send_slots(peer);
}

static void take_hello(struct sender_peer *peer, const struct wf_frame_peer_hello *hello)
{
    struct wf_error error;
    enum wf_status status = check_identity(peer->sender, &peer->handshake.prove, hello, &error);
    if (status != WF_OK) {
        sender_peer_refuse(peer, status, error.text);
        return;
    }
    peer->hello = *hello;
    peer->state = PEER_WAITING;
    sender_peer_wait(peer, "a plan that knows the reader",
                     peer->sender->rank->options.timeouts.plan_ns);
    agree(peer);
}

/* Of every connection; `act` may drop the one that it is given. */
static void for_each_peer(struct wf_sender *sender, void (*act)(struct sender_peer *peer))
{
    for (uint32_t i = 0; i < SENDER_BUCKETS; i++) {
        for (struct sender_peer *peer = sender->peers[i], *next; peer != NULL; peer = next) {
            next = peer->next;
            act(peer);
        }
    }
}

static void replan(struct sender_peer *peer)
{
    const struct wf_edge *edge;
    if (peer->state == PEER_WAITING) {
        agree(peer);
    } else if (peer->state == PEER_AGREED) {
        enum wf_status status = check_plan(peer->sender, &peer->hello, &edge, NULL);
        if (status == WF_OK) {
            peer->edge = edge;
        } else {
            drop(peer); /* the reader connects again under its own new plan */
        }
    }
}

void sender_peers_replan(struct wf_sender *sender)
{
    for_each_peer(sender, replan);
}

/* --- requests
 * -------------------------------------------------------------------------------------- */

static bool send_chunks(struct sender_peer *peer, const struct sender_digests *set)
{
    const struct wf_digests *digests = set->digests;
    uint64_t total = wf_digests_count(digests), index = total, chunk;
    if (peer->first_op < digests->op_count) {
        index = digests->first_chunk[peer->first_op] + peer->first_chunk;
        index = index < total ? index : total;
    }
    uint64_t left = total - index;
    uint32_t count = (uint32_t)(left < SENDER_CHUNKS_FRAME ? left : SENDER_CHUNKS_FRAME);
    struct wf_el_chunk *list = calloc((size_t)count + 1, sizeof *list);
    if (list == NULL) {
        return refuse(peer, WF_NO_MEMORY, "no memory for the list of digests");
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t op = wf_digests_op(digests, index + i, &chunk);
        list[i] = (struct wf_el_chunk){op, chunk, digests->chunks[index + i]};
    }
    struct wf_frame_chunks frame = {
        .round = peer->key, .chunks = list, .chunks_count = count, .last = count == left};
    bool open = sender_peer_send(peer, WF_FRAME_chunks, &frame, -1);
    free(list);
    return open;
}

/* Answers what the peer asks, if it can be answered now. False: the peer is gone. */
static bool answer(struct sender_peer *peer)
{
    struct wf_sender *sender = peer->sender;
    bool open = true;
    if (!peer->asks_grant && !peer->asks_digest && !peer->asks_chunks) {
        return true;
    }
    bool current = sender->granted && wf_round_key_equal(&peer->key, &sender->round);
    /* A fill of an older version may follow a newer one's abort: that a key is older than one that
     * was revoked proves nothing. */
    bool over = (sender->granted && wf_round_key_compare(&peer->key, &sender->round) < 0) ||
                wf_round_key_equal(&peer->key, &sender->revoked);
    if (!current && over) {
        char text[WF_REASON_MAX], version[WF_VERSION_TEXT];
        wf_version_format(peer->key.version, version);
        snprintf(text, sizeof text, "attempt %llu of version %s may not be read any more",
                 (unsigned long long)peer->key.attempt, version);
        peer->asks_grant = peer->asks_digest = peer->asks_chunks = false;
        wf_timer_cancel(sender->rank->loop, &peer->timer);
        return refuse(peer, WF_STALE, text);
    }
    if (!current) {
        return true;
    }
    if (peer->asks_grant && sender->prepared) {
        peer->asks_grant = false;
        struct wf_frame_grant grant = {
            .round = peer->key, .slot = sender->slot, .prepare_ns = sender->prepare_ns};
        open = sender_peer_send(peer, WF_FRAME_grant, &grant, -1);
    }
    const struct sender_digests *set =
        open && sender->digested ? sender_digest_find(sender, peer->edge) : NULL;
    if (set != NULL && peer->asks_digest) {
        peer->asks_digest = false;
        struct wf_frame_digest digest = {
            .round = peer->key, .chunks = wf_digests_count(set->digests), .sum = set->sum};
        open = sender_peer_send(peer, WF_FRAME_digest, &digest, -1);
    }
    if (set != NULL && open && peer->asks_chunks) {
        peer->asks_chunks = false;
        open = send_chunks(peer, set);
    }
    if (open && !peer->asks_grant && !peer->asks_digest && !peer->asks_chunks) {
        wf_timer_cancel(sender->rank->loop, &peer->timer);
    }
    return open;
}

static void answer_agreed(struct sender_peer *peer)
{
    if (peer->state == PEER_AGREED) {
        answer(peer);
    }
}

void sender_peers_answer(struct wf_sender *sender)
{
    for_each_peer(sender, answer_agreed);
}

static void take_request(struct sender_peer *peer, const struct wf_round_key *key, bool *asks)
{
    if (!wf_round_key_equal(&peer->key, key)) { /* what was asked for another round is over */
        peer->asks_grant = peer->asks_digest = peer->asks_chunks = false;
        wf_timer_cancel(peer->sender->rank->loop, &peer->timer);
    }
    peer->key = *key;
    *asks = true;
    if (!wf_timer_is_armed(&peer->timer)) {
        sender_peer_wait(peer, "the round that the reader asks for",
                         peer->sender->rank->options.timeouts.round_ns);
    }
    answer(peer);
}

static void take_frame(struct sender_peer *peer, const struct wf_frame *frame)
{
    if (peer->state == PEER_CHALLENGED && frame->type == WF_FRAME_peer_hello) {
        take_hello(peer, &frame->peer_hello);
        return;
    }
    if (frame->type == WF_FRAME_look && peer->state == PEER_CHALLENGED) {
        sender_look_begin(peer, &frame->look);
        return;
    }
    if (frame->type == WF_FRAME_look && peer->state == PEER_LOOKING) {
        sender_look_again(peer);
        return;
    }
    if (peer->state == PEER_AGREED) {
        switch (frame->type) {
        case WF_FRAME_grant_request:
            take_request(peer, &frame->grant_request.round, &peer->asks_grant);
            return;
        case WF_FRAME_digest_request:
            take_request(peer, &frame->digest_request.round, &peer->asks_digest);
            return;
        case WF_FRAME_chunks_request:
            peer->first_op = (uint32_t)frame->chunks_request.first_op;
            peer->first_chunk = (uint32_t)frame->chunks_request.first_chunk;
            take_request(peer, &frame->chunks_request.round, &peer->asks_chunks);
            return;
        default:
            break;
        }
    }
    char text[WF_REASON_MAX];
    snprintf(text, sizeof text, "a %s frame cannot come now", wf_frame_name(frame->type));
    sender_peer_refuse(peer, WF_PROTOCOL, text);
}

void sender_peer_frame(struct wf_sender *sender, const struct wf_wire_msg *msg)
{
    struct sender_peer *peer = find_peer(sender, msg->conn);
    if (peer == NULL) {
        return;
    }
    struct wf_frame frame;
    struct wf_error error;
    if (!peer->handshake.done) {
        enum wf_status status = wf_handshake_check(
            &peer->handshake, env_of(sender), peer->conn, &sender->rank->token,
            sender->rank->options.job, WF_CHANNEL_PEER, msg->bytes, msg->len_bytes, &error);
        if (status != WF_OK) {
            wf_refusals_log(&sender->refusals, sender->rank->loop, peer->address, error.text);
            sender_peer_refuse(peer, status, error.text);
        }
        return;
    }
    if (wf_frame_decode(msg->bytes, msg->len_bytes, &frame, &error) != WF_OK) {
        sender_peer_refuse(peer, WF_PROTOCOL, error.text);
        return;
    }
    take_frame(peer, &frame);
    wf_frame_fini(&frame);
}
