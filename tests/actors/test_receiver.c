/* test_receiver.c - a Receiver between sources that lie, are silent, or come late. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/receiver.h"
#include "tests/actors/stage.h"

static const struct stage_options plain = {
    .train = "megatron:tp=1", .infer = "vllm:tp=1", .share_memory = true};

/* A source that the test plays, on the train rank's loop; `lie` picks how it is wrong. */
enum lie {
    LIE_SILENT,
    LIE_REFUSES,
    LIE_NOT_A_FRAME,
    LIE_SERVERS_FRAME,
    LIE_FEWER_PLACES,
    LIE_PLACE_OUTSIDE,
    LIE_PLACE_OVERFLOWS,
    LIE_PLACE_TOO_SMALL,
    LIE_NO_SUCH_REGION,
    LIE_PLACES_TWICE,
    LIE_PLACES_GAP,
    LIE_MORE_PLACES,
    LIE_NO_MORE_PLACES,
    LIE_SLOT_BEYOND,
    LIE_OTHER_COUNT,
    LIE_REGION_FIRST,
    LIE_REGION_AFTER_LAST,
    LIE_REGION_NUMBER,
    LIE_REGION_BAD,
    LIE_TRANSPORT,
    LIE_EARLY_GRANT,
    LIE_OTHER_SLOT,
    LIE_OTHER_ROUND,
    LIE_DIGEST,
    LIE_CHUNK_COUNT,
};

struct liar {
    struct wf_actor actor;
    struct stage *stage;
    enum lie lie;
    uint64_t listener, conn;
    struct wf_handle handle;
};

static struct wf_env *env_of(struct liar *liar)
{
    return stage_train(liar->stage, 0)->env;
}

static void say(struct liar *liar, enum wf_frame_type type, const void *fields, int fd)
{
    cr_assert_eq(wf_frame_send(env_of(liar), liar->conn, type, fields, fd), WF_OK, "lie %d",
                 (int)liar->lie);
}

static void send_places(struct liar *liar)
{
    const struct stage_rank *rank = stage_train(liar->stage, 0);
    uint32_t count = rank->rank.layout->tensor_count;
    struct wf_el_place *list = calloc(count, sizeof *list);
    for (uint32_t i = 0; i < count; i++) {
        list[i] =
            (struct wf_el_place){0, rank->tensors[i].offset, rank->rank.layout->tensors[i].bytes};
    }
    struct wf_frame_peer_places places = {.slot = liar->lie == LIE_SLOT_BEYOND ||
                                                  liar->lie == LIE_OTHER_COUNT,
                                          .places = list,
                                          .places_count = count,
                                          .last = 1,
                                          .slots = 1 + (liar->lie == LIE_OTHER_COUNT)};
    struct wf_el_place *last = &list[count - 1];
    places.places_count -= liar->lie == LIE_FEWER_PLACES;
    last->offset += liar->lie == LIE_PLACE_OUTSIDE ? rank->memory.len_bytes : 0;
    last->offset = liar->lie == LIE_PLACE_OVERFLOWS ? UINT64_MAX - 3 : last->offset;
    last->len_bytes -= liar->lie == LIE_PLACE_TOO_SMALL;
    last->region = liar->lie == LIE_NO_SUCH_REGION ? 7 : 0;
    if (liar->lie == LIE_PLACES_GAP || liar->lie == LIE_MORE_PLACES ||
        liar->lie == LIE_NO_MORE_PLACES) {
        places.last = 0;
        places.places_count = 1;
        say(liar, WF_FRAME_peer_places, &places, -1);
        places.first = liar->lie == LIE_PLACES_GAP ? 2 : 1;
        places.places_count = liar->lie == LIE_MORE_PLACES ? count : 0;
    }
    say(liar, WF_FRAME_peer_places, &places, -1);
    if (liar->lie == LIE_PLACES_TWICE || liar->lie == LIE_OTHER_COUNT) {
        places.slot = 0;
        places.slots = 1;
        say(liar, WF_FRAME_peer_places, &places, -1);
    }
    free(list);
}

static void send_region(struct liar *liar, int fd)
{
    struct wf_frame_peer_region region = {
        .index = liar->lie == LIE_REGION_NUMBER,
        .handle_len = liar->handle.len,
        .len_bytes = stage_train(liar->stage, 0)->memory.len_bytes - (liar->lie == LIE_REGION_BAD),
        .last = 1};
    snprintf(region.transport, sizeof region.transport, "%s",
             liar->lie == LIE_TRANSPORT ? "pigeon" : "shm");
    memcpy(region.handle, liar->handle.bytes, liar->handle.len);
    say(liar, WF_FRAME_peer_region, &region, fd);
}

static void on_hello(struct liar *liar)
{
    const struct wf_frame_peer_refused refused = {.status = WF_DISAGREE, .text = "not today"};
    const struct wf_frame_heartbeat heartbeat = {0};
    switch (liar->lie) {
    case LIE_SILENT:
        return;
    case LIE_REFUSES:
        say(liar, WF_FRAME_peer_refused, &refused, -1);
        return;
    case LIE_NOT_A_FRAME:
        env_of(liar)->ops->send(env_of(liar), liar->conn, "\x81", 1, -1);
        return;
    case LIE_SERVERS_FRAME:
        say(liar, WF_FRAME_heartbeat, &heartbeat, -1);
        return;
    case LIE_REGION_FIRST:
        send_region(liar, liar->handle.fd);
        return;
    case LIE_EARLY_GRANT:
        say(liar, WF_FRAME_grant, &(struct wf_frame_grant){0}, -1);
        return;
    case LIE_REGION_AFTER_LAST:
        send_places(liar);
        send_region(liar, liar->handle.fd);
        send_region(liar, -1); /* the descriptor went along with the first */
        return;
    default:
        send_places(liar);
        send_region(liar, liar->handle.fd);
    }
}

static void on_request(struct liar *liar, const struct wf_frame *frame)
{
    struct wf_round_key key = frame->grant_request.round; /* the first field of every request */
    if (frame->type == WF_FRAME_grant_request) {
        struct wf_frame_grant grant = {.round = key, .slot = liar->lie == LIE_OTHER_SLOT};
        grant.round.attempt += liar->lie == LIE_OTHER_ROUND;
        say(liar, WF_FRAME_grant, &grant, -1);
    } else if (frame->type == WF_FRAME_digest_request) {
        const struct wf_receiver *receiver = stage_infer(liar->stage, 0)->rank.receiver;
        struct wf_frame_digest digest = {.round = key,
                                         .chunks = wf_digests_count(receiver->sources[0]->digests)};
        digest.chunks += liar->lie == LIE_CHUNK_COUNT;
        say(liar, WF_FRAME_digest, &digest, -1);
    } else if (frame->type == WF_FRAME_chunks_request) {
        struct wf_frame_chunks chunks = {.round = key, .last = 1};
        say(liar, WF_FRAME_chunks, &chunks, -1);
    }
}

static enum wf_verdict play(struct wf_actor *self, struct wf_msg *msg)
{
    struct liar *liar = WF_CONTAINER(self, struct liar, actor);
    struct wf_wire_msg *wire = (struct wf_wire_msg *)msg;
    if (msg->kind == WF_WIRE_OPENED) {
        liar->conn = wire->conn;
        const struct wf_frame_challenge challenge = {.proto_min = WF_PROTOCOL_MIN,
                                                     .proto_max = WF_PROTOCOL_MAX};
        say(liar, WF_FRAME_challenge, &challenge, -1);
    } else if (msg->kind == WF_WIRE_FRAME && wire->conn == liar->conn) {
        struct wf_frame frame;
        struct wf_error error;
        cr_assert_eq(wf_frame_decode(wire->bytes, wire->len_bytes, &frame, &error), WF_OK);
        if (frame.type == WF_FRAME_peer_hello) {
            on_hello(liar);
        } else {
            on_request(liar, &frame);
        }
        wf_frame_fini(&frame);
    }
    return WF_FREE;
}

static void open_liar(struct stage *stage, struct liar *liar, enum lie lie)
{
    struct stage_rank *rank = stage_train(stage, 0);
    struct wf_error error;
    memset(liar, 0, sizeof *liar);
    liar->stage = stage;
    liar->lie = lie;
    wf_actor_init(&liar->actor, rank->rank.loop, "liar", play);
    struct wf_transport *transport = rank->transports[0];
    cr_assert_eq(transport->ops->export_region(transport, &rank->memory, &liar->handle, &error),
                 WF_OK);
    cr_assert_eq(rank->env->ops->listen(rank->env, &liar->actor, "unix:@weft-liar-*",
                                        rank->rank.address, &liar->listener, &error),
                 WF_OK, "%s", error.text);
}

static void close_liar(struct liar *liar)
{
    env_of(liar)->ops->close(env_of(liar), liar->listener);
    if (liar->conn != 0) {
        env_of(liar)->ops->close(env_of(liar), liar->conn);
    }
    wf_actor_close(&liar->actor);
    wf_actor_fini(&liar->actor);
}

/* `status`: of READ_DONE; a source that may come back is waited for until the deadline. */
static const struct {
    const char *name;
    enum lie lie;
    enum wf_status status;
    const char *says;
} rows[] = {
    {"is silent", LIE_SILENT, WF_TIMED_OUT, "could not be read from by infer rank 0 within 1 s"},
    {"refuses", LIE_REFUSES, WF_REFUSED, "not today"},
    {"sends no frame", LIE_NOT_A_FRAME, WF_PROTOCOL, ""},
    {"plays the server", LIE_SERVERS_FRAME, WF_PROTOCOL, "heartbeat frame that cannot come now"},
    {"has fewer places", LIE_FEWER_PLACES, WF_PROTOCOL, "places for its"},
    {"has a place outside", LIE_PLACE_OUTSIDE, WF_PROTOCOL, "placed tensor"},
    {"has a place that overflows", LIE_PLACE_OVERFLOWS, WF_PROTOCOL, "placed tensor"},
    {"has a place that is too small", LIE_PLACE_TOO_SMALL, WF_PROTOCOL, "placed tensor"},
    {"has a place in no region", LIE_NO_SUCH_REGION, WF_PROTOCOL, "placed tensor"},
    {"places a slot twice", LIE_PLACES_TWICE, WF_PROTOCOL, "sent the places of its slot 0 twice"},
    {"leaves places out", LIE_PLACES_GAP, WF_PROTOCOL, "out of turn: those from 2 on, after 1"},
    {"has more places", LIE_MORE_PLACES, WF_PROTOCOL, "expected one for each"},
    {"never comes to the last place", LIE_NO_MORE_PLACES, WF_PROTOCOL, "expected one for each"},
    {"places a slot that it does not have", LIE_SLOT_BEYOND, WF_PROTOCOL,
     "sent places of slot 1 and has 1 slots"},
    {"has one slot less than it said", LIE_OTHER_COUNT, WF_PROTOCOL,
     "has 1 slots, and said 2 before"},
    {"begins with a region", LIE_REGION_FIRST, WF_PROTOCOL,
     "region 0 of slot 0 out of turn: expected the places of its tensors first"},
    {"counts regions from 1", LIE_REGION_NUMBER, WF_PROTOCOL,
     "region 1 of slot 0 out of turn: expected region 0"},
    {"has a region after its last", LIE_REGION_AFTER_LAST, WF_PROTOCOL,
     "region 0 of slot 0 out of turn: expected no more"},
    {"has a handle of another region", LIE_REGION_BAD, WF_PROTOCOL,
     "cannot be used: shm: region 0"},
    {"has another transport", LIE_TRANSPORT, WF_PROTOCOL, "\"pigeon\""},
    {"grants before it is asked", LIE_EARLY_GRANT, WF_PROTOCOL, "grant frame that cannot come"},
    {"grants a slot that is not there", LIE_OTHER_SLOT, WF_PROTOCOL, "granted a slot"},
    {"grants another round", LIE_OTHER_ROUND, WF_TIMED_OUT, "did not grant version 1.1.1"},
    {"has another digest", LIE_DIGEST, WF_DIGEST, "another digest"},
    {"counts other chunks", LIE_CHUNK_COUNT, WF_DIGEST, "another digest"},
};

Test(receiver, a_source_that_lies_is_named)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct stage stage;
        struct liar liar;
        stage_open(&stage, &plain);
        open_liar(&stage, &liar, rows[i].lie);
        stage_plan(&stage);
        struct stage_rank *rank = stage_infer(&stage, 0);
        struct wf_round_key key = stage_key(&stage, 1, 1);
        stage_send(rank, wf_receiver_actor(rank->rank.receiver), WF_LOCAL_READ, &key,
                   rank->env->ops->now_ns(rank->env) + 1000 * 1000 * 1000);
        struct wf_local_msg *done = stage_wait(&stage, rank, WF_LOCAL_READ_DONE);
        cr_assert_not_null(done, "%s", rows[i].name);
        cr_assert_eq(done->status, rows[i].status, "%s: %s: %s", rows[i].name,
                     wf_status_name(done->status), done->error.text);
        cr_assert_eq(strncmp(done->error.text, "train rank 0 (host here) ", 25), 0, "%s: %s",
                     rows[i].name, done->error.text);
        cr_assert_not_null(strstr(done->error.text, rows[i].says), "%s: %s", rows[i].name,
                           done->error.text);
        cr_assert_eq(done->culprit.side, WF_TRAIN, "%s", rows[i].name);
        cr_assert_not(rank->rank.receiver->staged, "%s", rows[i].name);
        stage_drop(done);
        close_liar(&liar);
        stage_close(&stage);
    }
}
