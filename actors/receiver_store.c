/* receiver_store.c - one READ from the rank's store of versions instead of from sources.
 *
 *   READING: open (a job) --found--> read, chunk after chunk of the plan's one edge (jobs)
 *            --all read--> VALIDATING --what was written matches--> IDLE, READ_DONE(OK), staged
 *   a failure anywhere --> DRAINING --no job runs--> IDLE, READ_DONE(why)
 *
 * A job reads the bytes of WF_DIGEST_GRAIN chunks, each into a block of memory in the order and
 * dtype that they are digested in, and from there to where they belong. The store has compared what
 * it gives with what was stored; the digests taken here are the origin's in what follows: the
 * Validator reads back what was written, as after any transfer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/receiver.h"
#include "models/copy.h"

#define LOOK_AGAIN_NS UINT64_C(500000000)

/* --- jobs: pool threads ------------------------------------------------------------------------
 */
static void open_work(struct wf_job *job)
{
    struct receiver_store *store =
        (struct receiver_store *)((char *)job - offsetof(struct receiver_store, open_job));
    struct wf_store *from = store->receiver->rank->options.store;
    store->open_status = from->ops->open(from, &store->wanted, &store->stored, &store->open_error);
}

/* An address `bytes` before or behind the given one, of which nothing is read by itself: boxes
 * count from the beginning of tensors of which only a part is here. */
static void *shifted(const void *address, uint64_t bytes)
{
    return (void *)((uintptr_t)address - (uintptr_t)bytes);
}

/* What a chunk is read with. */
struct chunk {
    const struct wf_digest_box *box;
    struct wf_box gather, scatter; /* to and from a block in row-major order */
    struct wf_copy_part part;
    size_t elem_bytes; /* of the target */
};

static void find_chunk(const struct wf_digests *digests, uint64_t index, struct chunk *out)
{
    uint64_t number;
    out->box = &digests->boxes[wf_digests_op(digests, index, &number)];
    out->elem_bytes = wf_dtype_bytes(out->box->dst_dtype);
    uint64_t each = WF_DIGEST_CHUNK_BYTES / out->elem_bytes, first = number * each;
    uint64_t left = out->box->box->elements - first;
    out->part = (struct wf_copy_part){first, left < each ? left : each};
    out->gather = out->scatter = *out->box->box;
    out->gather.dst_offset = out->scatter.src_offset = 0;
    int64_t step = (int64_t)out->elem_bytes;
    for (uint32_t a = out->gather.axis_count; a-- > 0;) {
        out->gather.axes[a].dst_step = out->scatter.axes[a].src_step = step;
        step *= (int64_t)out->gather.axes[a].count;
    }
}

/* Into the reader's block; in halves while the bytes lie too far apart for one look. */
static enum wf_status gather(struct receiver_store_reader *reader, const struct chunk *chunk,
                             struct wf_copy_part part)
{
    struct receiver_store *store = reader->store;
    const struct wf_digest_box *box = chunk->box;
    const struct wf_store *from = store->receiver->rank->options.store;
    uint64_t first, end;
    wf_box_source_span(box->box, (uint32_t)wf_dtype_bytes(box->src_dtype), part, &first, &end);
    if (end - first > from->read_max) {
        uint64_t half = part.count / 2;
        enum wf_status status = gather(reader, chunk, (struct wf_copy_part){part.first, half});
        return status != WF_OK
                   ? status
                   : gather(reader, chunk,
                            (struct wf_copy_part){part.first + half, part.count - half});
    }
    const uint8_t *bytes = NULL;
    enum wf_status status = from->ops->read(store->stored, &reader->window, box->src_tensor, first,
                                            end - first, &bytes, &reader->error);
    if (status == WF_OK) {
        wf_copy_box(&chunk->gather, shifted(bytes, first), box->src_dtype,
                    shifted(reader->block, chunk->part.first * chunk->elem_bytes), box->dst_dtype,
                    part);
    }
    return status;
}

static enum wf_status read_chunk(struct receiver_store_reader *reader, uint64_t index)
{
    struct receiver_store *store = reader->store;
    struct chunk chunk;
    find_chunk(store->digests, index, &chunk);
    const struct wf_digest_box *box = chunk.box;
    enum wf_status status = gather(reader, &chunk, chunk.part);
    if (status != WF_OK) {
        return status;
    }
    const void *from = shifted(reader->block, chunk.part.first * chunk.elem_bytes);
    store->digests->chunks[index] =
        wf_box_digest(&chunk.scatter, false, from, box->dst_dtype, box->dst_dtype, chunk.part);
    wf_copy_box(&chunk.scatter, from, box->dst_dtype, store->receiver->staged_at[box->dst_tensor],
                box->dst_dtype, chunk.part);
    return WF_OK;
}

static void read_work(struct wf_job *job)
{
    struct receiver_store_reader *reader =
        (struct receiver_store_reader *)((char *)job - offsetof(struct receiver_store_reader, job));
    reader->status = WF_OK;
    if (reader->block == NULL) {
        reader->block = malloc(WF_DIGEST_CHUNK_BYTES);
        if (reader->block == NULL) {
            reader->status = wf_error_set(&reader->error, WF_NO_MEMORY, "no memory for a block");
            return;
        }
    }
    for (uint64_t i = 0; i < reader->count && reader->status == WF_OK; i++) {
        reader->status = read_chunk(reader, reader->first + i);
    }
}

/* --- the loop's part ---------------------------------------------------------------------------
 */
static void submit(struct receiver_store *store, struct wf_job *job,
                   void (*work)(struct wf_job *job), int kind, const char *name)
{
    struct wf_env *env = wf_loop_env(store->receiver->rank->loop);
    *job = (struct wf_job){
        .done = {.kind = kind}, .owner = &store->receiver->actor, .work = work, .name = name};
    store->receiver->open_reads++;
    env->ops->job(env, job);
}

static void start_open(struct receiver_store *store)
{
    submit(store, &store->open_job, open_work, RECEIVER_STORE_OPENED, "open version");
}

static void look_again(struct wf_timer *timer)
{
    struct receiver_store *store =
        (struct receiver_store *)((char *)timer - offsetof(struct receiver_store, timer));
    if (store->receiver->phase == RECEIVER_READING) {
        start_open(store);
    }
}

void receiver_store_start(struct wf_receiver *receiver, struct wf_agreed *agreed)
{
    struct receiver_store *store = &receiver->store;
    WF_ASSERT(store->agreed == NULL && receiver->rank->options.store != NULL);
    store->receiver = receiver;
    store->agreed = wf_agreed_hold(agreed);
    store->wanted = (struct wf_store_wanted){.job = receiver->rank->options.job,
                                             .version = receiver->round.version,
                                             .layout = agreed->layouts[0]};
    const struct wf_plan *plan = agreed->plan;
    const struct wf_edge *edge = plan->edge_count > 0 ? &plan->edges[0] : NULL;
    enum wf_status status =
        wf_digests_new(edge != NULL ? edge->ops : NULL, edge != NULL ? edge->op_count : 0,
                       agreed->layouts[0], receiver->make.planned, &store->digests, NULL);
    WF_ASSERT(status == WF_OK && plan->edge_count <= 1);
    store->bytes = edge != NULL ? edge->bytes : 0;
    store->timer.fire = look_again;
    store->timer.name = "a version in the folder";
    start_open(store);
}

static void validate(struct receiver_store *store)
{
    struct wf_receiver *receiver = store->receiver;
    receiver->read_ns = receiver_now_ns(receiver);
    receiver->phase = RECEIVER_VALIDATING;
    receiver->validating = true;
    store->edge = (struct wf_validation_edge){.digests = store->digests,
                                              .origin_chunks = wf_digests_count(store->digests),
                                              .origin_sum = wf_digests_sum(store->digests)};
    store->validation = (struct wf_validation){
        .msg = {.kind = WF_VALIDATE, .from = &receiver->actor},
        .reply_to = &receiver->actor,
        .edges = &store->edge,
        .edge_count = 1,
        .tensors = receiver->staged_at,
    };
    wf_send(wf_validator_actor(receiver->rank->validator), &store->validation.msg);
}

/* Gives the reader its next chunks; without any left the last one to end goes on. */
static void read_more(struct receiver_store *store, struct receiver_store_reader *reader)
{
    uint64_t left = wf_digests_count(store->digests) - store->next;
    if (left > 0) {
        reader->store = store;
        reader->first = store->next;
        reader->count = left < WF_DIGEST_GRAIN ? left : WF_DIGEST_GRAIN;
        store->next += reader->count;
        submit(store, &reader->job, read_work, RECEIVER_STORE_READ, "read version");
    } else if (store->receiver->open_reads == 0) {
        validate(store);
    }
}

static void start_reads(struct receiver_store *store)
{
    struct wf_receiver *receiver = store->receiver;
    uint32_t wanted = receiver->rank->options.capacity_jobs;
    uint32_t readers = wanted < 1                        ? 1
                       : wanted < RECEIVER_STORE_READERS ? wanted
                                                         : RECEIVER_STORE_READERS;
    receiver->granted_ns = receiver_now_ns(receiver);
    if (receiver->rank->options.mode == WF_MODE_IN_PLACE) {
        /* Before the first read of a round: padding never travels. */
        wf_layout_write_fills(receiver->rank->layout, receiver->staged_at);
    }
    receiver->wrote = true;
    read_more(store, &store->readers[0]);
    for (uint32_t i = 1; i < readers && store->next < wf_digests_count(store->digests); i++) {
        read_more(store, &store->readers[i]);
    }
}

void receiver_store_opened(struct wf_receiver *receiver)
{
    struct receiver_store *store = &receiver->store;
    receiver->open_reads--;
    if (receiver->phase != RECEIVER_READING) {
        receiver_settle(receiver);
    } else if (store->open_status == WF_OK) {
        start_reads(store);
    } else if (store->open_status == WF_NOT_FOUND && store->looks++ < RECEIVER_STORE_LOOKS) {
        /* Who writes it may be at it now. */
        wf_timer_arm(receiver->rank->loop, &store->timer,
                     receiver_now_ns(receiver) + LOOK_AGAIN_NS);
    } else {
        receiver_fail_self(receiver, store->open_status, "cannot be filled from a folder: %.330s",
                           store->open_error.text);
    }
}

void receiver_store_read(struct wf_receiver *receiver, struct wf_msg *msg)
{
    struct receiver_store_reader *reader =
        (struct receiver_store_reader *)((char *)msg -
                                         offsetof(struct receiver_store_reader, job.done));
    receiver->open_reads--;
    if (receiver->phase != RECEIVER_READING) {
        receiver_settle(receiver);
    } else if (reader->status != WF_OK) {
        receiver->answer->digest_mismatches += reader->status == WF_DIGEST;
        receiver_fail_self(receiver, reader->status, "cannot be filled from a folder: %.330s",
                           reader->error.text);
    } else {
        read_more(&receiver->store, reader);
    }
}

bool receiver_store_validated(struct wf_receiver *receiver)
{
    struct receiver_store *store = &receiver->store;
    if (!store->edge.matches) {
        receiver->answer->digest_mismatches++;
        receiver_fail_self(receiver, WF_DIGEST,
                           "wrote other bytes into its memory than it read from a folder");
        return false;
    }
    struct wf_local_msg *answer = receiver->answer;
    answer->bytes = store->bytes;
    answer->transport_count = 1;
    answer->transports[0] = (struct wf_el_transport){.edges = 1, .bytes = store->bytes};
    snprintf(answer->transports[0].name, sizeof answer->transports[0].name, "folder");
    return true;
}

void receiver_store_late(struct wf_receiver *receiver)
{
    const struct receiver_store *store = &receiver->store;
    double seconds = (double)(receiver->deadline_ns - receiver->started_ns) / 1e9;
    if (store->open_status == WF_NOT_FOUND && receiver->open_reads == 0) { /* between two looks */
        receiver_fail_self(receiver, WF_TIMED_OUT,
                           "looked for a folder for %.2g s, and cannot be filled: %.330s", seconds,
                           store->open_error.text);
        return;
    }
    receiver_fail_self(receiver, WF_TIMED_OUT,
                       "was not filled from a folder within %.2g s: %llu of %llu chunks were read",
                       seconds, (unsigned long long)store->next,
                       (unsigned long long)wf_digests_count(store->digests));
}

void receiver_store_end(struct wf_receiver *receiver)
{
    struct receiver_store *store = &receiver->store;
    if (store->agreed == NULL) {
        return;
    }
    WF_ASSERT(receiver->open_reads == 0 && !receiver->validating);
    wf_timer_cancel(receiver->rank->loop, &store->timer);
    if (store->stored != NULL) {
        receiver->rank->options.store->ops->close(store->stored);
    }
    for (uint32_t i = 0; i < RECEIVER_STORE_READERS; i++) {
        free(store->readers[i].window.memory);
        free(store->readers[i].block);
    }
    wf_digests_free(store->digests);
    wf_agreed_release(store->agreed);
    memset(store, 0, sizeof *store);
}
