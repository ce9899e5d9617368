/* fuzz_wire.c - any bytes, cut anywhere, with descriptors anywhere, into the real wire's socket.
 *
 * Input: pieces of {length, flags, bytes}. Flags: 1 a descriptor goes along, 2 two of them, 4 the
 * loop turns after the piece, 8 this side says it will send no more, 16 its owner trusts it; the
 * first piece's 32 and 64 choose the listener: all are trusted, or strangers, and then somebody
 * takes those who speak no frames, or nobody. Whatever comes, the process stays alive, frames that
 * are delivered keep their bounds, and in the end no descriptor and no memory of the connection is
 * left.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/env.h"
#include "runtime/loop.h"
#include "tests/fuzz/fuzz.h"
#include "tests/runtime/descriptors.h"

enum { IDLE_TURNS = 8, HELD_MAX = 400 };
enum listener_kind { OPEN_TO_ALL, GUARDED, GUARDED_WITH_FOREIGN, LISTENERS };

struct target {
    struct wf_actor actor;
    struct wf_loop *loop;
    struct wf_env *env;
    struct sockaddr_un address[LISTENERS];
    socklen_t address_len[LISTENERS];
    struct wf_wire_msg *held[HELD_MAX];
    size_t held_count;
    uint64_t open;
    int spare_fd;
    unsigned descriptors;
};

static void release_held(struct target *target)
{
    while (target->held_count > 0) {
        struct wf_msg *msg = &target->held[--target->held_count]->msg;
        msg->release(msg);
    }
}

static enum wf_verdict handle(struct wf_actor *self, struct wf_msg *msg)
{
    struct target *target = (struct target *)self;
    struct wf_wire_msg *wire = (struct wf_wire_msg *)msg;
    if (msg->kind == WF_WIRE_FOREIGN) {
        WF_ASSERT(wire->fd >= 0);
        return WF_FREE;
    }
    if (msg->kind == WF_WIRE_OPENED) {
        WF_ASSERT(target->open == 0);
        target->open = wire->conn;
        return WF_FREE;
    }
    if (target->open != wire->conn) { /* sent before the owner closed it */
        WF_ASSERT(target->open == 0);
        return WF_FREE;
    }
    if (msg->kind == WF_WIRE_CLOSED) {
        WF_ASSERT(wire->status != WF_OK && wire->text[0] != '\0');
        target->open = 0;
        return WF_FREE;
    }
    WF_ASSERT(msg->kind == WF_WIRE_FRAME && wire->len_bytes <= WF_FRAME_MAX);
    volatile uint8_t last = wire->len_bytes > 0 ? wire->bytes[wire->len_bytes - 1] : 0;
    (void)last;
    /* What the frames say decides what the owner does with them. */
    if (wire->len_bytes == 1 && wire->bytes[0] == 'c') {
        target->env->ops->close(target->env, wire->conn);
        target->open = 0;
    } else if (wire->len_bytes == 1 && wire->bytes[0] == 'e') {
        target->env->ops->send(target->env, wire->conn, "echo", 4, -1);
    } else if (wire->len_bytes > 1 && target->held_count < HELD_MAX) {
        target->held[target->held_count++] = wire;
        return WF_KEEP;
    }
    return WF_FREE;
}

static void settle(struct target *target)
{
    for (int idle = 0; idle < IDLE_TURNS; idle++) {
        idle = wf_loop_turn(target->loop) ? 0 : idle;
    }
}

static struct target *target_new(void)
{
    struct target *target = calloc(1, sizeof *target);
    struct wf_error error;
    WF_ASSERT(wf_loop_new(&(struct wf_loop_options){.poller = WF_POLLER_EPOLL}, &target->loop,
                          &error) == WF_OK);
    WF_ASSERT(wf_env_real_new(target->loop, NULL, &target->env, &error) == WF_OK);
    wf_loop_set_env(target->loop, target->env);
    wf_actor_init(&target->actor, target->loop, "target", handle);
    for (int i = 0; i < LISTENERS; i++) {
        char bound[WF_ADDRESS_MAX];
        uint64_t listener = 0;
        WF_ASSERT(target->env->ops->listen(target->env, &target->actor, "unix:@weft-fuzz-*", bound,
                                           &listener, &error) == WF_OK);
        if (i != OPEN_TO_ALL) {
            target->env->ops->guard(target->env, listener,
                                    i == GUARDED_WITH_FOREIGN ? &target->actor : NULL);
        }
        target->address[i].sun_family = AF_UNIX;
        strcpy(target->address[i].sun_path + 1, bound + strlen("unix:@"));
        target->address_len[i] =
            (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(bound) - strlen("unix:"));
    }
    target->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    target->descriptors = open_descriptors();
    return target;
}

static void send_piece(const struct target *target, int fd, const uint8_t *bytes, size_t len,
                       unsigned flags)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)bytes, len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    size_t fds = flags & 2 ? 2 : flags & 1;
    if (fds > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fds * sizeof(int));
        int numbers[2] = {target->spare_fd, target->spare_fd};
        memcpy(CMSG_DATA(header), numbers, fds * sizeof(int));
    }
    /* What does not fit or is not wanted any more is dropped: both happen. */
    sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct target *target;
    if (target == NULL) {
        target = target_new();
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    WF_ASSERT(fd >= 0);
    int at = size >= 2 ? (data[1] >> 5 & 3) % LISTENERS : OPEN_TO_ALL;
    WF_ASSERT(connect(fd, (struct sockaddr *)&target->address[at], target->address_len[at]) == 0);
    while (size >= 2) {
        size_t len = data[0] < size - 2 ? data[0] : size - 2;
        unsigned flags = data[1];
        send_piece(target, fd, data + 2, len, flags);
        if (flags & 4) {
            settle(target);
        }
        if (flags & 8) {
            shutdown(fd, SHUT_WR);
        }
        if (flags & 16) {
            target->env->ops->trust(target->env, target->open); /* 0: nobody */
        }
        data += 2 + len;
        size -= 2 + len;
    }
    settle(target);
    release_held(target);
    settle(target);
    close(fd);
    settle(target);
    release_held(target);
    settle(target);
    WF_ASSERT(target->open == 0);
    WF_ASSERT(open_descriptors() == target->descriptors);
    return 0;
}

static size_t piece(uint8_t *out, size_t at, unsigned flags, const char *bytes, size_t len)
{
    out[at] = (uint8_t)len;
    out[at + 1] = (uint8_t)flags;
    memcpy(out + at + 2, bytes, len);
    return at + 2 + len;
}

size_t fuzz_example(uint32_t index, uint8_t *out, size_t cap)
{
    static const char greeting[] = "WFT1\0\0\0\0", abc[] = "WFT1\3\0\0\0abc",
                      end[] = "WFT1\1\0\0\0c", echo[] = "WFT1\1\0\0\0e", large[] = "WFT1\0\1\0\0";
    (void)cap; /* far larger than any of these */
    size_t at = piece(out, 0, 4, greeting, 8);
    switch (index) {
    case 0:
        return piece(out, at, 0, abc, 11);
    case 1:
        at = piece(out, at, 1, abc, 11);
        return piece(out, at, 4 | 1, abc, 11);
    case 2:
        at = piece(out, at, 4, abc, 6);
        return piece(out, at, 2, abc + 6, 5);
    case 3:
        at = piece(out, at, 4, echo, 9);
        return piece(out, at, 4 | 8, end, 9);
    case 4:
        at = piece(out, at, 0, large, 8);
        for (int i = 0; i < 4; i++) {
            at = piece(out, at, i & 1 ? 4 : 1,
                       "0123456789abcdef0123456789abcdef0123456789abcdef"
                       "0123456789abcdef",
                       64);
        }
        return piece(out, at, 8, end, 9);
    case 5:
        for (int i = 0; i < 600; i++) { /* more than an owner may hold */
            at = piece(out, at, 0, abc, 11);
        }
        return at;
    case 6:
        return piece(out, 0, 4, "GET / HTTP/1.1\r\n\r\n", 18);
    case 7: /* a stranger that is trusted, one that is not, and two who speak something else */
        at = piece(out, 0, 4 | 32, greeting, 8);
        at = piece(out, at, 4 | 16, abc, 11);
        return piece(out, at, 4, echo, 9);
    case 8:
        at = piece(out, 0, 4 | 64, greeting, 8);
        at = piece(out, at, 4, abc, 11);
        return piece(out, at, 4, abc, 11);
    case 9:
        return piece(out, 0, 4 | 32, "GET / HTTP/1.1\r\n\r\n", 18);
    case 10:
        return piece(out, 0, 4 | 64, "GET / HTTP/1.1\r\n\r\n", 18);
    default:
        return 0;
    }
}
