/* test_ucx_parts.c - chunks that come in parts: every kind of box, parts that a source made up, and
 * readers that take nothing. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "models/casts.h"
#include "tests/transports/ucx_own.h"
#include "tests/within.h"

/* --- every kind of box -------------------------------------------------------------------------
 */

enum { MIXED_OPS = 6, MIXED_BYTES = 4 << 20 };

/* Parts and chunks end in the middle of all of them. */
static const struct mixed_row {
    enum wf_dtype src, dst;
    struct wf_box box;
} mixed_rows[MIXED_OPS] = {
    {WF_DTYPE_U8, WF_DTYPE_U8, {0, 7, 0, 300001, 1, {{300001, 1, 1}}}},
    {WF_DTYPE_F32, WF_DTYPE_BF16, {0, 4, 300004, 90001, 1, {{90001, 4, 2}}}},
    {WF_DTYPE_U8, WF_DTYPE_U8, {0, 11, 500001, 400000, 2, {{10, 50000, 40000}, {40000, 1, 1}}}},
    {WF_DTYPE_BF16, WF_DTYPE_F32, {0, 64, 1000004, 70003, 1, {{70003, 2, 4}}}},
    {WF_DTYPE_U8, WF_DTYPE_U8, {0, 5, 1400000, 300000, 2, {{7500, 90, 100}, {40, 1, 1}}}},
    {WF_DTYPE_U8, WF_DTYPE_U8, {0, 0, 2500000, 500000, 2, {{2, 250000, 600000}, {250000, 1, 1}}}},
};

static void read_mixed(struct world *world, const char *name)
{
    struct wf_op ops[MIXED_OPS];
    struct wf_read_source src[MIXED_OPS];
    struct wf_read_target dst[MIXED_OPS];
    uint8_t *target = calloc(1, MIXED_BYTES), *wanted = calloc(1, MIXED_BYTES);
    uint8_t *source = malloc(WORLD_BYTES);
    for (uint64_t i = 0; i < WORLD_BYTES; i++) {
        source[i] = world_byte(i);
    }
    for (uint16_t i = 0; i < MIXED_OPS; i++) {
        const struct mixed_row *row = &mixed_rows[i];
        ops[i] = (struct wf_op){.box = row->box, .src_tensor = i, .dst_tensor = i};
        src[i] = (struct wf_read_source){world->remote, 0, WORLD_BYTES, row->src};
        dst[i] = (struct wf_read_target){target, MIXED_BYTES, row->dst};
        wf_copy_box(&row->box, source, row->src, wanted, row->dst,
                    (struct wf_copy_part){0, row->box.elements});
    }
    struct wf_read read = {.done = {.kind = WF_READ_DONE},
                           .owner = &world->actor,
                           .ops = ops,
                           .op_count = MIXED_OPS,
                           .src_count = MIXED_OPS,
                           .dst_count = MIXED_OPS,
                           .src = src,
                           .dst = dst,
                           .deadline_ns = WF_NEVER_NS};
    world->done_count = 0;
    world->transport->ops->read(world->transport, &read);
    cr_assert(world->kind->run(world, one_done), "%s", name);
    cr_assert_eq(read.status, WF_OK, "%s: %s", name, read.text);
    for (uint64_t i = 0; i < MIXED_BYTES; i++) {
        cr_assert_eq(target[i], wanted[i], "%s: byte %llu", name, (unsigned long long)i);
    }
    free(source);
    free(target);
    free(wanted);
}

Test(ucx_parts, boxes_of_all_kinds_arrive)
{
    const struct world_kind *const kinds[] = {&world_ucx_tcp, &world_ucx_rendezvous};
    for (int i = 0; i < 2; i++) {
        struct world world;
        open_world(&world, kinds[i]);
        const struct ucx_peer *peer = ((struct ucx_remote *)world.remote)->peer;
        cr_assert_eq(peer->in_parts, kinds[i] == &world_ucx_tcp, "%s", kinds[i]->name);
        read_mixed(&world, kinds[i]->name);
        close_world(&world);
    }
}

/* --- parts that a source made up ---------------------------------------------------------------
 */

enum { PARTS_ELEMS = 1000, PARTS_BYTES = 4 * PARTS_ELEMS, SAID_MAX = 3 };

static const struct said_row {
    const char *name;
    struct {
        uint32_t offset, len;
    } said[SAID_MAX];
    enum wf_status status;
} said_rows[] = {
    {"whole", {{0, PARTS_BYTES}}, WF_OK},
    {"in two", {{0, 1200}, {1200, 2800}}, WF_OK},
    {"the last one first", {{3000, 1000}, {0, 1000}, {1000, 2000}}, WF_OK},
    {"too long", {{0, PARTS_BYTES + 4}}, WF_PROTOCOL},
    {"outside", {{PARTS_BYTES - 4, 8}}, WF_PROTOCOL},
    {"far outside", {{UINT32_MAX - 3, 4}}, WF_PROTOCOL},
    {"empty", {{0, 0}}, WF_PROTOCOL},
    {"an element cut in two", {{0, 1202}}, WF_PROTOCOL},
    {"in the middle of an element", {{2, 4}}, WF_PROTOCOL},
    {"more than there is", {{0, 3000}, {1000, 3000}}, WF_PROTOCOL},
};

static bool one_is_held(struct world *world)
{
    return inside(world)->source.waiting.count == 1;
}

/* The source is kept from answering, and the test answers for it. */
static void answer_for(struct own_source *own, const struct said_row *row)
{
    struct ucx *ucx = inside(&own->world);
    struct ucx_head head = ucx->source.waiting.first->head;
    struct ucx_client *client = ucx->source.clients;
    uint8_t body[PARTS_BYTES + 4];
    memset(body, 0x5a, sizeof body);
    head.kind = UCX_DATA;
    for (int i = 0; i < SAID_MAX && (i == 0 || row->said[i].len > 0); i++) {
        head.offset = row->said[i].offset;
        ucx_say(&ucx->source.worker, client->eps[0], UCX_AM_TO_READER, &head, body,
                row->said[i].len);
    }
}

Test(ucx_parts, a_reader_checks_what_comes)
{
    for (size_t i = 0; i < sizeof said_rows / sizeof said_rows[0]; i++) {
        const struct said_row *row = &said_rows[i];
        struct own_source own;
        open_own(&own);
        struct ucx *ucx = inside(&own.world);
        ucx->source.buffer_limit = 0;
        start(&own.world, &own.reading, own.remote, own.target, 0, 1);
        own.world.transport->ops->cancel(own.world.transport, &own.reading.read);
        cr_assert(own.world.kind->run(&own.world, one_done));
        turn_for(&own.world, 20 * MS);
        /* Every second number, so that the source has to pack. */
        own.reading.op.box = (struct wf_box){0, 0, 0, PARTS_ELEMS, 1, {{PARTS_ELEMS, 8, 4}}};
        own.reading.src = (struct wf_read_source){own.remote, 0, OWN_BYTES, WF_DTYPE_F32};
        own.reading.dst = (struct wf_read_target){own.target, OWN_BYTES, WF_DTYPE_F32};
        memset(own.target, 0xa5, OWN_BYTES);
        own.world.done_count = 0;
        own.world.transport->ops->read(own.world.transport, &own.reading.read);
        cr_assert(own.world.kind->run(&own.world, one_is_held), "%s", row->name);
        answer_for(&own, row);
        cr_assert(own.world.kind->run(&own.world, one_done), "%s", row->name);
        cr_assert_eq(own.reading.read.status, row->status, "%s: %s", row->name,
                     own.reading.read.text);
        for (uint32_t b = 0; row->status == WF_OK && b < PARTS_BYTES; b++) {
            cr_assert_eq(own.target[b], 0x5a, "%s: byte %u", row->name, b);
        }
        for (uint32_t b = PARTS_BYTES; b < OWN_BYTES; b++) {
            cr_assert_eq(own.target[b], 0xa5, "%s: byte %u", row->name, b);
        }
        close_own(&own);
    }
}

/* --- readers that take nothing -----------------------------------------------------------------
 */

static const struct frozen_row {
    const char *how;
    uint32_t readers; /* that freeze */
    int64_t stride;   /* of the read that must not wait for them */
} frozen_rows[] = {
    {"read", 1, 1},
    {"strided", 1, 2},
    {"strided", 2, 2},
};
enum { FROZEN_MAX = 2 };

/* Readers in other processes, stopped in the middle of their reads, do not hold up this one;
 * neither where the source sends from where the bytes lie nor where it needs a buffer for each
 * part. */
static void check_frozen_row(const struct frozen_row *row)
{
    struct world world;
    pid_t frozen[FROZEN_MAX];
    open_world(&world, &world_ucx_tcp);
    for (uint32_t i = 0; i < row->readers; i++) {
        frozen[i] = start_reader(&world, "tcp", row->how);
        turn_for(&world, 20 * MS);
        kill(frozen[i], SIGSTOP);
        turn_for(&world, 20 * MS);
    }
    uint8_t *target = malloc(WORLD_BYTES);
    uint64_t bytes = WORLD_BYTES / (uint64_t)row->stride;
    for (int i = 0; i < 3; i++) {
        struct reading reading;
        memset(target, 0, WORLD_BYTES);
        start_strided(&world, &reading, world.remote, target, 0, bytes, row->stride);
        cr_assert(world.kind->run(&world, one_done), "%s, %u: it is held up", row->how,
                  row->readers);
        cr_assert_eq(reading.read.status, WF_OK, "%s: %s", row->how, reading.read.text);
        for (uint64_t b = 0; b < bytes; b++) {
            cr_assert_eq(target[b], world_byte(b * (uint64_t)row->stride), "%s: byte %llu",
                         row->how, (unsigned long long)b);
        }
    }
    for (uint32_t i = 0; i < row->readers; i++) {
        kill(frozen[i], SIGKILL);
        waitpid(frozen[i], NULL, 0);
    }
    check_alive(&world);
    free(target);
    close_world(&world);
}

Test(ucx_parts, a_reader_that_froze_does_not_hold_up_another, .init = within_minutes)
{
    setenv("WEFT_TEST_UCX_SOCKET", "32768", 1); /* else the kernel takes what the reader does not */
    for (size_t i = 0; i < sizeof frozen_rows / sizeof frozen_rows[0]; i++) {
        check_frozen_row(&frozen_rows[i]);
    }
}
