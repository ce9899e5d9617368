/* ucx_import.c - importing: the source is greeted, asked for the region, and waited for. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transports/ucx_internal.h"

static void finish(struct ucx_import *open, enum wf_status status, const char *why)
{
    struct ucx *ucx = open->ucx;
    struct ucx_import **link = &ucx->reader.imports;
    while (*link != open) {
        link = &(*link)->next;
    }
    *link = open->next;
    wf_timer_cancel(ucx->loop, &open->deadline);
    wf_timer_cancel(ucx->loop, &open->again);
    struct wf_import *import = open->import;
    import->status = status;
    import->remote = NULL;
    if (status == WF_OK) {
        import->remote = &open->remote->base; /* and the import's reference to the peer */
    } else {
        wf_error_set(&import->error, status, "%s", why);
        free(open->remote);
        ucx_peer_put(open->peer);
    }
    free(open);
    wf_send(import->owner, &import->done);
}

static void deadline_passed(struct wf_timer *timer)
{
    struct ucx_import *open = WF_CONTAINER(timer, struct ucx_import, deadline);
    char why[200];
    snprintf(why, sizeof why, "the source (process %llu) did not answer within %llu s",
             (unsigned long long)open->peer->handle.pid,
             (unsigned long long)(UCX_IMPORT_NS / 1000000000));
    finish(open, WF_TIMED_OUT, why);
}

static void ask(struct ucx_import *open)
{
    struct ucx *ucx = open->ucx;
    struct ucx_head head = {.kind = UCX_OPEN,
                            .tag = open->tag,
                            .region = open->remote->region,
                            .len_bytes = open->remote->base.len_bytes};
    memcpy(head.source, open->peer->handle.life, UCX_LIFE_BYTES);
    memcpy(head.reader, ucx->reader.life, UCX_LIFE_BYTES);
    open->asked = true;
    ucx_say(&ucx->reader.worker, open->peer->eps[0], UCX_AM_TO_SOURCE, &head, NULL, 0);
}

/* If the connection was lost meanwhile, its next one asks. */
static void ask_again(struct wf_timer *timer)
{
    struct ucx_import *open = WF_CONTAINER(timer, struct ucx_import, again);
    if (open->peer->state == UCX_PEER_READY) {
        ask(open);
    }
}

/* The source is there, and has more to do before anybody may read. */
static void wait_for_source(struct ucx_import *open, const char *why)
{
    struct wf_loop *loop = open->ucx->loop;
    uint64_t now_ns = wf_loop_now_ns(loop);
    if (now_ns >= open->until_ns) {
        finish(open, WF_TIMED_OUT, why);
        return;
    }
    wf_timer_arm(loop, &open->deadline, now_ns + UCX_IMPORT_NS);
    wf_timer_arm(loop, &open->again, now_ns + open->again_ns);
    open->again_ns *= open->again_ns < UCX_ASK_SELDOM_NS ? 2 : 1;
}

void ucx_imports_ask(struct ucx *ucx, struct ucx_peer *peer)
{
    for (struct ucx_import *open = ucx->reader.imports; open != NULL; open = open->next) {
        if (open->peer == peer && !open->asked) {
            ask(open);
        }
    }
}

void ucx_imports_fail(struct ucx *ucx, struct ucx_peer *peer, enum wf_status status,
                      const char *why)
{
    for (struct ucx_import *open = ucx->reader.imports, *next; open != NULL; open = next) {
        next = open->next;
        if (peer == NULL || open->peer == peer) {
            finish(open, status, why);
        }
    }
}

void ucx_imports_resume(struct ucx *ucx)
{
    for (struct ucx_import *open = ucx->reader.imports; open != NULL; open = open->next) {
        open->asked = false;
    }
    for (struct ucx_import *open = ucx->reader.imports; open != NULL;) {
        bool is_greeted = ucx_peer_greet(open->peer);
        if (!is_greeted) {
            ucx_imports_fail(ucx, open->peer, WF_PEER_LOST, open->peer->failure);
        }
        open = is_greeted ? open->next : ucx->reader.imports; /* others of the peer ended too */
    }
}

void ucx_import_note(struct ucx *ucx, const struct ucx_note *note)
{
    struct ucx_import *open = ucx->reader.imports;
    while (open != NULL && open->tag != note->head.tag) {
        open = open->next;
    }
    if (open == NULL || memcmp(open->peer->handle.life, note->head.source, UCX_LIFE_BYTES) != 0) {
        return; /* it came too late */
    }
    char why[UCX_TEXT_MAX + 40];
    snprintf(why, sizeof why, "the source refuses: %.*s",
             (int)(note->body_len < UCX_TEXT_MAX ? note->body_len : UCX_TEXT_MAX),
             (const char *)note->body);
    if (note->head.status == WF_AGAIN) {
        wait_for_source(open, why);
        return;
    }
    if (note->head.status == WF_OK) {
        ucx_get_keep(open->remote, note->body, note->body_len);
    }
    finish(open, note->head.status == WF_OK ? WF_OK : WF_REFUSED, why);
}

/* --- beginning and ending ----------------------------------------------------------------------
 */

static enum wf_status start(struct ucx *ucx, struct wf_import *import, struct ucx_handle *handle,
                            struct wf_error *error)
{
    struct ucx_import *open = calloc(1, sizeof *open);
    struct ucx_remote *remote = calloc(1, sizeof *remote);
    struct ucx_peer *peer = open != NULL && remote != NULL ? ucx_peer_get(ucx, handle) : NULL;
    if (peer == NULL) {
        free(open);
        free(remote);
        return wf_error_set(error, WF_NO_MEMORY, "no memory for an import");
    }
    if (!ucx_peer_greet(peer)) {
        enum wf_status status = wf_error_set(error, WF_UNSUPPORTED, "%s", peer->failure);
        free(open);
        free(remote);
        ucx_peer_put(peer);
        return status;
    }
    *remote = (struct ucx_remote){
        .base = {&ucx->base, handle->len_bytes}, .peer = peer, .region = handle->region};
    *open = (struct ucx_import){.next = ucx->reader.imports,
                                .import = import,
                                .peer = peer,
                                .remote = remote,
                                .ucx = ucx,
                                .tag = ++ucx->reader.next_tag,
                                .again_ns = UCX_ASK_AGAIN_NS,
                                .until_ns = wf_loop_now_ns(ucx->loop) + UCX_REGISTER_NS,
                                .deadline = {.fire = deadline_passed, .name = "ucx import"},
                                .again = {.fire = ask_again, .name = "ucx import, again"}};
    ucx->reader.imports = open;
    ucx_reader_watch(ucx);
    wf_timer_arm(ucx->loop, &open->deadline, wf_loop_now_ns(ucx->loop) + UCX_IMPORT_NS);
    if (peer->state == UCX_PEER_READY) {
        ask(open);
    }
    return WF_OK;
}

void ucx_import_region(struct wf_transport *t, struct wf_import *import)
{
    struct ucx *ucx = WF_CONTAINER(t, struct ucx, base);
    struct ucx_handle handle;
    import->remote = NULL;
    enum wf_status status = ucx_handle_decode(&import->handle, &handle, &import->error);
    if (import->handle.fd >= 0) {
        close(import->handle.fd);
        import->handle.fd = -1;
    }
    if (status == WF_OK && (handle.len_bytes != import->len_bytes || handle.len_bytes == 0 ||
                            handle.len_bytes > INT64_MAX)) {
        status = wf_error_set(
            &import->error, WF_PROTOCOL, "the handle is for %llu bytes, the peer said %llu",
            (unsigned long long)handle.len_bytes, (unsigned long long)import->len_bytes);
    }
    if (status == WF_OK) {
        status = ucx_reader_open(ucx, &import->error);
    }
    if (status == WF_OK) {
        status = start(ucx, import, &handle, &import->error);
    }
    if (status != WF_OK) {
        import->status = status;
        wf_send(import->owner, &import->done);
    }
}

void ucx_release_region(struct wf_transport *t, struct wf_remote *base)
{
    (void)t;
    struct ucx_remote *remote = (struct ucx_remote *)base;
    WF_ASSERT(remote->open_reads == 0);
    ucx_get_forget(remote);
    ucx_peer_put(remote->peer);
    free(remote);
}
