/* receiver_staging.c - the area that a version lands in, and the copy from there to live memory; in
 * place that area is live memory. */
#include <stdlib.h>
#include <string.h>

#include "actors/receiver.h"
#include "models/copy.h"
#include "transports/memory.h"

enum { STAGING_ALIGN = 64 };

static bool is_in_place(const struct wf_receiver *receiver)
{
    return receiver->rank->options.mode == WF_MODE_IN_PLACE;
}

static enum wf_status make_tables(struct wf_receiver *receiver, struct wf_error *error)
{
    size_t tensors = (size_t)receiver->rank->layout->tensor_count + 1;
    receiver->staged_at = calloc(tensors, sizeof *receiver->staged_at);
    receiver->live_at = calloc(tensors, sizeof *receiver->live_at);
    receiver->dst = calloc(tensors, sizeof *receiver->dst);
    receiver->flip_first = calloc(tensors, sizeof *receiver->flip_first);
    bool ok = receiver->staged_at != NULL && receiver->live_at != NULL && receiver->dst != NULL &&
              receiver->flip_first != NULL;
    return ok ? WF_OK : wf_error_set(error, WF_NO_MEMORY, "no memory for the receiver's tables");
}

/* Pool thread. Items are RECEIVER_FLIP_BYTES of a tensor each. */
static void flip_items(struct wf_batch *batch, unsigned lane, uint64_t first, uint64_t count)
{
    struct wf_receiver *receiver = WF_CONTAINER(batch, struct wf_receiver, flip_batch);
    (void)lane;
    const struct wf_layout *layout = receiver->rank->layout;
    uint32_t tensor = 0;
    for (uint64_t item = first; item < first + count; item++) {
        while (item >= receiver->flip_first[tensor + 1]) {
            tensor++;
        }
        uint64_t bytes = layout->tensors[tensor].bytes;
        uint64_t begin = (item - receiver->flip_first[tensor]) * RECEIVER_FLIP_BYTES;
        uint64_t left = bytes - begin;
        struct wf_box run = {.elements = bytes, .axis_count = 1, .axes = {{bytes, 1, 1}}};
        wf_copy_box(
            &run, receiver->staged_at[tensor], WF_DTYPE_U8, receiver->live_at[tensor], WF_DTYPE_U8,
            (struct wf_copy_part){begin, left < RECEIVER_FLIP_BYTES ? left : RECEIVER_FLIP_BYTES});
    }
}

/* Places of the tensors that the plan writes; returns how many bytes they need. */
static uint64_t place_tensors(struct wf_receiver *receiver, uint64_t *offsets)
{
    const struct wf_layout *layout = receiver->rank->layout;
    uint64_t len_bytes = 0, items = 0;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        receiver->flip_first[i] = items;
        uint64_t bytes = layout->tensors[i].bytes;
        if (layout->tensors[i].kind != WF_TENSOR_WEIGHTS) {
            continue;
        }
        offsets[i] = len_bytes;
        len_bytes += (bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
        items += bytes / RECEIVER_FLIP_BYTES + (bytes % RECEIVER_FLIP_BYTES != 0);
    }
    receiver->flip_first[layout->tensor_count] = items;
    return len_bytes;
}

static void point_at_tensors(struct wf_receiver *receiver, const uint64_t *offsets)
{
    const struct wf_rank *rank = receiver->rank;
    for (uint32_t i = 0; i < rank->layout->tensor_count; i++) {
        const struct wf_tensor *tensor = &rank->layout->tensors[i];
        if (tensor->kind != WF_TENSOR_WEIGHTS) {
            continue;
        }
        receiver->live_at[i] = rank->options.tensors[rank->order[i]].address;
        receiver->staged_at[i] = is_in_place(receiver)
                                     ? receiver->live_at[i]
                                     : (uint8_t *)receiver->staging.address + offsets[i];
        receiver->dst[i] = (struct wf_read_target){
            .address = receiver->staged_at[i], .len_bytes = tensor->bytes, .dtype = tensor->dtype};
    }
}

static enum wf_status make_staging(struct wf_receiver *receiver, uint64_t len_bytes,
                                   struct wf_error *error)
{
    uint64_t allowed = receiver->rank->options.staging_bytes_max;
    if (allowed != 0 && len_bytes > allowed) {
        return wf_error_set(error, WF_NO_RESOURCE,
                            "staging needs %llu bytes for this rank's weights, at most %llu are "
                            "allowed; raise the limit, or update in place",
                            (unsigned long long)len_bytes, (unsigned long long)allowed);
    }
    return wf_memory_new("weft-staging", len_bytes > 0 ? len_bytes : STAGING_ALIGN, false,
                         &receiver->staging, error);
}

enum wf_status receiver_staging_init(struct wf_receiver *receiver, struct wf_error *error)
{
    const struct wf_rank_options *options = &receiver->rank->options;
    wf_batch_init(&receiver->flip_batch, receiver->rank->loop, &receiver->actor,
                  options->capacity_jobs, "flip", flip_items);
    enum wf_status status = make_tables(receiver, error);
    if (status != WF_OK) {
        return status;
    }
    uint64_t *offsets = calloc((size_t)receiver->rank->layout->tensor_count + 1, sizeof *offsets);
    if (offsets == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for the receiver's tables");
    }
    uint64_t len_bytes = place_tensors(receiver, offsets);
    if (!is_in_place(receiver)) {
        status = make_staging(receiver, len_bytes, error);
    }
    if (status == WF_OK) {
        point_at_tensors(receiver, offsets);
    }
    if (status == WF_OK && !is_in_place(receiver)) {
        /* Padding never travels: it is written here once and flipped with the rest. */
        wf_layout_write_fills(receiver->rank->layout, receiver->staged_at);
    }
    free(offsets);
    return status;
}

void receiver_staging_fini(struct wf_receiver *receiver)
{
    wf_memory_free(&receiver->staging);
    free(receiver->staged_at);
    free(receiver->live_at);
    free(receiver->dst);
    free(receiver->flip_first);
}

/* --- FLIP
 * -------------------------------------------------------------------------------------------- */

static struct wf_local_msg *flipped(struct wf_receiver *receiver, const struct wf_round_key *round)
{
    struct wf_local_msg *out = wf_local_msg_new(WF_LOCAL_FLIPPED, &receiver->actor);
    out->round = *round;
    return out;
}

void receiver_flip(struct wf_receiver *receiver, const struct wf_local_msg *request)
{
    if (receiver->phase != RECEIVER_IDLE || !receiver->staged ||
        !wf_round_key_equal(&request->round, &receiver->round)) {
        struct wf_local_msg *out = flipped(receiver, &request->round);
        out->status = wf_error_set(&out->error, WF_REFUSED, "that round is not staged here");
        receiver_tell(receiver, out);
        return;
    }
    receiver->phase = RECEIVER_FLIPPING;
    receiver->started_ns = receiver_now_ns(receiver);
    if (is_in_place(receiver)) {
        receiver_flipped(receiver); /* it is there */
        return;
    }
    wf_batch_start(&receiver->flip_batch,
                   receiver->flip_first[receiver->rank->layout->tensor_count], 1);
}

void receiver_flipped(struct wf_receiver *receiver)
{
    receiver_hook_flip(receiver);
}

void receiver_flip_end(struct wf_receiver *receiver, enum wf_status status, const char *why)
{
    receiver->phase = RECEIVER_IDLE;
    receiver->staged = false;
    if (!receiver->closing) {
        struct wf_local_msg *out = flipped(receiver, &receiver->round);
        out->status = status == WF_OK ? WF_OK : wf_error_set(&out->error, status, "%s", why);
        out->bytes = receiver->staging.len_bytes;
        out->flip_ns = receiver_now_ns(receiver) - receiver->started_ns;
        receiver_trace(receiver, "flip", receiver->started_ns, receiver_now_ns(receiver));
        receiver_tell(receiver, out);
    }
    receiver_settle(receiver);
}
