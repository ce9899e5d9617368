/* ucx_serve.c - what a source does with what readers say: nothing is believed. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "runtime/log.h"
#include "transports/ucx_internal.h"

/* --- clients -----------------------------------------------------------------------------------
 */

static void on_error(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    (void)status;
    ((struct ucx_client *)argument)->failed = true;
}

static struct ucx_client *find_client(struct ucx *ucx, const uint8_t *life)
{
    struct ucx_client *client = ucx->source.clients;
    while (client != NULL && (client->dead || memcmp(client->life, life, UCX_LIFE_BYTES) != 0)) {
        client = client->next;
    }
    return client;
}

static void forget_waiting(struct ucx_client *client)
{
    struct ucx_notes *waiting = &client->ucx->source.waiting;
    for (uint32_t i = client->waiting > 0 ? waiting->count : 0; i > 0; i--) {
        struct ucx_note *note = ucx_notes_take(waiting);
        if (memcmp(note->head.reader, client->life, UCX_LIFE_BYTES) == 0) {
            free(note);
        } else {
            ucx_notes_put(waiting, note);
        }
    }
    client->waiting = 0;
}

void ucx_client_cut(struct ucx_client *client, bool force)
{
    client->dead = true;
    forget_waiting(client);
    for (uint32_t i = 0; i < client->lanes; i++) {
        ucx_disconnect(&client->ucx->source.worker, client->eps[i], force);
    }
    client->lanes = 0;
}

/* Frees the dead whose sends have ended. */
static bool bury(struct ucx *ucx)
{
    bool any = false;
    for (struct ucx_client **link = &ucx->source.clients, *client; (client = *link) != NULL;) {
        if (client->failed && client->lanes > 0) {
            ucx_client_cut(client, true);
            any = true;
        }
        if (client->dead && client->sends == 0) {
            ucx_client_cut(client, false); /* one that said BYE; its connections were kept */
            *link = client->next;
            free(client);
            ucx->source.client_count--;
        } else {
            link = &client->next;
        }
    }
    return any;
}

/* The region is there: and the key to it, for a reader that can get. */
static void answer_opened(struct ucx_client *client, const struct ucx_head *to,
                          const struct ucx_region *region)
{
    struct ucx_head head = *to;
    uint8_t body[UCX_ANSWER_MAX];
    uint64_t address = (uint64_t)(uintptr_t)region->address;
    size_t len = 0;
    head.kind = UCX_OPENED;
    head.status = WF_OK;
    if (region->key != NULL && region->key_len <= sizeof body - sizeof address) {
        memcpy(body, &address, sizeof address);
        memcpy(body + sizeof address, region->key, region->key_len);
        len = sizeof address + region->key_len;
    }
    ucx_say(&client->ucx->source.worker, client->eps[0], UCX_AM_TO_READER, &head, body, len);
}

void ucx_answer(struct ucx_client *client, const struct ucx_head *to, uint8_t kind,
                enum wf_status status, const char *why)
{
    struct ucx_head head = *to;
    head.kind = kind;
    head.status = (uint32_t)status;
    size_t len = status == WF_OK ? 0 : strnlen(why, UCX_TEXT_MAX);
    uint32_t lane = to->kind == UCX_CHUNK && to->lane < client->lanes ? to->lane : 0;
    ucx_say(&client->ucx->source.worker, client->eps[lane], UCX_AM_TO_READER, &head, why, len);
}

static struct ucx_client *add_client(struct ucx *ucx, const struct ucx_note *note)
{
    struct wf_error error;
    struct ucx_client *client =
        ucx->source.client_count < UCX_CLIENTS_MAX ? calloc(1, sizeof *client) : NULL;
    if (client == NULL) {
        wf_log(wf_loop_log(ucx->loop), WF_LOG_WARN, "ucx has no room for another reader");
        return NULL;
    }
    client->ucx = ucx;
    memcpy(client->life, note->head.reader, UCX_LIFE_BYTES);
    client->connection = note->head.tag;
    while (client->lanes < note->head.lane) {
        if (ucx_connect(&ucx->source.worker, note->body, on_error, client,
                        &client->eps[client->lanes], &error) != WF_OK) {
            wf_log(wf_loop_log(ucx->loop), WF_LOG_WARN, "ucx cannot answer a reader: %s",
                   error.text);
            ucx_client_cut(client, true);
            free(client);
            return NULL;
        }
        client->lanes++;
    }
    client->next = ucx->source.clients;
    ucx->source.clients = client;
    ucx->source.client_count++;
    return client;
}

/* UCX believes every address, so the body ends with a hash of it. */
static bool is_address(const struct ucx_note *note)
{
    uint64_t hash;
    if (note->body_len <= sizeof hash || note->body_len > WF_HANDLE_MAX) {
        return false;
    }
    size_t len = note->body_len - sizeof hash;
    memcpy(&hash, note->body + len, sizeof hash);
    return hash == XXH3_64bits(note->body, len);
}

static void welcome(struct ucx *ucx, const struct ucx_note *note)
{
    const struct ucx_head *head = &note->head;
    bool is_me = memcmp(head->source, ucx->life, UCX_LIFE_BYTES) == 0;
    struct ucx_client *client = is_me ? find_client(ucx, head->reader) : NULL;
    if (!is_address(note) || head->lane == 0 || head->lane > WF_UCX_LANES_MAX ||
        (client != NULL && client->connection >= head->tag)) {
        return; /* nonsense, or overtaken by a later connection */
    }
    if (client != NULL) {
        ucx_client_cut(client, true); /* it has connected again, so it gave this one up */
    }
    client = add_client(ucx, note);
    if (client == NULL) {
        return;
    }
    ucx_answer(client, head, UCX_WELCOME, is_me ? WF_OK : WF_STALE,
               "the handle belongs to an earlier life of this process");
    if (!is_me) {
        ucx_client_cut(client, false);
    }
}

/* --- regions -----------------------------------------------------------------------------------
 */

struct ucx_region *ucx_region_find(struct ucx *ucx, uint64_t id)
{
    struct ucx_region *region = ucx->source.regions;
    while (region != NULL && region->id != id) {
        region = region->next;
    }
    return region;
}

static void open_region(struct ucx *ucx, struct ucx_client *client, const struct ucx_head *head)
{
    const struct ucx_region *region = ucx_region_find(ucx, head->region);
    char why[UCX_TEXT_MAX] = "";
    enum wf_status status = WF_OK;
    if (region == NULL) {
        status = WF_NOT_FOUND;
        snprintf(why, sizeof why, "there is no region %llu, or not any more",
                 (unsigned long long)head->region);
    } else if (region->len_bytes != head->len_bytes) {
        status = WF_INVALID;
        snprintf(why, sizeof why, "region %llu has %llu bytes, not %llu",
                 (unsigned long long)head->region, (unsigned long long)region->len_bytes,
                 (unsigned long long)head->len_bytes);
    }
    if (status == WF_OK && region->busy) {
        status = WF_AGAIN; /* its key is to come: without it the reader would stream for good */
        snprintf(why, sizeof why, "region %llu is still being registered",
                 (unsigned long long)head->region);
    }
    if (status == WF_OK) {
        answer_opened(client, head, region);
        return;
    }
    ucx_answer(client, head, UCX_OPENED, status, why);
}

/* --- sending -----------------------------------------------------------------------------------
 */

void ucx_buffer_give(struct ucx_client *client, uint8_t *bytes)
{
    struct ucx_source *source = &client->ucx->source;
    struct ucx_buffer *buffer = (struct ucx_buffer *)bytes;
    if (buffer != NULL) {
        buffer->next = source->buffers;
        source->buffers = buffer;
        source->buffers_out--;
        client->buffers--;
    }
}

void ucx_send_end(struct ucx_send *send)
{
    struct ucx_source *source = &send->ucx->source;
    ucx_buffer_give(send->client, send->buffer);
    *send->link = send->next;
    if (send->next != NULL) {
        send->next->link = send->link;
    }
    send->client->sends--;
    source->sends_out--;
    source->completed++;
    free(send);
}

static void sent(void *request, ucs_status_t status, void *user)
{
    struct ucx_send *send = user;
    send->ucx->library.ucp_request_free(request);
    if (status != UCS_OK && !send->ucx->source.closing) {
        send->client->failed = true;
    }
    ucx_send_end(send);
}

static void check_sends(struct wf_timer *timer)
{
    struct ucx *ucx = WF_CONTAINER(timer, struct ucx, source.check);
    uint64_t now_ns = wf_loop_now_ns(ucx->loop);
    for (struct ucx_send *send = ucx->source.sends; send != NULL; send = send->next) {
        if (send->deadline_ns <= now_ns && !send->client->failed) {
            wf_log(wf_loop_log(ucx->loop), WF_LOG_WARN,
                   "a ucx reader does not take what it asked for; its connection is cut");
            send->client->failed = true;
        }
    }
    ucx_worker_progress(&ucx->source.worker);
    if (ucx->source.sends != NULL || ucx->source.waiting.first != NULL) {
        wf_timer_arm(ucx->loop, timer, now_ns + UCX_SEND_SLACK_NS);
    }
}

void ucx_transmit(struct ucx_client *client, const struct ucx_note *note,
                  const struct ucx_body *body)
{
    struct ucx *ucx = client->ucx;
    struct ucx_send *send = calloc(1, sizeof *send);
    if (send == NULL) {
        ucx_buffer_give(client, body->buffer);
        ucx_answer(client, &note->head, UCX_DATA, WF_NO_MEMORY, "no memory for a send's record");
        return;
    }
    *send = (struct ucx_send){.next = ucx->source.sends,
                              .link = &ucx->source.sends,
                              .ucx = ucx,
                              .client = client,
                              .region = body->region,
                              .buffer = body->buffer,
                              .deadline_ns = note->deadline_ns + UCX_SEND_SLACK_NS};
    if (send->next != NULL) {
        send->next->link = &send->next;
    }
    ucx->source.sends = send;
    client->sends++;
    ucx->source.sends_out++;
    struct ucx_head head = note->head;
    head.kind = UCX_DATA;
    head.status = WF_OK;
    head.offset = body->offset;
    memcpy(head.source, ucx->life, UCX_LIFE_BYTES);
    ucx_head_encode(&head, send->head);
    bool is_eager = head.in_parts || body->len < UCX_RENDEZVOUS_MIN;
    const ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = is_eager ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV,
        .cb.send = sent,
        .user_data = send,
    };
    ucs_status_ptr_t request =
        ucx->library.ucp_am_send_nbx(client->eps[head.lane], UCX_AM_TO_READER, send->head,
                                     UCX_HEAD_BYTES, body->bytes, body->len, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        client->failed |= UCS_PTR_IS_ERR(request);
        ucx_send_end(send);
    } else if (!wf_timer_is_armed(&ucx->source.check)) {
        ucx->source.check.fire = check_sends;
        ucx->source.check.name = "ucx sends";
        wf_timer_arm(ucx->loop, &ucx->source.check, wf_loop_now_ns(ucx->loop) + UCX_SEND_SLACK_NS);
    }
}

uint8_t *ucx_buffer_take(struct ucx_client *client)
{
    struct ucx_source *source = &client->ucx->source;
    struct ucx_buffer *buffer = source->buffers;
    if (source->buffers_out >= source->buffer_limit ||
        client->buffers >= source->buffer_limit - source->buffers_out) {
        return NULL;
    }
    if (buffer != NULL) {
        source->buffers = buffer->next;
    } else {
        buffer = malloc(client->ucx->chunk_bytes);
    }
    if (buffer != NULL) {
        source->buffers_out++;
        client->buffers++;
    }
    return (uint8_t *)buffer;
}

/* --- chunks ------------------------------------------------------------------------------------
 */

/* What waited, oldest first; a reader that takes nothing does not hold up the others. Whose time is
 * over is told so: its reader may want it for longer than a request is kept. */
static bool serve_waiting(struct ucx *ucx)
{
    struct ucx_notes *waiting = &ucx->source.waiting;
    uint64_t now_ns = waiting->first != NULL ? wf_loop_now_ns(ucx->loop) : 0;
    bool any = false;
    bool may_go_on = ucx->source.looked != ucx->source.completed || ucx->source.sends_out == 0;
    if (waiting->first == NULL || (!may_go_on && waiting->first->deadline_ns > now_ns)) {
        return false; /* what they wait for comes with the end of a send */
    }
    ucx->source.looked = ucx->source.completed;
    for (uint32_t i = waiting->count; i > 0; i--) {
        struct ucx_note *note = ucx_notes_take(waiting);
        struct ucx_client *client = find_client(ucx, note->head.reader);
        WF_ASSERT(client != NULL); /* who is cut takes what waits along */
        bool is_late = note->deadline_ns <= now_ns;
        if (!client->failed && !is_late && !ucx_chunk_serve(client, note)) {
            ucx_notes_put(waiting, note); /* behind those that were not looked at: order stays */
            continue;
        }
        if (!client->failed && is_late) {
            ucx_answer(client, &note->head, UCX_DATA, WF_TIMED_OUT, "it could not be sent in time");
        }
        client->waiting--;
        free(note);
        any = true;
    }
    return any;
}

static void hear_chunk(struct ucx *ucx, struct ucx_client *client, struct ucx_note *note)
{
    struct ucx_notes *waiting = &ucx->source.waiting;
    uint32_t ms =
        note->head.timeout_ms < UCX_REQUEST_MS_MAX ? note->head.timeout_ms : UCX_REQUEST_MS_MAX;
    note->deadline_ns = wf_loop_now_ns(ucx->loop) + (uint64_t)ms * 1000000;
    if (client->waiting == 0 && ucx_chunk_serve(client, note)) {
        return;
    }
    struct ucx_note *kept = client->waiting < UCX_WAITING_MAX
                                ? ucx_notes_add(waiting, &note->head, note->body, note->body_len)
                                : NULL;
    if (kept == NULL) {
        ucx_answer(client, &note->head, UCX_DATA, WF_NO_RESOURCE, "too many requests wait");
        return;
    }
    kept->deadline_ns = note->deadline_ns;
    kept->cursor = note->cursor;
    client->waiting++;
}

static void hear(struct ucx *ucx, struct ucx_note *note)
{
    if (note->head.kind == UCX_HELLO) {
        welcome(ucx, note);
        return;
    }
    struct ucx_client *client = find_client(ucx, note->head.reader);
    if (client == NULL || client->failed ||
        memcmp(note->head.source, ucx->life, UCX_LIFE_BYTES) != 0) {
        return;
    }
    if (note->head.kind == UCX_OPEN) {
        open_region(ucx, client, &note->head);
    } else if (note->head.kind == UCX_CHUNK) {
        hear_chunk(ucx, client, note);
    } else if (note->head.kind == UCX_BYE && note->head.tag == client->connection) {
        client->dead = true; /* what is being sent may end */
        forget_waiting(client);
    }
}

bool ucx_serve(struct ucx_worker *worker)
{
    struct ucx *ucx = WF_CONTAINER(worker, struct ucx, source.worker);
    uint64_t completed = ucx->source.completed;
    bool moved = false;
    if (ucx->source.overran) {
        ucx->source.overran = false;
        wf_log(wf_loop_log(ucx->loop), WF_LOG_WARN,
               "ucx readers say more than there is room for; who was not heard is cut");
    }
    for (struct ucx_note *note; (note = ucx_notes_take(&ucx->source.notes)) != NULL;) {
        hear(ucx, note);
        free(note);
        moved = true;
    }
    moved |= serve_waiting(ucx);
    moved |= bury(ucx);
    return moved || ucx->source.completed != completed;
}

ucs_status_t ucx_serve_record(void *argument, const void *header, size_t header_len, void *data,
                              size_t data_len, const ucp_am_recv_param_t *param)
{
    struct ucx *ucx = argument;
    struct ucx_head head;
    if (ucx->source.closing || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 ||
        !ucx_head_decode(header, header_len, &head)) {
        return UCS_OK;
    }
    if (ucx_notes_add(&ucx->source.notes, &head, data, data_len) == NULL) {
        struct ucx_client *client = find_client(ucx, head.reader);
        ucx->source.overran = true;
        if (client != NULL) {
            client->failed = true; /* else it would wait for an answer that never comes */
        }
    }
    return UCS_OK;
}
