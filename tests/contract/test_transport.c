/* test_transport.c - what every transport must do, run on each of them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/casts.h"
#include "tests/contract/transport_world.h"
#include "tests/contract/transport_world_kinds.h"

const struct world_kind *const world_kinds[] = {&world_shm_memfd,
                                                &world_shm_process,
                                                &world_fault,
                                                &world_sim,
#ifdef WEFT_UCX
                                                &world_ucx_tcp,
                                                &world_ucx_rendezvous,
                                                &world_ucx_posix,
#endif
                                                NULL};

struct wf_handle world_fresh_handle(const struct world *world)
{
    struct wf_handle handle = world->handle;
    handle.fd = handle.fd >= 0 ? dup(handle.fd) : -1;
    return handle;
}

/* --- the reader's side ---------------------------------------------------------------------------
 */

static enum wf_verdict count_done(struct wf_actor *self, struct wf_msg *msg)
{
    struct world *world = WF_CONTAINER(self, struct world, actor);
    cr_assert(msg->kind == WF_READ_DONE || msg->kind == WF_IMPORT_DONE);
    (*(msg->kind == WF_READ_DONE ? &world->done_count : &world->import_count))++;
    return WF_KEEP;
}

static bool imported(struct world *world)
{
    return world->import_count >= 1;
}

static void start_import(struct world *world, struct wf_import *import, uint64_t len_bytes)
{
    *import = (struct wf_import){.done = {.kind = WF_IMPORT_DONE},
                                 .owner = &world->actor,
                                 .handle = world_fresh_handle(world),
                                 .len_bytes = len_bytes};
}

/* Starts it and turns until it is done. */
static void finish_import(struct world *world, struct wf_import *import, const char *row)
{
    world->import_count = 0;
    world->transport->ops->import_region(world->transport, import);
    cr_assert(world->kind->run(world, imported), "%s, %s: no answer", world->kind->name, row);
}

static bool one_done(struct world *world)
{
    return world->done_count >= 1;
}

static bool two_done(struct world *world)
{
    return world->done_count >= 2;
}

static bool nothing_left(struct world *world)
{
    return world->done_count >= 2 || !wf_loop_has_work(world->loop);
}

static void open_world(struct world *world, const struct world_kind *kind)
{
    memset(world, 0, sizeof *world);
    world->kind = kind;
    cr_assert(kind->open(world), "%s: cannot be opened", kind->name);
    wf_actor_init(&world->actor, world->loop, "reader", count_done);
    struct wf_import import;
    start_import(world, &import, WORLD_BYTES);
    finish_import(world, &import, "the world's region");
    cr_assert_eq(import.status, WF_OK, "%s: %s", kind->name, import.error.text);
    world->remote = import.remote;
}

static void close_world(struct world *world)
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

/* One op over the whole region, read as `src_dtype`, into `target`. */
static void prepare(struct world *world, struct reading *reading, const struct wf_box *box,
                    enum wf_dtype src_dtype, void *target, uint64_t target_bytes,
                    enum wf_dtype dst_dtype)
{
    memset(reading, 0, sizeof *reading);
    reading->op.box = *box;
    reading->src = (struct wf_read_source){world->remote, 0, WORLD_BYTES, src_dtype};
    reading->dst = (struct wf_read_target){target, target_bytes, dst_dtype};
    reading->read = (struct wf_read){.done = {.kind = WF_READ_DONE},
                                     .owner = &world->actor,
                                     .ops = &reading->op,
                                     .op_count = 1,
                                     .src_count = 1,
                                     .dst_count = 1,
                                     .src = &reading->src,
                                     .dst = &reading->dst,
                                     .deadline_ns = WF_NEVER_NS};
}

static void start(struct world *world, struct reading *reading)
{
    world->transport->ops->read(world->transport, &reading->read);
}

/* What the box should write, element by element. */
static void expect(const struct wf_box *box, enum wf_dtype src_dtype, enum wf_dtype dst_dtype,
                   uint8_t *target)
{
    wf_cast_t *cast = wf_cast_for(src_dtype, dst_dtype, true);
    size_t elem = wf_dtype_bytes(src_dtype);
    for (uint64_t e = 0; e < box->elements; e++) {
        int64_t src = (int64_t)box->src_offset, dst = (int64_t)box->dst_offset;
        uint64_t rest = e;
        for (uint32_t a = box->axis_count; a-- > 0;) {
            src += (int64_t)(rest % box->axes[a].count) * box->axes[a].src_step;
            dst += (int64_t)(rest % box->axes[a].count) * box->axes[a].dst_step;
            rest /= box->axes[a].count;
        }
        uint8_t bytes[8] = {0};
        for (size_t i = 0; i < elem; i++) {
            bytes[i] = world_byte((uint64_t)src + i);
        }
        cast(target + dst, bytes, 1);
    }
}

#define FOR_EACH_WORLD(world)                                                          \
    for (const struct world_kind *const *kind_ = world_kinds; *kind_ != NULL; kind_++) \
        for (bool once_ = (open_world(world, *kind_), true); once_;                    \
             once_ = false, close_world(world))

/* --- right bytes
 * ----------------------------------------------------------------------------------- */

struct box_row {
    const char *name;
    enum wf_dtype src, dst;
    struct wf_box box;
    uint64_t target_bytes;
};

static const struct box_row box_rows[] = {
    {"one element", WF_DTYPE_BF16, WF_DTYPE_BF16, {0, 6, 4, 1, 0, {{0}}}, 64},
    {"a short run", WF_DTYPE_U8, WF_DTYPE_U8, {0, 3, 5, 100, 1, {{100, 1, 1}}}, 128},
    {"a run of several jobs",
     WF_DTYPE_BF16,
     WF_DTYPE_BF16,
     {0, 2, 0, 10000001, 1, {{10000001, 2, 2}}},
     20000064},
    {"a run that grows",
     WF_DTYPE_BF16,
     WF_DTYPE_F32,
     {0, 0, 8, 700001, 1, {{700001, 2, 4}}},
     2800064},
    {"a run that shrinks",
     WF_DTYPE_F32,
     WF_DTYPE_BF16,
     {0, 4, 2, 3000001, 1, {{3000001, 4, 2}}},
     6000064},
    {"rows cut from wider rows",
     WF_DTYPE_BF16,
     WF_DTYPE_BF16,
     {0, 512, 0, 2000 * 256, 2, {{2000, 2048, 512}, {256, 2, 2}}},
     1024064},
    {"long rows into wider rows",
     WF_DTYPE_F32,
     WF_DTYPE_F32,
     {0, 0, 64, 40 * 20000, 2, {{40, 80000, 160000}, {20000, 4, 4}}},
     6400064},
    {"rows far apart",
     WF_DTYPE_BF16,
     WF_DTYPE_BF16,
     {0, 0, 0, 300 * 10, 2, {{300, 65536, 20}, {10, 2, 2}}},
     6064},
    {"a transpose with a cast",
     WF_DTYPE_F32,
     WF_DTYPE_F16,
     {0, 0, 0, 700 * 900, 2, {{700, 4, 1800}, {900, 2800, 2}}},
     1260064},
    {"backwards", WF_DTYPE_U8, WF_DTYPE_U8, {0, 9999, 0, 10000, 1, {{10000, -1, 1}}}, 10064},
    {"three axes and a repeat",
     WF_DTYPE_BF16,
     WF_DTYPE_F32,
     {0, 128, 0, 3 * 50 * 70, 3, {{3, 0, 20000}, {50, 1024, 400}, {70, 2, 4}}},
     64064},
};

static void check_row(struct world *world, const struct box_row *row)
{
    uint8_t *got = malloc(row->target_bytes), *wanted = malloc(row->target_bytes);
    memset(got, 0x5a, row->target_bytes);
    memset(wanted, 0x5a, row->target_bytes);
    struct reading reading;
    prepare(world, &reading, &row->box, row->src, got, row->target_bytes, row->dst);
    world->done_count = 0;
    start(world, &reading);
    cr_assert(world->kind->run(world, one_done), "%s, %s: no answer", world->kind->name, row->name);
    cr_assert_eq(reading.read.status, WF_OK, "%s, %s: %s", world->kind->name, row->name,
                 reading.read.text);
    cr_assert_eq(reading.read.bytes, row->box.elements * wf_dtype_bytes(row->dst), "%s, %s",
                 world->kind->name, row->name);
    expect(&row->box, row->src, row->dst, wanted);
    cr_assert(memcmp(got, wanted, row->target_bytes) == 0, "%s, %s: wrong bytes", world->kind->name,
              row->name);
    free(got);
    free(wanted);
}

Test(transport, boxes_arrive_cast_and_in_place)
{
    struct world world;
    FOR_EACH_WORLD(&world)
    {
        for (size_t i = 0; i < sizeof box_rows / sizeof box_rows[0]; i++) {
            check_row(&world, &box_rows[i]);
        }
    }
}

Test(transport, many_small_ops_in_one_read)
{
    enum { OPS = 20000, EACH = 100 };
    struct world world;
    FOR_EACH_WORLD(&world)
    {
        struct wf_op *ops = calloc(OPS, sizeof *ops);
        uint8_t *got = calloc(OPS, EACH);
        for (uint32_t i = 0; i < OPS; i++) {
            ops[i].box = (struct wf_box){
                0, (uint64_t)(OPS - 1 - i) * EACH, (uint64_t)i * EACH, EACH, 1, {{EACH, 1, 1}}};
        }
        struct reading reading;
        prepare(&world, &reading, &ops[0].box, WF_DTYPE_U8, got, OPS * EACH, WF_DTYPE_U8);
        reading.read.ops = ops;
        reading.read.op_count = OPS;
        start(&world, &reading);
        cr_assert(world.kind->run(&world, one_done), "%s", world.kind->name);
        cr_assert_eq(reading.read.status, WF_OK, "%s: %s", world.kind->name, reading.read.text);
        for (uint64_t i = 0; i < OPS * EACH; i++) {
            cr_assert_eq(got[i], world_byte((OPS - 1 - i / EACH) * EACH + i % EACH),
                         "%s, byte %llu", world.kind->name, (unsigned long long)i);
        }
        free(ops);
        free(got);
    }
}

Test(transport, two_reads_at_once_end_once_each)
{
    struct world world;
    FOR_EACH_WORLD(&world)
    {
        const struct wf_box box = {0, 0, 0, WORLD_BYTES, 1, {{WORLD_BYTES, 1, 1}}};
        uint8_t *got[2] = {malloc(WORLD_BYTES), malloc(WORLD_BYTES)};
        struct reading reading[2];
        for (int i = 0; i < 2; i++) {
            prepare(&world, &reading[i], &box, WF_DTYPE_U8, got[i], WORLD_BYTES, WF_DTYPE_U8);
            start(&world, &reading[i]);
        }
        cr_assert(world.kind->run(&world, two_done), "%s", world.kind->name);
        for (int i = 0; i < 2; i++) {
            cr_assert_eq(reading[i].read.status, WF_OK, "%s", world.kind->name);
            cr_assert_eq(got[i][WORLD_BYTES - 1], world_byte(WORLD_BYTES - 1), "%s",
                         world.kind->name);
        }
        cr_assert(memcmp(got[0], got[1], WORLD_BYTES) == 0, "%s", world.kind->name);
        cr_assert_eq(world.done_count, 2, "%s", world.kind->name);
        free(got[0]);
        free(got[1]);
    }
}

Test(transport, no_ops_is_done_at_once)
{
    struct world world;
    FOR_EACH_WORLD(&world)
    {
        const struct wf_box box = {.elements = 1};
        uint8_t byte = 7;
        struct reading reading;
        prepare(&world, &reading, &box, WF_DTYPE_U8, &byte, 1, WF_DTYPE_U8);
        reading.read.op_count = 0;
        start(&world, &reading);
        cr_assert(world.kind->run(&world, one_done), "%s", world.kind->name);
        cr_assert_eq(reading.read.status, WF_OK, "%s", world.kind->name);
        cr_assert_eq(byte, 7, "%s", world.kind->name);
    }
}

/* --- what must be refused
 * ----------------------------------------------------------------------------- */

struct bad_row {
    const char *name;
    struct wf_op op;
    enum wf_dtype src, dst;
    uint64_t place, place_bytes; /* of the source tensor in the region */
};

#define RUN(first, n)          \
    {                          \
        0, (first), 0, (n), 1, \
        {                      \
            {                  \
                (n), 1, 1      \
            }                  \
        }                      \
    }

static const struct bad_row bad_rows[] = {
    {"beyond the source",
     {.box = RUN(WORLD_BYTES - 10, 20)},
     WF_DTYPE_U8,
     WF_DTYPE_U8,
     0,
     WORLD_BYTES},
    {"beyond the tensor", {.box = RUN(90, 20)}, WF_DTYPE_U8, WF_DTYPE_U8, 0, 100},
    {"beyond the target", {.box = RUN(0, 5000)}, WF_DTYPE_U8, WF_DTYPE_U8, 0, WORLD_BYTES},
    {"before the source",
     {.box = {0, 5, 0, 20, 1, {{20, -1, 1}}}},
     WF_DTYPE_U8,
     WF_DTYPE_U8,
     0,
     WORLD_BYTES},
    {"steps that overflow",
     {.box = {0, 0, 0, 4, 1, {{4, INT64_MAX / 2, 1}}}},
     WF_DTYPE_U8,
     WF_DTYPE_U8,
     0,
     WORLD_BYTES},
    {"a count that lies",
     {.box = {0, 0, 0, 100, 1, {{4000000000000, 1, 1}}}},
     WF_DTYPE_U8,
     WF_DTYPE_U8,
     0,
     WORLD_BYTES},
    {"a tensor outside its region",
     {.box = RUN(0, 10)},
     WF_DTYPE_U8,
     WF_DTYPE_U8,
     WORLD_BYTES - 4,
     10},
    {"a tensor at the end of the numbers",
     {.box = RUN(0, 10)},
     WF_DTYPE_U8,
     WF_DTYPE_U8,
     UINT64_MAX - 4,
     10},
    {"a source tensor that is not there",
     {.src_tensor = 1, .box = RUN(0, 10)},
     WF_DTYPE_U8,
     WF_DTYPE_U8,
     0,
     WORLD_BYTES},
    {"a target tensor that is not there",
     {.dst_tensor = 9, .box = RUN(0, 10)},
     WF_DTYPE_U8,
     WF_DTYPE_U8,
     0,
     WORLD_BYTES},
    {"a cast that does not exist",
     {.box = RUN(0, 10)},
     WF_DTYPE_I32,
     WF_DTYPE_BF16,
     0,
     WORLD_BYTES},
};

Test(transport, a_bad_op_moves_nothing)
{
    struct world world;
    FOR_EACH_WORLD(&world)
    {
        for (size_t i = 0; i < sizeof bad_rows / sizeof bad_rows[0]; i++) {
            const struct bad_row *row = &bad_rows[i];
            uint8_t target[4096];
            memset(target, 0x5a, sizeof target);
            const struct wf_op good = {.box = RUN(0, 64)};
            struct wf_op ops[2] = {good, row->op};
            struct reading reading;
            prepare(&world, &reading, &good.box, row->src, target, sizeof target, row->dst);
            reading.src.offset = row->place;
            reading.src.len_bytes = row->place_bytes;
            reading.read.ops = ops;
            reading.read.op_count = 2;
            bool first_is_bad = row->place + row->place_bytes > WORLD_BYTES ||
                                row->place > WORLD_BYTES || row->src != row->dst;
            world.done_count = 0;
            start(&world, &reading);
            cr_assert(world.kind->run(&world, one_done), "%s, %s", world.kind->name, row->name);
            cr_assert_eq(reading.read.status, WF_INVALID, "%s, %s: %s", world.kind->name, row->name,
                         wf_status_name(reading.read.status));
            cr_assert_eq(reading.read.failed_op, first_is_bad ? 0 : 1, "%s, %s", world.kind->name,
                         row->name);
            cr_assert_neq(reading.read.text[0], '\0', "%s, %s", world.kind->name, row->name);
            for (size_t b = 0; b < sizeof target; b++) {
                cr_assert_eq(target[b], 0x5a, "%s, %s: byte %zu", world.kind->name, row->name, b);
            }
        }
    }
}

static void empty_handle(struct wf_handle *handle)
{
    handle->len = 0;
}

static void short_handle(struct wf_handle *handle)
{
    handle->len--;
}

static void garbled_handle(struct wf_handle *handle)
{
    memset(handle->bytes, 0xff, sizeof handle->bytes);
}

static const struct {
    const char *name;
    void (*spoil)(struct wf_handle *handle);
    uint64_t len_bytes;
} handle_rows[] = {
    {"no bytes", empty_handle, WORLD_BYTES},
    {"one byte less", short_handle, WORLD_BYTES},
    {"all ones", garbled_handle, WORLD_BYTES},
    {"another length", NULL, WORLD_BYTES - 1},
    {"no length", NULL, 0},
};

Test(transport, bad_handles_are_refused)
{
    struct world world;
    FOR_EACH_WORLD(&world)
    {
        for (size_t i = 0; i < sizeof handle_rows / sizeof handle_rows[0]; i++) {
            struct wf_import import;
            start_import(&world, &import, handle_rows[i].len_bytes);
            if (handle_rows[i].spoil != NULL) {
                handle_rows[i].spoil(&import.handle);
            }
            finish_import(&world, &import, handle_rows[i].name);
            cr_assert_neq(import.status, WF_OK, "%s, %s", world.kind->name, handle_rows[i].name);
            cr_assert_null(import.remote, "%s, %s", world.kind->name, handle_rows[i].name);
            cr_assert_neq(import.error.text[0], '\0', "%s, %s", world.kind->name,
                          handle_rows[i].name);
        }
    }
}

static bool two_imported(struct world *world)
{
    return world->import_count >= 2;
}

Test(transport, imports_end_once_each_and_later_than_they_began)
{
    struct world world;
    FOR_EACH_WORLD(&world)
    {
        struct wf_import imports[2];
        world.import_count = 0;
        for (int i = 0; i < 2; i++) {
            start_import(&world, &imports[i], WORLD_BYTES);
            world.transport->ops->import_region(world.transport, &imports[i]);
        }
        cr_assert_eq(world.import_count, 0, "%s: told inside the call", world.kind->name);
        cr_assert(world.kind->run(&world, two_imported), "%s", world.kind->name);
        for (int i = 0; i < 2; i++) {
            cr_assert_eq(imports[i].status, WF_OK, "%s: %s", world.kind->name,
                         imports[i].error.text);
            cr_assert_eq(imports[i].remote->len_bytes, WORLD_BYTES, "%s", world.kind->name);
            world.transport->ops->release_region(world.transport, imports[i].remote);
        }
        world.kind->run(&world, nothing_left);
        cr_assert_eq(world.import_count, 2, "%s", world.kind->name);
    }
}

/* --- ends
 * --------------------------------------------------------------------------------------------------
 */

Test(transport, a_deadline_that_passed_moves_nothing)
{
    struct world world;
    FOR_EACH_WORLD(&world)
    {
        const struct wf_box box = {0, 0, 0, 1000, 1, {{1000, 1, 1}}};
        uint8_t target[1000] = {0};
        struct reading reading;
        prepare(&world, &reading, &box, WF_DTYPE_U8, target, sizeof target, WF_DTYPE_U8);
        reading.read.deadline_ns = wf_loop_now_ns(world.loop);
        start(&world, &reading);
        cr_assert(world.kind->run(&world, one_done), "%s", world.kind->name);
        cr_assert_eq(reading.read.status, WF_TIMED_OUT, "%s", world.kind->name);
        cr_assert_eq(reading.read.failed_op, 0, "%s", world.kind->name);
        for (size_t i = 0; i < sizeof target; i++) {
            cr_assert_eq(target[i], 0, "%s", world.kind->name);
        }
    }
}

Test(transport, cancel_is_a_barrier)
{
    struct world world;
    FOR_EACH_WORLD(&world)
    {
        const struct wf_box box = {0, 0, 0, WORLD_BYTES, 1, {{WORLD_BYTES, 1, 1}}};
        uint8_t *target = calloc(1, WORLD_BYTES);
        struct reading reading;
        prepare(&world, &reading, &box, WF_DTYPE_U8, target, WORLD_BYTES, WF_DTYPE_U8);
        start(&world, &reading);
        world.transport->ops->cancel(world.transport, &reading.read);
        cr_assert(world.kind->run(&world, one_done), "%s", world.kind->name);
        cr_assert(reading.read.status == WF_CANCELLED || reading.read.status == WF_OK, "%s: %s",
                  world.kind->name, wf_status_name(reading.read.status));
        memset(target, 0xa5, WORLD_BYTES); /* ours again */
        world.kind->run(&world, nothing_left);
        cr_assert_eq(world.done_count, 1, "%s", world.kind->name);
        uint64_t i = 0;
        while (i < WORLD_BYTES && target[i] == 0xa5) {
            i++;
        }
        cr_assert_eq(i, WORLD_BYTES, "%s: byte %llu landed late", world.kind->name,
                     (unsigned long long)i);
        prepare(&world, &reading, &box, WF_DTYPE_U8, target, WORLD_BYTES, WF_DTYPE_U8);
        start(&world, &reading);
        cr_assert(world.kind->run(&world, two_done), "%s", world.kind->name);
        cr_assert_eq(reading.read.status, WF_OK, "%s", world.kind->name);
        for (i = 0; i < WORLD_BYTES && target[i] == world_byte(i);) {
            i++;
        }
        cr_assert_eq(i, WORLD_BYTES, "%s: byte %llu", world.kind->name, (unsigned long long)i);
        free(target);
    }
}

Test(transport, a_dead_source_is_named_or_does_not_matter)
{
    struct world world;
    FOR_EACH_WORLD(&world)
    {
        const struct wf_box box = {0, 16, 0, 1000, 1, {{1000, 1, 1}}};
        uint8_t target[1000] = {0};
        struct reading reading;
        prepare(&world, &reading, &box, WF_DTYPE_U8, target, sizeof target, WF_DTYPE_U8);
        world.kind->kill_source(&world);
        start(&world, &reading);
        cr_assert(world.kind->run(&world, one_done), "%s", world.kind->name);
        if (world.kind->survives_source) {
            cr_assert_eq(reading.read.status, WF_OK, "%s", world.kind->name);
            cr_assert_eq(target[999], world_byte(16 + 999), "%s", world.kind->name);
        } else {
            cr_assert_eq(reading.read.status, WF_PEER_LOST, "%s: %s", world.kind->name,
                         wf_status_name(reading.read.status));
            cr_assert_eq(reading.read.failed_op, 0, "%s", world.kind->name);
        }
    }
}
