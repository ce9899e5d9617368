/* sender_slots.c - the memory that readers read: the trainer's own, or snapshots of it. */
#include <stdlib.h>
#include <string.h>

#include "actors/sender.h"
#include "models/copy.h"
#include "transports/memory.h"

enum { PLACE_ALIGN = 64 };

static const struct wf_rank_tensor *live(const struct wf_sender *sender, uint32_t tensor)
{
    return &sender->rank->options.tensors[sender->rank->order[tensor]];
}

static enum wf_status no_memory(struct wf_error *error)
{
    return wf_error_set(error, WF_NO_MEMORY, "no memory for the sender's tables");
}

static enum wf_status make_tables(struct wf_sender *sender, struct sender_slot *slot,
                                  uint32_t regions, struct wf_error *error)
{
    size_t tensors = (size_t)sender->rank->layout->tensor_count + 1;
    slot->handles = calloc((size_t)regions + 1, sizeof *slot->handles);
    slot->lens = calloc((size_t)regions + 1, sizeof *slot->lens);
    slot->places = calloc(tensors, sizeof *slot->places);
    slot->tensors = calloc(tensors, sizeof *slot->tensors);
    bool ok = slot->handles != NULL && slot->lens != NULL && slot->places != NULL &&
              slot->tensors != NULL;
    return ok ? WF_OK : no_memory(error);
}

static enum wf_status export_regions(struct wf_sender *sender, struct sender_slot *slot,
                                     const struct wf_region *regions, uint32_t count,
                                     struct wf_error *error)
{
    struct wf_transport *transport = sender->rank->options.transport;
    for (uint32_t i = 0; i < count; i++) {
        enum wf_status status =
            transport->ops->export_region(transport, &regions[i], &slot->handles[i], error);
        if (status != WF_OK) {
            wf_error_prefix(error, "region %u", i);
            return status;
        }
        slot->lens[i] = regions[i].len_bytes;
        slot->region_count++;
    }
    return WF_OK;
}

static enum wf_status init_hold(struct wf_sender *sender, struct wf_error *error)
{
    const struct wf_rank_options *options = &sender->rank->options;
    const struct wf_layout *layout = sender->rank->layout;
    struct sender_slot *slot = &sender->slots[0];
    enum wf_status status = make_tables(sender, slot, options->region_count, error);
    for (uint32_t i = 0; i < layout->tensor_count && status == WF_OK; i++) {
        const struct wf_rank_tensor *tensor = live(sender, i);
        uint64_t bytes = layout->tensors[i].bytes;
        bool fits = tensor->region < options->region_count &&
                    tensor->offset <= options->regions[tensor->region].len_bytes &&
                    bytes <= options->regions[tensor->region].len_bytes - tensor->offset;
        if (!fits) {
            return wf_error_set(error, WF_INVALID,
                                "tensor %s is not inside its region (%u, from byte %llu, %llu "
                                "bytes); register the whole allocation",
                                layout->tensors[i].name, tensor->region,
                                (unsigned long long)tensor->offset, (unsigned long long)bytes);
        }
        slot->places[i] = (struct wf_el_place){tensor->region, tensor->offset, bytes};
        slot->tensors[i] = tensor->address;
    }
    return status != WF_OK
               ? status
               : export_regions(sender, slot, options->regions, options->region_count, error);
}

static enum wf_status init_snapshot(struct wf_sender *sender, struct sender_slot *slot,
                                    struct wf_error *error)
{
    const struct wf_layout *layout = sender->rank->layout;
    enum wf_status status = make_tables(sender, slot, 1, error);
    if (status != WF_OK) {
        return status;
    }
    uint64_t len_bytes = 0;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        uint64_t bytes = layout->tensors[i].bytes;
        slot->places[i] = (struct wf_el_place){0, len_bytes, bytes};
        len_bytes += (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
    }
    status = wf_memory_new("weft-snapshot", len_bytes > 0 ? len_bytes : PLACE_ALIGN, true,
                           &slot->memory, error);
    if (status != WF_OK) {
        return status;
    }
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        slot->tensors[i] = (uint8_t *)slot->memory.address + slot->places[i].offset;
    }
    return export_regions(sender, slot, &slot->memory, 1, error);
}

/* --- SNAPSHOT ------------------------------------------------------------------------------------
 */

/* Pool thread. Items are SENDER_COPY_BYTES of a tensor each. */
static void copy_items(struct wf_batch *batch, uint64_t first, uint64_t count)
{
    struct wf_sender *sender =
        (struct wf_sender *)((char *)batch - offsetof(struct wf_sender, copy_batch));
    const struct wf_layout *layout = sender->rank->layout;
    void *const *to = sender->slots[sender->snapshot->slot].tensors;
    uint32_t tensor = 0;
    for (uint64_t item = first; item < first + count; item++) {
        while (item >= sender->copy_first[tensor + 1]) {
            tensor++;
        }
        uint64_t bytes = layout->tensors[tensor].bytes;
        uint64_t begin = (item - sender->copy_first[tensor]) * SENDER_COPY_BYTES;
        uint64_t left = bytes - begin;
        struct wf_box run = {.elements = bytes, .axis_count = 1, .axes = {{bytes, 1, 1}}};
        wf_copy_box(
            &run, live(sender, tensor)->address, WF_DTYPE_U8, to[tensor], WF_DTYPE_U8,
            (struct wf_copy_part){begin, left < SENDER_COPY_BYTES ? left : SENDER_COPY_BYTES});
    }
}

static void answer(struct wf_sender *sender, struct wf_local_msg *request, enum wf_status status,
                   const char *text)
{
    struct wf_local_msg *out = wf_local_msg_new(WF_LOCAL_SNAPSHOT_DONE, &sender->actor);
    out->round = request->round;
    out->slot = request->slot;
    out->status = status;
    out->bytes = sender->rank->layout->bytes;
    if (status != WF_OK) {
        wf_error_set(&out->error, status, "%s", text);
    }
    request->msg.release(&request->msg);
    wf_send(wf_meta_client_actor(sender->rank->client), &out->msg);
}

void sender_slots_snapshot(struct wf_sender *sender, struct wf_local_msg *request)
{
    if (sender->rank->options.publish != WF_PUBLISH_SNAPSHOT || request->slot >= SENDER_SLOTS) {
        answer(sender, request, WF_INVALID, "this rank has no such snapshot slot");
    } else if (sender->copy_batch.active) {
        answer(sender, request, WF_AGAIN, "an earlier snapshot is still being copied");
    } else {
        sender->snapshot = request;
        uint32_t tensors = sender->rank->layout->tensor_count;
        wf_batch_start(&sender->copy_batch, sender->copy_first[tensors], 1);
    }
}

void sender_slots_copied(struct wf_sender *sender)
{
    struct wf_local_msg *request = sender->snapshot;
    sender->snapshot = NULL;
    if (sender->closing) {
        request->msg.release(&request->msg);
    } else {
        answer(sender, request, WF_OK, NULL);
    }
}

/* --- making and freeing
 * --------------------------------------------------------------------------- */

/* What a reader could not be told of is refused here, not when it asks. */
static enum wf_status check_limits(const struct wf_sender *sender, struct wf_error *error)
{
    uint32_t regions = sender->rank->options.region_count;
    uint32_t tensors = sender->rank->layout->tensor_count;
    if (regions > WF_REGIONS_MAX || tensors > WF_PLACES_MAX) {
        return wf_error_set(error, WF_NO_RESOURCE,
                            "%u regions with %u tensors; expected at most %d with %d: register "
                            "allocations, not tensors",
                            regions, tensors, WF_REGIONS_MAX, WF_PLACES_MAX);
    }
    return WF_OK;
}

enum wf_status sender_slots_init(struct wf_sender *sender, struct wf_error *error)
{
    const struct wf_layout *layout = sender->rank->layout;
    enum wf_status limits = check_limits(sender, error);
    if (limits != WF_OK) {
        return limits;
    }
    wf_batch_init(&sender->copy_batch, sender->rank->loop, &sender->actor,
                  sender->rank->options.capacity_jobs, "snapshot", copy_items);
    if (sender->rank->options.publish != WF_PUBLISH_SNAPSHOT) {
        return init_hold(sender, error);
    }
    sender->copy_first = calloc((size_t)layout->tensor_count + 1, sizeof *sender->copy_first);
    if (sender->copy_first == NULL) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        uint64_t bytes = layout->tensors[i].bytes;
        sender->copy_first[i + 1] =
            sender->copy_first[i] + bytes / SENDER_COPY_BYTES + (bytes % SENDER_COPY_BYTES != 0);
    }
    for (int i = 0; i < SENDER_SLOTS; i++) {
        enum wf_status status = init_snapshot(sender, &sender->slots[i], error);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

void sender_slots_fini(struct wf_sender *sender)
{
    struct wf_transport *transport = sender->rank->options.transport;
    for (int i = 0; i < SENDER_SLOTS; i++) {
        struct sender_slot *slot = &sender->slots[i];
        for (uint32_t r = 0; r < slot->region_count; r++) {
            transport->ops->withdraw_region(transport, &slot->handles[r]);
        }
        free(slot->handles);
        free(slot->lens);
        free(slot->places);
        free(slot->tensors);
        wf_memory_free(&slot->memory);
    }
    free(sender->copy_first);
}
