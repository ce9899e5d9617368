/* receiver_round.c - one READ: grants, boxes, digests, verdict. */
#include <stdio.h>
#include <string.h>

#include "actors/receiver.h"

static void version_text(const struct wf_receiver *receiver, char text_out[WF_VERSION_TEXT])
{
    wf_version_format(receiver->round.version, text_out);
}

/* "box 7 of model.layers.3.mlp.down_proj.weight"; empty without such an op */
static void box_text(const struct receiver_source *source, uint32_t op,
                     char text_out[WF_OBJECT_MAX])
{
    const struct wf_model *model = source->receiver->rank->options.model;
    text_out[0] = '\0';
    if (op < source->edge->op_count) {
        uint32_t param = source->edge->ops[op].param;
        snprintf(text_out, WF_OBJECT_MAX, "box %u of %s", op,
                 param < model->param_count ? model->params[param].name : "?");
    }
}

/* --- asking and reading
 * ------------------------------------------------------------------------------- */

static void ask_grant(struct receiver_source *source)
{
    struct wf_frame_grant_request request = {.round = source->receiver->round};
    source->asked = receiver_source_send(source, WF_FRAME_grant_request, &request);
}

void receiver_round_ready(struct receiver_source *source)
{
    if (source->receiver->phase == RECEIVER_READING && !source->asked) {
        ask_grant(source);
    }
}

static void reset(struct receiver_source *source)
{
    source->asked = source->granted = source->read_done = false;
    source->has_digest = source->named = false;
    source->chunks_seen = 0;
}

static void refuse_read(struct wf_receiver *receiver, enum wf_status status, const char *why)
{
    struct wf_local_msg *answer = receiver->answer;
    receiver->answer = NULL;
    const struct wf_rank_options *options = &receiver->rank->options;
    answer->status = status;
    answer->culprit.side = options->side;
    answer->culprit.rank = options->rank;
    answer->culprit.engine = options->engine;
    snprintf(answer->culprit.host, sizeof answer->culprit.host, "%s", options->host_name);
    snprintf(answer->culprit.reason, sizeof answer->culprit.reason, "%s", why);
    wf_error_set(&answer->error, status, "infer rank %u %s", options->rank, why);
    receiver_tell(receiver, answer);
}

static void check_complete(struct wf_receiver *receiver);

void receiver_round_start(struct wf_receiver *receiver, const struct wf_local_msg *request)
{
    WF_ASSERT(receiver->phase == RECEIVER_IDLE && receiver->answer == NULL);
    receiver->answer = wf_local_msg_new(WF_LOCAL_READ_DONE, &receiver->actor);
    receiver->answer->round = request->round;
    receiver->staged = receiver->wrote = false;
    bool stored = request->agreed != NULL && request->agreed->of_store;
    if (request->agreed != NULL && !stored) {
        receiver_plan_borrow(receiver, request->agreed);
    }
    if (receiver->agreed == NULL && !stored) {
        refuse_read(receiver, WF_REFUSED, "has no plan for that round");
        return;
    }
    receiver->round = request->round;
    receiver->started_ns = receiver_now_ns(receiver);
    receiver->deadline_ns = request->deadline_ns;
    receiver->granted_ns = receiver->read_ns = receiver->prepare_ns = 0;
    wf_timer_arm(receiver->rank->loop, &receiver->deadline, request->deadline_ns);
    WF_ASSERT(receiver->stored == NULL);
    receiver->stored = stored ? wf_agreed_hold(request->agreed) : NULL;
    receiver_make_room(receiver, stored ? request->agreed : receiver->agreed);
}

void receiver_round_read(struct wf_receiver *receiver)
{
    receiver->phase = RECEIVER_READING;
    if (receiver->stored != NULL) {
        struct wf_agreed *agreed = receiver->stored;
        receiver->stored = NULL;
        receiver_store_start(receiver, agreed);
        wf_agreed_release(agreed);
        return;
    }
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        reset(receiver->sources[i]);
    }
    for (uint32_t i = 0; i < receiver->source_count && receiver->phase == RECEIVER_READING; i++) {
        struct receiver_source *source = receiver->sources[i];
        if (source->state == SOURCE_READY) {
            ask_grant(source);
        } else if (source->state == SOURCE_APART) {
            wf_timer_cancel(receiver->rank->loop, &source->timer);
            receiver_source_connect(source);
        }
    }
    if (receiver->phase == RECEIVER_READING) {
        check_complete(receiver); /* a rank may have no sources at all */
    }
}

static void start_read(struct receiver_source *source)
{
    struct wf_receiver *receiver = source->receiver;
    struct receiver_slot *slot = &source->slots[source->slot];
    struct wf_read *read = &source->read;
    read->ops = source->reads != NULL ? source->reads : source->edge->ops;
    read->op_count = source->edge->op_count;
    read->src = slot->src;
    read->src_count = slot->place_count;
    read->dst = receiver->dst;
    read->dst_count = receiver->make.planned->tensor_count;
    read->deadline_ns = receiver->deadline_ns;
    source->read_open = true;
    source->read_by = source->transport;
    receiver->open_reads++;
    source->read_by->ops->read(source->read_by, read);
    /* Asked now, so that the origin's answer is here when the last box is. */
    struct wf_frame_digest_request request = {.round = receiver->round};
    receiver_source_send(source, WF_FRAME_digest_request, &request);
}

static bool is_mapped(const struct wf_transport *transport)
{
    return (transport->ops->caps & WF_CAP_MAP) != 0;
}

/* A source whose read is done may be without a transport: connected anew, or apart. */
static bool may_start(const struct receiver_source *source, bool mapped)
{
    return source->receiver->phase == RECEIVER_READING && !source->read_open &&
           !source->read_done && is_mapped(source->transport) == mapped;
}

/* Mapped memory: in the order of the plan and RECEIVER_MAPPED_OPEN at a time, not in the order in
 * which grants came: readers of equal engines then read the same bytes at about the same time, and
 * so does the origin that digests them, so that most of these passes find the bytes in the cache.
 * Over a network the opposite is wanted: all sources at once, so that no link idles, and each
 * engine begins with another one, so that they do not all draw on the first. The transport bounds
 * what is in flight. */
static void start_reads(struct wf_receiver *receiver)
{
    uint32_t count = receiver->source_count, mapped = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct receiver_source *source = receiver->sources[i];
        mapped += source->read_open && is_mapped(source->read_by);
    }
    for (uint32_t i = 0; i < count && mapped < RECEIVER_MAPPED_OPEN; i++) {
        struct receiver_source *source = receiver->sources[i];
        if (may_start(source, true)) {
            start_read(source);
            mapped++;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t turned = (i + receiver->rank->options.engine % count) % count;
        struct receiver_source *source = receiver->sources[turned];
        if (may_start(source, false)) {
            start_read(source);
        }
    }
}

static void take_grant(struct receiver_source *source, const struct wf_frame_grant *grant)
{
    uint64_t slot = grant->slot;
    struct wf_receiver *receiver = source->receiver;
    if (receiver->phase != RECEIVER_READING || source->granted || !source->asked) {
        return;
    }
    if (source->slots[slot].src == NULL) {
        receiver_source_lose(source, WF_PROTOCOL, "granted a slot that it does not have");
        return;
    }
    source->granted = true;
    source->slot = slot;
    if (grant->prepare_ns > receiver->prepare_ns) {
        receiver->prepare_ns = grant->prepare_ns;
    }
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        if (!receiver->sources[i]->granted) {
            return; /* without this one the round fails anyway */
        }
    }
    receiver->granted_ns = receiver_now_ns(receiver);
    if (receiver->rank->options.mode == WF_MODE_IN_PLACE) {
        /* Before the first read of a round: padding never travels. */
        wf_layout_write_fills(receiver->rank->layout, receiver->staged_at);
    }
    receiver->wrote = true;
    start_reads(receiver);
}

void receiver_round_read_done(struct receiver_source *source)
{
    struct wf_receiver *receiver = source->receiver;
    const struct wf_read *read = &source->read;
    if (receiver->phase == RECEIVER_READING && read->status == WF_OK) {
        source->read_done = true;
        start_reads(receiver);
        check_complete(receiver);
    } else if (receiver->phase == RECEIVER_READING) {
        char box[WF_OBJECT_MAX], version[WF_VERSION_TEXT];
        box_text(source, read->failed_op, box);
        version_text(receiver, version);
        receiver_fail(receiver, source, read->status, box,
                      "could not be read%s%s of version %s: %.200s", box[0] != '\0' ? ": " : "",
                      box, version, read->text);
    } else {
        receiver_settle(receiver);
    }
}

/* --- verdict
 * ------------------------------------------------------------------------------------------- */

static void check_complete(struct wf_receiver *receiver)
{
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        if (!receiver->sources[i]->read_done || !receiver->sources[i]->has_digest) {
            return;
        }
    }
    receiver->read_ns = receiver_now_ns(receiver);
    receiver->phase = RECEIVER_VALIDATING;
    receiver->validating = true;
    struct wf_validation *validation = &receiver->validation;
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        validation->edges[i].digests = receiver->sources[i]->digests;
    }
    validation->msg = (struct wf_msg){.kind = WF_VALIDATE, .from = &receiver->actor};
    validation->reply_to = &receiver->actor;
    validation->tensors = receiver->staged_at;
    validation->cancelled = false;
    wf_send(wf_validator_actor(receiver->rank->validator), &validation->msg);
}

/* To the figures of the transport that it was read by. */
static void add_edge(struct wf_local_msg *answer, const struct receiver_source *source)
{
    const char *name = source->read_by->ops->name;
    uint32_t i = 0;
    while (i < answer->transport_count && strcmp(answer->transports[i].name, name) != 0) {
        i++;
    }
    struct wf_el_transport *figures = &answer->transports[i];
    if (i == answer->transport_count) {
        snprintf(figures->name, sizeof figures->name, "%s", name);
        answer->transport_count++;
    }
    figures->edges++;
    figures->bytes += source->read.bytes;
}

/* What every round has; what was read is added by who knows. What a source prepared while its grant
 * was awaited is transfer. */
static void fill_times(struct wf_receiver *receiver)
{
    struct wf_local_msg *answer = receiver->answer;
    uint64_t granted_ns = receiver->granted_ns != 0 ? receiver->granted_ns : receiver->started_ns;
    uint64_t waited_ns = granted_ns - receiver->started_ns;
    granted_ns -= receiver->prepare_ns < waited_ns ? receiver->prepare_ns : waited_ns;
    answer->grant_ns = granted_ns - receiver->started_ns;
    answer->transfer_ns = receiver->read_ns - granted_ns;
    answer->verify_ns = receiver_now_ns(receiver) - receiver->read_ns;
    receiver_trace(receiver, "transfer", granted_ns, receiver->read_ns);
    receiver_trace(receiver, "verify", receiver->read_ns, receiver_now_ns(receiver));
}

static void fill_numbers(struct wf_receiver *receiver)
{
    struct wf_local_msg *answer = receiver->answer;
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        answer->bytes += receiver->sources[i]->read.bytes;
        add_edge(answer, receiver->sources[i]);
    }
}

/* The sums differ: the origin's list says where. */
static void ask_chunks(struct receiver_source *source)
{
    struct wf_frame_chunks_request request = {.round = source->receiver->round};
    if (source->chunks_seen > 0) {
        uint64_t chunk;
        request.first_op = wf_digests_op(source->digests, source->chunks_seen, &chunk);
        request.first_chunk = chunk;
    }
    receiver_source_send(source, WF_FRAME_chunks_request, &request);
}

void receiver_round_end_good(struct wf_receiver *receiver)
{
    wf_timer_cancel(receiver->rank->loop, &receiver->deadline);
    receiver->staged = true;
    receiver->phase = RECEIVER_IDLE;
    struct wf_local_msg *answer = receiver->answer;
    receiver->answer = NULL;
    receiver_tell(receiver, answer);
    receiver_settle(receiver);
}

void receiver_round_validated(struct wf_receiver *receiver)
{
    if (receiver->phase != RECEIVER_VALIDATING) {
        receiver_settle(receiver);
        return;
    }
    if (receiver->store.agreed != NULL) {
        if (receiver_store_validated(receiver)) {
            receiver_store_end(receiver);
            fill_times(receiver);
            receiver_make_start(receiver);
        }
        return;
    }
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        if (!receiver->validation.edges[i].matches) {
            receiver->phase = RECEIVER_NAMING;
            ask_chunks(receiver->sources[i]);
            return;
        }
    }
    fill_times(receiver);
    fill_numbers(receiver);
    receiver_make_start(receiver);
}

static void take_digest(struct receiver_source *source, const struct wf_frame_digest *digest)
{
    struct wf_receiver *receiver = source->receiver;
    if (receiver->phase != RECEIVER_READING || !source->granted || source->has_digest) {
        return;
    }
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        if (receiver->sources[i] == source) {
            receiver->validation.edges[i].origin_chunks = digest->chunks;
            receiver->validation.edges[i].origin_sum = digest->sum;
        }
    }
    source->has_digest = true;
    check_complete(receiver);
}

static void take_chunks(struct receiver_source *source, const struct wf_frame_chunks *frame)
{
    struct wf_receiver *receiver = source->receiver;
    if (receiver->phase != RECEIVER_NAMING) {
        return;
    }
    uint64_t total = wf_digests_count(source->digests), different;
    uint64_t wrong = wf_validator_compare(source->digests, source->chunks_seen, frame->chunks,
                                          frame->chunks_count, &different);
    source->chunks_seen += frame->chunks_count;
    bool more = !frame->last && frame->chunks_count > 0 && source->chunks_seen < total;
    if (wrong == UINT64_MAX && more) {
        ask_chunks(source);
        return;
    }
    char box[WF_OBJECT_MAX] = "", object[WF_OBJECT_MAX] = "its edge", version[WF_VERSION_TEXT];
    version_text(receiver, version);
    if (wrong != UINT64_MAX) {
        uint64_t chunk;
        uint32_t op = wf_digests_op(source->digests, wrong, &chunk);
        box_text(source, op, box);
        snprintf(object, sizeof object, "chunk %llu of %.240s", (unsigned long long)chunk, box);
    }
    receiver->answer->digest_mismatches = different > 0 ? different : 1;
    receiver_fail(receiver, source, WF_DIGEST, object,
                  "says that %s of version %s has another digest than what infer rank %u wrote "
                  "(%llu chunks of its list differ)",
                  object, version, receiver->rank->options.rank, (unsigned long long)different);
}

static void take_refusal(struct receiver_source *source,
                         const struct wf_frame_peer_refused *refused)
{
    char version[WF_VERSION_TEXT];
    version_text(source->receiver, version);
    bool known = refused->status == WF_STALE || refused->status == WF_TIMED_OUT;
    receiver_fail(source->receiver, source, known ? (enum wf_status)refused->status : WF_REFUSED,
                  "", "refused a reader of version %s: %.250s", version, refused->text);
}

static const struct wf_round_key *key_of(const struct wf_frame *frame)
{
    switch (frame->type) {
    case WF_FRAME_grant:
        return &frame->grant.round;
    case WF_FRAME_digest:
        return &frame->digest.round;
    case WF_FRAME_chunks:
        return &frame->chunks.round;
    case WF_FRAME_peer_refused:
        return &frame->peer_refused.round;
    default:
        return NULL;
    }
}

void receiver_round_frame(struct receiver_source *source, const struct wf_frame *frame)
{
    const struct wf_round_key *key = key_of(frame);
    if (key == NULL) {
        char why[WF_REASON_MAX];
        snprintf(why, sizeof why, "sent a %s frame that cannot come now",
                 wf_frame_name(frame->type));
        receiver_source_lose(source, WF_PROTOCOL, why);
        return;
    }
    if (!wf_round_key_equal(key, &source->receiver->round)) {
        return; /* of a round that is over */
    }
    switch (frame->type) {
    case WF_FRAME_grant:
        take_grant(source, &frame->grant);
        break;
    case WF_FRAME_digest:
        take_digest(source, &frame->digest);
        break;
    case WF_FRAME_chunks:
        take_chunks(source, &frame->chunks);
        break;
    default:
        take_refusal(source, &frame->peer_refused);
        break;
    }
}

/* --- what can go wrong with a source
 * --------------------------------------------------------------------- */

void receiver_round_lost(struct receiver_source *source, enum wf_status status)
{
    struct wf_receiver *receiver = source->receiver;
    bool needed =
        (receiver->phase == RECEIVER_READING && !(source->read_done && source->has_digest)) ||
        receiver->phase == RECEIVER_NAMING;
    /* Before it was asked, only what another try cannot change ends the round. */
    bool may_come_back = !source->asked && (status == WF_PEER_LOST || status == WF_AGAIN ||
                                            status == WF_CONNECTION || status == WF_TIMED_OUT);
    if (needed && !may_come_back) {
        char why[WF_REASON_MAX], version[WF_VERSION_TEXT];
        memcpy(why, source->why, sizeof why);
        version_text(receiver, version);
        receiver_fail(receiver, source, status, "", "was lost while version %s was read: it %.300s",
                      version, why);
    }
}

/* How far a source came in the round: the one that came least far is what everybody waits for. */
enum progress { NOT_ASKED, NOT_GRANTED, NOT_READ, NO_DIGEST, NOT_NAMED, NOT_VERIFIED };

static enum progress progress_of(const struct receiver_source *source, uint32_t index)
{
    const struct wf_receiver *receiver = source->receiver;
    bool differs = receiver->phase == RECEIVER_NAMING && !receiver->validation.edges[index].matches;
    return !source->asked        ? NOT_ASKED
           : !source->granted    ? NOT_GRANTED
           : !source->read_done  ? NOT_READ
           : !source->has_digest ? NO_DIGEST
           : differs             ? NOT_NAMED
                                 : NOT_VERIFIED;
}

static void blame_for_time(struct wf_receiver *receiver, const struct receiver_source *source,
                           enum progress progress)
{
    const double seconds = (double)(receiver->deadline_ns - receiver->started_ns) / 1e9;
    const unsigned reader = receiver->rank->options.rank; /* it may be its connection alone */
    char version[WF_VERSION_TEXT], box[WF_OBJECT_MAX];
    version_text(receiver, version);
    switch (progress) {
    case NOT_ASKED:
        receiver_fail(receiver, source, WF_TIMED_OUT, "",
                      "could not be read from by infer rank %u within %.2g s for version %s: it "
                      "%.200s",
                      reader, seconds, version,
                      source->why[0] != '\0' ? source->why : "did not answer");
        break;
    case NOT_GRANTED:
        receiver_fail(receiver, source, WF_TIMED_OUT, "",
                      "did not grant version %s to infer rank %u within %.2g s", version, reader,
                      seconds);
        break;
    case NOT_READ:
        box_text(source, source->read.failed_op, box);
        receiver_fail(receiver, source, WF_TIMED_OUT, box,
                      "could not be read in time: %s of version %s did not reach infer rank %u "
                      "within %.2g s",
                      box[0] != '\0' ? box : "a box", version, reader, seconds);
        break;
    case NO_DIGEST:
        receiver_fail(receiver, source, WF_TIMED_OUT, "",
                      "did not send infer rank %u its digest of version %s within %.2g s", reader,
                      version, seconds);
        break;
    case NOT_NAMED:
        receiver_fail(receiver, source, WF_DIGEST, "its edge",
                      "has another digest of version %s than what reached infer rank %u, and did "
                      "not list its chunks within %.2g s",
                      version, reader, seconds);
        break;
    default:
        receiver_fail(receiver, source, WF_TIMED_OUT, "",
                      "sent version %s, but infer rank %u did not verify it within %.2g s", version,
                      reader, seconds);
    }
}

void receiver_round_deadline(struct wf_timer *timer)
{
    struct wf_receiver *receiver = WF_CONTAINER(timer, struct wf_receiver, deadline);
    const struct receiver_source *least = NULL;
    enum progress progress = NOT_VERIFIED;
    if (receiver->make.claiming || receiver->phase == RECEIVER_MAKING) {
        receiver_make_late(receiver);
        return;
    }
    if (receiver->phase == RECEIVER_BEFORE || receiver->phase == RECEIVER_AFTER) {
        receiver_hook_late(receiver);
        return;
    }
    if (receiver->store.agreed != NULL) {
        receiver_store_late(receiver);
        return;
    }
    for (uint32_t i = 0; i < receiver->source_count; i++) {
        enum progress here = progress_of(receiver->sources[i], i);
        if (least == NULL || here < progress) {
            least = receiver->sources[i];
            progress = here;
        }
    }
    if (least != NULL) {
        blame_for_time(receiver, least, progress);
    }
}
