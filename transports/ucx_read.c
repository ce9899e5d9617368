/* ucx_read.c - reads: cut into chunks that are asked for as credits allow, placed, ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/read_check.h"
#include "transports/ucx_internal.h"

/* --- cutting -----------------------------------------------------------------------------------
 */

/* The narrower of the two types travels. */
static enum wf_dtype wire_dtype(enum wf_dtype src, enum wf_dtype dst)
{
    return wf_dtype_bytes(dst) < wf_dtype_bytes(src) ? dst : src;
}

static void add_slice(struct ucx_slot *slot, const struct wf_read *read, const struct wf_op *op,
                      uint64_t first, uint64_t count)
{
    const struct wf_read_source *src = &read->src[op->src_tensor];
    enum wf_dtype wire = wire_dtype(src->dtype, read->dst[op->dst_tensor].dtype);
    struct ucx_slice slice = {.region = ((struct ucx_remote *)src->remote)->region,
                              .offset = src->offset + op->box.src_offset,
                              .first = first,
                              .count = count,
                              .dtype = (uint8_t)src->dtype,
                              .wire_dtype = (uint8_t)wire,
                              .axis_count = (uint8_t)op->box.axis_count};
    for (uint32_t a = 0; a < op->box.axis_count; a++) {
        slice.axes[a].count = op->box.axes[a].count;
        slice.axes[a].step = op->box.axes[a].src_step;
    }
    slot->body_len += (uint32_t)ucx_slice_encode(&slice, slot->body + slot->body_len);
    slot->wire_bytes += (uint32_t)(count * wf_dtype_bytes(wire));
    slot->slice_count++;
    bool is_whole = slot->slice_count == 1 && wire == src->dtype &&
                    ucx_box_run(&op->box, false, wf_dtype_bytes(wire), first) >= count;
    slot->remote = is_whole ? (struct ucx_remote *)src->remote : NULL;
    slot->remote_offset = is_whole ? src->offset + ucx_box_offset(&op->box, false, first) : 0;
}

/* The elements from `element` of op on that may be received where they belong; 0: none. */
static uint64_t direct_run(const struct wf_read *read, const struct wf_op *op, uint64_t element)
{
    enum wf_dtype src = read->src[op->src_tensor].dtype, dst = read->dst[op->dst_tensor].dtype;
    uint64_t bytes = wf_dtype_bytes(dst);
    if (wire_dtype(src, dst) != dst) {
        return 0;
    }
    uint64_t run = ucx_box_run(&op->box, true, bytes, element);
    return run * bytes >= UCX_DIRECT_MIN ? run : 0;
}

/* Fills the slot with the next elements of the read, all of one peer. A long run that needs no more
 * than receiving is a chunk of its own. */
static void cut(struct ucx_read *open, struct ucx_slot *slot, uint64_t budget)
{
    const struct wf_read *read = open->read;
    slot->read = open;
    slot->op = open->op;
    slot->element = open->element;
    while (open->op < read->op_count && slot->body_len + UCX_SLICE_MAX_BYTES <= UCX_BODY_MAX) {
        const struct wf_op *op = &read->ops[open->op];
        const struct wf_read_source *src = &read->src[op->src_tensor];
        const struct wf_read_target *dst = &read->dst[op->dst_tensor];
        struct ucx_peer *peer = ((struct ucx_remote *)src->remote)->peer;
        uint64_t elem = wf_dtype_bytes(wire_dtype(src->dtype, dst->dtype));
        uint64_t left = op->box.elements - open->element, fits = budget / elem;
        uint64_t run = peer->in_parts ? 0 : direct_run(read, op, open->element);
        if (fits == 0 || (slot->slice_count > 0 && (run > 0 || peer != slot->peer))) {
            break;
        }
        uint64_t count = left < fits ? left : fits;
        if (run > 0) {
            count = count < run ? count : run;
            slot->direct = (uint8_t *)dst->address + ucx_box_offset(&op->box, true, open->element);
        }
        slot->peer = peer;
        add_slice(slot, read, op, open->element, count);
        budget -= count * elem;
        open->element += count;
        if (open->element == op->box.elements) {
            open->op++;
            open->element = 0;
        }
        if (run > 0) {
            break;
        }
    }
    slot->end_op = open->op;
    slot->end_element = open->element;
}

/* --- placing -----------------------------------------------------------------------------------
 */

static void place_elements(const struct wf_op *op, enum wf_dtype wire,
                           const struct wf_read_target *dst, uint64_t first, uint64_t count,
                           const uint8_t *bytes)
{
    uint64_t elem = wf_dtype_bytes(wire), step = elem;
    struct wf_box box = op->box;
    box.src_offset = 0;
    for (uint32_t a = box.axis_count; a-- > 0;) {
        box.axes[a].src_step = (int64_t)step;
        step *= box.axes[a].count;
    }
    const void *base = (const void *)((uintptr_t)bytes - first * elem);
    wf_copy_box(&box, base, wire, dst->address, dst->dtype, (struct wf_copy_part){first, count});
}

bool ucx_read_place(const struct ucx_slot *slot, uint32_t offset, const uint8_t *bytes,
                    uint32_t len)
{
    const struct wf_read *read = slot->read->read;
    uint64_t element = slot->element, skip = offset, left = len;
    for (uint32_t op = slot->op; left > 0 && (op < slot->end_op || element < slot->end_element);
         op++) {
        const struct wf_op *of = &read->ops[op];
        const struct wf_read_target *dst = &read->dst[of->dst_tensor];
        enum wf_dtype wire = wire_dtype(read->src[of->src_tensor].dtype, dst->dtype);
        uint64_t elem = wf_dtype_bytes(wire);
        uint64_t end = op < slot->end_op ? of->box.elements : slot->end_element;
        uint64_t here = (end - element) * elem;
        if (skip < here) {
            uint64_t take = here - skip < left ? here - skip : left;
            if (skip % elem != 0 || take % elem != 0) {
                return false;
            }
            place_elements(of, wire, dst, element + skip / elem, take / elem, bytes);
            bytes += take;
            left -= take;
            skip = 0;
        } else {
            skip -= here;
        }
        element = 0;
    }
    return left == 0;
}

/* Bytes of the slot's elements in the target. */
static uint64_t target_bytes(const struct ucx_slot *slot)
{
    const struct wf_read *read = slot->read->read;
    uint64_t bytes = 0, element = slot->element;
    for (uint32_t op = slot->op; op < slot->end_op || element < slot->end_element; op++) {
        const struct wf_op *of = &read->ops[op];
        uint64_t end = op < slot->end_op ? of->box.elements : slot->end_element;
        bytes += (end - element) * wf_dtype_bytes(read->dst[of->dst_tensor].dtype);
        element = 0;
        if (op == slot->end_op) {
            break;
        }
    }
    return bytes;
}

/* --- ending ------------------------------------------------------------------------------------
 */

static void count_readers(const struct wf_read *read, int by)
{
    for (uint32_t i = 0; i < read->src_count; i++) {
        if (read->src[i].remote != NULL) {
            ((struct ucx_remote *)read->src[i].remote)->open_reads += (unsigned)by;
        }
    }
}

static void finish(struct ucx_read *open)
{
    struct ucx *ucx = open->ucx;
    struct ucx_read **link = &ucx->reader.reads;
    while (*link != open) {
        link = &(*link)->next;
    }
    *link = open->next;
    wf_timer_cancel(ucx->loop, &open->deadline);
    struct wf_read *read = open->read;
    count_readers(read, -1);
    read->transport_data = NULL;
    free(open);
    wf_send(read->owner, &read->done);
}

static bool finish_if_over(struct ucx_read *open)
{
    bool is_over = open->slots == 0 && (open->draining || open->op == open->read->op_count);
    if (is_over) {
        finish(open);
    }
    return is_over;
}

/* Lets go of everything into which no byte can land; the rest ends by itself or by the barrier. */
static void drain(struct ucx_read *open)
{
    struct ucx *ucx = open->ucx;
    open->draining = true;
    for (uint32_t i = 0; i < ucx->reader.slot_count && open->slots > 0; i++) {
        struct ucx_slot *slot = &ucx->reader.slots[i];
        if (slot->read == open && slot->state != UCX_SLOT_ARRIVING) {
            ucx_slot_free(slot);
        }
    }
    if (!finish_if_over(open)) {
        ucx_barrier_arm(ucx);
    }
}

void ucx_read_fail(struct ucx_read *open, enum wf_status status, uint32_t op, const char *why)
{
    wf_read_fail(open->read, status, op, why);
    drain(open);
}

/* The first op that is not wholly there. */
static uint32_t first_open_op(const struct ucx_read *open)
{
    uint32_t op = open->op < open->read->op_count ? open->op : UINT32_MAX;
    for (uint32_t i = 0; i < open->ucx->reader.slot_count; i++) {
        const struct ucx_slot *slot = &open->ucx->reader.slots[i];
        if (slot->read == open && slot->op < op) {
            op = slot->op;
        }
    }
    return op;
}

static bool reads_from(const struct ucx_read *open, const struct ucx_peer *peer)
{
    for (uint32_t i = 0; i < open->read->src_count; i++) {
        const struct ucx_remote *remote = (const struct ucx_remote *)open->read->src[i].remote;
        if (remote != NULL && remote->peer == peer) {
            return true;
        }
    }
    return false;
}

void ucx_reads_fail(struct ucx *ucx, struct ucx_peer *peer, enum wf_status status, const char *why)
{
    for (struct ucx_read *open = ucx->reader.reads, *next; open != NULL; open = next) {
        next = open->next;
        if (peer == NULL || reads_from(open, peer)) {
            ucx_read_fail(open, status, first_open_op(open), why);
        }
    }
}

/* A source that let a request lie for a read's whole time may have given this reader up without a
 * word, and would let all that follow lie too. The next read begins with a new connection; from a
 * source that is only slow that takes nothing else than a greeting. */
static void doubt_silent(const struct ucx_read *open)
{
    const struct ucx_reader *reader = &open->ucx->reader;
    for (uint32_t i = 0; i < reader->slot_count; i++) {
        const struct ucx_slot *slot = &reader->slots[i];
        struct ucx_peer *peer = slot->peer;
        if (slot->read == open && slot->state == UCX_SLOT_REQUESTED && !peer->failed) {
            peer->failed = true;
            snprintf(peer->failure, sizeof peer->failure,
                     "the source did not answer a request in time");
        }
    }
}

static void deadline_passed(struct wf_timer *timer)
{
    struct ucx_read *open = WF_CONTAINER(timer, struct ucx_read, deadline);
    struct ucx *ucx = open->ucx;
    doubt_silent(open);
    ucx_read_fail(open, WF_TIMED_OUT, first_open_op(open), "the deadline passed");
    (void)ucx_peers_check(ucx);
    ucx_reads_pump(ucx); /* others may have its credits */
}

/* --- going on ----------------------------------------------------------------------------------
 */

void ucx_read_slot(struct ucx_slot *slot)
{
    struct ucx_read *open = slot->read;
    if (slot->status != WF_OK) {
        enum wf_status status = slot->status;
        uint32_t op = slot->op;
        char why[UCX_TEXT_MAX];
        memcpy(why, slot->text, sizeof why);
        ucx_slot_free(slot);
        ucx_read_fail(open, status, op, why);
        return;
    }
    if (slot->state == UCX_SLOT_ARRIVED) {
        if (slot->placed == 0 && slot->direct == NULL && !open->draining) {
            ucx_read_place(slot, 0, slot->buffer, slot->wire_bytes);
        }
        open->read->bytes += target_bytes(slot);
    }
    ucx_slot_free(slot);
    finish_if_over(open);
}

/* One more chunk of this read, if credits allow; true if it was asked for. */
static bool ask_more(struct ucx_read *open)
{
    struct ucx *ucx = open->ucx;
    struct ucx_reader *reader = &ucx->reader;
    if (open->draining || open->op == open->read->op_count) {
        return false;
    }
    const struct wf_op *op = &open->read->ops[open->op];
    struct ucx_peer *peer = ((struct ucx_remote *)open->read->src[op->src_tensor].remote)->peer;
    if (peer->state != UCX_PEER_READY || peer->failed ||
        peer->flight_bytes + ucx->chunk_bytes > ucx->edge_bytes ||
        reader->flight_bytes + ucx->chunk_bytes > ucx->transit_bytes) {
        return false;
    }
    struct ucx_slot *slot = ucx_slot_take(ucx);
    if (slot == NULL) {
        return false;
    }
    cut(open, slot, ucx->chunk_bytes);
    open->slots++;
    reader->flight_bytes += slot->wire_bytes;
    slot->peer->flight_bytes += slot->wire_bytes;
    if (reader->flight_bytes > reader->flight_max) {
        reader->flight_max = reader->flight_bytes;
    }
    bool needs_buffer = slot->direct == NULL && !slot->peer->in_parts;
    if (needs_buffer && slot->buffer == NULL) {
        slot->buffer = malloc(ucx->chunk_bytes);
    }
    if (needs_buffer && slot->buffer == NULL) {
        slot->status = WF_NO_MEMORY;
        snprintf(slot->text, sizeof slot->text, "no memory for a chunk of %u bytes",
                 ucx->chunk_bytes);
        slot->state = UCX_SLOT_ARRIVED;
        ucx_slot_event(slot);
        return false;
    }
    ucx_slot_request(slot);
    return true;
}

void ucx_reads_pump(struct ucx *ucx)
{
    for (bool asked = true; asked;) {
        asked = false;
        for (struct ucx_read *open = ucx->reader.reads; open != NULL; open = open->next) {
            asked |= ask_more(open);
        }
    }
}

/* Every source of the read is connected, or will be; false: one cannot be, and the read was told.
 */
static bool greet_sources(struct ucx_read *open)
{
    const struct wf_read *read = open->read;
    for (uint32_t i = 0; i < read->src_count; i++) {
        struct ucx_remote *remote = (struct ucx_remote *)read->src[i].remote;
        if (remote != NULL && !ucx_peer_greet(remote->peer)) {
            ucx_read_fail(open, WF_PEER_LOST, first_open_op(open), remote->peer->failure);
            return false;
        }
    }
    return true;
}

void ucx_reads_resume(struct ucx *ucx)
{
    for (struct ucx_read *open = ucx->reader.reads, *next; open != NULL; open = next) {
        next = open->next;
        if (open->draining) {
            drain(open);
        }
    }
    ucx_imports_resume(ucx);
    for (struct ucx_read *open = ucx->reader.reads, *next; open != NULL; open = next) {
        next = open->next;
        if (!open->draining) {
            greet_sources(open); /* also those that have nothing on its way: credits were short */
        }
    }
    ucx_reads_pump(ucx);
}

/* --- starting and cancelling -------------------------------------------------------------------
 */

void ucx_read_start(struct wf_transport *t, struct wf_read *read)
{
    struct ucx *ucx = WF_CONTAINER(t, struct ucx, base);
    if (!wf_read_begin(t, read, wf_loop_now_ns(ucx->loop))) {
        wf_send(read->owner, &read->done);
        return;
    }
    struct ucx_read *open = calloc(1, sizeof *open);
    if (open == NULL) {
        wf_read_fail(read, WF_NO_MEMORY, UINT32_MAX, "no memory for the read's own record");
        wf_send(read->owner, &read->done);
        return;
    }
    *open = (struct ucx_read){
        .ucx = ucx, .read = read, .deadline = {.fire = deadline_passed, .name = "ucx read"}};
    count_readers(read, 1);
    read->transport_data = open;
    struct ucx_read **link = &ucx->reader.reads;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = open;
    if (read->deadline_ns != WF_NEVER_NS) {
        wf_timer_arm(ucx->loop, &open->deadline, read->deadline_ns);
    }
    ucx_reader_watch(ucx);
    if (greet_sources(open)) {
        ucx_reads_pump(ucx);
    }
}

void ucx_read_cancel(struct wf_transport *t, struct wf_read *read)
{
    struct ucx_read *open = read->transport_data;
    if (open != NULL && !open->draining) {
        ucx_read_fail(open, WF_CANCELLED, UINT32_MAX, "cancelled");
        ucx_reads_pump(WF_CONTAINER(t, struct ucx, base));
    }
}
