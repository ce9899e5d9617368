/* ucx_peer.c - the sources that a reader knows: connecting, losing, describing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/log.h"
#include "transports/ucx_host.h"
#include "transports/ucx_internal.h"
#include "transports/ucx_selected.h"

static void on_error(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    struct ucx_peer *peer = argument;
    if (!peer->failed && !peer->ucx->reader.closing) {
        peer->failed = true;
        snprintf(peer->failure, sizeof peer->failure, "the connection to the source failed: %s",
                 ucx_worker_text(&peer->ucx->reader.worker, status));
    }
}

/* --- the process, when it is on this host ------------------------------------------------------
 */

static void process_ended(struct wf_watch *watch, unsigned events)
{
    (void)events;
    struct ucx_peer *peer = WF_CONTAINER(watch, struct ucx_peer, exit);
    snprintf(peer->failure, sizeof peer->failure, "the source's process %llu ended",
             (unsigned long long)peer->handle.pid);
    ucx_peer_lose(peer);
}

static void unwatch(struct ucx_peer *peer)
{
    if (peer->exit_watched) {
        wf_watch_remove(peer->ucx->loop, &peer->exit);
        close(peer->exit.fd);
        peer->exit_watched = false;
    }
}

/* Where that process cannot be seen (another pid namespace), only deadlines and
 * connections tell. */
static void watch_process(struct ucx_peer *peer)
{
    if (peer->handle.host != peer->ucx->host || peer->exit_watched) {
        return;
    }
    pid_t pid = (pid_t)peer->handle.pid;
    int fd = pidfd_open(pid, 0);
    if (fd < 0 || ucx_host_pid_start(pid) != peer->handle.pid_start) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    peer->exit = (struct wf_watch){.fd = fd, .events = WF_READABLE, .ready = process_ended};
    if (wf_watch_add(peer->ucx->loop, &peer->exit) != WF_OK) {
        close(fd);
        return;
    }
    peer->exit_watched = true;
}

/* --- connecting --------------------------------------------------------------------------------
 */

struct ucx_peer *ucx_peer_get(struct ucx *ucx, const struct ucx_handle *handle)
{
    struct ucx_peer *peer = ucx->reader.peers;
    while (peer != NULL && (memcmp(peer->handle.life, handle->life, UCX_LIFE_BYTES) != 0 ||
                            peer->handle.address_len != handle->address_len ||
                            memcmp(peer->address, handle->address, handle->address_len) != 0)) {
        peer = peer->next;
    }
    if (peer == NULL) {
        peer = calloc(1, sizeof *peer);
        if (peer == NULL) {
            return NULL;
        }
        peer->ucx = ucx;
        peer->handle = *handle;
        memcpy(peer->address, handle->address, handle->address_len);
        peer->handle.address = peer->address;
        peer->next = ucx->reader.peers;
        ucx->reader.peers = peer;
    }
    peer->refs++;
    return peer;
}

static void hang_up(struct ucx_peer *peer, bool force)
{
    for (uint32_t i = 0; i < WF_UCX_LANES_MAX; i++) {
        if (peer->eps[i] != NULL) {
            ucx_disconnect(&peer->ucx->reader.worker, peer->eps[i], force);
            peer->eps[i] = NULL;
        }
    }
}

static void say(struct ucx_peer *peer, uint8_t kind)
{
    struct ucx *ucx = peer->ucx;
    struct ucx_worker *worker = &ucx->reader.worker;
    struct ucx_head head = {.kind = kind, .lane = (uint8_t)ucx->lanes, .tag = peer->connection};
    memcpy(head.source, peer->handle.life, UCX_LIFE_BYTES);
    memcpy(head.reader, ucx->reader.life, UCX_LIFE_BYTES);
    uint8_t body[WF_HANDLE_MAX];
    size_t len = 0;
    if (kind == UCX_HELLO && worker->address_len <= sizeof body - sizeof(uint64_t)) {
        uint64_t hash = XXH3_64bits(worker->address, worker->address_len);
        memcpy(body, worker->address, worker->address_len);
        memcpy(body + worker->address_len, &hash, sizeof hash);
        len = worker->address_len + sizeof hash;
    }
    ucx_say(worker, peer->eps[0], UCX_AM_TO_SOURCE, &head, body, len);
}

void ucx_peer_put(struct ucx_peer *peer)
{
    struct ucx *ucx = peer->ucx;
    if (--peer->refs > 0) {
        return;
    }
    if (peer->state == UCX_PEER_READY) {
        say(peer, UCX_BYE);
    }
    hang_up(peer, peer->state != UCX_PEER_READY);
    unwatch(peer);
    struct ucx_peer **link = &ucx->reader.peers;
    while (*link != peer) {
        link = &(*link)->next;
    }
    *link = peer->next;
    free(peer);
}

bool ucx_peer_greet(struct ucx_peer *peer)
{
    struct ucx *ucx = peer->ucx;
    struct wf_error error;
    if (peer->state == UCX_PEER_GREETED || peer->state == UCX_PEER_READY) {
        return true;
    }
    peer->failed = false;
    if (ucx->reader.worker.worker == NULL) {
        snprintf(peer->failure, sizeof peer->failure, "ucx has no worker for reading any more");
        return false;
    }
    watch_process(peer);
    for (uint32_t i = 0; i < ucx->lanes; i++) {
        if (ucx_connect(&ucx->reader.worker, peer->address, on_error, peer, &peer->eps[i],
                        &error) != WF_OK) {
            peer->eps[i] = NULL;
            hang_up(peer, true);
            snprintf(peer->failure, sizeof peer->failure, "%.*s", (int)sizeof peer->failure - 1,
                     error.text);
            peer->state = UCX_PEER_LOST;
            return false;
        }
    }
    peer->state = UCX_PEER_GREETED;
    peer->connection = ++ucx->reader.connections;
    say(peer, UCX_HELLO);
    return true;
}

static void tell_selected(struct ucx_peer *peer)
{
    struct ucx *ucx = peer->ucx;
    char *text = NULL, selected[200];
    size_t len;
    FILE *stream = open_memstream(&text, &len);
    if (stream == NULL || peer->is_described) {
        if (stream != NULL) {
            fclose(stream);
            free(text);
        }
        return;
    }
    ucx->library.ucp_ep_print_info(peer->eps[0], stream);
    fclose(stream);
    struct ucx_selected parsed = ucx_selected_parse(text);
    ucx_selected_text(&parsed, selected, sizeof selected);
    free(text);
    peer->can_get = ucx->has_rma && (ucx->get == WF_UCX_GET_ALWAYS || parsed.native_get);
    peer->in_parts = !ucx->whole_chunks && !peer->can_get && ucx_selected_is_bulk(&parsed, "tcp");
    peer->is_described = true;
    size_t used = strlen(ucx->description);
    if (!ucx_selected_is_listed(ucx->description, selected)) {
        snprintf(ucx->description + used, sizeof ucx->description - used, "; %s", selected);
    }
    wf_log(wf_loop_log(ucx->loop), WF_LOG_INFO,
           "ucx reads from process %llu by %s, %u connection%s",
           (unsigned long long)peer->handle.pid, selected, ucx->lanes, ucx->lanes == 1 ? "" : "s");
}

void ucx_peer_welcome(struct ucx *ucx, const struct ucx_note *note)
{
    struct ucx_peer *peer = ucx->reader.peers;
    while (peer != NULL && (peer->connection != note->head.tag ||
                            memcmp(peer->handle.life, note->head.source, UCX_LIFE_BYTES) != 0)) {
        peer = peer->next;
    }
    if (peer == NULL || peer->state != UCX_PEER_GREETED) {
        return;
    }
    if (note->head.status != WF_OK) {
        snprintf(peer->failure, sizeof peer->failure, "the source refuses: %.*s",
                 (int)(note->body_len < 200 ? note->body_len : 200), (const char *)note->body);
        ucx_peer_lose(peer);
        return;
    }
    peer->state = UCX_PEER_READY;
    tell_selected(peer);
    ucx_imports_ask(ucx, peer);
    ucx_slots_request(ucx);
    ucx_reads_pump(ucx);
}

/* --- losing ------------------------------------------------------------------------------------
 */

void ucx_peer_lose(struct ucx_peer *peer)
{
    struct ucx *ucx = peer->ucx;
    peer->refs++; /* whoever hears of it may let go of the peer */
    peer->failed = false;
    peer->state = UCX_PEER_LOST;
    unwatch(peer);
    hang_up(peer, true);
    ucx_imports_fail(ucx, peer, WF_PEER_LOST, peer->failure);
    ucx_reads_fail(ucx, peer, WF_PEER_LOST, peer->failure);
    ucx_peer_put(peer);
    ucx_reads_pump(ucx); /* others may have its credits */
}

bool ucx_peers_check(struct ucx *ucx)
{
    bool any = false;
    for (struct ucx_peer *peer = ucx->reader.peers, *next; peer != NULL; peer = next) {
        next = peer->next;
        if (peer->failed) {
            ucx_peer_lose(peer);
            any = true;
        }
    }
    return any;
}

void ucx_peers_hang_up(struct ucx *ucx)
{
    for (struct ucx_peer *peer = ucx->reader.peers; peer != NULL; peer = peer->next) {
        hang_up(peer, true);
        peer->failed = false;
        if (peer->state != UCX_PEER_LOST) {
            peer->state = UCX_PEER_NEW;
        }
    }
}
