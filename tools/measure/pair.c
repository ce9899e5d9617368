/* pair.c - a forked process that sends what it is asked for, over a socket or plain UCX. */
#include "tools/measure/pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/measure/plain_ucx.h"

enum { CALL_BYTES = 1 << 20 /* of one send or receive */ };

/* What the sender is asked for. */
enum what { SOCKET_PASS, UCX_PASS, UCX_ADDRESS };
struct ask {
    uint64_t bytes; /* of the pass, or of the address that follows */
    uint32_t what;
};

struct end {
    int data, control;
    uint8_t *memory;
    uint64_t bytes, place;
    const char *tls;
    struct wf_plain_ucx *ucx;
};

struct wf_pair {
    struct end end; /* the receiver's: this process's */
    pid_t sender;
    bool tried_ucx;
};

/* --- both ends ---------------------------------------------------------------------------------
 */

static bool put(int fd, const void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t sent = send(fd, (const char *)bytes + done, len - done, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        done += sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

static bool get(int fd, void *bytes, size_t len)
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

static bool move_over_socket(struct end *end, uint64_t bytes, bool sends)
{
    bool ok = true;
    for (uint64_t done = 0; ok && done < bytes; done += CALL_BYTES) {
        uint8_t *at = end->memory + end->place;
        ok = sends ? put(end->data, at, CALL_BYTES) : get(end->data, at, CALL_BYTES);
        end->place = (end->place + CALL_BYTES) % end->bytes;
    }
    return ok;
}

static bool put_address(struct end *end)
{
    size_t len;
    const void *address = wf_plain_ucx_address(end->ucx, &len);
    struct ask ask = {.what = UCX_ADDRESS, .bytes = len};
    return put(end->control, &ask, sizeof ask) && put(end->control, address, len);
}

/* Makes UCX and connects it; the ask that came before the address was read. */
static bool connect_ucx(struct end *end, uint64_t address_len)
{
    uint8_t address[WF_PLAIN_UCX_ADDRESS_MAX];
    return address_len <= sizeof address && get(end->control, address, address_len) &&
           wf_plain_ucx_connect(end->ucx, address, NULL) == WF_OK;
}

/* --- the sender --------------------------------------------------------------------------------
 */

static bool serve(struct end *end, const struct ask *ask)
{
    switch (ask->what) {
    case SOCKET_PASS:
        return move_over_socket(end, ask->bytes, true);
    case UCX_PASS:
        return wf_plain_ucx_send(end->ucx, ask->bytes, end->control);
    default:
        return wf_plain_ucx_new(end->memory, end->bytes, end->tls, &end->ucx, NULL) == WF_OK &&
               connect_ucx(end, ask->bytes) && put_address(end);
    }
}

static void send_until_closed(struct end *end)
{
    struct ask ask;
    while (get(end->control, &ask, sizeof ask) && serve(end, &ask)) {
    }
}

/* --- making it ---------------------------------------------------------------------------------
 */

static enum wf_status failed(struct wf_error *error, const char *call)
{
    return wf_error_set(error, WF_IO, "a plain socket over loopback: %s: %s", call,
                        strerror(errno));
}

/* ends_out[0] sends, ends_out[1] receives. */
static enum wf_status connect_ends(int listener, int ends_out[2], struct wf_error *error)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int on = 1;
    if (bind(listener, (struct sockaddr *)&address, len) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &len) != 0) {
        return failed(error, "listen");
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

static enum wf_status make_ends(int data_out[2], int control_out[2], struct wf_error *error)
{
    data_out[0] = data_out[1] = control_out[0] = control_out[1] = -1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) {
        return failed(error, "socket");
    }
    enum wf_status status = connect_ends(listener, data_out, error);
    close(listener);
    if (status == WF_OK && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control_out) != 0) {
        status = failed(error, "socketpair");
    }
    return status;
}

static void close_both(const int ends[2])
{
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            close(ends[i]);
        }
    }
}

/* The child: only what it sends is touched there, and its parent's end is its own. */
static void be_sender(const struct wf_pair_options *options, int data, int control, pid_t parent)
{
    struct end end = {.data = data,
                      .control = control,
                      .memory = options->from,
                      .bytes = options->bytes,
                      .tls = options->tls};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent) {
        send_until_closed(&end);
    }
    _exit(0);
}

enum wf_status wf_pair_open(const struct wf_pair_options *options, struct wf_pair **pair_out,
                            struct wf_error *error)
{
    WF_ASSERT(options->bytes > 0 && options->bytes % CALL_BYTES == 0);
    int data[2], control[2];
    enum wf_status status = make_ends(data, control, error);
    struct wf_pair *pair = status == WF_OK ? calloc(1, sizeof *pair) : NULL;
    if (status == WF_OK && pair == NULL) {
        status = wf_error_set(error, WF_NO_MEMORY, "no memory");
    }
    pid_t parent = getpid();
    if (status == WF_OK) {
        fflush(NULL); /* or the child would have it too */
        pair->sender = fork();
        if (pair->sender < 0) {
            status = wf_error_set(error, WF_NO_RESOURCE, "cannot fork: %s", strerror(errno));
        }
    }
    if (status != WF_OK) {
        free(pair);
        close_both(data);
        close_both(control);
        return status;
    }
    if (pair->sender == 0) {
        close(data[1]);
        close(control[1]);
        be_sender(options, data[0], control[0], parent);
    }
    close(data[0]);
    close(control[0]);
    pair->end = (struct end){.data = data[1],
                             .control = control[1],
                             .memory = options->to,
                             .bytes = options->bytes,
                             .tls = options->tls};
    *pair_out = pair;
    return WF_OK;
}

pid_t wf_pair_sender(const struct wf_pair *pair)
{
    return pair->sender;
}

void wf_pair_close(struct wf_pair *pair)
{
    if (pair == NULL) {
        return;
    }
    kill(pair->sender, SIGKILL);
    waitpid(pair->sender, NULL, 0);
    close(pair->end.data);
    close(pair->end.control);
    wf_plain_ucx_free(pair->end.ucx);
    free(pair);
}

/* --- passes ------------------------------------------------------------------------------------
 */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double wf_pair_socket(struct wf_pair *pair, uint64_t bytes)
{
    struct ask ask = {.what = SOCKET_PASS, .bytes = bytes};
    double start = now_s();
    bool ok =
        put(pair->end.control, &ask, sizeof ask) && move_over_socket(&pair->end, bytes, false);
    return ok ? (double)bytes / (now_s() - start) : -1;
}

/* At the first pass, because loading UCX takes longer than a job may want to wait at its start. */
static void open_ucx(struct wf_pair *pair)
{
    struct end *end = &pair->end;
    struct ask theirs;
    pair->tried_ucx = true;
    if (wf_plain_ucx_new(end->memory, end->bytes, end->tls, &end->ucx, NULL) != WF_OK) {
        end->ucx = NULL;
    } else if (!put_address(end) || !get(end->control, &theirs, sizeof theirs) ||
               !connect_ucx(end, theirs.bytes)) {
        wf_plain_ucx_free(end->ucx);
        end->ucx = NULL;
    }
}

double wf_pair_ucx(struct wf_pair *pair, uint64_t bytes)
{
    struct ask ask = {.what = UCX_PASS, .bytes = bytes};
    if (!pair->tried_ucx) {
        open_ucx(pair);
    }
    if (pair->end.ucx == NULL) {
        return 0;
    }
    double start = now_s();
    bool ok = put(pair->end.control, &ask, sizeof ask) &&
              wf_plain_ucx_receive(pair->end.ucx, bytes, pair->end.control);
    return ok ? (double)bytes / (now_s() - start) : -1;
}
