/* sender_slots.c - the memory that readers read: the trainer's own, or snapshots of it, and what is
 * prepared from either. */
#include <stdio.h>
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

static bool has_snapshots(const struct wf_sender *sender)
{
    const struct wf_rank_options *options = &sender->rank->options;
    return options->side == WF_TRAIN && options->publish == WF_PUBLISH_SNAPSHOT;
}

static enum wf_status no_memory(struct wf_error *error)
{
    return wf_error_set(error, WF_NO_MEMORY, "no memory for the sender's tables");
}

static enum wf_status make_tables(struct wf_sender *sender, struct sender_slot *slot,
                                  struct wf_error *error)
{
    size_t tensors = (size_t)wf_rank_source(sender->rank)->tensor_count + 1;
    slot->places = calloc(tensors, sizeof *slot->places);
    slot->tensors = calloc(tensors, sizeof *slot->tensors);
    return slot->places != NULL && slot->tensors != NULL ? WF_OK : no_memory(error);
}

/* --- offers ------------------------------------------------------------------------------------
 */
static void withdraw(struct wf_transport *transport, struct sender_offer *offer, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        transport->ops->withdraw_region(transport, &offer->handles[i]);
    }
    free(offer->handles);
    offer->handles = NULL;
}

static enum wf_status export_slot(struct wf_transport *transport, const struct sender_slot *slot,
                                  bool with_descriptors, struct sender_offer *offer,
                                  struct wf_error *error)
{
    offer->handles = calloc(slot->region_count, sizeof *offer->handles);
    if (offer->handles == NULL) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < slot->region_count; i++) {
        struct wf_region region = slot->regions[i];
        region.fd = with_descriptors ? region.fd : -1;
        enum wf_status status =
            transport->ops->export_region(transport, &region, &offer->handles[i], error);
        if (status != WF_OK) {
            wf_error_prefix(error, "region %u", i);
            withdraw(transport, offer, i);
            return status;
        }
    }
    return WF_OK;
}

const struct wf_handle *sender_slots_offer(struct wf_sender *sender, uint64_t slot, uint32_t index,
                                           bool with_descriptors, struct wf_error *error)
{
    struct wf_transport *transport = sender->rank->options.transports[index];
    struct sender_slot *at = &sender->slots[slot];
    bool bare = !with_descriptors && (transport->ops->caps & WF_CAP_MAP) != 0;
    struct sender_offer *offer = bare ? &at->bare[index] : &at->offers[index];
    if (offer->handles == NULL && offer->status == WF_OK) {
        struct wf_error refusal;
        offer->status = export_slot(transport, at, !bare, offer, &refusal);
        if (offer->status != WF_OK) {
            snprintf(offer->why, sizeof offer->why, "%.*s", WF_REASON_MAX - 1, refusal.text);
        }
    }
    if (offer->handles == NULL) {
        wf_error_set(error, offer->status, "%s", offer->why);
    }
    return offer->handles;
}

/* What costs nothing is tried at once: a region that cannot be shared is told before anybody waits,
 * unless another transport may do. */
static enum wf_status try_offers(struct wf_sender *sender, uint64_t slot, struct wf_error *error)
{
    const struct wf_rank_options *options = &sender->rank->options;
    for (uint32_t i = 0; i < options->transport_count; i++) {
        if ((options->transports[i]->ops->caps & WF_CAP_MAP) != 0 &&
            sender_slots_offer(sender, slot, i, true, error) == NULL &&
            options->transport_count == 1) {
            return sender->slots[slot].offers[i].status;
        }
    }
    return WF_OK;
}

static enum wf_status set_regions(struct wf_sender *sender, uint64_t slot,
                                  const struct wf_region *regions, uint32_t count,
                                  struct wf_error *error)
{
    sender->slots[slot].own_regions = sender->slots[slot].regions = regions;
    sender->slots[slot].own_count = sender->slots[slot].region_count = count;
    /* An infer rank that cannot be a source is still a rank: its readers hear of it. */
    bool now = count > 0 && sender->rank->options.side == WF_TRAIN;
    return now ? try_offers(sender, slot, error) : WF_OK;
}

void sender_slots_withdraw(struct wf_sender *sender, struct sender_slot *slot)
{
    const struct wf_rank_options *options = &sender->rank->options;
    for (uint32_t i = 0; i < options->transport_count; i++) {
        struct sender_offer *offers[] = {&slot->offers[i], &slot->bare[i]};
        for (int o = 0; o < 2; o++) {
            if (offers[o]->handles != NULL) {
                withdraw(options->transports[i], offers[o], slot->region_count);
            }
            *offers[o] = (struct sender_offer){0};
        }
    }
}

/* --- making ------------------------------------------------------------------------------------
 */

/* Own memory for the tensors [first, ..) of the source layout, which becomes the slot's region
 * `region`. */
static enum wf_status claim(struct wf_sender *sender, struct sender_slot *slot, uint32_t first,
                            uint32_t region, const char *name, struct wf_error *error)
{
    const struct wf_layout *source = wf_rank_source(sender->rank);
    uint64_t len_bytes = 0;
    for (uint32_t i = first; i < source->tensor_count; i++) {
        uint64_t bytes = source->tensors[i].bytes;
        slot->places[i] = (struct wf_el_place){region, len_bytes, bytes};
        len_bytes += (bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
    }
    enum wf_status status =
        wf_memory_new(name, len_bytes > 0 ? len_bytes : PLACE_ALIGN, true, &slot->memory, error);
    for (uint32_t i = first; i < source->tensor_count && status == WF_OK; i++) {
        slot->tensors[i] = (uint8_t *)slot->memory.address + slot->places[i].offset;
    }
    return status;
}

/* The trainer's regions, and one more with what is prepared. */
static enum wf_status claim_prepared(struct wf_sender *sender, struct sender_slot *slot,
                                     struct wf_error *error)
{
    const struct wf_rank_options *options = &sender->rank->options;
    uint32_t count = options->region_count;
    slot->list = calloc(count + 1ull, sizeof *slot->list);
    if (slot->list == NULL) {
        return no_memory(error);
    }
    enum wf_status status =
        claim(sender, slot, sender->rank->layout->tensor_count, count, "weft-prepared", error);
    if (count > 0) {
        memcpy(slot->list, options->regions, count * sizeof *slot->list);
    }
    slot->list[count] = slot->memory;
    return status;
}

static enum wf_status init_hold(struct wf_sender *sender, struct wf_error *error)
{
    const struct wf_rank_options *options = &sender->rank->options;
    const struct wf_layout *layout = sender->rank->layout;
    struct sender_slot *slot = &sender->slots[0];
    enum wf_status status = make_tables(sender, slot, error);
    for (uint32_t i = 0; i < layout->tensor_count && status == WF_OK; i++) {
        if (sender->rank->order[i] == UINT32_MAX) {
            continue; /* a view or derived tensor that its host did not list: nobody reads it */
        }
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
    if (status != WF_OK || sender->rank->prepare == NULL) {
        return status != WF_OK
                   ? status
                   : set_regions(sender, 0, options->regions, options->region_count, error);
    }
    status = claim_prepared(sender, slot, error);
    return status != WF_OK ? status
                           : set_regions(sender, 0, slot->list, options->region_count + 1, error);
}

static enum wf_status init_snapshot(struct wf_sender *sender, uint64_t index,
                                    struct wf_error *error)
{
    struct sender_slot *slot = &sender->slots[index];
    enum wf_status status = make_tables(sender, slot, error);
    if (status == WF_OK) {
        status = claim(sender, slot, 0, 0, "weft-snapshot", error);
    }
    return status != WF_OK ? status : set_regions(sender, index, &slot->memory, 1, error);
}

/* --- SNAPSHOT ------------------------------------------------------------------------------------
 */

/* Pool thread. Items are SENDER_COPY_BYTES of a tensor each. */
static void copy_items(struct wf_batch *batch, unsigned lane, uint64_t first, uint64_t count)
{
    struct wf_sender *sender = WF_CONTAINER(batch, struct wf_sender, copy_batch);
    (void)lane;
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
    if (!has_snapshots(sender) || request->slot >= SENDER_SLOTS) {
        answer(sender, request, WF_INVALID, "this rank has no such snapshot slot");
    } else if (sender->copy_batch.active || sender->snapshot != NULL) {
        answer(sender, request, WF_AGAIN, "an earlier snapshot is still being copied");
    } else {
        sender->snapshot = request;
        sender_slots_continue(sender);
    }
}

void sender_slots_continue(struct wf_sender *sender)
{
    bool read = sender_is_working(sender) && sender->snapshot != NULL &&
                sender->worked_slot == sender->snapshot->slot;
    bool blocked = read || sender->copy_batch.active || sender->has_next || sender->closing;
    if (sender->snapshot != NULL && !blocked) {
        sender->slots[sender->snapshot->slot].made_of = (struct wf_version){0};
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

/* --- all of it ----------------------------------------------------------------------------------
 */

/* What a reader could not be told of is refused here, not when it asks. */
static enum wf_status check_limits(const struct wf_sender *sender, struct wf_error *error)
{
    const struct wf_rank_options *options = &sender->rank->options;
    bool casts = options->side == WF_TRAIN && options->policy.cast_bytes_max > 0;
    uint32_t regions = options->region_count + (sender->rank->prepare != NULL) + casts;
    uint32_t tensors = wf_rank_source(sender->rank)->tensor_count;
    if (regions > WF_REGIONS_MAX || tensors > WF_PLACES_MAX) {
        return wf_error_set(
            error, WF_NO_RESOURCE,
            "%u regions with %u tensors, %u of which are prepared; expected at most "
            "%d with %d: register allocations, not tensors",
            regions, tensors, tensors - sender->rank->layout->tensor_count, WF_REGIONS_MAX,
            WF_PLACES_MAX);
    }
    return WF_OK;
}

/* What is prepared is packed for readers like what a network packs. */
static enum wf_status check_prepared(const struct wf_sender *sender, struct wf_error *error)
{
    const struct wf_layout *source = wf_rank_source(sender->rank);
    uint64_t allowed = sender->rank->options.prepared_bytes_max, bytes = 0;
    uint32_t slots = has_snapshots(sender) ? SENDER_SLOTS : 1;
    for (uint32_t i = sender->rank->layout->tensor_count; i < source->tensor_count; i++) {
        bytes += (source->tensors[i].bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
    }
    if (allowed == 0 || bytes * slots <= allowed) {
        return WF_OK;
    }
    return wf_error_set(error, WF_NO_RESOURCE,
                        "train rank %u prepares %llu bytes for its readers (codes, scales, norms "
                        "that are held less 1), %u times; transport.transit_budget allows %llu: "
                        "give it %llu at least, leave it out, or give the engines quant=none",
                        sender->rank->options.rank, (unsigned long long)bytes, slots,
                        (unsigned long long)allowed, (unsigned long long)(bytes * slots));
}

enum wf_status sender_slots_init(struct wf_sender *sender, struct wf_error *error)
{
    const struct wf_layout *layout = sender->rank->layout;
    enum wf_status limits = check_limits(sender, error);
    limits = limits == WF_OK ? check_prepared(sender, error) : limits;
    if (limits != WF_OK) {
        return limits;
    }
    wf_batch_init(&sender->copy_batch, sender->rank->loop, &sender->actor,
                  sender->rank->options.capacity_jobs, "snapshot", copy_items);
    if (!has_snapshots(sender)) {
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
    for (uint64_t i = 0; i < SENDER_SLOTS; i++) {
        enum wf_status status = init_snapshot(sender, i, error);
        if (status != WF_OK) {
            return status;
        }
    }
    return WF_OK;
}

void sender_slots_fini(struct wf_sender *sender)
{
    for (int i = 0; i < SENDER_SLOTS; i++) {
        struct sender_slot *slot = &sender->slots[i];
        sender_slots_withdraw(sender, slot);
        free(slot->places);
        free(slot->tensors);
        free(slot->list);
        wf_memory_free(&slot->memory);
    }
    if (sender->snapshot != NULL) { /* it waited for a digest when the rank ended */
        sender->snapshot->msg.release(&sender->snapshot->msg);
    }
    free(sender->copy_first);
}
