/* test_wire.c - what every wire promises (env.h), run on real sockets of each kind and simulated.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/env_sim.h"
#include "tests/contract/wire_world.h"
#include "tests/runtime/descriptors.h"

enum { KINDS = 7 };

static void world_init(struct wire_world *world, int kind)
{
    static const struct {
        const char *name, *address;
        enum wf_poller_kind poller;
    } kinds[KINDS] = {
        {"tcp", "tcp:127.0.0.1:0", WF_POLLER_EPOLL},
        {"tcp, libevent", "tcp:127.0.0.1:0", WF_POLLER_LIBEVENT},
        {"tcp by name", "tcp:localhost:0", WF_POLLER_EPOLL},
        {"unix abstract", "unix:@weft-test-*", WF_POLLER_EPOLL},
        {"unix path", "unix:/tmp/weft-test-*", WF_POLLER_EPOLL},
        {"unix path, libevent", "unix:/tmp/weft-test-*", WF_POLLER_LIBEVENT},
        {"sim", "tcp:somewhere:0", WF_POLLER_NONE},
    };
    if (kinds[kind].poller == WF_POLLER_NONE) {
        wire_world_sim(world, kinds[kind].address, 17);
    } else {
        wire_world_real(world, kinds[kind].name, kinds[kind].address, kinds[kind].poller, NULL);
    }
}

/* A test on each kind of world; `w` is it, `client` and `server` are its connection. */
#define ON_EACH_WIRE(test)                                \
    static void test##_on(struct wire_world *w);          \
    Test(wire, test)                                      \
    {                                                     \
        struct wire_world *world = malloc(sizeof *world); \
        for (int kind = 0; kind < KINDS; kind++) {        \
            world_init(world, kind);                      \
            test##_on(world);                             \
            wire_world_fini(world);                       \
        }                                                 \
        free(world);                                      \
    }                                                     \
    static void test##_on(struct wire_world *w)

static enum wf_status send_to_server(struct wire_world *w, uint64_t conn, const void *bytes,
                                     size_t len)
{
    return w->env[1]->ops->send(w->env[1], conn, bytes, len, -1);
}

static enum wf_status send_to_client(struct wire_world *w, uint64_t conn, const void *bytes,
                                     size_t len)
{
    return w->env[0]->ops->send(w->env[0], conn, bytes, len, -1);
}

static bool client_closed(struct wire_world *w)
{
    return w->client.closed > 0;
}

static bool server_closed(struct wire_world *w)
{
    return w->server.closed > 0;
}

static bool hundred_each(struct wire_world *w)
{
    return w->server.frames == 100 && w->client.frames == 100;
}

ON_EACH_WIRE(frames_keep_their_order_both_ways)
{
    uint64_t client = 0, server = 0;
    wire_world_connect(w, &client, &server);
    for (uint8_t i = 0; i < 100; i++) {
        uint8_t bytes[200];
        memset(bytes, i, sizeof bytes);
        cr_assert_eq(send_to_server(w, client, bytes, i), WF_OK, "%s", w->name);
        cr_assert_eq(send_to_client(w, server, bytes, 2 * (size_t)i), WF_OK, "%s", w->name);
    }
    cr_assert(wire_world_run(w, hundred_each), "%s: %zu and %zu frames", w->name, w->server.frames,
              w->client.frames);
    for (uint8_t i = 0; i < 100; i++) {
        const struct seen *a = &w->server.seen[1 + i], *b = &w->client.seen[1 + i];
        cr_assert(a->kind == WF_WIRE_FRAME && a->conn == server && a->len_bytes == i &&
                      (i == 0 || (a->first == i && a->last == i)),
                  "%s: frame %d to the server", w->name, i);
        cr_assert(b->kind == WF_WIRE_FRAME && b->conn == client && b->len_bytes == 2 * (size_t)i,
                  "%s: frame %d to the client", w->name, i);
    }
}

static const size_t sizes[] = {0,     1,       7,       8,           9,
                               65528, 65536,   65537,   (256 << 10), (256 << 10) + 1,
                               0,     1 << 20, 3000001, 1,           WF_FRAME_MAX};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static bool all_sizes(struct wire_world *w)
{
    return w->server.frames == SIZES;
}

ON_EACH_WIRE(frames_of_every_size_arrive_whole)
{
    uint64_t client = 0, server = 0;
    wire_world_connect(w, &client, &server);
    uint8_t *bytes = malloc(WF_FRAME_MAX + 1);
    memset(bytes, 0, WF_FRAME_MAX + 1);
    for (size_t i = 0; i < SIZES; i++) {
        bytes[0] = (uint8_t)(i + 1);
        if (sizes[i] > 0) {
            bytes[sizes[i] - 1] = (uint8_t)(i + 1);
        }
        cr_assert_eq(send_to_server(w, client, bytes, sizes[i]), WF_OK, "%s: size %zu", w->name,
                     sizes[i]);
    }
    cr_assert(wire_world_run(w, all_sizes), "%s: %zu frames", w->name, w->server.frames);
    for (size_t i = 0; i < SIZES; i++) {
        const struct seen *seen = &w->server.seen[1 + i];
        cr_assert(seen->len_bytes == sizes[i] &&
                      (sizes[i] == 0 || (seen->first == i + 1 && seen->last == i + 1)),
                  "%s: frame %zu: %zu bytes", w->name, i, seen->len_bytes);
    }
    cr_assert_eq(send_to_server(w, client, bytes, WF_FRAME_MAX + 1), WF_INVALID, "%s", w->name);
    free(bytes);
}

ON_EACH_WIRE(what_was_sent_before_a_close_arrives_before_the_end)
{
    uint64_t client = 0, server = 0;
    wire_world_connect(w, &client, &server);
    uint8_t *bytes = calloc(1, WF_FRAME_MAX);
    /* Unread bytes at the closing side must not make the kernel throw away what it sent. */
    cr_assert_eq(send_to_client(w, server, bytes, 1000), WF_OK);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(send_to_server(w, client, bytes, WF_FRAME_MAX), WF_OK, "%s", w->name);
    }
    w->env[1]->ops->close(w->env[1], client);
    cr_assert_eq(send_to_server(w, client, bytes, 1), WF_CLOSED, "%s", w->name);
    cr_assert(wire_world_run(w, server_closed), "%s", w->name);
    cr_assert_eq(w->server.frames, 3, "%s: %zu frames", w->name, w->server.frames);
    cr_assert_eq(witness_last(&w->server, WF_WIRE_CLOSED)->status, WF_CLOSED, "%s: %s", w->name,
                 witness_last(&w->server, WF_WIRE_CLOSED)->text);
    cr_assert_eq(witness_last(&w->server, WF_WIRE_CLOSED)->conn, server);
    cr_assert_eq(send_to_client(w, server, bytes, 1), WF_CLOSED, "%s", w->name);
    wire_world_settle(w);
    cr_assert_eq(w->client.closed, 0, "%s: told of its own close", w->name);
    cr_assert_eq(w->client.frames, 0, "%s: a frame after its own close", w->name);
    free(bytes);
}

ON_EACH_WIRE(ids_that_are_not_ours_are_ignored)
{
    uint64_t client = 0, server = 0;
    wire_world_connect(w, &client, &server);
    const uint64_t wrong[] = {0, 1, 99, client + 1000, UINT64_MAX, UINT64_MAX << 16};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (wrong[i] != client) {
            w->env[1]->ops->close(w->env[1], wrong[i]);
            cr_assert_eq(send_to_server(w, wrong[i], "x", 1), WF_CLOSED, "%s: %zu", w->name, i);
        }
    }
    cr_assert_eq(send_to_server(w, client, "x", 1), WF_OK, "%s", w->name);
}

ON_EACH_WIRE(a_connect_to_nobody_fails_with_a_message)
{
    char gone[WF_ADDRESS_MAX];
    uint64_t listener = 0, conn = 0;
    struct wf_error error = {0};
    cr_assert_eq(
        w->env[0]->ops->listen(w->env[0], &w->server.actor, w->address, gone, &listener, &error),
        WF_OK, "%s: %s", w->name, error.text);
    w->env[0]->ops->close(w->env[0], listener);
    cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, gone, &conn, &error), WF_OK,
                 "%s: %s", w->name, error.text);
    cr_assert_eq(w->client.count, 0, "%s: told before connect returned", w->name);
    cr_assert_eq(send_to_server(w, conn, "x", 1), WF_AGAIN, "%s", w->name);
    cr_assert(wire_world_run(w, client_closed), "%s", w->name);
    cr_assert_eq(w->client.opened, 0, "%s", w->name);
    const struct seen *closed = witness_last(&w->client, WF_WIRE_CLOSED);
    cr_assert(closed->conn == conn && closed->status == WF_CONNECTION &&
                  strstr(closed->text, gone) != NULL,
              "%s: %s", w->name, closed->text);
}

ON_EACH_WIRE(a_connect_closed_by_its_owner_is_forgotten)
{
    char bound[WF_ADDRESS_MAX];
    uint64_t listener = 0, conn = 0;
    cr_assert_eq(
        w->env[0]->ops->listen(w->env[0], &w->server.actor, w->address, bound, &listener, NULL),
        WF_OK);
    cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, bound, &conn, NULL), WF_OK);
    w->env[1]->ops->close(w->env[1], conn);
    wire_world_settle(w);
    cr_assert_eq(w->client.count, 0, "%s", w->name);
    cr_assert_eq(w->server.opened, w->server.closed, "%s", w->name);
}

ON_EACH_WIRE(an_address_in_use_is_refused_by_name)
{
    uint64_t client = 0, server = 0, second = 0;
    char bound[WF_ADDRESS_MAX];
    struct wf_error error = {0};
    wire_world_connect(w, &client, &server);
    cr_assert_eq(
        w->env[1]->ops->listen(w->env[1], &w->client.actor, w->bound, bound, &second, &error),
        WF_NO_RESOURCE, "%s", w->name);
    cr_assert(strstr(error.text, w->bound) != NULL, "%s: %s", w->name, error.text);
}

ON_EACH_WIRE(a_name_left_open_is_made_unique)
{
    char bound[2][WF_ADDRESS_MAX];
    uint64_t listener[2];
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(w->env[i]->ops->listen(w->env[i], &w->server.actor, w->address, bound[i],
                                            &listener[i], NULL),
                     WF_OK, "%s", w->name);
    }
    cr_assert_str_neq(bound[0], bound[1], "%s", w->name);
    cr_assert_null(strchr(bound[0], '*'), "%s", w->name);
}

ON_EACH_WIRE(a_closed_listener_keeps_its_connections)
{
    uint64_t client = 0, server = 0, late = 0;
    wire_world_connect(w, &client, &server);
    w->env[0]->ops->close(w->env[0], w->listener);
    cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, w->bound, &late, NULL),
                 WF_OK);
    cr_assert(wire_world_run(w, client_closed), "%s", w->name);
    cr_assert_eq(witness_last(&w->client, WF_WIRE_CLOSED)->conn, late, "%s", w->name);
    cr_assert_eq(send_to_server(w, client, "still", 5), WF_OK, "%s", w->name);
    wire_world_settle(w);
    cr_assert_eq(w->server.frames, 1, "%s", w->name);
}

enum { MANY = 300 };

static bool many_open(struct wire_world *w)
{
    return w->server.opened == MANY && w->client.opened == MANY;
}

static bool many_frames(struct wire_world *w)
{
    return w->server.frames == MANY;
}

static bool many_closed(struct wire_world *w)
{
    return w->server.closed == MANY;
}

ON_EACH_WIRE(many_connections_live_side_by_side)
{
    char bound[WF_ADDRESS_MAX];
    uint64_t listener = 0, conns[MANY];
    cr_assert_eq(
        w->env[0]->ops->listen(w->env[0], &w->server.actor, w->address, bound, &listener, NULL),
        WF_OK);
    for (int i = 0; i < MANY; i++) {
        cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, bound, &conns[i], NULL),
                     WF_OK);
        for (int j = 0; j < i; j++) {
            cr_assert_neq(conns[i], conns[j]);
        }
    }
    cr_assert(wire_world_run(w, many_open), "%s: %zu of %d", w->name, w->server.opened, MANY);
    for (int i = 0; i < MANY; i++) {
        cr_assert_eq(send_to_server(w, conns[i], &i, sizeof i), WF_OK, "%s", w->name);
    }
    cr_assert(wire_world_run(w, many_frames), "%s", w->name);
    for (int i = 0; i < MANY; i++) {
        w->env[1]->ops->close(w->env[1], conns[i]);
    }
    cr_assert(wire_world_run(w, many_closed), "%s: %zu closed", w->name, w->server.closed);
}

static bool nothing_left(struct wire_world *w)
{
    return w->server.frames == w->client.count; /* count is borrowed to hold what was sent */
}

ON_EACH_WIRE(a_full_send_queue_is_a_status_and_loses_nothing)
{
    uint64_t client = 0, server = 0;
    wire_world_connect(w, &client, &server);
    uint8_t *bytes = calloc(1, WF_FRAME_MAX);
    size_t sent = 0;
    enum wf_status status = WF_OK;
    while ((status = send_to_server(w, client, bytes, WF_FRAME_MAX)) == WF_OK && sent < 1000) {
        sent++;
    }
    cr_assert_eq(status, WF_NO_RESOURCE, "%s after %zu frames", w->name, sent);
    cr_assert_geq(sent, WF_SEND_QUEUE_MAX / WF_FRAME_MAX - 1, "%s", w->name);
    w->client.count = sent;
    cr_assert(wire_world_run(w, nothing_left), "%s: %zu of %zu", w->name, w->server.frames, sent);
    cr_assert_eq(send_to_server(w, client, bytes, 1), WF_OK, "%s: room again", w->name);
    free(bytes);
}

/* Each connection brings one frame and is closed by the client. */
static bool one_is_gone(struct wire_world *w)
{
    return w->server.closed == w->server.opened && w->server.frames == w->server.opened;
}

static bool one_is_open(struct wire_world *w)
{
    return w->server.opened == w->server.frames + 1 && w->client.opened == w->server.opened;
}

ON_EACH_WIRE(a_thousand_reconnects_leave_nothing)
{
    uint64_t client = 0, server = 0;
    wire_world_connect(w, &client, &server);
    unsigned descriptors = open_descriptors();
    for (size_t i = 1; i <= 1000; i++) {
        cr_assert_eq(send_to_server(w, client, "x", 1), WF_OK, "%s: %zu", w->name, i);
        w->env[1]->ops->close(w->env[1], client);
        cr_assert(wire_world_run(w, one_is_gone), "%s: %zu", w->name, i);
        cr_assert_eq(w->env[1]->ops->connect(w->env[1], &w->client.actor, w->bound, &client, NULL),
                     WF_OK, "%s: %zu", w->name, i);
        cr_assert(wire_world_run(w, one_is_open), "%s: %zu", w->name, i);
    }
    wire_world_settle(w);
    cr_assert_eq(open_descriptors(), descriptors, "%s", w->name);
}

static bool shared_came(struct wire_world *w)
{
    return w->server.frames == w->client.count;
}

ON_EACH_WIRE(a_shared_payload_reaches_all_and_is_held_by_queues)
{
    enum { CONNS = 3, EACH = 4 };
    uint64_t conns[CONNS], server = 0;
    const size_t len = 1 << 20; /* more than sockets take at once */
    uint8_t *bytes = malloc(len);
    memset(bytes, 0x5a, len);
    bytes[len - 1] = 0xa5;
    struct wf_payload *payload = wf_payload_new(bytes, len);
    wire_world_connect(w, &conns[0], &server);
    for (int i = 1; i < CONNS; i++) {
        cr_assert_eq(
            w->env[1]->ops->connect(w->env[1], &w->client.actor, w->bound, &conns[i], NULL), WF_OK);
    }
    wire_world_settle(w);
    for (int i = 0; i < CONNS * EACH; i++) {
        cr_assert_eq(w->env[1]->ops->send_shared(w->env[1], conns[i % CONNS], payload), WF_OK, "%s",
                     w->name);
    }
    wf_payload_release(payload); /* what waits holds it */
    w->env[1]->ops->close(w->env[1], conns[0]);
    w->client.count = CONNS * EACH;
    cr_assert(wire_world_run(w, shared_came), "%s: %zu", w->name, w->server.frames);
    for (size_t i = 0; i < w->server.count; i++) {
        const struct seen *seen = &w->server.seen[i];
        cr_assert(seen->kind != WF_WIRE_FRAME ||
                      (seen->len_bytes == len && seen->first == 0x5a && seen->last == 0xa5),
                  "%s", w->name);
    }
}

ON_EACH_WIRE(messages_to_an_owner_that_closed_harm_nobody)
{
    uint64_t client = 0, server = 0;
    wire_world_connect(w, &client, &server);
    cr_assert_eq(send_to_server(w, client, "1", 1), WF_OK);
    wf_actor_close(&w->server.actor);
    cr_assert_eq(send_to_server(w, client, "2", 1), WF_OK);
    wire_world_settle(w);
    w->env[1]->ops->close(w->env[1], client);
    wire_world_settle(w);
    cr_assert_eq(w->server.frames, 0, "%s", w->name);
}

ON_EACH_WIRE(bad_addresses_are_refused_at_once)
{
    char longest[WF_ADDRESS_MAX + 50], bound[WF_ADDRESS_MAX];
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "unix:/", 6);
    longest[sizeof longest - 1] = '\0';
    const char *const bad[] = {"", longest};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct wf_error error = {0};
        uint64_t id = 0;
        cr_assert_eq(
            w->env[0]->ops->listen(w->env[0], &w->server.actor, bad[i], bound, &id, &error),
            WF_INVALID, "%s: listen %zu", w->name, i);
        cr_assert_eq(w->env[0]->ops->connect(w->env[0], &w->server.actor, bad[i], &id, &error),
                     WF_INVALID, "%s: connect %zu", w->name, i);
        cr_assert_gt(strlen(error.text), 10);
    }
}

static bool job_back(struct wire_world *w)
{
    return w->client.others > 0;
}

static void job_add(struct wf_job *job)
{
    ((int *)(job + 1))[0]++;
}

ON_EACH_WIRE(a_job_works_and_comes_back)
{
    struct {
        struct wf_job job;
        int count;
    } own = {.job = {.owner = &w->client.actor, .work = job_add, .name = "add"}};
    own.job.done.kind = 77;
    w->env[1]->ops->job(w->env[1], &own.job);
    cr_assert_eq(w->client.others, 0, "%s", w->name);
    cr_assert(wire_world_run(w, job_back), "%s", w->name);
    cr_assert_eq(own.count, 1, "%s", w->name);
}

ON_EACH_WIRE(clock_choices_and_random_bytes)
{
    struct wf_env *env = w->env[0];
    uint64_t before = env->ops->now_ns(env), bits[4] = {0}, seen = 0;
    cr_assert_geq(env->ops->wall_s(env), UINT64_C(1600000000), "%s", w->name);
    for (int i = 0; i < 1000; i++) {
        uint64_t chosen = env->ops->choose(env, 5);
        cr_assert_lt(chosen, 5, "%s", w->name);
        seen |= UINT64_C(1) << chosen;
    }
    cr_assert_eq(seen, 31, "%s: some choice never comes", w->name);
    env->ops->random(env, bits, sizeof bits - 3);
    cr_assert(bits[0] != bits[1] && bits[2] != 0, "%s", w->name);
    cr_assert_eq(bits[3] >> 40, 0, "%s: wrote beyond the end", w->name);
    cr_assert_geq(env->ops->now_ns(env), before, "%s", w->name);
}
