/* test_env_real.c - the real wire against strangers, limits and the kernel's ways, through raw
 * sockets that do what our own side never would. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/wire_address.h"
#include "tests/contract/wire_world.h"
#include "tests/runtime/descriptors.h"

#define GREETING "WFT1\0\0\0\0"

static struct wire_world *world_new(const char *address, uint64_t frame_timeout_ns)
{
    struct wire_world *world = malloc(sizeof *world);
    wire_world_real(world, address, address, WF_POLLER_EPOLL,
                    &(struct wf_env_real_options){.frame_timeout_ns = frame_timeout_ns});
    return world;
}

static void world_free(struct wire_world *world)
{
    wire_world_fini(world);
    free(world);
}

static void world_listen(struct wire_world *world)
{
    struct wf_error error = {0};
    cr_assert_eq(world->env[0]->ops->listen(world->env[0], &world->server.actor, world->address,
                                            world->bound, &world->listener, &error),
                 WF_OK, "%s", error.text);
}

/* A blocking socket that knows nothing of frames. */
static int raw_connect(const char *address)
{
    struct wf_wire_address parsed;
    struct wf_wire_targets targets;
    cr_assert_eq(wf_wire_address_parse(address, &parsed, NULL), WF_OK);
    cr_assert_eq(wf_wire_address_inline(&parsed, false, &targets), WF_OK);
    int fd = socket(targets.target[0].any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(connect(fd, &targets.target[0].any, targets.target[0].len), 0, "%s: %s", address,
                 strerror(errno));
    return fd;
}

static void raw_send(int fd, const void *bytes, size_t len)
{
    cr_assert_eq(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static bool server_opened(struct wire_world *w)
{
    return w->server.opened > 0;
}

static bool server_closed(struct wire_world *w)
{
    return w->server.closed > 0;
}

static bool client_closed(struct wire_world *w)
{
    return w->client.closed > 0;
}

/* --- strangers ---------------------------------------------------------------------------------
 */
#define BYTES(text) (text), sizeof(text) - 1
static const struct {
    const char *name, *bytes;
    size_t len;
} stranger_rows[] = {
    {"nothing and a close", BYTES("")},
    {"three bytes of the magic", BYTES("WFT")},
    {"HTTP", BYTES("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")},
    {"SSH", BYTES("SSH-2.0-OpenSSH_9.2\r\n")},
    {"TLS", BYTES("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")},
    {"zeros", BYTES("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")},
    {"a later magic", BYTES("WFT2\0\0\0\0")},
    {"a first frame that is not empty", BYTES("WFT1\1\0\0\0x")},
    {"an absurd first frame", BYTES("WFT1\xff\xff\xff\xff")},
};

Test(env_real, strangers_never_reach_an_actor)
{
    static const char *const addresses[] = {"tcp:127.0.0.1:0", "unix:@weft-test-*"};
    for (size_t a = 0; a < 2; a++) {
        struct wire_world *w = world_new(addresses[a], 0);
        world_listen(w);
        for (size_t i = 0; i < sizeof stranger_rows / sizeof stranger_rows[0]; i++) {
            int fd = raw_connect(w->bound);
            raw_send(fd, stranger_rows[i].bytes, stranger_rows[i].len);
            wire_world_settle(w);
            cr_assert_eq(w->server.count, 0, "%s on %s", stranger_rows[i].name, addresses[a]);
            close(fd);
            wire_world_settle(w);
            cr_assert_eq(w->server.count, 0, "%s on %s", stranger_rows[i].name, addresses[a]);
        }
        world_free(w);
    }
}

Test(env_real, an_http_client_gets_a_readable_refusal)
{
    struct wire_world *w = world_new("tcp:127.0.0.1:0", 0);
    world_listen(w);
    int fd = raw_connect(w->bound);
    raw_send(fd, BYTES("GET / HTTP/1.1\r\n\r\n"));
    wire_world_settle(w);
    char answer[1000] = "";
    ssize_t got = recv(fd, answer, sizeof answer - 1, 0);
    cr_assert(got > 12 && strncmp(answer, "HTTP/1.1 501", 12) == 0, "%zd bytes: %s", got, answer);
    const char *body = strstr(answer, "\r\n\r\n") + 4;
    cr_assert_eq((size_t)atoi(strstr(answer, "Content-Length: ") + 16), strlen(body), "%s", answer);
    cr_assert_eq(recv(fd, answer, 1, 0), 0, "and then the end");
    close(fd);
    world_free(w);
}

static bool stranger_hung_up(struct wire_world *w)
{
    char byte;
    return recv((int)w->server.held_count, &byte, 1, MSG_DONTWAIT) == 0;
}

Test(env_real, a_silent_stranger_is_dropped)
{
    struct wire_world *w = world_new("tcp:127.0.0.1:0", 1000000);
    world_listen(w);
    int fd = raw_connect(w->bound);
    w->server.held_count = (size_t)fd; /* lent to stranger_hung_up */
    cr_assert(wire_world_run(w, stranger_hung_up));
    w->server.held_count = 0;
    cr_assert_eq(w->server.count, 0);
    close(fd);
    world_free(w);
}

/* --- frames that go wrong ----------------------------------------------------------------------
 */
static const struct {
    const char *name, *bytes;
    size_t len;
    bool then_close;
    enum wf_status status;
    const char *says;
} wrong_rows[] = {
    {"half a header", BYTES(GREETING "WFT1\5"), false, WF_PROTOCOL, "rest of a frame"},
    {"half a frame", BYTES(GREETING "WFT1\5\0\0\0ab"), false, WF_PROTOCOL, "2 of 5 bytes"},
    {"half a frame and the end", BYTES(GREETING "WFT1\5\0\0\0ab"), true, WF_CONNECTION, "middle"},
    {"the end between frames", BYTES(GREETING), true, WF_CLOSED, "closed"},
    {"too long a frame", BYTES(GREETING "WFT1\1\0\x40\0"), false, WF_PROTOCOL, "4194305"},
    {"another magic", BYTES(GREETING "GET / HTTP/1.1\r\n"), false, WF_PROTOCOL, "WFT1"},
};

Test(env_real, wrong_frames_end_the_connection_with_a_reason)
{
    for (size_t i = 0; i < sizeof wrong_rows / sizeof wrong_rows[0]; i++) {
        struct wire_world *w = world_new("unix:@weft-test-*", 20000000);
        world_listen(w);
        int fd = raw_connect(w->bound);
        raw_send(fd, wrong_rows[i].bytes, wrong_rows[i].len);
        if (wrong_rows[i].then_close) {
            shutdown(fd, SHUT_WR);
        }
        cr_assert(wire_world_run(w, server_closed), "%s", wrong_rows[i].name);
        const struct seen *closed = witness_last(&w->server, WF_WIRE_CLOSED);
        cr_assert_eq(closed->status, wrong_rows[i].status, "%s: %s", wrong_rows[i].name,
                     closed->text);
        cr_assert(strstr(closed->text, wrong_rows[i].says) != NULL, "%s: %s", wrong_rows[i].name,
                  closed->text);
        cr_assert_eq(w->server.frames, 0, "%s", wrong_rows[i].name);
        close(fd);
        world_free(w);
    }
}

Test(env_real, a_frame_may_come_byte_by_byte)
{
    struct wire_world *w = world_new("tcp:127.0.0.1:0", 0);
    world_listen(w);
    int fd = raw_connect(w->bound);
    static const char bytes[] = GREETING "WFT1\3\0\0\0abcWFT1\0\0\0\0WFT1\1\0\0\0z";
    for (size_t i = 0; i < sizeof bytes - 1; i++) {
        raw_send(fd, bytes + i, 1);
        wire_world_settle(w);
    }
    cr_assert_eq(w->server.frames, 3);
    cr_assert(w->server.seen[1].first == 'a' && w->server.seen[1].last == 'c');
    cr_assert_eq(w->server.seen[2].len_bytes, 0);
    cr_assert_eq(w->server.seen[3].first, 'z');
    close(fd);
    world_free(w);
}

Test(env_real, writing_to_a_peer_that_is_gone_raises_no_signal)
{
    struct wire_world *w = world_new("tcp:127.0.0.1:0", 0);
    world_listen(w);
    int fd = raw_connect(w->bound);
    raw_send(fd, BYTES(GREETING "WFT1\4\0\0\0last"));
    cr_assert(wire_world_run(w, server_opened));
    uint64_t conn = w->server.seen[0].conn;
    close(fd);
    /* No turn in between: the wire learns of it by its own writes. What was sent still arrives. */
    enum wf_status status = WF_OK;
    for (int i = 0; i < 100 && status == WF_OK; i++) {
        status = w->env[0]->ops->send(w->env[0], conn, "abc", 3, -1);
    }
    cr_assert_eq(status, WF_CLOSED);
    cr_assert(wire_world_run(w, server_closed));
    cr_assert_eq(w->server.closed, 1);
    world_free(w);
}

Test(env_real, what_was_sent_outlives_the_env_that_sent_it)
{
    static const char *const addresses[] = {"tcp:127.0.0.1:0", "unix:@weft-test-*"};
    for (size_t a = 0; a < 2; a++) {
        struct wire_world *w = world_new(addresses[a], 0);
        uint64_t client = 0, server = 0;
        static uint8_t bytes[150000];
        wire_world_connect(w, &client, &server);
        cr_assert_eq(w->env[0]->ops->send(w->env[0], server, bytes, sizeof bytes, -1), WF_OK);
        /* Unread at the end that goes. */
        cr_assert_eq(w->env[1]->ops->send(w->env[1], client, bytes, 1000, -1), WF_OK);
        wf_env_real_free(w->env[0]);
        w->env[0] = NULL;
        while (w->client.closed == 0) {
            wf_loop_turn(w->loop[1]);
        }
        cr_assert_eq(w->client.frames, 1, "%s", addresses[a]);
        cr_assert_eq(witness_last(&w->client, WF_WIRE_CLOSED)->status, WF_CLOSED, "%s: %s",
                     addresses[a], witness_last(&w->client, WF_WIRE_CLOSED)->text);
        world_free(w);
    }
}

/* --- descriptors -------------------------------------------------------------------------------
 */
/* A descriptor whose file holds `number`. */
static int numbered_fd(int number)
{
    char name[] = "/tmp/weft-test-fd-XXXXXX";
    int fd = mkstemp(name);
    cr_assert_geq(fd, 0);
    unlink(name);
    cr_assert_eq(write(fd, &number, sizeof number), (ssize_t)sizeof number);
    return fd;
}

enum { FD_FRAMES = 60 };

static bool all_fd_frames(struct wire_world *w)
{
    return w->server.frames == FD_FRAMES;
}

Test(env_real, a_descriptor_stays_with_its_frame)
{
    struct wire_world *w = world_new("unix:@weft-test-*", 0);
    uint64_t client = 0, server = 0;
    wire_world_connect(w, &client, &server);
    w->server.hold = true;
    unsigned before = open_descriptors();
    static uint8_t bytes[300000];
    for (int i = 0; i < FD_FRAMES; i++) {
        /* Small and large, with and without, so that kernel pieces and frames do not match. */
        size_t len = i % 5 == 4 ? sizeof bytes : (size_t)i;
        int fd = i % 3 != 0 ? numbered_fd(i) : -1;
        cr_assert_eq(w->env[1]->ops->send(w->env[1], client, bytes, len, fd), WF_OK);
        if (fd >= 0) {
            close(fd);
        }
    }
    cr_assert(wire_world_run(w, all_fd_frames));
    for (int i = 0; i < FD_FRAMES; i++) {
        cr_assert_eq(w->server.seen[1 + i].fd, i % 3 != 0, "frame %d", i);
        if (i % 3 != 0) {
            cr_assert_eq(w->server.seen[1 + i].fd_number, i, "frame %d has the one of %d", i,
                         w->server.seen[1 + i].fd_number);
        }
    }
    witness_let_go(&w->server);
    close(w->server.kept_fd);
    w->server.kept_fd = -1;
    cr_assert_eq(open_descriptors(), before, "descriptors leaked");
    world_free(w);
}

static void raw_send_fds(int fd, const void *bytes, size_t len, const int *fds, size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(16 * sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)bytes, len};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    cr_assert_eq(sendmsg(fd, &message, 0), (ssize_t)len);
}

Test(env_real, surplus_descriptors_are_closed)
{
    struct wire_world *w = world_new("unix:@weft-test-*", 0);
    world_listen(w);
    unsigned before = open_descriptors();
    int raw = raw_connect(w->bound);
    int fds[12];
    for (int i = 0; i < 12; i++) {
        fds[i] = numbered_fd(i);
    }
    raw_send_fds(raw, BYTES(GREETING), fds, 1);            /* with the greeting */
    raw_send_fds(raw, BYTES("WFT1\2\0\0\0"), fds, 12);     /* far too many */
    raw_send_fds(raw, BYTES("a"), fds + 1, 1);             /* in the middle of a frame */
    raw_send_fds(raw, BYTES("bWFT1\0\0\0\0"), fds + 5, 2); /* belongs to the frame that begins */
    wire_world_settle(w);
    cr_assert_eq(w->server.frames, 2);
    cr_assert(w->server.seen[1].fd && w->server.seen[2].fd);
    cr_assert_eq(w->server.seen[1].fd_number, 0);
    cr_assert_eq(w->server.seen[2].fd_number, 5);
    for (int i = 0; i < 12; i++) {
        close(fds[i]);
    }
    close(raw);
    cr_assert(wire_world_run(w, server_closed));
    close(w->server.kept_fd);
    w->server.kept_fd = -1;
    cr_assert_eq(open_descriptors(), before, "descriptors leaked");
    world_free(w);
}

Test(env_real, descriptors_do_not_go_over_tcp)
{
    struct wire_world *w = world_new("tcp:127.0.0.1:0", 0);
    uint64_t client = 0, server = 0;
    wire_world_connect(w, &client, &server);
    cr_assert_eq(w->env[1]->ops->send(w->env[1], client, "x", 1, 0), WF_INVALID);
    world_free(w);
}

/* --- limits ------------------------------------------------------------------------------------
 */
Test(env_real, an_owner_that_keeps_frames_stops_the_sender_not_the_memory)
{
    struct wire_world *w = world_new("unix:@weft-test-*", 0);
    uint64_t client = 0, server = 0;
    enum { SENT = 2000 };
    wire_world_connect(w, &client, &server);
    w->server.hold = true;
    uint8_t bytes[1000] = {0};
    for (int i = 0; i < SENT; i++) {
        cr_assert_eq(w->env[1]->ops->send(w->env[1], client, bytes, sizeof bytes, -1), WF_OK);
    }
    wire_world_settle(w);
    /* At most what one read brings beyond the limit. */
    cr_assert_lt(w->server.frames, (size_t)WF_UNRELEASED_MAX + 300);
    for (int i = 0; i < 100 && w->server.frames < SENT; i++) {
        witness_let_go(&w->server);
        wire_world_settle(w);
    }
    cr_assert_eq(w->server.frames, SENT);
    cr_assert_eq(w->server.closed, 0);
    world_free(w);
}

Test(env_real, bytes_that_are_only_announced_cost_no_memory)
{
    struct wire_world *w = world_new("unix:@weft-test-*", 0);
    world_listen(w);
    enum { LIARS = 200 };
    int fds[LIARS];
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < LIARS; i++) {
        fds[i] = raw_connect(w->bound);
        raw_send(fds[i], BYTES(GREETING "WFT1\0\0\x40\0x")); /* 4 MiB follow, it says */
    }
    wire_world_settle(w);
    cr_assert_eq(w->server.opened, (size_t)LIARS);
    size_t each = (mallinfo2().uordblks - before) / LIARS;
    cr_assert_lt(each, 80000, "%zu bytes a connection", each);
    for (int i = 0; i < LIARS; i++) {
        close(fds[i]);
    }
    world_free(w);
}

static void stop_loop(struct wf_timer *timer)
{
    struct wire_world *w = WF_CONTAINER(timer, struct wire_world, timer);
    wf_loop_stop(w->loop[0]);
}

Test(env_real, running_out_of_descriptors_does_not_spin)
{
    struct wire_world *w = world_new("unix:@weft-test-*", 0);
    world_listen(w);
    enum { WAITING = 20 };
    int fds[WAITING];
    for (int i = 0; i < WAITING; i++) {
        fds[i] = raw_connect(w->bound);
        raw_send(fds[i], BYTES(GREETING));
    }
    struct rlimit old, low;
    getrlimit(RLIMIT_NOFILE, &old);
    low = old;
    low.rlim_cur = (rlim_t)fds[WAITING - 1] + 6; /* room for five */
    setrlimit(RLIMIT_NOFILE, &low);
    struct wf_loop_stats before = wf_loop_stats(w->loop[0]);
    w->timer.fire = stop_loop;
    wf_timer_arm(w->loop[0], &w->timer, wf_loop_now_ns(w->loop[0]) + UINT64_C(250000000));
    wf_loop_run(w->loop[0]);
    struct wf_loop_stats after = wf_loop_stats(w->loop[0]);
    cr_assert_lt(w->server.opened, (size_t)WAITING);
    cr_assert_lt(after.passes - before.passes, 100, "it spins: %lu passes",
                 (unsigned long)(after.passes - before.passes));
    setrlimit(RLIMIT_NOFILE, &old);
    wf_timer_arm(w->loop[0], &w->timer, wf_loop_now_ns(w->loop[0]) + UINT64_C(250000000));
    wf_loop_run(w->loop[0]);
    cr_assert_eq(w->server.opened, (size_t)WAITING, "those who waited are let in later");
    for (int i = 0; i < WAITING; i++) {
        close(fds[i]);
    }
    world_free(w);
}

Test(env_real, one_connection_too_many_is_refused)
{
    struct wire_world *w = world_new("unix:@weft-test-*", 0);
    struct wf_error error = {0};
    uint64_t conn = 0;
    for (int i = 0; i < WF_CONNECTIONS_MAX; i++) {
        cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, "unix:@weft-nobody",
                                             &conn, &error),
                     WF_OK);
    }
    cr_assert_eq(
        w->env[1]->ops->connect(w->env[1], &w->client.actor, "unix:@weft-nobody", &conn, &error),
        WF_NO_RESOURCE);
    cr_assert(strstr(error.text, "16384") != NULL, "%s", error.text);
    world_free(w);
}

/* --- names -------------------------------------------------------------------------------------
 */
Test(env_real, names_are_looked_up_by_a_job)
{
    struct addrinfo *found = NULL;
    if (getaddrinfo("LOCALHOST", NULL, NULL, &found) != 0) {
        cr_skip_test("this host knows no name: it has no /etc/hosts");
    }
    freeaddrinfo(found);
    struct wire_world *w = world_new("tcp:127.0.0.1:0", 0);
    world_listen(w);
    char name[WF_ADDRESS_MAX];
    uint64_t conn = 0;
    /* Not the spelling that is known without asking; /etc/hosts knows it in any case. */
    snprintf(name, sizeof name, "tcp:LOCALHOST%s", strrchr(w->bound, ':'));
    cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, name, &conn, NULL), WF_OK);
    cr_assert_eq(w->env[1]->ops->send(w->env[1], conn, "x", 1, -1), WF_AGAIN);
    cr_assert(wire_world_run(w, server_opened));
    world_free(w);
}

Test(env_real, a_name_that_does_not_resolve_is_a_message)
{
    static const char name[] =
        "tcp:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaa.x:1";
    struct wire_world *w = world_new("tcp:127.0.0.1:0", 0);
    uint64_t conn = 0, closed_early = 0;
    cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, name, &conn, NULL), WF_OK);
    cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, name, &closed_early, NULL),
                 WF_OK);
    w->env[1]->ops->close(w->env[1], closed_early);
    cr_assert(wire_world_run(w, client_closed));
    const struct seen *closed = witness_last(&w->client, WF_WIRE_CLOSED);
    cr_assert(closed->conn == conn && closed->status == WF_CONNECTION &&
                  strstr(closed->text, "cannot resolve") != NULL,
              "%s", closed->text);
    /* One more is out while the env goes. */
    cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, name, &conn, NULL), WF_OK);
    cr_assert_eq(w->client.closed, 1);
    world_free(w);
}

/* --- socket files ------------------------------------------------------------------------------
 */
static enum wf_status listen_on(struct wire_world *w, int env, const char *address,
                                struct wf_error *error)
{
    char bound[WF_ADDRESS_MAX];
    uint64_t listener = 0;
    return w->env[env]->ops->listen(w->env[env], &w->server.actor, address, bound, &listener,
                                    error);
}

Test(env_real, socket_files_are_made_found_stale_and_taken_away)
{
    struct wire_world *w = world_new("unix:/tmp/weft-test-*", 0);
    struct stat info;
    struct wf_error error = {0};
    world_listen(w);
    const char *path = w->bound + strlen("unix:");
    cr_assert(stat(path, &info) == 0 && S_ISSOCK(info.st_mode), "%s", path);
    cr_assert_eq(listen_on(w, 1, w->bound, &error), WF_NO_RESOURCE, "it is alive");
    cr_assert_eq(stat(path, &info), 0, "and was left alone");
    w->env[0]->ops->close(w->env[0], w->listener);
    cr_assert_neq(stat(path, &info), 0, "closing takes it away");

    /* What a killed process leaves. */
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&un, sizeof un), 0);
    close(fd);
    cr_assert_eq(listen_on(w, 1, w->bound, &error), WF_OK, "%s", error.text);

    /* Something that is no socket is never removed. */
    char other[] = "/tmp/weft-test-file-XXXXXX", address[WF_ADDRESS_MAX];
    close(mkstemp(other));
    snprintf(address, sizeof address, "unix:%s", other);
    cr_assert_eq(listen_on(w, 1, address, &error), WF_NO_RESOURCE);
    cr_assert(strstr(error.text, other) != NULL, "%s", error.text);
    cr_assert_eq(stat(other, &info), 0);
    unlink(other);
    cr_assert_eq(listen_on(w, 1, "unix:/tmp/weft-no-such-folder/x", &error), WF_IO);
    cr_assert_eq(listen_on(w, 1, "tcp:some-name:0", &error), WF_INVALID);
    world_free(w);
}
