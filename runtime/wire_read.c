/* wire_read.c - from bytes of a socket to frames of an actor; everything here is hostile.
 *
 * A descriptor that comes with a read belongs to the newest frame that began in that read: our
 * sending side attaches it to the frame's first byte and puts no later frame into the same call,
 * and the kernel ends a read after the piece that carried descriptors. A frame is therefore given
 * away only when the next one begins or the read is through. All other descriptors are closed.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/log.h"
#include "runtime/wire.h"

static const uint8_t magic[4] = {'W', 'F', 'T', '1'};

static void room_drop(struct wire_conn *conn)
{
    conn->wire->partial_bytes -= conn->partial_cap;
    conn->partial_cap = 0;
}

void wire_read_fini(struct wire_conn *conn)
{
    room_drop(conn);
    if (conn->partial != NULL) {
        conn->partial->msg.release(&conn->partial->msg);
        conn->partial = NULL;
    }
    if (conn->partial_fd >= 0) {
        close(conn->partial_fd);
        conn->partial_fd = -1;
    }
    conn->header_len = 0;
}

/* Somebody who speaks HTTP gets an answer that a person can read. */
static bool refuse_http(struct wire_conn *conn)
{
    static const char answer[] = "HTTP/1.1 501 Not Implemented\r\n"
                                 "Content-Type: text/plain\r\nContent-Length: 55\r\n"
                                 "Connection: close\r\n\r\n"
                                 "this port speaks Weft frames; it does not answer HTTP.\n";
    wf_log(wf_loop_log(conn->wire->loop), WF_LOG_INFO,
           "closed a connection that spoke HTTP, which this port does not answer");
    if (send(conn->watch.fd, answer, sizeof answer - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        wire_conn_free(conn);
    } else {
        wire_conn_linger(conn);
    }
    return false;
}

static bool refuse_magic(struct wire_conn *conn)
{
    const uint8_t *h = conn->header;
    if (conn->state == WIRE_GREETING && isupper(h[0]) && h[0] != magic[0]) {
        return refuse_http(conn);
    }
    return wire_conn_end(conn, WF_PROTOCOL,
                         "expected a frame beginning with 57 46 54 31 (\"WFT1\"), found %zu bytes "
                         "%02x %02x %02x %02x",
                         conn->header_len, h[0], h[1], h[2], h[3]);
}

/* Room for at least `needed` bytes of the frame, doubling, never beyond the frame: what has not
 * come costs no memory. */
static bool room_make(struct wire_conn *conn, size_t needed)
{
    size_t cap = conn->partial_cap == 0 ? WIRE_PARTIAL_FIRST : conn->partial_cap * 2;
    cap = cap < needed ? needed : cap;
    cap = cap > conn->frame_len ? conn->frame_len : cap;
    uint64_t total = conn->wire->partial_bytes + (cap - conn->partial_cap);
    struct wf_wire_msg *msg = NULL;
    if (total <= WIRE_PARTIAL_TOTAL) {
        msg = conn->partial == NULL ? wire_msg_new(WF_WIRE_FRAME, conn->id, cap)
                                    : wire_msg_grow(conn->partial, cap);
    }
    if (msg == NULL) {
        return wire_conn_end(conn, WF_NO_RESOURCE,
                             "no room for a frame of %zu bytes: half frames of all connections "
                             "take %llu bytes",
                             conn->frame_len, (unsigned long long)conn->wire->partial_bytes);
    }
    conn->wire->partial_bytes = total;
    conn->partial = msg;
    conn->partial_cap = cap;
    return true;
}

/* A complete header. False: the connection is gone. */
static bool header_done(struct wire_conn *conn)
{
    const uint8_t *h = conn->header;
    conn->frame_len = (size_t)h[4] | (size_t)h[5] << 8 | (size_t)h[6] << 16 | (size_t)h[7] << 24;
    conn->partial_len = 0;
    conn->progress = 0;
    size_t limit = conn->stranger ? WF_STRANGER_FRAME_MAX : WF_FRAME_MAX;
    if (conn->frame_len > limit) {
        return wire_conn_end(conn, WF_PROTOCOL,
                             "expected a %sframe of at most %zu bytes, found %zu",
                             conn->stranger ? "first " : "", limit, conn->frame_len);
    }
    if (conn->stranger_spoke && conn->stranger) {
        return wire_conn_end(conn, WF_PROTOCOL,
                             "sent a second frame before its first was answered; only a Weft "
                             "process with the job's token may connect here");
    }
    if (conn->state == WIRE_GREETING && conn->frame_len != 0) {
        return wire_conn_end(conn, WF_PROTOCOL,
                             "expected an empty first frame, found %zu bytes; use the same version "
                             "of Weft on both sides",
                             conn->frame_len);
    }
    return true;
}

/* Takes bytes of the header; the magic is checked byte by byte, so that who speaks something else
 * hears so at once. */
static bool header_take(struct wire_conn *conn, const uint8_t **bytes, size_t *len)
{
    if (conn->header_len == 0) {
        conn->started_in_read = true;
        memset(conn->header, 0, sizeof conn->header);
    }
    while (*len > 0 && conn->header_len < WIRE_HEADER_BYTES) {
        size_t at = conn->header_len++;
        conn->header[at] = *(*bytes)++;
        --*len;
        if (at < sizeof magic && conn->header[at] != magic[at]) {
            return refuse_magic(conn);
        }
    }
    return conn->header_len < WIRE_HEADER_BYTES || header_done(conn);
}

/* The frame is complete: it is `*done` until the next begins. */
static bool frame_done(struct wire_conn *conn, struct wf_wire_msg **done)
{
    conn->stranger_spoke = conn->stranger_spoke || conn->state == WIRE_OPEN;
    conn->header_len = 0;
    if (conn->state == WIRE_GREETING) {
        char text[WF_ADDRESS_MAX];
        wire_socket_peer(conn->watch.fd, text);
        wire_conn_opened(conn, text);
        return true;
    }
    if (conn->partial == NULL && !room_make(conn, 0)) {
        return false;
    }
    *done = conn->partial;
    (*done)->len_bytes = conn->frame_len;
    (*done)->fd = conn->partial_fd;
    conn->partial = NULL;
    conn->partial_fd = -1;
    room_drop(conn);
    return true;
}

static void deliver(struct wire_conn *conn, struct wf_wire_msg **done)
{
    if (*done != NULL) {
        wire_frame_deliver(conn, *done);
        *done = NULL;
    }
}

/* Bytes that were read beside the partial frame's own room. */
static bool parse(struct wire_conn *conn, const uint8_t *bytes, size_t len,
                  struct wf_wire_msg **done)
{
    while (len > 0) {
        if (conn->header_len < WIRE_HEADER_BYTES) {
            if (conn->header_len == 0) {
                deliver(conn, done);
            }
            if (!header_take(conn, &bytes, &len)) {
                return false;
            }
            if (conn->header_len < WIRE_HEADER_BYTES) {
                return true;
            }
        }
        size_t left = conn->frame_len - conn->partial_len, part = len < left ? len : left;
        if (conn->partial_cap < conn->partial_len + part &&
            !room_make(conn, conn->partial_len + part)) {
            return false;
        }
        if (part > 0) {
            memcpy(wire_msg_bytes(conn->partial) + conn->partial_len, bytes, part);
            conn->partial_len += part;
            bytes += part;
            len -= part;
        }
        if (conn->partial_len == conn->frame_len && !frame_done(conn, done)) {
            return false;
        }
    }
    return true;
}

/* Collects the descriptors of one read: the first is kept, one a frame is all we know. */
static int take_fd(struct msghdr *message)
{
    int kept = -1;
    for (struct cmsghdr *each = CMSG_FIRSTHDR(message); each != NULL;
         each = CMSG_NXTHDR(message, each)) {
        if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(each) + i * sizeof fd, sizeof fd);
            if (kept < 0) {
                kept = fd;
            } else {
                close(fd);
            }
        }
    }
    return kept;
}

/* Gives the descriptor of this read to the newest frame, if that began in it. */
static void place_fd(struct wire_conn *conn, struct wf_wire_msg *done, int fd)
{
    if (fd < 0) {
        return;
    }
    if (conn->started_in_read && conn->header_len > 0) {
        conn->partial_fd = fd;
    } else if (conn->started_in_read && done != NULL && done->fd < 0) {
        done->fd = fd;
    } else {
        close(fd);
    }
}

static bool received(struct wire_conn *conn, size_t len, size_t direct, int fd)
{
    struct wf_wire_msg *done = NULL;
    conn->started_in_read = false;
    size_t own = len < direct ? len : direct;
    conn->partial_len += own;
    bool alive = true;
    if (own > 0 && conn->partial_len == conn->frame_len) {
        alive = frame_done(conn, &done);
    }
    alive = alive && parse(conn, conn->wire->scratch, len - own, &done);
    if (!alive) {
        if (done != NULL) {
            done->msg.release(&done->msg);
        }
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    place_fd(conn, done, fd);
    deliver(conn, &done);
    return true;
}

/* A deadline runs while a frame is half there, and starts again when enough of it came. */
static void watch_progress(struct wire_conn *conn)
{
    struct wf_loop *loop = conn->wire->loop;
    if (conn->state != WIRE_OPEN || conn->stranger) {
        return;
    }
    if (conn->header_len == 0 || conn->paused) {
        wf_timer_cancel(loop, &conn->timer);
    } else if (!wf_timer_is_armed(&conn->timer) ||
               conn->partial_len >= conn->progress + WIRE_PROGRESS_BYTES) {
        conn->progress = conn->partial_len;
        wire_conn_deadline(conn, conn->wire->frame_timeout_ns, "half a frame");
    }
}

static bool read_ended(struct wire_conn *conn, ssize_t result)
{
    if (result < 0) {
        return wire_conn_end(conn, WF_CONNECTION, "the connection broke: %s", strerror(errno));
    }
    if (conn->header_len > 0) {
        return wire_conn_end(conn, WF_CONNECTION, "the peer closed in the middle of a frame");
    }
    return wire_conn_end(conn, WF_CLOSED, "the peer closed the connection");
}

static bool read_once(struct wire_conn *conn, bool *more_out)
{
    size_t direct = conn->partial != NULL ? conn->partial_cap - conn->partial_len : 0;
    struct iovec parts[2];
    int count = 0;
    if (direct > 0) {
        parts[count++] = (struct iovec){
            .iov_base = wire_msg_bytes(conn->partial) + conn->partial_len, .iov_len = direct};
    }
    size_t beside = conn->stranger ? WF_STRANGER_FRAME_MAX : WIRE_SCRATCH_BYTES;
    parts[count++] = (struct iovec){.iov_base = conn->wire->scratch, .iov_len = beside};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(WIRE_FDS_PER_READ * sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    if (conn->is_unix) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
    }
    ssize_t got = recvmsg(conn->watch.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    *more_out = got >= 0 && (size_t)got == direct + beside;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
    }
    if (got <= 0) {
        return read_ended(conn, got);
    }
    int fd = take_fd(&message);
    if (message.msg_flags & MSG_CTRUNC) {
        wf_log(wf_loop_log(conn->wire->loop), WF_LOG_WARN,
               "descriptors sent by a peer were lost: too many at once, or this process may open "
               "no more");
    }
    if (conn->state == WIRE_LINGERING) { /* read away what a closed connection still gets */
        if (fd >= 0) {
            close(fd);
        }
        conn->lingered += (size_t)got;
        if (conn->lingered > WIRE_LINGER_BYTES) { /* whoever still sends so much does not listen */
            wire_conn_free(conn);
            return false;
        }
        return true;
    }
    return received(conn, (size_t)got, direct, fd);
}

/* The first byte of a stranger tells whether it speaks frames; it stays where it is. */
static bool is_foreign(const struct wire_conn *conn)
{
    uint8_t first;
    return conn->state == WIRE_GREETING && conn->header_len == 0 &&
           recv(conn->watch.fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && first != magic[0];
}

bool wire_read(struct wire_conn *conn)
{
    bool more = true;
    if (conn->stranger && is_foreign(conn) && wire_foreign_give(conn)) {
        return false;
    }
    for (int i = 0; i < WIRE_READS_PER_TURN && more && !conn->paused; i++) {
        if (!read_once(conn, &more)) {
            return false;
        }
    }
    watch_progress(conn);
    wire_conn_update(conn);
    return true;
}
