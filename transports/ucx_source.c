/* ucx_source.c - the source's regions: exporting, withdrawing, and the end of it all. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/log.h"
#include "transports/ucx_host.h"
#include "transports/ucx_internal.h"

static enum wf_status open_worker(struct ucx *ucx, struct wf_error *error)
{
    struct ucx_source *source = &ucx->source;
    if (source->worker.worker != NULL) {
        return WF_OK;
    }
    source->buffer_limit = (uint32_t)(ucx->transit_bytes / ucx->chunk_bytes);
    source->worker.after = ucx_serve;
    return ucx_worker_open(&source->worker, ucx->loop, &ucx->library, &ucx->recipe,
                           UCX_AM_TO_SOURCE, ucx_serve_record, ucx, error);
}

enum wf_status ucx_export_region(struct wf_transport *t, const struct wf_region *region,
                                 struct wf_handle *handle_out, struct wf_error *error)
{
    struct ucx *ucx = WF_CONTAINER(t, struct ucx, base);
    if (region->memory != WF_MEMORY_HOST || region->address == NULL || region->len_bytes == 0) {
        return wf_error_set(error, WF_UNSUPPORTED,
                            "ucx offers host memory only, and at least one byte of it");
    }
    enum wf_status status = open_worker(ucx, error);
    if (status != WF_OK) {
        return status;
    }
    struct ucx_region *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return wf_error_set(error, WF_NO_MEMORY, "no memory for a region's record");
    }
    struct ucx_source *source = &ucx->source;
    *made = (struct ucx_region){.next = source->regions,
                                .ucx = ucx,
                                .id = ++source->next_region,
                                .address = region->address,
                                .len_bytes = region->len_bytes};
    struct ucx_handle handle = {.host = ucx->host,
                                .pid = (uint64_t)getpid(),
                                .pid_start = ucx_host_pid_start(getpid()),
                                .region = made->id,
                                .len_bytes = made->len_bytes,
                                .address_len = (uint32_t)source->worker.address_len,
                                .address = (const uint8_t *)source->worker.address};
    memcpy(handle.life, ucx->life, UCX_LIFE_BYTES);
    status = ucx_handle_encode(&handle, handle_out, error);
    if (status != WF_OK) {
        free(made);
        return status;
    }
    source->regions = made;
    ucx_register(made);
    return WF_OK;
}

/* --- withdrawing -------------------------------------------------------------------------------
 */

static bool is_sent_from(const struct ucx *ucx, const struct ucx_region *region)
{
    for (const struct ucx_send *send = ucx->source.sends; send != NULL; send = send->next) {
        if (send->region == region) {
            return true;
        }
    }
    return false;
}

/* The memory may be unmapped as soon as withdraw returns, so what is being sent from it must have
 * ended. Readers that are being served from it lose their connection; false: that did not help. */
static bool stop_sends(struct ucx *ucx, struct ucx_region *region)
{
    for (struct ucx_send *send = ucx->source.sends; send != NULL; send = send->next) {
        if (send->region == region) {
            send->client->failed = true;
        }
    }
    uint64_t until_ns = wf_loop_now_ns(ucx->loop) + UCX_WITHDRAW_NS;
    struct wf_env *env = wf_loop_env(ucx->loop);
    while (is_sent_from(ucx, region) && env->ops->now_ns(env) < until_ns) {
        ucx_worker_progress(&ucx->source.worker);
    }
    return !is_sent_from(ucx, region);
}

void ucx_withdraw_region(struct wf_transport *t, const struct wf_handle *handle)
{
    struct ucx *ucx = WF_CONTAINER(t, struct ucx, base);
    struct ucx_handle of;
    if (ucx_handle_decode(handle, &of, NULL) != WF_OK) {
        return;
    }
    struct ucx_region **link = &ucx->source.regions;
    while (*link != NULL && (*link)->id != of.region) {
        link = &(*link)->next;
    }
    struct ucx_region *region = *link;
    if (region == NULL) {
        return;
    }
    *link = region->next;
    if (is_sent_from(ucx, region) && !stop_sends(ucx, region)) {
        wf_log(wf_loop_log(ucx->loop), WF_LOG_WARN,
               "ucx ends its serving side: a region is withdrawn that a reader does not let go of");
        region->next = ucx->source.regions; /* it ends with the others */
        ucx->source.regions = region;
        ucx_source_close(ucx);
        return;
    }
    ucx_unregister(region);
}

void ucx_source_close(struct ucx *ucx)
{
    struct ucx_source *source = &ucx->source;
    wf_timer_cancel(ucx->loop, &source->check);
    source->closing = true;
    for (struct ucx_client *client = source->clients; client != NULL; client = client->next) {
        ucx_client_cut(client, true);
    }
    ucx_worker_settle(&source->worker, &source->sends_out);
    ucx_worker_close(&source->worker);
    source->closing = false;
    while (source->sends != NULL) {
        ucx_send_end(source->sends);
    }
    ucx_notes_clear(&source->notes);
    ucx_notes_clear(&source->waiting);
    for (struct ucx_client *client; (client = source->clients) != NULL;) {
        source->clients = client->next;
        free(client);
    }
    for (struct ucx_region *region; (region = source->regions) != NULL;) {
        source->regions = region->next;
        ucx_unregister(region);
    }
    for (struct ucx_buffer *buffer; (buffer = source->buffers) != NULL;) {
        source->buffers = buffer->next;
        free(buffer);
    }
    source->client_count = 0;
    WF_ASSERT(source->sends_out == 0 && source->buffers_out == 0);
}
