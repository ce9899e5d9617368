/* ucx_chunk.c - a source's answer to a request for a chunk: checked, packed where it must be, sent
 * whole or in parts. Nothing of a request is believed. */
#include "transports/ucx_internal.h"

/* One slice, checked. */
struct slice {
    struct ucx_region *region;
    struct wf_box box;
    enum wf_dtype src, wire;
    uint64_t first, count, elem; /* elem: bytes on the wire */
    uint32_t encoded;            /* bytes in the request */
};

static enum wf_status take_slice(struct ucx *ucx, const struct ucx_note *note, uint32_t at,
                                 struct slice *slice_out, struct wf_error *error)
{
    struct ucx_slice slice;
    size_t len = ucx_slice_decode(note->body + at, note->body_len - at, &slice);
    struct ucx_region *region = len > 0 ? ucx_region_find(ucx, slice.region) : NULL;
    if (region == NULL) {
        return wf_error_set(error, WF_INVALID,
                            len == 0 ? "a request is cut short"
                                     : "a slice names a region that is not there");
    }
    *slice_out = (struct slice){.region = region,
                                .src = (enum wf_dtype)slice.dtype,
                                .wire = (enum wf_dtype)slice.wire_dtype,
                                .first = slice.first,
                                .count = slice.count,
                                .encoded = (uint32_t)len};
    enum wf_status status = ucx_slice_box(&slice, region->len_bytes, &slice_out->box, error);
    slice_out->elem = status == WF_OK ? wf_dtype_bytes(slice_out->wire) : 0;
    return status;
}

/* How many elements from `element` of the slice on lie where they are as the reader wants them. */
static uint64_t run_of(const struct slice *slice, uint64_t element)
{
    uint64_t left = slice->count - element, run = 0;
    if (slice->src == slice->wire) {
        run = ucx_box_run(&slice->box, false, slice->elem, slice->first + element);
    }
    return run < left ? run : left;
}

static const uint8_t *place_of(const struct slice *slice, uint64_t element)
{
    return slice->region->address + ucx_box_offset(&slice->box, false, slice->first + element);
}

static void pack(const struct slice *slice, uint64_t element, uint64_t count, uint8_t *into)
{
    void *base = (void *)((uintptr_t)into - (slice->first + element) * slice->elem);
    wf_copy_box_cached(&slice->box, slice->region->address, slice->src, base, slice->wire,
                       (struct wf_copy_part){slice->first + element, count});
}

static enum wf_status check(struct ucx_client *client, const struct ucx_note *note,
                            struct wf_error *error)
{
    struct ucx *ucx = client->ucx;
    uint64_t bytes = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < note->head.count; i++) {
        struct slice slice;
        enum wf_status status = take_slice(ucx, note, at, &slice, error);
        if (status != WF_OK) {
            return status;
        }
        if (slice.count > (ucx->chunk_bytes - bytes) / slice.elem) {
            return wf_error_set(error, WF_INVALID,
                                "a request is for more than a chunk of %u bytes; use one chunk "
                                "size in the whole job",
                                ucx->chunk_bytes);
        }
        bytes += slice.count * slice.elem;
        at += slice.encoded;
    }
    if (bytes != note->head.len_bytes || bytes == 0 || note->head.lane >= client->lanes) {
        return wf_error_set(error, WF_INVALID,
                            "a request for %llu bytes on lane %u of %u names %llu bytes",
                            (unsigned long long)note->head.len_bytes, note->head.lane,
                            client->lanes, (unsigned long long)bytes);
    }
    return WF_OK;
}

/* --- whole -------------------------------------------------------------------------------------
 */

static bool serve_whole(struct ucx_client *client, const struct ucx_note *note)
{
    struct ucx *ucx = client->ucx;
    struct slice slice;
    struct ucx_body body = {.len = (uint32_t)note->head.len_bytes};
    take_slice(ucx, note, 0, &slice, NULL);
    if (note->head.count == 1 && run_of(&slice, 0) == slice.count) {
        body.region = slice.region;
        body.bytes = place_of(&slice, 0);
        ucx_transmit(client, note, &body);
        return true;
    }
    body.bytes = body.buffer = ucx_buffer_take(client);
    if (body.buffer == NULL) {
        return false;
    }
    uint8_t *into = body.buffer;
    for (uint32_t i = 0, at = 0; i < note->head.count; i++) {
        take_slice(ucx, note, at, &slice, NULL);
        pack(&slice, 0, slice.count, into);
        into += slice.count * slice.elem;
        at += slice.encoded;
    }
    ucx_transmit(client, note, &body);
    return true;
}

/* --- in parts ----------------------------------------------------------------------------------
 */

/* How many elements at the cursor to pack into `room` bytes: up to the next run that is sent from
 * where it lies. */
static uint64_t to_pack(const struct slice *slice, uint64_t element, uint64_t room)
{
    uint64_t left = slice->count - element, run = run_of(slice, element);
    uint64_t count = left;
    if (run > 0 && run < left && run_of(slice, element + run) * slice->elem >= UCX_PART_RUN_MIN) {
        count = run;
    }
    return count < room / slice->elem ? count : room / slice->elem;
}

static void advance(struct ucx_cursor *cursor, const struct slice *slice, uint64_t count)
{
    cursor->sent += (uint32_t)(count * slice->elem);
    cursor->element += count;
    if (cursor->element == slice->count) {
        cursor->element = 0;
        cursor->slice++;
        cursor->at += slice->encoded;
    }
}

/* The next part of a checked request. A region may have been withdrawn since: then an error. False
 * in *can_out: there is no buffer. */
static enum wf_status next_part(struct ucx_client *client, struct ucx_note *note,
                                struct ucx_body *body, bool *can_out, struct wf_error *error)
{
    struct ucx_cursor *cursor = &note->cursor;
    *body = (struct ucx_body){.offset = cursor->sent};
    while (cursor->slice < note->head.count && body->len < UCX_PART_BYTES) {
        struct slice slice;
        enum wf_status status = take_slice(client->ucx, note, cursor->at, &slice, error);
        if (status != WF_OK) {
            return status;
        }
        uint64_t run = run_of(&slice, cursor->element), count;
        bool in_place = run * slice.elem >= UCX_PART_RUN_MIN;
        if (in_place && body->len > 0) {
            break;
        }
        if (in_place) {
            count = run < UCX_PART_BYTES / slice.elem ? run : UCX_PART_BYTES / slice.elem;
            body->region = slice.region;
            body->bytes = place_of(&slice, cursor->element);
        } else {
            count = to_pack(&slice, cursor->element, UCX_PART_BYTES - body->len);
            body->buffer = body->buffer != NULL ? body->buffer : ucx_buffer_take(client);
            *can_out = body->buffer != NULL;
            if (count == 0 || !*can_out) {
                break;
            }
            pack(&slice, cursor->element, count, body->buffer + body->len);
            body->bytes = body->buffer;
        }
        body->len += (uint32_t)(count * slice.elem);
        advance(cursor, &slice, count);
        if (in_place) {
            break;
        }
    }
    return WF_OK;
}

static bool serve_parts(struct ucx_client *client, struct ucx_note *note)
{
    while (note->cursor.sent < note->head.len_bytes && !client->failed) {
        struct wf_error error;
        struct ucx_body body;
        bool can = true;
        if (client->sends >= UCX_PARTS_OUT * client->lanes) {
            return false;
        }
        enum wf_status status = next_part(client, note, &body, &can, &error);
        if (!can) {
            return false;
        }
        if (status != WF_OK) {
            ucx_buffer_give(client, body.buffer);
            ucx_answer(client, &note->head, UCX_DATA, status, error.text);
            return true;
        }
        ucx_transmit(client, note, &body);
    }
    return true;
}

bool ucx_chunk_serve(struct ucx_client *client, struct ucx_note *note)
{
    struct wf_error error;
    if (!note->cursor.is_checked) {
        enum wf_status status = check(client, note, &error);
        if (status != WF_OK) {
            ucx_answer(client, &note->head, UCX_DATA, status, error.text);
            return true;
        }
        note->cursor.is_checked = true;
    }
    return note->head.in_parts ? serve_parts(client, note) : serve_whole(client, note);
}
