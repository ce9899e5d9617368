/* test_wire_strangers.c - what a guarded listener promises of whom it does not know yet (env.h),
 * on real sockets and simulated; and who speaks no frames, on real sockets. */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/env_sim.h"
#include "tests/contract/wire_world.h"

enum { KINDS = 4 };

static void world_init(struct wire_world *world, int kind)
{
    switch (kind) {
    case 0:
        wire_world_real(world, "tcp", "tcp:127.0.0.1:0", WF_POLLER_EPOLL, NULL);
        break;
    case 1:
        wire_world_real(world, "tcp, libevent", "tcp:127.0.0.1:0", WF_POLLER_LIBEVENT, NULL);
        break;
    case 2:
        wire_world_real(world, "unix", "unix:@weft-test-*", WF_POLLER_EPOLL, NULL);
        break;
    default:
        wire_world_sim(world, "tcp:somewhere:0", 23);
    }
}

/* As wire_world_connect, with a guard. */
static void listen_guarded(struct wire_world *w, struct wf_actor *foreign)
{
    struct wf_error error = {0};
    struct wf_env *server = w->env[0];
    cr_assert_eq(
        server->ops->listen(server, &w->server.actor, w->address, w->bound, &w->listener, &error),
        WF_OK, "%s: %s", w->name, error.text);
    server->ops->guard(server, w->listener, foreign);
}

static bool both_open(struct wire_world *w)
{
    return w->client.opened > 0 && w->server.opened > 0;
}

static uint64_t connect_guarded(struct wire_world *w, uint64_t *server_out)
{
    uint64_t client = 0;
    struct wf_error error = {0};
    listen_guarded(w, NULL);
    cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, w->bound, &client, &error),
                 WF_OK, "%s: %s", w->name, error.text);
    cr_assert(wire_world_run(w, both_open), "%s: no connection", w->name);
    *server_out = w->server.seen[0].conn;
    return client;
}

static bool server_heard_or_closed(struct wire_world *w)
{
    return w->server.frames > 0 || w->server.closed > 0;
}

static bool both_closed(struct wire_world *w)
{
    return w->server.closed > 0 && w->client.closed > 0;
}

static const struct {
    const char *name;
    size_t lens[2];
    uint32_t count;
    bool trusted, good;
} rows[] = {
    {"one small frame", {100}, 1, false, true},
    {"an empty frame", {0}, 1, false, true},
    {"as much as a stranger may say", {WF_STRANGER_FRAME_MAX}, 1, false, true},
    {"one byte more", {WF_STRANGER_FRAME_MAX + 1}, 1, false, false},
    {"a large frame", {WF_FRAME_MAX}, 1, false, false},
    {"two frames", {10, 10}, 2, false, false},
    {"a large frame, trusted", {WF_FRAME_MAX}, 1, true, true},
    {"two frames, trusted", {10, 100000}, 2, true, true},
};

static void speak(struct wire_world *w, size_t row, const uint8_t *bytes)
{
    uint64_t server = 0, client = connect_guarded(w, &server);
    if (rows[row].trusted) {
        w->env[0]->ops->trust(w->env[0], server);
    }
    for (uint32_t i = 0; i < rows[row].count; i++) {
        w->env[1]->ops->send(w->env[1], client, bytes, rows[row].lens[i], -1);
    }
    bool ended = wire_world_run(w, rows[row].good ? server_heard_or_closed : both_closed);
    cr_expect(ended, "%s, %s", w->name, rows[row].name);
    wire_world_settle(w);
    if (rows[row].good) {
        cr_expect(w->server.closed == 0 && w->server.frames == rows[row].count, "%s, %s", w->name,
                  rows[row].name);
    } else {
        cr_expect_eq(witness_last(&w->server, WF_WIRE_CLOSED)->status, WF_PROTOCOL, "%s, %s",
                     w->name, rows[row].name);
        cr_expect_leq(w->server.frames, 1, "%s, %s", w->name, rows[row].name);
    }
}

Test(wire_strangers, may_say_little_until_they_are_trusted)
{
    struct wire_world *world = malloc(sizeof *world);
    uint8_t *bytes = calloc(1, WF_FRAME_MAX);
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
            world_init(world, kind);
            speak(world, row, bytes);
            wire_world_fini(world);
        }
    }
    free(bytes);
    free(world);
}

/* --- real sockets ----------------------------------------------------------------------------- */
static int plain_socket(const struct wire_world *w)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    to.sin_port = htons((uint16_t)atoi(strrchr(w->bound, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static bool server_saw_foreign(struct wire_world *w)
{
    return witness_last(&w->server, WF_WIRE_FOREIGN) != NULL;
}

Test(wire_strangers, who_speak_no_frames_are_handed_over_unread)
{
    struct wire_world *w = malloc(sizeof *w);
    world_init(w, 0);
    listen_guarded(w, &w->server.actor);
    int fd = plain_socket(w);
    cr_assert_eq(send(fd, "GET / HTTP/1.1\r\n", 16, 0), 16);
    cr_assert(wire_world_run(w, server_saw_foreign));
    const struct seen *seen = witness_last(&w->server, WF_WIRE_FOREIGN);
    cr_assert(seen->fd && seen->listener == w->listener && w->server.opened == 0);
    cr_assert(strncmp(seen->text, "tcp:127.0.0.1:", 14) == 0, "%s", seen->text);
    char bytes[32];
    cr_assert_eq(recv(w->server.kept_fd, bytes, sizeof bytes, 0), 16);
    cr_assert_eq(memcmp(bytes, "GET / HTTP/1.1\r\n", 16), 0, "every byte is still there");
    close(fd);
    wire_world_fini(w);
    free(w);
}

Test(wire_strangers, who_speak_no_frames_hear_so_where_nobody_wants_them)
{
    struct wire_world *w = malloc(sizeof *w);
    world_init(w, 0);
    listen_guarded(w, NULL);
    int fd = plain_socket(w);
    cr_assert_eq(send(fd, "GET / HTTP/1.1\r\n", 16, 0), 16);
    wire_world_settle(w);
    char bytes[64] = "";
    cr_assert_gt(recv(fd, bytes, sizeof bytes - 1, 0), 0);
    cr_assert_eq(strncmp(bytes, "HTTP/1.1 501 ", 13), 0, "%s", bytes);
    close(fd);
    wire_world_fini(w);
    free(w);
}
