/* socket.c - pairs of connected TCP sockets, and passes of bytes over them. */
#include "tools/measure/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CALL_BYTES = 1 << 20 /* of one send or receive */ };

static enum wf_status failed(struct wf_error *error, const char *call)
{
    return wf_error_set(error, WF_IO, "a plain socket over loopback: %s: %s", call,
                        strerror(errno));
}

static enum wf_status connect_pair(int listener, int ends_out[2], struct wf_error *error)
{
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    int on = 1;
    if (getsockname(listener, (struct sockaddr *)&address, &len) != 0) {
        return failed(error, "getsockname");
    }
    ends_out[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (ends_out[0] < 0 || connect(ends_out[0], (struct sockaddr *)&address, len) != 0) {
        return failed(error, "connect");
    }
    ends_out[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (ends_out[1] < 0) {
        return failed(error, "accept");
    }
    setsockopt(ends_out[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return WF_OK;
}

enum wf_status wf_socket_limit_init(struct wf_socket_limit *limit, uint32_t streams,
                                    struct wf_error *error)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    WF_ASSERT(streams > 0 && streams <= WF_SOCKET_STREAMS_MAX);
    memset(limit, 0, sizeof *limit);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    enum wf_status status = WF_OK;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1) != 0) {
        status = failed(error, "listen");
    }
    while (status == WF_OK && limit->streams < streams) {
        int *ends = limit->ends[limit->streams++];
        ends[0] = ends[1] = -1;
        status = connect_pair(listener, ends, error);
    }
    if (listener >= 0) {
        close(listener);
    }
    return status;
}

void wf_socket_limit_fini(struct wf_socket_limit *limit)
{
    while (limit->streams > 0) {
        const int *ends = limit->ends[--limit->streams];
        for (int i = 0; i < 2; i++) {
            if (ends[i] >= 0) {
                close(ends[i]);
            }
        }
    }
}

/* --- a pass ----------------------------------------------------------------------------------- */

struct end {
    int fd;
    const uint8_t *from; /* the sender's */
    uint8_t *to;         /* the receiver's */
    uint64_t bytes;
    bool failed;
};

static void *send_all(void *user)
{
    struct end *end = user;
    for (uint64_t done = 0; done < end->bytes;) {
        uint64_t left = end->bytes - done;
        ssize_t sent =
            send(end->fd, end->from + done, left < CALL_BYTES ? left : CALL_BYTES, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            end->failed = true;
            shutdown(end->fd, SHUT_RDWR); /* the receiver must not wait for the rest */
            return NULL;
        }
        done += sent > 0 ? (uint64_t)sent : 0;
    }
    return NULL;
}

static void *receive_all(void *user)
{
    struct end *end = user;
    for (uint64_t done = 0; done < end->bytes;) {
        uint64_t left = end->bytes - done;
        ssize_t got = recv(end->fd, end->to + done, left < CALL_BYTES ? left : CALL_BYTES, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            end->failed = true;
            shutdown(end->fd, SHUT_RDWR);
            return NULL;
        }
        done += got > 0 ? (uint64_t)got : 0;
    }
    return NULL;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double wf_socket_limit_pass(struct wf_socket_limit *limit, uint32_t streams, const uint8_t *from,
                            uint8_t *to, uint64_t bytes)
{
    pthread_t threads[2 * WF_SOCKET_STREAMS_MAX];
    struct end ends[2 * WF_SOCKET_STREAMS_MAX];
    uint64_t each = bytes / streams;
    uint32_t started = 0;
    bool good = streams <= limit->streams;
    double start = now_s();
    for (uint32_t i = 0; good && i < 2 * streams; i++) {
        uint32_t stream = i / 2;
        ends[i] = (struct end){.fd = limit->ends[stream][i % 2],
                               .from = from + stream * each,
                               .to = to + stream * each,
                               .bytes = each};
        good =
            pthread_create(&threads[i], NULL, i % 2 == 0 ? send_all : receive_all, &ends[i]) == 0;
        started += good;
    }
    if (!good) { /* whoever runs already must not wait for a missing thread */
        for (uint32_t i = 0; i < started; i++) {
            shutdown(ends[i].fd, SHUT_RDWR);
        }
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        good = good && !ends[i].failed;
    }
    return good ? (double)(each * streams) / (now_s() - start) : -1;
}
