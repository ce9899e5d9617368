/* control_raw.c - the limit of `weft bench control`: the same bytes over bare sockets.
 *
 * One epoll loop serves and CONTROL_THREADS epoll loops answer, level-triggered, without frames,
 * timers or state beyond byte counts.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/bench/control_crowd.h"

enum { EVENTS = 256, BUFFER = 256 << 10, WAIT_MS = 60000, HEADER_BYTES = 8 };

struct raw_conn {
    int fd;
    size_t sent, got; /* of this exchange */
    size_t exchange;
};

struct raw {
    struct sockaddr_in address;
    uint32_t conns;
    const struct control_exchange *exchanges;
    size_t count;
    const uint8_t *zeros; /* as many as the largest frame has */
    int listener;
    bool server_failed;
};

struct raw_client {
    struct raw *raw;
    pthread_t thread;
    uint32_t conns;
    bool failed;
};

static void tune(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static bool watch(int epoll, int operation, struct raw_conn *conn, unsigned events)
{
    struct epoll_event event = {.events = events, .data.ptr = conn};
    return epoll_ctl(epoll, operation, conn->fd, &event) == 0;
}

/* Sends what is left of `len` bytes; waits for room only if some did not fit. */
static bool send_rest(const struct raw *raw, int epoll, struct raw_conn *conn, size_t len)
{
    while (conn->sent < len) {
        ssize_t sent = send(conn->fd, raw->zeros, len - conn->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            return watch(epoll, EPOLL_CTL_MOD, conn, EPOLLIN | EPOLLOUT);
        }
        if (sent < 0) {
            return false;
        }
        conn->sent += (size_t)sent;
    }
    return true;
}

/* What came, 0 when nothing is there, -1 at the end. */
static ssize_t take(struct raw_conn *conn, uint8_t *buffer)
{
    ssize_t got = recv(conn->fd, buffer, BUFFER, MSG_DONTWAIT);
    return got < 0 && errno == EAGAIN ? 0 : got == 0 ? -1 : got;
}

/* --- the server's thread -----------------------------------------------------------------------
 */
static bool accept_all(struct raw *raw, int epoll, struct raw_conn *conns)
{
    for (uint32_t i = 0; i < raw->conns; i++) {
        conns[i].fd = accept4(raw->listener, NULL, NULL, SOCK_CLOEXEC);
        if (conns[i].fd < 0 || !watch(epoll, EPOLL_CTL_ADD, &conns[i], EPOLLIN)) {
            return false;
        }
        tune(conns[i].fd);
    }
    return true;
}

/* One exchange on all connections. */
static bool exchange_all(struct raw *raw, int epoll, struct raw_conn *conns, size_t exchange,
                         uint8_t *buffer)
{
    size_t down = raw->exchanges[exchange].down_bytes + HEADER_BYTES;
    size_t up = raw->exchanges[exchange].up_bytes + HEADER_BYTES;
    for (uint32_t i = 0; i < raw->conns; i++) {
        conns[i].sent = conns[i].got = 0;
        if (!send_rest(raw, epoll, &conns[i], down)) {
            return false;
        }
    }
    for (uint32_t answered = 0; answered < raw->conns;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(epoll, events, EVENTS, WAIT_MS);
        for (int e = 0; e < ready; e++) {
            struct raw_conn *conn = events[e].data.ptr;
            if ((events[e].events & EPOLLOUT) && (!watch(epoll, EPOLL_CTL_MOD, conn, EPOLLIN) ||
                                                  !send_rest(raw, epoll, conn, down))) {
                return false;
            }
            ssize_t got = events[e].events & EPOLLIN ? take(conn, buffer) : 0;
            if (got < 0 && conn->got == up) { /* its client is through */
                epoll_ctl(epoll, EPOLL_CTL_DEL, conn->fd, NULL);
                got = 0;
            } else if (got < 0) {
                return false;
            }
            conn->got += (size_t)got;
            answered += got > 0 && conn->got == up;
        }
        if (ready <= 0) {
            return false;
        }
    }
    return true;
}

static void *serve(void *argument)
{
    struct raw *raw = argument;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct raw_conn *conns = calloc(raw->conns, sizeof *conns);
    uint8_t *buffer = malloc(BUFFER);
    bool good = epoll >= 0 && conns != NULL && buffer != NULL && accept_all(raw, epoll, conns);
    for (size_t i = 0; i < raw->count && good; i++) {
        good = exchange_all(raw, epoll, conns, i, buffer);
    }
    for (uint32_t i = 0; conns != NULL && i < raw->conns; i++) {
        if (conns[i].fd > 0) {
            close(conns[i].fd);
        }
    }
    close(epoll);
    free(conns);
    free(buffer);
    raw->server_failed = !good;
    return NULL;
}

/* --- a clients' thread --------------------------------------------------------------------------
 */
static bool connect_all(struct raw_client *client, int epoll, struct raw_conn *conns)
{
    for (uint32_t i = 0; i < client->conns; i++) {
        conns[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (conns[i].fd < 0 ||
            connect(conns[i].fd, (const struct sockaddr *)&client->raw->address,
                    sizeof client->raw->address) != 0 ||
            !watch(epoll, EPOLL_CTL_ADD, &conns[i], EPOLLIN)) {
            return false;
        }
        tune(conns[i].fd);
    }
    return true;
}

/* Answers whatever exchanges are complete; true at the last one's end through *over. */
static bool answer(struct raw *raw, int epoll, struct raw_conn *conn, uint8_t *buffer,
                   uint32_t *over)
{
    ssize_t got = take(conn, buffer);
    conn->got += got > 0 ? (size_t)got : 0;
    if (got < 0 || conn->exchange == raw->count) {
        return false;
    }
    const struct control_exchange *exchange = &raw->exchanges[conn->exchange];
    if (conn->got == exchange->down_bytes + HEADER_BYTES) {
        conn->got = conn->sent = 0;
        *over += ++conn->exchange == raw->count;
        return send_rest(raw, epoll, conn, exchange->up_bytes + HEADER_BYTES);
    }
    return true;
}

static void *ask(void *argument)
{
    struct raw_client *client = argument;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct raw_conn *conns = calloc(client->conns, sizeof *conns);
    uint8_t *buffer = malloc(BUFFER);
    bool good = epoll >= 0 && conns != NULL && buffer != NULL && connect_all(client, epoll, conns);
    for (uint32_t over = 0; good && over < client->conns;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(epoll, events, EVENTS, WAIT_MS);
        good = ready > 0;
        for (int e = 0; e < ready && good; e++) {
            good = answer(client->raw, epoll, events[e].data.ptr, buffer, &over);
        }
    }
    for (uint32_t i = 0; conns != NULL && i < client->conns; i++) {
        if (conns[i].fd > 0) {
            shutdown(conns[i].fd, SHUT_WR); /* the answer may still be on its way */
            close(conns[i].fd);
        }
    }
    close(epoll);
    free(conns);
    free(buffer);
    client->failed = !good;
    return NULL;
}

/* --- both ---------------------------------------------------------------------------------------
 */
static bool open_listener(struct raw *raw)
{
    socklen_t len = sizeof raw->address;
    raw->address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    raw->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return raw->listener >= 0 &&
           bind(raw->listener, (const struct sockaddr *)&raw->address, len) == 0 &&
           listen(raw->listener, SOMAXCONN) == 0 &&
           getsockname(raw->listener, (struct sockaddr *)&raw->address, &len) == 0;
}

static bool run_threads(struct raw *raw)
{
    struct raw_client clients[CONTROL_THREADS] = {{0}};
    pthread_t server;
    if (pthread_create(&server, NULL, serve, raw) != 0) {
        return false;
    }
    bool good = true;
    for (uint32_t i = 0; i < CONTROL_THREADS; i++) {
        clients[i] = (struct raw_client){
            .raw = raw, .conns = (raw->conns + CONTROL_THREADS - 1 - i) / CONTROL_THREADS};
        if (pthread_create(&clients[i].thread, NULL, ask, &clients[i]) != 0) {
            clients[i].raw = NULL;
            good = false;
        }
    }
    if (!good) {
        shutdown(raw->listener, SHUT_RDWR); /* the server waits for clients that will not come */
    }
    for (uint32_t i = 0; i < CONTROL_THREADS; i++) {
        if (clients[i].raw != NULL) {
            pthread_join(clients[i].thread, NULL);
            good = good && !clients[i].failed;
        }
    }
    pthread_join(server, NULL);
    return good && !raw->server_failed;
}

enum wf_status control_raw_run(uint32_t conns, const struct control_exchange *exchanges,
                               size_t count, double *seconds_out, struct wf_error *error)
{
    size_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        size_t down = exchanges[i].down_bytes, up = exchanges[i].up_bytes;
        largest = down > largest ? down : largest;
        largest = up > largest ? up : largest;
    }
    uint8_t *zeros = calloc(1, largest + HEADER_BYTES);
    struct raw raw = {.conns = conns, .exchanges = exchanges, .count = count, .zeros = zeros};
    bool good = zeros != NULL && open_listener(&raw);
    uint64_t start_ns = wf_bench_now_ns();
    good = good && run_threads(&raw);
    double seconds = (double)(wf_bench_now_ns() - start_ns) / 1e9;
    if (raw.listener >= 0) {
        close(raw.listener);
    }
    free(zeros);
    if (!good) {
        return wf_error_set(error, WF_IO, "bare sockets: %s", strerror(errno));
    }
    *seconds_out = seconds;
    return WF_OK;
}
