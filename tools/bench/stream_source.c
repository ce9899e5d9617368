/* stream_source.c - the sending process of `weft bench stream`, and plain sockets on both sides. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/bench/stream.h"
#include "tools/measure/plain_ucx.h"

enum { PIECE_BYTES = 1 << 20 };

/* --- sockets -----------------------------------------------------------------------------------
 */

bool stream_send(int fd, const void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t put = send(fd, (const char *)bytes + done, len - done, MSG_NOSIGNAL);
        if (put <= 0 && errno != EINTR) {
            return false;
        }
        done += put > 0 ? (size_t)put : 0;
    }
    return true;
}

bool stream_receive(int fd, void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t got = recv(fd, (char *)bytes + done, len - done, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

/* "HOST:PORT" -> list of addresses; NULL with the error set. */
static struct addrinfo *resolve(const char *address, int flags, struct wf_error *error)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *found = NULL;
    if (colon == NULL || (size_t)(colon - address) >= sizeof host) {
        wf_error_set(error, WF_INVALID, "\"%s\" is not HOST:PORT", address);
        return NULL;
    }
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    int failed = getaddrinfo(host, colon + 1, &hints, &found);
    if (failed != 0) {
        wf_error_set(error, WF_INVALID, "%s: %s", address, gai_strerror(failed));
        return NULL;
    }
    return found;
}

enum wf_status stream_listen(const char *address, int *fd_out, uint16_t *port_out,
                             struct wf_error *error)
{
    struct addrinfo *found = resolve(address, AI_PASSIVE, error);
    if (found == NULL) {
        return WF_INVALID;
    }
    struct sockaddr_in6 bound;
    socklen_t len = sizeof bound;
    int one = 1, fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    }
    bool ok = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 16) == 0 &&
              getsockname(fd, (struct sockaddr *)&bound, &len) == 0;
    freeaddrinfo(found);
    if (!ok) {
        enum wf_status status =
            wf_error_set(error, WF_IO, "cannot listen on %s: %s", address, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    *port_out = ntohs(bound.sin6_port); /* at the same place as an IPv4 address's */
    *fd_out = fd;
    return WF_OK;
}

enum wf_status stream_connect(const char *address, int *fd_out, struct wf_error *error)
{
    struct addrinfo *found = resolve(address, 0, error);
    if (found == NULL) {
        return WF_INVALID;
    }
    int one = 1, fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0;
    freeaddrinfo(found);
    if (!ok) {
        enum wf_status status = wf_error_set(error, WF_CONNECTION,
                                             "cannot connect to %s: %s; is `weft bench stream "
                                             "--address` running there?",
                                             address, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    *fd_out = fd;
    return WF_OK;
}

/* --- plain sockets: one thread a connection, a part of the bytes each ----------------------------
 */

struct part {
    pthread_t thread;
    int fd;
    uint8_t *memory;
    uint64_t bytes;
    bool sends, ok;
};

static void *move_part(void *argument)
{
    struct part *part = argument;
    part->ok = true;
    for (uint64_t done = 0; done < part->bytes && part->ok; done += PIECE_BYTES) {
        part->ok = part->sends ? stream_send(part->fd, part->memory + done, PIECE_BYTES)
                               : stream_receive(part->fd, part->memory + done, PIECE_BYTES);
    }
    return NULL;
}

static bool move_parts(const int *fds, unsigned count, uint8_t *memory, bool sends)
{
    struct part parts[STREAM_SOCKETS_MAX];
    uint64_t each = STREAM_BYTES / count / PIECE_BYTES * PIECE_BYTES;
    unsigned started = 0;
    for (bool ok = true; started < count && ok; started += ok) {
        parts[started] = (struct part){
            .fd = fds[started], .memory = memory + started * each, .bytes = each, .sends = sends};
        ok = pthread_create(&parts[started].thread, NULL, move_part, &parts[started]) == 0;
    }
    bool ok = started == count;
    for (unsigned i = 0; i < started; i++) {
        pthread_join(parts[i].thread, NULL);
        ok &= parts[i].ok;
    }
    return ok;
}

double stream_sockets(int control, const char *address, unsigned streams, const char *cc,
                      uint8_t *into)
{
    int fds[STREAM_SOCKETS_MAX];
    char name[STREAM_CC_BYTES] = "", ask[2] = {'S', (char)streams}, ready = 'n';
    unsigned connected = 0;
    snprintf(name, sizeof name, "%s", cc);
    bool ok = stream_send(control, ask, 2) && stream_send(control, name, sizeof name);
    while (ok && connected < streams) {
        ok = stream_connect(address, &fds[connected], NULL) == WF_OK;
        connected += ok;
    }
    ok = ok && stream_receive(control, &ready, 1) && ready == 'y';
    uint64_t start_ns = wf_bench_now_ns();
    ok = ok && stream_send(control, "g", 1) && move_parts(fds, streams, into, false);
    double gb_s = (double)STREAM_BYTES / (double)(wf_bench_now_ns() - start_ns);
    for (unsigned i = 0; i < connected; i++) {
        close(fds[i]);
    }
    return ok ? gb_s : -1;
}

/* --- the source --------------------------------------------------------------------------------
 */

struct source {
    int listener, control;
    struct stream_side side;
    struct wf_region memory;
    struct wf_handle handle;
    struct wf_plain_ucx *ucx;
};

static bool serve_sockets(struct source *source)
{
    unsigned char streams;
    char cc[STREAM_CC_BYTES], go;
    int fds[STREAM_SOCKETS_MAX];
    unsigned accepted = 0;
    bool ok = stream_receive(source->control, &streams, 1) &&
              stream_receive(source->control, cc, sizeof cc) && streams >= 1 &&
              streams <= STREAM_SOCKETS_MAX,
         can = true;
    for (; ok && accepted < streams; accepted += ok) {
        fds[accepted] = accept4(source->listener, NULL, NULL, SOCK_CLOEXEC);
        ok = fds[accepted] >= 0;
        can &= cc[0] == '\0' || setsockopt(fds[accepted], IPPROTO_TCP, TCP_CONGESTION, cc,
                                           (socklen_t)strnlen(cc, sizeof cc)) == 0;
    }
    ok = ok && stream_send(source->control, can ? "y" : "n", 1);
    if (ok && can) {
        ok = stream_receive(source->control, &go, 1) &&
             move_parts(fds, streams, source->memory.address, true);
    }
    for (unsigned i = 0; i < accepted; i++) {
        close(fds[i]);
    }
    return ok;
}

static bool serve_ucx_address(struct source *source, struct wf_error *error)
{
    char theirs[WF_PLAIN_UCX_ADDRESS_MAX];
    uint32_t len32;
    size_t len;
    if (!stream_receive(source->control, &len32, sizeof len32) || len32 > sizeof theirs ||
        !stream_receive(source->control, theirs, len32)) {
        return false;
    }
    wf_plain_ucx_free(source->ucx);
    source->ucx = NULL;
    if (wf_plain_ucx_new(source->memory.address, STREAM_REGION_BYTES, stream_tls(), &source->ucx,
                         error) != WF_OK ||
        wf_plain_ucx_connect(source->ucx, theirs, error) != WF_OK) {
        return false;
    }
    const void *address = wf_plain_ucx_address(source->ucx, &len);
    len32 = (uint32_t)len;
    return stream_send(source->control, &len32, sizeof len32) &&
           stream_send(source->control, address, len);
}

static void serve_reader(struct source *source)
{
    struct wf_error error;
    char ask;
    bool ok = true;
    while (ok && stream_receive(source->control, &ask, 1)) {
        switch (ask) {
        case 'H':
            ok = stream_send(source->control, &source->handle, sizeof source->handle);
            break;
        case 'A':
            ok = serve_ucx_address(source, &error);
            break;
        case 'S':
            ok = serve_sockets(source);
            break;
        case 'U':
            ok = source->ucx != NULL &&
                 wf_plain_ucx_send(source->ucx, STREAM_BYTES, source->control);
            break;
        default:
            ok = false;
        }
    }
}

static void *run_loop(void *argument)
{
    wf_loop_run(argument);
    return NULL;
}

enum wf_status stream_serve(int listener, bool forever, struct wf_error *error)
{
    struct source source = {.listener = listener};
    pthread_t thread;
    enum wf_status status = stream_side_open(&source.side, error);
    if (status == WF_OK) {
        status = wf_memory_new("weft-bench", STREAM_REGION_BYTES, false, &source.memory, error);
    }
    if (status == WF_OK) {
        struct wf_transport *transport = source.side.transport;
        memset(source.memory.address, 1, STREAM_REGION_BYTES);
        status = transport->ops->export_region(transport, &source.memory, &source.handle, error);
    }
    if (status == WF_OK && pthread_create(&thread, NULL, run_loop, source.side.loop) != 0) {
        status = wf_error_set(error, WF_NO_RESOURCE, "no thread for the source's loop");
    }
    if (status == WF_OK) {
        for (bool again = true; again; again = forever) {
            source.control = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            serve_reader(&source);
            close(source.control);
        }
        wf_loop_stop(source.side.loop);
        pthread_join(thread, NULL);
    }
    wf_plain_ucx_free(source.ucx);
    stream_side_close(&source.side);
    wf_memory_free(&source.memory);
    return status;
}
