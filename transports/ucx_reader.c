/* ucx_reader.c - the reader's worker: what arrives, slots, and the barrier that makes it anew. */
#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"
#include "transports/ucx_devices.h"
#include "transports/ucx_internal.h"

/* --- slots -------------------------------------------------------------------------------------
 */

void ucx_slot_event(struct ucx_slot *slot)
{
    struct ucx_reader *reader = &slot->ucx->reader;
    if (slot->is_event) {
        return;
    }
    slot->is_event = true;
    slot->next_event = NULL;
    if (reader->last_event != NULL) {
        reader->last_event->next_event = slot;
    } else {
        reader->events = slot;
    }
    reader->last_event = slot;
}

static bool make_room(struct ucx_slot *slot)
{
    if (slot->body == NULL) {
        slot->body = malloc(UCX_BODY_MAX);
    }
    return slot->body != NULL;
}

struct ucx_slot *ucx_slot_take(struct ucx *ucx)
{
    struct ucx_slot *slot = ucx->reader.free;
    if (slot == NULL || !make_room(slot)) {
        return NULL;
    }
    ucx->reader.free = slot->next_free;
    slot->direct = NULL;
    slot->remote = NULL;
    slot->peer = NULL;
    slot->offer = NULL;
    slot->status = WF_OK;
    slot->text[0] = '\0';
    slot->wire_bytes = slot->slice_count = slot->body_len = slot->placed = 0;
    return slot;
}

/* Back to the free ones, unless UCX still reads what was asked; what comes for it from now on is
 * dropped. */
static void retire(struct ucx_slot *slot)
{
    slot->generation++;
    slot->state = UCX_SLOT_FREE;
    slot->read = NULL;
    if (!slot->sending) {
        slot->next_free = slot->ucx->reader.free;
        slot->ucx->reader.free = slot;
    }
}

void ucx_slot_free(struct ucx_slot *slot)
{
    struct ucx_reader *reader = &slot->ucx->reader;
    if (slot->offer != NULL) {
        reader->worker.ucx->ucp_am_data_release(reader->worker.worker, slot->offer);
        slot->offer = NULL;
    }
    reader->flight_bytes -= slot->wire_bytes;
    slot->peer->flight_bytes -= slot->wire_bytes;
    slot->read->slots--;
    retire(slot);
}

static void request_sent(void *request, ucs_status_t status, void *user)
{
    struct ucx_slot *slot = user;
    slot->ucx->library.ucp_request_free(request);
    slot->sending = false;
    if (slot->state == UCX_SLOT_FREE && !slot->ucx->reader.closing) {
        slot->next_free = slot->ucx->reader.free;
        slot->ucx->reader.free = slot;
    } else if (slot->state == UCX_SLOT_QUEUED && !slot->ucx->reader.closing) {
        ucx_slot_event(slot);
    }
    (void)status; /* a broken connection says so itself */
}

void ucx_slot_request(struct ucx_slot *slot)
{
    struct ucx *ucx = slot->ucx;
    struct ucx_peer *peer = slot->peer;
    slot->state = UCX_SLOT_QUEUED;
    if (peer->state != UCX_PEER_READY) {
        return;
    }
    if (ucx_get_start(slot)) {
        return;
    }
    uint64_t now_ns = wf_loop_now_ns(ucx->loop), until_ns = slot->read->read->deadline_ns;
    uint64_t left_ms = until_ns > now_ns ? (until_ns - now_ns) / 1000000 + 1 : 1;
    struct ucx_head head = {
        .kind = UCX_CHUNK,
        .lane = (uint8_t)(peer->next_lane++ % ucx->lanes),
        .in_parts = peer->in_parts,
        .count = slot->slice_count,
        .timeout_ms = (uint32_t)(left_ms < UCX_REQUEST_MS_MAX ? left_ms : UCX_REQUEST_MS_MAX),
        .tag = (uint64_t)slot->generation << 32 | slot->index,
        .len_bytes = slot->wire_bytes};
    memcpy(head.source, peer->handle.life, UCX_LIFE_BYTES);
    memcpy(head.reader, ucx->reader.life, UCX_LIFE_BYTES);
    ucx_head_encode(&head, slot->head);
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = request_sent,
        .user_data = slot,
    };
    slot->state = UCX_SLOT_REQUESTED;
    slot->sending = true;
    ucs_status_ptr_t request =
        ucx->library.ucp_am_send_nbx(peer->eps[head.lane], UCX_AM_TO_SOURCE, slot->head,
                                     UCX_HEAD_BYTES, slot->body, slot->body_len, &param);
    if (UCS_PTR_IS_PTR(request)) {
        return;
    }
    slot->sending = false;
    if (UCS_PTR_IS_ERR(request) && !peer->failed) {
        peer->failed = true; /* acted upon in the next progress */
        snprintf(peer->failure, sizeof peer->failure, "the source cannot be asked: %s",
                 ucx_worker_text(&ucx->reader.worker, UCS_PTR_STATUS(request)));
    }
}

void ucx_slots_request(struct ucx *ucx)
{
    for (uint32_t i = 0; i < ucx->reader.slot_count; i++) {
        if (ucx->reader.slots[i].state == UCX_SLOT_QUEUED) {
            ucx_slot_request(&ucx->reader.slots[i]);
        }
    }
}

/* --- what arrives (UCX's callbacks: record only) -----------------------------------------------
 */

/* A small answer, or a part of a large one: placed where it belongs from where UCX has it. Of a
 * read that draws to its end nothing is written. */
static enum wf_status take_part(struct ucx_slot *slot, const struct ucx_head *head,
                                const void *data, size_t len)
{
    uint32_t left = slot->wire_bytes - slot->placed;
    bool fits = len > 0 && len <= left && head->offset <= slot->wire_bytes - len;
    bool is_wanted = slot->peer->in_parts || len == slot->wire_bytes;
    if (!fits || !is_wanted ||
        (!slot->read->draining && !ucx_read_place(slot, head->offset, data, (uint32_t)len))) {
        snprintf(slot->text, sizeof slot->text,
                 "the source sent %zu bytes at %u of a chunk of %u of which %u were there", len,
                 head->offset, slot->wire_bytes, slot->placed);
        return WF_PROTOCOL;
    }
    slot->placed += (uint32_t)len;
    return slot->placed == slot->wire_bytes ? WF_OK : WF_AGAIN;
}

static ucs_status_t record_data(struct ucx *ucx, const struct ucx_head *head, void *data,
                                size_t len, bool is_offer)
{
    uint32_t index = (uint32_t)head->tag;
    struct ucx_slot *slot = index < ucx->reader.slot_count ? &ucx->reader.slots[index] : NULL;
    if (slot == NULL || slot->generation != head->tag >> 32 || slot->state != UCX_SLOT_REQUESTED ||
        memcmp(slot->peer->handle.life, head->source, UCX_LIFE_BYTES) != 0) {
        return UCS_OK; /* nobody waits for it any more */
    }
    if (head->status == WF_TIMED_OUT) {
        slot->state = UCX_SLOT_QUEUED;
        slot->generation++; /* what was sent of it does not count */
        slot->placed = 0;
    } else if (head->status != WF_OK) {
        slot->state = UCX_SLOT_ARRIVED;
        slot->status = WF_REFUSED;
        snprintf(slot->text, sizeof slot->text, "the source refuses: %.*s",
                 (int)(is_offer    ? 0
                       : len < 200 ? len
                                   : 200),
                 (const char *)data);
    } else if (is_offer && (len != slot->wire_bytes || slot->peer->in_parts)) {
        slot->state = UCX_SLOT_ARRIVED;
        slot->status = WF_PROTOCOL;
        snprintf(slot->text, sizeof slot->text, "the source offers %zu bytes of a chunk of %u%s",
                 len, slot->wire_bytes, slot->peer->in_parts ? " that was asked for in parts" : "");
    } else if (is_offer) {
        slot->state = UCX_SLOT_OFFERED;
        slot->offer = data;
        ucx_slot_event(slot);
        return UCS_INPROGRESS;
    } else {
        enum wf_status status = take_part(slot, head, data, len);
        if (status == WF_AGAIN) {
            return UCS_OK;
        }
        slot->state = UCX_SLOT_ARRIVED;
        slot->status = status;
    }
    ucx_slot_event(slot);
    return UCS_OK;
}

static ucs_status_t record(void *argument, const void *header, size_t header_len, void *data,
                           size_t data_len, const ucp_am_recv_param_t *param)
{
    struct ucx *ucx = argument;
    struct ucx_head head;
    bool is_offer = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (ucx->reader.closing || !ucx_head_decode(header, header_len, &head) ||
        memcmp(head.reader, ucx->reader.life, UCX_LIFE_BYTES) != 0) {
        return UCS_OK;
    }
    ucx->reader.heard++;
    if (head.kind == UCX_DATA) {
        return record_data(ucx, &head, data, data_len, is_offer);
    }
    if (!is_offer && data_len <= UCX_ANSWER_MAX) {
        ucx_notes_add(&ucx->reader.notes, &head, data, data_len);
    }
    return UCS_OK;
}

void ucx_slot_landed(struct ucx_slot *slot, ucs_status_t status)
{
    struct ucx *ucx = slot->ucx;
    ucx->reader.receives--;
    ucx->reader.heard++;
    if (ucx->reader.closing) {
        return;
    }
    slot->state = UCX_SLOT_ARRIVED;
    if (status != UCS_OK) {
        slot->status = WF_PEER_LOST;
        snprintf(slot->text, sizeof slot->text, "a chunk did not arrive: %s",
                 ucx_worker_text(&ucx->reader.worker, status));
    }
    ucx_slot_event(slot);
}

static void received(void *request, ucs_status_t status, size_t length, void *user)
{
    struct ucx_slot *slot = user;
    slot->ucx->library.ucp_request_free(request);
    ucx_slot_landed(
        slot, length == slot->wire_bytes || status != UCS_OK ? status : UCS_ERR_MESSAGE_TRUNCATED);
}

/* --- acting on it ------------------------------------------------------------------------------
 */

static void receive(struct ucx_slot *slot)
{
    struct ucx *ucx = slot->ucx;
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.recv_am = received,
        .user_data = slot,
    };
    void *offer = slot->offer;
    slot->offer = NULL;
    slot->state = UCX_SLOT_ARRIVING;
    ucx->reader.receives++;
    ucs_status_ptr_t request = ucx->library.ucp_am_recv_data_nbx(
        ucx->reader.worker.worker, offer, slot->direct != NULL ? slot->direct : slot->buffer,
        slot->wire_bytes, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        ucx_slot_landed(slot, UCS_PTR_STATUS(request));
    }
}

static void act(struct ucx_slot *slot)
{
    if (slot->state == UCX_SLOT_FREE) {
        return;
    }
    if (slot->state == UCX_SLOT_QUEUED && !slot->sending) {
        ucx_slot_request(slot);
    } else if (slot->state == UCX_SLOT_OFFERED && !slot->read->draining) {
        receive(slot);
    } else if (slot->state == UCX_SLOT_OFFERED || slot->state == UCX_SLOT_ARRIVED) {
        slot->ucx->reader.landed |= slot->read->draining;
        ucx_read_slot(slot);
    }
}

static bool after(struct ucx_worker *worker)
{
    struct ucx *ucx = WF_CONTAINER(worker, struct ucx, reader.worker);
    bool moved = false, freed = false;
    for (struct ucx_note *note; (note = ucx_notes_take(&ucx->reader.notes)) != NULL;) {
        moved = true;
        if (note->head.kind == UCX_WELCOME) {
            ucx_peer_welcome(ucx, note);
        } else if (note->head.kind == UCX_OPENED) {
            ucx_import_note(ucx, note);
        }
        free(note);
    }
    for (struct ucx_slot *slot; (slot = ucx->reader.events) != NULL;) {
        moved = true;
        ucx->reader.events = slot->next_event;
        if (ucx->reader.events == NULL) {
            ucx->reader.last_event = NULL;
        }
        slot->is_event = false;
        act(slot);
        freed |= slot->state == UCX_SLOT_FREE;
    }
    moved |= ucx_peers_check(ucx);
    if (freed) {
        ucx_reads_pump(ucx);
    }
    return moved;
}

/* --- the worker --------------------------------------------------------------------------------
 */

static enum wf_status open_worker(struct ucx *ucx, struct wf_error *error)
{
    struct wf_env *env = wf_loop_env(ucx->loop);
    env->ops->random(env, ucx->reader.life, UCX_LIFE_BYTES);
    ucx->reader.worker.after = after;
    ucx->reader.devices = ucx_devices_stamp(); /* before UCX looks at them itself */
    return ucx_worker_open(&ucx->reader.worker, ucx->loop, &ucx->library, &ucx->recipe,
                           UCX_AM_TO_READER, record, ucx, error);
}

static void close_worker(struct ucx *ucx)
{
    ucx->reader.closing = true;
    ucx_peers_hang_up(ucx);
    ucx_worker_settle(&ucx->reader.worker, &ucx->reader.receives);
    ucx_get_drop_keys(ucx);
    ucx_worker_close(&ucx->reader.worker);
    ucx->reader.receives = 0;
    ucx->reader.closing = false;
    ucx_notes_clear(&ucx->reader.notes);
}

/* Everything that was on its way is asked for again, by the reads that still want it. */
static void reset_slots(struct ucx *ucx)
{
    ucx->reader.free = ucx->reader.events = ucx->reader.last_event = NULL;
    for (uint32_t i = ucx->reader.slot_count; i-- > 0;) {
        struct ucx_slot *slot = &ucx->reader.slots[i];
        slot->is_event = slot->sending = false;
        slot->offer = NULL; /* the worker's, and gone with it */
        if (slot->state == UCX_SLOT_FREE) {
            retire(slot);
        } else if (slot->state == UCX_SLOT_ARRIVED && slot->status == WF_OK) {
            ucx_slot_event(slot);
        } else {
            slot->generation++;
            slot->placed = 0;
            slot->status = WF_OK;
            slot->state = UCX_SLOT_QUEUED;
        }
    }
}

static void make_anew(struct ucx *ucx, const char *why)
{
    struct wf_error error;
    wf_log(wf_loop_log(ucx->loop), WF_LOG_WARN, "ucx makes its reading side anew: %s", why);
    ucx->reader.rebuilds++;
    close_worker(ucx);
    reset_slots(ucx);
    if (open_worker(ucx, &error) != WF_OK) {
        wf_log(wf_loop_log(ucx->loop), WF_LOG_ERROR, "%s", error.text);
        ucx_reads_fail(ucx, NULL, WF_NO_RESOURCE, error.text);
        ucx_imports_fail(ucx, NULL, WF_NO_RESOURCE, error.text);
    }
    ucx_reads_resume(ucx);
}

static void barrier_passed(struct wf_timer *timer)
{
    struct ucx *ucx = WF_CONTAINER(timer, struct ucx, reader.barrier);
    bool is_needed = false;
    for (struct ucx_read *open = ucx->reader.reads; open != NULL; open = open->next) {
        is_needed |= open->draining;
    }
    if (!is_needed) {
        return;
    }
    if (ucx->reader.landed) {
        ucx_barrier_arm(ucx);
        return;
    }
    make_anew(ucx, "a source stopped in the middle of a chunk");
}

void ucx_barrier_arm(struct ucx *ucx)
{
    ucx->reader.landed = false;
    ucx->reader.barrier.fire = barrier_passed;
    ucx->reader.barrier.name = "ucx barrier";
    if (!wf_timer_is_armed(&ucx->reader.barrier)) {
        wf_timer_arm(ucx->loop, &ucx->reader.barrier, wf_loop_now_ns(ucx->loop) + UCX_BARRIER_NS);
    }
}

static void look(struct wf_timer *timer)
{
    struct ucx *ucx = WF_CONTAINER(timer, struct ucx, reader.look);
    struct ucx_reader *reader = &ucx->reader;
    if (reader->reads == NULL && reader->imports == NULL) {
        return;
    }
    uint64_t devices = reader->heard == reader->had_heard ? ucx_devices_stamp() : 0;
    if (devices != 0 && devices != reader->devices) {
        make_anew(ucx, "the host's interfaces have changed, and no source is heard any more");
    }
    ucx_reader_watch(ucx);
}

void ucx_reader_watch(struct ucx *ucx)
{
    struct ucx_reader *reader = &ucx->reader;
    reader->heard++; /* what begins now has its time too */
    if (!wf_timer_is_armed(&reader->look)) {
        reader->look.fire = look;
        reader->look.name = "ucx look";
        reader->had_heard = reader->heard;
        wf_timer_arm(ucx->loop, &reader->look, wf_loop_now_ns(ucx->loop) + UCX_LOOK_NS);
    }
}

enum wf_status ucx_reader_open(struct ucx *ucx, struct wf_error *error)
{
    struct ucx_reader *reader = &ucx->reader;
    if (reader->worker.worker != NULL) {
        return WF_OK;
    }
    if (reader->slots == NULL) {
        uint64_t count = ucx->transit_bytes / ucx->chunk_bytes;
        reader->slot_count = (uint32_t)(count < UCX_SLOTS_MAX ? count : UCX_SLOTS_MAX);
        reader->slots = calloc(reader->slot_count, sizeof *reader->slots);
        if (reader->slots == NULL) {
            return wf_error_set(error, WF_NO_MEMORY, "no memory for %u chunks' records",
                                reader->slot_count);
        }
        for (uint32_t i = reader->slot_count; i-- > 0;) {
            reader->slots[i].index = i;
            reader->slots[i].ucx = ucx;
            retire(&reader->slots[i]);
        }
    }
    return open_worker(ucx, error);
}

void ucx_reader_close(struct ucx *ucx)
{
    wf_timer_cancel(ucx->loop, &ucx->reader.barrier);
    wf_timer_cancel(ucx->loop, &ucx->reader.look);
    close_worker(ucx);
    for (uint32_t i = 0; i < ucx->reader.slot_count; i++) {
        free(ucx->reader.slots[i].buffer);
        free(ucx->reader.slots[i].body);
    }
    free(ucx->reader.slots);
}
