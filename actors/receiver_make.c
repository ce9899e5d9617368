/* receiver_make.c - codes and scales of matrices that no source quantises: room for the matrices,
 * and the work between the verdict on them and the hook after_write. */
#include <stdlib.h>
#include <string.h>

#include "actors/receiver.h"
#include "models/assemble.h"
#include "transports/memory.h"

enum { ASSEMBLED_ALIGN = 64 };

/* Pool thread. */
static void run_items(struct wf_batch *batch, unsigned lane, uint64_t first, uint64_t count)
{
    struct wf_receiver *receiver = WF_CONTAINER(batch, struct wf_receiver, make.batch);
    const struct wf_assemble *assemble = receiver->make.agreed->assemble;
    uint8_t *scratch = receiver->make.scratch + lane * wf_assemble_scratch_bytes(assemble);
    for (uint64_t i = first; i < first + count; i++) {
        wf_assemble_run(assemble, (uint32_t)i, receiver->staged_at, scratch);
    }
}

void receiver_make_init(struct wf_receiver *receiver)
{
    receiver->make.planned = receiver->rank->layout;
    wf_batch_init(&receiver->make.batch, receiver->rank->loop, &receiver->actor,
                  receiver->rank->options.capacity_jobs, "quantise", run_items);
}

void receiver_make_fini(struct wf_receiver *receiver)
{
    wf_memory_free(&receiver->make.memory);
    free(receiver->make.scratch);
    wf_agreed_release(receiver->make.agreed);
    receiver->make.agreed = NULL;
}

/* --- room --------------------------------------------------------------------------------------
 */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ASSEMBLED_ALIGN - 1) / ASSEMBLED_ALIGN * ASSEMBLED_ALIGN;
}

/* Pool thread, because giving gigabytes back takes as long as touching them. */
static void claim(struct wf_job *job)
{
    struct wf_receiver *receiver = WF_CONTAINER(job, struct wf_receiver, make.job);
    struct receiver_make *make = &receiver->make;
    uint64_t allowed = receiver->rank->options.staging_bytes_max;
    uint64_t staged = receiver->staging.len_bytes;
    wf_memory_free(&make->memory); /* of a plan that needed more, or less */
    if (make->bytes == 0) {
        make->status = WF_OK;
        return;
    }
    if (allowed != 0 && staged + make->bytes > allowed) {
        make->status = wf_error_set(&make->error, WF_NO_RESOURCE,
                                    "%llu bytes beside its staging's %llu, at most %llu are "
                                    "allowed; raise the limit",
                                    (unsigned long long)make->bytes, (unsigned long long)staged,
                                    (unsigned long long)allowed);
        return;
    }
    make->status = wf_memory_new("weft-assembled", make->bytes, false, &make->memory, &make->error);
}

/* The tables go on behind the rank's own tensors. */
static void point_at_assembled(struct wf_receiver *receiver)
{
    const struct wf_layout *planned = receiver->make.planned;
    size_t tensors = (size_t)planned->tensor_count + 1;
    void **staged_at = reallocarray(receiver->staged_at, tensors, sizeof *staged_at);
    struct wf_read_target *dst = reallocarray(receiver->dst, tensors, sizeof *dst);
    WF_ASSERT(staged_at != NULL && dst != NULL);
    receiver->staged_at = staged_at;
    receiver->dst = dst;
    uint64_t offset = 0;
    for (uint32_t i = receiver->rank->layout->tensor_count; i < planned->tensor_count; i++) {
        const struct wf_tensor *tensor = &planned->tensors[i];
        staged_at[i] = (uint8_t *)receiver->make.memory.address + offset;
        dst[i] = (struct wf_read_target){
            .address = staged_at[i], .len_bytes = tensor->bytes, .dtype = tensor->dtype};
        offset += aligned(tensor->bytes);
    }
}

void receiver_make_use(struct wf_receiver *receiver, struct wf_agreed *agreed)
{
    struct receiver_make *make = &receiver->make;
    WF_ASSERT(!make->batch.active && !make->claiming);
    wf_agreed_release(make->agreed);
    make->agreed = wf_agreed_hold(agreed);
    uint32_t own = agreed != NULL ? wf_agreed_position(agreed, WF_INFER, WF_INFER,
                                                       receiver->rank->options.rank)
                                  : UINT32_MAX;
    make->planned =
        own != UINT32_MAX ? agreed->layouts[agreed->train_ranks + own] : receiver->rank->layout;
    make->bytes = 0;
    for (uint32_t i = receiver->rank->layout->tensor_count; i < make->planned->tensor_count; i++) {
        make->bytes += aligned(make->planned->tensors[i].bytes);
    }
    free(make->scratch);
    make->scratch = NULL;
}

/* The room is there, or none is needed. */
static void begin(struct wf_receiver *receiver)
{
    struct receiver_make *make = &receiver->make;
    if (make->bytes > 0 && make->scratch == NULL) {
        size_t scratch = (size_t)wf_assemble_scratch_bytes(make->agreed->assemble);
        make->scratch = calloc(wf_batch_lanes(&make->batch), scratch);
        WF_ASSERT(make->scratch != NULL);
        point_at_assembled(receiver);
    }
    receiver_hook_before(receiver);
}

void receiver_make_room(struct wf_receiver *receiver, struct wf_agreed *agreed)
{
    struct receiver_make *make = &receiver->make;
    struct wf_env *env = wf_loop_env(receiver->rank->loop);
    if (make->agreed != agreed) {
        receiver_make_use(receiver, agreed);
    }
    receiver->phase = RECEIVER_BEFORE;
    if (make->memory.len_bytes == make->bytes) {
        begin(receiver);
        return;
    }
    make->claiming = true;
    make->status = WF_CLOSED; /* unless it runs */
    make->error.text[0] = '\0';
    make->job = (struct wf_job){.done = {.kind = RECEIVER_CLAIMED},
                                .owner = &receiver->actor,
                                .work = claim,
                                .name = "room"};
    env->ops->job(env, &make->job);
}

void receiver_make_claimed(struct wf_receiver *receiver)
{
    struct receiver_make *make = &receiver->make;
    make->claiming = false;
    if (receiver->phase != RECEIVER_BEFORE) {
        receiver_settle(receiver);
    } else if (make->status != WF_OK) {
        receiver_fail_self(
            receiver, make->status, "has no room for the matrices that it quantises itself: %.250s",
            make->error.text[0] != '\0' ? make->error.text : wf_status_text(make->status));
    } else {
        begin(receiver);
    }
}

/* --- the work ----------------------------------------------------------------------------------
 */

void receiver_make_start(struct wf_receiver *receiver)
{
    struct receiver_make *make = &receiver->make;
    if (make->agreed == NULL || make->agreed->assemble == NULL) {
        receiver_hook_after(receiver);
        return;
    }
    receiver->phase = RECEIVER_MAKING;
    make->start_ns = receiver_now_ns(receiver);
    wf_batch_start(&make->batch, wf_assemble_item_count(make->agreed->assemble), 1);
}

void receiver_make_ended(struct wf_receiver *receiver)
{
    if (receiver->phase != RECEIVER_MAKING) {
        receiver_settle(receiver);
        return;
    }
    uint64_t now_ns = receiver_now_ns(receiver);
    receiver->answer->transfer_ns += now_ns - receiver->make.start_ns; /* as what sources prepare */
    receiver_trace(receiver, "quantise", receiver->make.start_ns, now_ns);
    receiver_hook_after(receiver);
}

void receiver_make_late(struct wf_receiver *receiver)
{
    double seconds = (double)(receiver->deadline_ns - receiver->started_ns) / 1e9;
    receiver_fail_self(receiver, WF_TIMED_OUT, "had not %s when the round's %.2g s were over",
                       receiver->make.claiming ? "got room for the matrices that it quantises"
                                               : "quantised the matrices that it assembled",
                       seconds);
}
