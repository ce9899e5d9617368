/* wire_write.c - from frames of an actor to bytes of a socket: at once when nothing waits, from a
 * bounded queue otherwise.
 *
 * A failed write does not end the connection: what the peer sent before it went (its reason, often)
 * is still read, and the end of file behind it tells the owner.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/wire.h"

static void chunk_free(struct wire_chunk *chunk)
{
    if (chunk->fd >= 0) {
        close(chunk->fd);
    }
    wf_payload_release(chunk->shared);
    free(chunk);
}

void wire_write_fini(struct wire_conn *conn)
{
    for (struct wire_chunk *chunk; (chunk = conn->first) != NULL;) {
        conn->first = chunk->next;
        chunk_free(chunk);
    }
    conn->last = NULL;
    conn->queued_bytes = 0;
}

static void write_failed(struct wire_conn *conn)
{
    conn->write_failed = true;
    wire_write_fini(conn);
    shutdown(conn->watch.fd, SHUT_RDWR); /* reading gives what is there, then the end */
}

/* What went out, 0 if nothing can now, -1 if nothing ever will. `fd` goes with the first byte. */
static ssize_t write_some(struct wire_conn *conn, struct iovec *parts, size_t count, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    ssize_t sent = sendmsg(conn->watch.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
        return sent;
    }
    /* ETOOMANYREFS: the kernel carries no more descriptors until some are received. */
    bool later = errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM ||
                 errno == ETOOMANYREFS;
    return later ? 0 : -1;
}

static void header_write(uint8_t header[WIRE_HEADER_BYTES], size_t len)
{
    static const uint8_t start[4] = {'W', 'F', 'T', '1'};
    memcpy(header, start, sizeof start);
    for (int i = 0; i < 4; i++) {
        header[4 + i] = (uint8_t)(len >> (8 * i));
    }
}

/* What is to be sent: the payload is the caller's bytes, or one that others get too. */
struct frame {
    const uint8_t *bytes;
    size_t len_bytes;
    int fd;
    struct wf_payload *shared; /* borrows; NULL: bytes are only the caller's */
};

/* Queues what is left of a frame after `sent` bytes of header and payload. */
static bool queue_rest(struct wire_conn *conn, const uint8_t *header, const struct frame *frame,
                       size_t sent)
{
    size_t header_left = sent < WIRE_HEADER_BYTES ? WIRE_HEADER_BYTES - sent : 0;
    size_t skip = sent > WIRE_HEADER_BYTES ? sent - WIRE_HEADER_BYTES : 0;
    size_t left = frame->len_bytes - skip;
    size_t own_len = header_left + (frame->shared != NULL ? 0 : left);
    struct wire_chunk *chunk = malloc(sizeof *chunk + own_len);
    if (chunk == NULL) {
        return false;
    }
    *chunk = (struct wire_chunk){
        .len = header_left + left, .own_len = own_len, .shared_from = skip, .fd = -1};
    memcpy(chunk->bytes, header + WIRE_HEADER_BYTES - header_left, header_left);
    if (frame->shared == NULL && left > 0) {
        memcpy(chunk->bytes + header_left, frame->bytes + skip, left);
    }
    if (frame->fd >= 0 && sent == 0) {
        chunk->fd = fcntl(frame->fd, F_DUPFD_CLOEXEC, 0);
        if (chunk->fd < 0) {
            free(chunk);
            return false;
        }
    }
    chunk->shared = frame->shared != NULL ? wf_payload_hold(frame->shared) : NULL;
    *(conn->last == NULL ? &conn->first : &conn->last->next) = chunk;
    conn->last = chunk;
    conn->queued_bytes += chunk->len;
    return true;
}

/* The frame goes out or into the queue. */
static enum wf_status frame_write(struct wire_conn *conn, const struct frame *frame)
{
    uint8_t header[WIRE_HEADER_BYTES];
    size_t len_bytes = frame->len_bytes;
    header_write(header, len_bytes);
    ssize_t sent = 0;
    if (conn->first == NULL) {
        struct iovec parts[] = {{.iov_base = header, .iov_len = sizeof header},
                                {.iov_base = (void *)frame->bytes, .iov_len = len_bytes}};
        sent = write_some(conn, parts, len_bytes > 0 ? 2 : 1, frame->fd);
        if (sent < 0) {
            write_failed(conn);
            return WF_CLOSED;
        }
        if ((size_t)sent == sizeof header + len_bytes) {
            return WF_OK;
        }
    }
    if (!queue_rest(conn, header, frame, (size_t)sent)) {
        if (sent > 0) {
            write_failed(conn); /* half a frame is out: the stream cannot go on */
            return WF_CLOSED;
        }
        return WF_NO_RESOURCE;
    }
    wire_conn_update(conn);
    return WF_OK;
}

static enum wf_status frame_send(struct wire *wire, uint64_t id, const struct frame *frame)
{
    struct wire_conn *conn = wire_conn_find(wire, id);
    if (conn == NULL || conn->state == WIRE_GREETING || conn->state == WIRE_LINGERING ||
        conn->write_failed) {
        return WF_CLOSED;
    }
    if (conn->state != WIRE_OPEN) {
        return WF_AGAIN;
    }
    if (frame->len_bytes > WF_FRAME_MAX || (frame->fd >= 0 && !conn->is_unix)) {
        return WF_INVALID;
    }
    if (conn->queued_bytes + frame->len_bytes > WF_SEND_QUEUE_MAX) {
        return WF_NO_RESOURCE;
    }
    return frame_write(conn, frame);
}

enum wf_status wire_send(struct wire *wire, uint64_t id, const void *bytes, size_t len_bytes,
                         int fd)
{
    const struct frame frame = {.bytes = bytes, .len_bytes = len_bytes, .fd = fd};
    return frame_send(wire, id, &frame);
}

enum wf_status wire_send_shared(struct wire *wire, uint64_t id, struct wf_payload *payload)
{
    const struct frame frame = {
        .bytes = payload->bytes, .len_bytes = payload->len_bytes, .fd = -1, .shared = payload};
    return frame_send(wire, id, &frame);
}

void wire_greet(struct wire_conn *conn)
{
    const struct frame empty = {.fd = -1};
    frame_write(conn, &empty); /* a failure is read as the end of file */
}

/* What is left of a chunk, in at most two parts. */
static size_t chunk_parts(const struct wire_chunk *chunk, struct iovec parts[2])
{
    size_t count = 0, own = chunk->sent < chunk->own_len ? chunk->own_len - chunk->sent : 0;
    if (own > 0) {
        parts[count++] =
            (struct iovec){.iov_base = (void *)(chunk->bytes + chunk->sent), .iov_len = own};
    }
    if (chunk->len > chunk->own_len) {
        size_t done = chunk->sent > chunk->own_len ? chunk->sent - chunk->own_len : 0;
        parts[count++] =
            (struct iovec){.iov_base = chunk->shared->bytes + chunk->shared_from + done,
                           .iov_len = chunk->len - chunk->own_len - done};
    }
    return count;
}

void wire_flush(struct wire_conn *conn)
{
    for (struct wire_chunk *chunk; (chunk = conn->first) != NULL;) {
        struct iovec parts[2];
        size_t count = chunk_parts(chunk, parts);
        ssize_t sent = write_some(conn, parts, count, chunk->fd);
        if (sent < 0) {
            write_failed(conn);
            break;
        }
        if (sent == 0) {
            break;
        }
        if (chunk->fd >= 0) {
            close(chunk->fd);
            chunk->fd = -1;
        }
        chunk->sent += (size_t)sent;
        conn->queued_bytes -= (size_t)sent;
        if (chunk->sent < chunk->len) {
            break;
        }
        conn->first = chunk->next;
        conn->last = conn->first == NULL ? NULL : conn->last;
        chunk_free(chunk);
    }
    if (conn->state == WIRE_LINGERING && conn->first == NULL && !conn->said_end) {
        conn->said_end = true;
        shutdown(conn->watch.fd, SHUT_WR);
    }
    wire_conn_update(conn);
}
