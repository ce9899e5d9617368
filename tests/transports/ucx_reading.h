/* ucx_reading.h - a reader in a world of the ucx transport, and one read of it: what its tests
 * share. */
#ifndef WEFT_TESTS_TRANSPORTS_UCX_READING_H
#define WEFT_TESTS_TRANSPORTS_UCX_READING_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/contract/transport_world.h"
#include "tests/contract/transport_world_kinds.h"
#include "tests/contract/ucx_source.h"
#include "transports/ucx_internal.h"

enum { MS = 1000000 };

/* --- the reader's side -------------------------------------------------------------------------
 */

static bool stops_loop; /* for tests that let the loop sleep */

static inline enum wf_verdict count_done(struct wf_actor *self, struct wf_msg *msg)
{
    struct world *world = WF_CONTAINER(self, struct world, actor);
    (*(msg->kind == WF_READ_DONE ? &world->done_count : &world->import_count))++;
    if (stops_loop) {
        wf_loop_stop(world->loop);
    }
    return WF_KEEP;
}

static inline bool imported(struct world *world)
{
    return world->import_count > 0;
}

static inline bool one_done(struct world *world)
{
    return world->done_count >= 1;
}

static inline struct ucx *inside(struct world *world)
{
    return (struct ucx *)world->transport;
}

static inline enum wf_status import(struct world *world, const struct wf_handle *handle,
                                    uint64_t len_bytes, struct wf_import *import_out)
{
    *import_out = (struct wf_import){.done = {.kind = WF_IMPORT_DONE},
                                     .owner = &world->actor,
                                     .handle = *handle,
                                     .len_bytes = len_bytes};
    world->import_count = 0;
    world->transport->ops->import_region(world->transport, import_out);
    cr_assert(world->kind->run(world, imported));
    return import_out->status;
}

static inline void open_world(struct world *world, const struct world_kind *kind)
{
    memset(world, 0, sizeof *world);
    world->kind = kind;
    cr_assert(kind->open(world), "%s", kind->name);
    wf_actor_init(&world->actor, world->loop, "reader", count_done);
    struct wf_import got;
    cr_assert_eq(import(world, &world->handle, WORLD_BYTES, &got), WF_OK, "%s", got.error.text);
    world->remote = got.remote;
}

static inline void close_world(struct world *world)
{
    world->transport->ops->release_region(world->transport, world->remote);
    wf_actor_close(&world->actor);
    wf_actor_fini(&world->actor);
    world->kind->close(world);
}

struct reading {
    struct wf_op op;
    struct wf_read_source src;
    struct wf_read_target dst;
    struct wf_read read;
};

/* Reads bytes of the region, `stride` from each to the next: above 1 the source packs them. */
static inline void start_strided(struct world *world, struct reading *reading,
                                 struct wf_remote *remote, uint8_t *target, uint64_t first,
                                 uint64_t bytes, int64_t stride)
{
    *reading = (struct reading){
        .op.box = {0, first, 0, bytes, 1, {{bytes, stride, 1}}},
        .src = {remote, 0, WORLD_BYTES, WF_DTYPE_U8},
        .dst = {target, bytes, WF_DTYPE_U8},
    };
    reading->read = (struct wf_read){.done = {.kind = WF_READ_DONE},
                                     .owner = &world->actor,
                                     .ops = &reading->op,
                                     .op_count = 1,
                                     .src_count = 1,
                                     .dst_count = 1,
                                     .src = &reading->src,
                                     .dst = &reading->dst,
                                     .deadline_ns = WF_NEVER_NS};
    world->done_count = 0;
    world->transport->ops->read(world->transport, &reading->read);
}

/* In place where the region's parts are long. */
static inline void start(struct world *world, struct reading *reading, struct wf_remote *remote,
                         uint8_t *target, uint64_t first, uint64_t bytes)
{
    start_strided(world, reading, remote, target, first, bytes, 1);
}

static inline void check_bytes(const uint8_t *target, uint64_t first, uint64_t bytes)
{
    uint64_t i = 0;
    while (i < bytes && target[i] == world_byte(first + i)) {
        i++;
    }
    cr_assert_eq(i, bytes, "byte %llu", (unsigned long long)i);
}

static inline void check_untouched(const uint8_t *target, uint64_t bytes)
{
    uint64_t i = 0;
    while (i < bytes && target[i] == 0xa5) {
        i++;
    }
    cr_assert_eq(i, bytes, "byte %llu landed late", (unsigned long long)i);
}

/* Reads a few bytes, to see that all is well. */
static inline void check_alive(struct world *world)
{
    uint8_t target[1000];
    struct reading reading;
    start(world, &reading, world->remote, target, 17, sizeof target);
    cr_assert(world->kind->run(world, one_done));
    cr_assert_eq(reading.read.status, WF_OK, "%s", reading.read.text);
    check_bytes(target, 17, sizeof target);
}

static inline void turn_for(struct world *world, uint64_t ns)
{
    uint64_t until_ns = wf_loop_now_ns(world->loop) + ns;
    while (wf_loop_now_ns(world->loop) < until_ns) {
        wf_loop_turn(world->loop);
    }
}

/* Starts a reader of the world's region ("read" or "strided", tests/contract/ucx_source.c) and
 * waits until it reads. */
static inline pid_t start_reader(struct world *world, const char *tls, const char *how)
{
    char bytes[32], under_way;
    int in[2], out[2];
    snprintf(bytes, sizeof bytes, "%d", WORLD_BYTES);
    cr_assert_eq(pipe(in), 0);
    cr_assert_eq(pipe(out), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        close(out[0]);
        const char *program = getenv("WEFT_TEST_UCX_SOURCE");
        execl(program, program, tls, bytes, how, (char *)NULL);
        _exit(1);
    }
    close(in[0]);
    close(out[1]);
    cr_assert_eq(write(in[1], &world->handle, sizeof world->handle), (ssize_t)sizeof world->handle);
    cr_assert_eq(read(out[0], &under_way, 1), 1, "the reader does not start");
    close(in[1]);
    close(out[0]);
    return pid;
}

#endif
